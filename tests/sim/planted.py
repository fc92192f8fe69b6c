"""Bugs that are planted in a copy of Lockpin, to see that the play finds each. A bug is a piece of source and what
stands in its place; where the source has moved, the bug has to be planted anew, and the run says so.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SEEDS, CALLS = 20, 1000  # 20,000 calls


@dataclass(frozen=True)
class Bug:
    """One bug."""

    name: str
    path: str
    source: str
    planted: str
    also: tuple = ()  # what keeps it from doing harm, taken away too: (path, source, planted)


BUGS = (
    Bug(
        "hold not durable", "ledger/writer.py",
        "            committing = True\n",
        "            self._send(answers)\n            answers = []\n            committing = True\n",
    ),
    Bug(
        "check then write", "ledger/frame.py",
        "        if version != self._version:\n            self._read_anew()\n",
        "        if self._version is None:\n            self._read_anew()\n",
    ),
    Bug(
        "settled twice", "ledger/books.py",
        "        if before.charge is None or before.charge.reason != EXPIRED or charge.estimated:\n",
        "        if before.charge is None:\n",
    ),
    Bug(
        "window of the settlement", "ledger/books.py",
        "self.balances.settle(taken.accounts, taken.at, held, spent, task.terms)",
        "self.balances.settle(taken.accounts, self.at, held, spent, task.terms)",
    ),
    Bug(
        "void of a sent call", "settlement.py",
        '    return held(call, outcome.ending.value)\n\n\ndef _failed',
        '    return Void(outcome.ending.value)\n\n\ndef _failed',
    ),
    Bug(
        "lost shrink", "ledger/books.py",
        "        self.balances.settle(held.accounts, held.at, less, (0, 0), self.terms(held.task))\n        facts",
        "        facts",
    ),
    Bug(
        "recovery of a live writer", "ledger/liveness.py",
        "        except OSError:\n            return None\n\n",
        "        except OSError:\n            return Claim(path, os.open(path, os.O_RDONLY))\n\n",
    ),
    Bug(
        "ticket leaked", "ledger/waiting.py",
        "        self._connection.executemany(_DROP, gone)\n",
        "",
    ),
    Bug(
        "true-up of a call that grows", "engine.py",
        "incoming.provider.prompt_first and not priced.parsed.grows",
        "incoming.provider.prompt_first",
        (("wire/anthropic_usage.py", " and not self.lost and not self.grows\n", " and not self.lost\n"),),
    ),
    Bug(
        "rounding down", "money.py",
        "return cls(-(-pico // PICO_PER_NANO))",
        "return cls(pico // PICO_PER_NANO)",
    ),
    Bug(
        "hold on some accounts only", "ledger/accounts.py",
        "        for budget in budgets\n        if budget.applies",
        "        for budget in budgets[:2]\n        if budget.applies",
    ),
    Bug(
        "what just fits is refused", "budgets.py",
        "left is None or most.nano <= left or not most.nano",
        "left is None or most.nano < left or not most.nano",
    ),
    Bug(
        "held money forgotten", "budgets.py",
        "self.limit.nano - self.spent.nano - self.held.nano - self.reserved.nano\n",
        "self.limit.nano - self.spent.nano\n",
    ),
    Bug(
        "tokens that are held are forgotten", "ledger/accounts.py",
        "- balance.spent_tokens - balance.held_tokens\n\n\ndef beside",
        "- balance.spent_tokens\n\n\ndef beside",
    ),
    Bug(
        "lost answer taken for a failed commit", "ledger/writer.py",
        "            happened = self._outcome(doubt)\n",
        "            happened = False\n",
    ),
    Bug(
        "stale verdict after a wait", "admission_room.py",
        "                if not isinstance(waited, Short):\n                    return waited\n",
        "                return answer if isinstance(waited, Short) else waited\n",
    ),
    Bug(
        "near its cap as it was before the wait", "ladder.py",
        "    while facts.has_turned() or (not lightens and facts.is_near_cap()):\n", "    while False:\n",
    ),
    Bug(
        "retry without new room", "ledger/books.py",
        "answer = try_in_turn(attempt, call, waiter.smaller, waiter.sizes)",
        "answer = self._take(call, self._seats_of(call, waiter.rules, self.terms(call.payers.task)))",
    ),
    Bug(
        "held for another task", "admission.py",
        'payers=incoming.payers,\n            provider=incoming.provider.name,\n            host=incoming.host,\n            wire=self.wire.name',
        'payers=replace(incoming.payers, task="default"),\n            provider=incoming.provider.name,\n            host=incoming.host,\n            wire=self.wire.name',
    ),
    Bug(
        "tokens of a prompt are not charged", "settlement.py",
        "nonzero(usage), total_tokens(usage), served, terms.tier,", "nonzero(usage), output_tokens(usage), served, terms.tier,",
    ),
    Bug(
        "check outside of the transaction", "ledger/writer.py",
        '        self._connection.execute("BEGIN IMMEDIATE")\n        self._books.begin(self._clock(), careful=careful, serves=serves)\n',
        '        self._books.begin(self._clock(), careful=careful, serves=serves)\n        self._connection.execute("BEGIN IMMEDIATE")\n',
    ),
    Bug(
        "failed is free", "settlement.py",
        "    if not tariff.charge_failed:\n", "    if True:\n",
    ),
    Bug(
        "a waiting room that nobody enters", "admission_room.py",
        "        return wait if patience > NO_TIME else None", "        return None",
    ),
    Bug(
        "a wait without an answer", "ledger/lobby.py",
        "        return [(operation, answer) for call, answer in found for operation in asked.pop(call, ())]",
        "        return []",
    ),
    Bug(
        "a prompt held twice over", "sizing/bound.py",
        "    seen = text_tokens + schema", "    seen = 2 * text_tokens + 20_000 + schema",
    ),
    Bug(
        "a raise that survives a new limit", "ledger/frame.py",
        "                self.balances.forget_all_raises(after)", "                pass",
    ),
    Bug(
        "the first glob alone", "budgets.py",
        "any(fnmatch.fnmatchcase(name, glob) for glob in globs)", "fnmatch.fnmatchcase(name, globs[0])",
    ),
    Bug(
        "a closed task goes on", "ledger/books.py",
        "        if terms is not None and terms.closes(call.payers):\n            return Closed(self.now, call.payers.task)\n        if (paused", "        if (paused",
    ),
    Bug(
        "a deferred hold ends early", "ledger/books.py",
        "until = self.at + hold_for // timedelta(microseconds=1)", "until = self.at + hold_for // timedelta(microseconds=20)",
    ),
    Bug(
        "a deferred hold ends with its process", "ledger/leftovers.py",
        "FROM open_holds WHERE writer = ? AND background = 0 ORDER BY at, call", "FROM open_holds WHERE writer = ? ORDER BY at, call",
    ),
    Bug(
        "a cancelled call stays held", "ledger/books.py",
        '        self.room.leave(call_id)\n        taken = self._close_hold(call_id)\n        if taken is not None:\n            self._void(taken, Void("cancelled"))',
        "        self.room.leave(call_id)",
    ),
    Bug(
        "a budget that comes back misses what was spent", "ledger/frame.py",
        "for seat in self.balances.in_force_accounts(after):", "for seat in ():",
    ),
    Bug(
        "a new token limit is not seen", "ledger/definitions.py",
        '        raw = self._connection.execute(_READ).fetchall()\n        if raw != self._raw:\n',
        '        raw = self._connection.execute(_READ).fetchall()\n'
        '        limits = [[json.loads(row[1])["limit_nano"], row[0]] for row in raw]\n'
        '        if self._raw is None or limits != [[json.loads(row[1])["limit_nano"], row[0]] for row in self._raw]:\n',
    ),
    Bug(
        "an attempt that was billed is free", "engine_attempts.py",
        "return None if isinstance(cost, Later) or is_started else cost",
        'return None if isinstance(cost, Later) or is_started else Void("failed")',
    ),
    Bug(
        "an attempt under the hold of the one before", "engine_attempts.py",
        "return Following(replace(admitted, held=answer), ended)", "return Following(admitted, ended)",
    ),
    Bug(
        "what has failed is in the way of what follows", "ledger/attempts.py",
        "after = standings if held is None else left_by(standings, held, cost, allowed)", "after = standings",
    ),
    Bug(
        "a fallback forgets what has failed", "ledger/attempts.py",
        "resolved = books.settle(call_id, outcome) if isinstance(outcome, Charge) else books.void(call_id, outcome)\n"
        "        answer = books.hold(call, rules, out_of_turn=True)",
        "resolved, answer = None, books.hold(call, rules, out_of_turn=True)",
    ),
    Bug(
        "the breaker trips too late", "ledger/pausebook.py",
        "if total <= rule.usd.nano:", "if total <= 2 * rule.usd.nano:",
    ),
    Bug(
        "a pause that never ends", "ledger/pauses.py",
        "return self.until is None or at < self.until", "return True",
    ),
)  # fmt: skip


def main(names, *, jobs):
    """Plant bugs one by one and print which were found after how many calls. Gives the exit status."""
    wanted = [bug for bug in BUGS if not names or bug.name in names]
    if unknown := sorted(set(names) - {bug.name for bug in BUGS}):
        print(f'there is no bug "{unknown[0]}"; there are: {", ".join(bug.name for bug in BUGS)}')
        return 2
    began_s = time.monotonic()
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        try:
            found = list(pool.map(plant, wanted))
        except KeyboardInterrupt:  # those that are played end by themselves
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for bug, words in zip(wanted, found, strict=True):
        print(f"{bug.name:40} {words or 'NOT FOUND'}")
    missed = sum(words is None for words in found)
    print(f"{len(found) - missed} of {len(found)} planted bugs found, in {time.monotonic() - began_s:.0f} s")
    return 1 if missed else 0


def plant(bug):
    """Play a copy with a bug until a promise is broken; say by what and after how many calls. None: not within 20,000."""
    with tempfile.TemporaryDirectory(prefix="lockpin-planted-") as place:
        folder = Path(place)
        shutil.copytree(ROOT / "lockpin_core", folder / "lockpin_core", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "pricing").symlink_to(ROOT / "pricing")
        for where, source, planted in ((bug.path, bug.source, bug.planted), *bug.also):
            path = folder / "lockpin_core" / where
            text = path.read_text("utf-8")
            if text.count(source) != 1:
                sys.exit(f"the bug {bug.name!r} has no place any more in {where}: plant it anew")
            path.write_text(text.replace(source, planted), "utf-8")
        return _found(folder)


def _found(folder):
    command = [sys.executable, "-P", str(ROOT / "scripts" / "simulate"), "--seeds", str(SEEDS), "--calls", str(CALLS)]
    environment = os.environ | {"LOCKPIN_SIM_CORE": str(folder), "PYTHONHASHSEED": "0"}
    ended = subprocess.run(
        [*command, "--jobs", "1", "--first"], capture_output=True, text=True, env=environment, check=False
    )
    if ended.returncode == 0:
        return None
    calls = re.search(r"([\d,]+) calls in", ended.stdout)
    words = re.search(r"^seed \d+: (.*)$", ended.stdout, re.MULTILINE)
    if calls is None or words is None:
        sys.exit(f"the play itself broke:\n{ended.stdout}{ended.stderr}")
    return f"after {calls[1]} calls: {words[1][:110]}"

"""A process with a ledger of its own on a shared file, which does what it is told: one JSON order a line.

Started as `crashtest_teller.py`; prints one JSON answer for each order, and ends with its standard input. Holds have
the task's own budget and one of the machine, with the limits that the order `open` says.
"""

from __future__ import annotations

import itertools
import json
import random
import signal
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from lockpin_core.budgets import Budget, Standing
from lockpin_core.call import Call, Ceiling, Charge, Payers, Quote, Terms, Void
from lockpin_core.clock import new_id, utc_now
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger.protocol import Held, Rules, Short, Wait
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.money import Money
from lockpin_core.usage import Unit
from lockpin_core.windows import Window
from scripts.crashtest_people import PEOPLE, payers, rules

WAIT_S = 60
LANES = 8
_UNITS = frozenset({Unit.INPUT, Unit.OUTPUT})
_LIFETIME = Window("lifetime")


class Teller:
    """Carries out orders on one ledger at a time."""

    def __init__(self) -> None:
        self.books: SqliteLedger
        self.rules: Rules
        self.resting = threading.Event()
        self.lined: dict[str, Future[Any]] = {}

    def open(self, path: str, limits: dict[str, int]) -> dict[str, Any]:
        """Open a ledger under limits in nanodollars: of people, or of each task and of the machine in all."""
        self.rules = (
            rules(limits)
            if "user" in limits
            else Rules(
                (Budget("all", "machine", _LIFETIME, Money(limits["all"]), enforce=True),),
                Budget("task", "task", _LIFETIME, Money(limits["task"]), enforce=True, own=True),
            )
        )
        self.books = SqliteLedger(Path(path), clock=utc_now, new_id=new_id, fault=_tell_fault)
        self.books.define(self.rules, "crashtest").result(WAIT_S)
        return {"writer": self.books.writer_id}

    def stop(self) -> dict[str, Any]:
        """Close the ledger."""
        self.books.stop()
        return {}

    def hold(self, names: list[str], nano: int, task: str = "t") -> dict[str, Any]:
        """Hold an amount for each of some calls, all at once."""
        futures = [self.books.hold(_call(name, nano, task), self.rules) for name in names]
        return {"answers": [_answer(future) for future in futures]}

    def line(self, name: str, nano: int, task: str, patience_s: float) -> dict[str, Any]:
        """Let a call wait for room; tell whether it does."""
        self.lined[name] = self.books.hold(_call(name, nano, task), self.rules, None, _patience(patience_s))
        self.books.look_after().result(WAIT_S)
        return {"waits": not self.lined[name].done()}

    def turn(self, name: str) -> dict[str, Any]:
        """Wait for the answer of a call that waits."""
        return {"answer": _answer(self.lined.pop(name))}

    def queue(self, name: str, count: int, nano: int, cost: int, task: str, patience_s: float) -> dict[str, Any]:
        """Run calls that wait for room, several at once: so many, and on until `queued`. Give how many ended how."""
        self.resting.clear()
        numbers = itertools.count()

        def run(number: int) -> str:
            call = f"{name}-{number}"
            try:
                held = self.books.hold(_call(call, nano, task), self.rules, None, _patience(patience_s)).result(WAIT_S)
                if isinstance(held, Short):
                    return _why(held, nano)
                time.sleep(0.002)
                return "charged" if self.books.settle(call, _charge(cost)).result(WAIT_S).first else "resolved twice"
            except LedgerUnavailable:
                time.sleep(0.01)
                return "away"

        def lane(_: int) -> Counter[str]:
            ends: Counter[str] = Counter()
            while (number := next(numbers)) < count or not self.resting.is_set():
                ends[run(number)] += 1
            return ends

        with ThreadPoolExecutor(LANES) as lanes:
            return {"ends": sum(lanes.map(lane, range(LANES)), Counter())}

    def settle(self, names: list[str], nano: int) -> dict[str, Any]:
        """Charge an amount for each of some calls; `first`: how many had no resolution before."""
        futures = [self.books.settle(name, _charge(nano)) for name in names]
        return {"first": sum(future.result(WAIT_S).first for future in futures)}

    def freeze(self, name: str, nano: int) -> dict[str, Any]:
        """Ask for a hold that does not fit, and stop this very process while its transaction is open."""

        def smaller(standings: tuple[Standing, ...]) -> None:
            # To this very thread: another one would take a moment to stop it, and it would commit meanwhile.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

        return {"answer": _answer(self.books.hold(_call(name, nano, "t"), self.rules, smaller))}

    def mix(self, name: str, count: int, seed: int, tasks: int) -> dict[str, Any]:
        """Play calls of every kind of end on some tasks, several at once; give what each task was charged."""
        lots = random.Random(seed)
        plans = [
            (f"{name}-{n}", f"t{lots.randrange(tasks)}", lots.randint(1, 1000), lots.random()) for n in range(count)
        ]
        return self._play_all([(task, lot, _call(name, nano, task)) for name, task, nano, lot in plans])

    def throng(self, name: str, count: int, seed: int) -> dict[str, Any]:
        """Do the same with calls of people; give what each of them was charged."""
        lots = random.Random(seed)
        plans = [(n, lots.randrange(PEOPLE), lots.randint(1, 1000), lots.random()) for n in range(count)]
        return self._play_all(
            [
                (person, lot, replace(_call(f"{name}-{n}", nano, ""), payers=payers(person)))
                for n, person, nano, lot in plans
            ]
        )

    def _play_all(self, plans: list[tuple[str | int, float, Call]]) -> dict[str, Any]:
        """Run calls, each with who is charged and its lot."""
        with ThreadPoolExecutor(LANES) as lanes:
            ends = list(lanes.map(lambda plan: self._play(plan[2], plan[1]), plans))
        charged: Counter[str | int] = Counter()
        for (who, _, _), (_, nano) in zip(plans, ends, strict=True):
            charged[who] += nano
        return {"charged": charged, "ends": Counter(end for end, _ in ends)}

    def _play(self, call: Call, lot: float) -> tuple[str, int]:
        """Run one call; give how it ended and what it was charged.

        "away": no turn to write came within the time that the ledger gives it; then nothing may have happened.
        """
        try:
            return self._end(call, lot)
        except LedgerUnavailable:
            return "away", 0

    def _end(self, call: Call, lot: float) -> tuple[str, int]:
        future, name, nano = self.books.hold(call, self.rules), call.id, call.quote.most.nano
        if lot < 0.1:
            given_up = future.cancel()
            if not given_up:
                future.result(WAIT_S)
            self.books.cancel(name)
            return "cancelled", 0
        if not isinstance(future.result(WAIT_S), Held):
            return "short", 0
        if lot < 0.2:
            first = self.books.void(name, Void("not_sent")).result(WAIT_S).first
            return "voided" if first else "resolved twice", 0
        cost = int(nano * lot)
        first = self.books.settle(name, _charge(cost)).result(WAIT_S).first
        if lot > 0.9 and self.books.settle(name, _charge(nano)).result(WAIT_S).first:
            return "resolved twice", cost
        return "charged" if first else "resolved twice", cost

    def work(self, name: str) -> dict[str, Any]:
        """Hold and settle on several lanes until `rest`; give what each call came to."""
        self.resting.clear()
        with ThreadPoolExecutor(LANES) as lanes:
            told = list(lanes.map(self._lane, [f"{name}-{n}" for n in range(LANES)]))
        charged = {call: nano for lane, _ in told for call, nano in lane.items()}
        return {"charged": charged, "refused": [call for _, refused in told for call in refused]}

    def _lane(self, name: str) -> tuple[dict[str, int], list[str]]:
        charged: dict[str, int] = {}
        refused: list[str] = []
        number = 0
        while not self.resting.is_set():
            number += 1
            call = f"{name}-{number}"
            if _answer(self.books.hold(_call(call, 1000, name), self.rules)) != "Held":
                refused.append(call)
                time.sleep(0.01)
                continue
            charged[call] = number % 1000
            assert self.books.settle(call, _charge(charged[call])).result(WAIT_S).first
        return charged, refused


def _patience(seconds: float) -> Wait:
    return Wait(timedelta(seconds=seconds))


def _why(short: Short, nano: int) -> str:
    """Say whether a refused call could have waited, in which case its patience must have been over."""
    is_transient = all(standing.is_transient(Money(nano), 100) for standing in short.violations)
    return "held money was in the way" if is_transient else "spent"


def _answer(future: Future[Any]) -> str:
    try:
        return type(future.result(WAIT_S)).__name__
    except LedgerUnavailable:
        return "LedgerUnavailable"


def _call(name: str, nano: int, task: str) -> Call:
    return Call(
        id=name, payers=Payers(task, "m"), provider="openai", host="api.openai.com", wire="openai_chat",
        model="gpt-5.5", asked_model="gpt-5.5", client="curl/8", streamed=False,
        quote=Quote(Money(nano), 100, Ceiling(50, 50, _UNITS, _UNITS, {})), terms=Terms(), output_limit=50,
        limit_set=False, billing="metered", price_date="2026-10-01", rates={"input": "1", "output": "5"},
    )  # fmt: skip


def _charge(nano: int) -> Charge:
    return Charge(Money(nano), {Unit.INPUT: 5, Unit.OUTPUT: 10}, 15, "gpt-5.5", None)


def _tell_fault(code: str, reason: str) -> None:
    _print({"fault": code})


def _print(told: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(told) + "\n")  # in one piece: two threads print
    sys.stdout.flush()


def main() -> None:
    """Carry out orders; `work` and `queue` run beside the ones after them.

    `rest` ends the first, `queued` the second; both are answered by what was done.
    """
    teller = Teller()
    with ThreadPoolExecutor(1) as aside:
        working: Future[dict[str, Any]] | None = None
        for line in sys.stdin:
            order = json.loads(line)
            what = order.pop("do")
            if what in ("work", "queue"):
                working = aside.submit(getattr(teller, what), **order)
                continue
            if what in ("rest", "queued"):
                teller.resting.set()
                assert working is not None
                answer = working.result(WAIT_S)
            else:
                answer = getattr(teller, what)(**order)
            _print(answer)
        teller.resting.set()


if __name__ == "__main__":
    main()

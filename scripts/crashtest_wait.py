"""Calls that wait for room while something befalls a process: the one that waits, the one that holds, or their disk.

Whatever happens, nobody waits for the dead, no ticket stays behind, no limit is passed, and a call is refused only
where spent money is in its way.
"""

from __future__ import annotations

import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from scripts.crashtest_books import check, need, query, until
from scripts.crashtest_tellers import Teller, tellers

ROOM, QUOTE, COST = 4, 1_000_000, 10  # so many calls fit at once, by what they may cost; and what they do cost
LIMITS = {"task": ROOM * QUOTE, "all": 10**12}
BEHIND_S = 10.0  # until the one behind is answered, whatever befell the one before it
PATIENCE_S = 50
_TICKETS = "SELECT DISTINCT call FROM waiting WHERE task = ?"
_CHARGES = "SELECT DISTINCT usd, reason FROM rows WHERE kind = 'charge'"

type Mend = Callable[[], object]


@dataclass
class Waited:
    """What was seen."""

    faults: Counter[str] = field(default_factory=Counter)
    tickets: int = 0  # of calls that waited at these moments
    ends: Counter[str] = field(default_factory=Counter)


def _killed(teller: Teller) -> Mend:
    teller.send(signal.SIGKILL)
    return lambda: None


def _closed(teller: Teller) -> Mend:
    teller.ask("stop")
    return lambda: None


def _paused(teller: Teller) -> Mend:
    teller.send(signal.SIGSTOP)
    return lambda: teller.send(signal.SIGCONT)


def _full(teller: Teller) -> Mend:
    """Let no file of the process grow any more, and none be written past its beginning."""
    before = resource.prlimit(teller.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(teller.process.pid, resource.RLIMIT_FSIZE, (0, before[1]))
    return lambda: resource.prlimit(teller.process.pid, resource.RLIMIT_FSIZE, before)


FAULTS: dict[str, Callable[[Teller], Mend]] = {
    "killed": _killed, "closed": _closed, "paused": _paused, "out of disk": _full,
}  # fmt: skip
_DEADLY = ("killed", "closed")
_ANSWERS = {"paused": "Held", "out of disk": "LedgerUnavailable"}  # of the first in line, where it can be asked


def first_in_line(folder: Path) -> dict[str, float]:
    """Let each fault befall whoever is the first in line; give for how long the one behind waited for its room."""
    paths = [folder / name.replace(" ", "-") / "ledger.sqlite3" for name in FAULTS]
    with ThreadPoolExecutor(len(FAULTS)) as at_once:
        return dict(zip(FAULTS, at_once.map(_first_in_line, paths, FAULTS), strict=True))


def _first_in_line(path: Path, name: str) -> float:
    with tellers(3) as (holder, first, behind):
        for one in (holder, first, behind):
            one.ask("open", path=str(path), limits=LIMITS)
        need(holder.ask("hold", names=["h"], nano=ROOM * QUOTE)["answers"] == ["Held"], "the first hold was refused")
        for one, call, nano in ((first, "first", 3 * QUOTE), (behind, "behind", 2 * QUOTE)):
            waits = one.ask("line", name=call, nano=nano, task="t", patience_s=PATIENCE_S)["waits"]
            need(waits, f"the call {call} does not wait")
        mend = FAULTS[name](first)
        need(holder.ask("settle", names=["h"], nano=COST)["first"] == 1, "a settlement was lost")
        freed_s = time.monotonic()
        answer = behind.ask("turn", name="behind")["answer"]
        took_s = time.monotonic() - freed_s
        need(answer == "Held" and took_s < BEHIND_S, f"behind one that was {name} a call got {answer}, {took_s:.1f} s")
        mend()
        need(behind.ask("settle", names=["behind"], nano=COST)["first"] == 1, "a settlement was lost")
        if name in _ANSWERS:
            answer = first.ask("turn", name="first")["answer"]
            need(answer == _ANSWERS[name], f"the first in line was {name}, and got {answer}")
            first.ask("stop")
        until(lambda: not query(path, _TICKETS, "t"), "no ticket is left")
        for one in (holder, behind):
            one.ask("stop")
    check(path, LIMITS)
    return took_s


def holder_killed(folder: Path) -> float:
    """Kill the process whose calls are waited for: they are charged in full, and who waits for no more has its turn.

    Gives how long that took.
    """
    path = folder / "holder" / "ledger.sqlite3"
    with tellers(3) as (dying, holder, living):
        for one in (dying, holder, living):
            one.ask("open", path=str(path), limits=LIMITS)
        for one, call, nano in ((dying, "d", 2 * QUOTE), (holder, "h", 2 * QUOTE)):
            need(one.ask("hold", names=[call], nano=nano)["answers"] == ["Held"], f"{call} was refused")
        for call, nano in (("too-much", 3 * QUOTE), ("fits", 2 * QUOTE)):
            waits = living.ask("line", name=call, nano=nano, task="t", patience_s=PATIENCE_S)["waits"]
            need(waits, f"the call {call} does not wait")
        dying.send(signal.SIGKILL)
        killed_s = time.monotonic()
        answer = living.ask("turn", name="too-much")["answer"]
        took_s = time.monotonic() - killed_s
        need(answer == "Short" and took_s < BEHIND_S, f"a call that cannot fit any more got {answer}, {took_s:.1f} s")
        need(holder.ask("settle", names=["h"], nano=0)["first"] == 1, "a settlement was lost")
        answer = living.ask("turn", name="fits")["answer"]
        need(answer == "Held", f"a call that fits got {answer}")
        need(living.ask("settle", names=["fits"], nano=COST)["first"] == 1, "a settlement was lost")
        need(not query(path, _TICKETS, "t"), "a ticket is left")
        for one in (holder, living):
            one.ask("stop")
    check(path, LIMITS)
    return took_s


def queues(folder: Path, *, rounds: int, seed: int, calls: int = 60) -> Waited:
    """Let three processes queue up at once for a budget that has room for four calls, and one of them be spoilt.

    Each round is a task of its own, whose budget all calls together would not spend. The queues end when the fault
    has struck, so that it strikes while calls wait.
    """
    path, lots, seen = folder / "queues" / "ledger.sqlite3", random.Random(seed), Waited()
    kinds = list(FAULTS)
    with tellers(1) as (witness,):
        witness.ask("open", path=str(path), limits=LIMITS)
        for number in range(rounds):
            _round(path, f"r{number}", calls, kinds[number % len(kinds)], lots, seen)
        until(lambda: not query(path, "SELECT 1 FROM open_holds"), "every hold of the dead is charged")
        until(lambda: not query(path, "SELECT 1 FROM waiting"), "no ticket is left")
        witness.ask("stop")
    check(path, LIMITS)
    odd = {tuple(row) for row in query(path, _CHARGES)} - {(COST, None), (QUOTE, "lockpin_stopped")}
    need(not odd, f"calls were charged {odd}")
    return seen


def _round(path: Path, task: str, calls: int, kind: str, lots: random.Random, seen: Waited) -> None:
    with tellers(3) as all_three:
        for number, one in enumerate(all_three):
            one.ask("open", path=str(path), limits=LIMITS)
            order = {"nano": QUOTE, "cost": COST, "task": task, "patience_s": PATIENCE_S}
            one.tell("queue", name=f"{task}-{number}", count=calls, **order)
        until(lambda: query(path, _TICKETS, task), "calls wait")
        time.sleep(lots.uniform(0, 0.2))  # the random moment
        seen.tickets += len(until(lambda: query(path, _TICKETS, task), "calls wait still"))
        spoilt, *others = lots.sample(all_three, 3)
        seen.faults[kind] += 1
        mend = FAULTS[kind](spoilt)
        time.sleep(lots.uniform(0, 0.5))
        mend()
        # What a dead one held is charged in full: that may be the whole budget.
        for one in others:
            _end(one, {"charged", "spent"} if kind in _DEADLY else {"charged"}, f"beside one that was {kind}", seen)
        if kind not in _DEADLY:
            _end(spoilt, {"charged", "away"} if kind == "out of disk" else {"charged"}, f"in one that was {kind}", seen)


def _end(one: Teller, allowed: set[str], where: str, seen: Waited) -> None:
    ends = Counter(one.ask("queued")["ends"])
    need(not ends.keys() - allowed, f"{where} calls ended so: {dict(ends)}")
    seen.ends += ends
    one.ask("stop")

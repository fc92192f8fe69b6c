"""A disk that is full, a ledger that is deleted, replaced or closed to writing, under a process that has it open.

Calls are refused while it lasts, nothing that was promised is lost, and work goes on as soon as it can.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.crashtest_books import check, need, query, spent_of, until
from scripts.crashtest_tellers import Teller, tellers

LIMITS = {"task": 10**12, "all": 10**13}
PAGE_BYTES = 4096
_ENDS = "SELECT call, usd, kind FROM rows WHERE kind IN ('charge', 'void')"


type Mend = Callable[[], object]
type Spoil = Callable[[Teller], Mend]


@dataclass(frozen=True, slots=True)
class Worked:
    """What a process did through its faults."""

    faults: int
    charged: int
    refused: int


def full_disk(folder: Path, *, points: int, seed: int) -> Worked:
    """Let the disk fill up at so many moments of a run, in mid-write too, by a limit on the size of files."""
    path = folder / "full" / "ledger.sqlite3"
    lots = random.Random(seed)

    def spoil(teller: Teller) -> Mend:
        log_bytes = Path(f"{path}-wal").stat().st_size
        some = lots.choice([0, lots.randrange(log_bytes + 1), log_bytes + lots.randrange(3 * PAGE_BYTES)])
        before = resource.prlimit(teller.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(teller.process.pid, resource.RLIMIT_FSIZE, (some, before[1]))
        if some > 0:
            time.sleep(lots.uniform(0, 0.03))
            resource.prlimit(teller.process.pid, resource.RLIMIT_FSIZE, (0, before[1]))
        return lambda: resource.prlimit(teller.process.pid, resource.RLIMIT_FSIZE, before)

    return _through(path, [spoil] * points, lots)


def taken_away(folder: Path, *, rounds: int, seed: int) -> Worked:
    """Delete ledger, log and the log's index under the process, and put a copy in its place; give it back each time.

    Where the index is gone, a process that opens the ledger makes another one, and neither sees the other's locks.
    """
    path = folder / "away" / "ledger.sqlite3"
    log, index = Path(f"{path}-wal"), Path(f"{path}-shm")
    spoilers: list[Spoil] = [
        lambda _: _delete(path), lambda _: _delete(log), lambda _: _delete(index), lambda _: _replace(path),
    ]  # fmt: skip
    return _through(path, spoilers * rounds, random.Random(seed))


def _through(path: Path, spoilers: Sequence[Spoil], lots: random.Random) -> Worked:
    """Let a process work, spoil its ledger again and again, wait for it to notice, and mend it."""
    with tellers(1) as (teller,):
        teller.ask("open", path=str(path), limits=LIMITS)
        teller.tell("work", name="w")
        for number, spoil in enumerate(spoilers):
            _wait_for_work(path)
            time.sleep(lots.uniform(0, 0.02))
            mend = spoil(teller)
            told = teller.fault(f"fault {number + 1} was not noticed")
            need(told == "ledger_unavailable", f"at fault {number + 1} it told {told}")
            time.sleep(lots.uniform(0, 0.05))
            mend()
            told = teller.fault(f"after fault {number + 1} it did not serve again")
            need(told == "", f"after fault {number + 1} it told {told}")
        _wait_for_work(path)
        work = teller.ask("rest")
        teller.ask("stop")
    _need_nothing_lost(path, work["charged"], work["refused"])
    return Worked(len(spoilers), len(work["charged"]), len(work["refused"]))


def _wait_for_work(path: Path) -> None:
    last = _last_row(path)
    until(lambda: _last_row(path) > last + 5, "rows are written")


def _last_row(path: Path) -> int:
    return int(query(path, "SELECT coalesce(max(id), 0) FROM rows")[0][0])


def _need_nothing_lost(path: Path, charged: dict[str, int], refused: list[str]) -> None:
    """Compare the books with what the process was answered: refused calls are void or never were."""
    tally = check(path, LIMITS)
    ends = {row["call"]: (row["kind"], row["usd"]) for row in query(path, _ENDS)}
    wrong = [call for call, nano in charged.items() if ends.get(call) != ("charge", nano)]
    need(not wrong, f"{len(wrong)} settlements are not on the books, first {wrong[:1]}")
    unrefused = [call for call in refused if ends.get(call, ("void", 0)) != ("void", 0)]
    need(not unrefused, f"{len(unrefused)} refused calls were charged, first {unrefused[:1]}")
    need(ends.keys() <= charged.keys() | set(refused), "there are calls on the books that nobody made")
    need(spent_of(tally, "all") == {"m": sum(charged.values())}, f"spent is {spent_of(tally, 'all')}")
    need(refused, "no call met the fault")


def _delete(path: Path) -> Mend:
    aside = path.with_name("aside")
    os.link(path, aside)
    path.unlink()
    return lambda: aside.replace(path)


def _replace(path: Path) -> Mend:
    aside, copy = path.with_name("aside"), path.with_name("copy")
    shutil.copy(path, copy)
    os.link(path, aside)
    copy.replace(path)
    return lambda: aside.replace(path)


def closed_to_writing(folder: Path) -> Counter[str]:
    """Make file and folder read-only while open: each call is refused; later calls are served."""
    path = folder / "closed" / "ledger.sqlite3"
    with tellers(1) as (teller,):
        teller.ask("open", path=str(path), limits=LIMITS)
        teller.ask("hold", names=["before"], nano=1000)
        for place, mode in ((path, 0o400), (Path(f"{path}-wal"), 0o400), (path.parent, 0o500)):
            place.chmod(mode)
        answers = teller.ask("hold", names=[f"w-{n}" for n in range(20)], nano=1000)["answers"]
        for place, mode in ((path.parent, 0o700), (path, 0o600), (Path(f"{path}-wal"), 0o600)):
            place.chmod(mode)
        until(lambda: teller.ask("hold", names=["after"], nano=1000)["answers"] == ["Held"], "calls are served again")
        held = ["before", *(f"w-{n}" for n, answer in enumerate(answers) if answer == "Held"), "after"]
        need(teller.ask("settle", names=held, nano=10)["first"] == len(held), "a settlement was lost")
        teller.ask("stop")
    need(set(answers) == {"LedgerUnavailable"}, f"calls got {set(answers)}")
    need(spent_of(check(path, LIMITS), "all") == {"m": 10 * len(held)}, "the books are not what was answered")
    return Counter(answers)

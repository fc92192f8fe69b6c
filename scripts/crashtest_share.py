"""Processes that share one ledger: nothing is lost or counted twice, and a limit lets through exactly what fits."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from scripts.crashtest_books import Broken, Tally, check, need, reading, spent_of
from scripts.crashtest_tellers import Teller, tellers

ACCOUNTS = 50
PROCESSES, PARALLEL, FITTING = 4, 200, 50


@dataclass(frozen=True, slots=True)
class Shared:
    """What came of the calls of several processes."""

    ends: Counter[str]
    samples: int
    seconds: float


class Sampler:
    """Reads snapshots all the while, in a thread; `failure` is the first thing that was not true."""

    def __init__(self, path: Path, limits: dict[str, int]) -> None:
        self.tally = Tally(limits)
        self.failure: Exception | None = None
        self._path, self._over = path, threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        try:
            with reading(self._path) as books:
                while not self._over.wait(0.002):
                    self.tally.sample(books)
        except Exception as error:  # noqa: BLE001 - it is told where the calls are judged
            self.failure = error


def mixed(folder: Path, *, processes: int, calls: int, seed: int) -> Shared:
    """Play calls of all kinds of end, some given up, from several processes, on fifty tasks with tight limits."""
    path = folder / f"mixed-{processes}" / "ledger.sqlite3"
    limits = {"task": calls * 300 // ACCOUNTS // 2, "all": calls * 150 * 9 // 10}  # too little for all of them
    began_s = time.monotonic()
    with tellers(processes) as desk:
        for one in desk:
            one.ask("open", path=str(path), limits=limits)
        with Sampler(path, limits) as sampler:
            for place, one in enumerate(desk):
                one.tell("mix", name=f"p{place}", count=calls // processes, seed=seed + place, tasks=ACCOUNTS)
            told = [one.answer() for one in desk]
        for one in desk:
            one.ask("stop")
    if sampler.failure is not None:
        raise Broken(f"while {processes} processes wrote: {sampler.failure}") from sampler.failure
    ends, charged = Counter[str](), Counter[str]()
    for answer in told:
        ends.update(answer["ends"])
        charged.update(answer["charged"])
    _need_sums(check(path, limits), ends, charged)
    need(sum(ends.values()) == calls // processes * processes, f"{sum(ends.values())} calls of {calls} ended")
    return Shared(ends, sampler.tally.samples, time.monotonic() - began_s)


def _need_sums(tally: Tally, ends: Counter[str], charged: Counter[str]) -> None:
    """Compare what the processes were told with what the books say."""
    need(not ends["resolved twice"], f"{ends['resolved twice']} calls were resolved twice")
    need(tally.kinds["charge"] == ends["charged"], f"{tally.kinds['charge']} charges for {ends['charged']} settlements")
    spent = {task: nano for task, nano in spent_of(tally, "task").items() if nano}
    told = {task: nano for task, nano in charged.items() if nano}
    need(spent == told, f"tasks have spent {spent}, and the processes settled {told}")
    need(spent_of(tally, "all") == {"m": sum(told.values())}, "the machine's account is not the sum of its tasks'")


def fifty(folder: Path, *, runs: int) -> float:
    """Let four processes ask for 200 calls each at once, on an account that pays for 50; give seconds a run."""
    began_s = time.monotonic()
    with tellers(PROCESSES) as desk:
        for run in range(runs):
            _run_fifty(folder / f"fifty-{run}" / "ledger.sqlite3", desk)
    return (time.monotonic() - began_s) / runs


def _run_fifty(path: Path, desk: list[Teller]) -> None:
    price = 1_000_000
    limits = {"task": FITTING * price, "all": PROCESSES * PARALLEL * price}
    for one in desk:
        one.ask("open", path=str(path), limits=limits)
    names = [[f"p{place}-{n}" for n in range(PARALLEL)] for place in range(len(desk))]
    for one, own in zip(desk, names, strict=True):
        one.tell("hold", names=own, nano=price)
    answers = [one.answer()["answers"] for one in desk]
    passed = Counter(answer for own in answers for answer in own)
    need(passed == {"Held": FITTING, "Short": PROCESSES * PARALLEL - FITTING}, f"of 800 calls on 50: {dict(passed)}")
    for one, own, told in zip(desk, names, answers, strict=True):
        held = [name for name, answer in zip(own, told, strict=True) if answer == "Held"]
        need(one.ask("settle", names=held, nano=price)["first"] == len(held), "a settlement was not the first")
        one.ask("stop")
    tally = check(path, limits)
    need(spent_of(tally, "task") == {"t": FITTING * price}, f"spent is {spent_of(tally, 'task')}")

"""Fifty people in teams, groups and rings, and the budgets over them: many processes charge them all at once.

Who has spent what is added up here in plain numbers, from what the processes were told. A teller takes the budgets and
whom a person is from here too; what its ledger makes of them, it alone knows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from lockpin_core.budgets import Budget
from lockpin_core.call import Payers
from lockpin_core.clock import new_id, utc_now
from lockpin_core.ledger.admin import SqliteAdmin
from lockpin_core.ledger.protocol import Rules
from lockpin_core.money import Money
from lockpin_core.windows import Window
from scripts.crashtest_books import Broken, Tally, check, need, reading, spent_of
from scripts.crashtest_share import Sampler, Shared
from scripts.crashtest_tellers import tellers

PEOPLE, TEAMS, ROUNDS = 50, 8, 5
LATE = "late"  # comes into force while they call
_LIFETIME, _GROUPS = Window("lifetime"), ("east", "west", "night")


def payers(person: int) -> Payers:
    """Say who is charged for a person's call."""
    groups = _GROUPS[:2] if person % 5 == 0 else (_GROUPS[person % 2],)
    tags = (("env", "ci" if person % 3 == 0 else "prod"), ("desk", f"{person % 4}"))
    return Payers(
        f"t{person % 10}", "m", f"k{person}", f"u{person}", f"team{person % TEAMS}", groups, f"ring{person % 3}",
        None, tags,
    )  # fmt: skip


def rules(limits: Mapping[str, int]) -> Rules:
    """Give the budgets of all, with their limits in nanodollars."""
    budgets = [
        Budget("user", "user", _LIFETIME, Money(limits["user"]), enforce=True),
        Budget("team", "team", _LIFETIME, Money(limits["team"]), enforce=True),
        Budget("group", "group", _LIFETIME, Money(limits["group"]), enforce=True, groups=("east", "west")),
        Budget("ring", "ring", _LIFETIME, Money(1), rings=("ring1", "ring2")),
        Budget("tag", "tag", _LIFETIME, Money(1)),
        Budget("ci", "org", _LIFETIME, Money(limits["ci"]), enforce=True, tags=("env=ci",)),
        Budget("org", "org", _LIFETIME, Money(limits["org"]), enforce=True),
    ]
    return Rules(tuple(budgets), Budget("task", "task", _LIFETIME, Money(1), enforce=True, own=True))


def _subjects(person: int) -> dict[str, list[str]]:
    """List a person's accounts by budget, as they are meant: written down anew, and not asked of a budget."""
    found = {
        "user": [f"u{person}"],
        "team": [f"team{person % TEAMS}"],
        "group": ["east", "west"] if person % 5 == 0 else ["east" if person % 2 == 0 else "west"],
        "ring": [] if person % 3 == 0 else [f"ring{person % 3}"],
        "tag": [f"desk={person % 4}", "env=ci" if person % 3 == 0 else "env=prod"],
        "ci": ["org"] if person % 3 == 0 else [],
        "org": ["org"],
    }
    return found | {LATE: [f"k{person}"], "task": []}


def throngs(folder: Path, *, processes: int, calls: int, seed: int) -> Shared:
    """Let processes play the calls of all people, some given up; half way another budget comes into force."""
    path = folder / f"people-{processes}" / "ledger.sqlite3"
    # A call is charged some 200 on average: too little for all on each of these.
    limits = {"user": calls * 200 // PEOPLE, "team": calls * 190 // TEAMS, "group": calls * 110, "ci": calls * 60}
    limits |= {"org": calls * 170}
    began_s = time.monotonic()
    ends, charged = Counter[str](), Counter[int]()
    each = calls // processes // ROUNDS
    with tellers(processes) as desk:
        for one in desk:
            one.ask("open", path=str(path), limits=limits)
        with Sampler(path, limits) as sampler:
            for turn in range(ROUNDS):
                for place, one in enumerate(desk):
                    one.tell("throng", name=f"p{place}-{turn}", count=each, seed=seed + ROUNDS * place + turn)
                if turn == ROUNDS // 2:
                    _bring_in_late(path)
                for one in desk:
                    told = one.answer()
                    ends.update(told["ends"])
                    charged.update({int(person): nano for person, nano in told["charged"].items()})
        for one in desk:
            one.ask("stop")
    if sampler.failure is not None:
        raise Broken(f"while {processes} processes wrote: {sampler.failure}") from sampler.failure
    need(not ends["resolved twice"], f"{ends['resolved twice']} calls were resolved twice")
    need(ends.total() == each * processes * ROUNDS, f"{ends.total()} calls of {each * processes * ROUNDS} ended")
    _need_sums(check(path, limits), charged)
    _need_few_accounts(path)
    return Shared(ends, sampler.tally.samples, time.monotonic() - began_s)


def _bring_in_late(path: Path) -> None:
    budget = Budget(LATE, "key", _LIFETIME, Money(10**12), enforce=True)
    SqliteAdmin(path, clock=utc_now, new_id=new_id).budget_set(budget, who="crashtest")


def _need_sums(tally: Tally, charged: Mapping[int, int]) -> None:
    """Compare every account with what its people were charged; one of the late budget with all of it too."""
    wanted: dict[str, Counter[str]] = {name: Counter() for name in _subjects(0)}
    for person, nano in charged.items():
        for budget, subjects in _subjects(person).items():
            for subject in subjects:
                wanted[budget][subject] += nano
    for budget, sums in wanted.items():
        spent = {subject: nano for subject, nano in spent_of(tally, budget).items() if nano}
        told = {subject: nano for subject, nano in sums.items() if nano}
        if budget == LATE:  # who has not called since has no account of it yet
            need(len(spent) > PEOPLE // 2, f"only {len(spent)} accounts of the late budget")
            told = {subject: nano for subject, nano in told.items() if subject in spent}
        need(spent == told, f"{budget}: {spent} is spent, and the processes were told {told}")


def _need_few_accounts(path: Path) -> None:
    with reading(path) as books:
        found = dict(books.execute("SELECT budget, count(*) FROM accounts GROUP BY budget").fetchall())
    most = {"user": 50, "team": 8, "group": 2, "ring": 2, "tag": 6, "ci": 1, "org": 1, LATE: 50}
    need(all(count <= most.get(name, 0) for name, count in found.items()), f"there are accounts {found}, of {most}")

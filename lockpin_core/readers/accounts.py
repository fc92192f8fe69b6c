"""Which accounts a statement lists: those with something spent or held, and those that are there also at zero."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from lockpin_core.budgets import ORG, Budget, Standing, account_id
from lockpin_core.ledger.protocol import Rules
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.money import ZERO
from lockpin_core.windows import span_at


def accounts(reader: LedgerReader, rules: Rules, *, machine: str, now: datetime) -> list[Standing]:
    """List the accounts of the current windows, by budget and subject.

    At zero there are those of this machine, of the organisation, of groups and rings, and of tasks that have a limit.
    """
    found = {standing.account: standing for standing in reader.standings(rules, now=now)}
    for standing in reader.unopened(rules, now=now):
        found.setdefault(standing.account, standing)
    always = _always(rules.budgets, machine, reader.subjects("ring"))
    for budget, subject in (*always, *_limited_tasks(reader, rules.task_default)):
        standing = reader.standing(budget, subject, now=now)
        found.setdefault(standing.account, standing)
    return _ordered(rules, list(found.values()))


def untouched(rules: Rules, *, machine: str, now: datetime) -> list[Standing]:
    """List the same where there is no ledger yet."""
    return _ordered(rules, [_at_zero(budget, subject, now) for budget, subject in _always(rules.budgets, machine, ())])


def _always(budgets: Sequence[Budget], machine: str, rings: Sequence[str]) -> Iterator[tuple[Budget, str]]:
    """Name the accounts that are there also at zero; of a budget that names no ring those of all known ones."""
    for budget in budgets:
        subjects = {"machine": (machine,), "org": (ORG,), "group": budget.groups, "ring": budget.rings or tuple(rings)}
        for subject in subjects.get(budget.scope, ()):
            yield budget, subject


def _limited_tasks(reader: LedgerReader, own: Budget) -> Iterator[tuple[Budget, str]]:
    for task, terms in reader.task_terms().items():
        if terms.limit_nano is not None and not terms.closed:
            yield own, task


def _at_zero(budget: Budget, subject: str, now: datetime) -> Standing:
    span = span_at(budget.window, now)
    account = account_id(budget, subject, span)
    return Standing(account, budget, subject, span, ZERO, ZERO, 0, 0, budget.limit, budget.limit_tokens)


def _ordered(rules: Rules, standings: Sequence[Standing]) -> list[Standing]:
    order = {budget.name: place for place, budget in enumerate((*rules.budgets, rules.task_default))}
    return sorted(standings, key=lambda standing: (order[standing.budget.name], standing.subject))

"""What the books say of an account that does not exist yet, or that has missed a time: its charges and open holds.

A budget counts its current window from its first hold on, whoever has called before. Knows SQL; changes nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from lockpin_core.budgets import Budget
from lockpin_core.clock import micros
from lockpin_core.ledger import whose
from lockpin_core.ledger.accounts import Balance, Seat
from lockpin_core.ledger.chain import encode
from lockpin_core.ledger.columns import payers_of
from lockpin_core.ledger.schema import ENDS
from lockpin_core.ledger.shares import called
from lockpin_core.ledger.totals import SLOT_US
from lockpin_core.ledger.whose import WHO_NAMES, is_of
from lockpin_core.windows import STEPS, WindowSpan

FIRST, LAST = -(2**63), 2**63 - 1
_WHO, _MISSED_WHO, _HOLDS_WHO, _FACETS_WHO = (
    ", ".join(f'{of}"{name}"' for name in WHO_NAMES) for of in ("", "missed.", "h.", "f.")
)
# Of some scopes the facets know which tasks their subjects have called for, and the rows of a task have an index.
_OF_TASKS = "{its} AND task IN (SELECT DISTINCT f.task FROM facets f WHERE {facets})"
_BY_TASKS = ("key", "team", "group", "ring", "project", "tag")
# A cross join goes from left to right: few lines of the totals are of one facet and one time, and few holds are open.
_TOTALS = f"""
SELECT max(f.task), {_FACETS_WHO.partition(", ")[2]}, sum(t.spent_nano), sum(t.tokens)
FROM facets f CROSS JOIN totals t ON t.facet = f.id
WHERE {{its}} AND t.slot >= ? AND t.slot < ? GROUP BY {_FACETS_WHO.partition(", ")[2]}"""
_SPENDS = f"""
SELECT {_WHO}, usd, tokens, held_at FROM rows
WHERE {{its}} AND {ENDS} AND kind IN ('charge', 'correction') AND at >= ? AND held_at >= ? AND held_at < ?"""
# What was not counted: calls that ended since a row, and what was corrected of just those.
_MISSED = f"""
WITH missed AS (
  SELECT call, {_WHO}, usd, tokens, held_at FROM rows
  WHERE {{its}} AND {ENDS} AND kind IN ('charge', 'void') AND at >= ? AND held_at >= ? AND held_at < ?
    AND +id > ? AND {whose.not_on("accounts")})
SELECT {_WHO}, usd, tokens, held_at FROM missed
UNION ALL SELECT {_MISSED_WHO}, c.usd, c.tokens, missed.held_at
FROM missed CROSS JOIN rows c ON c.call = missed.call AND c.kind IN ('shrink', 'correction', 'refusal', 'uncapped')
WHERE c.kind = 'correction' AND {whose.not_on("c.accounts")}"""
_OPEN = f"""
SELECT o.call, o.accounts, o.usd, o.tokens, {_HOLDS_WHO} FROM open_holds o CROSS JOIN rows h
ON h.call = o.call AND h.kind = 'hold' WHERE {{its}} AND o.at >= ? AND o.at < ? ORDER BY o.call"""
_CALLERS = f"""
SELECT DISTINCT {_FACETS_WHO} FROM facets f CROSS JOIN totals t ON t.facet = f.id
WHERE {{its}} AND t.slot >= ? AND t.slot <= ? AND (t.spent_nano <> 0 OR t.tokens <> 0)
UNION SELECT {_HOLDS_WHO} FROM open_holds o CROSS JOIN rows h ON h.call = o.call AND h.kind = 'hold'"""

type Spend = tuple[int, int, int]  # nanodollars, tokens, instant of the hold


@dataclass(frozen=True, slots=True)
class OpenCall:
    """An open hold that an account is to count; `accounts` is the JSON list of those that do."""

    call: str
    accounts: str
    usd: int
    tokens: int


class Past:
    """Adds up what was before, on a connection on which everything is written."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def of(self, seat: Seat, at: int) -> tuple[Balance, list[OpenCall]]:
        """Give what a new account begins with at an instant, and the open holds in it."""
        balance = Balance(period_ms=seat.budget.window.period_ms)
        start, end = bounds(seat.span)
        if balance.period_ms:
            spends = self._spends(_SPENDS, seat, (_rolling_start(at, balance.period_ms), end))
        elif _is_whole(start) and _is_whole(end):
            spends = self._summed(seat, start, end)
        else:
            spends = self._spends(_SPENDS, seat, (start, end))
        return _counted(balance, spends, at), self._hold(balance, self._open(seat))

    def missed(self, seat: Seat, at: int, counted_row: int) -> tuple[Balance, list[OpenCall]]:
        """Give what an account has not counted since a row, while its budget was away."""
        balance = Balance(period_ms=seat.budget.window.period_ms)
        start, end = bounds(seat.span)
        start = _rolling_start(at, balance.period_ms) if balance.period_ms else start
        listed = encode(seat.account)
        spends = self._spends(_MISSED, seat, (start, end), counted_row, listed, listed)
        return _counted(balance, spends, at), self._hold(
            balance, [o for o in self._open(seat) if not whose.is_on(o.accounts, listed)]
        )

    def last_row(self) -> int:
        """Give the number of the last row."""
        (last,) = self._connection.execute("SELECT coalesce(max(id), 0) FROM rows").fetchone()
        return int(last)

    def subjects(self, budget: Budget, span: WindowSpan, at: int) -> list[str]:
        """List those for whom a budget may have to count something in a window, accounts or none."""
        start, end = bounds(span)
        if period_ms := budget.window.period_ms:
            start = _rolling_start(at, period_ms)
        slots = (max(start, 0) // SLOT_US, min(end, 2**62) // SLOT_US)
        found: set[str] = set()
        # Keys' own limits may be many; the facets of one key are found at once.
        its = f'f."key" IN ({", ".join("?" * len(budget.keys))})' if budget.keys else "true"
        callers = self._connection.execute(_CALLERS.format(its=its), (*budget.keys, *slots)).fetchall()
        for *who, provider, model in callers:
            payers = payers_of(*who)
            if budget.applies(payers, provider=provider, model=called(model)):
                found.update(budget.subjects(payers))
        return sorted(found)

    def _summed(self, seat: Seat, start: int, end: int) -> list[Spend]:
        slots = (max(start, 0) // SLOT_US, min(end, 2**62) // SLOT_US)
        sql = _TOTALS.format(its=whose.condition(seat.budget.scope, "f."))
        rows = self._connection.execute(sql, (_value(seat), *slots)).fetchall()
        return [
            (usd, tokens, start)
            for *who, model, usd, tokens in rows
            if is_of(seat.budget, seat.subject, *who, called(model))
        ]

    def _spends(self, template: str, seat: Seat, held: tuple[int, int], *more: object) -> list[Spend]:
        its, values = whose.condition(seat.budget.scope), [_value(seat)]
        if seat.budget.scope in _BY_TASKS:
            its = _OF_TASKS.format(its=its, facets=whose.condition(seat.budget.scope, "f."))
            values *= 2
        sql = template.format(its=its)
        rows = self._connection.execute(sql, (*values, held[0], *held, *more)).fetchall()
        return [(*row[-3:],) for row in rows if is_of(seat.budget, seat.subject, *row[:-3])]

    def _open(self, seat: Seat) -> list[OpenCall]:
        sql = _OPEN.format(its=whose.condition(seat.budget.scope, "h."))
        rows = self._connection.execute(sql, (_value(seat), *bounds(seat.span))).fetchall()
        return [OpenCall(*row[:4]) for row in rows if is_of(seat.budget, seat.subject, *row[4:])]

    def _hold(self, balance: Balance, calls: list[OpenCall]) -> list[OpenCall]:
        balance.held_nano = sum(call.usd for call in calls)
        balance.held_tokens = sum(call.tokens for call in calls)
        return calls


def ends(span: WindowSpan) -> tuple[int | None, int | None]:
    """Give a span's ends in microseconds."""
    return (None if span.start is None else micros(span.start), None if span.end is None else micros(span.end))


def bounds(span: WindowSpan) -> tuple[int, int]:
    """Give a span's ends as numbers to compare with."""
    start, end = ends(span)
    return (FIRST if start is None else start, LAST if end is None else end)


def _counted(balance: Balance, spends: Sequence[Spend], at: int) -> Balance:
    for usd, tokens, held_at in spends:
        balance.spend(held_at, at, usd, tokens)
    return balance


def _value(seat: Seat) -> str:
    return whose.value(seat.budget.scope, seat.subject)


def _rolling_start(at: int, period_ms: int) -> int:
    """Give an instant whose spend has left for sure."""
    return at - period_ms * 1000 * (STEPS + 2) // STEPS


def _is_whole(bound: int) -> bool:
    return bound in (FIRST, LAST) or bound % SLOT_US == 0

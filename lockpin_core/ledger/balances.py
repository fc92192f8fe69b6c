"""The accounts of a SQLite ledger: opening, holding, settling, raising, and the definitions of their budgets.

Within a transaction each account is read once and written once, however many calls it serves; `begin` and `flush` are
its ends. Knows the SQL of `accounts` and `budgets`; decides nothing.
"""

from __future__ import annotations

import functools
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from lockpin_core.budgets import Budget, Standing, account_id
from lockpin_core.ledger.accounts import (
    Balance,
    Seat,
    Spans,
    TaskTerms,
    budget_in,
    has_room,
    passed_steps,
    standing_of,
)
from lockpin_core.ledger.backlog import Backlog
from lockpin_core.ledger.chain import encode
from lockpin_core.money import Money
from lockpin_core.windows import LIFETIME, Window, WindowSpan

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_REMEMBERED = 1024  # accounts that are kept in memory
_FIRST, _LAST = -(2**63), 2**63 - 1
_SUBJECT_COLUMN = {"task": "task", "machine": "machine"}  # by scope; a new scope adds its column of `rows` here

_NUMBERS = "spent_nano, held_nano, spent_tokens, held_tokens, raised_nano, raised_tokens, alerted"
_DEFINITION = "SELECT definition FROM budgets WHERE name = ?"
_OPEN_ACCOUNT = (
    "INSERT INTO accounts (id, budget, scope, subject, window_start, window_end, spent_nano, held_nano, spent_tokens, "
    "held_tokens) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_WRITE = (
    "UPDATE accounts SET spent_nano = ?, held_nano = ?, spent_tokens = ?, held_tokens = ?, raised_nano = ?, "
    "raised_tokens = ?, alerted = ? WHERE id = ?"
)
_IN_WINDOW = (
    "SELECT subject, window_start, window_end FROM accounts WHERE budget = ? AND scope = ? "
    "AND coalesce(window_start, ?) <= ? AND ? < coalesce(window_end, ?) "
    "AND (spent_nano <> 0 OR held_nano <> 0 OR spent_tokens <> 0 OR held_tokens <> 0) ORDER BY subject"
)

type NoteEvent = Callable[[str, Mapping[str, object]], None]


@dataclass(slots=True)
class _Account:
    """An account in the running transaction."""

    budget: str
    subject: str
    span: WindowSpan
    balance: Balance
    alerted: str  # JSON list of the alert steps that were told


def micros(when: datetime) -> int:
    """Give an aware instant in microseconds since 1970."""
    return (when - _EPOCH) // _MICROSECOND


def instant(at: int) -> datetime:
    """Give the instant of microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=at)


class Balances:
    """Reads and writes accounts on one connection. `note_event` writes an event's row."""

    def __init__(self, connection: sqlite3.Connection, note_event: NoteEvent, backlog: Backlog | None = None) -> None:
        self.spans = Spans()
        self._connection, self._backlog = connection, backlog or Backlog(connection)
        self._note_event = note_event
        self._definitions: dict[str, Budget] = {}
        self._known: dict[str, _Account] = {}
        self._changed: set[str] = set()

    def begin(self) -> None:
        """Forget what another writer may have changed."""
        self._known.clear()
        self._changed.clear()

    def flush(self) -> None:
        """Write what has changed."""
        if self._changed:
            self._connection.executemany(_WRITE, [_numbers(self._known[name], name) for name in self._changed])
            self._changed.clear()
        if len(self._known) > _REMEMBERED:
            self._known.clear()

    def define(self, budgets: Sequence[Budget], at: int) -> None:
        """Store the definitions in force; a changed one is an event, and re-arms the alert steps it un-passes."""
        for budget in budgets:
            definition = encode(definition_of(budget))
            stored = self._connection.execute(_DEFINITION, (budget.name,)).fetchone()
            self._definitions[budget.name] = budget
            if stored is None or stored[0] != definition:
                self._connection.execute("REPLACE INTO budgets VALUES (?, ?, ?)", (budget.name, definition, at))
                self._note_event("budget_defined", {"name": budget.name, **definition_of(budget)})
            if stored is not None and stored[0] != definition and not budget.own:
                self._rearm_all(budget)

    def standings(self, seats: tuple[Seat, ...]) -> tuple[Standing, ...]:
        """Read how accounts stand; one that is new is opened with what its window has seen already."""
        self._load([seat.account for seat in seats])
        return tuple(standing_of(seat, (self._known.get(seat.account) or self._open(seat)).balance) for seat in seats)

    def has_room(self, seats: tuple[Seat, ...], usd: int, tokens: int) -> bool:
        """Say whether an amount fits every account; one that is new is opened."""
        self._load([seat.account for seat in seats])
        return all(
            has_room(seat.budget, (self._known.get(seat.account) or self._open(seat)).balance, usd, tokens)
            for seat in seats
        )

    def add_held(self, seats: tuple[Seat, ...], usd: int, tokens: int) -> tuple[Standing, ...]:
        """Hold an amount on all of some accounts that were just read."""
        standings: list[Standing] = []
        for seat in seats:
            balance = self._change(seat.account).balance
            balance.held_nano += usd
            balance.held_tokens += tokens
            standings.append(standing_of(seat, balance))
        return tuple(standings)

    def settle(
        self, accounts: Sequence[str], held: tuple[int, int], spent: tuple[int, int], terms: TaskTerms | None
    ) -> tuple[Standing, ...]:
        """Take a hold (nano, tokens) off all its accounts and put a charge on them."""
        self._load(accounts)
        for name in accounts:
            balance = self._change(name).balance
            balance.held_nano -= held[0]
            balance.held_tokens -= held[1]
            balance.spent_nano += spent[0]
            balance.spent_tokens += spent[1]
            assert balance.held_nano >= 0 <= balance.held_tokens, "more was taken off an account than it held"
        return self.current(accounts, terms)

    def current(self, accounts: Sequence[str], terms: TaskTerms | None) -> tuple[Standing, ...]:
        """Read how named accounts stand now."""
        self._load(accounts)
        return tuple(self._standing(name, self._known[name], terms) for name in accounts)

    def alert(self, standings: tuple[Standing, ...]) -> tuple[tuple[str, str], ...]:
        """Note the alert steps that are passed now, and list the new ones by budget name."""
        crossed: list[tuple[str, str]] = []
        for standing in standings:
            passed = passed_steps(standing, standing.budget.alert_at)
            account = self._known[standing.account]
            if passed and encode(passed) != account.alerted:
                told: list[str] = json.loads(account.alerted)
                self._change(standing.account).alerted = encode(passed)
                crossed += [(standing.budget.name, step) for step in passed if step not in told]
        return tuple(crossed)

    def raise_limit(self, seat: Seat, nano: int) -> Standing:
        """Add to the dollar limit of one account and re-arm the alert steps that this un-passes."""
        self.standings((seat,))
        self._change(seat.account).balance.raised_nano += nano
        return self.rearm(seat)

    def forget_raises(self, seat: Seat) -> None:
        """Take back what was added to the limit of one account: its limit was set anew."""
        self.standings((seat,))
        balance = self._change(seat.account).balance
        balance.raised_nano = balance.raised_tokens = 0

    def rearm(self, seat: Seat) -> Standing:
        """Forget the alert steps of one account that its limit in force no longer makes passed."""
        (standing,) = self.standings((seat,))
        account = self._change(seat.account)
        account.alerted = encode(passed_steps(standing, json.loads(account.alerted)))
        return standing

    def in_window(self, budget: Budget, at: int) -> tuple[Seat, ...]:
        """List a budget's accounts with something spent or held in the window of an instant."""
        bounds = (_FIRST, at, at, _LAST)
        rows = self._connection.execute(_IN_WINDOW, (budget.name, budget.scope, *bounds)).fetchall()
        spans = ((subject, _span(start, end)) for subject, start, end in rows)
        return tuple(Seat(account_id(budget, subject, span), budget, subject, span) for subject, span in spans)

    def peek(self, seats: tuple[Seat, ...]) -> tuple[Standing, ...]:
        """Read how accounts stand without opening any: nothing is written."""
        self._load([seat.account for seat in seats])
        found = ((seat, self._known.get(seat.account)) for seat in seats)
        return tuple(standing_of(seat, self._past(seat) if known is None else known.balance) for seat, known in found)

    def own_definition(self) -> Budget | None:
        """Give the stored definition of the tasks' own budget; None: no call was ever held here."""
        rows = self._connection.execute("SELECT name, definition FROM budgets ORDER BY since DESC").fetchall()
        budgets = (budget_of(name, json.loads(definition)) for name, definition in rows)
        return next((budget for budget in budgets if budget.own), None)

    def _load(self, names: Sequence[str]) -> None:
        missing = [name for name in names if name not in self._known]
        if not missing:
            return
        for name, budget, subject, start, end, *numbers, alerted in self._connection.execute(
            _read_sql(len(missing)), missing
        ).fetchall():
            self._known[name] = _Account(budget, subject, _span(start, end), Balance(*numbers), alerted)

    def _change(self, name: str) -> _Account:
        self._changed.add(name)
        return self._known[name]

    def _standing(self, name: str, account: _Account, terms: TaskTerms | None) -> Standing:
        budget = budget_in(self._definition(account.budget), account.span, terms)
        return standing_of(Seat(name, budget, account.subject, account.span), account.balance)

    def _definition(self, name: str) -> Budget:
        known = self._definitions.get(name)
        if known is None:
            (stored,) = self._connection.execute(_DEFINITION, (name,)).fetchone()
            known = self._definitions[name] = budget_of(name, json.loads(stored))
        return known

    def _open(self, seat: Seat) -> _Account:
        """Make an account that counts the charges and open holds of its window so far."""
        past, open_calls = self._past(seat), self._open_calls(seat)
        if open_calls:
            self._backlog.open.clear()
        for call, accounts, _, _ in open_calls:
            joined = encode([*json.loads(accounts), seat.account])
            self._connection.execute("UPDATE open_holds SET accounts = ? WHERE call = ?", (joined, call))
        names = (seat.account, seat.budget.name, seat.budget.scope, seat.subject, *_ends(seat.span))
        numbers = (past.spent_nano, past.held_nano, past.spent_tokens, past.held_tokens)
        self._connection.execute(_OPEN_ACCOUNT, (*names, *numbers))
        if any(numbers):
            amounts = dict(zip(("spent_nano", "held_nano", "spent_tokens", "held_tokens"), numbers, strict=True))
            calls = [call for call, *_ in open_calls]
            self._note_event("account_opened", {"account": seat.account, "calls": calls, **amounts})
        self._known[seat.account] = _Account(seat.budget.name, seat.subject, seat.span, past, "[]")
        return self._known[seat.account]

    def _past(self, seat: Seat) -> Balance:
        """Add up what rows and open holds say of an account that does not exist yet."""
        self._backlog.write()
        column, budget = _SUBJECT_COLUMN[seat.budget.scope], seat.budget
        start, end = _bounds(seat.span)
        rows = self._connection.execute(
            f"SELECT provider, model, sum(usd), sum(tokens) FROM rows WHERE {column} = ? AND kind = 'charge' "
            "AND at >= ? AND held_at >= ? AND held_at < ? GROUP BY provider, model",
            (seat.subject, start, start, end),
        ).fetchall()
        spent = [row for row in rows if budget.applies(provider=row[0], model=row[1])]
        held = self._open_calls(seat)
        return Balance(
            spent_nano=sum(row[2] for row in spent), held_nano=sum(row[2] for row in held),
            spent_tokens=sum(row[3] for row in spent), held_tokens=sum(row[3] for row in held),
        )  # fmt: skip

    def _open_calls(self, seat: Seat) -> list[tuple[str, str, int, int]]:
        """List the open holds (call, accounts, nano, tokens) that belong to an account's window."""
        self._backlog.write()
        column = _SUBJECT_COLUMN[seat.budget.scope]
        rows = self._connection.execute(
            "SELECT o.call, o.accounts, o.usd, o.tokens, h.provider, h.model FROM open_holds o JOIN rows h "
            f"ON h.call = o.call AND h.kind = 'hold' WHERE o.at >= ? AND o.at < ? AND h.{column} = ? ORDER BY o.call",
            (*_bounds(seat.span), seat.subject),
        ).fetchall()
        return [row[:4] for row in rows if seat.budget.applies(provider=row[4], model=row[5])]

    def _rearm_all(self, budget: Budget) -> None:
        self.flush()
        rows = self._connection.execute(
            "SELECT id, subject, window_start, window_end FROM accounts WHERE budget = ? AND alerted <> '[]'",
            (budget.name,),
        ).fetchall()
        for account, subject, start, end in rows:
            self.rearm(Seat(account, budget, subject, _span(start, end)))


def definition_of(budget: Budget) -> dict[str, object]:
    """Write a budget's definition as JSON-ready data."""
    return {
        "scope": budget.scope, "window": budget.window.kind, "zone": budget.window.zone,
        "limit_nano": None if budget.limit is None else budget.limit.nano, "limit_tokens": budget.limit_tokens,
        "enforce": budget.enforce, "alert_at": list(budget.alert_at), "models": list(budget.models),
        "providers": list(budget.providers), "own": budget.own,
    }  # fmt: skip


def budget_of(name: str, stored: Mapping[str, Any]) -> Budget:
    """Read back what `definition_of` wrote."""
    limit = stored["limit_nano"]
    return Budget(
        name, scope=stored["scope"], window=Window(stored["window"], stored["zone"]),
        limit=None if limit is None else Money(limit), limit_tokens=stored["limit_tokens"],
        enforce=stored["enforce"], alert_at=tuple(stored["alert_at"]), models=tuple(stored["models"]),
        providers=tuple(stored["providers"]), own=stored["own"],
    )  # fmt: skip


def _numbers(account: _Account, name: str) -> tuple[object, ...]:
    b = account.balance
    numbers = (b.spent_nano, b.held_nano, b.spent_tokens, b.held_tokens, b.raised_nano, b.raised_tokens)
    return (*numbers, account.alerted, name)


@functools.lru_cache(maxsize=64)
def _read_sql(count: int) -> str:
    marks = ", ".join("?" * count)
    return f"SELECT id, budget, subject, window_start, window_end, {_NUMBERS} FROM accounts WHERE id IN ({marks})"


@functools.lru_cache(maxsize=1024)
def _span(start: int | None, end: int | None) -> WindowSpan:
    if start is None or end is None:
        return LIFETIME
    return WindowSpan(instant(start), instant(end))


def _ends(span: WindowSpan) -> tuple[int | None, int | None]:
    return (None if span.start is None else micros(span.start), None if span.end is None else micros(span.end))


def _bounds(span: WindowSpan) -> tuple[int, int]:
    start, end = _ends(span)
    return (_FIRST if start is None else start, _LAST if end is None else end)

"""Reads a SQLite ledger for receipts, lists and reports, on a connection that cannot write. Knows SQL only.

What single views need is imported by them, so that a report starts fast.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockpin_core.clock import instant, micros
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger import summaries
from lockpin_core.ledger.place import connect
from lockpin_core.ledger.summaries import Period, Total
from lockpin_core.money import ZERO, Money

if TYPE_CHECKING:
    from lockpin_core.budgets import Budget, Standing
    from lockpin_core.call import Payers
    from lockpin_core.keys import KeyRecord
    from lockpin_core.ledger.accounts import TaskTerms
    from lockpin_core.ledger.balances import Balances
    from lockpin_core.ledger.listing import CallRow
    from lockpin_core.ledger.protocol import Rules, TaskInfo
    from lockpin_core.ledger.questions import Question
    from lockpin_core.ledger.tasks import Tasks

_EVENTS = "SELECT at, code, task, data FROM rows WHERE kind = 'event' ORDER BY id"
_EVENTS_SINCE = "SELECT at, code, task, data FROM rows WHERE at >= :since AND kind = 'event' ORDER BY at, id"
_TOO_MUCH = "its amounts add up to more than 9.2 billion dollars, which no sum can hold"


@dataclass(frozen=True, slots=True)
class OpenHold:
    """A call that has not ended. `background`: its exchange has, and its cost comes later."""

    call: str
    at: datetime
    task: str
    held: Money
    tokens: int
    background: bool


@dataclass(frozen=True, slots=True)
class Event:
    """A change that was noted: of limits, of tasks, of what the ledger holds."""

    at: datetime
    code: str
    task: str | None
    data: Mapping[str, Any]


class LedgerReader:
    """Read-only views of one ledger. Raises LedgerError where there is none, later LedgerUnavailable."""

    def __init__(self, path: Path) -> None:
        self._connection = connect(path, read_only=True)
        self._connection.row_factory = sqlite3.Row

    def __enter__(self) -> LedgerReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def calls(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        task: str | None = None,
        model: str | None = None,
        payer: tuple[str, str] | None = None,
        limit: int = -1,
    ) -> Iterator[CallRow]:
        """List calls by the instant of their decision, newest first, as they are read; `limit` -1: all.

        `model` is a name or a glob over the model asked for, sent or served, `payer` a scope and its subject.
        """
        from lockpin_core.ledger import listing

        first, last = (None if when is None else micros(when) for when in (since, until))
        with self._snapshot():
            yield from listing.calls(self._connection, listing.Wanted(first, last, task, model, limit, payer))

    def call(self, call_id: str, *, task: str | None = None) -> CallRow | None:
        """Find one call by its id, or the newest as "last"; None: there is none."""
        from lockpin_core.ledger import listing

        with self._snapshot():
            return listing.call(self._connection, call_id, task=task)

    def ids(self, beginning: str, *, task: str | None = None) -> list[str]:
        """List the calls, of a task, whose ids begin so; oldest first."""
        from lockpin_core.ledger import listing

        with self._snapshot():
            return listing.ids(self._connection, beginning, task=task)

    def totals(
        self,
        by: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        task: str | None = None,
        zone: str = "UTC",
        limit: int = -1,
    ) -> list[Total]:
        """Add up the calls of a time by one of GROUPS, dearest first; see `summaries.totals`."""
        with self._snapshot():
            return summaries.totals(self._connection, by, _period(since, until, task), zone=zone, limit=limit)

    def count(self, by: str, *, since: datetime | None = None, zone: str = "UTC") -> int:
        """Count the keys that `totals` has."""
        with self._snapshot():
            return summaries.count(self._connection, by, _period(since, None, None), zone=zone)

    def total(self, *, since: datetime | None = None, until: datetime | None = None, task: str | None = None) -> Total:
        """Add up all calls of a time."""
        with self._snapshot():
            return summaries.total(self._connection, _period(since, until, task))

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Let all that is read inside be of one instant."""
        with self._snapshot():
            yield

    def open_holds(self) -> list[OpenHold]:
        """List the calls that have not ended, oldest first."""
        rows = self._rows("SELECT call, at, task, usd, tokens, background FROM open_holds ORDER BY at, call")
        return [OpenHold(r[0], instant(r[1]), r[2], Money(r[3]), r[4], bool(r[5])) for r in rows]

    def tasks(self) -> list[str]:
        """List every task that was made or used, also by calls that were all refused."""
        rows = self._rows("SELECT name FROM tasks UNION SELECT task FROM facets ORDER BY 1")
        return [row[0] for row in rows if row[0]]

    def key(self, digest: bytes, *, now: datetime) -> KeyRecord | None:
        """Find a key by the digest of a secret of its; None: there is none."""
        from lockpin_core.ledger import keybook

        with self._snapshot():
            return keybook.by_digest(self._connection, digest, now)

    def keys(self, *, now: datetime) -> list[KeyRecord]:
        """List every key, oldest first, as it is at an instant."""
        from lockpin_core.ledger import keybook

        with self._snapshot():
            return keybook.every(self._connection, now)

    def models(self) -> list[str]:
        """List every model that was called, as it was sent."""
        from lockpin_core.ledger.shares import called

        rows = self._rows("SELECT DISTINCT model FROM facets")
        return sorted({called(row[0]) for row in rows if row[0]})

    def machines(self) -> list[str]:
        """List the machines that have an account, in whatever window."""
        return self.subjects("machine")

    def subjects(self, scope: str) -> list[str]:
        """List those of a scope that have an account, in whatever window."""
        rows = self._rows("SELECT DISTINCT subject FROM accounts WHERE scope = ? ORDER BY 1", scope)
        return [row[0] for row in rows]

    def events(self, *, since: datetime | None = None) -> Iterator[Event]:
        """List the events of a time, oldest first, as they are read."""
        sql, first = (_EVENTS, None) if since is None else (_EVENTS_SINCE, micros(since))
        with self._snapshot():
            for at, code, task, data in self._connection.execute(sql, {"since": first}):
                yield Event(instant(at), code, task, json.loads(data or "{}"))

    def mode(self) -> str | None:
        """Give the mode of the last proxy that began on this ledger; None: none has."""
        found = self._rows("SELECT value FROM meta WHERE name = 'mode'")
        return found[0][0] if found else None

    def budgets(self) -> list[Budget]:
        """List the definitions in force, by name; the tasks' own among them."""
        from lockpin_core.ledger.definitions import budget_of

        rows = self._rows("SELECT name, definition FROM budgets WHERE removed_at IS NULL ORDER BY name")
        return [budget_of(name, json.loads(definition)) for name, definition in rows]

    def task_terms(self) -> dict[str, TaskTerms]:
        """Give what commands said of each task."""
        from lockpin_core.ledger.accounts import TaskTerms

        rows = self._rows('SELECT name, "window", limit_nano, limit_tokens, closed, "user" FROM tasks ORDER BY name')
        return {row[0]: TaskTerms(row[1], row[2], row[3], bool(row[4]), row[5]) for row in rows}

    def task_infos(self, *, now: datetime) -> list[TaskInfo]:
        """Show every task that was made or used, by name, as its current window stands."""
        from lockpin_core.ledger.definitions import Definitions
        from lockpin_core.ledger.tasks import Tasks

        with self._snapshot():
            balances, now = self._balances(now)
            names = self._connection.execute("SELECT name FROM tasks ORDER BY name").fetchall()
            own, tasks = Definitions(self._connection, _no_event).own(), Tasks(self._connection)
            found = [_task_info(balances, own, tasks, name, now) for (name,) in names]
            return [self._of_everybody(task, tasks) for task in found] if self.mode() == "team" else found

    def _of_everybody(self, task: TaskInfo, tasks: Tasks) -> TaskInfo:
        """Show of a task that is nobody's what all its calls came to: a team's are on no account of its own."""
        used = tasks.get(task.name)
        if task.user is not None or used is None:
            return task
        held = sum(hold.held.nano for hold in self.open_holds() if hold.task == task.name)
        return replace(task, spent=Money(used.spent_nano), held=Money(held))

    def questions(self, *, now: datetime) -> list[Question]:
        """List the questions to a person of the day before an instant, newest first."""
        from lockpin_core.ledger import questionbook

        with self._snapshot():
            return questionbook.every(self._connection, micros(now))

    def standings(self, rules: Rules, payers: Payers | None = None, *, now: datetime) -> list[Standing]:
        """Show the current windows' accounts: a payer's, also at zero, or all with something spent or held."""
        from lockpin_core.ledger.tasks import Tasks

        with self._snapshot():
            balances, now = self._balances(now)
            return standings_at(balances, Tasks(self._connection), rules, payers, now)

    def unopened(self, rules: Rules, *, now: datetime) -> list[Standing]:
        """Show accounts that no call has opened: of budgets that came, or changed, within their current window."""
        from lockpin_core.ledger.accounts import seat_of
        from lockpin_core.ledger.past import Past, bounds

        with self._snapshot():
            balances, now = self._balances(now)
            sinces = dict(self._rows("SELECT name, since FROM budgets WHERE removed_at IS NULL"))
            first = next((at for (at,) in self._rows("SELECT at FROM rows ORDER BY id LIMIT 1")), micros(now))
            seats = []
            for budget in rules.budgets:
                span = balances.spans.at(budget.window, now)
                period_us = budget.window.period_ms * 1000
                start = micros(now) - period_us if period_us else bounds(span)[0]
                if sinces.get(budget.name, micros(now)) > max(start, first):
                    subjects = Past(self._connection).subjects(budget, span, micros(now))
                    seats += [seat_of(budget, subject, now, balances.spans) for subject in subjects]
            found = balances.peek(tuple(seats))
            return [s for s in found if s.spent or s.held or s.spent_tokens or s.held_tokens]

    def standing(self, budget: Budget, subject: str, *, now: datetime) -> Standing:
        """Show one account of the current window, whether or not it was ever used."""
        from lockpin_core.ledger.accounts import own_budget, seat_of
        from lockpin_core.ledger.tasks import Tasks

        with self._snapshot():
            balances, now = self._balances(now)
            task = Tasks(self._connection).get(subject) if budget.own else None
            limits = budget if task is None else own_budget(budget, task.terms)
            (standing,) = balances.peek((seat_of(limits, subject, now, balances.spans),))
            return standing

    def _balances(self, now: datetime) -> tuple[Balances, datetime]:
        """Give the accounts at an instant, or at the last row's, which may be later; and that instant."""
        from lockpin_core.ledger.balances import Balances
        from lockpin_core.ledger.definitions import Definitions

        last = self._connection.execute("SELECT at FROM rows ORDER BY id DESC LIMIT 1").fetchone()
        now = now if last is None else max(now, instant(last[0]))
        balances = Balances(self._connection, _no_event, Definitions(self._connection, _no_event))
        balances.at = micros(now)
        return balances, now

    def _rows(self, sql: str, *values: object) -> list[Any]:
        with self._snapshot():
            return self._connection.execute(sql, values).fetchall()

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Read inside one transaction; within another it is that one."""
        if self._connection.in_transaction:
            yield
            return
        try:
            self._connection.execute("BEGIN")
            yield
        except sqlite3.Error as error:
            words = _TOO_MUCH if "integer overflow" in str(error) else str(error)
            raise LedgerUnavailable(f"the ledger cannot be read: {words}") from error
        finally:
            with contextlib.suppress(sqlite3.ProgrammingError):  # closed meanwhile
                self._connection.rollback()  # nothing was written


def _task_info(balances: Balances, own: Budget | None, tasks: Tasks, name: str, now: datetime) -> TaskInfo:
    from lockpin_core.ledger.accounts import own_budget, seat_of
    from lockpin_core.ledger.protocol import TaskInfo
    from lockpin_core.windows import kind_text

    task = tasks.get(name)
    assert task is not None, "a listed task is gone"
    created = None if task.created is None else instant(task.created)
    if own is None:
        limit = None if task.terms.limit_nano is None else Money(task.terms.limit_nano)
        return TaskInfo(name, task.terms.window, limit, ZERO, ZERO, task.terms.closed, created, task.terms.user)
    seat = seat_of(own_budget(own, task.terms), name, now, balances.spans)
    (standing,) = balances.peek((seat,))
    window, terms = kind_text(seat.budget.window), task.terms
    return TaskInfo(name, window, standing.limit, standing.spent, standing.held, terms.closed, created, terms.user)


def _period(since: datetime | None, until: datetime | None, task: str | None) -> Period:
    return Period(None if since is None else micros(since), None if until is None else micros(until), task)


def standings_at(
    balances: Balances, tasks: Tasks, rules: Rules, payers: Payers | None, now: datetime
) -> list[Standing]:
    """Show the accounts of the windows at an instant: a payer's, also at zero, or all with something spent or held."""
    from lockpin_core.ledger.accounts import own_budget, seat_of

    budgets = (rules.task_default, *rules.budgets)
    balances.at = micros(now)
    if payers is not None:
        wanted = [(budget, subject, "") for budget in budgets for subject in budget.subjects(payers)]
    else:
        wanted = [(b, seat.subject, seat.account) for b in budgets for seat in balances.in_window(b, micros(now))]
    seats = []
    for budget, subject, account in wanted:
        task = tasks.get(subject) if budget.own else None
        limits = budget if task is None else own_budget(budget, task.terms)
        if payers is not None and not limits.is_for(payers):
            continue
        seat = seat_of(limits, subject, now, balances.spans)
        if account in ("", seat.account):
            seats.append(seat)
    return list(balances.peek(tuple(seats)))


def _no_event(code: str, data: Mapping[str, object]) -> None:
    raise AssertionError("a reader writes nothing")

"""What commands change in a SQLite ledger: tasks and raised limits. Each is one transaction and one event's row."""

from __future__ import annotations

import contextlib
import sqlite3
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from lockpin_core.budgets import Budget, Standing
from lockpin_core.call import Payers
from lockpin_core.clock import Clock, NewId
from lockpin_core.errors import CommandError, LedgerUnavailable
from lockpin_core.ledger.accounts import Seat, TaskTerms, own_budget, seat_of
from lockpin_core.ledger.balances import instant
from lockpin_core.ledger.books import Books
from lockpin_core.ledger.place import open_ledger
from lockpin_core.ledger.protocol import Rules, TaskInfo
from lockpin_core.ledger.reader import standings_at
from lockpin_core.ledger.tasks import Task
from lockpin_core.money import ZERO, Money
from lockpin_core.windows import KINDS

NAME_MAX = 128


class SqliteAdmin:
    """Commands' side of a ledger; every operation opens the file for itself, with a writer id of its own.

    Raises LedgerError where the path cannot be a ledger, LedgerUnavailable where it cannot be written just now, and
    CommandError for what cannot be done as asked.
    """

    def __init__(self, path: Path, *, clock: Clock, new_id: NewId) -> None:
        self._path, self._clock, self._new_id = path, clock, new_id

    def task_new(self, name: str, *, limit: Money | None, window: str, who: str) -> TaskInfo:
        """Make a task, set the budget of one in use, or reopen a closed one; no limit: a present one stays."""
        name = canonical_task(name)
        _check_terms(limit, window)
        with self._transaction() as books:
            task = books.tasks.get(name) or Task(name, TaskTerms(window, None, None, closed=False))
            nano = task.terms.limit_nano if limit is None else limit.nano
            data = {"who": who, "limit_nano": nano, "window": window, "reopened": task.terms.closed}
            terms = replace(task.terms, window=window, limit_nano=nano, closed=False)
            created = books.at if task.created is None else task.created
            books.tasks.put(replace(task, terms=terms, created=created))
            books.event("task_new", data, name)
            own = books.balances.own_definition()
            if own is not None:
                seat = self._seat(books, own, name)
                if limit is not None:
                    books.balances.forget_raises(seat)
                books.balances.rearm(seat)
            return _info(books, name)

    def task_close(self, name: str, *, who: str) -> TaskInfo:
        """Close a task: its next calls are refused, its open ones settle as usual."""
        name = canonical_task(name)
        with self._transaction() as books:
            task = books.tasks.get(name)
            if task is None:
                raise CommandError(f'no task "{name}" in {self._path}; lockpin task list shows them')
            books.tasks.put(replace(task, terms=replace(task.terms, closed=True)))
            books.event("task_closed", {"who": who}, name)
            return _info(books, name)

    def tasks(self) -> list[TaskInfo]:
        """List every task that was made or used, by name."""
        with self._view() as (books, connection):
            names = connection.execute("SELECT name FROM tasks ORDER BY name").fetchall()
            return [_info(books, name) for (name,) in names]

    def raise_budget(self, budget: Budget, subject: str, by: Money, *, who: str) -> Standing:
        """Add to the limit of a subject's current window; of a lifetime budget for good."""
        if by.nano <= 0:
            raise CommandError(f'"{by.exact()}" is no raise; a positive amount is allowed')
        with self._transaction() as books:
            seat = self._seat(books, budget, subject)
            if seat.budget.limit is None:
                raise CommandError(f'budget "{budget.name}" of "{subject}" has no dollar limit to raise')
            standing = books.balances.raise_limit(seat, by.nano)
            data = {"who": who, "budget": budget.name, "subject": subject, "account": seat.account, "by_nano": by.nano}
            books.event("budget_raised", data, subject if budget.own else None)
            return standing

    def standings(self, rules: Rules, payers: Payers | None, *, now: datetime) -> list[Standing]:
        """Show the current windows' accounts: a payer's, also at zero, or all with something spent or held."""
        with self._view(now) as (books, _):
            return standings_at(books.balances, books.tasks, rules, payers, books.now)

    @staticmethod
    def _seat(books: Books, budget: Budget, subject: str) -> Seat:
        limits = own_budget(budget, books.terms(subject)) if budget.own else budget
        return seat_of(limits, subject, books.now, books.balances.spans)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Books]:
        with self._opened() as connection, _unavailable():
            books = Books(connection, self._new_id())
            connection.execute("BEGIN IMMEDIATE")
            books.begin(self._clock())
            yield books
            books.flush()
            connection.execute("COMMIT")

    @contextlib.contextmanager
    def _view(self, now: datetime | None = None) -> Iterator[tuple[Books, sqlite3.Connection]]:
        with self._opened() as connection, _unavailable():
            books = Books(connection, self._new_id())
            connection.execute("BEGIN")
            books.begin(now or self._clock())
            yield books, connection

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the ledger; closing it undoes what was not committed."""
        with contextlib.closing(open_ledger(self._path, durability="full", new_id=self._new_id)) as connection:
            yield connection


def canonical_task(name: str) -> str:
    """Give a task's name in NFC. Raises CommandError unless it is 1 to 128 printable characters without "/"."""
    name = unicodedata.normalize("NFC", name)
    if not 1 <= len(name) <= NAME_MAX or not name.isprintable() or "/" in name:
        shown = name[:40].encode("ascii", "backslashreplace").decode()
        raise CommandError(f'task name "{shown}" is not allowed; 1 to {NAME_MAX} printable characters without "/" are')
    return name


def _check_terms(limit: Money | None, window: str) -> None:
    if window not in KINDS:
        raise CommandError(f'window is "{window}"; {" or ".join(KINDS)} is allowed')
    if limit is not None and limit.nano < 0:
        raise CommandError(f'budget is "{limit.exact()}"; a positive amount is allowed')


def _info(books: Books, name: str) -> TaskInfo:
    task, own = books.tasks.get(name), books.balances.own_definition()
    assert task is not None, "a listed task is gone"
    created = None if task.created is None else instant(task.created)
    if own is None:
        limit = None if task.terms.limit_nano is None else Money(task.terms.limit_nano)
        return TaskInfo(name, task.terms.window, limit, ZERO, ZERO, task.terms.closed, created)
    seat = seat_of(own_budget(own, task.terms), name, books.now, books.balances.spans)
    (standing,) = books.balances.peek((seat,))
    window = seat.budget.window.kind
    return TaskInfo(name, window, standing.limit, standing.spent, standing.held, task.terms.closed, created)


@contextlib.contextmanager
def _unavailable() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise LedgerUnavailable(f"the ledger cannot be written: {error}") from error

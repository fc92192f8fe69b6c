"""Tasks of a SQLite ledger: their terms, what they have spent over all time, and their last charges.

Within a transaction each task is read once and written once; `begin` and `flush` are its ends.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from lockpin_core.ledger.accounts import TaskTerms
from lockpin_core.ledger.backlog import Backlog
from lockpin_core.money import Money

RECENT = 20  # how many last charges of its task a resolution shows
_REMEMBERED = 512  # tasks whose last charges are kept in memory

_READ = 'SELECT "window", limit_nano, limit_tokens, closed, "user", spent_nano, created FROM tasks WHERE name = ?'
_WRITE = (
    'REPLACE INTO tasks (name, "window", limit_nano, limit_tokens, closed, "user", spent_nano, created) '
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_RECENT = f"SELECT usd FROM rows WHERE task = ? AND kind = 'charge' ORDER BY at DESC, id DESC LIMIT {RECENT}"


@dataclass(frozen=True, slots=True)
class Task:
    """A task's row. `created` None: it exists by use, nobody made it."""

    name: str
    terms: TaskTerms
    spent_nano: int = 0
    created: int | None = None


class Tasks:
    """Reads and writes tasks on one connection."""

    def __init__(self, connection: sqlite3.Connection, backlog: Backlog | None = None) -> None:
        self._connection, self._backlog = connection, backlog or Backlog(connection)
        self._known: dict[str, Task | None] = {}
        self._changed: set[str] = set()
        self._last: dict[str, tuple[int, tuple[Money, ...]]] = {}  # by task: spent so far, and the charges up to it

    def begin(self) -> None:
        """Forget what another writer may have changed."""
        self._known.clear()
        self._changed.clear()

    def flush(self) -> None:
        """Write what has changed."""
        if self._changed:
            self._connection.executemany(_WRITE, [_columns(self._known[name]) for name in self._changed])
            self._changed.clear()
        if len(self._known) > _REMEMBERED:
            self._known.clear()

    def get(self, name: str) -> Task | None:
        """Read a task; None: nobody has used or made it."""
        if name not in self._known:
            row = self._connection.execute(_READ, (name,)).fetchone()
            terms = None if row is None else TaskTerms(row[0], row[1], row[2], bool(row[3]), row[4])
            self._known[name] = None if terms is None else Task(name, terms, row[5], row[6])
        return self._known[name]

    def put(self, task: Task) -> None:
        """Change a task, or make it."""
        self._known[task.name] = task
        self._changed.add(task.name)

    def spend(self, name: str, nano: int) -> tuple[Task, tuple[Money, ...]]:
        """Add a charge to a task and give the task and its last charges, this one first.

        The charges in memory are used where the task's total says that nobody else has charged it since.
        """
        task = self.get(name)
        assert task is not None, "a task with a hold is not there"
        total, last = self._last.get(name, (-1, ()))
        if total != task.spent_nano:
            last = self.recent(name)
        spent = Task(name, task.terms, task.spent_nano + nano, task.created)
        self.put(spent)
        last = (Money(nano), *last[: RECENT - 1])
        if len(self._last) >= _REMEMBERED:
            self._last.clear()
        self._last[name] = (spent.spent_nano, last)
        return spent, last

    def forget(self) -> None:
        """Drop what is remembered, when a transaction did not happen."""
        self.begin()
        self._last.clear()

    def recent(self, name: str) -> tuple[Money, ...]:
        """Read a task's last charges, newest first."""
        self._backlog.write()
        return tuple(Money(usd) for (usd,) in self._connection.execute(_RECENT, (name,)).fetchall())


def _columns(task: Task | None) -> tuple[object, ...]:
    assert task is not None, "a task that is not there has changed"
    terms = task.terms
    limits = (terms.limit_nano, terms.limit_tokens)
    return (task.name, terms.window, *limits, int(terms.closed), terms.user, task.spent_nano, task.created)

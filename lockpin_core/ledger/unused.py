"""Lets go, when old rows are taken out, what is kept of tasks that nobody has used since: that their calls pause, and
what their first calls were like. A task that was stopped goes on then, and an event says so.

Whoever still sends calls of a stopped task has rows of refusals, so it stays stopped. Knows the tables; looks for what
may go outside of transactions, so that running proxies hardly wait.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from lockpin_core.ledger.frame import Frame
from lockpin_core.ledger.pauses import KEPT_US

SLICE = 200  # tasks that are let go in one transaction

_STOPPED = (
    "SELECT subject, \"user\" FROM pauses WHERE kind = 'loop' AND scope = 'task' AND since_row <= ? ORDER BY 1, 2"
)
_PROFILES = "SELECT task FROM profiles WHERE at <= ? ORDER BY task"
_USED = "SELECT 1 FROM rows WHERE task = ? AND kind <> 'event' AND coalesce(\"user\", '') = ? AND id > ? LIMIT 1"
_FORGET = "DELETE FROM profiles WHERE task = ? AND at <= ?"
_DROP_OLD = "DELETE FROM pauses WHERE until <= (SELECT at FROM rows ORDER BY id DESC LIMIT 1) - ?"
_LAST_ROW = "SELECT coalesce(max(id), 0) FROM rows"

type Transaction = Callable[[], AbstractContextManager[Frame]]


def let_go(connection: sqlite3.Connection, transaction: Transaction, rows_to: int, last_at: int, *, who: str) -> int:
    """Let go on what was stopped at a row, or before it, and not used since; give how many tasks that are.

    `last_at` is the instant of that row; `transaction` begins the books' and ends it.
    """
    with transaction():
        connection.execute(_DROP_OLD, (KEPT_US,))
    names = [name.partition("\x1f")[::2] for (name,) in connection.execute(_PROFILES, (last_at,)).fetchall()]
    for whose, seen in _slices(connection, names, rows_to):
        with transaction():
            old = [one for one in whose if not _is_used(connection, one, seen)]
            connection.executemany(_FORGET, [("\x1f".join(filter(None, one)), last_at) for one in old])
    count = 0
    for whose, seen in _slices(connection, connection.execute(_STOPPED, (rows_to,)).fetchall(), rows_to):
        with transaction() as books:
            old = [one for one in whose if not _is_used(connection, one, seen)]
            count += sum(books.resume_task(task, who=who, user=user) for task, user in old)
    return count


def _slices(
    connection: sqlite3.Connection, whose: list[tuple[str, str]], rows_to: int
) -> Iterator[tuple[list[tuple[str, str]], int]]:
    """Give those not used after a row, some at a time, and up to which row that was looked at."""
    for first in range(0, len(whose), SLICE):
        (seen,) = connection.execute(_LAST_ROW).fetchone()
        unused = [one for one in whose[first : first + SLICE] if not _is_used(connection, one, rows_to)]
        if unused:
            yield unused, seen


def _is_used(connection: sqlite3.Connection, one: tuple[str, str], after_row: int) -> bool:
    return connection.execute(_USED, (*one, after_row)).fetchone() is not None

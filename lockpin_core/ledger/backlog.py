"""What a transaction still has to write: rows, new, smaller and closed holds. Knows SQL; knows no rules.

A statement for many rows costs little more than one for a single row, so they wait for the end of the transaction,
or for the first query that must see them. Beside them stand this writer's open holds as they are on the books: true
until anybody else writes, and then forgotten.
"""

from __future__ import annotations

import functools
import sqlite3
from dataclasses import dataclass

MANY = 64  # rows in one statement at most

_COLUMNS = "call, writer, at, usd, tokens, accounts, task"
_MARKS = "(?, ?, ?, ?, ?, ?, ?)"
_HOLD_COLUMNS = 7
_SHRINK = "UPDATE open_holds SET usd = ?, tokens = ? WHERE call = ?"


@dataclass(frozen=True, slots=True)
class OpenHold:
    """A hold that is not resolved yet."""

    call: str
    at: int
    usd: int
    tokens: int
    accounts: list[str]
    account_list: str  # the same as JSON
    task: str


class Backlog:
    """Collects one writer's changes of `rows` and `open_holds` on a connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.open: dict[str, OpenHold] = {}
        self._connection = connection
        self._rows: list[object] = []
        self._row_count = 0
        self._insert: tuple[str, str] = ("", "")
        self._holds: list[object] = []
        self._shrunk: dict[str, OpenHold] = {}
        self._closed: list[str] = []

    def add_row(self, columns: str, marks: str, values: list[object]) -> None:
        """Append a row; every row has the same columns."""
        self._insert = columns, marks
        self._rows += values
        self._row_count += 1
        if self._row_count >= MANY:
            self.write()

    def add_hold(self, hold: OpenHold, writer: str) -> None:
        """Open a hold. Where its call has one already, writing raises sqlite3.IntegrityError."""
        self._holds += (hold.call, writer, hold.at, hold.usd, hold.tokens, hold.account_list, hold.task)
        self.open[hold.call] = hold
        if len(self._holds) >= MANY * _HOLD_COLUMNS:
            self.write()

    def shrink_hold(self, hold: OpenHold) -> None:
        """Let an open hold be what it is now."""
        self.open[hold.call] = self._shrunk[hold.call] = hold

    def close_hold(self, call: str) -> OpenHold | None:
        """Close a hold that is known here; None: the books must be asked."""
        hold = self.open.pop(call, None)
        if hold is not None:
            self._closed.append(call)
            if len(self._closed) >= MANY:
                self.write()
        return hold

    def write(self) -> None:
        """Write what is there. Raises sqlite3.IntegrityError where the books are not as they were thought to be."""
        if self._row_count:
            rows, self._rows = self._rows, []
            self._connection.execute(_insert_rows(*self._insert, self._row_count), rows)
            self._row_count = 0
        if self._holds:
            holds, self._holds = self._holds, []
            self._connection.execute(_insert_holds(len(holds) // _HOLD_COLUMNS), holds)
        if self._shrunk:
            shrunk, self._shrunk = self._shrunk, {}
            values = [(hold.usd, hold.tokens, hold.call) for hold in shrunk.values()]
            if self._connection.executemany(_SHRINK, values).rowcount != len(values):
                raise sqlite3.IntegrityError("an open hold is gone")
        if self._closed:
            closed, self._closed = self._closed, []
            if self._connection.execute(_delete_holds(len(closed)), closed).rowcount != len(closed):
                raise sqlite3.IntegrityError("an open hold is gone")

    def forget(self) -> None:
        """Drop everything, when the transaction did not happen."""
        self.open.clear()
        self._rows, self._row_count, self._holds, self._shrunk, self._closed = [], 0, [], {}, []


@functools.lru_cache(maxsize=2 * MANY)
def _insert_rows(columns: str, marks: str, count: int) -> str:
    return f"INSERT INTO rows ({columns}) VALUES {', '.join([marks] * count)}"


@functools.lru_cache(maxsize=2 * MANY)
def _insert_holds(count: int) -> str:
    return f"INSERT INTO open_holds ({_COLUMNS}) VALUES {', '.join([_MARKS] * count)}"


@functools.lru_cache(maxsize=2 * MANY)
def _delete_holds(count: int) -> str:
    return f"DELETE FROM open_holds WHERE call IN ({', '.join('?' * count)})"

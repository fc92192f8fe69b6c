"""A connection to a SQLite ledger that fails when it is told to, and tells who watches what was committed."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

WRITES = ("INSERT", "REPLACE", "UPDATE", "DELETE")


class Crash(BaseException):
    """The process is gone, in the middle of a statement."""


class Disk:
    """What becomes of statements. One for each process of the play."""

    def __init__(self, committed: Callable[[], None]) -> None:
        self.elsewhere: Callable[[], None] | None = None  # what others do before this process has the database
        self.is_full = False
        self.fails: list[str] = []  # what happens to the next commits: "fails", "lost", "locked"
        self.busy = 0  # so many beginnings find the database locked
        self.is_broken = False  # nothing works, not even reading
        self.crash_in: int | None = None  # so many statements until the process is gone
        self._committed = committed

    def connection(self, real: sqlite3.Connection) -> "Connection":
        return Connection(real, self)

    def heal(self) -> None:
        self.is_full = self.is_broken = False
        self.fails, self.crash_in, self.busy = [], None, 0

    def before(self, sql: str) -> None:
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in < 0:
                raise Crash
        if self.is_broken:
            raise sqlite3.OperationalError("disk I/O error")
        if sql == "BEGIN IMMEDIATE":
            if self.busy:
                self.busy -= 1
                raise sqlite3.OperationalError("database is locked")
            if self.elsewhere is not None:
                self.elsewhere()
        if self.is_full and sql.startswith(WRITES):
            raise sqlite3.OperationalError("database or disk is full")

    def commit(self, real: sqlite3.Connection) -> Any:
        fault = self.fails.pop(0) if self.fails else None
        if fault == "fails":
            real.execute("ROLLBACK")
            raise sqlite3.OperationalError("disk I/O error")
        if fault == "locked":
            raise sqlite3.OperationalError("database is locked")
        done = real.execute("COMMIT")
        self._committed()
        if fault == "lost":
            raise sqlite3.OperationalError("disk I/O error")
        if fault == "crash":
            raise Crash
        return done


class Connection:
    """Stands in for a connection."""

    def __init__(self, real: sqlite3.Connection, disk: Disk) -> None:
        self.real, self._disk = real, disk

    def execute(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        self._disk.before(sql)
        if sql == "COMMIT":
            return self._disk.commit(self.real)
        return self.real.execute(sql, values)

    def executemany(self, sql: str, values: Any) -> sqlite3.Cursor:
        self._disk.before(sql)
        return self.real.executemany(sql, values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

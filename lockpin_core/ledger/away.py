"""Answers while a SQLite ledger cannot be written, from what can still be read. Knows transactions; knows no tables."""

from __future__ import annotations

import sqlite3

from lockpin_core.clock import Clock
from lockpin_core.errors import LedgerError, LedgerUnavailable
from lockpin_core.ledger.books import Books
from lockpin_core.ledger.operations import Operation
from lockpin_core.ledger.place import Watch


class Away:
    """Reads on the writer's connection, between its transactions."""

    def __init__(self, connection: sqlite3.Connection, books: Books, watch: Watch, clock: Clock) -> None:
        self._connection, self._books, self._watch, self._clock = connection, books, watch, clock

    def answer(self, operation: Operation, *, can_go: bool) -> tuple[object, Operation | None]:
        """Answer an operation that cannot be written, from what can be read where that is enough; None: it is not.

        Beside it stands what is to be written later. `can_go`: a hold may go without, where no limit applies to it.
        """
        can_go = operation.degraded is not None and can_go
        if not operation.reads and not can_go:
            return None, None
        try:
            return self._read(operation)
        except (sqlite3.Error, LedgerError, LedgerUnavailable):
            return None, None  # what cannot be known is refused
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _read(self, operation: Operation) -> tuple[object, Operation | None]:
        self._watch.check()  # another file, or none, is no evidence that there is no limit
        self._connection.execute("BEGIN")
        self._books.begin(self._clock())
        if operation.reads:
            return operation.run(self._books), None
        assert operation.degraded is not None
        found = operation.degraded(self._books)
        if found is None:
            return None, None
        answer, later = found
        return answer, Operation(later, call_id=operation.call_id)

"""Says whose a secret is, and how questions stand, beside the writer: in a thread and on a connection of its own.

A commit that is under way keeps no reader waiting, and what another process has committed is seen by the next question:
nothing is remembered. A question takes some 50 µs, so there is nothing to gain by it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from lockpin_core.call import Payers
from lockpin_core.clock import Clock, micros
from lockpin_core.errors import LedgerError, LedgerUnavailable
from lockpin_core.keys import KeyRecord
from lockpin_core.ledger import keybook, questionbook
from lockpin_core.ledger.place import Watch, connect
from lockpin_core.ledger.questions import Question

type Find[T] = Callable[[sqlite3.Connection], T]


class Lookup:
    """Its thread and its connection are made when it is first asked: where nobody has a key, they mostly never are."""

    def __init__(self, path: Path, watch: Watch, clock: Clock) -> None:
        self._path, self._watch, self._clock = path, watch, clock
        self._thread = ThreadPoolExecutor(1, "lockpin-keys")
        self._connection: sqlite3.Connection | None = None

    def ask(self, digest: bytes) -> Future[KeyRecord | None]:
        """Find the key of a secret's digest. Fails with LedgerUnavailable."""
        return self._look(lambda connection: keybook.by_digest(connection, digest, self._clock()))

    def question(self, question_id: str) -> Future[Question | None]:
        """Find a question as it is now. Fails with LedgerUnavailable."""
        return self._look(lambda connection: questionbook.find(connection, question_id))

    def open_loops(self, payers: Payers) -> Future[tuple[Question, ...]]:
        """List the open questions about loops that their calls wait for. Fails with LedgerUnavailable."""
        return self._look(lambda connection: questionbook.open_loops(connection, payers, micros(self._clock())))

    def _look[T](self, find: Find[T]) -> Future[T]:
        try:
            return self._thread.submit(self._find, find)
        except RuntimeError:  # the thread is stopped
            closed: Future[T] = Future()
            closed.set_exception(LedgerUnavailable("the ledger is closed"))
            return closed

    def close(self) -> None:
        """Answer what was asked, then end."""
        self._thread.shutdown()
        self._drop()

    def _find[T](self, find: Find[T]) -> T:
        self._watch.check()
        try:
            if self._connection is None:
                self._connection = connect(self._path, read_only=True)
            return find(self._connection)
        except (sqlite3.Error, LedgerError) as error:
            self._drop()  # the next question opens it anew
            raise LedgerUnavailable(f"the ledger cannot be read: {error}") from error

    def _drop(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

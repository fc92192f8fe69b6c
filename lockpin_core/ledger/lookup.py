"""Says whose a secret is, with each call and beside the writer: in a thread and on a connection of its own.

A commit that is under way keeps no reader waiting, and what another process has committed is seen by the next question:
nothing is remembered. A question takes some 50 µs, so there is nothing to gain by it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from lockpin_core.clock import Clock
from lockpin_core.errors import LedgerError, LedgerUnavailable
from lockpin_core.keys import KeyRecord
from lockpin_core.ledger import keybook
from lockpin_core.ledger.place import Watch, connect


class Lookup:
    """Its thread and its connection are made with the first question: where nobody has a key, they never are."""

    def __init__(self, path: Path, watch: Watch, clock: Clock) -> None:
        self._path, self._watch, self._clock = path, watch, clock
        self._thread = ThreadPoolExecutor(1, "lockpin-keys")
        self._connection: sqlite3.Connection | None = None

    def ask(self, digest: bytes) -> Future[KeyRecord | None]:
        """Find the key of a secret's digest. Fails with LedgerUnavailable."""
        try:
            return self._thread.submit(self._find, digest)
        except RuntimeError:  # the thread is stopped
            closed: Future[KeyRecord | None] = Future()
            closed.set_exception(LedgerUnavailable("the ledger is closed"))
            return closed

    def close(self) -> None:
        """Answer what was asked, then end."""
        self._thread.shutdown()
        self._drop()

    def _find(self, digest: bytes) -> KeyRecord | None:
        self._watch.check()
        try:
            if self._connection is None:
                self._connection = connect(self._path, read_only=True)
            return keybook.by_digest(self._connection, digest, self._clock())
        except (sqlite3.Error, LedgerError) as error:
            self._drop()  # the next question opens it anew
            raise LedgerUnavailable(f"the ledger cannot be read: {error}") from error

    def _drop(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

"""Ledgers as the state machine plays them: processes on the same books, which crash and end, in one thread.

`ledgers` are the processes, by place; `clock` is everybody's.
"""

import os
import tempfile
from pathlib import Path

from lockpin_core.ledger.memory import MemoryLedger
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.ledger.verify import verify
from lockpin_core.ledger.watchers import Watcher
from tests.ledger.desk import WAIT_S, MemoryDesk, SqliteDesk, nonzero

SHARED = Path("/dev/shm")  # a disk in memory, where there is one


class AtOnce:
    """Lets a writer work as soon as it is woken, in the thread of whoever woke it: the same play is the same again."""

    def __init__(self):
        self.is_over = self.is_busy = self.is_due = False

    def start(self, steps):
        self.steps = steps
        steps.begin()

    def wake(self):
        self.is_due = not self.is_over
        if self.is_busy:
            return
        self.is_busy = True
        try:
            while self.is_due:
                self.is_due = False
                self.steps.step(0)
        finally:
            self.is_busy = False

    def join(self):
        if not self.is_over:
            self.is_over = True
            while not self.steps.is_stopping:
                self.steps.step(0)
            self.steps.finish()
            self.steps.abandon()


class InMemory(MemoryDesk):
    """One process, and nothing that outlives it: what it does at its end is what others would do after a crash."""

    processes = 1

    def __init__(self):
        super().__init__()
        self.ledgers = [MemoryLedger(clock=self.clock, ticks=lambda: 0.0)]
        self.ledger = self.admin = self.ledgers[0]
        self.ledger.watchers = 1

    def look_after_all(self):
        self.ledger.look_after()

    def crash(self, place):
        self.ledger.stop()

    def stop(self, place):
        self.ledger.stop()

    def prove(self):
        """Nothing is held, and each hold has one end."""
        assert not any(held_nano or held_tokens for _, held_nano, _, held_tokens in self.accounts().values())
        holds = sorted(row.call for row in self.rows("hold"))
        assert holds == sorted({*holds}) == sorted(row.call for row in (*self.rows("charge"), *self.rows("void")))

    def close(self):
        self.ledger.stop()


class OnSqlite(SqliteDesk):
    """Processes on one file."""

    processes = 1

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(dir=SHARED if os.access(SHARED, os.W_OK) else None)
        super().__init__(Path(self.folder.name))
        self.ledgers = [self.ledger, *(self.open() for _ in range(self.processes - 1))]
        Watcher(self.path, "eye", lambda: 0.0).__enter__()  # who is there for good

    def open(self):
        self.drives = getattr(self, "drives", {})
        drive = AtOnce()
        ledger = SqliteLedger(
            self.path, clock=self.clock, new_id=self.new_id, durability="normal", ticks=lambda: 0.0, drive=drive
        )
        self.drives[ledger] = drive
        return ledger

    def look_after_all(self):
        """Let every process see what the others have done, until none has anything to do any more."""
        for ledger in self.ledgers * (1 if self.processes == 1 else 3):
            ledger.look_after().result(WAIT_S)

    def crash(self, place):
        """Leave what a kill would leave, and start another in its place."""
        dead = self.ledgers[place]
        self.drives.pop(dead).is_over = True
        dead._writer._connection.close()
        dead._lookup.close()
        os.close(dead._liveness._descriptor)
        dead._liveness._descriptor = None
        self.ledgers[place] = self.open()

    def stop(self, place):
        self.ledgers[place].stop()
        self.ledgers[place] = self.open()

    def prove(self):
        """The rows add up to the accounts, every chain is whole, each hold has one end, and `verify` finds nothing."""
        assert lasting(self.accounts()) == lasting(self.explained())
        self.chain_ends()
        ends = self.query("SELECT call, kind FROM rows WHERE kind IN ('hold', 'charge', 'void') ORDER BY call, kind")
        holds = [row["call"] for row in ends if row["kind"] == "hold"]
        assert holds == sorted({*holds})
        assert holds == sorted(row["call"] for row in ends if row["kind"] != "hold")
        assert verify(self.path).wrong is None

    def close(self):
        for ledger in self.ledgers:
            ledger.stop()
        self.folder.cleanup()


class OnSqliteTwice(OnSqlite):
    """Two processes on one file."""

    processes = 2


def lasting(accounts):
    """Leave out accounts of rolling windows, which no row tells when they let spend go."""
    return {name: numbers for name, numbers in nonzero(accounts).items() if "\x1f~" not in name}

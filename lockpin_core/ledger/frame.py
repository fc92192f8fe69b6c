"""One writer's transaction on the books: its instant, what was read, and what it writes at its end.

Knows no threads, no commits and no files. Everything happens at the transaction's instant: the later of the wall clock
and the last row, so that ledger time never runs backwards.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from lockpin_core.clock import instant, micros
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger import schema
from lockpin_core.ledger.accounts import TaskTerms
from lockpin_core.ledger.alerts import Alerts
from lockpin_core.ledger.allowances import ENDED, Allowances
from lockpin_core.ledger.backlog import Backlog, OpenHold
from lockpin_core.ledger.balances import Balances
from lockpin_core.ledger.chain import Chain, Head, encode
from lockpin_core.ledger.columns import plain
from lockpin_core.ledger.corrections import Corrections
from lockpin_core.ledger.definitions import CONFIG, Change, Definitions
from lockpin_core.ledger.pausebook import PauseBook
from lockpin_core.ledger.protocol import Rules
from lockpin_core.ledger.seats import Seats
from lockpin_core.ledger.tasks import Tasks
from lockpin_core.ledger.totals import Totals
from lockpin_core.ledger.turns import Waiter
from lockpin_core.ledger.waiting import WaitingRoom

_HASH = "SELECT hash FROM rows WHERE writer = ? AND seq = ?"
_CHAIN_END = (
    "INSERT INTO writers (id, seq, hash, since, origin) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, origin = excluded.origin"
)


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a writer's books stand between operations, to go back to when one did not happen."""

    head: Head
    rules: Rules | None
    origin: str
    waiters: tuple[Waiter, ...] = ()


class Frame:
    """One writer's operations on one connection: `begin`, operations, `flush`, and the caller commits.

    Between transactions it keeps its own chain's end and facts of rows, which never change, and what it has read and
    written itself for as long as nobody else has written: SQLite counts the others' commits.
    """

    def __init__(self, connection: sqlite3.Connection, writer: str) -> None:
        backlog, totals = Backlog(connection), Totals(connection)
        self.definitions = Definitions(connection, self.event)
        self.balances = Balances(connection, self.event, self.definitions, backlog, totals)
        self.allowances = Allowances(connection)
        self.balances.note_forgotten = self.allowances.drop
        self.alerts = Alerts(self.balances.told, self.balances.tell, self.event)
        self.tasks = Tasks(connection, backlog)
        self.pauses = PauseBook(connection, backlog, self.event)
        self.corrections = Corrections(connection, self.balances, self.tasks, self.append)
        self.seats = Seats(self.definitions, self.balances.spans)
        self.room = WaitingRoom(connection, writer)
        self.at = 0
        self.now = instant(0)
        self.connection, self._backlog, self._totals = connection, backlog, totals
        self._chain = Chain(backlog, writer)
        self._end_written = (0, "")  # the chain's end and the origin as they are on the books
        self.others_wrote = 0  # how often it was found that others had
        self._version: int | None = None  # of the file, when it was last read; None: nothing is known of it
        self._last_at = 0  # of the last row
        self._careful = True
        self._last_rates: tuple[Mapping[str, str], str] = ({}, "{}")
        self._facts: dict[str, dict[str, object]] = {}  # by open call: what its resolution repeats of the hold's row

    @property
    def writer(self) -> str:
        """Give the id under which rows are written."""
        return self._chain.writer

    def begin(self, wall: datetime, *, careful: bool = True, serves: bool = True) -> None:
        """Fix the transaction's instant.

        `careful`: ask the books first where an operation could find its call held or resolved already. Otherwise that
        is an IntegrityError at the end, and the transaction is to be done again, each operation by itself.
        `serves`: waiters may go in it.
        """
        self._careful, self.room.is_shut = careful, not serves
        (version,) = self.connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._read_anew()
            self._version = version
            self.others_wrote += 1
        before, self.at = self.at, max(micros(wall), self._last_at)
        if self.at < before:
            # The wall clock was ahead for a while in which no row was written: nothing of that time may stay.
            self._read_anew()
            self.seats.forget()
            self.balances.spans.forget()
        self.balances.at = self.pauses.at = self.at
        self.now = instant(self.at)

    def is_stale(self) -> bool:
        """Say, between transactions, whether others have written since the last one."""
        (version,) = self.connection.execute("PRAGMA data_version").fetchone()
        return bool(version != self._version)

    def _read_anew(self) -> None:
        """Forget what others may have changed."""
        (version,) = self.connection.execute("PRAGMA user_version").fetchone()
        if version != schema.VERSION:
            raise LedgerUnavailable(f"the ledger was brought to version {version} by a newer Lockpin: restart this one")
        self.balances.begin()
        self.allowances.begin()
        self.tasks.begin()
        self.definitions.read_anew()
        self.pauses.read_anew()
        self.room.read_anew()
        self._backlog.open.clear()
        last = self.connection.execute("SELECT at FROM rows ORDER BY id DESC LIMIT 1").fetchone()
        self._last_at = 0 if last is None else last[0]

    def flush(self) -> None:
        """Write what the transaction has changed."""
        self._backlog.write()
        self.balances.flush()
        self.tasks.flush()
        self._totals.flush()
        self.room.flush()
        end = (self._chain.head.seq, self.seats.origin)
        if end != self._end_written:
            head = self._chain.head
            self.connection.execute(_CHAIN_END, (self.writer, head.seq, head.hash, self.at, self.seats.origin))
            self._end_written = end

    def write(self) -> None:
        """Write rows and holds that still wait, for a query that must see them."""
        self._backlog.write()

    def mark(self) -> Mark:
        """Remember where the books stand between two transactions."""
        return Mark(self._chain.head, self.seats.rules, self.seats.origin, tuple(self.room.own.values()))

    def reset(self, mark: Mark) -> None:
        """Go back to a mark, when the transaction since did not happen."""
        self._chain.head, self.seats.rules, self.seats.origin = mark.head, mark.rules, mark.origin
        self._version = None
        self.room.reset(mark.waiters)
        self._end_written = (-1, "")
        self._backlog.forget()
        self.balances.begin()
        self.allowances.begin()
        self.tasks.forget()
        self.definitions.forget()
        self.pauses.forget()
        self._totals.forget()
        self._facts.clear()

    def has(self, head: Head) -> bool:
        """Say whether this writer's chain is on the books up to a head."""
        found = self.connection.execute(_HASH, (self.writer, head.seq)).fetchone()
        return head.seq == 0 or (found is not None and found[0] == head.hash)

    def probe(self) -> None:
        """Write something, to see whether writing works."""
        self.connection.execute("REPLACE INTO meta VALUES ('last_fault', ?)", (str(self.at),))

    def note_mode(self, mode: str) -> None:
        """Keep by which mode the last proxy here was configured, for commands that are given elsewhere."""
        self.connection.execute("REPLACE INTO meta VALUES ('mode', ?)", (mode,))

    def mode(self) -> str | None:
        """Give that mode; None: none has begun here yet."""
        found = self.connection.execute("SELECT value FROM meta WHERE name = 'mode'").fetchone()
        return None if found is None else str(found[0])

    def last_row(self) -> int:
        """Give the number of the last row."""
        return self.balances.past.last_row()

    def event(self, code: str, data: Mapping[str, object], task: str | None = None) -> None:
        """Write what a command, or the ledger itself, did, or what was seen of calls."""
        self.append("event", {"code": code, "task": task, "data": encode(plain(data))})

    def append(self, kind: str, row: dict[str, object]) -> bytes:
        """Write a row and give its hash."""
        self._last_at = self.at
        digest = self._chain.append(kind, self.at, row)
        self._totals.add(kind, self.at, row)
        return digest

    def terms(self, name: str) -> TaskTerms | None:
        """Give what commands said of a task; None: nobody has used or made it."""
        task = self.tasks.get(name)
        return None if task is None else task.terms

    def end_allowance(self, taken: OpenHold) -> None:
        """Say what was taken back of what a person allowed a call whose hold was just taken off."""
        if any(self.balances.taken_back.values()):
            self.room.has_changed = True  # who waits may not fit any more, whatever comes free
        given = self.allowances.take(taken.call)
        if given is not None:
            nano = self.balances.taken_back.get(given.account, 0)
            self.event(ENDED, {"account": given.account, "call": taken.call, "by_nano": nano}, taken.task)

    def define(self, rules: Rules, origin: str | None = None) -> None:
        """Put a configuration's budgets and breaker in force, when they are others than before."""
        if origin is not None:
            self.seats.origin = origin
        if rules is not self.seats.rules:
            self.pauses.define(rules.breaker, CONFIG, {"origin": self.seats.origin} if self.seats.origin else {})
        changes = self.seats.define(rules, self.at)
        self.follow(changes)
        self.room.has_changed = self.room.has_changed or bool(changes)

    def follow(self, changes: Sequence[Change]) -> None:
        """Let accounts follow changed definitions: alert steps are re-armed, time that was missed is counted."""
        for change in changes:
            before, after = change.before, change.after
            if before is None or after is None or after.own:
                continue
            if (before.budget.limit, before.budget.limit_tokens) != (after.limit, after.limit_tokens):
                self.balances.forget_all_raises(after)  # a limit that is set anew is the limit
            self.balances.rearm_all(after)
            turned = (before.budget.window, before.budget.scope) != (after.window, after.scope)
            for seat in self.balances.in_force_accounts(after):
                if change.is_back or turned or not before.budget.lists(seat.subject):
                    self.balances.catch_up(seat)

    def stop_task(self, task: str, *, user: str | None, who: str, data: Mapping[str, object] | None = None) -> bool:
        """Let a task's calls pause until a person lets them go on; False: they do already. See PauseBook."""
        self.room.has_changed = True
        return self.pauses.stop_task(task, user=user, who=who, data=data)

    def resume_task(self, task: str, *, who: str, user: str | None = None) -> bool:
        """Let a stopped task's calls go on; False: none was stopped. See PauseBook."""
        self.room.has_changed = True
        return self.pauses.resume_task(task, who=who, user=user)

    def conflict(self, rules: Rules, origin: str, others: Sequence[str]) -> str | None:
        """Say where running writers of another origin have other budgets in force; None: nowhere."""
        marks = ", ".join("?" * len(others))
        sql = f"SELECT DISTINCT origin FROM writers WHERE id IN ({marks}) AND origin NOT IN ('', ?)"
        found = self.connection.execute(sql, (*others, origin)).fetchone() if origin else None
        words = (self.definitions.conflict(rules) or self.pauses.conflict(rules.breaker)) if found is not None else None
        return None if found is None or words is None else f"{words}; there: {found[0]}, here: {origin}"

"""The one thread of a process that writes a SQLite ledger: group commit, retries, faults, answers.

It takes every operation that waits, runs them in order in one transaction, commits once, then answers each. There is
no timer: a call alone pays one commit, thirty at once share it. Knows transactions; knows no tables.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

from lockpin_core.clock import Clock, micros
from lockpin_core.errors import LedgerError, LedgerUnavailable
from lockpin_core.ledger import leftovers
from lockpin_core.ledger.away import Away
from lockpin_core.ledger.books import Books
from lockpin_core.ledger.coalesce import Coalescer
from lockpin_core.ledger.drive import Drive, InThread
from lockpin_core.ledger.frame import Mark
from lockpin_core.ledger.gather import Gatherer, Soon
from lockpin_core.ledger.liveness import Liveness
from lockpin_core.ledger.lobby import Lobby
from lockpin_core.ledger.operations import Operation, blames_database, cancelling, is_wanted, reason, refusals, tell
from lockpin_core.ledger.place import Watch
from lockpin_core.ledger.protocol import Fault

UNAVAILABLE = "ledger_unavailable"  # the fault's code
RETRY_S = 0.25
KEPT_MAX = 10_000  # rows that only tell, and holds under no limit, that wait for a write to work again
QUEUE_MAX = 20_000  # operations that wait for the thread; past that a hold is refused at once
ROUND_S = 5.0  # how often dead writers and deferred holds are looked for
WAITING_ROUND_S = 1.0  # the same while calls wait, maybe behind a dead writer's
POLL_S = 0.025  # how often it is looked, while calls wait, whether other processes have written
MANY = 100  # operations that are not run under a fault before a smaller write has worked
STOP_TRIES = 8  # then the open holds stay, for others to settle
_SECOND_S = 1.0
_TOO_MUCH = "the ledger cannot be written, and too much waits for it"


type Deliver = Callable[[list[Callable[[], None]]], None]


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A commit whose outcome is unknown: what the books would be after it, and what it would have answered."""

    after: Mark
    answers: list[tuple[Operation, object]]


def deliver_here(actions: list[Callable[[], None]]) -> None:
    """Answer from the writer's own thread."""
    for action in actions:
        action()


class Writer:
    """Owns the connection. `deliver` gets the answers of one commit at once and must not raise."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        books: Books,
        watch: Watch,
        *,
        clock: Clock,
        deliver: Deliver,
        fault: Fault,
        soon: Soon | None = None,
        liveness: Liveness | None = None,
        drive: Drive | None = None,
    ) -> None:
        self._connection, self._books, self._watch, self._liveness = connection, books, watch, liveness
        self._clock, self._deliver, self._fault = clock, deliver, fault
        self._queue: SimpleQueue[list[Operation] | None] = SimpleQueue()
        self._ticks = books.room.ticks
        self._gatherer = None if soon is None else Gatherer(soon, self._put, self._ticks)
        self._gate = threading.Lock()
        self._closed = False
        self.is_stopping = False
        self._kept: deque[Operation] = deque()
        self._faulted, self._fault_words = False, ""
        self._tried_s = 0.0  # when the kept ones were last tried
        self._round_s = 0.0  # when leftovers were last looked for
        self._asked: list[Operation] = []  # those who wait for the next round
        self._lost = 0
        self._doubt: _Doubt | None = None
        self._coalescer, self._lobby = Coalescer(), Lobby()
        self._away = Away(connection, books, watch, clock)
        self._drive = InThread() if drive is None else drive
        self._drive.start(self)

    def submit(self, operation: Operation, *, at_once: bool = False) -> None:
        """Queue an operation; its future is answered after the commit. `at_once`: no loop is there yet to gather."""
        if not operation.kept and self._queue.qsize() >= QUEUE_MAX:
            tell(operation, LedgerUnavailable("too many calls wait for the ledger"))
        elif at_once or self._gatherer is None or not self._gatherer.add(operation):
            self._put([operation])

    def check_room(self) -> None:
        """Raise LedgerUnavailable where no more can wait for the ledger."""
        if len(self._kept) >= KEPT_MAX:
            raise LedgerUnavailable(_TOO_MUCH)

    def look_after(self, operation: Operation) -> None:
        """Do the round for leftovers now, then answer."""
        with self._gate:
            self._asked.append(operation)
            self._queue.put([])
        self._drive.wake()

    def _put(self, operations: list[Operation]) -> None:
        with self._gate:
            is_open = not self._closed
            if is_open:
                self._queue.put(operations)
        if is_open:
            self._drive.wake()
            return
        for operation in operations:
            tell(operation, LedgerUnavailable("the ledger is closed"))

    def stop(self) -> int:
        """Charge this writer's open holds, write what is queued, close. Blocks; a second call only waits.

        Gives how many holds and rows that were to be written later are lost.
        """
        if self._gatherer is not None:
            self._gatherer.release()
        with self._gate:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._drive.join()
        return self._lost

    def begin(self) -> None:
        """Settle what others left before anything else."""
        self._look_after()

    def step(self, patience_s: float) -> None:
        """Wait so long for operations and do all that wait in one transaction, then what time alone makes due."""
        batch = self._take(patience_s)
        if batch or self._faulted or self._is_somebodys_turn():
            self._commit([operation for operation in batch if is_wanted(operation)])
        round_s = WAITING_ROUND_S if self._books.room.own else ROUND_S
        if self._asked or self._ticks() - self._round_s >= round_s:
            self._look_after()

    def _look_after(self) -> None:
        """Settle what dead writers have left open, and deferred holds whose time is over."""
        self._round_s = self._ticks()
        asked, self._asked = self._asked, []
        if self._liveness is not None:
            with contextlib.suppress(sqlite3.Error, LedgerError, LedgerUnavailable):
                self._restore_lock(self._liveness)
                self._settle_leftovers(self._liveness)
        self._send([(operation, None) for operation in asked])

    def _restore_lock(self, liveness: Liveness) -> bool:
        """Make our lock again where it was removed; others may have charged what we hold: the books are read anew."""
        if liveness.is_ours():
            return False
        liveness.restore()
        self._books.reset(self._books.mark())
        return True

    def _settle_leftovers(self, liveness: Liveness) -> None:
        with contextlib.ExitStack() as claims:
            dead = leftovers.dead_writers(self._books, liveness, claims)
            self._settle(leftovers.settling(self._books, dead, liveness))
            self._settle(leftovers.over(self._books, micros(self._clock())))  # of what was just adopted, too

    def _settle(self, steps: list[Operation]) -> None:
        if steps:
            self._commit(steps)
            if self._faulted:
                raise LedgerUnavailable("what is left open stays for the next round")

    def _take(self, patience_s: float) -> list[Operation]:
        """Wait for an operation and take all others that wait, the kept ones first."""
        taken = self._drain(patience_s)
        second = int(self._clock().timestamp())
        fresh = refusals(self._coalescer.turn(second) if taken else self._coalescer.flush())
        due = self._due_kept()
        for operation in taken:
            if operation.refused is not None:
                fresh += refusals(self._coalescer.add(operation.refused, second))
            elif self._kept and operation.kept:
                self._keep([operation])  # behind the older ones, which are not tried this time
            else:
                fresh.append(operation)
        return [*due, *fresh]

    def _drain(self, patience_s: float) -> list[Operation]:
        taken: list[Operation] = []
        with contextlib.suppress(Empty):
            operations = self._queue.get(timeout=patience_s)
            while operations is not None:
                taken += operations
                operations = self._queue.get_nowait()
            self.is_stopping = True
        return taken

    def patience_s(self) -> float:
        """Say when there is something to do at the latest, though nobody asks."""
        if self._faulted:
            return RETRY_S
        if self._kept:
            return 0
        if self._books.room.own:
            return min(max(self._books.room.deadline_s - self._ticks(), 0), POLL_S)
        return _SECOND_S if self._coalescer.is_waiting else ROUND_S

    def _is_somebodys_turn(self) -> bool:
        """Say whether somebody who waits here may go now, though nobody here has asked for anything."""
        if not self._books.room.own:
            return False
        try:
            return self._books.room.is_due(micros(self._clock())) or self._books.is_stale()
        except sqlite3.Error:
            return True  # whatever it is, the transaction will say

    def _due_kept(self) -> list[Operation]:
        """Take the kept operations out; under a fault only once in a while, holds being the probe in between."""
        now_s = self._ticks()
        if self._faulted and now_s - self._tried_s < RETRY_S * 0.9 and not self.is_stopping:
            return []
        self._tried_s = now_s
        batch = list(self._kept)
        self._kept.clear()
        return batch

    def _commit(self, batch: list[Operation], *, serves: bool = True) -> bool:
        """Run a batch in one transaction and answer it, and let go who waits and can. False: writing as such did not
        work.

        Where an operation itself fails, the batch is done again one by one, so that the others do not go down with it.
        """
        # Under a fault, see whether writing works before much is done in vain.
        if self._faulted and len(batch) > MANY and not self._commit([]):
            return self._failed(batch, None, LedgerUnavailable(self._fault_words))
        answers: list[tuple[Operation, object]] = []
        committing = False
        mark = self._books.mark()
        try:
            batch = [*self._clear_doubt(), *batch]
            mark = self._books.mark()
            self._begin(careful=len(batch) <= 1, serves=serves)
            answers = [(operation, operation.run(self._books)) for operation in batch]
            answers += self._served(answers)
            self._books.flush()
            self._check_place()
            committing = True
            self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - handed to those who wait for an answer, who must not hang
            after = self._books.mark()
            self._roll_back(mark)
            if not blames_database(error):
                return self._isolate(batch, error, serves=serves and bool(self._books.room.own))
            return self._failed(batch, _Doubt(after, answers) if committing else None, error)
        self._send(answers)
        self._set_fault("")
        return True

    def _served(self, answers: list[tuple[Operation, object]]) -> list[tuple[Operation, object]]:
        """Try who waits, and give the answers of all who waited and do not any more."""
        room = self._books.room
        if room.own:
            self._books.serve()
        found, room.answers = room.answers, []
        return self._lobby.answers_to(answers, found)

    def _check_place(self) -> None:
        """Raise LedgerUnavailable where the files are not ours any more, or others would take us for dead."""
        self._watch.check()
        if self._liveness is not None and self._restore_lock(self._liveness):
            raise LedgerUnavailable("this proxy's lock was removed; it is made again")

    def _begin(self, *, careful: bool, serves: bool) -> None:
        if self._faulted:
            self._make_room()
        self._connection.execute("BEGIN IMMEDIATE")
        self._books.begin(self._clock(), careful=careful, serves=serves)
        if self._faulted:
            self._books.probe()

    def _make_room(self) -> None:
        """Bring the log into the file: on a full disk the log itself may be what takes the room."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _isolate(self, batch: list[Operation], error: Exception, *, serves: bool) -> bool:
        """Run a batch one by one. Where writing stops to work meanwhile, the rest waits behind what it stopped at.

        `serves`: it may be the fault of one who waits, so that they are tried by themselves at the end.
        """
        if len(batch) <= 1 and not serves:
            self._send([(operation, error) for operation in batch])
            return True
        if not batch:
            self._send_away(error)
            return self._commit([])
        newer = list(self._kept)
        self._kept.clear()
        for place, operation in enumerate(batch, 1):
            if not self._commit([operation], serves=False):
                first = list(self._kept)
                self._kept.clear()
                self._failed(batch[place:], None, LedgerUnavailable(self._fault_words))
                self._kept = deque([*first, *self._kept, *newer])
                return False
        self._kept.extend(newer)
        return not serves or self._commit([])

    def _failed(self, batch: list[Operation], doubt: _Doubt | None, error: Exception) -> bool:
        """Answer the holds of a failed transaction and keep the rest, once it is known whether it happened: True."""
        happened: bool | None = False
        if doubt is not None:
            happened = self._outcome(doubt)
        if happened and doubt is not None:
            self._books.reset(doubt.after)
            self._send(doubt.answers)
            return True
        # Before its answers: whoever hears one may ask at once what is the matter.
        self._set_fault(reason(error))
        unavailable = LedgerUnavailable(reason(error))
        self._send_away(unavailable)
        kept: list[Operation] = []
        waiting = len(self._kept) + sum(operation.kept for operation in batch)
        for operation in batch:
            if operation.kept:
                kept.append(operation)
                continue
            # What is in doubt may have happened: a hold of it must not go on under another.
            found, later = self._away.answer(operation, can_go=happened is not None and waiting < KEPT_MAX)
            if later is not None:
                kept.append(later)
                waiting += 1
            self._send([(operation, unavailable if found is None else found)])
        if happened is None:
            self._doubt = doubt
        else:
            self._keep_first(kept)
        return False

    def _outcome(self, doubt: _Doubt) -> bool | None:
        try:
            return self._is_on_disk(doubt)
        except sqlite3.Error:
            return None

    def _is_on_disk(self, doubt: _Doubt) -> bool:
        return self._books.has(doubt.after.head)

    def _clear_doubt(self) -> list[Operation]:
        """Find out what became of a commit whose outcome was unknown, and give what is still to do of it, first of all.

        Raises sqlite3.Error while that can't be read.
        """
        doubt = self._doubt
        if doubt is None:
            return []
        happened = self._is_on_disk(doubt)
        self._doubt = None
        if happened:
            self._books.reset(doubt.after)
            self._books.room.own.clear()
            self._send([(operation, answer) for operation, answer in doubt.answers if operation.kept])
            # Their callers were told that nothing was held, so that must become true.
            ids = [operation.call_id for operation, _ in doubt.answers if operation.call_id is not None]
            return [cancelling(call_id) for call_id in ids]
        return [operation for operation, _ in doubt.answers if operation.kept]

    def _keep_first(self, operations: Iterable[Operation]) -> None:
        """Keep operations that are older than all others that are kept."""
        newer = list(self._kept)
        self._kept.clear()
        self._keep([*operations, *newer])

    def _keep(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            if not operation.droppable or len(self._kept) < KEPT_MAX:
                self._kept.append(operation)
            else:
                self._send([(operation, LedgerUnavailable(_TOO_MUCH))])

    def _set_fault(self, words: str) -> None:
        self._faulted = bool(words)
        if words != self._fault_words:
            self._fault_words = words
            self._fault(UNAVAILABLE if words else "", words)

    def _roll_back(self, mark: Mark) -> None:
        self._books.reset(mark)
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # SQLite has rolled back by itself then
                self._connection.execute("ROLLBACK")

    def _send(self, answers: list[tuple[Operation, object]]) -> None:
        actions: list[Callable[[], None]] = [
            partial(tell, operation, answer)
            for operation, answer in self._lobby.sort(answers)
            if operation.future is not None
        ]
        if actions:
            self._deliver(actions)

    def _send_away(self, error: Exception) -> None:
        """Tell all who wait that they need not any more; their tickets go with the next write."""
        self._books.room.own.clear()
        self._send([(operation, error) for operation in self._lobby.clear()])

    def finish(self) -> None:
        """Charge what is open and write what is kept; give up when the ledger stays out of reach."""
        self._send_away(LedgerUnavailable("the ledger is closed"))
        self._kept.extend(refusals(self._coalescer.flush()))
        self._kept.append(Operation(leftovers.stop))
        pause = threading.Event()
        for _ in range(STOP_TRIES):
            self._commit([operation for operation in self._due_kept() if is_wanted(operation)])
            if not self._faulted and not self._kept:
                return
            pause.wait(RETRY_S)

    def abandon(self) -> None:
        """Close; whoever still waits for an answer is told that there is none."""
        with self._gate:
            self._closed = True
        left = [*self._kept, *self._drain(0)]
        self._lost = sum(operation.call_id is not None or operation.droppable for operation in left)
        left += [*self._asked, *self._lobby.clear()]
        if self._doubt is not None:
            left += [operation for operation, _ in self._doubt.answers if operation.kept]
        self._send([(operation, LedgerUnavailable("the ledger is closed")) for operation in left])
        self._connection.close()
        if self._liveness is not None:
            self._liveness.leave()

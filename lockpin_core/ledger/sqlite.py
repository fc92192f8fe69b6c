"""The ledger in a SQLite file, which several processes of one machine may share."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from lockpin_core.budgets import Standing
from lockpin_core.call import Call, Ceiling, Charge, Payers, Refusal, Void
from lockpin_core.clock import Clock, NewId, monotonic_s
from lockpin_core.errors import LedgerError, LedgerUnavailable
from lockpin_core.keys import KeyRecord
from lockpin_core.ledger import marks, questionbook, upstream
from lockpin_core.ledger.attempts import barred, is_short, replace_hold
from lockpin_core.ledger.books import Books
from lockpin_core.ledger.coalesce import Refused
from lockpin_core.ledger.drive import Drive
from lockpin_core.ledger.gather import Soon
from lockpin_core.ledger.liveness import Liveness
from lockpin_core.ledger.lookup import Lookup
from lockpin_core.ledger.marks import Marks
from lockpin_core.ledger.operations import Operation, cancelling
from lockpin_core.ledger.pauses import Paused
from lockpin_core.ledger.place import Watch, open_ledger, refuse_damaged
from lockpin_core.ledger.protocol import (
    Answer,
    CallNote,
    Closed,
    Deferred,
    Fault,
    Held,
    Link,
    Resolved,
    Rules,
    Smaller,
    Wait,
)
from lockpin_core.ledger.pulse import Pulse, Ticks
from lockpin_core.ledger.questions import Asking, Question
from lockpin_core.ledger.turns import Waiter
from lockpin_core.ledger.watchers import folder_of, watching_in
from lockpin_core.ledger.writer import Deliver, Writer, deliver_here
from lockpin_core.money import Money


def _no_fault(code: str, reason: str) -> None:
    """Take no notice."""


class SqliteLedger:
    """Books in one file, written by one thread of this process.

    `durability`: "full" (on disk before the answer) or "normal" (survives the process, not the machine). `fault` is
    told "ledger_unavailable" when writing stops to work and "" when it works again; `deliver` takes the answers of one
    commit at once, for an event loop to run them in one step. Both are called from the writer's thread. With `soon`,
    which puts an action on that loop's next turn, the loop's operations are gathered and share commits. `ticks` tells
    who is awake and how long a call has waited. `drive` makes the writer work, `opening` makes its connection.
    Raises LedgerError where the path cannot be a ledger.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        new_id: NewId,
        durability: str = "full",
        fault: Fault = _no_fault,
        deliver: Deliver = deliver_here,
        soon: Soon | None = None,
        ticks: Ticks = monotonic_s,
        drive: Drive | None = None,
        opening: Callable[..., sqlite3.Connection] = open_ledger,
    ) -> None:
        connection = opening(path, durability=durability, new_id=new_id)
        try:
            refuse_damaged(connection, path)
            watch = Watch(path)
        except LedgerUnavailable as error:
            connection.close()
            raise LedgerError(str(error)) from error
        except LedgerError:
            connection.close()
            raise
        self.path, self.writer_id, self._clock = path, new_id(), clock
        self._liveness, self._lookup = Liveness(path), Lookup(path, watch, clock)
        try:
            self._liveness.join(self.writer_id)
        except LedgerError:
            connection.close()
            raise
        self._watching = partial(watching_in, folder_of(path), ticks)
        books = Books(connection, self.writer_id)
        books.room.ticks, books.room.pulse = ticks, Pulse(self._liveness.folder, self.writer_id, ticks)
        self._books = books  # the writer's: of them nothing but a number is read here
        self._writer = Writer(
            connection, books, watch, clock=clock, deliver=deliver, fault=fault, soon=soon, liveness=self._liveness,
            drive=drive,
        )  # fmt: skip

    def define(self, rules: Rules, origin: str = "", mode: str = "solo") -> Future[None]:
        """See Ledger."""
        answer: Future[None] = Future()
        run = partial(_define, rules=rules, origin=origin, mode=mode, liveness=self._liveness)
        self._writer.submit(Operation(run, answer, kept=False), at_once=True)
        return answer

    def hold(
        self, call: Call, rules: Rules, smaller: Smaller | None = None, wait: Wait | None = None, *,
        out_of_turn: bool = False, allowed: str | None = None,
    ) -> Future[Answer]:  # fmt: skip
        """See Ledger."""
        answer: Future[Answer] = Future()
        wait = wait if wait is not None and wait.patience > timedelta(0) else None
        run = partial(
            _hold, call=call, rules=rules, smaller=smaller, wait=wait, out_of_turn=out_of_turn, allowed=allowed
        )
        degraded = partial(_hold_without, call=call, rules=rules, clock=self._clock)
        waits = wait is not None
        operation = Operation(run, answer, kept=False, call_id=call.id, waits=waits, degraded=degraded)
        if waits:
            answer.add_done_callback(partial(self._take_back, call_id=call.id))
        self._writer.submit(operation)
        return answer

    def _take_back(self, answer: Future[Answer], call_id: str) -> None:
        if answer.cancelled():  # in whatever thread; a hold that is not begun yet is not begun then
            self._writer.submit(cancelling(call_id), at_once=True)

    def look(self, payers: Payers, provider: str, model: str | None, rules: Rules) -> Future[tuple[Standing, ...]]:
        """See Ledger."""
        answer: Future[tuple[Standing, ...]] = Future()
        run = partial(_look, payers=payers, provider=provider, model=model, rules=rules)
        self._writer.submit(Operation(run, answer, kept=False, reads=True))
        return answer

    def paused(self, payers: Payers) -> Future[Paused | None]:
        """See Ledger."""
        answer: Future[Paused | None] = Future()
        self._writer.submit(Operation(partial(_paused, payers=payers), answer, kept=False, reads=True))
        return answer

    def barred(self, payers: Payers) -> Future[Closed | Paused | None]:
        """See Ledger."""
        answer: Future[Closed | Paused | None] = Future()
        self._writer.submit(Operation(partial(barred, payers=payers), answer, kept=False, reads=True))
        return answer

    def shrink(self, call_id: str, most: Money, tokens: int) -> Future[bool]:
        """See Ledger."""
        answer: Future[bool] = Future()
        self._writer.submit(Operation(partial(_shrink, call_id=call_id, most=most, tokens=tokens), answer))
        return answer

    def settle(self, call_id: str, charge: Charge, link: Link | None = None) -> Future[Resolved]:
        """See Ledger."""
        answer: Future[Resolved] = Future()
        self._writer.submit(Operation(partial(_settle, call_id=call_id, charge=charge, link=link), answer))
        return answer

    def void(self, call_id: str, outcome: Void) -> Future[Resolved]:
        """See Ledger."""
        answer: Future[Resolved] = Future()
        self._writer.submit(Operation(partial(_void, call_id=call_id, outcome=outcome), answer))
        return answer

    def defer(
        self, call_id: str, hold_for: timedelta, link: Link | None = None, ceiling: Ceiling | None = None
    ) -> Future[None]:
        """See Ledger."""
        answer: Future[None] = Future()
        run = partial(_defer, call_id=call_id, hold_for=hold_for, link=link, ceiling=ceiling)
        self._writer.submit(Operation(run, answer))
        return answer

    def chain(self, provider: str, account: bytes, upstream_id: str) -> Future[Link | None]:
        """See Ledger."""
        answer: Future[Link | None] = Future()
        run = partial(upstream.chain, link=Link(provider, account, upstream_id))
        self._writer.submit(Operation(run, answer, kept=False, reads=True))
        return answer

    def deferred(self, provider: str, account: bytes, upstream_id: str) -> Future[Deferred | None]:
        """See Ledger."""
        answer: Future[Deferred | None] = Future()
        run = partial(upstream.deferred, link=Link(provider, account, upstream_id))
        self._writer.submit(Operation(run, answer, kept=False, reads=True))
        return answer

    def replace(
        self, call_id: str, outcome: Charge | Void, call: Call, rules: Rules, *, keep: bool
    ) -> Future[tuple[Resolved | None, Answer]]:
        """See Ledger. Where it fails nothing has happened, and the caller still has the first hold to resolve."""
        answer: Future[tuple[Resolved | None, Answer]] = Future()
        run = partial(replace_hold, call_id=call_id, outcome=outcome, call=call, rules=rules, keep=keep)
        self._writer.submit(Operation(run, answer, kept=False, call_id=call.id))
        return answer

    def ask(self, asking: Asking) -> Future[Question | None]:
        """See Ledger."""
        answer: Future[Question | None] = Future()
        run = partial(_ask, asking=asking, watching=self._watching)
        self._writer.submit(Operation(run, answer, kept=False))
        return answer

    def question(self, question_id: str) -> Future[Question | None]:
        """See Ledger. Answered in a thread of its own."""
        return self._lookup.question(question_id)

    def is_for_a_person(self, call: Call, rules: Rules) -> Future[bool]:
        """See Ledger."""
        answer: Future[bool] = Future()
        if not self._watching():
            answer.set_result(False)
            return answer
        run = partial(is_short, call=call, rules=rules)
        self._writer.submit(Operation(run, answer, kept=False, reads=True))
        return answer

    def open_loops(self, payers: Payers) -> Future[tuple[Question, ...]]:
        """See Ledger. Answered in a thread of its own; at once where nobody watches, as one look into a folder says."""
        if self._watching():
            return self._lookup.open_loops(payers)
        nobody: Future[tuple[Question, ...]] = Future()
        nobody.set_result(())
        return nobody

    def key(self, digest: bytes) -> Future[KeyRecord | None]:
        """See Ledger. Answered in a thread of its own."""
        return self._lookup.ask(digest)

    def marks(self, conversation: bytes) -> Future[Marks]:
        """See Ledger."""
        answer: Future[Marks] = Future()
        run = partial(marks.read, conversation=conversation)
        self._writer.submit(Operation(run, answer, kept=False, reads=True))
        return answer

    def marked(self, name: str, since: int) -> Future[tuple[Sequence[bytes], int]]:
        """See Ledger."""
        answer: Future[tuple[Sequence[bytes], int]] = Future()
        run = partial(marks.marked, name=name, since=since)
        self._writer.submit(Operation(run, answer, kept=False, reads=True))
        return answer

    @property
    def others_wrote(self) -> int:
        """See Ledger."""
        return self._books.others_wrote

    def mark(self, conversation: bytes, changes: Marks) -> None:
        """See Ledger."""
        self._writer.submit(Operation(partial(_mark, conversation=conversation, changes=dict(changes)), droppable=True))

    def tell(self, code: str, data: Mapping[str, object], task: str | None = None) -> None:
        """See Ledger."""
        self._writer.submit(Operation(partial(_tell, code=code, data=dict(data), task=task), droppable=True))

    def profile(self, task: str) -> Future[Marks]:
        """See Ledger."""
        answer: Future[Marks] = Future()
        self._writer.submit(Operation(partial(marks.profile, task=task), answer, kept=False, reads=True))
        return answer

    def keep_profile(self, task: str, profile: Marks) -> None:
        """See Ledger."""
        self._writer.submit(Operation(partial(_keep_profile, task=task, profile=dict(profile)), droppable=True))

    def stop_task(self, payers: Payers, *, who: str, data: Mapping[str, object]) -> Future[bool]:
        """See Ledger."""
        answer: Future[bool] = Future()
        self._writer.submit(Operation(partial(_stop_task, payers=payers, who=who, data=dict(data)), answer, kept=False))
        return answer

    def cancel(self, call_id: str) -> None:
        """See Ledger."""
        self._writer.submit(cancelling(call_id))

    def refuse(self, note: CallNote, refusal: Refusal) -> None:
        """See Ledger."""
        self._writer.submit(Operation(_nothing, droppable=True, refused=Refused(note, refusal)))

    def uncapped(self, note: CallNote) -> None:
        """See Ledger."""
        self._writer.check_room()
        self._writer.submit(Operation(partial(_uncapped, note=note), droppable=True))

    def look_after(self) -> Future[None]:
        """Settle what dead writers left, and deferred holds whose time is over, now; it happens by itself every 5 s."""
        answer: Future[None] = Future()
        self._writer.look_after(Operation(_nothing, answer))
        return answer

    def stop(self) -> int:
        """See Ledger."""
        self._lookup.close()
        return self._writer.stop()


def _define(books: Books, rules: Rules, origin: str, mode: str, liveness: Liveness) -> None:
    # Twice: a dead writer's lock may be held for an instant by whoever settles what it left.
    seen = [writer for writer in liveness.others() if liveness.is_alive(writer)]
    running = [writer for writer in seen if liveness.is_alive(writer)]
    words = books.conflict(rules, origin, running)
    if words is not None:
        raise LedgerError(f"another proxy on this ledger has other budgets: {words}; stop it, or give both the same")
    theirs = books.mode()
    if running and theirs not in (None, mode):
        way = f"stop it, or start with mode: {theirs}"
        raise LedgerError(f"another proxy on this ledger runs in mode {theirs}, and this one would in {mode}; {way}")
    books.define(rules, origin)
    books.note_mode(mode)


def _hold(
    books: Books, call: Call, rules: Rules, smaller: Smaller | None, wait: Wait | None, *, out_of_turn: bool,
    allowed: str | None,
) -> Answer | Waiter:  # fmt: skip
    return books.hold(call, rules, smaller, wait, out_of_turn=out_of_turn, allowed=allowed)


def _ask(books: Books, asking: Asking, watching: Callable[[], int]) -> Question | None:
    found = questionbook.join(books, asking)
    if found is not None and found.answer is not None:
        return found  # whoever gave it need not be there any more
    if not watching():
        return None
    return found or questionbook.put(books, asking)


def _hold_without(
    books: Books, call: Call, rules: Rules, clock: Clock
) -> tuple[Held, Callable[[Books], object]] | None:
    """Let a call go that no enforced limit applies to, and write its hold later."""
    if not books.is_unlimited(call, rules):
        return None
    later = partial(_hold_unchecked, call=call, rules=rules, after_row=books.last_row())
    return Held(call, clock(), (), degraded=True), later


def _hold_unchecked(books: Books, call: Call, rules: Rules, after_row: int) -> Held:
    return books.hold_unchecked(call, rules, after_row)


def _paused(books: Books, payers: Payers) -> Paused | None:
    return books.pauses.of(payers)


def _shrink(books: Books, call_id: str, most: Money, tokens: int) -> bool:
    return books.shrink(call_id, most, tokens)


def _defer(books: Books, call_id: str, hold_for: timedelta, link: Link | None, ceiling: Ceiling | None) -> None:
    books.defer(call_id, hold_for)
    upstream.keep(books, call_id, link, ceiling)


def _look(books: Books, payers: Payers, provider: str, model: str | None, rules: Rules) -> tuple[Standing, ...]:
    return books.look(payers, provider, model, rules)


def _settle(books: Books, call_id: str, charge: Charge, link: Link | None) -> Resolved:
    resolved = books.settle(call_id, charge)
    upstream.keep(books, call_id, link)
    return resolved


def _void(books: Books, call_id: str, outcome: Void) -> Resolved:
    return books.void(call_id, outcome)


def _uncapped(books: Books, note: CallNote) -> None:
    books.uncapped(note)


def _mark(books: Books, conversation: bytes, changes: Marks) -> None:
    marks.change(books, conversation, changes)


def _tell(books: Books, code: str, data: Mapping[str, object], task: str | None) -> None:
    books.event(code, data, task)


def _keep_profile(books: Books, task: str, profile: Marks) -> None:
    marks.keep_profile(books, task, profile)


def _stop_task(books: Books, payers: Payers, who: str, data: Mapping[str, object]) -> bool:
    return books.stop_task(payers.task, user=payers.user, who=who, data=data)


def _nothing(books: Books) -> Any:
    raise AssertionError("a refusal is written by the coalescer's operation")

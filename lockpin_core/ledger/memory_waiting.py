"""The waiting room of a ledger in memory: the same rules of whose turn it is, with one process and a clock to set."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType

from lockpin_core.ledger.protocol import Answer
from lockpin_core.ledger.turns import Amounts, Waiter, protected, set_aside


class Turn:
    """The lock around a step, at whose end those who wait are tried."""

    def __init__(self, at_end: Callable[[], None]) -> None:
        self._lock, self._depth, self._at_end = threading.RLock(), 0, at_end

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._depth == 1 and error is None:
                self._at_end()
        finally:
            self._depth -= 1
            self._lock.release()


@dataclass(slots=True)
class _Place:
    waiter: Waiter
    future: Future[Answer]


class MemoryRoom:
    """Who waits, in the order of tickets. A cancelled future is a place given up."""

    def __init__(self) -> None:
        self.has_changed = False  # something happened since they were tried, so that they may stand otherwise
        self._is_shut = False
        self._wake_at = 0  # when time alone may let one of them go
        self._places: dict[str, _Place] = {}

    def next_number(self) -> int:
        """Give the number of the next ticket."""
        return 1 + max((place.waiter.ticket.number for place in self._places.values()), default=0)

    def enter(self, waiter: Waiter) -> Future[Answer]:
        """Let a call wait, or go on to wait on more accounts; give the future of its answer."""
        place = self._places.setdefault(waiter.call.id, _Place(waiter, Future()))
        place.waiter, self.has_changed = waiter, True
        return place.future

    def future_of(self, call_id: str) -> Future[Answer] | None:
        """Give the future of a call that waits; None: it does not."""
        place = self._places.get(call_id)
        return None if place is None else place.future

    def ahead_of_newcomers(self, at: int) -> Amounts:
        """Give what the protected ones need."""
        self._drop_cancelled()
        return protected((place.waiter.ticket for place in self._places.values()), at)

    def leave(self, call_id: str) -> None:
        """Give up a place."""
        place = self._places.pop(call_id, None)
        if place is not None:
            self.has_changed = True
            place.future.cancel()

    @contextlib.contextmanager
    def shut(self) -> Iterator[None]:
        """Let nobody go while a block runs."""
        self._is_shut = True
        try:
            yield
        finally:
            self._is_shut = False

    def is_due(self, at: int, ticks_s: float) -> bool:
        """Say whether those who wait are to be tried. `ticks_s`: of the clock that never steps."""
        if self._is_shut:
            return False
        self._drop_cancelled()
        is_over = any(ticks_s >= place.waiter.deadline_s for place in self._places.values())
        return bool(self._places) and (self.has_changed or is_over or at >= self._wake_at)

    def serve(
        self, at: int, attempt: Callable[[Waiter, Amounts], Answer | Waiter], ends: Callable[[], Iterable[int]]
    ) -> list[str]:  # fmt: skip
        """Try everybody in turn; who is given an answer goes. Give the calls that were given up at that very moment.

        `ends`: when accounts stand otherwise by time alone.
        """
        given_up: list[str] = []
        self.has_changed = False
        ahead: dict[str, tuple[int, int]] = {}
        for call_id, place in list(self._places.items()):
            found = attempt(place.waiter, ahead)
            if isinstance(found, Waiter):
                place.waiter = found
                if found.ticket.is_protected(at):
                    set_aside(found.ticket, ahead, found.ticket.short)
            elif not self.answer(call_id, found):
                given_up.append(call_id)
        tickets = (place.waiter.ticket.next_at(at) for place in self._places.values())
        self._wake_at = min((end for end in (*tickets, *ends()) if end > at), default=at)
        return given_up

    def answer(self, call_id: str, answer: Answer) -> bool:
        """Let a call go, with an answer; False: its place was given up meanwhile."""
        self.has_changed, future = True, self._places.pop(call_id).future
        if not future.set_running_or_notify_cancel():
            return False
        future.set_result(answer)
        return True

    def send_away(self, error: Exception) -> None:
        """Tell everybody that they need not wait any more."""
        self._drop_cancelled()
        places, self._places = self._places, {}
        for place in places.values():
            if place.future.set_running_or_notify_cancel():
                place.future.set_exception(error)

    def _drop_cancelled(self) -> None:
        left = {call: place for call, place in self._places.items() if not place.future.cancelled()}
        self.has_changed = self.has_changed or len(left) < len(self._places)
        self._places = left


def done[T](answer: T) -> Future[T]:
    """Give an answer that is there already."""
    future: Future[T] = Future()
    future.set_result(answer)
    return future


def failed[T](error: Exception) -> Future[T]:
    """Give an error that is there already."""
    future: Future[T] = Future()
    future.set_exception(error)
    return future

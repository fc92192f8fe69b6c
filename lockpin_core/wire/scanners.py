"""How every wire reads a stream of events: feed what comes, and say at any moment what is known. Never raises."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Protocol

from lockpin_core.call import Reading
from lockpin_core.wire.sse import Event, SseReader


class Answer(Protocol):
    """What is known of a reply so far."""

    def reading(self) -> Reading:
        """Say what is known now."""
        ...


class EventsScanner[A: Answer]:
    """Reads a reply that is a stream of events; `take` puts one event into the answer. `bare`: see SseReader."""

    __slots__ = ("_answer", "_sse", "_take")

    def __init__(self, answer: A, take: Callable[[A, Event], None], *, bare: bool = False) -> None:
        self._answer, self._take, self._sse = answer, take, SseReader(bare=bare)

    def feed(self, chunk: bytes) -> None:
        """Take bytes of the stream."""
        for event in self._sse.feed(chunk):
            self._take(self._answer, event)

    def result(self) -> Reading:
        """Say what is known now; an unfinished event counts if it can be read."""
        pending = self._sse.pending()
        if pending is None:
            return self._answer.reading()
        answer = copy.deepcopy(self._answer)
        self._take(answer, pending)
        return answer.reading()

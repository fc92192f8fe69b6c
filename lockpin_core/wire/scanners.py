"""How every wire reads a reply: feed what comes, and say at any moment what is known. Never raises.

A reply is one JSON body or a stream of events; what stands in them is each format's own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Protocol

from lockpin_core.call import Parsed, Reading
from lockpin_core.wire.replies import WholeBody
from lockpin_core.wire.sse import Event, SseReader


class BodyScanner:
    """Reads a reply that is one JSON body; `read` says what an object states, to the request where that is known."""

    __slots__ = ("_asked", "_body", "_read")

    def __init__(self, asked: Parsed | None, read: Callable[[dict[str, Any], Parsed | None], Reading]) -> None:
        self._asked, self._read, self._body = asked, read, WholeBody(asked)

    def feed(self, chunk: bytes) -> None:
        """Take bytes of the body."""
        self._body.feed(chunk)

    def result(self) -> Reading:
        """Read the body as far as it came; half of one cannot be read."""
        found = self._body.read()
        return Reading(readable=False) if found is None else self._read(found, self._asked)


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

    def so_far(self) -> Reading:
        """See StreamScanner."""
        return self._answer.reading()

    def result(self) -> Reading:
        """Say what is known now; an unfinished event counts if it can be read."""
        pending = self._sse.pending()
        if pending is None:
            return self._answer.reading()
        answer = copy.deepcopy(self._answer)
        self._take(answer, pending)
        return answer.reading()

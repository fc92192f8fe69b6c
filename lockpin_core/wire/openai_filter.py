"""Takes the usage chunk that Lockpin asked for out of a Chat Completions stream. Knows no prices."""

from __future__ import annotations

import re

from lockpin_core.wire.replies import read_object
from lockpin_core.wire.sse import MAX_EVENT_BYTES, SseReader

# A blank line after a line: the end of an event, in any of the three line ends.
_END = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
_LONGEST_END = 4  # bytes of a blank line
_FINISHED = re.compile(rb'"finish_reason"\s*:\s*"')


class ChatUsageFilter:
    """Passes every byte but those of the usage event.

    Nothing is kept back before a choice has finished, so no chunk of the answer waits. From then on an unfinished event
    is kept until its end tells what it is; an event whose beginning has passed already passes whole.
    """

    __slots__ = ("_event", "_finished", "_passed")

    def __init__(self) -> None:
        self._event = b""  # the unfinished event
        self._passed = 0  # how many of its bytes the client has
        self._finished = False

    def feed(self, chunk: bytes) -> bytes:
        """Give what the client gets of this chunk."""
        given, text, start = [], self._event + chunk, 0
        passed = self._passed
        for end in _ends(text, len(self._event)):
            event = text[start:end]
            self._finished = self._finished or _FINISHED.search(event) is not None
            if passed or not _is_usage(event):
                given.append(event[passed:])
            start, passed = end, 0
        rest = text[start:]
        if not self._finished or passed or len(rest) > MAX_EVENT_BYTES:
            given.append(rest[passed:])
            passed = len(rest)
        if passed > MAX_EVENT_BYTES:  # it passes whole: only its end is still looked for
            self._finished = self._finished or _FINISHED.search(rest) is not None
            rest = rest[-_LONGEST_END:]
            passed = len(rest)
        self._event, self._passed = rest, passed
        return b"".join(given)

    def close(self) -> bytes:
        """Give what was kept back, unless it is the usage event without its blank line."""
        kept = self._event[self._passed :]
        is_usage = not self._passed and _is_usage(self._event)
        self._event, self._passed = b"", 0
        return b"" if is_usage else kept


def _ends(text: bytes, known: int) -> list[int]:
    """Find where events end; the first `known` bytes are an unfinished event that was searched before."""
    since = max(0, known - 3)
    if b"\r" not in text:
        ends, at = [], text.find(b"\n\n", since)
        while at >= 0:
            ends.append(at + 2)
            at = text.find(b"\n\n", at + 2)
        return ends
    ends = [match.end() for match in _END.finditer(text, since)]
    if ends and text.endswith(b"\r") and ends[-1] == len(text):
        ends.pop()  # a line feed may follow, which belongs to this line end
    return ends


def _is_usage(event: bytes) -> bool:
    if b'"usage"' not in event:
        return False
    reader = SseReader()
    parsed = [*reader.feed(event)]
    last = reader.pending()
    for one in [*parsed, last] if last else parsed:
        found = read_object(one.data)
        if found is not None and found.get("choices") == [] and isinstance(found.get("usage"), dict):
            return True
    return False

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
        self._event = bytearray()  # the unfinished event; it grows in place, whatever the number of its chunks
        self._passed = 0  # how many of its bytes the client has
        self._finished = False

    def feed(self, chunk: bytes) -> bytes:
        """Give what the client gets of this chunk."""
        known = len(self._event)
        self._event += chunk
        given = self._whole_events(_ends(self._event, known))
        rest = self._event
        if not self._finished or self._passed or len(rest) > MAX_EVENT_BYTES:
            given.append(bytes(rest[self._passed :]))
            self._passed = len(rest)
        if self._passed > MAX_EVENT_BYTES:  # it passes whole: only its end is still looked for
            self._finished = self._finished or _FINISHED.search(rest) is not None
            del rest[:-_LONGEST_END]
            self._passed = len(rest)
        return b"".join(given)

    def _whole_events(self, ends: list[int]) -> list[bytes]:
        """Take the events out that end here, and give what the client gets of them."""
        if not ends:
            return []
        given, text, start = [], bytes(self._event), 0
        for end in ends:
            event = text[start:end]
            self._finished = self._finished or _FINISHED.search(event) is not None
            if self._passed or not _is_usage(event):
                given.append(event[self._passed :])
            start, self._passed = end, 0
        self._event = bytearray(text[start:])
        return given

    def close(self) -> bytes:
        """Give what was kept back, unless it is the usage event without its blank line."""
        event = bytes(self._event)
        kept = event[self._passed :]
        is_usage = not self._passed and _is_usage(event)
        self._event, self._passed = bytearray(), 0
        return b"" if is_usage else kept


def _ends(text: bytearray, known: int) -> list[int]:
    """Find where events end; the first `known` bytes are an unfinished event that was searched before."""
    since = max(0, known - 3)
    if text.find(b"\r", since) < 0:
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

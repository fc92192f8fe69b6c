"""JSON objects out of chunks of bytes: of one growing array, or one after the other. Knows braces and strings only.

Some providers stream a reply as one array, pretty-printed, whose objects arrive cut anywhere.
"""

from __future__ import annotations

import re

from lockpin_core.wire.sse import LOST, MAX_EVENT_BYTES, Event

_MARK = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}"]', re.DOTALL)  # a whole string, a brace, or a string that goes on
_IN_STRING = re.compile(rb'["\\]')
_OPENING, _CLOSING = b"{}"


class ObjectReader:
    """Turns chunks into whole objects, however they are cut; of one that is too long is told that it was there."""

    __slots__ = ("_depth", "_escaped", "_in_string", "_kept", "_skipping")

    def __init__(self) -> None:
        self._kept = bytearray()  # the unfinished object
        self._depth = 0  # braces that are open
        self._in_string = self._escaped = False
        self._skipping = False  # inside an object that is too long

    def feed(self, chunk: bytes) -> list[Event]:
        """Take bytes, give the objects that they complete. What stands between objects is passed over."""
        found: list[Event] = []
        start = at = 0  # where the object begins in this chunk, and how far it was read
        while True:
            at = self._past_string(chunk, at)
            if self._depth == 0:
                start = chunk.find(b"{", at)
                if start < 0:
                    return found
                self._depth, at = 1, start + 1
            mark = None if self._in_string else _MARK.search(chunk, at)
            if mark is None:
                self._keep(chunk[start:])
                return found
            first, at = chunk[mark.start()], mark.end()
            if first == _OPENING:
                self._depth += 1
            elif first != _CLOSING:
                self._in_string = at - mark.start() == 1
            elif self._depth > 1:
                self._depth -= 1
            else:
                self._depth = 0
                found.append(self._finish(chunk[start:at]))

    def _past_string(self, chunk: bytes, at: int) -> int:
        """Go on after the string that is open, or to the chunk's end where it does not close."""
        if self._escaped and at < len(chunk):
            at, self._escaped = at + 1, False
        while self._in_string:
            mark = _IN_STRING.search(chunk, at)
            if mark is None:
                return len(chunk)
            at = mark.end()
            if mark.group() == b'"':
                self._in_string = False
            elif at < len(chunk):
                at += 1
            else:
                self._escaped = True
                return at
        return at

    def _keep(self, part: bytes) -> None:
        if not self._skipping:
            self._kept += part
            if len(self._kept) > MAX_EVENT_BYTES:
                self._kept, self._skipping = bytearray(), True

    def _finish(self, part: bytes) -> Event:
        self._keep(part)
        whole, is_lost = bytes(self._kept), self._skipping
        self._kept, self._skipping = bytearray(), False
        return LOST if is_lost else Event(b"", whole)

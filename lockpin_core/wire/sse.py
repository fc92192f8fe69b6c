"""Server-sent events from chunks of bytes. Knows lines and events; knows no JSON and no provider."""

from __future__ import annotations

from typing import NamedTuple

MAX_EVENT_BYTES = 1 << 20  # an unfinished event is kept up to here; of a longer one is told that it was there
_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event: its name (empty where it has none) and its data lines, joined."""

    name: bytes
    data: bytes
    is_lost: bool = False  # it was too long and is not here


LOST = Event(b"", b"", is_lost=True)


class SseReader:
    """Turns chunks into complete events, however they are cut. Lines end in LF, CRLF or CR."""

    __slots__ = ("_after_cr", "_bare", "_buffer", "_first", "_skipping")

    def __init__(self, *, bare: bool = False) -> None:
        self._bare = bare  # a block that is a plain JSON object is an event too: some send errors so
        self._buffer = bytearray()  # the unfinished event, line ends already LF
        self._after_cr = False  # the last chunk ended in CR: an LF now is the rest of that line end
        self._skipping = False  # inside an event that is too long
        self._first = True

    def feed(self, chunk: bytes) -> list[Event]:
        """Take bytes, give the events that they complete."""
        if self._after_cr or b"\r" in chunk:
            chunk = self._with_lf(chunk)
        buffer = self._buffer
        searched = max(0, len(buffer) - 1)
        buffer += chunk
        if buffer.find(b"\n\n", searched) < 0:
            self._bound()
            return []
        *blocks, rest = bytes(buffer).split(b"\n\n")
        self._buffer = bytearray(rest)
        self._bound()
        return [event for block in blocks if (event := self._event(block)) is not None]

    def pending(self) -> Event | None:
        """Give the unfinished event as if the stream ended here; it stays unfinished."""
        if self._skipping:
            return LOST
        if not self._buffer:
            return None
        block = bytes(self._buffer)
        return self._parsed(block.removeprefix(_BOM) if self._first else block)

    def _with_lf(self, chunk: bytes) -> bytes:
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        if chunk.endswith(b"\r"):
            self._after_cr = True
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _bound(self) -> None:
        # One byte more: it may be the line end of an event that is just short enough.
        if len(self._buffer) > MAX_EVENT_BYTES + 1 or (self._skipping and len(self._buffer) > 1):
            del self._buffer[:-1]  # the last byte may be the first half of the blank line
            self._skipping = True

    def _event(self, block: bytes) -> Event | None:
        if self._skipping or len(block) > MAX_EVENT_BYTES:
            self._skipping = self._first = False
            return LOST
        if self._first:
            self._first = False
            block = block.removeprefix(_BOM)
        return self._parsed(block)

    def _parsed(self, block: bytes) -> Event | None:
        event = parse_event(block)
        is_bare = event is None and self._bare and block.lstrip().startswith(b"{")
        return Event(b"", block) if is_bare else event


def parse_event(block: bytes) -> Event | None:
    """Read the lines of one event, which end in LF; None where it has no data line, such as a comment."""
    if block.startswith(b"data: ") and b"\n" not in block:
        return Event(b"", block[6:])  # most events of a stream
    name, data = b"", []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return Event(name, b"\n".join(data)) if data else None

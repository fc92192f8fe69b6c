"""Frames of an AWS event stream from chunks of bytes. Knows lengths, checksums and headers; knows no JSON.

A frame is two lengths (of the whole and of its headers, four bytes each), the CRC of these eight bytes, the headers,
the payload, and the CRC of all before it. A header is the length of its name (one byte), the name, a type (one byte)
and a value of that type.
Source: the event stream encoding in Amazon's guides and the readers of its SDKs, read 2026-11.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from lockpin_core.call import Reading
from lockpin_core.wire.scanners import Answer

EVENT_STREAM = "application/vnd.amazon.eventstream"
MAX_FRAME_BYTES = 1 << 20  # a frame is kept up to here; of a longer one is told that it was there
_LONGEST_HEADERS, _LONGEST_PAYLOAD = 128 << 10, 24 << 20  # what Amazon's own readers take
_PRELUDE, _CRC = 12, 4
_BYTES, _TEXT = 6, 7
_FIXED = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}  # type → bytes of its value


class Frame(NamedTuple):
    """One frame: its headers that are texts, and its payload."""

    headers: Mapping[str, str]
    payload: bytes
    is_lost: bool = False  # it was too long and is not here

    @property
    def kind(self) -> str:
        """Give the type of the event, or of the exception or error that it is."""
        told = (self.headers.get(name) for name in (":event-type", ":exception-type", ":error-code"))
        return next((word for word in told if word), "")

    @property
    def is_fault(self) -> bool:
        """Say whether it is no event but an exception or an error."""
        return self.headers.get(":message-type", "event") != "event"


LOST = Frame({}, b"", is_lost=True)


class FrameReader:
    """Turns chunks into whole frames, however they are cut; after one that is not as it was sent it reads nothing."""

    __slots__ = ("_buffer", "_crc", "_left", "is_broken")

    def __init__(self) -> None:
        self.is_broken = False
        self._buffer = bytearray()  # the unfinished frame; of one that is too long, what has no checksum yet
        self._left = 0  # bytes that are to come of a frame that is too long; 0: there is none
        self._crc = 0  # of what has come of it

    def feed(self, chunk: bytes) -> list[Frame]:
        """Take bytes, give the frames that they complete."""
        frames: list[Frame] = []
        if not self.is_broken:
            self._buffer += chunk
            while (frame := self._next()) is not None:
                frames.append(frame)
        return frames

    def _next(self) -> Frame | None:
        """Take a frame off the buffer; None: there is no whole one."""
        if self._left:
            return self._skip()
        if len(self._buffer) < _PRELUDE:
            return None
        total, headers_size = (int.from_bytes(self._buffer[at : at + 4]) for at in (0, 4))
        payload_size = total - headers_size - _PRELUDE - _CRC
        is_sane = headers_size <= _LONGEST_HEADERS and 0 <= payload_size <= _LONGEST_PAYLOAD
        if not is_sane or zlib.crc32(self._buffer[:8]) != int.from_bytes(self._buffer[8:_PRELUDE]):
            return self._break()
        if total > MAX_FRAME_BYTES:
            self._left, self._crc = total, 0
            return self._skip()
        return self._whole(total, headers_size) if len(self._buffer) >= total else None

    def _whole(self, total: int, headers_size: int) -> Frame | None:
        raw = bytes(self._buffer[:total])
        del self._buffer[:total]
        headers = _headers(raw[_PRELUDE : _PRELUDE + headers_size])
        if headers is None or zlib.crc32(raw[:-_CRC]) != int.from_bytes(raw[-_CRC:]):
            return self._break()
        return Frame(headers, raw[_PRELUDE + headers_size : -_CRC])

    def _skip(self) -> Frame | None:
        """Drop what is here of a frame that is too long; its checksum counts all the same."""
        passed = min(len(self._buffer), self._left - _CRC)
        self._crc = zlib.crc32(self._buffer[:passed], self._crc)
        del self._buffer[:passed]
        self._left -= passed
        if self._left > _CRC or len(self._buffer) < _CRC:
            return None
        stated = int.from_bytes(self._buffer[:_CRC])
        del self._buffer[:_CRC]
        self._left = 0
        return LOST if stated == self._crc else self._break()

    def _break(self) -> Frame | None:
        """Read no more: where the next frame begins cannot be told."""
        self.is_broken, self._buffer = True, bytearray()
        return None


def _headers(raw: bytes) -> dict[str, str] | None:
    """Read the headers that are texts; None where they are not as they should be."""
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(raw):
            start = at + 1 + raw[at]
            name, kind, at = raw[at + 1 : start], raw[start], start + 1
            if kind in (_BYTES, _TEXT):
                size, at = int.from_bytes(raw[at : at + 2]), at + 2
            else:
                size = _FIXED[kind]
            if kind == _TEXT:
                found[name.decode("utf-8", "replace")] = raw[at : at + size].decode("utf-8", "replace")
            at += size
    except (IndexError, KeyError):
        return None
    return found if at == len(raw) else None


class FramesScanner[A: Answer]:
    """Reads a reply that is an AWS event stream; `take` puts one frame into the answer.

    Where a frame came otherwise than it was sent, nothing is known of the usage: also of what had come before it, for
    nobody knows how long that was so.
    """

    __slots__ = ("_answer", "_reader", "_take")

    def __init__(self, answer: A, take: Callable[[A, Frame], None]) -> None:
        self._answer, self._take, self._reader = answer, take, FrameReader()

    def feed(self, chunk: bytes) -> None:
        """Take bytes of the stream."""
        for frame in self._reader.feed(chunk):
            self._take(self._answer, frame)

    def so_far(self) -> Reading:
        """See StreamScanner."""
        return self.result()

    def result(self) -> Reading:
        """Say what is known now; an unfinished frame says nothing, for its checksum is its end."""
        return Reading(readable=False) if self._reader.is_broken else self._answer.reading()

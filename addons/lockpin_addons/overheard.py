"""A free reply that passes, read beside the loop: it may state what an earlier call used, and nobody waits for that.

A list of results is of any length, and a few of its packed bytes may be very many lines. So the reply passes as it
comes; a thread decodes and reads it a little at a time, and others have the thread in between.
"""

from __future__ import annotations

import asyncio
from collections import deque

from lockpin_addons.decode import ReplyDecoder
from lockpin_core.aside import LARGE_BYTES, Steps, in_turns
from lockpin_core.call import Reading
from lockpin_core.wire.protocol import Scanner

PIECE_BYTES = 4 * 1024  # how much is decoded at once: it may unpack to a thousand times as much
STEP_BYTES = 64 * 1024  # how much of that is read at once
MAX_UNREAD_BYTES = 128 << 20  # of a reply that comes faster than it is read
MAX_KEPT_BYTES = 16 << 20  # decoded, where the scanner may keep all of it


class Overheard:
    """What is read of one reply."""

    __slots__ = ("_decoder", "_is_list", "_is_lost", "_kept_bytes", "_reading", "_scanner", "_unread", "_unread_bytes")

    def __init__(self, scanner: Scanner, decoder: ReplyDecoder) -> None:
        self._scanner, self._decoder = scanner, decoder
        self._is_list = bool(getattr(scanner, "reads_any_length", False))
        self._unread: deque[bytes] = deque()
        self._unread_bytes, self._kept_bytes = _Tally(), 0
        self._reading: asyncio.Task[None] | None = None
        self._is_lost = False  # not all of it is read, so nothing is known of it

    def take(self, data: bytes) -> None:
        """Take bytes as they pass, and give back at once. Where too many wait to be read, it is read no further."""
        self._unread_bytes.came += len(data)
        self._is_lost = self._is_lost or self._unread_bytes.left > MAX_UNREAD_BYTES
        if self._is_lost:
            return
        self._unread.append(data)
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read())

    @property
    def is_lost(self) -> bool:
        """Say whether it came faster than it could be read, or was more than may be kept."""
        return self._is_lost

    async def reading(self) -> Reading | None:
        """Give what the reply states, once all that came of it is read; None: some of it could not be."""
        if self._reading is not None:
            await self._reading
        found = await in_turns(LARGE_BYTES, self._last())
        return None if self._is_lost or self._decoder.broken else found

    async def _read(self) -> None:
        while self._unread and not self._is_lost:
            await in_turns(LARGE_BYTES, self._steps())
        self._unread.clear()

    def _steps(self) -> Steps[None]:
        while self._unread and not self._is_lost:
            data = self._unread.popleft()
            for start in range(0, len(data), PIECE_BYTES):
                yield from self._piece(data[start : start + PIECE_BYTES])
            self._unread_bytes.went += len(data)

    def _piece(self, data: bytes) -> Steps[None]:
        decoded = self._decoder.feed(data)
        self._kept_bytes += len(decoded)
        self._is_lost = self._is_lost or (not self._is_list and self._kept_bytes > MAX_KEPT_BYTES)
        for start in range(0, len(decoded), STEP_BYTES):
            if not self._is_lost:
                self._scanner.feed(decoded[start : start + STEP_BYTES])
            yield STEP_BYTES

    def _last(self) -> Steps[Reading]:
        yield 0
        return self._scanner.result()


class _Tally:
    """Bytes that came, which the loop alone counts, and went, which the thread alone does."""

    __slots__ = ("came", "went")

    def __init__(self) -> None:
        self.came = self.went = 0

    @property
    def left(self) -> int:
        return self.came - self.went

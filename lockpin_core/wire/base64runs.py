"""Takes pictures and sounds out of a reply before it is read: of a long row of base64 only its beginning is left.

Nothing else of a reply is such a row, so JSON stays JSON, and an event with a picture of megabytes is a short one.
"""

from __future__ import annotations

import re

KEPT = 256  # bytes of a row; no name, count or id is longer

# Looked for only where a row begins: else each byte of a row that is a little too short would be tried anew.
_RUN = re.compile(rb"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/=_-]{%d,}+" % (KEPT + 1))
_FIRST = re.compile(rb"[A-Za-z0-9+/=_-]*+")
_LAST = re.compile(rb"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/=_-]{0,%d}+\Z" % KEPT)


class Base64Runs:
    """Shortens rows however the reply is cut."""

    __slots__ = ("_run",)

    def __init__(self) -> None:
        self._run = 0  # bytes of the row that goes on, at most KEPT

    def feed(self, chunk: bytes) -> bytes:
        """Give what is left of a chunk."""
        match = _FIRST.match(chunk)
        size = 0 if match is None else match.end()
        first = chunk[: min(size, KEPT - self._run)]
        if size == len(chunk):
            self._run = min(KEPT, self._run + size)
            return first
        rest = _RUN.sub(_beginning, chunk[size:])
        last = _LAST.search(rest, max(0, len(rest) - KEPT))
        self._run = 0 if last is None else len(last[0])
        return first + rest


def _beginning(run: re.Match[bytes]) -> bytes:
    return run[0][:KEPT]

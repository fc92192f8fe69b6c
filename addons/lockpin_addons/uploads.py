"""Which files may stream through, and how much of one passes: far more than of a call.

A free path costs nothing whatever the body is, so the decision needs none of it and the file streams through.
"""

from __future__ import annotations

from collections.abc import Mapping

MAX_MB = 512
TOO_LARGE = f"the file is larger than {MAX_MB} MB, the most that passes at once"


def can_stream(headers: Mapping[str, str]) -> bool:
    """Say whether a file can go while it comes; `headers` by lower-case name.

    How long it is, or that it comes in chunks, must stand there plainly: a server that speaks HTTP/1 would read the
    bytes of a body without a frame as its next request.
    """
    if "upgrade" in headers:
        return False
    if "transfer-encoding" in headers:
        return headers["transfer-encoding"].strip().lower() == "chunked" and "content-length" not in headers
    return _declared(headers) > 0


def passes(headers: Mapping[str, str]) -> bool:
    """Say whether a file is, as far as its headers tell, no larger than may pass."""
    return _declared(headers) <= MAX_MB << 20


def _declared(headers: Mapping[str, str]) -> int:
    length = headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdecimal() else 0

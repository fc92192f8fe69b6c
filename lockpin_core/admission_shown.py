"""What of a client's path or name a line, a row or a message may show: no secret, printable, not long. Pure."""

from __future__ import annotations

import re
from urllib.parse import unquote

from lockpin_core.secret_forms import without_secrets

SHOWN_MAX = 200  # characters of a client's text that a line or a row shows
# Where a path ends for us though its sender goes on: parameters, and queries that were written so that they are none.
_BEHIND = re.compile(r";|%3b|%3f|(?:key|token|secret)(?:=|%3d)", re.IGNORECASE)
_KEY = re.compile(r"(?:sk|rk|pk|lp|gsk|xai|AIza|ya29|eyJ|hf|r8|nvapi|pplx)[-_.A-Za-z0-9]{16,}")
_CODINGS = 3  # how often a key may be percent-encoded in a path and is still seen


def shown_path(path: str) -> str:
    """Give a path as a line and a row may show it: without what stands behind it, and without what looks like a key."""
    shown = plain = _BEHIND.split(path, maxsplit=1)[0]
    for _ in range(_CODINGS):
        if _KEY.search(plain):
            return shown_text(_KEY.sub("...", plain))
        plain = unquote(plain)
    return shown_text(shown)


def shown_text(text: str) -> str:
    """Give a client's text as it may stand in a line, a row and a quoted name: no secret, printable ASCII, not long."""
    text = without_secrets(text, "...")[:SHOWN_MAX]
    plain = "".join("?" if char < " " or char in '"\\\x7f' else char for char in text)
    return plain.encode("ascii", "backslashreplace").decode()

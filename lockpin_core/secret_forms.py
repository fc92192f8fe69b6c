"""What a secret looks like that no row, line or provider may have: a key of ours, and a signed token (JWT).

Knows forms alone, and nobody's key.
"""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from urllib.parse import unquote

PREFIX = "lp_"
NO_SECRET = "has a key's secret or a token in it; leave that out"

_TURNS = 3  # how often a text may be percent-encoded and is still looked through
_NORMALISED = 1024  # characters of a text in which look-alikes are looked for

# A whole secret wherever it stands, and one in letters of another case, which anybody could turn back.
_KEY = re.compile(rf"{PREFIX}[0-9a-z]{{52}}|(?<![0-9A-Za-z])(?i:{PREFIX}[0-9a-z]{{52}})(?![0-9A-Za-z])")
_RUN = re.compile(r"[A-Za-z0-9_.-]{40,}")  # what a token is written in, and longer than the shortest
_LEAST = 15  # characters of claims that say anything


def holds_key(text: str) -> bool:
    """Say whether a secret of ours stands in a text, also where it is percent-encoded or in look-alikes."""
    return any(PREFIX in each.lower() and _KEY.search(each) is not None for each in _readings(text))


def holds_token(text: str, is_meant: Callable[[str], bool]) -> bool:
    """Say whether such a token stands in a text, also where it is percent-encoded."""
    return any(is_meant(token) for each in _readings(text) for token in _tokens(each))


def holds_secret(text: str) -> bool:
    """Say whether a key of ours or any signed token stands in a text."""
    return holds_key(text) or holds_token(text, _is_signed)


def without_secrets(text: str, mark: str = "…") -> str:
    """Put a mark, an ellipsis, for each secret in a text."""
    plain = _RUN.sub(lambda run: mark if any(map(_is_signed, _tokens(run[0]))) else run[0], _KEY.sub(mark, text))
    return mark if holds_secret(plain) else plain


def _readings(text: str) -> Iterator[str]:
    """Give a text as it stands, in plain letters, and as whoever takes its percent-encoding off reads it."""
    for _ in range(_TURNS):
        if not text.isascii():
            text = unicodedata.normalize("NFKC", text[:_NORMALISED]) + text[_NORMALISED:]
        yield text
        if (plain := unquote(text)) == text:
            return
        text = plain


def _tokens(text: str) -> Iterator[str]:
    """Give each part of a text that may be a token: header, claims and signature between dots, whatever is around."""
    for run in _RUN.findall(text) if "ey" in text else ():
        parts = run.split(".")
        for header, claims, signature in zip(parts, parts[1:], parts[2:], strict=False):
            begin = header.find("ey")
            if begin >= 0 and len(claims) >= _LEAST and signature:
                yield f"{header[begin:]}.{claims}.{signature}"


def _is_signed(token: str) -> bool:
    """Say whether the claims of what may be a token are some: a JSON object."""
    claims = token.split(".")[1]
    try:
        return isinstance(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))), dict)
    except (ValueError, RecursionError):
        return False

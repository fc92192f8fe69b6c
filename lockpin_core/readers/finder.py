"""What people may mean by a name that is not known. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

PREFIX_MIN = 4  # characters of an id that may stand for the whole


def near(name: str, known: Iterable[str], *, n: int = 5) -> str:
    """Name what may be meant instead: the nearest known ones, else the first; "" where there are none."""
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n, 0.7)
    shown = ", ".join(close or names[:n])
    more = "" if close or len(names) <= n else f" and {len(names) - n} more"
    return f"there {'is' if len(close or names) == 1 else 'are'} {shown}{more}" if names else ""

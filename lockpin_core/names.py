"""How a task or a budget may be called: one rule for every place where somebody names one. Knows no place."""

from __future__ import annotations

import unicodedata

NAME_MAX = 128
ALLOWED = f"1 to {NAME_MAX} printable characters without a slash, and not . or .. alone"

_DOTS = (".", "..")  # in a base URL these are no names: clients take them out of the path before they send it


def canonical(text: str) -> str | None:
    """Give a name in its one form, NFC and without space around it; None: nothing may be called so."""
    if len(text) > 4 * NAME_MAX:
        return None  # a long row of marks takes long to normalise
    name = unicodedata.normalize("NFC", text).strip(" ")
    is_allowed = 1 <= len(name) <= NAME_MAX and name.isprintable() and "/" not in name and name not in _DOTS
    return name if is_allowed else None

"""What to say of a provider that nobody knows. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def no_provider(name: str, known: Iterable[str]) -> str:
    """Say that no provider is called so, and which may be meant; all of them where none is near."""
    names = list(known)
    near = difflib.get_close_matches(name.lower(), names, 1)
    return f'no provider is called "{name}"; ' + (
        f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
    )

"""Which known model names a person or a program may have meant. Knows names only."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

_LONGEST = 100  # no name is longer, and comparing takes as long as both are
_PREFIX = re.compile(
    r"^(?:(?:us|eu|jp|au|global|regional|apac)-)?(?:anthropic|openai|moonshotai|zai|amazon|meta|mistral)-"
)
_PARTS = re.compile(r"[a-z]+|\d+")


def nearest(name: str, groups: Sequence[Iterable[str]], n: int) -> list[str]:
    """List up to `n` names like this one, of the first group that has any.

    A vendor's prefix ("openai/", "models/", "us.anthropic."), case, and dots for dashes count for nothing.
    """
    wanted = _bare(name[:_LONGEST])
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted)
    parts = set(_PARTS.findall(wanted))
    for names in groups:
        best: dict[str, tuple[float, bool, int, int, str]] = {}  # one spelling of a name is enough
        for i, known in enumerate(names):
            bare = _bare(known)
            if score := _likeness(matcher, wanted, parts, bare):
                found = (-score, known.lower() not in name.lower(), len(known), i, known)
                best[bare] = min(found, best.get(bare, found))
        if best:
            return [known for *_, known in sorted(best.values())[:n]]
    return []


def _likeness(matcher: difflib.SequenceMatcher[str], wanted: str, parts: set[str], known: str) -> float:
    """Say how near two bare names are, 0 for not at all; a whole name that the other begins with is near."""
    if not wanted or not known:
        return 0
    if wanted == known:
        return 2
    begins = len(wanted) >= 3 and known.startswith(wanted)
    if not begins and parts.isdisjoint(_PARTS.findall(known)):
        return 0
    matcher.set_seq1(known)
    if not begins and (matcher.real_quick_ratio() < 0.6 or matcher.quick_ratio() < 0.6):
        return 0
    ratio = matcher.ratio()
    return ratio + 0.3 if begins else ratio if ratio >= 0.6 else 0


def _bare(name: str) -> str:
    return _PREFIX.sub("", name.lower().rstrip("/").rpartition("/")[2].replace(".", "-"))

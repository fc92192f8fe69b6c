"""Better counts than the byte bound: what a tokenizer of our own or the provider's endpoint says of a whole prompt.

They become `Content.counted`, and `bound.prompt_bound` takes the smaller. Pure; the asking is the edge's.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable

from lockpin_core.call import Content
from lockpin_core.sizing.bound import ModelFacts, bound_around

_PROVIDER_PERCENT = 2  # a provider calls its own count an estimate
_PROVIDER_TOKENS = 64
_MOST_KEPT = 4096


def counted_here(content: Content, model: ModelFacts, text_tokens: int) -> int | None:
    """Bound the whole prompt by an exact count of its texts; None where the body does not show all of it."""
    return None if content.hidden is not None else bound_around(content, model, text_tokens)


def counted_there(tokens: int) -> int:
    """Bound the whole prompt by the provider's own count, which sees what is hidden too."""
    return tokens - (-tokens * _PROVIDER_PERCENT // 100) + _PROVIDER_TOKENS


def content_key(kind: str, parts: Iterable[str | bytes]) -> bytes:
    """Digest what was counted; `kind` says by what: an encoding, or a host and a path."""
    found = hashlib.sha256(kind.encode("utf-8", "surrogatepass"))
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        found.update(b"%d:" % len(raw))
        found.update(raw)
    return found.digest()


class Counts:
    """Remembers counts by what was counted, the last used ones. For one thread."""

    __slots__ = ("_kept", "_most")

    def __init__(self, most: int = _MOST_KEPT) -> None:
        self._kept: OrderedDict[bytes, int] = OrderedDict()
        self._most = most

    def get(self, key: bytes) -> int | None:
        """Give the count that was put here; None: there is none any more."""
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def put(self, key: bytes, tokens: int) -> None:
        """Keep a count, and forget the one that was not used for the longest time."""
        self._kept[key] = tokens
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

"""How rows keep what each model of a call came to, and how sums move it from the model that was called to that one.

A charge, or usage that came late, has `shares` in its `data` where several prompts or models are in it. A correction by
a person has as many, of amounts alone: the difference is shared out as the charge was. A row without them is its own
model's whole. In `facets` the name of a model that answered for another stands behind that one's: `called␟answered`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lockpin_core.call import Share, Terms
from lockpin_core.money import Money, shared_out
from lockpin_core.usage import CACHE_READS, CACHE_WRITES, Unit, Usage, output_tokens, prompt_tokens, total_tokens

TOKEN_COLUMNS = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
MOVED = (*TOKEN_COLUMNS, "tokens")  # by sums, and the dollars
BETWEEN = "\x1f"

_MARK = '"shares"'  # what `data` has that has them: balances and amounts have no such text
_TERMS = ("tier", "speed", "geo")


def told(shares: Sequence[Share]) -> dict[str, object]:
    """Give what a row keeps of them; nothing where there are none."""
    return {"shares": [_told(share) for share in shares]} if shares else {}


def read(data: str | None) -> tuple[Share, ...]:
    """Read the shares of a charge, or of usage that came late, off a row's `data`."""
    return tuple(map(_read, raw(data)))


def raw(data: object) -> Sequence[Mapping[str, Any]]:
    """Give the shares of any row as they are written."""
    found: Sequence[Mapping[str, Any]] = ()
    if isinstance(data, str) and _MARK in data:
        found = json.loads(data)["shares"]
    return found


def differences(shares: Sequence[Share], before: int, after: int) -> dict[str, object]:
    """Share out what a correction changes of a cost, in nanodollars; nothing where there are no shares."""
    old, new = (amounts_of(shares, total) for total in (before, after))
    pairs = zip(shares, old, new, strict=True)
    kept = [{"model": share.model, "usd": now - then} for share, then, now in pairs]
    return {"shares": kept} if kept else {}


def amounts_of(shares: Sequence[Share], total: int) -> list[int]:
    """Give what the shares are of what a call costs by now; of what was charged first, just themselves."""
    return shared_out(total, [share.amount.nano for share in shares])


def called(model: str) -> str:
    """Give the model that was called, of a facet's."""
    return model.partition(BETWEEN)[0]


def token_columns(usage: Usage) -> dict[str, int]:
    """Count usage as the columns of a row do."""
    reads = sum(usage.get(unit, 0) for unit in CACHE_READS)
    writes = sum(usage.get(unit, 0) for unit in CACHE_WRITES)
    return {
        "input_tokens": prompt_tokens(usage) - reads - writes, "cache_read_tokens": reads,
        "cache_write_tokens": writes, "output_tokens": output_tokens(usage),
    }  # fmt: skip


def _told(share: Share) -> dict[str, object]:
    terms = {name: value for name in _TERMS if (value := getattr(share.terms, name)) is not None}
    counts = {name: count for name, count in token_columns(share.usage).items() if count}
    return {
        "model": share.model, "usage": dict(share.usage), "usd": share.amount.nano, "prompts": share.prompts,
        "least": share.least_prompt, "most": share.most_prompt, "tokens": total_tokens(share.usage), **counts, **terms,
    }  # fmt: skip


def _read(kept: Mapping[str, Any]) -> Share:
    usage = {Unit(unit): count for unit, count in kept["usage"].items()}
    terms = Terms(*(kept.get(name) for name in _TERMS))
    return Share(kept["model"], usage, Money(kept["usd"]), kept["prompts"], kept["least"], kept["most"], terms)

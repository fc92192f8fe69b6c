"""What a request in one of OpenAI's formats asks of the prompt cache: which of its tokens may be billed as written.

Source: OpenAI's guide to prompt caching and its SDK's request types (`prompt_cache_options`,
`prompt_cache_breakpoint`, `prompt_cache_retention`), read 2026-11. Knows no prices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from lockpin_core.usage import Unit
from lockpin_core.wire.jsonbody import plain_word, shown_name
from lockpin_core.wire.tally import Tally, Unknown, shape, unpriced

_LONG = frozenset({Unit.CACHE_WRITE_30M, Unit.CACHE_WRITE_12H})


def breakpoint_rule(value: object, tally: Tally) -> None:
    """Read a place in the prompt that is to be cached."""
    _BREAKPOINT.read(value, tally)
    tally.breakpoints += 1
    _ask_write(cast("dict[str, object]", value).get("ttl"), tally)


def options_rule(value: object, tally: Tally) -> None:
    """Read the request's options for caching."""
    _OPTIONS.read(value, tally)
    _ask_write(cast("dict[str, object]", value).get("ttl"), tally)


def written_units(members: Mapping[str, object], tally: Tally) -> frozenset[Unit]:
    """Say what prompt tokens may be billed as. Newer models write prompts to the cache without being asked."""
    options = members.get("prompt_cache_options")
    mode = options.get("mode") if type(options) is dict else None
    retention = plain_word(members.get("prompt_cache_retention"), "prompt_cache_retention")
    if retention == "24h":
        tally.prompt_units |= _LONG
    elif retention not in (None, "in_memory", "in-memory"):
        unpriced(f"prompt_cache_retention {shown_name(retention)}")
    if mode == "explicit" and not tally.breakpoints:
        return frozenset(tally.prompt_units - _LONG)
    return frozenset(tally.prompt_units | {Unit.CACHE_WRITE_30M})


def _ask_write(ttl: object, tally: Tally) -> None:
    """Note that a prompt may be written to the cache for this long."""
    match ttl:
        case None | "30m" | "in_memory" | "in-memory":
            tally.prompt_units.add(Unit.CACHE_WRITE_30M)
        case "12h" | "24h":
            tally.prompt_units |= _LONG
        case _:
            unpriced(f"a prompt cache lifetime of {shown_name(ttl)}")


_BREAKPOINT = shape("prompt_cache_breakpoint", "mode ttl", unknown=Unknown.REFUSE)
_OPTIONS = shape("prompt_cache_options", "mode ttl prewarm comparison_response_id", unknown=Unknown.REFUSE)

"""Billable units and counts of them. Counts are disjoint: a token is in one unit only."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class Unit(enum.StrEnum):
    """What a provider bills for. Token units are disjoint; fees are pieces."""

    INPUT = "input"
    CACHE_READ = "cache_read"
    CACHE_WRITE_5M = "cache_write_5m"
    CACHE_WRITE_1H = "cache_write_1h"
    CACHE_WRITE_30M = "cache_write_30m"
    CACHE_WRITE_12H = "cache_write_12h"
    CACHE_AUDIO = "cache_audio"  # sound that was read from a cache
    AUDIO_IN = "audio_in"
    IMAGE_IN = "image_in"
    OUTPUT = "output"
    AUDIO_OUT = "audio_out"
    IMAGE_OUT = "image_out"
    SECOND = "second"  # of sound that a model hears, where it bills by that and not by tokens
    CHARACTER = "character"  # of a text that a model speaks, likewise
    WEB_SEARCH = "web_search"  # a search that the provider makes
    SEARCH_PROMPT = "search_prompt"  # a prompt that was grounded in searches, however many
    MAPS = "maps"  # a query of a map
    MAPS_PROMPT = "maps_prompt"  # a prompt that was grounded in a map
    FILE_SEARCH = "file_search"
    CODE_SESSION = "code_session"  # a container that code runs in
    REQUEST = "request"


CACHE_WRITES = (Unit.CACHE_WRITE_5M, Unit.CACHE_WRITE_30M, Unit.CACHE_WRITE_1H, Unit.CACHE_WRITE_12H)
CACHE_READS = (Unit.CACHE_READ, Unit.CACHE_AUDIO)
PROMPT_UNITS = frozenset({Unit.INPUT, *CACHE_READS, *CACHE_WRITES, Unit.AUDIO_IN, Unit.IMAGE_IN})
OUTPUT_UNITS = frozenset({Unit.OUTPUT, Unit.AUDIO_OUT, Unit.IMAGE_OUT})
PIECE_UNITS = frozenset({Unit.SECOND, Unit.CHARACTER})  # what a model bills by instead of tokens; not counted as such
FEE_UNITS = frozenset(
    {
        *(Unit.WEB_SEARCH, Unit.SEARCH_PROMPT, Unit.MAPS, Unit.MAPS_PROMPT),
        *(Unit.FILE_SEARCH, Unit.CODE_SESSION, Unit.REQUEST),
    }
)

type Usage = Mapping[Unit, int]  # counts >= 0; an absent unit is 0


def prompt_tokens(usage: Usage) -> int:
    """Total the prompt: input, cache reads and writes, audio and images in."""
    return sum(count for unit, count in usage.items() if unit in PROMPT_UNITS)


def output_tokens(usage: Usage) -> int:
    """Total the output, reasoning included."""
    return sum(count for unit, count in usage.items() if unit in OUTPUT_UNITS)


def total_tokens(usage: Usage) -> int:
    """Total what a token limit counts: prompt and output."""
    return prompt_tokens(usage) + output_tokens(usage)


def add(first: Usage, second: Usage) -> dict[Unit, int]:
    """Add two usages unit by unit."""
    total = dict(first)
    for unit, count in second.items():
        total[unit] = total.get(unit, 0) + count
    return total


def nonzero(usage: Usage) -> dict[Unit, int]:
    """Leave out units that count nothing."""
    return {unit: count for unit, count in usage.items() if count}

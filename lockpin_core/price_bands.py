"""Prices of a model in words, such as "priority input above 272000", and bands that never get cheaper as prompts grow.

Two sides of an update may have bands that begin at different sizes. Knows no sources and no files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

type Flat = dict[str, str]  # a price or fact in words → its value
type _Cells = dict[str, str]  # unit → price
type _Band = tuple[int, str]  # where it begins, and its words; the base is (0, "")

WORDS = re.compile(r"(?:(?P<tier>\S+) )?(?P<unit>\S+)(?: (?P<op>above|from) (?P<tokens>\d+))?")
_BASE: _Band = (0, "")


def in_words(tier: str | None, unit: str, band: str) -> str:
    """Name a price."""
    return " ".join(filter(None, (tier, unit, band)))


def rising(found: Flat, sides: Sequence[Flat]) -> Flat:
    """Let no band be cheaper than what is below it, nor leave out what a lower one says, of whichever side either is.

    A tier without bands is billed by the standard tier's where they are dearer: where one of the sides has it so, that
    stays. A band that leaves a unit out is billed the base's price for it, not a lower band's.
    """
    laid = dict(found)
    for tier, bands in _tiers(found).items():
        if tier is not None and len(bands) > 1:
            for side in map(_tiers, sides):
                if tier in side and len(side[tier]) == 1:
                    _lay(bands, side.get(None, {}))
        base = bands.get(_BASE, {})
        reached = dict(base)
        for band in sorted(bands):
            for unit in sorted(reached.keys() | bands[band].keys()):
                reached[unit] = _dearer(reached.get(unit), bands[band].get(unit))
                if unit in bands[band] or reached[unit] != base.get(unit):
                    laid[in_words(tier, unit, band[1])] = reached[unit]
    return laid


def _tiers(flat: Flat) -> dict[str | None, dict[_Band, _Cells]]:
    tiers: dict[str | None, dict[_Band, _Cells]] = {}
    for words, price in flat.items():
        match = WORDS.fullmatch(words)
        assert match is not None, words
        band = _BASE
        if match["op"] is not None:
            band = int(match["tokens"]) + (match["op"] == "above"), f"{match['op']} {match['tokens']}"
        tiers.setdefault(match["tier"], {_BASE: {}}).setdefault(band, {})[match["unit"]] = price
    return tiers


def _lay(bands: dict[_Band, _Cells], others: dict[_Band, _Cells]) -> None:
    """Lay the bands of another tier over these."""
    for band, cells in others.items():
        if band != _BASE:
            mine = bands.setdefault(band, {})
            for unit, price in cells.items():
                mine[unit] = _dearer(mine.get(unit), price)


def _dearer(one: str | None, other: str | None) -> str:
    if one is None or other is None:
        known = one or other
        assert known is not None, "there is no price"
        return known
    return one if Decimal(one) >= Decimal(other) else other

"""What prices are relative to each other: factors, and a user's prices for a model that the shipped table knows.

Where an entry of the user names no band or tier, the shipped model's stays as a ratio to its standard base price,
rounded up. A price of zero stays zero, and a price that is not named stays unknown. Knows no names and no calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from lockpin_core.price_entry import ONE, STANDARD, Band, DatedPrice, Factor, Rates, Tier
from lockpin_core.usage import Unit


def largest(factors: Iterable[Factor]) -> Factor:
    """Give the largest factor, and never less than one."""
    most = ONE
    for factor in factors:
        if factor[0] * most[1] > most[0] * factor[1]:
            most = factor
    return most


def times(*factors: Factor) -> Factor:
    """Multiply factors."""
    num = den = 1
    for factor in factors:
        num, den = num * factor[0], den * factor[1]
    return num, den


def scaled(pico: int, factor: Factor) -> int:
    """Multiply an amount by a factor, rounded up."""
    return -(-pico * factor[0] // factor[1])


def unscaled(pico: int, factor: Factor) -> int:
    """Give the largest amount that is, scaled, at most this one."""
    return pico * factor[1] // factor[0]


def in_force(prices: tuple[DatedPrice, ...], at: datetime | None) -> DatedPrice:
    """Give the prices in force at an instant (None: before all dates); before the first date, the first."""
    begun = [price for price in prices if price.start is None or (at is not None and price.start <= at)]
    return begun[-1] if begun else prices[0]


def with_shipped(own: tuple[DatedPrice, ...], shipped: tuple[DatedPrice, ...]) -> tuple[DatedPrice, ...]:
    """Give a user's prices the bands and tiers that they do not name, by the shipped ratios of the same day."""
    starts = {block.start for block in (*own, *shipped)}
    days = [*([None] if None in starts else []), *sorted(start for start in starts if start is not None)]
    return tuple(DatedPrice(day, _tiers(in_force(own, day).tiers, in_force(shipped, day).tiers)) for day in days)


def _tiers(own: Mapping[str, Tier], shipped: Mapping[str, Tier]) -> dict[str, Tier]:
    base = shipped[STANDARD]
    named = {name: _banded(tier, shipped.get(name, base)) for name, tier in own.items()}
    return named | {name: _tier(own[STANDARD], tier, base) for name, tier in shipped.items() if name not in own}


def _tier(own: Tier, shipped: Tier, base: Tier) -> Tier:
    """Make a tier that the user does not name: as much dearer or cheaper than standard as the shipped one."""
    first, standard = shipped.bands[0].rates, base.bands[0].rates
    bands = tuple(Band(band.start, _relative(band.rates, first, standard)) for band in own.bands)
    return _banded(Tier(bands, shipped.factor), shipped)


def _banded(own: Tier, shipped: Tier) -> Tier:
    """Give a tier without bands of its own those of the shipped tier."""
    if len(own.bands) > 1:
        return own
    rates, base = own.bands[0].rates, shipped.bands[0].rates
    return Tier(tuple(Band(band.start, _relative(rates, band.rates, base)) for band in shipped.bands), own.factor)


def _relative(rates: Rates, part: Rates, whole: Rates) -> dict[Unit, int]:
    """Scale rates as `part` is to `whole`; a unit that those do not price, by their largest ratio."""
    ratios = {unit: (part[unit], pico) for unit, pico in whole.items() if pico and unit in part}
    most = largest(ratios.values())
    return {unit: scaled(pico, ratios.get(unit, most)) for unit, pico in rates.items()}

"""A model's prices as rows, and a user's prices beside the shipped ones. Pure over the price table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from lockpin_core.money import rate_exact
from lockpin_core.price_entry import ONE, STANDARD, Factor
from lockpin_core.price_factors import scaled
from lockpin_core.price_table import Model
from lockpin_core.usage import FEE_UNITS, PIECE_UNITS, Unit

RATE_UNITS = tuple(unit for unit in Unit if unit not in FEE_UNITS)

# What these cost where no price is named, in input tokens.
_USUAL = {Unit.CACHE_WRITE_30M: 1, Unit.CACHE_WRITE_12H: 2, Unit.IMAGE_IN: 1}


@dataclass(frozen=True, slots=True)
class Row:
    """The rates of a model from an instant on, at a tier, for prompts of `above` tokens or more; tier included."""

    provider: str
    model: str
    start: datetime | None
    tier: str
    above: int
    rates: Mapping[Unit, int]  # picodollars


def rows(model: Model) -> list[Row]:
    """List all prices of a model, past and scheduled ones too: standard first, then the other tiers."""
    return [
        Row(
            model.provider, model.id, dated.start, name, band.start,
            {unit: scaled(pico, tier.factor) for unit, pico in band.rates.items()},
        )
        for dated in model.prices
        for name, tier in sorted(dated.tiers.items(), key=lambda item: (item[0] != STANDARD, item[0]))
        for band in tier.bands
    ]  # fmt: skip


def units_of(found: Sequence[Row]) -> list[Unit]:
    """List the units that some row has a price of its own for, in their usual order.

    One that costs everywhere what it does where nobody has said more is left out.
    """
    return [unit for unit in RATE_UNITS if any(unit in row.rates and not _is_usual(row.rates, unit) for row in found)]


def _is_usual(rates: Mapping[Unit, int], unit: Unit) -> bool:
    return unit in _USUAL and rates[unit] == _USUAL[unit] * rates.get(Unit.INPUT, -1)


def record(row: Row) -> dict[str, object]:
    """Build the JSON object of a row: dollars per million units, as exact text."""
    return {
        "provider": row.provider or "(yours)",
        "model": row.model,
        "from": None if row.start is None else row.start.date().isoformat(),
        "tier": row.tier,
        "above_tokens": row.above,
        **{rate_key(unit): rate_exact(row.rates[unit]) if unit in row.rates else None for unit in RATE_UNITS},
    }


def rate_key(unit: Unit) -> str:
    """Give what a unit's rate is called in JSON: what is no token says so."""
    return f"{unit.value}_per_million" if unit in PIECE_UNITS else f"{unit.value}_per_mtok"


def facts(model: Model, aliases: Sequence[str], sources: Mapping[str, str]) -> dict[str, object]:
    """Give what there is to say of a model beside its rates."""
    return {
        "aliases": list(aliases),
        "context_tokens": model.context_tokens,
        "max_output_tokens": model.max_output_tokens,
        "speeds": {name: factor_text(factor) for name, factor in model.speeds.items()},
        "regions": {name: factor_text(factor) for name, factor in model.geos.items()},
        "fees": {unit.value: fee_text(pico) for unit, pico in model.fees.items()},
        "checked": None if model.checked is None else model.checked.isoformat(),
        "sources": dict(sources),
    }


def factor_text(factor: Factor) -> str:
    """Write a factor: "1.1", or "4/3" where it has no end."""
    num, den = factor
    if factor == ONE:
        return "1"
    value = Decimal(num) / den
    return f"{value.normalize():f}" if value * den == num else f"{num}/{den}"


def fee_text(pico: int) -> str:
    """Write a fee in exact dollars a piece."""
    text = f"{Decimal(pico).scaleb(-12):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True, slots=True)
class Difference:
    """A rate that a user's entry sets otherwise than the shipped table; None: it has none."""

    model: str
    of: str  # the providers whose model it is
    unit: str
    shipped: str | None
    own: str | None


def differences(own: Model, shipped: Model, now: datetime) -> list[Difference]:
    """Compare the standard prices in force now, and the fees, of a user's model and the shipped one of its name."""
    before, after = _standard(shipped, now), _standard(own, now)
    names = dict.fromkeys([*before, *after])  # those of the shipped one first
    return [
        Difference(own.id, shipped.provider, name, before.get(name), after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    ]


def gathered(found: Sequence[Difference]) -> list[Difference]:
    """Put those that are the same at several providers into one."""
    places: dict[Difference, list[str]] = {}
    for each in found:
        providers = places.setdefault(replace(each, of=""), [])
        providers += [each.of] if each.of not in providers else []
    return [replace(each, of=", ".join(providers)) for each, providers in places.items()]


def _standard(model: Model, now: datetime) -> dict[str, str]:
    fees = {unit.value: fee_text(pico) for unit, pico in model.fees.items()}
    if not model.prices:
        return fees
    rates = model.price_at(now).tiers[STANDARD].bands[0].rates
    return {unit.value: rate_exact(pico) for unit, pico in rates.items() if not _is_usual(rates, unit)} | fees

"""What a call can cost at most, and what it did cost, from a model's prices. Pure integer arithmetic, rounded up once.

In doubt the dearest that may apply: an unknown tier, speed or region costs the dearest known one. Where a model has
no dearer tier or speed that is known, one that is asked for has no price, and is not taken for the standard one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

from lockpin_core.call import Ceiling, Terms
from lockpin_core.errors import UnpricedError
from lockpin_core.money import Money, rate_exact
from lockpin_core.price_entry import ONE, STANDARD, Band, DatedPrice, Factor, Rates, Tier
from lockpin_core.price_factors import largest, scaled, times, unscaled
from lockpin_core.price_table import Model, PriceTable
from lockpin_core.usage import FEE_UNITS, PIECE_UNITS, Unit, Usage, nonzero, prompt_tokens

__all__ = [
    "BATCH",
    "Model",
    "PriceTable",
    "band_start",
    "known_rates",
    "max_output_fitting",
    "price",
    "quote",
    "rates_text",
    "regions_unsaid",
    "shipped_dir",
]

_LONGEST_CALL = timedelta(hours=1)  # a price that begins within it may be the one that is billed
_UNSAID = "unsaid"
BATCH = "batch"  # the tier of what is sent for later, as replies state it
_CHEAP_TIERS = frozenset({STANDARD, "standard_only", "default", "auto", "scale", "flex", "batch"})  # never dearer
_NO_REGION = "not_available"  # what Anthropic's replies state where no region was chosen


def shipped_dir() -> Path:
    """Give the folder of the shipped price files: beside this module in a wheel, else the checkout's `pricing`."""
    beside = Path(__file__).parent / "_pricing"
    return beside if beside.is_dir() else Path(__file__).parent.parent / "pricing"


def quote(
    model: Model,
    ceiling: Ceiling,
    terms: Terms,
    at: datetime,
    *,
    host_geo: str | None = None,
    until: datetime | None = None,
    batched: bool = False,
    regions: Iterable[str] = (),
) -> Money:
    """Bound what a call within `ceiling` can cost, as the request asks for it.

    Every prompt token at the dearest rate that it may be billed at, in every band within reach; the whole output;
    the dearest tier, speed and region that may apply; the dearest price from `at` to `until` (an hour later).
    `batched`: it is billed as part of a batch, whatever happens. `regions`: that its reply may state though the request
    names none, beside the model's own. Raises UnpricedError naming a unit, tier or speed without a price.
    """
    dated = model.prices_between(at, until or at + _LONGEST_CALL)
    if batched:
        tiers = [_batch_tier(model, price) for price in dated]
    else:
        tiers = _tiers_of(model, dated, terms)
    factor = _factor_asked(model, terms, regions, host_geo)
    most = max(_tier_most(model, tier, ceiling, factor) for tier in tiers)
    return Money.from_pico(most + _fees_asked(model, ceiling))


def price(
    model: Model,
    usage: Usage,
    terms: Terms,
    at: datetime,
    *,
    host_geo: str | None = None,
    prompt_size: int | None = None,
) -> int:
    """Price usage in picodollars, as the reply states its terms: what neither it nor the request says is standard.

    That is so for the tier too, although a quote allows for a project whose default is priority: OpenAI's replies
    state in `service_tier` which tier served them, also where the project chose it, and "default" where priority was
    not given. Source: OpenAI's guide to priority processing and `service_tier` of the completion object, read 2026-11.
    The caller sums the portions of a reply and rounds once. `prompt_size`: of each prompt, where several of one
    band are in the usage. Raises UnpricedError naming a unit, tier or speed without a price.
    """
    tokens = {unit: count for unit, count in nonzero(usage).items() if unit not in FEE_UNITS}
    fees = {unit: count for unit, count in usage.items() if unit in FEE_UNITS}
    factor = times(_speed(model, terms.speed), largest([_geo_stated(model, terms.geo), _geo(model, host_geo)]))
    size = prompt_tokens(tokens) if prompt_size is None else prompt_size
    most = 0
    for tier in _tiers_stated(model, model.price_at(at), terms.tier):
        rates = tier.band(size).rates
        total = sum(count * _rate(model, rates, unit) for unit, count in tokens.items())
        most = max(most, scaled(total, times(tier.factor, factor)))
    return most + _fees(model, fees)


def band_start(model: Model, prompt_size: int, terms: Terms, at: datetime) -> int:
    """Give the size of a prompt from which on the prices of this one hold, in every tier that may apply."""
    return max(tier.band(prompt_size).start for tier in _tiers_stated(model, model.price_at(at), terms.tier))


def max_output_fitting(
    model: Model,
    ceiling: Ceiling,
    terms: Terms,
    at: datetime,
    remaining: Money,
    *,
    host_geo: str | None = None,
    until: datetime | None = None,
    regions: Iterable[str] = (),
) -> int:
    """Find the largest output of all choices, up to the ceiling's, whose quote is within `remaining`; 0: none.

    A quote is the largest of straight lines in the output: each is solved for it. Raises as `quote` does.
    """
    most = ceiling.output
    if not most:
        return 0
    factor, left = _factor_asked(model, terms, regions, host_geo), remaining.pico - _fees_asked(model, ceiling)
    for tier in _tiers_of(model, model.prices_between(at, until or at + _LONGEST_CALL), terms):
        within = unscaled(left, times(tier.factor, factor))
        for fixed, each in _lines(model, tier, ceiling):
            if within < fixed:
                most = 0
            elif each:
                most = min(most, (within - fixed) // each)
    return most


def rates_text(
    model: Model, terms: Terms, at: datetime, *, host_geo: str | None = None, prompt_size: int = 0
) -> Mapping[str, str]:
    """Write the rates that settle a call on these terms, for receipts: dollars per million units, fees each."""
    tier = max(_tiers_stated(model, model.price_at(at), terms.tier), key=lambda tier: _weight(tier, prompt_size))
    geo = largest([_geo_stated(model, terms.geo), _geo(model, host_geo)])
    factor = times(tier.factor, _speed(model, terms.speed), geo)
    rates = {unit.value: rate_exact(scaled(pico, factor)) for unit, pico in tier.band(prompt_size).rates.items()}
    return rates | {unit.value: f"{Decimal(pico).scaleb(-12).normalize():f}" for unit, pico in model.fees.items()}


def _tiers_of(model: Model, dated: Iterable[DatedPrice], terms: Terms) -> list[Tier]:
    return [tier for price in dated for tier in _tiers_asked(model, price, terms.tier)]


def _factor_asked(model: Model, terms: Terms, regions: Iterable[str], host_geo: str | None) -> Factor:
    speed = largest([_speed(model, terms.speed)])  # a provider may fall back to the standard one, as with tiers
    return times(speed, largest([_geo_asked(model, terms.geo, regions), _geo(model, host_geo)]))


def _tier_most(model: Model, tier: Tier, ceiling: Ceiling, factor: Factor) -> int:
    most = max(fixed + ceiling.output * each for fixed, each in _lines(model, tier, ceiling))
    return scaled(most, times(tier.factor, factor))


def _lines(model: Model, tier: Tier, ceiling: Ceiling) -> list[tuple[int, int]]:
    """Give, for each band within reach, the most that all but the output costs, and the most of a token of output."""
    reach = [band for band in tier.bands if band.start <= ceiling.prompt]
    last = [band.start - 1 for band in reach[1:]] + [ceiling.prompt]  # the most prompt tokens of each band
    units = ceiling.prompt_units | {Unit.CACHE_READ}
    units |= {Unit.CACHE_AUDIO} if Unit.AUDIO_IN in units else set()
    return [_line(model, band, prompt, units, ceiling) for band, prompt in zip(reach, last, strict=True)]


def _line(model: Model, band: Band, prompt: int, units: Iterable[Unit], ceiling: Ceiling) -> tuple[int, int]:
    inward = prompt and _dearest(model, band.rates, units)
    outward = ceiling.output and _dearest(model, band.rates, ceiling.output_units)
    pieces = [(unit, count) for unit, count in ceiling.fees.items() if count and unit in PIECE_UNITS]
    return prompt * inward + sum(count * _rate(model, band.rates, unit) for unit, count in pieces), outward


def _dearest(model: Model, rates: Rates, units: Iterable[Unit]) -> int:
    return max(_rate(model, rates, unit) for unit in units)


def _rate(model: Model, rates: Rates, unit: Unit) -> int:
    if unit is Unit.CACHE_AUDIO and unit not in rates:
        unit = Unit.AUDIO_IN  # cached sound without a price of its own
    if unit not in rates:
        raise UnpricedError(f"{model.id} has no price for {unit.value}{_way_out(model, unit)}")
    return rates[unit]


def _way_out(model: Model, unit: Unit) -> str:
    """Write out what is missing in an entry of the configuration; a shipped one it would replace."""
    if not model.user:
        return ""
    entry = f"fees: {{{unit}: USD}}" if unit in FEE_UNITS else f"{unit}_{_PER.get(unit, 'per_mtok')}: USD"
    return f'; to price it, add to lockpin.yaml: pricing: {{"{model.id}": {{{entry}}}}}'


_PER = dict.fromkeys(PIECE_UNITS, "per_million")


def _fees_asked(model: Model, ceiling: Ceiling) -> int:
    return _fees(model, {unit: count for unit, count in ceiling.fees.items() if unit in FEE_UNITS})


def _fees(model: Model, fees: Mapping[Unit, int]) -> int:
    return sum(count * _rate(model, model.fees, unit) for unit, count in nonzero(fees).items())


def _tiers_asked(model: Model, dated: DatedPrice, said: str | None) -> list[Tier]:
    """List the tiers that a request's word may be billed at; a provider may always fall back to standard."""
    name = _tier_name(model, said)
    if name == _UNSAID:
        return [dated.tiers[tier] for tier in {STANDARD, *model.rules.unsaid_tiers} if tier in dated.tiers]
    if name in dated.tiers:
        return [dated.tiers[STANDARD], dated.tiers[name]]
    return _tiers_unknown(model, dated, said)


def _batch_tier(model: Model, dated: DatedPrice) -> Tier:
    if BATCH not in dated.tiers:
        raise UnpricedError(f"{model.id} has no price for batches")
    return dated.tiers[BATCH]


def _tiers_stated(model: Model, dated: DatedPrice, said: str | None) -> list[Tier]:
    name = _tier_name(model, said)
    if name == _UNSAID:
        return [dated.tiers[STANDARD]]
    return [dated.tiers[name]] if name in dated.tiers else _tiers_unknown(model, dated, said)


def _tiers_unknown(model: Model, dated: DatedPrice, said: str | None) -> list[Tier]:
    """List the tiers for a word that has no price of its own; raises UnpricedError where none of them can be it."""
    if _tier_name(model, said) in _CHEAP_TIERS:
        return [dated.tiers[STANDARD]]
    if dated.tiers.keys() <= _CHEAP_TIERS and not costs_nothing(model):
        raise UnpricedError(f"{model.id} has no price for service tier {said}")
    return list(dated.tiers.values())


def _tier_name(model: Model, said: str | None) -> str:
    if said is None:
        return _UNSAID
    word = said.lower()
    return model.rules.tier_names.get(word, word)


def _weight(tier: Tier, prompt_size: int) -> int:
    return scaled(sum(tier.band(prompt_size).rates.values()), tier.factor)


def _speed(model: Model, said: str | None) -> Factor:
    if said is None or said.lower() == STANDARD:
        return ONE
    if not model.speeds and not costs_nothing(model):
        raise UnpricedError(f"{model.id} has no price for speed {said}")
    return model.speeds.get(said.lower()) or largest(model.speeds.values())


def costs_nothing(model: Model) -> bool:
    """Say whether every token costs nothing, so that no tier, speed or region can make it dearer."""
    rates = [band.rates for dated in model.prices for tier in dated.tiers.values() for band in tier.bands]
    return not any(any(prices.values()) for prices in rates)


def _geo_asked(model: Model, said: str | None, regions: Iterable[str]) -> Factor:
    if said is not None:
        return _geo(model, said)
    return largest(_geo(model, geo) for geo in {*regions_unsaid([model]), *regions})


def regions_unsaid(models: Iterable[Model]) -> frozenset[str]:
    """Give the regions that a reply may state though the request names none: a workspace's default has a price.

    A reply of several models states one region for all of them, those too that have no price of their own for it.
    """
    return frozenset(geo for model in models for geo in model.rules.unsaid_geos if geo in model.geos)


def _geo_stated(model: Model, said: str | None) -> Factor:
    return ONE if said == _NO_REGION else _geo(model, said)


def _geo(model: Model, said: str | None) -> Factor:
    """Give a region's factor: an unknown one's is the model's dearest, or its vendor's where the model has none."""
    if said is None or said.lower() == "global":
        return ONE
    if not model.geos:
        return model.rules.dearest_geo
    return model.geos.get(said.lower()) or largest(model.geos.values())


def known_rates(model: Model, terms: Terms, at: datetime, geo: str | None) -> Mapping[str, str]:
    """Give the rates for receipts, written out once for a price and terms. What an id names is kept beside it."""
    dated = model.price_at(at)
    key = (id(model), id(dated), terms, geo)
    known = _KNOWN_RATES.get(key)
    if known is None:
        if len(_KNOWN_RATES) >= _MOST_RATES:
            _KNOWN_RATES.clear()
        known = _KNOWN_RATES[key] = (model, dated, rates_text(model, terms, at, host_geo=geo))
    return known[2]


_MOST_RATES = 512
_KNOWN_RATES: dict[tuple[int, int, Terms, str | None], tuple[Model, object, Mapping[str, str]]] = {}

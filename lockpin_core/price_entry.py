"""One model's entry in a price file or in the user's configuration: text in, picodollars out, or one clear error.

Knows the schema and how a missing cache price is filled; knows no provider and no call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import NoReturn

from lockpin_core.errors import PriceError
from lockpin_core.money import fee_pico, rate_pico
from lockpin_core.names import shown
from lockpin_core.usage import CACHE_READS, FEE_UNITS, Unit

type Factor = tuple[int, int]  # numerator, denominator
type Rates = Mapping[Unit, int]  # picodollars per unit

ONE: Factor = (1, 1)
STANDARD = "standard"
_LIFETIMES = {
    "5m": Unit.CACHE_WRITE_5M,
    "30m": Unit.CACHE_WRITE_30M,
    "1h": Unit.CACHE_WRITE_1H,
    "12h": Unit.CACHE_WRITE_12H,
}
_PLAIN = (Unit.INPUT, Unit.OUTPUT, *CACHE_READS)
_MEDIA = (Unit.AUDIO_IN, Unit.AUDIO_OUT, Unit.IMAGE_IN, Unit.IMAGE_OUT)
_PIECES = (Unit.SECOND, Unit.CHARACTER)
_UNITS = {unit.value: unit for unit in (*_PLAIN, *_MEDIA, *_PIECES, *_LIFETIMES.values())}
_RATE_KEYS = frozenset({*_UNITS, "cache_write"})
# A missing write of a long lifetime costs twice the input, every other missing cache or image price the input.
_FALLBACKS = (
    (Unit.CACHE_READ, 1),
    (Unit.CACHE_WRITE_5M, 1),
    (Unit.CACHE_WRITE_30M, 1),
    (Unit.CACHE_WRITE_1H, 2),
    (Unit.CACHE_WRITE_12H, 2),
    (Unit.IMAGE_IN, 1),
)
_APART = (Unit.AUDIO_IN, Unit.CACHE_AUDIO, Unit.AUDIO_OUT, Unit.IMAGE_OUT)  # no other price says anything of these
_TIER_KEYS = _RATE_KEYS | {"above"}
_BAND_KEYS = _RATE_KEYS | {"tokens", "op"}
_BLOCK_KEYS = _TIER_KEYS | {"from", "tiers", "note"}
_FACT_KEYS = frozenset(
    {
        *("same_as", "aliases", "context_tokens", "max_output_tokens", "tokenizer"),
        *("image_tokens", "image_rule", "images_beyond_window", "picture_rule"),
        *("geo", "speeds", "fees", "free", "checked", "sources", "differs", "note"),
    }
)
# "claude": 4/3 of the bytes after Unicode NFC, for Claude and whatever is unknown; all others are byte-level.
TOKENIZERS = ("bytes", "claude", "o200k_base", "cl100k_base")
# How an image's size becomes tokens, by kind, with the numbers that each takes; sizing knows the arithmetic.
IMAGE_RULES: Mapping[str, frozenset[str]] = {
    "anthropic": frozenset(),  # width × height / 750, the long side at most 1,568 pixels
    "anthropic_large": frozenset(),  # the same with 2,576 pixels
    "openai_tiles": frozenset({"base", "tile"}),  # a base, and as much more for each 512-pixel tile
    "openai_patches": frozenset({"multiplier", "patches"}),  # 32-pixel patches, so many at most, times a multiplier
    "gemini_tiles": frozenset({"tile"}),  # as much for each 768-pixel tile
    "gemini_resolution": frozenset(),  # by the media resolution that is asked for
    "fixed": frozenset({"tokens"}),  # the same for any image
}
# Likewise of a picture that the model draws, by its size and quality.
PICTURE_RULES: Mapping[str, frozenset[str]] = {
    "openai_grid": frozenset({"low", "medium", "high", "pixels"}),  # cells on the longer side, and the most pixels
}
_ENTRY_KEYS = _FACT_KEYS | _TIER_KEYS | {"prices", "tiers"}


@dataclass(frozen=True, slots=True)
class Band:
    """Rates of a whole request whose prompt has `start` tokens or more."""

    start: int
    rates: Rates


@dataclass(frozen=True, slots=True)
class Tier:
    """One service tier: bands in order of `start`, the first at 0, all times `factor`."""

    bands: tuple[Band, ...]
    factor: Factor = ONE

    def band(self, prompt_tokens: int) -> Band:
        """Give the band that a prompt of this size is billed in."""
        return next(band for band in reversed(self.bands) if band.start <= prompt_tokens)


@dataclass(frozen=True, slots=True)
class DatedPrice:
    """Prices from an instant on. `start` None: always."""

    start: datetime | None
    tiers: Mapping[str, Tier]  # always has "standard"


@dataclass(frozen=True, slots=True)
class ImageRule:
    """How a model's provider counts an image's tokens; `numbers` as IMAGE_RULES lists them for the kind."""

    kind: str
    numbers: Mapping[str, Decimal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """A model's entry as read; None and empty stand for what it does not say."""

    blocks: tuple[DatedPrice, ...] = ()  # by `start`
    speeds: Mapping[str, Factor] = field(default_factory=dict)
    geos: Mapping[str, Factor] = field(default_factory=dict)
    fees: Rates = field(default_factory=dict)  # picodollars a piece
    aliases: tuple[str, ...] = ()
    context_tokens: int | None = None
    max_output_tokens: int | None = None
    tokenizer: str | None = None
    image_tokens: int | None = None
    checked: date | None = None
    images_beyond_window: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)
    image_rule: ImageRule | None = None
    picture_rule: ImageRule | None = None
    same_as: str | None = None  # "provider/model", or a model of the same provider: that one's prices and facts


def read_entry(where: str, value: object) -> Entry:
    """Read an entry whose scalars are text. Raises PriceError naming `where`, the key and what is allowed.

    An entry without any price has no blocks: its model is unknown, not free. `free: true` prices every unit at 0.
    """
    tree = _mapping(where, value, _ENTRY_KEYS)
    free = _chosen(where, tree, "free", ("true", "false")) == "true"
    if free and (_TIER_KEYS | {"prices", "tiers", "fees"}) & tree.keys():
        raise PriceError(f"{where} is free and has a price; either is allowed")
    if "same_as" in tree and (_TIER_KEYS | {"prices", "tiers", "free"}) & tree.keys():
        raise PriceError(f"{where} has same_as and a price; either is allowed")
    return Entry(
        blocks=(_free_block(),) if free else _blocks(where, tree),
        speeds=_factors(f"{where}.speeds", tree.get("speeds", {})),
        geos=_factors(f"{where}.geo", tree.get("geo", {})),
        fees=dict.fromkeys(FEE_UNITS, 0) if free else _fees(f"{where}.fees", tree.get("fees", {})),
        aliases=_aliases(where, tree.get("aliases", [])),
        context_tokens=_tokens(where, tree, "context_tokens"),
        max_output_tokens=_tokens(where, tree, "max_output_tokens"),
        tokenizer=_chosen(where, tree, "tokenizer", TOKENIZERS),
        image_tokens=_tokens(where, tree, "image_tokens"),
        checked=_day(where, tree.get("checked")),
        images_beyond_window=_chosen(where, tree, "images_beyond_window", ("true", "false")) == "true",
        sources=_sources(where, tree.get("sources", {})),
        image_rule=_image_rule(f"{where}.image_rule", tree.get("image_rule"), IMAGE_RULES),
        picture_rule=_image_rule(f"{where}.picture_rule", tree.get("picture_rule"), PICTURE_RULES),
        same_as=_name(where, tree, "same_as"),
    )


def _blocks(where: str, tree: Mapping[str, object]) -> tuple[DatedPrice, ...]:
    if "prices" not in tree:
        own = {key: value for key, value in tree.items() if key in _TIER_KEYS | {"tiers"}}
        return (_block(where, own),) if own else ()
    if (_TIER_KEYS | {"tiers"}) & tree.keys():
        raise PriceError(f"{where} has prices both in and beside `prices`; either is allowed")
    listed = tree["prices"]
    if not isinstance(listed, list):
        _refuse(f"{where}.prices", listed, "a list of dated prices")
    blocks = tuple(_block(f"{where}.prices[{i}]", value) for i, value in enumerate(listed))
    starts = [block.start or datetime.min.replace(tzinfo=UTC) for block in blocks]
    if starts != sorted(set(starts)):
        raise PriceError(f"{where}.prices must be in order of `from`, each later than the one before")
    return blocks


def _block(where: str, value: object) -> DatedPrice:
    tree = _mapping(where, value, _BLOCK_KEYS)
    standard = _tier(where, tree, None)
    named = tree.get("tiers", {})
    if not isinstance(named, Mapping):
        _refuse(f"{where}.tiers", named, "a mapping of tiers")
    tiers = {str(name): _named_tier(f"{where}.tiers.{name}", entry, standard) for name, entry in named.items()}
    return DatedPrice(_instant(where, tree.get("from")), {STANDARD: standard, **tiers})


def _free_block() -> DatedPrice:
    return DatedPrice(None, {STANDARD: Tier((Band(0, dict.fromkeys(Unit, 0)),))})


def _named_tier(where: str, value: object, standard: Tier) -> Tier:
    if isinstance(value, Mapping) and set(value) == {"x"}:
        return Tier(standard.bands, _factor(f"{where}.x", value["x"]))
    return _tier(where, _mapping(where, value, _TIER_KEYS), standard)


def _tier(where: str, tree: Mapping[str, object], standard: Tier | None) -> Tier:
    base = _filled(_rates(where, tree), standard.bands[0].rates if standard else {})
    above = tree.get("above", [])
    if not isinstance(above, list):
        _refuse(f"{where}.above", above, "a list of bands")
    bands = [Band(0, base), *(_band(f"{where}.above[{i}]", value, base) for i, value in enumerate(above))]
    if standard is not None and not above:
        bands += [Band(band.start, _dearer(base, band.rates)) for band in standard.bands[1:]]
    starts = [band.start for band in bands]
    if starts != sorted(set(starts)):
        raise PriceError(f"{where}.above must be in order of `tokens`, each above the one before")
    return Tier(tuple(bands))


def _band(where: str, value: object, base: Rates) -> Band:
    tree = _mapping(where, value, _BAND_KEYS)
    tokens = _tokens(where, tree, "tokens")
    if tokens is None:
        raise PriceError(f"{where} has no `tokens`; the prompt size where it begins is allowed")
    start = tokens if _chosen(where, tree, "op", ("gt", "gte")) == "gte" else tokens + 1
    return Band(start, _filled(_rates(where, tree), base))


def _rates(where: str, tree: Mapping[str, object]) -> dict[Unit, int]:
    rates = {unit: _rate(f"{where}.{key}", tree[key]) for key, unit in _UNITS.items() if key in tree}
    writes = tree.get("cache_write", {})
    if not isinstance(writes, Mapping):  # one price for every lifetime that has none of its own
        pico = _rate(f"{where}.cache_write", writes)
        return {**dict.fromkeys(_LIFETIMES.values(), pico), **rates}
    for lifetime, price in writes.items():
        if lifetime not in _LIFETIMES:
            _refuse(f"{where}.cache_write", lifetime, "one of " + ", ".join(_LIFETIMES))
        rates[_LIFETIMES[lifetime]] = _rate(f"{where}.cache_write.{lifetime}", price)
    return rates


def _filled(named: Mapping[Unit, int], parent: Rates) -> dict[Unit, int]:
    """Fill prices that are not named from the parent's, or from the input's where the input is dearer than there.

    So a missing price is never below what is known, and the cached price of a cheaper tier is at most the standard one.
    """
    rates = {**parent, **named}
    price = named.get(Unit.INPUT)
    if price is None or price <= parent.get(Unit.INPUT, -1):
        return rates
    for unit, times in _FALLBACKS:
        if unit not in named:
            rates[unit] = max(parent.get(unit, 0), times * price)
    if base := parent.get(Unit.INPUT):
        for unit in _APART:
            if unit in parent and unit not in named:
                rates[unit] = -(-parent[unit] * price // base)  # as much dearer as the input
    return rates


def _dearer(first: Rates, second: Rates) -> dict[Unit, int]:
    return {unit: max(first.get(unit, 0), second.get(unit, 0)) for unit in {**first, **second}}


def _mapping(where: str, value: object, allowed: frozenset[str]) -> dict[str, object]:
    if value is None or value == "":
        return {}
    if not isinstance(value, Mapping):
        _refuse(where, value, "a mapping")
    tree: dict[str, object] = {}
    for spelled, entry in value.items():
        key = _key(str(spelled))
        if key not in allowed:
            raise PriceError(f"{where}: {spelled} is no key here; allowed are {', '.join(sorted(allowed))}")
        if key in tree:
            raise PriceError(f"{where}: {spelled} says {key} a second time; one spelling is allowed")
        tree[key] = entry
    return tree


def _key(spelled: str) -> str:
    """Bring cacheReadPerMTok and cache_read_per_mtok to cache_read, and second_per_million to second."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", spelled).lower()
    bare = snake.removesuffix("_per_mtok").removesuffix("_per_million")
    return bare if bare in _RATE_KEYS else snake


def _number(where: str, value: object, read: Callable[[str], int], allowed: str) -> int:
    if not isinstance(value, str):
        _refuse(where, value, allowed)
    try:
        return read(value)
    except (ValueError, InvalidOperation) as error:
        raise PriceError(f"{where} is {shown(repr(value))}: {shown(str(error))}; {allowed} is allowed") from error


def _rate(where: str, value: object) -> int:
    return _number(where, value, rate_pico, "a price in dollars per million of zero or more")


def _fees(where: str, value: object) -> Rates:
    if not isinstance(value, Mapping):
        _refuse(where, value, "a mapping of fees")
    unknown = [key for key in value if key not in FEE_UNITS]
    if unknown:
        _refuse(where, unknown[0], "one of " + ", ".join(sorted(FEE_UNITS)))
    return {Unit(key): _number(f"{where}.{key}", fee, fee_pico, "dollars a piece") for key, fee in value.items()}


def _factors(where: str, value: object) -> Mapping[str, Factor]:
    if not isinstance(value, Mapping):
        _refuse(where, value, "a mapping of factors")
    return {str(name): _factor(f"{where}.{name}", factor) for name, factor in value.items()}


def _factor(where: str, value: object) -> Factor:
    allowed = "a factor above zero with at most six decimals"
    millionths = _number(where, value, rate_pico, allowed)
    if millionths == 0:
        _refuse(where, value, allowed)
    return Decimal(str(value)).as_integer_ratio()


def _aliases(where: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(alias, str) for alias in value):
        _refuse(f"{where}.aliases", value, "a list of names")
    return tuple(value)


def _sources(where: str, value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        _refuse(f"{where}.sources", value, "a mapping of sources to their versions")
    return value


def _image_rule(where: str, value: object, rules: Mapping[str, frozenset[str]]) -> ImageRule | None:
    if value is None:
        return None
    tree = {"kind": value} if isinstance(value, str) else value
    if not isinstance(tree, Mapping) or tree.get("kind") not in rules:
        _refuse(where, value, "one of " + ", ".join(rules) + ", as `kind` with its numbers")
    kind = str(tree["kind"])
    if tree.keys() - {"kind"} != rules[kind]:
        _refuse(where, value, f"{kind} with {', '.join(sorted(rules[kind])) or 'no number'}")
    return ImageRule(kind, {key: _plain_number(f"{where}.{key}", tree[key]) for key in sorted(rules[kind])})


def _plain_number(where: str, value: object) -> Decimal:
    _factor(where, value)
    return Decimal(str(value))


def _name(where: str, tree: Mapping[str, object], key: str) -> str | None:
    value = tree.get(key)
    if value is not None and (not isinstance(value, str) or not value.strip("/")):
        _refuse(f"{where}.{key}", value, "a model, or provider/model")
    return None if value is None else str(value)


def _tokens(where: str, tree: Mapping[str, object], key: str) -> int | None:
    value = tree.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,12}", value):
        _refuse(f"{where}.{key}", value, "a whole number")
    return int(value)


def _chosen(where: str, tree: Mapping[str, object], key: str, allowed: tuple[str, ...]) -> str | None:
    value = tree.get(key)
    if value is not None and value not in allowed:
        _refuse(f"{where}.{key}", value, " or ".join(allowed))
    return None if value is None else str(value)


def _day(where: str, value: object) -> date | None:
    instant = _instant(f"{where}.checked", value)
    return None if instant is None else instant.date()


def _instant(where: str, value: object) -> datetime | None:
    if value is None:
        return None
    try:
        instant = datetime.fromisoformat(str(value))
    except ValueError:
        _refuse(where, value, "a date")
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def _refuse(where: str, value: object, allowed: str) -> NoReturn:
    raise PriceError(f"{where} is {shown(repr(value))}; {allowed} is allowed")

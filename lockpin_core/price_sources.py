"""What installed price data packages say of a provider's models, brought to one form. Reads data only; no network.

Sources: the package genai-prices, and litellm's price file, which is read as data and never imported. Knows their field
names; which models of theirs are a provider's, and under which names, stands in `pricing/overlay/<provider>.yaml`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import ROUND_CEILING, Context, Decimal
from itertools import product
from pathlib import Path
from typing import Any

from lockpin_core.errors import PriceError

GENAI, LITELLM, OVERLAY, SIBLING = "genai-prices", "litellm", "overlay", "sibling"
_LITELLM_FILE = "litellm/model_prices_and_context_window_backup.json"
_DEAREST = 10**9  # dollars per million, or a piece, or times as much: beyond it no price is meant
_MOST_TOKENS = 10**12 - 1
_LONGEST = 200  # characters of a name
_SIX = Decimal("0.000001")  # a price per million has six decimals: whole picodollars a unit
_ROOM = Context(prec=100)  # for whatever ratios of two prices give
# What reading an entry raises that is not what it should be, whichever part of it is not.
_ODD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

_GENAI_UNITS = {
    "input_mtok": "input",
    "output_mtok": "output",
    "output_reasoning_mtok": "output",  # of two prices for output the dearer counts
    "cache_read_mtok": "cache_read",
    "cache_write_mtok": "write",
    "cache_write_1h_mtok": "1h",
    "input_audio_mtok": "audio_in",
    "cache_audio_read_mtok": "cache_audio",
    "output_audio_mtok": "audio_out",
    "input_image_mtok": "image_in",
    "input_video_mtok": "image_in",  # pictures in a row
    "output_image_mtok": "image_out",
}
_GENAI_PIECES = {
    "audio_hours": ("second", 3600),
    "input_audio_hours": ("second", 3600),
    "input_mchars": ("character", 1),
}
_LITELLM_PIECES = {"input_cost_per_second": "second", "input_cost_per_character": "character"}
_GENAI_FEES = {
    "web_searches_kcount": "web_search",
    "storage_searches_kcount": "file_search",
    "requests_kcount": "request",
}
_GENAI_TIERS = {"priority": "priority", "fast": "priority", "flex": "flex", "batch": "batch"}
_LITELLM_UNITS = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "output_cost_per_reasoning_token": "output",
    "cache_read_input_token_cost": "cache_read",
    "cache_creation_input_token_cost": "write",
    "cache_creation_input_token_cost_above_1hr": "1h",
    "cache_creation_input_token_cost_above_12hr": "12h",
    "input_cost_per_audio_token": "audio_in",
    "cache_read_input_audio_token_cost": "cache_audio",
    "output_cost_per_audio_token": "audio_out",
    "input_cost_per_image_token": "image_in",
    "input_cost_per_video_token": "image_in",
    "output_cost_per_image_token": "image_out",
}
_LITELLM_TIERS = {
    None: "standard",
    "priority": "priority",
    "flex": "flex",
    "batches": "batch",
    "ultrafast": "ultrafast",
}
_LITELLM_RATE = re.compile(
    rf"({'|'.join(_LITELLM_UNITS)})(?:_above_(\d+)k_tokens)?(?:_(priority|flex|batches|ultrafast))?"
)
_LITELLM_GEOS = {
    "regional_processing_uplift_multiplier_us": "us",
    "regional_processing_uplift_multiplier_eu": "eu",
    "regional_endpoint_uplift_multiplier": "regional",
    "fedramp_uplift_multiplier": "fedramp",
}

type Cell = tuple[str, int, str]  # tier, tokens above which a band begins (0: none), unit
type Cells = dict[Cell, Decimal]


@dataclass
class Facts:
    """What one source says of one model. A price of zero is no price: no source tells it from one that is missing."""

    cells: Cells = field(default_factory=dict)
    pieces: Cells = field(default_factory=dict)  # what it costs by the second or character, per million
    older: list[tuple[date | None, Cells]] = field(default_factory=list)  # before those in force, with their start
    start: date | None = None
    later: list[tuple[date, Cells]] = field(default_factory=list)
    aliases: set[str] = field(default_factory=set)
    context_tokens: int = 0
    max_output_tokens: int = 0
    speeds: dict[str, Decimal] = field(default_factory=dict)
    geo: dict[str, Decimal] = field(default_factory=dict)
    fees: dict[str, Decimal] = field(default_factory=dict)

    def take_pieces(self) -> None:
        """Let a model without a price for tokens be priced by the second or the character."""
        if self.cells.keys() <= self.pieces.keys():
            self.cells = dict(self.pieces)

    def drop_bands(self) -> None:
        """Leave out prices of long prompts: the window that they were for is gone, whatever a source still lists."""
        for cells in (self.cells, *(cells for _, cells in self.older), *(cells for _, cells in self.later)):
            for cell in [cell for cell in cells if cell[1]]:
                del cells[cell]


@dataclass(frozen=True, slots=True)
class Packages:
    """The installed price data: None where a package is not there."""

    genai: Sequence[Any] | None  # providers of genai-prices
    litellm: Mapping[str, Mapping[str, Any]] | None  # entries by key, numbers exact
    versions: Mapping[str, str]

    def is_empty(self) -> bool:
        """Say whether there is nothing to read."""
        return self.genai is None and self.litellm is None

    def is_whole(self) -> bool:
        """Say whether no package is missing."""
        return self.genai is not None and self.litellm is not None


def installed(litellm: Path | None = None) -> Packages:
    """Read the installed packages; `litellm` names its wheel or price file instead of the installed one."""
    versions = {OVERLAY: "by hand"}
    genai = _read_genai()
    if genai is not None:
        versions[GENAI] = importlib.metadata.version(GENAI)
    try:
        found = _litellm_file(litellm)
        entries = None if found is None else json.loads(found[0], parse_float=Decimal)
    except (OSError, ValueError, ArithmeticError, RecursionError) as error:
        raise PriceError(f"litellm's price file cannot be read ({type(error).__name__}); install it anew") from error
    if found is None:
        return Packages(genai, None, versions)
    if not isinstance(entries, dict) or not entries:
        raise PriceError("litellm's price file has no entries; install it anew")
    versions[LITELLM] = found[1]
    return Packages(genai, {key: entry for key, entry in entries.items() if isinstance(entry, dict)}, versions)


def _read_genai() -> Sequence[Any] | None:
    try:
        module = importlib.import_module("genai_prices.data_snapshot")
    except ImportError:
        return None
    try:
        return list(module.get_snapshot().providers)
    except _ODD as error:
        raise PriceError(f"genai-prices cannot be read ({type(error).__name__}); install it anew") from error


def _litellm_file(path: Path | None) -> tuple[str, str] | None:
    """Give litellm's price file with its version."""
    if path is not None and path.suffix == ".whl":
        return zipfile.ZipFile(path).read(_LITELLM_FILE).decode(), path.name.split("-")[1]
    if path is not None:
        return path.read_text("utf-8"), "file"
    try:
        files = importlib.metadata.files(LITELLM) or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    found = next((file for file in files if file.as_posix() == _LITELLM_FILE), None)
    return None if found is None else (found.read_text("utf-8"), importlib.metadata.version(LITELLM))


def genai_models(packages: Packages, ids: Iterable[str]) -> Iterator[tuple[str, str | None, Any]]:
    """Walk the models of some providers of genai-prices, with the provider's id and their own; None: it has none."""
    wanted = list(ids)
    for provider in packages.genai or ():
        if (seller := getattr(provider, "id", None)) in wanted:
            models = getattr(provider, "models", None)
            for model in models if isinstance(models, list | tuple) else [None]:
                name = getattr(model, "id", None)
                yield seller, name if is_name(name) else None, model


def is_name(name: object) -> bool:
    """Say whether something can be the name of a model."""
    return isinstance(name, str) and 0 < len(name) <= _LONGEST and name.isprintable() and name == name.strip()


def states_price(model: Any) -> bool:
    """Say whether a model of genai-prices has any price but zero."""
    return any(any(vars(prices).values()) for _, prices in _blocks(model))


def genai_facts(model: Any, write: Sequence[str], today: date) -> Facts | None:
    """Read a model of genai-prices as `from_genai` does; None: something in it is not what it should be."""
    try:
        return from_genai(model, write, today)
    except _ODD:
        return None


def from_genai(model: Any, write: Sequence[str], today: date) -> Facts:
    """Read a model of genai-prices; `write` are the lifetimes that its plain cache-write price is for.

    Prices of the day's dear hours count for the whole day. Earlier prices have no tiers: their history has none.
    """
    facts = Facts(aliases=set(_equal_names(model.match)) - {model.id}, context_tokens=_tokens(model.context_window))
    peak: Cells = {}
    for constraint, prices in _blocks(model):
        start = _start_of(constraint)
        cells = dict(_genai_cells(prices, "standard", write))
        if constraint is not None and start is None:
            peak = _dearer(peak, cells)
        elif start is None or start <= today:
            if facts.cells:
                facts.older.append((facts.start, facts.cells))
            facts.start, facts.cells = start, cells
        else:
            facts.later.append((start, cells))
        facts.fees |= _genai_fees(prices)
        facts.pieces = _dearer(facts.pieces, dict(_genai_pieces(prices)))
    facts.cells = _dearer(facts.cells, peak)
    facts.later = [(start, _dearer(cells, peak) | _variants(model, write, start)) for start, cells in facts.later]
    for word, cells in _fast(model, write):
        facts.speeds[word] = _ratio(facts.cells, cells)
    facts.cells |= _variants(model, write, today)
    return facts


def _blocks(model: Any) -> list[tuple[Any, Any]]:
    """List (constraint, prices): without one first, then by date, then by hours of the day."""
    if not isinstance(model.prices, list):
        return [(None, model.prices)]
    if not model.prices:
        raise ValueError("no prices")
    blocks = [(entry.constraint, entry.prices) for entry in model.prices]
    return sorted(blocks, key=lambda block: _start_of(block[0]) or date.min)


def _start_of(constraint: Any) -> date | None:
    start = getattr(constraint, "start_date", None)
    if start is not None and (not isinstance(start, date) or isinstance(start, datetime)):
        raise ValueError(f"{start!r} is no day")
    return start


def _variants(model: Any, write: Sequence[str], day: date) -> Cells:
    """Give the prices of tiers that are in force on a day."""
    cells: Cells = {}
    for variant in sorted(model.price_variants or (), key=lambda v: _start_of(v.constraint) or date.min):
        start = _start_of(variant.constraint)
        word = variant.when.get("service_tier") or variant.when.get("processing")
        if word in _GENAI_TIERS and (start is None or start <= day):
            cells |= dict(_genai_cells(variant.prices, _GENAI_TIERS[word], write))
    return cells


def _fast(model: Any, write: Sequence[str]) -> Iterator[tuple[str, Cells]]:
    for variant in model.price_variants or ():
        if "speed" in variant.when:
            if not is_name(variant.when["speed"]):
                raise ValueError("a speed without a name")
            yield variant.when["speed"], dict(_genai_cells(variant.prices, "standard", write))


def _genai_cells(prices: Any, tier: str, write: Sequence[str]) -> Iterator[tuple[Cell, Decimal]]:
    """Walk the token prices of one block; of two for one unit the dearer comes last."""
    found: Cells = {}
    for name, value in vars(prices).items():
        if name not in _GENAI_UNITS or value is None:
            continue
        steps = [
            (0, getattr(value, "base", value)),
            *((band.start, band.price) for band in getattr(value, "tiers", ())),
        ]
        for (start, price), unit in product(steps, _units(_GENAI_UNITS[name], write)):
            cell = (tier, _tokens(start), unit)
            if usd := _number(price):
                found[cell] = max(per_million(usd), found.get(cell, Decimal(0)))
    yield from found.items()


def _genai_pieces(prices: Any) -> Iterator[tuple[Cell, Decimal]]:
    """Walk the prices of an hour of sound, and of a million characters; of two for one unit the dearer comes last."""
    found: Cells = {}
    for name, (unit, parts) in _GENAI_PIECES.items():
        if usd := _number(getattr(prices, name, None) or 0):
            million = usd * 10**6 / parts if parts > 1 else usd
            cell = ("standard", 0, unit)
            found[cell] = max(per_million(million), found.get(cell, Decimal(0)))
    yield from found.items()


def _genai_fees(prices: Any) -> dict[str, Decimal]:
    found = ((fee, getattr(prices, name, None)) for name, fee in _GENAI_FEES.items())
    fees = {fee: _number(value) / 1000 for fee, value in found if value is not None}
    return {fee: usd for fee, usd in fees.items() if usd}


def _equal_names(match: Any) -> Iterator[str]:
    """Walk the exact names of a match; prefixes and patterns are not trusted."""
    if hasattr(match, "equals"):
        if not is_name(match.equals):
            raise ValueError(f"{match.equals!r} is no name")
        yield match.equals
    for clause in getattr(match, "or_", ()):
        yield from _equal_names(clause)


def _ratio(base: Cells, fast: Cells) -> Decimal:
    """Express a whole set of prices as one factor of another: the largest."""
    return max(price / base[cell] for cell, price in fast.items() if cell in base)


def _dearer(first: Cells, second: Cells) -> Cells:
    return {cell: max(first.get(cell, Decimal(0)), second.get(cell, Decimal(0))) for cell in {**first, **second}}


def litellm_facts(entry: Mapping[str, Any], write: Sequence[str]) -> Facts | None:
    """Read one of litellm's entries; None: something in it is not what it should be."""
    facts = Facts()
    try:
        add_litellm(facts, entry, write)
    except _ODD:
        return None
    return facts


def add_litellm(facts: Facts, entry: Mapping[str, Any], write: Sequence[str]) -> None:
    """Add one of litellm's entries; of several for one model the dearer counts."""
    for cell, price in _litellm_cells(entry, write):
        facts.cells[cell] = max(facts.cells.get(cell, Decimal(0)), price)
    for key, unit in _LITELLM_PIECES.items():
        if price := _per_token(entry.get(key)):
            facts.pieces["standard", 0, unit] = max(facts.pieces.get(("standard", 0, unit), Decimal(0)), price)
    facts.context_tokens = max(facts.context_tokens, _tokens(entry.get("max_input_tokens")))
    facts.max_output_tokens = max(facts.max_output_tokens, _tokens(entry.get("max_output_tokens")))
    special = entry.get("provider_specific_entry") or {}
    factors = [*((geo, entry.get(key)) for key, geo in _LITELLM_GEOS.items()), ("us", special.get("us"))]
    facts.geo |= {geo: _number(factor) for geo, factor in factors if factor is not None}
    if "fast" in special:
        facts.speeds["fast"] = _number(special["fast"])
    for fee, usd in _litellm_fees(entry):
        facts.fees[fee] = max(facts.fees.get(fee, Decimal(0)), usd)


def _litellm_cells(entry: Mapping[str, Any], write: Sequence[str]) -> Iterator[tuple[Cell, Decimal]]:
    for key, value in entry.items():
        match = _LITELLM_RATE.fullmatch(key)
        if match is not None and (price := _per_token(value)):
            for unit in _units(_LITELLM_UNITS[match[1]], write):
                yield (_LITELLM_TIERS[match[3]], _tokens(match[2]) * 1000, unit), price
    for step in entry.get("tiered_pricing") or ():
        for key, value in step.items():
            if key in _LITELLM_UNITS and (price := _per_token(value)):
                first, *_ = step["range"]
                for unit in _units(_LITELLM_UNITS[key], write):
                    yield ("standard", _tokens(first), unit), price


def _units(unit: str, write: Sequence[str]) -> Sequence[str]:
    return write if unit == "write" else (unit,)


def _per_token(value: Any) -> Decimal:
    return per_million(_number(0 if value is None else value, _DEAREST // 10**6) * 1_000_000)


def _tokens(value: Any) -> int:
    """Read a number of tokens; None is none. Raises ValueError."""
    count = _number(0 if value is None else value, _MOST_TOKENS)
    if count != int(count):
        raise ValueError(f"{value!r} is no number of tokens")
    return int(count)


def _number(value: Any, most: int = _DEAREST) -> Decimal:
    """Read a number, or its text. Raises ValueError or ArithmeticError where it is none, below zero or too large."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise ValueError(f"{value!r} is no number")
    number = Decimal(str(value))
    if not number.is_finite() or not 0 <= number <= most:
        raise ValueError(f"{value!r} is no number from 0 to {most}")
    return number


def _litellm_fees(entry: Mapping[str, Any]) -> Iterator[tuple[str, Decimal]]:
    for usd in (entry.get("search_context_cost_per_query") or {}).values():
        yield "web_search", _number(usd)
    if usd := _number(entry.get("google_maps_grounding_cost_per_query") or 0):
        yield "maps", usd
    if usd := _number(entry.get("input_cost_per_request") or 0):
        yield "request", usd


def per_million(price: Any) -> Decimal:
    """Round a price up to whole picodollars a unit."""
    return Decimal(str(price)).quantize(_SIX, ROUND_CEILING, _ROOM)

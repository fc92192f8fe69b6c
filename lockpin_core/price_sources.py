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
from datetime import date
from decimal import ROUND_CEILING, Decimal
from itertools import product
from pathlib import Path
from typing import Any

from lockpin_core.errors import PriceError

GENAI, LITELLM, OVERLAY, SIBLING = "genai-prices", "litellm", "overlay", "sibling"
_LITELLM_FILE = "litellm/model_prices_and_context_window_backup.json"
_DEAREST = 10**9  # dollars per million: beyond it no price is meant
_SIX = Decimal("0.000001")  # a price per million has six decimals: whole picodollars a unit

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
    older: list[tuple[date | None, Cells]] = field(default_factory=list)  # before those in force, with their start
    start: date | None = None
    later: list[tuple[date, Cells]] = field(default_factory=list)
    aliases: set[str] = field(default_factory=set)
    context_tokens: int = 0
    max_output_tokens: int = 0
    speeds: dict[str, Decimal] = field(default_factory=dict)
    geo: dict[str, Decimal] = field(default_factory=dict)
    fees: dict[str, Decimal] = field(default_factory=dict)


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
    except (OSError, ValueError, RecursionError) as error:
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
    providers: Sequence[Any] = module.get_snapshot().providers
    return providers


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


def genai_models(packages: Packages, ids: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Walk the models of some providers of genai-prices, with the provider's id."""
    wanted = set(ids)
    for provider in packages.genai or ():
        if provider.id in wanted:
            for model in provider.models:
                yield provider.id, model


def from_genai(model: Any, write: Sequence[str], today: date) -> Facts:
    """Read a model of genai-prices; `write` are the lifetimes that its plain cache-write price is for.

    Prices of the day's dear hours count for the whole day. Earlier prices have no tiers: their history has none.
    """
    facts = Facts(aliases=set(_equal_names(model.match)) - {model.id}, context_tokens=model.context_window or 0)
    peak: Cells = {}
    for constraint, prices in _blocks(model):
        start = getattr(constraint, "start_date", None)
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
    blocks = [(entry.constraint, entry.prices) for entry in model.prices]
    return sorted(blocks, key=lambda block: getattr(block[0], "start_date", None) or date.min)


def _variants(model: Any, write: Sequence[str], day: date) -> Cells:
    """Give the prices of tiers that are in force on a day."""
    cells: Cells = {}
    for variant in sorted(model.price_variants or (), key=lambda v: getattr(v.constraint, "start_date", date.min)):
        start = getattr(variant.constraint, "start_date", None)
        word = variant.when.get("service_tier") or variant.when.get("processing")
        if word in _GENAI_TIERS and (start is None or start <= day):
            cells |= dict(_genai_cells(variant.prices, _GENAI_TIERS[word], write))
    return cells


def _fast(model: Any, write: Sequence[str]) -> Iterator[tuple[str, Cells]]:
    for variant in model.price_variants or ():
        if "speed" in variant.when:
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
            if price:
                found[tier, start, unit] = max(per_million(price), found.get((tier, start, unit), Decimal(0)))
    yield from found.items()


def _genai_fees(prices: Any) -> dict[str, Decimal]:
    found = ((fee, getattr(prices, name, None)) for name, fee in _GENAI_FEES.items())
    return {fee: Decimal(str(value)) / 1000 for fee, value in found if value}


def _equal_names(match: Any) -> Iterator[str]:
    """Walk the exact names of a match; prefixes and patterns are not trusted."""
    if hasattr(match, "equals"):
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
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None
    return facts


def add_litellm(facts: Facts, entry: Mapping[str, Any], write: Sequence[str]) -> None:
    """Add one of litellm's entries; of several for one model the dearer counts."""
    for cell, price in _litellm_cells(entry, write):
        facts.cells[cell] = max(facts.cells.get(cell, Decimal(0)), price)
    facts.context_tokens = max(facts.context_tokens, int(entry.get("max_input_tokens") or 0))
    facts.max_output_tokens = max(facts.max_output_tokens, int(entry.get("max_output_tokens") or 0))
    special = entry.get("provider_specific_entry") or {}
    factors = [*((geo, entry.get(key)) for key, geo in _LITELLM_GEOS.items()), ("us", special.get("us"))]
    facts.geo |= {geo: Decimal(factor) for geo, factor in factors if factor is not None}
    if "fast" in special:
        facts.speeds["fast"] = Decimal(special["fast"])
    for fee, usd in _litellm_fees(entry):
        facts.fees[fee] = max(facts.fees.get(fee, Decimal(0)), usd)


def _litellm_cells(entry: Mapping[str, Any], write: Sequence[str]) -> Iterator[tuple[Cell, Decimal]]:
    for key, value in entry.items():
        match = _LITELLM_RATE.fullmatch(key)
        if match is not None and value:
            for unit in _units(_LITELLM_UNITS[match[1]], write):
                yield (_LITELLM_TIERS[match[3]], int(match[2] or 0) * 1000, unit), _per_token(value)
    for step in entry.get("tiered_pricing") or ():
        for key, value in step.items():
            for unit in _units(_LITELLM_UNITS[key], write) if key in _LITELLM_UNITS and value else ():
                yield ("standard", int(step["range"][0]), unit), _per_token(value)


def _units(unit: str, write: Sequence[str]) -> Sequence[str]:
    return write if unit == "write" else (unit,)


def _per_token(value: Any) -> Decimal:
    if isinstance(value, bool) or not 0 <= (price := Decimal(value) * 1_000_000) <= _DEAREST:
        raise ValueError(f"{value!r} is no price")
    return per_million(price)


def _litellm_fees(entry: Mapping[str, Any]) -> Iterator[tuple[str, Decimal]]:
    for usd in (entry.get("search_context_cost_per_query") or {}).values():
        yield "web_search", Decimal(usd)
    if usd := entry.get("google_maps_grounding_cost_per_query"):
        yield "maps", Decimal(usd)
    if usd := entry.get("input_cost_per_request"):
        yield "request", Decimal(usd)


def per_million(price: Any) -> Decimal:
    """Round a price up to whole picodollars a unit."""
    return Decimal(str(price)).quantize(_SIX, ROUND_CEILING)

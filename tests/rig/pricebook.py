"""What usage costs by the text of the price files: a second reading of them, in fractions, apart from the product's."""

import functools
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import yaml

FOLDER = Path(__file__).resolve().parents[2] / "pricing"
PIECES = ("second", "character")  # what some models bill by instead of tokens
RATES = ("input", "output", "cache_read", "audio_in", "cache_audio", "audio_out", "image_in", "image_out", *PIECES)
LIFETIMES = ("5m", "30m", "1h", "12h")
PROMPT = ("input", "cache_read", "cache_audio", *(f"cache_write_{life}" for life in LIFETIMES), "audio_in", "image_in")
FEES = ("web_search", "search_prompt", "maps", "maps_prompt", "file_search", "code_session", "request")


@functools.cache
def file_of(provider: str) -> Mapping:
    return yaml.load((FOLDER / f"{provider}.yaml").read_text(), yaml.CBaseLoader)


@functools.cache
def entry(provider: str, name: str) -> Mapping:
    """Find a model's entry by its id, an alias, or either with a snapshot's date; at the provider or whom it resells."""
    models = file_of(provider)["models"]
    for wanted in (name, re.sub(r"[-@](\d{4}-\d{2}-\d{2}|\d{8})$", "", name)):
        for key, found in models.items():
            if wanted == key or wanted in found.get("aliases", []):
                return entry(*found["same_as"].split("/", 1)) | found if "same_as" in found else found
    for other in file_of(provider).get("prices_from", []):
        try:
            return entry(other, name)
        except KeyError:
            continue
    raise KeyError(f"{provider} has no {name}")


def dollars(
    provider: str,
    name: str | Mapping,
    usage: Mapping[str, int],
    at: datetime,
    *,
    tier: str | None = None,
    speed: str | None = None,
    geo: str | None = None,
) -> Fraction:
    """Price units; `name` may be an entry itself. Raises KeyError where one has no price."""
    model = entry(provider, name) if isinstance(name, str) else name
    rates = _banded(_tier(_block(model, at), _tier_name(provider, tier)), usage)
    factor = Fraction(1) if speed in (None, "standard") else Fraction(model["speeds"][speed])
    if geo not in (None, "global", "not_available"):
        geos = {region: Fraction(more) for region, more in model.get("geo", {}).items()}
        factor *= geos.get(geo, max(geos.values(), default=Fraction(1)))
    tokens = sum((count * rates[unit] for unit, count in usage.items() if count and unit not in FEES), Fraction(0))
    pieces = sum((usage[fee] * Fraction(model["fees"][fee]) for fee in FEES if usage.get(fee)), Fraction(0))
    return tokens * factor / 10**6 + pieces


def _block(model: Mapping, at: datetime) -> Mapping:
    """Give the dated prices in force."""
    blocks = model.get("prices", [model])
    days = [datetime.fromisoformat(block.get("from", "1970-01-01")).replace(tzinfo=UTC) for block in blocks]
    return [block for block, day in zip(blocks, days, strict=True) if day <= at][-1]


def _tier_name(provider: str, said: str | None) -> str:
    word = "unsaid" if said is None else said.lower()
    return file_of(provider).get("tier_names", {}).get(word, word)


def _tier(block: Mapping, name: str) -> Mapping:
    """Give a tier's rates, bands and factor; what it does not name is the standard one's."""
    base = {"rates": _filled(_rates(block)), "above": block.get("above", []), "x": Fraction(1)}
    if name in ("unsaid", "standard") or name not in block.get("tiers", {}):
        assert name in ("unsaid", "standard"), f"no tier {name}"
        return base
    own = block["tiers"][name]
    if "x" in own:
        return base | {"x": Fraction(own["x"])}
    return {"rates": base["rates"] | _rates(own), "above": own.get("above", []), "x": Fraction(1)}


def _banded(tier: Mapping, usage: Mapping[str, int]) -> dict[str, Fraction]:
    size = sum(usage.get(unit, 0) for unit in PROMPT)
    rates = dict(tier["rates"])
    for band in tier["above"]:
        start = int(band["tokens"]) + (0 if band.get("op") == "gte" else 1)
        if size >= start:
            named = _rates(band)
            assert all(unit in named for unit, count in usage.items() if count and unit not in FEES), "a rate of a band"
            rates |= named
    return {unit: rate * tier["x"] for unit, rate in rates.items()}


def _rates(tree: Mapping) -> dict[str, Fraction]:
    rates = {unit: Fraction(tree[unit]) for unit in RATES if unit in tree}
    writes = tree.get("cache_write", {})
    writes = writes if isinstance(writes, Mapping) else dict.fromkeys(LIFETIMES, writes)
    return rates | {f"cache_write_{life}": Fraction(rate) for life, rate in writes.items()}


def _filled(rates: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """Take the input's price for a missing cache or image price, twice that for a long write, and sound's for cached."""
    base = rates.get("input", Fraction(0))
    short = dict.fromkeys(("cache_read", "cache_write_5m", "cache_write_30m", "image_in"), base)
    sound = {"cache_audio": rates["audio_in"]} if "audio_in" in rates else {}
    return sound | short | dict.fromkeys(("cache_write_1h", "cache_write_12h"), 2 * base) | dict(rates)

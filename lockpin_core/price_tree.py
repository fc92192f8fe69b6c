"""Prices of a model as the tree of a price file: dated blocks, tiers, bands. Knows no sources and no files."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from lockpin_core.price_sources import Cells, per_million

type Tree = dict[str, Any]

_MEDIA = ("audio_in", "cache_audio", "audio_out", "image_in", "image_out")
_ORDER = ("input", "output", "cache_read", "5m", "30m", "1h", "12h", *_MEDIA, "second", "character")
LIFETIMES = ("5m", "30m", "1h", "12h")


def price_block(start: date | None, cells: Cells, op: str) -> Tree:
    """Write one dated block; a tier that is one factor of the standard prices as that factor."""
    entry: Tree = {"from": start.isoformat()} if start else {}
    entry |= _sheet(cells, "standard", op)
    tiers = {tier: _tier(cells, tier, op) for tier in sorted({tier for tier, _, _ in cells} - {"standard"})}
    return entry | ({"tiers": tiers} if tiers else {})


def _tier(cells: Cells, tier: str, op: str) -> Tree:
    """Write a tier as a factor where it is one, else in full."""
    own = {(above, unit): price for (name, above, unit), price in cells.items() if name == tier}
    standard = {(above, unit): price for (name, above, unit), price in cells.items() if name == "standard"}
    factors = {price / standard[cell] for cell, price in own.items() if standard.get(cell)}
    factor = factors.pop() if len(factors) == 1 and own.keys() == standard.keys() else None
    if factor is not None and factor == per_million(factor):
        return {"x": number(factor)}
    return _sheet(cells, tier, op)


def _sheet(cells: Cells, tier: str, op: str) -> Tree:
    """Write the prices of one tier with its bands."""
    steps = sorted({above for name, above, _ in cells if name == tier})
    rows = {
        step: _rates({unit: usd for (n, at, unit), usd in cells.items() if n == tier and at == step}) for step in steps
    }
    entry = rows.pop(0, {})
    if rows:
        entry["above"] = [{"tokens": str(step), "op": op, **row} for step, row in rows.items()]
    return entry


def _rates(prices: Mapping[str, Decimal]) -> Tree:
    """Write prices in the order of the schema."""
    entry: Tree = {unit: number(prices[unit]) for unit in _ORDER if unit in prices and unit not in LIFETIMES}
    writes = {unit: number(prices[unit]) for unit in LIFETIMES if unit in prices}
    return entry | ({"cache_write": writes} if writes else {})


def number(value: Decimal) -> str:
    """Write a number plainly: no exponent, no trailing zeros."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def write_models(entries: Mapping[str, object], *, in_lines: bool) -> str:
    """Write entries as the block below `models:`, each readable alone: indented by two spaces, or one line each."""
    import yaml  # commands that need no prices must start fast

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True  # no anchors: an entry is read alone

    def dump(value: object, *, width: int, flow: bool | None) -> str:
        text = yaml.dump(value, Dumper=Plain, sort_keys=False, default_flow_style=flow, width=width, allow_unicode=True)
        return str(text)

    if in_lines:
        lines = (dump({name: entry}, width=10**6, flow=True) for name, entry in entries.items())
        return "".join(f"  {line.strip()[1:-1]}\n" for line in lines)
    return "".join(f"  {row}" for row in dump(dict(entries), width=116, flow=None).splitlines(keepends=True))

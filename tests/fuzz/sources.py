"""Target: whatever a package of price data or a configuration says, what is taken of it can be priced, and never lower
than any side says where the dearer is to count; the rest is named in one line.

    {"litellm": {"m": {…}}, "genai": [{…}], "later": {"m": {…}}, "entry": {…}}
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from types import SimpleNamespace

from desks import NOW
from inputs import Choices, split

from lockpin_core.call import Ceiling, Terms
from lockpin_core.errors import PriceError, UnpricedError
from lockpin_core.money import Money
from lockpin_core.price_entry import Entry, read_entry
from lockpin_core.price_merge import merged
from lockpin_core.price_overlay import Overlay
from lockpin_core.price_shelf import Model, TermRules, model_of
from lockpin_core.price_sources import GENAI, LITELLM, OVERLAY, Packages
from lockpin_core.price_update import Update, _entry, _fault, _rows
from lockpin_core.prices import price, quote, rates_text
from lockpin_core.usage import FEE_UNITS, OUTPUT_UNITS, PROMPT_UNITS, Unit

TODAY = date(2026, 11, 29)
OVERLAYS = tuple(
    Overlay("p", {"checked": TODAY.isoformat(), "genai": {"p": ""}, **more})
    for more in (
        {"litellm": {"names": ["p"], "modes": ["chat", None]}},
        {"litellm": {"names": ["p", "q"], "modes": ["chat"], "prefixes": ["p/"]}, "write": "5m+30m", "op": "gte"},
    )
)
VERSIONS = {OVERLAY: "by hand", GENAI: "1", LITELLM: "2"}
RULES = TermRules({"fast": "priority", "default": "standard"}, ("standard", "priority"))


def run(data: bytes) -> None:
    head, body = split(data)
    choices = Choices(head)
    try:
        told = json.loads(body, parse_float=Decimal)
    except (ValueError, ArithmeticError, RecursionError):
        return
    if not isinstance(told, dict) or _depth(told) > 40:
        return
    overlay = choices.pick(OVERLAYS)
    before = _merged(overlay, _packages(told, "litellm"))
    _check_update(before, _merged(overlay, _packages(told, "later")), choices)
    for name, entry in before.items():
        model = _model(name, read_entry(name, entry)) if _fault("p", name, entry) is None else None
        if model is not None:
            _check_quote(model, choices)
    _check_users_entry(told.get("entry"), choices)


def _depth(tree: object) -> int:
    left, deepest = [(tree, 1)], 0
    while left:
        one, depth = left.pop()
        deepest = max(deepest, depth)
        items = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        left += [(item, depth + 1) for item in items]
    return deepest


# What a package says


def _packages(told: Mapping, key: str) -> Packages:
    found = told.get(key)
    entries = (
        {name: entry for name, entry in found.items() if isinstance(entry, dict)} if isinstance(found, dict) else None
    )
    listed = told.get("genai")
    genai = [_as_object(one) for one in listed] if isinstance(listed, list) and key == "litellm" else None
    return Packages(genai, entries, VERSIONS)


def _as_object(tree: object, key: str = "") -> object:
    """Make objects with attributes out of mappings, and days out of their texts."""
    if isinstance(tree, dict):
        made = {name: _as_object(item, name) for name, item in tree.items()}
        return made if key == "when" else SimpleNamespace(**made)
    if isinstance(tree, list):
        return [_as_object(item) for item in tree]
    if key == "start_date" and isinstance(tree, str):
        try:
            return date.fromisoformat(tree)
        except ValueError:
            return tree
    return tree


def _merged(overlay: Overlay, packages: Packages) -> dict[str, dict]:
    made = merged([overlay], packages)[overlay.provider]
    assert all(isinstance(reason, str) and reason for reason in made.left_out.values())
    return made.entries


def _check_update(old: Mapping[str, dict], new: Mapping[str, dict], choices: Choices) -> None:
    """What is written of an older and a newer entry is no cheaper than either, where it may not get lower."""
    for name in sorted(old.keys() & new.keys()):
        if _fault("p", name, old[name]) is not None or _fault("p", name, new[name]) is not None:
            continue
        update = Update("p", name, old[name], new[name], TODAY, choices.flag())
        rows = _rows(update)
        assert all(str(row.field).isprintable() for row in rows), rows
        entry = _entry(update, lower=False)
        if not rows or rows[0].kind == "unreadable":
            continue
        usage = {unit: count for unit in _priced_in(old[name], new[name]) if (count := choices.number() * 1000)}
        kept, one, other = (_model(name, read_entry(name, tree)) for tree in (entry, old[name], new[name]))
        if kept is not None and one is not None and other is not None:
            try:
                most = max(_cost(one, usage), _cost(other, usage))
            except UnpricedError:
                continue  # one of them has no price for it today
            assert _cost(kept, usage) >= most, f"{_cost(kept, usage)} < {most} for {usage}: {entry}"


def _priced_in(old: Mapping, new: Mapping) -> list[Unit]:
    return [unit for unit in (Unit.INPUT, Unit.OUTPUT) if unit in old["prices"][-1] and unit in new["prices"][-1]]


def _cost(model: Model, usage: Mapping[Unit, int]) -> int:
    return price(model, usage, Terms(), NOW)


# What is priced


def _model(name: str, entry: Entry) -> Model | None:
    return model_of("p", name, entry, RULES) if entry.blocks else None


def _check_users_entry(tree: object, choices: Choices) -> None:
    try:
        entry = read_entry("pricing.m", _as_text(tree))
    except PriceError as error:
        assert str(error).startswith("pricing.m"), error
        return
    model = _model("m", entry)
    if model is not None:
        _check_quote(replace(model, user=True), choices)


def _as_text(tree: object) -> object:
    """Write scalars as text, as a configuration has them."""
    if isinstance(tree, dict):
        return {name: _as_text(item) for name, item in tree.items()}
    if isinstance(tree, list):
        return [_as_text(item) for item in tree]
    return tree if tree is None else str(tree).lower() if isinstance(tree, bool) else str(tree)


def _check_quote(model: Model, choices: Choices) -> None:
    """Whatever is billed within a ceiling costs at most its quote."""
    dated = model.price_at(NOW)
    tiers = (None, *sorted(dated.tiers), "never heard of")
    asked = Terms(
        choices.pick(tiers), choices.pick((None, *sorted(model.speeds))), choices.pick((None, "us", "eu", "xx"))
    )
    starts = [band.start for tier in dated.tiers.values() for band in tier.bands]
    prompt = choices.pick((*starts, 1000, 300_000)) + choices.number() - 1
    output = choices.number() * 100
    fees = {unit: choices.number() for unit in sorted(FEE_UNITS & model.fees.keys())[:3]}
    ceiling = Ceiling(max(0, prompt), output, PROMPT_UNITS, OUTPUT_UNITS, fees)
    priced_units = dated.tiers["standard"].bands[0].rates.keys()
    ceiling = replace(ceiling, prompt_units=PROMPT_UNITS & priced_units, output_units=OUTPUT_UNITS & priced_units)
    if not ceiling.output_units:
        ceiling, output = replace(ceiling, output=0), 0
    try:
        most = quote(model, ceiling, asked, NOW)
    except UnpricedError:
        return
    rates_text(model, asked, NOW)
    within = {**choices.split(choices.total(ceiling.prompt), sorted(ceiling.prompt_units or {Unit.INPUT})), **fees}
    within |= choices.split(choices.total(output), sorted(ceiling.output_units or {Unit.OUTPUT}))
    stated = replace(asked, tier=choices.pick((asked.tier, None, "standard")), speed=choices.pick((asked.speed, None)))
    try:
        charge = Money.from_pico(price(model, within, stated, NOW))
    except UnpricedError:
        return  # then the hold is charged
    assert charge <= most, f"{charge} > {most} for {within} within {ceiling}, {asked} then {stated}"

"""One provider's price entries out of all sources: of two values the dearer or larger, the difference written down.

What the sources lack, and whose models are whose, stands in `pricing/overlay/<provider>.yaml`, kept by hand:
`genai` names genai-prices' providers with an ending for their models' names, `litellm` names, prefixes and modes of its
entries, `without` what begins so. Knows no files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from lockpin_core.errors import PriceError
from lockpin_core.price_overlay import Overlay
from lockpin_core.price_sources import (
    GENAI,
    LITELLM,
    OVERLAY,
    SIBLING,
    Cells,
    Facts,
    Packages,
    add_litellm,
    genai_facts,
    genai_models,
    is_name,
    litellm_facts,
    per_million,
    states_price,
)
from lockpin_core.price_tree import LIFETIMES, Tree, number, price_block

type Sources = dict[str, Facts]  # source → what it says

_DATED = re.compile(r"(.+?)[-@](?:\d{4}-\d{2}-\d{2}|20\d{6})")
UNREADABLE = "a source has something there that is no price or no number"
_NAMELESS = "(a model without a name)"
_ZERO = "a price of zero that no source calls free"
_BILLED = ("input", "second", "character")
_NO_TOKENS = "not billed by the token, or by no price that a source states"


@dataclass(frozen=True, slots=True)
class Made:
    """The entries of one provider, and the models left out with the reason."""

    entries: dict[str, Tree]
    left_out: dict[str, str]


def merged(overlays: Iterable[Overlay], packages: Packages, *, strict: bool = False) -> dict[str, Made]:
    """Make the entries of all providers. A model that costs what its maker takes is the same as the maker's.

    `strict`: raise PriceError where an overlay names a model that no source has.
    """
    listed = list(overlays)
    made = {overlay.provider: _made(overlay, packages, strict=strict) for overlay in listed}
    for overlay in listed:
        for maker in overlay.tree.get("same_as") or ():
            _share(made[overlay.provider].entries, maker, made[maker].entries, overlay.checked)
    return made


def _share(entries: dict[str, Tree], maker: str, theirs: Mapping[str, Tree], today: date) -> None:
    """Let a model with a maker's prices be the same as the maker's: so it has the tiers that only the maker states."""
    for name, entry in entries.items():
        if name not in theirs or "same_as" in entry:
            continue
        begun = [block for block in theirs[name]["prices"] if block.get("from", "") <= today.isoformat()]
        own = entry["prices"][-1]
        if begun and _is_part({key: value for key, value in own.items() if key != "from"}, begun[-1]):
            kept = {key: value for key, value in entry.items() if key not in ("prices", "differs", "tokenizer")}
            entries[name] = {"same_as": f"{maker}/{name}", **kept}


def _is_part(own: object, whole: object) -> bool:
    """Say whether all that a tree of prices states stands in another just so."""
    if isinstance(own, Mapping) and isinstance(whole, Mapping):
        return all(key in whole and _is_part(value, whole[key]) for key, value in own.items())
    if isinstance(own, list) and isinstance(whole, list) and len(own) == len(whole):
        return all(_is_part(one, other) for one, other in zip(own, whole, strict=True))
    return own == whole


def _made(overlay: Overlay, packages: Packages, *, strict: bool) -> Made:
    known: dict[str, Sources] = {}
    left_out: dict[str, str] = {}
    _take_genai(overlay, packages, known, left_out)
    _take_litellm(overlay, packages, known, left_out)
    _take_overlay(overlay, known, strict=strict)
    for name in [name for name, sources in known.items() if not _is_priced(sources)]:
        left_out[name] = _NO_TOKENS
        del known[name]
    made = {name: _entry(name, known[name], overlay, packages.versions) for name in sorted(known)}
    _part_aliases(made)
    return Made(made, dict(sorted(left_out.items())))


def _part_aliases(made: Mapping[str, Tree]) -> None:
    """Take away every alias that is another model's name, or that two share and is not made of one's own name."""
    claims: dict[str, list[str]] = {}
    for name, entry in made.items():
        for alias in entry.get("aliases", ()):
            claims.setdefault(alias, []).append(name)
    for alias, names in claims.items():
        own = [name for name in names if alias.endswith(name)]
        keeper = max(own, key=len) if own and alias not in made else None
        for name in names:
            if alias in made or (len(names) > 1 and name != keeper):
                made[name]["aliases"].remove(alias)
    for entry in made.values():
        if entry.get("aliases") == []:
            del entry["aliases"]


def _take_genai(overlay: Overlay, packages: Packages, known: dict[str, Sources], left_out: dict[str, str]) -> None:
    endings: Mapping[str, str] = overlay.tree.get("genai") or {}
    for provider, own, model in genai_models(packages, endings):
        facts = None if own is None else overlay.taken(genai_facts(model, overlay.write(own), overlay.checked))
        name = overlay.renamed(own or _NAMELESS) + endings[provider]
        if own is not None and (reason := overlay.left_out(own)) is not None:
            left_out[own] = reason
        elif own is None or facts is None:
            left_out[name] = UNREADABLE
        elif not facts.cells:
            left_out[own] = _NO_TOKENS if states_price(model) else _ZERO
        else:
            facts.aliases = {alias + endings[provider] for alias in facts.aliases} - {name}
            twin = known.setdefault(name, {}).setdefault(GENAI, facts)
            for cell, price in facts.cells.items():  # two of their providers have it: the dearer counts
                twin.cells[cell] = max(price, twin.cells.get(cell, price))


def _take_litellm(overlay: Overlay, packages: Packages, known: dict[str, Sources], left_out: dict[str, str]) -> None:
    said: Mapping[str, Any] = overlay.tree.get("litellm") or {}
    found = {
        name: entry
        for key, entry in (packages.litellm or {}).items()
        if entry.get("litellm_provider") in said.get("names", ()) and entry.get("mode") in said.get("modes", ())
        if (name := _unprefixed(key, said)) is not None
    }
    read = {n: overlay.taken(litellm_facts(e, overlay.write(n))) if is_name(n) else None for n, e in found.items()}
    left_out |= {overlay.renamed(name): UNREADABLE for name, facts in read.items() if facts is None}
    found = {name: entry for name, entry in found.items() if read[name] is not None}
    for name, entry in found.items():
        if (reason := overlay.left_out(name)) is not None:
            left_out.setdefault(name, reason)
            continue
        facts = read[name]
        if facts is None or not facts.cells:
            left_out.setdefault(name, _ZERO)
            continue
        home = _home(overlay.renamed(name), entry, known, found)
        add_litellm(known.setdefault(home, {}).setdefault(LITELLM, Facts()), entry, overlay.write(name))
        overlay.taken(known[home][LITELLM])


def _unprefixed(key: str, said: Mapping[str, Any]) -> str | None:
    """Take the first of the prefixes that fits off a key; where there are some, a key without any is not meant."""
    if key.startswith(tuple(said.get("without", ()))):
        return None
    return next((key.removeprefix(start) for start in said.get("prefixes") or [""] if key.startswith(start)), None)


def _home(name: str, entry: Mapping[str, Any], known: Mapping[str, Sources], litellm: Mapping[str, Any]) -> str:
    """Find the model that a name belongs to: itself, the one it is an alias of, or the one it is a snapshot of.

    A snapshot whose price is another than the plain name's is a model of its own.
    """
    dated = _DATED.fullmatch(name)
    names = [name, dated[1]] if dated else [name]
    if dated and dated[1] in litellm and _rates_of(litellm[dated[1]]) != _rates_of(entry):
        names = [name]
    for plain in names:
        if plain in known:
            return plain
        for model, sources in known.items():
            if GENAI in sources and plain in sources[GENAI].aliases:
                return model
    return names[-1] if names[-1] in litellm else name


def _rates_of(entry: Mapping[str, Any]) -> Cells:
    facts = Facts()
    add_litellm(facts, entry, ("write",))
    return {cell: price for cell, price in facts.cells.items() if cell[0] == "standard" and not cell[1]}


def _take_overlay(overlay: Overlay, known: dict[str, Sources], *, strict: bool) -> None:
    """Add the hand-kept facts of the models that there are, and the models that are hand-kept as a whole."""
    for name, said in overlay.models.items():
        if "prices" in said:
            known.setdefault(name, {})
        if name not in known and strict:
            raise PriceError(f"overlay/{overlay.provider}.yaml: models has {name}, which no source prices")
        if name in known:
            known[name][OVERLAY] = _from_overlay(said)
            for facts in known.get(said.get("like"), {}).values():
                known[name][OVERLAY].cells |= facts.cells
    for name, said in overlay.models.items():
        if name in known and said.get("bands_like") in known:
            known[name][SIBLING] = _sibling_bands(known[name], known[said["bands_like"]])
        if name in known and said.get("long_prompts") == "gone":
            for facts in known[name].values():
                facts.drop_bands()
    for sources in known.values():
        for facts in sources.values():
            _brought_to_op(facts, overlay)


def _from_overlay(said: Mapping[str, Any]) -> Facts:
    return Facts(
        cells={("standard", 0, unit): Decimal(usd) for unit, usd in (said.get("prices") or {}).items()},
        aliases=set(said.get("aliases", [])),
        context_tokens=int(said.get("context_tokens", 0)),
        max_output_tokens=int(said.get("max_output_tokens", 0)),
        speeds={name: Decimal(factor) for name, factor in said.get("speeds", {}).items()},
        geo={name: Decimal(factor) for name, factor in said.get("geo", {}).items()},
        fees={name: Decimal(usd) for name, usd in said.get("fees", {}).items()},
    )


def _brought_to_op(facts: Facts, overlay: Overlay) -> None:
    """Where bands begin at a round number, and not above it, bring a source's 199999 to 200000."""
    if overlay.tree.get("op") != "gte":
        return
    for cells in (facts.cells, *(cells for _, cells in facts.older), *(cells for _, cells in facts.later)):
        for tier, above, unit in [cell for cell in cells if cell[1] % 1000 == 999]:
            cells[tier, above + 1, unit] = cells.pop((tier, above, unit))


def _is_priced(sources: Sources) -> bool:
    cells = {cell for facts in sources.values() for cell in facts.cells}
    return any(tier == "standard" and not above and unit in _BILLED for tier, above, unit in cells)


def _sibling_bands(sources: Sources, sibling: Sources) -> Facts:
    """Give the bands that nobody states for a model: as much dearer than its base price as its sibling's are."""
    own, theirs = _dearest_cells(sources), _dearest_cells(sibling)
    bands: Cells = {}
    for (tier, above, unit), price in theirs.items():
        base = ("standard", 0, unit)
        if tier == "standard" and above and base in theirs and base in own:
            bands["standard", above, unit] = per_million(own[base] * price / theirs[base])
    return Facts(cells=bands)


def _dearest_cells(sources: Sources) -> Cells:
    cells: Cells = {}
    for facts in sources.values():
        for cell, price in facts.cells.items():
            cells[cell] = max(price, cells.get(cell, price))
    return cells


def _entry(name: str, sources: Sources, overlay: Overlay, versions: Mapping[str, str]) -> Tree:
    said = overlay.models.get(name, {})
    differs: dict[str, dict[str, str]] = {}
    entry: Tree = {}
    if aliases := _aliases(name, sources, overlay):
        entry["aliases"] = aliases
    for fact in ("context_tokens", "max_output_tokens"):
        least = int(overlay.first(fact, name, 0))  # a source may give the input part of a window only
        values = [getattr(facts, fact) for facts in sources.values()]
        if value := said.get(fact) or max(least, *values):
            entry[fact] = str(value)
    entry |= dict(_sizing(name, said, overlay))
    entry["prices"] = _price_blocks(name, sources, overlay, differs)
    for what in ("geo", "speeds"):
        if factors := _factors(what, name, sources, overlay):
            entry[what] = {word: number(factor) for word, factor in factors.items()}
    if fees := _fees(name, sources, overlay, differs):
        entry["fees"] = fees
    entry["checked"] = overlay.checked.isoformat()
    versions = {**versions, SIBLING: f"bands in proportion to {said.get('bands_like')}"}
    entry["sources"] = {source: versions[source] for source in (GENAI, LITELLM, OVERLAY, SIBLING) if source in sources}
    return entry | ({"differs": differs} if differs else {})


def _sizing(name: str, said: Mapping[str, Any], overlay: Overlay) -> Iterator[tuple[str, Any]]:
    """Give what sizing needs: tokenizer and images."""
    if (tokenizer := overlay.first("tokenizers", name)) is not None:
        yield "tokenizer", tokenizer
    for key in ("image_tokens", "image_rule", "picture_rule"):
        if (value := overlay.first(key, name)) is not None:
            yield key, value
    if "images_beyond_window" in said:
        yield "images_beyond_window", said["images_beyond_window"]


def _aliases(name: str, sources: Sources, overlay: Overlay) -> list[str]:
    """List other names, without those that are a dated snapshot of a listed one: they need no list."""
    names = {alias for facts in sources.values() for alias in facts.aliases} - {name}
    names |= {f"{start}{plain}" for plain in (name, *names) for start in overlay.first("prefixes", name, ())}
    names |= {f"{name}{end}" for end in overlay.first("endings", name, ())}
    bases = {name, *(other for other in names if not _DATED.fullmatch(other))}
    return sorted(other for other in names if not ((dated := _DATED.fullmatch(other)) and dated[1] in bases))


def _factors(what: str, name: str, sources: Sources, overlay: Overlay) -> Mapping[str, Decimal]:
    factors: dict[str, Decimal] = {}
    for facts in sources.values():
        for word, factor in sorted(getattr(facts, what).items()):
            factors[word] = max(factor, factors.get(word, factor))
    if what == "geo":
        for word, text in overlay.first("geo", name, {}).items():
            factors.setdefault(word, Decimal(text))
        if set(factors) == {"fedramp"}:  # only the government region costs more
            return {"eu": Decimal(1), **factors, "us": Decimal(1)}
    return factors


def _fees(name: str, sources: Sources, overlay: Overlay, differs: dict[str, dict[str, str]]) -> dict[str, str]:
    """Write the fees: a source's, under the unit that the provider bills them in, and else the overlay's."""
    units = overlay.first("fee_units", name, {})
    fees: dict[str, Decimal] = {}
    for fee in sorted({fee for facts in sources.values() for fee in facts.fees}):
        values = {source: facts.fees[fee] for source, facts in sources.items() if fee in facts.fees}
        fees[units.get(fee, fee)] = max(values.values())
        _note_difference(differs, fee, values)
    for fee, text in overlay.first("fees", name, {}).items():
        fees.setdefault(fee, Decimal(text))
    return {fee: number(usd) for fee, usd in sorted(fees.items())}


def _price_blocks(name: str, sources: Sources, overlay: Overlay, differs: dict[str, dict[str, str]]) -> list[Tree]:
    """Write the dated prices: earlier and later ones as the dated source has them, those in force merged."""
    dated = sources.get(GENAI, Facts())
    cells: Cells = {}
    for cell in sorted({cell for facts in sources.values() for cell in facts.cells}):
        values = {source: facts.cells[cell] for source, facts in sources.items() if cell in facts.cells}
        cells[cell] = max(values.values())
        _note_difference(differs, _label(cell), values)
    op = overlay.tree.get("op", "gt")
    blocks = [price_block(start, old, op) for start, old in dated.older]
    now = _completed(cells, name, overlay)
    blocks.append(price_block(dated.start, now, op))
    for start, later in dated.later:
        blocks.append(price_block(start, _completed(_moved(now, later), name, overlay), op))
    return blocks


def _completed(cells: Cells, name: str, overlay: Overlay) -> Cells:
    """Fill what is missing on the safe side: no band is cheaper than the base, no dear tier lacks a price."""
    filled = dict(cells)
    for unit, said in overlay.first("fill", name, {}).items():
        if ("standard", 0, unit) not in cells:
            _fill(filled, unit, said)
    for tier, above, unit in list(filled):
        base = filled.get((tier, 0, unit))
        if above and base is None and unit in LIFETIMES:
            del filled[tier, above, unit]  # the price of keeping a cache, under the name of writing it
        elif above and base is not None:
            filled[tier, above, unit] = max(base, filled[tier, above, unit])
    if overlay.tree.get("tiers") == "complete":
        for tier in {tier for tier, _, _ in filled} - {"standard"}:
            _complete_tier(filled, tier)
    return filled


def _fill(cells: Cells, unit: str, said: str) -> None:
    """Price a unit in every band and tier as `said`: "output", what output costs there; else so often the input."""
    like, factor = ("output", Decimal(1)) if said == "output" else ("input", Decimal(said))
    for tier, above, other in list(cells):
        if other == like:
            cells.setdefault((tier, above, unit), per_million(cells[tier, above, like] * factor))


def _complete_tier(cells: Cells, tier: str) -> None:
    """Give a dearer tier the prices that it lacks: as much dearer than standard as its dearest known one is."""
    ratios = [
        price / cells["standard", above, unit]
        for (name, above, unit), price in cells.items()
        if name == tier and ("standard", above, unit) in cells
    ]
    most = max(ratios, default=Decimal(1))
    if most <= 1:
        return
    for (name, above, unit), price in list(cells.items()):
        if name == "standard":
            cells.setdefault((tier, above, unit), per_million(price * most))


def _moved(now: Cells, later: Cells) -> Cells:
    """Bring prices that a later block does not state to its day: as much dearer as the input or the unit becomes."""
    ratios = {
        (above, unit): later[tier, above, unit] / price
        for (tier, above, unit), price in now.items()
        if tier == "standard" and (tier, above, unit) in later
    }
    most = max([*ratios.values(), Decimal(1)])
    moved = {cell: per_million(price * ratios.get((cell[1], cell[2]), most)) for cell, price in now.items()}
    return {**moved, **later}


def _note_difference(differs: dict[str, dict[str, str]], what: str, values: Mapping[str, Decimal]) -> None:
    if len(set(values.values())) > 1:
        differs[what] = {source: number(value) for source, value in values.items()}


def _label(cell: tuple[str, int, str]) -> str:
    """Name a cell in words: "priority input above 272000"."""
    tier, above, unit = cell
    return " ".join(filter(None, [tier if tier != "standard" else "", unit, f"above {above}" if above else ""]))

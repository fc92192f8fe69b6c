"""Newer prices out of the installed price data packages: what they change, and writing it beside the shipped table.

`changes` compares, `apply` writes `<folder>/<provider>.yaml` in the form of the shipped files, with source and day;
`PriceTable.load(…, updates=folder)` lays them over the shipped entries, below the user's own `pricing:`. Old prices
stay for old receipts: what is taken begins on the day it was taken. Nothing gets cheaper unless `lower` says so.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as extra
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from lockpin_core.errors import PriceError
from lockpin_core.price_bands import WORDS, Flat, in_words, rising
from lockpin_core.price_entry import read_entry
from lockpin_core.price_merge import UNREADABLE, merged
from lockpin_core.price_overlay import Overlay
from lockpin_core.price_sources import GENAI, LITELLM, Packages, installed, per_million
from lockpin_core.price_table import PriceTable
from lockpin_core.price_tree import Tree, number, write_models
from lockpin_core.prices import shipped_dir
from lockpin_core.provider_files import read_yaml

type Kind = Literal["dearer", "cheaper", "new", "gone", "unreadable"]

_LONGEST = 160  # characters of a fault that are shown
_FACTS = ("context_tokens", "max_output_tokens", "image_tokens")
_GROUPS = ("geo", "speeds", "fees")
_LIFETIMES = {"5m", "30m", "1h", "12h"}


@dataclass(frozen=True, slots=True)
class Update:
    """A model as the table has it and as the packages have it; None: not there. `day`: when it is taken.

    `is_part`: a package is missing, so that what the new side leaves out is not gone.
    """

    provider: str
    model: str
    old: Tree | None
    new: Tree | None
    day: date
    is_part: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. `start` None: from the day on that it is taken; `field` "": the whole model."""

    provider: str
    model: str
    field: str
    before: str | None
    after: str | None
    kind: Kind
    start: date | None = None
    update: Update | None = extra(default=None, repr=False, compare=False)


def overlays(folder: Path) -> list[Overlay]:
    """Read the hand-kept facts of every provider. Raises PriceError naming the file."""
    trees = [(path, read_yaml(path.name, path.read_text("utf-8"))) for path in sorted(folder.glob("overlay/*.yaml"))]
    return [Overlay(path.stem, tree) for path, tree in trees if isinstance(tree, dict)]


def changes(table: PriceTable, sources: Packages | None = None, *, today: date) -> Sequence[Change]:
    """List what the installed packages (`sources` None: found here) would change in the table, by provider and model.

    A model is gone only where both packages are installed and neither has it; where one is missing, what it alone
    knew stays.
    """
    packages = sources or installed()
    if packages.is_empty():
        return []
    fresh = merged([_on_day(overlay, today) for overlay in overlays(shipped_dir())], packages)
    news = {provider: made.entries for provider, made in fresh.items()}
    olds: dict[str, dict[str, Tree]] = {
        provider: {model: dict(shelf.written(model)) for model in shelf} for provider, shelf in table.shipped.items()
    }
    is_part = not packages.is_whole()
    odd = {
        provider: {model: reason for model, reason in made.left_out.items() if reason == UNREADABLE}
        | _faults(provider, made.entries)
        for provider, made in fresh.items()
    }
    found: list[Change] = []
    for provider in sorted(news):
        owners = {alias: model for model, entry in olds[provider].items() for alias in entry.get("aliases", ())}
        for model in sorted({*olds[provider], *news[provider], *odd[provider]}):
            old, new = olds[provider].get(model), _parted(model, news[provider].get(model), olds[provider], owners)
            fault = odd[provider].get(model) or _fault_of_maker(new, odd)
            if fault is None and old is None and model in owners:
                fault = f"is another name of {owners[model]} here"
            if fault is not None:
                found.append(_unreadable(provider, model, fault))
            elif (new is not None or not is_part) and not _is_known(old, packages):
                if old is not None and new is not None and old.get("same_as") != new.get("same_as"):
                    old, new = _resolved(old, olds), _resolved(new, news)
                found += _rows(Update(provider, model, old, new, today, is_part))
    return found


def apply(changes: Sequence[Change], folder: Path, *, lower: bool = False) -> int:
    """Write the models of these changes to the folder of later prices; gives how many are written.

    Without `lower` what would get cheaper or smaller keeps its value, and the rest of its model is taken. What is gone
    stays in either case: a price that is known is safer than none. A model of which nothing is taken is not written.
    """
    updates = {(change.provider, change.model): change.update for change in changes if change.update is not None}
    taken: dict[str, dict[str, Tree]] = {}
    for update in updates.values():
        if update.new is not None and not _is_same(update, entry := _entry(update, lower=lower)):
            taken.setdefault(update.provider, {})[update.model] = entry
    texts = {f"{provider}.yaml": _text(folder, provider, entries) for provider, entries in taken.items()}
    _prove(folder, texts)
    try:
        for name, text in texts.items():
            folder.mkdir(parents=True, exist_ok=True)
            _write(folder / name, text)
    except OSError as error:
        raise PriceError(f"newer prices cannot be written to {folder}: {error.strerror}") from error
    return sum(map(len, taken.values()))


def _is_same(update: Update, entry: Tree) -> bool:
    """Say whether an entry says no more than the old one, whose day and sources may be others."""
    old = update.old
    if old is None or ("prices" in old) != ("prices" in entry) or old.get("same_as") != entry.get("same_as"):
        return False
    if _facts(old) != _facts(entry) or set(old.get("aliases", ())) != set(entry.get("aliases", ())):
        return False
    return "prices" not in old or all(_in_force(old, day) == _in_force(entry, day) for day in _starts(update))


def _is_known(old: Tree | None, packages: Packages) -> bool:
    """Say whether an entry was made of these very packages, and of others that are not here."""
    if old is None or packages.is_whole():
        return False
    here = {name: packages.versions[name] for name in (GENAI, LITELLM) if name in packages.versions}
    made_of = old["sources"].keys() & {GENAI, LITELLM}
    return bool(made_of - here.keys()) and all(old["sources"].get(name) == version for name, version in here.items())


def _resolved(entry: Tree, trees: Mapping[str, Mapping[str, Tree]]) -> Tree:
    """Give an entry that is the same as its maker's the prices of the maker."""
    if "same_as" not in entry:
        return entry
    maker, _, model = entry["same_as"].partition("/")
    return {key: value for key, value in entry.items() if key != "same_as"} | {"prices": trees[maker][model]["prices"]}


def _parted(model: str, entry: Tree | None, names: Collection[str], owners: Mapping[str, str]) -> Tree | None:
    """Leave out of an entry's aliases what is a name of another model already."""
    if entry is None or "aliases" not in entry:
        return entry
    free = [alias for alias in entry["aliases"] if alias not in names and owners.get(alias, model) == model]
    return {key: value for key, value in entry.items() if key != "aliases"} | ({"aliases": free} if free else {})


def _on_day(overlay: Overlay, day: date) -> Overlay:
    return Overlay(overlay.provider, {**overlay.tree, "checked": day.isoformat()})


def _fault(provider: str, model: str, entry: Tree) -> str | None:
    """Say what a price file must not have of an entry."""
    try:
        read_entry(f"{provider}: {model}", entry)
    except PriceError as error:
        return str(error)[:_LONGEST]
    return None


def _faults(provider: str, entries: Mapping[str, Tree]) -> dict[str, str]:
    found = ((model, _fault(provider, model, entry)) for model, entry in entries.items())
    return {model: fault for model, fault in found if fault is not None}


def _fault_of_maker(entry: Tree | None, faults: Mapping[str, Mapping[str, str]]) -> str | None:
    """Say whether an entry stands on one that cannot be taken."""
    maker, _, model = (entry or {}).get("same_as", "").partition("/")
    return f"the same as {maker}/{model}, which cannot be read" if model in faults.get(maker, {}) else None


def _unreadable(provider: str, model: str, fault: str) -> Change:
    return Change(provider, model, fault, None, None, "unreadable")


def _rows(update: Update) -> list[Change]:
    """List the differences of one model, or that what would be written of it could not be read again."""
    rows = list(_changes_of(update))
    if rows and update.old is not None and update.new is not None:
        for lower in (False, True):
            if (fault := _fault(update.provider, update.model, _entry(update, lower=lower))) is not None:
                return [_unreadable(update.provider, update.model, fault)]
    return rows


def _prove(folder: Path, texts: Mapping[str, str]) -> None:
    """Load the table that would be, so that nothing is written that cannot be read again. Raises PriceError."""
    with tempfile.TemporaryDirectory() as trial:
        before = {path.name: path.read_text("utf-8") for path in folder.glob("*.yaml")}
        for name, text in {**before, **texts}.items():
            (Path(trial) / name).write_text(text, "utf-8")
        try:
            PriceTable.load(shipped_dir(), updates=Path(trial))
        except PriceError as error:
            words = str(error).removeprefix(f"{trial}: ").split("; removing", 1)[0]
            raise PriceError(f"the newer prices do not fit together, so nothing was written: {words}") from error


def _text(folder: Path, provider: str, entries: Mapping[str, Tree]) -> str:
    """Write one file with what it had before."""
    path = folder / f"{provider}.yaml"
    before: Any = read_yaml(path.name, path.read_text("utf-8")) if path.exists() else {}
    models = {**(before.get("models") or {}), **entries}
    text = "# Later prices than the shipped ones, from `lockpin prices update`. Removing this file takes them back.\n"
    return text + f"provider: {provider}\nmodels:\n{write_models(dict(sorted(models.items())), in_lines=True)}"


def _write(path: Path, text: str) -> None:
    """Write a file whole, and put it in place at once."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text, "utf-8")
    fresh.replace(path)


def _changes_of(update: Update) -> Iterator[Change]:
    """List the differences of one model: of its facts, of the prices on the day, and of those at each later start."""
    if update.old is None or update.new is None:
        kind: Kind = "new" if update.old is None else "gone"
        yield Change(update.provider, update.model, "", None, None, kind, None, update)
        return
    said: dict[str, str | None] = {}
    for start, before, after in _sides(update):
        for what in sorted({**before, **after}):
            old, new = before.get(what), after.get(what)
            if old != new and (what not in said or said[what] != new) and not (update.is_part and new is None):
                said[what] = new
                yield Change(update.provider, update.model, what, old, new, _kind(old, new), start, update)


def _sides(update: Update) -> Iterator[tuple[date | None, Flat, Flat]]:
    """Walk both sides: the facts, and the prices in force at each instant from the day on at which one begins."""
    assert update.old is not None and update.new is not None, "both sides are there"
    yield None, _facts(update.old), _facts(update.new)
    if "prices" in update.old and "prices" in update.new:
        for start in _starts(update):
            later = None if start == update.day else start
            yield later, _in_force(update.old, start), _in_force(update.new, start)


def _kind(before: str | None, after: str | None) -> Kind:
    if before is None:
        return "new"
    if after is None:
        return "gone"
    return "dearer" if Decimal(after) > Decimal(before) else "cheaper"


def _starts(update: Update) -> list[date]:
    blocks = [block for tree in (update.old, update.new) if tree for block in tree["prices"]]
    later = {date.fromisoformat(block["from"]) for block in blocks if "from" in block}
    return sorted({update.day, *(start for start in later if start > update.day)})


def _in_force(tree: Tree, day: date) -> Flat:
    begun = [block for block in tree["prices"] if block.get("from", "") <= day.isoformat()]
    return _flat(begun[-1] if begun else tree["prices"][0])


def _facts(tree: Tree) -> Flat:
    """Give what is no price by the token: windows, fees and factors."""
    facts = {fact: tree[fact] for fact in _FACTS if fact in tree}
    return facts | {f"{group}.{name}": value for group in _GROUPS for name, value in tree.get(group, {}).items()}


def _flat(block: Tree) -> Flat:
    """Write a block of prices as words and values; a tier that is a factor is written out."""
    standard = dict(_sheet(block))
    flat = {in_words(None, *cell): price for cell, price in standard.items()}
    for tier, tree in block.get("tiers", {}).items():
        cells = _times(standard, Decimal(tree["x"])) if "x" in tree else dict(_sheet(tree))
        flat |= {in_words(tier, *cell): price for cell, price in cells.items()}
    return flat


def _times(cells: Mapping[tuple[str, str], str], factor: Decimal) -> dict[tuple[str, str], str]:
    return {cell: number(per_million(Decimal(usd) * factor)) for cell, usd in cells.items()}


def _sheet(tree: Tree, band: str = "") -> Iterator[tuple[tuple[str, str], str]]:
    """Walk (unit, band) and price of one tier."""
    for unit, value in tree.items():
        if unit == "cache_write":
            yield from (((lifetime, band), price) for lifetime, price in value.items())
        elif unit == "above":
            for row in value:
                word = "from" if row.get("op") == "gte" else "above"
                yield from _sheet(
                    {k: v for k, v in row.items() if k not in ("tokens", "op")}, f"{word} {row['tokens']}"
                )
        elif unit not in ("from", "tiers", "note"):
            yield (unit, band), value


def _entry(update: Update, *, lower: bool) -> Tree:
    """Make the entry that is written: the new one, or the old one with what may be taken of the new."""
    assert update.new is not None, "what is gone is not written"
    if update.old is None:
        return update.new
    kept = {key: value for key, value in update.old.items() if key not in ("prices", "differs", *_FACTS, *_GROUPS)}
    facts = _taken(update, _facts(update.old), _facts(update.new), lower=lower)
    entry = {**kept, **_unflat_facts(facts), "sources": update.new["sources"], "checked": update.day.isoformat()}
    if "prices" in update.old:
        entry["prices"] = _blocks(update, lower=lower)
    names = sorted({*update.old.get("aliases", ()), *update.new.get("aliases", ())})
    return entry | ({"aliases": names} if names else {})


def _blocks(update: Update, *, lower: bool) -> list[Tree]:
    """Give the old blocks up to the day, and from then on one wherever what is in force changes."""
    assert update.old is not None and update.new is not None, "both sides are there"
    blocks: list[Tree] = [b for b in update.old["prices"] if b.get("from", "") < update.day.isoformat()]
    current = _flat(blocks[-1]) if blocks else {}
    for start in _starts(update):
        before, after = _in_force(update.old, start), _in_force(update.new, start)
        then = rising(_taken(update, before, after, lower=lower), () if lower else (before, after))
        if then != current:
            blocks.append(_unflat(then, start))
            current = then
    return blocks


def _taken(update: Update, before: Flat, after: Flat, *, lower: bool) -> Flat:
    """Lay the new values over the old ones: the dearer of two, or the new one where it may be lower."""
    found = {**before, **after}
    for what in before:
        new = after.get(what)
        if new is None and lower and not update.is_part:
            del found[what]
        elif new is None:
            found[what] = _moved(before, what, after)
        elif not lower and Decimal(new) < Decimal(before[what]):
            found[what] = before[what]
    return found


def _moved(before: Flat, what: str, after: Flat) -> str:
    """Give a tier's or band's value that the new side leaves out: as much dearer as the unit's standard price got."""
    match = WORDS.fullmatch(what)
    unit = match["unit"] if match is not None else what
    if unit not in before or unit not in after or Decimal(after[unit]) <= Decimal(before[unit]):
        return before[what]
    usd = Decimal(before[what]) * Decimal(after[unit]) / Decimal(before[unit])
    return number(per_million(usd))


def _unflat_facts(flat: Flat) -> Tree:
    tree: Tree = {}
    for what, value in flat.items():
        group, dot, name = what.partition(".")
        if dot:
            tree.setdefault(group, {})[name] = value
        else:
            tree[what] = value
    return tree


def _unflat(flat: Flat, start: date) -> Tree:
    """Write words and values as a block of prices."""
    tree: Tree = {"from": start.isoformat()}
    for words, value in flat.items():
        match = WORDS.fullmatch(words)
        assert match is not None, words
        home = tree if match["tier"] is None else tree.setdefault("tiers", {}).setdefault(match["tier"], {})
        if match["op"] is not None:
            home = _row(home, match["tokens"], "gte" if match["op"] == "from" else "gt")
        if match["unit"] in _LIFETIMES:
            home.setdefault("cache_write", {})[match["unit"]] = value
        else:
            home[match["unit"]] = value
    return tree


def _row(home: Tree, tokens: str, op: str) -> Tree:
    """Find or make a band's row, in order of its tokens."""
    rows: list[Tree] = home.setdefault("above", [])
    row = next((each for each in rows if (each["tokens"], each["op"]) == (tokens, op)), None)
    if row is None:
        row = {"tokens": tokens, "op": op}
        rows.append(row)
        rows.sort(key=lambda each: int(each["tokens"]) + (each["op"] == "gt"))
    return row

"""One provider's shipped models, each read from its file's text when it is first asked for.

There are thousands of them and a proxy meets a few: an index of names is made at the start, and an entry is read once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime

from lockpin_core.errors import PriceError
from lockpin_core.names import shown
from lockpin_core.price_entry import ONE, STANDARD, DatedPrice, Entry, Factor, ImageRule, Rates, read_entry
from lockpin_core.price_factors import in_force, largest, with_shipped
from lockpin_core.provider_files import read_yaml
from lockpin_core.usage import PIECE_UNITS, Unit

_SNAPSHOT = re.compile(r"(?P<id>.+?)[-@](?:(\d{4})-(\d{2})-(\d{2})|(\d{4})(\d{2})(\d{2}))")
# What the index reads of the text: where an entry begins, its other names, and what is needed of all entries at once.
_ENTRY = re.compile(r"^  (?:'([^'\n]+)'|\"([^\"\n]+)\"|([^\s'\"#{\[&*!|>%@`,-][^\n]*?)):(?= |$)", re.MULTILINE)
_ALIASES = re.compile(r"aliases: \[([^\]]*)\]")
_GEO = re.compile(r"geo: \{([^}]*)\}")
_CHECKED = re.compile(r"checked: '?(\d{4}-\d{2}-\d{2})")
_NOTHING = frozenset({"", "{}", "null", "~"})


@dataclass(frozen=True, slots=True)
class TermRules:
    """How a vendor's words about tier and region become ours; the same for all its models."""

    tier_names: Mapping[str, str] = field(default_factory=dict)  # {"fast": "priority"}; "unsaid": as if not said
    unsaid_tiers: tuple[str, ...] = (STANDARD,)  # tiers that a request without a word may get
    unsaid_geos: tuple[str, ...] = ()  # regions that a request without a word may be served in
    dearest_geo: Factor = ONE  # what a region costs where a model has no factor for any: the most of all its models


@dataclass(frozen=True, slots=True)
class Model:
    """A priced model; None stands for what nobody has said."""

    provider: str
    id: str
    prices: tuple[DatedPrice, ...]  # by `start`
    context_tokens: int | None = None
    max_output_tokens: int | None = None
    tokenizer: str = "claude"  # see TOKENIZERS
    image_tokens: int | None = None  # no image takes more
    image_rule: ImageRule | None = None  # what an image of a known size takes
    picture_rule: ImageRule | None = None  # what a picture that it draws takes
    images_beyond_window: bool = False  # an image is billed as more tokens than it takes of the context window
    speeds: Mapping[str, Factor] = field(default_factory=dict)
    geos: Mapping[str, Factor] = field(default_factory=dict)
    fees: Rates = field(default_factory=dict)  # picodollars a piece
    rules: TermRules = TermRules()
    user: bool = False  # from the user's configuration
    checked: date | None = None

    @property
    def piece(self) -> Unit | None:
        """Give what it bills by where that is not tokens: the second or the character."""
        rates = self.prices[0].tiers[STANDARD].bands[0].rates
        return None if Unit.INPUT in rates else next((unit for unit in sorted(PIECE_UNITS) if unit in rates), None)

    def price_at(self, at: datetime) -> DatedPrice:
        """Give the prices in force at an instant; before the first date, the first."""
        return in_force(self.prices, at)

    def prices_between(self, at: datetime, until: datetime) -> list[DatedPrice]:
        """Give all prices in force at some instant of a span."""
        later = [price for price in self.prices if price.start is not None and at < price.start <= until]
        return [self.price_at(at), *later]


class Shelf(Mapping[str, Model]):
    """The models of one file, by id; `names` are their other names.

    `resale_fees` are what its tools cost at least where a model's price is another vendor's.

    Raises PriceError, naming file and entry, when it is made and when an entry is first read.
    """

    def __init__(self, file: str, tree: Mapping[str, object], newer: Mapping[str, object] | None = None) -> None:
        """Index a file; the entries of `newer`, a file of later prices, stand in place of its own."""
        self.provider = str(tree["provider"])
        self.file = file
        blocks = [models for each in (tree, newer or {}) if (models := each.get("models", {})) != {}]
        self.newer = frozenset(_texts(file, newer["models"])) if newer and newer.get("models") else frozenset()
        self._texts: dict[str, str] = {}
        for models in blocks:
            self._texts |= _texts(file, models)
        text = "\n".join(models for models in blocks if isinstance(models, str))
        self._models: dict[str, Model] = {}
        self._entries: dict[str, Entry] = {}
        self.names = self._aliases()
        self._dearest_geo = _dearest_geo(file, text)
        self.rules = _term_rules(file, tree, self._dearest_geo)
        self.resale_fees = read_entry(f"{file}: resale_fees", {"fees": tree.get("resale_fees", {})}).fees
        self.checked = max((date.fromisoformat(day) for day in set(_CHECKED.findall(text))), default=None)

    def __contains__(self, key: object) -> bool:
        return key in self._texts

    def __getitem__(self, key: str) -> Model:
        if key not in self._models:
            entry = self.entry(key)
            if not entry.blocks:
                raise KeyError(key)  # no price: unknown, not free
            self._models[key] = model_of(self.provider, key, entry, self.rules)
        return self._models[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def entry(self, key: str) -> Entry:
        """Give an entry as the file has it, also one that is `same_as` another. Raises KeyError where there is none."""
        if key not in self._entries:
            self._entries[key] = self._read(key)
        return self._entries[key]

    def written(self, key: str) -> Mapping[str, object]:
        """Give an entry's tree as it is written. Raises KeyError where there is none."""
        tree = read_yaml(self.file, self._texts[key])
        if not isinstance(tree, dict) or tree.keys() != {key} or not isinstance(tree[key], dict):
            raise PriceError(f"{self.file}: {key} is {shown(repr(tree))}; an entry indented by two spaces is allowed")
        found: Mapping[str, object] = tree[key]
        return found

    def known(self, name: str) -> str | None:
        """Find the id that a name stands for: itself, an alias, or either with a snapshot's date."""
        found = self._named(name)
        if found is None and (plain := undated(name)) is not None:
            found = self._named(plain)
        return found

    def _named(self, name: str) -> str | None:
        return name if name in self._texts else self.names.get(name)

    def _read(self, key: str) -> Entry:
        entry = read_entry(f"{self.file}: {key}", self.written(key))
        if entry.checked is None or not entry.sources:
            raise PriceError(f"{self.file}: {key} must say when it was checked and its sources")
        if any(self.names.get(alias) != key for alias in entry.aliases):
            raise PriceError(f"{self.file}: {key} must list its aliases as [one, two]")
        if largest([self._dearest_geo, *entry.geos.values()]) != self._dearest_geo:
            raise PriceError(f"{self.file}: {key} must list its regions as {{one: '1', two: '1.1'}}")
        return entry

    def _aliases(self) -> dict[str, str]:
        names: dict[str, str] = {}
        for key, text in self._texts.items():
            for listed in _ALIASES.findall(text) if "aliases" in text else ():
                for alias in filter(None, (name.strip().strip("'\"") for name in listed.split(","))):
                    if names.setdefault(alias, key) != key:
                        raise PriceError(f"{self.file}: {key} and {names[alias]} share the alias {alias}")
        if clash := self._texts.keys() & names.keys():
            raise PriceError(f"{self.file}: {min(clash)} is both a model and an alias")
        return names


def undated(name: str) -> str | None:
    """Take a snapshot's date off a name; None where there is none."""
    match = _SNAPSHOT.fullmatch(name)
    if match is None:
        return None
    year, month, day = (int(part) for part in match.groups()[1:] if part is not None)
    try:
        date(year, month, day)
    except ValueError:
        return None
    return match["id"]


def model_of(provider: str, key: str, entry: Entry, rules: TermRules, *, user: bool = False) -> Model:
    """Make a model of its entry."""
    return Model(
        provider=provider,
        id=key,
        prices=entry.blocks,
        context_tokens=entry.context_tokens,
        max_output_tokens=entry.max_output_tokens,
        tokenizer=entry.tokenizer or "claude",
        image_tokens=entry.image_tokens,
        image_rule=entry.image_rule,
        picture_rule=entry.picture_rule,
        images_beyond_window=entry.images_beyond_window,
        speeds=entry.speeds,
        geos=entry.geos,
        fees=entry.fees,
        rules=rules,
        user=user,
        checked=entry.checked,
    )


def joined(own: Model, entry: Entry, known: Model) -> Model:
    """Lay a model's entry over another model: what the entry leaves out is that model's.

    Prices and fees are the entry's alone where it has prices; bands, tiers, speeds and regions that it does not name
    are the other model's, as factors of its prices.
    """
    return replace(
        known,
        provider=own.provider,
        id=own.id,
        prices=with_shipped(own.prices, known.prices) if own.prices else known.prices,
        speeds={**known.speeds, **own.speeds},
        geos={**known.geos, **own.geos},
        fees=own.fees if own.prices else {**known.fees, **own.fees},
        context_tokens=own.context_tokens or known.context_tokens,
        max_output_tokens=own.max_output_tokens or known.max_output_tokens,
        tokenizer=entry.tokenizer or known.tokenizer,
        image_tokens=known.image_tokens if own.image_tokens is None else own.image_tokens,
        image_rule=own.image_rule or known.image_rule,
        picture_rule=own.picture_rule or known.picture_rule,
        images_beyond_window=own.images_beyond_window or known.images_beyond_window,
        user=own.user,
        checked=own.checked if own.prices else known.checked,
    )


def _texts(file: str, models: object) -> dict[str, str]:
    """Cut a block of entries into their texts by key; an empty entry has no price and is left out."""
    if not isinstance(models, str):
        raise PriceError(f"{file}: models is {shown(repr(models))}; a mapping of entries is allowed")
    found = list(_ENTRY.finditer(models))
    before = models[: found[0].start()] if found else models
    if any(line.strip() and not line.lstrip().startswith("#") for line in before.splitlines()):
        raise PriceError(f"{file}: models is {shown(repr(read_yaml(file, models)))}; a mapping of entries is allowed")
    texts: dict[str, str] = {}
    for i, match in enumerate(found):
        end = found[i + 1].start() if i + 1 < len(found) else len(models)
        if models[match.end() : end].strip() not in _NOTHING:
            texts[next(filter(None, match.groups()))] = models[match.start() : end]
    return texts


def _dearest_geo(file: str, text: str) -> Factor:
    pairs = {pair.partition(":")[2].strip(" \n'\"") for listed in _GEO.findall(text) for pair in listed.split(",")}
    return largest(read_entry(file, {"geo": {"x": factor}}).geos["x"] for factor in pairs)


def _term_rules(file: str, tree: Mapping[str, object], dearest_geo: Factor) -> TermRules:
    names, tiers, geos = tree.get("tier_names", {}), tree.get("unsaid_tiers", [STANDARD]), tree.get("unsaid_geos", [])
    if not isinstance(names, dict) or not isinstance(tiers, list) or not isinstance(geos, list):
        raise PriceError(f"{file}: tier_names must be a mapping, unsaid_tiers and unsaid_geos lists")
    if "unlisted_geo" in tree:  # of a vendor whose models all say it: then the others are users', at their own prices
        dearest_geo = read_entry(file, {"geo": {"x": tree["unlisted_geo"]}}).geos["x"]
    return TermRules(names, tuple(tiers), tuple(geos), dearest_geo)

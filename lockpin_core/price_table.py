"""What models cost and can do, as data, and finding one by name.

Reads `pricing/*.yaml` and the user's `pricing:` entries. Knows no calls; `prices` computes with what stands here.
A user's entry for a shipped model replaces its prices; the bands, tiers, speeds and regions that the entry does not
name stay the shipped model's, relative to its standard price. An entry for any other model stands by itself.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from fnmatch import fnmatchcase
from pathlib import Path

from lockpin_core.errors import PriceError
from lockpin_core.price_entry import ONE, STANDARD, DatedPrice, Entry, Factor, Rates, read_entry
from lockpin_core.price_factors import in_force, largest, with_shipped
from lockpin_core.providers import read_files

_SNAPSHOT = re.compile(r"(?P<id>.+?)-(?:(\d{4})-(\d{2})-(\d{2})|(\d{4})(\d{2})(\d{2}))")


@dataclass(frozen=True, slots=True)
class TermRules:
    """How a vendor's words about tier and region become ours; the same for all its models."""

    tier_names: Mapping[str, str] = field(default_factory=dict)  # {"fast": "priority"}; "unsaid": as if not said
    unsaid_tiers: tuple[str, ...] = (STANDARD,)  # tiers that a request without a word may get
    unsaid_geos: tuple[str, ...] = ()  # regions that a request without a word may be served in
    dearest_geo: Factor = ONE  # of all the vendor's models: what a region costs where a model has no factor for any


@dataclass(frozen=True, slots=True)
class Model:
    """A priced model; None stands for what nobody has said."""

    provider: str
    id: str
    prices: tuple[DatedPrice, ...]  # by `start`
    context_tokens: int | None = None
    max_output_tokens: int | None = None
    tokenizer: str = "claude"  # "bytes": a byte is at most a token; "claude": 4/3 of the NFC bytes
    image_tokens: int | None = None  # no image takes more
    images_beyond_window: bool = False  # an image is billed as more tokens than it takes of the context window
    speeds: Mapping[str, Factor] = field(default_factory=dict)
    geos: Mapping[str, Factor] = field(default_factory=dict)
    fees: Rates = field(default_factory=dict)  # picodollars a piece
    rules: TermRules = TermRules()
    user: bool = False  # from the user's configuration
    checked: date | None = None

    def price_at(self, at: datetime) -> DatedPrice:
        """Give the prices in force at an instant; before the first date, the first."""
        return in_force(self.prices, at)

    def prices_between(self, at: datetime, until: datetime) -> list[DatedPrice]:
        """Give all prices in force at some instant of a span."""
        later = [price for price in self.prices if price.start is not None and at < price.start <= until]
        return [self.price_at(at), *later]


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Every priced model: the user's first, then the shipped ones."""

    shipped: Mapping[str, Mapping[str, Model]]  # provider → id → model
    _names: Mapping[str, Mapping[str, Model]]  # provider → shipped alias → model
    _rules: Mapping[str, TermRules]
    _user: Mapping[str, Entry]
    _aliases: Mapping[str, Mapping[str, str]]
    date: date  # the newest day on which a shipped price was checked
    _joined: dict[tuple[str, str, str, str], Model] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def load(
        cls,
        folder: Path,
        user_pricing: Mapping[str, object] | None = None,
        aliases: Mapping[str, Mapping[str, str]] | None = None,
    ) -> PriceTable:
        """Read the shipped files and lay the user's entries over them.

        `user_pricing` is the configuration's `pricing:`, scalars as text; `aliases` its `models:`.
        Raises PriceError naming file, entry and what is allowed.
        """
        shipped: dict[str, dict[str, Model]] = {}
        names: dict[str, dict[str, Model]] = {}
        rules: dict[str, TermRules] = {}
        for file, tree in read_files(folder):
            provider = str(tree["provider"])
            entries = _shipped_entries(file, tree.get("models", {}))
            rules[provider] = _term_rules(file, tree, entries)
            shipped[provider], names[provider] = _shipped_models(file, provider, entries, rules[provider])
        user = {key: read_entry(f"pricing.{key}", value) for key, value in (user_pricing or {}).items()}
        checked = [model.checked for known in shipped.values() for model in known.values() if model.checked]
        return cls(shipped, names, rules, user, aliases or {}, max(checked, default=date.min))

    def find(self, provider: str, model: str, at: datetime | None = None) -> Model | None:
        """Find a model's prices by the name a call uses; None: nobody has named its price.

        Order: the user's exact id (also for a dated snapshot or shipped alias of it), the user's globs, the user's
        alias, then the shipped id, alias and dated snapshot. A name that merely begins like a known one is unknown.
        """
        known = self._shipped_model(provider, model)
        target = self._aliases.get(provider, {}).get(model)
        own = self._user_model(provider, model, known, is_alias=target is not None)
        if own is not None:
            return own
        return known if target is None else self._alias_target(provider, target)

    def nearest(self, name: str, n: int = 3) -> list[str]:
        """Suggest known names like this one."""
        known = {key for key in self._user if "*" not in key}
        for table in (*self.shipped.values(), *self._names.values()):
            known |= table.keys()
        return difflib.get_close_matches(name, sorted(known), n, 0.6)

    def models(self) -> Sequence[Model]:
        """List the user's models, then the shipped ones, by provider and id."""
        own = [_model("", key, entry, TermRules(), user=True) for key, entry in sorted(self._user.items())]
        return own + [models[key] for _, models in sorted(self.shipped.items()) for key in sorted(models)]

    def _user_model(self, provider: str, model: str, known: Model | None, *, is_alias: bool = False) -> Model | None:
        """Find the user's entry for a name; `known` is the shipped model of that name."""
        base = known.id if known is not None else _undated(model)
        if base is not None and base in self._user and model not in self._user and not is_alias:
            model = base
        key = model if model in self._user else self._glob(model)
        if key is None:
            return None
        if known is not None:
            return self._join(provider, key, known, model)
        rules = self._rules.get(provider, TermRules())
        entry = self._user[key]
        return _model(provider, model, entry, rules, user=True) if entry.blocks else None  # empty: no price

    def _glob(self, model: str) -> str | None:
        globs = [key for key in self._user if "*" in key and fnmatchcase(model, key)]
        return max(globs, key=len, default=None)

    def _join(self, provider: str, key: str, known: Model, model: str) -> Model:
        """Join the user's entry and a shipped model, once for each pair: there are only so many."""
        pair = (provider, key, known.provider, known.id)
        if pair not in self._joined:
            own = _model(provider, key, self._user[key], known.rules, user=True)
            self._joined[pair] = _joined(own, self._user[key], known)
        joined = self._joined[pair]
        return joined if joined.id == model else replace(joined, id=model)

    def _alias_target(self, provider: str, target: str) -> Model | None:
        known = self._shipped_model(provider, target)
        if known is None:
            others = [model for name in self.shipped if (model := self._shipped_model(name, target)) is not None]
            known = others[0] if len(others) == 1 else None
        return self._user_model(provider, target, known) or known

    def _shipped_model(self, provider: str, model: str) -> Model | None:
        ids, names = self.shipped.get(provider, {}), self._names.get(provider, {})
        found = ids.get(model) or names.get(model)
        if found is None and (base := _undated(model)) is not None:
            found = ids.get(base) or names.get(base)
        return found


def _undated(name: str) -> str | None:
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


def _shipped_entries(file: str, models: object) -> dict[str, Entry]:
    if not isinstance(models, dict):
        raise PriceError(f"{file}: models is {models!r}; a mapping of entries is allowed")
    entries = {key: read_entry(f"{file}: {key}", value) for key, value in models.items()}
    return {key: entry for key, entry in entries.items() if entry.blocks}  # no price: unknown, not free


def _shipped_models(
    file: str, provider: str, entries: Mapping[str, Entry], rules: TermRules
) -> tuple[dict[str, Model], dict[str, Model]]:
    ids: dict[str, Model] = {}
    names: dict[str, Model] = {}
    for key, entry in entries.items():
        if entry.checked is None or not entry.sources:
            raise PriceError(f"{file}: {key} must say when it was checked and its sources")
        ids[key] = _model(provider, key, entry, rules)
        for alias in entry.aliases:
            if names.setdefault(alias, ids[key]) is not ids[key]:
                raise PriceError(f"{file}: {key} and {names[alias].id} share the alias {alias}")
    clash = ids.keys() & names.keys()
    if clash:
        raise PriceError(f"{file}: {min(clash)} is both a model and an alias")
    return ids, names


def _joined(own: Model, entry: Entry, known: Model) -> Model:
    """Lay a user's model over the shipped one of its name: what the entry leaves out is the shipped model's.

    Prices and fees are the entry's alone where it has prices; bands, tiers, speeds and regions that it does not name
    are the shipped ones, as factors of its prices.
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
        images_beyond_window=own.images_beyond_window or known.images_beyond_window,
        user=True,
        checked=own.checked if own.prices else known.checked,
    )


def _model(provider: str, key: str, entry: Entry, rules: TermRules, *, user: bool = False) -> Model:
    return Model(
        provider=provider,
        id=key,
        prices=entry.blocks,
        context_tokens=entry.context_tokens,
        max_output_tokens=entry.max_output_tokens,
        tokenizer=entry.tokenizer or "claude",
        image_tokens=entry.image_tokens,
        images_beyond_window=entry.images_beyond_window,
        speeds=entry.speeds,
        geos=entry.geos,
        fees=entry.fees,
        rules=rules,
        user=user,
        checked=entry.checked,
    )


def _term_rules(file: str, tree: Mapping[str, object], entries: Mapping[str, Entry]) -> TermRules:
    names, tiers, geos = tree.get("tier_names", {}), tree.get("unsaid_tiers", [STANDARD]), tree.get("unsaid_geos", [])
    if not isinstance(names, dict) or not isinstance(tiers, list) or not isinstance(geos, list):
        raise PriceError(f"{file}: tier_names must be a mapping, unsaid_tiers and unsaid_geos lists")
    dearest = largest(factor for entry in entries.values() for factor in entry.geos.values())
    return TermRules(names, tuple(tiers), tuple(geos), dearest)

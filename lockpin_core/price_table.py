"""What models cost and can do, as data, and finding one by name.

Reads `pricing/*.yaml` and the user's `pricing:` entries. Knows no calls; `prices` computes with what stands here.
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
from lockpin_core.price_entry import STANDARD, DatedPrice, Entry, Factor, Rates, read_entry
from lockpin_core.providers import read_files

_SNAPSHOT = re.compile(r"(?P<id>.+?)-(?:(\d{4})-(\d{2})-(\d{2})|(\d{4})(\d{2})(\d{2}))")


@dataclass(frozen=True, slots=True)
class TermRules:
    """How a vendor's words about tier and region become ours; the same for all its models."""

    tier_names: Mapping[str, str] = field(default_factory=dict)  # {"fast": "priority"}; "unsaid": as if not said
    unsaid_tiers: tuple[str, ...] = (STANDARD,)  # tiers that a request without a word may get
    unsaid_geos: tuple[str, ...] = ()  # regions that a request without a word may be served in


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
        begun = [price for price in self.prices if price.start is None or price.start <= at]
        return begun[-1] if begun else self.prices[0]

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
            rules[provider] = _term_rules(file, tree)
            models = _shipped_models(file, provider, tree.get("models", {}), rules[provider])
            shipped[provider], names[provider] = models
        user = {key: read_entry(f"pricing.{key}", value) for key, value in (user_pricing or {}).items()}
        checked = [model.checked for known in shipped.values() for model in known.values() if model.checked]
        return cls(shipped, names, rules, user, aliases or {}, max(checked, default=date.min))

    def find(self, provider: str, model: str, at: datetime | None = None) -> Model | None:
        """Find a model's prices by the name a call uses; None: nobody has named its price.

        Order: the user's exact id, the user's globs, the user's alias, then the shipped id, alias and dated snapshot.
        A name that merely begins like a known one is unknown.
        """
        own = self._user_model(provider, model)
        if own is not None:
            return own
        target = self._aliases.get(provider, {}).get(model)
        return self._shipped_model(provider, model) if target is None else self._alias_target(provider, target)

    def nearest(self, name: str, n: int = 3) -> list[str]:
        """Suggest known names like this one."""
        known = {key for key in self._user if "*" not in key}
        for table in (*self.shipped.values(), *self._names.values()):
            known |= table.keys()
        return difflib.get_close_matches(name, sorted(known), n, 0.6)

    def models(self) -> Sequence[Model]:
        """List the user's models, then the shipped ones, by provider and id."""
        own = [_user_model("", key, entry, None, TermRules()) for key, entry in sorted(self._user.items())]
        return own + [models[key] for _, models in sorted(self.shipped.items()) for key in sorted(models)]

    def _user_model(self, provider: str, model: str) -> Model | None:
        entry = self._user.get(model)
        if entry is None:
            globs = [key for key in self._user if "*" in key and fnmatchcase(model, key)]
            entry = self._user[max(globs, key=len)] if globs else None
        if entry is None:
            return None
        known = self._shipped_model(provider, model)
        if not entry.blocks and known is None:
            return None  # an empty entry is no price
        return _user_model(provider, model, entry, known, self._rules.get(provider, TermRules()))

    def _alias_target(self, provider: str, target: str) -> Model | None:
        found = self._user_model(provider, target) or self._shipped_model(provider, target)
        if found is not None:
            return found
        others = [model for name in self.shipped if (model := self._shipped_model(name, target)) is not None]
        return others[0] if len(others) == 1 else None

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


def _shipped_models(
    file: str, provider: str, models: object, rules: TermRules
) -> tuple[dict[str, Model], dict[str, Model]]:
    if not isinstance(models, dict):
        raise PriceError(f"{file}: models is {models!r}; a mapping of entries is allowed")
    ids: dict[str, Model] = {}
    names: dict[str, Model] = {}
    for key, value in models.items():
        entry = read_entry(f"{file}: {key}", value)
        if not entry.blocks:
            continue  # an empty entry has no price: the model is unknown, not free
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


def _user_model(provider: str, key: str, entry: Entry, known: Model | None, rules: TermRules) -> Model:
    """Make a user's model: prices are the entry's alone, if it has any; facts it leaves out are the shipped ones."""
    model = replace(_model(provider, key, entry, rules), user=True)
    if known is None:
        return model
    priced = model if entry.blocks else known
    return replace(
        priced,
        context_tokens=model.context_tokens or known.context_tokens,
        max_output_tokens=model.max_output_tokens or known.max_output_tokens,
        tokenizer=entry.tokenizer or known.tokenizer,
        image_tokens=known.image_tokens if model.image_tokens is None else model.image_tokens,
        images_beyond_window=model.images_beyond_window or known.images_beyond_window,
    )


def _model(provider: str, key: str, entry: Entry, rules: TermRules) -> Model:
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
        checked=entry.checked,
    )


def _term_rules(file: str, tree: Mapping[str, object]) -> TermRules:
    names, tiers, geos = tree.get("tier_names", {}), tree.get("unsaid_tiers", [STANDARD]), tree.get("unsaid_geos", [])
    if not isinstance(names, dict) or not isinstance(tiers, list) or not isinstance(geos, list):
        raise PriceError(f"{file}: tier_names must be a mapping, unsaid_tiers and unsaid_geos lists")
    return TermRules(names, tuple(tiers), tuple(geos))

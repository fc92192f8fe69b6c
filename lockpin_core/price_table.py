"""What models cost and can do, as data, and finding one by name.

Reads `pricing/*.yaml` and the user's `pricing:` entries. Knows no calls; `prices` computes with what stands here.
A user's entry for a shipped model replaces its prices; the bands, tiers, speeds and regions that the entry does not
name stay the shipped model's, relative to its standard price. An entry for any other model stands by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from fnmatch import fnmatchcase
from pathlib import Path

from lockpin_core.errors import PriceError
from lockpin_core.names import shown
from lockpin_core.price_entry import Entry, read_entry
from lockpin_core.price_factors import largest
from lockpin_core.price_names import nearest
from lockpin_core.price_shelf import Model, Shelf, TermRules, joined, model_of, undated
from lockpin_core.provider_files import read_files

_BACK = "removing the file takes the shipped prices back"
__all__ = ["Model", "PriceTable", "TermRules"]


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Every priced model: the user's first, then the shipped ones."""

    shipped: Mapping[str, Shelf]  # provider → its models by id
    _from: Mapping[str, Sequence[str]]  # provider → the others whose models it resells at their price
    _user: Mapping[str, Entry]
    _aliases: Mapping[str, Mapping[str, str]]
    date: date  # the newest day on which a shipped price was checked
    # By the identity of shipped models, which are kept as they were read: one that is resold has the maker's names.
    _joined: dict[tuple[str | int, ...], Model] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def load(
        cls,
        folder: Path,
        user_pricing: Mapping[str, object] | None = None,
        aliases: Mapping[str, Mapping[str, str]] | None = None,
        updates: Path | None = None,
    ) -> PriceTable:
        """Index the shipped files and lay the user's entries over them; shipped entries are read when asked for.

        `user_pricing` is the configuration's `pricing:`, scalars as text; `aliases` its `models:`; `updates` the
        folder that later prices were written to, which may not be there. Raises PriceError naming file, entry and
        what is allowed.
        """
        shelves: dict[str, Shelf] = {}
        sellers: dict[str, Sequence[str]] = {}
        newer = _updates(updates) if updates is not None else {}
        for file, tree in read_files(folder):
            shelf = shelves[str(tree["provider"])] = _shelf(file, tree, newer.get(file), updates)
            sellers[shelf.provider] = _sellers(file, tree)
        user = {key: read_entry(f"pricing.{key}", value) for key, value in (user_pricing or {}).items()}
        checked = [shelf.checked for shelf in shelves.values() if shelf.checked is not None]
        table = cls(shelves, sellers, user, aliases or {}, max(checked, default=date.min))
        table._check_user()
        return table

    def find(self, provider: str, model: str, at: datetime | None = None) -> Model | None:
        """Find a model's prices by the name a call uses; None: nobody has named its price.

        Order: the user's exact id (also for a dated snapshot or shipped alias of it), the user's globs, the user's
        alias, then the shipped id, alias and dated snapshot, at the provider itself and then at those whose prices it
        takes. A name that merely begins like a known one is unknown.
        """
        known = self._shipped_model(provider, model)
        target = self._aliases.get(provider, {}).get(model)
        own = self._user_model(provider, model, known, is_alias=target is not None)
        if own is not None:
            return own
        return known if target is None else self._alias_target(provider, target)

    def nearest(self, name: str, n: int = 3, provider: str | None = None) -> list[str]:
        """Suggest known names like this one: the user's and this provider's, and where none is near, others'."""
        own = [key for key in self._user if "*" not in key]
        homes = [home for home in self._homes(provider) if home in self.shipped] if provider else []
        first = [*own, *(name for home in homes for name in self._names_at(home))]
        others = [name for home in self.shipped if home not in homes for name in self._names_at(home)]
        return nearest(name, [first, others] if homes else [[*first, *others]], n)

    def own(self) -> Sequence[Model]:
        """List the user's models."""
        return [self._listed(key) for key in sorted(self._user)]

    def models(self, provider: str | None = None) -> Sequence[Model]:
        """List the user's models, then the shipped ones, by provider and id; of one provider where it is named.

        This reads every entry: thousands. Raises PriceError at one that is wrong.
        """
        shelves = [shelf for name, shelf in sorted(self.shipped.items()) if provider in (None, name)]
        found = (self._on_shelf(shelf, key) for shelf in shelves for key in sorted(shelf))
        return [*self.own(), *(model for model in found if model is not None)]

    def names(self) -> Sequence[tuple[str, str]]:
        """List (provider, id) of every model, the user's first with no provider; reads no entry."""
        shipped = [(name, key) for name, shelf in sorted(self.shipped.items()) for key in sorted(shelf)]
        return [("", key) for key in sorted(self._user)] + shipped

    def _names_at(self, provider: str) -> Iterator[str]:
        shelf = self.shipped[provider]
        yield from shelf
        yield from shelf.names

    def _listed(self, key: str) -> Model:
        entry = self._user[key]
        model = model_of("", key, entry, TermRules(), user=True)
        target = self._same_as(key, entry)
        return model if target is None else replace(joined(model, entry, target), provider="")

    def _homes(self, provider: str) -> tuple[str, ...]:
        return (provider, *self._from.get(provider, ()))

    def _check_user(self) -> None:
        """Raise PriceError for an entry of the user that is the same as a model nobody knows."""
        for key, entry in self._user.items():
            if entry.same_as is not None and self._same_as(key, entry) is None:
                near = self.nearest(entry.same_as.rpartition("/")[2] or entry.same_as, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                said = shown(repr(entry.same_as))
                raise PriceError(f"pricing.{key}.same_as is {said}, which has no shipped price{hint}")

    def _user_model(self, provider: str, model: str, known: Model | None, *, is_alias: bool = False) -> Model | None:
        """Find the user's entry for a name; `known` is the shipped model of that name."""
        base = known.id if known is not None else undated(model)
        if base is not None and base in self._user and model not in self._user and not is_alias:
            model = base
        key = model if model in self._user else self._glob(model)
        if key is None:
            return None
        entry = self._user[key]
        base_model = self._same_as(key, entry) or known
        if base_model is not None:
            return self._join(provider, key, base_model, model)
        return self._alone(provider, key, model) if entry.blocks else None  # empty: no price

    def _alone(self, provider: str, key: str, model: str) -> Model:
        """Read a user's entry for a model that no shipped price is known of, once for each provider."""
        pair = ("alone", provider, key)
        if pair not in self._joined:
            rules = self.shipped[provider].rules if provider in self.shipped else TermRules()
            self._joined[pair] = model_of(provider, key, self._user[key], rules, user=True)
        found = self._joined[pair]
        return found if found.id == model else replace(found, id=model)

    def _glob(self, model: str) -> str | None:
        globs = [key for key in self._user if "*" in key and fnmatchcase(model, key)]
        return max(globs, key=len, default=None)

    def _join(self, provider: str, key: str, known: Model, model: str) -> Model:
        """Join the user's entry and a shipped model, once for each pair: there are only so many."""
        pair = ("joined", provider, key, id(known))
        if pair not in self._joined:
            own = model_of(provider, key, self._user[key], known.rules, user=True)
            self._joined[pair] = joined(own, self._user[key], known)
        found = self._joined[pair]
        return found if found.id == model else replace(found, id=model)

    def _same_as(self, key: str, entry: Entry) -> Model | None:
        """Find the shipped model that an entry names with `same_as`."""
        if entry.same_as is None:
            return None
        return self._target("", entry.same_as)

    def _target(self, provider: str, name: str) -> Model | None:
        """Find "provider/model", or a model of this provider, or of the only vendor that has one of that name.

        One whose prices this provider takes is what it resells, however it is named.
        """
        home, _, rest = name.partition("/")
        if rest and home in self.shipped and (found := self._shipped_model(home, rest)) is not None:
            return self._resold(provider, found) if home in self._from.get(provider, ()) else found
        if (found := self._shipped_model(provider, name)) is not None:
            return found
        others = [model for home in self.shipped if (model := self._at_home(home, name)) is not None]
        return others[0] if len(others) == 1 else self._of_maker(others)

    def _of_maker(self, models: Sequence[Model]) -> Model | None:
        """Of models of one name choose the maker's: of a vendor whose prices others take, and that takes nobody's."""
        sellers = {seller for homes in self._from.values() for seller in homes}
        found = [model for model in models if model.provider in sellers and not self._from.get(model.provider)]
        return found[0] if len(found) == 1 else None

    def _alias_target(self, provider: str, target: str) -> Model | None:
        known = self._target(provider, target)
        return self._user_model(provider, target, known) or known

    def _shipped_model(self, provider: str, name: str) -> Model | None:
        """Find a shipped model: its own, or of those whose prices it takes, whose name may stand before the model's."""
        if (own := self._at_home(provider, name)) is not None:
            return own
        for home in self._from.get(provider, ()):
            found = self._at_home(home, name) or self._at_home(home, name.removeprefix(f"{home}/"))
            if found is not None:
                return self._resold(provider, found)
        return None

    def _resold(self, provider: str, model: Model) -> Model:
        """Give another vendor's model the fees and regions of who sells it."""
        pair = ("resold", provider, id(model))
        if pair not in self._joined:
            shelf = self.shipped[provider]
            fees = {fee: max(pico, model.fees.get(fee, 0)) for fee, pico in shelf.resale_fees.items()}
            geo = largest([model.rules.dearest_geo, shelf.rules.dearest_geo])
            unsaid = tuple(region for region in model.rules.unsaid_geos if region in shelf.rules.unsaid_geos)
            words = {**model.rules.tier_names, **shelf.rules.tier_names}  # replies say it in the seller's
            rules = replace(model.rules, tier_names=words, unsaid_geos=unsaid, dearest_geo=geo)
            self._joined[pair] = replace(model, rules=rules, fees={**model.fees, **fees})
        return self._joined[pair]

    def _at_home(self, provider: str, name: str) -> Model | None:
        shelf = self.shipped.get(provider)
        key = shelf.known(name) if shelf is not None else None
        return None if shelf is None or key is None else self._on_shelf(shelf, key)

    def _on_shelf(self, shelf: Shelf, key: str) -> Model | None:
        entry = shelf.entry(key)
        if entry.same_as is None:
            return shelf.get(key)
        home, _, name = entry.same_as.partition("/")
        maker = self.shipped.get(home)
        target = maker.get(maker.known(name) or "") if maker is not None else None  # no twin of a twin
        if target is None:
            raise PriceError(f"{shelf.file}: {key} is the same as {entry.same_as}, which has no price")
        pair = ("twin", shelf.provider, key)
        if pair not in self._joined:
            own = model_of(shelf.provider, key, entry, shelf.rules)
            self._joined[pair] = replace(joined(own, entry, target), rules=shelf.rules)
        return self._joined[pair]


def _sellers(file: str, tree: Mapping[str, object]) -> Sequence[str]:
    listed = tree.get("prices_from", [])
    if not isinstance(listed, list):
        raise PriceError(f"{file}: prices_from is {listed!r}; a list of providers is allowed")
    return tuple(str(name) for name in listed)


def _updates(folder: Path) -> dict[str, Mapping[str, object]]:
    try:
        return dict(read_files(folder)) if any(folder.glob("*.yaml")) else {}
    except PriceError as error:
        raise PriceError(f"{folder}: {error}; {_BACK}") from error


def _shelf(file: str, tree: Mapping[str, object], newer: Mapping[str, object] | None, folder: Path | None) -> Shelf:
    """Index a file and read all that is laid over it, so that a fault there is known before the first call."""
    plain = Shelf(file, tree)
    if newer is None:
        return plain
    try:
        shelf = Shelf(file, tree, newer)
        for key in shelf.newer:
            shelf.entry(key)
    except PriceError as error:
        raise PriceError(f"{folder}: {error}; {_BACK}") from error
    return shelf

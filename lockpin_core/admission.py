"""The parts of an admission: from a request to a call with a quote. Pure but for the clock's instant given to it."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from lockpin_core.budgets import Standing
from lockpin_core.call import Call, Parsed, Payers, Quote, Rewrite, Terms
from lockpin_core.config import Config
from lockpin_core.errors import UnpricedError
from lockpin_core.ladder import Room
from lockpin_core.ledger.protocol import Rules
from lockpin_core.money import ZERO
from lockpin_core.prices import Model, PriceTable, max_output_fitting, price, quote, rates_text
from lockpin_core.providers import Provider, canonical_path, is_plain_path
from lockpin_core.settlement import Tariff
from lockpin_core.sizing.bound import ceiling, fixed_output, output_times
from lockpin_core.usage import Usage
from lockpin_core.wire.protocol import Wire


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request to a metered host as the edge read it: body decoded, header names in lower case."""

    id: str
    provider: Provider
    host: str  # canonical; decides regional prices
    method: str
    path: str  # as sent, without query
    headers: Mapping[str, str]
    body: bytes
    upgrade: bool
    payers: Payers
    client: str


class Refused(Exception):
    """Ends an admission early. An expected outcome inside this package only: the engine turns it into a reply."""

    def __init__(
        self, code: str, words: str, detail: Mapping[str, object] | None = None, *, model: str | None = None
    ) -> None:
        super().__init__(words)
        self.code, self.words, self.detail, self.model = code, words, detail or {}, model


@dataclass(frozen=True, slots=True)
class Priced:
    """A parsed request with everything that its quote depends on; `at` is one instant for all of it."""

    incoming: Incoming
    wire: Wire
    parsed: Parsed
    model: Model
    prices: PriceTable
    at: datetime

    def call(self, set_limit: int | None, *, degrade: Sequence[str] = ()) -> Call:
        """Make the call that the ledger is asked to hold, with the output limit that Lockpin sets, or the request's.

        Raises Refused where the worst case has no bound or no price.
        """
        limit = set_limit if set_limit is not None else self._asked_limit()
        incoming, parsed = self.incoming, self.parsed
        return Call(
            id=incoming.id,
            payers=incoming.payers,
            provider=incoming.provider.name,
            host=incoming.host,
            wire=self.wire.name,
            model=self.model.id,
            asked_model=parsed.model,
            client=incoming.client,
            streamed=parsed.streamed,
            quote=self._quote(limit),
            terms=parsed.terms,
            output_limit=limit,
            limit_set=set_limit is not None,
            billing="subscription" if parsed.subscription else "metered",
            price_date=str(self.prices.date),
            rates=_rates(self.model, parsed.terms, self.at, self._geo()),
            degrade=tuple(degrade),
        )

    def _asked_limit(self) -> int | None:
        limit, most = self.parsed.output_limit, self.model.max_output_tokens
        return most if limit is None else min(limit, most) if most is not None else limit

    def _quote(self, limit: int | None) -> Quote:
        most = ceiling(self.parsed, self.model, limit)
        if most is None:
            words = f'the worst case of model "{self.model.id}" has no bound: {_UNBOUNDED}'
            raise Refused("unpriced_tool", words, model=self.model.id)
        try:
            amount = quote(self.model, most, self.parsed.terms, self.at, host_geo=self._geo())
        except UnpricedError as error:
            raise Refused("unpriced_tool", str(error), model=self.model.id) from error
        return Quote(amount, most.prompt + most.output, most)

    def largest_output(self, limit: int, room: Room) -> int:
        """Find the largest output limit for each choice, up to `limit`, whose quote fits into the room."""
        whole = ceiling(self.parsed, self.model, limit)
        if whole is None:
            return 0
        tokens = whole.output
        if room.usd is not None:
            left = max(room.usd, ZERO)
            tokens = max_output_fitting(self.model, whole, self.parsed.terms, self.at, left, host_geo=self._geo())
        if room.tokens is not None:
            tokens = min(tokens, room.tokens - whole.prompt)
        return max(0, min(limit, (tokens - fixed_output(self.parsed, self.model)) // output_times(self.parsed)))

    def tariff(self, config: Config) -> Tariff:
        """Give what settlement needs: this instant's prices, and the provider's facts."""
        provider = self.incoming.provider
        return Tariff(
            price=self._price,
            cut_rule=self.wire.cut_rule,
            max_tps=provider.max_tps,
            bills=provider.bills,
            charge_failed=config.charge_failed,
            bytes_estimate=-(-len(self.incoming.body) // 3),
        )

    def _price(self, served: str | None, usage: Usage, terms: Terms) -> tuple[int, str] | None:
        """Price usage with the model that the reply states when it is priced, else with the request's."""
        found = self.prices.find(self.incoming.provider.name, served, self.at) if served else None
        model = found or self.model
        try:
            return price(model, usage, terms, self.at, host_geo=self._geo()), model.id
        except UnpricedError:
            return None

    def _geo(self) -> str | None:
        return self.incoming.provider.geo_of(self.incoming.host)


def _rates(model: Model, terms: Terms, at: datetime, geo: str | None) -> Mapping[str, str]:
    """Give the rates for receipts, written out once for a price and terms. What an id names is kept beside it."""
    dated = model.price_at(at)
    key = (id(model), id(dated), terms, geo)
    known = _KNOWN_RATES.get(key)
    if known is None:
        if len(_KNOWN_RATES) >= _MOST_RATES:
            _KNOWN_RATES.clear()
        known = _KNOWN_RATES[key] = (model, dated, rates_text(model, terms, at, host_geo=geo))
    return known[2]


_MOST_RATES = 512
_KNOWN_RATES: dict[tuple[int, int, Terms, str | None], tuple[Model, object, Mapping[str, str]]] = {}
_UNBOUNDED = "neither the request nor the price table limits it; set an output limit, or context_tokens in `pricing:`"


def limit_to_set(priced: Priced, config: Config, *, capped: bool) -> int | None:
    """Choose the output limit that Lockpin gives to a capped call without one; None: the body keeps as it is."""
    parsed = priced.parsed
    if not capped or parsed.output_limit is not None or not parsed.output_settable or not config.fit.output:
        return None
    most = config.fit.output_max
    if priced.model.max_output_tokens is not None:
        most = min(most, priced.model.max_output_tokens)
    return max(most, priced.wire.min_output)


def body_change(priced: Priced, call: Call) -> Rewrite | None:
    """Say what must change in the body that leaves; None: nothing."""
    ask_usage = not priced.parsed.asks_usage and priced.incoming.provider.include_usage and not priced.parsed.attested
    change = Rewrite(max_output=call.output_limit if call.limit_set else None, ask_usage=ask_usage)
    return None if change == Rewrite() else change


def is_capped(rules: Rules, provider: str, model: str | None) -> bool:
    """Say whether a budget of the configuration enforces a limit on such a call; model None: it is not known."""
    return any(budget.enforce and budget.applies(provider=provider, model=model) for budget in rules.budgets)


def has_limit(standings: Sequence[Standing]) -> bool:
    """Say whether one of a call's accounts enforces a limit."""
    return any(s.budget.enforce and (s.limit is not None or s.limit_tokens is not None) for s in standings)


def may_go_uncapped(config: Config, incoming: Incoming) -> bool:
    """Say whether `allow_uncapped` lists this call: never what a wire meters, never a path that hides what it is."""
    if incoming.provider.metered(canonical_path(incoming.path)) is not None or not is_plain_path(incoming.path):
        return False
    return any(fnmatch.fnmatchcase(f"{incoming.host}{incoming.path}", glob) for glob in config.allow_uncapped)

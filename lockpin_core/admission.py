"""The parts of an admission: from a request to a call with a quote. Pure but for the clock's instant given to it."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from urllib.parse import unquote

from lockpin_core.addresses import canonical_path, is_plain_path
from lockpin_core.admission_chain import brought_in, left_out
from lockpin_core.admission_served import Served
from lockpin_core.admission_thinking import thinking_beside
from lockpin_core.admission_unbounded import billed_by, free_ceiling
from lockpin_core.aside import Steps, at_once
from lockpin_core.call import Also, Call, Ceiling, Parsed, Payers, Quote, Request, Rewrite, Terms
from lockpin_core.config import Config
from lockpin_core.config_near_cap import Landing
from lockpin_core.errors import UnpricedError
from lockpin_core.ladder import Room
from lockpin_core.ledger.protocol import Rules
from lockpin_core.money import ZERO, Money
from lockpin_core.owners import account_of
from lockpin_core.prices import Model, PriceTable, known_rates, max_output_fitting, quote, regions_unsaid
from lockpin_core.providers import Provider
from lockpin_core.secret_forms import holds_secret
from lockpin_core.settlement import Tariff
from lockpin_core.sizing.bound import (
    ceiling,
    fixed_output,
    images_bound,
    missing_bound,
    output_times,
    together,
    with_images_bounded,
)
from lockpin_core.usage import Unit
from lockpin_core.wire.protocol import Wire
from lockpin_core.wire.signatures import is_presigned, is_signed


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
    path_model: str | None = None  # the model, where the path names it
    query: str = ""  # with its question mark; may hold a key, so it goes nowhere but to its own host

    @property
    def may_degrade(self) -> bool:
        """Say whether it may be made smaller near a limit; its sender may have said that it is refused instead."""
        return DEGRADE_HEADER not in self.headers

    def request(self) -> Request:
        """Give what a wire sees of it."""
        presigned, limits = is_presigned(self.query), self.provider.limit_fields(self.path)
        told = (self.method, self.host, self.path, self.headers, self.body, self.path_model)
        return Request(*told, presigned, limits)

    def key_query(self) -> str:
        """Give what of the query is a key, with a question mark; other parameters are the call's own."""
        key = next((part for part in self.query.removeprefix("?").split("&") if part.startswith("key=")), None)
        return "" if key is None else f"?{key}"

    def account(self) -> bytes:
        """Digest the caller's credentials: whose replies an id of the provider can name."""
        return account_of(self.headers, self.key_query(), self.path)


DEGRADE_HEADER = "x-lockpin-degrade"  # of a request; "off" is all that it may say
_LONGEST_BATCH = timedelta(hours=24)  # after which the provider gives up what it has not come to


class Refused(Exception):
    """Ends an admission early. An expected outcome inside this package only: the engine turns it into a reply."""

    def __init__(
        self, code: str, words: str, detail: Mapping[str, object] | None = None, *, model: str | None = None,
        status: int | None = None, place: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(words)
        self.code, self.words, self.detail, self.model, self.status = code, words, detail or {}, model, status
        self.place = place  # of the request that it is about, where there are many and the words do not say


@dataclass(frozen=True, slots=True)
class Priced:
    """A parsed request with everything that its quote depends on; `at` is one instant for all of it."""

    incoming: Incoming
    wire: Wire
    parsed: Parsed
    model: Model
    prices: PriceTable
    at: datetime
    also: tuple[Quote, ...] = ()  # of the other models that may run within the call
    others: tuple[Model, ...] = ()  # those models
    is_capped: bool = False  # a limit is in force for it
    batch: Quote | None = None  # of all its requests together, where it brings many
    models: tuple[str, ...] = ()  # that may run, where there may be several
    regions: frozenset[str] = frozenset()  # that the reply may state for all of those, where the request names none
    landing: Landing = field(default_factory=Landing)
    changed: bool = False  # the request is not the one that came: it was made lighter, or is for another model
    degrade: tuple[str, ...] = ()  # how it was made lighter, as `X-Lockpin-Degrade` names it
    trim: int = 0  # of so many tool results, from the first on, the long ones were left out

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
            quote=self._quote(limit, is_set=set_limit is not None) if self.batch is None else self.batch,
            terms=parsed.terms,
            output_limit=limit if self.batch is None else None,
            limit_set=set_limit is not None,
            billing="subscription" if parsed.subscription else "metered",
            price_date=str(self.prices.date),
            rates=known_rates(self.model, parsed.terms, self.at, self._geo()),
            degrade=(*self.degrade, *degrade),
            reserve=self._reserve(limit),
        )

    def _reserve(self, limit: int | None) -> Quote | None:
        """Give the room that must stay free for the task's last small calls (SPEC §11, landing); None: none."""
        calls, small = self.landing.calls, self.landing.max_output_tokens
        if not calls or limit is None or limit <= small or self.batch is not None:
            return None
        last = self.quote_at(small)
        return replace(last, most=Money(last.most.nano * calls), tokens=last.tokens * calls)

    def _asked_limit(self) -> int | None:
        if Unit.AUDIO_OUT in self.parsed.output_units and Unit.OUTPUT not in self.parsed.output_units:
            return None  # there is none: the model's own bounds what is said
        limit, most = self.parsed.output_limit, self.model.max_output_tokens
        return most if limit is None or (most is not None and most < limit and self.parsed.clamped) else limit

    def quote_at(self, limit: int) -> Quote:
        """Bound the call with an output limit that Lockpin sets."""
        return self._quote(limit, is_set=True)

    def _quote(self, limit: int | None, *, is_set: bool = False) -> Quote:
        self._check_tools()
        bound = ceiling(self.parsed, self.model, limit)
        try:
            most = bound or free_ceiling(self.parsed, self.model, partial(self._most, terms=self.parsed.terms))
            if most is None:
                raise Refused("unpriced_tool", self.no_bound(limit), model=self.model.id)
            amount = self._most(most, self.parsed.terms)
        except UnpricedError as error:
            raise Refused("unpriced_tool", str(error), model=self.model.id) from error
        also = self._also_within(limit) if is_set else self.also
        tokens = most.prompt + most.output + sum(quote.tokens for quote in also)
        is_endless = bound is None or any(quote.is_endless for quote in also)
        return Quote(sum((quote.most for quote in also), amount), tokens, most, is_endless)

    def _also_within(self, limit: int | None) -> tuple[Quote, ...]:
        """Bound what other models may do once the output limit is lowered to this one; else it leaves theirs alone."""
        asked = self.parsed.output_limit
        if limit is None or asked is None or limit >= asked:
            return self.also
        within = self.wire.also_within(self.parsed, limit)
        if within == self.parsed.also:
            return self.also
        base = replace(self, also=(), others=(), parsed=replace(self.parsed, output_limit=limit))
        return tuple(_also(base, also, model)[1] for also, model in zip(within, self.others, strict=True))

    def no_bound(self, limit: int | None) -> str:
        """Say that the call has no bound, why, and what would give it one."""
        missing = missing_bound(self.parsed, self.model, self.model.id, limit)
        return f'the worst case of model "{self.model.id}" has no bound: {missing}'

    def _most(self, most: Ceiling, terms: Terms) -> Money:
        is_batch = self.parsed.batched
        until = self.at + _LONGEST_BATCH if is_batch else None
        return quote(
            self.model, most, terms, self.at,
            host_geo=self._geo(), until=until, batched=is_batch, regions=self.regions,
        )  # fmt: skip

    def with_tool_limit(self, limit: int) -> Priced:
        """Give the call with a lower limit on the tools that the provider runs; `limit` is at least 1."""
        parsed, fees = self.parsed, dict(self.parsed.fees)
        rounds, output_rounds = parsed.rounds, parsed.output_rounds
        for tool in parsed.tools:
            fewer = max(0, tool.calls - limit)
            rounds -= fewer * tool.rounds
            output_rounds -= fewer * tool.output_rounds
            for unit, pieces in tool.fees.items():
                fees[unit] -= fewer * pieces
        lowered = replace(
            parsed,
            tool_limit=None if parsed.tool_limit is None else min(parsed.tool_limit, limit),
            tool_most=limit,
            tools=tuple(replace(tool, calls=min(tool.calls, limit)) for tool in parsed.tools),
            rounds=rounds,
            output_rounds=output_rounds,
            fees=fees,
        )
        return replace(self, parsed=lowered)

    def without_tools(self) -> Priced:
        """Give the call as it would be if the provider ran no tools, to say what they cost."""
        parsed = replace(self.parsed, rounds=1, output_rounds=1, fees={}, unbounded_fees=frozenset(), tool_limit=None)
        return replace(self, parsed=replace(parsed, tools=(), also=()), also=(), others=())

    def _check_tools(self) -> None:
        """Refuse tools of the provider's that would need a limit which this body, or any, cannot get."""
        parsed = self.parsed
        dear = next((unit for unit in sorted(parsed.unbounded_fees) if self.model.fees.get(unit) != 0), None)
        if dear is not None:
            words = (
                f'model "{self.model.id}" bills each {dear.replace("_", " ")} that the provider makes, and no request '
                "can say how many; leave that tool out, or use a model that bills by the prompt"
            )
            raise Refused("unpriced_tool", words, model=self.model.id)
        if parsed.tool_limit is not None and not parsed.output_settable and not parsed.subscription:
            words = "the provider runs tools without a limit here, and this body must not be changed; give them a limit"
            raise Refused("unpriced_tool", words, model=self.model.id)

    def largest_output(self, limit: int, room: Room) -> int:
        """Find the largest output limit for each choice, up to `limit`, that fits beside other models as asked."""
        whole = ceiling(self.parsed, self.model, limit) if self.batch is None else None
        if whole is None:
            return 0
        tokens = whole.output
        if room.usd is not None:
            left = max(room.usd, ZERO) - sum((quote.most for quote in self.also), ZERO)  # what is free fits always
            tokens = max_output_fitting(
                self.model, whole, self.parsed.terms, self.at, left, host_geo=self._geo(), regions=self.regions
            )
        if room.tokens is not None:
            tokens = min(tokens, room.tokens - whole.prompt - sum(quote.tokens for quote in self.also))
        return max(0, min(limit, (tokens - fixed_output(self.parsed, self.model)) // output_times(self.parsed)))

    def tariff(self, config: Config) -> Tariff:
        """Give what settlement needs: this instant's prices, and the provider's facts."""
        counted = self.parsed.content.counted
        estimate = -(-len(self.incoming.body) // 3) if counted is None else counted
        incoming = self.incoming
        is_one = not self.also
        served = Served(self.prices, incoming.provider, incoming.host, self.model, self.at, incoming.path, is_one)
        return replace(served.tariff(self.wire, config, estimate), works_on=self.parsed.background)

    def _geo(self) -> str | None:
        return self.incoming.provider.geo_of(self.incoming.host, self.incoming.path)


def priced(incoming: Incoming, wire: Wire, parsed: Parsed, prices: PriceTable, at: datetime) -> Priced:
    """Find the prices of a request. Raises Refused where one of its models has none, and names that."""
    return at_once(priced_in_steps(incoming, wire, parsed, prices, at))


def priced_in_steps(incoming: Incoming, wire: Wire, parsed: Parsed, prices: PriceTable, at: datetime) -> Steps[Priced]:
    """Do the same step by step, one for each request of a batch."""
    found = _priced(incoming, wire, parsed, prices, at)
    return (yield from _with_requests(found)) if found.parsed.batch else found


def _priced(incoming: Incoming, wire: Wire, parsed: Parsed, prices: PriceTable, at: datetime) -> Priced:
    provider = incoming.provider
    if name := unread(incoming, wire):
        words = (
            f"{name} may change what a call costs or what its reply says of that, and is not read here; leave it out"
        )
        raise Refused("unpriced_tool", words, model=parsed.model)
    if parsed.routed and not provider.price_cap:
        words = '"provider" may choose a host that is dearer, and nothing keeps the call from it here; leave it out'
        raise Refused("unpriced_tool", words, model=parsed.model)
    signed = is_signed(incoming.request())
    if provider.plan or signed or not provider.output_settable:
        parsed = replace(
            parsed,
            output_settable=parsed.output_settable and provider.output_settable and not signed,
            attested=parsed.attested or signed,
            subscription=parsed.subscription or provider.plan,
        )
    if wire.lends_limit and parsed.tools and not provider.keeps_tool_limit and not parsed.subscription:
        words = (
            f"{provider.name} runs tools of the request by itself, or those of a stored prompt or conversation, and no "
            'page of it says that "max_tool_calls" limits them; leave them out'
        )
        raise Refused("unpriced_tool", words, model=parsed.model)
    model = _model(prices, provider, parsed.model, at)
    if parsed.batch:
        return Priced(incoming, wire, parsed, model, prices, at)
    try:
        parsed = billed_by(parsed, model)
    except UnpricedError as error:
        raise Refused("unpriced_tool", str(error), model=model.id) from error
    if parsed.content.images:
        parsed = replace(parsed, content=with_images_bounded(parsed.content, model))
    if provider.output_beside_limit:
        parsed = thinking_beside(parsed, provider, model)
    if wire.links and parsed.content.images:
        images = images_bound(parsed.content, model)
        parsed = replace(parsed, chain_images=images or 0, hides_images=parsed.hides_images or images is None)
    if wire.omits_history:
        parsed = left_out(parsed, model)
    if parsed.chain is not None:
        parsed = brought_in(parsed, model)
    found = Priced(incoming, wire, parsed, model, prices, at)
    if not parsed.also:
        return found
    named = [_model(prices, provider, also.model, at) for also in parsed.also]
    found = replace(found, regions=regions_unsaid([model, *named]))
    others = [_also(found, also, other) for also, other in zip(parsed.also, named, strict=True)]
    models = {model.id, *(name for name, _ in others)}
    also = tuple(quote for _, quote in others)
    return replace(found, also=also, others=tuple(named), models=tuple(sorted(models)))


def _with_requests(found: Priced) -> Steps[Priced]:
    """Bound the requests of a batch, each by itself; of them no more is kept than their sum."""
    whole, models = None, set()
    for number, part in enumerate(found.parsed.batch):
        try:
            one = _priced(found.incoming, found.wire, part, found.prices, found.at)
            each = one._quote(one._asked_limit())
        except Refused as fault:
            place = f"requests[{number}]"
            words = fault.words and f"{place}: {fault.words}"
            raise Refused(fault.code, words, model=fault.model, place=place) from None
        whole = each if whole is None else together(whole, each)
        models.add(one.model.id)
        yield part.content.text_bytes + part.content.schema_bytes
    return replace(found, parsed=replace(found.parsed, batch=()), batch=whole, models=tuple(sorted(models)))


def unread(incoming: Incoming, wire: Wire) -> str | None:
    """Name a header or a query's parameter that touches the cost or what a reply says of it, and is not read here."""
    provider = incoming.provider
    if provider.cost_headers:
        for name in incoming.headers.keys() - wire.reads_headers:
            if any(fnmatch.fnmatchcase(name, glob) for glob in provider.cost_headers):
                return f"header {name}"
    if provider.cost_params and incoming.query:
        named = {unquote(part.partition("=")[0]) for part in incoming.query.removeprefix("?").split("&")}
        return next((f"query parameter {name}" for name in provider.cost_params if name in named), None)
    return None


def _also(base: Priced, also: Also, model: Model) -> tuple[str, Quote]:
    """Bound another model that may run within the call, on the same prompt and with a limit of its own; name it."""
    content, terms = base.parsed.content, base.parsed.terms
    hidden = content.hidden or ("tools" if also.fills else None)
    parsed = replace(
        base.parsed,
        model=also.model,
        content=replace(
            content, extra_tokens=content.extra_tokens + also.extra_prompt, hidden=hidden, images_most=None
        ),
        terms=terms if also.speed is None else replace(terms, speed=also.speed),
        output_limit=also.output_limit,
        choices=1,
        rounds=also.rounds,
        output_rounds=also.rounds,
        extra_output=0,
        fees={},
        unbounded_fees=frozenset(),
        also=(),
    )
    other = replace(base, parsed=parsed, model=model)
    alone = other._quote(other._asked_limit())
    if model.id == base.model.id:
        alone = replace(alone, most=max(alone.most, _together(base, other)))
    return model.id, alone


def _together(base: Priced, other: Priced) -> Money:
    """Bound what a second run of the same model adds, where their prompts together may be billed as a longer one."""
    alone, asked = base._quote(base._asked_limit()), other._quote(other._asked_limit())
    first, second = alone.ceiling, asked.ceiling
    both = replace(
        first,
        prompt=first.prompt + second.prompt,
        output=first.output + second.output,
        prompt_units=first.prompt_units | second.prompt_units,
        output_units=first.output_units | second.output_units,
    )
    terms = other.parsed.terms if other.parsed.terms.speed is not None else base.parsed.terms
    return base._most(both, terms) - alone.most


def _model(prices: PriceTable, provider: Provider, name: str, at: datetime) -> Model:
    found = prices.find(provider.name, name, at)
    if found is None or holds_secret(name):  # a glob of prices takes any name, and rows keep it
        raise Refused("unknown_model", "", model=name)
    return found


def limit_to_set(priced: Priced, config: Config, *, capped: bool) -> int | None:
    """Choose the output limit that Lockpin gives to a capped call without one; None: the body keeps as it is."""
    parsed = priced.parsed
    if not capped or parsed.output_limit is not None or not parsed.output_settable or not config.fit.output:
        return None
    most = config.fit.output_max if parsed.unheeded_limit is None else parsed.unheeded_limit
    most = min(most, priced.model.max_output_tokens or most)
    return max(most, priced.wire.min_output)


def body_change(priced: Priced, call: Call) -> Rewrite | None:
    """Say what must change in the body that leaves; None: nothing."""
    ask_usage = not priced.parsed.asks_usage and priced.incoming.provider.include_usage and not priced.parsed.attested
    may_limit = priced.is_capped and priced.parsed.output_settable
    change = Rewrite(
        max_output=call.output_limit if call.limit_set else None,
        ask_usage=ask_usage,
        tool_limit=priced.parsed.tool_limit if may_limit else None,
        tool_most=priced.parsed.tool_most if may_limit else None,
    )
    return None if change == Rewrite() else change


def is_capped(rules: Rules, payers: Payers, provider: str, model: str | None) -> bool:
    """Say whether a budget of the configuration enforces a limit on such a call; model None: it is not known."""
    return any(budget.enforce and budget.applies(payers, provider=provider, model=model) for budget in rules.budgets)


def may_go_uncapped(config: Config, incoming: Incoming) -> bool:
    """Say whether `allow_uncapped` lists this call: never what a wire meters, never a path that hides what it is."""
    if incoming.provider.metered(canonical_path(incoming.path)) is not None or not is_plain_path(incoming.path):
        return False
    return any(fnmatch.fnmatchcase(f"{incoming.host}{incoming.path}", glob) for glob in config.allow_uncapped)

"""`lockpin prices explain`: how a call's charge and hold were computed, line by line, down to the rounding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

import typer

from lockpin_cli.changes import find_call
from lockpin_cli.inputs import load_to_read, price_table
from lockpin_cli.options import ConfigOption, LedgerOption
from lockpin_cli.output import Column, Format, FormatOption, View, plain, show
from lockpin_core.call import Share, Terms
from lockpin_core.clock import stamp, utc_now
from lockpin_core.config import Config
from lockpin_core.errors import CommandError, UnpricedError
from lockpin_core.ledger.listing import CallRow
from lockpin_core.money import ZERO, Money, rate_exact
from lockpin_core.prices import BATCH, Model, PriceTable, price, shipped_dir
from lockpin_core.providers import Providers
from lockpin_core.readers.calls import charged, in_the_way, needed
from lockpin_core.readers.explain import (
    Asked,
    AskedReader,
    Part,
    Sum,
    asked_of,
    charge_sum,
    hold_sum,
    is_that,
    share_sum,
)
from lockpin_core.readers.figures import said

_COLUMNS = (Column("UNIT"), *(Column(title, right=True) for title in ("COUNT", "RATE", "AMOUNT")))
_FIELDS = ("of", "unit", "count", "rate_usd", "per", "amount_usd")
_MILLION = 10**6


@dataclass(frozen=True, slots=True)
class Side:
    """The charge or the hold: what was booked, how it adds up, and what has to be said of it.

    `parts`: a charge of several prompts or models is the sum of theirs.
    """

    name: str
    booked: Money
    sum: Sum | None
    words: Sequence[str]
    parts: Sequence[SharePart] = ()

    @property
    def is_told(self) -> bool:
        """Say whether these prices give an amount at all."""
        return self.sum is not None or any(part.sum is not None for part in self.parts)

    @property
    def adds_up(self) -> bool:
        if self.parts:
            return all(part.adds_up for part in self.parts)
        return self.sum is not None and self.sum.amount == self.booked


@dataclass(frozen=True, slots=True)
class SharePart:
    """What one model's prompts of one band come to."""

    share: Share
    sum: Sum | None
    words: Sequence[str]

    @property
    def adds_up(self) -> bool:
        return self.sum is not None and is_that(self.share, self.sum)


def explain(
    context: typer.Context,
    call: Annotated[
        str, typer.Argument(metavar="[ID|last]", help="A call's id, 4 of its first characters or more, or the newest.")
    ] = "last",
    form: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Show how a call's charge and hold were computed, or what a refused one needed.

    Status 1 where the charge does not add up with these prices.

    Example: lockpin prices explain last
    """
    loaded = load_to_read(context, config)
    found = find_call(loaded.ledger, call)
    if found.held is None and "asked" not in found.detail:
        raise CommandError(f'call "{found.id}" was {found.decision} ({found.code}); it took no hold and cost nothing')
    sides = _sides(loaded, found, utc_now())
    if form is Format.TABLE:
        print(plain(f"call {found.id}, {stamp(found.at)}: {found.provider}/{found.model}, task {found.payers.task}"))
        for side in sides:
            _print(side)
    else:
        _dump(found, sides, form)
    if any(side.name == "charge" and side.is_told and not side.adds_up for side in sides):
        raise typer.Exit(1)


def _sides(config: Config, call: CallRow, now: datetime) -> list[Side]:
    table = price_table(config)
    provider = Providers.load(shipped_dir()).by_name(call.provider)
    geo = None if provider is None else provider.geo_of(call.host)
    asked = table.find(call.provider, call.model, call.at)
    if call.held is None:
        return [_needed(call, asked, geo)]
    served = table.find(call.provider, call.model_served, call.at) if call.model_served else None
    with AskedReader(config.ledger) as reader:
        kept = reader.asked(call)
    sides = []
    if call.state == "void" and call.reason is not None:
        sides.append(Side("charge", ZERO, None, [_nothing(call.reason)]))
    if call.state == "charged":
        terms = replace(kept.terms, tier=call.tier or kept.terms.tier)
        if call.shares:
            sides.append(_shares(call, table, geo, now))
        else:
            charge = _charge(call, served or asked, terms, geo, now)
            is_many = (kept.requests > 1 or kept.terms.tier == BATCH) and charge.sum is not None and not charge.adds_up
            sides.append(_of_many(charge, kept.requests) if is_many else charge)
    return [*sides, _hold(call, asked, kept, geo)]


def _of_many(charge: Side, requests: int) -> Side:
    """Show what a batch cost where that is not the price of all its usage as one: no row tells its requests apart."""
    many = f"a batch of {requests:,} requests" if requests > 1 else "the requests of a batch"
    words = f"{many}: each was priced by itself, by its own model and length, and they add up"
    return Side("charge", charge.booked, None, [words, *charge.words[1:]])


def _nothing(reason: str) -> str:
    """Say why a call that was held cost nothing."""
    if reason.startswith("status_"):
        return f"the provider answered {reason.removeprefix('status_')}"
    return {"not_sent": "it was not sent", "failed": "it failed, and charge_failed is false"}.get(reason, reason)


def _booked(call: CallRow) -> tuple[Money, list[str]]:
    """Give what was charged for the usage of a call, and what a person has corrected since."""
    corrected = [each for each in call.corrections if each.code == "corrected"]
    cost = charged(call)
    assert cost is not None, "only a charged call has a charge"
    words = [f"then corrected by {_signed(each.amount)}: {each.reason or '-'}" for each in corrected]
    return Money(cost.nano - sum(each.amount.nano for each in corrected)), words


def _shares(call: CallRow, table: PriceTable, geo: str | None, now: datetime) -> Side:
    booked, words = _booked(call)
    models = [table.find(call.provider, share.model, call.at) for share in call.shares]
    parts = [_share(call, share, model, geo) for share, model in zip(call.shares, models, strict=True)]
    if not all(part.adds_up for part in parts):
        of_then = f" (its price table was of {call.price_date})" if call.price_date else ""
        words.insert(0, f"these prices give another sum than was booked: prices changed since{of_then}")
    else:
        pairs = [(model, share) for model, share in zip(models, call.shares, strict=True) if model is not None]
        words += _today(_pico_today(pairs, geo, now), booked)
    return Side("charge", booked, None, words, parts)


def _share(call: CallRow, share: Share, model: Model | None, geo: str | None) -> SharePart:
    if model is None:
        return SharePart(share, None, [f"no price of {share.model} is known now"])
    try:
        return SharePart(share, share_sum(model, share, call.at, geo), ())
    except UnpricedError as error:
        return SharePart(share, None, [str(error)])


def _pico_today(pairs: Sequence[tuple[Model, Share]], geo: str | None, now: datetime) -> int | None:
    try:
        return sum(share_sum(model, share, now, geo).pico for model, share in pairs)
    except UnpricedError:
        return None


def _charge(call: CallRow, model: Model | None, terms: Terms, geo: str | None, now: datetime) -> Side:
    booked, words = _booked(call)
    if call.was_estimated and booked == call.held:
        return Side("charge", booked, None, [f"an estimate ({call.reason}): the hold, in full", *words])
    if call.was_estimated:
        words.insert(0, f"an estimate ({call.reason}) of its usage")
    if model is None:
        return Side("charge", booked, None, [f"no price of {call.model_served or call.model} is known now", *words])
    try:
        found = charge_sum(model, call.usage, terms, call.at, geo)
    except UnpricedError as error:
        return Side("charge", booked, None, [f"{error}", *words])
    if found.amount != booked:
        words.insert(0, _why_not(call))
    else:
        words += _today(_pico_now(model, call, terms, geo, now), booked)
    return Side("charge", booked, found, words)


def _why_not(call: CallRow) -> str:
    of_then = f" (its price table was of {call.price_date})" if call.price_date else ""
    return f"these prices give another sum than was booked: prices changed since{of_then}, or several models answered"


def _pico_now(model: Model, call: CallRow, terms: Terms, geo: str | None, now: datetime) -> int | None:
    try:
        return price(model, call.usage, terms, now, host_geo=geo)
    except UnpricedError:
        return None


def _today(pico: int | None, booked: Money) -> list[str]:
    today = booked if pico is None else Money.from_pico(pico)
    return [] if today == booked else [f"prices changed since: today the same usage costs {said(today)}"]


def _hold(call: CallRow, model: Model | None, kept: Asked, geo: str | None) -> Side:
    found = None if model is None else hold_sum(model, call, kept, geo)
    words = ["every token at the dearest rate that may apply"] if found is not None else [_untold(call, model, kept)]
    if call.held is not None and call.held != kept.held:
        words.append(f"shrunken to {said(call.held)} while the call ran")
    return Side("hold", kept.held, found, words)


def _needed(call: CallRow, model: Model | None, geo: str | None) -> Side:
    """Show what a refused call would have held, and what each limit in its way had left of that."""
    kept = asked_of(call)
    found = None if model is None else hold_sum(model, call, kept, geo)
    words = ["every token at the dearest rate that may apply"] if found is not None else [_untold(call, model, kept)]
    return Side("needed", kept.held, found, [*words, f"refused: {needed(call)}", *map(_limit, in_the_way(call))])


def _limit(figures: Mapping[str, Any]) -> str:
    """Write a limit that was in the way, in dollars and in tokens where it has both."""
    sizes = [
        f"spent {write(figures[f'spent_{unit}'])}, in flight {write(figures[f'in_flight_{unit}'])} "
        f"of {write(figures[f'budget_{unit}'])}"
        for unit, write in (("usd", lambda usd: said(Money.parse(usd))), ("tokens", "{:,} tokens".format))
        if f"budget_{unit}" in figures
    ]
    resets = f"; resets {figures['resets_at']}" if "resets_at" in figures else ""
    return f"{figures['limit']}: {' and '.join(sizes)}{resets}"


def _untold(call: CallRow, model: Model | None, kept: Asked) -> str:
    """Say what is known of a hold whose sum is not found, and why it is not."""
    if kept.prompt is None:
        return f"up to {kept.tokens:,} tokens; its row is of a version that kept no more of how it came about"
    again = f", {kept.refills:,} × {kept.window:,} of it the window again" if kept.refills else ""
    fees = "".join(f", {count:,} {unit.value}" for unit, count in kept.fees.items())
    known = f"a prompt of up to {kept.prompt:,} tokens{again}, {kept.output:,} of output{fees}"
    known += f", {kept.others:,} tokens of other models that may run within the call" if kept.others else ""
    if kept.requests > 1 or kept.terms.tier == BATCH:
        many = f"{kept.requests:,} requests" if kept.requests > 1 else "the requests of a batch"
        return f"{known}, for {many}, each of which was bound by itself"
    if kept.others:
        return f"{known}; what those may cost its row does not keep"
    why = f"; no price of {call.model} is known now"
    if model is not None:
        of_then = f" (its price table was of {call.price_date})" if call.price_date else ""
        why = f"; these prices give another sum than was held{of_then}"
    return f"{known}{why}"


def _print(side: Side) -> None:
    print(f"\n{side.name}: {said(side.booked)}")
    _print_sum(side.sum)
    for part in side.parts:
        print(f"\n{plain(_titled(part.share))}: {said(part.share.amount)}")
        _print_sum(part.sum)
        for words in part.words:
            print(plain(words))
    for words in side.words:
        print(plain(words))


def _titled(share: Share) -> str:
    """Name what a share is of: its model, and how many prompts."""
    return share.model if share.prompts == 1 else f"{share.model}, {share.prompts:,} prompts"


def _print_sum(found: Sum | None) -> None:
    if found is not None:
        amounts = [_dollars(part.total) for part in found.parts]
        places = max((len(text.partition(".")[2]) for text in amounts), default=0)
        cells = [
            [_unit(part), f"{part.count:,}", _rate(part), f"${Decimal(amount):.{places}f}"]
            for part, amount in zip(found.parts, amounts, strict=True)
        ]
        notes = [f"× {num}/{den} {name}" if den != 1 else f"× {num} {name}" for name, (num, den) in found.factors]
        notes += [f"prices of a prompt of {found.above:,} tokens or more"] if found.above else []
        sum_text = f"= ${_dollars(found.pico)}"
        is_exact = found.pico == found.amount.nano * 1000
        notes.append(sum_text if is_exact else f"{sum_text}, rounded up to ${found.amount.exact()}")
        show(View(_COLUMNS, cells, (), _FIELDS, notes=notes, empty="no usage"), Format.TABLE)


def _dump(call: CallRow, sides: Sequence[Side], form: Format) -> None:
    sums = [(name, found) for side in sides for name, found in _sums(side) if found is not None]
    records = [{"of": name, **_part(part)} for name, found in sums for part in found.parts]
    document = {
        "call": call.id, "at": stamp(call.at), "provider": call.provider, "model": call.model,
        **{side.name: _side(side) for side in sides},
    }  # fmt: skip
    show(View((), (), records, _FIELDS, document), form)


def _sums(side: Side) -> list[tuple[str, Sum | None]]:
    return [(side.name, side.sum), *((f"{side.name} of {_titled(part.share)}", part.sum) for part in side.parts)]


def _side(side: Side) -> Mapping[str, object]:
    told = _told(side.booked, side.sum, side.words, adds_up=side.adds_up)
    if not side.parts:
        return told
    shares = [
        {"model": part.share.model, "prompts": part.share.prompts}
        | _told(part.share.amount, part.sum, part.words, adds_up=part.adds_up)
        for part in side.parts
    ]
    return told | {"shares": shares}


def _told(booked: Money, found: Sum | None, words: Sequence[str], *, adds_up: bool) -> dict[str, object]:
    told: dict[str, object] = {"booked_usd": booked.exact(), "adds_up": adds_up, "notes": list(words)}
    if found is None:
        return told | {"parts": [], "tier": None, "above_tokens": None, "factors": {}, "sum_usd": None}
    return told | {
        "parts": [_part(part) for part in found.parts],
        "tier": found.tier,
        "above_tokens": found.above,
        "factors": {name: f"{num}/{den}" for name, (num, den) in found.factors},
        "sum_usd": _dollars(found.pico),
    }


def _part(part: Part) -> dict[str, object]:
    rate = _dollars(part.rate) if part.is_fee else rate_exact(part.rate)
    per = 1 if part.is_fee else _MILLION
    return {"unit": part.unit, "count": part.count, "rate_usd": rate, "per": per, "amount_usd": _dollars(part.total)}


def _unit(part: Part) -> str:
    return f"{part.unit} ({part.note})" if part.note else part.unit


def _rate(part: Part) -> str:
    return f"${_dollars(part.rate)} each" if part.is_fee else f"${rate_exact(part.rate)}/M"


def _dollars(pico: int) -> str:
    """Write picodollars as exact dollars."""
    text = f"{Decimal(pico).scaleb(-12):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _signed(amount: Money) -> str:
    return f"{'-' if amount.nano < 0 else '+'}${Money(abs(amount.nano)).exact()}"

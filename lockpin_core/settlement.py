"""What a call is charged once it has ended: SPEC §12's table as one pure function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from lockpin_core.aside import Steps, at_once
from lockpin_core.call import Call, Ceiling, Charge, Doubt, Ending, Later, Outcome, Portion, Reading, Share, Terms, Void
from lockpin_core.money import Money, shared_out
from lockpin_core.usage import (
    OUTPUT_UNITS,
    PIECE_UNITS,
    Unit,
    Usage,
    add,
    nonzero,
    output_tokens,
    prompt_tokens,
    total_tokens,
)

MOST_SHARES = 64  # that a charge keeps apart; beyond, they are kept by model alone
HIDDEN_THINKING_SLACK = 512  # output tokens beside seconds × tokens per second (SPEC §12)
UNKNOWN_GEO = "unknown"  # no region's name, so that it is priced as the dearest

type PricePico = Callable[[str | None, Usage, Terms], tuple[int, str] | None]
"""(model as the reply names it, usage, merged terms) → (picodollars, canonical model); None: no price is known."""

type BandStart = Callable[[str, int, Terms], int]
"""(canonical model, prompt tokens, merged terms) → the prompt tokens from which on the same prices hold."""


def _one_band(model: str, prompt: int, terms: Terms) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Tariff:
    """What settlement must know beside the call: prices of the call's instant and facts of its provider."""

    price: PricePico
    cut_rule: str  # "observed" | "hold", of the wire
    max_tps: int  # output tokens a second that the provider's models reach at most
    bills: Callable[[int, str | None], bool]  # (status, error code) → the provider bills this error reply
    charge_failed: bool
    bytes_estimate: int  # prompt tokens as bytes ÷ 3, for failed calls
    works_on: bool = False  # the provider does what was asked whatever becomes of the exchange
    band: BandStart = _one_band


def settle(call: Call, reading: Reading, outcome: Outcome, tariff: Tariff) -> Charge | Void | Later:
    """Decide the charge of a call. First row of SPEC §12 that applies."""
    return at_once(settle_in_steps(call, reading, outcome, tariff))


def settle_in_steps(call: Call, reading: Reading, outcome: Outcome, tariff: Tariff) -> Steps[Charge | Void | Later]:
    """Do the same portion by portion: the results of a batch may be very many."""
    if outcome.ending is Ending.NOT_SENT:
        return Void("not_sent")
    if outcome.status is not None and not 200 <= outcome.status < 300:
        return _error_reply(call, outcome, tariff)
    if reading.complete and is_whole(call, reading):
        return (yield from _reported(call, reading, tariff))
    if reading.pending and reading.upstream_id is not None:
        return Later()  # however the exchange ended: the provider goes on
    if outcome.ending is Ending.STOPPED:
        return held(call, "lockpin_stopped")
    if outcome.status is None:
        return _no_reply(call, outcome, tariff)
    if not reading.readable and outcome.ending is Ending.DONE:
        return held(call, "undecodable")
    return _incomplete(call, reading, outcome, tariff)


def is_whole(call: Call, reading: Reading) -> bool:
    """Say whether a list of results has one for each of the call's requests, and no other; what is no list need not.

    Of a call that was held before names were kept no more is known than how many requests it has.
    """
    most = call.quote.ceiling
    if reading.requests is None:
        return True
    return reading.requests == most.requests and most.name_sum in (0, reading.name_sum)


def held(call: Call, reason: str) -> Charge:
    """Charge the hold: nothing better is known."""
    return Charge(call.quote.most, {}, call.quote.tokens, None, call.terms.tier, reason=reason, estimated=True)


def _reported(call: Call, reading: Reading, tariff: Tariff) -> Steps[Charge]:
    portions = _with_history(call, reading) if call.quote.ceiling.left_out else reading.portions
    reason = None if portions is reading.portions else "hidden_input"
    charge = yield from _priced(call, reading, portions, tariff, reason=reason)
    if reason is None:
        return charge
    return _no_less(charge, (yield from _priced(call, reading, reading.portions, tariff, reason=None)))


def _no_less(charge: Charge, reported: Charge) -> Charge:
    """Say what of an estimate was reported, as far as that has a price."""
    if reported.estimated:
        return replace(charge, least_tokens=reported.least_tokens)
    return replace(charge, least=reported.amount, least_tokens=reported.tokens)


def _with_history(call: Call, reading: Reading) -> Sequence[Portion]:
    """Add what the usage may leave out of the prompt: a call never reads more than it is held for.

    Where the stated prompt is more than the request itself can be, the conversation that it names is in there.
    """
    most = call.quote.ceiling
    stated = sum(prompt_tokens(portion.usage) for portion in reading.portions)
    more = min(most.left_out, most.prompt - stated)
    if more <= 0 or not reading.portions or (most.rest is not None and stated > most.rest):
        return reading.portions
    first, *rest = reading.portions
    doubt = Doubt(Unit.INPUT, more, frozenset({Unit.AUDIO_IN, Unit.IMAGE_IN}))
    return (replace(first, usage=add(first.usage, {Unit.INPUT: more}), doubts=(*first.doubts, doubt)), *rest)


def _priced(
    call: Call, reading: Reading, portions: Sequence[Portion], tariff: Tariff, *, reason: str | None
) -> Steps[Charge]:  # fmt: skip
    terms, asked = _merged(call.terms, reading.terms), _asked(call.quote.ceiling)
    pico, served = 0, None
    usage: Usage = {}
    parts = _Parts(tariff.band) if len(portions) > 1 or reading.requests is not None else None
    for portion in portions:
        own = _merged(terms, portion.terms)
        counted, found = _dearest(portion, portion.model or reading.model, own, tariff, asked)
        usage = add(usage, counted)
        if found is None:
            return _unpriced(call, usage, reading.stated_pico)
        pico, served = pico + found[0], served or found[1]
        if parts is not None and reason is None:
            parts.add(found[1], counted, found[0], own)
        yield 0
    pico = max(pico, reading.stated_pico or 0)  # where the provider's own figure differs, the dearer is booked
    amount = Money.from_pico(pico)
    return Charge(
        amount, nonzero(usage), total_tokens(usage), served, terms.tier,
        reason=reason, estimated=reason is not None, shares=() if parts is None else parts.shares(amount),
    )  # fmt: skip


def _asked(most: Ceiling) -> frozenset[Unit]:
    """Say as what tokens may be billed at all: a reply that was read without its request doubts more than that."""
    return most.prompt_units | most.output_units | ({Unit.CACHE_AUDIO} if Unit.AUDIO_IN in most.prompt_units else set())


@dataclass(slots=True)
class _Part:
    """Prompts of one model that are priced alike."""

    model: str
    terms: Terms
    pico: int = 0
    prompts: int = 0
    least: int = 0
    most: int = 0
    usage: dict[Unit, int] = field(default_factory=dict)

    def add(self, usage: Usage, pico: int, prompts: int, least: int, most: int) -> None:
        """Count one prompt, or several."""
        self.least = min(self.least, least) if self.prompts else least
        self.most, self.prompts, self.pico = max(self.most, most), self.prompts + prompts, self.pico + pico
        for unit, count in usage.items():
            self.usage[unit] = self.usage.get(unit, 0) + count


class _Parts:
    """What of a reply is priced alike; there may be as many prompts in it as a batch has requests."""

    def __init__(self, band: BandStart) -> None:
        self._band = band
        self._parts: dict[tuple[str, int, Terms], _Part] = {}

    def add(self, model: str, usage: Usage, pico: int, terms: Terms) -> None:
        """Count a portion."""
        prompt = prompt_tokens(usage)
        key = (model, self._band(model, prompt, terms), terms)
        part = self._parts.get(key) or self._parts.setdefault(key, _Part(model, terms))
        part.add(usage, pico, 1, prompt, prompt)

    def shares(self, amount: Money) -> tuple[Share, ...]:
        """Share the whole charge out among them."""
        parts = list(self._parts.values())
        if len(parts) > MOST_SHARES:
            parts = _by_model(parts)
        amounts = shared_out(amount.nano, [part.pico for part in parts])
        return tuple(
            Share(part.model, nonzero(part.usage), Money(nano), part.prompts, part.least, part.most, part.terms)
            for part, nano in zip(parts, amounts, strict=True)
        )


def _by_model(parts: list[_Part]) -> list[_Part]:
    found: dict[str, _Part] = {}
    for part in parts:
        whole = found.setdefault(part.model, _Part(part.model, Terms()))
        whole.add(part.usage, part.pico, part.prompts, part.least, part.most)
    return list(found.values())


def _dearest(
    portion: Portion, model: str | None, terms: Terms, tariff: Tariff, asked: frozenset[Unit]
) -> tuple[Usage, tuple[int, str] | None]:
    """Price a portion; where the reply does not say what some of its tokens are, as the dearest that they may be."""
    usage, found = portion.usage, tariff.price(model, portion.usage, terms)
    for doubt in portion.doubts:
        for other in [_moved(usage, doubt, unit) for unit in sorted(doubt.units & asked)]:
            dearer = tariff.price(model, other, terms)
            if found is None or dearer is None:
                return portion.usage, None
            if dearer[0] > found[0]:
                usage, found = other, dearer
    return usage, found


def _moved(usage: Usage, doubt: Doubt, unit: Unit) -> Usage:
    rest = usage.get(doubt.counted, 0) - doubt.tokens
    return {**usage, doubt.counted: rest, unit: usage.get(unit, 0) + doubt.tokens}


def _unpriced(call: Call, usage: Usage, stated_pico: int | None) -> Charge:
    """Charge a reply with a unit that has no price: what the provider says, else the hold, which is what is sure."""
    counts, tokens = nonzero(usage), total_tokens(usage)
    if stated_pico is None:
        return replace(held(call, "no_price"), usage=counts, tokens=tokens, least_tokens=tokens)
    return Charge(Money.from_pico(stated_pico), counts, tokens, None, call.terms.tier)


def price_still_possible(call: Call, reading: Reading, tariff: Tariff) -> tuple[Money, int] | None:
    """Bound a running call anew, in dollars and tokens, once the reply has stated its prompt; None: it has not.

    The prompt as it was stated, at its real price, with all the output and all the fees that the hold allowed for, in
    the dearest region where none was named. Only for calls whose prompt cannot grow while they run.
    """
    most = call.quote.ceiling
    stated: Usage = {}
    for portion in reading.portions:
        stated = add(stated, {unit: count for unit, count in portion.usage.items() if unit not in OUTPUT_UNITS})
    if not reading.prompt_stated or not prompt_tokens(stated) or most.output_units != {Unit.OUTPUT}:
        return None
    fees = {unit: max(count, stated.get(unit, 0)) for unit, count in most.fees.items()}
    usage = {**stated, **fees, Unit.OUTPUT: most.output}
    terms = _merged(call.terms, reading.terms)
    dear_terms = terms if terms.geo else replace(terms, geo=UNKNOWN_GEO)
    found = tariff.price(reading.portions[0].model or reading.model, usage, dear_terms)
    return None if found is None else (Money.from_pico(found[0]), total_tokens(usage))


def _merged(asked: Terms, stated: Terms) -> Terms:
    return Terms(stated.tier or asked.tier, stated.speed or asked.speed, stated.geo or asked.geo)


def _error_reply(call: Call, outcome: Outcome, tariff: Tariff) -> Charge | Void:
    status = outcome.status or 0
    if status < 200:
        return held(call, "undecodable")  # an interim or an upgrade: what follows it is not seen
    if tariff.bills(status, outcome.error_code):
        return held(call, "billed_error")
    if status >= 500:
        return _failed(call, tariff)
    return Void(f"status_{status}", failed=True)


def _no_reply(call: Call, outcome: Outcome, tariff: Tariff) -> Charge | Void:
    if outcome.ending is Ending.DROPPED:
        return _failed(call, tariff)
    return held(call, outcome.ending.value)


def _failed(call: Call, tariff: Tariff) -> Charge | Void:
    """Charge the estimated input, uncached, never above the hold (SPEC §12: the provider may have billed it).

    That is for work that ends with its connection. What is done in the background, or as a batch, may have been taken
    on all the same and run to its end, under an id that nobody was told: it is charged the hold.
    """
    if not tariff.charge_failed:
        return Void("failed", failed=True)
    if tariff.works_on:
        return replace(held(call, "failed"), failed=True)
    most = call.quote.ceiling
    pieces = {unit: count for unit, count in most.fees.items() if unit in PIECE_UNITS}
    usage = pieces or {Unit.INPUT: min(tariff.bytes_estimate, most.prompt)}
    found = tariff.price(None, usage, call.terms)
    amount = call.quote.most if found is None else min(Money.from_pico(found[0]), call.quote.most)
    return Charge(
        amount, usage, total_tokens(usage), None, call.terms.tier, reason="failed", estimated=True, failed=True
    )


def _incomplete(call: Call, reading: Reading, outcome: Outcome, tariff: Tariff) -> Charge:
    is_cut = not reading.terminal or outcome.ending is not Ending.DONE
    reason = "no_usage"
    if is_cut and call.streamed:
        reason = "client_left" if outcome.ending is Ending.CLIENT_LEFT else "stream_cut"
    elif outcome.ending is not Ending.DONE:
        reason = outcome.ending.value
    if tariff.cut_rule != "observed" or not reading.prompt_stated or not call.streamed:
        return held(call, reason)
    return _observed(call, reading, outcome, tariff, reason=reason, is_cut=is_cut)


def _observed(call: Call, reading: Reading, outcome: Outcome, tariff: Tariff, *, reason: str, is_cut: bool) -> Charge:
    """Charge the prompt as the first event stated it, and one output token for each byte of generated text."""
    reported: Usage = {}
    for portion in reading.portions:
        reported = add(reported, portion.usage)
    if not prompt_tokens(reported):
        return held(call, reason)
    output = max(output_tokens(reported), reading.generated_bytes)
    if is_cut and reading.hidden_thinking:
        output = max(output, outcome.seconds * tariff.max_tps + HIDDEN_THINKING_SLACK)
    output = min(output, call.quote.ceiling.output)
    usage = {**reported, Unit.OUTPUT: max(output, output_tokens(reported))}
    model = reading.portions[0].model if reading.portions else None
    charge = at_once(_priced(call, reading, (Portion(model, usage),), tariff, reason=reason))
    return _no_less(charge, at_once(_priced(call, reading, (Portion(model, reported),), tariff, reason=None)))

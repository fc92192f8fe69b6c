"""How the amounts of a call come about: each count times its rate, what multiplies them, and the one rounding.

Pure over rows of the ledger and the price table in use. A row keeps the counts and the amounts, not the way between
them: that is found again by trying what may have applied until the sum is the very amount.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Self

from lockpin_core.call import Ceiling, Share, Terms
from lockpin_core.errors import LedgerUnavailable, UnpricedError
from lockpin_core.ledger.listing import CallRow
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.money import PICO_PER_NANO, Money
from lockpin_core.price_entry import ONE, STANDARD, Band, DatedPrice, Factor, Tier
from lockpin_core.price_factors import scaled, times
from lockpin_core.prices import BATCH, Model, price, quote
from lockpin_core.usage import FEE_UNITS, OUTPUT_UNITS, PIECE_UNITS, PROMPT_UNITS, Unit, Usage, nonzero, prompt_tokens

_ASKED = "SELECT tier, data, usd, tokens FROM rows WHERE call = ? AND kind = 'hold'"
_SPAN = timedelta(hours=1)  # prices that begin so soon after a hold may be in it
_CHOICES = 16  # the most replies to one call that are tried
_WRITES = (Unit.CACHE_WRITE_5M, Unit.CACHE_WRITE_1H, Unit.CACHE_WRITE_30M, Unit.CACHE_WRITE_12H)
_PROMPTS = (
    frozenset({Unit.INPUT}),
    *(frozenset({Unit.INPUT, unit}) for unit in (*_WRITES, Unit.IMAGE_IN, Unit.AUDIO_IN)),
    frozenset(PROMPT_UNITS),
)
_OUTPUTS = (frozenset({Unit.OUTPUT}), frozenset(OUTPUT_UNITS))


@dataclass(frozen=True, slots=True)
class Asked:
    """What a hold's row keeps of how it was bound. `prompt` None: it is of a time when rows did not keep it."""

    terms: Terms
    held: Money  # at first
    tokens: int
    prompt: int | None = None
    refills: int = 0  # how often `window` is in `prompt`: for each round of the provider's tools once
    window: int = 0
    fees: Mapping[Unit, int] = field(default_factory=dict)
    requests: int = 1  # in it, each of which was bound and is priced by itself
    others: int = 0  # tokens that other models may take within the call, at prices of theirs

    @property
    def output(self) -> int:
        """Give the tokens of its own reply; all of them, where the row does not tell them from the prompt."""
        return self.tokens - (self.prompt or 0) - self.others


class AskedReader(LedgerReader):
    """A reader that also knows on which terms and within what a call was held."""

    def __enter__(self) -> Self:
        return self

    def asked(self, call: CallRow) -> Asked:
        """Give what the request named and what its hold was made of."""
        try:
            row = self._connection.execute(_ASKED, (call.id,)).fetchone()
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"the ledger cannot be read: {error}") from error
        assert row is not None, "a call that was held has a row of it"
        told = json.loads(row["data"] or "{}")
        terms, most = Terms(row["tier"], told.get("speed"), told.get("geo")), told.get("ceiling", {})
        fees = {Unit(unit): count for unit, count in most.get("fees", {}).items()}
        refills, window = most.get("refills", 0), most.get("window", 0)
        held, requests = Money(row["usd"]), most.get("requests", 1)
        return Asked(
            terms, held, row["tokens"], most.get("prompt"), refills, window, fees, requests, most.get("others", 0)
        )


def asked_of(call: CallRow) -> Asked:
    """Give what a refused call named, and what its hold would have been made of."""
    told: Mapping[str, Any] = call.detail.get("asked", {})
    terms = Terms(told.get("tier"), told.get("speed"), told.get("geo"))
    fees = {Unit(unit): count for unit, count in told.get("fees", {}).items()}
    held, tokens = Money.parse(told.get("usd", "0")), told.get("tokens", 0)
    again = (told.get("refills", 0), told.get("window", 0))
    return Asked(terms, held, tokens, told.get("prompt"), *again, fees, told.get("requests", 1), told.get("others", 0))


@dataclass(frozen=True, slots=True)
class Part:
    """One line: so many of a unit at a rate."""

    unit: str
    count: int
    rate: int  # picodollars
    is_fee: bool = False  # a piece, and not multiplied
    note: str = ""  # what else there is of this unit, or why

    @property
    def total(self) -> int:
        return self.count * self.rate


@dataclass(frozen=True, slots=True)
class Sum:
    """How an amount adds up; the factors multiply all lines but the fees."""

    parts: Sequence[Part]
    tier: str
    above: int  # prompt tokens from which the band's prices hold; 0: the first band
    factors: Sequence[tuple[str, Factor]]
    pico: int  # before it is rounded up to a nanodollar

    @property
    def amount(self) -> Money:
        return Money.from_pico(self.pico)


def charge_sum(
    model: Model, usage: Usage, terms: Terms, at: datetime, geo: str | None, *, prompt_size: int | None = None
) -> Sum:
    """Show how usage is priced; `prompt_size`: of each of its prompts. Raises UnpricedError as `price` does."""
    whole = price(model, usage, terms, at, host_geo=geo, prompt_size=prompt_size)
    tokens = {unit: count for unit, count in nonzero(usage).items() if unit not in FEE_UNITS}
    fees = _fees(model, usage)
    dated = model.price_at(at)
    for name, tier in _likely_first(dated, terms.tier):
        band = tier.band(prompt_tokens(tokens) if prompt_size is None else prompt_size)
        if tokens.keys() <= band.rates.keys():
            parts = [Part(unit.value, count, band.rates[unit]) for unit, count in tokens.items()]
            for factors in _factors(model, name, tier):
                if _pico(parts, factors) + sum(fee.total for fee in fees) == whole:
                    return Sum([*parts, *fees], name, band.start, factors, whole)
    raise AssertionError("a price is some tier's rates times some of its factors")


def share_sum(model: Model, share: Share, at: datetime, geo: str | None) -> Sum:
    """Show how a share of a charge is priced, all its prompts together. Raises UnpricedError as `price` does."""
    return charge_sum(model, share.usage, share.terms, at, geo, prompt_size=share.most_prompt)


def is_that(share: Share, found: Sum) -> bool:
    """Say whether a share is what its sum says: each prompt may be rounded up, and the whole charge is rounded once."""
    return abs(share.amount.nano * PICO_PER_NANO - found.pico) < PICO_PER_NANO + share.prompts


def hold_sum(model: Model, call: CallRow, asked: Asked, geo: str | None) -> Sum | None:
    """Show how a hold was bound at first; None: its parts cannot be told from what the row keeps and these prices."""
    if pieces := {unit: count for unit, count in asked.fees.items() if unit in PIECE_UNITS}:
        return _pieces_bound(model, pieces, call, asked)
    is_batch = asked.terms.tier == BATCH
    for prompt, output in _splits(call, asked):
        for prompt_units, output_units in itertools.product(_PROMPTS, _OUTPUTS):
            ceiling = Ceiling(prompt, output, prompt_units, output_units, asked.fees)
            try:
                is_it = quote(model, ceiling, asked.terms, call.at, host_geo=geo, batched=is_batch) == asked.held
            except UnpricedError:
                continue
            found = _bound(model, ceiling, call, asked) if is_it else None
            if found is not None:
                return found
    return None


def _pieces_bound(model: Model, pieces: Usage, call: CallRow, asked: Asked) -> Sum | None:
    """Show the hold of a call to a model that bills by the second or the character."""
    for dated in model.prices_between(call.at, call.at + _SPAN):
        for name, tier in _likely_first(dated, None):
            rates = tier.bands[0].rates
            parts = [Part(unit.value, count, rates[unit]) for unit, count in pieces.items() if unit in rates]
            for factors in _factors(model, name, tier):
                found = Sum(parts, name, 0, factors, _pico(parts, factors))
                if found.amount == asked.held:
                    return found
    return None


def _splits(call: CallRow, asked: Asked) -> Iterator[tuple[int, int]]:
    """Give what is prompt and output of all the tokens held.

    Where the row does not say, that is what they may be: the output limit for one reply or several.
    """
    if asked.prompt is not None:
        yield asked.prompt, asked.output
        return
    limit = call.output_limit or 0
    for choices in range(1, _CHOICES + 1 if limit else 2):
        if choices * limit <= asked.tokens:
            yield asked.tokens - choices * limit, choices * limit


def _bound(model: Model, ceiling: Ceiling, call: CallRow, asked: Asked) -> Sum | None:
    fees = _fees(model, ceiling.fees)
    for dated in model.prices_between(call.at, call.at + _SPAN):
        for name, factors, prompt, band in _ways(model, dated, ceiling):
            inward = max(ceiling.prompt_units & band.rates.keys(), key=lambda unit: (band.rates[unit], unit))
            outward = max(ceiling.output_units & band.rates.keys(), key=lambda unit: (band.rates[unit], unit))
            parts = [*_inward(inward, prompt, band, asked), Part(outward.value, ceiling.output, band.rates[outward])]
            parts = [part for part in parts if part.count]
            pico = _pico(parts, factors) + sum(fee.total for fee in fees)
            found = Sum([*parts, *fees], name, band.start, factors, pico)
            if found.amount == asked.held:
                return found
    return None


def _inward(unit: Unit, prompt: int, band: Band, asked: Asked) -> list[Part]:
    """Part a prompt into what was sent and the window that each round of the provider's tools may fill again."""
    again = asked.refills * asked.window
    if not again or prompt != asked.prompt:
        return [Part(unit.value, prompt, band.rates[unit])]
    rounds = f"the window again, {asked.refills:,} × {asked.window:,}"
    return [Part(unit.value, prompt - again, band.rates[unit]), Part(unit.value, again, band.rates[unit], note=rounds)]


type _Way = tuple[str, list[tuple[str, Factor]], int, Band]  # tier, factors, prompt tokens, band


def _ways(model: Model, dated: DatedPrice, ceiling: Ceiling) -> Iterator[_Way]:
    for name, tier in _likely_first(dated, None):
        reach = [band for band in tier.bands if band.start <= ceiling.prompt]
        last = [band.start - 1 for band in reach[1:]] + [ceiling.prompt]  # the most prompt tokens of each band
        for factors in _factors(model, name, tier):
            for band, prompt in zip(reversed(reach), reversed(last), strict=True):
                if ceiling.prompt_units & band.rates.keys() and ceiling.output_units & band.rates.keys():
                    yield name, factors, prompt, band


def _likely_first(dated: DatedPrice, said: str | None) -> list[tuple[str, Tier]]:
    return sorted(dated.tiers.items(), key=lambda item: (item[0] != said, item[0] != STANDARD))


def _factors(model: Model, name: str, tier: Tier) -> Iterator[list[tuple[str, Factor]]]:
    """List what may multiply the rates of a tier: nothing first, then one speed, one region, a host's region."""
    speeds = [None, *((f"speed {speed}", factor) for speed, factor in model.speeds.items())]
    regions: Mapping[str, Factor] = model.geos or {"of another model": model.rules.dearest_geo}
    geos = [None, *((f"region {geo}", factor) for geo, factor in regions.items())]
    own = [] if tier.factor == ONE else [(f"tier {name}", tier.factor)]
    for some in itertools.product(speeds, geos, geos):
        yield [*own, *(pair for pair in some if pair is not None and pair[1] != ONE)]


def _pico(parts: Sequence[Part], factors: Sequence[tuple[str, Factor]]) -> int:
    return scaled(sum(part.total for part in parts), times(*(factor for _, factor in factors)))


def _fees(model: Model, usage: Usage) -> list[Part]:
    fees = {unit: count for unit, count in nonzero(usage).items() if unit in FEE_UNITS}
    return [Part(unit.value, count, model.fees[unit], is_fee=True) for unit, count in fees.items()]

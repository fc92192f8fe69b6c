"""What of a refused call would fit: the figures of a refusal's `fits`. Pure; knows no words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from lockpin_core.admission import Priced
from lockpin_core.budgets import Standing, with_reserve
from lockpin_core.call import Call, Quote
from lockpin_core.ladder import Room, room

_FIELD_BYTES = 48  # the names and the digits of an output limit, on whatever wire: they are counted with the prompt
_FIELD_STRINGS = 3
_GUESSES = 6  # before halves are tried, which never take long


def what_fits(priced: Priced, call: Call, standings: Sequence[Standing]) -> dict[str, object]:
    """Say with which output limit the call would be held if it were sent now; nothing where there is none.

    A request without a limit gets longer by one, and what is said must fit with that: the call itself, and the room for
    the last small calls that it leaves. A host that rejects an output limit is told none.
    """
    if not priced.incoming.provider.output_settable:
        return {}
    if priced.parsed.output_limit is None:
        content = priced.parsed.content
        longer = replace(
            content,
            text_bytes=content.text_bytes + _FIELD_BYTES,
            nfc_bytes=content.nfc_bytes + _FIELD_BYTES,
            strings=content.strings + _FIELD_STRINGS,
        )
        priced = replace(priced, parsed=replace(priced.parsed, content=longer))
        call = replace(call, reserve=priced.call(call.output_limit).reserve)
    asked = limit_asked(priced, call)
    most = largest_fitting(priced, call, standings)
    if not priced.wire.has_limit or not max(1, priced.wire.least_output(priced.parsed)) <= most < asked:
        return {}
    return {"max_output_tokens": most}


def limit_asked(priced: Priced, call: Call) -> int:
    """Give the limit that a lower one is below: the one in force or, where limits of fallbacks fall with it, the
    request's own, which may be above the most that its model makes.
    """
    said = priced.parsed.output_limit if priced.also and not call.limit_set else None
    return max(call.output_limit or 0, said or 0)


def largest_fitting(priced: Priced, call: Call, standings: Sequence[Standing]) -> int:
    """Find the largest output limit with which a call fits accounts as they stand.

    One so small that it may use the room that is kept for landing counts that too.
    """
    small = priced.landing.max_output_tokens
    found = _largest(priced, call.output_limit or 0, room(with_reserve(standings, call.reserve)))
    if call.reserve is None or found > small:
        return found
    return _largest(priced, small, room(with_reserve(standings, None)))


def _largest(priced: Priced, limit: int, room: Room) -> int:
    """Find the largest limit whose quote fits: with each that is lower, other models may need less too."""
    found = priced.largest_output(limit, room)
    if priced.wire.also_within(priced.parsed, found) == priced.parsed.also:
        return found
    low, high, steps = priced.quote_at(found), priced.quote_at(limit), 0
    if _fit(high, room):
        return limit
    while limit - found > 1:  # what fits is at `found`, what does not at `limit`
        steps += 1
        shares = _shares(low, high, room) if steps <= _GUESSES else [Fraction(1, 2)]
        middle = found + max(1, min(limit - found - 1, int((limit - found) * min(shares))))
        quote = priced.quote_at(middle)
        if _fit(quote, room):
            found, low = middle, quote
        else:
            limit, high = middle, quote
    return found


def _fit(quote: Quote, room: Room) -> bool:
    return (room.usd is None or quote.most <= room.usd) and (room.tokens is None or quote.tokens <= room.tokens)


def _shares(low: Quote, high: Quote, room: Room) -> list[Fraction]:
    """Say how far the room reaches from a quote that fits to one that does not, as if it grew evenly between them."""
    found = []
    if room.usd is not None and high.most > low.most:
        found.append(Fraction(room.usd.nano - low.most.nano, high.most.nano - low.most.nano))
    if room.tokens is not None and high.tokens > low.tokens:
        found.append(Fraction(room.tokens - low.tokens, high.tokens - low.tokens))
    return found or [Fraction(1, 2)]

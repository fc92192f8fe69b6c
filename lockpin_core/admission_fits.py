"""What of a refused call would fit: the figures of a refusal's `fits`. Pure; knows no words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lockpin_core.admission import Priced
from lockpin_core.budgets import Standing, with_reserve
from lockpin_core.call import Call
from lockpin_core.ladder import room

_FIELD_BYTES = 48  # the names and the digits of an output limit, on whatever wire: they are counted with the prompt
_FIELD_STRINGS = 3


def what_fits(priced: Priced, call: Call, standings: Sequence[Standing]) -> dict[str, object]:
    """Say with which output limit the call would be held if it were sent now; nothing where there is none.

    A request without a limit gets longer by one, and what is said must fit with that.
    """
    if priced.parsed.output_limit is None:
        content = priced.parsed.content
        longer = replace(
            content,
            text_bytes=content.text_bytes + _FIELD_BYTES,
            nfc_bytes=content.nfc_bytes + _FIELD_BYTES,
            strings=content.strings + _FIELD_STRINGS,
        )
        priced = replace(priced, parsed=replace(priced.parsed, content=longer))
    asked = call.output_limit or 0
    most = largest_fitting(priced, call, standings)
    if not priced.wire.has_limit or not max(1, priced.wire.least_output(priced.parsed)) <= most < asked:
        return {}
    return {"max_output_tokens": most}


def largest_fitting(priced: Priced, call: Call, standings: Sequence[Standing]) -> int:
    """Find the largest output limit with which a call fits accounts as they stand.

    One so small that it may use the room that is kept for landing counts that too.
    """
    small = priced.landing.max_output_tokens
    found = priced.largest_output(call.output_limit or 0, room(with_reserve(standings, call.reserve)))
    if call.reserve is None or found > small:
        return found
    return priced.largest_output(small, room(with_reserve(standings, None)))

"""What a request says of who may serve it, where its host passes calls on to others, in whichever format it is.

Source: OpenRouter's guide to provider routing (`provider`), read 2026-11. Knows no prices, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping

from lockpin_core.wire.tally import Tally, Unknown, scalars, shape

_ROUTING = shape(
    "provider",
    "data_collection sort allow_fallbacks require_parameters zdr",
    {"order": scalars, "only": scalars, "ignore": scalars, "quantizations": scalars, "sort": scalars},
    refused={"max_price": "Lockpin says itself how dear a host may be"},
    unknown=Unknown.REFUSE,
)


def routing_rule(value: object, tally: Tally) -> None:
    """Check which hosts a request names, and by what they are chosen; no text of it reaches a model."""
    _ROUTING.read(value, Tally())


def is_routed(members: Mapping[str, object]) -> bool:
    """Say whether the request has a say in which of several hosts serves it, and so at whose price."""
    return bool(members.get("provider"))

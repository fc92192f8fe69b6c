"""What a reply itself says that the call cost, in the words of the vendors that say so. Exact: no figure is a float.

Sources, read 2026-11: OpenRouter's usage accounting (`usage.cost` in dollars, beside it `cost_details.
upstream_inference_cost` where the customer's own key pays), xAI's reference (`cost_in_usd_ticks`, 10^10 a dollar),
Perplexity's (`usage.cost.total_cost` in dollars); of GitHub Copilot what its replies are seen to state
(`copilot_usage.total_nano_aiu`, 10^9 a credit, 100 credits a dollar).
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Any

from lockpin_core.wire.replies import Figure, members

_PICO_PER_DOLLAR = Decimal(10**12)
_PICO_PER_TICK = Decimal(100)
_PICO_PER_NANO_CREDIT = Decimal(10)
_MOST_PICO = Decimal(10**18)  # a million dollars; no call costs more


def stated_pico(usage: dict[str, Any], beside: dict[str, Any] | None = None) -> int | None:
    """Read the cost in picodollars from a usage object and what stands beside it; None: nothing readable is said."""
    cost, details = usage.get("cost"), members(usage.get("cost_details"))
    found = [
        _pico(members(cost).get("total_cost") if isinstance(cost, dict) else cost, _PICO_PER_DOLLAR),
        _pico(usage.get("cost_in_usd_ticks"), _PICO_PER_TICK),
        _pico(members((beside or {}).get("copilot_usage")).get("total_nano_aiu"), _PICO_PER_NANO_CREDIT),
    ]
    if usage.get("is_byok") is True and found[0] is not None:
        found[0] += _pico(details.get("upstream_inference_cost"), _PICO_PER_DOLLAR) or 0
    return max((pico for pico in found if pico is not None), default=None)


def _pico(value: object, unit: Decimal) -> int | None:
    number = _exact(value)
    if number is None or not number.is_finite() or not 0 <= number <= _MOST_PICO or number * unit > _MOST_PICO:
        return None
    return int((number * unit).to_integral_value(ROUND_CEILING))


def _exact(value: object) -> Decimal | None:
    if type(value) is int:
        return Decimal(value)
    text = value.text if isinstance(value, Figure) else value
    if not isinstance(text, str) or len(text) > 64:
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        return None

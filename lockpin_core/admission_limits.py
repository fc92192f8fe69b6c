"""What the limits in force mean for a call that is priced: it is refused for one, or counted again. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from lockpin_core.admission import Priced, Refused
from lockpin_core.budgets import Standing
from lockpin_core.call import Call
from lockpin_core.ledger.protocol import Held
from lockpin_core.money import Money

_TIGHT = 4  # where less than so many more of such calls fit, a hold is counted again after it was sent


def refuse_endless(priced: Priced, call: Call, standings: Sequence[Standing]) -> None:
    """Refuse a call that is free and without a bound where a limit in tokens is in force."""
    if any(s.budget.enforce and s.limit_tokens is not None for s in standings):
        words = f"it costs nothing, but a limit in tokens is in force, and {priced.no_bound(call.output_limit)}"
        raise Refused("unpriced_tool", words, model=call.model)


def task_closed(task: str, model: str | None = None) -> Refused:
    """Say that a call's task was closed."""
    words = f'task "{task}" was closed; to reopen it: lockpin task new "{task}" --budget USD'
    return Refused("task_closed", words, {"task": task}, model=model)


def without_tools(priced: Priced, call: Call) -> Money | None:
    """Give what a call would need without the provider's own tools; None where that is not less."""
    least = priced.without_tools().call(call.output_limit if call.limit_set else None).quote.most
    return least if least < call.quote.most else None


def is_tight(held: Held) -> bool:
    """Say whether an enforced account has room for only a few more such calls."""
    quote = held.call.quote
    for standing in held.standings:
        usd, tokens = standing.remaining(), standing.remaining_tokens()
        if standing.budget.enforce and (
            (usd is not None and usd.nano < _TIGHT * quote.most.nano)
            or (tokens is not None and tokens < _TIGHT * quote.tokens)
        ):
            return not held.degraded
    return False

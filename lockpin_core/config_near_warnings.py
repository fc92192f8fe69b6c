"""What `retry`, `breaker` and `landing` may mean otherwise than their writer thinks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from lockpin_core.call import Ceiling, Terms
from lockpin_core.config import Config
from lockpin_core.config_near_cap import Breaker, Landing, Retry
from lockpin_core.errors import UnpricedError
from lockpin_core.money import Money
from lockpin_core.price_table import Model, PriceTable
from lockpin_core.prices import quote
from lockpin_core.usage import Unit
from lockpin_core.windows import duration_text


def near_warnings(config: Config, table: PriceTable, *, at: datetime) -> Iterator[str]:
    """List the warnings, one line each."""
    near = config.near_cap
    yield from _retry(near.retry)
    yield from _breaker(near.breaker)
    if near.landing.calls and config.task.budget_usd is not None:
        yield from _landing(near.landing, config.task.budget_usd, table, at)


def _retry(retry: Retry) -> Iterator[str]:
    usual = Retry()
    pairs = {
        "base": (retry.base_ms, usual.base_ms),
        "max": (retry.max_ms, usual.max_ms),
        "after_max": (retry.after_max_ms, usual.after_max_ms),
    }
    said = [name for name, (given, default) in pairs.items() if given != default]
    if retry.attempts == 1 and said:
        are = f"{' and '.join(said)} {'is' if len(said) == 1 else 'are'} of no use"
        way = "retry.attempts: 3 sends one up to three times"
        yield f"retry: {are}, as retry.attempts is 1: no call is sent to the same model again; {way}"
    if retry.base_ms > retry.max_ms:
        base, most = (duration_text(each) for each in (retry.base_ms, retry.max_ms))
        yield f"retry.base is {base} and above retry.max, {most}: every wait is up to {most}"


def _breaker(breaker: Breaker) -> Iterator[str]:
    if breaker.usd is None and breaker != Breaker():
        yield "breaker: it has no usd, so it is off and nothing pauses; usd says how much may be charged in the window"


def _landing(landing: Landing, budget: Money, table: PriceTable, at: datetime) -> Iterator[str]:
    """Compare the output alone that room is kept for with a task's budget, by the prices of most models."""
    tokens = landing.calls * landing.max_output_tokens
    found = [cost for model in table.models() if (cost := _output_cost(model, tokens, at))]
    above = sum(cost > budget for cost in found)
    if found and 2 * above > len(found):
        room = f"{landing.calls:,} × {landing.max_output_tokens:,} tokens of output"
        yield (
            f"landing: the room for {room} costs more than a task's budget, ${budget.exact()}, with {above:,} of "
            f"{len(found):,} priced models, so that only calls of up to {landing.max_output_tokens:,} tokens of output "
            "fit; a smaller landing or a larger task.budget_usd lets others pass"
        )


def _output_cost(model: Model, tokens: int, at: datetime) -> Money | None:
    """Say what so many tokens of output cost at most; None: that is not known."""
    output = Ceiling(0, tokens, frozenset({Unit.INPUT}), frozenset({Unit.OUTPUT}), {})
    try:
        return quote(model, output, Terms(), at)
    except UnpricedError:
        return None

"""The same call, smaller: what is tried, in order, before a call that does not fit is refused (SPEC §8, steps 6–11).

This version knows one rung: an output limit that Lockpin itself sets may shrink to what is left, down to the floor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lockpin_core.budgets import Standing
from lockpin_core.money import Money

FIT = "fit"  # how `X-Lockpin-Degrade` names limits that Lockpin set lower than usual


@dataclass(frozen=True, slots=True)
class Rung:
    """A smaller version of the call: with this output limit for each choice."""

    max_output: int
    mark: str  # how `X-Lockpin-Degrade` names it


@dataclass(frozen=True, slots=True)
class Room:
    """What is left over all enforced accounts of a call: the smallest of each kind; None: no such limit."""

    usd: Money | None
    tokens: int | None


def room(standings: Sequence[Standing]) -> Room:
    """Find what the tightest enforced accounts leave."""
    enforced = [standing for standing in standings if standing.budget.enforce]
    usd = [left for left in (s.remaining() for s in enforced) if left is not None]
    tokens = [left for left in (s.remaining_tokens() for s in enforced) if left is not None]
    return Room(min(usd, default=None), min(tokens, default=None))


def rungs(*, may_set: bool, in_force: int, floor: int, largest_fitting: Callable[[], int]) -> Sequence[Rung]:
    """List the smaller versions to try.

    `may_set`: the request has no output limit of its own and may get one. `in_force`: the limit that did not fit.
    `largest_fitting`: the largest limit for which the call fits now; asked for only where it matters.
    """
    if not may_set:
        return ()
    fitting = min(largest_fitting(), in_force)
    return (Rung(fitting, FIT),) if floor <= fitting < in_force else ()

"""The same call, smaller or later: what is tried, in order, before a call that does not fit is refused.

`ladder` is SPEC §8's steps 5 to 11 in one place: each rung is tried only if no rung before it has found room. What a
rung does, the seeker knows; what may be done to this call, its facts say.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from lockpin_core.budgets import Standing
from lockpin_core.money import Money

# How `X-Lockpin-Degrade` names what was done to a call.
FIT = "fit"  # an output limit, or one on the provider's tools, that Lockpin set lower than usual or than asked
TRIM = "trim"  # old tool results left out
CACHE_5M = "cache5m"  # prompt cache entries live for five minutes instead of an hour


class Rung(enum.Enum):
    """What is tried of a call, after its hold by the byte bound."""

    AS_SENT = enum.auto()  # its worst case by its bytes
    COUNTED = enum.auto()  # by an exact count of its prompt
    CACHE_5M = enum.auto()  # with prompt cache entries that live for five minutes
    TRIMMED = enum.auto()  # with old tool results left out besides
    LATER_OR_LOWER = enum.auto()  # at full size once held money comes free; then with what output fits
    LIGHTER_AND_LOWER = enum.auto()  # trimmed, and with what output fits then
    ASKED = enum.auto()  # a person raises the limit, or lets it pass once
    AGAIN = enum.auto()  # as before all that, since room may have come free meanwhile


@dataclass(frozen=True, slots=True)
class Cheaper:
    """Another model in its place: by its bytes, counted, lowered."""

    model: str  # provider/model


class Facts(Protocol):
    """How a call stands that has found no room so far; asked anew for each rung."""

    def is_near_cap(self) -> bool:
        """Say whether its task's own budget is so far spent that calls are made lighter."""

    def has_turned(self) -> bool:
        """Say whether its task has come near its cap, or away from it, since the call was last made smaller."""

    def cheaper(self) -> Sequence[str]:
        """List the models that may serve in its place."""

    def is_for_a_person(self) -> bool:
        """Say whether nothing but its task's own limit stands in its way, and somebody may be asked about that."""

    def was_asked(self) -> bool:
        """Say whether somebody was."""


def ladder(facts: Facts) -> Iterator[Rung | Cheaper]:
    """List what to try, in order; the next is asked for only where the one before found no room."""
    yield Rung.AS_SENT
    yield Rung.COUNTED
    if lightens := facts.is_near_cap():
        yield Rung.CACHE_5M
        yield Rung.TRIMMED
    yield Rung.LATER_OR_LOWER
    lightens = yield from _turned(facts, lightens=lightens)
    if lightens:
        yield Rung.LIGHTER_AND_LOWER
    others = facts.cheaper()
    yield from map(Cheaper, others)
    if facts.is_for_a_person():
        yield Rung.ASKED
    was_asked = facts.was_asked()
    if others or was_asked:  # nothing that fits by now is refused
        yield Rung.AGAIN
        lightens = yield from _turned(facts, lightens=lightens)
        yield from (Rung.LIGHTER_AND_LOWER,) if lightens else ()
        yield from map(Cheaper, others)


def _turned(facts: Facts, *, lightens: bool) -> Generator[Rung, None, bool]:
    """List what may be tried once a call has waited, and could not be before. Says whether it may be lighter by now."""
    while facts.has_turned() or (not lightens and facts.is_near_cap()):
        if not lightens and (lightens := facts.is_near_cap()):
            yield Rung.CACHE_5M
            yield Rung.TRIMMED
        yield Rung.LATER_OR_LOWER
    return lightens


@dataclass(frozen=True, slots=True)
class Lowered:
    """A smaller version of the call: with this output limit for each choice."""

    max_output: int


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


def lowered(*, may_lower: bool, in_force: int, floor: int, largest_fitting: Callable[[], int]) -> Lowered | None:
    """Give the version with the largest output limit that fits; None: none that may be tried does.

    `in_force`: the limit that did not fit. `largest_fitting`: the largest for which the call fits now; asked for only
    where it matters.
    """
    if not may_lower:
        return None
    fitting = min(largest_fitting(), in_force)
    return Lowered(fitting) if floor <= fitting < in_force else None

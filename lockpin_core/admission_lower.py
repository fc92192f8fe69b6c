"""The same call with less output, or fewer calls of the provider's tools: the largest version that its accounts leave.

It is worked out inside the transaction of a hold, from the balances that stand there. Knows no ledger and no bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from lockpin_core.admission import Priced
from lockpin_core.admission_fits import largest_fitting, limit_asked
from lockpin_core.budgets import Standing, violations, with_reserve
from lockpin_core.call import Call
from lockpin_core.ladder import FIT, Lowered, lowered
from lockpin_core.ledger.protocol import Answer, Held, Short

_MOST_TOOL_CALLS = 32  # a limit that is lowered begins to be tried just below


@dataclass(frozen=True, slots=True)
class Lowering:
    """How far a call may be lowered: down to `floor`, and whether at all."""

    floor: int
    may_lower: bool  # its output limit: the one that Lockpin has set, or that of the request
    may_limit_tools: bool
    is_cut: Callable[[], bool] = lambda: False  # a reply of the conversation was cut off meanwhile: then it is not


@dataclass(slots=True)
class Lower:
    """The call, smaller, for what its accounts leave: fewer calls of the provider's tools, then less output."""

    priced: Priced
    call: Call
    how: Lowering
    _given: Priced = field(init=False)  # of the version that was given last
    _least: dict[bool, tuple[Priced, Call] | None] = field(init=False)  # by whether a reply was cut off
    _most_tool_calls: int = field(init=False)

    def __post_init__(self) -> None:
        """Make the smallest version."""
        tools = self.priced.parsed.tools if self.how.may_limit_tools else ()
        self._most_tool_calls = max((tool.calls for tool in tools), default=1)
        self._given, is_cut = self.priced, self.how.is_cut()
        self._least = {is_cut: self._smallest()}

    @property
    def least(self) -> tuple[Priced, Call] | None:
        """Give the smallest version as of now; None: there is none."""
        is_cut = self.how.is_cut()
        if is_cut not in self._least:
            self._least[is_cut] = self._smallest()
        return self._least[is_cut]

    def _smallest(self) -> tuple[Priced, Call] | None:
        has_tools = self._most_tool_calls > 1
        priced = self.priced.with_tool_limit(1) if has_tools else self.priced
        lowest = self._lowered(lambda: self.how.floor)
        limit = self._limit if lowest is None else lowest.max_output
        return (priced, self._version(priced, limit)) if has_tools or lowest else None

    def __call__(self, standings: tuple[Standing, ...]) -> Call | None:
        """Give the first version that fits; None: there is none."""
        if (least := self.least) is None or violations(with_reserve(standings, least[1].reserve), least[1].quote):
            return None  # the usual case, and the quickest to see
        priced, call = self.priced, self.call
        for fewer in range(min(self._most_tool_calls, _MOST_TOOL_CALLS) - 1, 0, -1):
            priced = self.priced.with_tool_limit(fewer)
            call = self._version(priced, self._limit)
            if not violations(with_reserve(standings, call.reserve), call.quote):
                self._given = priced
                return call
        found = self._lowered(lambda: largest_fitting(priced, call, standings))
        if found is None:
            return None
        self._given = priced
        return self._version(priced, found.max_output)

    def priced_of(self, answer: Answer) -> Priced:
        """Give the version that is held; the whole where none is."""
        is_whole = not isinstance(answer, Held) or answer.call.quote is self.call.quote
        return self.priced if is_whole else self._given

    def may_pass(self, short: Short) -> bool:
        """Say whether only money that is held for others is in the way of the call, or of its smallest version."""
        least = self.least
        return may_pass(short, self.call) or (least is not None and may_pass(short, least[1]))

    @property
    def _limit(self) -> int | None:
        return self.call.output_limit if self.call.limit_set else None

    def _lowered(self, largest_fitting: Callable[[], int]) -> Lowered | None:
        most, floor = self.call.output_limit or 0, self.how.floor
        may_lower = self.how.may_lower and not self.how.is_cut()
        return lowered(
            may_lower=may_lower,
            in_force=limit_asked(self.priced, self.call),
            floor=floor,
            largest_fitting=lambda: min(largest_fitting(), most),
        )

    def _version(self, priced: Priced, set_limit: int | None) -> Call:
        made = priced.call(set_limit, degrade=(FIT,))
        return replace(made, waited_ms=self.call.waited_ms, instead_of=self.call.instead_of)


def may_pass(short: Short, call: Call) -> bool:
    """Say whether only money that is held for others is in the way, or a turn that is not this call's.

    What another version of the call must leave free is not in the way of this one, which may be small enough to use it.
    """
    in_the_way = with_reserve(short.violations, call.reserve)
    return all(standing.is_transient(call.quote.most, call.quote.tokens) for standing in in_the_way)

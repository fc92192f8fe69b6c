"""Seeks room for a call: SPEC §8's steps 5 to 9 in order. Knows what is tried next; knows no bytes and no SQL."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from lockpin_core.admission import Priced, Refused
from lockpin_core.admission_counts import Counts
from lockpin_core.admission_latch import Latch
from lockpin_core.aside import beside_loop
from lockpin_core.budgets import Standing, violations
from lockpin_core.call import Call
from lockpin_core.clients import client_of
from lockpin_core.clock import Clock
from lockpin_core.config import Config
from lockpin_core.errors import LedgerUnavailable, LockpinError
from lockpin_core.ladder import FIT, Rung, room, rungs
from lockpin_core.ledger.answers import answer_of, failed_by
from lockpin_core.ledger.pauses import Paused
from lockpin_core.ledger.protocol import Answer, Closed, Held, Ledger, Rules, Short, Smaller, Wait


@dataclass(frozen=True, slots=True)
class Found:
    """Where the search ended: the call as it was last priced, and what the ledger said to it.

    A Short answer is about this call: the whole one, or the smallest version where only that could fit some time.
    """

    priced: Priced
    call: Call
    answer: Answer


class Waits:
    """For how long calls have waited for room, by call: each until somebody says that it is decided."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._before: dict[str, timedelta] = {}
        self._since: dict[str, datetime] = {}

    @contextlib.contextmanager
    def counting(self, call_id: str) -> Iterator[None]:
        """Count the time that a block takes."""
        self._since[call_id] = self._clock()
        try:
            yield
        finally:
            self._before[call_id] = self._so_far(call_id)
            self._since.pop(call_id, None)

    def waited_ms(self, call_id: str) -> int:
        """Give what a call has waited so far, in whole milliseconds; 0: it has not, or was forgotten."""
        return self._so_far(call_id) // timedelta(milliseconds=1)

    def forget(self, call_id: str) -> None:
        """Drop what is known of a call, which is decided."""
        self._before.pop(call_id, None)

    def _so_far(self, call_id: str) -> timedelta:
        before, since = self._before.get(call_id, _NO_TIME), self._since.get(call_id)
        return before if since is None else before + max(self._clock() - since, _NO_TIME)  # a clock may step back


_NO_TIME = timedelta(0)


class Seeker:
    """Tries a call as it is, then counted, later, smaller. `waits` knows for how long the calls under way waited."""

    def __init__(
        self, config: Config, ledger: Ledger, counts: Counts, latch: Latch, *, rules: Rules, clock: Clock
    ) -> None:
        self._config, self._ledger, self._counts, self._latch = config, ledger, counts, latch
        self._rules, self._clock, self.waits = rules, clock, Waits(clock)

    async def seek(self, priced: Priced, call: Call) -> Found:
        """Hold the call, made of `priced`, in the first version that fits; a Short answer is final for all of them."""
        began = self._clock()
        answer = await self._ask(call)
        if not isinstance(answer, Short):
            return Found(priced, call, answer)
        digest = await self._digest(priced)
        counted = await self._counts.counted(priced, digest)
        if counted is not None:
            priced, call = counted, counted.call(call.output_limit if call.limit_set else None)
            answer = await self._ask(call)
        lower = _Lower(priced, call, self._config.fit.floor)
        if isinstance(answer, Short):
            answer = await self._later_or_lower(lower, answer, digest, began)
        if isinstance(answer, Short):
            return self._refused(lower, answer, digest)
        return Found(lower.priced_of(answer), lower.call, answer)

    async def _later_or_lower(self, lower: _Lower, short: Short, digest: bytes, began: datetime) -> Answer:
        """Let the call wait for room, and as the smallest version where the whole cannot fit; then make it smaller."""
        answer: Answer = short
        if not _may_pass(short, lower.call) or self._wait(lower, digest, began) is None:
            answer = await self._ask(lower.call, lower, out_of_turn=short.behind)
        if not isinstance(answer, Short):
            return answer
        wait = self._wait(lower, digest, began) if lower.may_pass(answer) else None
        if wait is not None:
            waited = await self._ask(lower.call, lower, wait=wait)
            lower.call = replace(lower.call, waited_ms=lower.call.waited_ms + self.waits.waited_ms(lower.call.id))
            if not isinstance(waited, Short):
                return waited
        elif not answer.behind and lower(answer.standings) is None:
            return answer
        # Nothing that fits is refused, whoever stands before it; and limits and spend may be others by now.
        return await self._ask(lower.call, lower, out_of_turn=True)

    def _refused(self, lower: _Lower, short: Short, digest: bytes) -> Found:
        """Refuse the whole call, or the smallest version where only held money was in the way of that one alone."""
        if _may_pass(short, lower.call):
            return Found(lower.priced, lower.call, short)
        if lower.least is not None and lower.may_pass(short):
            priced, least = lower.least
            return Found(priced, least, replace(short, violations=tuple(violations(short.standings, least.quote))))
        self._latch.close(digest, self._clock())
        return Found(lower.priced, lower.call, short)

    def _wait(self, lower: _Lower, digest: bytes, began: datetime) -> Wait | None:
        """Say how long the call may wait; None: it may not."""
        if self._latch.is_closed(digest, self._clock()):
            return None
        client = client_of(lower.priced.incoming.headers)
        left = began + timedelta(seconds=client.patience_s) - self._clock()
        patience = min(timedelta(milliseconds=self._config.queue_wait_ms), left)
        least = None if lower.least is None else lower.least[1].quote
        return Wait(patience, least) if patience > _NO_TIME else None

    async def _digest(self, priced: Priced) -> bytes:
        """Digest what makes it the same call again: its task and what it asks."""
        request = priced.incoming.request()
        same = await beside_loop(len(request.body), partial(priced.wire.same_call, request))
        return hashlib.sha256(priced.incoming.payers.task.encode() + b"\0" + same).digest()

    async def _ask(
        self, call: Call, smaller: Smaller | None = None, *, wait: Wait | None = None, out_of_turn: bool = False
    ) -> Answer:
        """Ask for a hold. Where the asking is broken off, a hold that came about is taken off again."""
        with contextlib.nullcontext() if wait is None else self.waits.counting(call.id):
            holding = self._ledger.hold(call, self._rules, smaller, wait, out_of_turn=out_of_turn)
            try:
                return await answer_of(holding)
            except LedgerUnavailable:
                raise
            except BaseException as error:
                self._ledger.cancel(call.id)
                if failed_by(holding, error):
                    what = str(error) if isinstance(error, LockpinError) else type(error).__name__
                    words = f"the amount could not be held ({what}); the call was not sent"
                    raise Refused("reserve_failed", words, model=call.model) from error
                raise


_MOST_TOOL_CALLS = 32  # a limit that is lowered begins to be tried just below


@dataclass(slots=True)
class _Lower:
    """The call, smaller, for what its accounts leave: fewer calls of the provider's tools, then less output."""

    priced: Priced
    call: Call
    floor: int
    least: tuple[Priced, Call] | None = field(init=False)  # the smallest version; None: there is none
    _given: Priced = field(init=False)  # of the version that was given last

    def __post_init__(self) -> None:
        """Make the smallest version."""
        self._given, has_tools = self.priced, self._most_tool_calls > 1
        priced = self.priced.with_tool_limit(1) if has_tools else self.priced
        lowest = self._rungs(priced, lambda: max(self.floor, priced.wire.min_output))
        limit = lowest[0].max_output if lowest else self._limit
        self.least = (priced, self._version(priced, limit)) if has_tools or lowest else None

    def __call__(self, standings: tuple[Standing, ...]) -> Call | None:
        """Give the first version that fits; None: there is none."""
        priced = self.priced
        for fewer in range(min(self._most_tool_calls, _MOST_TOOL_CALLS) - 1, 0, -1):
            priced = self.priced.with_tool_limit(fewer)
            lower = self._version(priced, self._limit)
            if not violations(standings, lower.quote):
                self._given = priced
                return lower
        in_force = self.call.output_limit or 0
        for rung in self._rungs(priced, lambda: priced.largest_output(in_force, room(standings))):
            self._given = priced
            return self._version(priced, rung.max_output)
        return None

    def priced_of(self, answer: Held | Closed | Paused) -> Priced:
        """Give the version that is held."""
        is_whole = not isinstance(answer, Held) or answer.call.quote is self.call.quote
        return self.priced if is_whole else self._given

    def may_pass(self, short: Short) -> bool:
        """Say whether only money that is held for others is in the way of the call, or of its smallest version."""
        return _may_pass(short, self.call) or (self.least is not None and _may_pass(short, self.least[1]))

    @property
    def _limit(self) -> int | None:
        return self.call.output_limit if self.call.limit_set else None

    @property
    def _most_tool_calls(self) -> int:
        parsed = self.priced.parsed
        return max((tool.calls for tool in parsed.tools), default=1) if parsed.output_settable else 1

    def _rungs(self, priced: Priced, largest_fitting: Callable[[], int]) -> Sequence[Rung]:
        return rungs(
            may_set=self.call.limit_set,
            in_force=self.call.output_limit or 0,
            floor=max(self.floor, priced.wire.min_output),
            largest_fitting=largest_fitting,
        )

    def _version(self, priced: Priced, set_limit: int | None) -> Call:
        return replace(priced.call(set_limit, degrade=(FIT,)), waited_ms=self.call.waited_ms)


def _may_pass(short: Short, call: Call) -> bool:
    """Say whether only money that is held for others is in the way, or a turn that is not this call's."""
    return all(standing.is_transient(call.quote.most, call.quote.tokens) for standing in short.violations)

"""Seeks room for a call: SPEC §8's steps 5 to 9 in order. Knows what is tried next; knows no bytes and no SQL."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
from lockpin_core.ladder import FIT, room, rungs
from lockpin_core.ledger.answers import answer_of, failed_by
from lockpin_core.ledger.protocol import Closed, Held, Ledger, Rules, Short, Smaller, Wait


@dataclass(frozen=True, slots=True)
class Found:
    """Where the search ended: the call as it was last priced, and what the ledger said to it."""

    priced: Priced
    call: Call
    answer: Held | Short | Closed


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
        began, has_waited = self._clock(), False
        answer = await self._ask(call)
        if not isinstance(answer, Short):
            return Found(priced, call, answer)
        digest = await self._digest(priced)
        counted = await self._counts.counted(priced, digest)
        if counted is not None:
            priced, call = counted, counted.call(call.output_limit if call.limit_set else None)
            answer = await self._ask(call)
        if isinstance(answer, Short) and _may_pass(answer, call) and (wait := self._wait(priced, digest, began)):
            answer, has_waited = await self._ask(call, wait=wait), True
            call = replace(call, waited_ms=call.waited_ms + self.waits.waited_ms(call.id))
        if isinstance(answer, Short):
            lower = _Lower(priced, call, self._config.fit.floor)
            answer = await self._lowered(lower, answer, digest, began, has_waited=has_waited)
            priced = lower.priced if isinstance(answer, Held) else priced
        if isinstance(answer, Short) and not _may_pass(answer, call):
            self._latch.close(digest, self._clock())
        return Found(priced, call, answer)

    async def _lowered(
        self, lower: _Lower, short: Short, digest: bytes, began: datetime, *, has_waited: bool
    ) -> Held | Short | Closed:
        """Ask for a smaller version: out of turn for a call that has waited, else in turn, and then in the room."""
        answer = await self._ask(lower.call, lower, out_of_turn=has_waited or short.behind)
        if not isinstance(answer, Short) or has_waited:
            return answer
        if answer.behind:
            return await self._ask(lower.call, lower, out_of_turn=True)  # nothing that fits is refused
        smaller = lower(answer.standings)  # what would fit if nobody stood before it
        wait = None if smaller is None else self._wait(lower.priced, digest, began)
        if smaller is None or wait is None:
            return answer
        waited = await self._ask(smaller, lower, wait=wait)  # in the end it may be smaller still
        # Limits and spend may be others by now: what is refused is refused by the accounts as they are at the end.
        return await self._ask(lower.call, lower, out_of_turn=True) if isinstance(waited, Short) else waited

    def _wait(self, priced: Priced, digest: bytes, began: datetime) -> Wait | None:
        """Say how long the call may wait; None: it may not."""
        if self._latch.is_closed(digest, self._clock()):
            return None
        client = client_of(priced.incoming.headers)
        left = began + timedelta(seconds=client.patience_s) - self._clock()
        patience = min(timedelta(milliseconds=self._config.queue_wait_ms), left)
        return Wait(patience) if patience > _NO_TIME else None

    async def _digest(self, priced: Priced) -> bytes:
        """Digest what makes it the same call again: its task and what it asks."""
        request = priced.incoming.request()
        same = await beside_loop(len(request.body), partial(priced.wire.same_call, request))
        return hashlib.sha256(priced.incoming.payers.task.encode() + b"\0" + same).digest()

    async def _ask(
        self, call: Call, smaller: Smaller | None = None, *, wait: Wait | None = None, out_of_turn: bool = False
    ) -> Held | Short | Closed:
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
    """The call, smaller, for what its accounts leave: fewer calls of the provider's tools, then less output.

    `priced` is the version that was given last.
    """

    priced: Priced
    call: Call
    floor: int

    def __call__(self, standings: tuple[Standing, ...]) -> Call | None:
        """Give the first version that fits; None: there is none."""
        priced, call = self.priced, self.call
        most = max((tool.calls for tool in priced.parsed.tools), default=1) if priced.parsed.output_settable else 1
        for fewer in range(min(most, _MOST_TOOL_CALLS) - 1, 0, -1):
            self.priced = priced.with_tool_limit(fewer)
            lower = self._version(call.output_limit if call.limit_set else None)
            if not violations(standings, lower.quote):
                return lower
        return self._with_less_output(standings)

    def _with_less_output(self, standings: tuple[Standing, ...]) -> Call | None:
        priced, in_force = self.priced, self.call.output_limit or 0
        for rung in rungs(
            may_set=self.call.limit_set,
            in_force=in_force,
            floor=max(self.floor, priced.wire.min_output),
            largest_fitting=lambda: priced.largest_output(in_force, room(standings)),
        ):
            return self._version(rung.max_output)
        return None

    def _version(self, set_limit: int | None) -> Call:
        return replace(self.priced.call(set_limit, degrade=(FIT,)), waited_ms=self.call.waited_ms)


def _may_pass(short: Short, call: Call) -> bool:
    """Say whether only money that is held for others is in the way, or a turn that is not this call's."""
    return all(standing.is_transient(call.quote.most, call.quote.tokens) for standing in short.violations)

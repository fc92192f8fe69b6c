"""What becomes of a call's hold when the call has failed and is sent once more. It holds no rule of when that is.

There is one hold at a time. What a failed attempt costs is SPEC §12's, as for any call: where that is nothing, its hold
passes on to the next attempt as it is; else it is charged, and in the same transaction the next attempt gets a hold of
its own, or none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from lockpin_core.admission import Incoming, Priced, Refused
from lockpin_core.admission_models import not_counted
from lockpin_core.admission_room import Found
from lockpin_core.budgets import Standing, has_limit
from lockpin_core.call import Attempt, Call, Charge, Later, Outcome, Reading, Void
from lockpin_core.engine import Engine
from lockpin_core.errors import LedgerUnavailable, WireError
from lockpin_core.ledger.answers import answer_of
from lockpin_core.ledger.pauses import Paused
from lockpin_core.ledger.protocol import Closed, Held, Resolved, Short
from lockpin_core.money import ZERO
from lockpin_core.settlement import settle
from lockpin_core.settler import Admitted
from lockpin_core.wire.protocol import Wire


@dataclass(frozen=True, slots=True)
class Following:
    """What came of asking for another attempt.

    `admitted`: under which hold it goes; None: it does not. `ended`: how the attempt before was resolved; None: its
    hold is as it was.
    """

    admitted: Admitted | None
    ended: Resolved | None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A model that a call could not fall back to, and why in one word."""

    why: str


@dataclass(frozen=True, slots=True)
class There:
    """A call to another model with its price."""

    priced: Priced
    call: Call


class AttemptsEngine(Engine):
    """Admits and settles as an Engine does, and lets calls that failed be sent again."""

    def failed_at(self, admitted: Admitted, reading: Reading, outcome: Outcome) -> Charge | Void | None:
        """Say what a failed attempt costs; None: it goes on at its provider whatever became of the exchange, so that
        another one would be a second call.
        """
        cost = settle(admitted.held.call, reading, outcome, admitted.tariff)
        is_started = isinstance(cost, Charge) and (admitted.tariff.works_on or admitted.wire.held_as == "batch")
        return None if isinstance(cost, Later) or is_started else cost

    async def may_go_on(self, admitted: Admitted) -> bool:
        """Say whether a call that has waited with its hold may still go: its task may have been closed, or pause, and
        limits may be others than those that it was held under.
        """
        call = admitted.held.call
        try:
            if await answer_of(self._ledger.barred(call.payers)) is not None:
                return False
            now = await answer_of(self._ledger.look(call.payers, call.provider, call.model, self._rules))
            is_counted = await self._counts_all(admitted)
        except LedgerUnavailable:
            return admitted.held.degraded  # no limit is known to stand against it, whatever the ledger says
        return is_counted and _still_holds(admitted.held, now) and _is_made_for(admitted, now)

    async def _counts_all(self, admitted: Admitted) -> bool:
        """Say whether the limits of all models that may run within a call count the one that it names."""
        call, is_batch = admitted.held.call, admitted.wire.held_as == "batch"
        told = (call.payers, call.provider, call.model, admitted.models)
        return await not_counted(self._ledger, self._rules, *told, alike=is_batch) is None

    async def once_more(self, admitted: Admitted, cost: Charge, call_id: str, attempt: Attempt) -> Following:
        """Charge a failed attempt, and hold for the same call anew, at its full quote."""
        call = replace(admitted.held.call, id=call_id, attempt=attempt, waited_ms=0)
        failed = admitted.held.call.id
        try:
            ended, answer = await answer_of(self._ledger.replace(failed, cost, call, self._rules, keep=False))
        except LedgerUnavailable:
            return Following(None, None)
        except BaseException:
            self.end(failed, cost)
            self.cancel(call_id)
            raise
        if isinstance(answer, Held) and await self._may_leave_under(admitted, answer):
            self._loops.goes_on(failed, call_id)
            return Following(replace(admitted, held=answer), ended)
        self._loops.ended(failed)
        return Following(None, ended)

    async def _may_leave_under(self, admitted: Admitted, anew: Held) -> bool:
        """Say whether what has left once may leave under a new hold, which is taken off where it may not."""
        is_good = False
        with contextlib.suppress(LedgerUnavailable):
            try:
                is_good = _is_made_for(admitted, anew.standings) and await self._counts_all(admitted)
            finally:
                if not is_good:
                    self.cancel(anew.call.id)
        return is_good

    async def there(self, incoming: Incoming, wire: Wire, attempt: Attempt) -> There | Skipped:
        """Price the request to another model."""
        try:
            priced, call = await self._priced_call(incoming, wire)
        except (Refused, WireError) as fault:
            return Skipped(fault.code)
        except LedgerUnavailable:
            return Skipped("ledger_unavailable")
        stays = priced.parsed.stays_as_it_came
        return Skipped("signed") if stays else There(priced, replace(call, attempt=attempt))

    async def instead(self, admitted: Admitted, cost: Charge | Void, there: There) -> Admitted | Skipped:
        """Hold for the request to another model, in the step that ends the failed attempt; where that does not fit
        beside what the failed one costs, that one's hold stays as it is.
        """
        before = admitted.held.call
        failed, asked = before.id, before.instead_of or f"{before.provider}/{before.asked_model}"
        call = replace(there.call, instead_of=asked)
        try:
            _, answer = await answer_of(self._ledger.replace(failed, cost, call, self._rules, keep=True))
        except LedgerUnavailable:
            return Skipped("ledger_unavailable")
        except BaseException:
            self.end(failed, cost)
            self.cancel(call.id)
            raise
        if not isinstance(answer, Held):
            return Skipped(_reason(answer))
        self._loops.goes_on(failed, call.id)
        found = await self._admit_or_cancel(Found(there.priced, call, answer), answer)
        return replace(found, loop=admitted.loop)

    def end(self, call_id: str, cost: Charge | Void) -> None:
        """End a failed attempt that no other one follows; the first resolution wins."""
        self._loops.ended(call_id)
        if isinstance(cost, Charge):
            self._ledger.settle(call_id, cost)
        else:
            self._ledger.void(call_id, cost)

    def settle_as_held(self, admitted: Admitted, reason: str) -> Future[Resolved]:
        """See Settler."""
        self._loops.ended(admitted.held.call.id)
        return super().settle_as_held(admitted, reason)

    def cancel(self, call_id: str) -> None:
        """See Settler."""
        self._loops.ended(call_id)
        super().cancel(call_id)


def _still_holds(held: Held, now: Sequence[Standing]) -> bool:
    """Say whether a hold is within the limits in force now: accounts that came since it was taken count it too."""
    for standing in now:
        usd, tokens = standing.remaining(), standing.remaining_tokens()
        is_over_usd = bool(held.call.quote.most) and usd is not None and usd < ZERO
        is_over_tokens = held.call.quote.tokens > 0 and tokens is not None and tokens < 0
        if standing.budget.enforce and (is_over_usd or is_over_tokens):
            return False
    return True


def _is_made_for(admitted: Admitted, now: Sequence[Standing]) -> bool:
    """Say whether what has left once is bounded by its hold under the limits in force now: one may have come meanwhile,
    for which it would have got a limit on the provider's tools, or been refused.
    """
    if admitted.held.call.quote.is_endless and any(s.budget.enforce and s.limit_tokens is not None for s in now):
        return False
    was_made = admitted.parsed.tool_limit is None or has_limit(admitted.held.standings)
    return was_made or not has_limit(now)


def _reason(answer: Short | Closed | Paused) -> str:
    if isinstance(answer, Short):
        return "budget"
    return "paused" if isinstance(answer, Paused) else "task_closed"

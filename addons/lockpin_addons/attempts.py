"""Calls that failed are sent again, where the configuration says so: the same call once more, then to other models.

Stands between the gate, which lets a call out once, and the core, which asks here when an attempt has failed of which
the client has seen nothing. Each further attempt has a hold of its own, or takes over that of one that cost nothing,
and a permit for exactly what is sent; whatever goes wrong here, the failed reply goes to the client as it came.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

from mitmproxy import http

from lockpin_addons import again, guard
from lockpin_addons.fallbacks import Fallbacks, served_line, skipped_line, turn_to
from lockpin_addons.notices import SKIPPED, WAITED, held_headers, put, settled_headers
from lockpin_addons.route import lower_headers
from lockpin_addons.trip import Kind, Tries, Trip
from lockpin_core.attempts import Dice, has_failed, pause_ms
from lockpin_core.call import Charge, Ending, Outcome, Reading, Void
from lockpin_core.clock import Clock, NewId
from lockpin_core.engine_attempts import Following, Skipped
from lockpin_core.ledger.protocol import Resolved
from lockpin_core.settler import Admitted


def _give_up(attempts: Attempts, flow: http.HTTPFlow) -> None:
    """Let a failed reply go to the client: nothing is sent again, and nothing stays held for it."""
    for name in (guard.PERMIT, again.AGAIN, again.ATTEMPTS):
        flow.metadata.pop(name, None)
    trip = attempts.trips.get(flow.id)
    if trip is None or trip.admitted is None:
        return
    failed = trip.admitted.held.call.id
    if trip.call_id != failed:  # else the tap settles it, as it would have without this
        trip.terms.engine.cancel(trip.call_id)
        trip.terms.engine.settle_as_held(trip.admitted, "no_usage")
        trip.call_id, trip.settled = failed, True


def _ignore(_attempts: Attempts, _flow: http.HTTPFlow) -> None:
    """Without this hook's work a call is sent once."""


class Attempts:
    """Decides about further attempts."""

    name = "lockpin_attempts"

    def __init__(
        self, trips: dict[str, Trip], fallbacks: Fallbacks, stopping: asyncio.Event, *,
        new_id: NewId, clock: Clock, dice: Dice,
    ) -> None:  # fmt: skip
        self.trips, self._fallbacks, self._stopping = trips, fallbacks, stopping
        self._new_id, self._clock, self._dice = new_id, clock, dice

    @guard.sealed(_ignore)
    def request(self, flow: http.HTTPFlow) -> None:
        """Note that a call which is leaving may be sent again."""
        trip = self.trips.get(flow.id)
        if trip is None or trip.kind is not Kind.METERED or trip.admitted is None or guard.PERMIT not in flow.metadata:
            return
        attempts, others = trip.terms.config.near_cap.retry.attempts, self._fallbacks.of(trip, trip.admitted)
        if not others:
            trip.incoming = None
        if attempts > 1 or others:
            trip.tries = Tries(of=attempts * (1 + len(others)), others=deque(others))
            flow.metadata[again.ATTEMPTS] = True

    @guard.sealed(_give_up)
    async def lockpin_attempt(self, flow: http.HTTPFlow) -> None:
        """Decide about an attempt that has failed. Where its client leaves meanwhile, that is broken off."""
        trip = self.trips.get(flow.id)
        if trip is None or trip.tries is None or trip.admitted is None or trip.settled or trip.kind is not Kind.METERED:
            return
        outcome = self._outcome(flow, trip, trip.admitted)
        if not has_failed(outcome, is_empty=again.EMPTY in flow.metadata or again.BROKEN in flow.metadata):
            return
        trip.task = asyncio.current_task()
        failed = trip.admitted.held.call.id
        try:
            if not await self._go_on(flow, trip, trip.tries, trip.admitted, outcome):
                trip.call_id = failed
        except BaseException as error:
            cost = trip.terms.engine.failed_at(trip.admitted, Reading(), outcome)
            if cost is not None:
                trip.terms.engine.end(failed, cost)  # whatever was to follow
            if not isinstance(error, asyncio.CancelledError) or not trip.is_over or trip.task is None:
                raise
            trip.task.uncancel()  # nobody waits for a reply
        finally:
            trip.task = None

    def _outcome(self, flow: http.HTTPFlow, trip: Trip, admitted: Admitted) -> Outcome:
        """Say how an attempt has failed, as the tap would."""
        response = flow.response
        if guard.SENT not in flow.metadata:
            return Outcome(Ending.NOT_SENT, None)
        seconds = -int(-(time.monotonic() - trip.sent_at_s) // 1)
        if response is None:
            return Outcome(Ending.DROPPED, None, seconds)
        body = response.raw_content if again.BROKEN not in flow.metadata else None
        code = admitted.wire.error_code(body) if body and response.status_code >= 400 else None
        ending = Ending.CUT if again.BROKEN in flow.metadata else Ending.DONE
        return Outcome(ending, response.status_code, seconds, code)

    async def _go_on(
        self, flow: http.HTTPFlow, trip: Trip, tries: Tries, admitted: Admitted, outcome: Outcome
    ) -> bool:  # fmt: skip
        """Send the call again, if there is another attempt; False: the failed reply stands.

        What the failed one costs is bounded by its hold, which may shrink at any moment that something is waited for:
        it is asked anew after each.
        """
        cost = trip.terms.engine.failed_at(admitted, Reading(), outcome)
        if cost is None or self._stopping.is_set():
            return False
        told = {} if flow.response is None else lower_headers(flow.response.headers)
        retry = trip.terms.config.near_cap.retry
        pause = pause_ms(tries.made, outcome, told, retry, self._clock(), self._dice)
        if pause is not None and await self._once_more(flow, trip, tries, admitted, cost, pause):
            tries.made += 1
            return self._send(flow, trip)
        while tries.others and not self._stopping.is_set():
            if isinstance(cost, Charge):
                trip.call_id = self._new_id()  # a client that leaves must not have it taken off
            if await trip.key_fault() is not None:
                return False
            if await self._instead(tries.others.popleft(), flow, trip, tries, outcome):
                return self._send(flow, trip)
        return False

    async def _once_more(
        self, flow: http.HTTPFlow, trip: Trip, tries: Tries, admitted: Admitted, cost: Charge | Void, pause: int
    ) -> bool:  # fmt: skip
        """Wait, with a hold, for the time of the next attempt. False: there is none, and the failed reply stands."""
        failed, following = admitted.held.call.id, Following(admitted, None)
        if isinstance(cost, Charge):
            trip.call_id, trip.settled = self._new_id(), True
            following = await trip.terms.engine.once_more(admitted, cost, trip.call_id, tries.next_attempt(failed))
        if following.admitted is not None and await self._rest(flow, trip, following.admitted, pause):
            # A hold that passes on may have shrunk in the wait.
            trip.begin_again(trip.admitted if following.ended is None and trip.admitted else following.admitted)
            return True
        if following.ended is not None and following.admitted is not None:
            trip.terms.engine.cancel(trip.call_id)
        trip.call_id, trip.settled = failed, following.ended is not None
        self._tell(flow, admitted, following.ended)
        return False

    async def _instead(
        self, name: str, flow: http.HTTPFlow, trip: Trip, tries: Tries, outcome: Outcome
    ) -> bool:  # fmt: skip
        """Hold for the request to another model, and turn the flow into it. False: it was left out."""
        assert trip.admitted is not None, "it has failed under a hold"
        engine, failed, before = trip.terms.engine, trip.admitted.held.call.id, trip.call_id
        there = await self._fallbacks.find(name, trip, trip.admitted)
        if isinstance(there, Skipped):
            return self._skip(flow, trip, name, there)
        # The id comes first, and goes last: while it is another one, any fault has the failed attempt charged.
        trip.call_id = there.incoming.id
        was_sent = flow.metadata.pop(guard.SENT, None)
        found: Admitted | Skipped
        priced = await engine.there(there.incoming, trip.admitted.wire, tries.next_attempt(failed))
        if isinstance(priced, Skipped):
            found = priced
        else:
            cost = engine.failed_at(trip.admitted, Reading(), outcome)
            assert cost is not None, "it has ended at its provider"
            found = await engine.instead(trip.admitted, cost, priced)
        if isinstance(found, Skipped):
            if was_sent:
                flow.metadata[guard.SENT] = True
            trip.call_id = before
            return self._skip(flow, trip, name, found)
        if self._stopping.is_set() or await trip.key_fault() is not None:  # all that has taken its time
            engine.cancel(trip.call_id)
            tries.others.clear()
            if was_sent:
                flow.metadata[guard.SENT] = True
            trip.call_id, trip.settled = failed, True  # it ended when this hold was taken
            return False
        trip.begin_again(found)
        turn_to(flow, trip, there, found)
        tries.made, tries.served = 1, name
        return True

    def _skip(self, flow: http.HTTPFlow, trip: Trip, name: str, skipped: Skipped) -> bool:
        trip.skipped.append(skipped_line(name, skipped))
        if flow.response is not None:
            flow.response.headers.add(SKIPPED, trip.skipped[-1])
        return False

    async def _rest(self, flow: http.HTTPFlow, trip: Trip, admitted: Admitted, pause: int) -> bool:
        """Wait so many milliseconds, in which nothing of the call is sent. False: it must not be sent any more, as the
        proxy is stopping, its key is over, its task is closed, or its calls pause.
        """
        was_sent = flow.metadata.pop(guard.SENT, None)
        try:
            await asyncio.wait_for(self._stopping.wait(), pause / 1000)
        except TimeoutError:
            is_good = await trip.key_fault() is None and await trip.terms.engine.may_go_on(admitted)
            if is_good and not self._stopping.is_set():
                return True
        if was_sent:
            flow.metadata[guard.SENT] = True
        return False

    def _tell(self, flow: http.HTTPFlow, admitted: Admitted, ended: Resolved | None) -> None:
        """Say on a failed reply that stands what it cost, if that is known already."""
        if ended is not None and flow.response is not None:
            put(flow.response.headers, settled_headers(admitted.held, ended))

    def _send(self, flow: http.HTTPFlow, trip: Trip) -> bool:
        """Let the next attempt out; the last lines, and nothing else, do."""
        assert trip.admitted is not None and trip.tries is not None
        trip.tries.number += 1
        if trip.tries.made >= trip.terms.config.near_cap.retry.attempts and not trip.tries.others:
            flow.metadata.pop(again.ATTEMPTS, None)
        waited = trip.headers.get(WAITED)  # before the first attempt, whose row has it
        trip.headers = held_headers(trip.admitted.held, trip.admitted.loop)
        if waited is not None:
            trip.headers[WAITED] = waited
        served = trip.tries.served or trip.admitted.instead
        if served is not None:
            trip.headers["X-Lockpin-Fallback"] = served_line(served)
        trip.sent_at_s = time.monotonic()
        flow.metadata.pop(guard.BLAME, None)
        flow.metadata[again.AGAIN] = True
        guard.permit(flow)
        return True

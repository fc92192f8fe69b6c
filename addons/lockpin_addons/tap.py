"""Replies: a scanner beside the passing bytes, and one settlement for each hold, however the exchange ends.

A stream's callable returns what it was given, at once, and never raises: mitmproxy would lose the chunk, or hang the
client at the end. A buffered reply goes through the same scanner in one feed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from mitmproxy import ctx, http
from mitmproxy.connection import Client

from lockpin_addons import guard
from lockpin_addons.banner import say
from lockpin_addons.credentials import hide_real_key
from lockpin_addons.decode import ReplyDecoder
from lockpin_addons.notices import SKIPPED, expiry_headers, put, settled_headers
from lockpin_addons.overheard import PIECE_BYTES, Overheard
from lockpin_addons.trip import Kind, Trip
from lockpin_core.aside import Steps, beside_loop, here_or_in_turns
from lockpin_core.call import Ending, Outcome, Reading
from lockpin_core.ledger.answers import answer_within
from lockpin_core.settler import Admitted, Polled, Settling
from lockpin_core.wire.protocol import Scanner, Wire
from lockpin_core.wire.scanners import BodyScanner

FORGET_S = 60  # after its client has gone, an exchange that mitmproxy never ended is settled by force
SETTLE_WAIT_S = 2  # a ledger that cannot be written does not keep the reply back: the hold stays, the safe side


def _settle_as_held(tap: Tap, flow: http.HTTPFlow) -> None:
    """A fault of ours at a reply: the reply goes on, the hold is charged when the exchange is over."""
    trip = tap.trips.get(flow.id)
    if trip is None:
        return
    trip.scan_failed = True
    if flow.response is not None and not flow.response.stream and trip.kind is Kind.METERED:
        flow.response.stream = True


def _end_as_held(tap: Tap, flow: http.HTTPFlow) -> None:
    """A fault of ours at the end of an exchange: the hold is charged now."""
    trip = tap.trips.pop(flow.id, None)
    if trip is not None and trip.admitted is not None and not trip.settled:
        trip.terms.engine.settle_as_held(trip.admitted, "no_usage")


def _ignore(_tap: Tap, _argument: object) -> None:
    """Nothing depends on this hook."""


class Tap:
    """Watches replies and settles."""

    name = "lockpin_tap"

    def __init__(self, trips: dict[str, Trip]) -> None:
        self.trips = trips
        self._bookings: set[asyncio.Task[None]] = set()

    @property
    def is_booking(self) -> bool:
        """Say whether what a free reply stated of an earlier call is still being read or booked."""
        return bool(self._bookings)

    @guard.sealed(_settle_as_held)
    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Let everything stream that need not carry cost headers; put the scanner onto metered streams."""
        trip = self.trips.get(flow.id)
        response = flow.response
        if trip is None or response is None or trip.kind is Kind.OWN or guard.OWN_REPLY in flow.metadata:
            return
        if trip.real_key is not None:
            hide_real_key(response.headers, trip.real_key)
        put(response.headers, trip.headers | expiry_headers(trip.caller))
        for line in trip.skipped:
            response.headers.add(SKIPPED, line)
        if trip.kind is Kind.PASSED:
            response.stream = True
            if trip.polled is not None and response.status_code == 200:
                self._listen(trip, response, trip.polled)
        elif trip.admitted is not None and 200 <= response.status_code < 300:
            self._watch(trip, response)

    def _watch(self, trip: Trip, response: http.Response) -> None:
        assert trip.admitted is not None
        is_stream = _is_stream(response, trip.admitted.wire)
        trip.scanner = trip.admitted.wire.scanner(streamed=is_stream, asked=trip.admitted.parsed)
        trip.decoder = ReplyDecoder(response.headers.get("content-encoding"))
        if not is_stream and not trip.admitted.held.call.streamed:
            return
        if trip.admitted.strips_usage and is_stream and "content-encoding" not in response.headers:
            trip.usage_filter = trip.admitted.wire.usage_filter()
        if trip.usage_filter is not None:
            _undeclare_length(response)
        response.stream = self._callable(trip)

    def _listen(self, trip: Trip, response: http.Response, polled: Polled) -> None:
        """Read a free reply as it passes: it may state what an earlier call used."""
        is_stream = _is_stream(response, polled.wire)
        decoder = ReplyDecoder(response.headers.get("content-encoding"))
        trip.overheard = Overheard(polled.wire.scanner(streamed=is_stream), decoder)
        response.stream = self._callable(trip)

    def _callable(self, trip: Trip) -> Callable[[bytes], bytes | list[bytes]]:
        def pass_on(data: bytes) -> bytes | list[bytes]:
            if data:
                trip.first_byte = True
            passed = guard.never_raise(lambda: self._see(trip, data))
            if passed is None:
                trip.scan_failed = True
                return data
            # `[]`, not `b""`: mitmproxy frames an empty chunk as the end of a chunked body.
            return passed or []

        return pass_on

    def _see(self, trip: Trip, data: bytes) -> bytes:
        if not data:
            return trip.usage_filter.close() if trip.usage_filter is not None else b""
        if trip.scanner is not None and trip.decoder is not None and not trip.scan_failed:
            trip.scanner.feed(trip.decoder.feed(data))
            self._true_up(trip)
            self._note_cut(trip)
            self._settle_early(trip)
            trip.scanned_bytes += len(data)
        elif trip.overheard is not None and not trip.scan_failed:
            trip.overheard.take(data)
        return trip.usage_filter.feed(data) if trip.usage_filter is not None else data

    def _settle_early(self, trip: Trip) -> None:
        """Settle a reply that a client may name in its next call as soon as it is whole, not when its stream closes."""
        scanner, admitted = trip.scanner, trip.admitted
        if admitted is None or admitted.account is None or trip.settled:
            return
        if scanner is not None and getattr(scanner, "has_ended", False):
            reading = scanner.result()
            if reading.complete and not reading.pending:
                trip.settled = True
                trip.terms.engine.settle(admitted, reading, Outcome(Ending.DONE, 200))

    def _note_cut(self, trip: Trip) -> None:
        """Take note at once of a stop at a limit that was lowered: the client may go on before the stream is closed."""
        admitted, so_far = trip.admitted, _so_far(trip.scanner)
        if admitted is None or admitted.conversation is None or so_far is None or trip.cut_noted:
            return
        trip.cut_noted = trip.terms.engine.note_cut(admitted, so_far())

    def _true_up(self, trip: Trip) -> None:
        """Let the hold shrink once the reply has stated its prompt, which it does at its beginning or not at all."""
        so_far = _so_far(trip.scanner)
        if trip.admitted is None or not trip.admitted.prompt_first or not trip.true_up_tries or so_far is None:
            return
        trip.true_up_tries -= 1
        reading = so_far()
        if reading.prompt_stated:
            trip.true_up_tries = 0
            trip.admitted = trip.terms.engine.true_up(trip.admitted, reading)

    @guard.sealed(_end_as_held)
    async def response(self, flow: http.HTTPFlow) -> None:
        """Settle an exchange that ended by itself; a reply that is not streamed gets its cost headers first."""
        trip = self.trips.get(flow.id)
        response = flow.response
        if trip is None or response is None:
            return
        if guard.OWN_REPLY in flow.metadata and trip.admitted is not None:
            trip.terms.engine.cancel(trip.call_id)
        elif trip.admitted is not None and guard.SENT not in flow.metadata:
            # another addon's own answer
            trip.terms.engine.settle(trip.admitted, Reading(), Outcome(Ending.NOT_SENT, None))
        elif trip.admitted is not None and not trip.settled:
            await self._settle_reply(flow, trip, response)
        elif trip.polled is not None:
            self._settle_polled(trip, trip.polled)
        self.trips.pop(flow.id, None)

    def _settle_polled(self, trip: Trip, polled: Polled) -> None:
        """Book what a free reply stated of an earlier call. Nobody waits for it; a poll that fails is made again."""
        if trip.overheard is None or trip.scan_failed:
            return
        booking = self._book_polled(trip, polled, trip.overheard)
        task = asyncio.get_running_loop().create_task(guard.never_fail(booking, "an earlier call was settled"))
        self._bookings.add(task)
        task.add_done_callback(self._bookings.discard)

    async def _book_polled(self, trip: Trip, polled: Polled, overheard: Overheard) -> None:
        reading = await overheard.reading()
        if overheard.is_lost:
            say("a reply that may state an earlier call's usage is too much to be read; fetch it again")
        elif reading is not None:
            await trip.terms.engine.settle_polled(polled, reading)

    async def _settle_reply(self, flow: http.HTTPFlow, trip: Trip, response: http.Response) -> None:
        assert trip.admitted is not None
        streamed = bool(response.stream)
        if not streamed and trip.scanner is not None:
            await self._scan_whole(trip, response.raw_content or b"")
        elif isinstance(trip.scanner, BodyScanner):  # one body, though a stream was asked for
            trip.reading = await beside_loop(trip.scanned_bytes, trip.scanner.result)
        outcome = self._outcome(trip, Ending.DONE, response, body=None if streamed else response.raw_content)
        reading = self._reading(trip)
        settling = trip.terms.engine.settle(trip.admitted, reading, outcome)
        trip.settled = True
        if streamed:
            return
        if trip.admitted.held.degraded:
            return  # it is written when the ledger is back, and nobody waits for that
        settled = await answer_within(settling, SETTLE_WAIT_S)
        if settled is not None:
            put(response.headers, settled_headers(trip.admitted.held, settled))

    async def _scan_whole(self, trip: Trip, raw: bytes) -> None:
        def scan() -> Steps[None]:
            assert trip.scanner is not None and trip.decoder is not None
            for start in range(0, len(raw), PIECE_BYTES):
                decoded = trip.decoder.feed(raw[start : start + PIECE_BYTES])
                yield len(decoded)
                trip.scanner.feed(decoded)
            trip.reading = trip.scanner.result()

        await here_or_in_turns(len(raw), scan())

    @guard.sealed(_end_as_held)
    def error(self, flow: http.HTTPFlow) -> None:
        """Settle an exchange that broke off."""
        trip = self.trips.get(flow.id)
        if trip is None:
            return
        if trip.admitted is not None and not trip.settled:
            outcome = self._outcome(trip, self._ending(flow), flow.response, body=None)
            trip.terms.engine.settle(trip.admitted, self._reading(trip), outcome)
        elif trip.polled is not None:
            self._settle_polled(trip, trip.polled)  # clients close as soon as they have what they want
        elif trip.admitted is None and trip.kind is Kind.PENDING:
            trip.terms.engine.cancel(trip.call_id)
        self.trips.pop(flow.id, None)

    @guard.sealed(_ignore)
    def client_disconnected(self, client: Client) -> None:
        """See to it that no exchange of a connection that is gone keeps its hold: a crash of the core ends none."""
        for flow_id, trip in self.trips.items():
            if trip.client_id == client.id:
                asyncio.get_running_loop().call_later(FORGET_S, self._forget, flow_id)

    def _forget(self, flow_id: str) -> None:
        trip = self.trips.pop(flow_id, None)
        if trip is None or trip.settled:
            return
        if trip.kind is Kind.METERED and trip.admitted is not None:
            trip.terms.engine.settle_as_held(trip.admitted, Ending.CLIENT_LEFT.value)
        else:
            trip.terms.engine.cancel(trip.call_id)

    def break_off(self) -> None:
        """End every exchange for the books, all at one instant: mitmproxy breaks them off one after the other, and
        that looks like either side's doing. What was sent is charged; what was not costs nothing and never leaves.
        """
        for trip in list(self.trips.values()):
            if trip.is_charged_if_stopped and trip.admitted is not None:
                if guard.never_raise(partial(self._settle_stopped, trip, trip.admitted)) is None:
                    trip.terms.engine.settle_as_held(trip.admitted, Ending.STOPPED.value)
                trip.settled = True
            elif trip.asked and not trip.is_sent and trip.kind in (Kind.PENDING, Kind.METERED):
                self._take_back(trip)

    def _settle_stopped(self, trip: Trip, admitted: Admitted) -> Settling:
        outcome = self._outcome(trip, Ending.STOPPED, trip.flow.response, body=None)
        return trip.terms.engine.settle(admitted, self._reading(trip), outcome)

    def _take_back(self, trip: Trip) -> None:
        trip.kind = Kind.OWN
        trip.call_off()
        trip.flow.metadata.pop(guard.PERMIT, None)
        if trip.flow.killable:
            trip.flow.kill()

    def _ending(self, flow: http.HTTPFlow) -> Ending:
        if guard.SENT not in flow.metadata:
            return Ending.NOT_SENT
        if ctx.master.should_exit.is_set():
            return Ending.STOPPED  # one that came in while the others were broken off
        if flow.metadata.get(guard.BLAME) == "provider":
            return Ending.CUT if flow.response is not None else Ending.DROPPED
        return Ending.CLIENT_LEFT

    def _reading(self, trip: Trip) -> Reading:
        if trip.scanner is None or trip.scan_failed or (trip.decoder is not None and trip.decoder.broken):
            return Reading(readable=False)
        return trip.reading or trip.scanner.result()

    def _outcome(self, trip: Trip, ending: Ending, response: http.Response | None, body: bytes | None) -> Outcome:
        status = response.status_code if response is not None else None
        code = None
        if trip.admitted is not None and status is not None and status >= 400 and body:
            code = trip.admitted.wire.error_code(body)
        seconds = -int(-(time.monotonic() - trip.sent_at_s) // 1)
        return Outcome(ending, status, seconds, code)


def _so_far(scanner: Scanner | None) -> Callable[[], Reading] | None:
    """Give what says what whole events of a stream have said; None: the reply is none, and is read at its end."""
    # By name: a check against the protocol takes tens of microseconds, and a stream has many pieces.
    return getattr(scanner, "so_far", None)


def _is_stream(response: http.Response, wire: Wire) -> bool:
    said: str = response.headers.get("content-type", "")
    return said.lower().startswith(wire.stream_type)


def _undeclare_length(response: http.Response) -> None:
    """Frame a body that gets shorter than was declared; HTTP/2 frames itself."""
    declared = response.headers.pop("content-length", None)
    if declared is not None and response.http_version == "HTTP/1.1":
        response.headers["transfer-encoding"] = "chunked"

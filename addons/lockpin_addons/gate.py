"""The gate: every request to a provider is denied first and let through last, with its hold on disk.

`requestheaders` puts the refusal of a fault onto the flow; only the last lines of a decision take it away and leave the
permit without which the core opens no upstream. A file for a free path is decided about at its head, and streams.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace

from mitmproxy import ctx, http
from mitmproxy.connection import Client
from mitmproxy.proxy.mode_specs import RegularMode, UpstreamMode

from lockpin_addons import guard, identity, uploads
from lockpin_addons.callers import Callers, charged
from lockpin_addons.decode import DecodeError, decode_bounded, is_encoded
from lockpin_addons.door import Door
from lockpin_addons.fallbacks import served_line
from lockpin_addons.notices import expiry_headers, held_headers, warning_headers
from lockpin_addons.route import (
    Bound,
    Foreign,
    Own,
    Wrong,
    lower_headers,
    name_destination,
    own,
    plain_path,
    query_of,
    redirect,
    target,
)
from lockpin_addons.serve import Health
from lockpin_addons.terms import InForce
from lockpin_addons.trip import Kind, Trip, put_credentials
from lockpin_core.admission import Incoming
from lockpin_core.call import Payers, Reply
from lockpin_core.clock import NewId
from lockpin_core.config import Config
from lockpin_core.engine import Answered, Passed, is_free
from lockpin_core.providers import Providers
from lockpin_core.refusals import STRANGERS, refusal
from lockpin_core.secret_forms import holds_secret
from lockpin_core.settler import Admitted

MAX_HEADERS_BYTES = 64 * 1024
STRANGERS_BYTES = 64 * 1024  # of the body of a request of which nobody knows who sends it
DECODE_ON_LOOP_BYTES = 1024  # of packed body: a kilobyte may unpack to a megabyte, which takes a millisecond
UNREAD = "the body could not be read: "
_UNAUTHORIZED, _CHALLENGE = 401, {"WWW-Authenticate": 'Bearer realm="lockpin"'}
STOPPING = "this proxy is stopping; the call was not sent, and can be sent again when a proxy runs"


def _deny(gate: Gate, flow: http.HTTPFlow) -> None:
    """Put a flow into the state in which nothing of it is sent and nothing of it stays held."""
    flow.metadata.pop(guard.PERMIT, None)
    flow.request.stream = False  # the core cannot both answer and stream
    flow.response = guard.panic_reply()
    trip = gate.trips.get(flow.id)
    if trip is not None and trip.kind is not Kind.OWN:
        trip.terms.engine.cancel(trip.call_id)
        trip.kind = Kind.OWN


def _ignore(_gate: Gate, _argument: object) -> None:
    """Nothing depends on this hook."""


class Gate:
    """Decides about requests."""

    name = "lockpin_gate"

    def __init__(
        self, in_force: InForce, providers: Providers, health: Health, new_id: NewId, trips: dict[str, Trip],
        door: Door, callers: Callers,
    ) -> None:  # fmt: skip
        self.in_force, self.providers, self.health = in_force, providers, health
        self.new_id, self.trips = new_id, trips
        self.door, self.callers = door, callers
        self.served: set[str] = set()  # client connections that have had a call with a hold
        self.stopping = asyncio.Event()

    def stop(self) -> None:
        """Decide about no more calls: from now on each is refused, also those that wait for room."""
        self.door.close()
        self.stopping.set()
        for trip in list(self.trips.values()):
            if trip.task is not None and trip.kind is Kind.PENDING and trip.bound is not None:
                self._answer_stopping(trip.flow, trip, trip.bound)
                trip.call_off()

    @guard.sealed(_ignore)
    def client_disconnected(self, client: Client) -> None:
        """Forget a connection; what it still waits for gives up its place."""
        self.served.discard(client.id)
        for trip in self.trips.values():
            if trip.client_id == client.id and trip.task is not None:
                trip.call_off()

    @guard.sealed(_ignore)
    def leave(self, flow: http.HTTPFlow) -> None:
        """Take back a call whose client has left while it was being decided; see `mends.install`."""
        trip = self.trips.get(flow.id)
        if trip is not None and trip.task is not None:
            trip.call_off()

    @guard.sealed(_deny)
    async def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Deny first; find out where the request goes, and let through at once what is nobody's."""
        flow.request.stream = False
        flow.response = guard.panic_reply()
        trip = self.trips[flow.id] = Trip(self.new_id(), self.in_force.terms, flow)
        where = target(flow.request, flow.client_conn.sni, self.providers, self.door.listener(flow.client_conn))
        if isinstance(where, Foreign) and self.door.is_direct(flow):
            where = own(flow.request, self.providers)
        match where:
            case Foreign():
                await self._let_out(flow, trip)
            case Own():
                self._answer_own(flow, trip, where.path)
            case Wrong():
                self._answer_wrong(flow, trip, where)
            case Bound() if self.stopping.is_set():
                self._answer_stopping(flow, trip, where)
            case Bound():
                trip.bound, trip.denial = where, flow.response
                await self._begin(flow, trip, where)

    async def _let_out(self, flow: http.HTTPFlow, trip: Trip) -> None:
        """Let a request to nobody's host through, where the host may be reached."""
        try:
            said = identity.proxy_credentials(flow.request.headers)
        except identity.IdentityError:
            said = None
        barred = await self.door.barred(flow.client_conn, flow.request.host, flow.request.port, said)
        if barred is not None:
            flow.metadata[guard.BODY_LIMIT] = (1 << 20, b"{}")
            trip.kind, flow.response = Kind.OWN, barred.reply()
            return
        _strip(flow)
        flow.request.stream = True
        trip.kind = Kind.PASSED
        flow.response = None
        guard.permit(flow, parts=0)

    async def _begin(self, flow: http.HTTPFlow, trip: Trip, bound: Bound) -> None:
        """Find out who calls, and bound the body; one that is a file for a free path needs no more, and streams."""
        try:
            bound = await self._find_caller(flow, trip, bound)
        except identity.IdentityError as error:
            self._refuse(flow, trip, bound, error.code, str(error))
            flow.metadata[guard.BODY_LIMIT] = (STRANGERS_BYTES, None)
            return None
        if not bound.provider.takes_upload(flow.request.method, plain_path(bound)):
            return self._limit_body(flow, trip, bound, is_upload=False)
        headers = lower_headers(flow.request.headers)
        is_upload = uploads.can_stream(headers) and self._names_payers(flow, trip, bound, headers)
        self._limit_body(flow, trip, bound, is_upload=is_upload)
        if not is_upload or trip.kind is not Kind.PENDING or not uploads.passes(headers):
            return None
        self._address(flow, trip, bound)
        _, flow.metadata[guard.STREAM_LIMIT] = (
            flow.metadata.pop(guard.BODY_LIMIT),
            (uploads.MAX_MB << 20, self._too_large(flow, trip, bound, uploads.TOO_LARGE)),
        )
        flow.request.stream = True
        trip.kind = Kind.PASSED
        flow.response = None
        guard.permit(flow, parts=2)
        return None

    def _names_payers(self, flow: http.HTTPFlow, trip: Trip, bound: Bound, headers: Mapping[str, str]) -> bool:
        """Say whether headers of ours parse; where they do not, the request is refused like any other."""
        try:
            self._payers(flow, trip, bound, headers)
        except identity.IdentityError:
            return False
        return True

    def _answer_own(self, flow: http.HTTPFlow, trip: Trip, path: str) -> None:
        status, body = self.health.answer(path, [provider.name for provider in self.providers.all()])
        flow.metadata[guard.BODY_LIMIT] = (1 << 20, b"{}")
        self._answer(flow, trip, Reply(status, {"content-type": "application/json"}, body))

    def _answer_wrong(self, flow: http.HTTPFlow, trip: Trip, wrong: Wrong) -> None:
        trip.bound = wrong.bound
        assert wrong.bound is not None
        self._refuse(flow, trip, wrong.bound, "bad_request", wrong.words)

    def _answer_stopping(self, flow: http.HTTPFlow, trip: Trip, bound: Bound) -> None:
        self._refuse(flow, trip, bound, "reserve_failed", STOPPING)
        if flow.response is not None and not flow.request.is_http2:
            flow.response.headers["connection"] = "close"

    def _limit_body(self, flow: http.HTTPFlow, trip: Trip, bound: Bound, *, is_upload: bool) -> None:
        """Refuse headers that are too much, and bound the body before it is read."""
        limit_mb = uploads.MAX_MB if is_upload else trip.terms.config.max_request_mb
        limit_bytes = limit_mb << 20
        headers = flow.request.headers
        declared = headers.get("content-length", "")
        if declared.isdecimal() and int(declared) <= limit_bytes and "transfer-encoding" not in headers:
            # Nothing more than what is declared is read, so this refusal is for nobody.
            flow.metadata[guard.BODY_LIMIT] = (limit_bytes, b"{}")
        else:
            limit_bytes = 0 if declared.isdecimal() else limit_bytes
            words = uploads.TOO_LARGE if is_upload else f"the request is larger than max_request_mb ({limit_mb} MB)"
            flow.metadata[guard.BODY_LIMIT] = (limit_bytes, self._too_large(flow, trip, bound, words))
        if sum(len(name) + len(value) for name, value in headers.fields) > MAX_HEADERS_BYTES:
            self._refuse(flow, trip, bound, "bad_request", f"the headers are larger than {MAX_HEADERS_BYTES} bytes")

    def _too_large(self, flow: http.HTTPFlow, trip: Trip, bound: Bound, words: str) -> bytes:
        incoming = self._incoming(flow, trip, bound, b"")
        return trip.terms.engine.refuse(incoming, refusal("too_large", words), write=False).reply.body

    @guard.sealed(_deny)
    async def request(self, flow: http.HTTPFlow) -> None:
        """Decide about a request to a provider. Where its client leaves meanwhile, the decision is broken off."""
        trip = self.trips.get(flow.id)
        if guard.STREAM_LIMIT in flow.metadata:
            flow.request.trailers = None  # of a file that has gone already; HTTP/1 could not bring them
        if trip is None or trip.kind is not Kind.PENDING or trip.bound is None:
            return
        if flow.response is not None and flow.response is not trip.denial:
            trip.kind = Kind.OWN  # a script has answered by itself: nothing is sent
            return
        trip.task = asyncio.current_task()
        try:
            await self._decide(flow, trip, trip.bound)
        except asyncio.CancelledError:
            if not trip.is_over or trip.task is None:
                raise
            trip.task.uncancel()  # what stands on the flow stays: nobody waits for a reply
        finally:
            trip.task = None

    async def _decide(self, flow: http.HTTPFlow, trip: Trip, bound: Bound) -> None:
        """Ask the engine; the last lines, and nothing else, open the gate."""
        headers = lower_headers(flow.request.headers)
        if self.in_force.is_changing and not _is_free(flow, bound, headers):
            await self.in_force.steady()
        if self.stopping.is_set():
            return self._answer_stopping(flow, trip, bound)
        with self.in_force.deciding() as trip.terms:
            trip.asked = True
            try:
                body = await self._read(flow, headers, trip.terms.config)
                payers = self._payers(flow, trip, bound, headers)
            except identity.IdentityError as error:
                return self._refuse(flow, trip, bound, error.code, str(error))
            except DecodeError as error:
                code = "too_large" if error.too_large else "bad_request"
                return self._refuse(flow, trip, bound, code, UNREAD + str(error))
            trip.incoming = self._incoming(flow, trip, bound, body, payers, headers)
            decision = await trip.terms.engine.admit(trip.incoming)
        fault = None if isinstance(decision, Answered) else await trip.key_fault()
        if trip.is_over:
            return trip.terms.engine.cancel(trip.call_id)  # the hold came too late; what stands on the flow stays
        if fault is not None:
            trip.terms.engine.cancel(trip.call_id)
            trip.caller = None
            return self._refuse(flow, trip, bound, fault.code, str(fault))
        if isinstance(decision, Answered):
            self.health.note_refusal(decision.code)
            return self._answer(flow, trip, decision.reply, warning_headers(decision.standings))
        self._prepare(flow, trip, decision, body, headers)
        if isinstance(decision, Admitted) and decision.path is not None:
            bound = trip.bound = replace(bound, path=decision.path + query_of(bound))
        self._address(flow, trip, bound)
        _frame(flow.request, headers)
        trip.sent_at_s = time.monotonic()
        flow.response = None
        guard.permit(flow)
        return None

    def _address(self, flow: http.HTTPFlow, trip: Trip, bound: Bound) -> None:
        """Point a request at where it goes, and take out what is for us alone."""
        trip.next_credentials = flow.request.headers.get("proxy-authorization") if _is_for_next(flow) else None
        redirect(flow.request, bound, trip.terms.config.upstreams.get(bound.host))
        if isinstance(flow.client_conn.proxy_mode, UpstreamMode):
            name_destination(flow.request, bound)
        identity.strip_own(flow.request.headers)
        put_credentials(flow.request, trip)

    async def _read(self, flow: http.HTTPFlow, headers: Mapping[str, str], config: Config) -> bytes:
        raw = flow.request.raw_content or b""
        if flow.request.method in ("GET", "HEAD", "OPTIONS", "DELETE"):
            return raw
        encoding, limit_bytes = headers.get("content-encoding"), config.max_request_mb << 20
        if is_encoded(encoding) and len(raw) > DECODE_ON_LOOP_BYTES:
            return await asyncio.to_thread(decode_bounded, raw, encoding, limit_bytes)
        return decode_bounded(raw, encoding, limit_bytes)

    async def _find_caller(self, flow: http.HTTPFlow, trip: Trip, bound: Bound) -> Bound:
        """In team mode find whose key the request has; give where it goes now. Raises IdentityError."""
        if trip.terms.config.mode == "solo":
            return bound
        if holds_secret(flow.request.method):
            raise identity.IdentityError("a Lockpin key, or a token, stands in the method's place", "identity_conflict")
        said = (self.door.credentials(flow.client_conn), identity.proxy_credentials(flow.request.headers))
        found = await self.callers.find(flow.request.headers, bound, said, flow.client_conn)
        trip.caller, trip.bound, trip.real_key = found.caller, found.bound, found.real
        trip.ask_again, trip.asked_at_s = found.again, time.monotonic()
        return found.bound

    def _payers(self, flow: http.HTTPFlow, trip: Trip, bound: Bound, headers: Mapping[str, str]) -> Payers:
        user, task = None, trip.terms.config.task
        if isinstance(flow.client_conn.proxy_mode, RegularMode | UpstreamMode):  # to others nobody speaks as to a proxy
            found = None if _is_for_next(flow) else identity.proxy_credentials(headers)
            found = found or self.door.credentials(flow.client_conn)
            user = None if found is None else found.user
        payers = identity.read_payers(
            flow.request.headers,
            headers,
            proxy_user=user,
            path_task=bound.base_task,
            default_task=task.default,
            from_session=task.from_session,
        )
        return payers if trip.caller is None else charged(payers, trip.caller)

    def _nobody(self, trip: Trip) -> Payers:
        """Name nobody to charge, for the row of a request about which no more is known."""
        default = trip.terms.config.task.default
        return Payers(default, "") if trip.caller is None else charged(Payers(default, identity.MACHINE), trip.caller)

    def _incoming(
        self, flow: http.HTTPFlow, trip: Trip, bound: Bound, body: bytes, payers: Payers | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Incoming:  # fmt: skip
        headers = lower_headers(flow.request.headers) if headers is None else headers
        return Incoming(
            id=trip.call_id,
            provider=bound.provider,
            host=bound.host,
            method=flow.request.method,
            path=plain_path(bound),
            query=query_of(bound),
            headers=headers,
            body=body,
            upgrade="upgrade" in headers,
            payers=payers or self._nobody(trip),
            client="" if holds_secret(product := identity.client_product(headers)) else product,
        )

    def _prepare(
        self, flow: http.HTTPFlow, trip: Trip, decision: Passed | Admitted, body: bytes, headers: Mapping[str, str]
    ) -> None:
        """Put the flow into the form in which it leaves."""
        if isinstance(decision, Passed):
            trip.kind, trip.polled = Kind.PASSED, decision.polled
            if decision.uncapped:
                trip.headers = {"X-Lockpin-Call": trip.call_id, "X-Lockpin-Uncapped": decision.uncapped}
                if self.health.is_ledger_away:
                    trip.headers["X-Lockpin-Degraded"] = "ledger"
            return
        trip.kind, trip.admitted = Kind.METERED, decision
        self.served.add(trip.client_id)
        trip.headers = held_headers(decision.held, decision.loop)
        if decision.instead is not None:
            trip.headers["X-Lockpin-Fallback"] = served_line(decision.instead)
        changed = decision.body if decision.body is not None else body
        encoded = is_encoded(headers.get("content-encoding"))
        if decision.body is not None or (encoded and not decision.parsed.attested):
            # What is sent is what was priced: the decoded bytes.
            flow.request.headers.pop("content-encoding", None)
            flow.request.raw_content = changed
        if decision.strips_usage:
            flow.request.headers["accept-encoding"] = "identity"
        if decision.countable is not None:
            trip.counting = asyncio.get_running_loop().create_task(self._count_again(trip, decision))

    async def _count_again(self, trip: Trip, admitted: Admitted) -> None:
        """Let the hold of a call that is leaving shrink to what an exact count of its prompt allows."""
        counting = trip.terms.engine.count_again(admitted)
        smaller = await guard.never_fail(counting, "a prompt was counted again")
        if smaller is not None and trip.admitted is admitted:
            trip.admitted = smaller

    def _refuse(self, flow: http.HTTPFlow, trip: Trip, bound: Bound, code: str, words: str) -> None:
        # What strangers may send in any number is not written down, or so that it cannot fill the ledger.
        write = code in STRANGERS or trip.caller is not None or trip.terms.config.mode == "solo"
        # Of one whose key stands where it must not nothing is kept that it may stand in.
        headers: Mapping[str, str] | None = {} if code in STRANGERS else None
        incoming = self._incoming(flow, trip, bound, b"", headers=headers)
        decision = trip.terms.engine.refuse(incoming, refusal(code, words), write=write)
        self._answer(flow, trip, decision.reply, _CHALLENGE if decision.reply.status == _UNAUTHORIZED else None)

    def _answer(self, flow: http.HTTPFlow, trip: Trip, reply: Reply, warnings: Mapping[str, str] | None = None) -> None:
        trip.kind = Kind.OWN
        told = {**reply.headers, **(warnings or {}), **expiry_headers(trip.caller)}
        flow.response = http.Response.make(reply.status, reply.body, told)


def _is_for_next(flow: http.HTTPFlow) -> bool:
    """Say whether the proxy credentials on a request are mitmproxy's own, for the proxy behind this one."""
    is_upstream = isinstance(flow.client_conn.proxy_mode, UpstreamMode) and flow.request.scheme == "http"
    return is_upstream and "upstream_auth" in ctx.options and ctx.options.upstream_auth is not None


def _strip(flow: http.HTTPFlow) -> None:
    """Take out what is for this proxy alone."""
    credentials = flow.request.headers.get("proxy-authorization") if _is_for_next(flow) else None
    identity.strip_own(flow.request.headers)
    if credentials is not None:
        flow.request.headers["proxy-authorization"] = credentials


def _is_free(flow: http.HTTPFlow, bound: Bound, headers: Mapping[str, str]) -> bool:
    route = bound.provider.route(flow.request.method, plain_path(bound))
    return is_free(route, upgrade="upgrade" in headers)


def _frame(request: http.Request, headers: Mapping[str, str]) -> None:
    """Say exactly how long the body is: one from HTTP/2 may come without a length, and a server that speaks HTTP/1
    would read its bytes as the next request. `headers` are those that came, by lower-case name.
    """
    length = len(request.raw_content or b"")
    request.trailers = None
    chunked = "transfer-encoding" in headers
    if chunked:
        request.headers.pop("transfer-encoding", None)
    declared = headers.get("content-length")
    if (length or chunked or declared is not None) and declared != str(length):
        request.headers["content-length"] = str(length)

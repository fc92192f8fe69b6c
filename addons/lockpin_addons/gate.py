"""The gate: every request to a provider is denied first and let through last, with its hold on disk.

`requestheaders` puts the refusal of a fault onto the flow; only the last lines of `request` take it away and leave the
permit without which the core opens no upstream.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time

from mitmproxy import ctx, http
from mitmproxy.connection import Client
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from lockpin_addons import guard, identity
from lockpin_addons.decode import DecodeError, decode_bounded, is_encoded
from lockpin_addons.notices import held_headers
from lockpin_addons.route import Bound, Foreign, Listener, Own, Wrong, core_request, lower_headers, redirect, target
from lockpin_addons.serve import Health
from lockpin_addons.trip import Kind, Trip
from lockpin_core.admission import Incoming
from lockpin_core.call import Payers, Reply
from lockpin_core.clock import NewId
from lockpin_core.config import Config
from lockpin_core.engine import Admitted, Answered, Engine, Passed
from lockpin_core.providers import Providers
from lockpin_core.refusals import refusal

MAX_HEADERS_BYTES = 64 * 1024
UNREAD = "the body could not be read: "


def _deny(gate: Gate, flow: http.HTTPFlow) -> None:
    """Put a flow into the state in which nothing of it is sent and nothing of it stays held."""
    flow.metadata.pop(guard.PERMIT, None)
    flow.response = guard.panic_reply()
    trip = gate.trips.get(flow.id)
    if trip is not None and trip.kind is not Kind.OWN:
        gate.engine.cancel(trip.call_id)
        trip.kind = Kind.OWN


def _deny_connect(_gate: Gate, flow: http.HTTPFlow) -> None:
    flow.response = guard.own_reply(400, b'{"error":{"message":"lockpin: this CONNECT could not be read"}}')


def _refuse_connection(_gate: Gate, data: ServerConnectionHookData) -> None:
    data.server.error = "lockpin: this destination could not be checked"


def _ignore(_gate: Gate, _argument: object) -> None:
    """Nothing depends on this hook."""


class Gate:
    """Decides about requests."""

    name = "lockpin_gate"

    def __init__(
        self, engine: Engine, config: Config, providers: Providers, health: Health, new_id: NewId,
        trips: dict[str, Trip],
    ) -> None:  # fmt: skip
        self.engine, self.config, self.providers, self.health = engine, config, providers, health
        self.new_id, self.trips = new_id, trips
        self._proxy_users: dict[str, str] = {}  # client connection id → user name of its CONNECT

    def listener(self) -> Listener:
        """Give our own addresses; they may change while running."""
        server = ctx.master.addons.get("proxyserver")
        addresses = server.listen_addrs() if server is not None else []
        hosts = {"127.0.0.1", "::1", "localhost", *(address[0] for address in addresses)}
        return Listener(frozenset(hosts - {"0.0.0.0", "::"}), frozenset(address[1] for address in addresses))

    @guard.sealed(_deny_connect)
    def http_connect(self, flow: http.HTTPFlow) -> None:
        """Keep the user name of the CONNECT's credentials for the requests inside it."""
        try:
            user = identity.proxy_user(flow.request.headers)
        except identity.IdentityError as error:
            flow.response = http.Response.make(400, f"lockpin: {error}\n", {"content-type": "text/plain"})
            return
        if user is not None:
            self._proxy_users[flow.client_conn.id] = user

    @guard.sealed(_refuse_connection)
    async def server_connect(self, data: ServerConnectionHookData) -> None:
        """Refuse a name that leads back to this proxy: each turn would open one more connection, without end."""
        host, port = data.server.address or ("", 0)
        listener = self.listener()
        if port not in listener.ports or data.server.error:
            return
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        if any(ipaddress.ip_address(address[0]).is_loopback for *_, address in found):
            data.server.error = "lockpin: this destination is the proxy itself"

    @guard.sealed(_ignore)
    def client_disconnected(self, client: Client) -> None:
        """Forget a connection."""
        self._proxy_users.pop(client.id, None)

    @guard.sealed(_deny)
    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Deny first; find out where the request goes, and let through at once what is nobody's."""
        flow.request.stream = False
        flow.response = guard.panic_reply()
        trip = self.trips[flow.id] = Trip(self.new_id())
        where = target(flow.request, flow.client_conn.sni, self.providers, self.listener())
        match where:
            case Foreign():
                self._let_through(flow, trip)
            case Own():
                self._answer_own(flow, trip, where.path)
            case Wrong():
                self._answer_wrong(flow, trip, where)
            case Bound():
                trip.bound = where
                self._limit_body(flow, trip, where)

    def _let_through(self, flow: http.HTTPFlow, trip: Trip) -> None:
        identity.strip_own(flow.request.headers)
        flow.request.stream = True
        trip.kind = Kind.PASSED
        flow.response = None
        guard.permit(flow)

    def _answer_own(self, flow: http.HTTPFlow, trip: Trip, path: str) -> None:
        status, body = self.health.answer(path, [provider.name for provider in self.providers.all()])
        flow.metadata[guard.BODY_LIMIT] = (1 << 20, b"{}")
        self._answer(flow, trip, Reply(status, {"content-type": "application/json"}, body))

    def _answer_wrong(self, flow: http.HTTPFlow, trip: Trip, wrong: Wrong) -> None:
        trip.bound = wrong.bound
        assert wrong.bound is not None
        self._refuse(flow, trip, wrong.bound, "bad_request", wrong.words)

    def _limit_body(self, flow: http.HTTPFlow, trip: Trip, bound: Bound) -> None:
        """Refuse headers that are too much, and bound the body before it is read."""
        limit_bytes = self.config.max_request_mb << 20
        words = f"the request is larger than max_request_mb ({self.config.max_request_mb} MB)"
        too_large = self.engine.refuse(self._incoming(flow, trip, bound, b""), refusal("too_large", words), write=False)
        declared = flow.request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > limit_bytes:
            limit_bytes = 0
        flow.metadata[guard.BODY_LIMIT] = (limit_bytes, too_large.reply.body)
        if sum(len(name) + len(value) for name, value in flow.request.headers.fields) > MAX_HEADERS_BYTES:
            self._refuse(flow, trip, bound, "bad_request", f"the headers are larger than {MAX_HEADERS_BYTES} bytes")

    @guard.sealed(_deny)
    async def request(self, flow: http.HTTPFlow) -> None:
        """Decide about a request to a provider; the last lines, and nothing else, open the gate."""
        trip = self.trips.get(flow.id)
        if trip is None or trip.kind is not Kind.PENDING or trip.bound is None:
            return
        raw = flow.request.raw_content or b""
        try:
            body = self._read(flow, raw)
            payers = self._payers(flow, trip.bound)
        except identity.IdentityError as error:
            return self._refuse(flow, trip, trip.bound, "bad_request", str(error))
        except DecodeError as error:
            code = "too_large" if error.too_large else "bad_request"
            return self._refuse(flow, trip, trip.bound, code, UNREAD + str(error))
        decision = await self.engine.admit(self._incoming(flow, trip, trip.bound, body, payers))
        if isinstance(decision, Answered):
            return self._answer(flow, trip, decision.reply)
        self._prepare(flow, trip, decision, body)
        redirect(flow.request, trip.bound, self.config.upstreams.get(trip.bound.host))
        identity.strip_own(flow.request.headers)
        _frame(flow.request)
        trip.sent_at_s = time.monotonic()
        flow.response = None
        guard.permit(flow)
        return None

    def _read(self, flow: http.HTTPFlow, raw: bytes) -> bytes:
        if flow.request.method in ("GET", "HEAD", "OPTIONS", "DELETE"):
            return raw
        return decode_bounded(raw, flow.request.headers.get("content-encoding"), self.config.max_request_mb << 20)

    def _payers(self, flow: http.HTTPFlow, bound: Bound) -> Payers:
        user = identity.proxy_user(flow.request.headers) or self._proxy_users.get(flow.client_conn.id)
        return identity.read_payers(
            flow.request.headers,
            proxy_user=user,
            path_task=bound.base_task,
            default_task=self.config.task.default,
            from_session=self.config.task.from_session,
        )

    def _incoming(
        self, flow: http.HTTPFlow, trip: Trip, bound: Bound, body: bytes, payers: Payers | None = None
    ) -> Incoming:
        request = core_request(flow.request, bound, body)
        return Incoming(
            id=trip.call_id,
            provider=bound.provider,
            host=bound.host,
            method=request.method,
            path=request.path,
            headers=lower_headers(flow.request.headers),
            body=body,
            upgrade="upgrade" in flow.request.headers,
            payers=payers or Payers(self.config.task.default, ""),
            client=identity.client_product(flow.request.headers),
        )

    def _prepare(self, flow: http.HTTPFlow, trip: Trip, decision: Passed | Admitted, body: bytes) -> None:
        """Put the flow into the form in which it leaves."""
        if isinstance(decision, Passed):
            trip.kind = Kind.PASSED
            if decision.uncapped:
                trip.headers = {"X-Lockpin-Call": trip.call_id, "X-Lockpin-Uncapped": decision.uncapped}
            return
        trip.kind, trip.admitted = Kind.METERED, decision
        trip.headers = held_headers(decision.held)
        changed = decision.body if decision.body is not None else body
        encoded = is_encoded(flow.request.headers.get("content-encoding"))
        if decision.body is not None or (encoded and not decision.parsed.attested):
            # What is sent is what was priced: the decoded bytes.
            flow.request.headers.pop("content-encoding", None)
            flow.request.raw_content = changed
        if decision.strips_usage:
            flow.request.headers["accept-encoding"] = "identity"

    def _refuse(self, flow: http.HTTPFlow, trip: Trip, bound: Bound, code: str, words: str) -> None:
        decision = self.engine.refuse(self._incoming(flow, trip, bound, b""), refusal(code, words))
        self._answer(flow, trip, decision.reply)

    def _answer(self, flow: http.HTTPFlow, trip: Trip, reply: Reply) -> None:
        trip.kind = Kind.OWN
        flow.response = http.Response.make(reply.status, reply.body, dict(reply.headers))


def _frame(request: http.Request) -> None:
    """Say exactly how long the body is: one from HTTP/2 may come without a length, and a server that speaks HTTP/1
    would read its bytes as the next request.
    """
    length = len(request.raw_content or b"")
    request.trailers = None
    chunked = request.headers.pop("transfer-encoding", None) is not None
    if length or chunked or "content-length" in request.headers:
        request.headers["content-length"] = str(length)

"""Mends of mitmproxy's core that money depends on; put in once, after a check that the core is as they expect.

An interim reply (103 Early Hints) is not the reply: taken for it, the one that costs money would never be seen.
Trailers are dropped: the core stops in the middle of a message that has them. A client that leaves is told of while a
hook is at work, a file is not read faster than it can be sent on, and a request that is spoken to this proxy as to a
server is known by that.
"""

from __future__ import annotations

import asyncio
import collections
import inspect
import re
from collections.abc import Callable, Generator
from typing import Any

import h11
from mitmproxy import ctx, http
from mitmproxy.connection import Client
from mitmproxy.proxy import events, layer
from mitmproxy.proxy.layers import modes
from mitmproxy.proxy.layers.http import HTTPMode, HttpStream, _http1
from mitmproxy.proxy.layers.http._events import RequestData, RequestHeaders, RequestProtocolError
from mitmproxy.proxy.server import ConnectionHandler
from mitmproxy.proxy.tunnel import TunnelLayer

from lockpin_addons.guard import GuardError

CONNECTIONS = 1000  # calls that one client connection may have under way to one address; the core allows five
# A whole interim head at the start of what was read; 101 is no interim reply.
_INTERIM = re.compile(rb"HTTP/1\.[01] 1(?!01)\d\d[^\n]*\n(?:[^\r\n][^\n]*\n)*\r?\n")

QUEUED = "lockpin.queued"  # bytes of a request that came while its stream waited for something
QUEUE_BYTES = 1 << 20
LOOK_S = 0.005
_DIRECT = "lockpin_direct"

_installed = False
_swamped: dict[str, HttpStream] = {}  # by client connection: a stream for which enough is queued


def install(is_nobodys: Callable[[str], bool], leave: Callable[[http.HTTPFlow], None]) -> None:
    """Put the mends in; a second call does nothing. Raises GuardError where mitmproxy has moved.

    `is_nobodys` says of a CONNECT's host that it is no provider's: its tunnel opens at once. `leave` is told of each
    exchange whose client is gone while a hook is still at work on it.
    """
    global _installed
    if _installed:
        return
    verify()
    _skip_interim_replies()
    _drop_trailers()
    _ask_at_connect(is_nobodys)
    _ask_at_socks(is_nobodys)
    _tell_of_leaving(leave)
    _stop_reading()
    _note_direct()
    _installed = True


def verify() -> None:
    """Check that mitmproxy's core is as the mends expect. Raises GuardError."""
    for side in (_http1.Http1Client, _http1.Http1Server):
        source = inspect.getsource(side.read_headers)
        if source.count("make_body_reader(") != 1 or "self.buf.maybe_extract_lines()" not in source:
            raise GuardError(f"mitmproxy's {side.__name__} reads messages in another way than Lockpin knows")
    if "self.child_layer.handle_event(events.Start())" not in inspect.getsource(HttpStream.handle_connect_finish):
        raise GuardError("mitmproxy's HTTP core begins a CONNECT's inner protocol in another way than Lockpin knows")
    if "self.child_layer = layer.NextLayer(self.context)" not in inspect.getsource(modes.Socks5Proxy.state_connect):
        raise GuardError("mitmproxy's SOCKS core begins the inner protocol in another way than Lockpin knows")
    if "self._paused_event_queue.append(event)" not in inspect.getsource(layer.Layer.handle_event) or (
        "handle_event" in vars(HttpStream)
    ):
        raise GuardError("mitmproxy's HTTP core waits for hooks in another way than Lockpin knows")
    if "await self.drain_writers()" not in inspect.getsource(ConnectionHandler.handle_connection):
        raise GuardError("mitmproxy's core reads from clients in another way than Lockpin knows")
    if "elif not self.flow.request.host:" not in inspect.getsource(HttpStream.state_wait_for_request_headers):
        raise GuardError("mitmproxy's HTTP core finds a request's destination in another way than Lockpin knows")
    if "h11_event.headers" not in inspect.getsource(_http1.Http1Connection.read_body):
        raise GuardError("mitmproxy's HTTP/1 core reads trailers in another way than Lockpin knows")


def _skip_interim_replies() -> None:
    original = _http1.Http1Client.read_headers

    def read_headers(self: _http1.Http1Client, event: events.ConnectionEvent) -> Generator[Any, Any, None]:
        if isinstance(event, events.DataReceived) and self.request:
            while interim := _INTERIM.match(bytes(self.buf)):
                self.buf.maybe_extract_at_most(interim.end())
            if not self.buf:
                return
        yield from original(self, event)

    _http1.Http1Client.read_headers = read_headers  # type: ignore[method-assign]


def _ask_at_connect(is_nobodys: Callable[[str], bool]) -> None:
    """Have the layer inside a CONNECT chosen at once, not at the client's first word: the server may speak first."""
    original = HttpStream.handle_connect_finish

    def handle_connect_finish(self: HttpStream) -> Generator[Any, Any, None]:
        inner = self.child_layer
        while isinstance(inner, TunnelLayer):  # the way through another proxy
            inner = inner.child_layer
        if isinstance(inner, layer.NextLayer) and is_nobodys(self.flow.request.host):
            inner._ask_on_start = True
        yield from original(self)

    HttpStream.handle_connect_finish = handle_connect_finish  # type: ignore[method-assign]


def _ask_at_socks(is_nobodys: Callable[[str], bool]) -> None:
    """The same for a connection by SOCKS."""
    original = modes.Socks5Proxy.finish_start

    def finish_start(self: modes.Socks5Proxy) -> Generator[Any, Any, str | None]:
        address = self.context.server.address
        if isinstance(self.child_layer, layer.NextLayer) and address is not None and is_nobodys(address[0]):
            self.child_layer._ask_on_start = True
        return (yield from original(self))

    modes.Socks5Proxy.finish_start = finish_start  # type: ignore[assignment,method-assign]


def _tell_of_leaving(leave: Callable[[http.HTTPFlow], None]) -> None:
    """Tell at once, not after the hook: over HTTP/2 nothing else would, since the connection stays."""
    original = HttpStream.handle_event

    def handle_event(self: HttpStream, event: events.Event) -> Any:
        if self._paused:
            if isinstance(event, RequestProtocolError):
                leave(self.flow)
            elif isinstance(event, RequestData):
                _note_queued(self, event)
        return original(self, event)

    HttpStream.handle_event = handle_event  # type: ignore[assignment,method-assign]


def _note_queued(stream: HttpStream, event: RequestData) -> None:
    queued = stream.flow.metadata[QUEUED] = stream.flow.metadata.get(QUEUED, 0) + len(event.data)
    if queued > QUEUE_BYTES:
        _swamped[stream.context.client.id] = stream


def _stop_reading() -> None:
    """Read no more from a client whose file waits for a connection: the core would keep all of it in memory."""
    original = ConnectionHandler.drain_writers

    async def drain_writers(self: ConnectionHandler) -> None:
        await original(self)
        stream = _swamped.get(self.client.id)
        reads = self.transports.get(self.client)
        if stream is None or reads is None or reads.handler is not asyncio.current_task():
            return
        try:
            while stream._paused is not None:  # noqa: ASYNC110 - what ends it has no event of its own
                await asyncio.sleep(LOOK_S)
        finally:
            _swamped.pop(self.client.id, None)

    ConnectionHandler.drain_writers = drain_writers  # type: ignore[method-assign]


def _note_direct() -> None:
    """Note which requests name no destination but their Host header: the core forgets that before any hook."""
    original = HttpStream.state_wait_for_request_headers

    def state_wait_for_request_headers(self: HttpStream, event: Any) -> Generator[Any, Any, None]:
        if self.mode is HTTPMode.regular and isinstance(event, RequestHeaders) and not event.request.host:
            vars(event.request)[_DIRECT] = True
        yield from original(self, event)

    HttpStream.state_wait_for_request_headers = state_wait_for_request_headers  # type: ignore[method-assign]


def is_direct(request: http.Request) -> bool:
    """Say whether a request was spoken to this proxy as to a server, by whatever name its client knows it."""
    return _DIRECT in vars(request)


def _drop_trailers() -> None:
    original = _http1.make_body_reader

    def make_body_reader(expected_size: int | None) -> Any:
        reader = original(expected_size)
        return _WithoutTrailers(reader) if expected_size is None else reader

    _http1.make_body_reader = make_body_reader


class _WithoutTrailers:
    """A reader of chunked bodies whose end says nothing more."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader

    def __call__(self, buf: Any) -> Any:
        event = self._reader(buf)
        return h11.EndOfMessage() if isinstance(event, h11.EndOfMessage) else event

    def read_eof(self) -> Any:
        return self._reader.read_eof()


def widen(client: Client) -> None:
    """Let one client connection have as many calls under way as an agent's HTTP/2 connection may ask for."""
    handler = ctx.master.addons.get("proxyserver").connections[client.id]
    handler.max_conns = collections.defaultdict(lambda: asyncio.Semaphore(CONNECTIONS))

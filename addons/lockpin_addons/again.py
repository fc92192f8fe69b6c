"""Sends a call once more from within mitmproxy's core, before its client has seen a byte of any reply.

Put in once, after a check that the core is as this needs it. Where an attempt may be followed by another one
(ATTEMPTS), the core asks the hook `lockpin_attempt` when it fails: with the whole reply of an error read, with the head
of a stream that ends before its first byte kept back, or with no reply at all. Nothing of it has been sent to the
client then, so that it gets either the next attempt's reply or this one unchanged. The hook says AGAIN and leaves a
permit: without one the guard opens no upstream, whatever is said here. Late events of what failed reach nobody.
"""

from __future__ import annotations

import collections
import inspect
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from mitmproxy import http
from mitmproxy.connection import Server
from mitmproxy.proxy import commands
from mitmproxy.proxy.layers.http import HttpLayer, HttpStream, SendHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestData,
    RequestEndOfMessage,
    RequestHeaders,
    RequestProtocolError,
    ResponseData,
    ResponseEndOfMessage,
    ResponseProtocolError,
    ResponseTrailers,
)
from mitmproxy.proxy.layers.http._http1 import Http1Client
from mitmproxy.proxy.layers.http._http2 import Http2Client

from lockpin_addons.guard import OWN_REPLY, SENT, GuardError
from lockpin_core.attempts import STATUSES

ATTEMPTS = "lockpin.attempts"  # another attempt may follow the one that runs
AGAIN = "lockpin.again"  # said by the hook: the flow's request, as it is now, is sent once more
EMPTY = "lockpin.empty"  # a stream has ended before its first byte
BROKEN = "lockpin.broken"  # no reply, or not all of it, has come

_NOBODY = 0  # no stream has this id: what is sent to it is dropped
_installed = False


@dataclass
class AttemptHook(commands.StartHook):
    """An attempt has failed, and the client has seen nothing of it."""

    name = "lockpin_attempt"
    flow: http.HTTPFlow


def install() -> None:
    """Put this into mitmproxy's core, behind the guard's locks; a second call does nothing. Raises GuardError."""
    global _installed
    if _installed:
        return
    verify()
    _ask_at_reply()
    _keep_head_back()
    _ask_at_error()
    _installed = True


def verify() -> None:
    """Check that mitmproxy's core is as this needs it. Raises GuardError."""
    expected = (
        # By their class: the guard's locks stand in the place of some of its functions already.
        (HttpStream, "state_consume_response_body", "yield from self.send_response()"),
        (HttpStream, "state_wait_for_response_headers", "yield from self.start_response_stream()"),
        (HttpStream, "start_response_stream", "self.server_state = self.state_stream_response_body"),
        (HttpStream, "handle_protocol_error", "self.flow.error = flow.Error(event.message)"),
        (HttpStream, "make_server_connection", "self.context.server = self.flow.server_conn = connection"),
        (HttpStream, "state_consume_request_body", "yield SendHttp(RequestEndOfMessage(self.stream_id)"),
        (HttpLayer, "get_connection", "elif connection.error:"),
        (HttpLayer, "event_to_child", "stream = self.streams[command.event.stream_id]"),
        (Http1Client, "send", "if isinstance(event, RequestProtocolError):"),
        (Http2Client, "_handle_event", "cmd.event.stream_id = self.their_stream_id[cmd.event.stream_id]"),
    )
    for layer, name, words in expected:
        _, head, body = inspect.getsource(layer).partition(f"    def {name}(")
        if not head or words not in body.partition("\n    def ")[0]:
            raise GuardError(f"mitmproxy's {layer.__name__}.{name} works in another way than Lockpin's retries know")


def _may_follow(stream: HttpStream) -> bool:
    metadata = stream.flow.metadata
    return ATTEMPTS in metadata and OWN_REPLY not in metadata and stream.client_state == stream.state_done


def _is_failure(response: http.Response | None) -> bool:
    return response is not None and response.status_code in STATUSES


def _is_empty(response: http.Response | None) -> bool:
    """Say whether a stream has ended with its head."""
    if response is None or not response.stream or response.raw_content:
        return False
    return 200 <= response.status_code < 300


def _ask_at_reply() -> None:
    """Ask once the whole reply of an error is there, or a stream is over that has no body at all."""
    original = HttpStream.send_response

    def send_response(self: HttpStream, already_streamed: bool = False) -> Generator[Any, Any, None]:  # noqa: FBT001, FBT002
        if not already_streamed and _may_follow(self) and SENT in self.flow.metadata:
            is_empty = _is_empty(self.flow.response)
            if is_empty:
                self.flow.metadata[EMPTY] = True
            if (is_empty or _is_failure(self.flow.response)) and (yield from _has_gone_on(self)):
                return
        yield from original(self, already_streamed)

    HttpStream.send_response = send_response  # type: ignore[method-assign]


def _keep_head_back() -> None:
    """Keep the head of a stream back until its first byte, where another attempt may follow."""
    original = HttpStream.start_response_stream

    def start_response_stream(self: HttpStream) -> Generator[Any, Any, None]:
        if _may_follow(self):
            self.server_state = self.state_wait_for_first_byte  # type: ignore[attr-defined]
            return
        yield from original(self)

    def state_wait_for_first_byte(self: HttpStream, event: Any) -> Generator[Any, Any, None]:
        assert self.flow.response is not None, "a stream has a head"
        if isinstance(event, ResponseTrailers):
            self.flow.response.trailers = event.trailers
            return
        if isinstance(event, ResponseData) and not event.data:
            return
        if isinstance(event, ResponseEndOfMessage):
            self.flow.metadata[EMPTY] = True
            if (yield from _has_gone_on(self)):
                return
        yield from original(self)
        yield from self.server_state(event)

    HttpStream.start_response_stream = start_response_stream  # type: ignore[method-assign]
    HttpStream.state_wait_for_first_byte = state_wait_for_first_byte  # type: ignore[attr-defined]


def _ask_at_error() -> None:
    """Ask where a connection could not be opened, or broke before a byte of a reply could be passed on."""
    original = HttpStream.handle_protocol_error

    def handle_protocol_error(
        self: HttpStream, event: RequestProtocolError | ResponseProtocolError
    ) -> Generator[Any, Any, None]:
        if isinstance(event, ResponseProtocolError) and _may_follow(self) and _has_given_nothing(self):
            self.flow.metadata[BROKEN] = True
            if (yield from _has_gone_on(self)):
                return
        yield from original(self, event)

    HttpStream.handle_protocol_error = handle_protocol_error  # type: ignore[method-assign]


def _has_given_nothing(stream: HttpStream) -> bool:
    """Say whether a reply has not begun, has begun with a head alone that was kept back, or is that of an error."""
    if stream.server_state == stream.state_consume_response_body:
        return _is_failure(stream.flow.response)
    waiting = (stream.state_wait_for_response_headers, stream.state_wait_for_first_byte)  # type: ignore[attr-defined]
    return stream.server_state in waiting


def _has_gone_on(stream: HttpStream) -> Generator[Any, Any, bool]:
    """Ask the hook, and send the request again if it says so. True: nothing more is to be done about the failure."""
    yield AttemptHook(stream.flow)
    metadata = stream.flow.metadata
    is_again = metadata.pop(AGAIN, False)
    metadata.pop(EMPTY, None)
    metadata.pop(BROKEN, None)
    if (yield from stream.check_killed(True)):
        return True
    # What failed is over: all that may still have come of it meanwhile is a second word about its end.
    late = stream._paused_event_queue
    stream._paused_event_queue = collections.deque(e for e in late if isinstance(e, RequestProtocolError))
    if not is_again:
        return False
    yield from _cut_off(stream)
    yield from _send(stream)
    return True


def _cut_off(stream: HttpStream) -> Generator[Any, Any, None]:
    """Let nothing of the attempt that failed reach the stream any more, and give its connection up."""
    parent = stream.context.layers[stream.context.layers.index(stream) - 1]
    assert isinstance(parent, HttpLayer)
    for connection in parent.connections:
        if isinstance(connection, Server) and connection.error and not connection.connected:
            connection.error = None  # else the core would not try to open another one
    old = stream.context.server
    client = _spoken_on(parent, old)
    if isinstance(client, Http1Client):  # of this stream alone
        client.state = client.done
        if old.connected:
            yield SendHttp(RequestProtocolError(stream.stream_id, "a call is sent again", ErrorCode.CANCEL), old)
    elif isinstance(client, Http2Client) and stream.stream_id in client.our_stream_id:
        yield SendHttp(RequestProtocolError(stream.stream_id, "a call is sent again", ErrorCode.CANCEL), old)
        ours = client.our_stream_id.pop(stream.stream_id)
        client.their_stream_id[ours] = _NOBODY
        client.streams.pop(ours, None)


def _spoken_on(parent: HttpLayer, connection: Server) -> object:
    """Find what speaks HTTP on an upstream connection, inside TLS and other proxies' tunnels."""
    found: Any = parent.connections.get(connection)
    while found is not None and not isinstance(found, Http1Client | Http2Client):
        found = getattr(found, "child_layer", None)
    return found


def _send(stream: HttpStream) -> Generator[Any, Any, None]:
    """Send the request as the core does, on a connection that the guard lets it have."""
    flow = stream.flow
    flow.response = flow.error = None
    stream.response_body_buf.clear()
    stream.server_state = stream.state_wait_for_response_headers
    if not (yield from stream.make_server_connection()):
        return
    content = flow.request.raw_content
    yield SendHttp(RequestHeaders(stream.stream_id, flow.request, not content), stream.context.server)
    if content:
        yield SendHttp(RequestData(stream.stream_id, content), stream.context.server)
    yield SendHttp(RequestEndOfMessage(stream.stream_id), stream.context.server)

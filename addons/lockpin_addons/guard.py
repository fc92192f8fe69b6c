"""The locks that keep the gate shut when something in Lockpin, or in mitmproxy, goes wrong.

mitmproxy logs an exception in a hook and forwards the call all the same, and a script can vanish from a running
proxy. So an HTTP call gets an upstream connection only with a permit that the gate leaves as its last act; the check
stands inside mitmproxy's core, once in the process. This module also holds the edge's one catch-all.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import Any, cast

from mitmproxy import http
from mitmproxy.proxy.layers.http import HttpStream, SendHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestData,
    RequestProtocolError,
    ResponseEndOfMessage,
    ResponseProtocolError,
)
from mitmproxy.proxy.layers.http._hooks import HttpResponseHeadersHook

logger = logging.getLogger("lockpin")

PERMIT = "lockpin.permit"  # (flow id, scheme, host, port), left by the gate as its last act, used up by one attempt
SENT = "lockpin.sent"  # set once an upstream connection was obtained: bytes may have left
BLAME = "lockpin.blame"  # "client" or "provider": whose side ended an exchange early
# (bytes of request body that are read at most, body of the 413, or None: the flow's own refusal); absent: any number
BODY_LIMIT = "lockpin.body_limit"
STREAM_LIMIT = "lockpin.stream_limit"  # the same for one that streams; the number is of bytes that are left
OWN_REPLY = "lockpin.own_reply"  # the reply is ours, nothing was sent

_installed = False


class GuardError(Exception):
    """mitmproxy is not as this guard knows it; Lockpin must not start."""

    is_plain = True


def panic_reply() -> http.Response:
    """Make the reply that stands until the gate's last line takes it away."""
    now_s = time.time()
    headers = http.Headers(_PANIC_HEADERS)
    return http.Response(b"HTTP/1.1", 500, b"Internal Server Error", headers, _PANIC, None, now_s, now_s)


def _panic_body() -> bytes:
    message = "lockpin: an internal error in Lockpin stopped this call; it was not sent"
    body = {
        "type": "error",
        "error": {"type": "handler_panic", "code": "handler_panic", "message": message, "param": None},
        "lockpin": {"code": "handler_panic"},
    }
    return json.dumps(body).encode()


_PANIC = _panic_body()
_PANIC_HEADERS = (
    (b"content-type", b"application/json"),
    (b"x-should-retry", b"false"),
    (b"content-length", str(len(_PANIC)).encode()),
)


def own_reply(status: int, body: bytes, headers: dict[str, str] | None = None) -> http.Response:
    """Make a reply of ours."""
    return http.Response.make(status, body, {"content-type": "application/json", **(headers or {})})


def permit(flow: http.HTTPFlow, *, parts: int = 3) -> None:
    """Let this flow reach exactly the destination it names now, once, and with just these parts of the request.

    They are method, path and body: a body that streams is not there yet, and 0 lets a script change all three.
    """
    flow.metadata[PERMIT] = (_destination(flow), _content(flow)[:parts])


def _is_permitted(flow: http.HTTPFlow) -> bool:
    destination, content = flow.metadata.pop(PERMIT, (None, ()))
    if destination != _destination(flow):
        return False
    *names, body = _content(flow)
    return list(content[:2]) == names[: len(content)] and (len(content) < 3 or body is content[2])


def _destination(flow: http.HTTPFlow) -> tuple[str, str, str, int]:
    return (flow.id, flow.request.scheme, flow.request.host, flow.request.port)


def _content(flow: http.HTTPFlow) -> tuple[str, str, bytes | None]:
    return (flow.request.method, flow.request.path, flow.request.raw_content)


def verify() -> None:
    """Check that mitmproxy's core is as the locks need it. Raises GuardError."""
    source = inspect.getsource(HttpStream)
    if source.count("make_server_connection()") != 2:
        raise GuardError("mitmproxy's HTTP core opens upstreams in another place than Lockpin's guard knows")
    for function in (HttpStream.start_request_stream, HttpStream.state_consume_request_body):
        text = inspect.getsource(function)
        if not 0 <= text.find("make_server_connection") < text.find("RequestHeaders("):
            raise GuardError(f"mitmproxy's {function.__name__} sends before Lockpin's guard is asked")
    consume = inspect.getsource(HttpStream.state_consume_request_body)
    if "check_body_size(True)" not in consume:
        raise GuardError("mitmproxy's HTTP core no longer asks for the size of request bodies")
    if "self.client_state = self.state_stream_request_body" not in source:
        raise GuardError("mitmproxy's HTTP core streams requests in another way than Lockpin's guard knows")
    if source.count("def handle_protocol_error") != 1 or source.count("def check_killed") != 1:
        raise GuardError("mitmproxy's HTTP core ends exchanges in another way than Lockpin's guard knows")


def install() -> None:
    """Put the locks into mitmproxy's core; a second call does nothing. Raises GuardError."""
    global _installed
    if _installed:
        return
    verify()
    _lock_upstream()
    _limit_bodies()
    _limit_streams()
    _note_blame()
    _installed = True


def _lock_upstream() -> None:
    original = HttpStream.make_server_connection

    def make_server_connection(self: HttpStream) -> Generator[Any, Any, bool]:
        if not _is_permitted(self.flow):
            logger.error("lockpin: a call without a permit was stopped before it was sent")
            yield from _answer(self, panic_reply())
            return False
        connected = yield from original(self)
        # The client may have left while a connection was waited for: then nothing is sent, and nothing is billed.
        if connected and (yield from self.check_killed(True)):
            return False
        if connected:
            self.flow.metadata[SENT] = True
        return connected

    HttpStream.make_server_connection = make_server_connection  # type: ignore[method-assign]


def _limit_bodies() -> None:
    original = HttpStream.check_body_size

    def check_body_size(self: HttpStream, request: bool) -> Generator[Any, Any, bool]:  # noqa: FBT001
        limit_bytes, reply_body = self.flow.metadata.get(BODY_LIMIT, (None, b"")) if request else (None, b"")
        read = len(self.request_body_buf)
        if limit_bytes is not None and read > limit_bytes and self.client_state != self.state_errored:
            self.request_body_buf.clear()
            reply = (
                self.flow.response if reply_body is None else own_reply(413, reply_body, {"x-should-retry": "false"})
            )
            assert reply is not None, "a body was limited for a refusal that is not there"
            reply.headers["connection"] = "close"
            yield from _answer(self, reply)
            self.client_state = self.state_errored
            return True
        return (yield from original(self, request))

    HttpStream.check_body_size = check_body_size  # type: ignore[method-assign]


def _limit_streams() -> None:
    original = HttpStream.state_stream_request_body

    def state_stream_request_body(self: HttpStream, event: Any) -> Generator[Any, Any, None]:
        limit = self.flow.metadata.get(STREAM_LIMIT)
        if limit is not None and isinstance(event, RequestData):
            left, reply_body = limit
            self.flow.metadata[STREAM_LIMIT] = (left - len(event.data), reply_body)
            if left < len(event.data):
                yield from _cut(self, reply_body)
                return
        yield from original(self, event)

    HttpStream.state_stream_request_body = state_stream_request_body  # type: ignore[method-assign]


def _cut(stream: HttpStream, reply_body: bytes) -> Generator[Any, Any, None]:
    """Break off a request that streams, before its end could be taken for the end of what was meant."""
    broken = RequestProtocolError(stream.stream_id, "the body is too large", ErrorCode.CLIENT_DISCONNECTED)
    yield SendHttp(broken, stream.context.server)
    if stream.flow.response is None:
        yield from _answer(stream, own_reply(413, reply_body, {"x-should-retry": "false", "connection": "close"}))
    else:
        error = ResponseProtocolError(stream.stream_id, "the body is too large", ErrorCode.KILL)
        yield from stream.handle_protocol_error(error)
    stream.client_state = stream.server_state = stream.state_errored


def _note_blame() -> None:
    """Note whose side ended an exchange: the texts of mitmproxy's errors do not tell."""
    original = HttpStream.handle_protocol_error

    def handle_protocol_error(
        self: HttpStream, event: RequestProtocolError | ResponseProtocolError
    ) -> Generator[Any, Any, None]:
        side = "client" if isinstance(event, RequestProtocolError) else "provider"
        self.flow.metadata.setdefault(BLAME, side)
        yield from original(self, event)

    HttpStream.handle_protocol_error = handle_protocol_error  # type: ignore[method-assign]


def _answer(stream: HttpStream, reply: http.Response) -> Generator[Any, Any, None]:
    stream.flow.response = reply
    stream.flow.metadata[OWN_REPLY] = True
    yield HttpResponseHeadersHook(stream.flow)
    yield from stream.send_response()
    if stream.client_state != stream.state_done and stream.server_state == stream.state_done:
        # The core ends a reply only where the request has come in full; over HTTP/2 it would never end.
        yield SendHttp(ResponseEndOfMessage(stream.stream_id), stream.context.client)


type Fallback = Callable[[Any, Any], None]


def sealed(fallback: Fallback) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Wrap a hook in the edge's one catch-all: whatever is raised, `fallback(addon, argument)` puts the flow right.

    Only an exit is raised again. A cancellation is not: mitmproxy would wait for ever for a hook that ended that way,
    and once the flow has its refusal, ending quietly is all that the canceller wants.
    """

    def wrap(hook: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(hook):

            @functools.wraps(hook)
            async def call_async(self: Any, argument: Any) -> None:
                try:
                    await cast(Awaitable[None], hook(self, argument))
                except BaseException as error:
                    _handle(error, fallback, self, argument)
                    if isinstance(error, KeyboardInterrupt | SystemExit):
                        raise

            return call_async

        @functools.wraps(hook)
        def call(self: Any, argument: Any) -> None:
            try:
                hook(self, argument)
            except BaseException as error:
                _handle(error, fallback, self, argument)
                if isinstance(error, KeyboardInterrupt | SystemExit):
                    raise

        return call

    return wrap


def _handle(error: BaseException, fallback: Fallback, addon: Any, argument: Any) -> None:
    fallback(addon, argument)
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}" if place is not None else "?"
    # Only the kind and the place: a message may hold a piece of a prompt or a key.
    logger.error("lockpin: %s at %s; the call was handled as a fault of Lockpin", type(error).__name__, where)


@contextlib.contextmanager
def or_end_process() -> Iterator[None]:
    """Around a start: a fault prints one line and ends the process, so that no proxy is ever left open."""
    try:
        yield
    except SystemExit:
        raise
    except KeyboardInterrupt:
        sys.exit(130)  # somebody has thought better of it, which is no fault
    except BaseException as error:
        plain = getattr(error, "is_plain", False)
        line = str(error) if plain else f"{type(error).__name__}: {error}"
        print(f"lockpin: cannot start: {' '.join(line.split())}", file=sys.stderr, flush=True)
        sys.exit(1)


async def never_end(turn: Callable[[], Awaitable[None]], pause_s: float) -> None:
    """Take a watcher's turn again and again: a fault in one is a line, and the next comes all the same."""
    while True:
        await asyncio.sleep(pause_s)
        try:
            await turn()
        except Exception as error:
            logger.error("lockpin: %s while the configuration was watched; it stays as it is", type(error).__name__)


async def never_fail[T](action: Awaitable[T], what: str) -> T | None:
    """Do what a call does not depend on; None where it failed."""
    try:
        return await action
    except Exception as error:
        logger.debug("lockpin: %s while %s", type(error).__name__, what)
        return None


def never_raise[T](action: Callable[[], T]) -> T | None:
    """Do what a stream's callable does; None where it failed: that callable must never raise."""
    try:
        return action()
    except Exception as error:
        logger.error("lockpin: %s while a reply was read; its hold is charged", type(error).__name__)
        return None

"""Which protocol layers may stand on a connection: tunnels for hosts that are nobody's, HTTP alone for providers.

Two addons, since one must decide before mitmproxy's own choice and one must judge after it. A host is compared in
its canonical form, of the CONNECT and of the TLS server name alike, whatever the port.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers import ClientTLSLayer, HttpLayer, ServerTLSLayer, TCPLayer
from mitmproxy.proxy.layers.tls import parse_client_hello
from mitmproxy.proxy.mode_specs import ReverseMode, Socks5Mode

from lockpin_addons.guard import sealed
from lockpin_core.addresses import canonical_host
from lockpin_core.providers import Providers

logger = logging.getLogger("lockpin")

TLS_HANDSHAKE = b"\x16"  # the first byte of a TLS connection
TLS_RECORDS = range(0x14, 0x19)  # first bytes of its records
TLS_MAJOR = 3  # the second byte of all of them
RECORD_HEAD_BYTES = 5
UNREADABLE = "unreadable"
MAX_HELLO_BYTES = 64 * 1024  # no hello of a client is longer


class Rejected(layer.Layer):
    """Closes the connection: what is spoken on it cannot be metered."""

    def _handle_event(self, event: events.Event) -> layer.CommandGenerator[None]:
        if isinstance(event, events.Start):
            yield commands.CloseConnection(self.context.client)


def _reject(_addon: object, next_layer: layer.NextLayer) -> None:
    del next_layer.context.layers[_depth(next_layer.context) :]
    next_layer.layer = Rejected(next_layer.context)


def _leave(_addon: object, _next_layer: layer.NextLayer) -> None:
    """Let mitmproxy choose: it intercepts, and `Policy` judges after it."""


def _depth(context: Context) -> int:
    return len(context.layers)


class Tunnel(TCPLayer):
    """A tunnel to a host that is nobody's, open before the client has said a word: its server may speak first.

    The client's first words are read all the same: where they are a TLS hello or the head of an HTTP request that
    names a provider, the tunnel is closed, since such a host may be an alias of it, or its address.
    """

    def __init__(self, context: Context, providers: Providers) -> None:
        super().__init__(context, ignore=True)
        self._providers = providers
        self._first: bytes | None = b""  # what the client said so far; None: it was judged

    def relay_messages(self, event: events.Event) -> layer.CommandGenerator[None]:
        """Relay, once the client's first words are judged."""
        if (
            self._first is not None
            and isinstance(event, events.DataReceived)
            and event.connection == self.context.client
        ):
            self._first += event.data
            names_provider = self._judge(self._first)
            if names_provider is None:
                return
            if names_provider:
                what = "closed a tunnel to another host that named a provider, or might have"
                logger.warning("lockpin: %s%s", what, self._hint())
                yield from self._close()
                return
            event, self._first = events.DataReceived(self.context.client, self._first), None
        yield from super().relay_messages(event)

    def _hint(self) -> str:
        is_socks = isinstance(self.context.client.proxy_mode, Socks5Mode)
        return "; name the host to the proxy, by socks5h:// instead of socks5://" if is_socks else ""

    def _close(self) -> layer.CommandGenerator[None]:
        yield commands.CloseConnection(self.context.server)
        yield commands.CloseConnection(self.context.client)
        self._handle_event = self.done

    def _judge(self, data: bytes) -> bool | None:
        """Say whether the first words name a provider, or might; None: they are not whole yet.

        A hello of TLS must be readable in full: servers are less strict than any parser here, and what they would
        understand and we would not must not pass.
        """
        if data[0] not in TLS_RECORDS and not _is_old_hello(data):
            names = plain_names(data)
            return None if names is None else any(self._is_provider(name) for name in names)
        if len(data) < 2:
            return None
        if data[0] in TLS_RECORDS and data[1] != TLS_MAJOR:
            return False
        hello = hello_name(data)
        if hello is None:
            return len(data) > MAX_HELLO_BYTES or None
        return self._is_provider(hello)

    def _is_provider(self, name: str) -> bool:
        return name == UNREADABLE or self._providers.for_host(name) is not None


class Tunnels:
    """Stands before mitmproxy's own choice: what is nobody's host is tunnelled unseen, from the CONNECT on."""

    name = "lockpin_tunnels"

    def __init__(self, providers: Providers) -> None:
        self._providers = providers

    def is_nobodys(self, host: str) -> bool:
        """Say whether a CONNECT's host is no provider's."""
        return self._providers.for_host(host) is None

    @sealed(_leave)
    def next_layer(self, next_layer: layer.NextLayer) -> None:
        """Tunnel a CONNECT to a host that is no provider's."""
        context = next_layer.context
        if next_layer.layer is not None or context.server.address is None or _is_inside_tls(context):
            return
        if isinstance(context.client.proxy_mode, ReverseMode):
            return  # its one target is spoken to in HTTP, whoever it is
        if self.is_nobodys(context.server.address[0]):
            next_layer.layer = Tunnel(context, self._providers)


class Policy:
    """Stands after mitmproxy's own choice: on everything else only TLS and HTTP."""

    name = "lockpin_layers"

    def __init__(self, providers: Providers) -> None:
        self._providers = providers

    @sealed(_reject)
    def next_layer(self, next_layer: layer.NextLayer) -> None:
        """Close a connection on which anything but TLS or HTTP was chosen, tunnels of ours apart."""
        chosen, context = next_layer.layer, next_layer.context
        if chosen is None or all(isinstance(one, _METERED_LAYERS) for one in _stacked(chosen, context)):
            return
        if isinstance(chosen, TCPLayer) and chosen.flow is None and not any(self._is_provider(context)):
            return
        for one in _stacked(chosen, context):
            context.layers.remove(one)
        next_layer.layer = Rejected(context)
        logger.warning("lockpin: closed a connection to a provider's host that is not HTTP")

    def _is_provider(self, context: Context) -> Iterator[bool]:
        names = [context.server.address[0] if context.server.address else None, context.client.sni]
        return (self._providers.for_host(name) is not None for name in names if name)


_METERED_LAYERS = (HttpLayer, ClientTLSLayer, ServerTLSLayer)


def _stacked(chosen: layer.Layer, context: Context) -> list[layer.Layer]:
    """Give the layers that were put on with a choice: the chosen one and what it already has inside."""
    return context.layers[context.layers.index(chosen) :]


def _is_inside_tls(context: Context) -> bool:
    """Say whether TLS with the client was begun inside the CONNECT; the proxy itself may be reached over TLS too.

    A connection by SOCKS has no CONNECT; to reach that proxy over TLS is not possible.
    """
    kinds = [type(one) for one in reversed(context.layers)]
    if ClientTLSLayer not in kinds:
        return False
    return HttpLayer not in kinds or kinds.index(ClientTLSLayer) < kinds.index(HttpLayer)


def hello_name(data: bytes) -> str | None:
    """Read the server name of a ClientHello, whatever records it comes in: "" where it names none.

    None: it is not whole yet. UNREADABLE: it is no hello that can be read, though a server might.
    """
    message, at = b"", 0
    while at < len(data):
        head = data[at : at + RECORD_HEAD_BYTES]
        if head[:1] != TLS_HANDSHAKE or (len(head) > 1 and head[1] != TLS_MAJOR):
            return UNREADABLE
        if len(head) < RECORD_HEAD_BYTES:
            return None
        size = int.from_bytes(head[3:5])
        message += data[at + RECORD_HEAD_BYTES : at + RECORD_HEAD_BYTES + size]
        at += RECORD_HEAD_BYTES + size
        if len(message) >= 4 and len(message) >= 4 + int.from_bytes(message[1:4]):
            return _name_in(message)
    return None


def _name_in(message: bytes) -> str:
    size = int.from_bytes(message[1:4])
    record = b"\x16\x03\x01" + (4 + size).to_bytes(2) + message[: 4 + size] if size + 4 < 1 << 14 else b""
    try:
        hello = parse_client_hello(record) if record else None
    except ValueError:
        return UNREADABLE
    return UNREADABLE if hello is None else canonical_host(hello.sni or "")


def plain_names(data: bytes) -> list[str] | None:
    """List the hosts that the head of a first HTTP/1 request names; [] where it is none. None: it is not whole yet."""
    data = data.lstrip(b"\r\n")
    if not _REQUEST.match(data):
        begun = re.sub(rb"[ \t]+", b" ", data[:MAX_HELLO_BYTES].lower())
        return None if any(begin.startswith(begun) for begin in _BEGINNINGS) else []
    line, end, rest = data.partition(b"\n")
    if end and not re.search(rb" HTTP/1\.\d\s*$", line, re.IGNORECASE):
        return []
    head = re.split(rb"\n\r?\n", end + rest, maxsplit=1)
    if not end or len(head) == 1:
        return None if len(data) <= MAX_HELLO_BYTES else [UNREADABLE]
    hosts = re.findall(rb"\nhost[ \t]*:[ \t]*([^\r\n]*)", re.sub(rb"\r?\n[ \t]+", b" ", head[0]), re.IGNORECASE)
    hosts += re.findall(rb"^\S+\s+\w+://([^/?#\s]*)", line)
    return [re.sub(r":\d*$", "", host.decode("latin-1").strip().rpartition("@")[2]) for host in hosts]


_METHODS = (b"get", b"head", b"post", b"put", b"patch", b"delete", b"options")
_REQUEST = re.compile(rb"(?:%b)[ \t]+(?:/|\*|https?://)" % b"|".join(_METHODS), re.IGNORECASE)
_BEGINNINGS = tuple(method + b" " + target for method in _METHODS for target in (b"http://", b"https://"))


def _is_old_hello(data: bytes) -> bool:
    """Say whether this may be the hello of SSL 2, which names no server but is TLS all the same."""
    return len(data) >= 3 and data[0] & 0x80 != 0 and data[2] == 1

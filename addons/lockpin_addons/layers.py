"""Which protocol layers may stand on a connection: tunnels for hosts that are nobody's, HTTP alone for providers.

Two addons, since one must decide before mitmproxy's own choice and one must judge after it. A host is compared in
its canonical form, of the CONNECT and of the TLS server name alike, whatever the port.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from mitmproxy.net.tls import starts_like_tls_record
from mitmproxy.proxy import commands, events, layer
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers import ClientTLSLayer, HttpLayer, ServerTLSLayer, TCPLayer
from mitmproxy.proxy.layers.tls import parse_client_hello

from lockpin_addons.guard import sealed
from lockpin_core.providers import Providers, canonical_host

logger = logging.getLogger("lockpin")

TLS_RECORD_BYTES = 3  # what tells a TLS record from anything else
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

    The client's first words are read all the same: where they are a TLS hello that names a provider, the tunnel is
    closed, since such a host may be an alias of it.
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
                logger.warning("lockpin: closed a tunnel to another host that named a provider")
                yield commands.CloseConnection(self.context.server)
                yield commands.CloseConnection(self.context.client)
                self._handle_event = self.done
                return
            event, self._first = events.DataReceived(self.context.client, self._first), None
        yield from super().relay_messages(event)

    def _judge(self, data: bytes) -> bool | None:
        """Say whether the first words name a provider; None: they are not whole yet."""
        if b"\x16\x03".startswith(data[:2]) and len(data) < TLS_RECORD_BYTES:
            return None
        if not starts_like_tls_record(data) or len(data) > MAX_HELLO_BYTES:
            return False
        name = _client_hello(data)
        return None if name is None else self._providers.for_host(name) is not None


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
        if chosen is None or isinstance(chosen, HttpLayer | ClientTLSLayer | ServerTLSLayer):
            return
        if isinstance(chosen, TCPLayer) and chosen.flow is None and not any(self._is_provider(context)):
            return
        context.layers.remove(chosen)
        next_layer.layer = Rejected(context)
        logger.warning("lockpin: closed a connection to a provider's host that is not HTTP")

    def _is_provider(self, context: Context) -> Iterator[bool]:
        names = [context.server.address[0] if context.server.address else None, context.client.sni]
        return (self._providers.for_host(name) is not None for name in names if name)


def _is_inside_tls(context: Context) -> bool:
    """Say whether TLS with the client was begun inside the CONNECT; the proxy itself may be reached over TLS too."""
    kinds = [type(one) for one in context.layers]
    return ClientTLSLayer in kinds and kinds[::-1].index(ClientTLSLayer) < kinds[::-1].index(HttpLayer)


def _client_hello(data: bytes) -> str | None:
    """Read the server name of a ClientHello: "" where it has none or is not readable; None: it is not complete."""
    try:
        hello = parse_client_hello(data)
    except ValueError:
        return ""
    return None if hello is None else canonical_host(hello.sni or "")

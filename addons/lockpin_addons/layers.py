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


class Tunnels:
    """Stands before mitmproxy's own choice: what is nobody's host is tunnelled unseen."""

    name = "lockpin_tunnels"

    def __init__(self, providers: Providers) -> None:
        self._providers = providers

    @sealed(_leave)
    def next_layer(self, next_layer: layer.NextLayer) -> None:
        """Tunnel a CONNECT whose host and TLS server name are no provider's."""
        context = next_layer.context
        if next_layer.layer is not None or context.server.address is None or _is_inside_tls(context):
            return
        data = next_layer.data_client()
        if starts_like_tls_record(data):
            hello = _client_hello(data)
            if hello is None:
                return
            names = [context.server.address[0], hello]
        elif len(data) < 3 and b"\x16\x03".startswith(data[:2]):
            return  # perhaps the first bytes of a TLS record: wait for more
        else:
            names = [context.server.address[0]]
        if not any(self._providers.for_host(name) for name in names if name):
            next_layer.layer = TCPLayer(context, ignore=True)


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

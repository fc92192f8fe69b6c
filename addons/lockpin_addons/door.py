"""The door: who may connect, what a CONNECT says of its caller, and where a connection from here must not lead.

Knows connections and addresses; knows no prices and decides about no call.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence

from mitmproxy import ctx, http
from mitmproxy.connection import Client
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from lockpin_addons import guard, identity, mends
from lockpin_addons.identity import Credentials
from lockpin_addons.route import Listener
from lockpin_core.providers import Providers


def _deny_connect(_door: Door, flow: http.HTTPFlow) -> None:
    flow.response = guard.own_reply(400, b'{"error":{"message":"lockpin: this CONNECT could not be read"}}')


def _close_client(_door: Door, client: Client) -> None:
    client.error = "lockpin: this client could not be checked"


def _refuse_connection(_door: Door, data: ServerConnectionHookData) -> None:
    data.server.error = "lockpin: this destination could not be checked"


def _ignore(_door: Door, _argument: object) -> None:
    """Nothing depends on this hook."""


class Door:
    """Lets clients in and connections out."""

    name = "lockpin_door"

    def __init__(self, providers: Providers) -> None:
        self._providers = providers
        self._is_closing = False
        self._credentials: dict[str, Credentials] = {}  # by client connection: those of its CONNECT
        self._listener: tuple[list[object], Listener] | None = None

    def credentials(self, client: Client) -> Credentials | None:
        """Give what the connection's CONNECT said of who calls; None: nothing, or there was none."""
        return self._credentials.get(client.id)

    def listener(self) -> Listener:
        """Give our own addresses; they may change while running: then other servers stand there."""
        if self._is_closing and self._listener is not None:
            return self._listener[1]  # the sockets are closed, the connections are not
        server = ctx.master.addons.get("proxyserver")
        servers = list(server.servers) if server is not None else []
        if self._listener is None or self._listener[0] != servers:
            found = self._listener_at(server.listen_addrs() if servers else [])
            if not all(one.is_running for one in servers):
                return found
            self._listener = (servers, found)
        return self._listener[1]

    def _listener_at(self, addresses: Sequence[tuple[str, int]]) -> Listener:
        hosts = {"127.0.0.1", "::1", "localhost", *(address[0] for address in addresses)}
        return Listener(frozenset(hosts - {"0.0.0.0", "::"}), frozenset(address[1] for address in addresses))

    def close(self) -> None:
        """Remember our addresses: the sockets will be closed while connections go on."""
        self.listener()
        self._is_closing = True

    @guard.sealed(_close_client)
    def client_connected(self, client: Client) -> None:
        """Serve this machine alone: in solo mode whoever reaches the port could spend your budgets."""
        if client.transport_protocol != "tcp":
            client.error = "lockpin: only TCP is served"  # a reverse proxy of mitmproxy's would speak HTTP/3 as well
            return
        if not ipaddress.ip_address(client.peername[0].partition("%")[0]).is_loopback:
            client.error = "lockpin: only this machine may use this proxy"
            return
        mends.widen(client)

    @guard.sealed(_deny_connect)
    def http_connect(self, flow: http.HTTPFlow) -> None:
        """Keep the CONNECT's credentials for the requests inside it; those of one that failed before are forgotten."""
        self._credentials.pop(flow.client_conn.id, None)
        try:
            found = identity.proxy_credentials(flow.request.headers)
        except identity.IdentityError as error:
            if self._providers.for_host(flow.request.host) is not None:
                flow.response = http.Response.make(400, f"lockpin: {error}\n", {"content-type": "text/plain"})
            return
        if found is not None:
            self._credentials[flow.client_conn.id] = found

    @guard.sealed(_refuse_connection)
    async def server_connect(self, data: ServerConnectionHookData) -> None:
        """Refuse a name that leads back to this proxy: each turn would open one more connection, without end."""
        host, port = (data.server.address or ("", 0))[:2]
        if port not in self.listener().ports or data.server.error:
            return
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        if any(_is_here(str(address[0])) for *_, address in found):
            data.server.error = "lockpin: this destination is the proxy itself"

    @guard.sealed(_ignore)
    def client_disconnected(self, client: Client) -> None:
        """Forget a connection."""
        self._credentials.pop(client.id, None)


def _is_here(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    plain = getattr(found, "ipv4_mapped", None) or found
    return plain.is_loopback or plain.is_unspecified

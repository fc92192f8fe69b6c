"""The door: who may connect, what a CONNECT says of its caller, and where a connection from here must not lead.

Knows connections and addresses; knows no prices and decides about no call to a provider.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mitmproxy import ctx, http
from mitmproxy.connection import Client
from mitmproxy.proxy.mode_servers import ServerInstance
from mitmproxy.proxy.server_hooks import ServerConnectionHookData

from lockpin_addons import guard, identity, mends
from lockpin_addons.callers import Callers
from lockpin_addons.identity import Credentials
from lockpin_addons.reach import is_listed, is_public, is_trusted
from lockpin_addons.route import Listener
from lockpin_addons.terms import InForce
from lockpin_core.names import shown
from lockpin_core.providers import Providers

_CREDENTIALS_REQUIRED = 407

type Resolver = Callable[[str, int], Awaitable[list[str]]]


def _deny_connect(_door: Door, flow: http.HTTPFlow) -> None:
    flow.response = guard.own_reply(400, b'{"error":{"message":"lockpin: this CONNECT could not be read"}}')


def _close_client(_door: Door, client: Client) -> None:
    client.error = "lockpin: this client could not be checked"


def _refuse_connection(_door: Door, data: ServerConnectionHookData) -> None:
    data.server.error = "lockpin: this destination could not be checked"


def _ignore(_door: Door, _argument: object) -> None:
    """Nothing depends on this hook."""


@dataclass(frozen=True, slots=True)
class Barred:
    """Why a host may not be reached through here."""

    status: int
    words: str

    def reply(self) -> http.Response:
        """Give the answer; where credentials are missing, clients that keep them back send them now."""
        more = {"proxy-authenticate": 'Basic realm="lockpin"'} if self.status == _CREDENTIALS_REQUIRED else {}
        return http.Response.make(self.status, f"lockpin: {self.words}\n", {"content-type": "text/plain", **more})


class Door:
    """Lets clients in and connections out. `callers` knows who may, `find` a name's addresses."""

    name = "lockpin_door"

    def __init__(
        self, in_force: InForce, providers: Providers, callers: Callers, *, find: Resolver | None = None
    ) -> None:
        self._in_force, self._providers, self._callers = in_force, providers, callers
        self._resolve = find or resolve
        self._is_closing = False
        self._credentials: dict[str, Credentials] = {}  # by client connection: those of its CONNECT
        self._listener: tuple[list[object], Listener] | None = None

    def credentials(self, client: Client) -> Credentials | None:
        """Give what the connection's CONNECT said of who calls; None: nothing, or there was none."""
        return self._credentials.get(client.id)

    def listener(self, client: Client) -> Listener:
        """Give our own addresses, as a client knows them: where it was let in is ours, whatever else is known yet."""
        found, port = self._find_listener(), client.sockname[1]
        return found if port in found.ports else replace(found, ports=found.ports | {port})

    def _find_listener(self) -> Listener:
        """Give the addresses of the servers; they may change while running: then other servers stand there."""
        if self._is_closing and self._listener is not None:
            return self._listener[1]  # the sockets are closed, the connections are not
        server = ctx.master.addons.get("proxyserver")
        servers = list(server.servers) if server is not None else []
        if self._listener is None or self._listener[0] != servers:
            found = self._listener_at([address for one in servers for address in _addresses(one)])
            if not all(one.is_running for one in servers):
                return found
            self._listener = (servers, found)
        return self._listener[1]

    def _listener_at(self, addresses: Sequence[tuple[str, int]]) -> Listener:
        hosts = {"127.0.0.1", "::1", "localhost", *(address[0] for address in addresses)}
        return Listener(frozenset(hosts - {"", "0.0.0.0", "::"}), frozenset(address[1] for address in addresses))

    def close(self) -> None:
        """Remember our addresses: the sockets will be closed while connections go on."""
        self._find_listener()
        self._is_closing = True

    def is_direct(self, flow: http.HTTPFlow) -> bool:
        """Say whether a request is for this proxy itself, though it goes by a name that nobody here knows.

        In solo mode it is for whomever it names: a browser's page could name this machine as it likes.
        """
        return self._is_team and mends.is_direct(flow.request)

    @property
    def _is_team(self) -> bool:
        return self._in_force.terms.config.mode == "team"

    @guard.sealed(_close_client)
    def client_connected(self, client: Client) -> None:
        """Serve this machine alone in solo mode: whoever reaches the port could spend your budgets."""
        if client.transport_protocol != "tcp":
            client.error = "lockpin: only TCP is served"  # a reverse proxy of mitmproxy's would speak HTTP/3 as well
            return
        if not self._is_team and not _is_near(client):
            client.error = "lockpin: only this machine may use this proxy"
            return
        mends.widen(client)

    @guard.sealed(_deny_connect)
    async def http_connect(self, flow: http.HTTPFlow) -> None:
        """Keep the CONNECT's credentials for the requests inside it; those of one that failed before are forgotten."""
        client, host = flow.client_conn, flow.request.host
        self._credentials.pop(client.id, None)
        is_providers = self._providers.for_host(host) is not None
        found: Credentials | None = None
        try:
            found = identity.proxy_credentials(flow.request.headers)
        except identity.IdentityError as error:
            if is_providers:
                flow.response = Barred(400, str(error)).reply()
                return
        if not is_providers and (barred := await self.barred(client, host, flow.request.port, found)) is not None:
            flow.response = barred.reply()
            return
        if found is not None:
            self._credentials[client.id] = found

    async def barred(self, client: Client, host: str, port: int, said: Credentials | None) -> Barred | None:
        """Say why a host that is no provider's may not be reached, in team mode; None: it may.

        From another machine nobody without a key gets anywhere, or this would be an open proxy.
        """
        if not self._is_team:
            return None
        if not _is_near(client):
            try:
                await self._callers.of(None if said is None else said.password, client)
            except identity.IdentityError as error:
                status = 503 if error.code == "keys_unavailable" else _CREDENTIALS_REQUIRED
                return Barred(status, str(error))
        allowed = self._in_force.terms.config.allow_hosts
        if not is_listed(host, allowed):
            return Barred(
                403, f"{shown(host, 100)} is not in allow_hosts of lockpin.yaml, so it cannot be reached here"
            )
        if is_trusted(host, allowed):
            return None
        addresses = await self._resolve(host, port)
        if not all(map(is_public, addresses)):
            what = f"{shown(host, 100)} leads to an address that is not public"
            return Barred(403, f"{what}; list it by its whole name in allow_hosts of lockpin.yaml to allow that")
        return None if addresses else Barred(502, f"there is no host {shown(host, 100)}")

    @guard.sealed(_refuse_connection)
    async def server_connect(self, data: ServerConnectionHookData) -> None:
        """Refuse a name that leads back to this proxy: each turn would open one more connection, without end.

        In team mode no name may lead into the proxy's own network, also where it has come to do so since it was asked
        about; so the connection goes to the very address that was looked at.
        """
        host, port = (data.server.address or ("", 0))[:2]
        is_ours, is_open = (
            port in self.listener(data.client).ports,
            not self._is_team or self._is_free_to_lead(host, port),
        )
        if data.server.error or (is_open and not is_ours):
            return
        addresses = await self._resolve(host, port)
        if is_ours and any(map(_is_here, addresses)):
            data.server.error = "lockpin: this destination is the proxy itself"
        elif not is_open and not (addresses and all(map(is_public, addresses))):
            data.server.error = "lockpin: this destination is not public"
        elif not is_open:
            data.server.address = (addresses[0], port)

    def _is_free_to_lead(self, host: str, port: int) -> bool:
        """Say whether a host may lead anywhere: a provider's, where its calls go instead, one listed by its name."""
        config = self._in_force.terms.config
        is_upstream = any((one.host, one.port) == (host, port) for one in config.upstreams.values())
        return is_upstream or self._providers.for_host(host) is not None or is_trusted(host, config.allow_hosts)

    @guard.sealed(_ignore)
    def client_disconnected(self, client: Client) -> None:
        """Forget a connection."""
        self._credentials.pop(client.id, None)


async def resolve(host: str, port: int) -> list[str]:
    """Resolve a name; none: there is no such host."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(address[0]) for *_, address in found]


def _addresses(server: ServerInstance[Any]) -> Sequence[tuple[str, int]]:
    """Give where a server listens, or is about to: its sockets take the first clients before it says so."""
    told, port = ctx.options, server.mode.listen_port(ctx.options.listen_port)
    if server.listen_addrs or not port:
        return [(address[0], address[1]) for address in server.listen_addrs]
    return [(server.mode.listen_host(told.listen_host), port)]


def _is_near(client: Client) -> bool:
    return _plain(client.peername[0]).is_loopback


def _is_here(address: str) -> bool:
    plain = _plain(address)
    return plain.is_loopback or plain.is_unspecified


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    found = ipaddress.ip_address(address.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found

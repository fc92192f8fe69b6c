"""Which hosts besides providers a proxy of a team leads to: those that are listed, or any public one, and nobody's own.

Who may use the proxy is not let into the network that it stands in. Pure; names are resolved by others.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from lockpin_core.addresses import canonical_host, host_pattern

_UNICAST = ipaddress.IPv6Network("2000::/3")  # all that is given out to the public network
_EMBEDDING = ipaddress.IPv6Network("64:ff9b::/96")  # IPv4 addresses as a translator between both shows them
_MAPPED, _6TO4 = ipaddress.IPv6Network("::ffff:0:0/96"), ipaddress.IPv6Network("2002::/16")
# In ranges of the public network, and yet a matter of the network that one stands in. Sources: IANA's registries of
# special-purpose addresses (protocol assignments with Teredo and port control, relays of 6to4, documentation), and
# Azure's platform address, read 2026-11.
_SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "2001::/23", "2001:db8::/32", "3fff::/20"),
    )
)
_ISATAP = (0x00005EFE, 0x02005EFE)  # before an IPv4 address in the last half: tunnels within a site (RFC 5214)


def is_listed(host: str, allowed: Sequence[str]) -> bool:
    """Say whether a host may be reached, as far as its name goes; where none is listed, every one may."""
    return not allowed or _fits(host, allowed)


def is_trusted(host: str, allowed: Iterable[str]) -> bool:
    """Say whether a host is listed by its whole name: then somebody meant it, and it may lead to a private address."""
    return _fits(host, [entry for entry in allowed if "*" not in entry])


def is_public(address: str) -> bool:
    """Say whether an address is one of the public network, whatever it is wrapped in.

    Of IPv6 only what is known to be given out is: no rule has to know every other form that leads back inside.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if any(found in network for network in _SPECIAL):
        return False
    if isinstance(found, ipaddress.IPv4Address):
        return found.is_global and not found.is_multicast
    inner = _inner(found)
    if inner is not None:
        return is_public(str(inner))
    return found in _UNICAST and found.is_global


def _inner(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Give the IPv4 address to which one that has it in itself leads; None: it has none."""
    number = int(address)
    is_last = address in _MAPPED or address in _EMBEDDING or (number >> 32) & 0xFFFFFFFF in _ISATAP
    if is_last:
        return ipaddress.IPv4Address(number & 0xFFFFFFFF)
    return ipaddress.IPv4Address((number >> 80) & 0xFFFFFFFF) if address in _6TO4 else None


def is_address(host: str) -> bool:
    """Say whether a host is written as an address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _fits(host: str, allowed: Iterable[str]) -> bool:
    entries = tuple(allowed)
    return bool(entries) and host_pattern(entries).fullmatch(canonical_host(host)) is not None

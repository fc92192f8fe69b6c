"""Which hosts besides providers a proxy of a team leads to: those that are listed, or any public one, and nobody's own.

Who may use the proxy is not let into the network that it stands in. Pure; names are resolved by others.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from lockpin_core.addresses import canonical_host, host_pattern

_EMBEDDING = ipaddress.IPv6Network("64:ff9b::/96")  # IPv4 addresses as a translator between both shows them


def is_listed(host: str, allowed: Sequence[str]) -> bool:
    """Say whether a host may be reached, as far as its name goes; where none is listed, every one may."""
    return not allowed or _fits(host, allowed)


def is_trusted(host: str, allowed: Iterable[str]) -> bool:
    """Say whether a host is listed by its whole name: then somebody meant it, and it may lead to a private address."""
    return _fits(host, [entry for entry in allowed if "*" not in entry])


def is_public(address: str) -> bool:
    """Say whether an address is one of the public network, whatever it is wrapped in."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo or (None, None))[1]
        if found in _EMBEDDING:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner)) and (found.ipv4_mapped is not None or found.is_global)
    return found.is_global and not found.is_multicast


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

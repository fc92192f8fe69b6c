"""The `oidc:` of the configuration: whose tokens stand for a key."""

from __future__ import annotations

from urllib.parse import urlsplit

from lockpin_core.config_values import section, text, wrong
from lockpin_core.config_yaml import Node
from lockpin_core.oidc import ClaimNames, Issuer

_KEYS = ("issuer", "audience", "claims")
_CLAIMS = ("user", "groups", "ring")
_NEAR = ("127.0.0.1", "::1", "localhost")


def read_oidc(node: Node) -> Issuer:
    """Read it. Raises ConfigError."""
    keys = section(node, _KEYS)
    claims, usual = keys.section("claims", _CLAIMS), ClaimNames()
    return Issuer(
        url=keys.need("issuer", _issuer, "the address of the identity provider is needed"),
        audience=keys.need("audience", text, "for whom its tokens are made, the client id as a rule, is needed"),
        claims=ClaimNames(
            user=claims.get("user", text, usual.user),
            groups=claims.get("groups", text, usual.groups),
            ring=claims.get("ring", text, usual.ring),
        ),
    )


def is_safe(address: str) -> bool:
    """Say whether nobody on the way can answer in the place of who is asked there."""
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    is_plain = host is not None and not parts.username and not parts.fragment and address.isprintable()
    return is_plain and (parts.scheme == "https" or (parts.scheme == "http" and host in _NEAR))


def _issuer(node: Node) -> str:
    """Read an issuer as it names itself in its tokens: every character counts, a slash at the end too."""
    address = text(node)
    if not is_safe(address) or urlsplit(address).query:
        raise wrong(node, "an address as tokens name it in iss, such as https://login.acme.com, is allowed")
    return address

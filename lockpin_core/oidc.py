"""Tokens of an identity provider that stand for a key: OpenID Connect's, signed, checked against its published keys.

Pure but for the library that checks signatures: keys are given, and so is the time. What a token says of its user is
taken from the claims that the configuration names, and from no other.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lockpin_core.errors import LockpinError
from lockpin_core.names import ALLOWED, canonical, canonical_user

if TYPE_CHECKING:  # an extra: most have no identity provider
    from jwt import PyJWK
    from jwt.types import Options

DISCOVERY = "/.well-known/openid-configuration"  # OpenID Connect Discovery 1.0, section 4
MAX_BYTES = 16 << 10  # of a token
LEEWAY = timedelta(seconds=30)  # of two clocks
# With a public key alone: whoever can check a token of these must not be able to make one.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_MOST_GROUPS = 1000


@dataclass(frozen=True, slots=True)
class ClaimNames:
    """Which claims of a token say who calls."""

    user: str = "email"
    groups: str = "groups"
    ring: str = "ring"


@dataclass(frozen=True, slots=True)
class Issuer:
    """The identity provider whose tokens are taken, and for whom they must be made."""

    url: str
    audience: str
    claims: ClaimNames = ClaimNames()


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom a token stands for; names are in their one form."""

    user: str
    groups: tuple[str, ...]  # sorted
    ring: str | None
    expires: datetime


class TokenError(LockpinError):
    """A token that is not taken; `is_over`: it was good once. The message says why and repeats nothing of it."""

    def __init__(self, words: str, *, is_over: bool = False) -> None:
        super().__init__(words)
        self.is_over = is_over


def is_token(text: str) -> bool:
    """Say whether a text has the form of a signed token."""
    return len(text) <= MAX_BYTES and text.startswith("ey") and _FORM.fullmatch(text) is not None


def is_for(token: str, issuer: Issuer) -> bool:
    """Say whether a text is a token that says of itself that it is for this; whether that is true, `read` says.

    Providers take tokens too, of other issuers or for other audiences.
    """
    told = _unchecked(token)
    audience = told.get("aud")
    is_audience = audience == issuer.audience or (isinstance(audience, list) and issuer.audience in audience)
    return is_audience and told.get("iss") == issuer.url


def claimed(token: str, issuer: Issuer) -> Caller:
    """Say whom a token that is for us says that it stands for. Nothing of it is checked, so it may let nobody in.

    Raises TokenError.
    """
    told = _unchecked(token)
    expires = _instant(told, "exp")
    if expires is None:
        raise TokenError("it does not say when it ends")
    return _caller(told, issuer.claims, expires)


def _unchecked(token: str) -> Mapping[str, object]:
    """Read what a token says, whoever made it; of what is no token, nothing."""
    if not is_token(token):
        return {}
    payload = token.split(".")[1]
    try:
        told = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def key_id(token: str) -> str | None:
    """Give the name of the key that a token says it was signed with. Raises TokenError."""
    import jwt

    try:
        name = jwt.get_unverified_header(token).get("kid")
    except jwt.PyJWTError:
        raise TokenError("it cannot be read") from None
    return name if isinstance(name, str) else None


def published_keys(told: Mapping[str, object]) -> Mapping[str | None, PyJWK]:
    """Read the keys that an identity provider publishes, by their names; those of other uses are left out.

    Raises TokenError where none is there that tokens could be checked with.
    """
    import jwt

    try:
        found = jwt.PyJWKSet.from_dict(dict(told)).keys
    except (jwt.PyJWTError, TypeError, ValueError, AttributeError):
        found = []
    keys = {key.key_id: key for key in found if key.public_key_use in (None, "sig") and key.key_type != "oct"}
    if not keys:
        raise TokenError("the identity provider publishes no key that tokens could be checked with")
    return keys


def read(token: str, keys: Mapping[str | None, PyJWK], issuer: Issuer, now: datetime) -> Caller:
    """Check a token, and say whom it stands for. Raises TokenError; KeyError where no such key is published."""
    import jwt

    name = key_id(token)
    key = next(iter(keys.values())) if name is None and len(keys) == 1 else keys[name]
    options: Options = {  # times by our own clock, below
        "require": ["exp", "iss", "aud"], "verify_exp": False, "verify_nbf": False, "verify_iat": False,
    }  # fmt: skip
    try:
        told = jwt.decode(
            token, key.key, algorithms=list(ALGORITHMS), audience=issuer.audience, issuer=issuer.url, options=options
        )
    except jwt.InvalidIssuerError:
        raise TokenError("another identity provider has made it") from None
    except jwt.InvalidAudienceError:
        raise TokenError("it was made for another audience") from None
    except jwt.MissingRequiredClaimError as error:
        raise TokenError(f"it has no claim {error.claim}") from None
    except (jwt.PyJWTError, TypeError, ValueError):
        raise TokenError("its signature is not right") from None
    expires = _times(told, now)
    return _caller(told, issuer.claims, expires)


def _times(told: Mapping[str, object], now: datetime) -> datetime:
    expires, begins = _instant(told, "exp"), _instant(told, "nbf")
    if expires is None:
        raise TokenError("it does not say when it ends")
    if now >= expires + LEEWAY:
        raise TokenError("it has expired", is_over=True)
    if begins is not None and now < begins - LEEWAY:
        raise TokenError("it is not good yet")
    return expires


def _instant(told: Mapping[str, object], claim: str) -> datetime | None:
    said = told.get(claim)
    if said is None:
        return None
    try:
        if isinstance(said, bool) or not isinstance(said, int | float):
            raise ValueError
        return datetime.fromtimestamp(said, UTC)
    except (ValueError, OverflowError, OSError):
        raise TokenError(f"its claim {claim} is no time") from None


def _caller(told: Mapping[str, object], claims: ClaimNames, expires: datetime) -> Caller:
    said = told.get(claims.user)
    user = canonical_user(said) if isinstance(said, str) else None
    if user is None:
        raise TokenError(f"its claim {claims.user} names no user")
    if claims.user == "email" and told.get("email_verified", True) not in (True, "true"):
        raise TokenError("its email was not verified by the identity provider")
    return Caller(user, _groups(told, claims.groups), _ring(told, claims.ring), expires)


def _groups(told: Mapping[str, object], claim: str) -> tuple[str, ...]:
    """Read groups; an entry that can be no name here is left out, as no budget can list it."""
    said = told.get(claim)
    listed = [] if said is None else [said] if isinstance(said, str) else said
    if not isinstance(listed, list) or len(listed) > _MOST_GROUPS:
        raise TokenError(f"its claim {claim} is no list of up to {_MOST_GROUPS} groups")
    names = {_name(group) for group in listed if isinstance(group, str)}
    return tuple(sorted(name for name in names if name is not None))


def _ring(told: Mapping[str, object], claim: str) -> str | None:
    """Read the ring. One that can be no name here is not left out: a budget for each ring would not count the call."""
    said = told.get(claim)
    if said is None or (isinstance(said, str) and said.strip() in ("", "/")):
        return None
    ring = _name(said) if isinstance(said, str) else None
    if ring is None:
        raise TokenError(f"its claim {claim} is no name that is allowed; {ALLOWED} are")
    return ring


def _name(said: str) -> str | None:
    """Give a name in its one form; Keycloak writes the path of a group, from the root on. None: it can be none."""
    return canonical(said.strip().removeprefix("/"))

"""Tokens of an identity provider in the place of keys, by the configuration in force; without one there are none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from lockpin_addons.http_client import HttpClient
from lockpin_addons.identity import IdentityError
from lockpin_addons.issuer import Fetch, IssuerUnavailable, TokenCheck
from lockpin_addons.terms import InForce
from lockpin_core import oidc
from lockpin_core.clock import Clock

PATIENCE_S = 5  # with an identity provider


class Tokens:
    """Says whom a token stands for."""

    def __init__(self, in_force: InForce, clock: Clock, fetch: Fetch | None = None) -> None:
        self._in_force, self._clock = in_force, clock
        self._fetch = fetch or _fetch_by(HttpClient())
        self._check: TokenCheck | None = None

    def is_ours(self, text: str) -> bool:
        """Say whether a text is a token that stands for a key here, as far as it says so of itself."""
        issuer = self._in_force.terms.config.oidc
        return issuer is not None and oidc.is_for(text, issuer)

    async def caller(self, token: str) -> oidc.Caller:
        """Check a token that is ours. Raises IdentityError."""
        issuer = self._in_force.terms.config.oidc
        assert issuer is not None, "a token was taken for ours where there are none"
        if self._check is None or self._check.issuer != issuer:
            self._check = TokenCheck(issuer, self._fetch, self._clock)
        try:
            return await self._check.caller(token)
        except oidc.TokenError as error:
            code = "key_expired" if error.is_over else "key_unknown"
            raise IdentityError(f"the token is not taken: {error}; get a new one", code) from None
        except IssuerUnavailable as error:
            raise IdentityError(
                f"{error}; nobody knows who calls, so the call was not sent", "keys_unavailable"
            ) from None


def _fetch_by(client: HttpClient) -> Callable[[str], Awaitable[bytes | None]]:
    async def fetch(url: str) -> bytes | None:
        return await client.fetch(url, patience_s=PATIENCE_S)

    return fetch

"""Checks tokens by the keys that the identity provider publishes; asks for those when they are needed.

A key that is published anew is found at the first token of it; one that was withdrawn is used no more within the hour.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lockpin_core import oidc
from lockpin_core.clock import Clock
from lockpin_core.config_oidc import is_safe
from lockpin_core.errors import LockpinError

if TYPE_CHECKING:
    from jwt import PyJWK

type Fetch = Callable[[str], Awaitable[bytes | None]]  # the body of a good reply; raises OSError

FRESH = timedelta(hours=1)  # keys are asked for anew
OLD = timedelta(hours=24)  # for so long they are used where nobody answers
PAUSE = timedelta(seconds=30)  # between two questions, whatever tokens name
CHECKED = timedelta(minutes=5)  # a token is not checked again
_MOST = 4096  # tokens that are known
NEEDS_JWT = "oidc needs PyJWT, which is not installed; install lockpin[oidc]"


class IssuerUnavailable(LockpinError):
    """The identity provider's keys are not known, so nobody can say who calls."""


class TokenCheck:
    """Says whom a token stands for."""

    def __init__(self, issuer: oidc.Issuer, fetch: Fetch, clock: Clock) -> None:
        self.issuer = issuer
        self._fetch, self._clock = fetch, clock
        self._keys: Mapping[str | None, PyJWK] = {}
        self._fetched: datetime | None = None  # when the keys came
        self._asked: datetime | None = None  # when they were asked for
        self._asking: asyncio.Task[None] | None = None
        self._fault = "it was not asked yet"
        self._checked: OrderedDict[bytes, tuple[oidc.Caller, datetime]] = OrderedDict()

    async def caller(self, token: str) -> oidc.Caller:
        """Check a token. Raises TokenError; IssuerUnavailable where there are no keys to check it with."""
        digest, now = hashlib.sha256(token.encode()).digest(), self._clock()
        known = self._checked.get(digest)
        if known is not None and timedelta(0) <= now - known[1] < CHECKED and now < known[0].expires:
            return known[0]
        if self._fetched is None or not timedelta(0) <= now - self._fetched < FRESH:
            await self._ask(now)
        if not self._keys:
            raise IssuerUnavailable(f"the keys of {self.issuer.url} cannot be had: {self._fault}")
        try:
            found = oidc.read(token, self._keys, self.issuer, now)
        except KeyError:
            await self._ask(now)
            found = self._read_again(token, now)
        self._checked[digest] = (found, now)
        if len(self._checked) > _MOST:
            self._checked.popitem(last=False)
        return found

    def _read_again(self, token: str, now: datetime) -> oidc.Caller:
        try:
            return oidc.read(token, self._keys, self.issuer, now)
        except KeyError:
            raise oidc.TokenError("it names a key that the identity provider does not publish") from None

    async def _ask(self, now: datetime) -> None:
        """Get the keys, all at once who need them; not again within some seconds, whatever comes of it."""
        if self._asking is None:
            if self._asked is not None and timedelta(0) <= now - self._asked < PAUSE:
                return
            self._asked = now
            self._asking = asyncio.create_task(self._get(now))
            self._asking.add_done_callback(self._answered)
        await asyncio.shield(self._asking)  # whoever leaves meanwhile

    def _answered(self, _asked: asyncio.Task[None]) -> None:
        self._asking = None

    async def _get(self, now: datetime) -> None:
        try:
            self._keys, self._fetched = await self._published(), now
        except (LockpinError, OSError, ValueError) as error:
            self._fault = str(error) if isinstance(error, LockpinError) else "it does not answer as it should"
            if self._fetched is not None and now - self._fetched >= OLD:
                self._keys = {}

    async def _published(self) -> Mapping[str | None, PyJWK]:
        try:
            await asyncio.to_thread(importlib.import_module, "jwt")  # slow work, for a thread
        except ImportError:
            raise IssuerUnavailable(NEEDS_JWT) from None
        about = await self._json(self.issuer.url.rstrip("/") + oidc.DISCOVERY)
        address = about.get("jwks_uri")
        if about.get("issuer") != self.issuer.url or not isinstance(address, str) or not is_safe(address):
            raise IssuerUnavailable("it does not say of itself what the configuration says, or not where its keys are")
        return oidc.published_keys(await self._json(address))

    async def _json(self, address: str) -> Mapping[str, object]:
        body = await self._fetch(address)
        told = None if body is None else json.loads(body)
        if not isinstance(told, dict):
            raise ValueError(address)
        return told

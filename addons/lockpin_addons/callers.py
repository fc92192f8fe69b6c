"""Who calls, in team mode: from the one key that a request presents to whom its record names, or why nobody is charged.

User, team, groups, ring, project and fixed tags come from the record alone, or from a token that an identity provider
has signed; what a request says of itself may only add. A client certificate stands for the key that was made for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from mitmproxy import http
from mitmproxy.certs import Cert
from mitmproxy.connection import Client

from lockpin_addons.credentials import presented, with_real_key
from lockpin_addons.identity import Credentials, IdentityError, refuse_too_many
from lockpin_addons.route import Bound
from lockpin_addons.tokens import Tokens
from lockpin_core.call import Payers
from lockpin_core.clock import utc_now
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.keys import KeyRecord, digest_of, is_secret
from lockpin_core.ledger.answers import answer_of
from lockpin_core.oidc import is_token

type Book = Callable[[bytes], Future[KeyRecord | None]]  # by the digest of a secret
type RealKeys = Callable[[str], Awaitable[str]]  # a provider's own key, by its name; raises IdentityError

_WAYS = (
    "give one as the password of the proxy's URL (http://TASK:KEY@HOST:PORT), as header X-Lockpin-Key, or, by a base "
    "URL, in place of the provider's key; a key begins with lp_, its id (k-…) is none"
)


@dataclass(frozen=True, slots=True)
class Caller:
    """Whom a key or a token stands for: what a call is charged to, whatever it says of itself."""

    user: str
    key: str | None = None  # its public id; a token has none
    team: str | None = None
    groups: tuple[str, ...] = ()
    ring: str | None = None
    project: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    ends: datetime | None = None  # until when it is good


@dataclass(frozen=True, slots=True)
class Found:
    """Who calls, and where the call goes now; `real` is the provider's own key, where it was put in.

    `again` asks anew about the same key, which may be over by then. Raises IdentityError.
    """

    caller: Caller
    bound: Bound
    again: Callable[[], Awaitable[Caller]] = field(repr=False)
    real: str | None = field(default=None, repr=False)


class Callers:
    """Finds who calls. `book` has the keys, `real_keys` what providers themselves take."""

    def __init__(self, book: Book, tokens: Tokens, real_keys: RealKeys) -> None:
        self._book, self._tokens, self._real_keys = book, tokens, real_keys

    async def find(
        self, headers: http.Headers, bound: Bound, said: Sequence[Credentials | None], client: Client
    ) -> Found:
        """Find whose key a request presents, and put the provider's own in its place where ours stands for that.

        Raises IdentityError; then nothing was changed.
        """
        found = presented(headers, bound, said, self._tokens.is_ours)
        again = partial(self.of, found.secret, client)
        caller = await again()
        if not found.in_slot or found.secret is None:
            return Found(caller, bound, again)
        real = await self._real_keys(bound.provider.name)
        return Found(caller, with_real_key(headers, bound, found.secret, real), again, real)

    async def of(self, secret: str | None, client: Client) -> Caller:
        """Say whom a secret stands for, a key's or a token; or, without one, the certificate that a client has shown.

        Raises IdentityError, also where the two name different callers.
        """
        shown = client.certificate_list[0] if client.certificate_list else None
        if shown is None:
            return await self._of_secret(secret)
        known = await _look_up(shown.fingerprint(), self._book)
        if secret is None:
            return _caller(_in_time(shown, known))
        caller = await self._of_secret(secret)
        if known is not None and known.id != caller.key:
            words = "the client certificate is another key's than the one that the call presents; one is allowed"
            raise IdentityError(words, "identity_conflict")
        return caller

    async def _of_secret(self, secret: str | None) -> Caller:
        if secret is not None and self._tokens.is_ours(secret):
            told = await self._tokens.caller(secret)
            return Caller(told.user, groups=told.groups, ring=told.ring, ends=told.expires)
        return _caller(await record_of(secret, self._book))


def _caller(record: KeyRecord) -> Caller:
    return Caller(
        record.user, record.id, record.team, record.groups, record.ring, record.project, record.tags, record.ends()
    )


def _in_time(shown: Cert, record: KeyRecord | None) -> KeyRecord:
    """Judge a certificate: the TLS below has seen that the client has its key, and nothing else."""
    if record is None or record.over == "revoked":
        words = "no key is known here that this client certificate stands for, or it was revoked; ask for one"
        raise IdentityError(words, "key_unknown")
    if not shown.notbefore <= utc_now() < shown.notafter:
        raise IdentityError("the client certificate has ended, or is not good yet; ask for a new one", "key_expired")
    return _good(record)


async def record_of(secret: str | None, book: Book) -> KeyRecord:
    """Find the record of a key's secret. Raises IdentityError where there is none, or it is good no more."""
    if secret is None:
        raise IdentityError(f"a call to a provider needs a Lockpin key here; {_WAYS}", "key_required")
    if is_token(secret):
        words = "this token is no Lockpin key, and no token of an issuer and an audience that are taken here"
        raise IdentityError(words, "key_unknown")
    if not is_secret(secret):
        words = "this is no whole Lockpin key: that is lp_ and 52 letters and figures; a key's id (k-…) is none"
        raise IdentityError(words, "key_unknown")
    record = await _look_up(digest_of(secret), book)
    if record is None or record.over == "revoked":
        raise IdentityError("this Lockpin key is not known here, or was revoked; ask for a new one", "key_unknown")
    return _good(record)


async def _look_up(digest: bytes, book: Book) -> KeyRecord | None:
    try:
        return await answer_of(book(digest))
    except LedgerUnavailable as error:
        words = f"the keys cannot be read: {error}; nobody knows who calls, so the call was not sent"
        raise IdentityError(words, "keys_unavailable") from None


def _good(record: KeyRecord) -> KeyRecord:
    if record.over is not None:
        what = "has expired" if record.over == "expired" else "has a new secret by now, and this one is over"
        raise IdentityError(f"the Lockpin key {record.id} {what}; ask for a new one", "key_expired")
    return record


def charged(payers: Payers, caller: Caller) -> Payers:
    """Put who calls in the place of what a request says of itself. Raises IdentityError where that contradicts."""
    if payers.project not in (None, caller.project):
        words = "header x-lockpin-project names another project than the key's; a project comes from the key alone"
        raise IdentityError(f"{words}; leave the header out", "identity_conflict")
    fixed = dict(caller.tags)
    for name, value in payers.tags:
        if fixed.setdefault(name, value) != value:
            words = f'header x-lockpin-tag gives the key\'s own tag "{name}" another value; leave it out'
            raise IdentityError(words, "identity_conflict")
    if payers.tags:
        refuse_too_many(fixed)
    return replace(
        payers, key=caller.key, user=caller.user, team=caller.team, groups=caller.groups, ring=caller.ring,
        project=caller.project, tags=tuple(sorted(fixed.items())),
    )  # fmt: skip

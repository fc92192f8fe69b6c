"""Keys of people and machines: whom one stands for, its secret, and when it is over. Pure; knows no ledger.

A secret is shown once, and nobody keeps it: what is stored is its SHA-256. A password needs a slow hash with a salt,
for people choose it and so it can be guessed; of 256 random bits there is nothing to guess, and a key is found by its
digest alone, with each call.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from lockpin_core.clock import NewId, base32, random_bytes
from lockpin_core.errors import CommandError
from lockpin_core.names import (
    ALLOWED,
    TAG_ALLOWED,
    TAGS_MAX,
    USER_ALLOWED,
    canonical,
    canonical_tag,
    canonical_user,
    shown,
    why_not,
)
from lockpin_core.secret_forms import NO_SECRET, PREFIX, holds_secret

_SECRET_BYTES = 32
_DIGITS = -(-8 * _SECRET_BYTES // 5)
_SECRET = re.compile(rf"{PREFIX}[0-9a-z]{{{_DIGITS}}}")

type RandomBytes = Callable[[int], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFacts:
    """Whom a key stands for: what its calls are charged to, whatever they say. Names are in their one form."""

    user: str
    team: str | None = None
    groups: tuple[str, ...] = ()  # sorted
    ring: str | None = None
    project: str | None = None
    tags: tuple[tuple[str, str], ...] = ()  # sorted
    name: str | None = None  # what it is for, in its maker's words; nothing goes by it


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord(KeyFacts):
    """A key as the ledger has it, at the ledger time at which it was read."""

    id: str  # public: rows, headers and commands name the key by it
    created: datetime
    expires: datetime | None = None
    revoked: datetime | None = None
    rotated: datetime | None = None  # when it last got another secret
    secret_until: datetime | None = None  # of the secret by which it was found: it was rotated out, and ends then
    over: str | None = None  # why it is good no more: "revoked", "expired" or "rotated" (that secret alone)

    def ends(self) -> datetime | None:
        """Say when this secret will be good no more, as far as that is known."""
        known = [when for when in (self.expires, self.secret_until) if when is not None]
        return min(known, default=None)


def over_at(
    now: datetime, *, expires: datetime | None, revoked: datetime | None, secret_until: datetime | None
) -> str | None:
    """Say why a key is good no more at an instant of ledger time; None: it is good."""
    if revoked is not None:
        return "revoked"
    if expires is not None and expires <= now:
        return "expired"
    return "rotated" if secret_until is not None and secret_until <= now else None


def new_secret(source: RandomBytes = random_bytes) -> str:
    """Make a secret of 256 random bits, fit for a URL, a password and a shell as it is."""
    return PREFIX + base32(int.from_bytes(source(_SECRET_BYTES)), _DIGITS)


def new_key_id(new_id: NewId) -> str:
    """Make the public id of a key, short enough to be typed; the end of an id is chance."""
    return f"k-{new_id()[-10:]}"


def is_secret(text: str) -> bool:
    """Say whether a text has the form of a secret of ours."""
    return _SECRET.fullmatch(text) is not None


def digest_of(secret: str) -> bytes:
    """Give what is stored of a secret: its SHA-256."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def facts_of(
    user: str,
    *,
    team: str | None = None,
    groups: Iterable[str] = (),
    ring: str | None = None,
    project: str | None = None,
    tags: Iterable[str] = (),
    name: str | None = None,
) -> KeyFacts:
    """Bring what somebody says of a key into its one form; a tag is "k=v". Raises CommandError."""
    found = canonical_user(user)
    if found is None:
        raise CommandError(why_not("user", user, USER_ALLOWED))
    return KeyFacts(
        user=found,
        team=_optional("team", team),
        groups=tuple(sorted({_name("group", group) for group in groups})),
        ring=_optional("ring", ring),
        project=_optional("project", project),
        tags=_tags(tags),
        name=_optional("name", name),
    )


def _optional(what: str, text: str | None) -> str | None:
    return None if text is None else _name(what, text)


def _name(what: str, text: str) -> str:
    found = canonical(text)
    if found is None:
        raise CommandError(why_not(what, text, ALLOWED))
    return found


def _tags(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    tags: dict[str, str] = {}
    for text in texts:
        tag = canonical_tag(text)
        if tag is None and holds_secret(text):
            raise CommandError(f"the tag {NO_SECRET}")
        if tag is None:
            raise CommandError(f'tag "{shown(text, 40)}" is not allowed; k=v is, {TAG_ALLOWED}')
        if tags.setdefault(*tag) != tag[1]:
            raise CommandError(f'tag "{tag[0]}" has two values; one is allowed')
    if len(tags) > TAGS_MAX:
        raise CommandError(f"a key may have up to {TAGS_MAX} tags, and these are {len(tags)}")
    return tuple(sorted(tags.items()))

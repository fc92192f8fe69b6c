"""The keys of a ledger in memory, in plain dicts."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from lockpin_core.errors import CommandError
from lockpin_core.keys import KeyFacts, KeyRecord, over_at
from lockpin_core.ledger.key_states import facts_columns
from lockpin_core.ledger.keybook import refuse_over, unknown


class MemoryKeys:
    """Keys by id, and by the digest of each secret that they have had."""

    def __init__(self) -> None:
        self._keys: dict[str, KeyRecord] = {}
        self._digests: dict[bytes, tuple[str, datetime | None]] = {}  # key, and the end of one that was replaced

    def by_digest(self, digest: bytes, now: datetime) -> KeyRecord | None:
        """See keybook."""
        if digest not in self._digests:
            return None
        key, until = self._digests[digest]
        return _as_of(self._keys[key], now, until)

    def every(self, now: datetime) -> list[KeyRecord]:
        """See keybook."""
        return sorted((_as_of(key, now) for key in self._keys.values()), key=lambda key: (key.created, key.id))

    def make(self, key: str, facts: KeyFacts, digest: bytes, *, lifetime: timedelta | None, now: datetime) -> KeyRecord:
        """See keybook."""
        if key in self._keys:
            raise CommandError(f"there is a key {key} already")
        self._refuse_used(digest)
        told = {name: getattr(facts, name) for name in facts_columns(facts)}
        self._keys[key] = KeyRecord(id=key, created=now, expires=_after(now, lifetime), **told)
        self._digests[digest] = (key, None)
        return _as_of(self._keys[key], now)

    def rotate(
        self, key: str, digest: bytes, *, grace: timedelta, lifetime: timedelta | None, now: datetime
    ) -> KeyRecord:
        """See keybook."""
        before = self._needed(key, now)
        refuse_over(before, is_renewed=lifetime is not None)
        self._refuse_used(digest)
        ends = now + grace
        for other, (whose, until) in self._digests.items():
            if whose == key and (until is None or until > ends):
                self._digests[other] = (key, ends)
        self._digests[digest] = (key, None)
        expires = before.expires if lifetime is None else _after(now, lifetime)
        self._keys[key] = replace(before, expires=expires, rotated=now)
        return _as_of(self._keys[key], now)

    def revoke(self, key: str, *, now: datetime) -> tuple[KeyRecord, bool]:
        """See keybook. Also says whether it was not revoked before."""
        before = self._needed(key, now)
        if before.revoked is None:
            self._keys[key] = replace(before, revoked=now)
        return _as_of(self._keys[key], now), before.revoked is None

    def _needed(self, key: str, now: datetime) -> KeyRecord:
        if key not in self._keys:
            raise unknown(key)
        return _as_of(self._keys[key], now)

    def _refuse_used(self, digest: bytes) -> None:
        if digest in self._digests:
            raise CommandError("this secret was a key's before")


def _as_of(key: KeyRecord, now: datetime, until: datetime | None = None) -> KeyRecord:
    over = over_at(now, expires=key.expires, revoked=key.revoked, secret_until=until)
    return replace(key, secret_until=until, over=over)


def _after(now: datetime, lifetime: timedelta | None) -> datetime | None:
    return None if lifetime is None else now + lifetime

"""The keys of a SQLite ledger: made, given another secret, taken back, and found by a secret's digest. Knows their SQL.

A change is made in its caller's transaction, with an event that tells everything but the digest.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from lockpin_core.budgets import Budget
from lockpin_core.clock import instant, micros, stamp
from lockpin_core.config_secrets import masked_keys
from lockpin_core.errors import CommandError, LedgerUnavailable
from lockpin_core.keys import KeyFacts, KeyRecord, over_at
from lockpin_core.ledger import schema
from lockpin_core.ledger.frame import Frame
from lockpin_core.ledger.key_states import COLUMNS, MADE, REVOKED, ROTATED, facts_columns, plain_facts
from lockpin_core.names import shown

_LAST_AT = "(SELECT at FROM rows ORDER BY id DESC LIMIT 1)"
_K = ", ".join(f'k."{name}"' for name in COLUMNS)
_BY_DIGEST = (
    f"SELECT {_K}, d.until, {_LAST_AT}, (SELECT user_version FROM pragma_user_version) "
    'FROM key_digests d JOIN keys k ON k.id = d."key" WHERE d.digest = ?'
)
_ONE = f"SELECT {_K}, NULL, {_LAST_AT} FROM keys k WHERE k.id = ?"
_ALL = f"SELECT {_K}, NULL, {_LAST_AT} FROM keys k ORDER BY k.created, k.id"
_MAKE = f"INSERT INTO keys ({', '.join(f'"{n}"' for n in COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
_ADD_DIGEST = 'INSERT INTO key_digests (digest, "key", since) VALUES (?, ?, ?)'
_END_DIGESTS = 'UPDATE key_digests SET until = ? WHERE "key" = ? AND (until IS NULL OR until > ?)'


def by_digest(connection: sqlite3.Connection, digest: bytes, now: datetime) -> KeyRecord | None:
    """Find the key of a secret, as it is now; None: no key has ever had it."""
    row = connection.execute(_BY_DIGEST, (digest,)).fetchone()
    if row is not None and row[-1] != schema.VERSION:
        raise LedgerUnavailable(f"the ledger was brought to version {row[-1]} by a newer Lockpin: restart this one")
    return None if row is None else _record(row, now)


def find(connection: sqlite3.Connection, key: str, now: datetime) -> KeyRecord | None:
    """Find a key by its id."""
    row = connection.execute(_ONE, (key,)).fetchone()
    return None if row is None else _record(row, now)


def every(connection: sqlite3.Connection, now: datetime) -> list[KeyRecord]:
    """List all keys, oldest first."""
    return [_record(row, now) for row in connection.execute(_ALL)]


def make(books: Frame, key: str, facts: KeyFacts, digest: bytes, *, lifetime: timedelta | None, who: str) -> KeyRecord:
    """Make a key. Raises CommandError where it is there."""
    expires = None if lifetime is None else books.at + lifetime // timedelta(microseconds=1)
    columns = facts_columns(facts)
    if find(books.connection, key, books.now) is not None:
        raise CommandError(f"there is a key {key} already; another id is allowed")
    books.connection.execute(_MAKE, (key, *columns.values(), books.at, expires, None, None))
    _add_digest(books, key, digest)
    told = {name: value for name, value in plain_facts(facts).items() if value}
    books.event(MADE, {"who": who, "key": key, **told, "expires": expires, "loosens": True})
    return _needed(books, key)


def rotate(
    books: Frame, key: str, digest: bytes, *, grace: timedelta, lifetime: timedelta | None, who: str
) -> KeyRecord:
    """Give a key another secret; those before end after the grace, or earlier where they did so already.

    `lifetime`: from now on, in place of what is left. Raises CommandError for a key that is over.
    """
    before = _needed(books, key)
    refuse_over(before, is_renewed=lifetime is not None)
    until = books.at + grace // timedelta(microseconds=1)
    expires = before.expires if lifetime is None else books.now + lifetime
    books.connection.execute(_END_DIGESTS, (until, key, until))
    _add_digest(books, key, digest)
    values = (None if expires is None else micros(expires), books.at, key)
    books.connection.execute("UPDATE keys SET expires = ?, rotated = ? WHERE id = ?", values)
    loosens = before.expires is not None and expires is not None and expires > before.expires
    books.event(ROTATED, {"who": who, "key": key, "until": until, "expires": values[0], "loosens": loosens})
    return _needed(books, key)


def revoke(books: Frame, key: str, *, who: str) -> KeyRecord:
    """End a key for good; one that is revoked already stays as it is."""
    if _needed(books, key).revoked is None:
        books.connection.execute("UPDATE keys SET revoked = ? WHERE id = ?", (books.at, key))
        books.event(REVOKED, {"who": who, "key": key, "loosens": False})
    return _needed(books, key)


def limit_of(key: str, limit: Budget) -> Budget:
    """Make the budget of one key alone, which has its id for a name."""
    return replace(limit, name=key, scope="key", keys=(key,))


def refuse_over(key: KeyRecord, *, is_renewed: bool) -> None:
    """Raise CommandError where a key is over, and another secret would be of no use."""
    if key.over == "revoked":
        assert key.revoked is not None
        raise CommandError(f"key {key.id} was revoked at {stamp(key.revoked)}; `lockpin key create` makes another")
    if key.over == "expired" and not is_renewed:
        assert key.expires is not None
        raise CommandError(f"key {key.id} expired at {stamp(key.expires)}; --expires 30d gives it more time")


def unknown(key: str) -> CommandError:
    """Make the error of an id that no key has. It may be a secret that was typed in its place."""
    return CommandError(f'no key "{shown(masked_keys(key), 40)}"; `lockpin key list` shows the ids')


def _add_digest(books: Frame, key: str, digest: bytes) -> None:
    if books.connection.execute("SELECT 1 FROM key_digests WHERE digest = ?", (digest,)).fetchone() is not None:
        raise CommandError("this secret was a key's before; a new one is needed")
    books.connection.execute(_ADD_DIGEST, (digest, key, books.at))


def _needed(books: Frame, key: str) -> KeyRecord:
    found = find(books.connection, key, books.now)
    if found is None:
        raise unknown(key)
    return found


def _record(row: tuple[Any, ...], now: datetime) -> KeyRecord:
    """Read a key's row; whether it is over is judged by ledger time, which never runs backwards."""
    key, name, user, team, groups, ring, project, tags = row[:8]
    expires, revoked, rotated, until = (None if at is None else instant(at) for at in row[9:13])
    now = now if row[13] is None else max(now, instant(row[13]))
    return KeyRecord(
        id=key, name=name, user=user, team=team, groups=tuple(json.loads(groups or "[]")), ring=ring, project=project,
        tags=tuple(sorted(json.loads(tags or "{}").items())), created=instant(row[8]), expires=expires,
        revoked=revoked, rotated=rotated, secret_until=until,
        over=over_at(now, expires=expires, revoked=revoked, secret_until=until),
    )  # fmt: skip

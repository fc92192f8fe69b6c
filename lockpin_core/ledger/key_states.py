"""How keys stand in tables and events, and what their rows make of them. Pure: knows no SQL and no digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lockpin_core.keys import KeyFacts
from lockpin_core.ledger.chain import encode

MADE, ROTATED, REVOKED = "key_created", "key_rotated", "key_revoked"  # the codes of their events
COLUMNS = (
    *("id", "name", "user", "team", "groups", "ring", "project", "tags"),
    *("created", "expires", "revoked", "rotated"),
)
CODES = (MADE, ROTATED, REVOKED)

type Content = Mapping[str, Any]


@dataclass(slots=True)
class _Key:
    """One key; of each of its secrets since when it was good, and until when, as far as that is known."""

    facts: tuple[object, ...]
    created: int
    expires: int | None
    revoked: int | None = None
    rotated: int | None = None
    secrets: list[tuple[int, int | None]] = field(default_factory=list)


class KeyStates:
    """All keys, after the events up to here."""

    def __init__(self) -> None:
        self._keys: dict[str, _Key] = {}

    def apply(self, code: str, data: Content, at: int) -> str | None:
        """Take the next event of a key; give what is wrong with it. Raises KeyError or TypeError like any other row."""
        name = data["key"]
        key = self._keys.get(name)
        if code == MADE:
            if key is not None:
                return f"key {name} was made before"
            self._keys[name] = _Key(told_columns(data), at, data["expires"], secrets=[(at, None)])
            return _compare_loosens(data, loosened=True)
        if key is None:
            return f"key {name} was not made before"
        if key.revoked is not None:
            return f"key {name} was revoked before"
        if code == REVOKED:
            key.revoked = at
            return _compare_loosens(data, loosened=False)
        return self._rotate(key, data, at)

    @staticmethod
    def _rotate(key: _Key, data: Content, at: int) -> str | None:
        until, before, after = data["until"], key.expires, data["expires"]
        if until < at:
            return "what it replaces would have ended before it"
        if before is not None and before <= at and after == before:
            return "its key had expired"
        key.secrets = [(since, until if end is None or end > until else end) for since, end in key.secrets]
        key.secrets.append((at, None))
        key.expires, key.rotated = after, at
        is_later = before is not None and after is not None and after > before
        return _compare_loosens(data, loosened=is_later or (before is not None and after is None))

    def rows(self) -> dict[str, tuple[object, ...]]:
        """Give each key's columns but its id, as the table has them."""
        return {
            name: (*key.facts, key.created, key.expires, key.revoked, key.rotated) for name, key in self._keys.items()
        }

    def secrets(self) -> dict[str, list[tuple[int, int | None]]]:
        """Give the lives of each key's secrets, in order."""
        return {name: sorted(key.secrets, key=_order) for name, key in self._keys.items()}

    def state(self) -> dict[str, object]:
        """Give everything as JSON-ready data, for a checkpoint."""
        return {
            name: [list(key.facts), key.created, key.expires, key.revoked, key.rotated, key.secrets]
            for name, key in self._keys.items()
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> KeyStates:
        """Go on from what `state` gave."""
        made = cls()
        for name, (facts, created, expires, revoked, rotated, secrets) in state.items():
            lives = [(since, until) for since, until in secrets]
            made._keys[name] = _Key(tuple(facts), created, expires, revoked, rotated, lives)
        return made


def facts_columns(facts: KeyFacts) -> dict[str, object]:
    """Give whom a key stands for, as the table and the rows of calls have it."""
    return {
        "name": facts.name, "user": facts.user, "team": facts.team,
        "groups": encode(facts.groups) if facts.groups else None, "ring": facts.ring, "project": facts.project,
        "tags": encode(dict(facts.tags)) if facts.tags else None,
    }  # fmt: skip


def plain_facts(facts: KeyFacts) -> dict[str, object]:
    """Give the same as an event has it, JSON-ready."""
    return {
        "name": facts.name, "user": facts.user, "team": facts.team, "groups": list(facts.groups),
        "ring": facts.ring, "project": facts.project, "tags": dict(facts.tags),
    }  # fmt: skip


def told_columns(data: Mapping[str, Any]) -> tuple[object, ...]:
    """Give the columns that an event's facts stand for."""
    groups, tags = data.get("groups"), data.get("tags")
    told = {**data, "groups": encode(groups) if groups else None, "tags": encode(tags) if tags else None}
    return tuple(told.get(name) for name in COLUMNS[1:8])


def _order(life: tuple[int, int | None]) -> tuple[int, bool, int]:
    return life[0], life[1] is None, life[1] or 0


def _compare_loosens(data: Content, *, loosened: bool) -> str | None:
    if data["loosens"] is loosened:
        return None
    return f"it {'loosens' if loosened else 'does not loosen'} what a key may do, and says otherwise"

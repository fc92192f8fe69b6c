"""The budgets in force, kept in the ledger so that all processes on one file hold by the same limits.

A proxy's configuration puts its budgets here when it starts and when it is read again; commands put theirs beside them.
Every hold is judged by what stands here. Knows the SQL of `budgets`; knows no accounts.
"""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lockpin_core.budgets import FILTERS, Budget
from lockpin_core.errors import LedgerError
from lockpin_core.ledger.chain import NoteEvent, encode
from lockpin_core.ledger.protocol import Rules
from lockpin_core.money import Money
from lockpin_core.windows import Window, shown

CONFIG, COMMAND = "config", "command"

_OF_PAYERS = ("users", "groups", "rings", "projects", "tags", "keys")  # filters that the first versions did not have

_READ = "SELECT name, definition, source, since, removed_at FROM budgets ORDER BY name"
_PUT = "REPLACE INTO budgets (name, definition, since, source, removed_at) VALUES (?, ?, ?, ?, NULL)"
_REMOVE = "UPDATE budgets SET removed_at = ? WHERE name = ?"


@dataclass(frozen=True, slots=True)
class Stored:
    """One definition as the ledger has it; `removed_at` None: in force."""

    budget: Budget
    text: str
    source: str
    since: int
    removed_at: int | None

    def without_limit(self) -> Budget:
        """Give the budget as its accounts are shown when it is in force no more."""
        return replace(self.budget, limit=None, limit_tokens=None, enforce=False)


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a budget; `before` None: nobody had defined it, `after` None: it was removed."""

    before: Stored | None
    after: Budget | None

    @property
    def is_back(self) -> bool:
        """Say whether it had been removed and is in force again."""
        return self.before is not None and self.before.removed_at is not None and self.after is not None


class Definitions:
    """Reads and writes definitions on one connection."""

    def __init__(self, connection: sqlite3.Connection, note_event: NoteEvent) -> None:
        self._connection, self._note_event = connection, note_event
        self._raw: list[Any] | None = None
        self._stored: dict[str, Stored] = {}
        self._read: dict[str, tuple[Any, Stored]] = {}  # each as it was read last: of many, few change
        self._rules: Rules | None = None

    def read_anew(self) -> None:
        """See what others may have changed; where they have not, everything stays the same object."""
        raw = self._connection.execute(_READ).fetchall()
        if raw != self._raw:
            self._raw = raw
            self._read = {row[0]: (row, self._understood(row)) for row in raw}
            self._stored = {name: stored for name, (_, stored) in self._read.items()}
            self._rules = None

    def _understood(self, row: Any) -> Stored:
        known = self._read.get(row[0])
        if known is not None and known[0] == row:
            return known[1]
        return Stored(budget_of(row[0], json.loads(row[1])), *row[1:])

    def forget(self) -> None:
        """Drop what is remembered, when a transaction did not happen."""
        self._raw = None

    def in_force(self, fallback: Budget) -> Rules:
        """Give the budgets in force; `fallback` is the tasks' own where none is stored yet."""
        if self._raw is None:
            self.read_anew()
        if self._rules is None:
            here = [stored.budget for stored in self._stored.values() if stored.removed_at is None]
            own = next((budget for budget in here if budget.own), None)
            rules = Rules(tuple(budget for budget in here if not budget.own), own or fallback)
            if own is None:
                return rules
            self._rules = rules
        return self._rules

    def all(self) -> Sequence[Stored]:
        """Give every definition, removed ones too, by name."""
        if self._raw is None:
            self.read_anew()
        return list(self._stored.values())

    def find(self, name: str) -> Stored | None:
        """Give one definition, also one that was removed."""
        if self._raw is None:
            self.read_anew()
        return self._stored.get(name)

    def own(self) -> Budget | None:
        """Give the tasks' own budget; None: no proxy has ever run here."""
        return next((stored.budget for stored in self.all() if stored.budget.own), None)

    def by_command(self) -> tuple[Budget, ...]:
        """Give the budgets in force that commands have made."""
        return tuple(s.budget for s in self.all() if s.source == COMMAND and s.removed_at is None)

    def apply(self, rules: Rules, at: int, origin: str = "") -> list[Change]:
        """Put a configuration's budgets in force, in place of those of the one before; give what changed.

        `origin` names it (file and flags) in the events of the changes; "": it is not known.
        Raises LedgerError where a command has made a budget of one of these names: neither may take it over unsaid.
        """
        wanted = (rules.task_default, *rules.budgets)
        by_command = {budget.name for budget in self.by_command()}
        for budget in wanted:
            if budget.name in by_command:
                raise LedgerError(
                    f'budget "{budget.name}" of the configuration was made by command too; give it another name, or '
                    f"take the command's away: lockpin budget rm {shlex.quote(budget.name)}"
                )
        by = {"origin": origin} if origin else {}
        changes = [change for budget in wanted if (change := self._put(budget, CONFIG, at, by)) is not None]
        names = {budget.name for budget in wanted}
        gone = [s for s in self.all() if s.source == CONFIG and s.removed_at is None and s.budget.name not in names]
        changes += [self._remove(stored, at, by) for stored in gone]
        if changes:
            self.read_anew()
        return changes

    def put(self, budget: Budget, source: str, at: int, *, who: str | None) -> Change | None:
        """Put one budget in force; None: it is already, just so."""
        change = self._put(budget, source, at, {"who": who} if who else {})
        if change is not None:
            self.read_anew()
        return change

    def _put(self, budget: Budget, source: str, at: int, by: Mapping[str, str]) -> Change | None:
        definition, before = definition_of(budget), self.find(budget.name)
        text = encode(definition)
        if before is not None and (before.text, before.source, before.removed_at) == (text, source, None):
            return None
        self._connection.execute(_PUT, (budget.name, text, at, source))
        was = before.budget if before is not None and before.removed_at is None else None
        told = {"name": budget.name, **definition, "source": source, "loosens": loosens(was, budget)}
        self._note_event("budget_defined", {**told, **by})
        return Change(before, budget)

    def remove(self, name: str, at: int, *, who: str | None) -> Change:
        """Take one that is in force out of it."""
        before = self.find(name)
        assert before is not None, "a budget that is not there is removed"
        change = self._remove(before, at, {"who": who} if who else {})
        self.read_anew()
        return change

    def _remove(self, before: Stored, at: int, by: Mapping[str, str]) -> Change:
        name = before.budget.name
        self._connection.execute(_REMOVE, (at, name))
        told = {"name": name, "loosens": loosens(before.budget, None)}
        self._note_event("budget_removed", {**told, **by})
        return Change(before, None)

    def conflict(self, rules: Rules) -> str | None:
        """Say in which budget a configuration and the one in force differ; None: in none."""
        wanted = {budget.name: budget for budget in (rules.task_default, *rules.budgets)}
        there = {s.budget.name: s.budget for s in self.all() if s.source == CONFIG and s.removed_at is None}
        for name in sorted({*wanted, *there}):
            ours, theirs = wanted.get(name), there.get(name)
            if ours is None or theirs is None:
                missing = "here" if ours is None else "there"
                return f'budget "{name}" is not {missing}'
            if ours != theirs:
                return f'budget "{name}": {"; ".join(differences(theirs, ours))}'
        return None


def loosens(before: Budget | None, after: Budget | None) -> bool:
    """Say whether a change may let through what was refused before."""
    if before is None or not before.enforce:
        return False
    if after is None or not after.enforce:
        return True
    same = ("scope", "window", "keys", *FILTERS)
    if any(getattr(before, name) != getattr(after, name) for name in same):
        return True
    limits = ((before.limit, after.limit), (before.limit_tokens, after.limit_tokens))
    return any(old is not None and (new is None or new > old) for old, new in limits)  # type: ignore[operator]


def differences(theirs: Budget, ours: Budget) -> Iterator[str]:
    """Name each field in which two definitions differ, with both values, in the configuration's words."""
    for (name, there), (_, here) in zip(_terms(theirs), _terms(ours), strict=True):
        if there != here:
            yield f"{name} is {there} there and {here} here"


def _terms(budget: Budget) -> list[tuple[str, str]]:
    limit = "none" if budget.limit is None else f"${budget.limit.exact()}"
    tokens = "none" if budget.limit_tokens is None else f"{budget.limit_tokens:,}"
    window = budget.window
    return [
        *(("limit_usd", limit), ("limit_tokens", tokens), ("action", "enforce" if budget.enforce else "warn")),
        *(("scope", budget.scope), ("window", shown(window)), ("timezone", window.zone)),
        *(("at", f"{window.at // 60:02}:{window.at % 60:02}"), ("anchor", str(window.anchor))),
        *((name, f"[{', '.join(getattr(budget, name))}]") for name in ("alert_at", *FILTERS, "keys")),
    ]


def definition_of(budget: Budget) -> dict[str, object]:
    """Write a budget's definition as JSON-ready data, but not what is usual of a window, nor empty filters."""
    window = budget.window
    rhythm = {"at": window.at or None, "anchor": window.anchor if window.anchor != 1 else None}
    rhythm["period_ms"] = window.period_ms or None
    filters = {name: list(getattr(budget, name)) for name in _OF_PAYERS if getattr(budget, name)}
    return {
        "scope": budget.scope, "window": window.kind, "zone": window.zone,
        "limit_nano": None if budget.limit is None else budget.limit.nano, "limit_tokens": budget.limit_tokens,
        "enforce": budget.enforce, "alert_at": list(budget.alert_at), "models": list(budget.models),
        "providers": list(budget.providers), "own": budget.own,
        **{name: value for name, value in rhythm.items() if value is not None}, **filters,
    }  # fmt: skip


def budget_of(name: str, stored: Mapping[str, Any]) -> Budget:
    """Read back what `definition_of` wrote."""
    limit = stored["limit_nano"]
    rhythm = (stored.get("at", 0), stored.get("anchor", 1), stored.get("period_ms", 0))
    return Budget(
        name, scope=stored["scope"], window=Window(stored["window"], stored["zone"], *rhythm),
        limit=None if limit is None else Money(limit), limit_tokens=stored["limit_tokens"],
        enforce=stored["enforce"], alert_at=tuple(stored["alert_at"]), models=tuple(stored["models"]),
        providers=tuple(stored["providers"]), own=stored["own"],
        **{name: tuple(stored[name]) for name in _OF_PAYERS if name in stored},
    )  # fmt: skip

"""Reads which budgets are in force: those on the ledger, and those of a configuration that no proxy has applied yet.

Says also where a configuration and what is in force differ. Changes nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from lockpin_core.budgets import FILTERS, Budget
from lockpin_core.config_budgets import KINDS_WITH
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger.definitions import COMMAND, CONFIG, Definitions, Stored
from lockpin_core.ledger.protocol import Rules
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.readers.figures import said
from lockpin_core.windows import Window, shown


@dataclass(frozen=True, slots=True)
class Rulebook:
    """The budgets in force, who made each, and what of a configuration is not in force."""

    rules: Rules
    sources: Mapping[str, str]  # by name: "config" or "command"
    notes: Mapping[str, str]  # by name: what of the configuration is not in force, or otherwise

    def find(self, name: str) -> Budget | None:
        """Give a budget in force."""
        return next((b for b in (*self.rules.budgets, self.rules.task_default) if b.name == name), None)

    def names(self) -> list[str]:
        """Name the budgets in force, the tasks' own last."""
        return [budget.name for budget in (*self.rules.budgets, self.rules.task_default)]

    def by_command(self) -> list[str]:
        """Name those that commands have made."""
        return [name for name in self.names() if self.sources.get(name) == COMMAND]


class RuleReader(LedgerReader):
    """A reader that also knows who made which budget."""

    def __enter__(self) -> Self:
        return self

    def rulebook(self, configured: Rules) -> Rulebook:
        """Put what is on the ledger and what a configuration says together, as the next hold will have it.

        Until a proxy has run here the configuration's budgets count as in force: the first one applies them.
        """
        stored = {s.budget.name: s for s in self._stored() if s.removed_at is None}
        has_run = any(s.budget.own for s in stored.values())
        wanted = (*configured.budgets, configured.task_default)
        there = [stored[b.name].budget if b.name in stored else b for b in wanted if b.name in stored or not has_run]
        others = [s.budget for s in stored.values() if s.budget.name not in {b.name for b in wanted}]
        in_force = [*there, *others]
        own = next((b for b in in_force if b.own), configured.task_default)
        sources = {b.name: stored[b.name].source if b.name in stored else CONFIG for b in in_force}
        rules = Rules(tuple(b for b in in_force if not b.own), own)
        return Rulebook(rules, sources, dict(_notes(stored, wanted)) if has_run else {})

    def _stored(self) -> Sequence[Stored]:
        try:
            return Definitions(self._connection, _no_event).all()
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"the ledger cannot be read: {error}") from error


def written(budget: Budget) -> list[tuple[str, str]]:
    """Write a budget's definition as key and value, in the configuration's words."""
    window = budget.window
    limit = "none" if budget.limit is None else said(budget.limit)
    tokens = "none" if budget.limit_tokens is None else f"{budget.limit_tokens:,}"
    return [
        *(("limit_usd", limit), ("limit_tokens", tokens), ("action", "enforce" if budget.enforce else "warn")),
        *(("scope", budget.scope), ("window", shown(window)), ("timezone", window.zone)),
        *(("at", f"{window.at // 60:02}:{window.at % 60:02}"), ("anchor", str(window.anchor))),
        *((name, f"[{', '.join(getattr(budget, name))}]") for name in ("alert_at", *FILTERS)),
    ]


def line(budget: Budget) -> str:
    """Write a budget's definition in one line: whose spend, when it starts anew, how much, of what."""
    limits = [] if budget.limit is None else [f"limit {said(budget.limit)}"]
    limits += [] if budget.limit_tokens is None else [f"{budget.limit_tokens:,} tokens"]
    only = [", ".join(names) for names in (budget.models, budget.providers) if names and names != ("*",)]
    only += [f"{name} {', '.join(names)}" for name in FILTERS[2:] if (names := getattr(budget, name))]
    return ", ".join([budget.scope, rhythm(budget.window), *limits, *(f"only {names}" for names in only)])


def rhythm(window: Window) -> str:
    """Write a window with all that is not usual of it: "day", "day at 09:30 Asia/Kolkata", "month from day 15"."""
    text = shown(window)
    if window.kind not in KINDS_WITH["at"]:
        return text
    text += f" from day {window.anchor}" if window.kind in KINDS_WITH["anchor"] and window.anchor != 1 else ""
    is_midnight_utc = window.at == 0 and window.zone == "UTC"
    return text if is_midnight_utc else f"{text} at {window.at // 60:02}:{window.at % 60:02} {window.zone}"


def _notes(stored: Mapping[str, Stored], wanted: Sequence[Budget]) -> Iterator[tuple[str, str]]:
    for budget in wanted:
        found, name = stored.get(budget.name), f'budget "{budget.name}"'
        if found is None:
            yield budget.name, f"{name} of the configuration is not in force yet: a proxy applies it as it starts"
        elif found.source == COMMAND:
            yield budget.name, f"{name} was made by command too; no proxy starts with the configuration's beside it"
        elif found.budget != budget:
            differences = "; ".join(_differences(found.budget, budget))
            yield budget.name, f"{name} is taken as a proxy last applied it: {differences}"
    names = {budget.name for budget in wanted}
    for gone in (name for name, found in stored.items() if found.source == CONFIG and name not in names):
        yield gone, f'budget "{gone}" is in force as a proxy last applied it, and not in the configuration any more'


def _differences(there: Budget, here: Budget) -> Iterator[str]:
    for (name, in_force), (_, configured) in zip(written(there), written(here), strict=True):
        if in_force != configured:
            yield f"{name} is {in_force}, in the configuration it is {configured}"


def _no_event(code: str, data: Mapping[str, object]) -> None:
    raise AssertionError("a reader writes nothing")

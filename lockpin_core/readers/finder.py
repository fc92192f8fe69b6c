"""Finds in a ledger what people name in part or by mistake: calls by the beginning of an id, models by a glob, payers.

The one reader with SQL of its own: these questions are a person's at the keyboard and no view's.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Self

from lockpin_core.clock import micros
from lockpin_core.ledger.reader import CallRow, LedgerReader

PREFIX_MIN = 4  # characters of an id that may stand for the whole
# In this form each half has its index.
_BEGUN = "SELECT call FROM rows WHERE call >= :first AND call < :last AND :task IN ('', task)"
_IDS = f"""
{_BEGUN} AND kind = 'hold'
UNION {_BEGUN} AND kind IN ('shrink', 'correction', 'refusal', 'uncapped') ORDER BY 1"""
_LAST = "\U0010ffff"  # sorts after every character of an id


class Finder(LedgerReader):
    """A reader that also knows what there is."""

    def __enter__(self) -> Self:
        return self

    def ids(self, beginning: str, *, task: str | None = None) -> list[str]:
        """List the calls, of a task, whose ids begin so; oldest first."""
        bounds = {"first": beginning, "last": beginning + _LAST, "task": task or ""}
        return [row[0] for row in self._rows(_IDS, bounds)]

    def calls_of(
        self, model: str, *, since: datetime | None = None, task: str | None = None, limit: int = -1
    ) -> list[CallRow]:
        """List calls as `calls` does; `model` is a name or a glob over the model asked for, sent or served."""
        self._connection.create_function("named", 4, _named, deterministic=True)
        conditions: list[tuple[str, object]] = [("named(?, f.model, f.asked_model, r.model_served)", model)]
        if since is not None:
            conditions.append(("f.at >= ?", micros(since)))
        if task is not None:
            conditions.append(("f.task = ?", task))
        return self._calls(conditions, limit)

    def tasks(self) -> list[str]:
        """List every task that was made or used, also by calls that were all refused."""
        return [
            row[0] for row in self._rows("SELECT name FROM tasks UNION SELECT task FROM rows ORDER BY 1", ()) if row[0]
        ]

    def machines(self) -> list[str]:
        """List the machines that have an account, in whatever window."""
        sql = "SELECT DISTINCT subject FROM accounts WHERE scope = 'machine' ORDER BY 1"
        return [row[0] for row in self._rows(sql, ())]


def near(name: str, known: Iterable[str], *, n: int = 5) -> str:
    """Name what may be meant instead: the nearest known ones, else the first; "" where there are none."""
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n, 0.7)
    shown = ", ".join(close or names[:n])
    more = "" if close or len(names) <= n else f" and {len(names) - n} more"
    return f"there {'is' if len(close or names) == 1 else 'are'} {shown}{more}" if names else ""


def _named(wanted: str, *names: str | None) -> bool:
    # A name may look like a glob, as "claude-opus-4-5[1m]" does.
    return any(name is not None and (name == wanted or fnmatchcase(name, wanted)) for name in names)

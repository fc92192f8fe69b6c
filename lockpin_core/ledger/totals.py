"""Sums of rows by quarter hour and by who called what: reports and new accounts read them instead of rows.

They change in the transaction of their rows. Whatever the number of calls, there are only as many sums as there were
quarter hours with traffic, times the tasks, models and clients of each.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from lockpin_core.ledger.shares import BETWEEN, raw

SLOT_US = 900 * 10**6  # a quarter hour
FACETS = ("task", "key", "user", "team", "groups", "ring", "project", "tags", "machine", "provider", "model", "client")
COUNTS = (
    *("calls", "refused", "uncapped", "estimated_calls", "unpriced_calls"),
    *("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "tokens"),
    *("spent_nano", "estimated_nano"),
)
_MODEL = FACETS.index("model")
_REMEMBERED = 4096  # facets whose numbers are kept in memory

_COLUMNS = ", ".join(f'"{name}"' for name in FACETS)
_FIND = f"SELECT id FROM facets WHERE ({_COLUMNS}) = ({', '.join('?' * len(FACETS))})"
_MAKE = f"INSERT INTO facets ({_COLUMNS}) VALUES ({', '.join('?' * len(FACETS))}) RETURNING id"
_ADD = (
    f"INSERT INTO totals (facet, slot, {', '.join(COUNTS)}) VALUES ({', '.join('?' * (len(COUNTS) + 2))}) "
    f"ON CONFLICT (facet, slot) DO UPDATE SET {', '.join(f'{name} = {name} + excluded.{name}' for name in COUNTS)}"
)
(
    _CALLS,
    _REFUSED,
    _UNCAPPED,
    _ESTIMATED,
    _UNPRICED,
    _INPUT,
    _READS,
    _WRITES,
    _OUTPUT,
    _TOKENS,
    _SPENT,
    _ESTIMATED_NANO,
) = range(len(COUNTS))
_COUNTED = (
    *((_INPUT, "input_tokens"), (_READS, "cache_read_tokens"), (_WRITES, "cache_write_tokens")),
    (_OUTPUT, "output_tokens"),
)

type Facet = tuple[str | None, ...]

_facet_of: Callable[[Mapping[str, Any]], Facet] = itemgetter(*FACETS)


class Totals:
    """Adds up one writer's rows on a connection; `flush` writes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._ids: dict[Facet, int] = {}
        self._sums: dict[tuple[Facet, int], list[int]] = {}

    def add(self, kind: str, at: int, row: Mapping[str, Any]) -> None:
        """Count a row of a call, which has all FACETS; one that ends it belongs to the quarter hour of its hold."""
        if kind == "event":
            return
        facet, slot = _facet_of(row), (row.get("held_at") or at) // SLOT_US
        sums = self._of(facet, slot)
        _count(sums, kind, row)
        for share in raw(row.get("data")) if kind in ("charge", "correction") else ():
            if share["model"] != row["model"]:
                _move(sums, self._of(_answered(facet, share["model"]), slot), share)

    def _of(self, facet: Facet, slot: int) -> list[int]:
        sums = self._sums.get((facet, slot))
        if sums is None:
            sums = self._sums[facet, slot] = [0] * len(COUNTS)
        return sums

    def flush(self) -> None:
        """Write what was added."""
        if self._sums:
            rows = [(self._id(facet), slot, *sums) for (facet, slot), sums in self._sums.items() if any(sums)]
            self._connection.executemany(_ADD, rows)
            self._sums.clear()

    def forget(self) -> None:
        """Drop everything, when the transaction did not happen."""
        self._ids.clear()
        self._sums.clear()

    def _id(self, facet: Facet) -> int:
        known = self._ids.get(facet)
        if known is None:
            if len(self._ids) >= _REMEMBERED:
                self._ids.clear()
            names = [name or "" for name in facet]
            found = self._connection.execute(_FIND, names).fetchone()
            known = self._ids[facet] = (found or self._connection.execute(_MAKE, names).fetchone())[0]
        return known


def _count(sums: list[int], kind: str, row: Mapping[str, Any]) -> None:
    if kind == "hold":
        sums[_CALLS] += 1
    elif kind in ("charge", "correction"):
        _count_spend(sums, kind, row)
    elif kind == "refusal":
        sums[_REFUSED] += row.get("count") or 1
    elif kind == "uncapped":
        sums[_UNCAPPED] += 1


def _count_spend(sums: list[int], kind: str, row: Mapping[str, Any]) -> None:
    usd: int = row["usd"]
    sums[_SPENT] += usd
    sums[_TOKENS] += row["tokens"]
    for place, name in _COUNTED:
        sums[place] += row.get(name) or 0
    if row.get("estimated"):
        sums[_ESTIMATED] += 1
        sums[_ESTIMATED_NANO] += usd
    if row.get("priced") == 0:
        sums[_UNPRICED] += 1
    if kind == "correction" and "estimate_nano" in (data := json.loads(str(row["data"]))):
        sums[_ESTIMATED] -= 1  # the estimate that stood there is none any more
        sums[_ESTIMATED_NANO] -= data["estimate_nano"]


def _move(called: list[int], answered: list[int], share: Mapping[str, Any]) -> None:
    """Count a share with the model that answered, and not with the one that was called."""
    for place, name in (*_COUNTED, (_TOKENS, "tokens"), (_SPENT, "usd")):
        answered[place] += share.get(name, 0)
        called[place] -= share.get(name, 0)


def _answered(facet: Facet, model: str) -> Facet:
    return (*facet[:_MODEL], f"{facet[_MODEL]}{BETWEEN}{model}", *facet[_MODEL + 1 :])


def count_rows(connection: sqlite3.Connection) -> None:
    """Add up all rows of a ledger that has no sums yet."""
    cursor = connection.execute("SELECT * FROM rows ORDER BY id")
    names = [column[0] for column in cursor.description]
    totals = Totals(connection)
    for number, values in enumerate(cursor, 1):
        row = dict(zip(names, values, strict=True))
        totals.add(row["kind"], row["at"], row)
        if number % 10_000 == 0:
            totals.flush()
    totals.flush()

"""Adds up a ledger's calls for reports: whole quarter hours from the sums, the ragged ends of a time from the rows.

A call belongs to the instant of its hold, whenever its charge or a correction came. Rows that were taken out are gone
from the ends: there a quarter hour counts as a whole. Knows the SQL of `totals` and `facets`.
"""

from __future__ import annotations

import functools
import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lockpin_core.errors import CommandError
from lockpin_core.ledger.shares import BETWEEN, MOVED
from lockpin_core.ledger.totals import COUNTS, SLOT_US
from lockpin_core.money import Money

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

GROUPS = ("task", "day", "model", "provider", "project", "client", "user", "team", "group", "ring", "key", "tag")
_SLOT_S = SLOT_US // 10**6
_FIRST, _LAST = -(2**62), 2**62
_NO_EDGE = (_LAST, _LAST)

_SUMS = ", ".join(f"sum({name}) AS {name}" for name in COUNTS)
_NAMES = ", ".join(COUNTS)
_WHOLE = "SELECT {key} AS key, {counts} FROM {source} WHERE slot >= :first AND slot < :last {of_task}"
_JOINED = "totals JOIN facets ON facets.id = totals.facet"
_GROUPED = "GROUP BY 1 ORDER BY spent_nano DESC, 1 LIMIT :limit"
_SPENT = "sum(spent_nano) AS spent_nano"
_DEAREST = f"{_WHOLE.format(key='facets.task', counts=_SPENT, source=_JOINED, of_task='')} {_GROUPED}"

# The partial indexes of `rows` are found by their own conditions, word by word; the plus leaves `rows_at` alone to
# find the holds.
_HELD_THEN = "edges CROSS JOIN rows held ON held.at >= edges.since AND held.at < edges.until AND +held.kind = 'hold'"
_EDGES = f"""
edges(since, until) AS (VALUES (:since_1, :until_1), (:since_2, :until_2)),
edge_rows AS (
  SELECT rows.* FROM edges CROSS JOIN rows ON rows.at >= edges.since AND rows.at < edges.until
    AND rows.kind IN ('hold', 'refusal', 'uncapped')
  UNION ALL SELECT rows.* FROM {_HELD_THEN} CROSS JOIN rows ON rows.call = held.call
    AND rows.kind IN ('charge', 'void')
  UNION ALL SELECT rows.* FROM {_HELD_THEN} CROSS JOIN rows ON rows.call = held.call
    AND rows.kind IN ('shrink', 'correction', 'refusal', 'uncapped') AND rows.kind = 'correction'
)"""
# Of each share of another model than was called: that one, this one, and what is kept of the share.
_MOVED = """
moved(answered, called, told, task) AS (
  SELECT json_extract(share.value, '$.model'), edge_rows.model, share.value, edge_rows.task
  FROM edge_rows CROSS JOIN json_each(edge_rows.data, '$.shares') share
  WHERE edge_rows.kind IN ('charge', 'correction') AND instr(edge_rows.data, '"shares"')
    AND json_extract(share.value, '$.model') <> edge_rows.model)"""
_WAS_ESTIMATE = "iif(kind = 'correction', json_extract(data, '$.estimate_nano'), NULL)"
_SPENDS = "kind IN ('charge', 'correction')"
# What a row adds to each of COUNTS, in the words of SQL; `totals.Totals` says the same.
_OF_ROW = {
    "calls": "kind = 'hold'",
    "refused": "iif(kind = 'refusal', coalesce(\"count\", 1), 0)",
    "uncapped": "kind = 'uncapped'",
    "estimated_calls": f"({_SPENDS} AND coalesce(estimated, 0)) - ({_WAS_ESTIMATE} IS NOT NULL)",
    "unpriced_calls": f"{_SPENDS} AND coalesce(priced, 1) = 0",
    **{
        name: f"iif({_SPENDS}, coalesce({name}, 0), 0)"
        for name in ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "tokens")
    },
    "spent_nano": f"iif({_SPENDS}, usd, 0)",
    "estimated_nano": f"iif({_SPENDS} AND coalesce(estimated, 0), usd, 0) - coalesce({_WAS_ESTIMATE}, 0)",
}
_ROW_COUNTS = ", ".join(f"{_OF_ROW[name]} AS {name}" for name in COUNTS)
_OF_EDGES = f"SELECT {{key}} AS key, {_ROW_COUNTS} FROM edge_rows WHERE true {{of_task}}"
_OF_SHARE = {name: f"coalesce(json_extract(told, '$.{name}'), 0)" for name in MOVED}
_OF_SHARE |= {"spent_nano": "json_extract(told, '$.usd')"}
_TAKEN, _GIVEN = (
    f"SELECT {key} AS key, {', '.join(f'{sign}{_OF_SHARE[name]}' if name in _OF_SHARE else '0' for name in COUNTS)} "
    "FROM moved WHERE true {of_task}"
    for key, sign in (("called", "-"), ("answered", ""))
)
_ANSWERED = f"substr(facets.model, instr(facets.model, '{BETWEEN}') + 1)"  # or what was called, where that answered


@dataclass(frozen=True, slots=True)
class Total:
    """Sums over the calls of one key. `key` None: the calls have none (no project, no tag)."""

    key: str | None
    calls: int
    refused: int
    uncapped: int
    estimated_calls: int
    input_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    output_tokens: int
    spent: Money
    estimated: Money
    unpriced_calls: int


@dataclass(frozen=True, slots=True)
class Period:
    """Which calls are added up: from `since` up to, not including, `until`, in microseconds; None: without an end."""

    since: int | None = None
    until: int | None = None
    task: str | None = None


@dataclass(frozen=True, slots=True)
class _Parts:
    """A time as whole quarter hours, `first` up to `last`, and what is ragged before and after."""

    first: int
    last: int
    edges: tuple[tuple[int, int], ...]


def totals(
    connection: sqlite3.Connection, by: str, period: Period, *, zone: str = "UTC", limit: int = -1
) -> list[Total]:
    """Add up by one of GROUPS, dearest first; a call with two tags counts for each, and so does one of two groups.

    Days are those of `zone`. A zone whose clocks stood apart by no whole quarter hour, as before about 1970, has its
    days begin up to a quarter hour off. `limit` -1: all keys. Raises CommandError for another group.
    """
    if by not in GROUPS:
        raise CommandError(f'a report by "{by}" is not known; {", ".join(GROUPS)} are')
    if by == "day":
        from zoneinfo import ZoneInfo  # slow to import

        return _folded(_sums(connection, "day", period, -1), functools.partial(_day_of, zone=ZoneInfo(zone)), limit)
    if by in _LISTED:
        column, keys_of = _LISTED[by]
        return _folded(_sums(connection, column, period, -1), keys_of, limit)
    return [_total(key or None, sums) for key, *sums in _sums(connection, by, period, limit)]


def count(connection: sqlite3.Connection, by: str, period: Period, *, zone: str = "UTC") -> int:
    """Count the keys that `totals` has."""
    if by == "day" or by in _LISTED:
        return len(totals(connection, by, period, zone=zone))
    parts = _parts(connection, period)
    (number,) = connection.execute(_counting(by, period, ragged=bool(parts.edges)), _values(parts, period)).fetchone()
    return int(number)


def total(connection: sqlite3.Connection, period: Period) -> Total:
    """Add up all calls of a time."""
    ((_, *sums),) = _sums(connection, "", period, -1)
    return _total(None, [number or 0 for number in sums])


def _sums(connection: sqlite3.Connection, by: str, period: Period, limit: int) -> list[Any]:
    parts = _parts(connection, period)
    values = _values(parts, period) | {"limit": limit}
    if by == "task" and limit >= 0 and period.task is None and not parts.edges:
        # Tasks may be as many as calls: the dearest are found first, and all their other sums for them alone.
        dearest = [key for key, _ in connection.execute(_DEAREST, values)]
        rows = connection.execute(
            _sql(by, of_task=False, ragged=False, among=True), values | {"keys": json.dumps(dearest)}
        )
        return rows.fetchall()
    return connection.execute(_sql(by, of_task=period.task is not None, ragged=bool(parts.edges)), values).fetchall()


def _values(parts: _Parts, period: Period) -> dict[str, object]:
    values: dict[str, object] = {"first": parts.first, "last": parts.last, "task": period.task}
    for number, (since, until) in enumerate((*parts.edges, _NO_EDGE, _NO_EDGE)[:2], 1):
        values |= {f"since_{number}": since, f"until_{number}": until}
    return values


def _counting(by: str, period: Period, *, ragged: bool) -> str:
    """Write the statement that counts keys."""
    of_task = "AND task = :task" if period.task is not None else ""
    whole = _WHOLE.format(key=_key(by), counts="1", source=_JOINED, of_task=of_task)
    if not ragged:
        return f"SELECT count(DISTINCT key) FROM ({whole})"
    rooms, edges = _of_edges(by, f"coalesce(\"{by}\", '')", of_task)
    return f"WITH {rooms} SELECT count(DISTINCT key) FROM ({whole} UNION ALL SELECT key, 1 FROM ({edges}))"


def _key(by: str) -> str:
    return {"": "''", "day": "totals.slot", "model": _ANSWERED}.get(by, f'facets."{by}"')


def _of_edges(by: str, key: str, of_task: str) -> tuple[str, str]:
    """Write what reads the rows of ragged ends: the tables that it needs, and the statement."""
    edges = _OF_EDGES.format(key=key, of_task=of_task)
    if by != "model":
        return _EDGES, edges
    moved = [each.format(of_task=of_task) for each in (_TAKEN, _GIVEN)]
    return f"{_EDGES}, {_MOVED}", " UNION ALL ".join([edges, *moved])


def _sql(by: str, *, of_task: bool, ragged: bool, among: bool = False) -> str:
    key = _key(by)
    source = "totals" if by in ("", "day") and not of_task else _JOINED
    and_task = "AND task = :task" if of_task else "AND task IN (SELECT value FROM json_each(:keys))" if among else ""
    grouped = _GROUPED if by else ""
    if not ragged:
        return f"{_WHOLE.format(key=key, counts=_SUMS, source=source, of_task=and_task)} {grouped}"
    edge_key = {"": "''", "day": f"coalesce(held_at, at) / {SLOT_US}"}.get(by, f"coalesce(\"{by}\", '')")
    whole = _WHOLE.format(key=key, counts=_NAMES, source=source, of_task=and_task)
    rooms, edges = _of_edges(by, edge_key, and_task)
    return f"WITH {rooms} SELECT key, {_SUMS} FROM ({whole} UNION ALL {edges}) {grouped}"


def _parts(connection: sqlite3.Connection, period: Period) -> _Parts:
    """Split a time. Where rows were taken out of a ragged quarter hour, it is taken as a whole."""
    since = _FIRST * SLOT_US if period.since is None else period.since
    until = _LAST * SLOT_US if period.until is None else period.until
    kept_from = _kept_from(connection)
    first, last = since // SLOT_US, until // SLOT_US  # the quarter hours of the two ends
    if until <= since:
        return _Parts(0, 0, ())
    if first == last:
        return _Parts(first, first + 1, ()) if first * SLOT_US < kept_from else _Parts(0, 0, ((since, until),))
    edges: list[tuple[int, int]] = []
    if since % SLOT_US and first * SLOT_US >= kept_from:
        first += 1
        edges.append((since, first * SLOT_US))
    if until % SLOT_US:
        if last * SLOT_US >= kept_from:
            edges.append((last * SLOT_US, until))
        else:
            last += 1
    return _Parts(first, last, tuple(edges))


def _kept_from(connection: sqlite3.Connection) -> int:
    """Give the instant from which on all rows are there."""
    if connection.execute("SELECT 1 FROM checkpoint").fetchone() is None:
        return _FIRST * SLOT_US
    (oldest,) = connection.execute("SELECT min(at) FROM rows").fetchone()
    return _LAST * SLOT_US if oldest is None else int(oldest)


def _folded(rows: Iterable[Sequence[Any]], keys: Callable[[object], Sequence[str | None]], limit: int) -> list[Total]:
    """Add up what falls under the same key, of which a row may have several."""
    sums: dict[str | None, list[int]] = {}
    for key, *numbers in rows:
        for name in keys(key):
            before = sums.get(name)
            sums[name] = numbers if before is None else [a + b for a, b in zip(before, numbers, strict=True)]
    found = [_total(key, numbers) for key, numbers in sums.items()]
    found.sort(key=lambda row: (-row.spent.nano, row.key or ""))
    return found if limit < 0 else found[:limit]


def _day_of(slot: object, zone: ZoneInfo) -> tuple[str]:
    assert isinstance(slot, int), "a quarter hour has a number"
    return (datetime.fromtimestamp(slot * _SLOT_S, zone).date().isoformat(),)


def _tags_of(tags: object) -> Sequence[str | None]:
    return [f"{key}={value}" for key, value in json.loads(str(tags) or "{}").items()] or [None]


def _groups_of(groups: object) -> Sequence[str | None]:
    return json.loads(str(groups) or "[]") or [None]


# What a call may have several of: the column, and what it says.
_LISTED: Mapping[str, tuple[str, Callable[[object], Sequence[str | None]]]] = {
    "tag": ("tags", _tags_of),
    "group": ("groups", _groups_of),
}


def _total(key: str | None, sums: Sequence[int]) -> Total:
    found = dict(zip(COUNTS, sums, strict=True))
    spent, estimated = Money(found.pop("spent_nano")), Money(found.pop("estimated_nano"))
    del found["tokens"]
    return Total(key=key, spent=spent, estimated=estimated, **found)

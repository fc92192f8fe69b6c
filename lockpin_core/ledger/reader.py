"""Reads a SQLite ledger for receipts, lists and reports, on a connection that cannot write. Knows SQL only."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from lockpin_core.budgets import Budget, Standing
from lockpin_core.call import Payers
from lockpin_core.clock import instant, micros
from lockpin_core.errors import CommandError, LedgerUnavailable
from lockpin_core.ledger.accounts import TaskTerms, own_budget, seat_of
from lockpin_core.ledger.balances import Balances
from lockpin_core.ledger.definitions import Definitions, budget_of
from lockpin_core.ledger.place import connect
from lockpin_core.ledger.protocol import Rules
from lockpin_core.ledger.tasks import Tasks
from lockpin_core.money import Money
from lockpin_core.usage import Unit, Usage

GROUPS = ("task", "day", "model", "provider", "project", "client", "user", "team", "key", "tag")
_DECISIONS = {"hold": "allowed", "refusal": "refused", "uncapped": "uncapped"}
_FIRST = -(2**63)

_CALLS = """
SELECT f.*, r.kind AS end_kind, r.at AS end_at, r.usd AS end_usd, r.tokens AS end_tokens, r.reason AS end_reason,
  r.usage AS end_usage, r.model_served AS end_model_served, r.tier AS end_tier, r.estimated AS end_estimated,
  r.failed AS end_failed, r.over_hold AS end_over_hold, r.priced AS end_priced, r.data AS end_data, r.hash AS end_hash,
  r.accounts AS end_accounts
FROM rows f LEFT JOIN rows r ON r.call = f.call AND r.kind IN ('charge', 'void') AND f.kind = 'hold'
WHERE f.kind IN ('hold', 'refusal', 'uncapped') {conditions}
ORDER BY f.id DESC LIMIT ?"""

# In this form each half has its index.
_IS_CALL = """f.id IN (
  WITH asked(call) AS (VALUES (?))
  SELECT id FROM rows, asked WHERE rows.call = asked.call AND kind = 'hold'
  UNION ALL SELECT id FROM rows, asked WHERE rows.call = asked.call
    AND kind IN ('shrink', 'correction', 'refusal', 'uncapped'))"""

# A resolution belongs to the instant of its hold, as its spend belongs to the window of it.
_REPORT = """
SELECT {key} AS key,
  sum(kind = 'hold') AS calls,
  sum(CASE WHEN kind = 'refusal' THEN coalesce("count", 1) ELSE 0 END) AS refused,
  sum(kind = 'uncapped') AS uncapped,
  sum(coalesce(estimated, 0)) AS estimated_calls,
  sum(coalesce(input_tokens, 0)) AS input_tokens,
  sum(coalesce(cache_read_tokens, 0)) AS cache_read_tokens,
  sum(coalesce(cache_write_tokens, 0)) AS cache_write_tokens,
  sum(coalesce(output_tokens, 0)) AS output_tokens,
  sum(CASE WHEN kind = 'charge' THEN usd ELSE 0 END) AS spent,
  sum(CASE WHEN kind = 'charge' AND estimated = 1 THEN usd ELSE 0 END) AS estimated_spent,
  sum(CASE WHEN kind = 'charge' AND priced = 0 THEN 1 ELSE 0 END) AS unpriced_calls
FROM {source}
WHERE rows.at >= :since AND coalesce(held_at, rows.at) >= :since AND coalesce(held_at, rows.at) < :until
  AND kind IN ('hold', 'charge', 'void', 'refusal', 'uncapped') {conditions}
GROUP BY 1 ORDER BY spent DESC, 1"""

_DAY = "date(coalesce(held_at, rows.at) / 1000000, 'unixepoch')"
_TAG = "tag.key || '=' || tag.value"
_TAGGED = "rows LEFT JOIN json_each(coalesce(rows.tags, '{}')) AS tag"


@dataclass(frozen=True, slots=True)
class Balanced:
    """An account right after a call's resolution."""

    budget: str
    scope: str
    subject: str
    spent: Money
    held: Money
    limit: Money | None
    spent_tokens: int
    held_tokens: int
    limit_tokens: int | None


@dataclass(frozen=True, slots=True)
class CallRow:
    """One call: its hold joined with its resolution, or the row of a refused or uncapped one."""

    id: str
    at: datetime
    decision: str  # "allowed" | "refused" | "uncapped"
    state: str  # "open" | "charged" | "void" | "none" (refused, uncapped)
    code: str | None
    payers: Payers
    provider: str
    host: str
    wire: str | None
    model: str
    asked_model: str | None
    model_served: str | None
    client: str
    path: str | None
    held: Money | None
    held_tokens: int | None
    charged: Money | None  # None: open, void, refused or uncapped
    tokens: int | None
    usage: Usage
    rates: Mapping[str, str]
    price_date: str | None
    tier: str | None
    billing: str | None
    output_limit: int | None
    limit_set: bool
    streamed: bool
    estimated: bool
    reason: str | None  # of an estimate or a void
    failed: bool
    over_hold: bool
    priced: bool
    waited_ms: int
    degrade: tuple[str, ...]
    count: int  # refusals that this row stands for
    detail: Mapping[str, Any]  # of a refused or uncapped call
    balances: tuple[Balanced, ...]  # after the resolution; empty before it
    ended_at: datetime | None
    hash: str  # of the call's last row


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
class OpenHold:
    """A call that has not ended."""

    call: str
    at: datetime
    task: str
    held: Money
    tokens: int
    background: bool


class LedgerReader:
    """Read-only views of one ledger. Raises LedgerError where there is none, later LedgerUnavailable."""

    def __init__(self, path: Path) -> None:
        self._connection = connect(path, read_only=True)
        self._connection.row_factory = sqlite3.Row

    def __enter__(self) -> LedgerReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def calls(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        task: str | None = None,
        model: str | None = None,
        limit: int = -1,
    ) -> list[CallRow]:
        """List calls by the instant of their decision, newest first; `limit` -1: all. `model`: asked for or served."""
        conditions: list[tuple[str, object]] = []
        if since is not None:
            conditions.append(("f.at >= ?", micros(since)))
        if until is not None:
            conditions.append(("f.at < ?", micros(until)))
        if task is not None:
            conditions.append(("f.task = ?", task))
        if model is not None:
            conditions.append(("? IN (f.model, f.asked_model, r.model_served)", model))
        return self._calls(conditions, limit)

    def call(self, call_id: str, *, task: str | None = None) -> CallRow | None:
        """Find one call by its id, or the newest as "last"; None: there is none."""
        conditions: list[tuple[str, object]] = [] if task is None else [("f.task = ?", task)]
        if call_id != "last":
            conditions.append((_IS_CALL, call_id))
        return next(iter(self._calls(conditions, 1)), None)

    def totals(
        self, by: str, *, since: datetime | None = None, until: datetime | None = None, task: str | None = None
    ) -> list[Total]:
        """Add up the calls of a time by one of GROUPS, dearest first; a call with two tags counts for each."""
        key, source = {"day": (_DAY, "rows"), "tag": (_TAG, _TAGGED)}.get(by, (f'"{by}"', "rows"))
        if by not in GROUPS:
            raise CommandError(f'a report by "{by}" is not known; {", ".join(GROUPS)} are')
        return self._totals(key, source, since, until, task)

    def total(self, *, since: datetime | None = None, until: datetime | None = None, task: str | None = None) -> Total:
        """Add up all calls of a time."""
        found = self._totals("NULL", "rows", since, until, task)
        return found[0] if found else Total(None, 0, 0, 0, 0, 0, 0, 0, 0, Money(0), Money(0), 0)

    def open_holds(self) -> list[OpenHold]:
        """List the calls that have not ended, oldest first."""
        rows = self._rows("SELECT call, at, task, usd, tokens, background FROM open_holds ORDER BY at, call", ())
        return [OpenHold(r[0], instant(r[1]), r[2], Money(r[3]), r[4], bool(r[5])) for r in rows]

    def budgets(self) -> list[Budget]:
        """List the definitions that calls were held under last, by name; the tasks' own among them."""
        rows = self._rows("SELECT name, definition FROM budgets WHERE removed_at IS NULL ORDER BY name", ())
        return [budget_of(name, json.loads(definition)) for name, definition in rows]

    def task_terms(self) -> dict[str, TaskTerms]:
        """Give what commands said of each task."""
        rows = self._rows('SELECT name, "window", limit_nano, limit_tokens, closed FROM tasks ORDER BY name', ())
        return {row[0]: TaskTerms(row[1], row[2], row[3], bool(row[4])) for row in rows}

    def standings(self, rules: Rules, payers: Payers | None = None, *, now: datetime) -> list[Standing]:
        """Show the current windows' accounts: a payer's, also at zero, or all with something spent or held."""
        with self._snapshot():
            last = self._connection.execute("SELECT at FROM rows ORDER BY id DESC LIMIT 1").fetchone()
            now = now if last is None else max(now, instant(last[0]))
            definitions = Definitions(self._connection, _no_event)
            balances = Balances(self._connection, _no_event, definitions)
            return standings_at(balances, Tasks(self._connection), rules, payers, now)

    def _totals(
        self, key: str, source: str, since: datetime | None, until: datetime | None, task: str | None
    ) -> list[Total]:
        bounds = {
            "since": _FIRST if since is None else micros(since),
            "until": 2**63 - 1 if until is None else micros(until),
            "task": task,
        }
        conditions = "" if task is None else "AND task = :task"
        rows = self._rows(_REPORT.format(key=key, source=source, conditions=conditions), bounds)
        return [_total(row) for row in rows]

    def _calls(self, conditions: list[tuple[str, object]], limit: int) -> list[CallRow]:
        sql = _CALLS.format(conditions=" ".join(f"AND {text}" for text, _ in conditions))
        return [_call_row(row) for row in self._rows(sql, (*(value for _, value in conditions), limit))]

    def _rows(self, sql: str, values: tuple[object, ...] | Mapping[str, object]) -> list[Any]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"the ledger cannot be read: {error}") from error

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN")
            yield
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"the ledger cannot be read: {error}") from error


def standings_at(
    balances: Balances, tasks: Tasks, rules: Rules, payers: Payers | None, now: datetime
) -> list[Standing]:
    """Show the accounts of the windows at an instant: a payer's, also at zero, or all with something spent or held."""
    budgets = (rules.task_default, *rules.budgets)
    balances.at = micros(now)
    if payers is not None:
        wanted = [(budget, budget.subject(payers), "") for budget in budgets]
    else:
        wanted = [(b, seat.subject, seat.account) for b in budgets for seat in balances.in_window(b, micros(now))]
    seats = []
    for budget, subject, account in wanted:
        task = tasks.get(subject) if budget.own else None
        limits = budget if task is None else own_budget(budget, task.terms)
        seat = seat_of(limits, subject, now, balances.spans)
        if account in ("", seat.account):
            seats.append(seat)
    return list(balances.peek(tuple(seats)))


def _no_event(code: str, data: Mapping[str, object]) -> None:
    raise AssertionError("a reader writes nothing")


def _call_row(row: sqlite3.Row) -> CallRow:
    end, data = row["end_kind"], json.loads(row["data"] or "{}")
    is_hold = row["kind"] == "hold"
    states = {"charge": "charged", "void": "void", None: "open" if is_hold else "none"}
    return CallRow(
        id=row["call"], at=instant(row["at"]), decision=_DECISIONS[row["kind"]], state=states[end], code=row["code"],
        payers=_payers(row), provider=row["provider"], host=row["host"], wire=row["wire"], model=row["model"],
        asked_model=row["asked_model"], model_served=row["end_model_served"], client=row["client"], path=row["path"],
        held=Money(row["usd"]) if is_hold else None, held_tokens=row["tokens"],
        charged=Money(row["end_usd"]) if end == "charge" else None, tokens=row["end_tokens"],
        usage={Unit(unit): count for unit, count in json.loads(row["end_usage"] or "{}").items()},
        rates=json.loads(row["rates"] or "{}"), price_date=row["price_date"], tier=row["end_tier"] or row["tier"],
        billing=row["billing"], output_limit=row["output_limit"], limit_set=bool(row["limit_set"]),
        streamed=bool(row["streamed"]), estimated=bool(row["end_estimated"]), reason=row["end_reason"],
        failed=bool(row["end_failed"]), over_hold=bool(row["end_over_hold"]), priced=row["end_priced"] != 0,
        waited_ms=row["waited_ms"] or 0, degrade=tuple(json.loads(row["degrade"] or "[]")), count=row["count"] or 1,
        detail={} if is_hold else data, balances=_balances(row["end_accounts"], row["end_data"]),
        ended_at=None if end is None else instant(row["end_at"]),
        hash=(row["hash"] if end is None else row["end_hash"]).hex(),
    )  # fmt: skip


def _total(row: sqlite3.Row) -> Total:
    return Total(
        key=row["key"], calls=row["calls"], refused=row["refused"], uncapped=row["uncapped"],
        estimated_calls=row["estimated_calls"], input_tokens=row["input_tokens"],
        cache_read_tokens=row["cache_read_tokens"], cache_write_tokens=row["cache_write_tokens"],
        output_tokens=row["output_tokens"], spent=Money(row["spent"]), estimated=Money(row["estimated_spent"]),
        unpriced_calls=row["unpriced_calls"],
    )  # fmt: skip


def _payers(row: sqlite3.Row) -> Payers:
    return Payers(
        task=row["task"], machine=row["machine"], key=row["key"], user=row["user"], team=row["team"],
        groups=tuple(json.loads(row["groups"] or "[]")), ring=row["ring"], project=row["project"],
        tags=tuple(json.loads(row["tags"] or "{}").items()),
    )  # fmt: skip


def _balances(accounts: str | None, data: str | None) -> tuple[Balanced, ...]:
    if accounts is None or data is None:
        return ()
    found = []
    for account, numbers in zip(json.loads(accounts), json.loads(data)["balances"], strict=True):
        spent, held, limit, spent_tokens, held_tokens, limit_tokens = numbers
        budget, scope, subject, _ = account.split("\x1f")
        amounts = (Money(spent), Money(held), None if limit is None else Money(limit))
        found.append(Balanced(budget, scope, subject, *amounts, spent_tokens, held_tokens, limit_tokens))
    return tuple(found)

"""Finds single calls in a ledger and puts their rows together: the hold, what ended it, what was corrected since.

First the numbers of the wanted rows are found, newest first and by indexes, then the rows of a few hundred calls at
once. Knows SQL only.
"""

from __future__ import annotations

import functools
import itertools
import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from lockpin_core.call import FIRST_ATTEMPT, Attempt, Payers, Share
from lockpin_core.clock import instant
from lockpin_core.ledger import columns
from lockpin_core.ledger.shares import read
from lockpin_core.money import Money
from lockpin_core.usage import Unit, Usage

DEFERRED = "deferred"  # reason of an open call whose exchange has ended and whose cost comes later

_DECISIONS = {"hold": "allowed", "refusal": "refused", "uncapped": "uncapped"}
_OWN_TASK_BUDGET = "task"  # what a refusal by a task's own budget leaves unsaid
_FIRST, _LAST = -(2**63), 2**63 - 1
_CHUNK = 400  # calls that are read at once

_IN_TIME = "at >= :since AND at < :until"
_NEWEST = f"SELECT at, id FROM rows WHERE kind IN ('hold', 'refusal', 'uncapped') AND {_IN_TIME} {{only}}"
# Each of the three has its index in this form, and they are merged.
_NEWEST_OF_TASK = " UNION ALL ".join(
    f"SELECT at, id FROM rows WHERE task = :task AND kind = '{kind}' AND {_IN_TIME} {{only}}" for kind in _DECISIONS
)
_ORDER = "ORDER BY at DESC, id DESC LIMIT :limit"
# The partial indexes of `rows` are found by their own conditions, word by word.
_RESOLVES = "kind IN ('charge', 'void')"
_OTHER = "kind IN ('shrink', 'correction', 'refusal', 'uncapped')"
_SERVED = (
    f"coalesce((SELECT s.model_served FROM rows s WHERE s.call = rows.call AND s.{_OTHER} AND s.kind = 'correction' "
    f"AND s.model_served IS NOT NULL ORDER BY s.id DESC LIMIT 1), "
    f"(SELECT s.model_served FROM rows s WHERE s.call = rows.call AND s.{_RESOLVES}))"
)
_OF_SHARE = (
    f"EXISTS (SELECT 1 FROM rows s, json_each(s.data, '$.shares') share WHERE s.call = rows.call AND s.{_RESOLVES} "
    "AND instr(s.data, '\"shares\"') AND named(:model, json_extract(share.value, '$.model')))"
)
_IN_PLACE = (  # of a model that the client asked for, behind its provider's name
    "instr(data, '\"instead_of\"') AND named(:model, "
    "substr(json_extract(data, '$.instead_of'), instr(json_extract(data, '$.instead_of'), '/') + 1))"
)
_OF_MODEL = (
    "AND (named(:model, model) OR named(:model, asked_model) "
    f"OR (kind = 'hold' AND (named(:model, {_SERVED}) OR {_OF_SHARE} OR {_IN_PLACE})))"
)
_OF_PAYER = {
    "group": 'AND EXISTS (SELECT 1 FROM json_each(rows."groups") each WHERE each.value = :subject)',
    "tag": "AND EXISTS (SELECT 1 FROM json_each(rows.tags) each WHERE each.key || '=' || each.value = :subject)",
    "org": "",
}
_OF_CALL = f"""
SELECT max(id) FROM (
  SELECT id, task FROM rows WHERE call = :call AND kind = 'hold'
  UNION ALL SELECT id, task FROM rows WHERE call = :call AND {_OTHER} AND kind IN ('refusal', 'uncapped')
) WHERE :task IS NULL OR task = :task"""

_CALLS = f"""
SELECT f.*, r.kind AS end_kind, r.at AS end_at, r.usd AS end_usd, r.tokens AS end_tokens, r.reason AS end_reason,
  r.usage AS end_usage, r.model_served AS end_model_served, r.tier AS end_tier, r.estimated AS end_estimated,
  r.failed AS end_failed, r.over_hold AS end_over_hold, r.priced AS end_priced, r.data AS end_data, r.hash AS end_hash,
  r.accounts AS end_accounts
FROM rows f LEFT JOIN rows r ON r.call = f.call AND r.{_RESOLVES} AND f.kind = 'hold'
WHERE f.id IN (SELECT value FROM json_each(?))"""
_LATER = f"""
SELECT call, kind, at, code, usd, tokens, usage, model_served, reason, data, hash FROM rows
WHERE call IN (SELECT value FROM json_each(?)) AND {_OTHER} AND kind IN ('shrink', 'correction') ORDER BY id"""
_DRIFT = """
SELECT json_extract(data, '$.call'), json_extract(data, '$.kind') FROM rows
WHERE kind = 'event' AND code = 'drift' AND json_extract(data, '$.call') IN (SELECT value FROM json_each(?))
ORDER BY id"""
_DEFERRED = "SELECT call FROM open_holds WHERE background = 1 AND call IN (SELECT value FROM json_each(?))"

_BEGUN = "SELECT call FROM rows WHERE call >= :first AND call < :last AND :task IN ('', task)"
_IDS = f"{_BEGUN} AND kind = 'hold' UNION {_BEGUN} AND {_OTHER} AND kind IN ('refusal', 'uncapped') ORDER BY 1"
_AFTER_ALL = "\U0010ffff"  # sorts after every character of an id


@dataclass(frozen=True, slots=True)
class Balanced:
    """An account right after a call's resolution, or when the call was refused."""

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
class Correction:
    """A difference that was booked after the call was resolved."""

    at: datetime
    amount: Money  # more than before, or less
    code: str  # "late_usage" | "corrected"
    reason: str | None
    who: str | None  # None: it was no person


@dataclass(frozen=True, slots=True)
class CallRow:
    """One call: its hold joined with what became of it, or the row of a refused or uncapped one.

    What it was charged, its tokens and its usage are those of now, corrections included.
    """

    id: str
    at: datetime  # of the decision: the hold, the refusal
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
    held: Money | None  # at the last: as much less than at first as the hold was shrunken by
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
    reason: str | None  # of an estimate, also one that was corrected since, or a void; DEFERRED of an open call
    failed: bool
    over_hold: bool
    priced: bool
    waited_ms: int
    degrade: tuple[str, ...]
    count: int  # refusals that this row stands for
    detail: Mapping[str, Any]  # of a refused or uncapped call
    balances: tuple[Balanced, ...]  # after the resolution, or those that stood in a refused call's way
    ended_at: datetime | None
    hash: str  # of the call's last row
    corrections: tuple[Correction, ...] = ()  # why its cost is another than was charged first, oldest first
    held_output: int | None = None  # of the tokens held, those of the reply; None: its row does not say
    has_rounds: bool = False  # rounds of the provider's own tools are in the hold
    was_estimated: bool = False  # what was booked before a person corrected it is an estimate
    shares: tuple[Share, ...] = ()  # of what was charged for its usage, before a person corrected it
    requests: int = 1  # that it brings, each of which is held by itself
    attempt: Attempt = FIRST_ATTEMPT
    instead_of: str | None = None  # provider/model that was asked for, where another one served
    drift: tuple[str, ...] = ()  # in what it departs from its task's first calls


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which calls; `model` is a name or a glob over the model asked for, sent or served; `limit` -1: all.

    `payer` is a scope of budgets and a subject of it, such as ("user", "ann").
    """

    since: int | None = None  # microseconds
    until: int | None = None
    task: str | None = None
    model: str | None = None
    limit: int = -1
    payer: tuple[str, str] | None = None


def calls(connection: sqlite3.Connection, wanted: Wanted) -> Iterator[CallRow]:
    """List calls by the instant of their decision, newest first. To be read inside one transaction."""
    sql = _NEWEST if wanted.task is None else _NEWEST_OF_TASK
    if wanted.model is not None:
        connection.create_function("named", 2, functools.lru_cache(4096)(_named), deterministic=True)
    scope, subject = wanted.payer or ("org", "")
    only = _OF_PAYER.get(scope, f'AND "{scope}" = :subject') + (" " if wanted.model is None else f" {_OF_MODEL}")
    sql = f"{sql.format(only=only)} {_ORDER}"
    values = {
        "since": _FIRST if wanted.since is None else wanted.since,
        "until": _LAST if wanted.until is None else wanted.until,
        "task": wanted.task, "model": wanted.model, "limit": wanted.limit, "subject": subject,
    }  # fmt: skip
    found = connection.cursor().execute(sql, values)
    for rows in itertools.batched(found, _CHUNK):
        yield from _read(connection, [row["id"] for row in rows])


def call(connection: sqlite3.Connection, call_id: str, *, task: str | None = None) -> CallRow | None:
    """Find one call by its id, or the newest as "last"; None: there is none."""
    if call_id == "last":
        return next(calls(connection, Wanted(task=task, limit=1)), None)
    (number,) = connection.execute(_OF_CALL, {"call": call_id, "task": task}).fetchone()
    return None if number is None else next(_read(connection, [number]))


def ids(connection: sqlite3.Connection, beginning: str, *, task: str | None = None) -> list[str]:
    """List the calls, of a task, whose ids begin so; oldest first."""
    bounds = {"first": beginning, "last": beginning + _AFTER_ALL, "task": task or ""}
    return [row[0] for row in connection.execute(_IDS, bounds)]


def _read(connection: sqlite3.Connection, numbers: Sequence[int]) -> Iterator[CallRow]:
    """Put calls together by the numbers of their first rows, in that order."""
    rows = {row["id"]: row for row in connection.execute(_CALLS, (json.dumps(numbers),))}
    held = [row["call"] for row in rows.values() if row["kind"] == "hold"]
    is_open = [row["call"] for row in rows.values() if row["end_kind"] is None and row["kind"] == "hold"]
    later: dict[str, list[sqlite3.Row]] = defaultdict(list)
    for row in connection.execute(_LATER, (json.dumps(held),)) if held else ():
        later[row["call"]].append(row)
    deferred = {row[0] for row in connection.execute(_DEFERRED, (json.dumps(is_open),))} if is_open else set()
    drift: dict[str, tuple[str, ...]] = defaultdict(tuple)
    for name, kind in connection.execute(_DRIFT, (json.dumps(held),)) if held else ():
        drift[name] += (kind,)
    for number in numbers:
        row = rows[number]
        found = later.get(row["call"], ()) if row["kind"] == "hold" else ()
        shrinks, corrections = ([one for one in found if one["kind"] == kind] for kind in ("shrink", "correction"))
        ending = _Ending.of(row, shrinks, corrections, is_deferred=row["call"] in deferred)
        yield _call_row(row, shrinks, ending, drift[row["call"]])


@dataclass(frozen=True, slots=True)
class _Ending:
    """What became of a call by now."""

    state: str
    charged: Money | None
    tokens: int | None
    usage: str
    model_served: str | None
    estimated: bool
    reason: str | None
    hash: bytes
    corrections: tuple[Correction, ...]
    was_estimated: bool
    shares: tuple[Share, ...]

    @classmethod
    def of(
        cls, row: sqlite3.Row, shrinks: Sequence[sqlite3.Row], corrections: Sequence[sqlite3.Row], *, is_deferred: bool
    ) -> _Ending:
        """Read it off the first row, joined with the resolution, and those that came between and after."""
        end, last = row["end_kind"], corrections[-1] if corrections else None
        told = next((c for c in reversed(corrections) if c["usage"] is not None), None)  # usage that came late
        is_guess = bool(row["end_estimated"]) and not any("estimate_nano" in json.loads(c["data"]) for c in corrections)
        state = "charged" if end == "charge" or last is not None else "void"
        if end is None:
            state = "open" if row["kind"] == "hold" else "none"
        reason = row["end_reason"] if last is None or (end == "charge" and told is None) else None
        charged = Money(row["end_usd"] + sum(c["usd"] for c in corrections)) if state == "charged" else None
        tokens = row["end_tokens"] if last is None else row["end_tokens"] + sum(c["tokens"] for c in corrections)
        return cls(
            state, charged, tokens,
            (row["end_usage"] if told is None else told["usage"]) or "{}",
            row["end_model_served"] if told is None else told["model_served"], is_guess,
            DEFERRED if is_deferred else reason,
            last["hash"] if last is not None else (shrinks or [row])[-1]["hash"] if end is None else row["end_hash"],
            tuple(map(_correction, corrections)), bool(row["end_estimated"]) and told is None,
            read(row["end_data"] if told is None else told["data"]),
        )  # fmt: skip


def _correction(row: sqlite3.Row) -> Correction:
    told = json.loads(row["data"] or "{}")
    reason = row["reason"] or told.get("reason")
    return Correction(instant(row["at"]), Money(row["usd"]), row["code"], reason, told.get("who"))


def _call_row(row: sqlite3.Row, shrinks: Sequence[sqlite3.Row], ending: _Ending, drift: tuple[str, ...]) -> CallRow:
    is_hold, data = row["kind"] == "hold", json.loads(row["data"] or "{}")
    balances = _balances(row["end_accounts"], row["end_data"]) if is_hold else _in_the_way(data, row["task"])
    most = data.get("ceiling", {}) if is_hold else {}
    return CallRow(
        id=row["call"], at=_decided(row, {} if is_hold else data),
        decision=_DECISIONS[row["kind"]], state=ending.state, code=row["code"],
        payers=payers_of(row), provider=row["provider"], host=row["host"], wire=row["wire"], model=row["model"],
        asked_model=row["asked_model"], model_served=ending.model_served, client=row["client"], path=row["path"],
        held=Money(row["usd"] - sum(one["usd"] for one in shrinks)) if is_hold else None,
        held_tokens=row["tokens"] - sum(one["tokens"] for one in shrinks) if is_hold else row["tokens"],
        charged=ending.charged, tokens=ending.tokens,
        usage={Unit(unit): count for unit, count in json.loads(ending.usage).items()},
        rates=json.loads(row["rates"] or "{}"), price_date=row["price_date"], tier=row["end_tier"] or row["tier"],
        billing=row["billing"], output_limit=row["output_limit"], limit_set=bool(row["limit_set"]),
        streamed=bool(row["streamed"]), estimated=ending.estimated, reason=ending.reason,
        failed=bool(row["end_failed"]), over_hold=bool(row["end_over_hold"]), priced=row["end_priced"] != 0,
        waited_ms=row["waited_ms"] or 0, degrade=tuple(json.loads(row["degrade"] or "[]")), count=row["count"] or 1,
        detail={} if is_hold else data, balances=balances,
        ended_at=None if row["end_at"] is None else instant(row["end_at"]),
        hash=ending.hash.hex(), corrections=ending.corrections, was_estimated=ending.was_estimated,
        held_output=row["tokens"] - most["prompt"] - most.get("others", 0) if "prompt" in most else None,
        has_rounds="refills" in most,
        shares=ending.shares, requests=most.get("requests", 1),
        attempt=Attempt(**data["attempt"]) if is_hold and "attempt" in data else FIRST_ATTEMPT,
        instead_of=data.get("instead_of") if is_hold else None, drift=drift,
    )  # fmt: skip


def _decided(row: sqlite3.Row, detail: Mapping[str, Any]) -> datetime:
    """Give the instant of a decision: a refusal was answered before its row was written."""
    return datetime.fromisoformat(detail["at"]) if "at" in detail else instant(row["at"])


def payers_of(row: sqlite3.Row) -> Payers:
    """Read who pays off a row."""
    return columns.payers_of(*(row[name] for name in columns.PAYER_NAMES))


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


def _in_the_way(detail: Mapping[str, Any], task: str) -> tuple[Balanced, ...]:
    """Give the accounts of a refused call, as its receipt did; of a row that does not keep them those that it names.

    One whose limit is in tokens alone has no dollars to tell there.
    """
    if "budgets" in detail:
        return tuple(map(_of_receipt, detail["budgets"]))
    found = []
    for figures in detail.get("violations") or [detail]:
        if "budget_usd" in figures and "spent_usd" in figures:
            balance = Balanced(
                budget=figures.get("limit", _OWN_TASK_BUDGET), scope=figures.get("scope", "task"),
                subject=figures.get("subject", task), spent=Money.parse(figures["spent_usd"]),
                held=Money.parse(figures["in_flight_usd"]), limit=Money.parse(figures["budget_usd"]),
                spent_tokens=figures.get("spent_tokens", 0), held_tokens=figures.get("in_flight_tokens", 0),
                limit_tokens=figures.get("budget_tokens"),
            )  # fmt: skip
            found.append(balance)
    return tuple(found)


def _of_receipt(told: Mapping[str, Any]) -> Balanced:
    limit = None if told["limit_usd"] is None else Money.parse(told["limit_usd"])
    amounts = (Money.parse(told["spent_usd"]), Money.parse(told["held_usd"]), limit)
    tokens = (told.get("spent_tokens", 0), told.get("held_tokens", 0), told.get("limit_tokens"))
    return Balanced(told["name"], "", told["subject"], *amounts, *tokens)


def _named(wanted: str, name: str | None) -> bool:
    # A name may look like a glob, as "claude-opus-4-5[1m]" does.
    return name is not None and (name == wanted or fnmatchcase(name, wanted))

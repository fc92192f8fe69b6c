"""Takes old rows out of a SQLite ledger, a slice at a time, while proxies run on it.

Each slice is one transaction: the rows go, and the state of everything at the last of them takes their place, from
which `verify` begins. So a process that is killed leaves a ledger that is right. What follows from rows stays: totals,
accounts, tasks, the ends of chains.

Three things would be read from old rows later. What a rolling window may count and the holds that are open end the cut.
What a lifetime budget that is away would count on its return is counted at once. At the end tasks that were stopped by
then, and that nobody has used since, go on.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from lockpin_core.budgets import SCOPES, Budget, owner_of, subjects_in
from lockpin_core.clock import Clock, NewId, instant, micros
from lockpin_core.errors import CommandError, LedgerUnavailable
from lockpin_core.ledger import unused, upstream
from lockpin_core.ledger.accounts import own_budget, users_of
from lockpin_core.ledger.books import Books
from lockpin_core.ledger.chain import encode
from lockpin_core.ledger.columns import PAYER_NAMES, payers_of
from lockpin_core.ledger.compare import TakenOut, digest_of
from lockpin_core.ledger.expected import Wrong
from lockpin_core.ledger.place import connect, open_ledger
from lockpin_core.ledger.replay import Replay
from lockpin_core.ledger.verify import verify
from lockpin_core.ledger.whose import WHO_NAMES, is_of, is_on, not_on
from lockpin_core.refusals import stamp
from lockpin_core.windows import MAX_PERIOD_MS, STEPS

SLICE = 2000  # rows that go in one transaction
KEPT_US = MAX_PERIOD_MS * 1000 * (STEPS + 2) // STEPS  # the longest rolling window, with the step that a spend may stay
KEPT_DAYS = -(-KEPT_US // (24 * 3600 * 10**6))

_LAST = "SELECT id, at FROM rows ORDER BY id DESC LIMIT 1"
_FIRST_AT = "SELECT id FROM rows WHERE at >= ? ORDER BY at, id LIMIT 1"
_FIRST_OPEN = (
    "SELECT h.id, h.call, h.at FROM open_holds o JOIN rows h ON h.call = o.call AND h.kind = 'hold' "
    "ORDER BY h.id LIMIT 1"
)
_BEGIN = "SELECT rows_to, state FROM checkpoint"
_PRUNED = "SELECT rows_to, json_extract(state, '$.at') FROM checkpoint"
_SLICE = "SELECT * FROM rows WHERE id > ? AND id <= ? ORDER BY id"
_TAKE_OUT = "DELETE FROM rows WHERE id > ? AND id <= ?"
_MARK = "REPLACE INTO checkpoint (id, rows_to, state) VALUES (1, ?, ?)"
_LIFETIME = (
    "SELECT id, budget, scope, subject, counted_row FROM accounts WHERE window_start IS NULL AND period_ms IS NULL"
)
_CORRECTED = (
    "SELECT usd, tokens FROM rows WHERE call = ? AND kind IN ('shrink', 'correction', 'refusal', 'uncapped') "
    f"AND kind = 'correction' AND {not_on('accounts')}"
)
_COUNT = (
    "UPDATE accounts SET spent_nano = spent_nano + ?, spent_tokens = spent_tokens + ?, counted_row = ? WHERE id = ?"
)

type Progress = Callable[[int, int], None]
"""Told how many rows were taken out, and of how many."""
type Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """Which rows would go: those after `rows_from` up to `rows_to`, the last of them of the instant `last_at`.

    `kept` says why some rows from before the wanted instant stay; "" where none do.
    """

    rows_from: int
    rows_to: int
    last_at: datetime | None
    kept: str

    @property
    def count(self) -> int:
        """Give how many rows would go."""
        return self.rows_to - self.rows_from


@dataclass(frozen=True, slots=True)
class Pruned:
    """Up to which row and which instant rows were taken out before."""

    rows_to: int
    last_at: datetime


def pruned(ledger: Path) -> Pruned | None:
    """Say what was taken out of a ledger; None: nothing."""
    with contextlib.closing(connect(ledger, read_only=True)) as connection, _unavailable("read"):
        found = connection.execute(_PRUNED).fetchone()
        return None if found is None else Pruned(found[0], instant(found[1]))


def plan(ledger: Path, before: datetime) -> Plan:
    """Find the rows from before an instant that may go."""
    with contextlib.closing(connect(ledger, read_only=True)) as connection, _unavailable("read"):
        connection.execute("BEGIN")
        begin = connection.execute(_PRUNED).fetchone()
        rows_from = 0 if begin is None else begin[0]
        last = connection.execute(_LAST).fetchone()
        if last is None:
            return Plan(rows_from, rows_from, None, "")
        rows_to, kept = _cut(connection, micros(before), last)
        if rows_to <= rows_from and not kept:
            (oldest,) = connection.execute("SELECT min(at) FROM rows").fetchone()
            kept = f"the oldest one there is of {stamp(instant(oldest))}"
        if rows_to <= rows_from:
            return Plan(rows_from, rows_from, None, kept)
        (last_at,) = connection.execute("SELECT at FROM rows WHERE id = ?", (rows_to,)).fetchone()
        return Plan(rows_from, rows_to, instant(last_at), kept)


def _cut(connection: sqlite3.Connection, before: int, last: tuple[int, int]) -> tuple[int, str]:
    """Give the last row that may go, and why it is not the one that was wanted."""
    rows_to, kept = _up_to(connection, before, last), ""
    spared = _up_to(connection, last[1] - KEPT_US, last)
    if spared < rows_to:
        since = stamp(instant(last[1] - KEPT_US))
        rows = f"rows of the {KEPT_DAYS} days before the newest one, from {since} on, stay"
        rows_to, kept = spared, f"{rows}: rolling windows are made of them"
    held = connection.execute(_FIRST_OPEN).fetchone()
    if held is not None and held[0] <= rows_to:
        rows_to = held[0] - 1
        kept = f"rows from row {held[0]} on stay: call {held[1]} is open since {stamp(instant(held[2]))}"
    return rows_to, kept


def _up_to(connection: sqlite3.Connection, at: int, last: tuple[int, int]) -> int:
    """Give the last row before an instant. The newest never goes: row numbers and ledger time go on from it."""
    found = connection.execute(_FIRST_AT, (at,)).fetchone()
    return last[0] - 1 if found is None else int(found[0]) - 1


def prune(
    ledger: Path, wanted: Plan, *, clock: Clock, new_id: NewId, who: str, progress: Progress | None = None
) -> int:
    """Take the rows of a plan out; give their number.

    Raises CommandError, with nothing taken out, where the ledger is not right: its rows are the evidence.
    """
    verdict = verify(ledger)
    if verdict.wrong is not None:
        raise CommandError(f"{ledger} is wrong, so nothing is taken out: {verdict.wrong.words}")
    opened = contextlib.closing(open_ledger(ledger, durability="full", new_id=new_id))
    with opened as connection, _unavailable("written"):
        return _Pruning(connection, wanted, clock, Books(connection, new_id()), who).run(progress)


class _Pruning:
    """One run. A slice is read and replayed before its transaction, since rows never change."""

    def __init__(self, connection: sqlite3.Connection, wanted: Plan, clock: Clock, books: Books, who: str) -> None:
        self._connection, self._wanted, self._clock = connection, wanted, clock
        self._books, self._who = books, who
        found = connection.execute(_BEGIN).fetchone()
        self._replay = Replay() if found is None else Replay.of(json.loads(found[1]))
        self._check_begin()
        self._sums = TakenOut(connection)

    def run(self, progress: Progress | None) -> int:
        """Go through all slices."""
        taken, total = 0, self._wanted.count
        while self._replay.row < self._wanted.rows_to:
            rows_from = self._replay.row
            rows = self._read(rows_from, min(rows_from + SLICE, self._wanted.rows_to))
            self._sums.add(rows_from, rows[-1]["id"])
            state = encode(self._replay.state())
            self._take_out(rows_from, rows, state, is_first=not taken)
            taken += len(rows)
            if progress is not None:
                progress(taken, total)
        # Every row that went is older than that.
        upstream.forget_old(self._connection, self._books.at - upstream.KEPT_US)
        if taken:
            unused.let_go(self._connection, self._transaction, self._replay.row, self._replay.at, who=self._who)
        return taken

    def _check_begin(self) -> None:
        if self._replay.row != self._wanted.rows_from:
            raise CommandError("rows were taken out meanwhile by another `lockpin ledger prune`; run it again")

    def _read(self, rows_from: int, rows_to: int) -> list[Row]:
        cursor = self._connection.execute(_SLICE, (rows_from, rows_to))
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, values, strict=True)) for values in cursor]
        try:
            for row in rows:
                self._replay.apply(row)
        except Wrong as wrong:
            raise CommandError(f"the ledger is wrong, so it is left as it is: {wrong}") from wrong
        return rows

    def _take_out(self, rows_from: int, rows: Sequence[Row], state: str, *, is_first: bool) -> None:
        rows_to = rows[-1]["id"]
        with self._transaction():
            found = self._connection.execute("SELECT rows_to FROM checkpoint").fetchone()
            if (0 if found is None else found[0]) != rows_from:
                raise CommandError("another `lockpin ledger prune` runs; this one ends, and nothing is lost")
            if is_first:
                self._books.event("prune_begun", {"who": self._who, "rows_to": self._wanted.rows_to})
            self._count_away(rows)
            self._connection.execute(_TAKE_OUT, (rows_from, rows_to))
            self._connection.execute(_MARK, (rows_to, state))
            told = {"state_sha256": digest_of(state), "totals_sha256": self._sums.digest()}
            self._books.event("rows_taken_out", {"rows_to": rows_to, **told})

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Books]:
        """Begin one, and commit it unless there is an error."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._books.begin(self._clock())
            yield self._books
            self._books.flush()
            self._connection.execute("COMMIT")
        except (sqlite3.Error, CommandError):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _count_away(self, rows: Sequence[Row]) -> None:
        """Let lifetime accounts that are not in force count what they would find in these rows on their return."""
        away = list(self._away())
        if not away:
            return
        ended = _by_subject(rows)
        for account, budget, subject, counted_row in away:
            listed = encode(account)
            missed = [
                row
                for row in ended[budget.scope, subject]
                if row["id"] > counted_row
                and not is_on(row["accounts"], listed)
                and is_of(budget, subject, *(row[name] for name in WHO_NAMES))
            ]
            if missed:
                self._count(account, missed, counted_row, rows[-1]["id"])

    def _away(self) -> Iterator[tuple[str, Budget, str, int]]:
        for account, name, scope, subject, counted_row in self._connection.execute(_LIFETIME).fetchall():
            stored = self._books.definitions.find(name)
            if stored is None:
                continue
            budget = stored.budget
            now = own_budget(budget, self._books.terms(subject)) if budget.own else budget
            its = replace(now, users=users_of(owner_of(account))) if budget.own else now
            is_there = (now.window.kind, now.scope) == ("lifetime", scope) and now.lists(subject) and its == now
            if stored.removed_at is not None or not is_there:
                yield account, _as_back(its, scope, subject), subject, counted_row

    def _count(self, account: str, missed: Sequence[Row], counted_row: int, rows_to: int) -> None:
        amounts = [(row["usd"], row["tokens"]) for row in missed]
        for row in missed:  # what was corrected of these calls, wherever its row is: it counts with its call alone
            amounts += self._connection.execute(_CORRECTED, (row["call"], encode(account))).fetchall()
        usd, tokens = (sum(column) for column in zip(*amounts, strict=True))
        self._connection.execute(_COUNT, (usd, tokens, rows_to, account))
        told = {"spent_nano": usd, "held_nano": 0, "spent_tokens": tokens, "held_tokens": 0}
        told_of = {"account": account, "calls": [], "pruned": True, "rows_from": counted_row, "rows_to": rows_to}
        self._books.event("account_caught_up", told_of | told)


def _as_back(budget: Budget, scope: str, subject: str) -> Budget:
    """Give a budget as one that has an account for this subject again."""
    match scope:
        case "group":
            return replace(budget, scope=scope, groups=(subject,))
        case "tag":
            return replace(budget, scope=scope, tags=(subject,))
    return replace(budget, scope=scope)


def _by_subject(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """Sort calls that ended by whom they may count for."""
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row["kind"] in ("charge", "void"):
            payers = payers_of(*(row[name] for name in PAYER_NAMES))
            for scope in SCOPES:
                for subject in subjects_in(scope, payers):
                    found[scope, subject].append(row)
    return found


@contextlib.contextmanager
def _unavailable(what: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise LedgerUnavailable(f"the ledger cannot be {what}: {error}") from error

"""The ledger's operations inside an open SQLite transaction: SQL and the rules of holding and settling.

Knows no threads, no commits and no files. Every operation happens at the transaction's instant: the later of the wall
clock and the last row, so that ledger time never runs backwards.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from lockpin_core.budgets import Budget, Standing, violations
from lockpin_core.call import Call, Charge, Payers, Refusal, Void
from lockpin_core.clock import instant, micros
from lockpin_core.errors import LedgerError, LedgerUnavailable
from lockpin_core.ledger import schema
from lockpin_core.ledger.accounts import Seat, TaskTerms, own_budget, seats_of
from lockpin_core.ledger.backlog import Backlog, OpenHold
from lockpin_core.ledger.balances import Balances
from lockpin_core.ledger.chain import Chain, Head, encode
from lockpin_core.ledger.columns import (
    FACT_NAMES,
    account_list,
    charge_columns,
    fact_columns,
    hold_columns,
    note_columns,
    plain,
)
from lockpin_core.ledger.corrections import EXPIRED, Corrections
from lockpin_core.ledger.definitions import Change, Definitions
from lockpin_core.ledger.protocol import CallNote, Closed, Held, Resolved, Rules, Short, Smaller
from lockpin_core.ledger.tasks import Task, Tasks
from lockpin_core.ledger.totals import Totals
from lockpin_core.money import ZERO, Money
from lockpin_core.usage import Unit

_REMEMBERED = 512  # whose accounts are kept in memory
_NEVER = datetime.max.replace(tzinfo=UTC)

_OPEN = "SELECT at, accounts FROM open_holds WHERE call = ?"
_CLOSE_HOLD = "DELETE FROM open_holds WHERE call = ? RETURNING at, usd, tokens, accounts, task"
_HASH = "SELECT hash FROM rows WHERE writer = ? AND seq = ?"
_RESOLUTION = (
    "SELECT r.kind, r.at, r.usd, r.tokens, r.usage, r.model_served, r.tier, r.reason, r.estimated, r.failed, r.priced, "
    "r.over_hold, r.hash, r.accounts, r.task, h.usd AS held_usd FROM rows r "
    "JOIN rows h ON h.call = r.call AND h.kind = 'hold' WHERE r.call = ? AND r.kind IN ('charge', 'void')"
)
_FACTS = f"SELECT {', '.join(f'"{name}"' for name in FACT_NAMES)} FROM rows WHERE call = ? AND kind = 'hold'"
_DEFER = "UPDATE open_holds SET background = 1, expires_at = ? WHERE call = ?"
_CHAIN_END = (
    "INSERT INTO writers (id, seq, hash, since, origin) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, origin = excluded.origin"
)


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a writer's books stand between operations, to go back to when one did not happen."""

    head: Head
    rules: Rules | None
    origin: str


class Books:
    """One writer's operations on one connection: `begin`, operations, `flush`, and the caller commits.

    Between transactions it keeps its own chain's end and facts of rows, which never change, and what it has read and
    written itself for as long as nobody else has written: SQLite counts the others' commits.
    """

    def __init__(self, connection: sqlite3.Connection, writer: str) -> None:
        backlog, totals = Backlog(connection), Totals(connection)
        self.definitions = Definitions(connection, self.event)
        self.balances = Balances(connection, self.event, self.definitions, backlog, totals)
        self.tasks = Tasks(connection, backlog)
        self.corrections = Corrections(connection, self.balances, self.tasks, self.append)
        self.at = 0
        self.now = instant(0)
        self.connection, self._backlog, self._totals = connection, backlog, totals
        self._chain, self._origin = Chain(backlog, writer), ""
        self._end_written = (0, "")  # the chain's end and the origin as they are on the books
        self._version: int | None = None  # of the file, when it was last read; None: nothing is known of it
        self._last_at = 0  # of the last row
        self._careful = True
        self._last_rates: tuple[Mapping[str, str], str] = ({}, "{}")
        self._seats: dict[tuple[Payers, str, str], tuple[Rules, tuple[Seat, ...], datetime]] = {}
        self._rules: Rules | None = None  # those whose definitions are stored
        self._facts: dict[str, dict[str, object]] = {}  # by open call: what its resolution repeats of the hold's row

    @property
    def writer(self) -> str:
        """Give the id under which rows are written."""
        return self._chain.writer

    def begin(self, wall: datetime, *, careful: bool = True) -> None:
        """Fix the transaction's instant.

        `careful`: ask the books first where an operation could find its call held or resolved already. Otherwise that
        is an IntegrityError at the end, and the transaction is to be done again, each operation by itself.
        """
        self._careful = careful
        (version,) = self.connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._read_anew()
            self._version = version
        before, self.at = self.at, max(micros(wall), self._last_at)
        if self.at < before:
            # The wall clock was ahead for a while in which no row was written: nothing of that time may stay.
            self._read_anew()
            self._seats.clear()
            self.balances.spans.forget()
        self.balances.at = self.at
        self.now = instant(self.at)

    def _read_anew(self) -> None:
        """Forget what others may have changed."""
        (version,) = self.connection.execute("PRAGMA user_version").fetchone()
        if version != schema.VERSION:
            raise LedgerUnavailable(f"the ledger was brought to version {version} by a newer Lockpin: restart this one")
        self.balances.begin()
        self.tasks.begin()
        self.definitions.read_anew()
        self._backlog.open.clear()
        last = self.connection.execute("SELECT at FROM rows ORDER BY id DESC LIMIT 1").fetchone()
        self._last_at = 0 if last is None else last[0]

    def flush(self) -> None:
        """Write what the transaction has changed."""
        self._backlog.write()
        self.balances.flush()
        self.tasks.flush()
        self._totals.flush()
        end = (self._chain.head.seq, self._origin)
        if end != self._end_written:
            head = self._chain.head
            self.connection.execute(_CHAIN_END, (self.writer, head.seq, head.hash, self.at, self._origin))
            self._end_written = end

    def write(self) -> None:
        """Write rows and holds that still wait, for a query that must see them."""
        self._backlog.write()

    def mark(self) -> Mark:
        """Remember where the books stand between two transactions."""
        return Mark(self._chain.head, self._rules, self._origin)

    def reset(self, mark: Mark) -> None:
        """Go back to a mark, when the transaction since did not happen."""
        self._chain.head, self._rules, self._origin, self._version = mark.head, mark.rules, mark.origin, None
        self._end_written = (-1, "")
        self._backlog.forget()
        self.balances.begin()
        self.tasks.forget()
        self.definitions.forget()
        self._totals.forget()
        self._facts.clear()

    def has(self, head: Head) -> bool:
        """Say whether this writer's chain is on the books up to a head."""
        found = self.connection.execute(_HASH, (self.writer, head.seq)).fetchone()
        return head.seq == 0 or (found is not None and found[0] == head.hash)

    def probe(self) -> None:
        """Write something, to see whether writing works."""
        self.connection.execute("REPLACE INTO meta VALUES ('last_fault', ?)", (str(self.at),))

    def hold(self, call: Call, rules: Rules, smaller: Smaller | None = None) -> Held | Short | Closed:
        """Hold the call's quote on all its accounts, or on none; or that of a smaller version, where one fits."""
        assert call.quote.most.nano >= 0, "a quote is negative"
        assert call.quote.tokens >= 0, "a quote's tokens are negative"
        if (self._careful or call.id in self._backlog.open) and (again := self._held_again(call)) is not None:
            return again
        terms = self.terms(call.payers.task)
        if terms is not None and terms.closed:
            return self._held_again(call) or Closed(self.now, call.payers.task)
        seats = self._seats_in_force(call, rules, terms)
        if not self.balances.has_room(seats, call.quote.most.nano, call.quote.tokens):
            before = self.balances.standings(seats)
            short = violations(before, call.quote)
            if short:
                lower = smaller(before) if smaller is not None else None
                if lower is None or violations(before, lower.quote):
                    return self._held_again(call) or Short(self.now, before, tuple(short))
                call = lower
        return self._take(call, seats)

    def hold_unchecked(self, call: Call, rules: Rules, after_row: int) -> Held:
        """Write the hold of a call that went while the ledger was away; no limit was enforced at the last row then."""
        if (again := self._held_again(call)) is not None:
            return again
        seats = self._seats_in_force(call, rules, self.terms(call.payers.task))
        self.balances.standings(seats)
        return self._take(call, seats, after_row)

    def last_row(self) -> int:
        """Give the number of the last row."""
        return self.balances.past.last_row()

    def is_unlimited(self, call: Call, rules: Rules) -> bool:
        """Say, by reading alone, whether no enforced limit applies to a call."""
        terms = self.terms(call.payers.task)
        if terms is not None and terms.closed:
            return False
        # By what stands in the ledger and by what this process was told: the file may not be what it was.
        judged = (self._in_force(rules), rules)
        own = [own_budget(each.task_default, terms) for each in judged]
        others = [b for each in judged for b in each.budgets if b.applies(provider=call.provider, model=call.model)]
        return not any(_is_limited(budget) for budget in (*own, *others))

    def _seats_in_force(self, call: Call, rules: Rules, terms: TaskTerms | None) -> tuple[Seat, ...]:
        if not self._origin:
            self.define(rules)
        in_force = self._in_force(rules)
        return self._seats_of(call, in_force, own_budget(in_force.task_default, terms))

    def _in_force(self, rules: Rules) -> Rules:
        """Give what stands in the ledger, also to a call that was begun under rules of before; where this process's
        own do not stand there yet, those instead.
        """
        if self._origin or rules is self._rules:
            return self.definitions.in_force(rules.task_default)
        names = {budget.name for budget in rules.budgets}
        by_command = (budget for budget in self.definitions.by_command() if budget.name not in names)
        return Rules((*rules.budgets, *by_command), rules.task_default)

    def _seats_of(self, call: Call, rules: Rules, own: Budget) -> tuple[Seat, ...]:
        """List a call's accounts; those of the last calls are remembered until a window ends."""
        key = (call.payers, call.provider, call.model)
        known = self._seats.get(key)
        if known is not None and known[0] is rules and known[1][0].budget is own and self.now < known[2]:
            return known[1]
        seats = seats_of(*key, rules, own, self.now, self.balances.spans)
        if len(self._seats) >= _REMEMBERED:
            self._seats.clear()
        # Ledger time only grows, so that they are these until the first of their windows ends.
        self._seats[key] = rules, seats, min((s.span.end for s in seats if s.span.end is not None), default=_NEVER)
        return seats

    def look(self, payers: Payers, provider: str, model: str, rules: Rules) -> tuple[Standing, ...]:
        """Show the accounts that such a call would be charged to."""
        in_force = self._in_force(rules)
        own = own_budget(in_force.task_default, self.terms(payers.task))
        return self.balances.peek(seats_of(payers, provider, model, in_force, own, self.now, self.balances.spans))

    def settle(self, call_id: str, charge: Charge) -> Resolved:
        """Replace a hold by a charge, or give the resolution that came first."""
        assert charge.amount.nano >= 0 <= charge.tokens, "a charge is negative"
        taken = self._close_hold(call_id)
        if taken is None:
            return self._settled_before(call_id, charge)
        over = charge.amount.nano > taken.usd or 0 < taken.tokens < charge.tokens
        task, recent = self.tasks.spend(taken.task, charge.amount.nano)
        held, spent = (taken.usd, taken.tokens), (charge.amount.nano, charge.tokens)
        standings = self.balances.settle(taken.accounts, taken.at, held, spent, task.terms)
        row = self._resolution(taken, standings) | charge_columns(charge, over=over)
        digest = self.append("charge", row)
        return Resolved(
            call_id=call_id, first=True, charge=charge, over_hold=over, held=Money(taken.usd), at=self.now,
            row_hash=digest.hex(), standings=standings, task_spent=Money(task.spent_nano), recent=recent,
            crossed=self.balances.alert(standings),
        )  # fmt: skip

    def void(self, call_id: str, outcome: Void) -> Resolved:
        """Take a hold off, or give the resolution that came first."""
        taken = self._close_hold(call_id)
        if taken is None:
            return self._resolved_before(call_id)
        return self._void(taken, outcome)

    def cancel(self, call_id: str) -> None:
        """Take a hold off if there is an open one."""
        taken = self._close_hold(call_id)
        if taken is not None:
            self._void(taken, Void("cancelled"))

    def defer(self, call_id: str, hold_for: timedelta) -> None:
        """Keep a hold for usage that comes later. Raises LedgerError where there is none."""
        self._backlog.write()
        until = self.at + hold_for // timedelta(microseconds=1)
        if self.connection.execute(_DEFER, (until, call_id)).rowcount == 0:
            raise LedgerError(f"call {call_id} has no open hold in this ledger")
        self.event("hold_deferred", {"call": call_id, "until": until})

    def refuse(self, note: CallNote, refusal: Refusal, count: int) -> None:
        """Write the row of `count` refusals."""
        detail = plain({"status": refusal.status, **note.detail, **refusal.detail})
        row: dict[str, object] = {"code": refusal.code, "count": count, "data": encode(detail)}
        self.append("refusal", note_columns(note) | row)

    def uncapped(self, note: CallNote) -> None:
        """Write the row of a call that goes without a hold."""
        data = encode(plain(note.detail)) if note.detail else None
        self.append("uncapped", note_columns(note) | {"code": note.code, "data": data})

    def event(self, code: str, data: Mapping[str, object], task: str | None = None) -> None:
        """Write what a command, or the ledger itself, did."""
        self.append("event", {"code": code, "task": task, "data": encode(plain(data))})

    def append(self, kind: str, row: dict[str, object]) -> bytes:
        """Write a row and give its hash."""
        self._last_at = self.at
        digest = self._chain.append(kind, self.at, row)
        self._totals.add(kind, self.at, row)
        return digest

    def terms(self, name: str) -> TaskTerms | None:
        """Give what commands said of a task; None: nobody has used or made it."""
        task = self.tasks.get(name)
        return None if task is None else task.terms

    def _take(self, call: Call, seats: tuple[Seat, ...], after_row: int | None = None) -> Held:
        """Put a fitting quote on its accounts and write its row."""
        usd, tokens = call.quote.most.nano, call.quote.tokens
        names = [seat.account for seat in seats]
        accounts = account_list(tuple(names))
        self._backlog.add_hold(OpenHold(call.id, self.at, usd, tokens, names, accounts, call.payers.task), self.writer)
        if self.tasks.get(call.payers.task) is None:
            self.tasks.put(Task(call.payers.task, TaskTerms("lifetime", None, None, closed=False)))
        facts = fact_columns(call)
        row = facts | hold_columns(call, self._rates_of(call), after_row)
        row["usd"], row["tokens"], row["accounts"] = usd, tokens, accounts
        self.append("hold", row)
        self._facts[call.id] = facts
        return Held(call, self.now, self.balances.add_held(seats, usd, tokens))

    def _held_again(self, call: Call) -> Held | None:
        """Give the first answer to a call that is held already; None: it is not."""
        self._backlog.write()
        found = self.connection.execute(_OPEN, (call.id,)).fetchone()
        if found is None:
            return None
        at, accounts = found
        return Held(call, instant(at), self.balances.current(json.loads(accounts), self.terms(call.payers.task)))

    def _close_hold(self, call_id: str) -> OpenHold | None:
        if not self._careful and (known := self._backlog.close_hold(call_id)) is not None:
            return known
        self._backlog.write()
        self._backlog.open.pop(call_id, None)
        rows = self.connection.execute(_CLOSE_HOLD, (call_id,)).fetchall()
        if not rows:
            return None
        ((at, usd, tokens, accounts, task),) = rows
        return OpenHold(call_id, at, usd, tokens, json.loads(accounts), accounts, task)

    def _void(self, taken: OpenHold, outcome: Void) -> Resolved:
        held = (taken.usd, taken.tokens)
        standings = self.balances.settle(taken.accounts, taken.at, held, (0, 0), self.terms(taken.task))
        row = self._resolution(taken, standings)
        row |= {"reason": outcome.reason, "failed": int(outcome.failed), "usd": 0, "tokens": 0}
        digest = self.append("void", row)
        return Resolved(
            call_id=taken.call, first=True, charge=None, over_hold=False, held=Money(taken.usd), at=self.now,
            row_hash=digest.hex(), standings=standings, task_spent=self._task_spent(taken.task),
            recent=self.tasks.recent(taken.task),
        )  # fmt: skip

    def _settled_before(self, call_id: str, charge: Charge) -> Resolved:
        """Give the resolution that came first; usage that comes after its hold had expired books the difference."""
        before = self._resolved_before(call_id)
        if before.charge is None or before.charge.reason != EXPIRED or charge.estimated:
            return before
        over = self.corrections.late(call_id, charge)
        return replace(self._resolved_before(call_id), charge=charge, over_hold=over)

    def _resolved_before(self, call_id: str) -> Resolved:
        self._backlog.write()
        row = self.connection.execute(_RESOLUTION, (call_id,)).fetchone()
        if row is None:
            raise LedgerError(f"call {call_id} has no hold in this ledger")
        (kind, at, usd, tokens, usage, served, tier, reason, estimated, failed, priced) = row[:11]
        (over, digest, accounts, task, held) = row[11:]
        charge = None
        if kind == "charge":
            counts = {Unit(unit): count for unit, count in json.loads(usage).items()}
            flags = (bool(estimated), bool(failed), bool(priced))
            charge = Charge(Money(usd), counts, tokens, served, tier, reason, *flags)
        return Resolved(
            call_id=call_id, first=False, charge=charge, over_hold=bool(over), held=Money(held), at=instant(at),
            row_hash=digest.hex(), standings=self.balances.current(json.loads(accounts), self.terms(task)),
            task_spent=self._task_spent(task), recent=self.tasks.recent(task),
        )  # fmt: skip

    def _resolution(self, taken: OpenHold, standings: tuple[Standing, ...]) -> dict[str, object]:
        """Give the columns that a charge and a void share: the hold's payers, and the balances after it."""
        facts = self._facts.pop(taken.call, None) or self._read_facts(taken.call)
        balances = [
            (
                *(s.spent.nano, s.held.nano, None if s.limit is None else s.limit.nano),
                *(s.spent_tokens, s.held_tokens, s.limit_tokens),
            )
            for s in standings
        ]
        data = encode({"balances": balances})
        return facts | {"call": taken.call, "held_at": taken.at, "accounts": taken.account_list, "data": data}

    def _read_facts(self, call_id: str) -> dict[str, object]:
        self._backlog.write()
        found = self.connection.execute(_FACTS, (call_id,)).fetchone()
        return dict(zip(FACT_NAMES, found, strict=True))

    def _task_spent(self, name: str) -> Money:
        task = self.tasks.get(name)
        return ZERO if task is None else Money(task.spent_nano)

    def _rates_of(self, call: Call) -> str:
        """Write a call's rates as JSON; most calls have the same as the one before."""
        if call.rates is not self._last_rates[0]:
            self._last_rates = call.rates, encode(dict(call.rates))
        return self._last_rates[1]

    def define(self, rules: Rules, origin: str | None = None) -> None:
        """Put a configuration's budgets in force, when they are others than before."""
        if origin is not None:
            self._origin = origin
        if rules is not self._rules:
            self.follow(self.definitions.apply(rules, self.at))
            self._rules = rules

    def follow(self, changes: Sequence[Change]) -> None:
        """Let accounts follow changed definitions: alert steps are re-armed, time that was missed is counted."""
        for change in changes:
            before, after = change.before, change.after
            if before is None or after is None or after.own:
                continue
            if (before.budget.limit, before.budget.limit_tokens) != (after.limit, after.limit_tokens):
                self.balances.forget_all_raises(after)  # a limit that is set anew is the limit
            self.balances.rearm_all(after)
            turned = (before.budget.window, before.budget.scope) != (after.window, after.scope)
            if change.is_back or turned:
                self.balances.catch_up(after)

    def conflict(self, rules: Rules, origin: str, others: Sequence[str]) -> str | None:
        """Say where running writers of another origin have other budgets in force; None: nowhere."""
        marks = ", ".join("?" * len(others))
        sql = f"SELECT DISTINCT origin FROM writers WHERE id IN ({marks}) AND origin NOT IN ('', ?)"
        found = self.connection.execute(sql, (*others, origin)).fetchone() if origin else None
        words = self.definitions.conflict(rules) if found is not None else None
        return None if found is None or words is None else f"{words}; there: {found[0]}, here: {origin}"


def _is_limited(budget: Budget) -> bool:
    return budget.enforce and (budget.limit is not None or budget.limit_tokens is not None)

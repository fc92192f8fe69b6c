"""The ledger's operations inside an open SQLite transaction: SQL and the rules of holding and settling.

Knows no threads, no commits and no files. Every operation happens at the transaction's instant: the later of the wall
clock and the last row, so that ledger time never runs backwards.
"""

from __future__ import annotations

import functools
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from lockpin_core.budgets import Budget, Standing, violations
from lockpin_core.call import Call, Charge, Payers, Refusal, Void
from lockpin_core.errors import LedgerError
from lockpin_core.ledger.accounts import Seat, TaskTerms, is_in, own_budget, seats_of
from lockpin_core.ledger.backlog import Backlog, OpenHold
from lockpin_core.ledger.balances import Balances, instant, micros
from lockpin_core.ledger.chain import Chain, Head, encode
from lockpin_core.ledger.protocol import CallNote, Closed, Held, Resolved, Rules, Short, Smaller
from lockpin_core.ledger.tasks import Task, Tasks
from lockpin_core.money import ZERO, Money
from lockpin_core.usage import CACHE_WRITES, Unit, Usage, output_tokens, prompt_tokens

STOPPED = "lockpin_stopped"
_REMEMBERED = 512  # whose accounts are kept in memory

_OPEN = "SELECT at, accounts FROM open_holds WHERE call = ?"
_CLOSE_HOLD = "DELETE FROM open_holds WHERE call = ? RETURNING at, usd, tokens, accounts, task"
_HASH = "SELECT hash FROM rows WHERE writer = ? AND seq = ?"
_RESOLUTION = (
    "SELECT r.kind, r.at, r.usd, r.tokens, r.usage, r.model_served, r.tier, r.reason, r.estimated, r.failed, r.priced, "
    "r.over_hold, r.hash, r.accounts, r.task, h.usd AS held_usd FROM rows r "
    "JOIN rows h ON h.call = r.call AND h.kind = 'hold' WHERE r.call = ? AND r.kind IN ('charge', 'void')"
)
_FACT_NAMES = (
    *("task", "key", "user", "team", "groups", "ring", "project", "tags", "machine"),
    *("provider", "host", "model", "client", "billing"),
)
_FACTS = f"SELECT {', '.join(f'"{name}"' for name in _FACT_NAMES)} FROM rows WHERE call = ? AND kind = 'hold'"


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a writer's books stand between operations, to go back to when one did not happen."""

    head: Head
    rules: Rules | None


class Books:
    """One writer's operations on one connection: `begin`, operations, `flush`, and the caller commits.

    Between transactions it keeps its own chain's end and facts of rows, which never change, and what it has read and
    written itself for as long as nobody else has written: SQLite counts the others' commits.
    """

    def __init__(self, connection: sqlite3.Connection, writer: str) -> None:
        backlog = Backlog(connection)
        self.balances = Balances(connection, self.event, backlog)
        self.tasks = Tasks(connection, backlog)
        self.at = 0
        self.now = instant(0)
        self._connection, self._backlog = connection, backlog
        self._chain = Chain(backlog, writer)
        self._version: int | None = None  # of the file, when it was last read; None: nothing is known of it
        self._last_at = 0  # of the last row
        self._careful = True
        self._last_rates: tuple[Mapping[str, str], str] = ({}, "{}")
        self._seats: dict[tuple[Payers, str, str], tuple[Rules, tuple[Seat, ...]]] = {}
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
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            self._read_anew()
            self._version = version
        self.at = max(micros(wall), self._last_at)
        self.now = instant(self.at)

    def _read_anew(self) -> None:
        """Forget what others may have changed."""
        self.balances.begin()
        self.tasks.begin()
        self._backlog.open.clear()
        last = self._connection.execute("SELECT at FROM rows ORDER BY id DESC LIMIT 1").fetchone()
        self._last_at = 0 if last is None else last[0]

    def flush(self) -> None:
        """Write what the transaction has changed."""
        self._backlog.write()
        self.balances.flush()
        self.tasks.flush()

    def mark(self) -> Mark:
        """Remember where the books stand between two transactions."""
        return Mark(self._chain.head, self._rules)

    def reset(self, mark: Mark) -> None:
        """Go back to a mark, when the transaction since did not happen."""
        self._chain.head, self._rules, self._version = mark.head, mark.rules, None
        self._backlog.forget()
        self.balances.begin()
        self.tasks.forget()
        self._facts.clear()

    def has(self, head: Head) -> bool:
        """Say whether this writer's chain is on the books up to a head."""
        found = self._connection.execute(_HASH, (self.writer, head.seq)).fetchone()
        return head.seq == 0 or (found is not None and found[0] == head.hash)

    def probe(self) -> None:
        """Write something, to see whether writing works."""
        self._connection.execute("REPLACE INTO meta VALUES ('last_fault', ?)", (str(self.at),))

    def hold(self, call: Call, rules: Rules, smaller: Smaller | None = None) -> Held | Short | Closed:
        """Hold the call's quote on all its accounts, or on none; or that of a smaller version, where one fits."""
        assert call.quote.most.nano >= 0, "a quote is negative"
        assert call.quote.tokens >= 0, "a quote's tokens are negative"
        if (self._careful or call.id in self._backlog.open) and (again := self._held_again(call)) is not None:
            return again
        terms = self.terms(call.payers.task)
        if terms is not None and terms.closed:
            return self._held_again(call) or Closed(self.now, call.payers.task)
        self.define(rules)
        own = own_budget(rules.task_default, terms)
        seats = self._seats_of(call, rules, own)
        if not self.balances.has_room(seats, call.quote.most.nano, call.quote.tokens):
            before = self.balances.standings(seats)
            short = violations(before, call.quote)
            if short:
                lower = smaller(before) if smaller is not None else None
                if lower is None or violations(before, lower.quote):
                    return self._held_again(call) or Short(self.now, before, tuple(short))
                call = lower
        return self._take(call, seats)

    def _seats_of(self, call: Call, rules: Rules, own: Budget) -> tuple[Seat, ...]:
        """List a call's accounts; those of the last calls are remembered until a window ends."""
        key = (call.payers, call.provider, call.model)
        known = self._seats.get(key)
        if known is not None and known[0] is rules and _is_current(known[1], own, self.now):
            return known[1]
        seats = seats_of(*key, rules, own, self.now, self.balances.spans)
        if len(self._seats) >= _REMEMBERED:
            self._seats.clear()
        self._seats[key] = rules, seats
        return seats

    def look(self, payers: Payers, provider: str, model: str, rules: Rules) -> tuple[Standing, ...]:
        """Show the accounts that such a call would be charged to."""
        own = own_budget(rules.task_default, self.terms(payers.task))
        return self.balances.peek(seats_of(payers, provider, model, rules, own, self.now, self.balances.spans))

    def settle(self, call_id: str, charge: Charge) -> Resolved:
        """Replace a hold by a charge, or give the resolution that came first."""
        taken = self._close_hold(call_id)
        if taken is None:
            return self._resolved_before(call_id)
        over = charge.amount.nano > taken.usd or 0 < taken.tokens < charge.tokens
        task, recent = self.tasks.spend(taken.task, charge.amount.nano)
        held, spent = (taken.usd, taken.tokens), (charge.amount.nano, charge.tokens)
        standings = self.balances.settle(taken.accounts, held, spent, task.terms)
        row = self._resolution(taken, standings) | _charge_columns(charge, over=over)
        digest = self._append("charge", row)
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

    def refuse(self, note: CallNote, refusal: Refusal, count: int) -> None:
        """Write the row of `count` refusals."""
        detail = _plain({"status": refusal.status, **note.detail, **refusal.detail})
        self._note("refusal", note, {"code": refusal.code, "count": count, "data": encode(detail)})

    def uncapped(self, note: CallNote) -> None:
        """Write the row of a call that goes without a hold."""
        data = encode(_plain(note.detail)) if note.detail else None
        self._note("uncapped", note, {"code": note.code, "data": data})

    def event(self, code: str, data: Mapping[str, object], task: str | None = None) -> None:
        """Write what a command, or the ledger itself, did."""
        self._append("event", {"code": code, "task": task, "data": encode(_plain(data))})

    def stop(self) -> None:
        """Charge what this writer still holds, in full; background holds stay."""
        self._backlog.write()
        mine = "SELECT call, usd, tokens FROM open_holds WHERE writer = ? AND background = 0"
        for call_id, usd, tokens in self._connection.execute(mine, (self.writer,)).fetchall():
            charge = Charge(Money(usd), {}, tokens, None, None, reason=STOPPED, estimated=True)
            self.settle(call_id, charge)

    def terms(self, name: str) -> TaskTerms | None:
        """Give what commands said of a task; None: nobody has used or made it."""
        task = self.tasks.get(name)
        return None if task is None else task.terms

    def _take(self, call: Call, seats: tuple[Seat, ...]) -> Held:
        """Put a fitting quote on its accounts and write its row."""
        usd, tokens = call.quote.most.nano, call.quote.tokens
        names = [seat.account for seat in seats]
        accounts = _account_list(tuple(names))
        self._backlog.add_hold(OpenHold(call.id, self.at, usd, tokens, names, accounts, call.payers.task), self.writer)
        if self.tasks.get(call.payers.task) is None:
            self.tasks.put(Task(call.payers.task, TaskTerms("lifetime", None, None, closed=False)))
        facts = _fact_columns(call)
        row = facts | _hold_columns(call, self._rates_of(call))
        row["usd"], row["tokens"], row["accounts"] = usd, tokens, accounts
        self._append("hold", row)
        self._facts[call.id] = facts
        return Held(call, self.now, self.balances.add_held(seats, usd, tokens))

    def _held_again(self, call: Call) -> Held | None:
        """Give the first answer to a call that is held already; None: it is not."""
        self._backlog.write()
        found = self._connection.execute(_OPEN, (call.id,)).fetchone()
        if found is None:
            return None
        at, accounts = found
        return Held(call, instant(at), self.balances.current(json.loads(accounts), self.terms(call.payers.task)))

    def _close_hold(self, call_id: str) -> OpenHold | None:
        if not self._careful and (known := self._backlog.close_hold(call_id)) is not None:
            return known
        self._backlog.write()
        self._backlog.open.pop(call_id, None)
        rows = self._connection.execute(_CLOSE_HOLD, (call_id,)).fetchall()
        if not rows:
            return None
        ((at, usd, tokens, accounts, task),) = rows
        return OpenHold(call_id, at, usd, tokens, json.loads(accounts), accounts, task)

    def _void(self, taken: OpenHold, outcome: Void) -> Resolved:
        held = (taken.usd, taken.tokens)
        standings = self.balances.settle(taken.accounts, held, (0, 0), self.terms(taken.task))
        row = self._resolution(taken, standings)
        row |= {"reason": outcome.reason, "failed": int(outcome.failed), "usd": 0, "tokens": 0}
        digest = self._append("void", row)
        return Resolved(
            call_id=taken.call, first=True, charge=None, over_hold=False, held=Money(taken.usd), at=self.now,
            row_hash=digest.hex(), standings=standings, task_spent=self._task_spent(taken.task),
            recent=self.tasks.recent(taken.task),
        )  # fmt: skip

    def _resolved_before(self, call_id: str) -> Resolved:
        self._backlog.write()
        row = self._connection.execute(_RESOLUTION, (call_id,)).fetchone()
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
        found = self._connection.execute(_FACTS, (call_id,)).fetchone()
        return dict(zip(_FACT_NAMES, found, strict=True))

    def _task_spent(self, name: str) -> Money:
        task = self.tasks.get(name)
        return ZERO if task is None else Money(task.spent_nano)

    def _rates_of(self, call: Call) -> str:
        """Write a call's rates as JSON; most calls have the same as the one before."""
        if call.rates is not self._last_rates[0]:
            self._last_rates = call.rates, encode(dict(call.rates))
        return self._last_rates[1]

    def _append(self, kind: str, row: dict[str, object]) -> bytes:
        self._last_at = self.at
        return self._chain.append(kind, self.at, row)

    def _note(self, kind: str, note: CallNote, row: dict[str, object]) -> None:
        row |= _payer_columns(note.payers)
        row |= {"call": note.id, "provider": note.provider, "host": note.host, "model": note.model}
        row |= {"client": note.client, "path": note.path, "wire": note.wire, "streamed": int(note.streamed)}
        self._append(kind, row)

    def define(self, rules: Rules) -> None:
        """Store the definitions in force, when they are others than before."""
        if rules is not self._rules:
            self.balances.define((rules.task_default, *rules.budgets), self.at)
            self._rules = rules


def _is_current(seats: tuple[Seat, ...], own: Budget, now: datetime) -> bool:
    return seats[0].budget is own and all(is_in(seat.span, now) for seat in seats)


@functools.lru_cache(maxsize=1024)
def _account_list(accounts: tuple[str, ...]) -> str:
    return encode(accounts)


def _payer_columns(payers: Payers) -> dict[str, object]:
    return {
        "task": payers.task, "key": payers.key, "user": payers.user, "team": payers.team,
        "groups": encode(payers.groups) if payers.groups else None, "ring": payers.ring, "project": payers.project,
        "tags": encode(dict(payers.tags)) if payers.tags else None, "machine": payers.machine,
    }  # fmt: skip


def _fact_columns(call: Call) -> dict[str, object]:
    """Give what the hold's row and its resolution's both carry. The names are those of _FACT_NAMES."""
    return _payer_columns(call.payers) | {
        "provider": call.provider, "host": call.host, "model": call.model, "client": call.client,
        "billing": call.billing,
    }  # fmt: skip


def _hold_columns(call: Call, rates: str) -> dict[str, object]:
    terms = {name: value for name, value in (("speed", call.terms.speed), ("geo", call.terms.geo)) if value}
    return {
        "call": call.id, "wire": call.wire, "asked_model": call.asked_model, "rates": rates,
        "price_date": call.price_date, "tier": call.terms.tier,
        "output_limit": call.output_limit, "limit_set": int(call.limit_set), "streamed": int(call.streamed),
        "waited_ms": call.waited_ms, "degrade": encode(call.degrade) if call.degrade else None,
        "data": encode(terms) if terms else None,
    }  # fmt: skip


def _charge_columns(charge: Charge, *, over: bool) -> dict[str, object]:
    reads, writes = charge.usage.get(Unit.CACHE_READ, 0), _cache_writes(charge.usage)
    return {
        "usd": charge.amount.nano, "tokens": charge.tokens, "usage": encode(dict(charge.usage)),
        "input_tokens": prompt_tokens(charge.usage) - reads - writes, "cache_read_tokens": reads,
        "cache_write_tokens": writes, "output_tokens": output_tokens(charge.usage),
        "model_served": charge.model_served, "tier": charge.tier, "reason": charge.reason,
        "estimated": int(charge.estimated), "failed": int(charge.failed), "over_hold": int(over),
        "priced": int(charge.priced),
    }  # fmt: skip


def _cache_writes(usage: Usage) -> int:
    return sum(usage.get(unit, 0) for unit in CACHE_WRITES)


def _plain(value: object) -> object:
    """Turn a refusal's detail into JSON: amounts as exact dollars, instants as RFC 3339, names as text."""
    match value:
        case Money():
            return value.exact()
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case str() | int() | None:
            return value
        case list() | tuple():
            return [_plain(item) for item in value]
    return str(value)

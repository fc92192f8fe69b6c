"""The same books in plain dicts: for tests and for playing history back. Nothing is kept on disk."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import datetime

from lockpin_core.budgets import Budget, Standing, violations
from lockpin_core.call import Call, Charge, Payers, Refusal, Void
from lockpin_core.clock import Clock
from lockpin_core.errors import CommandError, LedgerError
from lockpin_core.ledger.accounts import (
    Balance,
    Seat,
    Spans,
    TaskTerms,
    budget_in,
    is_in,
    own_budget,
    passed_steps,
    seat_of,
    seats_of,
    standing_of,
)
from lockpin_core.ledger.admin import canonical_task
from lockpin_core.ledger.coalesce import Coalescer, Refused
from lockpin_core.ledger.protocol import CallNote, Closed, Held, Resolved, Rules, Short, Smaller, TaskInfo
from lockpin_core.ledger.tasks import RECENT
from lockpin_core.money import ZERO, Money

_LIFETIME = TaskTerms("lifetime", None, None, closed=False)


@dataclass(frozen=True, slots=True)
class Row:
    """One entry of the book."""

    kind: str
    at: datetime
    call: str | None
    task: str | None
    usd: int = 0
    tokens: int = 0
    accounts: tuple[str, ...] = ()
    count: int = 1
    code: str | None = None


@dataclass(slots=True)
class _Account:
    seat: Seat
    balance: Balance
    told: tuple[str, ...] = ()


@dataclass(slots=True)
class _Open:
    call: Call
    at: datetime
    accounts: list[str] = field(default_factory=list)


class MemoryLedger:
    """A Ledger and an Admin whose futures are done when they are given."""

    def __init__(self, *, clock: Clock) -> None:
        self.rows: list[Row] = []
        self._clock, self._lock, self._spans = clock, threading.RLock(), Spans()
        self._accounts: dict[str, _Account] = {}
        self._open: dict[str, _Open] = {}
        self._done: dict[str, tuple[Resolved, _Open]] = {}
        self._terms: dict[str, TaskTerms] = {}
        self._created: dict[str, datetime] = {}
        self._charges: dict[str, list[Money]] = {}
        self._default: Budget | None = None
        self._coalescer = Coalescer()

    def define(self, rules: Rules) -> None:
        """See Ledger."""

    def hold(self, call: Call, rules: Rules, smaller: Smaller | None = None) -> Future[Held | Short | Closed]:
        """See Ledger."""
        with self._lock:
            return _done(self._hold(call, rules, smaller))

    def look(self, payers: Payers, provider: str, model: str, rules: Rules) -> Future[tuple[Standing, ...]]:
        """See Ledger."""
        with self._lock:
            return _done(self._standings(self._seats(payers, provider, model, rules)))

    def settle(self, call_id: str, charge: Charge) -> Future[Resolved]:
        """See Ledger."""
        with self._lock:
            return self._resolve(call_id, charge, Void(""))

    def void(self, call_id: str, outcome: Void) -> Future[Resolved]:
        """See Ledger."""
        with self._lock:
            return self._resolve(call_id, None, outcome)

    def cancel(self, call_id: str) -> None:
        """See Ledger."""
        with self._lock:
            if call_id in self._open:
                self._resolve(call_id, None, Void("cancelled"))

    def refuse(self, note: CallNote, refusal: Refusal) -> None:
        """See Ledger."""
        with self._lock:
            self._refused(self._coalescer.add(Refused(note, refusal), int(self._now().timestamp())))

    def uncapped(self, note: CallNote) -> None:
        """See Ledger."""
        with self._lock:
            self.rows.append(Row("uncapped", self._now(), note.id, note.payers.task, code=note.code))

    def stop(self) -> None:
        """See Ledger."""
        with self._lock:
            self._refused(self._coalescer.flush())
            for call_id, held in list(self._open.items()):
                quote = held.call.quote
                self.settle(
                    call_id, Charge(quote.most, {}, quote.tokens, None, None, "lockpin_stopped", estimated=True)
                )

    def task_new(self, name: str, *, limit: Money | None, window: str, who: str) -> TaskInfo:
        """See Admin."""
        with self._lock:
            name = canonical_task(name)
            before = self._terms.get(name, _LIFETIME)
            nano = before.limit_nano if limit is None else limit.nano
            self._terms[name] = TaskTerms(window, nano, None, closed=False)
            self._created.setdefault(name, self._now())
            self._event("task_new", name)
            if self._default is not None:
                seat = self._seat(self._default, name)
                if limit is not None:
                    self._standings((seat,))
                    self._accounts[seat.account].balance.raised_nano = 0
                self._rearm(seat)
            return self._info(name)

    def task_close(self, name: str, *, who: str) -> TaskInfo:
        """See Admin."""
        with self._lock:
            if name not in self._terms:
                raise CommandError(f'no task "{name}"')
            self._terms[name] = replace(self._terms[name], closed=True)
            self._event("task_closed", name)
            return self._info(name)

    def tasks(self) -> list[TaskInfo]:
        """See Admin."""
        with self._lock:
            return [self._info(name) for name in sorted(self._terms)]

    def raise_budget(self, budget: Budget, subject: str, by: Money, *, who: str) -> Standing:
        """See Admin."""
        with self._lock:
            seat = self._seat(budget, subject)
            if by.nano <= 0 or seat.budget.limit is None:
                raise CommandError(f'"{by.exact()}" cannot be added to the limit of budget "{budget.name}"')
            self._standings((seat,))
            self._accounts[seat.account].balance.raised_nano += by.nano
            self._event("budget_raised", None)
            return self._rearm(seat)

    def standings(self, rules: Rules, payers: Payers | None, *, now: datetime) -> list[Standing]:
        """See Admin."""
        with self._lock:
            budgets = (rules.task_default, *rules.budgets)
            if payers is not None:
                return list(self._standings(tuple(self._seat(b, b.subject(payers)) for b in budgets)))
            used = [(b, a.seat) for b in budgets for a in self._accounts.values() if a.seat.budget.name == b.name]
            seats = tuple(self._seat(budget, seat.subject) for budget, seat in used if is_in(seat.span, self._now()))
            return [s for s in self._standings(seats) if s.spent or s.held or s.spent_tokens or s.held_tokens]

    def _hold(self, call: Call, rules: Rules, smaller: Smaller | None) -> Held | Short | Closed:
        if call.id in self._open:
            held = self._open[call.id]
            return Held(call, held.at, self._current(held.accounts))
        assert call.id not in self._done, "the call was resolved already"
        now, task = self._now(), call.payers.task
        if self._terms.get(task, _LIFETIME).closed:
            return Closed(now, task)
        self._default = rules.task_default
        seats = self._seats(call.payers, call.provider, call.model, rules)
        before = self._standings(seats)
        short = violations(before, call.quote)
        if short:
            lower = smaller(before) if smaller is not None else None
            if lower is None or violations(before, lower.quote):
                return Short(now, before, tuple(short))
            call = lower
        self._terms.setdefault(task, _LIFETIME)
        self._open[call.id] = _Open(call, now, [seat.account for seat in seats])
        for seat in seats:
            self._accounts[seat.account].balance.held_nano += call.quote.most.nano
            self._accounts[seat.account].balance.held_tokens += call.quote.tokens
        self._row("hold", self._open[call.id], call.quote.most.nano, call.quote.tokens)
        return Held(call, now, self._standings(seats))

    def _resolve(self, call_id: str, charge: Charge | None, outcome: Void) -> Future[Resolved]:
        if call_id in self._done:
            first, held = self._done[call_id]
            standings, spent = self._current(held.accounts), self._spent(held.call.payers.task)
            return _done(replace(first, first=False, standings=standings, task_spent=spent, crossed=()))
        if call_id not in self._open:
            failed: Future[Resolved] = Future()
            failed.set_exception(LedgerError(f"call {call_id} has no hold in this ledger"))
            return failed
        held = self._open.pop(call_id)
        resolved = self._close(held, charge)
        self._done[call_id] = (resolved, held)
        return _done(resolved)

    def _close(self, held: _Open, charge: Charge | None) -> Resolved:
        quote, task = held.call.quote, held.call.payers.task
        usd, tokens = (0, 0) if charge is None else (charge.amount.nano, charge.tokens)
        for name in held.accounts:
            balance = self._accounts[name].balance
            balance.held_nano -= quote.most.nano
            balance.held_tokens -= quote.tokens
            balance.spent_nano += usd
            balance.spent_tokens += tokens
        charges = self._charges.setdefault(task, [])
        if charge is not None:
            charges.append(charge.amount)
        self._row("void" if charge is None else "charge", held, usd, tokens)
        standings = self._current(held.accounts)
        return Resolved(
            call_id=held.call.id, first=True, charge=charge,
            over_hold=usd > quote.most.nano or 0 < quote.tokens < tokens, held=quote.most, at=self._now(),
            row_hash="", standings=standings, task_spent=self._spent(task),
            recent=tuple(reversed(charges[-RECENT:])), crossed=self._crossed(standings) if charge else (),
        )  # fmt: skip

    def _crossed(self, standings: tuple[Standing, ...]) -> tuple[tuple[str, str], ...]:
        crossed: list[tuple[str, str]] = []
        for standing in standings:
            account, passed = self._accounts[standing.account], passed_steps(standing, standing.budget.alert_at)
            crossed += [(standing.budget.name, step) for step in passed if step not in account.told]
            account.told = passed or account.told
        return tuple(crossed)

    def _seats(self, payers: Payers, provider: str, model: str, rules: Rules) -> tuple[Seat, ...]:
        own = own_budget(rules.task_default, self._terms.get(payers.task))
        return seats_of(payers, provider, model, rules, own, self._now(), self._spans)

    def _seat(self, budget: Budget, subject: str) -> Seat:
        limits = own_budget(budget, self._terms.get(subject)) if budget.own else budget
        return seat_of(limits, subject, self._now(), self._spans)

    def _standings(self, seats: tuple[Seat, ...]) -> tuple[Standing, ...]:
        for seat in seats:
            if seat.account not in self._accounts:
                self._accounts[seat.account] = _Account(seat, self._past(seat))
            self._accounts[seat.account].seat = seat
        return tuple(standing_of(seat, self._accounts[seat.account].balance) for seat in seats)

    def _past(self, seat: Seat) -> Balance:
        """Count what the window of a new account has seen, and let its open holds be charged to it."""
        balance = Balance()
        for resolved, held in self._done.values():
            if resolved.charge is not None and _belongs(held, seat):
                balance.spent_nano += resolved.charge.amount.nano
                balance.spent_tokens += resolved.charge.tokens
        for held in self._open.values():
            if _belongs(held, seat):
                balance.held_nano += held.call.quote.most.nano
                balance.held_tokens += held.call.quote.tokens
                held.accounts.append(seat.account)
        return balance

    def _current(self, accounts: list[str]) -> tuple[Standing, ...]:
        return tuple(self._standing(self._accounts[name]) for name in accounts)

    def _standing(self, account: _Account) -> Standing:
        seat = account.seat
        budget = self._default if seat.budget.own and self._default is not None else seat.budget
        limits = budget_in(budget, seat.span, self._terms.get(seat.subject))
        return standing_of(replace(seat, budget=limits), account.balance)

    def _rearm(self, seat: Seat) -> Standing:
        (standing,) = self._standings((seat,))
        account = self._accounts[seat.account]
        account.told = passed_steps(standing, account.told)
        return standing

    def _info(self, name: str) -> TaskInfo:
        terms, created = self._terms[name], self._created.get(name)
        if self._default is None:
            limit = None if terms.limit_nano is None else Money(terms.limit_nano)
            return TaskInfo(name, terms.window, limit, ZERO, ZERO, terms.closed, created)
        (own,) = self._standings((self._seat(self._default, name),))
        return TaskInfo(name, own.budget.window.kind, own.limit, own.spent, own.held, terms.closed, created)

    def _spent(self, task: str) -> Money:
        return sum(self._charges.get(task, []), ZERO)

    def _now(self) -> datetime:
        last = self.rows[-1].at if self.rows else None
        return self._clock() if last is None else max(self._clock(), last)

    def _row(self, kind: str, held: _Open, usd: int, tokens: int) -> None:
        call = held.call
        self.rows.append(Row(kind, self._now(), call.id, call.payers.task, usd, tokens, tuple(held.accounts)))

    def _event(self, code: str, task: str | None) -> None:
        self.rows.append(Row("event", self._now(), None, task, code=code))

    def _refused(self, due: list[Refused]) -> None:
        for refused in due:
            note, code = refused.note, refused.refusal.code
            self.rows.append(Row("refusal", self._now(), note.id, note.payers.task, count=refused.count, code=code))


def _belongs(held: _Open, seat: Seat) -> bool:
    call, budget = held.call, seat.budget
    applies = budget.applies(provider=call.provider, model=call.model)
    return applies and budget.subject(call.payers) == seat.subject and is_in(seat.span, held.at)


def _done[T](answer: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(answer)
    return future

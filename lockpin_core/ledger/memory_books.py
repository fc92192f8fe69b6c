"""The state of a ledger in plain dicts, and the steps on it. Nothing is kept on disk."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from lockpin_core.budgets import Budget, Standing, owner_of
from lockpin_core.call import Call, Charge, Payers, Void
from lockpin_core.clock import Clock, micros, monotonic_s
from lockpin_core.errors import LedgerError
from lockpin_core.ledger.accounts import (
    Balance,
    Seat,
    Spans,
    TaskTerms,
    budget_in,
    own_budget,
    seat_of,
    seats_of,
    standing_of,
)
from lockpin_core.ledger.alerts import Alerts, still_told
from lockpin_core.ledger.allowances import ENDED, GIVEN, Allowance, missing
from lockpin_core.ledger.coalesce import Coalescer, Refused
from lockpin_core.ledger.corrections import EXPIRED, LATE
from lockpin_core.ledger.definitions import COMMAND, CONFIG
from lockpin_core.ledger.memory_pauses import MemoryPauses
from lockpin_core.ledger.memory_questions import MemoryQuestions
from lockpin_core.ledger.memory_state import LIFETIME_TERMS, Account, Booked, Definition, Open, Row, belongs
from lockpin_core.ledger.memory_waiting import MemoryRoom, Turn, done, failed
from lockpin_core.ledger.protocol import (
    Answer,
    Closed,
    Held,
    Resolved,
    Rules,
    Short,
    Smaller,
    TaskInfo,
    Wait,
)
from lockpin_core.ledger.pulse import Ticks
from lockpin_core.ledger.tasks import RECENT
from lockpin_core.ledger.turns import (
    NOTHING,
    Amounts,
    Waiter,
    fitted,
    make_ticket,
    moved,
    sizes_left,
    sizes_of,
    stands,
    try_in_turn,
    with_waiters,
)
from lockpin_core.ledger.upstream import MemoryLinks
from lockpin_core.money import ZERO, Money
from lockpin_core.windows import kind_text


class MemoryBooks:
    """Accounts, open and resolved calls, definitions; one step at a time, under the caller's lock."""

    def __init__(self, *, clock: Clock, ticks: Ticks = monotonic_s) -> None:
        self.rows: list[Row] = []
        self._clock, self._ticks, self._spans = clock, ticks, Spans()
        self._lock, self._room = Turn(self._serve), MemoryRoom()
        self._accounts: dict[str, Account] = {}
        self._open: dict[str, Open] = {}
        self._done: dict[str, tuple[Resolved, Open]] = {}
        self._terms: dict[str, TaskTerms] = {}
        self._created: dict[str, datetime] = {}
        self._charges: dict[str, list[Money]] = {}
        self._last = datetime.min.replace(tzinfo=UTC)  # ledger time never steps back
        self._booked: dict[str, list[Booked]] = {}
        self._definitions: dict[str, Definition] = {}
        self._rules: Rules | None = None
        self._origin = ""  # of the configuration in force; with one, what stands here counts and not what a call brings
        self._coalescer, self._links, self._pauses = Coalescer(), MemoryLinks(), MemoryPauses(self._numbered_event)
        self._questions = MemoryQuestions(self.rows)
        self._keeps = False  # what was allowed once is not taken back just now: the next attempt's hold comes
        self._alerts = Alerts(
            lambda name: self._accounts[name].told, self._tell, lambda code, _: self._event(code, None)
        )  # fmt: skip

    @property
    def _default(self) -> Budget | None:
        return next((d.budget for d in self._definitions.values() if d.budget.own), None)

    def _charge_in_full(self, call_id: str, held: Open, reason: str) -> None:
        quote = held.call.quote
        self._resolve(call_id, Charge(quote.most, {}, quote.tokens, None, None, reason, estimated=True), Void(""))

    def _hold(
        self, call: Call, rules: Rules, smaller: Smaller | None, wait: Wait | None, *, out_of_turn: bool,
        allowed: str | None = None,
    ) -> Future[Answer]:  # fmt: skip
        if call.id in self._open:
            held = self._open[call.id]
            return done(Held(call, held.at, self._current(held.accounts)))
        assert call.id not in self._done, "the call was resolved already"
        if (waiting := self._room.future_of(call.id)) is not None:
            return waiting
        self._serve()
        ahead = NOTHING if out_of_turn else self._room.ahead_of_newcomers(micros(self._now()))
        if allowed is not None and self._is_allowed(call, rules, allowed, ahead):
            call, wait, ahead = replace(call, reserve=None), None, NOTHING  # its place is its own
        if wait is None:
            return done(self._try(call, rules, smaller, ahead))
        sizes = sizes_of(call, wait)
        answer = try_in_turn(lambda lower: self._try(call, rules, lower, ahead), call, smaller, sizes)
        if isinstance(answer, Short):
            if sizes := sizes_left(answer, sizes):
                found = stands(answer, sizes[0], ahead)
                ticket = make_ticket(self._room.next_number(), call, "", micros(self._now()), wait, found)
                deadline_s = self._ticks() + wait.patience.total_seconds()
                return self._room.enter(moved(Waiter(call, rules, smaller, ticket, deadline_s, sizes), sizes, found))
            answer = self._try(call, rules, smaller, NOTHING)
        return done(answer)

    def _is_allowed(self, call: Call, rules: Rules, question_id: str, ahead: Amounts) -> bool:
        """Let a call have what its task is short of, where a person allowed it, and say whether it fits now."""
        now, question = self._now(), self._questions.find(question_id)
        is_closed = self._terms.get(call.payers.task, LIFETIME_TERMS).closes(call.payers)
        is_shut = is_closed or self._pauses.of(call.payers, micros(now)) is not None
        if question is None or is_shut or not question.lets_go(call, now):
            return False
        if not self._origin:
            self._define(rules)
        seats = self._seats(call.payers, call.provider, call.model, self._in_force(rules))
        others = {name: amount for name, amount in ahead.items() if seats and name != seats[0].account}
        found = missing(call, question, with_waiters(self._standings(seats), others))
        if found is None:
            return False
        standing, nano = found
        if nano:
            leaves = self._accounts[standing.account].balance.allow(micros(now), nano)
            self._questions.allowances[call.id] = Allowance(standing.account, nano, leaves)
            self._event(GIVEN, call.payers.task)
            self._rearm(seats[0])
        self._questions.use(question_id, now)
        return True

    @contextlib.contextmanager
    def _changing(self, names: Sequence[str]) -> Iterator[None]:
        """Change accounts; where room comes free, as much of what was allowed once on them is taken back."""
        balances = [self._accounts[name].balance for name in names]
        for balance in balances:
            balance.pass_time(micros(self._now()))
        used = [balance.used_nano for balance in balances]
        yield
        for balance, before in zip(balances, () if self._keeps else used, strict=False):
            balance.free(before - balance.used_nano)

    def _forget_raises(self, name: str) -> None:
        self._accounts[name].balance.forget_raises()
        self._questions.forget_account(name)

    def _serve(self) -> None:
        """Try those who wait, if something may let one of them go."""
        at = micros(self._now())
        if not self._room.is_due(at, self._ticks()):
            return
        for call_id in self._room.serve(at, self._serve_one, self._ends):
            if call_id in self._open:
                self._resolve(call_id, None, Void("cancelled"))

    def _ends(self) -> list[int]:
        return [end for account in self._accounts.values() for end in account.ends()]

    def _serve_one(self, waiter: Waiter, ahead: Amounts) -> Answer | Waiter:
        call, at = waiter.call, micros(self._now())
        waited = at - waiter.ticket.since

        def attempt(lower: Smaller | None) -> Answer:
            return self._try(call, waiter.rules, lower, ahead, waited)

        answer = try_in_turn(attempt, call, waiter.smaller, waiter.sizes)
        if not isinstance(answer, Short):
            return answer
        is_over = at >= waiter.ticket.until or self._ticks() >= waiter.deadline_s
        sizes = () if is_over else sizes_left(answer, waiter.sizes)
        if sizes and (found := stands(answer, sizes[0], ahead)).short:  # else it has room, and cannot be so small
            return moved(waiter, sizes, found)
        return self._try(call, waiter.rules, waiter.smaller, NOTHING, waited)

    def _try(self, call: Call, rules: Rules, smaller: Smaller | None, ahead: Amounts, waited: int = 0) -> Answer:
        now, task = self._now(), call.payers.task
        if self._terms.get(task, LIFETIME_TERMS).closes(call.payers):
            return Closed(now, task)
        if (paused := self._pauses.of(call.payers, micros(now))) is not None:
            return paused
        if not self._origin:
            self._define(rules)
        seats = self._seats(call.payers, call.provider, call.model, self._in_force(rules))
        before = self._standings(seats)
        found = fitted(call, smaller, before, ahead, now)
        if isinstance(found, Short):
            return found
        call = found
        call = replace(call, waited_ms=call.waited_ms + waited // 1000) if waited else call
        self._terms.setdefault(task, LIFETIME_TERMS)
        self._open[call.id] = Open(call, now, [seat.account for seat in seats])
        for seat in seats:
            self._accounts[seat.account].balance.held_nano += call.quote.most.nano
            self._accounts[seat.account].balance.held_tokens += call.quote.tokens
            self._accounts[seat.account].counted.add(call.id)
        self._row("hold", self._open[call.id], call.quote.most.nano, call.quote.tokens)
        return Held(call, now, self._standings(seats), timedelta(microseconds=waited))

    def _shrink(self, call_id: str, most: Money, tokens: int) -> bool:
        held = self._open.get(call_id)
        if held is None:
            return False
        quote = held.call.quote
        now = replace(quote, most=min(quote.most, most), tokens=min(quote.tokens, tokens))
        less = (quote.most.nano - now.most.nano, quote.tokens - now.tokens)
        if not any(less):
            return False
        held.call = replace(held.call, quote=now)
        with self._changing(held.accounts):
            for name in held.accounts:
                self._accounts[name].balance.held_nano -= less[0]
                self._accounts[name].balance.held_tokens -= less[1]
        self._row("shrink", held, *less)
        return True

    def _resolve(self, call_id: str, charge: Charge | None, outcome: Void) -> Future[Resolved]:
        if call_id in self._done:
            first, held = self._done[call_id]
            is_late = charge is not None and self._is_late(first, charge)
            if charge is not None and is_late:
                first = replace(first, charge=charge)
                before = self._done[call_id][0].charge
                assert before is not None
                over = charge.amount > before.amount or 0 < before.tokens < charge.tokens
                self._done[call_id] = (replace(self._done[call_id][0], over_hold=over), held)
                first = replace(first, over_hold=over)
                self._book(call_id, charge.amount.nano - before.amount.nano, charge.tokens - before.tokens, LATE)
            standings, spent = self._current(held.accounts), self._spent(held.call.payers.task)
            crossed = self._alerts.spent(standings, call_id) if is_late else ()
            return done(replace(first, first=False, standings=standings, task_spent=spent, crossed=crossed))
        if call_id not in self._open:
            return failed(LedgerError(f"call {call_id} has no hold in this ledger"))
        held = self._open.pop(call_id)
        charge = charge and charge.within(held.call.quote.most, held.call.quote.tokens)
        resolved = self._close(held, charge)
        self._done[call_id] = (resolved, held)
        return done(resolved)

    def _is_late(self, first: Resolved, charge: Charge) -> bool:
        expired = first.charge is not None and first.charge.reason == EXPIRED and not charge.estimated
        return expired and first.call_id not in self._booked

    def _cost(self, call_id: str) -> Money:
        first, _ = self._done[call_id]
        usd = 0 if first.charge is None else first.charge.amount.nano
        return Money(usd + sum(booked.usd for booked in self._booked.get(call_id, [])))

    def _book(self, call_id: str, usd: int, tokens: int, code: str) -> tuple[Standing, ...]:
        """Book a difference on every account that counts the call."""
        _, held = self._done[call_id]
        self._booked.setdefault(call_id, []).append(Booked(usd, tokens, code))
        names = [n for n, a in self._accounts.items() if call_id in a.counted and call_id not in a.forgotten]
        now = micros(self._now())
        with self._changing(names):
            for name in names:
                self._accounts[name].balance.spend(micros(held.at), now, usd, tokens)
        self._charges.setdefault(held.call.payers.task, []).append(Money(usd))
        call = held.call
        self._write(Row("correction", self._now(), call.id, call.payers.task, usd, tokens, tuple(names), code=code))
        return self._current(names)

    def _define(self, rules: Rules) -> None:
        if rules is not self._rules:
            self._room.has_changed = True
            self._pauses.define(rules.breaker, CONFIG)
            self._apply(rules)
            self._rules = rules

    def _apply(self, rules: Rules) -> None:
        wanted = (rules.task_default, *rules.budgets)
        for budget in wanted:
            there = self._definitions.get(budget.name)
            if there is not None and there.source == COMMAND and not there.is_removed:
                raise LedgerError(f'budget "{budget.name}" was made by command too')
        for budget in wanted:
            self._put(budget, CONFIG)
        names = {budget.name for budget in wanted}
        for definition in self._definitions.values():
            if definition.source == CONFIG and definition.budget.name not in names:
                definition.is_removed = True

    def _put(self, budget: Budget, source: str) -> None:
        before = self._definitions.get(budget.name)
        if before is not None and (before.budget, before.source, before.is_removed) == (budget, source, False):
            return
        self._room.has_changed = True
        self._definitions[budget.name] = Definition(budget, source, self._now())
        if before is None or budget.own:
            return
        accounts = [a for a in self._accounts.values() if a.seat.budget.name == budget.name]
        for account in accounts:
            account.seat = replace(account.seat, budget=budget)
            if (before.budget.limit, before.budget.limit_tokens) != (budget.limit, budget.limit_tokens):
                self._forget_raises(account.seat.account)
            self._rearm(account.seat)
        turned = (before.budget.window, before.budget.scope) != (budget.window, budget.scope)
        for account in accounts:
            subject = account.seat.subject
            is_back = before.is_removed or turned or not before.budget.lists(subject)
            if is_back and budget.lists(subject) and account.seat.account == self._seat(budget, subject).account:
                self._catch_up(account)

    def _in_force(self, rules: Rules) -> Rules:
        if self._origin and self._rules is not None:
            rules = self._rules  # a call that waits was begun under those of before
        by_command = [d.budget for d in self._definitions.values() if d.source == COMMAND and not d.is_removed]
        names = {budget.name for budget in rules.budgets}
        return Rules((*rules.budgets, *(b for b in by_command if b.name not in names)), rules.task_default)

    def _as_in_force(self, budget: Budget) -> Budget:
        if budget.name not in self._definitions:
            self._put(budget, CONFIG)
        return self._definitions[budget.name].budget

    def _close(self, held: Open, charge: Charge | None) -> Resolved:
        quote, task = held.call.quote, held.call.payers.task
        usd, tokens = (0, 0) if charge is None else (charge.amount.nano, charge.tokens)
        with self._changing(held.accounts):
            for balance in [self._accounts[name].balance for name in held.accounts]:
                balance.held_nano -= quote.most.nano
                balance.held_tokens -= quote.tokens
                if usd or tokens:
                    balance.spend(micros(held.at), micros(self._now()), usd, tokens)
        if self._questions.allowances.pop(held.call.id, None) is not None:
            self._event(ENDED, task)
        charges = self._charges.setdefault(task, [])
        if charge is not None:
            charges.append(charge.amount)
        self._row("void" if charge is None else "charge", held, usd, tokens)
        tripped = self._pauses.charged(len(self.rows), held.call.payers, usd, micros(self._now())) if charge else ()
        standings = self._current(held.accounts)
        crossed = self._alerts.spent(standings, held.call.id) if charge else ()
        return Resolved(
            call_id=held.call.id, first=True, charge=charge,
            over_hold=usd > quote.most.nano or 0 < quote.tokens < tokens, held=quote.most, at=self._now(),
            row_hash="", standings=standings, task_spent=self._spent(task),
            recent=tuple(reversed(charges[-RECENT:])), crossed=crossed, tripped=tripped,
        )  # fmt: skip

    def _tell(self, name: str, told: list[str]) -> None:
        self._accounts[name].told = told

    def _seats(self, payers: Payers, provider: str, model: str | None, rules: Rules) -> tuple[Seat, ...]:
        own = own_budget(rules.task_default, self._terms.get(payers.task))
        return seats_of(payers, provider, model, rules, own, self._now(), self._spans)

    def _seat(self, budget: Budget, subject: str) -> Seat:
        limits = own_budget(budget, self._terms.get(subject)) if budget.own else budget
        return seat_of(limits, subject, self._now(), self._spans)

    def _standings(self, seats: tuple[Seat, ...]) -> tuple[Standing, ...]:
        for seat in seats:
            if seat.account not in self._accounts:
                balance = Balance(period_ms=seat.budget.window.period_ms)
                self._accounts[seat.account] = Account(seat, balance)
                self._catch_up(self._accounts[seat.account])
            self._accounts[seat.account].seat = seat
            self._accounts[seat.account].balance.pass_time(micros(self._now()))
        return tuple(standing_of(seat, self._accounts[seat.account].balance) for seat in seats)

    def _catch_up(self, account: Account) -> None:
        """Count what the window of an account has seen without it, and let its open holds be charged to it."""
        balance, now = account.balance, micros(self._now())
        for call_id, (resolved, held) in self._done.items():
            if call_id not in account.counted and belongs(held, account.seat):
                tokens = 0 if resolved.charge is None else resolved.charge.tokens
                tokens += sum(booked.tokens for booked in self._booked.get(call_id, []))
                balance.spend(micros(held.at), now, self._cost(call_id).nano, tokens)
                account.counted.add(call_id)
        for call_id, held in self._open.items():
            if call_id not in account.counted and belongs(held, account.seat):
                balance.held_nano += held.call.quote.most.nano
                balance.held_tokens += held.call.quote.tokens
                held.accounts.append(account.seat.account)
                account.counted.add(call_id)

    def _current(self, accounts: list[str]) -> tuple[Standing, ...]:
        return tuple(self._standing(self._accounts[name]) for name in accounts)

    def _standing(self, account: Account) -> Standing:
        seat = account.seat
        budget = self._default if seat.budget.own and self._default is not None else seat.budget
        owner = owner_of(seat.account)
        limits = budget_in(budget, seat.span, account.balance.period_ms, self._terms.get(seat.subject), owner)
        return standing_of(replace(seat, budget=limits), account.balance)

    def _rearm(self, seat: Seat) -> Standing:
        (standing,) = self._standings((seat,))
        account = self._accounts[seat.account]
        account.told = still_told(standing, account.told)
        return standing

    def _info(self, name: str) -> TaskInfo:
        terms, created = self._terms[name], self._created.get(name)
        if self._default is None:
            limit = None if terms.limit_nano is None else Money(terms.limit_nano)
            return TaskInfo(name, terms.window, limit, ZERO, ZERO, terms.closed, created, terms.user)
        (own,) = self._standings((self._seat(self._default, name),))
        window, sums = kind_text(own.budget.window), (own.limit, own.spent, own.held)
        return TaskInfo(name, window, *sums, terms.closed, created, terms.user)

    def _spent(self, task: str) -> Money:
        return sum(self._charges.get(task, []), ZERO)

    def _now(self) -> datetime:
        self._last = max(self._clock(), self._last)
        return self._last

    def _row(self, kind: str, held: Open, usd: int, tokens: int) -> None:
        call = held.call
        self._write(Row(kind, self._now(), call.id, call.payers.task, usd, tokens, tuple(held.accounts)))

    def _event(self, code: str, task: str | None) -> None:
        self._write(Row("event", self._now(), None, task, code=code))

    def _numbered_event(self, code: str, task: str | None) -> int:
        self._event(code, task)
        return len(self.rows)

    def _write(self, row: Row) -> None:
        """Keep a row that may let somebody go who waits."""
        self.rows.append(row)
        self._room.has_changed = True

    def _refused(self, due: list[Refused]) -> None:
        for refused in due:
            note, code = refused.note, refused.refusal.code
            self.rows.append(Row("refusal", self._now(), note.id, note.payers.task, count=refused.count, code=code))
            full = self._current([name for name in note.accounts if name in self._accounts])
            self._alerts.refused(full, note.id, micros(self._now()))

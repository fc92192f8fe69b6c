"""The same books in plain dicts: for tests and for playing history back. Nothing is kept on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime, timedelta

from lockpin_core.budgets import Budget, Standing
from lockpin_core.call import Call, Ceiling, Charge, Payers, Refusal, Void
from lockpin_core.clock import Clock, micros, monotonic_s
from lockpin_core.errors import CommandError, LedgerError, LedgerUnavailable
from lockpin_core.keys import KeyFacts, KeyRecord
from lockpin_core.ledger.accounts import Seat, TaskTerms, is_in
from lockpin_core.ledger.admin import (
    canonical_owner,
    canonical_reason,
    canonical_task,
    refuse_too_much,
    refuse_uncounted,
)
from lockpin_core.ledger.coalesce import Refused
from lockpin_core.ledger.corrections import CORRECTED, EXPIRED
from lockpin_core.ledger.definitions import COMMAND, CONFIG
from lockpin_core.ledger.keybook import limit_of
from lockpin_core.ledger.marks import Marks, MemoryMarks
from lockpin_core.ledger.memory_attempts import MemoryAttempts
from lockpin_core.ledger.memory_keys import MemoryKeys
from lockpin_core.ledger.memory_pause_admin import MemoryPauseAdmin
from lockpin_core.ledger.memory_state import LIFETIME_TERMS, Row, belongs
from lockpin_core.ledger.memory_waiting import done
from lockpin_core.ledger.pauses import Paused
from lockpin_core.ledger.protocol import (
    Answer,
    CallNote,
    Closed,
    Corrected,
    Deferred,
    Link,
    Resolved,
    Rules,
    Smaller,
    StoredBudget,
    TaskInfo,
    Wait,
)
from lockpin_core.ledger.pulse import Ticks
from lockpin_core.ledger.questions import ANSWERED, ASKED, CONTINUE, STOP, Asking, Question
from lockpin_core.money import Money


class MemoryLedger(MemoryPauseAdmin, MemoryAttempts):
    """A Ledger and an Admin whose futures are done when they are given."""

    def __init__(self, *, clock: Clock, ticks: Ticks = monotonic_s) -> None:
        super().__init__(clock=clock, ticks=ticks)
        self._keys, self._marks = MemoryKeys(), MemoryMarks()
        self.watchers = 0  # how many watch for questions

    def define(self, rules: Rules, origin: str = "", mode: str = "solo") -> Future[None]:
        """See Ledger. There is one process, so nobody can differ."""
        with self._lock:
            self._define(rules)
            self._origin = origin
            return done(None)

    def hold(
        self, call: Call, rules: Rules, smaller: Smaller | None = None, wait: Wait | None = None, *,
        out_of_turn: bool = False, allowed: str | None = None,
    ) -> Future[Answer]:  # fmt: skip
        """See Ledger. Who waits is tried at the end of every step, and of `look_after` where only time has passed."""
        wait = wait if wait is not None and wait.patience > timedelta(0) else None
        with self._lock:
            return self._hold(call, rules, smaller, wait, out_of_turn=out_of_turn, allowed=allowed)

    def paused(self, payers: Payers) -> Future[Paused | None]:
        """See Ledger."""
        with self._lock:
            return done(self._pauses.of(payers, micros(self._now())))

    def barred(self, payers: Payers) -> Future[Closed | Paused | None]:
        """See Ledger."""
        with self._lock:
            return done(self._barred(payers))

    def shrink(self, call_id: str, most: Money, tokens: int) -> Future[bool]:
        """See Ledger."""
        with self._lock:
            return done(self._shrink(call_id, most, tokens))

    def look(self, payers: Payers, provider: str, model: str | None, rules: Rules) -> Future[tuple[Standing, ...]]:
        """See Ledger."""
        with self._lock:
            return done(self._standings(self._seats(payers, provider, model, self._in_force(rules))))

    def settle(self, call_id: str, charge: Charge, link: Link | None = None) -> Future[Resolved]:
        """See Ledger."""
        with self._lock:
            answer = self._resolve(call_id, charge, Void(""))
            if answer.exception() is None:
                self._links.keep(call_id, link)
            return answer

    def void(self, call_id: str, outcome: Void) -> Future[Resolved]:
        """See Ledger."""
        with self._lock:
            return self._resolve(call_id, None, outcome)

    def replace(
        self, call_id: str, outcome: Charge | Void, call: Call, rules: Rules, *, keep: bool
    ) -> Future[tuple[Resolved | None, Answer]]:
        """See Ledger."""
        with self._lock, self._room.shut():
            return done(self._replace(call_id, outcome, call, rules, keep=keep))

    def cancel(self, call_id: str) -> None:
        """See Ledger."""
        with self._lock:
            self._room.leave(call_id)
            if call_id in self._open:
                self._resolve(call_id, None, Void("cancelled"))

    def defer(
        self, call_id: str, hold_for: timedelta, link: Link | None = None, ceiling: Ceiling | None = None
    ) -> Future[None]:
        """See Ledger. The call is here with its ceiling."""
        with self._lock:
            if call_id not in self._open:
                raise LedgerError(f"call {call_id} has no open hold in this ledger")
            self._open[call_id].expires = self._now() + hold_for
            self._links.keep(call_id, link)
            return done(None)

    def chain(self, provider: str, account: bytes, upstream_id: str) -> Future[Link | None]:
        """See Ledger."""
        with self._lock:
            return done(self._links.chain(Link(provider, account, upstream_id)))

    def deferred(self, provider: str, account: bytes, upstream_id: str) -> Future[Deferred | None]:
        """See Ledger."""
        with self._lock:
            call_id = self._links.call_of(Link(provider, account, upstream_id))
            held, ended = self._open.get(call_id), self._done.get(call_id)
            if held is not None and held.expires is not None:
                return done(Deferred(held.call, held.at, resolved=False))
            if ended is None or ended[0].charge is None or ended[0].charge.reason != EXPIRED or call_id in self._booked:
                return done(None)
            return done(Deferred(ended[1].call, ended[1].at, resolved=True))

    def look_after(self) -> None:
        """Charge the deferred holds whose time is over, and try those who wait."""
        with self._lock:
            for call_id, held in list(self._open.items()):
                if held.expires is not None and held.expires <= self._now():
                    self._charge_in_full(call_id, held, EXPIRED)

    def ask(self, asking: Asking) -> Future[Question | None]:
        """See Ledger."""
        with self._lock:
            found = self._questions.join(asking, self._now())
            if found is not None and (found.answer is not None or self.watchers):
                return done(found)
            if not self.watchers:
                return done(None)
            self._event(ASKED, asking.call.payers.task)
            return done(self._questions.put(asking, self._now()))

    def question(self, question_id: str) -> Future[Question | None]:
        """See Ledger."""
        with self._lock:
            return done(self._questions.find(question_id))

    def is_for_a_person(self, call: Call, rules: Rules) -> Future[bool]:
        """See Ledger."""
        with self._lock:
            return done(self.watchers > 0 and self._is_short(call, rules))

    def open_loops(self, payers: Payers) -> Future[tuple[Question, ...]]:
        """See Ledger."""
        with self._lock:
            now = self._now()
            found = (one for one in self._questions.every() if one.holds_up(payers) and one.is_open(now))
            return done(tuple(found) if self.watchers else ())

    def key(self, digest: bytes) -> Future[KeyRecord | None]:
        """See Ledger."""
        with self._lock:
            return done(self._keys.by_digest(digest, self._now()))

    def marks(self, conversation: bytes) -> Future[Marks]:
        """See Ledger."""
        with self._lock:
            return done(self._marks.read(conversation, self._now()))

    def marked(self, name: str, since: int) -> Future[tuple[Sequence[bytes], int]]:
        """See Ledger."""
        with self._lock:
            return done(self._marks.marked(name, since, self._now()))

    @property
    def others_wrote(self) -> int:
        """See Ledger."""
        return 0

    def mark(self, conversation: bytes, changes: Marks) -> None:
        """See Ledger."""
        with self._lock:
            self._marks.change(conversation, changes, self._now())

    def tell(self, code: str, data: Mapping[str, object], task: str | None = None) -> None:
        """See Ledger."""
        with self._lock:
            self._event(code, task)

    def profile(self, task: str) -> Future[Marks]:
        """See Ledger."""
        with self._lock:
            return done(self._marks.profile(task))

    def keep_profile(self, task: str, profile: Marks) -> None:
        """See Ledger."""
        with self._lock:
            self._marks.keep_profile(task, profile)

    def stop_task(self, payers: Payers, *, who: str, data: Mapping[str, object]) -> Future[bool]:
        """See Ledger."""
        with self._lock:
            return done(self._pauses.stop_task(payers.task, payers.user, micros(self._now())))

    def refuse(self, note: CallNote, refusal: Refusal) -> None:
        """See Ledger."""
        with self._lock:
            self._refused(self._coalescer.add(Refused(note, refusal), int(self._now().timestamp())))

    def uncapped(self, note: CallNote) -> None:
        """See Ledger."""
        with self._lock:
            self.rows.append(Row("uncapped", self._now(), note.id, note.payers.task, code=note.code))

    def stop(self) -> int:
        """See Ledger."""
        with self._lock:
            self._refused(self._coalescer.flush())
            self._room.send_away(LedgerUnavailable("the ledger is closed"))
            for call_id, held in list(self._open.items()):
                if held.expires is None:
                    self._charge_in_full(call_id, held, "lockpin_stopped")
            return 0

    def task_new(self, name: str, *, limit: Money | None, window: str, who: str, user: str | None = None) -> TaskInfo:
        """See Admin."""
        with self._lock:
            name, user = canonical_task(name), canonical_owner(user)
            refuse_too_much(limit, limit)
            before = self._terms.get(name, LIFETIME_TERMS)
            nano = before.limit_nano if limit is None else limit.nano
            self._terms[name] = TaskTerms(window, nano, None, closed=False, user=user or before.user)
            self._created.setdefault(name, self._now())
            self._event("task_new", name)
            if self._default is not None:
                seat = self._seat(self._default, name)
                if seat.account in self._accounts:
                    self._accounts[seat.account].seat = seat
                    self._catch_up(self._accounts[seat.account])
                if limit is not None:
                    self._standings((seat,))
                    self._forget_raises(seat.account)
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

    def budgets(self) -> list[StoredBudget]:
        """See Admin."""
        with self._lock:
            here = sorted((d for d in self._definitions.values() if not d.is_removed), key=lambda d: d.budget.name)
            return [d.shown() for d in here]

    def budget_set(self, budget: Budget, *, who: str) -> StoredBudget | None:
        """See Admin."""
        with self._lock:
            refuse_too_much(budget.limit, budget.limit)
            before = self._definitions.get(budget.name)
            if before is not None and not before.is_removed and before.source == CONFIG:
                raise CommandError(f'budget "{budget.name}" is one of the configuration')
            self._put(budget, COMMAND)
            return None if before is None or before.is_removed else before.shown()

    def budget_rm(self, name: str, *, who: str) -> StoredBudget:
        """See Admin."""
        with self._lock:
            before = self._definitions.get(name)
            if before is None or before.is_removed or before.source == CONFIG:
                raise CommandError(f'no budget "{name}" was made by command')
            before.is_removed = True
            self._event("budget_removed", None)
            return before.shown()

    def _counted_seat(self, budget: Budget, subject: str) -> Seat:
        now = self._as_in_force(budget)
        refuse_uncounted(now, subject)
        return self._seat(now, subject)

    def raise_budget(self, budget: Budget, subject: str, by: Money, *, who: str) -> Standing:
        """See Admin."""
        with self._lock:
            if by.nano <= 0:
                raise CommandError(f'"{by.exact()}" is no raise')
            seat = self._counted_seat(budget, subject)
            if seat.budget.limit is None:
                raise CommandError(f'"{by.exact()}" cannot be added to the limit of budget "{budget.name}"')
            self._standings((seat,))
            balance = self._accounts[seat.account].balance
            refuse_too_much(seat.budget.limit + Money(balance.raised_nano) + by, by)
            balance.add_raise(micros(self._now()), by.nano)
            self._event("budget_raised", None)
            return self._rearm(seat)

    def undo_raises(self, budget: Budget, subject: str, *, who: str) -> Standing:
        """See Admin."""
        with self._lock:
            seat = self._counted_seat(budget, subject)
            self._standings((seat,))
            if not self._accounts[seat.account].balance.raised_nano:
                raise CommandError(f'the limit of budget "{budget.name}" of "{subject}" was not raised')
            self._forget_raises(seat.account)
            self._event("raises_forgotten", None)
            return self._rearm(seat)

    def reset_budget(self, budget: Budget, subject: str, *, who: str) -> tuple[Standing, Standing]:
        """See Admin."""
        with self._lock:
            seat = self._counted_seat(budget, subject)
            (before,) = self._standings((seat,))
            account = self._accounts[seat.account]
            account.balance.forget_spend()
            account.told = []
            account.forgotten = {
                call for call in self._done if call in account.counted or belongs(self._done[call][1], seat)
            }
            account.counted |= account.forgotten
            self._event("budget_reset", None)
            return before, self._standings((seat,))[0]

    def correct(self, call_id: str, amount: Money, *, reason: str, who: str) -> Corrected:
        """See Admin."""
        with self._lock:
            if call_id not in self._done:
                raise CommandError(f'call "{call_id}" was never held here, or is in flight')
            before = self._cost(call_id)
            refuse_too_much(amount, amount)
            canonical_reason(reason)
            if before == amount:
                raise CommandError(f'call "{call_id}" costs ${amount.exact()} already')
            standings = self._book(call_id, amount.nano - before.nano, 0, CORRECTED)
            self._alerts.spent(standings, call_id)
            return Corrected(call_id, before, amount, standings)

    def standings(self, rules: Rules, payers: Payers | None, *, now: datetime) -> list[Standing]:
        """See Admin."""
        with self._lock:
            budgets = (rules.task_default, *rules.budgets)
            if payers is not None:
                theirs = (self._seat(b, subject) for b in budgets for subject in b.subjects(payers))
                return list(self._standings(tuple(seat for seat in theirs if seat.budget.is_for(payers))))
            used = [(b, a.seat) for b in budgets for a in self._accounts.values() if a.seat.budget.name == b.name]
            here = (self._seat(budget, seat.subject) for budget, seat in used if is_in(seat.span, self._now()))
            seats = {seat.account: seat for seat in here}  # a task may have had others' accounts
            return [
                s
                for s in self._standings(tuple(seats.values()))
                if s.spent or s.held or s.spent_tokens or s.held_tokens
            ]

    def questions(self) -> list[Question]:
        """See Admin."""
        with self._lock:
            return self._questions.every()

    def answer(self, question_id: str, answer: str, *, who: str, by: Money | None = None) -> Question:
        """See Admin."""
        with self._lock:
            question, amount = self._questions.amount_of(question_id, answer, by, self._now())
            raised = None
            if amount is not None and self._default is not None:
                raised = self.raise_budget(self._default, question.task, amount, who=who)
            if answer == STOP:
                self._pauses.stop_task(question.task, question.user, micros(self._now()))
            elif answer == CONTINUE:
                self._pauses.resume_task(question.task, question.user or "")
            self._event(ANSWERED, question.task)
            return replace(self._questions.answer(question, answer, who=who, now=self._now()), raised=raised)

    def key_list(self) -> list[KeyRecord]:
        """See Admin."""
        with self._lock:
            return self._keys.every(self._now())

    def key_create(
        self,
        key: str,
        facts: KeyFacts,
        digest: bytes,
        *,
        lifetime: timedelta | None,
        who: str,
        limit: Budget | None = None,
    ) -> KeyRecord:
        """See Admin."""
        with self._lock:
            if limit is not None:
                refuse_too_much(limit.limit, limit.limit)
            made = self._keys.make(key, facts, digest, lifetime=lifetime, now=self._now())
            self._event("key_created", None)
            if limit is not None:
                self._put(limit_of(key, limit), COMMAND)
            return made

    def key_rotate(
        self, key: str, digest: bytes, *, grace: timedelta, lifetime: timedelta | None, who: str
    ) -> KeyRecord:
        """See Admin."""
        with self._lock:
            made = self._keys.rotate(key, digest, grace=grace, lifetime=lifetime, now=self._now())
            self._event("key_rotated", None)
            return made

    def key_revoke(self, key: str, *, who: str) -> KeyRecord:
        """See Admin."""
        with self._lock:
            found, is_news = self._keys.revoke(key, now=self._now())
            if is_news:
                self._event("key_revoked", None)
            return found

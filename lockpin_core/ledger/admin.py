"""What commands change in a SQLite ledger: tasks and raised limits. Each is one transaction and one event's row."""

from __future__ import annotations

import contextlib
import shlex
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from lockpin_core.budgets import Budget, Standing
from lockpin_core.call import Payers
from lockpin_core.clock import Clock, NewId, instant
from lockpin_core.errors import CommandError, LedgerUnavailable
from lockpin_core.keys import KeyFacts, KeyRecord
from lockpin_core.ledger import keybook, questionbook
from lockpin_core.ledger.accounts import Seat, TaskTerms, own_budget, seat_of
from lockpin_core.ledger.books import Books
from lockpin_core.ledger.definitions import COMMAND, CONFIG, Stored, loosens
from lockpin_core.ledger.pauses import NO_BREAKER, BreakerRule, Subject, nobody_pauses, not_stopped
from lockpin_core.ledger.place import open_ledger
from lockpin_core.ledger.protocol import Corrected, Rules, StoredBudget, TaskInfo
from lockpin_core.ledger.questions import CONTINUE, STOP, Question
from lockpin_core.ledger.reader import standings_at
from lockpin_core.ledger.tasks import Task
from lockpin_core.money import MOST, ZERO, Money
from lockpin_core.names import ALLOWED, REASON_ALLOWED, USER_ALLOWED, canonical, canonical_user, shown, why_not
from lockpin_core.names import reason as reason_of
from lockpin_core.secret_forms import NO_SECRET, holds_secret
from lockpin_core.windows import Window, kind_text, named


class SqliteAdmin:
    """Commands' side of a ledger; every operation opens the file for itself, with a writer id of its own.

    Raises LedgerError where the path cannot be a ledger, LedgerUnavailable where it cannot be written just now, and
    CommandError for what cannot be done as asked.
    """

    def __init__(self, path: Path, *, clock: Clock, new_id: NewId) -> None:
        self._path, self._clock, self._new_id = path, clock, new_id

    def task_new(self, name: str, *, limit: Money | None, window: str, who: str, user: str | None = None) -> TaskInfo:
        """See Admin."""
        name, user = canonical_task(name), canonical_owner(user)
        _check_terms(limit, window)
        with self._transaction() as books:
            task = books.tasks.get(name) or Task(name, TaskTerms(window, None, None, closed=False))
            nano = task.terms.limit_nano if limit is None else limit.nano
            own = books.definitions.own()
            before = None if own is None else own_budget(own, task.terms)
            terms = replace(task.terms, window=window, limit_nano=nano, closed=False, user=user or task.terms.user)
            created = books.at if task.created is None else task.created
            books.tasks.put(replace(task, terms=terms, created=created))
            data: dict[str, object] = {"who": who, "limit_nano": nano, "window": window, "reopened": task.terms.closed}
            data["loosens"] = task.terms.closed or _loosens(before, own, terms)
            data |= {} if terms.user is None else {"user": terms.user}
            if own is not None and limit is not None:
                data["account"] = self._seat(books, own, name).account
            books.event("task_new", data, name)
            if own is not None:
                self._follow_task(books, own, name, forget=limit is not None)
            return _info(books, name)

    def _follow_task(self, books: Books, own: Budget, name: str, *, forget: bool) -> None:
        """Let a task's account follow its new terms; it may be one that has missed a time under other windows."""
        seat = self._seat(books, own, name)
        books.balances.catch_up(seat)
        if forget:
            books.balances.forget_raises(seat)
        books.balances.rearm(seat)

    def task_close(self, name: str, *, who: str) -> TaskInfo:
        """Close a task: its next calls are refused, its open ones settle as usual."""
        name = canonical_task(name)
        with self._transaction() as books:
            task = books.tasks.get(name)
            if task is None:
                raise CommandError(f'no task "{name}" in {self._path}; lockpin task list shows them')
            books.tasks.put(replace(task, terms=replace(task.terms, closed=True)))
            books.event("task_closed", {"who": who}, name)
            return _info(books, name)

    def tasks(self) -> list[TaskInfo]:
        """List every task that was made or used, by name."""
        with self._view() as (books, connection):
            names = connection.execute("SELECT name FROM tasks ORDER BY name").fetchall()
            return [_info(books, name) for (name,) in names]

    def task_resume(self, name: str, *, who: str) -> None:
        """See Admin."""
        name = canonical_task(name)
        with self._transaction() as books:
            if not books.resume_task(name, who=who):
                raise CommandError(not_stopped(name))

    def breaker_set(self, rule: BreakerRule, *, who: str) -> BreakerRule | None:
        """See Admin."""
        refuse_too_much(rule.usd, rule.usd)
        with self._transaction() as books:
            before = books.pauses.rule
            books.pauses.define(rule, COMMAND, {"who": who})
            return before

    def breaker_clear(self, *, who: str) -> BreakerRule | None:
        """See Admin."""
        with self._transaction() as books:
            if books.pauses.rule_by(COMMAND) is None:
                raise CommandError(NO_BREAKER)
            books.pauses.define(None, COMMAND, {"who": who})
            return books.pauses.rule

    def breaker_reset(self, scope: str | None = None, subject: str | None = None, *, who: str) -> list[Subject]:
        """See Admin."""
        with self._transaction() as books:
            found = books.pauses.reset(scope, subject, who=who)
            if not found:
                raise CommandError(nobody_pauses(scope, subject))
            return found

    def budgets(self) -> list[StoredBudget]:
        """See Admin."""
        with self._view() as (books, _):
            return [_stored(s) for s in books.definitions.all() if s.removed_at is None]

    def budget_set(self, budget: Budget, *, who: str) -> StoredBudget | None:
        """See Admin."""
        assert not budget.own, "a task's own budget is set by task_new"
        refuse_too_much(budget.limit, budget.limit)
        with self._transaction() as books:
            return _put(books, budget, who)

    def budget_rm(self, name: str, *, who: str) -> StoredBudget:
        """See Admin."""
        with self._transaction() as books:
            before = books.definitions.find(name)
            if before is None or before.removed_at is not None:
                made = ", ".join(budget.name for budget in books.definitions.by_command()) or "none"
                raise CommandError(f'no budget "{name}" was made by command; there is {made}')
            if before.source == CONFIG:
                raise CommandError(_in_config(name))
            books.definitions.remove(name, books.at, who=who)
            return _stored(before)

    def raise_budget(self, budget: Budget, subject: str, by: Money, *, who: str) -> Standing:
        """Add to the limit of a subject's current window; of a lifetime budget for good, of a rolling one for a
        period.
        """
        if by.nano <= 0:
            raise CommandError(f'"{by.exact()}" is no raise; a positive amount is allowed')
        with self._transaction() as books:
            return self._raise(books, budget, subject, by, who)

    def _raise(self, books: Books, budget: Budget, subject: str, by: Money, who: str) -> Standing:
        seat = self._counted_seat(books, budget, subject)
        if seat.budget.limit is None:
            raise CommandError(_not_raised(books, seat))
        refuse_too_much(seat.budget.limit + books.balances.raised(seat) + by, by)
        standing, leaves = books.balances.raise_limit(seat, by.nano)
        data: dict[str, object] = {"who": who, "budget": budget.name, "subject": subject, "account": seat.account}
        data |= {"by_nano": by.nano, "loosens": seat.budget.enforce}
        data |= {} if leaves is None else {"leaves_at": leaves}
        books.event("budget_raised", data, subject if budget.own else None)
        return standing

    def undo_raises(self, budget: Budget, subject: str, *, who: str) -> Standing:
        """See Admin."""
        with self._transaction() as books:
            seat = self._counted_seat(books, budget, subject)
            raised = books.balances.raised(seat)
            if not raised.nano:
                raise CommandError(f'the limit of budget "{budget.name}" of "{subject}" was not raised')
            books.balances.forget_raises(seat)
            data = {"account": seat.account, "raised_nano": raised.nano, "who": who}
            books.event("raises_forgotten", data, subject if budget.own else None)
            return books.balances.rearm(seat)

    def reset_budget(self, budget: Budget, subject: str, *, who: str) -> tuple[Standing, Standing]:
        """See Admin."""
        with self._transaction() as books:
            seat = self._counted_seat(books, budget, subject)
            before, after = books.balances.reset(seat)
            data: dict[str, object] = {"who": who, "budget": budget.name, "subject": subject, "account": seat.account}
            data |= {"spent_nano": before.spent.nano, "spent_tokens": before.spent_tokens}
            data["loosens"] = seat.budget.enforce
            books.event("budget_reset", data, subject if budget.own else None)
            return before, after

    def correct(self, call_id: str, amount: Money, *, reason: str, who: str) -> Corrected:
        """See Admin."""
        if amount.nano < 0:
            raise CommandError(f'"{amount.exact()}" is no cost; an amount of zero or more is allowed')
        refuse_too_much(amount, amount)
        words = canonical_reason(reason)
        with self._transaction() as books:
            before, accounts, task = books.corrections.correct(call_id, amount, reason=words, who=who)
            standings = books.balances.current(accounts, books.terms(task))
            books.alerts.spent(standings, call_id)
            return Corrected(call_id, before, amount, standings)

    def standings(self, rules: Rules, payers: Payers | None, *, now: datetime) -> list[Standing]:
        """Show the current windows' accounts: a payer's, also at zero, or all with something spent or held."""
        with self._view(now) as (books, _):
            return standings_at(books.balances, books.tasks, rules, payers, books.now)

    def questions(self) -> list[Question]:
        """See Admin."""
        with self._view() as (books, connection):
            return questionbook.every(connection, books.at)

    def answer(self, question_id: str, answer: str, *, who: str, by: Money | None = None) -> Question:
        """See Admin."""
        with self._transaction() as books:
            question, amount = questionbook.answer(books, question_id, answer, by=by, who=who)
            own = books.definitions.own()
            if amount is not None and own is not None:
                question = replace(question, raised=self._raise(books, own, question.task, amount, who))
            if answer == STOP:
                books.stop_task(question.task, user=question.user, who=who)
            elif answer == CONTINUE:
                books.resume_task(question.task, user=question.user or "", who=who)
            return question

    def key_list(self) -> list[KeyRecord]:
        """See Admin."""
        with self._view() as (books, connection):
            return keybook.every(connection, books.now)

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
        if limit is not None:
            refuse_too_much(limit.limit, limit.limit)
        with self._transaction() as books:
            made = keybook.make(books, key, facts, digest, lifetime=lifetime, who=who)
            if limit is not None:
                _put(books, keybook.limit_of(key, limit), who)
            return made

    def key_rotate(
        self, key: str, digest: bytes, *, grace: timedelta, lifetime: timedelta | None, who: str
    ) -> KeyRecord:
        """See Admin."""
        with self._transaction() as books:
            return keybook.rotate(books, key, digest, grace=grace, lifetime=lifetime, who=who)

    def key_revoke(self, key: str, *, who: str) -> KeyRecord:
        """See Admin."""
        with self._transaction() as books:
            return keybook.revoke(books, key, who=who)

    @staticmethod
    def _as_in_force(books: Books, budget: Budget) -> Budget:
        """Take a budget as the ledger has it; where no proxy has run yet, as it was given, and have it stored."""
        stored = books.definitions.find(budget.name)
        if stored is None:
            books.definitions.put(budget, CONFIG, books.at, who=None)
            return budget
        if stored.removed_at is not None:
            raise CommandError(
                f'budget "{budget.name}" is not in force any more; `lockpin budget status` lists those that are'
            )
        return stored.budget

    def _counted_seat(self, books: Books, budget: Budget, subject: str) -> Seat:
        """Find an account of a budget as it is in force. Raises CommandError where it does not count the subject."""
        now = self._as_in_force(books, budget)
        refuse_uncounted(now, subject)
        return self._seat(books, now, subject)

    @staticmethod
    def _seat(books: Books, budget: Budget, subject: str) -> Seat:
        limits = own_budget(budget, books.terms(subject)) if budget.own else budget
        return seat_of(limits, subject, books.now, books.balances.spans)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Books]:
        with self._opened() as connection, _unavailable():
            books = Books(connection, self._new_id())
            connection.execute("BEGIN IMMEDIATE")
            books.begin(self._clock())
            yield books
            books.flush()
            connection.execute("COMMIT")

    @contextlib.contextmanager
    def _view(self, now: datetime | None = None) -> Iterator[tuple[Books, sqlite3.Connection]]:
        with self._opened() as connection, _unavailable():
            books = Books(connection, self._new_id())
            connection.execute("BEGIN")
            books.begin(now or self._clock())
            yield books, connection

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the ledger; closing it undoes what was not committed."""
        with contextlib.closing(open_ledger(self._path, durability="full", new_id=self._new_id)) as connection:
            yield connection


def _not_raised(books: Books, seat: Seat) -> str:
    """Say that a limit is none in dollars, and what gives more tokens in place of a raise."""
    budget, stored = seat.budget, books.definitions.find(seat.budget.name)
    words = f'budget "{budget.name}" of "{seat.subject}" has no dollar limit to raise'
    if budget.limit_tokens is None:
        return words
    name = shlex.quote(budget.name)
    way = "limit_tokens in lockpin.yaml" if stored and stored.source == CONFIG else None
    way = way or f"`lockpin budget set {name} --limit-tokens N`"
    again = f"`lockpin budget reset {name} --key {shlex.quote(f'{budget.scope}:{seat.subject}')}`"
    return f"{words}, only one of {budget.limit_tokens:,} tokens: {way} sets another, {again} lets it count from now on"


def _put(books: Books, budget: Budget, who: str) -> StoredBudget | None:
    """Put a budget of a command's in force; give what it was before."""
    before = books.definitions.find(budget.name)
    if before is not None and before.removed_at is None and before.source == CONFIG:
        raise CommandError(_in_config(budget.name))
    change = books.definitions.put(budget, COMMAND, books.at, who=who)
    if change is not None:
        books.follow([change])
    return _stored(before) if before is not None and before.removed_at is None else None


def canonical_task(name: str) -> str:
    """Give a task's name in its one form. Raises CommandError where no task may be called so."""
    found = canonical(name)
    if found is None:
        raise CommandError(why_not("task name", name, ALLOWED))
    return found


def canonical_owner(user: str | None) -> str | None:
    """Give a user's id in its one form. Raises CommandError where nobody may be called so."""
    found = None if user is None else canonical_user(user)
    if user is not None and found is None:
        raise CommandError(why_not("user", user, USER_ALLOWED))
    return found


def canonical_reason(text: str) -> str:
    """Give a reason as one line. Raises CommandError where it says nothing, or has what no terminal should be told."""
    found = reason_of(text)
    if found is None:
        words = f'reason "{shown(text, 40)}" of {len(text)} characters is not allowed; {REASON_ALLOWED} are'
        raise CommandError(f"the reason {NO_SECRET}" if holds_secret(text) else words)
    return found


def refuse_too_much(total: Money | None, named: Money | None) -> None:
    """Raise CommandError where a limit or a cost would be above the most; `named` is what was asked for."""
    if total is not None and named is not None and total > MOST:
        raise CommandError(f'"{named.exact()}" is too much; limits and costs up to ${MOST.exact()} are allowed')


def refuse_uncounted(budget: Budget, subject: str) -> None:
    """Raise CommandError where a budget names others than this subject of its scope."""
    only = budget.only()
    if not budget.lists(subject) or (only and subject not in only):
        others = ", ".join(only)
        raise CommandError(f'budget "{budget.name}" has no account for {budget.scope} "{subject}", only for {others}')


def _check_terms(limit: Money | None, window: str) -> None:
    try:
        named(window, Window("lifetime"))
    except ValueError:
        allowed = "lifetime, day, week, month or rolling with a period is allowed"
        raise CommandError(f'window is "{window}"; {allowed}') from None
    if limit is not None and limit.nano < 0:
        raise CommandError(f'budget is "{limit.exact()}"; a positive amount is allowed')
    refuse_too_much(limit, limit)


def _in_config(name: str) -> str:
    return f'budget "{name}" is one of the configuration; change it in lockpin.yaml, the proxy applies it at once'


def _loosens(before: Budget | None, own: Budget | None, terms: TaskTerms) -> bool:
    return own is not None and loosens(before, own_budget(own, terms))


def _stored(stored: Stored) -> StoredBudget:
    return StoredBudget(stored.budget, stored.source, instant(stored.since))


def _info(books: Books, name: str) -> TaskInfo:
    task, own = books.tasks.get(name), books.definitions.own()
    assert task is not None, "a listed task is gone"
    created = None if task.created is None else instant(task.created)
    if own is None:
        limit = None if task.terms.limit_nano is None else Money(task.terms.limit_nano)
        return TaskInfo(name, task.terms.window, limit, ZERO, ZERO, task.terms.closed, created, task.terms.user)
    seat = seat_of(own_budget(own, task.terms), name, books.now, books.balances.spans)
    (standing,) = books.balances.peek((seat,))
    window, terms = kind_text(seat.budget.window), task.terms
    return TaskInfo(name, window, standing.limit, standing.spent, standing.held, terms.closed, created, terms.user)


@contextlib.contextmanager
def _unavailable() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise LedgerUnavailable(f"the ledger cannot be written: {error}") from error

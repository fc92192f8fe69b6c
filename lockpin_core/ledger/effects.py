"""What rows make of accounts, tasks and budgets, events above all. Pure: knows no SQL.

It is the ground that `Replay` stands on, which takes the rows of calls.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from lockpin_core.budgets import SCOPES, Budget, account_id, subjects_in
from lockpin_core.call import Payers
from lockpin_core.clock import instant
from lockpin_core.ledger.accounts import TaskTerms, own_budget, users_of
from lockpin_core.ledger.allowances import ENDED, GIVEN, PASSED_ON
from lockpin_core.ledger.definitions import budget_of, loosens
from lockpin_core.ledger.expected import Content, Earlier, Nothing, Seating, Spend, Wrong, rolling_since
from lockpin_core.ledger.key_states import CODES, KeyStates
from lockpin_core.ledger.pause_states import CODES as PAUSE_CODES
from lockpin_core.ledger.pause_states import PauseStates
from lockpin_core.ledger.question_states import QuestionStates
from lockpin_core.ledger.questions import ANSWERED, ASKED
from lockpin_core.ledger.tally import Defined, Name, OpenCall, Tally, Task, amount, shown
from lockpin_core.ledger.whose import is_of
from lockpin_core.windows import leaves_at, span_at

_TOLD = ("name", "source", "who", "origin", "loosens")  # what an event says of a definition beside the definition
_SUMS = ("spent_nano", "held_nano", "spent_tokens", "held_tokens")

_NOTHING = Nothing()


class Effects:
    """The state of everything, and what events do to it."""

    def __init__(self, earlier: Earlier = _NOTHING) -> None:
        self.row, self.at = 0, 0
        self.ends: dict[str, tuple[int, bytes]] = {}
        self.definitions: dict[str, Defined] = {}
        self.tasks: dict[str, Task] = {}
        self.keys, self.questions, self.pauses = KeyStates(), QuestionStates(), PauseStates()
        # What the last row is for: a kind, a call, how much for it, and who has what is left, or whose the hold is.
        self.next: tuple[str, str, int, str] | None = None
        self.accounts: dict[str, Tally] = {}
        self.open: dict[str, OpenCall] = {}
        self.calls, self.over_hold = 0, 0
        self.unjudged = 0  # calls whose accounts were not judged, as their rows are of version 1
        self.is_new = False  # a row was seen that version 1 did not write: the same holds for all after it
        self._keeps = False  # what was allowed once is not taken back at this row
        self.taken_out: Content | None = None  # what the last event says of rows that were taken out
        self._earlier = earlier
        self._generation = 0  # counts what may change limits
        self._content: Content = {}
        self._seating = Seating(self.definitions, self.tasks)
        self._by_subject: dict[tuple[str, str], list[str]] = defaultdict(list)  # accounts, by scope and subject
        self._charged: dict[tuple[str, str], int] = {}  # when one of a scope was charged last, since `_charged_from`
        self._charged_from: int | None = None  # None: from the first row on

    def _wrong(self, words: str) -> Wrong:
        return Wrong(self.row, words, self._content)

    def _account(self, name: str, counted: int | None = None) -> Tally:
        """Find an account; `counted`: up to which row one that no event has opened counts what is not listed on it."""
        account = self.accounts.get(name)
        if account is None:
            account = self._new_account(name)
            if counted is None:
                self._begin_by_use(account)
            elif self.is_new:
                account.counted_row = counted
        else:
            account.expire(self.at)
        return account

    def _new_account(self, name: str) -> Tally:
        account = self.accounts[name] = Tally(name, Name.parse(name))
        self._by_subject[account.name.scope, account.name.subject].append(name)
        return account

    def _begin_by_use(self, account: Tally) -> None:
        """Take an account that no event has opened, as it was written before where nothing was to be counted."""
        if not self.is_new or account.name.budget not in self.definitions:
            return
        account.counted_row = self.row - 1
        if self._uncounted(account):
            raise self._wrong(f"{shown(account.id)} begins with nothing held, and open calls are its own")
        self._compare_past(account, Tally(account.id, account.name), self._past(account))

    def _put_limit(self, account: Tally) -> None:
        """Put to an account the limit that is in force for it."""
        if account.generation != self._generation:
            account.generation, account.budget, account.fault = self._generation, None, ""
            defined = self.definitions.get(account.name.budget)
            if defined is None:
                account.fault = f'it is on budget "{account.name.budget}", which nobody has defined'
                return
            task = self.tasks.get(account.name.subject) if defined.budget.own else None
            account.take_limits(defined, None if task is None else task.terms)
            if defined.removed_at is None and defined.budget.lists(account.name.subject):
                self._put_budget(account, defined.budget)

    def _put_budget(self, account: Tally, budget: Budget) -> None:
        name = account.name
        budget = self._as_in_force(budget, name.subject)
        now = instant(self.at if name.start is None else name.start)
        if account_id(budget, name.subject, span_at(budget.window, now)) == account.id:
            account.budget = budget
        else:
            what = "owner" if budget.own and budget.users != users_of(name.owner) else "window in force"
            account.fault = f"it is on {shown(account.id)}, but the {what} is another"

    def _as_in_force(self, budget: Budget, subject: str) -> Budget:
        task = self.tasks.get(subject) if budget.own else None
        return own_budget(budget, None if task is None else task.terms)

    def _changed(self) -> None:
        """Note that limits, or whose accounts are which, may be others from here on."""
        self._generation += 1
        self._seating.forget()

    def _task(self, name: str) -> Task:
        return self.tasks.setdefault(name, Task())

    def _event(self, content: Content) -> None:
        effect = _EVENTS.get(content["code"])
        if effect is not None:
            data = json.loads(content["data"])
            self.is_new = self.is_new or "source" in data or "loosens" in data
            effect(self, data)

    def _budget_defined(self, data: Content) -> None:
        told = {name: value for name, value in data.items() if name not in _TOLD}
        name, before = data["name"], self.definitions.get(data["name"])
        budget = budget_of(name, told)
        self.definitions[name] = Defined(budget, self.at, data.get("source", "config"), None, self.row)
        self._changed()
        self._compare_loosens(data, loosened=loosens(None if before is None else before.in_force, budget))

    def _budget_removed(self, data: Content) -> None:
        before = self.definitions[data["name"]]
        if before.removed_at is not None:
            raise self._wrong("its budget was removed before")
        self.definitions[data["name"]] = replace(before, removed_at=self.at)
        self._changed()
        self._compare_loosens(data, loosened=loosens(before.budget, None))

    def _compare_loosens(self, data: Content, *, loosened: bool) -> None:
        if self.is_new and data["loosens"] is not loosened:
            raise self._wrong(f"it {'loosens' if loosened else 'does not loosen'} a limit, and says otherwise")

    def _account_opened(self, data: Content) -> None:
        name = data["account"]
        if name in self.accounts:
            raise self._wrong(f"{shown(name)} was opened before")
        account = self._new_account(name)
        self.is_new = self.is_new or not (data["calls"] or any(data[column] for column in _SUMS))
        self._count(account, data)
        self._compare_past(account, account, self._past(account))
        self._end_count(account, self.row - 1)

    def _account_caught_up(self, data: Content) -> None:
        account = self._account(data["account"], counted=0)
        if data.get("pruned"):
            self._count_pruned(account, data)
            return
        missed, after = None, self._counted_before(account, data)
        if after is not None:
            missed = self._earlier.missed(account.name, self._since(account), after, account.id, (self.row, self.at))
        self._compare_past(account, self._count(account, data), missed)
        self._end_count(account, self.row - 1, after or 0)

    def _counted_before(self, account: Tally, data: Content) -> int | None:
        """Give the row up to which an account had counted; None: no row tells."""
        said, known = data.get("rows_from"), account.counted_row
        if said is not None and known is not None and said != known:
            raise self._wrong(f"{shown(account.id)} had counted up to row {known}, and not {said}")
        return said if known is None else known

    def _count_pruned(self, account: Tally, data: Content) -> None:
        """Take what an account that is away counts of rows that are taken out: they are not there to be compared."""
        rows_to, taken_to = data["rows_to"], self._earlier.taken_to
        self._put_limit(account)
        is_away = account.budget is None and account.name.start is None and account.name.period_ms is None
        if not is_away or data["calls"] or data["held_nano"] or data["held_tokens"]:
            raise self._wrong(f"{shown(account.id)} does not count what is taken out")
        if not (account.counted_row or 0) < rows_to < self.row or (taken_to is not None and rows_to > taken_to):
            raise self._wrong("the rows that it speaks of were not taken out")
        after = self._counted_before(account, data)
        self._count(account, {**data, "calls": ()}, is_pruned=True)
        self._end_count(account, rows_to, after or 0)

    def _end_count(self, account: Tally, rows_to: int, rows_from: int = 0) -> None:
        """Note up to which row an account has counted; before there were such numbers, nothing can be said of it."""
        account.count_up(rows_to, self._budget_of(account), rows_from)
        if not self.is_new:
            account.counted_row, account.is_counted_told = None, False

    def _since(self, account: Tally) -> int | None:
        """Give the instant from which holds can count on an account; None: from the first on."""
        period_ms = account.name.period_ms
        return account.name.start if period_ms is None else rolling_since(self.at, period_ms)

    def _past(self, account: Tally) -> Iterable[Spend] | None:
        """Ask for what a new account's subject has spent."""
        name, since = account.name, self._since(account)
        from_ = self._charged_from
        if from_ is None or (since is not None and since > from_):
            last = self._charged.get((name.scope, name.subject))
            if last is None or (since is not None and last < since):
                return ()
        return self._earlier.spends(name, since, (self.row, self.at))

    def _note_charge(self, payers: Payers) -> None:
        """Remember who was charged, so that nobody need look for what others have spent."""
        for scope in SCOPES:
            for subject in subjects_in(scope, payers):
                self._charged[scope, subject] = self.at

    def _compare_past(self, account: Tally, said: Tally, spends: Iterable[Spend] | None) -> None:
        """Check that an account counts what its window has seen."""
        if spends is None:
            return
        past = Tally(account.id, account.name)
        budget, subject = self._budget_of(account), account.name.subject
        for *who, usd, tokens, held_at in spends:
            if past.contains(held_at) and is_of(budget, subject, *who):
                past.spend(held_at, self.at, usd, tokens)
        if (past.spent(), past.spent_steps()) != (said.spent(), said.spent_steps()):
            told, seen = amount(*said.spent()), amount(*past.spent())
            raise self._wrong(f"{shown(account.id)} begins with {told} spent, and the rows before say {seen}")

    def _count(self, account: Tally, data: Content, *, is_pruned: bool = False) -> Tally:
        """Add what an event says to an account, and give just that."""
        missed = {} if is_pruned else self._uncounted(account)
        held = (sum(call.usd for call in missed.values()), sum(call.tokens for call in missed.values()))
        if set(data["calls"]) != set(missed) or held != (data["held_nano"], data["held_tokens"]):
            raise self._wrong(f"what it says to be held on {shown(account.id)} is not what its open calls hold")
        for call in missed.values():
            call.accounts = (*call.accounts, account.id)
        account.balance.held_nano += held[0]
        account.balance.held_tokens += held[1]
        said = Tally(account.id, account.name)
        if account.name.period_ms is None:
            said.balance.spent_nano, said.balance.spent_tokens = data["spent_nano"], data["spent_tokens"]
        for leaves, usd, tokens in data.get("steps", ()):
            said.add_step(leaves, self.at, usd, tokens, 0)
        if said.spent() != (data["spent_nano"], data["spent_tokens"]) or said.is_below_zero():
            raise self._wrong(f"what it says to be spent on {shown(account.id)} cannot be")
        account.add(said, self.at)
        return said

    def _uncounted(self, account: Tally) -> dict[str, OpenCall]:
        """Find the open calls that belong to an account and are not on it."""
        budget, subject = self._budget_of(account), account.name.subject
        return {
            call: held
            for call, held in self.open.items()
            if account.contains(held.at) and account.id not in held.accounts and is_of(budget, subject, *held.who)
        }

    def _budget_of(self, account: Tally) -> Budget:
        """Give the budget of an account, in force or not; a task's own with the terms of its task, for its user."""
        budget = self._as_in_force(self.definitions[account.name.budget].budget, account.name.subject)
        return replace(budget, users=users_of(account.name.owner)) if budget.own else budget

    def _budget_raised(self, data: Content) -> None:
        account, by = self._account(data["account"]), data["by_nano"]
        if by <= 0:
            raise self._wrong("it raises by nothing")
        self._compare_loosens(data, loosened=self._enforces(account))
        self._raise(account, by, data)

    def _raise(self, account: Tally, by: int, data: Content, *, once: bool = False) -> None:
        period_ms = account.name.period_ms
        if period_ms is None:
            account.balance.raised_nano += by
            account.balance.allowed_nano += by if once else 0
        elif data["leaves_at"] != leaves_at(self.at, period_ms):
            raise self._wrong(f"it does not leave {shown(account.id)} after one period")
        else:
            account.add_step(data["leaves_at"], self.at, 0, 0, by, by if once else 0)

    def _budget_reset(self, data: Content) -> None:
        account = self._account(data["account"])
        self._compare_loosens(data, loosened=self._enforces(account))
        spent = (data["spent_nano"], data["spent_tokens"])
        if spent != account.spent():
            words = f"{amount(*spent)} off {shown(account.id)}, which has spent {amount(*account.spent())}"
            raise self._wrong(f"it takes {words}")
        account.reset(self.row - 1)

    def _raises_forgotten(self, data: Content) -> None:
        account = self._account(data["account"])
        if account.balance.raised_nano != data["raised_nano"]:
            raise self._wrong(f"what it takes off {shown(account.id)} is not what that was raised by")
        self._forget_raises(account)

    def _forget_raises(self, account: Tally) -> None:
        account.forget_raises()
        self.questions.forget(account.id)

    def _enforces(self, account: Tally) -> bool:
        return self.is_new and self._budget_of(account).enforce

    def _task_new(self, data: Content) -> None:
        name = self._content["task"]
        task, own = self._task(name), self._own()
        before = task.terms
        user = data.get("user")
        task.terms = replace(before, window=data["window"], limit_nano=data["limit_nano"], closed=False, user=user)
        task.created, task.row = self.at if task.created is None else task.created, self.row
        self._changed()
        if self.is_new and data["reopened"] is not before.closed:
            raise self._wrong(f'its task "{name}" was {"" if before.closed else "not "}closed')
        self._compare_loosens(data, loosened=before.closed or _is_looser(own, before, task.terms))
        account = data.get("account")
        if not self.is_new:  # version 1 names no account: there every limit takes the raises back
            account = self._own_account(name, own, task.terms)
        if account is not None and account in self.accounts:
            self._forget_raises(self._account(account))

    def _own(self) -> Budget | None:
        return next((defined.budget for _, defined in sorted(self.definitions.items()) if defined.budget.own), None)

    def _own_account(self, task: str, own: Budget | None, terms: TaskTerms) -> str | None:
        if own is None or terms.limit_nano is None:
            return None
        budget = own_budget(own, terms)
        return account_id(budget, task, span_at(budget.window, instant(self.at)))

    def _task_closed(self, data: Content) -> None:
        task = self.tasks[self._content["task"]]
        task.terms, task.row = replace(task.terms, closed=True), self.row
        self._changed()

    def _hold_deferred(self, data: Content) -> None:
        self.open[data["call"]].until = data["until"]

    def _hold_adopted(self, data: Content) -> None:
        for call in data["calls"]:
            self.open[call].writer = self._content["writer"]

    def _key_changed(self, data: Content) -> None:
        self._check(self.keys.apply(self._content["code"], data, self.at))

    def _paused(self, data: Content) -> None:
        self._check(self.pauses.apply(self._content["code"], data, self.row, self.at))

    def _question_asked(self, data: Content) -> None:
        self._check(self.questions.ask(data, self._content["task"], self.row, self.at))

    def _question_answered(self, data: Content) -> None:
        self._check(self.questions.answer(data, self.at))

    def _allowed_once(self, data: Content) -> None:
        account, task = self._account(data["account"]), self._content["task"]
        if not self._budget_of(account).own or account.name.subject != task:
            raise self._wrong(f'{shown(account.id)} is not the own budget of task "{task}"')
        user = self.questions.user_of(data["question"])
        self._check(self.questions.allow(data, task, self.at))
        self._compare_loosens(data, loosened=self._enforces(account))
        self._raise(account, data["by_nano"], data, once=True)
        self.next = "hold", data["call"], data["by_nano"], user or ""

    def _allowance_ended(self, data: Content) -> None:
        call, by = data["call"], data["by_nano"]
        given = self.questions.allowances.get(call)
        is_its = given is not None and given.account == data["account"]
        if not is_its or not 0 <= by <= self._account(data["account"]).balance.allowed_nano:
            raise self._wrong(f"it takes back what call {call} was not allowed")
        self.next = "end", call, by, ""

    def _allowance_passed_on(self, data: Content) -> None:
        call, to = data["call"], data["to"]
        given = self.questions.allowances.pop(call, None)
        told = (data["account"], data["by_nano"])
        if given is None or (given.account, given.nano) != told or to in self.questions.allowances or to in self.open:
            raise self._wrong(f"it passes on what call {call} was not allowed")
        self.questions.allowances[to] = given
        self.next = "void", call, 0, to

    def _check(self, words: str | None) -> None:
        if words is not None:
            raise self._wrong(words)

    def _rows_taken_out(self, data: Content) -> None:
        self.taken_out = {name: data[name] for name in ("rows_to", "state_sha256", "totals_sha256")}


_EVENTS: Mapping[str, Callable[[Effects, Content], None]] = {
    "budget_defined": Effects._budget_defined,
    "budget_removed": Effects._budget_removed,
    "account_opened": Effects._account_opened,
    "account_caught_up": Effects._account_caught_up,
    "budget_raised": Effects._budget_raised,
    "budget_reset": Effects._budget_reset,
    "raises_forgotten": Effects._raises_forgotten,
    "task_new": Effects._task_new,
    "task_closed": Effects._task_closed,
    "hold_deferred": Effects._hold_deferred,
    "hold_adopted": Effects._hold_adopted,
    "rows_taken_out": Effects._rows_taken_out,
    ASKED: Effects._question_asked,
    ANSWERED: Effects._question_answered,
    GIVEN: Effects._allowed_once,
    ENDED: Effects._allowance_ended,
    PASSED_ON: Effects._allowance_passed_on,
    **dict.fromkeys(CODES, Effects._key_changed),
    **dict.fromkeys(PAUSE_CODES, Effects._paused),
}


def _is_looser(own: Budget | None, before: TaskTerms, after: TaskTerms) -> bool:
    return own is not None and loosens(own_budget(own, before), own_budget(own, after))

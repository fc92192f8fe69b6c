"""Which accounts a call is charged to and how they stand. Pure: the same rules for every kind of ledger."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from operator import attrgetter

from lockpin_core.budgets import Budget, Standing, account_id
from lockpin_core.call import Payers
from lockpin_core.clock import instant
from lockpin_core.ledger.protocol import Rules
from lockpin_core.money import Money
from lockpin_core.windows import LIFETIME, Window, WindowSpan, leaves_at, named, span_at

_BY_NAME = attrgetter("name")


@dataclass(frozen=True, slots=True)
class Seat:
    """One account of a call: its id and what it is an account of."""

    account: str
    budget: Budget
    subject: str
    span: WindowSpan


@dataclass(slots=True)
class Step:
    """What leaves a rolling account at one instant."""

    spent_nano: int = 0
    spent_tokens: int = 0
    raised_nano: int = 0
    allowed_nano: int = 0

    def numbers(self) -> list[int]:
        """Give the sums in the order of the table's columns."""
        return [self.spent_nano, self.spent_tokens, self.raised_nano, self.allowed_nano]


@dataclass(slots=True)
class Balance:
    """What an account holds, apart from its names; a ledger changes it in place.

    Under a rolling window `spent`, `raised` and `allowed` are the sums of `steps`, which leave as time passes.
    """

    spent_nano: int = 0
    held_nano: int = 0
    spent_tokens: int = 0
    held_tokens: int = 0
    raised_nano: int = 0
    raised_tokens: int = 0
    allowed_nano: int = 0  # the part of `raised` that calls were allowed once: it goes as room comes free
    period_ms: int = 0
    steps: dict[int, Step] = field(default_factory=dict)  # by the instant at which it leaves, in microseconds

    def pass_time(self, at: int) -> list[int]:
        """Let go what has left by an instant; give when it left."""
        gone = sorted(leaves for leaves in self.steps if leaves <= at)
        for leaves in gone:
            step = self.steps.pop(leaves)
            self.spent_nano -= step.spent_nano
            self.spent_tokens -= step.spent_tokens
            self.raised_nano -= step.raised_nano
            self.allowed_nano -= step.allowed_nano
            gone = gone + self.free(step.spent_nano - step.allowed_nano) if self.allowed_nano else gone
        return gone

    @property
    def used_nano(self) -> int:
        """Give what was spent and is held."""
        return self.spent_nano + self.held_nano

    def free(self, nano: int) -> list[int]:
        """Take back what was allowed once as far as room has come free; give the steps that it was on.

        What leaves last goes first.
        """
        back = max(0, min(nano, self.allowed_nano))
        self.allowed_nano -= back
        self.raised_nano -= back
        touched = []
        for leaves in sorted(self.steps, reverse=True) if back and self.period_ms else ():
            step = self.steps[leaves]
            part = min(back, step.allowed_nano)
            if part:
                step.allowed_nano -= part
                step.raised_nano -= part
                back -= part
                touched.append(leaves)
        return touched

    def spend(self, held_at: int, at: int, nano: int, tokens: int) -> int | None:
        """Count a charge of a hold taken at `held_at`; give the step it is on, None where there are no steps for it."""
        leaves = self._leaves(held_at)
        if leaves is not None and leaves <= at:
            return None
        self.spent_nano += nano
        self.spent_tokens += tokens
        if leaves is not None:
            step = self.steps.setdefault(leaves, Step())
            step.spent_nano += nano
            step.spent_tokens += tokens
        return leaves

    def add_raise(self, at: int, nano: int) -> int | None:
        """Add to the limit; under a rolling window for one period. Give the step, as `spend` does."""
        leaves = self._leaves(at)
        self.raised_nano += nano
        if leaves is not None:
            self.steps.setdefault(leaves, Step()).raised_nano += nano
        return leaves

    def allow(self, at: int, nano: int) -> int | None:
        """Do the same for what one call is allowed."""
        leaves = self.add_raise(at, nano)
        self.allowed_nano += nano
        if leaves is not None:
            self.steps[leaves].allowed_nano += nano
        return leaves

    def forget_raises(self) -> None:
        """Take back what was added to the limit."""
        self.raised_nano = self.raised_tokens = self.allowed_nano = 0
        for step in self.steps.values():
            step.raised_nano = step.allowed_nano = 0

    def forget_spend(self) -> None:
        """Let spend count from now on; what is held stays."""
        spent = self.spent_nano
        self.spent_nano = self.spent_tokens = 0
        for step in self.steps.values():
            step.spent_nano = step.spent_tokens = 0
        self.free(spent)

    def next_leaving(self) -> int | None:
        """Say when the next spend leaves; None: nothing does."""
        first = None
        for leaves, step in self.steps.items():
            if (first is None or leaves < first) and (step.spent_nano or step.spent_tokens):
                first = leaves
        return first

    def _leaves(self, at: int) -> int | None:
        return leaves_at(at, self.period_ms) if self.period_ms else None


@dataclass(frozen=True, slots=True)
class TaskTerms:
    """What a command said of a task: its limits, if any, the rhythm of its window, if it is closed, and whose it is.

    `user` None: it is theirs who call without a user. Neither its limit nor its end is for another's calls.
    """

    window: str
    limit_nano: int | None
    limit_tokens: int | None
    closed: bool
    user: str | None = None

    def closes(self, payers: Payers) -> bool:
        """Say whether a call that names the task is refused because it is closed."""
        return self.closed and self.user == (payers.user or None)


class Spans:
    """Remembers each window's span until it ends, since ledger time only grows."""

    def __init__(self) -> None:
        self._known: dict[Window, WindowSpan] = {}

    def forget(self) -> None:
        """Drop what is remembered: time was thought to be later than it is."""
        self._known.clear()

    def at(self, window: Window, now: datetime) -> WindowSpan:
        """Find the span that holds `now`."""
        if window.kind in ("lifetime", "rolling"):
            return LIFETIME
        span = self._known.get(window)
        if span is None or not is_in(span, now):
            span = self._known[window] = span_at(window, now)
        return span


def is_in(span: WindowSpan, now: datetime) -> bool:
    """Say whether an instant lies in a span."""
    return (span.start is None or span.start <= now) and (span.end is None or now < span.end)


def own_budget(default: Budget, terms: TaskTerms | None) -> Budget:
    """Give a task's own budget: what a command set, which enforces, else the default."""
    return default if terms is None else _told_budget(default, terms)


@functools.lru_cache(maxsize=1024)
def _told_budget(default: Budget, terms: TaskTerms) -> Budget:
    users = users_of(terms.user)
    if terms.limit_nano is None and terms.limit_tokens is None:
        return replace(default, users=users) if users else default
    return replace(
        default,
        users=users,
        window=named(terms.window, default.window),
        limit=None if terms.limit_nano is None else Money(terms.limit_nano),
        limit_tokens=terms.limit_tokens,
        enforce=True,
    )


def users_of(owner: str | None) -> tuple[str, ...]:
    """Give the filter of a task's own budget for the one whose task it is."""
    return () if owner is None else (owner,)


def budget_in(
    budget: Budget, span: WindowSpan, period_ms: int, terms: TaskTerms | None, owner: str | None = None
) -> Budget:  # fmt: skip
    """Give a budget with the limit in force for one of its accounts; `owner`: see `owner_of`."""
    now = own_budget(budget, terms) if budget.own else budget
    if _turns_as(now.window, span, period_ms) and (not budget.own or now.users == users_of(owner)):
        return now
    # The window, or whose task it is, was changed since: the account of before goes on counting, without a limit.
    return replace(now, limit=None, limit_tokens=None, enforce=False)


@functools.lru_cache(maxsize=1024)
def _turns_as(window: Window, span: WindowSpan, period_ms: int) -> bool:
    if window.kind == "rolling" or period_ms:
        return window.kind == "rolling" and window.period_ms == period_ms
    return span_at(window, span.start) == span if span.start is not None else window.kind == "lifetime"


def seat_of(budget: Budget, subject: str, now: datetime, spans: Spans) -> Seat:
    """Find the account of one budget and subject at an instant."""
    span = spans.at(budget.window, now)
    return Seat(account_id(budget, subject, span), budget, subject, span)


class Parted:
    """The budgets in force, so that those of other keys need not be looked at: there may be one for each key."""

    def __init__(self, rules: Rules) -> None:
        everybodys = tuple(budget for budget in rules.budgets if not budget.keys)
        its_own: dict[str, list[Budget]] = defaultdict(list)
        for budget in rules.budgets:
            for key in budget.keys:
                its_own[key].append(budget)
        self.rules, self._everybodys = rules, Rules(everybodys, rules.task_default)
        self._its_own = {k: Rules((*everybodys, *more), rules.task_default) for k, more in its_own.items()}

    def of(self, payers: Payers) -> Rules:
        """Give those that may count calls of these payers."""
        return self._its_own.get(payers.key or "", self._everybodys)


def seats_of(
    payers: Payers, provider: str, model: str | None, rules: Rules, own: Budget, now: datetime, spans: Spans
) -> tuple[Seat, ...]:
    """List the accounts that a call is charged to: the task's own, where it is the payers', then by budget name."""
    budgets = (own, *sorted(rules.budgets, key=_BY_NAME))
    return tuple(
        seat_of(budget, subject, now, spans)
        for budget in budgets
        if budget.applies(payers, provider=provider, model=model)
        for subject in budget.subjects(payers)
    )


def standing_of(seat: Seat, balance: Balance) -> Standing:
    """Put the limits in force, raises included, to a balance, and what leaves it when."""
    found = standing_from(seat.account, seat.budget, seat.subject, seat.span, balance)
    return found if not balance.steps else found._replace(leaving=_leaving(balance))


def _leaving(balance: Balance) -> tuple[tuple[datetime, Money, int], ...]:
    counted = ((at, step) for at, step in sorted(balance.steps.items()) if step.spent_nano or step.spent_tokens)
    return tuple((instant(at), Money(step.spent_nano), step.spent_tokens) for at, step in counted)


def standing_from(account: str, budget: Budget, subject: str, span: WindowSpan, balance: Balance) -> Standing:
    """The same of an account whose facts stand apart; it runs for every account of every call."""
    if balance.steps and (leaves := balance.next_leaving()) is not None:
        span = WindowSpan(None, instant(leaves))
    limit, limit_tokens = budget.limit, budget.limit_tokens
    if balance.raised_nano and limit is not None:
        limit = Money(limit.nano + balance.raised_nano)
    if balance.raised_tokens and limit_tokens is not None:
        limit_tokens += balance.raised_tokens
    spent, held = Money(balance.spent_nano), Money(balance.held_nano)
    tokens = (balance.spent_tokens, balance.held_tokens)
    return Standing(account, budget, subject, span, spent, held, *tokens, limit, limit_tokens)


def has_room(budget: Budget, balance: Balance, usd: int, tokens: int) -> bool:
    """Say in plain numbers what `Standing.fits` says of an account, or that its budget does not enforce."""
    if not budget.enforce:
        return True
    if budget.limit is not None and usd:
        left = budget.limit.nano + balance.raised_nano - balance.spent_nano - balance.held_nano
        if usd > left:
            return False
    if budget.limit_tokens is None or not tokens:
        return True
    return tokens <= budget.limit_tokens + balance.raised_tokens - balance.spent_tokens - balance.held_tokens


def beside(more: tuple[int, int], usd: int, tokens: int) -> tuple[int, int]:
    """Add something to an amount; nothing always fits, whatever it is beside."""
    return usd + more[0] if usd else 0, tokens + more[1] if tokens else 0


def is_spent_up(budget: Budget, balance: Balance, usd: int, tokens: int) -> bool:
    """Say whether an amount would not fit an account either if nothing were held, as `Standing.is_transient` does."""
    if budget.limit is not None and usd > budget.limit.nano + balance.raised_nano - balance.spent_nano:
        return True
    limit_tokens = budget.limit_tokens
    return limit_tokens is not None and tokens > limit_tokens + balance.raised_tokens - balance.spent_tokens


def passed_steps(standing: Standing, steps: Sequence[str]) -> tuple[str, ...]:
    """List the alert steps at or below what is spent, in dollars or in tokens; nothing spent passes none."""
    limit, limit_tokens = standing.limit, standing.limit_tokens
    nano = None if limit is None else limit.nano
    return tuple(
        [
            step
            for step in steps
            if (nano is not None and _passes(standing.spent.nano, nano, step))
            or (limit_tokens is not None and _passes(standing.spent_tokens, limit_tokens, step))
        ]
    )


def _passes(spent: int, limit: int | None, step: str) -> bool:
    if limit is None or spent <= 0:
        return False
    numerator, denominator = _ratio(step)
    return spent * denominator >= limit * numerator


@functools.lru_cache(maxsize=256)
def _ratio(step: str) -> tuple[int, int]:
    return Decimal(step).as_integer_ratio()

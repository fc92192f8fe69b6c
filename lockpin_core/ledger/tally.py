"""What rows alone make of one account, one open call, one task, one budget. Pure: knows no SQL and no files.

An account's id says all that there is to know of it: budget, scope, subject and window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from lockpin_core.budgets import FILTERS, Budget, owner_of
from lockpin_core.call import Payers
from lockpin_core.clock import instant, micros
from lockpin_core.ledger.accounts import Balance, TaskTerms, budget_in, has_room
from lockpin_core.ledger.columns import FACT_NAMES, PAYER_NAMES, payers_of
from lockpin_core.ledger.definitions import budget_of, definition_of
from lockpin_core.money import Money
from lockpin_core.windows import LIFETIME, Window, WindowSpan, leaves_at

SEPARATOR = "\x1f"
_DAY_US = 24 * 3600 * 10**6
_NEVER = 2**63
_HOUR_MS = 3_600_000
_BY_USE = TaskTerms("lifetime", None, None, closed=False)
_LIFETIME = Window("lifetime")
PLACES = {name: place for place, name in enumerate(FACT_NAMES)}  # of facts
_PAYERS = slice(PLACES[PAYER_NAMES[0]], PLACES[PAYER_NAMES[-1]] + 1)  # the facts that say who pays
_MORE_FILTERS = tuple(name for name in (*FILTERS, "keys") if name not in ("models", "providers"))
_OLD_OPEN = 10  # values of an open call in a checkpoint of before


@dataclass(slots=True)
class OpenCall:
    """A call whose hold is not resolved yet."""

    at: int
    usd: int
    tokens: int
    accounts: tuple[str, ...]
    writer: str
    facts: tuple[Any, ...]  # the values of FACT_NAMES
    until: int | None = None  # deferred: charged then
    is_whole: bool = True  # of a checkpoint of before only some facts are known

    def state(self) -> list[object]:
        """Give everything as JSON-ready data."""
        told = [self.at, self.usd, self.tokens, list(self.accounts), self.writer, self.until, int(self.is_whole)]
        return [*told, *self.facts]

    @classmethod
    def of(cls, state: Sequence[Any]) -> OpenCall:
        """Read back what `state` gave, or what it gave before: writer, four facts, until."""
        at, usd, tokens, accounts, writer, *rest = state
        if len(state) == _OLD_OPEN:
            known = dict(zip(("task", "machine", "provider", "model"), rest[:4], strict=True))
            facts = tuple(known.get(name) for name in FACT_NAMES)
            return cls(at, usd, tokens, tuple(accounts), writer, facts, rest[4], is_whole=False)
        until, is_whole, *known_facts = rest
        if len(known_facts) != len(FACT_NAMES):
            raise ValueError("an open call's facts are not all there")
        return cls(at, usd, tokens, tuple(accounts), writer, tuple(known_facts), until, bool(is_whole))

    @property
    def payers(self) -> Payers:
        """Give who pays."""
        return payers_of(*self.facts[_PAYERS])

    @property
    def who(self) -> tuple[Any, ...]:
        """Give who pays, and by what budgets filter."""
        return (*self.facts[_PAYERS], self.fact("provider"), self.fact("model"))

    def fact(self, name: str) -> Any:
        """Give one of the facts."""
        return self.facts[PLACES[name]]

    def differs(self, facts: tuple[Any, ...]) -> tuple[str, object, object] | None:
        """Name a fact in which other ones differ, with both values, first theirs."""
        for name, theirs, ours in zip(FACT_NAMES, facts, self.facts, strict=True):
            if theirs != ours and (self.is_whole or ours is not None):
                return name, theirs, ours
        return None


@dataclass(slots=True)
class Task:
    """A task's terms, and what it has spent over all its time."""

    terms: TaskTerms = _BY_USE
    created: int | None = None
    spent_nano: int = 0
    row: int = 0  # that gave it its terms

    def state(self) -> list[object]:
        """Give everything as JSON-ready data; first what the table has."""
        terms = self.terms
        told = (terms.window, terms.limit_nano, terms.limit_tokens, terms.closed, self.created, self.spent_nano)
        return [*told, self.row, *((terms.user,) if terms.user is not None else ())]

    @classmethod
    def of(cls, state: Sequence[Any]) -> Task:
        """Read back what `state` gave."""
        window, limit_nano, limit_tokens, closed, created, spent_nano, *more = state
        row, user = more[0] if more else 0, more[1] if len(more) > 1 else None
        return cls(TaskTerms(window, limit_nano, limit_tokens, closed, user), created, spent_nano, row)


@dataclass(frozen=True, slots=True)
class Defined:
    """A budget's last definition; `removed_at` None: it is in force."""

    budget: Budget
    since: int
    source: str
    removed_at: int | None = None
    row: int = 0  # that defined it

    def state(self) -> list[object]:
        """Give everything but the name as JSON-ready data."""
        return [definition_of(self.budget), self.since, self.source, self.removed_at, self.row]

    @classmethod
    def of(cls, name: str, state: Sequence[Any]) -> Defined:
        """Read back what `state` gave."""
        definition, since, source, removed_at, *row = state
        return cls(budget_of(name, definition), since, source, removed_at, *row)

    @property
    def in_force(self) -> Budget | None:
        """Give the budget where it is in force."""
        return self.budget if self.removed_at is None else None


@dataclass(frozen=True, slots=True)
class Name:
    """What an account's id says. Both ends None: lifetime or rolling, the latter with a period."""

    budget: str
    scope: str
    subject: str
    window: str
    start: int | None
    end: int | None
    period_ms: int | None
    owner: str | None = None  # see `owner_of`

    @classmethod
    def parse(cls, account: str) -> Name:
        """Read an id. Raises ValueError where it is none."""
        budget, rest = account.split(SEPARATOR, 1)
        scope, rest = rest.split(SEPARATOR, 1)
        subject, window = rest.rsplit(SEPARATOR, 1)
        window, owner = window.partition("@")[0], owner_of(account)
        if window.startswith("~"):
            return cls(budget, scope, subject, window, None, None, int(window[1:]), owner)
        if not window:
            return cls(budget, scope, subject, window, None, None, None, owner)
        start, _, end = window.partition("/")
        begins = _instant(start)
        ends = _instant(end) if end else begins + _DAY_US
        return cls(budget, scope, subject, window, begins, ends, None, owner)


def shown(account: str) -> str:
    """Write an account's id for people."""
    try:
        name = Name.parse(account)
    except ValueError:
        return f'account "{account}"'
    if name.period_ms is None:
        window = f" in {name.window}" if name.window else ""
    elif name.period_ms % _HOUR_MS == 0:
        window = f" in the last {name.period_ms // _HOUR_MS}h"
    else:
        window = f" in the last {timedelta(milliseconds=name.period_ms)}"
    whose = "" if name.owner is None else f" of {name.owner}"
    return f'budget "{name.budget}" of {name.scope} "{name.subject}"{whose}{window}'


def amount(usd: int, tokens: int) -> str:
    """Write an amount for people."""
    return f"${Money(usd).exact()} and {tokens:,} tokens"


@dataclass(frozen=True, slots=True)
class Count:
    """An account began, or caught up: it counted calls that ended after one row and up to another, by the filter of its
    budget then.
    """

    rows_to: int
    budget: Budget
    rows_from: int = 0

    def state(self) -> list[object]:
        """Give everything that counts as JSON-ready data."""
        budget = self.budget
        more: dict[str, object] = {name: getattr(budget, name) for name in _MORE_FILTERS if getattr(budget, name)}
        more |= {"own": True} if budget.own else {}
        told = [self.rows_to, list(budget.models), list(budget.providers), self.rows_from]
        return [*told, more] if more else told

    @classmethod
    def of(cls, name: Name, state: Sequence[Any]) -> Count:
        """Read back what `state` gave."""
        rows_to, models, providers, *rest = state
        rows_from, more = rest[0] if rest else 0, rest[1] if len(rest) > 1 else {}
        filters = {name: tuple(more[name]) for name in _MORE_FILTERS if name in more}
        kept = Budget(
            name.budget, name.scope, _LIFETIME, limit=None, limit_tokens=None, enforce=False, alert_at=(),
            models=tuple(models), providers=tuple(providers), own=more.get("own", False), **filters,
        )  # fmt: skip
        return cls(rows_to, kept, rows_from)


@dataclass(slots=True)
class Tally:
    """An account counted up. The limits in force are put to it by whoever knows them, until they may have changed."""

    id: str
    name: Name
    balance: Balance = field(default_factory=Balance)
    reset_row: int = 0  # up to which a reset has taken off
    steps: dict[int, list[int]] = field(default_factory=dict)  # rolling: leaves at → nano, tokens, raised, allowed
    first_leaves_at: int = _NEVER
    budget: Budget | None = None  # as it is in force; None: it is not
    fault: str = ""  # why the budget in force does not lead to this account
    limits: tuple[int | None, int | None] = (None, None)  # as they are shown, without what was raised
    generation: int = -1  # of the definitions that these three follow from
    # Up to which row what is not listed on it was counted too; None: it cannot be told (version 1, or a state of then).
    counted_row: int | None = None
    is_counted_told: bool = False  # an event says so; else the account was there by use
    counts: list[Count] = field(default_factory=list)  # when it counted what is not listed on it, since it was reset

    def contains(self, at: int) -> bool:
        """Say whether an instant lies in the account's window."""
        name = self.name
        return name.start is None or name.end is None or name.start <= at < name.end

    def fits(self, usd: int, tokens: int) -> bool:
        """Say whether an amount passes no enforced limit."""
        return self.budget is None or has_room(self.budget, self.balance, usd, tokens)

    def is_over(self) -> bool:
        """Say whether it stands above an enforced limit."""
        b, budget = self.balance, self.budget
        if budget is None or not budget.enforce:
            return False
        if budget.limit is not None and b.spent_nano + b.held_nano > budget.limit.nano + b.raised_nano:
            return True
        limit = budget.limit_tokens
        return limit is not None and b.spent_tokens + b.held_tokens > limit + b.raised_tokens

    def spend(self, held_at: int, at: int, usd: int, tokens: int) -> None:
        """Add what a hold taken at `held_at` cost. In a rolling window it may have left already."""
        if self.name.period_ms is not None:
            self.add_step(leaves_at(held_at, self.name.period_ms), at, usd, tokens, 0)
        else:
            self.balance.spent_nano += usd
            self.balance.spent_tokens += tokens

    def add_step(self, leaves: int, at: int, usd: int, tokens: int, raised: int, allowed: int = 0) -> None:
        """Add what leaves a rolling window at an instant."""
        if leaves <= at:
            return
        step = self.steps.setdefault(leaves, [0, 0, 0, 0])
        balance = self.balance
        for place, amount in enumerate((usd, tokens, raised, allowed)):
            step[place] += amount
        balance.spent_nano, balance.spent_tokens = balance.spent_nano + usd, balance.spent_tokens + tokens
        balance.raised_nano += raised
        balance.allowed_nano += allowed
        self.first_leaves_at = min(self.first_leaves_at, leaves)

    def add(self, other: Tally, at: int) -> None:
        """Add what another has spent."""
        for leaves, (usd, tokens, *_) in other.steps.items():
            self.add_step(leaves, at, usd, tokens, 0)
        if self.name.period_ms is None:
            self.balance.spent_nano += other.balance.spent_nano
            self.balance.spent_tokens += other.balance.spent_tokens

    def spent_steps(self) -> dict[int, tuple[int, int]]:
        """Give the steps on which something was spent."""
        return {leaves: (usd, tokens) for leaves, (usd, tokens, *_) in self.steps.items() if usd or tokens}

    def expire(self, at: int) -> None:
        """Let go of what has left a rolling window."""
        if self.first_leaves_at > at:
            return
        balance = self.balance
        for leaves in sorted(leaves for leaves in self.steps if leaves <= at):
            usd, tokens, raised, allowed = self.steps.pop(leaves)
            balance.spent_nano, balance.spent_tokens = balance.spent_nano - usd, balance.spent_tokens - tokens
            balance.raised_nano, balance.allowed_nano = balance.raised_nano - raised, balance.allowed_nano - allowed
            self.free(usd - allowed)
        self.first_leaves_at = min(self.steps, default=_NEVER)

    def reset(self, row: int) -> None:
        """Let spend count from after a row on; what is held and raised stays."""
        self.reset_row = self.counted_row = row
        self.is_counted_told = True
        self.counts.clear()
        self.steps = {leaves: [0, 0, *raised] for leaves, (_, _, *raised) in self.steps.items() if any(raised)}
        self.first_leaves_at = min(self.steps, default=_NEVER)
        spent, _ = self.spent()
        self.balance.spent_nano = self.balance.spent_tokens = 0
        self.free(spent)

    def count_up(self, rows_to: int, budget: Budget, rows_from: int = 0) -> None:
        """Note that what is not listed on it was counted, after one row and up to another."""
        last = self.counts[-1] if self.counts else None
        if last is not None and _filter(last.budget) == _filter(budget) and rows_from <= last.rows_to:
            rows_from = last.rows_from  # whatever that one counted, this one says the same of
            self.counts.pop()
        self.counts.append(Count(rows_to, budget, rows_from))
        self.counted_row, self.is_counted_told = rows_to, True

    def has_counted(self, row: int, held_at: int, payers: Payers, provider: str, model: str) -> bool:
        """Say whether it counts a call that ended at a row on which it is not listed."""
        first = next((count for count in self.counts if count.rows_from < row <= count.rows_to), None)
        if first is None or self.reset_row >= row or not self.contains(held_at):
            return False
        return first.budget.applies(payers, provider=provider, model=model)

    def is_below_zero(self) -> bool:
        """Say whether less than nothing was spent, on the whole or in a step."""
        b = self.balance
        return b.spent_nano < 0 or b.spent_tokens < 0 or any(usd < 0 or n < 0 for usd, n, *_ in self.steps.values())

    def take_limits(self, defined: Defined, terms: TaskTerms | None) -> None:
        """Put the limits as they are shown: an account of a window of before has none."""
        name = self.name
        span = (
            LIFETIME if name.start is None or name.end is None else WindowSpan(instant(name.start), instant(name.end))
        )
        budget = None
        if defined.removed_at is None:
            budget = budget_in(defined.budget, span, name.period_ms or 0, terms, name.owner)
        limit = None if budget is None or budget.limit is None else budget.limit.nano
        self.limits = (limit, None if budget is None else budget.limit_tokens)

    def receipt(self) -> list[int | None]:
        """Give what a resolution says of it."""
        b, (limit, limit_tokens) = self.balance, self.limits
        usd = (b.spent_nano, b.held_nano, None if limit is None else limit + b.raised_nano)
        tokens = None if limit_tokens is None else limit_tokens + b.raised_tokens
        return [*usd, b.spent_tokens, b.held_tokens, tokens]

    def forget_raises(self) -> None:
        """Take back what was added to the limit."""
        self.balance.raised_nano = self.balance.raised_tokens = self.balance.allowed_nano = 0
        self.steps = {leaves: [usd, tokens, 0, 0] for leaves, (usd, tokens, *_) in self.steps.items() if usd or tokens}
        self.first_leaves_at = min(self.steps, default=_NEVER)

    def free(self, nano: int) -> None:
        """Take back what was allowed once as far as room has come free: what leaves last goes first."""
        back = max(0, min(nano, self.balance.allowed_nano))
        self.balance.allowed_nano -= back
        self.balance.raised_nano -= back
        for leaves in sorted(self.steps, reverse=True) if back else ():
            part = min(back, self.steps[leaves][3])
            self.steps[leaves][2] -= part
            self.steps[leaves][3] -= part
            back -= part

    def spent(self) -> tuple[int, int]:
        """Give what was spent, in nanodollars and in tokens."""
        return self.balance.spent_nano, self.balance.spent_tokens

    def words(self) -> str:
        """Say how it stands to its limits."""
        b, budget, parts = self.balance, self.budget, []
        if budget is not None and budget.limit is not None:
            limit = Money(budget.limit.nano + b.raised_nano).exact()
            parts.append(f"${limit} with ${Money(b.spent_nano).exact()} spent and ${Money(b.held_nano).exact()} held")
        if budget is not None and budget.limit_tokens is not None:
            tokens = budget.limit_tokens + b.raised_tokens
            parts.append(f"{tokens:,} tokens with {b.spent_tokens:,} spent and {b.held_tokens:,} held")
        return f"{shown(self.id)}: {'; '.join(parts)}"

    def numbers(self) -> tuple[int, ...]:
        """Give the sums in the order of the table's columns."""
        b = self.balance
        numbers = (b.spent_nano, b.held_nano, b.spent_tokens, b.held_tokens, b.raised_nano, b.raised_tokens)
        return (*numbers, b.allowed_nano)

    def state(self) -> dict[str, object]:
        """Give everything but the limits as JSON-ready data."""
        steps = [[leaves, *step] for leaves, step in sorted(self.steps.items())]
        told = {"numbers": list(self.numbers()), "reset_row": self.reset_row, "steps": steps}
        counted = [self.counted_row, int(self.is_counted_told), [count.state() for count in self.counts]]
        return told | {"counted": counted}

    @classmethod
    def of(cls, account: str, state: Mapping[str, Any]) -> Tally:
        """Read back what `state` gave."""
        steps = {leaves: [*step, *[0] * (4 - len(step))] for leaves, *step in state["steps"]}
        balance, first = Balance(*state["numbers"]), min(steps, default=_NEVER)
        made = cls(account, Name.parse(account), balance, state["reset_row"], steps, first)
        made.counted_row, is_told, counts = state.get("counted", (None, False, ()))
        made.is_counted_told = bool(is_told)
        made.counts = [Count.of(made.name, count) for count in counts]
        return made


def _filter(budget: Budget) -> tuple[object, ...]:
    return tuple(getattr(budget, name) for name in (*FILTERS, "keys"))


def _instant(text: str) -> int:
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        raise ValueError(f"{text!r} has no zone")
    return micros(when)

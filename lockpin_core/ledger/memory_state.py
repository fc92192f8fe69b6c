"""What a ledger in memory keeps of rows, accounts, calls and definitions, and which call is whose. No steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from lockpin_core.budgets import Budget
from lockpin_core.call import Call
from lockpin_core.clock import micros
from lockpin_core.ledger.accounts import Balance, Seat, TaskTerms, is_in
from lockpin_core.ledger.protocol import StoredBudget

LIFETIME_TERMS = TaskTerms("lifetime", None, None, closed=False)


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
class Account:
    """An account in the books."""

    seat: Seat
    balance: Balance
    told: list[str] = field(default_factory=list)  # see `alerts`
    counted: set[str] = field(default_factory=set)  # calls that are on it, or were before it was reset
    forgotten: set[str] = field(default_factory=set)  # those of before

    def ends(self) -> list[int]:
        """Say when it stands otherwise by time alone."""
        return [*self.balance.steps, *(() if self.seat.span.end is None else (micros(self.seat.span.end),))]


@dataclass(slots=True)
class Open:
    """A call with a hold."""

    call: Call
    at: datetime
    accounts: list[str] = field(default_factory=list)
    expires: datetime | None = None


@dataclass(slots=True)
class Definition:
    """A budget as it was defined last."""

    budget: Budget
    source: str
    since: datetime
    is_removed: bool = False

    def shown(self) -> StoredBudget:
        """Give it as commands show it."""
        return StoredBudget(self.budget, self.source, self.since)


@dataclass(frozen=True, slots=True)
class Booked:
    """A difference that was booked after a resolution."""

    usd: int
    tokens: int
    code: str


def belongs(held: Open, seat: Seat) -> bool:
    """Say whether a call is one of an account."""
    call, budget = held.call, seat.budget
    applies = budget.applies(call.payers, provider=call.provider, model=call.model)
    return applies and seat.subject in budget.subjects(call.payers) and is_in(seat.span, held.at)

"""How accounts stand in a SQLite ledger's table, and in its memory while a transaction runs."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from lockpin_core.budgets import Budget
from lockpin_core.clock import instant
from lockpin_core.ledger.accounts import Balance, TaskTerms
from lockpin_core.ledger.definitions import Stored
from lockpin_core.windows import LIFETIME, WindowSpan

_NUMBERS = "spent_nano, held_nano, spent_tokens, held_tokens, raised_nano, raised_tokens, allowed_nano"
_OWN = f"id, budget, subject, window_start, window_end, {_NUMBERS}, period_ms, alerted, counted_row, reset_row"
OPEN_ACCOUNT = (
    "INSERT INTO accounts (id, budget, scope, subject, window_start, window_end, period_ms, counted_row, spent_nano, "
    "held_nano, spent_tokens, held_tokens) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
WRITE = (
    "UPDATE accounts SET spent_nano = ?, held_nano = ?, spent_tokens = ?, held_tokens = ?, raised_nano = ?, "
    "raised_tokens = ?, allowed_nano = ?, alerted = ?, counted_row = ?, reset_row = ? WHERE id = ?"
)


@dataclass(slots=True)
class Account:
    """An account in the running transaction."""

    budget: str
    subject: str
    span: WindowSpan
    balance: Balance
    alerted: str = "[]"  # JSON list of what was told: see `alerts`
    counted_row: int = 0  # up to which row what is not listed on it was counted too, or found not to belong
    reset_row: int = 0  # from which row on it counts
    owner: str | None = None  # see `owner_of`
    touched: set[int] = field(default_factory=set)  # steps that are to be written or deleted
    # The limits in force as they were last found, by what they follow from.
    found: tuple[Stored, TaskTerms | None, Budget] | None = None


def columns(account: Account, name: str) -> tuple[object, ...]:
    """Give what `WRITE` takes."""
    b = account.balance
    numbers = (b.spent_nano, b.held_nano, b.spent_tokens, b.held_tokens, b.raised_nano, b.raised_tokens)
    return (*numbers, b.allowed_nano, account.alerted, account.counted_row, account.reset_row, name)


@functools.lru_cache(maxsize=64)
def read_sql(count: int) -> str:
    """Write the query of so many accounts; see `Balances`."""
    return f"SELECT {_OWN} FROM accounts WHERE id IN ({', '.join('?' * count)})"


@functools.lru_cache(maxsize=1024)
def span_of(start: int | None, end: int | None) -> WindowSpan:
    """Give the span of an account's window."""
    if start is None or end is None:
        return LIFETIME
    return WindowSpan(instant(start), instant(end))

"""Budgets, their accounts and the rule of fitting. Pure: the ledger applies it inside its transaction."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lockpin_core.money import Money
from lockpin_core.windows import Window, WindowSpan, key_of

if TYPE_CHECKING:  # commands read budgets without any call, and must start fast
    from lockpin_core.call import Payers, Quote


@dataclass(frozen=True, slots=True)
class Budget:
    """A rule: whose spend is counted, in which window, up to what. At least one limit, or none where it only counts."""

    name: str
    scope: str  # "task" | "machine"
    window: Window
    limit: Money | None = None
    limit_tokens: int | None = None
    enforce: bool = False
    alert_at: tuple[str, ...] = ("0.8",)  # decimal text: steps of spent ÷ limit
    models: tuple[str, ...] = ()  # globs over the canonical model name; empty: all
    providers: tuple[str, ...] = ()
    own: bool = False  # the task's own budget: its limit comes from the task, made by command or `task.budget_usd`

    def applies(self, *, provider: str, model: str | None) -> bool:
        """Say whether a call of this provider and model is charged here; model None: not known, so that it may be."""
        return (model is None or _matches(self.models, model)) and _matches(self.providers, provider)

    def subject(self, payers: Payers) -> str:
        """Name the one whom this budget counts for."""
        return payers.task if self.scope == "task" else payers.machine


class Standing(NamedTuple):
    """One account at one instant, with the limits in force for it (raises included).

    A tuple, as one is made twice for every account of every call, and a frozen dataclass takes four times as long.
    """

    account: str  # the ledger's id of it
    budget: Budget
    subject: str
    span: WindowSpan  # of a rolling window the end is when spend next leaves it; None: none does
    spent: Money
    held: Money
    spent_tokens: int
    held_tokens: int
    limit: Money | None
    limit_tokens: int | None

    def remaining(self) -> Money | None:
        """Give limit − spent − held; None without a dollar limit. May be negative."""
        return None if self.limit is None else self.limit - self.spent - self.held

    def remaining_tokens(self) -> int | None:
        """Give the same in tokens."""
        return None if self.limit_tokens is None else self.limit_tokens - self.spent_tokens - self.held_tokens

    def fits(self, most: Money, tokens: int) -> bool:
        """Say whether spent + held + most ≤ limit, in dollars and in tokens where set."""
        left, left_tokens = self.remaining(), self.remaining_tokens()
        return (left is None or most <= left or not most) and (
            left_tokens is None or tokens <= left_tokens or not tokens
        )

    def is_transient(self, most: Money, tokens: int) -> bool:
        """Say whether only held amounts are in the way: spent + needed ≤ limit."""
        usd_ok = self.limit is None or self.spent + most <= self.limit or not most
        return usd_ok and (self.limit_tokens is None or self.spent_tokens + tokens <= self.limit_tokens or not tokens)


def violations(standings: Iterable[Standing], quote: Quote) -> list[Standing]:
    """List the enforced accounts that the quote does not fit: final before transient, then smallest remaining first."""
    short = [s for s in standings if s.budget.enforce and not s.fits(quote.most, quote.tokens)]
    return sorted(short, key=lambda s: (s.is_transient(quote.most, quote.tokens), _left(s)))


def account_id(budget: Budget, subject: str, span: WindowSpan) -> str:
    """Name an account; the same budget, subject and window give the same name in every process."""
    return f"{budget.name}\x1f{budget.scope}\x1f{subject}\x1f{key_of(budget.window, span)}"


def _left(standing: Standing) -> int:
    left = standing.remaining()
    return 2**63 if left is None else left.nano


def _matches(globs: Sequence[str], name: str) -> bool:
    return not globs or any(fnmatch.fnmatchcase(name, glob) for glob in globs)

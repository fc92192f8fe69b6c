"""Budgets, their accounts and the rule of fitting. Pure: the ledger applies it inside its transaction."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from lockpin_core.money import ZERO, Money
from lockpin_core.windows import Window, WindowSpan, key_of

if TYPE_CHECKING:  # commands read budgets without any call, and must start fast
    from lockpin_core.call import Payers, Quote

SCOPES = ("task", "machine", "key", "user", "team", "group", "ring", "project", "tag", "org")
FILTERS = ("models", "providers", "users", "groups", "rings", "projects", "tags")  # in the order of their writing
ORG = "org"  # the one subject of its scope
_ENDLESS = 2**63


@dataclass(frozen=True, slots=True)
class Budget:
    """A rule: whose spend is counted, in which window, up to what. At least one limit, or none where it only counts.

    Of each filter that is not empty one entry must match.
    """

    name: str
    scope: str  # one of SCOPES
    window: Window
    limit: Money | None = None
    limit_tokens: int | None = None
    enforce: bool = False
    alert_at: tuple[str, ...] = ("0.8",)  # decimal text: steps of spent ÷ limit
    models: tuple[str, ...] = ()  # globs over the canonical model name; empty: all
    providers: tuple[str, ...] = ()
    own: bool = False  # the task's own budget: its limit comes from the task, made by command or `task.budget_usd`
    users: tuple[str, ...] = ()  # of a task's own budget the one whose task it is; empty: callers' without a user
    groups: tuple[str, ...] = ()
    rings: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()  # "k=v"
    keys: tuple[str, ...] = ()  # public ids; no configuration names them

    def applies(self, payers: Payers, *, provider: str, model: str | None) -> bool:
        """Say whether a call of theirs is charged here; model None: it is not known, so that it may be."""
        return (
            (model is None or _matches(self.models, model))
            and _matches(self.providers, provider)
            and self.is_for(payers)
        )

    def subjects(self, payers: Payers) -> tuple[str, ...]:
        """Name those of the payers whom this budget counts for, each on an account of its own."""
        return tuple(filter(self.lists, subjects_in(self.scope, payers)))

    def lists(self, subject: str) -> bool:
        """Say whether it has an account for one of its scope."""
        if self.scope == "group":
            return subject in self.groups
        return self.scope != "tag" or not self.tags or subject in self.tags

    def only(self) -> tuple[str, ...]:
        """Name the subjects that can have calls which it counts; empty: whoever calls."""
        filters = {"group": self.groups, "tag": self.tags, "user": self.users, "ring": self.rings}
        return (filters | {"project": self.projects, "key": self.keys}).get(self.scope, ())

    def is_for(self, payers: Payers) -> bool:
        """Say whether some of their calls are charged here."""
        return self._names(payers) and bool(self.subjects(payers))

    def _names(self, payers: Payers) -> bool:
        if self.own:
            return (payers.user or None) == (self.users[0] if self.users else None)
        return (
            _is_in(self.users, payers.user)
            and _is_in(self.keys, payers.key)
            and _is_in(self.rings, payers.ring)
            and _is_in(self.projects, payers.project)
            and (not self.groups or not set(self.groups).isdisjoint(payers.groups))
            and (not self.tags or not set(self.tags).isdisjoint(subjects_in("tag", payers)))
        )


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
    reserved: Money = ZERO  # kept free for others by the call that asks: held to it, and never about to come free
    reserved_tokens: int = 0
    # Of a rolling window, where somebody asks what is in the way: what leaves when, as (instant, dollars, tokens).
    leaving: tuple[tuple[datetime, Money, int], ...] = ()

    def remaining(self) -> Money | None:
        """Give limit − spent − held − reserved; None without a dollar limit. May be negative."""
        left = self._left_nano()
        return None if left is None else Money(left)

    def _left_nano(self) -> int | None:
        """Give what remains in plain nanodollars; it is asked some forty times a call."""
        if self.limit is None:
            return None
        return self.limit.nano - self.spent.nano - self.held.nano - self.reserved.nano

    def remaining_tokens(self) -> int | None:
        """Give the same in tokens."""
        if self.limit_tokens is None:
            return None
        return self.limit_tokens - self.spent_tokens - self.held_tokens - self.reserved_tokens

    def fits(self, most: Money, tokens: int) -> bool:
        """Say whether spent + held + reserved + most ≤ limit, in dollars and in tokens where set."""
        return self.fits_usd(most) and self.fits_tokens(tokens)

    def fits_usd(self, most: Money) -> bool:
        """Say the same of dollars alone; nothing fits always."""
        left = self._left_nano()
        return left is None or most.nano <= left or not most.nano

    def fits_tokens(self, tokens: int) -> bool:
        """Say the same of tokens alone."""
        left = self.remaining_tokens()
        return left is None or tokens <= left or not tokens

    def is_transient(self, most: Money, tokens: int) -> bool:
        """Say whether only held amounts are in the way: spent + reserved + needed ≤ limit."""
        usd, gone = self.limit, self.spent_tokens + self.reserved_tokens
        usd_ok = usd is None or self.spent.nano + self.reserved.nano + most.nano <= usd.nano or not most.nano
        return usd_ok and (self.limit_tokens is None or gone + tokens <= self.limit_tokens or not tokens)


def subjects_in(scope: str, payers: Payers) -> tuple[str, ...]:
    """List all whom payers have of a scope, sorted: groups or tags ("k=v"), at most one of the others."""
    match scope:
        case "group":
            return tuple(sorted({*payers.groups}))
        case "tag":
            return tuple(f"{key}={value}" for key, value in sorted(dict(payers.tags).items()))
        case "org":
            return (ORG,)
    found: str | None = getattr(payers, scope)
    return (found,) if found else ()


def with_reserve(standings: Sequence[Standing], reserve: Quote | None) -> tuple[Standing, ...]:
    """Give accounts as they stand to a call that must leave so much free on the task's own one; None: nothing."""
    usd, tokens = (ZERO, 0) if reserve is None else (reserve.most, reserve.tokens)
    found = tuple(standings)
    for place, one in enumerate(found):
        if one.budget.own and one.budget.enforce and (one.reserved.nano, one.reserved_tokens) != (usd.nano, tokens):
            kept = one._replace(reserved=usd, reserved_tokens=tokens)
            found = (*found[:place], kept, *found[place + 1 :])
    return found


def has_limit(standings: Iterable[Standing]) -> bool:
    """Say whether one of a call's accounts enforces a limit."""
    return any(s.budget.enforce and (s.limit is not None or s.limit_tokens is not None) for s in standings)


def violations(standings: Iterable[Standing], quote: Quote) -> list[Standing]:
    """List the enforced accounts that the quote does not fit: final before transient, then smallest remaining first.

    What remains is that of the limit which it does not fit: dollars are compared with dollars, and come before tokens.
    """
    short = [s for s in standings if s.budget.enforce and not s.fits(quote.most, quote.tokens)]
    if len(short) < 2:
        return short
    return sorted(short, key=lambda s: (s.is_transient(quote.most, quote.tokens), _left(s, quote)))


def account_id(budget: Budget, subject: str, span: WindowSpan) -> str:
    """Name an account; the same budget, subject and window give the same name in every process.

    Of a task's own budget each user whose task it is, or was, has an account; see `owner_of`.
    """
    whose = f"@{budget.users[0]}" if budget.own and budget.users else ""
    return f"{budget.name}\x1f{budget.scope}\x1f{subject}\x1f{key_of(budget.window, span)}{whose}"


def owner_of(account: str) -> str | None:
    """Name the user that an account of a task's own budget is for; None: it is for callers without a user."""
    return account.rpartition("\x1f")[2].partition("@")[2] or None


def _left(standing: Standing, quote: Quote) -> tuple[int, int]:
    """Give what remains in dollars and in tokens of the limits that the quote does not fit."""
    usd, tokens = standing.remaining(), standing.remaining_tokens()
    return (
        _ENDLESS if usd is None or standing.fits_usd(quote.most) else usd.nano,
        _ENDLESS if tokens is None or standing.fits_tokens(quote.tokens) else tokens,
    )


def _is_in(wanted: Sequence[str], name: str | None) -> bool:
    return not wanted or name in wanted


def _matches(globs: Sequence[str], name: str) -> bool:
    return not globs or any(fnmatch.fnmatchcase(name, glob) for glob in globs)

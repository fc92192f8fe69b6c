"""Whose turn it is among calls that wait for held money. Pure: the same rules for every kind of ledger.

A newcomer that fits goes at once, unless a waiter on one of its accounts is protected, which it is after a third of its
patience. Past a protected waiter nobody younger goes on that account, unless it fits even with the waiter's amount
counted. A call that fits its limits only in a smaller version waits as the smallest, and goes as the largest that fits
then. A call waits on every account that was short for it at one time: otherwise one that needs room on two would see
the first taken again while it waits for the second. Its ticket names its other accounts too, so that another process
can tell whether it fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from lockpin_core.budgets import Budget, Standing, violations, with_reserve
from lockpin_core.call import Call, Quote
from lockpin_core.ledger.accounts import Seat
from lockpin_core.ledger.protocol import Answer, Rules, Short, Smaller, Wait
from lockpin_core.money import Money

_US = timedelta(microseconds=1)
_PROTECTED_AFTER = 3  # the part of its patience after which a waiter is protected

type Amounts = Mapping[str, tuple[int, int]]
"""What is set aside for waiters, by account: nanodollars and tokens."""

NOTHING: Amounts = {}


@dataclass(frozen=True, slots=True)
class Ticket:
    """A place in the waiting room. Instants are ledger time; lower numbers come first."""

    number: int
    call: str
    writer: str
    task: str
    usd: int
    tokens: int
    since: int
    protected_at: int
    until: int
    accounts: tuple[str, ...]  # that a limit is enforced for; sorted
    short: tuple[str, ...]  # those that it waits on; sorted
    reserve_usd: int = 0  # what must be left besides on its task's own account
    reserve_tokens: int = 0

    def knows(self, seats: Sequence[Seat], short: Sequence[str]) -> bool:
        """Say whether it names all that may stop its call."""
        limited = [seat.account for seat in seats if _has_limit(seat.budget)]
        return all(name in self.accounts for name in limited) and all(name in self.short for name in short)

    @property
    def reserve(self) -> tuple[int, int]:
        """Give what must be left besides on its task's own account: nanodollars and tokens."""
        return self.reserve_usd, self.reserve_tokens

    def next_at(self, at: int) -> int:
        """Say when it means something else than now."""
        return self.protected_at if at < self.protected_at else self.until

    def is_protected(self, at: int) -> bool:
        """Say whether nobody younger may go before it."""
        return self.protected_at <= at < self.until


class Stands(NamedTuple):
    """The accounts of a call that a limit is enforced for, and those of them that are short for it; sorted."""

    accounts: tuple[str, ...]
    short: tuple[str, ...]


class Size(NamedTuple):
    """One version of a call: what it needs, and what it must leave besides on its task's own account."""

    quote: Quote
    reserve: Quote | None = None


@dataclass(frozen=True, slots=True)
class Waiter:
    """A call of this process that waits."""

    call: Call
    rules: Rules
    smaller: Smaller | None
    ticket: Ticket
    deadline_s: float  # of the clock that never steps
    sizes: tuple[Size, ...]  # that it may still wait for room for, the larger first


def make_ticket(number: int, call: Call, writer: str, at: int, wait: Wait, now: Stands) -> Ticket:
    """Give a call its place."""
    patience = wait.patience // _US
    ends = (at, at + patience // _PROTECTED_AFTER, at + patience)
    quote = call.quote
    amounts = (quote.most.nano, quote.tokens)
    return Ticket(number, call.id, writer, call.payers.task, *amounts, *ends, *now, *amounts_of(call.reserve))


def amounts_of(quote: Quote | None) -> tuple[int, int]:
    """Give what a quote is, in nanodollars and in tokens; None: nothing."""
    return (0, 0) if quote is None else (quote.most.nano, quote.tokens)


def moved(waiter: Waiter, sizes: tuple[Size, ...], now: Stands) -> Waiter:
    """Give a waiter as it stands now, at the largest of these sizes; what was short for it once stays so."""
    ticket, size = waiter.ticket, sizes[0]
    accounts = tuple(sorted({*ticket.short, *now.accounts}))
    short = tuple(sorted({*ticket.short, *now.short}))
    (usd, tokens), (reserve_usd, reserve_tokens) = amounts_of(size.quote), amounts_of(size.reserve)
    after = replace(
        ticket, usd=usd, tokens=tokens, accounts=accounts, short=short,
        reserve_usd=reserve_usd, reserve_tokens=reserve_tokens,
    )  # fmt: skip
    if (after, sizes) == (ticket, waiter.sizes):
        return waiter
    return replace(waiter, ticket=after, sizes=sizes)


def set_aside(ticket: Ticket, amounts: dict[str, tuple[int, int]], accounts: Iterable[str]) -> None:
    """Set a ticket's amount aside on accounts, beside what is there."""
    for name in accounts:
        usd, tokens = amounts.get(name, (0, 0))
        amounts[name] = usd + ticket.usd, tokens + ticket.tokens


def protected(tickets: Iterable[Ticket], at: int) -> Amounts:
    """Set aside what the protected ones need."""
    amounts: dict[str, tuple[int, int]] = {}
    for ticket in tickets:
        if ticket.is_protected(at):
            set_aside(ticket, amounts, ticket.short)
    return amounts


def with_waiters(standings: tuple[Standing, ...], amounts: Amounts) -> tuple[Standing, ...]:
    """Count what is set aside as held."""
    if not amounts:
        return standings
    return tuple(_with(standing, amounts.get(standing.account)) for standing in standings)


def _with(standing: Standing, amount: tuple[int, int] | None) -> Standing:
    if amount is None:
        return standing
    usd, tokens = amount
    return standing._replace(held=standing.held + Money(usd), held_tokens=standing.held_tokens + tokens)


def fitted(
    call: Call, smaller: Smaller | None, before: tuple[Standing, ...], ahead: Amounts, now: datetime
) -> Call | Short:  # fmt: skip
    """Give the call, or a smaller version of it, that fits its accounts as they stand beside what is set aside for
    those ahead of it; Short: none does.

    `smaller` is shown what the whole call must leave as reserved; what it gives must leave what it says itself.
    """
    judged = with_waiters(with_reserve(before, call.reserve) if call.reserve else before, ahead)
    if not violations(judged, call.quote):
        return call
    lower = smaller(judged) if smaller is not None else None
    if lower is not None and lower.reserve != call.reserve:
        judged = with_reserve(judged, lower.reserve)
    if lower is not None and not violations(judged, lower.quote):
        return lower
    before = with_reserve(before, call.reserve) if call.reserve else before
    short = tuple(violations(before, call.quote))
    return Short(now, before, short, behind=not short)


def may_wait(short: Short, size: Size) -> bool:
    """Say whether only held money is in the way of a call, or its turn has not come."""
    quote, in_the_way = size.quote, with_reserve(short.violations, size.reserve)
    return all(standing.is_transient(quote.most, quote.tokens) for standing in in_the_way)


def sizes_of(call: Call, wait: Wait | None) -> tuple[Size, ...]:
    """List what a call may wait for room for: the whole, and its smallest version."""
    if wait is None:
        return ()
    whole = Size(call.quote, call.reserve)
    return (whole,) if wait.least is None else (whole, Size(wait.least, wait.least_reserve))


def sizes_left(short: Short, sizes: tuple[Size, ...]) -> tuple[Size, ...]:
    """Leave out the sizes that spent money is in the way of; none left: the call does not wait."""
    return tuple(size for size in sizes if may_wait(short, size))


def is_lowered(call: Call, sizes: tuple[Size, ...]) -> bool:
    """Say whether a call waits for room for less than the whole of it, as that cannot fit any more."""
    return bool(sizes) and sizes[0].quote is not call.quote


def try_in_turn(
    attempt: Callable[[Smaller | None], Answer], call: Call, smaller: Smaller | None, sizes: tuple[Size, ...]
) -> Answer:  # fmt: skip
    """Try a call that may wait for room for these sizes; a smaller version only where the whole cannot fit."""
    answer = attempt(None)
    if isinstance(answer, Short) and is_lowered(call, sizes_left(answer, sizes)):
        return attempt(smaller)
    return answer


def stands(answer: Short, size: Size, amounts: Amounts) -> Stands:
    """Say which accounts a call has to wait on, and which may stop it."""
    judged = with_waiters(with_reserve(answer.standings, size.reserve), amounts)
    short = [standing.account for standing in violations(judged, size.quote)]
    limited = [standing.account for standing in answer.standings if _has_limit(standing.budget)]
    return Stands(tuple(sorted(limited)), tuple(sorted(short)))


def _has_limit(budget: Budget) -> bool:
    return budget.enforce and (budget.limit is not None or budget.limit_tokens is not None)

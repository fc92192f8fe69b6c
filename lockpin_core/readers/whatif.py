"""Replays the calls of a ledger against other limits, or prices their usage as another model's. Pure; changes nothing.

A replay assumes that the same calls would have come at the same instants, that each asks for what it held at the last,
and that one that is refused costs nothing: an agent that is refused does something else, and nobody knows what. Calls
that were refused then, or went uncapped, are not in it. Nothing is spent or held before the first call.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from lockpin_core.budgets import Budget, account_id
from lockpin_core.call import Terms
from lockpin_core.clock import micros, stamp
from lockpin_core.errors import UnpricedError
from lockpin_core.ledger.listing import CallRow
from lockpin_core.money import ZERO, Money
from lockpin_core.prices import Model, price
from lockpin_core.readers.calls import charged
from lockpin_core.readers.figures import dollars
from lockpin_core.windows import LIFETIME, leaves_at, shown, span_at

LIMIT_FIELDS = ("budget", "key", "window", "limit_usd", "calls", "refused", "spent_usd", "would_spend_usd", "first")
MODEL_FIELDS = ("model", "as_model", "calls", "spent_usd", "would_spend_usd", "difference_usd", "left_out")


@dataclass(frozen=True, slots=True)
class Past:
    """What a replay needs of a call; instants in microseconds since 1970."""

    id: str
    task: str
    machine: str
    provider: str
    model: str
    at: int
    ended: int | None  # None: it is still in flight
    held: int  # nanodollars
    charged: int


@dataclass(slots=True)
class Outcome:
    """What a limit would have done on one account."""

    budget: Budget
    subject: str
    calls: int = 0
    refused: int = 0
    spent: int = 0  # nanodollars, as it was
    would_spend: int = 0
    first: int | None = None  # when the first call would have been refused


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay's whole result: an outcome for each account, and what all calls come to."""

    outcomes: Sequence[Outcome]
    calls: int
    refused: Sequence[str]  # ids, oldest first
    spent: Money
    would_spend: Money


def past_of(call: CallRow) -> Past | None:
    """Take what a replay needs of a call; None: it took no hold."""
    if call.held is None:
        return None
    ended = None if call.state == "open" or call.ended_at is None else micros(call.ended_at)
    cost = charged(call)
    return Past(
        call.id, call.payers.task, call.payers.machine, call.provider, call.model, micros(call.at), ended,
        call.held.nano, 0 if cost is None else cost.nano,
    )  # fmt: skip


def replay(
    calls: Iterable[Past],
    limits: Sequence[Budget],
    instant: Callable[[int], datetime],
    tasks: Mapping[str, Budget] | None = None,
) -> Replay:
    """Run the calls in the order of their instants against limits in dollars, as the ledger would.

    A call is refused where spent + held + its own hold passes a limit that it is charged to; it then holds nothing
    anywhere. `instant` turns microseconds into a time. `tasks` are budgets of single tasks, in place of the one that
    tasks have without them.
    """
    run = _Run(limits, instant, tasks or {})
    past = sorted(calls, key=lambda call: (call.at, call.id))
    # What ends in the same microsecond makes room for what begins in it.
    ends = [(call.ended, False, call) for call in past if call.ended is not None]
    events = sorted([*ends, *((call.at, True, call) for call in past)], key=lambda event: event[:2])
    for _, is_hold, call in events:
        if is_hold:
            run.hold(call)
        else:
            run.settle(call)
    ended = [call for call in past if call.ended is not None]
    kept = sum(call.charged for call in ended if call.id not in run.refused)
    total = sum(call.charged for call in ended)
    outcomes = sorted(run.outcomes.values(), key=lambda o: (-o.refused, o.budget.name, o.subject))
    return Replay(outcomes, len(past), list(run.refused), Money(total), Money(kept))


@dataclass(slots=True)
class _Account:
    spent: int = 0
    held: int = 0
    leaving: list[tuple[int, int]] = field(default_factory=list)  # of a rolling window: when, how much; a heap


@dataclass(slots=True)
class _Run:
    limits: Sequence[Budget]
    instant: Callable[[int], datetime]
    tasks: Mapping[str, Budget]
    accounts: defaultdict[str, _Account] = field(default_factory=lambda: defaultdict(_Account))
    seats: dict[str, list[tuple[Budget, _Account]]] = field(default_factory=dict)  # by call: where it holds
    outcomes: dict[tuple[str, str], Outcome] = field(default_factory=dict)
    refused: dict[str, None] = field(default_factory=dict)

    def hold(self, call: Past) -> None:
        """Admit a call or refuse it."""
        seats = [(budget, self._account(budget, call)) for budget in self._limits(call) if _is_of(budget, call)]
        short = [budget for budget, account in seats if not _fits(budget, account, call)]
        for budget, _ in seats:
            outcome = self._outcome(budget, call)
            outcome.calls += 1
            outcome.spent += call.charged
            if budget in short:
                outcome.refused += 1
                outcome.first = call.at if outcome.first is None else outcome.first
            outcome.would_spend += 0 if short else call.charged
        if short:
            self.refused[call.id] = None
            return
        for _, account in seats:
            account.held += call.held
        self.seats[call.id] = seats

    def settle(self, call: Past) -> None:
        """Turn a hold into its charge, in the window of the hold; one that was refused has none."""
        for budget, account in self.seats.pop(call.id, ()):
            account.held -= call.held
            account.spent += call.charged
            if budget.window.kind == "rolling" and call.charged:
                heapq.heappush(account.leaving, (leaves_at(call.at, budget.window.period_ms), call.charged))

    def _limits(self, call: Past) -> Sequence[Budget]:
        own = self.tasks.get(call.task)
        return self.limits if own is None else [*(budget for budget in self.limits if not budget.own), own]

    def _account(self, budget: Budget, call: Past) -> _Account:
        """Find the account of a call's window, with what has left a rolling one taken off."""
        subject = _subject(budget, call)
        is_calendar = budget.window.kind not in ("lifetime", "rolling")
        span = span_at(budget.window, self.instant(call.at)) if is_calendar else LIFETIME
        account = self.accounts[account_id(budget, subject, span)]
        while account.leaving and account.leaving[0][0] <= call.at:
            account.spent -= heapq.heappop(account.leaving)[1]
        return account

    def _outcome(self, budget: Budget, call: Past) -> Outcome:
        subject = _subject(budget, call)
        return self.outcomes.setdefault((budget.name, subject), Outcome(budget, subject))


def _subject(budget: Budget, call: Past) -> str:
    return call.task if budget.scope == "task" else call.machine


def _is_of(budget: Budget, call: Past) -> bool:
    return budget.limit is not None and budget.applies(provider=call.provider, model=call.model)


def _fits(budget: Budget, account: _Account, call: Past) -> bool:
    assert budget.limit is not None, "a budget without a limit in dollars is not replayed"
    return not call.held or account.spent + account.held + call.held <= budget.limit.nano


@dataclass(frozen=True, slots=True)
class Repriced:
    """What the calls of a model cost, and would have cost as another's. Those left out are in neither sum."""

    model: str
    as_model: str
    calls: int
    spent: Money
    would_spend: Money
    left_out: int  # their usage is not known, or the other model has no price for it


def reprice(calls: Iterable[CallRow], is_meant: Callable[[CallRow], bool], model: Model) -> list[Repriced]:
    """Price the usage of calls as another model's at its standard tier, at each call's instant; dearest first."""
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for call in calls:
        cost = charged(call)
        if call.state != "charged" or cost is None or not is_meant(call):
            continue
        found, pico = sums[call.model], _pico(call, model)
        if pico is None:
            found[3] += 1
        else:
            found[:3] = found[0] + 1, found[1] + cost.nano, found[2] + Money.from_pico(pico).nano
    rows = [
        Repriced(name, model.id, count, Money(spent), Money(would), left_out)
        for name, (count, spent, would, left_out) in sums.items()
    ]
    return sorted(rows, key=lambda row: (-row.spent.nano, row.model))


def _pico(call: CallRow, model: Model) -> int | None:
    if call.estimated or not call.usage:
        return None  # what was charged is no usage's price
    try:
        return price(model, call.usage, Terms(), call.at)
    except UnpricedError:
        return None


def limit_record(outcome: Outcome, instant: Callable[[int], datetime]) -> dict[str, object]:
    """Build the JSON object of an account."""
    return {
        "budget": outcome.budget.name,
        "key": f"{outcome.budget.scope}:{outcome.subject}",
        "window": shown(outcome.budget.window),
        "limit_usd": dollars(outcome.budget.limit),
        "calls": outcome.calls,
        "refused": outcome.refused,
        "spent_usd": dollars(Money(outcome.spent)),
        "would_spend_usd": dollars(Money(outcome.would_spend)),
        "first": None if outcome.first is None else stamp(instant(outcome.first)),
    }


def model_record(row: Repriced) -> dict[str, object]:
    """Build the JSON object of a model."""
    return {
        "model": row.model,
        "as_model": row.as_model,
        "calls": row.calls,
        "spent_usd": dollars(row.spent),
        "would_spend_usd": dollars(row.would_spend),
        "difference_usd": dollars(row.would_spend - row.spent),
        "left_out": row.left_out,
    }


def sum_of(rows: Sequence[Repriced]) -> Repriced:
    """Add up."""
    spent = sum((row.spent for row in rows), ZERO)
    would = sum((row.would_spend for row in rows), ZERO)
    as_model = rows[0].as_model if rows else ""
    return Repriced("", as_model, sum(r.calls for r in rows), spent, would, sum(r.left_out for r in rows))

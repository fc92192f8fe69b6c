"""Replays the calls of a ledger against other limits, or prices their usage as another model's. Pure; changes nothing.

A replay assumes that the same calls would have come at the same instants, that each asks for what it held at the last,
and that one that is refused costs nothing: an agent that is refused does something else, and nobody knows what. A call
whose output limit Lockpin had set takes what is left, down to the floor, as it would have, and costs no more than that.
Calls that were refused then, or went uncapped, are not in it. Nothing is spent or held before the first call.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal

from lockpin_core.budgets import Budget, account_id
from lockpin_core.call import Payers, Terms
from lockpin_core.clock import micros, stamp
from lockpin_core.errors import UnpricedError
from lockpin_core.ledger.listing import CallRow
from lockpin_core.money import ZERO, Money
from lockpin_core.prices import BATCH, Model, band_start, price
from lockpin_core.readers.calls import charged, shares_now
from lockpin_core.readers.figures import dollars
from lockpin_core.usage import Unit
from lockpin_core.windows import LIFETIME, leaves_at, shown, span_at

LIMIT_FIELDS = (
    *("budget", "key", "window", "limit_usd", "calls", "refused", "spent_usd", "would_spend_usd", "first"),
    *("lowered", "perhaps_lowered"),
)
MODEL_FIELDS = ("model", "as_model", "calls", "spent_usd", "would_spend_usd", "difference_usd", "left_out")


@dataclass(frozen=True, slots=True)
class Past:
    """What a replay needs of a call; instants in microseconds since 1970."""

    id: str
    payers: Payers
    provider: str
    model: str
    at: int
    ended: int | None  # None: it is still in flight
    held: int  # nanodollars
    charged: int
    least: int | None = None  # what its smallest version holds for sure; None: it has none
    perhaps: int | None = None  # what that may hold, where the row does not say enough


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
    lowered: int = 0  # calls that would have got less output, and not been refused
    perhaps_lowered: int = 0  # those of which the rows do not tell which of the two


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay's whole result: an outcome for each account, and what all calls come to."""

    outcomes: Sequence[Outcome]
    calls: int
    refused: Sequence[str]  # ids, oldest first
    lowered: Sequence[str]
    perhaps_lowered: Sequence[str]
    spent: Money
    would_spend: Money


def past_of(call: CallRow, floor: int | None) -> Past | None:
    """Take what a replay needs of a call; None: it took no hold.

    `floor`: the lowest output limit that Lockpin sets; None: it sets none.
    """
    if call.held is None:
        return None
    ended = None if call.state == "open" or call.ended_at is None else micros(call.ended_at)
    cost = charged(call)
    return Past(
        call.id, call.payers, call.provider, call.model, micros(call.at), ended,
        call.held.nano, 0 if cost is None else cost.nano, *_smallest(call, call.held.nano, floor),
    )  # fmt: skip


def _smallest(call: CallRow, held: int, floor: int | None) -> tuple[int | None, int | None]:
    """Say what a call's smallest version holds at the most, and at the least; None: there is none that is smaller.

    A hold is at the dearest rates that may apply, so what less output saves is at least that at the row's own rate.
    """
    output, limit = call.held_output, call.output_limit
    if floor is None or not held or call.tier == BATCH or not (call.limit_set or call.has_rounds or limit is None):
        return None, None
    if output is None:
        return None, 0
    rate = Decimal(call.rates.get(Unit.OUTPUT, "0")) * 1000  # nanodollars a token
    kept = output if limit is None else -(-output * min(floor, limit) // limit)
    if call.limit_set and kept < output and rate:
        sure = held - int((output - kept) * rate)
        return sure, 0 if call.has_rounds else min(sure, held * kept // output)
    is_open = call.has_rounds or (limit is None and output > floor)
    return None, 0 if is_open else None


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
    # What a task's own budget would have done is asked of all its calls, whosever they were.
    run = _Run(
        [replace(budget, own=False) for budget in limits], [budget for budget in limits if not budget.own], instant,
        {task: replace(budget, own=False) for task, budget in (tasks or {}).items()},
    )  # fmt: skip
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
    kept = sum(
        min(call.charged, run.lowered.get(call.id, call.charged)) for call in ended if call.id not in run.refused
    )
    total = sum(call.charged for call in ended)
    outcomes = sorted(run.outcomes.values(), key=lambda o: (-o.refused, o.budget.name, o.subject))
    lowered = [call for call in run.lowered if call not in run.perhaps]
    return Replay(outcomes, len(past), list(run.refused), lowered, list(run.perhaps), Money(total), Money(kept))


@dataclass(slots=True)
class _Account:
    spent: int = 0
    held: int = 0
    leaving: list[tuple[int, int]] = field(default_factory=list)  # of a rolling window: when, how much; a heap


@dataclass(frozen=True, slots=True)
class _Seat:
    budget: Budget
    subject: str
    account: _Account

    def left(self) -> int:
        assert self.budget.limit is not None, "a budget without a limit in dollars is not replayed"
        return self.budget.limit.nano - self.account.spent - self.account.held


@dataclass(slots=True)
class _Run:
    limits: Sequence[Budget]
    others: Sequence[Budget]  # all of them but the tasks' own
    instant: Callable[[int], datetime]
    tasks: Mapping[str, Budget]
    accounts: defaultdict[str, _Account] = field(default_factory=lambda: defaultdict(_Account))
    seats: dict[str, list[_Seat]] = field(default_factory=dict)  # by call: where it holds
    lowered: dict[str, int] = field(default_factory=dict)  # by call: what it holds instead
    perhaps: dict[str, None] = field(default_factory=dict)  # those of them of which it is not sure
    outcomes: dict[tuple[str, str], Outcome] = field(default_factory=dict)
    refused: dict[str, None] = field(default_factory=dict)

    def hold(self, call: Past) -> None:
        """Admit a call, whole or lowered to what is left, or refuse it."""
        seats = [
            _Seat(budget, subject, self._account(budget, subject, call))
            for budget in self._limits(call)
            if budget.limit is not None and budget.applies(call.payers, provider=call.provider, model=call.model)
            for subject in budget.subjects(call.payers)
        ]
        short = [seat for seat in seats if call.held and call.held > seat.left()]
        is_refused = bool(short) and not self._lower(call, min(seat.left() for seat in seats))
        held = self.lowered.get(call.id, call.held)
        for seat in seats:
            outcome = self._outcome(seat)
            outcome.calls += 1
            outcome.spent += call.charged
            outcome.would_spend += 0 if is_refused else min(call.charged, self.lowered.get(call.id, call.charged))
            if seat in short:
                _note(outcome, call, is_refused=is_refused, is_sure=call.id not in self.perhaps)
            seat.account.held += 0 if is_refused else held
        if is_refused:
            self.refused[call.id] = None
        else:
            self.seats[call.id] = seats

    def _lower(self, call: Past, left: int) -> bool:
        """Say whether a smaller version of a call takes what is left; note whether that is sure."""
        is_sure = call.least is not None and call.least <= left
        is_there = left > 0 and (is_sure or (call.perhaps is not None and call.perhaps <= left))
        if is_there:
            self.lowered[call.id] = left
        if is_there and not is_sure:
            self.perhaps[call.id] = None
        return is_there

    def settle(self, call: Past) -> None:
        """Turn a hold into its charge, in the window of the hold; one that was refused has none."""
        held = self.lowered.get(call.id, call.held)
        charge = min(call.charged, self.lowered.get(call.id, call.charged))
        for seat in self.seats.pop(call.id, ()):
            window = seat.budget.window
            seat.account.held -= held
            seat.account.spent += charge
            if window.kind == "rolling" and charge:
                heapq.heappush(seat.account.leaving, (leaves_at(call.at, window.period_ms), charge))

    def _limits(self, call: Past) -> Sequence[Budget]:
        own = self.tasks.get(call.payers.task)
        return self.limits if own is None else [*self.others, own]

    def _account(self, budget: Budget, subject: str, call: Past) -> _Account:
        """Find the account of a call's window, with what has left a rolling one taken off."""
        is_calendar = budget.window.kind not in ("lifetime", "rolling")
        span = span_at(budget.window, self.instant(call.at)) if is_calendar else LIFETIME
        account = self.accounts[account_id(budget, subject, span)]
        while account.leaving and account.leaving[0][0] <= call.at:
            account.spent -= heapq.heappop(account.leaving)[1]
        return account

    def _outcome(self, seat: _Seat) -> Outcome:
        return self.outcomes.setdefault((seat.budget.name, seat.subject), Outcome(seat.budget, seat.subject))


def _note(outcome: Outcome, call: Past, *, is_refused: bool, is_sure: bool) -> None:
    """Count a call that an account has no room for as it is."""
    if is_refused:
        outcome.refused += 1
        outcome.first = call.at if outcome.first is None else outcome.first
    elif is_sure:
        outcome.lowered += 1
    else:
        outcome.perhaps_lowered += 1


@dataclass(frozen=True, slots=True)
class Repriced:
    """What the calls of a model cost, and would have cost as another's. Those left out are in neither sum."""

    model: str
    as_model: str
    calls: int
    spent: Money
    would_spend: Money
    left_out: int  # their usage, or of which band its prompts are, is not known, or the other model has no price for it


def reprice(calls: Iterable[CallRow], is_meant: Callable[[CallRow], bool], model: Model) -> list[Repriced]:
    """Price the usage of calls as another model's at its standard tier, at each call's instant; dearest first."""
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for call in calls:
        meant = [part for part in _parts(call) if is_meant(part)] if call.state == "charged" else []
        for name in sorted({part.model for part in meant}):
            _count(sums[name], [part for part in meant if part.model == name], model)
    rows = [
        Repriced(name, model.id, count, Money(spent), Money(would), left_out)
        for name, (count, spent, would, left_out) in sums.items()
    ]
    return sorted(rows, key=lambda row: (-row.spent.nano, row.model))


def _parts(call: CallRow) -> list[CallRow]:
    """Part a call by the models in it. Where none is the one that was called, that is another name of theirs."""
    shares = shares_now(call)
    is_named = any(share.model == call.model for share in shares)
    return [
        replace(
            call, model=share.model, model_served=share.model, usage=share.usage, charged=share.amount,
            asked_model=None if is_named and share.model != call.model else call.asked_model, shares=(share,),
        )
        for share in shares
    ] or [call]  # fmt: skip


def _count(sums: list[int], parts: Sequence[CallRow], model: Model) -> None:
    """Count one call's parts of one model."""
    picos = [_pico(part, model) for part in parts]
    known = [pico for pico in picos if pico is not None]
    if len(known) < len(picos):
        sums[3] += 1
        return
    spent = sum((cost for part in parts if (cost := charged(part)) is not None), ZERO)
    sums[:3] = sums[0] + 1, sums[1] + spent.nano, sums[2] + Money.from_pico(sum(known)).nano


def _pico(call: CallRow, model: Model) -> int | None:
    if call.estimated or not call.usage or (call.tier == BATCH and not call.shares):
        return None  # what was charged is no usage's price, or that of several prompts which the row does not part
    try:
        if not call.shares:
            return price(model, call.usage, Terms(), call.at)
        (share,) = call.shares
        sizes = (share.least_prompt, share.most_prompt)
        if len({band_start(model, size, Terms(), call.at) for size in sizes}) > 1:
            return None  # which of its prompts are in which band of this model's the row does not say
        return price(model, call.usage, Terms(), call.at, prompt_size=share.most_prompt)
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
        "lowered": outcome.lowered,
        "perhaps_lowered": outcome.perhaps_lowered,
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

"""The next attempt of a call that has failed: its hold takes the place of the one before, in one transaction.

Nobody who waits goes between, as the call was there before them. Knows the operations of the books; knows no SQL.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockpin_core.budgets import Standing, violations, with_reserve
from lockpin_core.call import Call, Charge, Void
from lockpin_core.ledger.allowances import Allowance, unused
from lockpin_core.ledger.backlog import OpenHold
from lockpin_core.ledger.books import Books
from lockpin_core.ledger.pauses import Paused
from lockpin_core.ledger.protocol import Answer, Closed, Held, Resolved, Rules, Short
from lockpin_core.ledger.turns import Waiter
from lockpin_core.money import Money

type Replaced = tuple[Resolved | None, Answer]


def replace_hold(
    books: Books, call_id: str, outcome: Charge | Void, call: Call, rules: Rules, *, keep: bool
) -> Replaced:  # fmt: skip
    """See Ledger.replace."""
    if keep and books.open_hold(call.id) is None:
        before = _in_the_way(books, call_id, outcome, call, rules)
        if before is not None:
            return None, before
    with books.room.shut():
        resolved = books.settle(call_id, outcome) if isinstance(outcome, Charge) else books.void(call_id, outcome)
        answer = books.hold(call, rules, out_of_turn=True)
    assert not isinstance(answer, Waiter), "an attempt does not wait"
    # The charge of the attempt before may itself have tripped the breaker.
    assert not keep or isinstance(answer, Held | Paused), "the next attempt does not fit"
    return resolved, answer


def _in_the_way(
    books: Books, call_id: str, outcome: Charge | Void, call: Call, rules: Rules
) -> Answer | None:  # fmt: skip
    """Say, by reading alone, why a call does not fit beside what the one before leaves; None: it does."""
    payers = call.payers
    terms = books.terms(payers.task)
    if terms is not None and terms.closes(payers):
        return Closed(books.now, payers.task)
    if (paused := books.pauses.of(payers)) is not None:
        return paused
    standings = books.look(payers, call.provider, call.model, rules)
    held = books.open_hold(call_id)
    cost = (outcome.amount.nano, outcome.tokens) if isinstance(outcome, Charge) else (0, 0)
    after = standings if held is None else left_by(standings, held, cost, books.allowances.find(call_id), books.at)
    short = tuple(violations(with_reserve(after, call.reserve), call.quote))
    return Short(books.now, standings, short) if short else None


def left_by(
    standings: Sequence[Standing], held: OpenHold, cost: tuple[int, int], given: Allowance | None, at: int
) -> tuple[Standing, ...]:  # fmt: skip
    """Give accounts as they would stand if an open hold had ended and its call had cost so much."""
    return tuple(
        _without(standing, held, cost, given, at) if standing.account in held.accounts else standing
        for standing in standings
    )


def _without(
    standing: Standing, held: OpenHold, cost: tuple[int, int], given: Allowance | None, at: int
) -> Standing:  # fmt: skip
    after = standing._replace(
        held=standing.held - Money(held.usd), held_tokens=standing.held_tokens - held.tokens,
        spent=standing.spent + Money(cost[0]), spent_tokens=standing.spent_tokens + cost[1],
    )  # fmt: skip
    left = after.remaining()
    if given is None or given.account != standing.account or after.limit is None or left is None:
        return after
    return after._replace(limit=after.limit - Money(unused(given, held.usd, cost[0], left.nano, at)))

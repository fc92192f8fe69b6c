"""The next attempt of a call that has failed: its hold takes the place of the one before, in one transaction.

Nobody who waits goes between, as the call was there before them. Knows the operations of the books; knows no SQL.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockpin_core.budgets import Standing, violations, with_reserve
from lockpin_core.call import Call, Charge, Void
from lockpin_core.ledger.allowances import PASSED_ON, Allowance, unused
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
    held, given = books.open_hold(call_id), books.allowances.find(call_id)
    passes_on = _passes_on(books, held, given, outcome, call, rules)
    if keep and not passes_on and books.open_hold(call.id) is None:
        before = _in_the_way(books, held, given, outcome, call, rules)
        if before is not None:
            return None, before
    with books.room.shut():
        if passes_on:
            _pass_on(books, call_id, call)
        resolved = books.settle(call_id, outcome) if isinstance(outcome, Charge) else books.void(call_id, outcome)
        answer = books.hold(call, rules, out_of_turn=True)
    assert not isinstance(answer, Waiter), "an attempt does not wait"
    # The charge of the attempt before may itself have tripped the breaker.
    assert not keep or isinstance(answer, Held | Paused), "the next attempt does not fit"
    return resolved, answer


def _passes_on(
    books: Books, held: OpenHold | None, given: Allowance | None, outcome: Charge | Void, call: Call, rules: Rules
) -> bool:  # fmt: skip
    """Say whether the next attempt gets what a person allowed this one: that cost nothing, and it fits by that."""
    if given is None or held is None or isinstance(outcome, Charge) or not may_inherit(call, held):
        return False
    standings = books.look(call.payers, call.provider, call.model, rules)
    is_its = any(standing.account == given.account for standing in standings)
    return is_its and _in_the_way(books, held, None, outcome, call, rules) is None


def may_inherit(call: Call, held: OpenHold) -> bool:
    """Say whether a call is one that a person has allowed as well as the one that was held: it is no dearer."""
    return call.payers.task == held.task and call.quote.most.nano <= held.usd


def _pass_on(books: Books, call_id: str, call: Call) -> None:
    given = books.allowances.take(call_id)
    assert given is not None, "nothing was allowed"
    books.allowances.put(call.id, given)
    told = {"account": given.account, "call": call_id, "to": call.id, "by_nano": given.nano}
    books.event(PASSED_ON, told, call.payers.task)


def _in_the_way(
    books: Books, held: OpenHold | None, given: Allowance | None, outcome: Charge | Void, call: Call, rules: Rules
) -> Answer | None:  # fmt: skip
    """Say, by reading alone, why a call does not fit beside what the one before leaves; None: it does.

    `given`: what of its limit is taken back then.
    """
    payers = call.payers
    terms = books.terms(payers.task)
    if terms is not None and terms.closes(payers):
        return Closed(books.now, payers.task)
    if (paused := books.pauses.of(payers)) is not None:
        return paused
    standings = books.look(payers, call.provider, call.model, rules)
    cost = (outcome.amount.nano, outcome.tokens) if isinstance(outcome, Charge) else (0, 0)
    after = standings if held is None else left_by(standings, held, cost, given, books.at)
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

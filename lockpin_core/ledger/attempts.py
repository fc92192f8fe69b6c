"""The next attempt of a call that has failed: its hold takes the place of the one before, in one transaction.

Nobody who waits goes between, as the call was there before them. Knows the operations of the books; knows no SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lockpin_core.budgets import Standing, violations, with_reserve
from lockpin_core.call import Call, Charge, Payers, Void
from lockpin_core.ledger.allowances import PASSED_ON
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
    held, before = books.open_hold(call_id), None
    if held is not None and isinstance(outcome, Charge):
        outcome = outcome.within(Money(held.usd), held.tokens)
    if books.open_hold(call.id) is None:
        before = _in_the_way(books, held, outcome, call, rules, _allowed_on(books, held))
    if before is not None and held is not None and _passes_on(books, held, outcome, call, rules):
        return _pass_on(books, held, outcome, call, rules)
    if keep and before is not None:
        return None, before
    with books.room.shut():
        resolved = books.settle(call_id, outcome) if isinstance(outcome, Charge) else books.void(call_id, outcome)
        answer = books.hold(call, rules, out_of_turn=True)
    assert not isinstance(answer, Waiter), "an attempt does not wait"
    # The charge of the attempt before may itself have tripped the breaker.
    assert not keep or isinstance(answer, Held | Paused), "the next attempt does not fit"
    return resolved, answer


def is_short(books: Books, call: Call, rules: Rules) -> bool:
    """Say, by reading alone, whether a limit is all that keeps a call."""
    return isinstance(_in_the_way(books, None, Void(""), call, rules, {}), Short)


def _allowed_on(books: Books, held: OpenHold | None) -> Mapping[str, int]:
    return {} if held is None else books.balances.allowed(held.accounts)


def _passes_on(books: Books, held: OpenHold, outcome: Charge | Void, call: Call, rules: Rules) -> bool:
    """Say whether the next attempt gets what a person allowed this one: that cost nothing, and it fits by that."""
    given = books.allowances.find(held.call)
    if given is None or isinstance(outcome, Charge) or not may_inherit(call, held):
        return False
    standings = books.look(call.payers, call.provider, call.model, rules)
    is_its = any(standing.account == given.account for standing in standings)
    return is_its and _in_the_way(books, held, outcome, replace(call, reserve=None), rules, {}) is None


def may_inherit(call: Call, held: OpenHold) -> bool:
    """Say whether a call is one that a person has allowed as well as the one that was held: it is no dearer."""
    return call.payers.task == held.task and call.quote.most.nano <= held.usd


def _pass_on(books: Books, held: OpenHold, outcome: Charge | Void, call: Call, rules: Rules) -> Replaced:
    """Let a call have what it needs of what the attempt before was allowed: of that the rest is taken back."""
    assert isinstance(outcome, Void), "it has cost something"
    if not books.seats.origin:
        books.define(rules)
    terms = books.terms(call.payers.task)
    books.balances.standings(books.seats.of(call, rules, terms, books.now))  # opened before what follows row on row
    given = books.allowances.take(held.call)
    assert given is not None, "nothing was allowed"
    books.allowances.put(call.id, given)
    told = {"account": given.account, "call": held.call, "to": call.id, "by_nano": given.nano}
    books.event(PASSED_ON, told, call.payers.task)
    books.balances.keeps = True
    with books.room.shut():
        resolved = books.void(held.call, outcome)
        answer = books.hold(replace(call, reserve=None), rules, out_of_turn=True)
    books.balances.keeps = False
    assert isinstance(answer, Held), "the next attempt does not fit"
    books.balances.free(given.account, held.usd - call.quote.most.nano)
    books.room.has_changed = True  # who waits may not fit any more
    names = [standing.account for standing in answer.standings]
    return resolved, replace(answer, standings=books.balances.current(names, terms))


def _in_the_way(
    books: Books, held: OpenHold | None, outcome: Charge | Void, call: Call, rules: Rules, allowed: Mapping[str, int]
) -> Answer | None:  # fmt: skip
    """Say, by reading alone, why a call does not fit beside what the one before leaves; None: it does.

    `allowed`: what was allowed once on each of its accounts, of which as much is taken back as comes free.
    """
    payers = call.payers
    if (stopped := barred(books, payers)) is not None:
        return stopped
    standings = books.look(payers, call.provider, call.model, rules)
    cost = (outcome.amount.nano, outcome.tokens) if isinstance(outcome, Charge) else (0, 0)
    after = standings if held is None else left_by(standings, held, cost, allowed)
    short = tuple(violations(with_reserve(after, call.reserve), call.quote))
    return Short(books.now, standings, short) if short else None


def barred(books: Books, payers: Payers) -> Closed | Paused | None:
    """See Ledger.barred."""
    terms = books.terms(payers.task)
    if terms is not None and terms.closes(payers):
        return Closed(books.now, payers.task)
    return books.pauses.of(payers)


def left_by(
    standings: Sequence[Standing], held: OpenHold, cost: tuple[int, int], allowed: Mapping[str, int]
) -> tuple[Standing, ...]:  # fmt: skip
    """Give accounts as they would stand if an open hold had ended and its call had cost so much."""
    return tuple(
        _without(standing, held, cost, allowed.get(standing.account, 0))
        if standing.account in held.accounts
        else standing
        for standing in standings
    )


def _without(standing: Standing, held: OpenHold, cost: tuple[int, int], allowed: int) -> Standing:
    back = max(0, min(allowed, held.usd - cost[0]))
    return standing._replace(
        held=standing.held - Money(held.usd), held_tokens=standing.held_tokens - held.tokens,
        spent=standing.spent + Money(cost[0]), spent_tokens=standing.spent_tokens + cost[1],
        limit=None if standing.limit is None else standing.limit - Money(back),
    )  # fmt: skip

from datetime import timedelta

import pytest

from lockpin_core.budgets import Standing
from lockpin_core.ledger.protocol import Short, Wait
from lockpin_core.ledger.turns import (
    NOTHING,
    Stands,
    Ticket,
    Waiter,
    make_ticket,
    may_wait,
    moved,
    protected,
    set_aside,
    stands,
    with_waiters,
)
from lockpin_core.windows import LIFETIME
from tests.ledger.desk import NOON, call, machine, money, rules


def ticket(number=1, usd=5, tokens=7, accounts=("a",), protected_at=100, until=300):
    return Ticket(number, f"c{number}", "w", "t", usd, tokens, 0, protected_at, until, ("z", *accounts), accounts)


def standing(account, *, spent="0", held="0", limit="1", spent_tokens=0, enforce=True):
    budget = machine(limit, name=account, enforce=enforce)
    amounts = (money(spent), money(held), spent_tokens, 0)
    return Standing(account, budget, "m", LIFETIME, *amounts, budget.limit, None)


def test_a_ticket_is_protected_after_a_third_of_the_patience_and_until_its_end():
    patience = Wait(timedelta(microseconds=300))

    made = make_ticket(4, call("c", "0.5", tokens=9), "w", 1_000, patience, Stands(("a", "b"), ("b",)))

    assert made == Ticket(4, "c", "w", "t", 500_000_000, 9, 1_000, 1_100, 1_300, ("a", "b"), ("b",))
    assert [made.is_protected(at) for at in (1_099, 1_100, 1_299, 1_300)] == [False, True, True, False]


def test_what_the_protected_need_is_added_up_by_account():
    tickets = [ticket(1, accounts=("a", "b")), ticket(2, usd=3, tokens=0, accounts=("b",)), ticket(3, protected_at=201)]

    assert protected(tickets, 200) == {"a": (5, 7), "b": (8, 7)}
    assert protected(tickets, 99) == protected(tickets, 300) == NOTHING == {}


def test_what_is_set_aside_is_added_up():
    amounts = {"b": (1, 1)}
    set_aside(ticket(), amounts, ("a",))
    set_aside(ticket(2), amounts, ("a", "b"))
    assert amounts == {"a": (10, 14), "b": (6, 8)}


def test_what_is_set_aside_counts_as_held():
    standings = (standing("a", held="0.2"), standing("b", held="0.3"))

    found = with_waiters(standings, {"a": (10**8, 4), "c": (1, 1)})

    assert [(s.held, s.held_tokens) for s in found] == [(money("0.3"), 4), (money("0.3"), 0)]
    assert with_waiters(standings, NOTHING) is standings


@pytest.mark.parametrize(
    ("standings", "waits", "on"),
    [
        ((standing("a", held="0.9"), standing("b")), True, ("a",)),
        ((standing("b", held="0.9"), standing("a", held="0.95")), True, ("a", "b")),
        ((standing("a", held="0.9"), standing("b", spent="0.9")), False, ("a", "b")),
        ((standing("a", held="0.9", enforce=False), standing("b", held="0.9")), True, ("b",)),
    ],
)
def test_only_held_money_is_worth_waiting_for(standings, waits, on):
    quote = call("c", "0.2").quote
    short = Short(NOON, standings, tuple(s for s in standings if s.account in on))

    assert (may_wait(short, quote), stands(short, quote, NOTHING).short) == (waits, on)


def test_who_is_behind_waits_on_the_account_that_others_wait_on():
    short = Short(NOON, (standing("a"), standing("b")), (), behind=True)

    quote = call("c", "0.2").quote

    assert may_wait(short, quote)
    assert stands(short, quote, {"b": (9 * 10**8, 0)}) == Stands(("a", "b"), ("b",))


def test_accounts_that_cannot_stop_a_call_are_not_on_its_ticket():
    standings = (standing("c", held="0.9"), standing("b", enforce=False), standing("a", limit=None))
    short = Short(NOON, standings, standings[:1])
    assert stands(short, call("c", "0.2").quote, NOTHING) == Stands(("c",), ("c",))


def test_a_waiter_stays_on_every_account_that_was_short_for_it():
    waiter = Waiter(call("c", "0.2"), rules(), None, ticket(accounts=("b",)), 0.0)

    more = moved(waiter, Stands(("a", "c"), ("a",)))

    assert (more.ticket.accounts, more.ticket.short) == (("a", "b", "c"), ("a", "b"))
    assert moved(more, Stands(("a", "b", "c"), ("a", "b"))) is more
    assert moved(more, Stands(("a", "b", "c"), ("b",))) is more

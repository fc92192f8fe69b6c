from dataclasses import replace
from datetime import timedelta

import pytest

from lockpin_core.budgets import Standing
from lockpin_core.ledger.protocol import Short, Wait
from lockpin_core.ledger.turns import (
    NOTHING,
    Size,
    Stands,
    Ticket,
    Waiter,
    is_lowered,
    make_ticket,
    may_wait,
    moved,
    protected,
    set_aside,
    sizes_left,
    sizes_of,
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
    quote = Size(call("c", "0.2").quote)
    short = Short(NOON, standings, tuple(s for s in standings if s.account in on))

    assert (may_wait(short, quote), stands(short, quote, NOTHING).short) == (waits, on)


def test_who_is_behind_waits_on_the_account_that_others_wait_on():
    short = Short(NOON, (standing("a"), standing("b")), (), behind=True)

    size = Size(call("c", "0.2").quote)

    assert may_wait(short, size)
    assert stands(short, size, {"b": (9 * 10**8, 0)}) == Stands(("a", "b"), ("b",))


def test_accounts_that_cannot_stop_a_call_are_not_on_its_ticket():
    standings = (standing("c", held="0.9"), standing("b", enforce=False), standing("a", limit=None))
    short = Short(NOON, standings, standings[:1])
    assert stands(short, Size(call("c", "0.2").quote), NOTHING) == Stands(("c",), ("c",))


def test_a_waiter_stays_on_every_account_that_was_short_for_it():
    one = call("c", "0.2", tokens=7)
    waiter = Waiter(one, rules(), None, ticket(usd=200_000_000, accounts=("b",)), 0.0, (Size(one.quote),))

    more = moved(waiter, waiter.sizes, Stands(("a", "c"), ("a",)))

    assert (more.ticket.accounts, more.ticket.short) == (("a", "b", "c"), ("a", "b"))
    assert moved(more, more.sizes, Stands(("a", "b", "c"), ("a", "b"))) is more
    assert moved(more, more.sizes, Stands(("a", "b", "c"), ("b",))) is more


def test_a_waiter_whose_whole_cannot_fit_any_more_keeps_its_place_at_its_smallest():
    one, least = call("c", "0.2", tokens=9), call("c", "0.1", tokens=3).quote
    place = make_ticket(4, one, "w", 1_000, Wait(timedelta(microseconds=300), least), Stands(("a",), ("a",)))
    waiter = Waiter(one, rules(), None, place, 0.0, (Size(one.quote), Size(least)))

    lowered = moved(waiter, (Size(least),), Stands(("a",), ("a",)))

    assert lowered == replace(waiter, ticket=replace(place, usd=100_000_000, tokens=3), sizes=(Size(least),))


@pytest.mark.parametrize(
    ("spent", "left"), [("0.8", ["0.2", "0.1"]), ("0.81", ["0.1"]), ("0.9", ["0.1"]), ("0.91", [])]
)
def test_a_call_waits_for_what_fits_if_nothing_is_held(spent, left):
    one, least = call("c", "0.2"), call("c", "0.1").quote
    in_the_way = standing("a", spent=spent, held="0.5")
    sizes = sizes_of(one, Wait(timedelta(seconds=1), least))

    found = sizes_left(Short(NOON, (in_the_way,), (in_the_way,)), sizes)

    assert [size.quote.most.exact() for size in found] == left
    assert is_lowered(one, found) == (left == ["0.1"])
    assert not is_lowered(one, found) or sizes_left(Short(NOON, (), ()), found) == (Size(least),)  # and it stays so


def test_a_call_without_a_smaller_version_waits_as_a_whole_or_not_at_all():
    one = call("c", "0.2")

    assert sizes_of(one, Wait(timedelta(seconds=1))) == (Size(one.quote),)
    assert sizes_of(one, None) == ()

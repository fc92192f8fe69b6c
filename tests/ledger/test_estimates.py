"""A charge that is an estimate is never more than what is held at the last; where more was reported, all is booked."""

from dataclasses import replace

import pytest

from lockpin_core.call import Charge
from lockpin_core.ledger.protocol import Held
from lockpin_core.ledger.verify import verify
from lockpin_core.usage import Unit
from tests.ledger.contract import hold, seen, settle
from tests.ledger.desk import WAIT_S, MemoryDesk, SqliteDesk, call, charge, machine, money, rules

ONE = rules(machine("1"))


@pytest.fixture(params=["memory", "sqlite"])
def desk(request, tmp_path):
    """Give a ledger with a call held for $0.90 and 100 tokens, shrunk to $0.30 and 30 tokens."""
    made = MemoryDesk() if request.param == "memory" else SqliteDesk(tmp_path)
    hold(made, "c1", "0.9", ONE, tokens=100)
    assert made.ledger.shrink("c1", money("0.3"), 30).result(WAIT_S)
    yield made
    made.close()
    if request.param == "sqlite":
        assert verify(made.path).wrong is None


def estimate(dollars, tokens=100, **more):
    return Charge(money(dollars), {}, tokens, None, None, reason="stream_cut", estimated=True, **more)


def test_an_estimate_by_an_older_and_larger_hold_is_charged_as_what_is_held(desk):
    assert isinstance(hold(desk, "c2", "0.7", ONE), Held)  # the room that the shrinking has made

    resolved = desk.ledger.settle("c1", estimate("0.9")).result(WAIT_S)

    assert (resolved.charge.amount, resolved.charge.tokens) == (money("0.3"), 30)
    assert (resolved.over_hold, resolved.charge.reason, resolved.charge.estimated) == (False, "stream_cut", True)
    assert seen(desk, ONE)["daily"] == ("0.3", "0.7")
    again = desk.ledger.settle("c1", estimate("0.9")).result(WAIT_S)
    assert (again.first, again.charge.amount, again.charge.tokens) == (False, money("0.3"), 30)


def test_the_tokens_alone_may_be_too_many(desk):
    usage = {Unit.INPUT: 31}
    resolved = desk.ledger.settle("c1", replace(estimate("0.2", 31), usage=usage, failed=True)).result(WAIT_S)
    assert (resolved.charge.amount, resolved.charge.tokens, resolved.charge.usage) == (money("0.2"), 30, {})


def test_an_estimate_within_its_hold_is_charged_as_it_is(desk):
    usage = {Unit.INPUT: 30}
    resolved = desk.ledger.settle("c1", replace(estimate("0.3", 30), usage=usage, failed=True)).result(WAIT_S)
    assert (resolved.charge.amount, resolved.charge.tokens, resolved.charge.usage) == (money("0.3"), 30, usage)


def test_what_was_reported_is_booked_in_full(desk):
    resolved = settle(desk, "c1", "0.9", tokens=90)
    assert (resolved.charge.amount, resolved.charge.tokens, resolved.over_hold) == (money("0.9"), 90, True)


@pytest.mark.parametrize("least", [{"least": money("0.4")}, {"least": money("0.1"), "least_tokens": 40}])
def test_where_more_was_reported_than_is_held_the_bound_was_wrong_and_all_is_booked(desk, least):
    resolved = desk.ledger.settle("c1", estimate("0.9", **least)).result(WAIT_S)
    assert (resolved.charge.amount, resolved.charge.tokens, resolved.over_hold) == (money("0.9"), 100, True)


def test_an_estimate_with_a_part_that_was_reported_is_charged_as_what_is_held(desk):
    told = estimate("0.9", least=money("0.2"), least_tokens=20)
    resolved = desk.ledger.settle("c1", told).result(WAIT_S)
    assert (resolved.charge.amount, resolved.charge.tokens, resolved.over_hold) == (money("0.3"), 30, False)


def test_a_hold_of_tokens_that_nobody_knows_bounds_none():
    desk = MemoryDesk()
    hold(desk, "c1", "0.9", ONE, tokens=0)
    resolved = desk.ledger.settle("c1", estimate("0.9", 70)).result(WAIT_S)
    assert (resolved.charge.tokens, resolved.over_hold) == (70, False)


@pytest.mark.parametrize("keep", [True, False])
def test_an_attempt_that_is_followed_by_another_one_is_charged_no_more_than_is_held_for_it(desk, keep):
    # $0.30 and $0.70 are the whole dollar; with $0.90 the next one would not fit.
    answer = desk.ledger.replace("c1", estimate("0.9"), call("c2", "0.7"), ONE, keep=keep).result(WAIT_S)

    resolved, held = answer
    assert isinstance(held, Held)
    assert (resolved.charge.amount, resolved.charge.tokens, resolved.over_hold) == (money("0.3"), 30, False)
    assert seen(desk, ONE)["daily"] == ("0.3", "0.7")


def test_an_attempt_whose_usage_was_reported_is_charged_it_and_leaves_no_room(desk):
    told = charge("0.9", tokens=90)
    resolved, short = desk.ledger.replace("c1", told, call("c2", "0.7"), ONE, keep=False).result(WAIT_S)
    assert (resolved.charge.amount, resolved.over_hold, isinstance(short, Held)) == (money("0.9"), True, False)

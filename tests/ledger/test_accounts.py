from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockpin_core.budgets import Budget
from lockpin_core.ledger.accounts import (
    Balance,
    Seat,
    Spans,
    TaskTerms,
    budget_in,
    has_room,
    own_budget,
    passed_steps,
    seat_of,
    standing_of,
)
from lockpin_core.money import Money
from lockpin_core.windows import LIFETIME, Window
from tests.ledger.desk import DAY, NOON, OWN, machine, money


def standing(spent, limit, *, raised=0):
    return standing_of(seat_of(machine(limit), "m", NOON, Spans()), Balance(money(spent).nano, raised_nano=raised))


@pytest.mark.parametrize(
    ("spent", "passed"),
    [
        ("0", ()),
        ("0.299999999", ()),
        ("0.3", ("0.3",)),
        ("0.9", ("0.3", "0.9")),
        ("0.899999999", ("0.3",)),
        ("2", ("0.3", "0.9")),
    ],
)
def test_a_step_is_passed_exactly_at_its_share(spent, passed):
    assert passed_steps(standing(spent, "1"), ("0.3", "0.9")) == passed


def test_nothing_spent_passes_no_step_of_a_limit_of_zero():
    assert passed_steps(standing("0", "0"), ("0.8",)) == ()


def test_a_raise_moves_the_steps():
    assert passed_steps(standing("0.9", "1", raised=10**9), ("0.3", "0.9")) == ("0.3",)


def test_a_budget_made_by_command_enforces_in_the_zone_of_the_tasks():
    default = machine(None, enforce=False)
    default = type(default)("task", "task", Window("lifetime", "Europe/Berlin"), own=True)
    made = own_budget(default, TaskTerms("day", 5, None, closed=False))
    assert (made.window, made.limit.nano, made.enforce) == (Window("day", "Europe/Berlin"), 5, True)
    assert own_budget(default, TaskTerms("day", None, None, closed=False)) is default


def test_an_account_of_a_window_that_a_task_has_left_has_no_limit():
    terms = TaskTerms("day", 5, None, closed=False)
    left = budget_in(OWN, LIFETIME, 0, terms)
    assert (left.limit, left.enforce) == (None, False)
    assert budget_in(OWN, Spans().at(DAY, NOON), 0, terms).limit.nano == 5


def test_a_span_is_remembered_until_it_ends():
    spans = Spans()
    first = spans.at(DAY, NOON)
    assert spans.at(DAY, first.end.replace(hour=0)) is not first
    assert spans.at(DAY, datetime(2026, 10, 22, 23, 59, 59, tzinfo=UTC)) is spans.at(DAY, first.end)


def test_accounts_of_one_budget_differ_by_subject_and_window():
    spans = Spans()
    names = {seat_of(machine("1"), subject, NOON.replace(day=day), spans).account for subject in "ab" for day in (1, 2)}
    assert len(names) == 4
    assert isinstance(seat_of(machine("1"), "a", NOON, spans), Seat)


AMOUNTS = st.integers(0, 5)


@given(
    limits=st.tuples(st.none() | AMOUNTS, st.none() | AMOUNTS), enforce=st.booleans(),
    numbers=st.lists(AMOUNTS, min_size=6, max_size=6), usd=AMOUNTS, tokens=AMOUNTS,
)  # fmt: skip
def test_room_in_plain_numbers_is_the_rule_of_fitting(limits, enforce, numbers, usd, tokens):
    limit = None if limits[0] is None else Money(limits[0])
    budget = Budget("b", "task", Window("lifetime"), limit, limits[1], enforce=enforce)
    balance = Balance(*numbers)
    standing = standing_of(Seat("a", budget, "s", LIFETIME), balance)

    assert has_room(budget, balance, usd, tokens) == (not enforce or standing.fits(Money(usd), tokens))

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockpin_core.budgets import Budget
from lockpin_core.call import Payers
from lockpin_core.ledger import schema
from lockpin_core.ledger.accounts import Spans, seats_of
from lockpin_core.ledger.definitions import Definitions
from lockpin_core.ledger.seats import Seats
from tests.ledger.desk import DAY, NOON, OWN, call, machine, money, rules

KEYS = ("k1", "k2", "k3")
BUDGETS = st.lists(
    st.builds(
        lambda name, scope, keys: Budget(name, scope, DAY, money("1"), keys=tuple(keys)),
        st.sampled_from("abcdefgh"), st.sampled_from(["key", "user", "machine"]), st.sets(st.sampled_from(KEYS)),
    ),
    unique_by=lambda budget: budget.name,
)  # fmt: skip


@pytest.fixture(scope="module")
def definitions():
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as books:
        schema.create(books)
        yield Definitions(books, lambda code, data: None)


@given(BUDGETS, st.lists(st.sampled_from([*KEYS, "other", "", None]), min_size=1))
def test_accounts_are_those_of_all_budgets_however_many_are_for_single_keys(definitions, budgets, callers):
    in_force, seats = rules(machine("9"), *budgets), Seats(definitions, Spans())
    seats.define(in_force, 0)

    for key in callers:
        payers = Payers("t", "m", key=key, user="u")
        wanted = seats_of(payers, "openai", "gpt-5.5", in_force, OWN, NOON, Spans())
        asked = call("c1", "0.1", host="m", key=key, user="u")
        assert seats.look(payers, "openai", "gpt-5.5", in_force, None, NOON) == wanted
        assert seats.of(asked, in_force, None, NOON) == seats.of(asked, in_force, None, NOON) == wanted


def test_other_rules_are_looked_at_anew(definitions):
    seats = Seats(definitions, Spans())
    payers = Payers("t", "m", key="k1")
    for keys, names in ((("k1",), ["task", "a"]), (("k2",), ["task"]), ((), ["task", "a"])):
        in_force = rules(Budget("a", "key", DAY, money("1"), keys=keys))
        seats.define(in_force, 0)
        found = seats.look(payers, "openai", "gpt-5.5", in_force, None, NOON)
        assert [seat.budget.name for seat in found] == names

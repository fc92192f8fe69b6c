"""A call of several models: what its rows keep of each, who pays for it, and what later changes of it."""

import json
from contextlib import closing
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockpin_core.call import Share, Terms
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.ledger.shares import amounts_of, called, raw, read, told
from lockpin_core.ledger.verify import verify
from lockpin_core.money import Money
from lockpin_core.usage import Unit
from tests.ledger.contract import hold, settle
from tests.ledger.desk import LIFETIME, NOON, WAIT_S, SqliteDesk, machine, money, parted, rules
from tests.ledger.everything import chain_anew, forging, tables_anew

WIDE = rules(machine("1000"))


@pytest.fixture
def desk(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()


def by_model(desk, **period):
    with LedgerReader(desk.path) as read:
        found = read.totals("model", **period)
        assert sum(total.spent.nano for total in found) == read.total(**period).spent.nano
    return {total.key: (total.calls, total.spent.exact(), total.input_tokens, total.output_tokens) for total in found}


def call_of(desk, call_id):
    with LedgerReader(desk.path) as read:
        return read.call(call_id)


def spent(desk):
    return {name: numbers[0] for name, numbers in desk.accounts().items()}


def test_what_a_row_keeps_is_read_back():
    shares = (
        Share("a", {Unit.INPUT: 7, Unit.WEB_SEARCH: 1}, Money(5), 3, 1, 4, Terms("batch", "fast", "us")),
        Share("b", {Unit.OUTPUT: 2}, Money(0)),
    )

    assert read(json.dumps(told(shares))) == shares
    assert (told(()), read(None), read('{"balances":[[1,2,3]]}'), raw(None)) == ({}, (), (), ())


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=9), st.integers(0, 10**18))
def test_the_shares_of_a_cost_are_whole_and_add_up_and_those_of_the_charge_are_themselves(amounts, total):
    shares = [Share("m", {}, Money(amount)) for amount in amounts]

    found = amounts_of(shares, total)

    assert (sum(found), min(found) >= 0) == (total, True)
    assert amounts_of(shares, sum(amounts)) == amounts


def test_each_model_has_its_dollars_and_tokens_and_the_call_stays_that_of_the_one_called(desk):
    hold(desk, "c1", "9", WIDE)
    settle(desk, "c1", "0.3", shares=parted("0.3"))

    # All of it lies in one quarter hour, from which the first is read off its rows and the second off the sums.
    whole = {"gpt-5.5": (1, "0.1", 5, 0), "dear-1": (0, "0.2", 0, 10)}
    assert by_model(desk, since=NOON - timedelta(seconds=1), until=NOON + timedelta(seconds=1)) == whole
    assert by_model(desk) == whole
    with LedgerReader(desk.path) as read:
        assert (read.count("model"), read.models()) == (2, ["gpt-5.5"])
        assert [total.spent.exact() for total in read.totals("task")] == ["0.3"]
        assert [call.id for call in read.calls(model="dear-*")] == ["c1"]
    assert verify(desk.path).wrong is None


def test_a_budget_that_begins_later_counts_the_call_by_the_model_that_was_called(desk):
    hold(desk, "c1", "9", WIDE)
    settle(desk, "c1", "0.3", shares=parted("0.3"))

    filtered = [machine("9", name=model, window=LIFETIME, models=(model,)) for model in ("gpt-5.5", "dear-1")]
    hold(desk, "c2", "1", rules(machine("1000"), *filtered))
    hold(desk, "c3", "1", rules(machine("1000"), *filtered), model="dear-1")

    found = {name.split("\x1f")[0]: nano for name, nano in spent(desk).items()}
    assert (found["gpt-5.5"], found["dear-1"]) == (300_000_000, 0)
    assert verify(desk.path).wrong is None


def test_usage_that_comes_late_moves_what_the_expired_hold_had_put_on_one_model(desk):
    hold(desk, "c1", "9", WIDE)
    desk.ledger.defer("c1", timedelta(minutes=1)).result(WAIT_S)
    desk.clock.pass_by(minutes=2)
    desk.look_after()
    assert by_model(desk) == {"gpt-5.5": (1, "9", 0, 0)}

    settle(desk, "c1", "0.3", shares=parted("0.3"))

    assert by_model(desk) == {"gpt-5.5": (1, "0.1", 5, 0), "dear-1": (0, "0.2", 0, 10)}
    assert [share.amount.exact() for share in call_of(desk, "c1").shares] == ["0.1", "0.2"]
    assert verify(desk.path).wrong is None


def test_a_correction_is_shared_out_as_the_charge_was(desk):
    hold(desk, "c1", "9", WIDE)
    settle(desk, "c1", "0.3", shares=parted("0.3"))

    desk.admin.correct("c1", money("0.00000001"), reason="invoice", who="ada")
    assert {key: usd for key, (_, usd, *_) in by_model(desk).items()} == {
        "gpt-5.5": "0.000000003", "dear-1": "0.000000007"
    }  # fmt: skip
    desk.admin.correct("c1", money("0"), reason="free", who="ada")
    desk.admin.correct("c1", money("0.6"), reason="not so", who="ada")

    assert {key: usd for key, (_, usd, *_) in by_model(desk).items()} == {"gpt-5.5": "0.2", "dear-1": "0.4"}
    assert [share.amount.exact() for share in call_of(desk, "c1").shares] == ["0.1", "0.2"]  # as it was charged
    assert verify(desk.path).wrong is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("$.shares[1].usd", "does not add up to $0.3"),
        ("$.shares[1].usage.output", "does not add up to its usage"),
        ("$.shares[1].output_tokens", "does not add up to its usage"),
    ],
)
def test_shares_that_are_not_the_charge_are_found_where_the_chain_was_made_anew(desk, change, words):
    hold(desk, "c1", "9", WIDE)
    settle(desk, "c1", "0.3", shares=parted("0.3"))
    desk.ledger.stop()
    with forging(desk.path) as books:
        books.execute(
            "UPDATE rows SET data = json_set(data, ?1, json_extract(data, ?1) + 1) WHERE kind = 'charge'", (change,)
        )
        chain_anew(books)
        tables_anew(books)

    assert verify(desk.path).wrong.words.endswith(words)


def test_sums_that_do_not_follow_the_shares_are_found(desk):
    hold(desk, "c1", "9", WIDE)
    settle(desk, "c1", "0.3", shares=parted("0.3"))
    desk.ledger.stop()
    with forging(desk.path) as books, closing(books.execute("SELECT id, model FROM facets ORDER BY model")) as found:
        (one, _), (other, model) = found.fetchall()
        assert called(model) == "gpt-5.5" != model
        books.execute("UPDATE totals SET spent_nano = 300000000 WHERE facet = ?", (one,))
        books.execute("UPDATE totals SET spent_nano = 0 WHERE facet = ?", (other,))

    assert "spent_nano $0.1" in verify(desk.path).wrong.words or "spent_nano $0.3" in verify(desk.path).wrong.words

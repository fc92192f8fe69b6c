"""Operations that share a commit, and what is remembered between commits: all as if each had been alone."""

import sqlite3
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.call import Void
from lockpin_core.errors import LedgerError
from lockpin_core.ledger.backlog import MANY, Backlog, OpenHold
from lockpin_core.ledger.memory import MemoryLedger
from lockpin_core.ledger.place import open_ledger
from lockpin_core.ledger.protocol import Held, Short, Wait
from tests.ledger import desk as d
from tests.ledger.contract import ONE
from tests.ledger.desk import WAIT_S, SqliteDesk, call, charge, machine, money, rules

OTHER = rules(machine("1"), machine("5", name="weekly"))


class Turns:
    """An event loop's turns, taken when told."""

    def __init__(self):
        self.actions = []

    def soon(self, action):
        self.actions.append(action)
        return True

    def take(self):
        while self.actions:
            self.actions.pop(0)()


class BatchDesk(SqliteDesk):
    """Two ledgers on one file, whose operations wait until `commit`."""

    def __init__(self, folder):
        self.turns = Turns()
        super().__init__(folder)
        self.second = SqliteDesk.open(self, soon=self.turns.soon)

    def open(self, **more):
        return super().open(soon=self.turns.soon, **more)

    def commit(self, *futures):
        looks = [ledger.look(call("x", "0").payers, "openai", "gpt-5.5", ONE) for ledger in (self.ledger, self.second)]
        self.turns.take()
        for look in looks:  # so that also what has no answer is done
            look.result(WAIT_S)
        return [answer(future) for future in futures]

    def close(self):
        self.turns.take()
        self.ledger.stop()
        self.second.stop()


def answer(future):
    if future is None:
        return None
    try:
        return future.result(WAIT_S)
    except (LedgerError, sqlite3.IntegrityError) as error:
        return type(error)


@pytest.fixture
def desk(tmp_path):
    made = BatchDesk(tmp_path)
    yield made
    made.close()
    assert made.chain_ends()
    assert d.nonzero(made.accounts()) == made.explained()


def calls(desk):
    return [(row["kind"], row["call"]) for row in desk.query("SELECT * FROM rows WHERE call IS NOT NULL ORDER BY id")]


def test_one_call_held_twice_in_a_commit_is_held_once(desk):
    ledger = desk.ledger

    answers = desk.commit(
        ledger.hold(call("c1", "0.4"), ONE), ledger.hold(call("c1", "0.4"), ONE), ledger.hold(call("c2", "0.4"), ONE)
    )

    assert all(isinstance(one, Held) for one in answers)
    assert answers[0].at == answers[1].at
    assert calls(desk) == [("hold", "c1"), ("hold", "c2")]


def test_a_call_that_another_process_holds_does_not_take_its_batch_down(desk):
    desk.commit(desk.second.hold(call("c1", "0.4"), ONE))

    answers = desk.commit(desk.ledger.hold(call("c1", "0.4"), ONE), desk.ledger.hold(call("c2", "0.6"), ONE))

    assert all(isinstance(one, Held) for one in answers)
    assert calls(desk) == [("hold", "c1"), ("hold", "c2")]


def test_a_call_that_another_process_has_settled_is_not_settled_again(desk):
    desk.commit(desk.ledger.hold(call("c1", "0.4"), ONE), desk.ledger.hold(call("c2", "0.4"), ONE))
    desk.commit(desk.second.settle("c1", charge("0.1")))

    first, second = desk.commit(desk.ledger.settle("c1", charge("0.3")), desk.ledger.settle("c2", charge("0.2")))

    assert (first.first, first.charge.amount.exact()) == (False, "0.1")
    assert (second.first, second.task_spent.exact()) == (True, "0.3")


def test_what_another_process_has_spent_is_counted(desk):
    desk.commit(desk.ledger.hold(call("c1", "0.1"), ONE))
    desk.commit(desk.second.hold(call("c2", "0.5"), ONE))

    held, short = desk.commit(desk.ledger.hold(call("c3", "0.4"), ONE), desk.ledger.hold(call("c4", "0.1"), ONE))

    assert isinstance(held, Held)
    assert isinstance(short, Short)


def test_hold_and_cancel_in_one_commit_leave_nothing_held(desk):
    future = desk.ledger.hold(call("c1", "0.4"), ONE)
    desk.ledger.cancel("c1")
    (held,) = desk.commit(future)

    assert isinstance(held, Held)
    (standing,) = desk.commit(desk.ledger.look(call("x", "0").payers, "openai", "gpt-5.5", rules()))
    assert [s.held.exact() for s in standing] == ["0"]


def test_an_account_that_is_opened_in_a_commit_counts_the_holds_before_it(desk):
    futures = [desk.ledger.hold(call("c1", "0.4"), ONE), desk.ledger.hold(call("c2", "0.3"), OTHER)]
    futures.append(desk.ledger.settle("c1", charge("0.1")))

    desk.commit(*futures)

    weekly = {name.split("\x1f")[0]: numbers for name, numbers in desk.accounts().items()}["weekly"]
    assert weekly == (100_000_000, 300_000_000, 20, 100)


def test_more_rows_than_one_statement_takes_are_all_written(desk):
    ids = [f"c{n}" for n in range(3 * MANY)]

    held = desk.commit(*(desk.ledger.hold(call(one, "0.001"), ONE) for one in ids))
    settled = desk.commit(*(desk.ledger.settle(one, charge("0.001")) for one in ids))

    assert all(isinstance(one, Held) for one in held)
    assert settled[-1].task_spent.exact() == "0.192"
    assert calls(desk) == [("hold", one) for one in ids] + [("charge", one) for one in ids]


def test_an_open_hold_that_is_gone_is_noticed(tmp_path):
    connection = open_ledger(tmp_path / "books.sqlite3", durability="full", new_id=d.counted_ids())
    backlog = Backlog(connection)
    backlog.add_hold(OpenHold("c1", 1, 1, 1, ["a"], '["a"]', "t"), "w")
    backlog.write()
    connection.execute("DELETE FROM open_holds")

    backlog.close_hold("c1")
    with pytest.raises(sqlite3.IntegrityError):
        backlog.write()
    connection.close()


def test_a_hold_that_becomes_smaller_and_is_gone_is_noticed(tmp_path):
    connection = open_ledger(tmp_path / "books.sqlite3", durability="full", new_id=d.counted_ids())
    backlog = Backlog(connection)
    backlog.add_hold(OpenHold("c1", 1, 9, 9, ["a"], '["a"]', "t"), "w")
    backlog.shrink_hold(OpenHold("c1", 1, 5, 4, ["a"], '["a"]', "t"))
    backlog.shrink_hold(OpenHold("c1", 1, 3, 4, ["a"], '["a"]', "t"))
    backlog.write()
    assert connection.execute("SELECT usd, tokens FROM open_holds").fetchall() == [(3, 4)]
    connection.execute("DELETE FROM open_holds")

    backlog.shrink_hold(OpenHold("c1", 1, 2, 4, ["a"], '["a"]', "t"))
    with pytest.raises(sqlite3.IntegrityError):
        backlog.write()
    connection.close()


def test_hold_shrink_and_settle_in_one_commit(desk):
    ledger = desk.ledger
    held, smaller, waited, settled = desk.commit(
        ledger.hold(call("c1", "0.9"), ONE),
        ledger.shrink("c1", money("0.4"), 100),
        ledger.hold(call("c2", "0.6"), ONE),
        ledger.settle("c1", charge("0.1")),
    )

    assert (type(held), smaller, type(waited)) == (Held, True, Held)
    assert (settled.held, settled.over_hold) == (money("0.4"), False)
    assert calls(desk) == [("hold", "c1"), ("shrink", "c1"), ("hold", "c2"), ("charge", "c1")]


def test_who_waits_goes_in_the_commit_that_makes_room(desk):
    ledger, patience = desk.ledger, Wait(timedelta(seconds=30))
    asked = [ledger.hold(call(f"c{n}", "0.6"), ONE, None, patience) for n in range(2)]
    last, *_ = desk.commit(asked[0])
    assert isinstance(last, Held)

    settled, newcomer = desk.commit(ledger.settle("c0", charge("0.1")), ledger.hold(call("c2", "0.6"), ONE))

    assert settled.first
    assert isinstance(answer(asked[1]), Held)  # it was there first
    assert isinstance(newcomer, Short)
    assert calls(desk) == [("hold", "c0"), ("charge", "c0"), ("hold", "c1")]


def test_who_waits_behind_what_ends_in_the_same_commit_goes_with_it(desk):
    ledger, patience = desk.ledger, Wait(timedelta(seconds=30))
    answers = desk.commit(
        ledger.hold(call("c1", "0.6"), ONE),
        ledger.hold(call("c2", "0.6"), ONE, None, patience),
        ledger.settle("c1", charge("0.1")),
    )
    assert isinstance(answers[1], Held)
    assert desk.tickets() == []


def test_a_waiter_that_is_cancelled_before_the_loop_turns_is_not_held(desk):
    asked = desk.ledger.hold(call("c1", "0.6"), ONE, None, Wait(timedelta(seconds=30)))
    assert asked.cancel()
    (held,) = desk.commit(desk.ledger.hold(call("c2", "0.6"), ONE))
    assert isinstance(held, Held)
    assert calls(desk) == [("hold", "c2")]


OPERATIONS = st.tuples(
    st.sampled_from(["hold", "hold", "shrink", "settle", "void", "cancel"]),
    st.integers(0, 5),  # which call
    st.integers(0, 60),  # cents
    st.booleans(),  # by the second process
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(OPERATIONS, min_size=1, max_size=8), min_size=1, max_size=6))
def test_any_batches_give_what_one_after_the_other_gives(batches):
    with tempfile.TemporaryDirectory() as folder:
        desk = BatchDesk(Path(folder))
        memory = MemoryLedger(clock=desk.clock)
        done = set()
        for batch in batches:
            futures, expected = [], []
            second = batch[0][3]
            for kind, number, cents, _ in batch:
                name = f"c{number}"
                if kind == "hold" and name in done:
                    continue  # an id is used again by nobody
                done |= {name} if kind not in ("hold", "shrink") else set()
                futures.append(operate(desk.second if second else desk.ledger, kind, name, cents))
                expected.append(answer(operate(memory, kind, name, cents)))
            assert list(map(plain, desk.commit(*futures))) == list(map(plain, expected))
        desk.close()
        assert desk.chain_ends() or not desk.query("SELECT 1 FROM rows")
        assert d.nonzero(desk.accounts()) == desk.explained()


def operate(ledger, kind, name, cents):
    dollars = f"{cents / 100:.2f}"
    match kind:
        case "hold":
            return ledger.hold(call(name, dollars), ONE)
        case "shrink":
            return ledger.shrink(name, money(dollars), cents)
        case "settle":
            return ledger.settle(name, charge(dollars))
        case "void":
            return ledger.void(name, Void("not_sent"))
    ledger.cancel(name)
    return None


def plain(given):
    """Reduce an answer to what both kinds of ledger must agree on."""
    if isinstance(given, Held | Short):
        return type(given), [(s.budget.name, s.spent, s.held) for s in given.standings]
    if given is None or isinstance(given, bool | type):
        return given
    if not given.first:
        return given.charge and given.charge.amount
    spent = [(s.budget.name, s.spent, s.held) for s in given.standings]
    return given.charge and given.charge.amount, given.task_spent, given.recent, spent

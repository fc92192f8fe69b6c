"""The contract on SQLite, and what only a file can do: be shared, be opened again, be proved."""

import sqlite3
import threading
from contextlib import closing
from datetime import timedelta
from functools import partial

import pytest

from lockpin_core.errors import LedgerError, LedgerUnavailable
from lockpin_core.ledger import pausebook, prune
from lockpin_core.ledger.books import Books
from lockpin_core.ledger.pausebook import breaker_state
from lockpin_core.ledger.place import open_ledger
from lockpin_core.ledger.protocol import Held, Paused, Rules
from lockpin_core.ledger.verify import verify
from tests.ledger import desk as d
from tests.ledger.backends import OnSqlite, OnSqliteTwice
from tests.ledger.contract import hold, settle
from tests.ledger.desk import OWN, WAIT_S, SqliteDesk, call
from tests.ledger.pauses_contract import BY_KEY, BY_TASK, FAST, PausesContract, breaking, paused, spend, told, trips
from tests.ledger.pauses_history import PausesHistory


@pytest.fixture
def desk(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()


class TestSqlitePauses(PausesContract):
    @pytest.fixture(autouse=True)
    def proved(self, desk):
        """After each of them the books are proved."""
        yield
        assert verify(desk.path).wrong is None


@pytest.mark.parametrize("seed", range(12))
def test_calls_pause_when_a_slow_model_says_so(seed):
    with closing(OnSqliteTwice()) as desk:
        PausesHistory(desk, seed).play(150)
        desk.look_after_all()
        assert verify(desk.path).wrong is None


def test_two_processes_add_up_what_both_have_charged(desk):
    other = desk.open()
    hold(desk, "c1", "0.6", FAST)
    other.hold(call("c2", "0.6"), FAST).result(WAIT_S)
    other.hold(call("c3", "0.6"), FAST).result(WAIT_S)
    assert told(settle(desk, "c1", "0.6")) == []

    tripped = other.settle("c2", d.charge("0.6")).result(WAIT_S)

    assert told(tripped) == [("task", "t", None, "1.2")]
    assert isinstance(hold(desk, "c4", "0.1", FAST), Paused)
    assert told(other.settle("c3", d.charge("0.6")).result(WAIT_S)) == []
    other.stop()
    assert verify(desk.path).wrong is None


def test_a_process_forgets_what_was_before_anothers_trip(desk):
    other = desk.open()
    in_force = breaking(BY_TASK)
    spend(desk, "c1", "0.9", in_force)  # here it is remembered
    other.hold(call("c2", "0.9"), in_force).result(WAIT_S)
    assert told(other.settle("c2", d.charge("0.9")).result(WAIT_S)) == [("task", "t", None, "1.8")]
    other.stop()
    desk.clock.pass_by(minutes=5)

    assert spend(desk, "c3", "0.9", in_force) == []
    assert spend(desk, "c4", "0.2", in_force) == [("task", "t", None, "1.1")]
    assert verify(desk.path).wrong is None


def test_one_of_many_processes_trips_it(desk):
    ledgers = [desk.open() for _ in range(4)]
    for n, ledger in enumerate(ledgers):
        for i in range(10):
            assert isinstance(ledger.hold(call(f"c{n}-{i}", "0.3"), FAST).result(WAIT_S), Held)
    answers = []

    def settle_all(n, ledger):
        answers.extend(ledger.settle(f"c{n}-{i}", d.charge("0.3")).result(WAIT_S) for i in range(10))

    threads = [threading.Thread(target=settle_all, args=each) for each in enumerate(ledgers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    for ledger in ledgers:
        ledger.stop()

    assert [told(answer) for answer in answers if answer.tripped] == [[("task", "t", None, "1.2")]]
    assert len(trips(desk)) == 1
    assert verify(desk.path).wrong is None


def test_a_restart_keeps_the_pause_and_what_was_charged(desk):
    spend(desk, "c1", "1.1")
    spend(desk, "c2", "0.9", task="b")
    desk.ledger.stop()
    desk.ledger = desk.open()

    assert paused(desk) == ("breaker", "task", "t", d.NOON + timedelta(minutes=5))
    assert isinstance(hold(desk, "c3", "0.1", FAST), Paused)
    assert spend(desk, "c4", "0.2", task="b") == [("task", "b", None, "1.1")]


def test_the_rule_stays_in_the_ledger_for_who_knows_none(desk):
    hold(desk, "c1", "1.5", FAST)
    desk.ledger.stop()  # charges it, as every process that stops does
    desk.ledger = desk.open()

    assert paused(desk) == ("breaker", "task", "t", d.NOON + timedelta(minutes=5))


def test_a_transaction_that_did_not_happen_charged_nothing(desk):
    spend(desk, "c1", "0.5")
    hold(desk, "c2", "0.4", FAST)
    with closing(open_ledger(desk.path, durability="full", new_id=desk.new_id)) as connection:
        books = Books(connection, "w9")
        for end in ("ROLLBACK", "COMMIT"):
            mark = books.mark()
            connection.execute("BEGIN IMMEDIATE")
            books.begin(desk.clock())
            assert books.settle("c2", d.charge("0.4")).tripped == ()
            books.flush()
            connection.execute(end)
            if end == "ROLLBACK":
                books.reset(mark)

    assert spend(desk, "c3", "0.2") == [("task", "t", None, "1.1")]
    assert verify(desk.path).wrong is None


def test_another_configurations_breaker_is_refused_beside_a_running_one(desk):
    desk.ledger.define(FAST, "a.yaml").result(WAIT_S)
    other = desk.open()

    with pytest.raises(LedgerError, match=r"breaker: \$1 in 1m by task, cooldown 5m there and off here"):
        other.define(breaking(None), "b.yaml").result(WAIT_S)

    other.stop()


def test_a_reload_puts_another_rule_in_force(desk):
    desk.ledger.define(FAST, "a.yaml").result(WAIT_S)
    spend(desk, "c1", "0.9", user="ann", key="k1")
    desk.ledger.define(breaking(BY_KEY), "a.yaml").result(WAIT_S)

    assert spend(desk, "c2", "0.2", user="ann", key="k1") == [("key", "k1", None, "1.1")]

    desk.ledger.define(breaking(None), "a.yaml").result(WAIT_S)
    assert isinstance(hold(desk, "c3", "0.1", FAST, user="ann", key="k1"), Paused)  # a pause ends by itself
    assert spend(desk, "c4", "5", user="ann", key="k2") == []
    events = desk.query("SELECT code FROM rows WHERE code LIKE 'breaker_%' ORDER BY id")
    assert [row["code"] for row in events] == [
        "breaker_defined",
        "breaker_defined",
        "breaker_tripped",
        "breaker_removed",
    ]
    assert verify(desk.path).wrong is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE pauses SET until = until - 1", 'the pause of task "t" is kept otherwise than its rows say'),
        ("DELETE FROM pauses", 'the pause of task "t" is not kept'),
        ("DELETE FROM meta WHERE name = 'breaker.config'", "the breaker is kept otherwise than its rows say"),
    ],
)
def test_a_pause_that_no_row_tells_is_found(desk, change, words):
    spend(desk, "c1", "1.1")
    desk.ledger.stop()
    with closing(sqlite3.connect(desk.path)) as books:
        books.execute(change)
        books.commit()

    assert verify(desk.path).wrong.words == words


def test_rows_may_go_around_a_trip_and_the_rest_is_proved(desk):
    spend(desk, "c1", "1.1")
    desk.clock.pass_by(days=100)
    spend(desk, "c2", "0.5")
    desk.clock.pass_by(days=100)
    spend(desk, "c3", "1.2")
    ledger = desk.path

    wanted = prune.plan(ledger, desk.clock.now)
    taken = prune.prune(ledger, wanted, clock=desk.clock, new_id=desk.new_id, who="ada")

    assert taken > 4
    assert verify(ledger).wrong is None
    assert paused(desk) is not None
    desk.clock.pass_by(minutes=5)
    assert spend(desk, "c4", "1.2") == [("task", "t", None, "1.2")]
    assert verify(ledger).wrong is None


def test_without_a_limit_a_call_goes_while_the_ledger_is_away_unless_it_pauses(desk):
    unlimited = Rules((), OWN, BY_TASK)
    spend(desk, "c1", "1.1", unlimited)
    with closing(open_ledger(desk.path, durability="full", new_id=desk.new_id)) as connection:
        books = Books(connection, "w9")
        connection.execute("BEGIN")
        books.begin(desk.clock())

        found = [books.is_unlimited(call("c2", "0.1", task=task), unlimited) for task in ("t", "other")]

        connection.execute("ROLLBACK")
    assert found == [False, True]


def test_what_stands_is_read_beside_a_running_process(desk):
    spend(desk, "c1", "1.1")
    spend(desk, "c2", "1.1", task="over")
    desk.admin.breaker_reset("task", "over", who="ada")
    desk.admin.breaker_set(BY_KEY, who="ada")
    desk.ledger.stop_task(call("x", "0", task="round", user="ann").payers, who="loop", data={}).result(WAIT_S)

    state = breaker_state(desk.path, d.NOON - timedelta(hours=1))  # its own clock is behind the ledger's

    assert (state.by_command, state.by_config, state.rule) == (BY_KEY, BY_TASK, BY_KEY)
    until = d.NOON + timedelta(minutes=5)
    assert [(one.subject, one.user, one.until, one.at) for one in state.pauses] == [
        ("t", None, until, d.NOON),
        ("round", "ann", None, d.NOON),
    ]
    assert [one.subject for one in breaker_state(desk.path, until).pauses] == ["round"]
    assert breaker_state(desk.path, d.NOON).by_config == BY_TASK


def test_a_ledger_that_cannot_be_read_is_said(desk):
    desk.ledger.stop()
    with closing(sqlite3.connect(desk.path)) as books:
        books.execute("DROP TABLE pauses")

    with pytest.raises(LedgerUnavailable, match="cannot be read: no such table"):
        breaker_state(desk.path, d.NOON)


def test_pauses_that_mean_nothing_any_more_go_with_the_next_trip(desk):
    spend(desk, "c1", "1.1")
    desk.clock.now += timedelta(days=1, minutes=5) - timedelta(microseconds=1)
    spend(desk, "c2", "1.1", task="b")
    assert [row["subject"] for row in desk.query("SELECT subject FROM pauses ORDER BY subject")] == ["b", "t"]
    desk.clock.now += timedelta(microseconds=1)

    spend(desk, "c3", "1.1", task="c")

    assert [row["subject"] for row in desk.query("SELECT subject FROM pauses ORDER BY subject")] == ["b", "c"]
    assert verify(desk.path).wrong is None


def test_more_tasks_than_are_remembered_are_added_up_all_the_same():
    with closing(OnSqlite()) as desk:
        for turn in range(2):
            for number in range(300):
                tripped = spend(desk, f"c{turn}-{number}", "0.6", task=f"t{number}")
                assert tripped == ([("task", f"t{number}", None, "1.2")] if turn else [])


def steps_of_a_transaction(desk, others):
    """Count what SQLite does for a hold after another process has written, where so many other tasks were stopped."""
    desk.ledger.stop()
    with closing(open_ledger(desk.path, durability="full", new_id=desk.new_id)) as connection:
        books, steps = Books(connection, f"w{others}"), [0]

        def write(*operations):
            connection.execute("BEGIN IMMEDIATE")
            books.begin(desk.clock())
            for operation in operations:
                operation()
            books.flush()
            connection.execute("COMMIT")

        write(
            *(
                partial(books.stop_task, f"session-{n}", user=None, who="loop", data={"repeats": 20})
                for n in range(others)
            )
        )
        connection.execute("PRAGMA optimize")
        books.reset(books.mark())  # as if another had written: everything is read anew

        def count():
            steps[0] += 1

        connection.set_progress_handler(count, 1)
        write(partial(books.hold, call(f"c{others}", "0.1"), FAST))
        connection.set_progress_handler(None, 1)
        return steps[0]


def test_stopped_tasks_of_others_take_no_time(tmp_path):
    steps = []
    for others in (10, 2000):
        with closing(SqliteDesk(tmp_path / str(others))) as desk:
            steps.append(steps_of_a_transaction(desk, others))

    assert steps[1] < steps[0] * 1.2


def test_old_pauses_of_others_are_found_without_a_look_at_those_that_are_not(desk):
    desk.ledger.stop()
    with closing(sqlite3.connect(desk.path)) as books:
        plan = books.execute(f"EXPLAIN QUERY PLAN {pausebook._DROP_OLD}", (5,)).fetchall()

    assert "pauses_until" in plan[0][3]


def test_who_pauses_is_known_however_many_were_asked_for(desk):
    desk.ledger.stop_task(call("x", "0", task="round").payers, who="loop", data={}).result(WAIT_S)
    for number in range(4200):
        desk.ledger.paused(call("x", "0", task=f"t{number}").payers)

    assert paused(desk, task="round") == ("loop", "task", "round", None)
    assert paused(desk, task="t4199") is None


def test_what_another_process_stops_and_lets_go_on_is_seen_here(desk):
    other = desk.open()
    for user in (None, "ann"):
        payers = call("x", "0", user=user).payers
        assert paused(desk, user=user) is None
        assert other.stop_task(payers, who="loop", data={}).result(WAIT_S)
        assert paused(desk, user=user) == ("loop", "task", "t", None)
        assert not desk.ledger.stop_task(payers, who="loop", data={}).result(WAIT_S)

    desk.admin.task_resume("t", who="ada")

    assert paused(desk) is None is paused(desk, user="ann")
    other.stop()
    assert verify(desk.path).wrong is None

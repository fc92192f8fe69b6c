"""Commits whose outcome is not known, which no real disk gives on demand: a connection that lies about COMMIT."""

import sqlite3
from concurrent.futures import Future
from datetime import timedelta
from functools import partial

import pytest

from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger.books import Books
from lockpin_core.ledger.lookup import Lookup
from lockpin_core.ledger.operations import Operation
from lockpin_core.ledger.place import Watch, open_ledger
from lockpin_core.ledger.protocol import Held, Wait
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.ledger.writer import KEPT_MAX, Writer, deliver_here
from tests.ledger import desk as d
from tests.ledger.contract import ONE
from tests.ledger.desk import WAIT_S, SqliteDesk, call, charge

LOST = "SELECT hash FROM rows"


class Liar:
    """A connection of which the next commits and look-ups go as told."""

    def __init__(self, connection):
        self.connection = connection
        self.commits, self.lookups = [], []

    def __getattr__(self, name):
        return getattr(self.connection, name)

    def execute(self, sql, *values):
        if sql == "COMMIT" and self.commits:
            return self.lie(self.commits.pop(0))
        if sql.startswith(LOST) and self.lookups and not self.lookups.pop(0):
            raise sqlite3.OperationalError("disk I/O error")
        return self.connection.execute(sql, *values)

    def lie(self, happens):
        if happens:
            self.connection.execute("COMMIT")
        raise sqlite3.OperationalError("disk I/O error")


class LyingDesk(SqliteDesk):
    def open(self, **more):
        self.liar = Liar(open_ledger(self.path, durability="full", new_id=self.new_id))
        books = Books(self.liar, self.new_id())
        ledger = object.__new__(SqliteLedger)
        ledger.path, ledger.writer_id, ledger._clock = self.path, books.writer, self.clock
        ledger._lookup = Lookup(self.path, Watch(self.path), self.clock)
        ledger._writer = Writer(
            self.liar,
            books,
            Watch(self.path),
            clock=self.clock,
            deliver=deliver_here,
            fault=lambda code, reason: self.faults.append(code),
        )
        return ledger


@pytest.fixture
def desk(tmp_path):
    made = LyingDesk(tmp_path)
    assert isinstance(made.ledger.hold(call("c1", "0.1"), ONE).result(WAIT_S), Held)
    yield made
    made.close()
    assert made.chain_ends()
    assert d.nonzero(made.accounts()) == made.explained()


def calls(desk):
    return [(row["kind"], row["call"]) for row in desk.query("SELECT * FROM rows WHERE call IS NOT NULL ORDER BY id")]


def test_a_commit_that_failed_is_no_hold(desk):
    desk.liar.commits = [False]
    with pytest.raises(LedgerUnavailable):
        desk.ledger.hold(call("c2", "0.1"), ONE).result(WAIT_S)
    assert isinstance(desk.ledger.hold(call("c3", "0.1"), ONE).result(WAIT_S), Held)
    assert calls(desk) == [("hold", "c1"), ("hold", "c3")]
    assert desk.faults == ["ledger_unavailable", ""]


def test_a_commit_that_happened_after_all_answers_as_if_nothing_was(desk):
    desk.liar.commits = [True]
    assert isinstance(desk.ledger.hold(call("c2", "0.1"), ONE).result(WAIT_S), Held)
    assert desk.ledger.settle("c2", charge("0.1")).result(WAIT_S).first
    assert desk.faults == []


@pytest.mark.parametrize("happens", [True, False])
def test_a_hold_in_doubt_is_refused_and_taken_off_when_it_turns_up(desk, happens):
    desk.liar.commits, desk.liar.lookups = [happens], [False]

    with pytest.raises(LedgerUnavailable):
        desk.ledger.hold(call("c2", "0.1"), ONE).result(WAIT_S)
    desk.ledger.settle("c1", charge("0.1")).result(WAIT_S)
    desk.close()

    turned_up = [("hold", "c2"), ("void", "c2")] if happens else []
    assert sorted(calls(desk)) == sorted([("hold", "c1"), ("charge", "c1"), *turned_up])
    assert desk.faults == ["ledger_unavailable", ""]


@pytest.mark.parametrize("happens", [True, False])
def test_a_settle_in_doubt_is_booked_once(desk, happens):
    desk.liar.commits, desk.liar.lookups = [happens], [False, False]

    resolved = desk.ledger.settle("c1", charge("0.07")).result(WAIT_S)

    assert (resolved.first, resolved.task_spent.exact()) == (True, "0.07")
    assert calls(desk) == [("hold", "c1"), ("charge", "c1")]
    assert isinstance(desk.ledger.hold(call("c2", "0.1"), ONE).result(WAIT_S), Held)


def test_that_writing_does_not_work_is_told_before_who_is_refused_for_it_is(tmp_path):
    told: list[str] = []

    def deliver(actions):
        told.append("answers")
        deliver_here(actions)

    desk = SqliteDesk(tmp_path)
    ledger = desk.open(deliver=deliver, fault=lambda code, reason: told.append(code))
    desk.path.rename(desk.path.with_name("away"))

    with pytest.raises(LedgerUnavailable):
        ledger.hold(call("c1", "0.1"), ONE).result(WAIT_S)

    assert told == ["ledger_unavailable", "answers"]
    desk.path.with_name("away").rename(desk.path)
    ledger.stop()
    desk.close()


def test_definitions_of_a_failed_commit_are_stored_by_the_next(tmp_path):
    desk = LyingDesk(tmp_path)
    desk.liar.commits = [False]
    with pytest.raises(LedgerUnavailable):
        desk.ledger.hold(call("c1", "0.1"), ONE).result(WAIT_S)
    desk.ledger.hold(call("c1", "0.1"), ONE).result(WAIT_S)
    assert [row["name"] for row in desk.query("SELECT name FROM budgets ORDER BY name")] == ["daily", "task"]
    desk.close()


def test_only_so_many_rows_that_tell_are_kept_and_every_resolution(tmp_path):
    desk = LyingDesk(tmp_path)
    desk.ledger.hold(call("c0", "0.2"), ONE).result(WAIT_S)
    away = desk.path.with_name("away")
    desk.path.rename(away)
    with pytest.raises(LedgerUnavailable):
        desk.ledger.hold(call("c1", "0.1"), ONE).result(WAIT_S)
    ran = []
    for _ in range(KEPT_MAX + 100):
        desk.ledger._writer.submit(Operation(partial(lambda books: ran.append(1)), droppable=True))
    one_more: Future = Future()
    desk.ledger._writer.submit(Operation(lambda books: None, one_more, droppable=True))
    settled = desk.ledger.settle("c0", charge("0.1"))
    with pytest.raises(LedgerUnavailable, match="too much waits"):
        one_more.result(WAIT_S)
    with pytest.raises(LedgerUnavailable, match="too much waits"):
        desk.ledger.uncapped(d.note("u1", code="no_limit"))
    away.rename(desk.path)

    assert settled.result(WAIT_S).charge == charge("0.1")
    desk.close()
    assert len(ran) >= KEPT_MAX  # a batch that failed runs again


def test_a_hold_in_doubt_is_refused_even_where_no_limit_applies(desk):
    free = d.rules(d.machine("1", enforce=False))
    assert isinstance(desk.ledger.hold(call("c2", "0.1"), free).result(WAIT_S), Held)
    desk.liar.commits, desk.liar.lookups = [True], [False]
    with pytest.raises(LedgerUnavailable):
        desk.ledger.hold(call("c3", "0.1"), free).result(WAIT_S)
    assert not desk.ledger.hold(call("c4", "0.1"), free).result(WAIT_S).degraded
    assert calls(desk)[-3:] == [("hold", "c3"), ("void", "c3"), ("hold", "c4")]


def test_what_is_in_doubt_stays_ahead_of_what_came_since(desk):
    desk.liar.commits, desk.liar.lookups = [False, False], [False, False]
    first = desk.ledger.settle("c1", charge("0.05"))
    with pytest.raises(LedgerUnavailable):
        desk.ledger.hold(call("c2", "0.1"), ONE).result(WAIT_S)
    second = desk.ledger.settle("c1", charge("0.07"))
    assert (first.result(WAIT_S).first, second.result(WAIT_S).first) == (True, False)
    assert second.result(WAIT_S).charge.amount == d.money("0.05")


def waiting(desk, name="c2", dollars="0.95"):
    """Let a call wait behind c1, which holds $0.10."""
    asked = desk.ledger.hold(call(name, dollars), ONE, None, Wait(timedelta(seconds=30)))
    desk.look_after()
    assert not asked.done()
    assert desk.tickets() == [(name, "daily")]
    return asked


def test_who_waits_is_sent_away_by_a_fault_and_leaves_no_ticket(desk):
    asked = waiting(desk)
    desk.liar.commits = [False]
    with pytest.raises(LedgerUnavailable):
        desk.ledger.hold(call("c3", "0.1"), ONE).result(WAIT_S)
    assert isinstance(asked.exception(WAIT_S), LedgerUnavailable)
    assert isinstance(desk.ledger.hold(call("c4", "0.1"), ONE).result(WAIT_S), Held)
    assert desk.tickets() == []
    assert calls(desk) == [("hold", "c1"), ("hold", "c4")]


def test_who_begins_to_wait_in_a_commit_that_fails_waits_without_a_ticket_until_the_next(desk):
    desk.liar.commits = [False]
    asked = desk.ledger.hold(call("c2", "0.95"), ONE, None, Wait(timedelta(seconds=30)))
    desk.look_after()  # no row tells a ticket, so that nothing is missing
    desk.ledger.uncapped(d.note("u1", code="no_limit"))
    desk.look_after()
    assert desk.tickets() == [("c2", "daily")]
    desk.ledger.settle("c1", charge("0.01")).result(WAIT_S)
    assert isinstance(asked.result(WAIT_S), Held)
    assert desk.tickets() == []


def test_who_waited_goes_with_a_commit_that_happened_after_all(desk):
    asked = waiting(desk)
    desk.liar.commits = [True]
    assert desk.ledger.settle("c1", charge("0.05")).result(WAIT_S).first
    assert isinstance(asked.result(WAIT_S), Held)
    assert desk.tickets() == []
    assert desk.faults == []


@pytest.mark.parametrize("happens", [True, False])
def test_who_went_with_a_commit_in_doubt_is_refused_and_its_hold_taken_off(desk, happens):
    asked, behind = waiting(desk), desk.ledger.hold(call("c3", "0.96"), ONE, None, Wait(timedelta(seconds=30)))
    desk.look_after()
    desk.liar.commits, desk.liar.lookups = [happens], [False]

    settled = desk.ledger.settle("c1", charge("0.01"))

    for one in (asked, behind):
        assert isinstance(one.exception(WAIT_S), LedgerUnavailable)
    assert settled.result(WAIT_S).first
    desk.look_after()
    turned_up = [("hold", "c2"), ("void", "c2")] if happens else []
    assert sorted(calls(desk)) == sorted([("hold", "c1"), ("charge", "c1"), *turned_up])
    assert desk.tickets() == []
    assert isinstance(desk.ledger.hold(call("c4", "0.99"), ONE).result(WAIT_S), Held)


def test_one_bad_operation_leaves_those_who_wait_alone(desk):
    asked = waiting(desk)
    bad, good = Future(), Future()
    operations = [
        Operation(lambda books: books.connection.execute("INSERT INTO open_holds (call) VALUES (1)"), bad),
        Operation(lambda books: books.settle("c1", charge("0.01")), good),
    ]
    desk.ledger._writer._put(operations)
    assert isinstance(bad.exception(WAIT_S), sqlite3.IntegrityError)
    assert good.result(WAIT_S).first
    assert isinstance(asked.result(WAIT_S), Held)
    assert desk.tickets() == []


def test_one_who_waits_and_fails_when_its_turn_comes_leaves_the_others_alone(desk):
    def broken(standings):
        raise ZeroDivisionError

    asked = desk.ledger.hold(call("c2", "0.95"), ONE, broken, Wait(timedelta(seconds=30)))
    desk.look_after()
    desk.clock.pass_by(seconds=30)
    assert isinstance(desk.ledger.hold(call("c3", "0.1"), ONE).result(WAIT_S), Held)
    assert isinstance(asked.exception(WAIT_S), ZeroDivisionError)
    desk.look_after()
    assert desk.tickets() == []
    assert desk.faults == []

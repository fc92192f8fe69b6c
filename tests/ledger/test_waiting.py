import concurrent.futures
import os
import signal
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from lockpin_core.budgets import Budget
from lockpin_core.call import Void
from lockpin_core.clock import utc_now
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger.protocol import Held, Short, Wait
from lockpin_core.ledger.pulse import Pulse
from lockpin_core.ledger.verify import verify
from lockpin_core.ledger.waiting import NEVER
from tests.ledger import desk as d
from tests.ledger.contract import ONE, hold, seen, settle, void
from tests.ledger.desk import WAIT_S, MemoryDesk, SqliteDesk, call, charge, look_after, machine, money, rules
from tests.ledger.reserve_contract import ROOM, leaving
from tests.ledger.waiting_history import SetTicks, WaitingHistory

SPENDER = Path(__file__).with_name("spender.py")
ROOT = Path(__file__).parents[2]
QUARTER = rules(machine("0.25"))


@pytest.fixture
def desk(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()
    assert made.tickets() == []
    assert verify(made.path).wrong is None


def process(*arguments):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, SPENDER, *map(str, arguments)]
    return subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment)


@pytest.fixture
def at_its_end_killed():
    workers = []
    yield lambda worker: workers.append(worker) or worker
    for worker in workers:
        worker.kill()
        worker.wait()


def asking(ledger, call_id, dollars, in_force=ONE, seconds=30.0):
    asked = ledger.hold(call(call_id, dollars), in_force, None, Wait(timedelta(seconds=seconds)))
    look_after(ledger)
    return asked


def until(condition):
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.01)


@contextmanager
def stopping(ledger):
    yield ledger
    ledger.stop()


@pytest.mark.parametrize("seed", range(40))
def test_waiters_in_memory_go_when_a_slow_model_says_so(seed):
    WaitingHistory(MemoryDesk(), seed).play(120)


@pytest.mark.parametrize("seed", range(12))
def test_waiters_go_when_a_slow_model_says_so(tmp_path, seed):
    with closing(SqliteDesk(tmp_path)) as desk:
        WaitingHistory(desk, seed).play(120)
    assert verify(desk.path).wrong is None


@pytest.mark.parametrize("seed", range(8))
def test_waiters_of_three_processes_go_in_the_order_of_all_tickets(tmp_path, seed):
    with closing(SqliteDesk(tmp_path)) as desk, stopping(desk.open()) as one, stopping(desk.open()) as other:
        WaitingHistory(desk, seed, (desk.ledger, one, other)).play(60)
    assert verify(desk.path).wrong is None


@pytest.mark.parametrize("seed", range(8))
def test_waiters_of_a_stopped_process_are_passed_and_keep_their_places(tmp_path, seed):
    ticks = SetTicks()
    with (
        closing(SqliteDesk(tmp_path)) as desk,
        stopping(desk.open(ticks=ticks)) as one,
        stopping(desk.open(ticks=ticks)) as two,
        stopping(desk.open(ticks=ticks)) as three,
    ):
        history = WaitingHistory(desk, seed, (one, two, three), ticks)
        history.play(80)
    assert history.naps > 0
    assert verify(desk.path).wrong is None


def asking_for_what_is_left(ledger, call_id, least, seconds=30.0):
    """Ask for a call of three dollars that may go at whatever is left, down to `least`."""

    def smaller(standings):
        left = min(s.limit - s.spent - s.held for s in standings if s.budget.enforce)
        return call(call_id, left.exact()) if left >= money(least) else None

    wait = Wait(timedelta(seconds=seconds), call(call_id, least).quote)
    asked = ledger.hold(call(call_id, "3"), ONE, smaller, wait)
    look_after(ledger)
    return asked


def test_a_call_that_fits_only_smaller_has_its_turn_among_those_of_other_processes(desk):
    """The one that waits first, as its smallest, gets what comes free first; the other gets what is left then."""
    with stopping(desk.open()) as other:
        hold(desk, "c1", "1")
        asked = asking_for_what_is_left(other, "w1", "0.2"), asking_for_what_is_left(desk.ledger, "w2", "0.3")
        assert desk.tickets() == [("w1", "daily"), ("w2", "daily")]

        desk.ledger.shrink("c1", money("0.75"), 100).result(WAIT_S)
        first = asked[0].result(WAIT_S)
        assert (first.call.quote.most, asked[1].done()) == (money("0.25"), False)
        other.settle("w1", charge("0.05")).result(WAIT_S)
        assert not asked[1].done()  # 0.2 are left, and it needs 0.3
        settle(desk, "c1", "0.1")

        assert asked[1].result(WAIT_S).call.quote.most == money("0.85")
        assert seen(desk)["daily"] == ("0.15", "0.85")


def test_what_another_process_needs_as_its_smallest_is_left_to_it(desk):
    with stopping(desk.open()) as other:
        hold(desk, "c1", "1")
        asked = asking_for_what_is_left(other, "w1", "0.2")
        desk.clock.pass_by(seconds=10)
        assert hold(desk, "n1", "0").call.id == "n1"
        other._writer._is_somebodys_turn = lambda: False  # it does nothing by itself
        desk.ledger.shrink("c1", money("0.7"), 100).result(WAIT_S)

        assert hold(desk, "n2", "0.15").behind
        assert isinstance(hold(desk, "n3", "0.1"), Held)

        del other._writer._is_somebodys_turn
        look_after(other)
        assert asked.result(WAIT_S).call.quote.most == money("0.2")


def test_patience_ends_in_time_though_nothing_happens(desk):
    hold(desk, "c1", "0.9")
    began = time.monotonic()
    asked = desk.ledger.hold(call("c2", "0.5"), ONE, None, Wait(timedelta(milliseconds=200)))
    assert isinstance(asked.result(WAIT_S), Short)  # the clock to set stands still
    assert 0.2 <= time.monotonic() - began < 2  # far less where nobody else uses the machine


def test_what_another_process_frees_is_noticed_without_being_asked(desk):
    with stopping(desk.open()) as other:
        assert isinstance(other.hold(call("c1", "0.9"), ONE).result(WAIT_S), Held)
        asked = asking(desk.ledger, "c2", "0.5")
        assert not asked.done()
        other.settle("c1", charge("0.1")).result(WAIT_S)
        assert isinstance(asked.result(WAIT_S), Held)


def test_a_settlement_tries_only_who_may_go_by_it(desk):
    own = Budget("task", "task", d.LIFETIME, money("0.5"), enforce=True, own=True)
    both = rules(machine("9"), own=own)
    for task in ("a", "b", "c"):
        hold(desk, task, "0.4", both, task=task)
    asked = desk.ledger.hold(call("w", "0.2", task="a"), both, None, Wait(timedelta(seconds=30)))
    desk.look_after()
    room = desk.ledger._writer._books.room
    room.wake_at = NEVER - 1  # a round sets it anew

    settle(desk, "b", "0.1")
    assert room.wake_at == NEVER - 1
    settle(desk, "c", "0.45")  # more than was held: it takes room from everybody
    assert room.wake_at != NEVER - 1
    assert not asked.done()
    settle(desk, "a", "0.1")
    assert isinstance(asked.result(WAIT_S), Held)


def test_a_configuration_that_is_looser_lets_a_waiter_go(desk):
    desk.ledger.define(ONE, "lockpin.yaml").result(WAIT_S)
    hold(desk, "c1", "0.9")
    asked = asking(desk.ledger, "c2", "0.5")
    desk.ledger.define(rules(machine("2")), "lockpin.yaml").result(WAIT_S)
    assert isinstance(asked.result(WAIT_S), Held)


def test_a_budget_that_a_command_makes_larger_lets_a_waiter_go(desk):
    made = machine("0.5", name="made")
    desk.admin.budget_set(made, who="ann")
    hold(desk, "c1", "0.4")
    asked = asking(desk.ledger, "c2", "0.2")
    assert not asked.done()
    desk.admin.budget_set(machine("0.6", name="made"), who="ann")
    assert isinstance(asked.result(WAIT_S), Held)


def test_a_ticket_whose_time_is_over_stands_in_nobodys_way(desk):
    """Its process may be stopped, and cannot take it off."""
    hold(desk, "c1", "0.6")
    with stopping(desk.open()) as other:
        asking(other, "c2", "0.5")
        other._writer._is_somebodys_turn = lambda: False  # it does nothing by itself from here on
        desk.clock.pass_by(seconds=10)
        assert hold(desk, "c3", "0.1").behind
        mine = asking(desk.ledger, "c4", "0.1", seconds=60)
        assert not mine.done()

        desk.clock.pass_by(seconds=20)

        assert isinstance(mine.result(WAIT_S), Held)
        assert isinstance(hold(desk, "c5", "0.1"), Held)
        large = asking(desk.ledger, "c6", "0.8")
        assert not large.done()
        void(desk, "c1")
        assert isinstance(large.result(WAIT_S), Held)  # nothing is left for the one whose time is over


def test_a_stopped_process_is_passed_and_takes_no_room_that_is_gone_when_it_goes_on(desk, at_its_end_killed):
    desk.clock.now = utc_now()
    hold(desk, "c1", "0.2", QUARTER)
    worker = at_its_end_killed(process("turn", desk.path, "p", 1))
    assert worker.stdout.readline() == "waiting\n"
    ((writer,),) = desk.query("SELECT DISTINCT writer FROM waiting")
    worker.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, worker.pid, os.WSTOPPED)
    desk.clock.pass_by(seconds=150)  # a third of its patience, and less than all: nobody younger may go before it

    small = asking(desk.ledger, "c2", "0.05", QUARTER, seconds=600)

    assert isinstance(small.result(WAIT_S), Held)
    assert desk.query("SELECT 1 FROM waiting WHERE writer = ?", writer)
    void(desk, "c1")
    assert isinstance(hold(desk, "c3", "0.2", QUARTER), Held)  # the room that it waits for
    worker.send_signal(signal.SIGCONT)
    pulse = Pulse(desk.ledger._liveness.folder, "")
    until(lambda: not pulse.is_asleep(writer))
    assert hold(desk, "c4", "0.01", QUARTER).violations
    assert seen(desk, QUARTER)["daily"] == ("0", "0.25")
    void(desk, "c2")
    until(lambda: hold(desk, f"c5-{time.monotonic_ns()}", "0.01", QUARTER).behind)  # it has its place again
    void(desk, "c3")
    assert worker.communicate(timeout=WAIT_S)[0] == "Held\n"
    assert seen(desk, QUARTER)["daily"] == ("0.02", "0")


def test_tickets_of_a_killed_process_go_with_it(desk):
    desk.clock.now = utc_now()
    hold(desk, "c1", "0.2", QUARTER)
    worker = process("wait", desk.path, "p", 3)
    assert worker.stdout.readline() == "waiting\n"
    assert [name for name, _ in desk.tickets()] == ["p-0", "p-1", "p-2"]
    desk.clock.pass_by(seconds=150)  # a third of their patience, and less than all
    assert hold(desk, "c2", "0.01", QUARTER).behind
    asked = asking(desk.ledger, "c3", "0.01", QUARTER, seconds=600)
    assert not asked.done()

    worker.send_signal(signal.SIGKILL)
    worker.communicate(timeout=20)

    assert isinstance(asked.result(WAIT_S), Held)
    assert desk.tickets() == []
    assert isinstance(hold(desk, "c4", "0.01", QUARTER), Held)


@pytest.mark.parametrize(("each", "through"), [(15, 60), (30, 91)])
def test_calls_of_four_processes_on_a_budget_for_ten_at_once_go_until_it_is_spent(desk, each, through):
    """After 91 calls of $0.01 there are $0.09 left, and the next may cost $0.10."""
    desk.clock.now = utc_now()
    workers = [process("queue", desk.path, f"p{n}", each) for n in range(4)]
    assert sum(int(worker.communicate(timeout=60)[0]) for worker in workers) == through
    assert seen(desk) == {"task": (f"0.{through}".rstrip("0"), "0"), "daily": (f"0.{through}".rstrip("0"), "0")}


def test_who_waits_is_sent_away_where_its_process_was_taken_for_dead(desk):
    hold(desk, "c1", "0.9")
    asked = asking(desk.ledger, "c2", "0.5")
    with stopping(desk.open()) as other:
        (desk.ledger._liveness.folder / desk.ledger.writer_id).unlink()
        look_after(other)  # charges c1 in full, and takes the ticket off
        assert isinstance(asked.exception(WAIT_S), LedgerUnavailable)


def test_a_gathered_hold_that_is_cancelled_is_not_taken(tmp_path):
    with closing(SqliteDesk(tmp_path)) as desk, concurrent.futures.ThreadPoolExecutor(8) as pool:
        hold(desk, "c0", "0.5")

        def give_up(n):
            asked = desk.ledger.hold(call(f"c{n}", "0.3"), ONE, None, Wait(timedelta(seconds=30)))
            if n % 2:
                asked.cancel()
                return None
            return asked

        asked = [one for one in pool.map(give_up, range(1, 41)) if one is not None]
        void(desk, "c0")
        for _ in range(len(asked)):
            done, _ = concurrent.futures.wait(asked, WAIT_S, concurrent.futures.FIRST_COMPLETED)
            for one in done:
                asked.remove(one)
                settle(desk, one.result().call.id, "0.001")
            if not asked:
                break
        desk.look_after()
        assert seen(desk) == {"task": ("0.02", "0"), "daily": ("0.02", "0")}
        assert desk.tickets() == []
        assert d.nonzero(desk.accounts()) == desk.explained()


def test_no_room_is_left_for_a_call_of_another_process_that_must_leave_more_than_there_is(desk):
    with stopping(desk.open()) as other:
        hold(desk, "c1", "0.5", ROOM)
        asked = desk.ledger.hold(leaving("c2", "0.3", "0.35"), ROOM, None, Wait(timedelta(seconds=30)))
        desk.look_after()
        theirs = asking(other, "c3", "0.6", ROOM)
        assert sorted(desk.tickets()) == [("c2", "task"), ("c3", "task")]

        desk.ledger.shrink("c1", money("0.4"), 100).result(WAIT_S)

        assert isinstance(theirs.result(WAIT_S), Held)
        assert not asked.done()
        asked.cancel()
        other.void("c3", Void("not_sent")).result(WAIT_S)
    desk.look_after()

from contextlib import closing
from datetime import timedelta

from lockpin_core.clock import micros
from lockpin_core.ledger.books import Books
from lockpin_core.ledger.ledger_time import LedgerTime, MemoryTime, time_left
from lockpin_core.ledger.place import open_ledger
from tests.ledger.desk import NOON, SetClock, SqliteDesk, Steady

SECOND = 10**6
HOUR = 3600 * SECOND
AT = micros(NOON)


def test_it_is_the_wall_clock():
    steady = Steady()
    time = LedgerTime(steady)

    assert time.begin(AT, 0) == AT
    steady.now_s = 500.0
    assert time.begin(AT + 3, AT) == AT + 3
    assert time.begin(AT + 2, AT) == AT + 2  # the wall clock was ahead for a while in which no row was written


def test_behind_a_row_it_goes_on_at_half_the_speed_of_the_clock_that_never_steps():
    steady = Steady()
    time = LedgerTime(steady)
    assert time.begin(AT + HOUR, 0) == AT + HOUR  # writes a row
    steady.now_s = 10.0

    assert time.now(NOON, AT + HOUR) == AT + HOUR + 5 * SECOND
    assert time.begin(AT, AT + HOUR) == AT + HOUR + 5 * SECOND  # of this, too
    steady.now_s = 14.0
    assert time.begin(AT, AT + HOUR + 5 * SECOND) == AT + HOUR + 7 * SECOND


def test_it_does_not_lose_what_has_passed_where_another_writes_rows_of_earlier_instants():
    steady = Steady()
    time = LedgerTime(steady)
    time.begin(AT + HOUR, 0)
    steady.now_s = 10.0
    time.begin(AT, AT + HOUR)
    steady.now_s = 20.0

    assert time.begin(AT, AT + HOUR + 1) == AT + HOUR + 10 * SECOND
    assert time.begin(AT, AT + 2 * HOUR) == AT + 2 * HOUR  # one of a later instant is where it goes on from
    steady.now_s = 22.0
    assert time.begin(AT, AT + 2 * HOUR) == AT + 2 * HOUR + SECOND


def test_who_has_not_seen_the_row_come_counts_from_when_it_found_it():
    steady = Steady()
    steady.now_s = 900.0
    time = LedgerTime(steady)

    assert time.begin(AT, AT + HOUR) == AT + HOUR
    steady.now_s = 902.0
    assert time.begin(AT, AT + HOUR) == AT + HOUR + SECOND


def test_the_wall_clock_counts_again_from_where_it_has_caught_up():
    steady = Steady()
    time = LedgerTime(steady)
    time.begin(AT + 10 * SECOND, 0)
    last = AT + 10 * SECOND
    seen = []
    for second in range(1, 23):  # of the steady clock, with rows at each
        steady.now_s = float(second)
        last = time.begin(AT + second * SECOND, last)
        seen.append(last - AT)

    assert seen[:3] == [10.5 * SECOND, 11 * SECOND, 11.5 * SECOND]
    assert seen[16:] == [18.5 * SECOND, 19 * SECOND, 19 * SECOND, 20 * SECOND, 21 * SECOND, 22 * SECOND]
    assert seen == sorted(seen)


def test_a_process_that_writes_once_stands_where_the_last_row_is():
    time = LedgerTime()

    assert [time.begin(AT, AT + HOUR) for _ in range(3)] == [AT + HOUR] * 3


def test_in_memory_it_is_the_same():
    clock, steady = SetClock(), Steady()
    time = MemoryTime(clock, steady)
    assert (time.read(), time.ahead_us()) == (NOON, 0)
    clock.pass_by(hours=-1)
    steady.now_s = 4.0

    assert time.read() == NOON + timedelta(seconds=2)
    assert time.ahead_us() == HOUR + 2 * SECOND


def test_what_is_left_is_twice_as_much_or_until_the_wall_clock_is_there():
    left = timedelta(minutes=5)

    def until(ahead):
        return time_left(NOON + left, NOON, ahead)

    assert until(timedelta(0)) == left
    assert until(timedelta(minutes=1)) == timedelta(minutes=6)
    assert until(timedelta(hours=6)) == timedelta(minutes=10)


def test_a_row_that_did_not_come_about_moves_no_time(tmp_path):
    steady = Steady()
    with closing(SqliteDesk(tmp_path)) as desk:
        desk.ledger.stop()
        with closing(open_ledger(desk.path, durability="full", new_id=desk.new_id)) as connection:
            books = Books(connection, "w9")
            books.time.steady = steady
            mark = books.mark()
            connection.execute("BEGIN IMMEDIATE")
            books.begin(NOON + timedelta(hours=6))
            books.event("task_closed", {"who": "ada"}, "t")
            connection.execute("ROLLBACK")
            books.reset(mark)

            assert books.time_at(NOON) == AT
            books.begin(NOON - timedelta(seconds=1))

            assert books.at == AT - SECOND

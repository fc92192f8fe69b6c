"""The latch, by a clock that the test sets."""

from datetime import UTC, datetime, timedelta

from lockpin_core.admission_latch import Latch

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


def test_the_same_call_is_known_for_ten_minutes():
    latch = Latch()

    latch.close(b"a", NOON)

    assert latch.is_closed(b"a", NOON)
    assert latch.is_closed(b"a", NOON + timedelta(minutes=10))
    assert not latch.is_closed(b"a", NOON + timedelta(minutes=10, microseconds=1))
    assert not latch.is_closed(b"b", NOON)


def test_a_second_refusal_counts_from_its_own_instant():
    latch = Latch()

    latch.close(b"a", NOON)
    latch.close(b"a", NOON + timedelta(minutes=9))

    assert latch.is_closed(b"a", NOON + timedelta(minutes=19))


def test_it_forgets_the_oldest_of_many():
    latch = Latch()

    for number in range(4097):
        latch.close(b"%d" % number, NOON)

    assert not latch.is_closed(b"0", NOON)
    assert latch.is_closed(b"1", NOON)
    assert latch.is_closed(b"4096", NOON)


def test_a_clock_that_was_set_back_opens_it():
    latch = Latch()

    latch.close(b"a", NOON)

    assert not latch.is_closed(b"a", NOON - timedelta(microseconds=1))

import os

import pytest

from lockpin_core.ledger.pulse import Pulse


class Ticks:
    now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def ticks():
    return Ticks()


@pytest.fixture
def pulse(tmp_path, ticks):
    (tmp_path / "w1").touch()
    return Pulse(tmp_path, "w1", ticks)


def beaten_s(pulse):
    return pulse._path.stat().st_mtime


def test_who_has_shown_nothing_for_three_seconds_is_asleep(pulse, ticks):
    pulse.beat()
    seen = []
    for ticks.now_s in (1000.0, 1002.9, 1003.0, 5000.0):
        seen.append(pulse.is_asleep("w1"))
    pulse.beat()

    assert seen == [False, False, True, True]
    assert not pulse.is_asleep("w1")


def test_a_beat_is_not_repeated_within_a_quarter_of_a_second(pulse, ticks):
    seen = []
    for ticks.now_s in (1000.0, 1000.24, 1000.25, 1000.4, 1000.5):
        pulse.beat()
        seen.append(beaten_s(pulse))

    assert seen == [1000.0, 1000.0, 1000.25, 1000.25, 1000.5]


def test_who_has_no_lock_is_asleep_and_a_beat_without_one_does_no_harm(pulse, ticks):
    pulse.beat()
    pulse._path.unlink()
    ticks.now_s += 1
    pulse.beat()

    assert pulse.is_asleep("w1")
    assert pulse.is_asleep("w2")
    assert not pulse._path.exists()


def test_a_lock_that_was_made_anew_is_shown_awake_at_once(pulse, ticks):
    pulse.beat()
    pulse._path.unlink()
    ticks.now_s += 0.3
    pulse.beat()
    pulse._path.touch()
    pulse.beat()

    assert beaten_s(pulse) == 1000.3


def test_in_doubt_a_writer_is_awake(pulse):
    """Here the folder of the locks is none."""
    assert not Pulse(pulse._path, "w0").is_asleep("w1")


def test_what_touches_a_lock_by_the_wall_clock_puts_nobody_to_sleep(pulse):
    os.utime(pulse._path)
    assert not pulse.is_asleep("w1")


def test_who_was_seen_awake_is_looked_at_again_a_tenth_of_a_second_later(pulse, ticks):
    pulse.beat()
    assert not pulse.is_asleep("w1")
    pulse._path.unlink()
    seen = []
    for ticks.now_s in (1000.0, 1000.05, 1000.1):
        seen.append(pulse.is_asleep("w1"))

    assert seen == [False, False, True]

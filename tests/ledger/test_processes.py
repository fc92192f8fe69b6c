"""Real processes on one ledger: stopped, sharing, out of disk. The short form of what scripts/crashtest shows in full."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import crashtest_faults, crashtest_people, crashtest_share, crashtest_stop, crashtest_wait

SEED = 20261130
SCRIPT = Path(__file__).parents[2] / "scripts" / "crashtest"


def test_a_process_that_is_stopped_for_longer_than_any_timer_keeps_its_holds(tmp_path):
    seen = crashtest_stop.stopped(tmp_path, 12)

    assert seen.stopped_s >= 12 > seen.recovered_s


@pytest.mark.parametrize("killed", [False, True])
def test_beside_a_process_that_is_stopped_inside_its_transaction_calls_are_refused(killed, tmp_path):
    crashtest_stop.frozen(tmp_path, killed=killed)


def test_nobody_waits_for_a_first_in_line_that_is_gone(tmp_path):
    took_s = crashtest_wait.first_in_line(tmp_path)

    assert took_s.keys() == crashtest_wait.FAULTS.keys()


def test_who_waits_for_what_a_killed_process_held_is_answered(tmp_path):
    crashtest_wait.holder_killed(tmp_path)


def test_queues_whose_processes_are_killed_stopped_and_starved_leave_nothing_behind(tmp_path):
    seen = crashtest_wait.queues(tmp_path, rounds=4, seed=SEED, calls=30)

    assert seen.faults.keys() == crashtest_wait.FAULTS.keys()
    assert seen.tickets > 0 < seen.ends["charged"]


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_that_share_a_ledger_lose_nothing_and_count_nothing_twice(processes, tmp_path):
    seen = crashtest_share.mixed(tmp_path, processes=processes, calls=2000, seed=SEED)

    assert seen.samples > 20
    assert min(seen.ends[end] for end in ("charged", "voided", "cancelled", "short")) > 20


def test_sixteen_processes_lose_nothing_on_any_account_of_fifty_people(tmp_path):
    seen = crashtest_people.throngs(tmp_path, processes=16, calls=1600, seed=SEED)

    assert seen.samples > 20
    assert min(seen.ends[end] for end in ("charged", "voided", "cancelled", "short")) > 20


def test_of_800_calls_by_four_processes_exactly_the_50_pass_that_fit(tmp_path):
    crashtest_share.fifty(tmp_path, runs=3)


def test_a_disk_that_is_full_at_any_moment_loses_nothing(tmp_path):
    seen = crashtest_faults.full_disk(tmp_path, points=10, seed=SEED)

    assert seen.charged > 50


def test_a_ledger_that_is_deleted_or_replaced_under_a_process_loses_nothing(tmp_path):
    crashtest_faults.taken_away(tmp_path, rounds=1, seed=SEED)


def test_a_ledger_that_is_made_read_only_under_a_process_loses_nothing(tmp_path):
    crashtest_faults.closed_to_writing(tmp_path)


def crashtest(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_the_script_prints_a_line_for_a_part_and_leaves_nothing_behind(tmp_path):
    done = crashtest("fifty", "--runs", "1", "--seed", "5", "--folder", str(tmp_path))

    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert line.startswith("fifty   4 × 200 calls at once on an account that pays for 50: exactly 50 passed")
    assert "seed 5" in line
    assert list(tmp_path.iterdir()) == []


def test_the_script_names_the_parts_that_there_are():
    done = crashtest("kil")

    assert done.returncode == 2
    assert "there is no part kil; allowed are kill, wait, stop, share, people, fifty, faults" in done.stderr

"""The play in short: no promise broken, the same seed the same play, planted bugs found, and the model's own sums."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import until

from tests.sim.model import DAY, Fault, Model, Rule, leaves_at
from tests.sim.planted import BUGS, ROOT, plant

HOUR = 3600 * 10**6
QUICKLY_FOUND = ("void of a sent call", "rounding down", "hold on some accounts only", "lost shrink")


def simulate(*arguments):
    command = [sys.executable, "-P", str(ROOT / "scripts" / "simulate"), *arguments]
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=300)


def test_no_promise_is_broken():
    played = simulate("--quick", "--jobs", "2")

    assert played.returncode == 0, played.stdout + played.stderr
    assert "overshoot: $0.00; false refusals: 0; seeds that failed: 0" in played.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--jobs", "2"], "stopped after 0 of 1,000 seeds"),
        (["--utilisation"], "20 agents share $20"),
    ],
)
def test_ctrl_c_ends_a_play_without_a_traceback(words, says):
    command = [sys.executable, "-P", str(ROOT / "scripts" / "simulate"), *words]
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, start_new_session=True, **pipes) as playing:
        until(lambda: children(playing.pid))
        os.killpg(playing.pid, signal.SIGINT)
        printed, complained = playing.communicate(timeout=60)

    assert (playing.returncode, complained) == (130, ""), printed
    assert says in printed


def children(pid):
    """List those of all its threads."""
    return [child for thread in Path(f"/proc/{pid}/task").glob("*/children") for child in thread.read_text().split()]


@pytest.mark.parametrize("backend", ["sqlite", "memory"])
def test_the_same_seed_is_the_same_play(backend):
    first, second = (simulate("--seed", "11", "--calls", "120", "--backend", backend) for _ in range(2))

    assert first.returncode == 0, first.stdout + first.stderr
    assert first.stdout.splitlines()[1:] == second.stdout.splitlines()[1:]  # the first line has the speed
    assert len(first.stdout.splitlines()) > 20


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_that_is_planted_has_its_place(bug):
    for path, source, _ in ((bug.path, bug.source, bug.planted), *bug.also):
        assert (ROOT / "lockpin_core" / path).read_text("utf-8").count(source) == 1


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.name in QUICKLY_FOUND], ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug):
    assert plant(bug) is not None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seeds", "0"], '"0" is no number of them; 1 or more is allowed'),
        (["--calls=-5"], '"-5" is no number of them; 1 or more is allowed'),
        (["--faults", "flood"], "there is no fault flood; allowed are crash, "),
        (["--planted", "lost shrink", "none"], 'there is no bug "none"; there are: hold not durable, '),
    ],
)
def test_a_wrong_option_is_one_line_and_plays_nothing(words, said):
    played = simulate(*words)

    assert played.returncode == 2
    assert said in played.stdout + played.stderr


# The model, by hand.


def model(*rules):
    return Model(rules or (Rule("task", "task", "lifetime", usd=100, tokens=1000),))


def hold(books, call, usd, *, tokens=0, at=0, task="t", model_name="m"):
    books.last = []
    books.hold(call, at, task, "box", "p", model_name, usd, tokens)


def test_what_fits_to_the_last_nanodollar_fits_and_one_more_is_an_overshoot():
    books = model()
    hold(books, "a", 60)
    hold(books, "b", 40)

    with pytest.raises(Fault, match="OVERSHOOT: call c of 1 nano"):
        hold(books, "c", 1)


def test_tokens_have_a_limit_of_their_own():
    books = model()
    hold(books, "a", 1, tokens=1000)

    with pytest.raises(Fault, match="OVERSHOOT"):
        hold(books, "b", 1, tokens=1)


def test_a_charge_takes_the_place_of_the_hold():
    books = model()
    hold(books, "a", 90, tokens=7)
    books.resolve("a", 0, 30, 7, reason=None, is_void=False)

    account = books.accounts["task", "t", None]
    assert (account.spent, account.held) == ([30, 7], [0, 0])
    hold(books, "b", 70)


def test_a_call_is_resolved_once_and_never_above_its_hold():
    books = model()
    hold(books, "a", 50)
    books.shrink("a", 20, 0)

    with pytest.raises(Fault, match="OVERSHOOT: call a is charged 31 nano"):
        books.resolve("a", 0, 31, 0, reason=None, is_void=False)
    books = model()
    hold(books, "a", 50)
    books.resolve("a", 0, 50, 0, reason=None, is_void=False)
    with pytest.raises(Fault, match="was resolved before"):
        books.resolve("a", 0, 50, 0, reason=None, is_void=False)


def test_hold_and_charge_belong_to_the_day_of_the_hold():
    books = model(Rule("daily", "machine", "day", usd=100))
    hold(books, "a", 100, at=DAY - 1)
    hold(books, "b", 100, at=DAY)
    books.resolve("a", DAY + 5, 100, 0, reason=None, is_void=False)

    assert books.accounts["daily", "box", 0].spent[0] == 100
    assert books.accounts["daily", "box", 1].spent[0] == 0


def test_a_spend_leaves_a_rolling_window_at_the_first_step_after_its_period():
    """An hour has 48 steps of 75 seconds: what was spent at 12:00:01 leaves at 13:01:15."""
    noon = 12 * HOUR
    assert leaves_at(noon, HOUR) == 13 * HOUR
    assert leaves_at(noon + 10**6, HOUR) == 13 * HOUR + 75 * 10**6

    books = model(Rule("hourly", "machine", "rolling", usd=100, period=HOUR))
    hold(books, "a", 100, at=noon + 10**6)
    books.resolve("a", noon + 2 * 10**6, 100, 0, reason=None, is_void=False)
    with pytest.raises(Fault, match="OVERSHOOT"):
        hold(books, "b", 1, at=13 * HOUR + 75 * 10**6 - 1)
    hold(books, "c", 100, at=13 * HOUR + 75 * 10**6)


def test_a_refusal_is_right_where_it_did_not_fit_at_some_point_of_the_commit_it_comes_from():
    """The first charge of the commit made room; the call was tried before it."""
    books = model()
    hold(books, "a", 90)
    books.last = []
    books.resolve("a", 0, 10, 0, reason=None, is_void=False)

    before, after = {("task", "t"): (0, 90, 0, 0, 100, 1000)}, {("task", "t"): (10, 0, 0, 0, 100, 1000)}
    assert books.judge_short("b", ("t", "box", "p", "m"), 20, 0, 0, before) == (True, False, False)
    with pytest.raises(Fault, match="FALSE REFUSAL: call b of 20 nano"):
        books.judge_short("b", ("t", "box", "p", "m"), 20, 0, 0, after)
    with pytest.raises(Fault, match="as they never were"):
        books.judge_short("b", ("t", "box", "p", "m"), 20, 0, 0, {("task", "t"): (11, 0, 0, 0, 100, 1000)})


def test_only_held_money_in_the_way_is_transient():
    books = model()
    hold(books, "a", 50)
    books.resolve("a", 0, 50, 0, reason=None, is_void=False)
    hold(books, "b", 40)

    stands = {("task", "t"): (50, 40, 0, 0, 100, 1000)}
    assert books.judge_short("c", ("t", "box", "p", "m"), 50, 0, 0, stands) == (True, False, False)
    assert books.judge_short("c", ("t", "box", "p", "m"), 51, 0, 0, stands) == (False, False, False)
    assert books.judge_short("c", ("t", "box", "p", "m"), 51, 0, 0, stands, (50, 0)) == (False, True, False)
    assert books.judge_short("c", ("t", "box", "p", "m"), 51, 0, 0, stands, (11, 0)) == (False, True, False)
    assert books.judge_short("c", ("t", "box", "p", "m"), 51, 0, 0, stands, (10, 0)) == (False, True, True)


def test_a_budget_that_comes_back_counts_what_it_has_missed_in_its_window():
    daily = Rule("daily", "machine", "day", usd=100)
    books = model(daily)
    hold(books, "before", 10, at=5)
    books.remove("daily")
    hold(books, "gone", 30, at=6)
    books.resolve("gone", 7, 20, 0, reason=None, is_void=False)
    hold(books, "open", 30, at=8)
    books.last = []
    books.define(daily, 9)

    account = books.accounts["daily", "box", 0]
    assert (account.spent[0], account.held[0]) == (20, 40)
    books.resolve("open", 9, 30, 0, reason=None, is_void=False)
    assert (account.spent[0], account.held[0]) == (50, 10)


def test_a_raise_of_a_rolling_limit_lasts_a_period_and_no_raise_outlives_a_new_limit():
    hourly = Rule("hourly", "machine", "rolling", usd=100, period=HOUR)
    books = model(hourly)
    books.raise_by("hourly", "box", 50, 0)
    hold(books, "a", 150)
    with pytest.raises(Fault, match="OVERSHOOT"):
        hold(model(hourly), "a", 101)
    assert books.accounts["hourly", "box", None].limits() == (150, None)
    books.accounts["hourly", "box", None].pass_time(HOUR)
    assert books.accounts["hourly", "box", None].limits() == (100, None)

    books.raise_by("hourly", "box", 50, HOUR)
    books.define(Rule("hourly", "machine", "rolling", usd=90, period=HOUR), HOUR)
    assert books.accounts["hourly", "box", None].limits() == (90, None)


def test_after_a_reset_spend_counts_anew_and_what_was_charged_before_is_corrected_nowhere():
    books = model()
    hold(books, "a", 50)
    books.resolve("a", 0, 50, 0, reason="expired", is_void=False)
    hold(books, "b", 20)
    books.reset("task", "t", 0)
    books.correct("a", 0, -10, 0)

    account = books.accounts["task", "t", None]
    assert (account.spent[0], account.held[0]) == (0, 20)


def test_a_budget_of_some_models_and_providers_counts_no_others():
    rule = Rule("some", "machine", "lifetime", usd=1, models=("big-*", "ink"), providers=("open*",))

    assert rule.applies("openai", "ink") and rule.applies("openai", "big-ink")
    assert not rule.applies("anthropic", "ink") and not rule.applies("openai", "pen")

"""What goes of tasks that nobody has used since, when old rows are taken out."""

from dataclasses import replace

import pytest

from lockpin_core.ledger.prune import plan, prune
from lockpin_core.ledger.unused import SLICE
from lockpin_core.ledger.verify import verify
from tests.ledger.contract import hold, settle
from tests.ledger.desk import WAIT_S, SqliteDesk, call, note, refusal
from tests.ledger.pauses_contract import FAST, paused, spend


@pytest.fixture
def desk(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()
    assert verify(made.path).wrong is None


def stop(desk, task, user=None):
    whose = {"task": task, "user": user, "key": user and f"key-{user}"}
    hold(desk, f"{task}-{user}", "0.1", FAST, **whose)
    settle(desk, f"{task}-{user}", "0.1")
    assert desk.ledger.stop_task(call("x", "0", **whose).payers, who="loop", data={"repeats": 20}).result(WAIT_S)


def take_out(desk):
    """Take out all that may go: what is older than 94 days."""
    return prune(desk.path, plan(desk.path, desk.clock()), clock=desk.clock, new_id=desk.new_id, who="ada")


def stopped(desk):
    return [tuple(row) for row in desk.query("SELECT subject, user FROM pauses WHERE kind = 'loop' ORDER BY 1, 2")]


def test_a_stopped_task_that_nobody_has_used_since_goes_on(desk):
    stop(desk, "old")
    stop(desk, "round", "ann")
    stop(desk, "round", "ben")
    stop(desk, "again")
    desk.clock.pass_by(days=100)
    still = call("x", "0", task="round", user="ben").payers
    for one in (note("r1", code="loop_stopped", task="again"), note("r2", code="loop_stopped")):
        desk.ledger.refuse(replace(one, payers=still) if one.id == "r2" else one, refusal("loop_stopped"))
    stop(desk, "new")

    assert take_out(desk) > 0

    assert stopped(desk) == [("again", ""), ("new", ""), ("round", "ben")]  # who still calls stays stopped
    assert paused(desk, task="old") is None is paused(desk, task="round", user="ann")
    assert paused(desk, task="again") == ("loop", "task", "again", None)
    told = "json_extract(data, '$.who') AS who, json_extract(data, '$.user') AS user, json_extract(data, '$.loosens')"
    events = desk.query(f"SELECT task, {told} FROM rows WHERE code = 'task_resumed' ORDER BY id")
    assert [tuple(event) for event in events] == [("old", "ada", None, 1), ("round", "ada", "ann", 1)]


def test_a_task_that_was_stopped_after_the_rows_that_go_stays_stopped(desk):
    spend(desk, "c1", "0.1")
    desk.clock.pass_by(days=10)
    stop(desk, "t")
    desk.clock.pass_by(days=90)
    spend(desk, "c2", "0.1", task="other")

    assert take_out(desk) > 0

    assert stopped(desk) == [("t", "")]


def test_first_calls_of_tasks_that_nobody_has_used_since_are_forgotten(desk):
    for name in ("old", "round\x1fann", "used", "round\x1fben"):
        desk.ledger.keep_profile(name, {"calls": 10})
    spend(desk, "c1", "0.1")
    desk.clock.pass_by(days=100)
    spend(desk, "c2", "0.1", task="used")
    spend(desk, "c3", "0.1", task="round", user="ben", key="k1")
    desk.ledger.keep_profile("new", {"calls": 1})
    desk.look_after()

    take_out(desk)

    assert [row["task"] for row in desk.query("SELECT task FROM profiles ORDER BY task")] == [
        "new", "round\x1fben", "used"
    ]  # fmt: skip


def test_ends_of_pauses_that_mean_nothing_any_more_are_forgotten(desk):
    spend(desk, "c1", "1.1")
    desk.clock.pass_by(days=100)
    spend(desk, "c2", "0.9")

    take_out(desk)

    assert desk.query("SELECT * FROM pauses") == []
    assert verify(desk.path).wrong is None
    assert spend(desk, "c3", "0.2") == [("task", "t", None, "1.1")]


def test_very_many_of_them_go_some_at_a_time(desk):
    for number in range(SLICE + 1):
        payers = call("x", "0", task=f"s{number}").payers
        desk.ledger.stop_task(payers, who="loop", data={})
        desk.ledger.keep_profile(f"s{number}", {})
    desk.look_after()
    desk.clock.pass_by(days=100)
    spend(desk, "c1", "0.1")

    take_out(desk)

    assert stopped(desk) == []
    assert desk.query("SELECT * FROM profiles") == []

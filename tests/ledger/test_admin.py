import json

import pytest

from lockpin_core.errors import CommandError
from lockpin_core.ledger.admin import canonical_task
from lockpin_core.ledger.verify import verify
from tests.ledger.contract import ONE, hold
from tests.ledger.desk import NOON, OWN, SqliteDesk, machine, money


@pytest.fixture
def desk(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("name", ["", "a/b", "a\nb", "x" * 129, "a\x00", "\u200b", "a\u2028"])
def test_a_name_that_is_not_printable_is_refused(name):
    with pytest.raises(CommandError, match="1 to 128 printable characters without a slash, and not"):
        canonical_task(name)


@pytest.mark.parametrize("name", ["x" * 128, "Fix login bug", "日本", "a:b@c%2F"])
def test_a_printable_name_is_itself(name):
    assert canonical_task(name) == name


def test_a_name_is_one_in_both_spellings():
    assert canonical_task("e\u0301") == canonical_task("\u00e9") == "\u00e9"


def test_every_change_is_an_event_with_who_and_when(desk):
    hold(desk, "c1", "0.1")
    desk.clock.pass_by(seconds=5)
    desk.admin.task_new("t", limit=money("2"), window="day", who="ann")
    desk.admin.task_close("t", who="bob")
    desk.admin.task_new("t", limit=None, window="day", who="cy")
    desk.admin.raise_budget(machine("1"), "m", money("3"), who="dee")

    rows = desk.query(
        "SELECT * FROM rows WHERE kind = 'event' AND code LIKE 'task%' OR code = 'budget_raised' ORDER BY id"
    )

    told = [(row["code"], row["task"], json.loads(row["data"])["who"]) for row in rows]
    assert told == [
        ("task_new", "t", "ann"),
        ("task_closed", "t", "bob"),
        ("task_new", "t", "cy"),
        ("budget_raised", None, "dee"),
    ]
    kept = {"limit_nano": 2 * 10**9, "window": "day"}
    assert json.loads(rows[2]["data"]) == {"who": "cy", "reopened": True, "loosens": True} | kept
    assert {row["at"] for row in rows} == {int(NOON.timestamp() + 5) * 10**6}


def test_changed_budgets_are_events_that_say_whether_they_loosen(desk):
    hold(desk, "c1", "0.1")
    desk.admin.budget_set(machine("5", name="cap"), who="ann")
    desk.admin.budget_set(machine("4", name="cap"), who="bob")
    desk.admin.budget_set(machine("6", name="cap"), who="cy")
    desk.admin.budget_set(machine("6", name="cap"), who="nobody")  # just so already
    desk.admin.reset_budget(machine("6", name="cap"), "m", who="dee")
    desk.admin.budget_rm("cap", who="eve")

    rows = desk.query("SELECT code, data FROM rows WHERE kind = 'event' AND json_extract(data, '$.who') NOT NULL")

    told = [(row["code"], json.loads(row["data"])) for row in rows]
    assert [(code, data["who"], data["loosens"]) for code, data in told] == [
        ("budget_defined", "ann", False),
        ("budget_defined", "bob", False),
        ("budget_defined", "cy", True),
        ("budget_reset", "dee", True),
        ("budget_removed", "eve", True),
    ]
    assert [(data["limit_nano"], data["source"]) for _, data in told[:3]] == [
        (5 * 10**9, "command"),
        (4 * 10**9, "command"),
        (6 * 10**9, "command"),
    ]
    assert verify(desk.path).wrong is None


def test_budgets_in_force_are_listed_with_who_made_them(desk):
    hold(desk, "c1", "0.1")
    desk.admin.budget_set(machine("5", name="cap"), who="ann")
    desk.admin.budget_set(machine("5", name="gone"), who="ann")
    desk.admin.budget_rm("gone", who="ann")

    listed = [(each.budget.name, each.source) for each in desk.admin.budgets()]

    assert listed == [("cap", "command"), ("daily", "config"), ("task", "config")]


def test_terms_that_cannot_be_are_refused(desk):
    with pytest.raises(CommandError, match='window is "year"; lifetime, day, week, month or rolling with'):
        desk.admin.task_new("t", limit=None, window="year", who="x")
    with pytest.raises(CommandError, match="a positive amount is allowed"):
        desk.admin.task_new("t", limit=money("-1"), window="day", who="x")
    assert desk.admin.tasks() == []


def test_tasks_on_a_ledger_without_calls_show_their_limits(desk):
    assert desk.admin.task_new("t", limit=money("2"), window="day", who="x").limit == money("2")


def test_a_failed_command_leaves_nothing(desk):
    hold(desk, "c1", "0.1")
    before = desk.query("SELECT count(*) FROM rows")[0][0]
    with pytest.raises(CommandError):
        desk.admin.raise_budget(OWN, "t", money("1"), who="x")
    assert desk.query("SELECT count(*) FROM rows")[0][0] == before


def test_status_of_yesterday_is_not_shown_today(desk):
    hold(desk, "c1", "0.1")
    desk.clock.pass_by(days=1)
    assert [s.budget.name for s in desk.admin.standings(ONE, None, now=desk.clock())] == ["task"]

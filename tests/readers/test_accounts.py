"""Which accounts a statement lists, and in which order."""

from dataclasses import replace

import pytest

from lockpin_core.budgets import Budget
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.readers.accounts import accounts, untouched
from lockpin_core.readers.statement import key_of
from lockpin_core.windows import Window
from tests.ledger.contract import hold, settle
from tests.ledger.desk import DAY, NOON, SqliteDesk, machine, money, rules

RULES = rules(machine("5", name="b"), machine("5", name="a"))


@pytest.fixture
def desk(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()


def listed(desk, in_force=RULES) -> list[tuple[str, str, str]]:
    with LedgerReader(desk.path) as reader:
        found = accounts(reader, in_force, machine="here", now=desk.clock.now)
    return [(standing.budget.name, key_of(standing), standing.spent.exact()) for standing in found]


def test_this_machine_and_limited_tasks_are_there_at_zero_and_all_else_with_something_on_it(desk):
    hold(desk, "c1", "2", RULES, task="used", host="elsewhere")
    settle(desk, "c1", "1.5")
    desk.admin.task_new("limited", limit=money("3"), window="lifetime", who="ada")
    desk.admin.task_new("plain", limit=None, window="lifetime", who="ada")
    desk.admin.task_new("closed", limit=money("3"), window="lifetime", who="ada")
    desk.admin.task_close("closed", who="ada")

    assert listed(desk) == [
        ("b", "machine:elsewhere", "1.5"), ("b", "machine:here", "0"),
        ("a", "machine:elsewhere", "1.5"), ("a", "machine:here", "0"),
        ("task", "task:limited", "0"), ("task", "task:used", "1.5"),
    ]  # fmt: skip


TEAMS = rules(
    Budget("squads", "group", DAY, money("9"), groups=("search", "checkout")), Budget("canary", "ring", DAY, money("9")),
    Budget("some", "ring", DAY, money("9"), rings=("r0",)), Budget("all", "org", DAY, money("9")),
    Budget("each", "user", DAY, money("9")), Budget("costs", "tag", DAY, money("9"), tags=("env=ci",)),
)  # fmt: skip


def test_the_organisation_groups_and_rings_are_there_at_zero_and_people_when_they_spend(desk):
    at_zero = [("squads", "group:checkout"), ("squads", "group:search")]
    rest = [("some", "ring:r0"), ("all", "org:org")]
    assert [(name, key) for name, key, _ in listed(desk, TEAMS)] == [*at_zero, *rest]
    hold(desk, "c1", "2", TEAMS, user="ann", groups=("search", "ml"), ring="r7")
    settle(desk, "c1", "1.5")
    desk.clock.pass_by(days=1)

    assert [(name, key) for name, key, _ in listed(desk, TEAMS)] == [*at_zero, ("canary", "ring:r7"), *rest]
    hold(desk, "c2", "2", TEAMS, user="ann", groups=("search", "ml"), ring="r7")
    settle(desk, "c2", "1.5")
    assert listed(desk, TEAMS) == [
        ("squads", "group:checkout", "0"), ("squads", "group:search", "1.5"), ("canary", "ring:r7", "1.5"),
        ("some", "ring:r0", "0"), ("all", "org:org", "1.5"), ("each", "user:ann", "1.5"),
    ]  # fmt: skip


def test_a_budget_that_came_or_changed_later_has_what_its_window_has_seen(desk):
    week, month = (Window(kind) for kind in ("week", "month"))
    squads = Budget("squads", "team", DAY, money("9"))
    desk.admin.budget_set(squads, who="ada")
    hold(desk, "c0", "2", rules(), user="ann", team="web")
    settle(desk, "c0", "1.25")
    desk.clock.pass_by(days=1)  # a Thursday of the same week
    for name, who, cost in (
        ("c1", {"user": "ann", "team": "web"}, "1.5"),
        ("c2", {"user": "bob", "key": "k-1"}, "0.5"),
    ):
        hold(desk, name, "2", rules(), **who)
        settle(desk, name, cost)
    hold(desk, "c3", "0.25", rules(), user="cho", team="ops", tags=(("env", "ci"),))

    for budget in (
        Budget("team-week", "team", week, money("9")), Budget("tags", "tag", DAY, money("9"), tags=("env=ci",)),
        Budget("each", "user", month, money("9"), users=("ann", "cho")), replace(squads, name="renamed"),
        Budget("nobody", "ring", DAY, money("9")), Budget("k-1", "key", Window("lifetime"), money("9"), keys=("k-1",)),
    ):  # fmt: skip
        desk.admin.budget_set(budget, who="ada")
    desk.admin.budget_set(replace(squads, window=month), who="ada")

    with LedgerReader(desk.path) as reader:
        found = accounts(reader, rules(*(b for b in reader.budgets() if not b.own)), machine="here", now=desk.clock.now)
    shown = {(s.budget.name, key_of(s)): (s.spent.exact(), s.held.exact()) for s in found if s.budget.name != "task"}
    assert shown == {
        ("team-week", "team:web"): ("2.75", "0"), ("team-week", "team:ops"): ("0", "0.25"),
        ("tags", "tag:env=ci"): ("0", "0.25"),
        ("each", "user:ann"): ("2.75", "0"), ("each", "user:cho"): ("0", "0.25"),
        ("k-1", "key:k-1"): ("0.5", "0"), ("renamed", "team:web"): ("1.5", "0"), ("renamed", "team:ops"): ("0", "0.25"),
        ("squads", "team:web"): ("2.75", "0"), ("squads", "team:ops"): ("0", "0.25"),
    }  # fmt: skip


def test_an_account_of_a_window_that_is_over_is_not_listed(desk):
    hold(desk, "c1", "2", RULES, task="used", host="elsewhere")
    settle(desk, "c1", "1.5")
    desk.clock.pass_by(days=1)

    assert listed(desk) == [("b", "machine:here", "0"), ("a", "machine:here", "0"), ("task", "task:used", "1.5")]


def test_without_a_ledger_this_machine_is_there():
    found = untouched(RULES, machine="here", now=NOON)

    assert [(one.budget.name, key_of(one), one.limit) for one in found] == [
        ("b", "machine:here", money("5")),
        ("a", "machine:here", money("5")),
    ]

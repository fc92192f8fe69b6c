import json
import unicodedata

import pytest

from lockpin_core.call import Call, Ceiling, Charge, Payers, Quote, Terms
from lockpin_core.config_budgets import own_budget
from lockpin_core.ledger.protocol import Rules
from lockpin_core.money import Money
from lockpin_core.usage import Unit

RULES = Rules((), own_budget(None, (), "UTC"))


def called(call_id: str, task: str, most: str, **payers: str) -> Call:
    ceiling = Ceiling(500, 500, frozenset({Unit.INPUT}), frozenset({Unit.OUTPUT}), {})
    return Call(
        id=call_id, payers=Payers(task, "desk", **payers), provider="openai", host="api.openai.com",
        wire="openai_chat", model="m", asked_model="m", client=None, streamed=False,
        quote=Quote(Money.parse(most), 1000, ceiling), terms=Terms(), output_limit=500, limit_set=False,
        billing="metered", price_date="2026-08-01", rates={},
    )  # fmt: skip


def listed(lockpin) -> dict[str, dict]:
    return {task["task"]: task for task in json.loads(lockpin("task", "list", "--format", "json").stdout)}


def test_new_task_has_its_budget(lockpin):
    made = lockpin("task", "new", "fix-login", "--budget", "5")

    assert (made.returncode, made.stdout) == (0, 'task "fix-login": $5.00 in all, spent $0.00, held $0.00\n')
    task = listed(lockpin)["fix-login"]
    assert (task["limit_usd"], task["window"], task["closed"], task["spent_usd"]) == (5, "lifetime", False, 0)


def test_task_in_use_gets_the_budget_and_keeps_its_spend(lockpin, ledger):
    lockpin("task", "new", "fix", "--budget", "0.05")

    task = listed(lockpin)["fix"]
    assert (task["limit_usd"], task["spent_usd"]) == (0.05, 0.03)


def test_window_of_a_day_is_said(lockpin):
    assert "$1.50 a day" in lockpin("task", "new", "daily-run", "--budget", "1.5", "--window", "day").stdout


def test_closed_task_opens_again(lockpin):
    lockpin("task", "new", "x", "--budget", "1")

    assert lockpin("task", "close", "x").stdout == 'task "x" is closed: spent $0.00, held $0.00\n'
    assert listed(lockpin)["x"]["closed"] is True
    lockpin("task", "new", "x", "--budget", "2")
    assert (listed(lockpin)["x"]["closed"], listed(lockpin)["x"]["limit_usd"]) == (False, 2)


def test_one_name_in_two_spellings_is_one_task(lockpin):
    lockpin("task", "new", unicodedata.normalize("NFD", "übung"), "--budget", "1")
    lockpin("task", "new", unicodedata.normalize("NFC", "übung"), "--budget", "2")

    assert list(listed(lockpin)) == ["übung"]


def test_table_lists_tasks_that_exist_by_use(lockpin, ledger):
    lines = lockpin("task", "list").stdout.splitlines()

    assert lines[0].split() == ["TASK", "WINDOW", "SPENT", "HELD", "LIMIT", "STATE", "CREATED"]
    assert lines[1].split() == ["doc", "lifetime", "$0.00", "$1.25", "-", "open", "-"]
    assert lines[2].split() == ["fix", "lifetime", "$0.03", "$0.00", "-", "open", "-"]


def test_no_tasks_say_how_to_make_one_and_make_no_ledger(lockpin, home):
    done = lockpin("task", "list")

    assert "lockpin task new" in done.stdout
    assert not home.ledger.exists()


@pytest.mark.parametrize("usd", ["0.02", "0.03"])
def test_budget_that_is_spent_already_is_said(lockpin, ledger, usd):
    line = lockpin("task", "new", "fix", "--budget", usd).stdout

    assert (
        line == f'task "fix": ${usd} in all, spent $0.03, held $0.00; that is spent already, so its calls are refused\n'
    )


def test_second_close_says_that_it_was_closed_and_changes_nothing(lockpin, ledger):
    lockpin("task", "close", "fix")

    assert lockpin("task", "close", "fix").stdout == 'task "fix" was closed already: spent $0.03, held $0.00\n'
    assert listed(lockpin)["fix"]["closed"] is True


@pytest.mark.parametrize(
    ("words", "said", "window"),
    [
        (["--window", "week"], "$5.00 a week", "week"),
        (["--window", "month"], "$5.00 a month", "month"),
        (["--window", "rolling", "--period", "24h"], "$5.00 in any 24h", "rolling 24h"),
        (["--window", "rolling", "--period", "90m"], "$5.00 in any 90m", "rolling 90m"),
        ([], "$5.00 in all", "lifetime"),
    ],
)
def test_every_window_is_said_and_listed(lockpin, words, said, window):
    done = lockpin("task", "new", "t", "--budget", "5", *words)

    assert done.stdout == f'task "t": {said}, spent $0.00, held $0.00\n'
    assert listed(lockpin)["t"]["window"] == window
    assert window in lockpin("task", "list").stdout


def test_a_task_may_be_a_users(lockpin, ledger):
    made = lockpin("task", "new", "site", "--budget", "5", "--user", "Ann@Corp.com")
    users = {name: task["user"] for name, task in listed(lockpin).items()}
    table = lockpin("task", "list").stdout.splitlines()

    assert made.stdout == 'task "site" of ann@corp.com: $5.00 in all, spent $0.00, held $0.00\n'
    assert made.stderr.startswith("lockpin: warning: in solo mode no call is a user's")
    assert users == {"doc": None, "fix": None, "site": "ann@corp.com"}
    assert table[0].split()[-1] == "USER"
    assert [line.split()[-1] for line in table[1:]] == ["-", "-", "ann@corp.com"]
    assert 'task "site" of ann@corp.com has a budget of $5.00' in lockpin("ledger", "events").stdout


def test_a_close_says_whose_calls_it_stops_in_team_mode(lockpin, home, ledger):
    home.config("mode: team\n")
    lockpin("task", "new", "site", "--budget", "5", "--user", "ann@corp.com")
    spent = "spent $0.00, held $0.00"

    anns, again, nobodys = (lockpin("task", "close", name) for name in ("site", "site", "doc"))

    assert (anns.stdout, anns.stderr) == (f'task "site" is closed for ann@corp.com: {spent}\n', "")
    assert again.stdout == f'task "site" was closed already for ann@corp.com: {spent}\n'
    assert nobodys.stdout.startswith('task "doc" is closed: spent ')
    assert nobodys.stderr == (
        "lockpin: warning: it is nobody's, so in team mode no call is refused by that; "
        "`lockpin task new doc --budget USD --user ID` makes it somebody's\n"
    )


def test_a_user_whom_nobody_can_be_is_refused(lockpin, ledger):
    done = lockpin("task", "new", "site", "--budget", "5", "--user", "a\x07")
    assert done.returncode == 2
    assert "256 printable characters are" in " ".join(done.stderr.split())


def test_in_team_mode_a_task_with_a_budget_is_somebodys(lockpin, home, ledger):
    home.config("mode: team\n")

    nobodys = lockpin("task", "new", "site", "--budget", "5")
    anns = lockpin("task", "new", "site", "--budget", "5", "--user", "ann@corp.com")
    more = lockpin("task", "new", "site", "--budget", "6")
    again = lockpin("budget", "set", "fix", "--limit-usd", "2")

    for refused, name in ((nobodys, "site"), (again, "fix")):
        assert refused.returncode == 2, refused.stderr
        said = " ".join(refused.stderr.split())
        assert "in team mode a task with a budget is somebody's" in said
        assert f"`lockpin task new {name} --budget USD --user ID` says whose" in said
    assert (anns.returncode, anns.stderr) == (0, "")
    assert more.stdout.startswith('task "site" of ann@corp.com: $6.00 in all')


def test_the_mode_is_that_of_the_proxies_on_the_ledger_and_not_of_the_folder(lockpin, ledger):
    ledger.define(RULES, "there", "team").result(10)

    nobodys = lockpin("task", "new", "site", "--budget", "5")
    set_on = lockpin("budget", "set", "fix", "--limit-usd", "2")
    anns = lockpin("task", "new", "site", "--budget", "5", "--user", "ann@corp.com")
    ledger.define(RULES, "there", "solo").result(10)
    solo = lockpin("task", "new", "other", "--budget", "5")

    for refused in (nobodys, set_on):
        assert refused.returncode == 2, refused.stdout
        assert "in team mode a task with a budget is somebody's" in " ".join(refused.stderr.split())
    assert (anns.returncode, anns.stderr) == (0, "")
    assert solo.returncode == 0, solo.stderr


def test_a_proxy_of_a_team_that_has_ended_leaves_team_mode(lockpin, home, ledger):
    ledger.define(RULES, "there", "team").result(10)
    ledger.stop()

    gone = lockpin("task", "new", "site", "--budget", "5")
    home.config("mode: team\n")
    told = lockpin("task", "new", "site", "--budget", "5")

    assert (gone.returncode, told.returncode) == (2, 2)


def test_a_team_to_come_needs_users_where_no_proxy_runs(lockpin, home, ledger):
    ledger.define(RULES, "there", "solo").result(10)
    home.config("mode: team\n")

    while_solo_runs = lockpin("task", "new", "site", "--budget", "5")
    ledger.stop()
    afterwards = lockpin("task", "new", "other", "--budget", "5")

    assert (while_solo_runs.returncode, afterwards.returncode) == (0, 2)


def test_a_task_that_goes_over_to_another_user_says_so(lockpin, home):
    home.config("mode: team\n")
    first = lockpin("task", "new", "site", "--budget", "5", "--user", "bob")
    again = lockpin("task", "new", "site", "--budget", "6", "--user", "Bob")
    taken = lockpin("task", "new", "site", "--budget", "7", "--user", "ann")

    assert (first.stderr, again.stderr) == ("", "")
    assert (
        taken.stderr
        == "lockpin: it was a task of bob: what bob has spent and will spend on it is not counted any more\n"
    )


def test_a_team_sees_what_all_calls_of_a_task_came_to(lockpin, ledger):
    ledger.define(RULES, "there", "team").result(10)
    for call_id, user in (("t1", "ann"), ("t2", "bob"), ("t3", "bob")):
        held = ledger.hold(called(call_id, "site", "0.5", user=user), RULES)
        held.result(10)
    ledger.settle("t1", Charge(Money.parse("0.25"), {}, 0, None, None)).result(10)
    ledger.settle("t2", Charge(Money.parse("0.125"), {}, 0, None, None)).result(10)
    lockpin("task", "new", "hers", "--budget", "1", "--user", "ann")

    done = lockpin("task", "list")
    site = listed(lockpin)["site"]

    assert (site["spent_usd"], site["held_usd"], site["limit_usd"]) == (0.375, 0.5, None)
    assert done.stderr == (
        "lockpin: of a task with a user, what that user has spent is shown; `lockpin report --by task` adds up "
        "everybody's\n"
    )


def test_the_default_budget_of_tasks_is_no_limit_of_a_team(lockpin, home):
    home.config("mode: team\ntask: {budget_usd: 0.01}\n")

    said = lockpin("validate").stdout

    assert "warning: task.budget_usd limits nobody in team mode; a budget with scope: task counts" in said
    assert "no limit is enforced" in said

import json
import socket

import pytest

from lockpin_core.call import Payers, Refusal
from lockpin_core.ledger.protocol import CallNote

MACHINE = socket.gethostname()


def status(lockpin, *words: str) -> list[dict]:
    return json.loads(lockpin("budget", "status", "--output", "json", *words).stdout)


def test_status_has_each_account_with_something_spent_or_held(lockpin, ledger):
    daily, doc, fix = status(lockpin)

    assert list(daily) == [
        *("budget", "key", "scope", "subject", "window", "action", "spent_usd", "held_usd", "limit_usd"),
        *("spent_tokens", "held_tokens", "limit_tokens", "used", "resets_at"),
    ]
    assert (daily["budget"], daily["key"], daily["action"]) == ("daily", f"machine:{MACHINE}", "enforce")
    assert (daily["spent_usd"], daily["held_usd"], daily["limit_usd"]) == (0.03, 1.25, 25)
    assert (daily["spent_tokens"], daily["held_tokens"], daily["limit_tokens"]) == (150, 1000, None)
    assert daily["used"] == 0.0012  # 0.03 of 25; what is held does not count
    assert daily["resets_at"].endswith("T00:00:00Z")
    assert (doc["key"], doc["held_usd"], doc["limit_usd"], doc["used"]) == ("task:doc", 1.25, None, None)
    assert (fix["key"], fix["spent_usd"], fix["resets_at"]) == ("task:fix", 0.03, None)


def test_status_before_the_first_call_shows_the_machine_at_zero(lockpin, home):
    (daily,) = status(lockpin)

    assert (daily["key"], daily["spent_usd"], daily["limit_usd"], daily["used"]) == (f"machine:{MACHINE}", 0, 25, 0)
    assert not home.ledger.exists()


def test_task_with_a_budget_is_shown_at_zero(lockpin, ledger):
    lockpin("task", "new", "fresh", "--budget", "3")

    (fresh,) = status(lockpin, "--key", "task:fresh")
    assert (fresh["budget"], fresh["limit_usd"], fresh["spent_usd"]) == ("task", 3, 0)


def test_status_is_narrowed_by_budget_and_key(lockpin, ledger):
    assert [line["key"] for line in status(lockpin, "--budget", "task")] == ["task:doc", "task:fix"]
    assert [line["budget"] for line in status(lockpin, "--key", f"machine:{MACHINE}")] == ["daily"]
    assert status(lockpin, "--key", "task:nobody") == []


def test_status_table_has_the_columns_of_the_contract(lockpin, ledger):
    lines = lockpin("budget", "status").stdout.splitlines()

    assert lines[0].split() == ["BUDGET", "KEY", "WINDOW", "ACTION", "SPENT", "HELD", "LIMIT", "USED", "RESETS"]
    assert lines[1].split()[:8] == ["daily", f"machine:{MACHINE}", "day", "enforce", "$0.03", "$1.25", "$25.00", "0%"]
    assert lines[3].split() == ["task", "task:fix", "lifetime", "-", "$0.03", "$0.00", "-", "-", "-"]


def test_token_limits_stand_beside_dollars(lockpin, home):
    home.config("budgets:\n- {name: tok, scope: machine, window: day, limit_usd: 2, limit_tokens: 5000}\n")

    lines = lockpin("budget", "status").stdout.splitlines()

    assert "$2.00 / 5,000 tok" in lines[2]
    assert "warn" in lines[2]


def test_limits_are_those_that_the_proxy_last_applied(lockpin, home, ledger):
    home.config("daily_usd: 7\n")

    done = lockpin("budget", "status", "--budget", "daily", "--format", "json")

    assert json.loads(done.stdout)[0]["limit_usd"] == 25
    assert '"daily" is taken as a proxy last applied it' in done.stderr


def test_raise_adds_to_the_current_window(lockpin, ledger):
    done = lockpin("budget", "raise", "daily", "--by", "5")

    assert done.stdout.startswith(f"machine:{MACHINE}: daily limit $30.00 until ")
    assert done.stdout.endswith("T00:00:00Z, spent $0.03, held $1.25\n")
    assert status(lockpin, "--budget", "daily")[0]["limit_usd"] == 30


def test_raise_of_a_task_by_its_name_or_by_its_key(lockpin, ledger):
    lockpin("task", "new", "fix", "--budget", "1")

    by_name = lockpin("budget", "raise", "fix", "--by", "0.5")
    by_key = lockpin("budget", "raise", "task", "--key", "task:fix", "--by", "0.25")

    assert by_name.stdout == "task:fix: task limit $1.50, spent $0.03, held $0.00\n"
    assert by_key.stdout == "task:fix: task limit $1.75, spent $0.03, held $0.00\n"


def test_raise_of_a_name_that_is_budget_and_task_asks_which(lockpin, ledger):
    lockpin("task", "new", "daily", "--budget", "1")

    asked = lockpin("budget", "raise", "daily", "--by", "1")
    told = lockpin("budget", "raise", "daily", "--key", f"machine:{MACHINE}", "--by", "1")

    assert asked.returncode == 2
    assert "--key task:daily" in asked.stderr
    assert "daily limit $26.00" in told.stdout


def test_machine_without_an_account_is_refused_and_the_known_are_named(lockpin, ledger):
    done = lockpin("budget", "raise", "daily", "--key", "machine:elsewhere", "--by", "5")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f'lockpin: no machine "elsewhere" has an account; there is {MACHINE}\n'
    assert status(lockpin, "--budget", "daily")[0]["limit_usd"] == 25


def test_task_that_nobody_made_or_used_is_refused_and_near_ones_are_named(lockpin, home, ledger):
    home.config("budgets:\n- {name: each, scope: task, window: day, limit_usd: 2, action: enforce}\n")

    for budget in ("each", "task"):
        done = lockpin("budget", "raise", budget, "--key", "task:fixx", "--by", "5")

        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.endswith('lockpin: no task "fixx" was made or used; there is fix\n')


def test_task_that_was_only_refused_is_known(lockpin, ledger):
    ledger.refuse(
        CallNote("c7", Payers("late", MACHINE), "openai", "api.openai.com", "m", "x/1", "unknown_model"),
        Refusal("unknown_model", 400, "lockpin: no price"),
    )
    ledger.stop()

    assert lockpin("budget", "status", "--key", "task:late").stderr == ""


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("task:nosuch", 'no task "nosuch" was made or used; there are doc, fix'),
        ("machine:nosuch", f'no machine "nosuch" has an account; there is {MACHINE}'),
    ],
)
def test_status_of_a_stranger_is_empty_and_that_is_said(lockpin, ledger, key, words):
    done = lockpin("budget", "status", "--key", key, "--format", "json")

    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", f"lockpin: {words}\n")


def test_status_of_a_stranger_before_the_first_call_says_how_to_make_a_task(lockpin):
    assert "`lockpin task new 'a b' --budget USD` makes one" in lockpin("budget", "status", "--key", "task:a b").stderr


def test_raise_of_a_closed_task_says_that_it_stays_closed(lockpin, ledger):
    lockpin("task", "new", "fix", "--budget", "1")
    lockpin("task", "close", "fix")

    line = lockpin("budget", "raise", "fix", "--by", "1").stdout

    assert line.startswith("task:fix: task limit $2.00, spent $0.03, held $0.00; the task is closed, so its calls are")
    assert line.endswith("`lockpin task new fix --budget USD` opens it again\n")


def test_definitions_that_differ_are_named_with_both_values(lockpin, home, ledger):
    home.config("daily_usd: 7\ntimezone: Europe/Berlin\ntask: {budget_usd: 3}\n")

    own, daily = sorted(lockpin("budget", "status").stderr.splitlines(), reverse=True)

    assert "limit_usd is none, in the configuration it is $3.00" in own
    assert daily.endswith(
        "last applied it: limit_usd is $25.00, in the configuration it is $7.00; "
        "timezone is UTC, in the configuration it is Europe/Berlin"
    )


def test_money_in_the_table_is_rounded_against_the_user_and_exact_in_json(lockpin, home):
    home.config("daily_usd: 1.23456789\n")

    assert "$1.23 " in lockpin("budget", "status").stdout
    assert status(lockpin)[0]["limit_usd"] == 1.23456789

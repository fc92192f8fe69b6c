import json
import socket

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

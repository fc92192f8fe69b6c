import json
import socket
import unicodedata
from dataclasses import replace

import pytest

from lockpin_core.call import Payers, Refusal
from lockpin_core.config_budgets import daily_budget, own_budget
from lockpin_core.ledger.protocol import CallNote, Held, Rules, Short
from lockpin_core.ledger.verify import verify
from lockpin_core.money import Money
from tests.ledger.desk import call

MACHINE = socket.gethostname()
SPRINT = ("--scope", "machine", "--window", "week")
RULES = Rules((daily_budget(Money.parse("25"), "UTC"),), own_budget(None, ("0.75", "0.95"), "UTC"))


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

    assert by_name.stdout == "task:fix: task limit $1.50 for good, spent $0.03, held $0.00\n"
    assert by_key.stdout == "task:fix: task limit $1.75 for good, spent $0.03, held $0.00\n"


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


@pytest.mark.parametrize("verb", ["raise", "reset"])
def test_task_that_nobody_made_or_used_is_refused_and_near_ones_are_named(lockpin, ledger, verb):
    lockpin("budget", "set", "each", "--scope", "task", "--window", "day", "--limit-usd", "2")

    for budget in ("each", "task"):
        more = ["--by", "5"] if verb == "raise" else []
        done = lockpin("budget", verb, budget, "--key", "task:fixx", *more)

        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == 'lockpin: no task "fixx" was made or used; there is fix\n'


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

    assert (done.returncode, done.stdout, done.stderr) == (1, "[]\n", f"lockpin: {words}\n")


def test_status_of_a_stranger_before_the_first_call_says_how_to_make_a_task(lockpin):
    assert "`lockpin task new 'a b' --budget USD` makes one" in lockpin("budget", "status", "--key", "task:a b").stderr


def test_raise_of_a_closed_task_says_that_it_stays_closed(lockpin, ledger):
    lockpin("task", "new", "fix", "--budget", "1")
    lockpin("task", "close", "fix")

    line = lockpin("budget", "raise", "fix", "--by", "1").stdout

    assert line.startswith("task:fix: task limit $2.00 for good, spent $0.03, held $0.00; the task is closed, so its")
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


def ask(ledger, call_id, usd, **more):
    return ledger.hold(call(call_id, usd, task="fix", host=MACHINE, **more), RULES).result(10)


def test_set_is_in_force_for_a_running_proxy_from_its_next_call_on(lockpin, ledger, home):
    done = lockpin("budget", "set", "sprint", *SPRINT, "--limit-usd", "2")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        'budget "sprint" is in force: machine, week, limit $2.00; it enforces from the next call on; '
        f"machine:{MACHINE} has spent $0.03 and holds $1.25\n"
    )
    assert isinstance(ask(ledger, "n1", "0.73"), Short)  # 0.03 spent and 1.25 held leave 0.72
    assert isinstance(ask(ledger, "n2", "0.72"), Held)
    (sprint,) = status(lockpin, "--budget", "sprint")
    assert (sprint["window"], sprint["action"], sprint["limit_usd"], sprint["spent_usd"]) == (
        "week",
        "enforce",
        2,
        0.03,
    )
    assert verify(home.ledger).wrong is None


def test_set_of_a_name_in_use_changes_what_is_given_and_says_what_it_was(lockpin, ledger):
    lockpin("budget", "set", "sprint", *SPRINT, "--limit-usd", "2", "--models", "claude-*", "--alert-at", "0.5,0.25")

    done = lockpin("budget", "set", "sprint", "--limit-usd", "3", "--limit-tokens", "5000")

    assert done.stdout.startswith(
        'budget "sprint": limit_usd was $2.00, is $3.00; limit_tokens was none, is 5,000; from the next call on'
    )
    again = lockpin("budget", "set", "sprint", "--limit-usd", "3").stdout
    assert again.startswith(
        'budget "sprint" is just so already: machine, week, limit $3.00, 5,000 tokens, only claude-*'
    )
    changed = lockpin("budget", "set", "sprint", "--limit-usd", "none", "--alert-at", "0.9").stdout
    assert "limit_usd was $3.00, is none; alert_at was [0.25, 0.5], is [0.9]; from" in changed


def test_set_of_another_window_leaves_what_was_of_the_one_before(lockpin, ledger):
    lockpin("budget", "set", "b", "--scope", "machine", "--window", "rolling", "--period", "36h", "--limit-usd", "2")
    assert status(lockpin, "--budget", "b")[0]["window"] == "rolling 36h"

    done = lockpin("budget", "set", "b", "--window", "month", "--anchor", "31", "--at", "06:30")

    assert "window was rolling 36h, is month; at was 00:00, is 06:30; anchor was 1, is 31" in done.stdout
    done = lockpin("budget", "set", "b", "--window", "day", "--timezone", "Europe/Berlin")
    assert "window was month, is day; timezone was UTC, is Europe/Berlin; anchor was 31, is 1;" in done.stdout


def test_set_before_the_first_call_is_kept_beside_the_configuration(lockpin, home):
    lockpin("budget", "set", "sprint", *SPRINT, "--limit-usd", "2")

    assert [line["budget"] for line in status(lockpin)] == ["daily", "sprint"]
    assert lockpin("budget", "status").stderr == ""


def test_set_of_a_task_gives_it_a_budget_of_its_own(lockpin, ledger):
    none = lockpin("budget", "set", "fix", "--window", "day")
    done = lockpin("budget", "set", "fix", "--limit-usd", "5")
    day = lockpin("budget", "set", "fix", "--window", "rolling", "--period", "24h")

    assert (none.returncode, none.stderr.count("\n")) == (2, 1)
    assert "no budget of its own yet; --limit-usd is needed" in none.stderr
    assert done.stdout == 'task "fix": $5.00 in all, spent $0.03, held $0.00; before: none\n'
    assert day.stdout == 'task "fix": $5.00 in any 24h, spent $0.03, held $0.00; before: $5.00, lifetime\n'
    (fix,) = status(lockpin, "--key", "task:fix")
    assert (fix["limit_usd"], fix["window"]) == (5, "rolling 24h")


def test_set_of_a_closed_task_says_that_it_opens_it(lockpin, ledger):
    lockpin("task", "close", "fix")

    line = lockpin("budget", "set", "fix", "--limit-usd", "5").stdout

    assert line.endswith("; before: none; it was closed and is open again\n")


def test_one_name_in_two_spellings_is_one_budget(lockpin, ledger):
    lockpin("budget", "set", unicodedata.normalize("NFD", "übung"), *SPRINT, "--limit-usd", "2")

    done = lockpin("budget", "rm", unicodedata.normalize("NFC", "übung"))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith('budget "übung" is out of force')


def test_set_of_a_name_that_is_budget_and_task_asks_which(lockpin, ledger):
    lockpin("budget", "set", "fix", *SPRINT, "--limit-usd", "9")

    asked = lockpin("budget", "set", "fix", "--limit-usd", "8")
    told = lockpin("budget", "set", "fix", "--scope", "machine", "--limit-usd", "8")

    assert asked.returncode == 2
    assert "it is a budget and a task; --scope machine means the budget, `lockpin task new fix" in asked.stderr
    assert "limit_usd was $9.00, is $8.00" in told.stdout


@pytest.mark.parametrize("verb", ["set", "rm"])
def test_one_of_the_configuration_is_changed_there_and_the_line_is_said(lockpin, home, ledger, verb):
    file = home.config("timezone: UTC\nbudgets:\n- {name: a, scope: machine, window: day, limitUSD: 2}\n")
    flags = ["--limit-usd", "3"] if verb == "set" else []

    done = lockpin("budget", verb, "a", *flags, "--config", str(file))

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f'lockpin: budget "a" is made by budgets[0] in {file}:3; change it there, a running proxy applies it at once\n'
    )


def test_one_of_an_included_file_is_changed_there(lockpin, home, ledger):
    gateway = home.config("pricing: {}\nbudgets:\n- {name: a, scope: machine, window: day, limitUSD: 2}\n", "g.yaml")
    file = home.config("include: [g.yaml]\n")

    done = lockpin("budget", "set", "a", "--limit-usd", "3", "--config", str(file))

    assert done.stderr == (
        f'lockpin: budget "a" is made by budgets[0] in {gateway}:3; change it there, a running proxy applies it at once\n'
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "daily_usd: 7\n",
            "made by daily_usd in {file}:1; change it there, or start with `lockpin up --daily-usd USD`",
        ),
        ("dailyUSD: 7\n", "made by dailyUSD in {file}:1; change it there, or start with"),
        ("timezone: UTC\n", "the usual one; set daily_usd in {file}, or start with `lockpin up --daily-usd USD`"),
    ],
)
def test_the_daily_one_may_come_from_a_file_a_flag_or_nobody(lockpin, home, ledger, text, words):
    file = home.config(text)

    done = lockpin("budget", "set", "daily", "--limit-usd", "3", "--config", str(file))

    assert done.returncode == 1
    assert words.format(file=file) in done.stderr


def test_without_any_file_the_one_that_would_be_found_is_named(lockpin, home, ledger):
    done = lockpin("budget", "set", "daily", "--limit-usd", "3")

    file = home.path / "config" / "lockpin" / "lockpin.yaml"
    assert f"is the usual one; set daily_usd in {file}, or start with" in done.stderr


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--providers", "nope"], "can never match: no provider is called nope"),
        (["--providers", "nope,none-*"], "can never match: no provider is called nope, none-*"),
        (["--models", "gtp-5*"], "can never match: no priced model is called gtp-5*"),
        (["--models", "claude-*", "--providers", "openai"], "can never match: no priced model is called claude-*"),
        (["--providers", "openai,nope"], 'names the provider "nope", which nobody is: that part of it counts nothing'),
        (["--models", "gpt-5*"], None),
        (["--models", "mine"], None),
    ],
)
def test_set_says_what_of_its_filters_can_never_match(lockpin, home, ledger, flags, why):
    home.config("pricing: {mine: {input_per_mtok: 1, output_per_mtok: 2}}\n")

    done = lockpin("budget", "set", "sprint", *SPRINT, "--limit-usd", "2", *flags)

    assert done.returncode == 0
    assert done.stderr == ("" if why is None else f'lockpin: warning: budget "sprint" {why}\n')


def test_each_tasks_own_is_made_by_task_new(lockpin, home):
    file = home.config("task:\n  budget_usd: 4\n")

    done = lockpin("budget", "set", "task", "--scope", "task", "--limit-usd", "3")

    assert done.returncode == 1
    assert f"`lockpin task new NAME --budget USD` sets one, task.budget_usd in {file.name}:2 the others" in done.stderr


def test_one_that_only_a_proxy_knows_is_refused_too(lockpin, home, ledger):
    other = daily_budget(Money.parse("25"), "UTC")
    ledger.define(Rules((*RULES.budgets, replace(other, name="elsewhere")), RULES.task_default)).result(10)

    done = lockpin("budget", "rm", "elsewhere")

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "is from the configuration of a proxy, and not from a file that is found here" in done.stderr


def test_rm_takes_it_out_of_force_and_set_lets_it_go_on(lockpin, ledger, home):
    lockpin("budget", "set", "ever", "--scope", "machine", "--window", "lifetime", "--limit-usd", "0.75")
    assert isinstance(ask(ledger, "n1", "0.5"), Short)  # the call in flight is over it

    done = lockpin("budget", "rm", "ever")

    assert done.stdout == ('budget "ever" is out of force: machine, lifetime, limit $0.75; what it has counted stays\n')
    assert status(lockpin, "--key", f"machine:{MACHINE}")[0]["budget"] == "daily"
    assert "ever" not in lockpin("budget", "status").stdout
    assert isinstance(ask(ledger, "n2", "0.5"), Held)
    lockpin("budget", "set", "ever", "--scope", "machine", "--window", "lifetime", "--limit-usd", "5")
    (ever,) = status(lockpin, "--budget", "ever")
    assert (ever["spent_usd"], ever["held_usd"]) == (0.03, 1.75)
    assert verify(home.ledger).wrong is None
    assert 'no budget "sprint" was made by command; there is ever' in lockpin("budget", "rm", "sprint").stderr


def test_rm_of_a_task_says_that_its_budget_stays(lockpin, ledger):
    done = lockpin("budget", "rm", "fix")

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "there is none; a task's own budget stays, `lockpin task new fix --budget USD` sets another" in done.stderr


def test_reset_counts_from_now_on_and_leaves_what_is_held(lockpin, ledger, home):
    done = lockpin("budget", "reset", "daily")

    assert done.stdout == (
        f"machine:{MACHINE}: daily spent was $0.03 and counts from $0.00 now, held $1.25, limit $25.00\n"
    )
    (daily,) = status(lockpin, "--budget", "daily")
    assert (daily["spent_usd"], daily["held_usd"]) == (0, 1.25)
    assert verify(home.ledger).wrong is None


def test_raise_says_how_long_it_lasts(lockpin, ledger):
    for name, window in (("w", ("week",)), ("r", ("rolling", "--period", "36h")), ("l", ("lifetime",))):
        lockpin("budget", "set", name, "--scope", "machine", "--window", *window, "--limit-usd", "9")

    said = {name: lockpin("budget", "raise", name, "--by", "1").stdout for name in "wrl"}

    assert said["l"].startswith(f"machine:{MACHINE}: l limit $10.00 for good, spent $0.03")
    assert said["r"].startswith(f"machine:{MACHINE}: r limit $10.00 for 36h, spent $0.03")
    assert said["w"].startswith(f"machine:{MACHINE}: w limit $10.00 until ")


def test_one_of_the_configuration_that_no_proxy_has_applied_yet_is_said(lockpin, home, ledger):
    home.config("budgets:\n- {name: each, scope: task, window: day, limit_usd: 2}\n")
    words = 'lockpin: budget "each" of the configuration is not in force yet: a proxy applies it as it starts\n'

    shown = lockpin("budget", "status", "--format", "json")
    raised = lockpin("budget", "raise", "each", "--key", "task:fix", "--by", "1")

    assert shown.stderr == words
    assert [line["budget"] for line in json.loads(shown.stdout)] == ["daily", "task", "task"]
    assert (raised.returncode, raised.stderr) == (1, words)


def test_one_that_the_configuration_has_no_more_is_said(lockpin, home, ledger):
    home.config("daily_usd: null\n")

    done = lockpin("budget", "status", "--budget", "daily", "--format", "json")

    assert json.loads(done.stdout)[0]["limit_usd"] == 25
    assert done.stderr == (
        'lockpin: budget "daily" is in force as a proxy last applied it, and not in the configuration any more\n'
    )


def test_undo_takes_the_raises_of_the_current_window_back(lockpin, ledger, home):
    lockpin("budget", "raise", "daily", "--by", "5")
    lockpin("budget", "raise", "daily", "--by", "2.5")

    done = lockpin("budget", "raise", "daily", "--undo")
    again = lockpin("budget", "raise", "daily", "--undo")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"machine:{MACHINE}: daily limit was $32.50, is $25.00, spent $0.03, held $1.25\n"
    assert status(lockpin, "--budget", "daily")[0]["limit_usd"] == 25
    assert (again.returncode, again.stdout, again.stderr.count("\n")) == (1, "", 1)
    assert "was not raised" in again.stderr
    assert verify(home.ledger).wrong is None
    words = json.loads(lockpin("ledger", "events", "--format", "json").stdout)[-1]["what"]
    assert words.startswith(f"raises of $7.50 taken back: daily of machine:{MACHINE}, window from ")


def test_undo_of_a_tasks_raises(lockpin, ledger):
    lockpin("task", "new", "fix", "--budget", "1")
    lockpin("budget", "raise", "fix", "--by", "2")

    done = lockpin("budget", "raise", "task", "--key", "task:fix", "--undo")

    assert done.stdout == "task:fix: task limit was $3.00, is $1.00, spent $0.03, held $0.00\n"


def test_set_says_the_limit_that_is_in_force_with_what_was_raised(lockpin, ledger):
    lockpin("budget", "set", "sprint", *SPRINT, "--limit-usd", "2")
    lockpin("budget", "raise", "sprint", "--by", "5")

    line = lockpin("budget", "set", "sprint", "--alert-at", "0.5").stdout

    limit = status(lockpin, "--budget", "sprint")[0]["limit_usd"]
    assert limit in (2, 7)  # as the ledger has it
    assert (f"; raised before: machine:{MACHINE} limit $7.00 until " in line) == (limit == 7)


def test_zone_of_a_new_budget_is_the_proxys_in_every_folder(lockpin, home, ledger):
    own = own_budget(None, ("0.75", "0.95"), "Asia/Kolkata")
    ledger.define(Rules((daily_budget(Money.parse("25"), "Asia/Kolkata"),), own)).result(10)
    home.config("timezone: America/New_York\n")

    done = lockpin("budget", "set", "sprint", *SPRINT, "--limit-usd", "2", "--at", "09:30")

    assert 'budget "sprint" is in force: machine, week at 09:30 Asia/Kolkata, limit $2.00; ' in done.stdout
    lines = lockpin("budget", "status", "--key", f"machine:{MACHINE}").stdout.splitlines()
    assert "  day at 00:00 Asia/Kolkata  " in lines[1]
    assert "  week at 09:30 Asia/Kolkata  " in lines[2]
    assert "; it counts by week at 09:30 Asia/Kolkata; from the next" in (
        lockpin("budget", "set", "sprint", "--limit-usd", "3").stdout
    )


def test_zone_before_the_first_call_is_the_configurations(lockpin, home):
    home.config("timezone: America/New_York\n")

    assert "week at 00:00 America/New_York" in lockpin("budget", "set", "s", *SPRINT, "--limit-usd", "2").stdout


def test_mistake_is_one_line_where_the_configuration_is_not_in_force_too(lockpin, home, ledger):
    home.config("daily_usd: 7\n")

    for words in (["status", "--budget", ""], ["raise", "daily", "--key", "machine:x", "--by", "1"]):
        done = lockpin("budget", *words)

        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)


@pytest.mark.parametrize(("text", "dollars"), [("5.", "$5.00"), ("1e3", "$1,000.00"), (" .5 ", "$0.50")])
def test_amounts_are_read_alike_everywhere(lockpin, ledger, text, dollars):
    assert f"limit {dollars}" in lockpin("budget", "set", "s", *SPRINT, "--limit-usd", text).stdout
    assert f'task "a": {dollars} in all' in lockpin("task", "new", "a", "--budget", text).stdout
    assert lockpin("budget", "raise", "daily", "--by", text).returncode == 0
    assert lockpin("correct", "c1", "--usd", text, "--reason", "x").returncode == 0


def test_set_without_anything_to_change_says_which_flags_do(lockpin, ledger):
    lockpin("budget", "set", "sprint", *SPRINT, "--limit-usd", "2")

    line = lockpin("budget", "set", "sprint").stderr

    assert "nothing is to be changed; --window, --period, --at, --anchor, --timezone, --limit-usd, " in line


NARROW = """
daily_usd: 4000.5
budgets:
- {name: "nightly-batch-tokens", scope: machine, window: rolling, period: 24h, limit_tokens: 150000000}
- {name: "berlin-week", scope: machine, window: week, limit_usd: 50000, timezone: Europe/Berlin}
- {name: "both", scope: machine, window: month, limit_usd: 2, limit_tokens: 5000}
"""


def test_status_keeps_all_its_columns_on_80_columns(terminal, home):
    home.config(NARROW)

    shown = terminal("budget", "status", columns=80, NO_COLOR="1")

    lines = shown.splitlines()
    assert lines[0].split() == ["BUDGET", "KEY", "WINDOW", "ACTION", "SPENT", "HELD", "LIMIT", "USED", "RESETS"]
    assert all(len(line) <= 80 for line in lines)
    for whole in ("0 tok", "150M tok", "$4,000.50", "$50,000.00", "$2.00/5,000", "$0.00/0"):
        assert whole in shown
    assert "no room" not in shown


def test_status_on_a_wide_terminal_is_what_a_pipe_gets(terminal, lockpin, home):
    home.config(NARROW)

    assert terminal("budget", "status", columns=200, NO_COLOR="1") == lockpin("budget", "status").stdout


@pytest.mark.parametrize("words", [(), ("--by", "5", "--undo")])
def test_raise_says_once_which_flag_it_needs(lockpin, words):
    done = lockpin("budget", "raise", "daily", *words)

    way = "--by USD or --undo is needed, one of the two; see `lockpin budget raise --help`"
    assert (done.returncode, done.stderr) == (2, f"lockpin: {way}\n")

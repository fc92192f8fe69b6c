import json
from datetime import datetime, timedelta

import pytest

from lockpin_core.admission_paused import pause_refusal
from lockpin_core.call import Charge, Payers
from lockpin_core.clock import new_id, utc_now
from lockpin_core.config_budgets import own_budget
from lockpin_core.ledger.pauses import TASK, BreakerRule
from lockpin_core.ledger.protocol import Paused, Rules
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.money import Money
from tests.cli.test_task import called

RULE = BreakerRule(Money.parse("1"), timedelta(seconds=60), timedelta(hours=2), (TASK,))
RULES = Rules((), own_budget(None, (), "UTC"), RULE)


@pytest.fixture
def books(home):
    made = SqliteLedger(home.ledger, clock=utc_now, new_id=new_id)
    yield made
    made.stop()


def spend(books, call_id, task, dollars, **payers):
    books.hold(called(call_id, task, dollars, **payers), RULES).result(10)
    books.settle(call_id, Charge(Money.parse(dollars), {}, 9, "m", None)).result(10)


def told(lockpin):
    return json.loads(lockpin("breaker", "status", "--format", "json").stdout)


def is_paused(books, task):
    return isinstance(books.hold(called(f"c9-{task}", task, "0.1"), RULES).result(10), Paused)


def test_without_a_ledger_the_configurations_breaker_is_shown_and_none_is_made(lockpin, home):
    assert lockpin("breaker", "status").stdout == "breaker: off\nnobody's calls pause\n"
    home.config("breaker: {usd: 5, cooldown: 90s, by: both}\n")

    done = lockpin("breaker", "status")

    assert done.stdout == ("breaker: $5 in 1m by both, cooldown 90s, from the configuration\nnobody's calls pause\n")
    assert not home.ledger.exists()


def test_status_lists_whose_calls_pause(lockpin, books):
    spend(books, "c1", "fix", "1.25")
    spend(books, "c2", "doc", "0.5")
    books.stop_task(Payers("loops", "desk"), who="loop", data={}).result(10)

    lines = lockpin("breaker", "status").stdout.splitlines()

    assert lines[0] == "breaker: $1 in 1m by task, cooldown 2h, from the configuration"
    assert lines[1].split() == ["SUBJECT", "USER", "WHY", "CHARGED", "WITHIN", "UNTIL"]
    assert lines[2].split()[:5] == ["task:fix", "-", "breaker", "$1.25", "1m"]
    assert lines[3].split() == ["task:loops", "-", "loop", "-", "-", "lockpin", "task", "resume", "loops"]
    document = told(lockpin)
    assert document["breaker"] == {"usd": 1, "window": "1m", "cooldown": "2h", "by": "task", "source": "config"}
    assert [(one["subject"], one["kind"], one["charged_usd"]) for one in document["pauses"]] == [
        ("fix", "breaker", 1.25),
        ("loops", "loop", None),
    ]


def test_what_is_set_wins_until_it_is_cleared(lockpin, books):
    spend(books, "c1", "doc", "0.5")

    done = lockpin("breaker", "set", "--usd", "3", "--window", "2m")

    assert done.stdout == "breaker: $3 in 2m by task, cooldown 2h; it was $1 in 1m by task, cooldown 2h\n"
    assert told(lockpin)["breaker"] == {
        "usd": 3, "window": "2m", "cooldown": "2h", "by": "task", "source": "command",
    }  # fmt: skip
    assert lockpin("breaker", "status").stdout.startswith(
        "breaker: $3 in 2m by task, cooldown 2h, set by command; the configuration's is $1 in 1m by task, cooldown 2h\n"
    )
    spend(books, "c2", "doc", "2")
    assert not is_paused(books, "doc")
    assert lockpin("breaker", "clear").stdout == "breaker: $1 in 1m by task, cooldown 2h\n"
    again = lockpin("breaker", "clear")
    assert (again.returncode, again.stderr) == (
        1, "lockpin: no breaker was set by command; `lockpin breaker status` says what is in force\n",
    )  # fmt: skip


def test_what_is_not_said_is_as_usual_where_nothing_was_in_force(lockpin, home):
    assert lockpin("breaker", "set", "--usd", "3").stdout == "breaker: $3 in 1m by task, cooldown 5m; it was off\n"
    assert home.ledger.exists()


def test_a_reset_lets_a_task_go_on(lockpin, books):
    spend(books, "c1", "fix", "1.25")
    spend(books, "c2", "doc", "1.25")
    assert is_paused(books, "fix")

    assert lockpin("breaker", "reset", "--task", "fix").stdout == 'the calls of task "fix" go on\n'

    assert not is_paused(books, "fix")
    assert is_paused(books, "doc")
    assert lockpin("breaker", "reset").stdout == 'the calls of task "doc" go on\n'
    events = lockpin("ledger", "events").stdout
    assert 'the breaker lets the calls of task "doc" go on' in events
    assert 'task "doc" was charged $1.25 within 1m, above $1.00: its calls pause until' in events


def test_a_stopped_task_goes_on_when_it_is_resumed(lockpin, books):
    spend(books, "c1", "fix", "0.1")
    books.stop_task(Payers("fix", "desk"), who="loop", data={"repeats": 20}).result(10)
    assert is_paused(books, "fix")

    assert lockpin("task", "resume", "fix").stdout == 'task "fix" goes on\n'

    assert not is_paused(books, "fix")
    again = lockpin("task", "resume", "fix")
    assert (again.returncode, again.stderr) == (
        1, 'lockpin: the calls of task "fix" were not stopped; `lockpin breaker status` lists whose pause\n',
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (("reset",), 1, "no ledger at"),
        (("clear",), 1, "no ledger at"),
        (("reset", "--task", "a", "--key", "b"), 2, "--task or --key is allowed, not both"),
        (("reset", "--task", "a/b"), 2, "task name"),
        (("set", "--usd", "0"), 2, "a positive amount is allowed"),
        (("set", "--usd", "2000000000"), 2, "2000000000"),
        (("set", "--usd", "1", "--window", "0s"), 2, "1s to 24h is allowed"),
        (("set", "--usd", "1", "--cooldown", "25h"), 2, "1s to 24h is allowed"),
        (("set", "--usd", "1", "--by", "user"), 2, "task, key, both is allowed"),
        (("set",), 2, "--usd"),
    ],
)
def test_a_mistake_is_one_line(lockpin, words, status, line):
    done = lockpin("breaker", *words)

    assert (done.returncode, done.stdout) == (status, "")
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_name_that_nobody_has_is_said(lockpin, books):
    spend(books, "c1", "fix", "1.25")

    assert 'no task "fxi"' in lockpin("breaker", "reset", "--task", "fxi").stderr
    assert 'no key "k9"' in lockpin("breaker", "reset", "--key", "k9").stderr
    spend(books, "c2", "doc", "0.1")
    typo = lockpin("task", "resume", "lop")
    assert (typo.returncode, 'no task "lop" was made or used; ' in typo.stderr) == (1, True)
    done = lockpin("breaker", "reset", "--task", "doc")
    why = 'the calls of task "doc" do not pause because of the breaker'
    assert (done.returncode, done.stderr) == (1, f"lockpin: {why}; `lockpin breaker status` lists whose do\n")


@pytest.mark.parametrize("words", [("budget", "status"), ("task", "list", "--format", "json")])
def test_whose_calls_pause_is_said_where_people_look(lockpin, books, words):
    spend(books, "c1", "fix", "1.25")
    books.stop_task(Payers("loops", "desk"), who="loop", data={}).result(10)

    done = lockpin(*words)

    lines = [line for line in done.stderr.splitlines() if " pause" in line]
    assert (done.returncode, len(lines)) == (0, 2)
    assert lines[0].startswith('lockpin: the calls of task "fix" pause until 20')
    assert lines[0].endswith(": it was charged too fast; `lockpin breaker reset --task fix` lets it go on")
    assert lines[1] == (
        'lockpin: the calls of task "loops" pause: it was stopped; `lockpin task resume loops` lets it go on'
    )


def test_many_that_pause_are_counted(lockpin, books):
    for n in range(5):
        spend(books, f"c{n}", f"t{n}", "1.25")

    lines = [line for line in lockpin("budget", "status").stderr.splitlines() if " pause" in line]

    assert len(lines) == 4
    assert lines[3] == "lockpin: 2 more pause; `lockpin breaker status` lists them"


def test_one_instant_is_told_everywhere_and_never_one_too_early(lockpin, books):
    spend(books, "c1", "fix", "1.25")
    refused = books.hold(called("c2", "fix", "0.1"), RULES).result(10)
    assert isinstance(refused, Paused)
    told_until = pause_refusal(refused).detail["resets_at"]

    (pause,) = told(lockpin)["pauses"]
    table = lockpin("breaker", "status").stdout
    events = lockpin("ledger", "events").stdout
    beside = lockpin("task", "list").stderr

    assert timedelta(0) <= datetime.fromisoformat(told_until) - refused.until < timedelta(seconds=1)
    assert pause["until"] == told_until
    assert all(told_until in words for words in (table, events, beside))


def test_a_new_rule_says_who_still_pauses_and_what_ends_that(lockpin, books):
    spend(books, "c1", "my fix", "1.25")
    books.stop_task(Payers("loops", "desk"), who="loop", data={}).result(10)

    for words in (("set", "--usd", "10"), ("clear",)):
        done = lockpin("breaker", *words)
        lines = [line for line in done.stderr.splitlines() if " pause" in line]
        assert (done.returncode, len(lines)) == (0, 1)
        assert lines[0].startswith('lockpin: the calls of task "my fix" pause until 20')
        assert lines[0].endswith(": it was charged too fast; `lockpin breaker reset --task 'my fix'` lets it go on")


def test_a_pause_of_another_kind_is_named_with_what_ends_it(lockpin, books):
    spend(books, "c1", "burst", "1.25")
    books.stop_task(Payers("loops", "desk"), who="loop", data={}).result(10)

    resumed, reset = lockpin("task", "resume", "burst"), lockpin("breaker", "reset", "--task", "loops")

    assert (resumed.returncode, reset.returncode) == (1, 1)
    assert resumed.stderr == (
        'lockpin: task "burst" was not stopped: its calls pause because it was charged too fast; '
        "`lockpin breaker reset --task burst` lets them go on\n"
    )
    assert reset.stderr == (
        'lockpin: task "loops" was stopped, and not by the breaker; `lockpin task resume loops` lets it go on\n'
    )
    assert is_paused(books, "burst") and is_paused(books, "loops")


def test_task_list_shows_which_tasks_do_not_go_on(lockpin, books):
    spend(books, "c1", "burst", "1.25")
    for task in ("loops", "ended", "fine"):
        spend(books, f"c-{task}", task, "0.1")
    for task in ("loops", "ended"):
        books.stop_task(Payers(task, "desk"), who="loop", data={}).result(10)
    lockpin("task", "close", "ended")

    states = {task["task"]: task["state"] for task in json.loads(lockpin("task", "list", "--format", "json").stdout)}
    (line,) = [line for line in lockpin("task", "list").stdout.splitlines() if line.startswith("loops")]

    assert states == {"burst": "paused", "loops": "stopped", "ended": "closed", "fine": "open"}
    assert " stopped " in line

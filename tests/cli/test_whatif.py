import csv
import io
import json
from dataclasses import replace

from lockpin_core.call import Ceiling, Quote
from lockpin_core.clock import new_id, utc_now
from lockpin_core.config_budgets import own_budget
from lockpin_core.ledger.protocol import Rules
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.money import Money
from lockpin_core.usage import Unit
from tests.ledger.desk import call, charge


def test_task_budget_is_replayed_for_every_task(lockpin, ledger):
    # fix: c1 held 0.50 and cost 0.0214, c2 held 0.50 and cost 0.0086; doc: c3 held 1.25 for nothing, c4 holds 1.25.
    told = json.loads(lockpin("whatif", "--task-budget", "0.51", "--format", "json").stdout)

    assert [(row["key"], row["calls"], row["refused"]) for row in told["rows"]] == [
        ("task:doc", 2, 2),
        ("task:fix", 2, 1),
    ]
    assert sorted(told["refused"]) == ["c2", "c3", "c4"]
    assert told["total"] == {
        "calls": 4, "refused": 3, "spent_usd": 0.03, "would_spend_usd": 0.0214, "lowered": 0, "perhaps_lowered": 0,
    }  # fmt: skip
    assert told["assumptions"]


def test_table_says_what_it_assumes(lockpin, ledger):
    lines = lockpin("whatif", "--task-budget", "0.51").stdout.splitlines()

    assert lines[0].split()[:4] == ["BUDGET", "KEY", "WINDOW", "LIMIT"]
    assert "of 4 calls 3 would have been refused: $0.0214 spent instead of $0.0300" in lines
    assert lines[-2].startswith("assumed: ")


def test_another_limit_of_a_budget_in_force(lockpin, ledger):
    lockpin("budget", "set", "sprint", "--scope", "machine", "--window", "week", "--limit-usd", "40")

    rows = list(csv.DictReader(io.StringIO(lockpin("whatif", "--limit", "sprint=0.4", "--format", "csv").stdout)))

    assert [(row["budget"], row["window"], row["limit_usd"], row["refused"]) for row in rows] == [
        ("sprint", "week", "0.4", "4")
    ]


def test_calls_at_another_models_prices(lockpin, ledger, home):
    home.config("pricing:\n  pen: {input_per_mtok: 2, output_per_mtok: 10}\n")
    told = json.loads(lockpin("whatif", "--model", "claude-opus-*=pen", "--format", "json").stdout)

    # c1: 100 tokens at $2 and 20 at $10 a million; c2 is an estimate.
    (row,) = told["rows"]
    assert (row["model"], row["as_model"], row["calls"], row["left_out"]) == ("claude-opus-4-5", "pen", 1, 1)
    assert (row["spent_usd"], row["would_spend_usd"], row["difference_usd"]) == (0.0214, 0.0004, -0.021)
    assert lockpin("whatif", "--model", "claude-opus-*=pen").stdout.splitlines()[2].startswith("TOTAL")


def test_nothing_to_replay_is_said(lockpin):
    assert lockpin("whatif", "--task-budget", "1").stdout.splitlines()[0] == "no calls that such limits count"
    assert lockpin("whatif", "--model", "a=claude-opus-4-5").stdout.startswith("no charged calls of such a model")


def test_two_limits_for_one_budget_are_wrong_use(lockpin):
    done = lockpin("whatif", "--limit", "daily=1", "--limit", "daily=2")

    assert done.returncode == 2
    assert '"daily" has two limits; one is allowed' in done.stderr


def test_another_limit_of_one_task_leaves_the_others_alone(lockpin, ledger):
    # c1 held 0.50 and cost 0.0214, so that 0.51 have no room for the 0.50 of c2.
    for name in ("fix", "task:fix"):
        told = json.loads(lockpin("whatif", "--limit", f"{name}=0.51", "--format", "json").stdout)
        assert [(row["budget"], row["key"], row["calls"], row["refused"]) for row in told["rows"]] == [
            ("task", "task:fix", 2, 1)
        ]
        assert (told["total"]["calls"], told["refused"]) == (4, ["c2"])


def test_limit_of_a_task_is_in_place_of_that_of_every_task(lockpin, ledger):
    words = ("whatif", "--task-budget", "0.51", "--limit", "doc=3", "--format", "json")

    rows = json.loads(lockpin(*words).stdout)["rows"]

    assert [(row["key"], row["limit_usd"], row["refused"]) for row in rows] == [
        ("task:fix", 0.51, 1),
        ("task:doc", 3, 0),
    ]


def test_name_that_is_neither_and_one_that_is_both_are_told(lockpin, ledger):
    lockpin("task", "new", "daily", "--budget", "1")

    nobody = lockpin("whatif", "--limit", "nobody=1")
    both = lockpin("whatif", "--limit", "daily=1")
    task = lockpin("whatif", "--limit", "task:daily=1")
    twice = lockpin("whatif", "--limit", "fix=1", "--limit", "task:fix=2")

    assert (nobody.returncode, nobody.stderr) == (1, 'lockpin: no budget and no task "nobody"; there are daily, task\n')
    assert (both.returncode, task.returncode, twice.returncode) == (2, 0, 2)
    assert '"daily" is a budget and a task; task:daily means the task' in both.stderr
    assert 'task "fix" has two limits; one is allowed' in twice.stderr


def test_calls_that_lockpin_would_have_lowered_are_not_counted_as_refused(lockpin, home):
    # 1,000 tokens at $5 and 32,000 at $25 a million are $0.805; with 4,096 of output $0.1074. Each call costs $0.1.
    ceiling = Ceiling(1000, 32_000, frozenset({Unit.INPUT}), frozenset({Unit.OUTPUT}), {})
    books, rules = SqliteLedger(home.ledger, clock=utc_now, new_id=new_id), Rules((), own_budget(None, ("0.8",), "UTC"))
    for number in range(4):
        asked = replace(call(f"c{number}", "0.805"), output_limit=32_000, limit_set=number != 1)
        asked = replace(asked, quote=Quote(Money.parse("0.805"), 33_000, ceiling), rates={"input": "5", "output": "25"})
        books.hold(asked, rules).result(10)
        books.settle(asked.id, charge("0.1")).result(10)
    books.stop()

    table = lockpin("whatif", "--task-budget", "0.3").stdout
    told = json.loads(lockpin("whatif", "--task-budget", "0.3", "--format", "json").stdout)

    # c1 brought its own limit; c0 and c2 leave $0.10, of which c3 needs $0.1074 at least.
    assert (told["lowered"], told["refused"], told["perhaps_lowered"]) == (["c0", "c2"], ["c1", "c3"], [])
    assert told["total"]["would_spend_usd"] == 0.2
    assert (
        "of 4 calls 2 would have been refused, 2 lowered to what is left: at most $0.20 spent instead of $0.40" in table
    )

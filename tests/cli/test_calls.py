import csv
import io
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from lockpin_core.call import Attempt, Void
from lockpin_core.clock import new_id, utc_now
from lockpin_core.config_budgets import own_budget
from lockpin_core.ledger.admin import SqliteAdmin
from lockpin_core.ledger.protocol import Rules
from lockpin_core.money import Money
from tests.cli.conftest import _call

FIELDS = [
    *("v", "id", "at", "decision", "code", "task", "key", "user", "provider", "model", "model_served", "held_usd"),
    *("charged_usd", "estimated", "estimate_reason", "failed", "over_hold", "usage", "rates", "price_date", "tier"),
    *("billing", "output_limit", "degrade", "waited_ms", "budgets", "hash"),
]
SOMETIMES = ["attempt", "of", "first_call", "instead_of", "shares", "corrections", "drift", "refusal"]


def test_calls_are_an_array_of_receipts_newest_first(lockpin, ledger):
    receipts = json.loads(lockpin("calls", "--format", "json").stdout)

    assert [receipt["decision"] for receipt in receipts].count("allowed") == 4
    assert all(list(receipt) == FIELDS for receipt in receipts)
    by_id = {receipt["id"]: receipt for receipt in receipts}
    assert sorted(by_id) == ["c1", "c2", "c3", "c4", "c5", "c6"]
    assert (by_id["c1"]["held_usd"], by_id["c1"]["charged_usd"]) == ("0.5", "0.0214")
    assert (by_id["c2"]["estimated"], by_id["c2"]["estimate_reason"]) == (True, "client_left")
    assert by_id["c3"]["charged_usd"] == "0"
    assert by_id["c4"]["charged_usd"] is None
    assert (by_id["c5"]["decision"], by_id["c5"]["code"], by_id["c5"]["held_usd"]) == ("refused", "unknown_model", None)
    assert (by_id["c6"]["decision"], by_id["c6"]["code"]) == ("uncapped", "no_limit")


def test_filters_narrow_the_list(lockpin, ledger):
    def ids(*words: str) -> list[str]:
        return sorted(receipt["id"] for receipt in json.loads(lockpin("calls", "--format", "json", *words).stdout))

    assert ids("--task", "fix") == ["c1", "c2"]
    assert ids("--model", "gpt-x") == ["c5", "c6"]
    assert ids("--model", "claude-opus-4-5-x") == ["c1"]  # as served
    assert ids("--task", "fix", "--limit", "1") == ["c2"]
    assert ids("--model", "claude-opus-*") == ["c1", "c2", "c3", "c4"]
    assert ids("--model", "*-x") == ["c1", "c5", "c6"]
    assert ids("--model", "claude-*", "--task", "doc", "--limit", "1") == ["c4"]
    assert ids("--model", "gpt") == []
    assert ids("--since", "2999-01-01") == []
    assert ids("--key", "tag: team=web") == ["c2"]
    assert ids("--key", "task:fix", "--model", "claude-*") == ["c1", "c2"]


def test_table_marks_estimates_and_calls_in_flight(lockpin, ledger):
    lines = {line.split()[1]: line for line in lockpin("calls").stdout.splitlines()[1:]}

    assert lines["c1"].endswith("    120  $0.5000  $0.0214")
    assert lines["c2"].endswith("    ~30  $0.5000  $0.0086  (est.) client_left")  # no reply has stated them
    assert lines["c3"].endswith("$0.0000  not_sent")
    assert lines["c4"].endswith("in flight")
    assert lines["c5"].endswith("unknown_model")


def test_table_says_who_called_where_keys_do(lockpin, terminal, ledger):
    solo = lockpin("calls").stdout.splitlines()[0].split()
    rules = Rules((), own_budget(None, (), "UTC"))
    for name, who in (("c7", {"key": "k-7f3c9x2m1q", "user": "ann@corp.com"}), ("c8", {"user": "bob@corp.com"})):
        made = _call(name, "doc", "0.5")
        ledger.hold(replace(made, payers=replace(made.payers, **who)), rules).result(10)

    lines = lockpin("calls").stdout.splitlines()

    assert solo == ["AT", "CALL", "TASK", "MODEL", "DECISION", "TOKENS", "HELD", "CHARGED", "NOTE"]
    assert lines[0].split() == [*solo[:3], "USER", "KEY", *solo[3:]]
    by_id = {line.split()[1]: line.split()[2:6] for line in lines[1:]}
    assert by_id["c7"] == ["doc", "ann@corp.com", "k-7f3c9x2m1q", "claude-opus-4-5"]
    assert by_id["c8"] == ["doc", "bob@corp.com", "-", "claude-opus-4-5"]
    assert by_id["c1"] == ["fix", "-", "-", "claude-opus-4-5"]
    narrow = terminal("calls", columns=80, NO_COLOR="1")
    assert narrow.splitlines()[-1].startswith("no room for USER, KEY, DECISION, TOKENS; ")


def test_csv_has_the_fields_of_a_receipt(lockpin, ledger):
    rows = list(csv.DictReader(io.StringIO(lockpin("calls", "--task", "fix", "--format", "csv").stdout)))

    assert list(rows[0]) == [*FIELDS, *SOMETIMES]
    assert [rows[0][name] for name in SOMETIMES] == [""] * 8
    assert json.loads(rows[1]["usage"]) == {"input": 100, "output": 20}


def test_no_calls_are_said_and_are_no_error(lockpin, home):
    table, document = lockpin("calls"), lockpin("calls", "--format", "json")

    assert (table.returncode, table.stdout) == (0, f"no such calls in {home.ledger}\n")
    assert (document.returncode, document.stdout) == (0, "[]\n")


@pytest.mark.parametrize("form", ["table", "json", "csv", "jsonl"])
def test_task_that_nobody_made_or_used_is_said_beside_an_empty_list(lockpin, ledger, form):
    done = lockpin("calls", "--task", "fox", "--format", form)

    assert (done.returncode, done.stderr) == (0, 'lockpin: no task "fox" was made or used; there are doc, fix\n')
    assert done.stdout == {"json": "[]\n", "csv": ",".join([*FIELDS, *SOMETIMES]) + "\n", "jsonl": ""}.get(
        form, done.stdout
    )


def test_payer_that_nobody_is_is_said_and_one_that_no_scope_has_is_wrong_use(lockpin, ledger):
    nobody, wrong = lockpin("calls", "--key", "user:Ann@Corp.com"), lockpin("calls", "--key", "ann@corp.com")

    assert nobody.stderr == 'lockpin: no user "ann@corp.com" has an account or is named by a key; there is none yet\n'
    assert (nobody.returncode, wrong.returncode) == (0, 2)


@pytest.mark.parametrize("words", [["--since", "2999-01-01", "--task", "fix"], ["--task", "default"], []])
def test_known_task_without_such_calls_is_no_mistake(lockpin, ledger, words):
    assert lockpin("calls", "--model", "none", *words).stderr == ""


def test_corrected_and_deferred_calls_say_so(lockpin, home, ledger):
    SqliteAdmin(home.ledger, clock=utc_now, new_id=new_id).correct("c2", Money.parse("1"), reason="invoice", who="ada")
    ledger.defer("c4", timedelta(hours=1)).result(10)

    lines = {line.split()[1]: line for line in lockpin("calls").stdout.splitlines()[1:]}
    receipts = {receipt["id"]: receipt for receipt in json.loads(lockpin("calls", "--format", "json").stdout)}

    assert lines["c2"].endswith("$1.0000  corrected")
    assert lines["c4"].endswith("deferred")
    assert (receipts["c2"]["charged_usd"], receipts["c2"]["estimated"], receipts["c2"]["estimate_reason"]) == (
        *("1", False, "client_left"),
    )
    assert (receipts["c4"]["charged_usd"], list(receipts["c4"])) == (None, FIELDS)
    assert list(receipts["c2"]) == [*FIELDS, "corrections"]
    (made,) = receipts["c2"]["corrections"]
    assert made.pop("at").endswith("Z")
    assert made == {"usd": "0.9914", "code": "corrected", "reason": "invoice", "who": "ada"}  # 0.0086 before


def test_json_lines_are_one_receipt_each(lockpin, ledger):
    lines = lockpin("calls", "--task", "fix", "--format", "jsonl").stdout.splitlines()

    assert [json.loads(line)["id"] for line in lines] == ["c2", "c1"]


def test_attempts_and_fallbacks_are_in_every_form(lockpin, ledger):
    rules = Rules((), own_budget(None, (), "UTC"))
    again = replace(_call("c7", "doc", "0.5"), attempt=Attempt(2, 3, "c4"))
    other = replace(_call("c8", "doc", "0.5"), attempt=Attempt(3, 3, "c4"), instead_of="anthropic/claude-opus-4-5")
    for made in (again, other):
        ledger.hold(made, rules).result(10)
    ledger.void("c7", Void("not_sent")).result(10)

    lines = {line.split()[1]: line for line in lockpin("calls").stdout.splitlines()[1:]}
    rows = {row["id"]: row for row in csv.DictReader(io.StringIO(lockpin("calls", "--format", "csv").stdout))}

    assert lines["c7"].endswith("  not_sent attempt 2 of 3")
    assert lines["c8"].endswith("  in flight attempt 3 of 3 in place of anthropic/claude-opus-4-5")
    assert "attempt" not in lines["c1"]
    assert [rows["c7"][name] for name in SOMETIMES[:4]] == ["2", "3", "c4", ""]
    assert [rows["c8"][name] for name in SOMETIMES[:4]] == ["3", "3", "c4", "anthropic/claude-opus-4-5"]
    assert [rows["c1"][name] for name in SOMETIMES[:4]] == [""] * 4

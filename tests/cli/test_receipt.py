import json
from datetime import timedelta

import pytest

from lockpin_core.call import Payers, Refusal
from lockpin_core.clock import new_id, utc_now
from lockpin_core.ledger.admin import SqliteAdmin
from lockpin_core.ledger.protocol import CallNote
from lockpin_core.money import Money


def test_receipt_is_json_and_its_summary_marks_an_estimate(lockpin, ledger):
    done = lockpin("receipt", "c2")

    receipt = json.loads(done.stdout)
    assert done.returncode == 0
    assert (receipt["id"], receipt["charged_usd"], receipt["estimate_reason"]) == ("c2", "0.0086", "client_left")
    assert receipt["budgets"] == [
        {"name": "task", "subject": "fix", "spent_usd": "0.03", "held_usd": "0", "limit_usd": None},
        {**receipt["budgets"][1], "name": "daily", "spent_usd": "0.03", "held_usd": "0", "limit_usd": "25"},
    ]
    assert done.stderr.endswith("anthropic/claude-opus-4-5 task fix: charged $0.0086 (est.) client_left, held $0.50\n")


def test_reported_cost_has_no_estimate_mark(lockpin, ledger):
    assert "(est.)" not in lockpin("receipt", "c1").stderr


@pytest.mark.parametrize("words", [["receipt", "last"], ["receipt"]])
def test_last_is_the_newest_call_of_the_task(lockpin, ledger, words):
    assert json.loads(lockpin(*words, "--task", "fix").stdout)["id"] == "c2"


def test_unknown_call_is_one_line_and_status_1(lockpin, home, ledger):
    done = lockpin("receipt", "01zz")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f'lockpin: no call "01zz" in {home.ledger}; `lockpin calls` lists them\n'


def test_call_of_another_task_is_not_found(lockpin, ledger):
    assert lockpin("receipt", "c1", "--task", "doc").returncode == 1


@pytest.fixture
def long_ids(ledger):
    for call in ("01abcd", "01abce", "01bbbb"):
        note = CallNote(call, Payers("doc", "host"), "openai", "api.openai.com", "gpt-x", "x/1", "no_limit")
        ledger.uncapped(note)
    ledger.stop()


@pytest.mark.parametrize("beginning", ["01bb", "01BBB", "01abcd", "01abce"])
def test_beginning_of_an_id_finds_its_one_call(lockpin, long_ids, beginning):
    assert json.loads(lockpin("receipt", beginning).stdout)["id"].startswith(beginning.lower())


def test_beginning_of_several_is_one_line_that_names_them(lockpin, long_ids):
    done = lockpin("receipt", "01ab")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == 'lockpin: 2 calls begin with "01ab": 01abcd, 01abce; more of the id is needed\n'


@pytest.mark.parametrize("words", [["01b"], ["01bbbbb"], ["01bb", "--task", "fix"], ["1bbbb"], ["01__"], ["01*b"]])
def test_too_short_or_another_beginning_finds_nothing(lockpin, long_ids, words):
    done = lockpin("receipt", *words)

    assert (done.returncode, done.stdout) == (1, "")
    assert "no call" in done.stderr


def test_a_receipt_is_of_the_instant_that_the_list_shows(lockpin, ledger):
    listed = next(line for line in lockpin("calls").stdout.splitlines() if line.split()[1] == "c1")

    assert json.loads(lockpin("receipt", "c1").stdout)["at"][:19] == listed.split()[0][:19]


def test_summary_of_a_corrected_call_says_so(lockpin, home, ledger):
    SqliteAdmin(home.ledger, clock=utc_now, new_id=new_id).correct("c2", Money.parse("1"), reason="invoice", who="ada")

    assert lockpin("receipt", "c2").stderr.endswith("task fix: charged $1.00 (corrected), held $0.50\n")


def test_summary_of_a_deferred_call_says_that_its_cost_comes_later(lockpin, ledger):
    ledger.defer("c4", timedelta(hours=1)).result(10)

    assert lockpin("receipt", "c4").stderr.endswith("task doc: cost comes later, held $1.25\n")


def test_receipt_of_a_refused_call_has_the_budgets_in_its_way(lockpin, ledger):
    figures = {"budget_usd": "0.5", "spent_usd": "0.03", "in_flight_usd": "0", "needed_usd": "1"}
    note = CallNote("c9", Payers("fix", "host"), "openai", "api.openai.com", "gpt-x", "x/1", "budget_exceeded")
    ledger.refuse(note, Refusal("budget_exceeded", 402, "lockpin: no", figures))
    ledger.stop()

    assert json.loads(lockpin("receipt", "c9").stdout)["budgets"] == [
        {"name": "task", "subject": "fix", "spent_usd": "0.03", "held_usd": "0", "limit_usd": "0.5"}
    ]

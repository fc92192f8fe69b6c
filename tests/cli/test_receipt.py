import json

import pytest

from lockpin_core.call import Payers
from lockpin_core.ledger.protocol import CallNote


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

import json

import pytest


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

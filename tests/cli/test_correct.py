import json
import socket
import sqlite3
from contextlib import closing
from datetime import timedelta

import pytest

from lockpin_core.clock import new_id, utc_now
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.ledger.verify import verify
from tests.ledger.desk import call, charge, machine, rules

MACHINE = socket.gethostname()


def test_correction_says_before_and_after_and_stands_on_every_account(lockpin, ledger, home):
    done = lockpin("correct", "c2", "--usd", "0.02", "--reason", "the provider's invoice")

    # c1 cost 0.0214 and c2 0.0086; in flight are 1.25.
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "call c2: $0.0086 before, $0.02 now (+$0.0114); "
        f"task:fix: task spent $0.0414, machine:{MACHINE}: daily spent $0.0414 of $25.00\n"
    )
    assert verify(home.ledger).wrong is None


def test_correction_is_what_the_call_cost_in_all_and_may_be_nothing(lockpin, ledger):
    lockpin("correct", "c2", "--usd", "0.02", "--reason", "x")

    done = lockpin("correct", "c2", "--usd", "0", "--reason", "it was free")

    assert done.stdout.startswith("call c2: $0.02 before, $0 now (-$0.02); task:fix: task spent $0.0214")


def test_correction_of_a_void_call_books_all_of_it(lockpin, ledger):
    assert lockpin("correct", "c3", "--usd", "0.5", "--reason", "it was sent").stdout.startswith(
        "call c3: $0 before, $0.5 now (+$0.5); task:doc: task spent $0.50"
    )


def test_reason_and_person_are_in_the_row(lockpin, ledger, home):
    lockpin("correct", "c2", "--usd", "0.02", "--reason", "  by\n the  invoice ")

    with closing(sqlite3.connect(home.ledger)) as books:
        (data,) = books.execute("SELECT data FROM rows WHERE kind = 'correction'").fetchone()
    told = json.loads(data)
    assert (told["reason"], told["who"]) == ("by the invoice", "tester")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("c4", 'call "c4" is still in flight; correct it when it has ended'),
        ("c5", 'call "c5" was refused (unknown_model) and never sent, so it cost nothing'),
        ("c6", 'call "c6" went uncapped (no_limit), on no account; there is nothing to correct'),
        ("nosuch", 'no call "nosuch" in '),
        ("c1", 'call "c1" costs $0.0214 already; another amount is allowed'),
    ],
)
def test_call_that_cannot_be_corrected_is_one_line(lockpin, ledger, call, words):
    done = lockpin("correct", call, "--usd", "0.0214", "--reason", "x")

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert words in done.stderr


def test_standing_of_a_window_that_is_over_says_which(lockpin, home):
    then = utc_now() - timedelta(days=3)
    books = SqliteLedger(home.ledger, clock=lambda: then, new_id=new_id)
    books.hold(call("old", "1", host=MACHINE), rules(machine("25"))).result(10)
    books.settle("old", charge("0.5")).result(10)
    books.stop()

    done = lockpin("correct", "old", "--usd", "0.75", "--reason", "x")

    first, last = (f"{then + timedelta(days=days):%Y-%m-%d}T00:00:00Z" for days in (0, 1))
    assert done.stdout == (
        "call old: $0.5 before, $0.75 now (+$0.25); task:t: task spent $0.75, "
        f"machine:{MACHINE}: daily spent $0.75 of $25.00 in the window from {first} to {last}\n"
    )


def test_corrections_are_in_the_receipt_with_reason_and_person(lockpin, ledger):
    before = json.loads(lockpin("receipt", "c2").stdout)
    lockpin("correct", "c2", "--usd", "0.02", "--reason", "first")
    lockpin("correct", "c2", "--usd", "0", "--reason", "second")

    found = json.loads(lockpin("receipt", "c2").stdout)

    assert "corrections" not in before
    assert [{**each, "at": ""} for each in found["corrections"]] == [
        {"at": "", "usd": "0.0114", "code": "corrected", "reason": "first", "who": "tester"},
        {"at": "", "usd": "-0.02", "code": "corrected", "reason": "second", "who": "tester"},
    ]
    assert found["charged_usd"] == "0"


def test_receipt_of_a_corrected_estimate_says_why_it_was_one(lockpin, ledger):
    lockpin("correct", "c2", "--usd", "0.02", "--reason", "first")
    lockpin("correct", "c3", "--usd", "0.02", "--reason", "it was sent")

    guess, void = (json.loads(lockpin("receipt", call).stdout) for call in ("c2", "c3"))

    assert (guess["estimated"], guess["estimate_reason"], guess["charged_usd"]) == (False, "client_left", "0.02")
    assert (void["estimated"], void["estimate_reason"], void["charged_usd"]) == (False, None, "0.02")


def test_person_whose_name_no_terminal_should_be_told_is_escaped(lockpin, ledger):
    done = lockpin("correct", "c2", "--usd", "0.02", "--reason", "x", LOGNAME="\x1b[31mred\n")

    assert done.returncode == 0
    (made,) = json.loads(lockpin("receipt", "c2").stdout)["corrections"]
    assert made["who"] == r"\x1b[31mred\n"

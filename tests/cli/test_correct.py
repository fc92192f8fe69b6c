import json
import socket
import sqlite3
from contextlib import closing

import pytest

from lockpin_core.ledger.verify import verify

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

import os
import pty
import re
import select
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from lockpin_core.clock import new_id, utc_now
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.ledger.verify import verify
from tests.cli.conftest import ROOT
from tests.ledger.desk import call, charge, machine, rules

RULES = rules(machine("25"))


@pytest.fixture
def old(home):
    """Books of two years: a call 400 days ago, one 200, one 50 days ago, one now; and no proxy that runs."""
    for days in (400, 200, 50, 0):
        books = SqliteLedger(home.ledger, clock=lambda days=days: utc_now() - timedelta(days=days), new_id=new_id)
        books.hold(call(f"call-{days}", "1"), RULES).result(10)
        books.settle(f"call-{days}", charge("0.5")).result(10)
        books.stop()


def calls_in(ledger):
    with closing(sqlite3.connect(ledger)) as books:
        return [name for (name,) in books.execute("SELECT call FROM rows WHERE kind = 'hold' ORDER BY id")]


def test_backup_beside_a_running_proxy_is_verified_and_says_where(lockpin, ledger, home):
    done = lockpin("ledger", "backup")

    assert (done.returncode, done.stderr) == (0, "")
    match = re.fullmatch(r"backup: ([\d,]+) rows, [\d.]+ KiB, verified, in (.*)\n", done.stdout)
    made = home.ledger.with_name(Path(match[2]).name)
    assert re.fullmatch(r"ledger\.backup-\d{4}-\d\d-\d\dT\d{6}Z\.sqlite3", made.name)
    assert verify(made).rows == int(match[1])
    assert calls_in(made) == ["c1", "c2", "c3", "c4"]


def test_backup_takes_a_file_or_a_folder_and_overwrites_nothing(lockpin, ledger, home):
    (home.path / "copies").mkdir()

    assert lockpin("ledger", "backup", "copies").returncode == 0
    assert lockpin("ledger", "backup", "mine.sqlite3").returncode == 0
    again = lockpin("ledger", "backup", "mine.sqlite3")

    assert len(list((home.path / "copies").iterdir())) == 1
    assert (again.returncode, again.stdout, again.stderr.count("\n")) == (1, "", 1)
    assert "mine.sqlite3 is there already, and a backup overwrites nothing; name another file" in again.stderr


def test_backup_of_a_wrong_ledger_says_what_is_wrong(lockpin, old, home):
    with closing(sqlite3.connect(home.ledger, isolation_level=None)) as books:
        books.execute("UPDATE rows SET usd = usd + 1 WHERE kind = 'charge'")

    done = lockpin("ledger", "backup", "copy.sqlite3")

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "copy.sqlite3 is a copy, and" in done.stderr
    assert " is wrong: row " in done.stderr


def test_vacuum_says_what_it_gave_back_and_is_refused_beside_a_proxy(lockpin, ledger, home):
    refused = lockpin("ledger", "vacuum")
    ledger.stop()
    done = lockpin("ledger", "vacuum")

    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert "a proxy runs on " in refused.stderr
    assert re.fullmatch(
        rf"vacuumed: [\d.]+ \w+ given back, [\d.]+ KiB left in {re.escape(str(home.ledger))}\n", done.stdout
    )


def test_prune_takes_old_rows_out_and_the_rest_is_verified(lockpin, old, home):
    done = lockpin("ledger", "prune", "--before", "300d", "--yes")

    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(
        r"pruned: \d+ rows up to \S+Z taken out of .*; `lockpin ledger vacuum` gives their .*\n", done.stdout
    )
    assert calls_in(home.ledger) == ["call-200", "call-50", "call-0"]
    assert lockpin("verify").returncode == 0
    assert "taken out before" in lockpin("verify").stdout


def test_prune_keeps_what_rolling_windows_may_read_and_says_so(lockpin, old, home):
    done = lockpin("ledger", "prune", "--before", "1d", "--yes")

    assert done.returncode == 0
    assert done.stderr == (
        "lockpin: rows of the last 2250h before the newest one stay: rolling windows are made of them\n"
    )
    assert calls_in(home.ledger) == ["call-50", "call-0"]


def test_prune_without_yes_and_without_a_terminal_only_says_what_it_would_do(lockpin, old, home):
    done = lockpin("ledger", "prune", "--before", "300d")

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert re.search(r"\d+ rows up to \S+Z would be taken out of .* for good; --yes does it", done.stderr)
    assert len(calls_in(home.ledger)) == 4


@pytest.mark.parametrize(("answer", "status", "left"), [("y\n", 0, 3), ("n\n", 1, 4)])
def test_prune_asks_on_a_terminal_and_shows_a_bar_there(home, old, answer, status, left):
    ours, theirs = pty.openpty()
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(home.path), "PYTHONPATH": str(ROOT), "TERM": "xterm",
        "XDG_DATA_HOME": str(home.path / "data"), "XDG_CONFIG_HOME": str(home.path / "config"),
    }  # fmt: skip
    command = [sys.executable, "-m", "lockpin_cli.main", "ledger", "prune", "--before", "300d"]
    process = subprocess.Popen(command, cwd=home.path, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    os.write(ours, answer.encode())
    while select.select([ours], [], [], 30)[0]:
        try:
            part = os.read(ours, 4096)
        except OSError:  # Linux says so when the other side is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)

    assert process.wait(30) == status
    assert b"for good. Do it? [y/N]" in shown
    assert b"Traceback" not in shown
    assert len(calls_in(home.ledger)) == left


def test_nothing_to_prune_is_said(lockpin, ledger):
    done = lockpin("ledger", "prune", "--before", "300d", "--yes")

    assert done.returncode == 0
    assert re.match(r"no rows from before \S+Z can be taken out of ", done.stdout)


def test_receipt_and_correction_of_a_call_that_was_taken_out_say_so(lockpin, old):
    lockpin("ledger", "prune", "--before", "300d", "--yes")

    for words in (["receipt", "call-400"], ["correct", "call-400", "--usd", "1", "--reason", "x"]):
        done = lockpin(*words)

        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert re.search(
            r'no call "call-400" .*; calls up to \S+Z were taken out by `lockpin ledger prune`', done.stderr
        )

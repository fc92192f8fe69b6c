import json
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
    assert re.fullmatch(
        r"lockpin: rows of the 94 days before the newest one, from \S+Z on, stay: rolling windows are made of them\n",
        done.stderr,
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


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("300d", r": the oldest one there is of \S+Z\n"),  # nothing is so old
        ("0m", r": rows of the 94 days before the newest one, from \S+Z on, stay: rolling windows are made of them\n"),
    ],
)
def test_young_ledger_says_what_limits_the_cut(lockpin, ledger, before, words):
    ledger.stop()

    done = lockpin("ledger", "prune", "--before", before, "--yes")

    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"no rows from before \S+Z can be taken out of \S+" + words, done.stdout)


def test_backup_to_a_folder_that_is_not_there_is_refused(lockpin, ledger, home):
    done = lockpin("ledger", "backup", "copies/")

    assert (done.returncode, done.stdout) == (1, "")
    ways = "make it, or name a file in a folder that is there"
    assert done.stderr == f"lockpin: there is no folder {home.path / 'copies'}; {ways}\n"
    assert not (home.path / "copies").exists()


@pytest.mark.parametrize("dest", ["x" * 300, f"{'x' * 300}/", f"{'x' * 300}/y"])
def test_backup_to_a_place_that_cannot_be_is_one_line(lockpin, ledger, dest):
    done = lockpin("ledger", "backup", dest)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "cannot be written: File name too long; name another place" in done.stderr


def events(lockpin, *words):
    return json.loads(lockpin("ledger", "events", "--format", "json", *words).stdout)


def test_events_say_when_who_what_and_whether_it_loosens(lockpin, ledger):
    lockpin("budget", "set", "sprint", "--scope", "machine", "--window", "day", "--at", "09:30", "--limit-usd", "2")
    lockpin("budget", "raise", "sprint", "--by", "5")
    lockpin("task", "new", "fix", "--budget", "3")
    lockpin("task", "close", "fix")
    lockpin("budget", "rm", "sprint")

    found = events(lockpin)

    assert list(found[0]) == ["at", "who", "code", "what", "loosens", "task", "data"]
    assert [(each["code"], each["who"], each["loosens"]) for each in found[-5:]] == [
        ("budget_defined", "tester", False),
        ("budget_raised", "tester", True),
        ("task_new", "tester", False),
        ("task_closed", "tester", False),
        ("budget_removed", "tester", True),
    ]
    words = [each["what"] for each in found[-5:]]
    assert words[0] == 'budget "sprint" is in force: machine, day at 09:30 UTC, limit $2.00'
    assert re.fullmatch(r"limit raised by \$5\.00: sprint of machine:.*, window from \S+Z", words[1])
    assert words[2:] == [
        'task "fix" has a budget of $3.00, lifetime', 'task "fix" is closed', 'budget "sprint" is out of force',
    ]  # fmt: skip
    lines = lockpin("ledger", "events").stdout.splitlines()
    assert lines[0].split() == ["AT", "WHO", "LOOSENS", "WHAT"]
    assert lines[-1].endswith('  tester  yes      budget "sprint" is out of force')
    assert events(lockpin, "--since", "2999-01-01") == []
    assert events(lockpin, "--since", "1h") == found
    assert lockpin("ledger", "events", "--format", "csv").stdout.startswith("at,who,code,what,loosens,task,data\n")


def test_what_the_ledger_notes_for_itself_is_listed_where_it_is_asked_for(lockpin, ledger):
    ledger.defer("c4", timedelta(hours=1)).result(10)

    assert "hold_deferred" not in {each["code"] for each in events(lockpin)}
    deferred = next(each for each in events(lockpin, "--all") if each["code"] == "hold_deferred")
    assert deferred["what"].startswith("the cost of call c4 comes later, until ")


def test_events_before_the_first_call_are_none(lockpin, home):
    done = lockpin("ledger", "events")

    assert (done.returncode, done.stdout) == (0, f"nothing was changed yet in {home.ledger}\n")

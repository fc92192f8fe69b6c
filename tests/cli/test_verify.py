import json
import os
import pty
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def spoil(home, sql):
    with closing(sqlite3.connect(home.ledger, isolation_level=None)) as books:
        books.execute(sql)


def test_right_ledger_is_verified_while_it_is_in_use(lockpin, home, ledger):
    done = lockpin("verify")

    # Definitions of the task's budget and of the daily one; four holds, three resolutions, a refusal, an uncapped call.
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"verified: 14 rows, 6 calls, 3 accounts, 1 writer in {home.ledger}\n"


def test_json_says_the_same(lockpin, home, ledger):
    done = lockpin("verify", "--format", "json")

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        "verified": True, "wrong": None, "rows": 14, "calls": 6, "accounts": 3, "writers": 1, "pruned_to": 0,
        "warnings": [], "ledger": str(home.ledger),
    }  # fmt: skip


def test_first_wrong_row_is_named_with_status_1(lockpin, home, ledger):
    spoil(home, "UPDATE rows SET usd = 1 WHERE call = 'c1' AND kind = 'charge'")

    done = lockpin("verify")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"lockpin: {home.ledger} is wrong: row 6 (charge of call c1, ")
    assert done.stderr.endswith("Z): its content is not what was written: the hash differs\n")
    assert done.stderr.count("\n") == 1


def test_first_wrong_row_in_json(lockpin, home, ledger):
    spoil(home, "UPDATE rows SET usd = 1 WHERE call = 'c1' AND kind = 'charge'")

    done = lockpin("verify", "--output", "json")

    document = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (1, "")
    assert (document["verified"], document["rows"]) == (False, 5)
    assert (document["wrong"]["row"], document["wrong"]["call"]) == (6, "c1")
    assert document["wrong"]["message"].startswith("row 6 (charge of call c1, ")


def test_number_that_no_row_explains_is_named(lockpin, home, ledger):
    spoil(home, "UPDATE tasks SET spent_nano = spent_nano + 1000000000 WHERE name = 'fix'")

    done = lockpin("verify")

    assert done.returncode == 1
    assert done.stderr == (
        f'lockpin: {home.ledger} is wrong: task "fix": spent_nano is $1.03, and its rows say $0.03\n'
    )


def test_what_is_read_cannot_write_to_the_terminal(lockpin, home, ledger):
    spoil(home, "UPDATE rows SET call = 'c' || char(27) || '[2J' WHERE call = 'c1' AND kind = 'charge'")

    assert "c\\x1b[2J" in lockpin("verify").stderr


def test_missing_ledger_is_no_proof_and_is_not_made(lockpin, home):
    done = lockpin("verify")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"lockpin: no ledger yet at {home.ledger}, so there is nothing to verify; the first `lockpin up` makes it\n"
    )
    assert not home.ledger.exists()


def test_other_file_is_no_ledger(lockpin, home):
    other = home.path / "other.sqlite3"
    with closing(sqlite3.connect(other)) as books:
        books.execute("CREATE TABLE t (a)")
    file = home.config(f"ledger: sqlite://{other}\n")

    done = lockpin("verify", "--config", str(file))

    assert done.returncode == 1
    assert "no Lockpin ledger" in done.stderr


@pytest.mark.parametrize("form", ["csv", "xml"])
def test_other_formats_are_wrong_use(lockpin, form):
    done = lockpin("verify", "--format", form)

    assert done.returncode == 2
    assert f'"{form}"' in done.stderr


def test_terminal_gets_a_bar_that_goes_away(home, ledger):
    """The bar is on standard error; what is found stays alone on standard output."""
    master, slave = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "HOME": str(home.path), "XDG_DATA_HOME": str(home.path / "data")}
    environment |= {"XDG_CONFIG_HOME": str(home.path / "config"), "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    words = [sys.executable, "-W", "error", "-m", "lockpin_cli.main", "verify"]
    with subprocess.Popen(words, cwd=home.path, env=environment, stdout=subprocess.PIPE, stderr=slave) as process:
        os.close(slave)
        said = b""
        while True:
            try:
                more = os.read(master, 4096)
            except OSError:  # the other end is closed
                break
            if not more:
                break
            said += more
        os.close(master)
        assert process.stdout.read() == f"verified: 14 rows, 6 calls, 3 accounts, 1 writer in {home.ledger}\n".encode()

    assert process.returncode == 0
    assert b"rows" in said
    assert b"100%" in said

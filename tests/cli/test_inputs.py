import json

import pytest

READING = [
    ("report",), ("calls",), ("receipt", "c1"), ("whatif", "--task-budget", "5"), ("budget", "status"),
    ("task", "list"), ("verify",), ("ledger", "events"),
]  # fmt: skip


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_faulty_file_stops_no_command_that_only_reads_a_named_ledger(lockpin, home, ledger, words):
    home.config("daily_usd: -1\n")

    without = lockpin(*words)
    named = lockpin(*words, "--ledger", f"sqlite://{home.ledger}")

    assert without.returncode == 1
    assert without.stderr.endswith("; with --ledger sqlite:///PATH this command works without the file\n")
    assert named.returncode == 0
    assert named.stderr.startswith('lockpin.yaml:1: daily_usd is "-1"')
    assert "; it is left out, as --ledger says what to read\n" in named.stderr


@pytest.mark.parametrize("words", [("task", "new", "x", "--budget", "1"), ("budget", "raise", "daily", "--by", "1")])
def test_faulty_file_stops_every_command_that_changes_something(lockpin, home, ledger, words):
    home.config("daily_usd: -1\n")

    done = lockpin(*words, "--ledger", f"sqlite://{home.ledger}")

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "--ledger" not in done.stderr


def test_ledger_that_is_named_is_the_one_that_is_read_and_written(lockpin, home, ledger):
    other = f"sqlite://{home.path}/other.sqlite3"
    lockpin("task", "new", "else", "--budget", "1", "--ledger", other)

    there, usual = (
        json.loads(lockpin("task", "list", "--format", "json", *more).stdout) for more in (("--ledger", other), ())
    )
    assert [task["task"] for task in there] == ["else"]
    assert [task["task"] for task in usual] == ["doc", "fix"]


@pytest.mark.parametrize("named", ["ledger.sqlite3", "/tmp/x", "", "sqlite:///", "postgresql://x"])
def test_ledger_that_is_none_is_wrong_use(lockpin, named):
    done = lockpin("report", "--ledger", named)

    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f'--ledger: it is "{named}"; sqlite or sqlite:///absolute/path is allowed' in done.stderr

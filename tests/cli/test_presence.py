import os
import subprocess
import sys

import pytest

from lockpin_core.ledger.liveness import Liveness
from tests.cli.conftest import ROOT

READING = [
    *(["report"], ["calls"], ["budget", "status"], ["task", "list"], ["ledger", "events"], ["verify"], ["receipt"]),
    ["ledger", "backup", "copy"],
]
CHANGING = [
    ["budget", "set", "x", "--scope", "machine", "--window", "day", "--limit-usd", "1"],
    *(["budget", "raise", "daily", "--by", "1"], ["budget", "raise", "daily", "--undo"], ["budget", "reset", "daily"]),
    *(["budget", "rm", "x"], ["task", "new", "x", "--budget", "1"], ["task", "close", "x"]),
    ["correct", "last", "--usd", "1", "--reason", "x"],
    *(["ledger", "vacuum"], ["ledger", "prune", "--before", "1d", "--yes"]),
]
ALL = pytest.mark.parametrize("words", [*READING, *CHANGING], ids=lambda words: " ".join(words[:2]))


def refused(done):
    """Give the one line of a command that has printed nothing else."""
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done
    assert "bug" not in done.stderr
    return done.stderr


@ALL
def test_place_that_cannot_be_looked_at_is_one_line(lockpin, words):
    line = refused(lockpin(*words, XDG_DATA_HOME=f"/tmp/{'x' * 300}"))

    assert " cannot be reached: File name too long; name one in a folder that you may search" in line


@pytest.mark.skipif(os.geteuid() == 0, reason="root may search anywhere")
def test_folder_that_may_not_be_searched_is_one_line(lockpin, home, ledger):
    home.ledger.parent.chmod(0o600)
    line = refused(lockpin("report"))
    home.ledger.parent.chmod(0o700)

    assert " cannot be reached: Permission denied; " in line


@ALL
def test_ledger_that_is_gone_beside_its_log_is_not_taken_for_a_new_one(lockpin, home, words):
    home.ledger.parent.mkdir(parents=True)
    log = home.ledger.with_name("ledger.sqlite3-wal")
    log.write_bytes(b"pages")

    line = refused(lockpin(*words))

    assert f"the ledger {home.ledger} is gone, but its log ledger.sqlite3-wal is still there; put it back" in line
    assert list(home.ledger.parent.iterdir()) == [log]


@ALL
def test_ledger_that_is_gone_under_a_running_proxy_is_not_taken_for_a_new_one(lockpin, home, words):
    home.ledger.parent.mkdir(parents=True)
    proxy = Liveness(home.ledger)
    proxy.join("w1")

    line = refused(lockpin(*words))
    proxy.leave()

    assert f"the ledger {home.ledger} is gone while a proxy runs on it; stop it, then put it back" in line
    assert not home.ledger.exists()


def test_lock_of_a_proxy_that_has_ended_is_no_sign_of_one(lockpin, home):
    folder = home.ledger.with_name("ledger.sqlite3.writers")
    folder.mkdir(parents=True)
    (folder / "w1").touch()

    assert lockpin("report").stdout == f"no calls yet in {home.ledger}\n"


@ALL
def test_pipe_is_no_ledger_and_nobody_waits_for_it(lockpin, home, words):
    home.ledger.parent.mkdir(parents=True)
    os.mkfifo(home.ledger)

    assert f"the ledger {home.ledger} is no regular file; name a file" in refused(lockpin(*words))


@ALL
def test_folder_is_no_ledger(lockpin, home, words):
    home.ledger.mkdir(parents=True)

    assert f"the ledger {home.ledger} is a folder; name a file" in refused(lockpin(*words))


def frozen(folder, *command, **more):
    """Run a command that finds a folder mounted read-only."""
    mounting = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    words = ["unshare", "--map-root-user", "--mount", "sh", "-c", mounting, str(folder), *command]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, **more)


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_clean_ledger_on_a_read_only_mount_can_be_read(home, ledger, words):
    ledger.stop()
    folder = home.ledger.parent
    try:
        if frozen(folder, "true").returncode:
            pytest.skip("no mounts of one's own here")
    except FileNotFoundError:
        pytest.skip("no unshare here")
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(home.path), "PYTHONPATH": str(ROOT),
        "XDG_DATA_HOME": str(home.path / "data"), "XDG_CONFIG_HOME": str(home.path / "config"),
    }  # fmt: skip

    command = [sys.executable, "-m", "lockpin_cli.main", *words]
    done = frozen(folder, *command, cwd=home.path, env=environment)

    assert (done.returncode, done.stdout != "") == (0, True), done.stderr
    assert sorted(each.name for each in folder.iterdir()) == ["ledger.sqlite3", "ledger.sqlite3.writers"]

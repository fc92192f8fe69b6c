import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockpin_core.ledger.verify import verify
from tests.cli.conftest import ROOT


@pytest.fixture
def shell(home):
    """Run a line of sh in which `lockpin` is the command, with streams of one's own."""

    def run(line, **extra):
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(home.path), "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8",
            "XDG_DATA_HOME": str(home.path / "data"), "XDG_CONFIG_HOME": str(home.path / "config"), **extra,
        }  # fmt: skip
        code = f'lockpin() {{ "{sys.executable}" -W error -m lockpin_cli.main "$@"; }}; {line}'
        return subprocess.run(["sh", "-c", code], cwd=home.path, env=environment, capture_output=True, timeout=60)

    return run


FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
LINES = [
    *("task list", "report", "calls", "calls --format json", "budget status", "ledger events", "verify"),
    *("verify --format json", "receipt last", "ledger backup b1", "prices list", "--help", "--version"),
    *("task new f --budget 3", "correct c2 --usd 0.4 --reason x", "budget reset daily"),
]


@FULL
@pytest.mark.parametrize("words", LINES)
def test_answer_that_finds_no_room_is_one_line_and_status_1(shell, ledger, words):
    done = shell(f"lockpin {words} > /dev/full")

    last = done.stderr.decode().splitlines()[-1]
    assert (done.returncode, "Exception" in done.stderr.decode()) == (1, False)
    assert last.endswith("the answer cannot be written: No space left on device")
    assert len(done.stderr.splitlines()) == (2 if words == "receipt last" else 1)  # its sum in words is there too


@FULL
def test_long_answer_that_finds_no_room_is_one_line_too(shell, ledger):
    for line in ("lockpin prices list --format json > /dev/full", "lockpin prices list > /dev/full"):
        done = shell(line)

        assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
        assert b"the answer cannot be written: No space left on device" in done.stderr


@FULL
def test_change_whose_answer_is_lost_is_said_to_be_done(shell, home, ledger):
    done = shell("lockpin task new f --budget 3 > /dev/full")

    assert done.stderr == b"lockpin: done, but the answer cannot be written: No space left on device\n"
    assert b"f " in shell("lockpin task list").stdout
    assert verify(home.ledger).wrong is None


@FULL
def test_complaint_that_finds_no_room_leaves_the_status(shell):
    assert shell("lockpin report --since x 2> /dev/full").returncode == 2
    assert shell("lockpin receipt 2> /dev/full").returncode == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", LINES)
def test_closed_streams_change_nothing(shell, ledger, words, closed):
    done = shell(f"lockpin {words} {closed}")

    assert done.returncode == 0, done.stderr
    assert b"bug" not in done.stderr + done.stdout
    assert b"Exception" not in done.stderr


def test_question_without_an_input_is_not_asked(shell, ledger):
    done = shell("lockpin ledger prune --before 2999-01-01 <&-")

    assert (done.returncode, done.stderr) == (0, b"")


SNOW = "\u2603"


@pytest.mark.parametrize(
    "extra",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii:strict"},
    ],
    ids=["ascii", "latin-1", "posix"],
)
def test_character_that_an_encoding_lacks_is_written_as_an_escape(shell, ledger, extra):
    shell(f"lockpin task new {SNOW} --budget 5")

    listed = shell("lockpin task list; lockpin budget status --format csv", **extra)

    assert (listed.returncode, listed.stderr) == (0, b"")
    assert listed.stdout.count(b"\\u2603") == 3  # in the list, and as key and subject


def test_change_is_never_made_without_an_answer_for_want_of_a_character(shell, ledger):
    done = shell(f"lockpin task new {SNOW} --budget 5", PYTHONIOENCODING="ascii")

    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b'task "\\u2603": $5.00 in all')


def test_what_a_shell_runs_is_never_escaped(shell, home):
    (home.path / ".mitmproxy").mkdir()
    done = shell(f"lockpin env --config {SNOW}.yaml", PYTHONIOENCODING="ascii")

    assert (done.returncode, done.stdout) == (1, b"false\n")

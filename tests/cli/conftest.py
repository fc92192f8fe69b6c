"""The real command in a process of its own, with a home of its own, and a ledger with six calls in it."""

import fcntl
import os
import pty
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lockpin_core.call import Call, Ceiling, Charge, Payers, Quote, Refusal, Terms, Void
from lockpin_core.clock import new_id, utc_now
from lockpin_core.config_budgets import daily_budget, own_budget
from lockpin_core.ledger.protocol import CallNote, Rules
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.money import Money
from lockpin_core.usage import Unit

ROOT = Path(__file__).resolve().parent.parent.parent
MACHINE = socket.gethostname()

type Run = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True, slots=True)
class Home:
    """A user's folders, apart from this machine's."""

    path: Path

    @property
    def ledger(self) -> Path:
        return self.path / "data" / "lockpin" / "ledger.sqlite3"

    def config(self, text: str, name: str = "lockpin.yaml") -> Path:
        file = self.path / name
        file.write_text(text, "utf-8")
        return file


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def environment_of(home: Home, **extra: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home.path),
        "XDG_DATA_HOME": str(home.path / "data"),
        "XDG_CONFIG_HOME": str(home.path / "config"),
        "PYTHONPATH": str(ROOT),
        "LOGNAME": "tester",
        **extra,
    }


@pytest.fixture
def surroundings(home: Home) -> dict[str, str]:
    """The environment of a command in that home."""
    return environment_of(home)


@pytest.fixture
def terminal(home: Home) -> Callable[..., str]:
    """Run `lockpin WORDS…` with its standard output on a terminal, and give what that shows, escapes and all."""

    def run(*words: str, columns: int = 100, **extra: str) -> str:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        command = [sys.executable, "-W", "error", "-m", "lockpin_cli.main", *words]
        environment = environment_of(home, **{"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"} | extra)
        shown = b""
        with subprocess.Popen(
            command, cwd=home.path, env=environment, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL
        ):
            os.close(theirs)
            while True:
                try:
                    more = os.read(ours, 65536)
                except OSError:  # the other end is closed
                    break
                if not more:
                    break
                shown += more
        os.close(ours)
        return shown.decode().replace("\r\n", "\n")

    return run


@pytest.fixture
def lockpin(home: Home) -> Run:
    """Run `lockpin WORDS…` in the home's folder."""

    def run(*words: str | bytes, **extra: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", "-m", "lockpin_cli.main", *words]
        return subprocess.run(
            command,
            cwd=home.path,
            env=environment_of(home, **extra),
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=60,
        )

    return run


@pytest.fixture
def ledger(home: Home) -> Iterator[SqliteLedger]:
    """A ledger in use: two settled calls of "fix", one estimated; one void, one in flight, two others of "doc"."""
    rules = Rules((daily_budget(Money.parse("25"), "UTC"),), own_budget(None, ("0.75", "0.95"), "UTC"))
    books = SqliteLedger(home.ledger, clock=utc_now, new_id=new_id)
    usage = {Unit.INPUT: 100, Unit.OUTPUT: 20}
    books.hold(_call("c1", "fix", "0.5"), rules).result(10)
    books.settle("c1", Charge(Money.parse("0.0214"), usage, 120, "claude-opus-4-5-x", None)).result(10)
    books.hold(_call("c2", "fix", "0.5", (("team", "web"), ("run", "7"))), rules).result(10)
    guess = Charge(Money.parse("0.0086"), {Unit.INPUT: 30}, 30, None, None, reason="client_left", estimated=True)
    books.settle("c2", guess).result(10)
    books.hold(_call("c3", "doc", "1.25"), rules).result(10)
    books.void("c3", Void("not_sent")).result(10)
    books.refuse(_note("c5", "unknown_model"), Refusal("unknown_model", 400, "lockpin: no price"))
    books.uncapped(_note("c6", "no_limit"))
    books.hold(_call("c4", "doc", "1.25"), rules).result(10)
    yield books
    books.stop()


def _call(call_id: str, task: str, most: str, tags: tuple[tuple[str, str], ...] = ()) -> Call:
    ceiling = Ceiling(500, 500, frozenset({Unit.INPUT}), frozenset({Unit.OUTPUT}), {})
    return Call(
        id=call_id, payers=Payers(task, MACHINE, tags=tags), provider="anthropic", host="api.anthropic.com",
        wire="anthropic_messages", model="claude-opus-4-5", asked_model="claude-opus-4-5", client="claude-cli/2.1.197",
        streamed=True, quote=Quote(Money.parse(most), 1000, ceiling), terms=Terms(), output_limit=500, limit_set=False,
        billing="metered", price_date="2026-08-01", rates={"input": "5", "output": "25"},
    )  # fmt: skip


def _note(call_id: str, code: str) -> CallNote:
    return CallNote(call_id, Payers("doc", MACHINE), "openai", "api.openai.com", "gpt-x", "x/1", code)

"""Questions answered by the real command, at a terminal, in a pipe, and from another shell."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time
from datetime import timedelta

import pytest

from lockpin_core.call import Call, Ceiling, Payers, Quote, Terms
from lockpin_core.ledger.questions import CONTINUE, LOOP, ONCE, RAISE, REFUSE, STOP, Asking, Choice
from lockpin_core.ledger.watchers import Watcher, watching
from lockpin_core.money import Money
from lockpin_core.usage import Unit
from tests.cli.conftest import environment_of

WAIT_S = 50
APPROVAL = (Choice(ONCE, Money.parse("0.5")), Choice(RAISE, Money.parse("2")), Choice(REFUSE))


def called(task: str, most: str = "0.5") -> Call:
    ceiling = Ceiling(500, 500, frozenset({Unit.INPUT}), frozenset({Unit.OUTPUT}), {})
    return Call(
        id="q1", payers=Payers(task, "desk", user="ann@corp.com"), provider="anthropic", host="api.anthropic.com",
        wire="anthropic_messages", model="claude-opus-4-5", asked_model="claude-opus-4-5", client="x", streamed=True,
        quote=Quote(Money.parse(most), 1000, ceiling), terms=Terms(), output_limit=500, limit_set=False,
        billing="metered", price_date="2026-08-01", rates={},
    )  # fmt: skip


def ask(ledger, task="fix", *, kind="approval", seconds=600, **data):
    choices = APPROVAL if kind == "approval" else (Choice(CONTINUE), Choice(STOP))
    asking = Asking(
        kind, called(task), task.encode().ljust(32), Money.parse("0.5"), Money.parse("0.25"), choices,
        timedelta(seconds=seconds), data,
    )  # fmt: skip
    found = ledger.ask(asking).result(WAIT_S)
    assert found is not None, "nobody watches"
    return found


def until(check):
    """Wait for a condition, and give what it gives."""
    end = time.monotonic() + WAIT_S
    while not (found := check()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)
    return found


@pytest.fixture
def asked(home, ledger):
    """Put a question while somebody watches who says nothing."""

    def put(*args, **more):
        with Watcher(home.ledger, "silent"):
            return ask(ledger, *args, **more)

    return put


class Watching:
    """`lockpin approvals watch` on a terminal of its own, or in a pipe."""

    def __init__(self, home, *, on_terminal: bool):
        command = [sys.executable, "-W", "error", "-m", "lockpin_cli.main", "approvals", "watch"]
        environment = environment_of(home, TERM="xterm", LC_ALL="C.UTF-8")
        self.home, self.shown = home, ""
        if on_terminal:
            self.ours, theirs = pty.openpty()
            self.process = subprocess.Popen(
                command, cwd=home.path, env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
                start_new_session=True,
            )  # fmt: skip
            os.close(theirs)
        else:
            self.process = subprocess.Popen(
                command, cwd=home.path, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )  # fmt: skip
            self.ours = self.process.stdout.fileno()
        until(lambda: watching(home.ledger) or self.process.poll() is not None)

    def see(self, words: str) -> str:
        """Read until words were shown; give all that was."""

        def read():
            if select.select([self.ours], [], [], 0)[0]:
                with contextlib.suppress(OSError):
                    self.shown += os.read(self.ours, 65536).decode().replace("\r\n", "\n")
            return words in self.shown

        until(read)
        return self.shown

    def type(self, words: str) -> None:
        os.write(self.ours, words.encode())

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        status = self.process.wait(WAIT_S)
        return status


@pytest.fixture
def watch(home):
    made = []

    def begin(*, on_terminal: bool) -> Watching:
        made.append(Watching(home, on_terminal=on_terminal))
        return made[-1]

    yield begin
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()
        for stream in (each.process.stdout, each.process.stderr):
            if stream is not None:
                stream.close()
        if each.process.stdout is None:
            os.close(each.ours)


def test_nobody_watches_and_nothing_was_asked(lockpin, ledger):
    told = lockpin("approvals", "list")
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.splitlines() == [
        "no questions in the last day",
        "nobody is watching, so no call is asked about: run `lockpin approvals watch`",
    ]


def test_a_ledger_that_is_not_there_yet_has_no_questions(lockpin, home):
    assert lockpin("approvals", "list", "--format", "json").stdout == "[]\n"
    assert not home.ledger.exists()
    done = lockpin("approvals", "watch")
    assert (done.returncode, "no ledger yet" in done.stderr) == (1, True)


def test_list_has_the_questions_and_what_each_answer_costs(lockpin, asked):
    question = asked(tools=3)

    lines = lockpin("approvals", "list").stdout.splitlines()
    (record,) = json.loads(lockpin("approvals", "list", "--format", "json").stdout)

    assert lines[0].split() == ["ID", "STATE", "TASK", "USER", "MODEL", "NEEDS", "SHORT", "BY", "ASKED", "BY"]
    cells = [question.id, "open", "fix", "ann@corp.com", "claude-opus-4-5", "$0.50", "$0.25"]
    assert lines[1].split() == [*cells, f"{question.asked:%H:%M:%S}", "-"]
    assert record["id"] == question.id
    assert [record[name] for name in ("kind", "state", "task", "user", "key", "call", "answer", "who", "used")] == [
        "approval", "open", "fix", "ann@corp.com", None, "q1", None, None, None,
    ]  # fmt: skip
    assert (record["needed_usd"], record["short_by_usd"], record["data"]) == (0.5, 0.25, {"tools": 3})
    assert record["choices"] == [
        {"answer": "once", "usd": 0.5}, {"answer": "raise", "usd": 2}, {"answer": "refuse", "usd": None},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("once",), 'the call of task "fix" may go once, for up to $0.50'),
        (("refuse",), 'the call of task "fix" is refused'),
        (("raise",), 'the budget of task "fix" is raised to $3.00, and the call fits'),
        (("raise", "--by", "7.5"), 'the budget of task "fix" is raised to $8.50, and the call fits'),
    ],
)
def test_the_first_answer_counts(lockpin, asked, words, said):
    lockpin("task", "new", "fix", "--budget", "1", "--user", "ann@corp.com")
    question = asked()

    first = lockpin("approvals", "answer", question.id, *words)
    second = lockpin("approvals", "answer", question.id, "refuse")

    assert (first.returncode, first.stdout) == (0, f"question {question.id}: {said}\n")
    assert (second.returncode, second.stdout) == (1, "")
    assert re.fullmatch(
        f'lockpin: question {question.id} was answered "{words[0]}" by tester at [^;]+; the first answer counts\n',
        second.stderr,
    )
    limit = {"raise": 3, "--by": 8.5}.get(words[min(1, len(words) - 1)], 1)
    (task,) = [t for t in json.loads(lockpin("task", "list", "--format", "json").stdout) if t["task"] == "fix"]
    assert task["limit_usd"] == limit


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("999", "once"), 1, 'no question "999"; `lockpin approvals list` shows them'),
        (("999", "yes"), 2, '"yes" is no answer; once, raise, refuse, continue or stop is allowed'),
        (("999", "raise", "--by", "-1"), 2, "--by"),
    ],
)
def test_what_cannot_be_answered_is_said_in_a_line(lockpin, ledger, words, status, said):
    done = lockpin("approvals", "answer", *words)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (status, "", 1)
    assert said in done.stderr


def test_in_a_pipe_each_question_is_a_line_and_its_end_another(lockpin, home, ledger, watch):
    here = watch(on_terminal=False)

    question = ask(ledger)
    here.see('"state":"open"')
    lockpin("approvals", "answer", question.id, "refuse")
    lines = [json.loads(line) for line in here.see('"state":"refuse"').splitlines()]

    assert [(line["id"], line["state"], line["who"]) for line in lines] == [
        (question.id, "open", None), (question.id, "refuse", "tester"),
    ]  # fmt: skip
    assert lockpin("approvals", "list").stdout.splitlines()[-1] == "1 watcher"
    assert here.end() == 0
    assert here.process.stderr.read().decode() == f"lockpin: watching for questions of {home.ledger}; Ctrl-C ends\n"
    assert watching(home.ledger) == 0
    assert list(home.ledger.with_name("ledger.sqlite3.watchers").iterdir()) == []


def test_a_watcher_that_is_told_to_end_leaves_nothing_behind(home, ledger, watch):
    here = watch(on_terminal=False)
    assert (here.end(signal.SIGTERM), watching(home.ledger)) == (0, 0)


def test_a_question_that_nobody_answers_ends_in_time(ledger, watch):
    here = watch(on_terminal=False)
    ask(ledger, seconds=1)
    here.see('"state":"over"')


def test_in_a_pipe_what_was_over_before_is_not_told(lockpin, ledger, asked, watch):
    over, still = asked("fix", seconds=0), asked("doc")
    here = watch(on_terminal=False)
    here.see(f'"id":"{still.id}"')
    assert f'"id":"{over.id}"' not in here.shown


@pytest.mark.parametrize(
    ("typed", "answer", "by"),
    [("o", ONCE, 0), ("r", RAISE, 2), ("R", None, 0), ("r 7", RAISE, 7), ("refuse", REFUSE, 0)],
)
def test_at_a_terminal_a_letter_answers(lockpin, ledger, watch, typed, answer, by):
    lockpin("task", "new", "fix", "--budget", "1", "--user", "ann@corp.com")
    here = watch(on_terminal=True)
    question = ask(ledger)
    shown = here.see(f"question {question.id}> ")

    here.type(f"{typed}\n")

    said = f'"{typed}" is no answer' if answer is None else f"question {question.id}: the "
    here.see(said)
    found = ledger.question(question.id).result(WAIT_S)
    assert (found.answer, found.who) == (answer, None if answer is None else "tester")
    (task,) = [t for t in json.loads(lockpin("task", "list", "--format", "json").stdout) if t["task"] == "fix"]
    assert task["limit_usd"] == 1 + by
    assert 'task "fix" of ann@corp.com asks for a call to claude-opus-4-5: it may cost up to $0.50' in shown
    assert "the task's budget is short by $0.25" in shown
    for line in (
        "  o  allow it once, for up to $0.50",
        "  r  raise the task's budget by $2.00, or r USD",
        "  x  refuse it",
    ):
        assert line in shown
    here.type("\x03")
    assert here.end() in (0, -signal.SIGINT)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("r five", 'the amount after r is "five"; a positive amount is allowed'),
        ("r 0.02 please", '"r 0.02 please" is no answer to question {}; o, r, r USD or x is allowed'),
        ("o 5", '"o 5" is no answer to question {}; o, r, r USD or x is allowed'),
        ("x please", '"x please" is no answer to question {}; o, r, r USD or x is allowed'),
    ],
)
def test_what_is_no_answer_leaves_the_question_open(lockpin, ledger, watch, typed, words):
    lockpin("task", "new", "fix", "--budget", "1", "--user", "ann@corp.com")
    here = watch(on_terminal=True)
    question = ask(ledger)
    here.see(f"question {question.id}> ")

    here.type(f"{typed}\n")

    here.see(words.format(question.id))
    assert ledger.question(question.id).result(WAIT_S).answer is None
    here.type("x\n")
    here.see(f'question {question.id}: the call of task "fix" is refused')


def test_a_ledger_that_cannot_be_written_for_a_while_ends_no_watcher(lockpin, home, ledger, watch):
    lockpin("task", "new", "fix", "--budget", "1", "--user", "ann@corp.com")
    here = watch(on_terminal=True)
    question = ask(ledger)
    here.see(f"question {question.id}> ")

    with contextlib.closing(sqlite3.connect(home.ledger, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        here.type("o\n")
        here.see("the ledger cannot be written: database is locked")
        assert watching(home.ledger)
        other.execute("ROLLBACK")

    assert ledger.question(question.id).result(WAIT_S).answer is None
    here.type("o\n")
    here.see(f"question {question.id}: the ")
    assert ledger.question(question.id).result(WAIT_S).answer == ONCE


@pytest.mark.parametrize("on_terminal", [True, False])
def test_a_ledger_that_cannot_be_read_for_a_while_ends_no_watcher(home, ledger, watch, on_terminal):
    here = watch(on_terminal=on_terminal)

    with contextlib.closing(sqlite3.connect(home.ledger, isolation_level=None)) as other:
        other.execute("ALTER TABLE questions RENAME TO away")
        if on_terminal:
            here.see("the ledger cannot be read: no such table: questions; it is tried again")
        else:
            until(lambda: b"it is tried again" in os.read(here.process.stderr.fileno(), 4096))
        other.execute("ALTER TABLE away RENAME TO questions")
    question = ask(ledger)

    here.see(f"question {question.id}> " if on_terminal else f'"id":"{question.id}"')


def test_a_raise_that_is_too_small_says_so(lockpin, asked):
    lockpin("task", "new", "fix", "--budget", "0.1", "--user", "ann@corp.com")
    question = asked()

    told = lockpin("approvals", "answer", question.id, "raise", "--by", "0.02")

    assert told.stdout == (  # 0.50 of a limit of 0.12
        f'question {question.id}: the budget of task "fix" is raised to $0.12, but the call is still short by $0.38, '
        "so it is refused, unless it can be made smaller\n"
    )


def test_a_loop_is_stopped_or_goes_on(lockpin, ledger, watch):
    here = watch(on_terminal=True)
    question = ask(ledger, kind=LOOP, repeats=20)
    shown = here.see(f"question {question.id}> ")
    assert "and goes round in a circle: the same, 20 times in a row" in shown
    assert "it goes on; `lockpin task new fix --budget USD --user ann@corp.com` limits its task" in shown
    assert "it is stopped" not in shown

    here.type("s\n")

    here.see(f'question {question.id}: task "fix" is stopped; `lockpin task resume fix`')
    assert ledger.question(question.id).result(WAIT_S).answer == STOP
    paused = ledger.paused(Payers("fix", "desk", user="ann@corp.com")).result(WAIT_S)
    assert (paused.kind, paused.until) == ("loop", None)


def test_what_was_typed_for_one_question_is_no_answer_to_the_next(lockpin, ledger, watch):
    here = watch(on_terminal=True)
    first, second = ask(ledger, "fix"), ask(ledger, "doc")
    here.see(f"question {first.id}> ")
    here.see(f"question {second.id}: ")
    here.type("o")  # and no return yet

    lockpin("approvals", "answer", first.id, "refuse")
    here.see(f"question {second.id}> ")
    here.type("\n")
    here.type(f"{second.id} x\n")  # by its number a question is meant whatever the prompt says

    until(lambda: ledger.question(second.id).result(WAIT_S).answer)
    assert ledger.question(second.id).result(WAIT_S).answer == REFUSE
    assert f'question {first.id} was answered "refuse" by tester' in here.shown


def test_the_end_of_input_ends_it(home, ledger, watch):
    here = watch(on_terminal=True)
    ask(ledger)
    here.see("> ")
    here.type("\x04")
    assert here.process.wait(WAIT_S) == 0
    assert watching(home.ledger) == 0

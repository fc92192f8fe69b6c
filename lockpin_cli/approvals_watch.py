"""A watcher at a terminal, or in a pipe: shows questions as they are put, and takes answers. Knows no SQL.

An answer is for the question that the prompt names: what was typed before that changed is thrown away.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from lockpin_cli.inputs import amount
from lockpin_cli.output import plain, say
from lockpin_core.clock import new_id, stamp, utc_now
from lockpin_core.errors import LedgerUnavailable, LockpinError
from lockpin_core.jsontext import dumps
from lockpin_core.ledger.place import Watch
from lockpin_core.ledger.protocol import Admin
from lockpin_core.ledger.questions import CONTINUE, GONE, ONCE, RAISE, REFUSE, STOP, Choice, Question
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.ledger.watchers import Watcher
from lockpin_core.money import Money
from lockpin_core.readers.questions import OPEN, about, outcome, price_of, record, state_of, unanswered

LOOK_S = 0.25  # how often it is looked for questions
_LETTERS = {"o": ONCE, "r": RAISE, "x": REFUSE, "c": CONTINUE, "s": STOP}
_MOST = 4096  # bytes of a typed line


def run(ledger: Path, admin: Admin, who: str) -> None:
    """Watch until Ctrl-C, SIGTERM or the end of input."""
    is_typed = sys.stdin.isatty() and sys.stdout.isatty()
    with _until_told(), Watcher(ledger, new_id()) as watcher, LedgerReader(ledger) as reader:
        place = Watch(ledger)
        screen = _Screen(admin, who) if is_typed else _Lines()
        say(f"watching for questions of {ledger}; Ctrl-C ends")
        trouble = None
        while not screen.is_over:
            place.check()
            try:
                screen.show(reader.questions(now=utc_now()))
                watcher.beat()  # who sees no questions is not there for long
                trouble = None
            except LedgerUnavailable as error:
                if trouble is None:
                    say(f"{error}; it is tried again")
                trouble = error
            screen.wait()


@contextlib.contextmanager
def _until_told() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end a block in order."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        if sys.stdout.isatty():
            print()
    finally:
        signal.signal(signal.SIGTERM, before)


class _Lines:
    """Prints a JSON line for each question, and one more at its end. Nobody types."""

    is_over = False

    def __init__(self) -> None:
        self._told: dict[str, str] | None = None  # by question: the state that was printed last

    def show(self, questions: Sequence[Question]) -> None:
        """Print what is new, oldest first; of what was there before only what is open."""
        now = utc_now()
        states = {question.id: state_of(question, now) for question in reversed(questions)}
        before = self._told
        if before is None:
            before = {name: state for name, state in states.items() if state != OPEN}
        for question in reversed(questions):
            if states[question.id] != before.get(question.id):
                print(dumps(record(question, now)), flush=True)
        self._told = states

    def wait(self) -> None:
        """Wait a moment."""
        select.select([], [], [], LOOK_S)


class _Screen:
    """Prints questions in words, and a prompt for the oldest that is open."""

    def __init__(self, admin: Admin, who: str) -> None:
        self.is_over = False
        self._admin, self._who = admin, who
        self._open: dict[str, Question] = {}
        self._asked: str | None = None  # the question that the prompt names

    def show(self, questions: Sequence[Question]) -> None:
        """Print what is new and what has ended, then the prompt where that is another question's."""
        now = utc_now()
        here = {q.id: q for q in reversed(questions) if q.is_open(now)}
        gone = [q for q in reversed(questions) if q.id in self._open and q.id not in here]
        new = [q for q in here.values() if q.id not in self._open]
        self._open = here
        if not gone and not new:
            return
        self._break_line()
        for question in gone:
            self._print(_end_of(question))
        for question in new:
            self._put(question)
        self._prompt()

    def wait(self) -> None:
        """Wait a moment for a line, and take it as an answer."""
        ready, _, _ = select.select([sys.stdin], [], [], LOOK_S)
        if not ready:
            return
        typed = os.read(sys.stdin.fileno(), _MOST)
        if not typed:
            self.is_over = True
            return
        self._take(typed.decode(errors="replace").split())
        self._prompt()

    def _take(self, words: Sequence[str]) -> None:
        named = words[0] if words and words[0] in self._open else self._asked
        rest = words[1:] if words and words[0] in self._open else words
        question = self._open.get(named or "")
        if not rest:
            return
        if question is None:
            self._print("there is no open question")
            return
        try:
            self._answer(question, rest)
        except (LockpinError, typer.BadParameter) as error:
            self._print(error.message if isinstance(error, typer.BadParameter) else str(error))

    def _answer(self, question: Question, words: Sequence[str]) -> None:
        given = _LETTERS.get(words[0], words[0])
        by = _amount(question, given, words)
        answered = self._admin.answer(question.id, given, who=self._who, by=by)
        del self._open[question.id]
        self._print(f"question {answered.id}: {outcome(answered)}")

    def _put(self, question: Question) -> None:
        self._print(f"question {question.id}: {about(question)}")
        for choice in question.choices:
            more = ", or r USD by another amount" if choice.answer == RAISE else ""
            self._print(f"  {_letter(choice)}  {price_of(choice)}{more}")
        self._print(f"  without an answer by {stamp(question.until)} {unanswered(question)}")

    def _prompt(self) -> None:
        """Ask for the answer to the oldest question that is open."""
        before, self._asked = self._asked, next(iter(self._open), None)
        if self._asked != before:
            with contextlib.suppress(termios.error):
                termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        if self._asked is not None:
            print(f"question {self._asked}> ", end="", flush=True)

    def _break_line(self) -> None:
        if self._asked is not None:
            print()

    @staticmethod
    def _print(words: str) -> None:
        print(plain(words), flush=True)


def _amount(question: Question, given: str, words: Sequence[str]) -> Money | None:
    """Read by how much to raise; None: by what is shown. Wrong use where more was typed than means something."""
    if len(words) == 1:
        return None
    if given != RAISE or len(words) > 2:
        letters = [letter for choice in question.choices for letter in _letters(choice)]
        typed, allowed = " ".join(words), f"{', '.join(letters[:-1])} or {letters[-1]}"
        raise typer.BadParameter(f'"{typed}" is no answer to question {question.id}; {allowed} is allowed')
    return amount(words[1], words[0], "the amount after")


def _letters(choice: Choice) -> list[str]:
    """List what may be typed for a choice."""
    letter = _letter(choice)
    return [letter, f"{letter} USD"] if choice.answer == RAISE else [letter]


def _letter(choice: Choice) -> str:
    return next(letter for letter, answer in _LETTERS.items() if answer == choice.answer)


def _end_of(question: Question) -> str:
    if question.gone is not None:
        return f"question {question.id}: {GONE[question.gone]}"
    if question.answer is None:
        return f"question {question.id}: nobody answered in time; {unanswered(question)}"
    return f'question {question.id} was answered "{question.answer}" by {question.who}'

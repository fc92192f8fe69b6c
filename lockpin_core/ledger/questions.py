"""What a person is asked about a call, and what may be answered. Pure: knows no SQL and no screen.

An approval is about a call that only its task's own budget is short for, a loop about one that repeats itself. The same
call of the same task, sent again, joins its question, and nothing is held while that is open. An approval ends with the
call that it was put for, unless that has left unanswered; who has joined it asks anew. "once" is good for one call;
whether it fits then is judged anew in the transaction of its hold.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lockpin_core.budgets import Standing
from lockpin_core.call import Call, Payers
from lockpin_core.clock import stamp
from lockpin_core.errors import CommandError
from lockpin_core.money import Money

APPROVAL, LOOP = "approval", "loop"  # kinds of questions
ONCE, RAISE, REFUSE, CONTINUE, STOP = "once", "raise", "refuse", "continue", "stop"
ANSWERS: Mapping[str, tuple[str, ...]] = {APPROVAL: (ONCE, RAISE, REFUSE), LOOP: (CONTINUE, STOP)}

HELD, REFUSED = "hold", "refusal"  # kinds of the rows that end a call's wait for an answer
GONE: Mapping[str, str] = {HELD: "its call fits by now, and has gone", REFUSED: "its call was refused meanwhile"}

ASKED, ANSWERED = "question_asked", "question_answered"  # the codes of their events

GOOD_FOR = timedelta(minutes=10)  # how long an answer stands for the same call, sent again


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer, with its price: the most that the call may cost ("once"), or by how much the limit is raised."""

    answer: str
    usd: Money | None = None


@dataclass(frozen=True, slots=True)
class Asking:
    """A question that is to be put. `digest` makes it the same call again; `data` is JSON-ready, no text of a body."""

    kind: str  # one of ANSWERS
    call: Call
    digest: bytes
    needed: Money  # the most that the call can cost
    short_by: Money  # how much of that its task's own budget does not have
    choices: tuple[Choice, ...]
    patience: timedelta
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Question:
    """A question as the ledger has it. Instants are ledger time."""

    id: str
    kind: str
    call: str
    digest: bytes
    task: str
    key: str | None
    user: str | None
    model: str
    asked: datetime
    until: datetime  # without an answer by then the call is refused, or goes on where it is of a loop
    needed: Money
    short_by: Money
    choices: tuple[Choice, ...]
    data: Mapping[str, object] = field(default_factory=dict)
    answer: str | None = None
    answered: datetime | None = None
    who: str | None = None  # answered
    used: datetime | None = None  # when "once" let its call go
    gone: str | None = None  # how the call of an approval went on without an answer: HELD or REFUSED
    # How a raise has left the task's own account: only in what the one who raises is given.
    raised: Standing | None = field(default=None, compare=False)

    def is_open(self, now: datetime) -> bool:
        """Say whether it waits for an answer."""
        return self.answer is None and self.gone is None and now < self.until

    def stands(self, now: datetime) -> bool:
        """Say whether its answer is still one for the same call, sent again.

        After "raise" the limit itself is another, so that a call which does not fit it is asked about anew.
        """
        is_over = self.answered is None or self.used is not None or self.answer == RAISE
        return not is_over and self.answered is not None and now <= self.answered + GOOD_FOR

    def is_for(self, asking: Asking) -> bool:
        """Say whether a call may join it: nobody has seen a smaller price than this call's."""
        is_same = (self.kind, self.digest) == (asking.kind, asking.digest) and self._is_of(asking.call.payers)
        return is_same and asking.needed <= self.needed

    def lets_go(self, call: Call, now: datetime) -> bool:
        """Say whether by "allow once" a call may have what its task is short of."""
        is_its = self._is_of(call.payers) and call.quote.most <= self.needed
        return is_its and self.answer == ONCE and self.stands(now)

    def holds_up(self, payers: Payers) -> bool:
        """Say whether their calls wait for its answer while it is open."""
        return self.kind == LOOP and self._is_of(payers)

    def _is_of(self, payers: Payers) -> bool:
        """Say whether a call is of its task and user: each user's calls of a task have a budget of their own."""
        return (payers.task, payers.user) == (self.task, self.user)

    def price_of(self, answer: str) -> Money | None:
        """Give what an answer was said to cost; None: nothing was said."""
        return next((choice.usd for choice in self.choices if choice.answer == answer), None)


def joined(asking: Asking, found: Sequence[Question], now: datetime) -> Question | None:
    """Give the question that a call joins, of those that were put before, newest first; None: there is none."""
    mine = [question for question in found if question.is_for(asking)]
    return next((question for question in mine if question.is_open(now) or question.stands(now)), None)


def amount_of(question: Question, answer: str, by: Money | None, now: datetime) -> Money | None:
    """Check an answer, and give by how much it raises the limit; None: it does not.

    Raises CommandError where it is none for this question, or the first answer is another's, or it came too late.
    """
    allowed = ANSWERS[question.kind]
    if answer not in allowed:
        raise CommandError(f'"{answer}" is no answer to question {question.id}; {_listed(allowed)} is allowed')
    if by is not None and answer != RAISE:
        raise CommandError(f'--by is for the answer "raise"; question {question.id} is answered "{answer}" without it')
    if question.answer is not None:
        told = f"by {question.who} at {stamp(question.answered)}" if question.answered else f"by {question.who}"
        raise CommandError(f'question {question.id} was answered "{question.answer}" {told}; the first answer counts')
    if not question.is_open(now):
        raise CommandError(f"the answer to question {question.id} comes too late: {_what_was_done(question)}")
    if answer != RAISE:
        return None
    amount = question.price_of(RAISE) if by is None else by
    if amount is None or amount.nano <= 0:
        what = "no amount" if amount is None else f'"{amount.exact()}"'
        raise CommandError(f"{what} is no raise for question {question.id}; --by with a positive amount is allowed")
    return amount


def _what_was_done(question: Question) -> str:
    if question.gone is not None:
        return f"{GONE[question.gone]}; sent again, it is judged anew"
    if question.kind == LOOP:
        return f"its call went on at {stamp(question.until)}; {left_to_do(question)}"
    return f"its call was refused at {stamp(question.until)}; sent again, it is asked about anew"


def left_to_do(question: Question) -> str:
    """Say what is left to do about a loop that nobody stopped: a task can be closed that is one user's, or in solo."""
    task = shlex.quote(question.task)
    if question.user is None:
        return f"`lockpin task close {task}` ends its task"
    return f"`lockpin task new {task} --budget USD --user {shlex.quote(question.user)}` limits its task"


def _listed(answers: Sequence[str]) -> str:
    return f"{', '.join(answers[:-1])} or {answers[-1]}"

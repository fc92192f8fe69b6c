"""What rows say of questions, of their answers, and of what was allowed once. Pure: knows no SQL.

A question is remembered as long as its answer may let a call go; an allowance until its call is resolved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lockpin_core.ledger.allowances import Allowance
from lockpin_core.ledger.questions import ANSWERS, GOOD_FOR, ONCE, RAISE

_GOOD_FOR_US = GOOD_FOR.total_seconds() * 10**6

type Content = Mapping[str, Any]


@dataclass(slots=True)
class _Question:
    task: str
    kind: str
    until: int
    most: int  # that it showed, in nanodollars
    answer: str | None = None
    answered: int | None = None
    user: str | None = None  # whose call it is about

    def is_over(self, at: int) -> bool:
        return at > (self.until if self.answered is None else self.answered) + _GOOD_FOR_US


@dataclass(slots=True)
class QuestionStates:
    """The questions that still matter, and what is allowed to open calls, after the events up to here."""

    allowances: dict[str, Allowance] = field(default_factory=dict)  # by call
    _open: dict[str, _Question] = field(default_factory=dict)

    def ask(self, data: Content, task: str, row: int, at: int) -> str | None:
        """Take the event of a question; give what is wrong with it."""
        for name in [name for name, question in self._open.items() if question.is_over(at)]:
            del self._open[name]
        if data["question"] != str(row) or data["until"] < at or data["kind"] not in ANSWERS:
            return "it is no question that a ledger puts"
        most = max(data["needed_nano"], data["short_nano"])
        self._open[data["question"]] = _Question(task, data["kind"], data["until"], most, user=data.get("user"))
        return None

    def answer(self, data: Content, at: int) -> str | None:
        """Take the event of an answer; give what is wrong with it."""
        question, given = self._open.get(data["question"]), data["answer"]
        if question is None or question.answer is not None or at >= question.until:
            return f"question {data['question']} waits for no answer"
        if given not in ANSWERS[question.kind] or (given == RAISE) != ("by_nano" in data):
            return f'"{given}" is no answer to question {data["question"]}'
        question.answer, question.answered = given, at
        return None

    def user_of(self, question: str) -> str | None:
        """Say whose calls alone a question may let go; None: those of nobody."""
        found = self._open.get(question)
        return None if found is None else found.user

    def allow(self, data: Content, task: str, at: int) -> str | None:
        """Take the event by which an answer lets a call go; give what is wrong with it."""
        question, call = self._open.get(data["question"]), data["call"]
        if question is None or question.answer != ONCE or question.is_over(at) or question.task != task:
            return f'question {data["question"]} was not answered "once" for a call of task "{task}", or is used'
        if call in self.allowances or not 0 < data["by_nano"] <= question.most:
            return f"it allows more than question {data['question']} showed"
        del self._open[data["question"]]
        self.allowances[call] = Allowance(data["account"], data["by_nano"], data.get("leaves_at"))
        return None

    def forget(self, account: str) -> None:
        """Forget what was allowed on an account whose raises were all taken back."""
        self.allowances = {call: given for call, given in self.allowances.items() if given.account != account}

    def state(self) -> list[object]:
        """Give everything as JSON-ready data, for a checkpoint."""
        given = {call: [each.account, each.nano, each.leaves_at] for call, each in self.allowances.items()}
        asked = {
            name: [q.task, q.kind, q.until, q.most, q.answer, q.answered, q.user] for name, q in self._open.items()
        }
        return [given, asked]

    @classmethod
    def of(cls, state: Any) -> QuestionStates:
        """Go on from what `state` gave."""
        given, asked = state
        return cls(
            {call: Allowance(*a) for call, a in given.items()}, {name: _Question(*q) for name, q in asked.items()}
        )

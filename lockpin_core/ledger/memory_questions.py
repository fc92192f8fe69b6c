"""The questions of a ledger in memory, and what was allowed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from lockpin_core.errors import CommandError
from lockpin_core.ledger.allowances import Allowance
from lockpin_core.ledger.memory_state import Row
from lockpin_core.ledger.questions import HELD, LOOP, REFUSED, Asking, Question, amount_of, joined
from lockpin_core.money import Money


class MemoryQuestions:
    """Every question that was put, in order; `allowances` by call. `rows` are the book's."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.allowances: dict[str, Allowance] = {}
        self._rows = rows
        self._all: dict[str, Question] = {}

    def join(self, asking: Asking, now: datetime) -> Question | None:
        """Find the question that a call joins."""
        return joined(asking, self.every(), now)

    def put(self, asking: Asking, now: datetime) -> Question:
        """Put a question."""
        call, payers = asking.call, asking.call.payers
        question = Question(
            id=str(len(self._all) + 1), kind=asking.kind, call=call.id, digest=asking.digest, task=payers.task,
            key=payers.key, user=payers.user, model=call.model, asked=now, until=now + asking.patience,
            needed=asking.needed, short_by=asking.short_by, choices=asking.choices, data=asking.data,
        )  # fmt: skip
        self._all[question.id] = question
        return question

    def find(self, question_id: str) -> Question | None:
        """Find a question by its id."""
        found = self._all.get(question_id)
        return None if found is None else self._now(found)

    def every(self) -> list[Question]:
        """List them, newest first."""
        return [self._now(question) for question in reversed(self._all.values())]

    def _now(self, question: Question) -> Question:
        """Give a question with what has become of its call."""
        if question.kind == LOOP or question.answer is not None:
            return question
        ends = (row.kind for row in self._rows if row.call == question.call and row.kind in (HELD, REFUSED))
        return replace(question, gone=next(ends, None))

    def amount_of(self, question_id: str, given: str, by: Money | None, now: datetime) -> tuple[Question, Money | None]:
        """Check an answer; give its question, and by how much it raises the limit. Raises CommandError."""
        question = self.find(question_id)
        if question is None:
            raise CommandError(f'no question "{question_id}"; `lockpin approvals list` shows them')
        return question, amount_of(question, given, by, now)

    def answer(self, question: Question, given: str, *, who: str, now: datetime) -> Question:
        """Write down the answer to a question."""
        answered = self._all[question.id] = replace(question, answer=given, answered=now, who=who)
        return answered

    def use(self, question_id: str, now: datetime) -> None:
        """Note that an answer has let its call go."""
        self._all[question_id] = replace(self._all[question_id], used=now)

    def forget_account(self, account: str) -> None:
        """Forget what was allowed on an account whose raises were all taken back."""
        self.allowances = {call: given for call, given in self.allowances.items() if given.account != account}

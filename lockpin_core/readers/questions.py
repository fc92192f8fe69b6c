"""Questions to a person in words and as records, as every view of them shows them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from lockpin_core.clock import stamp
from lockpin_core.ledger.questions import CONTINUE, LOOP, ONCE, RAISE, REFUSE, STOP, Choice, Question, left_to_do
from lockpin_core.readers.figures import dollars, said

FIELDS = (
    *("id", "kind", "state", "task", "user", "key", "model", "call", "asked", "until", "needed_usd", "short_by_usd"),
    *("choices", "answer", "answered", "who", "used", "data"),
)
OPEN, OVER = "open", "over"  # states beside the answers: it waits, or nobody has answered in time


def state_of(question: Question, now: datetime) -> str:
    """Say how a question stands: open, over, or its answer."""
    return question.answer or (OPEN if question.is_open(now) else OVER)


def record(question: Question, now: datetime) -> dict[str, object]:
    """Build the JSON object of a question."""
    q = question
    return {
        "id": q.id, "kind": q.kind, "state": state_of(q, now), "task": q.task, "user": q.user, "key": q.key,
        "model": q.model, "call": q.call, "asked": stamp(q.asked), "until": stamp(q.until),
        "needed_usd": dollars(q.needed), "short_by_usd": dollars(q.short_by),
        "choices": [{"answer": choice.answer, "usd": dollars(choice.usd)} for choice in q.choices],
        "answer": q.answer, "answered": None if q.answered is None else stamp(q.answered), "who": q.who,
        "used": None if q.used is None else stamp(q.used), "data": dict(q.data),
    }  # fmt: skip


def about(question: Question) -> str:
    """Say in a line what is asked, of whose call."""
    whose = "" if question.user is None else f" of {question.user}"
    call = f'task "{question.task}"{whose} asks for a call to {question.model}'
    if question.kind == LOOP:
        return f"{call}, and goes round in a circle{_figures(question.data)}"
    needed, short = said(question.needed), said(question.short_by)
    return f"{call}: it may cost up to {needed}, and the task's budget is short by {short}{_figures(question.data)}"


def price_of(choice: Choice) -> str:
    """Say what an answer does, and what it costs."""
    usd = "" if choice.usd is None else said(choice.usd)
    return {
        ONCE: f"allow it once, for up to {usd}" if usd else "allow it once",
        RAISE: f"raise the task's budget by {usd}" if usd else "raise the task's budget",
        REFUSE: "refuse it",
        CONTINUE: "let the task go on",
        STOP: "stop the task",
    }[choice.answer]


def unanswered(question: Question) -> str:
    """Say what becomes of the call where nobody answers."""
    if question.kind != LOOP:
        return "it is refused"
    return f"it goes on; {left_to_do(question)}"


def outcome(question: Question) -> str:
    """Say what an answer has done."""
    task = f'task "{question.task}"'
    return {
        ONCE: f"the call of {task} may go once, for up to {said(question.needed)}",
        RAISE: f"the budget of {task} is raised",
        REFUSE: f"the call of {task} is refused",
        CONTINUE: f"{task} goes on",
        STOP: f"{task} is stopped; `lockpin task resume` lets it go on",
    }[question.answer or REFUSE]


def _figures(data: Mapping[str, object]) -> str:
    """Write what else is known, where it is a word or a number each."""
    known = [f"{name.replace('_', ' ')} {value}" for name, value in data.items() if isinstance(value, str | int)]
    return f" ({', '.join(known)})" if known else ""

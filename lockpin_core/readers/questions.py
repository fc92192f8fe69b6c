"""Questions to a person in words and as records, as every view of them shows them. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from lockpin_core.clock import stamp
from lockpin_core.ledger.questions import CONTINUE, LOOP, ONCE, RAISE, REFUSE, STOP, Choice, Question, left_to_do
from lockpin_core.money import ZERO, Money
from lockpin_core.observers.loop import NEAR, REQUEST, TOOL
from lockpin_core.readers.figures import dollars, said

FIELDS = (
    *("id", "kind", "state", "task", "user", "key", "model", "call", "asked", "until", "needed_usd", "short_by_usd"),
    *("choices", "answer", "answered", "who", "used", "data"),
)
_LOOPS = {TOOL: "the same tool call", NEAR: "nearly the same tool call, without a result", REQUEST: "the same request"}
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
        return f"{call}, and goes round in a circle{_loop(question.data)}"
    needed, short = said(question.needed), said(question.short_by)
    return f"{call}: it may cost up to {needed}, and the task's budget is short by {short}{_account(question.data)}"


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
        RAISE: f"the budget of {task} is raised{_enough(question)}",
        REFUSE: f"the call of {task} is refused",
        CONTINUE: f"{task} goes on",
        STOP: f"{task} is stopped; `lockpin task resume {shlex.quote(question.task)}` lets it go on",
    }[question.answer or REFUSE]


def _enough(question: Question) -> str:
    """Say up to what a limit was raised, and whether the call fits it."""
    own = question.raised
    if own is None or own.limit is None:
        return ""
    kept = _amount(question.data.get("reserved_usd")) or ZERO  # what the call must leave free, as it was asked about
    lacking = question.needed - (own.limit - own.spent - own.held - kept)
    if lacking > ZERO:
        left = "so it is refused, unless it can be made smaller"
        return f" to {said(own.limit)}, but the call is still short by {said(lacking)}, {left}"
    return f" to {said(own.limit)}, and the call fits"


def _account(data: Mapping[str, object]) -> str:
    """Write how the task's budget stands, and what else is known of the call."""
    names = {"limit_usd": "limit", "spent_usd": "spent", "held_usd": "held", "reserved_usd": "kept for landing"}
    amounts = ((words, _amount(data.get(name))) for name, words in names.items())
    known = [f"{words} {said(amount)}" for words, amount in amounts if amount is not None]
    output = data.get("output_limit")
    more = [f"up to {output:,} tokens of output"] if isinstance(output, int) else []
    more += _each(data, ("client", "provider"))
    return _in_brackets([*([", ".join(known)] if known else []), *more])


def _loop(data: Mapping[str, object]) -> str:
    """Write what is repeated, how often, and which tools are called."""
    times, what, tools = data.get("repeats"), data.get("what"), data.get("tools")
    said_what = _LOOPS.get(what, what) if isinstance(what, str) else "the same"
    often = f": {said_what}, {times:,} times in a row" if isinstance(times, int) else ""
    names = [name for name in tools if isinstance(name, str)] if isinstance(tools, list | tuple) else []
    return often + _in_brackets([f"{'tool' if len(names) == 1 else 'tools'} {', '.join(names)}"] if names else [])


def _each(data: Mapping[str, object], names: Iterable[str]) -> Iterator[str]:
    return (f"{name} {data[name]}" for name in names if isinstance(data.get(name), str) and data[name])


def _amount(text: object) -> Money | None:
    """Read an amount of a question's figures; None: there is none."""
    return Money.parse(text) if isinstance(text, str) else None


def _in_brackets(parts: Iterable[str]) -> str:
    words = "; ".join(parts)
    return f" ({words})" if words else ""

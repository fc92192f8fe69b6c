"""The questions of a SQLite ledger: put, joined, answered, used. Knows their SQL.

The table is working state, from which an answer is read without a commit; each question and each answer is an event
besides, written in the same transaction. A line goes a day after its end.
"""

from __future__ import annotations

import json
import sqlite3
from datetime import timedelta
from typing import Any

from lockpin_core.call import Call, Payers
from lockpin_core.clock import instant, micros
from lockpin_core.errors import CommandError
from lockpin_core.ledger.accounts import Seat
from lockpin_core.ledger.allowances import GIVEN, Allowance, missing
from lockpin_core.ledger.chain import encode
from lockpin_core.ledger.columns import plain
from lockpin_core.ledger.frame import Frame
from lockpin_core.ledger.questions import ANSWERED, ASKED, Asking, Choice, Question, amount_of, joined
from lockpin_core.ledger.turns import Amounts, with_waiters
from lockpin_core.money import Money

KEPT = timedelta(days=1)

_COLUMNS = (
    *("id", "kind", "call", "digest", "task", "key", "user", "model", "asked", "until"),
    *("needed_nano", "short_nano", "choices", "data", "answer", "answered", "who", "used"),
)
_ALL = ", ".join(f'"{name}"' for name in _COLUMNS)
# Of an approval that nobody has answered: what has become of its call. Each by the rows' index for it.
_GONE = (
    "CASE WHEN questions.kind = 'loop' OR answer IS NOT NULL THEN NULL "
    "WHEN EXISTS (SELECT 1 FROM rows WHERE rows.call = questions.call AND rows.kind = 'hold') THEN 'hold' "
    "WHEN EXISTS (SELECT 1 FROM rows WHERE rows.call = questions.call AND rows.kind = 'refusal' "
    "AND rows.kind IN ('shrink', 'correction', 'refusal', 'uncapped')) THEN 'refusal' END"
)
_FOUND = f"{_ALL}, {_GONE}"
_ONE = f"SELECT {_FOUND} FROM questions WHERE id = ?"
_OF_DIGEST = (
    f"SELECT {_FOUND} FROM questions WHERE digest = ? AND task = ? ORDER BY asked DESC, length(id) DESC, id DESC"
)
_LOOPS = (
    f"SELECT {_FOUND} FROM questions WHERE kind = 'loop' AND answer IS NULL AND task = ? AND until > ? "
    "ORDER BY asked DESC, length(id) DESC, id DESC"
)
_SINCE = f"SELECT {_FOUND} FROM questions WHERE until > ? ORDER BY asked DESC, length(id) DESC, id DESC"
_PUT = f"INSERT INTO questions ({_ALL}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_ANSWER = "UPDATE questions SET answer = ?, answered = ?, who = ? WHERE id = ?"
_USE = "UPDATE questions SET used = ? WHERE id = ?"
_FORGET = "DELETE FROM questions WHERE until < ?"


def find(connection: sqlite3.Connection, question_id: str) -> Question | None:
    """Find a question by its id."""
    row = connection.execute(_ONE, (question_id,)).fetchone()
    return None if row is None else _question(row)


def open_loops(connection: sqlite3.Connection, payers: Payers, at: int) -> tuple[Question, ...]:
    """List the questions about loops that their calls wait for, newest first."""
    found = map(_question, connection.execute(_LOOPS, (payers.task, at)))
    return tuple(question for question in found if question.holds_up(payers))


def every(connection: sqlite3.Connection, at: int) -> list[Question]:
    """List the questions of the day before an instant, newest first."""
    since = at - KEPT // timedelta(microseconds=1)
    return [_question(tuple(row)) for row in connection.execute(_SINCE, (since,))]


def join(books: Frame, asking: Asking) -> Question | None:
    """Find the question that a call joins."""
    books.write()
    rows = books.connection.execute(_OF_DIGEST, (asking.digest, asking.call.payers.task)).fetchall()
    return joined(asking, [_question(row) for row in rows], books.now)


def put(books: Frame, asking: Asking) -> Question:
    """Put a question. Its id is the number of its event's row: short enough to be typed, and never given twice."""
    books.write()
    call, payers = asking.call, asking.call.payers
    question = Question(
        id=str(books.last_row() + 1), kind=asking.kind, call=call.id, digest=asking.digest, task=payers.task,
        key=payers.key, user=payers.user, model=call.model, asked=books.now, until=books.now + asking.patience,
        needed=asking.needed, short_by=asking.short_by, choices=asking.choices, data=asking.data,
    )  # fmt: skip
    books.connection.execute(_FORGET, (books.at - KEPT // timedelta(microseconds=1),))
    books.connection.execute(_PUT, _values(question))
    told: dict[str, object] = {
        "question": question.id, "kind": question.kind, "call": call.id, "until": micros(question.until),
        "needed_nano": asking.needed.nano, "short_nano": asking.short_by.nano, "model": call.model,
        "choices": _plain_choices(question), **({} if payers.user is None else {"user": payers.user}),
        **({} if payers.key is None else {"key": payers.key}),
    }  # fmt: skip
    books.event(ASKED, told, payers.task)
    return question


def answer(books: Frame, question_id: str, given: str, *, by: Money | None, who: str) -> tuple[Question, Money | None]:
    """Write down the answer to a question; give also by how much it raises the limit. Raises CommandError."""
    question = find(books.connection, question_id)
    if question is None:
        raise CommandError(f'no question "{question_id}"; `lockpin approvals list` shows them')
    amount = amount_of(question, given, by, books.now)
    books.connection.execute(_ANSWER, (given, books.at, who, question_id))
    told: dict[str, object] = {"question": question_id, "call": question.call, "answer": given, "who": who}
    told |= {} if amount is None else {"by_nano": amount.nano}
    books.event(ANSWERED, told, question.task)
    found = find(books.connection, question_id)
    assert found is not None, "a question that was just answered is gone"
    return found, amount


def allow(books: Frame, call: Call, seats: tuple[Seat, ...], question_id: str, ahead: Amounts) -> bool:
    """Let a call have what its task is short of, by a question that was answered "once", and say whether it fits now.

    Nothing is changed where it does not. `ahead` is what is set aside for those who wait, on other accounts: what the
    call is given is its own.
    """
    question = find(books.connection, question_id)
    if question is None or not question.lets_go(call, books.now):
        return False
    others = {name: amount for name, amount in ahead.items() if seats and name != seats[0].account}
    found = missing(call, question, with_waiters(books.balances.standings(seats), others))
    if found is None:
        return False
    standing, nano = found
    if nano:
        _, leaves = books.balances.raise_limit(seats[0], nano, once=True)
        books.allowances.put(call.id, Allowance(standing.account, nano, leaves))
        told: dict[str, object] = {
            "account": standing.account,
            "by_nano": nano,
            "call": call.id,
            "question": question_id,
        }
        told |= {"loosens": True, **({} if leaves is None else {"leaves_at": leaves})}
        books.event(GIVEN, told, call.payers.task)
    books.connection.execute(_USE, (books.at, question_id))
    return True


def _values(question: Question) -> tuple[object, ...]:
    q = question
    return (
        *(q.id, q.kind, q.call, q.digest, q.task, q.key, q.user, q.model, micros(q.asked), micros(q.until)),
        *(q.needed.nano, q.short_by.nano, encode(_plain_choices(q)), encode(plain(q.data)), None, None, None, None),
    )


def _plain_choices(question: Question) -> list[list[object]]:
    return [[choice.answer, None if choice.usd is None else choice.usd.nano] for choice in question.choices]


def _question(row: tuple[Any, ...]) -> Question:
    (name, kind, call, digest, task, key, user, model, asked, until, needed, short, choices, data) = row[:14]
    (given, answered, who, used, gone) = row[14:]
    return Question(
        id=name, kind=kind, call=call, digest=digest, task=task, key=key, user=user, model=model,
        asked=instant(asked), until=instant(until), needed=Money(needed), short_by=Money(short),
        choices=tuple(Choice(each, None if usd is None else Money(usd)) for each, usd in json.loads(choices)),
        data=json.loads(data), answer=given, answered=None if answered is None else instant(answered), who=who,
        used=None if used is None else instant(used), gone=gone,
    )  # fmt: skip

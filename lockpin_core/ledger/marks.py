"""What is remembered of conversations, so that each is treated in one way from call to call, in every process; and of
tasks, what their first calls were like.

It is working state and no book: it is in no chain. Marks go when nothing was added to them for a month; a conversation
is known by a digest. Knows the tables and how marks are laid over others; knows no mark's meaning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from lockpin_core.clock import micros
from lockpin_core.ledger.chain import encode
from lockpin_core.ledger.frame import Frame

KEPT_FOR = timedelta(days=30)
_DROPPED = 100  # that go with one change: no transaction is long for it

_READ = "SELECT marks FROM conversations WHERE id = ? AND at > ?"
_MARKED = "SELECT id FROM conversations WHERE at >= ? AND instr(marks, ?) ORDER BY at DESC LIMIT ?"
_MOST = 4096  # that are listed
_WRITE = (
    "INSERT INTO conversations (id, at, marks) VALUES (?, ?, ?) "
    "ON CONFLICT (id) DO UPDATE SET at = excluded.at, marks = excluded.marks"
)
_FORGET = "DELETE FROM conversations WHERE id = ?"
_PROFILE = "SELECT profile FROM profiles WHERE task = ?"
_KEEP_PROFILE = "REPLACE INTO profiles (task, at, profile) VALUES (?, ?, ?)"
_DROP = "DELETE FROM conversations WHERE id IN (SELECT id FROM conversations WHERE at <= ? ORDER BY at LIMIT ?)"

type Marks = Mapping[str, Any]
"""JSON-ready, by name; never text of a body."""


def laid_over(before: Marks, changes: Marks) -> dict[str, Any]:
    """Give marks with some of them changed; None takes one away."""
    return {name: value for name, value in {**before, **changes}.items() if value is not None}


def read(books: Frame, conversation: bytes) -> Marks:
    """Give what is remembered of a conversation."""
    found = books.connection.execute(_READ, (conversation, _oldest(books))).fetchone()
    return {} if found is None else json.loads(found[0])


def marked(books: Frame, name: str, since: int) -> tuple[list[bytes], int]:
    """List those that have a mark which is true, and were changed at `since` or later; and the time now."""
    told = (max(since, _oldest(books) + 1), _true(name), _MOST)
    return [found for (found,) in books.connection.execute(_MARKED, told)], books.at


def change(books: Frame, conversation: bytes, changes: Marks) -> None:
    """Remember more of a conversation, and drop some of what is too old."""
    after = laid_over(read(books, conversation), changes)
    if after:
        books.connection.execute(_WRITE, (conversation, books.at, encode(after)))
    else:
        books.connection.execute(_FORGET, (conversation,))
    books.connection.execute(_DROP, (_oldest(books), _DROPPED))


def profile(books: Frame, task: str) -> Marks:
    """Give what is remembered of a task's first calls."""
    found = books.connection.execute(_PROFILE, (task,)).fetchone()
    return {} if found is None else json.loads(found[0])


def keep_profile(books: Frame, task: str, profile: Marks) -> None:
    """Remember that of a task's first calls."""
    books.connection.execute(_KEEP_PROFILE, (task, books.at, encode(dict(profile))))


def _true(name: str) -> str:
    return encode({name: True})[1:-1]


def _oldest(books: Frame) -> int:
    return books.at - KEPT_FOR // timedelta(microseconds=1)


class MemoryMarks:
    """The same in a dict."""

    def __init__(self) -> None:
        self._marks: dict[bytes, tuple[int, Marks]] = {}
        self._profiles: dict[str, str] = {}

    def read(self, conversation: bytes, now: datetime) -> Marks:
        """See `read`."""
        at, marks = self._marks.get(conversation, (0, {}))
        return dict(marks) if at > micros(now - KEPT_FOR) else {}

    def marked(self, name: str, since: int, now: datetime) -> tuple[list[bytes], int]:
        """See `marked`."""
        since = max(since, micros(now - KEPT_FOR) + 1)
        found = [(at, key) for key, (at, marks) in self._marks.items() if at >= since and marks.get(name) is True]
        return [key for _, key in sorted(found, reverse=True)][:_MOST], micros(now)

    def change(self, conversation: bytes, changes: Marks, now: datetime) -> None:
        """See `change`."""
        after = laid_over(self.read(conversation, now), changes)
        self._marks[conversation] = micros(now), json.loads(encode(after))

    def profile(self, task: str) -> Marks:
        """See `profile`."""
        found: Marks = json.loads(self._profiles.get(task, "{}"))
        return found

    def keep_profile(self, task: str, profile: Marks) -> None:
        """See `keep_profile`."""
        self._profiles[task] = encode(dict(profile))

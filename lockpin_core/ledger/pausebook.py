"""The breaker and the pauses of a SQLite ledger: the rule in force, who is charged too fast, whose calls pause.

What is charged is added up from rows, those of other processes among them. Knows the SQL of `pauses` and where rules
stand in `meta`; each change is an event's row.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from lockpin_core.call import Payers
from lockpin_core.clock import micros
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger.backlog import Backlog
from lockpin_core.ledger.chain import encode
from lockpin_core.ledger.definitions import COMMAND, CONFIG
from lockpin_core.ledger.pauses import (
    BREAKER,
    DEFINED,
    KEPT_US,
    KEY,
    LOOP,
    REMOVED,
    RESET,
    RESUMED,
    STOPPED,
    TASK,
    TRIPPED,
    BreakerRule,
    BreakerState,
    Pause,
    Paused,
    Recent,
    Subject,
    chosen,
    loosens,
    read_rule,
    rule_terms,
    rule_words,
    subjects_named,
    subjects_of,
    told_of,
)
from lockpin_core.ledger.place import connect

_REMEMBERED = 256  # subjects whose last charges are kept in memory
_KNOWN = 4096  # subjects of whom it is known whether they pause

# One's own lines are found by the key of the table, however many others there are.
_OF_ONE = (
    "SELECT kind, since, until, since_row, data FROM pauses "
    "WHERE kind IN ('breaker', 'loop') AND scope = ? AND subject = ? AND \"user\" = ?"
)
_ALL = 'SELECT kind, scope, subject, "user", since, until, since_row, data FROM pauses ORDER BY 1, 2, 3, 4'
_TRIPPED = (
    'SELECT scope, subject, "user" FROM pauses WHERE kind = \'breaker\' AND until > ? ORDER BY scope, subject, "user"'
)
_STOPPED = "SELECT \"user\" FROM pauses WHERE kind = 'loop' AND scope = 'task' AND subject = ? ORDER BY \"user\""
_PUT = (
    'REPLACE INTO pauses (kind, scope, subject, "user", since, until, since_row, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?)'
)
_DROP = 'DELETE FROM pauses WHERE kind = ? AND scope = ? AND subject = ? AND "user" = ?'
_DROP_OLD = "DELETE FROM pauses WHERE until <= ?"  # of the breaker's alone: the others have no end
_RULE = "breaker."  # with its source behind: the name of a rule in `meta`
_CHARGED = "kind = 'charge' AND at >= ? AND +id > ? ORDER BY at, id"
_OF = {
    TASK: f"""SELECT id, at, usd FROM rows WHERE task = ? AND coalesce("user", '') = ? AND {_CHARGED}""",
    KEY: f"""SELECT id, at, usd FROM rows WHERE "key" = ? AND '' = ? AND {_CHARGED}""",
}
_LAST_ROW = "SELECT coalesce(max(id), 0) FROM rows"

type NoteEvent = Callable[[str, Mapping[str, object], str | None], None]  # code, data, task


@dataclass(slots=True)
class _Read:
    """What one was charged after a row, as far as rows were read."""

    since_row: int
    last_row: int
    last_at: int = 0
    recent: Recent = field(default_factory=Recent)


class PauseBook:
    """Pauses on one connection, inside its owner's transaction; `at` is the transaction's instant."""

    def __init__(self, connection: sqlite3.Connection, backlog: Backlog, note_event: NoteEvent) -> None:
        self.at = 0
        self._connection, self._backlog, self._note_event = connection, backlog, note_event
        self._pauses: dict[Subject, dict[str, Pause]] = {}  # by kind, of those that were asked for
        self._rules: dict[str, BreakerRule] = {}  # by source
        self._recent: dict[Subject, _Read] = {}

    def read_anew(self) -> None:
        """See what others may have changed."""
        before = self._rules
        self._pauses.clear()
        sql = "SELECT name, value FROM meta WHERE name IN (?, ?)"
        found = self._connection.execute(sql, (_RULE + CONFIG, _RULE + COMMAND)).fetchall()
        self._rules = {name.removeprefix(_RULE): read_rule(json.loads(value)) for name, value in found}
        if self._rules != before:
            self._recent.clear()

    def forget(self) -> None:
        """Drop what is remembered, when a transaction did not happen."""
        self._recent.clear()
        self._pauses.clear()

    def _of_one(self, subject: Subject) -> dict[str, Pause]:
        """Give one's own pauses by kind, those that are over among them."""
        found = self._pauses.get(subject)
        if found is None:
            if len(self._pauses) >= _KNOWN:
                self._pauses.clear()
            lines = self._connection.execute(_OF_ONE, subject)
            found = self._pauses[subject] = {kind: _pause(*line) for kind, *line in lines}
        return found

    @property
    def rule(self) -> BreakerRule | None:
        """Give the breaker's rule in force: a command's before a configuration's; None: there is none."""
        return self._rules.get(COMMAND) or self._rules.get(CONFIG)

    def rule_by(self, source: str) -> BreakerRule | None:
        """Give the rule that a configuration, or a command, has set."""
        return self._rules.get(source)

    def define(self, rule: BreakerRule | None, source: str, by: Mapping[str, str]) -> None:
        """Put a rule in force, or take it out of it, unless it is so already. `by`: who, or which configuration."""
        if self._rules.get(source) == rule:
            return
        before = self.rule
        if rule is None:
            del self._rules[source]
            self._connection.execute("DELETE FROM meta WHERE name = ?", (_RULE + source,))
        else:
            self._rules[source] = rule
            self._connection.execute("REPLACE INTO meta VALUES (?, ?)", (_RULE + source, encode(rule_terms(rule))))
        self._recent.clear()
        told: dict[str, object] = {"source": source, "loosens": loosens(before, self.rule), **by}
        if rule is None:
            self._note_event(REMOVED, told, None)
        else:
            self._note_event(DEFINED, {**told, **rule_terms(rule)}, None)

    def of(self, payers: Payers) -> Paused | None:
        """Say whether the calls of these payers pause, and for how long at the longest; None: they do not."""
        subjects = subjects_of(payers, (TASK, KEY))
        found = [(kind, one, pause) for one in subjects for kind, pause in self._of_one(one).items()]
        return chosen(self.at, found) if found else None

    def all(self) -> Iterator[Paused]:
        """Give everybody whose calls pause."""
        for kind, scope, name, user, *line in self._connection.execute(_ALL):
            pause = _pause(*line)
            if pause.is_on(self.at):
                yield told_of(self.at, kind, Subject(scope, name, user), pause)

    def charged(self, call: str, facts: Mapping[str, object], nano: int) -> tuple[Paused, ...]:
        """Take notice that a call was charged; give whose calls pause from now on."""
        rule = self.rule
        if rule is None or not nano:
            return ()
        task, user, key = str(facts["task"]), _text(facts.get("user")), _text(facts.get("key"))
        subjects = subjects_named(task, user, key, rule.scopes)
        return tuple(found for subject in subjects if (found := self._trip(subject, rule, call)) is not None)

    def _trip(self, subject: Subject, rule: BreakerRule, call: str) -> Paused | None:
        before = self._of_one(subject).get(BREAKER)
        if before is not None and before.is_on(self.at):
            return None
        total = self._total(subject, rule, 0 if before is None else before.since_row)
        if total <= rule.usd.nano:
            return None
        until = self.at + rule.cooldown_us
        figures = {"charged_nano": total, "usd_nano": rule.usd.nano, "window_us": rule.window_us}
        pause = self._put(BREAKER, subject, until, TRIPPED, figures, {"until": until, "call": call})
        self._drop_old()
        return told_of(self.at, BREAKER, subject, pause)

    def _total(self, subject: Subject, rule: BreakerRule, since_row: int) -> int:
        """Add up what was charged within the window, after a row."""
        self._backlog.write()
        horizon = self.at - rule.window_us
        read = self._recent.get(subject)
        if read is None or read.since_row != since_row:
            if len(self._recent) >= _REMEMBERED:
                self._recent.clear()
            read = self._recent[subject] = _Read(since_row, since_row)
        read.recent.pass_time(horizon)
        values = (subject.name, subject.user, max(horizon + 1, read.last_at), read.last_row)
        for row, at, usd in self._connection.execute(_OF[subject.scope], values).fetchall():
            read.last_row, read.last_at = row, at
            read.recent.add(at, usd)
        return read.recent.total

    def _put(
        self, kind: str, subject: Subject, until: int | None, code: str, data: Mapping[str, object],
        more: Mapping[str, object],
    ) -> Pause:  # fmt: skip
        """Write a pause and the event that says so; from its row on charges are counted anew."""
        self._note(code, subject, {**data, **more})
        pause = self._of_one(subject)[kind] = Pause(self.at, until, self._last_row(), data)
        values = (kind, *subject, pause.since, until, pause.since_row, encode(dict(data)))
        self._connection.execute(_PUT, values)
        self._recent.pop(subject, None)
        return pause

    def _note(self, code: str, subject: Subject, data: Mapping[str, object]) -> None:
        whose: dict[str, object] = {"scope": subject.scope, "subject": subject.name}
        whose |= {"user": subject.user} if subject.user else {}
        self._note_event(code, {**whose, **data}, subject.name if subject.scope == TASK else None)

    def _last_row(self) -> int:
        self._backlog.write()
        (last,) = self._connection.execute(_LAST_ROW).fetchone()
        return int(last)

    def _drop_old(self) -> None:
        """Take off breaker's pauses that mean nothing any more: whatever is counted now came after them."""
        self._connection.execute(_DROP_OLD, (self.at - KEPT_US,))
        self._pauses.clear()

    def reset(self, scope: str | None, name: str | None, *, who: str) -> list[Subject]:
        """End the breaker's pause of one subject, or of everybody; give whose. Charges are counted anew from now on."""
        pausing = [Subject(*line) for line in self._connection.execute(_TRIPPED, (self.at,)).fetchall()]
        found = [one for one in pausing if scope in (None, one.scope) and name in (None, one.name)]
        for subject in found:
            data = self._of_one(subject)[BREAKER].data
            self._put(BREAKER, subject, self.at, RESET, data, {"who": who, "loosens": True})
        return found

    def stop_task(self, task: str, *, user: str | None, who: str, data: Mapping[str, object] | None = None) -> bool:
        """Let a task's calls, of one user or of those without, pause until a person lets them go on.

        `data`: why, in figures; no text of a body. False: they pause already.
        """
        subject = Subject(TASK, task, user or "")
        if LOOP in self._of_one(subject):
            return False
        self._put(LOOP, subject, None, STOPPED, data or {}, {"who": who})
        return True

    def resume_task(self, task: str, *, who: str, user: str | None = None) -> bool:
        """Let a stopped task's calls go on: of one user ("": of those without), or None: everybody's.

        False: none of them was stopped.
        """
        users = [each for (each,) in self._connection.execute(_STOPPED, (task,)).fetchall() if user in (None, each)]
        found = [Subject(TASK, task, each) for each in users]
        for subject in found:
            self._pauses.pop(subject, None)
            self._connection.execute(_DROP, (LOOP, *subject))
            self._note(RESUMED, subject, {"who": who, "loosens": True})
        return bool(found)

    def conflict(self, rule: BreakerRule | None) -> str | None:
        """Say in what a configuration's breaker is another than the one that stands here; None: in nothing."""
        there = self._rules.get(CONFIG)
        return None if there == rule else f"breaker: {rule_words(there)} there and {rule_words(rule)} here"


def breaker_state(path: Path, now: datetime) -> BreakerState:
    """Read what a ledger says of its breaker, and whose calls pause at an instant, or at the last row's.

    Raises LedgerError where there is none, LedgerUnavailable where it cannot be read.
    """
    with contextlib.closing(connect(path, read_only=True)) as connection:
        try:
            connection.execute("BEGIN")
            book = PauseBook(connection, Backlog(connection), _no_event)
            (last,) = connection.execute("SELECT coalesce(max(at), 0) FROM rows").fetchone()
            book.at = max(micros(now), last)
            book.read_anew()
            return BreakerState(book.rule_by(COMMAND), book.rule_by(CONFIG), tuple(book.all()))
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"the ledger cannot be read: {error}") from error


def _pause(since: int, until: int | None, since_row: int, data: str) -> Pause:
    return Pause(since, until, since_row, json.loads(data))


def _no_event(code: str, data: Mapping[str, object], task: str | None) -> None:
    raise AssertionError("a reader writes nothing")


def _text(value: object) -> str | None:
    return None if value is None else str(value)

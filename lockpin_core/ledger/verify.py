"""Proves a SQLite ledger, or names the first thing in it that is wrong. Reads only, beside running proxies.

One read transaction sees one state of the file. The rows come first, as they lie there: a byte that was flipped must
be named and not stop the reading. Then come SQLite's own check of the file, and the tables that follow from the rows.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger.chain import encode
from lockpin_core.ledger.columns import FACT_NAMES
from lockpin_core.ledger.compare import differences, digest_of
from lockpin_core.ledger.expected import UNKNOWN, Now, Resolution, Spend, Wrong
from lockpin_core.ledger.pauses import KEY, TASK, Subject
from lockpin_core.ledger.place import connect
from lockpin_core.ledger.replay import OUTSIDE, Replay
from lockpin_core.ledger.tally import Name, shown
from lockpin_core.ledger.whose import WHO_NAMES, condition, not_on, value

SLICE = 2000  # rows that are read at once
_NAMED = 3  # accounts that a warning names
_FIRST = -(2**63)
_FACTS = ", ".join(f'"{name}"' for name in FACT_NAMES)
_RESOLUTION = (
    f"SELECT id, usd, tokens, accounts, {_FACTS} FROM rows "
    "WHERE call = ? AND kind IN ('charge', 'void') AND held_at = ? AND id < ?"
)
# The kinds as the index has them.
_CORRECTED = (
    "SELECT coalesce(sum(usd), 0), coalesce(sum(tokens), 0) FROM rows WHERE call = ? "
    "AND kind IN ('shrink', 'correction', 'refusal', 'uncapped') AND kind = 'correction' AND id < ?"
)
_WHO, _MISSED_WHO = (", ".join(f'{of}"{name}"' for name in WHO_NAMES) for of in ("", "m."))
# No earlier row is of a later instant.
_EARLIER = "at >= ? AND at <= ? AND +id < ?"
_SPENDS = (
    f"SELECT {_WHO}, usd, tokens, held_at FROM rows WHERE {{its}} AND kind IN ('charge', 'correction') AND {_EARLIER}"
)
_MISSED = f"""
WITH missed AS (
  SELECT call, {_WHO}, usd, tokens, held_at FROM rows
  WHERE {{its}} AND kind IN ('charge', 'void') AND {_EARLIER} AND +id > ? AND {not_on("accounts")})
SELECT {_WHO}, usd, tokens, held_at FROM missed
UNION ALL SELECT {_MISSED_WHO}, c.usd, c.tokens, m.held_at
FROM missed m CROSS JOIN rows c ON c.call = m.call AND c.kind IN ('shrink', 'correction', 'refusal', 'uncapped')
WHERE c.kind = 'correction' AND c.id < ? AND {not_on("c.accounts")}"""
_CHARGED = "kind = 'charge' AND at > ? AND at <= ? AND +id > ? AND +id < ? ORDER BY at, id"
_CHARGES = {
    TASK: f"""SELECT at, usd FROM rows WHERE task = ? AND coalesce("user", '') = ? AND {_CHARGED}""",
    KEY: f"""SELECT at, usd FROM rows WHERE "key" = ? AND '' = ? AND {_CHARGED}""",
}
_LAST_ROW = "SELECT id FROM rows WHERE writer = ? AND at < ? ORDER BY seq DESC LIMIT 1"
# A hold of a call that is still open is found with its row; of one that is resolved nothing is kept to compare with.
_SECOND_HOLD = (
    "SELECT call, max(id) FROM rows WHERE kind = 'hold' GROUP BY call HAVING count(*) > 1 ORDER BY max(id) LIMIT 1"
)

type Progress = Callable[[int, int], None]
"""Told how many rows were read, and of how many."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The first thing that is wrong. `row` None: it is in no row, but in what is kept beside them."""

    row: int | None
    call: str | None
    words: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was read, and whether it is right. Counts end where something is wrong."""

    rows: int
    calls: int
    writers: int
    accounts: int
    pruned_to: int  # rows up to here are not there any more; their sums were taken as they were written down
    warnings: tuple[str, ...]
    wrong: Finding | None


def verify(path: Path, progress: Progress | None = None) -> Verdict:
    """Check the whole ledger at one instant.

    Raises LedgerError where there is no ledger of this version, LedgerUnavailable where it cannot be read at all.
    """
    with contextlib.closing(connect(path, read_only=True)) as connection:
        try:
            connection.execute("BEGIN")
            return _Check(connection, progress).run()
        except sqlite3.Error as error:
            raise LedgerUnavailable(f"the ledger {path} cannot be read: {error}") from error


class _Check:
    """One run over one ledger."""

    def __init__(self, connection: sqlite3.Connection, progress: Progress | None) -> None:
        self._connection, self._progress = connection, progress
        self._replay = Replay(_Rows(connection))
        self._pruned_to, self._state_sha256 = 0, ""

    def run(self) -> Verdict:
        wrong = self._wrong()
        replay = self._replay
        done = replay.row - self._pruned_to - (wrong is not None and wrong.row == replay.row)
        counts = (max(done, 0), replay.calls, len(replay.ends), len(replay.accounts), self._pruned_to)
        warnings = () if wrong is not None else _warnings(replay, is_guarded=self._is_guarded())
        return Verdict(*counts, tuple(map(printable, warnings)), wrong)

    def _is_guarded(self) -> bool:
        """Say whether a row stands for what was taken out, where something was."""
        return not self._pruned_to or self._replay.taken_out is not None

    def _wrong(self) -> Finding | None:
        try:
            self._begin()
            self._read_rows()
            return self._second_hold() or self._damage() or self._difference()
        except Wrong as wrong:
            return Finding(wrong.row, _printable(wrong.call), printable(str(wrong)))
        except sqlite3.DatabaseError as error:
            return _damaged(str(error))  # what a row is compared with cannot be read

    def _begin(self) -> None:
        """Go on from where rows were taken out."""
        try:
            found = self._connection.execute("SELECT rows_to, state FROM checkpoint").fetchone()
            if found is not None:
                state = json.loads(found[1])
                self._replay = Replay.of(state, _Rows(self._connection, found[0], state["at"]))
                if self._replay.row != found[0]:
                    raise ValueError("another row than it says")
                self._pruned_to = found[0]
                self._state_sha256 = digest_of(found[1])
        except (sqlite3.DatabaseError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise Wrong(0, f"the checkpoint that stands for the rows taken out cannot be read: {error}") from error

    def _read_rows(self) -> None:
        """Replay every row. The columns come in the order in which a row's content is hashed, the others behind."""
        columns = sorted(column[1] for column in self._connection.execute("PRAGMA table_info(rows)"))
        names = tuple(name for name in columns if name not in OUTSIDE)
        step, done = self._replay.step, 0
        total = self._last_row() - self._pruned_to
        for rows in self._slices(", ".join(f'"{name}"' for name in (*names, *OUTSIDE))):
            for row in rows:
                content = {name: value for name, value in zip(names, row, strict=False) if value is not None}
                step(row[-3], row[-2], row[-1], content)
            done += len(rows)
            if self._progress is not None:
                self._progress(done, max(total, done))

    def _last_row(self) -> int:
        try:
            (last,) = self._connection.execute("SELECT coalesce(max(id), 0) FROM rows").fetchone()
        except sqlite3.DatabaseError:
            return 0  # the pages on the way there are damaged: reading the rows will say where
        return int(last)

    def _slices(self, columns: str) -> Iterator[list[tuple[Any, ...]]]:
        after = _FIRST
        sql = f"SELECT {columns} FROM rows WHERE id > ? ORDER BY id"
        while True:
            try:
                rows = self._connection.execute(f"{sql} LIMIT {SLICE}", (after,)).fetchall()
            except sqlite3.DatabaseError:
                yield from self._carefully(sql, after)
                return
            if not rows:
                return
            yield rows
            after = rows[-1][-3]

    def _carefully(self, sql: str, after: int) -> Iterator[list[tuple[Any, ...]]]:
        """Read one by one where reading many has failed: text that is no UTF-8, or a page that is none."""
        self._connection.text_factory = _as_it_is
        last = self._replay.row
        try:
            for row in self._connection.execute(sql, (after,)):
                yield [row]
                last = row[-3]
        except sqlite3.DatabaseError as error:
            raise Wrong(last + 1, f"it cannot be read: {error}") from error

    def _second_hold(self) -> Finding | None:
        found = self._connection.execute(_SECOND_HOLD).fetchone()
        if found is None:
            return None
        call, row = found
        words = printable(f"row {row} (hold of call {call}): its call has a hold already")
        return Finding(row, _printable(call), words)

    def _damage(self) -> Finding | None:
        """Let SQLite check the file itself: pages, indexes, constraints."""
        try:
            (answer,) = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
        except sqlite3.DatabaseError as error:
            answer = str(error)
        return None if answer == "ok" else _damaged(answer)

    def _difference(self) -> Finding | None:
        self._connection.text_factory = _as_it_is
        checkpoint = (self._pruned_to, self._state_sha256) if self._pruned_to else None
        found = next(differences(self._connection, self._replay, checkpoint), None)
        return None if found is None else Finding(found.row, _printable(found.call), printable(found.words))


class _Rows:
    """Asks the ledger about rows that were replayed already. Of those that were taken out nothing can be known."""

    def __init__(self, connection: sqlite3.Connection, taken_to: int = 0, taken_at: int = _FIRST) -> None:
        self._connection, self.taken_to, self._taken_at = connection, taken_to, taken_at

    def resolution(self, call: str, held_at: int, told: int | None, row: int) -> Resolution | None:
        """See Earlier."""
        found = self._connection.execute(_RESOLUTION, (call, held_at, row)).fetchone()
        if found is None:
            was_there = self.taken_to and (told is None or told <= self.taken_to)
            return UNKNOWN if was_there else None
        if told is not None and told != found[0]:
            return None
        usd, tokens = self._connection.execute(_CORRECTED, (call, row)).fetchone()
        accounts = tuple(json.loads(found[3]))
        return Resolution(found[0], found[1] + usd, found[2] + tokens, accounts, tuple(found[4:]))

    def spends(self, whose: Name, since: int | None, now: Now) -> Iterable[Spend] | None:
        """See Earlier."""
        if self.taken_to and (since is None or since <= self._taken_at):
            return None
        row, at = now
        values = (value(whose.scope, whose.subject), _FIRST if since is None else since, at, row)
        return self._connection.execute(_SPENDS.format(its=condition(whose.scope)), values)

    def missed(self, whose: Name, since: int | None, after: int, account: str, now: Now) -> Iterable[Spend] | None:
        """See Earlier."""
        if after < self.taken_to and (since is None or since <= self._taken_at):
            return None
        listed, (row, at) = encode(account), now
        times = (_FIRST if since is None else since, at, row)
        values = (value(whose.scope, whose.subject), *times, after, listed, row, listed)
        return self._connection.execute(_MISSED.format(its=condition(whose.scope)), values)

    def charges(self, whose: Subject, after_at: int, after_row: int, now: Now) -> Iterable[tuple[int, int]] | None:
        """See Earlier."""
        if self.taken_to and after_at < self._taken_at:
            return None
        row, at = now
        return self._connection.execute(_CHARGES[whose.scope], (whose.name, whose.user, after_at, at, after_row, row))

    def last_row(self, writer: str, at: int) -> int | None:
        """See Earlier."""
        found = self._connection.execute(_LAST_ROW, (writer, at)).fetchone()
        if found is None:
            return None if self.taken_to else 0
        return int(found[0])


def _as_it_is(text: bytes) -> str:
    """Read bytes that may be no UTF-8 any more, so that no two of them read alike."""
    return text.decode("utf-8", "surrogateescape")


def _damaged(words: str) -> Finding:
    return Finding(None, None, f"the file is damaged: {' '.join(words.split())}")


def printable(text: str) -> str:
    """Write what is no UTF-8 so that it can be printed."""
    return text.encode("utf-8", "backslashreplace").decode()


def _printable(text: str | None) -> str | None:
    return None if text is None else printable(text)


def _warnings(replay: Replay, *, is_guarded: bool) -> tuple[str, ...]:
    warnings = []
    if not is_guarded:
        warnings.append(
            "no row guards the sums of the rows that were taken out: an earlier version did that; "
            "the next `lockpin ledger prune` writes one"
        )
    if replay.unjudged:
        calls = "1 call is" if replay.unjudged == 1 else f"{replay.unjudged:,} calls are"
        warnings.append(f"{calls} of an earlier version, which says less: which accounts they are on was not judged")
    if replay.over_hold:
        calls = "1 call was" if replay.over_hold == 1 else f"{replay.over_hold:,} calls were"
        warnings.append(f"{calls} charged above the hold")
    over = replay.over_limit()
    warnings += [f"{shown(name)} is above its limit now, by what was charged or corrected" for name in over[:_NAMED]]
    if len(over) > _NAMED:
        warnings.append(f"{len(over) - _NAMED:,} more accounts are above their limits")
    return tuple(warnings)

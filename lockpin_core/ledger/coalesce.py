"""Keeps a flood of refusals from being a flood of rows: past 100 a second and task they are one row with a number.

Of strangers, who cost whoever sends them nothing, it is past the first one a second.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lockpin_core.call import Refusal
from lockpin_core.ledger.protocol import CallNote
from lockpin_core.refusals import STRANGERS

ROWS_A_SECOND = 100
STRANGERS_A_SECOND = 1  # of those of whom nobody knows who they are, of each code


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal to write down, standing for `count` of them."""

    note: CallNote
    refusal: Refusal
    count: int = 1


class Coalescer:
    """Counts the refusals of the running second by task, or by code; the surplus waits for the second's end."""

    def __init__(self) -> None:
        self._second: int | None = None
        self._rows: dict[tuple[bool, str], int] = {}
        self._surplus: dict[tuple[str, str], Refused] = {}

    @property
    def is_waiting(self) -> bool:
        """Say whether a surplus is not written yet."""
        return bool(self._surplus)

    def add(self, refused: Refused, second: int) -> list[Refused]:
        """Take one refusal in and give what is to be written now."""
        due = self.turn(second)
        key = task, code = refused.note.payers.task, refused.refusal.code
        is_stranger = code in STRANGERS
        counted = (is_stranger, code if is_stranger else task)
        rows = self._rows[counted] = self._rows.get(counted, 0) + 1
        if rows <= (STRANGERS_A_SECOND if is_stranger else ROWS_A_SECOND):
            return [*due, refused]
        before = self._surplus.get(key)
        self._surplus[key] = refused if before is None else replace(before, count=before.count + 1)
        return due

    def turn(self, second: int) -> list[Refused]:
        """Give the surplus of a second that is over."""
        if second == self._second:
            return []
        self._second = second
        self._rows.clear()
        return self.flush()

    def flush(self) -> list[Refused]:
        """Give the whole surplus."""
        due = list(self._surplus.values())
        self._surplus.clear()
        return due

"""Ledger time: the wall clock, which never steps back here. Pure: both clocks are given.

Where the wall clock is behind the last row, because it was ahead before, ledger time goes on from that row at half the
speed of the clock that never steps, until the wall clock has caught up. Standing still would be simpler; but then no
window would end for as long, a pause would last, and charges of hours would look like a burst. At half the speed it is
caught up with, and whatever lasts a while lasts no shorter than it should, and no more than twice as long.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from lockpin_core.clock import Clock, instant, micros
from lockpin_core.ledger.pulse import Ticks

_NOTHING = timedelta(0)


def stands_still() -> float:
    """Be a clock by which no time passes: for who writes once and is gone."""
    return 0.0


class LedgerTime:
    """That of one process. `steady` is the clock that never steps, in seconds."""

    def __init__(self, steady: Ticks = stands_still) -> None:
        self.steady = steady
        self._row = (0, 0)  # an instant that a row has, and when it was there by the steady clock, in microseconds
        self._begun = (0, 0)  # those of the last transaction

    def begin(self, wall: int, last: int) -> int:
        """Give the instant of a transaction that begins now; `last` is that of the last row."""
        steady = self._look(last)
        self._begun = self._at(wall, last, steady), steady
        return self._begun[0]

    def now(self, wall: datetime, last: int) -> int:
        """Say between transactions what it is."""
        return self._at(micros(wall), last, self._look(last))

    def _look(self, last: int) -> int:
        """Read the steady clock, and take notice of which row is the last."""
        steady = int(self.steady() * 1_000_000)
        row = (last, self._begun[1] if last == self._begun[0] else steady)
        if _gone_on(row, steady) > _gone_on(self._row, steady):
            self._row = row
        return steady

    def _at(self, wall: int, last: int, steady: int) -> int:
        return wall if wall >= last else max(last, _gone_on(self._row, steady))


class MemoryTime:
    """The same where nothing is kept but the last instant."""

    def __init__(self, clock: Clock, steady: Ticks) -> None:
        self._clock, self._last, self._time = clock, datetime.min.replace(tzinfo=UTC), LedgerTime(steady)

    def read(self) -> datetime:
        """Give ledger time now."""
        wall = self._clock()
        if wall != self._last:
            self._last = instant(self._time.begin(micros(wall), micros(self._last)))
        return self._last

    def ahead_us(self) -> int:
        """Say by how many microseconds it is ahead of the wall clock."""
        return max(0, micros(self._last) - micros(self._clock()))


def _gone_on(row: tuple[int, int], steady: int) -> int:
    return row[0] + (steady - row[1]) // 2


def time_left(until: datetime, at: datetime, ahead: timedelta) -> timedelta:
    """Say how long it is, at the longest, until ledger time has come to an instant; `ahead`: of the wall clock."""
    left = until - at
    return left if ahead <= _NOTHING else min(2 * left, left + ahead)

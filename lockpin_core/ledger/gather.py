"""Gathers what an event loop asks of the ledger, so that calls that run at once share a commit. Knows no ledger.

There is no timer: operations are handed over as soon as the loop has nothing more to add, which for a call alone is
at once. While the loop is busy with other calls, those are about to ask as well.
"""

from __future__ import annotations

from collections.abc import Callable

from lockpin_core.clock import monotonic_s

QUIET_TURNS = 2  # a task that was woken by what a turn read runs in the next one
MOST = 64
LONGEST_S = 0.002

type Soon = Callable[[Callable[[], None]], bool]  # do this on the loop's next turn; False: not from here


class Gatherer[T]:
    """Holds back operations for some turns of the loop; used from the loop's thread alone."""

    def __init__(
        self, soon: Soon, hand_over: Callable[[list[T]], None], ticks: Callable[[], float] = monotonic_s
    ) -> None:
        self._soon, self._hand_over, self._ticks = soon, hand_over, ticks
        self._waiting: list[T] = []
        self._since_s = 0.0
        self._seen = self._quiet = 0

    def add(self, operation: T) -> bool:
        """Take an operation; False: this is not the loop's thread, or the loop has ended."""
        if not self._waiting:
            if not self._soon(self._look):
                return False
            self._since_s, self._seen, self._quiet = self._ticks(), 1, 0
        self._waiting.append(operation)
        return True

    def _look(self) -> None:
        count = len(self._waiting)
        self._quiet = self._quiet + 1 if count == self._seen else 0
        self._seen = count
        is_due = self._quiet >= QUIET_TURNS or count >= MOST or self._ticks() - self._since_s >= LONGEST_S
        if count and (is_due or not self._soon(self._look)):
            self.release()

    def release(self) -> None:
        """Hand over what is there."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._hand_over(waiting)

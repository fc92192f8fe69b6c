"""For how long calls have waited: for room, or for a person's answer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from lockpin_core.clock import Clock, monotonic_s

NO_TIME = timedelta(0)


class Waits:
    """For how long calls have waited, by call: each until somebody says that it is decided.

    The wall clock may be set back meanwhile: then the clock that never steps says it.
    """

    def __init__(self, clock: Clock, ticks: Callable[[], float] = monotonic_s) -> None:
        self._clock, self._ticks = clock, ticks
        self._before: dict[str, timedelta] = {}
        self._since: dict[str, tuple[datetime, float]] = {}

    @contextlib.contextmanager
    def counting(self, call_id: str) -> Iterator[None]:
        """Count the time that a block takes."""
        self._since[call_id] = self._clock(), self._ticks()
        try:
            yield
        finally:
            self._before[call_id] = self._so_far(call_id)
            self._since.pop(call_id, None)

    def waited_ms(self, call_id: str) -> int:
        """Give what a call has waited so far, in whole milliseconds; 0: it has not, or was forgotten."""
        return self._so_far(call_id) // timedelta(milliseconds=1)

    def forget(self, call_id: str) -> None:
        """Drop what is known of a call, which is decided."""
        self._before.pop(call_id, None)

    def _so_far(self, call_id: str) -> timedelta:
        before, since = self._before.get(call_id, NO_TIME), self._since.get(call_id)
        if since is None:
            return before
        began, began_s = since
        return before + max(self._clock() - began, timedelta(seconds=self._ticks() - began_s))

"""Remembers which calls were refused for good, so that the same call sent again neither waits nor asks (SPEC §8)."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime, timedelta

LATCHED = timedelta(minutes=10)
_MOST = 4096


class Latch:
    """Digests of refused calls and when they were refused; the oldest go first."""

    def __init__(self) -> None:
        self._refused: OrderedDict[bytes, datetime] = OrderedDict()

    def close(self, call: bytes, now: datetime) -> None:
        """Take note of a final refusal."""
        self._refused[call] = now
        self._refused.move_to_end(call)
        if len(self._refused) > _MOST:
            self._refused.popitem(last=False)

    def is_closed(self, call: bytes, now: datetime) -> bool:
        """Say whether the same call was refused for good a short while ago; not so if the clock was set back since."""
        since = self._refused.get(call)
        return since is not None and timedelta(0) <= now - since <= LATCHED

"""Which processes with calls that wait are awake: each touches its lock's file while it has some. Knows no books.

A stopped process keeps its lock, and so its holds, which nobody else may settle; but it can take no turn, and whoever
stands behind it need not wait for it. Passing it is a matter of order alone: what fits is decided in the transaction of
a hold, which a process that goes on begins anew. The times are those of the clock that never steps, which is the same
for all processes of a machine and stands still while the machine sleeps.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from lockpin_core.clock import monotonic_s

BEAT_S = 0.25
LOOK_S = 0.1  # so long one that was seen awake counts as awake
ASLEEP_S = 3.0  # long enough for one that waits for a busy disk, short beside any patience

type Ticks = Callable[[], float]  # seconds of a clock that never steps


class Pulse:
    """That of one writer, and how others' are seen; `folder` is that of the locks."""

    def __init__(self, folder: Path, writer: str, ticks: Ticks = monotonic_s) -> None:
        self._folder, self._ticks = os.fspath(folder), ticks  # plain text: it is looked at 40 times a second
        self._path = folder / writer
        self._beaten_s: float | None = None
        self._awake: dict[str, float] = {}  # until when

    def beat(self) -> None:
        """Show that this process is awake; at once or, where that was shown a moment ago, not again."""
        now_s = self._ticks()
        if self._beaten_s is not None and now_s - self._beaten_s < BEAT_S:
            return
        at = int(now_s * 10**9)
        with contextlib.suppress(OSError):  # without its lock it is taken for dead, which the writer sees to
            os.utime(self._path, ns=(at, at))
            self._beaten_s = now_s

    def is_asleep(self, writer: str) -> bool:
        """Say whether a writer whose calls wait has shown nothing for a while; in doubt it is awake."""
        now_s = self._ticks()
        if now_s < self._awake.get(writer, now_s):
            return False
        self._awake.pop(writer, None)
        try:
            beaten = os.stat(f"{self._folder}/{writer}").st_mtime_ns  # noqa: PTH116
        except FileNotFoundError:
            return True
        except OSError:
            return False
        if now_s - beaten / 10**9 >= ASLEEP_S:
            return True
        self._awake[writer] = min(now_s + LOOK_S, beaten / 10**9 + ASLEEP_S)
        return False

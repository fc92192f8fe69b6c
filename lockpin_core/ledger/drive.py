"""What makes a writer of a ledger go on: a thread of its own, or whoever plays time itself. Knows no ledger."""

from __future__ import annotations

import threading
from typing import Protocol


class Steps(Protocol):
    """What has to be done again and again, by one thread: `begin`, `step` until `is_stopping`, `finish`, `abandon`."""

    is_stopping: bool

    def begin(self) -> None:
        """Do what comes before anything else."""

    def patience_s(self) -> float:
        """Say when there is something to do at the latest, though nobody asks."""

    def step(self, patience_s: float) -> None:
        """Wait so long for what is to do, and do it."""

    def finish(self) -> None:
        """Do what is left."""

    def abandon(self) -> None:
        """Close, whatever has happened."""


class Drive(Protocol):
    """Makes one writer work."""

    def start(self, steps: Steps) -> None:
        """Let it begin."""

    def wake(self) -> None:
        """Something is to do. From any thread."""

    def join(self) -> None:
        """Wait for its end, which it was told of."""


class InThread:
    """A thread that waits by itself for what is to do."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def start(self, steps: Steps) -> None:
        """See Drive."""
        self._thread = threading.Thread(target=_work, args=(steps,), name="lockpin-ledger", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """See Drive."""

    def join(self) -> None:
        """See Drive."""
        if self._thread is not None:
            self._thread.join()


def _work(steps: Steps) -> None:
    try:
        steps.begin()
        while not steps.is_stopping:
            steps.step(steps.patience_s())
        steps.finish()
    finally:
        steps.abandon()

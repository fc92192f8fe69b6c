"""Who watches for questions: each watcher touches a file of its own beside the ledger. Knows no books and no questions.

Nothing of it is in the database, and no clock that steps has a say: the times are those of the clock that never steps,
the same for all processes of a machine. So a watcher that was killed or stopped is gone ten seconds later, and a file
from before the machine was started anew is nobody's.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from lockpin_core.clock import monotonic_s
from lockpin_core.errors import LedgerError
from lockpin_core.ledger.place import real
from lockpin_core.ledger.pulse import Ticks

BEAT_S = 1.0
GONE_S = 10.0
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600


def folder_of(ledger: Path) -> Path:
    """Give the folder of the watchers' files; the ledger's real place counts."""
    place = real(ledger)
    return place.with_name(f"{place.name}.watchers")


def watching(ledger: Path, ticks: Ticks = monotonic_s) -> int:
    """Say how many watch."""
    return watching_in(folder_of(ledger), ticks)


def watching_in(folder: Path, ticks: Ticks = monotonic_s) -> int:
    """Say the same of the folder of a ledger: it is looked at for every call."""
    try:
        with os.scandir(folder) as entries:
            return sum(_is_there(entry, _ns(ticks())) for entry in entries)
    except OSError:
        return 0


class Watcher:
    """One who watches, while the block runs and `beat` is called at least every few seconds."""

    def __init__(self, ledger: Path, watcher: str, ticks: Ticks = monotonic_s) -> None:
        self._folder, self._ticks = folder_of(ledger), ticks
        self._path = self._folder / watcher
        self._beaten_s: float | None = None

    def __enter__(self) -> Self:
        """Raises LedgerError where no file can be made beside the ledger."""
        try:
            self._folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
            self._sweep()
            self._touch()
        except OSError as error:
            why = error.strerror or str(error)
            raise LedgerError(
                f"the file {self._path}, by which proxies see who watches, cannot be made: {why}"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # what stays is nobody's a few seconds later
            self._path.unlink()

    def beat(self) -> None:
        """Show that somebody watches still; at once or, where that was shown a moment ago, not again."""
        if self._beaten_s is None or self._ticks() - self._beaten_s >= BEAT_S:
            with contextlib.suppress(OSError):  # the next beat may work
                self._touch()

    def _touch(self) -> None:
        """Make the file anew where it was swept away while this process was stopped."""
        now_s = self._ticks()
        at = _ns(now_s)
        descriptor = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, _FILE_MODE)
        try:
            os.utime(descriptor, ns=(at, at))
        finally:
            os.close(descriptor)
        self._beaten_s = now_s

    def _sweep(self) -> None:
        """Remove the files of watchers that are gone."""
        with os.scandir(self._folder) as entries:
            for entry in entries:
                if not _is_there(entry, _ns(self._ticks())):
                    with contextlib.suppress(OSError):
                        Path(entry.path).unlink()


def _is_there(entry: os.DirEntry[str], now_ns: int) -> bool:
    try:
        beaten_ns = entry.stat(follow_symlinks=False).st_mtime_ns
    except OSError:
        return False
    return 0 <= now_ns - beaten_ns < _ns(GONE_S)


def _ns(seconds: float) -> int:
    return int(seconds * 10**9)

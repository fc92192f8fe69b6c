"""Copies a SQLite ledger while proxies run, and gives back the space of what was taken out. Knows no rows.

The copy is one instant of the ledger: a read transaction stands behind it, so that no commit of a running proxy makes
it begin anew. It gets its name when it is whole.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lockpin_core.clock import NewId
from lockpin_core.errors import CommandError, LedgerUnavailable
from lockpin_core.ledger.liveness import Liveness
from lockpin_core.ledger.place import connect, open_ledger, real
from lockpin_core.ledger.verify import Verdict, verify

PAGES = 512  # that are copied at once
_OURS_ONLY = 0o600
_ASIDE = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a file while it is open

type Progress = Callable[[int, int], None]
"""Told how much is done, and of how much."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A backup, and what a check of it has found."""

    path: Path
    size_bytes: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """How large the ledger was and is, its log counted."""

    before_bytes: int
    after_bytes: int


def backup(
    ledger: Path, wanted: Path | None, *, now: datetime, new_id: NewId, progress: Progress | None = None
) -> Copy:
    """Copy the ledger to a file that is not there yet, readable by its owner alone; then verify the copy.

    `wanted` None: beside the ledger; a folder: in it; both under a name with the instant. A copy in which something is
    wrong stays, with its verdict: the ledger itself is wrong then. Raises CommandError for a place that cannot be.
    """
    path = _reserved(real(ledger), wanted, now)
    draft = path.with_name(f".{path.name}.{new_id()}")
    try:
        _copy(ledger, draft, progress)
        verdict = verify(draft)
        draft.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise CommandError(f"the backup {path} cannot be written: {error.strerror}; name another place") from error
    finally:
        with contextlib.suppress(OSError):  # the folder may be gone meanwhile
            _remove_aside(draft)
            draft.unlink(missing_ok=True)
            if path.stat().st_size == 0:
                path.unlink()
    return Copy(path, path.stat().st_size, verdict)


def vacuum(ledger: Path, *, new_id: NewId) -> Vacuumed:
    """Write the file anew without its empty pages. Raises CommandError while a proxy runs on it."""
    path = real(ledger)
    before = _size(path)
    with contextlib.closing(open_ledger(ledger, durability="full", new_id=new_id)) as connection:
        running = _running(ledger)
        if running:
            words = "a proxy runs" if running == 1 else f"{running} proxies run"
            raise CommandError(f"{words} on {ledger}; vacuum needs the ledger for itself: stop, vacuum, start again")
        with _unavailable("cannot be vacuumed"):
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Vacuumed(before, _size(path))


def _running(ledger: Path) -> int:
    liveness = Liveness(ledger)
    return sum(liveness.is_alive(writer) for writer in liveness.others())


def _named(ledger: Path, wanted: Path | None, now: datetime) -> Path:
    name = f"{ledger.stem}.backup-{now.astimezone(UTC):%Y-%m-%dT%H%M%SZ}{ledger.suffix}"
    if wanted is None:
        return ledger.with_name(name)
    return wanted / name if wanted.is_dir() else wanted


def _reserved(ledger: Path, wanted: Path | None, now: datetime) -> Path:
    """Make the empty file, so that nobody else's is overwritten. Raises CommandError."""
    path = wanted or ledger
    try:
        path = _named(ledger, wanted, now)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _OURS_ONLY))
    except FileExistsError as error:
        raise CommandError(f"{path} is there already, and a backup overwrites nothing; name another file") from error
    except OSError as error:
        raise CommandError(f"the backup {path} cannot be written: {error.strerror}; name another place") from error
    return path


def _copy(ledger: Path, draft: Path, progress: Progress | None) -> None:
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _OURS_ONLY))
    source = contextlib.closing(connect(ledger, read_only=True))
    target = contextlib.closing(sqlite3.connect(draft, isolation_level=None))
    with source as books, target as copy, _unavailable("cannot be copied"):
        books.execute("BEGIN")
        books.execute("SELECT 1 FROM rows LIMIT 1").fetchone()  # from here on it is this instant
        books.backup(copy, pages=PAGES, progress=_told(progress))


def _told(progress: Progress | None) -> Callable[[int, int, int], None] | None:
    if progress is None:
        return None
    return lambda status, left, total: progress(total - left, total)


def _remove_aside(path: Path) -> None:
    """Remove what a reader leaves beside a file that nobody writes: the log of it is empty."""
    for ending in _ASIDE:
        path.with_name(path.name + ending).unlink(missing_ok=True)


def _size(path: Path) -> int:
    log = path.with_name(path.name + "-wal")
    return sum(each.stat().st_size for each in (path, log) if each.exists())


def _sync(folder: Path) -> None:
    """Bring the new name to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # not every file system can
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _unavailable(what: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise LedgerUnavailable(f"the ledger {what}: {error}") from error

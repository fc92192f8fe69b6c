"""Which writers of a SQLite ledger run: each holds a lock of the kernel on a file of its own. Knows no books.

The system frees the lock when the process ends, however it ends, and keeps it while the process is stopped or the
machine sleeps; no clock and no process id has a say. A file gets its name only once it is locked, so what has a name
and no lock is dead. Descriptors are not passed on to programs that we start (Python opens them so); a bare fork after
`join` would share the lock and live for us, so nothing here forks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from pathlib import Path
from types import TracebackType
from typing import Self

from lockpin_core.errors import LedgerError, LedgerUnavailable
from lockpin_core.ledger.place import real

_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
_ID = re.compile("[A-Za-z0-9-]+")


class Claim:
    """A dead writer, ours to settle while the block runs; at its end the file goes, unless the block failed.

    `had_file`: False where there was no file to lock. Then others may hold such a claim too, and the ledger's own
    transaction must decide who comes first.
    """

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self.writer, self.had_file = path.name, descriptor is not None
        self._path, self._descriptor = path, descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if error is None:
            _remove(self._path, descriptor)
        os.close(descriptor)


class Liveness:
    """The locks beside one ledger: ours, and what can be known of the others.

    The ledger's real place counts, so that two names of one ledger lead to one folder of locks.
    """

    def __init__(self, ledger: Path) -> None:
        place = real(ledger)
        self.folder = place.with_name(f"{place.name}.writers")
        self._path = self.folder
        self._descriptor: int | None = None

    def join(self, writer: str) -> None:
        """Make and lock our file. Raises LedgerError with one clear line."""
        assert self._descriptor is None, "joined already"
        path = self._path_of(writer)
        try:
            self._descriptor = self._make(path)
        except OSError as error:
            raise LedgerError(
                f"the lock {path} cannot be made: {_why(error)}; each proxy needs one beside its ledger, "
                "on a local disk, in a folder that it may write to"
            ) from error
        self._path = path

    def leave(self) -> None:
        """Remove our file and free the lock; a second time, or without a lock, do nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            _remove(self._path, descriptor)
            os.close(descriptor)

    def is_ours(self) -> bool:
        """Say whether our file is where others look for it. Where it is not, they take us for dead."""
        return self._descriptor is not None and _names(self._path, self._descriptor)

    def restore(self) -> None:
        """Make our file again where it was removed.

        Others may have acted on its absence, so what we know of our open holds has to be read again after this.
        Raises LedgerUnavailable while it cannot be made.
        """
        assert self._descriptor is not None, "not joined"
        if self.is_ours():
            return
        try:
            again = self._make(self._path)
        except OSError as error:
            raise LedgerUnavailable(f"the lock {self._path} is gone and cannot be made again: {_why(error)}") from error
        os.close(self._descriptor)
        self._descriptor = again

    def others(self) -> list[str]:
        """Give the ids of the files beside ours, sorted; none where the folder is missing or cannot be read."""
        try:
            names = os.listdir(self.folder)  # noqa: PTH208 - names are all that is wanted
        except OSError:
            return []
        ours = self._path.name if self._descriptor is not None else None
        return sorted(name for name in names if _ID.fullmatch(name) and name != ours)

    def is_alive(self, writer: str) -> bool:
        """Say whether somebody holds that writer's lock; in doubt (a file that cannot be opened) say that it lives.

        The probe asks for a shared lock and frees it at once. Somebody who claims in that instant finds the writer
        alive and comes back later; one who joins is never disturbed, because its file has no name yet when it locks.
        """
        try:
            descriptor = self._locked(self._path_of(writer), fcntl.LOCK_SH)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        os.close(descriptor)
        return False

    def claim(self, writer: str) -> Claim | None:
        """Take a dead writer's lock, so that nobody else acts on it meanwhile; None: it lives, is claimed, or is us.

        A missing file counts as dead: whoever writes to the ledger has made its file before.
        """
        path = self._path_of(writer)
        if self._descriptor is not None and path == self._path:
            return None
        try:
            return Claim(path, self._locked(path, fcntl.LOCK_EX))
        except FileNotFoundError:
            return Claim(path, None)
        except OSError:
            return None

    def _path_of(self, writer: str) -> Path:
        if not _ID.fullmatch(writer):
            raise LedgerError(f'the writer id is "{writer}"; letters, digits and "-" are allowed')
        return self.folder / writer

    def _make(self, path: Path) -> int:
        """Make the file under a hidden name, lock it, then give it its name. Raises OSError.

        A process that is killed in between leaves a hidden file, which nobody minds.
        """
        self.folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        self.folder.chmod(_FOLDER_MODE)
        hidden = path.with_name(f".{path.name}")
        descriptor = os.open(hidden, os.O_CREAT | os.O_EXCL | os.O_RDWR, _FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            hidden.rename(path)
        except OSError:
            os.close(descriptor)
            with contextlib.suppress(OSError):  # the first error is the one to tell
                hidden.unlink()
            raise
        return descriptor

    def _locked(self, path: Path, kind: int) -> int:
        """Lock the file that the path names now. Raises FileNotFoundError where there is none, OSError where held."""
        while True:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                if _names(path, descriptor):
                    return descriptor
            except OSError:
                os.close(descriptor)
                raise
            os.close(descriptor)  # it was removed, or made anew, between the two steps


def _names(path: Path, descriptor: int) -> bool:
    """Say whether the path names the open file. An inode cannot be given away while it is open."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))  # noqa: PTH116 - often called
    except OSError:
        return False


def _remove(path: Path, descriptor: int) -> None:
    with contextlib.suppress(OSError):  # what stays has no lock any more: it is found dead again, and has nothing open
        if _names(path, descriptor):
            path.unlink()


def _why(error: OSError) -> str:
    return error.strerror or str(error)

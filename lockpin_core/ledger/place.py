"""Where a SQLite ledger lives: its folder, its file, its identity, its file system. Knows no tables' meaning."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

from lockpin_core.clock import NewId
from lockpin_core.errors import LedgerError, LedgerUnavailable
from lockpin_core.ledger import schema

BUSY_MS = 5000  # how long a transaction waits for another process's
SYNCHRONOUS = {"full": "FULL", "normal": "NORMAL"}
_NETWORK = ("nfs", "cifs", "smb", "afs", "ceph", "glusterfs", "lustre", "ncpfs", "9p", "fuse.sshfs", "fuse.s3fs")
_OURS_ONLY = 0o600

type Identity = tuple[int, int]  # device and inode


def open_ledger(path: Path, *, durability: str, new_id: NewId) -> sqlite3.Connection:
    """Open the ledger for writing; make the folder (0700) and the file (0600) where they are missing.

    Raises LedgerError with one clear line where the path cannot be a ledger.
    """
    if durability not in SYNCHRONOUS:
        raise LedgerError(f'durability is "{durability}"; full or normal is allowed')
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_network(path)
        if not path.exists():
            _create(path, new_id())
        _refuse_unusable(path)
    except OSError as error:
        raise LedgerError(f"the ledger {path} cannot be opened: {_why(error)}") from error
    connection = connect(path, read_only=False)
    try:
        connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")
        connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error as error:
        connection.close()
        raise LedgerError(f"the ledger {path} cannot be opened: {error}") from error
    return connection


def connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """Connect to an existing ledger and check its version. Raises LedgerError."""
    uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(
            uri, uri=True, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        schema.check(connection, str(path))
    except (sqlite3.Error, LedgerError) as error:
        if connection is not None:
            connection.close()
        if isinstance(error, LedgerError):
            raise
        raise LedgerError(f"the ledger {path} cannot be opened: {error}") from error
    return connection


def identity(path: Path | str) -> Identity:
    """Give device and inode behind a path. Raises OSError where there is none."""
    found = os.stat(path)  # noqa: PTH116 - before every commit, and a Path takes several times as long
    return found.st_dev, found.st_ino


class Watch:
    """Notices that the files behind an open connection were replaced or deleted.

    SQLite keeps its descriptors open, so the inodes seen right after opening cannot be given to other files meanwhile.
    The write-ahead log is watched too: commits into a deleted one would be lost when the last process closes it.
    """

    def __init__(self, path: Path) -> None:
        self._paths = (str(path), str(path.with_name(path.name + "-wal")))
        self._seen: tuple[Identity, ...] = self._look()

    def check(self) -> None:
        """Raise LedgerUnavailable unless the paths still name the files that were opened."""
        if self._look() != self._seen:
            raise LedgerUnavailable(f"the ledger {self._paths[0]} was replaced or deleted while open")

    def _look(self) -> tuple[Identity, ...]:
        try:
            return tuple(identity(path) for path in self._paths)
        except OSError as error:
            raise LedgerUnavailable(f"the ledger {self._paths[0]} is gone: {_why(error)}") from error


def _create(path: Path, suffix: str) -> None:
    """Make the whole ledger beside its place and link it there: two processes at once both find a finished one."""
    draft = path.with_name(f"{path.name}.new-{suffix}")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _OURS_ONLY))
    try:
        with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise LedgerError(f"the ledger {path} cannot be created: its file system has no write-ahead logging")
            schema.create(connection)
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    except sqlite3.Error as error:
        raise LedgerError(f"the ledger {path} cannot be created: {error}") from error
    finally:
        for name in (draft, *_companions(draft)):
            name.unlink(missing_ok=True)


def _companions(path: Path) -> Iterator[Path]:
    yield path.with_name(path.name + "-wal")
    yield path.with_name(path.name + "-shm")


def _refuse_unusable(path: Path) -> None:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise LedgerError(f"the ledger {path} is {kind}; name a file")
    if found.st_size == 0:
        raise LedgerError(f"the ledger {path} is an empty file; remove it, and a new ledger is made")
    if not os.access(path, os.R_OK | os.W_OK) or not os.access(path.parent, os.W_OK):
        raise LedgerError(f"the ledger {path} is not writable")
    if stat.S_IMODE(found.st_mode) & 0o077:
        path.chmod(_OURS_ONLY)


def _refuse_network(path: Path, mounts: Path = Path("/proc/self/mounts")) -> None:
    kind = network_kind(path.parent.resolve(), mounts.read_text()) if mounts.exists() else None
    if kind is not None:
        raise LedgerError(
            f"the ledger {path} is on a network file system ({kind}), whose locks cannot hold a cap; "
            "use a local disk, or PostgreSQL for more than one machine"
        )


def network_kind(folder: Path, mounts: str) -> str | None:
    """Name the network file system that holds a folder, reading the kernel's table of mounts; None: a local one."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        point = Path(fields[1].replace("\\040", " "))
        if folder.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2]
    return kind if kind.startswith(_NETWORK) else None


def _why(error: OSError) -> str:
    return error.strerror or str(error)

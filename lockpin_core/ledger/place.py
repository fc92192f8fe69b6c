"""Where a SQLite ledger lives: its folder, its file, its identity, its file system. Knows no tables' meaning."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

from lockpin_core import clock
from lockpin_core.clock import NewId
from lockpin_core.errors import LedgerError, LedgerUnavailable
from lockpin_core.ledger import schema
from lockpin_core.ledger.migrations import migrate

CHECKED_BYTES = 64 * 1024 * 1024  # a file up to this size is checked whole at the start, in a tenth of a second
BUSY_MS = 5000  # how long a transaction waits for another process's
# `fullfsync`: on macOS a plain fsync leaves the bytes in the drive's own cache; elsewhere these two change nothing.
DURABILITY = {
    "full": ("synchronous = FULL", "fullfsync = ON", "checkpoint_fullfsync = ON"),
    "normal": ("synchronous = NORMAL",),
}
_NETWORK = ("nfs", "cifs", "smb", "afs", "ceph", "glusterfs", "lustre", "ncpfs", "beegfs", "gpfs", "9p")
_NETWORK_FUSE = ("sshfs", "s3fs", "glusterfs", "ceph", "rclone", "gcsfuse", "goofys", "blobfuse")
_ESCAPE = re.compile(r"\\([0-7]{3})")  # how the kernel's table writes a space and its like
_OURS_ONLY = 0o600

type Identity = tuple[int, int, bool]  # device, inode, and whether its owner may write


def open_ledger(path: Path, *, durability: str, new_id: NewId) -> sqlite3.Connection:
    """Open the ledger for writing; make the folder (0700) and the file (0600) where they are missing.

    A ledger of an earlier version is brought to this one, after a backup beside it.
    Raises LedgerError with one clear line where the path cannot be a ledger.
    """
    if durability not in DURABILITY:
        raise LedgerError(f'durability is "{durability}"; full or normal is allowed')
    path = real(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_network(path)
        if not path.exists():
            _refuse_remains(path)
            _create(path, new_id())
        _refuse_unusable(path)
    except OSError as error:
        raise LedgerError(f"the ledger {path} cannot be opened: {_why(error)}") from error
    connection = connect(path, read_only=False)
    try:
        for setting in (*DURABILITY[durability], "foreign_keys = ON"):
            connection.execute(f"PRAGMA {setting}")
        if schema.version_of(connection, str(path)) != schema.VERSION:
            migrate(connection, path, suffix=new_id())
    except sqlite3.Error as error:
        connection.close()
        raise LedgerError(f"the ledger {path} cannot be opened: {error}") from error
    except LedgerError:
        connection.close()
        raise
    return connection


def connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """Connect to an existing ledger and check its version. Raises LedgerError.

    One to write to may be of an earlier version; one to read from is brought to this one first.
    """
    connection = _connect(path, read_only=read_only)
    try:
        if read_only and schema.version_of(connection, str(path)) != schema.VERSION:
            connection.close()
            open_ledger(path, durability="full", new_id=clock.new_id).close()
            connection = _connect(path, read_only=True)
    except LedgerError:
        connection.close()
        raise
    except sqlite3.Error as error:
        connection.close()
        raise LedgerError(f"the ledger {path} cannot be opened: {error}") from error
    return connection


def _connect(path: Path, *, read_only: bool, still: bool = False) -> sqlite3.Connection:
    """Connect; with `still`, to a file that nobody changes meanwhile, without a log and locks beside it."""
    refuse_empty(path)
    uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}{'&immutable=1' if still else ''}"
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(
            uri, uri=True, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        schema.version_of(connection, str(path))
    except (sqlite3.Error, LedgerError) as error:
        if connection is not None:
            connection.close()
        if isinstance(error, LedgerError):
            raise
        if read_only and not still and _is_still(path):
            return _connect(path, read_only=True, still=True)
        raise LedgerError(f"the ledger {path} cannot be opened: {error}") from error
    return connection


def _is_still(path: Path) -> bool:
    """Say whether nobody can be writing: the folder takes no log (it may be mounted read-only), and has none."""
    return path.is_file() and not os.access(real(path).parent, os.W_OK) and not log_of(path).exists()


def real(path: Path) -> Path:
    """Give the place that a path leads to, links followed: there SQLite keeps the log, and there the locks are.

    The file need not be there yet. A loop of links stays as it is, for the opening to fail on.
    """
    return Path(os.path.realpath(path))


def mark(path: Path) -> str:
    """Give what tells the ledger of a path from any other on this machine, without saying where it is."""
    return hashlib.sha256(os.fsencode(real(path))).hexdigest()[:12]


def log_of(path: Path) -> Path:
    """Give the write-ahead log of the ledger that a path leads to."""
    found = real(path)
    return found.with_name(found.name + "-wal")


class Watch:
    """Notices that the files behind an open connection were replaced or deleted.

    SQLite keeps its descriptors open, so the inodes seen right after opening cannot be given to other files meanwhile.
    The write-ahead log is watched too: commits into a deleted one would be lost when the last process closes it. So is
    its index, which holds the locks: with a new one beside the old, two processes would write at once. A ledger
    reached through a link counts as replaced when the link leads elsewhere. A file whose owner may not write to it any
    more is written to no more, though descriptors go on working.
    """

    def __init__(self, path: Path) -> None:
        log = log_of(path)
        index = log.with_name(log.name.removesuffix("-wal") + "-shm")
        self._parts = (("file", str(path)), ("log", str(log)), ("index", str(index)))
        self._seen = tuple(_look(part, name) for part, name in self._parts)

    def check(self) -> None:
        """Raise LedgerUnavailable, saying what became of which file, unless all are those that were opened."""
        for (part, name), seen in zip(self._parts, self._seen, strict=True):
            found = _look(part, name)
            if found != seen:
                what = "made read-only" if found[:2] == seen[:2] else "replaced"
                raise LedgerUnavailable(f"the ledger {part} was {what} while in use: {name}")


def _look(part: str, name: str) -> Identity:
    try:
        found = os.stat(name)  # noqa: PTH116 - before every commit, and a Path takes several times as long
    except FileNotFoundError as error:
        raise LedgerUnavailable(f"the ledger {part} was deleted while in use: {name}") from error
    except OSError as error:
        raise LedgerUnavailable(f"the ledger {part} cannot be reached: {name}: {_why(error)}") from error
    return found.st_dev, found.st_ino, bool(found.st_mode & stat.S_IWUSR)


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
            # Closing does this too, but says nothing where the disk is full, and the log is left behind.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
        _sync_folder(path.parent)
    except sqlite3.Error as error:
        raise LedgerError(f"the ledger {path} cannot be created: {error}") from error
    finally:
        for name in (draft, *_companions(draft)):
            name.unlink(missing_ok=True)


def _refuse_remains(path: Path) -> None:
    """Refuse a new ledger beside the log of one that is gone: SQLite would take its pages for the new one's."""
    left = [companion.name for companion in _companions(path) if companion.exists()]
    if left and not path.exists():  # another process may have made the ledger meanwhile
        raise LedgerError(
            f"the ledger {path} is gone, but {' and '.join(left)} beside it {'is' if len(left) == 1 else 'are'} there: "
            "put the ledger back, or remove these too to begin a new one"
        )


def refuse_damaged(connection: sqlite3.Connection, path: Path) -> None:
    """Raise LedgerError where the file is no sound database; a large one is left to `lockpin verify`."""
    if path.stat().st_size > CHECKED_BYTES:
        return
    try:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "ok":
        words = " ".join(found.split())
        raise LedgerError(
            f"the ledger {path} is damaged: {words}; put a backup in its place, or move it away, -wal and -shm too"
        )


def _sync_folder(folder: Path) -> None:
    """Bring a new name in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # not every file system can, and SQLite takes no notice of that either
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _companions(path: Path) -> Iterator[Path]:
    yield path.with_name(path.name + "-wal")
    yield path.with_name(path.name + "-shm")


def refuse_empty(path: Path) -> None:
    """Raise LedgerError where the file has nothing in it: SQLite would take it for a database without tables."""
    with contextlib.suppress(OSError):  # what cannot be looked at fails as it is opened
        if path.stat().st_size == 0:
            raise LedgerError(f"the ledger {path} is an empty file; remove it, and a new ledger is made")


def _refuse_unusable(path: Path) -> None:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise LedgerError(f"the ledger {path} is {kind}; name a file")
    refuse_empty(path)
    if not os.access(path, os.R_OK | os.W_OK) or not os.access(path.parent, os.W_OK):
        raise LedgerError(f"the ledger {path} is not writable")
    if stat.S_IMODE(found.st_mode) & 0o077:
        path.chmod(_OURS_ONLY)


def _refuse_network(path: Path, mounts: Path = Path("/proc/self/mounts")) -> None:
    kind = network_kind(real(path.parent), mounts.read_text()) if mounts.exists() else None
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
        point = Path(_ESCAPE.sub(lambda found: chr(int(found[1], 8)), fields[1]))
        if folder.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), fields[2]
    inner = kind.removeprefix("fuse.")
    return kind if kind.startswith(_NETWORK) or (inner != kind and inner.startswith(_NETWORK_FUSE)) else None


def _why(error: OSError) -> str:
    return error.strerror or str(error)

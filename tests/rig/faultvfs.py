"""A disk that fails on demand, under the very SQLite that Python uses: full, broken, or robbed of its power.

SQLite reaches files through a table of functions (its VFS). Inside `faults()` connections get a copy of that table,
whose writes, truncations, syncs and deletions are logged, may be answered with an error, and are followed byte by byte,
so that it is known what a disk would hold if the power went now: what was synced, and of the rest nothing or anything.
"""

import _sqlite3
import contextlib
import ctypes
import functools
import random
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_void_p
from dataclasses import dataclass, field
from pathlib import Path

FULL = 13  # SQLITE_FULL
IOERR_WRITE = 778
IOERR_FSYNC = 1034
SECTOR = 512  # bytes that a disk writes whole or not at all


class _Vfs(ctypes.Structure):
    """`sqlite3_vfs`, version 3."""

    _fields_ = [
        ("iVersion", c_int), ("szOsFile", c_int), ("mxPathname", c_int), ("pNext", c_void_p), ("zName", c_char_p),
        *((name, c_void_p) for name in (
            "pAppData", "xOpen", "xDelete", "xAccess", "xFullPathname", "xDlOpen", "xDlError", "xDlSym", "xDlClose",
            "xRandomness", "xSleep", "xCurrentTime", "xGetLastError", "xCurrentTimeInt64", "xSetSystemCall",
            "xGetSystemCall", "xNextSystemCall",
        )),
    ]  # fmt: skip


class _Methods(ctypes.Structure):
    """`sqlite3_io_methods`, version 3."""

    _fields_ = [
        ("iVersion", c_int),
        *((name, c_void_p) for name in (
            "xClose", "xRead", "xWrite", "xTruncate", "xSync", "xFileSize", "xLock", "xUnlock", "xCheckReservedLock",
            "xFileControl", "xSectorSize", "xDeviceCharacteristics", "xShmMap", "xShmLock", "xShmBarrier",
            "xShmUnmap", "xFetch", "xUnfetch",
        )),
    ]  # fmt: skip


class _File(ctypes.Structure):
    _fields_ = [("pMethods", POINTER(_Methods))]


_OPEN = CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(_File), c_int, c_void_p)
_DELETE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)
_WRITE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_TRUNCATE = CFUNCTYPE(c_int, c_void_p, c_int64)
_SYNC = CFUNCTYPE(c_int, c_void_p, c_int)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that SQLite did to a file: "write", "truncate", "sync" or "delete"; `code` is 0 where it worked."""

    path: str
    kind: str
    offset: int = 0
    length: int = 0
    flags: int = 0
    code: int = 0


@dataclass(slots=True)
class _Content:
    """What a file surely holds after a loss of power, and what was done to it since."""

    synced: bytes
    since: list[tuple[int, bytes | None]] = field(default_factory=list)  # None: cut off there

    def sync(self, *, lost: bool) -> None:
        image = bytearray(self.synced)
        for offset, data in [] if lost else self.since:
            _apply(image, offset, data)
        self.synced = bytes(image)
        self.since.clear()

    def after_loss(self, chance: random.Random | None) -> bytes:
        image = bytearray(self.synced)
        for offset, data in self.since:
            if chance is None or chance.random() < 0.5:
                continue
            if data is not None and chance.random() < 0.2:
                data = data[: chance.randrange(0, len(data) + 1, SECTOR)]
            _apply(image, offset, data)
        return bytes(image)


@dataclass(slots=True)
class _Plan:
    kind: str
    suffix: str
    after: int
    code: int
    times: int | None


class Disk:
    """The files that SQLite opens inside `faults()`. `log` has every step; `seen`, if set, is told of each before it."""

    def __init__(self) -> None:
        self.log: list[Step] = []
        self.seen: Callable[[Step], None] = lambda step: None
        self._lock = threading.RLock()
        self._content: dict[str, _Content] = {}
        self._plan: _Plan | None = None
        self._limits: dict[str, int] = {}

    def fail_after(
        self, count: int, code: int, *, kind: str = "write", suffix: str = "", times: int | None = None
    ) -> None:
        """Let so many more steps of a kind through, to files whose names end so, then fail `times` (None: until healed).

        A write that fails has written its first half, as where space ends in its middle.
        """
        self._plan = _Plan(kind, suffix, count, code, times)

    def limit(self, suffix: str, size: int) -> None:
        """Let files whose names end so grow up to a size and no further: past it the disk is full."""
        self._limits[suffix] = size

    def heal(self) -> None:
        self._plan = None
        self._limits.clear()

    def steps(self, suffix: str, *kinds: str) -> list[int]:
        """Give the places in the log of what was done to files whose names end so."""
        return [n for n, step in enumerate(self.log) if step.path.endswith(suffix) and step.kind in kinds]

    def image(self, chance: random.Random | None = None) -> dict[str, bytes]:
        """Give what each file would hold if power were lost now: with `chance`, also any part of what is not synced."""
        with self._lock:
            return {path: content.after_loss(chance) for path, content in self._content.items()}

    def _open(self, path: str) -> None:
        with self._lock:
            if path not in self._content:
                self._content[path] = _Content(Path(path).read_bytes())

    def _do(self, step: Step, real: Callable[[int], int], data: bytes = b"") -> int:
        """Do a step, or fail it. `real` does it for so many bytes."""
        with self._lock:
            self.seen(step)
            code = self._verdict(step)
            done = step.length // 2 if code and step.kind == "write" else step.length
            if not code or done:
                code = real(done) or code
            self.log.append(Step(step.path, step.kind, step.offset, step.length, step.flags, code))
            self._note(step, code, data[:done])
            return code

    def _verdict(self, step: Step) -> int:
        if step.kind == "write" and any(
            step.path.endswith(suffix) and step.offset + step.length > size for suffix, size in self._limits.items()
        ):
            return FULL
        plan = self._plan
        if plan is None or step.kind != plan.kind or not step.path.endswith(plan.suffix):
            return 0
        if plan.after > 0:
            plan.after -= 1
            return 0
        if plan.times == 0:
            return 0
        if plan.times is not None:
            plan.times -= 1
        return plan.code

    def _note(self, step: Step, code: int, data: bytes) -> None:
        """Follow what a step did. What a failed sync was for is lost: a later one does not bring it to the disk."""
        content = self._content[step.path]
        if step.kind == "sync":
            content.sync(lost=bool(code))
        elif step.kind == "write":
            content.since.append((step.offset, data))
        elif code == 0 and step.kind == "truncate":
            content.since.append((step.offset, None))
        elif code == 0:
            del self._content[step.path]


def _apply(image: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del image[offset:]
    elif data:
        image.extend(bytes(max(0, offset - len(image))))
        image[offset : offset + len(data)] = data


class _Hooks:
    """The copied tables. One for the process, never freed: SQLite keeps pointers to it for as long as it likes."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library, self.disk = library, Disk()
        self.original = library.sqlite3_vfs_find(None)
        self.vfs = _Vfs.from_buffer_copy(self.original.contents)
        self.vfs.zName = b"faults"
        self._real_open, self._real_delete = _OPEN(self.vfs.xOpen), _DELETE(self.vfs.xDelete)
        self._files: dict[int, tuple[Disk, str, _Methods]] = {}
        self._tables: dict[int, _Methods] = {}
        self._kept = [
            _OPEN(self._open), _DELETE(self._delete),
            _WRITE(self._write), _TRUNCATE(self._truncate), _SYNC(self._sync),
        ]  # fmt: skip
        addresses = [ctypes.cast(callback, c_void_p).value for callback in self._kept]
        self.vfs.xOpen, self.vfs.xDelete, *self._patches = addresses

    def _open(self, vfs, name, file, flags, out) -> int:
        code = self._real_open(vfs, name, file, flags, out)
        if code == 0 and name is not None:
            path = ctypes.string_at(name).decode()
            methods = file.contents.pMethods
            address = ctypes.addressof(methods.contents)
            if address not in self._tables:
                table = _Methods.from_buffer_copy(methods.contents)
                table.xWrite, table.xTruncate, table.xSync = self._patches
                self._tables[address] = table
            self.disk._open(path)
            self._files[ctypes.addressof(file.contents)] = (self.disk, path, methods.contents)
            file.contents.pMethods = ctypes.pointer(self._tables[address])
        return code

    def _delete(self, vfs, name, sync_folder) -> int:
        path = ctypes.string_at(name).decode()
        if path not in self.disk._content:
            return self._real_delete(vfs, name, sync_folder)
        return self.disk._do(Step(path, "delete"), lambda _: self._real_delete(vfs, name, sync_folder))

    def _write(self, file, data, length, offset) -> int:
        disk, path, real = self._files[file]
        write = _WRITE(real.xWrite)
        step = Step(path, "write", offset, length)
        return disk._do(step, lambda n: write(file, data, n, offset), ctypes.string_at(data, length))

    def _truncate(self, file, size) -> int:
        disk, path, real = self._files[file]
        return disk._do(Step(path, "truncate", size), lambda _: _TRUNCATE(real.xTruncate)(file, size))

    def _sync(self, file, flags) -> int:
        disk, path, real = self._files[file]
        return disk._do(Step(path, "sync", flags=flags), lambda _: _SYNC(real.xSync)(file, flags))


_hooks: list[_Hooks] = []


def _load() -> _Hooks:
    """Find the library that Python's sqlite3 is linked to, through the module itself."""
    if not _hooks:
        library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
        library.sqlite3_vfs_find.restype = POINTER(_Vfs)
        library.sqlite3_vfs_find.argtypes = [c_char_p]
        library.sqlite3_vfs_register.argtypes = [POINTER(_Vfs), c_int]
        library.sqlite3_libversion.restype = c_char_p
        assert library.sqlite3_libversion().decode() == sqlite3.sqlite_version
        _hooks.append(_Hooks(library))
    return _hooks[0]


@functools.cache
def is_possible() -> bool:
    """Say whether this Python's SQLite can be reached, which one that is built in may hide: open a file and see."""
    try:
        if _load().original.contents.iVersion != 3:
            return False
    except (OSError, AttributeError, AssertionError):
        return False
    with tempfile.TemporaryDirectory() as folder, faults() as disk:
        with contextlib.closing(sqlite3.connect(f"{folder}/trial")) as trial:
            trial.execute("CREATE TABLE trial (a)")
        return bool(disk.log)


@contextlib.contextmanager
def faults() -> Iterator[Disk]:
    """Put every connection that is opened inside the block on a new disk that fails when told to."""
    hooks = _load()
    hooks.disk = disk = Disk()
    assert hooks.library.sqlite3_vfs_register(ctypes.byref(hooks.vfs), 1) == 0
    try:
        yield disk
    finally:
        disk.heal()
        assert hooks.library.sqlite3_vfs_register(hooks.original, 1) == 0

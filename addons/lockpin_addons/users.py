"""Who uses a proxy that `lockpin run` has started: seen by the locks that runs hold. Knows no ledger and no proxy.

A run that is killed cannot end its proxy, but the system frees its locks. Waiting for a lock costs nothing meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path


def await_last(run: Path, users: Path, end: Callable[[], object]) -> None:
    """Call `end` from a thread of its own, once, when no run uses this proxy and none is about to.

    On `users` each run that uses the proxy shares a lock. On `run` one holds a lock while it starts or ends a proxy; it
    is kept from then on, so that no other run finds a proxy that ends, but waits until it has ended.
    """
    files = [os.open(path, os.O_RDWR | os.O_CREAT, 0o600) for path in (run, users)]
    threading.Thread(target=_await, args=(*files, end), name="lockpin-users", daemon=True).start()


def _await(run: int, users: int, end: Callable[[], object]) -> None:
    while True:
        # Never waits for one while it has the other: a run that starts takes them in the other order.
        fcntl.flock(users, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_UN)
        fcntl.flock(run, fcntl.LOCK_EX)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        fcntl.flock(run, fcntl.LOCK_UN)
    with contextlib.suppress(RuntimeError):  # its loop is closed: it has ended already
        end()

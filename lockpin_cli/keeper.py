"""The proxy that runs of commands share: found, or started; ended by the last that uses it. Knows no budgets.

Beside the ledger lie two files. On one a run holds a lock of the system while it looks for a proxy, starts or ends it;
in it stands which proxy a run has started. On the other each run holds a lock that it shares while it uses a proxy.
The proxy waits for that one to be free too: so it ends where the last run was killed and could not end it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO

from lockpin_cli.listener import PORT, ask, other_books
from lockpin_cli.output import say
from lockpin_cli.up import Start, check_port, free_port
from lockpin_core.errors import CommandError
from lockpin_core.ledger.liveness import Liveness

_START_S = 60  # a proxy that has not answered by then does not
_STEP_S = 0.02  # between two looks at it
_TRIES = 5  # ports that are tried where none is asked for
_RUN, _USERS = ".run", ".run-users"  # ends of the names of the two files
_AFTER_DRAIN_S = 10  # what a proxy may take to end beside its drain

type Starter = Callable[[int], Start]
"""Port → the process that the proxy on it is."""


@dataclass(frozen=True, slots=True)
class Started:
    """A proxy that a run has started. Its writer's lock on the ledger says whether that process still lives."""

    pid: int
    port: int
    writer: str


@contextlib.contextmanager
def proxy(ledger: Path, port: int | None, starter: Starter, drain_s: int) -> Iterator[int]:
    """Give the port of a proxy on the ledger while the block runs; one that was started for it ends after it.

    `port` None: the usual one, or a free one where that is in other hands. Raises CommandError where none can be had.
    """
    ledger.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _lock_file(ledger, _RUN) as file, _lock_file(ledger, _USERS) as users:
        with _alone(file):
            chosen, child = _found_or_started(file, ledger, port, starter)
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            yield chosen
        finally:
            with _alone(file):
                _leave(file, users, ledger, child, drain_s + _AFTER_DRAIN_S)


def _beside(ledger: Path, end: str) -> Path:
    return ledger.with_name(f"{ledger.name}{end}")


def _lock_file(ledger: Path, end: str) -> IO[str]:
    path = _beside(ledger, end)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from error
    return open(descriptor, "a+", encoding="utf-8")  # noqa: PTH123 - a descriptor


@contextlib.contextmanager
def _alone(file: IO[str]) -> Iterator[None]:
    """Let no other run start a proxy or end it meanwhile."""
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _found_or_started(
    file: IO[str], ledger: Path, port: int | None, starter: Starter
) -> tuple[int, subprocess.Popen[bytes] | None]:
    """Give the port of a proxy, and the process where it was started for this."""
    found = _ours(file, ledger)
    if found is not None and port in (None, found.port) and _is_on(found.port, ledger):
        return found.port, None
    if _is_there(port or PORT, ledger, is_asked=port is not None):
        return port or PORT, None
    for tries_left in reversed(range(_TRIES)):
        chosen = _free(port)
        try:
            child, started = _start(_until_unused(starter(chosen), ledger), chosen, ledger)
        except CommandError:
            # Where it was free a moment ago, a run on another ledger may have been quicker.
            if port is not None or tries_left == 0 or free_port(chosen) == chosen:
                raise
        else:
            _note(file, started)
            return chosen, child
    raise AssertionError("there is a last try")


def _until_unused(start: Start, ledger: Path) -> Start:
    """Have the proxy end by itself when no run holds a lock any more."""
    locks = (str(_beside(ledger, _RUN)), str(_beside(ledger, _USERS)))
    return replace(start, arguments=(*start.arguments, "--until-unused", *locks))


def _is_on(port: int, ledger: Path) -> bool:
    """Say whether a proxy of ours answers on a port, and books in this ledger."""
    answer = ask(port)
    return answer.is_ours and other_books(port, answer, ledger) is None


def _is_there(port: int, ledger: Path, *, is_asked: bool) -> bool:
    """Say whether a proxy on this ledger answers on a port. Raises CommandError where one of another was asked for."""
    answer = ask(port)
    other = other_books(port, answer, ledger)
    if other is None:
        return answer.is_ours
    if is_asked:
        raise CommandError(other)
    say(f"the proxy on port {port} books in another ledger than {ledger}, so one of its own is started")
    return False


def _free(port: int | None) -> int:
    if port is not None:
        check_port(port, "lockpin run")
        return port
    found = free_port(PORT)
    if found is None:
        raise CommandError(f"no port near {PORT} is free; name one with --port")
    return found


def _start(start: Start, port: int, ledger: Path) -> tuple[subprocess.Popen[bytes], Started | None]:
    """Start a proxy that answers. Raises CommandError where it does not."""
    before = _alive(ledger)
    with tempfile.TemporaryFile() as printed:
        # In a session of its own: a Ctrl-C is meant for the command.
        child = subprocess.Popen(
            start.arguments, env=start.environment, stdin=subprocess.DEVNULL, stdout=printed,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            _await(child, port, ledger, printed)
        except BaseException:  # a Ctrl-C too: nobody else would end it
            child.terminate()
            child.wait()
            raise
    new = _alive(ledger) - before
    return child, Started(child.pid, port, new.pop()) if len(new) == 1 else None


def _await(child: subprocess.Popen[bytes], port: int, ledger: Path, printed: IO[bytes]) -> None:
    """Wait until a proxy answers. Raises CommandError with its last words where it does not."""
    end = time.monotonic() + _START_S
    while not _is_on(port, ledger):
        if child.poll() is not None or time.monotonic() > end:
            words = f"the proxy did not start on port {port}, so the command was not run"
            raise CommandError(f"{words}: {_last_words(printed)}")
        time.sleep(_STEP_S)


def _last_words(printed: IO[bytes]) -> str:
    printed.seek(0)
    lines = [line.strip() for line in printed.read().decode("utf-8", "replace").splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("lockpin:")]
    return (ours or lines or ["it said nothing"])[-1].removeprefix("lockpin:").strip()


def _alive(ledger: Path) -> set[str]:
    locks = Liveness(ledger)
    return {writer for writer in locks.others() if locks.is_alive(writer)}


def _ours(file: IO[str], ledger: Path) -> Started | None:
    """Read which proxy a run has started; None: none, or it has ended."""
    file.seek(0)
    try:
        found = Started(**json.loads(file.read() or "null"))
    except (TypeError, ValueError):
        return None
    return found if found.writer in _alive(ledger) else None


def _note(file: IO[str], started: Started | None) -> None:
    file.truncate(0)
    file.write("" if started is None else json.dumps(asdict(started)))
    file.flush()


def _leave(file: IO[str], users: IO[str], ledger: Path, child: subprocess.Popen[bytes] | None, patience_s: int) -> None:
    """End the proxy that a run has started, where nobody else uses it."""
    if not _is_last(users):
        fcntl.flock(users, fcntl.LOCK_UN)
        if child is not None:
            say("the proxy goes on for another `lockpin run`, which ends it")
        return
    started = _ours(file, ledger)
    if child is not None:
        child.terminate()
        _wait(lambda: child.poll() is not None, patience_s)
    elif started is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(started.pid, signal.SIGTERM)
        _wait(lambda: _ours(file, ledger) is None, patience_s)
    _note(file, None)


def _is_last(users: IO[str]) -> bool:
    """Say whether no other run uses the proxy; it is locked for this one then."""
    with contextlib.suppress(OSError):
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    # A lock is let go before it is taken in another kind: the proxy may have had it in between, for an instant.
    fcntl.flock(users, fcntl.LOCK_SH)
    with contextlib.suppress(OSError):
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _wait(is_done: Callable[[], bool], patience_s: int) -> None:
    end = time.monotonic() + patience_s
    while not is_done():
        if time.monotonic() > end:
            say("the proxy takes long to end; it goes on ending by itself")
            return
        time.sleep(_STEP_S)

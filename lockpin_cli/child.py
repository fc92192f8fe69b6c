"""The command that `lockpin run` runs: found, started, given each signal once, and ended with a shell's status.

Knows processes; knows no proxy and no budget.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from lockpin_core.errors import CommandError

NOT_RUN, NOT_FOUND = 126, 127  # a shell's status of a file that is no program, and of none at all

_NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_SAME_S = 0.05  # signals that come together are one; by then one to our group has reached all of it
_STEP_S = 0.001  # between two looks


class NoCommand(CommandError):
    """A command that cannot be run; with the status that a shell would give."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__(f"{words}; nothing was run")
        self.status = status


def program(name: str) -> str:
    """Find the command before anything is started or changed for it. Raises NoCommand."""
    found = shutil.which(name)
    if found is not None:
        return found
    if os.sep not in name:
        raise NoCommand(f'there is no command "{name}" on PATH', NOT_FOUND)
    if Path(name).is_dir():
        raise NoCommand(f'"{name}" is a folder; name a program', NOT_RUN)
    if Path(name).exists():
        raise NoCommand(f'"{name}" is not executable; `chmod +x {shlex.quote(name)}` makes it so', NOT_RUN)
    raise NoCommand(f'there is no file "{name}"', NOT_FOUND)


def status(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command, pass signals on to it, and give its exit status; a shell's for one that a signal ended.

    Raises NoCommand.
    """
    with _Witness() as witness, _signals() as heard:
        try:
            child = subprocess.Popen(command, env=environment)
        except OSError as error:
            raise NoCommand(f'"{command[0]}" cannot be run: {_why(command[0], error)}', NOT_RUN) from error
        passing = _PassingOn(child, witness)
        while child.poll() is None:
            for number in os.read(heard, 4096):  # that a child has ended is a signal too
                passing.hear(number)
    return 128 - child.returncode if child.returncode < 0 else child.returncode


def _why(name: str, error: OSError) -> str:
    if error.errno == errno.ENOEXEC:
        return f'it is no program and has no first line "#!…"; name what runs it too, as in `sh {shlex.quote(name)}`'
    if error.errno == errno.ENOENT:
        return 'what its first line "#!…" names is not there'
    return error.strerror or str(error)


@contextlib.contextmanager
def _signals() -> Iterator[int]:
    """Give a descriptor from which each signal's number is read: one that comes just before a wait is not missed.

    A signal that is ignored, as in a shell's background or under `nohup`, stays so, here and in the command.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    numbers = [number for number in _NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
    wakeup = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    before = {number: signal.signal(number, _note) for number in (*numbers, signal.SIGCHLD)}
    try:
        yield read
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        os.close(write)
        os.close(read)


def _note(_number: int, _frame: FrameType | None) -> None:
    """Do nothing here: the number is in the pipe already."""


class _PassingOn:
    """Gives the command the signals that it does not get by itself."""

    def __init__(self, child: subprocess.Popen[bytes], witness: _Witness) -> None:
        self._child, self._witness = child, witness
        self._same_until: dict[int, float] = {}

    def hear(self, number: int) -> None:
        """Take a signal; some wrappers send it to us and to our group, which is one."""
        now = time.monotonic()
        if number not in _NUMBERS or now < self._same_until.get(number, 0):
            return
        self._same_until[number] = now + 2 * _SAME_S
        with contextlib.suppress(ProcessLookupError):  # it ends just now
            is_beside_us = self._child.poll() is None and os.getpgid(self._child.pid) == os.getpgrp()
            if not (is_beside_us and self._witness.saw(number)):
                self._child.send_signal(number)


class _Witness:
    """A process in our group that any signal ends: one that reaches it reaches the command without us.

    The system does not say whether a signal was for one process or for a group, as a terminal's keys, a hang-up, and
    programs such as `timeout` send it. It reads from a pipe of ours, and so ends with us, however we end.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._pid = self._start()

    def __enter__(self) -> _Witness:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._write)
        os.close(self._read)
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)

    def saw(self, number: int) -> bool:
        """Say whether a signal that has just come to us ends it too."""
        if self._pid is None:
            return False
        end = time.monotonic() + _SAME_S
        while (found := self._ended_by()) is None and time.monotonic() < end:
            time.sleep(_STEP_S)
        if found is not None:
            self._pid = self._start()
        return found == number

    def _ended_by(self) -> int | None:
        assert self._pid is not None, "there is none"
        try:
            pid, how = os.waitpid(self._pid, os.WNOHANG)
        except ChildProcessError:
            return 0
        return os.WTERMSIG(how) if pid else None

    def _start(self) -> int | None:
        """Start it with every signal at its default; None: it cannot be."""
        nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        files = [(os.POSIX_SPAWN_DUP2, self._read, 0), *nowhere]
        with contextlib.suppress(OSError):
            return os.posix_spawn("/bin/sh", ["sh", "-c", "read word"], {}, file_actions=files, setsigdef=_NUMBERS)
        return None

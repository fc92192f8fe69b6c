"""The three standard streams of a command: closed ones, full ones, and ones that cannot show every character."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator

from lockpin_core.errors import LockpinError


class _Answer(io.TextIOWrapper):
    """Standard output, whose errors are told from all others."""

    def write(self, text: str) -> int:
        with _told():
            return super().write(text)

    def flush(self) -> None:
        with _told():
            super().flush()


def prepare(*, escape: bool) -> None:
    """Give every stream that is closed a place that swallows all. With `escape`, write an escape for what a stream's
    encoding lacks, instead of failing at it when the ledger is changed already.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            _swallow(number)
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - for good
    stdout = sys.stdout
    if isinstance(stdout, io.TextIOWrapper):
        errors, is_line_by_line = "backslashreplace" if escape else stdout.errors, stdout.line_buffering
        encoding = stdout.encoding
        sys.stdout = _Answer(stdout.detach(), encoding, errors, line_buffering=is_line_by_line)


def finish(before: str) -> None:
    """Bring what was printed to where it goes. Raises LockpinError, its words after `before`, where that fails."""
    try:
        sys.stdout.flush()
    except LockpinError as error:
        raise LockpinError(f"{before}{error}") from error


def close() -> None:
    """Bring everything out; what cannot be is dropped, as it was said to be, or was the saying itself."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, LockpinError):
            with contextlib.suppress(OSError, io.UnsupportedOperation):
                _swallow(stream.fileno())  # so that the interpreter's own flush at its end finds room


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except UnicodeEncodeError as error:
        words = f"cannot be written in {error.encoding}; UTF-8 is needed, as by LC_ALL=C.UTF-8"
        raise LockpinError(f"the answer {words}") from error
    except OSError as error:
        raise LockpinError(f"the answer cannot be written: {error.strerror}") from error


def _swallow(number: int) -> None:
    """Let a descriptor lead to nowhere."""
    descriptor = os.open(os.devnull, os.O_RDWR)
    if descriptor != number:
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.set_inheritable(number, True)

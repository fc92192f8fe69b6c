"""A Ctrl-C while a command is still being imported: it ends at once, with a shell's status and without a traceback."""

from __future__ import annotations

# What `signal` is made from: that one takes as long to import as all that is to be guarded here.
import _signal  # type: ignore[import-not-found]
import os
import sys

INTERRUPTED: int = 128 + _signal.SIGINT


def begin() -> None:
    """Let a Ctrl-C end the process; one that is ignored, as in a shell's background, stays ignored."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _end)


def finish() -> None:
    """Let a Ctrl-C be what it usually is."""
    if _signal.getsignal(_signal.SIGINT) is _end:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def _end(_number: int, _frame: object) -> None:
    if "env" in sys.argv:
        os.write(1, b"false\n")  # `eval "$(lockpin env)" && agent` must not go on without the cap
    os._exit(INTERRUPTED)

"""Whether there is a ledger at all, for commands that show nothing, or make one, where there is none yet."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from lockpin_core.errors import CommandError

_BACK = "put it back from where it was moved, or from a backup"


def is_there(ledger: Path) -> bool:
    """Say whether there is a ledger; False: no call was ever booked.

    Raises CommandError where the path cannot be looked at, names no file, or names one that is gone while it is in use.
    """
    try:
        found = ledger.stat()
    except FileNotFoundError:
        _refuse_gone(ledger)
        return False
    except OSError as error:
        words = f"{error.strerror}; name one in a folder that you may search"
        raise CommandError(f"the ledger {_short(ledger)} cannot be reached: {words}") from error
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise CommandError(f"the ledger {ledger} is {kind}; name a file")
    return True


def need(ledger: Path, why: str = "") -> Path:
    """Give the path of a ledger that is there. Raises CommandError, with `why` one is needed."""
    if not is_there(ledger):
        raise CommandError(f"no ledger yet at {ledger}{why}; the first `lockpin up` makes it")
    return ledger


def _refuse_gone(ledger: Path) -> None:
    """Raise CommandError where a proxy runs on the missing file, or what it had not taken over yet is beside it."""
    from lockpin_core.ledger.liveness import Liveness  # only where a ledger is missing
    from lockpin_core.ledger.place import log_of

    liveness = Liveness(ledger)
    running = [writer for writer in liveness.others() if liveness.is_alive(writer)]
    if running:
        words = "a proxy runs" if len(running) == 1 else f"{len(running)} proxies run"
        raise CommandError(f"the ledger {ledger} is gone while {words} on it; stop it, then {_BACK}")
    log = log_of(ledger)
    if os.path.lexists(log):
        ways = f"{_BACK}, or remove the log too to begin a new one"
        raise CommandError(f"the ledger {ledger} is gone, but its log {log.name} is still there; {ways}")


def _short(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 300 else f"{text[:300]}…"  # a name may be too long to be one

"""A point at which code under test can be made to raise: the file `$RIG_TRIP` names the point and the kind."""

import asyncio
import os
from pathlib import Path

KINDS = {"error": RuntimeError, "cancel": asyncio.CancelledError}


def at(point: str) -> None:
    file = os.environ.get("RIG_TRIP")
    if file is None:
        return
    named, _, kind = Path(file).read_text().partition(" ")
    if named == point:
        made = Path(file + ".made")
        made.write_text(point)
        made.replace(file + ".hit")  # at once: who sees it reads all of it
        raise KINDS[kind]("tripped")

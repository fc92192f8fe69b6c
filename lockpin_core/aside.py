"""Work on bodies beside the event loop, so that no body keeps other calls waiting. Knows no format.

Reading JSON takes 6 µs a kilobyte for an agent's request, and ten times that for one of nothing but brackets and short
names: what is larger than `ON_LOOP_BYTES` goes to a thread. The interpreter runs one thread at a time and takes turns
every `SWITCH_S`, so each further thread would make the loop wait longer: there is one for ordinary bodies, and one for
very large ones, behind which nobody else should have to stand.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

ON_LOOP_BYTES = 16 * 1024  # at most 1 ms, however dense
SWITCH_S = 0.0005  # Python's own 5 ms would let a thread keep the loop waiting for so long
_ORDINARY_BYTES = 1 << 20

_ordinary = ThreadPoolExecutor(1, "lockpin-bodies")
_large = ThreadPoolExecutor(1, "lockpin-large-bodies")


def take_short_turns() -> None:
    """Let threads take turns so often that none keeps the loop waiting for a millisecond."""
    sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))


async def beside_loop[T](size: int, work: Callable[[], T]) -> T:
    """Do work on a body of `size` bytes: at once where it is small, else in a thread. Raises what the work raises."""
    if size <= ON_LOOP_BYTES:
        return work()
    lane = _ordinary if size <= _ORDINARY_BYTES else _large
    return await asyncio.get_running_loop().run_in_executor(lane, work)

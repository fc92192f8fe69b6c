"""Work on bodies beside the event loop, so that no body keeps other calls waiting. Knows no format.

Reading JSON takes 6 µs a kilobyte for an agent's request, and ten times that for one of nothing but brackets and short
names: what is larger than `ON_LOOP_BYTES` goes to a thread. The interpreter runs one thread at a time and takes turns
every `SWITCH_S`, so each further thread would make the loop wait longer: there is one for ordinary bodies, and one for
very large ones, behind which nobody else should have to stand.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

ON_LOOP_BYTES = 16 * 1024  # at most 1 ms, however dense
SWITCH_S = 0.0005  # Python's own 5 ms would let a thread keep the loop waiting for so long
_ORDINARY_BYTES = 1 << 20
LARGE_BYTES = _ORDINARY_BYTES + 1  # what a body counts as that may be very large
_STEP_BYTES = 16 * 1024  # what the smallest step of long work counts as

type Steps[T] = Generator[int, None, T]
"""Long work in steps, each of which gives the bytes that it has read."""

_ordinary = ThreadPoolExecutor(1, "lockpin-bodies")
_large = ThreadPoolExecutor(1, "lockpin-large-bodies")


def take_short_turns() -> None:
    """Let threads take turns so often that none keeps the loop waiting for a millisecond."""
    sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))


async def beside_loop[T](size: int, work: Callable[[], T]) -> T:
    """Do work on a body of `size` bytes: at once where it is small, else in a thread. Raises what the work raises."""
    if size <= ON_LOOP_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_lane(size), work)


async def in_turns[T](size: int, work: Steps[T]) -> T:
    """Do long work on a body of `size` bytes in a thread, and let others have the thread after about a megabyte of it.

    So nobody stands longer behind a body of very many parts than behind an ordinary one. Raises what the work raises.
    """
    loop, lane = asyncio.get_running_loop(), _lane(size)
    while (done := await loop.run_in_executor(lane, _turn, work)) is None:
        pass
    return done.value


async def here_or_in_turns[T](size: int, work: Steps[T]) -> T:
    """Do work in steps at once while it is small, and go on in turns where it turns out not to be.

    What a body of `size` bytes unpacks to is not known before. Raises what the work raises.
    """
    done = _turn(work, ON_LOOP_BYTES + 1, least=0)
    return await in_turns(max(size, ON_LOOP_BYTES + 1), work) if done is None else done.value


@dataclass(frozen=True, slots=True)
class _Done[T]:
    value: T


def _turn[T](work: Steps[T], left: int = _ORDINARY_BYTES, least: int = _STEP_BYTES) -> _Done[T] | None:
    try:
        while left > 0:
            left -= max(next(work), least)
    except StopIteration as end:
        return _Done(end.value)
    return None


def at_once[T](work: Steps[T]) -> T:
    """Do work in steps where it stands, all of it."""
    while (done := _turn(work)) is None:
        pass
    return done.value


def _lane(size: int) -> ThreadPoolExecutor:
    return _ordinary if size <= _ORDINARY_BYTES else _large

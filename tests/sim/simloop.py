"""An event loop that plays time: one thread, no waiting, and the same order of things for the same seed.

Everything that runs belongs to one process of the play (or to nobody: the clients, the provider). Within a process
callbacks keep asyncio's order; which process goes next is drawn. A process can be killed, and then nothing of it runs
any more, not even what a cancelled task would still do; and stopped for a while, as by SIGSTOP.
"""

import asyncio
import contextvars
import functools
import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any

OWNER: contextvars.ContextVar[str] = contextvars.ContextVar("owner", default="")


class SimLoop(asyncio.BaseEventLoop):
    """Time goes on when nobody has anything to do now."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self._dice, self._now_s = dice, 0.0
        self._queues: dict[str, deque[asyncio.Handle]] = {}
        self._dead: set[str] = set()
        self._stopped: dict[str, list[asyncio.Handle]] = {}
        self.steps = 0

    def time(self) -> float:
        return self._now_s

    def kill(self, owner: str) -> None:
        """Let nothing of a process run any more."""
        self._dead.add(owner)
        self._queues.pop(owner, None)
        self._stopped.pop(owner, None)

    def stop_process(self, owner: str) -> None:
        """Let a process stand still until it is told to go on."""
        self._stopped.setdefault(owner, list(self._queues.pop(owner, ())))

    def continue_process(self, owner: str) -> None:
        for handle in self._stopped.pop(owner, ()):
            self._enqueue(handle)

    def run_as(self, owner: str, callback: Callable[..., Any], *args: Any) -> asyncio.Handle:
        """Run a callback soon, as this process."""
        return self.call_soon(callback, *args, context=context_of(owner))

    def run_as_later(self, owner: str, delay_s: float, callback: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        return self.call_later(delay_s, callback, *args, context=context_of(owner))

    def task_as(self, owner: str, coroutine: Any) -> asyncio.Task[Any]:
        return self.create_task(coroutine, context=context_of(owner))

    # What asyncio calls.

    def run_in_executor(self, executor, func, *args):  # type: ignore[no-untyped-def]
        """Do at once what would be done in a thread."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - whoever awaits it is told
            done.set_exception(error)
        return done

    def _call_soon(self, callback, args, context):  # type: ignore[no-untyped-def]
        handle = asyncio.Handle(callback, args, self, context)
        self._enqueue(handle)
        return handle

    def _enqueue(self, handle: asyncio.Handle) -> None:
        owner = handle._context.get(OWNER, "")  # type: ignore[attr-defined]
        if owner in self._dead:
            return
        if owner in self._stopped:
            self._stopped[owner].append(handle)
        else:
            self._queues.setdefault(owner, deque()).append(handle)

    def _run_once(self) -> None:
        while self._scheduled and (self._scheduled[0]._cancelled or self._scheduled[0]._when <= self._now_s):
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False
            if not timer._cancelled:
                self._enqueue(timer)
        ready = [owner for owner, queue in self._queues.items() if queue]
        if not ready:
            if not self._scheduled:
                raise RuntimeError("nothing is left to happen, and somebody still waits")
            self._now_s = self._scheduled[0]._when
            return
        owner = ready[0] if len(ready) == 1 else self._dice.choice(sorted(ready))
        handle = self._queues[owner].popleft()
        self.steps += 1
        if not handle._cancelled:
            handle._run()

    def _process_events(self, event_list):  # type: ignore[no-untyped-def]
        raise AssertionError("no socket is in the play")

    def _write_to_self(self) -> None:
        """Nobody sleeps."""


def context_of(owner: str) -> contextvars.Context:
    """Make a context in which callbacks belong to a process."""
    return _empty_context(owner).copy()


@functools.cache
def _empty_context(owner: str) -> contextvars.Context:
    context = contextvars.Context()
    context.run(OWNER.set, owner)
    return context

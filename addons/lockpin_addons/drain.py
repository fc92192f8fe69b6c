"""The end of a proxy: no new calls, running ones may end within `drain`, then it goes. A second signal ends at once.

mitmproxy's own signal handlers, and whoever else wants it to end, call the master's `shutdown`; that is where this
stands, from before the port is open. Whatever goes wrong here, the real `shutdown` is called, and until the end the
gate stays as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any

from mitmproxy import ctx
from mitmproxy.connection import Client
from mitmproxy.master import Master

from lockpin_addons.banner import say
from lockpin_addons.gate import Gate
from lockpin_addons.tap import Tap

LOOK_S = 0.02
CLOSE_WAIT_S = 2
SAME_S = 0.2  # signals that come together are one: a terminal and a wrapper both send it
LINGER_S = 0.25  # an HTTP/2 client takes what is left of a reply in turns


class Drain:
    """Stands in for a master's `shutdown`."""

    def __init__(self, master: Master, gate: Gate, tap: Tap) -> None:
        self._master, self._gate, self._tap = master, gate, tap
        self._end = master.shutdown
        self._began_s: float | None = None
        self._began = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_over = False

    @classmethod
    def install(cls, master: Master, gate: Gate, tap: Tap) -> Drain:
        """Put one in front of a master's shutdown."""
        drain = cls(master, gate, tap)
        master.shutdown = drain.shutdown  # type: ignore[method-assign]
        return drain

    def shutdown(self) -> None:
        """Begin, from whatever thread; a second time: end at once."""
        self._master.event_loop.call_soon_threadsafe(self._begin)

    async def or_end[T](self, work: Coroutine[Any, Any, T]) -> T | None:
        """Await a piece of the start; None: the end began before it was done."""
        tasks = asyncio.create_task(work), asyncio.create_task(self._began.wait())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return None if self._began.is_set() else tasks[0].result()
        finally:
            for task in tasks:
                task.cancel()

    def _begin(self) -> None:
        if self._master.should_exit.is_set():
            os._exit(130)  # it is ending and does not: what is open is settled by the next start
        if self._began_s is None:
            self._began_s = time.monotonic()
            self._began.set()
            self._task = asyncio.get_running_loop().create_task(self._run())
        elif time.monotonic() - self._began_s > SAME_S:
            self._finish()

    async def _run(self) -> None:
        try:
            self._gate.stop()
            closing = ctx.master.addons.get("proxyserver").servers.update([])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(closing, CLOSE_WAIT_S)
            await self._wait()
        finally:
            self._finish()

    def _finish(self) -> None:
        """Break off what still runs, and end; once."""
        if self._is_over:
            return
        self._is_over = True
        try:
            self._say_broken_off()
            self._tap.break_off()
        finally:
            self._end()

    async def _wait(self) -> None:
        patience_s = self._gate.in_force.terms.config.drain_ms / 1000
        end_s = time.monotonic() + patience_s
        waits = bool(self._running())
        if waits and patience_s:
            line = f"{_calls(self._running())} still running, waiting up to {patience_s:g}s (Ctrl-C again ends at once)"
            say(f"stopping; {line}")
        if not await _until(lambda: not self._running(), end_s):
            return
        # The last piece of a reply is handed over just after the call has ended for us.
        await asyncio.sleep(LINGER_S if waits and self._speaks_http2() else LOOK_S)
        await _until(lambda: not self._bytes_left() and not self._tap.is_booking, end_s)

    def _running(self) -> int:
        return sum(trip.is_running for trip in self._gate.trips.values())

    def _say_broken_off(self) -> None:
        charged = sum(trip.is_charged_if_stopped for trip in self._gate.trips.values())
        others = self._running() - charged
        if charged:
            more = f", {others} more without a charge" if others else ""
            say(f"stopping; {_calls(charged)} broken off now and charged in full (lockpin_stopped){more}")
        elif others:
            say(f"stopping; {_calls(others)} broken off now without a charge")

    def _bytes_left(self) -> bool:
        """Say whether a client that has had a call still has something of a reply to take."""
        connections = ctx.master.addons.get("proxyserver").connections
        return any(
            connections[client_id].transports[client].writer.transport.get_write_buffer_size()
            for client_id, client in self._clients()
            if client in connections[client_id].transports
        )

    def _speaks_http2(self) -> bool:
        return any(client.alpn == b"h2" for _, client in self._clients())

    def _clients(self) -> list[tuple[str, Client]]:
        connections = ctx.master.addons.get("proxyserver").connections
        return [(one, connections[one].client) for one in self._gate.served if one in connections]


async def _until(condition: Callable[[], bool], end_s: float) -> bool:
    """Wait for a condition; False: it did not come true in time."""
    while not condition():
        if time.monotonic() >= end_s:
            return False
        await asyncio.sleep(LOOK_S)
    return True


def _calls(count: int) -> str:
    return "1 call is" if count == 1 else f"{count} calls are"

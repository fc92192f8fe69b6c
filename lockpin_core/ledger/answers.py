"""Awaits a ledger's answers in an event loop, at the price of one turn of it. Knows futures; knows no ledger."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import Future


async def answer_of[T](future: Future[T]) -> T:
    """Await an answer; where the awaiting is broken off, the question is taken back if nobody has begun with it."""
    try:
        await _waiter(future, asyncio.get_running_loop())
    except asyncio.CancelledError:
        future.cancel()
        raise
    return future.result()


async def answer_within[T](future: Future[T], patience_s: float) -> T | None:
    """Await an answer for a time; None: there is none yet, and it may still come."""
    loop = asyncio.get_running_loop()
    waiter = _waiter(future, loop)
    timer = loop.call_later(patience_s, _wake, waiter)
    try:
        await waiter
    finally:
        timer.cancel()
    return future.result() if future.done() else None


def failed_by[T](asked: Future[T], error: BaseException) -> bool:
    """Say whether an error is the ledger's answer, as against something that befell the one who waited for it."""
    return asked.done() and not asked.cancelled() and asked.exception() is error


def _waiter[T](future: Future[T], loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
    """Make what wakes when the answer comes. Answers that come in the loop's own thread need no detour."""
    waiter: asyncio.Future[None] = loop.create_future()
    here = threading.get_ident()

    def answered(_: Future[T]) -> None:
        if threading.get_ident() == here:
            _wake(waiter)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_wake, waiter)

    future.add_done_callback(answered)
    return waiter


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)

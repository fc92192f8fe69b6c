"""The row of the bench that needs neither proxy nor ledger: P11, what one call does on the event loop."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from bench_bodies import CALLS
from bench_rows import Effort, Line
from bench_targets import Bench, pinned_to

from lockpin_core.admission import Incoming, Priced
from lockpin_core.aside import ON_LOOP_BYTES, beside_loop, take_short_turns
from lockpin_core.call import Call, Payers
from lockpin_core.prices import PriceTable, shipped_dir
from lockpin_core.providers import Metered, Providers
from lockpin_core.wire import wire_named


def parsing(bench: Bench, effort: Effort) -> list[Line]:
    """P11: what a call costs before it is held, and where it does not fit; how long the loop waits for a large one.

    What is larger than `ON_LOOP_BYTES` is read beside the loop, in a thread that takes turns with it.
    """
    providers, prices = Providers.load(shipped_dir()), PriceTable.load(shipped_dir(), {}, {})
    lines: list[Line] = []
    gc.collect()
    gc.freeze()  # as the proxy does after its start
    with pinned_to(bench, 1):
        for name, provider, path, make in CALLS:
            for size, goal_ms in ((2, 0.15), (200, 1.5)):
                incoming = _incoming(providers, provider, path, make(size * 1000))
                took_ms = _median_ms(partial(_price, incoming, prices), effort)
                lines.append(Line(f"{name}, {size} KB", f"{took_ms:.3f} ms", f"≤ {goal_ms:g} ms", took_ms <= goal_ms))
        for name, provider, path, make in CALLS:
            incoming = _incoming(providers, provider, path, make(ON_LOOP_BYTES))
            took_ms = _median_ms(partial(_digest, incoming), effort)
            what = f"{name}, {ON_LOOP_BYTES // 1000} KB that do not fit: digest, on the loop"
            lines.append(Line(what, f"{took_ms:.3f} ms", "≤ 1 ms", took_ms <= 1))
    take_short_turns()
    for name, provider, path, make in CALLS:
        incoming = _incoming(providers, provider, path, make(200_000))
        waited_ms = statistics.median(_longest_waits_ms(incoming, effort))
        what = f"{name}, 200 KB: the loop's longest wait"
        lines.append(Line(what, f"{waited_ms:.3f} ms", "≤ 1 ms", waited_ms <= 1))
    return lines


def _longest_waits_ms(incoming: Incoming, effort: Effort) -> list[float]:
    """Read a body again and again, and each time give the longest that the loop could not go on."""
    route = incoming.provider.route(incoming.method, incoming.path)
    assert isinstance(route, Metered)
    reading = partial(wire_named(route.wire).parse, incoming.request())
    until_s = time.perf_counter() + max(0.05, effort.seconds / 2)
    found: list[float] = []
    while time.perf_counter() < until_s:
        found.append(asyncio.run(_longest_wait_ms(len(incoming.body), reading)))
    return found


async def _longest_wait_ms(size: int, reading: Callable[[], object]) -> float:
    task = asyncio.ensure_future(beside_loop(size, reading))
    longest_s, last_s = 0.0, time.perf_counter()
    while not task.done():
        await asyncio.sleep(0)
        now_s = time.perf_counter()
        longest_s, last_s = max(longest_s, now_s - last_s), now_s
    await task
    return longest_s * 1000


def _incoming(providers: Providers, name: str, path: str, body: bytes) -> Incoming:
    provider = providers.by_name(name)
    assert provider is not None
    host = provider.base.removeprefix("https://")
    incoming = Incoming(
        id="call", provider=provider, host=host, method="POST", path=path, headers={}, body=body, upgrade=False,
        payers=Payers("bench", "machine-1"), client="bench",
    )  # fmt: skip
    route = provider.route("POST", path)
    assert isinstance(route, Metered)
    return replace(incoming, path_model=route.model)


def _digest(incoming: Incoming) -> bytes:
    route = incoming.provider.route(incoming.method, incoming.path)
    assert isinstance(route, Metered)
    return wire_named(route.wire).same_call(incoming.request())


def _price(incoming: Incoming, prices: PriceTable) -> Call:
    route = incoming.provider.route(incoming.method, incoming.path)
    assert isinstance(route, Metered)
    wire = wire_named(route.wire)
    parsed = wire.parse(incoming.request())
    at = datetime.now(UTC)
    model = prices.find(incoming.provider.name, parsed.model, at)
    assert model is not None
    return Priced(incoming, wire, parsed, model, prices, at).call(None)


def _median_ms(action: Callable[[], object], effort: Effort) -> float:
    times: list[float] = []
    until_s = time.perf_counter() + max(0.05, effort.seconds / 2)
    while time.perf_counter() < until_s:
        began_s = time.perf_counter()
        action()
        times.append((time.perf_counter() - began_s) * 1000)
    return statistics.median(times)

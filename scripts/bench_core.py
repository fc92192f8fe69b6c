"""The row of the bench that needs neither proxy nor ledger: P11, what one call does on the event loop."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from bench_rows import Effort, Line, agent_body, chat_body
from bench_targets import Bench, pinned_to

from lockpin_core.admission import Incoming, Priced
from lockpin_core.call import Call, Payers, Request
from lockpin_core.prices import PriceTable, shipped_dir
from lockpin_core.providers import Metered, Providers
from lockpin_core.wire import wire_named


def parsing(bench: Bench, effort: Effort) -> list[Line]:
    """P11: what a call costs on the loop before it is held."""
    providers = Providers.load(shipped_dir())
    prices = PriceTable.load(shipped_dir(), {}, {})
    lines: list[Line] = []
    with pinned_to(bench, 1):
        for what, name, path, body, goal_ms in (
            ("2 KB chat call", "openai", "/v1/chat/completions", chat_body(), 0.15),
            ("200 KB coding-agent call", "anthropic", "/v1/messages", agent_body(), 1.5),
        ):
            provider = providers.by_name(name)
            assert provider is not None
            incoming = Incoming(
                id="call", provider=provider, host=f"api.{name}.com", method="POST", path=path, headers={}, body=body,
                upgrade=False, payers=Payers("bench", "machine-1"), client="bench",
            )  # fmt: skip
            took_ms = _median_ms(partial(_price, incoming, prices), effort)
            lines.append(Line(what, f"{took_ms:.3f} ms", f"≤ {goal_ms:g} ms", took_ms <= goal_ms))
    return lines


def _price(incoming: Incoming, prices: PriceTable) -> Call:
    route = incoming.provider.route(incoming.method, incoming.path)
    assert isinstance(route, Metered)
    wire = wire_named(route.wire)
    request = Request(incoming.method, incoming.host, incoming.path, incoming.headers, incoming.body)
    parsed = wire.parse(request)
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

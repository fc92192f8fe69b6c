"""The rows of the bench that need no proxy: P8, the ledger alone, and P11, what one call does on the event loop."""

from __future__ import annotations

import json
import queue
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from bench_rows import Effort, Line, agent_body, chat_body
from bench_targets import Bench, fdatasync_ms, pinned_to

from lockpin_core.admission import Incoming, Priced
from lockpin_core.budgets import Budget
from lockpin_core.call import Call, Ceiling, Charge, Payers, Quote, Request, Terms
from lockpin_core.clock import new_id, utc_now
from lockpin_core.ledger.place import open_ledger
from lockpin_core.ledger.protocol import Closed, Held, Resolved, Rules, Short
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.money import Money
from lockpin_core.prices import PriceTable, shipped_dir
from lockpin_core.providers import Metered, Providers
from lockpin_core.usage import Unit
from lockpin_core.windows import Window
from lockpin_core.wire import wire_named

WAITING = 32
_LIMIT = Money(10**15)
_UNITS = frozenset({Unit.INPUT, Unit.OUTPUT})
_RULES = Rules(
    (
        Budget("daily", "machine", Window("day"), limit=_LIMIT, enforce=True),
        Budget("ever", "machine", Window("lifetime"), limit=_LIMIT, enforce=True),
    ),
    Budget("task", "task", Window("lifetime"), limit=_LIMIT, enforce=True, own=True),
)
_CHARGE = Charge(Money(150_000), {Unit.INPUT: 410, Unit.OUTPUT: 200}, 610, "gpt-4o-mini", None)

type Step = Callable[[Callable[[], None]], None]  # does one pair and then calls back


def ledger(bench: Bench, effort: Effort) -> list[Line]:
    """P8: durable pairs of hold and settle, 32 waiting, against a plain loop that writes the same tables."""
    sync_ms, late_ms = fdatasync_ms(bench.folder)
    lines = [Line("fdatasync of this disk", f"p50 {sync_ms:.2f} ms, p99 {late_ms:.2f} ms")]
    plain: list[tuple[float, float]] = []
    ours: list[tuple[float, float]] = []
    with pinned_to(bench, 1):
        for index in range(effort.rounds):
            plain.append(_plain_pairs(bench.folder / f"plain-{index}.sqlite3", effort.seconds))
            ours.append(_pairs(bench.folder / f"ours-{index}.sqlite3", effort.seconds))
        few, many = (_pairs_on(bench.folder, rows, effort.seconds) for rows in (1_000, 100_000))
    ratios = sorted(o[0] / p[0] for p, o in zip(plain, ours, strict=True))
    ratio, flat = statistics.median(ratios), many / few
    return [
        *lines,
        Line("plain group-commit loop on the same tables", _shown(plain)),
        Line("ledger", _shown(ours)),
        Line("ledger: pairs a second", f"{ratio:.2f}×  ({ratios[0]:.2f} … {ratios[-1]:.2f})", "≥ 0.9×", ratio >= 0.9),
        Line("the same on 100,000 rows, of that on 1,000", f"{flat:.2f}×", "≥ 0.9×", flat >= 0.9),
    ]


def _shown(runs: list[tuple[float, float]]) -> str:
    rate, cpu = (statistics.median(column) for column in zip(*runs, strict=True))
    return f"{rate:.0f} pairs a second, {cpu:.0f} µs CPU a pair"


def _drive(step: Step, seconds: float) -> tuple[float, float]:
    """Keep 32 pairs under way for a time; give pairs a second and CPU microseconds a pair."""
    done = threading.Event()
    count, lanes = 0, WAITING
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    until_s = began_s + seconds

    def finished() -> None:
        nonlocal count, lanes
        count += 1
        if time.perf_counter() < until_s:
            step(finished)
            return
        lanes -= 1
        if not lanes:
            done.set()

    for _ in range(WAITING):
        step(finished)
    done.wait()
    return count / (time.perf_counter() - began_s), (time.process_time() - began_cpu_s) * 1e6 / count


def _pairs(path: Path, seconds: float) -> tuple[float, float]:
    books = SqliteLedger(path, clock=utc_now, new_id=new_id)
    try:
        return _drive(_steps(books), seconds)
    finally:
        books.stop()


def _pairs_on(folder: Path, rows: int, seconds: float) -> float:
    """Fill a ledger up to a number of rows, then measure."""
    path = folder / f"rows-{rows}.sqlite3"
    books = SqliteLedger(path, clock=utc_now, new_id=new_id, durability="normal")
    done = threading.Event()
    left = rows // 2

    def again() -> None:
        nonlocal left
        left -= 1
        if left > 0:
            step(again)
        if left <= -WAITING + 1:
            done.set()

    step = _steps(books)
    for _ in range(WAITING):
        step(again)
    done.wait()
    books.stop()
    return _pairs(path, seconds)[0]


def _steps(books: SqliteLedger) -> Step:
    def step(finished: Callable[[], None]) -> None:
        call = _call()

        def settled(resolved: Future[Resolved]) -> None:
            assert resolved.result().first
            finished()

        def settle(held: Future[Held | Short | Closed]) -> None:
            assert isinstance(held.result(), Held)
            books.settle(call.id, _CHARGE).add_done_callback(settled)

        books.hold(call, _RULES).add_done_callback(settle)

    return step


def _call() -> Call:
    quote = Quote(Money(400_000), 2800, Ceiling(2500, 300, _UNITS, _UNITS, {}))
    return Call(
        id=new_id(), payers=Payers("bench", "machine-1"), provider="openai", host="api.openai.com", wire="openai_chat",
        model="gpt-4o-mini", asked_model="gpt-4o-mini", client="OpenAI/Python", streamed=False, quote=quote,
        terms=Terms(), output_limit=300, limit_set=False, billing="metered", price_date="2026-11-01",
        rates={"input": "0.15", "output": "0.6", "cache_read": "0.075"},
    )  # fmt: skip


_ACCOUNTS = ("task\x1ftask\x1fbench\x1f", "daily\x1fmachine\x1fm\x1f2026-11-29T00:00:00Z", "ever\x1fmachine\x1fm\x1f")
_MOST_NANO, _COST_NANO = 400_000, 150_000
_FACTS = {"task": "bench", "machine": "m", "provider": "openai", "host": "api.openai.com", "model": "gpt-4o-mini",
          "client": "OpenAI/Python", "billing": "metered", "writer": "w", "prev": bytes(32), "hash": bytes(32),
          "accounts": json.dumps(_ACCOUNTS), "tier": "default"}  # fmt: skip
_HOLD = {**_FACTS, "kind": "hold", "usd": _MOST_NANO, "tokens": 2800, "wire": "openai_chat", "output_limit": 300,
         "asked_model": "gpt-4o-mini", "rates": '{"input":"0.15","output":"0.6"}', "price_date": "2026-11-01",
         "limit_set": 0, "streamed": 0, "waited_ms": 0}  # fmt: skip
_CHARGED = {**_FACTS, "kind": "charge", "usd": _COST_NANO, "tokens": 610, "usage": '{"input":410,"output":200}',
            "input_tokens": 410, "cache_read_tokens": 0, "cache_write_tokens": 0, "output_tokens": 200,
            "model_served": "gpt-4o-mini", "estimated": 0, "failed": 0, "over_hold": 0, "priced": 1,
            "held_at": 1, "data": '{"balances":[[1,2,3,4,5,6],[1,2,3,4,5,6],[1,2,3,4,5,6]]}'}  # fmt: skip
_ROOM = "SELECT max(spent_nano + held_nano) FROM accounts WHERE id IN (?, ?, ?)"
_OPEN = "INSERT INTO open_holds (call, writer, at, usd, tokens, accounts, task) VALUES (?, 'w', 1, 1, 1, ?, 'bench')"
_HELD = "UPDATE accounts SET held_nano = held_nano + ? WHERE id = ?"
_SPENT = "UPDATE accounts SET held_nano = held_nano - ?, spent_nano = spent_nano + ? WHERE id = ?"


def _plain_pairs(path: Path, seconds: float) -> tuple[float, float]:
    """Measure a loop that commits what waits in one go and only writes: the ledger's own tables, no rules, no chain."""
    connection = open_ledger(path, durability="full", new_id=new_id)
    for name in _ACCOUNTS:
        connection.execute("INSERT INTO accounts (id, budget, scope, subject) VALUES (?, 'b', 'task', 's')", (name,))
    waiting: queue.SimpleQueue[tuple[str, str, Future[None]] | None] = queue.SimpleQueue()

    def work() -> None:
        seq = 0
        while (first := waiting.get()) is not None:
            batch = [first]
            while not waiting.empty() and (more := waiting.get()) is not None:
                batch.append(more)
            connection.execute("BEGIN IMMEDIATE")
            for kind, call, _ in batch:
                seq += 1
                _plain_operation(connection, kind, call, seq)
            connection.execute("COMMIT")
            for _, _, future in batch:
                future.set_result(None)

    def ask(kind: str, call: str) -> Future[None]:
        future: Future[None] = Future()
        waiting.put((kind, call, future))
        return future

    def step(finished: Callable[[], None]) -> None:
        call = _call().id
        held = ask("hold", call)
        held.add_done_callback(lambda _: ask("charge", call).add_done_callback(lambda _: finished()))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        return _drive(step, seconds)
    finally:
        waiting.put(None)
        thread.join()
        connection.close()


def _plain_operation(connection: sqlite3.Connection, kind: str, call: str, seq: int) -> None:
    if kind == "hold":
        (most,) = connection.execute(_ROOM, _ACCOUNTS).fetchone()
        assert most + _MOST_NANO <= _LIMIT.nano
        connection.execute(_OPEN, (call, _FACTS["accounts"]))
        for account in _ACCOUNTS:
            connection.execute(_HELD, (_MOST_NANO, account))
        _plain_row(connection, _HOLD, call, seq)
        return
    connection.execute("DELETE FROM open_holds WHERE call = ?", (call,))
    for account in _ACCOUNTS:
        connection.execute(_SPENT, (_MOST_NANO, _COST_NANO, account))
    _plain_row(connection, _CHARGED, call, seq)


def _plain_row(connection: sqlite3.Connection, row: Mapping[str, object], call: str, seq: int) -> None:
    names = [*row, "call", "seq", "at"]
    columns, marks = ", ".join(f'"{name}"' for name in names), ", ".join("?" * len(names))
    connection.execute(f"INSERT INTO rows ({columns}) VALUES ({marks})", (*row.values(), call, seq, seq))


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

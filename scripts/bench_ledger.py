"""The rows of the bench that need the ledger alone: P8, pairs of hold and settle, and P10, reports of many calls."""

from __future__ import annotations

import itertools
import json
import os
import queue
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path

import bench_fill
from bench_rows import Effort, Line
from bench_targets import Bench, fdatasync_ms, pinned_to

from lockpin_core.budgets import Budget
from lockpin_core.call import Call, Ceiling, Charge, Payers, Quote, Terms
from lockpin_core.clock import new_id, utc_now
from lockpin_core.ledger.place import open_ledger
from lockpin_core.ledger.protocol import Closed, Held, Resolved, Rules, Short
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.money import Money
from lockpin_core.usage import Unit
from lockpin_core.windows import Window

ROOT = Path(__file__).resolve().parent.parent
WAITING, ACCOUNTS = 32, 3
_LIMIT = Money(10**15)
_UNITS = frozenset({Unit.INPUT, Unit.OUTPUT})
_CHARGE = Charge(Money(150_000), {Unit.INPUT: 410, Unit.OUTPUT: 200}, 610, "gpt-4o-mini", None)

type Step = Callable[[Callable[[], None]], None]  # does one pair and then calls back
type Run = tuple[float, float]  # pairs a second, CPU microseconds a pair


def ledger(bench: Bench, effort: Effort) -> list[Line]:
    """P8: durable pairs of hold and settle, against a plain loop that writes the same tables; and what changes them.

    The plain loop stands for what the disk and SQLite allow: it only writes, and knows neither rules nor a chain.
    """
    sync_ms, late_ms = fdatasync_ms(bench.folder)
    with pinned_to(bench, 1):
        return [
            Line("fdatasync of this disk", f"p50 {sync_ms:.2f} ms, p99 {late_ms:.2f} ms"),
            *_against_plain(bench.folder, effort),
            *_by_accounts(bench.folder, effort),
            *_by_rows(bench.folder, effort),
        ]


def _against_plain(folder: Path, effort: Effort) -> list[Line]:
    lines: list[Line] = []
    for waiting in (WAITING, 1, 8, 128):
        plain: list[Run] = []
        ours: list[Run] = []
        for index in range(effort.rounds if waiting == WAITING else 1):
            name = f"{waiting}-{index}.sqlite3"
            plain.append(_plain_pairs(folder / f"plain-{name}", effort.seconds, waiting))
            ours.append(_pairs(folder / f"ours-{name}", effort.seconds, waiting))
        ratios = sorted(o[0] / p[0] for p, o in zip(plain, ours, strict=True))
        ratio, goal = statistics.median(ratios), waiting == WAITING
        shown = f"{ratio:.2f}×  ({ratios[0]:.2f} … {ratios[-1]:.2f})" if len(ratios) > 1 else f"{ratio:.2f}×"
        lines += [
            Line(f"plain group-commit loop, {waiting} waiting", _shown(plain)),
            Line(f"ledger, {waiting} waiting, {ACCOUNTS} accounts a call", _shown(ours)),
            Line("  pairs a second, of the plain loop's", shown, *(("≥ 0.9×", ratio >= 0.9) if goal else ())),
        ]
    return lines


def _by_accounts(folder: Path, effort: Effort) -> list[Line]:
    counts = (1, ACCOUNTS, 20)
    runs: dict[int, list[Run]] = {count: [] for count in counts}
    for index, count in itertools.product(range(min(3, effort.rounds)), counts):
        path = folder / f"accounts-{count}-{index}.sqlite3"
        runs[count].append(_pairs(path, effort.seconds, WAITING, accounts=count))
    lines = [Line(f"ledger, {WAITING} waiting, {count} accounts a call", _shown(runs[count])) for count in counts]
    ratios = [many[0] / one[0] for one, many in zip(runs[1], runs[20], strict=True)]
    ratio = statistics.median(ratios)
    return [*lines, Line("  20 accounts: pairs a second, of those with 1", f"{ratio:.2f}×", "≥ 0.5×", ratio >= 0.5)]


def _by_rows(folder: Path, effort: Effort) -> list[Line]:
    sizes = _sizes(effort, 1_000, 100_000, 1_000_000)
    rates: list[float] = []
    for rows in sizes:
        path = folder / f"rows-{rows}.sqlite3"
        bench_fill.fill(path, rows // 2)
        rates.append(statistics.median(_pairs(path, effort.seconds, WAITING)[0] for _ in range(min(3, effort.rounds))))
        bench_fill.remove(path)
    what = "ledger on {:,} rows: pairs a second, of those on {:,}"
    shares = [(rows, rate / rates[0]) for rows, rate in zip(sizes[1:], rates[1:], strict=True)]
    return [Line(what.format(n, sizes[0]), f"{share:.2f}×", "≥ 0.9×", share >= 0.9) for n, share in shares]


def reports(bench: Bench, effort: Effort) -> list[Line]:
    """P10: how long the command takes that adds up a month of many calls."""
    calls = _sizes(effort, 1_000, 100_000, 1_000_000)[-1]
    lines: list[Line] = []
    for what, by_call in (("200 tasks, 6 models, 3 clients", False), ("every call its own task", True)):
        path = bench.folder / "reports.sqlite3"
        bench_fill.fill(path, calls, own_tasks=by_call)
        lines.append(Line(f"{calls:,} calls, {what}", ""))
        for words in (["--by", "task"], ["--by", "day"], ["--by", "model"], ["--by", "model", "--since", "7d"]):
            took_s = statistics.median(_report_s(path, words) for _ in range(min(3, effort.rounds)))
            lines.append(Line(f"  report {' '.join(words)}", f"{took_s:.2f} s", "≤ 2 s", took_s <= 2))
        bench_fill.remove(path)
    return lines


def _report_s(path: Path, words: list[str]) -> float:
    """Run the command as people do; give the seconds from its start to its end."""
    config = path.with_suffix(".yaml")
    config.write_text(f"ledger: sqlite://{path}\ntimezone: Europe/Berlin\n", "utf-8")
    command = [sys.executable, "-m", "lockpin_cli.main", "report", "--config", str(config), *words]
    began_s = time.perf_counter()
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began_s


def _sizes(effort: Effort, *sizes: int) -> tuple[int, ...]:
    """Leave the large ones out where there is little time."""
    if effort.rounds > 3:
        return sizes
    return sizes[:2] if effort.rounds > 1 else (sizes[0], 2 * sizes[0])


def _shown(runs: list[Run]) -> str:
    rate, cpu = (statistics.median(column) for column in zip(*runs, strict=True))
    return f"{rate:.0f} pairs a second, {cpu:.0f} µs CPU a pair"


def _drive(step: Step, seconds: float, waiting: int) -> Run:
    """Keep so many pairs under way for a time; give pairs a second and CPU microseconds a pair."""
    done = threading.Event()
    count, lanes = 0, waiting
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

    for _ in range(waiting):
        step(finished)
    done.wait()
    return count / (time.perf_counter() - began_s), (time.process_time() - began_cpu_s) * 1e6 / count


def _pairs(path: Path, seconds: float, waiting: int, *, accounts: int = ACCOUNTS) -> Run:
    books = SqliteLedger(path, clock=utc_now, new_id=new_id)
    try:
        return _drive(_steps(books, _rules(accounts)), seconds, waiting)
    finally:
        books.stop()


def _rules(accounts: int) -> Rules:
    """Make budgets that put a call on so many accounts, the task's own among them."""
    named = [
        Budget(f"budget-{number:02}", "machine", Window("day" if number == 1 else "lifetime"), _LIMIT, enforce=True)
        for number in range(1, accounts)
    ]
    return Rules(tuple(named), Budget("task", "task", Window("lifetime"), limit=_LIMIT, enforce=True, own=True))


def _steps(books: SqliteLedger, rules: Rules) -> Step:
    def step(finished: Callable[[], None]) -> None:
        call = _call()

        def settled(resolved: Future[Resolved]) -> None:
            assert resolved.result().first
            finished()

        def settle(held: Future[Held | Short | Closed]) -> None:
            assert isinstance(held.result(), Held)
            books.settle(call.id, _CHARGE).add_done_callback(settled)

        books.hold(call, rules).add_done_callback(settle)

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


def _plain_pairs(path: Path, seconds: float, waiting_count: int) -> Run:
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
        return _drive(step, seconds, waiting_count)
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

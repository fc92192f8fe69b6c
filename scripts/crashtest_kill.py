"""`kill -9` at random moments under load, and what the books say afterwards against what the provider would bill."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import client
import processes

from scripts.crashtest_books import check, need, query, spent_of, until
from scripts.crashtest_load import TASKS, Load, case_of

# $1 and $5 a million tokens are 1,000 and 5,000 nanodollars a token; a task pays for a dozen of its calls or so.
CONFIG = """
upstreams: {{api.openai.com: "{origin}", api.anthropic.com: "{origin}"}}
daily_usd: 1000
task: {{budget_usd: 0.03}}
queue: {{wait: {wait_s}s}}
pricing:
  chat-model: {{input_per_mtok: 1, output_per_mtok: 5, max_output_tokens: 100000, context_tokens: 200000}}
  messages-model: {{input_per_mtok: 1, output_per_mtok: 5, max_output_tokens: 100000, context_tokens: 200000}}
"""
IN_NANO, OUT_NANO = 1_000, 5_000
LIMITS = {"daily": 1000 * 10**9, "task": 3 * 10**7}
KINDS = ("up", "mitmdump")
SERVED_S = 2.0
RECOVERED_S = 10.0
BESIDE, DURING_START = 0.3, 0.1  # how often a second proxy lives on, and how often the next one is killed as it starts
_OLD = "SELECT 1 FROM open_holds WHERE at < ?"
_TICKETS = "SELECT DISTINCT call FROM waiting"
_WAITED = "SELECT 1 FROM rows WHERE kind = 'hold' AND waited_ms > 0"
_ODD = "SELECT call FROM rows WHERE kind = 'uncapped' OR over_hold = 1"


@dataclass
class Killed:
    """What was seen."""

    kills: Counter[str] = field(default_factory=Counter)  # by kind of proxy
    beside: int = 0  # of these, while another one lived
    ends: Counter[str] = field(default_factory=Counter)
    listening_s: list[float] = field(
        default_factory=list
    )  # each start: until the first call is served, from the socket
    starting_s: list[float] = field(default_factory=list)  # the same, from the start of the process
    early: int = 0  # first calls that came to the first socket of `mitmdump -s`, and were made again
    recovered_s: float = 0.0  # until no hold was open that is older than the last start
    exact: int = 0  # calls whose whole reply the client has had, and that were charged exactly what it reported
    stopped: int = 0  # calls that were charged because Lockpin stopped
    charged: int = 0
    true: int = 0  # what the provider would bill
    tickets: int = 0  # of calls that waited when a kill came
    waited: int = 0  # calls that waited, and went


class _Proxies:
    """The living proxies, on one ledger, in one home."""

    def __init__(self, folder: Path, config: str, load: Load, lots: random.Random, seen: Killed) -> None:
        self.folder, self.load, self.lots, self.seen = folder, load, lots, seen
        self.config = config
        self.home = processes.make_home(folder)
        self.living: dict[int, tuple[processes.Proxy, str]] = {}  # by port
        self.last_start = 0

    def launch(self) -> tuple[processes.Proxy, str]:
        kind = self.lots.choice(KINDS)
        return processes.launch(self.folder, self.config, kind=kind, home=self.home), kind

    def start(self) -> None:
        """Start one, and let its first call be served as soon as it listens."""
        self.last_start = time.time_ns() // 1000
        began_s = time.monotonic()
        proxy, kind = self.launch()
        self.living[proxy.port] = proxy, kind
        until(lambda: _listens(proxy), "the proxy listens")
        listening_s = time.monotonic()
        before = self.load.round - 1 if self.load.round and self.lots.random() < 0.3 else self.load.round
        # Where calls wait, it is of a task of its own: for how long it takes says something of the start alone then.
        task = f"r{before}-{'first' if self.load.wait_ms else self.lots.randrange(self.load.tasks)}"
        answer = until(lambda: self._first_call(proxy, task), "the first call is answered")
        now_s = time.monotonic()
        status = int(answer.split(b" ", 2)[1])
        need(status in (200, 402), f"the first call after a start got {answer!r}; {proxy.printed()}")
        self.seen.listening_s.append(now_s - listening_s)
        self.seen.starting_s.append(now_s - began_s)
        self._tell()

    def _first_call(self, proxy: processes.Proxy, task: str) -> bytes:
        """Give the reply to a call, none where it came too early.

        `mitmdump -s` opens its socket twice, some milliseconds apart; the first one closes its connections, or answers
        before it knows its own address. A client that came to it calls again.
        """
        case = case_of(self.lots, task, plain=True)
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", proxy.port), 30) as raw,
        ):
            raw.sendall(case.to(proxy.port))
            reply = client.read_all(raw, 30)
            if reply and b"Request destination unknown" not in reply:
                return reply
        self.seen.early += 1
        return b""

    def kill(self, proxy: processes.Proxy, kind: str) -> None:
        """Send SIGKILL, and forget it."""
        self.seen.tickets += len(query(proxy.ledger, _TICKETS)) if proxy.ledger.exists() else 0
        proxy.process.kill()
        proxy.process.wait()
        self.living.pop(proxy.port, None)
        self.seen.kills[kind] += 1
        self.seen.beside += bool(self.living)
        self._tell()

    def _tell(self) -> None:
        self.load.ports = list(self.living)

    def end(self) -> None:
        for proxy, _ in self.living.values():
            processes.end(proxy.process)


def kill(folder: Path, *, times: int, seed: int, lanes: int = 12, wait_s: int = 0) -> Killed:
    """Kill proxies under load at random moments, start again on the same ledger, and judge the books at the end.

    `wait_s`: for how long calls may wait for room; then all of a round are of one task, for which they are too many.
    """
    seen, lots = Killed(), random.Random(seed)
    bills = folder / "bills.jsonl"
    load_of_all = Load(seed, lanes, tasks=1 if wait_s else TASKS, wait_s=wait_s)
    with processes.origin(folder, bills=bills) as origin, load_of_all as load:
        proxies = _Proxies(folder, CONFIG.format(origin=origin.url, wait_s=wait_s), load, lots, seen)
        with contextlib.ExitStack() as stack:
            stack.callback(proxies.end)
            proxies.start()
            while seen.kills.total() < times:
                load.round += 1
                _kill_once(proxies, lots)
            if not proxies.living:
                proxies.start()
            ledger = next(iter(proxies.living.values()))[0].ledger
            _wait_for_the_dead(ledger, proxies.last_start, seen)
            load.stop()
            until(lambda: not query(ledger, "SELECT 1 FROM open_holds"), "every call that has ended is settled")
            until(lambda: not query(ledger, _TICKETS), "no ticket is left")
            for proxy, _ in proxies.living.values():
                need(proxy.stop(signal.SIGTERM) == 0, f"a proxy did not end well: {proxy.printed()}")
        need(not load.odd, f"calls were answered {Counter(load.odd)}")
        until(lambda: all(bill["ended"] for bill in _bills(bills).values()), "the origin's exchanges have ended")
    seen.ends, seen.exact = load.ends, _count_exact(ledger, load.answered)
    _judge(ledger, _bills(bills), seen)
    return seen


def _kill_once(proxies: _Proxies, lots: random.Random) -> None:
    if len(proxies.living) == 1 and lots.random() < BESIDE:
        proxies.start()
    time.sleep(lots.uniform(0, 0.7))  # the random moment
    proxies.kill(*lots.choice(list(proxies.living.values())))
    if lots.random() < DURING_START:
        proxy, kind = proxies.launch()
        time.sleep(lots.uniform(0, 1))
        proxies.kill(proxy, kind)
    if not proxies.living or lots.random() < 0.5:
        proxies.start()


def _listens(proxy: processes.Proxy) -> bool:
    need(proxy.process.poll() is None, f"a proxy ended at its start: {proxy.printed() if proxy.log.exists() else ''}")
    try:
        socket.create_connection(("127.0.0.1", proxy.port), 1).close()
    except OSError:
        return False
    return True


def _wait_for_the_dead(ledger: Path, last_start: int, seen: Killed) -> None:
    def is_clear() -> bool:
        return not query(ledger, _OLD, last_start)

    until(is_clear, "no hold is open that is older than the last start", RECOVERED_S + _since_s(last_start))
    seen.recovered_s = _since_s(last_start)


def _since_s(instant: int) -> float:
    return time.time() - instant / 1e6


def _bills(path: Path) -> dict[int, dict[str, object]]:
    """Read what the provider would bill, the last word on each call."""
    lines = path.read_text().splitlines()
    return {bill["number"]: bill for bill in map(json.loads, lines)}


def _count_exact(ledger: Path, answered: Mapping[str, tuple[int, int]]) -> int:
    """Compare charges with what whole replies reported; a proxy killed after the last byte may not have known it."""
    charges = {row["call"]: row for row in query(ledger, "SELECT * FROM rows WHERE kind = 'charge'")}
    exact = 0
    for call, (input_tokens, output_tokens) in answered.items():
        need(call in charges, f"call {call} was answered, and not charged")
        true = input_tokens * IN_NANO + output_tokens * OUT_NANO
        charge = charges[call]
        exact += charge["usd"] == true
        right = charge["usd"] == true or charge["reason"] == "lockpin_stopped"
        need(right, f"call {call} was charged {charge['usd']} ({charge['reason']}), and cost {true}")
    return exact


def _judge(ledger: Path, bills: Mapping[int, Mapping[str, object]], seen: Killed) -> None:
    tally = check(ledger, LIMITS)
    odd = query(ledger, _ODD)
    need(not odd, f"{len(odd)} calls went uncapped or above their hold, first {odd[:1]}")
    true: Counter[str] = Counter()
    for bill in bills.values():
        true[str(bill["task"])] += int(str(bill["input"])) * IN_NANO + int(str(bill["output"])) * OUT_NANO
    charged = spent_of(tally, "task")
    short = [task for task, nano in true.items() if nano > charged.get(task, 0)]
    need(not short, f"{len(short)} tasks were charged less than they cost, first {_first(short, charged, true)}")
    need(
        sum(spent_of(tally, "daily").values()) == sum(charged.values()),
        "the day's account is not the sum of its tasks'",
    )
    need(len(bills) <= tally.kinds["hold"], f"{len(bills)} calls reached the origin on {tally.kinds['hold']} holds")
    slow = max(seen.listening_s)
    need(
        slow <= SERVED_S, f"a first call was served {slow:.1f} s after the socket listened; {SERVED_S:g} s are allowed"
    )
    seen.charged, seen.true = sum(charged.values()), sum(true.values())
    seen.waited = len(query(ledger, _WAITED))
    seen.stopped = len(query(ledger, "SELECT 1 FROM rows WHERE kind = 'charge' AND reason = 'lockpin_stopped'"))


def _first(short: list[str], charged: Mapping[str, int], true: Mapping[str, int]) -> str:
    return f"{short[0]}: {charged.get(short[0], 0)} of {true[short[0]]} nanodollars" if short else ""

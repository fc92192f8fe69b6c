"""The row of the bench about the use of a budget, P12: parallel agents share one until a call is refused for good.

The agents speak Messages over real sockets, with a prompt of 120 KB that the provider takes from its cache for the most
part, a limit of 32,000 tokens and an output of 1 to 3% of that. What a call did cost, the agents add up by themselves.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from bench_rows import Effort, Line
from bench_targets import Bench, Target, pinned_to

AGENTS = 20
LIMIT_TOKENS, NEW_TOKENS, CACHED_TOKENS = 32_000, 50, 30_000
PROMPT_BYTES = 120_000
PACE_MS = 50  # from the reply's first event, which states the prompt, to the rest
_RATES_NANO = (3_000, 300, 15_000)  # a token: new, cached, output
_PRICING = (
    "pricing: {bench-model: {input: 3, cache_read: 0.3, output: 15, max_output_tokens: 32000, context_tokens: 200000}}"
)
_NANO = 10**9


@dataclass
class Run:
    """What became of one budget."""

    target: Target
    budget_usd: int
    is_patient: bool  # only a refusal that waiting cannot help ends it; else the first one does
    costs_nano: int = 0
    calls: int = 0
    early: int = 0  # refusals while only held money was in the way
    false: int = 0  # refusals of what would have fitted
    last: dict[str, Any] = field(default_factory=dict)  # the refusal that ended it

    @property
    def share(self) -> float:
        """Give the part of the budget that was spent when the run ended."""
        return float(Decimal(str(self.last["spent_usd"])) / self.budget_usd)

    def refuse(self, told: dict[str, Any]) -> None:
        """Take a refusal."""
        assert told["code"] == "budget_exceeded", told
        used = sum(Decimal(str(told[name])) for name in ("spent_usd", "in_flight_usd", "needed_usd"))
        self.false += used <= self.budget_usd
        self.early += bool(told["transient"])
        if not self.last and not (told["transient"] and self.is_patient):
            self.last = told


def use_of_budget(bench: Bench, effort: Effort) -> list[Line]:
    """P12: how much of a budget can be used, with the waiting room and early true-up, and without both beside it."""
    budget_usd = 2 if effort.rounds == 1 else 80
    lines: list[Line] = []
    for is_patient in (True, False):
        name = "patient" if is_patient else "plain"
        wait = "30s" if is_patient else "0s"
        limits = f"daily_usd: null\ntask: {{budget_usd: {budget_usd}}}\n"
        target = bench.up(f"queue: {{wait: {wait}}}\n{_PRICING}\n", name, limits=limits)
        run = Run(target, budget_usd, is_patient)
        began_s = time.perf_counter()
        with pinned_to(bench, 0):
            asyncio.run(_let_work(run))
        lines += _lines(run, time.perf_counter() - began_s)
    return lines


def _lines(run: Run, took_s: float) -> list[Line]:
    needed = Decimal(str(run.last["needed_usd"]))
    over_nano = max(0, run.costs_nano - run.budget_usd * _NANO)
    calls = f"{run.calls} calls, {run.calls / took_s:.0f} a second"
    if not run.is_patient:
        return [
            Line("without waiting, prompts stated at the end only", calls),
            Line("  spent at the first refusal", f"{run.share:.2%}"),
            Line("  overshoot; refusals of what would have fitted", f"{_usd(over_nano)}; {run.false}"),
        ]
    head = f"{AGENTS} agents, one budget of ${run.budget_usd}, a call at most ${needed.normalize():f}"
    return [
        Line(head, calls),
        Line("  spent at the first refusal that is final", f"{run.share:.2%}", "≥ 99%", run.share >= 0.99),
        Line("  overshoot", _usd(over_nano), "$0.00", not over_nano),
        Line("  refusals of what would have fitted", str(run.false), "0", not run.false),
        Line("  refusals while only held money was in the way", str(run.early)),
    ]


def _usd(nano: int) -> str:
    return f"${Decimal(nano) / _NANO:.2f}"


async def _let_work(run: Run) -> None:
    await asyncio.gather(*(_agent(run, number) for number in range(AGENTS)))


async def _agent(run: Run, number: int) -> None:
    """Make one call after the other until the budget is over for all."""
    dice = random.Random(number)  # the same every time
    reader, writer = await asyncio.open_connection("127.0.0.1", run.target.port)
    prompt = f"Agent {number}. " + "All work and no play makes an agent dull. " * (PROMPT_BYTES // 42)
    turn = 0
    while not run.last:
        turn += 1
        use = (NEW_TOKENS, CACHED_TOKENS, dice.randint(LIMIT_TOKENS // 100, LIMIT_TOKENS * 3 // 100))
        writer.write(_request(run, f"{prompt} Turn {turn}.", use))
        status, body = await _reply(reader)
        if status == 200:
            run.calls += 1
            run.costs_nano += sum(count * rate for count, rate in zip(use, _RATES_NANO, strict=True))
        else:
            run.refuse(json.loads(body)["lockpin"])
    writer.close()
    await writer.wait_closed()


def _request(run: Run, prompt: str, use: tuple[int, int, int]) -> bytes:
    messages = [{"role": "user", "content": prompt}]
    body = {"stream": True, "model": "bench-model", "max_tokens": LIMIT_TOKENS, "messages": messages}
    headers = [
        "Anthropic-Version: 2023-06-01", f"X-Use: {','.join(map(str, use))}", f"X-Pace-Ms: {PACE_MS}",
        *([] if run.is_patient else ["X-Late: 1"]),
    ]  # fmt: skip
    return run.target.request("/v1/messages", json.dumps(body).encode(), *headers, host="api.anthropic.com")


async def _reply(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read one reply, in chunks or of a declared length."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head.split(b" ", 2)[1])
    at = head.find(b"content-length:")
    if at >= 0:
        return status, await reader.readexactly(int(head[at + 15 :].split(b"\r\n", 1)[0]))
    body = b""
    while (size := int(await reader.readuntil(b"\r\n"), 16)) > 0:
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")
    return status, body

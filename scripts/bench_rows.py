"""The rows of the bench that need a proxy: P1 to P4. Each gives figures beside its goal, as ratios to bare mitmdump.

Every round loads bare mitmdump and ours one after the other; a ratio is taken within its round, and the median of the
rounds is shown. All proxies stand in regular mode, are sent the absolute form over plain HTTP, and go to one origin.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench_targets import Bench, Figures, Target, fdatasync_ms

PACE_MS = 4
AGENT_BODY_BYTES = 200_000


@dataclass(frozen=True)
class Effort:
    """How long and how often."""

    rounds: int
    seconds: float


@dataclass(frozen=True)
class Line:
    """One figure, and whether it meets its goal; `met` None: it has none."""

    what: str
    shown: str
    goal: str = ""
    met: bool | None = None


def chat_body(*, streamed: bool = False) -> bytes:
    """Make a small chat call of about 2 KB."""
    words = "The quick brown fox jumps over the lazy dog, and then it does so again. " * 23
    messages = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": words}]
    stream = {"stream": True, "stream_options": {"include_usage": True}} if streamed else {"stream": False}
    return json.dumps({**stream, "model": "gpt-4o-mini", "max_tokens": 300, "messages": messages}).encode()


def agent_body() -> bytes:
    """Make a coding agent's call of about 200 KB: tools, and a long conversation of tool use and results."""
    schema = {"type": "object", "properties": {f"p{i}": {"type": "string", "description": "words"} for i in range(8)}}
    tools = [{"name": f"tool_{i}", "description": "Does a thing. " * 20, "input_schema": schema} for i in range(20)]
    code = "def area(width: int, height: int) -> int:\n    return width * height  # \u2192 m\u00b2\n" * 24
    messages: list[dict[str, object]] = [{"role": "user", "content": "Refactor the geometry module."}]
    body = {"model": "claude-sonnet-4-5", "max_tokens": 1000, "tools": tools, "messages": messages}
    size = len(json.dumps(body))
    turn = 0
    while size < AGENT_BODY_BYTES:
        use = {"type": "tool_use", "id": f"toolu_{turn}", "name": "tool_1", "input": {"p1": f"src/file_{turn}.py"}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{turn}", "content": [{"type": "text", "text": code}]}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        size += len(json.dumps(use)) + len(json.dumps(result)) + 70
        turn += 1
    return json.dumps(body).encode()


def small_calls(bench: Bench, effort: Effort) -> list[Line]:
    """P1: throughput and CPU of small calls, by `lockpin up` and by `mitmdump -s`, with holds on disk."""
    targets = [bench.bare(), bench.up(), bench.script()]
    body = chat_body()
    requests = [target.request("/v1/chat/completions", body) for target in targets]
    warm_up(bench, targets, requests)
    lines = [disk(bench)]
    for connections, goal in ((8, 1.3), (32, 1.6)):
        seen = rounds(bench, effort, targets, requests, connections)
        bare, up, script = seen
        lines.append(Line(f"bare mitmdump, c{connections}", shown(bare)))
        lines += [
            ratio(f"lockpin up, c{connections}: throughput", bare, up, rate, goal),
            ratio(f"lockpin up, c{connections}: CPU a call", bare, up, cpu, 0.75, at_most=True),
            ratio(f"mitmdump -s, c{connections}: throughput", bare, script, rate, 1.0),
            ratio(f"mitmdump -s, c{connections}: CPU a call", bare, script, cpu, None),
        ]
    return lines


def latency(bench: Bench, effort: Effort) -> list[Line]:
    """P2: what one call at a time takes longer than through bare mitmdump."""
    targets = [bench.bare(), bench.up("durability: normal\n", "normal"), bench.up("durability: full\n", "full")]
    requests = [target.request("/v1/chat/completions", chat_body()) for target in targets]
    warm_up(bench, targets, requests)
    sync_ms = fdatasync_ms(bench.folder)[0]
    seen = rounds(bench, effort, targets, requests, 1)
    sync_ms = (sync_ms + fdatasync_ms(bench.folder)[0]) / 2
    lines = [Line("fdatasync of this disk, p50", f"{sync_ms:.2f} ms"), Line("bare mitmdump, c1", shown(seen[0]))]
    for name, figures, most in (("normal", seen[1], 0.5), ("full", seen[2], 0.5 + 2 * sync_ms)):
        added = added_ms(seen[0], figures, "whole_p50")
        lines.append(Line(f"durability {name}: added, p50", f"{added:.2f} ms", f"≤ {most:.2f} ms", added <= most))
    return lines


def agent_calls(bench: Bench, effort: Effort) -> list[Line]:
    """P3: bodies of 200 KB, as coding agents send them."""
    targets = [bench.bare(), bench.up()]
    body, version = agent_body(), "Anthropic-Version: 2023-06-01"
    requests = [target.request("/v1/messages", body, version, host="api.anthropic.com") for target in targets]
    warm_up(bench, targets, requests)
    bare, up = rounds(bench, effort, targets, requests, 8)
    return [
        Line("bare mitmdump, c8", shown(bare)),
        ratio("lockpin up, c8: throughput", bare, up, rate, 1.0),
        ratio("lockpin up, c8: CPU a call", bare, up, cpu, None),
    ]


def streams(bench: Bench, effort: Effort) -> list[Line]:
    """P4: streams of 52 events, at once for throughput, paced for what is added to the first byte and to each event.

    Bare mitmdump passes streams on only when a script tells it to, so it is started with one of two lines.
    """
    targets = [bench.bare(streams=True), bench.up()]
    body = chat_body(streamed=True)
    requests = [target.request("/v1/chat/completions", body) for target in targets]
    warm_up(bench, targets, requests, stream=True)
    bare, up = rounds(bench, effort, targets, requests, 8, stream=True)
    lines = [
        Line("bare mitmdump that streams, c8", shown(bare)),
        ratio("lockpin up, c8: throughput", bare, up, rate, 0.9),
        ratio("lockpin up, c8: CPU a call", bare, up, cpu, None),
    ]
    paced = [target.request("/v1/chat/completions", body, f"X-Pace-Ms: {PACE_MS}") for target in targets]
    bare, up = rounds(bench, effort, targets, paced, 8, stream=True)
    return lines + paced_lines(bench, bare, up)


def paced_lines(bench: Bench, bare: list[Figures], up: list[Figures]) -> list[Line]:
    """Compare what happened to single events."""
    added = added_ms(bare, up, "first_delay_p99")
    since_call = added_ms(bare, up, "first_p50")
    each = added_ms(bare, up, "delay_p99")
    merged = [sum(f.seen["merged"] for f in figures) / sum(f.seen["events"] for f in figures) for figures in (bare, up)]
    return [
        Line("first byte, from the provider's: added p99", f"{added:.2f} ms", "≤ 2 ms", added <= 2),
        Line("first byte, from the call (holds on disk first): added p50", f"{since_call:.2f} ms"),
        Line(f"every event, {PACE_MS} ms apart: added p99", f"{each:.2f} ms"),
        Line(
            "events that came with a later one", f"{merged[1]:.2%} (bare {merged[0]:.2%})", "≤ bare + 0.1%",
            merged[1] <= merged[0] + 0.001,
        ),
        disk(bench),
    ]  # fmt: skip


def warm_up(bench: Bench, targets: Sequence[Target], requests: Sequence[bytes], *, stream: bool = False) -> None:
    """Load each target for a moment whose figures are thrown away."""
    for target, request in zip(targets, requests, strict=True):
        bench.load(target, request, connections=4, seconds=0.5, stream=stream)


def rounds(
    bench: Bench, effort: Effort, targets: Sequence[Target], requests: Sequence[bytes], connections: int,
    *, stream: bool = False,
) -> list[list[Figures]]:  # fmt: skip
    """Load the targets in turn, several times; give each target's figures by round."""
    seen: list[list[Figures]] = [[] for _ in targets]
    for _ in range(effort.rounds):
        for figures, target, request in zip(seen, targets, requests, strict=True):
            load = bench.load(target, request, connections=connections, seconds=effort.seconds, stream=stream)
            figures.append(load)
    return seen


def rate(figures: Figures) -> float | None:
    """Give calls a second."""
    return figures.rate


def cpu(figures: Figures) -> float | None:
    """Give CPU milliseconds a call."""
    return figures.cpu_ms


def shown(figures: list[Figures]) -> str:
    """Write the plain figures of a target."""
    used = [f.cpu_ms for f in figures if f.cpu_ms is not None]
    cpu_text = f", {statistics.median(used):.2f} ms CPU a call" if used else ""
    p50 = statistics.median(f.seen["whole_p50"] for f in figures)
    return f"{statistics.median(f.rate for f in figures):.0f} calls a second{cpu_text}, p50 {p50:.2f} ms"


def ratio(
    what: str, bare: list[Figures], ours: list[Figures], of: Callable[[Figures], float | None], goal: float | None,
    *, at_most: bool = False,
) -> Line:  # fmt: skip
    """Compare ours with bare mitmdump, round by round."""
    pairs = [(of(b), of(o)) for b, o in zip(bare, ours, strict=True)]
    ratios = sorted(o / b for b, o in pairs if b and o)
    if not ratios:
        return Line(what, "not measured here")
    middle = statistics.median(ratios)
    text = f"{middle:.2f}×  ({ratios[0]:.2f} … {ratios[-1]:.2f})"
    if goal is None:
        return Line(what, text)
    return Line(what, text, f"{'≤' if at_most else '≥'} {goal:g}×", middle <= goal if at_most else middle >= goal)


def added_ms(bare: list[Figures], ours: list[Figures], name: str) -> float:
    """Give the median over the rounds of what a time is longer by."""
    return statistics.median(o.seen[name] - b.seen[name] for b, o in zip(bare, ours, strict=True))


def disk(bench: Bench) -> Line:
    """Say how fast the disk under the ledger is just now."""
    middle, late = fdatasync_ms(bench.folder)
    return Line("fdatasync of this disk", f"p50 {middle:.2f} ms, p99 {late:.2f} ms")

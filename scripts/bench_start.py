"""The row of the bench about starts, P6: the proxy until it answers, and the commands that people type."""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import bench_fill
from bench_rows import Effort, Line
from bench_targets import ROOT, Bench, end_process, free_port, pinned_to

_CALLS = 200  # of the small ledger
_PATIENCE_S = 60
# What any command with an option costs that typer reads.
_LEAST = """
import typer
def least(limit: int = typer.Option(1)) -> None: ...
app = typer.Typer(rich_markup_mode=None, add_completion=False)
app.command()(least)
app(args=[], standalone_mode=False)
"""


def starts(bench: Bench, effort: Effort) -> list[Line]:
    """P6: each command in turn, several times; a ratio is taken within its round, and the median is shown."""
    settings = bench.folder / "start.yaml"
    ledger = bench.folder / "start.sqlite3"
    settings.write_text(f"ledger: sqlite://{ledger}\ndaily_usd: 10\n", "utf-8")
    bench_fill.fill(ledger, _CALLS)
    home = bench.folder / "home"
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "addons")])}
    python = [sys.executable, "-P"]
    lockpin = [*python, "-m", "lockpin_cli.main"]
    commands = {
        "mitmdump": [str(Path(sys.executable).with_name("mitmdump")), "--version"],
        "typer": [*python, "-c", "import typer"],
        "least": [*python, "-c", _LEAST],
        "report": [*lockpin, "report", "--config", str(settings)],
        "help": [*lockpin, "--help"],
    }
    seen: dict[str, list[float]] = {name: [] for name in (*commands, "up")}
    with pinned_to(bench, 1):
        for number in range(effort.rounds + (effort.rounds > 1)):
            for name, command in commands.items():
                seen[name].append(_run_s(command, environment))
            seen["up"].append(_ready_s([*lockpin, "up", "--config", str(settings), "--port"], environment))
            if number == 0 and effort.rounds > 1:
                seen = {name: [] for name in seen}  # the first of each compiles, and makes the CA
    return _lines(seen)


def _lines(seen: Mapping[str, Sequence[float]]) -> list[Line]:
    most = [1.5 * bare + 0.5 for bare in seen["mitmdump"]]
    up = statistics.median(up - allowed for up, allowed in zip(seen["up"], most, strict=True))
    lines = [Line(name, _s(seen[key])) for name, key in (("mitmdump --version", "mitmdump"), ("import typer", "typer"))]
    lines.append(Line("lockpin up, until it listens", _s(seen["up"]), f"≤ {statistics.median(most):.2f} s", up <= 0))
    for name, key, goal in (("lockpin report, a small ledger", "report", 1.8), ("lockpin --help", "help", 1.3)):
        ratio = statistics.median(ours / typer for ours, typer in zip(seen[key], seen["typer"], strict=True))
        shown = f"{_s(seen[key])}, {ratio:.2f}× import typer"
        lines.append(Line(name, shown, f"≤ {goal:g}×", ratio <= goal))
    least = statistics.median(ours / typer for ours, typer in zip(seen["least"], seen["typer"], strict=True))
    lines.append(Line("  any command of typer's with one option", f"{_s(seen['least'])}, {least:.2f}× import typer"))
    return lines


def _run_s(command: Sequence[str], environment: Mapping[str, str]) -> float:
    began_s = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began_s


def _ready_s(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Start a proxy; give the seconds until it takes a connection."""
    port = free_port()
    began_s = time.perf_counter()
    process = subprocess.Popen(
        [*command, str(port)], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while time.perf_counter() - began_s < _PATIENCE_S:
            try:
                with socket.create_connection(("127.0.0.1", port), 1):
                    return time.perf_counter() - began_s
            except OSError:
                if process.poll() is not None:
                    break
                time.sleep(0.005)
    finally:
        end_process(process)
    sys.exit(f"bench: {' '.join(command)} did not listen within {_PATIENCE_S} s")


def _s(times: Sequence[float]) -> str:
    return f"{statistics.median(times):.2f} s"

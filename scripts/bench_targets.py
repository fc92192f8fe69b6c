"""The processes of the bench: starts them pinned, measures their CPU time, ends exactly those that it started."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).resolve().parent
START_S = 60
LIMITS = "daily_usd: 1000000\ntask: {budget_usd: 1000000}\n"
STREAM_ALL = "def responseheaders(flow):\n    flow.response.stream = True\n"


@dataclass
class Target:
    """A proxy under load: where it listens, and how a call to the provider looks there."""

    name: str
    port: int
    direct: str | None  # the provider's address where a client names it itself; None: it names the provider's host
    process: subprocess.Popen[bytes]
    log: Path

    def cpu_s(self) -> float | None:
        """Give the CPU time so far, of all its threads; None where the system does not tell."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self, name: str = "VmRSS") -> int | None:
        """Give the memory it has now, or with VmHWM has had at most; None where the system does not tell."""
        try:
            text = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return None
        (line,) = [line for line in text.splitlines() if line.startswith(f"{name}:")]
        return int(line.split()[1]) << 10

    def request(self, path: str, body: bytes, *headers: str, host: str = "api.openai.com") -> bytes:
        """Write a call in the form in which a client gives it to a proxy."""
        host = self.direct or host
        lines = [
            f"POST http://{host}{path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json",
            "Authorization: Bearer sk-bench", "User-Agent: OpenAI/Python 2.1.0", "Accept: application/json",
            *headers, f"Content-Length: {len(body)}", "", "",
        ]  # fmt: skip
        return "\r\n".join(lines).encode() + body


@dataclass
class Figures:
    """What one run of load saw; times in milliseconds."""

    rate: float
    cpu_ms: float | None
    seen: dict[str, float] = field(default_factory=dict)


class Bench:
    """Origin, client and targets; use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = contextlib.ExitStack()
        self.pinned = hasattr(os, "sched_setaffinity") and len(os.sched_getaffinity(0)) > 1
        self._cores = sorted(os.sched_getaffinity(0)) if self.pinned else []

    def __enter__(self) -> Bench:
        self._origin = self._start([sys.executable, str(HERE / "bench_origin.py")], core=0, piped=True)
        self._client = self._start([sys.executable, str(HERE / "bench_client.py")], core=0, piped=True)
        assert self._origin.stdout is not None
        self.origin_port = int(self._origin.stdout.readline())
        (folder := self.folder / "home").mkdir()
        self._environment = {"HOME": str(folder), "PATH": os.environ.get("PATH", ""), "PYTHONHASHSEED": "0"}
        self._environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "addons")])
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def bare(self, *, streams: bool = False) -> Target:
        """Start mitmdump without us; `streams`: with the two lines that make it pass streams on."""
        arguments: list[str] = []
        if streams:
            script = self.folder / "stream_all.py"
            script.write_text(STREAM_ALL)
            arguments = ["-s", str(script)]
        return self._proxy("bare", f"127.0.0.1:{self.origin_port}", [*self._mitmdump(), *arguments])

    def script(self, config: str = "") -> Target:
        """Start `mitmdump -s addons/lockpin.py`."""
        settings = self._config("script", config)
        entry = ["-s", str(ROOT / "addons" / "lockpin.py"), "--set", f"lockpin_config={settings}"]
        return self._proxy("mitmdump -s", None, [*self._mitmdump(), *entry])

    def up(self, config: str = "", name: str = "up", *, limits: str = LIMITS) -> Target:
        """Start `lockpin up`."""
        settings = self._config(name, config, limits)
        command = [sys.executable, "-P", "-m", "lockpin_addons.up", "--set", f"lockpin_config={settings}"]
        return self._proxy(name, None, [*command, "--port"])

    def _mitmdump(self) -> list[str]:
        return [str(Path(sys.executable).with_name("mitmdump")), "-q", "--listen-host", "127.0.0.1"]

    def _config(self, name: str, more: str, limits: str = LIMITS) -> Path:
        path = self.folder / f"{name}.yaml"
        upstreams = dict.fromkeys(("api.openai.com", "api.anthropic.com"), f"http://127.0.0.1:{self.origin_port}")
        ledger = f"sqlite://{self.folder / f'{name}.sqlite3'}"
        path.write_text(f"{limits}ledger: {json.dumps(ledger)}\nupstreams: {json.dumps(upstreams)}\n{more}")
        return path

    def _proxy(self, name: str, direct: str | None, command: Sequence[str]) -> Target:
        port = free_port()
        log = self.folder / f"{name.replace(' ', '')}-{port}.log"
        command = [*command, str(port)] if command[-1] == "--port" else [*command, "-p", str(port)]
        process = self._start(command, core=1, log=log)
        target = Target(name, port, direct, process, log)
        _wait_until_open(target)
        return target

    def _start(
        self, command: Sequence[str], *, core: int, piped: bool = False, log: Path | None = None
    ) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE if piped else None
        with log.open("wb") if log else contextlib.nullcontext() as out:
            process = subprocess.Popen(
                command, stdin=pipe or subprocess.DEVNULL, stdout=pipe or out, stderr=None if piped else out,
                env=None if piped else self._environment, cwd=self.folder,
            )  # fmt: skip
        self._stack.callback(end_process, process)
        if self.pinned:
            os.sched_setaffinity(process.pid, {self._cores[core]})
        return process

    def load(
        self, target: Target, request: bytes, *, connections: int, seconds: float, stream: bool = False
    ) -> Figures:
        """Load a target and give what was seen. Ends the program where a call was not answered well."""
        order = {"port": target.port, "request": base64.b64encode(request).decode(), "connections": connections}
        before = target.cpu_s()
        seen = self._ask({**order, "seconds": seconds, "stream": stream})
        after = target.cpu_s()
        if "error" in seen:
            sys.exit(f"bench: {target.name} did not answer a call well: {seen['error']}\n{target.log.read_text()}")
        cpu_ms = None if before is None or after is None else (after - before) * 1000 / seen["calls"]
        return Figures(seen["calls"] / seen["seconds"], cpu_ms, seen)

    def _ask(self, order: Mapping[str, object]) -> dict[str, Any]:
        assert self._client.stdin is not None and self._client.stdout is not None
        self._client.stdin.write(json.dumps(order).encode() + b"\n")
        self._client.stdin.flush()
        answer: dict[str, Any] = json.loads(self._client.stdout.readline())
        return answer


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End a process that was started here, and wait for it."""
    if process.stdin is not None:
        process.stdin.close()
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_open(target: Target) -> None:
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s:
        if target.process.poll() is not None:
            sys.exit(f"bench: {target.name} did not start:\n{target.log.read_text()}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", target.port), 1):
            return
        time.sleep(0.05)
    sys.exit(f"bench: {target.name} did not listen within {START_S} s")


def fdatasync_ms(folder: Path, rounds: int = 60) -> tuple[float, float]:
    """Measure a synced write of a ledger's usual size in a folder: median and 99th percentile."""
    times: list[float] = []
    path = folder / "sync.bin"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    sync = getattr(os, "fdatasync", os.fsync)
    try:
        os.write(descriptor, bytes(4 << 20))
        sync(descriptor)
        os.lseek(descriptor, 0, os.SEEK_SET)
        for _ in range(rounds):
            began_s = time.perf_counter()
            os.write(descriptor, bytes(24 << 10))
            sync(descriptor)
            times.append((time.perf_counter() - began_s) * 1000)
    finally:
        os.close(descriptor)
        path.unlink()
    times.sort()
    return times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]


@contextlib.contextmanager
def pinned_to(bench: Bench, core: int) -> Iterator[None]:
    """Run this process itself on one core, as a target does."""
    if not bench.pinned:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(before)[core]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)

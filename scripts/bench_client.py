"""The load of the bench, in its own process: connections that send their next call when the last one is answered.

Reads one order a line from standard input, `{"port", "request" (base64), "connections", "seconds", "stream"}`, and
prints one line of figures for each. Anything but a 200 ends the run with its first bytes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sys
import time
from typing import Any

_STAMP = re.compile(rb'"id": ?"chatcmpl-(\d{6,})"')
_MS = 1e6  # nanoseconds in one


class Lane(asyncio.Protocol):
    """One connection."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.got = b""
        self.began_ns = self.first_ns = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first call."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._send()

    def _send(self) -> None:
        self.got, self.first_ns, self.began_ns = b"", 0, time.monotonic_ns()
        self.transport.write(self.run.request)

    def data_received(self, data: bytes) -> None:
        """Note when what came; send the next call after the last byte."""
        now_ns = time.monotonic_ns()
        if self.run.stream:
            self._note_events(data, now_ns)
        self.got = self.got + data if self.got else data
        if not self._is_whole():
            return
        self.run.latencies_ns.append(now_ns - self.began_ns)
        if self.first_ns:
            self.run.first_ns.append(self.first_ns - self.began_ns)
        if now_ns < self.run.until_ns:
            self._send()
        else:
            self.transport.close()
            self.run.leave(self)

    def _note_events(self, data: bytes, now_ns: int) -> None:
        stamps = _STAMP.findall(data)
        if not self.first_ns and b"data: " in data:
            self.first_ns = now_ns
            if stamps:
                self.run.first_delays_ns.append(now_ns - int(stamps[0]))
        self.run.merged += max(0, len(stamps) - 1)
        self.run.delays_ns.extend(now_ns - int(stamp) for stamp in stamps)

    def _is_whole(self) -> bool:
        got = self.got
        if self.run.stream:
            return got.endswith(b"\r\n0\r\n\r\n") and self._is_ok()
        end = got.find(b"\r\n\r\n")
        if end < 0:
            return False
        at = got.lower().find(b"content-length:", 0, end)
        length = int(got[at + 15 : got.find(b"\r\n", at)])
        return len(got) >= end + 4 + length and self._is_ok()

    def _is_ok(self) -> bool:
        if not self.got.startswith(b"HTTP/1.1 200"):
            self.run.fail(self.got[:1500].decode("latin-1"))
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail where the target hung up on a call."""
        if self in self.run.lanes:
            self.run.fail(f"the connection was closed: {exc!r} after {self.got[:500]!r}")


class Run:
    """One order and what came of it."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.request = base64.b64decode(order["request"])
        self.stream = bool(order["stream"])
        self.until_ns = time.monotonic_ns() + int(order["seconds"] * 1e9)
        self.lanes: set[Lane] = set()
        self.done = asyncio.get_running_loop().create_future()
        self.latencies_ns: list[int] = []
        self.first_ns: list[int] = []
        self.first_delays_ns: list[int] = []
        self.delays_ns: list[int] = []
        self.merged = 0

    def make_lane(self) -> Lane:
        """Make a connection's protocol."""
        lane = Lane(self)
        self.lanes.add(lane)
        return lane

    def leave(self, lane: Lane) -> None:
        """End when the last lane has."""
        self.lanes.discard(lane)
        if not self.lanes and not self.done.done():
            self.done.set_result(None)

    def fail(self, why: str) -> None:
        """End the run."""
        self.lanes.clear()
        if not self.done.done():
            self.done.set_exception(RuntimeError(why))


async def carry_out(order: dict[str, Any]) -> dict[str, float]:
    """Run an order and give its figures, times in milliseconds."""
    run = Run(order)
    began_ns = time.monotonic_ns()
    loop = asyncio.get_running_loop()
    await asyncio.gather(
        *(loop.create_connection(run.make_lane, "127.0.0.1", order["port"]) for _ in range(order["connections"]))
    )
    await run.done
    figures: dict[str, float] = {
        "calls": len(run.latencies_ns),
        "seconds": (time.monotonic_ns() - began_ns) / 1e9,
        "merged": run.merged,
        "events": len(run.delays_ns),
    }
    named = {"whole": run.latencies_ns, "first": run.first_ns, "first_delay": run.first_delays_ns}
    for name, times_ns in (*named.items(), ("delay", run.delays_ns)):
        for share in (50, 99):
            figures[f"{name}_p{share}"] = share_of(times_ns, share) / _MS
    return figures


def share_of(times_ns: list[int], percent: int) -> float:
    """Give a percentile; 0 of none."""
    ordered = sorted(times_ns)
    return float(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]) if ordered else 0.0


def main() -> None:
    """Carry out orders until the standard input ends."""
    for line in sys.stdin:
        try:
            answer: dict[str, object] = dict(asyncio.run(carry_out(json.loads(line))))
        except (RuntimeError, OSError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

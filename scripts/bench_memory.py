"""The row of the bench about memory, P5: after a start, over many calls, over a long stream, by open streams."""

from __future__ import annotations

import contextlib
import resource
import socket
import time

from bench_rows import Effort, Line, chat_body
from bench_targets import Bench, Target

MB = 10**6
_PATH = "/v1/chat/completions"
_FLAT = 10 * MB
_STREAM_MOST = 60_000  # bytes
_DESCRIPTORS = 2  # that the proxy needs for a stream
_SPARE = 100
_SETTLE_S = 1.0  # for what follows a reply: rows, and connections that close


def memory(bench: Bench, effort: Effort) -> list[Line]:
    """P5: what the proxy keeps in memory. Bare mitmdump passes streams on when a script tells it to."""
    bare, up, script = bench.bare(streams=True), bench.up(), bench.script()
    lines = [_start("lockpin up", up, bare), _start("mitmdump -s", script, bare)]
    if up.memory_bytes() is None:
        return lines
    is_full, is_smoke = effort.rounds > 3, effort.rounds == 1
    calls = 20_000 if is_full else 50 if is_smoke else 4_000
    lines.append(_over_calls(bench, up, calls, effort))
    lines.append(_over_stream(up, 1 if is_smoke else 100))
    count = min(20 if is_smoke else 1_000, _most_streams())
    each = _open_streams(up, count)
    lines.append(Line(f"{count:,} open streams, each", _kb(each), f"≤ {_STREAM_MOST // 1000} KB", each <= _STREAM_MOST))
    lines.append(Line(f"  the same through bare mitmdump, each of {count:,}", _kb(_open_streams(bare, count))))
    return lines


def _start(name: str, ours: Target, bare: Target) -> Line:
    mine, theirs = ours.memory_bytes(), bare.memory_bytes()
    what = f"{name} after its start, of bare mitmdump"
    if mine is None or theirs is None:
        return Line(what, "not measured here")
    ratio = mine / theirs
    return Line(what, f"{ratio:.2f}×  ({mine / MB:.0f} MB, bare {theirs / MB:.0f} MB)", "≤ 1.3×", ratio <= 1.3)


def _over_calls(bench: Bench, target: Target, calls: int, effort: Effort) -> Line:
    """Let many calls pass, after as many as fill every cache and pool."""
    request = target.request(_PATH, chat_body())
    _load(bench, target, request, calls // 10, effort)
    before = _rss(target)
    done = _load(bench, target, request, calls, effort)
    return _flat(f"{done:,} calls", before, _rss(target))


def _load(bench: Bench, target: Target, request: bytes, calls: int, effort: Effort) -> int:
    done = 0
    while done < calls:
        done += int(bench.load(target, request, connections=8, seconds=effort.seconds).seen["calls"])
    time.sleep(_SETTLE_S if calls > _SPARE else 0)
    return done


def _over_stream(target: Target, megabytes: int) -> Line:
    """Let a long stream pass, after one that is shorter; its peak counts."""
    body = chat_body(streamed=True)
    before = passed = 0
    for size in (megabytes // 5 + 1, megabytes):
        before = max(_rss(target), target.memory_bytes("VmHWM") or 0)
        with socket.create_connection(("127.0.0.1", target.port), 60) as connection:
            connection.sendall(target.request(_PATH, body, f"X-Bulk-Mb: {size}"))
            passed = _read_stream(connection)
    assert passed > megabytes * MB, f"only {passed} bytes came"
    return _flat(f"a stream of {megabytes} MB, at its peak", before, target.memory_bytes("VmHWM") or 0)


def _read_stream(connection: socket.socket) -> int:
    """Read to the end of a chunked reply; give its size."""
    size, tail = 0, b""
    while not tail.endswith(b"\r\n0\r\n\r\n"):  # a header may end in 0 too
        data = connection.recv(1 << 18)
        assert data, f"the stream broke off after {size} bytes: {tail!r}"
        size += len(data)
        tail = (tail + data)[-64:]
    return size


def _open_streams(target: Target, count: int) -> float:
    """Open streams that have begun and go on; give the bytes that each takes."""
    request = target.request(_PATH, chat_body(streamed=True), "X-Hold: 1")
    with contextlib.ExitStack() as stack:
        _open(stack, target, request, max(1, count // 20))
        before = _rss(target)
        _open(stack, target, request, count)
        return (_rss(target) - before) / count


def _open(stack: contextlib.ExitStack, target: Target, request: bytes, count: int) -> None:
    connections = []
    for _ in range(count):
        connections.append(stack.enter_context(socket.create_connection(("127.0.0.1", target.port), 60)))
        connections[-1].sendall(request)
    for connection in connections:
        seen = b""
        while b"data: " not in seen:
            data = connection.recv(1 << 16)
            assert data, f"a stream did not begin: {seen!r}"
            seen += data


def _most_streams() -> int:
    """Say for how many streams a process may open files here; the proxies were started with the same bound."""
    return (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE) * 20 // 21 // _DESCRIPTORS


def _rss(target: Target) -> int:
    found = target.memory_bytes()
    assert found is not None
    return found


def _flat(what: str, before: int, after: int) -> Line:
    grown = after - before
    return Line(what, f"{grown / MB:+.1f} MB  (to {after / MB:.0f} MB)", "± 10 MB", abs(grown) <= _FLAT)


def _kb(size: float) -> str:
    return f"{size / 1000:.1f} KB"

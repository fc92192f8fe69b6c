"""Streamed calls of both wires: an origin and a proxy with plain prices, streams with and without end, a call's rows."""

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import processes
import sdks
from processes import until

# $1 and $5 per million tokens are 1,000 and 5,000 nanodollars a token. The dear model costs a dollar a token.
CONFIG = """
upstreams: {{api.openai.com: "{origin}", api.anthropic.com: "{origin}", eu.api.openai.com: "http://127.0.0.1:{closed}"}}
daily_usd: 1000
queue: {{wait: 0s}}
pricing:
  chat-model: {{input_per_mtok: 1, output_per_mtok: 5, max_output_tokens: 100000, context_tokens: 200000}}
  messages-model: {{input_per_mtok: 1, output_per_mtok: 5, max_output_tokens: 100000, context_tokens: 200000}}
  dear-model: {{input_per_mtok: 0, output_per_mtok: 1000000, max_output_tokens: 100000, context_tokens: 200000}}
"""
IN_NANO, OUT_NANO = 1_000, 5_000
WIRES = ("chat", "messages")
PATHS = {"chat": "/openai/v1/chat/completions", "messages": "/anthropic/v1/messages"}
SSE = {"type": "text/event-stream", "chunk": "event"}


@dataclass
class Rig:
    origin: processes.Origin
    proxy: processes.Proxy
    folder: Path

    def new_path(self) -> Path:
        return self.folder / f"signal-{time.monotonic_ns()}"


@contextlib.contextmanager
def running(folder: Path, kind: str) -> Iterator[Rig]:
    """Start an origin that looks into the ledger at each call, and a proxy before it."""
    home = processes.make_home(folder)
    with processes.origin(folder, ledger=home / ".local/share/lockpin/ledger.sqlite3") as origin:
        config = CONFIG.format(origin=origin.url, closed=processes.free_port())
        with processes.proxy(folder, config, kind=kind, home=home) as proxy:
            yield Rig(origin, proxy, folder)


def sse(*events: dict) -> str:
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def text(piece: str) -> dict:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}


START = {
    "type": "message_start",
    "message": {"model": "messages-model", "usage": {"input_tokens": 25, "output_tokens": 1}},
}
DELTA = {
    "id": "c1",
    "model": "chat-model",
    "choices": [{"index": 0, "delta": {"content": "abc"}, "finish_reason": None}],
}


def unfinished(wire: str, pieces: int) -> str:
    """Make a stream of so many pieces of three bytes of text, without usage or end."""
    if wire == "messages":
        return sse(START, *[text("abc")] * pieces)
    return f"data: {json.dumps(DELTA)}\n\n" * pieces


def finished(wire: str, output: int) -> str:
    """Make a whole stream that reports 25 tokens in and `output` out."""
    if wire == "messages":
        end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": output}}
        return unfinished(wire, 3) + sse(end, {"type": "message_stop"})
    stop = DELTA | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    usage = DELTA | {"choices": [], "usage": {"prompt_tokens": 25, "completion_tokens": output}}
    return unfinished(wire, 3) + "".join(f"data: {one}\n\n" for one in (json.dumps(stop), json.dumps(usage), "[DONE]"))


def ask(wire: str, limit: int, **more: object) -> dict:
    """Make the arguments of a streamed call."""
    field = "max_completion_tokens" if wire == "chat" else "max_tokens"
    return {"model": f"{wire}-model", "messages": [sdks.MESSAGE], "stream": True, field: limit} | more


@contextlib.contextmanager
def stream(rig: Rig, wire: str, order: dict, *, way="base_url", limit=1000, **more) -> Iterator[httpx2.Response]:
    """Open a streamed call by the wire's SDK; give the reply with its body still to come. Leaving hangs up."""
    told = ask(wire, limit, extra_headers=sdks.order(**order), **more)
    opened = sdks.openai_client if wire == "chat" else sdks.anthropic_client
    with opened(rig.proxy, way) as sdk:
        calls = sdk.chat.completions if wire == "chat" else sdk.messages
        with calls.with_streaming_response.create(**told) as reply:
            yield reply.http_response


def take(pieces: Iterator[bytes], size: int) -> bytes:
    """Read until so many bytes have come."""
    data = b""
    while len(data) < size:
        data += next(pieces)
    return data


def rows_of(rig: Rig, reply: httpx2.Response) -> tuple:
    return end_of(rig, reply.headers["x-lockpin-call"])


def end_of(rig: Rig, call: str) -> tuple:
    """Wait for a call's resolution; give its two rows."""
    query = "SELECT * FROM rows WHERE call = ? AND kind NOT IN ('shrink', 'refusal') ORDER BY id"
    hold, end = until(lambda: (rows := rig.proxy.rows(query, call)) and len(rows) > 1 and rows)
    assert hold["kind"] == "hold"
    return hold, end


def held_last(proxy: processes.Proxy, call: str) -> int:
    """Give what was held of a call in the end: its hold, and what it shrank by while it ran."""
    query = "SELECT sum(CASE kind WHEN 'hold' THEN usd WHEN 'shrink' THEN -usd END) AS usd FROM rows WHERE call = ?"
    return proxy.rows(query, call)[0]["usd"]


def holds_of(rig: Rig, limit: int) -> list:
    return rig.proxy.rows("SELECT call FROM rows WHERE kind = 'hold' AND output_limit = ?", limit)


def request_bytes(rig: Rig, wire: str, body: dict, **headers: str) -> bytes:
    data = json.dumps(body).encode()
    lines = [f"POST {PATHS[wire]} HTTP/1.1", f"Host: 127.0.0.1:{rig.proxy.port}", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(data)}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + data

"""The load of the kill: parallel calls of both wires, streamed and not, some given up, some slow, some that fail.

Runs in a thread of its own, on raw connections, and goes on while proxies die and come: a call that meets none is tried
on the next. Knows what each call may be answered, and keeps what is none of that.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

TASKS = 6  # a round, each with a budget that pays for some of its calls
IN_TOKENS = 25
EACH, PIECE = 3, "words of twenty-four by."  # tokens a chunk of a stream, and its text
PATHS = {"chat": "/openai/v1/chat/completions", "messages": "/anthropic/v1/messages"}
_HUNG_S = 30
_TEXTS_BEFORE_LEAVING = 4
_GONE = "cut"


@dataclass(frozen=True, slots=True)
class Case:
    """One call: the status that the origin gives, and when the client leaves ("", "early", "midway")."""

    line: str
    headers: bytes
    usage: tuple[int, int]  # of its whole reply: tokens in and out
    status: int
    leaves: str

    def to(self, port: int) -> bytes:
        """Give its bytes to a proxy."""
        return f"{self.line}\r\nHost: 127.0.0.1:{port}\r\n".encode() + self.headers


def case_of(lots: random.Random, task: str, *, plain: bool = False) -> Case:
    """Draw a call of a task; `plain`: whole, answered at once, waited for."""
    wire = lots.choice(list(PATHS))
    streamed = not plain and lots.random() < 0.6
    limit = lots.randint(150, 900)
    output = EACH * lots.randint(1, limit // EACH // 3)
    bill = {"task": task, "input": IN_TOKENS, "output": output, "skip": 1 if wire == "messages" else 0, "each": EACH}
    order: dict[str, object] = {"bill": bill, "body": _reply(wire, output, streamed=streamed)}
    leaves, status = "", 200
    if streamed:
        order |= {"type": "text/event-stream", "chunk": "event", "pace_s": lots.choice([0, 0.001, 0.01])}
    if not plain:
        order["wait_s"] = lots.choice([0, 0, 0.02, 0.2, 1.0])
        leaves = lots.choice(["", "", "", "early", "midway" if streamed else ""])
        if lots.random() < 0.05:
            status = lots.choice([429, 500])
            order = {"status": status, "body": "{}", "bill": bill | {"input": 0, "output": 0}}
        elif lots.random() < 0.05:
            status = 502
            order = {"close": "before", "bill": bill | {"output": 0}}
    # No two say the same: one that was refused for good would not wait when it is sent again.
    headers = _headers(wire, task, limit, f"{lots.getrandbits(40):010x}", order, streamed=streamed)
    return Case(f"POST {PATHS[wire]} HTTP/1.1", headers, (IN_TOKENS, output), status, leaves)


def _headers(wire: str, task: str, limit: int, mark: str, order: dict[str, object], *, streamed: bool) -> bytes:
    field = "max_completion_tokens" if wire == "chat" else "max_tokens"
    message = {"role": "user", "content": "please " * 20 + mark}
    body = {"model": f"{wire}-model", "messages": [message], field: limit, "stream": streamed}
    data = json.dumps(body).encode()
    lines = [
        f"X-Lockpin-Task: {task}", f"X-Origin: {json.dumps(order)}", "Content-Type: application/json",
        "Connection: close", f"Content-Length: {len(data)}", "", "",
    ]  # fmt: skip
    return "\r\n".join(lines).encode() + data


def _reply(wire: str, output: int, *, streamed: bool) -> str:
    count = output // EACH
    if wire == "messages":
        usage = {"input_tokens": IN_TOKENS, "output_tokens": output}
        if not streamed:
            content = [{"type": "text", "text": PIECE * count}]
            return json.dumps({"id": "m", "type": "message", "model": "messages-model", "stop_reason": "end_turn",
                               "content": content, "usage": usage})  # fmt: skip
        start: dict[str, object] = {"model": "messages-model", "usage": usage | {"output_tokens": 1}}
        text: dict[str, object] = {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": PIECE},
        }
        end: dict[str, object] = {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": output},
        }
        events: list[dict[str, object]] = [
            {"type": "message_start", "message": start},
            *[text] * count,
            end,
            {"type": "message_stop"},
        ]
        return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    total = {"prompt_tokens": IN_TOKENS, "completion_tokens": output, "total_tokens": IN_TOKENS + output}
    head: dict[str, object] = {"id": "c", "model": "chat-model"}
    if not streamed:
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": PIECE * count}}
        return json.dumps(head | {"choices": [choice], "usage": total})
    piece = head | {"choices": [{"index": 0, "delta": {"content": PIECE}, "finish_reason": None}]}
    stop = head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    data = [
        *[json.dumps(piece)] * count,
        json.dumps(stop),
        json.dumps(head | {"choices": [], "usage": total}),
        "[DONE]",
    ]
    return "".join(f"data: {one}\n\n" for one in data)


class Load:
    """Lanes that call without a pause until the block ends; `ports` and `round` may be changed meanwhile.

    `tasks`: of how many tasks the calls of a round are; `wait_s`: how long one must have waited that was refused while
    only held money was in its way.
    """

    def __init__(self, seed: int, lanes: int, *, tasks: int = TASKS, wait_s: int = 0) -> None:
        self.tasks, self.wait_ms = tasks, 1000 * wait_s
        self.ports: Sequence[int] = ()
        self.round = 0
        self.ends: Counter[str] = Counter()
        self.answered: dict[str, tuple[int, int]] = {}  # by Lockpin's id: what a whole reply reported as used
        self.odd: list[str] = []  # what no call may be answered
        self._lots = random.Random(seed)
        self._lanes = lanes
        self._over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Let the calls under way end, and make no more."""
        self._over.set()
        self._thread.join()

    async def _run(self) -> None:
        seeds = [self._lots.randrange(2**32) for _ in range(self._lanes)]
        await asyncio.gather(*(self._lane(random.Random(seed)) for seed in seeds))

    async def _lane(self, lots: random.Random) -> None:
        while not self._over.is_set():
            if not self.ports:
                await asyncio.sleep(0.005)
                continue
            case = case_of(lots, f"r{self.round}-{lots.randrange(self.tasks)}")
            try:
                async with asyncio.timeout(_HUNG_S):
                    end = await self._exchange(lots.choice(self.ports), case)
            except TimeoutError:
                end = "hung"
            except (OSError, asyncio.IncompleteReadError):
                end = _GONE
            self.ends[end] += 1
            if end not in (_GONE, "left", "402", str(case.status)):
                self.odd.append(end)
            if end in (_GONE, "402"):
                await asyncio.sleep(0.01)

    async def _exchange(self, port: int, case: Case) -> str:
        """Make one call; give the status of its answer, or "left"."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        try:
            writer.write(case.to(port))
            await writer.drain()
            if case.leaves == "early":
                await asyncio.sleep(0.01)
                return "left"
            head = await reader.readuntil(b"\r\n\r\n")
            body = b""
            while data := await reader.read(65536):
                body += data
                if case.leaves == "midway" and body.count(PIECE.encode()) >= _TEXTS_BEFORE_LEAVING:
                    return "left"
            if not _is_whole(head, body):
                return _GONE
            if head.startswith(b"HTTP/1.1 402") and self._is_early(head, body):
                return "refused too early"
            if head.startswith(b"HTTP/1.1 200"):
                self.answered[_header(head, b"x-lockpin-call").decode()] = case.usage
            return head.split(b" ", 2)[1].decode()
        finally:
            writer.close()

    def _is_early(self, head: bytes, body: bytes) -> bool:
        """Say whether a call was refused that could have gone if it had waited for as long as it may."""
        waited_ms = int(_header(head, b"x-lockpin-waited-ms") or b"0")
        return bool(json.loads(body)["lockpin"].get("transient")) and waited_ms < self.wait_ms


def _is_whole(head: bytes, body: bytes) -> bool:
    if _header(head, b"transfer-encoding") == b"chunked":
        return body.endswith(b"0\r\n\r\n")
    return len(body) >= int(_header(head, b"content-length") or b"0")


def _header(head: bytes, name: bytes) -> bytes:
    found = (line for line in head.split(b"\r\n") if line.lower().startswith(name + b":"))
    return next(found, b":").partition(b":")[2].strip()

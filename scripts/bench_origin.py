"""The provider of the bench: answers every call at once with bytes made beforehand, on loopback, in its own process.

A body with `"stream": true` gets 52 server-sent events. With an `x-pace-ms` header they come that far apart, and each
carries the instant at which it was written, so that a client can tell how long it was on its way. With `x-bulk-mb` so
many megabytes of events come, and with `x-hold` nothing after the first one until the client has gone.

A Messages stream uses what an `x-use` header says, "input,cached,output", after `x-pace-ms`; it states its prompt in
its first event, or with an `x-late` header only at its end. The counting endpoint counts that prompt.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Coroutine

EVENTS = 52
REPLY_BYTES = 1024
_PACE, _BULK, _HOLD = b"x-pace-ms:", b"x-bulk-mb:", b"x-hold:"
_USE, _LATE = b"x-use:", b"x-late:"
_LENGTH = b"content-length:"
_BULK_BYTES = 64 << 10  # written at once


def chat_reply() -> bytes:
    """Make a whole Chat Completions reply of about 1 KB."""
    message = {"role": "assistant", "content": "x" * (REPLY_BYTES - 330), "refusal": None}
    choice = {"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}
    usage = {"prompt_tokens": 410, "completion_tokens": 200, "total_tokens": 610}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-4o-mini-2024-07-18"}
    return _whole(json.dumps({**head, "usage": usage, "choices": [choice]}).encode())


def messages_reply() -> bytes:
    """Make a whole Messages reply of about 1 KB."""
    usage = {"input_tokens": 48_000, "output_tokens": 200}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5-20250929"}
    content = [{"type": "text", "text": "x" * (REPLY_BYTES - 300)}]
    return _whole(json.dumps({**head, "content": content, "stop_reason": "end_turn", "usage": usage}).encode())


def event(identity: str, index: int) -> bytes:
    """Make one event of a stream: text, then the end of the choice, then usage, then `[DONE]`."""
    head = {"id": identity, "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o-mini-2024-07-18"}
    if index == EVENTS - 1:
        return b"data: [DONE]\n\n"
    if index == EVENTS - 2:
        usage = {"prompt_tokens": 410, "completion_tokens": 200, "total_tokens": 610}
        return f"data: {json.dumps({**head, 'choices': [], 'usage': usage})}\n\n".encode()
    reason = "stop" if index == EVENTS - 3 else None
    delta = {} if reason else {"content": "some more words"}
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return f"data: {json.dumps({**head, 'choices': [choice], 'usage': None})}\n\n".encode()


def message_events(use: tuple[int, int, int], *, late: bool) -> tuple[bytes, bytes]:
    """Make a Messages stream in two parts: what comes at once, and the rest."""
    usage = {"input_tokens": use[0], "cache_read_input_tokens": use[1], "cache_creation_input_tokens": 0}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "bench-model", "content": []}
    stated = {} if late else {"usage": {**usage, "output_tokens": 1}}
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    text = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "some more words"}}
    used: dict[str, object] = {**usage, "output_tokens": use[2]}
    end: dict[str, object] = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": used}
    first: list[dict[str, object]] = [{"type": "message_start", "message": {**message, **stated}}, block]
    rest: list[dict[str, object]] = [text, {"type": "content_block_stop", "index": 0}, end, {"type": "message_stop"}]
    begin, finish = ("".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in part) for part in (first, rest))
    return _chunk(begin.encode()), _chunk(finish.encode())


def _whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
STREAM = [_chunk(event("chatcmpl-0", index)) for index in range(EVENTS)]
REPLIES = {b"chat": chat_reply(), b"messages": messages_reply()}


class Exchange(asyncio.Protocol):
    """One connection: reads a request, answers, reads the next."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.read = transport, b""
        self.streaming: asyncio.Task[None] | None = None
        self.may_write = asyncio.Event()
        self.may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """End what is under way."""
        self.may_write.set()
        if self.streaming is not None:
            self.streaming.cancel()

    def pause_writing(self) -> None:
        """Wait: the other side is slower."""
        self.may_write.clear()

    def resume_writing(self) -> None:
        """Go on."""
        self.may_write.set()

    def data_received(self, data: bytes) -> None:
        """Answer when the request is whole."""
        self.read = self.read + data if self.read else data
        end = self.read.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self.read[:end].lower()
        length = int(_field(head, _LENGTH) or 0)
        if len(self.read) < end + 4 + length:
            return
        body, self.read = self.read[end + 4 :], b""
        if b'"stream": true' not in body[:200]:
            self.transport.write(_whole_reply(head))
        elif (stream := self._stream(head)) is not None:
            self.transport.write(STREAM_HEAD)
            self.streaming = asyncio.create_task(stream)
        else:
            self.transport.write(STREAM_HEAD)
            for piece in (*STREAM, LAST):
                self.transport.write(piece)

    def _stream(self, head: bytes) -> Coroutine[None, None, None] | None:
        """Give what streams a reply that takes its time; None: all of it comes at once."""
        pace_s = int(_field(head, _PACE) or 0) / 1000
        if b"/messages" in head.split(b" ", 2)[1]:
            return self._stream_message(_used(head), pace_s, late=_field(head, _LATE) is not None)
        if (megabytes := _field(head, _BULK)) is not None:
            return self._stream_bulk(int(megabytes))
        if _field(head, _HOLD) is not None:
            return self._stream_held()
        return self._stream_paced(pace_s) if pace_s else None

    async def _stream_message(self, use: tuple[int, int, int], pace_s: float, *, late: bool) -> None:
        first, rest = message_events(use, late=late)
        self.transport.write(first)
        await asyncio.sleep(pace_s)
        self.transport.write(rest + LAST)

    async def _stream_paced(self, pace_s: float) -> None:
        for index in range(EVENTS):
            self.transport.write(_chunk(event(f"chatcmpl-{time.monotonic_ns()}", index)))
            await asyncio.sleep(pace_s)
        self.transport.write(LAST)

    async def _stream_bulk(self, megabytes: int) -> None:
        one = event("chatcmpl-0", 0)
        piece = _chunk(one * (_BULK_BYTES // len(one)))
        for _ in range(megabytes * 10**6 // len(piece) + 1):
            await self.may_write.wait()
            self.transport.write(piece)
        self.transport.write(b"".join(STREAM[-3:]) + LAST)

    async def _stream_held(self) -> None:
        self.transport.write(STREAM[0])
        await asyncio.Event().wait()


def _used(head: bytes) -> tuple[int, int, int]:
    said = _field(head, _USE) or b"48000,0,200"
    new, cached, output = (int(number) for number in said.split(b","))
    return new, cached, output


def _whole_reply(head: bytes) -> bytes:
    path = head.split(b" ", 2)[1]
    if b"/count_tokens" in path:
        return _whole(json.dumps({"input_tokens": sum(_used(head)[:2])}).encode())
    return REPLIES[b"messages" if b"/messages" in path else b"chat"]


def _field(head: bytes, name: bytes) -> bytes | None:
    at = head.find(b"\r\n" + name)
    return None if at < 0 else head[at + 2 + len(name) :].split(b"\r\n", 1)[0].strip()


async def main() -> None:
    """Serve on a free port, print it, and end with the standard input."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Exchange, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


if __name__ == "__main__":
    asyncio.run(main())

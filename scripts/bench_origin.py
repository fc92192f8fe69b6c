"""The provider of the bench: answers every call at once with bytes made beforehand, on loopback, in its own process.

A body with `"stream": true` gets 52 server-sent events. With an `x-pace-ms` header they come that far apart, and each
carries the instant at which it was written, so that a client can tell how long it was on its way.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

EVENTS = 52
REPLY_BYTES = 1024
_PACE = b"x-pace-ms:"
_LENGTH = b"content-length:"


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


def _whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
STREAM = [_chunk(event("chatcmpl-0", index)) for index in range(EVENTS)]
REPLIES = {b"chat": chat_reply(), b"messages": messages_reply()}


class Exchange(asyncio.Protocol):
    """One connection: reads a request, answers, reads the next."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.read = transport, b""

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
            kind = b"messages" if b"/messages" in head.split(b" ", 2)[1] else b"chat"
            self.transport.write(REPLIES[kind])
        elif (pace := _field(head, _PACE)) is not None:
            self.paced = asyncio.create_task(self._stream_paced(int(pace) / 1000))
        else:
            self.transport.write(STREAM_HEAD)
            for piece in (*STREAM, b"0\r\n\r\n"):
                self.transport.write(piece)

    async def _stream_paced(self, pace_s: float) -> None:
        self.transport.write(STREAM_HEAD)
        for index in range(EVENTS):
            self.transport.write(_chunk(event(f"chatcmpl-{time.monotonic_ns()}", index)))
            await asyncio.sleep(pace_s)
        self.transport.write(b"0\r\n\r\n")


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

"""A loopback model provider in a process of its own: answers as the `x-origin` header of a request says, logs each.

The log (one JSON object a line: method, path, headers, body, what the ledger held at that instant) is the only
witness of what got past the gate. `x-origin` is JSON: {"file", "status", "type", "encoding", "chunk", "pace_s",
"gate", "head_gate", "body_gate", "lockstep", "cut_after", "close", "body", "base64", "repeat", "cut_off"}; without it
the origin answers like a provider, reporting the request's whole output limit as used; with `cut_off` it says besides
that it stopped there. `head_gate`, `body_gate` and `gate` are files that the client makes before the origin sends the
head, the first chunk, or the second; `lockstep` is one that grows by a byte for each chunk that the client has;
`wait_s` is how long the head is kept back. An order may be {"turns", "key"}: a list of such, of which each request with
that key gets the next; one that is {"plain": true} is answered like a provider.

With `--bills` it is also the witness of what a provider would bill: an order's `bill` says {"input", "output" (of the
whole reply), "skip" (chunks before the first that has output), "each" (tokens of output a chunk), …}. A line is written
when such a call has come and one more when it has ended, with the output up to there: a stream that was cut is billed
for what was sent, a whole reply in full.

With `--script` a request without `x-origin` is answered as `turns.py` says: the model of an agent.
"""

import argparse
import asyncio
import base64
import itertools
import json
import sqlite3
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path

import cut_off
import turns


class Origin:
    def __init__(
        self, log: Path, data: Path, ledger: Path | None, bills: Path | None = None, script: Path | None = None
    ) -> None:
        self.log, self.data, self.ledger = log.open("a", buffering=1), data, ledger
        self.bills = None if bills is None else bills.open("a", buffering=1)
        self.numbers = itertools.count(1)
        self.taken: dict[str, int] = {}  # turns of orders that have several, by their key
        self.script = None if script is None else json.loads(script.read_text())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (head := await reader.readuntil(b"\r\n\r\n")) and await self.exchange(head, reader, writer):
                pass
        except asyncio.IncompleteReadError as error:
            if error.partial:
                self.note({"method": None, "path": None, "raw": error.partial.decode("latin-1")})
        except (ConnectionError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def exchange(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        lines = head.decode("latin-1").split("\r\n")
        method, path, _ = lines[0].split(" ", 2)
        pairs = [line.split(":", 1) for line in lines[1:] if line]
        headers = {name.lower(): value.strip() for name, value in pairs}
        body = await read_body(reader, headers)
        self.note({"method": method, "path": path, "headers": headers, "body": body.decode("utf-8", "replace")})
        order = json.loads(headers.get("x-origin", "null"))
        if order is None and self.script is not None:
            order = turns.answer(path, body, self.script)
        elif order is None:
            order = plain_answer(path, body)
        elif order.get("cut_off"):
            order |= cut_off.answer(path, body)
        order = self.turn(order, path, body)
        order["is_head"] = method == "HEAD"
        if self.bills is None or "bill" not in order:
            return await self.answer(order, reader, writer)
        order["bill"] |= {"number": next(self.numbers), "ended": False}
        self.bills.write(json.dumps(order["bill"]) + "\n")
        try:
            return await self.answer(order, reader, writer)
        finally:
            self.bills.write(json.dumps(billed(order)) + "\n")

    def turn(self, order: dict, path: str, body: bytes) -> dict:
        """Give the next of an order's turns, the last one again and again, as often as the same `key` comes."""
        if "turns" not in order:
            return order
        turns, key = order["turns"], order["key"]
        self.taken[key] = self.taken.get(key, -1) + 1
        turn = turns[min(self.taken[key], len(turns) - 1)]
        return plain_answer(path, body) if turn.get("plain") else dict(turn)

    def note(self, entry: dict) -> None:
        entry |= {"at": time.time(), "open_holds": self.open_holds()}
        self.log.write(json.dumps(entry) + "\n")

    def open_holds(self) -> list | None:
        if self.ledger is None or not self.ledger.exists():
            return None
        books = sqlite3.connect(f"file:{self.ledger}?mode=ro", uri=True)
        try:
            return books.execute(
                "SELECT h.call, h.output_limit, h.usd FROM rows h WHERE h.kind = 'hold' AND NOT EXISTS"
                " (SELECT 1 FROM rows r WHERE r.call = h.call AND r.kind IN ('charge', 'void'))"
            ).fetchall()
        finally:
            books.close()

    async def answer(self, order: dict, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if order.get("close") == "before":
            writer.transport.abort()
            return False
        if "head_gate" in order:
            await wait_for(Path(order["head_gate"]).exists, reader)
        await asyncio.sleep(order.get("wait_s", 0))
        if "before" in order:
            writer.write(order["before"].encode())
            await writer.drain()
        body = (self.data / order["file"]).read_bytes() if "file" in order else order.get("body", "").encode()
        body = base64.b64decode(order["base64"]) if "base64" in order else body
        body *= order.get("repeat", 1)
        chunked = order.get("chunk") is not None
        lines = [f"HTTP/1.1 {order.get('status', 200)} X", f"content-type: {order.get('type', 'application/json')}"]
        lines += [f"content-encoding: {order['encoding']}"] if "encoding" in order else []
        lines += [f"{name}: {value}" for name, value in order.get("headers", {}).items()]
        lines.append("transfer-encoding: chunked" if chunked else f"content-length: {len(body)}")
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        if order["is_head"]:  # a body after it would be read as the next reply
            await writer.drain()
            return True
        if not chunked:
            cut = order.get("cut_after")
            writer.write(body if cut is None else body[:cut])
            await writer.drain()
            if cut is not None:
                writer.transport.abort()
            return cut is None
        return await self.stream(order, body, reader, writer)

    async def stream(
        self, order: dict, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        size, sent = order["chunk"] or len(body), 0
        pieces = body.split(b"\n\n") if size == "event" else [body[i : i + size] for i in range(0, len(body), size)]
        if size == "event":
            pieces = [piece + b"\n\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
        if "body_gate" in order:
            await writer.drain()
            await wait_for(Path(order["body_gate"]).exists, reader)
        for index, piece in enumerate(pieces):
            if order.get("cut_after") is not None and sent + len(piece) > order["cut_after"]:
                piece = piece[: order["cut_after"] - sent]
                if piece:
                    writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                await writer.drain()
                await asyncio.sleep(0.05)
                writer.transport.abort()
                return False
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            sent += len(piece)
            order["sent"] = index + 1
            if "bill" in order and reader.at_eof():
                return False  # a provider stops when nobody listens
            if index == 0 and "gate" in order:
                await wait_for(Path(order["gate"]).exists, reader)
            if "lockstep" in order:
                await wait_for(lambda have=index: Path(order["lockstep"]).stat().st_size > have, reader)
            await asyncio.sleep(order.get("pace_s", 0))
        trailer = f"{order['trailer']}\r\n" if "trailer" in order else ""
        writer.write(f"0\r\n{trailer}\r\n".encode())
        await writer.drain()
        return True


def billed(order: dict) -> dict:
    """Give a bill with the output that was made before the exchange ended."""
    bill = order["bill"]
    if "chunk" not in order:
        return bill | {"ended": True}
    made = max(0, order.get("sent", 0) - bill["skip"]) * bill["each"]
    return bill | {"ended": True, "output": min(bill["output"], made)}


async def wait_for(condition: Callable[[], bool], reader: asyncio.StreamReader) -> None:
    """Wait until the condition is true or the peer is gone."""
    while not condition() and not reader.at_eof():
        await asyncio.sleep(0.005)


async def read_body(reader: asyncio.StreamReader, headers: dict) -> bytes:
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    body = b""
    if "chunked" in headers.get("transfer-encoding", ""):
        while size := int((await reader.readline()).strip() or b"0", 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    return body


def plain_answer(path: str, body: bytes) -> dict:
    """Answer like a provider, all of the output limit used up."""
    try:
        request = json.loads(body or b"{}")
    except ValueError:
        request = {}
    limit = request.get("max_completion_tokens") or request.get("max_tokens") or 10
    model = request.get("model", "?")
    if path.split("?")[0].endswith("/messages"):
        usage = {"input_tokens": 10, "output_tokens": limit}
        reply = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "stop_reason": "end_turn",
                 "stop_sequence": None, "content": [{"type": "text", "text": "ok"}], "usage": usage}  # fmt: skip
    else:
        usage = {"prompt_tokens": 10, "completion_tokens": limit, "total_tokens": 10 + limit}
        message = {"role": "assistant", "content": "ok", "refusal": None}
        reply = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model, "usage": usage,
                 "choices": [{"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}]}  # fmt: skip
    return {"body": json.dumps(reply)}


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--ledger", type=Path)
    parser.add_argument("--cert", type=Path)
    parser.add_argument("--bills", type=Path)
    parser.add_argument("--script", type=Path)
    told = parser.parse_args()
    context = None
    if told.cert:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(told.cert)
    origin = Origin(told.log, told.data, told.ledger, told.bills, told.script)
    server = await asyncio.start_server(origin.serve, "127.0.0.1", 0, ssl=context, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()  # ends with the process that started it


if __name__ == "__main__":
    asyncio.run(main())

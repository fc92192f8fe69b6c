"""A loopback provider that speaks HTTP/2 alone, in a process of its own: answers by turns, logs each request.

`x-origin` is {"turns", "key"}, as for `origin.py`. A turn is {"status", "body", "type"}, or {"reset": true} (before a
reply), {"goaway": true}, {"close": true}; with "bare" there is no body at all; with "late" the stream is reset once more
after its whole reply, which a server may do. The log has a line for each request: its body, its HTTP/2 stream, and the number of its connection.
"""

import argparse
import asyncio
import itertools
import json
import ssl
import sys
from pathlib import Path

import h2.config
import h2.connection
import h2.errors
import h2.events

connections = itertools.count(1)
taken: dict[str, int] = {}


class Speaker:
    def __init__(self, log, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.log, self.reader, self.writer, self.number = log, reader, writer, next(connections)
        self.spoken = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self.headers: dict[int, dict] = {}
        self.bodies: dict[int, bytes] = {}

    async def serve(self) -> None:
        self.spoken.initiate_connection()
        self.flush()
        try:
            while data := await self.reader.read(65536):
                for event in self.spoken.receive_data(data):
                    self.take(event)
                self.flush()
        except ConnectionError:
            pass
        finally:
            self.writer.close()

    def flush(self) -> None:
        if data := self.spoken.data_to_send():
            self.writer.write(data)

    def take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.RequestReceived():
                self.headers[event.stream_id], self.bodies[event.stream_id] = dict(event.headers), b""
            case h2.events.DataReceived():
                self.bodies[event.stream_id] += event.data
                self.spoken.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.StreamEnded():
                self.answer(event.stream_id)

    def answer(self, stream: int) -> None:
        order = json.loads(self.headers[stream]["x-origin"])
        taken[order["key"]] = taken.get(order["key"], -1) + 1
        turn = order["turns"][min(taken[order["key"]], len(order["turns"]) - 1)]
        entry = {"body": self.bodies[stream].decode(), "stream": stream, "connection": self.number}
        self.log.write(json.dumps(entry) + "\n")
        if turn.get("close"):
            self.writer.transport.abort()
        elif turn.get("goaway"):
            self.spoken.close_connection()
        elif turn.get("reset"):
            self.spoken.reset_stream(stream, h2.errors.ErrorCodes.REFUSED_STREAM)
        else:
            self.reply(stream, turn)

    def reply(self, stream: int, turn: dict) -> None:
        told = {":status": str(turn.get("status", 200)), "content-type": turn.get("type", "application/json")}
        self.spoken.send_headers(stream, [*told.items()], end_stream="bare" in turn)
        if "bare" not in turn:
            self.spoken.send_data(stream, turn.get("body", "").encode(), end_stream=True)
        if turn.get("late"):
            self.flush()
            reset = b"\x00\x00\x04\x03\x00" + stream.to_bytes(4) + b"\x00\x00\x00\x00"
            self.writer.write(reset * 2)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--cert", type=Path, required=True)
    told = parser.parse_args()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(told.cert)
    context.set_alpn_protocols(["h2"])
    log = told.log.open("a", buffering=1)
    server = await asyncio.start_server(lambda *both: Speaker(log, *both).serve(), "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()  # ends with the process that started it


if __name__ == "__main__":
    asyncio.run(main())

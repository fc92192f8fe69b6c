"""A loopback provider whose counting endpoint answers as a test says; it keeps every request that came."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

USED = {"input_tokens": 10, "output_tokens": 10}
REPLY = {"id": "msg_1", "type": "message", "role": "assistant", "model": "counted-model", "stop_reason": "end_turn",
         "stop_sequence": None, "content": [{"type": "text", "text": "ok"}], "usage": USED}  # fmt: skip


@dataclass
class Counting:
    """`answer` gives what a count is answered with: status, headers, body. It may wait."""

    port: int = 0
    answer: object = None
    requests: list[tuple[str, dict, bytes]] = field(default_factory=list)  # path with query, headers, body

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def counts(self) -> list[tuple[str, dict, bytes]]:
        return [one for one in self.requests if "count" in one[0].lower()]

    def calls(self) -> list[tuple[str, dict, bytes]]:
        return [one for one in self.requests if "count" not in one[0].lower()]


def tokens(number: object) -> object:
    """Make an answer that states so many tokens, as Anthropic's endpoint does."""
    return lambda: (200, {"content-type": "application/json"}, json.dumps({"input_tokens": number}).encode())


@contextlib.contextmanager
def provider() -> Iterator[Counting]:
    """Serve until the block ends."""
    state = Counting(answer=tokens(10))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            state.requests.append((self.path, headers, body))
            status, more, reply = 200, {"content-type": "application/json"}, json.dumps(REPLY).encode()
            if "count" in self.path.lower():
                status, more, reply = state.answer()
            with contextlib.suppress(OSError):
                self.send_response(status)
                for name, value in ({"content-length": str(len(reply))} | more).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

"""Plain clients: JSON through a base URL, and raw bytes through CONNECT with or without TLS."""

import http.client  # noqa: F401 - tests name its exceptions through this module
import itertools
import json
import socket
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from processes import Proxy, until

_marks = itertools.count(1)


@dataclass
class Answer:
    status: int
    headers: dict
    body: bytes

    @property
    def json(self) -> dict:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return self.json["lockpin"]["code"]


def call(
    proxy: Proxy, path: str, body: object = None, *, method: str | None = None, patience_s: float = 30, **headers: str
) -> Answer:
    """Call a path on the proxy's own port; `body` may be bytes or JSON; header names take `_` for `-`."""
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    named = {"content-type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(proxy.url + path, data=data, headers=named, method=method)
    try:
        with urllib.request.urlopen(request, timeout=patience_s) as reply:
            return Answer(reply.status, {k.lower(): v for k, v in reply.headers.items()}, reply.read())
    except urllib.error.HTTPError as error:
        return Answer(error.code, {k.lower(): v for k, v in error.headers.items()}, error.read())


def all_written(proxy: Proxy) -> None:
    """Wait until every row of what has happened is there: refusals are written behind their answers, in order."""
    task = f"mark {next(_marks)}"
    assert call(proxy, "/openai/v1/nowhere", {}, x_lockpin_task=task).status == 403
    until(lambda: proxy.rows("SELECT 1 FROM rows WHERE kind = 'refusal' AND task = ?", task))


def tunnel(proxy: Proxy, host: str, port: int, user: str | None = None) -> socket.socket:
    """Open a CONNECT through the proxy; give the socket inside it."""
    raw = socket.create_connection(("127.0.0.1", proxy.port), 10)
    raw.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    reply = read_head(raw)
    assert b" 200 " in reply.split(b"\r\n")[0], reply
    return raw


def read_head(raw: socket.socket) -> bytes:
    """Read a reply's head and not a byte more: a server behind it that speaks first may already have."""
    reply = b""
    while not reply.endswith(b"\r\n\r\n"):
        data = raw.recv(1)
        assert data, f"the connection was closed: {reply!r}"
        reply += data
    return reply


def tls(
    raw: socket.socket, proxy: Proxy, name: str, alpn: list[str] | None = None,
    certificate: tuple[Path, Path] | None = None,
) -> ssl.SSLSocket:  # fmt: skip
    """Speak TLS inside a tunnel, trusting the proxy's CA for whatever name it shows; show a certificate, if asked."""
    context = ssl.create_default_context(cafile=str(proxy.ca))
    context.check_hostname = False
    if alpn:
        context.set_alpn_protocols(alpn)
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return context.wrap_socket(raw, server_hostname=name)


def read_all(connection: socket.socket, patience_s: float = 3) -> bytes:
    """Read until the peer closes or is silent."""
    connection.settimeout(patience_s)
    data = b""
    try:
        while piece := connection.recv(65536):
            data += piece
            if is_whole(data):
                break
    except (TimeoutError, ConnectionError, ssl.SSLError):
        pass
    return data


def is_whole(data: bytes) -> bool:
    """Say whether an HTTP/1 reply with a content-length has come in full."""
    head, blank, rest = data.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return bool(blank) and len(rest) >= int(line.split(b":")[1])
    return False

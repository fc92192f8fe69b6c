"""A proxy in team mode with keys of several people, and clients that say of themselves whatever they like.

Requests are written byte for byte, by a base URL or inside a CONNECT. The origin's log and the ledger's rows are the
witnesses: what reached the provider, and who was charged.
"""

import base64
import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import client
import processes
from processes import ROOT, until

ANTHROPIC = "api.anthropic.com"
REAL = {"anthropic": "sk-ant-REAL-CANARY", "openai": "sk-REAL-CANARY", "gemini": "AIza-REAL-CANARY"}
CONFIG = """
mode: team
daily_usd: 1000
upstreams: {{api.anthropic.com: "{origin}", api.openai.com: "{origin}", generativelanguage.googleapis.com: "{origin}"}}
keys: {{provider_env: {{anthropic: REAL_ANTHROPIC, openai: REAL_OPENAI, gemini: REAL_GEMINI}}}}
"""
_limits = itertools.count(100)


@dataclass
class Key:
    secret: str
    id: str


@dataclass
class Team:
    origin: processes.Origin
    proxy: processes.Proxy
    keys: dict[str, Key] = field(default_factory=dict)

    def key(self, user: str, *words: str) -> Key:
        """Make a key beside the running proxy."""
        made = self.keys[user] = make_key(self.proxy.home, user, *words)
        return made

    def ask(
        self, fields: Sequence[tuple[str, str]] = (), *, connect: Sequence[tuple[str, str]] | None = None,
        path: str | None = None, body: dict | None = None, content: bytes = b"", way: str = "base_url",
        method: str = "POST",
    ) -> tuple[client.Answer, list]:  # fmt: skip
        """Send one call with these header fields; give the reply, and the rows of its hold or its refusal.

        `connect` are the fields of the CONNECT, for `way` "connect".
        """
        limit = next(_limits)
        told = {"model": "plain-model", "max_tokens": limit, "messages": [{"role": "user", "content": "hi"}]}
        content = content or json.dumps(told | (body or {})).encode()
        path = ("/anthropic/v1/messages" if way == "base_url" else "/v1/messages") if path is None else path
        host = f"127.0.0.1:{self.proxy.port}" if way == "base_url" else ANTHROPIC
        data = raw(method, path, host, [*fields, ("Content-Type", "application/json")], content)
        with self.opened(way, connect or ()) as connection:
            answer = send(connection, data)
        call = answer.headers.get("x-lockpin-call", "")
        rows = self.proxy.rows("SELECT * FROM rows WHERE call = ? AND kind = 'hold'", call)
        return answer, rows

    @contextlib.contextmanager
    def opened(
        self, way: str, fields: Sequence[tuple[str, str]] = (), *, certificate: tuple[Path, Path] | None = None
    ) -> Iterator[socket.socket]:  # fmt: skip
        with socket.create_connection(("127.0.0.1", self.proxy.port), 10) as plain:
            if way == "base_url":
                yield plain
                return
            plain.sendall(raw("CONNECT", f"{ANTHROPIC}:443", f"{ANTHROPIC}:443", fields))
            head = client.read_head(plain)
            assert b" 200 " in head.split(b"\r\n")[0], head
            with client.tls(plain, self.proxy, ANTHROPIC, ["http/1.1"], certificate) as inside:
                yield inside

    def payer(self, rows: list) -> dict:
        """Give who was charged, without what is the same for all."""
        (row,) = rows
        names = ("key", "user", "team", "groups", "ring", "project", "tags")
        return {name: row[name] for name in names if row[name] is not None}

    def reached(self) -> str:
        """Give all that reached the origin, as text."""
        self.origin.calls()
        return self.origin.log.read_text()


def raw(method: str, path: str, host: str, fields: Sequence[tuple[str, str]], body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in fields)]
    if method not in ("CONNECT", "GET"):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def send(connection: socket.socket, data: bytes) -> client.Answer:
    """Send one request on an open connection and read its reply."""
    connection.sendall(data)
    reply = client.read_all(connection, 20)
    head, _, body = reply.partition(b"\r\n\r\n")
    line, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
    return client.Answer(int(line.split(" ")[1]), headers, body)


def basic(user: str, password: str) -> tuple[str, str]:
    """Make the proxy credentials that a client makes of http://USER:PASSWORD@HOST."""
    return "Proxy-Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def command(home: Path, *words: str) -> subprocess.CompletedProcess:
    """Run `lockpin` as the owner of a home."""
    variables = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "lockpin_cli.main", *words], env=variables, cwd=home, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip


def make_key(home: Path, user: str, *words: str) -> Key:
    done = command(home, "key", "create", "--user", user, *words)
    assert done.returncode == 0, done.stderr
    return Key(done.stdout.strip(), done.stderr.split(" of ")[0].rpartition(" ")[2])


@contextlib.contextmanager
def team(folder: Path, more: str = "", *, kind: str = "up", **settings) -> Iterator[Team]:
    """Run a proxy of a team, with the providers' real keys in its environment."""
    real = {f"REAL_{name.upper()}": key for name, key in REAL.items()}
    home = settings.pop("home", None) or processes.make_home(folder)
    environment = real | settings.pop("environment", {})
    with (
        processes.origin(folder, ledger=home / ".local/share/lockpin/ledger.sqlite3") as origin,
        processes.proxy(
            folder, CONFIG.format(origin=origin.url) + PRICES + more, kind=kind, home=home, environment=environment,
            **settings,
        ) as proxy,
    ):  # fmt: skip
        yield Team(origin, proxy)


PRICES = """
pricing: {plain-model: {input_per_mtok: 1, output_per_mtok: 5, max_output_tokens: 100000, context_tokens: 200000}}
"""


def settled(proxy: processes.Proxy) -> None:
    """Wait until nothing is held any more."""
    until(lambda: not proxy.rows("SELECT 1 FROM open_holds"))

"""Calls that fail and are sent again: a proxy that retries before an origin that answers by turns, and what it saw."""

import contextlib
import itertools
import json
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import client
import httpx2
import processes
import streams
from processes import until

FAST = "retry: {{attempts: {attempts}, base: 2ms, max: 4ms}}\n"
HOSTS = {"chat": "api.openai.com", "messages": "api.anthropic.com"}
API_PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages"}
_tasks, _keys, _limits = itertools.count(1), itertools.count(1), itertools.count(2000)


@dataclass
class Seen:
    """One call of a client with all that became of it."""

    answer: client.Answer
    requests: list[dict]  # that reached the origin, oldest first
    holds: list
    ends: list  # of those holds, in their order

    @property
    def charged(self) -> list[int]:
        return [end["usd"] for end in self.ends]


def busy(status: int, **more: object) -> dict:
    """Make a turn that is an error."""
    return {"status": status, "body": json.dumps({"error": {"message": "busy", "code": "busy"}})} | more


PLAIN = {"plain": True}
DROP = {"close": "before"}  # after the request has come
# Streams that end before their first byte: in order, and broken off.
EMPTY = streams.SSE | {"body": ""}
BARE = {"type": "text/event-stream", "body": ""}  # with a length of 0
CUT = streams.SSE | {"body": "data: {}\n\n", "cut_after": 0}


def whole(wire: str, output: int = 9, **more: object) -> dict:
    """Make a turn that is a whole stream."""
    return streams.SSE | {"body": streams.finished(wire, output)} | more


def new_task() -> str:
    """Name a task that nobody has used: it has the whole of its budget."""
    return f"task-{next(_tasks)}"


def turns(*told: dict) -> dict[str, str]:
    """Make the header that gives the origin's answers in turn."""
    return {"x-origin": json.dumps({"turns": list(told), "key": f"k{next(_keys)}"})}


@contextlib.contextmanager
def running(
    folder: Path, attempts: int = 3, more: str = "", kind: str = "mitmdump", *, hosts: Sequence[str] = (),
    closed: Sequence[str] = (), prices: str = "", **how: object,
) -> Iterator[streams.Rig]:  # fmt: skip
    """Start an origin that looks into the ledger at each call, and a proxy before it that makes so many attempts.

    The origin stands for these hosts too; nobody listens at the `closed` ones.
    """
    home = processes.make_home(folder)
    with processes.origin(folder, ledger=home / ".local/share/lockpin/ledger.sqlite3") as origin:
        told = streams.CONFIG.format(origin=origin.url, closed=processes.free_port())
        places = dict.fromkeys(hosts, origin.url)
        places |= {host: f"http://127.0.0.1:{processes.free_port()}" for host in closed}
        named = "".join(f'{host}: "{place}", ' for host, place in places.items())
        told = told.replace("upstreams: {", "upstreams: {" + named, 1)
        told += prices + FAST.format(attempts=attempts) + more
        with processes.proxy(folder, told, kind=kind, home=home, **how) as proxy:
            yield streams.Rig(origin, proxy, folder)


def send(
    rig: streams.Rig, wire: str, *told: dict, limit: int | None = None, task: str = "default", way: str = "h1",
    host: str | None = None, headers: dict | None = None, **more: object,
) -> Seen:  # fmt: skip
    """Send a call that is known by its output limit, and wait until all of it is resolved."""
    limit = next(_limits) if limit is None else limit
    body = streams.ask(wire, limit) | {"stream": False} | more
    named = {"content-type": "application/json", "x-lockpin-task": task} | turns(*told) | (headers or {})
    before, held = len(rig.origin.calls()), len(_holds(rig))
    answer = call(rig, wire, body, named, way, host or HOSTS[wire])
    return seen(rig, answer, before, held)


def call(rig: streams.Rig, wire: str, body: dict, headers: dict, way: str, host: str) -> client.Answer:
    """Make a call: by a base URL, over HTTP/1 ("h1"), or inside a tunnel over HTTP/2 ("h2") or HTTP/1 ("tunnel").

    A reply that breaks off has the status 0.
    """
    try:
        return _call(rig, wire, body, headers, way, host)
    except httpx2.RemoteProtocolError:
        return client.Answer(0, {}, b"")


def _call(rig: streams.Rig, wire: str, body: dict, headers: dict, way: str, host: str) -> client.Answer:
    told, url = {"trust_env": False, "timeout": 30}, rig.proxy.url + streams.PATHS[wire]
    if way != "h1":
        told |= {"proxy": rig.proxy.url, "verify": ssl.create_default_context(cafile=str(rig.proxy.ca))}
        url = f"https://{host}{API_PATHS[wire]}"
    with httpx2.Client(http1=way != "h2", http2=way == "h2", **told) as opened:
        reply = opened.post(url, json=body, headers=headers)
        assert reply.http_version == ("HTTP/2" if way == "h2" else "HTTP/1.1")
        return client.Answer(reply.status_code, dict(reply.headers), reply.content)


def _holds(rig: streams.Rig) -> list:
    return rig.proxy.rows("SELECT * FROM rows WHERE kind = 'hold' ORDER BY id")


def seen(rig: streams.Rig, answer: client.Answer, before: int, held: int) -> Seen:
    """Gather what there is of a call once nothing of it is open."""
    until(lambda: not rig.proxy.rows("SELECT 1 FROM open_holds"))
    holds = _holds(rig)[held:]
    query = "SELECT * FROM rows WHERE call = ? AND kind IN ('charge', 'void')"
    ends = [end for hold in holds for end in rig.proxy.rows(query, hold["call"])]
    assert [end["call"] for end in ends] == [hold["call"] for hold in holds]  # one resolution each
    return Seen(answer, rig.origin.calls()[before:], holds, ends)

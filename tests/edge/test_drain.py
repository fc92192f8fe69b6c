"""The end of a proxy, through real processes: running calls may end, new ones are refused, and nothing waits long."""

import asyncio
import contextlib
import json
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import client
import desks
import h2.config
import h2.connection
import h2.events
import httpx2
import processes
import pytest
import sdks
import streams
from lockpin_addons import guard
from lockpin_addons.callers import Callers
from lockpin_addons.door import Door
from lockpin_addons.drain import SAME_S
from lockpin_addons.gate import Gate
from lockpin_addons.real_keys import RealKeys
from lockpin_addons.serve import Health
from lockpin_addons.terms import InForce, Terms
from lockpin_addons.tokens import Tokens
from mitmproxy.master import Master
from mitmproxy.options import Options
from mitmproxy.test import tflow, tutils
from processes import until
from streams import (
    IN_NANO,
    OUT_NANO,
    PATHS,
    SSE,
    WIRES,
    Rig,
    ask,
    end_of,
    finished,
    held_last,
    holds_of,
    request_bytes,
    rows_of,
    stream,
    unfinished,
)

from lockpin_core.ledger.protocol import Rules

KINDS = ("mitmdump", "up")
STOPS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def running(folder, kind="up", more="", **settings) -> Iterator[Rig]:
    home = processes.make_home(folder)
    with processes.origin(folder) as origin:
        config = streams.CONFIG.format(origin=origin.url, closed=processes.free_port()) + more
        with processes.proxy(folder, config, kind=kind, home=home, **settings) as proxy:
            yield Rig(origin, proxy, folder)


@contextlib.contextmanager
def open_stream(rig, gate, wire="messages"):
    """Open a stream that stands after its first chunk until `gate` is there."""
    with stream(rig, wire, SSE | {"body": finished(wire, 9), "gate": str(gate)}) as reply:
        pieces = reply.iter_raw()
        yield reply, pieces, next(pieces)


def stopping(rig):
    until(lambda: "lockpin: stopping; " in rig.proxy.printed())


def ends_within(rig, seconds):
    started_s = time.monotonic()
    assert rig.proxy.process.wait(processes.PATIENCE_S) == 0
    assert time.monotonic() - started_s < seconds


@pytest.mark.parametrize("sign", STOPS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_running_stream_ends_and_costs_what_it_did(kind, sign, tmp_path):
    with running(tmp_path, kind) as rig:
        gate = rig.new_path()
        with open_stream(rig, gate) as (reply, pieces, first):
            rig.proxy.process.send_signal(sign)
            stopping(rig)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", rig.proxy.port), 5)
            assert rig.proxy.process.poll() is None
            gate.touch()
            assert first + b"".join(pieces) == finished("messages", 9).encode()

        ends_within(rig, 3)
        _, charge = rows_of(rig, reply)
        assert (charge["estimated"], charge["usd"]) == (0, 25 * IN_NANO + 9 * OUT_NANO)
        line = "lockpin: stopping; 1 call is still running, waiting up to 60s (Ctrl-C again ends at once)\n"
        assert line in rig.proxy.printed()


def test_a_new_call_on_a_kept_connection_is_refused_and_not_sent(tmp_path):
    with running(tmp_path) as rig, socket.create_connection(("127.0.0.1", rig.proxy.port), 10) as kept:
        request = request_bytes(rig, "messages", ask("messages", 100) | {"stream": False})
        kept.sendall(request)
        assert client.read_all(kept).startswith(b"HTTP/1.1 200")
        gate = rig.new_path()
        with open_stream(rig, gate) as (_, pieces, _first):
            rig.proxy.process.send_signal(signal.SIGTERM)
            stopping(rig)
            kept.sendall(request)
            head, _, body = client.read_all(kept).partition(b"\r\n\r\n")
            assert kept.recv(1) == b""  # and the connection is closed
            gate.touch()
            b"".join(pieces)

        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: 5\r\n" in head.lower() + b"\r\n"
        assert b"\r\nconnection: close" in head.lower()
        assert b'"reserve_failed"' in body
        assert b"lockpin: this proxy is stopping" in body
        ends_within(rig, 3)
        assert len(rig.origin.calls()) == 2


def test_a_body_that_comes_in_after_the_end_began_is_refused(tmp_path):
    with running(tmp_path) as rig, socket.create_connection(("127.0.0.1", rig.proxy.port), 10) as slow:
        request = request_bytes(rig, "messages", ask("messages", 100))
        slow.sendall(request[:-1])
        gate = rig.new_path()
        with open_stream(rig, gate) as (_, pieces, _first):
            rig.proxy.process.send_signal(signal.SIGTERM)
            stopping(rig)
            assert "1 call is still running" in rig.proxy.printed()
            slow.sendall(request[-1:])
            assert client.read_all(slow).startswith(b"HTTP/1.1 503 ")
            gate.touch()
            b"".join(pieces)

        ends_within(rig, 3)
        assert holds_of(rig, 100) == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_runs_longer_than_drain_is_broken_off_and_charged_in_full(kind, tmp_path):
    with running(tmp_path, kind, "drain: 1s\n") as rig:
        with contextlib.suppress(httpx2.HTTPError), open_stream(rig, rig.new_path()) as (reply, _pieces, _):
            started_s = time.monotonic()
            rig.proxy.process.send_signal(signal.SIGTERM)
            assert rig.proxy.process.wait(processes.PATIENCE_S) == 0
            assert 1 <= time.monotonic() - started_s < 5

        hold, charge = rows_of(rig, reply)
        assert (charge["usd"], charge["estimated"], charge["reason"]) == (
            held_last(rig.proxy, hold["call"]),
            1,
            "lockpin_stopped",
        )
        assert "1 call is broken off now and charged in full (lockpin_stopped)" in rig.proxy.printed()


def test_a_drain_of_no_time_breaks_off_at_once(tmp_path):
    with running(tmp_path, more="drain: 0s\n") as rig:
        with contextlib.suppress(httpx2.HTTPError), open_stream(rig, rig.new_path()) as (reply, _pieces, _):
            rig.proxy.process.send_signal(signal.SIGTERM)
            ends_within(rig, 3)

        assert rows_of(rig, reply)[1]["reason"] == "lockpin_stopped"


@pytest.mark.parametrize("sign", STOPS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_second_signal_ends_at_once(kind, sign, tmp_path):
    with running(tmp_path, kind) as rig:
        with contextlib.suppress(httpx2.HTTPError), open_stream(rig, rig.new_path()) as (reply, _pieces, _):
            rig.proxy.process.send_signal(sign)
            stopping(rig)
            time.sleep(SAME_S)  # what comes sooner is the same signal
            rig.proxy.process.send_signal(sign)
            ends_within(rig, 3)

        hold, charge = rows_of(rig, reply)
        assert (charge["usd"], charge["reason"]) == (held_last(rig.proxy, hold["call"]), "lockpin_stopped")


def test_two_signals_together_are_one(tmp_path):
    with running(tmp_path) as rig:
        gate = rig.new_path()
        with open_stream(rig, gate) as (reply, pieces, _):
            rig.proxy.process.send_signal(signal.SIGINT)
            rig.proxy.process.send_signal(signal.SIGTERM)
            stopping(rig)
            gate.touch()
            b"".join(pieces)

        ends_within(rig, 3)
        assert rows_of(rig, reply)[1]["estimated"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_idle_proxy_with_an_idle_client_and_a_tunnel_ends_within_a_second(kind, tmp_path):
    server = socket.create_server(("127.0.0.1", 0))
    with (
        server,
        running(tmp_path, kind) as rig,
        socket.create_connection(("127.0.0.1", rig.proxy.port), 10) as kept,
        client.tunnel(rig.proxy, "127.0.0.1", server.getsockname()[1]),
    ):
        kept.sendall(request_bytes(rig, "messages", ask("messages", 100) | {"stream": False}))
        assert client.read_all(kept).startswith(b"HTTP/1.1 200")

        rig.proxy.process.send_signal(signal.SIGTERM)
        ends_within(rig, 1)
        assert "stopping" not in rig.proxy.printed()


def test_a_whole_reply_arrives_although_its_call_has_ended_for_the_books(tmp_path):
    with running(tmp_path, more="drain: 20s\n") as rig, socket.socket() as slow:
        large, gate = rig.folder / "large.json", rig.new_path()
        large.write_bytes(b'{"id": "m", "usage": {"input_tokens": 25, "output_tokens": 9}, "content": [], "model": '
                          b'"messages-model", "x": "' + b"x" * (30 << 20) + b'"}')  # fmt: skip
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", rig.proxy.port))
        order = sdks.order(file=str(large), head_gate=str(gate))
        slow.sendall(request_bytes(rig, "messages", ask("messages", 777) | {"stream": False}, **order))
        (hold,) = until(lambda: holds_of(rig, 777))
        rig.proxy.process.send_signal(signal.SIGTERM)
        stopping(rig)
        gate.touch()
        end_of(rig, hold["call"])
        slow.settimeout(10)
        size = 0
        while piece := slow.recv(1 << 20):
            size += len(piece)

        assert size > large.stat().st_size
        ends_within(rig, 3)


def test_a_script_that_ends_the_proxy_drains_it_too(tmp_path):
    script = tmp_path / "ends.py"
    flag = tmp_path / "flag"
    script.write_text(
        "import asyncio, pathlib\nfrom mitmproxy import ctx\n"
        f"async def wait():\n    while not pathlib.Path({str(flag)!r}).exists():\n        await asyncio.sleep(0.01)\n"
        "    ctx.master.shutdown()\n"
        "def running():\n    global task\n    task = asyncio.create_task(wait())\n"
    )
    with running(tmp_path, "mitmdump", arguments=("-s", str(script))) as rig:
        gate = rig.new_path()
        with open_stream(rig, gate) as (reply, pieces, _):
            flag.touch()
            stopping(rig)
            gate.touch()
            b"".join(pieces)

        ends_within(rig, 3)
        assert rows_of(rig, reply)[1]["estimated"] == 0


def test_a_new_call_on_a_kept_http2_connection_is_refused_without_a_header_that_http2_forbids(tmp_path):
    with running(tmp_path) as rig:
        raw = client.tls(client.tunnel(rig.proxy, "api.anthropic.com", 443), rig.proxy, "api.anthropic.com", ["h2"])
        connection = h2.connection.H2Connection(h2.config.H2Configuration())
        connection.initiate_connection()
        gate = rig.new_path()
        with raw, open_stream(rig, gate) as (_, pieces, _first):
            assert http2_call(raw, connection, 1)[b":status"] == b"200"
            rig.proxy.process.send_signal(signal.SIGTERM)
            stopping(rig)
            head = http2_call(raw, connection, 3)
            gate.touch()
            b"".join(pieces)

        assert head[b":status"] == b"503"
        assert b"connection" not in head
        ends_within(rig, 3)


def http2_call(raw, connection, stream_id):
    """Ask on a stream of a connection; give the reply's head when the reply is whole."""
    body = json.dumps({"model": "messages-model", "max_tokens": 100, "messages": [sdks.MESSAGE]}).encode()
    head = [(":method", "POST"), (":scheme", "https"), (":authority", "api.anthropic.com"), (":path", "/v1/messages")]
    connection.send_headers(stream_id, head)
    connection.send_data(stream_id, body, end_stream=True)
    raw.sendall(connection.data_to_send())
    found = {}
    while True:
        for event in connection.receive_data(raw.recv(1 << 16)):
            if isinstance(event, h2.events.ResponseReceived):
                found = {bytes(name): bytes(value) for name, value in event.headers}
            elif isinstance(event, h2.events.StreamEnded):
                return found
        raw.sendall(connection.data_to_send())


@pytest.mark.parametrize("wire", PATHS)
def test_calls_under_way_at_the_signal_are_all_waited_for(wire, tmp_path):
    with running(tmp_path) as rig, contextlib.ExitStack() as stack:
        gate = rig.new_path()
        opened = [stack.enter_context(open_stream(rig, gate, wire)) for _ in range(3)]
        rig.proxy.process.send_signal(signal.SIGTERM)
        stopping(rig)
        assert "3 calls are still running" in rig.proxy.printed()
        gate.touch()
        for reply, pieces, _ in opened:
            b"".join(pieces)
            assert rows_of(rig, reply)[1]["estimated"] == 0

        ends_within(rig, 3)


@contextlib.contextmanager
def endless_origin() -> Iterator[int]:
    """Serve streams whose end is the end of their connection, which never comes; give the port."""
    taken: list[socket.socket] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = server.accept()
                taken.append(one)
                head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
                wire = "messages" if b"/v1/messages" in one.recv(65536) else "chat"
                one.sendall(head + unfinished(wire, 3).encode())

    server = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()
        for one in taken:
            one.close()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_at_the_end_every_stream_is_charged_in_full_whichever_side_is_closed_first(kind, again, tmp_path):
    home = processes.make_home(tmp_path)
    with endless_origin() as port, contextlib.ExitStack() as stack:
        config = streams.CONFIG.format(origin=f"http://127.0.0.1:{port}", closed=processes.free_port())
        wait = "60s" if again else "1s"
        proxy = stack.enter_context(processes.proxy(tmp_path, config + f"drain: {wait}\n", kind=kind, home=home))
        rig = Rig(None, proxy, tmp_path)
        for wire in WIRES * 3:
            raw = stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port), 10))
            raw.sendall(request_bytes(rig, wire, ask(wire, 1000)))
            got = b""
            while b"abc" not in got:
                got += raw.recv(65536)
        proxy.process.send_signal(signal.SIGTERM)
        stopping(rig)
        if again:
            time.sleep(SAME_S)
            proxy.process.send_signal(signal.SIGTERM)
        assert proxy.process.wait(processes.PATIENCE_S) == 0

        charges = proxy.rows("SELECT * FROM rows WHERE kind IN ('charge', 'void')")
        holds = proxy.rows("SELECT * FROM rows WHERE kind = 'hold'")
        assert [charge["reason"] for charge in charges] == ["lockpin_stopped"] * 6
        assert sorted(charge["usd"] for charge in charges) == sorted(held_last(proxy, hold["call"]) for hold in holds)
        assert "6 calls are broken off now and charged in full (lockpin_stopped)\n" in proxy.printed()
        assert proxy.printed().count("broken off") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_whose_hold_is_still_awaited_is_sent_away_at_once_and_costs_nothing(kind, tmp_path):
    with running(tmp_path, kind) as rig:
        until(lambda: "  CA  " in rig.proxy.printed())
        gate = rig.new_path()
        with contextlib.suppress(httpx2.HTTPError), open_stream(rig, gate) as (reply, _pieces, _):
            lock = sqlite3.connect(rig.proxy.ledger, isolation_level=None)
            lock.execute("BEGIN IMMEDIATE")
            raw = socket.create_connection(("127.0.0.1", rig.proxy.port), 10)
            with raw, contextlib.closing(lock):
                raw.sendall(request_bytes(rig, "messages", ask("messages", 333)))
                until(lambda: client.call(rig.proxy, "/lockpin/healthz", method="GET"))  # a turn of the loop later
                rig.proxy.process.send_signal(signal.SIGTERM)
                stopping(rig)
                assert client.read_all(raw).startswith(b"HTTP/1.1 503")
                until(lambda: "1 call is still running" in rig.proxy.printed())
                time.sleep(SAME_S)
                rig.proxy.process.send_signal(signal.SIGTERM)
                until(lambda: "broken off now" in rig.proxy.printed())
                lock.execute("COMMIT")
            assert rig.proxy.process.wait(processes.PATIENCE_S) == 0

        assert rows_of(rig, reply)[1]["reason"] == "lockpin_stopped"
        assert rig.proxy.rows("SELECT * FROM rows WHERE kind = 'charge' AND reason != 'lockpin_stopped'") == []
        assert all(end_of(rig, hold["call"])[1]["kind"] == "void" for hold in holds_of(rig, 333))
        assert not rig.proxy.rows("SELECT 1 FROM open_holds")
        assert len(rig.origin.calls()) == 1
        assert "1 call is broken off now and charged in full (lockpin_stopped)\n" in rig.proxy.printed()


def test_a_signal_between_the_opening_of_the_port_and_the_end_of_the_start_drains_too(tmp_path):
    script, ready = tmp_path / "slow.py", tmp_path / "ready"
    script.write_text(
        "import asyncio, pathlib\n"
        f"async def running():\n    while not pathlib.Path({str(ready)!r}).exists():\n"
        "        await asyncio.sleep(0.01)\n"
    )
    with running(tmp_path, "mitmdump", arguments=("-s", str(script))) as rig:
        gate = rig.new_path()
        with open_stream(rig, gate) as (reply, pieces, first):
            assert "  CA  " not in rig.proxy.printed()  # the start is not over
            rig.proxy.process.send_signal(signal.SIGTERM)
            stopping(rig)
            gate.touch()
            assert first + b"".join(pieces) == finished("messages", 9).encode()
            ready.touch()

        ends_within(rig, 3)
        assert rows_of(rig, reply)[1]["estimated"] == 0
        assert "Traceback" not in rig.proxy.printed()


def new_gate() -> tuple[Gate, desks.Desk]:
    desk = desks.Desk()
    rules = Rules(desk.config.all_budgets(), desk.config.task_default())
    in_force = InForce(Terms(desk.config, desk.prices, rules, desk.engine))
    health = Health(lambda: desks.NOW, datetime.now(UTC), lambda: 0, is_capped=lambda: False, say=print)
    callers = Callers(desk.ledger.key, Tokens(in_force, lambda: desks.NOW), RealKeys(in_force, {}).of)
    door = Door(in_force, desks.PROVIDERS, callers)
    return Gate(in_force, desks.PROVIDERS, health, lambda: "c1", {}, door, callers), desk


def test_a_call_that_waits_for_a_reload_when_the_end_begins_is_refused_and_a_free_one_does_not_wait():
    async def run() -> None:
        Master(Options())
        gate, desk = new_gate()
        host = {"host": "api.openai.com", "headers": ()}
        told = json.dumps(desks.body()).encode()
        call = tflow.tflow(req=tutils.treq(method=b"POST", path=b"/v1/chat/completions", content=told, **host))
        free = tflow.tflow(req=tutils.treq(method=b"GET", path=b"/v1/models", **host))
        agreed = asyncio.Event()
        change = asyncio.create_task(gate.in_force.replace(gate.in_force.terms, agreed.wait))
        await asyncio.sleep(0)
        for flow in (call, free):
            await gate.requestheaders(flow)
        waiting = asyncio.create_task(gate.request(call))
        await asyncio.sleep(0)

        await asyncio.wait_for(gate.request(free), 0.1)
        assert guard.PERMIT in free.metadata
        gate.stop()
        agreed.set()
        await asyncio.gather(waiting, change)

        assert (call.response.status_code, guard.PERMIT in call.metadata) == (503, False)
        assert desk.kinds() == ["refusal"]

    asyncio.run(run())


@pytest.mark.parametrize("wait_s", [0, 0.1, 0.2, 0.3])
def test_ctrl_c_while_the_proxy_is_being_started_is_quiet(wait_s, tmp_path):
    home = processes.make_home(tmp_path)
    proxy = processes.launch(tmp_path, kind="up", home=home)
    try:
        command = processes.Path(f"/proc/{proxy.process.pid}/cmdline")
        until(lambda: b"lockpin_addons.up" in command.read_bytes())
        time.sleep(wait_s)

        proxy.process.send_signal(signal.SIGINT)

        assert proxy.process.wait(processes.PATIENCE_S) in (130, 0)  # 0: it was up already
    finally:
        processes.end(proxy.process)
    assert [line for line in proxy.printed().splitlines() if "Traceback" in line or "cannot start" in line] == []

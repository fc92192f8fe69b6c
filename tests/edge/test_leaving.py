"""Clients that leave while their call waits for room, or is being counted: the place is free at once.

Over HTTP/1 the connection closes; over HTTP/2 one stream is reset and the connection stays.
"""

import contextlib
import json
import socket
import threading

import client
import counting
import h2.config
import h2.connection
import h2.events
import processes
import pytest
from processes import until

# Output alone costs: a dollar for ten thousand tokens.
CONFIG = """
upstreams: {{api.anthropic.com: "{origin}"}}
pricing:
  messages-model: {{input_per_mtok: 0, output_per_mtok: 100, max_output_tokens: 20000, context_tokens: 200000}}
  counted-model: {{input_per_mtok: 100, output_per_mtok: 0, max_output_tokens: 100, context_tokens: 1000000}}
daily_usd: null
task: {{budget_usd: 1}}
queue: {{wait: 60s}}
fit: {{output: false}}
"""
LONG_AGENT = "claude-cli/2.1.197"


def body_of(limit, model="messages-model", text="hi"):
    return {"model": model, "max_tokens": limit, "messages": [{"role": "user", "content": text}]}


def http1(proxy, task, body, **headers):
    """Send a call over HTTP/1 and wait for nothing; closing the socket is leaving."""
    data = json.dumps(body).encode()
    head = [f"POST /anthropic/v1/messages HTTP/1.1\r\nHost: 127.0.0.1:{proxy.port}\r\nX-Lockpin-Task: {task}"]
    head += [f"{name}: {value}" for name, value in headers.items()]
    connection = socket_to(proxy)
    connection.sendall(f"{'\r\n'.join(head)}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    return connection


def socket_to(proxy):
    return socket.create_connection(("127.0.0.1", proxy.port), 10)


class Http2:
    """One HTTP/2 connection with a stream for each call; leaving is a reset of its stream."""

    def __init__(self, proxy):
        self.wire = client.tls(client.tunnel(proxy, "api.anthropic.com", 443), proxy, "api.anthropic.com", ["h2"])
        assert self.wire.selected_alpn_protocol() == "h2"
        self.connection = h2.connection.H2Connection(h2.config.H2Configuration())
        self.connection.initiate_connection()
        self.next_id = 1

    def ask(self, task, body, **headers):
        stream, self.next_id = self.next_id, self.next_id + 2
        named = {":method": "POST", ":scheme": "https", ":authority": "api.anthropic.com", ":path": "/v1/messages"}
        self.connection.send_headers(stream, [*(named | {"x-lockpin-task": task} | headers).items()])
        data = json.dumps(body).encode()
        for at in range(0, len(data), 16_000):
            self.connection.send_data(stream, data[at : at + 16_000])
        self.connection.end_stream(stream)
        self.wire.sendall(self.connection.data_to_send())
        return stream

    def leave(self, stream):
        self.connection.reset_stream(stream, 8)
        self.wire.sendall(self.connection.data_to_send())


@contextlib.contextmanager
def asking(proxy, way, task, body):
    """Have a call under way; give what leaves it."""
    if way == "http1":
        with http1(proxy, task, body, **{"user-agent": LONG_AGENT}) as connection:
            yield connection.close
    else:
        http2 = Http2(proxy)
        with http2.wire:
            stream = http2.ask(task, body, **{"user-agent": LONG_AGENT})
            yield lambda: http2.leave(stream)


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("leaving")
    with (
        processes.origin(folder) as origin,
        processes.proxy(folder, CONFIG.format(origin=origin.url), kind=request.param) as proxy,
    ):
        yield origin, proxy
        assert "handled as a fault" not in proxy.printed()
        assert "crashed" not in proxy.printed()


def calls_of(origin):
    return [one for one in origin.calls() if one["path"] == "/v1/messages"]  # and not to the counting endpoint


def rows_of(proxy, task):
    return [row["kind"] for row in proxy.rows("SELECT kind FROM rows WHERE task = ? ORDER BY id", task)]


def waiting(proxy, task):
    return proxy.rows("SELECT * FROM waiting WHERE task = ?", task)


@contextlib.contextmanager
def full(proxy, task, gate):
    """Hold nine tenths of a task's dollar until the block ends; the call costs a cent."""
    reply = dict(counting.REPLY, usage={"input_tokens": 0, "output_tokens": 100})
    order = json.dumps({"head_gate": str(gate), "body": json.dumps(reply)})
    with http1(proxy, task, body_of(9000), **{"x-origin": order}) as connection:
        until(lambda: proxy.rows("SELECT 1 FROM open_holds"))
        yield
        gate.touch()
        assert client.read_all(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("way", ["http1", "http2"])
def test_one_that_leaves_the_waiting_room_frees_its_place_at_once(rig, way, tmp_path):
    origin, proxy = rig
    task, before = f"waits-{way}", len(calls_of(origin))
    with full(proxy, task, tmp_path / "gate"), asking(proxy, way, task, body_of(5000)) as leave:
        until(lambda: waiting(proxy, task))
        leave()
        until(lambda: not waiting(proxy, task), patience_s=2)  # long before its minute is over
        assert rows_of(proxy, task) == ["hold"]  # that of the other call: it has got nothing yet

    until(lambda: rows_of(proxy, task) == ["hold", "charge"])
    assert len(calls_of(origin)) == before + 1  # and what came free did not let it out
    assert client.call(proxy, "/anthropic/v1/messages", body_of(9900), x_lockpin_task=task).status == 200
    assert proxy.rows("SELECT 1 FROM open_holds") == []


@pytest.mark.parametrize("way", ["http1", "http2"])
def test_the_next_in_line_gets_what_the_one_that_left_had_waited_for(rig, way, tmp_path):
    """A place that is kept for one who is gone would make the next wait behind it."""
    _, proxy = rig
    task = f"next-{way}"
    with full(proxy, task, tmp_path / "gate"), asking(proxy, way, task, body_of(9950)) as leave:
        until(lambda: waiting(proxy, task))
        leave()
        until(lambda: not waiting(proxy, task), patience_s=2)
        small = client.call(proxy, "/anthropic/v1/messages", body_of(900), x_lockpin_task=task)

    assert small.status == 200
    assert "x-lockpin-waited-ms" not in small.headers


def test_a_reset_of_one_stream_leaves_the_others_of_its_connection(rig, tmp_path):
    _, proxy = rig
    task, gate = "streams", tmp_path / "gate"
    http2 = Http2(proxy)
    with http2.wire:
        with full(proxy, task, gate):
            gone, stays = http2.ask(task, body_of(5000)), http2.ask(task, body_of(4000))
            until(lambda: len({row["call"] for row in waiting(proxy, task)}) == 2)
            http2.leave(gone)
            until(lambda: len({row["call"] for row in waiting(proxy, task)}) == 1, patience_s=2)

        until(lambda: rows_of(proxy, task).count("charge") == 2)
        events = http2.connection.receive_data(http2.wire.recv(1 << 16))
        while not any(isinstance(event, h2.events.StreamEnded) for event in events):
            events += http2.connection.receive_data(http2.wire.recv(1 << 16))
    assert [event.stream_id for event in events if isinstance(event, h2.events.ResponseReceived)] == [stays]


@pytest.mark.parametrize("way", ["http1", "http2"])
def test_many_that_leave_at_all_instants_leave_nothing_behind(rig, way):
    """Whatever was being done for them at that instant: reading, pricing, holding, connecting, sending."""
    origin, proxy = rig
    task, before = f"instants-{way}", len(calls_of(origin))
    for index in range(40):
        with asking(proxy, way, f"{task}-{index}", body_of(100)) as leave:
            threading.Event().wait(index * 0.0005)  # not a wait for anything: each leaves at another instant
            leave()

    until(lambda: not proxy.rows("SELECT 1 FROM open_holds"))
    resolved = proxy.rows(f"SELECT task, kind, reason FROM rows WHERE task LIKE '{task}-%' AND kind != 'hold'")
    assert {row["kind"] for row in resolved} <= {"charge", "void"}
    charged = sum(row["kind"] == "charge" for row in resolved)
    assert charged >= len(calls_of(origin)) - before


@pytest.mark.parametrize("way", ["http1", "http2"])
def test_one_that_leaves_while_it_is_counted_holds_nothing_and_is_not_sent(way, tmp_path):
    """Its prompt fits only as counted: what is answered after it has gone must not start it again."""
    asked, go_on = threading.Event(), threading.Event()

    def slow_answer():
        asked.set()
        go_on.wait(10)
        return counting.tokens(10)()

    with (
        counting.provider() as origin,
        processes.proxy(tmp_path, CONFIG.format(origin=origin.url), kind="up") as proxy,
    ):
        origin.answer = slow_answer
        with asking(proxy, way, "counted", body_of(10, "counted-model", "word " * 10_000)) as leave:
            assert asked.wait(10)
            leave()
            go_on.set()
            assert client.call(proxy, "/anthropic/v1/messages", body_of(10), x_lockpin_task="other").status == 200

        assert [len(body) < 1000 for _, _, body in origin.calls()] == [True]
        assert rows_of(proxy, "counted") == []
        assert waiting(proxy, "counted") == []
        assert "fault" not in proxy.printed() and "Traceback" not in proxy.printed()

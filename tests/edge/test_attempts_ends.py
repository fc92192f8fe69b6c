"""What ends a call between two attempts: a client that leaves, a proxy that stops or is killed, a provider that is gone.

Also how long the wait is, and what is left of the attempt that failed.
"""

import contextlib
import json
import signal
import socket
import threading
import time

import client
import h2.config
import h2.connection
import processes
import pytest
import sdks
import streams
import tries
from processes import until
from streams import IN_NANO
from tries import DROP, EMPTY, PLAIN, busy

from lockpin_core.ledger.verify import verify

LATER = {"headers": {"retry-after": "25"}}
BUSY = busy(503, **LATER)
FALLBACKS = "fallbacks: {openai/chat-model: [openai/messages-model]}\n"


@contextlib.contextmanager
def asking(rig, way, limit, *told, stream=False):
    """Have a call under way; give what leaves it."""
    body = json.dumps(streams.ask("chat", limit) | {"stream": stream}).encode()
    named = {"x-origin": tries.turns(*told)["x-origin"], "content-type": "application/json"}
    if way == "h1":
        with socket.create_connection(("127.0.0.1", rig.proxy.port), 10) as raw:
            raw.sendall(streams.request_bytes(rig, "chat", json.loads(body), **named))
            yield raw.close
        return
    wire = client.tls(client.tunnel(rig.proxy, "api.openai.com", 443), rig.proxy, "api.openai.com", ["h2"])
    with wire:
        connection = h2.connection.H2Connection(h2.config.H2Configuration())
        connection.initiate_connection()
        pseudo = {
            ":method": "POST",
            ":scheme": "https",
            ":authority": "api.openai.com",
            ":path": "/v1/chat/completions",
        }
        connection.send_headers(1, [*(pseudo | named).items()])
        connection.send_data(1, body, end_stream=True)
        wire.sendall(connection.data_to_send())

        def leave():
            connection.reset_stream(1, 8)
            wire.sendall(connection.data_to_send())

        yield leave


def rows_of(rig, limit):
    """Give a call's rows by kind, all of its attempts, oldest first."""
    held = "SELECT call FROM rows WHERE kind = 'hold' AND output_limit = ?"
    return rig.proxy.rows(f"SELECT * FROM rows WHERE call IN ({held}) AND kind != 'shrink' ORDER BY id", limit)


def waits(rig, limit):
    """Wait until a call waits for its second attempt: that has its hold by then."""
    until(lambda: [row["kind"] for row in rows_of(rig, limit)] == ["hold", "charge", "hold"])


def sent_with(rig, limit):
    return [entry for entry in rig.origin.calls() if f'": {limit}' in entry["body"] or f'":{limit}' in entry["body"]]


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory):
    with tries.running(tmp_path_factory.mktemp("ends"), 3, FALLBACKS, kind=request.param) as found:
        yield found
        assert "handled as a fault" not in found.proxy.printed()
        assert "crashed" not in found.proxy.printed()


@pytest.mark.parametrize("way", ["h1", "h2"])
def test_a_client_that_leaves_in_the_wait_ends_it_at_once(rig, way):
    limit = 5101 if way == "h1" else 5102
    with asking(rig, way, limit, BUSY, PLAIN) as leave:
        waits(rig, limit)
        leave()
        until(lambda: len(rows_of(rig, limit)) == 4)

    hold, failed, again, end = rows_of(rig, limit)
    assert (failed["call"], failed["reason"], failed["failed"]) == (hold["call"], "failed", 1)
    assert (end["call"], end["kind"], end["usd"]) == (again["call"], "void", 0)
    assert len(sent_with(rig, limit)) == 1


@pytest.mark.parametrize("seconds", ["1", "1.2"])
def test_the_time_that_the_provider_asks_for_is_kept(rig, seconds):
    began = time.monotonic()
    found = tries.send(rig, "chat", busy(429, headers={"retry-after": seconds}), PLAIN)

    assert found.answer.status == 200
    assert time.monotonic() - began >= float(seconds)
    first, second = found.requests
    assert second["at"] - first["at"] >= float(seconds)


def test_a_longer_time_than_is_allowed_is_not_waited_for(rig):
    longer = busy(429, headers={"retry-after": "31"})
    found = tries.send(rig, "messages", longer)

    assert (found.answer.status, len(found.requests)) == (429, 1)
    assert found.answer.headers["retry-after"] == "31"


def test_a_provider_that_says_not_to_is_obeyed(rig):
    found = tries.send(rig, "messages", busy(503, headers={"x-should-retry": "false"}))

    assert (found.answer.status, len(found.requests)) == (503, 1)


@pytest.mark.parametrize("way", ["h1", "h2", "tunnel"])
def test_a_connection_that_cannot_be_opened_is_tried_again_until_somebody_listens(rig, way, tmp_path):
    """Each time for nothing: the hold passes on, and no earlier failure is taken for this one's."""
    port = processes.free_port()
    told = streams.CONFIG.format(origin=rig.origin.url, closed=port)
    told = told.replace(f'api.openai.com: "{rig.origin.url}"', f'api.openai.com: "http://127.0.0.1:{port}"', 1)
    told += "retry: {attempts: 10, base: 3s, max: 3s}\n"
    with processes.proxy(tmp_path, told) as proxy:
        late = streams.Rig(rig.origin, proxy, tmp_path)
        answers = []
        asked = threading.Thread(target=lambda: answers.append(tries.send(late, "chat", way=way, limit=77)))
        asked.start()
        until(lambda: proxy.rows("SELECT 1 FROM open_holds"))
        with socket.create_server(("127.0.0.1", port)) as listener:
            listener.settimeout(processes.PATIENCE_S)
            peer, _ = listener.accept()
            with peer:
                client.read_head(peer)
                body = json.dumps({"model": "chat-model", "usage": {"prompt_tokens": 3, "completion_tokens": 4}})
                reply = (
                    f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}"
                )
                peer.sendall(reply.encode())
                asked.join(processes.PATIENCE_S)

    (found,) = answers
    assert found.answer.status == 200
    (end,) = found.ends
    assert (end["kind"], end["usd"]) == ("charge", 3 * IN_NANO + 4 * streams.OUT_NANO)


@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_a_proxy_that_is_told_to_stop_gives_the_failed_reply(kind, tmp_path):
    with tries.running(tmp_path, 3, kind=kind) as rig, asking_aside(rig, 900, BUSY, PLAIN) as answers:
        waits(rig, 900)
        assert rig.proxy.stop(signal.SIGTERM) == 0
        (answer,) = until(lambda: answers)

        assert (answer.status, answer.body.decode()) == (503, BUSY["body"])
        hold, failed, again, end = rows_of(rig, 900)
        assert (failed["call"], end["call"], end["kind"]) == (hold["call"], again["call"], "void")
        assert answer.headers["x-lockpin-call"] == hold["call"]
        assert len(sent_with(rig, 900)) == 1


def test_a_proxy_that_is_told_to_stop_charges_nothing_for_a_connection_that_was_never_opened(tmp_path):
    slow = "retry: {attempts: 10, base: 20s, max: 20s}\n"
    port = processes.free_port()
    told = streams.CONFIG.format(origin=f"http://127.0.0.1:{port}", closed=port) + slow
    body = streams.ask("chat", 902) | {"stream": False}
    with processes.proxy(tmp_path, told) as proxy:
        answers = []
        asked = threading.Thread(target=lambda: answers.append(client.call(proxy, streams.PATHS["chat"], body)))
        asked.start()
        until(lambda: proxy.rows("SELECT 1 FROM open_holds"))
        until(lambda: "error establishing server connection" in proxy.printed())
        assert proxy.stop(signal.SIGTERM) == 0
        asked.join(processes.PATIENCE_S)

        assert [answer.status for answer in answers] == [502]
        hold, end = proxy.rows("SELECT * FROM rows WHERE kind IN ('hold', 'charge', 'void') ORDER BY id")
        assert (end["call"], end["kind"], end["reason"]) == (hold["call"], "void", "not_sent")


@contextlib.contextmanager
def asking_aside(rig, limit, *told):
    """Have a call under way in a thread; give where its answer comes."""
    answers = []
    body = streams.ask("chat", limit) | {"stream": False}

    def ask():
        with contextlib.suppress(OSError, client.http.client.HTTPException):
            answers.append(client.call(rig.proxy, streams.PATHS["chat"], body, **tries.turns(*told)))

    asked = threading.Thread(target=ask)
    asked.start()
    try:
        yield answers
    finally:
        asked.join(processes.PATIENCE_S)


@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_a_proxy_that_is_killed_in_the_wait_leaves_a_hold_that_the_next_one_charges(kind, tmp_path):
    with tries.running(tmp_path, 3, kind=kind) as rig:
        with asking_aside(rig, 901, BUSY, PLAIN):
            waits(rig, 901)
            rig.proxy.stop(signal.SIGKILL)
        config = (rig.proxy.home / "lockpin.yaml").read_text()
        with processes.proxy(tmp_path, config, kind=kind, home=rig.proxy.home) as next_one:
            until(lambda: not next_one.rows("SELECT 1 FROM open_holds"))
            hold, failed, again, end = rows_of(rig, 901)

    assert (failed["call"], failed["reason"]) == (hold["call"], "failed")
    assert (end["call"], end["reason"], end["usd"]) == (again["call"], "lockpin_stopped", again["usd"])
    assert len(sent_with(rig, 901)) == 1
    assert verify(rig.proxy.ledger).wrong is None


@pytest.mark.parametrize("way", ["h1", "tunnel"])
def test_the_head_of_a_stream_comes_with_its_first_byte_and_not_with_its_last(rig, way):
    """It is kept back no longer than needed: the client has the first piece while the second is not yet made."""
    gate = rig.new_path()
    told = {"x-origin": tries.turns(DROP, tries.whole("chat", gate=str(gate)))["x-origin"]}
    asked = streams.ask("chat", 950) | {"extra_headers": told}
    with (
        sdks.openai_client(rig.proxy, "base_url" if way == "h1" else "connect") as sdk,
        sdk.chat.completions.with_streaming_response.create(**asked) as reply,
    ):
        first = next(reply.http_response.iter_raw())
        gate.touch()
        assert first.startswith(b"data: ")


@pytest.mark.parametrize("way", sdks.WAYS)
@pytest.mark.parametrize("failures", [[busy(529), DROP], [busy(429), busy(500)]], ids=["dropped", "busy"])
def test_the_real_sdks_see_one_reply(rig, way, failures):
    """Without a retry of their own: what they raise or give is the last attempt's."""
    limit = 6000 + len(rig.origin.calls())
    order = tries.turns(*failures, PLAIN)
    with sdks.openai_client(rig.proxy, way) as sdk:
        reply = sdk.chat.completions.create(**streams.ask("chat", limit) | {"stream": False}, extra_headers=order)
    assert (reply.usage.completion_tokens, reply.choices[0].message.content) == (limit, "ok")

    order = tries.turns(*failures, tries.whole("messages"))
    with sdks.anthropic_client(rig.proxy, way) as sdk:
        events = list(sdk.messages.create(**streams.ask("messages", limit), extra_headers=order))
    assert events[0].type == "message_start"
    assert [event.type for event in events].count("message_start") == 1
    assert events[-1].type == "message_stop"

    order = tries.turns(EMPTY, EMPTY, tries.whole("chat"))
    with sdks.openai_client(rig.proxy, way) as sdk:
        chunks = list(sdk.chat.completions.create(**streams.ask("chat", limit), extra_headers=order))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "abc" * 3


def test_at_the_end_nothing_is_open_and_the_books_agree(rig):
    until(lambda: not rig.proxy.rows("SELECT * FROM open_holds"))

    assert verify(rig.proxy.ledger).wrong is None

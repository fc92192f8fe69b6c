"""What a hostile reader tried: each broke the cap, leaked a hold or hung a client once. Real processes."""

import gzip
import json
import re
import socket
import ssl
import threading

import client
import h2.config
import h2.connection
import processes
import pytest
from processes import until

PATH = "/anthropic/v1/messages"
BODY = {"model": "claude-sonnet-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}
USAGE = {"input_tokens": 10, "output_tokens": 100}
REPLY = {"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-5-5", "stop_reason": "end_turn",
         "content": [{"type": "text", "text": "ok"}], "usage": USAGE}  # fmt: skip
CHARGED = 10 * 2000 + 100 * 10000  # nanodollars, at $2 and $10 a million
CONFIG = """
upstreams: {{api.anthropic.com: "{origin}", api.openai.com: "{origin}"}}
allow_uncapped: ["api.anthropic.com/*"]
daily_usd: null
budgets:
  - {{name: opus, scope: machine, window: day, limit_usd: 0.000001, action: enforce, models: ["claude-opus-*"]}}
"""


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("breaks")
    home = processes.make_home(folder)
    with (
        processes.origin(folder, ledger=home / ".local/share/lockpin/ledger.sqlite3") as origin,
        processes.proxy(folder, CONFIG.format(origin=origin.url), kind=request.param, home=home) as proxy,
    ):
        yield origin, proxy
        assert "Traceback" not in proxy.printed()
        assert "has crashed" not in proxy.printed()


def ask(rig, body=None, path=PATH, **headers):
    return client.call(rig[1], path, BODY | (body or {}), **headers)


def last_resolution(rig):
    until(lambda: not rig[1].rows("SELECT 1 FROM open_holds"))
    return rig[1].rows("SELECT * FROM rows WHERE kind IN ('charge', 'void') ORDER BY id DESC LIMIT 1")[0]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"model": "claude-opus-5"}, "budget_exceeded"),
        ({"model": "claude-opus-99"}, "unknown_model"),
        ({"model": "claude-opus-5", "container": "x"}, "budget_exceeded"),
        ({"model": "claude-opus-5", "tools": [{"type": "web_search_20260318", "name": "w"}]}, "budget_exceeded"),
        ({"model": "claude-opus-5", "tools": [{"type": "brand_new_20270101", "name": "x"}]}, "unpriced_tool"),
    ],
)
def test_a_budget_of_some_models_is_not_passed_by_what_cannot_be_priced(rig, body, code):
    before = len(paid(rig[0]))

    assert ask(rig, body).code == code
    assert len(paid(rig[0])) == before


def paid(origin):
    """List the calls that cost something: a prompt that does not fit is counted by the provider, for nothing."""
    return [call for call in origin.calls() if not call["path"].endswith("/count_tokens")]


def test_a_model_outside_the_filter_passes_unpriced(rig):
    assert ask(rig, {"model": "other-model"}).headers["x-lockpin-uncapped"] == "unpriced"


TRICKS = [
    "/v1/messages;x",
    "/v1/messages%3bx",
    "/v1/messages%00",
    "/v1/messages%20",
    "/v1%5cmessages",
    "/v1/%252e/messages",
]


@pytest.mark.parametrize("path", TRICKS)
def test_a_glob_does_not_cover_a_path_that_hides_what_it_is(rig, path):
    before = len(rig[0].calls())

    assert ask(rig, path="/anthropic" + path).code == "uncapped_call"
    assert len(rig[0].calls()) == before


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_a_glob_does_not_cover_a_metered_path_by_another_method(rig, method):
    before = len(rig[0].calls())

    answer = client.call(rig[1], PATH, BODY, method=method)

    assert (answer.status, answer.code) == (403, "uncapped_call")
    assert len(rig[0].calls()) == before


def test_a_glob_does_not_cover_an_upgrade_of_a_metered_path(rig):
    before = len(rig[0].calls())

    assert ask(rig, connection="upgrade", upgrade="foo").code == "uncapped_call"
    assert len(rig[0].calls()) == before


def test_a_glob_covers_what_it_names(rig):
    assert ask(rig, path="/anthropic/v1/other").headers["x-lockpin-uncapped"] == "allow_uncapped"


@pytest.mark.parametrize("interim", ["103 Early Hints", "100 Continue", "102 Processing"])
def test_an_interim_reply_is_not_the_reply(rig, interim):
    order = {"before": f"HTTP/1.1 {interim}\r\nLink: </x>\r\n\r\n", "body": json.dumps(REPLY)}

    answer = ask(rig, x_origin=json.dumps(order))

    assert (answer.status, answer.json["id"]) == (200, "m")
    assert last_resolution(rig)["usd"] == CHARGED


def test_a_reply_with_trailers_is_whole_and_charged(rig):
    answer = ask(rig, x_origin=json.dumps({"body": json.dumps(REPLY), "chunk": 0, "trailer": "X-T: y"}))

    assert (answer.status, answer.json["id"]) == (200, "m")
    assert last_resolution(rig)["usd"] == CHARGED


def test_a_request_with_trailers_is_answered(rig):
    content = json.dumps(BODY).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{rig[1].port}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", rig[1].port), 10) as raw:
        raw.sendall(head + b"%x\r\n%s\r\n0\r\nX-Trailer: y\r\n\r\n" % (len(content), content))
        reply = client.read_all(raw)

    assert reply.startswith(b"HTTP/1.1 200")
    assert "x-trailer" not in rig[0].calls()[-1]["headers"]
    assert rig[0].calls()[-1]["body"].encode() == content


@pytest.mark.parametrize("tier", ["\ud800", "\x00", "x" * 5000, "é"])
def test_a_reply_whose_words_cannot_be_stored_is_charged_all_the_same(rig, tier):
    reply = REPLY | {"usage": USAGE | {"service_tier": tier, "speed": tier, "inference_geo": tier}, "model": tier}

    answer = ask(rig, x_origin=json.dumps({"body": json.dumps(reply)}))

    assert answer.status == 200
    assert last_resolution(rig)["kind"] == "charge"
    assert last_resolution(rig)["usd"] >= CHARGED


def test_a_request_whose_words_cannot_be_stored_is_a_400(rig):
    assert ask(rig, {"service_tier": "\ud800"}).code == "bad_request"
    assert ask(rig, {"model": "\ud800"}).code == "bad_request"


def test_a_large_compressed_reply_is_charged_by_its_usage(rig):
    reply = REPLY | {"content": [{"type": "text", "text": "x" * (20 << 20)}]}
    packed = rig[1].home / "large.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(reply).encode(), 1))

    answer = ask(rig, x_origin=json.dumps({"file": str(packed), "encoding": "gzip"}))

    assert answer.status == 200
    assert last_resolution(rig)["usd"] == CHARGED


def h2_connection(rig, count):
    """Ask `count` calls at once on one HTTP/2 connection; give socket and connection."""
    proxy = rig[1]
    raw = client.tunnel(proxy, "api.anthropic.com", 443)
    wire = client.tls(raw, proxy, "api.anthropic.com", ["h2"])
    connection = h2.connection.H2Connection(h2.config.H2Configuration())
    connection.initiate_connection()
    body = json.dumps(BODY).encode()
    gate = rig[1].home / f"gate-{count}-{wire.fileno()}"
    order = json.dumps({"body": json.dumps(REPLY), "head_gate": str(gate)})
    for index in range(count):
        head = [
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", "api.anthropic.com"),
            (":path", "/v1/messages"),
        ]
        connection.send_headers(1 + 2 * index, [*head, ("x-origin", order)])
        connection.send_data(1 + 2 * index, body, end_stream=True)
    wire.sendall(connection.data_to_send())
    return wire, connection, gate


def test_twenty_calls_run_at_once_on_one_http2_connection(rig):
    before = len(rig[0].calls())
    wire, _, gate = h2_connection(rig, 20)
    with wire:
        until(lambda: len(rig[0].calls()) == before + 20)
        gate.touch()
        until(lambda: not rig[1].rows("SELECT 1 FROM open_holds"))


def test_calls_whose_client_has_gone_are_settled(rig):
    wire, connection, gate = h2_connection(rig, 10)
    with wire:
        until(lambda: len(rig[1].rows("SELECT 1 FROM open_holds")) == 10)
        for index in range(10):
            connection.reset_stream(1 + 2 * index)
        wire.sendall(connection.data_to_send())
        until(lambda: not rig[1].rows("SELECT 1 FROM open_holds"))
    gate.touch()


@pytest.mark.parametrize("host", ["0.0.0.0", "127.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]", "localhost."])
def test_no_spelling_of_ourselves_makes_a_loop(rig, host):
    port = rig[1].port
    with socket.create_connection(("127.0.0.1", port), 10) as raw:
        raw.sendall(f"GET http://{host}:{port}/x HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        reply = client.read_all(raw)

    assert re.match(rb"HTTP/1\.1 (404|502|400)", reply)
    assert client.call(rig[1], "/lockpin/healthz", method="GET").status == 200


def test_foreign_credentials_on_a_foreign_connect_are_not_our_business(rig):
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    with socket.create_connection(("127.0.0.1", rig[1].port), 10) as raw:
        raw.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nProxy-Authorization: Bearer x\r\n\r\n".encode())
        assert b" 200 " in raw.recv(4096)
    server.close()


def test_a_proxy_reached_over_tls_still_tunnels_what_is_nobodys(rig):
    server = socket.create_server(("127.0.0.1", 0))

    def echo():
        peer, _ = server.accept()
        with peer:
            peer.sendall(peer.recv(100)[::-1])

    thread = threading.Thread(target=echo)
    thread.start()
    context = ssl.create_default_context(cafile=str(rig[1].ca))
    context.check_hostname = False
    raw = socket.create_connection(("127.0.0.1", rig[1].port), 10)
    with context.wrap_socket(raw, server_hostname="proxy.test") as outer:
        outer.sendall(f"CONNECT 127.0.0.1:{server.getsockname()[1]} HTTP/1.1\r\n\r\n".encode())
        assert b" 200 " in outer.recv(4096)
        outer.sendall(b"GET is no HTTP here\n")  # a line of it is read: it might have named a provider
        assert outer.recv(100) == b"\nereh PTTH on si TEG"
    thread.join()
    server.close()

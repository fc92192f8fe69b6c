"""WebSocket handshakes: on a metered path 426 at once, so that a client falls back to HTTP; the connection stays."""

import json
import socket

import client
import processes
import pytest
from processes import until

CONFIG = """
upstreams: {{api.openai.com: "{origin}", api.anthropic.com: "{origin}"}}
pricing:
  chat-model: {{input_per_mtok: 1, output_per_mtok: 5, max_output_tokens: 1000, context_tokens: 200000}}
"""
NO_LIMIT = "daily_usd: null\n"
CHAT = {"model": "chat-model", "messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 7}
WAYS = ("base_url", "connect")
HANDSHAKE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"
METERED = {
    "/openai/v1/responses": "api.openai.com",
    "/openai/v1/chat/completions": "api.openai.com",
    "/openai//v1/%72esponses?x=1": "api.openai.com",
    "/anthropic/v1/messages": "api.anthropic.com",
}
UNMETERED = ("/openai/v1/realtime?model=gpt-realtime", "/anthropic/v1/anything")


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sockets")
    with (
        processes.origin(folder) as origin,
        processes.proxy(folder, CONFIG.format(origin=origin.url), kind=request.param) as proxy,
    ):
        yield origin, proxy


@pytest.fixture(scope="module")
def unlimited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unlimited")
    with (
        processes.origin(folder) as origin,
        processes.proxy(folder, CONFIG.format(origin=origin.url) + NO_LIMIT, kind="up") as proxy,
    ):
        yield origin, proxy


def opened(proxy, way, host):
    """Open a connection to a provider's host."""
    if way == "base_url":
        return socket.create_connection(("127.0.0.1", proxy.port), 10)
    return client.tls(client.tunnel(proxy, host, 443), proxy, host)


def request_of(proxy, way, host, path, *, method="GET", body=b"", extra=""):
    target, named = (path, f"127.0.0.1:{proxy.port}") if way == "base_url" else ("/" + path.split("/", 2)[2], host)
    head = f"{method} {target} HTTP/1.1\r\nHost: {named}\r\n{extra}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def parsed(reply):
    head, _, body = reply.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), head.lower(), json.loads(body)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", METERED)
def test_a_handshake_on_a_metered_path_is_answered_426_at_once(rig, way, path):
    origin, proxy = rig
    before = len(origin.calls())
    host = METERED[path]
    with opened(proxy, way, host) as connection:
        connection.sendall(request_of(proxy, way, host, path, extra=HANDSHAKE))
        status, head, body = parsed(client.read_all(connection))

    assert status == 426
    assert b"x-should-retry: false" in head and b"content-type: application/json" in head
    assert body["lockpin"]["code"] == "uncapped_call"
    assert body["error"]["message"].startswith("lockpin: a WebSocket cannot be metered; the same calls pass over HTTP")
    assert (body.get("type") == "error") is (host == "api.anthropic.com")  # in that provider's shape
    assert len(origin.calls()) == before


@pytest.mark.parametrize("way", WAYS)
def test_the_same_clients_next_call_on_that_connection_works(rig, way):
    _, proxy = rig
    host, body = "api.openai.com", json.dumps(CHAT).encode()
    with opened(proxy, way, host) as connection:
        connection.sendall(request_of(proxy, way, host, "/openai/v1/responses", extra=HANDSHAKE))
        assert parsed(client.read_all(connection))[0] == 426
        path = "/openai/v1/chat/completions"
        connection.sendall(request_of(proxy, way, host, path, method="POST", body=body))
        status, head, _ = parsed(client.read_all(connection))

    assert status == 200
    assert b"x-lockpin-cost-usd" in head


@pytest.mark.parametrize("extra", ["Upgrade: websocket\r\n", "Connection: Upgrade\r\nUpgrade: h2c, WebSocket\r\n"])
def test_half_a_handshake_is_one_too(rig, extra):
    origin, proxy = rig
    before = len(origin.calls())
    with opened(proxy, "base_url", "api.openai.com") as connection:
        connection.sendall(request_of(proxy, "base_url", "api.openai.com", "/openai/v1/responses", extra=extra))
        assert parsed(client.read_all(connection))[0] == 426

    assert len(origin.calls()) == before


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", UNMETERED)
def test_a_handshake_elsewhere_is_an_unknown_call(rig, way, path):
    origin, proxy = rig
    before, host = len(origin.calls()), "api.openai.com" if "openai" in path else "api.anthropic.com"
    with opened(proxy, way, host) as connection:
        connection.sendall(request_of(proxy, way, host, path, extra=HANDSHAKE))
        status, _, body = parsed(client.read_all(connection))

    assert (status, body["lockpin"]["code"]) == (403, "uncapped_call")
    assert "an upgrade of the connection on" in body["error"]["message"]
    assert len(origin.calls()) == before


def test_without_a_limit_a_handshake_elsewhere_passes_and_one_on_a_metered_path_does_not(unlimited):
    """What is metered stays metered: its calls would all be missing in the books."""
    origin, proxy = unlimited
    for path, expected in (("/openai/v1/realtime", 200), ("/openai/v1/responses", 426)):
        with opened(proxy, "base_url", "api.openai.com") as connection:
            connection.sendall(request_of(proxy, "base_url", "api.openai.com", path, extra=HANDSHAKE))
            assert int(client.read_all(connection).split(b" ")[1]) == expected

    assert [one["path"] for one in origin.calls()] == ["/v1/realtime"]
    query = "SELECT code FROM rows WHERE kind IN ('uncapped', 'refusal') ORDER BY id"
    until(lambda: [row["code"] for row in proxy.rows(query)] == ["no_limit"])  # a handshake is no call

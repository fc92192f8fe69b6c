"""The gate against real processes: whatever is tried, the origin's log shows no call without an open hold.

The origin is reached under the providers' real names, resolved to loopback, over TLS: no `upstreams` helps the gate.
"""

import contextlib
import json
import re
import select
import socket
import ssl
import threading
import time

import client
import mutants
import processes
import pytest

BODY = {"model": "claude-sonnet-5-5", "messages": [{"role": "user", "content": "hi"}]}


# With both locks, under both ways of starting; then with one lock taken out: what the other guards alone.
RIGS = {
    "mitmdump": ("mitmdump", None),
    "up": ("up", None),
    "without the permit": ("mitmdump", mutants.without_permit),
    "without deny-first": ("mitmdump", mutants.without_deny_first),
}


@pytest.fixture(scope="module", params=RIGS)
def rig(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("gate")
    kind, mutate = RIGS[request.param]
    addons = mutants.copy(folder / "copy") if mutate else None
    if mutate:
        mutate(addons)
    cert, ca = processes.leaf(folder, ["api.anthropic.com", "api.openai.com", "front.alias.test"])
    home = processes.make_home(folder)
    with (
        processes.origin(folder, cert=cert, ledger=home / ".local/share/lockpin/ledger.sqlite3") as origin,
        processes.proxy(
            folder,
            kind=kind,
            home=home,
            addons=addons,
            arguments=("--set", f"ssl_verify_upstream_trusted_ca={ca}"),
            environment={"RIG_RESOLVER": "1"},
        ) as proxy,
    ):
        yield origin, proxy


def request_bytes(path="/v1/messages", *, limit=7, host="api.anthropic.com", method="POST", extra="", body=None):
    content = json.dumps(BODY | {"max_tokens": limit} if body is None else body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n{extra}\r\n".encode() + content


def exchange(rig, data, *, host="api.anthropic.com", sni="api.anthropic.com", alpn=None):
    origin, proxy = rig
    with client.tls(client.tunnel(proxy, host, origin.port), proxy, sni, alpn) as connection:
        connection.sendall(data)
        return client.read_all(connection)


def uncapped(origin):
    """List what reached the origin without an open hold for its own output limit."""
    return [entry for entry in origin.calls() if entry["method"] not in ("GET", "HEAD") and not is_held(entry)]


def is_held(entry):
    found = re.search(r'"max_tokens": (\d+)', entry.get("body", ""))
    return found is not None and int(found[1]) in [hold[1] for hold in entry["open_holds"]]


def test_a_capped_call_arrives_and_its_hold_was_on_disk_before(rig):
    origin, _ = rig

    reply = exchange(rig, request_bytes(limit=4711))

    assert reply.startswith(b"HTTP/1.1 200")
    (seen,) = [entry for entry in origin.calls() if '"max_tokens": 4711' in entry["body"]]
    assert [hold[1] for hold in seen["open_holds"]] == [4711]


def test_a_first_packet_that_is_no_http_verb_makes_no_tunnel(rig):
    origin, proxy = rig
    before = len(origin.calls())

    with client.tls(client.tunnel(proxy, "api.anthropic.com", origin.port), proxy, "api.anthropic.com") as connection:
        data = request_bytes(limit=11)
        connection.sendall(data[:2])
        time.sleep(0.3)  # the trick needs two packets; nothing else is waited for
        connection.sendall(data[2:])
        client.read_all(connection)

    assert uncapped(origin) == []
    assert len(origin.calls()) <= before + 1


NO_HTTP = (b"\x00\x01\x02binary", b"SSH-2.0-x\r\n", b"\x16\x03\x01 no hello", b"hello\n")


def test_what_is_not_http_on_a_providers_host_reaches_nobody(rig):
    """The witness takes any connection: of an origin that wants TLS nobody would learn what had come."""
    _, proxy = rig
    with socket.create_server(("127.0.0.1", 0)) as witness, contextlib.ExitStack() as stack:
        port = witness.getsockname()[1]
        opened = [stack.enter_context(client.tunnel(proxy, "api.anthropic.com", port)) for _ in NO_HTTP]
        for raw, first in zip(opened, NO_HTTP, strict=True):
            raw.sendall(first)

        came, _, _ = select.select([witness], [], [], 3)
        for raw in opened:
            raw.shutdown(socket.SHUT_WR)
        replies = [client.read_all(raw) for raw in opened]

    assert came == []
    assert [reply for reply in replies if reply.startswith(b"HTTP/1.1 200")] == []


def http2(rig, method, path, body):
    """Send one HTTP/2 request without a content-length and give what came back, raw."""
    import h2.config
    import h2.connection

    origin, proxy = rig
    with client.tls(client.tunnel(proxy, "api.anthropic.com", origin.port), proxy, "api.anthropic.com", ["h2"]) as wire:
        assert wire.selected_alpn_protocol() == "h2"
        connection = h2.connection.H2Connection(h2.config.H2Configuration())
        connection.initiate_connection()
        head = [(":method", method), (":scheme", "https"), (":authority", "api.anthropic.com"), (":path", path)]
        connection.send_headers(1, head)
        connection.send_data(1, body, end_stream=True)
        wire.sendall(connection.data_to_send())
        return client.read_all(wire, 1)


def test_http2_is_metered_like_http1(rig):
    origin, _ = rig

    http2(rig, "POST", "/v1/messages", json.dumps(BODY | {"max_tokens": 4712}).encode())

    assert [entry["path"] for entry in origin.calls() if '"max_tokens": 4712' in entry.get("body", "")] == [
        "/v1/messages"
    ]
    assert uncapped(origin) == []


def test_a_free_http2_request_cannot_carry_a_billed_one_in_its_body(rig):
    """Without a length, a server that speaks HTTP/1 would read the body as the next request on the connection."""
    origin, _ = rig

    http2(rig, "GET", "/v1/models", request_bytes(limit=4721))

    assert [entry["method"] for entry in origin.calls() if "4721" in entry.get("body", "")] == ["GET"]
    assert uncapped(origin) == []


def test_http_1_0_is_metered(rig):
    origin, _ = rig

    exchange(rig, request_bytes(limit=4713).replace(b"HTTP/1.1", b"HTTP/1.0"))

    assert uncapped(origin) == []


@pytest.mark.parametrize(
    "path",
    ["/v1/realtime/client_secrets", "/v1/complete", "/v1/messages/batches/x", "/v2/messages", "/v1/messages/x", "/"],
)
def test_a03_a15_a16_an_unknown_post_is_refused(rig, path):
    origin, _ = rig
    before = len(origin.calls())

    reply = exchange(rig, request_bytes(path))

    assert reply.startswith(b"HTTP/1.1 403")
    assert b"uncapped_call" in reply
    assert len(origin.calls()) == before


@pytest.mark.parametrize(
    "path",
    [
        "//v1/messages", "/v1//messages", "/v1/./messages", "/v1/x/../messages", "/v1/%6dessages", "/V1/Messages",
        "/v1/messages/", "/v1/messages?beta=true", "/%76%31/messages", "/v1/messages%2f", "/v1%2fmessages",
        "/v1/messages/count_tokens/..", "/v1/messages/count_tokens%2f%2e%2e", "/v1/v1/messages",
    ],
)  # fmt: skip
def test_a_spelling_of_a_billed_path_is_billed(rig, path):
    origin, _ = rig

    exchange(rig, request_bytes(path, limit=4714))

    assert uncapped(origin) == []


@pytest.mark.parametrize(
    "path", ["/v1/messages;x", "/v1/messages%3bx", "/v1/messages%00", "/v1/mess%5cages", "/%2576%31/messages"]
)
def test_a_path_with_residue_is_refused(rig, path):
    origin, _ = rig
    before = len(origin.calls())

    reply = exchange(rig, request_bytes(path))

    assert reply.startswith(b"HTTP/1.1 403")
    assert len(origin.calls()) == before


def test_an_absolute_form_target_inside_the_tunnel_is_metered_or_refused(rig):
    origin, _ = rig

    exchange(rig, request_bytes("https://api.anthropic.com/v1/messages", limit=4715))
    exchange(rig, request_bytes("https://front.alias.test/v1/messages", limit=4716))

    assert uncapped(origin) == []


def test_a_host_header_that_is_not_the_destination_is_refused(rig):
    origin, _ = rig
    before = len(origin.calls())

    reply = exchange(rig, request_bytes(host="front.alias.test"))

    assert reply.startswith(b"HTTP/1.1 400")
    assert b"bad_request" in reply
    assert len(origin.calls()) == before


def test_a_fronted_host_over_another_name_does_not_pass(rig):
    """The connection goes to an alias of the provider; only the inner Host header names it."""
    origin, proxy = rig
    before = len(origin.calls())

    raw = socket.create_connection(("127.0.0.1", proxy.port), 10)
    with raw:
        raw.sendall(request_bytes(f"http://front.alias.test:{origin.port}/v1/messages"))
        reply = client.read_all(raw)

    assert reply.startswith(b"HTTP/1.1 400")
    assert len(origin.calls()) == before


def test_a_trailing_dot_host_with_a_foreign_sni_is_metered(rig):
    origin, _ = rig

    reply = exchange(rig, request_bytes(limit=4717), host="api.anthropic.com.", sni="front.alias.test")
    upper = exchange(rig, request_bytes(limit=4718), host="API.Anthropic.COM", sni="front.alias.test")

    assert (reply[9:12], upper[9:12]) in [(b"200", b"200"), (b"502", b"502")]
    assert uncapped(origin) == []


@pytest.mark.parametrize("sni", ["api.anthropic.com", "API.OpenAI.com.", "api.openai.com"])
def test_a_foreign_host_with_a_providers_sni_is_not_tunnelled(rig, sni):
    origin, _ = rig
    before = len(origin.calls())

    with pytest.raises((ssl.SSLError, ConnectionError)):
        exchange(rig, request_bytes(limit=4719), host="front.alias.test", sni=sni)

    assert len(origin.calls()) == before


def test_a_server_that_speaks_first_is_heard(rig):
    _, proxy = rig
    server = socket.create_server(("127.0.0.1", 0))

    def greet():
        peer, _ = server.accept()
        with peer:
            peer.sendall(b"220 ready\r\n")
            peer.sendall(peer.recv(100).upper())

    thread = threading.Thread(target=greet)
    thread.start()
    with client.tunnel(proxy, "127.0.0.1", server.getsockname()[1]) as raw:
        assert raw.recv(100) == b"220 ready\r\n"
        raw.sendall(b"quit")
        assert raw.recv(100) == b"QUIT"
    thread.join()
    server.close()


def test_a_split_client_hello_is_judged_whole(rig):
    origin, proxy = rig
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    session = context.wrap_bio(incoming, outgoing, server_hostname="api.anthropic.com")
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    hello = outgoing.read()
    before = origin.log.read_text()
    with client.tunnel(proxy, "front.alias.test", origin.port) as raw:
        for index in range(0, len(hello), 40):
            raw.sendall(hello[index : index + 40])
            time.sleep(0.01)
        assert client.read_all(raw) == b""  # closed: neither a tunnel nor a server of ours

    assert origin.log.read_text() == before


def test_another_host_is_tunnelled_unseen(rig):
    """A host that is nobody's: the client speaks with it byte for byte."""
    _, proxy = rig
    server = socket.create_server(("127.0.0.1", 0))

    def echo():
        peer, _ = server.accept()
        with peer:
            peer.sendall(peer.recv(100)[::-1])

    thread = threading.Thread(target=echo)
    thread.start()
    with client.tunnel(proxy, "127.0.0.1", server.getsockname()[1]) as raw:
        raw.sendall(b"\x00\x01 no protocol at all")
        assert raw.recv(100) == b"lla ta locotorp on \x01\x00"
    thread.join()
    server.close()


def test_plain_http_to_another_host_passes_untouched_but_for_our_headers(rig):
    _, proxy = rig
    server = socket.create_server(("127.0.0.1", 0))
    seen = []

    def answer():
        peer, _ = server.accept()
        with peer:
            seen.append(peer.recv(65536))
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    thread = threading.Thread(target=answer)
    thread.start()
    with socket.create_connection(("127.0.0.1", proxy.port), 10) as raw:
        port = server.getsockname()[1]
        head = f"POST http://localhost:{port}/x HTTP/1.1\r\nHost: localhost:{port}\r\nX-Lockpin-Task: t\r\n"
        raw.sendall(f"{head}Proxy-Authorization: Basic dDpw\r\nContent-Length: 3\r\n\r\nabc".encode())
        reply = client.read_all(raw)
    thread.join()
    server.close()

    assert reply.startswith(b"HTTP/1.1 200")
    assert b"POST /x HTTP/1.1" in seen[0]
    assert b"lockpin" not in seen[0].lower()
    assert b"proxy-authorization" not in seen[0].lower()


def test_a_name_that_leads_back_to_the_proxy_makes_no_loop(rig):
    _, proxy = rig

    with socket.create_connection(("127.0.0.1", proxy.port), 10) as raw:
        raw.sendall(f"GET /x HTTP/1.1\r\nHost: me.alias.test:{proxy.port}\r\n\r\n".encode())
        reply = client.read_all(raw)

    assert reply.startswith(b"HTTP/1.1 502")
    assert b"the proxy itself" in reply


def test_method_overrides_and_upgrades_are_refused(rig):
    origin, _ = rig
    before = len(origin.calls())

    override = exchange(rig, request_bytes("/v1/models", method="GET", extra="X-HTTP-Method-Override: POST\r\n"))
    upgrade = exchange(
        rig,
        b"GET /v1/responses HTTP/1.1\r\nHost: api.anthropic.com\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    )

    assert override.startswith(b"HTTP/1.1 400")
    assert upgrade.startswith(b"HTTP/1.1 403")
    assert len(origin.calls()) == before


@pytest.mark.parametrize(
    "query", ["$httpMethod=POST", "a=b&%24httpmethod=POST", "$HTTPMETHOD", "%2524a&$httpMethod=#x"]
)
def test_a_method_override_in_the_query_is_refused(rig, query):
    origin, _ = rig
    before = len(origin.calls())

    reply = exchange(rig, request_bytes(f"/v1/models?{query}", method="GET"))

    assert reply.startswith(b"HTTP/1.1 400")
    assert b"query parameter $" in reply
    assert len(origin.calls()) == before


def test_smuggling_shapes_send_nothing_uncapped(rig):
    origin, _ = rig
    inner = request_bytes(limit=4720)
    shapes = [
        b"POST /v1/models HTTP/1.1\r\nHost: api.anthropic.com\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nHost: api.anthropic.com\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"GET /v1/models HTTP/1.1\r\nHost: api.anthropic.com\r\nContent-Length: 0\r\n\r\n",
    ]
    for shape in shapes:
        exchange(rig, shape + inner)

    assert uncapped(origin) == []


def test_a_path_without_a_wire_is_never_a_tunnel(rig):
    origin, proxy = rig
    hosts = {
        "generativelanguage.googleapis.com": "/v1beta/auth_tokens",
        "openrouter.ai": "/api/v1/rerank",
        "bedrock-runtime.eu-west-1.amazonaws.com": "/model/x/invoke-with-bidirectional-stream",
        "europe-west1-aiplatform.googleapis.com": "/v1/projects/p/locations/l/publishers/google/models/m:predict",
        "chatgpt.com": "/backend-api/codex/images/generations",
        "my-resource.openai.azure.com": "/openai/v1/videos",
    }
    for host, path in hosts.items():
        with client.tls(client.tunnel(proxy, host, origin.port), proxy, host) as connection:
            connection.sendall(request_bytes(path, host=host))
            assert client.read_all(connection).startswith(b"HTTP/1.1 403")


def test_health_answers_only_at_our_own_port(rig):
    _, proxy = rig

    answer = client.call(proxy, "/lockpin/healthz", method="GET")

    assert answer.status == 200
    assert answer.json["status"] == "ok"
    assert answer.json["faults"] == []

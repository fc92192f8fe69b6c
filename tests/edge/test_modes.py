"""Modes reverse, upstream and socks5: metered like any, and no way round the gate in any of them.

The origin is reached under the providers' real names, resolved to loopback, over TLS: its log, with the holds that
were open at that instant, is the witness.
"""

import contextlib
import itertools
import json
import re
import socket
import threading
from dataclasses import dataclass, field

import client
import h2.config
import h2.connection
import h2.events
import processes
import pytest
import tries
from lockpin_addons import options
from lockpin_addons.layers import UNREADABLE, plain_names
from mitmproxy.options import Options
from parents import Parent
from processes import until

OPENAI, ANTHROPIC = "api.openai.com", "api.anthropic.com"
CHAT = {"model": "gpt-5.4-mini", "messages": [{"role": "user", "content": "hi"}]}
MESSAGE = {"model": "claude-sonnet-5-5", "messages": [{"role": "user", "content": "hi"}]}


@dataclass
class Rig:
    origin: processes.Origin
    plain: processes.Origin  # nobody's host
    proxy: processes.Proxy
    parent: Parent
    ports: dict[str, int] = field(default_factory=dict)  # by mode; "foreign": reverse to nobody's host

    def at(self, mode):
        """Give the proxy as the tests' clients know it, on the port of a mode."""
        told = self.proxy
        return processes.Proxy(self.ports[mode], told.home, told.process, told.log, told.ledger)


CONFIG = """
daily_usd: 1000
retry: {attempts: 2, base: 1ms, max: 2ms}
fallbacks: {openai/gpt-5.4: [openai/gpt-5.4-mini]}
"""
MODES = ("reverse", "upstream", "socks5")


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    folder = tmp_path_factory.mktemp("modes")
    cert, ca = processes.leaf(folder, [OPENAI, ANTHROPIC, "front.alias.test"])
    home, parent = processes.make_home(folder), Parent()
    ledger = home / ".local/share/lockpin/ledger.sqlite3"
    with (
        processes.origin(folder, cert=cert, ledger=ledger) as origin,
        processes.origin(folder) as plain,
    ):
        ports = {mode: processes.free_port() for mode in (*MODES, "foreign")}
        modes = [
            "regular",
            f"reverse:https://{OPENAI}:{origin.port}@{ports['reverse']}",
            f"upstream:http://127.0.0.1:{parent.port}@127.0.0.1:{ports['upstream']}",
            f"socks5@{ports['socks5']}",
            f"reverse:http://127.0.0.1:{plain.port}@{ports['foreign']}",
        ]
        arguments = tuple(piece for mode in modes for piece in ("--mode", mode))
        with processes.proxy(
            folder, CONFIG, home=home, environment={"RIG_RESOLVER": "1"},
            arguments=(*arguments, "--set", f"ssl_verify_upstream_trusted_ca={ca}"),
        ) as proxy:  # fmt: skip
            until(lambda: " on http://" in proxy.printed())  # from then on it listens where it will
            yield Rig(origin, plain, proxy, parent, ports)
            assert "crashed" not in proxy.printed() and "fault of Lockpin" not in proxy.printed()
    parent.server.close()


_LIMITS = iter(range(5000, 9000))


def request_bytes(host, path="/v1/chat/completions", *, limit=None, body=CHAT, method="POST", extra="", target=None):
    """Write a request whose output limit is found again in the ledger."""
    name = "max_completion_tokens" if "model" in body and body["model"].startswith("gpt") else "max_tokens"
    content = json.dumps(body | {name: limit or next(_LIMITS)}).encode()
    head = f"{method} {target or path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{extra}"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


def uncapped(rig):
    """List the POSTs that reached the origin without an open hold for their output limit."""
    return [one for one in rig.origin.calls() if one["method"] not in ("GET", "HEAD") and not is_held(one)]


def is_held(entry):
    found = re.search(r'"max(?:_completion)?_tokens": (\d+)', entry.get("body", ""))
    return found is not None and int(found[1]) in [hold[1] for hold in entry["open_holds"]]


def socks(proxy, host, port, *, command=1, kind=3):
    """Ask a SOCKS5 proxy; give the socket and what it said."""
    raw = socket.create_connection(("127.0.0.1", proxy.port), 10)
    raw.sendall(b"\x05\x01\x00")
    assert raw.recv(2) == b"\x05\x00"
    if kind == 3:
        where = bytes([len(host.encode())]) + host.encode()
    else:
        where = socket.inet_pton(socket.AF_INET if kind == 1 else socket.AF_INET6, host)
    raw.sendall(bytes([5, command, 0, kind]) + where + port.to_bytes(2))
    said = b""
    while len(said) < 10 and (data := raw.recv(10 - len(said))):
        said += data
    return raw, said


def inside(rig, mode, host, port, *, kind=3):
    """Give a socket that the mode's proxy leads to a host."""
    if mode == "socks5":
        raw, said = socks(rig.at(mode), host, port, kind=kind)
        assert said[1] == 0
        return raw
    return client.tunnel(rig.at(mode), host, port)


def ask(rig, mode, data, *, host=OPENAI, sni=None, alpn=None, port=None, plain=False, kind=3):
    """Send raw bytes to a provider in a mode, over TLS unless told otherwise; give the reply."""
    proxy = rig.at(mode)
    if mode in ("reverse", "foreign"):
        raw = socket.create_connection(("127.0.0.1", proxy.port), 10)
    else:
        raw = inside(rig, mode, host, port or rig.origin.port, kind=kind)
    if plain:
        with raw:
            raw.sendall(data)
            return client.read_all(raw, 1)
    with raw, client.tls(raw, proxy, sni or host, alpn) as connection:
        connection.sendall(data)
        return client.read_all(connection)


@pytest.mark.parametrize("mode", MODES)
def test_a_call_is_held_and_charged_like_any(rig, mode):
    limit = next(_LIMITS)
    reply = ask(rig, mode, request_bytes(OPENAI, limit=limit, extra=f"X-Lockpin-Task: {mode}\r\n"))

    assert reply.startswith(b"HTTP/1.1 200")
    assert b"x-lockpin-cost-usd" in reply.lower()
    (seen,) = [one for one in rig.origin.calls() if str(limit) in one["body"]]
    assert seen["path"] == "/v1/chat/completions" and is_held(seen)
    assert seen["headers"]["host"] == f"{OPENAI}:{rig.origin.port}" if mode == "reverse" else OPENAI
    assert not [name for name in seen["headers"] if name.startswith(("x-lockpin", "proxy-"))]
    rows = rig.proxy.rows("SELECT kind, task, host FROM rows WHERE task = ? ORDER BY id", mode)
    assert [(row["kind"], row["host"]) for row in rows if row["kind"] == "hold"] == [("hold", OPENAI)]
    until(lambda: rig.proxy.rows("SELECT 1 FROM rows WHERE task = ? AND kind = 'charge'", mode))


@pytest.mark.parametrize("mode", MODES)
def test_a_call_that_fails_is_sent_again_on_the_same_way_and_then_to_another_model(rig, mode):
    limit, before = next(_LIMITS), len(rig.origin.calls())
    turns = tries.turns(tries.DROP, tries.busy(503), tries.PLAIN)
    reply = ask(rig, mode, request_bytes(OPENAI, limit=limit, body=CHAT | {"model": "gpt-5.4"},
                extra=f"X-Origin: {turns['x-origin']}\r\n"))  # fmt: skip

    assert reply.startswith(b"HTTP/1.1 200")
    assert b"x-lockpin-fallback: openai/gpt-5.4-mini" in reply.lower()
    seen = [one for one in rig.origin.calls()[before:] if str(limit) in one["body"]]
    assert [json.loads(one["body"])["model"] for one in seen] == ["gpt-5.4", "gpt-5.4", "gpt-5.4-mini"]
    assert all(map(is_held, seen))
    assert len({(one["path"], one["headers"]["host"]) for one in seen}) == 1


def test_a_plain_client_of_a_reverse_proxy_is_metered_too(rig):
    reply = ask(rig, "reverse", request_bytes("127.0.0.1"), plain=True)

    assert reply.startswith(b"HTTP/1.1 200")
    assert uncapped(rig) == []


@pytest.mark.parametrize("host", ["example.test", ANTHROPIC, f"{OPENAI}.", "127.0.0.1:1", "localhost"])
def test_in_reverse_mode_the_destination_alone_decides(rig, host):
    """The Host header is replaced by mitmproxy; what is metered is what the target will read."""
    reply = ask(rig, "reverse", request_bytes(host), plain=True)

    assert reply.startswith(b"HTTP/1.1 200")
    assert uncapped(rig) == []
    assert {one["headers"]["host"] for one in rig.origin.calls() if one["path"] == "/v1/chat/completions"} <= {
        f"{OPENAI}:{rig.origin.port}",
        OPENAI,
    }


@pytest.mark.parametrize("path", ["/openai/v1/chat/completions", "/t/x/openai/v1/models", "/lockpin/healthz"])
def test_a_reverse_listener_belongs_to_its_target_alone(rig, path):
    """Base URLs and health are of the listeners that are a proxy's: a path may mean something to a target."""
    before = len(rig.plain.calls())
    answer = client.call(rig.at("foreign"), path, method="GET")

    assert answer.status == 200
    assert [one["path"] for one in rig.plain.calls()[before:]] == [path]
    assert b"lockpin" not in client.call(rig.at("reverse"), "/lockpin/healthz", method="GET").body


def test_a_foreign_target_of_a_reverse_proxy_passes_untouched(rig):
    before = len(rig.proxy.rows("SELECT 1 FROM rows"))
    answer = client.call(rig.at("foreign"), "/v1/chat/completions?a=%2F", CHAT, authorization="Basic eDp5")

    assert answer.status == 200
    seen = rig.plain.calls()[-1]
    assert (seen["path"], json.loads(seen["body"])) == ("/v1/chat/completions?a=%2F", CHAT)
    assert seen["headers"]["authorization"] == "Basic eDp5"
    assert len(rig.proxy.rows("SELECT 1 FROM rows")) == before


def test_an_absolute_target_does_not_lead_a_reverse_proxy_elsewhere(rig):
    before = rig.plain.log.read_text()
    reply = ask(rig, "foreign", request_bytes("x", target=f"http://{ANTHROPIC}/v1/messages"), plain=True, host="x")

    assert reply.startswith(b"HTTP/1.1 400")
    assert rig.plain.log.read_text() == before


@pytest.mark.parametrize("mode", ["reverse", "socks5"])
def test_a_proxy_user_names_nobody_where_nobody_speaks_as_to_a_proxy(rig, mode):
    ask(rig, mode, request_bytes(OPENAI, extra="Proxy-Authorization: Basic c25lYWs6\r\n"))  # sneak:

    assert rig.proxy.rows("SELECT 1 FROM rows WHERE task = 'sneak'") == []
    assert not any("proxy-authorization" in one["headers"] for one in rig.origin.calls())


def test_a_proxy_user_names_the_task_in_upstream_mode(rig):
    proxy, extra = rig.at("upstream"), "Proxy-Authorization: Basic bmFtZWQ6\r\n"  # named:
    with socket.create_connection(("127.0.0.1", proxy.port), 10) as raw:
        where = f"{OPENAI}:{rig.origin.port}"
        raw.sendall(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{extra}\r\n".encode())
        assert b" 200 " in raw.recv(1000)
        with client.tls(raw, proxy, OPENAI) as connection:
            connection.sendall(request_bytes(OPENAI))
            assert client.read_all(connection).startswith(b"HTTP/1.1 200")

    assert rig.proxy.rows("SELECT 1 FROM rows WHERE task = 'named' AND kind = 'hold'")
    assert not any("c25l" in head or "bmFt" in head for head in rig.parent.heads)


def test_upstream_mode_goes_through_the_other_proxy_and_nowhere_else(rig):
    rig.parent.heads.clear()
    ask(rig, "upstream", request_bytes(OPENAI))

    assert [head.split("\r\n")[0] for head in rig.parent.heads] == [f"CONNECT {OPENAI}:{rig.origin.port} HTTP/1.1"]


def test_base_urls_work_in_upstream_mode(rig, tmp_path):
    """A plain call to the next proxy names its destination; one to a provider over TLS goes through a tunnel."""
    config = f'upstreams: {{{OPENAI}: "http://127.0.0.1:{rig.plain.port}"}}'
    with processes.proxy(
        tmp_path, config, arguments=("--mode", f"upstream:http://127.0.0.1:{rig.parent.port}")
    ) as proxy:
        rig.parent.heads.clear()
        answer = client.call(proxy, "/openai/v1/chat/completions", CHAT | {"max_completion_tokens": 7})

    assert answer.status == 200
    first = rig.parent.heads[0].split("\r\n")[0]
    assert first == f"POST http://127.0.0.1:{rig.plain.port}/v1/chat/completions HTTP/1.1"
    assert rig.plain.calls()[-1]["path"].endswith("/v1/chat/completions")


def test_the_next_proxys_credentials_are_kept_and_are_no_task(rig, tmp_path):
    config = f'upstreams: {{{OPENAI}: "http://127.0.0.1:{rig.plain.port}"}}'
    mode = ("--mode", f"upstream:http://127.0.0.1:{rig.parent.port}", "--set", "upstream_auth=corp:secret")
    with processes.proxy(tmp_path, config, arguments=mode) as proxy:
        rig.parent.heads.clear()
        client.call(proxy, "/openai/v1/chat/completions", CHAT | {"max_completion_tokens": 7})

        assert "proxy-authorization: basic y29ycdpzzwnyzxq=" in rig.parent.heads[0].lower()
        assert {row["task"] for row in proxy.rows("SELECT task FROM rows WHERE kind = 'hold'")} == {"default"}


def test_a_call_that_the_next_proxy_does_not_take_costs_nothing(tmp_path):
    mode = ("--mode", f"upstream:http://127.0.0.1:{processes.free_port()}")
    query = "SELECT kind FROM rows WHERE task = 'default' AND call IS NOT NULL ORDER BY id"
    with processes.proxy(tmp_path, arguments=mode) as proxy:
        answer = client.call(proxy, "/anthropic/v1/messages", MESSAGE | {"max_tokens": 7})

        assert answer.status == 502
        until(lambda: [row["kind"] for row in proxy.rows(query)] == ["hold", "void"])


# Attacks, in every mode that leads to more than one host.


@pytest.mark.parametrize("mode", ["upstream", "socks5"])
@pytest.mark.parametrize("sni", ["example.test", "front.alias.test", "localhost"])
def test_a_foreign_name_in_the_hello_does_not_hide_a_provider(rig, mode, sni):
    reply = ask(rig, mode, request_bytes(OPENAI), sni=sni)

    assert reply.startswith((b"HTTP/1.1 200", b"HTTP/1.1 502")) or reply == b""
    assert uncapped(rig) == []


@pytest.mark.parametrize("mode", ["upstream", "socks5"])
@pytest.mark.parametrize("sni", [OPENAI, ANTHROPIC, f"{ANTHROPIC}.", ANTHROPIC.upper()])
@pytest.mark.parametrize("host", ["front.alias.test", "127.0.0.1"])
def test_a_provider_reached_by_an_alias_or_an_address_gets_no_hello_with_its_name(rig, mode, sni, host):
    before = len(rig.origin.calls())

    with contextlib.suppress(OSError):
        kind = 1 if host[0].isdigit() else 3
        assert ask(rig, mode, request_bytes(OPENAI), host=host, sni=sni, kind=kind) == b""
    assert len(rig.origin.calls()) == before


def test_socks_by_ipv6_address_is_judged_by_the_hello_too(rig):
    before = len(rig.origin.calls())

    with contextlib.suppress(OSError):
        assert ask(rig, "socks5", request_bytes(OPENAI), host="::1", sni=OPENAI, kind=4) == b""
    assert len(rig.origin.calls()) == before


def test_socks_says_how_the_proxy_gets_to_know_the_name(rig):
    with contextlib.suppress(OSError):
        ask(rig, "socks5", request_bytes(OPENAI), host="127.0.0.1", sni=OPENAI, kind=1)

    until(lambda: "name the host to the proxy, by socks5h:// instead of socks5://" in rig.proxy.printed())


@pytest.mark.parametrize(
    ("mode", "host"),
    [*itertools.product(["upstream", "socks5"], [f"{OPENAI}.", OPENAI.upper()]), ("socks5", "ａpi.openai.com")],
)
def test_no_spelling_of_a_host_gets_past(rig, mode, host):
    with contextlib.suppress(OSError, AssertionError, UnicodeError):
        ask(rig, mode, request_bytes(OPENAI), host=host, sni=OPENAI)

    assert uncapped(rig) == []


@pytest.mark.parametrize("mode", ["reverse", "upstream", "socks5"])
def test_http2_is_metered_like_http1(rig, mode):
    proxy, limit = rig.at(mode), next(_LIMITS)
    raw = socket.create_connection(("127.0.0.1", proxy.port), 10)
    if mode != "reverse":
        raw.close()
        raw = inside(rig, mode, OPENAI, rig.origin.port)
    with client.tls(raw, proxy, OPENAI, ["h2"]) as wire:
        assert wire.selected_alpn_protocol() == "h2"
        connection = h2.connection.H2Connection(h2.config.H2Configuration())
        connection.initiate_connection()
        names = [(":method", "POST"), (":scheme", "https"), (":authority", OPENAI), (":path", "/v1/chat/completions")]
        connection.send_headers(1, names)
        connection.send_data(1, json.dumps(CHAT | {"max_completion_tokens": limit}).encode(), end_stream=True)
        wire.sendall(connection.data_to_send())
        events = []
        while not any(isinstance(event, h2.events.StreamEnded) for event in events):
            events += connection.receive_data(wire.recv(1 << 16))

    (status,) = [dict(event.headers)[b":status"] for event in events if isinstance(event, h2.events.ResponseReceived)]
    assert status == b"200"
    assert uncapped(rig) == []
    assert [one for one in rig.origin.calls() if str(limit) in one["body"]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "first", [b"\x00\x01\x02binary", b"SSH-2.0-x\r\n", b"hello\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
)
def test_what_is_not_http_gets_to_no_provider(rig, mode, first):
    before = rig.origin.log.read_text()

    reply = ask(rig, mode, first, plain=True)

    assert not reply.startswith(b"HTTP/1.1 200")
    assert rig.origin.log.read_text() == before


@pytest.mark.parametrize("mode", MODES)
def test_a_first_packet_that_is_no_verb_makes_no_tunnel(rig, mode):
    proxy, data = rig.at(mode), request_bytes(OPENAI)
    raw = socket.create_connection(("127.0.0.1", proxy.port), 10)
    if mode != "reverse":
        raw.close()
        raw = inside(rig, mode, OPENAI, rig.origin.port)
    with client.tls(raw, proxy, OPENAI) as connection:
        connection.sendall(data[:2])
        threading.Event().wait(0.3)  # the trick needs two packets; nothing else is waited for
        connection.sendall(data[2:])
        client.read_all(connection)

    assert uncapped(rig) == []


@pytest.mark.parametrize("mode", MODES)
def test_a_connect_inside_leads_nowhere(rig, mode):
    connect = f"CONNECT {ANTHROPIC}:{rig.origin.port} HTTP/1.1\r\nHost: {ANTHROPIC}\r\n\r\n".encode()
    before = rig.origin.log.read_text()

    assert ask(rig, mode, connect).startswith(b"HTTP/1.1 400")
    assert rig.origin.log.read_text() == before


@pytest.mark.parametrize("mode", ["upstream", "socks5"])
def test_plain_http_to_a_provider_is_metered_on_any_port(rig, mode):
    """It goes to a TLS port here and comes to nothing; what counts is that it was judged."""
    reply = ask(rig, mode, request_bytes(OPENAI, "/v1/batches"), plain=True)

    assert reply.startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize("mode", ["upstream", "socks5"])
@pytest.mark.parametrize("name", [OPENAI, f"{OPENAI}:80", f" {OPENAI.upper()}. "])
def test_plain_http_that_names_a_provider_at_another_address_is_closed(rig, mode, name):
    before = rig.plain.log.read_text()
    data = request_bytes(name)
    with inside(rig, mode, "127.0.0.1", rig.plain.port, kind=1) as raw, contextlib.suppress(ConnectionError):
        raw.sendall(data[:3])
        raw.sendall(data[3:60])
        raw.sendall(data[60:])
        assert client.read_all(raw) == b""

    assert rig.plain.log.read_text() == before


@pytest.mark.parametrize("mode", ["upstream", "socks5"])
def test_plain_http_to_nobodys_address_passes(rig, mode):
    with inside(rig, mode, "127.0.0.1", rig.plain.port, kind=1) as raw:
        raw.sendall(request_bytes(f"127.0.0.1:{rig.plain.port}"))
        assert client.read_all(raw).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("mode", ["upstream", "socks5"])
def test_a_server_that_speaks_first_is_heard(rig, mode):
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        inside(rig, mode, "127.0.0.1", server.getsockname()[1], kind=1) as raw,
    ):
        server.settimeout(5)
        raw.settimeout(5)
        with server.accept()[0] as far:
            far.sendall(b"220 mail\r\n")
            assert raw.recv(100) == b"220 mail\r\n"
            raw.sendall(b"EHLO me\r\n")
            assert far.recv(100) == b"EHLO me\r\n"


@pytest.mark.parametrize("command", [2, 3])
def test_socks_binds_nothing_and_has_no_udp(rig, command):
    raw, said = socks(rig.at("socks5"), OPENAI, 443, command=command)
    with raw:
        assert said[:2] == b"\x05\x07"  # command not supported


def test_a_reverse_proxy_speaks_no_http3(rig):
    """mitmproxy would also listen on UDP for a target of https."""
    hello = b"\xc0\x00\x00\x00\x01" + b"\x08" + b"\x01" * 8 + b"\x00" * 1200
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.settimeout(1)
        udp.connect(("127.0.0.1", rig.ports["reverse"]))
        with pytest.raises(ConnectionRefusedError):
            for _ in range(2):
                udp.send(hello)
                udp.recv(1 << 16)


@pytest.mark.parametrize("mode", ["upstream", "socks5"])
def test_no_mode_leads_back_to_the_proxy_itself(rig, mode):
    for port in rig.ports.values():
        with contextlib.suppress(OSError), inside(rig, mode, "127.0.0.1", port, kind=1) as raw:
            raw.sendall(request_bytes(OPENAI))
            if mode == "socks5":  # in upstream mode the other proxy leads back, as a client of ours
                assert not client.read_all(raw).startswith(b"HTTP/1.1 200")

    assert uncapped(rig) == []


@pytest.mark.parametrize("mode", [*MODES, "foreign"])
def test_every_mode_listens_on_loopback_alone(rig, mode):
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", rig.ports[mode]), 5)


def test_the_start_says_where_and_how_it_listens(rig):
    first = rig.proxy.printed().splitlines()
    (line,) = [line for line in first if line.startswith("lockpin ") and " on http://" in line]

    assert f"http://127.0.0.1:{rig.proxy.port}, " in line
    assert f"reverse:https://{OPENAI}:{rig.origin.port} on 127.0.0.1:{rig.ports['reverse']}" in line
    assert line.count(str(rig.ports["reverse"])) == 1
    assert f"socks5 on 127.0.0.1:{rig.ports['socks5']}" in line


# What is refused at start.

REFUSED = {
    "transparent": "are allowed",
    "wireguard": "are allowed",
    "dns": "are allowed",
    "reverse:tcp://api.openai.com:443": "http or https",
    "reverse:tls://api.openai.com:443": "http or https",
    "reverse:udp://api.openai.com:443": "http or https",
    "reverse:dtls://api.openai.com:443": "http or https",
    "reverse:quic://api.openai.com:443": "http or https",
    "reverse:http3://api.openai.com:443": "http or https",
    "reverse:dns://1.1.1.1": "http or https",
    "regular@0.0.0.0:8080": "refused in solo mode",
    "socks5@0.0.0.0:1080": "refused in solo mode",
    "reverse:https://api.openai.com@:8080": '"all addresses" is refused',
    "upstream:http://127.0.0.1:3128@192.168.1.1:8080": "refused in solo mode",
}
ALLOWED = ("regular", "socks5@1080", "reverse:https://api.openai.com@127.0.0.1:1", "upstream:http://proxy.test:3128")


@pytest.mark.parametrize("mode", REFUSED)
def test_a_mode_that_would_be_open_is_refused(mode):
    told = Options(mode=[mode], listen_host="127.0.0.1")

    with pytest.raises(options.OptionError, match=re.escape(REFUSED[mode])):
        options.check_modes(told, is_team=False)


@pytest.mark.parametrize("mode", ALLOWED)
def test_a_mode_that_is_metered_is_allowed(mode):
    options.check_modes(Options(mode=[mode], listen_host="127.0.0.1"), is_team=False)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "192.0.2.1", "127.0.0.1"])
def test_a_team_may_be_served_on_any_address(host):
    options.check_modes(Options(mode=["regular"], listen_host=host), is_team=True)


@pytest.mark.parametrize("mode", ["socks5", "reverse:https://api.openai.com", "upstream:http://proxy.test:3128"])
def test_a_mode_without_a_place_for_a_key_is_not_for_a_team(mode):
    with pytest.raises(options.OptionError, match='is not in this version with "mode: team", regular alone is'):
        options.check_modes(Options(mode=[mode], listen_host="127.0.0.1"), is_team=True)


@pytest.mark.parametrize(
    ("modes", "host", "near"),
    [
        (["regular"], "127.0.0.1", True), (["regular", "socks5@localhost:1080"], "::1", True),
        (["regular"], "0.0.0.0", False), (["regular", "regular@0.0.0.0:1"], "127.0.0.1", False),
    ],
)  # fmt: skip
def test_what_is_listened_to_from_elsewhere_is_known(modes, host, near):
    assert options.is_near(Options(mode=modes, listen_host=host)) == near


def test_a_start_in_a_refused_mode_is_one_line(tmp_path):
    found = processes.launch(tmp_path, arguments=("--mode", "reverse:tls://api.openai.com:443"))
    try:
        assert found.process.wait(30) == 1
    finally:
        processes.end(found.process)

    *_, line = [line for line in found.printed().splitlines() if line]
    assert line.startswith('lockpin: cannot start: mode "reverse:tls://api.openai.com:443" is not allowed')
    assert "listening" not in found.printed() and "Traceback" not in found.printed()


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", ["a.test"]),
        (b"\r\n\r\nGET / HTTP/1.1\nhost:a.test:80\n\n", ["a.test"]),
        (b"get http://u:p@b.test:1/x HTTP/1.1\r\nHost: a.test\r\n\r\n", ["a.test", "b.test"]),
        (b"POST / HTTP/1.0\r\nHost:\r\n a.test\r\nHost: b.test\r\n\r\n", ["a.test", "b.test"]),
        (b"POST / HTTP/1.1\r\n\r\nHost: body.test\r\n\r\n", []),
        (b"PO", None),
        (b"GET / HTTP/1.1\r\nHost: a.t", None),
        (b"GET / HTTP/1.1\r\nHost: a.test\r\n", None),
        (b"EHLO me\r\n", []),
        (b"GET key\r\n", []),
        (b"GET is no HTTP here", []),
        (b"GET ht", None),
        (b"GET   h", None),
        (b"GET /nothing\r\n", []),
        (b"\x00\x01", []),
        (b"GET /" + b"x" * 70_000, [UNREADABLE]),
    ],
)
def test_the_hosts_that_a_plain_request_names_are_read_once_it_is_whole(data, names):
    assert plain_names(data) == names

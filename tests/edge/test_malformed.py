"""Input that is wrong: a clear 4xx in the wire's own shape, nothing sent, no traceback, and the proxy goes on."""

import gzip
import json
import os
import socket
import subprocess
import sys
import zlib
from pathlib import Path

import brotli
import client
import processes
import pytest

CONFIG = 'upstreams: {{api.anthropic.com: "{origin}", api.openai.com: "{origin}"}}\nmax_request_mb: 2\n'
PATHS = {"anthropic": "/anthropic/v1/messages", "openai": "/openai/v1/chat/completions"}
GOOD = {
    "anthropic": {"model": "claude-sonnet-5-5", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]},
    "openai": {"model": "gpt-5.4", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]},
}


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("malformed")
    with (
        processes.origin(folder) as origin,
        processes.proxy(folder, CONFIG.format(origin=origin.url), kind=request.param) as proxy,
    ):
        yield origin, proxy
        assert "Traceback" not in proxy.printed()


def text_of(wire, **changes):
    return json.dumps(GOOD[wire] | changes)


BODIES = {
    "empty": b"",
    "no JSON": b"{nonsense",
    "cut JSON": b'{"model": "gpt-5.4", "messages": [',
    "not an object": b"[1, 2]",
    "a number": b"7",
    "null": b"null",
    "not UTF-8": b'{"model": "\xff\xfe"}',
    "UTF-16": json.dumps(GOOD["openai"]).encode("utf-16"),
    "a BOM": b"\xef\xbb\xbf" + json.dumps(GOOD["openai"]).encode(),
    "NaN": b'{"model": "gpt-5.4", "max_tokens": NaN, "messages": []}',
    "infinite limit": b'{"model": "gpt-5.4", "max_tokens": 1e400, "messages": []}',
    "Infinity": b'{"model": "gpt-5.4", "max_tokens": Infinity, "messages": []}',
    "negative limit": b'{"model": "gpt-5.4", "max_tokens": -5, "messages": []}',
    "fraction": b'{"model": "gpt-5.4", "max_tokens": 10.5, "messages": []}',
    "text limit": b'{"model": "gpt-5.4", "max_tokens": "10", "messages": []}',
    "true limit": b'{"model": "gpt-5.4", "max_tokens": true, "messages": []}',
    "huge limit": b'{"model": "gpt-5.4", "max_tokens": ' + b"9" * 5000 + b', "messages": []}',
    "twice": b'{"model": "gpt-5.4", "max_tokens": 1, "max_tokens": 100000, "messages": []}',
    "twice, inside": b'{"model": "gpt-5.4", "max_tokens": 1, "messages": [{"role": "user", "role": "user", "content": ""}]}',
    "other case": b'{"model": "gpt-5.4", "MAX_TOKENS": 100000, "max_tokens": 1, "messages": []}',
    "no model": b'{"max_tokens": 1, "messages": []}',
    "a list for a model": b'{"model": ["gpt-5.4"], "max_tokens": 1, "messages": []}',
    "messages as text": b'{"model": "gpt-5.4", "max_tokens": 1, "messages": "hi"}',
    "stream as text": b'{"model": "gpt-5.4", "max_tokens": 1, "stream": "yes", "messages": []}',
    "deep": b'{"model": "gpt-5.4", "max_tokens": 1, "messages": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
}


@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize("name", BODIES)
def test_a_malformed_body_is_a_clear_400(rig, wire, name):
    origin, proxy = rig
    before = len(origin.calls())

    answer = client.call(proxy, PATHS[wire], BODIES[name])

    assert (answer.status, answer.code) == (400, "bad_request")
    error = answer.json["error"]
    assert error["type"] == "bad_request"
    assert error["message"].startswith("lockpin: ")
    assert answer.json.get("type") == ("error" if wire == "anthropic" else None)
    assert answer.headers["x-should-retry"] == "false"
    assert len(origin.calls()) == before


UNPRICED = {
    "anthropic": [
        {"tools": [{"type": "brand_new_20270101", "name": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "hologram", "data": "x"}]}]},
        {"some_new_object": {"a": 1}},
    ],
    "openai": [
        {"web_search_options": {}},
        {"tools": [{"type": "teleport"}]},
        {"messages": [{"role": "user", "content": [{"type": "hologram"}]}]},
        {"some_new_object": {"a": 1}},
    ],
}


@pytest.mark.parametrize(("wire", "change"), [(wire, change) for wire in UNPRICED for change in UNPRICED[wire]])
def test_what_cannot_be_bounded_is_an_unpriced_tool(rig, wire, change):
    origin, proxy = rig
    before = len(origin.calls())

    answer = client.call(proxy, PATHS[wire], text_of(wire, **change).encode())

    assert (answer.status, answer.code) == (400, "unpriced_tool")
    assert len(origin.calls()) == before


SEARCH = {"type": "web_search_20260318", "name": "web_search"}


@pytest.mark.parametrize(
    ("change", "sent"),
    [
        ({"tools": [SEARCH]}, {"tools": [{"max_uses": 5} | SEARCH]}),
        ({"tools": [SEARCH | {"max_uses": 2}]}, {}),
        ({"mcp_servers": [{"type": "url", "url": "https://x.test", "name": "x"}]}, {}),
        ({"container": "c"}, {}),
    ],
)
def test_tools_of_the_provider_pass_with_a_limit_of_their_own_or_ours(rig, change, sent):
    origin, proxy = rig
    body = json.loads(text_of("anthropic", **change))

    answer = client.call(proxy, PATHS["anthropic"], body)

    assert answer.status == 200
    assert json.loads(origin.calls()[-1]["body"]) == body | sent


def test_unknown_scalar_fields_pass_and_every_byte_stays(rig):
    origin, proxy = rig
    body = b'{ "model":"claude-sonnet-5-5",\n\t"max_tokens" : 10, "novel_knob": 1.50, "messages":[{"role":"user","content":"h\\u0069"}]}'

    answer = client.call(proxy, PATHS["anthropic"], body)

    assert answer.status == 200
    assert origin.calls()[-1]["body"].encode() == body


ENCODINGS = {
    "unknown coding": ("snappy", b"abc"),
    "not gzip": ("gzip", b"plain"),
    "cut gzip": ("gzip", gzip.compress(json.dumps(GOOD["openai"]).encode())[:-4]),
    "rubbish after": ("gzip", gzip.compress(json.dumps(GOOD["openai"]).encode()) + b"rubbish"),
    "three codings": ("gzip, gzip, gzip", gzip.compress(gzip.compress(gzip.compress(b"{}")))),
    "cut brotli": ("br", brotli.compress(json.dumps(GOOD["openai"]).encode())[:-2]),
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_an_undecodable_body_is_a_clear_400(rig, name):
    origin, proxy = rig
    before, (coding, body) = len(origin.calls()), ENCODINGS[name]

    answer = client.call(proxy, PATHS["openai"], body, content_encoding=coding)

    assert (answer.status, answer.code) == (400, "bad_request")
    assert len(origin.calls()) == before


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
def test_a_bomb_is_a_413(rig, coding):
    from backports import zstd

    origin, proxy = rig
    before, zeros = len(origin.calls()), b"\0" * (40 << 20)
    pack = {
        "gzip": gzip.compress,
        "deflate": zlib.compress,
        "br": lambda data: brotli.compress(data, quality=1),
        "zstd": zstd.compress,
    }

    answer = client.call(proxy, PATHS["openai"], pack[coding](zeros), content_encoding=coding)

    assert (answer.status, answer.code) == (413, "too_large")
    assert len(origin.calls()) == before


def test_an_encoded_body_leaves_as_what_was_priced(rig):
    origin, proxy = rig
    plain = json.dumps(GOOD["anthropic"]).encode()

    answer = client.call(proxy, PATHS["anthropic"], gzip.compress(plain), content_encoding="gzip")

    assert answer.status == 200
    seen = origin.calls()[-1]
    assert seen["body"].encode() == plain
    assert "content-encoding" not in seen["headers"]
    assert seen["headers"]["content-length"] == str(len(plain))


def test_a_body_over_the_limit_is_a_413_before_it_is_read(rig):
    origin, proxy = rig
    before = len(origin.calls())

    with socket.create_connection(("127.0.0.1", proxy.port), 10) as raw:
        raw.sendall(
            b"POST /anthropic/v1/messages HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 900000000\r\n\r\n"
            % proxy.port
        )
        raw.sendall(b"x" * 70000)
        reply = client.read_all(raw)

    assert reply.startswith(b"HTTP/1.1 413")
    assert b'"type":"error"' in reply
    assert b"too_large" in reply
    assert len(origin.calls()) == before


def test_a_chunked_body_over_the_limit_is_a_413(rig):
    origin, proxy = rig
    before = len(origin.calls())
    chunk = b"%x\r\n%s\r\n" % (1 << 20, b"x" * (1 << 20))

    with socket.create_connection(("127.0.0.1", proxy.port), 10) as raw:
        raw.sendall(
            b"POST /openai/v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nTransfer-Encoding: chunked\r\n\r\n"
            % proxy.port
        )
        for _ in range(3):
            raw.sendall(chunk)
        reply = client.read_all(raw)

    assert reply.startswith(b"HTTP/1.1 413")
    assert len(origin.calls()) == before


def test_70_kb_of_headers_are_a_400(rig):
    origin, proxy = rig
    before = len(origin.calls())

    many = {f"x_h{index}": "v" * 1000 for index in range(70)}
    answer = client.call(proxy, PATHS["openai"], GOOD["openai"], **many)

    assert (answer.status, answer.code) == (400, "bad_request")
    assert len(origin.calls()) == before


def test_i04_a_70_kb_tag_header_is_refused_and_never_half_applied(rig):
    origin, proxy = rig
    before = len(origin.calls())

    answer = client.call(proxy, PATHS["openai"], GOOD["openai"], x_lockpin_tag="team=" + "a" * 70000)
    shorter = client.call(proxy, PATHS["openai"], GOOD["openai"], x_lockpin_tag="team=" + "a" * 9000)

    assert (answer.status, answer.code) == (400, "bad_request")
    assert (shorter.status, shorter.code) == (400, "bad_request")
    assert len(origin.calls()) == before


@pytest.mark.parametrize(
    "headers",
    [
        {"x_lockpin_tag": "no equals"}, {"x_lockpin_tag": "=v"}, {"x_lockpin_tag": "a=1, a=2"},
        {"x_lockpin_task": "a/b"}, {"x_lockpin_task": "%2f"}, {"x_lockpin_task": "x" * 129}, {"x_lockpin_project": "a/b"},
        {"proxy_authorization": "Bearer x"}, {"proxy_authorization": "Basic ???"},
    ],
)  # fmt: skip
def test_identity_that_does_not_parse_is_a_400(rig, headers):
    origin, proxy = rig
    before = len(origin.calls())

    answer = client.call(proxy, PATHS["openai"], GOOD["openai"], **headers)

    assert (answer.status, answer.code) == (400, "bad_request")
    assert len(origin.calls()) == before


def test_nothing_for_lockpin_leaves(rig):
    origin, proxy = rig
    names = {"x_lockpin_task": "t1", "x_lockpin_tag": "a=1", "x_lockpin_project": "p", "X_Lockpin_Odd": "1"}

    answer = client.call(proxy, PATHS["openai"], GOOD["openai"], **names, proxy_authorization="Basic dDox")

    assert answer.status == 200
    assert not [name for name in origin.calls()[-1]["headers"] if "lockpin" in name or name.startswith("proxy-")]


CONFIGS = {
    "NaN price": ("pricing:\n  m: {input_per_mtok: NaN, output_per_mtok: 1}\n", "lockpin.yaml:2"),
    "negative limit": ("daily_usd: -5\n", "lockpin.yaml:1"),
    "infinite limit": ("daily_usd: .inf\n", "lockpin.yaml:1"),
    "too much": ("daily_usd: 1e400\n", "lockpin.yaml:1"),
    "unknown key": ("mode: solo\ndaly_usd: 5\n", "lockpin.yaml:2"),
    "wrong type": ("max_request_mb: many\n", "lockpin.yaml:1"),
    "twice": ("daily_usd: 5\ndaily_usd: 6\n", "lockpin.yaml:2"),
    "two spellings": ("pricing:\n  m: {input_per_mtok: 1, inputPerMTok: 2, output_per_mtok: 1}\n", "lockpin.yaml:2"),
    "no YAML": ("a: [1\n", "lockpin.yaml:"),
    "not built": ("on_fault: allow\n", "not in this version"),
    "bad upstream": ("upstreams: {api.openai.com: ftp://x}\n", "lockpin.yaml:1"),
}


@pytest.mark.parametrize("kind", ["mitmdump", "up"])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_bad_configuration_is_one_line_and_no_start(tmp_path, kind, name):
    content, expected = CONFIGS[name]

    status, printed = start(tmp_path, kind, content)

    assert status == 1
    (line,) = [line for line in printed.splitlines() if "lockpin: " in line]
    assert expected in line
    assert "Traceback" not in printed


OPTIONS = {
    "ignore_hosts": "ignore_hosts=x", "allow_hosts": "allow_hosts=x", "tcp_hosts": "tcp_hosts=x",
    "map_remote": "map_remote=|a|b", "modify_body": "modify_body=/a/b", "stream_large_bodies": "stream_large_bodies=1m",
    "body_size_limit": "body_size_limit=1m", "validate_inbound_headers": "validate_inbound_headers=false",
    "ssl_insecure": "ssl_insecure=true", "emudhra": "emudhra=true", "websocket": "websocket=false",
    "lockpin_daly_usd": "lockpin_daly_usd=5", "mode": "mode=transparent", "listen_host": "listen_host=0.0.0.0",
    "connection_strategy": "tcp_timeout=5", "keep_host_header": "keep_host_header=true", "anticomp": "anticomp=true",
    "proxyauth": "proxyauth=a:b", "server_replay": "server_replay=/dev/null", "stickycookie": "stickycookie=.*",
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_that_opens_a_way_round_the_gate_is_no_start(tmp_path, name):
    status, printed = start(tmp_path, "mitmdump", "", "--set", OPTIONS[name])

    assert status == 1, printed
    assert OPTIONS[name].split("=")[0] in printed or "listening" in printed
    assert "listening at" not in printed.split("cannot start")[-1]
    assert "Traceback" not in printed


def start(tmp_path: Path, kind: str, content: str, *arguments: str) -> tuple[int, str]:
    """Start and wait for the end; a start that works is ended after it says so."""
    home = processes.make_home(tmp_path)
    (home / "lockpin.yaml").write_text(content)
    own = [sys.executable, "-m", "lockpin_addons.up", "--port", str(processes.free_port())]
    if kind == "mitmdump":
        entry = processes.ROOT / "addons" / "lockpin.py"
        own = [str(Path(sys.executable).with_name("mitmdump")), "-s", str(entry), "-p", str(processes.free_port())]
    command = [*own, "--set", f"lockpin_config={home / 'lockpin.yaml'}", *arguments]
    paths = os.pathsep.join(map(str, [processes.ROOT, processes.ROOT / "addons"]))
    variables = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": paths}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=30, cwd=home, check=False)
    return done.returncode, done.stdout + done.stderr

"""The first clients of a start: the sockets take them before the servers say where they listen.

A listener is held there until the test lets go of it, so that each request is decided in that moment.
"""

import contextlib
import json
import socket

import client
import mutants
import processes
import pytest
from parents import Parent
from processes import until

CHAT = {"model": "gpt-5.4-mini", "messages": [{"role": "user", "content": "hi"}], "max_completion_tokens": 7}
UNHEARD = """
    import rig_unheard
    rig_unheard.install()
    # After the loop's end"""


@contextlib.contextmanager
def starting(tmp_path, config="", arguments=()):
    """Start a proxy that listens and has not said so yet; it may when the block ends."""
    entry = mutants.copy(tmp_path / "copy")
    mutants.edit(entry, "bundle.py", lambda text: text.replace("    # After the loop's end", UNHEARD, 1))
    is_open, go = tmp_path / "open", tmp_path / "go"
    found = processes.launch(
        tmp_path, config, addons=entry, arguments=arguments, environment={"RIG_OPEN": str(is_open), "RIG_GO": str(go), "RIG_RESOLVER": "1"},
    )  # fmt: skip
    try:
        until(is_open.exists)
        yield found
        assert f"listening at 127.0.0.1:{found.port}" not in found.printed()
        go.touch()
        until(lambda: f"listening at 127.0.0.1:{found.port}" in found.printed())
        assert client.call(found, "/lockpin/healthz", method="GET").status == 200
    finally:
        processes.end(found.process)


@pytest.fixture
def parent():
    made = Parent()
    yield made
    made.server.close()


def modes(parent):
    return {"regular": (), "upstream": ("--mode", f"upstream:http://127.0.0.1:{parent.port}")}


@pytest.mark.parametrize("mode", ["regular", "upstream"])
def test_the_proxy_knows_itself_from_the_first_client_on(tmp_path, parent, mode):
    with starting(tmp_path, arguments=modes(parent)[mode]) as proxy:
        answer = client.call(proxy, "/lockpin/healthz", method="GET")
        astray = client.call(proxy, "/nothing", method="GET")

    assert (answer.status, json.loads(answer.body)["status"]) == (200, "ok")
    assert (astray.status, b"nothing is here" in astray.body) == (404, True)
    assert parent.heads == []


@pytest.mark.parametrize("mode", ["regular", "upstream"])
def test_a_call_to_a_base_url_is_held_from_the_first_client_on(tmp_path, parent, mode):
    with processes.origin(tmp_path) as origin:
        config = f'upstreams: {{api.openai.com: "{origin.url}"}}'
        with starting(tmp_path, config, modes(parent)[mode]) as proxy:
            answer = client.call(proxy, "/openai/v1/chat/completions", CHAT)
            rows = proxy.rows("SELECT kind FROM rows WHERE call IS NOT NULL ORDER BY id")

        assert answer.status == 200
        assert rows[0]["kind"] == "hold"
        assert [one["path"].removeprefix(origin.url) for one in origin.calls()] == ["/v1/chat/completions"]
    assert [head.split(" ", 2)[:2] for head in parent.heads] == [
        ["POST", f"{origin.url}/v1/chat/completions"] for _ in range(mode == "upstream")
    ]


def test_a_name_that_leads_back_ends_at_the_proxy_from_the_first_client_on(tmp_path):
    with starting(tmp_path) as proxy, socket.create_connection(("127.0.0.1", proxy.port), 10) as raw:
        where = f"back.alias.test:{proxy.port}"
        raw.sendall(f"GET http://{where}/x HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
        reply = client.read_all(raw, 5)

        assert reply.startswith(b"HTTP/1.1 502")
        assert b"this destination is the proxy itself" in reply


def test_a_port_that_the_system_chooses_is_known_by_the_client_that_came_through_it(tmp_path, parent):
    """The port is not in the options, and the servers have not told it: what the connection itself knows is left."""
    with starting(tmp_path, arguments=(*modes(parent)["upstream"], "--mode", "regular@127.0.0.1:0")) as proxy:
        ports = listening(proxy.process.pid) - {proxy.port}
        reply = b""
        for port in ports:
            with socket.create_connection(("127.0.0.1", port), 10) as raw:
                raw.sendall(f"GET /lockpin/healthz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
                reply += client.read_all(raw, 5)

    assert reply.startswith(b"HTTP/1.1 200") and b'"ok"' in reply
    assert parent.heads == []


def listening(pid):
    """Read which ports a process listens on, from its descriptors and the system's table of sockets."""
    sockets = set()
    for one in (processes.Path(f"/proc/{pid}/fd")).iterdir():
        with contextlib.suppress(OSError):
            sockets.add(str(one.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for line in processes.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and row[9] in sockets}

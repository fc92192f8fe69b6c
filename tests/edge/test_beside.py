"""Other people's scripts beside Lockpin, and requests too broken to be one: nothing uncapped, nothing told."""

import json
import socket

import client
import processes
from processes import until

CONFIG = 'upstreams: {{api.anthropic.com: "{origin}"}}\n'
BODY = {"model": "claude-sonnet-5-5", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]}
ANSWERS = """
from mitmproxy import http
def request(flow):
    flow.response = http.Response.make(200, b"mine")
"""
LATE = """
from mitmproxy import ctx
class Late:
    def request(self, flow):
        if b"max_tokens" in (flow.request.raw_content or b""):
            {change}
def running():
    ctx.master.addons.add(Late())
"""


def run(tmp_path, script):
    home = processes.make_home(tmp_path)
    path = tmp_path / "beside.py"
    path.write_text(script)
    ledger = home / ".local/share/lockpin/ledger.sqlite3"
    with (
        processes.origin(tmp_path, ledger=ledger) as origin,
        processes.proxy(tmp_path, CONFIG.format(origin=origin.url), home=home, arguments=("-s", str(path))) as proxy,
    ):
        answer = client.call(proxy, "/anthropic/v1/messages", BODY)
        until(lambda: not proxy.rows("SELECT 1 FROM open_holds"))
        ends = [(row["kind"], row["usd"]) for row in proxy.rows("SELECT * FROM rows WHERE call IS NOT NULL")]
        return answer, origin.calls(), ends


def test_a_scripts_own_answer_stands_and_nothing_is_held(tmp_path):
    answer, calls, ends = run(tmp_path, ANSWERS)

    assert (answer.status, answer.body, calls, ends) == (200, b"mine", [], [])


def test_a_body_changed_after_the_hold_is_not_sent(tmp_path):
    answer, calls, ends = run(
        tmp_path, LATE.format(change="flow.request.content = flow.request.content.replace(b'100', b'60000')")
    )

    assert (answer.status, calls) == (500, [])
    assert [kind for kind, _ in ends] == ["hold", "void"]


def test_a_path_changed_after_the_hold_is_not_sent(tmp_path):
    answer, calls, ends = run(tmp_path, LATE.format(change="flow.request.path = '/v1/complete'"))

    assert (answer.status, calls) == (500, [])
    assert [kind for kind, _ in ends] == ["hold", "void"]


def test_an_answer_given_after_the_hold_costs_nothing(tmp_path):
    change = "from mitmproxy import http; flow.response = http.Response.make(200, b'late')"

    answer, calls, ends = run(tmp_path, LATE.format(change=change))

    assert (answer.status, calls) == (200, [])
    assert [kind for kind, _ in ends] == ["hold", "void"]


def test_what_cannot_be_read_is_not_quoted_in_the_log(tmp_path):
    """mitmproxy quotes the bytes that it could not read; keys are among them."""
    with processes.proxy(tmp_path, "") as proxy:
        for data in (
            b"POST /anthropic/v1/messages HTTP/1.1\r\nx-api-key: CANARY1\r\nCont",
            b"GET / HTTP/1.1\r\nx-api-key CANARY2\r\n\r\n",
            b"GET /?key=CANARY3 x HTTP/1.1\r\n\r\n",
            b"GET http://user:CANARY4@127.0.0.1:1/?key=CANARY5 HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n",
            b"CONNECT user:CANARY6@127.0.0.1:1 HTTP/1.1\r\n\r\n",
        ):
            with socket.create_connection(("127.0.0.1", proxy.port), 10) as raw:
                raw.sendall(data)
                raw.shutdown(socket.SHUT_WR)
                client.read_all(raw, 1)
        assert client.call(proxy, "/lockpin/healthz", method="GET").status == 200
        proxy.stop()

        assert "client connect" in proxy.printed()
        assert "CANARY" not in proxy.printed()


def test_what_the_log_says_otherwise_stays():
    from lockpin_addons.quiet import cleaned

    assert cleaned("127.0.0.1: client connect") == "127.0.0.1: client connect"
    assert cleaned("x b'abc' y") == "x (what was sent is not shown)"
    assert json.dumps(cleaned("GET http://a:b@host/p?key=1 done")) == json.dumps("GET http://…@host/p?… done")

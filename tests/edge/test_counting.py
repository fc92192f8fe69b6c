"""The provider's own counting endpoint: asked when the bound from bytes does not fit, as the caller, and never a fault.

A prompt of n letters is bound to about 4/3 n tokens by its bytes; the endpoint states what a provider would.
"""

import json
import re
import threading
import time

import client
import counting
import processes
import pytest
from processes import until

# Input alone costs, a ten-thousandth of a dollar for a token: a dollar holds 10,000 tokens.
CONFIG = """
upstreams: {{api.anthropic.com: "{origin}", api.openai.com: "{origin}"}}
pricing:
  counted-model: {{input_per_mtok: 100, output_per_mtok: 0, max_output_tokens: 100, context_tokens: 1000000}}
daily_usd: null
task: {{budget_usd: 1}}
queue: {{wait: 0s}}
"""
KEY = "sk-ant-secret-key"
LETTERS = 30_000  # far over the budget by bytes
PATIENCE_S = 2


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    folder = tmp_path_factory.mktemp("counting")
    with (
        counting.provider() as origin,
        processes.proxy(folder, CONFIG.format(origin=origin.url), kind="up") as proxy,
    ):
        yield origin, proxy
        assert "Traceback" not in proxy.printed() and "fault of Lockpin" not in proxy.printed()
        assert KEY not in proxy.printed()
        assert "word word" not in proxy.printed()


@pytest.fixture(autouse=True)
def anew(rig):
    rig[0].requests.clear()
    rig[0].answer = counting.tokens(10)


_TASKS = iter(range(1000))


def ask(rig, letters=LETTERS, *, task=None, text=None, **headers):
    """Call with a prompt of so many letters, each text another."""
    number = next(_TASKS)
    content = text or f"{number} " + "word " * (letters // 5)
    body = {"model": "counted-model", "max_tokens": 10, "messages": [{"role": "user", "content": content}]}
    headers = {"x_api_key": KEY, "anthropic_version": "2023-06-01", "x_secret": "mine", "cookie": "a=b"} | headers
    return client.call(rig[1], "/anthropic/v1/messages", body, x_lockpin_task=task or f"t{number}", **headers)


def held_nano(rig, answer):
    (row,) = rig[1].rows("SELECT usd FROM rows WHERE call = ? AND kind = 'hold'", answer.headers["x-lockpin-call"])
    return row["usd"]


def test_a_call_that_fits_by_its_bytes_is_not_counted(rig):
    assert ask(rig, 1000).status == 200
    assert rig[0].counts() == []


def test_a_call_that_does_not_is_counted_and_held_at_the_count_with_its_margin(rig):
    rig[0].answer = counting.tokens(8000)

    answer = ask(rig)

    assert answer.status == 200
    assert held_nano(rig, answer) == (8000 + 160 + 64) * 100_000  # 2% and 64 more
    assert len(rig[0].calls()) == 1


def test_a_count_that_does_not_fit_either_refuses(rig):
    rig[0].answer = counting.tokens(10_000)

    answer = ask(rig)

    assert (answer.status, answer.code) == (402, "budget_exceeded")
    assert answer.json["lockpin"]["needed_usd"] == 1.0264  # 10,000 + 200 + 64 tokens
    assert rig[0].calls() == []


def test_a_count_is_never_held_above_the_bound_from_bytes(rig):
    rig[0].answer = counting.tokens(10**9)

    answer = ask(rig)

    assert answer.status == 402
    assert answer.json["lockpin"]["needed_usd"] < 10


def test_the_caller_is_who_asks_and_nothing_else_of_the_call_goes_along(rig):
    ask(rig, authorization="Bearer other", x_lockpin_tag="a=b")

    ((path, headers, body),) = rig[0].counts()
    assert path == "/v1/messages/count_tokens"
    assert headers["x-api-key"] == KEY and headers["authorization"] == "Bearer other"
    assert headers["anthropic-version"] == "2023-06-01"
    assert "max_tokens" not in json.loads(body) and json.loads(body)["model"] == "counted-model"
    assert not {"cookie", "x-secret", "x-lockpin-tag", "x-lockpin-task", "accept-encoding"} & headers.keys()


def test_a_redirect_gets_no_credentials(rig):
    with counting.provider() as elsewhere:
        rig[0].answer = lambda: (307, {"location": f"{elsewhere.url}/v1/messages/count_tokens"}, b"")

        assert ask(rig).status == 402
        assert elsewhere.requests == []


GARBAGE = {
    "an error": (500, {}, b'{"input_tokens": 10}'),
    "rate limited": (429, {"retry-after": "1"}, b"{}"),
    "no JSON": (200, {}, b"<html>"),
    "another shape": (200, {}, b'[{"input_tokens": 10}]'),
    "negative": (200, {}, b'{"input_tokens": -10}'),
    "a fraction": (200, {}, b'{"input_tokens": 10.5}'),
    "none": (200, {}, b'{"input_tokens": null}'),
    "true": (200, {}, b'{"input_tokens": true}'),
    "nothing": (200, {}, b""),
    "not UTF-8": (200, {}, b'\xff{"input_tokens": 10}'),
    "deep": (200, {}, b"[" * 100_000),
    "large": (200, {}, b" " * (2 << 20) + b'{"input_tokens": 10}'),
    "compressed": (200, {"content-encoding": "gzip"}, b"\x1f\x8b\x08 no gzip"),
    "cut": (200, {"content-length": "100"}, b'{"input_tokens": 10'),
    "no HTTP": (200, {"x\r\ny": "z"}, b"{}"),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_an_answer_that_says_nothing_leaves_the_bound_from_bytes(rig, what):
    rig[0].answer = lambda: GARBAGE[what]

    answer = ask(rig)

    assert (answer.status, answer.code) == (402, "budget_exceeded")
    assert rig[0].calls() == []
    assert len(rig[0].counts()) == 1


def test_an_answer_that_does_not_come_is_waited_for_two_seconds_and_the_rest_goes_on(rig):
    go_on = threading.Event()
    rig[0].answer = lambda: go_on.wait(20) and counting.tokens(10)()
    began = time.monotonic()
    others = []
    slow = threading.Thread(target=lambda: others.append(ask(rig)))
    slow.start()
    until(lambda: rig[0].counts())

    assert ask(rig, 1000).status == 200  # another call, at once
    assert time.monotonic() - began < PATIENCE_S
    slow.join()
    waited_s = time.monotonic() - began
    go_on.set()

    assert others[0].status == 402
    assert PATIENCE_S - 0.1 < waited_s < PATIENCE_S + 2


def test_an_endpoint_out_of_reach_refuses_by_bytes(tmp_path):
    config = CONFIG.format(origin=f"http://127.0.0.1:{processes.free_port()}")
    with processes.proxy(tmp_path, config, kind="up") as proxy:
        assert ask((None, proxy)).status == 402
        assert "Traceback" not in proxy.printed()


def test_a_count_is_remembered_by_its_content(rig):
    rig[0].answer = counting.tokens(8000)
    text = "same " + "word " * 6000

    assert [ask(rig, text=text, task="same").status for _ in range(3)] == [200] * 3
    assert len(rig[0].counts()) == 1

    assert ask(rig, text=text + "!", task="same").status == 200
    assert len(rig[0].counts()) == 2


def test_what_is_refused_again_is_not_counted_again(rig):
    rig[0].answer = counting.tokens(20_000)
    text = "again " + "word " * 6000

    assert [ask(rig, text=text, task="again").status for _ in range(3)] == [402] * 3
    assert len(rig[0].counts()) == 1


def test_in_upstream_mode_nothing_is_asked(tmp_path):
    with counting.provider() as origin:
        mode = ("--mode", f"upstream:http://127.0.0.1:{processes.free_port()}")
        with processes.proxy(tmp_path, CONFIG.format(origin=origin.url), arguments=mode) as proxy:
            assert ask((origin, proxy)).status == 402
        assert origin.requests == []


def test_the_endpoint_is_asked_over_tls_with_the_trust_that_calls_have(tmp_path):
    """`ssl_verify_upstream_trusted_ca` is for both; without it a stranger's certificate is trusted by neither."""
    cert, ca = processes.leaf(tmp_path, ["localhost"])
    with processes.origin(tmp_path, cert=cert) as origin:
        config = CONFIG.format(origin=f"https://localhost:{origin.port}")
        for trust, seen in (((), 0), (("--set", f"ssl_verify_upstream_trusted_ca={ca}"), 1)):
            before = len(origin.calls())
            with processes.proxy(tmp_path, config, kind="up", arguments=trust) as proxy:
                ask((None, proxy))
            assert len(origin.calls()) - before == seen
        assert {one["path"] for one in origin.calls()} == {"/v1/messages/count_tokens"}


def test_nothing_of_a_count_is_in_the_ledger(rig):
    ask(rig)
    raw = b"".join(path.read_bytes() for path in rig[1].ledger.parent.iterdir() if path.is_file())

    assert KEY.encode() not in raw and b"word word" not in raw
    assert not re.search(rb"count_tokens", raw)

"""Calls that fail and are sent again to a provider that speaks HTTP/2: streams of one connection, and connections anew."""

import json
import ssl
from concurrent.futures import ThreadPoolExecutor

import httpx2
import processes
import pytest
import streams
import tries
from tries import busy

from lockpin_core.ledger.verify import verify

RESET, GOAWAY, CLOSE = {"reset": True}, {"goaway": True}, {"close": True}
EMPTY = {"type": "text/event-stream"}
REPLY = {"body": json.dumps({"model": "chat-model", "usage": {"prompt_tokens": 3, "completion_tokens": 4}})}
STREAM = {"type": "text/event-stream", "body": streams.finished("chat", 9)}
FAILURES = {
    "503": busy(503), "429": busy(429), "late": busy(503) | {"late": True}, "reset": RESET, "goaway": GOAWAY,
    "close": CLOSE, "empty": EMPTY, "empty-late": EMPTY | {"late": True},
    "empty-bare": EMPTY | {"bare": True},
}  # fmt: skip


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    folder = tmp_path_factory.mktemp("http2")
    cert, ca = processes.leaf(folder, ["localhost"])
    with processes.origin(folder, cert=cert, program="origin_http2.py") as origin:
        place = f"https://localhost:{origin.port}"
        config = streams.CONFIG.format(origin=place, closed=processes.free_port()) + tries.FAST.format(attempts=3)
        trust = ("--set", f"ssl_verify_upstream_trusted_ca={ca}")
        with processes.proxy(folder, config, arguments=trust) as proxy:
            yield streams.Rig(origin, proxy, folder)
            assert "crashed" not in proxy.printed()
            assert "handled as a fault" not in proxy.printed()
            assert verify(proxy.ledger).wrong is None


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("failure", FAILURES)
def test_it_is_sent_again_on_a_stream_of_its_own(rig, failure, streamed):
    if failure.startswith("empty") and not streamed:
        pytest.skip("a reply that is read whole has no first byte of its own")
    good = STREAM if streamed else REPLY
    found = tries.send(rig, "chat", FAILURES[failure], FAILURES[failure], good, way="h2", stream=streamed)

    assert (found.answer.status, found.answer.body.decode()[-14:]) == (200, good["body"][-14:])
    assert len(found.requests) == 3
    assert len({(sent["connection"], sent["stream"]) for sent in found.requests}) == 3
    assert len({sent["body"] for sent in found.requests}) == 1
    assert len(found.holds) == (1 if failure == "429" else 3)
    assert found.ends[-1]["estimated"] == 0
    if failure in ("503", "429", "late", "reset"):
        assert len({sent["connection"] for sent in found.requests}) == 1  # other calls run on it


def test_other_calls_of_the_connection_go_on(rig):
    """One call's failures are nothing to those beside it on the same HTTP/2 connection."""
    context = ssl.create_default_context(cafile=str(rig.proxy.ca))
    told = {"proxy": rig.proxy.url, "verify": context, "trust_env": False, "timeout": 30}
    with httpx2.Client(http1=False, http2=True, **told) as opened, ThreadPoolExecutor(8) as aside:

        def ask(number):
            failures = [busy(503), RESET, busy(429)][: number % 3]
            body = streams.ask("chat", 3000 + number) | {"stream": False}
            headers = tries.turns(*failures, REPLY)
            return opened.post("https://api.openai.com/v1/chat/completions", json=body, headers=headers).status_code

        assert list(aside.map(ask, range(24))) == [200] * 24

"""A call that falls back through another proxy behind ours, which lets nobody through without its credentials."""

import pytest
import tries
from parents import Parent
from tries import DROP, PLAIN, busy

PRICES = """
  far-model: {input_per_mtok: 3, output_per_mtok: 15, max_output_tokens: 100000, context_tokens: 200000}
"""
CONFIG = """
fallbacks: {openai/chat-model: [together/far-model]}
keys: {provider_env: {together: RIG_TOGETHER}}
"""
TOLD = "proxy-authorization: basic y29ycdpzzwnyzxq="  # corp:secret, in lower case
FAILURES = {"503": busy(503), "dropped": DROP}


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    parent = Parent()
    mode = ("--mode", f"upstream:http://127.0.0.1:{parent.port}", "--set", "upstream_auth=corp:secret")
    told = {"hosts": ("api.together.ai",), "prices": PRICES, "environment": {"RIG_TOGETHER": "real"}, "arguments": mode}
    with tries.running(tmp_path_factory.mktemp("next"), 1, CONFIG, **told) as found:
        found.parent = parent
        yield found


def ask(rig, turn, way):
    rig.parent.heads.clear()
    told = {"limit": 100, "task": tries.new_task(), "way": way, "headers": {"authorization": "Bearer caller"}}
    found = tries.send(rig, "chat", turn, PLAIN, **told)
    assert (found.answer.status, found.answer.headers["x-lockpin-fallback"]) == (200, "together/far-model")
    return found, [head.lower() for head in rig.parent.heads]


@pytest.mark.parametrize("failure", FAILURES)
def test_each_plain_request_to_the_next_proxy_has_its_credentials(rig, failure):
    _, heads = ask(rig, FAILURES[failure], "h1")

    assert [head.split(" http://")[0] for head in heads] == ["post", "post"]
    assert [head.count("proxy-authorization") for head in heads] == [1, 1]
    assert all(TOLD in head for head in heads)
    assert ["bearer caller" in head for head in heads] == [True, False]


@pytest.mark.parametrize("failure", FAILURES)
def test_a_request_through_a_tunnel_of_the_next_proxy_has_none_and_its_connect_has_them(rig, failure):
    found, heads = ask(rig, FAILURES[failure], "tunnel")

    assert [(head.split(" ")[0], TOLD in head) for head in heads] == [("connect", True)] * 2
    assert not any("proxy-authorization" in (name.lower() for name in sent["headers"]) for sent in found.requests)

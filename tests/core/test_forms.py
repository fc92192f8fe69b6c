"""In which form a client gets a refusal: SPEC §8's settings, for each error shape."""

import json
from dataclasses import replace

import pytest

from lockpin_core.call import Refusal
from lockpin_core.clients import client_of
from lockpin_core.forms import put
from lockpin_core.wire import wire_named

OVER = Refusal("budget_exceeded", 402, "lockpin: over", {"retry_after_s": 90, "transient": False})
OBJECT = {"code": "budget_exceeded", "task": "t", "call": "c1"}
CODEX, AIDER, OTHER = {"originator": "codex_exec"}, {"user-agent": "litellm/1.81.10"}, {"user-agent": "curl/8"}
OPENCODE = {"user-agent": "opencode/1.18.33 ai-sdk/provider-utils/4.0.46 runtime/bun/1.3.14"}
PAUSED = Refusal("spend_rate_exceeded", 429, "lockpin: too fast", {}, retry_after_s=90)


def made(wire, setting="auto", headers=OTHER, refusal=OVER, shape="openai"):
    reply = put(refusal, OBJECT, wire and wire_named(wire), shape=shape, setting=setting, client=client_of(headers))
    return reply, reply.body.decode()


@pytest.mark.parametrize(
    "wire", ["openai_chat", "openai_responses", "anthropic_messages", "gemini", "bedrock_converse", "bedrock_invoke"]
)
@pytest.mark.parametrize("setting", ["auto", "lockpin"])
def test_the_usual_form_is_a_402(wire, setting):
    reply, body = made(wire, setting)

    found = json.loads(body)
    assert (reply.status, reply.headers.get("retry-after")) == (402, None)
    assert reply.headers["x-should-retry"] == "false"
    assert (found.get("error", found)["message"], found["lockpin"]) == ("lockpin: over", OBJECT)


def test_codex_gets_a_response_that_failed_and_is_not_tried_again():
    reply, body = made("openai_responses", headers=CODEX)

    name, data = body.strip().split("\n")
    found = json.loads(data.removeprefix("data: "))
    assert (reply.status, reply.headers["content-type"], name) == (200, "text/event-stream", "event: response.failed")
    assert found["type"] == "response.failed"
    assert found["response"]["status"] == "failed"
    assert found["response"]["error"] == {"code": "invalid_prompt", "message": "lockpin: over"}
    assert found["lockpin"] == OBJECT


@pytest.mark.parametrize("setting", ["auto", "lockpin", "provider"])
@pytest.mark.parametrize("wire", ["openai_responses", "openai_chat"])
def test_h04_a_refusal_is_no_failure_of_the_provider_to_codex_and_has_a_code_of_its_own(setting, wire):
    reply, body = made(wire, setting, CODEX)

    data = body if reply.status != 200 else body.strip().partition("data: ")[2]
    found = json.loads(data)
    error = found.get("error") or found["response"]["error"]
    assert reply.status not in (500, 502, 503, 504)
    assert error["code"] in ("budget_exceeded", "invalid_prompt", "insufficient_quota")
    assert (found["lockpin"]["code"], reply.headers["x-should-retry"]) == ("budget_exceeded", "false")


def test_codex_gets_a_402_where_it_is_told_so_and_on_other_formats():
    assert made("openai_responses", "lockpin", CODEX)[0].status == 402
    assert made("openai_chat", "auto", CODEX)[0].status == 402


@pytest.mark.parametrize("wire", ["openai_chat", "anthropic_messages"])
def test_aider_gets_a_400_with_the_same_words(wire):
    reply, body = made(wire, headers=AIDER)

    found = json.loads(body)
    assert (reply.status, found["error"]["message"], found["lockpin"]) == (400, "lockpin: over", OBJECT)


@pytest.mark.parametrize("wire", ["openai_responses", "anthropic_messages"])
def test_opencode_may_try_a_402_again_at_once_and_waits_where_waiting_is_meant(wire):
    reply, body = made(wire, headers=OPENCODE)

    found = json.loads(body)
    assert (reply.status, found["error"]["message"], found["lockpin"]) == (402, "lockpin: over", OBJECT)
    assert (reply.headers["retry-after-ms"], reply.headers["x-should-retry"]) == ("0", "false")
    paused, _ = made(wire, headers=OPENCODE, refusal=PAUSED)
    assert (paused.headers["retry-after"], paused.headers.get("retry-after-ms")) == ("90", None)
    for is_held, milliseconds in ((True, "5000"), (False, "0")):  # five seconds until a window begins anew are no wait
        over = replace(OVER, detail={"transient": is_held, "retry_after_s": 5})
        assert made(wire, headers=OPENCODE, refusal=over)[0].headers["retry-after-ms"] == milliseconds
    for other in (made(wire), made(wire, "lockpin", OPENCODE), made(wire, "provider", OPENCODE)):
        assert "retry-after-ms" not in other[0].headers


@pytest.mark.parametrize(
    ("wire", "where", "code"),
    [
        ("openai_chat", ("error", "code"), "insufficient_quota"),
        ("openai_chat", ("error", "type"), "insufficient_quota"),
        ("openai_responses", ("error", "code"), "insufficient_quota"),
        ("anthropic_messages", ("error", "type"), "rate_limit_error"),
        ("gemini", ("error", "status"), "RESOURCE_EXHAUSTED"),
        ("gemini", ("error", "code"), 429),
    ],
)
def test_the_providers_form_is_its_own_quota_error(wire, where, code):
    reply, body = made(wire, "provider", CODEX)

    found = json.loads(body)
    assert (reply.status, reply.headers["retry-after"], reply.headers["x-should-retry"]) == (429, "90", "false")
    assert found[where[0]][where[1]] == code
    assert (found["error"]["message"], found["lockpin"]) == ("lockpin: over", OBJECT)


@pytest.mark.parametrize("wire", ["bedrock_converse", "bedrock_invoke", None])
def test_bedrocks_own_quota_error_stands_in_a_header(wire):
    reply, body = made(wire, "provider", shape="bedrock")

    assert (reply.status, reply.headers["retry-after"], reply.headers["x-should-retry"]) == (429, "90", "false")
    assert reply.headers["x-amzn-errortype"] == "ThrottlingException"
    assert json.loads(body) == {"message": "lockpin: over", "lockpin": OBJECT}


def test_where_no_waiting_helps_the_providers_form_names_no_time():
    lifetime = Refusal("budget_exceeded", 402, "lockpin: over", {"transient": False})

    assert "retry-after" not in made("openai_chat", "provider", refusal=lifetime)[0].headers


def test_other_refusals_have_one_form():
    unknown = Refusal("unknown_model", 400, "lockpin: no price")

    for setting in ("auto", "lockpin", "provider"):
        reply, body = made("openai_responses", setting, CODEX, unknown)
        assert (reply.status, json.loads(body)["error"]["code"]) == (400, "unknown_model")


def test_where_no_format_was_called_the_providers_shape_is_taken():
    assert json.loads(made(None, shape="anthropic")[1])["type"] == "error"
    assert json.loads(made(None, "provider", shape="openai")[1])["error"]["code"] == "insufficient_quota"

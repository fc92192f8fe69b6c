"""A call that failed goes to another model, through real processes: where to, under whose key, at what price."""

import json
import math
import ssl

import httpx2
import pytest
import tries
from tries import DROP, PLAIN, busy

CALLER, REAL = "sk-caller-canary", "key-of-the-target"
# A dear model's output costs a dollar a token; the others' $5, $10 and $15 a million.
CONFIG = """
fit: {output: false}
task: {budget_usd: 0.02}
fallbacks:
  openai/chat-model: [openai/dear-model, openai/other-model]
  openai/other-model: [together/far-model]
  openai/wide-model: [openai/tiny-model]
  openai/lone-model: [anthropic/messages-model, groq/far-model, openai/nobody, nobody/x, together/far-model]
  openai/back-model: [fireworks/far-model, openai/other-model]
  anthropic/*: [deepseek/far-model]
keys: {provider_env: {together: RIG_TOGETHER, deepseek: RIG_DEEPSEEK, fireworks: RIG_FIREWORKS}}
"""
PRICES = """
  other-model: {input_per_mtok: 2, output_per_mtok: 10, max_output_tokens: 100000, context_tokens: 200000}
  wide-model: {input_per_mtok: 1, output_per_mtok: 5, max_output_tokens: 100000, context_tokens: 200000}
  tiny-model: {input_per_mtok: 1, output_per_mtok: 1, max_output_tokens: 100000, context_tokens: 200000}
  lone-model: {input_per_mtok: 1, output_per_mtok: 5, max_output_tokens: 100000, context_tokens: 200000}
  back-model: {input_per_mtok: 1, output_per_mtok: 5, max_output_tokens: 100000, context_tokens: 200000}
  far-model: {input_per_mtok: 3, output_per_mtok: 15, max_output_tokens: 100000, context_tokens: 200000}
"""
FAILURES = {"503": busy(503), "429": busy(429), "dropped": DROP}


def running(folder, attempts=1, kind="mitmdump"):
    keys = {"RIG_TOGETHER": REAL, "RIG_DEEPSEEK": REAL, "RIG_FIREWORKS": REAL}
    hosts = ("api.together.ai", "api.deepseek.com", "api.groq.com")
    told = {"hosts": hosts, "closed": ("api.fireworks.ai",), "prices": PRICES, "environment": keys}
    return tries.running(folder, attempts, CONFIG, kind, **told)


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory):
    with running(tmp_path_factory.mktemp("fallbacks"), kind=request.param) as found:
        yield found


def models(seen):
    return [json.loads(sent["body"])["model"] for sent in seen.requests]


def skipped(answer):
    return [line.strip() for line in answer.headers.get("x-lockpin-fallback-skipped", "").split(",") if line]


def of_other_model(turn):
    return turn | {"body": turn["body"].replace("chat-model", "other-model")}


def estimated_input(sent, nano):
    body = sent["body"].replace('"stream_options":{"include_usage":true},', "")
    return math.ceil(len(body) / 3) * nano


@pytest.mark.parametrize("way", ["h1", "h2", "tunnel"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("failure", FAILURES)
def test_it_falls_back_at_once_to_the_first_model_that_fits(rig, failure, streamed, way):
    good = of_other_model(tries.whole("chat")) if streamed else PLAIN
    found = tries.send(rig, "chat", FAILURES[failure], good, way=way, stream=streamed, task=tries.new_task(), limit=900)

    assert found.answer.status == 200
    assert models(found) == ["chat-model", "other-model"]
    assert found.answer.headers["x-lockpin-fallback"] == "openai/other-model"
    assert skipped(found.answer) == ["openai/dear-model; budget"]
    first, second = found.holds
    assert (first["model"], second["model"]) == ("chat-model", "other-model")
    assert found.answer.headers["x-lockpin-call"] == second["call"]
    failed, served = found.ends
    assert failed["usd"] == (0 if failure == "429" else estimated_input(found.requests[0], 1_000))
    assert failed["kind"] == ("void" if failure == "429" else "charge")
    usage = (25, 9) if streamed else (10, 900)
    assert (served["usd"], served["estimated"]) == (usage[0] * 2_000 + usage[1] * 10_000, 0)
    assert json.loads(second["data"])["attempt"] == {"number": 2, "of": 3, "first": first["call"]}


@pytest.mark.parametrize("way", ["h1", "h2", "tunnel"])
def test_another_provider_gets_the_body_under_its_own_key_and_nothing_of_the_caller(rig, way):
    said = {"authorization": f"Bearer {CALLER}", "x-api-key": CALLER, "cookie": CALLER, "openai-organization": CALLER}
    found = tries.send(
        rig, "chat", busy(503), PLAIN, way=way, task=tries.new_task(), model="lone-model", headers=said, limit=700
    )

    assert found.answer.status == 200
    assert found.answer.headers["x-lockpin-fallback"] == "together/far-model"
    assert skipped(found.answer) == [
        "anthropic/messages-model; other_wire", "groq/far-model; no_key", "openai/nobody; unknown_model",
        "nobody/x; unknown_provider",
    ]  # fmt: skip
    first, second = found.requests
    assert first["headers"]["authorization"] == f"Bearer {CALLER}"
    assert second["headers"]["authorization"] == f"Bearer {REAL}"
    assert second["headers"]["host"].startswith("127.0.0.1")  # as `upstreams` says
    assert CALLER not in json.dumps(second)
    told = first["body"].replace("lone-model", "far-model")
    assert second["body"] == told.replace("max_completion_tokens", "max_tokens")  # as its host obeys it
    assert found.ends[-1]["usd"] == 10 * 3_000 + 700 * 15_000
    assert found.holds[-1]["provider"] == "together"


def test_the_path_is_that_of_the_other_provider(rig):
    found = tries.send(
        rig, "messages", busy(529), PLAIN, task=tries.new_task(), headers={"x-api-key": CALLER}, limit=500
    )

    assert found.answer.status == 200
    assert [sent["path"] for sent in found.requests] == ["/v1/messages", "/anthropic/v1/messages"]
    assert found.requests[1]["headers"]["authorization"] == f"Bearer {REAL}"
    assert CALLER not in json.dumps(found.requests[1])


@pytest.mark.parametrize("way", ["h1", "h2", "tunnel"])
def test_it_comes_back_to_the_first_provider_with_the_callers_own_key(rig, way):
    said = {"authorization": f"Bearer {CALLER}"}
    found = tries.send(
        rig,
        "chat",
        busy(503),
        PLAIN,
        way=way,
        task=tries.new_task(),
        model="back-model",
        headers=said,
        limit=400,
    )

    assert models(found) == ["back-model", "other-model"]
    assert [sent["headers"]["authorization"] for sent in found.requests] == [f"Bearer {CALLER}"] * 2
    assert found.requests[0]["path"] == found.requests[1]["path"]
    assert found.answer.status == 200
    assert found.answer.headers["x-lockpin-fallback"] == "openai/other-model"
    assert [(hold["provider"], hold["model"]) for hold in found.holds] == [
        ("openai", "back-model"), ("fireworks", "far-model"), ("openai", "other-model"),
    ]  # fmt: skip
    assert [(end["kind"], end["reason"]) for end in found.ends[:2]] == [("charge", "failed"), ("void", "not_sent")]


def test_none_is_served_past_a_limit(rig):
    """The budget has room for the first attempt alone: each other model is left out, and the failed reply stands."""
    found = tries.send(rig, "chat", busy(429), PLAIN, task=tries.new_task(), limit=3800)

    assert (found.answer.status, found.answer.body.decode()) == (429, busy(429)["body"])
    assert skipped(found.answer) == ["openai/dear-model; budget", "openai/other-model; budget"]
    assert "x-lockpin-fallback" not in found.answer.headers
    (hold,), (end,) = found.holds, found.ends
    assert found.answer.headers["x-lockpin-call"] == hold["call"]
    assert end["kind"] == "void"


def test_a_model_that_fails_too_gives_way_to_the_next_one_and_the_last_reply_is_the_answer(rig):
    found = tries.send(rig, "chat", busy(503), busy(504), task=tries.new_task(), limit=800)

    assert models(found) == ["chat-model", "other-model"]
    assert found.answer.status == 504
    assert found.answer.headers["x-lockpin-fallback"] == "openai/other-model"
    assert found.charged == [
        estimated_input(found.requests[0], 1_000), estimated_input(found.requests[1], 2_000),
    ]  # fmt: skip


def test_a_reply_that_no_other_model_would_mend_is_given_as_it_is(rig):
    found = tries.send(rig, "chat", busy(400), task=tries.new_task())

    assert (found.answer.status, len(found.requests)) == (400, 1)
    assert skipped(found.answer) == []


def test_each_model_has_its_own_attempts(tmp_path):
    with running(tmp_path, attempts=2) as rig:
        found = tries.send(rig, "chat", busy(503), busy(429), busy(503), busy(503), task=tries.new_task(), limit=500)

    assert models(found) == ["chat-model", "chat-model", "other-model", "other-model"]
    assert found.answer.status == 503
    assert [hold["model"] for hold in found.holds] == ["chat-model", "chat-model", "other-model", "other-model"]
    assert [end["kind"] for end in found.ends] == ["charge", "void", "charge", "charge"]
    numbers = [json.loads(hold["data"]).get("attempt", {}).get("number") for hold in found.holds]
    assert numbers == [None, 2, 3, 4]


def test_a_cheaper_model_may_fit_where_the_next_attempt_of_the_first_does_not(tmp_path):
    with running(tmp_path, attempts=2) as rig:
        probe = tries.send(rig, "chat", PLAIN, task=tries.new_task(), model="wide-model", limit=1000)
        prompt = probe.holds[0]["usd"] - 1000 * 5_000
        limit = (20_000_000 - prompt) // 5_000  # all of the task's budget, but for less than a token
        found = tries.send(rig, "chat", busy(503), PLAIN, task=tries.new_task(), model="wide-model", limit=limit)

    assert models(found) == ["wide-model", "tiny-model"]
    assert found.answer.status == 200
    assert found.charged == [estimated_input(found.requests[0], 1_000), 10 * 1_000 + limit * 1_000]


def test_a_quota_that_is_used_up_is_not_tried_again_but_another_model_is(tmp_path):
    body = json.dumps({"error": {"message": "m", "type": "insufficient_quota", "code": "insufficient_quota"}})
    with running(tmp_path, attempts=3) as rig:
        found = tries.send(rig, "chat", busy(429, body=body), PLAIN, task=tries.new_task(), limit=500)

    assert models(found) == ["chat-model", "other-model"]
    assert found.answer.status == 200


@pytest.mark.parametrize("way", ["base_url", "connect"])
def test_a_model_that_the_path_names_is_named_there_and_the_callers_query_stays(way, tmp_path):
    reply = {
        "candidates": [],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4, "totalTokenCount": 7},
    }
    more = "fallbacks: {gemini/chat-model: [gemini/messages-model]}\n"
    body = {"contents": [{"parts": [{"text": "hi"}]}], "generationConfig": {"maxOutputTokens": 50}}
    headers = tries.turns(busy(503), {"body": json.dumps(reply)})
    path = "/v1beta/models/chat-model:generateContent?key=own-key"
    with tries.running(tmp_path, 1, more, hosts=("generativelanguage.googleapis.com",)) as rig:
        told = {"trust_env": False, "timeout": 30}
        url = f"{rig.proxy.url}/gemini{path}"
        if way == "connect":
            told |= {"proxy": rig.proxy.url, "verify": ssl.create_default_context(cafile=str(rig.proxy.ca))}
            url = f"https://generativelanguage.googleapis.com{path}"
        with httpx2.Client(**told) as opened:
            answer = opened.post(url, json=body, headers=headers)
        first, second = rig.origin.calls()
        (failed, charged) = rig.proxy.settled(2)

    assert (answer.status_code, answer.headers["x-lockpin-fallback"]) == (200, "gemini/messages-model")
    assert first["path"] == path
    assert second["path"] == "/v1beta/models/messages-model:generateContent?key=own-key"
    assert second["body"] == first["body"]
    assert (failed["failed"], charged["usd"]) == (1, 3 * 1_000 + 4 * 5_000)

"""A request to another model: what of it stays, where it goes, and what of its caller goes with it."""

import json
from dataclasses import replace

import pytest
from desks import PROVIDERS, Desk, body

from lockpin_core.admission_elsewhere import KEPT_HEADERS, other_model, other_provider, path_at
from lockpin_core.wire import wire_named

CHAT, MESSAGES, GEMINI = wire_named("openai_chat"), wire_named("anthropic_messages"), wire_named("gemini")
SAID = {
    "authorization": "Bearer canary", "x-api-key": "canary", "api-key": "canary", "x-goog-api-key": "canary",
    "cookie": "canary", "openai-organization": "canary", "x-stainless-lang": "canary", "referer": "canary",
    "x-forwarded-for": "canary", "proxy-authorization": "canary", "accept": "*/*", "content-type": "application/json",
    "user-agent": "test/1", "anthropic-version": "2023-06-01", "anthropic-beta": "b",
}  # fmt: skip


def incoming(**more):
    return Desk().incoming(body("ink"), headers=SAID, **more)


def named(provider):
    return PROVIDERS.by_name(provider)


def test_another_model_of_the_provider_is_named_in_the_body_and_nothing_else_changes():
    came = incoming()
    there = other_model(came, CHAT, "pen")

    assert there.body == came.body.replace(b'"ink"', b'"pen"')
    assert (there.headers, there.path, there.host, there.provider) == (SAID, came.path, came.host, came.provider)


def test_a_model_that_the_path_names_is_named_there():
    came = Desk().incoming({"contents": []}, provider="gemini", path="/v1beta/models/ink:generateContent")
    there = other_model(came, GEMINI, "pen")

    assert there.path == "/v1beta/models/pen:generateContent"
    assert there.path_model == "pen"
    assert other_model(came, GEMINI, "pen/x") is None


def test_a_name_that_would_make_the_request_another_call_leads_nowhere():
    came = incoming()

    class Renaming:
        def with_model(self, request, model):
            return replace(request, path=f"/v1/{model}")

    assert other_model(came, Renaming(), "unknown") is None
    assert other_model(came, Renaming(), "responses") is None
    assert other_model(came, Renaming(), "chat/completions") is not None


def test_a_path_that_is_no_call_leads_nowhere():
    came = incoming(path="/v1/unknown")

    assert other_model(came, CHAT, "pen") is None
    assert other_provider(came, CHAT, named("mistral"), "pen", "k") is None


def test_another_provider_gets_the_body_under_its_own_key_and_nothing_that_says_who_calls():
    came = incoming()
    there = other_provider(came, CHAT, named("mistral"), "pen", "secret")

    assert there.body == came.body.replace(b'"ink"', b'"pen"').replace(b"max_completion_tokens", b"max_tokens")
    assert "canary" not in str(there.headers)
    assert there.headers == {name: SAID[name] for name in KEPT_HEADERS & SAID.keys()} | {
        "authorization": "Bearer secret"
    }
    assert (there.host, there.path, there.query) == ("api.mistral.ai", "/v1/chat/completions", "")


@pytest.mark.parametrize(
    ("provider", "sent", "limit"),
    [
        ("openai", {"max_completion_tokens": 900}, {"max_completion_tokens": 900}),
        ("groq", {"max_tokens": 900}, {"max_tokens": 900}),  # it obeys both
        ("deepseek", {"max_completion_tokens": 900}, {"max_tokens": 900}),
        ("zai", {"max_completion_tokens": 900}, {"max_tokens": 900}),
        ("cerebras", {"max_tokens": 900}, {"max_completion_tokens": 900}),
        ("deepseek", {"max_tokens": None, "max_completion_tokens": 900}, {"max_tokens": None, "max_completion_tokens": 900}),
        ("deepseek", {}, {}),
    ],
)  # fmt: skip
def test_the_output_limit_goes_where_the_other_host_obeys_it(provider, sent, limit):
    told = {**body("ink", None), "note": "max_tokens", **sent}
    came = Desk().incoming(told, provider="huggingface", path="/v1/chat/completions", headers=SAID)
    there = other_provider(came, CHAT, named(provider), "pen", "secret")

    assert json.loads(there.body) == {"model": "pen", "messages": told["messages"], "note": "max_tokens", **limit}


def test_another_model_of_the_same_host_may_obey_another_limit():
    came = Desk().incoming(body("gpt-5.5"), provider="cloudflare_gateway", path="/v1/a/g/compat/chat/completions")
    there = other_model(came, CHAT, "deepseek/deepseek-chat")

    assert json.loads(there.body)["max_tokens"] == 1000
    assert "max_completion_tokens" not in json.loads(there.body)


def test_a_query_may_hold_a_key_and_stays():
    came = replace(incoming(), query="?key=canary")

    assert other_provider(came, CHAT, named("mistral"), "pen", "k").query == ""


@pytest.mark.parametrize(
    ("provider", "header", "value"),
    [("anthropic", "x-api-key", "k"), ("deepseek", "authorization", "Bearer k"), ("azure", "api-key", "k")],
)
def test_each_provider_takes_its_key_where_it_says(provider, header, value):
    came = Desk().incoming(body("ink"), provider="meta", path="/v1/messages", headers=SAID)
    there = other_provider(came, MESSAGES, named(provider), "pen", "k")

    assert {
        name: there.headers[name] for name in ("authorization", "x-api-key", "api-key") if name in there.headers
    } == {header: value}


@pytest.mark.parametrize(
    ("provider", "path"),
    [
        ("groq", "/openai/v1/chat/completions"),
        ("deepseek", "/v1/chat/completions"),  # the caller's own, of several
        ("anthropic", None),
        ("perplexity", None),
    ],
)
def test_the_path_is_one_that_takes_the_callers_format(provider, path):
    assert path_at(incoming(), named(provider), "pen") == path


def test_a_path_that_names_the_model_is_of_one_provider_alone():
    came = Desk().incoming({"contents": []}, provider="gemini", path="/v1beta/models/ink:generateContent")

    assert path_at(came, named("vertex"), "pen") is None
    assert other_provider(came, GEMINI, named("vertex"), "pen", "k") is None

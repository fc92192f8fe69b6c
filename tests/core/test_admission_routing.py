"""A host that passes calls on to others, each at its own price, is told the price that the call is held at."""

import json

import pytest
from desks import FACTS, Desk, body, config

from lockpin_core.engine import Answered
from lockpin_core.settler import Admitted

CAP = {"prompt": 1, "completion": 5, "request": 0}
LONG = {"tokens": "1000", "input": "3", "output": "8"}
PRICING = {
    "ink": {"input": "1", "output": "5", **FACTS},
    "qwen3-max": {"input": "1", "output": "5", **FACTS},
    "bare": {"input": "1", "output": "5", "context_tokens": "1000"},
    "banded": {"input": "1", "output": "5", "above": [LONG], **FACTS},
}
HI = [{"role": "user", "content": "hi"}]
WIRES = {
    "/api/v1/chat/completions": {"messages": HI, "max_tokens": 9},
    "/api/v1/completions": {"prompt": "hi", "max_tokens": 9},
    "/api/v1/embeddings": {"input": "hi"},
    "/api/v1/responses": {"input": "hi", "max_output_tokens": 16},
    "/api/v1/messages": {"messages": HI, "max_tokens": 9},
}


def ask(told: dict, path: str = "/api/v1/chat/completions", limit: str | None = "5", provider: str = "openrouter"):
    desk = Desk(config(limit, pricing=PRICING) if limit else config(pricing=PRICING))
    return desk.ask(told if isinstance(told, bytes) else {"model": "ink", **told}, provider=provider, path=path)


@pytest.mark.parametrize("path", WIRES)
def test_every_format_is_told_the_price(path: str):
    decision = ask(WIRES[path], path)

    assert isinstance(decision, Admitted)
    assert json.loads(decision.body) == {"model": "ink", **WIRES[path], "provider": {"max_price": CAP}}


@pytest.mark.parametrize("path", WIRES)
def test_the_price_is_put_beside_what_the_client_says_of_hosts(path: str):
    told = {"provider": {"only": ["a"], "sort": "price", "allow_fallbacks": False}, **WIRES[path]}

    decision = ask(told, path)

    assert isinstance(decision, Admitted)
    routing = {**told["provider"], "max_price": CAP}
    assert json.loads(decision.body) == {"model": "ink", **told, "provider": routing}


def test_every_other_byte_of_what_the_client_says_stays():
    raw = b'{ "model":"ink","max_tokens": 9, "provider" : { "only":[ "a" ] }, "messages":[{"role":"user","content":"x"}] }'

    decision = ask(raw)

    cap = b'"max_price":{"prompt":1,"completion":5,"request":0},'
    assert decision.body == raw.replace(b'{ "only"', b"{" + cap + b' "only"')


@pytest.mark.parametrize("said", [None, {}])
def test_a_client_that_says_nothing_of_hosts_is_given_words_of_its_own(said: dict | None):
    decision = ask({"provider": said, **WIRES["/api/v1/chat/completions"]})

    assert json.loads(decision.body)["provider"] == {"max_price": CAP}


@pytest.mark.parametrize("path", WIRES)
def test_a_price_of_the_clients_own_is_refused(path: str):
    decision = ask({"provider": {"max_price": {"prompt": 99}}, **WIRES[path]}, path)

    assert isinstance(decision, Answered)
    assert (decision.code, "max_price" in decision.reply.body.decode()) == ("unpriced_tool", True)


def test_without_a_limit_the_body_stays_as_it_is():
    decision = ask({"provider": {"only": ["a"]}, **WIRES["/api/v1/chat/completions"]}, limit=None)

    assert isinstance(decision, Admitted)
    assert decision.body is None


@pytest.mark.parametrize(("provider", "path"), [("openai", "/v1/chat/completions"), ("anthropic", "/v1/messages")])
def test_elsewhere_nothing_keeps_a_dearer_host_away(provider: str, path: str):
    decision = ask({**body("ink"), "provider": {"only": ["a"]}}, path, provider=provider)

    assert isinstance(decision, Answered)
    assert (decision.code, '\\"provider\\"' in decision.reply.body.decode()) == ("unpriced_tool", True)


@pytest.mark.parametrize(("words", "price"), [(10, (1, 5)), (2000, (3, 8))])
def test_only_prices_that_the_prompt_can_reach_are_asked_for(words: int, price: tuple[int, int]):
    told = {"model": "banded", "max_tokens": 9, "messages": [{"role": "user", "content": "x" * words}]}

    asked = json.loads(ask(told).body)["provider"]["max_price"]

    # "x" a token each at most, and 510 for the frame: below the 1,000 where the long prompt begins, or above it.
    assert (asked["prompt"], asked["completion"]) == price


@pytest.mark.parametrize(
    ("provider", "path"),
    [("qwen", "/compatible-mode/v1/chat/completions"), ("xai", "/v1/chat/completions")],
)
def test_where_thinking_is_billed_beside_the_limit_the_models_maximum_is_held_too(provider: str, path: str):
    told = {"model": "ink", "messages": HI, "max_tokens": 9}

    beside = ask(told, path, provider=provider).held.call.quote.ceiling.output
    inside = ask(told, "/v1/chat/completions", provider="openai").held.call.quote.ceiling.output

    assert (inside, beside) == (9, 9 + 50_000)


@pytest.mark.parametrize(
    ("provider", "model", "more", "beside"),
    [
        ("qwen", "qwen3-max", {"thinking_budget": 700}, 700 + 128),  # and the words that end it
        ("qwen", "qwen3-max", {"thinking_budget": 0}, 128),
        ("qwen", "qwen3-max", {"enable_thinking": True, "thinking_budget": 700, "n": 3}, 700 + 128),
        ("qwen", "qwen3-max", {}, 50_000),
        ("qwen", "qwen3-max", {"reasoning": {"max_tokens": 700}}, 50_000),  # another vendor's field
        ("qwen", "ink", {"thinking_budget": 700}, 50_000),  # of this model nobody says that it keeps to a budget
        ("qwen", "ink", {"thinking_budget": 60_000}, 60_000),
        ("xai", "qwen3-max", {"thinking_budget": 700}, 50_000),
        ("openai", "qwen3-max", {"thinking_budget": 700}, 700),
    ],
)
def test_thinking_beside_the_limit_is_held_once(provider: str, model: str, more: dict, beside: int):
    """Once for each choice, of 9 tokens, at a model that writes 50,000 tokens at most."""
    path = "/compatible-mode/v1/chat/completions" if provider == "qwen" else "/v1/chat/completions"
    told = {"model": model, "messages": HI, "max_tokens": 9, **more}

    most = ask(told, path, provider=provider).held.call.quote.ceiling.output

    assert most == more.get("n", 1) * (9 + beside)


def test_a_limit_beside_which_reasoning_is_billed_is_not_said_to_be_missing():
    answered = ask({"model": "bare", "messages": HI, "max_tokens": 9}, "/v1/chat/completions", provider="xai")

    assert isinstance(answered, Answered)
    words = json.loads(answered.reply.body)["error"]["message"]
    assert "more than an output limit of the request may be billed, such as reasoning beside it" in words
    assert 'pricing: {"bare": {max_output_tokens: TOKENS}}' in words
    assert "set a limit in the request" not in words


def test_qwen_is_given_the_limit_that_bounds_thinking_and_answer():
    decision = ask({"messages": HI}, "/compatible-mode/v1/chat/completions", provider="qwen")

    assert "max_completion_tokens" in json.loads(decision.body)


@pytest.mark.parametrize(
    ("provider", "path", "rule"),
    [("anthropic", "/v1/messages", "observed"), ("openrouter", "/api/v1/messages", "hold")],
)
def test_a_cut_stream_is_charged_by_what_it_stated_only_where_that_is_no_estimate(provider, path, rule):
    decision = ask({"messages": HI, "max_tokens": 9, "stream": True}, path, provider=provider)

    assert decision.tariff.cut_rule == rule

"""What a wire says of the smallest limit that a request may get, and what it does to one that has a limit."""

import json

import pytest

from lockpin_core.call import Request, Rewrite
from lockpin_core.wire import wire_named

HELLO = [{"role": "user", "content": "hi"}]
THINKS = {"type": "enabled", "budget_tokens": 8000}
ANTHROPIC = {"model": "m", "max_tokens": 64000, "messages": HELLO}
CHAT = {"model": "m", "messages": HELLO}
RESPONSE = {"model": "m", "input": "hi"}
GEMINI = {"contents": [{"parts": [{"text": "hi"}]}]}
CONVERSE = {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}


def request(wire: str, body: dict) -> Request:
    path = {"bedrock_converse": "/model/m/converse", "bedrock_invoke": "/model/m/invoke"}.get(
        wire, "/v1/m:generateContent"
    )
    by_path = {"gemini": "m", "bedrock_converse": "anthropic.m", "bedrock_invoke": "anthropic.m"}.get(wire)
    return Request("POST", "h", path, {}, json.dumps(body).encode(), by_path)


def config(**fields: object) -> dict:
    return {**GEMINI, "generationConfig": fields}


@pytest.mark.parametrize(
    ("wire", "body", "least"),
    [
        ("anthropic_messages", ANTHROPIC, 1),
        ("anthropic_messages", ANTHROPIC | {"thinking": {"type": "adaptive"}}, 1),
        ("anthropic_messages", ANTHROPIC | {"thinking": THINKS}, 1025),  # the budget is lowered too, to 1024 at least
        ("anthropic_messages", ANTHROPIC | {"fallbacks": [{"model": "b", "thinking": THINKS}]}, 1025),
        (
            "anthropic_messages",
            ANTHROPIC | {"fallbacks": [{"model": "b", "max_tokens": 9000, "thinking": THINKS}]},
            1025,
        ),
        ("anthropic_messages", ANTHROPIC | {"fallbacks": "default"}, 1),
        ("bedrock_invoke", ANTHROPIC | {"thinking": THINKS}, 1025),
        ("bedrock_converse", CONVERSE, 1),
        ("bedrock_converse", CONVERSE | {"additionalModelRequestFields": {"thinking": THINKS}}, 1025),
        ("bedrock_converse", CONVERSE | {"additionalModelRequestFields": {"reasoning_config": THINKS}}, 1025),
        ("openai_chat", CHAT, 1),
        ("openai_chat", CHAT | {"reasoning": {"max_tokens": 2000}}, 2001),  # nobody lowers this one
        ("openai_chat", CHAT | {"thinking": THINKS}, 8001),
        ("openai_chat", CHAT | {"thinking": {"type": "disabled"}}, 1),
        ("openai_responses", RESPONSE, 16),
        ("openai_responses", RESPONSE | {"reasoning": {"max_tokens": 2000}}, 2001),
        ("openai_completions", {"model": "m", "prompt": "hi"}, 1),
        ("gemini", GEMINI, 1),
        ("gemini", config(thinkingConfig={"thinkingBudget": -1}), 1),
        ("gemini", config(thinkingConfig={"thinkingBudget": 200}), 200),
        ("gemini", config(thinking_config={"thinking_budget": 9000}), 512),  # the budget is lowered too
        ("code_assist", {"model": "m", "request": config(thinkingConfig={"thinkingBudget": 9000})}, 512),
        ("gemini_interactions", {"model": "m", "input": "hi"}, 1),
        ("openai_embeddings", {"model": "m", "input": "hi"}, 0),
    ],
)
def test_smallest_limit_is_one_with_which_the_request_is_valid(wire: str, body: dict, least: int):
    speaker = wire_named(wire)

    assert speaker.least_output(speaker.parse(request(wire, body))) == max(least, speaker.min_output)


LIMITED = [
    ("anthropic_messages", ANTHROPIC | {"max_tokens": 100, "thinking": THINKS}),
    ("bedrock_invoke", ANTHROPIC | {"max_tokens": 100}),
    ("bedrock_converse", CONVERSE | {"inferenceConfig": {"maxTokens": 100}}),
    ("openai_chat", CHAT | {"max_tokens": 100}),
    ("openai_chat", CHAT | {"max_completion_tokens": 100, "max_tokens": None}),
    ("openai_responses", RESPONSE | {"max_output_tokens": 100}),
    ("openai_completions", {"model": "m", "prompt": "hi", "max_tokens": 100}),
    ("gemini", config(maxOutputTokens=100, thinkingConfig={"thinkingBudget": 9000})),
    ("gemini", config(max_output_tokens="100")),
    ("code_assist", {"model": "m", "request": config(maxOutputTokens=100)}),
    ("gemini_interactions", {"model": "m", "input": "hi", "generation_config": {"max_output_tokens": 100}}),
]


@pytest.mark.parametrize(("wire", "body"), LIMITED)
@pytest.mark.parametrize("limit", [100, 101, 5000])
def test_no_limit_is_raised_nor_anything_else_touched_for_it(wire: str, body: dict, limit: int):
    asked = request(wire, body)

    assert wire_named(wire).rewrite(asked, Rewrite(limit)) == asked.body


@pytest.mark.parametrize(("wire", "body"), LIMITED)
def test_limit_that_a_request_has_is_lowered_where_it_stands(wire: str, body: dict):
    asked, speaker = request(wire, body), wire_named(wire)
    parsed = speaker.parse(asked)
    body = json.loads(speaker.rewrite(request(wire, _without_thinking(body)), Rewrite(99)))

    assert (parsed.output_limit, parsed.output_settable) == (100, True)
    assert speaker.parse(request(wire, body)).output_limit == 99
    assert json.dumps(body).count("99") == 1


def _without_thinking(body: dict) -> dict:
    text = json.dumps(body).replace("8000", "20").replace("9000", "20")
    return json.loads(text)


def test_prediction_gets_no_limit_and_keeps_one_that_may_be_lowered():
    predicted = CHAT | {"prediction": {"type": "content", "content": "x"}}
    chat = wire_named("openai_chat")

    assert not chat.parse(request("openai_chat", predicted)).output_settable
    assert chat.parse(request("openai_chat", predicted | {"max_tokens": 100})).output_settable

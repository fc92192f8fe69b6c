"""The request types of the providers' own SDKs accept whatever is changed in a body near a cap."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic.types import message_create_params
from anthropic.types.beta import message_create_params as beta_message_create_params
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator
from google.genai import types as gemini_types
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import completion_create_params
from openai.types.responses import response_create_params
from pydantic import TypeAdapter, ValidationError
from talks import Turn, asked, body_of

from lockpin_core.call import Rewrite
from lockpin_core.wire import wire_named

MODEL = ServiceModel(Loader().load_service_model("bedrock-runtime", "service-2"), "bedrock-runtime")
HOUR = {"type": "ephemeral", "ttl": "1h"}
THINKS = {"type": "enabled", "budget_tokens": 8000}
TEXTS = st.sampled_from(["ok", "x" * 3000, "é" * 2000, 'a"\\\n' * 900])
TURNS = st.lists(st.builds(Turn, st.lists(TEXTS, max_size=3).map(tuple), as_parts=st.booleans()), max_size=6)
TYPED = {
    "anthropic_messages": [
        TypeAdapter(message_create_params.MessageCreateParamsNonStreaming),
        TypeAdapter(beta_message_create_params.MessageCreateParamsNonStreaming),
    ],
    "openai_chat": [TypeAdapter(completion_create_params.CompletionCreateParamsNonStreaming)],
    "openai_responses": [TypeAdapter(response_create_params.ResponseCreateParamsNonStreaming)],
}


def read_out(value: object) -> object:
    """Read lists that are checked item by item as they are read."""
    if isinstance(value, dict):
        return {key: read_out(item) for key, item in value.items()}
    if isinstance(value, list | Iterator) or type(value).__name__ == "ValidatorIterator":
        return [read_out(item) for item in value]
    return value


def accept(wire: str, body: dict) -> None:
    """Check a body with every type that the SDK has for it. Raises what that raises."""
    if wire in TYPED:
        for adapter in TYPED[wire]:
            read_out(adapter.validate_python(body))
    elif wire == "bedrock_converse":
        shape = MODEL.operation_model("Converse").input_shape
        report = ParamValidator().validate({"modelId": "m", **body}, shape)
        assert not report.has_errors(), report.generate_report()
    else:
        told = body["request"] if wire == "code_assist" else body
        for content in told["contents"]:
            gemini_types.Content.model_validate(content)
        gemini_types.GenerationConfig.model_validate(told["generationConfig"])


def limited(wire: str, body: dict) -> dict:
    """Give a body a limit, thinking, and marks for an hour, where its format has them."""
    match wire:
        case "anthropic_messages":
            more = {
                "max_tokens": 9000,
                "thinking": THINKS,
                "system": [{"type": "text", "text": "s", "cache_control": HOUR}],
            }
        case "openai_chat":
            more = {"max_completion_tokens": 9000}
        case "openai_responses":
            more = {"max_output_tokens": 9000}
        case "bedrock_converse":
            more = {
                "inferenceConfig": {"maxTokens": 9000},
                "additionalModelRequestFields": {"thinking": THINKS},
                "system": [{"text": "s"}, {"cachePoint": {"type": "default", "ttl": "1h"}}],
            }
        case "code_assist":
            return body | {"request": limited("gemini", body["request"])}
        case _:
            more = {"generationConfig": {"maxOutputTokens": 9000, "thinkingConfig": {"thinkingBudget": 8000}}}
    return more | body


@pytest.mark.parametrize("wire", [*TYPED, "bedrock_converse", "gemini", "code_assist"])
@settings(max_examples=25)
@given(turns=TURNS, limit=st.integers(1025, 8999))
def test_types_accept_a_body_that_is_lowered_lightened_and_for_another_model(wire: str, turns: list[Turn], limit: int):
    told, speaker = limited(wire, body_of(wire, "task", turns)), wire_named(wire)
    accept(wire, told)

    request = asked(wire, told)
    lowered = speaker.rewrite(request, Rewrite(limit))
    made = speaker.lightened(asked(wire, lowered), cache_5m=True, trim=len(turns)) or lowered
    other = speaker.with_model(asked(wire, made), "anthropic.other")

    assert other is not None
    accept(wire, json.loads(other.body))
    parsed = speaker.parse(other)
    assert parsed.output_limit == limit
    assert limit >= speaker.least_output(parsed)


@pytest.mark.parametrize(
    ("wire", "wrong"),
    [
        ("anthropic_messages", {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": 5}]}]}),
        ("anthropic_messages", {"system": [{"type": "text", "text": "s", "cache_control": {"ttl": "2h"}}]}),
        ("openai_chat", {"messages": [{"role": "tool", "tool_call_id": "a", "content": 5}]}),
        ("openai_responses", {"input": [{"type": "function_call_output", "call_id": "a", "output": 5}]}),
        ("bedrock_converse", {"messages": [{"role": "user", "content": [{"toolResult": {"content": "x"}}]}]}),
        ("gemini", {"contents": [{"parts": [{"functionResponse": {"response": "x"}}]}]}),
    ],
)
def test_types_do_not_accept_what_is_wrong_deep_in_a_body(wire: str, wrong: dict[str, Any]):
    with pytest.raises((ValidationError, AssertionError)):
        accept(wire, limited(wire, body_of(wire, "task", [])) | wrong)

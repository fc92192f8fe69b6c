"""Converse requests: what is bounded, what is hidden, what is refused by name, and what changes in a body."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from lockpin_core.call import Parsed, Refusal, Request, Rewrite, Terms
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire import wire_named

WIRE = wire_named("bedrock_converse")
HI = [{"role": "user", "content": [{"text": "hi"}]}]
SIGNED = {"authorization": "AWS4-HMAC-SHA256 Credential=AK/20261101/us-east-1/bedrock/aws4_request, Signature=0"}
CLAUDE, NOVA = "us.anthropic.claude-opus-5-5", "us.amazon.nova-lite-v1:0"


def request(body: object, model: str = CLAUDE, *, headers: dict | None = None, stream: bool = False) -> Request:
    path = f"/model/{model}/converse{'-stream' if stream else ''}"
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request("POST", "bedrock-runtime.us-east-1.amazonaws.com", path, headers or {}, raw, model)


def parse(more: dict | None = None, model: str = CLAUDE, **how: object) -> Parsed:
    return WIRE.parse(request({"messages": HI, **(more or {})}, model, **how))


def content(*blocks: dict) -> dict:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


def refused(more: dict, model: str = CLAUDE) -> WireError:
    with pytest.raises(WireError) as found:
        parse(more, model)
    return found.value


def test_model_and_stream_come_from_the_path_and_the_limit_from_the_body():
    found = parse({"inferenceConfig": {"maxTokens": 500}}, stream=True)

    assert (found.model, found.streamed, found.output_limit, found.clamped) == (CLAUDE, True, 500, False)
    assert (found.output_settable, found.attested) == (True, False)
    assert parse().output_limit is None
    assert not parse().streamed


def test_a_signed_body_passes_as_it_is():
    found = parse(headers=SIGNED)

    assert (found.output_settable, found.attested) == (False, True)


def test_a_body_that_was_signed_beforehand_passes_as_it_is():
    found = WIRE.parse(replace(request({"messages": HI}), presigned=True))

    assert (found.output_settable, found.attested) == (False, True)


@pytest.mark.parametrize(
    "block",
    [
        lambda value: {"toolUse": {"toolUseId": "t", "name": "n", "input": {"x": value}}},
        lambda value: {"toolResult": {"toolUseId": "t", "content": [{"json": {"x": value}}]}},
        lambda value: {"citationsContent": {"content": [{"text": value}]}},
        lambda value: {"citationsContent": {"citations": [{"title": value}]}},
    ],
    ids=["use", "result", "content", "citations"],
)
def test_json_in_a_message_counts_as_the_escapes_that_a_template_may_write(block: Callable[[str], dict]):
    """A character beyond ASCII is six for each half, of which there are two beyond the first plane."""
    bare = parse(content(block("")), NOVA).content.text_bytes

    assert parse(content(block("\U0001f600" * 100)), NOVA).content.text_bytes == bare + 1200
    assert parse(content(block("\u00fc" * 100)), NOVA).content.text_bytes == bare + 600


@pytest.mark.parametrize("limit", [0, -1, 1.5, "9", 10**10, [1]])
def test_a_limit_that_is_none_is_a_bad_request(limit: object):
    assert refused({"inferenceConfig": {"maxTokens": limit}}).code == "bad_request"


@pytest.mark.parametrize("messages", [None, "x", {}, 5])
def test_messages_are_needed(messages: object):
    assert refused({"messages": messages}).code == "bad_request"


def test_every_text_is_counted_with_its_keys():
    found = parse({"system": [{"text": "sé"}], **content({"text": "hi"}, {"text": ""})}).content

    shown = ["messages", "role", "user", "content", "text", "hi", "text", "", "system", "text", "sé"]
    assert found.messages == 2
    assert (found.text_bytes, found.strings) == (sum(len(word.encode()) for word in shown), len(shown))
    assert found.hidden is None


@pytest.mark.parametrize(
    ("ttl", "units"),
    [
        (None, {Unit.INPUT, Unit.CACHE_WRITE_5M}),
        ("5m", {Unit.INPUT, Unit.CACHE_WRITE_5M}),
        ("1h", {Unit.INPUT, Unit.CACHE_WRITE_5M, Unit.CACHE_WRITE_1H}),
    ],
)
def test_a_cache_point_writes_wherever_it_stands(ttl: str | None, units: set):
    point = {"cachePoint": {"type": "default", **({"ttl": ttl} if ttl else {})}}
    spec = {"toolSpec": {"name": "f", "inputSchema": {"json": {}}}}

    for more in ({"system": [point]}, content({"text": "x"}, point), {"toolConfig": {"tools": [spec, point]}}):
        assert parse(more).prompt_units == units


@pytest.mark.parametrize("point", [{"type": "other"}, {"ttl": "1d"}, {"type": "default", "scope": "x"}])
def test_a_cache_point_of_another_kind_is_refused(point: dict):
    assert refused(content({"cachePoint": point})).code == "unpriced_tool"


def test_models_of_other_makers_may_write_to_their_cache_unasked():
    assert parse().prompt_units == {Unit.INPUT}
    assert parse(model=NOVA).prompt_units == {Unit.INPUT, Unit.CACHE_WRITE_5M}


@pytest.mark.parametrize("model", ["xai.grok-4.7", "us.xai.grok-4.7"])
def test_what_xais_models_reason_may_come_beside_the_limit(model: str):
    assert parse(model=model).beyond_limit
    assert not parse().beyond_limit
    assert not parse(model=NOVA).beyond_limit


PNG = base64.b64encode(
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR" + (640).to_bytes(4) + (480).to_bytes(4) + b"\x08\x02\x00\x00\x00"
).decode()


def test_an_image_is_measured_and_its_bytes_are_no_text():
    shown = parse(content({"image": {"format": "png", "source": {"bytes": PNG}}})).content
    blind = parse(content({"image": {"format": "png", "source": {"bytes": "AA"}}})).content

    assert [(image.width, image.height) for image in shown.images] == [(640, 480)]
    assert shown.text_bytes == blind.text_bytes < 100
    assert [(image.width, image.height) for image in blind.images] == [(None, None)]
    assert parse(content({"image": {"format": "png"}})).content.images == blind.images


S3 = {"s3Location": {"uri": "s3://b/k", "bucketOwner": "1"}}


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ({"image": {"format": "png", "source": S3}}, "file"),
        ({"document": {"format": "pdf", "name": "d", "source": {"bytes": "AA"}}}, "document"),
        ({"document": {"format": "pdf", "name": "d", "source": S3}}, "file"),
        ({"video": {"format": "mp4", "source": {"bytes": "AA"}}}, "video"),
        ({"audio": {"format": "mp3", "source": {"bytes": "AA"}}}, "audio"),
        ({"toolResult": {"toolUseId": "t", "content": [{"video": {"format": "mp4", "source": S3}}]}}, "file"),
        ({"document": {"name": "d", "source": {"text": "t"}, "fileReference": "x"}}, "reference"),
    ],
)
def test_what_the_body_does_not_show_hides_input(block: dict, reason: str):
    assert parse(content(block)).content.hidden in (reason, "video")


def test_a_document_that_is_text_hides_nothing():
    for source in ({"text": "some words"}, {"content": [{"text": "some words"}]}):
        found = parse(content({"document": {"name": "d", "source": source}})).content
        assert found.hidden is None
        assert found.text_bytes > len("some words")


def test_sound_must_have_a_price():
    assert Unit.AUDIO_IN in parse(content({"audio": {"format": "mp3", "source": {"bytes": "AA"}}})).prompt_units


def test_tools_are_counted_as_they_are_written_and_explained():
    tools = {"tools": [{"toolSpec": {"name": "f", "description": "d" * 50, "inputSchema": {"json": {"é": 1}}}}]}

    plain, found = parse().content, parse({"toolConfig": tools}).content

    assert found.schema_bytes == len(json.dumps(tools)) > 100
    assert found.extra_tokens - plain.extra_tokens == 1000
    assert found.text_bytes == plain.text_bytes + len("toolConfig")


def test_a_reply_format_is_counted_as_schema():
    config = {"effort": "low", "textFormat": {"type": "json_schema", "structure": {"jsonSchema": {"schema": "x" * 99}}}}

    assert parse({"outputConfig": config}).content.schema_bytes == len(json.dumps(config))


def test_what_is_for_the_records_is_not_counted():
    notes = {"requestMetadata": {"a": "b" * 99}, "additionalModelResponseFieldPaths": ["/" + "c" * 99]}

    found = parse(notes).content

    assert found.text_bytes == parse().content.text_bytes + sum(map(len, notes))


FOR_MODEL = "additionalModelRequestFields"


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking": {"type": "enabled", "budget_tokens": 4000}},
        {"thinking": {"type": "adaptive", "display": "omitted"}},
        {"reasoning_config": {"type": "enabled", "budget_tokens": 4000}},
        {"reasoning_effort": "high"},
        {"top_k": 5, "topK": 5, "inferenceConfig": {"topK": 5}},
        {"anthropic_beta": ["interleaved-thinking-2025-05-14"], "output_config": {"effort": "low"}},
        {"tools": [{"type": "computer_20251124", "name": "computer", "display_width_px": 1}], "tool_choice": {}},
    ],
)
def test_fields_for_the_model_that_cost_nothing_by_themselves_pass(fields: dict):
    found = parse({FOR_MODEL: fields})

    assert found.content.schema_bytes >= len(json.dumps(fields))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"max_tokens": 100_000}, '"max_tokens"'),
        ({"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}}, '"reasoningConfig"'),
        ({"inferenceConfig": {"maxTokens": 9}}, '"maxTokens"'),
        ({"mcp_servers": [{"url": "x"}]}, '"mcp_servers"'),
        ({"speed": "fast"}, '"speed"'),
        ({"anthropic_beta": ["output-128k-2025-02-19"]}, "more output than the model's maximum"),
        ({"anthropic_beta": ["x", "Output-300K"]}, "more output than the model's maximum"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, '"web_search_20250305"'),
        ({"thinking": {"type": "enabled", "budget": 5}}, '"budget"'),
    ],
)
def test_other_fields_for_the_model_are_refused_by_name(fields: dict, named: str):
    error = refused({FOR_MODEL: fields})

    assert error.code == "unpriced_tool"
    assert named in str(error)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"guardrailConfig": {"guardrailIdentifier": "g", "guardrailVersion": "1"}}, "a guardrail is billed"),
        ({"promptVariables": {"a": {"text": "x"}}}, "a prompt that Amazon keeps"),
        ({"toolConfig": {"tools": [{"systemTool": {"name": "nova_grounding"}}]}}, '"systemTool"'),
        ({"toolConfig": {"tools": [{"newTool": {}}]}}, '"newTool"'),
        (content({"news": {}}), '"news"'),
        (content({"document": {"name": "d", "source": {"url": "x"}}}), '"url"'),
        ({"system": [{"image": {}}]}, '"image"'),
        ({"newFeature": {"a": 1}}, '"newFeature"'),
        ({"inferenceConfig": {"maxThinkingTokens": 9}}, '"maxThinkingTokens"'),
        ({"messages": [{"role": "user", "content": [{"text": "x"}], "cachePoint": "x"}]}, '"cachePoint"'),
    ],
)
def test_what_may_cost_is_refused_by_name(more: dict, named: str):
    error = refused(more)

    assert error.code == "unpriced_tool"
    assert named in str(error)


@pytest.mark.parametrize(
    "more",
    [
        {"messages": [{"role": "user", "content": "hi"}]},
        {"messages": ["hi"]},
        content("hi"),
        content({"text": 5}),
        {"system": "be brief"},
        {"toolConfig": "x"},
    ],
)
def test_another_form_is_a_bad_request(more: dict):
    assert refused(more).code == "bad_request"


def test_an_absent_or_empty_part_asks_for_nothing():
    found = parse({"guardrailConfig": None, "newFeature": {}, "newWord": "x", **content({"text": "x", "image": None})})

    assert found.content.images == ()


def test_a_body_that_is_nested_without_end_is_a_bad_request():
    deep = (
        b'{"messages": [{"role": "user", "content": [{"toolUse": {"input": ' + b"[" * 10**5 + b"]" * 10**5 + b"}}]}]}"
    )

    with pytest.raises(WireError, match="nested too deeply"):
        WIRE.parse(request(deep))


def test_tier_and_latency_are_terms():
    found = parse({"serviceTier": {"type": "priority"}, "performanceConfig": {"latency": "optimized"}})

    assert found.terms == Terms(tier="priority", speed="optimized")
    assert parse({"serviceTier": None, "performanceConfig": {}}).terms == Terms()
    assert refused({"serviceTier": {"type": "a\nb"}}).code == "bad_request"


# Changes


def change(body: str, limit: int) -> str:
    asked = request(body.encode())
    found = WIRE.rewrite(asked, Rewrite(limit))
    assert found == WIRE.rewrite(asked, Rewrite(limit), parsed=WIRE.parse(asked))
    return found.decode()


MESSAGES = '"messages": [{"role": "user", "content": [{"text": "h\\u00e9"}]}]'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{%s}", '{"inferenceConfig":{"maxTokens":2000},%s}'),
        ('{%s, "inferenceConfig": null}', '{%s, "inferenceConfig": {"maxTokens":2000}}'),
        ('{"inferenceConfig": {}, %s}', '{"inferenceConfig": {"maxTokens":2000}, %s}'),
        (
            '{"inferenceConfig": {"topP": 0.50}, %s}',
            '{"inferenceConfig": {"maxTokens":2000,"topP": 0.50}, %s}',
        ),
        ('{%s, "inferenceConfig": {"maxTokens": 9000 } }', '{%s, "inferenceConfig": {"maxTokens": 2000 } }'),
    ],
)
def test_a_limit_is_set_where_it_belongs_and_nothing_else_changes(before: str, after: str):
    assert change(before.replace("%s", MESSAGES), 2000) == after.replace("%s", MESSAGES)


@pytest.mark.parametrize("key", ["thinking", "reasoning_config"])
def test_a_thinking_budget_stays_below_the_limit(key: str):
    fields = f'"{FOR_MODEL}": {{"top_k": 5, "{key}": {{"type": "enabled", "budget_tokens": %d}}}}'
    before = "{" + MESSAGES + ', "inferenceConfig": {"maxTokens": 9000}, ' + fields + "}"

    assert change(before % 5000, 2000) == (before % 1999).replace("9000", "2000")
    assert change(before % 1024, 2000) == (before % 1024).replace("9000", "2000")
    with pytest.raises(WireError, match="does not fit below 1024"):
        change(before % 5000, 1024)


def test_without_a_new_limit_nothing_changes():
    asked = request({"messages": HI})

    assert WIRE.rewrite(asked, Rewrite(ask_usage=True)) is asked.body


def test_it_is_the_same_call_whatever_its_limit_its_budget_and_its_stream():
    def digest(limit: int, budget: int, *, stream: bool = False, text: str = "hi") -> bytes:
        thinking = {FOR_MODEL: {"thinking": {"type": "enabled", "budget_tokens": budget}}}
        body = {"inferenceConfig": {"maxTokens": limit}, **content({"text": text}), **thinking}
        return WIRE.same_call(request(body, stream=stream))

    assert digest(9, 8) == digest(99, 88) == digest(9, 8, stream=True)
    assert digest(9, 8) != digest(9, 8, text="ho")


# Counting


def test_the_prompt_is_counted_by_the_model_as_it_is_written():
    body = '{"inferenceConfig": {"maxTokens": 9}, "system": [{"text": "s"}], %s, "toolConfig": null}'

    found = WIRE.count_request(request(body.replace("%s", MESSAGES).encode()))

    assert found.path == "/model/anthropic.claude-opus-5-5/count-tokens"
    assert found.body.decode() == '{"input":{"converse":{%s,"system":[{"text": "s"}]}}}'.replace(
        "%s", MESSAGES.replace('s": [', 's":[', 1)
    )
    assert WIRE.read_count(b'{"inputTokens":42}') == 42


def test_nothing_is_counted_where_the_count_would_leave_something_out():
    assert WIRE.count_request(request({"messages": HI}, NOVA)) is None
    assert WIRE.count_request(request({"messages": HI, "outputConfig": {"effort": "low"}})) is None


def test_a_refusal_is_in_amazons_shape():
    reply = WIRE.refuse(Refusal("budget_exceeded", 402, "lockpin: too much"), {"code": "budget_exceeded"})

    assert json.loads(reply.body) == {"message": "lockpin: too much", "lockpin": {"code": "budget_exceeded"}}
    assert reply.headers["x-amzn-errortype"] == "ServiceQuotaExceededException"
    assert WIRE.error_code(b'{"__type":"ThrottlingException"}') == "ThrottlingException"

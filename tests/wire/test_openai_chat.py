import base64
import io
import json
import struct
import wave
from pathlib import Path

import pytest

from lockpin_core.call import Image, Parsed, Request, Rewrite, Terms
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.openai_chat import OpenAIChat

DATA = Path(__file__).resolve().parent.parent / "data" / "openai_chat"
WIRE = OpenAIChat()
HELLO = [{"role": "user", "content": "hello"}]
SHORT = {Unit.INPUT, Unit.CACHE_WRITE_30M}
TEXT = {"type": "text", "text": "x"}
LONG = SHORT | {Unit.CACHE_WRITE_12H}


def request(body: object) -> Request:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request("POST", "api.openai.com", "/v1/chat/completions", {}, raw)


def parse(**fields: object) -> Parsed:
    return WIRE.parse(request({"model": "gpt-5.5", "messages": HELLO, **fields}))


def parse_parts(*parts: object) -> Parsed:
    return parse(messages=[{"role": "user", "content": list(parts)}])


def refused(**fields: object) -> WireError:
    with pytest.raises(WireError) as raised:
        parse(**fields)
    return raised.value


def test_plain_request_is_read():
    parsed = parse()

    assert parsed.model == "gpt-5.5"
    assert not parsed.streamed
    assert parsed.output_limit is None
    assert parsed.choices == 1
    assert parsed.extra_output == 0
    assert parsed.output_settable
    assert parsed.asks_usage
    assert parsed.prompt_units == SHORT
    assert parsed.output_units == {Unit.OUTPUT}
    assert parsed.terms == Terms()


def test_text_is_counted_by_its_bytes():
    content = parse(messages=[{"role": "user", "content": [{"type": "text", "text": "héllo"}]}]).content

    keys = "modelgpt-5.5messagesroleusercontenttypetexttext"
    assert content.text_bytes == len(keys) + 6
    assert content.strings == 10
    assert content.messages == 1


@pytest.mark.parametrize("field", ["max_completion_tokens", "max_tokens"])
def test_either_limit_is_read(field: str):
    assert parse(**{field: 5}).output_limit == 5
    assert parse(**{field: None}).output_limit is None


def test_newer_limit_wins_over_a_null():
    assert parse(max_tokens=None, max_completion_tokens=5).output_limit == 5


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 5, "max_completion_tokens": 5},
        {"max_tokens": 0, "max_completion_tokens": 5},
        {"max_tokens": -1},
        {"max_completion_tokens": 1.0},
        {"max_completion_tokens": "5"},
        {"max_completion_tokens": True},
        {"max_completion_tokens": 10**10},
        {"n": 0},
        {"n": 129},
        {"n": "2"},
        {"n": 2.0},
        {"best_of": -1},
        {"messages": {}},
        {"messages": [1]},
        {"model": []},
        {"stream": "yes"},
        {"stream": True, "stream_options": [1]},
        {"stream": True, "stream_options": {"include_usage": "true"}},
        {"stream": True, "stream_options": {"includeUsage": True, "include_usage": 1}},
        {"service_tier": 3},
        {"modalities": "audio"},
        {"maxTokens": 5},
        {"MAX_COMPLETION_TOKENS": 5},
        {"N": 4},
        {"tools": {}},
        {"tools": [1]},
        {"tools": "auto"},
        {"audio": "alloy"},
        {"reasoning": "high"},
        {"thinking": "enabled"},
        {"prediction": "x"},
        {"response_format": "json_object"},
        {"prompt_cache_options": "explicit"},
        {"messages": [{"role": "assistant", "audio": "audio_1"}]},
        {"messages": [{"role": "assistant", "tool_calls": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "file", "file": "file_1"}]}]},
        {"messages": [{"role": "user", "content": [{**TEXT, "prompt_cache_breakpoint": "explicit"}]}]},
        {"messages": [{"role": "user", "content": [{**TEXT, "prompt_cache_breakpoint": True}]}]},
        {"messages": [{"role": "user", "content": [{**TEXT, "cache_control": "ephemeral"}]}]},
        {"model": "m\ud800"},
        {"model": "m\r\nx: 1"},
        {"model": "m" * 257},
        {"service_tier": "flex\n"},
        {"service_tier": "\udc80"},
        {"service_tier": "x" * 257},
        {"prompt_cache_retention": "\ud800"},
    ],
)
def test_malformed_request_is_a_bad_request(fields: dict):
    assert refused(**fields).code == "bad_request"


def nested(field: str, depth: int) -> bytes:
    return b'{"model":"m","messages":[{"%b":' % field.encode() + b"[" * depth + b"]" * depth + b"}]}"


@pytest.mark.parametrize(("field", "depth"), [("remarks", 1350), ("remarks", 300_000), ("reasoning_details", 300_000)])
def test_nesting_that_no_walk_survives_is_a_bad_request(field: str, depth: int):
    with pytest.raises(WireError, match="nested too deeply"):
        WIRE.parse(request(nested(field, depth)))


def test_nesting_that_is_walked_is_counted_bracket_by_bracket():
    """Deeper than Python calls may be nested; a bracket is a byte, and a token at most."""
    assert WIRE.parse(request(nested("reasoning_details", 1350))).content.text_bytes >= 2 * 1350


@pytest.mark.parametrize(
    "fields",
    [
        {"web_search_options": {}},
        {"plugins": [{"id": "web"}]},
        {"models": ["a", "b"]},
        {"provider": {"max_price": {"prompt": 99}}},
        {"provider": {"brand_new": True}},
        {"provider": {"only": [{"a": 1}]}},
        {"reasoning": {"max_tokens": {"a": 1}}},
        {"reasoning": {"budget_tokens": 9000}},
        {"extra_body": {"google": {"cached_content": "c"}}},
        {"extra_body": {"other": {}}},
        {"extra_body": {"google": {"thinking_config": {"brand_new": 1}}}},
        {"search_parameters": {"mode": "auto"}},
        {"search_parameters": {}},
        {"safety_model": "m"},
        {"reasoning": {"mode": "pro"}},
        {"reasoning": {"mode": "ultra"}},
        {"reasoning": {"budget": 9000}},
        {"reasoning": {"context": "all_turns"}},
        {"reasoning_mode": "pro"},
        {"reasoning_max_tokens": 9000},
        {"max_reasoning_tokens": 9000},
        {"thinking": {"type": "enabled", "mode": "pro"}},
        {"enable_search": True},
        {"enable_code_interpreter": True},
        {"code_interpreter_options": "x"},
        {"search": "auto"},
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"conversation": {"id": "conv_1"}},
        {"prompt": "pmpt_1"},
        {"prompt": {"id": "pmpt_1"}},
        {"prompt_cache_options": {"mode": "explicit", "prewarm": True}},
        {"brand_new": {"a": 1}},
        {"brand_new": [1]},
        {"tools": [{"type": "web_search"}]},
        {"tools": [{"type": "mcp", "server_label": "x"}]},
        {"tools": [{"type": "something_new"}]},
        {"messages": [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": "x"}}]}]},
        {"messages": [{"role": "user", "content": "x", "brand_new_tools": {"a": 1}}]},
        {"messages": [{"role": "user", "content": "x", "brand_new": {"cache_control": {"type": "ephemeral"}}}]},
        {"messages": [{"role": "user", "content": [{**TEXT, "brand_new": {"a": 1}}]}]},
        {"new_tool": {}},
        {"search_plus": []},
        {"modalities": ["video"]},
        {"prompt_cache_options": {"ttl": "7d"}},
        {"prompt_cache_retention": "7d"},
        {"model": "gpt-4o-search-preview-2025-03-11"},
        {"model": "gpt-5-search-api"},
        {"model": "openai/gpt-5.5:online"},
        {"model": "openai/gpt-5.5@preset/mine"},
        {"preset": "mine"},
        {"search_settings": {"country": "x"}},
        {"compound_custom": {"models": {}}},
        {"response_format": {"type": "something_new"}},
    ],
)
def test_what_cannot_be_bounded_is_unpriced(fields: dict):
    assert refused(**fields).code == "unpriced_tool"


def test_choices_multiply():
    assert parse(n=3).choices == 3
    assert parse(n=None).choices == 1
    assert parse(n=2, best_of=5).choices == 5


@pytest.mark.parametrize(
    ("fields", "asks"),
    [
        ({}, True),
        ({"stream": False}, True),
        ({"stream": True}, False),
        ({"stream": True, "stream_options": None}, False),
        ({"stream": True, "stream_options": {"include_usage": False}}, False),
        ({"stream": True, "stream_options": {"include_usage": True}}, True),
    ],
)
def test_stream_asks_for_usage_or_not(fields: dict, asks: bool):
    assert parse(**fields).asks_usage is asks


def test_schemas_are_counted_by_their_bytes():
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    fields = {
        "tools": [{"type": "function", "function": function}, {"type": "custom", "custom": {"name": "c"}}],
        "functions": [function],
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}},
    }

    content = parse(**fields).content

    assert content.schema_bytes == sum(len(json.dumps(value)) for value in fields.values())
    assert content.text_bytes == parse().content.text_bytes + sum(map(len, fields))


def test_image_is_one_image_and_its_bytes_are_no_text():
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9000, "detail": "high"}}

    content = parse_parts(part, part).content

    assert len(content.images) == 2
    assert content.text_bytes < 300


@pytest.mark.parametrize("file", [{"file_id": "f"}, {"file_data": "A" * 9000, "filename": "x.pdf"}])
def test_file_hides_input(file: dict):
    content = parse_parts({"type": "file", "file": file}).content

    assert content.hidden == "file"
    assert content.text_bytes < 300


def wav(seconds: int) -> str:
    raw = io.BytesIO()
    with wave.open(raw, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8_000)
        sound.writeframes(b"\1\2" * 8_000 * seconds)
    return base64.b64encode(raw.getvalue()).decode()


def test_uncompressed_sound_is_counted_by_its_length():
    sound = {"data": wav(10), "format": "wav"}

    parsed = parse_parts({"type": "input_audio", "input_audio": sound}, {"type": "input_audio", "input_audio": sound})

    assert parsed.content.hidden is None
    assert parsed.content.extra_tokens == 2 * 30 * 64
    assert parsed.prompt_units == SHORT | {Unit.AUDIO_IN}
    assert parse_parts({"type": "input_audio", "input_audio": {**sound, "format": "mp3"}}).content.hidden == "audio"


def test_size_of_an_image_is_seen_where_its_bytes_are_there():
    header = b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR" + struct.pack(">II", 640, 480) + b"\x08\x02\0\0\0" + b"\0" * 40
    url = "data:image/png;base64," + base64.b64encode(header).decode()

    content = parse_parts(
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
        {"type": "image_url", "image_url": url},
        {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "high"}},
    ).content

    assert content.images == (Image(640, 480, "low"), Image(640, 480), Image(None, None, "high"))


def test_model_that_the_path_names_is_the_one():
    body = json.dumps({"messages": HELLO}).encode()
    both = json.dumps({"model": "other", "messages": HELLO}).encode()

    for raw in (body, both):
        at = Request("POST", "h", "/openai/deployments/My-Dep/chat/completions", {}, raw, path_model="My-Dep")
        assert WIRE.parse(at).model == "My-Dep"
    with pytest.raises(WireError, match="model is null"):
        WIRE.parse(request(body))


def test_texts_are_those_that_were_counted():
    body = {"model": "m", "messages": HELLO, "tools": [{"type": "function", "function": {"name": "long_name"}}]}

    texts = WIRE.texts(request(body))

    assert texts is not None
    assert sum(len(text.encode()) for text in texts) == WIRE.parse(request(body)).content.text_bytes
    assert "hello" in texts
    assert "long_name" not in texts


def test_texts_are_not_all_where_input_is_hidden():
    file = {"type": "file", "file": {"file_id": "f"}}

    assert WIRE.texts(request({"model": "m", "messages": [{"role": "user", "content": [file]}]})) is None


def test_same_call_is_known_whether_it_streams_and_whatever_its_limit():
    first = WIRE.same_call(request({"model": "m", "messages": HELLO, "max_tokens": 5}))

    assert first == WIRE.same_call(request({"model": "m", "messages": HELLO, "stream": True}))
    assert first == WIRE.same_call(request({"messages": HELLO, "max_completion_tokens": 7, "model": "m"}))
    assert first != WIRE.same_call(request({"model": "m", "messages": [*HELLO, *HELLO]}))


def test_sound_in_hides_input_and_may_be_billed_as_sound():
    parsed = parse_parts({"type": "input_audio", "input_audio": {"data": "A" * 9000, "format": "wav"}})

    assert parsed.content.hidden == "audio"
    assert parsed.prompt_units == SHORT | {Unit.AUDIO_IN}
    assert parsed.content.text_bytes < 300


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user", "content": [{**TEXT, "file_id": "file_1"}]}]},
        {"messages": [{"role": "user", "content": [{**TEXT, "attached": "file_1"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"file": "file_1"}}]}]},
        {"messages": [{"role": "user", "content": "x", "image_url": "https://x"}]},
        {"messages": [{"role": "user", "content": "x", "fileId": 7}]},
        {"conversation_id": "c"},
        {"previous_interaction_id": "i"},
        {"cached_content": "cachedContents/1"},
        {"context_id": "ctx"},
    ],
)
def test_reference_in_an_unknown_place_hides_input(fields: dict):
    assert parse(**fields).content.hidden == "reference"


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning": {"effort": "high", "mode": "standard", "max_tokens": None}},
        {"reasoning_mode": None},
        {"enable_thinking": False},
        {"search_parameters": {"mode": "off", "sources": [{"type": "web"}]}},
        {"extra_body": {"google": {"thinking_config": {"include_thoughts": True, "thinking_level": "low"}}}},
        {"previous_response_id": None, "prompt": None, "conversation": None},
        {"thinking": {"type": "disabled"}},
        {"transforms": ["middle-out"], "usage": {"include": True}},
        {"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": [TEXT], "closed": True}]}]},
        {"top_k": 5, "repetition_penalty": 1.5, "session_id": "s", "trace": "x", "enable_x": True},
        {"messages": [{"role": "user", "content": [{**TEXT, "id": "p", "index": 0}], "id": "m", "phase": "x"}]},
        {"tool_choice": "auto", "function_call": "none", "stop": "x"},
    ],
)
def test_plain_field_that_costs_no_more_passes(fields: dict):
    assert parse(**fields).content.hidden is None


def test_image_and_sound_as_plain_text_are_an_image_and_hidden_input():
    image, sound = {"type": "image_url", "image_url": "https://x"}, {"type": "input_audio", "input_audio": "AAAA"}

    assert len(parse_parts(image).content.images) == 1
    assert parse_parts(sound).content.hidden == "audio"


def test_message_of_a_refusal_can_always_be_written():
    for fields in ({"prompt_cache_retention": "7d\u20ac"}, {"prompt_cache_options": {"ttl": "\ud800"}}):
        assert str(refused(**fields)).isascii()


def test_earlier_sound_hides_input():
    parsed = parse(messages=[{"role": "assistant", "audio": {"id": "a_1"}}])

    assert parsed.content.hidden == "audio"
    assert Unit.AUDIO_IN in parsed.prompt_units
    assert parse(messages=[{"role": "assistant", "content": "x", "audio": None}]).content.hidden is None


def test_sound_out_may_be_billed_as_sound():
    parsed = parse(modalities=["text", "audio"], audio={"voice": "alloy", "format": "wav"})

    assert parsed.output_units == {Unit.OUTPUT, Unit.AUDIO_OUT}
    assert parse(audio={"voice": "alloy", "format": "wav"}).output_units == {Unit.OUTPUT, Unit.AUDIO_OUT}
    assert parse(modalities=["text"], audio={}).output_units == {Unit.OUTPUT, Unit.AUDIO_OUT}
    assert parse(modalities=["text"], audio=None).output_units == {Unit.OUTPUT}


def test_prediction_may_be_billed_beside_the_limit_and_forbids_one():
    prediction = {"type": "content", "content": [{"type": "text", "text": "x" * 500}]}

    parsed = parse(prediction=prediction)

    assert 500 <= parsed.extra_output <= 600
    assert not parsed.output_settable
    assert parse(prediction=None).output_settable


@pytest.mark.parametrize(
    ("fields", "units"),
    [
        ({"prompt_cache_options": {"mode": "implicit"}}, SHORT),
        ({"prompt_cache_options": {"mode": "explicit"}}, {Unit.INPUT}),
        ({"prompt_cache_options": {"mode": "explicit", "ttl": "30m"}}, {Unit.INPUT}),
        ({"prompt_cache_options": {"ttl": "12h"}}, LONG),
        ({"prompt_cache_retention": "24h"}, LONG),
        ({"prompt_cache_retention": "in_memory"}, SHORT),
        ({"prompt_cache_retention": None}, SHORT),
    ],
)
def test_cache_writes_follow_the_options(fields: dict, units: set[Unit]):
    assert parse(**fields).prompt_units == units


@pytest.mark.parametrize(
    ("mark", "units"),
    [
        ({"mode": "explicit"}, SHORT),
        ({"mode": "explicit", "ttl": "30m"}, SHORT),
        ({"mode": "explicit", "ttl": "12h"}, LONG),
    ],
)
def test_breakpoint_in_a_part_asks_for_a_write(mark: dict, units: set[Unit]):
    part = {"type": "text", "text": "x", "prompt_cache_breakpoint": mark}

    parsed = parse(
        messages=[{"role": "tool", "tool_call_id": "t", "content": [part]}], prompt_cache_options={"mode": "explicit"}
    )

    assert parsed.prompt_units == units


def test_marker_of_a_whole_request_asks_for_anthropic_writes():
    assert parse(cache_control={"type": "ephemeral"}).prompt_units == SHORT | {Unit.CACHE_WRITE_5M}


def test_markers_that_gateways_pass_on_ask_for_anthropic_writes():
    part = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}}

    assert parse_parts(part).prompt_units == SHORT | {Unit.CACHE_WRITE_5M, Unit.CACHE_WRITE_1H}


def test_history_of_an_agent_is_counted():
    history = [
        {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "annotations": [],
            "reasoning_details": [{"type": "reasoning.text", "text": "hm"}],
            "tool_calls": [
                {
                    "id": "c",
                    "type": "function",
                    "function": {"name": "f", "arguments": "{}"},
                    "extra_content": {"google": {"thought_signature": "s"}},
                },
                {"id": "d", "type": "custom", "custom": {"name": "g", "input": "x"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "result"},
    ]

    content = parse(messages=history).content

    assert content.messages == 2
    assert content.hidden is None
    assert content.text_bytes > len("hmfresultgxthought_signature")


NESTED = {"a": ["é", 1.50, {"b": None}], "url": "https://x", "n": "日" * 9}


@pytest.mark.parametrize("field", ["parsed", "provider_specific_fields", "thinking_blocks", "brand_new"])
@pytest.mark.parametrize("value", [NESTED, [NESTED]])
def test_object_in_a_message_of_the_history_counts_by_its_json_bytes(field: str, value: object):
    plain = {"role": "assistant", "content": "x"}

    content = parse(messages=[{**plain, field: value}]).content

    bare = parse(messages=[plain]).content
    assert content.text_bytes == bare.text_bytes + len(field) + len(json.dumps(value))
    assert content.strings == bare.strings + 1 + 8
    assert content.hidden == ("reference" if field == "brand_new" else None)


def test_call_with_parsed_arguments_counts_by_its_json_bytes():
    function = {"name": "f", "arguments": '{"a": 1}', "parsed_arguments": {"a": ["é", {"b": None}]}}
    call = {"id": "c", "type": "function", "function": function, "provider_specific_fields": {"signature": "s"}}
    plain = {**call, "function": {}, "provider_specific_fields": {}}

    def size(*calls: dict) -> int:
        return parse(messages=[{"role": "assistant", "tool_calls": list(calls)}]).content.text_bytes

    added = len(json.dumps(function)) + len(json.dumps(call["provider_specific_fields"]))
    assert size(call) == size(plain) - 4 + added


def test_notes_of_an_mcp_server_count_by_their_bytes():
    notes = {"annotations": {"audience": ["user"]}, "_meta": {"a": [1]}}
    tools = [{"type": "function", "function": {"name": "f", **notes}, **notes}]

    part = parse_parts({**TEXT, **notes}).content

    added = sum(len(key) + len(json.dumps(value)) for key, value in notes.items())
    assert part.text_bytes == parse_parts({**TEXT}).content.text_bytes + added
    assert part.hidden is None
    assert parse(tools=tools).content.schema_bytes == len(json.dumps(tools))


@pytest.mark.parametrize("field", ["betas", "include", "extra_body"])
def test_empty_object_or_list_at_the_top_asks_for_nothing(field: str):
    assert parse(**{field: []}).content.hidden is None
    assert parse(**{field: {}}).content.text_bytes == parse().content.text_bytes + len(field)


def test_terms_are_read():
    assert parse(service_tier="flex").terms == Terms(tier="flex")


@pytest.mark.parametrize(
    ("raw", "field", "wanted"),
    [
        (b'{"model":"m"}', "max_tokens", b'{"max_tokens":7,"model":"m"}'),
        (b'{"model":"m"}', "max_completion_tokens", b'{"max_completion_tokens":7,"model":"m"}'),
        (b'{"max_tokens" : null}', "max_completion_tokens", b'{"max_tokens" : 7}'),
        (
            b'{"max_completion_tokens": null, "max_tokens": 9}',
            "max_tokens",
            b'{"max_completion_tokens": null, "max_tokens": 7}',
        ),
        (
            b'{"max_tokens": null, "max_completion_tokens": 9}',
            "max_tokens",
            b'{"max_tokens": null, "max_completion_tokens": 7}',
        ),
    ],
)
def test_limit_is_set_in_the_field_that_the_client_used(raw: bytes, field: str, wanted: bytes):
    assert WIRE.rewrite(request(raw), Rewrite(max_output=7), output_field=field) == wanted


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (b'{"a": 1 }', b'{"stream_options":{"include_usage":true},"a": 1 }'),
        (b'{"stream_options" : null }', b'{"stream_options" : {"include_usage":true} }'),
        (b'{"stream_options": { }}', b'{"stream_options": {"include_usage":true }}'),
        (
            b'{"stream_options": { "include_obfuscation" : false }}',
            b'{"stream_options": {"include_usage":true, "include_obfuscation" : false }}',
        ),
        (b'{"stream_options": {"include_usage" : false }}', b'{"stream_options": {"include_usage" : true }}'),
    ],
)
def test_f10_usage_is_asked_for_and_nothing_else_changes(raw: bytes, wanted: bytes):
    assert WIRE.rewrite(request(raw), Rewrite(ask_usage=True)) == wanted


@pytest.mark.parametrize("change", [Rewrite(7), Rewrite(7, ask_usage=True), Rewrite(ask_usage=True)])
@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens", "max_new_tokens"])
def test_rewriting_with_the_parsed_request_gives_the_same_bytes(change: Rewrite, field: str):
    for members in (
        '"messages": [{"role": "user", "content": "日本é"}], "model": "m"',
        '"max_tokens": null, "ü": 1, "model": "m", "messages": [ ], "stream_options" : {"é": 1}',
        '"model": "m", "max_completion_tokens" : null, "messages": []',
        '"model": "m", "messages": [], "max_new_tokens": 5',
    ):
        asks = request(f" {{ {members} }} ".encode())

        fast = WIRE.rewrite(asks, change, output_field=field, parsed=WIRE.parse(asks))

        assert fast == WIRE.rewrite(asks, change, output_field=field)
        assert json.loads(fast)["model"] == "m"


def test_no_change_is_the_same_body():
    assert WIRE.rewrite(request(b'{"a" :1}'), Rewrite()) == b'{"a" :1}'


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("error_400_unsupported_parameter", "unsupported_parameter"),
        ("error_401", "invalid_api_key"),
        ("error_402_openrouter", "402"),
        ("error_429_insufficient_quota", "credit_balance_exhausted"),
        ("error_429_rate_limit", "rate_limit_exceeded"),
        ("error_azure_400_content_filter", "content_filter"),
        ("error_azure_429", "429"),
    ],
)
def test_code_of_an_error_body_is_read(name: str, code: str):
    body = json.loads((DATA / f"{name}.json").read_text())["body"]

    assert WIRE.error_code(json.dumps(body).encode()) == code


def test_body_without_an_error_has_no_code():
    assert WIRE.error_code(b"") is None
    assert WIRE.error_code(b'{"error": null}') is None


@pytest.mark.parametrize(
    ("fields", "most", "beyond"),
    [
        ({"thinking_budget": 9000}, 9000, False),
        ({"enable_thinking": True, "thinking_budget": 9000, "n": 2}, 9000, False),
        ({"enable_thinking": True}, 0, True),
        ({"enable_thinking": False}, 0, False),
        ({"reasoning": {"max_tokens": 700}}, 700, False),
        ({"reasoning": {"max_tokens": 700}, "thinking_budget": 900}, 900, False),
        ({"extra_body": {"google": {"thinking_config": {"thinking_budget": 500}}}}, 500, False),
        ({"extra_body": {"google": {"thinking_config": {"thinking_budget": -1}}}}, 0, False),
        ({"prediction": {"type": "content", "content": "abc"}, "thinking_budget": 9}, 9, False),
    ],
)
def test_thinking_that_may_be_billed_beside_the_limit_is_noted(fields: dict, most: int, beyond: bool):
    parsed = parse(**fields)

    assert (parsed.thinking, parsed.beyond_limit, parsed.routed) == (most, beyond, False)
    assert parsed.has_budget is ("thinking_budget" in fields)
    assert bool(parsed.extra_output) is ("prediction" in fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"enable_thinking": "yes"},
        {"thinking_budget": -1},
        {"thinking_budget": 1.5},
        {"reasoning": {"max_tokens": "9"}},
        {"extra_body": {"google": {"thinking_config": {"thinking_budget": "9"}}}},
        {"extra_body": "x"},
        {"provider": "openai"},
    ],
)
def test_thinking_that_cannot_be_read_is_a_bad_request(fields: dict):
    assert refused(**fields).code == "bad_request"


ROUTING = {
    "order": ["a", "b"],
    "only": ["a"],
    "ignore": [],
    "quantizations": ["fp8"],
    "sort": "throughput",
    "data_collection": "deny",
    "allow_fallbacks": False,
    "require_parameters": True,
    "zdr": True,
}


def test_who_may_serve_a_call_is_no_text_and_is_said():
    plain, routed = parse(), parse(provider=ROUTING)

    assert (plain.routed, routed.routed, parse(provider={}).routed) == (False, True, False)
    assert routed.content.text_bytes == plain.content.text_bytes + len("provider")


@pytest.mark.parametrize(
    ("model", "draws"),
    [
        ("gemini-2.5-flash-image", True),
        ("google/gemini-3-pro-image-preview", True),
        ("nano-banana-2", True),
        ("gemini-2.5-flash", False),
        ("gpt-image-1", False),
    ],
)
def test_models_that_draw_may_answer_with_pictures(model: str, draws: bool):
    assert (Unit.IMAGE_OUT in parse(model=model).output_units) == draws


@pytest.mark.parametrize("field", ["user_security_context", "trace"])
def test_notes_for_a_log_pass_and_count_as_text(field: str):
    plain, noted = parse(), parse(**{field: {"application_name": "x" * 500}})

    assert noted.content.hidden is None
    assert noted.content.text_bytes >= plain.content.text_bytes + 500
    with pytest.raises(WireError, match="nested"):
        parse(**{field: {"a": {"b": 1}}})

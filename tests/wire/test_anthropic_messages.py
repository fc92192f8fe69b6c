import json
from pathlib import Path

import pytest

from lockpin_core.call import Parsed, Request, Rewrite, Terms
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.anthropic_messages import AnthropicMessages
from lockpin_core.wire.anthropic_shapes import CLIENT_TOOL_TOKENS, TOOL_USE_TOKENS, ToolSizes
from lockpin_core.wire.protocol import CountRequest

DATA = Path(__file__).resolve().parent.parent / "data" / "anthropic_messages"
WIRE = AnthropicMessages()
HELLO = [{"role": "user", "content": "hello"}]


def request(body: object, headers: dict[str, str] | None = None) -> Request:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request("POST", "api.anthropic.com", "/v1/messages", headers or {}, raw)


def parse(headers: dict[str, str] | None = None, **fields: object) -> Parsed:
    return WIRE.parse(request({"model": "claude-sonnet-5-5", "max_tokens": 9, "messages": HELLO, **fields}, headers))


def parse_blocks(*blocks: object) -> Parsed:
    return parse(messages=[{"role": "user", "content": list(blocks)}])


def refused(**fields: object) -> WireError:
    with pytest.raises(WireError) as raised:
        parse(**fields)
    return raised.value


def test_plain_request_is_read():
    parsed = parse(stream=True)

    assert parsed.model == "claude-sonnet-5-5"
    assert parsed.streamed
    assert parsed.output_limit == 9
    assert parsed.choices == 1
    assert parsed.asks_usage
    assert parsed.output_settable
    assert not parsed.attested
    assert parsed.prompt_units == {Unit.INPUT}
    assert parsed.output_units == {Unit.OUTPUT}
    assert parsed.fees == {}
    assert parsed.terms == Terms()


def test_text_is_counted_by_its_bytes():
    content = parse(messages=[{"role": "user", "content": "héllo"}], system="ab").content

    keys = "modelclaude-sonnet-5-5max_tokens9messagesroleusercontentsystemab"
    assert content.text_bytes == len(keys) + 6
    assert content.messages == 2
    assert content.strings == 11
    assert content.schema_bytes == content.extra_tokens == 0
    assert content.images == ()
    assert content.hidden is None


@pytest.mark.parametrize("limit", [0, 1, 10**9])
def test_limit_is_read_and_zero_is_legal(limit: int):
    assert parse(max_tokens=limit).output_limit == limit


def test_absent_limit_is_none():
    assert WIRE.parse(request({"model": "m", "messages": []})).output_limit is None
    assert parse(max_tokens=None).output_limit is None


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": -1},
        {"max_tokens": 10.0},
        {"max_tokens": "10"},
        {"max_tokens": True},
        {"max_tokens": 10**9 + 1},
        {"max_tokens": [1]},
        {"messages": None},
        {"messages": "hello"},
        {"messages": ["hello"]},
        {"messages": [{"role": "user", "content": ["hello"]}]},
        {"messages": [{"role": "user", "content": [{"type": 1}]}]},
        {"model": None},
        {"model": ""},
        {"model": 7},
        {"stream": "true"},
        {"stream": 1},
        {"tools": {"name": "x"}},
        {"tools": ["x"]},
        {"service_tier": 1},
        {"speed": []},
        {"fallbacks": {}},
        {"fallbacks": "any"},
        {"fallbacks": [{"max_tokens": 5}]},
        {"fallbacks": [{"model": "x", "max_tokens": -1}]},
        {"fallbacks": [{"model": "x", "speed": 1}]},
        {"mcp_servers": {}},
        {"container": []},
        {"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": "5"}]},
        {"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 1.5}]},
        {"tools": [{"type": "advisor_20260301", "name": "advisor"}]},
        {"tools": [{"type": "advisor_20260301", "name": "advisor", "model": "m", "max_tokens": -1}]},
        {"tools": [{"type": "mcp_toolset", "mcp_server_name": "x", "configs": ["a"]}]},
        {"maxTokens": 5},
        {"Max_Tokens": 5},
        {"MODEL": "x"},
        {"toolS": []},
        {"tools": "x"},
        {"thinking": "enabled"},
        {"output_config": "low"},
        {"context_management": "compact"},
        {"cache_control": "ephemeral"},
        {"tools": [{"name": "x", "input_schema": {}, "cache_control": "1h"}]},
        {"tools": [{"name": "x", "input_schema": {}, "allowed_callers": "code_execution_20250825"}]},
        {"messages": [{"role": "user", "content": [{"type": "document", "source": "file_1"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "image", "source": "https://x"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": "ephemeral"}]}]},
        {"model": "m\ud800"},
        {"model": "m\n"},
        {"model": "m" * 257},
        {"service_tier": "\udfff"},
        {"speed": "fast\x00"},
        {"inference_geo": "u" * 257},
    ],
)
def test_malformed_request_is_a_bad_request(fields: dict):
    assert refused(**fields).code == "bad_request"


def test_message_never_shows_text_of_the_request():
    assert "SECRET" not in str(refused(max_tokens="SECRET"))
    assert "SECRET" not in str(refused(messages=[{"role": "user", "content": ["SECRET"]}]))
    assert str(refused(max_tokens=-1)) == "max_tokens is -1; a whole number from 0 to 1000000000 is allowed"


@pytest.mark.parametrize("depth", [450, 100_000])
def test_nesting_that_no_walk_survives_is_a_bad_request(depth: int):
    start, end = b'[{"type":"tool_result","tool_use_id":"t","content":', b"}]"
    deep = b'{"model":"m","max_tokens":1,"messages":[{"content":' + start * depth + b"[]" + end * depth + b"}]}"

    with pytest.raises(WireError, match="nested too deeply") as raised:
        WIRE.parse(request(deep))

    assert raised.value.code == "bad_request"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("mcp_servers", [{"type": "url", "url": "https://x", "name": "x", "new": 1}]),
        ("container", {"skills": [], "new": "x"}),
        ("container", {"skills": [{"type": "custom", "skill_id": "s", "new": {"a": 1}}]}),
        ("compaction", {"type": "summarize", "new": "x"}),
        ("compaction", {"type": "replace"}),
        ("thread", {"type": "fork"}),
        ("thread", {"type": "create", "new": {"a": 1}}),
        ("fallbacks", [{"model": "x", "new": 1}]),
        ("fallback_credit_token", {"token": {"a": 1}}),
        ("billing_policy", {"type": "billing_policy", "bill_to": "user_profile"}),
        ("billing_policy", {"type": "billing_policy", "new": "x"}),
        ("context_management", {"edits": [{"type": "compact_20270101"}]}),
        ("context_management", {"edits": [{"type": "compact_20260112", "model": "x"}]}),
        ("context_management", {"edits": [{"type": "new_edit_2027"}]}),
        ("context_management", {"other": {}}),
        ("brand_new", {"a": 1}),
        ("brand_new", ["a"]),
        ("provider", {"max_price": {"prompt": 99}}),
        ("provider", {"brand_new": True}),
        ("thinking", {"type": "enabled", "new": {"a": 1}}),
        ("thinking", {"type": "enabled", "new": "pro"}),
        ("cache_control", {"type": "ephemeral", "new": 86400}),
        ("output_config", {"new": "pro"}),
    ],
)
def test_field_that_cannot_be_bounded_is_unpriced(field: str, value: object):
    assert refused(**{field: value}).code == "unpriced_tool"


@pytest.mark.parametrize(
    "kind", ["web_search_20990101", "advisor_20990101", "browser_toolset_20990101", "bash_20990101", "something_new"]
)
def test_tool_of_an_unknown_type_is_unpriced(kind: str):
    error = refused(tools=[{"type": kind, "name": "x"}])

    assert error.code == "unpriced_tool"
    assert kind in str(error)


def test_who_may_serve_a_call_is_no_text_and_is_said():
    plain, routed = parse(), parse(provider={"order": ["a", "b"], "sort": "price", "allow_fallbacks": False})

    assert (plain.routed, routed.routed, parse(provider={}).routed) == (False, True, False)
    assert routed.content.text_bytes == plain.content.text_bytes + len("provider")


def test_field_that_only_shrinks_or_is_empty_passes():
    edits = [
        {"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 3}, "exclude_tools": ["a"]},
        {"type": "clear_thinking_20251015", "keep": "all"},
    ]

    parsed = parse(context_management={"edits": edits}, mcp_servers=[], container=None, fallback_credit_token="t", x=1)

    assert parsed.content.hidden is None


@pytest.mark.parametrize("field", ["betas", "include", "extra_body", "brand_new"])
def test_empty_object_or_list_at_the_top_asks_for_nothing(field: str):
    assert parse(**{field: []}).content.hidden is None
    assert parse(**{field: {}}).content.text_bytes == parse().content.text_bytes + len(field)


@pytest.mark.parametrize("field", ["new_search", "model_pool", "server_side", "container_2"])
def test_empty_object_under_a_name_that_sounds_like_a_cost_is_unpriced(field: str):
    assert refused(**{field: {}}).code == "unpriced_tool"


def test_thread_that_begins_with_this_body_is_bounded_by_it():
    assert parse(thread={"type": "create"}).content.hidden is None
    assert parse(thread=None, fallbacks=[]).content.hidden is None


def test_thread_that_the_provider_kept_hides_input_and_may_write_any_cache():
    parsed = parse(thread={"type": "continue", "previous_message_id": "msg_1"})

    assert parsed.content.hidden == "thread"
    assert parsed.prompt_units == {Unit.INPUT, Unit.CACHE_WRITE_5M, Unit.CACHE_WRITE_1H}


def test_reply_that_is_sent_back_whole_counts_by_its_json_bytes():
    usage = {"input_tokens": 8, "cache_creation": {"ephemeral_5m_input_tokens": 0}, "service_tier": "standard", "é": []}
    message = {"role": "assistant", "content": [{"type": "text", "text": "x"}]}
    whole = {"id": "m", "type": "message", "model": "c", "stop_reason": "end_turn", "stop_sequence": None}

    bare = parse(messages=[message]).content
    plain = parse(messages=[{**message, **whole}]).content
    full = parse(messages=[{**message, **whole, "usage": usage, "container": None}]).content

    assert full.hidden is None
    assert plain.text_bytes == bare.text_bytes + len("idmtypemessagemodelcstop_reasonend_turnstop_sequence")
    assert full.text_bytes == plain.text_bytes + len("usagecontainer") + len(json.dumps(usage))


@pytest.mark.parametrize("field", ["_meta", "annotations"])
@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": "x"},
        {"type": "tool_use", "id": "i", "name": "n", "input": {}},
        {"type": "tool_result", "tool_use_id": "t", "content": "x"},
    ],
)
def test_notes_of_an_mcp_server_on_a_block_count_by_their_json_bytes(field: str, block: dict):
    notes = {"audience": ["user"], "priority": 0.5, "title": "日"}

    content = parse_blocks({**block, field: notes}).content

    assert content.hidden is None
    assert content.text_bytes == parse_blocks(block).content.text_bytes + len(field) + len(json.dumps(notes))


def test_notes_of_an_mcp_server_on_a_tool_count_as_schema():
    tools = [{"name": "f", "input_schema": {}, "annotations": {"readOnlyHint": True, "x": {}}, "_meta": {"a": [1]}}]

    assert parse(tools=tools).content.schema_bytes == len(json.dumps(tools))


@pytest.mark.parametrize("field", ["files", "cache", "tools", "source_url", "attachments", "file_ids", "model_options"])
def test_unknown_object_in_a_message_that_sounds_like_a_reference_or_a_cost_is_unpriced(field: str):
    assert refused(messages=[{"role": "user", "content": "x", field: {"a": 1}}]).code == "unpriced_tool"


def test_unknown_object_in_a_block_is_unpriced():
    assert refused(messages=[{"content": [{"type": "text", "text": "x", "new": {"a": 1}}]}]).code == "unpriced_tool"


class CountedTool(dict):
    looked_up = 0

    def get(self, *args: object) -> object:
        CountedTool.looked_up += 1
        return super().get(*args)


def test_each_tool_is_measured_once_for_any_number_of_references():
    tools = [CountedTool(name=f"t{i}") for i in range(300)]
    sizes = ToolSizes([*tools, CountedTool(name="t0"), "no tool", {"name": ["t1"]}])

    measured = [sizes[f"t{i}"] for i in range(600)]

    one = len('{"name": "t1"}')
    assert measured[:2] == [2 * one, one]
    assert measured[299:301] == [one + 2, 0]
    assert CountedTool.looked_up == 301


def test_custom_tool_counts_as_schema_by_its_bytes():
    tools = [{"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {"cache_control": {}}}}]

    parsed = parse(tools=tools)

    assert parsed.content.schema_bytes == len(json.dumps(tools))
    assert parsed.content.extra_tokens == TOOL_USE_TOKENS
    assert parsed.content.text_bytes == parse(tools=[]).content.text_bytes
    assert parsed.prompt_units == {Unit.INPUT}


@pytest.mark.parametrize(("kind", "tokens"), CLIENT_TOOL_TOKENS.items())
def test_tool_of_the_client_that_the_provider_defines_gets_an_allowance(kind: str, tokens: int):
    tool = {"type": kind, "name": "x", "cache_control": {"type": "ephemeral"}}

    assert parse(tools=[tool, tool]).content.extra_tokens == TOOL_USE_TOKENS + 2 * tokens


def test_image_is_one_image_and_its_bytes_are_no_text():
    data = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 9000}}
    url = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}
    file = {"type": "image", "source": {"type": "file", "file_id": "file_1"}}

    content = parse_blocks(data, url, file).content

    assert len(content.images) == 3
    assert content.text_bytes < 500
    assert content.hidden is None


def test_image_inside_a_tool_result_is_an_image():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 9000}}

    content = parse_blocks({"type": "tool_result", "tool_use_id": "t", "content": [image]}).content

    assert len(content.images) == 1
    assert content.text_bytes < 500


@pytest.mark.parametrize(
    "source",
    [
        {"type": "base64", "media_type": "application/pdf", "data": "A" * 9000},
        {"type": "url", "url": "https://x/y.pdf"},
        {"type": "file", "file_id": "file_1"},
    ],
)
def test_document_that_the_body_does_not_show_hides_input(source: dict):
    content = parse_blocks({"type": "document", "source": source}).content

    assert content.hidden == "document"
    assert content.text_bytes < 500


@pytest.mark.parametrize(
    "block",
    [
        {"type": "document"},
        {"type": "document", "source": None},
        {"type": "document", "file_id": "file_1"},
        {"type": "document", "source": {"type": "text", "data": "x", "file_id": "file_1"}},
        {"type": "image", "source": {"type": "url", "url": "https://x", "pages": "all"}},
        {"type": "text", "text": "x", "file_id": "file_1"},
        {"type": "tool_result", "tool_use_id": "t", "output_url": "https://x"},
    ],
)
def test_reference_in_an_unknown_place_hides_input(block: dict):
    assert parse_blocks(block).content.hidden is not None
    assert parse(messages=[{"role": "user", "content": "x", "file_id": "file_1"}]).content.hidden == "reference"


@pytest.mark.parametrize(
    "source",
    [
        {"type": "text", "media_type": "text/plain", "data": "x" * 900},
        {"type": "content", "content": "x" * 900},
        {"type": "content", "content": [{"type": "text", "text": "x" * 900}]},
    ],
)
def test_document_of_text_is_counted(source: dict):
    content = parse_blocks({"type": "document", "source": source, "citations": {"enabled": True}}).content

    assert content.hidden is None
    assert 900 < content.text_bytes < 1300


def test_unknown_source_is_unpriced():
    assert refused(messages=[{"content": [{"type": "image", "source": {"type": "cloud"}}]}]).code == "unpriced_tool"


def test_tool_input_is_counted_as_json():
    with_input = parse_blocks({"type": "tool_use", "id": "i", "name": "n", "input": {"a": ["\n", [1]]}}).content
    without = parse_blocks({"type": "tool_use", "id": "i", "name": "n", "input": {}}).content

    assert with_input.text_bytes - without.text_bytes == len('{"a": ["\\n", [1]]}') - 2


def test_tool_reference_counts_its_tool_again():
    tool = {"name": "f", "description": "d" * 100, "input_schema": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "tool_reference", "tool_name": "f"}]}

    twice = parse(tools=[tool], messages=[{"role": "user", "content": [result]}]).content
    unknown = parse(messages=[{"role": "user", "content": [result]}]).content

    assert twice.schema_bytes == len(json.dumps([tool])) + len(json.dumps(tool))
    assert twice.hidden is None
    assert unknown.hidden == "tool_reference"


def test_block_of_an_unknown_type_is_unpriced():
    error = refused(messages=[{"role": "assistant", "content": [{"type": "new_block"}]}])

    assert error.code == "unpriced_tool"
    assert "new_block" in str(error)


FIVE, HOUR = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}


@pytest.mark.parametrize(
    ("fields", "units"),
    [
        ({"cache_control": FIVE}, {Unit.INPUT, Unit.CACHE_WRITE_5M}),
        ({"cache_control": {**FIVE, "ttl": "5m"}}, {Unit.INPUT, Unit.CACHE_WRITE_5M}),
        ({"cache_control": HOUR}, {Unit.INPUT, Unit.CACHE_WRITE_5M, Unit.CACHE_WRITE_1H}),
        ({"cache_control": None}, {Unit.INPUT}),
        (
            {"system": [{"type": "text", "text": "x", "cache_control": HOUR}]},
            {Unit.INPUT, Unit.CACHE_WRITE_5M, Unit.CACHE_WRITE_1H},
        ),
        (
            {"tools": [{"name": "x", "input_schema": {}, "cache_control": FIVE}]},
            {Unit.INPUT, Unit.CACHE_WRITE_5M},
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "tool_result",
                                "tool_use_id": "t",
                                "content": [{"type": "text", "text": "x", "cache_control": HOUR}],
                            }
                        ],
                    }
                ]
            },
            {Unit.INPUT, Unit.CACHE_WRITE_5M, Unit.CACHE_WRITE_1H},
        ),
    ],
)
def test_cache_marks_anywhere_widen_what_a_prompt_may_be_billed_as(fields: dict, units: set[Unit]):
    assert parse(**fields).prompt_units == units


def test_unknown_cache_lifetime_is_unpriced():
    assert refused(cache_control={"type": "ephemeral", "ttl": "24h"}).code == "unpriced_tool"
    assert refused(cache_control={"type": "eternal"}).code == "unpriced_tool"


def test_terms_are_read():
    assert parse(service_tier="standard_only", speed="fast", inference_geo="us").terms == Terms(
        "standard_only", "fast", "us"
    )


def test_plan_login_is_attested():
    parsed = parse(headers={"authorization": "Bearer sk-ant-oat01-abc"})

    assert (parsed.attested, parsed.subscription, parsed.output_settable) == (True, True, False)


@pytest.mark.parametrize("headers", [{"authorization": "Bearer sk-ant-api03-x"}, {"x-api-key": "sk-ant-api03-x"}, {}])
def test_api_key_is_not_attested(headers: dict):
    assert not parse(headers=headers).attested


def test_absent_or_null_limit_is_set_and_no_other_byte_changes():
    raw = b'{ "model" : "m",\n "max_tokens" : null , "messages": [ ] , "x": 1.50, "y": "\\u00e4\xc3\xa4" }'

    assert WIRE.rewrite(request(raw), Rewrite(max_output=77)) == raw.replace(b"null", b"77")
    assert WIRE.rewrite(request(b'{"model":"m" }'), Rewrite(max_output=7)) == b'{"max_tokens":7,"model":"m" }'
    assert WIRE.rewrite(request(raw), Rewrite(ask_usage=True)) == raw


def test_thinking_budget_stays_below_the_limit():
    raw = b'{"max_tokens": 9000, "thinking": {"type": "enabled", "budget_tokens": 8000 }}'

    changed = WIRE.rewrite(request(raw), Rewrite(max_output=4096))

    assert changed == b'{"max_tokens": 4096, "thinking": {"type": "enabled", "budget_tokens": 4095 }}'
    assert WIRE.rewrite(request(raw), Rewrite(max_output=8001)) == raw.replace(b"9000", b"8001")
    with pytest.raises(WireError):
        WIRE.rewrite(request(raw), Rewrite(max_output=1024))


@pytest.mark.parametrize("limit", [4096, 8001, 2])
def test_rewriting_with_the_parsed_request_gives_the_same_bytes(limit: int):
    for members in (
        '"messages": [{"role": "user", "content": "日本é"}], "model": "m"',
        '"max_tokens" : 9000, "ü": 1, "model": "m", "messages": [ ]',
        '"thinking": {"type": "enabled", "budget_tokens":1999}, "model": "m", "messages": [], "max_tokens": null',
    ):
        if limit == 2 and "thinking" in members:
            continue
        asks = request(f" {{ {members} }} ".encode())

        fast = WIRE.rewrite(asks, Rewrite(limit), parsed=WIRE.parse(asks))

        assert fast == WIRE.rewrite(asks, Rewrite(limit))
        assert json.loads(fast)["max_tokens"] == limit


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(DATA.glob("anthropic_error_*.json")) if "expect" not in path.name],
    ids=lambda path: path.name,
)
def test_code_of_an_error_body_is_read(path: Path):
    wanted = json.loads(path.with_name(f"{path.name}.expect.json").read_text())["error_type"]

    assert WIRE.error_code(path.read_bytes()) == wanted


def test_body_without_an_error_has_no_code():
    assert WIRE.error_code(b"<html>") is None
    assert WIRE.error_code(b"{}") is None


SIGNED = {"authorization": "AWS4-HMAC-SHA256 Credential=AK/20261101/us-east-1/bedrock/aws4_request, Signature=0"}
VERTEX = "/v1/projects/p/locations/global/publishers/anthropic/models/claude-sonnet-4-5@20250929:rawPredict"


def test_signed_body_is_attested_and_no_plan():
    parsed = parse(headers=SIGNED)

    assert (parsed.attested, parsed.subscription, parsed.output_settable) == (True, False, False)


def elsewhere(body: dict, path: str = VERTEX, model: str = "claude-sonnet-4-5@20250929") -> Request:
    return Request("POST", "aiplatform.googleapis.com", path, {}, json.dumps(body).encode(), path_model=model)


def test_model_of_the_path_counts_whatever_the_body_says():
    body = {"anthropic_version": "vertex-2023-10-16", "messages": HELLO, "max_tokens": 9, "stream": True}

    parsed = WIRE.parse(elsewhere(body))

    assert parsed.model == "claude-sonnet-4-5@20250929"
    assert parsed.streamed
    assert WIRE.parse(elsewhere({**body, "model": "claude-3-haiku"})).model == "claude-sonnet-4-5@20250929"


def test_betas_in_the_body_are_text():
    body = {"anthropic_version": "bedrock-2023-05-31", "anthropic_beta": ["context-1m-2025-08-07"], "messages": HELLO}

    parsed = WIRE.parse(
        elsewhere(body, "/model/us.anthropic.claude-opus-5-v1:0/invoke", "us.anthropic.claude-opus-5-v1:0")
    )

    assert parsed.model == "us.anthropic.claude-opus-5-v1:0"
    assert parsed.content.hidden is None


def counted(headers: dict[str, str] | None = None, **fields: object) -> CountRequest | None:
    return WIRE.count_request(request({"model": "m", "max_tokens": 9, "messages": HELLO, **fields}, headers))


def test_count_asks_for_the_prompt_and_nothing_that_its_endpoint_does_not_take():
    prompt = {
        "tools": [{"name": "f", "input_schema": {}}],
        "system": "é",
        "thinking": {"type": "adaptive"},
        "tool_choice": {"type": "auto"},
        "output_config": {"effort": "low"},
        "cache_control": {"type": "ephemeral"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    }
    rest = {
        "stream": True,
        "service_tier": "auto",
        "temperature": 1,
        "top_p": 0.5,
        "top_k": 5,
        "stop_sequences": ["a"],
        "metadata": {"user_id": "u"},
        "inference_geo": "us",
        "thread": {"type": "create"},
        "diagnostics": {"previous_message_id": "m"},
        "provider": {"only": ["a"]},
    }

    asks = counted(**prompt, **rest)

    assert asks is not None
    assert asks.path == "/v1/messages/count_tokens"
    assert json.loads(asks.body) == {"model": "m", "messages": HELLO, **prompt}


UNSEEN = [
    {"role": "user", "content": [{"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}}]},
]


def test_count_sees_what_the_body_does_not_show():
    assert counted(messages=UNSEEN) is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        {"mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}]},
        {"container": "container_1"},
        {"container": "container_1", "messages": UNSEEN},
        {"thread": {"type": "continue", "previous_message_id": "m"}, "messages": UNSEEN},
        {"fallbacks": [{"model": "x"}]},
        {"thread": {"type": "continue", "previous_message_id": "m"}},
        {"context_management": {"edits": [{"type": "compact_20260112"}]}},
        {"compaction": {"type": "summarize"}},
        {"messages": None},
        {"headers": {"authorization": "Bearer sk-ant-oat01-abc"}},
        {"headers": SIGNED},
    ],
)
def test_nothing_is_counted_where_the_count_is_no_bound_or_the_login_attests_bodies(fields: dict):
    assert counted(**fields) is None


def test_count_on_vertex_names_the_model_in_the_body():
    asks = WIRE.count_request(elsewhere({"messages": HELLO, "max_tokens": 9, "anthropic_version": "vertex-2023-10-16"}))

    assert asks is not None
    assert asks.path == "/v1/projects/p/locations/global/publishers/anthropic/models/count-tokens:rawPredict"
    assert json.loads(asks.body) == {"messages": HELLO, "model": "claude-sonnet-4-5@20250929"}
    assert WIRE.count_request(elsewhere({"messages": HELLO}, "/model/x/invoke", "x")) is None


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (b'{"input_tokens": 2095, "context_management": {"original_input_tokens": 3000}}', 2095),
        (b'{"input_tokens": 0}', 0),
        (b'{"input_tokens": null}', None),
        (b'{"input_tokens": -1}', None),
        (b'{"input_tokens": "many"}', None),
        (b'{"type": "error", "error": {"type": "not_found_error"}}', None),
        (b"<html>", None),
        (b"", None),
    ],
)
def test_count_is_read(body: bytes, tokens: int | None):
    assert WIRE.read_count(body) == tokens


def test_same_call_is_known_whether_it_streams_and_whatever_its_limit():
    def call(**fields: object) -> bytes:
        return WIRE.same_call(request({"model": "m", "messages": HELLO, **fields}))

    thinking = {"type": "enabled", "budget_tokens": 2000}
    assert call(max_tokens=9, stream=True) == call(max_tokens=4096) == call()
    assert call(thinking=thinking) == call(thinking={**thinking, "budget_tokens": 1024})
    assert call(system="x") != call()
    assert call(thinking=thinking) != call()


def test_another_payer_is_refused_and_ones_own_account_is_not():
    assert parse(billing_policy={"type": "billing_policy", "bill_to": "self"}).content.hidden is None
    assert "another account" in str(refused(billing_policy={"bill_to": "user_profile"}))


def test_reply_with_a_container_may_be_sent_back_whole():
    container = {"id": "container_1", "expires_at": "2026-11-30T00:00:00Z", "skills": None}

    parsed = parse(messages=[{"role": "assistant", "content": "x", "container": container}])

    assert parsed.content.hidden is None

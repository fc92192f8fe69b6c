import json
from dataclasses import replace

import pytest

from lockpin_core.call import Also, Parsed, Request, Rewrite, ToolUse
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.anthropic_hosted import (
    DEFAULT_FALLBACK,
    SUMMARY_PROMPT_TOKENS,
    SUMMARY_TOKENS,
    TOOL_CALLS,
    TOOL_LIMIT,
    TOOL_PROMPT_TOKENS,
    limit_tools,
)
from lockpin_core.wire.anthropic_messages import AnthropicMessages

WIRE = AnthropicMessages()
PLAN = {"authorization": "Bearer sk-ant-oat01-abc"}
SIGNED = {"authorization": "AWS4-HMAC-SHA256 Credential=AK/20261101/us-east-1/bedrock/aws4_request, Signature=0"}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
FETCH = {"type": "web_fetch_20250910", "name": "web_fetch"}
ADVISOR = {"type": "advisor_20260301", "name": "advisor", "model": "claude-opus-5-5", "max_tokens": 2048}
CODE = {"type": "code_execution_20250825", "name": "code_execution"}
FIND = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
TOOLSET = {"type": "mcp_toolset", "mcp_server_name": "a"}
COMPACT = {"edits": [{"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 60_000}}]}


def request(body: dict, headers: dict | None = None) -> Request:
    return Request("POST", "api.anthropic.com", "/v1/messages", headers or {}, json.dumps(body).encode())


def parse(headers: dict | None = None, **fields: object) -> Parsed:
    body = {"model": "claude-sonnet-5-5", "max_tokens": 20_000, "messages": [], **fields}
    return WIRE.parse(request(body, headers))


def server(name: str) -> dict:
    return {"type": "url", "url": "https://x/sse", "name": name, "authorization_token": "t"}


def test_call_without_anything_of_the_provider_is_one_round():
    parsed = parse(tools=[{"name": "f", "input_schema": {}}], fallbacks=None, container=None)

    assert (parsed.rounds, parsed.output_rounds, parsed.grows) == (1, 1, False)
    assert (parsed.also, parsed.fees, parsed.tool_limit, parsed.content.hidden) == ((), {}, None, None)


@pytest.mark.parametrize(
    ("fields", "calls"),
    [
        ({"tools": [{**SEARCH, "max_uses": 3}]}, 3),
        ({"tools": [{**SEARCH, "max_uses": 3}, {**FETCH, "max_uses": 4}]}, 7),
        ({"tools": [{**SEARCH, "max_uses": 0}]}, 1),
        ({"tools": [CODE]}, TOOL_CALLS),
        ({"tools": [FIND, {**FETCH, "max_uses": 2}]}, TOOL_CALLS + 2),
        ({"tools": [{**ADVISOR, "max_uses": 2}]}, 2),
        ({"mcp_servers": [server("a"), server("b")]}, 2 * TOOL_CALLS),
        ({"mcp_servers": [server("a"), server("b")], "tools": [TOOLSET, {**TOOLSET, "mcp_server_name": "b"}]}, 20),
        ({"mcp_servers": [server("a"), server("b")], "tools": [TOOLSET]}, 2 * TOOL_CALLS),
    ],
)
def test_each_call_of_a_tool_of_the_provider_is_another_round(fields: dict, calls: int):
    parsed = parse(**fields)

    assert parsed.rounds == parsed.output_rounds == 1 + calls
    assert parsed.grows
    assert parsed.content.hidden == ("tools of MCP servers" if "mcp_servers" in fields else None)
    assert parsed.tool_limit is None


def test_tool_without_a_limit_gets_one_that_the_bound_counts_on():
    parsed = parse(tools=[SEARCH, {**FETCH, "max_uses": None}, {**ADVISOR, "max_uses": 1}])

    assert parsed.tool_limit == TOOL_LIMIT
    assert parsed.rounds == 1 + TOOL_LIMIT + TOOL_LIMIT + 1
    assert parsed.fees == {Unit.WEB_SEARCH: TOOL_LIMIT}


def test_plan_login_counts_the_same_limit_and_is_not_rewritten():
    parsed = parse(PLAN, tools=[SEARCH])

    assert parsed.tool_limit is None
    assert parsed.rounds == 1 + TOOL_LIMIT
    assert (parsed.attested, parsed.subscription, parsed.output_settable) == (True, True, False)


def test_signed_body_with_a_tool_without_a_limit_is_unpriced():
    with pytest.raises(WireError, match="max_uses") as refused:
        parse(SIGNED, tools=[SEARCH])

    assert refused.value.code == "unpriced_tool"
    assert parse(SIGNED, tools=[{**SEARCH, "max_uses": 2}]).rounds == 3
    assert parse(SIGNED, tools=[CODE]).rounds == 1 + TOOL_CALLS


@pytest.mark.parametrize(
    ("tools", "fees"),
    [
        ([{**SEARCH, "max_uses": 8}], {Unit.WEB_SEARCH: 8}),
        ([{**FETCH, "max_uses": 8}], {}),
        ([CODE], {Unit.CODE_SESSION: 1}),
        ([CODE, {**SEARCH, "max_uses": 2}], {Unit.WEB_SEARCH: 2, Unit.CODE_SESSION: 1}),
        ([CODE, {**SEARCH, "type": "web_search_20260209", "max_uses": 2}], {Unit.WEB_SEARCH: 2}),
        ([CODE, {**FETCH, "type": "web_fetch_20260318", "max_uses": 2}], {}),
        ([FIND], {}),
    ],
)
def test_fees_are_the_most_that_tools_can_cost(tools: list, fees: dict):
    assert parse(tools=tools).fees == fees


@pytest.mark.parametrize(
    "container", ["container_1", {"id": "container_1"}, {"skills": [{"type": "x", "skill_id": "y"}]}]
)
def test_container_hides_input_and_is_one_session(container: object):
    parsed = parse(container=container)

    assert parsed.content.hidden == "container"
    assert parsed.fees == {Unit.CODE_SESSION: 1}


def test_advisor_is_another_model_at_each_of_its_calls():
    parsed = parse(tools=[{**ADVISOR, "max_uses": 3}, {**ADVISOR, "max_tokens": None}])

    first, second = Also("claude-opus-5-5", 2048, 3), Also("claude-opus-5-5", None, TOOL_LIMIT)
    assert parsed.also == (replace(first, fills=True), replace(second, fills=True))


def test_advisor_that_is_alone_reads_what_the_model_said_before_it_was_asked():
    parsed = parse(tools=[{**ADVISOR, "max_uses": 1}])

    assert parsed.also == (Also("claude-opus-5-5", 2048, 1, 20_000 * 3 // 2),)


def test_what_tools_found_may_fill_the_window_of_an_advisor():
    parsed = parse(tools=[{**ADVISOR, "max_uses": 1}, {**SEARCH, "max_uses": 1}])

    assert parsed.also == (Also("claude-opus-5-5", 2048, 1, fills=True),)


def test_caching_of_an_advisor_widens_what_its_prompt_may_be_billed_as():
    parsed = parse(tools=[{**ADVISOR, "caching": {"type": "ephemeral", "ttl": "1h"}}])

    assert parsed.prompt_units == {Unit.INPUT, Unit.CACHE_WRITE_5M, Unit.CACHE_WRITE_1H}


def test_each_fallback_may_run_the_prompt_once_more_and_reads_what_was_said_before():
    parsed = parse(fallbacks=[{"model": "a", "max_tokens": 1000}, {"model": "b", "thinking": None}])

    first, second = Also("a", 1000, 1, 20_000 * 3 // 2), Also("b", 20_000, 1, (20_000 + 1000) * 3 // 2)
    assert parsed.also == (first, second)
    assert parsed.content.extra_tokens == 0
    assert parsed.content.hidden is None
    assert (parsed.rounds, parsed.grows) == (1, True)


def test_fallback_that_the_provider_chooses_is_held_as_the_dearest_that_it_is_known_to_choose():
    parsed = parse(fallbacks="default")

    assert parsed.also == (Also(DEFAULT_FALLBACK, 20_000, 1, 30_000),)


def test_fallback_without_any_output_limit_hides_what_it_reads():
    parsed = parse(fallbacks="default", max_tokens=None)

    assert parsed.also == (Also(DEFAULT_FALLBACK, None, 1),)
    assert parsed.content.hidden == "fallbacks"


def test_fallback_runs_the_tools_and_asks_the_advisor_again():
    parsed = parse(fallbacks=[{"model": "a"}], tools=[{**SEARCH, "max_uses": 2}, {**ADVISOR, "max_uses": 1}])

    assert parsed.rounds == 4
    assert parsed.also == (Also("a", 20_000, 4, 30_000, fills=True), Also("claude-opus-5-5", 2048, 2, fills=True))
    assert parsed.fees == {Unit.WEB_SEARCH: 4}


def test_fast_fallback_is_held_at_the_fast_speed():
    assert parse(fallbacks=[{"model": "a", "speed": "fast"}]).also[0].speed == "fast"
    assert parse(fallbacks=[{"model": "a", "speed": "fast"}]).terms.speed is None
    assert parse(fallbacks=[{"model": "a", "speed": "standard"}]).also[0].speed == "standard"
    assert parse(fallbacks=[{"model": "a", "speed": None}], speed="fast").terms.speed == "fast"


def test_schema_of_a_fallback_counts():
    schema = {"type": "json_schema", "schema": {"type": "object"}}

    bare = parse(fallbacks=[{"model": "a", "output_config": {"effort": "low"}}]).content
    content = parse(fallbacks=[{"model": "a", "output_config": {"effort": "low", "format": schema}}]).content

    assert content.schema_bytes - bare.schema_bytes == len(json.dumps(schema))


def test_compaction_reads_the_prompt_once_more_and_writes_a_summary():
    parsed = parse(context_management=COMPACT)

    assert (parsed.rounds, parsed.output_rounds, parsed.grows) == (1, 1, True)
    assert parsed.also == (Also("claude-sonnet-5-5", 20_000, 1),)
    assert parsed.content.extra_tokens == SUMMARY_PROMPT_TOKENS
    assert parsed.content.hidden is None


def test_summary_may_be_longer_than_a_low_limit():
    parsed = parse(context_management=COMPACT, max_tokens=100, fallbacks=[{"model": "a"}])

    assert parsed.also == (
        Also("a", 100, 1, 150), Also("claude-sonnet-5-5", SUMMARY_TOKENS, 1), Also("a", SUMMARY_TOKENS, 1, 150),
    )  # fmt: skip


def test_compaction_may_go_before_each_round_of_tools():
    parsed = parse(context_management=COMPACT, tools=[{**SEARCH, "max_uses": 2}], fallbacks=[{"model": "a"}])

    assert parsed.rounds == parsed.output_rounds == 6
    assert parsed.extra_output == 3 * SUMMARY_TOKENS
    assert parsed.also == (Also("a", 20_000, 6, 30_000, fills=True),)


def test_compaction_request_is_one_sampling():
    parsed = parse(compaction={"type": "summarize", "instructions": "short"})

    assert (parsed.rounds, parsed.also, parsed.grows) == (1, (), True)
    assert parsed.content.extra_tokens == SUMMARY_PROMPT_TOKENS
    assert parsed.content.hidden is None


def test_edits_that_only_clear_add_nothing():
    parsed = parse(context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]})

    assert (parsed.rounds, parsed.also, parsed.grows) == (1, (), False)


def test_limit_is_written_into_the_tools_that_need_one_and_no_other_byte_changes():
    raw = (
        b'{"model":"m", "tools" : [ {"type": "web_search_20250305","name":"web_search"} ,\n'
        b'{"type":"web_fetch_20250910", "max_uses" : null},{"type":"advisor_20260301","model":"\xc3\xa9","max_uses":9},\n'
        b'{"name":"f","input_schema":{"type":"web_search_1"}},{"type":"code_execution_20250825"} ],"messages":[ ] }'
    )
    asks = Request("POST", "h", "/v1/messages", {}, raw)

    changed = WIRE.rewrite(asks, Rewrite(tool_limit=5), parsed=WIRE.parse(Request("POST", "h", "/p", {}, raw)))

    assert changed == WIRE.rewrite(asks, Rewrite(tool_limit=5))
    assert changed == raw.replace(b'{"type": "web_s', b'{"max_uses":5,"type": "web_s').replace(b"null", b"5")


def test_limits_of_tools_and_output_are_written_together():
    asks = request({"model": "m", "messages": [], "tools": [SEARCH, CODE]})

    changed = json.loads(WIRE.rewrite(asks, Rewrite(max_output=700, tool_limit=2)))

    assert changed["max_tokens"] == 700
    assert changed["tools"] == [{**SEARCH, "max_uses": 2}, CODE]


@pytest.mark.parametrize("tools", [b"[]", b"[ ]", b'[ "x", 1 , null]', b"[[{}], {}]"])
def test_list_without_such_tools_stays(tools: bytes):
    assert limit_tools(tools, 5) == tools


def test_thinking_of_a_fallback_fits_below_a_limit_that_it_takes_over():
    thinking = {"type": "enabled", "budget_tokens": 8000}
    own = {"model": "b", "max_tokens": 9000, "thinking": thinking}
    asks = request({"model": "m", "messages": [], "fallbacks": [{"model": "a", "thinking": thinking}, own]})

    changed = json.loads(WIRE.rewrite(asks, Rewrite(max_output=4096)))

    assert changed["fallbacks"] == [{"model": "a", "thinking": {"type": "enabled", "budget_tokens": 4095}}, own]
    with pytest.raises(WireError):
        WIRE.rewrite(asks, Rewrite(max_output=1000))


def test_body_of_claude_code_with_a_fallback_is_bounded():
    text = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h", "scope": "global"}}
    body = {
        "model": "claude-fable-5-1",
        "max_tokens": 64_000,
        "stream": True,
        "messages": [
            {"role": "user", "content": [text]},
            {"role": "system", "content": [{"type": "text", "text": "y"}], "output_config": {"effort": "low"}},
        ],
        "system": [text],
        "tools": [{"name": "Bash", "description": "d", "input_schema": {}, "eager_input_streaming": True}],
        "metadata": {"user_id": "{}"},
        "thinking": {"type": "adaptive", "display": "updates"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "fallbacks": [{"model": "claude-opus-5"}],
        "diagnostics": {"previous_message_id": None},
    }

    parsed = WIRE.parse(request(body, PLAN))

    assert parsed.also == (Also("claude-opus-5", 64_000, 1, 96_000),)
    assert (parsed.rounds, parsed.content.hidden, parsed.tool_limit) == (1, None, None)


def test_what_a_lower_limit_makes_less_of_is_told():
    parsed = parse(tools=[SEARCH, {**SEARCH, "name": "b", "max_uses": 2}, FETCH, CODE])

    assert (parsed.rounds, parsed.tool_limit) == (1 + 2 + 2 * TOOL_LIMIT + TOOL_CALLS, TOOL_LIMIT)
    fee = {Unit.WEB_SEARCH: 1}
    assert parsed.tools == (ToolUse(TOOL_LIMIT, 1, 1, fee), ToolUse(2, 1, 1, fee), ToolUse(TOOL_LIMIT, 1, 1, {}))


@pytest.mark.parametrize(
    "fields", [{"tools": [SEARCH, {**ADVISOR, "max_uses": 1}]}, {"tools": [SEARCH], "fallbacks": [{"model": "a"}]}]
)
def test_a_limit_that_more_rests_on_is_not_to_be_lowered(fields):
    parsed = parse(**fields)

    assert (parsed.tool_limit, parsed.tools) == (TOOL_LIMIT, ())


def test_a_tool_gets_what_it_lacks_and_no_more_than_it_may_have():
    tools = json.dumps([SEARCH, {**SEARCH, "max_uses": 8}, {**FETCH, "max_uses": 1}, CODE]).encode()

    def uses(*limits: int | None) -> list[int | None]:
        return [tool.get("max_uses") for tool in json.loads(limit_tools(tools, *limits))]

    assert uses(5) == [5, 8, 1, None]
    assert uses(3, 3) == [3, 3, 1, None]
    assert uses(None, 2) == [None, 2, 1, None]


def test_tools_of_the_provider_have_room_for_how_they_are_described():
    plain = parse(tools=[]).content.extra_tokens

    assert parse(tools=[SEARCH, FETCH]).content.extra_tokens >= plain + 2 * TOOL_PROMPT_TOKENS


LIMITED_HOPS = [{"model": "a"}, {"model": "b", "max_tokens": 9000}, {"model": "c", "max_tokens": 50}]


def test_limits_of_fallbacks_fall_with_that_of_the_request():
    asks = request({"model": "m", "max_tokens": 8000, "messages": [], "fallbacks": LIMITED_HOPS})
    parsed = WIRE.parse(asks)

    lowered = WIRE.rewrite(asks, Rewrite(max_output=2000))

    # 9,000 is lowered too; an attempt reads half as much again as was said before it.
    told = json.loads(lowered)
    assert told["fallbacks"] == [{"model": "a"}, {"model": "b", "max_tokens": 2000}, {"model": "c", "max_tokens": 50}]
    assert [(one.output_limit, one.extra_prompt) for one in parsed.also] == [(8000, 12000), (9000, 24000), (50, 37500)]
    within = WIRE.also_within(parsed, 2000)
    assert [(one.output_limit, one.extra_prompt) for one in within] == [(2000, 3000), (2000, 6000), (50, 9000)]
    again = WIRE.parse(request(told)).also
    assert [(one.output_limit, one.extra_prompt) for one in again] == [(2000, 3000), (2000, 6000), (50, 9000)]


def test_what_a_fallback_is_by_default_falls_with_the_limit():
    parsed = WIRE.parse(request({"model": "m", "max_tokens": 64000, "messages": [], "fallbacks": "default"}))

    assert [(one.output_limit, one.extra_prompt) for one in WIRE.also_within(parsed, 1000)] == [(1000, 1500)]


@pytest.mark.parametrize(
    "more",
    [
        {"context_management": {"edits": [{"type": "compact_20260112"}]}},
        {"tools": [{"type": "advisor_20260301", "name": "advisor", "model": "a", "max_uses": 2}]},
    ],
)
def test_what_else_may_run_keeps_its_limit(more: dict):
    parsed = WIRE.parse(request({"model": "m", "max_tokens": 64000, "messages": [], **more}))

    assert parsed.also
    assert WIRE.also_within(parsed, 1000) == parsed.also

import json
from pathlib import Path

import httpx2 as httpx
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.call import Parsed, Refusal, Reply, Request, Rewrite, Terms
from lockpin_core.errors import WireError
from lockpin_core.usage import FEE_UNITS, Unit
from lockpin_core.wire import wire_named
from lockpin_core.wire.openai_responses import TOOL_LIMIT, UNSEEN_TOOL_LIMIT, OpenAICompact, OpenAIResponses
from lockpin_core.wire.refusals import failed_response

WIRE, COMPACT = OpenAIResponses(), OpenAICompact()
REQUESTS = Path(__file__).resolve().parent.parent / "data" / "openai_responses" / "requests"
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
WEB = {"type": "web_search"}


def raw(**more: object) -> bytes:
    return json.dumps({"model": "m", "input": "hi", **more}).encode()


def request(body: bytes, *, path: str = "/v1/responses", path_model: str | None = None, **headers: str) -> Request:
    return Request("POST", "api.openai.com", path, headers, body, path_model)


def parse(**more: object) -> Parsed:
    return WIRE.parse(request(raw(**more)))


def refused(**more: object) -> WireError:
    with pytest.raises(WireError) as found:
        parse(**more)
    return found.value


def test_plain_request_is_bounded_by_its_bytes():
    parsed = parse(instructions="é", max_output_tokens=99, stream=True, service_tier="flex")

    assert (parsed.model, parsed.streamed, parsed.output_limit) == ("m", True, 99)
    assert parsed.terms == Terms(tier="flex")
    assert parsed.content.hidden is None
    assert parsed.content.text_bytes >= len("modelminputhiinstructionsé".encode())
    assert (parsed.rounds, parsed.output_rounds, parsed.tool_limit, parsed.fees) == (1, 1, None, {})
    assert not (parsed.beyond_limit or parsed.background or parsed.grows or parsed.chain)


@pytest.mark.parametrize("name", ["codex_0.171_tools_in_input", "codex_0.171_web_search"])
def test_request_of_a_real_client_passes(name: str):
    body = (REQUESTS / f"{name}.json").read_bytes()

    parsed = WIRE.parse(request(body))

    assert parsed.content.hidden is None
    assert parsed.content.schema_bytes > 500
    assert parsed.tool_limit == (TOOL_LIMIT if "web_search" in name else None)


def test_tools_of_the_provider_get_a_limit_where_the_request_has_none():
    parsed = parse(tools=[FUNCTION, WEB])

    assert (parsed.tool_limit, parsed.rounds, parsed.output_rounds) == (TOOL_LIMIT, 1 + TOOL_LIMIT, 1)
    assert parsed.fees == {Unit.WEB_SEARCH: TOOL_LIMIT}
    assert parsed.grows


def test_tools_of_the_provider_keep_the_limit_that_the_request_has():
    parsed = parse(tools=[{"type": "file_search", "vector_store_ids": ["v"]}, WEB], max_tool_calls=2)

    assert (parsed.tool_limit, parsed.rounds) == (None, 3)
    assert parsed.fees == {Unit.WEB_SEARCH: 2, Unit.FILE_SEARCH: 2}


@pytest.mark.parametrize(
    ("tool", "fees"),
    [
        ({"type": "web_search_2025_08_26"}, {Unit.WEB_SEARCH}),
        ({"type": "web_search_preview"}, {Unit.WEB_SEARCH}),
        ({"type": "web_search_preview_2025_03_11"}, {Unit.WEB_SEARCH}),
        ({"type": "web_search", "external_web_access": False, "search_context_size": "low"}, {Unit.WEB_SEARCH}),
        ({"type": "code_interpreter", "container": {"type": "auto"}}, {Unit.CODE_SESSION}),
        ({"type": "code_interpreter", "container": "cntr_1"}, {Unit.CODE_SESSION}),
        ({"type": "shell", "environment": {"type": "container_auto"}}, {Unit.CODE_SESSION}),
        ({"type": "shell"}, {Unit.CODE_SESSION}),
        ({"type": "mcp", "server_label": "a", "server_url": "u", "require_approval": "never"}, set()),
        ({"type": "tool_search"}, set()),
        ({"type": "tool_search", "execution": "server"}, set()),
    ],
)
def test_each_tool_that_the_provider_runs_makes_rounds(tool: dict, fees: set[Unit]):
    parsed = parse(tools=[tool], max_tool_calls=3)

    assert parsed.rounds == 4
    assert parsed.fees == dict.fromkeys(fees, 3)


@pytest.mark.parametrize(
    "tool",
    [
        FUNCTION,
        {"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "lark", "definition": "s"}},
        {"type": "namespace", "name": "n", "description": "", "tools": [FUNCTION, {"type": "custom", "name": "c"}]},
        {"type": "local_shell"},
        {"type": "apply_patch"},
        {"type": "shell", "environment": {"type": "local", "skills": [{"name": "s", "path": "p"}]}},
        {"type": "computer"},
        {"type": "computer_use_preview", "display_height": 9, "display_width": 9, "environment": "mac"},
        {"type": "tool_search", "execution": "client", "parameters": {}},
    ],
)
def test_tool_that_the_client_runs_makes_no_rounds(tool: dict):
    parsed = parse(tools=[tool])

    assert (parsed.rounds, parsed.tool_limit, parsed.fees, parsed.content.hidden) == (1, None, {}, None)
    assert parsed.content.schema_bytes == len(json.dumps([tool]))


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"tools": [{"type": "image_generation"}]}, "image_generation"),
        ({"tools": [{"type": "programmatic_tool_calling"}]}, "programmatic_tool_calling"),
        ({"tools": [{"type": "x_search"}]}, "x_search"),
        ({"tools": [{"type": "openrouter:web"}]}, "openrouter:web"),
        ({"tools": [{"type": "brand_new"}]}, "brand_new"),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [WEB]}]}, "web_search"),
        ({"multi_agent": {"enabled": True}}, "multi_agent"),
        ({"reasoning": {"mode": "ultra"}}, "ultra"),
        ({"reasoning": {"budget_tokens": 5}}, "budget_tokens"),
        ({"provider": {"max_price": {}}}, "max_price"),
        ({"search_parameters": {"mode": "on"}}, "search_parameters"),
        ({"context_management": [{"type": "brand_new"}]}, "brand_new"),
        ({"prompt_cache_options": {"ttl": "99h"}}, "99h"),
        ({"plugins": [{"id": "web"}]}, "plugins"),
        ({"models": ["a"]}, "models"),
        ({"preset": "pro"}, "preset"),
        ({"brand_new": {"a": 1}}, "brand_new"),
        ({"input": [{"type": "brand_new", "text": "x"}]}, "brand_new"),
        ({"model": "gpt-4o-search-preview"}, "searches the web"),
    ],
)
def test_what_cannot_be_bounded_is_refused_by_name(more: dict, name: str):
    error = refused(**more)

    assert error.code == "unpriced_tool"
    assert name in str(error)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"model": None}, "model"),
        ({"model": None, "prompt": {"id": "p"}}, "stored prompt"),
        ({"input": 5}, "input is 5"),
        ({"max_output_tokens": -1}, "max_output_tokens is -1"),
        ({"max_output_tokens": 16.0}, "max_output_tokens"),
        ({"max_tool_calls": "3"}, "max_tool_calls is a string"),
        ({"background": "yes"}, "background is a string"),
        ({"stream": 1}, "stream is 1"),
        ({"previous_response_id": 5}, "previous_response_id is 5"),
        ({"tools": {}}, "tools is an object"),
        ({"maxOutputTokens": 5}, "max_output_tokens"),
    ],
)
def test_malformed_field_is_named(more: dict, words: str):
    error = refused(**more)

    assert error.code == "bad_request"
    assert words in str(error)


def test_model_may_stand_in_the_path():
    body = json.dumps({"input": "hi"}).encode()

    assert WIRE.parse(request(body, path_model="gpt-x")).model == "gpt-x"


def test_chain_is_named_whatever_else_is_hidden():
    assert parse(previous_response_id="resp_1").chain == "resp_1"
    assert parse(previous_response_id="resp_1").content.hidden is None

    both = parse(previous_response_id="resp_1", input=[{"type": "item_reference", "id": "msg_1"}])
    assert (both.chain, both.content.hidden) == ("resp_1", "item_reference")


FILE = {"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}


@pytest.mark.parametrize(
    ("more", "whole"),
    [
        ({}, True),
        ({"previous_response_id": "resp_1"}, True),
        ({"truncation": "disabled", "input": [FILE]}, True),
        ({"truncation": "auto"}, False),
        ({"context_management": [{"type": "compaction"}]}, False),
        ({"conversation": "conv_1"}, False),
        ({"input": [FILE, {"type": "item_reference", "id": "msg_1"}]}, False),
        ({"input": [{"type": "reasoning", "id": "rs_1", "summary": []}]}, False),
        ({"input": [{"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}]}, False),
    ],
)
def test_what_a_turn_leaves_out_for_a_later_one_is_known_or_said_not_to_be(more: dict, whole: bool):
    assert parse(**more).is_whole is whole


def test_reasoning_that_the_body_shows_may_be_left_out_for_a_later_turn():
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" * 500}

    assert 1000 < parse(input=[item]).chain_reasoning < 1300
    assert parse(input=[item], store=False).chain_reasoning == parse().chain_reasoning == 0  # no turn can name it


def test_conversation_is_hidden_and_could_bring_in_a_tool():
    parsed = parse(conversation="conv_1")

    assert parsed.content.hidden == "conversation"
    assert (parsed.tool_limit, parsed.rounds) == (UNSEEN_TOOL_LIMIT, 1 + UNSEEN_TOOL_LIMIT)
    assert parse(conversation={"id": "conv_1"}, tools=[WEB]).tool_limit == TOOL_LIMIT


def test_stored_prompt_is_hidden_and_may_have_tools_and_work_beyond_the_limit():
    parsed = parse(prompt={"id": "p", "variables": {"a": "x", "b": {"type": "input_text", "text": "y"}}})

    assert parsed.content.hidden == "prompt"
    assert (parsed.tool_limit, parsed.rounds, parsed.beyond_limit) == (TOOL_LIMIT, 1 + TOOL_LIMIT, True)
    assert set(parsed.fees) == {Unit.WEB_SEARCH, Unit.FILE_SEARCH, Unit.CODE_SESSION}


def test_pro_mode_works_beyond_the_limit():
    assert parse(reasoning={"mode": "pro"}).beyond_limit
    assert not parse(reasoning={"mode": "standard", "context": "all_turns", "effort": "max"}).beyond_limit


@pytest.mark.parametrize(
    "more",
    [
        {"context_management": [{"type": "compaction", "compact_threshold": 1000}]},
        {"input": [{"role": "user", "content": "hi"}, {"type": "compaction_trigger"}]},
    ],
)
def test_summary_on_the_way_is_another_round_with_an_output_of_its_own(more: dict):
    assert (parse(**more).rounds, parse(**more).output_rounds) == (2, 2)

    # A summary that is asked for is one; one that the provider makes by itself may come before each sampling.
    with_tools = parse(**more, tools=[WEB], max_tool_calls=2)
    assert (with_tools.rounds, with_tools.output_rounds) == ((4, 2) if "input" in more else (6, 4))


def test_background_call_states_its_usage_later():
    assert parse(background=True, background_options={"completion_window": "8h"}).background


def test_fields_that_cost_nothing_pass():
    parsed = parse(
        store=False,
        metadata={"a": "b"},
        include=["reasoning.encrypted_content"],
        client_metadata={"a": {"b": 1}},
        truncation="auto",
        safety_identifier="s",
        stream_options={"include_obfuscation": False},
        access_programs={"cyber": "standard"},
        moderation={"model": "m", "policy": {"input": {"mode": "block"}}},
        image={"context_compression": "auto"},
        multi_agent={"enabled": False},
        text={"verbosity": "low", "format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
        tool_choice={"type": "mcp", "server_label": "s"},
    )

    assert parsed.content.hidden is None
    assert parsed.content.schema_bytes > 60


def test_cache_lifetime_that_is_asked_for_decides_what_prompts_may_be_billed_as():
    long = frozenset({Unit.INPUT, Unit.CACHE_WRITE_30M, Unit.CACHE_WRITE_12H})

    assert parse().prompt_units == {Unit.INPUT, Unit.CACHE_WRITE_30M}
    assert parse(prompt_cache_options={"ttl": "12h", "prewarm": True}).prompt_units == long
    assert parse(prompt_cache_retention="24h").prompt_units == long
    assert parse(prompt_cache_options={"mode": "explicit"}).prompt_units == {Unit.INPUT}


def test_signed_body_gets_no_limit():
    parsed = WIRE.parse(request(raw(tools=[WEB]), authorization="AWS4-HMAC-SHA256 Credential=x"))

    assert (parsed.attested, parsed.output_settable, parsed.tool_limit) == (True, False, TOOL_LIMIT)


def test_rewrite_sets_the_limits_and_no_other_byte():
    body = b'{ "model":"m" , "max_tool_calls":null,\n "input":"\\u00e9", "stream":true}'
    parsed = WIRE.parse(request(body))

    for known in (None, parsed):
        changed = WIRE.rewrite(request(body), Rewrite(max_output=16, tool_limit=5), parsed=known)
        assert changed == (
            b'{"max_output_tokens":16, "model":"m" , "max_tool_calls":5,\n "input":"\\u00e9", "stream":true}'
        )
    assert WIRE.rewrite(request(body), Rewrite()) == body
    assert WIRE.rewrite(request(body), Rewrite(max_output=16)).count(b"null") == 1


def test_count_asks_only_what_the_endpoint_takes_and_as_it_was_written():
    body = b'{"stream": true, "model":"m","input":[ {"role":"user","content":"\\u00e9"} ],"store":false, "tools":[]}'

    asked = WIRE.count_request(request(body))

    assert asked is not None
    assert asked.path == "/v1/responses/input_tokens"
    assert asked.body == b'{"model":"m","input":[ {"role":"user","content":"\\u00e9"} ],"tools":[]}'
    assert WIRE.read_count(b'{"object":"response.input_tokens","input_tokens":11}') == 11


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b'{"input_tokens":-1}', b'{"input_tokens":null}', b"\xff"])
def test_answer_that_is_no_count_says_nothing(answer: bytes):
    assert WIRE.read_count(answer) is None


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"type": "mcp", "server_label": "s", "server_url": "https://s.example/mcp"}]},
        {"prompt": {"id": "p"}},
        {"input": 5},
        {"image": {"context_compression": "disabled"}, "previous_response_id": "resp_1"},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA"}]}]},
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file_1"}]}]},
    ],
    ids=["server", "prompt", "malformed", "image option", "image", "file"],
)
def test_count_is_not_asked_for_where_it_would_say_nothing(more: dict):
    assert WIRE.count_request(request(raw(**more))) is None


def test_texts_are_those_that_were_counted():
    body = raw(input=[{"role": "user", "content": [{"type": "input_text", "text": "héllo"}]}])

    texts = WIRE.texts(request(body))

    assert texts is not None
    assert "héllo" in texts
    assert sum(len(text.encode()) for text in texts) == WIRE.parse(request(body)).content.text_bytes
    assert WIRE.texts(request(raw(previous_response_id="resp_1"))) is None
    assert WIRE.texts(request(raw(conversation="conv_1"))) is None


def test_same_call_is_known_whatever_its_limits():
    once = WIRE.same_call(request(raw(stream=True, max_output_tokens=99)))

    assert WIRE.same_call(request(raw(max_tool_calls=3))) == once
    assert WIRE.same_call(request(raw(instructions="other"))) != once


def test_compaction_may_have_the_models_whole_output():
    body = raw(max_output_tokens=5, tools=[WEB], instructions="s")

    parsed = COMPACT.parse(request(body, path="/v1/responses/compact"))

    assert (parsed.output_limit, parsed.output_settable, parsed.tool_limit) == (None, False, None)
    assert (parsed.rounds, parsed.output_rounds, parsed.fees) == (1, 1, {})
    assert COMPACT.rewrite(request(body), Rewrite(max_output=5, tool_limit=5)) == body
    asked = COMPACT.count_request(request(raw(), path="/v1/responses/compact"))
    assert asked is not None
    assert asked.path == "/v1/responses/input_tokens"


def test_error_code_is_the_providers():
    assert WIRE.error_code(b'{"error":{"code":"context_length_exceeded","type":"t"}}') == "context_length_exceeded"
    assert WIRE.error_code(b'{"detail":"Unsupported parameter: max_output_tokens"}') is None


def test_wires_are_found_by_name():
    assert isinstance(wire_named("openai_responses"), OpenAIResponses)
    assert isinstance(wire_named("openai_compact"), OpenAICompact)


def client(reply: Reply) -> openai.OpenAI:
    """Make the real SDK's client, whose transport gives one reply."""
    status, headers, body = reply.status, dict(reply.headers), reply.body

    def answer(asked: httpx.Request) -> httpx.Response:
        return httpx.Response(status, headers=headers, content=body, request=asked)

    return openai.OpenAI(api_key="k", http_client=httpx.Client(transport=httpx.MockTransport(answer)))


REFUSAL = Refusal("budget_exceeded", 402, 'lockpin: task "t" would exceed its $1.00 budget')
LOCKPIN = {"code": "budget_exceeded", "call": "c1"}


def test_refusal_is_an_error_of_the_real_sdk():
    with pytest.raises(openai.APIStatusError) as error:
        client(WIRE.refuse(REFUSAL, LOCKPIN)).responses.create(model="m", input="hi")

    assert error.value.status_code == 402
    assert error.value.code == "budget_exceeded"
    assert REFUSAL.message in str(error.value)


def test_refusal_of_a_stream_that_fails_is_read_by_the_real_sdk():
    with client(failed_response(REFUSAL, LOCKPIN)).responses.create(model="m", input="hi", stream=True) as stream:
        events = list(stream)

    assert [event.type for event in events] == ["response.failed"]
    assert events[0].response.status == "failed"
    assert events[0].response.error.code == "invalid_prompt"
    assert events[0].response.error.message == REFUSAL.message


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from([FUNCTION, WEB, {"type": "shell"}, {"type": "mcp", "server_label": "a"}]), max_size=4))
def test_rounds_are_more_than_one_exactly_where_the_provider_runs_a_tool(tools: list[dict]):
    parsed = parse(tools=tools)

    assert (parsed.rounds > 1) == any(tool is not FUNCTION for tool in tools) == (parsed.tool_limit is not None)


def replies() -> list[Path]:
    found = sorted(path for path in REQUESTS.parent.glob("*.*") if ".expect" not in path.name)
    return [path for path in found if "_cancelled" not in path.name and "_queued" not in path.name]


TOOLS_OF_SAMPLES = {
    "responses_hosted_tools.json": [
        {"type": "web_search"},
        {"type": "file_search", "vector_store_ids": ["v"]},
        {"type": "code_interpreter", "container": {"type": "auto"}},
    ],
    "perplexity_agent.json": [{"type": "web_search"}],
}


@pytest.mark.parametrize("path", replies(), ids=lambda path: path.name)
def test_no_reply_bills_a_unit_that_its_request_was_not_held_for(path: Path):
    scanner = WIRE.scanner(streamed=path.suffix == ".sse")
    scanner.feed(path.read_bytes())
    options = {"mode": "explicit", "ttl": "12h"} if "nonstream" in path.name else {"mode": "implicit", "ttl": "30m"}
    part = {"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}}
    asked = parse(
        input=[{"role": "user", "content": [part]}],
        prompt_cache_options=options,
        tools=TOOLS_OF_SAMPLES.get(path.name, []),
        max_tool_calls=5,
    )

    for unit, count in (scanner.result().portions[0].usage if scanner.result().portions else {}).items():
        held = asked.prompt_units | asked.output_units | {Unit.CACHE_READ}
        assert count <= asked.fees.get(unit, 0) if unit in FEE_UNITS else unit in held


@pytest.mark.parametrize(
    ("more", "most", "beyond"),
    [
        ({"reasoning": {"max_tokens": 5}}, 5, False),
        ({"thinking_budget": 7}, 7, False),
        ({"thinking_budget": 7, "tools": [WEB], "max_tool_calls": 2}, 7, False),  # of each of three samplings
        ({"enable_thinking": True}, 0, True),
        ({"search_parameters": {"mode": "off"}}, 0, False),
    ],
)
def test_thinking_that_may_be_billed_beside_the_limit_is_noted(more: dict, most: int, beyond: bool):
    parsed = parse(**more)

    assert (parsed.thinking, parsed.extra_output, parsed.beyond_limit) == (most, 0, beyond)
    assert parsed.rounds == (3 if "tools" in more else 1)


def test_who_may_serve_a_call_is_said():
    assert parse(provider={"only": ["a"]}).routed

import base64
import json
import struct
import zlib

import pytest

from lockpin_core.call import Image, Parsed, Request
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.openai_responses import TOOL_LIMIT, OpenAIResponses
from lockpin_core.wire.responses_shapes import ITEMS

HEADER = struct.pack(">IIBBBBB", 40, 30, 8, 2, 0, 0, 0)
PNG = base64.b64encode(
    b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + HEADER + struct.pack(">I", zlib.crc32(b"IHDR" + HEADER))
).decode()
WEB = {"type": "web_search"}


def parse(*items: object, **more: object) -> Parsed:
    body = json.dumps({"model": "m", "input": list(items), **more}).encode()
    return OpenAIResponses().parse(Request("POST", "h", "/v1/responses", {}, body))


def user(*parts: dict) -> dict:
    return {"role": "user", "content": list(parts)}


def hidden(*items: object, **more: object) -> str | None:
    return parse(*items, **more).content.hidden


SEEN = (
    {"role": "user", "content": "hi"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a", "annotations": []}]},
    {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "phase": "commentary"},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "t"}], "encrypted_content": "x"},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "namespace": "n", "status": "completed"},
    {"type": "function_call_output", "call_id": "c", "output": "done"},
    {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"},
    {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "t"}]},
    {"type": "local_shell_call", "id": "l", "call_id": "c", "action": {"type": "exec", "command": ["ls"], "env": {}}},
    {"type": "local_shell_call_output", "id": "l", "output": "o"},
    {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}, "environment": {"type": "local"}},
    {
        "type": "shell_call_output",
        "call_id": "c",
        "output": [{"stdout": "o", "stderr": "", "outcome": {"type": "exit"}}],
    },
    {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file", "path": "p"}},
    {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "o"},
    {"type": "computer_call", "id": "c", "call_id": "c", "actions": [{"type": "wait"}], "pending_safety_checks": []},
    {"type": "web_search_call", "status": "completed", "action": {"type": "search", "queries": ["q"]}},
    {"type": "mcp_call", "id": "m", "server_label": "s", "name": "n", "arguments": "{}", "output": "o"},
    {"type": "mcp_list_tools", "id": "m", "server_label": "s", "tools": [{"name": "n", "input_schema": {"a": {}}}]},
    {"type": "mcp_approval_request", "id": "m", "server_label": "s", "name": "n", "arguments": "{}"},
    {"type": "mcp_approval_response", "approval_request_id": "m", "approve": True},
    {"type": "tool_search_call", "arguments": {"q": ["a"]}, "execution": "client"},
    {"type": "tool_search_output", "tools": [{"type": "function", "name": "f", "parameters": {}}]},
    {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "c"}]},
    {"type": "configuration_update", "reasoning": {"effort": "low"}},
    {"type": "program", "id": "p", "call_id": "c", "code": "x", "fingerprint": "f"},
    {"type": "program_output", "id": "p", "call_id": "c", "result": "r", "status": "completed"},
    {"type": "agent_message", "author": "a", "recipient": "b", "content": [{"type": "input_text", "text": "t"}]},
    {
        "type": "multi_agent_call",
        "call_id": "c",
        "action": "spawn_agent",
        "arguments": "{}",
        "agent": {"agent_name": "r"},
    },
    {"type": "multi_agent_call_output", "call_id": "c", "action": "wait_agent", "output": []},
    {"role": "user", "content": "a", "internal_chat_message_metadata_passthrough": {"turn_id": "t", "kinds": ["k"]}},
)


@pytest.mark.parametrize("item", SEEN, ids=lambda item: item.get("type", "message"))
def test_item_that_the_body_shows_is_counted(item: dict):
    parsed = parse(item)

    texts = [value for key, value in item.items() if isinstance(value, str) and key != "encrypted_content"]
    assert parsed.content.hidden is None
    assert parsed.rounds == 1
    assert parsed.content.text_bytes >= sum(len(text.encode()) for text in texts)
    assert parsed.content.messages == 2


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ({"type": "item_reference", "id": "msg_1"}, "item_reference"),
        ({"id": "msg_1"}, "item_reference"),
        ({"type": None, "id": "msg_1"}, "item_reference"),
        ({"type": "compaction", "encrypted_content": "x"}, "compaction"),
        ({"type": "reasoning", "summary": [], "encrypted_content": "é"}, "encrypted_content"),
        ({"type": "compaction_summary", "encrypted_content": "x"}, "compaction"),
        ({"type": "context_compaction", "encrypted_content": "x"}, "compaction"),
        ({"type": "reasoning", "id": "rs_1", "summary": []}, "reasoning"),
        ({"type": "file_search_call", "id": "f", "queries": ["q"], "results": None}, "tool_output"),
        (
            {"type": "code_interpreter_call", "id": "c", "container_id": "c", "code": "x", "outputs": None},
            "tool_output",
        ),
        ({"type": "web_search_call", "id": "w", "action": {"type": "search"}}, "tool_output"),
        (user({"type": "input_file", "file_id": "file_1"}), "file"),
        (user({"type": "input_file", "file_data": "data:application/pdf;base64,AA", "filename": "a"}), "file"),
        (user({"type": "input_audio", "input_audio": {"data": "AA", "format": "mp3"}}), "audio"),
        ({"role": "user", "content": "a", "file_url": "https://x"}, "reference"),
        (user({"type": "input_text", "text": "a", "brand_new": "x"}), "reference"),
    ],
)
def test_item_that_stands_for_input_elsewhere_hides_it(item: dict, reason: str):
    assert hidden(item) == reason


def test_what_a_tool_of_the_provider_gave_is_not_brought_in_where_nothing_is_kept():
    item = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "q"}}

    assert hidden(item, store=False) is None
    assert hidden(item, store=None) == "tool_output"


def test_sealed_text_counts_as_large_as_it_is_in_base64():
    sealed = "gAAAA" + "x" * 1000

    parsed = parse({"type": "reasoning", "id": "r", "summary": [], "encrypted_content": sealed})

    assert parsed.content.extra_tokens == 1005
    assert parsed.content.text_bytes < 100
    arguments = {"type": "function_call", "name": "f", "arguments": "", "encrypted_function_args": sealed}
    assert parse(arguments).content.extra_tokens == 1005
    agent = {"type": "agent_message", "content": [{"type": "encrypted_content", "encrypted_content": sealed}]}
    assert parse(agent).content.extra_tokens == 1005


def test_image_is_as_large_as_its_bytes_say():
    url = f"data:image/png;base64,{PNG}"
    parsed = parse(
        user({"type": "input_image", "image_url": url, "detail": "high"}),
        user({"type": "input_image", "file_id": "f", "detail": "low"}),
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": url}]},
        {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": "u"}},
        {"type": "image_generation_call", "id": "i", "result": PNG, "status": "completed"},
        {"type": "image_generation_call", "id": "i", "result": None, "status": "completed"},
    )

    assert parsed.content.images == (
        Image(40, 30, "high"),
        Image(None, None, "low"),
        Image(40, 30, ""),
        Image(),
        Image(40, 30, ""),
        Image(),
    )
    assert parsed.content.hidden is None
    assert parsed.content.text_bytes < 600


def test_sound_may_be_billed_as_sound():
    parsed = parse(user({"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}))

    assert Unit.AUDIO_IN in parsed.prompt_units


def test_place_in_the_prompt_can_ask_for_a_long_cache_write():
    parsed = parse(
        user({"type": "input_text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}})
    )

    assert Unit.CACHE_WRITE_12H in parsed.prompt_units


def test_tools_in_the_input_are_counted_as_schema_and_run_as_others():
    tools = [{"type": "function", "name": "f", "description": "é", "parameters": {"type": "object"}}, WEB]

    parsed = parse({"type": "additional_tools", "role": "developer", "tools": tools}, store=False)

    assert parsed.content.schema_bytes == len(json.dumps(tools, ensure_ascii=False).encode())
    assert parsed.fees == {Unit.WEB_SEARCH: TOOL_LIMIT}


@pytest.mark.parametrize("kind", ["additional_tools", "tool_search_output"])
def test_tool_of_the_provider_may_not_stay_in_a_conversation_that_is_kept(kind: str):
    with pytest.raises(WireError, match="brought in by an item") as refused:
        parse({"type": kind, "tools": [WEB]})

    assert refused.value.code == "unpriced_tool"


@pytest.mark.parametrize("item", [5, "x", None, [], {"type": 5}])
def test_malformed_item_is_refused_as_such(item: object):
    with pytest.raises(WireError) as refused:
        parse(item)

    assert refused.value.code == "bad_request"


def test_every_item_counts_as_a_message():
    assert parse(*[{"role": "user", "content": "a"}] * 5).content.messages == 6


def test_unknown_object_in_an_item_counts_as_text_unless_it_sounds_like_a_cost():
    assert parse({"role": "user", "content": "a", "note": {"b": ["c" * 100]}}).content.text_bytes > 100
    with pytest.raises(WireError, match="container"):
        parse({"role": "user", "content": "a", "container": {"b": 1}})


def test_known_items_are_those_of_the_reference_and_of_real_clients():
    assert {"message", "reasoning", "compaction_trigger", "additional_tools", "agent_message"} <= ITEMS.keys()


SCHEMA = {"type": "json_schema", "name": "n", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"reasoning": {"mode": "pro"}}, "mode"),
        ({"reasoning": {"effort": "low", "max_tokens": 5}}, "max_tokens"),
        ({"service_tier": "priority"}, "service_tier"),
        ({"tools": []}, "tools"),
        ({"text": {"brand_new": "x"}}, "brand_new"),
        ({"text": {"format": {"type": "brand_new"}}}, "brand_new"),
    ],
)
def test_a_change_of_configuration_that_is_not_known_is_refused_by_its_name(change: dict, name: str):
    with pytest.raises(WireError, match=name) as refused:
        parse({"type": "configuration_update", **change})

    assert refused.value.code == "unpriced_tool"


def test_a_schema_that_an_item_brings_in_is_counted_as_one():
    parsed = parse({"type": "configuration_update", "reasoning": {"effort": None}, "text": {"format": SCHEMA}})

    assert parsed.content.schema_bytes >= len(json.dumps(SCHEMA, separators=(",", ":")))


def test_an_option_for_images_that_is_not_known_is_refused_by_its_name():
    with pytest.raises(WireError, match="brand_new"):
        parse(image={"brand_new": "x"})


@pytest.mark.parametrize("field", ["enable_code_interpreter", "enable_search", "enable_interpreter"])
def test_a_tool_that_is_switched_on_by_a_field_of_its_own_is_refused_by_its_name(field: str):
    with pytest.raises(WireError, match=field):
        parse(**{field: True})
    assert parse(**{field: False}).rounds == 1


@pytest.mark.parametrize("field", ["user_security_context", "trace"])
def test_notes_for_a_log_pass_and_count_as_text(field: str):
    noted = parse(**{field: {"application_name": "x" * 500}})

    assert noted.content.hidden is None
    assert noted.content.text_bytes >= parse().content.text_bytes + 500

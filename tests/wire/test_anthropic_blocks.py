import base64
import json
import struct

import pytest

from lockpin_core.call import Content, Image, Request
from lockpin_core.errors import WireError
from lockpin_core.wire.anthropic_messages import AnthropicMessages

WIRE = AnthropicMessages()
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">IIBBBBB", 640, 480, 8, 6, 0, 0, 0) + b"\0\0\0\0"


def content(*blocks: object, **fields: object) -> Content:
    messages = [{"role": "assistant", "content": list(blocks)}]
    body = {"model": "m", "max_tokens": 9, "messages": messages, **fields}
    return WIRE.parse(Request("POST", "h", "/v1/messages", {}, json.dumps(body).encode())).content


def result(kind: str, value: object, **fields: object) -> dict:
    return {"type": kind, "tool_use_id": "srvtoolu_1", "content": value, **fields}


@pytest.mark.parametrize(
    "block",
    [
        {
            "type": "server_tool_use",
            "id": "i",
            "name": "web_search",
            "input": {"query": "LONG"},
            "caller": {"type": "x"},
        },
        result("web_search_tool_result", {"type": "web_search_tool_result_error", "error_code": "LONG"}),
        result("web_search_tool_result", [{"type": "web_search_result", "title": "LONG", "url": "u"}]),
        result(
            "web_fetch_tool_result",
            {
                "type": "web_fetch_result",
                "url": "https://x",
                "retrieved_at": "2026",
                "content": {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "LONG"}},
            },
        ),
        result(
            "code_execution_tool_result",
            {"type": "code_execution_result", "stdout": "LONG", "stderr": "", "return_code": 0, "content": []},
        ),
        result(
            "bash_code_execution_tool_result",
            {"type": "bash_code_execution_result", "stdout": "LONG", "stderr": "", "return_code": 0, "content": []},
        ),
        result(
            "text_editor_code_execution_tool_result",
            {"type": "text_editor_code_execution_view_result", "content": "LONG", "file_type": "text", "num_lines": 1},
        ),
        result(
            "text_editor_code_execution_tool_result",
            {"type": "text_editor_code_execution_str_replace_result", "lines": ["LONG"], "new_lines": 1},
        ),
        result("advisor_tool_result", {"type": "advisor_result", "text": "LONG"}),
        {"type": "mcp_tool_use", "id": "i", "name": "n", "server_name": "s", "input": {"a": "LONG"}},
        {"type": "mcp_tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "LONG"}]},
        {"type": "mcp_tool_result", "tool_use_id": "t", "content": "LONG", "is_error": True},
        {"type": "compaction", "content": "LONG", "signature": "s"},
        {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}, "trigger": {"type": "LONG"}},
        {"type": "browser_state", "tabs": [{"tab_id": "1", "title": "LONG", "url": "u"}]},
    ],
)
def test_block_of_a_tool_of_the_provider_is_counted_by_its_text(block: dict):
    long = json.loads(json.dumps(block).replace("LONG", "x" * 1000))
    short = json.loads(json.dumps(block).replace("LONG", ""))

    assert content(long).hidden is None
    assert content(long).text_bytes - content(short).text_bytes == 1000


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (
            result("web_search_tool_result", [{"type": "web_search_result", "encrypted_content": "x", "url": "u"}]),
            "encrypted content",
        ),
        (
            result("code_execution_tool_result", {"type": "encrypted_code_execution_result", "encrypted_stdout": "x"}),
            "encrypted content",
        ),
        (
            result("advisor_tool_result", {"type": "advisor_redacted_result", "encrypted_content": "x"}),
            "encrypted content",
        ),
        ({"type": "compaction", "content": "short", "encrypted_content": "x"}, "encrypted content"),
        (
            result(
                "bash_code_execution_tool_result",
                {
                    "type": "bash_code_execution_result",
                    "content": [{"type": "bash_code_execution_output", "file_id": "f"}],
                },
            ),
            "file",
        ),
        (
            result(
                "text_editor_code_execution_tool_result",
                {"type": "text_editor_code_execution_view_result", "content": "", "file_type": "pdf"},
            ),
            "file",
        ),
        (
            result(
                "web_fetch_tool_result",
                {"type": "web_fetch_result", "content": {"type": "document", "source": {"type": "base64", "data": ""}}},
            ),
            "document",
        ),
        ({"type": "container_upload", "file_id": "file_1"}, "file"),
        (
            {"type": "tool_addition", "tool": {"type": "mcp_toolset_reference", "server_name": "s"}},
            "mcp_servers",
        ),
        ({"type": "server_tool_use", "id": "i", "name": "n", "input": {}, "new": "ref_1"}, "reference"),
    ],
)
def test_what_the_body_does_not_show_hides_input(block: dict, reason: str):
    assert content(block).hidden == reason


@pytest.mark.parametrize(
    "block",
    [
        result("web_search_tool_result", [{"type": "new_result"}]),
        result("code_execution_tool_result", {"type": "code_execution_result", "content": [{"type": "new_output"}]}),
        {"type": "tool_addition", "tool": {"type": "new_reference"}},
        {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"type": "web_search_20250305"}}},
        {"type": "server_tool_use", "id": "i", "name": "n", "input": {}, "new": {"a": 1}},
    ],
)
def test_part_of_an_unknown_kind_is_unpriced(block: dict):
    with pytest.raises(WireError) as refused:
        content(block)

    assert refused.value.code == "unpriced_tool"


def test_tools_that_a_search_found_count_again():
    tool = {"name": "f", "description": "d" * 100, "input_schema": {}}
    found = {
        "type": "tool_search_tool_search_result",
        "tool_references": [{"type": "tool_reference", "tool_name": "f"}],
    }

    counted = content(result("tool_search_tool_result", found), tools=[tool])

    assert counted.schema_bytes == len(json.dumps([tool])) + len(json.dumps(tool))


def test_tool_that_a_message_adds_counts_as_schema():
    tool = {"name": "f", "input_schema": {"type": "object"}}

    named = content({"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}, tools=[tool])
    inline = content({"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool}})

    assert named.schema_bytes == len(json.dumps([tool])) + len(json.dumps(tool))
    assert inline.schema_bytes == len(json.dumps(tool))
    assert named.hidden is inline.hidden is None


def test_listing_of_an_mcp_server_counts_as_schema():
    tools = [{"name": "f", "input_schema": {"type": "object"}, "description": "d"}]

    counted = content({"type": "mcp_tool_listing", "mcp_server_name": "s", "tools": tools})

    assert counted.schema_bytes == len(json.dumps(tools))
    assert counted.hidden is None


def test_size_of_an_image_is_read_from_its_bytes():
    def image(kind: str, **fields: str) -> dict:
        return {"type": "image", "source": {"type": kind, **fields}}

    shown = image("base64", media_type="image/png", data=base64.b64encode(PNG).decode())
    broken = image("base64", media_type="image/png", data="AAAA")
    elsewhere = image("url", url="https://x/y.png", data=base64.b64encode(PNG).decode())

    assert content(shown, broken, elsewhere).images == (Image(640, 480), Image(), Image())

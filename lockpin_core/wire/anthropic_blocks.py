"""The content blocks of an Anthropic Messages request, each bounded by what the body shows, or as hidden input.

What the provider's own tools did in earlier turns stands in the history too: texts count by their bytes; what is
encrypted may stand for more text than it has bytes, and a file is not in the body at all: both hide input.
Source: the provider's Messages reference and the request types of its SDK, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from lockpin_core.wire.anthropic_tools import MARKED, count_inline_tool, json_size
from lockpin_core.wire.media import image_in
from lockpin_core.wire.tally import (
    Rule,
    Shape,
    Tally,
    Unknown,
    as_escaped_json,
    as_json,
    each,
    scalars,
    shape,
    variant,
)

_ENCRYPTED = ("encrypted_content", "encrypted_stdout")


def read_blocks(value: object, tally: Tally) -> None:
    """Read a list of content blocks, or one."""
    for block in value if type(value) is list else (value,):
        if type(block) is dict and len(block) == 2 and block.get("type") == "text" and type(block.get("text")) is str:
            tally.texts += ("type", "text", "text", block["text"])  # most blocks of a conversation
        else:
            _block(block, tally)


def _block_shape(
    name: str, fields: str, rules: Mapping[str, Rule] | None = None, *, uncounted: str = "", effect: Rule | None = None
) -> Shape:
    """Make the shape of a content block or of a source in one: what is unknown in it may stand for input elsewhere."""
    return shape(name, fields, rules, uncounted=uncounted, unknown=Unknown.HIDE, effect=effect)


def _hides(reason: str) -> Rule:
    def hide(value: object, tally: Tally) -> None:
        tally.hide(reason)

    return hide


def _count_image(value: object, tally: Tally) -> None:
    source = cast("dict[str, object]", value).get("source")
    data = source.get("data") if isinstance(source, dict) and source.get("type") == "base64" else None
    tally.images.append(image_in(data))


def _hide_sourceless(value: object, tally: Tally) -> None:
    """Hide input where a document says nothing of where it is."""
    if cast("dict[str, object]", value).get("source") is None:
        tally.hide("document")


def _hide_encrypted(value: object, tally: Tally) -> None:
    members = cast("dict[str, object]", value)
    if any(members.get(key) for key in _ENCRYPTED):
        tally.hide("encrypted content")


def _hide_media(value: object, tally: Tally) -> None:
    """Hide input where the provider's editor showed a file that is no text."""
    if cast("dict[str, object]", value).get("file_type") not in (None, "text"):
        tally.hide("file")


def _expand(value: object, tally: Tally) -> None:
    """Bound a reference to a tool: the provider puts the tool's whole definition in its place."""
    members = cast("dict[str, object]", value)
    size = tally.tool_sizes[str(members.get("tool_name", members.get("name")))]
    tally.schema_bytes += size
    if not size:
        tally.hide("tool_reference")


def _count_listing(value: object, tally: Tally) -> None:
    """Count the tools of an MCP server, which the provider defines to the model as the block lists them."""
    tally.schema_bytes += json_size(value)


_NOTED: Mapping[str, Rule] = {**MARKED, "_meta": as_escaped_json, "annotations": as_escaped_json}  # as MCP servers do
_CITATIONS: Rule = as_json  # places in documents that the body holds, as text

_IMAGE_SOURCES = {
    "base64": _block_shape("an image source", "type media_type", uncounted="data"),
    "url": _block_shape("an image source", "type url"),
    "file": _block_shape("an image source", "type file_id"),
}
_hide_document = _hides("document")
_DOCUMENT_SOURCES = {
    "text": _block_shape("a document source", "type media_type data"),
    "content": _block_shape("a document source", "type content", {"content": read_blocks}),
    "base64": _block_shape("a document source", "type media_type", uncounted="data", effect=_hide_document),
    "url": _block_shape("a document source", "type url", effect=_hide_document),
    "file": _block_shape("a document source", "type file_id", effect=_hide_document),
}
_OF_CLIENTS = {
    "text": _block_shape("a text block", "type text", {**_NOTED, "citations": _CITATIONS}),
    "image": _block_shape(
        "an image block",
        "type",
        {**_NOTED, "source": variant(_IMAGE_SOURCES, {}, "image source"), "transformations": scalars},
        effect=_count_image,
    ),
    "document": _block_shape(
        "a document block",
        "type title context",
        {**_NOTED, "source": variant(_DOCUMENT_SOURCES, {}, "document source"), "citations": scalars},
        effect=_hide_sourceless,
    ),
    "search_result": _block_shape(
        "a search_result block", "type source title", {**MARKED, "content": read_blocks, "citations": scalars}
    ),
    "thinking": _block_shape("a thinking block", "type thinking signature"),
    "redacted_thinking": _block_shape("a redacted_thinking block", "type data"),
    "tool_use": _block_shape(
        "a tool_use block", "type id name toolset_name input", {**_NOTED, "input": as_json, "caller": scalars}
    ),
    "tool_result": _block_shape(
        "a tool_result block", "type tool_use_id is_error toolset_name content", {**_NOTED, "content": read_blocks}
    ),
    "tool_reference": _block_shape("a tool_reference block", "type tool_name", MARKED, effect=_expand),
}

# What a tool of the provider's gave, inside the block that brings it.
_FILE = _block_shape("an output of the provider's tool", "type file_id", effect=_hides("file"))
_files = each(
    variant({"code_execution_output": _FILE, "bash_code_execution_output": _FILE}, {}, "output of a tool"),
    "content of a tool's result",
)
_ran = _block_shape(
    "a result of the provider's tool",
    "type return_code stdout stderr encrypted_stdout",
    {"content": _files},
    effect=_hide_encrypted,
)
_failed = _block_shape("an error of the provider's tool", "type error_code error_message")
RESULTS = {
    "web_search_result": _block_shape(
        "a web_search_result", "type url title page_age encrypted_content", effect=_hide_encrypted
    ),
    "web_fetch_result": _block_shape("a web_fetch_result", "type url retrieved_at", {"content": read_blocks}),
    **dict.fromkeys(("code_execution_result", "bash_code_execution_result", "encrypted_code_execution_result"), _ran),
    "text_editor_code_execution_view_result": _block_shape(
        "a view of a file", "type content file_type num_lines start_line total_lines", effect=_hide_media
    ),
    "text_editor_code_execution_create_result": _block_shape("a made file", "type is_file_update"),
    "text_editor_code_execution_str_replace_result": _block_shape(
        "a change of a file", "type lines new_lines new_start old_lines old_start", {"lines": scalars}
    ),
    "tool_search_tool_search_result": _block_shape(
        "found tools",
        "type",
        {"tool_references": each(_OF_CLIENTS["tool_reference"].read, "tool_references")},
    ),
    "advisor_result": _block_shape("advice", "type text stop_reason"),
    "advisor_redacted_result": _block_shape(
        "hidden advice", "type encrypted_content stop_reason", effect=_hide_encrypted
    ),
    **dict.fromkeys(
        (
            *("web_search_tool_result_error", "web_fetch_tool_result_error", "code_execution_tool_result_error"),
            *("bash_code_execution_tool_result_error", "text_editor_code_execution_tool_result_error"),
            *("tool_search_tool_result_error", "advisor_tool_result_error"),
        ),
        _failed,
    ),
}
_result = variant(RESULTS, {}, "result of the provider's tool")


def _results(value: object, tally: Tally) -> None:
    for one in value if type(value) is list else (value,):
        _result(one, tally)


_tool_named = _block_shape("a reference to a tool", "type name", effect=_expand)
_tool_elsewhere = _block_shape("a reference to a tool", "type name server_name", effect=_hides("mcp_servers"))
_tool_change = variant(
    {
        "tool_reference": _tool_named,
        "mcp_tool_reference": _tool_elsewhere,
        "mcp_toolset_reference": _tool_elsewhere,
        "tool_definition": _block_shape("a tool_definition", "type", {"definition": count_inline_tool}),
    },
    {},
    "change of a tool",
)
_changes_tools = _block_shape("a change of the tools", "type", {**MARKED, "tool": _tool_change})
_tool_result = _block_shape(
    "a result of the provider's tool", "type tool_use_id", {**MARKED, "content": _results, "caller": scalars}
)
BLOCKS = {
    **_OF_CLIENTS,
    "server_tool_use": _block_shape(
        "a server_tool_use block", "type id name input", {**MARKED, "input": as_json, "caller": scalars}
    ),
    **dict.fromkeys(
        (
            *("web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result", "advisor_tool_result"),
            *("bash_code_execution_tool_result", "text_editor_code_execution_tool_result", "tool_search_tool_result"),
        ),
        _tool_result,
    ),
    "mcp_tool_use": _block_shape(
        "an mcp_tool_use block", "type id name server_name input", {**_NOTED, "input": as_json}
    ),
    "mcp_tool_result": _block_shape(
        "an mcp_tool_result block", "type tool_use_id is_error content", {**_NOTED, "content": read_blocks}
    ),
    "mcp_tool_listing": _block_shape(
        "an mcp_tool_listing block", "type mcp_server_name", {**MARKED, "tools": _count_listing}
    ),
    "container_upload": _block_shape("a container_upload block", "type file_id", MARKED, effect=_hides("file")),
    "compaction": _block_shape(
        "a compaction block",
        "type content encrypted_content signature",
        {**MARKED, "tool_changes": read_blocks},
        effect=_hide_encrypted,
    ),
    "fallback": _block_shape(  # the provider leaves it out of the prompt
        "a fallback block", "type trigger", {"from": scalars, "to": scalars, "trigger": as_escaped_json}
    ),
    "tool_addition": _changes_tools,
    "tool_removal": _changes_tools,
    "browser_state": _block_shape(
        "a browser_state block", "type", {**MARKED, "tabs": as_json, "state_changes": as_json}
    ),
}
_block = variant(BLOCKS, {}, "content block")

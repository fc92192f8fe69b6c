"""The shapes of an Anthropic Messages request: fields, content blocks and tools by name, each bounded or refused.

Every one of the public reference stands here: it is bounded by what the body shows, or it hides input (then the context
window bounds it), or it is refused because the provider would run something of its own. Knows no prices.
Source: the provider's Messages reference and the request types of its SDK, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from lockpin_core.call import Image
from lockpin_core.usage import Unit
from lockpin_core.wire.jsonbody import json_text, shown_name
from lockpin_core.wire.tally import (
    Nested,
    Rule,
    Shape,
    Tally,
    Unknown,
    as_escaped_json,
    as_json,
    each,
    scalars,
    shape,
    skip,
    unpriced,
    variant,
)

# Tokens that the provider adds by itself: the prompt that explains tool use (up to 530 in its tables; newer tokenizers
# give up to 1.5 times as many), and the definitions of tools that it knows by type (bash 245, text editor 700, computer
# use about 1,250 with a prompt of its own). Allowances with room, as those tables name older models.
TOOL_USE_TOKENS = 1000
CLIENT_TOOL_TOKENS = {
    "bash_20241022": 1000,
    "bash_20250124": 1000,
    "text_editor_20241022": 2000,
    "text_editor_20250124": 2000,
    "text_editor_20250429": 2000,
    "text_editor_20250728": 2000,
    "computer_20241022": 3000,
    "computer_20250124": 3000,
    "computer_20251124": 3000,
    "memory_20250818": 2000,
}

# Prefixes of the types of tools that the provider runs, and what they do.
_SERVER_TOOLS = {
    "web_search": "the provider searches the web, for a fee and with results as input",
    "web_fetch": "the provider fetches pages, whose text is input",
    "code_execution": "the provider runs code in a container",
    "tool_search_tool": "the provider searches the tools and samples again",
    "advisor": "the provider asks another model",
    "mcp_toolset": "the provider calls MCP servers",
    "browser_toolset": "the provider adds a set of browser tools",
    "computer_toolset": "the provider adds a set of computer tools",
}
_OF_A_SERVER_TOOL = "part of a tool that the provider runs"
_SERVER_BLOCKS = {
    "server_tool_use": _OF_A_SERVER_TOOL,
    "web_search_tool_result": _OF_A_SERVER_TOOL,
    "web_fetch_tool_result": _OF_A_SERVER_TOOL,
    "code_execution_tool_result": _OF_A_SERVER_TOOL,
    "bash_code_execution_tool_result": _OF_A_SERVER_TOOL,
    "text_editor_code_execution_tool_result": _OF_A_SERVER_TOOL,
    "tool_search_tool_result": _OF_A_SERVER_TOOL,
    "advisor_tool_result": _OF_A_SERVER_TOOL,
    "mcp_tool_use": "part of a call to an MCP server",
    "mcp_tool_result": "part of a call to an MCP server",
    "mcp_tool_listing": "the tools of an MCP server",
    "container_upload": "a file for the provider's container",
    "compaction": "a summary that the provider made of earlier turns",
    "fallback": "a change to another model within a reply",
    "tool_addition": "tools added within the conversation",
    "tool_removal": "tools removed within the conversation",
    "browser_state": "part of the provider's browser tools",
}
_REFUSED_FIELDS = {
    "mcp_servers": "the provider calls MCP servers",
    "container": "the provider runs code in a container",
    "compaction": "the provider summarizes the conversation",
    "fallbacks": "the provider may run the prompt again on other models",
    "billing_policy": "another account may be billed",
}


class ToolSizes(dict[str, int]):
    """Bytes of each tool's definition by its name, all measured when the first reference asks; 0: no such tool."""

    def __init__(self, tools: list[object]) -> None:
        super().__init__()
        self._tools = tools

    def __missing__(self, name: str) -> int:
        tools, self._tools = self._tools, []  # all at once: there may be as many references as tools
        for tool in tools:
            known = tool.get("name") if isinstance(tool, dict) else None
            if type(known) is str:
                self[known] = self.get(known, 0) + len(json_text(tool).encode("utf-8", "surrogatepass"))
        return self.get(name, 0)


def _cache(value: object, tally: Tally) -> None:
    _CACHE.read(value, tally)


def _mark(value: object, tally: Tally) -> None:
    """Note what a cache_control object asks for."""
    members = cast("dict[str, object]", value)
    kind, ttl = members.get("type"), members.get("ttl")
    if kind not in (None, "ephemeral") or ttl not in (None, "5m", "1h"):
        unpriced(f"cache_control of type {shown_name(kind)} with ttl {shown_name(ttl)}")
    tally.prompt_units.add(Unit.CACHE_WRITE_5M)
    if ttl == "1h":
        tally.prompt_units.add(Unit.CACHE_WRITE_1H)


def _count_image(value: object, tally: Tally) -> None:
    tally.images.append(Image())


def _hide_document(value: object, tally: Tally) -> None:
    tally.hide("document")


def _resume(value: object, tally: Tally) -> None:
    """Bound a conversation that the provider kept: its window bounds the turns, which may have had any cache mark."""
    tally.hide("thread")
    tally.prompt_units |= {Unit.CACHE_WRITE_5M, Unit.CACHE_WRITE_1H}


def _expand(value: object, tally: Tally) -> None:
    """Bound a reference to a tool: the provider puts the tool's whole definition in its place."""
    size = tally.tool_sizes[str(cast("dict[str, object]", value).get("tool_name"))]
    tally.schema_bytes += size
    if not size:
        tally.hide("tool_reference")


def _blocks(value: object, tally: Tally) -> None:
    """Read a list of content blocks."""
    for block in value if type(value) is list else (value,):
        if type(block) is dict and len(block) == 2 and block.get("type") == "text" and type(block.get("text")) is str:
            tally.texts += ("type", "text", "text", block["text"])  # most blocks of a conversation
        else:
            _block(block, tally)


def _count_tool(tokens: int) -> Rule:
    def add(value: object, tally: Tally) -> None:
        tally.extra_tokens += tokens

    return add


def _client_tool(tokens: int) -> Shape:
    """Make the shape of a tool that the client runs and the provider knows by its type."""
    fields = (
        "type name display_width_px display_height_px display_number enable_zoom max_characters strict defer_loading"
    )
    return shape("a tool", fields, _TOOL_RULES, effect=_count_tool(tokens))


def _block_shape(
    name: str, fields: str, rules: Mapping[str, Rule] | None = None, *, uncounted: str = "", effect: Rule | None = None
) -> Shape:
    """Make the shape of a content block or of a source in one: what is unknown in it may stand for input elsewhere."""
    return shape(name, fields, rules, uncounted=uncounted, unknown=Unknown.HIDE, effect=effect)


def _hide_sourceless(value: object, tally: Tally) -> None:
    """Hide input where a document says nothing of where it is."""
    if cast("dict[str, object]", value).get("source") is None:
        tally.hide("document")


_CACHE = shape("cache_control", "type ttl scope", unknown=Unknown.REFUSE, effect=_mark)
_MARKED: Mapping[str, Rule] = {"cache_control": _cache}
_NOTED: Mapping[str, Rule] = {**_MARKED, "_meta": as_escaped_json, "annotations": as_escaped_json}  # as MCP servers do

_IMAGE_SOURCES = {
    "base64": _block_shape("an image source", "type media_type", uncounted="data"),
    "url": _block_shape("an image source", "type url"),
    "file": _block_shape("an image source", "type file_id"),
}
_DOCUMENT_SOURCES = {
    "text": _block_shape("a document source", "type media_type data"),
    "content": _block_shape("a document source", "type content", {"content": _blocks}),
    "base64": _block_shape("a document source", "type media_type", uncounted="data", effect=_hide_document),
    "url": _block_shape("a document source", "type url", effect=_hide_document),
    "file": _block_shape("a document source", "type file_id", effect=_hide_document),
}
_CITATIONS: Rule = as_json  # places in documents that the body holds, as text
BLOCKS = {
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
        "a search_result block", "type source title", {**_MARKED, "content": _blocks, "citations": scalars}
    ),
    "thinking": _block_shape("a thinking block", "type thinking signature"),
    "redacted_thinking": _block_shape("a redacted_thinking block", "type data"),
    "tool_use": _block_shape(
        "a tool_use block", "type id name toolset_name input", {**_NOTED, "input": as_json, "caller": scalars}
    ),
    "tool_result": _block_shape(
        "a tool_result block", "type tool_use_id is_error toolset_name content", {**_NOTED, "content": _blocks}
    ),
    "tool_reference": _block_shape("a tool_reference block", "type tool_name", _MARKED, effect=_expand),
}
_block = variant(BLOCKS, _SERVER_BLOCKS, "content block")

# The bytes of a tool are counted as schema, from the body as it was written: its rules only check.
_TOOL_RULES: Mapping[str, Rule] = {
    **_MARKED,
    "allowed_callers": scalars,
    "input_examples": skip,
    "annotations": skip,
    "_meta": skip,
}
TOOLS = {
    "custom": shape(
        "a tool",
        "type name description strict defer_loading eager_input_streaming",
        {**_TOOL_RULES, "input_schema": skip},
    ),
    **{kind: _client_tool(tokens) for kind, tokens in CLIENT_TOOL_TOKENS.items()},
}
_tools = each(variant(TOOLS, _SERVER_TOOLS, "tool", default="custom"), "tools")


def _check_tools(value: object, tally: Tally) -> None:
    mark, more = len(tally.texts), tally.more_strings
    _tools(value, tally)
    del tally.texts[mark:]
    tally.more_strings = more
    tally.extra_tokens += TOOL_USE_TOKENS if value else 0


def _refuse_credit(value: object, tally: Tally) -> None:
    unpriced('"fallback_credit_token" as an object (the provider may run the prompt again)')


# Values that may be plain too: "all", or a number.
_EDIT_FIELDS = "type trigger keep clear_at_least clear_tool_inputs exclude_tools"
_EDIT_RULES: Mapping[str, Rule] = {
    "trigger": scalars,
    "keep": scalars,
    "clear_at_least": scalars,
    "clear_tool_inputs": scalars,
    "exclude_tools": scalars,
}
_EDITS = {  # both only take something away
    "clear_tool_uses_20250919": shape("a context edit", _EDIT_FIELDS, _EDIT_RULES),
    "clear_thinking_20251015": shape("a context edit", _EDIT_FIELDS, _EDIT_RULES),
}
_EDIT = variant(
    _EDITS, {"compact_": "the provider summarizes the conversation, in a sampling of its own"}, "context edit"
)
_CONTEXT_MANAGEMENT = shape(
    "context_management", "", {"edits": each(_EDIT, "context_management.edits")}, unknown=Unknown.REFUSE
)
_THINKING = shape("thinking", "type budget_tokens display", {"block_binding": scalars}, unknown=Unknown.REFUSE)
_OUTPUT_CONFIG = shape("output_config", "effort", {"format": skip, "task_budget": scalars}, unknown=Unknown.REFUSE)
# A reply may come back whole, with its usage and whatever else it had.
_MESSAGE = shape(
    "a message", "role clear_at content", {"content": _blocks, "output_config": scalars}, nested_unknown=Nested.COUNT
)
_THREAD = variant(
    {
        "create": shape("thread", "type", unknown=Unknown.REFUSE),  # it is kept for later; this body shows all of it
        "continue": shape("thread", "type previous_message_id", unknown=Unknown.REFUSE, effect=_resume),
    },
    {},
    "thread",
)


def _messages(value: object, tally: Tally) -> None:
    for message in cast("list[object]", value):
        _MESSAGE.read(message, tally)


REQUEST = shape(
    "the request",
    "model max_tokens stream temperature top_p top_k service_tier speed inference_geo user_profile_id workspace_id "
    "system fallback_credit_token",
    {
        "tools": _check_tools,
        "messages": _messages,
        "system": _blocks,
        "tool_choice": scalars,
        "thinking": _THINKING.read,
        "output_config": _OUTPUT_CONFIG.read,
        "metadata": scalars,
        "stop_sequences": scalars,
        "cache_control": _cache,
        "context_management": _CONTEXT_MANAGEMENT.read,
        "diagnostics": scalars,
        "thread": _THREAD,
        "fallback_credit_token": _refuse_credit,
    },
    refused=_REFUSED_FIELDS,
    nested_unknown=Nested.EMPTY,
)
SCHEMA_FIELDS = ("tools", "output_config")  # counted by their bytes as they were written

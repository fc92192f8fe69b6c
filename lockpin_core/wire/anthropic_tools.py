"""The tools of an Anthropic Messages request by their shapes: those that the client runs, and those of the provider.

Knows what each may hold, and what the provider adds to the prompt for it; what its own tools can cost is counted in
`anthropic_hosted`. Source: the provider's Messages and tool references and the types of its SDK, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.jsonbody import json_text, shown, shown_name
from lockpin_core.wire.tally import Rule, Shape, Tally, Unknown, each, scalars, shape, skip, unpriced, variant

# Tokens that the provider adds by itself: the prompt that explains tool use (up to 530 in its tables; newer tokenizers
# give up to 1.5 times as many), and the definitions of tools that it knows by type (bash 245, text editor 700, computer
# use about 1,250 with a prompt of its own). Allowances with room, as those tables name older models. Of the toolsets no
# table says anything: 400 for each of their tools.
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
    "browser_toolset_20260801": 13_000,
    "computer_toolset_20260801": 7000,
}

# Beginnings of types of a date that this version does not know, and what they do.
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
                self[known] = self.get(known, 0) + json_size(tool)
        return self.get(name, 0)


def json_size(value: object) -> int:
    """Count the UTF-8 bytes of a value as JSON."""
    return len(json_text(value).encode("utf-8", "surrogatepass"))


def cache_rule(value: object, tally: Tally) -> None:
    """Read a cache_control object."""
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


_CACHE = shape("cache_control", "type ttl scope", unknown=Unknown.REFUSE, effect=_mark)
MARKED: Mapping[str, Rule] = {"cache_control": cache_rule}

# The bytes of a tool are counted as schema, from the body as it was written: its rules only check.
_TOOL_RULES: Mapping[str, Rule] = {
    **MARKED,
    "allowed_callers": scalars,
    "input_examples": skip,
    "annotations": skip,
    "_meta": skip,
}
_TOOL_CONFIG = shape("the configuration of a tool", "enabled defer_loading", unknown=Unknown.REFUSE)


def _configs(value: object, tally: Tally) -> None:
    """Read configurations by the names of tools."""
    if type(value) is not dict:
        raise WireError(f"configs of a tool is {shown(value)}; an object is allowed")
    for config in value.values():
        if config is not None:
            _TOOL_CONFIG.read(config, tally)


def _count_tool(tokens: int) -> Rule:
    def add(value: object, tally: Tally) -> None:
        tally.extra_tokens += tokens

    return add


def _client_tool(tokens: int) -> Shape:
    """Make the shape of a tool that the client runs and the provider knows by its type."""
    fields = (
        "type name display_width_px display_height_px display_number enable_zoom max_characters strict defer_loading"
    )
    return shape("a tool", fields, {**_TOOL_RULES, "configs": _configs}, effect=_count_tool(tokens))


def _server_tool(fields: str = "", rules: Mapping[str, Rule] | None = None) -> Shape:
    """Make the shape of a tool that the provider runs: what is unknown in it may be a feature that costs."""
    known = f"type name strict defer_loading {fields}"
    return shape("a tool of the provider", known, {**_TOOL_RULES, **(rules or {})}, unknown=Unknown.REFUSE)


_DOMAINS: Mapping[str, Rule] = {"allowed_domains": scalars, "blocked_domains": scalars}
_SEARCH = _server_tool("max_uses response_inclusion", {**_DOMAINS, "user_location": scalars})
_FETCH = _server_tool(
    "max_uses max_content_tokens use_cache response_inclusion",
    {**_DOMAINS, "citations": scalars, "url_sources": skip},
)
_PLAIN = _server_tool()

CLIENT_TOOLS = {
    "custom": shape(
        "a tool",
        "type name description strict defer_loading eager_input_streaming",
        {**_TOOL_RULES, "input_schema": skip},
    ),
    **{kind: _client_tool(tokens) for kind, tokens in CLIENT_TOOL_TOKENS.items()},
}
TOOLS = {
    **CLIENT_TOOLS,
    **dict.fromkeys(("web_search_20250305", "web_search_20260209", "web_search_20260318"), _SEARCH),
    **dict.fromkeys(("web_fetch_20250910", "web_fetch_20260209", "web_fetch_20260309", "web_fetch_20260318"), _FETCH),
    **dict.fromkeys(
        (
            *("code_execution_20250522", "code_execution_20250825", "code_execution_20260120"),
            *("code_execution_20260521", "tool_search_tool_regex", "tool_search_tool_regex_20251119"),
            *("tool_search_tool_bm25", "tool_search_tool_bm25_20251119"),
        ),
        _PLAIN,
    ),
    "advisor_20260301": _server_tool("model max_tokens max_uses", {"caching": cache_rule}),
    "mcp_toolset": _server_tool(
        "mcp_server_name", {"configs": _configs, "default_config": _TOOL_CONFIG.read, "tools": skip}
    ),
}
_tools = each(variant(TOOLS, _SERVER_TOOLS, "tool", default="custom"), "tools")
_inline = variant(
    CLIENT_TOOLS,
    dict.fromkeys(_SERVER_TOOLS, "a tool of the provider's that is defined within the conversation"),
    "tool",
    default="custom",
)


def check_tools(value: object, tally: Tally) -> None:
    """Read the tools of a request. Their bytes are counted elsewhere."""
    _uncounted(_tools, value, tally)
    explain_tools(tally, TOOL_USE_TOKENS if value else 0)


def explain_tools(tally: Tally, tokens: int = TOOL_USE_TOKENS) -> None:
    """Allow for the prompt that tells the model how to use tools."""
    tally.extra_tokens += tokens
    tally.explains_tools = True


def count_inline_tool(value: object, tally: Tally) -> None:
    """Read a tool that a message defines; the provider's own must stand in `tools`, where they get their limits."""
    _uncounted(_inline, value, tally)
    tally.schema_bytes += json_size(value)


def _uncounted(rule: Rule, value: object, tally: Tally) -> None:
    mark, more = len(tally.texts), tally.more_strings
    rule(value, tally)
    del tally.texts[mark:]
    tally.more_strings = more

"""The tools of a Responses request: those that the client runs, and those that the provider runs within the call.

What the provider runs reads the whole prompt again after each call, and some of it has a fee: which kinds a request
has is noted, for the bound. Knows no prices. Sources: OpenAI's Responses reference, its guides to the tools, and the
tool types of its SDK, read 2026-11; what its Codex client sends was looked at on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from lockpin_core.wire.jsonbody import json_text, shown
from lockpin_core.wire.tally import Rule, Tally, each, shape, skip, unpriced, variant
from lockpin_core.wire.textsize import sizes

_MEMORY = {"1g": 1, "4g": 4, "16g": 16, "64g": 64}
_WAY_OUT = 'list it in "tools", or set "store" to false'
_TOOL_PROMPT = 4096  # tokens with which the provider describes a tool of its own to the model; none takes as many


_OF_THIS_TURN = ("file", "audio", "mcp")  # what hides input and is no conversation


@dataclass(slots=True)
class ResponsesTally(Tally):
    """Counts of one body, and what the provider may do by itself on behalf of it."""

    hosted: set[str] = field(default_factory=set)  # kinds of tools that the provider runs
    stores: bool = True  # the provider keeps what belongs to the items of the input
    compacts: bool = False  # the provider may write a summary of the conversation on its way
    triggers: int = 0  # summaries that the input asks for
    reasoning: int = 0  # the most tokens of reasoning of earlier turns that the input shows: not every turn reads it
    files: bool = False  # a file brings in input, and maybe images of its pages
    recalls: bool = False  # the provider brings in what it keeps of earlier turns, and says nowhere how much of it

    def hide(self, reason: str) -> None:
        """Note why the body does not show the whole prompt, and whether that is of earlier turns."""
        self.recalls = self.recalls or reason not in _OF_THIS_TURN
        Tally.hide(self, reason)

    def add_schema(self, value: object) -> None:
        """Count tools or a schema that stand somewhere in the input."""
        self.schema_bytes += sizes([json_text(value)])[1]


def seen(tally: Tally) -> ResponsesTally:
    """Give the tally as this format has it."""
    assert isinstance(tally, ResponsesTally)
    return tally


def checked(rule: Rule) -> Rule:
    """Make a rule that only checks: the bytes are counted as schema."""

    def read(value: object, tally: Tally) -> None:
        mark, more = len(tally.texts), tally.more_strings
        rule(value, tally)
        del tally.texts[mark:]
        tally.more_strings = more

    return read


def tools_in_input(value: object, tally: Tally) -> None:
    """Read a list of tools that an item of the input brings in, for as long as the conversation goes on.

    Where the provider keeps the conversation a later request need not show them, and could not be bounded.
    """
    known = set(seen(tally).hosted)
    _CHECKED(value, tally)
    seen(tally).add_schema(value)
    if seen(tally).stores and (found := sorted(seen(tally).hosted - known)):
        unpriced(f"{found[0]} brought in by an item of a conversation that the provider keeps ({_WAY_OUT})")


def _hosts(kind: str) -> Rule:
    def effect(value: object, tally: Tally) -> None:
        seen(tally).hosted.add(kind)
        tally.extra_tokens += _TOOL_PROMPT

    return effect


def _described(value: object, tally: Tally) -> None:
    tally.extra_tokens += _TOOL_PROMPT


def _mcp(value: object, tally: Tally) -> None:
    """Note a server whose list of tools the provider fetches."""
    tally.hide("mcp")
    seen(tally).hosted.add("mcp")


def _search(value: object, tally: Tally) -> None:
    """Note a search for tools; the client may run it, and what is found it brings in by itself."""
    tool = cast("dict[str, object]", value)
    if tool.get("execution") == "client":
        _described(value, tally)
    else:
        seen(tally).hosted.add("tool_search")


def _shell(value: object, tally: Tally) -> None:
    """Note a shell: the client's own where the request says so, else one in a container of the provider's."""
    environment = cast("dict[str, object]", value).get("environment")
    if type(environment) is dict and environment.get("type") == "local":
        _described(value, tally)
    else:
        seen(tally).hosted.add("code")


_CALLED_BY = {"allowed_callers": skip}
_MADE_BY_CLIENT = {**_CALLED_BY, "parameters": skip, "output_schema": skip, "_meta": skip, "annotations": skip}
_WEB = shape(
    "a tool",
    "type search_context_size external_web_access indexed_web_access",
    {"filters": skip, "user_location": skip, "search_content_types": skip},
    effect=_hosts("web_search"),
)
_FUNCTION = shape("a tool", "type name description strict async defer_loading", _MADE_BY_CLIENT)
_CUSTOM = shape("a tool", "type name description async defer_loading", {**_CALLED_BY, "format": skip})
_NAMESPACED = each(variant({"function": _FUNCTION, "custom": _CUSTOM}, {}, "tool"), "tools")
TOOLS = {
    "function": _FUNCTION,
    "custom": _CUSTOM,
    "namespace": shape("a tool", "type name description", {"tools": _NAMESPACED}),
    "local_shell": shape("a tool", "type", effect=_described),
    "apply_patch": shape("a tool", "type", _CALLED_BY, effect=_described),
    "shell": shape("a tool", "type", {**_CALLED_BY, "environment": skip}, effect=_shell),
    "computer": shape("a tool", "type", effect=_described),
    "computer_use_preview": shape("a tool", "type display_height display_width environment", effect=_described),
    "tool_search": shape("a tool", "type execution description", {"parameters": skip}, effect=_search),
    **dict.fromkeys(
        ("web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"), _WEB
    ),
    "file_search": shape(
        "a tool",
        "type max_num_results",
        {"vector_store_ids": skip, "filters": skip, "ranking_options": skip},
        effect=_hosts("file_search"),
    ),
    "code_interpreter": shape("a tool", "type container", {**_CALLED_BY, "container": skip}, effect=_hosts("code")),
    "mcp": shape(
        "a tool",
        "type server_label authorization connector_id defer_loading server_description server_url tunnel_id "
        "allowed_tools require_approval",
        {**_CALLED_BY, "allowed_tools": skip, "headers": skip, "require_approval": skip},
        effect=_mcp,
    ),
}
_REFUSED_TOOLS = {
    "image_generation": "the provider makes images, at another model's price",
    "programmatic_tool_calling": "the provider runs programs that call tools, as often as they like",
    "x_search": "the provider searches posts, for a fee and with results as input",
    "collections_search": "the provider searches its files, for a fee and with results as input",
    "openrouter:": "the provider runs the tool",
    "fetch_url": "the provider reads pages, for a fee and with what they hold as input",
}
_CHECKED = checked(each(variant(TOOLS, _REFUSED_TOOLS, "tool"), "tools"))


def tools_rule(value: object, tally: Tally) -> None:
    """Read the request's tools; they are counted by their bytes as they were written."""
    _CHECKED(value, tally)


def session_gb(tools: object) -> int:
    """Give the memory of the largest container that tools ask for, in gigabytes, as which it is billed.

    One that is named by its id was paid for when it was made, and counts as one of the usual size.
    Source: OpenAI's guide to the code interpreter, `memory_limit`: 1g (unsaid), 4g, 16g or 64g; read 2026-11.
    """
    found = [1]
    for tool in tools if isinstance(tools, list) else []:
        told = tool if isinstance(tool, dict) else {}
        place = told.get("container") or told.get("environment")
        said = place.get("memory_limit") if isinstance(place, dict) else None
        found += [] if said is None else [_MEMORY.get(str(said), max(_MEMORY.values()))]
    return max(found)


def agents_rule(value: object, tally: Tally) -> None:
    """Refuse agents that the provider runs: how many there may be has no limit."""
    if type(value) is not dict or value.get("enabled") is not False:
        unpriced(f"multi_agent as {shown(value)} (the provider runs agents, as many as they like)")

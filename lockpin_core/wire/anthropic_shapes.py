"""The shape of an Anthropic Messages request: its fields by name, each bounded or refused.

Every one of the public reference stands here, with its content blocks and tools in `anthropic_blocks` and
`anthropic_tools`: it is bounded by what the body shows, or it hides input (then the context window bounds it), or
`anthropic_hosted` counts what the provider may run for it, or it is refused. Knows no prices.
Source: the provider's Messages reference and the request types of its SDK, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from lockpin_core.usage import Unit
from lockpin_core.wire.anthropic_blocks import BLOCKS, read_blocks
from lockpin_core.wire.anthropic_tools import (
    CLIENT_TOOL_TOKENS,
    TOOL_USE_TOKENS,
    TOOLS,
    ToolSizes,
    cache_rule,
    check_tools,
    json_size,
)
from lockpin_core.wire.jsonbody import shown_name
from lockpin_core.wire.routing import routing_rule
from lockpin_core.wire.tally import (
    Nested,
    Rule,
    Tally,
    Unknown,
    as_escaped_json,
    each,
    scalars,
    shape,
    skip,
    unpriced,
    variant,
)

__all__ = ["BLOCKS", "CLIENT_TOOL_TOKENS", "REQUEST", "SCHEMA_FIELDS", "TOOLS", "TOOL_USE_TOKENS", "ToolSizes"]


def _resume(value: object, tally: Tally) -> None:
    """Bound a conversation that the provider kept: its window bounds the turns, which may have had any cache mark."""
    tally.hide("thread")
    tally.prompt_units |= {Unit.CACHE_WRITE_5M, Unit.CACHE_WRITE_1H}


def _check_payer(value: object, tally: Tally) -> None:
    payer = cast("dict[str, object]", value).get("bill_to")
    if payer not in (None, "self"):
        unpriced('"billing_policy" (another account may be billed)')


def _check_kind(value: object, tally: Tally) -> None:
    kind = cast("dict[str, object]", value).get("type")
    if kind not in (None, "summarize"):
        unpriced(f"compaction of type {shown_name(kind)}")


def _count_schema(value: object, tally: Tally) -> None:
    tally.schema_bytes += json_size(value)


# Values that may be plain too: "all", or a number.
_EDIT_FIELDS = "type trigger keep clear_at_least clear_tool_inputs exclude_tools"
_EDIT_RULES: Mapping[str, Rule] = {
    "trigger": scalars,
    "keep": scalars,
    "clear_at_least": scalars,
    "clear_tool_inputs": scalars,
    "exclude_tools": scalars,
}
_EDITS = {
    "clear_tool_uses_20250919": shape("a context edit", _EDIT_FIELDS, _EDIT_RULES),  # these two only take away
    "clear_thinking_20251015": shape("a context edit", _EDIT_FIELDS, _EDIT_RULES),
    "compact_20260112": shape(
        "a context edit", "type instructions pause_after_compaction", {"trigger": scalars}, unknown=Unknown.REFUSE
    ),
}
_EDIT = variant(
    _EDITS, {"compact_": "the provider summarizes the conversation, in a sampling of its own"}, "context edit"
)
_CONTEXT_MANAGEMENT = shape(
    "context_management", "", {"edits": each(_EDIT, "context_management.edits")}, unknown=Unknown.REFUSE
)
_THINKING = shape("thinking", "type budget_tokens display", {"block_binding": scalars}, unknown=Unknown.REFUSE)
_OUTPUT_CONFIG = shape("output_config", "effort", {"format": skip, "task_budget": scalars}, unknown=Unknown.REFUSE)
_FALLBACK = shape(
    "a fallback",
    "model max_tokens speed",
    {
        "thinking": _THINKING.read,
        "output_config": shape(
            "output_config", "effort", {"format": _count_schema, "task_budget": scalars}, unknown=Unknown.REFUSE
        ).read,
    },
    unknown=Unknown.REFUSE,
)
_MCP_SERVER = shape(
    "an MCP server",
    "type name url authorization_token",
    {"tool_configuration": shape("tool_configuration", "enabled", {"allowed_tools": scalars}).read},
    unknown=Unknown.REFUSE,
)
_SKILL = shape("a skill", "type skill_id version", unknown=Unknown.REFUSE)
_CONTAINER = shape("container", "id", {"skills": each(_SKILL.read, "container.skills")}, unknown=Unknown.REFUSE)
_COMPACTION = shape("compaction", "type instructions", unknown=Unknown.REFUSE, effect=_check_kind)
_PAYER = shape("billing_policy", "type bill_to", unknown=Unknown.REFUSE, effect=_check_payer)
# A reply may come back whole, with its usage and whatever else it had.
_MESSAGE = shape(
    "a message",
    "role clear_at content container",
    {"content": read_blocks, "output_config": scalars, "container": as_escaped_json},
    nested_unknown=Nested.COUNT,
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
    "system fallback_credit_token fallbacks container anthropic_version",
    {
        "tools": check_tools,
        "messages": _messages,
        "system": read_blocks,
        "tool_choice": scalars,
        "thinking": _THINKING.read,
        "output_config": _OUTPUT_CONFIG.read,
        "metadata": scalars,
        "stop_sequences": scalars,
        "cache_control": cache_rule,
        "context_management": _CONTEXT_MANAGEMENT.read,
        "diagnostics": scalars,
        "thread": _THREAD,
        "fallback_credit_token": scalars,  # it only makes the call cheaper
        "fallbacks": each(_FALLBACK.read, "fallbacks"),
        "mcp_servers": each(_MCP_SERVER.read, "mcp_servers"),
        "container": _CONTAINER.read,
        "compaction": _COMPACTION.read,
        "billing_policy": _PAYER.read,
        "provider": routing_rule,  # of hosts that pass calls on
        "anthropic_beta": scalars,  # of hosts that take no headers for it
    },
    nested_unknown=Nested.EMPTY,
)
SCHEMA_FIELDS = ("tools", "output_config")  # counted by their bytes as they were written

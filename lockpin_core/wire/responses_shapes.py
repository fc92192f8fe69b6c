"""The shapes of a Responses request: fields, items of the input and content parts by name, each bounded or refused.

What the provider keeps and the body only points at hides input. What it has sealed (encrypted reasoning) is counted
by its bytes: it is the text itself, unpacked as large. Knows no prices. Sources: OpenAI's Responses reference and the
request types of its SDK, read 2026-11; what its Codex client sends was looked at on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from lockpin_core.usage import Unit
from lockpin_core.wire.jsonbody import json_text, shown, shown_name
from lockpin_core.wire.media import image_at, image_in
from lockpin_core.wire.openai_caching import breakpoint_rule, options_rule
from lockpin_core.wire.openai_extras import search_rule
from lockpin_core.wire.responses_tools import agents_rule, checked, seen, tools_in_input, tools_rule
from lockpin_core.wire.routing import routing_rule
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

_MODES = (None, "standard", "pro")


def _members(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value)


# Parts


def _sealed(field: str) -> Rule:
    """Make the rule for text that the provider has encrypted: no cipher makes it shorter, and it stands in base64.

    Each character counts as a token: that is 4/3 of the text's bytes, the most that any tokenizer is known to make.
    """

    def effect(value: object, tally: Tally) -> None:
        sealed = _members(value).get(field)
        if type(sealed) is str and sealed.isascii():
            tally.extra_tokens += len(sealed)
        elif sealed is not None:
            tally.hide(field)

    return effect


_seal = _sealed("encrypted_content")


def _image(value: object, tally: Tally) -> None:
    """Count an image; its size is known where its bytes stand here."""
    part = _members(value)
    image = part.get("image_url")
    found = image if isinstance(image, dict) else {"url": image}
    tally.images.append(image_at(found.get("url"), part.get("detail") or found.get("detail")))
    tally.prompt_units.add(Unit.IMAGE_IN)


def _hide_file(value: object, tally: Tally) -> None:
    tally.hide("file")
    seen(tally).files = True
    tally.prompt_units.add(Unit.IMAGE_IN)


def _hide_audio(value: object, tally: Tally) -> None:
    tally.hide("audio")
    tally.prompt_units.add(Unit.AUDIO_IN)


def _parts(value: object, tally: Tally) -> None:
    """Read a list of content parts."""
    for part in value if type(value) is list else (value,):
        _part(part, tally)


_MARKED: Mapping[str, Rule] = {"prompt_cache_breakpoint": breakpoint_rule}
_NOTES: Mapping[str, Rule] = {"annotations": as_escaped_json, "logprobs": as_escaped_json, "_meta": as_escaped_json}
_AUDIO = shape("input_audio", "format", uncounted="data")
_TEXT = shape("a text part", "type text id", {**_MARKED, **_NOTES}, unknown=Unknown.HIDE)
PARTS = {
    **dict.fromkeys(("input_text", "output_text", "text", "summary_text", "reasoning_text"), _TEXT),
    "refusal": shape("a refusal part", "type refusal", _MARKED, unknown=Unknown.HIDE),
    "input_image": shape(
        "an image part",
        "type detail file_id",
        _MARKED,
        uncounted="image_url",
        unknown=Unknown.HIDE,
        effect=_image,
    ),
    "computer_screenshot": shape(
        "a screenshot", "type detail file_id", uncounted="image_url", unknown=Unknown.HIDE, effect=_image
    ),
    "input_file": shape(
        "a file part", "type detail file_id file_url filename", _MARKED, uncounted="file_data", effect=_hide_file
    ),
    "input_audio": shape("an audio part", "type", {**_MARKED, "input_audio": _AUDIO.read}, effect=_hide_audio),
    "encrypted_content": shape("a sealed part", "type", uncounted="encrypted_content", effect=_seal),
}
_part = variant(PARTS, {"video": "its tokens are not known from its bytes"}, "content part")

# Items


def _reasoning(value: object, tally: Tally) -> None:
    """Count reasoning of an earlier turn; what is named and not given, the provider brings in."""
    item = _members(value)
    if seen(tally).stores:  # no tokenizer makes two tokens of a character that is written in ASCII
        seen(tally).reasoning += 2 * len(json_text(item, escaped=True))
    if item.get("encrypted_content"):
        _seal(value, tally)
    elif item.get("id"):
        tally.hide("reasoning")


def _hosted_call(value: object, tally: Tally) -> None:
    """Count a call of a tool of the provider's, which may bring in by itself what the tool gave, where it keeps it."""
    if _members(value).get("id") and seen(tally).stores:
        tally.hide("tool_output")


def _made_image(value: object, tally: Tally) -> None:
    """Count an image that the provider made."""
    tally.images.append(image_in(_members(value).get("result")))
    tally.prompt_units.add(Unit.IMAGE_IN)


def _hide(reason: str) -> Rule:
    def effect(value: object, tally: Tally) -> None:
        tally.hide(reason)

    return effect


def _compacts(value: object, tally: Tally) -> None:
    seen(tally).compacts = True


def _triggers(value: object, tally: Tally) -> None:
    seen(tally).triggers += 1


# Of every item: who made it and how far it came. Codex adds notes of its own.
_COMMON = "type id status name namespace call_id role phase"
_OF_ALL: Mapping[str, Rule] = {
    "agent": scalars,
    "caller": scalars,
    "internal_chat_message_metadata_passthrough": as_escaped_json,
    "provider_specific_fields": as_escaped_json,
}


def _item(
    fields: str = "", rules: Mapping[str, Rule] | None = None, *, uncounted: str = "", effect: Rule | None = None,
    name: str = "an item of input", unknown: Unknown = Unknown.PASS,
) -> Shape:  # fmt: skip
    return shape(
        name,
        f"{_COMMON} {fields}",
        {**_OF_ALL, **(rules or {})},
        uncounted=uncounted,
        unknown=unknown,
        nested_unknown=Nested.COUNT,
        effect=effect,
    )


_FORMATS = {
    "text": shape("text.format", "type"),
    "json_object": shape("text.format", "type", {"schema": skip}),
    "json_schema": shape("text.format", "type name description strict", {"schema": skip, "json_schema": skip}),
    "grammar": shape("text.format", "type grammar syntax definition"),
}
_format = variant(_FORMATS, {}, "text.format")
# What an item may change for later turns too: they may not show it, so nothing that costs beside the output limit.
_NEW_REASONING = shape("reasoning of a configuration_update", "effort", unknown=Unknown.REFUSE)
_NEW_TEXT = shape("text of a configuration_update", "", {"format": _format}, unknown=Unknown.REFUSE)


def _new_text(value: object, tally: Tally) -> None:
    checked(_NEW_TEXT.read)(value, tally)
    seen(tally).add_schema(value)


_OUTPUT = {"output": _parts}
_CONTENT = {"content": _parts}
_ACTION = {"action": as_json}
ITEMS = {
    "message": _item("content end_turn", {**_CONTENT, **_MARKED}),
    "reasoning": _item("content", {"summary": _parts, **_CONTENT}, uncounted="encrypted_content", effect=_reasoning),
    "function_call": _item(
        "arguments async", uncounted="encrypted_function_args", effect=_sealed("encrypted_function_args")
    ),
    "function_call_output": _item("output", _OUTPUT),
    "custom_tool_call": _item("input async"),
    "custom_tool_call_output": _item("output", _OUTPUT),
    "local_shell_call": _item("", _ACTION),
    "local_shell_call_output": _item("output", _OUTPUT),
    "shell_call": _item("", {**_ACTION, "environment": as_json}),
    "shell_call_output": _item("max_output_length output", {"output": as_json}),
    "apply_patch_call": _item("", {"operation": as_json}),
    "apply_patch_call_output": _item("output"),
    "computer_call": _item("", {**_ACTION, "actions": as_json, "pending_safety_checks": as_json}),
    "computer_call_output": _item("", {"output": _parts, "acknowledged_safety_checks": as_json}),
    "web_search_call": _item("", {**_ACTION, "results": as_escaped_json}, effect=_hosted_call),
    "file_search_call": _item("", {"queries": scalars, "results": as_escaped_json}, effect=_hosted_call),
    "code_interpreter_call": _item("code container_id", {"outputs": as_escaped_json}, effect=_hosted_call),
    "image_generation_call": _item(
        "action background output_format quality revised_prompt size",
        {"error": as_json, "svg_usage": scalars},
        uncounted="result",
        effect=_made_image,
    ),
    "mcp_list_tools": _item("server_label error", {"tools": as_escaped_json, "error": as_json}),
    "mcp_approval_request": _item("server_label arguments"),
    "mcp_approval_response": _item("approval_request_id approve reason"),
    "mcp_call": _item("server_label arguments approval_request_id error output", {"error": as_json}),
    "tool_search_call": _item("execution arguments", {"arguments": as_json}),
    "tool_search_output": _item("execution", {"tools": tools_in_input}),
    "additional_tools": _item("", {"tools": tools_in_input}),
    "configuration_update": _item(
        "", {"reasoning": _NEW_REASONING.read, "text": _new_text}, name="configuration_update", unknown=Unknown.REFUSE
    ),
    "program": _item("code fingerprint"),
    "program_output": _item("result"),
    "multi_agent_call": _item("action arguments"),
    "multi_agent_call_output": _item("action output", _OUTPUT),
    "agent_message": _item("author recipient content", _CONTENT),
    "item_reference": _item("", effect=_hide("item_reference")),
    "compaction": _item("", uncounted="encrypted_content", effect=_hide("compaction")),
    "compaction_summary": _item("", uncounted="encrypted_content", effect=_hide("compaction")),
    "context_compaction": _item("", uncounted="encrypted_content", effect=_hide("compaction")),
    "compaction_trigger": _item("", effect=_triggers),
}
_typed_item = variant(ITEMS, {}, "item of input", default="message")


def _read_item(item: object, tally: Tally) -> None:
    """Read an item; one without a type is a message, or a reference where it has nothing but an id."""
    tally.messages += 1
    if type(item) is dict and item.get("type") is None and "id" in item and item.keys() <= {"id", "type", "agent"}:
        ITEMS["item_reference"].read(item, tally)
    else:
        _typed_item(item, tally)


# The request


def _reasons(value: object, tally: Tally) -> None:
    mode = _members(value).get("mode")
    if mode not in _MODES:
        unpriced(f'"mode" of reasoning as {shown_name(mode)} (the provider may work more than the output limit says)')


def _stored_prompt(value: object, tally: Tally) -> None:
    _PROMPT.read(value, tally)
    tally.hide("prompt")


def _variables(value: object, tally: Tally) -> None:
    """Read what is filled into a stored prompt: texts, or parts."""
    for name, item in _members(value).items() if type(value) is dict else [(shown(value), value)]:
        tally.texts.append(name)
        if type(item) is dict:
            _part(item, tally)
        else:
            as_json(item, tally)


def _managed(value: object, tally: Tally) -> None:
    if _members(value).get("type") != "compaction":
        unpriced(f"context_management {shown_name(_members(value).get('type'))}")
    _compacts(value, tally)


_PROMPT = shape("prompt", "id version", {"variables": _variables})
_REASONING = shape(
    "reasoning",
    "effort enabled exclude summary generate_summary mode context max_tokens",
    refused=dict.fromkeys(("budget_tokens",), "reasoning may be billed beside the output limit"),
    unknown=Unknown.REFUSE,
    effect=_reasons,
)
_MANAGEMENT = shape("context_management", "type compact_threshold", unknown=Unknown.REFUSE, effect=_managed)
_TEXT_OPTIONS = shape("text", "verbosity", {"format": _format})
_IMAGE_OPTIONS = shape("image", "context_compression", unknown=Unknown.REFUSE)
_POLICY = shape("moderation.policy", "", {"input": scalars, "output": scalars})
_MODERATION = shape("moderation", "model", {"policy": _POLICY.read})
_TOOL_CHOICE = shape("tool_choice", "type name mode server_label", {"tools": as_json, "function": scalars})
_REFUSED_FIELDS = {
    "web_search_options": "the provider searches the web, for a fee and with results as input",
    "plugins": "the provider runs plugins",
    "enable_code_interpreter": "the provider runs code, with what it prints as input",
    "enable_search": "the provider searches the web, for a fee and with results as input",
    "models": "the provider may choose another model",
    "preset": "the provider keeps settings that the body does not show",
    "deferred": "the reply comes later, in another format",
    "reasoning_max_tokens": "reasoning may be billed beside the output limit",
}
# Folded names of plain fields that nobody knows and that sound like work that costs.
_WARY = "reason|think|budget|search|retriev|interpreter|multiagent|effort|tier|speed|residency"
_WORDS = (
    "model max_output_tokens max_tool_calls stream temperature top_p top_logprobs frequency_penalty presence_penalty "
    "seed user safety_identifier prompt_cache_key prompt_cache_retention service_tier store parallel_tool_calls "
    "truncation background previous_response_id generate tool_choice conversation instructions input "
    "enable_thinking thinking_budget trace"
)
REQUEST = shape(
    "the request",
    _WORDS,
    {
        "input": each(_read_item, "input"),
        "instructions": each(_read_item, "instructions"),
        "tools": tools_rule,
        "tool_choice": _TOOL_CHOICE.read,
        "text": checked(_TEXT_OPTIONS.read),
        "reasoning": _REASONING.read,
        "prompt": _stored_prompt,
        "conversation": scalars,
        "prompt_cache_options": options_rule,
        "context_management": each(_MANAGEMENT.read, "context_management"),
        "multi_agent": agents_rule,
        "background_options": scalars,
        "stream_options": scalars,
        "metadata": scalars,
        "user_security_context": scalars,  # for Azure's security log: who uses which application
        "trace": scalars,  # for the log that OpenRouter writes elsewhere
        "client_metadata": as_json,
        "include": scalars,
        "access_programs": scalars,
        "moderation": _MODERATION.read,
        "image": _IMAGE_OPTIONS.read,
        "provider": routing_rule,
        "search_parameters": search_rule,
    },
    refused=_REFUSED_FIELDS,
    wary=_WARY,
    nested_unknown=Nested.EMPTY,
)
SCHEMA_FIELDS = ("tools", "text")  # counted by their bytes as they were written

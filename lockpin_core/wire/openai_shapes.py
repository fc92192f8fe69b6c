"""The shapes of a Chat Completions request: fields, content parts and tools by name, each bounded or refused.

Beside OpenAI's own fields some of those that speak its format have are known here, where they cost nothing more.
Knows no prices. Source: OpenAI's Chat Completions reference and the request types of its SDK, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from lockpin_core.usage import Unit
from lockpin_core.wire.jsonbody import shown_name
from lockpin_core.wire.media import image_at, wav_tokens
from lockpin_core.wire.openai_caching import breakpoint_rule, options_rule
from lockpin_core.wire.openai_extras import extra_body_rule, search_rule
from lockpin_core.wire.routing import routing_rule
from lockpin_core.wire.tally import (
    Nested,
    Rule,
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

REFUSED_FIELDS = {
    "web_search_options": "the provider searches the web, for a fee and with results as input",
    "plugins": "the provider runs plugins",
    "models": "the provider may choose another model",
    "provider": "the provider may choose another model's host and price",
    "search_parameters": "the provider searches the web, for a fee and with results as input",
    "deferred": "the reply comes later, by another call",
    "background": "the reply comes later, by another call",
    "previous_response_id": "the provider keeps the conversation, so the body does not show it",
    "conversation": "the provider keeps the conversation, so the body does not show it",
    "prompt": "the provider keeps the prompt, so the body does not show it",
    "reasoning_mode": "the provider may work more than the output limit says",
    "reasoning_max_tokens": "reasoning may be billed beside the output limit",
    "reasoning_budget": "reasoning may be billed beside the output limit",
    "thinking_budget": "reasoning may be billed beside the output limit",
    "enable_thinking": "reasoning may be billed beside the output limit",
    "enable_code_interpreter": "the provider runs code, with what it prints as input",
    "enable_search": "the provider searches the web, for a fee and with results as input",
    "search_settings": "the provider searches the web, for a fee and with results as input",
    "compound_custom": "the provider runs tools and other models",
    "preset": "the provider keeps settings that the body does not show",
    "safety_model": "another model of the provider's reads along",
}
_REFUSED_REASONING = {
    "budget_tokens": "reasoning may be billed beside the output limit",
    "context": "the provider may add reasoning of earlier turns as input",
}
# Folded names of plain fields that nobody knows and that sound like work that costs.
WARY = "reason|think|budget|search|retriev|interpreter|multiagent|effort|tier|speed|residency"
_REFUSED_PARTS = {
    "video": "its tokens are not known from its bytes",
}
_REFUSED_TOOLS = {
    "web_search": "the provider searches the web, for a fee and with results as input",
    "file_search": "the provider searches its files",
    "code_interpreter": "the provider runs code in a container",
    "image_generation": "the provider makes images",
    "computer": "the provider adds a set of computer tools",
    "mcp": "the provider calls MCP servers",
    "openrouter:": "the provider runs the tool",
}


def _marker(value: object, tally: Tally) -> None:
    """Read Anthropic's cache marker, which some providers of several vendors' models pass on."""
    _MARKER.read(value, tally)
    ttl = cast("dict[str, object]", value).get("ttl")
    if ttl not in (None, "5m", "1h"):
        unpriced(f"a prompt cache lifetime of {shown_name(ttl)}")
    tally.prompt_units |= {Unit.CACHE_WRITE_5M, Unit.CACHE_WRITE_1H} if ttl == "1h" else {Unit.CACHE_WRITE_5M}


def _count_image(value: object, tally: Tally) -> None:
    """Count an image; its size is known where its bytes stand here. Most hosts also take its address as plain text."""
    image = cast("dict[str, object]", value).get("image_url")
    found = image if isinstance(image, dict) else {"url": image}
    tally.images.append(image_at(found.get("url"), found.get("detail")))
    tally.prompt_units.add(Unit.IMAGE_IN)


def _hide_file(value: object, tally: Tally) -> None:
    tally.hide("file")
    tally.prompt_units.add(Unit.IMAGE_IN)


def _hide_audio(value: object, tally: Tally) -> None:
    tally.hide("audio")
    tally.prompt_units.add(Unit.AUDIO_IN)


def _count_audio(value: object, tally: Tally) -> None:
    """Count a sound by how long it is, where it is uncompressed."""
    sound = cast("dict[str, object]", value).get("input_audio")
    tokens = wav_tokens(sound.get("data")) if isinstance(sound, dict) and sound.get("format") == "wav" else None
    if tokens is None:
        _hide_audio(value, tally)
    else:
        tally.extra_tokens += tokens
        tally.prompt_units.add(Unit.AUDIO_IN)


def _standard_mode(value: object, tally: Tally) -> None:
    mode = cast("dict[str, object]", value).get("mode")
    if mode not in (None, "standard"):
        unpriced(f'"mode" of reasoning as {shown_name(mode)} (the provider may work more than the output limit says)')


def _called(value: object, tally: Tally) -> None:
    """Count a function as it was called; clients also hold its arguments as the object that they read from them."""
    items = value.values() if isinstance(value, dict) else cast("list[object]", value)
    tally.add_json(value, escaped=any(type(item) in (dict, list) for item in items))


def _parts(value: object, tally: Tally) -> None:
    """Read a list of content parts."""
    for part in value if type(value) is list else (value,):
        if type(part) is dict and len(part) == 2 and part.get("type") == "text" and type(part.get("text")) is str:
            tally.texts += ("type", "text", "text", part["text"])  # most parts of a conversation
        else:
            _part(part, tally)


def _checked(rule: Rule) -> Rule:
    """Make a rule that only checks: the bytes are counted as schema."""

    def read(value: object, tally: Tally) -> None:
        mark, more = len(tally.texts), tally.more_strings
        rule(value, tally)
        del tally.texts[mark:]
        tally.more_strings = more

    return read


_MARKER = shape("cache_control", "type ttl", unknown=Unknown.REFUSE)
_MARKED: Mapping[str, Rule] = {"prompt_cache_breakpoint": breakpoint_rule, "cache_control": _marker}
_NOTES: Mapping[str, Rule] = {"_meta": as_escaped_json, "annotations": as_escaped_json}  # as MCP servers do

_IMAGE_URL = shape("image_url", "detail", uncounted="url", unknown=Unknown.HIDE)
_FILE = shape("file", "file_id filename", uncounted="file_data")
_AUDIO = shape("input_audio", "format", uncounted="data")
# What is unknown in a part may stand for input that is elsewhere. Some hosts take an image or a sound as plain text.
PARTS = {
    "text": shape("a text part", "type text id", {**_MARKED, **_NOTES}, unknown=Unknown.HIDE),
    "refusal": shape("a refusal part", "type refusal", _MARKED, unknown=Unknown.HIDE),
    "image_url": shape(
        "an image part",
        "type image_url",
        {**_MARKED, "image_url": _IMAGE_URL.read},
        unknown=Unknown.HIDE,
        effect=_count_image,
    ),
    "file": shape("a file part", "type", {**_MARKED, "file": _FILE.read}, effect=_hide_file),
    "input_audio": shape(
        "an audio part", "type input_audio", {**_MARKED, "input_audio": _AUDIO.read}, effect=_count_audio
    ),
    "thinking": shape("a thinking part", "type thinking signature closed", {"thinking": _parts}, unknown=Unknown.HIDE),
}
_part = variant(PARTS, _REFUSED_PARTS, "content part")

_CALL_RULES: Mapping[str, Rule] = {
    "function": _called,
    "custom": scalars,
    "extra_content": as_json,
    "provider_specific_fields": as_escaped_json,
}
_CALL = shape("a tool call", "id type index", _CALL_RULES, nested_unknown=Nested.COUNT)
_CALLS = {"function": _CALL, "custom": _CALL}
_MESSAGE = shape(
    "a message",
    "role name refusal tool_call_id reasoning_content reasoning prefix partial content reasoning_details annotations "
    "parsed",
    {
        **_MARKED,
        "content": _parts,
        "tool_calls": each(variant(_CALLS, {}, "tool call", default="function"), "tool_calls"),
        "function_call": _called,
        "audio": shape("audio of a message", "id expires_at transcript", uncounted="data", effect=_hide_audio).read,
        "reasoning_details": as_json,
        "annotations": as_json,
        "parsed": as_escaped_json,  # the content, as the client's own objects
        "provider_specific_fields": as_escaped_json,
        "thinking_blocks": as_escaped_json,
    },
    nested_unknown=Nested.COUNT,
)

_SKIPPED: Mapping[str, Rule] = dict.fromkeys(_NOTES, skip)
_FUNCTION = shape("a function", "name description strict", {"parameters": skip, **_SKIPPED})
_CUSTOM = shape("a custom tool", "name description", {"format": skip})
TOOLS = {
    "function": shape("a tool", "type strict", {**_MARKED, **_SKIPPED, "function": _FUNCTION.read}),
    "custom": shape("a tool", "type", {**_MARKED, "custom": _CUSTOM.read}),
}
_FORMATS = {
    "text": shape("response_format", "type"),
    "json_object": shape("response_format", "type", {"schema": skip}),
    "json_schema": shape("response_format", "type", {"json_schema": skip}),
    "grammar": shape("response_format", "type grammar"),
}


def _messages(value: object, tally: Tally) -> None:
    for message in cast("list[object]", value):
        _MESSAGE.read(message, tally)


def _cache_options(value: object, tally: Tally) -> None:
    """Read the options that a chat may have: fewer than other formats."""
    _CACHE_OPTIONS.read(value, Tally())
    options_rule(value, tally)


_CACHE_OPTIONS = shape("prompt_cache_options", "mode ttl", unknown=Unknown.REFUSE)
_POLICY = shape("moderation.policy", "", {"input": scalars, "output": scalars})
_MODERATION = shape("moderation", "model", {"policy": _POLICY.read})
_ALLOWED_TOOLS = shape("tool_choice.allowed_tools", "mode", {"tools": as_json})
_TOOL_CHOICE = shape(
    "tool_choice", "type name", {"function": scalars, "custom": scalars, "allowed_tools": _ALLOWED_TOOLS.read}
)
_PREDICTION = shape("prediction", "type content", {"content": _parts})
_VOICE = shape("audio", "format voice", {"voice": scalars})
# Effort spends inside the output limit; limits and modes of their own are not known to.
_REASONING = shape(
    "reasoning",
    "effort enabled exclude summary generate_summary mode max_tokens",
    refused=_REFUSED_REASONING,
    unknown=Unknown.REFUSE,
    effect=_standard_mode,
)
# On or off, on hosts whose models think inside the output limit.
_THINKING = shape("thinking", "type budget_tokens clear_thinking keep", unknown=Unknown.REFUSE)

REQUEST = shape(
    "the request",
    "model max_completion_tokens max_tokens n best_of stream temperature top_p frequency_penalty presence_penalty "
    "seed user safety_identifier prompt_cache_key prompt_cache_retention reasoning_effort verbosity service_tier store "
    "logprobs top_logprobs parallel_tool_calls include_reasoning reasoning_format reasoning_split "
    "reasoning_summary separate_reasoning tool_choice function_call stop enable_thinking thinking_budget "
    "trace",
    {
        "messages": _messages,
        "tools": _checked(each(variant(TOOLS, _REFUSED_TOOLS, "tool"), "tools")),
        "functions": _checked(each(_FUNCTION.read, "functions")),
        "response_format": _checked(variant(_FORMATS, {}, "response_format")),
        "tool_choice": _TOOL_CHOICE.read,
        "function_call": scalars,
        "logit_bias": scalars,
        "metadata": scalars,
        "cache_control": _marker,
        "transforms": scalars,  # some hosts take text out of a prompt that is too long
        "modalities": scalars,
        "audio": _VOICE.read,
        "moderation": _MODERATION.read,
        "prediction": _PREDICTION.read,
        "prompt_cache_options": _cache_options,
        "stop": scalars,
        "stream_options": scalars,
        "thinking": _THINKING.read,
        "reasoning": _REASONING.read,
        "usage": scalars,  # asks for more figures in the reply
        "provider": routing_rule,
        "extra_body": extra_body_rule,
        "search_parameters": search_rule,
        "chat_template_kwargs": scalars,  # of servers that run open models
        "stop_token_ids": scalars,
        "user_security_context": scalars,  # for Azure's security log: who uses which application
        "trace": scalars,  # for the log that OpenRouter writes elsewhere
    },
    refused=REFUSED_FIELDS,
    wary=WARY,
    nested_unknown=Nested.EMPTY,
)
SCHEMA_FIELDS = ("tools", "functions", "response_format")  # counted by their bytes as they were written

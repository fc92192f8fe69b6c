"""The shape of a Converse request: its fields by name, each bounded or refused. Knows no prices.

A block of content is an object with one member, whose name says what it is. What stands in a bucket, documents, videos
and sounds hide input (then the context window bounds it). Fields for the model alone
(`additionalModelRequestFields`) are as free as models are: those that are known to cost nothing by themselves pass.
Source: Amazon Bedrock's API reference of Converse and the service model of its SDK, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.anthropic_tools import CLIENT_TOOL_TOKENS, CLIENT_TOOLS, explain_tools
from lockpin_core.wire.jsonbody import shown, shown_name
from lockpin_core.wire.media import image_in
from lockpin_core.wire.tally import (
    Nested,
    Rule,
    Shape,
    Tally,
    Unknown,
    as_escaped_json,
    each,
    refuse_unknown,
    scalars,
    shape,
    skip,
    unpriced,
    variant,
)

__all__ = ["REQUEST", "SCHEMA_FIELDS"]

_GUARDRAIL = "a guardrail is billed beside the call"


def _hides(reason: str) -> Rule:
    def hide(value: object, tally: Tally) -> None:
        tally.hide(reason)

    return hide


def _mark(value: object, tally: Tally) -> None:
    """Note what a cache point asks for; without a lifetime it is 5 minutes."""
    members = cast("dict[str, object]", value)
    kind, ttl = members.get("type"), members.get("ttl")
    if kind not in (None, "default") or ttl not in (None, "5m", "1h"):
        unpriced(f"cachePoint of type {shown_name(kind)} with ttl {shown_name(ttl)}")
    tally.prompt_units.add(Unit.CACHE_WRITE_5M)
    if ttl == "1h":
        tally.prompt_units.add(Unit.CACHE_WRITE_1H)


def _count_image(value: object, tally: Tally) -> None:
    source = cast("dict[str, object]", value).get("source")
    tally.images.append(image_in(source.get("bytes") if isinstance(source, dict) else None))


def _hide_sound(value: object, tally: Tally) -> None:
    tally.hide("audio")
    tally.prompt_units.add(Unit.AUDIO_IN)


def _part(name: str, fields: str = "", rules: Mapping[str, Rule] | None = None, effect: Rule | None = None) -> Shape:
    """Make the shape of a part of a message: what is unknown in it may stand for input elsewhere."""
    return shape(name, fields, rules, unknown=Unknown.HIDE, effect=effect)


def _union(kinds: Mapping[str, Rule], noun: str) -> Rule:
    """Make the rule for an object with one member whose name says what it is."""

    def read(value: object, tally: Tally) -> None:
        if type(value) is not dict:
            raise WireError(f"a {noun} is {shown(value)}; an object is allowed")
        for kind, member in value.items():
            rule = kinds.get(kind)
            if rule is None:
                refuse_unknown(f"{noun} {shown_name(kind)}")
            if member is not None:
                tally.texts.append(kind)
                rule(member, tally)

    return read


def _text(value: object, tally: Tally) -> None:
    if type(value) is not str:
        raise WireError(f"text is {shown(value)}; a string is allowed")
    tally.texts.append(value)


_S3 = shape("s3Location", "uri bucketOwner", unknown=Unknown.REFUSE, effect=_hides("file"))
_IN_BUCKET: Mapping[str, Rule] = {"s3Location": _S3.read}
_CACHE_POINT = shape("cachePoint", "type ttl", unknown=Unknown.REFUSE, effect=_mark)
_MARKED: Mapping[str, Rule] = {"cachePoint": _CACHE_POINT.read}
_texts_only = each(_union({"text": _text}, "text block"), "content")
_media = _union({"bytes": skip, **_IN_BUCKET}, "source")
_ERROR: Mapping[str, Rule] = {"error": scalars}  # of a block that a model drew, when it comes back
_IMAGE = _part("an image", "format", {"source": _media, **_ERROR}, _count_image)
_DOCUMENT = _part(
    "a document",
    "format name context",
    {
        "source": _union({"bytes": _hides("document"), **_IN_BUCKET, "text": _text, "content": _texts_only}, "source"),
        "citations": scalars,
    },
)
_VIDEO = _part("a video", "format", {"source": _media}, _hides("video"))
_AUDIO = _part("a sound", "format", {"source": _media, **_ERROR}, _hide_sound)
_SEARCH_RESULT = _part("a search result", "source title", {"content": _texts_only, "citations": scalars})
_GUARDED = _union(
    {
        "text": _part("guarded text", "text", {"qualifiers": scalars}).read,
        "image": _IMAGE.read,
    },
    "guarded block",
)
_of_tools = _union(
    {
        "json": as_escaped_json,
        "text": _text,
        "image": _IMAGE.read,
        "document": _DOCUMENT.read,
        "video": _VIDEO.read,
        "searchResult": _SEARCH_RESULT.read,
    },
    "block of a tool's result",
)
_reasoning = _union(
    {"reasoningText": _part("reasoning", "text signature").read, "redactedContent": _text}, "block of reasoning"
)
_block = _union(
    {
        "text": _text,
        "image": _IMAGE.read,
        "document": _DOCUMENT.read,
        "video": _VIDEO.read,
        "audio": _AUDIO.read,
        "toolUse": _part("toolUse", "toolUseId name type input", {"input": as_escaped_json}).read,
        "toolResult": _part(
            "toolResult", "toolUseId status type", {"content": each(_of_tools, "content of a tool's result")}
        ).read,
        "guardContent": _GUARDED,
        **_MARKED,
        "reasoningContent": _reasoning,
        "citationsContent": _part("cited text", "", {"content": as_escaped_json, "citations": as_escaped_json}).read,
        "searchResult": _SEARCH_RESULT.read,
    },
    "content block",
)
_MESSAGE = shape("a message", "role", {"content": each(_block, "content of a message")}, unknown=Unknown.REFUSE)
_system = each(_union({"text": _text, "guardContent": _GUARDED, **_MARKED}, "block of system"), "system")


# The tools of a request. Their bytes are counted as schema, from the body as it was written: the rules only check.


def _refuse_system_tool(value: object, tally: Tally) -> None:
    unpriced('"systemTool" (the provider runs it)')


_SPEC = shape("a tool", "name description strict", {"inputSchema": skip}, unknown=Unknown.REFUSE)
_tool = _union({"toolSpec": _SPEC.read, "systemTool": _refuse_system_tool, **_MARKED}, "tool")
_TOOLS = shape("toolConfig", "", {"tools": each(_tool, "tools"), "toolChoice": skip}, unknown=Unknown.REFUSE)


def _check_tools(value: object, tally: Tally) -> None:
    """Read the tools of a request; the provider explains to the model how to use them."""
    _uncounted(_TOOLS.read, value, tally)
    explain_tools(tally)


def _uncounted(rule: Rule, value: object, tally: Tally) -> None:
    mark, more = len(tally.texts), tally.more_strings
    rule(value, tally)
    del tally.texts[mark:]
    tally.more_strings = more


# Fields for the model alone.

_own_tools = each(
    variant(
        {kind: CLIENT_TOOLS[kind] for kind in ("custom", *CLIENT_TOOL_TOKENS)},
        {"": "a tool of its maker's that is no client's"},
        "tool of the model",
        default="custom",
    ),
    "tools of additionalModelRequestFields",
)


def _check_own_tools(value: object, tally: Tally) -> None:
    _own_tools(value, tally)
    explain_tools(tally)


def _check_betas(value: object, tally: Tally) -> None:
    """Read the previews that are asked for; one that lets a model say more than its maximum has no bound."""
    for beta in cast("list[object]", value):
        if isinstance(beta, str) and beta.lower().startswith("output-"):
            unpriced(f"anthropic_beta {shown_name(beta)} (more output than the model's maximum)")
    scalars(value, tally)


_THINKING = shape("thinking", "type budget_tokens display", {"block_binding": scalars}, unknown=Unknown.REFUSE)
_FOR_MODEL = shape(
    "additionalModelRequestFields",
    "top_k topK reasoning_effort",
    {
        "thinking": _THINKING.read,
        "reasoning_config": _THINKING.read,
        "inferenceConfig": shape("inferenceConfig of the model", "topK top_k", unknown=Unknown.REFUSE).read,
        "output_config": shape("output_config", "effort", unknown=Unknown.REFUSE).read,
        "anthropic_beta": _check_betas,
        "tools": _check_own_tools,
        "tool_choice": scalars,
    },
    refused={"reasoningConfig": "no page says that the output limit holds for it"},  # of Nova
    unknown=Unknown.REFUSE,
)


def _check_for_model(value: object, tally: Tally) -> None:
    _uncounted(_FOR_MODEL.read, value, tally)


_INFERENCE = shape(
    "inferenceConfig", "", {"stopSequences": scalars}, uncounted="maxTokens temperature topP", unknown=Unknown.REFUSE
)


def _check_notes(value: object, tally: Tally) -> None:
    """Check what is for Amazon's records alone: no model reads it."""
    scalars(value, Tally())


REQUEST = shape(
    "the request",
    "",
    {
        "messages": each(_MESSAGE.read, "messages"),
        "system": _system,
        "inferenceConfig": _INFERENCE.read,
        "toolConfig": _check_tools,
        "additionalModelRequestFields": _check_for_model,
        "additionalModelResponseFieldPaths": _check_notes,
        "requestMetadata": _check_notes,
        "performanceConfig": shape("performanceConfig", "latency", unknown=Unknown.REFUSE).read,
        "serviceTier": shape("serviceTier", "type", unknown=Unknown.REFUSE).read,
        "outputConfig": shape("outputConfig", "effort", {"textFormat": skip}, unknown=Unknown.REFUSE).read,
    },
    uncounted="projectIdentifier",
    refused={
        "guardrailConfig": _GUARDRAIL,
        "promptVariables": "they are for a prompt that Amazon keeps",
    },
    nested_unknown=Nested.EMPTY,
)
SCHEMA_FIELDS = ("toolConfig", "additionalModelRequestFields", "outputConfig")  # counted by their bytes as written

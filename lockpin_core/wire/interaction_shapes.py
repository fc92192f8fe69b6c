"""The shapes of a request for a Gemini interaction: fields, contents, steps and tools by name, each bounded or refused.

Tools that the provider runs are refused: it samples again after each of them, as often as it likes, and adds up what
it reads. Steps of such tools in a history are input that the body does not show. Knows no prices.
Source: the provider's reference of interactions and the request types of its SDK, read 2026-11.
"""

from __future__ import annotations

from typing import cast

from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.gemini_shapes import decoded_text, hide_media, padded, speech, unwritten
from lockpin_core.wire.jsonbody import shown
from lockpin_core.wire.media import image_in
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

_TEXTS = ("text/", "application/json", "application/xml")  # starts of the types whose bytes are text for the model
_AGENT = "the provider runs an agent, which samples as often as it likes"
_REFUSED_FIELDS = {
    "agent": _AGENT,
    "agent_config": _AGENT,
    "environment": "the provider runs code in an environment",
    "continuation_token": "the provider goes on with what it has kept, and nobody says what it bills for that",
}
_REFUSED_TOOLS = {
    "google_search": "the provider searches the web, as often as it likes",
    "google_maps": "the provider asks a map, as often as it likes",
    "url_context": "the provider reads pages, and samples again",
    "code_execution": "the provider runs code, and samples again",
    "file_search": "the provider searches files, and samples again",
    "mcp_server": "the provider calls MCP servers",
    "retrieval": "the provider searches a data store",
    "tool_search": "the provider searches tools, and samples again",
}
_HOSTED = (
    *("code_execution", "url_context", "google_search", "google_maps", "file_search", "retrieval", "tool_search"),
    *("mcp_server_tool", "processing"),
)


def _members(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value)


def _mime(value: object) -> str:
    found = _members(value).get("mime_type")
    return found.strip().lower() if type(found) is str else ""


def _image(value: object, tally: Tally) -> None:
    """Bound an image by its size; one that stands elsewhere is hidden."""
    members = _members(value)
    if members.get("uri") is not None:
        return hide_media("image/", tally)
    tally.prompt_units.add(Unit.IMAGE_IN)
    tally.images.append(image_in(padded(members.get("data")), members.get("resolution")))
    return None


def _document(value: object, tally: Tally) -> None:
    """Count a document that is text; any other is hidden."""
    members, mime = _members(value), _mime(value)
    text = decoded_text(members.get("data")) if mime.startswith(_TEXTS) and members.get("uri") is None else None
    if text is None:
        hide_media("application/", tally)
    else:
        tally.texts.append(text)


def _media(value: object, tally: Tally) -> None:
    """Hide sound and films: how long they are is not read here."""
    asked = _members(value).get("processing")
    kind = asked.get("type") if isinstance(asked, dict) else asked
    if kind not in (None, "static"):
        unpriced('"processing" of a content (the provider looks through it as often as it likes)')
    hide_media("", tally)


def _hide_tools(value: object, tally: Tally) -> None:
    tally.hide("tools")
    tally.prompt_units |= {Unit.IMAGE_IN}


def _part(name: str, fields: str, effect: Rule | None = None, **rules: Rule) -> Shape:
    """Make the shape of a content or a step: what is unknown in it may stand for input elsewhere."""
    return shape(name, fields, rules, uncounted="data", unknown=Unknown.HIDE, effect=effect)


_text = _part("a text", "type text", annotations=as_json)
CONTENTS = {
    "text": _text,
    "image": _part("an image", "type mime_type resolution uri", _image),
    "document": _part("a document", "type mime_type resolution uri processing", _document, processing=as_json),
    "audio": _part("a sound", "type mime_type channels sample_rate uri processing", _media, processing=as_json),
    "video": _part("a film", "type mime_type resolution uri name processing", _media, processing=as_json),
}
_content = variant(CONTENTS, {}, "content")
_contents = each(_content, "content")
_FUNCTION = shape(
    "a function",
    "type name description short_description defer_loading",
    {"parameters": as_json},
    unknown=Unknown.REFUSE,
)
_result = variant({**CONTENTS, "function": _FUNCTION}, {}, "content of a result")


def _results(value: object, tally: Tally) -> None:
    """Read what a function gave: contents, or an object of its own."""
    if type(value) is list:
        each(_result, "result")(value, tally)
    else:
        as_json(value, tally)


_hosted_step = _part(
    "a step of a tool of the provider's",
    "type id call_id name server_name retrieval_type search_type is_error signature result arguments",
    _hide_tools,
    arguments=as_json,
    result=as_json,
)
STEPS = {
    "user_input": _part("a user_input", "type content", content=_contents),
    "model_output": _part("a model_output", "type content", content=_contents, error=as_json),
    "thought": _part("a thought", "type signature", summary=_contents),
    "function_call": _part("a function_call", "type id name signature", arguments=as_json),
    "function_result": _part("a function_result", "type call_id name is_error result signature", result=_results),
    **{f"{kind}_{end}": _hosted_step for kind in _HOSTED for end in ("call", "result")},
}
_TURN = shape("a turn", "role content", {"content": _contents}, unknown=Unknown.REFUSE, nested_unknown=Nested.REFUSE)
_piece = variant({**STEPS, **CONTENTS}, {}, "step or content")


def _input(value: object, tally: Tally) -> None:
    """Read the input: one content, or a list of contents, steps or turns."""
    pieces = value if type(value) is list else [value]
    tally.messages += len(pieces)
    for piece in pieces:
        if isinstance(piece, dict) and "role" in piece and "type" not in piece:
            _TURN.read(piece, tally)
        else:
            _piece(piece, tally)


def _computer(value: object, tally: Tally) -> None:
    tally.hide("computer_use")


TOOLS = {
    "function": _FUNCTION,
    "computer_use": shape(
        "computer_use",
        "type environment enable_prompt_injection_detection",
        {"excluded_predefined_functions": scalars, "disabled_safety_policies": scalars},
        unknown=Unknown.REFUSE,
        effect=_computer,
    ),
}
_tools = each(variant(TOOLS, _REFUSED_TOOLS, "tool"), "tools")


def _formats(value: object, tally: Tally) -> None:
    """Check what a reply is to look like; its bytes count as schema."""
    for one in value if type(value) is list else [value]:
        if type(one) is not dict:
            raise WireError(f"response_format is {shown(one)}; an object is allowed")
        if one.get("type") == "video":
            unpriced("a reply that is a film")


CONFIG = shape(
    "generation_config",
    "temperature top_p top_k seed presence_penalty frequency_penalty max_output_tokens thinking_level "
    "thinking_summaries tool_choice",
    {
        "stop_sequences": scalars,
        "tool_choice": as_escaped_json,
        "speech_config": speech,
        "image_config": as_json,
        "transcription_config": as_json,
    },
    refused={"video_config": "the provider makes films"},
    unknown=Unknown.REFUSE,
)
REQUEST = shape(
    "the request",
    "model input system_instruction cached_content response_mime_type previous_interaction_id",
    {
        "input": _input,
        "tools": unwritten(_tools),
        "generation_config": CONFIG.read,
        "response_format": _formats,
        "response_modalities": skip,  # read beside this
    },
    uncounted="stream background store service_tier labels safety_settings webhook_config",
    refused=_REFUSED_FIELDS,
    unknown=Unknown.REFUSE,
)

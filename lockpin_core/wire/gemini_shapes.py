"""The shapes of a generateContent request: fields, parts and tools by name, each bounded or refused.

The provider's JSON reader takes every field in camelCase and in snake_case, one object where a list belongs, and whole
numbers as texts: so does this, but a field in both spellings is refused. Free-form values (arguments, results, schemas)
keep their names. Knows no prices.
Sources: the provider's reference of `generateContent`, Vertex AI's of the same name, and the request types of the
provider's SDK, read 2026-11.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import cast

from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.jsonbody import MAX_LIMIT, json_text, plain_word, shown, shown_name, whole
from lockpin_core.wire.media import image_in
from lockpin_core.wire.tally import (
    Nested,
    Rule,
    Shape,
    Tally,
    Unknown,
    as_json,
    scalars,
    shape,
    skip,
    unpriced,
)
from lockpin_core.wire.textsize import sizes

_SNAKE = re.compile(r"(?<=[a-z0-9])_([a-z])")
_DIGITS = re.compile(r"-?[0-9]{1,18}")
_URL_SAFE = str.maketrans("-_", "+/")
_IMAGE_HEAD = 1 << 18  # characters of an image that may show its size; a multiple of four
_TEXTS = ("text/", "application/json", "application/xml")  # starts of the types whose bytes are text for the model
_SILENT = ("image/", "text/", "application/")  # starts of the types that have no sound
_MOST_MEDIA_TOKENS = 10**6  # that a part may ask for by number

_REFUSED_TOOLS = {
    "enterpriseWebSearch": "the provider searches the web, for a fee that is not known",
    "retrieval": "the provider searches a data store, for a fee that is not known",
    "mcpServers": "the provider calls MCP servers",
    "parallelAiSearch": "another vendor searches the web, for a fee",
    "exaAiSearch": "another vendor searches the web, for a fee",
}
_OTHER_MODEL = "the provider may choose another model"
_REFUSED_FIELDS = {
    "modelArmorConfig": "another service of the provider is billed for reading along",
    "generationOutputConfig": "the reply goes elsewhere",
}
# Folded names of plain fields that nobody knows and that sound like work that costs.
_WARY = "budget|search|retriev|think|tier|speed|effort|rout|select|continu|cache|agent"


def camel(value: object, known: Shape) -> object:
    """Give an object with the names of this shape in camelCase, however they are spelled.

    Raises WireError where one stands in both spellings; anything but an object stays as it is.
    """
    if type(value) is not dict:
        return value
    for key in value:  # a third of the time that a generator takes, and there is an object for every part
        if "_" in key:
            break
    else:
        return value
    made: dict[str, object] = {}
    for key, item in value.items():
        name = _SNAKE.sub(lambda found: found[1].upper(), key)
        name = name if name in known.known or name in known.refused else key
        if name in made or (name != key and name in value):
            raise WireError(f"{known.name} has {shown_name(name)} in two spellings; one is allowed")
        made[name] = item
    return made


def fields(value: object, known: Shape) -> Mapping[str, object]:
    """Give the members of an object in camelCase; what is absent or null has none. Raises WireError."""
    if value is None:
        return {}
    if type(value) is not dict:
        raise WireError(f"{known.name} is {shown(value)}; an object is allowed")
    return cast("dict[str, object]", camel(value, known))


def listed(value: object) -> list[object]:
    """Give a list: the provider takes one item for a list of it, and null for none."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def whole_of(value: object, field: str, *, low: int = 0, high: int = MAX_LIMIT) -> int | None:
    """Read a whole number that bounds a cost, be it a number or its digits as text. Raises WireError."""
    is_text = type(value) is str and _DIGITS.fullmatch(value) is not None
    return whole(int(cast("str", value)) if is_text else value, field, low=low, high=high)


def schema_bytes(*values: object) -> int:
    """Count the bytes of schemas as JSON, or of their NFC where it is longer."""
    return sizes([json_text(value) for value in values if value is not None])[1]


def _object(known: Shape) -> Rule:
    """Make the rule for an object in either spelling."""

    def read(value: object, tally: Tally) -> None:
        known.read(camel(value, known), tally)

    return read


def _some(rule: Rule) -> Rule:
    """Make the rule for a list, or for one item in its place."""

    def read(value: object, tally: Tally) -> None:
        for item in listed(value):
            rule(item, tally)

    return read


def unwritten(rule: Rule) -> Rule:
    """Make a rule that only checks: the bytes are counted as schema."""

    def read(value: object, tally: Tally) -> None:
        mark, more = len(tally.texts), tally.more_strings
        rule(value, tally)
        del tally.texts[mark:]
        tally.more_strings = more

    return read


def _objects(value: object, tally: Tally) -> None:
    """Check a list of objects of which nothing else is known here."""
    for item in listed(value):
        if type(item) is not dict:
            raise WireError(f"a function declaration is {shown(item)}; an object is allowed")


def _mime(value: object) -> str:
    found = cast("dict[str, object]", value).get("mimeType")
    return found.strip().lower() if type(found) is str else ""


def _inline(value: object, tally: Tally) -> None:
    """Bound what stands in the body: an image by its size, a text by its bytes; all else is hidden."""
    data, mime = cast("dict[str, object]", value).get("data"), _mime(value)
    if mime.startswith("image/"):
        tally.images.append(image_in(padded(data)))
        tally.prompt_units.add(Unit.IMAGE_IN)
        return
    text = decoded_text(data) if mime.startswith(_TEXTS) else None
    if text is not None:
        tally.texts.append(text)
        return
    hide_media(mime, tally)


def _elsewhere(value: object, tally: Tally) -> None:
    """Hide a file that stands elsewhere: nothing but its address is here."""
    hide_media(_mime(value), tally)


def hide_media(mime: str, tally: Tally) -> None:
    """Hide a file that may be pictures, and sound unless its type has none."""
    tally.hide("file")
    tally.prompt_units.add(Unit.IMAGE_IN)
    if not mime.startswith(_SILENT):
        tally.prompt_units.add(Unit.AUDIO_IN)


def padded(data: object) -> object:
    """Bring the beginning of base64 in any of its spellings to the strict one."""
    if type(data) is not str:
        return None
    head = data[:_IMAGE_HEAD].rstrip("=").translate(_URL_SAFE)
    return head + "=" * (-len(head) % 4)


def decoded_text(data: object) -> str | None:
    """Give the text that base64 in any of its spellings stands for; None: it is no text."""
    if type(data) is not str:
        return None
    bare = data.rstrip("=").translate(_URL_SAFE)
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True).decode()
    except ValueError:
        return None


def _part(value: object, tally: Tally) -> None:
    """Read a part; its resolution is that of the image in it."""
    first = len(tally.images)
    made = camel(value, PART)
    PART.read(made, tally)
    members = cast("dict[str, object]", made)
    if members.get("mediaProcessing") not in (None, "STATIC", "MEDIA_PROCESSING_UNSPECIFIED"):
        unpriced('"mediaProcessing" of a part (the provider looks through a video as often as it likes)')
    if members.get("mediaResolution") is None:
        return
    asked = fields(members["mediaResolution"], _RESOLUTION)
    tally.extra_tokens += whole_of(asked.get("numTokens"), "numTokens", high=_MOST_MEDIA_TOKENS) or 0
    if level := plain_word(asked.get("level"), "the level of a mediaResolution"):
        tally.images[first:] = [image._replace(detail=level) for image in tally.images[first:]]


def _parts(value: object, tally: Tally) -> None:
    """Read a list of parts."""
    for part in listed(value):
        if type(part) is dict and len(part) == 1 and type(part.get("text")) is str:
            tally.texts += ("text", part["text"])  # most parts of a conversation
        else:
            _part(part, tally)


def speech(value: object, tally: Tally) -> None:
    """Count how a reply is to sound; a voice that is made of a sample would be input of its own."""
    tally.add_json(value)
    if "replicated" in json_text(value).lower():
        unpriced("a voice that is made of a sample")


# What is unknown in a part may stand for input that is elsewhere.
_BLOB = shape("inlineData", "mimeType displayName", uncounted="data", unknown=Unknown.HIDE, effect=_inline)
_FILE = shape("fileData", "fileUri mimeType displayName", unknown=Unknown.HIDE, effect=_elsewhere)
_RESOLUTION = shape("mediaResolution", "level numTokens", unknown=Unknown.REFUSE)
_CALL = shape("functionCall", "id name willContinue", {"args": as_json, "partialArgs": as_json})
_RESPONSE = shape(
    "functionResponse", "id name willContinue scheduling", {"response": as_json, "parts": _parts}, unknown=Unknown.HIDE
)
PART = shape(
    "a part",
    "text thought thoughtSignature mediaProcessing",
    {
        "inlineData": _object(_BLOB),
        "fileData": _object(_FILE),
        "functionCall": _object(_CALL),
        "functionResponse": _object(_RESPONSE),
        "executableCode": _object(shape("executableCode", "code language id")),
        "codeExecutionResult": _object(shape("codeExecutionResult", "outcome output id")),
        "toolCall": as_json,
        "toolResponse": as_json,
        "partMetadata": as_json,
        "videoMetadata": as_json,
        "mediaResolution": _object(_RESOLUTION),
        "audioTranscription": as_json,
        "speechMetadata": as_json,
        "documentMetadata": as_json,
        "spreadsheetMetadata": as_json,
        "audioMetadata": as_json,
    },
    unknown=Unknown.HIDE,
)
CONTENT = shape("a content", "role", {"parts": _parts}, nested_unknown=Nested.COUNT)
content = _object(CONTENT)

_SEARCH = shape(
    "googleSearch",
    "blockingConfidence",
    {"searchTypes": as_json, "excludeDomains": as_json, "timeRangeFilter": as_json},
    unknown=Unknown.REFUSE,
)
_MAPS = shape("googleMaps", "enableWidget", {"groundingTypes": as_json, "authConfig": as_json}, unknown=Unknown.REFUSE)
_COMPUTER = shape(
    "computerUse",
    "environment enablePromptInjectionDetection",
    {"excludedPredefinedFunctions": as_json, "disabledSafetyPolicies": as_json},
    unknown=Unknown.REFUSE,
)
_FILE_SEARCH = shape("fileSearch", "topK metadataFilter", {"fileSearchStoreNames": as_json}, unknown=Unknown.REFUSE)
_PLAIN_TOOL = shape("a tool", unknown=Unknown.REFUSE)
TOOL = shape(
    "a tool",
    "",
    {
        "functionDeclarations": _objects,
        "googleSearch": _object(_SEARCH),
        "googleSearchRetrieval": _object(
            shape("googleSearchRetrieval", "", {"dynamicRetrievalConfig": as_json}, unknown=Unknown.REFUSE)
        ),
        "googleMaps": _object(_MAPS),
        "urlContext": _object(_PLAIN_TOOL),
        "codeExecution": _object(_PLAIN_TOOL),
        "fileSearch": _object(_FILE_SEARCH),
        "computerUse": _object(_COMPUTER),
    },
    refused=_REFUSED_TOOLS,
    unknown=Unknown.REFUSE,
)
_CALLING = shape(
    "functionCallingConfig",
    "mode streamFunctionCallArguments",
    {"allowedFunctionNames": scalars},
    unknown=Unknown.REFUSE,
)
_TOOL_CONFIG = shape(
    "toolConfig",
    "includeServerSideToolInvocations",
    {"functionCallingConfig": _object(_CALLING), "retrievalConfig": as_json},
    unknown=Unknown.REFUSE,
)

THINKING = shape("thinkingConfig", "includeThoughts thinkingBudget thinkingLevel", unknown=Unknown.REFUSE)
SCHEMA_FIELDS = ("responseSchema", "responseJsonSchema", "_responseJsonSchema", "responseFormat")
CONFIG = shape(
    "generationConfig",
    "temperature topP topK seed presencePenalty frequencyPenalty responseMimeType responseLogprobs logprobs "
    "mediaResolution audioTimestamp enableAffectiveDialog enableEnhancedCivicAnswers maxOutputTokens candidateCount",
    {
        **dict.fromkeys(SCHEMA_FIELDS, skip),
        "responseModalities": scalars,
        "stopSequences": scalars,
        "thinkingConfig": _object(THINKING),
        "speechConfig": speech,
        "imageConfig": as_json,
        "translationConfig": as_json,
        "audioTranscriptionConfig": as_json,
    },
    refused={"routingConfig": _OTHER_MODEL, "modelSelectionConfig": _OTHER_MODEL, "modelConfig": _OTHER_MODEL},
    wary=_WARY,
)
REQUEST = shape(
    "the request",
    "model cachedContent continuationToken",
    {
        "contents": _some(content),
        "systemInstruction": content,
        "tools": _some(unwritten(_object(TOOL))),
        "toolConfig": _object(_TOOL_CONFIG),
        "generationConfig": _object(CONFIG),
    },
    uncounted="safetySettings labels store serviceTier sessionId",
    refused=_REFUSED_FIELDS,
    wary=_WARY,
    nested_unknown=Nested.EMPTY,
)

"""Gemini's generateContent and streamGenerateContent, of AI Studio, Vertex AI and Code Assist. Knows JSON field names;
knows no prices, no I/O.

The path names the model and says whether the reply streams. No field of a request bounds how often the provider runs
its own tools: what they bring in may fill the context window (`toolUsePromptTokenCount`), a grounded prompt is one fee
at most, and where every query costs a fee there is no bound (`Parsed.unbounded_fees`).
Sources: the provider's references of `generateContent`, `countTokens` and `GenerationConfig`, its guides to thinking,
grounding and code execution, Vertex AI's of the same names, and the request types of its SDK, read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar
from urllib.parse import unquote

from lockpin_core.call import Content, Layout, Parsed, Refusal, Reply, Request, Rewrite, Setting, Terms, ToolStep
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.gemini_shapes import (
    CONFIG,
    REQUEST,
    SCHEMA_FIELDS,
    THINKING,
    TOOL,
    fields,
    listed,
    schema_bytes,
    whole_of,
)
from lockpin_core.wire.gemini_steps import content_steps, enveloped_steps
from lockpin_core.wire.gemini_talk import CONTENTS, ENVELOPE, NO_MARKS
from lockpin_core.wire.gemini_usage import (
    MAPS_FEES,
    SEARCH_FEES,
    AnswerArrayScanner,
    AnswerScanner,
    AnswerStreamScanner,
    tier_of,
)
from lockpin_core.wire.jsonarray import ObjectReader
from lockpin_core.wire.jsonbody import (
    digest,
    json_text,
    model_name,
    plain_word,
    read_body,
    read_known,
    shown,
    shown_name,
)
from lockpin_core.wire.named import body_naming, with_model
from lockpin_core.wire.protocol import CountRequest, Scanner, Wire
from lockpin_core.wire.refusals import gemini_refusal
from lockpin_core.wire.replies import UnreadableCount, count, error_type, read_object
from lockpin_core.wire.settings import setting_of
from lockpin_core.wire.splice import Splice, lowered
from lockpin_core.wire.talk import Talk
from lockpin_core.wire.tally import Tally, unpriced
from lockpin_core.wire.tool_steps import steps_of

MAX_CANDIDATES = 128
MIN_THINKING_TOKENS = 512  # a lower budget is refused for some models, says the provider's guide to thinking
_LIMITS = ("maxOutputTokens", "max_output_tokens")
_CONFIGS = ("generationConfig", "generation_config")
_INSTRUCTIONS = ("systemInstruction", "system_instruction")
_VERB = re.compile(r":(?:streamGenerateContent|generateContent)$", re.IGNORECASE)
_STREAMS = ":streamgeneratecontent"
# Models whose replies are images or speech, whether a request says so or not.
DRAWS, SPEAKS = re.compile("image|banana"), re.compile("tts|audio")
_MODALITIES: Mapping[object, Unit] = {"IMAGE": Unit.IMAGE_OUT, "AUDIO": Unit.AUDIO_OUT}
_TEXT_MODALITIES = frozenset({"TEXT", "MODALITY_UNSPECIFIED"})
_TIER_HEADER = "x-vertex-ai-llm-shared-request-type"
_CAPACITY_HEADER = "x-vertex-ai-llm-request-type"
_CAPACITIES = (None, "shared", "dedicated")  # as every call, or what was bought beforehand: neither is dearer
_SEARCHES = frozenset({"googleSearch", "googleSearchRetrieval"})
_FUNCTIONS = "functionDeclarations"
_CLIENT_TOOLS = frozenset({_FUNCTIONS, "computerUse"})  # the client runs them
_KEPT = ("cachedContent", "continuationToken")  # names of input that the provider keeps
# What Vertex AI counts of a request; AI Studio takes the request as it is.
_COUNTED = ("contents", "systemInstruction", "system_instruction", "tools", *_CONFIGS)


class Gemini(Wire):
    """`POST …/models/{model}:generateContent` and `:streamGenerateContent`."""

    name = "gemini"
    min_output = 1
    cut_rule = "hold"
    tool_mark = b"esponse"
    error_shape = "gemini"
    reads_headers = frozenset({_TIER_HEADER, _CAPACITY_HEADER})
    _talk: ClassVar[Talk] = CONTENTS

    def parse(self, request: Request) -> Parsed:
        """Read a generateContent request. Raises WireError where it is malformed or holds what cannot be bounded.

        The output limit is per candidate. Current models count thoughts inside it; a stated thinking budget comes on
        top all the same, for those that do not.
        """
        try:
            body = read_body(request.body)
            return _parse(request, body.members, body.layout(_CONFIGS))
        except RecursionError:
            raise WireError("the body is nested too deeply") from None

    def rewrite(
        self,
        request: Request,
        change: Rewrite,
        *,
        output_field: str = "maxOutputTokens",
        parsed: Parsed | None = None,
    ) -> bytes:
        """Set the output limit as the request spells it, and lower a thinking budget above it. Other bytes stay."""
        if change.max_output is None:
            return request.body
        return _lowered(Splice.of(request.body, parsed.layout if parsed is not None else None), change.max_output)

    def scanner(self, *, streamed: bool, asked: Parsed | None = None) -> Scanner:
        """Make a scanner for a 2xx reply: of events, or of one array where a stream was asked for, else of one body."""
        if streamed:
            return AnswerStreamScanner(asked)
        return AnswerArrayScanner(asked) if asked is not None and asked.streamed else AnswerScanner(asked)

    def count_request(self, request: Request) -> CountRequest | None:
        """Ask `countTokens`, but not where the provider adds what it may leave out: its own tools, what it keeps."""
        path, found = _VERB.subn(":countTokens", request.path)
        if not found or request.path_model is None:
            return None
        members = fields(read_known(request.body).members, REQUEST)
        if _tools(members) - {_FUNCTIONS} or any(members.get(key) for key in _KEPT):
            return None
        body = Splice.of(request.body)
        if "/publishers/" not in path:
            model = json_text(f"models/{bare_model(request.path_model)}").encode()
            return CountRequest(path, b'{"generateContentRequest":%b}' % body.having({"model": model}))
        kept = [b'"%b":%b' % (key.encode(), value) for key in _COUNTED if (value := body.get(key)) is not None]
        return CountRequest(path, b"{%b}" % b",".join(kept))

    def read_count(self, body: bytes) -> int | None:
        """Read `totalTokens`; cached content that is stated comes on top, as nobody says whether it is in it."""
        found = read_object(body)
        if found is None or found.get("totalTokens") is None:
            return None
        try:
            return count(found["totalTokens"]) + count(found.get("cachedContentTokenCount"))
        except UnreadableCount:
            return None

    def conversation(self, request: Request) -> bytes | None:
        """Digest the first user message, but for its cache marks."""
        return self._talk.conversation(request, NO_MARKS)

    def trimmable(self, request: Request) -> int:
        """Count the leading results of tools that are older than the last three turns."""
        return self._talk.trimmable(request)

    def lightened(self, request: Request, *, cache_5m: bool, trim: int) -> bytes | None:
        """Shorten lives in the cache, and leave out long texts of leading results."""
        return self._talk.lightened(request, cache_5m=cache_5m, trim=trim)

    def with_model(self, request: Request, model: str) -> Request | None:
        """Name another model in the path, or in the body where that says it."""
        return with_model(request, model)

    def same_call(self, request: Request) -> bytes:
        """Digest the call without its output limit, and without the path's verb, which says whether it streams."""
        bare = replace(request, path=_VERB.sub("", request.path))
        return digest(bare, (*_LIMITS, "thinkingBudget", "thinking_budget"))

    def tool_steps(self, request: Request) -> Iterator[ToolStep]:
        """Read the tools of its contents."""
        return steps_of(request, content_steps)

    def setting(self, request: Request) -> Setting | None:
        """Digest its tools and its system prompt."""
        return setting_of(request, system=_INSTRUCTIONS)

    def error_code(self, body: bytes) -> str | None:
        """Give `error.status` of an error body, which stands in a list where a stream was asked for."""
        found = next((read_object(event.data) for event in ObjectReader().feed(body)), None)
        return None if found is None else error_type(found.get("error"), "status", "code")

    def refuse(self, refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
        """Put a refusal into Google's error shape."""
        return gemini_refusal(refusal, lockpin)


class CodeAssist(Gemini):
    """`POST /v1internal:generateContent` and `:streamGenerateContent`: the same request in an envelope, on a plan."""

    name = "code_assist"
    _talk = ENVELOPE

    def parse(self, request: Request) -> Parsed:
        """Read the envelope and the request in it. The plan pays, unless the request lets credits pay."""
        try:
            body = read_body(request.body)
            inner = body.members.get("request")
            if type(inner) is not dict:
                raise WireError(f"request is {shown(inner)}; an object is needed")
            model = model_name(body.members.get("model"))
            parsed = _parse(replace(request, path_model=bare_model(model)), inner, body.layout(("request",)))
        except RecursionError:
            raise WireError("the body is nested too deeply") from None
        return replace(parsed, subscription=not body.members.get("enabled_credit_types"))

    def rewrite(
        self,
        request: Request,
        change: Rewrite,
        *,
        output_field: str = "maxOutputTokens",
        parsed: Parsed | None = None,
    ) -> bytes:
        """Set the output limit of the request in the envelope."""
        if change.max_output is None:
            return request.body
        body = Splice.of(request.body, parsed.layout if parsed is not None else None)
        inner = Splice.of(_object(body.get("request")))
        return body.having({"request": _lowered(inner, change.max_output)})

    def with_model(self, request: Request, model: str) -> Request | None:
        """Name another model in the envelope, and in the request in it where that says it too."""
        named = super().with_model(request, model)
        if named is None:
            return None
        body = Splice.of(named.body)
        inner = _object(body.get("request"))
        if not (Splice.of(inner).get("model") or b"").startswith(b'"'):
            return named
        return replace(named, body=body.having({"request": body_naming(inner, model)}))

    def setting(self, request: Request) -> Setting | None:
        """Digest the tools and the system prompt in the envelope."""
        return setting_of(request, system=_INSTRUCTIONS, inside="request")

    def tool_steps(self, request: Request) -> Iterator[ToolStep]:
        """Read the tools of the contents in the envelope."""
        return steps_of(request, enveloped_steps)

    def count_request(self, request: Request) -> CountRequest | None:
        """Give nothing: its `countTokens` leaves out instructions and tools."""
        return None


@dataclass(frozen=True, slots=True)
class _Tools:
    """What the tools of a request may cost."""

    fees: Mapping[Unit, int]
    unbounded: frozenset[Unit]
    grows: bool  # the provider runs one of them, and what it brings in is input


def bare_model(name: str) -> str:
    """Give a model's name without the collection that it stands in."""
    return name.rsplit("/", 1)[-1]


def model_of(request: Request, stated: object) -> str:
    """Give the model that the path names, else the body. Raises WireError where they differ, or none does."""
    named = None if stated is None else bare_model(model_name(stated))
    if request.path_model is None:
        return model_name(named)
    model = model_name(bare_model(request.path_model))
    if named not in (None, model):
        raise WireError(f"model is {shown_name(named)} in the body and {shown_name(model)} in the path; one is allowed")
    return model


def _parse(request: Request, given: Mapping[str, object], layout: Layout) -> Parsed:
    members = fields(given, REQUEST)
    model = model_of(request, members.get("model"))
    config = fields(members.get("generationConfig"), CONFIG)
    thinking = fields(config.get("thinkingConfig"), THINKING)
    if members.get("contents") is None:
        raise WireError("contents is null; a list is needed")
    limit = whole_of(config.get("maxOutputTokens"), "maxOutputTokens", low=1)
    choices = whole_of(config.get("candidateCount"), "candidateCount", high=MAX_CANDIDATES) or 1
    budget = whole_of(thinking.get("thinkingBudget"), "thinkingBudget", low=-1) or 0
    tally = Tally()
    REQUEST.read(members, tally)
    tally.messages = len(listed(members["contents"])) + ("systemInstruction" in members)
    tally.schema_bytes += schema_bytes(members.get("tools"), *(config.get(key) for key in SCHEMA_FIELDS))
    tools = _costs(_tools(members))
    _hide_kept(members, tools, tally)
    output_units = _output_units(model, config)
    # Nobody says that the limit holds for pictures and sound as it does for text: the model's maximum bounds those.
    is_text = output_units == {Unit.OUTPUT}
    return Parsed(
        model=model,
        streamed=unquote(request.path).lower().endswith(_STREAMS),
        content=_with_resolution(tally.content(), config.get("mediaResolution")),
        output_limit=limit if is_text else None,
        output_settable=is_text,
        least_output=min(max(budget, 0), MIN_THINKING_TOKENS),
        choices=choices,
        extra_output=choices * max(0, budget),
        prompt_units=frozenset(tally.prompt_units),
        output_units=output_units,
        fees=tools.fees,
        unbounded_fees=tools.unbounded,
        terms=Terms(tier=_tier(request.headers, members.get("serviceTier"))),
        beyond_limit=tools.grows,  # nor that it bounds all the passes of a tool together
        grows=tools.grows,
        layout=layout,
    )


def _tools(members: Mapping[str, object]) -> frozenset[str]:
    """List the kinds of tools that a request has."""
    tools = (fields(tool, TOOL) for tool in listed(members.get("tools")))
    return frozenset(kind for tool in tools for kind, value in tool.items() if value is not None and value is not False)


def _costs(kinds: frozenset[str]) -> _Tools:
    """Say what tools may cost: newer models bill each query, older ones each grounded prompt; which, prices say."""
    fees: dict[Unit, int] = {}
    unbounded: set[Unit] = set()
    if kinds & _SEARCHES:
        fees[Unit.SEARCH_PROMPT] = 1
        unbounded |= SEARCH_FEES - fees.keys()
    if "googleMaps" in kinds:
        fees[Unit.MAPS_PROMPT] = 1
        unbounded |= MAPS_FEES - fees.keys()
    return _Tools(fees, frozenset(unbounded), grows=bool(kinds - _CLIENT_TOOLS))


def _hide_kept(members: Mapping[str, object], tools: _Tools, tally: Tally) -> None:
    """Hide input that the provider keeps, finds, or defines by itself."""
    if plain_word(members.get("cachedContent"), "cachedContent"):
        tally.hide("cached_content")
        tally.prompt_units |= {Unit.IMAGE_IN, Unit.AUDIO_IN}
    if members.get("continuationToken"):
        tally.hide("continuation")
    if tools.grows:
        tally.hide("tools")
        tally.prompt_units |= {Unit.IMAGE_IN}
    if "computerUse" in _tools(members):
        tally.hide("computer_use")


def _with_resolution(content: Content, asked: object) -> Content:
    """Give images without a resolution of their own that of the request."""
    detail = plain_word(asked, "mediaResolution")
    if not detail:
        return content
    images = tuple(image if image.detail else image._replace(detail=detail) for image in content.images)
    return replace(content, images=images)


def _output_units(model: str, config: Mapping[str, object]) -> frozenset[Unit]:
    """Say what output tokens may be billed as."""
    units = {Unit.OUTPUT}
    for modality in listed(config.get("responseModalities")):
        unit = _MODALITIES.get(modality.upper()) if type(modality) is str else None
        if unit is not None:
            units.add(unit)
        elif type(modality) is not str or modality.upper() not in _TEXT_MODALITIES:
            unpriced("a reply in a modality other than text, image and audio")
    formats = {key for one in listed(config.get("responseFormat")) if isinstance(one, dict) for key in one}
    if formats - {"text", "image", "audio"}:
        unpriced("a reply in a format other than text, image and audio")
    if DRAWS.search(model) or "image" in formats or config.get("imageConfig") is not None:
        units.add(Unit.IMAGE_OUT)
    if SPEAKS.search(model) or "audio" in formats or config.get("speechConfig") is not None:
        units.add(Unit.AUDIO_OUT)
    return frozenset(units)


def _tier(headers: Mapping[str, str], stated: object) -> str | None:
    """Read the service tier of the body, or of the headers in which Vertex AI takes it."""
    if plain_word(headers.get(_CAPACITY_HEADER), _CAPACITY_HEADER) not in _CAPACITIES:
        unpriced(f"{_CAPACITY_HEADER} {shown_name(headers[_CAPACITY_HEADER])}")
    named = tier_of(plain_word(stated, "serviceTier"))
    asked = tier_of(plain_word(headers.get(_TIER_HEADER), _TIER_HEADER))
    if named is not None and asked not in (None, named):
        raise WireError(f"serviceTier and {_TIER_HEADER} name different tiers; one is allowed")
    return named or asked


def _lowered(body: Splice, most: int) -> bytes:
    key = _used(body, _CONFIGS)
    config = Splice.of(_object(body.get(key)))
    used = _used(config, _LIMITS)
    limit = lowered(config.get(used), most)
    if limit is None:
        return body.raw
    values = {used: limit}
    key_of_thinking = _used(config, ("thinkingConfig", "thinking_config"))
    thinking = config.get(key_of_thinking) or b""
    if thinking.startswith(b"{"):
        inner = Splice.of(thinking)
        budget = _used(inner, ("thinkingBudget", "thinking_budget"))
        digits = (inner.get(budget) or b"").strip(b'"')
        if digits.isdigit() and int(digits) > most:
            values[key_of_thinking] = inner.having({budget: b"%d" % most})
    return body.having({key: config.having(values)})


def _used(body: Splice, names: tuple[str, str]) -> str:
    """Choose the spelling that the request has, else the first."""
    return names[1] if body.get(names[0]) is None and body.get(names[1]) is not None else names[0]


def _object(raw: bytes | None) -> bytes:
    """Give an object's JSON; an empty one for null and for what is absent."""
    return raw if raw is not None and raw.startswith(b"{") else b"{}"

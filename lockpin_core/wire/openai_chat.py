"""The Chat Completions format. Knows JSON field names; knows no prices, no I/O.

Source: OpenAI's Chat Completions reference and the request types of its SDK, read 2026-11.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from lockpin_core.call import Parsed, Refusal, Reply, Request, Rewrite, Setting, Terms, ToolStep
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.jsonbody import Body, digest, model_name, plain_word, read_body, shown, whole
from lockpin_core.wire.named import with_model
from lockpin_core.wire.openai_caching import written_units
from lockpin_core.wire.openai_extras import thinking
from lockpin_core.wire.openai_filter import ChatUsageFilter
from lockpin_core.wire.openai_limits import LIMITS, limits_set, obeyed, read_limit, with_limit_heeded
from lockpin_core.wire.openai_rewrite import OPTIONS, rewritten
from lockpin_core.wire.openai_shapes import REQUEST, SCHEMA_FIELDS
from lockpin_core.wire.openai_steps import chat_steps
from lockpin_core.wire.openai_talk import CHAT, MARKS
from lockpin_core.wire.openai_usage import ChatScanner, ChatStreamScanner
from lockpin_core.wire.protocol import Scanner, UsageFilter, Wire
from lockpin_core.wire.refusals import openai_refusal
from lockpin_core.wire.replies import stated_error
from lockpin_core.wire.routing import is_routed
from lockpin_core.wire.settings import setting_of
from lockpin_core.wire.splice import Splice
from lockpin_core.wire.tally import Tally, unpriced
from lockpin_core.wire.tool_steps import steps_of

_SEARCH_MODEL = re.compile(r"-search-(?:preview|api)\b|:online\b")  # these search the web on every call, asked or not
_DRAWS = re.compile(r"\b(?:gemini|nano)\b.*(?:image|banana)")  # these draw, asked or not
_PRESET = re.compile(r"@preset\b")
_TOUCHED = (*LIMITS, OPTIONS)  # what `rewrite` may change
MAX_CHOICES = 128  # what the provider accepts as `n`


class OpenAIChat(Wire):
    """`POST /v1/chat/completions`, of OpenAI and of the many that speak like it."""

    name = "openai_chat"
    min_output = 1
    cut_rule = "hold"
    tool_mark = b"tool_call_id"

    def parse(self, request: Request) -> Parsed:
        """Read a Chat Completions request. Raises WireError where it is malformed or holds what cannot be bounded.

        The output limit is per choice and includes reasoning. A rejected prediction is billed beside it.
        """
        try:
            return _parse(read_body(request.body), request)
        except RecursionError:
            raise WireError("the body is nested too deeply") from None

    def rewrite(
        self,
        request: Request,
        change: Rewrite,
        *,
        output_field: str = "max_completion_tokens",
        parsed: Parsed | None = None,
    ) -> bytes:
        """Set the output limit, and ask for usage.

        The limit goes into the field that the request has. Where its host does not obey that, the field is renamed.
        """
        if change == Rewrite():
            return request.body
        body = Splice.of(request.body, parsed.layout if parsed is not None and output_field in _TOUCHED else None)
        if change.max_output is None:
            return rewritten(body, change)
        heeded = obeyed(request, _model(body, request) if parsed is None else parsed.model)
        own = heeded[0] if request.output_fields else output_field
        return rewritten(body, change, *limits_set(body, change.max_output, heeded, own))

    def scanner(self, *, streamed: bool, asked: Parsed | None = None) -> Scanner:
        """Make a scanner for a 2xx reply; `asked` says how many choices and which cache lifetime were asked for."""
        return ChatStreamScanner(asked) if streamed else ChatScanner(asked)

    def usage_filter(self) -> UsageFilter | None:
        """Make the filter that takes the usage chunk out again."""
        return ChatUsageFilter()

    def texts(self, request: Request) -> list[str] | None:
        """Give every text of the prompt; None where the body does not show all of it."""
        try:
            tally = _tally(read_body(request.body))
        except RecursionError:
            raise WireError("the body is nested too deeply") from None
        return None if tally.hidden else tally.texts

    def conversation(self, request: Request) -> bytes | None:
        """Digest the first user message, but for its cache marks."""
        return CHAT.conversation(request, MARKS)

    def trimmable(self, request: Request) -> int:
        """Count the leading results of tools that are older than the last three turns."""
        return CHAT.trimmable(request)

    def lightened(self, request: Request, *, cache_5m: bool, trim: int) -> bytes | None:
        """Shorten lives in the cache, and leave out long texts of leading results."""
        return CHAT.lightened(request, cache_5m=cache_5m, trim=trim)

    def with_model(self, request: Request, model: str) -> Request | None:
        """Name another model, in the body or in the path of a deployment, and the limit as the host obeys it there."""
        named = with_model(request, model)
        return None if named is None else with_limit_heeded(named, model)

    def same_call(self, request: Request) -> bytes:
        """Give a digest of the call without its output limit."""
        return digest(request, LIMITS)

    def tool_steps(self, request: Request) -> Iterator[ToolStep]:
        """Read the tools of its messages."""
        return steps_of(request, chat_steps)

    def setting(self, request: Request) -> Setting | None:
        """Digest its tools and its system prompt."""
        return setting_of(request, messages="messages")

    def error_code(self, body: bytes) -> str | None:
        """Give `error.code` of an error body, else its type."""
        return stated_error(body, "code", "type")

    def refuse(self, refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
        """Put a refusal into OpenAI's error shape."""
        return openai_refusal(refusal, lockpin)


def _model(body: Splice, request: Request) -> str:
    """Name the model of a request that was parsed before."""
    return request.path_model if request.path_model is not None else str(json.loads(body.get("model") or b'""'))


def _tally(body: Body) -> Tally:
    messages = body.members.get("messages")
    if type(messages) is not list:
        raise WireError(f"messages is {shown(messages)}; a list is needed")
    tally = Tally()
    REQUEST.read(body.members, tally)
    tally.schema_bytes += sum(body.size(key) for key in SCHEMA_FIELDS if key in body.spans)
    tally.messages = len(messages)
    return tally


def asked_model(name: object) -> str:
    """Read the name of a model. Raises WireError where the name alone asks for more than the model."""
    model = model_name(name)
    if _SEARCH_MODEL.search(model):
        unpriced("a model that searches the web, for a fee and with results as input,")
    if _PRESET.search(model):
        unpriced("a preset, with settings that the body does not show,")
    return model


def _parse(body: Body, request: Request) -> Parsed:
    """Read the body; a model that the path names is the one that is called, whatever the body says."""
    members, path_model = body.members, request.path_model
    model = asked_model(members.get("model") if path_model is None else path_model)
    (limit, unheeded), streamed = read_limit(members, obeyed(request, model)), asks_stream(members)
    choices = max(whole(members.get(key), key, low=1, high=MAX_CHOICES) or 1 for key in ("n", "best_of"))
    tally = _tally(body)
    units = _output_units(members) | (frozenset({Unit.IMAGE_OUT}) if _DRAWS.search(model) else frozenset())
    has_prediction, thinks = members.get("prediction") is not None, thinking(members)
    return Parsed(
        model=model,
        streamed=streamed,
        content=tally.content(),
        output_limit=limit,
        choices=choices,
        extra_output=_prediction(members["prediction"]) if has_prediction else 0,
        thinking=thinks.budget,
        has_budget=thinks.has_budget,
        output_settable=not has_prediction or limit is not None,
        least_output=thinks.least_output,
        asks_usage=not streamed or asks_usage(members.get("stream_options")),
        prompt_units=written_units(members, tally),
        output_units=units,
        terms=Terms(tier=plain_word(members.get("service_tier"), "service_tier")),
        beyond_limit=thinks.is_boundless,
        routed=is_routed(members),
        layout=body.layout(_TOUCHED),
        unheeded_limit=unheeded,
    )


def asks_stream(members: Mapping[str, object]) -> bool:
    """Read `stream`. Raises WireError."""
    streamed = members.get("stream")
    if streamed is not None and type(streamed) is not bool:
        raise WireError(f"stream is {shown(streamed)}; true or false is allowed")
    return streamed is True


def asks_usage(options: object) -> bool:
    """Read `stream_options.include_usage`. Raises WireError."""
    if options is None:
        return False
    if type(options) is not dict:
        raise WireError(f"stream_options is {shown(options)}; an object is allowed")
    asks = options.get("include_usage")
    if asks is not None and type(asks) is not bool:
        raise WireError(f"stream_options.include_usage is {shown(asks)}; true or false is allowed")
    return asks is True


def _prediction(prediction: object) -> int:
    """Give the tokens that a prediction may add to the output when it is rejected: its bytes."""
    tally = Tally()
    tally.add_json(prediction)
    counted = tally.content()
    return max(counted.text_bytes, counted.nfc_bytes)


def _output_units(members: Mapping[str, object]) -> frozenset[Unit]:
    """Say what output tokens may be billed as. A reply may sound where the request only says how it is to sound."""
    modalities = members.get("modalities")
    if modalities is not None and type(modalities) is not list:
        raise WireError(f"modalities is {shown(modalities)}; a list is allowed")
    asked = modalities or []
    if any(item not in ("text", "audio") for item in asked):
        unpriced("a reply in a modality other than text and audio")
    is_audible = "audio" in asked or members.get("audio") is not None
    return frozenset({Unit.OUTPUT, Unit.AUDIO_OUT} if is_audible else {Unit.OUTPUT})

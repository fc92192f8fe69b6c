"""Amazon Bedrock's InvokeModel and InvokeModelWithResponseStream with a body of Anthropic's. Knows JSON field names;
knows no prices, no I/O.

The body is the model's maker's own: of Anthropic's a Messages request without `model` and `stream`, both of which the
path says. What Anthropic's models get and give is read by that format; the bodies of other makers are refused by name.
A stream's events come in the frames of an AWS event stream, each as `bytes` in base64. The tier of the reply stands in
a header alone, so that the one which was asked for is charged, unless it is a cheaper one.
Source: Amazon Bedrock's API reference of InvokeModel, its guide to Anthropic's Messages, and the service model of its
SDK, read 2026-11.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lockpin_core.call import Parsed, Reading, Refusal, Reply, Request, Terms
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.anthropic_messages import AnthropicMessages
from lockpin_core.wire.anthropic_shapes import REQUEST
from lockpin_core.wire.anthropic_usage import Message, message_for, read_message, take_event
from lockpin_core.wire.bedrock_models import (
    LATENCY,
    TIER,
    bedrock_error,
    bedrock_model,
    count_path,
    is_claude,
    is_opaque,
    stated_count,
    streams,
)
from lockpin_core.wire.eventstream import EVENT_STREAM, Frame, FramesScanner
from lockpin_core.wire.jsonbody import plain_word, read_body, shown_name
from lockpin_core.wire.protocol import CountRequest, Scanner
from lockpin_core.wire.refusals import bedrock_refusal
from lockpin_core.wire.replies import read_object, word
from lockpin_core.wire.scanners import BodyScanner
from lockpin_core.wire.signatures import is_signed
from lockpin_core.wire.sse import Event
from lockpin_core.wire.tally import refuse_unknown, unpriced

_CHEAPER = frozenset({"flex", "batch"})  # tiers that nothing in the reply says were served
_NOT_MESSAGES = "the body is no Messages request of Anthropic's, so its cost cannot be bounded"
_CACHE_FIELDS = ("cache_read_input_tokens", "cache_creation_input_tokens")


class BedrockInvoke(AnthropicMessages):
    """`POST /model/{model}/invoke` and `/invoke-with-response-stream`."""

    name = "bedrock_invoke"
    error_shape = "bedrock"
    stream_type = EVENT_STREAM
    reads_headers = frozenset({TIER, LATENCY})

    def parse(self, request: Request) -> Parsed:
        """Read a Messages request for the model that the path names.

        What stands behind an ARN may be another maker's, which need not keep to `max_tokens` and may write to its cache
        unasked: there the model's maximum is the limit, and no field is allowed that a Messages request has not.
        """
        model = bedrock_model(request)
        if not is_claude(model) and not is_opaque(model):
            unpriced(f"the body of {shown_name(model)}, in a format of its maker's (Converse has one for all models)")
        try:
            parsed = super().parse(replace(request, path_model=model))
        except WireError as error:
            if error.code == "bad_request" and _is_anothers(request.body, is_open=not is_opaque(model)):
                raise WireError(f"{_NOT_MESSAGES} ({error})", "unpriced_tool") from None
            raise
        signed = is_signed(request)
        parsed = replace(
            parsed,
            streamed=streams(request),
            terms=_terms(request.headers, parsed.terms),
            output_settable=parsed.output_settable and not signed,
            attested=parsed.attested or signed,
            clamped=False,
        )
        return _of_anyones(request, parsed) if is_opaque(model) else parsed

    def scanner(self, *, streamed: bool, asked: Parsed | None = None) -> Scanner:
        """Make a scanner for a 2xx reply: of frames when `streamed`, else of one JSON body."""
        return InvokedStreamScanner(asked) if streamed else InvokedScanner(asked)

    def count_request(self, request: Request) -> CountRequest | None:
        """Ask CountTokens, which takes the whole body, where it would see all that may be read."""
        path = count_path(request)
        try:
            parsed = None if path is None else self.parse(request)
        except WireError:
            return None
        if path is None or parsed is None or parsed.attested or parsed.grows or parsed.content.hidden is not None:
            return None
        return CountRequest(path, b'{"input":{"invokeModel":{"body":"%b"}}}' % base64.b64encode(request.body))

    def read_count(self, body: bytes) -> int | None:
        """Read `inputTokens`."""
        return stated_count(body)

    def with_model(self, request: Request, model: str) -> Request | None:
        """Name another model in the path: the body is of Anthropic's format, which no other maker's models read."""
        return super().with_model(request, model) if is_claude(model) else None

    def error_code(self, body: bytes) -> str | None:
        """Give the name of an error, where the body has it; most have it in a header."""
        return bedrock_error(body)

    def refuse(self, refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
        """Put a refusal into Bedrock's error shape."""
        return bedrock_refusal(refusal, lockpin)


def _of_anyones(request: Request, parsed: Parsed) -> Parsed:
    """Bound what any maker's model may make of the body, where a name does not tell whose it is."""
    members = read_body(request.body).members
    unknown = (key for key, value in members.items() if key not in REQUEST.known and value not in (None, False))
    if (name := next(unknown, None)) is not None:
        refuse_unknown(f"field {shown_name(name)} for what stands behind an ARN")
    units = parsed.prompt_units | {Unit.CACHE_WRITE_5M}
    return replace(parsed, output_limit=None, output_settable=False, prompt_units=units)


def _is_anothers(body: bytes, *, is_open: bool) -> bool:
    """Say whether a body that is no Messages request is in another format: an older one, or of another maker."""
    members = read_body(body).members
    return not is_open or (bool(members) and "messages" not in members)


def _terms(headers: Mapping[str, str], stated: Terms) -> Terms:
    """Read tier and latency from the headers in which Bedrock takes them; a body that says them too is refused."""
    tier, latency = (plain_word(headers.get(name), name) for name in (TIER, LATENCY))
    if (tier is not None and stated.tier is not None) or (latency is not None and stated.speed is not None):
        raise WireError("the headers and the body both say how the call shall be served; one of them is allowed")
    asked = Terms(tier or stated.tier, latency or stated.speed, stated.geo)
    return replace(asked, tier=None) if asked.tier in _CHEAPER else asked


@dataclass(slots=True)
class _Invoked(Message):
    """A message whose first event states the whole prompt, unless a part of it may be cached and is not told of.

    Some models tell of the cache in the last event alone, and until then say nothing of it, or 0: so what a stream
    says of its prompt before its end is the whole of it only where some of it was cached.
    """

    may_cache: bool = False
    is_one: bool = False  # no other model may answer than the path's

    def reading(self) -> Reading:
        """Say what is known now."""
        found = _served(Message.reading(self), is_one=self.is_one)
        tells = not self.may_cache or self._tells_of_cache()
        complete = found.complete and (tells or self.ended)
        return replace(found, complete=complete, prompt_stated=found.prompt_stated and tells)

    def _tells_of_cache(self) -> bool:
        """Say whether reads and writes were both stated, and not both as 0."""
        places = (self.start, self.last)
        is_stated = all(any(place.get(key) is not None for place in places) for key in _CACHE_FIELDS)
        return is_stated and any(place.get(key) for place in places for key in _CACHE_FIELDS)


def _served(reading: Reading, *, is_one: bool) -> Reading:
    """Leave out what the model's maker says of terms and names: Bedrock has its own, in the path and in headers."""
    reading = replace(reading, terms=Terms(geo=reading.terms.geo))
    if not is_one:
        return reading
    portions = tuple(replace(portion, model=None) for portion in reading.portions)
    return replace(reading, model=None, portions=portions)


def _is_one(asked: Parsed | None) -> bool:
    return asked is not None and not asked.also


class InvokedScanner(BodyScanner):
    """Reads a reply that is one JSON body."""

    __slots__ = ()

    def __init__(self, asked: Parsed | None = None) -> None:
        super().__init__(asked, _read)


def _read(found: dict[str, Any], asked: Parsed | None) -> Reading:
    return _served(read_message(found, asked), is_one=_is_one(asked))


class InvokedStreamScanner(FramesScanner[_Invoked]):
    """Reads a reply that is a stream of events."""

    __slots__ = ()

    def __init__(self, asked: Parsed | None = None) -> None:
        super().__init__(_begun(asked), _take)


def _begun(asked: Parsed | None) -> _Invoked:
    plain = message_for(asked)
    may_cache = asked is not None and asked.prompt_units != {Unit.INPUT}
    return _Invoked(
        plain.dearest_write,
        asked_model=plain.asked_model,
        bills_container=plain.bills_container,
        grows=plain.grows,
        may_cache=may_cache,
        is_one=_is_one(asked),
    )


def _take(message: _Invoked, frame: Frame) -> None:
    """Take one frame: an event of the model's maker in base64, or a fault. Unknown ones pass."""
    if frame.is_lost:
        return message.lose()
    found = read_object(frame.payload) or {}
    if frame.is_fault:
        message.error = word(frame.kind) or "error"
        return None
    if frame.kind != "chunk":
        return None
    coded = found.get("bytes")
    try:
        data = base64.b64decode(coded if isinstance(coded, str) else "!", validate=True)
    except ValueError:
        return message.lose()
    return take_event(message, Event(b"", data))

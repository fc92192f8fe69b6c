"""Amazon Bedrock's Converse and ConverseStream: one format for the models of all makers. Knows JSON field names; knows
no prices, no I/O.

The path names the model and says whether the reply streams. Without `inferenceConfig.maxTokens` the model's maximum is
the limit, and reasoning is inside it; of xAI's models their maker says that it is not, so their maximum comes on top.
Models that write to their cache unasked may do so here too, except Anthropic's, which need a cache point. A guardrail,
a stored prompt and tools that the provider runs are refused by name.
Source: Amazon Bedrock's API reference of Converse, ConverseStream and CountTokens, its guides to inference parameters
and prompt caching, and the service model of its SDK, read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from lockpin_core.call import Parsed, Refusal, Reply, Request, Rewrite, Setting, Terms, ToolStep
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire import bedrock_steps
from lockpin_core.wire.anthropic_messages import fitting_budget, least_beside
from lockpin_core.wire.bedrock_models import (
    bedrock_error,
    bedrock_model,
    count_path,
    is_claude,
    stated_count,
    streams,
)
from lockpin_core.wire.bedrock_shapes import REQUEST, SCHEMA_FIELDS
from lockpin_core.wire.bedrock_talk import TALK
from lockpin_core.wire.bedrock_usage import ConverseScanner, ConverseStreamScanner
from lockpin_core.wire.eventstream import EVENT_STREAM
from lockpin_core.wire.jsonbody import Body, digest, plain_word, read_body, read_known, shown, whole
from lockpin_core.wire.named import with_model
from lockpin_core.wire.protocol import CountRequest, Scanner, Wire
from lockpin_core.wire.refusals import bedrock_refusal
from lockpin_core.wire.settings import setting_of
from lockpin_core.wire.signatures import is_signed
from lockpin_core.wire.splice import Splice, lowered
from lockpin_core.wire.tally import Tally
from lockpin_core.wire.tool_steps import steps_of

_FOR_MODEL = "additionalModelRequestFields"
_TOUCHED = ("inferenceConfig", _FOR_MODEL)  # what `rewrite` may change
_XAI = re.compile(r"(?:[a-z-]+\.)?xai\.")
_BUDGETS = ("thinking", "reasoning_config")
_COUNTED = ("messages", "system", "toolConfig", _FOR_MODEL)  # what CountTokens takes
_NOT_COUNTED = ("outputConfig",)  # what it does not, though a model may read it


class BedrockConverse(Wire):
    """`POST /model/{model}/converse` and `/converse-stream`."""

    name = "bedrock_converse"
    min_output = 1
    cut_rule = "hold"
    tool_mark = b"toolResult"
    error_shape = "bedrock"
    stream_type = EVENT_STREAM

    def parse(self, request: Request) -> Parsed:
        """Read a Converse request. Raises WireError where it is malformed or holds what cannot be bounded."""
        return _parse(request, read_body(request.body))

    def rewrite(
        self, request: Request, change: Rewrite, *, output_field: str = "maxTokens", parsed: Parsed | None = None
    ) -> bytes:
        """Set `inferenceConfig.maxTokens`, and lower a thinking budget that does not fit below it. Other bytes stay."""
        if change.max_output is None:
            return request.body
        body = Splice.of(request.body, parsed.layout if parsed is not None else None)
        config = _object(body, "inferenceConfig")
        limit = lowered(config.get("maxTokens"), change.max_output)
        if limit is None:
            return request.body
        values = {"inferenceConfig": config.having({"maxTokens": limit})}
        own = _object(body, _FOR_MODEL)
        fitted: dict[str, bytes] = {}
        for key in _BUDGETS:
            fitted |= fitting_budget(own, key, change.max_output)
        return body.having(values | ({_FOR_MODEL: own.having(fitted)} if fitted else {}))

    def scanner(self, *, streamed: bool, asked: Parsed | None = None) -> Scanner:
        """Make a scanner for a 2xx reply: of frames when `streamed`, else of one JSON body."""
        return ConverseStreamScanner(asked) if streamed else ConverseScanner(asked)

    def count_request(self, request: Request) -> CountRequest | None:
        """Ask CountTokens, where it would see all that the model reads."""
        path = count_path(request)
        body = None if path is None else read_known(request.body)
        if path is None or body is None or any(body.members.get(key) for key in _NOT_COUNTED):
            return None
        said = {key: body.text[slice(*body.spans[key])] for key in _COUNTED if body.members.get(key) is not None}
        inner = ",".join(f'"{key}":{value}' for key, value in said.items())
        return CountRequest(path, f'{{"input":{{"converse":{{{inner}}}}}}}'.encode())

    def read_count(self, body: bytes) -> int | None:
        """Read `inputTokens`."""
        return stated_count(body)

    def conversation(self, request: Request) -> bytes | None:
        """Digest the first user message, but for its cache marks."""
        return TALK.conversation(request, frozenset())

    def trimmable(self, request: Request) -> int:
        """Count the leading results of tools that are older than the last three turns."""
        return TALK.trimmable(request)

    def lightened(self, request: Request, *, cache_5m: bool, trim: int) -> bytes | None:
        """Shorten lives in the cache, and leave out long texts of leading results."""
        return TALK.lightened(request, cache_5m=cache_5m, trim=trim)

    def with_model(self, request: Request, model: str) -> Request | None:
        """Name another model in the path."""
        return with_model(request, model)

    def same_call(self, request: Request) -> bytes:
        """Give a digest that leaves out the output limit, and the thinking budget, which changes with it."""
        return digest(request, ("maxTokens", "budget_tokens"))

    def tool_steps(self, request: Request) -> Iterator[ToolStep]:
        """Read the tools of its messages."""
        return steps_of(request, bedrock_steps.tool_steps)

    def setting(self, request: Request) -> Setting | None:
        """Digest its tools and its system prompt."""
        return setting_of(request, tools=("toolConfig",), system=("system",))

    def error_code(self, body: bytes) -> str | None:
        """Give the name of an error, where the body has it; most have it in a header."""
        return bedrock_error(body)

    def refuse(self, refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
        """Put a refusal into Bedrock's error shape."""
        return bedrock_refusal(refusal, lockpin)


def _object(body: Splice, key: str) -> Splice:
    """Give a member that is an object, or an empty one where there is none."""
    raw = body.get(key) or b""
    return Splice.of(raw if raw.startswith(b"{") else b"{}")


def _parse(request: Request, body: Body) -> Parsed:
    members, model = body.members, bedrock_model(request)
    messages = members.get("messages")
    if type(messages) is not list:
        raise WireError(f"messages is {shown(messages)}; a list is needed")
    tally = Tally()
    REQUEST.read(members, tally)
    tally.schema_bytes += sum(body.size(key) for key in SCHEMA_FIELDS if key in body.spans)
    tally.messages = len(messages) + ("system" in members)
    if not is_claude(model):
        tally.prompt_units.add(Unit.CACHE_WRITE_5M)
    signed = is_signed(request)
    return Parsed(
        model=model,
        streamed=streams(request),
        content=tally.content(),
        output_limit=whole(_member(members, "inferenceConfig", "maxTokens"), "maxTokens", low=1),
        clamped=False,
        output_settable=not signed,
        least_output=max(least_beside(_member(members, _FOR_MODEL, key)) for key in _BUDGETS),
        attested=signed,
        prompt_units=frozenset(tally.prompt_units),
        beyond_limit=_XAI.match(model) is not None,
        terms=Terms(
            tier=plain_word(_member(members, "serviceTier", "type"), "serviceTier.type"),
            speed=plain_word(_member(members, "performanceConfig", "latency"), "performanceConfig.latency"),
        ),
        layout=body.layout(_TOUCHED),
    )


def _member(members: Mapping[str, object], name: str, key: str) -> object:
    held = members.get(name)
    return held.get(key) if isinstance(held, dict) else None

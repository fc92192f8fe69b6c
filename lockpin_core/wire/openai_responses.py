"""The Responses format, and its request to shorten a conversation. Knows JSON field names; knows no prices, no I/O.

Source: OpenAI's Responses reference and the request types of its SDK, read 2026-11.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from lockpin_core.call import Parsed, Refusal, Reply, Request, Rewrite, Setting, Terms, ToolStep, ToolUse
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.jsonbody import Body, digest, plain_word, read_body, read_known, shown, whole
from lockpin_core.wire.named import with_model
from lockpin_core.wire.openai_caching import written_units
from lockpin_core.wire.openai_chat import asked_model, asks_stream
from lockpin_core.wire.openai_extras import thinking
from lockpin_core.wire.openai_steps import responses_steps
from lockpin_core.wire.openai_talk import MARKS, RESPONSE
from lockpin_core.wire.protocol import CountRequest, Scanner, Wire
from lockpin_core.wire.refusals import openai_refusal
from lockpin_core.wire.replies import UnreadableCount, count, read_object, stated_error
from lockpin_core.wire.responses_shapes import REQUEST, SCHEMA_FIELDS
from lockpin_core.wire.responses_tools import ResponsesTally, session_gb
from lockpin_core.wire.responses_usage import ResponsesScanner, ResponsesStreamScanner
from lockpin_core.wire.routing import is_routed
from lockpin_core.wire.settings import setting_of
from lockpin_core.wire.signatures import is_signed
from lockpin_core.wire.splice import Splice, lowered
from lockpin_core.wire.tool_steps import steps_of

TOOL_LIMIT = 5  # calls of the provider's own tools in a response, where the request does not limit them
UNSEEN_TOOL_LIMIT = 1  # the same where none is seen, but what the provider keeps of the conversation may bring one in

_LIMIT, _TOOL_LIMIT = "max_output_tokens", "max_tool_calls"
_TOUCHED = (_LIMIT, _TOOL_LIMIT)  # what `rewrite` may change
# The fields of the counting endpoint, which refuses others.
_COUNTED = frozenset(
    {
        *("model", "input", "instructions", "tools", "tool_choice", "text", "reasoning", "truncation"),
        *("parallel_tool_calls", "previous_response_id", "conversation", "personality"),
    }
)
_FEES = {"web_search": Unit.WEB_SEARCH, "file_search": Unit.FILE_SEARCH, "code": Unit.CODE_SESSION}


class OpenAIResponses(Wire):
    """`POST /v1/responses`, of OpenAI and of those that speak like it."""

    name = "openai_responses"
    min_output = 16  # less is refused by the provider
    cut_rule = "hold"
    links = True
    tool_mark = b"call_output"
    lends_limit = True

    def parse(self, request: Request) -> Parsed:
        """Read a Responses request. Raises WireError where it is malformed or holds what cannot be bounded.

        The output limit is for the whole response, reasoning included. A tool of the provider's makes it read the
        prompt again after each call, so their calls are limited: by the request, or by the limit that it must get.
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
        """Set the output limit and the limit on tool calls; the format has one name for each."""
        calls = [limit for limit in (change.tool_limit, change.tool_most) if limit is not None]
        asked = {_LIMIT: change.max_output, _TOOL_LIMIT: min(calls, default=None)}
        if not any(limit is not None for limit in asked.values()):
            return request.body
        body = Splice.of(request.body, None if parsed is None else parsed.layout)
        made = {key: lowered(body.get(key), most) for key, most in asked.items() if most is not None}
        return body.having({key: value for key, value in made.items() if value is not None})

    def scanner(self, *, streamed: bool, asked: Parsed | None = None) -> Scanner:
        """Make a scanner for a 2xx reply, or for the answer to a poll; then `asked` is not known."""
        return ResponsesStreamScanner(asked) if streamed else ResponsesScanner(asked)

    def count_request(self, request: Request) -> CountRequest | None:
        """Ask `…/responses/input_tokens`, which also knows what the body does not show.

        It says what the first sampling reads; what tools of the provider's add to others is not in it. None where it
        cannot know even that: servers list their tools, stored prompts may have any, and whether images are shrunk is
        decided for each request anew, as this endpoint cannot be told.
        """
        try:
            parsed = self.parse(request)
        except WireError:
            return None
        path = request.path.rstrip("/")
        body = read_known(request.body)
        if parsed.attested or "prompt" in body.members or not path.endswith("/responses"):
            return None
        if parsed.content.hidden == "mcp" or body.members.get("image") or parsed.content.images or parsed.hides_images:
            return None
        return CountRequest(f"{path}/input_tokens", _only(body, _COUNTED))

    def read_count(self, body: bytes) -> int | None:
        """Read `input_tokens`."""
        found = read_object(body)
        if found is None or found.get("input_tokens") is None:
            return None
        try:
            return count(found["input_tokens"])
        except UnreadableCount:
            return None

    def texts(self, request: Request) -> list[str] | None:
        """Give every text of the prompt; None where the body does not show all of it."""
        try:
            body = read_body(request.body)
            tally = _tally(body)
        except RecursionError:
            raise WireError("the body is nested too deeply") from None
        return None if tally.hidden or body.members.get("previous_response_id") is not None else tally.texts

    def conversation(self, request: Request) -> bytes | None:
        """Digest the first user message, but for its cache marks."""
        return RESPONSE.conversation(request, MARKS)

    def trimmable(self, request: Request) -> int:
        """Count the leading results of tools that are older than the last three turns."""
        return RESPONSE.trimmable(request)

    def lightened(self, request: Request, *, cache_5m: bool, trim: int) -> bytes | None:
        """Shorten lives in the cache, and leave out long texts of leading results."""
        return RESPONSE.lightened(request, cache_5m=cache_5m, trim=trim)

    def with_model(self, request: Request, model: str) -> Request | None:
        """Name another model in the body."""
        return with_model(request, model)

    def same_call(self, request: Request) -> bytes:
        """Give a digest of the call without its limits."""
        return digest(request, _TOUCHED)

    def tool_steps(self, request: Request) -> Iterator[ToolStep]:
        """Read the tools of its items."""
        return steps_of(request, responses_steps)

    def setting(self, request: Request) -> Setting | None:
        """Digest its tools and its system prompt."""
        return setting_of(request, system=("instructions",))

    def error_code(self, body: bytes) -> str | None:
        """Give `error.code` of an error body, else its type."""
        return stated_error(body, "code", "type")

    def refuse(self, refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
        """Put a refusal into OpenAI's error shape."""
        return openai_refusal(refusal, lockpin)


class OpenAICompact(OpenAIResponses):
    """`POST /v1/responses/compact`: the model writes a summary, and the request has no limit for it.

    What tools the request has are part of the prompt that is shortened; none is run.
    """

    name = "openai_compact"
    has_limit = False
    min_output = 1
    links = False

    def parse(self, request: Request) -> Parsed:
        """Read a request to shorten a conversation, as another Responses request, up to the model's whole output."""
        parsed = super().parse(request)
        return replace(
            parsed, output_limit=None, output_settable=False, rounds=1, output_rounds=1, fees={},
            tool_limit=None, tools=(), grows=False, background=False,
        )  # fmt: skip

    def rewrite(
        self,
        request: Request,
        change: Rewrite,
        *,
        output_field: str = "max_completion_tokens",
        parsed: Parsed | None = None,
    ) -> bytes:
        """Change nothing: there is no limit to set."""
        return request.body

    def count_request(self, request: Request) -> CountRequest | None:
        """Ask the endpoint beside this one."""
        path = request.path.rstrip("/").removesuffix("/compact")
        return super().count_request(replace(request, path=path))


def _tally(body: Body) -> ResponsesTally:
    members = body.members
    given = members.get("input")
    if given is not None and type(given) not in (str, list):
        raise WireError(f"input is {shown(given)}; a string or a list is allowed")
    tally = ResponsesTally(stores=members.get("store") is not False, messages=1)
    REQUEST.read(members, tally)
    tally.schema_bytes += sum(body.size(key) for key in SCHEMA_FIELDS if key in body.spans)
    if members.get("conversation") is not None:
        tally.hide("conversation")
    return tally


def _parse(body: Body, request: Request) -> Parsed:
    members = body.members
    model = _model(members, request.path_model)
    limit, streamed = whole(members.get(_LIMIT), _LIMIT), asks_stream(members)
    chain = plain_word(members.get("previous_response_id"), "previous_response_id")
    tally = _tally(body)
    signed, thinks = is_signed(request), thinking(members)
    parsed = Parsed(
        model=model,
        streamed=streamed,
        content=tally.content(),
        output_limit=limit,
        output_settable=not signed,
        least_output=thinks.least_output,
        attested=signed,
        prompt_units=written_units(members, tally),
        terms=Terms(tier=plain_word(members.get("service_tier"), "service_tier")),
        thinking=thinks.budget,
        beyond_limit=thinks.is_boundless or _works_beyond(members),
        routed=is_routed(members),
        chain=chain,
        chain_reasoning=tally.reasoning,
        hides_images=tally.files,
        is_whole=members.get("truncation") in (None, "disabled") and not (tally.compacts or tally.recalls),
        background=_flag(members, "background"),
        layout=body.layout(_TOUCHED),
    )
    return _with_tools(parsed, members, tally)


def _with_tools(parsed: Parsed, members: Mapping[str, object], tally: ResponsesTally) -> Parsed:
    """Bound what the provider does by itself: calls of its tools, and summaries of the conversation on its way."""
    kinds, limit = tally.hosted, TOOL_LIMIT
    if members.get("prompt") is not None:
        kinds = kinds | set(_FEES)  # a stored prompt may have any
    elif members.get("conversation") is not None and not kinds:
        kinds, limit = set(_FEES), UNSEEN_TOOL_LIMIT
    asked = whole(members.get(_TOOL_LIMIT), _TOOL_LIMIT)
    calls = 0 if not kinds else limit if asked is None else asked
    compactions = int(tally.compacts)  # one may go before each sampling
    summaries = tally.triggers + compactions * (1 + calls)
    fees = {_FEES[kind]: _pieces(kind, members) for kind in kinds if kind in _FEES and calls}
    return replace(
        parsed,
        rounds=1 + calls + summaries,
        output_rounds=1 + summaries,
        fees={unit: calls * pieces for unit, pieces in fees.items()},
        tool_limit=limit if kinds and asked is None else None,
        tools=(ToolUse(calls, 1 + compactions, compactions, fees),) if kinds else (),
        grows=bool(kinds) or summaries > 0,
    )


def _pieces(kind: str, members: Mapping[str, object]) -> int:
    """Give how many pieces of its fee one call of a tool is: containers are billed by their memory."""
    return session_gb(members.get("tools")) if kind == "code" else 1


def _model(members: Mapping[str, object], path_model: str | None) -> str:
    if path_model is None and members.get("model") is None and members.get("prompt") is not None:
        raise WireError("model is not in the body, only in the stored prompt; name it in the request too")
    return asked_model(members.get("model") if path_model is None else path_model)


def _works_beyond(members: Mapping[str, object]) -> bool:
    """Say whether the model may work more than its output limit says: in `pro` mode nobody says how much."""
    reasoning = members.get("reasoning")
    if type(reasoning) is dict:
        return reasoning.get("mode") == "pro"
    return members.get("prompt") is not None  # a stored prompt may ask for it


def _flag(members: Mapping[str, object], key: str) -> bool:
    value = members.get(key)
    if value is not None and type(value) is not bool:
        raise WireError(f"{key} is {shown(value)}; true or false is allowed")
    return value is True


def _only(body: Body, keys: Collection[str]) -> bytes:
    """Give the body with these members alone, each as it is written."""
    kept = [f"{json.dumps(key)}:{body.text[slice(*span)]}" for key, span in body.spans.items() if key in keys]
    return ("{" + ",".join(kept) + "}").encode()

"""The Anthropic Messages format. Knows JSON field names; knows no prices, no I/O.

Source: the provider's Messages reference and the request types of its SDK, read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lockpin_core.call import Also, Layout, Parsed, Refusal, Reply, Request, Rewrite, Setting, Terms, ToolStep
from lockpin_core.errors import WireError
from lockpin_core.wire import anthropic_steps
from lockpin_core.wire.anthropic_hosted import TOOL_LIMIT, change_each, hosted, limit_tools, lowered_hops
from lockpin_core.wire.anthropic_shapes import REQUEST, SCHEMA_FIELDS, ToolSizes
from lockpin_core.wire.anthropic_talk import MARKS, TALK, has_bound_thoughts
from lockpin_core.wire.anthropic_usage import MessageScanner, MessageStreamScanner
from lockpin_core.wire.jsonbody import (
    Body,
    digest,
    json_text,
    model_name,
    plain_word,
    read_body,
    read_known,
    shown,
    whole,
)
from lockpin_core.wire.named import with_model
from lockpin_core.wire.protocol import CountRequest, Scanner, Wire
from lockpin_core.wire.refusals import anthropic_refusal
from lockpin_core.wire.replies import UnreadableCount, count, read_object, stated_error
from lockpin_core.wire.routing import is_routed
from lockpin_core.wire.settings import setting_of
from lockpin_core.wire.signatures import is_signed
from lockpin_core.wire.splice import Splice, lowered
from lockpin_core.wire.tally import Tally, unpriced
from lockpin_core.wire.tool_steps import steps_of

MIN_THINKING_TOKENS = 1024  # the least budget that the provider accepts for thinking
_TOUCHED = ("max_tokens", "thinking", "tools", "fallbacks")  # what `rewrite` may change
_SUBSCRIPTION_TOKEN = "sk-ant-oat"  # an OAuth login of a plan; API keys begin otherwise
_BETAS = ("anthropic_beta", "betas")
_MOST_OUTPUT_K = 128  # no model writes more without such a beta
_LONG_OUTPUT = re.compile(r"output[-_]([0-9]+)k", re.IGNORECASE)

# What the counting endpoint does not take; what it takes beside these may be part of the prompt.
_NOT_COUNTED = frozenset(
    {
        *("max_tokens", "stream", "service_tier", "inference_geo", "temperature", "top_p", "top_k", "stop_sequences"),
        *("metadata", "diagnostics", "thread", "container", "fallbacks", "fallback_credit_token"),
        *("anthropic_version", "anthropic_beta", "provider"),
    }
)
_VERTEX_MODELS = "/publishers/anthropic/models/"


class AnthropicMessages(Wire):
    """`POST /v1/messages`, of Anthropic and of those who speak like it."""

    name = "anthropic_messages"
    min_output = 1
    cut_rule = "observed"
    tool_mark = b"tool_result"
    error_shape = "anthropic"
    always_limited = True

    def parse(self, request: Request) -> Parsed:
        """Read a Messages request. Raises WireError where it is malformed or holds what cannot be bounded.

        The output limit is `max_tokens`: thinking is inside it, so nothing is added. 0 is legal: it warms the cache.
        """
        try:
            return _parse(request)
        except RecursionError:
            raise WireError("the body is nested too deeply") from None

    def rewrite(
        self, request: Request, change: Rewrite, *, output_field: str = "max_tokens", parsed: Parsed | None = None
    ) -> bytes:
        """Lower `max_tokens`, a thinking budget that would not fit below it, and `max_uses`, or set what is not there.

        Other bytes stay; usage needs no asking. Raises WireError where thinking cannot fit.
        """
        limits_tools = change.tool_limit is not None or change.tool_most is not None
        if change.max_output is None and not limits_tools:
            return request.body
        body = Splice.of(request.body, parsed.layout if parsed is not None else None)
        values: dict[str, bytes] = {}
        if change.max_output is not None:
            values |= _limited(body, change.max_output)
        tools = body.get("tools") or b""
        if limits_tools and tools.startswith(b"["):
            values["tools"] = limit_tools(tools, change.tool_limit, change.tool_most)
        return body.having(values)

    def also_within(self, parsed: Parsed, limit: int) -> tuple[Also, ...]:
        """Give the fallbacks with lower limits; what else may run has limits of its own."""
        return lowered_hops(parsed.also, limit)

    def scanner(self, *, streamed: bool, asked: Parsed | None = None) -> Scanner:
        """Make a scanner for a 2xx reply; `asked` says which cache lifetimes the request named."""
        return MessageStreamScanner(asked) if streamed else MessageScanner(asked)

    def count_request(self, request: Request) -> CountRequest | None:
        """Ask for the count of this prompt, where the endpoint would see all of it and the model's tokens are asked.

        Nothing else is ever sent under a login that attests its bodies. Source: the provider's reference of
        count_tokens, read 2026-11.
        """
        path = _count_path(request)
        try:
            body = None if path is None else _counted(request)
        except (WireError, RecursionError):
            return None
        return None if path is None or body is None else CountRequest(path, body)

    def read_count(self, body: bytes) -> int | None:
        """Read `input_tokens`."""
        found = read_object(body)
        try:
            return None if found is None or found.get("input_tokens") is None else count(found["input_tokens"])
        except UnreadableCount:
            return None

    def conversation(self, request: Request) -> bytes | None:
        """Digest the first user message, but for its cache marks."""
        return TALK.conversation(request, MARKS)

    def trimmable(self, request: Request) -> int:
        """Count the leading results of tools that are older than the last three turns."""
        return TALK.trimmable(request)

    def lightened(self, request: Request, *, cache_5m: bool, trim: int) -> bytes | None:
        """Shorten lives in the cache, and leave out long texts of leading results."""
        return None if _Login.of(request).is_plan else TALK.lightened(request, cache_5m=cache_5m, trim=trim)

    def with_model(self, request: Request, model: str) -> Request | None:
        """Name another model, in the body or the path."""
        return None if _Login.of(request).is_plan else with_model(request, model)

    def same_call(self, request: Request) -> bytes:
        """Give a digest that leaves out the output limit, and the thinking budget, which changes with it."""
        return digest(request, ("max_tokens", "budget_tokens"))

    def tool_steps(self, request: Request) -> Iterator[ToolStep]:
        """Read the tools of its messages."""
        return steps_of(request, anthropic_steps.tool_steps)

    def setting(self, request: Request) -> Setting | None:
        """Digest its tools and its system prompt."""
        return setting_of(request, system=("system",))

    def error_code(self, body: bytes) -> str | None:
        """Give `error.type` of an error body."""
        return stated_error(body, "type")

    def refuse(self, refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
        """Put a refusal into the Messages error shape."""
        return anthropic_refusal(refusal, lockpin)


def _limited(body: Splice, max_output: int) -> dict[str, bytes]:
    """Say what changes with an output limit: it, and the thinking budgets that would not fit below it.

    Where it is lower than the request's, limits of fallbacks fall with it.
    """
    limit, has_one = lowered(body.get("max_tokens"), max_output), body.get("max_tokens") not in (None, b"null")
    if limit is None:
        return {}
    values = {"max_tokens": limit, **fitting_budget(body, "thinking", max_output)}
    fallbacks = body.get("fallbacks") or b""
    if fallbacks.startswith(b"["):

        def change(raw: bytes, fallback: Mapping[str, object]) -> Mapping[str, bytes]:
            own = Splice.of(raw)
            if fallback.get("max_tokens") is None:
                return fitting_budget(own, "thinking", max_output)
            lower = lowered(own.get("max_tokens"), max_output) if has_one else None
            return {} if lower is None else {"max_tokens": lower, **fitting_budget(own, "thinking", max_output)}

        values["fallbacks"] = change_each(fallbacks, change)
    return values


def fitting_budget(body: Splice, key: str, max_output: int) -> dict[str, bytes]:
    """Say what a member with a thinking budget must be for the budget to fit below an output limit; empty: it stays.

    Raises WireError where none can fit.
    """
    raw = body.get(key) or b""
    thinking = Splice.of(raw if raw.startswith(b"{") else b"{}")
    budget = thinking.get("budget_tokens") or b""
    if not budget.isdigit() or int(budget) < max_output:
        return {}
    if max_output <= MIN_THINKING_TOKENS:
        raise WireError(f"{key}.budget_tokens does not fit below {max_output} output tokens")
    return {key: thinking.having({"budget_tokens": b"%d" % (max_output - 1)})}


def least_beside(thinking: object) -> int:
    """Give the smallest output limit beside which thinking is valid, its budget being lowered with the limit."""
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    return min(budget, MIN_THINKING_TOKENS) + 1 if type(budget) is int and budget > 0 else 0


def _thinking(members: Mapping[str, object]) -> Iterator[object]:
    """List what is said of thinking within this output limit, which that of a fallback does not pass."""
    yield members.get("thinking")
    fallbacks = members.get("fallbacks")
    yield from (one.get("thinking") for one in (fallbacks if isinstance(fallbacks, list) else ()))


@dataclass(frozen=True, slots=True)
class _Login:
    """What a call's credentials say of its body."""

    is_plan: bool = False  # a plan login: such bodies are attested by the client
    is_signed: bool = False

    @classmethod
    def of(cls, request: Request) -> _Login:
        scheme, _, token = request.headers.get("authorization", "").strip().partition(" ")
        is_plan = scheme.lower() == "bearer" and token.strip().startswith(_SUBSCRIPTION_TOKEN)
        return cls(is_plan, is_signed(request))


def _parse(request: Request) -> Parsed:
    body = read_body(request.body)
    return parse_message(request, body, body.layout(_TOUCHED))


def parse_message(request: Request, body: Body, layout: Layout | None = None) -> Parsed:
    """Read what stands in a body, be it the request's own or a part of it. Raises WireError."""
    members = body.members
    model = _model(request, members)
    streamed = members.get("stream")
    if streamed is not None and type(streamed) is not bool:
        raise WireError(f"stream is {shown(streamed)}; true or false is allowed")
    limit = whole(members.get("max_tokens"), "max_tokens")
    tier, speed, geo = (plain_word(members.get(key), key) for key in ("service_tier", "speed", "inference_geo"))
    tally = _tally(body)
    login, found = _Login.of(request), hosted(members, model, limit)
    if found.needs_limit and login.is_signed:
        unpriced("a tool of the provider's without max_uses, in a signed body that must not get one,")
    if found.hidden is not None:
        tally.hide(found.hidden)
    tally.extra_tokens += found.extra_prompt
    is_attested = login.is_plan or login.is_signed
    return Parsed(
        model=model,
        streamed=streamed is True,
        content=tally.content(),
        output_limit=limit,
        clamped=not writes_beyond(request.headers, members),
        rounds=found.rounds,
        output_rounds=found.rounds,
        extra_output=found.extra_output,
        output_settable=not is_attested,
        least_output=max(map(least_beside, _thinking(members)), default=0),
        attested=is_attested,
        prompt_units=frozenset(tally.prompt_units),
        fees=found.fees,
        terms=Terms(tier, speed, geo),
        subscription=login.is_plan,
        also=found.also,
        tool_limit=TOOL_LIMIT if found.needs_limit and not is_attested else None,
        # A limit of a tool that changes within a conversation is a change of what its thoughts were made of.
        tools=() if is_attested or (found.uses and has_bound_thoughts(model, members)) else found.uses,
        routed=is_routed(members),
        grows=found.grows,
        layout=layout,
    )


def writes_beyond(headers: Mapping[str, str], members: Mapping[str, object]) -> bool:
    """Say whether a beta lets models write more than their maximum: one of those in the header, in whatever case, or in
    the body, for hosts that take no such header.

    Source: the provider's pages of beta headers and of extended output, read 2026-11.
    """
    said = " ".join([headers.get("anthropic-beta", ""), *(str(members.get(key) or "") for key in _BETAS)])
    return any(int(most_k[:9]) > _MOST_OUTPUT_K for most_k in _LONG_OUTPUT.findall(said))


def _tally(body: Body) -> Tally:
    """Check the shape of a request, and count what it holds."""
    members = body.members
    messages, tools = members.get("messages"), members.get("tools")
    if type(messages) is not list:
        raise WireError(f"messages is {shown(messages)}; a list is needed")
    tally = Tally(tool_sizes=ToolSizes(tools if type(tools) is list else []))
    REQUEST.read(members, tally)
    tally.schema_bytes += sum(body.size(key) for key in SCHEMA_FIELDS if key in body.spans)
    tally.messages = len(messages) + ("system" in members)
    return tally


def _model(request: Request, members: Mapping[str, object]) -> str:
    """Give the model: the path's where it names one, whatever the body says."""
    return model_name(members.get("model") if request.path_model is None else request.path_model)


def _counted(request: Request) -> bytes | None:
    """Give the body whose count bounds the call; None where the call may read more, or another model reads it."""
    parsed = _parse(request)
    body = read_known(request.body)
    if parsed.attested or parsed.grows or body.members.get("container"):
        return None
    spans = body.spans.items()  # as they are written: a number's text may be longer than its value's
    members = {key: body.text[start:end] for key, (start, end) in spans if key not in _NOT_COUNTED}
    if request.path_model is not None:
        members["model"] = json_text(request.path_model)
    return f"{{{','.join(f'{json_text(key, escaped=True)}:{value}' for key, value in members.items())}}}".encode()


def _count_path(request: Request) -> str | None:
    if request.path_model is None:
        return f"{request.path}/count_tokens" if request.path.endswith("/v1/messages") else None
    start, marker, _ = request.path.partition(_VERTEX_MODELS)
    return f"{start}{marker}count-tokens:rawPredict" if marker else None

"""The Anthropic Messages format. Knows JSON field names; knows no prices, no I/O.

Source: the provider's Messages reference and the request types of its SDK, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping

from lockpin_core.call import Parsed, Refusal, Reply, Request, Rewrite, Terms
from lockpin_core.errors import WireError
from lockpin_core.wire.anthropic_shapes import REQUEST, SCHEMA_FIELDS, ToolSizes
from lockpin_core.wire.anthropic_usage import MessageScanner, MessageStreamScanner
from lockpin_core.wire.jsonbody import model_name, plain_word, read_body, shown, whole
from lockpin_core.wire.protocol import Scanner, Wire
from lockpin_core.wire.refusals import anthropic_refusal
from lockpin_core.wire.replies import error_type, read_object
from lockpin_core.wire.splice import Splice
from lockpin_core.wire.tally import Tally

MIN_THINKING_TOKENS = 1024  # the least budget that the provider accepts for thinking
_TOUCHED = ("max_tokens", "thinking")  # what `rewrite` may change
_SUBSCRIPTION_TOKEN = "sk-ant-oat"  # an OAuth login of a plan; API keys begin otherwise


class AnthropicMessages(Wire):
    """`POST /v1/messages`, of Anthropic and of those who speak like it."""

    name = "anthropic_messages"
    min_output = 1
    cut_rule = "observed"

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
        """Set `max_tokens`, and a thinking budget that would not fit below it. Other bytes stay; usage needs no asking.

        Raises WireError where thinking cannot fit.
        """
        if change.max_output is None:
            return request.body
        body = Splice.of(request.body, parsed.layout if parsed is not None else None)
        values = {"max_tokens": b"%d" % change.max_output}
        thinking = body.get("thinking") or b""
        if thinking.startswith(b"{"):
            values |= _fitting_budget(Splice.of(thinking), change.max_output)
        return body.having(values)

    def scanner(self, *, streamed: bool, asked: Parsed | None = None) -> Scanner:
        """Make a scanner for a 2xx reply; `asked` says which cache lifetimes the request named."""
        return MessageStreamScanner(asked) if streamed else MessageScanner(asked)

    def error_code(self, body: bytes) -> str | None:
        """Give `error.type` of an error body."""
        found = read_object(body)
        return None if found is None else error_type(found.get("error"), "type")

    def refuse(self, refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
        """Put a refusal into the Messages error shape."""
        return anthropic_refusal(refusal, lockpin)


def _fitting_budget(thinking: Splice, max_output: int) -> dict[str, bytes]:
    budget = thinking.get("budget_tokens") or b""
    if not budget.isdigit() or int(budget) < max_output:
        return {}
    if max_output <= MIN_THINKING_TOKENS:
        raise WireError(f"thinking.budget_tokens does not fit below {max_output} output tokens")
    return {"thinking": thinking.having({"budget_tokens": b"%d" % (max_output - 1)})}


def _parse(request: Request) -> Parsed:
    body = read_body(request.body)
    members = body.members
    model = model_name(members.get("model"))
    messages, streamed = members.get("messages"), members.get("stream")
    if type(messages) is not list:
        raise WireError(f"messages is {shown(messages)}; a list is needed")
    if streamed is not None and type(streamed) is not bool:
        raise WireError(f"stream is {shown(streamed)}; true or false is allowed")
    limit = whole(members.get("max_tokens"), "max_tokens")
    tier, speed, geo = (plain_word(members.get(key), key) for key in ("service_tier", "speed", "inference_geo"))
    tools = members.get("tools")
    tally = Tally(tool_sizes=ToolSizes(tools if type(tools) is list else []))
    REQUEST.read(members, tally)
    tally.schema_bytes += sum(body.size(key) for key in SCHEMA_FIELDS if key in body.spans)
    tally.messages = len(messages) + ("system" in members)
    is_plan = _is_plan(request.headers)
    return Parsed(
        model=model,
        streamed=streamed is True,
        content=tally.content(),
        output_limit=limit,
        output_settable=not is_plan,
        attested=is_plan,
        prompt_units=frozenset(tally.prompt_units),
        terms=Terms(tier, speed, geo),
        subscription=is_plan,
        layout=body.layout(_TOUCHED),
    )


def _is_plan(headers: Mapping[str, str]) -> bool:
    """Say whether the call is on a plan login: such bodies are attested by the client."""
    scheme, _, token = headers.get("authorization", "").strip().partition(" ")
    return scheme.lower() == "bearer" and token.strip().startswith(_SUBSCRIPTION_TOKEN)

"""The legacy Completions format. Knows JSON field names; knows no prices, no I/O.

Source: OpenAI's Completions reference and the request types of its SDK, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lockpin_core.call import Content, Parsed, Refusal, Reply, Request, Rewrite, Terms
from lockpin_core.errors import WireError
from lockpin_core.wire.jsonbody import Body, digest, plain_word, read_body, shown, whole
from lockpin_core.wire.named import with_model
from lockpin_core.wire.openai_chat import MAX_CHOICES, asked_model, asks_stream, asks_usage
from lockpin_core.wire.openai_filter import ChatUsageFilter
from lockpin_core.wire.openai_prompts import read_prompts
from lockpin_core.wire.openai_rewrite import OPTIONS, rewritten
from lockpin_core.wire.openai_shapes import REFUSED_FIELDS, WARY
from lockpin_core.wire.openai_usage import ChatScanner, ChatStreamScanner
from lockpin_core.wire.protocol import Scanner, UsageFilter, Wire
from lockpin_core.wire.refusals import openai_refusal
from lockpin_core.wire.replies import stated_error
from lockpin_core.wire.routing import is_routed, routing_rule
from lockpin_core.wire.splice import Splice, lowered
from lockpin_core.wire.tally import Nested, Tally, scalars, shape
from lockpin_core.wire.textsize import sizes

DEFAULT_LIMIT = 16  # tokens that OpenAI gives a choice where the request does not say
_LIMIT = "max_tokens"
_TOUCHED = (_LIMIT, OPTIONS)

REQUEST = shape(
    "the request",
    "model max_tokens n best_of stream temperature top_p frequency_penalty presence_penalty seed user logprobs echo "
    "suffix stop service_tier",
    {
        "stop": scalars,
        "logit_bias": scalars,
        "stream_options": scalars,
        "metadata": scalars,
        "stop_token_ids": scalars,
        "usage": scalars,
        "provider": routing_rule,
    },
    uncounted="prompt",  # its forms are counted by themselves
    refused={key: what for key, what in REFUSED_FIELDS.items() if key != "prompt"},
    wary=WARY,
    nested_unknown=Nested.EMPTY,
)


class OpenAICompletions(Wire):
    """`POST /v1/completions`: each prompt is completed so many times; prompts are billed once, all completions are.

    Hosts that only speak like OpenAI give a choice more than 16 tokens where the request does not say: they have a name
    of their own, and no limit is known then.
    """

    min_output = 1
    cut_rule = "hold"

    def __init__(self, name: str = "openai_completions", default_limit: int | None = DEFAULT_LIMIT) -> None:
        self._name, self._default = name, default_limit

    @property
    def name(self) -> str:
        """Give the name that provider files use."""
        return self._name

    def parse(self, request: Request) -> Parsed:
        """Read a Completions request. Raises WireError where it is malformed or holds what cannot be bounded.

        The server makes `best_of` completions for each prompt and bills them all.
        """
        try:
            return _parse(read_body(request.body), request.path_model, self._default)
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
        """Set `max_tokens`, the format's only limit whatever the host calls that of its chats, and ask for usage."""
        if change == Rewrite():
            return request.body
        body = Splice.of(request.body, None if parsed is None else parsed.layout)
        limit = None if change.max_output is None else lowered(body.get(_LIMIT), change.max_output)
        return rewritten(body, change, {} if limit is None else {_LIMIT: limit})

    def scanner(self, *, streamed: bool, asked: Parsed | None = None) -> Scanner:
        """Make a scanner for a 2xx reply: usage and choices stand as they do in a chat's."""
        return ChatStreamScanner(asked) if streamed else ChatScanner(asked)

    def usage_filter(self) -> UsageFilter | None:
        """Make the filter that takes the usage chunk out again."""
        return ChatUsageFilter()

    def texts(self, request: Request) -> list[str] | None:
        """Give every text of the prompts."""
        try:
            tally, _ = _tally(read_body(request.body))
        except RecursionError:
            raise WireError("the body is nested too deeply") from None
        return None if tally.hidden else tally.texts

    def with_model(self, request: Request, model: str) -> Request | None:
        """Name another model, in the body or in the path of a deployment."""
        return with_model(request, model)

    def same_call(self, request: Request) -> bytes:
        """Give a digest of the call without its output limit."""
        return digest(request, (_LIMIT,))

    def error_code(self, body: bytes) -> str | None:
        """Give `error.code` of an error body, else its type."""
        return stated_error(body, "code", "type")

    def refuse(self, refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
        """Put a refusal into OpenAI's error shape."""
        return openai_refusal(refusal, lockpin)


def _tally(body: Body) -> tuple[Tally, int]:
    """Count the request, and how many prompts it has."""
    tally = Tally()
    prompt = body.members.get("prompt")
    REQUEST.read(body.members, tally)
    # Without a prompt the model begins a document of its own.
    prompts = 1 if prompt is None else read_prompts(prompt, "prompt", tally)
    tally.messages = prompts
    if type(suffix := body.members.get("suffix")) is str:  # every prompt has it
        tally.extra_tokens += (prompts - 1) * 2 * (sizes([suffix])[1] + 2)
    return tally, prompts


def _parse(body: Body, path_model: str | None, default_limit: int | None) -> Parsed:
    members = body.members
    streamed, echo = asks_stream(members), members.get("echo")
    if echo is not None and type(echo) is not bool:
        raise WireError(f"echo is {shown(echo)}; true or false is allowed")
    tally, prompts = _tally(body)
    each = max(whole(members.get(key), key, low=1, high=MAX_CHOICES) or 1 for key in ("n", "best_of"))
    content = replace(tally.content(), prompts=prompts)
    limit = whole(members.get(_LIMIT), _LIMIT)
    return Parsed(
        model=asked_model(members.get("model") if path_model is None else path_model),
        streamed=streamed,
        content=content,
        output_limit=default_limit if limit is None else limit,
        choices=prompts * each,
        extra_output=each * _echoed(content) if echo else 0,
        asks_usage=not streamed or asks_usage(members.get("stream_options")),
        terms=Terms(tier=plain_word(members.get("service_tier"), "service_tier")),
        routed=is_routed(members),
        layout=body.layout(_TOUCHED),
    )


def _echoed(content: Content) -> int:
    """Bound the prompts as output of a completion: nobody says whether an echo is billed."""
    return 2 * (content.nfc_bytes + 2 * content.strings) + content.extra_tokens

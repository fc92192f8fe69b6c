"""Gemini's embedContent and batchEmbedContents: text in, nothing but numbers out. Knows JSON field names; no prices.

Every request of a batch is a prompt of its own. A reply may leave its usage out; then nobody says what it was.
Source: the provider's references of `embedContent` and `batchEmbedContents`, and the request types of its SDK, read
2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from lockpin_core.call import Parsed, Portion, Reading, Refusal, Reply, Request, Rewrite
from lockpin_core.errors import WireError
from lockpin_core.usage import nonzero
from lockpin_core.wire.gemini import Gemini, model_of
from lockpin_core.wire.gemini_shapes import camel, content, fields, listed
from lockpin_core.wire.gemini_usage import doubts, normalised
from lockpin_core.wire.jsonbody import placed, read_body
from lockpin_core.wire.protocol import Scanner, Wire
from lockpin_core.wire.refusals import gemini_refusal
from lockpin_core.wire.replies import UnreadableCount, error_type, members, word
from lockpin_core.wire.scanners import BodyScanner
from lockpin_core.wire.tally import Nested, Tally, scalars, shape, skip

_ITEM = shape(
    "an embedding request",
    "model taskType title outputDimensionality autoTruncate",
    {"content": content, "embedContentConfig": scalars},
    nested_unknown=Nested.EMPTY,
)
_BATCH = shape("the request", "model", {"requests": skip})


class GeminiEmbed(Wire):
    """`POST …/models/{model}:embedContent` and `:batchEmbedContents`."""

    name = "gemini_embed"
    min_output = 1
    cut_rule = "hold"
    error_shape = "gemini"

    def parse(self, request: Request) -> Parsed:
        """Read a request for embeddings. Raises WireError where it is malformed or holds what cannot be bounded."""
        try:
            return _parse(request, read_body(request.body).members)
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
        """Give the body as it is: there is no output to limit."""
        return request.body

    def scanner(self, *, streamed: bool, asked: Parsed | None = None) -> Scanner:
        """Make a scanner for a 2xx reply."""
        return EmbedScanner(asked)

    def error_code(self, body: bytes) -> str | None:
        """Give `error.status` of an error body."""
        return Gemini().error_code(body)

    def refuse(self, refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
        """Put a refusal into Google's error shape."""
        return gemini_refusal(refusal, lockpin)


class EmbedScanner(BodyScanner):
    """Reads a reply that is one JSON body."""

    __slots__ = ()

    def __init__(self, asked: Parsed | None = None) -> None:
        super().__init__(asked, _read)


def _read(found: dict[str, Any], asked: Parsed | None) -> Reading:
    model = word(found.get("modelVersion"))
    has_vectors = bool(found.get("embedding") or found.get("embeddings"))
    error = error_type(found.get("error"), "status", "code")
    facts = Reading(terminal=True, model=model, delivered=has_vectors, error=error)
    try:
        stated = members(found.get("usageMetadata"))
        usage = normalised(stated)
        portion = Portion(model, nonzero(usage), doubts(stated, usage, asked))
    except UnreadableCount:
        return facts
    return replace(facts, portions=(portion,), complete=True)


def _parse(request: Request, given: Mapping[str, object]) -> Parsed:
    items = listed(given["requests"]) if "requests" in given else [given]
    if not items:
        raise WireError("requests is empty; one request or more is needed")
    tally = Tally()
    models = {model_of(request, given.get("model"))} if request.path_model or "requests" not in given else set()
    if "requests" in given:
        _BATCH.read(given, tally)
    for number, item in enumerate(items):
        with placed("requests", number) if "requests" in given else nullcontext():
            models.add(model_of(request, fields(item, _ITEM).get("model")))
            _ITEM.read(camel(item, _ITEM), tally)
    if len(models) > 1:
        raise WireError("the requests name several models; one is allowed")
    tally.messages = len(items)
    return Parsed(
        model=models.pop(),
        streamed=False,
        content=replace(tally.content(), prompts=len(items)),
        output_limit=0,
        output_settable=False,
        prompt_units=frozenset(tally.prompt_units),
    )

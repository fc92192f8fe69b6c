"""The Embeddings format: prompts in, vectors out, no output tokens. Knows JSON field names; knows no prices, no I/O.

Source: OpenAI's Embeddings reference, the request and `usage` objects, read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lockpin_core.call import Parsed, Portion, Reading, Refusal, Reply, Request, Rewrite, Terms
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit, total_tokens
from lockpin_core.wire.jsonbody import Body, digest, plain_word, read_body
from lockpin_core.wire.openai_chat import asked_model
from lockpin_core.wire.openai_prompts import read_prompts
from lockpin_core.wire.openai_shapes import REFUSED_FIELDS
from lockpin_core.wire.openai_usage import normalised
from lockpin_core.wire.protocol import Scanner, Wire
from lockpin_core.wire.refusals import openai_refusal
from lockpin_core.wire.replies import (
    UnreadableCount,
    error_type,
    first_count,
    members,
    read_object,
    read_value,
    stated_error,
    word,
)
from lockpin_core.wire.routing import is_routed, routing_rule
from lockpin_core.wire.stated_cost import stated_pico
from lockpin_core.wire.tally import Tally, shape

_WHOLE_BYTES = 1 << 17  # a reply up to here is read as JSON
_END_BYTES = 1 << 16  # of a longer one so much is kept at either end: between them are vectors
_USAGE = re.compile(rb'"usage"\s*:\s*(?=\{)')
_MODEL = re.compile(rb'"model"\s*:\s*(?=")')


# Fields that say only how a vector is made, OpenAI's and those of others.
_PLAIN = (
    "model encoding_format dimensions user input_type truncate truncation task embedding_type embedding_types "
    "output_dimension output_dtype normalized late_chunking service_tier"
)
REQUEST = shape(
    "the request",
    rules={"provider": routing_rule},
    uncounted=f"input {_PLAIN}",
    refused={
        **{key: what for key, what in REFUSED_FIELDS.items() if key in ("models", "plugins", "preset")},
        "documents": "they are a prompt that another endpoint counts in its own way",
        "prompt": "the provider keeps the prompt, so the body does not show it",
    },
)


class OpenAIEmbeddings(Wire):
    """`POST /v1/embeddings`, of OpenAI and of the many that speak like it."""

    name = "openai_embeddings"
    min_output = 1
    cut_rule = "hold"

    def parse(self, request: Request) -> Parsed:
        """Read an Embeddings request. Raises WireError where it is malformed or holds what cannot be bounded."""
        try:
            return _parse(read_body(request.body), request.path_model)
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
        """Give the body as it is: it has no output limit, and no stream."""
        return request.body

    def scanner(self, *, streamed: bool, asked: Parsed | None = None) -> Scanner:
        """Make a scanner for a 2xx reply, which is one JSON body."""
        return EmbeddingsScanner()

    def texts(self, request: Request) -> list[str] | None:
        """Give every text of the input."""
        try:
            tally = _tally(read_body(request.body))
        except RecursionError:
            raise WireError("the body is nested too deeply") from None
        return None if tally.hidden else tally.texts

    def same_call(self, request: Request) -> bytes:
        """Give a digest of the call."""
        return digest(request, ())

    def error_code(self, body: bytes) -> str | None:
        """Give `error.code` of an error body, else its type."""
        return stated_error(body, "code", "type")

    def refuse(self, refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
        """Put a refusal into OpenAI's error shape."""
        return openai_refusal(refusal, lockpin)


def _tally(body: Body) -> Tally:
    tally = Tally()
    REQUEST.read(body.members, tally)
    unknown = tally.content()
    tally.texts.clear()
    tally.messages = read_prompts(body.members.get("input"), "input", tally)
    # A host may put a text that nobody knows before every prompt.
    tally.extra_tokens += tally.messages * 2 * (unknown.nfc_bytes + 2 * unknown.strings)
    return tally


def _parse(body: Body, path_model: str | None) -> Parsed:
    tally = _tally(body)
    return Parsed(
        model=asked_model(body.members.get("model") if path_model is None else path_model),
        streamed=False,
        content=replace(tally.content(), prompts=tally.messages),
        output_limit=0,
        output_settable=False,
        terms=Terms(tier=plain_word(body.members.get("service_tier"), "service_tier")),
        routed=is_routed(body.members),
        layout=body.layout(()),
    )


class EmbeddingsScanner:
    """Reads a reply from its two ends, whatever its size: what stands between them are vectors."""

    __slots__ = ("_head", "_tail")

    def __init__(self) -> None:
        self._head, self._tail = bytearray(), bytearray()

    def feed(self, chunk: bytes) -> None:
        """Take bytes of the body."""
        room = max(0, _WHOLE_BYTES - len(self._head))
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * _END_BYTES:
            del self._tail[:-_END_BYTES]

    def result(self) -> Reading:
        """Read the body as far as it came."""
        found = self._found()
        if found is None:
            return Reading(readable=False)
        error, usage = found.get("error"), members(found.get("usage"))
        facts = Reading(
            terminal=True,
            model=word(found.get("model")),
            upstream_id=word(found.get("id")),
            delivered=bool(found.get("data")),
            error=error_type(error, "type", "code") if error else None,
            stated_pico=stated_pico(usage, found),
        )
        try:
            units = _units(usage)
        except UnreadableCount:
            return facts
        complete = total_tokens(units) > 0 or not facts.delivered
        return replace(facts, portions=(Portion(facts.model, units),), complete=complete)

    def _found(self) -> dict[str, Any] | None:
        """Read the body, or what stands at the ends of a long one that has ended."""
        if not self._tail:
            return read_object(bytes(self._head))
        ends = bytes(self._head[:_END_BYTES]), bytes(self._head[-_END_BYTES:] + self._tail)[-_END_BYTES:]
        if not ends[0].lstrip().startswith(b"{") or not ends[1].rstrip().endswith(b"}"):
            return None
        found = {"usage": _member(_USAGE, ends), "model": _member(_MODEL, ends), "data": True}
        return {key: item for key, item in found.items() if item is not None}


def _units(usage: dict[str, Any]) -> dict[Unit, int]:
    """Read the prompt; some vendors state a total alone. Raises UnreadableCount."""
    prompt = first_count(usage.get("prompt_tokens"), usage.get("input_tokens"), usage.get("total_tokens"))
    if not usage or (not prompt and usage.get("prompt_tokens") is None and usage.get("total_tokens") is None):
        raise UnreadableCount
    total = max(prompt, first_count(usage.get("total_tokens"), 0))
    return normalised({**usage, "prompt_tokens": total, "completion_tokens": 0, "total_tokens": total})


def _member(pattern: re.Pattern[bytes], ends: tuple[bytes, bytes]) -> object:
    """Read the last value of a member that stands at either end."""
    for end in reversed(ends):
        for match in reversed([*pattern.finditer(end)]):
            found = read_value(end[match.end() :])
            if found is not None:
                return found
    return None

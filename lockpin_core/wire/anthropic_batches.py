"""Anthropic's message batches: many Messages requests in one call, at half the price and for later.

Each request is read as the Messages format reads it, and bounded by itself; the body never changes, so what would need
a limit of ours is refused. The reply is an id; the usage comes with the results, by a later call (`anthropic_results`).
Knows JSON field names; knows no prices, no I/O.
Source: the provider's references of message batches and of their results, its guide to batch processing, and the
request types of its SDK, read 2026-11.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lockpin_core.addresses import normal
from lockpin_core.call import Content, Parsed, Reading, Refusal, Reply, Request, Rewrite, Terms
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.anthropic_messages import parse_message
from lockpin_core.wire.anthropic_results import MOST_REQUESTS, ResultsScanner, named
from lockpin_core.wire.jsonbody import Body, placed, read_items, shown, shown_name
from lockpin_core.wire.protocol import Scanner, Wire
from lockpin_core.wire.refusals import anthropic_refusal
from lockpin_core.wire.replies import error_type, stated_error, word
from lockpin_core.wire.scanners import BodyScanner
from lockpin_core.wire.tally import refuse_unknown, unpriced

TIER = "batch"  # as the results state it

_RESULTS = re.compile(r"/v1/messages/batches/([^/]+)/results", re.IGNORECASE)
_KNOWN = frozenset({"custom_id", "params"})
_NO_TEXT = Content(0, 0, 0, 0)  # what the requests hold counts with each of them


class AnthropicBatches(Wire):
    """`POST /v1/messages/batches`."""

    name = "anthropic_batches"
    min_output = 1
    cut_rule = "hold"
    error_shape = "anthropic"
    links = True
    held_as = "batch"

    def parse(self, request: Request) -> Parsed:
        """Read a batch as far as its first request; the others are read where they are priced, one after the other.

        Raises WireError where that is malformed or holds what cannot be bounded; so does whoever comes to the others.
        """
        try:
            return _parse(request)
        except RecursionError:
            raise WireError("the body is nested too deeply") from None

    def rewrite(
        self, request: Request, change: Rewrite, *, output_field: str = "max_tokens", parsed: Parsed | None = None
    ) -> bytes:
        """Change nothing: each request has a limit of its own."""
        return request.body

    def scanner(self, *, streamed: bool, asked: Parsed | None = None) -> Scanner:
        """Make a scanner for the reply to a batch, or, where `asked` is not known, for the results of one."""
        return ResultsScanner() if asked is None else BodyScanner(asked, _read)

    def same_call(self, request: Request) -> bytes:
        """Give a digest of the body as it is: Lockpin sets no limit in it, and it may be too long to be read again."""
        found = hashlib.sha256(f"{request.method} {request.host} {request.path}\n".encode())
        found.update(request.body)
        return found.digest()

    def polled_id(self, path: str) -> str | None:
        """Give the batch whose results a path stands for, in the form in which the path was judged.

        What comes after a `#` should never be sent; a server may read on where we do not.
        """
        found = None if "#" in path else _RESULTS.fullmatch(normal(path))
        return None if found is None else word(found[1])

    def error_code(self, body: bytes) -> str | None:
        """Give `error.type` of an error body."""
        return stated_error(body, "type")

    def refuse(self, refusal: Refusal, lockpin: Mapping[str, object]) -> Reply:
        """Put a refusal into the Messages error shape."""
        return anthropic_refusal(refusal, lockpin)


@dataclass(frozen=True, slots=True)
class _Parts:
    """The requests of a batch, each read when somebody comes to it; raises WireError as `parse` does.

    All of them at once would be millions of objects, and looking through those for garbage would stop everybody.
    """

    request: Request

    def __iter__(self) -> Iterator[Parsed]:
        names: set[str] = set()
        geo = None
        for number, item in enumerate(read_items(self.request.body, "requests")):
            if number == MOST_REQUESTS:
                raise WireError(f"requests has more than {MOST_REQUESTS} members; so many are allowed")
            with placed("requests", number):
                name = _name(item.members, names)
                part = replace(_part(self.request, item.inner("params")), name_sum=named(name))
                geo = geo if number else part.terms.geo
                if part.terms.geo != geo:
                    unpriced('"inference_geo" that is not the same for all requests of a batch')
            names.add(name)
            yield part


def _parse(request: Request) -> Parsed:
    parts = _Parts(request)
    first = next(iter(parts), None)
    if first is None:
        raise WireError("requests is an empty list; at least one is needed")
    return Parsed(
        model=first.model,
        streamed=False,
        content=_NO_TEXT,
        output_limit=None,
        output_settable=False,
        attested=first.attested,
        terms=first.terms,
        subscription=first.subscription,
        grows=True,
        background=True,
        batch=parts,
    )


def _name(members: Mapping[str, object], names: set[str]) -> str:
    """Give the name by which a request is found among the results. Raises WireError where it is no name of its own."""
    unknown = next((key for key in members if key not in _KNOWN), None)
    if unknown is not None:
        refuse_unknown(f"field {shown_name(unknown)} of a request in a batch")
    name = members.get("custom_id")
    if type(name) is not str or not name:
        raise WireError(f"custom_id is {'empty' if name == '' else shown(name)}; a name of its own is needed")
    if name in names:
        raise WireError("two requests of the batch have one custom_id; each needs its own")
    return name


def _part(request: Request, body: Body) -> Parsed:
    """Read one request. Whether it asks for a stream, or for a service tier, changes nothing in a batch."""
    part = parse_message(request, body)
    if part.tool_limit is not None:
        unpriced("a tool of the provider's without max_uses, in a batch,")
    if Unit.CODE_SESSION in part.fees:
        unpriced("code that runs in a container, in a batch (its results do not say what is billed for it),")
    if part.terms.speed not in (None, "standard"):
        unpriced('"speed" in a batch')
    if not part.clamped and None in (part.output_limit, *(one.output_limit for one in part.also)):
        unpriced("the beta of longer outputs, where an output has no limit of its own,")
    terms = Terms(TIER, geo=part.terms.geo)
    return replace(part, terms=terms, streamed=False, output_settable=False, tools=(), batched=True)


def _read(found: dict[str, Any], asked: Parsed | None) -> Reading:
    """Read the reply to a batch: by its id the results are found."""
    if found.get("type") == "error" or found.get("error"):
        return Reading(terminal=True, error=error_type(found.get("error") or found, "type", "code"))
    name = word(found.get("id"))
    is_batch = found.get("type") == "message_batch"
    return Reading(terminal=True, upstream_id=name if is_batch else None, pending=is_batch and name is not None)

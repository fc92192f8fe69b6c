"""Exact counts of prompts: by our own tokenizer where it is exact, else by the provider's free counting endpoint.

A count never fails a call and never makes its bound larger; it takes two seconds at most. Knows no HTTP: the edge
brings what sends a request on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from lockpin_core.admission import Priced
from lockpin_core.aside import beside_loop
from lockpin_core.call import Content
from lockpin_core.errors import WireError
from lockpin_core.providers import Free
from lockpin_core.sizing import counts, tokenizer

PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class CountAsk:
    """A POST to a provider's counting endpoint, with the caller's own headers, their names in lower case."""

    provider: str
    host: str
    path: str  # with query
    headers: Mapping[str, str]
    body: bytes


type Counter = Callable[[CountAsk], Awaitable[bytes | None]]
"""Sends it on and gives the body of a 2xx reply; None: there was none. Never raises."""


class Counts:
    """Counts prompts for one process, and remembers what it has counted."""

    def __init__(self, counter: Counter | None = None, *, patience_s: float = PATIENCE_S) -> None:
        self._counter, self._patience_s = counter, patience_s
        self._known = counts.Counts()

    def foresee(self, priced: Priced) -> None:
        """Begin to load the tokenizer that may count for such calls: it takes a while, and holds everyone up once."""
        if self.counts_here(priced):
            tokenizer.prepare(priced.model.tokenizer)

    async def counted(self, priced: Priced, digest: bytes) -> Priced | None:
        """Give the call with its prompt counted; None: nothing counts it, or not in time. `digest`: of its content."""
        content = priced.parsed.content
        may_keep = _shows_all(content)
        tokens = self._known.get(digest) if may_keep else None
        if tokens is None:
            try:
                tokens = await asyncio.wait_for(self._count(priced), self._patience_s)
            except TimeoutError:
                return None
        if tokens is None:
            return None
        if may_keep:
            self._known.put(digest, tokens)
        return replace(priced, parsed=replace(priced.parsed, content=replace(content, counted=tokens)))

    async def _count(self, priced: Priced) -> int | None:
        local = await self.count_here(priced)
        return local if local is not None else await self._ask_provider(priced)

    def counts_here(self, priced: Priced) -> bool:
        """Say whether our own tokenizer knows better than the bytes, and nothing has counted yet."""
        content = priced.parsed.content
        is_ours = priced.model.tokenizer in tokenizer.ENCODINGS
        return is_ours and content.hidden is None and content.counted is None and not priced.parsed.grows

    async def count_here(self, priced: Priced) -> int | None:
        """Count with our own tokenizer, in a thread; None: it would not be exact."""
        if priced.parsed.content.hidden is not None or priced.model.tokenizer not in tokenizer.ENCODINGS:
            return None
        return await asyncio.to_thread(_count_texts, priced)

    async def _ask_provider(self, priced: Priced) -> int | None:
        incoming, wire = priced.incoming, priced.wire
        if self._counter is None or priced.parsed.attested:
            return None
        ask = await beside_loop(len(incoming.body), partial(wire.count_request, incoming.request()))
        if ask is None:
            return None
        if not isinstance(incoming.provider.route("POST", ask.path), Free):
            return None  # not every host that speaks a format counts for nothing, or counts at all
        path = ask.path + incoming.key_query()
        body = await self._counter(CountAsk(incoming.provider.name, incoming.host, path, incoming.headers, ask.body))
        stated = None if body is None else wire.read_count(body)
        return None if stated is None else counts.counted_there(stated)


def _shows_all(content: Content) -> bool:
    """Say whether the body alone decides what is counted: what an id or an address stands for may have grown since."""
    return content.hidden is None and all(image.width is not None for image in content.images)


def _count_texts(priced: Priced) -> int | None:
    try:
        texts = priced.wire.texts(priced.incoming.request())
    except WireError:
        return None
    if texts is None:
        return None
    tokens = tokenizer.count(texts, priced.model.tokenizer)
    return counts.counted_here(priced.parsed.content, priced.model, tokens)

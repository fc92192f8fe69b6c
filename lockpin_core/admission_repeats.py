"""Finds calls that go round in a circle, as far as one process sees it: by conversations, and by requests sent again.

A conversation is read only where a loop may be in it: not before it has as many results of tools as a loop has turns,
and not again before so many have come to it since as its row was short of. That is nearly never for an agent that gets
on, however long it works. Of the same request the ledger is told now and then, so that processes add up what they saw.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from lockpin_core.admission import Incoming, Priced
from lockpin_core.aside import ON_LOOP_BYTES, beside_loop
from lockpin_core.clock import Clock, instant, micros
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger.answers import answer_of
from lockpin_core.ledger.protocol import Ledger
from lockpin_core.observers.loop import APART, LEAST_TURNS, REQUEST, Loop, Row, request_mark, row_of

_KNOWN = 4096  # conversations, requests and running calls that are remembered
_AROUND = 1024  # bytes on either side of the first result of a tool, with its id: they tell conversations apart
_SAMPLE, _SAMPLES = 256, 16  # bytes and places by which a large body is known at first
_SEARCHED_BYTES = 256 * 1024  # of a body that are searched for results of tools at once: less than a millisecond
_RUNS = timedelta(minutes=1)  # one sent so long ago is not side by side with another, whatever became of it


@dataclass(slots=True)
class _Same:
    """A request and how often it was seen here: in all, and since the ledger was told."""

    digest: bytes | None  # None: of a large body that was seen once
    told: int = 0  # how often it was sent, by the ledger's last word
    untold: int = 0
    at: datetime | None = None  # when it was counted last
    running: dict[str, datetime] = field(default_factory=dict)  # calls, and since when

    @property
    def times(self) -> int:
        return self.told + self.untold


NEW = {"told": None, "over": None}  # marks of a loop that begins


class Repeats:
    """What was seen of conversations and requests; `ended` says that a call runs no more."""

    def __init__(self, repeats: int, ledger: Ledger, clock: Clock) -> None:
        self._repeats, self._ledger, self._clock = repeats, ledger, clock
        self._read: OrderedDict[bytes, tuple[int, int]] = OrderedDict()  # results then, and those that it is read at
        self._same: OrderedDict[bytes, _Same] = OrderedDict()
        self._running: OrderedDict[str, _Same] = OrderedDict()

    async def loop(self, priced: Priced) -> Loop | None:
        """Say of what loop a call is the next."""
        return await self._of_tools(priced) or await self._of_requests(priced)

    def ended(self, call_id: str) -> None:
        """Note that a call has ended, or was not sent."""
        same = self._running.pop(call_id, None)
        if same is not None:
            same.running.pop(call_id, None)

    def goes_on(self, call_id: str, next_id: str) -> None:
        """Note that a call which has failed is sent again as another one: it is the same request, and still runs."""
        same = self._running.pop(call_id, None)
        if same is not None and call_id in same.running:
            same.running[next_id] = same.running.pop(call_id)
            _remember(self._running, next_id, same)

    async def _of_tools(self, priced: Priced) -> Loop | None:
        wire, body, whose = priced.wire, priced.incoming.body, priced.incoming.payers.whose
        turns = max(self._repeats - 1, LEAST_TURNS)
        if not wire.tool_mark:
            return None
        size = len(body) if len(body) > _SEARCHED_BYTES else 0
        results, first = await beside_loop(size, partial(_counted, body, wire.tool_mark))
        if results < turns:
            return None
        key = hashlib.sha256(body[max(first - _AROUND, 0) : first + _AROUND] + whose.encode()).digest()
        then, due = self._read.get(key, (0, 0))
        if len(body) > ON_LOOP_BYTES and then <= results < due:  # with fewer it is another one, or was taken back
            return None
        row: Row = await beside_loop(len(body), lambda: row_of(wire.tool_steps(priced.incoming.request())))
        _remember(self._read, key, (results, results + max(turns - row.turns, 1)))
        return row.loop(whose, self._repeats)

    async def _of_requests(self, priced: Priced) -> Loop | None:
        incoming, now = priced.incoming, self._clock()
        same = await self._seen(incoming)
        running = [call for call, since in same.running.items() if now - since >= _RUNS]
        for call in running:
            self.ended(call)
        is_beside = bool(same.running)
        same.running[incoming.id] = now
        _remember(self._running, incoming.id, same)
        if is_beside:
            return None
        if same.at is not None and now - same.at > APART:
            same.told = same.untold = 0
        same.untold, same.at = same.untold + 1, now
        if same.times < 2:
            return None
        mark = _mark(incoming) if same.digest is None else same.digest
        if same.untold >= self._patience(same):
            await self._add_up(mark, same, now)
        return Loop(REQUEST, same.times, mark) if same.times >= self._repeats else None

    async def _seen(self, incoming: Incoming) -> _Same:
        """Find what is known of a request; of a large one no more than samples are compared at its first time."""
        sample = request_mark(incoming.payers.whose, f"{len(incoming.body)}\0{_to(incoming)}", _sampled(incoming.body))
        same = self._same.get(sample)
        if same is None:
            same = _Same(None)
        else:
            digest = await beside_loop(len(incoming.body), partial(_mark, incoming))
            if same.digest is None:
                same.digest = digest
            elif same.digest != digest:
                same = _Same(digest)
        _remember(self._same, sample, same)
        return same

    def _patience(self, same: _Same) -> int:
        """Say how often a request is counted here before the ledger is told."""
        if same.times >= self._repeats:
            return self._repeats
        return 2 if not same.told else max(self._repeats // 5, 1)

    async def _add_up(self, mark: bytes, same: _Same, now: datetime) -> None:
        """Add to the ledger's count what was counted here, and take over what others have."""
        try:
            marks = await answer_of(self._ledger.marks(mark))
        except LedgerUnavailable:
            return
        is_recent = "times" in marks and now - instant(marks["at"]) <= APART
        same.told, same.untold = (marks["times"] if is_recent else 0) + same.untold, 0
        changes: dict[str, object] = {"times": same.told, "at": micros(now)}
        self._ledger.mark(mark, changes if is_recent else changes | NEW)


def _to(incoming: Incoming) -> str:
    """Say what a request is sent to: its path names the model where its body does not."""
    return f"{incoming.provider.name}\0{incoming.path}"


def _mark(incoming: Incoming) -> bytes:
    return request_mark(incoming.payers.whose, _to(incoming), incoming.body)


def _counted(body: bytes, mark: bytes) -> tuple[int, int]:
    """Count a mark in a body, piece by piece, so that other threads run in between; give also where it stands first."""
    pieces = range(0, len(body), _SEARCHED_BYTES)
    counts = [body.count(mark, at, at + _SEARCHED_BYTES + len(mark) - 1) for at in pieces]
    at = next((place for place, count in zip(pieces, counts, strict=True) if count), 0)
    return sum(counts), body.find(mark, at, at + _SEARCHED_BYTES + len(mark) - 1)


def _sampled(body: bytes) -> bytes:
    if len(body) <= ON_LOOP_BYTES:
        return body
    step = (len(body) - _SAMPLE) // (_SAMPLES - 1)
    return b"".join(body[at : at + _SAMPLE] for at in range(0, step * _SAMPLES, step))


def _remember[K, V](known: OrderedDict[K, V], key: K, value: V) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > _KNOWN:
        known.popitem(last=False)

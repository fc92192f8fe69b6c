"""What the results of an Anthropic batch say of its usage: lines of JSON, one for each request, in any order.

Only a request that succeeded is billed. A list has no end mark: who knows how many requests there were knows whether it
is whole. At most one line is kept as text. Never raises.
Source: the provider's reference of message batch results and its guide to batch processing, read 2026-11.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from lockpin_core.call import Portion, Reading
from lockpin_core.wire.anthropic_usage import read_message
from lockpin_core.wire.portions import Portions
from lockpin_core.wire.replies import UnreadableCount, count, members, read_object

MOST_REQUESTS = 100_000  # that a batch may have
MAX_LINE_BYTES = 1 << 20

_FREE = ("errored", "canceled", "expired")
_SPLIT = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")


@dataclass(frozen=True, slots=True)
class _Result:
    """What became of one request; `portions` None: it was billed, and what for cannot be read."""

    name: str
    portions: tuple[Portion, ...] | None


@dataclass(slots=True)
class _Results:
    """What is known of a list so far."""

    portions: Portions = field(default_factory=Portions)
    names: set[int] = field(default_factory=set)  # hashes: there may be as many names as requests
    name_sum: int = 0
    count: int = 0
    unread: bool = False

    def take(self, line: bytes) -> None:
        """Take a whole line; a blank one says nothing."""
        if not line.strip():
            return
        found = _result(line)
        if found is None or self.count >= MOST_REQUESTS:
            self.unread = True
            return
        self.count += 1
        self.unread = self.unread or found.portions is None or hash(found.name) in self.names
        self.names.add(hash(found.name))
        self.name_sum += named(found.name)
        self.portions.extend(found.portions or ())

    def lose(self) -> None:
        """Take note of a line that is too long to be read."""
        self.unread = True


class ResultsScanner:
    """Reads the results of a batch as they pass."""

    __slots__ = ("_found", "_line", "_skipping")
    reads_any_length = True

    def __init__(self) -> None:
        self._found, self._line = _Results(), bytearray()  # the unfinished line
        self._skipping = False  # inside a line that is too long

    def feed(self, chunk: bytes) -> None:
        """Take bytes of the list."""
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._keep(part)
            if self._skipping:
                self._found.lose()
            else:
                self._found.take(bytes(self._line))
            self._line, self._skipping = bytearray(), False
        self._keep(rest)

    def _keep(self, part: bytes) -> None:
        if not self._skipping:
            self._line += part
            if len(self._line) > MAX_LINE_BYTES:
                self._line, self._skipping = bytearray(), True

    def result(self) -> Reading:
        """Say what is known now; the last line need not have an end, but must be whole."""
        found, last = self._found, _result(bytes(self._line)) if self._line.strip() else None
        is_cut = self._skipping or (last is None and bool(self._line.strip()))
        number, unread = found.count, found.unread or is_cut
        name_sum = found.name_sum + (named(last.name) if last is not None else 0)
        if last is not None:
            unread = unread or last.portions is None or hash(last.name) in found.names
            number += 1
        portions = found.portions.also(() if last is None else last.portions or ())
        return Reading(
            portions, complete=number > 0 and not unread, terminal=number > 0 and not is_cut, requests=number,
            name_sum=name_sum,
        )  # fmt: skip


def named(name: str) -> int:
    """Give what a name adds to the sum by which the results of a batch are known from those of another."""
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest())


def _result(line: bytes) -> _Result | None:
    """Read a line; None: it is no result."""
    found = read_object(line)
    if found is None or not isinstance(found.get("custom_id"), str):
        return None
    name, result = found["custom_id"], members(found.get("result"))
    if result.get("type") in _FREE:
        return _Result(name, ())
    if result.get("type") != "succeeded":
        return None
    return _Result(name, _billed(members(result.get("message"))))


def _billed(message: dict[str, Any]) -> tuple[Portion, ...] | None:
    """Give what a message is billed for; None: it does not say."""
    reading = read_message(message, None)
    if not reading.complete or reading.model is None or not _says_lifetimes(members(message.get("usage"))):
        return None
    terms = reading.terms
    return tuple(Portion(one.model, one.usage, one.doubts, terms) for one in reading.portions)


def _says_lifetimes(usage: dict[str, Any]) -> bool:
    """Say whether all cache writes are told apart by how long they last: what was asked for is not known here."""
    passes = usage.get("iterations")
    for one in (usage, *map(members, passes if isinstance(passes, list) else ())):
        split = members(one.get("cache_creation"))
        try:
            if count(one.get("cache_creation_input_tokens")) > sum(count(split.get(key)) for key in _SPLIT):
                return False
        except UnreadableCount:
            return False
    return True

"""What a Converse reply says of its usage: one body, or the events of a stream. Never raises.

`inputTokens` leaves cache reads and writes out; `outputTokens` includes reasoning. Of a stream the last event,
`metadata`, is the only one that states usage. `cacheDetails` splits the writes by lifetime; `totalTokens` is not used,
as it may include the cached tokens or not. What a router chose is not read: its price is its ARN's, as the user says.
Source: Amazon Bedrock's API reference of Converse and ConverseStream, `TokenUsage`, and the service model of its SDK,
read 2026-11.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from lockpin_core.call import Parsed, Portion, Reading, Terms
from lockpin_core.usage import Unit, nonzero, output_tokens
from lockpin_core.wire.eventstream import Frame, FramesScanner
from lockpin_core.wire.replies import (
    UnreadableCount,
    count,
    json_bytes,
    members,
    read_object,
    term,
    text_bytes,
    word,
)
from lockpin_core.wire.scanners import BodyScanner

_LIFETIMES = {"5m": Unit.CACHE_WRITE_5M, "1h": Unit.CACHE_WRITE_1H}
_DEARER = "priority"  # of the tiers that can be asked for, the one that costs more


@dataclass(slots=True)
class _Answer:
    """What is known of a reply so far."""

    dearest_write: Unit = Unit.CACHE_WRITE_5M
    asked: Terms = field(default_factory=Terms)
    tier: str | None = None
    latency: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    ended: bool = False  # the usage is here, and nothing came after it
    stop_reason: str | None = None
    error: str | None = None
    generated: int = 0
    delivered: bool = False
    thinking: bool = False

    def block(self, block: dict[str, Any]) -> None:
        """Take a content block, or a piece of one."""
        reasoning, tool = block.get("reasoningContent"), members(block.get("toolUse"))
        self.thinking = self.thinking or reasoning is not None
        told = members(members(reasoning).get("reasoningText")) or members(reasoning)
        size = text_bytes(block.get("text"), told.get("text"), told.get("redactedContent"), tool.get("name"))
        if tool.get("input") is not None:
            size += text_bytes(tool["input"]) if isinstance(tool["input"], str) else json_bytes(tool["input"])
        others = [block[key] for key in block if key not in _PLAIN and block[key] is not None]
        self.generated += size + sum(json_bytes(other) for other in others)
        self._deliver(is_output=size > 0 or bool(tool) or bool(others))

    def lose(self) -> None:
        """Take note of an event that was too long to be read."""
        self._deliver(is_output=True)

    def _deliver(self, *, is_output: bool) -> None:
        if is_output:
            self.delivered, self.ended = True, False

    def close(self, found: dict[str, Any]) -> None:
        """Take what stands beside the answer: its usage, and what it was run on."""
        self.usage, self.ended = members(found.get("usage")), True
        self.tier = term(members(found.get("serviceTier")).get("type"))
        self.latency = term(members(found.get("performanceConfig")).get("latency"))

    def reading(self) -> Reading:
        """Say what is known now."""
        facts = Reading(
            terminal=self.ended,
            terms=Terms(tier=self._tier(), speed=self.latency),
            generated_bytes=self.generated,
            hidden_thinking=self.thinking,
            delivered=self.delivered,
            error=self.error,
            stopped_at_limit=self.stop_reason == "max_tokens",
        )
        try:
            usage = self._units()
        except UnreadableCount:
            return facts
        complete = self.ended and (output_tokens(usage) > 0 or not self.delivered)
        return replace(facts, portions=(Portion(None, nonzero(usage)),), complete=complete)

    def _tier(self) -> str | None:
        """Give the tier that was served; where nobody says, a cheaper one that was asked for may not have been."""
        if self.tier is not None or self.asked.tier in (None, _DEARER):
            return self.tier
        return "default"

    def _units(self) -> dict[Unit, int]:
        """Bring the usage to disjoint units. Raises UnreadableCount, also where it is not stated."""
        usage = self.usage
        if usage.get("inputTokens") is None or usage.get("outputTokens") is None:
            raise UnreadableCount
        units = {
            Unit.INPUT: count(usage["inputTokens"]),
            Unit.CACHE_READ: count(usage.get("cacheReadInputTokens")),
            Unit.OUTPUT: count(usage["outputTokens"]),
        }
        details, split = usage.get("cacheDetails"), 0
        for one in map(members, details if isinstance(details, list) else ()):
            unit, tokens = _LIFETIMES.get(str(one.get("ttl")), Unit.CACHE_WRITE_1H), count(one.get("inputTokens"))
            units[unit] = units.get(unit, 0) + tokens
            split += tokens
        unsplit = max(0, count(usage.get("cacheWriteInputTokens")) - split)
        return units | {self.dearest_write: units.get(self.dearest_write, 0) + unsplit}


_PLAIN = frozenset({"text", "reasoningContent", "toolUse"})


def _new(asked: Parsed | None) -> _Answer:
    if asked is None:
        return _Answer()
    writes_hour = Unit.CACHE_WRITE_1H in asked.prompt_units
    return _Answer(Unit.CACHE_WRITE_1H if writes_hour else Unit.CACHE_WRITE_5M, asked.terms)


class ConverseScanner(BodyScanner):
    """Reads a reply that is one JSON body."""

    __slots__ = ()

    def __init__(self, asked: Parsed | None = None) -> None:
        super().__init__(asked, _read)


def _read(found: dict[str, Any], asked: Parsed | None) -> Reading:
    answer = _new(asked)
    content = members(members(found.get("output")).get("message")).get("content")
    for block in content if isinstance(content, list) else ():
        answer.block(members(block))
    answer.stop_reason = word(found.get("stopReason"))
    answer.close(found)
    return answer.reading()


class ConverseStreamScanner(FramesScanner[_Answer]):
    """Reads a reply that is a stream of events."""

    __slots__ = ()

    def __init__(self, asked: Parsed | None = None) -> None:
        super().__init__(_new(asked), _take)


def _take(answer: _Answer, frame: Frame) -> None:
    """Take one frame of a stream; unknown ones pass."""
    if frame.is_lost:
        return answer.lose()
    found = read_object(frame.payload) or {}
    if frame.is_fault:
        answer.error = word(frame.kind) or "error"
        return None
    match frame.kind:
        case "contentBlockDelta":
            answer.block(members(found.get("delta")))
        case "contentBlockStart":
            answer.block(members(found.get("start")))
        case "messageStop":
            answer.stop_reason = word(found.get("stopReason"))
        case "metadata":
            answer.close(found)
    return None

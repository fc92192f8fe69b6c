"""What an Anthropic reply says of its usage: one message, or the events of a stream. Never raises.

`input_tokens` leaves cache reads and writes out; `output_tokens` includes thinking. `message_start` states the input,
its output is a placeholder; `message_delta` states running totals, so the last replaces. `iterations` lists the passes
of a reply that ran several, some on other models: compaction and advisor passes stand nowhere else. Searches are
counted in `server_tool_use`; containers are not: a reply that names one, or code that ran, is one session.
What is relayed can be less than what is billed. The text of thinking may be a summary, which nothing in the reply tells
from the whole, and no known `thinking.display` of a request relays the whole: all thinking counts as hidden. The input
of a tool is kept back by the provider until a part of it is whole: what a cut took away of it cannot be seen here.
The last event may state usage once more: Amazon Bedrock has its own figures there; of each the larger is right.
Sources: the provider's Messages and streaming references, `usage` object, and Amazon Bedrock's guide to invocation
metrics (`amazon-bedrock-invocationMetrics`), read 2026-11.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from lockpin_core.call import Parsed, Portion, Reading, Terms
from lockpin_core.usage import Unit, add, nonzero, output_tokens, prompt_tokens
from lockpin_core.wire.replies import (
    UnreadableCount,
    count,
    error_type,
    json_bytes,
    members,
    read_object,
    term,
    text_bytes,
    word,
)
from lockpin_core.wire.scanners import BodyScanner, EventsScanner
from lockpin_core.wire.sse import Event
from lockpin_core.wire.stated_cost import stated_pico

_INPUT_SIDE = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_METRICS = {
    "inputTokenCount": "input_tokens",
    "outputTokenCount": "output_tokens",
    "cacheReadInputTokenCount": "cache_read_input_tokens",
    "cacheWriteInputTokenCount": "cache_creation_input_tokens",
}
_THINKING = ("thinking", "redacted_thinking")
_THINKING_DELTAS = ("thinking_delta", "signature_delta")
_SPLIT = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
_CODE_RESULTS = frozenset(
    {"code_execution_tool_result", "bash_code_execution_tool_result", "text_editor_code_execution_tool_result"}
)


@dataclass(slots=True)
class Message:
    """What is known of a message so far."""

    dearest_write: Unit = Unit.CACHE_WRITE_5M
    asked_model: str | None = None
    bills_container: bool = False
    grows: bool = False  # input may be billed that the first event does not state
    ran_code: bool = False
    model: str | None = None
    id: str | None = None
    terms: Terms = field(default_factory=Terms)
    start: dict[str, Any] = field(default_factory=dict)  # usage of the first event, or of the whole message
    last: dict[str, Any] = field(default_factory=dict)  # running totals since
    closing: list[dict[str, Any]] = field(default_factory=list)  # usage that the last event states
    cost_pico: int | None = None  # the most that was stated
    totalled: bool = False  # nothing was generated since they were stated
    final: bool = False  # they are the last ones
    ended: bool = False
    stop_reason: str | None = None
    error: str | None = None
    generated: int = 0
    delivered: bool = False
    thinking: bool = False
    lost: bool = False  # an event was too long to be read

    def open(self, message: dict[str, Any]) -> None:
        """Take the message object: of the first event, or the whole reply."""
        self.note_cost(message)
        self.model, self.id = word(message.get("model")), word(message.get("id"))
        self.start = members(message.get("usage"))
        self.ran_code = self.ran_code or bool(message.get("container"))
        self.stop_reason = word(message.get("stop_reason"))
        self.note_terms(self.start)

    def note_terms(self, usage: dict[str, Any]) -> None:
        """Take what changes the rates; later words win."""
        tier, speed, geo = (term(usage.get(key)) for key in ("service_tier", "speed", "inference_geo"))
        self.terms = Terms(tier or self.terms.tier, speed or self.terms.speed, geo or self.terms.geo)

    def note_cost(self, found: dict[str, Any]) -> None:
        """Take what an object says that the call cost, in its usage or beside it."""
        stated = stated_pico(members(found.get("usage")), found)
        self.cost_pico = max((pico for pico in (self.cost_pico, stated) if pico is not None), default=None)

    def block(self, block: dict[str, Any]) -> None:
        """Take a content block: whole, or as it starts."""
        kind = block.get("type")
        size = text_bytes(*(block.get(key) for key in ("text", "thinking", "data", "name", "server_name")))
        self.thinking = self.thinking or kind in _THINKING
        self.grows = self.grows or kind == "fallback"
        self.ran_code = self.ran_code or (isinstance(kind, str) and kind in _CODE_RESULTS)
        for key in ("input", "content"):
            if block.get(key) is not None:
                size += json_bytes(block[key])
        self._note_output(size, is_output=size > 0 or kind != "text")

    def delta(self, delta: dict[str, Any]) -> None:
        """Take a piece of a content block."""
        self.thinking = self.thinking or delta.get("type") in _THINKING_DELTAS
        size = text_bytes(*(delta.get(key) for key in ("text", "partial_json", "thinking", "content")))
        self._note_output(size, is_output=size > 0)

    def lose(self) -> None:
        """Take note of an event that is not here: it may have been any."""
        self.lost = True
        self._note_output(0, is_output=True)

    def take_totals(self, usage: dict[str, Any], delta: dict[str, Any]) -> None:
        """Take running totals. They are the last ones once the message has a reason to have stopped."""
        self.last.update({key: value for key, value in usage.items() if value is not None})
        self.note_terms(usage)
        self.ran_code = self.ran_code or bool(delta.get("container"))
        self.stop_reason = word(delta.get("stop_reason")) or self.stop_reason
        self.totalled = self.totalled or usage.get("output_tokens") is not None
        self.final = self.final or (self.totalled and bool(delta.get("stop_reason")))

    def end(self, found: dict[str, Any]) -> None:
        """Take the end of the message: totals after which nothing came are the last ones."""
        self.ended = True
        metrics = members(found.get("amazon-bedrock-invocationMetrics"))
        self.closing = [members(found.get("usage")), {name: metrics.get(key) for key, name in _METRICS.items()}]
        self.totalled = self.totalled or any(one.get("output_tokens") is not None for one in self.closing)
        self.final = self.final or self.totalled

    def _note_output(self, size: int, *, is_output: bool) -> None:
        self.generated += size
        if is_output:
            self.delivered = True
            self.totalled = self.final = False  # totals that were stated before leave this out

    def reading(self) -> Reading:
        """Say what is known now."""
        facts = Reading(
            terminal=self.ended,
            model=self.model,
            terms=self.terms,
            upstream_id=self.id,
            generated_bytes=self.generated,
            hidden_thinking=self.thinking,
            delivered=self.delivered,
            error=self.error,
            stopped_at_limit=self.stop_reason == "max_tokens",
            stated_pico=self.cost_pico,
        )
        try:
            portions = self._portions()
        except UnreadableCount:
            return facts
        output = sum(output_tokens(portion.usage) for portion in portions)
        has_prompt = any(prompt_tokens(portion.usage) for portion in portions)
        complete = self.final and self._states_prompt() and (output > 0 or not self.delivered)
        is_stated = has_prompt and not self.lost and not self.grows
        return replace(facts, portions=portions, complete=complete, prompt_stated=is_stated)

    def _states_prompt(self) -> bool:
        """Say whether the input was stated, be it as 0; what a lost event may have stated of it does not count."""
        places = (self.start, *self.closing) if self.lost else (self.start, self.last, *self.closing)
        return any(usage.get(key) is not None for usage in places for key in _INPUT_SIDE)

    def _portions(self) -> tuple[Portion, ...]:
        if not self.start and not self.last and not any(self.closing):
            return ()
        top = self._top_level()
        passes = self.last.get("iterations") or self.start.get("iterations")
        if not isinstance(passes, list) or not passes:
            return (Portion(self.model, nonzero(top)),)
        by_model: dict[str | None, dict[Unit, int]] = {self.model: {}}
        for one in map(members, passes):
            model = word(one.get("model")) or self._summarizer(one) or self.model
            by_model[model] = add(by_model.get(model, {}), self._units(one))
        own = by_model[self.model]
        # The top level leaves some passes out and can never be more than all of them.
        by_model[self.model] = {unit: max(own.get(unit, 0), top.get(unit, 0)) for unit in {**own, **top}}
        return tuple(Portion(model, nonzero(usage)) for model, usage in by_model.items())

    def _summarizer(self, one: dict[str, Any]) -> str | None:
        """Give the model of a compaction, which names none: the request's, though a fallback may have answered."""
        return self.asked_model if one.get("type") == "compaction" and self.asked_model is not None else None

    def _top_level(self) -> dict[Unit, int]:
        # The input only grows, or one of the two places says 0 or nothing: the larger is right.
        places = (self.start, self.last, *self.closing)
        merged: dict[str, Any] = {key: max(count(place.get(key)) for place in places) for key in _INPUT_SIDE}
        stated = self.last if self.last.get("output_tokens") is not None else self.start
        merged["output_tokens"] = max(count(place.get("output_tokens")) for place in (stated, *self.closing))
        splits = [members(place.get("cache_creation")) for place in places]
        merged["cache_creation"] = {key: max(count(split.get(key)) for split in splits) for key in _SPLIT}
        usage = self._units(merged)
        tools = [members(place.get("server_tool_use")) for place in places]
        usage[Unit.WEB_SEARCH] = max(count(one.get("web_search_requests")) for one in tools)
        usage[Unit.CODE_SESSION] = int(self.ran_code and self.bills_container)
        return usage

    def _units(self, usage: dict[str, Any]) -> dict[Unit, int]:
        split = members(usage.get("cache_creation"))
        five_minutes, hour = (count(split.get(key)) for key in _SPLIT)
        written = {Unit.CACHE_WRITE_5M: five_minutes, Unit.CACHE_WRITE_1H: hour}
        unsplit = max(0, count(usage.get("cache_creation_input_tokens")) - five_minutes - hour)
        written[Unit.CACHE_WRITE_1H if hour else self.dearest_write] += unsplit
        return {
            Unit.INPUT: count(usage.get("input_tokens")),
            Unit.CACHE_READ: count(usage.get("cache_read_input_tokens")),
            Unit.OUTPUT: count(usage.get("output_tokens")),
            **written,
        }


def message_for(asked: Parsed | None) -> Message:
    """Begin a message that answers a request, where that is known."""
    if asked is None:
        return Message()
    writes_hour = Unit.CACHE_WRITE_1H in asked.prompt_units
    return Message(
        Unit.CACHE_WRITE_1H if writes_hour else Unit.CACHE_WRITE_5M,
        asked_model=asked.model,
        bills_container=Unit.CODE_SESSION in asked.fees,
        grows=asked.grows and not _only_falls_back(asked),
    )


def _only_falls_back(asked: Parsed) -> bool:
    """Say whether input can only come from another model's attempt, which a block of the reply would tell."""
    return asked.rounds == 1 and bool(asked.also) and all(one.model != asked.model for one in asked.also)


class MessageScanner(BodyScanner):
    """Reads a reply that is one JSON body."""

    __slots__ = ()

    def __init__(self, asked: Parsed | None = None) -> None:
        super().__init__(asked, read_message)


def read_message(found: dict[str, Any], asked: Parsed | None) -> Reading:
    """Read a message that is whole; `asked`: the request, where it is known."""
    message = message_for(asked)
    message.ended = True
    if found.get("type") == "error" or (found.get("error") and "usage" not in found):
        message.error = error_type(found.get("error") or found, "type", "code")
        return message.reading()
    message.open(found)
    content = found.get("content")
    for block in content if isinstance(content, list) else ():
        message.block(members(block))
    message.final = message.start.get("output_tokens") is not None
    return message.reading()


class MessageStreamScanner(EventsScanner[Message]):
    """Reads a reply that is a stream of events."""

    __slots__ = ()

    def __init__(self, asked: Parsed | None = None) -> None:
        super().__init__(message_for(asked), take_event)


def take_event(message: Message, event: Event) -> None:
    """Take one event of a stream; unknown ones pass."""
    if event.is_lost:
        return message.lose()
    found = read_object(event.data)
    if found is None:
        return None
    match found.get("type") or event.name.decode("ascii", "replace"):
        case "content_block_delta":
            message.delta(members(found.get("delta")))
        case "content_block_start":
            message.block(members(found.get("content_block")))
        case "message_start":
            message.open(members(found.get("message")))
        case "message_delta":
            message.note_cost(found)
            message.take_totals(members(found.get("usage")), members(found.get("delta")))
        case "message_stop":
            message.note_cost(found)
            message.end(found)
        case "error":
            message.error = error_type(found.get("error") or found, "type", "code")
    return None

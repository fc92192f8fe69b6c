"""What a Gemini interaction says of its usage: one body, the events of a stream, or the answer to a poll. Never raises.

The counts are those of `generateContent` by other names: the input includes what was read from a cache and leaves out
what tools brought in, thoughts stand beside the output, and what the total has more is billed as output. Events before
the last one repeat usage as far as it has come; only `interaction.completed` states all of it.
A conversation that the provider keeps is input of the turn that names it. Its guide says that the usage includes it, a
report in its forum that it was left out; who knows the request judges that (`Parsed.left_out`).
Sources: the provider's reference of interactions and its guides to streaming, tokens and background execution, the
types of its SDK, and thread 187450 of its developer forum, read 2026-11.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from lockpin_core.call import Parsed, Portion, Reading, Terms
from lockpin_core.usage import Unit, nonzero, output_tokens
from lockpin_core.wire.gemini_usage import doubts, normalised, tier_of
from lockpin_core.wire.replies import (
    UnreadableCount,
    count,
    error_type,
    json_bytes,
    members,
    read_object,
    text_bytes,
    word,
)
from lockpin_core.wire.scanners import BodyScanner, EventsScanner
from lockpin_core.wire.sse import Event

_WORKING = frozenset({"in_progress", "queued"})
_ENDED = frozenset(
    {
        *("completed", "requires_action", "incomplete", "failed", "cancelled", "budget_exceeded"),
        "requires_continuation",
    }
)
_UNPAID = frozenset({"failed", "cancelled", "budget_exceeded"})  # ends that may state no usage, then or ever
_COUNTS = {
    "promptTokenCount": "total_input_tokens",
    "cachedContentTokenCount": "total_cached_tokens",
    "candidatesTokenCount": "total_output_tokens",
    "thoughtsTokenCount": "total_thought_tokens",
    "toolUsePromptTokenCount": "total_tool_use_tokens",
    "totalTokenCount": "total_tokens",
}
_DETAILS = {
    "promptTokensDetails": "input_tokens_by_modality",
    "cacheTokensDetails": "cached_tokens_by_modality",
    "candidatesTokensDetails": "output_tokens_by_modality",
    "toolUsePromptTokensDetails": "tool_use_tokens_by_modality",
}
_FEES = {
    "google_search": (Unit.WEB_SEARCH, Unit.SEARCH_PROMPT),  # newer models bill each query, older ones each prompt
    "google_maps": (Unit.MAPS, Unit.MAPS_PROMPT),
}
_UNSAID = ("type", "index", "id", "call_id")  # of a step or a delta: no output


@dataclass(slots=True)
class _Interaction:
    """What is known of an interaction so far."""

    asked: Parsed | None = None  # None also for the answer to a poll
    background: bool = False
    is_body: bool = False  # all of it is here
    model: str | None = None
    id: str | None = None
    tier: str | None = None
    status: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)  # as it was stated last
    is_final: bool = False  # with the end of the interaction
    is_last: bool = False  # the object as it will stay was seen
    ended: bool = False
    error: str | None = None
    generated: int = 0
    delivered: bool = False
    thinking: bool = False
    lost: bool = False

    def take_event(self, event: dict[str, Any]) -> None:
        """Take an event of a stream."""
        kind = event.get("event_type")
        if kind == "step.delta":
            self._step(members(event.get("delta")))
            self._repeat(members(event.get("metadata")).get("total_usage"))
        elif kind in ("step.start", "step.stop"):
            self._step(members(event.get("step")))
            self._repeat(event.get("usage"))
        elif kind in ("interaction.created", "interaction.completed"):
            self.take(members(event.get("interaction")), is_last=kind == "interaction.completed")
        elif kind == "interaction.status_update":
            self.id = word(event.get("interaction_id")) or self.id
            self._note_status(event.get("status"))
            self._repeat(event.get("usage"))
        elif kind == "error" or (kind is None and event.get("error")):
            self.error = error_type(event.get("error") or event, "status", "code")

    def take(self, found: dict[str, Any], *, is_last: bool) -> None:
        """Take an interaction object; `is_last`: it is as it will stay, if it has ended."""
        self.id = word(found.get("id")) or self.id
        self.model = word(found.get("model")) or self.model
        self.tier = tier_of(found.get("service_tier")) or self.tier
        self.background = self.background or found.get("background") is True
        self._note_status(found.get("status"))
        if found.get("error") or found.get("errors"):
            self.error = error_type(found.get("error") or found["errors"], "status", "code")
        steps = found.get("steps")
        for step in steps if isinstance(steps, list) and (self.is_body or not self.delivered) else ():
            self._step(members(step))
        self.is_last = self.is_last or (is_last and self.ended)
        if is_last and isinstance(found.get("usage"), dict):
            self.usage, self.is_final = found["usage"], self.ended

    def lose(self) -> None:
        """Take note of an event that was too long to be read: it may have been any."""
        self.lost = self.delivered = True

    def _note_status(self, stated: object) -> None:
        self.status = word(stated) or self.status
        self.ended = self.ended or self.status in _ENDED

    def _repeat(self, usage: object) -> None:
        """Take usage as far as it has come."""
        if isinstance(usage, dict) and usage and not self.is_final:
            self.usage = usage

    def _step(self, step: dict[str, Any]) -> None:
        """Take a step or a piece of one; what a client sent stands among the steps of a reply too."""
        kind = step.get("type")
        if kind == "user_input":
            return
        self.thinking = self.thinking or (isinstance(kind, str) and kind.startswith("thought"))
        others = [value for key, value in step.items() if key not in _UNSAID and value not in (None, [], {}, "")]
        size = sum(text_bytes(other) if isinstance(other, str) else json_bytes(other) for other in others)
        self.generated += size
        self.delivered = self.delivered or size > 0

    def reading(self) -> Reading:
        """Say what is known now: of a poll and a stream in the background, whether a later poll can know more."""
        is_settled = self.is_final or (self.is_last and self.status in _UNPAID)
        goes_on = self.status in _WORKING if self.is_body else self.background and not is_settled
        may_be_polled = self.asked is None or (self.background and not self.is_body)
        facts = Reading(
            terminal=is_settled if may_be_polled else self.ended or self.is_body,
            model=self.model,
            terms=Terms(tier=self.tier),
            upstream_id=self.id,
            pending=goes_on and self.id is not None,
            generated_bytes=self.generated,
            hidden_thinking=self.thinking,
            delivered=self.delivered,
            error=self.error,
            stopped_at_limit=self.status == "incomplete",
        )
        try:
            portion, thoughts, is_known = self._portion()
        except UnreadableCount:
            return facts
        is_stated = output_tokens(portion.usage) > 0 or not self.delivered
        return replace(
            facts,
            portions=(portion,),
            complete=self.is_final and is_known and is_stated,
            reasoning=thoughts,
        )

    def _portion(self) -> tuple[Portion, int, bool]:
        """Give the usage, its thoughts, and whether it is all known. Raises UnreadableCount."""
        usage: dict[str, Any] = {name: self.usage.get(key) for name, key in _COUNTS.items()}
        usage |= {name: _modalities(self.usage.get(key)) for name, key in _DETAILS.items()}
        units, (fees, is_known) = normalised(usage), _fees(self.usage.get("grounding_tool_count"))
        known = is_known and self.usage.get("total_tokens") is not None
        portion = Portion(self.model, nonzero({**units, **fees}), doubts(usage, units, self.asked))
        return portion, count(usage["thoughtsTokenCount"]), known


def _modalities(details: object) -> list[dict[str, Any]]:
    """Bring the tokens of each modality to the form that they have in `usageMetadata`."""
    listed = [members(one) for one in details] if isinstance(details, list) else []
    return [{"modality": str(one.get("modality")).upper(), "tokenCount": one.get("tokens")} for one in listed]


def _fees(listed: object) -> tuple[dict[Unit, int], bool]:
    """Count what grounding costs, and say whether all of it is known. Raises UnreadableCount."""
    fees: dict[Unit, int] = {}
    is_known = True
    for one in map(members, listed if isinstance(listed, list) else ()):
        kind, times = word(one.get("type")), count(one.get("count"))
        if times and kind in _FEES:
            each, prompt = _FEES[kind]
            fees |= {each: fees.get(each, 0) + times, prompt: 1}
        is_known = is_known and (not times or kind in _FEES)
    return fees, is_known


def _new(asked: Parsed | None) -> _Interaction:
    return _Interaction() if asked is None else _Interaction(asked, background=asked.background)


class InteractionScanner(BodyScanner):
    """Reads a reply that is one JSON body, or the answer to a poll."""

    __slots__ = ()

    def __init__(self, asked: Parsed | None = None) -> None:
        super().__init__(asked, _read)


def _read(found: dict[str, Any], asked: Parsed | None) -> Reading:
    interaction = _new(asked)
    interaction.is_body = True
    interaction.take(found, is_last=True)
    return interaction.reading()


class InteractionStreamScanner(EventsScanner[_Interaction]):
    """Reads a reply that is a stream of events."""

    __slots__ = ()

    def __init__(self, asked: Parsed | None = None) -> None:
        super().__init__(_new(asked), _take)

    @property
    def has_ended(self) -> bool:
        """Say whether the last event was seen, though the connection may stay open."""
        return self._answer.is_final


def _take(interaction: _Interaction, event: Event) -> None:
    if event.is_lost:
        interaction.lose()
    elif (found := read_object(event.data)) is not None:
        interaction.take_event(found)

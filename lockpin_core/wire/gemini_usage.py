"""What a Gemini reply says of its usage: one body, the events of a stream, or the objects of one array. Never raises.

`promptTokenCount` includes the cached tokens and leaves out what the provider's tools brought in; thoughts stand beside
`candidatesTokenCount`, and what the total has more than its parts is billed as output. `usageMetadata` stands on most
chunks and grows: of each field the last value holds, and a chunk without a field takes nothing back. A reply has ended
when every candidate has a reason to, or the prompt was blocked; there is no other end mark.
Sources: the provider's references of `GenerateContentResponse`, `UsageMetadata` and `GroundingMetadata`, its guides to
grounding and streaming, and Vertex AI's of the same names, read 2026-11.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from lockpin_core.call import Doubt, Parsed, Portion, Reading, Terms
from lockpin_core.usage import Unit, nonzero, output_tokens
from lockpin_core.wire.jsonarray import ObjectReader
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

MAPS_FEES = frozenset({Unit.MAPS, Unit.MAPS_PROMPT})
SEARCH_FEES = frozenset({Unit.WEB_SEARCH, Unit.SEARCH_PROMPT})

_OUTPUT_COUNTS = ("candidatesTokenCount", "responseTokenCount", "thoughtsTokenCount", "totalTokenCount")
_STANDARD_TRAFFIC = frozenset({"on_demand", "on_demand_offpeak", "provisioned_throughput"})  # or below it in price
_QUERIES = ("webSearchQueries", "imageSearchQueries")
_UNSAID = frozenset({"", "unspecified"})
_MEDIA_IN = frozenset({Unit.AUDIO_IN, Unit.IMAGE_IN})
_MEDIA_OUT = frozenset({Unit.AUDIO_OUT, Unit.IMAGE_OUT})


def normalised(usage: dict[str, Any]) -> dict[Unit, int]:
    """Turn `usageMetadata` into disjoint units. Raises UnreadableCount, also where it states no prompt."""
    if usage.get("promptTokenCount") is None:
        raise UnreadableCount
    prompt, added = count(usage["promptTokenCount"]), count(usage.get("toolUsePromptTokenCount"))
    sound = min(_sound(usage), prompt)
    cached = min(count(usage.get("cachedContentTokenCount")), prompt)
    kept = min(_of(usage.get("cacheTokensDetails"), "AUDIO"), sound, cached)
    cached -= kept if usage.get("cacheTokensDetails") else min(cached, sound)  # unsaid: all of it may be sound
    uncached = prompt - cached - kept + added
    audio_in = min(sound - kept + _of(usage.get("toolUsePromptTokensDetails"), "AUDIO"), uncached)
    image_in = min(_uncached(usage, "IMAGE"), uncached - audio_in)
    output = _output(usage, prompt + added)
    audio_out = min(_made(usage, "AUDIO"), output)
    image_out = min(_made(usage, "IMAGE"), output - audio_out)
    return {
        Unit.INPUT: uncached - audio_in - image_in,
        Unit.CACHE_READ: cached,
        Unit.CACHE_AUDIO: kept,
        Unit.AUDIO_IN: audio_in,
        Unit.IMAGE_IN: image_in,
        Unit.OUTPUT: output - audio_out - image_out,
        Unit.AUDIO_OUT: audio_out,
        Unit.IMAGE_OUT: image_out,
    }


def doubts(usage: dict[str, Any], units: dict[Unit, int], asked: Parsed | None) -> tuple[Doubt, ...]:
    """Say which tokens may be sound or pictures that were asked for: those that no detail of `usage` explains.

    `asked` None: it is the answer to a poll. What the call asked for is known where it is settled.
    """
    inward, outward = (_MEDIA_IN, _MEDIA_OUT) if asked is None else (asked.prompt_units, asked.output_units)
    inward, outward = inward & _MEDIA_IN, outward & _MEDIA_OUT
    prompt, cached = count(usage.get("promptTokenCount")), count(usage.get("cachedContentTokenCount"))
    fresh = _unexplained(_prompt_details(usage), prompt)
    fresh += _unexplained(usage.get("toolUsePromptTokensDetails"), count(usage.get("toolUsePromptTokenCount")))
    kept = min(fresh, _unexplained(usage.get("cacheTokensDetails"), cached))
    answered, thoughts = _answered(usage), count(usage.get("thoughtsTokenCount"))
    output = sum(units[unit] for unit in (Unit.OUTPUT, Unit.AUDIO_OUT, Unit.IMAGE_OUT))
    made = _unexplained(_made_details(usage), answered) + output - answered - thoughts
    cached_sound = {Unit.CACHE_AUDIO} if Unit.AUDIO_IN in inward else set()
    found = [
        Doubt(Unit.INPUT, min(fresh, units[Unit.INPUT]), inward),
        Doubt(Unit.CACHE_READ, min(kept, units[Unit.CACHE_READ]), frozenset(cached_sound)),
        Doubt(Unit.OUTPUT, min(made, units[Unit.OUTPUT]), outward),
    ]
    return tuple(doubt for doubt in found if doubt.tokens and doubt.units)


def tier_of(value: object) -> str | None:
    """Bring the name of a service tier or of Vertex AI's traffic to one spelling; None: it was not said."""
    said = term(value)
    if said is None:
        return None
    name = said.lower().removeprefix("service_tier_").removeprefix("traffic_type_")
    if name in _UNSAID:
        return None
    return "standard" if name in _STANDARD_TRAFFIC else name.removeprefix("on_demand_")


def _output(usage: dict[str, Any], inward: int) -> int:
    """Add thoughts to what was answered; what the total has more is output that no field explains."""
    answered, thoughts = _answered(usage), count(usage.get("thoughtsTokenCount"))
    return max(answered + thoughts, count(usage.get("totalTokenCount")) - inward)


def _answered(usage: dict[str, Any]) -> int:
    stated = usage.get("candidatesTokenCount")
    return count(usage.get("responseTokenCount") if stated is None else stated)


def _sound(usage: dict[str, Any]) -> int:
    """Count the prompt's sound, cached or not."""
    return max(_of(_prompt_details(usage), "AUDIO"), _of(usage.get("cacheTokensDetails"), "AUDIO"))


def _uncached(usage: dict[str, Any], modality: str) -> int:
    """Count the uncached tokens of a modality: what is cached of it is inside the prompt's."""
    fresh = max(0, _of(_prompt_details(usage), modality) - _of(usage.get("cacheTokensDetails"), modality))
    return fresh + _of(usage.get("toolUsePromptTokensDetails"), modality)


def _made(usage: dict[str, Any], modality: str) -> int:
    return _of(_made_details(usage), modality)


def _prompt_details(usage: dict[str, Any]) -> object:
    return usage.get("promptTokensDetails") or usage.get("promptTokenDetails")


def _made_details(usage: dict[str, Any]) -> object:
    return usage.get("candidatesTokensDetails") or usage.get("responseTokensDetails")


def _unexplained(details: object, total: int) -> int:
    """Count the tokens of a total that are of no stated modality; beside stated media, text is what is left over."""
    listed = [members(one) for one in details] if isinstance(details, list) else []
    kinds = {word(one.get("modality")) for one in listed if count(one.get("tokenCount"))}
    if kinds & {"AUDIO", "IMAGE", "VIDEO"} and "TEXT" not in kinds:
        return 0
    return max(0, total - sum(count(one.get("tokenCount")) for one in listed))


def _of(details: object, modality: str) -> int:
    listed = details if isinstance(details, list) else []
    return sum(count(one.get("tokenCount")) for one in map(members, listed) if one.get("modality") == modality)


@dataclass(slots=True)
class _Grounding:
    """What a candidate was grounded in. Its metadata repeat and grow over a stream: lists never add up."""

    queries: dict[str, set[str]] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)  # of each list of queries, the longest
    has_web: bool = False
    has_maps: bool = False

    def take(self, stated: dict[str, Any]) -> None:
        """Take metadata of a chunk."""
        for key in _QUERIES:
            listed = stated.get(key)
            asked = [one for one in listed if isinstance(one, str) and one] if isinstance(listed, list) else []
            seen = self.queries.setdefault(key, set())
            seen.update(asked)
            self.most[key] = max(self.most.get(key, 0), len(asked), len(seen))
        chunks = stated.get("groundingChunks")
        for one in map(members, chunks if isinstance(chunks, list) else ()):
            self.has_maps = self.has_maps or one.get("maps") is not None
            self.has_web = self.has_web or one.get("web") is not None or one.get("image") is not None
        self.has_maps = self.has_maps or bool(stated.get("googleMapsWidgetContextToken"))


@dataclass(slots=True)
class _Answer:
    """What is known of a reply so far."""

    choices: int = 1  # asked for
    can_state_prompt: bool = False  # nothing but text comes out, and the prompt cannot grow
    asked: Parsed | None = None
    model: str | None = None
    id: str | None = None
    tier: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    is_current: bool = False  # nothing was delivered since the usage was stated
    blocked: bool = False
    whole: bool = False  # the reply is one body, and all of it is here
    seen: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)
    grounding: dict[int, _Grounding] = field(default_factory=dict)
    error: str | None = None
    generated: int = 0
    delivered: bool = False
    thinking: bool = False
    at_limit: bool = False
    lost: bool = False
    readable: bool = True

    def take(self, found: dict[str, Any]) -> None:
        """Take a chunk, or the whole body; Code Assist has it in an envelope."""
        inner = found.get("response")
        if isinstance(inner, dict):
            self.id = word(found.get("traceId")) or self.id
            found = {**inner, "error": found.get("error") or inner.get("error")}
        if found.get("error"):
            self.error = error_type(found["error"], "status", "code")
        self.model = word(found.get("modelVersion")) or self.model
        self.id = word(found.get("responseId")) or self.id
        self.blocked = self.blocked or bool(members(found.get("promptFeedback")).get("blockReason"))
        listed = found.get("candidates")
        grown = [self._candidate(members(one)) for one in listed] if isinstance(listed, list) else []
        self.is_current = self.is_current and not any(grown)
        self._take_usage(members(found.get("usageMetadata")))

    def lose(self) -> None:
        """Take note of a chunk that was too long to be read: it may have held anything."""
        self.lost = self.delivered = True
        self.is_current = False

    def _take_usage(self, stated: dict[str, Any]) -> None:
        self.usage.update({key: value for key, value in stated.items() if value is not None})
        self.is_current = self.is_current or any(stated.get(key) is not None for key in _OUTPUT_COUNTS)
        self.tier = tier_of(stated.get("serviceTier")) or tier_of(stated.get("trafficType")) or self.tier

    def _candidate(self, candidate: dict[str, Any]) -> bool:
        """Take one candidate's piece, and say whether something of it was delivered."""
        index = candidate.get("index")
        place = index if type(index) is int else 0
        self.seen.add(place)
        reason = candidate.get("finishReason")
        if reason and reason != "FINISH_REASON_UNSPECIFIED":
            self.finished.add(place)
            self.at_limit = self.at_limit or reason == "MAX_TOKENS"
        if grounded := members(candidate.get("groundingMetadata")):
            self.grounding.setdefault(place, _Grounding()).take(grounded)
        parts = members(candidate.get("content")).get("parts")
        pieces = [self._part(members(part)) for part in parts] if isinstance(parts, list) else []
        return any(pieces)

    def _part(self, part: dict[str, Any]) -> bool:
        self.thinking = self.thinking or bool(part.get("thought"))
        size = text_bytes(part.get("text"), members(part.get("inlineData")).get("data"))
        others = [part[key] for key in part if key not in _PLAIN_PARTS and part[key] is not None]
        self.generated += size + sum(json_bytes(other) for other in others)
        is_delivered = size > 0 or bool(others)
        self.delivered = self.delivered or is_delivered
        return is_delivered

    def has_ended(self) -> bool:
        """Say whether the reply came to its end."""
        all_finished = self.seen <= self.finished and len(self.finished) >= self.choices
        return self.whole or self.blocked or all_finished

    def reading(self) -> Reading:
        """Say what is known now."""
        facts = Reading(
            terminal=self.has_ended(),
            readable=self.readable,
            model=self.model,
            terms=Terms(tier=self.tier),
            upstream_id=self.id,
            generated_bytes=self.generated,
            delivered=self.delivered,
            error=self.error,
            stopped_at_limit=self.at_limit,
        )
        try:
            usage, thoughts = normalised(self.usage), count(self.usage.get("thoughtsTokenCount"))
            portion = Portion(self.model, nonzero(usage | self._fees()), doubts(self.usage, usage, self.asked))
        except UnreadableCount:
            return replace(facts, hidden_thinking=self.thinking)
        is_current = self.is_current or (self.whole and not self.delivered)
        return replace(
            facts,
            portions=(portion,),
            complete=self.has_ended() and is_current and self._is_whole(output_tokens(usage)),
            prompt_stated=self.can_state_prompt and not self.lost and self.error is None,
            reasoning=thoughts,
            hidden_thinking=self.thinking or thoughts > 0,
        )

    def _is_whole(self, output: int) -> bool:
        """Say whether the usage can be all of it: a reply states the total, unless something has left that out."""
        is_total = self.blocked or self.usage.get("totalTokenCount") is not None
        return is_total and (output > 0 or not self.delivered)

    def _fees(self) -> dict[Unit, int]:
        """Count what grounding costs: newer models by the query, older ones by the prompt, whichever has a price.

        Which service a query went to stands nowhere: where a map alone was used, or alone was asked for, it is a map's.
        Pages that were fetched are listed like those that were found: they are a search where one was asked for.
        """
        found, asked = self.grounding.values(), None if self.asked is None else frozenset(self.asked.fees)
        queries = sum(sum(one.most.values()) for one in found)
        has_web = any(one.has_web for one in found) and (asked is None or bool(asked & SEARCH_FEES))
        has_maps = any(one.has_maps for one in found) or (queries > 0 and asked is not None and _asks_maps_only(asked))
        on_maps = has_maps and not has_web
        maps = {Unit.MAPS: max(1, queries if on_maps else 0), Unit.MAPS_PROMPT: 1} if has_maps else {}
        searched = has_web or (queries > 0 and not on_maps)
        return maps | ({Unit.WEB_SEARCH: queries, Unit.SEARCH_PROMPT: 1} if searched else {})


def _asks_maps_only(asked: frozenset[Unit]) -> bool:
    return bool(asked) and asked <= MAPS_FEES


_PLAIN_PARTS = frozenset({"text", "inlineData", "thought", "thoughtSignature"})


def _new(asked: Parsed | None) -> _Answer:
    if asked is None:
        return _Answer()
    plain = asked.output_units == {Unit.OUTPUT} and asked.prompt_units == {Unit.INPUT} and not asked.grows
    return _Answer(asked.choices, plain, asked)


class AnswerScanner(BodyScanner):
    """Reads a reply that is one JSON body."""

    __slots__ = ()

    def __init__(self, asked: Parsed | None = None) -> None:
        super().__init__(asked, _read)


def _read(found: dict[str, Any], asked: Parsed | None) -> Reading:
    answer = _new(asked)
    answer.whole = True
    answer.take(found)
    return answer.reading()


class AnswerStreamScanner(EventsScanner[_Answer]):
    """Reads a reply that is a stream of events."""

    __slots__ = ()

    def __init__(self, asked: Parsed | None = None) -> None:
        super().__init__(_new(asked), _take, bare=True)


class AnswerArrayScanner:
    """Reads a stream that is one growing JSON array, as the provider sends it where events were not asked for."""

    __slots__ = ("_answer", "_objects")

    def __init__(self, asked: Parsed | None = None) -> None:
        self._answer, self._objects = _new(asked), ObjectReader()
        self._answer.readable = False  # until an object was read

    def feed(self, chunk: bytes) -> None:
        """Take bytes of the array."""
        for event in self._objects.feed(chunk):
            _take(self._answer, event)

    def so_far(self) -> Reading:
        """See StreamScanner."""
        return self.result()

    def result(self) -> Reading:
        """Say what is known now; an unfinished object says nothing."""
        return self._answer.reading()


def _take(answer: _Answer, event: Event) -> None:
    if event.is_lost:
        answer.lose()
    elif (found := read_object(event.data)) is not None:
        answer.readable = True
        answer.take(found)

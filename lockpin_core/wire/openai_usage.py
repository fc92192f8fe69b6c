"""What a Chat Completions reply says of its usage: one body, or the chunks of a stream. Never raises.

Cached and written tokens are inside `prompt_tokens`, reasoning is inside `completion_tokens`, except where a vendor's
total shows that it is not. Cached tokens are text as far as nothing says otherwise (`cached_tokens_details`). Usage
comes on a chunk of its own, or with the last choice, or inside a choice; figures repeat and never add up.
Sources: OpenAI's Chat Completions reference, `usage` object, and its Realtime one, `cached_tokens_details`; Groq's,
`usage_breakdown` (what each model of a compound system used), read 2026-11.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from lockpin_core.call import Doubt, Parsed, Portion, Reading, Terms
from lockpin_core.usage import Unit, Usage, add, nonzero, output_tokens
from lockpin_core.wire.replies import (
    UnreadableCount,
    count,
    error_type,
    first_count,
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

_INSIDE = ("prompt_tokens_details", "input_tokens_details", "prompt_token_details", "input_token_details")
_MADE = ("completion_tokens_details", "output_tokens_details", "output_token_details")
_KINDS_IN = {"audio_tokens": Unit.AUDIO_IN, "image_tokens": Unit.IMAGE_IN}
_KINDS_OUT = {"audio_tokens": Unit.AUDIO_OUT, "image_tokens": Unit.IMAGE_OUT}


def normalised(
    usage: dict[str, Any],
    *,
    long_writes: bool = False,
    marked_writes: bool = False,
    marked: Unit = Unit.CACHE_WRITE_5M,
) -> dict[Unit, int]:
    """Turn a usage object into disjoint units. `long_writes`: writes without a split are the 12-hour ones;
    `marked_writes`: they are Anthropic's, which `marked` says for how long. Raises UnreadableCount.
    """
    prompt, output = _totals(usage)
    inside, made = _details(usage, *_INSIDE), _details(usage, *_MADE)
    read = first_count(
        inside.get("cached_tokens"),
        inside.get("cache_read_input_tokens"),
        usage.get("prompt_cache_hit_tokens"),
        usage.get("cached_tokens"),
        usage.get("num_cached_tokens"),
    )
    split = members(inside.get("cached_tokens_details"))
    audio = min(max(count(inside.get("audio_tokens")), count(split.get("audio_tokens"))), prompt)
    kept = min(max(count(split.get("audio_tokens")), read - (prompt - audio)), audio, read)  # text is taken first
    read = min(read - kept, prompt - audio)
    marked_unit = marked if marked_writes or inside.get("cache_write_tokens") is None else None
    writes = _writes(inside, prompt - audio - read, long_writes=long_writes, marked=marked_unit)
    rest = prompt - audio - read - sum(writes.values())  # text is taken from the cache first: images cost more
    image_in = min(max(0, count(inside.get("image_tokens")) - count(split.get("image_tokens"))), rest)
    audio_out = min(count(made.get("audio_tokens")), output)
    image_out = min(count(made.get("image_tokens")), output - audio_out)
    return nonzero(
        {
            Unit.INPUT: rest - image_in,
            Unit.CACHE_READ: read,
            Unit.CACHE_AUDIO: kept,
            Unit.AUDIO_IN: audio - kept,
            Unit.IMAGE_IN: image_in,
            Unit.OUTPUT: output - audio_out - image_out,
            Unit.AUDIO_OUT: audio_out,
            Unit.IMAGE_OUT: image_out,
            Unit.WEB_SEARCH: count(members(usage.get("server_tool_use_details")).get("web_search_requests")),
            **writes,
        }
    )


def doubts(usage: dict[str, Any], units: Usage, asked: Parsed | None) -> tuple[Doubt, ...]:
    """Say which tokens may be sound or pictures that were asked for: those that no detail of `usage` explains.

    `asked` None: it is the answer to a poll. What the call asked for is known where it is settled, also whether writes
    to a cache may be the 12-hour ones.
    """
    inside, made = _details(usage, *_INSIDE), _details(usage, *_MADE)
    inward = frozenset(unit for key, unit in _KINDS_IN.items() if inside.get(key) is None)
    outward = frozenset(unit for key, unit in _KINDS_OUT.items() if made.get(key) is None)
    is_unsaid = asked is None and not members(inside.get("cache_write_tokens_details"))
    written = units.get(Unit.CACHE_WRITE_30M, 0) if is_unsaid else 0
    if asked is not None:
        inward, outward = inward & asked.prompt_units, outward & asked.output_units
    is_split = members(inside.get("cached_tokens_details")).get("audio_tokens") is not None
    cached_sound = frozenset({Unit.CACHE_AUDIO} if Unit.AUDIO_IN in inward else ())
    output = units.get(Unit.OUTPUT, 0)
    text_in, text_out = count(inside.get("text_tokens")), count(made.get("text_tokens"))
    spoken = max(0, output - max(text_out, min(reasoning_tokens(usage), output)))
    found = [
        Doubt(Unit.INPUT, max(0, units.get(Unit.INPUT, 0) - text_in), inward),
        Doubt(Unit.CACHE_READ, 0 if is_split else units.get(Unit.CACHE_READ, 0), cached_sound),
        Doubt(Unit.CACHE_WRITE_30M, written, frozenset({Unit.CACHE_WRITE_12H})),
        Doubt(Unit.OUTPUT, spoken, outward),
    ]
    return tuple(doubt for doubt in found if doubt.tokens and doubt.units)


def _totals(usage: dict[str, Any]) -> tuple[int, int]:
    """Read prompt and output; reasoning that the total counts beside the output is added to it."""
    stated_in, stated_out = (
        _first(usage, "prompt_tokens", "input_tokens"),
        _first(usage, "completion_tokens", "output_tokens"),
    )
    stated_total = usage.get("total_tokens")
    if stated_in is None or (stated_out is None and stated_total is None):
        raise UnreadableCount
    prompt, output, total = count(stated_in), count(stated_out), count(stated_total)
    reasoning = reasoning_tokens(usage)
    if reasoning > output:
        output += reasoning
    # What the total has more is reasoning that stands beside the output, or unexplained: billed as output either way.
    return prompt, max(output, total - prompt)


def reasoning_tokens(usage: dict[str, Any]) -> int:
    """Read how many tokens of the output are reasoning. Raises UnreadableCount."""
    made = _details(usage, *_MADE)
    return first_count(made.get("reasoning_tokens"), usage.get("reasoning_tokens"))


def _writes(inside: dict[str, Any], most: int, *, long_writes: bool, marked: Unit | None) -> dict[Unit, int]:
    written, by_mark = inside.get("cache_write_tokens"), inside.get("cache_creation_input_tokens")
    total = min(first_count(written, by_mark), most)
    if marked is not None:
        return {marked: total}
    split = members(inside.get("cache_write_tokens_details"))
    long = min(count(split.get("ttl_12h_tokens")), total)
    if long_writes and not split:
        long = total
    return {Unit.CACHE_WRITE_30M: total - long, Unit.CACHE_WRITE_12H: long}


def _first(usage: dict[str, Any], *keys: str) -> Any:
    return next((usage[key] for key in keys if usage.get(key) is not None), None)


def _details(usage: dict[str, Any], *keys: str) -> dict[str, Any]:
    return members(_first(usage, *keys))


@dataclass(slots=True)
class _Chat:
    """What is known of a reply so far."""

    choices: int = 1  # asked for
    asked: Parsed | None = None
    model: str | None = None
    id: str | None = None
    tier: str | None = None
    usage: dict[str, Any] | None = None  # the last one stated
    cost_pico: int | None = None  # stated with it
    by_model: list[Any] = field(default_factory=list)  # the last breakdown of usage by models
    after_all: bool = False  # it was stated when every choice had finished
    alone: bool = False  # it was stated on a chunk without choices
    ended: bool = False
    seen: set[int] = field(default_factory=set)
    finished: set[int] = field(default_factory=set)
    error: str | None = None
    generated: int = 0
    delivered: bool = False
    at_limit: bool = False

    def take(self, found: dict[str, Any], *, streamed: bool) -> None:
        """Take a chunk, or the whole body."""
        groq = members(found.get("x_groq"))
        if error := found.get("error") or groq.get("error"):
            self.error = error_type(error, "type", "code")
        # Most chunks say the same again, and need not be judged again.
        if (model := found.get("model")) != self.model:
            self.model = word(model) or self.model
        if (identity := found.get("id")) != self.id:
            self.id = word(identity) or self.id
        self.tier = term(found.get("service_tier")) or self.tier
        listed = found.get("choices")
        choices = [members(choice) for choice in listed] if isinstance(listed, list) else []
        grown = [self._choice(choice) for choice in choices]
        inner = next((choice["usage"] for choice in reversed(choices) if choice.get("usage")), None)
        usage = found.get("usage") or inner or groq.get("usage")
        breakdown = members(found.get("usage_breakdown") or groq.get("usage_breakdown")).get("models")
        self.by_model = breakdown if isinstance(breakdown, list) else self.by_model
        if isinstance(usage, dict) and usage:
            self.usage, self.cost_pico = usage, stated_pico(usage, found)
            self.tier = term(usage.get("service_tier")) or self.tier
            self.after_all = not streamed or self._all_finished()
            self.alone = not choices
        elif any(grown):
            self._outdate()

    def lose(self) -> None:
        """Take note of an event that was too long to be read: it may have been any."""
        self.delivered = True
        self._outdate()

    def _outdate(self) -> None:
        """Take usage back that leaves out what came after it: it was a running figure."""
        self.after_all = self.alone = False

    def _choice(self, choice: dict[str, Any]) -> bool:
        """Take one choice, and say whether something of it was delivered."""
        index = choice.get("index")
        place = index if isinstance(index, int) else 0
        self.seen.add(place)
        reason = choice.get("finish_reason")
        if reason:
            self.finished.add(place)
            self.at_limit = self.at_limit or reason == "length"
            self.error = self.error or ("error" if reason == "error" else None)
        message = members(choice.get("delta") or choice.get("message"))
        size = _generated(message) + text_bytes(choice.get("text"))  # the latter in the older format
        self.generated += size
        is_delivered = size > 0 or bool(message.get("images") or message.get("reasoning_details"))
        self.delivered = self.delivered or is_delivered
        return is_delivered

    def _all_finished(self) -> bool:
        return self.seen <= self.finished and len(self.finished) >= self.choices

    def _is_final(self) -> bool:
        return self.after_all or (self.alone and (self.ended or self._all_finished()))

    def reading(self) -> Reading:
        """Say what is known now."""
        facts = Reading(
            terminal=self.ended,
            model=self.model,
            terms=Terms(tier=self.tier),
            upstream_id=self.id,
            generated_bytes=self.generated,
            delivered=self.delivered,
            error=self.error,
            stopped_at_limit=self.at_limit,
        )
        if self.usage is None:
            return facts
        try:
            usage, reasoning = self._units(self.usage, self.model), reasoning_tokens(self.usage)
            portions = self._portions(usage, self.usage)
        except UnreadableCount:
            return facts
        complete = self._is_final() and (output_tokens(usage) > 0 or not self.delivered)
        return replace(facts, portions=portions, complete=complete, reasoning=reasoning, stated_pico=self.cost_pico)

    def _units(self, usage: dict[str, Any], model: str | None) -> dict[Unit, int]:
        asked = frozenset() if self.asked is None else self.asked.prompt_units
        is_claude = "claude" in (model or "")
        marked = Unit.CACHE_WRITE_1H if Unit.CACHE_WRITE_1H in asked else Unit.CACHE_WRITE_5M
        long = Unit.CACHE_WRITE_12H in asked
        return normalised(usage, long_writes=long, marked_writes=is_claude, marked=marked)

    def _portions(self, usage: Usage, stated: dict[str, Any]) -> tuple[Portion, ...]:
        """Divide usage among the models that a system ran; what the breakdown leaves out is the reply's model's."""
        portions: list[Portion] = []
        known: Usage = {}
        for one in map(members, self.by_model):
            name = word(one.get("model"))
            own = members(one.get("usage"))
            part = self._units(own, name)
            known = add(known, part)
            portions.append(Portion(name, part, doubts(own, part, self.asked)))
        rest = {unit: count - known.get(unit, 0) for unit, count in usage.items() if count > known.get(unit, 0)}
        if rest or not portions:
            portions.append(Portion(self.model, rest, doubts(stated, rest, self.asked)))
        return tuple(portions)


def _generated(message: dict[str, Any]) -> int:
    """Count the bytes of text, visible reasoning and tool input in a message or a piece of one."""
    content = message.get("content")
    size = text_bytes(content, message.get("refusal"), message.get("reasoning_content") or message.get("reasoning"))
    if isinstance(content, list):
        size += sum(text_bytes(part.get("text")) for part in map(members, content))
    if audio := members(message.get("audio")):
        size += text_bytes(audio.get("transcript"), audio.get("data"))
    calls, older = message.get("tool_calls"), message.get("function_call")
    if not calls and not older:
        return size
    listed = calls if isinstance(calls, list) else []
    for call in [*map(members, listed), {"function": older}]:
        function, custom = members(call.get("function")), members(call.get("custom"))
        size += text_bytes(function.get("name"), function.get("arguments"), custom.get("name"), custom.get("input"))
        if isinstance(function.get("arguments"), dict):
            size += json_bytes(function["arguments"])
    return size


def _new(asked: Parsed | None) -> _Chat:
    if asked is None:
        return _Chat()
    return _Chat(asked.choices, asked)


class ChatScanner(BodyScanner):
    """Reads a reply that is one JSON body."""

    __slots__ = ()

    def __init__(self, asked: Parsed | None = None) -> None:
        super().__init__(asked, _read)


def _read(found: dict[str, Any], asked: Parsed | None) -> Reading:
    chat = _new(asked)
    chat.ended = True
    chat.take(found, streamed=False)
    return chat.reading()


class ChatStreamScanner(EventsScanner[_Chat]):
    """Reads a reply that is a stream of chunks."""

    __slots__ = ()

    def __init__(self, asked: Parsed | None = None) -> None:
        super().__init__(_new(asked), _take)


def _take(chat: _Chat, event: Event) -> None:
    if event.is_lost:
        chat.lose()
    elif event.data.startswith(b"[DONE]"):
        chat.ended = True
    elif (found := read_object(event.data)) is not None:
        chat.take(found, streamed=True)

"""What a Responses reply says of its usage: one body, or the events of a stream, or the answer to a poll. Never raises.

Usage stands on the terminal event's `response` only, whatever that event is called: `incomplete` and `failed` are
billed too. Outside `usage` stand the tools of the provider's (`tool_usage`), and the models that drew images.
Sources: OpenAI's Responses reference and SDK (`usage`, `tool_usage`, `svg_usage`, `status`), Perplexity's
(`tool_calls_details`), read 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lockpin_core.call import Parsed, Portion, Reading, Terms
from lockpin_core.usage import Unit, add, nonzero, output_tokens, prompt_tokens
from lockpin_core.wire.openai_usage import doubts, normalised, reasoning_tokens
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
from lockpin_core.wire.responses_tools import session_gb
from lockpin_core.wire.scanners import BodyScanner, EventsScanner
from lockpin_core.wire.sse import Event
from lockpin_core.wire.stated_cost import stated_pico

_ENDED = frozenset({"completed", "incomplete", "failed", "cancelled"})
_WORKING = frozenset({"queued", "in_progress"})
_UNPAID = frozenset({"cancelled", "failed"})  # ends that may state no usage, then or ever
_LAST_EVENTS = {f"response.{status}": status for status in _ENDED}
_IMAGE_MODEL = "gpt-image-2.6-sunburst"  # what draws where the tool names none, says the tool's reference, 2026-11
_CONTAINER_CALLS = ("code_interpreter_call", "shell_call")
# What a sampling makes once it has read all that stands before it, and what it leaves for the client to do, which may
# stand beside a call of the provider's own that nothing has read yet. All else is the provider's, or may be.
_SAMPLED = frozenset({"message", "reasoning"})
_FOR_CLIENT = frozenset(
    {
        *("function_call", "custom_tool_call", "local_shell_call", "apply_patch_call", "computer_call"),
        "mcp_approval_request",
    }
)


@dataclass(slots=True)
class _Response:
    """What is known of a reply so far."""

    asked: Parsed | None = None  # None also for the answer to a poll
    long_writes: bool = False
    background: bool = False
    model: str | None = None
    id: str | None = None
    tier: str | None = None
    portions: tuple[Portion, ...] = ()  # of the terminal object
    is_stated: bool = False  # its usage could be read
    reasoning: int = 0
    cost_pico: int | None = None
    status: str | None = None
    ended: bool = False
    error: str | None = None
    pieces: int = 0  # bytes of text that came in pieces
    items: int = 0  # bytes of text in items that came whole
    hidden_thinking: bool = False
    delivered: bool = False
    at_limit: bool = False
    is_body: bool = False  # all of it is here
    unread: bool = False  # the last that the provider's tools found was read by no sampling that was seen
    shrunk: bool | None = None
    begun: set[str] = field(default_factory=set)  # ids of the items whose beginning was seen in the stream

    def take_event(self, event: dict[str, Any]) -> None:
        """Take an event of a stream."""
        kind = event.get("type")
        delta = event.get("delta")
        if isinstance(delta, str) and delta:
            self.pieces += text_bytes(delta)
            self.delivered = True
        if isinstance(found := event.get("response"), dict):
            self.take(found, status=_LAST_EVENTS.get(kind) if isinstance(kind, str) else None)
        elif self.ended and event.get("usage"):
            self.portions, self.is_stated = (), False  # where no reference has it: nothing is known of what it means
        elif kind == "error" or (kind is None and event.get("error")):
            self.error = error_type(event.get("error") or event, "code", "type")
        elif kind == "response.output_item.added":
            self._follow(members(event.get("item")))
        elif kind == "response.output_item.done":
            self._item(members(event.get("item")))
            self._follow(members(event.get("item")), begins=False)
        elif isinstance(event.get("partial_image_b64"), str):
            self.delivered = True

    def take(self, found: dict[str, Any], *, status: str | None = None) -> None:
        """Take a response object; `status` is what its event says of it, in a stream."""
        stated = word(found.get("status"))
        self.status = status or stated or self.status
        self.model = word(found.get("model")) or self.model
        self.id = word(found.get("id")) or self.id
        self.tier = term(found.get("service_tier")) or self.tier
        self.background = self.background or found.get("background") is True
        if found.get("error"):
            self.error = error_type(found["error"], "code", "type")
        if members(found.get("incomplete_details")).get("reason") == "max_output_tokens":
            self.at_limit = True
        if members(found.get("prompt_cache_options")).get("ttl") == "12h":
            self.long_writes = True
        if (policy := members(found.get("image")).get("context_compression")) is not None:
            self.shrunk = policy != "disabled"
        if status in _ENDED or (status is None and stated in _ENDED):
            self.ended = True
            self._end(found)
        elif self.ended and found.get("usage"):
            self._end(found)  # it contradicts the end that came before: the last one said stands

    def take_body(self, found: dict[str, Any]) -> None:
        """Take the whole body; one without a status has ended where it states usage."""
        is_bare = found.get("status") is None and isinstance(found.get("usage"), dict)
        self.take(found, status="completed" if is_bare else None)
        self.ended = self.is_body = True

    def lose(self) -> None:
        """Take note of an event that was too long to be read: it may have been any."""
        self.delivered = self.unread = True

    def _item(self, item: dict[str, Any]) -> None:
        """Take note of a whole item of the output."""
        size = _item_bytes(item)
        self.items += size
        self.hidden_thinking = self.hidden_thinking or item.get("type") == "reasoning"
        self.delivered = self.delivered or size > 0 or item.get("type") not in (None, "reasoning", "message")

    def _follow(self, item: dict[str, Any], *, begins: bool = True) -> None:
        """Follow whether the model has gone on after the calls of the provider's tools, and so has read their finds.

        Only what begins after a find has read it; an item that ends may have begun before.
        """
        name = word(item.get("id"))
        if begins and name is not None:
            self.begun.add(name)
        begins = begins or name not in self.begun
        kind = word(item.get("type"))
        if kind in _SAMPLED:
            self.unread = self.unread and not begins
        elif kind not in _FOR_CLIENT and not _runs_at_client(item):
            self.unread = True

    def _end(self, found: dict[str, Any]) -> None:
        """Read what the terminal object states."""
        output = _listed(found.get("output"))
        self.items = 0
        self.unread = self.unread and not output  # some hosts leave the list empty at the end of a stream
        for item in output:
            self._item(item)
            self._follow(item)
        usage = found.get("usage")
        if not isinstance(usage, dict) or not usage:
            return
        self.tier = term(usage.get("service_tier")) or self.tier
        self.cost_pico = stated_pico(usage, found)
        try:
            self._read_usage(usage, found, output)
        except UnreadableCount:
            self.portions, self.is_stated = (), False

    def _read_usage(self, usage: dict[str, Any], found: dict[str, Any], output: list[dict[str, Any]]) -> None:
        is_anthropic = (self.model or "").startswith("anthropic/")
        own = normalised(usage, long_writes=self.long_writes, marked_writes=is_anthropic)
        fees = _fees(usage, found.get("tool_usage"), output)
        fees[Unit.CODE_SESSION] *= session_gb(found.get("tools"))
        fees[Unit.WEB_SEARCH] = max(fees[Unit.WEB_SEARCH], own.pop(Unit.WEB_SEARCH, 0))
        self.reasoning = reasoning_tokens(usage)
        self.portions = (
            Portion(self.model, nonzero(add(own, fees)), doubts(usage, own, self.asked)),
            *_drawn(members(found.get("tool_usage")).get("image_gen"), found.get("tools")),
            *(one for item in output if (one := _authored(item.get("svg_usage"))) is not None),
        )
        self.is_stated = not self.delivered or (prompt_tokens(own) > 0 and output_tokens(own) > 0)

    def reading(self) -> Reading:
        """Say what is known now: of a poll and a stream in the background, whether a later poll can know more."""
        is_settled = self.is_stated or (self.ended and self.status in _UNPAID)
        goes_on = self.status in _WORKING if self.is_body else self.background and not is_settled
        may_be_polled = self.asked is None or (self.background and not self.is_body)
        return Reading(
            portions=self.portions,
            complete=self.is_stated,
            terminal=is_settled if may_be_polled else self.ended,
            model=self.model,
            terms=Terms(tier=self.tier),
            upstream_id=self.id,
            pending=goes_on and self.id is not None,
            stated_pico=self.cost_pico,
            reasoning=self.reasoning,
            unread=self.unread,
            shrunk=self.shrunk,
            generated_bytes=max(self.pieces, self.items),
            hidden_thinking=self.hidden_thinking,
            delivered=self.delivered,
            error=self.error,
            stopped_at_limit=self.at_limit,
        )


def _listed(value: object) -> list[dict[str, Any]]:
    return [members(item) for item in value] if isinstance(value, list) else []


def _runs_at_client(item: dict[str, Any]) -> bool:
    """Say whether a call of a tool that may run on either side is left for the client to run."""
    is_local = item.get("type") == "shell_call" and members(item.get("environment")).get("type") == "local"
    return is_local or (item.get("type") == "tool_search_call" and item.get("execution") == "client")


def _item_bytes(item: dict[str, Any]) -> int:
    """Count the bytes of text, visible reasoning and tool input in an item."""
    parts = [*_listed(item.get("content")), *_listed(item.get("summary"))]
    size = sum(text_bytes(part.get("text"), part.get("refusal")) for part in parts)
    size += text_bytes(item.get("name"), item.get("arguments"), item.get("input"), item.get("code"))
    return size + sum(json_bytes(item[key]) for key in ("action", "operation") if isinstance(item.get(key), dict))


def _fees(usage: dict[str, Any], tool_usage: object, output: list[dict[str, Any]]) -> dict[Unit, int]:
    """Count what tools of the provider's cost by the piece. Raises UnreadableCount."""
    calls = members(usage.get("tool_calls_details"))
    stated = members(members(tool_usage).get("web_search")).get("num_requests")
    if stated is None:
        stated = members(calls.get("web_search")).get("invocation")
    searches = sum(map(_is_search, output)) if stated is None else count(stated)
    files = sum(item.get("type") == "file_search_call" for item in output)
    return {Unit.WEB_SEARCH: searches, Unit.FILE_SEARCH: files, Unit.CODE_SESSION: _sessions(output)}


def _is_search(item: dict[str, Any]) -> bool:
    """Say whether an item is a search that is billed; one that does not say what it did counts as one."""
    return item.get("type") == "web_search_call" and members(item.get("action")).get("type") in (None, "search")


def _sessions(output: list[dict[str, Any]]) -> int:
    """Count the containers that code ran in."""
    found: set[str] = set()
    for item in output:
        environment = members(item.get("environment"))
        if item.get("type") in _CONTAINER_CALLS and environment.get("type") != "local":
            found.add(str(item.get("container_id") or environment.get("container_id")))
    return len(found)


def _drawn(image_gen: object, tools: object) -> tuple[Portion, ...]:
    """Read what models that draw used, at the price of the one that the request named. Raises UnreadableCount."""
    said = members(image_gen)
    inside, made = members(said.get("input_tokens_details")), members(said.get("output_tokens_details"))
    prompt, output = count(said.get("input_tokens")), count(said.get("output_tokens"))
    images = min(count(inside.get("image_tokens")), prompt)
    text = min(count(made.get("text_tokens")), output)
    read = min(count(members(said.get("cached_tokens_details")).get("cached_text_tokens")), prompt - images)
    usage: Mapping[Unit, int] = nonzero(
        {
            Unit.INPUT: prompt - images - read,
            Unit.CACHE_READ: read,
            Unit.IMAGE_IN: images,
            Unit.OUTPUT: text,
            Unit.IMAGE_OUT: output - text,
        }
    )
    named = [word(tool.get("model")) for tool in _listed(tools) if tool.get("type") == "image_generation"]
    model = next((name for name in named if name is not None), _IMAGE_MODEL)
    return (Portion(model, usage),) if usage else ()


def _authored(svg_usage: object) -> Portion | None:
    """Read what a model used that wrote an image as SVG. Raises UnreadableCount."""
    said = members(svg_usage)
    return Portion(word(said.get("model")), normalised(said)) if said else None


def _new(asked: Parsed | None) -> _Response:
    if asked is None:
        return _Response(unread=True)  # a stream that is taken up again does not show what came before
    return _Response(asked, long_writes=Unit.CACHE_WRITE_12H in asked.prompt_units, background=asked.background)


class ResponsesScanner(BodyScanner):
    """Reads a reply that is one JSON body: a response, a compacted conversation, or the answer to a poll."""

    __slots__ = ()

    def __init__(self, asked: Parsed | None = None) -> None:
        super().__init__(asked, _read)


def _read(found: dict[str, Any], asked: Parsed | None) -> Reading:
    response = _new(asked)
    response.take_body(found)
    return response.reading()


class ResponsesStreamScanner(EventsScanner[_Response]):
    """Reads a reply that is a stream of events."""

    __slots__ = ()

    def __init__(self, asked: Parsed | None = None) -> None:
        super().__init__(_new(asked), _take)

    @property
    def has_ended(self) -> bool:
        """Say whether the terminal event was seen, though the connection may stay open."""
        return self._answer.ended


def _take(response: _Response, event: Event) -> None:
    if event.is_lost:
        response.lose()
    elif (found := read_object(event.data)) is not None:
        response.take_event(found)

"""What a reply of OpenAI's Images endpoints says of its usage: one body, or a stream with pictures on the way.

A reply names no model, and its output is pictures as far as it does not say otherwise. Usage stands in the body, or in
the event that a picture is complete. Never raises.
Source: OpenAI's Images reference, `usage` of the response and of the events, read 2026-11.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lockpin_core.call import Parsed, Portion, Reading
from lockpin_core.usage import Unit, Usage, nonzero, output_tokens
from lockpin_core.wire.base64runs import Base64Runs
from lockpin_core.wire.openai_usage import doubts, normalised
from lockpin_core.wire.replies import UnreadableCount, error_type, first_count, members, read_object
from lockpin_core.wire.scanners import BodyScanner, EventsScanner
from lockpin_core.wire.sse import Event


def _units(usage: dict[str, Any]) -> dict[Unit, int]:
    """Read usage; output that is not said to be text is pictures. Raises UnreadableCount."""
    units = normalised(usage)
    text = first_count(members(usage.get("output_tokens_details")).get("text_tokens"))
    output = units.pop(Unit.OUTPUT, 0)
    written = min(output, text)
    drawn = units.get(Unit.IMAGE_OUT, 0) + output - written
    return nonzero({**units, Unit.OUTPUT: written, Unit.IMAGE_OUT: drawn})


def _portion(usage: dict[str, Any], asked: Parsed | None) -> Portion | None:
    """Read usage with what it leaves open; None: it states none."""
    try:
        units: Usage = _units(usage)
        inward = tuple(doubt for doubt in doubts(usage, units, asked) if doubt.counted is Unit.INPUT)
    except UnreadableCount:
        return None
    return Portion(None, units, inward)


class ImagesScanner(BodyScanner):
    """Reads a reply that is one JSON body."""

    __slots__ = ("_runs",)

    def __init__(self, asked: Parsed | None = None) -> None:
        super().__init__(asked, _read)
        self._runs = Base64Runs()

    def feed(self, chunk: bytes) -> None:
        """Take bytes of the body, pictures left out."""
        super().feed(self._runs.feed(chunk))


def _read(found: dict[str, Any], asked: Parsed | None) -> Reading:
    error = error_type(found.get("error"), "code", "type")
    facts = Reading(terminal=True, delivered=bool(found.get("data")), error=error)
    portion = _portion(members(found.get("usage")), asked)
    if portion is None:
        return facts
    # Another model wrote an SVG, which its own usage states: no request under a limit asks for one.
    complete = not found.get("svg_usage") and (output_tokens(portion.usage) > 0 or not facts.delivered)
    return replace(facts, portions=(portion,), complete=complete)


@dataclass(slots=True)
class _Drawing:
    """What is known of a stream so far."""

    asked: Parsed | None = None
    pictures: int = 0  # that are complete
    portion: Portion | None = None
    delivered: bool = False
    error: str | None = None

    def take(self, found: dict[str, Any]) -> None:
        """Take an event."""
        if found.get("error"):
            self.error = error_type(found.get("error"), "code", "type")
        kind = found.get("type")
        if not isinstance(kind, str) or not kind.startswith(("image_generation.", "image_edit.")):
            return
        self.delivered = True
        if kind.endswith(".completed"):
            self.pictures += 1
            self.portion = _portion(members(found.get("usage")), self.asked)

    def reading(self) -> Reading:
        """Say what is known now.

        Where several pictures come, nobody says whether the usage of one counts those before it: then none is final.
        """
        facts = Reading(terminal=self.pictures > 0, delivered=self.delivered, error=self.error)
        if self.portion is None:
            return facts
        alone = self.pictures == 1 and (self.asked is None or self.asked.choices == 1)
        complete = alone and output_tokens(self.portion.usage) > 0
        return replace(facts, portions=(self.portion,), complete=complete)


class ImagesStreamScanner(EventsScanner[_Drawing]):
    """Reads a reply that is a stream of pictures."""

    __slots__ = ("_runs",)

    def __init__(self, asked: Parsed | None = None) -> None:
        super().__init__(_Drawing(asked), _take)
        self._runs = Base64Runs()

    def feed(self, chunk: bytes) -> None:
        """Take bytes of the stream, pictures left out."""
        super().feed(self._runs.feed(chunk))


def _take(drawing: _Drawing, event: Event) -> None:
    if event.is_lost:
        drawing.delivered, drawing.portion = True, None
    elif (found := read_object(event.data)) is not None:
        drawing.take(found)

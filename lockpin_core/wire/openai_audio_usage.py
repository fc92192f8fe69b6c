"""What a reply of OpenAI's Audio endpoints says of its usage: sound, text, one JSON body, or a stream. Never raises.

A transcription states tokens or seconds, a speech tokens, and only in a stream; text and sound state nothing. No reply
names a model.
Source: OpenAI's Audio reference, `usage` of transcriptions and of the events, read 2026-11.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Any

from lockpin_core.call import Parsed, Portion, Reading
from lockpin_core.usage import Unit, nonzero
from lockpin_core.wire.openai_usage import doubts, normalised
from lockpin_core.wire.replies import (
    MAX_COUNT,
    Figure,
    UnreadableCount,
    WholeBody,
    error_type,
    members,
    read_object,
)
from lockpin_core.wire.scanners import EventsScanner
from lockpin_core.wire.sse import Event


class SoundScanner:
    """Sees sound pass, and keeps nothing of it. A model that bills by the character bills the request's."""

    __slots__ = ("_asked", "_passed")

    def __init__(self, asked: Parsed | None = None) -> None:
        self._asked, self._passed = asked, False

    def feed(self, chunk: bytes) -> None:
        """Take note of sound."""
        self._passed = self._passed or bool(chunk)

    def result(self) -> Reading:
        """Say what is known now."""
        facts = Reading(terminal=True, delivered=self._passed)
        pieces = {} if self._asked is None else self._asked.fees
        if self._asked is None or Unit.CHARACTER not in pieces:
            return facts
        return replace(facts, portions=(Portion(None, {Unit.CHARACTER: pieces[Unit.CHARACTER]}),), complete=True)


@dataclass(slots=True)
class _Told:
    """What is known of a stream so far."""

    asked: Parsed | None = None
    speaks: bool = False
    portion: Portion | None = None
    ended: bool = False
    delivered: bool = False
    error: str | None = None

    def take(self, found: dict[str, Any]) -> None:
        """Take an event; the last one has the usage."""
        if found.get("error"):
            self.error = error_type(found.get("error"), "code", "type")
        kind = found.get("type")
        if isinstance(kind, str) and kind.startswith(("speech.audio.", "transcript.text.")):
            self.delivered = True
            self.ended = self.ended or kind.endswith(".done")
            usage = members(found.get("usage"))
            self.portion = _portion(usage, self.asked, speaks=self.speaks) if usage else self.portion

    def reading(self) -> Reading:
        """Say what is known now."""
        return _reading(Reading(terminal=self.ended, delivered=self.delivered, error=self.error), self.portion)


class SpeechStreamScanner(EventsScanner[_Told]):
    """Reads a stream of sound in events."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_Told(speaks=True), _take)


class TextStreamScanner(EventsScanner[_Told]):
    """Reads a stream of transcribed text."""

    __slots__ = ()

    def __init__(self, asked: Parsed | None = None) -> None:
        super().__init__(_Told(asked), _take)


def _take(told: _Told, event: Event) -> None:
    if event.is_lost:
        told.delivered = True
    elif (found := read_object(event.data)) is not None:
        told.take(found)


class TextScanner:
    """Reads a transcription that is no stream: JSON, or text in one of several forms, which states no usage.

    What was asked for as text is text, also where it looks like JSON: somebody may have said so.
    """

    __slots__ = ("_asked", "_begun", "_body")

    def __init__(self, asked: Parsed | None = None) -> None:
        self._asked, self._body, self._begun = asked, WholeBody(asked), b""

    def feed(self, chunk: bytes) -> None:
        """Take bytes of the body."""
        self._begun = self._begun or chunk.lstrip(b" \t\r\n")[:1]
        self._body.feed(chunk)

    def result(self) -> Reading:
        """Read the body as far as it came; half of one cannot be read."""
        is_text = self._asked is not None and self._asked.text_reply
        found = None if is_text else self._body.read()
        if is_text and self._begun:
            return Reading(terminal=True, delivered=True)
        if found is None:
            return Reading(terminal=True, delivered=True) if self._begun not in (b"", b"{") else Reading(readable=False)
        delivered = bool(found.get("text") or found.get("segments"))
        facts = Reading(terminal=True, delivered=delivered, error=error_type(found.get("error"), "code", "type"))
        return _reading(facts, _portion(members(found.get("usage")), self._asked))


def _reading(facts: Reading, portion: Portion | None) -> Reading:
    """Put usage to what else is known; a count of nothing is none where something was delivered."""
    if portion is None:
        return facts
    counts = bool(portion.usage) or not facts.delivered
    return replace(facts, portions=(portion,), complete=facts.terminal and counts)


def _portion(usage: dict[str, Any], asked: Parsed | None, *, speaks: bool = False) -> Portion | None:
    """Read usage in tokens, or in seconds; what a model says is sound. None: it states none."""
    try:
        if usage.get("type") == "duration" or ("seconds" in usage and "input_tokens" not in usage):
            return Portion(None, nonzero({Unit.SECOND: _seconds(usage.get("seconds"))}))
        units = normalised(usage)
        found = () if speaks else doubts(usage, units, asked)
    except UnreadableCount:
        return None
    if speaks:
        spoken = units.pop(Unit.OUTPUT, 0) + units.get(Unit.AUDIO_OUT, 0)
        units = nonzero({**units, Unit.AUDIO_OUT: spoken})
    return Portion(None, units, found)


def _seconds(value: object) -> int:
    """Read seconds, begun ones as whole. Raises UnreadableCount."""
    text = value.text if isinstance(value, Figure) else value
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise UnreadableCount
    try:
        seconds = Decimal(text)
    except InvalidOperation:
        raise UnreadableCount from None
    if not seconds.is_finite() or not 0 <= seconds <= MAX_COUNT:
        raise UnreadableCount
    return int(seconds.to_integral_value(ROUND_CEILING))

from dataclasses import dataclass, field
from typing import Any

from lockpin_core.call import Content, Parsed, Reading
from lockpin_core.wire.scanners import BodyScanner, EventsScanner
from lockpin_core.wire.sse import Event


def read(found: dict[str, Any], asked: Parsed | None) -> Reading:
    return Reading(terminal=True, model=found["model"], delivered=asked is not None)


@dataclass
class Words:
    """An answer that keeps what every event said."""

    said: list[str] = field(default_factory=list)

    def reading(self) -> Reading:
        return Reading(model=" ".join(self.said))


def say(words: Words, event: Event) -> None:
    words.said.append(event.data.decode())


def test_body_is_read_once_all_of_it_is_here():
    scanner = BodyScanner(None, read)

    scanner.feed(b'{"model": ')
    half = scanner.result()
    scanner.feed(b'"m"}')

    assert half == Reading(readable=False)
    assert scanner.result() == scanner.result() == Reading(terminal=True, model="m")


def test_body_is_read_as_the_answer_to_its_request():
    scanner = BodyScanner(Parsed("m", False, Content(0, 0, 0, 0), None), read)
    scanner.feed(b'{"model": "m"}')

    assert scanner.result().delivered


def test_body_that_is_no_object_cannot_be_read():
    scanner = BodyScanner(None, read)
    scanner.feed(b'["m"]')

    assert scanner.result() == Reading(readable=False)


def test_what_whole_events_have_said_is_known_without_a_look_at_half_of_one():
    seen: list[bytes] = []
    scanner = EventsScanner(Words(), lambda words, event: (seen.append(event.data), say(words, event)))
    scanner.feed(b"data: one\n\ndata: tw")

    assert scanner.so_far() == Reading(model="one")
    assert seen == [b"one"]


def test_event_without_its_end_counts_for_the_moment_only():
    scanner = EventsScanner(Words(), say)
    scanner.feed(b"data: one\n\ndata: tw")

    assert scanner.result() == scanner.result() == Reading(model="one tw")

    scanner.feed(b"o\n\n")

    assert scanner.result() == Reading(model="one two")

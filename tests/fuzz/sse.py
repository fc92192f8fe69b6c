"""Target: events and objects out of a stream are the same however it is cut, and those of a reader that sees all of it."""

import json
import re

from inputs import Choices, pieces, split

from lockpin_core.wire.jsonarray import ObjectReader
from lockpin_core.wire.sse import Event, SseReader

SMALL = 1 << 18  # far below the most that an event may be, so that none is lost


def run(data: bytes) -> None:
    head, body = split(data)
    choices = Choices(head)
    bare = choices.flag()
    body *= 1 + choices.number() % 4
    parts = pieces(body, choices)
    if len(body) > SMALL:
        return
    _check_events(body, parts, bare=bare)
    _check_objects(body, parts)


def _check_events(body: bytes, parts: list[bytes], *, bare: bool) -> None:
    whole, cut = SseReader(bare=bare), SseReader(bare=bare)
    events = whole.feed(body)
    found = [event for part in parts for event in cut.feed(part)]
    assert found == events, f"{found} != {events}"
    assert cut.pending() == whole.pending()
    assert not any(event.is_lost for event in found)
    if not bare:
        assert found == standard_events(body), f"{found} != {standard_events(body)}"


def standard_events(body: bytes) -> list[Event]:
    """Read a whole stream as the standard says: all its lines first, then what a blank one ends."""
    lines = re.split(rb"\r\n|\r|\n", body.removeprefix(b"\xef\xbb\xbf"))
    found, name, data = [], b"", []
    for line in lines[:-1]:
        if not line:
            if data:
                found.append(Event(name, b"\n".join(data)))
            name, data = b"", []
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return found


def _check_objects(body: bytes, parts: list[bytes]) -> None:
    whole, cut = ObjectReader(), ObjectReader()
    objects = whole.feed(body)
    assert [one for part in parts for one in cut.feed(part)] == objects
    try:
        text = body.decode()
        told = json.loads(text)
    except (ValueError, RecursionError):
        return
    listed = told if isinstance(told, list) else [told]
    if all(isinstance(one, dict) for one in listed):
        assert [json.loads(one.data) for one in objects] == listed

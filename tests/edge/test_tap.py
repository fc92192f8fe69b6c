"""A reply that passes is looked at piece by piece, and never so long that its client would notice."""

from types import SimpleNamespace

from lockpin_addons.tap import Tap

from lockpin_core.call import Reading
from lockpin_core.wire.scanners import BodyScanner, EventsScanner
from lockpin_core.wire.sse import Event


class Stopped:
    """An answer that has stopped at its limit."""

    def reading(self) -> Reading:
        return Reading(stopped_at_limit=True)


def take(answer: Stopped, event: Event) -> None:
    raise AssertionError("half of an event was read")


def read(found: dict, asked: object) -> Reading:
    raise AssertionError("half of a body was read")


def trip_of(scanner: object) -> SimpleNamespace:
    told = []
    engine = SimpleNamespace(note_cut=lambda admitted, reading: told.append(reading) or reading.stopped_at_limit)
    decoder = SimpleNamespace(feed=lambda data: data)
    admitted = SimpleNamespace(prompt_first=True, conversation=b"c", account=None)
    return SimpleNamespace(
        scanner=scanner, decoder=decoder, admitted=admitted, terms=SimpleNamespace(engine=engine), told=told,
        scan_failed=False, settled=False, cut_noted=False, true_up_tries=8, scanned_bytes=0, overheard=None,
        usage_filter=None,
    )  # fmt: skip


def test_half_of_an_event_is_not_read_while_the_stream_passes():
    trip = trip_of(EventsScanner(Stopped(), take))

    assert [Tap({})._see(trip, b'data: {"half": "of') for _ in range(3)] == [b'data: {"half": "of'] * 3
    assert trip.told == [Reading(stopped_at_limit=True)]  # once


def test_half_of_a_body_is_not_read_while_it_passes():
    trip = trip_of(BodyScanner(None, read))

    assert Tap({})._see(trip, b"{}") == b"{}"
    assert (trip.told, trip.true_up_tries) == ([], 8)

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.wire.sse import LOST, MAX_EVENT_BYTES, Event, SseReader


def read(*chunks: bytes) -> list[Event]:
    reader = SseReader()
    events = [event for chunk in chunks for event in reader.feed(chunk)]
    last = reader.pending()
    return [*events, last] if last else events


def test_event_has_name_and_data():
    assert read(b'event: ping\ndata: {"type":"ping"}\n\n') == [Event(b"ping", b'{"type":"ping"}')]


def test_lines_end_in_lf_crlf_or_cr():
    wanted = [Event(b"a", b"1"), Event(b"", b"2")]

    assert read(b"event: a\ndata: 1\n\ndata: 2\n\n") == wanted
    assert read(b"event: a\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n") == wanted
    assert read(b"event: a\rdata: 1\r\rdata: 2\r\r") == wanted
    assert read(b"event: a\r\ndata: 1\n\r\ndata: 2\r\r\n") == wanted


def test_crlf_split_between_chunks_is_one_line_end():
    assert read(b"data: 1\r", b"\ndata: 2\r", b"\n\r", b"\n") == [Event(b"", b"1\n2")]


def test_cr_at_the_end_of_a_chunk_does_not_swallow_a_later_line_feed_twice():
    assert read(b"data: 1\r", b"\n", b"\ndata: 2\n\n") == [Event(b"", b"1"), Event(b"", b"2")]


def test_several_data_lines_join_with_a_line_feed():
    assert read(b"data: a\ndata:b\ndata\n\n") == [Event(b"", b"a\nb\n")]


def test_comments_ids_and_byte_order_mark_are_no_events():
    assert read(b"\xef\xbb\xbf: hello\n\nid: 1\nretry: 5\n\n:\n\n") == []
    assert read(b"\xef", b"\xbb\xbfdata: 1\n\n") == [Event(b"", b"1")]


def test_line_separators_inside_json_do_not_end_a_line():
    data = '{"text":"\u2028\x85\x0b"}'.encode()

    assert read(b"data: " + data + b"\n\n") == [Event(b"", data)]


def test_last_event_without_a_blank_line_is_pending_and_stays_unfinished():
    reader = SseReader()
    reader.feed(b"data: 1\n\ndata: 2")

    assert reader.pending() == Event(b"", b"2")
    assert reader.pending() == Event(b"", b"2")
    assert reader.feed(b"3\n\n") == [Event(b"", b"23")]
    assert reader.pending() is None


def test_event_as_long_as_allowed_is_kept():
    data = b"x" * (MAX_EVENT_BYTES - 6)
    reader = SseReader()

    assert reader.feed(b"data: " + data) == []
    assert reader.feed(b"\n\n") == [Event(b"", data)]


def test_event_that_is_too_long_is_lost_and_the_next_is_read_in_any_chunking():
    stream = b"data: " + b"x" * (MAX_EVENT_BYTES - 5) + b"\n\ndata: 2\n\n"
    for size in (len(stream), 700_000, 4096):
        reader = SseReader()
        events = []
        for start in range(0, len(stream), size):
            events += reader.feed(stream[start : start + size])
            assert len(reader._buffer) <= MAX_EVENT_BYTES + 1

        assert events == [LOST, Event(b"", b"2")]


def test_blank_line_after_a_lost_event_may_be_split():
    reader = SseReader()

    assert reader.feed(b"data: " + b"x" * MAX_EVENT_BYTES + b"\n") == []
    assert reader.feed(b"\ndata: 2\n\n") == [LOST, Event(b"", b"2")]


def test_event_that_is_too_long_already_is_lost_before_its_end():
    reader = SseReader()
    reader.feed(b"data: " + b"x" * (MAX_EVENT_BYTES + 9))

    assert reader.pending() == LOST
    assert reader.pending() == LOST


PIECES = st.lists(
    st.sampled_from(
        [b"data: a", b"data:b", b"event: e", b": c", b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"\xef\xbb\xbf", b"x"]
    ),
    max_size=25,
)


@settings(max_examples=300, deadline=None)
@given(PIECES, st.lists(st.integers(0, 60), max_size=8))
def test_any_chunking_gives_the_same_events(pieces: list[bytes], cuts: list[int]):
    stream = b"".join(pieces)
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    chunks = [stream[start:end] for start, end in pairwise(edges)]

    assert read(*chunks) == read(stream)
    assert read(*(stream[i : i + 1] for i in range(len(stream)))) == read(stream)

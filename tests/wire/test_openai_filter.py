from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.wire.openai_filter import ChatUsageFilter
from lockpin_core.wire.sse import MAX_EVENT_BYTES

DATA = Path(__file__).resolve().parent.parent / "data" / "openai_chat"

ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}'
WORD = b'data: {"choices":[{"index":0,"delta":{"content":"\xc3\xa9 \\"usage\\""},"finish_reason":null}],"usage":null}'
FINISH = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":9}}'
DONE = b"data: [DONE]"
AZURE = b'data: {"choices":[],"id":"","prompt_filter_results":[]}'


def stream(*events: bytes, end: bytes = b"\n\n") -> bytes:
    return b"".join(event + end for event in events)


def filtered(*chunks: bytes) -> bytes:
    usage_filter = ChatUsageFilter()
    return b"".join(usage_filter.feed(chunk) for chunk in chunks) + usage_filter.close()


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n"])
def test_f10_usage_event_is_taken_out_at_any_cut(end: bytes):
    whole = stream(AZURE, ROLE, WORD, FINISH, USAGE, DONE, end=end)
    wanted = stream(AZURE, ROLE, WORD, FINISH, DONE, end=end)

    for cut in range(len(whole) + 1):
        assert filtered(whole[:cut], whole[cut:]) == wanted
    assert filtered(*(whole[i : i + 1] for i in range(len(whole)))) == wanted


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 700), max_size=6), st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"]))
def test_any_chunking_gives_the_stream_less_that_event(cuts: list[int], end: bytes):
    whole = stream(b": ping", ROLE, WORD, WORD, FINISH, USAGE, DONE, end=end)
    edges = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})

    given_bytes = filtered(*(whole[start:stop] for start, stop in pairwise(edges)))

    assert given_bytes == stream(b": ping", ROLE, WORD, WORD, FINISH, DONE, end=end)


def test_nothing_is_kept_back_before_a_choice_has_finished():
    usage_filter = ChatUsageFilter()
    whole = stream(ROLE, WORD)

    for i in range(len(whole)):
        assert usage_filter.feed(whole[i : i + 1]) == whole[i : i + 1]


def test_complete_event_passes_at_once_after_a_choice_has_finished():
    usage_filter = ChatUsageFilter()
    usage_filter.feed(stream(FINISH))

    assert usage_filter.feed(stream(WORD)) == stream(WORD)
    assert usage_filter.feed(DONE[:4]) == b""
    assert usage_filter.feed(DONE[4:] + b"\n\n") == stream(DONE)


def test_event_whose_beginning_has_passed_passes_whole():
    usage_filter = ChatUsageFilter()

    assert usage_filter.feed(USAGE[:9]) == USAGE[:9]
    assert usage_filter.feed(USAGE[9:] + b"\n\n" + DONE) == USAGE[9:] + b"\n\n" + DONE


def test_usage_event_inside_one_chunk_is_taken_out_before_any_choice_has_finished():
    assert filtered(stream(ROLE, USAGE, DONE)) == stream(ROLE, DONE)


def test_usage_event_without_its_blank_line_is_taken_out_at_the_end():
    assert filtered(stream(FINISH) + USAGE) == stream(FINISH)


def test_other_kept_bytes_come_at_the_end():
    assert filtered(stream(FINISH), DONE) == stream(FINISH) + DONE


def test_usage_null_or_beside_choices_is_no_usage_event():
    beside = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":8}}'
    null = b'data: {"choices":[],"usage":null}'

    assert filtered(stream(beside, null, DONE)) == stream(beside, null, DONE)


def test_endless_event_is_not_kept():
    usage_filter = ChatUsageFilter()
    usage_filter.feed(stream(FINISH))
    big = b"data: " + b"x" * MAX_EVENT_BYTES

    assert usage_filter.feed(big) == big
    assert usage_filter.feed(b"y\n\n" + stream(USAGE)) == b"y\n\n"


@pytest.mark.parametrize("before", [b"", stream(FINISH)])
def test_unfinished_event_grows_in_place_whatever_the_number_of_its_chunks(before: bytes):
    usage_filter = ChatUsageFilter()
    usage_filter.feed(before)
    kept = usage_filter._event

    given = [usage_filter.feed(chunk) for chunk in [b"data: ", *[b"x"] * 500]]

    assert usage_filter._event is kept
    assert len(kept) == 506
    assert b"".join(given) + usage_filter.close() == bytes(kept)


class CountedBytes(bytearray):
    """Counts the bytes that are looked through and copied out."""

    seen = 0

    def find(self, sub: bytes, start: int = 0) -> int:  # type: ignore[override]
        CountedBytes.seen += len(self) - start
        return super().find(sub, start)

    def __getitem__(self, key):
        CountedBytes.seen += len(range(*key.indices(len(self))))
        return super().__getitem__(key)


def test_each_chunk_is_looked_through_and_not_what_came_before():
    for given_first in (b"", stream(FINISH)):
        usage_filter = ChatUsageFilter()
        usage_filter.feed(given_first)
        usage_filter._event, CountedBytes.seen = CountedBytes(), 0

        for _ in range(2000):
            usage_filter.feed(b"x" * 5)

        assert CountedBytes.seen < 10 * 10_000


@pytest.mark.parametrize("name", ["azure_stream", "sse_crlf_split", "chat_stream_cut", "chat_stream_error_midway"])
def test_sample_passes_but_for_its_usage_event(name: str):
    body = (DATA / f"{name}.sse").read_bytes()
    end = b"\r\n\r\n" if b"\r\n" in body else b"\n\n"
    kept = [event for event in body.split(end) if b'"choices":[],' not in event or b'"usage":{' not in event]

    for size in (1, 7, len(body)):
        assert filtered(*(body[i : i + size] for i in range(0, len(body), size))) == end.join(kept)

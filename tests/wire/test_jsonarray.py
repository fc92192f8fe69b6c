import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockpin_core.wire.jsonarray import ObjectReader
from lockpin_core.wire.sse import LOST, MAX_EVENT_BYTES

TEXTS = st.text(st.sampled_from('ab{}[]",\\\n é☕'), max_size=8)
OBJECTS = st.dictionaries(TEXTS, TEXTS | st.lists(TEXTS, max_size=2) | st.dictionaries(TEXTS, TEXTS, max_size=2))


def pieces(body: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(body) + 1) for cut in cuts}), len(body)]
    return [body[start:end] for start, end in itertools.pairwise(edges)]


@given(
    objects=st.lists(OBJECTS, max_size=4),
    cuts=st.lists(st.integers(0, 10**6), max_size=6),
    indent=st.sampled_from([None, 2]),
    between=st.sampled_from([",", "\r\n,\r\n", "\n"]),
)
def test_objects_of_an_array_come_whole_however_it_is_cut(objects, cuts, indent, between):
    body = ("[" + between.join(json.dumps(one, indent=indent, ensure_ascii=False) for one in objects) + "]").encode()
    reader = ObjectReader()

    found = [event.data for piece in pieces(body, cuts) for event in reader.feed(piece)]

    assert [json.loads(data) for data in found] == objects


@given(st.lists(st.binary(max_size=12) | st.sampled_from([b"{", b"}", b'"', b"\\", b'{"']), max_size=12))
def test_any_bytes_give_the_same_in_one_piece_and_byte_by_byte(chunks: list[bytes]):
    body = b"".join(chunks)
    whole, single = ObjectReader(), ObjectReader()

    found = whole.feed(body)

    assert [event for i in range(len(body)) for event in single.feed(body[i : i + 1])] == found


@pytest.mark.parametrize("size", [1 << 20, 1 << 12])
def test_an_object_that_is_too_long_is_told_of_and_the_next_one_is_read(size: int):
    body = b'[{"a":"' + b"}" * MAX_EVENT_BYTES + b'\\""},{"b":1}]'
    reader = ObjectReader()

    found = [event for at in range(0, len(body), size) for event in reader.feed(body[at : at + size])]

    assert found == [LOST, (b"", b'{"b":1}', False)]


def test_an_object_of_just_the_longest_size_is_read():
    body = b'{"a":"' + b"x" * (MAX_EVENT_BYTES - 8) + b'"}'

    assert [len(event.data) for event in ObjectReader().feed(body)] == [MAX_EVENT_BYTES]


def test_nothing_is_kept_between_objects_or_of_what_is_too_long():
    reader = ObjectReader()

    reader.feed(b" " * 100 + b'{"a":"' + b"x" * (2 * MAX_EVENT_BYTES))

    assert len(reader._kept) == 0

import base64
import json
import timeit

from hypothesis import given
from hypothesis import strategies as st

from lockpin_core.wire.base64runs import KEPT, Base64Runs

PICTURE = base64.b64encode(bytes(range(256)) * 4000)  # more than a mebibyte


def kept(*chunks: bytes) -> bytes:
    runs = Base64Runs()
    return b"".join(map(runs.feed, chunks))


def test_of_a_picture_only_the_beginning_is_left_and_json_stays_json():
    body = b'{"b64_json": "' + PICTURE + b'", "usage": {"input_tokens": 56}}'

    found = json.loads(kept(body))

    assert found == {"b64_json": PICTURE[:KEPT].decode(), "usage": {"input_tokens": 56}}


def test_a_row_that_is_short_enough_stays():
    assert kept(b"a" * KEPT + b"," + b"b" * (KEPT + 1) + b",") == b"a" * KEPT + b"," + b"b" * KEPT + b","


def test_nothing_is_taken_out_of_what_is_no_row():
    text = ("words, and numbers: 1,234.5 \n" * 100).encode()

    assert kept(text) == text


def test_rows_that_are_a_little_too_short_take_no_longer_than_others():
    def seconds(row: int) -> float:
        chunk = (b"A" * row + b" ") * (65_536 // (row + 1))
        return min(timeit.repeat(lambda: kept(chunk), number=1, repeat=7))

    assert seconds(KEPT - 1) < 4 * seconds(15)


pieces = st.lists(
    st.sampled_from([b"", b"a", b'"', b"a" * KEPT, b"b" * (KEPT + 1), b"c" * (3 * KEPT), b"\n\n", b'": "', b"=="]),
    max_size=9,
)


@given(st.lists(pieces.map(b"".join), max_size=5))
def test_it_is_the_same_however_it_is_cut(chunks: list[bytes]):
    body = b"".join(chunks)

    assert kept(*chunks) == kept(body) == kept(*(body[at : at + 1] for at in range(len(body))))

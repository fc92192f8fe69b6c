import itertools
import zlib

import frames
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockpin_core.call import Reading
from lockpin_core.wire.eventstream import LOST, MAX_FRAME_BYTES, Frame, FrameReader, FramesScanner

# A frame as the reference of the format gives it: no headers, no payload.
EMPTY = bytes.fromhex("000000100000000005c248eb7d98c8ff")
EVENT = frames.frame("messageStart", b'{"role":"assistant"}')


def read(*chunks: bytes) -> list[Frame]:
    reader = FrameReader()
    return [frame for chunk in chunks for frame in reader.feed(chunk)]


def pieces(body: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(body) + 1) for cut in cuts}), len(body)]
    return [body[start:end] for start, end in itertools.pairwise(edges)]


def test_the_smallest_frame_is_sixteen_bytes_as_the_format_says():
    assert frames.raw_frame(b"", b"") == EMPTY
    assert read(EMPTY) == [Frame({}, b"")]


def test_a_frame_gives_its_texts_and_its_payload():
    (found,) = read(EVENT)

    assert found.headers == {
        ":event-type": "messageStart",
        ":content-type": "application/json",
        ":message-type": "event",
    }
    assert (found.payload, found.kind, found.is_fault) == (b'{"role":"assistant"}', "messageStart", False)


@pytest.mark.parametrize("message", ["exception", "error"])
def test_an_exception_and_an_error_are_faults_of_their_kind(message: str):
    (found,) = read(frames.frame("throttlingException", {"message": "x"}, message))

    assert (found.kind, found.is_fault) == ("throttlingException", True)


def test_headers_of_every_type_are_passed_over():
    values = {
        0: b"",
        1: b"",
        2: b"a",
        3: b"ab",
        4: b"abcd",
        5: b"12345678",
        6: b"\x00\x02xy",
        8: b"12345678",
        9: b"0" * 16,
    }
    headers = b"".join(b"\x01h" + bytes([kind]) + value for kind, value in values.items())

    (found,) = read(frames.raw_frame(headers + frames.header(":event-type", "é"), b"{}"))

    assert found.headers == {":event-type": "é"}


@given(
    payloads=st.lists(st.binary(max_size=40), max_size=5),
    cuts=st.lists(st.integers(0, 10**6), max_size=8),
    rest=st.integers(0, 100),
)
def test_frames_come_whole_however_they_are_cut(payloads: list[bytes], cuts: list[int], rest: int):
    whole = b"".join(frames.frame("chunk", payload) for payload in payloads)
    body = whole + EVENT[: rest % len(EVENT)]

    assert [found.payload for found in read(*pieces(body, cuts))] == payloads


@given(place=st.integers(0, len(EVENT) - 1), bit=st.integers(0, 7), cuts=st.lists(st.integers(0, 10**6), max_size=4))
def test_a_frame_with_a_single_wrong_bit_is_never_read_nor_anything_after_it(place: int, bit: int, cuts: list[int]):
    wrong = bytearray(EVENT)
    wrong[place] ^= 1 << bit
    reader = FrameReader()

    found = [one for piece in pieces(EVENT + bytes(wrong) + EVENT * 3, cuts) for one in reader.feed(piece)]

    assert [one.payload for one in found] == [b'{"role":"assistant"}']
    assert reader.is_broken
    assert reader.feed(EVENT) == []


@pytest.mark.parametrize(
    ("total", "headers"),
    [(15, 0), (16, 1), (20, 5), (1 << 28, 0), (200_000, 140_000)],
    ids=["too short", "headers beyond it", "one beyond it", "too long", "too long headers"],
)
def test_lengths_that_no_frame_has_end_the_reading(total: int, headers: int):
    start = total.to_bytes(4) + headers.to_bytes(4)
    reader = FrameReader()

    assert reader.feed(start + zlib.crc32(start).to_bytes(4) + bytes(300)) == []
    assert reader.is_broken


@pytest.mark.parametrize("headers", [b"\x05ab", b"\x01h\x07\x00\x09a", b"\x01h\x0a", b"\x01h"])
def test_headers_that_are_no_headers_end_the_reading(headers: bytes):
    reader = FrameReader()

    assert reader.feed(frames.raw_frame(headers, b"{}")) == []
    assert reader.is_broken


@pytest.mark.parametrize("size", [1 << 30, 1 << 20, 1000])
def test_a_frame_that_is_too_long_is_told_of_and_the_next_one_is_read(size: int):
    body = frames.frame("chunk", b"x" * MAX_FRAME_BYTES) + EVENT
    reader = FrameReader()
    most = 0

    found = []
    for at in range(0, len(body), size):
        found += reader.feed(body[at : at + size])
        most = max(most, len(reader._buffer))

    assert found == [LOST, *read(EVENT)]
    assert most <= 1000


@pytest.mark.parametrize("size", [1 << 30, 1000, 7919])
def test_a_frame_that_is_too_long_and_wrong_ends_the_reading(size: int):
    body = bytearray(frames.frame("chunk", b"x" * MAX_FRAME_BYTES))
    body[5000] ^= 1
    reader = FrameReader()

    assert [one for at in range(0, len(body), size) for one in reader.feed(bytes(body[at : at + size]))] == []
    assert reader.is_broken


def test_a_frame_of_just_the_longest_size_is_read():
    headers = frames.frame("chunk", b"")
    body = frames.frame("chunk", b"x" * (MAX_FRAME_BYTES - len(headers)))

    assert [len(found.payload) for found in read(body)] == [MAX_FRAME_BYTES - len(headers)]


class Kinds(list):
    def reading(self) -> Reading:
        return Reading(model=",".join(self), complete=True)


def test_a_scanner_knows_what_came_whole_and_nothing_once_a_frame_is_wrong():
    scanner = FramesScanner(Kinds(), lambda kinds, frame: kinds.append(frame.kind))

    scanner.feed(EVENT + EVENT[:-1])
    assert scanner.result() == Reading(model="messageStart", complete=True)
    scanner.feed(EVENT[-1:])
    assert scanner.result().model == "messageStart,messageStart"
    scanner.feed(b"\x00" * 16)
    assert scanner.result() == Reading(readable=False)

import base64
import io
import struct
import wave
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockpin_core.call import Image
from lockpin_core.wire.media import image_at, image_in, image_of, wav_size, wav_tokens


def text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def png(width: int, height: int) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + head
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk)) + b"\0" * 40


def jpeg(width: int, height: int, notes: int = 0) -> bytes:
    app = b"".join(b"\xff\xe1" + struct.pack(">H", 65_000) + b"x" * 64_998 for _ in range(notes))
    frame = struct.pack(">HBHHB", 17, 8, height, width, 3) + b"\x01\x22\x00\x02\x11\x01\x03\x11\x01"
    return b"\xff\xd8" + app + b"\xff\xe0\x00\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0" + b"\xff\xc0" + frame


def webp(width: int, height: int) -> bytes:
    data = b"\x2f" + struct.pack("<I", (width - 1) | ((height - 1) << 14)) + b"\0" * 20
    chunk = b"VP8L" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


@pytest.mark.parametrize("raw", [png(640, 480), jpeg(640, 480), jpeg(640, 480, notes=2), webp(640, 480)])
def test_size_of_an_image_is_read_from_its_header(raw: bytes):
    assert image_in(text(raw), "high") == Image(640, 480, "high")
    assert image_at("data:image/png;base64," + text(raw)) == Image(640, 480)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"GIF89a\x01\x00\x01\x00" + b"\0" * 40,  # its frames may be larger
        png(0, 480),
        png(640, 480)[:18],
        jpeg(640, 480, notes=9),  # the size stands too far behind
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dXXXX" + png(1, 1)[16:],
        b"<svg width='1' height='1'/>",
        b"BM" + b"\0" * 60,
        webp(640, 480)[:12] + b"VP8X" + b"\0" * 40,
    ],
)
def test_what_decoders_could_read_differently_is_of_an_unknown_size(raw: bytes):
    assert image_in(text(raw), "low") == Image(detail="low")


@pytest.mark.parametrize("url", ["https://x/y.png", None, 5, "data:image/png,abc", "data:image/png;base64,é", "data:"])
def test_address_says_nothing_of_the_size(url: object):
    assert image_at(url, 7) == Image()


def test_text_that_is_not_plainly_base64_says_nothing():
    assert image_in(text(png(640, 480))[:40] + "\n" + text(png(640, 480))[40:]) == Image()


@given(st.text(max_size=80) | st.binary(max_size=80).map(text))
def test_no_text_raises(data: str):
    assert isinstance(image_in(data), Image)
    assert wav_tokens(data) is None


def wav(seconds: float, rate: int = 16_000, channels: int = 1, width: int = 2) -> bytes:
    raw = io.BytesIO()
    with wave.open(raw, "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(width)
        sound.setframerate(rate)
        sound.writeframes(b"\1" * int(seconds * rate) * channels * width)
    return raw.getvalue()


@pytest.mark.parametrize(
    ("raw", "half_minutes"),
    [
        (wav(0.1), 1),
        (wav(29), 1),
        (wav(31), 2),
        (wav(40, rate=8_000, width=1), 2),
        (wav(20, rate=44_100, channels=2), 1),
    ],
)
def test_uncompressed_sound_is_counted_by_whole_half_minutes(raw: bytes, half_minutes: int):
    assert wav_tokens(text(raw)) == half_minutes * 30 * 64


def test_length_that_a_header_claims_counts_for_nothing():
    raw = bytearray(wav(60))
    raw[40:44] = struct.pack("<I", 2)

    assert wav_tokens(text(bytes(raw))) == 3 * 30 * 64  # the header's own bytes begin the third half minute


@pytest.mark.parametrize("place", [0, 8, 12, 20, 24, 32])
def test_sound_without_a_plain_header_has_no_bound(place: int):
    raw = bytearray(wav(1))
    raw[place : place + 4] = b"\0\0\0\0"

    assert wav_tokens(text(bytes(raw))) is None


def test_sound_with_a_second_format_has_no_bound():
    slow, fast = wav(1, rate=8_000), wav(1, rate=4_000_000)
    assert wav_tokens(text(slow[:36] + fast[12:36] + slow[36:])) is None
    assert wav_tokens(text(b"ID3" + wav(1))) is None
    assert wav_tokens({"data": "x"}) is None


def chunk(kind: bytes, data: bytes) -> bytes:
    return kind + struct.pack("<I", len(data)) + data


def with_before(*chunks: bytes) -> bytes:
    raw = wav(60)
    return raw[:12] + b"".join(chunks) + raw[12:]


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk(b"JUNK", bytes(28))],
        [chunk(b"bext", bytes(602)), chunk(b"iXML", b"<BWFXML/>\n"), chunk(b"LIST", b"INFO")],
        [chunk(b"FLLR", b"")],
    ],
)
def test_notes_may_stand_before_the_format_of_a_sound(chunks: list[bytes]):
    size = sum(map(len, chunks))
    assert wav_size(with_before(*chunks)) == (60 + -(-size // 32_000), 3 * 30 * 64)  # the notes count as sound too


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk(b"data", bytes(28))],
        [chunk(b"fact", bytes(4))],
        [chunk(b"JUNK", bytes(27))],  # some readers skip a byte more
        [chunk(b"JUNK", bytes(28))[:-2]],
        [chunk(b"JUNK", b"fmt " + bytes(24))],
        [b"JUNK\xff\xff\xff\x7f"],
    ],
)
def test_a_format_that_two_readers_may_find_elsewhere_has_no_bound(chunks: list[bytes]):
    assert wav_size(with_before(*chunks)) is None


@pytest.mark.parametrize(
    ("raw", "seconds", "half_minutes"),
    [
        (wav(0.1), 1, 1),
        (wav(30), 30, 1),
        (wav(30.01), 31, 2),
        (wav(40, rate=8_000, width=1), 40, 2),
        (wav(20, rate=44_100, channels=2), 20, 1),
    ],
)
def test_a_file_of_uncompressed_sound_is_as_long_as_its_bytes(raw: bytes, seconds: int, half_minutes: int):
    assert wav_size(raw) == (seconds, half_minutes * 30 * 64)


def test_more_bytes_than_a_header_claims_are_sound_too():
    raw = bytearray(wav(60))
    raw[40:44] = struct.pack("<I", 2)

    assert wav_size(bytes(raw)) == (60, 2 * 30 * 64)
    assert wav_size(b"ID3" + wav(1)) is None
    assert wav_size(b"") is None


def test_an_image_that_is_a_file_shows_its_size():
    assert image_of(png(640, 480)) == image_of(jpeg(640, 480)) == image_of(webp(640, 480)) == Image(640, 480)
    assert image_of(b"") == image_of(b"RIFF") == Image()

"""Target: bodies in any content-encoding unpack to what they are, or are refused; never to more than is allowed."""

import resource
import zlib

import brotli
from inputs import Choices, pieces, split
from lockpin_addons.decode import DecodeError, ReplyDecoder, decode_bounded, is_encoded, zstd

ENCODINGS = (
    *(None, "gzip", "deflate", "br", "zstd", "x-gzip", "identity", "gzip, br", "br,gzip", "GZIP", "deflate, zstd"),
    *("zstd, gzip", "identity, br", "gzip, gzip, gzip", "compress", ", ,", "gzip;q=1", "br\t"),
)
LIMITS = (1 << 16, 1 << 20, 1, 0, 100)
MOST_GROWTH_MB = 400  # of the whole process: what one input made it take


def run(data: bytes) -> None:
    head, body = split(data)
    choices = Choices(head)
    encoding, limit = choices.pick(ENCODINGS), choices.pick(LIMITS)
    body = _packed(body, choices)
    before = _peak_mb()
    try:
        found = decode_bounded(body, encoding, limit)
    except DecodeError as error:
        assert str(error)
        found = None
    else:
        assert len(found) <= limit
        assert is_encoded(encoding) or found == body
    streamed = _streamed(body, encoding, choices)
    assert found is None or streamed is None or streamed == found, "two readers of one body differ"
    assert found is None or streamed is not None, "a whole body decodes, and in pieces it does not"
    _check_oracle(body, encoding, found)
    assert _peak_mb() - before < MOST_GROWTH_MB


def _streamed(body: bytes, encoding: str | None, choices: Choices) -> bytes | None:
    decoder = ReplyDecoder(encoding)
    given = [decoder.feed(part) for part in pieces(body, choices)]
    assert all(len(part) <= ReplyDecoder.CHUNK_BYTES for part in given)
    return None if decoder.broken else b"".join(given)


def _packed(body: bytes, choices: Choices) -> bytes:
    """Pack what is read, so that whole bodies are as usual as broken ones, and bombs as usual as either."""
    kind = choices.number() % 16
    times = choices.number() % 64
    body = body * (1 << (16 if times == 63 else times % 8)) if kind and len(body) < 64 else body
    packed = body
    for pack in PACKS.get(kind, ()):
        packed = pack(packed)
    return packed[: choices.number() * 8] if choices.flag() else packed


def _brotli(body: bytes) -> bytes:
    packed: bytes = brotli.compress(body, quality=1)
    return packed


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(body) + packer.flush()


def _raw(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


def _two_members(body: bytes) -> bytes:
    return _gzip(body[: len(body) // 2]) + _gzip(body[len(body) // 2 :])


PACKS = {
    1: (zlib.compress,),
    2: (_gzip,),
    3: (_brotli,),
    4: (zstd.compress,),
    5: (_raw,),
    6: (_two_members,),
    7: (_gzip, _brotli),
    8: (_brotli, _gzip),
    9: (_raw, zstd.compress),
    10: (zstd.compress, _gzip),
}


def _check_oracle(body: bytes, encoding: str | None, found: bytes | None) -> None:
    """What came out is what the library makes of the whole, where it is one member."""
    if found is None:
        return
    if encoding in ("gzip", "x-gzip", "GZIP") and body:
        reader = zlib.decompressobj(31)
        whole = reader.decompress(body)
        assert found == whole or reader.unused_data
    elif encoding == "br":
        assert found == brotli.decompress(body)
    elif encoding == "zstd" and body:
        assert found == zstd.decompress(body)


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

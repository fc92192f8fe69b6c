"""Content decoding that is bounded and incremental: for requests it refuses, for replies it never raises.

mitmproxy's own decoding has no bound and stops after the first member of a gzip body, so what it shows could differ
from what a provider reads. zlib, brotli and zstd come with mitmproxy.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import Any, Protocol

import brotli

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX_CODINGS = 2  # "gzip, br" is unusual already


class DecodeError(Exception):
    """A body that cannot be decoded, or unpacks to more than is allowed (`too_large`)."""

    def __init__(self, message: str, *, too_large: bool = False) -> None:
        super().__init__(message)
        self.too_large = too_large


class _TooLarge(Exception):
    """More came out than was asked for."""


class _Coding(Protocol):
    @property
    def at_end(self) -> bool: ...
    def feed(self, data: bytes, max_bytes: int) -> bytes: ...


class _Zlib:
    """gzip with any number of members, and zlib or raw deflate."""

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._decoder: Any = zlib.decompressobj(31) if gzip else None

    @property
    def at_end(self) -> bool:
        return self._decoder is not None and bool(self._decoder.eof)

    def feed(self, data: bytes, max_bytes: int) -> bytes:
        out = b""
        while data:
            if self._decoder is None:
                self._decoder = zlib.decompressobj(15 if _looks_like_zlib(data) else -15)
            elif self.at_end:
                if not self._gzip:
                    raise zlib.error("data after the end")
                self._decoder = zlib.decompressobj(31)
            out += self._decoder.decompress(data, max_bytes + 1 - len(out))
            if len(out) > max_bytes:
                raise _TooLarge
            data = self._decoder.unused_data
        return out


class _Brotli:
    def __init__(self) -> None:
        self._decoder = brotli.Decompressor()

    @property
    def at_end(self) -> bool:
        return bool(self._decoder.is_finished())

    def feed(self, data: bytes, max_bytes: int) -> bytes:
        out: bytes = self._decoder.process(data, output_buffer_limit=max_bytes + 1)
        while len(out) <= max_bytes and not self._decoder.can_accept_more_data() and not self.at_end:
            more = self._decoder.process(b"", output_buffer_limit=max_bytes + 1 - len(out))
            if not more:
                break
            out += more
        if len(out) > max_bytes:
            raise _TooLarge
        return out


class _Zstd:
    def __init__(self) -> None:
        self._decoder = zstd.ZstdDecompressor()

    @property
    def at_end(self) -> bool:
        return bool(self._decoder.eof)

    def feed(self, data: bytes, max_bytes: int) -> bytes:
        out = b""
        while data or not (self._decoder.needs_input or self._decoder.eof):
            if self._decoder.eof:
                self._decoder = zstd.ZstdDecompressor()
            out += self._decoder.decompress(data, max_bytes + 1 - len(out))
            if len(out) > max_bytes:
                raise _TooLarge
            data = self._decoder.unused_data if self._decoder.eof else b""
        return out


_CODINGS: dict[str, Callable[[], _Coding]] = {
    "gzip": lambda: _Zlib(gzip=True),
    "x-gzip": lambda: _Zlib(gzip=True),
    "deflate": lambda: _Zlib(gzip=False),
    "br": _Brotli,
    "zstd": _Zstd,
}
_FAULTS = (zlib.error, brotli.error, zstd.ZstdError, EOFError, ValueError)


def is_encoded(encoding: str | None) -> bool:
    """Say whether a content-encoding header names anything but identity."""
    return bool(_names(encoding))


def decode_bounded(raw: bytes, encoding: str | None, limit_bytes: int) -> bytes:
    """Decode a whole request body. Raises DecodeError where anything is unknown, broken, cut off, or too much."""
    if len(raw) > limit_bytes:
        raise DecodeError("the body is too large", too_large=True)
    for coding in _chain(encoding):
        try:
            raw = coding.feed(raw, limit_bytes)
        except _TooLarge:
            raise DecodeError("the body unpacks to more than is allowed", too_large=True) from None
        except _FAULTS:
            raise DecodeError("the body does not decode as its content-encoding says") from None
        if not coding.at_end:
            raise DecodeError("the body ends before its content-encoding does")
    return raw


class ReplyDecoder:
    """Decodes a passing reply. Never raises: `broken` turns True and nothing more comes out."""

    CHUNK_BYTES = 16 << 20  # no provider packs more than this into one chunk

    def __init__(self, encoding: str | None) -> None:
        self.broken = False
        self._chain: list[_Coding] = []
        try:
            self._chain = _chain(encoding)
        except DecodeError:
            self.broken = True

    def feed(self, data: bytes) -> bytes:
        """Give the decoded bytes of this chunk."""
        if self.broken:
            return b""
        try:
            for coding in self._chain:
                data = coding.feed(data, self.CHUNK_BYTES)
        except (_TooLarge, *_FAULTS):
            self.broken = True
            return b""
        return data


def _names(encoding: str | None) -> list[str]:
    names = [name.strip().lower() for name in (encoding or "").split(",")]
    return [name for name in names if name and name != "identity"]


def _chain(encoding: str | None) -> list[_Coding]:
    names = _names(encoding)
    if len(names) > MAX_CODINGS:
        raise DecodeError("the body has too many content-encodings")
    for name in names:
        if name not in _CODINGS:
            raise DecodeError("the body has a content-encoding that Lockpin does not know (gzip, deflate, br, zstd)")
    return [_CODINGS[name]() for name in reversed(names)]


def _looks_like_zlib(data: bytes) -> bool:
    return data[0] & 0x0F == 8 and (len(data) < 2 or (data[0] << 8 | data[1]) % 31 == 0)

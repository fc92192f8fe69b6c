"""How many bytes a text has in UTF-8, as it is and in Unicode's NFC, which some tokenizers apply first.

A long text is measured in pieces: one call into C keeps every other thread waiting, and with them all other requests.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

PIECE = 1 << 20  # characters that are measured at once

_ASCII = re.compile(r"[\x00-\x7f]")


def utf8_size(text: str, start: int = 0, end: int | None = None) -> int:
    """Count the UTF-8 bytes of a part of a text; a lone surrogate counts as three."""
    end = len(text) if end is None else end
    if text.isascii():
        return max(0, end - start)
    return sum(_utf8(text[at : min(at + PIECE, end)]) for at in range(start, end, PIECE))


def sizes(texts: list[str]) -> tuple[int, int]:
    """Count the UTF-8 bytes of texts, and those of their NFC where it is longer."""
    as_sent = composed = 0
    for joined, separators in _joined(texts):
        size = len(joined) if joined.isascii() else _utf8(joined)
        as_sent += size - separators
        # A line feed composes with nothing, so the joined text has the same NFC as its parts.
        is_nfc = joined.isascii() or unicodedata.is_normalized("NFC", joined)
        composed += (size if is_nfc else _utf8(unicodedata.normalize("NFC", joined))) - separators
    return as_sent, max(as_sent, composed)


def _joined(texts: list[str]) -> Iterator[tuple[str, int]]:
    """Put texts together with line feeds to pieces of a fair size, and say how many line feeds."""
    if sum(map(len, texts)) <= PIECE:
        yield "\n".join(texts), max(0, len(texts) - 1)
        return
    batch: list[str] = []
    size = 0
    for part in _parts(texts):
        batch.append(part)
        size += len(part)
        if size > PIECE:
            yield "\n".join(batch), len(batch) - 1
            batch, size = [], 0
    yield "\n".join(batch), max(0, len(batch) - 1)


def _parts(texts: Iterable[str]) -> Iterator[str]:
    """Cut long texts before an ASCII character, which never composes with what stands before it."""
    for text in texts:
        start = 0
        while len(text) - start > PIECE and (cut := _ASCII.search(text, start + PIECE)):
            yield text[start : cut.start()]
            start = cut.start()
        yield text[start:] if start else text


def _utf8(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))

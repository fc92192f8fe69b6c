"""How many bytes a text has in UTF-8, as it is and in Unicode's NFC, which some tokenizers apply first.

A long text is measured in pieces: one call into C keeps every other thread waiting, and with them all other requests.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache

PIECE = 1 << 18  # characters that are measured at once

_ASCII = re.compile(r"[\x00-\x7f]")
_MOST_MARKS = 30  # in a row: no writing has more, says Unicode's Stream-Safe Text Format
_MOST_GROWTH = 3  # times that NFC can make a text's UTF-8 longer, says Unicode's annex on normalization
_MARKS_BELOW = 0x20000  # all combining characters are
_DOUBLE_MARKS = "\u0f73\u0f75\u0f81"  # no combining characters themselves, but made of nothing else


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
        composed += (size if joined.isascii() else _composed(joined, size)) - separators
    return as_sent, max(as_sent, composed)


def _composed(text: str, size: int) -> int:
    """Count the UTF-8 bytes of a text's NFC; at most that where normalizing would sort a long row of marks.

    The sort takes steps by the square of the row's length: a body of 80 KB could keep everyone waiting for seconds.
    """
    if unicodedata.is_normalized("NFC", text):
        return size
    if _row_of_marks().search(text):
        return _MOST_GROWTH * size
    return _utf8(unicodedata.normalize("NFC", text))


@cache
def _row_of_marks() -> re.Pattern[str]:
    marks = (char for char in map(chr, range(0x300, _MARKS_BELOW)) if unicodedata.combining(char))
    return re.compile(f"[{''.join(marks)}{_DOUBLE_MARKS}]{{{_MOST_MARKS + 1},}}")


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

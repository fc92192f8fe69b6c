import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.wire.textsize import PIECE, sizes, utf8_size


def whole(text: str) -> tuple[int, int]:
    sent = len(text.encode("utf-8", "surrogatepass"))
    return sent, max(sent, len(unicodedata.normalize("NFC", text).encode("utf-8", "surrogatepass")))


# Half notes grow in NFC, letters before a combining mark shrink, one mark stands just where a piece would end.
LONG = {
    "ascii": "a b\n" * PIECE,
    "grows": "x" * 3 + "\U0001d15e " * PIECE,
    "shrinks": "e\u0301" * PIECE,
    "mark at the edge": "é" * (PIECE - 1) + "e\u0301 " + "\U0001d15e" * 9,
    "no ascii": "日" * (2 * PIECE + 5),
    "surrogate": "\ud800é" * PIECE,
}


@pytest.mark.parametrize("name", LONG)
def test_long_text_in_pieces_is_as_large_as_the_whole(name: str):
    text = LONG[name]

    assert sizes([text]) == whole(text)
    assert sizes(["e", "\u0301", text, "\u0301"])[0] == whole(text)[0] + 5
    assert utf8_size(text) == whole(text)[0]


def test_many_texts_are_as_large_as_each_alone():
    texts = ["é" * 100_000, "\U0001d15e", "", "a"] * 30

    assert sizes(texts) == (30 * 200_005, 30 * 200_009)
    assert sizes([]) == (0, 0)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=30), st.integers(0, 30), st.integers(0, 30))
def test_part_of_a_text_is_measured_alone(text: str, start: int, end: int):
    start, end = sorted((min(start, len(text)), min(end, len(text))))

    assert utf8_size(text, start, end) == len(text[start:end].encode("utf-8", "surrogatepass"))

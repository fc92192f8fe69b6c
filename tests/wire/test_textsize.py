import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.wire.textsize import PIECE, _row_of_marks, sizes, utf8_size


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


def test_row_of_marks_that_sorting_would_take_long_over_is_bounded_and_not_normalized():
    for marks in ("\u0301" * 40 + "\u0323" * 40, "\u0f73" * 31, "\u0301\u0323" * 16):
        size = len(marks.encode()) + 1

        assert sizes(["e" + marks]) == (size, 3 * size)
    for marks in ("\u0301" * 15 + "\u0323" * 15, "─" * 99 + "e\u0301"):
        assert sizes(["e" + marks]) == whole("e" + marks)


def test_every_mark_counts_for_a_row():
    for char in map(chr, range(0x110000)):
        if unicodedata.combining(unicodedata.normalize("NFD", char)[0]):
            assert _row_of_marks().fullmatch(char * 31), hex(ord(char))


@pytest.mark.parametrize("code", [0x390, 0x958, 0xFB2C, 0x1D160, 0x2ADC])
def test_nfc_of_a_character_is_at_most_three_times_as_long(code: int):
    assert sizes([chr(code)])[1] <= 3 * len(chr(code).encode())

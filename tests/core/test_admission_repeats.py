import random

import pytest

from lockpin_core.admission_repeats import _SEARCHED_BYTES, _counted, _sampled

MARK = b"tool_result"


@pytest.mark.parametrize("size", [0, 10, _SEARCHED_BYTES, _SEARCHED_BYTES + 1, 3 * _SEARCHED_BYTES])
def test_marks_are_counted_piece_by_piece_as_in_the_whole(size):
    draw = random.Random(size)
    body = bytearray(b"x" * size)
    for at in (*range(-12, 2), *(draw.randrange(size + 1) for _ in range(20))):
        place = _SEARCHED_BYTES + 30 * at
        if 0 <= place <= size - len(MARK):
            body[place : place + len(MARK)] = MARK
    for at in range(_SEARCHED_BYTES - 5, size, _SEARCHED_BYTES):  # across the pieces' borders
        body[at : at + len(MARK)] = MARK
    found = bytes(body)

    assert _counted(found, MARK) == (found.count(MARK), found.find(MARK))


def test_samples_of_a_large_body_are_from_its_beginning_to_its_end():
    body = bytes(range(256)) * 4096

    found = _sampled(body)

    assert len(found) == 16 * 256
    assert found.startswith(body[:256])
    assert found.endswith(body[-256:])
    assert _sampled(b"small") == b"small"

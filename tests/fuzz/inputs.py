"""What an input of a target is: a line of choices, and below it the bytes that are read.

    0000000000000000
    {"model": "m", …

Each character of the line answers one question; "0" is always the plain answer, so that a line of zeros asks for nothing.
"""

from collections.abc import Sequence
from itertools import pairwise

from lockpin_core.usage import Unit, Usage

HEAD = 16
PLAIN = b"0" * HEAD
MOST_PIECES = 48


def split(data: bytes) -> tuple[bytes, bytes]:
    """Give the choices and the bytes that are read."""
    return data[:HEAD], data[HEAD:].removeprefix(b"\n")


def joined(head: bytes, body: bytes) -> bytes:
    return head.ljust(HEAD, b"0") + b"\n" + body


class Choices:
    """Answers questions with the characters of a line, one after the other; after the last with the plain answer."""

    def __init__(self, head: bytes) -> None:
        self._head, self._at = head, 0

    def number(self) -> int:
        """Give 0 to 255."""
        answer = (self._head[self._at] - 0x30) % 256 if self._at < len(self._head) else 0
        self._at += 1
        return answer

    def pick[T](self, options: Sequence[T]) -> T:
        return options[self.number() % len(options)]

    def flag(self) -> bool:
        return self.number() % 2 == 1

    def total(self, most: int) -> int:
        """Give a number up to this: the most, none, or a part of it."""
        answer = self.number()
        return most if answer == 0 else most * (255 - answer) // 255

    def split(self, total: int, units: Sequence[str]) -> Usage:
        """Share tokens out over two of these units."""
        answer = self.number()
        first, second = units[answer % len(units)], units[answer // len(units) % len(units)]
        part = self.total(total)
        return {Unit(first): total} if first == second else {Unit(second): total - part, Unit(first): part}


def pieces(data: bytes, cuts: Choices) -> list[bytes]:
    """Cut bytes in up to seven places, or small pieces of one size off their beginning or end."""
    size = cuts.number()
    if size % 8 == 7:
        size, few = 1 + size // 16, len(data) if len(data) <= MOST_PIECES else MOST_PIECES
        start = 0 if size % 2 else max(0, len(data) - few * size)
        places = [*range(start, min(len(data), start + few * size), size), len(data)]
        return [data[:start], *(data[at:end] for at, end in pairwise(places))]
    places = sorted({cuts.number() * 256 + cuts.number() for _ in range(size % 8)})
    ends = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(ends)]

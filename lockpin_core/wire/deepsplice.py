"""Changes values deep in a body's text; every other byte stays. Knows JSON; knows no field of any format.

A value is named by its path, as it was found in the body that was read. What lies on the way to it is walked through
once, and no further than to the last of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lockpin_core.wire.jsonbody import Body, known_decoder

type Path = tuple[str | int, ...]
"""The names of members, and the positions in lists, that lead to a value."""

type _Plan = dict[str | int, _Plan | str]

_WHITE = " \t\n\r"


def replaced(body: Body, values: Mapping[Path, str]) -> bytes:
    """Give a body's bytes with these JSON texts in the place of the values at these paths, none of which holds another.

    The body was read strictly before.
    """
    walk = _Walk(body.text, known_decoder(len(body.text)).raw_decode, len(values))
    for key, below in sorted(_planned(values).items(), key=lambda one: body.spans[str(one[0])]):
        walk.through(body.spans[str(key)][0], below)
    pieces: list[str] = []
    at = 0
    for start, end, new in walk.edits:
        pieces += (body.text[at:start], new)
        at = end
    return "".join([*pieces, body.text[at:]]).encode()


def _planned(values: Mapping[Path, str]) -> _Plan:
    """Put paths together by how they begin."""
    plan: _Plan = {}
    for path, new in values.items():
        inner = plan
        for step in path[:-1]:
            below = inner.setdefault(step, {})
            assert not isinstance(below, str), "one of the values holds another"
            inner = below
        inner[path[-1]] = new
    return plan


@dataclass(slots=True)
class _Walk:
    """A walk through a text, up to the last value that is replaced."""

    text: str
    read: Callable[[str, int], tuple[Any, int]]
    left: int  # values that are still to be found
    edits: list[tuple[int, int, str]] = field(default_factory=list)

    def through(self, at: int, plan: _Plan | str | None) -> int:
        """Walk through the value that begins there, and give the place behind it; behind the last one, any."""
        if not isinstance(plan, dict):
            _, end = self.read(self.text, at)
            if plan is not None:
                self.edits.append((at, end, plan))
                self.left -= 1
            return end
        has_names, number = self.text[at] == "{", 0
        at = self._past_white(at + 1)
        while self.left and self.text[at] not in "]}":
            step: str | int = number
            if has_names:
                step, at = self.read(self.text, at)
                at = self._past_white(self._past_white(at) + 1)  # the colon
            at = self._past_white(self.through(at, plan.get(step)))
            if self.left and self.text[at] == ",":
                at = self._past_white(at + 1)
            number += 1
        return at + 1

    def _past_white(self, at: int) -> int:
        while self.left and self.text[at] in _WHITE:
            at += 1
        return at

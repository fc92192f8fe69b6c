"""Changes values deep in a body's text; every other byte stays. Knows JSON; knows no field of any format.

A value is named by its path, as it was found in the body that was read. Only what lies on a path is read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lockpin_core.wire.jsonbody import Body, items_at, object_at

type Path = tuple[str | int, ...]
"""The names of members, and the positions in lists, that lead to a value."""

type _Edit = tuple[int, int, str]
type _Plan = dict[str | int, _Plan | str]


def replaced(body: Body, values: Mapping[Path, str]) -> bytes:
    """Give a body's bytes with these JSON texts in the place of the values at these paths, none of which holds another.

    The body was read strictly before.
    """
    pieces: list[str] = []
    text, at = body.text, 0
    for start, end, new in sorted(_edits(body, _planned(values))):
        pieces += (text[at:start], new)
        at = end
    return "".join([*pieces, text[at:]]).encode()


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


def _edits(body: Body, plan: _Plan) -> Iterator[_Edit]:
    for key, below in plan.items():
        assert isinstance(key, str), "an object has no positions"
        yield from _edit(body.text, *body.spans[key], below)


def _edit(text: str, start: int, end: int, plan: _Plan | str) -> Iterator[_Edit]:
    if isinstance(plan, str):
        yield start, end, plan
    elif text[start] == "{":
        yield from _edits(object_at(text, start), plan)
    else:
        numbers = [step for step in plan if isinstance(step, int)]
        spans = items_at(text, start, 1 + max(numbers))
        for number in numbers:
            yield from _edit(text, *spans[number], plan[number])

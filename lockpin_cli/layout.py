"""How wide the columns of a view are on a terminal, and which are left out where it is narrow. Knows no drawing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lockpin_cli.output import View, breadth, plain

GAP = 2  # spaces between columns
_NAME = 6  # cells in which a name may fold inside
_PART = re.compile(r"[^-_:@./]+[-_:@./]*|[-_:@./]+")  # of a name


@dataclass(frozen=True, slots=True)
class Layout:
    """A view with the columns that are shown, how wide each is, the titles of the others, and whether texts fold."""

    view: View
    widths: Sequence[int]
    left_out: Sequence[str]
    is_folded: bool


def fit(view: View, room: int) -> Layout:
    """Lay a view out in so many cells of a terminal.

    Texts and titles fold at their spaces first. Then the columns that are most to spare are left out, then names fold
    inside, where that is enough; in a view that `folds` the other way round. No amount, name or id is cut: what is
    too wide even so stays too wide.
    """
    every = _by_column(view)
    least = [_least(cells, whole=c.right or c.whole) for c, cells in zip(view.columns, every, strict=True)]
    kept = list(range(len(view.columns)))
    if view.folds and _total(least) > room:
        least = [_least_folded(view, place, width) for place, width in enumerate(least)]
    while _total([least[place] for place in kept]) > room:
        spare = max(kept, key=lambda place: (view.columns[place].spare, place))
        if not view.columns[spare].spare:
            break
        kept.remove(spare)
    if _total([least[place] for place in kept]) > room:
        least = _folded(view, kept, least, room)
    left_out = [column.title for place, column in enumerate(view.columns) if place not in kept]
    most = [max(map(breadth, every[place])) for place in kept]
    whole = sum(most)
    if view.folds and _total(most) > room:
        tight = [view.columns[place].tight for place in kept]
        most = [least[place] if is_tight else width for place, width, is_tight in zip(kept, most, tight, strict=True)]
    widths = _narrowed(most, [least[place] for place in kept], room)
    return Layout(_part(view, kept), widths, left_out, whole > sum(widths))


def is_whole(view: View, room: int) -> bool:
    """Say whether a view fits with all its columns and no folded text."""
    layout = fit(view, room)
    return not layout.left_out and not layout.is_folded


def folded(text: str, width: int) -> str:
    """Write the words of a text that are too long for a width in lines of it: by their parts ("team-", "monthly"),
    where that takes no more lines than cutting them anywhere does.
    """
    return " ".join(_in_parts(word, width) if breadth(word) > width else word for word in text.split(" "))


def _in_parts(word: str, width: int) -> str:
    lines = [""]
    for part in _PART.findall(word):
        if breadth(lines[-1] + part) > width and lines[-1]:
            lines.append("")
        lines[-1] += part
    is_short = all(breadth(line) <= width for line in lines)
    return "\n".join(lines) if is_short and len(lines) <= -(-breadth(word) // width) else word


def _folded(view: View, kept: Sequence[int], least: list[int], room: int) -> list[int]:
    """Give the least widths where names fold inside; as they were where that is not enough."""
    folded = [_least_folded(view, place, width) for place, width in enumerate(least)]
    return folded if _total([folded[place] for place in kept]) <= room else least


def _least_folded(view: View, place: int, width: int) -> int:
    column = view.columns[place]
    return width if column.right or column.whole or column.tight else min(width, _NAME)


def _narrowed(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Take from the widest column that can give, cell by cell, until all have room or none can give more."""
    widths = list(widths)
    while _total(widths) > room:
        able = [place for place, width in enumerate(widths) if width > least[place]]
        if not able:
            break
        widths[max(able, key=lambda place: widths[place])] -= 1
    return widths


def _by_column(view: View) -> list[list[str]]:
    lines = [[column.title for column in view.columns], *view.cells, *([view.foot] if view.foot else [])]
    return [[plain(line[place]) for line in lines] for place in range(len(view.columns))]


def _least(cells: Sequence[str], *, whole: bool) -> int:
    """Give the least width of a column, of whose cells the first is the title: of texts the longest word."""
    title, *rest = cells
    return max([_longest(title), *(breadth(cell) if whole else _longest(cell) for cell in rest)])


def _longest(text: str) -> int:
    return max(map(breadth, text.split()), default=0)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _part(view: View, kept: Sequence[int]) -> View:
    if len(kept) == len(view.columns):
        return view
    columns, foot = [view.columns[place] for place in kept], [view.foot[place] for place in kept] if view.foot else ()
    return replace(view, columns=columns, cells=[[row[place] for place in kept] for row in view.cells], foot=foot)

"""Tables on a terminal, drawn by rich. Knows how a view looks, not what it says."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lockpin_cli.output import View, breadth, plain

_GAP = 2  # spaces between columns
_NOTHING = "-"  # a cell without a value


def draw(view: View) -> None:
    """Print a view's rows to standard output, as wide as the terminal where that cuts nothing."""
    console = Console(file=sys.stdout, highlight=False, emoji=False, markup=False)
    # Texts may fold at their spaces. What is still too wide for a terminal it wraps itself, as it does without rich.
    console.width = max(console.width, sum(_least(view)) + _GAP * (len(view.columns) - 1))
    console.print(table_of(view))


def table_of(view: View) -> Table:
    """Make a view's table: numbers right and whole, titles and sums bold, what is empty dim."""
    table = Table(
        box=box.SIMPLE, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0), show_footer=bool(view.foot),
        header_style="bold", footer_style="bold",
    )  # fmt: skip
    feet = view.foot or [""] * len(view.columns)
    for column, foot, least in zip(view.columns, feet, _least(view), strict=True):
        table.add_column(
            column.title, footer=Text(plain(foot)), justify="right" if column.right else "left",
            no_wrap=column.right, overflow="fold", min_width=least,
        )  # fmt: skip
    tones: Sequence[str] = view.tones or [""] * len(view.cells)
    for row, tone in zip(view.cells, tones, strict=True):
        table.add_row(*(Text(plain(cell), style="dim" if cell == _NOTHING else "") for cell in row), style=tone or None)
    return table


def _least(view: View) -> list[int]:
    """Give the least width of each column: of numbers the whole, of texts the longest word."""
    lines = [[column.title for column in view.columns], *view.cells, *([view.foot] if view.foot else [])]
    return [max(_longest(plain(line[place]), whole=c.right) for line in lines) for place, c in enumerate(view.columns)]


def _longest(cell: str, *, whole: bool) -> int:
    return breadth(cell) if whole else max(map(breadth, cell.split()), default=0)

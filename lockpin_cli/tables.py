"""Tables on a terminal, drawn by rich. Knows how a view looks, not what it says."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lockpin_cli.layout import GAP, Layout, folded
from lockpin_cli.output import plain

_NOTHING = "-"  # a cell without a value


def draw(layout: Layout, *, colours: bool) -> None:
    """Print a view's rows to standard output. What is too wide for a terminal it wraps itself, as without rich."""
    plainly = None if colours else False
    console = Console(file=sys.stdout, highlight=False, emoji=False, markup=False, force_terminal=plainly)
    console.width = sum(layout.widths) + GAP * len(layout.widths)
    console.print(table_of(layout))


def table_of(layout: Layout) -> Table:
    """Make a view's table: numbers right and whole, titles and sums bold, what is empty dim."""
    view = layout.view
    table = Table(
        box=box.SIMPLE, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0), show_footer=bool(view.foot),
        header_style="bold", footer_style="bold",
    )  # fmt: skip
    feet = view.foot or [""] * len(view.columns)
    for column, foot, width in zip(view.columns, feet, layout.widths, strict=True):
        table.add_column(
            column.title, footer=Text(plain(foot)), justify="right" if column.right else "left", overflow="fold",
            width=width,
        )  # fmt: skip
    tones: Sequence[str] = view.tones or [""] * len(view.cells)
    for row, tone in zip(view.cells, tones, strict=True):
        texts = [
            plain(cell) if column.right else folded(plain(cell), width)
            for cell, column, width in zip(row, view.columns, layout.widths, strict=True)
        ]
        table.add_row(*(Text(text, style="dim" if text == _NOTHING else "") for text in texts), style=tone or None)
    return table

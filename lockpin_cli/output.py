"""How commands print what they found: a table for people, JSON, CSV or JSON lines for programs. Knows no ledger."""

from __future__ import annotations

import contextlib
import enum
import os
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from lockpin_core.jsontext import dumps
from lockpin_core.secret_forms import without_secrets


class Format(enum.StrEnum):
    """What `--format` allows."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    JSONL = "jsonl"


FormatOption = Annotated[
    Format, typer.Option("--format", "--output", help="table for people; json, csv or jsonl for programs.")
]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table; numbers stand right and never fold.

    The more `spare`, the sooner a narrow terminal goes without it.
    """

    title: str
    right: bool = False
    spare: int = 0  # 0: it is always there
    whole: bool = False  # a text that is copied, and never folds
    tight: bool = False  # in a view that `folds` its words stand below each other before another column gives way


@dataclass(frozen=True, slots=True)
class View:
    """One answer in all its forms. Cells are text; `records` are JSON-ready and all have the same keys.

    Records may come one by one, as they are read; then they are printed so, and are there once.
    """

    columns: Sequence[Column]
    cells: Sequence[Sequence[str]]
    records: Iterable[Mapping[str, object]]
    fields: Sequence[str]  # the keys of a record, for a CSV without rows too
    document: object = None  # the whole JSON answer; None: the array of records
    foot: Sequence[str] = ()  # cells of a last line that adds up
    notes: Sequence[str] = ()  # sentences below the table
    empty: str = "nothing yet"  # what to say where there are no rows
    folds: bool = False  # on a narrow terminal names fold inside before a column is left out
    tones: Sequence[str] = ()  # of the rows, in rich's words, for terminals with colours: "red", "yellow" or ""


def show(view: View, form: Format) -> None:
    """Print a view to standard output."""
    match form:
        case Format.TABLE:
            _show_table(view)
        case Format.JSON:
            if view.document is None:
                _show_array(view.records)
            else:
                print(dumps(view.document))
        case Format.JSONL:
            for record in view.records:
                print(dumps(record))
        case Format.CSV:
            _show_csv(view)


def plain(text: str) -> str:
    """Make text from outside fit for a terminal: what does not print is written as an escape."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def say(words: str) -> None:
    """Say one line on standard error, where it is in no program's way; no secret is ever in it."""
    line = plain(without_secrets(" ".join(words.split())))  # a key lands in an argument by a slip of the hand
    with contextlib.suppress(OSError):  # what cannot be said there must not undo what is done
        print(line if line.startswith("lockpin") else f"lockpin: {line}", file=sys.stderr)


def _show_table(view: View) -> None:
    """Print aligned lines; on a terminal with rules and colours, in a pipe without anything to strip."""
    notes = list(view.notes)
    if not view.cells:
        print(plain(view.empty))
    elif (room := terminal_columns()) is None:
        _show_lines(view)
    else:
        notes += _show_fitted(view, room)
    for note in notes:
        print(plain(note))


def _show_fitted(view: View, room: int) -> list[str]:
    """Print a table as wide as the terminal at most; say what is not in it."""
    from lockpin_cli.layout import fit  # for terminals only: a pipe must get its answer fast

    layout = fit(view, room)
    if has_colours() or layout.is_folded:
        from lockpin_cli.tables import draw

        draw(layout, colours=has_colours())
    else:
        _show_lines(layout.view)
    titles = ", ".join(layout.left_out)
    return [f"no room for {titles}; a wider terminal, or --format csv, shows all"] if titles else []


def terminal_columns() -> int | None:
    """Give the columns of the terminal that standard output is; None: it is none, or does not say."""
    if not sys.stdout.isatty():
        return None
    told = os.environ.get("COLUMNS", "")
    if told.isascii() and told.isdigit() and 0 < len(told) < 6:
        return int(told) or None
    with contextlib.suppress(OSError):
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    return None


def has_colours() -> bool:
    """Say whether standard output is a terminal whose user wants colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("", "dumb")


def _show_lines(view: View) -> None:
    lines = [[column.title for column in view.columns], *([plain(cell) for cell in row] for row in view.cells)]
    if view.foot:
        lines.append([plain(cell) for cell in view.foot])
    widths = [max(breadth(line[place]) for line in lines) for place in range(len(view.columns))]
    for line in lines:
        padded = (_pad(cell, width, column) for cell, width, column in zip(line, widths, view.columns, strict=True))
        print("  ".join(padded).rstrip())


def _show_array(records: Iterable[Mapping[str, object]]) -> None:
    before = "["
    for record in records:
        sys.stdout.write(before + dumps(record))
        before = ","
    print("[]" if before == "[" else "]")


def _show_csv(view: View) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(view.fields)
    for record in view.records:
        writer.writerow([_csv_cell(record[name]) for name in view.fields])


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    return plain(value) if isinstance(value, str) else dumps(value)


def _pad(cell: str, width: int, column: Column) -> str:
    space = " " * (width - breadth(cell))
    return space + cell if column.right else cell + space


def breadth(text: str) -> int:
    """Count terminal cells: wide East Asian characters take two, combining marks none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )

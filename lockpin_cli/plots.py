"""What was spent as a picture in the terminal, drawn by plotext: a bar for each key, days along a time axis.

Amounts go to it as nanodollars; what is written beside them are our own exact words.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

import plotext  # type: ignore[import-untyped]

from lockpin_cli.output import breadth, has_colours, plain
from lockpin_core.money import ZERO, Money
from lockpin_core.readers.figures import aligned

_DAY = timedelta(days=1)
_NARROWEST, _USUAL_WIDTH, _WIDEST, _DAYS_HEIGHT = 40, 80, 160, 16  # of a picture, in characters
_KEY_MAX = 40  # characters of a key
_MARKS = 5  # amounts along an axis, at most
_DAY_WIDTH = 12  # characters that a day's name takes along the axis, with room between
_FRAME = 2  # lines above and below the bars
_DRAWN, _COLOURED = re.compile("[\u2580-\u259f]+"), "\x1b[36m\\g<0>\x1b[0m"
# For streams without such signs.
_PLAIN = dict(zip(map(ord, "─│┌┐└┘├┤┬┴┼…"), "-|+++++++++.", strict=True)) | dict.fromkeys(range(0x2580, 0x25A0), "#")


def bars(spent: Sequence[tuple[str, Money]]) -> str:
    """Draw a bar for each key, in the order given, the first on top."""
    keys = [_shortened(plain(key)) for key, _ in spent]
    amounts = aligned([amount for _, amount in spent], up=True)
    longest, widest = max(map(breadth, keys)), max(map(len, amounts))
    labels = [
        f"{key}{' ' * (longest - breadth(key))}  {amount:>{widest}} " for key, amount in zip(keys, amounts, strict=True)
    ]
    figure = _figure(len(spent) + _FRAME + 1)
    places = [len(spent) - place for place in range(len(spent))]
    nanos = [max(amount, ZERO).nano for _, amount in spent]
    figure.draw(figure.bar(places, nanos, orientation="h", width=0.1, marker="full"))
    figure.ruler("y").ticks(places, labels)
    figure.ruler("y").lim(0.5, len(spent) + 0.5)
    _mark(figure, "x", max(nanos))
    return _text(figure)


def days(spent: Sequence[tuple[str, Money]]) -> str:
    """Draw days along a time axis, from the first to the last; a day without a call is a day without spend."""
    by_day = {date.fromisoformat(day): max(amount, ZERO).nano for day, amount in spent}
    first, last = min(by_day), max(by_day)
    every = [first + place * _DAY for place in range((last - first).days + 1)]
    nanos = [by_day.get(day, 0) for day in every]
    figure = _figure(_DAYS_HEIGHT)
    places = list(range(len(every)))
    if 2 * len(every) <= _width():
        figure.draw(figure.bar(places, nanos, width=0.6, marker="full"))
    else:
        figure.draw(figure.signal(places, nanos).lines())
    step = -(-len(every) * _DAY_WIDTH // _width())
    figure.ruler("x").ticks(places[::step], [every[place].isoformat() for place in places[::step]])
    _mark(figure, "y", max(nanos))
    return _text(figure)


def steps(most: int) -> list[int]:
    """Give round amounts from nothing to `most` nanodollars, few enough to be written along an axis."""
    size = 1
    while most > size * (_MARKS - 1):
        digits = str(size)
        size = size * 5 // 2 if digits[0] == "2" else size * 2
    return list(range(0, most + 1, size))


def _figure(height: int) -> Any:
    plotext.terminal.limit(False, False)  # the width is ours, and a terminal scrolls
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")  # the others paint the background
    figure.plot_size(_width(), height)
    return figure


def _mark(figure: Any, axis: str, most: int) -> None:
    found = steps(most)
    figure.ruler(axis).ticks(found, [f"{label}" for label in aligned([Money(nano) for nano in found], up=True)])
    figure.ruler(axis).lim(0, max(most, 1))


def _width() -> int:
    told = os.environ.get("COLUMNS", "")
    wide = int(told) if told.isascii() and told.isdigit() and len(told) < 6 else _USUAL_WIDTH
    if sys.stdout.isatty() and not told:
        with contextlib.suppress(OSError):
            wide = os.get_terminal_size(sys.stdout.fileno()).columns
    return min(max(wide, _NARROWEST), _WIDEST)


def _shortened(key: str) -> str:
    return key if len(key) <= _KEY_MAX else f"{key[: _KEY_MAX - 1]}…"


def _text(figure: Any) -> str:
    drawn: str = figure.build().string(colorless=True)
    try:
        drawn.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        drawn = drawn.translate(_PLAIN)
    lines = [line.rstrip() for line in drawn.splitlines()]
    return "\n".join(_DRAWN.sub(_COLOURED, line) if has_colours() else line for line in lines)

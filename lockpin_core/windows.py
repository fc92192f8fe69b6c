"""Windows of budgets: pure calendar arithmetic and how a window is written. Ends of spans are aware UTC."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # slow to import, and most commands need no clocks of a zone
    from zoneinfo import ZoneInfo

KINDS = ("lifetime", "day", "week", "month", "rolling")
MIN_PERIOD_MS, MAX_PERIOD_MS = 3_600_000, 2160 * 3_600_000  # of a rolling window: 1h to 2160h
STEPS = 48  # to a rolling period

_DAY, _SECOND = timedelta(days=1), timedelta(seconds=1)
_LONGEST = {"day": _DAY, "week": 7 * _DAY, "month": 31 * _DAY}
_UNITS_MS = (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
_ROLLING = re.compile(r"rolling:([1-9][0-9]{0,9})")


@dataclass(frozen=True, slots=True)
class Window:
    """The rhythm of a budget. A calendar window starts when the clocks of `zone` reach a wall time, or pass it by."""

    kind: str  # one of KINDS
    zone: str = "UTC"
    at: int = 0  # minutes after midnight at which day, week (on Monday) and month start
    anchor: int = 1  # the day on which a month starts; in a shorter month its last day
    period_ms: int = 0  # of rolling only


@dataclass(frozen=True, slots=True)
class WindowSpan:
    """One window: from `start` up to, not including, `end`; both None where nothing starts anew."""

    start: datetime | None
    end: datetime | None


LIFETIME = WindowSpan(None, None)


def span_at(window: Window, now: datetime) -> WindowSpan:
    """Find the span that holds the instant `now` (aware); LIFETIME where the window has no fixed ends."""
    if window.kind in ("lifetime", "rolling"):
        return LIFETIME
    clock = now.astimezone(_zone(window)).replace(tzinfo=None, fold=0)
    day = _start_by(window, clock.date())
    if _wall(window, day) > clock:
        day = _start_by(window, day - _DAY)
    start, end = _reached(window, day), _reached(window, day := _next_start(window, day))
    while end <= now:  # the clocks went back behind a start that had come already
        start, end = end, _reached(window, day := _next_start(window, day))
    return WindowSpan(start, end)


def leaves_at(at_us: int, period_ms: int) -> int:
    """Say when a spend at `at_us` leaves a rolling window, both in microseconds since 1970.

    That is the first multiple of a forty-eighth of the period at or after `at_us` + period, taken up to a whole
    microsecond: a spend counts for the whole period, and for at most a forty-eighth more.
    """
    period_us = period_ms * 1000
    step = _ceil(STEPS * (at_us + period_us), period_us)
    return _ceil(step * period_us, STEPS)


def key_of(window: Window, span: WindowSpan) -> str:
    """Name a span within its budget: "" of a lifetime, "~MS", "START" of 24 hours, else "START/END"."""
    if window.kind == "rolling":
        return f"~{window.period_ms}"
    if span.start is None or span.end is None:
        return ""
    start = _stamp(span.start)
    return start if span.end - span.start == _DAY else f"{start}/{_stamp(span.end)}"


def kind_text(window: Window) -> str:
    """Write kind and period as a ledger keeps them: "day", "rolling:86400000"."""
    return f"rolling:{window.period_ms}" if window.kind == "rolling" else window.kind


def named(text: str, base: Window) -> Window:
    """Read `kind_text` back; zone, time of day and anchor are those of `base`. Raises ValueError for other words."""
    if text in KINDS and text != "rolling":
        return replace(base, kind=text, period_ms=0)
    match = _ROLLING.fullmatch(text)
    if match is None or not MIN_PERIOD_MS <= int(match[1]) <= MAX_PERIOD_MS:
        raise ValueError(f"no window is called {text!r}")
    return replace(base, kind="rolling", period_ms=int(match[1]))


def shown(window: Window) -> str:
    """Write a window for people: "day", "rolling 24h"."""
    return f"rolling {period_text(window)}" if window.kind == "rolling" else window.kind


def period_text(window: Window) -> str:
    """Write how long a window is: its kind, or the period in the longest unit up to hours that is whole: "24h"."""
    if window.kind != "rolling":
        return window.kind
    return duration_text(window.period_ms)


def duration_text(period_ms: int) -> str:
    """Write a duration in the longest unit up to hours that is whole: "24h", "90s"."""
    unit, unit_ms = next((unit, ms) for unit, ms in _UNITS_MS if period_ms % ms == 0)
    return f"{period_ms // unit_ms}{unit}"


def _start_by(window: Window, day: date) -> date:
    """Find the last day up to this one on which a window starts."""
    match window.kind:
        case "day":
            return day
        case "week":
            return day - day.weekday() * _DAY
    start = _anchored(window, day.year, day.month)
    if start <= day:
        return start
    before = day.replace(day=1) - _DAY
    return _anchored(window, before.year, before.month)


def _next_start(window: Window, day: date) -> date:
    return _start_by(window, day + _LONGEST[window.kind])


def _anchored(window: Window, year: int, month: int) -> date:
    from calendar import monthrange

    return date(year, month, min(window.anchor, monthrange(year, month)[1]))


def _wall(window: Window, day: date) -> datetime:
    return datetime.combine(day, time(*divmod(window.at, 60)))


def _reached(window: Window, day: date) -> datetime:
    """Give the first instant at which the clocks show the day's wall time or a later one.

    Of a time that they show twice it is the first; of one that they leave out, the first instant after the gap.
    """
    zone, wall = _zone(window), _wall(window, day)
    instant = wall.replace(tzinfo=zone).astimezone(UTC)
    if _shows(zone, instant) == wall:
        return instant
    # In a gap the later offset (fold=1) gives an instant before the gap, the earlier one an instant after it.
    low, high = wall.replace(tzinfo=zone, fold=1).astimezone(UTC), instant
    while high - low > _SECOND:
        middle = low + (high - low) // _SECOND // 2 * _SECOND
        low, high = (middle, high) if _shows(zone, middle) < wall else (low, middle)
    return high


def _zone(window: Window) -> ZoneInfo:
    from zoneinfo import ZoneInfo

    return ZoneInfo(window.zone)


def _shows(zone: ZoneInfo, instant: datetime) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)


@lru_cache(maxsize=256)
def _stamp(instant: datetime) -> str:
    """Write an instant of UTC; it runs for every account of every call, and few are in force at a time."""
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")

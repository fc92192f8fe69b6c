"""Windows of budgets: pure calendar arithmetic. Spans are half-open, their ends aware UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

KINDS = ("lifetime", "day")


@dataclass(frozen=True, slots=True)
class Window:
    """The rhythm of a budget: `kind` is one of KINDS, calendar kinds turn at midnight of `zone`."""

    kind: str
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class WindowSpan:
    """One window: from `start` up to, not including, `end`; both None for a lifetime."""

    start: datetime | None
    end: datetime | None


LIFETIME = WindowSpan(None, None)


def span_at(window: Window, now: datetime) -> WindowSpan:
    """Find the span that holds the instant `now` (aware)."""
    if window.kind == "lifetime":
        return LIFETIME
    today = now.astimezone(ZoneInfo(window.zone)).date()
    return WindowSpan(_midnight(today, window.zone), _midnight(today + timedelta(days=1), window.zone))


def _midnight(day: date, zone: str) -> datetime:
    """Give the first instant of a local day in UTC; where midnight does not exist, the first instant after the gap."""
    local = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone))
    instant = local.astimezone(UTC)
    if instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None) == local.replace(tzinfo=None):
        return instant
    return _first_instant_of(day, zone, instant)


def _first_instant_of(day: date, zone: str, near: datetime) -> datetime:
    low, high = near - timedelta(hours=26), near + timedelta(hours=26)
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) // 2
        if middle.astimezone(ZoneInfo(zone)).date() < day:
            low = middle
        else:
            high = middle
    return high.replace(microsecond=0)

"""Windows against slow references: a clock on the wall read minute by minute, and a walk over a rolling window's steps."""

import math
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

from hypothesis import example, given, settings
from hypothesis import strategies as st

from lockpin_core.windows import Window, WindowSpan, key_of, leaves_at, span_at

HOUR_MS = 3_600_000
CALENDAR = ("day", "week", "month")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


# The slow reference: look at the clock on the wall minute by minute, where it changes second by second.


def reference(window: Window, now: datetime) -> WindowSpan:
    around = [now.date() + timedelta(days=days) for days in range(-65, 66)]
    walls = [datetime(d.year, d.month, d.day, *divmod(window.at, 60), tzinfo=UTC) for d in around if starts(window, d)]
    past = max(wall for wall in walls if wall < now - timedelta(days=3))  # whatever the zone
    ahead = min(wall for wall in walls if wall > now + timedelta(days=3))
    instants = [first_shown(window.zone, wall) for wall in walls if past <= wall <= ahead]
    return WindowSpan(max(t for t in instants if t <= now), min(t for t in instants if t > now))


def starts(window: Window, day: date) -> bool:
    match window.kind:
        case "day":
            return True
        case "week":
            return day.strftime("%a") == "Mon"
    is_last = (day + timedelta(days=1)).day == 1
    return day.day == window.anchor or (is_last and day.day < window.anchor)


def first_shown(zone: str, wall: datetime) -> datetime:
    """Find the first second at which the zone's clock shows `wall` (given as if it were UTC) or a later time."""
    instant, clock = wall - timedelta(hours=26), ZoneInfo(zone)

    def is_reached(seconds: int) -> bool:
        shows = (instant + timedelta(seconds=seconds)).astimezone(clock)
        return (*shows.timetuple()[:6],) >= (*wall.timetuple()[:6],)

    minute = next(m for m in range(52 * 60) if is_reached(m * 60))
    second = next(s for s in range((minute - 1) * 60, minute * 60 + 1) if is_reached(s))
    return instant + timedelta(seconds=second)


ZONES = st.sampled_from(sorted(available_timezones()))
WINDOWS = st.builds(
    Window,
    st.sampled_from(CALENDAR),
    ZONES,
    at=st.integers(0, 1439) | st.sampled_from([0, 60, 120, 150, 180]),
    anchor=st.integers(1, 31),
)
BEGIN, OVER = at("1971-01-04T00:00Z"), at("2037-12-28T00:00Z")
INSTANTS = st.integers(0, (OVER - BEGIN) // timedelta(microseconds=1)).map(
    lambda us: BEGIN + timedelta(microseconds=us)
)


@st.composite
def near_a_change(draw: st.DrawFn) -> tuple[Window, datetime]:
    """Draw a window and an instant within three days of a change of its zone's clocks, where the year has one."""
    window, now = draw(WINDOWS), draw(INSTANTS)
    zone = ZoneInfo(window.zone)
    offsets = [(day, day.astimezone(zone).utcoffset()) for day in (now + timedelta(days=n) for n in range(366))]
    changes = [after for (_, before), (after, offset) in pairwise(offsets) if offset != before]
    near = draw(st.sampled_from(changes)) if changes else now
    return window, near + timedelta(seconds=draw(st.integers(-3 * 86400, 2 * 86400)))


@st.composite
def near_a_month_end(draw: st.DrawFn) -> tuple[Window, datetime]:
    """Draw a window of a month that starts on its 28th to 31st, and an instant near the last days of some month."""
    window = Window("month", draw(ZONES), at=draw(st.integers(0, 1439) | st.just(0)), anchor=draw(st.integers(28, 31)))
    first = datetime(draw(st.integers(1971, 2037)), draw(st.integers(1, 12)), 1, tzinfo=UTC)
    return window, first + timedelta(seconds=draw(st.integers(-5 * 86400, 2 * 86400) | st.integers(-1, 1)))


@settings(max_examples=150, deadline=None)
@given(st.tuples(WINDOWS, INSTANTS) | near_a_change() | near_a_month_end())
@example((Window("day", "America/Sao_Paulo"), at("2018-02-18T01:30Z")))  # 23:00 to 24:00 ran twice
@example((Window("day", "America/Havana"), at("2026-11-01T04:30Z")))  # 00:00 to 01:00 ran twice
@example((Window("week", "Pacific/Apia", 720), at("2011-12-30T10:00Z")))
@example((Window("day", "Africa/Monrovia", 30), at("1972-01-07T01:00Z")))  # 44:30 minutes were left out
def test_a_span_is_what_a_clock_on_the_wall_says(drawn):
    window, now = drawn

    assert span_at(window, now) == reference(window, now)


@settings(max_examples=600, deadline=None)
@given(st.tuples(WINDOWS, INSTANTS) | near_a_change() | near_a_month_end())
def test_spans_hold_their_instant_and_join_without_gap(drawn):
    window, now = drawn
    span = span_at(window, now)

    assert span.start <= now < span.end
    assert span_at(window, span.start) == span
    assert span_at(window, span.end - timedelta(microseconds=1)) == span
    assert span_at(window, span.end).start == span.end
    assert span_at(window, span.start - timedelta(microseconds=1)).end == span.start


@settings(max_examples=300, deadline=None)
@given(near_a_change() | near_a_month_end(), st.sampled_from(CALENDAR), st.integers(0, 40 * 86400))
def test_two_windows_have_one_key_only_where_they_are_one_span(drawn, kind, seconds):
    window, now = drawn
    one = span_at(window, now)
    others = (window, replace(window, kind=kind), replace(window, at=(window.at + 1) % 1440), replace(window, anchor=1))

    for other in others:
        another = span_at(other, now + timedelta(seconds=seconds))
        assert (key_of(window, one) == key_of(other, another)) == (one == another)


PERIODS = st.integers(HOUR_MS, 2160 * HOUR_MS) | st.integers(1, 2160).map(lambda hours: hours * HOUR_MS)
MOMENTS = st.integers(0, 2**52)  # microseconds since 1970, to the year 2112


@given(MOMENTS, PERIODS)
@example(0, HOUR_MS)
@example(1, HOUR_MS + 1)  # a forty-eighth is 75,000,020 microseconds and five sixths
def test_a_step_is_a_multiple_of_a_forty_eighth_exactly(when, period_ms):
    period = Fraction(period_ms) * 1000
    multiples = (when + period) / (period / 48)

    assert leaves_at(when, period_ms) == math.ceil(math.ceil(multiples) * period / 48)
    assert period <= leaves_at(when, period_ms) - when < period + period / 48 + 1


@given(
    PERIODS,
    MOMENTS,
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 60)), min_size=1, max_size=80),
    st.integers(0, 60),
)
def test_no_stretch_of_the_period_sees_more_than_the_limit(period_ms, now, wishes, jitter):
    """Spend as often as the rule lets, at gaps of a hundredth of the period: the whole of it, wherever it begins."""
    passed: list[tuple[int, int]] = []
    for gap, amount in wishes:
        now += gap * period_ms * 10 + jitter * (gap % 2)
        counted = sum(spent for when, spent in passed if leaves_at(when, period_ms) > now)
        if counted + amount <= 100:
            passed.append((now, amount))
        else:
            # What is refused finds the limit used in a stretch that is longer by a step at the most.
            stretch = period_ms * 1000 * 49 // 48 + 1
            assert sum(spent for when, spent in passed if now - stretch <= when) + amount > 100

    for begin, _ in passed:
        assert sum(spent for when, spent in passed if begin <= when < begin + period_ms * 1000) <= 100


@given(PERIODS.filter(lambda ms: ms <= 100 * HOUR_MS), MOMENTS, st.integers(0, 10**6))
def test_a_spend_leaves_where_a_walk_over_the_steps_ends(period_ms, when, parts):
    """Walk from step to step, each the exact forty-eighth of the period, until one is a whole period after the spend."""
    when -= when % (period_ms * 1000 // 48) * (parts % 2)  # near a step as often as not
    period, step = Fraction(period_ms * 1000), Fraction(period_ms * 1000, 48)
    at = (Fraction(when) // step) * step  # the last step at or before it
    while at < when + period:
        at += step

    assert leaves_at(when, period_ms) == math.ceil(at)
    assert leaves_at(when + 1, period_ms) >= leaves_at(when, period_ms)

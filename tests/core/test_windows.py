from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from lockpin_core.windows import (
    KINDS,
    LIFETIME,
    Window,
    WindowSpan,
    key_of,
    kind_text,
    leaves_at,
    named,
    period_text,
    shown,
    span_at,
)

HOUR_MS = 3_600_000
CALENDAR = ("day", "week", "month")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def ends(window: Window, now: str) -> tuple[datetime | None, datetime | None]:
    span = span_at(window, at(now))
    return span.start, span.end


def day(zone: str, now: str) -> tuple[datetime | None, datetime | None]:
    return ends(Window("day", zone), now)


def rolling(hours: int) -> Window:
    return Window("rolling", period_ms=hours * HOUR_MS)


@pytest.mark.parametrize("window", [Window("lifetime"), Window("lifetime", "Asia/Tehran", at=60), rolling(24)])
def test_what_never_starts_anew_has_no_ends(window):
    assert span_at(window, at("2026-10-21T12:00Z")) is LIFETIME


def test_a_day_of_utc_is_half_open():
    whole = (at("2026-10-21T00:00Z"), at("2026-10-22T00:00Z"))

    assert day("UTC", "2026-10-21T00:00Z") == whole
    assert day("UTC", "2026-10-21T23:59:59.999999Z") == whole
    assert day("UTC", "2026-10-22T00:00Z")[0] == whole[1]


def test_the_instant_counts_and_not_the_zone_it_is_written_in():
    assert day("UTC", "2026-10-22T01:30+02:00") == day("UTC", "2026-10-21T23:30Z")


@pytest.mark.parametrize(
    ("now", "start", "end", "hours"),
    [
        ("2026-03-08T12:00Z", "2026-03-08T05:00Z", "2026-03-09T04:00Z", 23),
        ("2026-11-01T12:00Z", "2026-11-01T04:00Z", "2026-11-02T05:00Z", 25),
    ],
)
def test_e06_a_day_is_not_24_hours_twice_a_year(now, start, end, hours):
    assert day("America/New_York", now) == (at(start), at(end))
    assert at(end) - at(start) == timedelta(hours=hours)


def test_e10_a_day_ends_by_the_budgets_own_zone():
    """The clocks went back that morning: midnight is an hour earlier in UTC than the day before."""
    assert day("Europe/Amsterdam", "2026-10-25T22:59:59Z")[1] == at("2026-10-25T23:00Z")
    assert day("Europe/Amsterdam", "2026-10-25T23:00:00Z")[0] == at("2026-10-25T23:00Z")


def test_a_midnight_that_does_not_exist_is_the_first_instant_after_the_gap():
    """Brazil's clocks went from 24:00 on 3 November 2018 to 01:00 on the 4th, three hours behind UTC, then two."""
    gap = at("2018-11-04T03:00Z")

    assert day("America/Sao_Paulo", "2018-11-04T02:59:59Z") == (at("2018-11-03T03:00Z"), gap)
    assert day("America/Sao_Paulo", "2018-11-04T03:00Z") == (gap, at("2018-11-05T02:00Z"))


def test_a_gap_that_begins_before_midnight_takes_the_start_of_the_day_with_it():
    """Toronto's clocks went from 23:30 on 30 March 1919 to 00:30 on the 31st, five hours behind UTC, then four."""
    gap = at("1919-03-31T04:30Z")

    assert day("America/Toronto", "1919-03-31T04:29:59Z")[1] == gap
    assert day("America/Toronto", "1919-03-31T04:30Z") == (gap, at("1919-04-01T04:00Z"))


def test_a_day_that_was_left_out_has_no_window():
    """Samoa crossed the date line: after 29 December 2011 came the 31st."""
    crossed = at("2011-12-30T10:00Z")

    assert day("Pacific/Apia", "2011-12-30T09:59:59Z") == (at("2011-12-29T10:00Z"), crossed)
    assert day("Pacific/Apia", "2011-12-30T10:00Z") == (crossed, at("2011-12-31T10:00Z"))


def test_a_leap_over_the_date_line_in_the_other_hemisphere_leaves_its_day_out_too():
    """Kwajalein went from twelve hours behind UTC to twelve before it: after 20 August 1993 came the 22nd."""
    crossed = at("1993-08-21T12:00Z")

    assert day("Pacific/Kwajalein", "1993-08-21T11:59:59.999999Z") == (at("1993-08-20T12:00Z"), crossed)
    assert day("Pacific/Kwajalein", "1993-08-21T12:00Z") == (crossed, at("1993-08-22T12:00Z"))


def test_a_day_that_ran_twice_has_one_window():
    """Kwajalein, eleven hours before UTC, went back to twelve behind it as 30 September 1969 ended: it ran once more."""
    both = (at("1969-09-29T13:00Z"), at("1969-10-01T12:00Z"))

    assert day("Pacific/Kwajalein", "1969-09-30T12:59:59Z") == both
    assert day("Pacific/Kwajalein", "1969-09-30T13:00Z") == both
    assert day("Pacific/Kwajalein", "1969-10-01T12:00Z") == (both[1], at("1969-10-02T12:00Z"))


def test_an_offset_may_have_odd_seconds():
    """Liberia was 44 minutes and 30 seconds behind UTC until 1972."""
    assert day("Africa/Monrovia", "1971-06-01T12:00Z") == (at("1971-06-01T00:44:30Z"), at("1971-06-02T00:44:30Z"))
    assert day("Africa/Monrovia", "1971-06-01T00:44:29.999999Z")[1] == at("1971-06-01T00:44:30Z")


def test_e03_a_month_does_not_start_anew_on_its_thirty_first_day():
    january, february = at("2026-01-01T00:00Z"), at("2026-02-01T00:00Z")

    for now in ("2026-01-01T00:00Z", "2026-01-31T12:00Z", "2026-01-31T12:01Z", "2026-01-31T23:59:59.999999Z"):
        assert ends(Window("month"), now) == (january, february)
    assert ends(Window("month"), "2026-02-01T00:00Z") == (february, at("2026-03-01T00:00Z"))


@pytest.mark.parametrize(
    ("anchor", "starts"),
    [
        (31, ["2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30", "2026-05-31"]),
        (30, ["2027-12-30", "2028-01-30", "2028-02-29", "2028-03-30"]),
        (29, ["2027-01-29", "2027-02-28", "2027-03-29"]),
        (15, ["2026-11-15", "2026-12-15", "2027-01-15"]),
    ],
)
def test_e04_an_anchor_that_a_month_lacks_is_its_last_day_and_comes_back(anchor, starts):
    window = Window("month", anchor=anchor)

    for start, end in pairwise(at(f"{day}T00:00Z") for day in starts):
        assert span_at(window, start) == WindowSpan(start, end)
        assert span_at(window, end - timedelta(microseconds=1)) == WindowSpan(start, end)


def test_an_anchor_on_a_day_that_was_left_out_is_the_instant_after_the_gap():
    """Samoa, ten hours behind UTC and then fourteen before it, had no 30 December 2011."""
    window, crossed = Window("month", "Pacific/Apia", anchor=30), at("2011-12-30T10:00Z")

    assert ends(window, "2011-12-30T09:59Z") == (at("2011-11-30T10:00Z"), crossed)
    assert ends(window, "2011-12-30T10:00Z") == (crossed, at("2012-01-29T10:00Z"))


@pytest.mark.parametrize(
    ("zone", "wall", "now", "reset"),
    [
        ("America/New_York", "02:30", "2026-03-08T06:00Z", "2026-03-08T07:00Z"),
        ("America/New_York", "02:00", "2026-03-08T06:00Z", "2026-03-08T07:00Z"),
        ("America/New_York", "03:00", "2026-03-08T06:00Z", "2026-03-08T07:00Z"),
        ("America/New_York", "01:59", "2026-03-08T06:00Z", "2026-03-08T06:59Z"),
        ("Australia/Lord_Howe", "02:15", "2026-10-03T12:00Z", "2026-10-03T15:30Z"),  # half an hour is left out
    ],
)
def test_e05_a_wall_time_that_does_not_exist_is_the_first_instant_after_the_gap(zone, wall, now, reset):
    assert ends(Window("day", zone, minutes(wall)), now)[1] == at(reset)
    assert ends(Window("day", zone, minutes(wall)), reset)[0] == at(reset)


@pytest.mark.parametrize(
    ("zone", "wall", "first", "again"),
    [
        ("America/New_York", "01:30", "2026-11-01T05:30Z", "2026-11-01T06:30Z"),
        ("America/Havana", "00:30", "2026-11-01T04:30Z", "2026-11-01T05:30Z"),
        ("America/Havana", "00:00", "2026-11-01T04:00Z", "2026-11-01T05:00Z"),
    ],
)
def test_a_wall_time_that_comes_twice_starts_one_window_only(zone, wall, first, again):
    window = Window("day", zone, minutes(wall))

    for now in (first, "2026-11-01T05:15Z" if zone == "America/Havana" else "2026-11-01T06:15Z", again):
        assert ends(window, now)[0] == at(first)
    assert ends(window, again)[1] > at("2026-11-02T00:00Z")


def test_a_week_starts_on_monday_also_across_the_year():
    assert ends(Window("week"), "2026-12-31T23:00Z") == (at("2026-12-28T00:00Z"), at("2027-01-04T00:00Z"))
    assert ends(Window("week"), "2026-11-29T23:59Z") == (at("2026-11-23T00:00Z"), at("2026-11-30T00:00Z"))
    assert ends(Window("week"), "2026-11-30T00:00Z")[0] == at("2026-11-30T00:00Z")


def test_a_week_has_an_hour_less_or_more_where_the_clocks_change():
    """In Berlin on the Sundays 29 March and 25 October 2026."""
    week = Window("week", "Europe/Berlin")

    assert ends(week, "2026-03-29T12:00Z") == (at("2026-03-22T23:00Z"), at("2026-03-29T22:00Z"))
    assert ends(week, "2026-10-25T12:00Z") == (at("2026-10-18T22:00Z"), at("2026-10-25T23:00Z"))


def test_every_calendar_window_starts_at_its_wall_time():
    early = {kind: Window(kind, "Asia/Kathmandu", minutes("06:30"), 1) for kind in CALENDAR}  # 5:45 before UTC

    assert ends(early["day"], "2026-12-01T00:44Z") == (at("2026-11-30T00:45Z"), at("2026-12-01T00:45Z"))
    assert ends(early["day"], "2026-12-01T00:45Z")[0] == at("2026-12-01T00:45Z")
    assert ends(early["week"], "2026-11-30T00:44Z") == (at("2026-11-23T00:45Z"), at("2026-11-30T00:45Z"))
    assert ends(early["month"], "2026-12-01T00:44Z") == (at("2026-11-01T00:45Z"), at("2026-12-01T00:45Z"))
    assert ends(early["month"], "2027-01-01T00:45Z")[0] == at("2027-01-01T00:45Z")


def test_a_year_ends_by_the_budgets_own_zone():
    """Fourteen hours before UTC the year is over at ten in the morning."""
    assert ends(Window("month", "Pacific/Kiritimati"), "2026-12-31T10:00Z") == (
        at("2026-12-31T10:00Z"),
        at("2027-01-31T10:00Z"),
    )


def minutes(wall: str) -> int:
    return int(wall[:2]) * 60 + int(wall[3:])


def test_e09_a_rolling_window_forgets_each_spend_in_its_own_time():
    spends = [(at("2026-05-01T01:00Z"), 10), (at("2026-05-01T23:00Z"), 5)]

    def spent(now: str) -> int:
        return sum(usd for when, usd in spends if leaves_at(us(when), 24 * HOUR_MS) > us(at(now)))

    seen = [spent(now) for now in ("2026-05-01T23:30Z", "2026-05-02T01:00:01Z", "2026-05-02T23:00:01Z")]
    assert seen == [15, 5, 0]
    assert spent("2026-05-02T00:59:59.999999Z") == 15


@pytest.mark.parametrize(
    ("when", "leaves"),
    [
        ("2026-05-01T01:00Z", "2026-05-02T01:00Z"),  # on a step: after exactly the period
        ("2026-05-01T01:00:00.000001Z", "2026-05-02T01:30Z"),
        ("2026-05-01T01:30Z", "2026-05-02T01:30Z"),
    ],
)
def test_a_spend_leaves_at_the_first_step_after_the_period(when, leaves):
    assert leaves_at(us(at(when)), 24 * HOUR_MS) == us(at(leaves))


def us(instant: datetime) -> int:
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("window", "now", "key"),
    [
        (Window("lifetime"), "2026-03-01T12:00Z", ""),
        (rolling(24), "2026-03-01T12:00Z", "~86400000"),
        (Window("day"), "2026-03-01T12:00Z", "2026-03-01T00:00:00Z"),
        (Window("day", "America/New_York"), "2026-03-08T12:00Z", "2026-03-08T05:00:00Z/2026-03-09T04:00:00Z"),
        (Window("week"), "2026-03-01T12:00Z", "2026-02-23T00:00:00Z/2026-03-02T00:00:00Z"),
        (Window("month"), "2026-03-01T12:00Z", "2026-03-01T00:00:00Z/2026-04-01T00:00:00Z"),
        (Window("month", anchor=31), "2026-03-01T12:00Z", "2026-02-28T00:00:00Z/2026-03-31T00:00:00Z"),
    ],
)
def test_a_key_tells_windows_apart_that_start_together(window, now, key):
    assert key_of(window, span_at(window, at(now))) == key


def test_the_key_of_a_rolling_window_says_nothing_of_what_leaves_next():
    assert key_of(rolling(1), WindowSpan(None, at("2026-03-01T12:00Z"))) == "~3600000"


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_ledger_keeps_of_a_window_is_read_back(kind):
    window = Window(kind, "Asia/Tehran", 390, 31, 90 * 60_000 if kind == "rolling" else 0)
    base = Window("lifetime", "Asia/Tehran", 390, 31)

    assert kind_text(window) == ("rolling:5400000" if kind == "rolling" else kind)
    assert named(kind_text(window), base) == window
    assert named(kind_text(window), replace(base, kind="rolling", period_ms=HOUR_MS)) == window


def test_a_period_is_an_hour_to_ninety_days():
    assert named("rolling:3600000", Window("day")).period_ms == HOUR_MS
    assert named("rolling:7776000000", Window("day")).period_ms == 90 * 24 * HOUR_MS


@pytest.mark.parametrize(
    "text",
    [
        *("", "rolling", "rolling:", "rolling:0", "rolling:24h", "rolling:3599999", "rolling:7776000001", "Day"),
        *("rolling:03600000", "rolling:3600000 ", "rolling:-3600000", "day:1", "hour", "rolling:\u0663600000"),
    ],
)
def test_what_is_no_window_is_an_error(text):
    with pytest.raises(ValueError, match="no window is called"):
        named(text, Window("lifetime"))


@pytest.mark.parametrize(
    ("window", "period", "words"),
    [
        *((Window(kind), kind, kind) for kind in ("lifetime", "day", "week", "month")),
        (rolling(24), "24h", "rolling 24h"),
        (rolling(48), "48h", "rolling 48h"),
        (rolling(2160), "2160h", "rolling 2160h"),
        (Window("rolling", period_ms=5_400_000), "90m", "rolling 90m"),
        (Window("rolling", period_ms=5_401_000), "5401s", "rolling 5401s"),
        (Window("rolling", period_ms=5_400_001), "5400001ms", "rolling 5400001ms"),
    ],
)
def test_a_window_is_written_for_people(window, period, words):
    assert (period_text(window), shown(window)) == (period, words)

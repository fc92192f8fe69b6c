from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lockpin_core.windows import LIFETIME, Window, span_at


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def day(zone: str, now: str) -> tuple[datetime | None, datetime | None]:
    span = span_at(Window("day", zone), at(now))
    return span.start, span.end


def test_a_lifetime_has_no_ends():
    assert span_at(Window("lifetime"), at("2026-10-21T12:00Z")) is LIFETIME


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


ZONES = (
    *("UTC", "America/New_York", "America/Sao_Paulo", "America/Havana", "Asia/Beirut", "Africa/Cairo", "Asia/Tehran"),
    *("Europe/Berlin", "Pacific/Apia", "Australia/Lord_Howe", "Asia/Kathmandu", "America/St_Johns", "Asia/Amman"),
)
INSTANTS = st.integers(10**15, 2 * 10**15).map(lambda us: datetime.fromtimestamp(us / 10**6, UTC))  # 2001 to 2033


@given(st.sampled_from(ZONES), INSTANTS)
@example("America/Sao_Paulo", datetime(2018, 2, 18, 1, 30, tzinfo=UTC))  # 23:00 to 24:00 ran twice
@example("America/Havana", datetime(2026, 11, 1, 4, 30, tzinfo=UTC))  # 00:00 to 01:00 ran twice
def test_days_hold_their_instant_and_join_without_gap(zone, now):
    window = Window("day", zone)
    span = span_at(window, now)

    assert span.start <= now < span.end
    assert span_at(window, span.start) == span
    assert span_at(window, span.end).start == span.end
    assert span_at(window, span.end - timedelta(microseconds=1)) == span
    local = ZoneInfo(zone)
    assert span.start.astimezone(local).date() == now.astimezone(local).date()
    assert (span.start - timedelta(microseconds=1)).astimezone(local).date() < now.astimezone(local).date()

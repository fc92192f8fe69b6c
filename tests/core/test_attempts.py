"""When a call is sent once more, and after how long."""

from datetime import UTC, datetime

import pytest

from lockpin_core.attempts import STATUSES, has_failed, pause_ms, told_ms
from lockpin_core.call import Ending, Outcome
from lockpin_core.config_near_cap import Retry

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
RETRY = Retry(attempts=5, base_ms=500, max_ms=3000, after_max_ms=30_000)
BUSY = Outcome(Ending.DONE, 503)


def pause(made, outcome=BUSY, retry=RETRY, dice=lambda: 0.5, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return pause_ms(made, outcome, named, retry, NOW, dice)


@pytest.mark.parametrize("status", sorted({408, 429, 500, 502, 503, 504, 529}))
@pytest.mark.parametrize("ending", [Ending.DONE, Ending.CUT])
def test_these_statuses_may_be_others_the_next_time(status, ending):
    assert has_failed(Outcome(ending, status))


@pytest.mark.parametrize("status", [100, 101, 200, 201, 301, 400, 401, 402, 403, 404, 409, 413, 422, 501, 505, 520])
def test_no_other_status_is_tried_again(status):
    assert status not in STATUSES
    assert not has_failed(Outcome(Ending.DONE, status))


def test_a_connection_that_was_not_opened_or_was_dropped_before_the_reply_is_tried_again():
    assert has_failed(Outcome(Ending.NOT_SENT, None))
    assert has_failed(Outcome(Ending.DROPPED, None))


@pytest.mark.parametrize("ending", [Ending.CLIENT_LEFT, Ending.STOPPED])
@pytest.mark.parametrize("status", [None, 200, 503])
def test_what_the_client_or_the_proxy_has_ended_is_over(status, ending):
    assert not has_failed(Outcome(ending, status), is_empty=True)


@pytest.mark.parametrize("ending", [Ending.DONE, Ending.CUT])
def test_a_reply_that_ends_before_its_first_byte_is_tried_again_and_no_other_one(ending):
    assert has_failed(Outcome(ending, 200), is_empty=True)
    assert not has_failed(Outcome(ending, 200))
    assert not has_failed(Outcome(ending, 404), is_empty=True)


def test_the_wait_doubles_from_base_to_max_and_is_any_part_of_it():
    assert [pause(made, dice=lambda: 0.999999) for made in (1, 2, 3, 4)] == [499, 999, 1999, 2999]
    assert [pause(made, dice=lambda: 0.5) for made in (1, 2, 3, 4)] == [250, 500, 1000, 1500]
    assert [pause(made, dice=lambda: 0.0) for made in (1, 2, 3, 4)] == [0, 0, 0, 0]


def test_no_more_than_so_many_attempts_are_made():
    assert pause(4) is not None
    assert pause(5) is None
    assert pause(1, retry=Retry()) is None  # off by default


def test_what_the_provider_says_of_the_time_is_obeyed_up_to_a_limit():
    assert pause(1, retry_after="7") == 7000
    assert pause(1, retry_after="0") == 0
    assert pause(1, retry_after="30") == 30_000
    assert pause(1, retry_after="31") is None
    assert pause(4, retry_after="7") == 7000
    assert pause(1, retry_after_ms="31000", retry_after="1") is None


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"retry-after": "7"}, 7000),
        ({"retry-after": " 1.5 "}, 1500),
        ({"retry-after": "0.0004"}, 1),
        ({"retry-after-ms": "250"}, 250),
        ({"retry-after-ms": "250.2", "retry-after": "60"}, 251),
        ({"retry-after-ms": "soon", "retry-after": "60"}, 60_000),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:12 GMT"}, 12_000),
        ({"retry-after": "Mon, 30 Nov 2026 13:00:12 +0100"}, 12_000),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:12 -0000"}, 12_000),
        ({"retry-after": "Mon, 30 Nov 2026 11:59:00 GMT"}, 0),
        ({"retry-after": "9" * 400}, 10**15),
        ({"retry-after-ms": "1e300"}, 10**12),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "Infinity"}, None),
        ({"retry-after": "tomorrow"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_a_time_is_read_in_every_form_that_it_has(headers, told):
    assert told_ms(headers, NOW) == (told if told is None else min(told, 10**12))


def test_a_time_that_cannot_be_read_leaves_the_wait_to_us():
    assert pause(1, retry_after="soon", dice=lambda: 0.5) == 250


def test_a_provider_that_says_not_to_is_obeyed():
    assert pause(1, x_should_retry="false") is None
    assert pause(1, x_should_retry="FALSE ") is None
    assert pause(1, x_should_retry="true") == 250


def test_a_quota_that_is_used_up_does_not_come_back_by_waiting():
    assert pause(1, Outcome(Ending.DONE, 429, 0, "insufficient_quota")) is None
    assert pause(1, Outcome(Ending.DONE, 429, 0, "rate_limit_exceeded")) == 250

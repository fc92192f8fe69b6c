"""When a call that failed is sent once more, and after how long. Pure: the clock and the dice are the caller's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from email.utils import parsedate_to_datetime
from math import ceil

from lockpin_core.call import Ending, Outcome
from lockpin_core.config_near_cap import Retry

# Replies that may be others the next time (SPEC §15).
STATUSES = frozenset({408, 429, 500, 502, 503, 504, 529})
# Errors that stay until somebody pays. Source: OpenAI's page of error codes, read 2026-11.
LASTING = frozenset({"insufficient_quota"})
_LONG_MS = 10**12  # longer than anybody waits: a number may be of any length

type Dice = Callable[[], float]
"""A number from 0 up to 1, evenly."""


def has_failed(outcome: Outcome, *, is_empty: bool = False) -> bool:
    """Say whether an exchange failed in a way that another attempt may mend.

    `is_empty`: a reply began, and ended before a byte of its body.
    """
    if outcome.status is None:
        return outcome.ending in (Ending.NOT_SENT, Ending.DROPPED)
    if 200 <= outcome.status < 300:
        return is_empty and outcome.ending in (Ending.DONE, Ending.CUT)
    return outcome.status in STATUSES and outcome.ending in (Ending.DONE, Ending.CUT)


def pause_ms(
    made: int, outcome: Outcome, headers: Mapping[str, str], retry: Retry, now: datetime, dice: Dice
) -> int | None:
    """Say how long to wait before the same call is sent once more; None: it is not.

    `made` attempts were there already. `headers` are those of the reply, in lower case. What a provider says of the
    time is obeyed, up to `after_max`; else the wait doubles from `base` to `max`, and is any part of that by chance:
    calls that failed together do not come back together.
    """
    if made >= retry.attempts or headers.get("x-should-retry", "").strip().lower() == "false":
        return None
    if outcome.error_code in LASTING:
        return None
    told = told_ms(headers, now)
    if told is not None:
        return told if told <= retry.after_max_ms else None
    return int(dice() * min(retry.max_ms, retry.base_ms << (made - 1)))


def told_ms(headers: Mapping[str, str], now: datetime) -> int | None:
    """Read how long a provider asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date; None: it does
    not say, or not so that it can be read.
    """
    exact = _number(headers.get("retry-after-ms", ""))
    if exact is not None:
        return min(ceil(exact), _LONG_MS)
    text = headers.get("retry-after", "")
    seconds = _number(text)
    if seconds is not None:
        return min(ceil(seconds * 1000), _LONG_MS)
    at = _instant(text)
    return None if at is None else max(0, ceil((at - now).total_seconds() * 1000))


def _number(text: str) -> Decimal | None:
    try:
        found = Decimal(text.strip())
    except InvalidOperation:
        return None
    return min(found, Decimal(_LONG_MS)) if found.is_finite() and found >= 0 else None


def _instant(text: str) -> datetime | None:
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)

"""Time, identity and chance: the only module of the core that asks the operating system for any of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

type Clock = Callable[[], datetime]  # aware UTC
type NewId = Callable[[], str]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: sorts as it counts


def utc_now() -> datetime:
    """Give the wall clock as aware UTC."""
    return datetime.now(UTC)


def micros(when: datetime) -> int:
    """Give an aware instant in microseconds since 1970."""
    return (when - _EPOCH) // _MICROSECOND


def instant(at: int) -> datetime:
    """Give the instant of microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=at)


def stamp(when: datetime) -> str:
    """Write an instant as RFC 3339 in UTC, to the second."""
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def stamp_after(when: datetime) -> str:
    """Write the next whole second of an instant: where something has surely ended by then."""
    return stamp(when if not when.microsecond else when.replace(microsecond=0) + _SECOND)


def monotonic_s() -> float:
    """Give seconds from a clock that never steps, for durations only."""
    return time.monotonic()


def random_bytes(count: int) -> bytes:
    """Give bytes that nobody can guess."""
    return os.urandom(count)


def new_id() -> str:
    """Make a sortable id of 26 characters: 48 bits of milliseconds, 82 random bits."""
    number = (time.time_ns() // 1_000_000) << 82 | int.from_bytes(os.urandom(11)) & ((1 << 82) - 1)
    return base32(number, 26)


def base32(number: int, digits: int) -> str:
    """Write a number in so many digits, of letters and figures that no shell, URL or eye takes for others."""
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(5 * (digits - 1), -1, -5))

"""Amounts and rates. Money is integer nanodollars, a rate is integer picodollars per unit; nothing here is a float."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation

NANO = 10**9  # nanodollars in a dollar
PICO_PER_NANO = 1000
_EXACT = Context(prec=10_000, Emin=-999_999, Emax=999_999)  # more digits than anybody writes: nothing is rounded
MAX_NANO = 2**63 - 1  # what SQLite and PostgreSQL store: about 9.2 billion dollars


@dataclass(frozen=True, slots=True, order=True)
class Money:
    """An amount in nanodollars; may be negative only as a difference."""

    nano: int

    @classmethod
    def parse(cls, dollars: str | int | Decimal) -> Money:
        """Read an exact amount of dollars.

        Raises ValueError where it is no finite number, has more than nine decimals, or passes 64 bits.
        """
        try:
            value = Decimal(dollars)
        except InvalidOperation as error:
            raise ValueError(f"{dollars!r} is not an amount of dollars") from error
        if not value.is_finite():
            raise ValueError(f"{dollars!r} is not a finite amount of dollars")
        if abs(value) > MAX_NANO // NANO:
            raise ValueError(f"{dollars!r} is more than this ledger can hold")
        nano = value.scaleb(9, _EXACT)
        if nano != nano.to_integral_value():
            raise ValueError(f"{dollars!r} has more than nine decimals")
        return cls(int(nano))

    @classmethod
    def from_pico(cls, pico: int) -> Money:
        """Round a total in picodollars up to the next nanodollar: the one rounding of a quote or a charge."""
        return cls(-(-pico // PICO_PER_NANO))

    @property
    def pico(self) -> int:
        """Give the picodollars."""
        return self.nano * PICO_PER_NANO

    def __add__(self, other: Money) -> Money:
        return Money(self.nano + other.nano)

    def __sub__(self, other: Money) -> Money:
        return Money(self.nano - other.nano)

    def __bool__(self) -> bool:
        return self.nano != 0

    def decimal(self) -> Decimal:
        """Give the exact dollars, without trailing zeros.

        Some clients take "500" anywhere in an error for a status that is worth another try, and a quote of $0.4880025
        with nine decimals would have it.
        """
        return Decimal(self.exact())

    def exact(self) -> str:
        """Write the exact dollars, without exponent and without trailing zeros: "0.0214", "25", "0"."""
        whole, nano = divmod(abs(self.nano), NANO)
        return f"{'-' if self.nano < 0 else ''}{whole}.{nano:09d}".rstrip("0").rstrip(".")

    def rounded(self, places: int, *, up: bool) -> str:
        """Write the dollars with `places` decimals, rounded up or down."""
        step = Decimal(1).scaleb(-places)
        return f"{self.decimal().quantize(step, ROUND_CEILING if up else ROUND_FLOOR):f}"


ZERO = Money(0)
MOST = Money(10**18)  # a billion dollars: the most that a limit or a cost may be, so that sums of some fit 64 bits


def shared_out(total: int, weights: Sequence[int]) -> list[int]:
    """Share an amount out by weights of zero or more, so that the shares are whole and add up to it."""
    whole, found, before, weight = sum(weights), [], 0, 0
    for each in weights:
        weight += each
        upto = total * weight // whole if whole else total
        found.append(upto - before)
        before = upto
    return found


def rate_pico(dollars_per_million: str | int | Decimal) -> int:
    """Turn dollars per million units into picodollars per unit: 18.75 → 18,750,000.

    Raises ValueError where that is not a whole, finite number of picodollars, or is negative.
    """
    try:
        value = Decimal(dollars_per_million)
    except InvalidOperation as error:
        raise ValueError(f"{dollars_per_million!r} is not a price") from error
    if not value.is_finite() or value < 0:
        raise ValueError(f"{dollars_per_million!r} is not a finite price of zero or more")
    if value > 10**9:
        raise ValueError(f"{dollars_per_million!r} is not a price per million units")
    pico = value.scaleb(6, _EXACT)
    if pico != pico.to_integral_value():
        raise ValueError(f"{dollars_per_million!r} has more than six decimals")
    return int(pico)


def fee_pico(dollars_each: str | int | Decimal) -> int:
    """Turn dollars per piece into picodollars per piece. Raises ValueError as `rate_pico` does."""
    try:
        value = Decimal(dollars_each)
    except InvalidOperation as error:
        raise ValueError(f"{dollars_each!r} is not a price") from error
    return rate_pico(value.scaleb(6, _EXACT) if value.is_finite() else value)


def rate_exact(pico: int) -> str:
    """Write picodollars per unit as dollars per million units, exactly."""
    text = f"{Decimal(pico).scaleb(-6):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text

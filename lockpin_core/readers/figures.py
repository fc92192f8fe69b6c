"""Figures as all views write them: exact in JSON and in sentences, rounded to what a person reads in tables."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_DOWN, ROUND_UP, Decimal
from typing import overload

from lockpin_core.money import NANO, Money

_CENTS, _SMALL = 2, 4  # decimals of an amount, and of one below a dollar
_WHOLE = 10_000  # from here on a count is written short
_SIZES = (("k", 10**3), ("M", 10**6), ("G", 10**9), ("T", 10**12))


@overload
def dollars(amount: Money) -> Decimal: ...
@overload
def dollars(amount: None) -> None: ...
@overload
def dollars(amount: Money | None) -> Decimal | None: ...
def dollars(amount: Money | None) -> Decimal | None:
    """Give an amount as a number without trailing zeros; None where there is none."""
    return None if amount is None else Decimal(amount.exact())


def said(amount: Money) -> str:
    """Write an amount for a sentence: "$1.25", "$0.0214"."""
    return _text(amount, _places(amount))


def table(*columns: tuple[Sequence[Money | None], bool]) -> list[list[str]]:
    """Write the columns of one table, each as `aligned` does with its `up`, all with as many decimals."""
    every = [amount for amounts, _ in columns for amount in amounts]
    return [aligned(amounts, up=up, beside=every) for amounts, up in columns]


def line(*amounts: Money) -> list[str]:
    """Write the amounts of one sentence exactly, all with as many decimals."""
    places = max(map(_places, amounts), default=_CENTS)
    return [_text(amount, places) for amount in amounts]


def aligned(amounts: Sequence[Money | None], *, up: bool, beside: Sequence[Money | None] = ()) -> list[str]:
    """Write a column of amounts with their decimal points below each other; None is a dash.

    What is spent or held is rounded `up`, a limit down; of a difference `up` shows more rise and less saving. Cents,
    and what of four decimals an amount below a dollar needs; more only where a nonzero amount would stand as zero.
    """
    known = [amount for amount in (*amounts, *beside) if amount is not None]
    places = max(map(_shown_places, known), default=_CENTS)
    return ["-" if amount is None else _text(amount, places, up=up) for amount in amounts]


def short_count(count: int, *, up: bool) -> str:
    """Write a count in at most four digits: "9,999", "12.4k", "150M", "1.5G"; rounded `up` or down."""
    if count < _WHOLE:
        return f"{count:,}"
    letter, size = next((letter, size) for letter, size in _SIZES if count < 1000 * size or letter == _SIZES[-1][0])
    places = Decimal(1) if count >= 100 * size else Decimal("0.1") if count >= 10 * size else Decimal("0.01")
    scaled = (Decimal(count) / size).quantize(places, ROUND_UP if up else ROUND_DOWN)
    digits = f"{scaled:,f}"
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits}{letter}"


def _shown_places(amount: Money) -> int:
    if abs(amount.nano) >= NANO:
        return _CENTS
    first = 9 - len(str(abs(amount.nano))) + 1  # the place of the first digit that is not zero
    return min(_places(amount), max(_SMALL, first if amount else 0))


def _places(amount: Money) -> int:
    return max(_CENTS, len(amount.exact().partition(".")[2]))


def _text(amount: Money, places: int, *, up: bool = False) -> str:
    text = f"{Decimal(amount.rounded(places, up=up)):,f}"
    return f"-${text[1:]}" if text.startswith("-") else f"${text}"

"""Figures as all views write them: exact decimal numbers in JSON, dollars in sentences and tables. Never rounded."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import overload

from lockpin_core.money import Money


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


def aligned(amounts: Sequence[Money | None]) -> list[str]:
    """Write a column of amounts with their decimal points below each other; None is a dash."""
    places = max((_places(amount) for amount in amounts if amount is not None), default=2)
    return ["-" if amount is None else _text(amount, places) for amount in amounts]


def _places(amount: Money) -> int:
    return max(2, len(amount.exact().partition(".")[2]))


def _text(amount: Money, places: int) -> str:
    sign = "-" if amount.nano < 0 else ""
    return f"{sign}${Money(abs(amount.nano)).rounded(places, up=False)}"

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockpin_core.money import Money
from lockpin_core.readers.figures import aligned, dollars, said


@pytest.mark.parametrize(("nano", "number"), [(0, "0"), (25 * 10**9, "25"), (21_400_000, "0.0214"), (1, "0.000000001")])
def test_numbers_are_exact_and_without_trailing_zeros(nano, number):
    assert f"{dollars(Money(nano)):f}" == number


def test_no_amount_is_no_number():
    assert dollars(None) is None


@pytest.mark.parametrize(("usd", "text"), [("0", "$0.00"), ("1.5", "$1.50"), ("0.0214", "$0.0214"), ("-2", "-$2.00")])
def test_sentences_have_cents_at_least(usd, text):
    assert said(Money.parse(usd)) == text


def test_a_column_has_its_points_below_each_other():
    assert aligned([Money.parse("12"), None, Money.parse("0.0214")]) == ["$12.0000", "-", "$0.0214"]


@given(st.lists(st.integers(-(10**15), 10**15)))
def test_a_column_never_rounds(nanos):
    texts = aligned([Money(nano) for nano in nanos])

    assert [Decimal(text.replace("$", "")) for text in texts] == [Money(nano).decimal() for nano in nanos]
    assert len({len(text.partition(".")[2]) for text in texts}) <= 1

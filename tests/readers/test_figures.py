from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockpin_core.money import Money
from lockpin_core.readers.figures import aligned, dollars, line, said, short_count, table


@pytest.mark.parametrize(("nano", "number"), [(0, "0"), (25 * 10**9, "25"), (21_400_000, "0.0214"), (1, "0.000000001")])
def test_numbers_are_exact_and_without_trailing_zeros(nano, number):
    assert f"{dollars(Money(nano)):f}" == number


def test_amounts_of_one_table_and_of_one_sentence_have_as_many_decimals():
    half, cent, many = Money.parse("0.5"), Money.parse("0.0214"), Money.parse("12345.678")

    assert table(([half, None], True), ([cent, many], False)) == [["$0.5000", "-"], ["$0.0214", "$12,345.6780"]]
    assert line(half, cent) == ["$0.5000", "$0.0214"]
    assert line(half, Money.parse("2")) == ["$0.50", "$2.00"]
    assert said(many) == "$12,345.678"
    assert said(Money.parse("-1234567")) == "-$1,234,567.00"


def test_no_amount_is_no_number():
    assert dollars(None) is None


@pytest.mark.parametrize(("usd", "text"), [("0", "$0.00"), ("1.5", "$1.50"), ("0.0214", "$0.0214"), ("-2", "-$2.00")])
def test_sentences_have_cents_at_least(usd, text):
    assert said(Money.parse(usd)) == text


@pytest.mark.parametrize(
    ("usd", "up", "texts"),
    [
        (["12", None, "0.0214"], True, ["$12.0000", "-", "$0.0214"]),
        (["-1.239", "1.231"], True, ["-$1.23", "$1.24"]),  # a saving is never shown larger than it is
        (["3", "12.5"], True, ["$3.00", "$12.50"]),
        (["3.456789", "12"], True, ["$3.46", "$12.00"]),
        (["3.456789", "12"], False, ["$3.45", "$12.00"]),
        (["0.000280123", "0"], True, ["$0.0003", "$0.0000"]),
        (["0.123456"], False, ["$0.1234"]),
        (["0.5", "0.25"], True, ["$0.50", "$0.25"]),
        (["0.000000001"], True, ["$0.000000001"]),
        (["0.00000012"], False, ["$0.0000001"]),
        ([None], True, ["-"]),
    ],
)
def test_a_column_has_its_points_below_each_other_and_no_more_decimals_than_it_needs(usd, up, texts):
    assert aligned([None if text is None else Money.parse(text) for text in usd], up=up) == texts


@given(st.lists(st.integers(0, 10**15) | st.integers(0, 10**7)), st.booleans())
def test_a_column_never_shows_less_spent_or_a_higher_limit_and_never_hides_an_amount(nanos, up):
    texts = aligned([Money(nano) for nano in nanos], up=up)

    shown = [Decimal(text.replace("$", "").replace(",", "")).scaleb(9) for text in texts]
    step = Decimal(10) ** (9 - min((len(text.partition(".")[2]) for text in texts), default=2))
    assert all(0 <= (figure - nano if up else nano - figure) < step for figure, nano in zip(shown, nanos, strict=True))
    assert all(bool(figure) == bool(nano) for figure, nano in zip(shown, nanos, strict=True))
    assert len({len(text.partition(".")[2]) for text in texts}) <= 1


@pytest.mark.parametrize(
    ("count", "above", "below"),
    [
        (0, "0", "0"), (9_999, "9,999", "9,999"), (10_000, "10k", "10k"), (12_345, "12.4k", "12.3k"),
        (999_999, "1,000k", "999k"), (1_234_567, "1.24M", "1.23M"), (150_000_000, "150M", "150M"),
        (1_500_000_000, "1.5G", "1.5G"), (2 * 10**15, "2,000T", "2,000T"),
    ],
)  # fmt: skip
def test_a_short_count_is_rounded_as_it_is_told(count, above, below):
    assert (short_count(count, up=True), short_count(count, up=False)) == (above, below)

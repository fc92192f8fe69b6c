import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lockpin_core.money import MAX_NANO, ZERO, Money, fee_pico, rate_exact, rate_pico, shared_out

NANOS = st.integers(-(9_223_372_036 * 10**9), 9_223_372_036 * 10**9)


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("25", 25_000_000_000),
        ("0.000000001", 1),
        ("0.0214", 21_400_000),
        ("1e-3", 1_000_000),
        ("2E+2", 200_000_000_000),
        ("1.500000000000", 1_500_000_000),
        ("-3", -3_000_000_000),
        ("9223372036", 9_223_372_036_000_000_000),
        (7, 7_000_000_000),
        (Decimal("0.1"), 100_000_000),
    ],
)
def test_an_amount_is_read_exactly(text, nano):
    assert Money.parse(text) == Money(nano)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not an amount of dollars"),
        ("5 dollars", "is not an amount of dollars"),
        ("0x10", "is not an amount of dollars"),
        ("nan", "is not a finite amount"),
        ("sNaN", "is not a finite amount"),
        ("-inf", "is not a finite amount"),
        ("0.0000000001", "has more than nine decimals"),
        ("1e-400", "has more than nine decimals"),
        ("9223372037", "is more than this ledger can hold"),
        ("-9223372037", "is more than this ledger can hold"),
        ("1e400", "is more than this ledger can hold"),
    ],
)
def test_what_is_no_exact_amount_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        Money.parse(text)


@pytest.mark.parametrize(("pico", "nano"), [(0, 0), (1, 1), (999, 1), (1000, 1), (1001, 2), (18_750, 19), (-1, 0)])
def test_a_total_is_rounded_up_to_the_next_nanodollar(pico, nano):
    assert Money.from_pico(pico) == Money(nano)


@given(NANOS)
def test_the_exact_text_is_read_back(nano):
    text = Money(nano).exact()

    assert Money.parse(text) == Money(nano)
    assert "e" not in text.lower()
    assert text == "0" or not text.endswith((".", "0")) or "." not in text


@pytest.mark.parametrize(
    ("nano", "text"), [(0, "0"), (25 * 10**9, "25"), (100 * 10**9, "100"), (21_400_000, "0.0214"), (-1, "-0.000000001")]
)
def test_the_exact_text_has_no_exponent_and_no_zeros_at_its_end(nano, text):
    assert Money(nano).exact() == text


def test_rounded_text_keeps_its_places():
    assert Money.parse("24.9").rounded(2, up=False) == "24.90"
    assert Money.parse("0.305").rounded(2, up=True) == "0.31"
    assert Money.parse("0.309").rounded(2, up=False) == "0.30"
    assert Money.parse("0.000000001").rounded(4, up=True) == "0.0001"
    assert Money(MAX_NANO).rounded(9, up=True) == "9223372036.854775807"


def test_amounts_add_compare_and_are_true_unless_zero():
    assert Money(5) + Money(3) - Money(10) == Money(-2)
    assert Money(1) < Money(2)
    assert Money(-1)
    assert not ZERO


@pytest.mark.parametrize(
    ("dollars_per_million", "pico"),
    [("0", 0), ("18.75", 18_750_000), ("0.01875", 18_750), ("0.000001", 1), (3, 3_000_000), ("1e9", 10**15)],
)
def test_a_rate_is_picodollars_a_unit(dollars_per_million, pico):
    assert rate_pico(dollars_per_million) == pico
    assert Decimal(rate_exact(pico)) == Decimal(dollars_per_million)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("free", "is not a price"),
        ("nan", "is not a finite price of zero or more"),
        ("inf", "is not a finite price of zero or more"),
        ("-0.1", "is not a finite price of zero or more"),
        ("1e10", "is not a price per million units"),
        ("0.0000001", "has more than six decimals"),
    ],
)
def test_what_is_no_rate_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        rate_pico(text)


def test_a_fee_is_picodollars_a_piece():
    assert fee_pico("0.01") == 10_000_000_000
    assert fee_pico(2) == 2 * 10**12
    for wrong in ("nan", "-1", "0.0000000000001"):
        with pytest.raises(ValueError, match=r"is not a|has more"):
            fee_pico(wrong)


def test_a_rate_is_written_without_exponent():
    assert [rate_exact(pico) for pico in (0, 1, 18_750, 3_000_000)] == ["0", "0.000001", "0.01875", "3"]


# Whatever is written, against fractions, which round nothing.

DIGITS = st.text("0123456789", max_size=12)
AMOUNTS = st.builds(
    lambda sign, whole, part, power: f"{sign}{whole or '0'}.{part or '0'}e{power}",
    st.sampled_from(["", "-", "+"]), DIGITS, DIGITS, st.integers(-14, 8),
)  # fmt: skip
PICOS = st.integers(0, 10**24)


@given(AMOUNTS | NANOS.map(lambda nano: Money(nano).exact()))
@example("9223372036.e0")
@example("9223372036.000000001e0")
def test_an_amount_in_any_spelling_is_what_it_says_or_refused(text):
    exact = Fraction(text) * 10**9
    if exact.denominator == 1 and abs(exact) <= 9_223_372_036 * 10**9:
        assert Money.parse(text) == Money(int(exact))
    else:
        with pytest.raises(ValueError, match="more than"):
            Money.parse(text)


@given(st.lists(PICOS, max_size=6))
def test_a_total_is_rounded_once_and_never_down(parts):
    total = Money.from_pico(sum(parts)).nano

    assert total == math.ceil(Fraction(sum(parts), 1000))
    assert total <= sum(Money.from_pico(part).nano for part in parts) < total + max(len(parts), 1)


@given(NANOS, st.integers(0, 9), st.booleans())
def test_rounded_text_is_the_nearest_on_its_side(nano, places, up):
    step, text = Fraction(1, 10**places), Money(nano).rounded(places, up=up)
    off = Fraction(text) - Fraction(nano, 10**9)

    assert 0 <= (off if up else -off) < step
    assert len(text.partition(".")[2]) == places


@given(st.integers(0, 10**15), st.integers(0, 10**9), st.integers(0, 10**24))
def test_a_rate_times_a_count_is_exact(pico, count, pieces):
    """A rate of up to a billion dollars per million units, in text and back, and a fee of a millionth of that each."""
    text = rate_exact(pico)

    assert rate_pico(text) == pico
    assert Fraction(text) / 10**6 * count == Fraction(rate_pico(text) * count, 10**12)
    fee = Decimal(pico).scaleb(-12)
    assert Fraction(fee) * pieces == Fraction(fee_pico(fee) * pieces, 10**12)


@pytest.mark.parametrize(
    ("total", "weights", "shares"),
    [(10, [1, 1, 1], [3, 3, 4]), (7, [2, 0, 5], [2, 0, 5]), (0, [1, 2], [0, 0]), (5, [0, 0], [5, 0]), (5, [], [])],
)
def test_an_amount_is_shared_out_without_a_rest(total, weights, shares):
    assert shared_out(total, weights) == shares


@pytest.mark.parametrize("dollars", ["0.4880025", "0.01", "25", "0", "1000", "-0.5", "0.000000001"])
def test_dollars_are_given_without_zeros_at_the_end(dollars):
    assert format(Money.parse(dollars).decimal(), "f") == dollars

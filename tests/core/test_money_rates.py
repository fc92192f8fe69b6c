"""What a price table makes of rates and counts is exact: against fractions, which round nothing."""

import math
from datetime import UTC, datetime
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.call import Ceiling, Terms
from lockpin_core.money import Money
from lockpin_core.prices import PriceTable, price, quote, shipped_dir
from lockpin_core.usage import Unit

AT = datetime(2026, 11, 29, 12, tzinfo=UTC)
RATES = st.integers(0, 10**10).map(lambda pico: f"{pico // 10**6}.{pico % 10**6:06}")
COUNTS = st.integers(0, 10**7)


@settings(max_examples=40, deadline=None)
@given(
    st.fixed_dictionaries({"input": RATES, "cache_read": RATES, "output": RATES}),
    st.lists(st.tuples(COUNTS, COUNTS, COUNTS), min_size=1, max_size=20),
)
def test_a_cost_is_the_sum_of_rates_times_counts_and_rounded_once(rates, uses):
    model = PriceTable.load(shipped_dir(), {"m": rates}).find("openai", "m", AT)
    dollars = {unit: Fraction(rates[unit.value]) / 10**6 for unit in (Unit.INPUT, Unit.CACHE_READ, Unit.OUTPUT)}
    pico, exact = 0, Fraction(0)

    for counts in uses:
        usage = dict(zip(dollars, counts, strict=True))
        pico += price(model, usage, Terms("default"), AT)
        exact += sum(dollars[unit] * count for unit, count in usage.items())

    assert Fraction(pico, 10**12) == exact
    assert Money.from_pico(pico).nano == math.ceil(exact * 10**9)


@settings(max_examples=40, deadline=None)
@given(st.fixed_dictionaries({"input": RATES, "cache_read": RATES, "output": RATES}), COUNTS, COUNTS)
def test_a_quote_takes_every_token_at_the_dearest_it_may_be_and_rounds_up_once(rates, prompt, output):
    model = PriceTable.load(shipped_dir(), {"m": rates}).find("openai", "m", AT)
    limits = Ceiling(prompt, output, frozenset({Unit.INPUT, Unit.CACHE_READ}), frozenset({Unit.OUTPUT}), {})
    dearest = max(Fraction(rates["input"]), Fraction(rates["cache_read"]))

    exact = (dearest * prompt + Fraction(rates["output"]) * output) / 10**6

    assert quote(model, limits, Terms("default"), AT).nano == math.ceil(exact * 10**9)

"""Prices as rows, facts and differences, by hand."""

from datetime import UTC, date, datetime

import pytest

from lockpin_core.prices import Model, PriceTable, shipped_dir
from lockpin_core.readers import price_card
from lockpin_core.readers.price_card import Difference
from lockpin_core.usage import Unit

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def model(**entry: object) -> Model:
    found = PriceTable.load(shipped_dir(), {"m": {"input": "5", "output": "25", **entry}}).find("anthropic", "m")
    assert found is not None
    return found


def test_rows_are_of_each_date_tier_and_band_standard_first_and_tiers_included():
    prices = [
        {"input": "4", "output": "20"},
        {
            "from": "2026-06-01", "input": "5", "output": "25", "above": [{"tokens": "1000", "op": "gte", "input": "10"}],
            "tiers": {"batch": {"x": "0.5"}},
        },
    ]  # fmt: skip
    dated = PriceTable.load(shipped_dir(), {"m": {"prices": prices}}).find("anthropic", "m")

    found = price_card.rows(dated)

    assert [(row.start and row.start.date(), row.tier, row.above, row.rates[Unit.INPUT]) for row in found] == [
        (None, "standard", 0, 4_000_000),
        (date(2026, 6, 1), "standard", 0, 5_000_000),
        (date(2026, 6, 1), "standard", 1000, 10_000_000),
        (date(2026, 6, 1), "batch", 0, 2_500_000),
        (date(2026, 6, 1), "batch", 1000, 5_000_000),
    ]


def test_record_has_exact_dollars_per_million_and_null_where_there_is_no_price():
    row = price_card.Row("", "m", datetime(2026, 6, 1, tzinfo=UTC), "batch", 1000, {Unit.INPUT: 2_500_000})

    record = price_card.record(row)

    assert record["provider"] == "(yours)"
    assert (record["from"], record["tier"], record["above_tokens"]) == ("2026-06-01", "batch", 1000)
    assert (record["input_per_mtok"], record["output_per_mtok"]) == ("2.5", None)
    assert not [key for key in record if "search" in key]  # a fee is no rate


def test_units_that_cost_what_they_usually_do_are_left_out():
    plain = price_card.Row("a", "m", None, "standard", 0, {Unit.INPUT: 5, Unit.CACHE_WRITE_12H: 10, Unit.IMAGE_IN: 5})
    other = price_card.Row("a", "m", None, "batch", 0, {Unit.INPUT: 5, Unit.IMAGE_IN: 6})

    assert price_card.units_of([plain]) == [Unit.INPUT]
    assert price_card.units_of([plain, other]) == [Unit.INPUT, Unit.IMAGE_IN]


def test_facts_are_what_stands_beside_the_rates():
    rich = model(
        speeds={"fast": "2"},
        geo={"eu": "1.1"},
        fees={"web_search": "0.01"},
        context_tokens="1000",
        checked="2026-11-01",
    )

    assert price_card.facts(rich, ["n"], {"by": "hand"}) == {
        "aliases": ["n"], "context_tokens": 1000, "max_output_tokens": None, "speeds": {"fast": "2"},
        "regions": {"eu": "1.1"}, "fees": {"web_search": "0.01"}, "checked": "2026-11-01", "sources": {"by": "hand"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("factor", "text"), [((1, 1), "1"), ((11, 10), "1.1"), ((4, 3), "4/3"), ((100, 1), "100"), ((1, 2), "0.5")]
)
def test_factor_is_written_exactly(factor, text):
    assert price_card.factor_text(factor) == text


@pytest.mark.parametrize(("pico", "text"), [(10**10, "0.01"), (10**12, "1"), (2 * 10**13, "20"), (1, "0.000000000001")])
def test_fee_is_written_exactly(pico, text):
    assert price_card.fee_text(pico) == text


def test_differences_are_those_of_the_standard_tier_and_of_fees():
    shipped = model(fees={"web_search": "0.01"}, tiers={"batch": {"x": "0.5"}})
    own = model(input="6", cache_read="0.5", fees={"code_session": "0.05"}, tiers={"batch": {"x": "0.9"}})

    found = price_card.differences(own, shipped, NOW)

    told = {each.unit: (each.shipped, each.own) for each in found}
    assert told["input"] == ("5", "6")
    assert told["cache_read"] == ("5", "0.5")  # where nothing is said a read costs what input does
    assert told["web_search"] == ("0.01", None)
    assert told["code_session"] == (None, "0.05")
    assert "output" not in told


def test_same_difference_at_several_providers_is_one():
    first, second = (Difference("m", of, "input", "5", "6") for of in ("a", "b"))
    other = Difference("m", "a", "output", "5", "6")

    assert price_card.gathered([first, other, second, second]) == [
        Difference("m", "a, b", "input", "5", "6"), other,
    ]  # fmt: skip


def test_model_without_prices_has_no_rows():
    assert price_card.rows(Model("", "m", ())) == []
    assert price_card.differences(Model("", "m", ()), Model("", "m", ()), NOW) == []

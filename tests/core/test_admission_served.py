"""Whose prices settle a call: those of the model that answered, else those of the one that was asked for."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from desks import FACTS, PROVIDERS

from lockpin_core.admission_served import Served
from lockpin_core.call import Terms
from lockpin_core.config import parse
from lockpin_core.prices import PriceTable, shipped_dir
from lockpin_core.usage import Unit
from lockpin_core.wire import wire_named

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
PRICING = {
    "gift": {"free": "true"},
    "ink": {"input": "1", "output": "5", **FACTS},
    "dear": {"input": "10", "output": "50", **FACTS, "above": [{"tokens": "999", "input": "30", "output": "70"}]},
}
TABLE = PriceTable.load(shipped_dir(), PRICING)
USAGE = {Unit.INPUT: 1000}


@pytest.fixture
def served() -> Served:
    provider, ink = PROVIDERS.by_name("anthropic"), TABLE.find("anthropic", "ink")
    assert provider is not None and ink is not None
    return Served(TABLE, provider, "api.anthropic.com", ink, AT)


def tariff_of(served: Served):
    return served.tariff(wire_named("anthropic_messages"), parse(None, None), 100)


def test_model_that_answered_is_priced_and_one_without_a_price_as_what_was_asked_for(served: Served):
    price = tariff_of(served).price

    assert price("dear", USAGE, Terms()) == (1000 * 30_000_000, "dear")
    assert price("unheard-of", USAGE, Terms()) == price(None, USAGE, Terms()) == (1000 * 1_000_000, "ink")
    assert price("ink", {Unit.MAPS: 1}, Terms()) is None


def test_of_several_models_one_without_a_price_is_none_of_them(served: Served):
    assert tariff_of(replace(served, is_one=False)).price("unheard-of", USAGE, Terms()) is None


def test_a_model_that_costs_nothing_costs_nothing_whatever_its_reply_calls_it(served: Served):
    free = TABLE.find("anthropic", "gift")
    assert free is not None

    assert tariff_of(replace(served, model=free)).price("dear", USAGE, Terms()) == (0, "gift")
    several = tariff_of(replace(served, model=free, is_one=False))
    assert several.price("dear", USAGE, Terms()) == (1000 * 30_000_000, "dear")
    assert several.price("gift", USAGE, Terms()) == (0, "gift")


def test_prompt_is_in_a_band_of_its_own_model(served: Served):
    band = tariff_of(served).band

    assert [band("dear", size, Terms()) for size in (999, 1000)] == [0, 1000]
    assert (band("ink", 1000, Terms()), band("gone", 1000, Terms())) == (0, 0)

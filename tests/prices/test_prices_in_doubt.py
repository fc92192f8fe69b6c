"""What costs more by a word of the request or reply, where the price table does not say how much."""

from datetime import UTC, datetime

import pytest

from lockpin_core.call import Ceiling, Terms
from lockpin_core.errors import UnpricedError
from lockpin_core.money import Money
from lockpin_core.prices import PriceTable, price, quote, rates_text, shipped_dir
from lockpin_core.usage import Unit

AT = datetime(2026, 11, 29, 12, tzinfo=UTC)
TABLE = PriceTable.load(shipped_dir())
I, O, W30 = Unit.INPUT, Unit.OUTPUT, Unit.CACHE_WRITE_30M  # noqa: E741
UNSAID, PLAIN = Terms(), Terms("default", geo="global")


def shipped(name: str):
    return TABLE.find("anthropic", name, AT) or TABLE.find("openai", name, AT)


def own(entry: dict, provider: str = "openai"):
    return PriceTable.load(shipped_dir(), {"m": entry}).find(provider, "m", AT)


def dollars(model, usage, terms=UNSAID) -> str:
    return Money.from_pico(price(model, usage, terms, AT)).exact()


def ceiling(prompt: int, output: int, *units: Unit) -> Ceiling:
    return Ceiling(prompt, output, frozenset(units or {I}), frozenset({O}), {})


def most(model, limits, terms=PLAIN, **kw) -> str:
    return quote(model, limits, terms, AT, **kw).exact()


@pytest.mark.parametrize("word", ["fast", "FAST", "warp", ""])
def test_a_speed_that_the_model_is_not_known_to_have_has_no_price(word):
    model = shipped("claude-sonnet-5-5")

    with pytest.raises(UnpricedError, match=f"claude-sonnet-5-5 has no price for speed {word}"):
        quote(model, ceiling(10, 10), Terms(speed=word), AT)
    with pytest.raises(UnpricedError, match="speed"):
        price(model, {I: 1}, Terms(speed=word), AT)
    assert most(model, ceiling(1_000, 0), Terms(speed="standard", geo="global")) == "0.002"


@pytest.mark.parametrize("word", ["priority", "fast", "ultrafast", "warp", ""])
@pytest.mark.parametrize("name", ["gpt-5.5-cyber", "gpt-5.5-pro"])  # without any tier, and with cheaper ones only
def test_a_tier_that_no_known_one_can_stand_for_has_no_price(name, word):
    with pytest.raises(UnpricedError, match=f"{name} has no price for service tier {word}"):
        quote(shipped(name), ceiling(10, 10), Terms(word), AT)
    with pytest.raises(UnpricedError, match="service tier"):
        price(shipped(name), {I: 1}, Terms(word), AT)
    with pytest.raises(UnpricedError, match="service tier"):
        rates_text(shipped(name), Terms(word), AT)


@pytest.mark.parametrize("word", [None, "auto", "default", "standard", "scale", "flex", "batch", "standard_only"])
def test_a_tier_that_is_never_dearer_costs_the_standard_price_where_it_has_none(word):
    model = shipped("gpt-5.5-cyber")

    assert most(model, ceiling(1_000, 0), Terms(word)) == "0.0125"
    assert dollars(model, {I: 1_000}, Terms(word)) == "0.0125"


def test_a_cheap_tier_without_a_price_is_not_taken_for_a_dearer_one():
    model = own({"input": "1", "tiers": {"priority": {"x": "2"}}})

    assert most(model, ceiling(1_000, 0), Terms("flex")) == "0.001"
    assert dollars(model, {I: 1_000}, Terms("flex")) == "0.001"
    assert dollars(model, {I: 1_000}, Terms("warp")) == "0.002"


@pytest.mark.parametrize(
    ("name", "usual", "regional"),
    [("claude-haiku-4-5", "0.001", "0.0011"), ("chatgpt-4o-latest", "0.005", "0.0055")],
)
def test_a_region_of_a_model_without_factors_costs_the_vendors_dearest(name, usual, regional):
    model = shipped(name)

    assert model.geos == {}
    assert [most(model, ceiling(1_000, 0), Terms("default", geo=geo)) for geo in ("us", "mars")] == [regional] * 2
    assert most(model, ceiling(1_000, 0), Terms("default"), host_geo="eu") == regional
    assert [most(model, ceiling(1_000, 0), Terms("default", geo=geo)) for geo in (None, "global")] == [usual] * 2
    assert dollars(model, {I: 1_000}, Terms(geo="us")) == regional


def test_a_region_costs_nothing_more_at_a_vendor_without_regional_prices():
    assert dollars(own({"input": "1"}, "xai"), {I: 1_000}, Terms(geo="us")) == "0.001"


def test_a_reply_that_names_no_region_had_none_and_a_request_cannot_say_so():
    model = shipped("claude-opus-5-5")

    assert dollars(model, {I: 1_000}, Terms(geo="not_available")) == "0.004"
    assert dollars(shipped("claude-haiku-4-5"), {I: 1_000}, Terms(geo="not_available")) == "0.001"
    assert most(model, ceiling(1_000, 0), Terms(geo="not_available")) == "0.0044"


def test_a_reply_without_a_tier_is_standard_although_the_quote_allows_for_priority():
    model = shipped("gpt-6.1-sol")

    assert most(model, ceiling(1_000, 0), UNSAID) == "0.004"
    assert dollars(model, {I: 1_000}, UNSAID) == "0.002"
    assert dollars(model, {I: 1_000}, Terms("auto")) == "0.002"


@pytest.mark.parametrize(
    ("name", "short", "long"),
    [
        ("gpt-5.5-cyber", "3.4", "6.800025"),
        ("gpt-5.5-cyber-preview", "3.4", "6.800025"),
        ("gpt-6-cyber", "6.8", "13.60005"),
    ],
)
def test_long_prompts_cost_twice_where_only_a_siblings_price_says_so(name, short, long):
    model, usage = shipped(name), {"gpt-6-cyber": W30}.get(name, I)

    assert most(model, ceiling(272_000, 0, I, usage)) == short
    assert most(model, ceiling(272_001, 0, I, usage)) == long


@pytest.mark.parametrize("name", ["gpt-6-cyber", "gpt-6-rosalind", "gpt-6-astra"])
@pytest.mark.parametrize("region", ["us", "eu", "fedramp"])
def test_gpt_6_costs_a_tenth_more_in_every_region(name, region):
    assert shipped(name).geos[region] == (11, 10)


def test_every_price_begins_where_a_prompt_can_reach():
    """A charge at a price that no hold has in would be above the hold."""
    models = [model for model in TABLE.models() if model.context_tokens]
    tiers = [(model, tier) for model in models for dated in model.prices for tier in dated.tiers.values()]

    beyond = [f"{model.provider}/{model.id}" for model, tier in tiers if tier.bands[-1].start >= model.context_tokens]
    assert len(tiers) > 2000
    assert beyond == []

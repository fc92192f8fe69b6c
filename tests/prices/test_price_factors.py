from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockpin_core.call import Terms
from lockpin_core.price_entry import read_entry
from lockpin_core.price_factors import in_force, largest, scaled, times, unscaled, with_shipped
from lockpin_core.prices import PriceTable, price, shipped_dir
from lockpin_core.usage import Unit

AT = datetime(2026, 11, 29, 12, tzinfo=UTC)


def test_factors_are_exact_and_round_up_once():
    assert times((11, 10), (1, 2), (2, 1)) == (22, 20)
    assert [scaled(10, (11, 10)), scaled(1, (11, 10)), scaled(0, (11, 10))] == [11, 2, 0]


def test_the_largest_factor_is_never_below_one():
    assert largest([(1, 2), (11, 10), (2, 1), (6, 5)]) == (2, 1)
    assert largest([(1, 2)]) == largest([]) == (1, 1)


def test_the_price_in_force_is_the_last_that_has_begun_and_before_all_the_first():
    prices = read_entry(
        "m", {"prices": [{"from": "2026-01-01", "input": "1"}, {"from": "2026-12-01", "input": "2"}]}
    ).blocks

    assert in_force(prices, AT) is prices[0]
    assert in_force(prices, datetime(2026, 12, 1, tzinfo=UTC)) is prices[1]
    assert in_force(prices, datetime(2025, 1, 1, tzinfo=UTC)) is in_force(prices, None) is prices[0]


def test_a_unit_that_the_shipped_model_does_not_price_takes_the_largest_ratio():
    above = [{"tokens": "9", "input": "2", "output": "3"}]
    shipped = read_entry("m", {"input": "1", "output": "2", "above": above}).blocks
    mine = read_entry("m", {"input": "1", "output": "1", "audio_in": "4"}).blocks

    rates = with_shipped(mine, shipped)[0].tiers["standard"].band(10).rates

    assert (rates[Unit.OUTPUT], rates[Unit.AUDIO_IN]) == (1_500_000, 8_000_000)
    assert Unit.AUDIO_OUT not in rates


def test_a_users_entry_keeps_the_shipped_bands_and_tiers_as_ratios():
    table = PriceTable.load(shipped_dir(), {"gpt-5.5": {"input": "2", "output": "8", "cache_read": "0.000001"}})
    tiers = table.find("openai", "gpt-5.5", AT).price_at(AT).tiers

    def rates(tier, prompt):
        found = tiers[tier].band(prompt).rates
        return [-(-found[unit] * tiers[tier].factor[0] // tiers[tier].factor[1]) for unit in (Unit.INPUT, Unit.OUTPUT)]

    assert [rates("standard", prompt) for prompt in (272_000, 272_001)] == [
        [2_000_000, 8_000_000],
        [4_000_000, 12_000_000],
    ]
    assert [rates("flex", prompt) for prompt in (272_000, 272_001)] == [[1_000_000, 4_000_000], [2_000_000, 6_000_000]]
    assert [rates("priority", prompt) for prompt in (0, 272_001)] == [[5_000_000, 20_000_000]] * 2
    assert tiers["priority"].band(0).rates[Unit.CACHE_READ] == 3  # 2.5 picodollars, rounded up


def test_what_a_users_entry_names_is_not_the_shipped_models():
    entry = {
        "input": "2",
        "output": "8",
        "geo": {"us": "1.3"},
        "tiers": {"flex": {"x": "0.9"}},
        "above": [{"tokens": "9", "input": "3", "output": "9"}],
    }
    model = PriceTable.load(shipped_dir(), {"gpt-5.5": entry}).find("openai", "gpt-5.5", AT)
    tiers = model.price_at(AT).tiers

    assert model.geos == {"us": (13, 10), "eu": (11, 10), "fedramp": (11, 10)}
    assert [band.start for band in tiers["standard"].bands] == [0, 10]
    assert tiers["standard"].band(300_000).rates[Unit.INPUT] == 3_000_000
    assert tiers["flex"].factor == (9, 10)
    assert [tiers["priority"].band(n).rates[Unit.INPUT] for n in (0, 10)] == [5_000_000, 7_500_000]


def test_a_tier_that_a_users_entry_names_gets_the_shipped_bands():
    entry = {"input": "2", "output": "8", "tiers": {"flex": {"x": "0.9"}, "mine": {"input": "4", "output": "8"}}}
    tiers = PriceTable.load(shipped_dir(), {"gpt-5.5": entry}).find("openai", "gpt-5.5", AT).price_at(AT).tiers

    assert tiers["flex"].band(272_001).rates[Unit.INPUT] == 4_000_000
    assert tiers["mine"].band(272_001).rates[Unit.OUTPUT] == 12_000_000


def test_a_users_entry_takes_the_shipped_factors_of_each_day():
    entry = {"prices": [{"input": "2"}, {"from": "2026-11-01", "input": "4"}]}
    model = PriceTable.load(shipped_dir(), {"gpt-5.5-cyber": entry}).find("openai", "gpt-5.5-cyber", AT)

    def inputs(at):
        return [band.rates[Unit.INPUT] for band in model.price_at(at).tiers["standard"].bands]

    assert inputs(datetime(2026, 10, 18, tzinfo=UTC)) == [2_000_000]
    assert inputs(datetime(2026, 10, 19, tzinfo=UTC)) == [2_000_000, 4_000_000]
    assert inputs(AT) == [4_000_000, 8_000_000]


@pytest.mark.parametrize("entry", [{"free": "true"}, {"input": "0", "output": "0"}])
def test_what_a_user_says_is_free_stays_free_in_every_band_and_tier(entry):
    model = PriceTable.load(shipped_dir(), {"gpt-5.5": entry}).find("openai", "gpt-5.5", AT)

    assert {rate for tier in model.prices[0].tiers.values() for band in tier.bands for rate in band.rates.values()} == {
        0
    }


# Of Claude, what costs a tenth more in a region than anywhere: on Vertex AI and Bedrock what came with 4.5 or later, for
# inference in the US at Anthropic itself what came with 4.6 or later; no older one can be told a region there. Where one
# source has such a factor and another has none, the dearer was taken. Compared in 2026-11.
TABLE = PriceTable.load(shipped_dir())
ONE_PRICE = {
    "vertex": [
        *("claude-3-haiku", "claude-3-sonnet", "claude-3-opus", "claude-3-5-haiku", "claude-3-5-sonnet"),
        *("claude-3-7-sonnet", "claude-sonnet-4", "claude-opus-4"),
    ],
    "bedrock": ["claude-sonnet-4-20250514-v1:0"],
}
LATEST = [
    *("claude-opus-4-6", "claude-opus-4-7", "claude-opus-4-8", "claude-sonnet-4-6", "claude-opus-5", "claude-opus-5-5"),
    *("claude-sonnet-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5", "claude-fable-5-1"),
    "claude-fable-5-2",
]
DEARER = {
    "vertex": ["claude-sonnet-4-5", "claude-haiku-4-5", "claude-opus-4-5", *LATEST],
    "anthropic": [*LATEST, "claude-mythos-5", "claude-mythos-5-1", "claude-mythos-5-2", "claude-mythos-preview"],
    "bedrock": [
        *("claude-sonnet-4-5-20250929-v1:0", "claude-haiku-4-5-20251001-v1:0", "claude-opus-4-5-v1:0"),
        *("claude-opus-4-6-v1:0", "claude-opus-4-7-v1:0", "claude-opus-4-8-v1:0", "claude-sonnet-4-6-v1:0"),
        *("claude-sonnet-5-v1:0", "claude-fable-5-v1:0", "claude-fable-5-1-v1:0", "claude-opus-5", "claude-opus-5-5"),
        *("claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5-2", "claude-mythos-5-2"),
    ],
}
MILLIONS = {Unit.INPUT: 10**6, Unit.CACHE_READ: 10**6, Unit.OUTPUT: 10**6}
CASES = [(who, name, 10) for who in ONE_PRICE for name in ONE_PRICE[who]]
CASES += [(who, name, 11) for who in DEARER for name in DEARER[who]]


def prices_of(provider: str, name: str) -> tuple[int, int]:
    """Give the price of the same usage anywhere and in a region; on Bedrock the name of the model says where."""
    names = ("global.anthropic." + name, "anthropic." + name) if provider == "bedrock" else (name, name)
    geos = {"vertex": ("global", "regional"), "anthropic": ("global", "us"), "bedrock": (None, None)}[provider]
    found = [TABLE.find(provider, one, AT) for one in names]
    terms = Terms("default")
    return tuple(price(model, MILLIONS, terms, AT, host_geo=geo) for model, geo in zip(found, geos, strict=True))


@pytest.mark.parametrize(("provider", "name", "tenths"), CASES)
def test_claude_costs_a_tenth_more_in_a_region_from_the_version_on_that_says_so(provider, name, tenths):
    anywhere, regional = prices_of(provider, name)

    assert anywhere > 0
    assert regional * 10 == anywhere * tenths


def test_every_claude_of_anthropic_that_has_a_region_is_among_them():
    shipped = {model.id for model in TABLE.models("anthropic")}

    assert len(DEARER["anthropic"]) == 16
    assert {name for name in shipped if "us" in TABLE.find("anthropic", name, AT).geos} == {*DEARER["anthropic"]}


def test_a_name_without_a_place_is_a_regions_on_bedrock():
    """What a source gives the price of everywhere for."""
    short, dated = (TABLE.find("bedrock", f"anthropic.claude-haiku-4-5{end}", AT) for end in ("", "-20251001-v1:0"))

    assert short.id == dated.id
    assert prices_of("bedrock", "claude-haiku-4-5-20251001-v1:0") == (6_100_000_000_000, 6_710_000_000_000)


@given(st.integers(-(10**9), 10**15), st.tuples(st.integers(1, 2 * 10**6), st.integers(1, 10**6)))
def test_an_amount_is_unscaled_to_the_largest_that_is_within_it(pico, factor):
    largest = unscaled(pico, factor)

    assert scaled(largest, factor) <= pico < scaled(largest + 1, factor)

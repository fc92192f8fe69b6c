from datetime import UTC, datetime
from decimal import Decimal

import pytest

from lockpin_core.errors import PriceError
from lockpin_core.price_entry import ImageRule, read_entry
from lockpin_core.usage import Unit


def base_rates(entry, tier="standard", prompt=0):
    return read_entry("m", entry).blocks[0].tiers[tier].band(prompt).rates


def test_rates_are_whole_picodollars():
    assert base_rates({"input": "18.75"})[Unit.INPUT] == 18_750_000


@pytest.mark.parametrize("spelled", ["cache_read", "cache_read_per_mtok", "cacheReadPerMTok", "cacheReadPerMtok"])
def test_a_rate_has_three_spellings(spelled):
    assert base_rates({"inputPerMTok": "3", spelled: "0.3"})[Unit.CACHE_READ] == 300_000


def test_missing_cache_prices_cost_the_input_and_long_writes_twice_the_input():
    rates = base_rates({"input": "3", "output": "15"})

    assert [rates[unit] for unit in (Unit.CACHE_READ, Unit.CACHE_WRITE_5M, Unit.CACHE_WRITE_30M)] == [3_000_000] * 3
    assert [rates[unit] for unit in (Unit.CACHE_WRITE_1H, Unit.CACHE_WRITE_12H)] == [6_000_000] * 2
    assert rates[Unit.IMAGE_IN] == 3_000_000
    assert Unit.AUDIO_IN not in rates


def test_one_cache_write_price_serves_every_lifetime_that_has_none():
    rates = base_rates({"input": "3", "cache_write": "3.75", "cache_write_1h": "6"})

    assert rates[Unit.CACHE_WRITE_5M] == rates[Unit.CACHE_WRITE_12H] == 3_750_000
    assert rates[Unit.CACHE_WRITE_1H] == 6_000_000


def test_a_band_that_leaves_out_a_cache_price_is_never_cheaper_for_it():
    entry = {"input": "3", "cache_read": "0.3", "cache_write": {"5m": "3.75"}, "above": [{"tokens": "9", "input": "4"}]}
    rates = base_rates(entry, prompt=10)

    assert rates[Unit.CACHE_READ] == 4_000_000
    assert rates[Unit.CACHE_WRITE_5M] == 4_000_000


def test_a_cheaper_tier_keeps_the_cache_price_that_it_leaves_out():
    entry = {"input": "2", "cache_read": "0.5", "tiers": {"batch": {"input": "1", "output": "4"}}}

    assert base_rates(entry, "batch")[Unit.CACHE_READ] == 500_000


def test_a_tier_without_bands_takes_the_dearer_of_its_own_and_the_standard_band():
    entry = {"input": "2", "output": "8", "above": [{"tokens": "9", "input": "4", "output": "9"}]}
    entry["tiers"] = {"flex": {"input": "1", "output": "4"}, "fast": {"input": "5", "output": "20"}}

    assert base_rates(entry, "flex", 10)[Unit.INPUT] == 4_000_000
    assert base_rates(entry, "fast", 10)[Unit.OUTPUT] == 20_000_000


def test_a_band_begins_after_its_threshold_or_at_it():
    gt = {"input": "1", "above": [{"tokens": "200000", "input": "2"}]}
    gte = {"input": "1", "above": [{"tokens": "200000", "op": "gte", "input": "2"}]}

    assert [base_rates(gt, prompt=n)[Unit.INPUT] for n in (200_000, 200_001)] == [1_000_000, 2_000_000]
    assert [base_rates(gte, prompt=n)[Unit.INPUT] for n in (199_999, 200_000)] == [1_000_000, 2_000_000]


def test_a_dearer_tier_or_band_that_leaves_out_the_price_of_sound_and_pictures_has_it_as_much_dearer():
    entry = {"input": "1", "output": "2", "audio_in": "3", "audio_out": "5", "image_out": "30"}
    entry |= {
        "tiers": {"priority": {"input": "1.8"}, "flex": {"input": "0.5"}},
        "above": [{"tokens": "9", "input": "2"}],
    }

    dear, cheap, long = base_rates(entry, "priority"), base_rates(entry, "flex"), base_rates(entry, prompt=10)

    assert [dear[unit] for unit in (Unit.AUDIO_IN, Unit.AUDIO_OUT, Unit.IMAGE_OUT)] == [
        5_400_000,
        9_000_000,
        54_000_000,
    ]
    assert [cheap[unit] for unit in (Unit.AUDIO_IN, Unit.IMAGE_OUT)] == [3_000_000, 30_000_000]
    assert long[Unit.AUDIO_IN] == 6_000_000


def test_an_image_rule_is_a_kind_with_its_numbers():
    tiles = read_entry("m", {"image_rule": {"kind": "openai_tiles", "base": "85", "tile": "170"}}).image_rule
    patches = read_entry(
        "m", {"image_rule": {"kind": "openai_patches", "multiplier": "1.62", "patches": "9"}}
    ).image_rule

    assert (tiles.kind, tiles.numbers) == ("openai_tiles", {"base": 85, "tile": 170})
    assert patches.numbers["multiplier"] == Decimal("1.62")
    assert read_entry("m", {"image_rule": "anthropic"}).image_rule == ImageRule("anthropic")
    assert read_entry("m", {}).image_rule is None


def test_d25_an_empty_entry_is_no_price():
    assert read_entry("m", {}).blocks == ()
    assert read_entry("m", "").blocks == ()
    assert read_entry("m", None).blocks == ()


def test_free_prices_every_unit_at_zero():
    entry = read_entry("m", {"free": "true"})

    assert set(entry.blocks[0].tiers["standard"].band(0).rates.values()) == {0}
    assert entry.fees[Unit.WEB_SEARCH] == 0
    assert read_entry("m", {"free": "false"}).blocks == ()


def test_dates_factors_and_fees():
    entry = read_entry(
        "m",
        {
            "prices": [{"input": "1"}, {"from": "2026-12-01", "input": "2"}],
            "geo": {"us": "1.1"},
            "speeds": {"fast": "2"},
            "fees": {"web_search": "0.01"},
            "checked": "2026-11-29",
        },
    )

    assert [block.start for block in entry.blocks] == [None, datetime(2026, 12, 1, tzinfo=UTC)]
    assert (entry.geos, entry.speeds) == ({"us": (11, 10)}, {"fast": (2, 1)})
    assert entry.fees == {Unit.WEB_SEARCH: 10_000_000_000}


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("1", "m is '1'; a mapping is allowed"),
        ({"inputt": "1"}, "m: inputt is no key here; allowed are above, aliases"),
        ({"input": "1", "inputPerMTok": "1"}, "says input a second time"),
        ({"input": "-1"}, "m.input is '-1'"),
        ({"input": "NaN"}, "m.input is 'NaN'"),
        ({"input": "inf"}, "m.input is 'inf'"),
        ({"input": "cheap"}, "m.input is 'cheap'"),
        ({"input": "0.0000001"}, "more than six decimals"),
        ({"input": 1.5}, "m.input is 1.5"),
        ({"input": ["1"]}, "m.input is ['1']"),
        ({"free": "yes"}, "m.free is 'yes'; true or false is allowed"),
        ({"free": "true", "input": "1"}, "m is free and has a price"),
        ({"cache_write": {"2h": "1"}}, "m.cache_write is '2h'; one of 5m, 30m, 1h, 12h"),
        ({"input": "1", "prices": []}, "m has prices both in and beside"),
        ({"prices": "1"}, "m.prices is '1'; a list of dated prices"),
        ({"prices": [{"from": "soon", "input": "1"}]}, "m.prices[0] is 'soon'; a date"),
        ({"prices": [{"from": "2026-02-01"}, {"from": "2026-01-01"}]}, "in order of `from`"),
        ({"tiers": "flex"}, "m.tiers is 'flex'; a mapping of tiers"),
        ({"tiers": {"flex": {"x": "0"}}}, "m.tiers.flex.x is '0'; a factor above zero"),
        ({"above": "1"}, "m.above is '1'; a list of bands"),
        ({"above": [{"input": "1"}]}, "m.above[0] has no `tokens`"),
        ({"above": [{"tokens": "2"}, {"tokens": "2"}]}, "in order of `tokens`"),
        ({"above": [{"tokens": "2", "op": "ge"}]}, "m.above[0].op is 'ge'; gt or gte"),
        (
            {"fees": {"coffee": "1"}},
            "m.fees is 'coffee'; one of code_session, file_search, maps, maps_prompt, request, search_prompt, web_search",
        ),
        ({"fees": "1"}, "m.fees is '1'; a mapping of fees"),
        ({"fees": {"web_search": "x"}}, "m.fees.web_search is 'x'"),
        ({"geo": "us"}, "m.geo is 'us'; a mapping of factors"),
        ({"aliases": "x"}, "m.aliases is 'x'; a list of names"),
        ({"sources": "x"}, "m.sources is 'x'; a mapping of sources"),
        ({"context_tokens": "1e6"}, "m.context_tokens is '1e6'; a whole number"),
        ({"max_output_tokens": "-5"}, "m.max_output_tokens is '-5'"),
        ({"tokenizer": "bpe"}, "m.tokenizer is 'bpe'; bytes or claude"),
        ({"checked": "today"}, "m.checked is 'today'; a date"),
        ({"image_rule": "mosaic"}, "m.image_rule is 'mosaic'; one of anthropic, anthropic_large, openai_tiles"),
        ({"image_rule": ["anthropic"]}, "m.image_rule is ['anthropic']; one of anthropic"),
        ({"image_rule": "openai_tiles"}, "m.image_rule is 'openai_tiles'; openai_tiles with base, tile is allowed"),
        ({"image_rule": {"kind": "anthropic", "tile": "1"}}, "anthropic with no number is allowed"),
        ({"image_rule": {"kind": "fixed", "tokens": "x"}}, "m.image_rule.tokens is 'x'"),
        ({"same_as": "/"}, "m.same_as is '/'; a model, or provider/model is allowed"),
        ({"same_as": "gpt-5", "input": "1"}, "m has same_as and a price; either is allowed"),
        ({"same_as": "gpt-5", "free": "true"}, "m has same_as and a price; either is allowed"),
    ],
)
def test_a_bad_entry_is_named_with_what_is_allowed(entry, said):
    with pytest.raises(PriceError) as caught:
        read_entry("m", entry)

    assert said in str(caught.value)


@pytest.mark.parametrize("entry", [[{"name": "opus"}] * 200, {"input": "x" * 5000}, {"input": ["1"] * 900}])
def test_a_large_thing_in_the_place_of_an_entry_is_not_told_whole(entry):
    with pytest.raises(PriceError) as caught:
        read_entry("m", entry)

    assert len(str(caught.value)) < 500

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.call import Ceiling, Terms
from lockpin_core.errors import UnpricedError
from lockpin_core.money import ZERO, Money
from lockpin_core.prices import PriceTable, band_start, max_output_fitting, price, quote, rates_text, shipped_dir
from lockpin_core.usage import CACHE_WRITES, Unit, output_tokens, prompt_tokens
from lockpin_core.wire.openai_usage import normalised

AT = datetime(2026, 11, 29, 12, tzinfo=UTC)
TABLE = PriceTable.load(shipped_dir())
I, O, R = Unit.INPUT, Unit.OUTPUT, Unit.CACHE_READ  # noqa: E741
W5, W1, W30, W12 = Unit.CACHE_WRITE_5M, Unit.CACHE_WRITE_1H, Unit.CACHE_WRITE_30M, Unit.CACHE_WRITE_12H
UNSAID, PLAIN = Terms(), Terms("default", geo="global")


def shipped(name: str):
    return TABLE.find("anthropic", name, AT) or TABLE.find("openai", name, AT)


def own(entry: dict, provider: str = "openai"):
    return PriceTable.load(shipped_dir(), {"m": entry}).find(provider, "m", AT)


def dollars(model, usage, terms=UNSAID, **kw) -> str:
    return Money.from_pico(price(model, usage, terms, AT, **kw)).exact()


def ceiling(prompt: int, output: int, *units: Unit, fees=None) -> Ceiling:
    return Ceiling(prompt, output, frozenset(units or {I}), frozenset({O}), fees or {})


def most(model, limits, terms=PLAIN, **kw) -> str:
    return quote(model, limits, terms, AT, **kw).exact()


SOL = {I: 6_000, R: 4_000, O: 1_000}


@pytest.mark.parametrize(
    ("model", "usage", "terms", "expected"),
    [
        ("claude-sonnet-5-5", {I: 1_000, R: 100_000, O: 500}, Terms(), "0.017"),
        ("claude-opus-5-5", {I: 100, W5: 4_000, W1: 6_000, O: 200}, Terms(), "0.0724"),
        ("claude-haiku-5-5", {I: 1_000, R: 120_000, O: 1_000}, Terms(), "0.009"),
        ("claude-haiku-5-5", {I: 100_000, O: 1_000}, Terms(), "0.0105"),
        ("gpt-6.1-sol", {I: 200_000, R: 100_000, O: 2_000}, Terms(), "0.85"),
        ("gpt-6.1-sol", SOL, Terms(), "0.0224"),
        ("gpt-6.1-sol", SOL, Terms("default"), "0.0224"),
        ("gpt-6.1-sol", SOL, Terms("priority"), "0.0448"),
        ("gpt-6.1-sol", SOL, Terms("fast"), "0.0448"),
        ("gpt-6.1-sol", SOL, Terms("flex"), "0.0112"),
        ("gpt-6.1-sol", SOL, Terms("batch"), "0.0112"),
        ("gpt-6.1-sol", SOL, Terms("ultrafast"), "0.1344"),
        ("gpt-6.1-sol", SOL, Terms("warp"), "0.1344"),
        ("gpt-6.1-sol", {I: 4_000, W30: 3_000, R: 2_000, O: 1_000}, Terms(), "0.0257"),
        ("gpt-6.1-sol", {I: 4_000, W12: 3_000, R: 2_000, O: 1_000}, Terms(), "0.0332"),
        ("o3", {I: 1_000, O: 5_000}, Terms(), "0.042"),
        ("gpt-4o-audio-preview", {I: 1_000, O: 200, Unit.AUDIO_IN: 5_000, Unit.AUDIO_OUT: 800}, Terms(), "0.2685"),
        ("gpt-audio", {I: 1_000, O: 200, Unit.AUDIO_IN: 5_000, Unit.AUDIO_OUT: 800}, Terms(), "0.2157"),
        ("claude-sonnet-5-5", {I: 10_000, O: 1_000, Unit.WEB_SEARCH: 3}, Terms(), "0.06"),
        ("claude-opus-5", {I: 1_000, O: 1_000}, Terms(speed="fast"), "0.06"),
        ("claude-opus-5", {I: 1_000, O: 1_000}, Terms("standard", "standard", "global"), "0.03"),
        ("claude-sonnet-5-5", {I: 1_000, O: 1_000}, Terms(geo="us"), "0.0132"),
        ("claude-sonnet-5-5", {I: 1_000, O: 1_000}, Terms(geo="mars"), "0.0132"),
        ("claude-sonnet-5-5", {I: 1_000, O: 1_000}, Terms(geo="global"), "0.012"),
        ("claude-sonnet-5-5", {I: 1_000, O: 1_000}, Terms("priority"), "0.012"),
    ],
)
def test_a_charge_is_the_hand_computed_one(model, usage, terms, expected):
    assert dollars(shipped(model), usage, terms) == expected


def test_d02_cache_reads_stand_beside_the_input():
    model = own({"input": "3", "cache_read": "0.30", "output": "15"})

    assert dollars(model, {I: 19, R: 39_000, O: 100}) == "0.013257"


def test_d03_reads_and_writes_inside_the_prompt_are_both_taken_out_of_it():
    model = own({"input": "3", "cache_read": "0.30", "cache_write": {"5m": "3.75"}, "output": "15"})
    details = {"cached_tokens": 500, "cache_write_tokens": 300}
    usage = {"prompt_tokens": 2_000, "completion_tokens": 0, "prompt_tokens_details": details}

    assert dollars(model, normalised(usage, marked_writes=True)) == "0.004875"


def test_d04_who_caches_best_pays_least():
    model = own({"input": "1", "cache_read": "0.10", "output": "5"})
    usage = {"prompt_tokens": 17_111, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 17_102}}

    assert dollars(model, normalised(usage)) == "0.0017192"


def test_d05_hour_writes_cost_more_than_five_minute_writes():
    model = own({"input": "5", "cache_write": {"5m": "6.25", "1h": "10"}})

    assert dollars(model, {W5: 600_000, W1: 400_000}) == "7.75"


def test_d08_past_the_threshold_the_whole_request_takes_the_long_rate():
    band = {"tokens": "200000", "input": "6", "output": "22.5"}
    model = own({"input": "3", "output": "15", "above": [band]})

    assert dollars(model, {I: 250_000, O: 1_000}) == "1.5225"
    assert dollars(model, {I: 200_000, O: 1_000}) == "0.615"


def test_d10_exactly_at_the_threshold_is_the_base_rate():
    model = TABLE.find("gemini", "gemini-2.5-pro", AT)

    assert dollars(model, {I: 200_000, O: 10}) == "0.2501"
    assert dollars(model, {I: 200_001, O: 10}) == "0.5001525"


def test_d11_flex_is_its_own_price():
    model = own({"input": "0.25", "cache_read": "0.025", "output": "2", "tiers": {"flex": {"x": "0.5"}}})

    assert dollars(model, {I: 1_000, R: 1_000, O: 500}, Terms("flex")) == "0.0006375"
    assert dollars(model, {I: 1_000, R: 1_000, O: 500}) == "0.001275"


def test_d16_us_residency_is_a_tenth_more():
    model = own({"input": "3", "output": "15", "geo": {"us": "1.1"}})

    assert dollars(model, {I: 1_000, O: 200}, Terms(geo="us")) == "0.0066"
    assert dollars(model, {I: 1_000, O: 200}) == "0.006"


def test_d19_a_search_is_a_fee_that_no_tier_or_region_changes():
    entry = {"input": "3", "output": "15", "fees": {"web_search": "0.01"}, "geo": {"us": "1.1"}}

    assert dollars(own(entry), {I: 9_548, O: 528, Unit.WEB_SEARCH: 2}) == "0.056564"
    assert dollars(own(entry), {Unit.WEB_SEARCH: 2}, Terms(geo="us")) == "0.02"


def test_d20_a_declared_search_is_held_for_and_only_a_used_one_is_charged():
    model = shipped("gpt-6.1-sol")
    limits = ceiling(0, 0, fees={Unit.WEB_SEARCH: 2})

    assert most(model, limits) == "0.02"
    assert dollars(model, {I: 0}) == "0"


def test_a_regional_host_costs_a_tenth_more_where_the_model_has_it():
    usage = {I: 1_000}

    assert dollars(shipped("gpt-6.1-sol"), usage, host_geo="eu") == "0.0022"
    assert dollars(shipped("gpt-6.1-sol"), usage, host_geo="jp") == "0.0022"
    assert dollars(shipped("gpt-4o"), usage, host_geo="us") == "0.0025"
    assert dollars(shipped("gpt-4o"), usage, host_geo="fedramp") == "0.00275"


def test_a_fraction_of_a_nanodollar_is_rounded_up_once():
    model = own({"input": "0.0005"})  # half a nanodollar a token

    assert price(model, {I: 1}, Terms(), AT) == 500
    assert dollars(model, {I: 1}) == "0.000000001"
    assert dollars(model, {I: 3}) == "0.000000002"


@pytest.mark.parametrize("unit", [Unit.AUDIO_IN, Unit.AUDIO_OUT, Unit.IMAGE_OUT, Unit.WEB_SEARCH, Unit.REQUEST, O])
def test_a_missing_price_is_named_and_never_zero(unit):
    with pytest.raises(UnpricedError, match=f"m has no price for {unit.value}"):
        price(own({"input": "1"}), {unit: 1}, Terms(), AT)


def test_a_unit_that_was_not_used_needs_no_price():
    assert price(own({"input": "1"}), {I: 1, O: 0, Unit.WEB_SEARCH: 0}, Terms(), AT) == 1_000_000


def test_b02_the_quote_takes_the_long_rate_that_the_prompt_reaches():
    band = {"tokens": "272000", "input": "2", "output": "9"}
    model = own({"input": "1", "output": "6", "above": [band]})

    assert most(model, ceiling(300_000, 0), Terms()) == "0.6"
    assert most(model, ceiling(272_000, 0), Terms()) == "0.272"


def test_a_quote_takes_every_prompt_token_at_the_dearest_unit():
    model = shipped("claude-opus-5-5")

    assert most(model, ceiling(1_000, 0)) == "0.004"
    assert most(model, ceiling(1_000, 0, I, W5)) == "0.005"
    assert most(model, ceiling(1_000, 0, I, W5, W1)) == "0.008"


def test_a_quote_takes_the_base_band_when_it_is_the_dearer_one():
    model = own({"input": "9", "output": "9", "above": [{"tokens": "100", "input": "1", "output": "1"}]})

    assert most(model, ceiling(101, 10)) == "0.00099"  # 100 prompt tokens and 10 of output at 9


@pytest.mark.parametrize(
    ("tier", "expected"),
    [
        (None, "0.004"),
        ("auto", "0.004"),
        ("default", "0.002"),
        ("scale", "0.002"),
        ("flex", "0.002"),
        ("priority", "0.004"),
        ("fast", "0.004"),
        ("ultrafast", "0.012"),
        ("warp", "0.012"),
    ],
)
def test_a_quote_takes_the_dearest_tier_that_may_be_billed(tier, expected):
    assert most(shipped("gpt-6.1-sol"), ceiling(1_000, 0), Terms(tier)) == expected


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        (Terms(), "0.0044"),
        (Terms(geo="global"), "0.004"),
        (Terms(geo="us"), "0.0044"),
        (Terms(geo="eu"), "0.0044"),
        (Terms("auto", geo="global"), "0.004"),
        (Terms("standard_only", geo="global"), "0.004"),
        (Terms(speed="fast", geo="global"), "0.008"),
        (Terms(speed="warp"), "0.0088"),
        (Terms(speed="standard"), "0.0044"),
    ],
)
def test_a_quote_takes_the_dearest_region_and_speed_that_may_be_billed(terms, expected):
    assert most(shipped("claude-opus-5-5"), ceiling(1_000, 0), terms) == expected


def test_a_quote_at_a_cheaper_speed_covers_the_standard_one():
    slow = own({"input": "2", "output": "4", "speeds": {"slow": "0.5"}})

    assert most(slow, ceiling(1_000, 1_000), Terms(speed="slow")) == "0.006"
    assert dollars(slow, {I: 1_000, O: 1_000}, Terms(speed="slow")) == "0.003"
    assert dollars(slow, {I: 1_000, O: 1_000}, Terms(speed="standard")) == "0.006"


def test_case_22_a_quote_takes_the_price_that_begins_before_the_call_ends():
    model = own(
        {"prices": [{"input": "2"}, {"from": "2026-12-01", "input": "4"}, {"from": "2026-12-02", "input": "3"}]}
    )
    change = datetime(2026, 12, 1, tzinfo=UTC)

    def at(instant, **kw):
        return quote(model, ceiling(1_000, 0), Terms(), instant, **kw).exact()

    assert at(change - timedelta(hours=2)) == "0.002"
    assert at(change - timedelta(minutes=59)) == "0.004"
    assert at(change - timedelta(hours=2), until=change + timedelta(days=2)) == "0.004"
    assert Money.from_pico(price(model, {I: 1_000}, Terms(), change)).exact() == "0.004"


def test_a_quote_needs_a_price_for_all_that_may_be_billed():
    model = own({"input": "1", "output": "2"})

    with pytest.raises(UnpricedError, match="audio_in"):
        quote(model, ceiling(10, 0, I, Unit.AUDIO_IN), Terms(), AT)
    with pytest.raises(UnpricedError, match="web_search"):
        quote(model, ceiling(10, 0, fees={Unit.WEB_SEARCH: 1}), Terms(), AT)


def test_a_free_model_costs_nothing_whatever_is_asked():
    model = own({"free": "true"})
    limits = ceiling(10**6, 10**6, I, Unit.AUDIO_IN, *CACHE_WRITES, fees={Unit.WEB_SEARCH: 9})

    assert quote(model, limits, Terms("priority", "fast", "us"), AT) == ZERO


def test_the_largest_output_that_fits_is_found():
    model = own({"input": "1", "output": "10"})
    limits = ceiling(1_000, 500)

    def fitting(amount: str) -> int:
        return max_output_fitting(model, limits, Terms(), AT, Money.parse(amount))

    assert fitting("1") == 500
    assert fitting("0.006") == 500
    assert fitting("0.005999999") == 499
    assert fitting("0.00101") == 1
    assert fitting("0.001") == 0
    assert fitting("0.0001") == 0
    assert max_output_fitting(model, limits, Terms(), AT, Money(-1)) == 0


def test_receipts_carry_the_rates_of_the_settlement():
    rates = rates_text(shipped("gpt-6.1-sol"), Terms("priority"), AT, host_geo="eu", prompt_size=272_001)

    assert rates["input"] == "8.8"
    assert rates["output"] == "33"
    assert rates["web_search"] == "0.01"
    assert rates_text(shipped("gpt-6.1-sol"), Terms("warp"), AT)["input"] == "12"


PRICED = PriceTable.load(shipped_dir(), {"*": {"input": "3", "cache_read": "0.3", "output": "7"}})
MODELS = [*TABLE.models(), *(PRICED.find(provider, name) for provider, name in TABLE.names())]
CHEAP = {"standard", "flex", "batch"}
PROMPT = (I, R, W5, W1, W30, W12, Unit.AUDIO_IN, Unit.IMAGE_IN)
OUTPUT = (O, Unit.AUDIO_OUT, Unit.IMAGE_OUT)


def words(model):
    """List the tiers that may be asked for, with the words that a reply may then state."""
    tiers = set.intersection(*({*dated.tiers} for dated in model.prices))
    plain = [None, "standard", *(word for word, name in model.rules.tier_names.items() if name == "standard")]
    unsaid = [*plain, *({*model.rules.unsaid_tiers} & tiers)]
    asked = {None: unsaid}
    for word, name in model.rules.tier_names.items():
        asked[word] = {"unsaid": unsaid, "standard": plain}.get(name, [*plain, name] if name in tiers else None)
    asked |= {name: [*plain, name] for name in tiers}
    if all({*dated.tiers} - CHEAP for dated in model.prices):
        asked["whatever"] = [*plain, *tiers, "whatever"]
    return {word: stated for word, stated in asked.items() if stated is not None}


def priced_units(model, units):
    bands = [band for dated in model.prices for tier in dated.tiers.values() for band in tier.bands]
    return [unit for unit in units if all(unit in band.rates for band in bands)]


@st.composite
def calls(draw):
    """A model, what was asked and stated, a ceiling, and usage within it."""
    model = draw(st.sampled_from(MODELS))
    usage = {unit: draw(st.integers(0, 400_000)) for unit in priced_units(model, PROMPT)}
    usage |= {unit: draw(st.integers(0, 200_000)) for unit in priced_units(model, OUTPUT)}
    fees = {unit: draw(st.integers(0, 3)) for unit in model.fees}
    if model.piece is not None:  # it bills by that alone
        fees[model.piece] = draw(st.integers(0, 100_000))
    spare = draw(st.integers(0, 10)) if O in usage else 0
    limits = Ceiling(
        prompt_tokens(usage) + (draw(st.integers(0, 300_000)) if model.piece is None else 0),
        output_tokens(usage) + spare,
        frozenset(unit for unit in PROMPT if usage.get(unit)) | {I},
        frozenset(unit for unit in OUTPUT if usage.get(unit)) | {O},
        {unit: count + draw(st.integers(0, 2)) for unit, count in fees.items()},
    )
    known = words(model)
    tier = draw(st.sampled_from(sorted(known, key=str)))
    speed = draw(st.sampled_from([None, "fast"])) if model.speeds else None
    geo = draw(st.sampled_from([None, "us", "global"])) if model.rules.unsaid_geos else None
    asked = Terms(tier, speed, geo)
    unsaid = [None, "global", "not_available", *model.rules.unsaid_geos]
    stated = Terms(
        draw(st.sampled_from(known[tier])),
        draw(st.sampled_from([None, "standard", "fast"])) if speed else None,
        geo or draw(st.sampled_from(unsaid)),
    )
    host = draw(st.sampled_from([None, "us", "jp", "fedramp", "regional", "data_zone", "unlisted"]))
    seconds = draw(st.integers(0, 3_600))
    at = draw(st.sampled_from([AT, *(d.start - timedelta(minutes=30) for d in model.prices if d.start)]))
    return model, limits, usage | fees, asked, stated, host, at, at + timedelta(seconds=seconds)


@settings(max_examples=500, deadline=None)
@given(calls())
def test_no_usage_within_the_ceiling_costs_more_than_the_quote(call):
    model, limits, usage, asked, stated, host, at, end = call

    held = quote(model, limits, asked, at, host_geo=host)
    charged = Money.from_pico(price(model, usage, stated, end, host_geo=host))

    assert charged <= held


@settings(max_examples=300, deadline=None)
@given(calls(), st.integers(0, 10**12) | st.fractions(0, 1), st.sampled_from([0, 1]))
def test_the_output_that_fits_is_the_largest(call, left, short):
    model, limits, _, asked, _, host, at, _ = call

    def cost(output):
        return quote(model, replace(limits, output=output), asked, at, host_geo=host)

    # A fraction: as much as that part of the output costs, or a nanodollar less.
    nano = left if isinstance(left, int) else cost(int(limits.output * left)).nano - short
    output = max_output_fitting(model, limits, asked, at, Money(nano), host_geo=host)

    assert output == 0 or cost(output) <= Money(nano)
    assert output == limits.output or cost(output + 1) > Money(nano)


def test_rates_are_exact_text():
    assert all(Decimal(text) >= 0 for model in MODELS for text in rates_text(model, Terms(), AT).values())


def test_a_factor_rounds_up_to_the_picodollar():
    model = own({"input": "0.000001", "geo": {"us": "1.1"}})

    assert price(model, {I: 1}, Terms(geo="us"), AT) == 2
    assert price(model, {I: 10}, Terms(geo="us"), AT) == 11


def test_what_is_sent_as_a_batch_is_held_at_the_price_of_a_batch_alone():
    """A provider may serve a request of any other tier as a standard one; a batch it bills as one."""
    model = own({"input": "2", "output": "10", "tiers": {"batch": {"x": "0.5"}}})

    assert most(model, ceiling(1_000, 100), Terms("batch")) == "0.003"
    assert most(model, ceiling(1_000, 100), Terms("batch"), batched=True) == "0.0015"


def test_without_a_price_for_batches_there_is_none():
    bare = {"input": "2", "output": "10", "tiers": {"flex": {"x": "0.5"}}}
    later = {"prices": [{"input": "2", "output": "10", "tiers": {"batch": {"x": "0.5"}}},
                        {"from": str((AT + timedelta(hours=3)).date() + timedelta(days=1)), "input": "2", "output": "10"}]}  # fmt: skip

    for entry, until in ((bare, None), (later, AT + timedelta(days=2))):
        with pytest.raises(UnpricedError, match="no price for batches"):
            most(own(entry), ceiling(1_000, 100), Terms("batch"), batched=True, until=until)


# What is billed by the second or the character


def by_pieces(count, unit=Unit.SECOND):
    return Ceiling(0, 0, frozenset({I}), frozenset({O}), {unit: count})


def test_a_second_of_sound_and_a_character_of_speech_cost_what_they_do():
    assert (shipped("whisper-1").piece, shipped("tts-1").piece) == (Unit.SECOND, Unit.CHARACTER)
    assert shipped("gpt-4o-transcribe").piece is None
    assert dollars(shipped("whisper-1"), {Unit.SECOND: 60}) == "0.006"  # a minute
    assert dollars(shipped("gpt-transcribe"), {Unit.SECOND: 3600}) == "0.27"  # an hour
    assert dollars(shipped("tts-1"), {Unit.CHARACTER: 1_000_000}) == "15"
    assert dollars(shipped("tts-1-hd"), {Unit.CHARACTER: 11}) == "0.00033"
    assert most(shipped("whisper-1"), by_pieces(60)) == "0.006"


def test_such_a_model_has_no_price_for_a_token_and_others_none_for_a_second():
    with pytest.raises(UnpricedError, match="whisper-1 has no price for input"):
        price(shipped("whisper-1"), {I: 1}, UNSAID, AT)
    with pytest.raises(UnpricedError, match="gpt-4o-transcribe has no price for second"):
        price(shipped("gpt-4o-transcribe"), {Unit.SECOND: 1}, UNSAID, AT)
    with pytest.raises(UnpricedError, match="whisper-1 has no price for"):
        quote(shipped("whisper-1"), ceiling(1, 0), UNSAID, AT)


def test_a_region_makes_a_second_dearer_as_it_does_tokens():
    model = own({"second_per_million": "100", "geo": {"eu": "1.1"}})

    assert model.piece is Unit.SECOND
    assert dollars(model, {Unit.SECOND: 60}, host_geo="eu") == "0.0066"
    assert most(model, by_pieces(60), host_geo="eu") == "0.0066"


def test_a_free_model_bills_by_nothing():
    assert own({"free": "true"}).piece is None


def test_receipts_carry_the_rate_of_a_second():
    assert rates_text(shipped("whisper-1"), Terms(), AT) == {"second": "100"}


def test_several_prompts_together_are_priced_in_the_band_of_each():
    banded = own({"input": "1", "output": "5", "above": [{"tokens": "999", "input": "3", "output": "7"}]})

    assert dollars(banded, {I: 1_500, O: 100}) == "0.0052"
    assert dollars(banded, {I: 1_500, O: 100}, prompt_size=750) == "0.002"
    assert [band_start(banded, size, UNSAID, AT) for size in (0, 999, 1_000, 5_000)] == [0, 0, 1_000, 1_000]

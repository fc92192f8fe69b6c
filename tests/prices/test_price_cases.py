"""The hand-computed cases of tricky prices, each against the shipped table: usage, terms and instant in, dollars out."""

from datetime import UTC, datetime

from lockpin_core.call import Terms
from lockpin_core.money import Money
from lockpin_core.prices import PriceTable, price, shipped_dir
from lockpin_core.usage import Unit

AT = datetime(2026, 11, 29, 19, tzinfo=UTC)
TABLE = PriceTable.load(shipped_dir())
I, O, R = Unit.INPUT, Unit.OUTPUT, Unit.CACHE_READ  # noqa: E741
W5, W1, W30, W12 = Unit.CACHE_WRITE_5M, Unit.CACHE_WRITE_1H, Unit.CACHE_WRITE_30M, Unit.CACHE_WRITE_12H
PLAIN = Terms()


def charge(provider: str, model: str, usage: dict[Unit, int], terms: Terms = PLAIN, at: datetime = AT, **kw) -> str:
    found = TABLE.find(provider, model, at)
    assert found is not None, f"{provider} has no {model}"
    return Money.from_pico(price(found, usage, terms, at, **kw)).exact()


def test_case_01_a_cached_prompt_of_sonnet_5_5():
    assert charge("anthropic", "claude-sonnet-5-5", {I: 1_000, R: 100_000, O: 500}) == "0.017"


def test_case_02_writes_of_both_lifetimes():
    assert charge("anthropic", "claude-opus-5-5", {I: 100, W5: 4_000, W1: 6_000, O: 200}) == "0.0724"


def test_case_03_the_band_goes_by_the_whole_prompt_and_holds_for_every_token():
    assert charge("anthropic", "claude-haiku-5-5", {I: 1_000, R: 120_000, O: 1_000}) == "0.009"


def test_case_04_exactly_at_the_threshold_is_the_base_rate():
    assert charge("anthropic", "claude-haiku-5-5", {I: 100_000, O: 1_000}) == "0.0105"
    assert charge("anthropic", "claude-haiku-5-5", {I: 100_001, O: 1_000}) == "0.0525005"


def test_case_05_above_272k_every_token_is_dearer():
    assert charge("openai", "gpt-6.1-sol", {I: 200_000, R: 100_000, O: 2_000}) == "0.85"


def test_case_06_priority_is_twice_as_dear():
    assert charge("openai", "gpt-6.1-sol", {I: 6_000, R: 4_000, O: 1_000}, Terms("priority")) == "0.0448"


def test_case_07_flex_is_half_as_dear():
    assert charge("openai", "gpt-6.1-sol", {I: 6_000, R: 4_000, O: 1_000}, Terms("flex")) == "0.0112"


def test_case_08_batch_is_half_as_dear():
    assert charge("openai", "gpt-6.1-sol", {I: 6_000, R: 4_000, O: 1_000}, Terms("batch")) == "0.0112"


def test_case_09_ultrafast_is_six_times_as_dear():
    assert charge("openai", "gpt-6.1-sol", {I: 6_000, R: 4_000, O: 1_000}, Terms("ultrafast")) == "0.1344"


def test_case_10_a_write_costs_more_than_the_input():
    assert charge("openai", "gpt-6.1-sol", {I: 4_000, R: 2_000, W30: 3_000, O: 1_000}) == "0.0257"


def test_case_11_reasoning_is_inside_the_output():
    assert charge("openai", "o3", {I: 1_000, O: 5_000}) == "0.042"


def test_case_12_thoughts_are_billed_as_output():
    thoughts, candidates = 3_000, 200

    assert charge("gemini", "gemini-3.1-pro-preview", {I: 1_000, O: candidates + thoughts}) == "0.0404"


def test_case_13_above_200k_every_token_is_dearer_and_the_cached_ones_count():
    assert charge("gemini", "gemini-3.1-pro-preview", {I: 200_000, R: 50_000, O: 1_000}) == "0.838"


def test_case_14_sound_has_its_own_price():
    assert charge("gemini", "gemini-2.5-flash", {I: 500, Unit.AUDIO_IN: 1_500, O: 100}) == "0.0019"


def test_case_15_what_tools_add_to_the_prompt_is_input():
    prompt, tool_use = 1_000, 500

    assert charge("gemini", "gemini-2.5-flash", {I: prompt + tool_use, O: 100}) == "0.0007"


def test_case_16_sound_both_ways_of_an_older_model():
    usage = {I: 1_000, O: 200, Unit.AUDIO_IN: 5_000, Unit.AUDIO_OUT: 800}

    assert charge("openai", "gpt-4o-audio-preview", usage) == "0.2685"


def test_case_17_sound_both_ways():
    usage = {I: 1_000, O: 200, Unit.AUDIO_IN: 5_000, Unit.AUDIO_OUT: 800}

    assert charge("openai", "gpt-audio", usage) == "0.2157"


def test_case_18_three_searches_of_anthropic():
    assert charge("anthropic", "claude-sonnet-5-5", {I: 10_000, O: 1_000, Unit.WEB_SEARCH: 3}) == "0.06"


def test_case_19_two_searches_of_openai():
    assert charge("openai", "gpt-6.1-sol", {I: 8_000, O: 500, Unit.WEB_SEARCH: 2}) == "0.041"


def test_case_20_fast_mode_is_twice_as_dear():
    assert charge("anthropic", "claude-opus-5", {I: 1_000, O: 1_000}, Terms(speed="fast")) == "0.06"


def test_case_21_us_residency_is_a_tenth_more():
    assert charge("anthropic", "claude-sonnet-5-5", {I: 1_000, O: 1_000}, Terms(geo="us")) == "0.0132"


def test_case_22_a_price_begins_on_its_day():
    def on(day: datetime) -> str:
        return charge("gemini", "gemini-4-argon", {I: 1_000, O: 1_000}, at=day)

    assert on(datetime(2026, 12, 2, tzinfo=UTC)) == "0.024"
    assert on(datetime(2026, 11, 30, 23, 59, tzinfo=UTC)) == "0.012"


def test_case_23_priority_of_gemini_is_1_8_times_as_dear():
    assert charge("gemini", "gemini-3.1-pro-preview", {I: 1_000, O: 100}, Terms("priority")) == "0.00576"


def test_case_24_grounding_is_a_fee_a_query():
    assert charge("gemini", "gemini-3.1-pro-preview", {I: 1_000, O: 200, Unit.WEB_SEARCH: 2}) == "0.0324"


def test_case_25_the_dear_hours_of_deepseek():
    at = datetime(2026, 11, 30, 2, tzinfo=UTC)

    assert charge("deepseek", "deepseek-v4-pro", {I: 1_000, O: 1_000}, at=at) == "0.00528"


def test_case_26_xais_long_prompts_begin_at_the_threshold():
    assert charge("xai", "grok-4.7", {I: 200_000, O: 1_000}) == "0.812"
    assert charge("xai", "grok-4.7", {I: 199_999, O: 1_000}) == "0.405998"


def test_case_27_priority_on_azure():
    assert charge("azure", "gpt-6.1-sol", {I: 6_000, R: 4_000, O: 1_000}, Terms("priority")) == "0.0448"


def test_case_28_a_write_that_is_kept_for_long_costs_twice_the_input():
    assert charge("openai", "gpt-6.1-sol", {I: 4_000, R: 2_000, W12: 3_000, O: 1_000}) == "0.0332"


def test_a_grounded_prompt_of_gemini_2_5_is_one_fee_however_many_searches():
    usage = {I: 1_000, Unit.SEARCH_PROMPT: 1, Unit.WEB_SEARCH: 5}

    assert charge("gemini", "gemini-2.5-flash", usage) == "0.0353"
    assert charge("gemini", "gemini-3.8-flash", {I: 1_000, Unit.WEB_SEARCH: 5, Unit.SEARCH_PROMPT: 1}) == "0.07075"


def test_maps_are_a_fee_a_query_or_a_prompt():
    assert charge("gemini", "gemini-3.8-flash", {Unit.MAPS: 2, Unit.MAPS_PROMPT: 1}) == "0.028"
    assert charge("gemini", "gemini-2.5-pro", {Unit.MAPS: 2, Unit.MAPS_PROMPT: 1}) == "0.025"


def test_hosted_tools_of_openai_have_fees():
    assert charge("openai", "gpt-6.1-sol", {Unit.FILE_SEARCH: 4}) == "0.01"
    assert charge("openai", "gpt-6.1-sol", {Unit.CODE_SESSION: 64}) == "1.92"  # one session of 64 gigabytes


def test_a_tier_moves_with_a_price_that_is_announced():
    def priority(day: datetime) -> str:
        return charge("gemini", "gemini-3.8-flash", {I: 1_000, O: 1_000}, Terms("priority"), day)

    assert priority(AT) == "0.0081"  # (0.75 + 3.75) × 1.8
    assert priority(datetime(2027, 1, 1, tzinfo=UTC)) == "0.0162"


def test_a_regional_endpoint_of_vertex_is_a_tenth_more_for_claude_from_4_5_on():
    usage = {I: 1_000, O: 1_000}

    assert charge("vertex", "claude-opus-5@20260724", usage, host_geo="regional") == "0.033"
    assert charge("vertex", "claude-opus-5@20260724", usage, host_geo="global") == "0.03"
    assert charge("vertex", "claude-sonnet-4@20250514", usage, host_geo="regional") == "0.018"
    assert charge("vertex", "claude-haiku-4-5@20251001", usage, host_geo="regional") == "0.0066"


def test_an_azure_deployment_is_taken_for_one_of_a_data_zone():
    assert charge("azure", "gpt-5.5", {I: 1_000, O: 1_000}, host_geo="data_zone") == "0.0385"


def test_d30_a_batch_of_long_prompts_is_half_of_the_dear_rate():
    table = PriceTable.load(
        shipped_dir(),
        {
            "m": {
                "input": "1",
                "output": "6",
                "above": [{"tokens": "272000", "input": "2", "output": "9"}],
                "tiers": {"batch": {"x": "0.5"}},
            }
        },
    )
    model = table.find("openai", "m", AT)

    assert Money.from_pico(price(model, {I: 300_000, O: 1_000}, Terms("batch"), AT)).exact() == "0.3045"


def test_the_hidden_price_of_pictures_that_a_tool_makes():
    usage = {I: 1_000, Unit.IMAGE_IN: 1_000, Unit.IMAGE_OUT: 1_000}

    assert charge("openai", "gpt-image-1", usage) == "0.055"  # 5 + 10 + 40


def test_the_dearer_of_two_prices_for_output_counts():
    assert charge("qwen", "qwen-plus-latest", {I: 1_000, O: 1_000}) == "0.0044"  # 0.4 + 4, the price with reasoning
    assert charge("qwen", "qwen-plus-latest", {I: 256_001, O: 1_000}) == "0.3192012"  # 1.2 and 12 from there on


def test_making_an_explicit_cache_of_qwen_costs_a_quarter_more():
    assert charge("qwen", "qwen3.8-max", {W5: 1_000}) == "0.0025"
    assert charge("qwen", "qwen3.8-max", {R: 1_000}) == "0.00025"

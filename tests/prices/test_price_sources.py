import json
import zipfile
from datetime import UTC, date, time
from decimal import Decimal
from pathlib import Path

import pytest
from genai_prices.types import (
    ClauseContains,
    ClauseEquals,
    ClauseOr,
    ClauseStartsWith,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    PriceVariant,
    StartDateConstraint,
    Tier,
    TieredPrices,
    TimeOfDateConstraint,
)

from lockpin_core.errors import PriceError
from lockpin_core.price_sources import GENAI, LITELLM, Facts, add_litellm, from_genai, installed

TODAY = date(2026, 11, 29)
D = Decimal


def genai(prices, **kw) -> Facts:
    match = kw.pop("match", ClauseEquals("m"))
    return from_genai(ModelInfo("m", match, prices=prices, **kw), ("5m",), TODAY)


def litellm(entry: dict) -> Facts:
    facts = Facts()
    add_litellm(facts, json.loads(json.dumps(entry), parse_float=Decimal), ("30m",))
    return facts


def test_rates_bands_and_fees_of_genai_prices_are_read():
    facts = genai(
        ModelPrice(
            input_mtok=TieredPrices(D("2"), [Tier(200_000, D("4"))]),
            output_mtok=D("12"),
            cache_write_mtok=D("2.5"),
            cache_write_1h_mtok=D("4"),
            input_audio_mtok=D("3"),
            web_searches_kcount=D("14"),
            requests_kcount=D("5"),
        ),
        context_window=1_000,
    )

    assert facts.cells == {
        ("standard", 0, "input"): D("2"),
        ("standard", 200_000, "input"): D("4"),
        ("standard", 0, "output"): D("12"),
        ("standard", 0, "5m"): D("2.5"),
        ("standard", 0, "1h"): D("4"),
        ("standard", 0, "audio_in"): D("3"),
    }
    assert facts.fees == {"web_search": D("0.014"), "request": D("0.005")}
    assert facts.context_tokens == 1_000


def test_a_price_of_zero_is_no_price():
    assert genai(ModelPrice(input_mtok=D("0"), output_mtok=D("1"))).cells == {("standard", 0, "output"): D("1")}
    assert litellm({"input_cost_per_token": 0, "output_cost_per_token": 0.0}).cells == {}


def test_a_price_is_rounded_up_to_a_picodollar():
    assert genai(ModelPrice(input_mtok=D("0.0416666666"))).cells == {("standard", 0, "input"): D("0.041667")}


def test_the_dear_hours_count_for_the_whole_day():
    day = TimeOfDateConstraint(time(1, tzinfo=UTC), time(4, tzinfo=UTC))
    blocks = [
        ConditionalPrice(None, prices=ModelPrice(input_mtok=D("1"), output_mtok=D("9"))),
        ConditionalPrice(day, prices=ModelPrice(input_mtok=D("2"), output_mtok=D("4"))),
    ]

    assert genai(blocks).cells == {("standard", 0, "input"): D("2"), ("standard", 0, "output"): D("9")}


def test_prices_are_parted_by_their_day():
    blocks = [
        ConditionalPrice(None, prices=ModelPrice(input_mtok=D("9"))),
        ConditionalPrice(StartDateConstraint(date(2027, 1, 1)), prices=ModelPrice(input_mtok=D("3"))),
        ConditionalPrice(StartDateConstraint(date(2026, 1, 1)), prices=ModelPrice(input_mtok=D("2"))),
    ]
    facts = genai(blocks)

    assert (facts.start, facts.cells) == (date(2026, 1, 1), {("standard", 0, "input"): D("2")})
    assert facts.older == [(None, {("standard", 0, "input"): D("9")})]
    assert facts.later == [(date(2027, 1, 1), {("standard", 0, "input"): D("3")})]


def test_tiers_are_those_of_the_day():
    def batch(price: str, start: date | None) -> PriceVariant:
        constraint = StartDateConstraint(start) if start else None
        return PriceVariant({"processing": "batch"}, ModelPrice(input_mtok=D(price)), constraint)

    variants = [
        batch("8", date(2027, 1, 1)),
        batch("5", None),
        batch("6", date(2026, 1, 1)),
        PriceVariant({"service_tier": "fast"}, ModelPrice(input_mtok=D("20"))),
        PriceVariant({"speed": "fast"}, ModelPrice(input_mtok=D("30"), output_mtok=D("30"))),
    ]
    blocks = [
        ConditionalPrice(None, prices=ModelPrice(input_mtok=D("10"), output_mtok=D("20"))),
        ConditionalPrice(StartDateConstraint(date(2027, 1, 1)), prices=ModelPrice(input_mtok=D("16"))),
    ]
    facts = genai(blocks, price_variants=variants)

    assert facts.cells["batch", 0, "input"] == D("6")
    assert facts.cells["priority", 0, "input"] == D("20")
    assert facts.later[0][1]["batch", 0, "input"] == D("8")
    assert facts.speeds == {"fast": D("3")}  # the larger of 3 and 1.5


def test_only_whole_names_are_aliases():
    match = ClauseOr([ClauseEquals("m"), ClauseEquals("m-latest"), ClauseStartsWith("m-"), ClauseContains("m")])

    assert genai(ModelPrice(input_mtok=D("1")), match=match).aliases == {"m-latest"}


def test_litellms_rates_bands_tiers_factors_and_fees_are_read():
    facts = litellm(
        {
            "input_cost_per_token": 2e-06,
            "input_cost_per_token_above_272k_tokens": 4e-06,
            "input_cost_per_token_priority": 4e-06,
            "input_cost_per_token_above_272k_tokens_batches": 2e-06,
            "cache_creation_input_token_cost": 2.5e-06,
            "cache_creation_input_token_cost_above_12hr": 4e-06,
            "input_cost_per_token_cache_hit": 1e-09,
            "max_input_tokens": 100,
            "max_output_tokens": 10,
            "regional_processing_uplift_multiplier_eu": 1.1,
            "regional_endpoint_uplift_multiplier": 1.2,
            "provider_specific_entry": {"us": 1.3, "fast": 2.0},
            "search_context_cost_per_query": {"search_context_size_low": 0.01, "search_context_size_high": 0.05},
            "google_maps_grounding_cost_per_query": 0.014,
        }
    )

    assert facts.cells == {
        ("standard", 0, "input"): D("2"),
        ("standard", 272_000, "input"): D("4"),
        ("priority", 0, "input"): D("4"),
        ("batch", 272_000, "input"): D("2"),
        ("standard", 0, "30m"): D("2.5"),
        ("standard", 0, "12h"): D("4"),
    }
    assert facts.geo == {"eu": D("1.1"), "regional": D("1.2"), "us": D("1.3")}
    assert (facts.speeds, facts.fees) == ({"fast": D("2")}, {"web_search": D("0.05"), "maps": D("0.014")})
    assert (facts.context_tokens, facts.max_output_tokens) == (100, 10)


def test_the_dearer_of_two_prices_for_output_counts():
    facts = litellm({"output_cost_per_token": 1.2e-06, "output_cost_per_reasoning_token": 4e-06})

    assert facts.cells == {("standard", 0, "output"): D("4")}


def test_steps_by_prompt_size_are_bands():
    steps = [
        {"range": [0, 32000.0], "input_cost_per_token": 1e-06, "output_cost_per_token": 5e-06},
        {"range": [32000.0, 128000.0], "input_cost_per_token": 1.8e-06, "output_cost_per_token": 9e-06},
    ]

    assert litellm({"tiered_pricing": steps}).cells == {
        ("standard", 0, "input"): D("1"),
        ("standard", 0, "output"): D("5"),
        ("standard", 32_000, "input"): D("1.8"),
        ("standard", 32_000, "output"): D("9"),
    }


def test_several_entries_of_a_model_give_the_dearer():
    facts = Facts()
    for price in ("0.000002", "0.000003", "0.000001"):
        add_litellm(facts, {"input_cost_per_token": D(price)}, ("5m",))

    assert facts.cells == {("standard", 0, "input"): D("3")}


@pytest.mark.parametrize("form", ["json", "whl"])
def test_litellms_prices_are_read_from_a_file_or_a_wheel(tmp_path: Path, form):
    text = json.dumps({"m": {"input_cost_per_token": 0.1}})
    path = tmp_path / f"litellm-1.2.3-py3.{form}"
    if form == "json":
        path.write_text(text)
    else:
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr("litellm/model_prices_and_context_window_backup.json", text)

    found = installed(path)

    assert found.litellm == {"m": {"input_cost_per_token": D("0.1")}}
    assert found.versions[LITELLM] == ("file" if form == "json" else "1.2.3")
    assert GENAI in found.versions
    assert found.is_whole()


FAR = b'{"m": {"input_cost_per_token": 2e-%s}}' % (b"5" * 70)  # an exponent that no decimal has


@pytest.mark.parametrize("data", [b"{", b"\xff", b"[" * 200_000, b"[]", b"{}", FAR, None])
def test_price_file_that_cannot_be_read_is_one_line(tmp_path, data):
    file = tmp_path / "prices.json"
    if data is None:
        file.mkdir()
    else:
        file.write_bytes(data)

    with pytest.raises(PriceError, match=r"litellm's price file .*; install it anew"):
        installed(file)

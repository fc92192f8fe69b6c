from datetime import date
from decimal import Decimal

import pytest
from genai_prices.types import (
    ClauseEquals,
    ClauseOr,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    PriceVariant,
    Provider,
    StartDateConstraint,
    Tier,
    TieredPrices,
)

from lockpin_core.errors import PriceError
from lockpin_core.price_entry import read_entry
from lockpin_core.price_merge import merged
from lockpin_core.price_overlay import Overlay
from lockpin_core.price_sources import Packages

D = Decimal
BASE = {"checked": "2026-11-29", "genai": {"g": ""}, "litellm": {"names": ["l"], "prefixes": ["l/"], "modes": ["chat"]}}


def model(name: str, prices=None, **kw) -> ModelInfo:
    names = [ClauseEquals(alias) for alias in (name, *kw.pop("aliases", ()))]
    return ModelInfo(name, ClauseOr(names), prices=prices if prices is not None else price("1", "2"), **kw)


def price(usd_in: str, usd_out: str | None = None, **kw) -> ModelPrice:
    return ModelPrice(input_mtok=D(usd_in), output_mtok=D(usd_out) if usd_out else None, **kw)


def entry(usd_in: str, usd_out: str | None = None, **kw) -> dict:
    rates = {"input_cost_per_token": D(usd_in) / 1_000_000}
    rates |= {"output_cost_per_token": D(usd_out) / 1_000_000} if usd_out else {}
    return {"litellm_provider": "l", "mode": "chat", **rates, **kw}


def made(listed=(), entries=None, **overlay):
    provider = Provider("g", "G", "x", models=list(listed))
    packages = Packages([provider], entries or {}, {"genai-prices": "1", "litellm": "2", "overlay": "by hand"})
    return merged([Overlay("p", BASE | overlay)], packages)["p"]


def one(*args, **kw):
    found = made(*args, **kw).entries
    assert all(read_entry(name, tree).blocks for name, tree in found.items())
    (only,) = found.values()
    return only


def test_of_two_prices_the_dearer_is_taken_and_both_are_written_down():
    found = one([model("m", price("1", "9"))], {"l/m": entry("2", "8")})

    assert found["prices"] == [{"input": "2", "output": "9"}]
    assert found["differs"] == {
        "input": {"genai-prices": "1", "litellm": "2"},
        "output": {"genai-prices": "9", "litellm": "8"},
    }
    assert found["sources"] == {"genai-prices": "1", "litellm": "2"}
    assert found["checked"] == "2026-11-29"


def test_a_snapshot_or_alias_of_a_model_is_no_model_of_its_own():
    found = made([model("m", aliases=["m-latest"])], {"l/m-2026-01-31": entry("3"), "l/m-latest": entry("4")})

    assert list(found.entries) == ["m"]
    assert found.entries["m"]["prices"] == [{"input": "4", "output": "2"}]
    assert found.entries["m"]["aliases"] == ["m-latest"]


def test_a_snapshot_at_another_price_is_a_model_of_its_own():
    found = made((), {"l/m": entry("1"), "l/m-2026-01-31": entry("3"), "l/m-2026-02-28": entry("1")})

    assert {name: tree["prices"][0]["input"] for name, tree in found.entries.items()} == {"m": "1", "m-2026-01-31": "3"}


def test_what_has_no_price_is_left_out_with_the_reason():
    found = made(
        [model("free", ModelPrice()), model("spoken", ModelPrice(input_audio_hours=D("1"))), model("old")],
        {"l/zero": entry("0", "0"), "l/half": entry("0", "3")},
        left_out=[["old*", "retired by the provider"]],
    )

    assert found.entries == {}
    assert found.left_out == {
        "free": "a price of zero that no source calls free",
        "half": "not billed by the token, or by no price that a source states",
        "old": "retired by the provider",
        "spoken": "not billed by the token, or by no price that a source states",
        "zero": "a price of zero that no source calls free",
    }


def test_models_that_run_several_agents_are_left_out_wherever_they_are_served():
    found = made([model("x-ai/grok-9-multi-agent")], {"l/grok-9-multi-agent-0309": entry("1"), "l/grok-9": entry("1")})

    assert list(found.entries) == ["grok-9"]
    assert found.left_out == dict.fromkeys(
        ["grok-9-multi-agent-0309", "x-ai/grok-9-multi-agent"],
        "the provider runs agents, each of which reads the prompt",
    )


def test_only_entries_with_the_prefix_and_mode_are_the_providers():
    assert made((), {"m": entry("1"), "l/n": entry("1", mode="realtime"), "x/o": entry("1")}).entries == {}


def test_entries_that_begin_as_those_that_are_not_meant_are_not_the_providers():
    entries = {"l/m": entry("1"), "l/x/m": entry("2"), "x/m": entry("3"), "n": entry("4")}
    without = {"names": ["l"], "prefixes": ["l/", ""], "without": ["x/", "l/x/"], "modes": ["chat"]}

    assert list(made((), entries, litellm=without).entries) == ["m", "n"]


def test_the_larger_facts_and_factors_are_taken():
    found = one(
        [model("m", context_window=100)],
        {
            "l/m": entry(
                "1", max_input_tokens=200, max_output_tokens=50, regional_processing_uplift_multiplier_us=D("1.1")
            )
        },
        context_tokens=[["m", "150"]],
        geo=[["*", {"us": "9", "zone": "1.2"}]],
    )

    assert (found["context_tokens"], found["max_output_tokens"]) == ("200", "50")
    assert found["geo"] == {"us": "1.1", "zone": "1.2"}
    assert one([model("m", context_window=100)], context_tokens=[["m", "150"]])["context_tokens"] == "150"


def test_a_band_is_never_cheaper_than_the_base():
    found = one(
        [model("m", ModelPrice(input_mtok=TieredPrices(D("1"), [Tier(200_000, D("2"))]), input_audio_mtok=D("3")))],
        {"l/m": entry("1", input_cost_per_audio_token_above_200k_tokens=D("0.0000005"))},
    )

    assert found["prices"][0]["above"] == [{"tokens": "200000", "op": "gt", "input": "2", "audio_in": "3"}]


def test_a_write_price_that_only_a_band_has_is_none():
    found = one([model("m")], {"l/m": entry("1", cache_creation_input_token_cost_above_200k_tokens=D("0.00000025"))})

    assert "above" not in found["prices"][0] or "cache_write" not in found["prices"][0]["above"][0]


def test_bands_that_begin_at_a_round_number_are_one_in_both_sources():
    tiered = TieredPrices(D("2"), [Tier(199_999, D("4"))])
    found = one(
        [model("m", ModelPrice(input_mtok=tiered))],
        {"l/m": entry("2", input_cost_per_token_above_200k_tokens=D("0.000005"))},
        op="gte",
    )

    assert found["prices"][0]["above"] == [{"tokens": "200000", "op": "gte", "input": "5"}]


def test_a_missing_price_is_filled_as_the_overlay_says_also_in_bands_and_tiers():
    tiered = TieredPrices(D("2"), [Tier(200_000, D("4"))])
    found = one(
        [model("m", ModelPrice(input_mtok=tiered, output_mtok=D("40")))],
        {"l/m": entry("2", input_cost_per_token_priority=D("0.000004"))},
        fill=[["m", {"audio_in": "1", "5m": "1.25", "image_out": "output"}]],
    )
    block = found["prices"][0]

    assert (block["audio_in"], block["cache_write"], block["image_out"]) == ("2", {"5m": "2.5"}, "40")
    assert (block["above"][0]["audio_in"], block["tiers"]["priority"]["audio_in"]) == ("4", "4")


def test_a_price_that_is_stated_is_not_filled_nor_is_it_in_a_tier():
    found = one(
        [model("m", price("1", input_audio_mtok=D("5")))],
        {"l/m": entry("1", input_cost_per_token_flex=D("0.0000005"))},
        fill=[["m", {"audio_in": "1"}]],
    )

    assert found["prices"][0]["audio_in"] == "5"
    assert found["prices"][0]["tiers"] == {"flex": {"input": "0.5"}}


def test_a_dearer_tier_is_completed_by_its_dearest_ratio_and_a_cheaper_one_is_not():
    found = one(
        [model("m", price("1", "10", cache_read_mtok=D("0.1")))],
        {
            "l/m": entry(
                "1",
                input_cost_per_token_priority=D("0.0000018"),
                output_cost_per_token_priority=D("0.00002"),
                input_cost_per_token_flex=D("0.0000005"),
            )
        },
        tiers="complete",
    )

    assert found["prices"][0]["tiers"] == {
        "flex": {"input": "0.5"},
        "priority": {"input": "1.8", "output": "20", "cache_read": "0.2"},
    }


def test_what_a_later_price_leaves_out_moves_with_it():
    blocks = [
        ConditionalPrice(None, prices=price("2", "10", cache_read_mtok=D("0.2"))),
        ConditionalPrice(StartDateConstraint(date(2027, 1, 1)), prices=price("3", "20")),
    ]
    found = one(
        [model("m", blocks)],
        {
            "l/m": entry(
                "2",
                "10",
                input_cost_per_token_priority=D("0.0000036"),
                output_cost_per_token_priority=D("0.000018"),
            )
        },
    )
    later = found["prices"][1]

    assert (later["from"], later["input"], later["output"]) == ("2027-01-01", "3", "20")
    assert later["cache_read"] == "0.4"  # by the dearest ratio, 20 to 10
    assert later["tiers"]["priority"] == {"input": "5.4", "output": "36"}


def test_earlier_prices_stay():
    blocks = [
        ConditionalPrice(None, prices=price("9")),
        ConditionalPrice(StartDateConstraint(date(2026, 1, 1)), prices=price("2")),
    ]

    assert one([model("m", blocks)])["prices"] == [{"input": "9"}, {"from": "2026-01-01", "input": "2"}]


def test_fees_stand_under_the_unit_that_the_provider_bills():
    found = one(
        [model("m", price("1", web_searches_kcount=D("35")))],
        fee_units=[["m", {"web_search": "search_prompt"}]],
        fees=[["m", {"web_search": "0", "search_prompt": "9", "maps": "0.014"}]],
    )

    assert found["fees"] == {"maps": "0.014", "search_prompt": "0.035", "web_search": "0"}


def test_names_are_brought_to_what_calls_use():
    found = made(
        [model("regional.a", aliases=["us.a"]), model("b")],
        strip=["regional."],
        rename={"b": "c"},
        prefixes=[["c", ["models/"]]],
        endings=[["c", ["@default"]]],
    )

    assert found.entries["a"]["aliases"] == ["us.a"]
    assert found.entries["c"]["aliases"] == ["c@default", "models/c"]


def test_an_alias_that_two_claim_is_the_ones_whose_name_it_is_made_of_or_nobodys():
    found = made(
        [model("m", aliases=["x/m-1", "shared", "n"]), model("n", aliases=["shared"]), model("m-1")],
        prefixes=[["m-1", ["x/"]]],
    )

    assert "aliases" not in found.entries["m"]
    assert "aliases" not in found.entries["n"]
    assert found.entries["m-1"]["aliases"] == ["x/m-1"]


def test_a_provider_with_several_lists_takes_the_dearer_and_an_ending_tells_them_apart():
    providers = [Provider("a", "A", "x", models=[model("m", price("1", "5"))])]
    providers.append(Provider("b", "B", "x", models=[model("m", price("2", "4"))]))
    packages = Packages(providers, {}, {"genai-prices": "1"})

    together = merged([Overlay("p", BASE | {"genai": {"a": "", "b": ""}})], packages)["p"].entries
    apart = merged([Overlay("p", BASE | {"genai": {"a": ":a", "b": ":b"}})], packages)["p"].entries

    assert together["m"]["prices"] == [{"input": "2", "output": "5"}]
    assert sorted(apart) == ["m:a", "m:b"]


def test_a_model_at_its_makers_price_is_the_same_as_the_makers_and_a_dearer_one_is_not():
    maker = [model("m", price("1", "2"), price_variants=[PriceVariant({"service_tier": "flex"}, price("0.5", "1"))])]
    providers = [
        Provider("maker", "M", "x", models=[*maker, model("n", price("1", "2"))]),
        Provider(
            "seller", "S", "x", models=[model("m", price("1", "2"), context_window=9), model("n", price("1", "3"))]
        ),
    ]
    packages = Packages(providers, {}, {"genai-prices": "1"})
    overlays = [
        Overlay("maker", BASE | {"genai": {"maker": ""}}),
        Overlay("seller", BASE | {"genai": {"seller": ""}, "same_as": ["maker"]}),
    ]

    found = merged(overlays, packages)["seller"].entries

    assert found["m"] == {
        "same_as": "maker/m",
        "context_tokens": "9",
        "checked": "2026-11-29",
        "sources": {"genai-prices": "1"},
    }
    assert found["n"]["prices"] == [{"input": "1", "output": "3"}]


def test_facts_by_hand_win_and_a_model_can_be_by_hand_alone():
    said = {
        "m": {"context_tokens": "7", "aliases": ["mm"]},
        "own": {"prices": {"input": "3"}},
        "twin": {"like": "m", "prices": {"output": "9"}},
    }
    found = made([model("m", context_window=100)], models=said).entries

    assert (found["m"]["context_tokens"], found["m"]["aliases"]) == ("7", ["mm"])
    assert found["own"]["prices"] == [{"input": "3"}]
    assert found["twin"]["prices"] == [{"input": "1", "output": "2"}]


def test_a_fact_by_hand_of_a_model_that_no_source_has_is_an_error_where_the_table_is_made():
    overlay = Overlay("p", BASE | {"models": {"x": {"context_tokens": "1"}}})

    with pytest.raises(PriceError, match=r"overlay/p\.yaml: models has x, which no source prices"):
        merged([overlay], Packages([], {}, {}), strict=True)
    assert merged([overlay], Packages([], {}, {}))["p"].entries == {}


def test_a_plain_write_price_is_for_the_lifetimes_that_the_overlay_names():
    both = one([model("m", price("1", cache_write_mtok=D("1.25")))], write="5m+30m")
    by_name = one([model("m", price("1", cache_write_mtok=D("1.25")))], write=[["x", "5m"], ["*", "30m"]])

    assert both["prices"][0]["cache_write"] == {"5m": "1.25", "30m": "1.25"}
    assert by_name["prices"][0]["cache_write"] == {"30m": "1.25"}


def test_prices_of_long_prompts_go_where_the_window_for_them_is_gone():
    tiers = TieredPrices(D("1"), [Tier(200_000, D("3"))])
    listed = [model("m", ModelPrice(input_mtok=tiers, output_mtok=D("2")))]
    theirs = {"l/m": entry("1", "2", input_cost_per_token_above_200k_tokens=D("4") / 1_000_000)}

    assert "above" in one(listed, theirs)["prices"][0]
    gone = one(listed, theirs, models={"m": {"long_prompts": "gone"}})
    assert gone["prices"] == [{"input": "1", "output": "2"}]

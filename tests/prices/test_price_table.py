from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from lockpin_core.errors import PriceError
from lockpin_core.prices import PriceTable, shipped_dir
from lockpin_core.usage import Unit

AT = datetime(2026, 11, 29, 12, tzinfo=UTC)
SHIPPED = PriceTable.load(shipped_dir())


def found(provider: str, name: str, table: PriceTable = SHIPPED) -> str | None:
    model = table.find(provider, name, AT)
    return None if model is None else model.id


@pytest.mark.parametrize(
    ("provider", "name", "model"),
    [
        ("anthropic", "claude-opus-5-5", "claude-opus-5-5"),
        ("anthropic", "claude-opus-5-5-20261001", "claude-opus-5-5"),
        ("anthropic", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("anthropic", "claude-sonnet-4-20250514", "claude-sonnet-4-0"),
        ("anthropic", "claude-3-5-haiku-20241022", "claude-3-5-haiku"),
        ("anthropic", "claude-3-7-sonnet-latest", "claude-3-7-sonnet"),
        ("openai", "gpt-6.1-sol-2026-09-29", "gpt-6.1-sol"),
        ("openai", "gpt-5.4-2026-03-05", "gpt-5.4"),
        ("openai", "gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),
        ("openai", "gpt-4o-2024-08-06", "gpt-4o"),
        ("openai", "gpt-5-codex", "gpt-5"),
        ("openai", "chat-latest", "gpt-chat-latest"),
    ],
)
def test_a_name_finds_its_model(provider, name, model):
    assert found(provider, name) == model


@pytest.mark.parametrize(
    ("provider", "name", "home", "model"),
    [
        ("chatgpt", "gpt-5.3-codex", "openai", "gpt-5.3-codex"),
        ("claude_aws", "claude-opus-5-5-20261001", "anthropic", "claude-opus-5-5"),
        ("claude_google", "claude-haiku-5-5", "anthropic", "claude-haiku-5-5"),
        ("azure", "gpt-6-cyber", "openai", "gpt-6-cyber"),
        ("azure", "gpt-5.5", "azure", "gpt-5.5"),
        ("azure_regional", "gpt-5.5", "azure", "gpt-5.5"),
        ("kimi", "kimi-k3", "moonshot", "kimi-k3"),
        ("cloudflare_gateway", "openai/gpt-5.5", "openai", "gpt-5.5"),
        ("cloudflare_gateway", "anthropic/claude-opus-5", "anthropic", "claude-opus-5"),
        ("vertex", "gemini-2.5-pro", "vertex", "gemini-2.5-pro"),
        ("vertex", "google/gemini-3.8-flash", "vertex", "gemini-3.8-flash"),
        ("vertex", "claude-opus-5@default", "vertex", "claude-opus-5"),
        ("vertex", "claude-opus-5@20260724", "vertex", "claude-opus-5"),
        ("gemini", "models/gemini-2.5-pro", "gemini", "gemini-2.5-pro"),
        ("fireworks", "accounts/fireworks/models/glm-5p3", "fireworks", "glm-5p3"),
        ("azure", "gpt-4o-2024-08-06", "azure", "gpt-4o"),
        ("azure", "gpt-4o-2024-05-13", "azure", "gpt-4o-2024-05-13"),
        ("bedrock", "us.anthropic.claude-opus-5", "bedrock", "anthropic.claude-opus-5"),
        ("bedrock", "global.anthropic.claude-opus-5", "bedrock", "global.anthropic.claude-opus-5"),
        ("huggingface", "openai/gpt-oss-120b:groq", "huggingface", "openai/gpt-oss-120b:groq"),
        ("openrouter", "anthropic/claude-opus-5.5", "openrouter", "anthropic/claude-opus-5.5"),
    ],
)
def test_a_name_finds_its_model_at_the_vendor_or_at_who_sets_its_price(provider, name, home, model):
    found = SHIPPED.find(provider, name, AT)

    assert found is not None
    assert (found.provider, found.id) == (home, model)


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        ("gemini", "gemini-3.8-flash-lite"),
        ("gemini", "gemini-2.5-flash-lite-xyz"),
        ("gemini", "gemma-3-27b-it"),
        ("gemini", "gpt-5.5"),
        ("xai", "grok-4.70"),
        ("deepseek", "deepseek-chat"),
        ("deepseek", "deepseek-reasoner"),
        ("azure", "my-gpt5-deployment"),
        ("azure", "prod-gpt-4o"),
        ("azure", "model-router"),
        ("openrouter", "openai/gpt-5.5:online"),
        ("openrouter", "deepseek/deepseek-r1:free"),
        ("openrouter", "openrouter/auto"),
        ("huggingface", "openai/gpt-oss-120b"),
        ("huggingface", "openai/gpt-oss-120b:fastest"),
        ("cloudflare_gateway", "workers-ai/@cf/meta/llama"),
        ("cloudflare_gateway", "azure/gpt-5.5"),
        ("bedrock", "claude-opus-9"),
        ("bedrock", "arn:aws:bedrock:us-east-1:1:application-inference-profile/x"),
        ("perplexity", "sonar-pro"),
        ("chatgpt", "auto"),
        ("kimi", "kimi-for-coding"),
        ("github_models", "gpt-4o"),
    ],
)
def test_what_nobody_has_priced_is_unknown_at_every_vendor(provider, name):
    assert SHIPPED.find(provider, name, AT) is None


def test_who_resells_a_model_sets_its_own_fees_and_regions():
    own, resold = SHIPPED.find("openai", "gpt-5-search-api"), SHIPPED.find("azure", "gpt-5-search-api")
    claude, on_azure = SHIPPED.find("claude_aws", "claude-opus-5"), SHIPPED.find("azure_regional", "claude-3-opus")

    assert (own.fees[Unit.WEB_SEARCH], resold.fees[Unit.WEB_SEARCH]) == (10_000_000_000, 14_000_000_000)
    assert resold.prices == own.prices
    assert (claude.rules.unsaid_geos, on_azure.rules.unsaid_geos) == (("us",), ())


def test_a_name_that_is_the_same_as_another_has_its_prices_and_facts():
    pricing = {
        "my-gpt5": {"same_as": "azure/gpt-5.5"},
        "team-*": {"same_as": "gemini-2.5-pro", "max_output_tokens": "9"},
    }
    table = PriceTable.load(shipped_dir(), pricing)
    twin, model = table.find("azure", "my-gpt5", AT), SHIPPED.find("azure", "gpt-5.5", AT)
    glob = table.find("openrouter", "team-blue", AT)

    assert (twin.id, twin.prices, twin.fees, twin.geos, twin.context_tokens) == (
        "my-gpt5",
        model.prices,
        model.fees,
        model.geos,
        model.context_tokens,
    )
    assert (twin.rules, twin.tokenizer, twin.user) == (model.rules, model.tokenizer, True)
    assert (glob.id, glob.max_output_tokens) == ("team-blue", 9)
    assert glob.prices == SHIPPED.find("gemini", "gemini-2.5-pro").prices
    assert [m.prices for m in table.own()] == [model.prices, glob.prices]


def test_a_factor_can_say_that_a_deployment_is_a_global_one():
    table = PriceTable.load(shipped_dir(), {"gpt-5.5": {"geo": {"data_zone": "1"}}})

    assert table.find("azure", "gpt-5.5", AT).geos["data_zone"] == (1, 1)
    assert SHIPPED.find("azure", "gpt-5.5", AT).geos["data_zone"] == (11, 10)


RESALE = {"ali": "xai/grok-4.5", "bare": "grok-4.5", "own": "azure/grok-4.5"}


def test_an_alias_of_what_a_seller_resells_has_the_sellers_fees_and_regions_however_it_is_spelled():
    table = PriceTable.load(shipped_dir(), {}, {"azure": RESALE})
    sold, made = table.find("azure", "grok-4.5", AT), table.find("xai", "grok-4.5", AT)

    assert (sold.rules.dearest_geo, made.rules.dearest_geo) == ((11, 10), (1, 1))
    for name in RESALE:
        found = table.find("azure", name, AT)
        assert (found.rules, found.fees) == (sold.rules, sold.fees), name


@pytest.mark.parametrize("first", ["ali", "grok-4.5"])
def test_what_a_user_says_of_a_model_that_is_resold_does_not_depend_on_what_was_asked_first(first):
    table = PriceTable.load(shipped_dir(), {"grok-4.5": {"max_output_tokens": "777"}}, {"azure": RESALE})
    table.find("azure", first, AT)
    sold = table.find("azure", "grok-4.5", AT)

    assert (sold.max_output_tokens, sold.rules.dearest_geo, sold.fees[Unit.WEB_SEARCH]) == (777, (11, 10), 14 * 10**9)


TWINS = [
    (provider, key, target)
    for provider, shelf in SHIPPED.shipped.items()
    for key in shelf
    if (target := shelf.entry(key).same_as) is not None
]


def test_what_a_user_says_of_a_model_counts_also_where_a_shipped_one_of_its_name_is_the_same_as_its_target():
    assert len(TWINS) > 20
    for provider, key, target in TWINS[::4]:
        said = {"same_as": target, "max_output_tokens": "777", "fees": {"web_search": "9"}}
        model = PriceTable.load(shipped_dir(), {key: said}).find(provider, key, AT)

        assert model is not None
        nine = 9 * 10**12  # in picodollars
        assert (model.user, model.max_output_tokens, model.fees[Unit.WEB_SEARCH]) == (True, 777, nine), (provider, key)


@pytest.mark.parametrize(
    ("target", "hint"),
    [("azure/gpt-55", "; did you mean gpt-5.5?"), ("gpt-55x", "; did you mean gpt-5.5?"), ("zzzzzzzzz", "")],
)
def test_a_name_that_is_the_same_as_nothing_is_an_error(target, hint):
    with pytest.raises(PriceError) as caught:
        PriceTable.load(shipped_dir(), {"mine": {"same_as": target}})

    assert str(caught.value) == f"pricing.mine.same_as is '{target}', which has no shipped price{hint}"


def test_a_shipped_entry_that_is_the_same_as_nothing_or_itself_is_an_error(tmp_path: Path):
    for target in ("q/n", "p/m"):
        (tmp_path / "p.yaml").write_text(entry(f"  m: {{same_as: {target}, {SOURCED}}}"))

        with pytest.raises(PriceError, match=rf"p\.yaml: m is the same as {target}, which has no price"):
            PriceTable.load(tmp_path).models()


def test_a_bad_list_of_sellers_is_named(tmp_path: Path):
    (tmp_path / "p.yaml").write_text("provider: p\nbase: https://p\nhosts: [p]\nprices_from: q\n")

    with pytest.raises(PriceError, match=r"p\.yaml: prices_from is 'q'; a list of providers"):
        PriceTable.load(tmp_path)


def test_every_seller_and_twin_that_the_files_name_exists():
    assert {seller for sellers in SHIPPED._from.values() for seller in sellers} <= SHIPPED.shipped.keys()
    assert all(SHIPPED.find(provider, name) is not None for provider, name in SHIPPED.names())


def test_a_start_reads_no_entry():
    table = PriceTable.load(shipped_dir())

    assert not any(shelf._entries for shelf in table.shipped.values())


@pytest.mark.parametrize(
    "name",
    [
        "claude-opus-4-10",
        "claude-opus-4-55",
        "claude-3-5-haiku-xyz",
        "claude-opus-6",
        "claude-opus-5-5-2026",
        "claude-opus-5-5-20261301",
        "claude-opus-5-5-20261001-20261001",
        "claude-opus-5-5-latest",
        "",
    ],
)
def test_a_name_that_merely_begins_like_a_known_one_is_unknown(name):
    assert found("anthropic", name) is None


def test_d24_a_dropped_model_and_one_of_another_vendor_are_unknown():
    assert found("openai", "gpt-3.5-turbo-0301") is None
    assert found("openai", "claude-opus-5-5") is None
    assert found("nobody", "gpt-4o") is None


def test_d23_a_routing_alias_has_no_price():
    assert found("openai", "auto") is None
    assert found("openai", "gpt-6.1-sol") == "gpt-6.1-sol"


def test_d25_an_empty_entry_is_unknown_and_does_not_hide_the_shipped_price():
    table = PriceTable.load(shipped_dir(), {"mine": {}, "gpt-4o": {}})

    assert table.find("openai", "mine", AT) is None
    assert table.find("openai", "gpt-4o", AT).prices == SHIPPED.find("openai", "gpt-4o", AT).prices


def test_an_exact_user_id_wins_over_a_glob_and_the_longest_glob_over_shorter_ones():
    pricing = {"gpt-*": {"input": "1"}, "gpt-4*": {"input": "2"}, "gpt-4o": {"input": "3"}}
    table = PriceTable.load(shipped_dir(), pricing)

    costs = [
        table.find("openai", name).prices[0].tiers["standard"].band(0).rates[Unit.INPUT]
        for name in ("gpt-4o", "gpt-4o-x", "gpt-5")
    ]

    assert costs == [3_000_000, 2_000_000, 1_000_000]


def test_a_users_entry_keeps_the_shipped_models_factors_and_facts_but_no_price_of_it():
    table = PriceTable.load(shipped_dir(), {"claude-opus-5-5": {"input_per_mtok": "1", "output_per_mtok": "2"}})
    model = table.find("anthropic", "claude-opus-5-5", AT)
    tiers = model.price_at(AT).tiers

    assert model.user
    assert (model.geos, model.speeds, model.fees) == ({"us": (11, 10)}, {"fast": (2, 1)}, {})
    assert tiers["standard"].band(0).rates[Unit.INPUT] == 1_000_000
    assert tiers["batch"].band(0).rates[Unit.INPUT] * tiers["batch"].factor[0] // tiers["batch"].factor[1] == 500_000
    assert (model.context_tokens, model.max_output_tokens, model.image_tokens) == (1_000_000, 128_000, 5_500)


def test_a_users_entry_for_a_model_that_nobody_knows_stands_by_itself():
    model = PriceTable.load(shipped_dir(), {"mine": {"input": "1"}}).find("openai", "mine", AT)

    assert (model.geos, model.speeds, set(model.prices[0].tiers)) == ({}, {}, {"standard"})
    assert len(model.prices[0].tiers["standard"].bands) == 1


@pytest.mark.parametrize("name", ["gpt-5.5-2026-04-23", "gpt-5-5-codex", "gpt-5-5-codex-2026-04-23"])
def test_a_users_price_also_holds_for_the_snapshots_and_aliases_that_replies_name(name):
    table = PriceTable.load(shipped_dir(), {"gpt-5.5": {"input": "2", "output": "8"}, "gpt-*": {"input": "7"}})
    model = table.find("openai", name, AT)

    assert model.id == "gpt-5.5"
    assert model.price_at(AT).tiers["standard"].band(0).rates[Unit.INPUT] == 2_000_000


def test_a_users_price_does_not_reach_a_snapshot_with_a_price_of_its_own():
    table = PriceTable.load(shipped_dir(), {"gpt-4o": {"input": "9"}, "mine": {"input": "1"}})

    assert not table.find("openai", "gpt-4o-2024-05-13", AT).user
    assert table.find("openai", "mine-2026-01-01", AT).id == "mine"
    assert table.find("openai", "mine-mini", AT) is None


def test_a_users_alias_of_a_snapshot_wins_over_his_price_of_its_model():
    aliases = {"openai": {"gpt-5.5-2026-04-23": "gpt-6-luna"}}
    table = PriceTable.load(shipped_dir(), {"gpt-5.5": {"input": "2"}}, aliases)

    assert table.find("openai", "gpt-5.5-2026-04-23", AT).id == "gpt-6-luna"


def test_a_users_entry_behind_an_alias_keeps_the_shipped_factors_of_another_vendor():
    aliases = {"azure": {"my-deployment": "gpt-5.5"}}
    table = PriceTable.load(shipped_dir(), {"gpt-5.5": {"input": "2", "output": "8"}}, aliases)
    model = table.find("azure", "my-deployment", AT)

    assert (model.provider, model.context_tokens, model.geos["data_zone"]) == ("azure", 1_050_000, (11, 10))
    assert "priority" in model.price_at(AT).tiers
    assert model.rules == SHIPPED.find("azure", "gpt-5.5").rules


def test_a_users_facts_alone_change_the_facts_and_not_the_price():
    table = PriceTable.load(shipped_dir(), {"gpt-4o": {"max_output_tokens": "100"}})
    model = table.find("openai", "gpt-4o", AT)

    assert model.max_output_tokens == 100
    assert model.prices == SHIPPED.find("openai", "gpt-4o", AT).prices
    assert (model.tokenizer, model.fees[Unit.WEB_SEARCH]) == ("o200k_base", 10_000_000_000)


def test_a_users_factors_and_fees_alone_are_laid_over_the_shipped_ones():
    table = PriceTable.load(shipped_dir(), {"gpt-5.5": {"geo": {"eu": "1.2"}, "fees": {"web_search": "0.02"}}})
    model = table.find("openai", "gpt-5.5", AT)

    assert model.prices == SHIPPED.find("openai", "gpt-5.5", AT).prices
    assert (model.geos["eu"], model.geos["us"]) == ((6, 5), (11, 10))
    assert (model.fees[Unit.WEB_SEARCH], model.fees[Unit.FILE_SEARCH]) == (20_000_000_000, 2_500_000_000)


def test_free_globs_are_free():
    table = PriceTable.load(shipped_dir(), {"local/*": {"free": "true"}})

    assert set(table.find("openai", "local/llama").prices[0].tiers["standard"].band(0).rates.values()) == {0}


def test_models_that_no_source_calls_free_are_so_when_the_user_says_it():
    table = PriceTable.load(shipped_dir(), {"*:free": {"free": "true"}})

    assert found("openrouter", "deepseek/deepseek-r1:free") is None
    assert set(
        table.find("openrouter", "deepseek/deepseek-r1:free").prices[0].tiers["standard"].band(0).rates.values()
    ) == {0}
    assert (
        table.find("openrouter", "deepseek/deepseek-r1").prices
        == SHIPPED.find("openrouter", "deepseek/deepseek-r1").prices
    )


def test_an_alias_finds_the_priced_model_also_at_another_vendor():
    aliases = {"openai": {"fast": "gpt-6-luna"}, "azure": {"my-deployment": "gpt-5.5", "two": "no-such-model"}}
    table = PriceTable.load(shipped_dir(), {"mine": {"input": "1"}}, {**aliases, "xai": {"x": "mine"}})

    assert found("openai", "fast", table) == "gpt-6-luna"
    assert found("azure", "my-deployment", table) == "gpt-5.5"
    assert found("azure", "two", table) is None
    assert found("xai", "x", table) == "mine"
    assert found("azure", "fast", table) is None


def test_near_names_are_suggested():
    table = PriceTable.load(shipped_dir(), {"my-model": {"input": "1"}, "local/*": {"free": "true"}})

    assert "claude-opus-5-5" in table.nearest("claude-opus-55")
    assert table.nearest("my-modell") == ["my-model"]
    assert len(table.nearest("gpt-5", 2)) == 2
    assert table.nearest("zzzzzzzz") == []


def test_the_date_is_the_newest_day_checked():
    assert SHIPPED.date == date(2026, 11, 29)


def test_models_are_listed_the_users_first():
    table = PriceTable.load(shipped_dir(), {"zzz": {"input": "1"}})
    names = [model.id for model in table.models()]

    assert names[0] == "zzz"
    assert names[1:] == [model.id for model in SHIPPED.models()]


def test_no_gpt_with_a_window_of_a_million_has_one_price_for_all_prompts():
    large = [m for m in SHIPPED.models() if m.provider == "openai" and (m.context_tokens or 0) >= 1_050_000]

    assert len(large) > 15
    assert [m.id for m in large if len(m.price_at(AT).tiers["standard"].bands) == 1] == []


def test_shipped_models_are_bounded_by_a_byte_rule_of_their_family():
    def rules(provider: str) -> set[str]:
        return {model.tokenizer for model in SHIPPED.models(provider)}

    assert rules("anthropic") == rules("gemini") == rules("vertex") == rules("xai") == rules("moonshot") == {"claude"}
    assert rules("openai") == {"o200k_base", "cl100k_base", "bytes"}
    assert rules("deepseek") == {"bytes"}
    assert rules("qwen") == {"claude", "bytes"}


@pytest.mark.parametrize(
    ("name", "tokenizer"),
    [
        ("gpt-4o", "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("gpt-6.1-sol", "o200k_base"),
        ("o3", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("gpt-3.5-turbo-instruct", "cl100k_base"),
        ("davinci-002", "cl100k_base"),
        ("text-embedding-3-small", "cl100k_base"),
        ("gpt-image-1", "bytes"),
    ],
)
def test_an_openai_model_has_its_tokenizer(name, tokenizer):
    assert SHIPPED.find("openai", name).tokenizer == tokenizer


def test_an_earlier_price_serves_earlier_receipts():
    o3 = SHIPPED.find("openai", "o3", AT)
    changed = datetime(2025, 6, 10, tzinfo=UTC)

    costs = [
        o3.price_at(at).tiers["standard"].band(0).rates[Unit.INPUT] for at in (changed - timedelta(seconds=1), changed)
    ]

    assert costs == [10_000_000, 2_000_000]


def test_before_the_first_date_the_first_price_counts():
    table = PriceTable.load(shipped_dir(), {"m": {"prices": [{"from": "2030-01-01", "input": "5"}]}})
    model = table.find("openai", "m")

    assert model.price_at(AT) is model.prices[0]


def entry(text: str) -> str:
    return f"provider: p\nbase: https://p\nhosts: [p]\nmodels:\n{text}"


SOURCED = "checked: 2026-01-01, sources: {a: b}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("  m: {input: '1'}", "p.yaml: m must say when it was checked and its sources"),
        (f"  m: {{input: '1', sources: {{a: b}}}}\n  n: {{input: '1', {SOURCED}}}", "p.yaml: m must say"),
        ("  m: {inputt: '1'}", "p.yaml: m: inputt is no key here"),
        ("  - m", "p.yaml: models is ['m']; a mapping of entries"),
        (
            f"  m: {{input: '1', aliases: [x], {SOURCED}}}\n  n: {{input: '1', aliases: [x], {SOURCED}}}",
            "p.yaml: n and m share the alias x",
        ),
        (
            f"  m: {{input: '1', aliases: [n], {SOURCED}}}\n  n: {{input: '1', {SOURCED}}}",
            "p.yaml: n is both a model and an alias",
        ),
    ],
)
def test_a_bad_shipped_entry_is_named(tmp_path: Path, text, said):
    (tmp_path / "p.yaml").write_text(entry(text))

    with pytest.raises(PriceError) as caught:
        PriceTable.load(tmp_path).models()

    assert said in str(caught.value)


def test_bad_term_rules_are_named(tmp_path: Path):
    (tmp_path / "p.yaml").write_text("provider: p\nbase: https://p\nhosts: [p]\ntier_names: [x]\n")

    with pytest.raises(PriceError, match=r"p\.yaml: tier_names must be a mapping"):
        PriceTable.load(tmp_path)


def test_an_empty_shipped_entry_is_unknown(tmp_path: Path):
    (tmp_path / "p.yaml").write_text(entry("  m: {}"))

    assert PriceTable.load(tmp_path).find("p", "m") is None


def test_a_bad_user_entry_is_named():
    with pytest.raises(PriceError, match=r"pricing\.mine\.input is 'x'"):
        PriceTable.load(shipped_dir(), {"mine": {"input": "x"}})


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        ("xai", "grok-4.20-multi-agent"),
        ("xai", "grok-4.20-multi-agent-0309"),
        ("xai", "grok-4.20-multi-agent-beta-latest"),
        ("openrouter", "x-ai/grok-4.20-multi-agent"),
        ("perplexity", "xai/grok-4.20-multi-agent"),
        ("azure", "grok-4.20-multi-agent"),
    ],
)
def test_models_that_run_several_agents_have_no_price(provider: str, name: str):
    assert found(provider, name) is None

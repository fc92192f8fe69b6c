from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lockpin_core.budgets import Budget
from lockpin_core.call import Payers
from lockpin_core.config import Config, TaskKeys, Upstream
from lockpin_core.config_near_cap import Breaker, NearCap
from lockpin_core.config_warnings import warnings
from lockpin_core.money import Money
from lockpin_core.oidc import Issuer
from lockpin_core.price_table import PriceTable
from lockpin_core.providers import Providers
from lockpin_core.windows import Window

NOW = datetime(2026, 12, 1, tzinfo=UTC)
PLAIN = Config(file=None, ledger=Path("unused"))
BUDGET = Budget("b", "machine", Window("day"), limit=Money.parse("1"), enforce=True)
SHIPPED = """\
provider: acme
base: https://api.acme.example
hosts: [api.acme.example, 'runtime.*.acme.example']
wires: {/v1/chat/completions: openai_chat}
models:
  acme-large-1: {input: "1", output: "2", checked: 2026-11-01, sources: {page: "1"}, aliases: [big]}
  acme-small-1: {input: "1", output: "1.5", checked: 2026-11-01, sources: {page: "1"}}
  acme-other-1: {input: "0.5", output: "4", checked: 2026-11-01, sources: {page: "1"}}
"""


@pytest.fixture
def warn(tmp_path: Path):
    def warn(config: Config, *callers: Payers) -> list[str]:
        (tmp_path / "acme.yaml").write_text(SHIPPED)
        table = PriceTable.load(tmp_path, config.pricing, config.models)
        return warnings(config, table, Providers.load(tmp_path), callers, at=NOW)

    return warn


def test_plain_configuration_has_no_warning(warn):
    assert warn(PLAIN) == []
    assert warn(replace(PLAIN, budgets=(replace(BUDGET, models=("acme-*",), providers=("ac*",)),))) == []


def test_warn_only_budget_is_said_to_block_nothing(warn):
    (line,) = warn(replace(PLAIN, budgets=(replace(BUDGET, enforce=False),)))

    assert line == 'budget "b" only warns and never blocks; action: enforce blocks'


def test_configuration_without_any_enforced_limit_is_said(warn):
    nothing = replace(PLAIN, daily_usd=None)

    assert warn(nothing) == ["no limit is enforced: every call is recorded, none is refused for its cost"]
    assert warn(replace(nothing, task=TaskKeys(budget_usd=Money.parse("1")))) == []
    assert warn(replace(nothing, budgets=(BUDGET,))) == []


@pytest.mark.parametrize(
    "filters",
    [
        {"models": ("acme-small",)},
        {"models": ("my-alias",)},
        {"providers": ("acne",)},
        {"providers": ("acne",), "models": ("acme-*",)},
    ],
)
def test_budget_that_can_never_match_is_named(warn, filters: dict[str, tuple[str, ...]]):
    config = replace(PLAIN, budgets=(replace(BUDGET, **filters),), models={"acme": {"my-alias": "acme-large-1"}})

    (line,) = warn(config)

    assert line.startswith('budget "b" can never match: no p')


def test_budget_of_a_users_own_models_may_match(warn):
    config = replace(PLAIN, pricing={"local/*": {"free": "true"}, "mine": {"input": "1", "output": "1"}})

    for name in ("local/*", "local/llama", "mine"):
        assert warn(replace(config, budgets=(replace(BUDGET, models=(name,), providers=("acme",)),))) == []


def test_model_without_a_price_is_named(warn):
    config = replace(PLAIN, pricing={"empty": None, "facts": {"context_tokens": "5"}, "fine": {"free": "true"}})

    lines = warn(config)

    assert [line.split('"')[1] for line in lines] == ["empty", "facts"]


def test_alias_of_a_model_without_a_price_is_named_with_a_near_one(warn):
    lines = warn(replace(PLAIN, models={"acme": {"a": "acme-lorge-1", "b": "acme-large-1"}}))

    assert lines == ['models: acme "a" stands for "acme-lorge-1", which has no price; did you mean acme-large-1?']


def test_aliases_of_an_unknown_provider_are_named(warn):
    assert 'models: no provider is called "acne"; did you mean acme?' in warn(replace(PLAIN, models={"acne": {}}))


@pytest.mark.parametrize(
    ("entry", "missing"),
    [
        ({"input": "1"}, "output"),
        ({"output": "1"}, "input"),
        ({"cacheReadPerMTok": "1"}, "input and no output"),
        ({"prices": [{"input": "1", "output": "2"}, {"from": "2027-01-01", "input": "1"}]}, "output"),
        ({"output": "1", "above": [{"tokens": "200000", "input": "2"}]}, "input"),
    ],
)
def test_price_without_input_or_output_is_said_to_refuse_calls(warn, entry, missing):
    (line,) = warn(replace(PLAIN, pricing={"m-*": entry}))

    assert line.startswith(f'pricing: "m-*" has no {missing} price, so calls to it are refused; ')


def test_price_of_zero_is_a_price(warn):
    assert warn(replace(PLAIN, pricing={"m": {"input": "0", "output": "0"}})) == []


@pytest.mark.parametrize("name", ["acme-large-1", "acme-large-1-2026-11-01", "acme-*"])
def test_facts_of_a_shipped_model_need_no_price(warn, name):
    assert warn(replace(PLAIN, pricing={name: {"context_tokens": "5"}})) == []


@pytest.mark.parametrize("host", ["api.acme.example", "runtime.eu-1.acme.example"])
def test_upstream_of_a_providers_host_is_no_doubt(warn, host):
    assert warn(replace(PLAIN, upstreams={host: Upstream("http", "127.0.0.1", 9)})) == []


def test_vendors_name_in_place_of_its_host_is_told(warn):
    lines = warn(replace(PLAIN, upstreams={"acme": Upstream("http", "127.0.0.1", 9)}))

    assert lines == [
        "upstreams: acme is no provider's host, so nothing is sent elsewhere; did you mean api.acme.example?"
    ]


def test_upstream_of_another_host_is_named_with_a_near_one(warn):
    lines = warn(replace(PLAIN, upstreams={h: Upstream("http", "127.0.0.1", 9) for h in ("api.acne.example", "x.y")}))

    assert lines == [
        "upstreams: api.acne.example is no provider's host, so nothing is sent elsewhere; did you mean api.acme.example?",
        "upstreams: x.y is no provider's host, so nothing is sent elsewhere",
    ]


@pytest.mark.parametrize(
    "glob",
    [
        *("api.acme.example/v1/videos*", "*/v1/videos", "*.acme.example/*", "api.acm?.example/v1", "a*/v1"),
        *(
            "runtime.eu-1.acme.example/x",
            "runtime.eu-*.acme.example/x",
            "run*.eu-1.acme.example/x",
            "api.acme.*xample/v",
        ),
        *("[ab]pi.acme.example/v1", "api.acme*/x/y"),
    ],
)
def test_uncapped_glob_that_can_match_a_providers_host_is_no_doubt(warn, glob):
    assert warn(replace(PLAIN, allow_uncapped=(glob,))) == []


def test_uncapped_path_that_is_metered_is_named(warn):
    (line,) = warn(replace(PLAIN, allow_uncapped=("api.acme.example/v1/chat/completions",)))

    named = '"api.acme.example/v1/chat/completions"'
    assert line == f"allow_uncapped: {named} lets nothing go: a call there is metered (openai_chat), and always held"


@pytest.mark.parametrize(
    "glob",
    [
        "api.acne.example/v1*",
        "acme.example/*",
        "api.acme.example.tld/*",
        "runtime.acme/*",
        "runtime.a.b.acme.example/x",
    ],
)
def test_uncapped_glob_that_can_never_match_is_named(warn, glob):
    (line,) = warn(replace(PLAIN, allow_uncapped=(glob,)))

    assert line.startswith(f'allow_uncapped: "{glob}" can never match: {glob.split("/")[0]} is no provider\'s host')


KNOWN = {"m": {"input": "10", "output": "50", "context_tokens": "200000", "max_output_tokens": "64000"}}


def test_filter_of_which_a_part_can_never_match_is_named(warn):
    budget = replace(BUDGET, models=("acme-*", "acme-lorge-1"), providers=("acme", "acne"))

    provider, model = warn(replace(PLAIN, budgets=(budget,)))

    assert provider == 'budget "b" names the provider "acne", which nobody is: that part of it counts nothing'
    assert model == (
        'budget "b" names the model "acme-lorge-1", which has no price: that part of it counts nothing; '
        "did you mean acme-large-1?"
    )


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        # A full window of 200,000 tokens at $10 a million is $2, 32,000 of output at $50 are $1.60.
        ({"limit": "3.6"}, None),
        ({"limit": "3.59"}, "$3.59, and one call of m can take $3.60"),
        ({"limit": None, "limit_tokens": 232_000}, None),
        ({"limit": None, "limit_tokens": 231_999}, "231,999 tokens, and one call of m can take 232,000"),
        ({"limit": "9", "limit_tokens": 5}, "5 tokens, and one call of m can take 232,000"),
        ({"limit": "1", "enforce": False}, None),
    ],
)
def test_limit_below_the_worst_case_of_one_call_is_named(warn, limits, told):
    limit = limits["limit"]
    budget = replace(
        BUDGET, models=("m",), enforce=limits.get("enforce", True), limit_tokens=limits.get("limit_tokens"),
        limit=None if limit is None else Money.parse(limit),
    )  # fmt: skip

    lines = [line for line in warn(replace(PLAIN, pricing=KNOWN, budgets=(budget,))) if "only warns" not in line]

    expected = [f'budget "b" has a limit of {told}: large calls never fit'] if told else []
    assert lines == expected


def test_task_budget_below_any_call_is_named(warn):
    small = replace(PLAIN, pricing=KNOWN, task=TaskKeys(budget_usd=Money.parse("0.5")))

    assert warn(small) == ['budget "task" has a limit of $0.5, and one call of m can take $3.60: large calls never fit']
    assert warn(replace(small, task=TaskKeys(budget_usd=Money.parse("4")))) == []


def test_names_that_look_the_same_and_budgets_that_count_the_same_are_named(warn):
    budgets = (
        replace(BUDGET, name="Dev-Daily", models=("acme-*",)), replace(BUDGET, name="dev daily"),
        replace(BUDGET, name="again", limit=Money.parse("2")), replace(BUDGET, name="week", window=Window("week")),
    )  # fmt: skip

    assert warn(replace(PLAIN, daily_usd=None, budgets=budgets)) == [
        'budget "dev daily" and budget "Dev-Daily" have names that look the same',
        'budget "again" counts just what budget "dev daily" does; the smaller limit decides',
    ]


def test_budget_that_counts_what_daily_usd_does_is_named(warn):
    (line,) = warn(replace(PLAIN, budgets=(BUDGET,)))

    assert line == 'budget "b" counts just what budget "daily" does; the smaller limit decides'


def test_real_keys_that_solo_mode_does_not_put_in_are_said(warn):
    keys = replace(PLAIN, provider_env={"acme": "ACME_KEY"})

    assert warn(keys) == [
        "keys: real keys are put in with mode: team, and for fallbacks; else in solo mode agents send their own"
    ]
    fallbacks = replace(keys.near_cap, fallbacks={"acme/*": ("acme/acme-large-1",)})
    assert warn(replace(keys, near_cap=fallbacks)) == []
    assert warn(replace(keys, mode="team")) == []


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        ({"scope": "user"}, "user"),
        ({"scope": "key"}, "key"),
        ({"scope": "group", "groups": ("ml",)}, "group"),
        ({"scope": "machine", "rings": ("r1",)}, "ring"),
    ],
)
def test_budget_of_what_only_keys_say_never_matches_in_solo_mode(warn, facts, what):
    budget = replace(BUDGET, **facts)

    assert warn(replace(PLAIN, daily_usd=None, budgets=(budget,))) == [
        f'budget "b" can never match: in solo mode no call has a {what}; mode: team gives callers keys'
    ]
    assert warn(replace(PLAIN, daily_usd=None, mode="team", budgets=(budget,))) == []


@pytest.mark.parametrize("facts", [{"scope": "tag"}, {"scope": "project"}, {"scope": "org"}, {"projects": ("p",)}])
def test_what_a_caller_may_say_without_a_key_can_match_in_solo_mode(warn, facts):
    assert warn(replace(PLAIN, daily_usd=None, budgets=(replace(BUDGET, **facts),))) == []


def test_people_that_no_key_stands_for_are_named(warn):
    ann = Payers("", "", key="k-1", user="ann", groups=("ml", "web"), ring="r1")
    bob = Payers("", "", key="k-2", user="bob")
    budgets = (
        replace(BUDGET, name="some", scope="group", groups=("ml", "search", "ops")),
        replace(BUDGET, name="none", scope="group", groups=("search", "ops")),
        replace(BUDGET, name="zoe", scope="user", users=("zoe",)),
        replace(BUDGET, name="fine", scope="user", users=("bob",), rings=("r1",)),
    )

    lines = warn(replace(PLAIN, daily_usd=None, mode="team", budgets=budgets), ann, bob)

    assert lines == [
        'budget "some" names the groups search, ops, which no key has: that part of it counts nothing',
        'budget "none" can never match: no key has the groups search, ops',
        'budget "zoe" can never match: no key has the user zoe',
    ]
    by_token = replace(
        PLAIN, daily_usd=None, mode="team", budgets=budgets, oidc=Issuer("https://id.example", "lockpin")
    )
    assert warn(by_token, ann, bob) == []  # tokens name whom they like


@pytest.mark.parametrize(
    ("key", "instead", "line"),
    [
        ("fallbacks", {"acme/*": ("acme/acme-large-1",)}, None),
        ("cheaper", {"acme/acme-large": ("acme/acme-large-1",)},
         'cheaper: "acme/acme-large" has no price, so its calls are refused; did you mean acme/acme-large-1?'),
        ("fallbacks", {"acme/*": ("acme/acme-lorge-1",)},
         'fallbacks: "acme/acme-lorge-1" has no price, so it is skipped; did you mean acme/acme-large-1?'),
        ("cheaper", {"acme/*": ("acme/nope",)}, 'cheaper: "acme/nope" has no price, so it is skipped'),
        ("fallbacks", {"zzz/*": ("acme/acme-large-1",)}, 'fallbacks: no provider is called "zzz"; there are acme'),
        ("fallbacks", {"acme/acme-large-1": ("acme/acme-large-1", "acme/acme-small-1")},
         'fallbacks: "acme/acme-large-1" is named in its own place, and skipped there; another model is allowed'),
        ("cheaper", {"acme/big": ("acme/acme-large-1",)},
         'cheaper: "acme/acme-large-1" is named in its own place, and skipped there; another model is allowed'),
        ("cheaper", {"acme/acme-small-1": ("acme/acme-large-1",)},
         'cheaper: "acme/acme-large-1" is no cheaper than acme/acme-small-1: its prices are as high or higher'),
        ("cheaper", {"acme/acme-large-1": ("acme/acme-small-1",)}, None),
        ("cheaper", {"acme/acme-large-1": ("acme/acme-other-1",)}, None),  # it reads for less
        ("fallbacks", {"acme/*": ("acme/x",)}, 'fallbacks: "acme/x" has no price, so it is skipped'),
        ("fallbacks", {"acmee/*": ("acme/acme-large-1",)}, 'fallbacks: no provider is called "acmee"; did you mean acme?'),
    ],
)  # fmt: skip
def test_models_that_cannot_serve_instead_are_said(warn, key, instead, line):
    found = warn(replace(PLAIN, near_cap=replace(PLAIN.near_cap, **{key: instead})))

    assert [one for one in found if line is None or one == line] == ([] if line is None else [line])


def test_a_typo_of_a_provider_is_one_warning(warn):
    """It is no provider that needs a key of its own, however many of its models are named."""
    instead = {"acme/acme-large-1": ("acmee/one", "acmee/two")}

    found = warn(replace(PLAIN, near_cap=replace(PLAIN.near_cap, fallbacks=instead)))

    assert found == ['fallbacks: no provider is called "acmee"; did you mean acme?']


@pytest.mark.parametrize(
    ("model", "more", "pricing", "is_told"),
    [
        ("open", "", {}, True),
        ("most", "max_output_tokens: '9', ", {}, False),
        ("open", "", {"open": {"max_output_tokens": "9"}}, False),
        ("kept-1", "", {}, False),  # it keeps to a budget of the request
        ("free", "", {"free": {"free": "true"}}, False),
    ],
)
def test_a_fallback_whose_reasoning_has_no_bound_is_said_to_be_skipped(warn, tmp_path, model, more, pricing, is_told):
    head, _ = SHIPPED.replace("acme", "other").split("models:")
    facts = f'input: "1", output: "2", {more}checked: 2026-11-01, sources: {{page: "1"}}'
    beside = "output_beside_limit: true\nthinking_budget: ['kept*']\n"
    (tmp_path / "other.yaml").write_text(f"{head}{beside}models:\n  {model}: {{{facts}}}\n")
    near_cap = replace(PLAIN.near_cap, fallbacks={"acme/acme-large-1": (f"other/{model}",)})

    found = warn(replace(PLAIN, near_cap=near_cap, pricing=pricing, provider_env={"other": "OTHER_KEY"}))

    assert found == [
        f'fallbacks: "other/{model}" has no bound, so it is skipped: other bills reasoning beside an output limit, and '
        f'nobody states how much that is at most; pricing: {{"{model}": {{max_output_tokens: TOKENS}}}} states it'
        for _ in range(is_told)
    ]


@pytest.mark.parametrize("key", ["cheaper", "fallbacks"])
def test_a_model_of_another_provider_needs_what_it_cannot_have(warn, tmp_path, key):
    (tmp_path / "other.yaml").write_text(SHIPPED.replace("acme", "other"))
    instead = {"acme/acme-large-1": ("other/big",)}

    found = warn(replace(PLAIN, near_cap=replace(PLAIN.near_cap, **{key: instead})))

    assert {
        "cheaper": 'cheaper: "other/big" never serves for acme/acme-large-1: a cheaper model is one of the same provider',
        "fallbacks": 'fallbacks: "other/big" needs a key of its own; name it in keys.provider_env, or in the keyring',
    }[key] in found


@pytest.mark.parametrize("key", ["cheaper", "fallbacks"])
def test_another_model_under_the_login_of_a_plan_is_said_to_serve_never(warn, tmp_path, key):
    (tmp_path / "club.yaml").write_text(SHIPPED.replace("acme", "club").replace("models:", "plan: true\nmodels:"))
    instead = {"club/club-large-1": ("club/club-other-1", "acme/acme-other-1")}

    found = warn(replace(PLAIN, near_cap=replace(PLAIN.near_cap, **{key: instead}), provider_env={"acme": "ACME_KEY"}))

    words = "never serves for club/club-large-1: what the login of a plan sends leaves as it came"
    assert f'{key}: "club/club-other-1" {words}' in found
    assert f'{key}: "acme/acme-other-1" {words}' not in found


@pytest.mark.parametrize(
    ("mode", "by", "words"),
    [
        ("solo", "key", ["so none is stopped by its key"]),
        ("solo", "both", ["so none is stopped by its key; tasks are watched"]),
        ("solo", "task", []),
        ("team", "both", []),
    ],
)
def test_a_breaker_of_keys_without_keys_is_warned_of(warn, mode, by, words):
    near_cap = NearCap(breaker=Breaker(Money.parse("1"), by=by))

    found = [line for line in warn(replace(PLAIN, mode=mode, near_cap=near_cap)) if line.startswith("breaker")]

    assert len(found) == len(words)
    assert all(line.endswith(end) for line, end in zip(found, words, strict=True))

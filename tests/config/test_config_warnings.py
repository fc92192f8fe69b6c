from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lockpin_core.budgets import Budget
from lockpin_core.config import Config, TaskKeys
from lockpin_core.config_warnings import warnings
from lockpin_core.money import Money
from lockpin_core.price_table import PriceTable
from lockpin_core.windows import Window

NOW = datetime(2026, 12, 1, tzinfo=UTC)
PLAIN = Config(file=None, ledger=Path("unused"))
BUDGET = Budget("b", "machine", Window("day"), limit=Money.parse("1"), enforce=True)
SHIPPED = """\
provider: acme
base: https://api.acme.example
hosts: [api.acme.example]
models:
  acme-large-1: {input: "1", output: "2", checked: 2026-11-01, sources: {page: "1"}}
"""


@pytest.fixture
def warn(tmp_path: Path):
    def warn(config: Config) -> list[str]:
        (tmp_path / "acme.yaml").write_text(SHIPPED)
        return warnings(config, PriceTable.load(tmp_path, config.pricing, config.models), at=NOW)

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
    assert 'models: no provider is called "acne"; there are acme' in warn(replace(PLAIN, models={"acne": {}}))

"""Figures by hand: 3 calls of 100,000 tokens at $1, $2 and $4 per million tokens are $0.30, $0.60 and $1.20."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lockpin_core.config import Config, TaskKeys
from lockpin_core.config_near_cap import Breaker, Landing, NearCap, Retry
from lockpin_core.config_near_warnings import near_warnings
from lockpin_core.money import Money
from lockpin_core.price_table import PriceTable

NOW = datetime(2026, 12, 1, tzinfo=UTC)
PLAIN = Config(file=None, ledger=Path("unused"))
SHIPPED = """\
provider: acme
base: https://api.acme.example
hosts: [api.acme.example]
wires: {/v1/chat/completions: openai_chat}
models:
  one: {input: "1", output: "1", checked: 2026-11-01, sources: {page: "1"}}
  two: {input: "1", output: "2", checked: 2026-11-01, sources: {page: "1"}}
  four: {input: "1", output: "4", checked: 2026-11-01, sources: {page: "1"}}
  free: {input: "0", output: "0", checked: 2026-11-01, sources: {page: "1"}}
"""
NO_USE = (
    "of no use, as retry.attempts is 1: no call is sent to the same model again; retry.attempts: 3 sends one up to "
    "three times"
)


@pytest.fixture
def warn(tmp_path):
    def warn(near_cap: NearCap, budget: str | None = None) -> list[str]:
        (tmp_path / "acme.yaml").write_text(SHIPPED)
        task = TaskKeys(budget_usd=None if budget is None else Money.parse(budget))
        table = PriceTable.load(tmp_path, {}, {})
        return list(near_warnings(replace(PLAIN, task=task, near_cap=near_cap), table, at=NOW))

    return warn


@pytest.mark.parametrize(
    ("retry", "lines"),
    [
        (Retry(), []),
        (Retry(attempts=3, base_ms=2000, max_ms=2000), []),
        (
            Retry(attempts=3, base_ms=30_000, max_ms=2000),
            ["retry.base is 30s and above retry.max, 2s: every wait is up to 2s"],
        ),
        (Retry(base_ms=1000), [f"retry: base is {NO_USE}"]),
        (
            Retry(base_ms=30_000, max_ms=2000),
            [
                f"retry: base and max are {NO_USE}",
                "retry.base is 30s and above retry.max, 2s: every wait is up to 2s",
            ],
        ),
        (Retry(base_ms=1000, after_max_ms=1000), [f"retry: base and after_max are {NO_USE}"]),
    ],
)
def test_a_retry_that_does_not_do_what_it_says_is_told(warn, retry, lines):
    assert warn(NearCap(retry=retry)) == lines


def test_a_breaker_without_an_amount_is_told_to_be_off(warn):
    (line,) = warn(NearCap(breaker=Breaker(window_ms=30_000)))

    assert line == (
        "breaker: it has no usd, so it is off and nothing pauses; usd says how much may be charged in the window"
    )
    assert warn(NearCap(breaker=Breaker(Money.parse("1"), window_ms=30_000))) == []


@pytest.mark.parametrize(("budget", "above"), [("0.25", 3), ("0.599", 2)])
def test_landing_that_most_models_cannot_keep_room_for_is_told(warn, budget, above):
    (line,) = warn(NearCap(landing=Landing(3, 100_000)), budget)

    assert line == (
        f"landing: the room for 3 × 100,000 tokens of output costs more than a task's budget, ${budget}, with {above} of "
        "3 priced models, so that only calls of up to 100,000 tokens of output fit; a smaller landing or a larger "
        "task.budget_usd lets others pass"
    )


@pytest.mark.parametrize(("calls", "budget"), [(3, "0.6"), (3, None), (0, "0.25")])
def test_landing_that_there_is_room_for_is_not_told(warn, calls, budget):
    assert warn(NearCap(landing=Landing(calls, 100_000)), budget) == []

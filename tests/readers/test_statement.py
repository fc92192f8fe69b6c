from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from lockpin_core.budgets import Budget, Standing
from lockpin_core.money import Money
from lockpin_core.readers.statement import FIELDS, key_of, statement, used
from lockpin_core.windows import LIFETIME, Window, WindowSpan

DAY = WindowSpan(datetime(2026, 10, 21, tzinfo=UTC), datetime(2026, 10, 22, tzinfo=UTC))


def standing(
    spent="0", limit=None, spent_tokens=0, limit_tokens=None, *, held="0", span=LIFETIME, enforce=True
) -> Standing:
    kind = "lifetime" if span is LIFETIME else "day"
    budget = Budget("b", "task", Window(kind), enforce=enforce)
    usd = None if limit is None else Money.parse(limit)
    return Standing(
        "id", budget, "fix", span, Money.parse(spent), Money.parse(held), spent_tokens, 0, usd, limit_tokens
    )


def test_line_has_every_field_of_the_contract():
    (line,) = statement([standing("0.5", "2", 10, 100, held="1.5", span=DAY, enforce=False)])

    assert tuple(line) == FIELDS
    assert line == {
        "budget": "b", "key": "task:fix", "scope": "task", "subject": "fix", "window": "day", "action": "warn",
        "spent_usd": Decimal("0.5"), "held_usd": Decimal("1.5"), "limit_usd": Decimal(2), "spent_tokens": 10,
        "held_tokens": 0, "limit_tokens": 100, "used": Decimal("0.25"), "resets_at": "2026-10-22T00:00:00Z",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("account", "share"),
    [
        (standing("1", "3"), "0.3333"),
        (standing("1", "4", 80, 100), "0.8"),  # tokens are nearer to their limit
        (standing("2.9999", "3"), "0.9999"),  # never shown as used up while something is left
        (standing("6", "3"), "2"),
        (standing("0", "3", held="3"), "0"),  # held is not used
        (standing("0", "0"), "1"),
        (standing("0", None, 1, 3), "0.3333"),
    ],
)
def test_used_is_spent_of_the_limit(account, share):
    assert used(account) == Decimal(share)


def test_without_a_limit_nothing_is_used():
    assert used(standing("5")) is None


def test_key_names_scope_and_subject():
    assert key_of(standing()) == "task:fix"


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (Window("week", at=360), "week"),
        (Window("month", anchor=31), "month"),
        (Window("rolling", period_ms=86_400_000), "rolling 24h"),
    ],
)
def test_window_is_written_for_people(window, words):
    plain = standing(limit="1")

    (line,) = statement([plain._replace(budget=replace(plain.budget, window=window))])

    assert line["window"] == words


def test_rolling_window_resets_when_spend_next_leaves_it():
    leaves = datetime(2026, 10, 21, 14, 30, tzinfo=UTC)

    (line,) = statement([standing("1", "2", span=WindowSpan(None, leaves))])

    assert line["resets_at"] == "2026-10-21T14:30:00Z"

from datetime import UTC, datetime

import nouns

from lockpin_core.call import Share
from lockpin_core.money import ZERO, Money
from lockpin_core.receipt import ReceiptFacts, receipt
from lockpin_core.usage import Unit

AT = datetime(2026, 10, 21, 12, 0, 5, 42, tzinfo=UTC)
FIELDS = [  # in the order in which SPEC lists them
    *("v", "id", "at", "decision", "code", "task", "key", "user", "provider", "model", "model_served", "held_usd"),
    *("charged_usd", "estimated", "estimate_reason", "failed", "over_hold", "usage", "rates", "price_date", "tier"),
    *("billing", "output_limit", "degrade", "waited_ms", "budgets", "hash"),
]


def test_a_receipt_of_a_charge_has_every_field_with_exact_decimal_text():
    rules = [nouns.standing(nouns.TASK), nouns.standing(nouns.budget(), limit="25", spent="0.00028", held="1.5")]
    facts = ReceiptFacts(
        "c1", AT, "allowed", "t", "anthropic", "m", key="k", user="u", model_served="m-2",
        held=Money.parse("0.5"), charged=Money(280_000), usage={Unit.INPUT: 100, Unit.OUTPUT: 7},
        rates={"input": "2"}, price_date="2026-11-29", tier="standard", billing="metered", output_limit=500,
        degrade=("fit",), waited_ms=3, budgets=rules, hash="ab",
    )  # fmt: skip

    found = receipt(facts)

    assert list(found) == FIELDS
    assert found == {
        "v": 1, "id": "c1", "at": "2026-10-21T12:00:05.000042Z", "decision": "allowed", "code": None, "task": "t",
        "key": "k", "user": "u", "provider": "anthropic", "model": "m", "model_served": "m-2", "held_usd": "0.5",
        "charged_usd": "0.00028", "estimated": False, "estimate_reason": None, "failed": False, "over_hold": False,
        "usage": {"input": 100, "output": 7}, "rates": {"input": "2"}, "price_date": "2026-11-29", "tier": "standard",
        "billing": "metered", "output_limit": 500, "degrade": ["fit"], "waited_ms": 3, "hash": "ab",
        "budgets": [
            {"name": "task", "subject": "fix-login-bug", "spent_usd": "0", "held_usd": "0", "limit_usd": None},
            {"name": "daily", "subject": "box", "spent_usd": "0.00028", "held_usd": "1.5", "limit_usd": "25"},
        ],
    }  # fmt: skip


def test_a_receipt_of_a_refusal_says_what_is_not_known_as_null_or_empty():
    found = receipt(ReceiptFacts("c2", AT, "refused", "t", "openai", "", code="bad_request"))

    assert list(found) == FIELDS
    assert (found["decision"], found["code"], found["held_usd"], found["charged_usd"]) == (
        *("refused", "bad_request"),
        *(None, None),
    )
    assert (found["usage"], found["rates"], found["degrade"], found["budgets"]) == ({}, {}, [], [])


def test_a_limit_in_tokens_is_told_with_its_figures():
    rule = nouns.standing(nouns.budget(), limit_tokens=3000, spent_tokens=2040, held_tokens=7)

    (told,) = receipt(ReceiptFacts("c6", AT, "allowed", "t", "openai", "m", budgets=[rule]))["budgets"]

    assert told == {
        "name": "daily", "subject": "box", "spent_usd": "0", "held_usd": "0", "limit_usd": None,
        "spent_tokens": 2040, "held_tokens": 7, "limit_tokens": 3000,
    }  # fmt: skip


def test_a_charge_above_its_hold_is_marked():
    facts = ReceiptFacts("c4", AT, "allowed", "t", "openai", "m", charged=Money(2), held=Money(1), over_hold=True)

    assert receipt(facts)["over_hold"] is True


def test_nothing_charged_is_0_and_not_null():
    assert receipt(ReceiptFacts("c3", AT, "allowed", "t", "openai", "m", charged=ZERO))["charged_usd"] == "0"


def test_a_call_of_several_models_says_what_each_came_to():
    shares = (Share("m", {Unit.INPUT: 7}, Money(280_000), 2), Share("n", {Unit.OUTPUT: 1}, Money(1)))
    facts = ReceiptFacts("c5", AT, "allowed", "t", "anthropic", "m", charged=Money(280_001), shares=shares)

    assert receipt(facts)["shares"] == [
        {"model": "m", "prompts": 2, "charged_usd": "0.00028", "usage": {"input": 7}},
        {"model": "n", "prompts": 1, "charged_usd": "0.000000001", "usage": {"output": 1}},
    ]

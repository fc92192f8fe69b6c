"""A call that may run several models, and limits that are for some of them alone."""

import json

import pytest
from desks import FACTS, Desk, config

from lockpin_core.budgets import Budget
from lockpin_core.engine import Answered, Passed
from lockpin_core.money import Money
from lockpin_core.settler import Admitted
from lockpin_core.windows import Window

PRICING = {
    "ink": {"input": "1", "output": "5", **FACTS, "tiers": {"batch": {"x": "0.5"}}},
    "dear": {"input": "10", "output": "50", **FACTS, "tiers": {"batch": {"x": "0.5"}}},
}


def limit(*models, name="some", usd="0.0001"):
    return Budget(name, "machine", Window("lifetime"), Money.parse(usd), enforce=True, models=models)


def message(model, *fallbacks):
    told = {"model": model, "max_tokens": 1000, "messages": [{"role": "user", "content": "hi"}]}
    return told | ({"fallbacks": [{"model": name, "max_tokens": 1000} for name in fallbacks]} if fallbacks else {})


def batch(*models):
    return {"requests": [{"custom_id": str(n), "params": message(model)} for n, model in enumerate(models)]}


def ask(budgets, told, *, by_command=()):
    desk = Desk(config(pricing=PRICING, daily_usd=None, budgets=tuple(budgets)))
    for budget in by_command:
        desk.ledger.budget_set(budget, who="ann")
    path = "/v1/messages/batches" if "requests" in told else "/v1/messages"
    return desk.ask(told, provider="anthropic", path=path), desk


def refusal(decision):
    assert isinstance(decision, Answered), decision
    return json.loads(decision.reply.body)["error"]["message"]


@pytest.mark.parametrize(
    "told",
    [
        message("dear", "unheard-of"),
        message("unheard-of", "dear"),
        batch("unheard-of", "dear"),
        batch("dear", "unheard-of"),
    ],
)
@pytest.mark.parametrize("by_command", [False, True])
def test_one_model_without_a_price_takes_no_other_past_its_limit(told, by_command):
    limits = [limit("dear*")]
    decision, desk = ask([] if by_command else limits, told, by_command=limits if by_command else ())

    assert '"unheard-of"' in refusal(decision)
    assert "uncapped" not in desk.kinds()


def test_a_call_of_unpriced_models_passes_where_no_limit_is_in_force():
    decision, desk = ask([], message("dear", "unheard-of"))

    assert isinstance(decision, Passed)
    assert desk.kinds() == ["uncapped"]


def test_a_limit_of_a_model_that_may_run_in_place_of_the_other_is_not_passed():
    decision, _ = ask([limit("dear")], message("ink", "dear"))

    assert refusal(decision).startswith('lockpin: "dear" may run within the call, and a limit is in force for it that')


@pytest.mark.parametrize("models", [(), ("ink", "dear")])
def test_a_limit_of_both_models_holds_both(models):
    decision, _ = ask([limit(*models, usd="1")], message("ink", "dear"))

    assert isinstance(decision, Admitted)
    alone, _ = ask([limit(*models, usd="1")], message("ink"))
    assert decision.held.call.quote.most.nano > alone.held.call.quote.most.nano * 10


def test_a_limit_of_the_model_that_is_asked_counts_what_runs_in_its_place():
    decision, _ = ask([limit("ink", usd="1")], message("ink", "dear"))

    assert isinstance(decision, Admitted)
    assert [standing.budget.name for standing in decision.held.standings] == ["task", "some"]


def test_the_images_of_another_model_are_bounded_by_its_own_rule():
    """What is worked out for the model that is named says nothing of one that may run in its place."""
    told = message("plain")
    told["messages"][0]["content"] = [{"type": "image", "source": {"type": "url", "url": "https://a/b"}}] * 3
    facts = {**FACTS, "input": "1", "output": "0"}
    pricing = {"plain": {**facts, "image_tokens": "10"}, "sharp": {**facts, "image_tokens": "5000"}}

    def held(*fallbacks):
        desk = Desk(config(pricing=pricing, daily_usd=None))
        decision = desk.ask(
            told | {"fallbacks": message("plain", *fallbacks).get("fallbacks", [])}, provider="anthropic"
        )
        assert isinstance(decision, Admitted), decision
        return decision.held.call.quote.tokens

    assert held("sharp") - held() > 3 * 5000

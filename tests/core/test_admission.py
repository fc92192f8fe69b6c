"""The parts of an admission by themselves: what is a limit, what is set, what fits, what a reply costs."""

import json
from dataclasses import replace

import desks
import nouns
import pytest
from desks import Desk, body, config

from lockpin_core.admission import (
    Priced,
    Refused,
    body_change,
    is_capped,
    limit_to_set,
    may_go_uncapped,
)
from lockpin_core.budgets import has_limit
from lockpin_core.call import Request, Rewrite, Terms
from lockpin_core.config import Fit
from lockpin_core.ladder import Room
from lockpin_core.ledger.protocol import Rules
from lockpin_core.money import Money
from lockpin_core.usage import Unit
from lockpin_core.wire import wire_named


def priced(told: dict | None = None, desk: Desk | None = None) -> Priced:
    desk = desk or Desk()
    incoming = desk.incoming(told or body())
    wire = wire_named("openai_chat")
    parsed = wire.parse(Request("POST", incoming.host, incoming.path, {}, incoming.body))
    model = desk.prices.find("openai", parsed.model, desks.NOW)
    return Priced(incoming, wire, parsed, model, desk.prices, desks.NOW)


def test_a_call_is_quoted_at_its_own_limit_clamped_to_the_models_maximum():
    small, large = priced(body(limit=10)).call(None), priced(body(limit=900_000)).call(None)

    assert (small.output_limit, small.quote.most) == (10, Money.parse("0.001"))
    assert (large.output_limit, large.quote.most) == (50_000, Money.parse("5"))


def test_a_call_without_any_limit_is_quoted_at_the_models_maximum():
    call = priced(body(limit=None)).call(None)

    assert (call.output_limit, call.limit_set, call.quote.ceiling.output) == (50_000, False, 50_000)


def test_a_call_with_a_set_limit_says_so():
    call = priced(body(limit=None)).call(700, degrade=("fit",))

    assert (call.output_limit, call.limit_set, call.degrade) == (700, True, ("fit",))


def test_choices_multiply_the_output():
    call = priced(body(limit=10, n=3)).call(None)

    assert (call.quote.ceiling.output, call.quote.most) == (30, Money.parse("0.003"))
    assert call.quote.tokens == call.quote.ceiling.prompt + 30


def test_an_unbounded_call_is_refused():
    with pytest.raises(Refused, match="has no bound") as caught:
        priced(body("vast", limit=None)).call(None)
    assert (caught.value.code, caught.value.detail) == ("unpriced_tool", {})


@pytest.mark.parametrize(
    ("usd", "tokens", "expected"),
    [
        ("0.05", None, 500),
        ("0.05009", None, 500),
        (None, None, 1000),
        ("99", None, 1000),
        ("-1", None, 0),
        ("0.05", 10_000_000, 500),
        ("99", "prompt+7", 7),
        (None, 3, 0),
    ],
)
def test_the_largest_output_is_what_both_rooms_leave(usd, tokens, expected):
    call = priced()
    if tokens == "prompt+7":
        tokens = call.call(None).quote.ceiling.prompt + 7
    room = Room(None if usd is None else Money.parse(usd), tokens)

    assert call.largest_output(1000, room) == expected


def test_the_largest_output_is_for_each_choice_and_beside_a_prediction():
    prediction = {"type": "content", "content": "abcdefghij"}
    several = priced(body(n=4))
    predicted = priced(body(prediction=prediction))
    beside = predicted.parsed.extra_output

    assert several.largest_output(1000, Room(Money.parse("0.05"), None)) == 125
    assert predicted.largest_output(1000, Room(Money.parse("0.05"), None)) == 500 - beside
    assert beside >= 10


@pytest.mark.parametrize("usd", ["0", "-1"])
def test_what_costs_nothing_fits_dollars_that_are_spent_and_is_lowered_by_tokens_alone(usd):
    call = priced(body("gift"))
    prompt = call.call(1000).quote.ceiling.prompt

    assert call.largest_output(1000, Room(Money.parse(usd), None)) == 1000
    assert call.largest_output(1000, Room(Money.parse(usd), prompt + 300)) == 300


def test_an_unbounded_call_has_no_largest_output():
    """A file that the provider keeps may fill a context window that nobody knows."""
    file = [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]

    assert priced(body("vast", messages=file)).largest_output(1000, Room(Money.parse("1"), None)) == 0


def test_a_call_without_a_price_for_one_of_its_units_is_refused():
    with pytest.raises(Refused, match="ink has no price for audio_out") as caught:
        priced(body("ink", modalities=["text", "audio"])).call(None)
    assert caught.value.code == "unpriced_tool"


def test_a_limit_is_set_only_where_it_is_needed_and_can_be():
    settings, without = config(), priced(body(limit=None))
    predicted = priced(body(limit=None, prediction={"type": "content", "content": "x"}))

    assert limit_to_set(without, settings, capped=True) == 32_000
    assert limit_to_set(without, settings, capped=False) is None
    assert limit_to_set(priced(), settings, capped=True) is None
    assert limit_to_set(predicted, settings, capped=True) is None
    assert limit_to_set(without, replace(settings, fit=Fit(output=False)), capped=True) is None


def test_a_set_limit_is_within_the_model_and_the_wire():
    without = priced(body(limit=None))
    open_ended = replace(without, model=replace(without.model, max_output_tokens=None))
    tiny = replace(without, model=replace(without.model, max_output_tokens=20))

    assert limit_to_set(without, config(fit=Fit(output_max=90_000)), capped=True) == 50_000
    assert limit_to_set(open_ended, config(fit=Fit(output_max=90_000)), capped=True) == 90_000
    assert limit_to_set(tiny, config(), capped=True) == 20
    assert limit_to_set(tiny, config(fit=Fit(output_max=0)), capped=True) == without.wire.min_output


def test_a_body_changes_only_by_a_limit_and_the_question_for_usage():
    whole, stream = priced(body(limit=None)), priced(body(stream=True))
    told = replace(stream, parsed=replace(stream.parsed, attested=True))
    deaf = replace(stream, incoming=replace(stream.incoming, provider=desks.PROVIDERS.by_name("mistral")))

    assert body_change(whole, whole.call(None)) is None
    assert body_change(whole, whole.call(700)) == Rewrite(max_output=700)
    assert body_change(stream, stream.call(None)) == Rewrite(ask_usage=True)
    assert body_change(told, told.call(None)) is None
    assert body_change(deaf, deaf.call(None)) is None


def test_only_an_enforced_budget_that_applies_caps_a_call():
    soft = nouns.budget("soft", enforce=False, limit=Money.parse("1"))
    opus = nouns.budget("opus", limit=Money.parse("1"), models=("claude-opus-*",), providers=("anthropic",))
    rules = Rules((soft, opus), nouns.TASK)

    assert is_capped(rules, nouns.PAYERS, "anthropic", "claude-opus-5-5")
    assert not is_capped(rules, nouns.PAYERS, "anthropic", "claude-sonnet-5-5")
    assert not is_capped(rules, nouns.PAYERS, "openai", "claude-opus-5-5")


def test_a_budget_of_others_caps_nobody():
    theirs = nouns.budget("theirs", scope="user", limit=Money.parse("1"), groups=("ml",))
    rules = Rules((theirs,), nouns.TASK)

    assert is_capped(rules, replace(nouns.PAYERS, user="ann", groups=("ml",)), "openai", None)
    assert not is_capped(rules, replace(nouns.PAYERS, user="ann"), "openai", None)
    assert not is_capped(rules, replace(nouns.PAYERS, groups=("ml",)), "openai", None)


def test_only_an_enforced_account_with_a_limit_is_a_limit():
    assert has_limit([nouns.standing(nouns.TASK), nouns.standing(nouns.budget(), limit="1")])
    assert has_limit([nouns.standing(nouns.budget(), limit_tokens=5)])
    assert not has_limit([nouns.standing(nouns.TASK), nouns.standing(nouns.budget(enforce=False), limit="1")])


@pytest.mark.parametrize(
    ("provider", "path", "may"),
    [
        ("openai", "/v1/videos/edits", True),
        ("openai", "/v1/Videos/edits", False),
        ("openai", "/v1/videos/../videos/edits", False),
        ("openai", "/v1/videos/%65dits", False),
        ("openai", "/v1/videos/edits;x", False),
        ("anthropic", "/v1/videos/edits", False),
        ("openai", "/v1/chat/completions", False),
    ],
)
def test_globs_name_what_may_go_unmetered(provider, path, may):
    settings = config(allow_uncapped=("api.openai.com/v1/videos/*", "api.openai.com/v1/chat/*"))

    assert may_go_uncapped(settings, Desk().incoming(provider=provider, path=path)) == may


def test_a_reply_is_priced_by_the_model_that_it_states_when_that_one_has_a_price():
    tariff = priced(body("ink")).tariff(config())

    assert tariff.price("pen", {Unit.OUTPUT: 3}, Terms()) == (300_000_000, "pen")
    assert tariff.price("never-heard-of", {Unit.OUTPUT: 3}, Terms()) == (15_000_000, "ink")
    assert tariff.price(None, {Unit.INPUT: 3}, Terms()) == (3_000_000, "ink")
    assert tariff.price(None, {Unit.AUDIO_OUT: 3}, Terms()) is None


def test_a_tariff_carries_the_facts_of_provider_wire_and_configuration():
    told = body("ink")
    tariff = priced(told).tariff(config(charge_failed=False))

    assert (tariff.cut_rule, tariff.max_tps, tariff.charge_failed) == ("hold", 400, False)
    assert tariff.bytes_estimate == -(-len(json.dumps(told)) // 3)
    assert tariff.bills(408, None) is False

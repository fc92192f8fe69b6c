"""What is said to fit is sent at once, under every mix of limits: it fits, and one token more does not."""

import asyncio
import json
from dataclasses import replace
from decimal import Decimal

import desks
import nouns
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.budgets import Budget
from lockpin_core.call import Charge, Payers
from lockpin_core.config import Fit, TaskKeys
from lockpin_core.config_near_cap import Degrade, Landing, NearCap
from lockpin_core.engine import Answered
from lockpin_core.ledger.protocol import Rules
from lockpin_core.money import Money
from lockpin_core.settler import Admitted
from lockpin_core.usage import Unit
from lockpin_core.windows import Window

LANDING = Landing()
PRICES = desks.Desk().prices  # the same for all
HIGHEST = 4000  # of the output limits that are asked for


@st.composite
def scenes(draw):
    """Draw budgets, what is spent and held on their accounts, and a call."""
    budgets = []
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(("usd", "tokens", "both")))
        scope = draw(st.sampled_from(("machine", "task", "user", "team", "project", "org")))
        window = draw(st.sampled_from((Window("lifetime"), Window("day"), Window("rolling", period_ms=3_600_000))))
        budgets.append(
            Budget(
                f"b{number}",
                scope,
                window,
                None if kind == "tokens" else Money(draw(st.integers(1, 400)) * 10**6),
                None if kind == "usd" else draw(st.integers(1, 9000)),
                enforce=draw(st.sampled_from((True, True, False))),
                models=draw(st.sampled_from(((), (), ("in*",), ("pen",)))),
            )
        )
    moves = draw(
        st.lists(st.tuples(st.sampled_from(("spend", "hold")), st.integers(0, 60), st.integers(0, 2000)), max_size=3)
    )
    model = draw(st.sampled_from(("ink", "pen", "gift")))
    provider = draw(st.sampled_from(("openai", "anthropic")))
    choices = draw(st.sampled_from((1, 1, 3))) if provider == "openai" else 1
    limit = draw(st.integers(1, HIGHEST)) if provider == "anthropic" else draw(st.none() | st.integers(1, HIGHEST))
    own = draw(st.none() | st.integers(1, 400).map(lambda n: Money(n * 10**6)))
    landing = Landing(draw(st.sampled_from((0, 1, 2))), draw(st.sampled_from((1, 50, 1024))))
    return Scene(budgets, moves, model, provider, choices, own, landing), limit


class Scene:
    """An engine on books that were used."""

    def __repr__(self):
        return f"Scene{self.told}"

    def __init__(self, budgets, moves, model, provider, choices, own=None, landing=LANDING):
        near_cap = NearCap(degrade=Degrade(on=False), landing=landing)
        self.told = budgets, moves, model, provider, choices, own, landing
        self.settings = desks.config(
            budgets=tuple(budgets), fit=Fit(False, 32_000, 1), near_cap=near_cap, task=TaskKeys(budget_usd=own)
        )
        self.desk = desks.Desk(self.settings, prices=PRICES)
        self.model, self.provider, self.choices = model, provider, choices
        # A task's own budget, of which room is kept for landing, is that of callers without a user.
        self.payers = Payers("t", "box", user="ann" if own is None else None, team="web", project="shop")
        self.rules = Rules(self.settings.all_budgets(), self.settings.task_default())
        self.desk.ledger.define(self.rules)
        for number, (kind, cents, tokens) in enumerate(moves):
            self.move(f"m{number}", kind, Money(cents * 10**6), tokens)

    def move(self, name, kind, usd, tokens):
        quote = replace(nouns.quote(), most=usd, tokens=tokens)
        call = nouns.call(id=name, payers=self.payers, model="ink", provider=self.provider, quote=quote)
        held = self.desk.ledger.hold(call, self.rules).result()
        if kind == "spend" and hasattr(held, "call"):
            charge = Charge(usd, {Unit.OUTPUT: tokens}, tokens, "ink", None)
            self.desk.ledger.settle(name, charge).result()

    def ask(self, limit):
        told = {"model": self.model, "messages": [{"role": "user", "content": "hello there"}]}
        if limit is not None:
            told["max_tokens" if self.provider == "anthropic" else "max_completion_tokens"] = limit
        if self.choices > 1:
            told["n"] = self.choices
        incoming = replace(self.desk.incoming(told, provider=self.provider), payers=self.payers)
        decision = asyncio.run(self.desk.engine.admit(incoming))
        if isinstance(decision, Admitted):
            assert decision.held.call.output_limit == limit or limit is None
            self.desk.ledger.cancel(incoming.id)
            return None
        assert isinstance(decision, Answered)
        assert decision.code == "budget_exceeded"
        return json.loads(decision.reply.body, parse_float=Decimal)["lockpin"]


@settings(max_examples=200)
@given(scenes())
def test_what_is_said_to_fit_fits_when_it_is_sent_at_once_and_one_token_more_does_not(scene):
    play, limit = scene

    told = play.ask(limit)

    if told is None:
        return
    fitting = told.get("fits", {}).get("max_output_tokens", 0)
    assert fitting == 0 or play.ask(fitting) is None
    again = play.ask(fitting + 1 + slack(limit, fitting + 1))
    assert again is not None
    assert again.get("fits", {}).get("max_output_tokens", 0) <= fitting + slack(limit, fitting)


def slack(limit, said):
    """Give by how much less may be said than fits: the digits of a limit, and its name, are counted with the prompt."""
    if limit is None:
        return 60
    return 2 * (len(str(limit)) - len(str(said)))


def test_a_request_without_a_limit_is_told_one_that_fits_though_naming_it_makes_the_request_longer():
    """$0.001 at $1 and $5 a million: "ink" has the 500 tokens of the frame, 10 for the message, and its few words."""
    play = Scene(
        [Budget("b", "machine", Window("lifetime"), Money.parse("0.001"), enforce=True)], [], "ink", "openai", 1
    )

    told = play.ask(None)["fits"]["max_output_tokens"]

    assert 60 < told < 98  # 490 tokens' worth is left at most
    assert play.ask(told) is None


@pytest.mark.parametrize(("provider", "fits"), [("openai", True), ("chatgpt", False)])
def test_no_limit_is_said_to_fit_where_the_host_rejects_one(provider, fits):
    told = {"model": "pen", "input": "hi", "store": False}
    path = {"chatgpt": "/backend-api/codex/responses", "openai": "/v1/responses"}[provider]
    desk = desks.Desk(desks.config("1", fit=Fit(output=False)))

    answer = desk.ask(told, provider=provider, path=path)

    assert isinstance(answer, Answered)
    body = json.loads(answer.reply.body)
    assert ("fits" in body["lockpin"], "it fits now" in body["error"]["message"]) == (fits, fits)


@pytest.mark.parametrize(("cents", "fits"), [(10, None), (11, {"max_output_tokens": 1100})])
def test_no_limit_is_said_to_fit_that_the_wire_takes_for_no_valid_one(cents, fits):
    """Beside thinking no limit of Messages is below 1,025: 1,000 tokens of "pen" are ten cents."""
    desk = desks.Desk(desks.config(f"0.{cents}"))
    told = {"model": "pen", "max_tokens": 4000, "messages": [{"role": "user", "content": "hi"}]}
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 2000}}

    decision = desk.ask(told | thinking, provider="anthropic", headers={"x-lockpin-degrade": "off"})

    assert isinstance(decision, Answered)
    assert json.loads(decision.reply.body)["lockpin"].get("fits") == fits


@pytest.mark.parametrize(
    "fallbacks", ["default", [{"model": "pen"}], [{"model": "pen", "max_tokens": 9000}, {"model": "pen"}]]
)
@pytest.mark.parametrize("usd", ["0.5", "1.2345", "40"])
def test_limit_falls_with_those_of_fallbacks_to_the_last_token_that_fits(fallbacks: object, usd: str):
    facts = desks.PRICING["pen"]  # nothing is billed for its input, so that digits of a limit do not count
    settings = desks.config(usd, pricing={**desks.PRICING, "claude-opus-4-8": facts}, fit=Fit(floor=1))
    told = {"model": "pen", "max_tokens": 40_000, "messages": [{"role": "user", "content": "hi"}]}

    def held(limit: int | None) -> Money:
        """Say what a call is held as that has this limit from the first on."""
        own = {**told, "fallbacks": fallbacks, "max_tokens": limit}
        if isinstance(fallbacks, list):
            hops = [
                one | ({"max_tokens": min(one["max_tokens"], limit)} if "max_tokens" in one else {})
                for one in fallbacks
            ]
            own["fallbacks"] = hops
        decision = desks.Desk(desks.config(pricing=settings.pricing)).ask(own, provider="anthropic")
        assert isinstance(decision, Admitted), decision
        return decision.held.call.quote.most

    decision = desks.Desk(settings).ask(told | {"fallbacks": fallbacks}, provider="anthropic")

    assert isinstance(decision, Admitted), decision
    call = decision.held.call
    assert call.quote.most == held(call.output_limit) <= Money.parse(usd)
    assert call.output_limit == 40_000 or held(call.output_limit + 1) > Money.parse(usd)


def test_limits_of_fallbacks_above_the_request_s_own_fall_once_that_is_lowered():
    """Of 1,000 tokens here and 30,000 there, $3.10, nothing is lowered; of 999 and 999 both are: $0.1998."""
    settings = desks.config("0.2", fit=Fit(floor=1))
    told = {"model": "pen", "max_tokens": 1000, "messages": [{"role": "user", "content": "hi"}]}

    decision = desks.Desk(settings).ask(
        told | {"fallbacks": [{"model": "pen", "max_tokens": 30_000}]}, provider="anthropic"
    )

    assert isinstance(decision, Admitted), decision
    assert (decision.held.call.output_limit, decision.held.call.quote.most) == (999, Money.parse("0.1998"))
    body = json.loads(decision.body)
    assert (body["max_tokens"], body["fallbacks"]) == (999, [{"model": "pen", "max_tokens": 999}])


SHORT_PEN = desks.PRICING["pen"] | {"max_output_tokens": "5000"}
AIR = desks.PRICING["pen"] | {"output": "0"}


@pytest.mark.parametrize(
    ("model", "asked", "usd", "limit", "needed"),
    [
        ("short", 8000, "1.3", None, "1.3"),  # 5,000 tokens of its own and 8,000 of the fallback's
        ("short", 8000, "1.299999999", 5000, "1"),
        ("short", 8000, "1", 5000, "1"),
        ("short", 8000, "0.9999", 4999, "0.9998"),
        ("air", 4000, "0.4", None, "0.4"),
        ("air", 4000, "0.2", 2000, "0.2"),  # where nothing is billed but the fallback
    ],
)
def test_a_call_falls_with_its_fallback_below_what_its_own_model_makes_and_where_that_costs_nothing(
    model, asked, usd, limit, needed
):
    settings = desks.config(usd, fit=Fit(floor=1), pricing=desks.PRICING | {"short": SHORT_PEN, "air": AIR})
    told = {"model": model, "max_tokens": asked, "messages": [{"role": "user", "content": "hi"}]}

    decision = desks.Desk(settings).ask(told | {"fallbacks": [{"model": "pen"}]}, provider="anthropic")

    assert isinstance(decision, Admitted), decision
    assert decision.held.call.quote.most == Money.parse(needed)
    assert (None if decision.body is None else json.loads(decision.body)["max_tokens"]) == limit


def test_the_limit_that_is_said_to_fit_may_be_the_most_that_the_model_makes():
    settings = desks.config("1", pricing=desks.PRICING | {"short": SHORT_PEN})
    told = {"model": "short", "max_tokens": 8000, "messages": [{"role": "user", "content": "hi"}]}
    headers = {"x-lockpin-degrade": "off"}

    answer = desks.Desk(settings).ask(told | {"fallbacks": [{"model": "pen"}]}, provider="anthropic", headers=headers)

    assert isinstance(answer, Answered), answer
    assert json.loads(answer.reply.body)["lockpin"]["fits"] == {"max_output_tokens": 5000}
    again = desks.Desk(settings).ask(
        told | {"max_tokens": 5000, "fallbacks": [{"model": "pen"}]}, provider="anthropic", headers=headers
    )
    assert isinstance(again, Admitted), again

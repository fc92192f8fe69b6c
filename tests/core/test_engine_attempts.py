"""What becomes of holds when a call is sent again: a pen's output costs a hundredth of a cent a token, ink's prompt too."""

import asyncio
import dataclasses
import json
from concurrent.futures import Future

import pytest
from desks import NOW, PRICING, Desk, body, config

from lockpin_core.admission import Incoming
from lockpin_core.budgets import Budget
from lockpin_core.call import Attempt, Charge, Ending, Outcome, Reading, Void
from lockpin_core.config_near_cap import Loop, NearCap
from lockpin_core.engine_attempts import AttemptsEngine, Following, Skipped
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger.pauses import Paused
from lockpin_core.ledger.protocol import Rules
from lockpin_core.money import Money
from lockpin_core.settler import Admitted
from lockpin_core.windows import Window

SECOND = Attempt(2, 3, "c1")
FAILED = Outcome(Ending.DONE, 503)


class Attempts(Desk):
    """A desk with an engine that lets calls be sent again."""

    def __init__(self, task_usd: str | None = None, **change: object) -> None:
        super().__init__(config(task_usd, **change))
        rules = Rules(self.config.all_budgets(), self.config.task_default())
        self.engine = AttemptsEngine(self.config, self.prices, self.ledger, rules=rules, clock=lambda: NOW)

    def admitted(self, told: object = None, **more: object) -> Admitted:
        found = self.ask(told, **more)
        assert isinstance(found, Admitted)
        return found

    def cost(self, admitted: Admitted, outcome: Outcome = FAILED) -> Charge | Void | None:
        return self.engine.failed_at(admitted, Reading(), outcome)

    def once_more(self, admitted: Admitted, call_id: str = "again") -> Following:
        return asyncio.run(self.engine.once_more(admitted, self.cost(admitted), call_id, SECOND))

    def instead(self, admitted: Admitted, model: str, outcome: Outcome = FAILED, **more: object) -> Admitted | Skipped:
        cost = self.cost(admitted, outcome)
        assert cost is not None
        name = str(more.pop("id", "there"))
        incoming = dataclasses.replace(self.incoming(body(model), **more), id=name)
        return asyncio.run(self._instead(admitted, cost, incoming))

    async def _instead(self, admitted: Admitted, cost: Charge | Void, incoming: Incoming) -> Admitted | Skipped:
        there = await self.engine.there(incoming, admitted.wire, SECOND)
        return there if isinstance(there, Skipped) else await self.engine.instead(admitted, cost, there)


def charged(desk: Desk) -> list[int]:
    return [row.usd for row in desk.ledger.rows if row.kind == "charge"]


def test_a_failed_attempt_costs_what_any_call_that_fails_so_costs():
    desk = Attempts()
    found = desk.admitted(body("ink", 10))
    size = len(json.dumps(body("ink", 10)))

    assert desk.cost(found).amount == Money(-(-size // 3) * 1000)
    assert desk.cost(found, Outcome(Ending.DROPPED, None)).amount == Money(-(-size // 3) * 1000)
    assert desk.cost(found, Outcome(Ending.DONE, 200)).amount == found.held.call.quote.most
    for outcome in (Outcome(Ending.DONE, 429), Outcome(Ending.DONE, 408), Outcome(Ending.NOT_SENT, None)):
        assert isinstance(desk.cost(found, outcome), Void)


def test_a_provider_that_bills_an_error_is_believed():
    desk = Attempts()
    found = desk.admitted(body("ink"), provider="azure", path="/openai/v1/chat/completions")

    assert desk.cost(found, Outcome(Ending.DONE, 408)).amount == found.held.call.quote.most


def test_failed_calls_cost_nothing_where_that_is_said():
    desk = Attempts(charge_failed=False)

    assert desk.cost(desk.admitted()) == Void("failed", failed=True)


def test_what_goes_on_at_its_provider_is_not_sent_again():
    desk = Attempts()
    told = {"model": "ink", "input": "hi", "background": True, "max_output_tokens": 100}
    found = desk.admitted(told, path="/v1/responses")

    assert desk.cost(found) is None
    assert isinstance(desk.cost(found, Outcome(Ending.DONE, 429)), Void)


def test_the_next_attempt_has_a_hold_of_its_own_and_the_one_before_is_charged():
    desk = Attempts("1")
    found = desk.admitted(body("ink", 10))
    quote = found.held.call.quote
    following = desk.once_more(found)

    assert following.ended.charge.failed
    call = following.admitted.held.call
    assert (call.id, call.quote, call.attempt) == ("again", quote, SECOND)
    assert desk.kinds() == ["hold", "charge", "hold"]
    assert desk.held() == quote.most.nano
    assert desk.settle(following.admitted, 10).first


def test_one_that_does_not_fit_leaves_the_failed_one_charged_and_nothing_held():
    most = Attempts("1").admitted(body("ink", 380)).held.call.quote.most
    desk = Attempts(most.exact())  # room for one of them, and for nothing beside it
    found = desk.admitted(body("ink", 380))
    following = desk.once_more(found)

    assert following.admitted is None
    assert following.ended.charge.amount.nano == sum(charged(desk)) > 0
    assert (desk.kinds(), desk.held()) == (["hold", "charge"], 0)


SEARCH = {"type": "web_search_20250305", "name": "web_search"}
TOLD = {"model": "scout", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(("tools", "goes_on"), [([SEARCH], False), ([SEARCH | {"max_uses": 3}], True), ([], True)])
def test_one_that_was_not_made_for_a_limit_does_not_go_under_one_that_came_meanwhile(tools, goes_on):
    """Under a limit a search without one of its own gets one, for its hold counts on it."""
    desk = Attempts()
    found = desk.admitted(TOLD | {"tools": tools}, provider="anthropic")
    assert found.body is None
    desk.ledger.task_new("t", limit=Money.parse("9"), window="lifetime", who="ann")
    following = desk.once_more(found)

    assert (following.admitted is not None) is goes_on
    assert following.ended.charge.failed
    assert desk.kinds() == ["hold", "event", "charge", "hold", *([] if goes_on else ["void"])]
    assert desk.held() == (found.held.call.quote.most.nano if goes_on else 0)


def test_one_that_costs_nothing_and_has_no_bound_does_not_go_under_a_limit_in_tokens_that_came_meanwhile():
    desk = Attempts(pricing=PRICING | {"gift": {"free": "true"}})
    found = desk.admitted(body("gift", None))
    assert found.held.call.quote.is_endless
    tokens = Budget("few", "machine", Window("day"), limit_tokens=10**9, enforce=True)
    desk.ledger.budget_set(tokens, who="ann")
    following = desk.once_more(found)

    assert following.admitted is None
    assert desk.ledger._open == {}


def test_with_the_ledger_away_nothing_has_happened():
    desk = Attempts("1")
    found = desk.admitted(body("ink", 10))
    desk.ledger.replace = lambda *_, **__: failing(LedgerUnavailable("away"))

    assert desk.once_more(found) == Following(None, None)
    assert desk.instead(found, "pen") == Skipped("ledger_unavailable")
    assert desk.kinds() == ["hold"]


def failing(error):
    future: Future = Future()
    future.set_exception(error)
    return future


@pytest.mark.parametrize("way", ["once_more", "instead"])
def test_one_that_is_broken_off_leaves_nothing_held_and_the_failed_one_charged(way):
    desk = Attempts("1")
    found = desk.admitted(body("ink", 10))
    desk.ledger.replace = lambda *_, **__: failing(RuntimeError("bug"))

    with pytest.raises(RuntimeError):
        desk.once_more(found) if way == "once_more" else desk.instead(found, "pen")
    assert (desk.kinds(), desk.held()) == (["hold", "charge"], 0)


def test_one_to_another_model_that_is_broken_off_leaves_a_failed_attempt_that_cost_nothing_void():
    desk = Attempts("1")
    found = desk.admitted(body("ink", 10))
    desk.ledger.replace = lambda *_, **__: failing(RuntimeError("bug"))

    with pytest.raises(RuntimeError):
        desk.instead(found, "pen", Outcome(Ending.DONE, 429))
    assert (desk.kinds(), desk.held()) == (["hold", "void"], 0)


def test_a_task_whose_calls_pause_lets_nothing_out():
    desk = Attempts("1")
    found = desk.admitted(body("ink", 10))
    paused: Future = Future()
    paused.set_result((None, Paused(NOW, "breaker", "task", "t", NOW, None, None, None)))
    desk.ledger.replace = lambda *_, **__: paused

    assert desk.instead(found, "pen") == Skipped("paused")
    assert desk.once_more(found) == Following(None, None)


def test_another_model_takes_a_hold_at_its_own_price_in_place_of_the_first():
    desk = Attempts("1")
    found = desk.admitted(body("ink", 1000))
    there = desk.instead(found, "pen")

    assert isinstance(there, Admitted)
    call = there.held.call
    assert (call.id, call.model, call.attempt, call.quote.most) == ("there", "pen", SECOND, Money.parse("0.1"))
    assert desk.kinds() == ["hold", "charge", "hold"]
    assert desk.held() == call.quote.most.nano


def test_another_model_that_does_not_fit_leaves_the_first_hold_as_it_is():
    desk = Attempts("0.05")
    found = desk.admitted(body("ink", 1000))

    assert desk.instead(found, "pen") == Skipped("budget")
    assert desk.kinds() == ["hold"]
    assert desk.held() == found.held.call.quote.most.nano


def test_another_model_is_judged_beside_what_the_failed_attempt_costs_and_without_its_hold():
    """A pen's call of 1,000 holds $0.1 and fits a budget of that alone once the first is void; not beside a charge."""
    for outcome, fits in ((Outcome(Ending.DONE, 429), True), (FAILED, False)):
        desk = Attempts("0.1")
        found = desk.admitted(body("ink", 1000))
        assert isinstance(desk.instead(found, "pen", outcome), Admitted) is fits


def test_its_own_accounts_are_charged():
    desk = Attempts("1")
    found = desk.admitted(body("ink", 10))
    there = desk.instead(found, "pen", task="other")

    assert isinstance(there, Admitted)
    assert there.held.call.payers.task == "other"


@pytest.mark.parametrize(("model", "why"), [("nobody", "unknown_model"), ("pen", "unpriced_tool")])
def test_a_model_without_a_price_or_a_bound_is_left_out(model, why):
    desk = Attempts("1")
    found = desk.admitted(body("ink", 10))
    asked = body(model) if model == "nobody" else body(model, web_search_options={})
    incoming = dataclasses.replace(desk.incoming(asked), id="there")

    assert asyncio.run(desk.engine.there(incoming, found.wire, SECOND)) == Skipped(why)
    assert desk.kinds() == ["hold"]


def test_a_request_that_is_none_to_it_is_left_out():
    desk = Attempts("1")
    found = desk.admitted(body("ink", 10))
    incoming = dataclasses.replace(desk.incoming(b"{"), id="there")

    assert asyncio.run(desk.engine.there(incoming, found.wire, SECOND)) == Skipped("bad_request")


def test_what_leaves_under_a_login_of_a_plan_goes_to_no_other_model_there():
    desk = Attempts("1")
    told = {"model": "ink", "input": "hi", "store": False, "max_output_tokens": 10}
    path = "/backend-api/codex/responses"
    found = desk.admitted(told, provider="chatgpt", path=path)
    incoming = dataclasses.replace(desk.incoming(told | {"model": "pen"}, provider="chatgpt", path=path), id="there")

    assert asyncio.run(desk.engine.there(incoming, found.wire, SECOND)) == Skipped("signed")
    assert desk.kinds() == ["hold"]


def test_a_closed_task_lets_nothing_out():
    desk = Attempts("1")
    found = desk.admitted(body("ink", 10))
    desk.ledger.task_close("t", who="test")

    assert desk.instead(found, "pen") == Skipped("task_closed")


def turns(desk, way: str) -> list[str | None]:
    """Send the same request six times, each failing at first at a cost; give how the header names a loop."""
    told = []
    for number in range(6):
        found = desk.admitted(body("ink", 100))
        told.append(found.loop)
        if way == "once_more":
            following = desk.once_more(found, f"again-{number}")
            desk.settle(following.admitted, 1)
        elif way == "instead":
            desk.settle(desk.instead(found, "pen", id=f"there-{number}"), 1)
        elif way == "cancelled":
            desk.once_more(found, f"again-{number}")
            desk.engine.cancel(f"again-{number}")
        else:
            desk.engine.settle_as_held(found, "no_usage")
    return told


WAYS = ["once_more", "instead", "cancelled", "as held"]


@pytest.mark.parametrize("way", WAYS)
def test_a_loop_of_calls_whose_first_attempts_fail_at_a_cost_is_seen(way):
    desk = Attempts(near_cap=NearCap(loop=Loop(4, "warn")))

    assert turns(desk, way) == [None, None, None, *(f"same_request; repeats={n}" for n in (4, 5, 6))]


@pytest.mark.parametrize("way", ["once_more", "instead"])
def test_while_its_next_attempt_runs_the_same_request_is_beside_it_and_of_no_loop(way):
    desk = Attempts(near_cap=NearCap(loop=Loop(2, "warn")))
    first = desk.admitted(body("ink", 100))
    after = desk.once_more(first).admitted if way == "once_more" else desk.instead(first, "pen")

    assert desk.admitted(body("ink", 100)).loop is None
    desk.settle(after, 1)


def test_one_that_found_no_room_for_another_attempt_has_ended():
    most = Attempts("1").admitted(body("ink", 380)).held.call.quote.most
    desk = Attempts(most.exact(), near_cap=NearCap(loop=Loop(2, "warn")))
    assert desk.once_more(desk.admitted(body("ink", 380))).admitted is None

    desk.ledger.task_new("t", limit=Money.parse("9"), window="lifetime", who="test")
    assert desk.admitted(body("ink", 380)).loop == "same_request; repeats=2"

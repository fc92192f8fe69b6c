"""Playbooks: a call comes in, what leaves, what the books say. $0.0001 for each output token makes the sums."""

import asyncio
import json
import sqlite3
import threading
from concurrent.futures import Future
from dataclasses import replace

import desks
import nouns
import pytest
from desks import Desk, body, config

from lockpin_core.budgets import Budget
from lockpin_core.call import Ending, Outcome, Reading
from lockpin_core.config import Fit
from lockpin_core.engine import Answered, Passed
from lockpin_core.errors import LedgerError, LedgerUnavailable
from lockpin_core.ledger.memory import MemoryLedger
from lockpin_core.money import Money
from lockpin_core.refusals import refusal
from lockpin_core.settler import Admitted
from lockpin_core.windows import Window

HELLO = [{"role": "user", "content": "hi"}]


def answered(decision) -> dict:
    """Give the body of a refusal."""
    assert isinstance(decision, Answered)
    found = json.loads(decision.reply.body)
    assert found["lockpin"]["code"] == decision.code
    assert decision.reply.headers["X-Lockpin-Call"] == found["lockpin"]["call"]
    return found


def test_a_call_is_held_forwarded_and_charged():
    desk = Desk(config("1"))

    admitted = desk.ask()
    assert isinstance(admitted, Admitted)
    assert admitted.body is None
    assert (admitted.held.call.quote.most, desk.held()) == (Money.parse("0.1"), 100_000_000)
    resolved = desk.settle(admitted, 30)

    assert resolved.charge.amount == Money.parse("0.003")
    assert (desk.kinds(), desk.held()) == (["hold", "charge"], 0)


def test_a_call_that_does_not_fit_is_answered_and_nothing_is_held():
    desk = Desk(config("0.05"))

    decision = desk.ask(task="fix-login-bug")

    found = answered(decision)
    assert (decision.code, decision.reply.status) == ("budget_exceeded", 402)
    assert found["error"]["message"] == (
        'lockpin: task "fix-login-bug" would exceed its $0.0500 budget: '
        "spent $0.0000, in flight $0.0000, this call needs up to $0.1000; "
        "with an output limit of up to 500 tokens it fits now"
    )
    assert found["lockpin"]["fits"] == {"max_output_tokens": 500}
    receipt = found["lockpin"]["receipt"]
    assert (receipt["decision"], receipt["code"], receipt["model"]) == ("refused", "budget_exceeded", "pen")
    assert [(one["name"], one["limit_usd"]) for one in receipt["budgets"]] == [("task", "0.05")]
    assert (desk.kinds(), desk.held()) == (
        ["refusal", "event"],
        0,
    )  # the first call that a limit has no room for is told


def test_the_messages_wire_is_refused_in_its_own_shape():
    decision = Desk(config("0.05")).ask({"model": "pen", "max_tokens": 1000, "messages": HELLO}, provider="anthropic")

    found = answered(decision)
    assert (found["type"], found["error"]["type"]) == ("error", "budget_exceeded")


def test_ten_of_thirty_calls_fit_and_the_next_when_one_has_settled():
    desk = Desk(config("1"))

    decisions = [desk.ask() for _ in range(30)]

    admitted = [decision for decision in decisions if isinstance(decision, Admitted)]
    assert len(admitted) == 10
    found = answered(decisions[-1])
    assert found["lockpin"]["transient"] is True
    desk.settle(admitted[0], 1)
    assert isinstance(desk.ask(body(limit=999)), Admitted)


def test_c02_holds_close_at_what_the_calls_did_cost():
    desk = Desk(config("0.30"))

    for _ in range(5):
        admitted = desk.ask(body(limit=800))
        assert isinstance(admitted, Admitted)
        assert desk.settle(admitted, 2).charge.amount == Money.parse("0.0002")

    assert desk.held() == 0
    assert desk.settle(desk.ask(body(limit=800)), 1).task_spent == Money.parse("0.0011")


def test_c04_a_call_without_a_limit_does_not_hold_all_that_is_left():
    desk = Desk(config("2000"))

    first, second = desk.ask(body(limit=None)), desk.ask(body(limit=None))

    assert isinstance(first, Admitted)
    assert isinstance(second, Admitted)
    assert first.held.call.quote.ceiling.output == 32_000


def test_c09_a_model_that_is_free_passes_a_used_up_budget():
    desk = Desk(config("0.1"))
    desk.settle(desk.ask(), 1000)

    assert isinstance(desk.ask(), Answered)
    assert isinstance(desk.ask(body("gift")), Admitted)


def test_c01_a_hundred_clients_that_leave_pin_nothing():
    desk = Desk(config("1000"))

    for _ in range(100):
        resolved = desk.engine.settle(desk.ask(), Reading(), Outcome(Ending.CLIENT_LEFT, None)).result()
        assert (resolved.charge.amount, resolved.charge.reason) == (Money.parse("0.1"), "client_left")

    assert desk.held() == 0


def test_a_call_that_was_not_sent_is_voided_and_only_the_first_resolution_counts():
    desk = Desk(config("1"))
    admitted = desk.ask()

    resolved = desk.engine.settle(admitted, Reading(), Outcome(Ending.NOT_SENT, None)).result()
    again = desk.settle(admitted, 500)

    assert (resolved.charge, again.charge, again.first) == (None, None, False)
    assert (desk.kinds(), desk.held()) == (["hold", "void"], 0)


def test_an_end_that_cannot_be_told_is_charged_the_hold():
    desk = Desk(config("1"))

    resolved = desk.engine.settle_as_held(desk.ask(), "no_usage").result()

    assert (resolved.charge.amount, resolved.charge.reason) == (Money.parse("0.1"), "no_usage")


def test_a_cancelled_call_holds_nothing():
    desk = Desk(config("1"))
    admitted = desk.ask()

    desk.engine.cancel(admitted.held.call.id)
    desk.engine.cancel("never seen")

    assert (desk.kinds(), desk.held()) == (["hold", "void"], 0)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "DELETE"])
def test_free_calls_pass_with_a_used_up_budget_and_write_nothing(method):
    desk = Desk(config("0"))

    assert desk.ask(method=method, path="/v1/models") == Passed()
    assert desk.ask(provider="anthropic", path="/v1/messages/count_tokens") == Passed()
    assert desk.kinds() == []


def test_a03_an_unknown_call_is_refused_under_a_limit_and_named():
    desk = Desk(config("1"))

    found = answered(desk.ask(path="/v1/videos"))

    assert found["error"]["code"] == "uncapped_call"
    assert "POST /v1/videos on api.openai.com" in found["error"]["message"]
    assert '"api.openai.com/v1/videos" in allow_uncapped' in found["error"]["message"]
    assert desk.kinds() == ["refusal"]


def test_an_unknown_call_passes_without_a_limit_and_is_a_row():
    desk = Desk()

    assert desk.ask(path="/v1/videos") == Passed("no_limit")
    assert [(row.kind, row.code) for row in desk.ledger.rows] == [("uncapped", "no_limit")]


def test_an_unknown_call_passes_where_the_configuration_lists_it():
    desk = Desk(config("1", allow_uncapped=("api.openai.com/v1/vid*",)))

    assert desk.ask(path="/v1/videos") == Passed("allow_uncapped")
    assert isinstance(desk.ask(path="/v1/audio/speech"), Answered)


def test_an_upgrade_is_never_free():
    desk = Desk(config("1"))

    found = answered(desk.ask(method="GET", path="/v1/models", upgrade=True))
    also = answered(desk.ask(upgrade=True))

    assert "an upgrade of the connection" in found["error"]["message"]
    assert also["error"]["code"] == "uncapped_call"


def test_a_budget_of_the_configuration_caps_every_task():
    desk = Desk(config(daily_usd=Money.parse("0.15")))

    assert isinstance(desk.ask(path="/v1/videos"), Answered)
    assert isinstance(desk.ask(task="one"), Admitted)
    found = answered(desk.ask(task="two"))

    assert found["error"]["message"].startswith('lockpin: budget "daily" (machine, day) would pass its $0.1500 limit')
    assert found["lockpin"]["subject"] == "box"


def test_a_limit_that_only_the_ledger_knows_counts():
    desk = Desk()
    desk.ledger.task_new("t", limit=Money.parse("1"), window="lifetime", who="me")

    assert isinstance(desk.ask(path="/v1/videos"), Answered)
    assert desk.ask(path="/v1/videos", task="other") == Passed("no_limit")


def test_d24_a_model_without_a_price_is_refused_under_a_limit_with_the_way_out():
    desk = Desk(config("1"))

    found = answered(desk.ask(body("pencil-é")))
    near = answered(desk.ask(body("claude-sonnet-5-6")))

    message = found["error"]["message"]
    assert (found["error"]["code"], "no price, so no cap could hold" in message) == ("unknown_model", True)
    assert 'pricing: {"pencil-\\xe9": {input_per_mtok: USD' in message
    hint = near["error"]["message"].partition("(near it: ")[2].partition(")")[0]
    assert "claude-sonnet-5-5" in hint.split(", ")


def test_in_a_team_the_way_out_is_to_ask_whoever_has_the_file():
    found = answered(Desk(replace(config("1"), mode="team", daily_usd=Money.parse("1"))).ask(body("pencil")))

    words = (
        '; to price it, ask whoever runs this proxy to add to its lockpin.yaml: pricing: {"pencil": {input_per_mtok:'
    )
    assert words in found["error"]["message"]


@pytest.mark.parametrize(
    "told", [body("pencil"), body("vast", limit=None), body(web_search_options={})], ids=["model", "bound", "tool"]
)
def test_what_has_no_price_passes_without_a_limit_and_is_a_row(told):
    desk = Desk()

    assert desk.ask(told) == Passed("unpriced")
    assert [(row.kind, row.code) for row in desk.ledger.rows] == [("uncapped", "unpriced")]


def test_a_call_whose_worst_case_has_no_bound_is_refused_under_a_limit():
    found = answered(Desk(config("1", fit=Fit(output=False))).ask(body("vast", limit=None)))

    assert found["error"]["code"] == "unpriced_tool"
    assert 'the worst case of model "vast" has no bound' in found["error"]["message"]


def test_a_unit_without_a_price_is_refused_under_a_limit():
    found = answered(Desk(config("1")).ask(body("ink", modalities=["text", "audio"])))

    assert (found["error"]["code"], "no price for audio_out" in found["error"]["message"]) == ("unpriced_tool", True)


@pytest.mark.parametrize("settings", [config(), config("1")], ids=["open", "capped"])
@pytest.mark.parametrize("told", [b"{", b'{"model":1,"model":2}', {"model": "pen"}, body(max_tokens=-1, limit=None)])
def test_a_malformed_body_is_refused_with_and_without_a_limit(settings, told):
    desk = Desk(settings)

    found = answered(desk.ask(told))

    assert found["error"]["code"] == "bad_request"
    assert desk.kinds() == ["refusal"]


def test_a_large_body_is_read_as_well():
    admitted = Desk(config("1")).ask(body(user="x" * 300_000))

    assert isinstance(admitted, Admitted)


def test_a_closed_task_is_refused():
    desk = Desk(config("1"))
    desk.ledger.task_new("t", limit=None, window="lifetime", who="me")
    desk.ledger.task_close("t", who="me")

    found = answered(desk.ask())

    assert (found["error"]["code"], found["lockpin"]["task"]) == ("task_closed", "t")
    assert 'task "t" was closed' in found["error"]["message"]


def test_a_capped_call_without_a_limit_gets_one_in_its_body():
    desk = Desk(config("100"))

    admitted = desk.ask(body(limit=None))

    sent = json.loads(admitted.body)
    assert sent == body(limit=32_000)
    assert (admitted.held.call.output_limit, admitted.held.call.limit_set) == (32_000, True)
    assert admitted.held.call.degrade == ()


def test_a_limit_of_lockpins_own_shrinks_to_what_is_left():
    desk = Desk(config("0.5"))

    admitted = desk.ask(body(limit=None))

    assert json.loads(admitted.body)["max_completion_tokens"] == 5000
    assert (admitted.held.call.degrade, admitted.held.call.quote.most) == (("fit",), Money.parse("0.5"))


def test_a_limit_of_lockpins_own_does_not_shrink_below_the_floor():
    desk = Desk(config("0.4"))  # 4,000 tokens: less than the floor of 4,096

    found = answered(desk.ask(body(limit=None)))

    assert found["lockpin"]["fits"] == {"max_output_tokens": 4000}
    assert desk.kinds() == ["refusal", "event"]


def test_where_held_money_is_in_the_way_of_the_floor_alone_the_refusal_is_about_that():
    desk = Desk(config("0.5"))
    desk.ask(body(limit=2000))

    told = answered(desk.ask(body(limit=None)))["lockpin"]

    assert (told["transient"], told["in_flight_usd"], told["needed_usd"]) == (True, 0.2, 0.4096)
    assert told["fits"] == {"max_output_tokens": 3000}
    assert isinstance(desk.ask(body(limit=3000)), Admitted)


def test_where_spent_money_is_in_the_way_of_the_floor_too_the_refusal_is_about_the_whole():
    desk = Desk(config("0.5"))
    desk.settle(desk.ask(body(limit=2000)), 2000)

    told = answered(desk.ask(body(limit=None)))["lockpin"]

    assert (told["transient"], told["needed_usd"]) == (False, 3.2)
    assert told["fits"] == {"max_output_tokens": 3000}


class Racing(MemoryLedger):
    """A ledger in which another call always takes its share just before."""

    def hold(self, call, rules, smaller=None, wait=None, *, out_of_turn=False):
        super().hold(replace(call, id="other", quote=nouns.quote("0.05")), rules)
        return super().hold(call, rules, smaller, wait, out_of_turn=out_of_turn)


def test_a_call_shrinks_to_what_is_left_when_another_comes_first():
    desk = Desk(config("0.5"), Racing(clock=lambda: desks.NOW))

    assert json.loads(desk.ask(body(limit=None)).body)["max_completion_tokens"] == 4500


def test_a_lower_floor_lets_it_shrink_further():
    desk = Desk(config("0.4", fit=Fit(floor=100)))

    assert json.loads(desk.ask(body(limit=None)).body)["max_completion_tokens"] == 4000


def test_nothing_is_told_to_fit_where_nothing_would():
    assert "fits" not in answered(Desk(config("0")).ask())["lockpin"]


def test_a_call_under_no_limit_keeps_its_body():
    admitted = Desk().ask(body(limit=None))

    assert isinstance(admitted, Admitted)
    assert (admitted.body, admitted.held.call.output_limit, admitted.held.call.limit_set) == (None, 50_000, False)


def test_a_budget_that_only_warns_never_refuses():
    warns = Budget("soft", "machine", Window("day"), limit=Money.parse("0.01"))
    desk = Desk(config(budgets=(warns,)))

    admitted = desk.ask()

    assert isinstance(admitted, Admitted)
    assert desk.settle(admitted, 1000).over_hold is False


def test_f10_a_chat_stream_is_asked_for_its_usage_and_the_client_does_not_see_it():
    desk = Desk(config("1"))

    asked, unasked = (desk.ask(body(stream=True, **more)) for more in ({"stream_options": {"include_usage": True}}, {}))

    assert (asked.body, asked.strips_usage) == (None, False)
    assert unasked.strips_usage
    assert json.loads(unasked.body)["stream_options"] == {"include_usage": True}


def test_a_body_of_a_plan_login_passes_byte_for_byte():
    desk = Desk(config("100"))
    told = {"model": "pen", "messages": HELLO, "max_tokens": 10}

    admitted = desk.ask(told, provider="anthropic", headers={"authorization": "Bearer sk-ant-oat01-x"})

    assert (admitted.body, admitted.held.call.billing) == (None, "subscription")


class Broken(MemoryLedger):
    """A ledger that cannot be written."""

    def hold(self, call, rules, smaller=None, wait=None, *, out_of_turn=False):
        failed: Future = Future()
        failed.set_exception(LedgerUnavailable("the disk is full"))
        return failed


def test_a_ledger_that_cannot_be_written_is_503_with_a_time_to_come_again():
    desk = Desk(config("1"), Broken(clock=lambda: desks.NOW))

    decision = desk.ask()

    found = answered(decision)
    assert (decision.reply.status, found["error"]["code"]) == (503, "ledger_unavailable")
    assert decision.reply.headers["retry-after"] == "5"
    assert "x-should-retry" not in decision.reply.headers
    assert found["error"]["message"] == (
        "lockpin: the disk is full; without it no limit can be kept, so the call was not sent"
    )
    assert desk.kinds() == ["refusal"]


class Failing(MemoryLedger):
    """A ledger that has a fault of its own at each hold."""

    fault: Exception = AssertionError("secret words")

    def hold(self, call, rules, smaller=None, wait=None, *, out_of_turn=False):
        failed: Future = Future()
        failed.set_exception(self.fault)
        return failed


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (AssertionError("secret words"), "AssertionError"),
        (sqlite3.IntegrityError("secret words"), "IntegrityError"),
        (LedgerError("the books are of a newer version"), "the books are of a newer version"),
    ],
)
def test_a_hold_that_fails_otherwise_is_503_reserve_failed(fault, words):
    ledger = Failing(clock=lambda: desks.NOW)
    ledger.fault = fault
    desk = Desk(config("1"), ledger)

    decision = desk.ask()

    found = answered(decision)
    assert (decision.reply.status, decision.code) == (503, "reserve_failed")
    assert found["error"]["message"] == f"lockpin: the amount could not be held ({words}); the call was not sent"
    assert decision.reply.headers["retry-after"] == "5"
    assert found["lockpin"]["receipt"]["model"] == "pen"
    assert (desk.kinds(), desk.held()) == (["refusal"], 0)


class Blind(MemoryLedger):
    """A ledger that cannot be read; `holds` says whether it holds all the same, as it does where nothing is limited."""

    holds = True

    def look(self, payers, provider, model, rules):
        failed: Future = Future()
        failed.set_exception(LedgerUnavailable("the ledger is away"))
        return failed

    def hold(self, call, rules, smaller=None, wait=None, *, out_of_turn=False):
        return (
            super().hold(call, rules, smaller, wait, out_of_turn=out_of_turn)
            if self.holds
            else self.look(call.payers, "", "", rules)
        )


@pytest.mark.parametrize("holds", [True, False])
def test_a_ledger_out_of_reach_leaves_it_to_the_hold_whether_a_call_is_limited(holds):
    ledger = Blind(clock=lambda: desks.NOW)
    ledger.holds = holds
    decision = Desk(config(), ledger).ask(body(limit=None))

    if holds:
        assert isinstance(decision, Admitted)
        assert (decision.body, decision.held.call.limit_set) == (None, False)
    else:
        assert decision.code == "ledger_unavailable"


@pytest.mark.parametrize("told", [{"told": body("pencil")}, {"path": "/v1/videos"}])
def test_what_cannot_be_priced_waits_for_a_ledger_that_may_know_a_limit(told):
    decision = Desk(config(), Blind(clock=lambda: desks.NOW)).ask(**told)

    assert (decision.code, decision.reply.status) == ("ledger_unavailable", 503)


class Silent(MemoryLedger):
    """A ledger that holds and does not answer in time."""

    def hold(self, call, rules, smaller=None, wait=None, *, out_of_turn=False):
        super().hold(call, rules, smaller, wait, out_of_turn=out_of_turn)
        return Future()


def test_an_admission_that_is_broken_off_takes_its_hold_off_again():
    desk = Desk(config("1"), Silent(clock=lambda: desks.NOW))

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(desk.engine.admit(desk.incoming()), 0.01)

    asyncio.run(give_up())

    assert (desk.kinds(), desk.held()) == (["hold", "void"], 0)


def test_a_refusal_may_be_made_without_a_row():
    desk = Desk()
    words = refusal("too_large", "it is too large")

    quiet = desk.engine.refuse(desk.incoming(), words, write=False)
    assert desk.kinds() == []
    noted = desk.engine.refuse(desk.incoming(), words)

    assert (quiet.reply.status, noted.code) == (413, "too_large")
    assert desk.kinds() == ["refusal"]


def test_a_refusal_on_a_path_that_no_wire_reads_takes_the_hosts_shape():
    desk = Desk()
    words = refusal("bad_request", "no")
    incoming = desk.incoming(path="/v1/else")
    anthropic = replace(incoming, provider=replace(incoming.provider, error_shape="anthropic"))

    plain = json.loads(desk.engine.refuse(incoming, words).reply.body)
    shaped = json.loads(desk.engine.refuse(anthropic, words).reply.body)

    assert plain["error"]["code"] == "bad_request"
    assert shaped["type"] == "error"


def test_a_call_is_one_price_instant_and_one_set_of_rates():
    call = Desk(config("1")).ask(body("ink")).held.call

    assert (call.rates["input"], call.rates["output"]) == ("1", "5")
    assert (call.provider, call.host, call.wire, call.model) == ("openai", "api.openai.com", "openai_chat", "ink")
    assert (call.client, call.payers.task, call.streamed) == ("test/1", "t", False)


class Watched:
    """Prices that note in which thread they are asked for."""

    def __init__(self, prices) -> None:
        self._prices, self.threads = prices, set()

    def find(self, *asked):
        self.threads.add(threading.get_ident())
        return self._prices.find(*asked)

    def __getattr__(self, name):
        return getattr(self._prices, name)


@pytest.mark.parametrize(("images", "is_beside"), [(3, False), (3000, True)])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_very_many_images_are_bounded_beside_the_loop(path: str, images: int, is_beside: bool):
    desk = Desk(config("1000000"))
    watched = desk.engine._prices = Watched(desk.prices)
    if path == "/v1/responses":
        shown = {"type": "input_image", "image_url": "data:,"}
        told = {"model": "pen", "max_output_tokens": 9, "input": [{"role": "user", "content": [shown] * images}]}
    else:
        shown = {"type": "image_url", "image_url": {"url": "data:,"}}
        told = body(limit=9) | {"messages": [{"role": "user", "content": [shown] * images}]}

    assert isinstance(desk.ask(told, path=path), Admitted)
    assert (watched.threads == {threading.get_ident()}) is not is_beside

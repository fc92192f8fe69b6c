"""Playbooks of calls whose cost comes later, grows with a chain of replies, or becomes known while they run.

A token of "pen" costs $0.0001 as output and nothing as prompt; one of "ink" $0.000001 as prompt, five times that as
output. Both have a context window of 200,000 tokens.
"""

import asyncio
from dataclasses import replace
from datetime import timedelta

import desks
import pytest
from desks import Desk, config

from lockpin_core.call import Ending, Outcome, Portion, Reading, Terms
from lockpin_core.engine import Answered, Passed
from lockpin_core.ledger.memory import MemoryLedger
from lockpin_core.money import Money
from lockpin_core.settler import Admitted
from lockpin_core.usage import Unit

RESPONSES = "/v1/responses"
KEY = {"authorization": "Bearer sk-one"}
QUEUED = Reading(pending=True, terminal=True, upstream_id="resp_1")
DONE = Outcome(Ending.DONE, 200)


def body(model: str = "pen", limit: int = 1000, **more: object) -> dict:
    return {"model": model, "input": "hi", "max_output_tokens": limit, **more}


def used(output: int, prompt: int = 0, *, name: str = "resp_1", **facts: object) -> Reading:
    usage = {unit: count for unit, count in ((Unit.INPUT, prompt), (Unit.OUTPUT, output)) if count}
    return Reading((Portion(None, usage),), complete=True, terminal=True, upstream_id=name, **facts)


def ask(desk: Desk, told: dict | None = None, headers: dict = KEY, **more: object):
    return desk.ask(told or body(), path=RESPONSES, headers=headers, **more)


def poll(desk: Desk, reading: Reading, headers: dict = KEY) -> None:
    """Ask for a reply by its id, and let the engine see what the provider says."""
    passed = desk.ask(method="GET", path=f"{RESPONSES}/{reading.upstream_id}", headers=headers)
    assert isinstance(passed, Passed)
    assert passed.polled is not None
    asyncio.run(desk.engine.settle_polled(passed.polled, reading))


def background(desk: Desk) -> Admitted:
    admitted = ask(desk, body(background=True))
    assert isinstance(admitted, Admitted)
    assert desk.engine.settle(admitted, QUEUED, DONE).result() is None
    return admitted


def test_only_the_paths_that_show_an_earlier_call_are_polls():
    desk = Desk()
    polls = {
        ("GET", "/v1/responses/resp_1"): True,
        ("POST", "/v1/responses/resp_1/cancel"): True,
        ("GET", "/v1/models"): False,
        ("GET", "/v1/chat/completions/c"): False,
        ("POST", "/v1/responses/input_tokens"): False,
    }

    found = {(method, path): desk.ask(method=method, path=path).polled for method, path in polls}

    assert {key: polled is not None for key, polled in found.items()} == polls
    assert found["GET", "/v1/responses/resp_1"].wire.name == "openai_responses"


def test_a_background_call_stays_held_until_a_poll_shows_its_usage_and_is_charged_once():
    desk = Desk(config("1"))
    background(desk)
    assert (desk.kinds(), desk.held()) == (["hold"], 100_000_000)

    poll(desk, QUEUED)
    assert desk.kinds() == ["hold"]
    poll(desk, used(30))
    assert (desk.kinds(), desk.held(), desk.ledger.rows[-1].usd) == (["hold", "charge"], 0, 3_000_000)
    poll(desk, used(30))
    poll(desk, used(99))

    assert desk.kinds() == ["hold", "charge"]


def test_a_poll_of_another_account_settles_nothing():
    desk = Desk(config("1"))
    background(desk)

    poll(desk, used(30), headers={"authorization": "Bearer sk-two"})

    assert (desk.kinds(), desk.held()) == (["hold"], 100_000_000)


def test_a_poll_of_a_reply_that_is_unknown_or_was_settled_changes_nothing():
    desk = Desk(config("1"))
    admitted = ask(desk)
    desk.engine.settle(admitted, used(10, name="resp_2"), DONE)

    poll(desk, used(30, name="resp_2"))
    poll(desk, used(30, name="resp_3"))

    assert [row.usd for row in desk.ledger.rows] == [100_000_000, 1_000_000]


def test_a_call_that_was_cancelled_without_usage_is_charged_its_hold():
    desk = Desk(config("1"))
    background(desk)

    poll(desk, Reading(terminal=True, upstream_id="resp_1"))

    assert [row.usd for row in desk.ledger.rows] == [100_000_000, 100_000_000]


def test_a_reply_that_says_neither_how_it_stands_nor_what_it_used_settles_nothing():
    desk = Desk(config("1"))
    background(desk)

    poll(desk, Reading(upstream_id="resp_1"))

    assert desk.kinds() == ["hold"]


def test_a_stream_of_a_background_call_that_was_cut_keeps_its_hold():
    desk = Desk(config("1"))
    admitted = ask(desk, body(background=True, stream=True))

    cut = Reading(pending=True, upstream_id="resp_1")
    assert desk.engine.settle(admitted, cut, Outcome(Ending.CLIENT_LEFT, 200)).result() is None

    assert desk.held() == 100_000_000


def test_a_call_that_nobody_asks_about_is_charged_its_hold_and_corrected_when_somebody_does():
    now = [desks.NOW]
    ledger = MemoryLedger(clock=lambda: now[0])
    desk = Desk(config("1", hold_for_ms=60_000), ledger, clock=lambda: now[0])
    background(desk)

    now[0] += timedelta(seconds=59)
    ledger.look_after()
    assert desk.kinds() == ["hold"]
    now[0] += timedelta(seconds=1)
    ledger.look_after()
    assert [(row.kind, row.usd) for row in ledger.rows] == [("hold", 100_000_000), ("charge", 100_000_000)]
    poll(desk, used(30))
    poll(desk, used(30))

    assert [(row.kind, row.usd) for row in ledger.rows[2:]] == [("correction", 3_000_000 - 100_000_000)]


def test_a_chain_brings_in_what_this_ledger_has_seen_of_it():
    desk = Desk(config("1"))
    alone = ask(desk, body("ink"))
    assert isinstance(alone, Admitted)
    prompt = alone.held.call.quote.ceiling.prompt
    desk.engine.settle(alone, used(500, 2000, reasoning=100), DONE)

    first = ask(desk, body("ink", previous_response_id="resp_1"))
    named = first.held.call.quote.ceiling.prompt

    assert named >= prompt + 2500  # its own bytes, with the id's, and all of the first turn
    assert named < prompt + 2500 + 200
    assert first.parsed.chain_reasoning == 100
    desk.engine.settle(first, used(10, 2600, name="resp_2"), DONE)
    second = ask(desk, body("ink", previous_response_id="resp_2"))
    # 2,610 of the second turn and the 100 of reasoning that it may have left out
    assert second.held.call.quote.ceiling.prompt == named + 210


@pytest.mark.parametrize(
    ("headers", "name"), [(KEY, "resp_9"), ({"authorization": "Bearer sk-two"}, "resp_1")], ids=["id", "account"]
)
def test_a_chain_that_this_ledger_has_not_seen_may_fill_the_window(headers, name):
    desk = Desk(config("1"))
    desk.engine.settle(ask(desk), used(5), DONE)

    admitted = ask(desk, body("ink", previous_response_id=name), headers)

    assert admitted.held.call.quote.ceiling.prompt == 200_000


def test_a_chain_whose_last_reply_stated_no_usage_may_fill_the_window():
    desk = Desk(config("1"))
    desk.engine.settle(ask(desk), Reading(upstream_id="resp_1", terminal=True), DONE)

    assert ask(desk, body("ink", previous_response_id="resp_1")).held.call.quote.ceiling.prompt == 200_000


def test_a_background_reply_can_be_chained_once_it_was_polled():
    desk = Desk(config("1"))
    background(desk)
    poll(desk, used(30, 40))

    found = ask(desk, body("pen", previous_response_id="resp_1")).held.call.quote.ceiling.prompt

    assert 30 + 40 < found < 10_000


class Told(MemoryLedger):
    """A ledger that notes what it is told of calls whose cost comes later, as one in a file keeps it."""

    def defer(self, call_id, hold_for, link=None, ceiling=None):
        self.prompt = ceiling.prompt
        return super().defer(call_id, hold_for, link, ceiling)


@pytest.mark.parametrize(("counted", "more"), [(50, 700), (None, 0)])
def test_a_background_reply_whose_prompt_was_counted_may_leave_reasoning_out(counted: int | None, more: int):
    """A count is of what this turn reads; the bytes include all that the chain has."""
    ledger = Told(clock=lambda: desks.NOW)
    desk = Desk(config("1"), ledger)
    admitted = ask(desk, body(background=True))
    content = replace(admitted.parsed.content, counted=counted)
    parsed = replace(admitted.parsed, content=content, chain_reasoning=700)

    assert desk.engine.settle(replace(admitted, parsed=parsed), QUEUED, DONE).result() is None

    assert ledger.prompt == admitted.held.call.quote.ceiling.prompt + more


def test_another_model_may_count_a_chain_otherwise():
    desk = Desk(config("10"))
    background(desk)
    poll(desk, used(30, 40))

    assert ask(desk, body("ink", previous_response_id="resp_1")).held.call.quote.ceiling.prompt == 200_000


def test_a_chain_of_which_something_may_have_been_left_out_is_not_known():
    desk = Desk(config("10"))
    first = ask(desk, body(truncation="auto"))
    desk.engine.settle(first, used(30, 40), DONE).result()

    assert ask(desk, body(previous_response_id="resp_1")).held.call.quote.ceiling.prompt == 200_000


MESSAGES = {"model": "ink", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}], "stream": True}
STATED = Reading((Portion(None, {Unit.INPUT: 20}),), prompt_stated=True, terms=Terms(geo="global"))
STILL = Money.parse("0.00052")  # 20 tokens of prompt and 100 of output


def running(desk: Desk, told: dict = MESSAGES, provider: str = "anthropic") -> Admitted:
    admitted = desk.ask(told, provider=provider)
    assert isinstance(admitted, Admitted)
    return admitted


def test_a_hold_shrinks_once_the_prompt_is_stated():
    desk = Desk(config("1"))
    admitted = running(desk)
    assert admitted.held.call.quote.most > STILL

    known = desk.engine.true_up(admitted, STATED)

    assert (known.held.call.quote.most, known.held.call.quote.tokens) == (STILL, 120)
    assert (desk.kinds(), desk.held()) == (["hold", "shrink"], STILL.nano)


ENDS = {
    "stopped": (STATED, Outcome(Ending.STOPPED, 200)),
    "cannot be read": (Reading(readable=False), DONE),
    "nothing more": (STATED, Outcome(Ending.CUT, 200)),
    "without a price": (used(1, 20, name="m", model="ink"), DONE),
}


@pytest.mark.parametrize("name", ENDS)
def test_no_end_is_charged_more_than_what_is_still_held(name):
    desk = Desk(config("1"))
    known = desk.engine.true_up(running(desk), STATED)
    reading, outcome = ENDS[name]
    if name == "without a price":
        reading = replace(reading, portions=(Portion(None, {Unit.AUDIO_OUT: 1}),))

    resolved = desk.engine.settle(known, reading, outcome).result()

    assert resolved.charge.amount <= STILL
    assert not resolved.over_hold
    assert desk.held() == 0


def test_an_end_that_cannot_be_told_is_charged_what_is_still_held():
    desk = Desk(config("1"))
    known = desk.engine.true_up(running(desk), STATED)

    assert desk.engine.settle_as_held(known, "no_usage").result().charge.amount == STILL


@pytest.mark.parametrize(
    ("reading", "why"),
    [
        (replace(STATED, prompt_stated=False), "not stated"),
        (replace(STATED, portions=(Portion(None, {Unit.INPUT: 10**9}),)), "more than the hold"),
        (replace(STATED, portions=(Portion(None, {Unit.AUDIO_IN: 1}),)), "without a price"),
    ],
)
def test_a_hold_stays_where_nothing_better_is_known(reading, why):
    desk = Desk(config("1"))
    admitted = running(desk)

    assert desk.engine.true_up(admitted, reading) is admitted
    assert desk.kinds() == ["hold"]


@pytest.mark.parametrize(
    "desk_and_call",
    [
        lambda: (desk := Desk(), running(desk)),  # no limit is in force
        lambda: (
            desk := Desk(config("9")),
            running(desk, MESSAGES | {"model": "scout", "tools": [SEARCH | {"max_uses": 1}]}),
        ),
        lambda: (desk := Desk(config("1")), running(desk, {**desks.body("ink"), "stream": True}, "openai")),
    ],
    ids=["no limit", "tools of the provider", "another format"],
)
def test_a_hold_stays_where_that_would_be_wrong_or_in_vain(desk_and_call):
    desk, admitted = desk_and_call()

    assert desk.engine.true_up(admitted, STATED) is admitted
    assert desk.kinds() == ["hold"]


SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def test_a_websocket_on_a_metered_path_is_told_to_come_by_http():
    desk = Desk(config("1"))

    decision = desk.ask(path=RESPONSES, upgrade=True, method="GET")

    assert isinstance(decision, Answered)
    assert (decision.code, decision.reply.status) == ("uncapped_call", 426)


def test_tools_of_the_provider_get_a_limit_where_one_is_in_force_and_only_there():
    told = {**MESSAGES, "model": "scout", "tools": [SEARCH]}

    capped, free = (running(Desk(config(limit)), told) for limit in ("9", None))

    assert b'"max_uses"' in capped.body
    assert free.body is None
    # five searches of a cent, and a whole context window of prompt for each round
    assert capped.held.call.quote.ceiling.fees == {Unit.WEB_SEARCH: 5}
    assert capped.held.call.quote.ceiling.prompt > 5 * 200_000


class Late(MemoryLedger):
    """A ledger in which a task's limit is set just after it was looked for."""

    def hold(self, call, rules, smaller=None, wait=None, *, out_of_turn=False):
        self.task_new("t", limit=Money.parse("9"), window="lifetime", who="me")
        return super().hold(call, rules, smaller, wait, out_of_turn=out_of_turn)


def test_a_limit_that_comes_into_force_at_the_last_moment_counts_for_the_tools_too():
    """What is held counts on the limit of the tools, so that the body must have it."""
    desk = Desk(config(), Late(clock=lambda: desks.NOW))

    admitted = running(desk, {**MESSAGES, "model": "scout", "tools": [SEARCH]})

    assert b'"max_uses"' in admitted.body


def test_a_plan_login_keeps_its_body_and_its_tools_are_counted_all_the_same():
    desk = Desk(config("9"))
    told = {**MESSAGES, "model": "scout", "tools": [SEARCH]}

    admitted = desk.ask(told, provider="anthropic", headers={"authorization": "Bearer sk-ant-oat01-x"})

    assert (admitted.body, admitted.held.call.billing) == (None, "subscription")
    assert admitted.held.call.quote.ceiling.fees == {Unit.WEB_SEARCH: 5}


def test_another_model_that_may_run_within_a_call_is_held_too():
    alone, both = (
        running(Desk(config("9")), {**MESSAGES, **more}).held.call.quote
        for more in ({}, {"fallbacks": [{"model": "pen", "max_tokens": 700}]})
    )

    assert both.most >= alone.most + Money.parse("0.07")  # 700 tokens of "pen"
    assert both.most < alone.most + Money.parse("0.08")
    assert both.tokens >= alone.tokens + 700


def test_another_model_without_a_price_is_refused_by_its_name():
    decision = Desk(config("9")).ask({**MESSAGES, "fallbacks": [{"model": "pencil"}]}, provider="anthropic")

    assert isinstance(decision, Answered)
    assert (decision.code, b'model \\"pencil\\" has no price' in decision.reply.body) == ("unknown_model", True)


def test_where_reasoning_is_billed_beside_the_limit_the_models_maximum_is_held_on_top():
    desk = Desk(config("9"))
    told = desks.body("pen")

    usual = desk.ask(told).held.call.quote
    beyond = desk.ask(told, provider="xai", path="/v1/chat/completions").held.call.quote

    assert usual.ceiling.output == 1000
    assert beyond.ceiling.output == 1000 + 50_000


def test_codex_is_refused_in_the_form_that_it_does_not_try_again():
    codex = {**KEY, "user-agent": "codex_exec/0.171.0", "originator": "codex_exec"}
    replies = {
        setting: ask(Desk(config("0.01", refusal=setting)), headers=codex).reply
        for setting in ("auto", "lockpin", "provider")
    }

    assert {setting: reply.status for setting, reply in replies.items()} == {
        "auto": 200,
        "lockpin": 402,
        "provider": 429,
    }
    assert b'"invalid_prompt"' in replies["auto"].body
    assert all(b"would exceed its $0.0100 budget" in reply.body for reply in replies.values())

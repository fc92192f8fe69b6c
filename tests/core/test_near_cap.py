"""Calls near the cap, through the whole engine on a ledger in memory: lowered, lighter, cheaper, or refused (SPEC §11).

A "pen" token of output costs a hundredth of a cent and its prompts nothing; an "ink" token of prompt a millionth of a
dollar, and five of output.
"""

import asyncio
import json
from dataclasses import replace

import desks
import pytest
from desks import Desk, config

from lockpin_core.call import Ending, Outcome, Portion, Reading
from lockpin_core.config import Fit
from lockpin_core.config_near_cap import Degrade, Landing, NearCap
from lockpin_core.engine import Answered
from lockpin_core.money import Money
from lockpin_core.settler import Admitted
from lockpin_core.usage import Unit

WORDS = "tell me of the sea " * 200


def near(**change: object) -> NearCap:
    return replace(NearCap(), **change)


def messages(model: str = "pen", limit: int = 32_000, *, said: str = "hi", **more: object) -> dict:
    return {"model": model, "max_tokens": limit, "messages": [{"role": "user", "content": said}], **more}


def ask(desk: Desk, told: dict, **headers: str) -> Admitted | Answered:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return desk.ask(told, provider="anthropic", headers=named)


def spend(desk: Desk, tokens: int) -> None:
    """Let the task spend that many "pen" tokens, in a conversation of its own."""
    admitted = ask(desk, messages(limit=tokens, said="before"))
    assert isinstance(admitted, Admitted)
    desk.settle(admitted, tokens)


def settle(desk: Desk, admitted: Admitted, output: int, *, at_limit: bool = False) -> None:
    reading = Reading((Portion(None, {Unit.OUTPUT: output}),), complete=True, terminal=True, stopped_at_limit=at_limit)
    desk.engine.settle(admitted, reading, Outcome(Ending.DONE, 200)).result()


def sent(admitted: Admitted) -> dict:
    assert admitted.body is not None
    return json.loads(admitted.body)


def refused(answer: object) -> dict:
    assert isinstance(answer, Answered), "it was let through"
    return json.loads(answer.reply.body)["lockpin"]


# Lowering


def test_a_limit_that_anthropic_calls_always_carry_is_lowered_to_what_fits():
    """$1 is 10,000 tokens of output."""
    desk = Desk(config("1"))

    admitted = ask(desk, messages())

    assert sent(admitted) == messages(limit=10_000)
    assert (admitted.held.call.output_limit, admitted.held.call.limit_set) == (10_000, True)
    assert admitted.held.call.degrade == ("fit",)
    assert desk.held() == 10**9


def test_below_the_floor_it_is_refused_and_told_what_fits():
    desk = Desk(config("1"))
    spend(desk, 6000)

    found = refused(ask(desk, messages()))

    assert found["code"] == "budget_exceeded"
    assert found["fits"] == {"max_output_tokens": 4000}


def test_once_most_of_the_tasks_own_budget_is_spent_the_floor_is_lower():
    desk = Desk(config("1"))
    spend(desk, 8000)  # 80%

    assert sent(ask(desk, messages()))["max_tokens"] == 2000


def test_just_before_that_it_is_not():
    desk = Desk(config("1"))
    spend(desk, 7999)

    assert refused(ask(desk, messages()))["fits"] == {"max_output_tokens": 2001}


def test_the_lower_floor_is_a_floor():
    desk = Desk(config("1"))
    spend(desk, 9745)

    assert refused(ask(desk, messages()))["fits"] == {"max_output_tokens": 255}


@pytest.mark.parametrize(("spent", "lowered"), [(7999, False), (8000, True)])
def test_what_other_formats_ask_for_is_lowered_only_near_the_tasks_own_cap(spent, lowered):
    desk = Desk(config("1"))
    spend(desk, spent)

    answer = desk.ask(desks.body(limit=5000))

    if lowered:
        assert sent(answer) == desks.body(limit=2000)
    else:
        assert refused(answer)["fits"] == {"max_output_tokens": 2001}


def test_another_budget_that_is_nearly_spent_degrades_nothing():
    daily = config("100", daily_usd=desks.Money.parse("1"))
    desk = Desk(daily)
    spend(desk, 9000)

    assert refused(ask(desk, messages()))["fits"] == {"max_output_tokens": 1000}


def test_lowering_can_be_turned_off():
    desk = Desk(config("1", fit=Fit(output=False)))

    assert refused(ask(desk, messages()))["fits"] == {"max_output_tokens": 10_000}


def test_degrading_can_be_turned_off():
    desk = Desk(config("1", near_cap=near(degrade=Degrade(on=False))))
    spend(desk, 9000)

    assert refused(ask(desk, messages()))["fits"] == {"max_output_tokens": 1000}


@pytest.mark.parametrize("limit", [32_000, None])
def test_a_call_may_say_that_it_is_refused_instead(limit):
    desk = Desk(config("1"))
    told = messages() if limit else desks.body(limit=None)

    answer = desk.ask(told, provider="anthropic" if limit else "openai", headers={"x-lockpin-degrade": "off"})

    assert refused(answer)["fits"] == {"max_output_tokens": 10_000}


def test_the_header_says_off_or_is_refused():
    found = refused(ask(Desk(config("1")), messages(), x_lockpin_degrade="on"))

    assert found["code"] == "bad_request"


def test_a_thinking_budget_stays_below_the_limit():
    desk = Desk(config("1"))

    told = sent(ask(desk, messages(thinking={"type": "enabled", "budget_tokens": 16_000})))

    assert told["thinking"]["budget_tokens"] < told["max_tokens"] == 10_000


# After a cut


def test_after_a_lowered_reply_that_stopped_at_its_limit_the_next_call_is_whole_or_refused():
    desk = Desk(config("1"))
    admitted = ask(desk, messages())
    settle(desk, admitted, 100, at_limit=True)
    again = messages()
    again["messages"] += [{"role": "assistant", "content": "It"}, {"role": "user", "content": "go on"}]

    assert refused(ask(desk, again))["fits"] == {"max_output_tokens": 9900}
    assert refused(ask(desk, again))["code"] == "budget_exceeded"
    assert sent(ask(desk, messages(said="another")))["max_tokens"] == 9900


def test_one_that_waits_as_its_smallest_when_such_a_reply_comes_is_refused_at_once():
    """It waits for room for 4,096 tokens beside the 10,000 that are held; $3.20 for the whole are above the budget."""
    desk = Desk(config("1", queue_wait_ms=30_000))
    first = ask(desk, messages())
    turns = [*messages()["messages"], {"role": "assistant", "content": "ok"}, {"role": "user", "content": "go on"}]
    incoming = desk.incoming(messages() | {"messages": turns}, provider="anthropic")

    async def play() -> Admitted | Answered:
        waiting = asyncio.create_task(desk.engine.admit(incoming))
        while desk.ledger._room.future_of(incoming.id) is None:
            await asyncio.sleep(0)
        settle(desk, first, 50, at_limit=True)
        async with asyncio.timeout(20):
            return await waiting

    answer = asyncio.run(play())

    assert (first.held.call.output_limit, desk.held()) == (10_000, 0)
    assert refused(answer)["transient"] is False
    assert refused(answer)["needed_usd"] == 3.2


def test_once_a_call_of_it_went_whole_the_next_may_be_lowered_again():
    desk = Desk(config("1"))
    settle(desk, ask(desk, messages()), 100, at_limit=True)

    settle(desk, ask(desk, messages(limit=500)), 500)

    assert sent(ask(desk, messages()))["max_tokens"] == 9400


def test_a_lowered_reply_that_ended_by_itself_changes_nothing():
    desk = Desk(config("1"))
    settle(desk, ask(desk, messages()), 100)

    assert sent(ask(desk, messages()))["max_tokens"] == 9900


def test_a_reply_that_stopped_at_the_limit_it_asked_for_changes_nothing():
    desk = Desk(config("1"))
    settle(desk, ask(desk, messages(limit=100)), 100, at_limit=True)

    assert sent(ask(desk, messages()))["max_tokens"] == 9900


def test_a_session_is_a_conversation():
    desk = Desk(config("1"))
    session = {"user_agent": "claude-cli/2.1", "x_claude_code_session_id": "s1"}
    settle(desk, ask(desk, messages(), **session), 100, at_limit=True)

    assert isinstance(ask(desk, messages(said="another"), **session), Answered)
    assert isinstance(ask(desk, messages(), **{**session, "x_claude_code_session_id": "s2"}), Admitted)


def test_a_client_that_sends_everything_again_without_end_is_stopped():
    """It goes on after each cut with all that was said; the limit it asks for never fits."""
    desk = Desk(config("1"))
    told, paid, asked = messages(), 0, 0
    while asked < 50:
        asked += 1
        answer = ask(desk, told)
        if isinstance(answer, Answered):
            break
        paid += 1
        settle(desk, answer, 10, at_limit=True)
        told["messages"] += [{"role": "assistant", "content": "so"}, {"role": "user", "content": "go on"}]

    assert (paid, asked) == (1, 2)


# Lighter


def tool_turn(number: int, text: str) -> list[dict]:
    use = {"type": "tool_use", "id": f"u{number}", "name": "read", "input": {"path": f"f{number}"}}
    result = {"type": "tool_result", "tool_use_id": f"u{number}", "content": text}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


def working(turns: int, *, model: str = "ink", limit: int = 300, bytes_each: int = 9000, **more: object) -> dict:
    told = messages(model, limit, said="fix it", **more)
    for number in range(turns):
        told["messages"] += tool_turn(number, chr(97 + number % 26) * bytes_each)
    return told


def near_cap_desk(*, left_usd: str, **change: object) -> Desk:
    """A task of $1 of which that much is left: "pen" tokens of a hundredth of a cent were spent."""
    desk = Desk(config("1", **change))
    spend(desk, 10_000 - int(float(left_usd) * 10_000))
    return desk


def test_old_tool_results_are_left_out_where_the_call_then_fits():
    """Six results of 9,000 bytes, a token each by the bound: $0.054 and more; $0.05 are left."""
    desk = near_cap_desk(left_usd="0.05")

    admitted = ask(desk, working(6))

    told = sent(admitted)
    results = [part["content"] for message in told["messages"][2::2] for part in message["content"]]
    assert [len(text) < 200 for text in results] == [True, True, True, False, False, False]
    assert admitted.held.call.degrade == ("trim",)
    assert told["max_tokens"] == 300


def test_they_are_left_out_in_the_same_way_from_then_on_also_where_all_would_fit():
    desk = near_cap_desk(left_usd="0.05")
    first = ask(desk, working(6))
    settle(desk, first, 10)

    second = ask(desk, working(7))
    settle(desk, second, 10)

    before, after = sent(first)["messages"], sent(second)["messages"]
    assert after[: len(before)] == before
    small = working(6)
    small["messages"] = small["messages"][:9]  # four of the results: would fit whole
    assert sent(ask(desk, small))["messages"][:7] == before[:7]


def test_they_stay_left_out_once_the_limit_was_raised():
    """Thoughts that the model has had since are taken back only after the very messages that it had seen."""
    desk = near_cap_desk(left_usd="0.05")
    first = ask(desk, working(6))
    settle(desk, first, 10)
    own = next(standing.budget for standing in first.held.standings if standing.budget.own)
    desk.ledger.raise_budget(own, "t", Money.parse("10"), who="ann")

    before = sent(first)["messages"]
    for turns in (7, 8, 9):
        admitted = ask(desk, working(turns))
        settle(desk, admitted, 10)
        assert sent(admitted)["messages"][: len(before)] == before
    another = Desk(desk.config, desk.ledger)  # a process that has seen the task in another conversation alone
    another.count = 100
    settle(another, ask(another, messages("ink", 300, said="something else")), 10)
    assert sent(ask(another, working(10)))["messages"][: len(before)] == before


def test_the_cache_lives_for_five_minutes_where_the_call_then_fits():
    """A prompt of some 9,200 tokens: two millionths each where it is kept for an hour, 1.25 for five minutes."""
    desk = near_cap_desk(left_usd="0.015")
    told = messages("ink", 300, said="x" * 9000)
    told["messages"][0]["content"] = [
        {"type": "text", "text": "x" * 9000, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    ]

    admitted = ask(desk, told)

    assert admitted.held.call.degrade == ("cache5m",)
    assert sent(admitted)["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "5m"}


def test_before_the_task_is_near_its_cap_nothing_is_left_out():
    desk = Desk(config("0.05", fit=Fit(floor=1)))

    answer = ask(desk, working(6, limit=300))

    assert refused(answer)["code"] == "budget_exceeded"


@pytest.mark.parametrize("provider", ["chatgpt", "openai"])
def test_what_leaves_under_a_login_of_a_plan_is_as_it_came(provider):
    items = [{"role": "user", "content": "fix it"}]
    for number in range(6):
        items.append({"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}"})
        items.append({"type": "function_call_output", "call_id": f"c{number}", "output": "x" * 9000})
    told = {"model": "ink", "input": items, "store": False, "max_output_tokens": 300}
    path = {"chatgpt": "/backend-api/codex/responses", "openai": "/v1/responses"}[provider]

    answer = near_cap_desk(left_usd="0.05").ask(told, provider=provider, path=path)

    if provider == "openai":
        assert answer.held.call.degrade == ("trim",)
    else:
        assert refused(answer)["code"] == "budget_exceeded"


def test_where_nothing_helps_the_whole_call_is_refused():
    desk = near_cap_desk(left_usd="0.005")

    assert refused(ask(desk, working(6)))["needed_usd"] > 0.054


def test_where_neither_is_enough_alone_the_call_is_trimmed_and_lowered():
    """5,000 tokens of output are $0.025: with three results left out it needs $0.055, lowered to 256 tokens $0.056."""
    desk = near_cap_desk(left_usd="0.04")

    admitted = ask(desk, working(6, limit=5000))

    assert admitted.held.call.degrade == ("trim", "fit")
    told = sent(admitted)
    assert 1500 < told["max_tokens"] < 2500
    assert "aaaa" not in json.dumps(told)
    assert desk.held() <= 40_000_000


# Landing


def test_room_is_kept_for_a_last_small_call():
    """$0.1024 are kept: 1,024 "pen" tokens. Of $1 a larger call leaves 8,976."""
    desk = Desk(config("1", near_cap=near(landing=Landing(1, 1024))))

    assert sent(ask(desk, messages()))["max_tokens"] == 8976


def test_the_small_call_may_use_it():
    desk = Desk(config("1", near_cap=near(landing=Landing(1, 1024)), fit=Fit(output=False)))
    spend(desk, 8500)

    admitted = ask(desk, messages(limit=1024))

    assert (admitted.held.call.output_limit, admitted.body) == (1024, None)


def test_a_larger_call_near_the_cap_is_lowered_so_far_that_it_may_use_it():
    desk = Desk(config("1", near_cap=near(landing=Landing(1, 1024))))
    spend(desk, 8950)

    assert sent(ask(desk, messages()))["max_tokens"] == 1024


def test_what_is_kept_counts_as_held_and_never_comes_free():
    landing = near(landing=Landing(2, 1000), degrade=Degrade(on=False))
    desk = Desk(config("1", near_cap=landing, fit=Fit(output=False)))
    spend(desk, 7000)

    found = refused(ask(desk, messages(limit=1001)))

    assert (found["transient"], str(found["in_flight_usd"]), str(found["remaining_usd"])) == (False, "0.2", "0.1")
    assert found["fits"] == {"max_output_tokens": 1000}


def test_what_a_call_would_need_without_tools_is_told_also_beside_fallbacks():
    desk = Desk(config("0.05", near_cap=near(landing=Landing(1, 100)), fit=Fit(output=False)))
    tool = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
    fallbacks = [{"model": "ink", "max_tokens": 500}, {"model": "ink"}]

    answer = ask(desk, messages("scout", 1000, tools=[tool], fallbacks=fallbacks))

    assert refused(answer)["code"] == "budget_exceeded"
    assert "without the tools that the provider runs by itself" in json.loads(answer.reply.body)["error"]["message"]


# Cheaper


def test_a_cheaper_model_serves_where_the_call_does_not_fit():
    cheaper = near(cheaper={"anthropic/pen": ("anthropic/ink",)}, degrade=Degrade(on=False))
    desk = Desk(config("1", near_cap=cheaper, fit=Fit(output=False)))

    admitted = ask(desk, messages(limit=20_000))

    assert sent(admitted) == messages("ink", 20_000)
    assert (admitted.instead, admitted.held.call.model) == ("anthropic/ink", "ink")


def test_where_it_fits_the_model_is_kept():
    cheaper = near(cheaper={"anthropic/pen": ("anthropic/ink",)})
    desk = Desk(config("1", near_cap=cheaper))

    assert ask(desk, messages(limit=5000)).held.call.model == "pen"


@pytest.mark.parametrize("target", ["anthropic/nobody-knows", "openai/ink", "anthropic/pen"])
def test_one_that_cannot_serve_is_passed_over(target):
    cheaper = near(cheaper={"anthropic/*": (target,)}, degrade=Degrade(on=False))
    desk = Desk(config("1", near_cap=cheaper, fit=Fit(output=False)))

    assert refused(ask(desk, messages(limit=20_000)))["code"] == "budget_exceeded"


@pytest.mark.parametrize("provider", ["chatgpt", "openai"])
def test_none_serves_under_a_login_of_a_plan(provider):
    told = {"model": "pen", "input": "hi", "store": False, "max_output_tokens": 20_000}
    path = {"chatgpt": "/backend-api/codex/responses", "openai": "/v1/responses"}[provider]
    cheaper = near(cheaper={f"{provider}/pen": (f"{provider}/ink",)})

    answer = Desk(config("1", near_cap=cheaper)).ask(told, provider=provider, path=path)

    if provider == "openai":
        assert answer.instead == "openai/ink"
    else:
        assert refused(answer)["code"] == "budget_exceeded"


def test_a_refusal_names_the_cheaper_model_that_was_not_to_be_taken():
    cheaper = near(cheaper={"anthropic/pen": ("anthropic/ink",)})
    desk = Desk(config("1", near_cap=cheaper))

    found = refused(ask(desk, messages(limit=20_000), x_lockpin_degrade="off"))

    assert found["fits"] == {"max_output_tokens": 10_000, "model": "anthropic/ink"}


def test_a_refusal_says_that_the_call_was_not_made_smaller_as_its_sender_wanted():
    desk = near_cap_desk(left_usd="0.05")

    answer = ask(desk, working(6), x_lockpin_degrade="off")

    message = json.loads(answer.reply.body)["error"]["message"]
    assert message.endswith("; by X-Lockpin-Degrade: off it was not made smaller")


# A person


def test_nobody_is_asked_where_nobody_watches():
    desk = Desk(config("1", fit=Fit(output=False), near_cap=near(degrade=Degrade(on=False))))

    assert refused(ask(desk, messages(limit=20_000)))["code"] == "budget_exceeded"
    assert "question_asked" not in [row.code for row in desk.ledger.rows if hasattr(row, "code")]


def test_a_raise_by_less_than_was_asked_for_lets_go_just_the_version_that_is_held():
    """A round reads the window's 20 cents and pays a cent for its search; $0.60 are room for two of them."""
    desk = Desk(config("0.1"))
    desk.ledger.watchers = 1
    tool = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}

    admitted = raised(desk, messages("scout", 1000, tools=[tool]), by="0.5")

    assert admitted.held.call.quote.ceiling.refills == 2
    assert sent(admitted) == messages("scout", 1000, tools=[tool | {"max_uses": 2}])


def test_a_raise_that_makes_room_for_the_lightest_and_smallest_version_alone_lets_that_go():
    desk = near_cap_desk(left_usd="0.005")
    desk.ledger.watchers = 1

    admitted = raised(desk, working(6, limit=5000), by="0.035")

    assert admitted.held.call.degrade == ("trim", "fit")
    assert 1500 < sent(admitted)["max_tokens"] < 2500


def test_a_raise_that_makes_room_for_a_cheaper_model_alone_lets_that_serve():
    """20,000 tokens of "pen" cost $2, of "ink" $0.1."""
    cheaper = near(cheaper={"anthropic/pen": ("anthropic/ink",)}, degrade=Degrade(on=False))
    desk = Desk(config("0.05", near_cap=cheaper, fit=Fit(output=False)))
    desk.ledger.watchers = 1

    assert raised(desk, messages(limit=20_000), by="0.1").instead == "anthropic/ink"


def raised(desk: Desk, told: dict, *, by: str) -> Admitted | Answered:
    incoming = desk.incoming(told, provider="anthropic")

    async def play() -> Admitted | Answered:
        waiting = asyncio.create_task(desk.engine.admit(incoming))
        while not desk.ledger.questions() and not waiting.done():
            await asyncio.sleep(0)
        desk.ledger.answer(desk.ledger.questions()[0].id, "raise", by=Money.parse(by), who="ann")
        return await waiting

    return asyncio.run(play())


def test_asking_again_after_a_task_is_over_leaves_nothing_held():
    desk = Desk(config("1"))
    for _ in range(3):
        answer = ask(desk, messages())
        if isinstance(answer, Admitted):
            settle(desk, answer, 9000)

    assert desk.held() == 0
    assert asyncio.run(desk.engine.in_force("box"))

"""What changes while a call waits: it is decided as one that comes when its wait ends.

A "pen" token of output costs a hundredth of a cent and its prompts nothing, so that $1 is 10,000 of them.
"""

import asyncio

import pytest
from desks import FACTS, PRICING, Desk, config
from transcripts import chat

from lockpin_core.budgets import Budget
from lockpin_core.config import Fit
from lockpin_core.config_near_cap import Degrade
from lockpin_core.engine import Engine
from lockpin_core.money import Money
from lockpin_core.settler import Admitted
from lockpin_core.windows import Window
from tests.core.test_admission_loop import SAME
from tests.core.test_admission_loop import Desk as Watched
from tests.core.test_engine_attempts import Attempts
from tests.core.test_engine_models import PRICING as TWO
from tests.core.test_engine_models import limit, message, refusal
from tests.core.test_near_cap import ask, messages, near, refused, settle, spend, working
from tests.ledger.desk import SqliteDesk


def said(limit: int) -> dict:
    return {"model": "pen", "max_completion_tokens": limit, "messages": [{"role": "user", "content": "hi"}]}


def waited(desk, told, meanwhile, *, provider="openai"):
    """Give what became of a call that waited for room, and in whose wait something happened."""
    incoming = desk.incoming(told, provider=provider)

    async def play():
        waiting = asyncio.create_task(desk.engine.admit(incoming))
        while desk.ledger._room.future_of(incoming.id) is None:
            await asyncio.sleep(0)
            assert not waiting.done(), waiting.result()
        if (more := meanwhile()) is not None:
            await more
        async with asyncio.timeout(20):
            return await waiting

    return asyncio.run(play())


# Near the cap: 7,000 tokens are spent and some are held, so that a call waits at 70%; what ends its wait makes that more.


def at_70(held):
    desk = Desk(config("1", queue_wait_ms=30_000))
    spend(desk, 7000)
    first = ask(desk, messages(limit=held, said="first"))
    assert isinstance(first, Admitted) and first.held.call.degrade == ()
    return desk, first


def test_a_call_whose_wait_ends_near_the_cap_is_lowered_as_one_that_comes_then():
    desk, first = at_70(2000)

    answer = waited(desk, said(2500), lambda: settle(desk, first, 1500))

    assert isinstance(answer, Admitted), refused(answer)
    assert (answer.held.call.output_limit, answer.held.call.degrade) == (1500, ("fit",))


def test_it_is_trimmed_as_one_that_comes_then():
    desk, first = at_70(2900)

    answer = waited(desk, working(6), lambda: settle(desk, first, 2600), provider="anthropic")

    assert isinstance(answer, Admitted), refused(answer)
    assert "trim" in answer.held.call.degrade


def test_it_waits_on_where_only_held_money_is_in_the_way_of_what_it_may_be_by_then():
    """At 85% it may be as small as 256 tokens; all but 250 of the 1,500 left are held for another one, and then come free."""
    desk, first = at_70(2800)
    other = ask(desk, messages(limit=200, said="other"))

    async def meanwhile():
        settle(desk, first, 1500)
        third = await desk.engine.admit(desk.incoming(messages(limit=1250, said="third"), provider="anthropic"))
        assert isinstance(third, Admitted)
        settle(desk, other, 0)
        for _ in range(20):
            await asyncio.sleep(0.01)
        settle(desk, third, 0)

    answer = waited(desk, said(2500), meanwhile)

    assert isinstance(answer, Admitted), refused(answer)
    assert answer.held.call.output_limit == 1500


def test_a_call_about_which_nobody_answered_is_lowered_as_one_that_comes_then():
    desk = Desk(config("1", queue_wait_ms=0, near_cap=near(approvals_wait_ms=400)))
    desk.ledger.watchers = 1
    spend(desk, 7000)
    first = ask(desk, messages(limit=1500, said="first"))
    incoming = desk.incoming(said(3500))

    async def play():
        waiting = asyncio.create_task(desk.engine.admit(incoming))
        while not desk.ledger.questions():
            await asyncio.sleep(0)
            assert not waiting.done(), waiting.result()
        settle(desk, first, 1500)
        async with asyncio.timeout(20):
            return await waiting

    answer = asyncio.run(play())

    assert isinstance(answer, Admitted), refused(answer)
    assert answer.held.call.output_limit == 1500


# Limits that come into force meanwhile.


def test_a_limit_of_a_model_that_may_run_in_its_place_is_not_passed_by_a_call_that_waited():
    desk = Desk(config("0.12", pricing=TWO, daily_usd=None, queue_wait_ms=30_000))
    running = [ask(desk, message("dear")) for _ in range(2)]
    assert all(isinstance(one, Admitted) for one in running)  # ten of the twelve cents

    def meanwhile():
        desk.ledger.budget_set(limit("dear"), who="ann")
        for one in running:
            settle(desk, one, 1)

    answer = waited(desk, message("ink", "dear"), meanwhile, provider="anthropic")

    assert refusal(answer).startswith('lockpin: "dear" may run within the call, and a limit is in force for it')
    assert desk.held() == 0


def test_nor_by_another_attempt():
    desk = Attempts("1", pricing=TWO)
    found = desk.admitted(message("ink", "dear"), provider="anthropic")
    assert asyncio.run(desk.engine.may_go_on(found))
    desk.ledger.budget_set(limit("dear"), who="ann")

    assert not asyncio.run(desk.engine.may_go_on(found))
    following = desk.once_more(found)
    assert following.admitted is None and following.ended is not None
    assert desk.held() == 0


def test_a_window_that_ends_between_two_looks_makes_no_other_limit():
    now = [Desk().ledger._now().replace(hour=23, minute=59, second=59, microsecond=999_000)]
    desk = Desk(config(pricing=TWO, daily_usd=Money.parse("25")), clock=lambda: now[0])
    real = desk.ledger.look

    def look(payers, provider, model, rules):
        found = real(payers, provider, model, rules)
        now[0] = now[0].replace(second=0, minute=0, hour=0, day=now[0].day + 1) if now[0].hour == 23 else now[0]
        return found

    desk.ledger.look = look

    assert isinstance(ask(desk, message("ink", "dear")), Admitted)


@pytest.mark.parametrize("by_question", [False, True])
def test_a_call_that_was_priced_without_a_limit_gets_one_of_output_where_it_is_found_short(by_question):
    """Without an output limit its most is all that its model makes: $5 of a new limit of $1."""
    desk = Watched(watches=True, repeats=20, wait_ms=30_000)
    for turns in range(19):
        assert desk.told(SAME * turns, max_completion_tokens=100) is None
    turns = 19 if by_question else 1
    incoming = desk.incoming(chat(SAME * turns) | {"model": "pen"}, task="t" if by_question else "other")
    made = Budget("day", "machine", Window("day"), Money.parse("1"), enforce=True)
    if not by_question:  # between the look that says so and the hold
        real = desk.ledger.hold

        def hold(*asked, **more):
            desk.ledger.hold = real
            desk.ledger.budget_set(made, who="ann")
            return real(*asked, **more)

        desk.ledger.hold = hold

    async def play():
        waiting = asyncio.create_task(desk.engine.admit(incoming))
        if by_question:
            while not desk.ledger.put:
                await asyncio.sleep(0)
                assert not waiting.done(), waiting.result()
            desk.ledger.budget_set(made, who="ann")
            desk.ledger.answer(desk.ledger.put[-1].id, "continue", who="ann")
        async with asyncio.timeout(20):
            return await waiting

    answer = asyncio.run(play())

    assert isinstance(answer, Admitted), refused(answer)
    assert answer.held.call.limit_set
    assert answer.held.call.output_limit == 10_000 - 19


# Replies that were cut off, as other engines have seen it.


@pytest.mark.parametrize("lightens", [True, False])
@pytest.mark.parametrize("between", [True, False])
def test_a_call_that_went_whole_ends_what_another_engine_has_seen_of_a_cut(lightens, between):
    """After a restart, a reload or at another proxy: the next call may be lowered again."""
    desk = Desk(config("1", near_cap=near(degrade=Degrade(on=lightens))))
    settle(desk, ask(desk, messages()), 50, at_limit=True)
    later = Desk(desk.config, desk.ledger)
    later.count = desk.count
    if between:
        settle(later, ask(later, messages(limit=100, said="another")), 50)

    whole = ask(later, messages(limit=1000))
    assert isinstance(whole, Admitted) and whole.held.call.degrade == ()
    settle(later, whole, 50)

    answer = ask(later, messages())
    assert isinstance(answer, Admitted), refused(answer)


def test_a_call_that_waits_is_lowered_once_another_of_its_conversation_went_whole():
    desk = Desk(config("1", queue_wait_ms=30_000))
    settle(desk, ask(desk, messages()), 50, at_limit=True)
    other = ask(desk, messages(limit=9000, said="another"))

    async def meanwhile():
        whole = await desk.engine.admit(desk.incoming(messages(limit=500), provider="anthropic"))
        assert isinstance(whole, Admitted) and whole.held.call.degrade == ()
        settle(desk, whole, 500)
        settle(desk, other, 4500)

    answer = waited(desk, messages(limit=6000), meanwhile, provider="anthropic")

    assert isinstance(answer, Admitted), refused(answer)
    assert answer.held.call.output_limit == 10_000 - 50 - 500 - 4500


# Room that comes free while a cheaper model's prompt is counted.


def counting(settings, model, meanwhile):
    """Make a desk whose provider counts nothing; what happens when it is asked about a model, `meanwhile` does once."""
    desk, left = Desk(settings), [meanwhile]

    async def counter(asked):
        if left and model in asked.body:
            left.pop()(desk)

    rules = desk.engine._rules
    desk.engine = Engine(desk.config, desk.prices, desk.ledger, rules=rules, clock=desk.engine._clock, counter=counter)
    return desk, left


def test_the_lightest_version_is_tried_again_before_a_refusal():
    cheap = {**PRICING, "cheap": {"input": "0.95", "output": "5", **FACTS}}
    settings = config("1", pricing=cheap, near_cap=near(cheaper={"anthropic/ink": ("anthropic/cheap",)}))
    desk, left = counting(settings, b'"cheap"', lambda desk: settle(desk, first, 600))
    spend(desk, 9000)
    first = ask(desk, messages(limit=800, said="first"))  # eight of the ten cents that are left

    answer = ask(desk, working(6))

    assert not left
    assert isinstance(answer, Admitted), refused(answer)


def test_an_earlier_model_of_the_list_is_tried_again_before_a_refusal():
    dear = {**PRICING, "other": {"input": "1", "output": "90", **FACTS}}
    several = near(degrade=Degrade(on=False), cheaper={"anthropic/pen": ("anthropic/ink", "anthropic/other")})
    settings = config("1", pricing=dear, fit=Fit(output=False), near_cap=several)
    desk, left = counting(settings, b'"other"', lambda desk: settle(desk, first, 1))
    first = ask(desk, messages(limit=9500, said="first"))

    answer = ask(desk, messages(limit=32_000))

    assert not left
    assert isinstance(answer, Admitted), refused(answer)
    assert answer.instead == "anthropic/ink"


def test_two_proxies_on_one_ledger_agree_on_which_conversations_were_cut(tmp_path):
    books = SqliteDesk(tmp_path)
    settings = config("1")
    here, there = Desk(settings, books.ledger, books.clock), Desk(settings, books.open(), books.clock)
    there.count = 100
    for desk in (here, there):  # so that each has looked, and found nothing
        settle(desk, ask(desk, messages(limit=10, said="before")), 10)

    settle(here, ask(here, messages()), 50, at_limit=True)
    whole = ask(there, messages(limit=1000))
    assert isinstance(whole, Admitted) and whole.held.call.degrade == ()
    settle(there, whole, 50)

    for desk in (there, here):
        answer = ask(desk, messages())
        assert isinstance(answer, Admitted), refused(answer)
        settle(desk, answer, 50)
    books.close()


@pytest.mark.parametrize("is_raised", [True, False])
def test_a_call_whose_task_comes_near_its_cap_while_somebody_is_asked_is_trimmed(is_raised):
    desk = Desk(config("1", queue_wait_ms=0, near_cap=near(approvals_wait_ms=900)))
    desk.ledger.watchers = 1
    spend(desk, 7000)
    first = ask(desk, messages(limit=2800, said="first"))
    incoming = desk.incoming(working(6), provider="anthropic")

    async def play():
        waiting = asyncio.create_task(desk.engine.admit(incoming))
        while not desk.ledger.questions():
            await asyncio.sleep(0)
            assert not waiting.done(), waiting.result()
        settle(desk, first, 2620)
        if is_raised:  # by too little for the call as it came
            desk.ledger.answer(desk.ledger.questions()[0].id, "raise", who="ann", by=Money.parse("0.001"))
        async with asyncio.timeout(20):
            return await waiting

    found = asyncio.run(play())

    assert isinstance(found, Admitted), refused(found)
    assert "trim" in found.held.call.degrade


def test_what_another_engine_has_seen_of_a_cut_holds_while_other_conversations_change():
    one = Desk(config("1"))
    other = Desk(one.config, one.ledger)
    other.count = 100
    settle(other, ask(other, messages(limit=10, said="early")), 10)
    settle(one, ask(one, messages()), 50, at_limit=True)
    read = other.ledger.marks

    def marks(conversation):
        other.ledger.marks, found = read, read(conversation)
        other.engine._conversations.note_cut(b"another conversation", cut=True)
        return found

    other.ledger.marks = marks

    assert not isinstance(ask(other, messages()), Admitted)  # it is not lowered a second time

import asyncio
from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta

import pytest

from lockpin_core.admission_question import Asker, is_for_a_person
from lockpin_core.admission_waits import Waits
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger.memory import MemoryLedger
from lockpin_core.ledger.protocol import Short
from tests.ledger import desk as d
from tests.ledger.desk import WAIT_S, SetClock, call, machine, money, rules

OWN = replace(d.OWN, limit=money("1"), enforce=True)
TASK = rules(machine("100"), own=OWN)
DIGEST = b"d" * 32
SECOND = timedelta(seconds=1)


@pytest.fixture
def clock():
    return SetClock()


@pytest.fixture
def ledger(clock):
    made = MemoryLedger(clock=clock)
    made.watchers = 1
    return made


def short_of(ledger, dollars, in_force=TASK, **more):
    found = ledger.hold(call("c1", dollars, **more), in_force).result(WAIT_S)
    assert isinstance(found, Short)
    return found


async def put(ledger, clock, patience, call_id="c1"):
    """Ask, and give the task that waits for the answer, with its question."""
    asker, short = Asker(ledger, Waits(clock), clock, TASK), short_of(ledger, "1.25")
    waiting = asyncio.create_task(asker.ask(call(call_id, "1.25"), short, DIGEST, patience))
    while not ledger.questions():
        await asyncio.sleep(0)
    return waiting, ledger.questions()[0]


def test_a_question_says_what_each_answer_costs(ledger, clock):
    async def play():
        waiting, question = await put(ledger, clock, 30 * SECOND)
        ledger.answer(question.id, "refuse", who="ann")
        return question, await waiting

    question, answered = asyncio.run(play())

    assert (question.needed, question.short_by) == (money("1.25"), money("0.25"))
    assert [(each.answer, each.usd) for each in question.choices] == [
        ("once", money("1.25")), ("raise", money("0.5")), ("refuse", None),
    ]  # fmt: skip
    assert question.data["limit_usd"] == "1"
    assert (answered.answer, answered.who) == ("refuse", "ann")


def test_an_answer_of_the_last_moment_counts(ledger, clock):
    """The patience is over before it is looked for an answer again."""

    async def play():
        waiting, question = await put(ledger, clock, SECOND / 20)
        ledger.answer(question.id, "once", who="ann")
        return await waiting

    assert asyncio.run(play()).answer == "once"


def test_a_question_whose_time_is_over_keeps_nobody_waiting(ledger, clock):
    async def play():
        waiting, _ = await put(ledger, clock, 3600 * SECOND)
        clock.pass_by(hours=1)
        async with asyncio.timeout(WAIT_S):
            return await waiting

    assert asyncio.run(play()).answer is None


def test_who_has_joined_the_question_of_a_call_that_has_gone_waits_for_its_answer_no_longer(ledger, clock):
    ledger.task_new("t", limit=money("1"), window="lifetime", who="ann")

    async def play():
        first, question = await put(ledger, clock, 3600 * SECOND)
        short, asker = short_of(ledger, "1.25"), Asker(ledger, Waits(clock), clock, TASK)
        second = asyncio.create_task(asker.ask(call("c2", "1.25"), short, DIGEST, 3600 * SECOND))
        joined, real = [], ledger.question
        ledger.question = lambda name: joined.append(asyncio.current_task()) or real(name)
        while second not in joined:
            await asyncio.sleep(0.01)
        ledger.raise_budget(OWN, "t", money("0.25"), who="ann")
        ledger.hold(call("c1", "1.25"), TASK).result(WAIT_S)
        async with asyncio.timeout(WAIT_S):
            return question, await second, await first

    question, joined, own = asyncio.run(play())

    assert (joined.id, joined.gone, joined.answer) == (question.id, "hold", None)
    assert own.id == question.id


def test_where_nobody_watches_or_there_is_no_time_nobody_is_asked(ledger, clock):
    short, asker = short_of(ledger, "1.25"), Asker(ledger, Waits(clock), clock, TASK)
    assert asyncio.run(asker.ask(call("c1", "1.25"), short, DIGEST, timedelta(0))) is None
    ledger.watchers = 0
    assert asyncio.run(asker.ask(call("c1", "1.25"), short, DIGEST, SECOND)) is None
    assert ledger.questions() == []


class Away(MemoryLedger):
    """A ledger that cannot be reached: from the beginning, or once a question is put."""

    def __init__(self, clock, *, puts):
        super().__init__(clock=clock)
        self.watchers, self.puts = 1, puts

    def ask(self, asking):
        return super().ask(asking) if self.puts else failed()

    def question(self, question_id):
        return failed()


def failed():
    future = Future()
    future.set_exception(LedgerUnavailable("the ledger cannot be read"))
    return future


@pytest.mark.parametrize("puts", [True, False])
def test_while_the_ledger_is_away_there_is_no_answer(clock, puts):
    ledger = Away(clock, puts=puts)
    short, asker = short_of(ledger, "1.25"), Asker(ledger, Waits(clock), clock, TASK)

    found = asyncio.run(asker.ask(call("c1", "1.25"), short, DIGEST, SECOND / 4))

    assert (found is not None) is puts
    assert found is None or found.answer is None


def test_only_what_the_tasks_own_dollars_are_in_the_way_of_is_for_a_person(ledger):
    assert is_for_a_person(short_of(ledger, "1.25"))
    assert not is_for_a_person(short_of(ledger, "1.25", rules(machine("1"))))
    assert not is_for_a_person(short_of(ledger, "1.25", rules(machine("1"), own=OWN)))
    assert not is_for_a_person(short_of(ledger, "1.25", rules(own=replace(OWN, limit_tokens=50))))


CHANGES = {
    "room": lambda ledger: ledger.raise_budget(OWN, "t", money("0.25"), who="ann"),
    "closed": lambda ledger: ledger.task_close("t", who="ann"),
    "paused": lambda ledger: ledger.stop_task(call("c9", "0").payers, who="ann", data={}).result(WAIT_S),
    "nobody watches": lambda ledger: setattr(ledger, "watchers", 0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_call_that_need_not_wait_for_a_person_any_longer_does_not(ledger, clock, change):
    ledger.task_new("t", limit=money("1"), window="lifetime", who="ann")

    async def play():
        waiting, _ = await put(ledger, clock, 3600 * SECOND)
        CHANGES[change](ledger)
        async with asyncio.timeout(WAIT_S):
            return await waiting

    found = asyncio.run(play())

    assert (found.answer, found.is_open(clock.now)) == (None, True)


@pytest.mark.parametrize("raised", [None, "0.249999999"])
def test_one_that_does_not_fit_by_now_waits_on(ledger, clock, raised):
    ledger.task_new("t", limit=money("1"), window="lifetime", who="ann")

    async def play():
        waiting, question = await put(ledger, clock, 3600 * SECOND)
        if raised:
            ledger.raise_budget(OWN, "t", money(raised), who="ann")
        await asyncio.wait({waiting}, timeout=2.5)
        is_waiting = not waiting.done()
        ledger.answer(question.id, "once", who="ann")
        return is_waiting, await waiting

    is_waiting, answered = asyncio.run(play())

    assert (is_waiting, answered.answer) == (True, "once")

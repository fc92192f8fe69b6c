import asyncio
import json
from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta

import desks
import pytest
from transcripts import Use, anthropic, chat, near

from lockpin_core.call import Payers
from lockpin_core.config_near_cap import Loop, NearCap
from lockpin_core.engine import Answered
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.keys import new_secret
from lockpin_core.ledger.memory import MemoryLedger
from lockpin_core.settler import Admitted

LIST = Use("ls", {"path": "src"}, "a.py\nb.py")
SAME = [[LIST]]


class Watched(MemoryLedger):
    """A ledger that somebody watches: `put` has the questions."""

    def __init__(self, *, clock, watches=True):
        super().__init__(clock=clock)
        self.watchers, self.put, self.is_away = int(watches), [], False

    def ask(self, asking):
        if self.is_away:
            away = Future()
            away.set_exception(LedgerUnavailable("it is busy"))
            return away
        answer = super().ask(asking)
        if answer.result() is not None:
            self.put.append(answer.result())
        return answer


class Desk(desks.Desk):
    def __init__(self, action="ask", repeats=20, *, watches=False, ledger=None, wait_ms=300_000, **change):
        self.now = [desks.NOW]
        near_cap = NearCap(loop=Loop(repeats, action), approvals_wait_ms=wait_ms)
        settings = desks.config(near_cap=near_cap, **change)
        super().__init__(settings, ledger or Watched(clock=lambda: self.now[0], watches=watches), lambda: self.now[0])

    def told(self, turns, *, task="t", settle=True, by=None, **more):
        """Give how the header names the loop that the call after these turns is of; the code where it is refused.

        `by`: the user whose call it is.
        """
        decision = asyncio.run(self.engine.admit(self.asked(turns, task, by, **more)))
        if isinstance(decision, Answered):
            return decision.code
        assert isinstance(decision, Admitted)
        if settle:
            self.settle(decision, 1)
        return decision.loop

    def asked(self, turns, task="t", by=None, **more):
        incoming = self.incoming(chat(turns) | {"model": "pen", "max_completion_tokens": 100, **more}, task=task)
        return replace(incoming, payers=Payers(task, "box", user=by))

    def events(self, code):
        return sum(row.kind == "event" and row.code == code for row in self.ledger.rows)


def resume(desk):
    with desk.ledger._lock:
        desk.ledger._pauses.resume_task("t", None)


def test_a_loop_is_named_from_its_20th_call_on_and_told_of_every_20_calls():
    desk = Desk()

    told = [desk.told(SAME * turns) for turns in range(60)]

    assert told[:19] == [None] * 19
    assert told[19:] == [f"same_tool_call; repeats={n}" for n in range(20, 61)]
    assert desk.events("loop_found") == 3  # at 20, 40 and 60
    assert desk.held() == 0


def test_near_repeats_are_named_as_such():
    desk = Desk()

    assert desk.told([near(n) for n in range(18)]) is None
    assert desk.told([near(n) for n in range(19)]) == "near_repeats; repeats=20"


def test_the_conversation_is_not_read_before_a_loop_can_be_in_it():
    desk = Desk()

    for turns in range(19):
        desk.told(SAME * turns)

    assert not desk.engine._loops._repeats._read


def test_large_conversations_are_read_again_only_when_a_loop_can_be_in_them():
    desk = Desk()
    pad = {"path": "x" * 40_000}
    work = [[Use("read", {"path": f"{n}.py", **pad}, f"x = {n}")] for n in range(1)]
    work += [[Use("read", {"path": f"{n}.py"}, f"x = {n}")] for n in range(30)]

    told = [desk.told(work + SAME * turns) for turns in range(25)]

    assert told == [None] * 19 + [f"same_tool_call; repeats={n}" for n in range(20, 26)]
    # Taken back by its user to where it was before, and another loop from there: it is seen as soon as the first was.
    told = [desk.told(work + [[LIST._replace(tool="ll")]] * turns) for turns in range(25)]
    assert told == [None] * 19 + [f"same_tool_call; repeats={n}" for n in range(20, 26)]


def test_a_tools_name_is_told_as_plain_text_without_secrets():
    ledger = Watched(clock=lambda: desks.NOW, watches=False)
    told = []
    ledger.tell = lambda code, data, task=None: told.append(data["tools"])
    desk = Desk(repeats=3, ledger=ledger)
    names = ("\ud800é", new_secret(), "n" * 400)

    desk.told([[Use(name, {}, "a") for name in names]] * 3)

    assert [sorted(names) for names in told] == [["...", "\\ud800\\xe9", "n" * 200]]


def test_off_looks_at_nothing():
    desk = Desk("off")

    assert [desk.told(SAME * turns) for turns in (19, 30)] == [None, None]
    repeats = desk.engine._loops._repeats
    assert (desk.events("loop_found"), len(repeats._read), len(repeats._same)) == (0, 0, 0)


def test_warn_asks_nobody():
    desk = Desk("warn", watches=True)

    assert desk.told(SAME * 19) == "same_tool_call; repeats=20"
    assert (desk.ledger.put, desk.events("loop_found")) == ([], 1)


def test_stop_stops_the_task_until_it_is_resumed_and_no_other():
    desk = Desk("stop")

    assert desk.told(SAME * 19) == "loop_stopped"
    assert desk.told([]) == "loop_stopped"
    assert desk.told([], task="u") is None
    assert desk.held() == 0

    resume(desk)
    assert desk.told(SAME * 19) == "same_tool_call; repeats=20"  # it was told of already
    assert desk.told(SAME * 39) == "loop_stopped"  # and goes on for as long again


def test_each_conversation_of_a_task_has_its_own_loop():
    desk = Desk()
    other = [[Use("read", {"path": "a.py"}, "x = 1")]]

    desk.told(SAME * 19)
    desk.told(other + SAME * 19)
    desk.told(SAME * 19, task="u")

    assert desk.events("loop_found") == 3


def test_same_request_is_a_loop_at_its_20th_time_and_told_of_every_20_times():
    desk = Desk()

    told = [desk.told([]) for _ in range(45)]

    assert told == [None] * 19 + [f"same_request; repeats={n}" for n in range(20, 46)]
    assert desk.events("loop_found") == 2
    assert desk.told([], user="u") is None  # a byte is another: it is another request
    assert desk.told([], task="u") is None


def test_same_request_of_others_counts_for_each_user_alone():
    desk = Desk("stop", repeats=3)

    told = [desk.told([], by=user) for _ in range(2) for user in ("ann", "bob", None)]
    assert told == [None] * 6
    assert desk.told([], by="ann") == "loop_stopped"
    assert [desk.told([], by="cy"), desk.told([], by="dee")] == [None, None]  # nor are they stopped with her
    assert desk.told([], by="bob") == "loop_stopped"
    assert desk.told([]) == "loop_stopped"


@pytest.mark.parametrize("turns", [[], SAME * 2], ids=["request", "tools"])
def test_what_was_said_of_one_users_loop_is_not_said_of_anothers(turns):
    desk = Desk("stop", repeats=3)

    told = [[desk.told(turns, by=user) for _ in range(3)][-1] for user in ("ann", "bob", None)]

    assert told == ["loop_stopped"] * 3
    assert desk.events("loop_found") == 3


def test_same_request_to_models_that_the_path_names_counts_for_each_alone():
    desk = Desk(repeats=3)

    def told(model):
        path = f"/v1beta/models/{model}:generateContent"
        body = {"contents": [{"parts": [{"text": "hello"}]}]}
        decision = desk.ask(body, provider="gemini", path=path)
        if isinstance(decision, Admitted):
            desk.settle(decision, 1)
        return decision.loop

    assert [told(model) for _ in range(2) for model in ("pen", "ink")] == [None] * 4
    assert [told(model) for model in ("pen", "ink")] == ["same_request; repeats=3"] * 2


def test_same_request_counts_anew_after_an_hour_in_which_it_was_not_sent():
    desk = Desk(repeats=3)

    assert [desk.told([]) for _ in range(3)] == [None, None, "same_request; repeats=3"]
    desk.now[0] += timedelta(hours=1)
    assert desk.told([]) == "same_request; repeats=4"
    desk.now[0] += timedelta(hours=1, seconds=1)
    assert [desk.told([]) for _ in range(3)] == [None, None, "same_request; repeats=3"]
    assert desk.events("loop_found") == 2


def test_same_request_sent_side_by_side_is_none():
    desk = Desk(repeats=3)

    running = [desk.ask(chat([]) | {"model": "pen", "max_completion_tokens": 100}) for _ in range(30)]
    assert [one.loop for one in running] == [None] * 30
    for one in running:
        desk.settle(one, 1)

    assert [desk.told([]) for _ in range(2)] == [None, "same_request; repeats=3"]  # all 30 were one


def test_one_that_never_ended_hides_no_later_one_for_longer_than_a_minute():
    desk = Desk(repeats=3)

    desk.told([], settle=False)
    assert [desk.told([]) for _ in range(5)] == [None] * 5
    desk.now[0] += timedelta(minutes=1)
    assert [desk.told([]) for _ in range(2)] == [None, "same_request; repeats=3"]


def test_refused_requests_are_sent_again_and_again_too():
    desk = Desk(repeats=3, task_usd="0.001")

    assert [desk.told([]) for _ in range(4)] == ["budget_exceeded"] * 4
    assert desk.events("loop_found") == 1


def test_large_requests_that_differ_in_one_place_are_no_repeats_of_each_other():
    desk = Desk(repeats=3)
    text = "x" * 100_000

    told = [desk.told([], user=f"{text[:50_000]}{n % 2}{n // 2}{text[50_000:]}") for n in range(10)]

    assert told == [None] * 10
    assert [desk.told([], user=text) for _ in range(3)] == [None, None, "same_request; repeats=3"]


def test_processes_add_up_the_same_requests_that_each_has_seen():
    ledger = Watched(clock=lambda: desks.NOW, watches=False)
    here, there = Desk(ledger=ledger), Desk(ledger=ledger)
    here.count = 1000  # so that calls have other ids

    told = [desk.told([]) for _ in range(12) for desk in (here, there)]

    first = next(place for place, one in enumerate(told, 1) if one is not None)
    assert 20 <= first <= 24  # each may keep up to four to itself
    assert ledger.rows  # both are on it
    again = Desk(ledger=ledger)  # as after a restart
    again.count = 2000
    assert [again.told([]) is not None for _ in range(2)] == [False, True]


def answered(desk, answer, turns=SAME * 19, others=()):
    """Let calls wait for the answer to a question of a loop; give what they were told, and how long the first waited."""

    async def play():
        def asking(told, task="t"):
            body = chat(told) | {"model": "pen", "max_completion_tokens": 100}
            return asyncio.ensure_future(desk.engine.admit(desk.incoming(body, task=task)))

        before = len(desk.ledger.put)
        first = asking(turns)
        async with asyncio.timeout(60):
            while len(desk.ledger.put) == before:
                await asyncio.sleep(0)
        rest = [asking(told, task) for told, task in others]
        for _ in range(20):
            await asyncio.sleep(0)
        waiting = [one.done() for one in (first, *rest)]
        desk.now[0] += timedelta(seconds=7)
        if answer is not None:
            desk.ledger.answer(desk.ledger.put[-1].id, answer, who="ada")
        else:
            desk.now[0] += timedelta(minutes=10)
        return waiting, await asyncio.gather(first, *rest)

    return asyncio.run(play())


def test_somebody_who_watches_is_asked_and_continue_lets_the_call_go():
    desk = Desk(watches=True)

    waiting, (decision,) = answered(desk, "continue")

    assert waiting == [False]
    assert isinstance(decision, Admitted)
    assert (decision.loop, decision.held.call.waited_ms) == ("same_tool_call; repeats=20", 7000)
    (question,) = desk.ledger.put
    assert (question.kind, [choice.answer for choice in question.choices]) == ("loop", ["continue", "stop"])
    assert question.data == {"what": "same_tool_call", "repeats": 20, "tools": ["ls"]}
    assert question.until - question.asked == timedelta(seconds=50)  # nobody knows how long this client waits

    told = [desk.told(SAME * turns) for turns in range(20, 39)]
    assert len(desk.ledger.put) == 1  # not until as many calls more
    assert told[-1] == "same_tool_call; repeats=39"
    answered(desk, "continue", SAME * 39)
    assert len(desk.ledger.put) == 2


def test_without_an_answer_the_call_passes_and_nobody_is_asked_about_it_again():
    desk = Desk(watches=True)

    _, (decision,) = answered(desk, None)

    assert decision.loop == "same_tool_call; repeats=20"
    assert desk.told(SAME * 19) == "same_tool_call; repeats=20"
    assert len(desk.ledger.put) == 1


async def leaving(desk):
    """Let a client leave while its call waits for the answer to a question."""
    asking = asyncio.ensure_future(desk.engine.admit(desk.asked(SAME * 19)))
    async with asyncio.timeout(60):
        while not desk.ledger.put:
            await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


def test_a_client_that_left_and_sends_the_call_again_joins_its_question():
    desk = Desk(watches=True)

    asyncio.run(leaving(desk))
    (question,) = desk.ledger.put
    desk.ledger.put.clear()
    _, (decision,) = answered(desk, "continue")

    assert decision.loop == "same_tool_call; repeats=20"
    assert desk.ledger.put == [question]
    assert desk.events("loop_found") == 1


def test_nobody_is_asked_where_the_configuration_says_no_time_for_it():
    near_cap = NearCap(loop=Loop(), approvals_wait_ms=0)
    ledger = Watched(clock=lambda: desks.NOW)
    quick = desks.Desk(desks.config(near_cap=near_cap), ledger)

    body = anthropic(SAME * 19) | {"model": "pen"}
    decision = quick.ask(json.dumps(body).encode(), provider="anthropic")

    assert (decision.loop, ledger.put) == ("same_tool_call; repeats=20", [])


def test_stop_stops_the_task_and_nothing_is_held_meanwhile():
    desk = Desk(watches=True)

    _, (decision,) = answered(desk, "stop")

    assert isinstance(decision, Answered)
    assert (decision.code, decision.reply.status) == ("loop_stopped", 429)
    assert decision.reply.headers["X-Lockpin-Waited-Ms"] == "7000"
    assert "hold" not in desk.kinds()
    assert desk.told([]) == "loop_stopped"
    assert desk.told([], task="u") is None

    resume(desk)
    assert desk.told(SAME * 19) == "same_tool_call; repeats=20"


def test_other_calls_of_the_task_wait_for_the_answer_and_those_of_others_do_not():
    desk = Desk(watches=True)
    others = [([], "t"), (SAME * 19, "t"), (SAME * 20, "t"), ([], "u")]

    waiting, decisions = answered(desk, "stop", others=others)

    assert waiting == [False, False, False, False, True]
    codes = [one.code if isinstance(one, Answered) else None for one in decisions]
    assert codes == ["loop_stopped"] * 4 + [None]
    assert {question.id for question in desk.ledger.put} == {desk.ledger.put[0].id}


def beside(desk, other, answer=None, **more):
    """Let a client leave an open question, and another call of that task come, at another process; answer then.

    Gives whether that call waited, and what became of it.
    """

    async def play():
        await leaving(desk)
        asking = asyncio.ensure_future(other.engine.admit(other.asked([], **more)))
        for _ in range(20):
            await asyncio.sleep(0)
        waited = not asking.done()
        if answer is not None:
            desk.ledger.answer(desk.ledger.put[0].id, answer, who="ada")
        async with asyncio.timeout(60):
            return waited, await asking

    return asyncio.run(play())


@pytest.mark.parametrize(("answer", "code"), [("stop", "loop_stopped"), ("continue", None)])
def test_calls_of_other_processes_wait_for_the_answer_too_also_once_who_asked_has_left(answer, code):
    desk = Desk(watches=True)
    other = Desk(ledger=desk.ledger)  # also as after a restart
    other.count = 1000

    waited, decision = beside(desk, other, answer)

    assert waited
    assert (decision.code if isinstance(decision, Answered) else None) == code


@pytest.mark.parametrize("change", [{"task": "u"}, {"by": "ann"}, {"action": "warn"}, {"wait_ms": 0}], ids=str)
def test_calls_that_the_question_is_not_about_do_not_wait(change):
    settings = {name: change.pop(name) for name in ("action", "wait_ms") if name in change}
    desk = Desk(watches=True)
    other = Desk(ledger=desk.ledger, **settings)
    other.count = 1000

    waited, decision = beside(desk, other, **change)

    assert not waited
    assert decision.held.call.waited_ms == 0


def test_where_those_who_watched_are_gone_calls_wait_no_longer_and_are_asked_about_again():
    desk = Desk(watches=True)

    async def play():
        asking = [asyncio.ensure_future(desk.engine.admit(desk.asked(turns))) for turns in (SAME * 19, [])]
        async with asyncio.timeout(60):
            while not desk.ledger.put:
                await asyncio.sleep(0)
            desk.ledger.watchers = 0
            return await asyncio.gather(*asking)

    decisions = asyncio.run(play())
    for decision in decisions:
        desk.settle(decision, 1)
    desk.ledger.watchers = 1
    first = desk.ledger.put[0].id
    _, (decision,) = answered(desk, "stop", SAME * 20)
    assert (desk.ledger.put[-1].id, decision.code) == (first, "loop_stopped")


def test_a_clock_that_is_set_back_lets_nobody_wait_longer_than_its_client_does():
    desk = Desk(watches=True, wait_ms=300)

    async def play():
        asking = asyncio.ensure_future(desk.engine.admit(desk.asked(SAME * 19)))
        async with asyncio.timeout(60):
            while not desk.ledger.put:
                await asyncio.sleep(0)
            desk.now[0] -= timedelta(hours=1)
            return await asking

    decision = asyncio.run(play())

    assert decision.loop == "same_tool_call; repeats=20"
    assert 300 <= decision.held.call.waited_ms < 60_000
    desk.settle(decision, 1)
    asked = desk.ledger.put[0]
    assert asked.is_open(desk.now[0])  # by the clock, for an hour; but its time is over
    later = asyncio.run(desk.engine.admit(desk.asked([])))
    assert later.held.call.waited_ms == 0
    assert desk.told(SAME * 19) == "same_tool_call; repeats=20"
    assert desk.ledger.put == [asked]


def unasked(ledger, how):
    """Let a loop be told of without anybody being asked."""
    if how == "nobody watches":
        ledger.watchers = 0
        assert Desk(ledger=ledger).told(SAME * 19) == "same_tool_call; repeats=20"
        ledger.watchers = 1
    elif how == "no time":
        assert Desk(ledger=ledger, wait_ms=0).told(SAME * 19) == "same_tool_call; repeats=20"
    elif how == "only warned":
        assert Desk("warn", ledger=ledger).told(SAME * 19) == "same_tool_call; repeats=20"
    elif how == "paused":
        ledger.stop_task(Payers("t", "box"), who="ada", data={}).result()
        assert Desk(ledger=ledger).told(SAME * 19) == "loop_stopped"
        ledger._pauses.resume_task("t", None)
    else:
        ledger.is_away = True
        assert Desk(ledger=ledger).told(SAME * 19) == "same_tool_call; repeats=20"
        ledger.is_away = False


@pytest.mark.parametrize("how", ["nobody watches", "no time", "only warned", "paused", "ledger away"])
def test_a_loop_that_nobody_was_asked_about_is_asked_about_as_soon_as_somebody_can_be(how):
    ledger = Watched(clock=lambda: desks.NOW)
    unasked(ledger, how)
    desk = Desk(ledger=ledger)
    desk.count = 1000

    waiting, (decision,) = answered(desk, "stop", SAME * 20)

    assert waiting == [False]
    assert (decision.code, len(ledger.put)) == ("loop_stopped", 1)

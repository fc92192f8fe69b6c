import asyncio
from dataclasses import replace

import desks

from lockpin_core.call import Attempt, Ending, Outcome, Portion, Reading
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger.memory import MemoryLedger
from lockpin_core.usage import Unit


class Told(MemoryLedger):
    """A ledger that says what was told."""

    def __init__(self, *, clock=lambda: desks.NOW):
        super().__init__(clock=clock)
        self.told, self.kept, self.is_away = [], 0, False

    def tell(self, code, data, task=None):
        self.told.append((code, data["kind"], task, data["call"]))
        super().tell(code, data, task)

    def keep_profile(self, task, profile):
        self.kept += 1
        super().keep_profile(task, profile)

    def profile(self, task):
        answer = super().profile(task)
        if not self.is_away:
            return answer
        failed = type(answer)()
        failed.set_exception(LedgerUnavailable("it is away"))
        return failed


def play(desk, *calls, task="t", client=None):
    """Make calls one after the other, each with what it reports: (output tokens, tokens read, body)."""

    async def run():
        for output, read, body in calls:
            incoming = desk.incoming(desks.body("ink", 10_000) | body, task=task)
            decision = await desk.engine.admit(incoming if client is None else replace(incoming, client=client))
            usage = {Unit.OUTPUT: output, Unit.INPUT: 1000 - read, Unit.CACHE_READ: read}
            reading = Reading((Portion(None, usage),), complete=True, terminal=True)
            desk.engine.settle(decision, reading, Outcome(Ending.DONE, 200)).result()
            await asyncio.sleep(0)
            while desk.engine._drift._looking:
                await asyncio.sleep(0)

    asyncio.run(run())


def tool(name):
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


USUAL = (10, 800, {"tools": [tool("a")]})


def test_departures_are_events_with_their_call_and_the_receipts_of_others_have_none():
    ledger = Told()
    desk = desks.Desk(ledger=ledger)

    play(desk, *[USUAL] * 12)
    assert (ledger.told, ledger.kept) == ([], 10)
    play(desk, (10, 800, {"tools": [tool("b")]}), (10_000, 800, USUAL[2]), (10, 800, {"model": "pen", **USUAL[2]}))

    assert ledger.told == [("drift", kind, "t", f"c{n}") for kind, n in (("tools", 13), ("cost", 14), ("model", 15))]
    play(desk, (10, 800, {"tools": [tool("b")]}), (10_000, 800, USUAL[2]))
    assert len(ledger.told) == 3


def test_a_system_prompt_that_changed_and_a_cache_that_is_lost_are_seen():
    ledger = Told()
    desk = desks.Desk(ledger=ledger)

    def said(system):
        return {"messages": [{"role": "system", "content": system}, {"role": "user", "content": "hi"}]}

    play(desk, *[(10, 800, said("a"))] * 10, (10, 800, said("b")), *[(10, 0, said("a"))] * 5)

    assert [(kind, call) for _, kind, _, call in ledger.told] == [("system", "c11"), ("cache", "c16")]


def test_another_process_goes_on_with_the_profile_and_tells_of_nothing_twice():
    ledger = Told()
    here, there = desks.Desk(ledger=ledger), desks.Desk(ledger=ledger)
    there.count = 100
    other = (10, 800, {"tools": [tool("b")]})

    play(here, *[USUAL] * 10)
    play(there, USUAL, other)
    assert ledger.told == [("drift", "tools", "t", "c102")]
    play(here, other)

    assert len(ledger.told) == 1


def test_each_task_has_a_profile_of_its_own():
    ledger = Told()
    desk = desks.Desk(ledger=ledger)

    play(desk, *[USUAL] * 10)
    play(desk, *[(10, 800, {"tools": [tool("b")]})] * 12, task="u")

    assert ledger.told == []


def test_a_model_that_its_client_calls_by_nature_is_none():
    ledger = Told()
    pricing = desks.PRICING | {"small-haiku": desks.PRICING["ink"]}
    desk = desks.Desk(desks.config(pricing=pricing), ledger=ledger)
    side = (10, 800, {"model": "small-haiku", **USUAL[2]})

    play(desk, *[USUAL] * 10, side, client="claude-cli/2.1.197")
    assert ledger.told == []
    play(desk, side, client="curl/8")
    assert [kind for _, kind, _, _ in ledger.told] == ["model"]


def test_a_model_that_serves_by_our_own_choice_is_none():
    ledger = Told()
    desk = desks.Desk(ledger=ledger)
    play(desk, *[USUAL] * 10)

    async def run():
        decision = await desk.engine.admit(desk.incoming(desks.body("pen", 10_000)))
        reading = Reading((Portion(None, {Unit.OUTPUT: 10, Unit.INPUT: 1000}),), complete=True, terminal=True)
        call = replace(decision.held.call, attempt=Attempt(2, 3, "c0"))
        desk.engine.settle(
            replace(decision, held=replace(decision.held, call=call)), reading, Outcome(Ending.DONE, 200)
        ).result()
        await asyncio.sleep(0)
        assert not desk.engine._drift._looking

    asyncio.run(run())
    assert ledger.told == []


def test_a_ledger_that_is_away_keeps_nothing_from_going():
    ledger = Told()
    desk = desks.Desk(ledger=ledger)
    ledger.is_away = True

    play(desk, *[USUAL] * 12)

    assert ledger.told == []
    assert desk.kinds().count("charge") == 12


def test_calls_whose_cost_nobody_reported_are_not_looked_at():
    ledger = Told()
    desk = desks.Desk(ledger=ledger)

    async def run():
        for _ in range(12):
            decision = await desk.engine.admit(desk.incoming(desks.body("ink", 10)))
            desk.engine.settle(decision, Reading(), Outcome(Ending.CUT, 200)).result()
            await asyncio.sleep(0)

    asyncio.run(run())

    assert ledger.kept == 0

"""What becomes of a call that has failed and may be sent again: in place of mitmproxy's hooks, as those do it."""

import asyncio
import json
from dataclasses import dataclass, field, replace

from lockpin_core.attempts import has_failed, pause_ms
from lockpin_core.call import Attempt, Charge, Reading
from lockpin_core.engine_attempts import Skipped
from tests.sim.model import Fault

INSTEAD = {"big-ink": ("ink", "pen"), "ink": ("pen",), "pen": ("ink",)}  # what a call may fall back to
MOST = 12  # attempts of one call


@dataclass
class Tries:
    """How often a call was sent, and to which models it may still fall back."""

    made: int = 1  # to the model that it is at
    number: int = 1
    others: list = field(default_factory=list)
    first: str = ""

    def next_attempt(self, failed):
        return Attempt(self.number + 1, MOST, self.first or failed)


@dataclass
class Next:
    """What follows a failed attempt: under which hold which request goes; no hold: the failed reply stands."""

    admitted: object = None
    asked: object = None
    is_ended: bool = False  # the failed attempt was resolved already


class Again:
    """Sends calls again."""

    def __init__(self, agents):
        self.agents, self.world = agents, agents.world

    def tries(self, asked):
        """Say to which models a call may go, in some plays."""
        can_fall_back = "again" in self.world.plan.faults and not asked.searches and not asked.background
        others = INSTEAD.get(asked.model, ()) if can_fall_back and self.world.dice.random() < 0.7 else ()
        return Tries(others=[*others])

    async def after(self, proxy, admitted, outcome, asked, task, tries):
        """Go on after an attempt. Where the client leaves meanwhile, what failed is charged, whatever was to follow."""
        engine, failed = proxy.engine, admitted.held.call.id
        if not has_failed(outcome) or engine.failed_at(admitted, Reading(), outcome) is None:
            return Next()
        try:
            return await self.go_on(proxy, admitted, outcome, asked, task, tries)
        except asyncio.CancelledError:
            engine.end(failed, engine.failed_at(admitted, Reading(), outcome))
            raise

    async def go_on(self, proxy, admitted, outcome, asked, task, tries):
        retry, dice = self.world.config.near_cap.retry, self.world.dice.random
        pause = pause_ms(tries.made, outcome, {}, retry, self.world.wall(), dice)
        found = Next()
        if pause is not None:
            found = await self.once_more(proxy, admitted, outcome, asked, tries, pause)
            tries.made += 1
        while found.admitted is None and not found.is_ended and tries.others:
            found = await self.instead(proxy, admitted, outcome, asked, task, tries)
        if found.admitted is not None:
            tries.first, tries.number = tries.first or admitted.held.call.id, tries.number + 1
            self.world.counts["again"] += 1
        return found

    async def once_more(self, proxy, admitted, outcome, asked, tries, pause):
        engine, failed = proxy.engine, admitted.held.call.id
        cost, ended, following = engine.failed_at(admitted, Reading(), outcome), None, admitted
        if isinstance(cost, Charge):
            call = self.new_call(proxy, failed, asked)
            found = await engine.once_more(admitted, cost, call, tries.next_attempt(failed))
            following, ended = found.admitted, found.ended
        if following is None:
            return Next(is_ended=ended is not None)
        try:
            await asyncio.sleep(pause / 1000)
            may_go = await engine.may_go_on(following)
        except asyncio.CancelledError:
            engine.cancel(following.held.call.id)
            raise
        if may_go:
            return Next(following, asked)
        if ended is not None:
            engine.cancel(following.held.call.id)
        return Next(is_ended=ended is not None)

    async def instead(self, proxy, admitted, outcome, asked, task, tries):
        engine, failed = proxy.engine, admitted.held.call.id
        model = tries.others.pop(0)
        body = json.loads(asked.body) | {"model": model}
        other = replace(asked, model=model, body=json.dumps(body).encode())
        call = self.new_call(proxy, failed, other)
        incoming = self.agents.incoming(call, proxy, task, other)
        there = await engine.there(incoming, admitted.wire, tries.next_attempt(failed))
        if isinstance(there, Skipped):
            if there.why != "ledger_unavailable" or not self.world.trouble.is_away(proxy.name):
                raise Fault(f"FALSE REFUSAL: call {failed} cannot fall back to {model}: {there.why}")
            return Next()
        cost = engine.failed_at(admitted, Reading(), outcome)
        found = await engine.instead(admitted, cost, there)
        if isinstance(found, Skipped):
            self.world.note("falls back in vain", failed, model, found.why)
            return Next()
        tries.made = 1
        return Next(found, other)

    def new_call(self, proxy, failed, asked):
        self.world.names += 1
        call = f"a{self.world.names:05}"
        self.agents.wants[call] = asked
        name = proxy.again_of.get(failed, failed)  # what its client waits for
        proxy.again_of[call], proxy.again_at[name] = name, call
        return call

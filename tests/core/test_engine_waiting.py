"""Random histories of calls through the whole ladder, on a ledger in memory and a clock to set.

Whatever happens: no limit is passed, no call is refused that fits in the end, one that only held money was in the way of
has waited for as long as it may, also where its smallest version alone could fit, and nothing is left behind.
"""

import asyncio
import json
import random
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal

import desks
import pytest

from lockpin_core.engine import Answered
from lockpin_core.money import Money
from lockpin_core.settler import Admitted

TOKEN = 100_000  # nanodollars of a "pen" token of output
LIMITS = {"a": 10**9, "b": 10**9, "day": 15 * 10**8}
WAIT_S = 30
FLOOR = 4096  # of a limit that Lockpin sets; its usual 32,000 are $3.20, which fits no limit here
STEPS = {"arrive": 10, "settle": 5, "leave": 1, "lift": 1, "later": 4}


@dataclass
class Way:
    """A call on its way in."""

    name: str
    task: str
    least: int  # nanodollars that its smallest version may cost
    asking: asyncio.Task


@dataclass
class Street:
    """Calls come, wait, go, end and leave, one step after the other."""

    dice: random.Random
    settings: object = field(
        default_factory=lambda: desks.config("1", daily_usd=Money.parse("1.5"), queue_wait_ms=WAIT_S * 1000)
    )
    now: list = field(default_factory=lambda: [desks.NOW])
    ways: list[Way] = field(default_factory=list)
    running: list[Admitted] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=lambda: {"admitted": 0, "waited": 0, "fitted": 0, "refused": 0})

    def __post_init__(self):
        self.desk = desks.Desk(self.settings, clock=lambda: self.now[0])
        self.ledger, self.raised = self.desk.ledger, 0

    async def play(self, steps: int) -> None:
        for _ in range(steps):
            getattr(self, self.dice.choices(list(STEPS), list(STEPS.values()))[0])()
            await self.settle_down()
        while self.ways or self.running:
            if self.running:
                self.settle()
            self.later()
            await self.settle_down()
        assert not self.ledger._room._places
        waits = self.desk.engine._seeker.waits
        assert not waits._before
        assert not waits._since

    def arrive(self) -> None:
        tokens = self.dice.choice((100, 800, 3000, 7000, None))
        body = desks.body("pen", tokens, user=f"{self.desk.count}")  # no two are the same call
        task = self.dice.choice("ab")
        incoming = self.desk.incoming(body, task=task)
        asking = asyncio.get_running_loop().create_task(self.desk.engine.admit(incoming))
        self.ways.append(Way(incoming.id, task, TOKEN * (FLOOR if tokens is None else tokens), asking))

    def settle(self) -> None:
        if self.running:
            one = self.running.pop(self.dice.randrange(len(self.running)))
            most = one.held.call.output_limit
            self.desk.settle(one, self.dice.randrange(most // 10 + 1))

    def leave(self) -> None:
        if self.ways:
            self.dice.choice(self.ways).asking.cancel()

    def lift(self) -> None:
        (daily,) = [rule for rule in self.settings.all_budgets() if not rule.own]
        if self.raised < 5:
            self.raised += 1
            self.ledger.raise_budget(daily, "box", Money.parse("0.1"), who="ann")

    def later(self) -> None:
        self.now[0] += timedelta(seconds=self.dice.choice((1, 3, 10)))
        self.ledger.look_after()

    def left(self, *, held: bool = True) -> dict[str, int]:
        """Give what the accounts leave, by the books of the ledger; `held` False: if nothing were held."""
        found = {}
        for task in "ab":
            payers = self.desk.incoming(task=task).payers
            for s in self.ledger.look(payers, "openai", "pen", self.desk.engine._rules).result():
                limit = LIMITS[task] if s.budget.own else LIMITS["day"] + self.raised * 10**8
                assert s.limit.nano == limit >= s.spent.nano + s.held.nano
                found[task if s.budget.own else "day"] = limit - s.spent.nano - (s.held.nano if held else 0)
        return found

    async def settle_down(self) -> None:
        """Let everything happen that can, and judge what was decided."""
        for _ in range(30):
            await asyncio.sleep(0)
        left = self.left()
        for way in [way for way in self.ways if way.asking.done()]:
            self.ways.remove(way)
            if not way.asking.cancelled():
                self.judge(way, way.asking.result(), min(left[way.task], left["day"]))

    def judge(self, way: Way, decision, left: int) -> None:
        if isinstance(decision, Admitted):
            self.running.append(decision)
            self.seen["admitted"] += 1
            self.seen["waited"] += decision.held.call.waited_ms > 0
            self.seen["fitted"] += decision.held.call.waited_ms > 0 and decision.held.call.limit_set
            return
        assert isinstance(decision, Answered)
        assert left < way.least, f"{way.name} was refused, and fits"
        told = json.loads(decision.reply.body, parse_float=Decimal)["lockpin"]
        self.seen["refused"] += 1
        unspent = self.left(held=False)
        assert told["transient"] == (min(unspent[way.task], unspent["day"]) >= way.least)
        if told["transient"]:
            assert told["needed_usd"] * 10**9 == way.least
            assert told["receipt"]["waited_ms"] >= WAIT_S * 1000
            assert decision.reply.headers["X-Lockpin-Waited-Ms"] == str(told["receipt"]["waited_ms"])


@pytest.mark.parametrize("seed", range(16))
def test_nobody_is_refused_who_fits_and_nothing_is_left_behind(seed):
    street = Street(random.Random(seed))

    asyncio.run(street.play(150))

    assert all(street.seen[what] > 0 for what in ("admitted", "waited", "fitted", "refused"))

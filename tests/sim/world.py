"""One play: agents, proxies, a provider, a disk, and everything that can go wrong with them, all drawn from one seed.

What runs is Lockpin itself: engine, settlement, waiting room and ledger. Time, disk, provider and clients are played.
The judge reads every row as it is committed, hears every answer, and knows the provider's bills.
"""

import asyncio
import contextlib
import random
import shutil
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lockpin_core.budgets import Budget
from lockpin_core.config import Config, Fit, TaskKeys
from lockpin_core.config_near_cap import Breaker, NearCap, Retry
from lockpin_core.money import Money
from lockpin_core.windows import Window
from tests.sim import traffic
from tests.sim.agents import Agents
from tests.sim.judge import Judge, us_of
from tests.sim.model import Fault, Rule
from tests.sim.processes import Process, Processes
from tests.sim.simloop import SimLoop
from tests.sim.trouble import Trouble

BASE = datetime(2026, 11, 29, 20, tzinfo=UTC)  # four hours before a day ends
SETTLED_S = 450  # more than background calls are held, and longer than anybody waits
SHARED = "/dev/shm"  # a disk in memory, where there is one
FAULTS = ("crash", "disk", "pause", "clock", "leave", "change", "late", "stop", "again", "breaker")


@dataclass(frozen=True)
class Plan:
    """What is played."""

    seed: int
    calls: int = 1000
    faults: tuple = FAULTS
    backend: str | None = None  # "memory" | "sqlite"; None: drawn


class World:
    """Everything."""

    def __init__(self, plan):
        self.plan, self.dice = plan, random.Random(plan.seed)
        self.loop = SimLoop(random.Random(plan.seed + 1))
        self.backend = plan.backend or self.dice.choice(("sqlite", "sqlite", "memory"))
        self.skew_s, self.latest_s, self.ids, self.names = 0.0, 0.0, 0, 0
        self._wall = 0.0, BASE
        self.slow_s, self.trace, self.done, self.started = 0.0, [], 0, 0
        self.proxies, self.ledger_in_memory = {}, None
        self.counts = dict.fromkeys(
            (
                "held",
                "refused",
                "early",
                "left",
                "crashes",
                "unavailable",
                "waited",
                "lost",
                "corrected",
                "shrunk",
                "again",
                "paused",
            ),
            0,
        )
        self.folder = Path(tempfile.mkdtemp(prefix="lockpin-sim-", dir=SHARED if Path(SHARED).is_dir() else None))
        self.path = self.folder / "ledger.sqlite3"
        self.late = self.late_budget()
        self.config = self.first_config()
        self.known_rules = {rule.name: rule for rule in (*self.rules(), _rule(self.late))}
        self.judge, self.agents = Judge(self, self.rules()), Agents(self)
        self.processes, self.trouble = Processes(self), Trouble(self)
        self.kept = []  # tasks of killed processes, which must not be taken apart before the end

    # The play's circumstances.

    def first_config(self):
        """Draw limits that are used up in the course of the play."""
        dice = self.dice
        usd = dice.choice(("0.3", "1", "3", "10", "30", "100"))
        self.small = usd in ("0.3", "1")
        budgets = [
            Budget("daily", "machine", Window("day"), Money.parse(usd), enforce=True, alert_at=("0.8",)),
            Budget("hourly", "machine", Window("rolling", period_ms=3_600_000), Money.parse(dice.choice(("0.25", "1")) if self.small else dice.choice(("3", "30"))), enforce=True),
            Budget("words", "task", Window("lifetime"), None, dice.choice((100_000, 2_000_000, 10_000_000)), enforce=True),
            Budget("inks", "machine", Window("lifetime"), Money.parse(dice.choice(("0.2", "2", "20"))), enforce=True, models=("big-*", "ink"), providers=dice.choice(((), ("openai",), ("open*", "x*")))),
            Budget("seen", "machine", Window("lifetime"), Money.parse("0.01"), enforce=False),
        ]  # fmt: skip
        budgets = [b for b in (*budgets, self.late) if b.name in ("daily", "seen") or dice.random() < 0.5]
        own = TaskKeys(budget_usd=Money.parse(dice.choice(("0.2", "2", "20"))) if dice.random() < 0.7 else None)
        wait_ms = dice.choice((0, 5_000, 30_000))
        retry = Retry(dice.choice((1, 2, 3))) if "again" in self.plan.faults else Retry()
        usd, window_ms, cooldown_ms = (
            dice.choice(some) for some in (("0.02", "0.2", "2"), (2_000, 20_000), (1_000, 20_000))
        )
        trips = "breaker" in self.plan.faults and dice.random() < 0.3
        breaker = Breaker(Money.parse(usd), window_ms, cooldown_ms) if trips else Breaker()
        return replace(
            Config(None, self.path, daily_usd=None, pricing=traffic.PRICING, task=own, queue_wait_ms=wait_ms),
            budgets=tuple(budgets), hold_for_ms=300_000, near_cap=NearCap(retry=retry, breaker=breaker), fit=Fit(True, 4000, dice.choice((64, 4096))),
        )  # fmt: skip

    def late_budget(self):
        """Draw a budget that comes and goes."""
        dice = self.dice
        window = dice.choice((Window("lifetime"), Window("day"), Window("rolling", period_ms=3_600_000)))
        models, tokens = dice.choice(((), ("*ink",))), dice.choice((None, 100_000, 2_000_000))
        return Budget(
            "late", dice.choice(("task", "machine")), window, Money.parse("1"), tokens, enforce=True, models=models
        )

    def rules(self):
        config = self.config
        found = [_rule(budget) for budget in config.all_budgets()]
        return [*found, replace(_rule(config.task_default()), enforce=True)]

    def wall(self):
        now_s = self.loop.time() + self.skew_s
        if self._wall[0] != now_s:  # it is asked some hundred times a call
            self._wall = now_s, BASE + timedelta(microseconds=round(now_s * 1e6))
            self.latest_s = max(self.latest_s, now_s)
        return self._wall[1]

    def ledger_us(self):
        """Give the time that the ledger goes by: in memory it remembers the latest that it has seen."""
        if self.backend != "memory":
            return self.wall_us()
        self.wall()
        return us_of(BASE) + round(self.latest_s * 1e6)

    def wall_us(self):
        return us_of(self.wall())

    def disk_s(self, usual_s):
        return max(self.slow_s, usual_s) * self.dice.random()

    def new_id(self):
        self.ids += 1
        return f"id{self.ids:07}"

    def note(self, *words):
        self.trace.append((self.loop.time(), words))

    def told(self):
        """Give what happened, line by line."""
        return tuple(f"{at_s:10.4f}  {' '.join(map(str, words))}" for at_s, words in self.trace)

    # The play.

    def fail(self, fault):
        if self.fault is None:
            self.fault = fault
            self.note("FAULT", fault)
            self.loop.stop()
        return fault

    fault = None
    is_nested = False

    def play(self):
        """Play it all; raise Fault where a promise is broken."""
        self.loop.set_exception_handler(self.on_error)
        asyncio.set_event_loop(self.loop)
        try:
            try:
                self.loop.run_until_complete(self.all())
            except RuntimeError:
                if self.fault is None:
                    raise
            if self.fault is not None:
                raise self.fault
            self.finish()
            if self.fault is not None:
                raise self.fault
        finally:
            self.end()
        return self.counts

    def on_error(self, loop, context):
        error = context.get("exception")
        if error is not None and self.fault is None:
            fault = error if isinstance(error, Fault) else Fault(f"{type(error).__name__}: {error}")
            fault.__cause__ = None if error is fault else error
            self.fail(fault)

    async def all(self):
        for _ in range(1 if self.backend == "memory" else self.dice.randint(1, 3)):
            self.processes.start()
        agents = [self.loop.task_as("", self.agents.agent(number)) for number in range(self.dice.randint(2, 24))]
        trouble = self.loop.task_as("", self.trouble.go())
        while not all(agent.done() for agent in agents):
            await asyncio.wait(agents, timeout=5)
            if self.fault is not None:
                break
        for task in (*agents, trouble):
            task.cancel()
        if self.fault is not None:
            raise self.fault
        for agent in agents:
            if not agent.cancelled():
                agent.result()
        self.heal()
        await asyncio.sleep(SETTLED_S)
        self.judge.check_room()

    def heal(self):
        self.slow_s = 0.0
        self.skew_s += max(0, self.judge.model.now - self.wall_us()) / 1e6  # what waits for an instant must see it come
        for name in list(self.loop._stopped):
            self.loop.continue_process(name)
        for proxy in self.proxies.values():
            proxy.disk.heal()

    def finish(self):
        """Stop all, let one more settle what is left, and judge the whole."""
        for proxy in list(self.proxies.values()):
            proxy.disk.heal()
            proxy.ledger.stop()
            self.loop.kill(proxy.name)
        if self.backend == "sqlite":
            last = Process(self, "last")
            last.drive.play("begin")
            last.ledger.stop()
        self.judge.committed()
        left = self.judge.model.open_calls()
        if left:
            raise Fault(f"call {left[0].call} was never resolved")
        for call in self.agents.sent:
            self.judge.check_bill(call)
        if self.backend == "sqlite":
            self.judge.check_books()

    def end(self):
        self.judge.close()
        for task in self.kept:
            if isinstance(task, asyncio.Task) and not task.done():
                task._log_destroy_pending = False
                with contextlib.suppress(BaseException):  # what a killed process would have done at its end
                    task.get_coro().close()
        self.loop.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _rule(budget):
    window = {"lifetime": "lifetime", "day": "day", "rolling": "rolling"}[budget.window.kind]
    usd = None if budget.limit is None else budget.limit.nano
    return Rule(
        budget.name, budget.scope, window, usd, budget.limit_tokens, budget.enforce, budget.models,
        budget.window.period_ms * 1000, budget.providers,
    )  # fmt: skip

"""How much of a budget is used: coding agents share one until a call is refused for good. All drawn from one seed.

Each has a long prompt that the provider takes from its cache for the most part, asks for at most 32,000 tokens and gets
1 to 3% of them, in 20 seconds or so. What runs is Lockpin itself: engine, waiting room, true-up and ledger, in two
processes. A judge that shares no code with it reads every row, and knows what the provider bills.
"""

import asyncio
import contextlib
import json
import random
import shutil
import sqlite3
import tempfile
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

from lockpin_core.admission import Incoming
from lockpin_core.call import Ending, Outcome, Payers
from lockpin_core.config import Config, TaskKeys
from lockpin_core.engine import Answered, Engine
from lockpin_core.ledger.protocol import Rules, Short
from lockpin_core.ledger.verify import verify
from lockpin_core.money import Money
from lockpin_core.prices import PriceTable, shipped_dir
from lockpin_core.providers import Providers
from tests.sim.fleet import LIMIT, SONNET, Conversation, reply, tokens_of
from tests.sim.model import Fault
from tests.sim.processes import Process, Watched
from tests.sim.runs import pool_of
from tests.sim.simloop import SimLoop
from tests.sim.world import SHARED

AGENTS, PROCESSES = 20, 2
BUDGET = 20 * 10**9
WAIT_S = 30
BASE = datetime(2026, 11, 30, 8, tzinfo=UTC)
PRICES, PROVIDERS = PriceTable.load(shipped_dir(), {}, {}), Providers.load(shipped_dir())
TASK = "the fleet"
ROWS = "SELECT id, kind, call, usd FROM rows WHERE id > ? ORDER BY id"


@dataclass(frozen=True)
class Plan:
    """What is played.

    `is_full`: with the waiting room and the early true-up. `is_own`: the budget is that of a task, which all of them
    work on, and near its end limits are lowered further than elsewhere; else it is the machine's for a day.
    """

    seed: int
    is_full: bool = True
    is_own: bool = False
    budget: int = BUDGET


@dataclass
class Used:
    """What became of one budget; amounts in nanodollars."""

    plan: Plan
    calls: int = 0
    lowered: int = 0  # calls that left with another limit than they came with
    cut: int = 0  # of those, replies that stopped at that limit
    waited: int = 0
    early: int = 0  # refusals while only held money was in the way
    final: int = 0
    false: int = 0  # refusals of what would have fitted
    overshoot: int = 0
    at_first: int | None = None  # what was spent at the first refusal of any kind
    at_final: int | None = None  # the same at the first that was final
    at_end: int = 0
    took_s: float = 0.0
    end: str = ""  # what the first refusal that was final was about
    fault: str | None = None

    def share(self, spent):
        """Give a part of the budget in hundredths of a percent, rounded down; None: it did not come to that."""
        return None if spent is None else spent * 10_000 // self.plan.budget


class Books:
    """What the rows of the ledger make, in plain integers; judged at each commit."""

    def __init__(self, town):
        self.town, self.used = town, town.used
        self.spent = self.held = 0
        self.open, self.charged = {}, {}
        self.seen, self.reader = 0, None
        self.states = [(0, 0)]  # spent and held, at each row of the last commit
        self.short = {}  # by call: what was spent and held when it was last said not to fit

    def asked(self, call):
        """Hear what a hold is asked for."""

    def committed(self):
        if self.reader is None:
            self.reader = sqlite3.connect(self.town.path, isolation_level=None)
        self.states = self.states[-1:]
        for number, kind, call, usd in self.reader.execute(ROWS, (self.seen,)).fetchall():
            self.seen = number
            self.read(kind, call, usd or 0)
            self.states.append((self.spent, self.held))

    def read(self, kind, call, usd):
        if kind == "hold":
            self.open[call], self.held = usd, self.held + usd
        elif kind == "shrink":
            self.open[call], self.held = self.open[call] - usd, self.held - usd
        elif kind in ("charge", "void"):
            self.held, self.spent = self.held - self.open.pop(call), self.spent + usd
            self.charged[call] = usd
        self.used.overshoot = max(self.used.overshoot, self.spent + self.held - self.town.plan.budget)

    def heard(self, call, answer):
        """Keep by what a call was said not to fit: it must have been so at some row of this commit."""
        if isinstance(answer, Short):
            (stands,) = [(s.spent.nano, s.held.nano) for s in answer.standings if s.limit is not None]
            if stands not in self.states:
                raise Fault(f"call {call} is refused by what never was: {stands}")
            self.short[call] = stands

    def refused(self, call, talk, told):
        """Judge a refusal: the least that the call can be held at did not fit, and what it says is so."""
        spent, held = self.short.pop(call)
        plan = self.town.plan
        lowest = LIMIT if talk.was_cut else 256 if plan.is_own and spent * 10 >= plan.budget * 8 else 4096
        if spent + held + talk.model.quote(talk.prompt, lowest) <= plan.budget:
            self.used.false += 1
        if (told["spent_usd"] * 10**9, told["in_flight_usd"] * 10**9) != (spent, held):
            raise Fault(f"call {call} is refused as if {told} stood, and {spent} is spent and {held} held")


class Proxy(Process):
    """A process whose provider counts prompts for it."""

    def configure(self, config):
        self.rules = Rules(config.all_budgets(), config.task_default())
        self.engine = Engine(
            config, PRICES, Watched(self), rules=self.rules, clock=self.world.wall, counter=self.world.count
        )


@dataclass
class Town:
    """The agents, the proxies, the provider, and time. Stands in for a World where it lets processes run."""

    plan: Plan
    used: Used = None
    proxies: dict = field(default_factory=dict)
    backend: str = "sqlite"
    is_nested: bool = False
    fault: Fault | None = None

    def __post_init__(self):
        self.dice, self.used = random.Random(self.plan.seed), Used(self.plan)
        self.loop = SimLoop(random.Random(self.plan.seed + 1))
        self.folder = Path(tempfile.mkdtemp(prefix="lockpin-use-", dir=SHARED if Path(SHARED).is_dir() else None))
        self.path, self.ids, self.calls = self.folder / "ledger.sqlite3", 0, 0
        limit, wait_ms = Money(self.plan.budget), WAIT_S * 1000 if self.plan.is_full else 0
        limits = {"daily_usd": None, "task": TaskKeys(budget_usd=limit)} if self.plan.is_own else {"daily_usd": limit}
        self.config = replace(Config(None, self.path, **limits), queue_wait_ms=wait_ms)
        self.judge, self.processes = Books(self), SimpleNamespace(crashed=self.crashed)

    # What a process needs of its world.

    def wall(self):
        return BASE + timedelta(microseconds=round(self.loop.time() * 1e6))

    def new_id(self):
        self.ids += 1
        return f"id{self.ids:07}"

    def disk_s(self, usual_s):
        return usual_s * self.dice.random()

    def crashed(self, name):
        raise AssertionError(f"nothing befalls {name}")

    def fail(self, fault):
        self.fault = self.fault or fault
        self.loop.stop()

    async def count(self, ask):
        """Count a prompt as the provider's endpoint does."""
        await asyncio.sleep(0.1 + 0.4 * self.dice.random())
        return json.dumps({"input_tokens": tokens_of(json.loads(ask.body))}).encode()

    # The play.

    def play(self):
        """Play it until every agent was refused for good."""
        self.loop.set_exception_handler(self.on_error)
        asyncio.set_event_loop(self.loop)
        try:
            with contextlib.suppress(RuntimeError):
                self.loop.run_until_complete(self.all())
            if self.fault is not None:
                raise self.fault
            self.finish()
        finally:
            self.end()
        return self.used

    def on_error(self, _loop, context):
        error = context.get("exception")
        self.fail(
            error if isinstance(error, Fault) else Fault(f"{type(error).__name__}: {error}; {context['message']}")
        )

    async def all(self):
        for number in range(PROCESSES):
            proxy = self.proxies[f"proxy{number}"] = Proxy(self, f"proxy{number}")
            proxy.define()
        agents = [self.loop.task_as("", self.agent(number)) for number in range(AGENTS)]
        for agent in agents:
            await agent
        self.used.took_s = self.loop.time()

    def finish(self):
        """End the processes, and compare the books with the provider's bill and with Lockpin's own proof."""
        for proxy in self.proxies.values():
            proxy.ledger.stop()
        self.judge.committed()
        self.used.at_end = self.judge.spent
        if self.judge.open:
            raise Fault(f"call {next(iter(self.judge.open))} was never resolved")
        verdict = verify(self.path)
        if verdict.wrong is not None:
            raise Fault(f"verify: {verdict.wrong}")

    def end(self):
        if self.judge.reader is not None:
            self.judge.reader.close()
        self.loop.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def agent(self, number):
        """Work until a call is refused for good; where it may fit later, ask again later."""
        talk = Conversation(SONNET, number, random.Random(self.plan.seed * 1000 + number))
        proxy = self.proxies[f"proxy{number % PROCESSES}"]
        talk.begin()
        await asyncio.sleep(20 * talk.dice.random())
        while True:
            self.calls += 1
            name = f"c{self.calls:05}"
            work = self.loop.task_as(proxy.name, self.call(proxy, name, talk))
            pause_s = await work
            if pause_s is None:
                return
            await asyncio.sleep(pause_s)

    async def call(self, proxy, name, talk):
        """Make a call; give the seconds until the next one, None: there is none."""
        provider = PROVIDERS.by_name("anthropic")
        incoming = Incoming(
            name, provider, "api.anthropic.com", "POST", "/v1/messages", talk.headers(), talk.body(), False,
            Payers(TASK, "box"), "claude-cli/2.1.197",
        )  # fmt: skip
        decision = await proxy.engine.admit(incoming)
        if isinstance(decision, Answered):
            return self.refused(name, talk, decision)
        self.used.calls += 1
        self.used.waited += decision.held.waited > timedelta(0)
        await self.exchange(proxy, decision, json.loads(decision.body or incoming.body), talk)
        return talk.dice.uniform(0.5, 4)

    def refused(self, name, talk, decision):
        told = json.loads(decision.reply.body, parse_float=Decimal, parse_int=Decimal)["lockpin"]
        if decision.code != "budget_exceeded":
            raise Fault(f"call {name} is refused: {decision.reply.body.decode()[:300]}")
        self.judge.refused(name, talk, told)
        used, spent = self.used, self.judge.spent
        used.at_first = spent if used.at_first is None else used.at_first
        if told["transient"]:
            used.early += 1
            return float(told["retry_after_s"])
        used.final += 1
        used.end = (
            used.end or f"a prompt of {talk.prompt} tokens, {'cut off before' if talk.was_cut else 'whole before'}"
        )
        used.at_final = spent if used.at_final is None else used.at_final
        return None

    async def exchange(self, proxy, admitted, sent, talk):
        """Stream a reply as the provider does, and end the call."""
        limit, wants = sent["max_tokens"], talk.dice.randint(LIMIT // 100, LIMIT * 3 // 100)
        output, usage = min(wants, limit), talk.usage()
        was_cut = output < wants
        self.used.lowered += limit < LIMIT
        self.used.cut += was_cut
        scanner, is_told = admitted.wire.scanner(streamed=True, asked=admitted.parsed), False
        for delay_s, piece in reply(talk.model, usage, output, limit, talk.dice):
            await asyncio.sleep(delay_s)
            scanner.feed(piece)
            if self.plan.is_full and not is_told and scanner.result().prompt_stated:
                admitted, is_told = proxy.engine.true_up(admitted, scanner.result()), True
        proxy.engine.settle(admitted, scanner.result(), Outcome(Ending.DONE, 200, 20))
        self.check_bill(admitted.held.call.id, talk.model.bill(usage, output))
        talk.grow(output, was_cut=was_cut)

    def check_bill(self, name, bill):
        """See that a call is charged what the provider bills, once it is."""

        async def compare():
            while name not in self.judge.charged:
                await asyncio.sleep(0.01)
            if self.judge.charged[name] != bill:
                self.fail(Fault(f"call {name} is billed {bill} and charged {self.judge.charged[name]}"))

        self.loop.task_as("", compare())


def play(plan):
    """Play one seed."""
    town = Town(plan)
    try:
        return town.play()
    except Exception as error:  # noqa: BLE001 - whatever it is, the seed is to be told
        town.used.fault = str(error) if isinstance(error, Fault) else f"{type(error).__name__}: {error}"
        return town.used


GOAL = 9900  # hundredths of a percent that are spent before the first refusal that is final


def main(seeds, jobs, *, is_quick=False):
    """Play seeds in three ways, or in the first alone, and print a table. Gives the exit status."""
    ways = (Plan(0),) if is_quick else (Plan(0), Plan(0, is_own=True), Plan(0, is_full=False))
    plans = [replace(way, seed=seed) for seed in seeds for way in ways]
    print(
        f"{AGENTS} agents share ${BUDGET // 10**9}; spent at the first refusal that is final, and at the first of any"
    )
    print("kind; refusals while only held money was in the way (early), and of what would have fitted (false)\n")
    print(f"{'':>5}" + "".join(f"  {name:^{width}}" for name, width in _WAYS[: len(ways)]))
    print(f"{'seed':>5}" + "".join(f"  {_HEAD[:width]}" for _, width in _WAYS[: len(ways)]), flush=True)
    missed = 0
    with pool_of(min(jobs, len(plans)), each=4) as pool:
        played = pool.imap(play, plans)
        for seed in seeds:
            found = [next(played) for _ in ways]
            missed += not (meets(found[0]) and all(map(keeps, found)))
            lines = (f"  {_line(used)[:width]}" for used, (_, width) in zip(found, _WAYS, strict=False))
            print(f"{seed:>5}{''.join(lines)}".rstrip(), flush=True)
            print("".join(f"       {used.fault}\n" for used in found if used.fault is not None), end="")
    goal = f"{GOAL / 100:.1f}% spent at the first refusal that is final, overshoot $0.00, false refusals 0"
    print(f"\nat least {goal}: {'NOT MET' if missed else 'met'} by {len(seeds)} seed{'s' if len(seeds) > 1 else ''}")
    return 1 if missed else 0


_WAYS = (("a day of the machine", 55), ("a task", 27), ("without waiting and true-up", 33))


def keeps(used):
    """Say whether both promises were kept."""
    return used.fault is None and not used.false and not used.overshoot


def meets(used):
    """Say whether a budget was used as it should be besides."""
    share = used.share(used.at_final)
    return keeps(used) and share is not None and share >= GOAL


_HEAD = f"{'final':>7} {'first':>7} {'early':>5} {'false':>5} {'over':>5} {'calls':>6} {'waited':>6} {'lowered':>7}"


def _line(used):
    final, first = (_percent(used.share(spent)) for spent in (used.at_final, used.at_first))
    over = f"${used.overshoot / 10**9:.2f}"
    return (
        f"{final:>7} {first:>7} {used.early:>5} {used.false:>5} {over:>5} {used.calls:>6} {used.waited:>6} "
        f"{used.lowered:>7}"
    )


def _percent(share):
    return "-" if share is None else f"{share // 100}.{share % 100:02}%"

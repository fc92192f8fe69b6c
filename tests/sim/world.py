"""One play: agents, proxies, a provider, a disk, and everything that can go wrong with them, all drawn from one seed.

What runs is Lockpin itself: engine, settlement, waiting room and ledger. Time, disk, provider and clients are played.
The judge (`model`) reads every row as it is committed, hears every answer, and knows the provider's bills.
"""

import asyncio
import contextlib
import json
import os
import random
import shutil
import sqlite3
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from lockpin_core.admission import Incoming
from lockpin_core.budgets import Budget
from lockpin_core.call import Ending, Outcome, Payers, Reading
from lockpin_core.config import Config, Fit, TaskKeys
from lockpin_core.engine import Answered, Engine, Passed
from lockpin_core.ledger.admin import SqliteAdmin
from lockpin_core.ledger.memory import MemoryLedger
from lockpin_core.ledger.place import open_ledger
from lockpin_core.ledger.protocol import Held, Rules, Short
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.ledger.verify import verify
from lockpin_core.money import Money
from lockpin_core.prices import PriceTable, shipped_dir
from lockpin_core.providers import Providers
from lockpin_core.windows import Window
from tests.sim import traffic
from tests.sim.disk import Crash, Disk
from tests.sim.model import UNTOLD, Fault, Model, Rule
from tests.sim.simloop import SimLoop

BASE = datetime(2026, 11, 29, 20, tzinfo=UTC)  # four hours before a day ends
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR = 3600 * 10**6
SETTLED_S = 450  # more than background calls are held, and longer than anybody waits
SHARED = "/dev/shm"  # a disk in memory, where there is one
PROVIDERS = Providers.load(shipped_dir())
PRICES = PriceTable.load(shipped_dir(), traffic.PRICING, {})
TASKS = ("a", "b", "c")
FAULTS = ("crash", "disk", "pause", "clock", "leave", "change", "late", "stop")
ROWS = (
    "SELECT id, at, kind, call, code, reason, usd, tokens, task, machine, model, data, writer FROM rows WHERE id > ? "
    "ORDER BY id"
)


@dataclass(frozen=True)
class Plan:
    """What is played."""

    seed: int
    calls: int = 1000
    faults: tuple = FAULTS
    backend: str | None = None  # "memory" | "sqlite"; None: drawn


@dataclass
class Sent:
    """A call that reached the provider, and what it costs there."""

    bill: tuple
    proxy: str


class Drive:
    """Lets a writer of a ledger take its steps in played time."""

    def __init__(self, world, owner, latency_s):
        self.world, self.owner, self.latency_s = world, owner, latency_s
        self.steps = self.timer = None
        self.is_over = False

    def start(self, steps):
        self.steps = steps
        self.world.loop.run_as(self.owner, self.play, "begin")

    def wake(self):
        if self.steps is not None and not self.is_over:
            self.at(self.world.disk_s(self.latency_s))

    def at(self, delay_s):
        due = self.world.loop.time() + delay_s
        if self.timer is not None and not self.timer.cancelled() and self.timer.when() <= due:
            return
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.world.loop.run_as_later(self.owner, delay_s, self.play, "step")

    def play(self, what):
        if self.is_over:
            return
        self.timer = None
        try:
            if what == "begin":
                self.steps.begin()
            else:
                self.steps.step(0)
        except Crash:
            self.world.crashed(self.owner)
            return
        self.at(max(self.steps.patience_s(), 1e-6))

    def join(self):
        if self.is_over:
            return
        self.is_over = True
        while not self.steps.is_stopping:
            self.steps.step(0)
        self.steps.finish()
        self.steps.abandon()


class Proxy:
    """One process."""

    def __init__(self, world, name):
        self.world, self.name = world, name
        self.disk = Disk(world.committed)
        self.drive = Drive(world, name, world.dice.choice((0.0005, 0.002, 0.01)))
        if world.backend == "memory":
            self.ledger = MemoryLedger(clock=world.wall)
        else:
            self.ledger = SqliteLedger(
                world.path, clock=world.wall, new_id=world.new_id, durability="normal", deliver=self.deliver,
                soon=self.soon, ticks=world.loop.time, drive=self.drive,
                opening=lambda path, **more: self.disk.connection(open_ledger(path, **more)),
            )  # fmt: skip
        self.open = {}  # calls under way here, by id: what their client waits for
        self.configure(world.config)

    def configure(self, config):
        self.rules = Rules(config.all_budgets(), config.task_default())
        self.engine = Engine(config, PRICES, Watched(self), rules=self.rules, clock=self.world.wall)

    def soon(self, action):
        self.world.loop.run_as(self.name, action)
        return True

    def deliver(self, actions):
        """Answers of a commit: the judge hears them at once, those who wait on the loop's next turn."""
        try:
            for action in actions:
                operation, answer = action.args
                self.world.heard(operation.call_id, answer)
        except Fault as fault:
            self.world.fail(fault)
        self.world.loop.run_as(self.name, deliver, actions)


def deliver(actions):
    for action in actions:
        action()


class Watched:
    """A ledger whose holds are seen: what was asked, for the judge; all else passes."""

    def __init__(self, proxy):
        self._proxy, self._ledger, self._world = proxy, proxy.ledger, proxy.world

    def hold(self, call, rules, smaller=None, wait=None, *, out_of_turn=False):
        world = self._world
        world.asked(call, may_be_smaller=smaller is not None)
        holding = self._ledger.hold(call, rules, smaller, wait, out_of_turn=out_of_turn)
        if world.backend == "memory":
            holding.add_done_callback(lambda found: self._heard(call.id, found))
            world.committed()
        return holding

    def _heard(self, call_id, found):
        if not found.cancelled() and found.exception() is None:
            try:
                self._world.committed()
                self._world.heard(call_id, found.result())
            except Fault as fault:
                self._world.fail(fault)

    def __getattr__(self, name):
        found = getattr(self._ledger, name)
        if self._world.backend != "memory":
            return found

        def passed(*args, **more):
            try:
                return found(*args, **more)
            finally:
                self._world.committed()

        return passed


class World:
    """Everything."""

    def __init__(self, plan):
        self.plan, self.dice = plan, random.Random(plan.seed)
        self.loop = SimLoop(random.Random(plan.seed + 1))
        self.backend = plan.backend or self.dice.choice(("sqlite", "sqlite", "memory"))
        self.skew_s, self.ids, self.names = 0.0, 0, 0
        self._wall = 0.0, BASE
        self.slow_s, self.trace, self.asked_last, self.heard_last, self.wants = 0.0, [], {}, {}, {}
        self.sent, self.owners, self.seen_row = {}, {}, 0
        self.proxies, self.done, self.started = {}, 0, 0
        self.counts = dict.fromkeys(
            ("held", "refused", "early", "uncapped", "left", "crashes", "unavailable", "waited", "lost", "corrected"), 0
        )
        self.folder = Path(tempfile.mkdtemp(prefix="lockpin-sim-", dir=SHARED if Path(SHARED).is_dir() else None))
        self.path = self.folder / "ledger.sqlite3"
        self.config = self.first_config()
        self.model = Model(self.rules())
        self.reader = None
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
            Budget("inks", "machine", Window("lifetime"), Money.parse(dice.choice(("0.2", "2", "20"))), enforce=True, models=("*ink",)),
            Budget("seen", "machine", Window("lifetime"), Money.parse("0.01"), enforce=False),
        ]  # fmt: skip
        budgets = [budget for budget in budgets if budget.name in ("daily", "seen") or dice.random() < 0.5]
        own = TaskKeys(budget_usd=Money.parse(dice.choice(("0.2", "2", "20"))) if dice.random() < 0.7 else None)
        wait_ms = dice.choice((0, 5_000, 30_000))
        return replace(
            Config(None, self.path, daily_usd=None, pricing=traffic.PRICING, task=own, queue_wait_ms=wait_ms),
            budgets=tuple(budgets), hold_for_ms=300_000, fit=Fit(True, 4000, dice.choice((64, 4096))),
        )  # fmt: skip

    def rules(self):
        config = self.config
        found = [_rule(budget) for budget in config.all_budgets()]
        return [*found, replace(_rule(config.task_default()), enforce=True)]

    def wall(self):
        now_s = self.loop.time() + self.skew_s
        if self._wall[0] != now_s:  # it is asked some hundred times a call
            self._wall = now_s, BASE + timedelta(microseconds=round(now_s * 1e6))
        return self._wall[1]

    def wall_us(self):
        return (self.wall() - EPOCH) // timedelta(microseconds=1)

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

    # What the judge hears.

    def asked(self, call, *, may_be_smaller):
        self.asked_last[call.id] = (call, may_be_smaller)

    def committed(self):
        """Read the rows that are on the books since."""
        self.model.last = []
        try:
            for row in self.new_rows():
                self.judge(*row)
        except Fault as fault:
            self.fail(fault)

    def new_rows(self):
        if self.backend == "memory":
            ledger = self.proxies_ledger
            rows, self.seen_row = ledger.rows[self.seen_row :], len(ledger.rows)
            for row in rows:
                call = self.asked_last.get(row.call)
                model, machine = (None, None) if call is None else (call[0].model, call[0].payers.machine)
                at = (row.at - EPOCH) // timedelta(microseconds=1)
                yield at, row.kind, row.call, row.code, UNTOLD, row.usd, row.tokens, row.task, machine, model, None, ""
            return
        if self.reader is None:
            self.reader = sqlite3.connect(self.path, isolation_level=None)
        for number, *row in self.reader.execute(ROWS, (self.seen_row,)).fetchall():
            self.seen_row = number
            yield row

    def judge(self, at, kind, call, code, reason, usd, tokens, task, machine, model, data, writer):
        if at < self.model.now:
            raise Fault(f"a row goes back in time: {at} after {self.model.now}")
        self.model.now = at
        if kind != "refusal":
            self.note("row", kind, call or "", code or "", usd if usd is not None else "", reason or "")
        if kind == "hold":
            self.model.hold(call, at, task, machine, model, usd, tokens)
            self.owners[call] = writer
            self.counts["held"] += 1
        elif kind == "shrink":
            self.model.shrink(call, usd, tokens)
        elif kind in ("charge", "void"):
            is_void = kind == "void"
            self.model.resolve(call, at, usd or 0, tokens or 0, reason=reason, is_void=is_void)
            self.check_bill(call)
            owner = self.owners[call]
            if reason == "lockpin_stopped" and owner != writer and owner in self.alive_writers():
                raise Fault(f"call {call} is settled by another process, and its own lives")
        elif kind == "correction":
            self.counts["corrected"] += 1
            self.model.correct(call, at, usd, tokens)
        elif kind == "event" and code == "budget_defined" and data is not None:
            told = json.loads(data)
            if told["name"] in self.model.rules and not told["own"]:
                self.model.set_rule(told["name"], told["limit_nano"])

    def alive_writers(self):
        return {proxy.ledger.writer_id for proxy in self.proxies.values()}

    def check_bill(self, call):
        """A call costs at least what the provider bills."""
        hold, sent = self.model.calls.get(call), self.sent.get(call)
        if hold is None or hold.charged is None or sent is None or sent.bill is None:
            return
        if hold.charged[0] < sent.bill[0]:
            raise Fault(f"call {call} is billed {sent.bill[0]} nano and charged {hold.charged[0]} ({hold.reason})")

    def heard(self, call_id, answer):
        """An answer of the ledger's: what is short must be short by the model too."""
        if isinstance(answer, Held):
            if answer.degraded:
                enforced = [s for s in answer.standings if s.budget.enforce]
                call = answer.call
                keys = self.model.accounts_of(call.payers.task, call.payers.machine, call.model, self.model.now)
                if enforced or any(self.limited(key) for key in keys):
                    raise Fault(f"call {call_id} goes without a hold, and a limit is in force for it")
            return
        if not isinstance(answer, Short) or call_id not in self.asked_last:
            return
        call, _ = self.asked_last[call_id]
        if answer.behind:
            self.heard_last[call_id] = None
            return
        seen = {
            (s.budget.name, s.subject): (s.spent.nano, s.held.nano, s.spent_tokens, s.held_tokens)
            for s in answer.standings
        }
        quote = call.quote
        whole = (quote.most.nano, quote.tokens)
        least = traffic.least_of(self.wants[call_id], *whole, call.output_limit, self.config.fit.floor)
        transient, lower_transient, has_room = self.model.judge_short(
            call_id, call.payers.task, call.payers.machine, call.model, *whole, self.wall_us(), seen, least
        )
        needed = least if lower_transient and not transient else whole
        self.heard_last[call_id] = transient or lower_transient, seen, needed, has_room
        self.note("short", call_id, *whole, "transient" if transient else "final", least, has_room, seen)

    def limited(self, key):
        account = self.model.accounts[key]
        return account.rule.enforce and account.limits() != (None, None)

    # Agents.

    async def agent(self, number):
        task = self.dice.choice(TASKS)
        while self.started < self.plan.calls:
            self.started += 1
            asked = traffic.ask(self.dice, small=self.small)
            await self.call(task, asked)
            self.done += 1
            await asyncio.sleep(self.dice.choice((0, 0.01, 0.5, 3)) * self.dice.random())

    async def call(self, task, asked):
        alive = [proxy for proxy in self.proxies.values() if proxy.name not in self.loop._stopped]
        if not alive:
            await asyncio.sleep(0.5)
            return
        proxy = self.dice.choice(alive)
        self.names += 1
        name = f"c{self.names:05}"
        answer = proxy.open[name] = self.loop.create_future()
        work = self.loop.task_as(proxy.name, self.handle(proxy, name, task, asked))
        self.kept.append(work)
        if "leave" in self.plan.faults and self.dice.random() < 0.04:
            await asyncio.wait([answer], timeout=self.dice.choice((0.001, 0.01, 1, 5)) * self.dice.random())
            if not answer.done():
                self.counts["left"] += 1
                self.note("client leaves", name)
                self.loop.run_as(proxy.name, work.cancel)
        with contextlib.suppress(ConnectionError):
            await answer

    async def handle(self, proxy, name, task, asked):
        """What the proxy does with a call, in place of mitmproxy's hooks."""
        answer = proxy.open[name]
        try:
            await self.decide(proxy, name, task, asked)
        except Fault as fault:
            self.fail(fault)
        except asyncio.CancelledError:
            proxy.engine.cancel(name)
        except Crash:
            self.crashed(proxy.name)
            return
        finally:
            proxy.open.pop(name, None)
            if not answer.done():
                answer.set_result(None)

    def incoming(self, name, task, asked, method="POST", path=None, body=None):
        provider = PROVIDERS.by_name(asked.provider)
        host = provider.base.removeprefix("https://")
        headers = {"authorization": "Bearer k", "x-api-key": "k"}
        return Incoming(
            name, provider, host, method, path or asked.path, headers, asked.body if body is None else body, False,
            Payers(task, "box"), "play/1",
        )  # fmt: skip

    async def decide(self, proxy, name, task, asked):
        engine, self.wants[name] = proxy.engine, asked
        decision = await engine.admit(self.incoming(name, task, asked))
        if isinstance(decision, Answered):
            self.refused(name, decision)
            return
        if isinstance(decision, Passed):
            self.counts["uncapped"] += 1
            raise Fault(f"call {name} passes without a hold: {decision.uncapped}")
        call = decision.held.call
        if decision.held.waited:
            self.counts["waited"] += 1
        sent_body = decision.body or asked.body
        script = traffic.script(self.dice, asked, sent_body, name)
        if script.bill[0] > call.quote.most.nano:
            raise Fault(f"call {name} may cost {script.bill[0]} nano and is held at {call.quote.most.nano}")
        if traffic.limit_of(sent_body) != (call.output_limit or traffic.limit_of(sent_body)):
            raise Fault(f"call {name} leaves with another limit than it is held at")
        if not decision.held.degraded and self.model.calls.get(name) is None:
            raise Fault(f"call {name} leaves, and its hold is not on the books")
        await self.exchange(proxy, decision, script, asked, task)

    def refused(self, name, decision):
        told = json.loads(decision.reply.body, parse_float=Decimal)["lockpin"]
        if decision.code == "ledger_unavailable":
            self.counts["unavailable"] += 1
            return
        if decision.code != "budget_exceeded":
            raise Fault(f"call {name} is refused: {decision.code}: {decision.reply.body.decode()[:300]}")
        self.counts["refused"] += 1
        self.note("refused", name, {key: told[key] for key in told if key != "receipt"})
        heard = self.heard_last.get(name)
        if heard is None:
            raise Fault(f"FALSE REFUSAL: call {name} is refused, and no ledger said that it does not fit")
        transient, seen, needed, has_room = heard
        if has_room:
            raise Fault(f"FALSE REFUSAL: call {name} is refused, and its smallest version fits")
        first = next(stands for (budget, _), stands in seen.items() if budget == told.get("limit", "task"))
        if "spent_usd" in told and (told["spent_usd"] * 10**9, told["in_flight_usd"] * 10**9) != first[:2]:
            raise Fault(f"FALSE REFUSAL: call {name} is refused by what was so before it was last judged: {told}")
        if bool(told.get("transient")) != transient:
            raise Fault(f"call {name} is refused as transient={told.get('transient')}, and it is {transient}")
        said = told.get("needed_usd", Decimal(needed[0]) / 10**9) * 10**9, told.get("needed_tokens", needed[1])
        if said != needed:
            raise Fault(f"call {name} is refused as one that needs {said}, and it needs {needed}")
        self.counts["early"] += transient

    async def exchange(self, proxy, admitted, script, asked, task):
        engine, call = proxy.engine, admitted.held.call
        name, began = call.id, self.loop.time()
        sent = Sent(None if script.kind not in ("not_sent", "refused") else (0, 0), proxy.name)
        if script.kind != "not_sent":
            self.sent[name] = sent
            self.note("sent", name, "held", call.quote.most.nano, script.kind, "bill", script.bill[0])
        scanner = admitted.wire.scanner(streamed=asked.streamed, asked=admitted.parsed)
        relayed = b""
        tries = 2
        ending, status = Ending.DONE, script.status
        try:
            for delay, piece in script.pieces:
                await asyncio.sleep(delay)
                if script.status == 200:
                    scanner.feed(piece)
                    relayed += piece
                    if asked.streamed and tries:
                        tries -= 1
                        reading = scanner.result()
                        if reading.prompt_stated:
                            admitted, tries = engine.true_up(admitted, reading), 0
        except asyncio.CancelledError:
            ending, status = Ending.CLIENT_LEFT, script.status if relayed else None
        sent.bill = self.final_bill(script, asked, relayed, ending)
        if script.kind == "not_sent":
            ending = Ending.NOT_SENT
        elif script.kind == "dropped" and ending is Ending.DONE:
            ending = Ending.DROPPED
        elif script.kind == "cut" and ending is Ending.DONE:
            ending = Ending.CUT
        reading = scanner.result() if status == 200 else Reading()
        outcome = Outcome(ending, status, -int(-(self.loop.time() - began) // 1))
        if ending is Ending.CLIENT_LEFT and script.kind in ("not_sent", "refused", "failed"):
            sent.bill = (0, 0)
        if "late" in self.plan.faults and self.dice.random() < 0.01:
            self.note("settlement is missing", name)
            self.counts["lost"] += 1
            return
        engine.settle(admitted, reading, outcome)
        if "late" in self.plan.faults and not asked.background and self.dice.random() < 0.02:
            self.note("settled twice", name)
            engine.settle(
                admitted, Reading(), Outcome(*self.dice.choice(((Ending.NOT_SENT, None), (Ending.DONE, 200))))
            )
        if script.upstream_id is not None and script.kind == "later" and ending is Ending.DONE:
            self.kept.append(self.loop.task_as("", self.poll_later(script, asked, task)))

    def final_bill(self, script, asked, relayed, ending):
        """A stream of Messages that broke off is billed as far as it came; all else in full."""
        is_broken = script.kind == "cut" or ending is Ending.CLIENT_LEFT
        if script.kind in ("not_sent", "refused", "failed", "dropped"):
            return 0, 0
        if asked.provider == "anthropic" and asked.streamed and is_broken and not asked.searches:
            events = [json.loads(part.split(b"data: ", 1)[1]) for part in relayed.split(b"\n\n")[:-1]]
            if not events:
                return 0, 0
            started = events[0]["message"]["usage"]["input_tokens"]
            letters = sum(len(e["delta"]["text"]) for e in events if e["type"] == "content_block_delta")
            return traffic.bill_of(asked.model, started, max(1, letters))
        return script.bill

    async def poll_later(self, script, asked, task):
        """Ask after a background reply, once or more, maybe too late."""
        for _ in range(self.dice.choice((1, 1, 2))):
            await asyncio.sleep(self.dice.choice((1, 30, 200, 400)) * self.dice.random())
            alive = [proxy for proxy in self.proxies.values() if proxy.name not in self.loop._stopped]
            if alive:
                proxy = self.dice.choice(alive)
                self.kept.append(self.loop.task_as(proxy.name, self.poll(proxy, script, asked, task)))

    async def poll(self, proxy, script, asked, task):
        self.names += 1
        path = f"/v1/responses/{script.upstream_id}"
        incoming = self.incoming(f"p{self.names:05}", task, asked, "GET", path, b"")
        decision = await proxy.engine.admit(incoming)
        if not isinstance(decision, Passed) or decision.polled is None:
            raise self.fail(Fault(f"a poll is answered {decision}"))
        scanner = decision.polled.wire.scanner(streamed=False)
        scanner.feed(script.poll)
        with contextlib.suppress(Exception):
            await proxy.engine.settle_polled(decision.polled, scanner.result())

    # What goes wrong.

    def start_proxy(self):
        self.names += 1
        name = f"proxy{self.names}"
        proxy = self.proxies[name] = Proxy(self, name)
        self.proxies_ledger = proxy.ledger
        self.note("starts", name)
        self.loop.run_as(name, proxy.ledger.define, proxy.rules, "the file")
        if self.backend == "memory":
            self.loop.run_as(name, self.committed)
            self.kept.append(self.loop.task_as(name, self.rounds(proxy)))
        return proxy

    async def rounds(self, proxy):
        """A ledger in memory has no thread that looks after it."""
        while True:
            await asyncio.sleep(1)
            proxy.ledger.look_after()
            self.committed()

    def crashed(self, name):
        """A process is gone: nothing of it runs any more, its connection and its lock are the system's."""
        proxy = self.proxies.pop(name, None)
        if proxy is None:
            return
        self.note("crash", name)
        self.counts["crashes"] += 1
        self.loop.kill(name)
        proxy.drive.is_over = True
        writer = proxy.ledger._writer
        writer._connection.real.close()
        liveness = proxy.ledger._liveness
        if liveness._descriptor is not None:
            os.close(liveness._descriptor)
            liveness._descriptor = None
        self.kept.append(proxy)
        for call, answer in proxy.open.items():
            if call in self.sent and self.sent[call].bill is None:
                self.sent[call].bill = (0, 0)  # what it costs is within what it was held at, and that is charged
            if not answer.done():
                answer.set_exception(ConnectionError("the proxy is gone"))
                answer.exception()
        self.loop.run_as_later("", self.dice.choice((0.1, 3.0, 20.0)), self.start_proxy)

    async def trouble(self):
        """Let things go wrong, one after the other; in each play one kind more than the others."""
        most, often = self.dice.choice(self.plan.faults or ("",)), self.dice.choice((2, 8, 20))
        while self.done < self.plan.calls:
            await asyncio.sleep(self.dice.expovariate(1 / often))
            fault = most if self.dice.random() < 0.4 else self.dice.choice(self.plan.faults or ("",))
            action = getattr(self, f"do_{fault}", None)
            if action is not None and self.proxies:
                action(self.dice.choice(sorted(self.proxies)))

    def do_crash(self, name):
        if self.backend == "memory":
            return
        if self.dice.random() < 0.4:
            self.crashed(name)
        elif self.dice.random() < 0.5:
            self.proxies[name].disk.crash_in = self.dice.randint(0, 40)
        else:
            self.proxies[name].disk.fails.append("crash")

    def do_disk(self, name):
        disk = self.proxies[name].disk
        kind = self.dice.choice(("fails", "lost", "locked", "full", "slow"))
        self.note("disk", kind, name)
        if kind == "full":
            disk.is_full = True
            self.loop.run_as_later("", self.dice.choice((0.3, 2, 10)), setattr, disk, "is_full", False)
        elif kind == "slow":
            self.slow_s = self.dice.choice((0.1, 1, 4))
            self.loop.run_as_later("", 5, setattr, self, "slow_s", 0.0)
        else:
            disk.fails += [kind] * self.dice.choice((1, 1, 3))

    def do_pause(self, name):
        if self.backend == "memory":
            return
        self.note("stopped", name)
        self.loop.stop_process(name)
        self.loop.run_as_later("", self.dice.choice((0.5, 4, 40)), self.go_on, name)

    def go_on(self, name):
        self.note("goes on", name)
        self.loop.continue_process(name)

    def do_clock(self, _):
        step = self.dice.choice((-7200, -60, -1, 1, 60, 3600, 20_000))
        self.note("clock", step)
        self.skew_s += step

    def do_change(self, name):
        kind = self.dice.choice(("raise", "task", "limit"))
        if self.backend == "memory":
            admin = self.proxies_ledger
        else:
            admin = SqliteAdmin(self.path, clock=self.wall, new_id=self.new_id)
        if kind == "raise":
            by = Money.parse(self.dice.choice(("0.01", "0.1", "0.5")))
            budget = next(budget for budget in self.config.all_budgets() if budget.name == "daily")
            self.note("raise daily", by.nano)
            self.model.raise_by("daily", "box", by.nano, self.wall_us())
            admin.raise_budget(budget, "box", by, who="p")
        elif kind == "task":
            task = self.dice.choice(TASKS)
            limit = Money(self.just_room_for(task)) if self.dice.random() < 0.5 else Money.parse("3")
            self.note("task", task, limit.nano)
            self.model.set_task(task, limit.nano)
            admin.task_new(task, limit=limit, window="lifetime", who="p")
        elif self.backend != "memory" and not self.loop._stopped:
            self.change_limit()
        self.committed()

    def just_room_for(self, task):
        """Give the limit that leaves a task room for some calls to the last nanodollar."""
        account = self.model.accounts.get(("task", task, None))
        used = 0 if account is None else account.spent[0] + account.held[0]
        return used + 10_000 * self.dice.choice((16, 100, 400, 1000, 2000, 4000))

    def change_limit(self):
        """Another configuration, for all processes."""
        usd = Money.parse(self.dice.choice(("0.2", "1", "6")))
        budgets = tuple(replace(b, limit=usd) if b.name == "daily" else b for b in self.config.budgets)
        self.config = replace(self.config, budgets=budgets)
        self.note("daily", usd.nano)
        for proxy in self.proxies.values():
            proxy.configure(self.config)
            self.loop.run_as(proxy.name, proxy.ledger.define, proxy.rules, "the file")

    def do_stop(self, name):
        """End one in order, and start another."""
        if self.backend == "memory" or name in self.loop._stopped or self.proxies[name].disk.is_full:
            return
        proxy = self.proxies[name]
        proxy.disk.fails, proxy.disk.crash_in = [], None
        self.note("ends in order", name)
        proxy.ledger.stop()
        self.proxies.pop(name)
        self.loop.kill(name)
        self.kept.append(proxy)
        for call, answer in proxy.open.items():
            if call in self.sent and self.sent[call].bill is None:
                self.sent[call].bill = (0, 0)
            if not answer.done():
                answer.set_exception(ConnectionError("the proxy ends"))
                answer.exception()
        self.loop.run_as_later("", 1.0, self.start_proxy)

    # The play.

    def fail(self, fault):
        if self.fault is None:
            self.fault = fault
            self.note("FAULT", fault)
            self.loop.stop()
        return fault

    fault = None

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
            self.start_proxy()
        agents = [self.loop.task_as("", self.agent(number)) for number in range(self.dice.randint(2, 24))]
        trouble = self.loop.task_as("", self.trouble())
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
        if self.reader is not None and self.reader.execute("SELECT count(*) FROM waiting").fetchone() != (0,):
            raise Fault("nobody waits, and a ticket is left")

    def heal(self):
        self.slow_s = 0.0
        self.skew_s += max(0, self.model.now - self.wall_us()) / 1e6  # what waits for an instant must see it come
        for name in list(self.loop._stopped):
            self.loop.continue_process(name)
        for proxy in self.proxies.values():
            proxy.disk.is_full, proxy.disk.fails, proxy.disk.crash_in = False, [], None

    def finish(self):
        """Stop all, let one more settle what is left, and judge the whole."""
        for proxy in list(self.proxies.values()):
            proxy.disk.is_full, proxy.disk.fails, proxy.disk.crash_in = False, [], None
            proxy.ledger.stop()
            self.loop.kill(proxy.name)
        if self.backend == "sqlite":
            last = Proxy(self, "last")
            last.drive.play("begin")
            last.ledger.stop()
        self.committed()
        left = self.model.open_calls()
        if left:
            raise Fault(f"call {left[0].call} was never resolved")
        for call in self.sent:
            self.check_bill(call)
        if self.backend == "sqlite":
            self.check_books()

    def check_books(self):
        """The accounts are what the rows say: by the model's sums, and by Lockpin's own proof."""
        found = self.reader.execute(
            "SELECT budget, subject, window_start, spent_nano, held_nano, period_ms FROM accounts"
        )
        for budget, subject, start, spent, held, period in found.fetchall():
            if period is not None:
                continue
            day = None if start is None else start // (86_400 * 10**6)
            account = self.model.accounts.get((budget, subject, day))
            if account is not None and (account.spent[0], account.held[0]) != (spent, held):
                raise Fault(
                    f"account {budget} of {subject} is {spent}, {held}; its rows make {account.spent[0]}, {account.held[0]}"
                )
        verdict = verify(self.path)
        if verdict.wrong is not None:
            raise Fault(f"verify: {verdict.wrong}")

    def end(self):
        if self.reader is not None:
            self.reader.close()
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
        budget.window.period_ms * 1000,
    )  # fmt: skip

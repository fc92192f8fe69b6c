"""The processes of a play: Lockpin's engine on a ledger of its own, in played time and on a played disk."""

import asyncio
import os

from lockpin_core.engine_attempts import AttemptsEngine
from lockpin_core.ledger.memory import MemoryLedger
from lockpin_core.ledger.pauses import rule_of
from lockpin_core.ledger.place import open_ledger
from lockpin_core.ledger.protocol import Rules
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.ledger.writer import POLL_S
from lockpin_core.prices import PriceTable, shipped_dir
from tests.sim import traffic
from tests.sim.disk import Crash, Disk
from tests.sim.model import Fault

PRICES = PriceTable.load(shipped_dir(), traffic.PRICING, {})


IDLE_S = 0.1  # a look every 25 ms, as in truth, sees nothing new until somebody has committed


class Drive:
    """Lets a writer of a ledger take its steps in played time."""

    def __init__(self, world, owner, latency_s):
        self.world, self.owner, self.latency_s = world, owner, latency_s
        self.steps = self.timer = None
        self.is_over = self.polls = False

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
            self.world.processes.crashed(self.owner)
            return
        patience_s = self.steps.patience_s()
        self.polls = patience_s == POLL_S
        self.at(IDLE_S if self.polls else max(patience_s, 1e-6))

    def look(self):
        """Another process has committed, which this one sees when it looks next."""
        if self.polls and not self.is_over:
            self.at(POLL_S * self.world.dice.random())

    def join(self):
        if self.is_over:
            return
        self.is_over = True
        while not self.steps.is_stopping:
            self.steps.step(0)
        self.steps.finish()
        self.steps.abandon()


class Process:
    """One process."""

    def __init__(self, world, name):
        self.world, self.name = world, name
        self.disk = Disk(self.committed)
        self.disk.elsewhere = self.elsewhere
        self.drive = Drive(world, name, world.dice.choice((0.0005, 0.002, 0.01)))
        if world.backend == "memory":
            self.ledger = MemoryLedger(clock=world.wall, ticks=world.loop.time)
        else:
            self.ledger = SqliteLedger(
                world.path, clock=world.wall, new_id=world.new_id, durability="normal", deliver=self.deliver,
                soon=self.soon, ticks=world.loop.time, drive=self.drive,
                opening=lambda path, **more: self.disk.connection(open_ledger(path, **more)),
            )  # fmt: skip
        self.machine = world.dice.choice(("box", "box", "box", "den"))  # a name is all that it is
        self.open = {}  # calls under way here, by id: what their client waits for
        self.again_at, self.again_of = {}, {}  # which of their attempts runs; whose attempt it is
        self.configure(world.config)

    def elsewhere(self):
        """Another process writes before this one has the database."""
        world = self.world
        if len(world.proxies) < 2 or world.is_nested or world.dice.random() > 0.2:
            return
        others = [p for n, p in world.proxies.items() if p is not self and n not in world.loop._stopped]
        other = world.dice.choice(others) if others else None
        if other is None or other.drive.steps is None or other.drive.timer is None:
            return
        world.is_nested = True
        try:
            other.drive.timer.cancel()
            other.drive.play("step")
        finally:
            world.is_nested = False

    def committed(self):
        self.world.judge.committed()
        for other in self.world.proxies.values():
            if other is not self:
                other.drive.look()

    def configure(self, config):
        self.rules = Rules(config.all_budgets(), config.task_default(), rule_of(config.near_cap.breaker))
        self.engine = AttemptsEngine(config, PRICES, Watched(self), rules=self.rules, clock=self.world.wall)

    def define(self):
        """Put what is configured in force."""
        define = self.ledger.define if self.world.backend != "memory" else self.define_in_memory
        self.world.loop.run_as(self.name, define, self.rules, "the file")

    def define_in_memory(self, rules, origin):
        """Those who wait are tried in the same step, and judged by what stands then."""
        self.world.judge.defined_in_memory(self.world.rules())
        self.ledger.define(rules, origin)

    def soon(self, action):
        self.world.loop.run_as(self.name, action)
        return True

    def deliver(self, actions):
        """Answers of a commit: the judge hears them at once, those who wait on the loop's next turn."""
        try:
            for action in actions:
                operation, answer = action.args
                self.world.judge.heard(operation.call_id, answer[1] if isinstance(answer, tuple) else answer)
        except Fault as fault:
            self.world.fail(fault)
        self.world.loop.run_as_later(self.name, self.world.dice.choice((0, 0, 0.001, 0.01)), deliver, actions)


def deliver(actions):
    for action in actions:
        action()


class Watched:
    """A ledger whose holds are seen: what was asked, for the judge; all else passes."""

    def __init__(self, proxy):
        self._proxy, self._ledger, self._world = proxy, proxy.ledger, proxy.world

    def hold(self, call, rules, smaller=None, wait=None, *, out_of_turn=False):
        world = self._world
        world.judge.asked(call)
        holding = self._ledger.hold(call, rules, smaller, wait, out_of_turn=out_of_turn)
        if world.backend == "memory":
            holding.add_done_callback(lambda found: self._heard(call.id, found))
            world.judge.committed()
        return holding

    def replace(self, call_id, outcome, call, rules, *, keep):
        world = self._world
        world.judge.asked(call)
        if keep:
            world.judge.in_place_of[call.id] = call_id, outcome
        if world.backend != "memory":
            return self._ledger.replace(call_id, outcome, call, rules, keep=keep)
        world.judge.unheard = waiting = []  # who waited is answered in the same step, after this call
        replacing = self._ledger.replace(call_id, outcome, call, rules, keep=keep)
        world.judge.unheard = None
        world.judge.committed()
        for heard, found in [(call.id, replacing), *waiting]:
            self._judge(heard, found)
        return replacing

    def _heard(self, call_id, found):
        judge = self._world.judge
        if judge.unheard is not None:
            judge.unheard.append((call_id, found))
            return
        judge.committed()
        self._judge(call_id, found)

    def _judge(self, call_id, found):
        if not found.cancelled() and found.exception() is None:
            answer = found.result()
            try:
                self._world.judge.heard(call_id, answer[1] if isinstance(answer, tuple) else answer)
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
                self._world.judge.committed()

        return passed


class Processes:
    """Starts them, and takes away what is left of one that is gone."""

    def __init__(self, world):
        self.world = world

    def start(self):
        world = self.world
        world.names += 1
        name = f"proxy{world.names}"
        proxy = world.proxies[name] = Process(world, name)
        world.ledger_in_memory = proxy.ledger
        world.note("starts", name)
        world.trouble.hurts(name)
        proxy.define()
        if world.backend == "memory":
            world.loop.run_as(name, world.judge.committed)
            world.kept.append(world.loop.task_as(name, self.rounds(proxy)))
        return proxy

    async def rounds(self, proxy):
        """A ledger in memory has no thread that looks after it."""
        while True:
            await asyncio.sleep(1)
            proxy.ledger.look_after()
            self.world.judge.committed()

    def crashed(self, name):
        """A process is gone: nothing of it runs any more, its connection and its lock are the system's."""
        proxy = self.world.proxies.get(name)
        if proxy is None:
            return
        self.world.counts["crashes"] += 1
        self.world.note("crash", name)
        proxy.drive.is_over = True
        proxy.ledger._writer._connection.real.close()
        liveness = proxy.ledger._liveness
        if liveness._descriptor is not None:
            os.close(liveness._descriptor)
            liveness._descriptor = None
        self.take_away(proxy, "the proxy is gone")
        self.world.loop.run_as_later("", self.world.dice.choice((0.1, 3.0, 20.0)), self.start)

    def stop(self, name):
        """End one in order, and start another."""
        proxy = self.world.proxies[name]
        proxy.disk.heal()
        self.world.note("ends in order", name)
        proxy.ledger.stop()
        self.take_away(proxy, "the proxy ends")
        self.world.loop.run_as_later("", 1.0, self.start)

    def take_away(self, proxy, why):
        """End what runs in a process; its clients see a broken connection."""
        sent = self.world.agents.sent
        self.world.proxies.pop(proxy.name)
        self.world.loop.kill(proxy.name)
        self.world.kept.append(proxy)
        for call, answer in proxy.open.items():
            for attempt in {call, proxy.again_at.get(call, call)} & sent.keys():
                if sent[attempt].bill is None:
                    sent[attempt].bill = 0, 0  # what it costs is within what it was held at, and that is charged
            if not answer.done():
                answer.set_exception(ConnectionError(why))
                answer.exception()

"""The agents of a play, and what becomes of a call of theirs: in place of mitmproxy's hooks and of the provider."""

import asyncio
import contextlib
import json
from dataclasses import dataclass
from decimal import Decimal

from lockpin_core.admission import Incoming
from lockpin_core.call import Ending, Outcome, Payers, Reading
from lockpin_core.engine import Answered, Passed
from lockpin_core.prices import shipped_dir
from lockpin_core.providers import Providers
from tests.sim import traffic
from tests.sim.again import Again
from tests.sim.disk import Crash
from tests.sim.model import Fault

PROVIDERS = Providers.load(shipped_dir())
TASKS = ("a", "b", "c")
SLOWEST_S = 90  # a decision, beside what it may wait
LATCHED_US = 660 * 10**6  # what was refused for good is not let wait for so long, by the wall clock
FRAME = 600  # tokens around a prompt


@dataclass
class Sent:
    """A call that reached the provider, and what it costs there."""

    bill: tuple | None
    is_told: bool = False  # Lockpin has seen all that it costs


class Agents:
    """All of them."""

    def __init__(self, world):
        self.world, self.dice, self.loop = world, world.dice, world.loop
        self.sent, self.wants, self.again = {}, {}, Again(self)
        self.lost = set()  # calls whose settlement is missing
        self.refused_for_good = {}  # instants, by what makes calls the same

    async def agent(self, number):
        task = self.dice.choice(TASKS)
        while self.world.started < self.world.plan.calls:
            self.world.started += 1
            asked = traffic.ask(self.dice, small=self.world.small)
            if "change" in self.world.plan.faults and asked.model == "pen" and self.dice.random() < 0.02:
                self.world.trouble.make_room(task, traffic.limit_of(asked.body) * traffic.NANO_A_WORD)
            await self.call(task, asked)
            self.world.done += 1
            await asyncio.sleep(self.dice.choice((0, 0.01, 0.5, 3)) * self.dice.random())

    async def call(self, task, asked):
        alive = [proxy for proxy in self.world.proxies.values() if proxy.name not in self.loop._stopped]
        if not alive:
            await asyncio.sleep(0.5)
            return
        proxy = self.dice.choice(alive)
        self.world.names += 1
        name = f"c{self.world.names:05}"
        answer = proxy.open[name] = self.loop.create_future()
        work = self.loop.task_as(proxy.name, self.handle(proxy, name, task, asked))
        self.world.kept.append(work)
        if "leave" in self.world.plan.faults and self.dice.random() < 0.04:
            await asyncio.wait([answer], timeout=self.dice.choice((0.001, 0.01, 1, 5)) * self.dice.random())
            if not answer.done():
                self.world.counts["left"] += 1
                self.world.note("client leaves", name)
                self.loop.run_as(proxy.name, work.cancel)
        with contextlib.suppress(ConnectionError):
            await answer

    async def handle(self, proxy, name, task, asked):
        """What the proxy does with a call, in place of mitmproxy's hooks."""
        answer = proxy.open[name]
        try:
            await self.decide(proxy, name, task, asked)
        except Fault as fault:
            self.world.fail(fault)
        except asyncio.CancelledError:
            proxy.engine.cancel(name)
        except Crash:
            self.world.processes.crashed(proxy.name)
            return
        finally:
            proxy.open.pop(name, None)
            if not answer.done():
                answer.set_result(None)

    def incoming(self, name, proxy, task, asked, method="POST", path=None, body=None):
        provider = PROVIDERS.by_name(asked.provider)
        host = provider.base.removeprefix("https://")
        headers = {"authorization": "Bearer k", "x-api-key": "k"}
        return Incoming(
            name, provider, host, method, path or asked.path, headers, asked.body if body is None else body, False,
            Payers(task, proxy.machine), "play/1",
        )  # fmt: skip

    async def decide(self, proxy, name, task, asked):
        engine, self.wants[name] = proxy.engine, asked
        began_s = self.loop.time()
        decision = await engine.admit(self.incoming(name, proxy, task, asked))
        took_s = self.loop.time() - began_s
        if took_s > self.world.config.queue_wait_ms / 1000 + SLOWEST_S:
            raise Fault(f"FALSE REFUSAL: call {name} was decided after {took_s} s")
        if isinstance(decision, Answered):
            self.refused(proxy, name, task, asked, decision, took_s)
            return
        if isinstance(decision, Passed):
            raise Fault(f"call {name} passes without a hold: {decision.uncapped}")
        if decision.held.waited:
            self.world.counts["waited"] += 1
        sent_body = decision.body or asked.body
        script = traffic.script(self.dice, asked, sent_body, name)
        self.check_leaving(name, decision, proxy, task, asked, sent_body, script)
        await self.exchange(proxy, decision, script, asked, task)

    def check_leaving(self, name, admitted, proxy, task, asked, sent_body, script):
        """A call leaves with its hold on the books, for who asked for it, for all that it may cost, and for no more."""
        call, quote = admitted.held.call, admitted.held.call.quote
        if (call.payers, call.provider, call.model) != (Payers(task, proxy.machine), asked.provider, asked.model):
            raise Fault(f"OVERSHOOT: call {name} of {task}, {asked.model} is held for {call.payers}, {call.model}")
        if script.bill[0] > quote.most.nano or script.bill[1] > quote.tokens:
            raise Fault(
                f"OVERSHOOT: call {name} may cost {script.bill} and is held at {quote.most.nano}, {quote.tokens}"
            )
        if traffic.limit_of(sent_body) != (call.output_limit or traffic.limit_of(sent_body)):
            raise Fault(f"OVERSHOOT: call {name} leaves with another limit than it is held at")
        if not admitted.held.degraded and self.world.judge.model.calls.get(name) is None:
            raise Fault(f"OVERSHOOT: call {name} leaves, and its hold is not on the books")
        most = len(asked.body) + FRAME + traffic.limit_of(sent_body)
        if not asked.searches and quote.tokens > most:
            raise Fault(f"FALSE REFUSAL: call {name} is held at {quote.tokens} tokens, and can have {most} at most")

    def refused(self, proxy, name, task, asked, decision, took_s):
        told = json.loads(decision.reply.body, parse_float=Decimal)["lockpin"]
        if decision.code == "ledger_unavailable":
            self.world.counts["unavailable"] += 1
            if not self.world.trouble.is_away(proxy.name):
                raise Fault(f"FALSE REFUSAL: call {name} is refused for a ledger that nothing befell")
            return
        if decision.code == "task_closed" and self.world.trouble.was_closed(task):
            return
        if decision.code == "spend_rate_exceeded" and name in self.world.judge.heard_pausing:
            self.world.counts["paused"] += 1
            return
        if decision.code != "budget_exceeded":
            raise Fault(f"call {name} is refused: {decision.code}: {decision.reply.body.decode()[:300]}")
        self.world.counts["refused"] += 1
        self.world.note("refused", name, {key: told[key] for key in told if key != "receipt"})
        heard = self.world.judge.heard_last.get(name)
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
        self.world.counts["early"] += transient
        self.check_wait(proxy, name, task, asked, transient, took_s)

    def check_wait(self, proxy, name, task, asked, transient, took_s):
        """Only held money in the way is waited for, but where the same was refused for good a moment ago."""
        now_s, wait_s, wall_us = self.loop.time(), self.world.config.queue_wait_ms / 1000, self.world.wall_us()
        same = proxy.name, task, asked.provider, asked.model, asked.prompt_bytes  # whatever its limit is
        if not transient:
            self.refused_for_good.setdefault(same, []).append(wall_us)
            return
        is_latched = any(0 <= wall_us - at_us < LATCHED_US for at_us in self.refused_for_good.get(same, []))
        if took_s < wait_s and not is_latched and not self.world.trouble.time_jumped(now_s - took_s):
            raise Fault(f"FALSE REFUSAL: call {name} is refused after {took_s} s, and only held money is in its way")

    async def exchange(self, proxy, admitted, script, asked, task):
        """Send a call, and again where that fails and Lockpin sends it again; then settle."""
        tries, body = self.again.tries(asked), admitted.body or asked.body
        while True:
            admitted, reading, outcome, sent = await self.attempt(proxy, admitted, script, asked)
            if outcome.ending is Ending.CLIENT_LEFT:
                break
            following = await self.again.after(proxy, admitted, outcome, asked, task, tries)
            if following.is_ended:
                return
            if following.admitted is None:
                break
            name, failed = following.admitted.held.call.id, admitted.held.call.id
            if name == failed and sent.bill[0]:
                raise Fault(
                    f"OVERSHOOT: call {name} is billed {sent.bill[0]} nano, and its hold serves another attempt"
                )
            if following.asked is not asked:
                asked, body = following.asked, following.admitted.body or following.asked.body
            admitted = following.admitted
            script = traffic.script(self.dice, asked, body, f"{name}_{tries.number}")
            self.check_leaving(name, admitted, proxy, task, asked, body, script)
        self.settle(proxy, admitted, reading, outcome, script, asked, task)

    async def attempt(self, proxy, admitted, script, asked):
        """Send a call once; give how it is held by then, what of its reply was read, how it ended, and its bill."""
        engine, call = proxy.engine, admitted.held.call
        name, began = call.id, self.loop.time()
        sent = Sent(None if script.kind not in ("not_sent", "refused") else (0, 0))
        if script.kind != "not_sent":
            self.sent[name] = sent
            self.world.note("sent", name, "held", call.quote.most.nano, script.kind, "bill", script.bill[0])
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
        sent.is_told = script.kind in ("done", "not_sent", "refused") and ending is not Ending.CLIENT_LEFT
        if script.kind == "not_sent":
            self.sent[name] = sent
        return admitted, reading, outcome, sent

    def settle(self, proxy, admitted, reading, outcome, script, asked, task):
        """Tell what became of a call: once, twice, or not at all."""
        engine, name = proxy.engine, admitted.held.call.id
        if "late" in self.world.plan.faults and self.dice.random() < 0.01:
            self.world.note("settlement is missing", name)
            self.world.counts["lost"] += 1
            self.lost.add(name)
            self.sent[name].is_told = False
            return
        engine.settle(admitted, reading, outcome)
        if "late" in self.world.plan.faults and not asked.background and self.dice.random() < 0.02:
            self.world.note("settled twice", name)
            engine.settle(
                admitted, Reading(), Outcome(*self.dice.choice(((Ending.NOT_SENT, None), (Ending.DONE, 200))))
            )
        if script.upstream_id is not None and script.kind == "later" and outcome.ending is Ending.DONE:
            self.world.kept.append(self.loop.task_as("", self.poll_later(script, asked, task)))

    def final_bill(self, script, asked, relayed, ending):
        """A stream of Messages that broke off is billed as far as it came; all else in full."""
        is_broken = script.kind == "cut" or ending is Ending.CLIENT_LEFT
        if script.kind in ("failed", "dropped") and not relayed and ending is not Ending.CLIENT_LEFT:
            return traffic.bill_of(asked.model, asked.prompt_bytes // 4, 0)
        if script.kind in ("not_sent", "refused", "failed", "dropped"):
            return 0, 0
        if asked.provider == "anthropic" and asked.streamed and is_broken and not asked.searches:
            events = [json.loads(part.split(b"data: ", 1)[1]) for part in relayed.split(b"\n\n")[:-1]]
            if not events:
                return 0, 0
            started = events[0]["message"]["usage"]["input_tokens"]
            letters = sum(len(e["delta"]["text"]) for e in events if e["type"] == "content_block_delta")
            return traffic.bill_of(script.served, started, max(1, letters))
        return script.bill

    async def poll_later(self, script, asked, task):
        """Ask after a background reply, once or more, maybe too late."""
        for _ in range(self.dice.choice((1, 1, 2))):
            await asyncio.sleep(self.dice.choice((1, 30, 200, 400)) * self.dice.random())
            alive = [proxy for proxy in self.world.proxies.values() if proxy.name not in self.loop._stopped]
            if alive:
                proxy = self.dice.choice(alive)
                self.world.kept.append(self.loop.task_as(proxy.name, self.poll(proxy, script, asked, task)))

    async def poll(self, proxy, script, asked, task):
        self.world.names += 1
        path = f"/v1/responses/{script.upstream_id}"
        incoming = self.incoming(f"p{self.world.names:05}", proxy, task, asked, "GET", path, b"")
        decision = await proxy.engine.admit(incoming)
        if not isinstance(decision, Passed) or decision.polled is None:
            raise self.world.fail(Fault(f"a poll is answered {decision}"))
        scanner = decision.polled.wire.scanner(streamed=False)
        scanner.feed(script.poll)
        with contextlib.suppress(Exception):
            await proxy.engine.settle_polled(decision.polled, scanner.result())

"""The same over real sockets: a proxy, a provider on loopback, and time fifty times as fast. The provider's own log of
bills is the truth.
"""

import asyncio
import json
import random
import time
from dataclasses import dataclass, field
from decimal import Decimal

from lockpin_core.ledger.verify import verify
from tests.sim.fleet import LIMIT, OPUS, Conversation, reply, tokens_of

AGENTS = 20
FASTER = 50  # 20 seconds of a call are 0.4
WAIT_S = 30
MODEL = OPUS
CONFIG = """
upstreams: {{api.anthropic.com: "{origin}"}}
daily_usd: {budget}
queue: {{wait: {wait_ms}ms}}
"""


class Provider:
    """Answers Messages streams and counts prompts, and keeps what each call is billed, in nanodollars."""

    def __init__(self):
        self.bills, self.lowered, self.cut = [], 0, 0
        self.talks = {}  # by session: whose turn it is
        self.server = None

    async def start(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0, limit=1 << 20)
        return self.server.sockets[0].getsockname()[1]

    async def serve(self, reader, writer):
        try:
            while await self.exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def exchange(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = head.split("\r\n")
        path = lines[0].split(" ")[1]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        request = json.loads(await reader.readexactly(int(headers["content-length"])))
        if "count_tokens" in path:
            await asyncio.sleep(0.3 / FASTER)
            await send(writer, json.dumps({"input_tokens": tokens_of(request)}).encode())
        else:
            await self.answer(request, self.talks[headers["x-claude-code-session-id"]], writer)
        return True

    async def answer(self, request, talk, writer):
        limit, wants = request["max_tokens"], talk.dice.randint(LIMIT // 100, LIMIT * 3 // 100)
        output, usage = min(wants, limit), talk.usage()
        assert tokens_of(request) == talk.prompt
        self.lowered += limit < LIMIT
        self.cut += output < wants
        self.bills.append(talk.model.bill(usage, output))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for delay_s, piece in reply(talk.model, usage, output, limit, talk.dice):
            await asyncio.sleep(delay_s / FASTER)
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        talk.grow(output, was_cut=output < wants)


async def send(writer, body):
    writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    )
    await writer.drain()


@dataclass
class Fleet:
    """The agents, on one budget."""

    port: int
    provider: Provider
    budget: int  # nanodollars
    calls: int = 0
    waited: int = 0
    early: int = 0
    false: int = 0
    at_first: int | None = None
    at_final: int | None = None
    wrong: list[str] = field(default_factory=list)

    async def agent(self, number, seed):
        """Work until a call is refused for good; where it may fit later, ask again later."""
        talk = Conversation(MODEL, number, random.Random(seed * 1000 + number))
        talk.begin()
        await asyncio.sleep(20 * talk.dice.random() / FASTER)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        while True:
            self.provider.talks[talk.headers()["x-claude-code-session-id"]] = talk
            status, head, body = await ask(reader, writer, talk, self.port)
            assert status in (200, 402), (head, body)
            if status == 200:
                self.calls += 1
                self.waited += b"x-lockpin-waited-ms" in head
                await asyncio.sleep(talk.dice.uniform(0.5, 4) / FASTER)
            elif self.refused(talk, json.loads(body, parse_float=Decimal, parse_int=Decimal)["lockpin"]):
                writer.close()
                return
            else:
                await asyncio.sleep(5 / FASTER)

    def refused(self, talk, told):
        """Take a refusal; say whether it is final."""
        assert told["code"] == "budget_exceeded", told
        spent, held = (int(told[name] * 10**9) for name in ("spent_usd", "in_flight_usd"))
        lowest = LIMIT if talk.was_cut else 4096
        self.false += spent + held + talk.model.quote(talk.prompt, lowest) <= self.budget
        self.at_first = spent if self.at_first is None else self.at_first
        if told["transient"]:
            self.early += 1
            return False
        self.at_final = spent if self.at_final is None else self.at_final
        return True

    def compare(self, ledger):
        """Compare the books with what the provider billed; give what is wrong."""
        rows = ledger("SELECT usd, estimated, over_hold FROM rows WHERE kind = 'charge' ORDER BY usd")
        bills = sorted(self.provider.bills)
        found = [] if [row["usd"] for row in rows] == bills else [f"{len(rows)} charges are not the {len(bills)} bills"]
        found += ["a charge is an estimate"] if any(row["estimated"] for row in rows) else []
        found += ["a charge is above its hold"] if any(row["over_hold"] for row in rows) else []
        found += [f"the provider billed {sum(bills)}"] if sum(bills) > self.budget else []
        return found


async def ask(reader, writer, talk, port):
    """Make a call on an open connection; give status, head in lower case, and body."""
    body, headers = (
        talk.body(),
        {**talk.headers(), "host": f"127.0.0.1:{port}", "x-lockpin-task": "fleet", "content-type": "application/json"},
    )
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    writer.write(f"POST /anthropic/v1/messages HTTP/1.1\r\n{lines}content-length: {len(body)}\r\n\r\n".encode() + body)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status, at = int(head.split(b" ", 2)[1]), head.find(b"content-length:")
    if at >= 0:
        return status, head, await reader.readexactly(int(head[at + 15 :].split(b"\r\n", 1)[0]))
    found = b""
    while (size := int(await reader.readuntil(b"\r\n"), 16)) > 0:
        found += (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")
    return status, head, found


async def let_work(port, provider, budget, seed=1):
    """Let all agents work until each was refused for good."""
    fleet = Fleet(port, provider, budget)
    await asyncio.gather(*(fleet.agent(number, seed) for number in range(AGENTS)))
    return fleet


def use_up(start_proxy, budget_usd, seed=1):
    """Let the fleet use up one budget. `start_proxy`: a context of a proxy with a configuration.

    Gives the fleet and the seconds that it took.
    """

    async def run():
        provider = Provider()
        port = await provider.start()
        config = CONFIG.format(origin=f"http://127.0.0.1:{port}", budget=budget_usd, wait_ms=WAIT_S * 1000 // FASTER)
        opened = start_proxy(config)
        proxy = await asyncio.to_thread(opened.__enter__)
        try:
            began_s = time.monotonic()
            fleet = await let_work(proxy.port, provider, budget_usd * 10**9, seed)
            took_s = time.monotonic() - began_s
            while proxy.rows("SELECT 1 FROM open_holds"):
                await asyncio.sleep(0.05)
            fleet.wrong = fleet.compare(proxy.rows)
            verdict = await asyncio.to_thread(verify, proxy.ledger)
            fleet.wrong += [] if verdict.wrong is None else [f"verify: {verdict.wrong}"]
        finally:
            await asyncio.to_thread(opened.__exit__, None, None, None)
            provider.server.close()
        return fleet, took_s

    return asyncio.run(run())

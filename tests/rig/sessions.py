"""Sessions of real agents: `lockpin up` before a model that `turns.py` plays, and whether the books agree with its bills.

The ways of each agent are data here; how it is started is in `agents.py`.
"""

import contextlib
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import agents
import client
import gated
import processes
import pytest
import turns
from processes import until

HOSTS = ("api.anthropic.com", "api.openai.com", "chatgpt.com", "generativelanguage.googleapis.com")
# Dollars per million tokens; those of Claude and GPT from their vendors' price pages, as genai-prices 0.2.3 has them.
SHIPPED = {
    "claude-sonnet-5-5": {"input": "2", "output": "10", "cache_read": "0.1", "cache_write_5m": "2.5"},
    "claude-sonnet-4-5": {"input": "3", "output": "15", "cache_read": "0.3", "cache_write_5m": "3.75"},
    "claude-haiku-4-5": {"input": "1", "output": "5", "cache_read": "0.1", "cache_write_5m": "1.25"},
    "gpt-5.4": {"input": "2.5", "output": "15", "cache_read": "0.25"},
    "gpt-5.4-nano": {"input": "0.2", "output": "1.25", "cache_read": "0.02"},
    "gpt-4o": {"input": "2.5", "output": "10", "cache_read": "1.25"},
}
OWN = {  # Google's change at a date that is announced; these do not, and no two units can be mixed up
    "gemini-3.8-flash": {"input": "0.7", "output": "3.1", "cache_read": "0.07"},
    "gemini-3.5-flash-lite": {"input": "0.3", "output": "2.3", "cache_read": "0.03"},
}
# Output so dear that a few turns use up a budget, whatever the bounds of the input are.
DEAR = {
    model: {"input": "0.1", "output": "100", "cache_read": "0.01", "cache_write_5m": "0.1"} for model in SHIPPED | OWN
}
# Another call of it holds all the $20 of a task.
GATE = {"gate-model": {"input": "0", "output": "1000"}}
START = {"input": 1511, "cache_read": 307, "cache_write": 211, "output": 41}
STEP = {"input": 17, "cache_read": 1009, "cache_write": 0, "output": 13}
_BESIDE = re.compile(r"-lite\b|-haiku-|-nano$")  # models that an agent asks beside the one it was given


@dataclass(frozen=True)
class Ways:
    """An agent and what it does where others do something else."""

    agent: agents.Agent
    says: str = ""  # before our words, as a pattern
    status: int = 1  # that it ends with after a refusal
    times: int = 1  # that it prints an error: Codex does as it happens, and at its end
    beside: int = 0  # calls of a prompt that go to another model: what to ask, a title
    times_beside: int = 0  # that it prints an error of these
    at_once: bool = False  # whether these wait beside its own
    tries: int = 1  # of a call that was refused, at most: those that take some of our figures for a status
    session: str | None = None  # how its output tells the session, as a pattern with a group
    header: str | None = None  # or the header that names it


AGENTS = {
    "claude": Ways(agents.CLAUDE, '"API Error: 402 ', session=r'"session_id": ?"([^"]+)"'),
    "codex": Ways(agents.CODEX, "\nERROR: ", times=2, session=r"session id: (\S+)"),
    "gemini": Ways(agents.GEMINI, '"message":"', beside=1, times_beside=2),
    "opencode_anthropic": Ways(
        agents.OPENCODE_ANTHROPIC, "Error: \x1b\\[0m", beside=1, at_once=True, tries=6, header="x-session-id"
    ),
    "opencode_openai": Ways(
        agents.OPENCODE_OPENAI, "Error: \x1b\\[0m", beside=1, at_once=True, tries=6, header="x-session-id"
    ),
    "pi_anthropic": Ways(agents.PI_ANTHROPIC, '402 {"type":"error".*"message":"', tries=4),
    "pi_openai": Ways(agents.PI_OPENAI, "402 ", tries=4, header="session_id"),
    "aider_anthropic": Ways(agents.AIDER_ANTHROPIC, 'BadRequestError: .*"message":"', status=0),
    "aider_openai": Ways(agents.AIDER_OPENAI, "BadRequestError: OpenAIException - ", status=0),
}


@dataclass
class Rig:
    origin: processes.Origin
    proxy: processes.Proxy
    folder: Path

    def paid(self) -> list[dict]:
        """Give the calls of an agent that cost, as the origin saw them, oldest first."""
        calls = [entry for entry in self.origin.calls() if turns.is_paid(entry["method"], entry["path"])]
        return [entry for entry in calls if "x-origin" not in entry["headers"]]  # as a test's own calls have

    def turns(self) -> list[int]:
        """Number the turns that were sent; what an agent asks another model beside has none."""
        bodies = [(entry["path"], json.loads(entry["body"])) for entry in self.paid()]
        return [
            turns.turn_of(body) for path, body in bodies if not _BESIDE.search(path + name_of(body.get("model", "")))
        ]

    def bills(self) -> list[dict]:
        """Give what the origin bills for the calls that have ended."""
        lines = map(json.loads, (self.folder / "bills.jsonl").read_text().splitlines())
        return [line | {"model": name_of(line["model"])} for line in lines if line["ended"]]

    def charges(self) -> list:
        """Give all charges, once no hold is open."""
        until(lambda: not self.proxy.rows("SELECT 1 FROM open_holds"))
        return self.proxy.rows("SELECT * FROM rows WHERE kind = 'charge' ORDER BY id")

    def refusals(self, code: str = "budget_exceeded") -> list:
        """Give all refusals but those of the canary."""
        client.all_written(self.proxy)
        query = "SELECT * FROM rows WHERE kind = 'refusal' AND code = ? AND path != '/v1/nowhere' ORDER BY id"
        return self.proxy.rows(query, code)

    def refused(self) -> list:
        """Give the refusals of what an agent asked the model that it was given."""
        return [row for row in self.refusals() if not _BESIDE.search(row["model"])]


def name_of(model: str) -> str:
    """Give a model's name without the day of its version."""
    return re.sub(r"-\d{8}$", "", model)


@contextlib.contextmanager
def running(
    folder: Path, *, tool_turns: int, output: int = 41, rates: dict | None = None, more: str = "", tools: tuple = (),
    cut_off: bool = False, cached: int = STEP["cache_read"],
) -> Iterator[Rig]:  # fmt: skip
    """Start the model and `lockpin up`, under the limits that it has by itself; `cached` tokens more each turn."""
    script, bills = folder / "script.json", folder / "bills.jsonl"
    plan = {"tool_turns": tool_turns, "tools": dict(enumerate(tools)), "cut_off": cut_off}
    script.write_text(json.dumps(plan | {"start": START | {"output": output}, "step": STEP | {"cache_read": cached}}))
    home = processes.make_home(folder)
    ledger = home / ".local/share/lockpin/ledger.sqlite3"
    with processes.origin(folder, bills=bills, script=script, ledger=ledger) as origin:
        settings = config(origin.url, OWN if rates is None else rates, more)
        with processes.proxy(folder, settings, kind="up", home=home) as proxy:
            yield Rig(origin, proxy, folder)


def config(url: str, rates: dict, more: str) -> str:
    named = {"input": "input_per_mtok", "output": "output_per_mtok", "cache_read": "cache_read_per_mtok",
             "cache_write_5m": "cache_write_per_mtok"}  # fmt: skip
    pricing = {model: {named[unit]: float(rate) for unit, rate in units.items()} for model, units in rates.items()}
    for entry in pricing.values():
        entry["fees"] = {"web_search": 0.01}  # Codex always brings that tool
    # JSON is YAML.
    return f"upstreams: {json.dumps(dict.fromkeys(HOSTS, url))}\npricing: {json.dumps(pricing)}\n{more}\n"


def usage(bill: dict) -> dict[str, int]:
    """Bring a bill to the ledger's names."""
    named = {"input": "input", "cache_read": "cache_read", "cache_write": "cache_write_5m", "output": "output"}
    return {unit: bill[key] for key, unit in named.items() if bill[key]}


def nano(bill: dict, rates: dict) -> int:
    """Price a bill in nanodollars: a dollar per million tokens is a thousand of them a token."""
    return math.ceil(sum(count * Decimal(rates[bill["model"]][unit]) * 1000 for unit, count in usage(bill).items()))


def assert_books_agree(rig: Rig, rates: dict) -> None:
    """The ledger has what the origin has: each call, its tokens and its price."""
    charges, bills = rig.charges(), rig.bills()
    booked = [(row["model"], row["usd"], sorted(json.loads(row["usage"]).items())) for row in charges]
    # Calls that ran at once may end in either order.
    assert sorted(booked) == sorted((bill["model"], nano(bill, rates), sorted(usage(bill).items())) for bill in bills)
    assert not [row["id"] for row in charges if row["estimated"] or row["over_hold"] or row["failed"]]
    assert len(bills) == len(rig.paid())
    assert all(entry["open_holds"] for entry in rig.paid())  # on disk before it left


def lockpin(rig: Rig, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lockpin_cli.main", *arguments, "--config", str(rig.proxy.home / "lockpin.yaml")]
    environment = agents.bare(rig.proxy.home) | {"PYTHONPATH": str(processes.ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=True)


def play(
    rig: Rig, name: str, way: str, *env: str, more: tuple[str, ...] = (), patience_s: float = agents.RUN_S
) -> agents.Run:  # fmt: skip
    """Run an agent on one of the two ways to the proxy; `env` goes to `lockpin env`, `more` to the agent."""
    agent = AGENTS[name].agent
    if agents.installed(agent.program) is None:
        pytest.skip(f"{name} is not installed on this machine")
    address = agent.at(rig.proxy.url) if way == "base_url" else agents.Address(agents.environment(rig.proxy, *env))
    address = replace(address, arguments=(*address.arguments, *more))
    return agents.run(agent, rig.folder / name, address, "say hi", patience_s=patience_s)


@contextlib.contextmanager
def held(rig: Rig, task: str) -> Iterator[Path]:
    """Let a call that holds all the $20 of a task run, until the file is there whose path is given."""
    gate = rig.folder / f"gate of {task}"
    with ThreadPoolExecutor(1) as pool:
        (running_call,) = gated.hold_all(pool, rig.proxy, [task], gate, tokens=20_000)
        try:
            yield gate
        finally:
            gate.touch()
            assert running_call.result(30).status == 200

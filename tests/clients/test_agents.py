"""Real agents through a real proxy: what they are charged, and what they show when a budget ends inside their loop.

The origin plays the model: a tool in each turn, then an end. `scripts/test --clients` installs the agents.
"""

import contextlib
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import agents
import client
import gated
import processes
import pytest
import turns
from processes import until

pytestmark = pytest.mark.skipif(
    agents.installed("agents", "") is None, reason="the agents are not installed; `scripts/test --clients` does it"
)

HOSTS = ("api.anthropic.com", "api.openai.com", "chatgpt.com", "generativelanguage.googleapis.com")
AGENTS = {"claude": agents.CLAUDE, "codex": agents.CODEX, "gemini": agents.GEMINI}
# Dollars per million tokens; those of Claude and GPT from their vendors' price pages, as genai-prices 0.2.3 has them.
SHIPPED = {
    "claude-sonnet-5-5": {"input": "2", "output": "10", "cache_read": "0.1", "cache_write_5m": "2.5"},
    "gpt-5.4": {"input": "2.5", "output": "15", "cache_read": "0.25"},
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
GATED = OWN | {"gate-model": {"input": "0", "output": "1000"}}
HELD_S = 5
START = {"input": 1511, "cache_read": 307, "cache_write": 211, "output": 41}
STEP = {"input": 17, "cache_read": 1009, "cache_write": 0, "output": 13}


@dataclass
class Rig:
    origin: processes.Origin
    proxy: processes.Proxy
    folder: Path

    def paid(self) -> list[dict]:
        """Give the calls that cost, as the origin saw them, oldest first."""
        return [entry for entry in self.origin.calls() if turns.is_paid(entry["method"], entry["path"])]

    def turns(self) -> list[int]:
        """Number the turns that were sent; Gemini CLI's small model, which picks the large one, has none."""
        main = [entry for entry in self.paid() if "-lite:" not in entry["path"]]
        return [turns.turn_of(json.loads(entry["body"])) for entry in main]

    def bills(self) -> list[dict]:
        """Give what the origin bills for the calls that have ended."""
        lines = map(json.loads, (self.folder / "bills.jsonl").read_text().splitlines())
        return [line for line in lines if line["ended"]]

    def charges(self) -> list:
        """Give all charges, once no hold is open."""
        until(lambda: not self.proxy.rows("SELECT 1 FROM open_holds"))
        return self.proxy.rows("SELECT * FROM rows WHERE kind = 'charge' ORDER BY id")

    def refusals(self, code: str = "budget_exceeded") -> list:
        client.all_written(self.proxy)
        query = "SELECT * FROM rows WHERE kind = 'refusal' AND code = ? AND path != '/v1/nowhere' ORDER BY id"
        return self.proxy.rows(query, code)


@contextlib.contextmanager
def running(
    folder: Path, *, tool_turns: int, output: int = 41, rates: dict | None = None, more: str = "", tools: tuple = (),
    cut_off: bool = False,
) -> Iterator[Rig]:  # fmt: skip
    """Start the model and `lockpin up`, under the limits that it has by itself."""
    script, bills = folder / "script.json", folder / "bills.jsonl"
    plan = {"tool_turns": tool_turns, "tools": dict(enumerate(tools)), "cut_off": cut_off}
    script.write_text(json.dumps(plan | {"start": START | {"output": output}, "step": STEP}))
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
    assert [(row["model"], json.loads(row["usage"])) for row in charges] == [(b["model"], usage(b)) for b in bills]
    assert [row["usd"] for row in charges] == [nano(bill, rates) for bill in bills]
    assert not [row["id"] for row in charges if row["estimated"] or row["over_hold"] or row["failed"]]
    assert len(bills) == len(rig.paid())
    assert all(entry["open_holds"] for entry in rig.paid())  # on disk before it left


def lockpin(rig: Rig, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lockpin_cli.main", *arguments, "--config", str(rig.proxy.home / "lockpin.yaml")]
    environment = agents.bare(rig.proxy.home) | {"PYTHONPATH": str(processes.ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=True)


def play(rig: Rig, name: str, way: str, *env: str, more: tuple[str, ...] = ()) -> agents.Run:
    """Run an agent on one of the two ways to the proxy; `env` goes to `lockpin env`, `more` to the agent."""
    agent = AGENTS[name]
    variables, address = agent.at(rig.proxy.url) if way == "base_url" else (agents.environment(rig.proxy, *env), ())
    return agents.run(agent, rig.folder, variables, "say hi", *address, *more)


@pytest.mark.parametrize("way", ["connect", "base_url"])
@pytest.mark.parametrize("name", AGENTS)
def test_an_agents_turns_are_metered_to_the_token_under_the_limits_of_an_empty_configuration(tmp_path, name, way):
    with running(tmp_path, tool_turns=2) as rig:
        run = play(rig, name, way)

        assert (run.status, "finished after 2 tools" in run.output) == (0, True), run.output
        assert_books_agree(rig, SHIPPED | OWN)
        assert rig.turns() == [0, 1, 2]
        assert not rig.refusals()


@pytest.mark.parametrize(
    ("name", "session"),
    [("claude", r'"session_id": ?"([^"]+)"'), ("codex", r"session id: (\S+)"), ("gemini", None)],
    ids=AGENTS,
)
def test_the_session_that_an_agent_names_is_its_task(tmp_path, name, session):
    with running(tmp_path, tool_turns=1) as rig:
        run = play(rig, name, "connect")

        expected = "default" if session is None else re.search(session, run.output)[1]
        assert {row["task"] for row in rig.charges()} == {expected}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (
            "claude",
            r'"API Error: 402 lockpin: task \\"the loop\\" would exceed its \$20\.00(00)? budget: spent \$1\d\.',
        ),
        ("codex", r'\nERROR: lockpin: task "the loop" would exceed its \$20\.00(00)? budget: spent \$1\d\.'),
        ("gemini", r'"message":"lockpin: task \\"the loop\\" would exceed its \$20\.00(00)? budget: spent \$1\d\.'),
    ],
    ids=AGENTS,
)
def test_a_budget_that_ends_inside_the_loop_shows_our_words_and_nothing_more_is_sent(tmp_path, name, shown):
    with running(tmp_path, tool_turns=100, output=20_000, rates=DEAR) as rig:
        lockpin(rig, "task", "new", "the loop", "--budget", "20")

        run = play(rig, name, "connect", "--task", "the loop")

        assert run.status == 1
        assert re.search(shown, run.output), run.output
        assert_books_agree(rig, DEAR)
        # One try a turn, and one more that was refused: each turn costs $2 or what is left.
        turns_sent = rig.turns()
        assert turns_sent == list(range(len(turns_sent))) and len(turns_sent) >= 3
        (refusal,) = rig.refusals()
        assert refusal["count"] == 1
        holds = rig.proxy.rows("SELECT id FROM rows WHERE kind = 'hold'")
        assert refusal["id"] > max(row["id"] for row in holds)
        assert {row["task"] for row in [*rig.charges(), refusal]} == {"the loop"}
        assert sum(row["usd"] for row in rig.charges()) <= 20 * 10**9
        lockpin(rig, "verify")


@pytest.mark.parametrize("name", AGENTS)
def test_a_first_call_that_does_not_fit_costs_nothing_by_a_base_url(tmp_path, name):
    with running(tmp_path, tool_turns=1, more="task: {budget_usd: 0.01}") as rig:
        run = play(rig, name, "base_url")

        assert run.status == 1
        assert "lockpin: task " in run.output and "would exceed its $0.0100 budget" in run.output, run.output
        assert not rig.paid()
        assert not rig.charges()
        # Gemini CLI asks a small model first which one to take, and goes on without it.
        assert len(rig.refusals()) == (2 if name == "gemini" else 1)


@contextlib.contextmanager
def held(rig: Rig, task: str) -> Iterator[Path]:
    """Let a call that holds all the $20 of a task run, until the file is there whose path is given."""
    gate = rig.folder / "gate"
    with ThreadPoolExecutor(1) as pool:
        (running_call,) = gated.hold_all(pool, rig.proxy, [task], gate, tokens=20_000)
        try:
            yield gate
        finally:
            gate.touch()
            assert running_call.result(30).status == 200


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_waits_through_a_held_call_and_goes_on(tmp_path, name):
    with running(tmp_path, tool_turns=1, rates=GATED, more="daily_usd: 1000") as rig:
        lockpin(rig, "task", "new", "the loop", "--budget", "20")
        with held(rig, "the loop") as gate, ThreadPoolExecutor(1) as pool:
            playing = pool.submit(play, rig, name, "connect", "--task", "the loop")
            ready_us = gated.waiting(rig.proxy, 1) + HELD_S * 10**6
            until(lambda: time.time() * 10**6 > ready_us)
            assert rig.turns() == []
            gate.touch()
            run = playing.result()

        assert (run.status, "finished after 1 tools" in run.output) == (0, True), run.output
        assert rig.turns() == [0, 1]  # each once
        assert not rig.refusals()
        waited = [row["waited_ms"] for row in rig.proxy.rows("SELECT waited_ms FROM rows WHERE kind = 'hold'")]
        assert max(filter(None, waited)) >= HELD_S * 1000


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_that_waited_in_vain_shows_our_words_once_and_sends_nothing_more(tmp_path, name):
    more = f"daily_usd: 1000\nqueue: {{wait: {HELD_S}s}}"
    with running(tmp_path, tool_turns=1, rates=GATED, more=more) as rig:
        lockpin(rig, "task", "new", "the loop", "--budget", "20")
        with held(rig, "the loop"):
            run = play(rig, name, "connect", "--task", "the loop")

            assert run.status == 1
            assert "would exceed its $20.00 budget: spent $0.00, in flight $20.00" in run.output, run.output
            assert rig.turns() == []
        # Gemini CLI asks a small model first which one to take, and goes on without it.
        refusals = rig.refusals()
        assert len(refusals) == (2 if name == "gemini" else 1)
        assert all(row["count"] == 1 and row["waited_ms"] >= HELD_S * 1000 for row in refusals)


def test_claude_code_is_cut_off_once_near_the_cap_and_pays_for_nothing_more(tmp_path):
    """It sends everything again, three times, when an answer stops at its limit of 64,000 tokens: here $6.40."""
    rates = DEAR | {"gate-model": {"input": "0", "output": "1000"}}
    with running(tmp_path, tool_turns=1, output=64_000, rates=rates, more="daily_usd: 1000", cut_off=True) as rig:
        lockpin(rig, "task", "new", "the loop", "--budget", "20")
        body = {"model": "gate-model", "max_tokens": 17_000, "messages": [{"role": "user", "content": "hi"}]}
        answer = client.call(rig.proxy, gated.PATH, body, x_lockpin_task="the loop", x_origin="{}")
        assert answer.status == 200  # and it says nothing of its use: $17 are charged

        run = play(rig, "claude", "connect", "--task", "the loop")

        assert run.status == 1
        assert "would exceed its $20.00 budget: spent $" in run.output, run.output
        (paid,) = [json.loads(entry["body"]) for entry in rig.paid()]
        assert 25_000 < paid["max_tokens"] < 30_000  # what $3 leave
        (refusal,) = rig.refusals()
        assert refusal["count"] == 1
        lockpin(rig, "verify")


def test_codex_is_told_to_come_by_http_and_does_so_at_once(tmp_path):
    with running(tmp_path, tool_turns=0) as rig:
        run = play(rig, "codex", "connect")

        assert run.status == 0
        assert not rig.refusals("uncapped_call")  # the handshake is no call, and no report counts it
        (hold,) = rig.proxy.rows("SELECT * FROM rows WHERE kind = 'hold'")
        assert hold["wire"] == "openai_responses"
        assert run.took_s < 20  # it would try again for seconds before it falls back by itself
        assert not [entry for entry in rig.origin.calls() if "upgrade" in entry["headers"]]
        assert len(rig.paid()) == 1


def test_codex_tries_a_plain_402_again_and_never_gets_through(tmp_path):
    with running(tmp_path, tool_turns=1, more="task: {budget_usd: 0.01}\nrefusal: lockpin") as rig:
        run = play(rig, "codex", "connect")

        assert run.status == 1
        assert "would exceed its $0.0100 budget" in run.output
        assert not rig.paid()
        assert sum(row["count"] for row in rig.refusals()) > 1


def test_codex_shortens_its_conversation_and_goes_on(tmp_path):
    limit = ("-c", "model_auto_compact_token_limit=1500")  # below what a turn is said to use
    with running(tmp_path, tool_turns=2, more="daily_usd: 1000") as rig:
        run = play(rig, "codex", "connect", more=limit)

        assert (run.status, "finished after 2 tools" in run.output) == (0, True), run.output
        assert_books_agree(rig, SHIPPED)
        shortened = [turns.is_compaction(json.loads(entry["body"])) for entry in rig.paid()]
        assert shortened == [False, True, False, True, False]
        assert not rig.refusals()


@pytest.mark.parametrize(
    ("name", "tools", "model"),
    [
        (
            "claude",
            (["ToolSearch", {"query": "select:WebSearch"}], ["WebSearch", {"query": "a b"}]),
            "claude-sonnet-5-5",
        ),
        ("gemini", (["google_web_search", {"query": "a b"}],), "gemini-3-flash-preview"),
    ],
)
def test_a_search_is_a_call_of_its_own_and_an_agent_goes_on_where_it_is_refused(tmp_path, name, tools, model):
    """The provider searches in a window of a million tokens: not even one search can be held within $2."""
    with running(tmp_path, tool_turns=len(tools), tools=tools, more="task: {budget_usd: 2}") as rig:
        run = play(rig, name, "connect")

        assert (run.status, f"finished after {len(tools)} tools" in run.output) == (0, True), run.output
        assert_books_agree(rig, SHIPPED | OWN)
        refusals = rig.proxy.rows("SELECT model FROM rows WHERE kind = 'refusal'")
        assert [row["model"] for row in refusals] == [model]
        assert rig.turns() == list(range(len(tools) + 1))


def test_a_command_under_lockpin_run_is_charged_and_summed_up(tmp_path):
    with running(tmp_path, tool_turns=1) as rig:
        port = str(rig.proxy.port)
        environment = agents.bare(rig.proxy.home) | agents.CLAUDE.key | {"PYTHONPATH": str(processes.ROOT)}
        start = [sys.executable, "-m", "lockpin_cli.main", "run", "--task", "job", "--budget", "5", "--port", port]
        start += ["--config", str(rig.proxy.home / "lockpin.yaml"), "--"]

        run = agents.finish([*start, *agents.command_of(agents.CLAUDE), "say hi"], tmp_path, environment)

        assert (run.status, "finished after 1 tools" in run.output) == (0, True), run.output
        assert_books_agree(rig, SHIPPED)
        assert {row["task"] for row in rig.charges()} == {"job"}
        # 1511 and 1528 in, 307 and 1316 cached, 211 twice written, 41 and 54 out at $2, $0.1, $2.5 and $10 a million.
        assert sum(row["usd"] for row in rig.charges()) == (3039 * 2 + 422 * 2.5 + 95 * 10) * 1000 + 1623 * 100
        assert "2 calls" in run.output and "spent $0.0082453," in run.output, run.output

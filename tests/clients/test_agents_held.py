"""Real agents whose calls are held, in vain or not, and agents whose answers are cut off near the cap."""

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import agents
import client
import gated
import pytest
from processes import until
from sessions import AGENTS, DEAR, GATE, OWN, Rig, held, lockpin, play, running

pytestmark = pytest.mark.skipif(
    agents.installed("agents") is None, reason="the agents are not installed; `scripts/test --clients` does it"
)

HELD_S, LONG_S = 6, 30
PATIENCE_S = 240  # for all of them at once


@contextlib.contextmanager
def all_of_them(folder: Path, wait: str) -> Iterator[tuple[Rig, dict[str, Path]]]:
    """Give each agent a task of its own with $20, all of them held until a file is there: its path by their names."""
    names = [name for name, ways in AGENTS.items() if agents.installed(ways.agent.program) is not None]
    assert names
    more = f"daily_usd: 1000\nqueue: {{wait: {wait}}}"
    with running(folder, tool_turns=1, rates=OWN | GATE, more=more) as rig, contextlib.ExitStack() as stack:
        for name in names:
            lockpin(rig, "task", "new", name, "--budget", "20")
        yield rig, {name: stack.enter_context(held(rig, name)) for name in names}


def play_all(rig: Rig, names: Iterable[str], meanwhile: Callable[[str], None]) -> dict[str, agents.Run]:
    """Run agents side by side, each with something that goes on meanwhile."""

    def play_one(name: str) -> agents.Run:
        with ThreadPoolExecutor(1) as pool:
            playing = pool.submit(play, rig, name, "connect", "--task", name, patience_s=PATIENCE_S)
            meanwhile(name)
            return playing.result()

    with ThreadPoolExecutor(len(AGENTS)) as pool:
        return dict(zip(names, pool.map(play_one, names), strict=True))


def test_all_agents_wait_side_by_side_through_a_long_hold_and_go_on(tmp_path):
    """Gemini CLI would give up after a minute."""
    with all_of_them(tmp_path, "100s") as (rig, gates):

        def let_wait(name: str) -> None:
            calls = 1 + AGENTS[name].beside * AGENTS[name].at_once
            ready_us = gated.waiting(rig.proxy, calls, name) + LONG_S * 10**6
            until(lambda: time.time() * 10**6 > ready_us, 2 * LONG_S)
            gates[name].touch()

        runs = play_all(rig, gates, let_wait)

        for name, run in runs.items():
            assert (run.status, "finished after 1 tools" in run.output) == (0, True), f"{name}: {run.output}"
        assert sorted(rig.turns()) == sorted([0, 1] * len(gates))  # each once
        assert not rig.refusals()
        query = "SELECT task, max(waited_ms) AS most FROM rows WHERE kind = 'hold' AND waited_ms > 0 GROUP BY task"
        waited = {row["task"]: row["most"] for row in rig.proxy.rows(query)}
        assert waited.keys() == gates.keys()
        assert min(waited.values()) >= LONG_S * 1000


def test_all_agents_that_waited_in_vain_show_our_words_once_and_send_nothing_more(tmp_path):
    with all_of_them(tmp_path, f"{HELD_S}s") as (rig, gates):
        runs = play_all(rig, gates, lambda name: None)

        assert rig.paid() == []
        words = "would exceed its $20.00 budget: spent $0.00, in flight $20.00"
        for name, run in runs.items():
            ways = AGENTS[name]
            times = ways.times + ways.times_beside
            assert (run.status, run.output.count(words)) == (ways.status, times), f"{name}: {run.output}"
            refused = [row for row in rig.refused() if row["task"] == name]
            assert 1 <= len(refused) <= ways.tries
            assert min(row["waited_ms"] for row in refused) >= HELD_S * 1000  # another try may find room, and waits too
            assert len([row for row in rig.refusals() if row["task"] == name]) == len(refused) + ways.beside


def spend(rig: Rig, dollars: int) -> None:
    """Let a call of the task be charged so much: its reply says nothing of its use."""
    body = {"model": "gate-model", "max_tokens": 1000 * dollars, "messages": [{"role": "user", "content": "hi"}]}
    answer = client.call(rig.proxy, gated.PATH, body, x_lockpin_task="the loop", x_origin="{}")
    assert answer.status == 200


@pytest.mark.parametrize("name", ["claude", "aider_anthropic"])
def test_an_agent_is_cut_off_once_near_the_cap_and_pays_for_nothing_more(tmp_path, name):
    """Claude Code sends everything again, three times, and aider without end, when an answer stops at its limit.

    That is 64,000 tokens: here $6.40.
    """
    with running(
        tmp_path, tool_turns=1, output=64_000, rates=DEAR | GATE, more="daily_usd: 1000", cut_off=True
    ) as rig:  # fmt: skip
        lockpin(rig, "task", "new", "the loop", "--budget", "20")
        spend(rig, 17)

        run = play(rig, name, "connect", "--task", "the loop")

        assert run.status == AGENTS[name].status
        assert len(re.findall(r"would exceed its \$20\.0+ budget: spent \$", run.output)) == 1, run.output
        (paid,) = [json.loads(entry["body"]) for entry in rig.paid()]
        assert 25_000 < paid["max_tokens"] < 30_000  # what $3 leave
        (refusal,) = rig.refusals()
        assert refusal["count"] == 1
        lockpin(rig, "verify")


def test_aider_that_is_cut_off_without_end_ends_at_its_budget(tmp_path):
    with running(
        tmp_path, tool_turns=1, output=64_000, rates=DEAR | GATE, more="daily_usd: 1000", cut_off=True
    ) as rig:  # fmt: skip
        lockpin(rig, "task", "new", "the loop", "--budget", "20")

        run = play(rig, "aider_anthropic", "connect", "--task", "the loop")

        assert len(re.findall(r"would exceed its \$20\.0+ budget: spent \$", run.output)) == 1, run.output
        limits = [json.loads(entry["body"])["max_tokens"] for entry in rig.paid()]
        assert limits[:3] == [64_000] * 3  # $19.20 and the prompts
        assert len(limits) == 4 and 4096 <= limits[3] < 8000  # once
        (refusal,) = rig.refusals()
        assert refusal["count"] == 1
        lockpin(rig, "verify")

"""Real agents through a real proxy: what they are charged, and what they show when a budget ends inside their loop.

The origin plays the model: a tool in each turn, then an end. `scripts/test --clients` installs the agents.
"""

import json
import re
import sys

import agents
import processes
import pytest
import turns
from sessions import AGENTS, DEAR, OWN, SHIPPED, Rig, Ways, assert_books_agree, lockpin, play, running

pytestmark = pytest.mark.skipif(
    agents.installed("agents") is None, reason="the agents are not installed; `scripts/test --clients` does it"
)


def session_of(rig: Rig, ways: Ways, run: agents.Run) -> str:
    """Give the session that an agent names, as itself tells it; else the default task."""
    if ways.header is not None:
        (said,) = {entry["headers"][ways.header] for entry in rig.paid()}
        return said
    return "default" if ways.session is None else re.search(ways.session, run.output)[1]


@pytest.mark.parametrize("way", ["connect", "base_url"])
@pytest.mark.parametrize("name", AGENTS)
def test_an_agents_turns_are_metered_to_the_token_and_charged_to_its_session_without_a_configuration(
    tmp_path, name, way
):  # fmt: skip
    with running(tmp_path, tool_turns=2) as rig:
        run = play(rig, name, way)

        assert (run.status, "finished after 2 tools" in run.output) == (0, True), run.output
        assert_books_agree(rig, SHIPPED | OWN)
        assert rig.turns() == [0, 1, 2]
        assert not rig.refusals()
        assert {row["task"] for row in rig.charges()} == {session_of(rig, AGENTS[name], run)}


# Tokens of output a turn, budget, and more settings. Aider lets the model mend its edits three times at most: its turns
# are dearer, or its budget is smaller and never stretched by ever shorter answers.
ENDS = dict.fromkeys(AGENTS, (20_000, 20, "")) | {
    "aider_anthropic": (60_000, 15, ""),
    "aider_openai": (20_000, 4, "degrade: off"),
}


@pytest.mark.parametrize("name", AGENTS)
def test_a_budget_that_ends_inside_the_loop_shows_our_words_and_nothing_more_is_sent(tmp_path, name):
    output, budget, more = ENDS[name]
    # A prompt may not be said to be longer than it is: near the cap it is counted.
    with running(tmp_path, tool_turns=100, output=output, rates=DEAR, more=more, cached=100) as rig:
        lockpin(rig, "task", "new", "the loop", "--budget", str(budget))

        run = play(rig, name, "connect", "--task", "the loop")

        ways = AGENTS[name]
        assert run.status == ways.status
        words = rf'lockpin: task \\*"the loop\\*" would exceed its \${budget}\.0+ budget: spent \$\d+\.'
        assert re.search(ways.says + words, run.output), run.output
        assert run.output.count("would exceed its") == ways.times
        assert_books_agree(rig, DEAR)
        # One try a turn, and the one that was refused: each turn costs some dollars or what is left.
        turns_sent = rig.turns()
        assert turns_sent == list(range(len(turns_sent))) and len(turns_sent) >= 3
        refused = rig.refused()
        assert 1 <= sum(row["count"] for row in refused) <= ways.tries
        holds = rig.proxy.rows("SELECT id FROM rows WHERE kind = 'hold'")
        assert refused[0]["id"] > max(row["id"] for row in holds)
        assert {row["task"] for row in [*rig.charges(), *refused]} == {"the loop"}
        assert sum(row["usd"] for row in rig.charges()) <= budget * 10**9
        lockpin(rig, "verify")


@pytest.mark.parametrize("name", AGENTS)
def test_a_first_call_that_does_not_fit_costs_nothing_by_a_base_url(tmp_path, name):
    with running(tmp_path, tool_turns=1, more="task: {budget_usd: 0.01}") as rig:
        run = play(rig, name, "base_url")

        ways = AGENTS[name]
        assert run.status == ways.status
        assert "lockpin: task " in run.output and "would exceed its $0.0100 budget" in run.output, run.output
        assert not rig.paid()
        assert not rig.charges()
        # What they ask another model beside is refused too, and they go on without it.
        assert len(rig.refusals()) - len(rig.refused()) == ways.beside
        assert 1 <= len(rig.refused()) <= ways.tries


@pytest.mark.parametrize("name", ["opencode_anthropic", "opencode_openai"])
def test_opencode_that_takes_a_figure_for_a_status_tries_again_at_once_and_shows_our_words(tmp_path, name):
    """There is a 500 in $0.5000; by its own count of seconds its five tries would take a minute."""
    with running(tmp_path, tool_turns=1, rates=DEAR, more="task: {budget_usd: 0.5}\nfit: {floor: 30000}") as rig:
        run = play(rig, name, "connect")

        assert run.status == 1
        assert run.output.count("would exceed its $0.5000 budget") == 1, run.output
        assert len(rig.refused()) == AGENTS[name].tries
        assert not rig.paid()
        assert run.took_s < 40


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
        environment = agents.bare(rig.proxy.home) | agents.CLAUDE.variables | {"PYTHONPATH": str(processes.ROOT)}
        start = [sys.executable, "-m", "lockpin_cli.main", "run", "--task", "job", "--budget", "5", "--port", port]
        start += ["--config", str(rig.proxy.home / "lockpin.yaml"), "--"]

        run = agents.finish([*start, *agents.command_of(agents.CLAUDE), "say hi"], tmp_path, environment)

        assert (run.status, "finished after 1 tools" in run.output) == (0, True), run.output
        assert_books_agree(rig, SHIPPED)
        assert {row["task"] for row in rig.charges()} == {"job"}
        # 1511 and 1528 in, 307 and 1316 cached, 211 twice written, 41 and 54 out at $2, $0.1, $2.5 and $10 a million.
        assert sum(row["usd"] for row in rig.charges()) == (3039 * 2 + 422 * 2.5 + 95 * 10) * 1000 + 1623 * 100
        assert "2 calls" in run.output and "spent $0.0082453," in run.output, run.output

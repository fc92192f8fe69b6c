"""The breaker over real sockets: a task that is charged too fast pauses, through restarts and in every process.

A token of output costs a hundredth of a cent.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import client
import openai
import processes
import pytest
import sdks
from processes import until

from lockpin_core.ledger.verify import verify

PATH = "/openai/v1/chat/completions"
CONFIG = """
upstreams: {{api.openai.com: "{origin}"}}
ledger: sqlite://{ledger}
pricing:
  race-model: {{input_per_mtok: 0, output_per_mtok: 100, max_output_tokens: 9000, context_tokens: 100000}}
daily_usd: 100
breaker: {{usd: {usd}, window: 10m, cooldown: {cooldown}}}
"""


@pytest.fixture
def origin(tmp_path) -> Iterator[processes.Origin]:
    with processes.origin(tmp_path) as found:
        yield found


@contextlib.contextmanager
def running(folder: Path, origin: processes.Origin, kind="mitmdump", usd="0.05", cooldown="1h") -> Iterator:
    ledger = folder / "shared" / "ledger.sqlite3"
    config = CONFIG.format(origin=origin.url, ledger=ledger, usd=usd, cooldown=cooldown)
    with processes.proxy(folder, config, kind=kind) as found:
        found.ledger = ledger
        yield found


def ask(proxy: processes.Proxy, task: str, tokens: int = 100, **order: object) -> client.Answer:
    """Make a call that uses so many tokens of output."""
    usage = {"prompt_tokens": 10, "completion_tokens": tokens, "total_tokens": 10 + tokens}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ok"}}
    whole = {"id": "c", "object": "chat.completion", "model": "race-model", "choices": [choice], "usage": usage}
    body = {"model": "race-model", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1000}
    told = sdks.order(**{"body": json.dumps(whole), **order})
    return client.call(proxy, PATH, body, x_lockpin_task=task, x_origin=told["x-origin"])


def run(proxy: processes.Proxy, *words: str) -> str:
    """Run a command in a process of its own."""
    command = [sys.executable, "-m", "lockpin_cli.main", *words, "--config", str(proxy.home / "lockpin.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=processes.ROOT, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_paused(answer: client.Answer) -> None:
    assert (answer.status, answer.code) == (429, "spend_rate_exceeded")
    resets = datetime.fromisoformat(answer.headers["x-lockpin-breaker-resets"])
    left = resets - datetime.now(UTC)
    assert timedelta(0) < left <= timedelta(hours=1, seconds=1)
    assert 0 < int(answer.headers["retry-after"]) <= 3600
    assert answer.headers["x-should-retry"] == "false"
    assert answer.json["error"]["code"] == "spend_rate_exceeded"
    assert answer.json["lockpin"]["receipt"]["decision"] == "refused"


def test_a_burst_pauses_its_task_through_a_restart_until_it_is_reset(tmp_path, origin):
    with running(tmp_path, origin) as proxy:
        assert ask(proxy, "burst", 400).status == 200  # four cents
        assert ask(proxy, "burst", 200).status == 200  # six in all: more than five
        assert_paused(ask(proxy, "burst"))
        assert ask(proxy, "calm").status == 200
        assert client.call(proxy, "/openai/v1/models", method="GET", x_lockpin_task="burst").status == 200
        before = len(origin.calls())
        assert_paused(ask(proxy, "burst"))
        assert len(origin.calls()) == before

    with running(tmp_path, origin, kind="up") as proxy:
        until(lambda: 'paused   task "burst" until' in proxy.printed())
        assert "breaker  $0.05 in 10m by task, cooldown 1h\n" in proxy.printed()
        assert_paused(ask(proxy, "burst"))
        assert ask(proxy, "calm").status == 200
        assert run(proxy, "breaker", "status").splitlines()[2].startswith("task:burst")

        assert run(proxy, "breaker", "reset", "--task", "burst") == 'the calls of task "burst" go on\n'

        assert ask(proxy, "burst").status == 200
        client.all_written(proxy)
        rows = {row["key"]: row for row in json.loads(run(proxy, "report", "--by", "task", "--format", "json"))["rows"]}
        assert (rows["burst"]["calls"], rows["burst"]["refused"]) == (3, 3)
        (trip,) = proxy.rows("SELECT data FROM rows WHERE code = 'breaker_tripped'")
        assert json.loads(trip["data"])["charged_nano"] == 6 * 10**7
    assert verify(proxy.ledger).wrong is None


def test_a_pause_ends_by_itself(tmp_path, origin):
    with running(tmp_path, origin, cooldown="2s") as proxy:
        assert ask(proxy, "burst", 600).status == 200
        assert ask(proxy, "burst").status == 429

        until(lambda: ask(proxy, "burst").status == 200)


def test_proxies_on_one_ledger_add_up_together(tmp_path, origin):
    with running(tmp_path, origin) as one, running(tmp_path, origin, kind="up") as other:
        assert [ask(proxy, "burst", 300).status for proxy in (one, other)] == [200, 200]

        for proxy in (one, other):
            assert_paused(ask(proxy, "burst"))
            assert ask(proxy, "calm").status == 200


def test_what_is_set_by_command_wins_over_the_file_at_once(tmp_path, origin):
    with running(tmp_path, origin, usd="null") as proxy:
        assert ask(proxy, "burst", 900).status == 200
        assert ask(proxy, "burst", 900).status == 200

        run(proxy, "breaker", "set", "--usd", "0.01", "--window", "1h")

        assert ask(proxy, "burst").status == 200  # in flight when it is charged: it counts, and the next one pauses
        assert ask(proxy, "burst").status == 429
        run(proxy, "breaker", "clear")
        run(proxy, "breaker", "reset")
        assert ask(proxy, "burst", 900).status == 200
        assert ask(proxy, "burst").status == 200


def test_a_file_that_changes_puts_another_breaker_in_force(tmp_path, origin):
    with running(tmp_path, origin, usd="null") as proxy:
        assert ask(proxy, "burst", 900).status == 200
        settings = proxy.home / "lockpin.yaml"

        settings.write_text(settings.read_text().replace("{usd: null", "{usd: 0.01"))

        until(lambda: proxy.rows("SELECT 1 FROM rows WHERE code = 'breaker_defined'"))
        assert ask(proxy, "burst").status == 200
        assert ask(proxy, "burst").status == 429


def test_an_sdk_shows_it_and_asks_once(tmp_path, origin):
    with running(tmp_path, origin) as proxy:
        assert ask(proxy, "burst", 600).status == 200
        before = len(origin.calls())
        sdk = openai.OpenAI(
            api_key="sk-test", base_url=f"{proxy.url}/openai/v1", default_headers={"X-Lockpin-Task": "burst"}
        )

        with pytest.raises(openai.RateLimitError, match="the breaker lets") as caught:
            sdk.chat.completions.create(model="race-model", messages=[{"role": "user", "content": "hi"}])

        assert caught.value.code == "spend_rate_exceeded"
        client.all_written(proxy)
        assert len(proxy.rows("SELECT 1 FROM rows WHERE kind = 'refusal' AND task = 'burst'")) == 1
        assert len(origin.calls()) == before
        sdk.close()

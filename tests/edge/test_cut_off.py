"""Agents whose answers are cut off, near the cap: a limit is lowered once, and the next call of that conversation goes
whole or is refused. So a client that sends the whole conversation again each time, without end, ends.

A token of output costs a hundredth of a cent, and a prompt nothing: a dollar is 10,000 tokens.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import client
import cut_off
import processes
import pytest
import sdks
from processes import until

from lockpin_core.ledger.verify import verify

CONFIG = """
upstreams: {{api.openai.com: "{origin}", api.anthropic.com: "{origin}"}}
pricing:
  pen: {{input_per_mtok: 0, output_per_mtok: 100, max_output_tokens: 9000, context_tokens: 100000}}
daily_usd: null
task: {{budget_usd: 1}}
queue: {{wait: 0s}}
"""
WANTED = 4000  # tokens that every client asks for
HELD = 500  # tokens of a call that runs meanwhile
LIMIT, ENDLESS = "x-lockpin-output-limit", 40


@dataclass
class Rig:
    origin: processes.Origin
    proxy: processes.Proxy
    folder: Path
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4))
    gates: list[Path] = field(default_factory=list)

    def spend(self, task: str, tokens: int) -> None:
        assert self.plain(task, tokens).status == 200

    def plain(self, task: str, tokens: int, **order: object) -> client.Answer:
        body = {"model": "pen", "max_tokens": tokens, "messages": [{"role": "user", "content": "else"}]}
        told = {"x_origin": sdks.order(**order)["x-origin"]} if order else {}
        return client.call(self.proxy, "/openai/v1/chat/completions", body, x_lockpin_task=task, **told)

    def hold(self, task: str) -> tuple[Future, Path]:
        """Let a call of 500 tokens run, of which it will use one, until a file is there."""
        self.gates.append(self.folder / f"gate-{time.monotonic_ns()}")
        usage = '{"usage": {"prompt_tokens": 1, "completion_tokens": 1}, "model": "pen", "object": "chat.completion"}'
        running = self.pool.submit(self.plain, task, HELD, head_gate=str(self.gates[-1]), body=usage)
        query = "SELECT 1 FROM rows WHERE kind = 'hold' AND task = ? AND output_limit = ?"
        until(lambda: self.proxy.rows(query, task, HELD))
        return running, self.gates[-1]

    def ask(self, talk: cut_off.Talk, task: str, *, streamed: bool) -> client.Answer:
        told = {"x_lockpin_task": task, "x_origin": sdks.order(cut_off=True)["x-origin"], **talk.headers}
        return client.call(self.proxy, talk.path, talk.body("pen", WANTED, streamed=streamed), **told)

    def asked(self) -> list[int]:
        """Give the limits with which calls that are cut off have reached the origin."""
        calls = [entry for entry in self.origin.calls() if '"cut_off": true' in entry["headers"].get("x-origin", "")]
        return [cut_off.limit_of(entry["body"].encode()) for entry in calls]

    def close(self) -> None:
        for gate in self.gates:
            gate.touch()
        self.pool.shutdown()


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("cut_off")
    with contextlib.ExitStack() as stack:
        origin = stack.enter_context(processes.origin(folder))
        proxy = stack.enter_context(processes.proxy(folder, CONFIG.format(origin=origin.url), kind=request.param))
        found = Rig(origin, proxy, folder)
        stack.callback(found.close)
        yield found
        found.close()
        until(lambda: not proxy.rows("SELECT 1 FROM open_holds"))
        assert verify(proxy.ledger).wrong is None
        assert "Traceback" not in proxy.printed()


def persist(rig: Rig, talk: cut_off.Talk, task: str, *, streamed: bool) -> client.Answer:
    """Go on for as long as answers are cut off; give the first that is none."""
    for _ in range(ENDLESS):
        answer = rig.ask(talk, task, streamed=streamed)
        if answer.status != 200 or not cut_off.was_cut_off(answer.body):
            return answer
        talk.go_on()
    raise AssertionError("it goes on without end")


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", cut_off.CLIENTS)
def test_an_agent_whose_answer_was_cut_off_is_not_lowered_again(rig, name, streamed):
    """Of $1, 80 cents are spent and 5 held: of the 4,000 tokens it wants it gets 1,500. Later there are 499 more."""
    task, talk, before = f"{name} {streamed}", cut_off.CLIENTS[name](), len(rig.asked())
    rig.spend(task, 8000)
    running, gate = rig.hold(task)
    talk.begin("write a long text")

    refused = persist(rig, talk, task, streamed=streamed)

    assert rig.asked()[before:] == [1500]
    gate.touch()
    assert running.result(30).status == 200
    again = persist(rig, talk, task, streamed=streamed)
    assert rig.asked()[before:] == [1500]  # not 499 of them
    for answer in (refused, again):
        told = answer.json["lockpin"]
        assert (answer.status in (400, 402), told["code"], told["transient"]) == (True, "budget_exceeded", False)
    assert again.json["lockpin"]["fits"]["max_output_tokens"] == 499
    other = cut_off.CLIENTS[name]()
    other.headers.pop("x_claude_code_session_id", None)
    other.begin("write another text")
    assert rig.ask(other, task, streamed=streamed).headers[LIMIT] == "499"


@pytest.mark.parametrize("name", cut_off.CLIENTS)
def test_it_goes_whole_as_soon_as_that_fits(rig, name):
    task, talk, before = f"{name} raised", cut_off.CLIENTS[name](), len(rig.asked())
    rig.spend(task, 8500)
    talk.begin("write a long text")
    assert rig.ask(talk, task, streamed=True).headers[LIMIT] == "1500"
    talk.go_on()
    raise_by(rig, task, "1")

    answer = rig.ask(talk, task, streamed=True)

    assert (answer.status, LIMIT in answer.headers) == (200, False)
    assert rig.asked()[before:] == [1500, 4000]


def raise_by(rig: Rig, task: str, usd: str) -> None:
    command = [
        sys.executable,
        "-m",
        "lockpin_cli.main",
        "budget",
        "raise",
        "task",
        "--key",
        f"task:{task}",
        "--by",
        usd,
    ]
    command += ["--config", str(rig.proxy.home / "lockpin.yaml")]
    home = {"HOME": str(rig.proxy.home), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(processes.ROOT)}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=processes.ROOT, timeout=60, env=home, check=False
    )
    assert done.returncode == 0, done.stderr

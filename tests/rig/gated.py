"""Calls that hold all that a task may spend until a file is there: what its other calls then wait for."""

from collections.abc import Iterable
from concurrent.futures import Executor, Future
from pathlib import Path

import client
import sdks
from processes import Proxy, until

PATH = "/openai/v1/chat/completions"
# Goes behind `exchanges.CONFIG`: a thousand tokens of its output are the ten cents of every task.
CONFIG = """  gate-model: {{input_per_mtok: 0, output_per_mtok: 100, max_output_tokens: 1000, context_tokens: 100000}}
task: {{budget_usd: 0.1}}
queue: {{wait: {wait}}}
"""
# What such a call costs in the end is one token.
_REPLY = '{"object": "chat.completion", "model": "gate-model", "usage": {"prompt_tokens": 1, "completion_tokens": 1}}'


def hold_all(pool: Executor, proxy: Proxy, tasks: Iterable[str], gate: Path, tokens: int = 1000) -> list[Future]:
    """Let a call of so many tokens run for each task until the file is there; give their answers to come."""
    body = {"model": "gate-model", "max_tokens": tokens, "messages": [{"role": "user", "content": "hi"}]}
    order = sdks.order(head_gate=str(gate), body=_REPLY)["x-origin"]

    def hold(task: str) -> client.Answer:
        return client.call(proxy, PATH, body, patience_s=300, x_lockpin_task=task, x_origin=order)

    open_before = len(proxy.rows("SELECT 1 FROM open_holds"))
    calls = [pool.submit(hold, task) for task in tasks]
    until(lambda: len(proxy.rows("SELECT 1 FROM open_holds")) == open_before + len(calls))
    return calls


def waiting(proxy: Proxy, count: int, task: str | None = None) -> int:
    """Let so many calls wait, of a task or of all; give when the last of them began to, in microseconds since 1970."""
    query = "SELECT DISTINCT call, since FROM waiting WHERE ? IN (task, '')"
    found = until(lambda: len(rows := proxy.rows(query, task or "")) == count and rows, 120)
    return max(row["since"] for row in found)

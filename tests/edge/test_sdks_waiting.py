"""Python's SDKs, as they are by themselves, while a call of theirs is held in the waiting room: none gives up or asks
twice, each gets its answer when there is room, and each shows a refusal once where there never is.

For each of them another call holds all that its task may spend. They all wait side by side.
"""

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import client
import gated
import openai
import processes
import pytest
import sdks
from exchanges import CONFIG, EXCHANGES, Exchange
from google.genai import errors, types
from processes import until

OPENED = {"openai": sdks.openai_client, "anthropic": sdks.anthropic_client, "gemini": sdks.gemini_client}
RAISED = (openai.APIStatusError, anthropic.APIStatusError, errors.ClientError)
HELD_S = 5
CALLS = [(name, way) for name in EXCHANGES for way in sdks.WAYS]


@dataclass
class Rig:
    origin: processes.Origin
    proxy: processes.Proxy
    gate: Path
    clients: dict[tuple[str, str], Any]
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2 * len(CALLS)))

    def hold_all(self) -> list[Future]:
        """Let a call hold the ten cents of each task, until there is a file."""
        calls = gated.hold_all(self.pool, self.proxy, [task_of(*call) for call in CALLS], self.gate)
        until(lambda: paid(self) == len(CALLS))
        return calls

    def ask(self, name: str, way: str) -> str:
        """Make a call; give what the SDK made of the reply, as JSON."""
        exchange, call = EXCHANGES[name], self.clients[EXCHANGES[name].sdk, way]
        for part in exchange.call.split("."):
            call = getattr(call, part)
        result = call(**with_headers(exchange, sdks.order(**exchange.order) | {"x-lockpin-task": task_of(name, way)}))
        return "".join(one.model_dump_json() for one in ([result] if hasattr(result, "model_dump_json") else result))

    def asks(self) -> dict[tuple[str, str], Future]:
        """Make all calls, and let them wait."""
        return {call: self.pool.submit(self.ask, *call) for call in CALLS}


def task_of(name: str, way: str) -> str:
    return f"{name} by {way}"


def with_headers(exchange: Exchange, headers: dict[str, str]) -> dict:
    asked = exchange.asking("plain-model")
    if exchange.sdk != "gemini":
        return asked | {"extra_headers": headers}
    return asked | {
        "config": asked.get("config", {}) | {"http_options": types.HttpOptions(headers=headers, timeout=90_000)}
    }


@contextlib.contextmanager
def running(folder: Path, kind: str, wait: str) -> Iterator[Rig]:
    """Start an origin and a proxy, and open every SDK on its two ways, with the retries that it makes by itself."""
    with processes.origin(folder) as origin, contextlib.ExitStack() as opened:
        config = CONFIG.format(origin=origin.url) + gated.CONFIG.format(wait=wait)
        proxy = opened.enter_context(processes.proxy(folder, config, kind=kind))
        clients = {}
        for sdk, open_client in OPENED.items():
            for way in sdks.WAYS:
                one = opened.enter_context(open_client(proxy, way))
                clients[sdk, way] = one.with_options(max_retries=2, timeout=90) if sdk != "gemini" else one
        rig = Rig(origin, proxy, folder / "gate", clients)
        opened.callback(rig.pool.shutdown)
        opened.callback(rig.gate.touch)
        yield rig


@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_every_sdk_waits_through_a_held_call_and_gets_its_answer(kind, tmp_path):
    with running(tmp_path, kind, "60s") as rig:
        holders = rig.hold_all()
        asked = rig.asks()
        ready_us = gated.waiting(rig.proxy, len(CALLS)) + HELD_S * 10**6
        until(lambda: time.time() * 10**6 > ready_us)
        assert not [call for call, answer in asked.items() if answer.done()]

        rig.gate.touch()
        shown = {call: answer.result(60) for call, answer in asked.items()}

        for (name, _), text in shown.items():
            assert EXCHANGES[name].shown in text.replace('": ', '":').replace(", ", ",")
        assert {answer.result(30).status for answer in holders} == {200}
        assert paid(rig) == 2 * len(CALLS)
        rows = rig.proxy.rows("SELECT task, waited_ms FROM rows WHERE kind = 'hold' AND model = 'plain-model'")
        assert sorted(row["task"] for row in rows) == sorted(task_of(*call) for call in CALLS)
        assert all(row["waited_ms"] >= HELD_S * 1000 for row in rows)
        assert not rig.proxy.rows("SELECT 1 FROM rows WHERE kind = 'refusal'")


@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_every_sdk_shows_the_refusal_of_a_call_that_waited_in_vain_and_asks_once(kind, tmp_path):
    with running(tmp_path, kind, f"{HELD_S}s") as rig:
        rig.hold_all()

        asked = rig.asks()

        for (name, way), answer in asked.items():
            with pytest.raises(RAISED) as raised:
                answer.result(60)
            words = f'lockpin: task "{task_of(name, way)}" would exceed its $0.1000 budget: spent $0.0000, in flight $0.1000'
            assert str(raised.value).count(words) == 1
        client.all_written(rig.proxy)
        rows = rig.proxy.rows(
            "SELECT task, code, count, waited_ms FROM rows WHERE kind = 'refusal' AND code != 'uncapped_call'"
        )
        assert sorted(row["task"] for row in rows) == sorted(task_of(*call) for call in CALLS)
        assert {(row["code"], row["count"]) for row in rows} == {("budget_exceeded", 1)}
        assert all(row["waited_ms"] >= HELD_S * 1000 for row in rows)
        assert paid(rig) == len(CALLS)


def paid(rig: Rig) -> int:
    """Count the requests at the origin that cost."""
    return sum(
        "count" not in (path := entry["path"].lower()) and "input_tokens" not in path for entry in rig.origin.calls()
    )

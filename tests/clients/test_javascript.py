"""JavaScript's SDKs through a real proxy by a base URL (Node 20 knows no other way to one)."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import agents
import client
import gated
import processes
import pytest
from exchanges import CONFIG, EXCHANGES, REFUSED, Exchange
from processes import until

pytestmark = pytest.mark.skipif(
    agents.installed("sdks") is None, reason="the SDKs are not installed; `scripts/test --clients` does it"
)

ASK = Path(__file__).resolve().parent / "ask.cjs"
SPOKEN = {name: exchange for name, exchange in EXCHANGES.items() if exchange.sdk in ("openai", "anthropic")}
BASES = {"openai": "/openai/v1", "anthropic": "/anthropic"}

# Anthropic's puts the whole body into the message.
RAISED = {"openai": ("APIError", REFUSED), "anthropic": ("PaymentRequiredError", json.dumps(REFUSED)[1:-1])}


@dataclass
class Rig:
    origin: processes.Origin
    proxy: processes.Proxy


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("javascript")
    with (
        processes.origin(folder) as origin,
        processes.proxy(folder, CONFIG.format(origin=origin.url), kind=request.param) as proxy,
    ):
        yield Rig(origin, proxy)


def make(rig: Rig, exchange: Exchange, *, task: str, model: str = "plain-model") -> dict:
    headers = {"x-origin": json.dumps(exchange.order), "x-lockpin-task": task}
    told = {
        "sdk": exchange.sdk,
        "call": exchange.call,
        "arguments": exchange.asking(model),
        "url": rig.proxy.url + BASES[exchange.sdk],
        "headers": headers,
    }
    folder = agents.installed("sdks/node_modules/openai")
    done = subprocess.run(
        [shutil.which("node") or "node", ASK, folder.parent.parent, json.dumps(told)],
        env=agents.bare(rig.proxy.home), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", SPOKEN)
def test_a_call_is_charged_what_the_origins_usage_says(rig, name):
    exchange, task = SPOKEN[name], f"{name} in js"
    before = len(rig.origin.calls())

    found = make(rig, exchange, task=task)

    assert exchange.shown in found.get("shown", ""), found
    query = "SELECT * FROM rows WHERE task = ? AND kind NOT IN ('shrink', 'event') ORDER BY id"
    hold, charge = until(lambda: (rows := rig.proxy.rows(query, task)) and len(rows) > 1 and rows)
    assert (hold["kind"], charge["kind"], charge["estimated"], charge["over_hold"]) == ("hold", "charge", 0, 0)
    assert json.loads(charge["usage"]) == exchange.usage
    assert (charge["usd"], charge["tokens"]) == (exchange.nano, sum(exchange.usage.values()))
    assert len(rig.origin.calls()) == before + 1


@pytest.mark.parametrize("name", SPOKEN)
def test_a_refusal_shows_our_words_after_one_try(rig, name):
    exchange, task = SPOKEN[name], f"{name} refused in js"

    found = make(rig, exchange, task=task, model="dear-model")

    name, words = RAISED[exchange.sdk]
    assert (found["name"], found["status"], words in found["message"]) == (name, 402, True), found
    client.all_written(rig.proxy)
    rows = rig.proxy.rows("SELECT kind, code, count FROM rows WHERE task = ? AND kind != 'event'", task)
    assert [tuple(row) for row in rows] == [("refusal", "budget_exceeded", 1)]


HELD_S = 5


def held(folder: Path, wait: str, *, is_opened: bool) -> tuple[Rig, dict[str, dict]]:
    """Make every call, each while another one holds all that its task may spend; give what came of them.

    `is_opened`: the others end after five seconds.
    """
    gate = folder / "gate"
    with (
        processes.origin(folder) as origin,
        processes.proxy(folder, CONFIG.format(origin=origin.url) + gated.CONFIG.format(wait=wait), kind="up") as proxy,
        ThreadPoolExecutor(2 * len(SPOKEN)) as pool,
    ):
        rig = Rig(origin, proxy)
        try:
            gated.hold_all(pool, proxy, SPOKEN, gate)
            asked = {name: pool.submit(make, rig, exchange, task=name) for name, exchange in SPOKEN.items()}
            if is_opened:
                ready_us = gated.waiting(proxy, len(SPOKEN)) + HELD_S * 10**6
                until(lambda: time.time() * 10**6 > ready_us)
                gate.touch()
            found = {name: one.result() for name, one in asked.items()}
            client.all_written(proxy)
        finally:
            gate.touch()
        return rig, found


def test_every_sdk_waits_through_a_held_call_and_gets_its_answer(tmp_path):
    rig, found = held(tmp_path, "60s", is_opened=True)

    assert [name for name, exchange in SPOKEN.items() if exchange.shown not in found[name].get("shown", "")] == []
    rows = rig.proxy.rows("SELECT waited_ms FROM rows WHERE kind = 'hold' AND model = 'plain-model'")
    assert len(rows) == len(SPOKEN)
    assert all(row["waited_ms"] >= HELD_S * 1000 for row in rows)
    assert not rig.proxy.rows("SELECT 1 FROM rows WHERE kind = 'refusal' AND code = 'budget_exceeded'")


def test_every_sdk_shows_the_refusal_of_a_call_that_waited_in_vain_and_asks_once(tmp_path):
    rig, found = held(tmp_path, f"{HELD_S}s", is_opened=False)

    for name, one in found.items():
        words = json.dumps(f'task "{name}" would exceed its $0.1000 budget')[1:-1]
        assert (one["status"], one["message"].replace('\\"', '"').count(words.replace('\\"', '"'))) == (402, 1), one
    rows = rig.proxy.rows("SELECT task, count FROM rows WHERE kind = 'refusal' AND code = 'budget_exceeded'")
    assert sorted((row["task"], row["count"]) for row in rows) == [(name, 1) for name in sorted(SPOKEN)]
    assert not rig.proxy.rows("SELECT 1 FROM rows WHERE kind = 'hold' AND model = 'plain-model'")

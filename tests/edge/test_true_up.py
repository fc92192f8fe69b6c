"""A hold that becomes smaller while its call runs: the reply's first event states the prompt, and the rest is let go.

Prompt and output cost a hundredth of a cent a token each. The prompt of every call here is bounded by its bytes at
forty thousand tokens and more, which is four dollars; the provider then says that it was a hundred.
"""

import contextlib
import json
import signal
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import client
import processes
import pytest
import sdks
import streams
from processes import until

from lockpin_core.ledger.verify import verify

CONFIG = """
upstreams: {{api.anthropic.com: "{origin}", api.openai.com: "{origin}"}}
pricing:
  long-model: {{input_per_mtok: 100, output_per_mtok: 100, max_output_tokens: 9000, context_tokens: 100000}}
  small-model: {{input_per_mtok: 100, output_per_mtok: 100, max_output_tokens: 9000, context_tokens: 30000, fees: {{web_search: 0.01}}}}
  chat-model: {{input_per_mtok: 100, output_per_mtok: 100, max_output_tokens: 9000, context_tokens: 100000, tokenizer: o200k_base}}
  other-model: {{input_per_mtok: 1, output_per_mtok: 1, max_output_tokens: 9000, context_tokens: 100000}}
daily_usd: null
task: {{budget_usd: 8}}
queue: {{wait: {wait}}}
drain: 1s
"""
TOKEN_NANO = 100_000
MESSAGES, CHAT = "/anthropic/v1/messages", "/openai/v1/chat/completions"
TEXT = "long words " * 3000
SEARCH = [{"type": "web_search_20250305", "name": "web_search", "max_uses": 1}]
EXPECTED = 100 + 1000  # tokens that a call can still use once its prompt is stated, at a limit of 1,000


def start(prompt: int = 100) -> dict:
    usage = {"input_tokens": prompt, "output_tokens": 1, "inference_geo": "global", "service_tier": "standard"}
    return {"type": "message_start", "message": {"id": "m", "model": "long-model", "usage": usage}}


def end(output: int) -> tuple[dict, ...]:
    usage = {"output_tokens": output}
    delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}
    return delta, {"type": "message_stop"}


@dataclass
class Rig:
    origin: processes.Origin
    proxy: processes.Proxy
    folder: Path
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))
    gates: list[Path] = field(default_factory=list)

    def gate(self) -> Path:
        self.gates.append(self.folder / f"gate-{time.monotonic_ns()}")
        return self.gates[-1]

    def stream(self, task: str, events: tuple[dict, ...], path: str = MESSAGES, **more: object) -> tuple[Future, Path]:
        """Begin a stream that pauses after its first event until a file is there."""
        gate = self.gate()
        order = {"body": streams.sse(*events), "gate": str(gate), **streams.SSE}
        return self.pool.submit(ask, self, task, path, stream=True, order=order, **more), gate

    def rows(self, kind: str, task: str) -> list:
        return self.proxy.rows("SELECT * FROM rows WHERE kind = ? AND task = ? ORDER BY id", kind, task)

    def shrunk(self, task: str, count: int = 1) -> list:
        return until(lambda: len(found := self.rows("shrink", task)) == count and found)

    def close(self) -> None:
        for gate in self.gates:
            gate.touch()
        self.pool.shutdown()


def ask(rig: Rig, task: str, path: str = MESSAGES, order: dict | None = None, **more: object) -> client.Answer:
    body = {"model": "long-model", "max_tokens": 1000, "messages": [{"role": "user", "content": TEXT}], **more}
    told = {} if order is None else {"x_origin": sdks.order(**order)["x-origin"]}
    return client.call(rig.proxy, path, body, patience_s=60, x_lockpin_task=task, **told)


@contextlib.contextmanager
def running(folder: Path, kind: str, wait: str = "0s") -> Iterator[Rig]:
    with contextlib.ExitStack() as stack:
        origin = stack.enter_context(processes.origin(folder))
        proxy = stack.enter_context(processes.proxy(folder, CONFIG.format(origin=origin.url, wait=wait), kind=kind))
        rig = Rig(origin, proxy, folder)
        stack.callback(rig.close)
        yield rig


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory) -> Iterator[Rig]:
    with running(tmp_path_factory.mktemp("true_up"), request.param) as found:
        yield found
        until(lambda: not found.proxy.rows("SELECT 1 FROM open_holds"))
        assert verify(found.proxy.ledger).wrong is None
        assert "Traceback" not in found.proxy.printed()


def test_a_stream_that_states_its_prompt_lets_the_next_call_in_before_it_ends(rig):
    """Eight dollars hold one of them, until it has said how small it is."""
    first, gate = rig.stream("in", (start(), streams.text("abc"), *end(30)))
    (shrink,) = rig.shrunk("in")
    (hold,) = rig.rows("hold", "in")
    assert hold["usd"] > 4 * 10**9
    assert hold["usd"] - shrink["usd"] == EXPECTED * TOKEN_NANO
    assert hold["tokens"] - shrink["tokens"] == EXPECTED

    second = ask(rig, "in")

    assert second.status == 200
    assert not first.done()
    gate.touch()
    assert first.result(30).status == 200
    charges = until(lambda: len(found := rig.rows("charge", "in")) == 2 and found)
    (own,) = [charge for charge in charges if charge["call"] == hold["call"]]
    assert (own["usd"], own["estimated"], own["over_hold"]) == (130 * TOKEN_NANO, 0, 0)


def test_a_call_that_waits_goes_as_soon_as_another_has_stated_its_prompt(tmp_path):
    with running(tmp_path, "up", wait="60s") as rig:
        head, rest = rig.gate(), rig.gate()
        order = {"body": streams.sse(start(), *end(1)), "head_gate": str(head), "gate": str(rest), **streams.SSE}
        first = rig.pool.submit(ask, rig, "wait", order=order, stream=True)
        until(lambda: rig.rows("hold", "wait"))
        second = rig.pool.submit(ask, rig, "wait")
        until(lambda: rig.proxy.rows("SELECT 1 FROM waiting"))
        head.touch()

        answer = second.result(30)

        assert answer.status == 200
        assert int(answer.headers["x-lockpin-waited-ms"]) > 0
        assert not first.done()
        rest.touch()
        assert first.result(30).status == 200


GROWS = {
    "tools of the provider": (MESSAGES, {"tools": SEARCH, "model": "small-model"}),
    "fallbacks": (MESSAGES, {"fallbacks": [{"model": "other-model"}]}),
    "another format": (CHAT, {"stream_options": {"include_usage": True}}),
}


@pytest.mark.parametrize("why", GROWS)
def test_a_call_whose_prompt_may_grow_keeps_its_whole_hold(rig, why):
    """Whatever its first event says. It has passed before the next call is asked, and the ledger goes in order."""
    path, more = GROWS[why]
    first = start()
    if path == CHAT:
        first = streams.DELTA | {"type": "x", "usage": {"prompt_tokens": 100, "completion_tokens": 1}}
    task, order = why.replace(" ", "-"), {"body": streams.sse(first, *end(30)), "gate": str(gate := rig.gate())}
    body = {"model": "long-model", "max_tokens": 1000, "messages": [{"role": "user", "content": TEXT}], "stream": True}
    headers = {"content-type": "application/json", "x-lockpin-task": task, **sdks.order(**order, **streams.SSE)}
    request = urllib.request.Request(rig.proxy.url + path, json.dumps(body | more).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as reply:
        assert reply.readline()  # the first event is here

        answer = ask(rig, task, path, **more)

        assert answer.code == "budget_exceeded"
        assert answer.json["lockpin"]["transient"] is True
        assert not rig.rows("shrink", task)
        gate.touch()
        assert reply.read()


def test_a_region_that_is_stated_late_was_counted_from_the_first(rig):
    """The first event names none: so the hold keeps the dearest region's price, by which the end is charged then."""
    bare = start()
    del bare["message"]["usage"]["inference_geo"]
    bare["message"]["model"] = "claude-sonnet-5-5"  # $2 and $10 a million; a tenth more in the US
    delta, stop = end(1000)
    delta["usage"]["inference_geo"] = "us"
    call, gate = rig.stream("geo", (bare, delta, stop), model="claude-sonnet-5-5")
    (shrink,) = rig.shrunk("geo")
    (hold,) = rig.rows("hold", "geo")
    gate.touch()
    call.result(30)

    (charge,) = until(lambda: rig.rows("charge", "geo"))
    assert charge["usd"] == (100 * 2_000 + 1000 * 10_000) * 11 // 10
    assert charge["usd"] <= hold["usd"] - shrink["usd"]
    assert charge["over_hold"] == 0


def test_a_prompt_is_counted_again_once_its_call_has_left(rig):
    """Chat states no prompt first. "long words " is two tokens of o200k_base, and ten bytes of the bound."""
    usage = {"prompt_tokens": 6000, "completion_tokens": 30, "total_tokens": 6030}
    delta = streams.DELTA | {"type": "x"}
    last = delta | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}
    told = {"model": "chat-model", "stream_options": {"include_usage": True}}
    first, gate = rig.stream("chat", (delta, last), CHAT, **told)
    (hold,), (shrink,) = until(lambda: rig.rows("hold", "chat")), rig.shrunk("chat")

    # 33,000 bytes were held, and 500 for the frame, 10 for the message, 1,000 of output, the request's few other words
    assert 3.45 * 10**9 < hold["usd"] < 3.47 * 10**9
    assert 7_510 * TOKEN_NANO < hold["usd"] - shrink["usd"] < 7_560 * TOKEN_NANO
    assert ask(rig, "chat", CHAT, **told).status == 200
    gate.touch()
    assert first.result(30).status == 200
    charges = until(lambda: len(found := rig.rows("charge", "chat")) == 2 and found)
    (own,) = [charge for charge in charges if charge["call"] == hold["call"]]
    assert (own["usd"], own["estimated"], own["over_hold"]) == (6030 * TOKEN_NANO, 0, 0)


@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_a_call_that_is_broken_off_is_charged_no_more_than_was_still_held(kind, tmp_path):
    """Three calls of four dollars each run within eight: stopped, each is charged what it could still cost."""
    with running(tmp_path, kind) as rig:
        for number in range(3):
            rig.stream("stop", (start(), *end(1)))
            rig.shrunk("stop", number + 1)

        rig.proxy.stop(signal.SIGTERM)

        charges = rig.rows("charge", "stop")
        assert [(row["usd"], row["reason"]) for row in charges] == [(EXPECTED * TOKEN_NANO, "lockpin_stopped")] * 3
        assert not any(row["over_hold"] for row in charges)
        assert verify(rig.proxy.ledger).wrong is None


def test_a_proxy_that_is_killed_leaves_no_more_than_was_still_held(tmp_path):
    with running(tmp_path, "mitmdump") as rig:
        rig.stream("kill", (start(), *end(1)))
        rig.shrunk("kill")
        rig.proxy.process.kill()
        rig.proxy.process.wait()

        config = CONFIG.format(origin=rig.origin.url, wait="0s")
        with processes.proxy(tmp_path, config, kind="up", home=rig.proxy.home):
            (charge,) = until(lambda: rig.rows("charge", "kill"))

        assert (charge["usd"], charge["reason"]) == (EXPECTED * TOKEN_NANO, "lockpin_stopped")
        assert json.loads(charge["usage"] or "{}") == {}
        assert verify(rig.proxy.ledger).wrong is None

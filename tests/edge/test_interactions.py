"""Gemini's interactions through real proxies with the real SDK: whole, streamed, in the background, and refused.

Tokens cost $1 and $5 a million.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import client
import processes
import pytest
import sdks
from processes import until

from lockpin_core.ledger.verify import verify

CONFIG = """
upstreams: {{generativelanguage.googleapis.com: "{origin}"}}
ledger: sqlite://{ledger}
pricing:
  slow-model: {{input: 1, output: 5, max_output_tokens: 10000, context_tokens: 100000}}
daily_usd: null
task: {{budget_usd: 0.03}}
queue: {{wait: 0s}}
"""
USAGE = {
    "total_input_tokens": 100, "total_cached_tokens": 0, "total_output_tokens": 20, "total_thought_tokens": 10,
    "total_tool_use_tokens": 0, "total_tokens": 130,
}  # fmt: skip
COST_NANO = 100 * 1_000 + 30 * 5_000
PATH = "/gemini/v1beta/interactions"
ASK = {"model": "slow-model", "input": "Grüße", "generation_config": {"max_output_tokens": 700}}


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory) -> Iterator[tuple[processes.Origin, processes.Proxy]]:
    folder = tmp_path_factory.mktemp("interactions")
    ledger = folder / "shared" / "ledger.sqlite3"
    with contextlib.ExitStack() as stack:
        origin = stack.enter_context(processes.origin(folder))
        config = CONFIG.format(origin=origin.url, ledger=ledger)
        proxy = stack.enter_context(processes.proxy(folder, config, kind=request.param))
        proxy.ledger = Path(ledger)
        yield origin, proxy
        assert verify(ledger).wrong is None
        assert "Traceback" not in proxy.printed()


def interaction(name: str, status: str = "completed", usage: dict | None = USAGE) -> dict:
    step = {"type": "model_output", "content": [{"type": "text", "text": "Hi"}]}
    facts = {"id": name, "object": "interaction", "status": status, "model": "slow-model"}
    return facts | ({"usage": usage, "steps": [step]} if usage else {})


def settled(proxy: processes.Proxy, task: str, count: int = 2) -> list[tuple[str, int, str | None]]:
    query = "SELECT kind, usd, reason FROM rows WHERE task = ? AND kind != 'event' ORDER BY id"
    return until(lambda: len(rows := [tuple(row) for row in proxy.rows(query, task)]) == count and rows)


@pytest.mark.parametrize("way", sdks.WAYS)
def test_a_whole_interaction_is_charged_its_usage(rig, way):
    origin, proxy = rig
    order = sdks.order(body=json.dumps(interaction("int_1")))["x-origin"]
    with sdks.gemini_client(proxy, way, x_origin=order, x_lockpin_task=f"whole {way}") as sdk:
        made = sdk.interactions.create(**ASK)

    assert (made.id, made.output_text) == ("int_1", "Hi")
    assert json.loads(origin.calls()[-1]["body"]) == ASK
    (hold, charge) = settled(proxy, f"whole {way}")
    assert (hold[0], hold[1] >= 700 * 5_000, charge) == ("hold", True, ("charge", COST_NANO, None))


def test_a_stream_is_charged_its_usage_and_its_bytes_stay(rig):
    _, proxy = rig
    created = {"event_type": "interaction.created", "interaction": interaction("int_2", "in_progress", None)}
    delta = {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "Hi"}}
    done = {"event_type": "interaction.completed", "interaction": interaction("int_2")}
    body = "".join(f"event: {one['event_type']}\ndata: {json.dumps(one)}\n\n" for one in (created, delta, done))
    body += "event: done\ndata: [DONE]\n\n"
    order = sdks.order(body=body, type="text/event-stream", chunk=7)["x-origin"]

    with sdks.gemini_client(proxy, x_origin=order, x_lockpin_task="stream") as sdk:
        kinds = [event.event_type for event in sdk.interactions.create(**ASK, stream=True)]

    assert kinds == ["interaction.created", "step.delta", "interaction.completed"]
    assert settled(proxy, "stream")[1] == ("charge", COST_NANO, None)


def test_a_stream_that_is_cut_is_charged_its_hold(rig):
    _, proxy = rig
    created = {"event_type": "interaction.created", "interaction": interaction("int_3", "in_progress", None)}
    body = f"event: interaction.created\ndata: {json.dumps(created)}\n\n"
    order = sdks.order(body=body, type="text/event-stream")["x-origin"]

    client.call(proxy, PATH, ASK | {"stream": True}, x_origin=order, x_lockpin_task="cut")

    (_, hold, _), charge = settled(proxy, "cut")
    assert charge == ("charge", hold, "stream_cut")


@pytest.mark.parametrize("shows", ["get", "cancel"])
def test_one_in_the_background_is_held_until_it_shows_its_usage(rig, shows):
    _, proxy = rig
    task, name = f"later {shows}", f"int_{shows}"

    def sdk(answer: dict):
        order = sdks.order(body=json.dumps(answer))["x-origin"]
        return sdks.gemini_client(proxy, x_origin=order, x_lockpin_task=task)

    with sdk(interaction(name, "in_progress", None)) as one:
        assert one.interactions.create(**ASK, background=True).status == "in_progress"
        assert one.interactions.get(name).status == "in_progress"
    (hold,) = settled(proxy, task, 1)

    with sdk(interaction(name)) as one:
        found = one.interactions.get(name) if shows == "get" else one.interactions.cancel(name)

    assert found.usage.total_output_tokens == 20
    assert settled(proxy, task) == [hold, ("charge", COST_NANO, None)]


def test_a_conversation_that_the_provider_keeps_is_held_by_what_is_known_of_it(rig):
    """Its first turn was 130 tokens; the usage of the second may lack them, so they are added."""
    _, proxy = rig
    for name, back, more in (("int_5", None, 0), ("int_6", "int_5", 130)):
        order = sdks.order(body=json.dumps(interaction(name)))["x-origin"]
        with sdks.gemini_client(proxy, x_origin=order, x_lockpin_task=name) as sdk:
            sdk.interactions.create(**ASK, **({"previous_interaction_id": back} if back else {}))
        (hold, charge) = settled(proxy, name)
        assert 700 * 5_000 < hold[1] < 700 * 5_000 + 2000 * 1_000
        assert charge == ("charge", COST_NANO + more * 1_000, "hidden_input" if more else None)

    answer = client.call(proxy, PATH, ASK | {"previous_interaction_id": "int_elsewhere"}, x_lockpin_task="unseen")

    assert (answer.code, answer.json["lockpin"]["needed_usd"]) == ("budget_exceeded", 0.1035)  # the window, and 700


def test_an_error_costs_nothing(rig):
    _, proxy = rig
    body = json.dumps({"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}})
    answer = client.call(
        proxy, PATH, ASK, x_origin=sdks.order(status=400, body=body)["x-origin"], x_lockpin_task="wrong"
    )

    assert (answer.status, settled(proxy, "wrong")[1][0]) == (400, "void")


def test_one_without_a_limit_gets_one_and_near_the_cap_a_lower_one(rig):
    origin, proxy = rig
    bare = {"model": "slow-model", "input": "hi"}
    order = sdks.order(body=json.dumps(interaction("int_4")))["x-origin"]

    answer = client.call(proxy, PATH, bare, x_origin=order, x_lockpin_task="bare")

    sent = json.loads(origin.calls()[-1]["body"])
    limit = sent.pop("generation_config")["max_output_tokens"]
    assert (sent, answer.headers["x-lockpin-output-limit"]) == (bare, str(limit))
    assert 4096 < limit < 6000  # what three cents pay for


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"continuation_token": "t"}, "continuation_token"),
        ({"tools": [{"type": "google_search"}]}, "google_search"),
        ({"agent": "deep-research-preview-04-2026"}, "agent"),
        ({"brand_new": {"a": 1}}, "brand_new"),
    ],
)
def test_what_cannot_be_bounded_is_refused_by_name(rig, more, word):
    origin, proxy = rig
    before = len(origin.calls())

    answer = client.call(proxy, PATH, ASK | more)

    assert (answer.status, answer.code) == (400, "unpriced_tool")
    assert word in answer.json["error"]["message"]
    assert len(origin.calls()) == before


def test_what_does_not_fit_is_refused_in_googles_shape(rig):
    _, proxy = rig

    answer = client.call(proxy, PATH, ASK | {"generation_config": {"max_output_tokens": 7000}})

    assert (answer.status, answer.code) == (402, "budget_exceeded")
    assert answer.json["error"]["status"] == "FAILED_PRECONDITION"

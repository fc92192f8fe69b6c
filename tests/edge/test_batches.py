"""Message batches through real proxies with the real SDK: held when they are sent, settled when their results are read.

Tokens cost $1 and $5 a million, half of that in a batch.
"""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import anthropic
import client
import processes
import pytest
import sdks
from processes import until

from lockpin_core.ledger.verify import verify

CONFIG = """
upstreams: {{api.anthropic.com: "{origin}"}}
ledger: sqlite://{ledger}
pricing:
  slow-model: {{input: 1, output: 5, max_output_tokens: 10000, context_tokens: 100000, tiers: {{batch: {{x: "0.5"}}}}}}
  dear-model:
    input: 10
    output: 50
    max_output_tokens: 10000
    context_tokens: 100000
    tiers: {{batch: {{x: "0.5"}}}}
    above: [{{tokens: "999", input: 30, output: 70}}]
daily_usd: null
task: {{budget_usd: 0.02}}
queue: {{wait: 0s}}
hold_for: {{batch: {hold_for}}}
"""
COST_NANO = (2 * 100 * 1_000 + 2 * 30 * 5_000) // 2
_IDS = itertools.count()


@dataclass
class Rig:
    origin: processes.Origin
    proxy: processes.Proxy
    ledger: Path
    stack: contextlib.ExitStack
    folder: Path
    config: str

    def again(self, kind: str) -> None:
        """Start another proxy on the same ledger, and go on with that."""
        self.proxy = self.stack.enter_context(processes.proxy(self.folder, self.config, kind=kind))
        self.proxy.ledger = self.ledger

    def rows(self, name: str) -> list[tuple[str, int, str | None]]:
        query = (
            "SELECT r.kind, r.usd, r.reason FROM rows r JOIN upstream_ids u ON u.call = r.call "
            "WHERE u.id = ? AND r.kind != 'event' ORDER BY r.id"
        )
        return [tuple(row) for row in self.proxy.rows(query, name)]

    def settled(self, name: str, count: int = 2) -> list[tuple[str, int, str | None]]:
        return until(lambda: len(found := self.rows(name)) == count and found)


@contextlib.contextmanager
def running(folder: Path, kind: str, hold_for: str = "48h") -> Iterator[Rig]:
    ledger = folder / "shared" / "ledger.sqlite3"
    with contextlib.ExitStack() as stack:
        origin = stack.enter_context(processes.origin(folder))
        config = CONFIG.format(origin=origin.url, ledger=ledger, hold_for=hold_for)
        proxy = stack.enter_context(processes.proxy(folder, config, kind=kind))
        proxy.ledger = ledger
        rig = Rig(origin, proxy, ledger, stack, folder, config)
        yield rig
        assert verify(ledger).wrong is None
        assert "Traceback" not in rig.proxy.printed()


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory) -> Iterator[Rig]:
    with running(tmp_path_factory.mktemp("batches"), request.param) as found:
        yield found


def new_id() -> str:
    return f"msgbatch_{next(_IDS)}"


def batch(name: str, status: str = "in_progress") -> dict:
    counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    day = "2026-11-29T12:00:00Z"
    return {
        "id": name, "type": "message_batch", "processing_status": status, "request_counts": counts,
        "created_at": day, "expires_at": day, "ended_at": None, "cancel_initiated_at": None, "archived_at": None,
        "results_url": f"https://api.anthropic.com/v1/messages/batches/{name}/results" if status == "ended" else None,
    }  # fmt: skip


def asked(name: str, limit: int = 500, model: str = "slow-model") -> dict:
    return {
        "custom_id": name,
        "params": {"model": model, "max_tokens": limit, "messages": [{"role": "user", "content": "Grüße"}]},
    }


def result(name: str, text: str = "x", model: str = "slow-model", prompt: int = 100) -> dict:
    usage = {"input_tokens": prompt, "output_tokens": 30, "service_tier": "batch"}
    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": model, "stop_reason": "end_turn",
        "stop_sequence": None, "content": [{"type": "text", "text": text}], "usage": usage,
    }  # fmt: skip
    return {"custom_id": name, "result": {"type": "succeeded", "message": message}}


def lines(*results: dict) -> str:
    return "".join(json.dumps(one) + "\n" for one in results)


WHOLE = lines(result("b"), {"custom_id": "c", "result": {"type": "expired"}}, result("a"))


def create(rig: Rig, name: str, way: str = "base_url", *requests: dict) -> object:
    order = sdks.order(body=json.dumps(batch(name)))["x-origin"]
    with sdks.anthropic_client(rig.proxy, way, x_origin=order, x_lockpin_task=name) as sdk:
        return sdk.messages.batches.create(requests=list(requests) or [asked("a"), asked("b"), asked("c")])


def read(rig: Rig, name: str, way: str = "base_url", **order: object) -> list:
    """Read results as the SDK does: it asks for the batch, and goes where that says."""
    told = batch(name, "ended")
    if way == "base_url":  # the provider names its own host, which this way does not lead to
        told["results_url"] = told["results_url"].replace("https://api.anthropic.com", f"{rig.proxy.url}/anthropic")
    shown = sdks.order(body=json.dumps(told))["x-origin"]
    body = {} if "file" in order else {"body": WHOLE}
    listed = sdks.order(**body | {"type": "application/x-jsonl", "chunk": 50} | order)
    with sdks.anthropic_client(rig.proxy, way, x_origin=shown) as sdk:
        return list(sdk.messages.batches.results(name, extra_headers=listed))


def held(rig: Rig, name: str) -> int:
    ((kind, usd, _),) = rig.rows(name)
    assert kind == "hold"
    return usd


def told(rig: Rig, *arguments: str) -> str:
    """Run a command on the rig's ledger."""
    command = [sys.executable, "-m", "lockpin_cli.main", *arguments, "--config", str(rig.proxy.home / "lockpin.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"HOME": str(rig.proxy.home)})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("way", sdks.WAYS)
def test_a_batch_is_held_until_its_results_are_read(rig, way):
    name = new_id()
    assert create(rig, name, way).id == name
    most = held(rig, name)
    assert most > 3 * 500 * 2_500
    sent = next(call for call in reversed(rig.origin.calls()) if call["path"] == "/v1/messages/batches")
    assert json.loads(sent["body"])["requests"] == [asked("a"), asked("b"), asked("c")]
    order = sdks.order(body=json.dumps(batch(name, "ended")))["x-origin"]
    with sdks.anthropic_client(rig.proxy, way, x_origin=order) as sdk:
        assert sdk.messages.batches.retrieve(name).processing_status == "ended"
        assert sdk.messages.batches.cancel(name).id == name
    assert held(rig, name) == most

    found = read(rig, name, way)

    assert [(one.custom_id, one.result.type) for one in found] == [
        ("b", "succeeded"), ("c", "expired"), ("a", "succeeded"),
    ]  # fmt: skip
    assert rig.settled(name) == [("hold", most, None), ("charge", COST_NANO, None)]
    read(rig, name, way)
    client.all_written(rig.proxy)
    assert len(rig.rows(name)) == 2


def test_results_in_part_settle_nothing(rig):
    name = new_id()
    create(rig, name)
    most = held(rig, name)

    read(rig, name, body=lines(result("a"), result("b")))
    with pytest.raises((ValueError, anthropic.AnthropicError)):
        read(rig, name, body=WHOLE[:-20])
    with pytest.raises(Exception):  # noqa: B017 - whatever the SDK's transport calls it
        read(rig, name, cut_after=len(WHOLE) - 30)
    client.all_written(rig.proxy)

    assert held(rig, name) == most
    read(rig, name)
    assert rig.settled(name)[1] == ("charge", COST_NANO, None)


def test_results_longer_than_any_reply_that_is_kept_are_read_as_they_pass(rig, tmp_path):
    name, text, listed = new_id(), "x" * 900_000, tmp_path / "results.jsonl"
    names = [f"r{number}" for number in range(25)]
    create(rig, name, "base_url", *map(asked, names, [1] * len(names)))
    listed.write_text(lines(*(result(each, text) for each in names)))
    assert listed.stat().st_size > 20 << 20

    found = read(rig, name, file=str(listed), chunk=100_000)

    assert {one.custom_id for one in found} == {*names}
    assert rig.settled(name)[1] == ("charge", 25 * COST_NANO // 2, None)


def test_what_does_not_fit_is_refused_and_a_single_request_of_it_still_goes(rig):
    """Four requests of 2,000 tokens are $0.02 and a little; the budget has two cents."""
    with pytest.raises(anthropic.APIStatusError) as refused:
        create(rig, new_id(), "base_url", *(asked(str(i), 2000) for i in range(4)))

    assert refused.value.status_code == 402
    assert refused.value.body["lockpin"]["code"] == "budget_exceeded"
    assert refused.value.body["error"]["type"] == "budget_exceeded"
    name = new_id()
    create(rig, name, "base_url", asked("0", 2000))
    assert held(rig, name)


def test_what_cannot_be_bounded_is_refused_by_name(rig):
    before = len(rig.origin.calls())
    search = {"type": "web_search_20250305", "name": "web_search"}
    told = asked("a")

    with pytest.raises(anthropic.BadRequestError, match="max_uses"):
        create(rig, new_id(), "base_url", told | {"params": told["params"] | {"tools": [search]}})

    assert len(rig.origin.calls()) == before


def test_its_receipt_and_its_explanation_name_the_price_of_a_batch(rig):
    name = new_id()
    create(rig, name)
    read(rig, name)
    rig.settled(name)
    ((call,),) = rig.proxy.rows("SELECT call FROM upstream_ids WHERE id = ?", name)

    receipt = json.loads(told(rig, "receipt", call))

    assert (receipt["tier"], receipt["charged_usd"], receipt["usage"]) == (
        "batch", "0.00025", {"input": 200, "output": 60},
    )  # fmt: skip
    assert "0.00025" in told(rig, "prices", "explain", call)


def test_every_command_says_what_each_of_its_models_came_to(tmp_path):
    """Five prompts of half a band are no prompt in the next one: 2,500 × $10 and 150 × $50 a million, and half of it."""
    with running(tmp_path, "up") as rig:
        name, dear = new_id(), [f"d{number}" for number in range(5)]
        create(rig, name, "base_url", asked("a"), *(asked(one, 20, "dear-model") for one in dear))
        read(rig, name, body=lines(*(result(one, model="dear-model", prompt=500) for one in dear), result("a")))
        assert rig.settled(name)[1] == ("charge", 16_250_000 + COST_NANO // 2, None)
        ((call,),) = rig.proxy.rows("SELECT call FROM upstream_ids WHERE id = ?", name)

        def rows(*words: str) -> list[dict]:
            return json.loads(told(rig, *words, "--format", "json"))["rows"]

        shares = json.loads(told(rig, "receipt", call))["shares"]
        assert [(one["model"], one["prompts"], one["charged_usd"]) for one in shares] == [
            ("dear-model", 5, "0.01625"), ("slow-model", 1, "0.000125"),
        ]  # fmt: skip
        assert {row["key"]: (row["calls"], row["spent_usd"]) for row in rows("report", "--by", "model")} == {
            "slow-model": (1, 0.000125), "dear-model": (0, 0.01625),
        }  # fmt: skip
        for model, spent, would in (("dear-model", 0.01625, 0.0325), ("slow-model", 0.000125, 0.00025)):
            (row,) = rows("whatif", "--model", f"{model}={model}")
            assert (row["model"], row["spent_usd"], row["would_spend_usd"]) == (model, spent, would)
        explained = json.loads(told(rig, "prices", "explain", call, "--format", "json"))
        assert (explained["charge"]["adds_up"], explained["hold"]["parts"]) == (True, [])
        assert explained["hold"]["notes"][0].endswith("for 6 requests, each of which was bound by itself")


def test_it_outlives_its_proxy_and_another_settles_it(tmp_path):
    with running(tmp_path, "up") as rig:
        name = new_id()
        create(rig, name)
        most = held(rig, name)

        rig.proxy.stop(signal.SIGKILL)
        rig.again("mitmdump")
        assert held(rig, name) == most
        read(rig, name)

        assert rig.settled(name)[1] == ("charge", COST_NANO, None)


def test_a_proxy_that_stops_first_books_what_has_passed(tmp_path):
    with running(tmp_path, "up") as rig:
        name, listed, names = new_id(), tmp_path / "results.jsonl", [f"r{number}" for number in range(30)]
        path, key = "/anthropic/v1/messages/batches", {"x_api_key": "sk-ant-api-one"}
        made = sdks.order(body=json.dumps(batch(name)))["x-origin"]
        client.call(rig.proxy, path, {"requests": [asked(one, 1) for one in names]}, x_origin=made, **key)
        long = [result(each) for each in names]
        for each in long:  # it passes at once, and takes a second to be read
            each["result"]["message"]["content"] = [{"type": "text", "text": "ab"}] * 25_000
        listed.write_text(lines(*long))
        order = sdks.order(file=str(listed), chunk=1_000_000)["x-origin"]

        client.call(rig.proxy, f"{path}/{name}/results", x_origin=order, **key)
        rig.proxy.stop(signal.SIGTERM)

        assert [row[:2] for row in rig.rows(name)][1:] == [("charge", 30 * COST_NANO // 2)]


def test_one_that_nobody_reads_is_charged_in_full_and_corrected_when_somebody_does(tmp_path):
    with running(tmp_path, "up", hold_for="1s") as rig:
        name = new_id()
        create(rig, name)
        (_, most, _), charge = rig.settled(name)
        assert charge == ("charge", most, "expired")

        read(rig, name)

        assert rig.settled(name, 3)[2][:2] == ("correction", COST_NANO - most)

"""Large replies: they pass whole, and a stream of any length costs the proxy no memory."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import processes
import pytest
import sdks
from processes import until

CONFIG = """
upstreams: {{api.openai.com: "{origin}", api.anthropic.com: "{origin}"}}
pricing:
  chat-model: {{input_per_mtok: 1, output_per_mtok: 5, max_output_tokens: 100000, context_tokens: 200000}}
  messages-model: {{input_per_mtok: 1, output_per_mtok: 5, max_output_tokens: 100000, context_tokens: 200000}}
"""
MB, MIB = 10**6, 1 << 20
CHUNK_BYTES = 64 << 10


@dataclass
class Rig:
    proxy: processes.Proxy
    folder: Path

    def resident_bytes(self, name: str) -> int:
        """Read VmRSS (now) or VmHWM (the most so far) of the proxy."""
        status = Path(f"/proc/{self.proxy.process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith(f"{name}:")]
        return int(line.split()[1]) << 10


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("memory")
    with (
        processes.origin(folder) as origin,
        processes.proxy(folder, CONFIG.format(origin=origin.url), kind=request.param) as proxy,
    ):
        yield Rig(proxy, folder)


DELTA = {"id": "c1", "model": "chat-model", "choices": [{"index": 0, "delta": {"content": "abc" * 300}}]}
EVENT = f"data: {json.dumps(DELTA)}\n\n"


def stream_through(rig: Rig, order: dict, **more: object) -> tuple[int, str, str]:
    """Stream a Chat reply through the SDK; give its size, its hash and the call."""
    size, digest = 0, hashlib.sha256()
    with (
        sdks.openai_client(rig.proxy) as sdk,
        sdk.chat.completions.with_streaming_response.create(
            model="chat-model", messages=[sdks.MESSAGE], stream=True, max_completion_tokens=1000,
            extra_headers=sdks.order(type="text/event-stream", chunk=CHUNK_BYTES, **order), **more,
        ) as reply,
    ):  # fmt: skip
        for piece in reply.http_response.iter_raw():
            size += len(piece)
            digest.update(piece)
        return size, digest.hexdigest(), reply.headers["x-lockpin-call"]


def resolution(rig: Rig, call: str):
    query = "SELECT * FROM rows WHERE call = ? AND kind IN ('charge', 'void')"
    (row,) = until(lambda: rig.proxy.rows(query, call))
    return row


def test_a_stream_of_100_mb_leaves_the_memory_flat(rig):
    stream_through(rig, {"body": EVENT, "repeat": 20 * MB // len(EVENT)})
    before, most_before = rig.resident_bytes("VmRSS"), rig.resident_bytes("VmHWM")

    size, _, call = stream_through(rig, {"body": EVENT, "repeat": 100 * MB // len(EVENT)})

    assert size == 100 * MB // len(EVENT) * len(EVENT)
    assert resolution(rig, call)["reason"] == "stream_cut"  # it had no end
    assert abs(rig.resident_bytes("VmRSS") - before) < 10 * MB
    assert rig.resident_bytes("VmHWM") - most_before < 10 * MB


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"stream_options": {"include_usage": True}}, id="scanned"),
        pytest.param({}, id="filtered"),
    ],
)
def test_one_endless_event_is_not_kept(rig, more):
    """An event past 1 MiB is dropped by the scanner: 30 MB without a line end pass, and leave nothing behind."""
    stream_through(rig, {"body": EVENT, "repeat": 1000}, **more)
    before = rig.resident_bytes("VmHWM")

    size, _, call = stream_through(rig, {"body": "data: " + "x" * 994, "repeat": 30_000}, **more)

    assert size == 30 * MB
    assert resolution(rig, call)["reason"] == "stream_cut"
    assert rig.resident_bytes("VmHWM") - before < 10 * MB


def test_a_streamed_reply_of_70_mib_passes_whole(rig):
    stop = DELTA | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {}}
    usage = DELTA | {"choices": [{"index": 0, "delta": {}}], "usage": {"prompt_tokens": 25, "completion_tokens": 9}}
    end = "".join(f"data: {one}\n\n" for one in (json.dumps(stop), json.dumps(usage), "[DONE]"))
    body = (EVENT * (70 * MIB // len(EVENT) + 1) + end).encode()
    file = rig.folder / "70.sse"
    file.write_bytes(body)

    size, digest, call = stream_through(rig, {"file": str(file)})

    assert (size, digest) == (len(body), hashlib.sha256(body).hexdigest())
    charge = resolution(rig, call)
    assert (charge["estimated"], charge["usd"]) == (0, 25 * 1_000 + 9 * 5_000)


def test_a_whole_reply_of_65_mib_passes_whole_and_carries_its_cost(rig):
    reply = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "messages-model", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "long " * (13 * MIB)}], "usage": {"input_tokens": 25, "output_tokens": 9},
    }  # fmt: skip
    body = json.dumps(reply).encode()
    assert len(body) > 65 * MIB
    file = rig.folder / "65.json"
    file.write_bytes(body)

    with (
        sdks.anthropic_client(rig.proxy, "connect") as sdk,
        sdk.messages.with_streaming_response.create(
            model="messages-model", messages=[sdks.MESSAGE], max_tokens=1000, extra_headers=sdks.order(file=str(file))
        ) as answer,
    ):
        raw = b"".join(answer.http_response.iter_raw())

    assert len(raw) == len(body)
    assert raw == body
    assert answer.headers["x-lockpin-cost-usd"] == "0.00007"
    charge = resolution(rig, answer.headers["x-lockpin-call"])
    assert (charge["estimated"], charge["usd"]) == (0, 25 * 1_000 + 9 * 5_000)

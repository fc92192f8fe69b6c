"""Streams through real processes with the real SDKs: nothing is held back; refusals are whole; all settle."""

import asyncio
import itertools
import json
import socket
import time
from collections.abc import Iterator

import anthropic
import client
import openai
import pytest
import sdks
from processes import DATA, until
from streams import (
    IN_NANO,
    OUT_NANO,
    PATHS,
    SSE,
    WIRES,
    Rig,
    ask,
    end_of,
    finished,
    holds_of,
    request_bytes,
    running,
    stream,
    take,
    unfinished,
)


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory) -> Iterator[Rig]:
    with running(tmp_path_factory.mktemp("streams"), request.param) as found:
        yield found


@pytest.mark.parametrize("way", sdks.WAYS)
@pytest.mark.parametrize("wire", WIRES)
def test_the_first_event_is_there_before_the_second_is_sent(rig, wire, way):
    gate, body = rig.new_path(), finished(wire, 9).encode()
    first = body.partition(b"\n\n")[0] + b"\n\n"

    with stream(rig, wire, SSE | {"body": body.decode(), "gate": str(gate)}, way=way) as reply:
        pieces = reply.iter_raw()
        assert take(pieces, len(first)) == first
        gate.touch()
        rest = b"".join(pieces)

    assert rest.startswith(body.split(b"\n\n")[1])


LOCKSTEP = {
    "messages": ("messages", "anthropic_messages/anthropic_messages_stream_thinking_tooluse.sse", 97, {}),
    "messages_gzip": ("messages", "anthropic_messages/anthropic_messages_stream_gzip.sse.gz", 29, {}),
    "chat": ("chat", "openai_chat/sse_crlf_split.sse", 53, {"stream_options": {"include_usage": True}}),
    "chat_filtered": ("chat", "openai_chat/mistral_stream.sse", "event", {}),
}


@pytest.mark.parametrize("case", LOCKSTEP)
def test_chunk_for_chunk_nothing_is_held_back(rig, case):
    """The origin sends a chunk only when the client has all of the one before."""
    wire, file, size, more = LOCKSTEP[case]
    body = (DATA / file).read_bytes()
    if size == "event":
        chunks = [event + b"\n\n" for event in body.split(b"\n\n") if event]
    else:
        chunks = [body[at : at + size] for at in range(0, len(body), size)]
    step = rig.new_path()
    step.touch()
    order = SSE | {"file": file, "chunk": size, "lockstep": str(step)}
    order |= {"encoding": "gzip"} if file.endswith(".gz") else {}

    with stream(rig, wire, order, **more) as reply, step.open("ab", buffering=0) as ticks:
        pieces = reply.iter_raw()
        for chunk in chunks:
            assert take(pieces, len(chunk)) == chunk
            ticks.write(b"x")
        assert b"".join(pieces) == b""


def test_f10_a_stream_whose_usage_is_taken_out_is_not_held_back_before_its_end(rig):
    """Pieces of an event pass as they come; only what comes after a choice has finished may be the usage event."""
    body = unfinished("chat", 3).encode()
    step = rig.new_path()
    step.touch()

    with (
        stream(rig, "chat", SSE | {"body": body.decode(), "chunk": 31, "lockstep": str(step)}) as reply,
        step.open("ab", buffering=0) as ticks,
    ):
        pieces = reply.iter_raw()
        for at in range(0, len(body), 31):
            assert take(pieces, len(body[at : at + 31])) == body[at : at + 31]
            ticks.write(b"x")


@pytest.mark.parametrize("wire", WIRES)
def test_f12_events_arrive_spread_out_and_the_first_at_once(rig, wire):
    """Of three tries the quickest first event counts: the machine may be busy."""
    body, first_s = finished(wire, 9) + ": end\n\n" * 6, []
    for limit in (8001, 8002, 8003):
        limit += 10 * WIRES.index(wire)
        with stream(rig, wire, SSE | {"body": body, "pace_s": 0.05}, limit=limit) as reply:
            at = [time.time() for _ in reply.iter_raw()]
        (sent,) = [entry["at"] for entry in rig.origin.calls() if f'tokens":{limit}' in entry["body"]]
        first_s.append(at[0] - sent)
        gaps = [later - sooner for sooner, later in itertools.pairwise(at)]

        assert at[-1] - at[0] > 0.4
        assert sum(gap > 0.025 for gap in gaps) >= 8

    assert min(first_s) < 0.1


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("wire", WIRES)
def test_h07_a_refusal_is_complete_and_the_connection_goes_on(rig, wire, streamed):
    body = ask(wire, 2000) | {"model": "dear-model", "stream": streamed}
    before = paid(rig)

    with socket.create_connection(("127.0.0.1", rig.proxy.port), 10) as raw:
        replies = []
        for _ in range(2):
            raw.sendall(request_bytes(rig, wire, body))
            replies.append(client.read_all(raw))

    for reply in replies:
        head, _, data = reply.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 402")
        assert f"content-length: {len(data)}".encode() in head.lower()
        assert b"x-should-retry: false" in head.lower()
        assert b"retry-after" not in head.lower()
        assert json.loads(data)["lockpin"]["code"] == "budget_exceeded"
    assert paid(rig) == before


def paid(rig) -> int:
    """Count the calls that the origin was sent, those apart that only count tokens."""
    return sum(not entry["path"].endswith("/count_tokens") for entry in rig.origin.calls())


@pytest.mark.parametrize("way", sdks.WAYS)
@pytest.mark.parametrize("streamed", [True, False])
def test_h03_the_sdks_take_a_refusal_as_final(rig, streamed, way):
    """With their default retries on; an error of another status would come after several tries."""
    task = f"h03-{way}-{streamed}"
    with (
        sdks.openai_client(rig.proxy, way, X_Lockpin_Task=task) as plain,
        pytest.raises(openai.APIStatusError) as caught,
    ):
        sdk = plain.with_options(max_retries=2)
        sdk.chat.completions.create(**ask("chat", 2000) | {"model": "dear-model", "stream": streamed})
    with sdks.anthropic_client(rig.proxy, way, X_Lockpin_Task=task) as plain, pytest.raises(anthropic.APIError) as also:
        sdk = plain.with_options(max_retries=2)
        sdk.messages.create(**ask("messages", 2000) | {"model": "dear-model", "stream": streamed})

    assert (caught.value.status_code, caught.value.code, caught.value.type) == (402, *["budget_exceeded"] * 2)
    assert also.value.status_code == 402
    assert also.value.body["error"]["type"] == "budget_exceeded"
    for error in (caught.value, also.value):
        assert error.response.headers["x-should-retry"] == "false"
        assert 'budget "daily" (machine, day) would pass its $1000.00 limit' in str(error)
    query = "SELECT call FROM rows WHERE kind = 'refusal' AND task = ?"
    until(lambda: len(rig.proxy.rows(query, task)) == 2)


def test_h05_three_refusals_are_three_rows_and_nothing_upstream(rig):
    before = paid(rig)
    body = ask("chat", 2000) | {"model": "dear-model"}

    answers = [client.call(rig.proxy, PATHS["chat"], body, x_lockpin_task="h05") for _ in range(3)]

    assert [answer.status for answer in answers] == [402] * 3
    query = "SELECT call, count, code FROM rows WHERE kind = 'refusal' AND task = 'h05'"
    rows = until(lambda: (found := rig.proxy.rows(query)) and len(found) == 3 and found)
    assert {row["call"] for row in rows} == {answer.headers["x-lockpin-call"] for answer in answers}
    assert {row["call"] for row in rows} == {answer.json["lockpin"]["receipt"]["id"] for answer in answers}
    assert [(row["count"], row["code"]) for row in rows] == [(1, "budget_exceeded")] * 3
    told = rig.proxy.rows("SELECT data FROM rows WHERE kind = 'event' AND code = 'limit_refused'")
    assert [json.loads(row["data"])["budget"] for row in told].count("daily") == 1
    assert paid(rig) == before


@pytest.mark.parametrize("way", sdks.WAYS)
def test_parallel_streams_of_both_sdks_all_settle_at_their_own_price(rig, way):
    """Each call has an output limit and a usage of its own. The origin saw its hold, committed, before it answered."""
    first = 3000 + 100 * sdks.WAYS.index(way)
    limits = {wire: [first + 50 * WIRES.index(wire) + number for number in range(40)] for wire in WIRES}

    asyncio.run(_parallel(rig, way, limits))

    limit_of = {limit: wire for wire in WIRES for limit in limits[wire]}
    for limit in limit_of:
        (hold,) = holds_of(rig, limit)
        _, charge = end_of(rig, hold["call"])
        assert (charge["kind"], charge["estimated"]) == ("charge", 0)
        assert charge["usd"] == 25 * IN_NANO + (limit - 2900) * OUT_NANO
    seen = {limit: entry for entry in rig.origin.calls() for limit in limit_of if f'tokens":{limit}' in entry["body"]}
    assert all(limit in [hold[1] for hold in seen[limit]["open_holds"]] for limit in limit_of)


async def _parallel(rig: Rig, way: str, limits: dict[str, list[int]]) -> None:
    async def one(sdk, wire: str, limit: int) -> None:
        order = sdks.order(**SSE, body=finished(wire, limit - 2900), pace_s=0.002)
        calls = sdk.chat.completions if wire == "chat" else sdk.messages
        events = [event async for event in await calls.create(**ask(wire, limit, extra_headers=order))]
        assert len(events) == 4 if wire == "chat" else 6

    async with sdks.async_openai(rig.proxy, way) as chat, sdks.async_anthropic(rig.proxy, way) as messages:
        calls = [one(chat, "chat", limit) for limit in limits["chat"]]
        await asyncio.gather(*calls, *(one(messages, "messages", limit) for limit in limits["messages"]))

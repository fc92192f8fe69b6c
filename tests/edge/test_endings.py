"""However an exchange ends, through real processes with the real SDKs: it is charged once, and by its own rule."""

import contextlib
import json
import math
import signal
import socket
from collections.abc import Iterator

import anthropic
import client
import httpx2
import openai
import processes
import pytest
import sdks
import streams
from processes import until
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
    held_last,
    holds_of,
    request_bytes,
    rows_of,
    running,
    stream,
    take,
    unfinished,
)


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory) -> Iterator[Rig]:
    with running(tmp_path_factory.mktemp("endings"), request.param) as found:
        yield found


@contextlib.contextmanager
def running_without_drain(folder, kind) -> Iterator[Rig]:
    home = processes.make_home(folder)
    with processes.origin(folder) as origin:
        config = streams.CONFIG.format(origin=origin.url, closed=processes.free_port()) + "drain: 0s\n"
        with processes.proxy(folder, config, kind=kind, home=home) as proxy:
            yield Rig(origin, proxy, folder)


@pytest.mark.parametrize("way", sdks.WAYS)
@pytest.mark.parametrize("wire", WIRES)
def test_f06_a_client_that_hangs_up_halfway_is_charged_an_estimate(rig, wire, way):
    """Chat: its hold. Messages: the stated input, and a token for each byte of the text that was relayed."""
    chunks = [event + b"\n\n" for event in unfinished(wire, 200).encode().split(b"\n\n") if event]
    step = rig.new_path()
    step.touch()
    order = SSE | {"body": "".join(map(bytes.decode, chunks)), "lockstep": str(step)}

    with stream(rig, wire, order, way=way) as reply, step.open("ab", buffering=0) as ticks:
        pieces = reply.iter_raw()
        for chunk in chunks[:100]:
            assert take(pieces, len(chunk)) == chunk
            ticks.write(b"x")
        take(pieces, len(chunks[100]))

    hold, charge = rows_of(rig, reply)
    assert (charge["kind"], charge["estimated"], charge["reason"]) == ("charge", 1, "client_left")
    if wire == "chat":
        assert charge["usd"] == hold["usd"] > 0
    else:
        assert json.loads(charge["usage"]) == {"input": 25, "output": 300}
        assert charge["usd"] == 25 * IN_NANO + 300 * OUT_NANO < hold["usd"]


@pytest.mark.parametrize("wire", WIRES)
def test_a_client_that_leaves_before_the_head_of_the_reply_is_charged_its_hold(rig, wire):
    limit = 7001 + WIRES.index(wire)
    gate = rig.new_path()
    with socket.create_connection(("127.0.0.1", rig.proxy.port), 10) as raw:
        raw.sendall(request_bytes(rig, wire, ask(wire, limit), **sdks.order(head_gate=str(gate))))
        (hold,) = until(lambda: holds_of(rig, limit))
        until(lambda: [entry for entry in rig.origin.calls() if str(limit) in entry["body"]])

    hold, charge = end_of(rig, hold["call"])
    assert (charge["kind"], charge["estimated"], charge["reason"]) == ("charge", 1, "client_left")
    assert charge["usd"] == hold["usd"] > 0


@pytest.mark.parametrize("wire", WIRES)
def test_a_client_that_leaves_after_the_head_and_before_a_byte_is_charged_its_hold(rig, wire):
    gate = rig.new_path()

    with stream(rig, wire, SSE | {"body": finished(wire, 9), "body_gate": str(gate)}) as reply:
        assert reply.status_code == 200

    hold, charge = rows_of(rig, reply)
    assert (charge["kind"], charge["estimated"], charge["reason"]) == ("charge", 1, "client_left")
    assert charge["usd"] == hold["usd"] > 0


@pytest.mark.parametrize("way", sdks.WAYS)
@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_that_the_provider_cuts_is_charged_an_estimate_and_not_ended_cleanly(rig, wire, way):
    body = unfinished(wire, 9)
    cut = len(body) - 10  # the last piece cannot be read

    with stream(rig, wire, SSE | {"body": body, "cut_after": cut}, way=way) as reply:
        got = b""
        with pytest.raises(httpx2.HTTPError):
            for piece in reply.iter_raw():
                got += piece

    assert body.encode()[:cut].startswith(got)
    hold, charge = rows_of(rig, reply)
    assert (charge["kind"], charge["estimated"], charge["reason"]) == ("charge", 1, "stream_cut")
    if wire == "chat":
        assert charge["usd"] == hold["usd"] > 0
    else:
        assert charge["usd"] == 25 * IN_NANO + 8 * 3 * OUT_NANO


@pytest.mark.parametrize("wire", WIRES)
def test_f09_a_client_that_leaves_after_the_usage_is_charged_what_was_reported(rig, wire):
    body = finished(wire, 9)
    step = rig.new_path()
    step.touch()
    before_end = body.rpartition("event: " if wire == "messages" else "data: ")[0].encode()
    more = {} if wire == "messages" else {"stream_options": {"include_usage": True}}

    with stream(rig, wire, SSE | {"body": body, "lockstep": str(step)}, **more) as reply:
        step.write_bytes(b"x" * (before_end.count(b"\n\n") - 1))
        assert take(reply.iter_raw(), len(before_end)) == before_end

    _, charge = rows_of(rig, reply)
    assert (charge["estimated"], charge["reason"]) == (0, None)
    assert charge["usd"] == 25 * IN_NANO + 9 * OUT_NANO


@pytest.mark.parametrize("wire", WIRES)
def test_a_whole_reply_that_is_cut_is_charged_its_hold(rig, wire):
    answer = client.call(
        rig.proxy, PATHS[wire], ask(wire, 500) | {"stream": False}, **sdks.order(body='{"id": "x"}', cut_after=5)
    )

    assert answer.status == 502
    (found,) = rig.proxy.rows("SELECT call FROM rows WHERE kind = 'hold' ORDER BY id DESC LIMIT 1")
    hold, charge = end_of(rig, found["call"])
    assert (charge["usd"], charge["estimated"], charge["reason"]) == (hold["usd"], 1, "stream_cut")


@pytest.mark.parametrize("wire", WIRES)
def test_a_provider_that_drops_the_call_is_charged_as_failed_with_its_estimated_input(rig, wire):
    limit = 6001 + WIRES.index(wire)
    errors = (openai.InternalServerError, anthropic.InternalServerError)
    with pytest.raises(errors) as caught, stream(rig, wire, {"close": "before"}, limit=limit):
        pass

    assert caught.value.status_code == 502
    (hold,) = holds_of(rig, limit)
    _, charge = end_of(rig, hold["call"])
    (seen,) = [entry for entry in rig.origin.calls() if str(limit) in entry["body"]]
    sent = seen["body"].replace('"stream_options":{"include_usage":true},', "")  # what the client did not send
    tokens = math.ceil(len(sent) / 3)
    assert (charge["kind"], charge["estimated"], charge["failed"], charge["reason"]) == ("charge", 1, 1, "failed")
    assert charge["usd"] == tokens * IN_NANO


def test_a_connection_that_was_never_opened_costs_nothing(rig):
    with sdks.openai_client(rig.proxy, "connect") as plain, pytest.raises(openai.InternalServerError) as caught:
        sdk = plain.with_options(base_url="https://eu.api.openai.com/v1")
        sdk.chat.completions.create(**ask("chat", 5001))

    assert caught.value.status_code == 502
    (hold,) = holds_of(rig, 5001)
    _, end = end_of(rig, hold["call"])
    assert (end["kind"], end["usd"], end["reason"]) == ("void", 0, "not_sent")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_a_proxy_that_is_killed_in_mid_stream_leaves_the_hold_on_disk(kind, wire, tmp_path):
    with running(tmp_path, kind) as rig:
        with contextlib.suppress(httpx2.HTTPError):
            order = SSE | {"body": finished(wire, 9), "gate": str(rig.new_path())}
            with stream(rig, wire, order) as reply:
                pieces = reply.iter_raw()  # kept: a lost iterator hangs up
                next(pieces)
                rig.proxy.stop(signal.SIGKILL)

        call = reply.headers["x-lockpin-call"]
        assert not rig.proxy.rows("SELECT 1 FROM rows WHERE call = ? AND kind IN ('charge', 'void')", call)
        (still_open,) = rig.proxy.rows("SELECT * FROM open_holds")
        assert (still_open["call"], still_open["usd"]) == (call, held_last(rig.proxy, call))
        (account,) = rig.proxy.rows("SELECT held_nano FROM accounts WHERE budget = 'daily'")
        assert account["held_nano"] == still_open["usd"] > 0


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_a_proxy_that_is_told_to_stop_in_mid_stream_charges_the_hold(kind, wire, tmp_path):
    with running_without_drain(tmp_path, kind) as rig:
        with contextlib.suppress(httpx2.HTTPError):
            order = SSE | {"body": finished(wire, 9), "gate": str(rig.new_path())}
            with stream(rig, wire, order) as reply:
                pieces = reply.iter_raw()  # kept: a lost iterator hangs up
                next(pieces)
                assert rig.proxy.stop(signal.SIGTERM) == 0

        hold, charge = rows_of(rig, reply)
        assert (charge["kind"], charge["estimated"], charge["reason"]) == ("charge", 1, "lockpin_stopped")
        assert charge["usd"] == held_last(rig.proxy, hold["call"]) > 0
        assert rig.proxy.rows("SELECT * FROM open_holds") == []


@pytest.mark.parametrize("kind", ["mitmdump", "up"])
def test_a_proxy_that_is_told_to_stop_before_a_reply_charges_the_hold(kind, tmp_path):
    with running_without_drain(tmp_path, kind) as rig:
        with socket.create_connection(("127.0.0.1", rig.proxy.port), 10) as raw:
            order = sdks.order(head_gate=str(rig.new_path()))
            raw.sendall(request_bytes(rig, "messages", ask("messages", 1000) | {"stream": False}, **order))
            until(rig.origin.calls)
            assert rig.proxy.stop(signal.SIGTERM) == 0

        (hold,) = holds_of(rig, 1000)
        hold, charge = end_of(rig, hold["call"])
        assert (charge["usd"], charge["estimated"], charge["reason"]) == (hold["usd"], 1, "lockpin_stopped")


def test_at_the_end_nothing_is_open_and_the_books_agree(rig):
    until(lambda: not rig.proxy.rows("SELECT * FROM open_holds"))

    resolutions = "(SELECT count(*) FROM rows r WHERE r.call = h.call AND r.kind IN ('charge', 'void'))"
    assert rig.proxy.rows(f"SELECT call FROM rows h WHERE kind = 'hold' AND {resolutions} != 1") == []
    (books,) = rig.proxy.rows(
        "SELECT sum(held_nano) AS held, sum(spent_nano) AS spent FROM accounts WHERE scope = 'task'"
    )
    (charged,) = rig.proxy.rows("SELECT sum(usd) AS usd FROM rows WHERE kind = 'charge'")
    assert (books["held"], books["spent"]) == (0, charged["usd"])

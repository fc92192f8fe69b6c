"""What is read of Converse replies. Figures by hand, from Amazon's reference of `TokenUsage`."""

import json
from dataclasses import replace

import frames
import pytest

from lockpin_core.call import Parsed, Portion, Reading, Request, Terms
from lockpin_core.usage import Unit
from lockpin_core.wire import wire_named
from lockpin_core.wire.eventstream import MAX_FRAME_BYTES

WIRE = wire_named("bedrock_converse")
USAGE = {"inputTokens": 120, "outputTokens": 7, "totalTokens": 127}
SPLIT = [{"ttl": "1h", "inputTokens": 1000}, {"ttl": "5m", "inputTokens": 500}]
TEXT = {"text": "Grüße"}


def asked(more: dict | None = None, *, ttl: str | None = None) -> Parsed:
    point = [{"cachePoint": {"type": "default", "ttl": ttl}}] if ttl else []
    body = {"messages": [{"role": "user", "content": [{"text": "hi"}, *point]}], **(more or {})}
    return WIRE.parse(Request("POST", "h", "/model/m/converse", {}, json.dumps(body).encode(), "anthropic.claude-x"))


def whole(usage: object, content: list | None = None, *, to: Parsed | None = None, **more: object) -> Reading:
    message = {"role": "assistant", "content": [TEXT] if content is None else content}
    body = {"output": {"message": message}, "stopReason": "end_turn", "usage": usage, **more}
    scanner = WIRE.scanner(streamed=False, asked=to)
    scanner.feed(json.dumps(body).encode())
    return scanner.result()


def stream(*parts: bytes, to: Parsed | None = None) -> Reading:
    scanner = WIRE.scanner(streamed=True, asked=to)
    for part in parts:
        scanner.feed(part)
    return scanner.result()


def said(text: str = "Hello") -> bytes:
    return frames.frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": text}})


def metadata(usage: object = USAGE, **more: object) -> bytes:
    return frames.frame("metadata", {"usage": usage, "metrics": {"latencyMs": 1}, **more})


STOP = frames.frame("messageStop", {"stopReason": "max_tokens"})


def units(reading: Reading) -> dict[Unit, int]:
    (portion,) = reading.portions
    return dict(portion.usage)


def test_a_body_states_its_usage_and_the_input_leaves_the_cache_out():
    found = whole(USAGE | {"cacheReadInputTokens": 3000, "cacheWriteInputTokens": 1500, "cacheDetails": SPLIT})

    assert (found.complete, found.terminal, found.generated_bytes) == (True, True, 7)
    assert units(found) == {
        Unit.INPUT: 120,
        Unit.CACHE_READ: 3000,
        Unit.CACHE_WRITE_5M: 500,
        Unit.CACHE_WRITE_1H: 1000,
        Unit.OUTPUT: 7,
    }


@pytest.mark.parametrize(
    ("ttl", "written", "details", "expected"),
    [
        (None, 90, None, {Unit.CACHE_WRITE_5M: 90}),
        ("5m", 90, [], {Unit.CACHE_WRITE_5M: 90}),
        ("1h", 90, None, {Unit.CACHE_WRITE_1H: 90}),
        ("1h", 90, [{"ttl": "5m", "inputTokens": 60}], {Unit.CACHE_WRITE_5M: 60, Unit.CACHE_WRITE_1H: 30}),
        ("5m", 90, [{"ttl": "5m", "inputTokens": 60}], {Unit.CACHE_WRITE_5M: 90}),
        (None, None, [{"ttl": "1h", "inputTokens": 60}], {Unit.CACHE_WRITE_1H: 60}),
        (None, 60, [{"ttl": "1d", "inputTokens": 60}], {Unit.CACHE_WRITE_1H: 60}),
        (None, 0, "x", {}),
    ],
)
def test_writes_that_no_detail_explains_are_at_the_dearest_lifetime_asked_for(ttl, written, details, expected):
    usage = USAGE | {"cacheWriteInputTokens": written, "cacheDetails": details}

    found = whole(usage, to=asked(ttl=ttl))

    assert units(found) == {Unit.INPUT: 120, Unit.OUTPUT: 7} | expected


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        "x",
        {"inputTokens": 5},
        {"outputTokens": 5},
        {"inputTokens": 5, "outputTokens": -1},
        USAGE | {"cacheReadInputTokens": "many"},
        USAGE | {"cacheDetails": [{"ttl": "5m", "inputTokens": 0.5}]},
        USAGE | {"outputTokens": 0},  # although something was said
    ],
)
def test_usage_that_is_not_wholly_there_or_cannot_be_is_not_complete(usage):
    assert not whole(usage).complete
    assert not stream(said(), STOP, metadata(usage)).complete


def test_nothing_said_may_cost_no_output():
    assert whole(USAGE | {"outputTokens": 0}, []).complete


def test_a_body_that_is_no_object_cannot_be_read():
    scanner = WIRE.scanner(streamed=False)
    scanner.feed(b'{"usage": {"inputTokens": 1')

    assert scanner.result() == Reading(readable=False)


@pytest.mark.parametrize(
    ("block", "size", "thinks"),
    [
        ({"text": "Grüße"}, 7, False),
        ({"text": ""}, 0, False),
        ({"toolUse": {"toolUseId": "t", "name": "né", "input": {"a": "é"}}}, 3 + len('{"a": "é"}'.encode()), False),
        ({"toolUse": {"input": '{"a":'}}, 5, False),
        ({"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}, 2, True),
        ({"reasoningContent": {"text": "hm"}}, 2, True),
        ({"reasoningContent": {"redactedContent": "AAAA"}}, 4, True),
        ({"reasoningContent": {"signature": "c2ln"}}, 0, True),
        ({"image": {"format": "png"}}, len('{"format": "png"}'), False),
        ({"toolResult": None}, 0, False),
        ("x", 0, False),
    ],
)
def test_what_was_generated_is_counted_in_bytes(block, size: int, thinks: bool):
    found = whole(USAGE, [block])

    assert (found.generated_bytes, found.hidden_thinking) == (size, thinks)


def test_a_stream_states_its_usage_in_its_last_event_alone():
    before = stream(frames.frame("messageStart", {"role": "assistant"}), said(), STOP)
    after = stream(said(), STOP, metadata())

    assert (before.complete, before.terminal, before.delivered, before.stopped_at_limit) == (False, False, True, True)
    assert before.portions == ()
    assert (after.complete, after.terminal, units(after)) == (True, True, {Unit.INPUT: 120, Unit.OUTPUT: 7})
    assert not after.prompt_stated


def test_the_start_of_a_tool_is_output():
    started = frames.frame("contentBlockStart", {"start": {"toolUse": {"toolUseId": "t", "name": "f"}}})

    assert stream(started).delivered
    assert not stream(frames.frame("contentBlockStart", {"contentBlockIndex": 0})).delivered


def test_what_comes_after_the_usage_is_not_in_it():
    assert not stream(metadata(), said()).complete
    assert stream(metadata(), said(), metadata(USAGE | {"outputTokens": 9})).complete


def test_an_event_that_is_too_long_is_output_and_the_usage_after_it_holds():
    long = frames.frame("contentBlockDelta", b"x" * MAX_FRAME_BYTES)

    assert stream(long).delivered
    assert stream(long, metadata()).complete
    assert not stream(metadata(), long).complete


@pytest.mark.parametrize("message", ["exception", "error"])
def test_an_exception_is_told_and_leaves_no_usage(message: str):
    found = stream(said(), frames.frame("throttlingException", {"message": "Too many"}, message))

    assert (found.error, found.complete, found.portions) == ("throttlingException", False, ())


def test_an_exception_without_a_readable_name_is_an_error():
    assert stream(frames.frame("é\n", {}, "exception")).error == "error"


def test_usage_before_an_exception_holds():
    found = stream(said(), metadata(), frames.frame("internalServerException", {}, "exception"))

    assert found.complete


def test_a_frame_that_is_not_as_it_was_sent_takes_all_usage_away():
    wrong = bytearray(metadata())
    wrong[-6] ^= 1

    assert stream(said(), bytes(wrong)) == Reading(readable=False)
    assert stream(said(), metadata(), bytes(wrong)) == Reading(readable=False)


def test_events_that_are_unknown_or_no_json_pass():
    found = stream(frames.frame("news", {"a": 1}), frames.frame("metadata", b"x"), frames.frame("", b"[]"), metadata())

    assert found.complete


def test_what_a_router_chose_costs_what_the_user_says_of_the_router():
    trace = {"promptRouter": {"invokedModelId": "us.anthropic.claude-opus-5"}}

    assert whole(USAGE, trace=trace).portions == (Portion(None, {Unit.INPUT: 120, Unit.OUTPUT: 7}),)
    assert stream(metadata(trace=trace)).model is None


@pytest.mark.parametrize(
    ("asks", "says", "terms"),
    [
        ({}, {}, Terms()),
        ({}, {"serviceTier": {"type": "priority"}}, Terms(tier="priority")),
        ({"serviceTier": {"type": "flex"}}, {"serviceTier": {"type": "flex"}}, Terms(tier="flex")),
        ({"serviceTier": {"type": "flex"}}, {}, Terms(tier="default")),
        ({"serviceTier": {"type": "priority"}}, {}, Terms()),
        ({}, {"performanceConfig": {"latency": "optimized"}}, Terms(speed="optimized")),
        ({}, {"serviceTier": {"type": 5}}, Terms(tier="unreadable")),
    ],
)
def test_the_terms_are_the_replys_and_a_cheap_tier_that_it_does_not_state_was_not_served(asks, says, terms):
    assert whole(USAGE, to=asked(asks), **says).terms == terms
    assert stream(metadata(**says), to=asked(asks)).terms == terms


NASTY = (None, True, 0, -1, 1.5, 10**30, "", "x", "\ud800", [], [1], [[]], {}, {"a": {}}, {"type": ["x"]})


def mutations(tree):
    yield from NASTY
    for key, item in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        for other in mutations(item):
            if isinstance(tree, dict):
                yield {**tree, key: other}
            else:
                yield [*tree[:key], other, *tree[key + 1 :]]


def test_nothing_that_stands_in_an_event_raises():
    events = {
        "contentBlockStart": {"start": {"toolUse": {"name": "f", "toolUseId": "t"}}},
        "contentBlockDelta": {"delta": {"reasoningContent": {"text": "x"}, "toolUse": {"input": "x"}, "text": "y"}},
        "messageStop": {"stopReason": "end_turn"},
        "metadata": {
            "usage": USAGE | {"cacheWriteInputTokens": 1500, "cacheDetails": SPLIT},
            "trace": {"promptRouter": {"invokedModelId": "m"}},
            "serviceTier": {"type": "flex"},
            "performanceConfig": {"latency": "standard"},
        },
    }
    for kind, event in events.items():
        for other in mutations(event):
            reading = stream(frames.frame(kind, other), metadata(), frames.frame(kind, other, "exception"))
            assert all(count >= 0 for portion in reading.portions for count in portion.usage.values())
            assert replace(reading) == reading

import gzip
import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lockpin_core.call import Ceiling, Parsed, Portion, Reading, Request, Terms
from lockpin_core.sizing.bound import ceiling
from lockpin_core.usage import FEE_UNITS, PROMPT_UNITS, Unit, add, nonzero, output_tokens, prompt_tokens
from lockpin_core.wire import wire_named
from lockpin_core.wire.anthropic_usage import MessageScanner, MessageStreamScanner

DATA = Path(__file__).resolve().parent.parent / "data" / "anthropic_messages"
UNITS = {
    "input_uncached": Unit.INPUT,
    "cache_read": Unit.CACHE_READ,
    "cache_write_5m": Unit.CACHE_WRITE_5M,
    "cache_write_1h": Unit.CACHE_WRITE_1H,
    "output": Unit.OUTPUT,
}
REPLIES = sorted(
    path
    for path in DATA.iterdir()
    if "error_4" not in path.name and "error_5" not in path.name and not path.name.endswith(".expect.json")
)
STREAMS = [path for path in REPLIES if ".sse" in path.name]


def body_of(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def expected(path: Path) -> dict:
    return json.loads(path.with_name(f"{path.name}.expect.json").read_text())


def units(usage: dict) -> dict[Unit, int]:
    found = {unit: usage[key] for key, unit in UNITS.items() if usage[key]}
    searches = usage["server_tool_calls"].get("web_search", 0)
    return found | ({Unit.WEB_SEARCH: searches} if searches else {})


def read(body: bytes, *, streamed: bool = True, size: int = 0, asked: Parsed | None = None) -> Reading:
    scanner = MessageStreamScanner(asked) if streamed else MessageScanner(asked)
    for start in range(0, len(body), size or len(body) or 1):
        scanner.feed(body[start : start + (size or len(body))])
    return scanner.result()


def total(reading: Reading) -> dict[Unit, int]:
    usage: dict[Unit, int] = {}
    for portion in reading.portions:
        usage = add(usage, portion.usage)
    return nonzero(usage)


def sse(*events: dict) -> bytes:
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


def start(**usage: object) -> dict:
    return {"type": "message_start", "message": {"id": "msg_1", "model": "claude-sonnet-5-5", "usage": usage}}


def text(piece: str) -> dict:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}


def totals(stop_reason: str | None = "end_turn", **usage: object) -> dict:
    return {"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": usage}


STOP = {"type": "message_stop"}


@pytest.mark.parametrize("path", REPLIES, ids=lambda path: path.name)
def test_sample_reads_as_expected(path: Path):
    wanted = expected(path)

    reading = read(body_of(path), streamed=".sse" in path.name)

    assert reading.readable
    assert reading.complete == wanted["complete"]
    assert total(reading) == units(wanted["usage"])
    assert reading.error == wanted.get("error_type")
    if "model" in wanted:
        assert reading.model == wanted["model"]
    assert reading.terms.tier == wanted.get("service_tier", reading.terms.tier)
    assert reading.terms.geo == wanted.get("inference_geo", reading.terms.geo)
    assert reading.terms.speed == wanted.get("speed")
    for model, usage in wanted.get("per_model", {}).items():
        assert Portion(model, units(usage)) in reading.portions


def test_facts_beside_the_usage_are_read():
    reading = read(body_of(DATA / "anthropic_messages_stream_thinking_tooluse.sse"))

    assert reading.upstream_id == "msg_01B2stream"
    assert reading.terms == Terms("standard", None, "global")
    assert reading.terminal
    assert reading.delivered
    assert reading.hidden_thinking
    thinking, shown = "I should read the file first.", "Reading the file… 日本語"
    tool = "read_file" + "{}" + '{"path": "src/main.py"}'
    assert reading.generated_bytes == len((thinking + shown + tool).encode())


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name)
def test_stream_cut_anywhere_is_complete_only_with_the_final_usage(path: Path):
    body = body_of(path)
    whole = read(body)
    scanner = MessageStreamScanner()
    for end in range(len(body)):
        reading = scanner.result()
        has_final = b"message_delta" in body[:end] and b"}}" in body[:end].rpartition(b"message_delta")[2]
        assert not reading.complete or has_final
        assert not reading.complete or reading.portions == whole.portions
        assert not reading.terminal or body[:end].rstrip().endswith(b'{"type":"message_stop"}')
        scanner.feed(body[end : end + 1])

    assert scanner.result() == whole


def test_prompt_is_stated_by_the_first_event():
    reading = read(body_of(DATA / "anthropic_messages_stream_cut_after_start.sse"))

    assert reading.prompt_stated
    assert not reading.complete
    assert not reading.terminal


def test_f01_running_totals_replace_and_never_add():
    stream = (
        b'event: message_start\ndata: {"type": "message_start", "message": {"usage": {"input_tokens": 25, '
        b'"output_tokens": 1}}}\n\nevent: message_delta\ndata: {"type": "message_delta", "delta": {"stop_reason": '
        b'"end_turn"}, "usage": {"output_tokens": 15}}\n\nevent: message_stop\ndata: {"type": "message_stop"}\n\n'
    )

    reading = read(stream)

    assert reading.complete
    assert total(reading) == {Unit.INPUT: 25, Unit.OUTPUT: 15}


def test_f05_input_that_grows_during_the_stream_counts_as_last_stated():
    stream = sse(
        start(input_tokens=100, output_tokens=1),
        {"type": "message_delta", "usage": {"input_tokens": 2600, "cache_read_input_tokens": 500, "output_tokens": 60}},
        STOP,
    )

    reading = read(stream)

    assert reading.complete
    assert total(reading) == {Unit.INPUT: 2600, Unit.CACHE_READ: 500, Unit.OUTPUT: 60}


def test_f07_cut_stream_tells_the_bytes_that_were_relayed():
    stream = sse(start(input_tokens=10, output_tokens=1), text("x" * 100), text("y" * 100), text("é" * 50))

    reading = read(stream)

    assert not reading.complete
    assert reading.generated_bytes == 300
    assert reading.prompt_stated


def test_f08_zero_reported_with_nothing_delivered_is_a_measured_zero():
    reading = read(sse(start(input_tokens=0, output_tokens=0), totals(input_tokens=0, output_tokens=0), STOP))

    assert reading.complete
    assert total(reading) == {}


def test_f08_zero_reported_with_output_delivered_is_no_usage():
    stream = sse(start(input_tokens=0, output_tokens=0), text("hi"), totals(input_tokens=0, output_tokens=0), STOP)

    reading = read(stream)

    assert not reading.complete
    assert reading.terminal


def test_f08_initial_zero_then_cut_is_unknown():
    reading = read(sse(start(input_tokens=0, output_tokens=0), text("hi")))

    assert not reading.complete
    assert not reading.prompt_stated


def test_f14_search_fee_of_a_stream_is_counted():
    stream = sse(
        start(input_tokens=9548, output_tokens=1),
        totals(output_tokens=528, server_tool_use={"web_search_requests": 1}),
        STOP,
    )

    assert total(read(stream)) == {Unit.INPUT: 9548, Unit.OUTPUT: 528, Unit.WEB_SEARCH: 1}


def test_d02_cache_reads_stand_beside_the_input():
    usage = {
        "input_tokens": 19,
        "cache_read_input_tokens": 39000,
        "cache_creation_input_tokens": 0,
        "output_tokens": 100,
    }

    reading = read(json.dumps({"type": "message", "usage": usage}).encode(), streamed=False)

    assert total(reading) == {Unit.INPUT: 19, Unit.CACHE_READ: 39000, Unit.OUTPUT: 100}


def test_d05_cache_writes_are_split_by_lifetime():
    usage = {
        "input_tokens": 0,
        "cache_creation_input_tokens": 1000000,
        "cache_creation": {"ephemeral_5m_input_tokens": 600000, "ephemeral_1h_input_tokens": 400000},
        "output_tokens": 0,
    }

    reading = read(json.dumps({"type": "message", "content": [], "usage": usage}).encode(), streamed=False)

    assert reading.complete
    assert total(reading) == {Unit.CACHE_WRITE_5M: 600000, Unit.CACHE_WRITE_1H: 400000}


def asked_hour() -> Parsed:
    block = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [block]}]}
    return wire_named("anthropic_messages").parse(Request("POST", "h", "/v1/messages", {}, json.dumps(body).encode()))


def test_writes_without_a_split_are_the_dearest_that_were_asked_for():
    stream = sse(start(input_tokens=1, cache_creation_input_tokens=70, output_tokens=1), totals(output_tokens=2), STOP)

    assert total(read(stream))[Unit.CACHE_WRITE_5M] == 70
    assert total(read(stream, asked=asked_hour()))[Unit.CACHE_WRITE_1H] == 70


def test_writes_beyond_the_split_are_the_dearest():
    split = {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 5}
    stream = sse(
        start(input_tokens=1, cache_creation_input_tokens=15, cache_creation=split, output_tokens=1),
        totals(cache_creation_input_tokens=35, output_tokens=2),
        STOP,
    )

    assert total(read(stream)) == {Unit.INPUT: 1, Unit.CACHE_WRITE_5M: 10, Unit.CACHE_WRITE_1H: 25, Unit.OUTPUT: 2}


def test_top_level_larger_than_its_passes_wins():
    usage = {
        "input_tokens": 100,
        "output_tokens": 50,
        "iterations": [{"type": "message", "input_tokens": 80, "output_tokens": 60, "model": "claude-sonnet-5-5"}],
    }
    message = {"type": "message", "model": "claude-sonnet-5-5", "usage": usage}

    reading = read(json.dumps(message).encode(), streamed=False)

    assert reading.portions == (Portion("claude-sonnet-5-5", {Unit.INPUT: 100, Unit.OUTPUT: 60}),)


def test_error_after_the_final_usage_is_complete_and_says_the_error():
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    reading = read(sse(start(input_tokens=5, output_tokens=1), totals(output_tokens=7), error))

    assert reading.complete
    assert reading.error == "overloaded_error"


def test_totals_without_a_reason_to_stop_are_not_final():
    reading = read(sse(start(input_tokens=5, output_tokens=1), text("hi"), totals(None, output_tokens=7)))

    assert not reading.complete
    assert total(reading) == {Unit.INPUT: 5, Unit.OUTPUT: 7}


def test_end_without_usage_is_terminal_and_not_complete():
    reading = read(sse(start(input_tokens=5, output_tokens=1), text("hi"), STOP))

    assert reading.terminal
    assert not reading.complete
    assert reading.prompt_stated


@pytest.mark.parametrize("bad", [-1, True, 1.5, "1.5", "x", [1], 10**16])
def test_unreadable_count_makes_the_usage_absent(bad: object):
    reading = read(sse(start(input_tokens=5, output_tokens=1), totals(output_tokens=bad), STOP))

    assert not reading.complete
    assert reading.portions == ()


def block(kind: str, **fields: object) -> dict:
    return {"type": "content_block_start", "index": 0, "content_block": {"type": kind, **fields}}


def thinking(piece: str, index: int = 0) -> dict:
    return {"type": "content_block_delta", "index": index, "delta": {"type": "thinking_delta", "thinking": piece}}


SIGNATURE = {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "abc"}}


@pytest.mark.parametrize(
    ("events", "hidden"),
    [
        ([block("thinking", thinking="", signature="")], True),
        ([block("thinking", thinking="", signature=""), SIGNATURE], True),
        ([block("thinking", thinking="", signature=""), thinking("hm")], True),
        ([block("thinking", thinking="all of it, or a summary?")], True),
        ([block("redacted_thinking", data="xyz")], True),
        ([thinking("hm")], True),
        ([SIGNATURE], True),
        ([block("text", text=""), text("hm")], False),
        ([block("tool_use", id="t", name="thinking", input={})], False),
    ],
)
def test_all_thinking_is_hidden_for_its_text_may_be_a_summary(events: list[dict], hidden: bool):
    assert read(sse(start(input_tokens=5, output_tokens=1), *events)).hidden_thinking is hidden


def test_stop_at_the_limit_is_noted():
    stream = sse(start(input_tokens=5, output_tokens=1), totals("max_tokens", output_tokens=7), STOP)

    assert read(stream).stopped_at_limit
    assert not read(sse(start(input_tokens=5), totals("end_turn", output_tokens=7), STOP)).stopped_at_limit


def test_events_without_names_are_read_by_their_type():
    stream = b"".join(
        f"data: {json.dumps(event)}\r\n\r\n".encode()
        for event in (start(input_tokens=5, output_tokens=1), totals(output_tokens=7), STOP)
    )

    assert read(stream).complete


def test_error_object_in_a_200_body_is_an_error():
    reading = read(b'{"type":"error","error":{"type":"overloaded_error","message":"x"}}', streamed=False)

    assert reading.error == "overloaded_error"
    assert not reading.complete


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"usage": {"output', b"\xff\xfe"])
def test_body_that_is_no_object_is_unreadable(body: bytes):
    reading = read(body, streamed=False)

    assert not reading.readable
    assert not reading.complete


def test_message_counts_what_it_generated():
    content = [
        {"type": "thinking", "thinking": "abc", "signature": "s"},
        {"type": "text", "text": "ü"},
        {"type": "tool_use", "id": "t", "name": "n", "input": {"a": 1}},
    ]
    message = {"type": "message", "content": content, "usage": {"input_tokens": 1, "output_tokens": 9}}

    reading = read(json.dumps(message).encode(), streamed=False)

    assert reading.generated_bytes == 3 + 2 + len('n{"a": 1}')
    assert reading.hidden_thinking
    assert reading.delivered


@pytest.mark.parametrize("usage", [{"input_tokens": 100}, {"input_tokens": 0}, {"cache_read_input_tokens": 9}])
def test_zero_output_with_output_delivered_is_no_usage(usage: dict):
    content = [{"type": "text", "text": "hi"}]
    message = {"type": "message", "content": content, "usage": {**usage, "output_tokens": 0}}

    streamed = read(sse(start(**usage, output_tokens=0), text("hi"), totals(output_tokens=0), STOP))
    whole = read(json.dumps(message).encode(), streamed=False)

    assert not streamed.complete
    assert not whole.complete
    assert streamed.prompt_stated == whole.prompt_stated == (100 in usage.values() or 9 in usage.values())
    assert read(json.dumps({**message, "content": []}).encode(), streamed=False).complete


def test_prompt_that_is_not_stated_is_not_zero():
    assert not read(sse(start(output_tokens=1), text("hi"), totals(output_tokens=2), STOP)).complete
    assert not read(json.dumps({"type": "message", "usage": {"output_tokens": 2}}).encode(), streamed=False).complete


def test_totals_that_more_output_follows_were_not_final():
    early = [start(input_tokens=5, output_tokens=1), totals("end_turn", output_tokens=2)]

    assert read(sse(*early)).complete
    assert not read(sse(*early, text("more"), STOP)).complete
    assert not read(sse(*early, block("tool_use", name="f"), STOP)).complete
    assert read(sse(*early, text("more"), totals(output_tokens=9), STOP)).complete


@pytest.mark.parametrize(
    ("started", "size"),
    [
        ({"name": "read_file", "input": {}}, len("read_file{}")),
        ({"name": "é", "input": {"a": "ü"}}, 2 + len('{"a": "ü"}'.encode())),
        ({"name": "f"}, 1),
    ],
)
@pytest.mark.parametrize("kind", ["tool_use", "server_tool_use"])
def test_tool_whose_input_was_cut_off_counts_what_is_known_of_it(kind: str, started: dict, size: int):
    reading = read(sse(start(input_tokens=5, output_tokens=1), block(kind, id="toolu_1", **started)))

    assert reading.generated_bytes == size
    assert reading.delivered
    assert not reading.complete


HUGE = "x" * (3 << 19)  # 1.5 MiB


def test_stream_cut_after_an_event_that_is_too_long_cannot_be_estimated_from_what_was_read():
    stream = sse(start(input_tokens=5, output_tokens=1), text("hi"), text(HUGE))

    for size in (0, 65_536):
        for seen in (stream, stream[:-2], stream[:-9]):
            reading = read(seen, size=size)
            assert not reading.complete
            assert not reading.prompt_stated
            assert reading.delivered


def test_final_usage_after_an_event_that_is_too_long_counts():
    begun = [start(input_tokens=5, output_tokens=1), text(HUGE)]

    reading = read(sse(*begun, totals(output_tokens=400_000), STOP))

    assert reading.complete
    assert total(reading) == {Unit.INPUT: 5, Unit.OUTPUT: 400_000}
    assert not read(sse(*begun, STOP)).complete


def test_usage_before_an_event_that_is_too_long_is_not_final():
    events = [start(input_tokens=5, output_tokens=1), text("hi"), totals(output_tokens=7), text(HUGE)]

    assert not read(sse(*events)).complete
    assert not read(sse(*events, STOP)).complete


def test_first_event_that_is_too_long_hides_the_prompt():
    first = start(input_tokens=5, output_tokens=1)
    first["message"]["content"] = HUGE
    late = sse(first, text("hi"), totals(input_tokens=2, output_tokens=7), STOP)

    assert not read(late).complete
    assert not read(late).prompt_stated


def test_terms_that_cannot_be_read_are_unknown_ones():
    usage = {"input_tokens": 5, "output_tokens": 7, "service_tier": "flex\n", "speed": {"a": 1}, "inference_geo": "ü"}

    reading = read(
        json.dumps({"type": "message", "model": "m\r\n", "id": "x" * 129, "usage": usage}).encode(), streamed=False
    )

    assert reading.terms == Terms("unreadable", "unreadable", "unreadable")
    assert reading.model is None
    assert reading.upstream_id is None
    assert reading.complete


def asked(**fields: object) -> Parsed:
    body = {"model": "claude-sonnet-5-5", "max_tokens": 2000, "messages": [], **fields}
    return wire_named("anthropic_messages").parse(Request("POST", "h", "/v1/messages", {}, json.dumps(body).encode()))


SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}
CODE = {"type": "code_execution_20250825", "name": "code_execution"}
CONTAINER = {"id": "container_1", "expires_at": "2026-11-30T00:00:00Z"}


NAMED = {**totals(output_tokens=7), "delta": {"stop_reason": "end_turn", "container": CONTAINER}}
RAN = block("bash_code_execution_tool_result", content={})


@pytest.mark.parametrize("events", [[NAMED], [RAN, totals(output_tokens=7)], [RAN, NAMED]])
def test_code_that_ran_is_one_session_where_it_is_billed(events: list[dict]):
    stream = sse(start(input_tokens=5, output_tokens=1), *events, STOP)

    assert total(read(stream, asked=asked(tools=[CODE])))[Unit.CODE_SESSION] == 1
    assert Unit.CODE_SESSION not in total(read(stream, asked=asked(tools=[SEARCH])))
    free = [CODE, {**SEARCH, "type": "web_search_20260209"}]
    assert Unit.CODE_SESSION not in total(read(stream, asked=asked(tools=free)))


def test_container_of_a_whole_reply_is_one_session():
    message = {"type": "message", "container": CONTAINER, "usage": {"input_tokens": 1, "output_tokens": 9}}

    reading = read(json.dumps(message).encode(), streamed=False, asked=asked(container="container_1"))

    assert total(reading) == {Unit.INPUT: 1, Unit.OUTPUT: 9, Unit.CODE_SESSION: 1}


def test_reply_without_a_container_ran_no_code():
    reading = read(
        sse(start(input_tokens=5, output_tokens=1), totals(output_tokens=7), STOP), asked=asked(tools=[CODE])
    )

    assert total(reading) == {Unit.INPUT: 5, Unit.OUTPUT: 7}


def test_searches_of_either_place_count():
    searched = {"web_search_requests": 2}
    stream = sse(start(input_tokens=5, output_tokens=1, server_tool_use=searched), totals(output_tokens=7), STOP)

    assert total(read(stream))[Unit.WEB_SEARCH] == 2


def test_compaction_is_of_the_model_that_was_asked_for_and_each_hop_of_its_own():
    def one(kind: str, tokens: int, **model: str) -> dict:
        return {"type": kind, "input_tokens": tokens, "output_tokens": 1, **model}

    passes = [
        one("compaction", 1000),
        one("message", 100, model="claude-sonnet-5-5"),
        one("fallback_message", 10, model="claude-opus-5"),
    ]
    usage = {
        "input_tokens": 10,
        "output_tokens": 1,
        "iterations": passes,
        "server_tool_use": {"web_search_requests": 1},
    }
    message = {"type": "message", "model": "claude-opus-5", "usage": usage}

    reading = read(json.dumps(message).encode(), streamed=False, asked=asked(fallbacks=[{"model": "claude-opus-5"}]))

    assert set(map(str, reading.portions)) == {
        str(Portion("claude-opus-5", {Unit.INPUT: 10, Unit.OUTPUT: 1, Unit.WEB_SEARCH: 1})),
        str(Portion("claude-sonnet-5-5", {Unit.INPUT: 1100, Unit.OUTPUT: 2})),
    }


@pytest.mark.parametrize(
    ("fields", "stated"),
    [
        ({}, True),
        ({"tools": [SEARCH]}, False),
        ({"context_management": {"edits": [{"type": "compact_20260112"}]}}, False),
        ({"compaction": {"type": "summarize"}}, False),
        ({"thread": {"type": "continue", "previous_message_id": "m"}}, False),
        ({"fallbacks": [{"model": "claude-opus-5"}]}, True),
        ({"fallbacks": "default", "context_management": {"edits": [{"type": "compact_20260112"}]}}, False),
    ],
)
def test_prompt_is_not_stated_before_the_end_where_the_provider_may_add_to_it(fields: dict, stated: bool):
    begun = sse(start(input_tokens=5, output_tokens=1), text("hi"))

    assert read(begun, asked=asked(**fields)).prompt_stated is stated
    assert read(begun + sse(totals(output_tokens=7), STOP), asked=asked(**fields)).complete


def test_prompt_is_not_stated_once_another_model_took_over():
    begun = [start(input_tokens=5, output_tokens=1), text("hi")]
    hop = block("fallback", **{"from": {"model": "a"}, "to": {"model": "b"}, "trigger": {"type": "refusal"}})

    assert not read(sse(*begun, hop), asked=asked(fallbacks=[{"model": "b"}])).prompt_stated


@dataclass(frozen=True)
class Facts:
    context_tokens: int | None = 1_000_000
    max_output_tokens: int | None = 128_000
    tokenizer: str = "claude"
    image_tokens: int | None = 5500
    image_rule: None = None
    images_beyond_window: bool = False


LONG = [{"role": "user", "content": "x y " * 100_250}]  # no fewer bytes than any prompt below has tokens
HOUR = {"type": "ephemeral", "ttl": "1h"}
ASKED = {
    "anthropic_messages_cache_5m_1h.json": {"cache_control": HOUR},
    "anthropic_messages_fast_long_context.json": {"cache_control": HOUR, "speed": "fast", "max_tokens": 2048},
    "anthropic_messages_iterations.json": {
        "context_management": {"edits": [{"type": "compact_20260112"}]},
        "tools": [{"type": "advisor_20260301", "name": "advisor", "model": "claude-opus-5-5", "max_uses": 1}],
    },
    "anthropic_messages_stream_web_search.sse": {"tools": [SEARCH]},
    "anthropic_messages_stream_gzip.sse.gz": {"cache_control": HOUR},
    "anthropic_messages_stream_cut_after_start.sse": {"cache_control": HOUR},
    "anthropic_messages_stream_error_event.sse": {"cache_control": HOUR},
    "anthropic_messages_stream_thinking_tooluse.sse": {"cache_control": HOUR},
}


def assert_within(most: Ceiling, usage: dict[Unit, int]) -> None:
    prompts = {unit for unit in usage if unit in PROMPT_UNITS}
    assert prompts <= {*most.prompt_units, Unit.CACHE_READ}
    assert prompt_tokens(usage) <= most.prompt
    assert output_tokens(usage) <= most.output
    assert all(count <= most.fees.get(unit, 0) for unit, count in usage.items() if unit in FEE_UNITS)


@pytest.mark.parametrize("path", REPLIES, ids=lambda path: path.name)
def test_no_sample_bills_more_than_the_bound_of_a_request_that_it_answers(path: Path):
    parsed = asked(messages=LONG, **ASKED.get(path.name, {}))
    reading = read(body_of(path), streamed=".sse" in path.name, asked=parsed)
    most = ceiling(parsed, Facts(), parsed.output_limit)
    assert most is not None

    for portion in reading.portions:
        others = [one for one in parsed.also if one.model == portion.model]
        if others:
            rounds = others[0].rounds
            also = replace(parsed, rounds=rounds, output_rounds=rounds, fees={})
            most_also = ceiling(also, Facts(), others[0].output_limit)
            assert most_also is not None
            assert_within(most_also, dict(portion.usage))
        else:
            assert_within(most, dict(portion.usage))


@pytest.mark.parametrize(
    ("more", "pico"),
    [
        ({"usage": {"cost": 0.0125}}, 12_500_000_000),
        ({"usage": {"cost": 0.01, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.02}}}, 30_000_000_000),
        ({"copilot_usage": {"total_nano_aiu": 250_000_000}}, 2_500_000_000),  # a quarter of a cent
        ({"usage": {"cost": "much"}}, None),
    ],
)
@pytest.mark.parametrize("place", ["message_start", "message_delta", "message_stop", "body"])
def test_a_stated_cost_is_read(more: dict, pico: int | None, place: str):
    told = {"id": "m", "model": "c", "content": [], "usage": {"input_tokens": 5, "output_tokens": 7}}
    stated = told | more | {"usage": told["usage"] | more.get("usage", {})}
    events = {
        "message_start": {"type": "message_start", "message": told},
        "message_delta": {**totals(output_tokens=7)},
        "message_stop": {"type": "message_stop"},
    }
    if place == "body":
        reading = read(json.dumps(stated).encode(), streamed=False)
    else:
        events[place] |= {"message": stated} if place == "message_start" else {"usage": {}} | more
        reading = read(sse(*events.values()))

    assert reading.stated_pico == pico


def test_the_largest_cost_that_is_stated_counts():
    events = start(input_tokens=5, cost=0.03), totals(output_tokens=7, cost=0.02), STOP

    assert read(sse(*events)).stated_pico == 30_000_000_000


METRICS = "amazon-bedrock-invocationMetrics"


def test_usage_of_the_last_event_counts_where_it_is_larger():
    metrics = {"inputTokenCount": 12, "outputTokenCount": 6, "cacheReadInputTokenCount": 40}
    metrics |= {"cacheWriteInputTokenCount": 30, "invocationLatency": 900}
    events = start(input_tokens=0, cache_read_input_tokens=50, output_tokens=1), totals(output_tokens=7)

    reading = read(sse(*events, {**STOP, METRICS: metrics}))

    assert reading.complete
    assert total(reading) == {
        Unit.INPUT: 12,
        Unit.CACHE_READ: 50,
        Unit.CACHE_WRITE_5M: 30,
        Unit.OUTPUT: 7,
    }


def test_usage_that_only_the_last_event_states_is_final():
    usage = {"input_tokens": 12, "output_tokens": 9, "cache_creation": {"ephemeral_1h_input_tokens": 3}}

    reading = read(sse(start(), text("hello"), {**STOP, "usage": usage}))

    assert (reading.complete, reading.terminal) == (True, True)
    assert total(reading) == {Unit.INPUT: 12, Unit.CACHE_WRITE_1H: 3, Unit.OUTPUT: 9}


@pytest.mark.parametrize("bad", ["many", -1, [], 10**30])
def test_unreadable_usage_of_the_last_event_makes_the_call_unknown(bad: object):
    reading = read(sse(start(input_tokens=5), totals(output_tokens=7), {**STOP, METRICS: {"inputTokenCount": bad}}))

    assert (reading.complete, reading.portions) == (False, ())

import json
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.call import Parsed, Reading, Request, Terms
from lockpin_core.usage import Unit
from lockpin_core.wire import wire_named
from lockpin_core.wire.openai_usage import ChatScanner, ChatStreamScanner, normalised

DATA = Path(__file__).resolve().parent.parent / "data" / "openai_chat"
UNITS = {
    "input_uncached": Unit.INPUT,
    "cache_read": Unit.CACHE_READ,
    "cache_write_5m": Unit.CACHE_WRITE_5M,
    "cache_write_1h": Unit.CACHE_WRITE_1H,
    "cache_write_30m": Unit.CACHE_WRITE_30M,
    "cache_write_12h": Unit.CACHE_WRITE_12H,
    "output": Unit.OUTPUT,
    "audio_in": Unit.AUDIO_IN,
    "audio_out": Unit.AUDIO_OUT,
    "image_in": Unit.IMAGE_IN,
    "image_out": Unit.IMAGE_OUT,
}
ENVELOPED = ("error_", "refusal_")  # what is no reply of a 200 stands in an envelope with its status
REPLIES = sorted(
    path for path in DATA.iterdir() if not path.name.startswith(ENVELOPED) and not path.name.endswith(".expect.json")
)
STREAMS = [path for path in REPLIES if path.suffix == ".sse"]


def expected(path: Path) -> dict:
    return json.loads(path.with_suffix(".expect.json").read_text())


def units(wanted: dict) -> dict[Unit, int]:
    found = {unit: wanted[key] for key, unit in UNITS.items() if wanted[key]}
    searches = wanted["server_tool_calls"].get("web_search", 0)
    return found | ({Unit.WEB_SEARCH: searches} if searches else {})


def read(body: bytes, *, streamed: bool = True, size: int = 0, asked: Parsed | None = None) -> Reading:
    scanner = ChatStreamScanner(asked) if streamed else ChatScanner(asked)
    for start in range(0, len(body), size or len(body) or 1):
        scanner.feed(body[start : start + (size or len(body))])
    return scanner.result()


def sse(*chunks: object) -> bytes:
    lines = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks]
    return b"".join(f"data: {line}\n\n".encode() for line in lines)


def piece(text: str | None = None, finish: str | None = None, index: int = 0, **more: object) -> dict:
    return {"choices": [{"index": index, "delta": {"content": text}, "finish_reason": finish}], **more}


def usage(prompt: object = 8, completion: object = 9, **more: object) -> dict:
    return {"prompt_tokens": prompt, "completion_tokens": completion, **more}


@pytest.mark.parametrize("path", REPLIES, ids=lambda path: path.name)
def test_sample_reads_as_expected(path: Path):
    wanted = expected(path)

    reading = read(path.read_bytes(), streamed=path.suffix == ".sse")

    assert reading.readable
    assert reading.complete == wanted["_meta"]["usage_known"]
    if reading.complete:
        assert reading.portions[0].usage == units(wanted)
        assert reading.reasoning == wanted["reasoning"]
        cost = wanted["_meta"]["reported_cost_usd"]
        assert reading.stated_pico == (None if cost is None else int(Decimal(cost) * 10**12))
    else:
        assert reading.portions == ()
    assert reading.model == wanted["_meta"]["model"]
    assert reading.terms.tier == wanted["_meta"]["service_tier"]
    assert (reading.error is not None) == (wanted["_meta"]["terminal"] == "error")
    assert reading.terminal == (wanted["_meta"]["terminal"] == "stop")


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name)
def test_stream_cut_anywhere_is_complete_only_with_the_final_usage(path: Path):
    body = path.read_bytes()
    whole = read(body)
    scanner = ChatStreamScanner()
    for end in range(len(body)):
        reading = scanner.result()
        seen = body[:end]
        final = seen.rpartition(b'"usage":{')[2].count(b"}") >= 2 or b"[]" in seen.rpartition(b"choices")[2]
        assert not reading.complete or (b'"usage":{' in seen and final)
        assert not reading.complete or reading.portions == whole.portions
        assert not reading.terminal or b"[DONE]" in seen
        scanner.feed(body[end : end + 1])

    assert scanner.result() == whole


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name)
@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, 4_000), max_size=8))
def test_any_chunking_of_a_stream_gives_the_same_reading(path: Path, cuts: list[int]):
    body = path.read_bytes()
    scanner = ChatStreamScanner()
    for start, end in pairwise(sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})):
        scanner.feed(body[start:end])

    assert scanner.result() == read(body)


def test_f08_zero_reported_with_nothing_delivered_is_a_measured_zero():
    reading = read(sse(piece("", "stop"), {"choices": [], "usage": usage(0, 0)}, "[DONE]"))

    assert reading.complete
    assert reading.portions[0].usage == {}


def test_f08_zero_reported_with_output_delivered_is_no_usage():
    reading = read(sse(piece("hi", "stop"), {"choices": [], "usage": usage(0, 0)}, "[DONE]"))

    assert not reading.complete
    assert reading.terminal


def test_f08_initial_zero_then_cut_is_unknown():
    assert not read(sse(piece("hi", usage=usage(0, 0)), piece("ho", usage=usage(0, 0)))).complete


def test_f10_usage_of_the_chunk_without_choices_is_read():
    reading = read(sse(piece("hi"), piece(None, "stop"), {"choices": [], "usage": usage(8, 9)}, "[DONE]"))

    assert reading.complete
    assert reading.portions[0].usage == {Unit.INPUT: 8, Unit.OUTPUT: 9}


def test_running_usage_is_final_when_the_last_choice_has_finished():
    running = piece("a", usage=usage(8, 1))
    one_of_two = piece("b", "stop", usage=usage(8, 2))
    other = piece("c", index=1)

    assert not read(sse(running)).complete
    assert not read(sse(running, other, one_of_two)).complete
    assert read(sse(running, other, one_of_two, piece("d", "stop", 1, usage=usage(8, 4)))).complete


def asked(**fields: object) -> Parsed:
    body = {"model": "m", "messages": [], "stream": True, **fields}
    return wire_named("openai_chat").parse(Request("POST", "h", "/v1/chat/completions", {}, json.dumps(body).encode()))


def test_choices_that_have_not_begun_are_waited_for():
    stream = sse(piece("a", "stop", usage=usage(8, 1)))

    assert read(stream).complete
    assert not read(stream, asked=asked(n=2)).complete


def test_writes_without_a_split_follow_the_asked_lifetime():
    details = {"prompt_tokens_details": {"cache_write_tokens": 5}}
    stream = sse({"choices": [], "usage": usage(8, 9, **details)})

    short, long = read(stream), read(stream, asked=asked(prompt_cache_retention="24h"))

    assert short.portions[0].usage == {Unit.INPUT: 3, Unit.CACHE_WRITE_30M: 5, Unit.OUTPUT: 9}
    assert long.portions[0].usage == {Unit.INPUT: 3, Unit.CACHE_WRITE_12H: 5, Unit.OUTPUT: 9}


def test_usage_after_an_error_is_complete():
    error = {"error": {"code": 502, "message": "x"}, "choices": [{"delta": {"content": ""}, "finish_reason": "error"}]}
    reading = read(sse(piece("hi"), error, {"choices": [], "usage": usage()}))

    assert reading.complete
    assert reading.error == "502"


def test_early_usage_chunk_is_not_final_when_more_is_delivered():
    early = {"choices": [], "usage": usage(8, 1)}

    assert not read(sse(early)).complete
    assert not read(sse(piece("a"), early)).complete
    assert not read(sse(early, piece("a"), piece("b", "stop"), "[DONE]")).complete
    assert not read(sse(piece("a", "stop"), early, piece("b"), "[DONE]")).complete
    assert read(sse(early, piece("a", "stop"), {"choices": [], "usage": usage(8, 5)}, "[DONE]")).complete


def test_usage_chunk_is_final_at_the_end_also_when_no_choice_said_that_it_finished():
    stream = sse(piece("a"), {"choices": [], "usage": usage(8, 1)})

    assert not read(stream).complete
    assert read(stream + b"data: [DONE]\n\n").complete


@pytest.mark.parametrize("prompt", [0, 8])
@pytest.mark.parametrize(
    "delta",
    [
        {"content": "hi"},
        {"tool_calls": [{"function": {"name": "f", "arguments": ""}}]},
        {"images": [{"type": "image_url"}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]},
    ],
)
def test_zero_output_with_output_delivered_is_no_usage(prompt: int, delta: dict):
    stream = sse({"choices": [{"delta": delta, "finish_reason": "stop"}]}, {"choices": [], "usage": usage(prompt, 0)})
    body = {"choices": [{"message": delta, "finish_reason": "stop"}], "usage": usage(prompt, 0)}
    silent = {"choices": [{"message": {"content": ""}, "finish_reason": "stop"}], "usage": usage(prompt, 0)}

    assert not read(stream).complete
    assert not read(json.dumps(body).encode(), streamed=False).complete
    assert read(json.dumps(silent).encode(), streamed=False).complete


def test_event_that_is_too_long_takes_usage_back_until_it_is_stated_again():
    final = {"choices": [], "usage": usage(8, 400_000)}
    lost = sse(piece("x" * (3 << 19)))
    begun = sse(piece("hi", "stop"), final)

    assert read(begun).complete
    for size in (0, 65_536):
        assert not read(begun + lost, size=size).complete
        assert not read(begun + lost[:-9], size=size).complete
        assert not read(begun + lost + b"data: [DONE]\n\n", size=size).complete
    assert read(begun + lost + sse(final, "[DONE]")).complete


def test_names_that_cannot_be_read_were_not_said_and_such_a_tier_is_an_unknown_one():
    body = {"id": "a\x00", "model": "\ud800", "service_tier": "é", "choices": [], "usage": usage(1, 2)}

    reading = read(json.dumps(body).encode(), streamed=False)

    assert (reading.upstream_id, reading.model, reading.terms) == (None, None, Terms("unreadable"))
    assert reading.complete


def test_later_unreadable_usage_takes_the_earlier_one_back():
    stream = sse({"choices": [], "usage": usage()}, {"choices": [], "usage": usage(-1)}, "[DONE]")

    assert not read(stream).complete
    assert read(stream).portions == ()


def test_generated_text_tool_input_and_reasoning_are_counted():
    delta = {
        "content": "é",
        "reasoning_content": "abc",
        "reasoning": "abc",
        "tool_calls": [{"index": 0, "function": {"name": "f", "arguments": '{"a"'}}],
    }
    reading = read(sse({"choices": [{"delta": delta}]}, {"choices": [{"delta": {"content": [{"text": "xy"}]}}]}))

    assert reading.generated_bytes == 2 + 3 + 1 + 4 + 2
    assert reading.delivered


def test_length_is_a_stop_at_the_limit():
    assert read(sse(piece("a", "length"))).stopped_at_limit
    assert not read(sse(piece("a", "stop"))).stopped_at_limit


def test_error_object_in_a_200_body_is_an_error():
    reading = read(b'{"error":{"message":"x","type":"server_error","code":null}}', streamed=False)

    assert reading.error == "server_error"
    assert not reading.complete


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"usage": {"out', b"\xff\xfe"])
def test_body_that_is_no_object_is_unreadable(body: bytes):
    assert not read(body, streamed=False).readable


@pytest.mark.parametrize(
    ("stated", "wanted"),
    [
        (usage(10, 4, total_tokens=20, completion_tokens_details={"reasoning_tokens": 6}), (10, 10)),  # beside
        (usage(10, 6, total_tokens=16, completion_tokens_details={"reasoning_tokens": 6}), (10, 6)),  # inside
        (usage(10, 4, completion_tokens_details={"reasoning_tokens": 6}), (10, 10)),  # cannot be inside
        (usage(10, 4, total_tokens=19), (10, 9)),  # nothing explains 5
        (usage(10, 4, total_tokens=12), (10, 4)),  # a total below its parts says nothing
        (usage("10", 4.0), (10, 4)),
        (usage(10, None, total_tokens=13), (10, 3)),
        ({"input_tokens": 7, "output_tokens": 2}, (7, 2)),
    ],
)
def test_totals_are_read(stated: dict, wanted: tuple[int, int]):
    read_units = normalised(stated)

    assert (read_units[Unit.INPUT], read_units[Unit.OUTPUT]) == wanted


@pytest.mark.parametrize(
    "bad",
    [
        usage(-1),
        usage(True),
        usage(float("nan")),
        usage(float("inf")),
        usage(1.5),
        usage("1e3"),
        usage(completion=-9),
        usage(prompt_tokens_details={"cached_tokens": -1}),
        {"completion_tokens": 9},
        {"prompt_tokens": 9},
        {"prompt_tokens": None, "completion_tokens": 9},
    ],
)
def test_unreadable_usage_is_absent(bad: dict):
    reading = read(json.dumps({"choices": [], "usage": bad}).encode(), streamed=False)

    assert not reading.complete
    assert reading.portions == ()


def test_more_cached_than_prompt_is_clamped():
    details = {"cached_tokens": 12, "cache_write_tokens": 12, "image_tokens": 12}

    assert normalised(usage(10, 1, prompt_tokens_details=details)) == {Unit.CACHE_READ: 10, Unit.OUTPUT: 1}


def test_text_is_taken_from_the_cache_before_sound():
    details = {"cached_tokens": 4, "audio_tokens": 5}

    assert normalised(usage(10, 1, prompt_tokens_details=details)) == {
        Unit.INPUT: 1,
        Unit.AUDIO_IN: 5,
        Unit.CACHE_READ: 4,
        Unit.OUTPUT: 1,
    }


def test_split_of_writes_by_lifetime_is_read():
    details = {"cache_write_tokens": 9, "cache_write_tokens_details": {"ttl_30m_tokens": 5, "ttl_12h_tokens": 4}}

    assert normalised(usage(10, 1, prompt_tokens_details=details)) == {
        Unit.INPUT: 1,
        Unit.CACHE_WRITE_30M: 5,
        Unit.CACHE_WRITE_12H: 4,
        Unit.OUTPUT: 1,
    }


def test_groq_states_its_usage_beside_the_chunk_and_counts_once():
    inner = {"usage": usage(3, 4)}

    assert read(sse(piece("a", "stop", x_groq=inner))).portions[0].usage == {Unit.INPUT: 3, Unit.OUTPUT: 4}
    both = sse(piece("a", "stop", x_groq=inner), {"choices": [], "usage": usage(3, 4), "x_groq": inner})
    assert read(both).portions[0].usage == {Unit.INPUT: 3, Unit.OUTPUT: 4}


def test_tool_input_given_as_an_object_is_counted():
    call = {"function": {"name": "f", "arguments": {"a": 1}}}
    reading = read(json.dumps({"choices": [{"message": {"tool_calls": [call]}}]}).encode(), streamed=False)

    assert reading.generated_bytes == 1 + len('{"a": 1}')


def breakdown(*parts: tuple[str, dict]) -> dict:
    return {"models": [{"model": model, "usage": used} for model, used in parts]}


def test_groq_divides_usage_among_the_models_of_a_compound_system():
    parts = breakdown(("a", usage(6, 4)), ("b", usage(4, 5)))
    body = {"model": "compound", "choices": [], "usage": usage(10, 9), "usage_breakdown": parts}

    portions = read(json.dumps(body).encode(), streamed=False).portions
    streamed = read(sse({"model": "compound", "choices": [], "x_groq": {"usage": usage(10, 9), **body}})).portions

    assert [(one.model, dict(one.usage)) for one in portions] == [
        ("a", {Unit.INPUT: 6, Unit.OUTPUT: 4}),
        ("b", {Unit.INPUT: 4, Unit.OUTPUT: 5}),
    ]
    assert streamed == portions


def test_usage_that_a_breakdown_leaves_out_is_of_the_model_that_the_reply_names():
    parts = breakdown(("a", usage(6, 4)))
    body = {"model": "compound", "choices": [], "usage": usage(10, 9), "usage_breakdown": parts}

    portions = read(json.dumps(body).encode(), streamed=False).portions

    assert [(one.model, dict(one.usage)) for one in portions] == [
        ("a", {Unit.INPUT: 6, Unit.OUTPUT: 4}),
        ("compound", {Unit.INPUT: 4, Unit.OUTPUT: 5}),
    ]


@pytest.mark.parametrize("parts", [[1], [{}], [{"model": "a", "usage": {"prompt_tokens": -1}}]])
def test_breakdown_that_cannot_be_read_leaves_the_usage_unknown(parts: list):
    body = {"choices": [], "usage": usage(10, 9), "usage_breakdown": {"models": parts}}

    assert not read(json.dumps(body).encode(), streamed=False).complete


def test_counts_of_another_kind_beside_a_whole_groq_reply_are_not_its_usage():
    counters = {"usage": {"dram_cached_tokens": 3, "sram_cached_tokens": 4}}
    body = {"choices": [], "usage": usage(10, 9), "x_groq": counters}

    assert read(json.dumps(body).encode(), streamed=False).portions[0].usage == {Unit.INPUT: 10, Unit.OUTPUT: 9}
    del body["usage"]
    assert not read(json.dumps(body).encode(), streamed=False).complete


@pytest.mark.parametrize(
    ("chunk", "error"),
    [
        ({"error": {"message": "x", "code": "wrong_api_format"}, "status_code": 500}, "wrong_api_format"),
        ({"x_groq": {"error": "over capacity"}, "choices": []}, "error"),
        ({"choices": [{"delta": {"content": ""}, "finish_reason": "error"}]}, "error"),
        ({"choices": [{"delta": {}, "finish_reason": "error"}], "error": {"code": 502}}, "502"),
    ],
)
def test_errors_inside_a_stream_are_errors(chunk: dict, error: str):
    reading = read(sse(piece("hi"), chunk))

    assert reading.error == error
    assert not reading.complete


def test_cost_is_that_of_the_last_usage():
    running = piece("a", usage=usage(8, 1, cost=0.5))
    last = {"choices": [], "usage": usage(8, 2, cost=0.25)}

    assert read(sse(running, piece("b", "stop"), last)).stated_pico == 25 * 10**10
    assert read(sse(running, piece("b", "stop"), {"choices": [], "usage": usage(8, 2)})).stated_pico is None


def test_copilot_states_its_cost_beside_the_usage():
    body = {"choices": [], "usage": usage(1_000_000, 0), "copilot_usage": {"total_nano_aiu": 500_000_000_000}}

    assert read(json.dumps(body).encode(), streamed=False).stated_pico == 5 * 10**12


def test_figure_with_a_fraction_survives_an_unfinished_event():
    stream = sse({"choices": [], "usage": usage(8, 9, cost=1.5e-05)}, "[DONE]")

    assert read(stream + b'data: {"id": "x"').stated_pico == 15_000_000


def chat(**told: object) -> Parsed:
    body = {"model": "m", "messages": [], **told}
    return wire_named("openai_chat").parse(Request("POST", "h", "/v1/chat/completions", {}, json.dumps(body).encode()))


HEARS = {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"format": "mp3"}}]}]}


@pytest.mark.parametrize(
    ("details", "doubts"),
    [
        ({}, [(Unit.INPUT, 80), (Unit.CACHE_READ, 20)]),
        ({"audio_tokens": 0}, []),
        ({"audio_tokens": 30}, []),
        ({"text_tokens": 70}, [(Unit.INPUT, 10), (Unit.CACHE_READ, 20)]),
        ({"cached_tokens_details": {"text_tokens": 20, "audio_tokens": 0}}, [(Unit.INPUT, 80)]),
        ({"cached_tokens_details": {"text_tokens": 20}}, [(Unit.INPUT, 80), (Unit.CACHE_READ, 20)]),
    ],
)
def test_prompt_without_details_may_be_the_sound_that_was_asked_about(details: dict, doubts: list):
    found = usage(100, 9, prompt_tokens_details={"cached_tokens": 20, **details})
    body = sse(piece("a", "stop"), {"choices": [], "usage": found}, "[DONE]")

    portion = read(body, asked=chat(**HEARS)).portions[0]

    assert [(doubt.counted, doubt.tokens) for doubt in portion.doubts] == doubts
    may_be = {Unit.INPUT: {Unit.AUDIO_IN}, Unit.CACHE_READ: {Unit.CACHE_AUDIO}}
    assert all(doubt.units == may_be[doubt.counted] for doubt in portion.doubts)
    assert read(body, asked=chat()).portions[0].doubts == ()


@pytest.mark.parametrize(
    ("details", "tokens"),
    [({}, 50), ({"reasoning_tokens": 15}, 35), ({"audio_tokens": 12}, 0), ({"text_tokens": 50}, 0)],
)
def test_output_without_details_may_be_the_sound_that_was_asked_for(details: dict, tokens: int):
    speaks = chat(modalities=["text", "audio"], audio={"voice": "alloy", "format": "mp3"})
    found = usage(8, 50, completion_tokens_details=details)
    body = sse(piece("a", "stop"), {"choices": [], "usage": found}, "[DONE]")

    doubts = read(body, asked=speaks).portions[0].doubts

    assert [tuple(doubt) for doubt in doubts] == ([(Unit.OUTPUT, tokens, {Unit.AUDIO_OUT})] if tokens else [])


def test_a_model_that_draws_may_have_drawn_all_of_what_no_detail_explains():
    body = sse(piece("a", "stop"), {"choices": [], "usage": usage(8, 1300)}, "[DONE]")

    doubts = read(body, asked=chat(model="google/gemini-3-pro-image")).portions[0].doubts

    assert [tuple(doubt) for doubt in doubts] == [(Unit.OUTPUT, 1300, {Unit.IMAGE_OUT})]


@pytest.mark.parametrize(
    ("details", "wanted"),
    [
        # 30 of 100 tokens are sound, so 20 of 90 cached ones must be.
        ({"cached_tokens": 90, "audio_tokens": 30}, {"read": 70, "kept": 20, "audio": 10}),
        ({"cached_tokens": 70, "audio_tokens": 30}, {"read": 70, "audio": 30}),
        (
            {"cached_tokens": 50, "audio_tokens": 60, "cached_tokens_details": {"text_tokens": 20, "audio_tokens": 30}},
            {"input": 20, "read": 20, "kept": 30, "audio": 30},
        ),
        (
            {"cached_tokens": 50, "cached_tokens_details": {"audio_tokens": 30}},  # which are sound of the prompt too
            {"input": 50, "read": 20, "kept": 30},
        ),
        (
            {"cached_tokens": 50, "audio_tokens": 40, "cached_tokens_details": {"audio_tokens": 70}},
            {"input": 30, "kept": 50, "audio": 20},
        ),
        (
            {"cached_tokens": 50, "image_tokens": 40, "cached_tokens_details": {"text_tokens": 20, "image_tokens": 30}},
            {"input": 40, "read": 50, "image": 10},
        ),
    ],
)
def test_cached_sound_is_counted_as_such_as_far_as_it_must_be(details: dict, wanted: dict[str, int]):
    named = {
        "input": Unit.INPUT,
        "read": Unit.CACHE_READ,
        "kept": Unit.CACHE_AUDIO,
        "audio": Unit.AUDIO_IN,
        "image": Unit.IMAGE_IN,
    }

    found = normalised(usage(100, 1, prompt_tokens_details=details))

    assert found == {Unit.OUTPUT: 1, **{named[name]: count for name, count in wanted.items()}}
    assert sum(wanted.values()) == 100


COUNTS = st.none() | st.integers(0, 150)


@given(
    details=st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("cached_tokens", "cache_write_tokens", "audio_tokens", "image_tokens"), COUNTS),
            "cached_tokens_details": st.none()
            | st.fixed_dictionaries(
                {}, optional=dict.fromkeys(("text_tokens", "audio_tokens", "image_tokens"), COUNTS)
            ),
        },
    )
)
def test_whatever_the_details_say_each_token_of_the_prompt_is_in_one_unit(details: dict):
    found = normalised(usage(100, 7, prompt_tokens_details=details))

    assert sum(found.values()) == 107
    assert all(count > 0 for count in found.values())
    sound = max(details.get("audio_tokens") or 0, (details.get("cached_tokens_details") or {}).get("audio_tokens") or 0)
    assert found.get(Unit.AUDIO_IN, 0) + found.get(Unit.CACHE_AUDIO, 0) == min(100, sound)


@pytest.mark.parametrize("model", ["anthropic/claude-opus-5-5", "claude-opus-5-5"])
@pytest.mark.parametrize("field", ["cache_write_tokens", "cache_creation_input_tokens"])
@pytest.mark.parametrize(("ttl", "unit"), [("5m", Unit.CACHE_WRITE_5M), ("1h", Unit.CACHE_WRITE_1H)])
def test_cache_writes_of_claude_last_as_long_as_was_asked_for(model: str, field: str, ttl: str, unit: Unit):
    text = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": ttl}}
    asks = chat(model=model, messages=[{"role": "user", "content": [text]}])
    found = usage(100, 9, prompt_tokens_details={field: 60})
    body = sse({"model": model, **piece("a", "stop")}, {"choices": [], "usage": found}, "[DONE]")

    assert read(body, asked=asks).portions[0].usage == {Unit.INPUT: 40, unit: 60, Unit.OUTPUT: 9}

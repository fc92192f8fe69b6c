"""InvokeModel with a body of Anthropic's: its requests, and its replies in one body or in frames."""

import base64
import json
from dataclasses import replace

import frames
import pytest

from lockpin_core.call import Parsed, Reading, Refusal, Request, Rewrite, Terms
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire import wire_named
from lockpin_core.wire.eventstream import MAX_FRAME_BYTES

WIRE = wire_named("bedrock_invoke")
CLAUDE = "us.anthropic.claude-opus-5-5"
ARN = "arn:aws:bedrock:us-east-1:1:application-inference-profile/abc"
BODY = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 500, "messages": [{"role": "user", "content": "hi"}]}
SIGNED = {"authorization": "AWS4-HMAC-SHA256 Credential=AK/20261101/us-east-1/bedrock/aws4_request, Signature=0"}


def request(body: object = BODY, model: str = CLAUDE, *, headers: dict | None = None, stream: bool = False) -> Request:
    path = f"/model/{model}/invoke{'-with-response-stream' if stream else ''}"
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request("POST", "bedrock-runtime.us-east-1.amazonaws.com", path, headers or {}, raw, model)


def parse(more: dict | None = None, model: str = CLAUDE, **how: object) -> Parsed:
    return WIRE.parse(request(BODY | (more or {}), model, **how))


def refused(asked: Request) -> WireError:
    with pytest.raises(WireError) as found:
        WIRE.parse(asked)
    return found.value


def test_the_path_names_the_model_and_says_whether_the_reply_streams():
    found = parse({"model": "another", "stream": False}, stream=True)

    assert (found.model, found.streamed, found.output_limit, found.clamped) == (CLAUDE, True, 500, False)
    assert not parse().streamed


def test_the_arn_of_an_inference_profile_is_the_model_it_ends_in():
    assert parse(model=f"arn:aws:bedrock:us-east-1:1:inference-profile/{CLAUDE}").model == CLAUDE


@pytest.mark.parametrize(
    "authorization",
    [SIGNED["authorization"], "AWS4-ECDSA-P256-SHA256 Credential=AK/20261101/bedrock/aws4_request, Signature=0"],
)
def test_a_signed_body_passes_as_it_is(authorization: str):
    found = parse(headers={"authorization": authorization})

    assert (found.output_settable, found.attested) == (False, True)
    assert parse(headers={"authorization": "Bearer k"}).output_settable


@pytest.mark.parametrize("model", ["us.amazon.nova-lite-v1:0", "meta.llama3-3-70b-instruct-v1:0", "cohere.embed-v4:0"])
def test_the_bodies_of_other_makers_are_refused_by_name_whatever_they_are(model: str):
    error = refused(request(b"\xff", model))

    assert error.code == "unpriced_tool"
    assert "Converse" in str(error)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"prompt": "\n\nHuman: hi", "max_tokens_to_sample": 9}, "unpriced_tool"),
        ({"inputText": "hi"}, "unpriced_tool"),
        (BODY | {"messages": None}, "bad_request"),
        (b"{", "bad_request"),
        (b"[]", "bad_request"),
    ],
)
def test_a_body_in_another_format_is_refused_by_name_and_what_is_none_is_a_bad_request(body: object, code: str):
    assert refused(request(body)).code == code


def test_a_body_that_was_signed_beforehand_passes_as_it_is():
    found = WIRE.parse(replace(request(), presigned=True))

    assert (found.output_settable, found.attested) == (False, True)


def test_what_stands_behind_an_arn_need_not_keep_to_the_limit():
    found = parse(model=ARN)

    assert (found.model, found.output_limit, found.output_settable) == (ARN, None, False)
    nova = {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}
    assert refused(request(nova, ARN)).code == "unpriced_tool"


@pytest.mark.parametrize(
    "more",
    [
        *({"n": 5}, {"best_of": 5}, {"num_generations": 5}, {"max_completion_tokens": 9}, {"logprobs": True}),
        *({"reasoning_effort": "high"}, {"prompt": "x"}, {"N": 2}, {"newThing": []}, {"web_search_options": {}}),
    ],
    ids=str,
)
def test_what_no_messages_request_has_is_refused_behind_an_arn(more: dict):
    """A profile of a model of OpenAI's takes the body of its Chat Completions."""
    error = refused(request(BODY | more, ARN))

    assert error.code == "unpriced_tool"
    assert next(iter(more)) in str(error)


def test_what_a_messages_request_has_passes_behind_an_arn_and_may_be_written_to_a_cache():
    more = {"temperature": 1, "metadata": {"user_id": "u"}, "stop_sequences": ["x"], "anthropic_beta": ["b"], "n": None}

    assert parse(more, ARN).prompt_units == {Unit.INPUT, Unit.CACHE_WRITE_5M}
    assert parse({"n": 5}).prompt_units == {Unit.INPUT}
    hour = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    marked = {"messages": [{"role": "user", "content": [hour]}]}
    assert parse(marked, ARN).prompt_units >= {Unit.INPUT, Unit.CACHE_WRITE_5M, Unit.CACHE_WRITE_1H}


def test_a_prompt_that_amazon_keeps_is_refused():
    assert refused(request(BODY, "arn:aws:bedrock:us-east-1:1:prompt/P")).code == "unpriced_tool"


TIER, LATENCY = "x-amzn-bedrock-service-tier", "x-amzn-bedrock-performanceconfig-latency"


@pytest.mark.parametrize(
    ("headers", "more", "terms"),
    [
        ({}, {}, Terms()),
        ({TIER: "priority"}, {}, Terms(tier="priority")),
        ({TIER: "default"}, {}, Terms(tier="default")),
        ({TIER: "flex"}, {}, Terms()),
        ({LATENCY: "optimized"}, {"inference_geo": "us"}, Terms(speed="optimized", geo="us")),
        ({}, {"speed": "fast", "service_tier": "auto"}, Terms(tier="auto", speed="fast")),
    ],
)
def test_tier_and_latency_stand_in_headers(headers: dict, more: dict, terms: Terms):
    assert parse(more, headers=headers).terms == terms
    assert WIRE.reads_headers == {TIER, LATENCY}


@pytest.mark.parametrize(
    ("headers", "more"),
    [
        ({TIER: "priority"}, {"service_tier": "auto"}),
        ({LATENCY: "standard"}, {"speed": "fast"}),
        ({TIER: "x" * 999}, {}),
    ],
)
def test_terms_that_are_said_twice_or_are_none_are_a_bad_request(headers: dict, more: dict):
    assert refused(request(BODY | more, headers=headers)).code == "bad_request"


def test_a_limit_is_set_in_the_body():
    assert json.loads(WIRE.rewrite(request(), Rewrite(max_output=9)))["max_tokens"] == 9


def test_the_whole_body_is_counted():
    found = WIRE.count_request(request())

    assert found.path == "/model/anthropic.claude-opus-5-5/count-tokens"
    said = json.loads(found.body)["input"]["invokeModel"]["body"]
    assert base64.b64decode(said) == request().body
    assert WIRE.read_count(b'{"inputTokens":42}') == 42


PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA"}}


@pytest.mark.parametrize(
    "asked",
    [
        request(model=ARN),
        request(headers=SIGNED),
        request(b"{"),
        request(BODY | {"messages": [{"role": "user", "content": [PDF]}]}),
        request(BODY | {"context_management": {"edits": [{"type": "compact_20260112"}]}}),
    ],
    ids=["an ARN", "signed", "no body", "hidden", "grows"],
)
def test_nothing_is_counted_where_nothing_may_be_sent_or_more_may_be_read(asked: Request):
    assert WIRE.count_request(asked) is None


def test_a_refusal_is_in_amazons_shape():
    reply = WIRE.refuse(Refusal("budget_exceeded", 402, "lockpin: too much"), {"code": "budget_exceeded"})

    assert json.loads(reply.body)["message"] == "lockpin: too much"
    assert reply.headers["x-amzn-errortype"] == "ServiceQuotaExceededException"
    assert WIRE.error_code(b'{"message":"x"}') is None


# Replies

USAGE = {"input_tokens": 20, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 0, "output_tokens": 1}
START = frames.chunk({"type": "message_start", "message": {"id": "msg_bdrk_1", "model": "claude-x", "usage": USAGE}})
DELTA = frames.chunk({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Grüße"}})
TOTALS = frames.chunk({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}})
METRICS = {"inputTokenCount": 20, "outputTokenCount": 9, "cacheReadInputTokenCount": 5, "cacheWriteInputTokenCount": 0}
END = frames.chunk({"type": "message_stop", "amazon-bedrock-invocationMetrics": METRICS})


def stream(*parts: bytes, to: Parsed | None = None) -> Reading:
    scanner = WIRE.scanner(streamed=True, asked=to)
    for part in parts:
        scanner.feed(part)
    return scanner.result()


def usage(found: Reading) -> dict[Unit, int]:
    (portion,) = found.portions
    return dict(portion.usage)


def test_the_metrics_of_the_last_event_repeat_what_was_stated_and_are_not_added():
    found = stream(START, DELTA, TOTALS, END)

    assert (found.complete, found.terminal, found.model, found.generated_bytes) == (True, True, "claude-x", 7)
    assert usage(found) == {Unit.INPUT: 20, Unit.CACHE_READ: 5, Unit.OUTPUT: 9}


def test_the_model_is_the_paths_unless_another_may_answer():
    """Bedrock's name of it says where it runs and so what it costs; its maker's does not."""
    other = {"fallbacks": [{"model": "claude-y", "max_tokens": 9}]}

    assert stream(START, TOTALS, END, to=parse()).model is None
    assert [portion.model for portion in stream(START, TOTALS, END, to=parse()).portions] == [None]
    assert stream(START, TOTALS, END, to=parse(other)).model == "claude-x"


def test_a_stream_without_its_end_states_its_prompt_alone():
    found = stream(START, DELTA)

    assert (found.complete, found.terminal, found.prompt_stated) == (False, False, True)
    assert usage(found) == {Unit.INPUT: 20, Unit.CACHE_READ: 5, Unit.OUTPUT: 1}


MARKED = {
    "messages": [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]}]
}


@pytest.mark.parametrize("missing", ["cache_read_input_tokens", "cache_creation_input_tokens"])
def test_a_prompt_that_may_be_cached_is_stated_only_where_the_first_event_tells_of_the_cache(missing: str):
    short = {key: count for key, count in USAGE.items() if key != missing}
    start = frames.chunk({"type": "message_start", "message": {"model": "claude-x", "usage": short}})

    assert stream(START, to=parse(MARKED)).prompt_stated
    assert not stream(start, to=parse(MARKED)).prompt_stated
    assert stream(start, to=parse()).prompt_stated
    late = frames.chunk({"type": "message_stop", "usage": {missing: 30}})
    assert sum(usage(stream(start, DELTA, TOTALS, late, to=parse(MARKED))).values()) == 20 + 9 + 30 + (
        5 if missing != "cache_read_input_tokens" else 0
    )


CACHED = ("cache_read_input_tokens", "cache_creation_input_tokens")


def begun(**cached: int) -> bytes:
    """Give a first event that says so much of the cache, and no more."""
    said = {"input_tokens": 20, "output_tokens": 1, **cached}
    return frames.chunk({"type": "message_start", "message": {"model": "claude-x", "usage": said}})


@pytest.mark.parametrize("start", [begun(), begun(**dict.fromkeys(CACHED, 0))], ids=["nothing", "0"])
def test_where_the_cache_was_not_told_of_only_the_end_makes_the_usage_final(start: bytes):
    told = {"cacheReadInputTokenCount": 7, "cacheWriteInputTokenCount": 90_000}
    end = frames.chunk({"type": "message_stop", "amazon-bedrock-invocationMetrics": METRICS | told})
    marked = parse(MARKED)

    assert not stream(start, DELTA, TOTALS, to=marked).complete
    assert not stream(start, DELTA, TOTALS, to=marked).prompt_stated
    whole = stream(start, DELTA, TOTALS, end, to=marked)
    assert (whole.complete, usage(whole)[Unit.CACHE_WRITE_5M], usage(whole)[Unit.CACHE_READ]) == (True, 90_000, 7)
    assert not whole.prompt_stated
    assert stream(start, DELTA, TOTALS, END, to=marked).complete
    assert stream(start, DELTA, TOTALS, to=parse()).complete


def test_totals_that_tell_of_the_cache_are_final_without_the_end():
    told = {"output_tokens": 9, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 30}
    totals = frames.chunk({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": told})

    assert stream(begun(), DELTA, totals, to=parse(MARKED)).complete
    assert stream(START, DELTA, TOTALS, to=parse(MARKED)).complete


@pytest.mark.parametrize("message", ["exception", "error"])
def test_an_exception_is_told_and_the_prompt_stays_stated(message: str):
    found = stream(START, DELTA, frames.frame("modelStreamErrorException", {"message": "x"}, message))

    assert (found.error, found.complete, found.prompt_stated) == ("modelStreamErrorException", False, True)


@pytest.mark.parametrize(
    "lost",
    [
        frames.frame("chunk", b"x" * MAX_FRAME_BYTES),
        frames.frame("chunk", {"bytes": "no base64!"}),
        frames.frame("chunk", {"p": "abc"}),
        frames.frame("chunk", b"no JSON"),
    ],
    ids=["too long", "no base64", "no bytes", "no JSON"],
)
def test_a_chunk_that_cannot_be_read_may_have_been_any(lost: bytes):
    assert not stream(START, lost).prompt_stated
    assert not stream(START, DELTA, TOTALS, lost).complete
    assert stream(START, lost, TOTALS, END).complete


def test_frames_of_other_kinds_pass():
    assert stream(START, frames.frame("news", {"bytes": "x"}), TOTALS, END).complete


def test_a_frame_that_is_not_as_it_was_sent_takes_all_usage_away():
    wrong = bytearray(TOTALS)
    wrong[40] ^= 1

    assert stream(START, DELTA, bytes(wrong)) == Reading(readable=False)


def test_on_what_terms_the_maker_ran_it_is_not_what_bedrock_bills():
    said = USAGE | {"service_tier": "standard", "speed": "standard", "inference_geo": "us"}
    start = frames.chunk({"type": "message_start", "message": {"usage": said}})
    body = {"type": "message", "content": [], "usage": said}
    scanner = WIRE.scanner(streamed=False, asked=parse())
    scanner.feed(json.dumps(body).encode())

    assert stream(start).terms == Terms(geo="us")
    assert scanner.result().terms == Terms(geo="us")
    assert scanner.result().complete


@pytest.mark.parametrize(
    "body",
    [
        {"output": {"message": {"content": [{"text": "x"}]}}, "usage": {"inputTokens": 3, "outputTokens": 4}},
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}},
        {"generation": "x", "prompt_token_count": 3, "generation_token_count": 4},
    ],
)
def test_the_reply_of_another_maker_behind_an_arn_states_nothing(body: dict):
    scanner = WIRE.scanner(streamed=False, asked=parse(model=ARN))
    scanner.feed(json.dumps(body).encode())

    assert not scanner.result().complete

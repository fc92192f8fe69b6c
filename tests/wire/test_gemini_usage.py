import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.call import Parsed, Reading, Request, Terms
from lockpin_core.sizing.bound import ceiling
from lockpin_core.usage import CACHE_READS, FEE_UNITS, Unit, output_tokens, prompt_tokens
from lockpin_core.wire import wire_named

DATA = Path(__file__).resolve().parent.parent / "data"
REPLIES = [
    path
    for folder in ("gemini", "code_assist", "gemini_embed")
    for path in sorted((DATA / folder).iterdir())
    if "expect" not in path.name and "error_4" not in path.name and "error_5" not in path.name
    if "count_tokens" not in path.name
]
STREAMS = [path for path in REPLIES if path.suffix == ".sse"]

CACHED_SOUND = {"gemini_generate_cached_thoughts.json": 500}  # as its note says


def expected(path: Path) -> dict:
    return json.loads(path.with_name(path.name + ".expect.json").read_text())


def units(wanted: dict, sound: int) -> dict[Unit, int]:
    """Make disjoint units of an expected reading, whose audio and images are parts of the uncached input, and `sound` of the cached."""
    tools = wanted["server_tool_calls"]
    found = {
        Unit.INPUT: wanted["input_uncached"] - wanted["audio_in"] - wanted["image_in"],
        Unit.AUDIO_IN: wanted["audio_in"],
        Unit.IMAGE_IN: wanted["image_in"],
        Unit.CACHE_READ: wanted["cache_read"] - sound,
        Unit.CACHE_AUDIO: sound,
        Unit.OUTPUT: wanted["output"],
        Unit.WEB_SEARCH: tools.get("google_search_queries", 0),
        Unit.SEARCH_PROMPT: tools.get("google_search_prompts", 0),
    }
    return {unit: count for unit, count in found.items() if count}


def as_array(body: bytes) -> bytes:
    """Write a stream of events as the array that the provider sends where events were not asked for."""
    blocks = [block.removeprefix(b"data: ") for block in body.split(b"\r\n\r\n") if block.strip()]
    return b"[" + b"\r\n,\r\n".join(json.dumps(json.loads(block), indent=2).encode() for block in blocks) + b"\n]\n"


def asked(path: str = ":generateContent", **more: object) -> Parsed:
    body = {"contents": [{"parts": [{"text": "hi"}]}], **more}
    return wire_named("gemini").parse(Request("POST", "h", f"/m{path}", {}, json.dumps(body).encode(), "m"))


ARRAY = asked(":streamGenerateContent")


def read(body: bytes, *, streamed: bool = True, size: int = 0, asks: Parsed | None = None) -> Reading:
    scanner = wire_named("gemini").scanner(streamed=streamed, asked=asks)
    for start in range(0, len(body), size or len(body) or 1):
        scanner.feed(body[start : start + (size or len(body))])
    return scanner.result()


def sse(*chunks: object) -> bytes:
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n" for chunk in chunks)


def piece(text: str = "", finish: str | None = None, index: int | None = None, **more: object) -> dict:
    candidate: dict = {"content": {"parts": [{"text": text}] if text else []}, **more}
    candidate |= {"finishReason": finish} if finish else {}
    return {"candidates": [candidate | ({"index": index} if index is not None else {})]}


def usage(prompt: object = 8, answer: object = 9, **more: object) -> dict:
    parts = [prompt, answer, *(more.get(key, 0) for key in ("thoughtsTokenCount", "toolUsePromptTokenCount"))]
    total = {"totalTokenCount": sum(parts)} if all(type(part) is int for part in parts) else {}
    return {"usageMetadata": {"promptTokenCount": prompt, "candidatesTokenCount": answer, **total, **more}}


@pytest.mark.parametrize("path", REPLIES, ids=lambda path: path.name)
def test_sample_reads_as_expected(path: Path):
    wanted = expected(path)
    scanner = wire_named(path.parent.name).scanner(streamed=path.suffix == ".sse")

    scanner.feed(path.read_bytes())
    reading = scanner.result()

    assert reading.readable
    assert reading.complete == wanted["complete"]
    assert reading.portions[0].usage == units(wanted["usage"], CACHED_SOUND.get(path.name, 0))
    assert reading.reasoning == wanted["usage"]["reasoning"]
    assert reading.error == wanted.get("error_type")
    assert reading.terminal == wanted["complete"]
    assert path.parent.name == "gemini_embed" or reading.model == "gemini-3.8-flash"


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name)
def test_stream_as_an_array_reads_the_same(path: Path):
    body = path.read_bytes()

    reading = read(as_array(body), streamed=False, asks=ARRAY)

    assert reading == read(body, asks=ARRAY)
    assert read(as_array(body), streamed=False, size=7, asks=ARRAY) == reading


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name)
@pytest.mark.parametrize("is_array", [False, True])
def test_stream_cut_anywhere_is_complete_only_at_its_end_and_never_above_it(path: Path, is_array: bool):
    body = as_array(path.read_bytes()) if is_array else path.read_bytes()
    whole = read(body, streamed=not is_array, asks=ARRAY)
    last = body.rindex(b"finishReason") if b"finishReason" in body else len(body)
    scanner = wire_named("gemini").scanner(streamed=not is_array, asked=ARRAY)
    for end in range(len(body)):
        reading = scanner.result()
        assert not reading.complete or (end > last and reading.portions == whole.portions)
        for portion in reading.portions:
            assert all(count <= whole.portions[0].usage[unit] for unit, count in portion.usage.items())
        scanner.feed(body[end : end + 1])

    assert scanner.result() == whole


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(STREAMS), st.integers(1, 400), st.booleans())
def test_any_chunking_reads_the_same(path: Path, size: int, is_array: bool):
    body = as_array(path.read_bytes()) if is_array else path.read_bytes()

    assert read(body, streamed=not is_array, size=size, asks=ARRAY) == read(body, streamed=not is_array, asks=ARRAY)


def test_of_each_field_the_last_value_holds_and_an_absent_one_takes_nothing_back():
    body = sse(
        piece("a") | usage(8, 1, thoughtsTokenCount=5, cachedContentTokenCount=2),
        piece("b", "STOP") | usage(8, 3, thoughtsTokenCount=None),
        {"usageMetadata": {"trafficType": "ON_DEMAND"}},
    )

    reading = read(body)

    assert reading.complete
    assert reading.portions[0].usage == {Unit.INPUT: 6, Unit.CACHE_READ: 2, Unit.OUTPUT: 8}


def test_usage_without_what_came_after_it_is_not_the_last():
    reading = read(sse(piece("a") | usage(8, 1), piece("b", "STOP")))

    assert reading.terminal
    assert not reading.complete


def test_usage_may_come_after_the_last_piece():
    assert read(sse(piece("a", "STOP"), usage(8, 1))).complete


def test_stream_has_ended_when_every_candidate_that_was_asked_for_has_a_reason_to():
    asks = asked(":streamGenerateContent", generationConfig={"candidateCount": 2})
    first = piece("a", "STOP") | usage(8, 1)

    assert not read(sse(first), asks=asks).complete
    assert not read(sse(first, piece("b", index=1) | usage(8, 2)), asks=asks).complete
    assert read(sse(first, piece("b", "STOP", index=1) | usage(8, 2)), asks=asks).complete


def test_total_that_no_field_explains_is_output():
    reading = read(sse(piece("a", "STOP") | usage(8, 3, toolUsePromptTokenCount=10, totalTokenCount=40)))

    assert reading.portions[0].usage == {Unit.INPUT: 18, Unit.OUTPUT: 22}


def test_sound_and_uncached_images_are_counted_and_so_they_are_on_their_way_out():
    details = {
        "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 60}, {"modality": "IMAGE", "tokenCount": 30}],
        "cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 20}],
        "toolUsePromptTokensDetails": [{"modality": "IMAGE", "tokenCount": 4}],
        "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 7}, {"modality": "AUDIO", "tokenCount": 1}],
        "cachedContentTokenCount": 25,
        "toolUsePromptTokenCount": 5,
    }

    reading = read(sse(piece("a", "STOP") | usage(100, 9, thoughtsTokenCount=2, **details)))

    assert reading.portions[0].usage == {
        Unit.INPUT: 100 - 25 + 5 - 40 - 34,
        Unit.CACHE_READ: 25 - 20,
        Unit.CACHE_AUDIO: 20,
        Unit.AUDIO_IN: 60 - 20,
        Unit.IMAGE_IN: 34,
        Unit.OUTPUT: 3,
        Unit.IMAGE_OUT: 7,
        Unit.AUDIO_OUT: 1,
    }


def test_parts_are_never_more_than_their_whole():
    lies = {"promptTokensDetails": [{"modality": "AUDIO", "tokenCount": 99}], "cachedContentTokenCount": 50}

    reading = read(sse(piece("a", "STOP") | usage(10, 1, **lies)))

    assert reading.portions[0].usage == {Unit.AUDIO_IN: 10, Unit.OUTPUT: 1}


def test_cached_tokens_of_a_prompt_with_sound_are_taken_for_its_sound_where_nobody_says():
    details = {"promptTokensDetails": [{"modality": "TEXT", "tokenCount": 70}, {"modality": "AUDIO", "tokenCount": 30}]}

    reading = read(sse(piece("a", "STOP") | usage(100, 9, cachedContentTokenCount=40, **details)))

    # Of the 40 cached ones all 30 of sound may be: then 10 of text are cached and 60 are not.
    assert reading.portions[0].usage == {Unit.INPUT: 60, Unit.CACHE_READ: 10, Unit.AUDIO_IN: 30, Unit.OUTPUT: 9}


def listens(**config: object) -> Parsed:
    """Ask with a sound."""
    return asked(contents=[{"parts": [{"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}}]}], **config)


HEARD = [{"modality": "AUDIO", "tokenCount": 60}]
DRAWN = [{"modality": "IMAGE", "tokenCount": 7}]


@pytest.mark.parametrize(
    ("details", "doubts"),
    [
        ({}, [(Unit.INPUT, 80), (Unit.CACHE_READ, 20)]),
        ({"promptTokensDetails": HEARD}, []),  # beside a stated sound the rest is text
        ({"promptTokensDetails": [{"modality": "TEXT", "tokenCount": 90}]}, [(Unit.INPUT, 10), (Unit.CACHE_READ, 10)]),
        ({"promptTokensDetails": [{"modality": "TEXT", "tokenCount": 100}]}, []),
        ({"cacheTokensDetails": [{"modality": "TEXT", "tokenCount": 20}]}, [(Unit.INPUT, 80)]),
    ],
)
def test_prompt_without_details_may_be_the_sound_that_was_asked_about(details: dict, doubts: list):
    body = sse(piece("a", "STOP") | usage(100, 9, cachedContentTokenCount=20, **details))

    found = read(body, asks=listens()).portions[0].doubts

    assert [(doubt.counted, doubt.tokens) for doubt in found] == doubts
    # Whatever file is elsewhere may also be pictures; cached ones cost what cached text does.
    may_be = {Unit.INPUT: {Unit.AUDIO_IN, Unit.IMAGE_IN}, Unit.CACHE_READ: {Unit.CACHE_AUDIO}}
    assert all(doubt.units == may_be[doubt.counted] for doubt in found)
    assert read(body, asks=asked()).portions[0].doubts == ()


@pytest.mark.parametrize(
    ("details", "tokens"),
    [
        ({}, 90),
        ({"candidatesTokensDetails": DRAWN}, 0),
        ({"candidatesTokensDetails": DRAWN, "totalTokenCount": 130}, 10),  # what only the total has may be anything
        ({"candidatesTokensDetails": [*DRAWN, {"modality": "TEXT", "tokenCount": 3}]}, 80),
        ({"candidatesTokensDetails": [{"modality": "TEXT", "tokenCount": 90}]}, 0),
    ],
)
def test_output_without_details_may_be_the_pictures_that_were_asked_for(details: dict, tokens: int):
    draws = asked(generationConfig={"responseModalities": ["TEXT", "IMAGE"]})
    body = sse(piece("a", "STOP") | usage(8, 90, thoughtsTokenCount=22, **details))

    found = read(body, asks=draws).portions[0].doubts

    assert [tuple(doubt) for doubt in found] == ([(Unit.OUTPUT, tokens, {Unit.IMAGE_OUT})] if tokens else [])
    assert read(body, asks=asked()).portions[0].doubts == ()


@pytest.mark.parametrize("count", [-1, 1.5, "x", [], True, 10**30])
def test_usage_that_is_no_count_is_absent(count: object):
    reading = read(sse(piece("a", "STOP") | usage(8, count)))

    assert reading.portions == ()
    assert not reading.complete


def test_counts_may_be_digits_as_text():
    assert read(sse(piece("a", "STOP") | usage("8", "9"))).portions[0].usage == {Unit.INPUT: 8, Unit.OUTPUT: 9}


def test_reported_zero_with_output_delivered_is_no_usage():
    assert not read(sse(piece("a", "STOP") | usage(8, 0))).complete
    assert read(sse(piece("", "SAFETY") | usage(8, 0))).complete


def test_a_blocked_prompt_has_ended_and_costs_its_input():
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 8}}

    stream = read(sse(blocked | {"usageMetadata": {"promptTokenCount": 8, "totalTokenCount": 8}}))
    whole = read(json.dumps(blocked).encode(), streamed=False)

    for reading in (stream, whole):
        assert reading.complete
        assert reading.portions[0].usage == {Unit.INPUT: 8}


def grounded(queries: list[str], chunks: list[str], **more: object) -> dict:
    return {
        "groundingMetadata": {"webSearchQueries": queries, "groundingChunks": [{kind: {}} for kind in chunks], **more}
    }


SEARCH = [{"googleSearch": {}}]
MAPS = [{"googleMaps": {}}]


@pytest.mark.parametrize(
    ("tools", "stated", "fees"),
    [
        (SEARCH, grounded(["a", "b", ""], ["web"]), {Unit.WEB_SEARCH: 2, Unit.SEARCH_PROMPT: 1}),
        (SEARCH, grounded(["a"], []), {Unit.WEB_SEARCH: 1, Unit.SEARCH_PROMPT: 1}),
        (SEARCH, grounded([], ["web"]), {Unit.SEARCH_PROMPT: 1}),
        (SEARCH, grounded(["a"], ["web"], imageSearchQueries=["i"]), {Unit.WEB_SEARCH: 2, Unit.SEARCH_PROMPT: 1}),
        (SEARCH, grounded([], []), {}),
        ([{"urlContext": {}}], grounded([], ["web"]), {}),
        (MAPS, grounded([], ["maps"]), {Unit.MAPS: 1, Unit.MAPS_PROMPT: 1}),
        (MAPS, grounded(["a", "b"], []), {Unit.MAPS: 2, Unit.MAPS_PROMPT: 1}),
        (
            SEARCH + MAPS,
            grounded(["a", "b"], ["maps", "web"]),
            {Unit.WEB_SEARCH: 2, Unit.SEARCH_PROMPT: 1, Unit.MAPS: 1, Unit.MAPS_PROMPT: 1},
        ),
        (None, grounded(["a"], ["web"]), {Unit.WEB_SEARCH: 1, Unit.SEARCH_PROMPT: 1}),
        (None, grounded(["a"], ["maps"]), {Unit.MAPS: 1, Unit.MAPS_PROMPT: 1}),
    ],
)
def test_grounding_is_counted_by_query_and_by_prompt(tools, stated, fees):
    body = sse(piece("a", "STOP", **stated) | usage(8, 9))

    reading = read(body, asks=asked(":streamGenerateContent", tools=tools) if tools else None)

    assert reading.portions[0].usage == {Unit.INPUT: 8, Unit.OUTPUT: 9, **fees}


def test_grounding_repeats_and_grows_over_a_stream_and_never_adds_up():
    chunks = [
        piece("a", **grounded(["q"], [])),
        piece("b", **grounded(["q", "r"], ["web"])),
        piece("c", "STOP", **grounded(["r"], [])) | usage(8, 9),
    ]

    assert read(sse(*chunks)).portions[0].usage[Unit.WEB_SEARCH] == 2


def test_the_same_query_twice_is_two_queries():
    body = sse(piece("a", "STOP", **grounded(["q", "q"], ["web"])) | usage(8, 9))

    assert read(body).portions[0].usage[Unit.WEB_SEARCH] == 2


@pytest.mark.parametrize(
    ("said", "tier"),
    [
        ({"serviceTier": "standard"}, "standard"),
        ({"serviceTier": "SERVICE_TIER_PRIORITY"}, "priority"),
        ({"serviceTier": "unspecified"}, None),
        ({"trafficType": "ON_DEMAND"}, "standard"),
        ({"trafficType": "ON_DEMAND_PRIORITY"}, "priority"),
        ({"trafficType": "ON_DEMAND_FLEX"}, "flex"),
        ({"trafficType": "ON_DEMAND_OFFPEAK"}, "standard"),
        ({"trafficType": "PROVISIONED_THROUGHPUT"}, "standard"),
        ({"trafficType": "TRAFFIC_TYPE_UNSPECIFIED"}, None),
        ({"serviceTier": "é"}, "unreadable"),
        ({}, None),
    ],
)
def test_tier_is_brought_to_one_spelling(said: dict, tier: str | None):
    assert read(sse(piece("a", "STOP") | usage(8, 9, **said))).terms == Terms(tier=tier)


@pytest.mark.parametrize(
    "tail",
    [
        b'data: {"error": {"code": 503, "status": "UNAVAILABLE"}}\r\n\r\n',
        b'{\r\n  "error": {\r\n    "code": 503,\r\n    "status": "UNAVAILABLE"\r\n  }\r\n}\r\n',
        b'{"error": {"code": 503, "status": "UNAVAILABLE"}}\n\n',
    ],
)
def test_an_error_inside_a_stream_is_read_with_and_without_its_mark(tail: bytes):
    body = sse(piece("a") | usage(8, 1)) + tail

    for size in (0, 1):
        reading = read(body, size=size)
        assert reading.error == "UNAVAILABLE"
        assert not reading.complete


def test_an_error_after_the_last_usage_does_not_undo_it():
    reading = read(sse(piece("a", "STOP") | usage(8, 9), {"error": {"code": 500, "status": "INTERNAL"}}))

    assert reading.complete
    assert reading.error == "INTERNAL"


def test_what_was_generated_is_counted_in_bytes():
    parts = [
        {"text": "é", "thought": True},
        {"functionCall": {"name": "f", "args": {"a": 1}}},
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
    ]
    reading = read(sse({"candidates": [{"content": {"parts": parts}}]}))

    assert reading.generated_bytes == 2 + len('{"name": "f", "args": {"a": 1}}') + 4
    assert reading.delivered
    assert reading.hidden_thinking


def test_a_chunk_that_is_too_long_leaves_the_usage_that_comes_after_it():
    long = sse(piece("x" * (1 << 20)))

    assert read(long + sse(piece("", "STOP") | usage(8, 9))).complete
    assert not read(sse(piece("a", "STOP") | usage(8, 9)) + long).complete


def test_a_whole_body_is_read_where_a_stream_was_asked_for():
    body = json.dumps(piece("a", "STOP") | usage(8, 9)).encode()

    assert read(body, streamed=False, asks=ARRAY).complete
    assert read(body, streamed=False).complete


def test_a_modality_that_is_no_word_is_none():
    details = [{"modality": {"a": 1}, "tokenCount": 3}, {"modality": ["AUDIO"], "tokenCount": 1}]
    body = json.dumps(piece("a", "STOP") | usage(8, 9, promptTokensDetails=details)).encode()

    found = read(body, streamed=False, asks=asked())

    assert (found.complete, found.portions[0].usage) == (True, {Unit.INPUT: 8, Unit.OUTPUT: 9})


def test_a_body_without_an_object_is_unreadable():
    assert not read(b"<html>", streamed=False, asks=ARRAY).readable
    assert not read(b"<html>", streamed=False).readable


@pytest.mark.parametrize(
    ("more", "is_stated"),
    [
        ({}, True),
        ({"tools": SEARCH}, False),
        ({"cachedContent": "cachedContents/x"}, False),
        ({"generationConfig": {"responseModalities": ["AUDIO"]}}, False),
    ],
)
def test_the_first_chunk_states_the_prompt_where_it_cannot_grow_and_is_text(more: dict, is_stated: bool):
    asks = asked(":streamGenerateContent", **more)

    assert read(sse(piece("a") | usage(8, 1)), asks=asks).prompt_stated is is_stated


def test_facts_of_a_reply():
    told = {"modelVersion": "gemini-x-001", "responseId": "r1"}
    reading = read(sse(piece("a", "MAX_TOKENS") | usage(8, 9) | told))

    assert (reading.model, reading.upstream_id, reading.stopped_at_limit) == ("gemini-x-001", "r1", True)


def test_an_embedding_without_usage_is_not_known():
    scanner = wire_named("gemini_embed").scanner(streamed=False)
    scanner.feed(b'{"embedding":{"values":[0.1]}}')
    reading = scanner.result()

    assert reading.terminal
    assert reading.delivered
    assert not reading.complete


NAMES = st.text(st.characters(), max_size=4) | st.sampled_from(
    ["\ud800", "a\r\nb", "m", "x" * 300, "\x7f", "é", "", 5, [], {}]
)
KEYS = ("modelVersion", "responseId", "traceId", "status", "serviceTier", "trafficType", "finishReason")


@settings(max_examples=150, deadline=None)
@given(st.fixed_dictionaries(dict.fromkeys(KEYS, NAMES)), st.booleans())
def test_every_word_of_a_reading_can_be_written_anywhere(said: dict, streamed: bool):
    inner = piece("a", said["finishReason"]) | usage(8, 9, **said) | said
    body = {"response": inner, "traceId": said["traceId"], "error": {"status": said["status"], "code": said["status"]}}

    reading = read(sse(body) if streamed else json.dumps(body).encode(), streamed=streamed)

    found = (reading.model, reading.upstream_id, reading.error, reading.terms.tier, reading.portions[0].model)
    for word in found:
        assert word is None or (word.isascii() and word.isprintable() and 0 < len(word) <= 128)


class Facts:
    """A model as sizing sees it."""

    context_tokens = 1_000_000
    max_output_tokens = 65_536
    tokenizer = "bytes"
    image_tokens = 2240
    image_rule = None
    images_beyond_window = False


SOUND = {"parts": [{"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}}]}


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("gemini_generate_cached_thoughts.json", {"contents": [SOUND]}),
        ("gemini_grounding_url_context.json", {"contents": [], "tools": [{"googleSearch": {}}, {"urlContext": {}}]}),
        ("gemini_stream.sse", {"contents": [{"parts": [{"text": "word " * 640}]}]}),
        ("vertex_gemini_stream.sse", {"contents": [{"parts": [{"text": "word " * 700}]}]}),
    ],
)
def test_a_reply_is_inside_the_ceiling_of_its_request(name: str, body: dict):
    asks = wire_named("gemini").parse(Request("POST", "h", "/m:generateContent", {}, json.dumps(body).encode(), "m"))
    reading = read((DATA / "gemini" / name).read_bytes(), streamed=name.endswith(".sse"), asks=asks)

    most, found = ceiling(asks, Facts(), 2000), reading.portions[0].usage

    assert most is not None
    assert prompt_tokens(found) <= most.prompt
    assert output_tokens(found) <= most.output
    for unit, count in found.items():
        if unit in FEE_UNITS:
            assert unit in asks.unbounded_fees or count <= most.fees[unit]
        else:
            assert unit in most.prompt_units | most.output_units | set(CACHE_READS)


def test_usage_without_its_total_may_not_be_all_of_it():
    parts = {"promptTokenCount": 8, "candidatesTokenCount": 9}

    assert not read(sse(piece("a", "STOP") | {"usageMetadata": parts})).complete
    assert read(sse(piece("a", "STOP") | {"usageMetadata": parts | {"totalTokenCount": 17}})).complete

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from lockpin_core.call import Content, Doubt, Parsed, Portion, Reading, Request, Terms
from lockpin_core.usage import Unit
from lockpin_core.wire import wire_named
from lockpin_core.wire.responses_usage import ResponsesScanner, ResponsesStreamScanner

DATA = Path(__file__).resolve().parent.parent / "data" / "openai_responses"
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
FEES = {
    "web_search": Unit.WEB_SEARCH,
    "file_search": Unit.FILE_SEARCH,
    "code_interpreter": Unit.CODE_SESSION,
}
REPLIES = sorted(path for path in DATA.glob("*.*") if not path.name.endswith(".expect.json"))
STREAMS = [path for path in REPLIES if path.suffix == ".sse"]
WORKING = ("queued", "in_progress")
ASKED = Parsed(model="m", streamed=True, content=Content(0, 0, 0, 0), output_limit=None)
BACKGROUND = replace(ASKED, background=True)


def expected(path: Path) -> dict:
    return json.loads(path.with_suffix(".expect.json").read_text())


def units(wanted: dict) -> dict[Unit, int]:
    fees = {FEES[kind]: times for kind, times in wanted["server_tool_calls"].items() if kind in FEES}
    return {unit: wanted[key] for key, unit in UNITS.items() if wanted[key]} | fees


def read(body: bytes, *, streamed: bool = True, size: int = 0, asked: Parsed | None = None) -> Reading:
    scanner = ResponsesStreamScanner(asked) if streamed else ResponsesScanner(asked)
    for start in range(0, len(body), size or len(body) or 1):
        scanner.feed(body[start : start + (size or len(body))])
    return scanner.result()


def body(**more: object) -> Reading:
    return read(json.dumps({"id": "resp_1", "object": "response", "model": "gpt-x", **more}).encode(), streamed=False)


def sse(*events: dict) -> bytes:
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


def message(text: str = "hi") -> dict:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


USAGE = {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13}
DONE = {"status": "completed", "usage": USAGE, "output": [message()]}
CREATED = {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "usage": None}}


@pytest.mark.parametrize("path", REPLIES, ids=lambda path: path.name)
def test_sample_reads_as_expected(path: Path):
    wanted = expected(path)
    meta = wanted["_meta"]

    reading = read(path.read_bytes(), streamed=path.suffix == ".sse")

    assert reading.readable
    assert reading.complete == meta["usage_known"]
    assert (reading.portions[0].usage if reading.complete else reading.portions) == (
        units(wanted) if reading.complete else ()
    )
    assert reading.reasoning == wanted.get("reasoning", 0)
    assert (reading.model, reading.terms.tier) == (meta["model"], meta["service_tier"])
    usual = None if path.name.startswith("error_") else "resp_0a1b2c3d4e5f60718293a4b5c6d7e8f90011"
    assert reading.upstream_id == meta.get("response_id", usual)
    assert reading.pending == (meta["terminal"] in WORKING)
    # A body is read as the answer to a poll here: one that says nothing of usage may say it later.
    is_end = meta["usage_known"] or meta["terminal"] in ("cancelled", "failed")
    assert reading.terminal == (is_end if path.suffix == ".json" else meta["terminal"] != "error")
    assert reading.error == meta.get("error_code")
    assert reading.stopped_at_limit == (meta.get("incomplete_reason") == "max_output_tokens")


@pytest.mark.parametrize(("name", "pico"), [("xai_responses", 231_000_000), ("perplexity_agent", 12_062_500_000)])
def test_cost_that_the_reply_states_is_read_to_the_last_digit(name: str, pico: int):
    assert read((DATA / f"{name}.json").read_bytes(), streamed=False).stated_pico == pico


def test_reply_of_a_gateway_states_its_fee_and_what_the_customers_own_key_paid():
    usage = {**USAGE, "cost": 1.2e-05, "is_byok": True, "cost_details": {"upstream_inference_cost": "0.002"}}

    assert body(status="completed", usage=usage).stated_pico == 2_012_000_000


def test_images_that_were_drawn_are_used_by_the_model_that_draws():
    text = json.loads((DATA / "responses_hosted_tools.json").read_bytes())
    text["tools"] = [{"type": "image_generation", "model": "gpt-image-1.5"}]

    portions = read(json.dumps(text).encode(), streamed=False).portions

    assert portions[1:] == (Portion("gpt-image-1.5", {Unit.INPUT: 60, Unit.IMAGE_IN: 160, Unit.IMAGE_OUT: 4160}),)


def test_images_are_the_default_models_where_the_tool_names_none():
    portions = read((DATA / "responses_hosted_tools.json").read_bytes(), streamed=False).portions

    assert [portion.model for portion in portions] == ["gpt-6.1-sol", "gpt-image-2.6-sunburst"]


def test_image_written_as_svg_is_used_by_its_author():
    svg = {"model": "gpt-6-luna", "input_tokens": 7, "output_tokens": 9, "reasoning_tokens": 4, "total_tokens": 16}
    item = {"type": "image_generation_call", "result": "aGk=", "svg_usage": svg}

    portions = body(status="completed", usage=USAGE, output=[item]).portions

    assert portions[1:] == (Portion("gpt-6-luna", {Unit.INPUT: 7, Unit.OUTPUT: 9}),)


def test_cached_text_of_an_image_prompt_is_a_cache_read_and_cached_images_are_not():
    drawn = {
        "input_tokens": 100,
        "input_tokens_details": {"image_tokens": 60, "text_tokens": 40},
        "cached_tokens_details": {"cached_image_tokens": 50, "cached_text_tokens": 30},
        "output_tokens": 20,
    }

    portions = body(status="completed", usage=USAGE, output=[], tool_usage={"image_gen": drawn}).portions

    assert portions[1].usage == {Unit.INPUT: 10, Unit.CACHE_READ: 30, Unit.IMAGE_IN: 60, Unit.IMAGE_OUT: 20}


def search(kind: str | None) -> dict:
    return {"type": "web_search_call", "status": "completed", "action": {"type": kind} if kind else None}


def test_searches_are_counted_from_the_output_where_the_tools_usage_is_absent():
    output = [search("search"), search("open_page"), search("find_in_page"), search(None)]

    assert body(status="completed", usage=USAGE, output=output).portions[0].usage[Unit.WEB_SEARCH] == 2


def test_searches_are_those_that_are_billed_where_the_reply_says_so():
    stated = {"web_search": {"num_requests": 1}}

    usage = body(status="completed", usage=USAGE, output=[search("search")] * 3, tool_usage=stated).portions[0].usage

    assert usage[Unit.WEB_SEARCH] == 1


def test_containers_are_counted_once_each_and_the_clients_own_shell_not_at_all():
    output = [
        {"type": "code_interpreter_call", "container_id": "a"},
        {"type": "code_interpreter_call", "container_id": "a"},
        {"type": "shell_call", "environment": {"type": "container_reference", "container_id": "b"}},
        {"type": "shell_call", "environment": {"type": "local"}},
    ]

    assert body(status="completed", usage=USAGE, output=output).portions[0].usage[Unit.CODE_SESSION] == 2


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed", "cancelled"])
def test_usage_of_any_terminal_status_is_billed(status: str):
    reading = body(status=status, usage=USAGE, output=[message()])

    assert (reading.complete, reading.terminal, reading.pending) == (True, True, False)
    assert [(one.model, one.usage) for one in reading.portions] == [("gpt-x", {Unit.INPUT: 10, Unit.OUTPUT: 3})]


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_response_that_goes_on_states_its_usage_later(status: str):
    reading = body(status=status, usage=None, background=True)

    assert (reading.complete, reading.pending, reading.upstream_id) == (False, True, "resp_1")


def test_usage_of_a_response_that_still_runs_is_not_final():
    assert not body(status="in_progress", usage=USAGE).complete


def test_response_that_cannot_be_asked_for_later_is_not_pending():
    assert not body(id=None, status="queued", usage=None).pending


def test_background_stream_that_was_cut_goes_on():
    begun = sse(CREATED, {"type": "response.output_text.delta", "delta": "Hé"})

    assert read(begun, asked=BACKGROUND).pending
    assert not read(begun, asked=ASKED).pending


def test_background_stream_says_itself_that_it_goes_on():
    created = {"type": "response.created", "response": {**CREATED["response"], "background": True}}

    assert read(sse(created)).pending
    assert not read(sse(created, {"type": "response.completed", "response": DONE})).pending


def test_error_event_does_not_end_what_runs_in_the_background():
    reading = read(sse(CREATED, {"type": "error", "code": "server_error"}), asked=BACKGROUND)

    assert (reading.pending, reading.error) == (True, "server_error")


def test_error_event_of_a_socket_names_its_error_inside():
    assert read(sse({"type": "error", "status": 429, "error": {"code": "slow_down"}})).error == "slow_down"


def test_answer_to_another_question_about_a_response_states_no_usage():
    listing = {"object": "list", "data": [message()], "first_id": "msg_1", "has_more": False}
    deleted = {"id": "resp_1", "object": "response.deleted", "deleted": True}

    for found in (listing, deleted):
        reading = read(json.dumps(found).encode(), streamed=False)
        assert (reading.complete, reading.pending) == (False, False)


def test_compacted_conversation_is_complete_with_its_usage():
    usage = {**USAGE, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0}}
    output = [message("kept"), {"type": "compaction", "encrypted_content": "x"}]

    reading = body(object="response.compaction", output=output, usage=usage)

    assert reading.complete
    (portion,) = reading.portions
    assert (portion.model, portion.usage) == ("gpt-x", {Unit.INPUT: 6, Unit.CACHE_READ: 4, Unit.OUTPUT: 3})


@pytest.mark.parametrize("usage", [{"input_tokens": 0, "output_tokens": 0}, {"input_tokens": 0, "output_tokens": 5}])
def test_nothing_counted_where_something_was_delivered_is_no_usage(usage: dict):
    assert not body(status="completed", usage=usage, output=[message()]).complete


def test_prompt_that_was_only_prepared_is_complete_without_output():
    assert body(status="completed", usage={"input_tokens": 9, "output_tokens": 0}, output=[]).complete


@pytest.mark.parametrize("wrong", [-1, True, "x", 1.5, None])
def test_unreadable_usage_is_absent(wrong: object):
    reading = body(status="completed", usage={"input_tokens": wrong, "output_tokens": 1}, output=[message()])

    assert (reading.complete, reading.portions) == (False, ())


def test_reasoning_beside_the_output_is_added_to_it():
    usage = {
        "input_tokens": 5,
        "output_tokens": 2,
        "total_tokens": 17,
        "output_tokens_details": {"reasoning_tokens": 10},
    }

    reading = body(status="completed", usage=usage)

    assert reading.portions[0].usage == {Unit.INPUT: 5, Unit.OUTPUT: 12}
    assert reading.reasoning == 10


def test_writes_without_a_split_are_of_the_lifetime_that_was_asked_for():
    usage = {**USAGE, "input_tokens_details": {"cache_write_tokens": 8}}

    echoed = body(status="completed", usage=usage, prompt_cache_options={"ttl": "12h"})
    long = replace(ASKED, prompt_units=frozenset({Unit.INPUT, Unit.CACHE_WRITE_30M, Unit.CACHE_WRITE_12H}))
    done = {"type": "response.completed", "response": {**DONE, "usage": usage}}

    assert read(sse(done), asked=long).portions[0].usage == echoed.portions[0].usage
    assert echoed.portions[0].usage == {Unit.INPUT: 2, Unit.CACHE_WRITE_12H: 8, Unit.OUTPUT: 3}
    poll = read(sse(done)).portions[0]
    assert poll.usage == {Unit.INPUT: 2, Unit.CACHE_WRITE_30M: 8, Unit.OUTPUT: 3}
    assert Doubt(Unit.CACHE_WRITE_30M, 8, frozenset({Unit.CACHE_WRITE_12H})) in poll.doubts
    usage["input_tokens_details"]["cache_write_tokens_details"] = {"ttl_30m_tokens": 8}
    assert all(doubt.counted != Unit.CACHE_WRITE_30M for doubt in read(sse(done)).portions[0].doubts)


def test_tier_is_the_one_that_the_end_of_the_stream_says():
    created = {"type": "response.created", "response": {**CREATED["response"], "service_tier": "auto"}}
    done = {"type": "response.completed", "response": {**DONE, "service_tier": "flex"}}

    assert read(sse(created)).terms == Terms(tier="auto")
    assert read(sse(created, done)).terms == Terms(tier="flex")


def test_stream_that_ends_in_an_unknown_event_is_read_by_its_status():
    reading = read(sse(CREATED, {"type": "response.stopped", "response": {"id": "resp_1", **DONE}}))

    assert (reading.complete, reading.terminal) == (True, True)


def done(status: str, tokens: int, **more: object) -> dict:
    usage = {"input_tokens": tokens, "output_tokens": 5}
    return {"type": "response.completed", "response": {"status": status, "usage": usage}, **more}


@pytest.mark.parametrize("more", [{"type": "response.in_progress"}, {"type": 1}, {"type": "x", "delta": "hi"}])
def test_usage_that_is_said_after_the_end_stands(more: dict):
    reading = read(sse(done("completed", 10), done("odd", 7000, **more)))

    assert (reading.complete, [dict(one.usage) for one in reading.portions]) == (
        True,
        [{Unit.INPUT: 7000, Unit.OUTPUT: 5}],
    )


def test_usage_in_a_place_of_its_own_after_the_end_leaves_it_unknown():
    reading = read(sse(done("completed", 10), {"type": "x", "usage": {"input_tokens": 7000, "output_tokens": 5}}))

    assert (reading.complete, reading.portions) == (False, ())


def test_generated_text_is_counted_once_whether_it_comes_in_pieces_or_whole():
    pieces = sse(
        CREATED,
        {"type": "response.reasoning_summary_text.delta", "delta": "hm"},
        {"type": "response.function_call_arguments.delta", "delta": '{"a":1}', "obfuscation": "xxxxx"},
    )
    whole = sse(CREATED, {"type": "response.output_item.done", "item": message("é")})

    assert read(pieces).generated_bytes == 9
    assert read(whole).generated_bytes == 2
    assert read(whole + sse({"type": "response.completed", "response": {**DONE, "output": [message("é")]}})).complete
    assert not read(sse(CREATED)).delivered
    assert read(whole).delivered


def test_text_that_comes_in_pieces_and_again_whole_is_counted_once():
    item = {"type": "response.output_item.done", "item": message("é")}
    done = {"type": "response.completed", "response": {**DONE, "output": [message("é")]}}
    piece = {"type": "response.output_text.delta", "delta": "é"}

    assert read(sse(CREATED, item, done)).generated_bytes == 2
    assert read(sse(CREATED, piece, item, done)).generated_bytes == 2


def test_call_of_a_tool_is_output_that_was_delivered():
    item = {"type": "mcp_call", "id": "m"}

    assert body(status="completed", usage=USAGE, output=[item]).delivered
    assert not body(status="completed", usage={"input_tokens": 5, "output_tokens": 0}, output=[item]).complete


def test_event_that_is_too_long_leaves_the_usage_unknown():
    stream = sse(CREATED, {"type": "response.completed", "response": {**DONE, "instructions": "x" * (2 << 20)}})

    reading = read(stream, size=1 << 16)

    assert (reading.complete, reading.delivered) == (False, True)


IMAGE = {"type": "input_image", "image_url": "https://x/y.png"}
SOUND = {"type": "input_audio", "input_audio": {"data": "A", "format": "mp3"}}


@pytest.mark.parametrize(
    ("parts", "details", "doubts"),
    [
        ([], {"cached_tokens": 4}, []),
        ([IMAGE], {"cached_tokens": 4}, [(Unit.INPUT, 6, {Unit.IMAGE_IN})]),
        (
            [IMAGE, SOUND],
            {"cached_tokens": 4},
            [(Unit.INPUT, 6, {Unit.IMAGE_IN, Unit.AUDIO_IN}), (Unit.CACHE_READ, 4, {Unit.CACHE_AUDIO})],
        ),
        ([IMAGE], {"image_tokens": 3}, []),
        ([IMAGE], {"text_tokens": 8}, [(Unit.INPUT, 2, {Unit.IMAGE_IN})]),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
def test_input_that_no_detail_explains_may_be_what_was_shown(parts: list, details: dict, doubts: list, streamed: bool):
    """Of ten tokens; as in the other formats."""
    told = {"model": "m", "input": [{"role": "user", "content": parts}]}
    asks = wire_named("openai_responses").parse(Request("POST", "h", "/p", {}, json.dumps(told).encode()))
    response = {"status": "completed", "usage": {**USAGE, "input_tokens_details": details}, "output": [message()]}
    raw = sse({"type": "response.completed", "response": response}) if streamed else json.dumps(response).encode()

    portion = read(raw, streamed=streamed, asked=asks).portions[0]

    assert [tuple(doubt) for doubt in portion.doubts] == doubts
    poll = read(raw, streamed=streamed).portions[0]  # of which the request is not known
    wider = {doubt.counted: doubt for doubt in poll.doubts}
    assert all(
        wider[one.counted].tokens == one.tokens and wider[one.counted].units >= one.units for one in portion.doubts
    )


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name)
def test_stream_cut_anywhere_is_complete_only_with_the_terminal_event(path: Path):
    raw = path.read_bytes()
    whole = read(raw)
    last = raw.rfind(b'"usage":{')
    scanner = ResponsesStreamScanner()
    for end in range(len(raw)):
        reading = scanner.result()
        assert reading.portions in ((), whole.portions)
        assert not reading.complete or 0 < last < end
        assert reading.generated_bytes <= whole.generated_bytes
        scanner.feed(raw[end : end + 1])
    assert scanner.result() == whole


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name)
def test_any_chunking_gives_the_same_reading(path: Path):
    raw, dice = path.read_bytes(), random.Random(7)
    whole = read(raw)
    for _ in range(20):
        scanner, at = ResponsesStreamScanner(), 0
        while at < len(raw):
            size = dice.choice((1, 2, 7, 100, 5000))
            scanner.feed(raw[at : at + size])
            at += size
        assert scanner.result() == whole


@pytest.mark.parametrize("path", [path for path in REPLIES if path.suffix == ".json"], ids=lambda path: path.name)
def test_body_cut_anywhere_is_unreadable(path: Path):
    raw = path.read_bytes().rstrip()
    for end in range(0, len(raw), 13):
        reading = read(raw[:end], streamed=False)
        assert (reading.readable, reading.complete, reading.portions) == (False, False, ())


SEARCHED = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
CALLED = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
THOUGHT = {"type": "reasoning", "summary": []}
OUTPUTS = [
    ([], False),
    ([message()], False),
    ([CALLED], False),
    ([THOUGHT, SEARCHED, message()], False),
    ([SEARCHED, THOUGHT, SEARCHED, THOUGHT, CALLED], False),
    ([SEARCHED], True),
    ([SEARCHED, CALLED], True),  # the client has to answer before anything is sampled again
    ([CALLED, SEARCHED], True),
    ([message(), SEARCHED, message(), SEARCHED, CALLED], True),
    ([{"type": "mcp_call", "output": "long"}, {"type": "mcp_approval_request"}], True),
    ([{"type": "code_interpreter_call", "code": "1"}], True),
    ([{"type": "file_search_call"}], True),
    ([{"type": "tool_search_call", "execution": "server"}, {"type": "tool_search_output"}, CALLED], True),
    ([{"type": "tool_search_call", "execution": "client"}], False),
    ([{"type": "shell_call", "environment": {"type": "local"}}], False),
    ([{"type": "shell_call", "environment": {"type": "container_reference"}}], True),
    ([{"type": "shell_call"}], True),
    ([{"type": "something_new"}], True),
]


@pytest.mark.parametrize(("output", "unread"), OUTPUTS)
@pytest.mark.parametrize("status", ["completed", "incomplete"])
def test_what_a_tool_of_the_providers_found_is_unread_until_the_model_goes_on_after_it(output, unread, status):
    ended = {"id": "resp_1", "status": status, "usage": USAGE}
    events = [{"type": "response.output_item.done", "item": item} for item in output]
    last = {"type": f"response.{status}", "response": ended | {"output": output}}
    bare = {"type": f"response.{status}", "response": ended | {"output": []}}

    assert body(status=status, usage=USAGE, output=output).unread is (unread or not output)  # the answer to a poll
    assert read(sse(CREATED, last), asked=ASKED).unread is unread
    assert read(sse(CREATED, *events, last), asked=ASKED).unread is unread
    assert read(sse(CREATED, *events, bare), asked=ASKED).unread is unread
    whole = json.dumps(ended | {"output": output}).encode()
    assert read(whole, streamed=False, asked=ASKED).unread is unread


def test_a_stream_that_is_taken_up_again_shows_nothing_of_what_came_before():
    bare = {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "usage": USAGE}}
    called = {"type": "response.output_item.done", "item": CALLED}
    said = {"type": "response.output_item.done", "item": message()}

    assert read(sse(called, bare)).unread
    assert not read(sse(said, called, bare)).unread


def test_a_call_of_a_tool_that_was_begun_and_whose_end_was_not_seen_is_unread():
    begun = {"type": "response.output_item.added", "item": SEARCHED}
    bare = {"type": "response.incomplete", "response": {"id": "resp_1", "status": "incomplete", "usage": USAGE}}

    assert read(sse(CREATED, begun, bare), asked=ASKED).unread


@pytest.mark.parametrize(
    ("stated", "shrunk"),
    [({}, None), ({"image": None}, None), ({"image": {"context_compression": "disabled"}}, False)]
    + [({"image": {"context_compression": word}}, True) for word in ("enabled", "auto", "new")],
)
def test_a_reply_says_whether_images_were_shrunk(stated, shrunk):
    assert body(**DONE, **stated).shrunk is shrunk
    assert read(sse(CREATED, {"type": "response.completed", "response": DONE | stated})).shrunk is shrunk


def test_an_item_that_began_before_a_find_has_not_read_it():
    began = {"type": "response.output_item.added", "item": message() | {"id": "msg_1"}}
    ended = {"type": "response.output_item.done", "item": message() | {"id": "msg_1"}}
    found = {"type": "response.output_item.done", "item": SEARCHED}
    again = {"type": "response.output_item.added", "item": message() | {"id": "msg_2"}}
    bare = {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "usage": USAGE}}

    assert read(sse(CREATED, began, found, ended, bare), asked=ASKED).unread
    assert not read(sse(CREATED, began, found, ended, again, bare), asked=ASKED).unread
    assert not read(sse(CREATED, found, ended, bare), asked=ASKED).unread  # whose beginning nobody saw

import json
from itertools import pairwise
from pathlib import Path

import httpx2 as httpx
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.call import Parsed, Reading, Refusal, Request, Rewrite, Terms
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire import wire_named
from lockpin_core.wire.openai_completions import OpenAICompletions

DATA = Path(__file__).resolve().parent.parent / "data" / "openai_completions"
WIRE = OpenAICompletions()
REPLIES = [path for path in sorted(DATA.iterdir()) if not path.name.endswith(".expect.json")]
STREAMS = [path for path in REPLIES if path.suffix == ".sse"]


def request(body: object) -> Request:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request("POST", "api.openai.com", "/v1/completions", {}, raw)


def parse(**fields: object) -> Parsed:
    return WIRE.parse(request({"model": "gpt-3.5-turbo-instruct", **fields}))


def read(body: bytes, *, streamed: bool = True, asked: Parsed | None = None) -> Reading:
    scanner = WIRE.scanner(streamed=streamed, asked=asked)
    scanner.feed(body)
    return scanner.result()


@pytest.mark.parametrize(
    ("fields", "prompts", "choices"),
    [
        ({}, 1, 1),
        ({"prompt": None}, 1, 1),
        ({"prompt": "x"}, 1, 1),
        ({"prompt": ["x", "y", "z"]}, 3, 3),
        ({"prompt": [1, 2, 3]}, 1, 1),
        ({"prompt": [[1], [2, 3]], "n": 2}, 2, 4),
        ({"prompt": ["x", "y"], "n": 2, "best_of": 5}, 2, 10),
        ({"prompt": "x", "n": None, "best_of": 3}, 1, 3),
    ],
)
def test_each_prompt_has_as_many_choices_as_the_server_makes(fields: dict, prompts: int, choices: int):
    parsed = parse(**fields)

    assert parsed.content.prompts == prompts
    assert parsed.choices == choices


def test_token_ids_count_one_each():
    content = parse(prompt=[[1, 2, 3], [4]]).content

    assert content.extra_tokens == 4
    assert content.text_bytes == parse(prompt="").content.text_bytes


def test_every_prompt_has_the_suffix():
    one, three = (parse(prompt=["a"] * prompts, suffix="end").content for prompts in (1, 3))

    assert one.extra_tokens == 0
    assert three.extra_tokens >= 2 * len("end")


def test_text_of_prompt_and_suffix_is_counted():
    content = parse(prompt="héllo", suffix="end").content

    assert content.text_bytes == len("modelgpt-3.5-turbo-instructsuffixend") + 6


def test_limit_is_sixteen_where_the_request_does_not_say():
    assert parse(prompt="x").output_limit == 16
    assert parse(prompt="x", max_tokens=None).output_limit == 16
    assert parse(prompt="x", max_tokens=0, echo=True).output_limit == 0
    assert parse(prompt="x", max_tokens=700).output_limit == 700


def test_limit_is_unknown_on_hosts_that_only_speak_like_openai():
    compatible = wire_named("compatible_completions")

    assert compatible.parse(request({"model": "m", "prompt": "x"})).output_limit is None
    assert compatible.parse(request({"model": "m", "prompt": "x", "max_tokens": 9})).output_limit == 9
    assert compatible.parse(request({"model": "m", "prompt": "x"})).output_settable


def test_echo_may_be_billed_as_output():
    plain, echoing = parse(prompt="hello", n=2), parse(prompt="hello", n=2, echo=True)

    assert plain.extra_output == parse(prompt="hello", echo=False).extra_output == 0
    assert echoing.extra_output >= 2 * len("hello")


def test_stream_asks_for_usage_or_not():
    assert parse(prompt="x").asks_usage
    assert not parse(prompt="x", stream=True).asks_usage
    assert parse(prompt="x", stream=True, stream_options={"include_usage": True}).asks_usage
    assert parse(prompt="x", service_tier="flex").terms == Terms("flex")


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": {}},
        {"prompt": 5},
        {"prompt": ["x", None]},
        {"prompt": [1, "x"]},
        {"prompt": [-1]},
        {"prompt": [[1.5]]},
        {"prompt": "x", "max_tokens": -1},
        {"prompt": "x", "max_tokens": "9"},
        {"prompt": "x", "n": 0},
        {"prompt": "x", "best_of": 129},
        {"prompt": "x", "echo": "yes"},
        {"prompt": "x", "stream": 1},
        {"prompt": "x", "stream": True, "stream_options": [1]},
        {"prompt": "x", "maxTokens": 9},
        {"prompt": "x", "model": None},
    ],
)
def test_malformed_request_is_a_bad_request(fields: dict):
    with pytest.raises(WireError) as raised:
        parse(**fields)

    assert raised.value.code == "bad_request"


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": [{"type": "text", "text": "x"}]},
        {"prompt": "x", "provider": {"max_price": {"prompt": 1}}},
        {"prompt": "x", "models": ["a"]},
        {"prompt": "x", "model": "a:online"},
        {"prompt": "x", "thinking_budget": 5},
        {"prompt": "x", "brand_new": {"a": 1}},
    ],
)
def test_what_cannot_be_bounded_is_unpriced(fields: dict):
    with pytest.raises(WireError) as raised:
        parse(**fields)

    assert raised.value.code == "unpriced_tool"


def test_model_that_the_path_names_is_the_one():
    assert WIRE.parse(Request("POST", "h", "/p", {}, b'{"prompt":"x"}', path_model="dep")).model == "dep"


def test_texts_are_those_that_were_counted():
    body = {"model": "m", "prompt": ["ab", [1], "é"], "suffix": "s"}
    texts = WIRE.texts(request(body))

    assert texts is not None
    assert sum(len(text.encode()) for text in texts) == WIRE.parse(request(body)).content.text_bytes
    assert WIRE.texts(request({"model": "m", "prompt": "x", "file_id": "f"})) is None


def test_same_call_is_known_whether_it_streams_and_whatever_its_limit():
    first = WIRE.same_call(request({"model": "m", "prompt": "x", "max_tokens": 5}))

    assert first == WIRE.same_call(request({"model": "m", "prompt": "x", "stream": True}))
    assert first != WIRE.same_call(request({"model": "m", "prompt": "y"}))


@pytest.mark.parametrize("known", [True, False])
def test_limit_and_usage_are_written_and_every_other_byte_stays(known: bool):
    raw = request(b'{ "model":"m", "prompt": "\xc3\xa9", "max_tokens" : 700,\n"stream":true}')
    parsed = WIRE.parse(raw) if known else None

    changed = WIRE.rewrite(raw, Rewrite(9, ask_usage=True), output_field="max_completion_tokens", parsed=parsed)

    assert changed == (
        b'{"stream_options":{"include_usage":true}, "model":"m", "prompt": "\xc3\xa9", "max_tokens" : 9,\n"stream":true}'
    )
    assert WIRE.rewrite(raw, Rewrite(), parsed=parsed) is raw.body


def test_limit_is_added_under_its_only_name():
    raw = request(b'{"model":"m","prompt":"x"}')

    assert WIRE.rewrite(raw, Rewrite(9)) == b'{"max_tokens":9,"model":"m","prompt":"x"}'


def units(wanted: dict) -> dict[Unit, int]:
    names = {"input_uncached": Unit.INPUT, "cache_read": Unit.CACHE_READ, "output": Unit.OUTPUT}
    return {unit: wanted[name] for name, unit in names.items() if wanted[name]}


@pytest.mark.parametrize("path", REPLIES, ids=lambda path: path.name)
def test_sample_reads_as_expected(path: Path):
    wanted = json.loads(path.with_suffix(".expect.json").read_text())

    reading = read(path.read_bytes(), streamed=path.suffix == ".sse")

    assert reading.complete == wanted["_meta"]["usage_known"]
    if reading.complete:
        assert reading.portions[0].usage == units(wanted)
    assert reading.model == wanted["_meta"]["model"]
    assert reading.terminal == (wanted["_meta"]["terminal"] == "stop")
    assert reading.delivered


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name)
def test_stream_cut_anywhere_states_no_more_than_the_whole(path: Path):
    body = path.read_bytes()
    whole, scanner = read(body), WIRE.scanner(streamed=True)
    for end in range(len(body)):
        reading = scanner.result()
        assert not reading.complete or reading.portions == whole.portions
        assert reading.generated_bytes <= whole.generated_bytes
        assert not reading.terminal or b"[DONE]" in body[:end]
        scanner.feed(body[end : end + 1])

    assert scanner.result() == whole


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name)
@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, 1_500), max_size=8))
def test_any_chunking_of_a_stream_gives_the_same_reading(path: Path, cuts: list[int]):
    body = path.read_bytes()
    scanner = WIRE.scanner(streamed=True)
    for start, end in pairwise(sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})):
        scanner.feed(body[start:end])

    assert scanner.result() == read(body)


def test_generated_text_is_counted_and_a_stop_at_the_limit_seen():
    reading = read((DATA / "sse_crlf_split.sse").read_bytes())

    assert reading.generated_bytes == len(" café".encode()) + len(" 日本".encode())
    assert reading.stopped_at_limit


def test_choices_that_have_not_begun_are_waited_for():
    running = {"text": "a", "index": 0, "finish_reason": "stop"}
    stream = (
        b"data: " + json.dumps({"choices": [running], "usage": {"prompt_tokens": 4, "completion_tokens": 1}}).encode()
    )

    assert read(stream + b"\n\n", asked=parse(prompt="x")).complete
    assert not read(stream + b"\n\n", asked=parse(prompt=["x", "y"])).complete


def test_usage_chunk_is_taken_out_of_the_stream():
    usage_filter = WIRE.usage_filter()
    assert usage_filter is not None
    body = (DATA / "sse_crlf_split.sse").read_bytes()

    passed = b"".join(usage_filter.feed(body[i : i + 1]) for i in range(len(body))) + usage_filter.close()

    events = body.split(b"\r\n\r\n")
    assert passed == b"\r\n\r\n".join(event for event in events if b'"choices":[],' not in event)
    assert len(passed) < len(body)


def client(status: int, headers: dict[str, str], body: bytes, calls: list[httpx.Request]) -> openai.OpenAI:
    def answer(sent: httpx.Request) -> httpx.Response:
        calls.append(sent)
        return httpx.Response(status, headers=headers, content=body)

    transport = httpx.MockTransport(answer)
    return openai.OpenAI(api_key="k", base_url="http://h/v1", http_client=httpx.Client(transport=transport))


def test_client_reads_the_stream_without_the_usage_chunk():
    usage_filter = WIRE.usage_filter()
    assert usage_filter is not None
    passed = usage_filter.feed((DATA / "sse_crlf_split.sse").read_bytes()) + usage_filter.close()

    with client(200, {"content-type": "text/event-stream"}, passed, calls := []) as sdk:
        chunks = list(sdk.completions.create(model="m", prompt=["x", "y"], stream=True))

    assert "".join(chunk.choices[0].text for chunk in chunks) == " café 日本"
    assert WIRE.parse(request(calls[0].content)).choices == 2


def test_client_raises_its_error_with_our_words_after_one_request():
    reply = WIRE.refuse(Refusal("budget_exceeded", 402, "lockpin: too much"), {"code": "budget_exceeded"})
    calls: list[httpx.Request] = []

    with client(reply.status, dict(reply.headers), reply.body, calls) as sdk:
        with pytest.raises(openai.APIStatusError, match="lockpin: too much") as raised:
            sdk.completions.create(model="m", prompt="x")
        with pytest.raises(openai.APIStatusError, match="lockpin: too much"):
            sdk.embeddings.create(model="m", input="x")

    assert raised.value.code == "budget_exceeded"
    assert len(calls) == 2
    assert wire_named("openai_embeddings").parse(request(calls[1].content)).content.prompts == 1

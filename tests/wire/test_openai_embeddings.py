import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockpin_core.call import Content, Parsed, Reading, Request, Rewrite, Terms
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.openai_embeddings import EmbeddingsScanner, OpenAIEmbeddings

DATA = Path(__file__).resolve().parent.parent / "data" / "openai_embeddings"
WIRE = OpenAIEmbeddings()
REPLIES = [path for path in sorted(DATA.glob("*.json")) if not path.name.endswith(".expect.json")]


def request(body: object) -> Request:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Request("POST", "api.openai.com", "/v1/embeddings", {}, raw)


def parse(**fields: object) -> Parsed:
    return WIRE.parse(request({"model": "text-embedding-3-small", **fields}))


def read(body: bytes, size: int = 0) -> Reading:
    scanner = EmbeddingsScanner()
    for start in range(0, len(body), size or len(body) or 1):
        scanner.feed(body[start : start + (size or len(body))])
    return scanner.result()


@pytest.mark.parametrize(
    ("given_input", "text_bytes", "ids", "prompts"),
    [
        ("héllo", 6, 0, 1),
        (["héllo", "x"], 7, 0, 2),
        ([1, 2, 3], 0, 3, 1),
        ([[1, 2, 3], [4]], 0, 4, 2),
        (["ab", [1, 2]], 2, 2, 2),
        ([], 0, 0, 1),
    ],
)
def test_input_is_counted_in_each_of_its_forms(given_input: object, text_bytes: int, ids: int, prompts: int):
    content = parse(input=given_input).content

    assert (content.text_bytes, content.extra_tokens) == (text_bytes, ids)
    assert (content.prompts, content.messages) == (prompts, prompts)
    assert content.hidden is None


def test_there_is_no_output_to_bound_and_nothing_to_rewrite():
    parsed = parse(input="x", encoding_format="base64", dimensions=5, user="u")

    assert (parsed.output_limit, parsed.output_settable, parsed.streamed) == (0, False, False)
    assert parsed.prompt_units == {Unit.INPUT}
    assert parsed.content.text_bytes == 1
    assert parse(input="x", service_tier="flex").terms == Terms("flex")
    raw = request({"model": "m", "input": "x"})
    assert WIRE.rewrite(raw, Rewrite(max_output=5, ask_usage=True)) == raw.body
    assert WIRE.usage_filter() is None


def test_text_that_nobody_knows_may_stand_before_every_prompt():
    assert parse(input=["a", "b"], brand_new="héllo").content.extra_tokens == 2 * 2 * (len("brand_new") + 6 + 2 * 2)
    assert parse(input="a", input_type="query", truncate="END").content.extra_tokens == 0


def test_reference_in_an_unknown_place_hides_input():
    assert parse(input="a", file_id="f").content.hidden == "reference"
    assert WIRE.texts(request({"model": "m", "input": "a", "file_id": "f"})) is None


def test_model_that_the_path_names_is_the_one():
    at = Request("POST", "h", "/p", {}, b'{"input":"x"}', path_model="dep")

    assert WIRE.parse(at).model == "dep"


def test_texts_are_the_input_alone():
    assert WIRE.texts(request({"model": "m", "input": ["ab", [1], "c"], "user": "u"})) == ["ab", "c"]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"input": None},
        {"input": {}},
        {"input": 5},
        {"input": [1, "x"]},
        {"input": [1, 2.0]},
        {"input": [1, -1]},
        {"input": [1, True]},
        {"input": [1, None]},
        {"input": [None]},
        {"input": [[1, "x"]]},
        {"input": "x", "model": 5},
        {"input": "x", "Model": "y"},
    ],
)
def test_malformed_request_is_a_bad_request(fields: dict):
    with pytest.raises(WireError) as raised:
        parse(**fields)

    assert raised.value.code == "bad_request"


@pytest.mark.parametrize(
    "fields",
    [
        {"input": [{"content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        {"input": "x", "provider": {"max_price": {"prompt": 1}}},
        {"input": "x", "models": ["a"]},
        {"input": "x", "documents": ["a"]},
        {"input": "x", "brand_new": {"a": 1}},
        {"input": "x", "model": "m@preset/x"},
    ],
)
def test_what_cannot_be_bounded_is_unpriced(fields: dict):
    with pytest.raises(WireError) as raised:
        parse(**fields)

    assert raised.value.code == "unpriced_tool"


@pytest.mark.parametrize("path", REPLIES, ids=lambda path: path.name)
def test_sample_reads_as_expected_however_it_is_cut(path: Path):
    wanted = json.loads(path.with_suffix(".expect.json").read_text())
    body, cost = path.read_bytes(), wanted["_meta"]["reported_cost_usd"]

    for size in (0, 1, 7):
        reading = read(body, size)
        assert reading.complete
        assert reading.portions[0].usage == {Unit.INPUT: wanted["input_uncached"]}
        assert reading.model == wanted["_meta"]["model"]
        assert reading.stated_pico == (None if cost is None else int(Decimal(cost) * 10**12))
        assert reading.terminal
    assert not any(read(body.rstrip()[:end]).complete for end in range(len(body.rstrip())))


def long_body(vectors: int, **more: object) -> bytes:
    data = [{"object": "embedding", "index": i, "embedding": [0.123456789] * 1_500} for i in range(vectors)]
    return json.dumps({"object": "list", "data": data, **more}).encode()


@pytest.mark.parametrize("size", [0, 1_000, 65_536])
def test_long_reply_is_read_from_its_ends_in_bounded_memory(size: int):
    usage = {"prompt_tokens": 70, "total_tokens": 70, "cost": 1.4e-06}
    body = long_body(40, model="text-embedding-3-small", usage=usage)
    assert len(body) > 700_000
    scanner = EmbeddingsScanner()
    for start in range(0, len(body), size or len(body)):
        scanner.feed(body[start : start + (size or len(body))])
        assert len(scanner._head) + len(scanner._tail) <= 1 << 18 or not size
    reading = scanner.result()

    assert reading.complete
    assert reading.portions[0].usage == {Unit.INPUT: 70}
    assert (reading.model, reading.stated_pico, reading.delivered) == ("text-embedding-3-small", 1_400_000, True)


def test_long_reply_that_states_its_usage_first_is_read_too():
    head = b'{"usage": {"prompt_tokens": 70, "total_tokens": 70}, "model": "m", '

    assert read(head + long_body(40)[1:]).portions[0].usage == {Unit.INPUT: 70}


@pytest.mark.parametrize("size", range((1 << 17) - 20, (1 << 17) + 120, 7))
def test_usage_is_found_wherever_the_two_ends_meet(size: int):
    start, end = b'{"data":["', b'"],"model":"m","usage":{"prompt_tokens":70,"total_tokens":70}}'

    body = start + b"A" * (size - len(start) - len(end)) + end

    assert read(body, 1_000).portions[0].usage == {Unit.INPUT: 70}
    assert read(body) == read(body, 1_000)


def test_long_reply_that_was_cut_is_unreadable():
    body = long_body(40, usage={"prompt_tokens": 70, "total_tokens": 70})
    early = b'{"usage": {"prompt_tokens": 70, "total_tokens": 70}, "model": "m", ' + long_body(40)[1:]

    assert not read(body[:-2]).complete
    assert not read(early[:-5]).readable
    assert not read(long_body(40)).complete
    assert read(long_body(40)).readable


def test_zero_with_vectors_delivered_is_no_usage():
    usage = {"prompt_tokens": 0, "total_tokens": 0}

    assert not read(json.dumps({"data": [1], "usage": usage}).encode()).complete
    assert read(json.dumps({"data": [], "usage": usage}).encode()).complete


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": -1}, {"prompt_tokens": None}, {"completion_tokens": 5}])
def test_usage_that_cannot_be_read_is_absent(usage: object):
    reading = read(json.dumps({"data": [1], "usage": usage}).encode())

    assert not reading.complete
    assert reading.portions == ()


def test_more_in_total_than_in_the_prompt_is_charged():
    usage = {"prompt_tokens": 5, "total_tokens": 9}

    assert read(json.dumps({"data": [1], "usage": usage}).encode()).portions[0].usage == {Unit.INPUT: 9}


def test_error_in_a_200_body_is_an_error():
    reading = read(b'{"error": {"message": "x", "code": 400}}')

    assert reading.error == "400"
    assert not reading.complete


@settings(max_examples=60, deadline=None)
@given(body=st.binary(max_size=50), pad=st.integers(0, 300_000))
def test_no_body_raises(body: bytes, pad: int):
    assert isinstance(read(b'{"usage":' + body + b" " * pad + body), Reading)


def test_content_of_many_prompts_has_as_many_windows():
    assert parse(input=["a"] * 9).content == Content(9, 9, 9, 9, prompts=9)

import json

import pytest

from lockpin_core.call import Parsed, Request, Rewrite
from lockpin_core.errors import WireError
from lockpin_core.sizing.bound import ceiling
from lockpin_core.wire import wire_named

WIRE = wire_named("gemini_embed")


class Facts:
    """An embedding model as sizing sees it."""

    context_tokens = 2048
    max_output_tokens = None
    tokenizer = "bytes"
    image_tokens = None
    image_rule = None
    images_beyond_window = False


def request(body: object) -> Request:
    return Request("POST", "h", "/v1/models/e:batchEmbedContents", {}, json.dumps(body).encode(), "e")


def parse(body: object) -> Parsed:
    return WIRE.parse(request(body))


def content(text: str) -> dict:
    return {"parts": [{"text": text}]}


def test_one_text_is_bounded_by_its_bytes_and_has_no_output():
    parsed = parse({"content": content("é" * 50), "taskType": "RETRIEVAL_QUERY", "output_dimensionality": 8})

    assert (parsed.model, parsed.output_limit, parsed.output_settable, parsed.streamed) == ("e", 0, False, False)
    assert 100 <= parsed.content.text_bytes < 250
    assert parsed.content.prompts == 1


def test_each_text_of_a_batch_may_fill_the_window():
    batch = {"requests": [{"model": "models/e", "content": content("x" * 3000)} for _ in range(3)]}

    most = ceiling(parse(batch), Facts(), 0)

    assert most is not None
    assert (most.prompt, most.output) == (3 * 2048, 0)


def test_short_texts_of_a_batch_are_bounded_by_their_bytes():
    batch = {"requests": [{"model": "models/e", "content": content("x" * 10)} for _ in range(50)]}

    most = ceiling(parse(batch), Facts(), 0)

    assert most is not None
    assert 500 < most.prompt < 10_000


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"requests": []}, "bad_request"),
        ({"requests": [1]}, "bad_request"),
        ({"requests": None}, "bad_request"),
        ({"requests": [{"model": "models/other", "content": content("x")}]}, "bad_request"),
        ({"content": "x"}, "bad_request"),
        ({"content": content("x"), "brand_new": {"a": 1}}, "unpriced_tool"),
        ({"requests": [{"content": content("x")}], "batch": {"a": 1}}, "unpriced_tool"),
    ],
)
def test_what_cannot_be_bounded_is_refused(body: dict, code: str):
    with pytest.raises(WireError) as refused:
        parse(body)

    assert refused.value.code == code


def test_a_refusal_says_which_request_of_a_batch_it_is_about():
    told = [{"content": content("x")}, {"content": content("x"), "brand_new": {"secret": 1}}]

    with pytest.raises(WireError, match=r"^requests\[1\]: ") as fault:
        parse({"requests": told})

    assert "secret" not in str(fault.value)


def test_a_file_is_hidden():
    assert parse({"content": {"parts": [{"fileData": {"fileUri": "u"}}]}}).content.hidden == "file"


def test_nothing_is_rewritten():
    asked = request({"content": content("x")})

    assert WIRE.rewrite(asked, Rewrite(max_output=5)) == asked.body

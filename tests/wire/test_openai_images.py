import base64
import json
import struct
import zlib

import pytest
from forms import BOUNDARY, form

from lockpin_core.call import Image, Parsed, Picture, Request, Rewrite
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.openai_images import OpenAIImages

WIRE = OpenAIImages()
FORM = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
BASE = {"model": "gpt-image-2", "prompt": "a cat"}


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"IEND", b"")
    )


def parse(**told: object) -> Parsed:
    return WIRE.parse(Request("POST", "api.openai.com", "/v1/images/generations", {}, json.dumps(BASE | told).encode()))


def parse_form(**told: object) -> Parsed:
    return WIRE.parse(Request("POST", "api.openai.com", "/v1/images/edits", FORM, form(BASE | told)))


def file_of(data: bytes, name: str = "a.png") -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="image"; filename="{name}"\r\nContent-Type: image/png\r\n\r\n'
    return head.encode() + data + b"\r\n"


def refused(**told: object) -> WireError:
    with pytest.raises(WireError) as error:
        parse(**told)
    return error.value


def test_a_plain_request_is_one_picture_of_whatever_size():
    parsed = parse()

    assert (parsed.model, parsed.streamed, parsed.choices, parsed.extra_output) == ("gpt-image-2", False, 1, 0)
    assert parsed.picture == Picture(None, None, "")
    assert (parsed.prompt_units, parsed.output_units) == ({Unit.INPUT}, {Unit.OUTPUT, Unit.IMAGE_OUT})
    assert not parsed.output_settable
    assert (parsed.content.text_bytes, parsed.content.prompts) == (len("a cat"), 1)


@pytest.mark.parametrize(
    ("size", "quality", "picture"),
    [
        ("1536x1024", "high", Picture(1536, 1024, "high")),
        ("auto", "auto", Picture(None, None, "auto")),
        (None, None, Picture()),
        ("1536X1024", "max", Picture(None, None, "max")),
        ("0x0", "low", Picture(0, 0, "low")),
        ("1024x1024x1", "", Picture()),
    ],
)
def test_size_and_quality_are_what_is_asked_of_a_picture(size, quality, picture):
    assert parse(size=size, quality=quality).picture == picture


def test_each_picture_of_several_is_billed_with_its_prompt_and_its_previews():
    """As if it were asked for alone: so say those who were billed for several."""
    one, three = parse(partial_images=2, stream=True), parse(n=3, partial_images=2, stream=True)

    assert three.streamed
    assert (one.choices, one.extra_output) == (1, 2 * 100)
    assert (three.choices, three.extra_output) == (3, 3 * 2 * 100)
    assert three.content.nfc_bytes == 3 * one.content.nfc_bytes
    assert three.content.prompts == three.content.messages == 3


def test_images_of_a_json_edit_are_read_where_they_are_shown():
    url = "data:image/png;base64," + base64.b64encode(png(640, 480)).decode()

    parsed = parse(
        images=[{"image_url": url}, {"file_id": "file_1"}, {"image_url": "https://a/b"}], mask={"file_id": "m"}
    )

    assert parsed.content.images == (Image(640, 480), Image(), Image(), Image())
    assert parsed.content.extra_tokens == 4 * 200
    assert parsed.content.hidden is None
    assert parsed.prompt_units == {Unit.INPUT, Unit.IMAGE_IN}


def test_a_form_is_read_as_its_json_would_be():
    told = {"n": 2, "size": "1024x1024", "quality": "low", "partial_images": 1, "stream": True, "user": "u"}

    assert parse_form(**told) == parse(**told)


def test_the_images_of_a_form_are_its_files():
    body = file_of(png(300, 200)) + form(BASE | {"n": 2})

    parsed = WIRE.parse(Request("POST", "h", "/v1/images/edits", FORM, body))

    assert (parsed.content.images, parsed.content.images_times) == ((Image(300, 200),), 2)
    assert parsed.content.text_bytes == 2 * len("a cat")


def test_no_more_images_are_read_than_the_provider_takes():
    small, url = png(1, 1), "data:image/png;base64," + base64.b64encode(png(1, 1)).decode()
    several = file_of(small).replace(b'"image"', b'"image[]"')
    edit = ("POST", "h", "/v1/images/edits", FORM)

    assert len(parse(images=[{"image_url": url}] * 16, mask={"image_url": url}, n=10).content.images) == 17
    assert len(WIRE.parse(Request(*edit, several * 16 + form(BASE | {"n": 10}))).content.images) == 16
    for ask in (
        lambda: parse(images=[{"image_url": url}] * 17),
        lambda: WIRE.parse(Request(*edit, several * 17 + form(BASE))),
    ):
        with pytest.raises(WireError, match="17 images to edit; at most 16 are allowed") as error:
            ask()
        assert error.value.code == "bad_request"


@pytest.mark.parametrize("name", ["image[]", "mask", "markup"])
def test_a_file_that_is_no_image_has_no_size(name: str):
    assert parse_form(**{name: {"name": "x", "type": "image/png", "data": "x"}}).content.images == (Image(),)


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"output_format": "svg"}, 'output_format "svg" (another model writes'),
        ({"output_format": "gif"}, 'output_format "gif" (each frame'),
        ({"output_format": "tiff"}, "an output_format other than png, jpeg and webp cannot be priced"),
        ({"svg": {"model": "gpt-6-sol"}}, '"svg" (another model writes'),
        ({"frame_count": 2}, '"frame_count" (each frame'),
        ({"model": None}, "leaves the model to the provider"),
        ({"prompt_rewriter": True}, '"prompt_rewriter" of the request is not known'),
        ({"brand_new": "x"}, '"brand_new" of the request is not known'),
        ({"images": [{"image_url": "x", "detail": "high"}]}, '"detail" of an image is not known'),
    ],
)
def test_what_has_no_bound_is_refused_by_its_name(told, words):
    error = refused(**told)

    assert error.code == "unpriced_tool"
    assert words in str(error)


@pytest.mark.parametrize("field", ["output_format", "n", "stream", "size[]", "quality", "model", "partial_images"])
def test_no_value_of_a_form_is_repeated(field: str):
    told = BASE | {field: "SECRET" * 60}
    try:
        parse_form(**told)
    except WireError as error:
        assert "SECRET" not in str(error)


@pytest.mark.parametrize(
    "told",
    [
        {"svg[model]": "m"},
        {"svg[reasoning][effort]": "low"},
        {"frame_count": 3},
        {"file": {"name": "x", "type": "a/b", "data": ""}},
    ],
)
def test_what_has_no_bound_is_refused_in_a_form_too(told):
    with pytest.raises(WireError) as error:
        parse_form(**told)

    assert error.value.code == "unpriced_tool"


@pytest.mark.parametrize(
    "told",
    [{"n": 0}, {"n": 11}, {"n": "2"}, {"n": 1.5}, {"partial_images": -1}, {"prompt": None}, {"prompt": ["x"]}, {"size": 5},
     {"stream": "true"}, {"quality": {}}, {"model": 5}, {"images": "x"}, {"mask": "x"}, {"Size": "1024x1024"},
     {"response_format": {"type": "x"}}, {"style": ["x"]}],
)  # fmt: skip
def test_a_field_that_is_not_what_it_must_be_is_a_bad_request(told):
    assert refused(**told).code == "bad_request"


@pytest.mark.parametrize(
    "told",
    [
        {"n": "two"},
        {"n": "0"},
        {"n": "02x"},
        {"stream": "yes"},
        {"size[]": "x"},
        {"n[]": "2"},
        {"size": "1024x1024", "size[0]": "x"},
    ],
)
def test_likewise_in_a_form(told):
    with pytest.raises(WireError) as error:
        parse_form(**told)

    assert error.value.code == "bad_request"


def test_nothing_in_a_body_is_changed():
    request = Request("POST", "h", "/v1/images/edits", FORM, form(BASE))

    assert WIRE.rewrite(request, Rewrite(max_output=5, ask_usage=True)) == request.body
    assert WIRE.texts(request) is None
    assert WIRE.same_call(request) != WIRE.same_call(
        Request("POST", "h", "/v1/images/edits", FORM, form(BASE | {"n": 2}))
    )


def test_an_error_and_a_refusal_are_openais():
    assert (
        WIRE.error_code(b'{"error": {"code": "moderation_blocked", "type": "image_generation_user_error"}}')
        == "moderation_blocked"
    )
    assert WIRE.error_shape == "openai"

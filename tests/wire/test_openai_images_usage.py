import json

import pytest

from lockpin_core.call import Content, Doubt, Parsed, Reading
from lockpin_core.usage import Unit
from lockpin_core.wire.openai_images import OpenAIImages

WIRE = OpenAIImages()
USAGE = {
    "total_tokens": 1112,
    "input_tokens": 56,
    "output_tokens": 1056,
    "input_tokens_details": {"text_tokens": 56, "image_tokens": 0},
}


def asked(choices: int = 1) -> Parsed:
    units = frozenset({Unit.INPUT, Unit.IMAGE_IN})
    return Parsed("m", False, Content(5, 5, 1, 1), None, choices=choices, prompt_units=units)


def body(**told: object) -> Reading:
    scanner = WIRE.scanner(streamed=False, asked=asked())
    scanner.feed(json.dumps({"created": 1, "data": [{"b64_json": "aGk="}]} | told).encode())
    return scanner.result()


def stream(*events: object, choices: int = 1) -> Reading:
    scanner = WIRE.scanner(streamed=True, asked=asked(choices))
    for event in events:
        scanner.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    return scanner.result()


def done(kind: str = "image_generation", **told: object) -> dict:
    return {"type": f"{kind}.completed", "b64_json": "aGk=", "usage": USAGE} | told


PARTIAL = {"type": "image_generation.partial_image", "partial_image_index": 0, "b64_json": "aGk="}


@pytest.mark.parametrize(
    ("details", "usage"),
    [
        (None, {Unit.IMAGE_OUT: 1056}),
        ({}, {Unit.IMAGE_OUT: 1056}),
        ({"image_tokens": 1000, "text_tokens": 56}, {Unit.IMAGE_OUT: 1000, Unit.OUTPUT: 56}),
        ({"image_tokens": 1000}, {Unit.IMAGE_OUT: 1056}),  # what the rest is it does not say
        ({"text_tokens": 56}, {Unit.IMAGE_OUT: 1000, Unit.OUTPUT: 56}),
        ({"text_tokens": 5000}, {Unit.OUTPUT: 1056}),
    ],
)
def test_output_that_is_not_said_to_be_text_is_pictures(details, usage):
    reading = body(usage=USAGE | ({} if details is None else {"output_tokens_details": details}))

    assert reading.complete
    assert reading.portions[0].usage == {Unit.INPUT: 56} | usage
    assert reading.portions[0].doubts == ()


def test_input_that_is_not_said_to_be_text_may_be_images():
    (portion,) = body(usage={"input_tokens": 400, "output_tokens": 196, "total_tokens": 596}).portions

    assert portion.usage == {Unit.INPUT: 400, Unit.IMAGE_OUT: 196}
    assert portion.doubts == (Doubt(Unit.INPUT, 400, frozenset({Unit.IMAGE_IN})),)


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"usage": None},
        {"usage": {"input_tokens": 56}},
        {"usage": USAGE | {"output_tokens": 0, "total_tokens": 56}},  # and there is a picture
        {"usage": USAGE, "svg_usage": {"model": "gpt-6-sol", "input_tokens": 5, "output_tokens": 5}},
    ],
)
def test_a_body_without_the_whole_usage_is_not_complete(told):
    reading = body(**told)

    assert (reading.complete, reading.terminal, reading.readable, reading.delivered) == (False, True, True, True)


def test_half_a_body_cannot_be_read():
    scanner = WIRE.scanner(streamed=False)
    scanner.feed(b'{"data": [{"b64_json": "aGk')

    assert scanner.result() == Reading(readable=False)


@pytest.mark.parametrize("kind", ["image_generation", "image_edit"])
def test_a_stream_states_its_usage_with_the_picture(kind):
    assert not stream(PARTIAL).complete
    reading = stream(PARTIAL, done(kind))

    assert (reading.complete, reading.terminal) == (True, True)
    assert reading.portions[0].usage == {Unit.INPUT: 56, Unit.IMAGE_OUT: 1056}


def test_a_picture_of_megabytes_hides_no_usage():
    scanner = WIRE.scanner(streamed=True, asked=asked())
    event = json.dumps(done(b64_json="QUJD" * (1 << 20))).encode()
    for at in range(0, len(event), 1 << 16):
        scanner.feed((b"data: " if not at else b"") + event[at : at + (1 << 16)])
    scanner.feed(b"\n\n")

    assert scanner.result().complete


def test_several_pictures_in_a_stream_leave_the_usage_open():
    """Nobody says whether the usage of the second counts the first."""
    assert not stream(done(), done()).complete
    assert not stream(done(), choices=2).complete


def test_an_error_in_a_stream_is_named_and_other_events_say_nothing():
    assert stream({"type": "error", "error": {"code": "moderation_blocked"}}).error == "moderation_blocked"
    assert stream({"type": "keepalive"}, {"type": 5}, [], "x") == Reading()
    assert not stream(PARTIAL, done(usage=None)).complete


def test_an_event_that_was_too_long_takes_the_usage_back():
    scanner = WIRE.scanner(streamed=True, asked=asked())
    scanner.feed(b"data: " + b'{"a": "' + b"x, " * (1 << 20) + b'"}\n\n')

    assert scanner.result() == Reading(delivered=True)

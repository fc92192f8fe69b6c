import json

import pytest
from forms import BOUNDARY, silence
from forms import form as form_of

from lockpin_core.call import Content, Doubt, Parsed, Reading, Request
from lockpin_core.usage import Unit
from lockpin_core.wire.openai_audio import OpenAISpeech, OpenAITranscriptions

SPEECH, WIRE = OpenAISpeech(), OpenAITranscriptions()
FORM = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
TOKENS = {
    "type": "tokens",
    "input_tokens": 140,
    "input_token_details": {"text_tokens": 12, "audio_tokens": 128},
    "output_tokens": 9,
    "total_tokens": 149,
}


def asked(**facts: object) -> Parsed:
    units = frozenset({Unit.INPUT, Unit.AUDIO_IN})
    return Parsed("m", False, Content(5, 5, 1, 1), None, prompt_units=units, **facts)


def body(**told: object) -> Reading:
    return read(json.dumps({"text": "Hello."} | told).encode())


def read(raw: bytes) -> Reading:
    scanner = WIRE.scanner(streamed=False, asked=asked())
    scanner.feed(raw)
    return scanner.result()


def stream(wire: OpenAISpeech | OpenAITranscriptions, *events: object) -> Reading:
    scanner = wire.scanner(streamed=True, asked=asked())
    for event in events:
        scanner.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    return scanner.result()


def test_tokens_of_text_and_of_sound_are_told_apart():
    reading = body(usage=TOKENS)

    assert (reading.complete, reading.terminal, reading.model) == (True, True, None)
    assert reading.portions[0].usage == {Unit.INPUT: 12, Unit.AUDIO_IN: 128, Unit.OUTPUT: 9}


def test_tokens_that_are_not_said_to_be_text_may_be_sound():
    (portion,) = body(usage={"input_tokens": 140, "output_tokens": 9, "total_tokens": 149}).portions

    assert portion.usage == {Unit.INPUT: 140, Unit.OUTPUT: 9}
    assert portion.doubts == (Doubt(Unit.INPUT, 140, frozenset({Unit.AUDIO_IN})),)


@pytest.mark.parametrize(
    ("seconds", "whole"),
    [("9", 9), ("8.01", 9), ("9.0", 9), ("0.2", 1), ("1e1", 10), ('"8.5"', 9), ("8.470000267028809", 9)],
)
def test_begun_seconds_are_whole(seconds, whole):
    raw = f'{{"text": "x", "usage": {{"type": "duration", "seconds": {seconds}}}}}'.encode()

    assert read(raw).complete
    assert read(raw).portions[0].usage == {Unit.SECOND: whole}


@pytest.mark.parametrize(
    "seconds", ["-1", "null", "true", '"x"', '"NaN"', "1e400", '"Infinity"', "[]", "10000000000000000", "0"]
)
def test_seconds_that_are_none_are_not_stated(seconds):
    raw = f'{{"text": "x", "usage": {{"type": "duration", "seconds": {seconds}}}}}'.encode()

    assert (read(raw).complete, read(raw).terminal) == (False, True)


@pytest.mark.parametrize(
    "raw",
    [
        b"Hello there.",
        b"1\n00:00:00,000 --> 00:00:02,000\nHello\n",
        b"WEBVTT\n\n",
        b'\n  "Hello"',
        b'{"text": "Hello"}',
    ],
)
def test_text_and_what_states_no_usage_is_read_and_not_complete(raw):
    assert read(raw) == Reading(terminal=True, delivered=True)


@pytest.mark.parametrize("raw", [b"", b"  ", b'{"text": "Hel'])
def test_nothing_and_half_a_body_cannot_be_read(raw):
    assert read(raw) == Reading(readable=False)


@pytest.mark.parametrize("form", ["text", "srt", "vtt", "brand_new"])
def test_a_text_that_looks_like_json_states_nothing(form):
    """Somebody may have said so, or a prompt have brought it about."""
    raw = json.dumps({"text": "", "usage": {"type": "duration", "seconds": 1}}).encode()

    for reply_form, is_stated in ((form, False), ("json", True), ("verbose_json", True), ("diarized_json", True)):
        told = {"model": "whisper-1", "file": silence(9), "response_format": reply_form}
        parsed = WIRE.parse(Request("POST", "h", "/v1/audio/transcriptions", FORM, form_of(told)))
        scanner = WIRE.scanner(streamed=False, asked=parsed)
        scanner.feed(raw)
        reading = scanner.result()
        assert (reading.complete, bool(reading.portions)) == (is_stated, is_stated)
        assert reading.terminal


def test_the_last_event_of_a_transcription_states_its_usage():
    delta, last = {"type": "transcript.text.delta", "delta": "Hel"}, {"type": "transcript.text.done", "usage": TOKENS}

    assert stream(WIRE, delta) == Reading(delivered=True)
    assert stream(WIRE, delta, last).complete
    assert stream(WIRE, delta, last).portions[0].usage == {Unit.INPUT: 12, Unit.AUDIO_IN: 128, Unit.OUTPUT: 9}
    assert not stream(WIRE, delta, last | {"usage": None}).complete
    lasted = {"type": "transcript.text.done", "usage": {"type": "duration", "seconds": 3.2}}
    assert stream(WIRE, lasted).portions[0].usage == {Unit.SECOND: 4}


def test_what_a_model_says_is_sound():
    delta = {"type": "speech.audio.delta", "audio": "AAAA"}
    last = {"type": "speech.audio.done", "usage": {"input_tokens": 22, "output_tokens": 180, "total_tokens": 202}}

    assert not stream(SPEECH, delta).complete
    assert stream(SPEECH, delta, last).complete
    assert stream(SPEECH, delta, last).portions[0].usage == {Unit.INPUT: 22, Unit.AUDIO_OUT: 180}


def test_an_error_in_a_stream_is_named_and_other_events_say_nothing():
    assert stream(SPEECH, {"type": "error", "error": {"code": "server_error"}}).error == "server_error"
    assert stream(WIRE, {"type": 5}, "x", [], {"type": "other", "usage": TOKENS}) == Reading()


def test_an_event_that_was_too_long_was_something():
    scanner = WIRE.scanner(streamed=True, asked=asked())
    scanner.feed(b"data: " + b"x" * (1 << 21) + b"\n\n")

    assert scanner.result() == Reading(delivered=True)


def test_sound_says_nothing_of_its_tokens():
    scanner = SPEECH.scanner(streamed=False, asked=asked())
    assert scanner.result() == Reading(terminal=True)
    scanner.feed(b"\xff\xfb")
    scanner.feed(b"")

    assert scanner.result() == Reading(terminal=True, delivered=True)


def test_where_a_model_bills_by_the_character_sound_costs_the_requests():
    scanner = SPEECH.scanner(streamed=False, asked=asked(fees={Unit.CHARACTER: 11}))
    scanner.feed(b"\xff\xfb")

    assert scanner.result().complete
    assert scanner.result().portions[0].usage == {Unit.CHARACTER: 11}

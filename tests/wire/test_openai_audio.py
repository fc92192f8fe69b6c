import json

import pytest
from forms import BOUNDARY, MP3, form, silence

from lockpin_core.call import Parsed, Request, Rewrite
from lockpin_core.errors import WireError
from lockpin_core.usage import Unit
from lockpin_core.wire.openai_audio import FORM, OpenAISpeech, OpenAITranscriptions

SPEECH, WIRE = OpenAISpeech(), OpenAITranscriptions()
HEADERS = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}


def speak(**told: object) -> Parsed:
    body = {"model": "tts-1", "input": "hello", "voice": "ash"} | told
    return SPEECH.parse(Request("POST", "h", "/v1/audio/speech", {}, json.dumps(body).encode()))


def request(**told: object) -> Request:
    body = form({"model": "whisper-1", "file": silence(9)} | told)
    return Request("POST", "h", "/v1/audio/transcriptions", HEADERS, body)


def hear(**told: object) -> Parsed:
    return WIRE.parse(request(**told))


# Speech


@pytest.mark.parametrize(
    ("text", "characters"), [("hello", 5), ("", 0), ("héß", 3), ("\u4e2d\u6587", 2), ("a\U0001f600b", 4), ("\ud800", 1)]
)
def test_a_speech_is_as_many_characters_as_its_input(text, characters):
    assert speak(input=text).fees == {Unit.CHARACTER: characters}


def test_a_speech_is_bounded_by_its_bytes_and_passes_as_it_comes():
    parsed = speak(instructions="calmly", stream_format="sse", response_format="wav", speed=2)

    assert (parsed.model, parsed.streamed, parsed.output_settable, parsed.output_limit) == ("tts-1", True, False, None)
    assert parsed.output_units == {Unit.AUDIO_OUT}
    assert parsed.content.text_bytes == len("inputhello" + "instructionscalmly" + "voiceash")


def test_a_voice_may_be_an_id():
    assert speak(voice={"id": "voice_1"}).fees == {Unit.CHARACTER: 5}


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ({"input": None}, "bad_request"),
        ({"input": ["a"]}, "unpriced_tool"),
        ({"model": None}, "bad_request"),
        ({"Input": "x"}, "bad_request"),
        ({"brand_new": "x"}, "unpriced_tool"),
        ({"voice": {"id": {}}}, "unpriced_tool"),
        ({"response_format": {"type": "mp3"}}, "bad_request"),
        ({"speed": [1]}, "bad_request"),
    ],
)
def test_a_speech_that_is_not_known_is_refused(told, code):
    with pytest.raises(WireError) as refused:
        speak(**told)

    assert refused.value.code == code


# Transcriptions


def test_a_wav_says_how_long_it_is():
    parsed = hear()

    assert (parsed.model, parsed.streamed) == ("whisper-1", False)
    assert parsed.fees == {Unit.SECOND: 9}
    assert (parsed.content.extra_tokens, parsed.content.hidden) == (
        30 * 64,
        None,
    )  # half a minute, of at most 64 a second
    assert parsed.prompt_units == {Unit.INPUT, Unit.AUDIO_IN}


@pytest.mark.parametrize(("length", "seconds"), [(0.2, 1), (8.47, 9), (9.0, 9), (9.001, 10), (31, 31)])
def test_begun_seconds_are_whole(length, seconds):
    assert hear(file=silence(length)).fees == {Unit.SECOND: seconds}


@pytest.mark.parametrize(
    "file",
    [
        MP3,
        silence(9) | {"name": "a.mp3"},  # its name says that it is something else
        silence(9) | {"type": "audio/mpeg"},
        {"name": "a.wav", "type": "audio/wav", "data": "RIFF1234WAVEfmt "},
        {"name": "a.wav", "type": "audio/wav", "data": ""},
    ],
)
def test_any_other_sound_may_fill_the_window_and_last_for_ever(file):
    parsed = hear(file=file)

    assert parsed.content.hidden == "sound"
    assert parsed.fees == {}


@pytest.mark.parametrize("kind", ["audio/x-wav", "application/octet-stream"])
def test_a_wav_may_be_called_one_in_several_ways(kind):
    assert hear(file=silence(9) | {"type": kind, "name": "A.WAV"}).fees == {Unit.SECOND: 9}


def test_voices_to_know_again_are_sound_of_any_length():
    parsed = hear(known_speaker_references=["data:audio/wav;base64,AA"], known_speaker_names=["x"])

    assert (parsed.content.hidden, parsed.fees) == ("sound", {})


def test_all_that_a_model_reads_is_counted():
    told = {"prompt": "hé", "keywords": ["a", "bc"], "languages": ["de"], "language": "en", "temperature": 0.5}

    parsed = hear(**told, response_format="srt", include=["logprobs"], timestamp_granularities=["word"])

    assert parsed.content.text_bytes == len("hé".encode()) + len("abcdeen")


@pytest.mark.parametrize(("said", "streamed"), [("true", True), ("false", False)])
def test_a_stream_is_asked_for_in_words(said, streamed):
    assert hear(stream=said).streamed is streamed


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"chunking_strategy": "auto"}, '"chunking_strategy" (the sound is read in parts'),
        ({"chunking_strategy": {"type": "server_vad"}}, '"chunking_strategy" (the sound is read in parts'),
        ({"brand_new": "x"}, '"brand_new" is not known'),
        ({"prompt": ["x"]}, '"prompt[]" is not known'),
    ],
)
def test_what_has_no_bound_is_refused_by_its_name(told, words):
    with pytest.raises(WireError) as refused:
        hear(**told)

    assert refused.value.code == "unpriced_tool"
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "told", [{"file": "text"}, {"model": MP3}, {"prompt": MP3}, {"stream": "yes"}, {"stream": ""}, {"model": ""}]
)
def test_a_form_that_is_not_what_it_must_be_is_a_bad_request(told):
    with pytest.raises(WireError) as refused:
        hear(**told)

    assert refused.value.code == "bad_request"


def test_no_value_of_a_form_is_repeated():
    with pytest.raises(WireError) as refused:
        hear(stream="SECRET")

    assert str(refused.value) == "stream is another word; true or false is allowed"


@pytest.mark.parametrize("told", [{"model": "m"}, {"file": MP3}])
def test_a_form_without_a_model_or_a_file_is_a_bad_request(told):
    with pytest.raises(WireError) as refused:
        WIRE.parse(Request("POST", "h", "/v1/audio/translations", HEADERS, form(told)))

    assert refused.value.code == "bad_request"


def test_nothing_in_a_body_is_changed():
    asked = request()

    assert WIRE.rewrite(asked, Rewrite(max_output=5, ask_usage=True)) == asked.body
    assert WIRE.same_call(asked) == WIRE.same_call(request()) != WIRE.same_call(request(prompt="x"))
    assert WIRE.error_code(b'{"error": {"type": "invalid_request_error"}}') == "invalid_request_error"


def test_the_fields_of_the_sdk_are_known():
    from openai.types.audio import speech_create_params, transcription_create_params, translation_create_params

    from lockpin_core.wire.openai_audio import SPEECH as SHAPE

    known = {name.removesuffix("[]") for name in FORM} | {"chunking_strategy"}
    for params in (
        transcription_create_params.TranscriptionCreateParamsBase,
        transcription_create_params.TranscriptionCreateParamsStreaming,
        translation_create_params.TranslationCreateParams,
    ):
        assert params.__annotations__.keys() <= known
    assert speech_create_params.SpeechCreateParams.__annotations__.keys() == SHAPE.known

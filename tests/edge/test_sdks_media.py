"""OpenAI's SDK draws, speaks and listens through real proxies: what is charged, by hand, and what is refused."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import client
import openai
import processes
import pytest
import sdks
from forms import wav
from processes import until

CONFIG = """
upstreams: {{api.openai.com: "{origin}"}}
daily_usd: 3
pricing:
  gpt-image-2: {{image_tokens: 1536}}
  gpt-4o-mini-tts: {{max_output_tokens: 2000}}
"""
WAV = ("speech.wav", wav(8.47), "audio/wav")
MP3 = ("speech.mp3", b"ID3", "audio/mpeg")
SOUND = {"body": "\u00ff\u00fb sound", "type": "audio/mpeg", "chunk": 3}
DRAWN = {
    "input_tokens": 56,
    "output_tokens": 196,
    "total_tokens": 252,
    "input_tokens_details": {"text_tokens": 56, "image_tokens": 0},
}


@dataclass(frozen=True)
class Case:
    call: Callable[[openai.OpenAI, dict], Any]
    order: dict
    usage: dict
    nano: int
    shown: str


def streamed(file: str) -> dict:
    return {"file": file, "type": "text/event-stream", "chunk": 7}


def events(stream: Any) -> str:
    return "".join(event.model_dump_json() for event in stream)


CASES = {
    # 56 × $5/M + 196 × $30/M
    "a picture": Case(
        lambda c, h: c.images.generate(model="gpt-image-2", prompt="a cat", size="1024x1024", quality="low", **h),
        {"body": json.dumps({"created": 1, "data": [{"b64_json": "aGk="}], "usage": DRAWN})},
        {"input": 56, "image_out": 196}, 6_160_000, "aGk=",
    ),
    # 56 × $5/M + 1,056 × $30/M
    "a picture on the way": Case(
        lambda c, h: events(c.images.generate(
            model="gpt-image-2", prompt="a cat", size="1024x1024", quality="medium", stream=True, partial_images=1, **h)),
        streamed("openai_images/image_stream.sse"), {"input": 56, "image_out": 1056}, 31_960_000, "image_generation.completed",
    ),
    # 60 × $5/M + 352 × $8/M + 1,056 × $30/M
    "an edit": Case(
        lambda c, h: c.images.edit(
            model="gpt-image-2", prompt="a dog", image=[b"one", b"two"], size="1024x1024", quality="medium", **h),
        {"file": "openai_images/image_usage.json"}, {"input": 60, "image_in": 352, "image_out": 1056}, 34_796_000, "aGk=",
    ),
    # 11 × $15/M
    "speech by the character": Case(
        lambda c, h: c.audio.speech.create(model="tts-1", input="hello there", voice="ash", **h).text,
        SOUND, {"character": 11}, 165_000, "sound",
    ),
    # 22 × $0.6/M + 180 × $12/M
    "speech in events": Case(
        lambda c, h: c.audio.speech.create(
            model="gpt-4o-mini-tts", input="hello", voice="ash", stream_format="sse", **h).text,
        streamed("openai_speech/speech_stream.sse"), {"input": 22, "audio_out": 180}, 2_173_200, "speech.audio.done",
    ),
    # 9 × $0.0001
    "a transcription by the second": Case(
        lambda c, h: c.audio.transcriptions.create(model="whisper-1", file=WAV, response_format="verbose_json", **h),
        {"file": "openai_transcriptions/transcription_duration.json"}, {"second": 9}, 900_000, "Hello there.",
    ),
    # 12 × $2.5/M + 128 × $6/M + 9 × $10/M
    "a transcription in tokens": Case(
        lambda c, h: c.audio.transcriptions.create(model="gpt-4o-transcribe", file=MP3, **h),
        {"file": "openai_transcriptions/transcription_tokens.json"},
        {"input": 12, "audio_in": 128, "output": 9}, 888_000, "Hello there.",
    ),
    # 40 × $6/M + 4 × $10/M
    "a transcription on the way": Case(
        lambda c, h: events(c.audio.transcriptions.create(model="gpt-4o-transcribe", file=MP3, stream=True, **h)),
        streamed("openai_transcriptions/transcription_stream.sse"), {"audio_in": 40, "output": 4}, 280_000, "Hello.",
    ),
}  # fmt: skip


@dataclass
class Rig:
    origin: processes.Origin
    proxy: processes.Proxy
    clients: dict[str, openai.OpenAI]


@pytest.fixture(scope="module", params=["mitmdump", "up"])
def rig(request, tmp_path_factory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("media")
    with processes.origin(folder) as origin, ExitStack() as opened:
        proxy = opened.enter_context(processes.proxy(folder, CONFIG.format(origin=origin.url), kind=request.param))
        clients = {way: opened.enter_context(sdks.openai_client(proxy, way)) for way in sdks.WAYS}
        yield Rig(origin, proxy, clients)


def headers(task: str, **order: object) -> dict:
    return {"extra_headers": sdks.order(**order) | {"x-lockpin-task": task}}


def rows(rig: Rig, task: str, count: int) -> list:
    query = "SELECT * FROM rows WHERE task = ? AND kind != 'shrink' AND kind != 'event' ORDER BY id"
    return until(lambda: len(found := rig.proxy.rows(query, task)) == count and found)


@pytest.mark.parametrize("way", sdks.WAYS)
@pytest.mark.parametrize("name", CASES)
def test_a_call_passes_and_is_charged_what_its_reply_states(rig, way, name):
    case, task = CASES[name], f"{name} by {way}"
    before = len(rig.origin.calls())

    shown = case.call(rig.clients[way], headers(task, **case.order))

    assert case.shown in (shown if isinstance(shown, str) else shown.model_dump_json())
    hold, charge = rows(rig, task, 2)
    assert (hold["kind"], charge["kind"], charge["estimated"], charge["over_hold"]) == ("hold", "charge", 0, 0)
    assert json.loads(charge["usage"]) == case.usage
    assert charge["usd"] == case.nano <= hold["usd"]
    tokens = sum(count for unit, count in case.usage.items() if unit not in ("second", "character"))
    assert charge["tokens"] == tokens <= hold["tokens"]
    assert len(rig.origin.calls()) == before + 1


def test_a_form_passes_as_it_was_sent(rig):
    """Whatever the sound: the form that arrives has the very bytes of the file."""
    seen: list[bytes] = []
    asking = rig.clients["base_url"].with_options(max_retries=0)
    asking._client.event_hooks["request"] = [lambda request: seen.append(request.read())]
    order = {"file": "openai_transcriptions/transcription_tokens.json"}
    try:
        asking.audio.transcriptions.create(
            model="gpt-4o-transcribe", file=("a.mp3", bytes(range(256)), "audio/mpeg"), **headers("bytes", **order)
        )
    finally:
        asking._client.event_hooks["request"] = []

    assert rig.origin.calls()[-1]["body"] == seen[0].decode("utf-8", "replace")


def test_text_without_usage_costs_its_hold(rig):
    order = {"body": "WEBVTT\n\n00:00.000 --> 00:02.000\nHello", "type": "text/vtt"}

    with pytest.deprecated_call():  # the SDK says so of the model
        text = rig.clients["connect"].audio.translations.create(
            model="whisper-1", file=WAV, response_format="vtt", **headers("a translation", **order)
        )

    assert "Hello" in str(text)
    hold, charge = rows(rig, "a translation", 2)
    assert (charge["usd"], charge["reason"], charge["estimated"]) == (hold["usd"], "no_usage", 1)
    assert hold["usd"] == 900_000  # 8.47 seconds, of which the last has begun


REFUSED = {
    "too dear": (
        lambda c, h: c.images.generate(model="gpt-image-2", prompt="a cat", n=10, **h),
        402, 'lockpin: budget "daily" (machine, day) would pass its $3.00 limit',
    ),
    "no seconds": (
        lambda c, h: c.audio.transcriptions.create(model="whisper-1", file=MP3, **h), 400, "send it as a .wav file (PCM)"
    ),
    "no grid": (
        lambda c, h: c.images.generate(model="gpt-image-2.5-flare", prompt="a cat", **h), 400, '{"gpt-image-2.5-flare": {max_output_tokens: TOKENS}}'
    ),
    "no model": (lambda c, h: c.images.generate(prompt="a cat", **h), 400, "leaves the model to the provider"),
    "chunks": (
        lambda c, h: c.audio.transcriptions.create(model="gpt-4o-transcribe", file=MP3, chunking_strategy="auto", **h),
        400, '"chunking_strategy" (the sound is read in parts',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_capped_is_refused_in_our_words_and_not_sent(rig, name):
    call, status, words = REFUSED[name]
    before = len(rig.origin.calls())

    with pytest.raises(openai.APIStatusError) as raised:
        call(rig.clients["connect"], headers(name))

    assert raised.value.status_code == status
    assert words in str(raised.value)
    client.all_written(rig.proxy)
    assert [row["kind"] for row in rows(rig, name, 1)] == ["refusal"]
    assert len(rig.origin.calls()) == before


def test_a_reply_that_is_no_stream_says_what_it_cost(rig):
    case = CASES["a picture"]

    raw = rig.clients["connect"].images.with_raw_response.generate(
        model="gpt-image-2", prompt="a cat", size="1024x1024", quality="low", **headers("cost", **case.order)
    )

    assert raw.headers["x-lockpin-cost-usd"] == "0.00616"
    assert json.loads(raw.headers["x-lockpin-receipt"])["usage"] == case.usage

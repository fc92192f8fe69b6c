"""Pictures, speech and transcriptions: what is held by the shipped prices, and what is refused by name."""

import json
from dataclasses import replace

import pytest
from desks import NOW, PROVIDERS, Desk, config
from forms import MP3, sent, silence

from lockpin_core.admission import Incoming, Priced, Refused, priced
from lockpin_core.call import Charge, Ending, Outcome, Payers, Reading
from lockpin_core.config import Config
from lockpin_core.engine import Answered
from lockpin_core.money import Money
from lockpin_core.prices import PriceTable, shipped_dir
from lockpin_core.providers import Metered
from lockpin_core.settlement import settle
from lockpin_core.settler import Admitted
from lockpin_core.usage import Unit
from lockpin_core.wire import wire_named

PRICES = PriceTable.load(shipped_dir())
CONFIG = Config(None, shipped_dir())
PICTURE = {"model": "gpt-image-2", "prompt": "x" * 90, "size": "1024x1024", "quality": "low"}
SPEECH = {"model": "tts-1", "input": "x" * 1000, "voice": "ash"}
SOUND = {"model": "whisper-1", "file": silence(60)}


def ask(path: str, told: dict, prices: PriceTable = PRICES) -> Priced:
    provider = PROVIDERS.by_name("openai")
    assert provider is not None
    route = provider.route("POST", path)
    assert isinstance(route, Metered)
    wire = wire_named(route.wire)
    raw, headers = sent(route.wire, told)
    came = Incoming(
        "c", provider, "api.openai.com", "POST", path, headers, raw, False, Payers("t", "box"), "test/1",
    )  # fmt: skip
    return priced(came, wire, wire.parse(came.request()), prices, NOW)


def held(path: str, told: dict, prices: PriceTable = PRICES) -> tuple[str, int]:
    quote = ask(path, told, prices).call(None).quote
    return quote.most.exact(), quote.tokens


def refused(path: str, told: dict) -> str:
    with pytest.raises(Refused) as error:
        ask(path, told).call(None)
    assert error.value.code == "unpriced_tool"
    return error.value.words


def test_a_picture_is_held_at_its_grid_and_its_prompts_bytes():
    # (90 + 500 + 10) × $5/M + 196 × $30/M, and for two of them each its own prompt, previews of 100 tokens, one frame
    assert held("/v1/images/generations", PICTURE) == ("0.00888", 600 + 196)
    two = PICTURE | {"n": 2, "partial_images": 1, "stream": True}
    assert held("/v1/images/generations", two) == ("0.02126", 700 + 2 * 296)


def test_a_picture_of_whatever_size_is_held_as_the_largest():
    told = {"model": "gpt-image-2", "prompt": "x" * 90}

    assert held("/v1/images/generations", told) == ("0.71457", 600 + 23_719)  # $0.003 + 23,719 × $30/M


def test_speech_is_held_by_the_character_and_has_no_tokens():
    assert held("/v1/audio/speech", SPEECH) == ("0.015", 0)
    assert held("/v1/audio/speech", SPEECH | {"model": "tts-1-hd"}) == ("0.03", 0)


@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/v1/audio/translations"])
def test_a_wav_is_held_by_the_second(path: str):
    assert held(path, SOUND) == ("0.006", 0)
    assert held(path, SOUND | {"model": "gpt-transcribe"}) == ("0.0045", 0)


def test_a_transcription_in_tokens_is_held_by_its_length_or_its_window():
    # 2 × 30 × 64 tokens of sound and 510 around them, at $6/M, and 2,000 of text at $10/M; else the whole window
    told = SOUND | {"model": "gpt-4o-transcribe"}
    assert held("/v1/audio/transcriptions", told) == ("0.0461", 4_350 + 2_000)
    assert held("/v1/audio/transcriptions", told | {"file": MP3}) == ("0.116", 16_000 + 2_000)


def test_no_output_limit_is_shown_where_there_is_none():
    assert ask("/v1/images/generations", PICTURE).call(None).output_limit is None
    assert ask("/v1/audio/speech", SPEECH).call(None).output_limit is None


@pytest.mark.parametrize(
    ("path", "told", "words"),
    [
        ("/v1/audio/transcriptions", SOUND | {"file": MP3}, "bills by the second, and the request does not show how many"),
        ("/v1/audio/transcriptions", SOUND | {"file": MP3}, "send it as a .wav file (PCM)"),
        ("/v1/audio/transcriptions", SOUND | {"model": "tts-1"}, "bills by the character"),
        ("/v1/audio/speech", SPEECH | {"model": "whisper-1"}, "bills by the second"),
        ("/v1/audio/speech", SPEECH | {"model": "gpt-4o-mini-tts"}, "tokens what it says takes; to state the most, add"),
        ("/v1/images/generations", PICTURE | {"model": "gpt-image-2.5-flare"}, "a picture that it draws takes"),
        ("/v1/images/edits", PICTURE | {"images": [{"file_id": "f"}]}, "an image is that it reads; to state the most, add"),
        ("/v1/images/generations", PICTURE | {"model": "whisper-1"}, "bills by the second"),
        ("/v1/chat/completions", {"model": "tts-1", "messages": []}, "bills by the character"),
    ],
)  # fmt: skip
def test_what_has_no_bound_is_refused_with_the_way_out(path: str, told: dict, words: str):
    assert words in refused(path, told)


def test_what_the_user_knows_bounds_a_call():
    prices = PriceTable.load(
        shipped_dir(),
        {
            "gpt-image-2": {"image_tokens": "1536"},
            "gpt-image-2.5-flare": {"max_output_tokens": "1000"},
            "gpt-4o-mini-tts": {"max_output_tokens": "4000"},
        },
    )
    edit = PICTURE | {"images": [{"file_id": "f"}]}

    # (606 + 200 + 1,536) × $8/M + 196 × $30/M; 600 × $5/M + 1,000 × $30/M; 1,523 × $0.6/M + 4,000 × $12/M
    assert held("/v1/images/edits", edit, prices) == ("0.024616", 2_342 + 196)
    assert held("/v1/images/generations", PICTURE | {"model": "gpt-image-2.5-flare"}, prices) == ("0.033", 1_600)
    assert held("/v1/audio/speech", SPEECH | {"model": "gpt-4o-mini-tts"}, prices) == ("0.0489138", 1_523 + 4_000)


def settled(found: Priced, body: bytes, outcome: Outcome, *, streamed: bool = False) -> Charge:
    scanner = found.wire.scanner(streamed=streamed, asked=found.parsed)
    scanner.feed(body)
    charge = settle(found.call(None), scanner.result() if body else Reading(), outcome, found.tariff(CONFIG))
    assert isinstance(charge, Charge)
    return charge


DONE, CUT, FAILED = Outcome(Ending.DONE, 200), Outcome(Ending.CUT, 200), Outcome(Ending.DONE, 500)


def test_sound_that_is_billed_by_the_character_costs_what_was_asked_for():
    for outcome in (DONE, CUT):
        charge = settled(ask("/v1/audio/speech", SPEECH), b"\xff\xfb", outcome)
        assert (charge.amount, charge.usage, charge.tokens) == (Money.parse("0.015"), {Unit.CHARACTER: 1000}, 0)
        assert (charge.estimated, charge.reason) == (False, None)


def test_a_transcription_that_is_text_alone_costs_its_hold():
    charge = settled(ask("/v1/audio/transcriptions", SOUND | {"response_format": "srt"}), b"1\n00:00", DONE)

    assert (charge.amount, charge.reason, charge.estimated) == (Money.parse("0.006"), "no_usage", True)


def test_a_stated_duration_is_what_is_charged():
    body = json.dumps({"text": "x", "usage": {"type": "duration", "seconds": 41.2}}).encode()

    charge = settled(ask("/v1/audio/transcriptions", SOUND), body, DONE)

    assert (charge.amount, charge.usage, charge.reason) == (Money.parse("0.0042"), {Unit.SECOND: 42}, None)


def test_tokens_from_a_model_that_bills_seconds_have_no_price_so_the_hold_is_charged():
    body = json.dumps({"text": "x", "usage": {"type": "tokens", "input_tokens": 5, "output_tokens": 5}}).encode()

    charge = settled(ask("/v1/audio/transcriptions", SOUND), body, DONE)

    assert (charge.amount, charge.reason, charge.estimated) == (Money.parse("0.006"), "no_price", True)


def test_a_failed_call_is_charged_the_pieces_it_sent():
    charge = settled(ask("/v1/audio/transcriptions", SOUND), b"", FAILED)

    assert (charge.amount, charge.usage, charge.reason) == (Money.parse("0.006"), {Unit.SECOND: 60}, "failed")
    assert charge.failed


def test_pieces_of_a_model_that_bills_tokens_are_forgotten():
    found = ask("/v1/audio/transcriptions", SOUND | {"model": "gpt-4o-transcribe"})

    assert found.parsed.fees == {}
    assert replace(found.parsed, fees={}) == found.parsed


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v1/audio/transcriptions", SOUND | {"model": "gpt-4o-transcribe"}),
        ("/v1/images/generations", PICTURE),
        ("/v1/audio/speech", SPEECH),
        ("/v1/responses/compact", {"model": "gpt-6.1-sol", "input": "x"}),
    ],
)
def test_a_request_that_can_have_no_output_limit_is_not_told_of_one(path: str, told: dict):
    desk = Desk(config("0.00000001", pricing={}))
    route = desk.incoming(told).provider.route("POST", path)
    assert isinstance(route, Metered)
    raw, headers = sent(route.wire, told)

    decision = desk.ask(raw, path=path, headers=headers)

    assert isinstance(decision, Answered)
    assert decision.code == "budget_exceeded"
    assert "fits" not in json.loads(decision.reply.body)["lockpin"]
    room = Desk(config("0.03", pricing={})).ask(raw, path=path, headers=headers)
    assert isinstance(room, Admitted) or "fits" not in json.loads(room.reply.body)["lockpin"]

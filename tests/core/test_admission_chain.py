"""What a turn reads again of an earlier one may be sound or pictures, which cost more than text, and is held as that.

A token of "ear" costs $0.000001 as prompt, ten times that as sound, three times as a picture.
"""

import asyncio
import json

import pytest
from desks import FACTS, Desk, config

from lockpin_core.admission_chain import brought_in, is_silent, left_out
from lockpin_core.call import Charge, Content, Ending, Outcome, Parsed
from lockpin_core.engine import Passed
from lockpin_core.settler import Admitted
from lockpin_core.usage import Unit

PRICES = {
    "ear": {
        "input": "1",
        "output": "5",
        "audio_in": "10",
        "image_in": "3",
        "audio_out": "9",
        "image_out": "9",
        **FACTS,
    },
    "deaf": {"input": "1", "output": "5", "image_in": "3", **FACTS},
}
PATH, KEY = "/v1beta/interactions", {"x-goog-api-key": "one"}
DONE = Outcome(Ending.DONE, 200)
SOUND = {"type": "audio", "data": "AAAA", "mime_type": "audio/wav"}
TEXT_LIMIT = {"generation_config": {"max_output_tokens": 100}}


def ask(desk: Desk, back: str | None = None, model: str = "ear", **more: object) -> Admitted:
    told = {"model": model, "input": "hi", **TEXT_LIMIT, **more}
    told |= {} if back is None else {"previous_interaction_id": back}
    found = desk.ask(told, provider="gemini", path=PATH, headers=KEY)
    assert isinstance(found, Admitted)
    return found


def reply(name: str, prompt: int, **kinds: int) -> bytes:
    """Make a reply of so many tokens, these of them of other kinds than text, and 10 of output."""
    usage = {"total_input_tokens": prompt, "total_output_tokens": 10, "total_tokens": prompt + 10}
    kinds |= {"text": prompt - sum(kinds.values())}
    details = [{"modality": kind, "tokens": tokens} for kind, tokens in kinds.items() if tokens]
    usage |= {"input_tokens_by_modality": details}
    return json.dumps({"id": name, "model": "ear", "status": "completed", "usage": usage}).encode()


def end(desk: Desk, admitted: Admitted, body: bytes) -> Charge:
    scanner = admitted.wire.scanner(streamed=False, asked=admitted.parsed)
    scanner.feed(body)
    assert desk.engine.settle(admitted, scanner.result(), DONE).result() is not None
    charge = desk.ledger._done[admitted.held.call.id][0].charge
    assert charge is not None
    assert charge.amount <= admitted.held.call.quote.most
    return charge


def facts(hidden: str | None = None, **more: object) -> Parsed:
    return Parsed("m", streamed=False, content=Content(10, 10, 1, 1, hidden=hidden), output_limit=1, **more)


def model(name: str):
    found = Desk(config(pricing=PRICES)).prices.find("gemini", name, None)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "hidden", "units"),
    [
        ("ear", None, {Unit.INPUT, Unit.IMAGE_IN}),
        ("ear", "file", {Unit.INPUT, Unit.IMAGE_IN, Unit.AUDIO_IN}),
        ("deaf", "file", {Unit.INPUT, Unit.IMAGE_IN}),
    ],
)
def test_a_conversation_may_have_pictures_and_one_that_is_not_known_sound_where_the_model_hears(name, hidden, units):
    assert brought_in(facts(hidden), model(name)).prompt_units == units


def test_only_a_turn_that_names_another_can_have_usage_that_leaves_something_out():
    assert left_out(facts(), model("ear")).left_out == 0
    assert left_out(facts(chain="r0"), model("ear")).left_out == 2**40


def test_a_turn_with_sound_or_with_media_that_it_made_is_not_silent():
    text, out = frozenset({Unit.INPUT, Unit.IMAGE_IN}), frozenset({Unit.OUTPUT})

    assert is_silent(text, out)
    assert not is_silent(text | {Unit.AUDIO_IN}, out)
    assert not is_silent(text, out | {Unit.IMAGE_OUT})


def test_sound_that_a_turn_reads_again_is_held_as_sound():
    desk = Desk(config(pricing=PRICES))
    end(desk, ask(desk, input=[SOUND]), reply("r1", 3000, audio=3000))

    charge = end(desk, ask(desk, "r1"), reply("r2", 3013, audio=3000))

    assert charge.amount.nano == 3000 * 10_000 + 13 * 1_000 + 10 * 5_000


@pytest.mark.parametrize("media", [{"response_modalities": ["audio"]}, {"response_modalities": ["image"]}])
def test_what_a_turn_has_said_or_drawn_is_read_again_by_the_next(media: dict):
    """How many tokens it is then, nobody says: it may fill the window."""
    desk = Desk(config(pricing=PRICES))
    end(desk, ask(desk, **media), reply("r1", 20))

    second = ask(desk, "r1")

    assert (second.held.call.quote.ceiling.prompt, second.held.call.quote.most.nano) == (
        200_000, 200_000 * 10_000 + 100 * 5_000,
    )  # fmt: skip


def test_pictures_that_a_turn_reads_again_are_held_as_pictures_and_text_is_never_held_as_sound():
    desk = Desk(config(pricing=PRICES))
    end(desk, ask(desk, input="x" * 6000), reply("r1", 5000))

    second = ask(desk, "r1")

    most = second.held.call.quote.ceiling
    assert most.prompt < 10_000
    assert second.held.call.quote.most.nano == most.prompt * 3_000 + 100 * 5_000
    assert end(desk, second, reply("r2", 5020, image=4000)).amount.nano == 1020 * 1_000 + 4000 * 3_000 + 10 * 5_000


@pytest.mark.parametrize(("name", "rate"), [("ear", 10_000), ("deaf", 3_000)])
def test_a_conversation_that_usage_leaves_out_is_charged_as_the_dearest_that_it_may_be(name: str, rate: int):
    """11 tokens of text are stated, and what fills the rest of the window was never seen."""
    desk = Desk(config(pricing=PRICES))
    body = reply("r1", 11).replace(b'"model": "ear"', f'"model": "{name}"'.encode())

    charge = end(desk, ask(desk, "elsewhere", name), body)

    assert charge.amount.nano == 11 * 1_000 + (200_000 - 11) * rate + 10 * 5_000


def test_a_polled_turn_with_sound_is_not_known_to_the_next():
    desk = Desk(config(pricing=PRICES))
    for name, told in (("r1", {"input": [SOUND]}), ("r2", {})):
        admitted = ask(desk, background=True, **told)
        scanner = admitted.wire.scanner(streamed=False, asked=admitted.parsed)
        scanner.feed(json.dumps({"id": name, "status": "queued"}).encode())
        assert desk.engine.settle(admitted, scanner.result(), DONE).result() is None
        passed = desk.ask(method="GET", provider="gemini", path=f"{PATH}/{name}", headers=KEY)
        assert isinstance(passed, Passed) and passed.polled is not None
        scanner = passed.polled.wire.scanner(streamed=False)
        scanner.feed(reply(name, 20))
        asyncio.run(desk.engine.settle_polled(passed.polled, scanner.result()))

    assert ask(desk, "r1").held.call.quote.ceiling.prompt == 200_000
    assert ask(desk, "r2").held.call.quote.ceiling.prompt < 2000

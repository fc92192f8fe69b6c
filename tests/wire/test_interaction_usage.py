import json
from pathlib import Path

import pytest

from lockpin_core.call import Doubt, Parsed, Reading, Request
from lockpin_core.usage import Unit
from lockpin_core.wire.gemini_interactions import GeminiInteractions

SAMPLE = (Path(__file__).parents[1] / "data/gemini_interactions/gemini_interactions_stream.sse").read_bytes()
WIRE = GeminiInteractions()
USAGE = {
    "total_input_tokens": 100,
    "total_cached_tokens": 40,
    "total_output_tokens": 7,
    "total_thought_tokens": 5,
    "total_tool_use_tokens": 0,
    "total_tokens": 112,
}
UNITS = {Unit.INPUT: 60, Unit.CACHE_READ: 40, Unit.OUTPUT: 12}


def asked(**more: object) -> Parsed:
    raw = json.dumps({"model": "m", "input": "x", **more}).encode()
    return WIRE.parse(Request("POST", "h", "/v1beta/interactions", {}, raw))


ASKED = asked()


def interaction(status: str = "completed", usage: object = USAGE, **more: object) -> dict:
    step = {"type": "model_output", "content": [{"type": "text", "text": "Hi"}]}
    return {"id": "int_1", "model": "m", "status": status, "steps": [step], "usage": usage, **more}


def body(found: object, parsed: Parsed | None = ASKED) -> Reading:
    scanner = WIRE.scanner(streamed=False, asked=parsed)
    scanner.feed(json.dumps(found).encode())
    return scanner.result()


def stream(*events: dict, parsed: Parsed | None = ASKED, end: bool = True) -> Reading:
    scanner = WIRE.scanner(streamed=True, asked=parsed)
    for event in events:
        scanner.feed(f"event: {event.get('event_type')}\ndata: {json.dumps(event)}\n\n".encode())
    if end:
        scanner.feed(b"event: done\ndata: [DONE]\n\n")
    return scanner.result()


def created() -> dict:
    return {"event_type": "interaction.created", "interaction": {"id": "int_1", "status": "in_progress", "model": "m"}}


def completed(status: str = "completed", usage: object = USAGE) -> dict:
    told = {"id": "int_1", "status": status, "model": "m", "usage": usage}
    return {"event_type": "interaction.completed", "interaction": told}


DELTA = {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "Hi"}}


def test_the_sample_is_read():
    scanner = WIRE.scanner(streamed=True, asked=ASKED)
    scanner.feed(SAMPLE)
    reading = scanner.result()

    assert (reading.complete, reading.terminal, reading.upstream_id) == (True, True, "int_1")
    assert (reading.model, reading.reasoning) == ("gemini-3.8-flash", 160)
    assert reading.portions[0].usage == {
        Unit.INPUT: 590, Unit.CACHE_READ: 100, Unit.OUTPUT: 191, Unit.WEB_SEARCH: 2, Unit.SEARCH_PROMPT: 1,
    }  # fmt: skip


def test_a_whole_reply_states_its_usage():
    reading = body(interaction(service_tier="priority"))

    assert (reading.complete, reading.terminal, reading.terms.tier) == (True, True, "priority")
    assert reading.portions[0].usage == UNITS
    assert (reading.reasoning, reading.generated_bytes > 0, reading.delivered) == (5, True, True)


@pytest.mark.parametrize("status", ["completed", "requires_action", "incomplete", "requires_continuation", "failed"])
def test_however_it_ended_stated_usage_is_what_it_cost(status: str):
    for reading in (
        body(interaction(status)),
        stream(created(), DELTA, completed(status)),
        body(interaction(status), None),
    ):
        assert (reading.complete, reading.terminal, reading.pending) == (True, True, False)
        assert reading.portions[0].usage == UNITS


def test_what_the_total_has_more_is_output():
    assert body(interaction(usage=USAGE | {"total_tokens": 200})).portions[0].usage[Unit.OUTPUT] == 100


def test_tokens_of_each_modality_are_told_apart():
    details = {
        "input_tokens_by_modality": [{"modality": "text", "tokens": 50}, {"modality": "audio", "tokens": 30},
                                     {"modality": "image", "tokens": 20}],
        "cached_tokens_by_modality": [{"modality": "audio", "tokens": 10}, {"modality": "text", "tokens": 30}],
        "output_tokens_by_modality": [{"modality": "image", "tokens": 7}],
    }  # fmt: skip

    usage = body(interaction(usage=USAGE | details)).portions[0].usage

    assert usage == {
        Unit.INPUT: 20, Unit.AUDIO_IN: 20, Unit.IMAGE_IN: 20, Unit.CACHE_READ: 30, Unit.CACHE_AUDIO: 10,
        Unit.OUTPUT: 5, Unit.IMAGE_OUT: 7,
    }  # fmt: skip


def test_tokens_that_no_modality_explains_may_be_what_was_asked_for():
    parsed = asked(response_modalities=["image"])

    (portion,) = body(interaction(), parsed).portions

    assert Doubt(Unit.OUTPUT, 7, frozenset({Unit.IMAGE_OUT})) in portion.doubts


def test_maps_and_searches_are_counted_and_an_unknown_kind_leaves_the_cost_open():
    counts = [{"type": "google_maps", "count": 3}, {"type": "google_search", "count": 0}]

    reading = body(interaction(usage=USAGE | {"grounding_tool_count": counts}))

    assert (reading.complete, reading.portions[0].usage) == (True, UNITS | {Unit.MAPS: 3, Unit.MAPS_PROMPT: 1})
    assert not body(interaction(usage=USAGE | {"grounding_tool_count": [{"type": "retrieval", "count": 1}]})).complete


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        USAGE | {"total_input_tokens": None},
        USAGE | {"total_tokens": None},
        USAGE | {"total_output_tokens": -1},
        USAGE | {"total_output_tokens": 0, "total_thought_tokens": 0, "total_tokens": 100},
        USAGE | {"total_tokens": "many"},
        USAGE | {"grounding_tool_count": [{"type": "google_search", "count": -1}]},
    ],
)
def test_usage_that_is_not_all_there_is_none(usage: object):
    """Also where something was said and no output is counted."""
    for reading in (body(interaction(usage=usage)), stream(created(), DELTA, completed(usage=usage))):
        assert (reading.complete, reading.terminal) == (False, True)


def test_usage_on_the_way_is_no_final_one_and_the_last_object_replaces_it():
    early = USAGE | {"total_output_tokens": 1, "total_thought_tokens": 0, "total_tokens": 101}
    on_the_way = (
        DELTA | {"metadata": {"total_usage": early}},
        {"event_type": "step.stop", "index": 0, "usage": early, "step_usage": USAGE},
        {"event_type": "interaction.status_update", "interaction_id": "int_1", "status": "in_progress", "usage": early},
    )
    for event in on_the_way:
        reading = stream(created(), DELTA, event, end=False)
        assert (reading.complete, reading.terminal) == (False, False)
        assert reading.portions[0].usage == {Unit.INPUT: 60, Unit.CACHE_READ: 40, Unit.OUTPUT: 1}
        assert stream(created(), event, completed(), event).portions[0].usage == UNITS
    ended = {"event_type": "interaction.status_update", "interaction_id": "int_1", "status": "failed", "usage": early}
    assert (stream(created(), ended).complete, stream(created(), ended).terminal) == (False, True)


ENDS = ("completed", "requires_action", "incomplete", "failed", "cancelled", "budget_exceeded", "requires_continuation")


@pytest.mark.parametrize("status", ENDS)
def test_what_may_be_polled_has_not_ended_with_a_status_but_with_its_last_object(status: str):
    """Between the two a stream may be cut; what it used is in the second, or in a later poll."""
    parsed = asked(background=True, stream=True)
    ended = {"event_type": "interaction.status_update", "interaction_id": "int_1", "status": status}

    poll, whole = stream(created(), ended, parsed=None), stream(created(), ended, completed(status), parsed=None)
    begun, done = stream(created(), ended, parsed=parsed), stream(created(), ended, completed(status), parsed=parsed)

    assert (poll.complete, poll.terminal, begun.complete, begun.pending) == (False, False, False, True)
    assert (whole.complete, whole.terminal, done.complete, done.pending) == (True, True, True, False)


@pytest.mark.parametrize("status", ENDS)
def test_a_last_object_without_usage_is_the_end_only_where_no_later_poll_can_know_more(status: str):
    parsed, never = asked(background=True, stream=True), status in ("failed", "cancelled", "budget_exceeded")

    poll = stream(created(), completed(status, None), parsed=None)
    begun = stream(created(), completed(status, None), parsed=parsed)

    assert (poll.complete, poll.terminal) == (False, never)
    assert (begun.complete, begun.terminal, begun.pending) == (False, never, not never)


def test_an_error_event_is_named_and_ends_nothing():
    reading = stream(created(), DELTA, {"event_type": "error", "error": {"code": "internal", "message": "m"}})

    assert (reading.error, reading.complete, reading.terminal) == ("internal", False, False)


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_an_interaction_that_is_still_worked_on_is_pending(status: str):
    reading = body(interaction(status, None, steps=None))

    assert (reading.pending, reading.upstream_id, reading.complete) == (True, "int_1", False)
    assert not body(interaction(status, None) | {"id": None}).pending


def test_a_stream_of_one_in_the_background_is_pending_until_it_ends():
    parsed = asked(background=True, stream=True)

    assert stream(created(), DELTA, parsed=parsed, end=False).pending
    assert not stream(created(), DELTA, end=False).pending
    assert not stream(created(), DELTA, completed(), parsed=parsed).pending


@pytest.mark.parametrize("status", ["queued", "in_progress", "idle", "brand_new"])
def test_usage_before_the_end_is_only_what_it_has_come_to(status: str):
    for parsed in (ASKED, None):
        assert not body(interaction(status), parsed).complete
    assert not stream(created(), DELTA, completed(status)).complete


@pytest.mark.parametrize(
    ("status", "ends"),
    [("completed", False), ("incomplete", False), ("idle", False), ("failed", True), ("cancelled", True)],
)
def test_a_poll_without_usage_is_the_last_only_where_no_later_one_can_know_more(status: str, ends: bool):
    reading = body(interaction(status, None), None)

    assert (reading.complete, reading.pending, reading.terminal) == (False, False, ends)


def test_what_the_client_said_is_no_output():
    said = {"type": "user_input", "content": [{"type": "text", "text": "x" * 99}]}
    told = interaction(usage=USAGE | {"total_output_tokens": 0, "total_thought_tokens": 0, "total_tokens": 100})

    reading = body(told | {"steps": [said]}, None)

    assert (reading.delivered, reading.complete) == (False, True)


def test_an_event_that_is_too_long_leaves_the_rest_readable():
    scanner = WIRE.scanner(streamed=True, asked=ASKED)
    scanner.feed(b"data: " + b"x" * ((1 << 20) + 10) + b"\n\n")
    assert scanner.result().delivered
    scanner.feed(f"data: {json.dumps(completed())}\n\n".encode())

    assert scanner.result().complete


def test_cut_anywhere_it_is_complete_only_with_its_last_event():
    end = SAMPLE.index(b"\n\n", SAMPLE.index(b"event: interaction.completed"))
    for at in range(len(SAMPLE) + 1):
        scanner = WIRE.scanner(streamed=True, asked=ASKED)
        scanner.feed(SAMPLE[:at])
        assert scanner.result().complete == (at >= end)


def test_a_stream_has_ended_with_its_last_event():
    scanner = WIRE.scanner(streamed=True, asked=ASKED)
    end = SAMPLE.index(b"event: done")
    scanner.feed(SAMPLE[: SAMPLE.index(b"event: interaction.completed")])
    assert not scanner.has_ended
    scanner.feed(SAMPLE[SAMPLE.index(b"event: interaction.completed") : end])
    assert scanner.has_ended

"""What is left out of a conversation near a cap: in every format the same, and the same on each later call."""

import json
from dataclasses import replace

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from talks import SAID, Turn, asked, body_of, given

from lockpin_core.wire import wire_named

LONG = "x" * 2049
MARKER = "[lockpin: tool result of {} bytes left out to stay in the budget]"
TEXTS = st.sampled_from(["", "ok", "y" * 2048, LONG, "é" * 1025, "\U0001f600" * 600, 'a"\\\n' * 900, "\ud800" * 700])
TURNS = st.lists(
    st.builds(Turn, st.lists(TEXTS, max_size=3).map(tuple), st.sampled_from(["", "so", LONG]), st.booleans()),
    max_size=8,
)
each_format = pytest.mark.parametrize("wire", SAID)


def left_out(text: str) -> str:
    """Say what stands for a text that is left out."""
    return MARKER.format(len(text.encode("utf-8", "surrogatepass")))


def without_surrogates(turn: Turn) -> Turn:
    return replace(turn, results=tuple(text.replace("\ud800", "\ufffd") for text in turn.results))


def trimmed(turns: list[Turn], trim: int) -> list[Turn]:
    """Leave out long texts of the first results, by hand."""
    made, count = [], 0
    for turn in turns:
        first, count = count, count + len(turn.results)
        texts = enumerate(turn.results, first)
        results = [left_out(text) if place < trim and is_long(text) else text for place, text in texts]
        made.append(replace(turn, results=tuple(results)))
    return made


def is_long(text: str) -> bool:
    return len(text.encode("utf-8", "surrogatepass")) > 2048


@each_format
def test_results_older_than_three_turns_may_go(wire: str):
    turns = [Turn(("a", "b")), Turn(("c",)), Turn(()), Turn(("d",)), Turn(("e", "f")), Turn(("g",))]

    assert [wire_named(wire).trimmable(asked(wire, body_of(wire, "task", turns[:count]))) for count in range(7)] == [
        0, 0, 0, 0, 0, 2, 3,
    ]  # fmt: skip


@each_format
def test_long_texts_of_leading_results_are_left_out(wire: str):
    turns = [Turn((LONG, "y" * 2048)), Turn(("é" * 2000,), as_parts=True), Turn((LONG,))]
    request = asked(wire, body_of(wire, "task", turns))

    made = wire_named(wire).lightened(request, cache_5m=False, trim=3)

    assert made is not None
    assert given(wire, json.loads(made)) == [MARKER.format(2049), "y" * 2048, MARKER.format(4000), LONG]
    raw = request.body.decode()
    assert made.decode() == raw.replace(LONG, MARKER.format(2049), 1).replace("é" * 2000, MARKER.format(4000))


@each_format
@pytest.mark.parametrize("trim", [0, 1])
def test_nothing_changes_where_no_result_that_counts_is_long(wire: str, trim: int):
    request = asked(wire, body_of(wire, LONG, [Turn(("y" * 2048, LONG), says=LONG)]))

    assert wire_named(wire).lightened(request, cache_5m=True, trim=trim) is None


@each_format
def test_hour_that_is_no_mark_for_the_cache_stays(wire: str):
    request = asked(wire, body_of(wire, '"ttl": "1h"', [Turn(("1h",), says="1h")]))

    assert wire_named(wire).lightened(request, cache_5m=True, trim=1) is None


@each_format
def test_signed_body_stays(wire: str):
    request = asked(wire, body_of(wire, "task", [Turn((LONG,))]), authorization="AWS4-HMAC-SHA256 Credential=x")

    assert wire_named(wire).lightened(request, cache_5m=True, trim=1) is None


@each_format
@settings(max_examples=60)
@drawn(turns=TURNS, data=st.data(), is_ascii=st.booleans(), indent=st.sampled_from([None, 1]))
def test_what_a_later_call_repeats_is_the_same_to_the_byte(
    wire: str, turns: list[Turn], data: st.DataObject, is_ascii: bool, indent: int | None
):
    def raw(turns: list[Turn]) -> bytes:
        return json.dumps(body_of(wire, "tâsk", turns), ensure_ascii=is_ascii, indent=indent).encode()

    turns = turns if is_ascii else [*map(without_surrogates, turns)]
    speaker, count = wire_named(wire), data.draw(st.integers(0, len(turns)))
    sooner, later = raw(turns[:count]), raw(turns)
    trim = data.draw(st.integers(0, speaker.trimmable(asked(wire, later)) + 2))
    shared = _shared(sooner, later)

    first, second = (speaker.lightened(asked(wire, one), cache_5m=False, trim=trim) or one for one in (sooner, later))

    # As much of both is the same as of what came in: the ends of the lists alone are not.
    assert first[: len(first) - (len(sooner) - shared)] == second[: len(first) - (len(sooner) - shared)]
    assert speaker.conversation(asked(wire, sooner)) == speaker.conversation(asked(wire, later)) is not None
    assert json.loads(second) == body_of(wire, "tâsk", trimmed(turns, trim))
    _check_bound(wire, later, second)


def _shared(sooner: bytes, later: bytes) -> int:
    """Count the bytes that two bodies begin with alike."""
    return next(
        (place for place, (one, other) in enumerate(zip(sooner, later, strict=False)) if one != other),
        min(len(sooner), len(later)),
    )


def _check_bound(wire: str, before: bytes, after: bytes) -> None:
    """What is left has no higher a bound."""
    first, second = (wire_named(wire).parse(asked(wire, one)).content for one in (before, after))
    assert second.text_bytes <= first.text_bytes and second.nfc_bytes <= first.nfc_bytes
    assert (first.strings, first.messages, first.hidden) == (second.strings, second.messages, second.hidden)


@each_format
def test_a_conversation_is_known_by_its_first_user_message_alone(wire: str):
    speaker = wire_named(wire)

    def known(task: str, turns: list[Turn]) -> bytes | None:
        return speaker.conversation(asked(wire, body_of(wire, task, turns)))

    assert known("task", []) == known("task", [Turn(("a",)), Turn(("b",), says="other")])
    assert known("task", []) != known("task!", [])
    assert len(known("task", []) or b"") == 32


@pytest.mark.parametrize("wire", ["openai_embeddings", "openai_images", "openai_completions", "anthropic_batches"])
def test_other_formats_hold_no_conversation(wire: str):
    request = asked(wire, {"model": "m", "prompt": "x", "input": "x"})

    speaker = wire_named(wire)
    assert speaker.conversation(request) is None
    assert speaker.trimmable(request) == 0
    assert speaker.lightened(request, cache_5m=True, trim=9) is None


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        ("gemini", b'{"contents":[{"parts":[{"functionResponse":{"name":"f","response":{"a":%b}}}]}]}'),
        ("gemini_interactions", b'{"model":"m","input":[{"type":"function_result","result":{"a":%b}}]}'),
        ("bedrock_converse", b'{"messages":[{"role":"user","content":[{"toolResult":{"content":[{"json":%b}]}}]}]}'),
    ],
)
@pytest.mark.parametrize(("depth", "goes"), [(20, True), (5000, False)])
def test_text_that_stands_deeper_than_anybody_reads_stays(wire: str, body: bytes, depth: int, goes: bool):
    request = asked(wire, body % (b"[" * depth + b'"%b"' % LONG.encode() + b"]" * depth))
    speaker = wire_named(wire)
    speaker.parse(request)

    made = speaker.lightened(request, cache_5m=True, trim=1)

    assert made == (request.body.replace(LONG.encode(), MARKER.format(2049).encode()) if goes else None)
    assert speaker.trimmable(request) == 0
    assert (speaker.conversation(request) is None) == (wire == "gemini_interactions")


@each_format
def test_body_that_is_no_json_holds_no_conversation(wire: str):
    assert wire_named(wire).conversation(asked(wire, b"--x")) is None
    assert wire_named(wire).trimmable(asked(wire, b"[]")) == 0

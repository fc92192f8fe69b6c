"""Replies that are asked for later, in both formats that know them: whoever polls is charged what a reply to the call
itself would have been, never more than is held, and nothing by a poll that does not say all.

A token of "ear" costs $0.000001 as prompt and as output five times that; heard or drawn it costs more, written to a
cache for twelve hours twice as much.
"""

import asyncio
import json
from dataclasses import dataclass, field, replace

import pytest
from desks import FACTS, Desk, config
from hypothesis import given
from hypothesis import strategies as st

from lockpin_core.call import Charge, Ending, Outcome
from lockpin_core.engine import Passed
from lockpin_core.settler import Admitted

MEDIA = {"audio_in": "10", "image_in": "3", "audio_out": "40", "image_out": "30", "cache_audio": "2"}
WRITES = {"cache_read": "0.1", "cache_write_30m": "1.25", "cache_write_12h": "2"}
EAR = {"ear": {"input": "1", "output": "5", **MEDIA, **WRITES, "tiers": {"priority": {"x": "2"}}, **FACTS}}
DONE = Outcome(Ending.DONE, 200)


@dataclass(frozen=True)
class Format:
    """Where a format's calls go, and how a reply to one looks."""

    provider: str
    path: str
    key: dict[str, str]
    last_event: str
    told: dict[str, object] = field(default_factory=dict)

    def reply(self, usage: object, status: str = "completed", **more: object) -> dict:
        return {"id": "r1", "model": "ear", "status": status, "usage": usage, **more}


INTERACTIONS = Format(
    "gemini", "/v1beta/interactions", {"x-goog-api-key": "one"}, "interaction.completed",
    {"generation_config": {"max_output_tokens": 1000}},
)  # fmt: skip
RESPONSES = Format(
    "openai", "/v1/responses", {"authorization": "Bearer sk-one"}, "response.completed", {"max_output_tokens": 1000}
)
PLAIN_INTERACTION = {"total_input_tokens": 1000, "total_output_tokens": 20, "total_tokens": 1020}
PLAIN_RESPONSE = {"input_tokens": 1000, "output_tokens": 20, "total_tokens": 1020}


def ask(desk: Desk, kind: Format, **more: object) -> Admitted:
    told = {"model": "ear", "input": "hi", **kind.told, **more}
    found = desk.ask(told, provider=kind.provider, path=kind.path, headers=kind.key)
    assert isinstance(found, Admitted)
    return found


def charge_of(desk: Desk, admitted: Admitted) -> Charge:
    charge = desk.ledger._done[admitted.held.call.id][0].charge
    assert charge is not None
    assert charge.amount <= admitted.held.call.quote.most
    return charge


def whole(desk: Desk, admitted: Admitted, reply: dict) -> Charge:
    """End a call with this as the reply to itself."""
    scanner = admitted.wire.scanner(streamed=False, asked=admitted.parsed)
    scanner.feed(json.dumps(reply).encode())
    assert desk.engine.settle(admitted, scanner.result(), DONE).result() is not None
    return charge_of(desk, admitted)


def started(desk: Desk, kind: Format, **more: object) -> Admitted:
    """Start a call in the background."""
    admitted = ask(desk, kind, background=True, **more)
    scanner = admitted.wire.scanner(streamed=False, asked=admitted.parsed)
    scanner.feed(json.dumps(kind.reply(None, "in_progress")).encode())
    assert desk.engine.settle(admitted, scanner.result(), DONE).result() is None
    return admitted


def poll(
    desk: Desk, kind: Format, body: bytes, *, streamed: bool = False, query: str = "", headers: dict | None = None
) -> bool:
    """Ask for a reply, and say whether anybody listens to what comes."""
    incoming = desk.incoming(
        provider=kind.provider, path=f"{kind.path}/r1", method="GET", headers=kind.key | (headers or {})
    )
    passed = asyncio.run(desk.engine.admit(replace(incoming, query=query)))
    assert isinstance(passed, Passed)
    if passed.polled is None:
        return False
    scanner = passed.polled.wire.scanner(streamed=streamed)
    scanner.feed(body)
    asyncio.run(desk.engine.settle_polled(passed.polled, scanner.result()))
    return True


def sse(kind: Format, *events: dict) -> bytes:
    key = "event_type" if kind is INTERACTIONS else "type"
    told = [{key: name, **event} for one in events for name, event in one.items()]
    return "".join(f"event: {one[key]}\ndata: {json.dumps(one)}\n\n" for one in told).encode()


def last(kind: Format, usage: object, status: str = "completed") -> dict:
    name = "interaction" if kind is INTERACTIONS else "response"
    event = kind.last_event if kind is INTERACTIONS else f"response.{status}"
    return {event: {name: kind.reply(usage, status)}}


# The same usage costs the same, whoever asks for it

SOUND = {"type": "audio", "data": "AAAA", "mime_type": "audio/wav"}
PICTURE = {"type": "image", "data": "AAAA", "mime_type": "image/png"}
ASKED_INTERACTIONS = [
    {},
    {"input": [SOUND]},
    {"input": [PICTURE]},
    {"input": [SOUND, PICTURE]},
    {"response_modalities": ["audio"]},
    {"response_modalities": ["image", "text"], "input": [SOUND]},
    {"cached_content": "cachedContents/c"},
    {"previous_interaction_id": "elsewhere"},
    {"previous_interaction_id": "elsewhere", "input": [SOUND]},
    {"service_tier": "priority"},
]
SEEN = {"role": "user", "content": [{"type": "input_image", "image_url": "https://x/y.png"}]}
HEARD = {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "A", "format": "mp3"}}]}
ASKED_RESPONSES = [
    {},
    {"input": [SEEN]},
    {"input": [HEARD]},
    {"input": [SEEN, HEARD]},
    {"prompt_cache_options": {"ttl": "12h"}},
    {"prompt_cache_retention": "24h"},
    {"service_tier": "default"},
    {"previous_response_id": "elsewhere"},
]
counts = st.integers(0, 400)


@st.composite
def interaction_usages(draw: st.DrawFn, asked: dict) -> dict:
    """Draw usage that may stand in a reply to this: what is heard, seen, said and drawn is what was asked for."""
    shown = {str(one["type"]) for one in asked.get("input", ())}
    heard = {"audio", "image"} if "cached_content" in asked else shown
    made = set(asked.get("response_modalities", ()))

    def modes(kinds: set[str]) -> st.SearchStrategy[list[dict]]:
        kind = st.sampled_from(sorted(kinds | {"text"}))
        return st.lists(st.fixed_dictionaries({"modality": kind, "tokens": counts}), max_size=3)

    prompt, output, thoughts = draw(counts), draw(counts), draw(counts)
    told = {
        "total_input_tokens": prompt, "total_cached_tokens": draw(st.integers(0, prompt)),
        "total_output_tokens": output, "total_thought_tokens": thoughts, "total_tokens": prompt + output + thoughts,
    }  # fmt: skip
    details = {
        "input_tokens_by_modality": modes(heard),
        "cached_tokens_by_modality": modes(heard),
        "output_tokens_by_modality": modes(made),
    }
    return told | {key: value for key, drawn in details.items() if (value := draw(st.none() | drawn)) is not None}


@st.composite
def response_usages(draw: st.DrawFn) -> dict:
    prompt, output = draw(counts), draw(counts)
    some = st.fixed_dictionaries(
        {},
        optional={
            "cached_tokens": st.integers(0, prompt), "audio_tokens": st.integers(0, prompt),
            "image_tokens": st.integers(0, prompt), "text_tokens": st.integers(0, prompt),
            "cache_write_tokens": st.integers(0, prompt),
            "cache_write_tokens_details": st.just({"ttl_30m_tokens": prompt}) | st.just({"ttl_12h_tokens": prompt}),
        },
    )  # fmt: skip
    told = {"input_tokens": prompt, "output_tokens": output, "total_tokens": prompt + output}
    return told | {"input_tokens_details": draw(some)}


def pairs(kind: Format, asked: dict, usage: dict) -> tuple[Charge, Charge, Charge]:
    """Charge one usage as the reply to the call, as the answer to a poll, and at the end of a polled stream."""
    reply, found = kind.reply(usage), []
    desk = Desk(config(pricing=EAR))
    found.append(whole(desk, ask(desk, kind, **asked), reply))
    for streamed, body in ((False, json.dumps(reply).encode()), (True, sse(kind, last(kind, usage)))):
        desk = Desk(config(pricing=EAR))
        admitted = started(desk, kind, **asked)
        assert poll(desk, kind, body, streamed=streamed)
        found.append(charge_of(desk, admitted))
    return found[0], found[1], found[2]


@given(st.data())
def test_a_poll_of_an_interaction_is_charged_what_a_reply_to_it_is(data: st.DataObject):
    asked = data.draw(st.sampled_from(ASKED_INTERACTIONS))
    usage = data.draw(interaction_usages(asked))

    reply, polled, streamed = pairs(INTERACTIONS, asked, usage)

    assert polled == streamed == reply


@given(st.sampled_from(ASKED_RESPONSES), response_usages())
def test_a_poll_of_a_response_is_charged_no_less_than_a_reply_to_it(asked: dict, usage: dict):
    reply, polled, streamed = pairs(RESPONSES, asked, usage)

    assert polled == streamed
    assert polled.amount >= reply.amount


def test_sound_that_no_detail_tells_apart_is_charged_as_sound_by_a_poll_too():
    """1,000 tokens of prompt at $10 a million, 20 of output at $5."""
    for kind, asked, usage in (
        (INTERACTIONS, {"input": [SOUND]}, PLAIN_INTERACTION),
        (RESPONSES, {"input": [HEARD]}, PLAIN_RESPONSE),
    ):
        assert {charge.amount.nano for charge in pairs(kind, asked, usage)} == {10_100_000}
        assert {charge.amount.nano for charge in pairs(kind, {}, usage)} == {1_100_000}


def test_writes_to_a_cache_are_the_dearer_ones_that_were_asked_for_by_a_poll_too():
    """800 of 1,000 tokens were written: at $2 a million, or where nobody asked, at $1.25; 20 of output at $5."""
    usage = PLAIN_RESPONSE | {"input_tokens_details": {"cache_write_tokens": 800}}

    long = pairs(RESPONSES, {"prompt_cache_options": {"ttl": "12h"}}, usage)
    usual = pairs(RESPONSES, {}, usage)

    assert {charge.amount.nano for charge in long} == {200 * 1_000 + 800 * 2_000 + 20 * 5_000}
    assert {charge.amount.nano for charge in usual} == {200 * 1_000 + 800 * 1_250 + 20 * 5_000}


@pytest.mark.parametrize("back", ["r0", None, ...])
def test_what_a_turn_goes_back_to_is_known_whatever_its_poll_says_of_it(back: object):
    """11 tokens are stated after a turn of 5,000 in and 10 out; nobody says that none of them are pictures, at $3."""
    desk = Desk(config(pricing=EAR))
    old = {"total_input_tokens": 5000, "total_output_tokens": 10, "total_tokens": 5010}
    whole(desk, ask(desk, INTERACTIONS), INTERACTIONS.reply(old) | {"id": "r0"})
    admitted = started(desk, INTERACTIONS, previous_interaction_id="r0")
    usage = {"total_input_tokens": 11, "total_output_tokens": 10, "total_tokens": 21}
    told = {} if back is ... else {"previous_interaction_id": back}

    poll(desk, INTERACTIONS, json.dumps(INTERACTIONS.reply(usage, **told)).encode())

    charge = charge_of(desk, admitted)
    assert (charge.amount.nano, charge.reason) == ((11 + 5010) * 3_000 + 10 * 5_000, "hidden_input")


def test_a_turn_that_goes_back_to_nothing_is_charged_what_it_states_whatever_its_poll_says():
    desk = Desk(config(pricing=EAR))
    admitted = started(desk, INTERACTIONS)

    poll(desk, INTERACTIONS, json.dumps(INTERACTIONS.reply(PLAIN_INTERACTION, previous_interaction_id="r0")).encode())

    assert (charge_of(desk, admitted).amount.nano, charge_of(desk, admitted).reason) == (1_100_000, None)


# Polls that do not say all


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("?fields=id,status,usage(total_input_tokens,total_output_tokens,total_tokens)", {}),
        ("?alt=json&$fields=usage", {}),
        ("?%24fields=usage", {}),
        ("?f%69elds=usage", {}),
        ("", {"x-goog-fieldmask": "usage"}),
    ],
)
def test_a_poll_whose_reply_the_client_has_cut_down_passes_and_settles_nothing(query: str, headers: dict):
    """Though what is left of it looks whole: here without the modalities of what was heard."""
    desk = Desk(config(pricing=EAR))
    admitted = started(desk, INTERACTIONS, input=[SOUND])
    held = desk.held()
    masked = json.dumps(INTERACTIONS.reply(PLAIN_INTERACTION)).encode()

    assert not poll(desk, INTERACTIONS, masked, query=query, headers=headers)
    assert (desk.kinds(), desk.held()) == (["hold"], held)

    details = {"input_tokens_by_modality": [{"modality": "text", "tokens": 1000}]}
    poll(desk, INTERACTIONS, json.dumps(INTERACTIONS.reply(PLAIN_INTERACTION | details)).encode(), query="?alt=json")
    assert charge_of(desk, admitted).amount.nano == 1_100_000


@pytest.mark.parametrize("status", ["completed", "requires_action", "incomplete", "failed", "cancelled"])
def test_a_polled_stream_that_was_cut_before_its_last_event_leaves_the_hold_to_the_next_poll(status: str):
    desk = Desk(config(pricing=EAR))
    admitted = started(desk, INTERACTIONS)
    held = desk.held()
    begun = {"interaction.created": {"interaction": {"id": "r1", "status": "in_progress"}}}
    ended = {"interaction.status_update": {"interaction_id": "r1", "status": status}}

    poll(desk, INTERACTIONS, sse(INTERACTIONS, begun, ended), streamed=True)
    assert (desk.kinds(), desk.held()) == (["hold"], held)
    poll(desk, INTERACTIONS, json.dumps(INTERACTIONS.reply(PLAIN_INTERACTION, status)).encode())

    assert charge_of(desk, admitted).amount.nano == 1_100_000


@pytest.mark.parametrize("kind", [INTERACTIONS, RESPONSES], ids=lambda kind: kind.provider)
def test_cut_anywhere_a_polled_stream_settles_right_or_not_at_all(kind: Format):
    usage = PLAIN_INTERACTION if kind is INTERACTIONS else PLAIN_RESPONSE
    begun = (
        {"interaction.created": {"interaction": {"id": "r1", "status": "in_progress", "background": True}}}
        if kind is INTERACTIONS
        else {"response.created": {"response": kind.reply(None, "in_progress", background=True)}}
    )
    between = {"interaction.status_update": {"interaction_id": "r1", "status": "completed"}}
    stream = sse(kind, begun, *([between] if kind is INTERACTIONS else []), last(kind, usage))
    ends = set()

    for at in range(0, len(stream) + 1, 7):
        desk = Desk(config(pricing=EAR))
        started(desk, kind)
        poll(desk, kind, stream[:at], streamed=True)
        ends.add(tuple(row.usd for row in desk.ledger.rows[1:]))
        poll(desk, kind, stream, streamed=True)
        assert [row.usd for row in desk.ledger.rows[1:]] == [1_100_000]

    assert ends <= {(), (1_100_000,)}


@pytest.mark.parametrize(
    ("status", "ends"), [("completed", False), ("incomplete", False), ("failed", True), ("cancelled", True)]
)
@pytest.mark.parametrize("kind", [INTERACTIONS, RESPONSES], ids=lambda kind: kind.provider)
def test_a_stream_that_says_nothing_of_usage_settles_only_where_no_later_poll_can_know_more(
    kind: Format, status: str, ends: bool
):
    desk = Desk(config(pricing=EAR))
    started(desk, kind)
    held = desk.held()

    poll(desk, kind, sse(kind, last(kind, None, status)), streamed=True)

    assert [row.usd for row in desk.ledger.rows] == ([held, held] if ends else [held])


@pytest.mark.parametrize("kind", [INTERACTIONS, RESPONSES], ids=lambda kind: kind.provider)
def test_the_stream_of_a_background_call_that_says_nothing_of_usage_leaves_it_to_a_poll(kind: Format):
    """It was cut after what says that it has ended, or the provider left the usage out."""
    usage = PLAIN_INTERACTION if kind is INTERACTIONS else PLAIN_RESPONSE
    desk = Desk(config(pricing=EAR))
    admitted = ask(desk, kind, background=True, stream=True)
    scanner = admitted.wire.scanner(streamed=True, asked=admitted.parsed)
    scanner.feed(sse(kind, last(kind, None)))

    assert desk.engine.settle(admitted, scanner.result(), DONE).result() is None
    poll(desk, kind, json.dumps(kind.reply(usage)).encode())

    assert charge_of(desk, admitted).amount.nano == 1_100_000

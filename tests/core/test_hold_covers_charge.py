"""Hold ≥ charge, in dollars and in tokens: whatever a provider may bill for a request is within what was held for it.

What it may bill is said by hand beside each request (`bodies`), and how many tokens a text is by the true tokenizer
where that is published, elsewhere by the most that any is known to make. No bound of the product's takes part in it.
"""

import random
from dataclasses import replace

import pytest
from bills import KNOWN, OUTPUTLESS, Asked, Drawn, Worst, ask, assert_covered, bill, geos, place_of, places
from bodies import SEARCH_LIMIT, Body
from desks import NOW
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st
from richest import BODIES

from lockpin_core.admission import Refused
from lockpin_core.call import Terms
from lockpin_core.errors import WireError
from lockpin_core.money import ZERO, Money
from lockpin_core.prices import Model, price
from lockpin_core.sizing import counts, tokenizer
from lockpin_core.usage import Unit, Usage
from lockpin_core.wire import WIRES

TALKING = ("gemini", "gemini_interactions", "code_assist")
by_name = lambda body: f"{body.wire}: {body.name}"  # noqa: E731


@pytest.mark.parametrize("body", BODIES, ids=by_name)
def test_the_most_that_may_be_billed_is_held(body: Body):
    """In each unit by itself, at a model of which everything is known: none of these calls is refused."""
    provider, name = KNOWN[body.wire]
    name = "talker" if body.speaks and body.wire in TALKING else name
    asked = ask(body, place_of(body.wire, provider), name, text="Grüße, " * 300, other="claude-opus-5-5")

    for unit in range(8):
        assert_covered(asked, bill(asked), Worst(unit))


def test_every_wire_has_bodies():
    assert {body.wire for body in BODIES} == {wire.name for wire in WIRES} == {*KNOWN}
    assert {body.wire for body in BODIES if body.name == "rich"} == {wire.name for wire in WIRES}


# Texts of all kinds

RARE = "".join(map(chr, [0x12000, 0xA000, 0x20000, 0xE000, 0x0F00, 0x1200, 0x1D160, 0xFB1D, 0x0344, 0x1F600]))
_RNG = random.Random(15)
TEXTS = {
    "words": "The quick brown fox jumps over the lazy dog. " * 30,
    "base64": "".join(_RNG.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", k=1500)),
    "uuids": "\n".join(_RNG.randbytes(16).hex("-", 4) for _ in range(40)),
    "ascii": "".join(map(chr, _RNG.choices(range(32, 127), k=1500))),
    "worst of Claude": "Xq." * 400,
    "alternating": "a1B2" * 300,
    "rare": RARE * 60,
    "growing": "\U0001d160" * 400,
    "marks": "".join(_RNG.choices("aeio\u0300\u0301\u0323\u0344", k=900)),
    "spaces": " " * 2000,
    "one": "x",
    "none": "",
}
texts_drawn = st.sampled_from(sorted(TEXTS)).map(TEXTS.__getitem__) | st.text(max_size=60)


KINDS = {
    "any": tuple(BODIES),
    "settable": tuple(body for body in BODIES if body.wire not in (*OUTPUTLESS, "openai_compact", "anthropic_batches")),
    "with tools": tuple(body for body in BODIES if body.uses),
    "countable": tuple(
        body for body in BODIES if body.wire.startswith("openai_") and not body.hides and body.limit is not None
    ),
}


FIELDS = {
    "gemini": "serviceTier",
    **dict.fromkeys(("gemini_embed", "code_assist", "anthropic_batches", "bedrock_converse")),
    **dict.fromkeys(("openai_images", "openai_speech", "openai_transcriptions")),
}  # of tiers


@st.composite
def asking(draw: st.DrawFn, kind: str = "any") -> Asked:
    """Draw a request of some wire to some provider's model, with a tier that it may ask for."""
    body = draw(st.sampled_from(KINDS[kind]))
    whose = [one for one in places(body.wire) if kind != "countable" or one[0].name == "openai"]  # whose encodings are
    provider, path, models = draw(st.sampled_from(whose))
    known = provider.name == KNOWN[body.wire][0] and draw(st.booleans())
    name, other = draw(st.sampled_from(models)), draw(st.sampled_from(models))
    name = KNOWN[body.wire][1] if known else name
    word = draw(st.sampled_from([None, None, "auto", "default", "priority", "flex"]))
    field = FIELDS.get(body.wire, "service_tier")
    more = {field: word} if word and field and field not in body.told else {}
    text, host = draw(texts_drawn), draw(st.integers(0, 8))
    try:
        return ask(body, (provider, path), name, text=text, other=other, more=more, host=host)
    except (Refused, WireError):
        reject()


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_whatever_is_billed_within_what_the_request_allows_is_held(data: st.DataObject):
    asked = data.draw(asking())

    assert_covered(asked, bill(asked), Drawn(data.draw))


ADVISED = tuple(body for body in BODIES if body.others and body.wire == "anthropic_messages")
PLAIN, REGIONAL = "claude-haiku-4-5", "claude-opus-5-5"  # the first has no price of its own for a region


@pytest.mark.parametrize(("name", "other"), [(REGIONAL, PLAIN), (PLAIN, REGIONAL), (REGIONAL, REGIONAL)])
@pytest.mark.parametrize("body", ADVISED, ids=by_name)
def test_a_region_that_is_stated_for_all_models_of_a_call_is_held_for_all(body: Body, name: str, other: str):
    asked = ask(body, place_of("anthropic_messages", "anthropic"), name, text="Grüße, " * 300, other=other)
    assert asked.other is not None
    assert [bool(model.geos) for model in (asked.model, asked.other)] == [name == REGIONAL, other == REGIONAL]
    assert "us" in geos(asked)
    first, *others = asked.found.also
    own = replace(first, most=asked.call.quote.most - sum((one.most for one in asked.found.also), ZERO))

    for model, quote, ceiling in [
        (asked.model, own, asked.call.quote.ceiling),
        *((asked.other, one, one.ceiling) for one in (first, *others)),
    ]:
        dearest = max(ceiling.prompt_units, key=lambda unit: pico_of(model, {unit: 1000}))
        fees = {unit: count for unit, count in ceiling.fees.items() if count}
        usage = {dearest: ceiling.prompt, Unit.OUTPUT: ceiling.output, **fees}
        assert Money.from_pico(pico_of(model, usage)) <= quote.most


def pico_of(model: Model, usage: Usage) -> int:
    return price(model, usage, Terms(geo="us"), NOW)


# The same call, smaller


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(16, 5000))
def test_a_call_with_less_output_is_still_covered(data: st.DataObject, limit: int):
    asked = data.draw(asking("settable"))
    assume(asked.found.parsed.output_settable and (asked.body.limit is None or limit <= asked.body.limit))

    call = asked.found.call(limit)

    assert call.quote.most <= asked.call.quote.most
    assert_covered(asked, bill(asked, limit=limit), Drawn(data.draw), call)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(1, SEARCH_LIMIT - 1))
def test_a_call_with_fewer_tool_calls_is_still_covered(data: st.DataObject, limit: int):
    asked = data.draw(asking("with tools"))
    assume(asked.found.parsed.tools and asked.found.parsed.output_settable)
    fewer = [(max(0, use.calls - limit), use.fees) for use in asked.body.uses]
    less = sum(calls for calls, _ in fewer)
    body = replace(
        asked.body,
        reads=asked.body.reads - less,
        writes=asked.body.writes - (less if asked.body.writes > 1 else 0),
        fees={
            unit: count - sum(calls * fees.get(unit, 0) for calls, fees in fewer)
            for unit, count in asked.body.fees.items()
        },
    )
    found = asked.found.with_tool_limit(limit)

    call = found.call(None)

    assert call.quote.most <= asked.call.quote.most
    lowered = replace(asked, body=body, found=found)
    assert_covered(lowered, bill(lowered), Drawn(data.draw), call)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_call_whose_prompt_was_counted_is_still_covered(data: st.DataObject):
    asked = data.draw(asking("countable"))
    found, encoding = asked.found, asked.model.tokenizer
    assume(encoding in tokenizer.ENCODINGS)
    listed = found.wire.texts(found.incoming.request())
    assume(listed is not None)
    content = found.parsed.content

    tokens = counts.counted_here(content, asked.model, tokenizer.count(listed, encoding))
    counted = replace(found, parsed=replace(found.parsed, content=replace(content, counted=tokens)))

    assert counted.call(None).quote.most <= asked.call.quote.most
    assert_covered(asked, bill(asked), Drawn(data.draw), counted.call(None))


# Long texts

LONG = {
    "a megabyte of spaces": " " * 1_000_000,
    "base64": "".join(_RNG.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", k=120_000)),
    "uuids": "\n".join(_RNG.randbytes(16).hex("-", 4) for _ in range(3_000)),
    "rare scripts": RARE * 6_000,
    "what grows under NFC": "\U0001d160\u0958\ufb1d" * 15_000,
    "the worst of Claude": "Xq." * 40_000,
    "marks": "e" + "\u0301" * 50_000,
}
SIMPLE = tuple(body for body in BODIES if body.name in ("a prompt", "a text", "a content", "the best of three"))


@pytest.mark.parametrize("tokens", [*tokenizer.ENCODINGS, "bytes", "claude"])
@pytest.mark.parametrize("name", LONG)
def test_a_long_text_of_any_kind_is_covered(name: str, tokens: str):
    for body in SIMPLE:
        provider, model = KNOWN[body.wire]
        asked = ask(body, place_of(body.wire, provider), model, text=LONG[name])
        endless = replace(asked.model, tokenizer=tokens, context_tokens=None)
        found = replace(asked.found, model=endless)

        call = found.call(None)

        assert_covered(replace(asked, found=found), bill(replace(asked, found=found)), Worst(), call)


@pytest.mark.parametrize("tokens", [*tokenizer.ENCODINGS, "bytes", "claude"])
def test_many_tiny_messages_and_large_schemas_are_covered(tokens: str):
    tiny = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "é"}] * 4_000
    schema = {
        "type": "object",
        "properties": {f"Xq.{i}": {"type": "string", "description": "Xq.é"} for i in range(2_000)},
    }
    claude = {"messages": tiny, "tools": [{"name": "f", "description": "Xq." * 900, "input_schema": schema}]}
    chat = {"messages": tiny, "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}]}
    for wire, told in (("anthropic_messages", claude), ("openai_chat", chat)):
        body = next(body for body in SIMPLE if body.wire == wire)
        asked = ask(body, place_of(wire, KNOWN[wire][0]), KNOWN[wire][1], more=told)
        found = replace(asked.found, model=replace(asked.model, tokenizer=tokens, context_tokens=None))

        assert_covered(replace(asked, found=found), bill(replace(asked, found=found)), Worst(), found.call(None))

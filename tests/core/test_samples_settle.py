"""Every sample reply: scanner → reading → settlement with the shipped prices, to the nanodollar.

What is expected is worked out from the units that stand beside each sample and the text of the price files; no code of
the product's takes part in it. Every reply is also cut at every byte.
"""

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import frames
import pricebook
import pytest
from desks import NOW
from replies import DATA, ELSEWHERE, MODELS, MORE, OWN, PLACES, SAMPLES, UNBOUNDED, Asked, Sample, ask

from lockpin_core.admission import Incoming
from lockpin_core.call import Call, Charge, Ending, Later, Outcome, Reading, Void
from lockpin_core.money import Money
from lockpin_core.settlement import price_still_possible, settle
from lockpin_core.wire import wire_named

# Samples of wires that are not built yet.
LATER = {
    "responses_ws_session.jsonl": "Responses over a WebSocket",
}
# What the provider's own figure alone prices: a search that the price table of this seller does not know.
STATED_ALONE = ("openrouter_stream",)
# A model that draws, which has no price and which no request may name: nothing is sure but the hold.
NO_PRICE = ("responses_hosted_tools",)
PENDING = ("responses_background_queued",)
HIDES_THINKING = (
    *("anthropic_messages_stream_cut_after_start", "anthropic_messages_stream_error_event"),
    *("bedrock_invoke_stream_cut", "bedrock_invoke_stream_exception"),
)
STATE_PROMPT = ("anthropic_messages", "bedrock_invoke")  # formats whose first event states the prompt
COUNTS_ONLY = ("gemini_count_tokens", "bedrock_count_tokens")
DONE = Outcome(Ending.DONE, 200, seconds=1)
REPLIES = [sample for sample in SAMPLES if sample.status == 200 and sample.name not in COUNTS_ONLY]
COMPLETE = [sample for sample in REPLIES if sample.complete]
ERRORS = [sample for sample in SAMPLES if sample.status >= 400]
CUT = [sample for sample in REPLIES if not sample.complete and sample.name not in PENDING]
by_name = lambda sample: f"{sample.folder}-{sample.name}"  # noqa: E731


def usd(sample: Sample, came: Incoming) -> Fraction:
    """Work out a sample's price from its expected units and the text of the price files."""
    provider, meta = came.provider.name, sample.meta
    geo = meta.get("inference_geo") or came.provider.geo_of(came.host)
    terms = {"tier": meta.get("service_tier") or meta.get("traffic_type"), "speed": meta.get("speed"), "geo": geo}
    parts = ((OWN.get(model, model), usage) for model, usage in sample.usages.items())
    return sum((pricebook.dollars(provider, model, usage, NOW, **terms) for model, usage in parts), Fraction(0))


def up(dollars: Fraction) -> Money:
    return Money(math.ceil(dollars * 10**9))


def test_every_sample_has_a_place_and_those_of_later_wires_are_not_here_yet():
    here = {path.name for folder in PLACES for path in (DATA / folder).glob("*.*") if ".expect." not in path.name}

    assert {sample.path.name for sample in SAMPLES} == here
    assert not here & LATER.keys()
    assert all(LATER.values())
    assert len(here) + len(LATER) >= 104
    named = {*ELSEWHERE, *MODELS, *MORE, *UNBOUNDED, *STATED_ALONE, *NO_PRICE, *PENDING, *HIDES_THINKING}
    assert named <= {sample.name for sample in SAMPLES}


@pytest.mark.parametrize("sample", [s for s in COMPLETE if s.name not in NO_PRICE], ids=by_name)
def test_a_complete_reply_is_charged_its_price_to_the_nanodollar(sample: Sample):
    asked = ask(sample)

    charge = settle(asked.call, asked.reading(sample), DONE, asked.tariff)

    assert isinstance(charge, Charge)
    assert (charge.estimated, charge.failed, charge.reason) == (False, False, None)
    stated = Fraction(sample.meta.get("reported_cost_usd") or 0)
    own = Fraction(0) if sample.name in STATED_ALONE else usd(sample, asked.found.incoming)
    assert charge.amount == up(max(own, stated))
    assert {unit.value: count for unit, count in charge.usage.items()} == sample.usage
    pieces = (*pricebook.FEES, *pricebook.PIECES)
    assert charge.tokens == sum(count for unit, count in sample.usage.items() if unit not in pieces)
    if sample.name not in UNBOUNDED:
        assert charge.amount <= asked.call.quote.most
    assert charge.tokens <= asked.call.quote.tokens


@pytest.mark.parametrize("sample", [s for s in COMPLETE if s.name in NO_PRICE], ids=by_name)
def test_a_reply_with_a_unit_that_has_no_price_is_charged_its_hold(sample: Sample):
    asked = ask(sample)

    charge = settle(asked.call, asked.reading(sample), DONE, asked.tariff)

    assert isinstance(charge, Charge)
    assert (charge.amount, charge.reason, charge.estimated) == (asked.call.quote.most, "no_price", True)
    assert usd(sample, asked.found.incoming) < asked.call.quote.most.decimal()


@pytest.mark.parametrize("sample", [s for s in CUT if s.folder not in STATE_PROMPT], ids=by_name)
def test_a_reply_that_never_stated_its_usage_is_charged_its_hold(sample: Sample):
    asked, ended = ask(sample), sample.meta.get("terminal") in ("failed", "cancelled")

    charge = settle(asked.call, asked.reading(sample), DONE, asked.tariff)

    assert isinstance(charge, Charge)
    assert (charge.amount, charge.tokens) == (asked.call.quote.most, asked.call.quote.tokens)
    assert (charge.reason, charge.estimated) == ("no_usage" if ended else "stream_cut", True)


@pytest.mark.parametrize("sample", [s for s in CUT if s.folder in STATE_PROMPT], ids=by_name)
def test_a_cut_messages_stream_is_charged_its_input_and_a_second_of_hidden_thinking(sample: Sample):
    """All think, and relay less text than 400 tokens a second and 512 more may have been."""
    asked = ask(sample)
    assert sample.name in HIDES_THINKING
    thought = replace(sample, expect=sample.expect | {"usage": sample.expect["usage"] | {"output": 400 + 512}})

    charge = settle(asked.call, asked.reading(sample), DONE, asked.tariff)

    assert isinstance(charge, Charge)
    assert (charge.reason, charge.estimated) == ("stream_cut", True)
    assert charge.amount == up(usd(thought, asked.found.incoming)) < asked.call.quote.most


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.name in PENDING], ids=by_name)
def test_a_reply_that_is_still_worked_on_keeps_its_hold_and_the_poll_settles_it(sample: Sample):
    asked = ask(sample)
    polled = next(s for s in SAMPLES if s.name == "responses_background_polled")
    scanner = asked.wire.scanner(streamed=False)
    scanner.feed(polled.body)

    assert settle(asked.call, asked.reading(sample), DONE, asked.tariff) == Later()
    assert asked.reading(sample).upstream_id == scanner.result().upstream_id == polled.meta["response_id"]
    charge = settle(asked.call, scanner.result(), DONE, asked.tariff)
    assert isinstance(charge, Charge)
    assert charge.amount == up(usd(polled, asked.found.incoming))


@pytest.mark.parametrize("sample", ERRORS, ids=by_name)
def test_an_error_costs_nothing_or_its_estimated_input_or_the_hold_where_it_is_billed(sample: Sample):
    asked = ask(sample)
    outcome = Outcome(Ending.DONE, sample.status, seconds=1, error_code=asked.wire.error_code(sample.body))

    charge = settle(asked.call, Reading(), outcome, asked.tariff)

    if sample.name == "error_azure_400_content_filter":  # Azure bills what its filter stops
        assert isinstance(charge, Charge)
        assert (charge.amount, charge.reason) == (asked.call.quote.most, "billed_error")
    elif sample.status < 500:
        assert charge == Void(f"status_{sample.status}", failed=True)
    else:
        assert isinstance(charge, Charge)
        tokens = math.ceil(len(asked.found.incoming.body) / 3)
        cost = pricebook.dollars(asked.call.provider, sample.model, {"input": tokens}, NOW)
        assert (charge.amount, charge.reason, charge.failed) == (up(cost), "failed", True)
        assert charge.amount <= asked.call.quote.most


@pytest.mark.parametrize("sample", [s for s in ERRORS if s.folder.startswith(("anthropic", "gemini"))], ids=by_name)
def test_the_type_of_an_error_is_read(sample: Sample):
    assert ask(sample).wire.error_code(sample.body) == sample.expect["error_type"]


@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.name in COUNTS_ONLY], ids=by_name)
def test_a_count_of_tokens_is_read(sample: Sample):
    assert wire_named(sample.folder).read_count(sample.body) == sample.expect["input_tokens"]


# Cut at every byte


def events(body: bytes, *, framed: bool = False) -> Iterator[dict]:
    """Give the whole events of the beginning of a stream; `framed`: they come in Amazon's frames."""
    if framed:
        yield from map(frames.payload, frames.cut_up(body))
        return
    for block in body.replace(b"\r\n", b"\n").split(b"\n\n")[:-1]:
        lines = [line.removeprefix(b"data:") for line in block.split(b"\n") if line.startswith(b"data:")]
        try:
            found = json.loads(b"\n".join(lines))
        except ValueError:
            continue
        if isinstance(found, dict):
            yield found


def mentions(event: object) -> Iterator[dict]:
    """Give whatever in an event is called usage."""
    for key, value in event.items() if isinstance(event, dict) else enumerate(event) if isinstance(event, list) else ():
        if key in ("usage", "usageMetadata") and isinstance(value, dict):
            yield value
        else:
            yield from mentions(value)


def least(usage: dict) -> dict[str, int]:
    """Count what a usage object states at least, in units that cost no more than what they may turn out to be."""

    def told(*keys: str) -> int:
        return max((int(usage[key]) for key in keys if isinstance(usage.get(key), int)), default=0)

    if "input_tokens_details" in usage or "prompt_tokens" in usage or "promptTokenCount" in usage:
        details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
        read = max(told("cachedContentTokenCount", "cached_tokens"), int(details.get("cached_tokens") or 0))
        prompt = told("prompt_tokens", "input_tokens", "promptTokenCount")
        output = told("completion_tokens", "output_tokens", "candidatesTokenCount") + told("thoughtsTokenCount")
        return {"input": prompt - read, "cache_read": read, "output": output}
    written = told("cache_creation_input_tokens", "cacheWriteInputTokens")
    return {
        "input": told("input_tokens", "inputTokens") + written,  # a write costs more than the input
        "cache_read": told("cache_read_input_tokens", "cacheReadInputTokens"),
        "output": told("output_tokens", "outputTokens"),
    }


def stated_usd(sample: Sample, came: Incoming, body: bytes) -> Fraction:
    """Price what a stream had stated before it was cut: of each unit the most, as figures repeat and never add up."""
    most: dict[str, int] = {}
    for event in events(body, framed=sample.framed):
        for usage in mentions(event):
            most = {unit: max(count, most.get(unit, 0)) for unit, count in least(usage).items()}
    model = OWN.get(sample.model, sample.model)
    return pricebook.dollars(came.provider.name, model, most, NOW)


ENDINGS = (Outcome(Ending.CUT, 200, seconds=0), Outcome(Ending.CLIENT_LEFT, 200, seconds=3), DONE)
STREAMS = [sample for sample in REPLIES if sample.streamed]


def ends_of(sample: Sample) -> Iterator[int]:
    """Give the places where an event of a stream has ended."""
    body = sample.body
    if sample.framed:
        yield from itertools.accumulate(map(len, frames.cut_up(body)))
        return
    yield from (at for at in range(len(body)) if body[at - 2 : at] == b"\n\n" or body[at - 4 : at] == b"\r\n\r\n")


def trued_up(asked: Asked, reading: Reading) -> Call | None:
    """Give the call as it is held once its prompt was stated; None: that was not yet."""
    still = price_still_possible(asked.call, reading, asked.tariff)
    if still is None:
        return None
    quote = asked.call.quote
    return replace(asked.call, quote=replace(quote, most=min(still[0], quote.most), tokens=min(still[1], quote.tokens)))


@pytest.mark.parametrize("sample", STREAMS, ids=by_name)
def test_a_stream_cut_anywhere_is_charged_what_it_stated_at_least_and_its_hold_at_most(sample: Sample):
    asked, body = ask(sample), sample.body
    states = asked.found.incoming.provider.prompt_first and asked.wire.name in (*STATE_PROMPT, "gemini")
    may_shrink = states and not asked.parsed.grows
    scanner = asked.wire.scanner(streamed=True, asked=asked.parsed)
    call, ends = asked.call, set(ends_of(sample))
    least_usd = Fraction(0)
    for at in range(len(body) + 1):
        if at in ends or at == len(body):
            least_usd = stated_usd(sample, asked.found.incoming, body[:at])
        reading = scanner.result()
        if may_shrink and call is asked.call and reading.prompt_stated:
            call = trued_up(asked, reading) or call
        for outcome in ENDINGS:
            charge = settle(call, reading, outcome, asked.tariff)
            assert isinstance(charge, Charge)
            if sample.name not in STATED_ALONE:
                assert least_usd <= charge.amount.decimal()
            assert charge.amount <= call.quote.most
            assert charge.tokens <= call.quote.tokens
        scanner.feed(body[at : at + 1])
    assert (call is not asked.call) == may_shrink


@pytest.mark.parametrize("sample", [s for s in REPLIES if not s.streamed and s.name not in NO_PRICE], ids=by_name)
def test_a_body_cut_anywhere_is_charged_its_hold(sample: Sample):
    asked, body = ask(sample), sample.body.rstrip()
    for end in range(0, len(body), 7):
        reading = asked.reading(sample, body[:end])
        for outcome in ENDINGS:
            charge = settle(asked.call, reading, outcome, asked.tariff)
            assert isinstance(charge, Charge)
            assert charge.amount == asked.call.quote.most


def test_every_stream_that_is_here_is_cut():
    found = [path for folder in PLACES for end in ("*.sse*", "*.bin") for path in (DATA / folder).glob(end)]
    here = {path for path in found if ".expect." not in path.name}

    assert {sample.path for sample in STREAMS} == here
    assert {sample.folder for sample in STREAMS} == {*PLACES} - {
        "openai_embeddings",
        "gemini_embed",
        "anthropic_batches",
    }
    assert not [name for name in LATER if ".sse" in name or ".eventstream" in name]


ARRAYS = [sample for sample in STREAMS if sample.folder in ("gemini", "code_assist")]


@pytest.mark.parametrize("sample", ARRAYS, ids=by_name)
def test_a_stream_in_one_array_cut_anywhere_is_charged_what_it_stated_at_least_and_its_hold_at_most(sample: Sample):
    """Gemini sends the events of a stream as one growing array where they were not asked for as events."""
    asked = ask(sample)
    chunks = [json.dumps(event, indent=2).encode() for event in events(sample.body)]
    body = b"[" + b"\n,\r\n".join(chunks) + b"]"
    ends = {len(b"[" + b"\n,\r\n".join(chunks[:count])): count for count in range(1, len(chunks) + 1)}
    scanner, least_usd = asked.wire.scanner(streamed=False, asked=asked.parsed), Fraction(0)
    for at in range(len(body) + 1):
        if at in ends:
            said = b"".join(b"data: " + json.dumps(json.loads(one)).encode() + b"\n\n" for one in chunks[: ends[at]])
            least_usd = stated_usd(sample, asked.found.incoming, said)
        for outcome in ENDINGS:
            charge = settle(asked.call, scanner.result(), outcome, asked.tariff)
            assert isinstance(charge, Charge)
            assert least_usd <= charge.amount.decimal()
            assert charge.amount <= asked.call.quote.most
        if at < len(body) - 1:
            assert charge.amount == asked.call.quote.most or at >= body.rindex(b"}")
        scanner.feed(body[at : at + 1])

    assert charge.amount == (up(usd(sample, asked.found.incoming)) if sample.complete else asked.call.quote.most)


def test_the_answer_to_a_poll_that_streams_is_settled_once_its_terminal_event_is_here():
    """And not before: then the request is not known."""
    for sample in STREAMS:
        if sample.folder != "openai_responses":
            continue
        asked, body = ask(sample), sample.body
        scanner = asked.wire.scanner(streamed=True)
        for at in range(len(body) + 1):
            reading = scanner.result()
            charge = settle(asked.call, reading, DONE, asked.tariff)
            assert isinstance(charge, Charge)
            assert charge.amount <= asked.call.quote.most
            assert not reading.complete or reading.terminal
            scanner.feed(body[at : at + 1])
        assert scanner.result().complete is sample.complete

"""Target: whatever a provider replies is read without an exception, alike in any pieces, and charged within its hold
where what it states is within what was asked for."""

import json
from collections.abc import Iterator
from functools import cache

from asking import NAMES
from bills import CONFIG, KNOWN, Asked, ask, place_of, statable, tier_asked
from bodies import Body
from inputs import Choices, pieces, split
from replies import SAMPLES, Sample, request_body
from replies import ask as ask_sample
from richest import BODIES
from sse import standard_events

from lockpin_core.admission import Refused
from lockpin_core.call import Charge, Ending, Later, Outcome, Portion, Reading, Void
from lockpin_core.errors import WireError
from lockpin_core.settlement import Tariff, price_still_possible, settle
from lockpin_core.usage import FEE_UNITS, OUTPUT_UNITS, PIECE_UNITS, PROMPT_UNITS, Unit, Usage, add, total_tokens
from lockpin_core.wire import wire_named
from lockpin_core.wire.protocol import EndingScanner, Scanner

STATUSES = (200, 200, 200, 204, 400, 402, 429, 500, 529, 101, None)
OTHER = "claude-haiku-4-5"


@cache
def askings(wire: str) -> tuple[Asked, ...]:
    """Give the requests of a format that replies may be to, each held once: those of the samples first."""
    return (*(_of_sample(sample) for sample in answered(wire)), *_of_bodies(wire))


def answered(wire: str) -> list[Sample]:
    """List the samples of a format's replies that are no errors."""
    return [sample for sample in SAMPLES if sample.folder == wire and sample.status == 200]


def _of_sample(sample: Sample) -> Asked:
    made = ask_sample(sample)
    body = Body(sample.name, sample.folder, {}, None)
    return Asked(body, request_body(sample), made.found, made.call)


def _of_bodies(wire: str) -> Iterator[Asked]:
    provider, name = KNOWN[wire]
    for body in BODIES:
        if body.wire == wire:
            try:
                yield ask(body, place_of(wire, provider), name, text="hello " * 2000, other=OTHER)
            except (Refused, WireError):
                continue


def run(data: bytes) -> None:
    head, body = split(data)
    choices = Choices(head)
    wire = wire_named(choices.pick(NAMES))
    streamed = choices.flag()
    asked = choices.pick((None, *askings(wire.name)))
    parsed = None if asked is None else asked.found.parsed
    whole, cut = (wire.scanner(streamed=streamed, asked=parsed) for _ in range(2))
    whole.feed(body)
    reading = whole.result()
    earlier = _feed(cut, pieces(body, choices))
    assert cut.result() == reading, f"{cut.result()} != {reading}"
    assert whole.result() == reading, "a result is no question"
    _check(reading)
    if reading.complete and not (streamed and wire.name == "anthropic_messages"):  # whose stream states it in parts
        _check_stated(wire.name, body, reading, streamed=streamed)
    assert wire.read_count(body) is None or wire.read_count(body) >= 0
    assert wire.error_code(body) is None or wire.error_code(body).isprintable()
    if asked is not None:
        tariff = asked.found.tariff(CONFIG)
        outcome = Outcome(choices.pick(list(Ending)), choices.pick(STATUSES), choices.number(), wire.error_code(body))
        for one in (*earlier, reading):
            _check_charge(asked, one, outcome, tariff)
        _check_shrunk(asked, earlier, reading, tariff)
    if streamed and (usage_filter := wire.usage_filter()) is not None:
        _check_filter(body, [*map(usage_filter.feed, pieces(body, choices)), usage_filter.close()])


def _feed(scanner: Scanner, parts: list[bytes]) -> list[Reading]:
    found, can_end = [], isinstance(scanner, EndingScanner)
    for part in parts:
        scanner.feed(part)
        if len(found) < 2:
            found.append(scanner.result())
            _check(found[-1])
        assert not can_end or scanner.has_ended in (True, False)
    return found


def _check(reading: Reading) -> None:
    for portion in reading.portions:
        for unit, count in portion.usage.items():
            assert isinstance(unit, Unit) and type(count) is int and count >= 0, portion
        for doubt in portion.doubts:
            assert 0 <= doubt.tokens <= portion.usage.get(doubt.counted, 0), portion
    assert reading.generated_bytes >= 0 and reading.reasoning >= 0
    assert reading.stated_pico is None or reading.stated_pico >= 0
    for word in (reading.model, reading.upstream_id, reading.error, *_terms(reading)):
        assert word is None or (0 < len(word) <= 128 and word.isascii() and word.isprintable()), word


# What a reply states, by its format's reference: where, and the fields that add up to all that is billed.
STATED = {
    "anthropic_messages": (
        "usage",
        ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"),
    ),
    "openai_responses": ("usage", ("input_tokens", "output_tokens")),
    "openai_compact": ("usage", ("input_tokens", "output_tokens")),
    "gemini": ("usageMetadata", ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount")),
}
SPELLED = frozenset({"prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"})
STATED |= dict.fromkeys(
    ("openai_chat", "openai_completions", "compatible_completions"), ("usage", ("prompt_tokens", "completion_tokens"))
)


def _check_stated(wire: str, body: bytes, reading: Reading, *, streamed: bool) -> None:
    """A reply that states whole numbers is charged for no fewer tokens than they add up to: a stream's last ones do."""
    place, names = STATED.get(wire, ("", ()))
    others = SPELLED - {*names}  # who says it twice, in two spellings, contradicts himself
    stated: list[dict] = []
    for tree in _trees(body, wire, streamed=streamed):
        if isinstance(usage := tree.get(place), dict):
            stated.append(usage)
        elif _is_in_a_choice(tree):
            stated = []  # the last one said stands where no reference has it, and nothing is known of that
    if stated and not others & stated[-1].keys() and all(type(stated[-1].get(name, 0)) is int for name in names):
        least = sum(max(0, stated[-1].get(name, 0)) for name in names)
        assert total_tokens(_total(reading.portions)) >= least, (reading, stated[-1])


def _is_in_a_choice(tree: dict) -> bool:
    choices = tree.get("choices")
    return isinstance(choices, list) and any(isinstance(one, dict) and one.get("usage") for one in choices)


def _trees(body: bytes, wire: str, *, streamed: bool) -> Iterator[dict]:
    """Give the objects of a reply; of an event of Responses, and of an envelope of Google's, what the response is."""
    for text in [event.data for event in standard_events(body + b"\n\n")] if streamed else [body]:
        try:
            found = json.loads(text.decode("utf-8", "replace").lstrip("\ufeff \t\r\n"))
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            has_wrapping = wire == "gemini" or (wire == "openai_responses" and streamed)
            is_wrapped = has_wrapping and isinstance(found.get("response"), dict)
            yield found["response"] if is_wrapped else found


def _terms(reading: Reading) -> tuple[str | None, ...]:
    return reading.terms.tier, reading.terms.speed, reading.terms.geo


def _check_charge(asked: Asked, reading: Reading, outcome: Outcome, tariff: Tariff) -> None:
    call = asked.call
    found = settle(call, reading, outcome, tariff)
    assert isinstance(found, Charge | Void | Later)
    if not isinstance(found, Charge):
        return
    assert found.amount.nano >= 0 and found.tokens >= 0
    if not found.estimated and not is_within(asked, reading):
        return  # it bills more than was asked for: it is booked in full
    if found.reason in ("stream_cut", "client_left", "no_usage") and not is_within(asked, reading):
        return
    assert found.amount <= call.quote.most, f"{found} > {call.quote}"
    assert found.tokens <= call.quote.tokens or found.reason == "no_price", f"{found} > {call.quote}"


def is_within(asked: Asked, reading: Reading) -> bool:
    """Say whether a reply states no more than what was asked for allows: of tokens, pieces, models and terms."""
    most, told = asked.call.quote.ceiling, asked.told
    usage = _total(reading.portions)
    units = (
        most.prompt_units | {Unit.CACHE_READ} | ({Unit.CACHE_AUDIO} if Unit.AUDIO_IN in most.prompt_units else set())
    )
    own = {None, asked.found.parsed.model, asked.call.model}
    tiers = statable(asked.call.provider, tier_asked(told), asked.model.provider)
    return (
        sum(usage.get(unit, 0) for unit in PROMPT_UNITS) <= most.prompt
        and sum(usage.get(unit, 0) for unit in OUTPUT_UNITS) <= most.output
        and all(not usage.get(unit) for unit in PROMPT_UNITS - units)
        and all(not usage.get(unit) for unit in OUTPUT_UNITS - most.output_units)
        and all(usage.get(unit, 0) <= most.fees.get(unit, 0) for unit in FEE_UNITS | PIECE_UNITS)
        and {reading.model, *(portion.model for portion in reading.portions)} <= own
        and reading.terms.tier in tiers
        and reading.terms.speed in (None, "standard", told.get("speed"))
        and reading.terms.geo in (None, "global", "not_available", told.get("inference_geo"))
        and (reading.stated_pico or 0) <= asked.call.quote.most.nano * 1000
    )


def _total(portions: tuple[Portion, ...]) -> Usage:
    total: Usage = {}
    for portion in portions:
        total = add(total, portion.usage)
    return total


def _check_shrunk(asked: Asked, earlier: list[Reading], final: Reading, tariff: Tariff) -> None:
    """A hold that shrank by what a reply stated first still covers a reply that goes on as it began."""
    done = Outcome(Ending.DONE, 200)
    charge = settle(asked.call, final, done, tariff)
    if not final.complete or not isinstance(charge, Charge) or charge.reason is not None or not is_within(asked, final):
        return
    for reading in earlier:
        left = price_still_possible(asked.call, reading, tariff)
        if left is None or _prompt(reading) != _prompt(final) or _terms(reading) != _terms(final):
            continue
        assert charge.amount <= left[0] and charge.tokens <= left[1], f"{charge} > {left}, by {reading}"


def _prompt(reading: Reading) -> list[tuple[str | None, Usage]]:
    kept = [(one.model, {u: n for u, n in one.usage.items() if u not in OUTPUT_UNITS}) for one in reading.portions]
    return [*kept, (reading.model, {})]


def _check_filter(body: bytes, parts: list[bytes]) -> None:
    """All that the client gets stands in the stream in this order, and what is missing are lines about usage."""
    given, at = b"".join(parts), 0
    for line in body.splitlines(keepends=True):
        if given.startswith(line, at):
            at += len(line)
        else:
            assert b"usage" in body, "something else than usage is missing"
    assert at == len(given), "something was added"

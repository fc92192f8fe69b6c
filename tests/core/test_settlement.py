"""SPEC's table of settling, row by row; every amount is worked out by hand in the test.

Prices: $2 input, $10 output, $0.20 cache read, $4 one-hour write per million tokens, so 2, 10, 0.2 and 4 picodollars
times a million a token; $0.01 a web search.
"""

from dataclasses import replace
from datetime import UTC, datetime

import nouns
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockpin_core import prices
from lockpin_core.call import (
    Call,
    Ceiling,
    Charge,
    Doubt,
    Ending,
    Later,
    Outcome,
    Portion,
    Quote,
    Reading,
    Share,
    Terms,
    Void,
)
from lockpin_core.money import Money
from lockpin_core.prices import PriceTable, shipped_dir
from lockpin_core.settlement import Tariff, price_still_possible, settle, settle_in_steps
from lockpin_core.usage import Unit

PICO = {
    Unit.INPUT: 2_000_000,
    Unit.OUTPUT: 10_000_000,
    Unit.CACHE_READ: 200_000,
    Unit.CACHE_WRITE_1H: 4_000_000,
    Unit.WEB_SEARCH: 10_000_000_000,
}
CALL = nouns.call()  # quote $0.50; ceiling 1,000 prompt and 500 output tokens; a stream
WHOLE = replace(CALL, streamed=False)
DONE = Outcome(Ending.DONE, 200, seconds=1)
CUT = Outcome(Ending.CUT, 200, seconds=1)
LEFT = Outcome(Ending.CLIENT_LEFT, 200, seconds=1)


def price(served, usage, terms):
    if any(unit not in PICO for unit in usage):
        return None
    factor = 2 if terms.tier == "priority" else 1
    return factor * sum(count * PICO[unit] for unit, count in usage.items()), served or "m"


TARIFF = Tariff(
    price=price,
    cut_rule="observed",
    max_tps=400,
    bills=lambda status, code: (status, code) == (400, "content_filter") or status == 408,
    charge_failed=True,
    bytes_estimate=300,
)
HOLD_RULE = replace(TARIFF, cut_rule="hold")


def reported(usage, **facts) -> Reading:
    return Reading((Portion("m", usage),), complete=True, terminal=True, prompt_stated=True, **facts)


def started(usage, **facts) -> Reading:
    """What Messages' first event says, and no more."""
    return Reading((Portion("m", usage),), prompt_stated=True, **facts)


def assert_held(charge, reason):
    assert isinstance(charge, Charge)
    assert (charge.amount, charge.tokens, charge.reason) == (Money.parse("0.5"), 1500, reason)
    assert charge.estimated
    assert not charge.failed


def test_reported_usage_is_charged_its_price():
    charge = settle(CALL, reported({Unit.INPUT: 100, Unit.CACHE_READ: 50, Unit.OUTPUT: 7}), DONE, TARIFF)

    # 100 × 2 + 50 × 0.2 + 7 × 10 = 280 microdollars
    assert charge == Charge(
        Money.parse("0.00028"), {Unit.INPUT: 100, Unit.CACHE_READ: 50, Unit.OUTPUT: 7}, 157, "m", None
    )


SOUND = replace(
    TARIFF, price=lambda served, usage, terms: (sum(count * _SOUND[unit] for unit, count in usage.items()), "m")
)
_SOUND = PICO | {Unit.AUDIO_IN: 32_000_000, Unit.IMAGE_IN: 2_000_000, Unit.AUDIO_OUT: 5_000_000}


def shown(*units: Unit) -> Call:
    """Make the call where its prompt and its output may be of these units too."""
    most = replace(CALL.quote.ceiling, prompt_units=frozenset({Unit.INPUT, *units}))
    return replace(CALL, quote=replace(CALL.quote, ceiling=most))


def test_tokens_that_no_detail_explains_are_charged_as_the_dearest_that_they_may_be():
    heard = Doubt(Unit.INPUT, 60, frozenset({Unit.AUDIO_IN, Unit.IMAGE_IN}))
    cached = Doubt(Unit.CACHE_READ, 50, frozenset({Unit.AUDIO_IN}))
    spoken = Doubt(Unit.OUTPUT, 7, frozenset({Unit.AUDIO_OUT}))  # which is cheaper here than text
    usage = {Unit.INPUT: 100, Unit.CACHE_READ: 50, Unit.OUTPUT: 7}
    reading = replace(reported(usage), portions=(Portion("m", usage, (heard, cached, spoken)),))

    charge = settle(shown(Unit.AUDIO_IN, Unit.IMAGE_IN, Unit.AUDIO_OUT), reading, DONE, SOUND)

    # 40 × 2 + (60 + 50) × 32 + 7 × 10 = 3,670 microdollars
    assert (charge.amount, charge.tokens) == (Money.parse("0.00367"), 157)
    assert charge.usage == {Unit.INPUT: 40, Unit.AUDIO_IN: 110, Unit.OUTPUT: 7}


def test_tokens_that_may_have_no_price_are_charged_as_held():
    doubt = Doubt(Unit.INPUT, 60, frozenset({Unit.AUDIO_IN}))
    reading = replace(reported({}), portions=(Portion("m", {Unit.INPUT: 100, Unit.OUTPUT: 7}, (doubt,)),))

    charge = settle(shown(Unit.AUDIO_IN), reading, DONE, TARIFF)

    assert (charge.amount, charge.reason, charge.estimated) == (Money.parse("0.5"), "no_price", True)


@pytest.mark.parametrize(
    ("units", "nano"),
    [
        ((), 100 * 2_000 + 50 * 200),
        ((Unit.IMAGE_IN,), 100 * 2_000 + 50 * 200),  # which costs what text does
        ((Unit.AUDIO_IN,), 40 * 2_000 + 60 * 32_000 + 50 * 2_000),
    ],
)
def test_tokens_are_nothing_that_the_call_did_not_ask_for(units: tuple[Unit, ...], nano: int):
    """A poll is read without the request, and doubts everything; cached sound comes with sound."""
    prices = _SOUND | {Unit.CACHE_AUDIO: 2_000_000}
    tariff = replace(
        TARIFF, price=lambda served, usage, terms: (sum(count * prices[unit] for unit, count in usage.items()), "m")
    )
    heard = Doubt(Unit.INPUT, 60, frozenset({Unit.AUDIO_IN, Unit.IMAGE_IN}))
    cached = Doubt(Unit.CACHE_READ, 50, frozenset({Unit.CACHE_AUDIO}))
    spoken = Doubt(Unit.OUTPUT, 7, frozenset({Unit.IMAGE_OUT}))  # has no price here
    usage = {Unit.INPUT: 100, Unit.CACHE_READ: 50, Unit.OUTPUT: 7}
    reading = replace(reported(usage), portions=(Portion("m", usage, (heard, cached, spoken)),))

    assert settle(shown(*units), reading, DONE, tariff).amount.nano == nano + 7 * 10_000


def test_a_fee_is_charged_and_is_no_token():
    charge = settle(CALL, reported({Unit.OUTPUT: 1, Unit.WEB_SEARCH: 2}), DONE, TARIFF)

    assert (charge.amount, charge.tokens) == (Money.parse("0.02001"), 1)


def test_a_total_is_rounded_up_once_over_all_models():
    halves = (Portion("a", {Unit.CACHE_READ: 1}), Portion("b", {Unit.CACHE_READ: 1}))
    tariff = replace(TARIFF, price=lambda served, usage, terms: (500, served))

    charge = settle(CALL, Reading(halves, complete=True, terminal=True), DONE, tariff)

    assert charge.amount == Money(1)  # 500 + 500 pico are one nano; rounded each they would be two
    assert charge.usage == {Unit.CACHE_READ: 2}
    assert charge.model_served == "a"


def reply_of(*portions, **facts):
    return Reading(portions, complete=True, terminal=True, **facts)


def test_several_models_of_a_reply_have_their_shares_of_the_charge():
    portions = (Portion("a", {Unit.OUTPUT: 7}), Portion("b", {Unit.INPUT: 3}), Portion("a", {Unit.INPUT: 5}))

    charge = settle(CALL, reply_of(*portions, terms=Terms("priority")), DONE, TARIFF)

    # Twice 7 × 10 + 5 × 2 and 3 × 2 microdollars.
    assert charge.shares == (
        Share("a", {Unit.OUTPUT: 7, Unit.INPUT: 5}, Money(160_000), 2, 0, 5, Terms("priority")),
        Share("b", {Unit.INPUT: 3}, Money(12_000), 1, 3, 3, Terms("priority")),
    )


def test_prompts_of_two_bands_and_of_two_terms_are_kept_apart():
    sizes = [(600, None), (400, None), (600, "batch"), (700, None)]
    portions = [Portion("a", {Unit.INPUT: size}, terms=Terms(tier)) for size, tier in sizes]
    tariff = replace(TARIFF, band=lambda model, prompt, terms: 500 if prompt >= 500 else 0)

    charge = settle(CALL, reply_of(*portions), DONE, tariff)

    assert [(share.prompts, share.least_prompt, share.most_prompt, share.terms.tier) for share in charge.shares] == [
        (2, 600, 700, None), (1, 400, 400, None), (1, 600, 600, "batch"),
    ]  # fmt: skip
    assert sum(share.amount.nano for share in charge.shares) == charge.amount.nano


def test_a_reply_of_one_prompt_has_no_shares_and_a_list_of_one_result_has_one():
    portion = Portion("b", {Unit.INPUT: 3})

    assert settle(CALL, reply_of(portion), DONE, TARIFF).shares == ()
    (share,) = settle(CALL, reply_of(portion, requests=1), DONE, TARIFF).shares
    assert (share.model, share.amount) == ("b", Money(6_000))


def test_shares_add_up_to_what_is_booked_also_where_the_reply_says_a_dearer_figure():
    portions = [Portion(name, {Unit.CACHE_READ: 1}) for name in "aba"]  # 200 nanodollars each

    charge = settle(CALL, reply_of(*portions, stated_pico=1_000_000), DONE, TARIFF)

    assert charge.amount == Money(1_000)
    assert [share.amount.nano for share in charge.shares] == [666, 334]


def test_more_shares_than_a_row_has_room_for_are_kept_by_model_alone():
    portions = [Portion("ab"[tier % 2], {Unit.INPUT: tier}, terms=Terms(f"t{tier}")) for tier in range(100)]

    charge = settle(CALL, reply_of(*portions), DONE, TARIFF)

    assert [(share.model, share.prompts, share.least_prompt, share.most_prompt) for share in charge.shares] == [
        ("a", 50, 0, 98), ("b", 50, 1, 99),
    ]  # fmt: skip
    assert sum(share.amount.nano for share in charge.shares) == charge.amount.nano


def test_an_estimate_has_no_shares():
    two = (Portion("a", {Unit.INPUT: 100}), Portion("b", {Unit.INPUT: 3}))
    chained = replace(CALL, quote=replace(CALL.quote, ceiling=replace(CALL.quote.ceiling, left_out=50)))

    estimate = settle(chained, reply_of(*two), DONE, TARIFF)
    assert (estimate.reason, estimate.shares) == ("hidden_input", ())
    assert settle(CALL, Reading(two, prompt_stated=True), CUT, TARIFF).shares == ()


def test_less_than_a_nanodollar_costs_one():
    tariff = replace(TARIFF, price=lambda served, usage, terms: (1, served))

    assert settle(CALL, reported({Unit.INPUT: 1}), DONE, tariff).amount == Money(1)


def test_the_model_and_tier_that_the_reply_states_are_priced():
    asked = []
    tariff = replace(TARIFF, price=lambda served, usage, terms: (asked.append((served, terms)) or 0, "canonical"))
    call = replace(CALL, terms=Terms("flex", None, "us"))
    reading = replace(reported({Unit.INPUT: 1}), portions=(Portion(None, {}),), model="m-2", terms=Terms("priority"))

    charge = settle(call, reading, DONE, tariff)

    assert asked == [("m-2", Terms("priority", None, "us"))]
    assert (charge.model_served, charge.tier) == ("canonical", "priority")


def test_reported_zero_is_a_measured_zero():
    charge = settle(CALL, reported({Unit.INPUT: 0}), DONE, TARIFF)

    assert (charge.amount, charge.usage, charge.estimated, charge.reason) == (Money(0), {}, False, None)


@pytest.mark.parametrize("outcome", [CUT, LEFT, Outcome(Ending.STOPPED, 200)], ids=lambda o: o.ending.value)
def test_usage_that_was_reported_is_charged_however_the_stream_ended(outcome):
    reading = replace(reported({Unit.INPUT: 100, Unit.OUTPUT: 7}), terminal=False, error="overloaded_error")

    charge = settle(CALL, reading, outcome, TARIFF)

    assert (charge.amount, charge.reason, charge.estimated) == (Money.parse("0.00027"), None, False)


def test_a_unit_without_a_price_is_charged_the_hold_and_its_tokens():
    charge = settle(CALL, reported({Unit.INPUT: 5, Unit.AUDIO_OUT: 9, Unit.IMAGE_IN: 0}), DONE, TARIFF)

    assert (charge.amount, charge.reason, charge.estimated) == (Money.parse("0.5"), "no_price", True)
    assert (charge.usage, charge.tokens) == ({Unit.INPUT: 5, Unit.AUDIO_OUT: 9}, 14)


@pytest.mark.parametrize(("outcome", "reason"), [(CUT, "stream_cut"), (LEFT, "client_left"), (DONE, "stream_cut")])
def test_f07_a_cut_messages_stream_is_charged_its_input_and_a_token_a_byte(outcome, reason):
    """The placeholder of 1 output token is not the output: 300 bytes of text are 300. A clean end is a cut as well."""
    reading = started({Unit.INPUT: 100, Unit.CACHE_WRITE_1H: 10, Unit.OUTPUT: 1}, generated_bytes=300, delivered=True)

    charge = settle(CALL, reading, outcome, TARIFF)

    # 100 × 2 + 10 × 4 + 300 × 10 = 3,240 microdollars
    assert charge.amount == Money.parse("0.00324")
    assert charge.usage == {Unit.INPUT: 100, Unit.CACHE_WRITE_1H: 10, Unit.OUTPUT: 300}
    assert (charge.tokens, charge.reason, charge.estimated, charge.failed) == (410, reason, True, False)


def test_a_running_total_above_the_bytes_counts():
    reading = started({Unit.INPUT: 100, Unit.OUTPUT: 120}, generated_bytes=30)

    assert settle(CALL, reading, CUT, TARIFF).usage[Unit.OUTPUT] == 120


def test_observed_output_is_never_above_the_limit():
    assert settle(CALL, started({Unit.INPUT: 1}, generated_bytes=9000), CUT, TARIFF).usage[Unit.OUTPUT] == 500


def test_output_that_was_reported_above_the_limit_is_booked_in_full():
    assert settle(CALL, started({Unit.INPUT: 1, Unit.OUTPUT: 600}), CUT, TARIFF).usage[Unit.OUTPUT] == 600


def test_hidden_thinking_counts_by_the_second():
    long = nouns.quote("5", output=100_000)
    reading = started({Unit.INPUT: 1}, generated_bytes=10, hidden_thinking=True)

    charge = settle(replace(CALL, quote=long), reading, replace(CUT, seconds=3), TARIFF)

    assert charge.usage[Unit.OUTPUT] == 3 * 400 + 512


def test_visible_thinking_counts_by_the_byte():
    charge = settle(CALL, started({Unit.INPUT: 1}, generated_bytes=10), replace(CUT, seconds=1), TARIFF)

    assert charge.usage[Unit.OUTPUT] == 10


def test_a_messages_stream_that_ended_without_usage_has_no_time_term():
    reading = started({Unit.INPUT: 100}, generated_bytes=40, hidden_thinking=True, terminal=True)

    charge = settle(CALL, reading, DONE, TARIFF)

    assert (charge.amount, charge.reason) == (Money.parse("0.0006"), "no_usage")


def test_a_messages_stream_that_stated_no_input_is_charged_its_hold():
    assert_held(settle(CALL, Reading(generated_bytes=10), CUT, TARIFF), "stream_cut")
    assert_held(settle(CALL, started({Unit.OUTPUT: 1}, generated_bytes=10), LEFT, TARIFF), "client_left")


def test_an_observed_unit_without_a_price_is_charged_the_hold():
    charge = settle(CALL, started({Unit.INPUT: 1, Unit.IMAGE_IN: 4}), CUT, TARIFF)

    assert (charge.amount, charge.reason) == (Money.parse("0.5"), "no_price")


@pytest.mark.parametrize(("outcome", "reason"), [(CUT, "stream_cut"), (LEFT, "client_left"), (DONE, "stream_cut")])
def test_f06_a_cut_stream_of_another_wire_is_charged_its_hold(outcome, reason):
    assert_held(settle(CALL, started({Unit.INPUT: 1}, generated_bytes=10), outcome, HOLD_RULE), reason)


def test_a_whole_stream_of_another_wire_without_usage_is_charged_its_hold():
    assert_held(settle(CALL, Reading(terminal=True, delivered=True), DONE, HOLD_RULE), "no_usage")


@pytest.mark.parametrize("tariff", [TARIFF, HOLD_RULE], ids=["messages", "other"])
def test_a_client_that_left_before_a_byte_is_charged_the_hold(tariff):
    assert_held(settle(CALL, Reading(), Outcome(Ending.CLIENT_LEFT, None), tariff), "client_left")
    assert_held(settle(CALL, Reading(), LEFT, tariff), "client_left")


@pytest.mark.parametrize(("outcome", "reason"), [(CUT, "stream_cut"), (LEFT, "client_left"), (DONE, "no_usage")])
def test_a_whole_reply_without_usage_is_charged_its_hold(outcome, reason):
    """Also on Messages: only a stream states its input before its end."""
    reading = started({Unit.INPUT: 3}, terminal=True)

    assert_held(settle(WHOLE, reading, outcome, TARIFF), reason)


def test_a_reply_that_cannot_be_read_is_charged_the_hold():
    assert_held(settle(CALL, Reading(readable=False), DONE, TARIFF), "undecodable")


def test_a_reply_that_cannot_be_read_since_it_was_cut_is_a_cut():
    assert_held(settle(WHOLE, Reading(readable=False), CUT, TARIFF), "stream_cut")
    assert_held(settle(CALL, Reading(readable=False), LEFT, TARIFF), "client_left")


@pytest.mark.parametrize("status", [None, 200])
def test_a_call_that_ran_when_lockpin_stopped_is_charged_its_hold(status):
    reading = started({Unit.INPUT: 1}, generated_bytes=1)

    assert_held(settle(CALL, reading, Outcome(Ending.STOPPED, status), TARIFF), "lockpin_stopped")


FAILURES = [
    Outcome(Ending.DONE, 500),
    Outcome(Ending.DONE, 529),
    Outcome(Ending.CUT, 503),
    Outcome(Ending.DROPPED, None),
]


@pytest.mark.parametrize("outcome", FAILURES, ids=lambda o: f"{o.status}-{o.ending.value}")
def test_a_failed_call_is_charged_its_estimated_input(outcome):
    charge = settle(CALL, Reading(), outcome, TARIFF)

    assert charge == Charge(
        Money.parse("0.0006"), {Unit.INPUT: 300}, 300, None, None, reason="failed", estimated=True, failed=True
    )


def test_the_estimate_of_a_failed_call_is_never_above_its_bound_or_its_hold():
    bound = Ceiling(40, 1, frozenset({Unit.INPUT}), frozenset({Unit.OUTPUT}), {})
    small = replace(CALL, quote=replace(CALL.quote, ceiling=bound))
    cheap = replace(CALL, quote=replace(CALL.quote, most=Money(5)))

    assert settle(small, Reading(), FAILURES[0], TARIFF).usage == {Unit.INPUT: 40}
    assert settle(cheap, Reading(), FAILURES[0], TARIFF).amount == Money(5)


def test_a_failed_call_without_a_price_is_charged_its_hold():
    charge = settle(CALL, Reading(), FAILURES[0], replace(TARIFF, price=lambda *_: None))

    assert (charge.amount, charge.failed) == (Money.parse("0.5"), True)


@pytest.mark.parametrize("outcome", FAILURES, ids=lambda o: f"{o.status}-{o.ending.value}")
def test_work_that_goes_on_without_its_connection_is_charged_its_hold_where_that_failed(outcome):
    """The provider may have taken it on, and nobody was told its id."""
    charge = settle(CALL, Reading(), outcome, replace(TARIFF, works_on=True))

    assert isinstance(charge, Charge)
    assert (charge.amount, charge.tokens, charge.reason) == (Money.parse("0.5"), 1500, "failed")
    assert (charge.estimated, charge.failed) == (True, True)
    free = replace(TARIFF, works_on=True, charge_failed=False)
    assert settle(CALL, Reading(), outcome, free) == Void("failed", failed=True)


@pytest.mark.parametrize("outcome", FAILURES, ids=lambda o: f"{o.status}-{o.ending.value}")
def test_failed_calls_cost_nothing_where_they_are_not_charged(outcome):
    assert settle(CALL, Reading(), outcome, replace(TARIFF, charge_failed=False)) == Void("failed", failed=True)


def test_an_error_that_this_provider_bills_is_charged_the_hold():
    assert_held(settle(WHOLE, Reading(), Outcome(Ending.DONE, 408), TARIFF), "billed_error")
    assert_held(
        settle(WHOLE, Reading(), Outcome(Ending.DONE, 400, error_code="content_filter"), TARIFF), "billed_error"
    )


@pytest.mark.parametrize("status", [302, 400, 401, 402, 403, 404, 413, 422, 429, 499])
def test_any_other_error_costs_nothing(status):
    assert settle(WHOLE, Reading(), Outcome(Ending.DONE, status), TARIFF) == Void(f"status_{status}", failed=True)


def test_a_connection_that_was_never_opened_costs_nothing():
    assert settle(CALL, Reading(), Outcome(Ending.NOT_SENT, None), TARIFF) == Void("not_sent")


@pytest.mark.parametrize("outcome", [DONE, CUT, LEFT, Outcome(Ending.STOPPED, 200)])
def test_what_the_provider_goes_on_with_keeps_its_hold_however_the_exchange_ended(outcome):
    assert settle(CALL, Reading(pending=True, upstream_id="resp_1", terminal=True), outcome, HOLD_RULE) == Later()


def test_what_goes_on_under_no_name_is_charged_the_hold():
    assert_held(settle(CALL, Reading(pending=True, terminal=True), DONE, HOLD_RULE), "no_usage")


def test_usage_that_was_stated_counts_although_more_was_to_come():
    found = settle(CALL, reported({Unit.OUTPUT: 1}, pending=True, upstream_id="resp_1"), DONE, TARIFF)

    assert found.amount == Money.parse("0.00001")


@pytest.mark.parametrize(("stated_pico", "nano"), [(9_999_999, 10_000), (10_001_000, 10_001), (10_001_001, 10_002)])
def test_a_cost_that_the_provider_states_is_booked_where_it_is_dearer(stated_pico, nano):
    # one output token costs 10,000,000 picodollars
    charge = settle(CALL, reported({Unit.OUTPUT: 1}, stated_pico=stated_pico), DONE, TARIFF)

    assert (charge.amount, charge.estimated) == (Money(nano), False)


def test_a_stated_cost_is_taken_where_a_unit_has_no_price():
    charge = settle(CALL, reported({Unit.AUDIO_OUT: 5}, stated_pico=7_000), DONE, TARIFF)

    assert (charge.amount, charge.tokens, charge.estimated) == (Money(7), 5, False)


def test_a_running_call_can_still_cost_its_stated_prompt_and_all_its_output():
    reading = started({Unit.INPUT: 100, Unit.CACHE_WRITE_1H: 10, Unit.OUTPUT: 3})

    # 100 × 2 + 10 × 4 + 500 × 10 microdollars
    assert price_still_possible(CALL, reading, TARIFF) == (Money.parse("0.00524"), 610)


def test_nothing_is_known_of_a_prompt_that_was_not_stated():
    assert price_still_possible(CALL, Reading((Portion("m", {Unit.INPUT: 5}),)), TARIFF) is None
    assert price_still_possible(CALL, started({Unit.OUTPUT: 3}), TARIFF) is None
    assert price_still_possible(CALL, started({Unit.AUDIO_IN: 3}), TARIFF) is None


def test_a_fee_of_the_hold_is_still_possible_although_nobody_has_stated_it():
    ceiling = replace(CALL.quote.ceiling, fees={Unit.WEB_SEARCH: 3})
    call = replace(CALL, quote=replace(CALL.quote, ceiling=ceiling))

    # 100 × 2 + 500 × 10 microdollars, and three searches of a cent; a fee is no token
    assert price_still_possible(call, started({Unit.INPUT: 100}), TARIFF) == (Money.parse("0.0352"), 600)


def test_nothing_is_said_of_a_call_whose_output_may_be_billed_in_several_units():
    ceiling = replace(CALL.quote.ceiling, output_units=frozenset({Unit.OUTPUT, Unit.AUDIO_OUT}))
    call = replace(CALL, quote=replace(CALL.quote, ceiling=ceiling))

    assert price_still_possible(call, started({Unit.INPUT: 100}), TARIFF) is None


def test_a_region_that_nobody_has_named_is_taken_for_the_dearest():
    asked = []
    tariff = replace(TARIFF, price=lambda served, usage, terms: (asked.append(terms.geo) or 1, "m"))

    price_still_possible(CALL, started({Unit.INPUT: 1}), tariff)
    price_still_possible(CALL, started({Unit.INPUT: 1}, terms=Terms(geo="global")), tariff)
    price_still_possible(replace(CALL, terms=Terms(geo="us")), started({Unit.INPUT: 1}), tariff)

    assert asked == ["unknown", "global", "us"]


PRICES = PriceTable.load(shipped_dir(), {}, {})
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
PROMPTS = st.dictionaries(
    st.sampled_from([Unit.INPUT, Unit.CACHE_READ, Unit.CACHE_WRITE_5M, Unit.CACHE_WRITE_1H]),
    st.integers(1, 10**6),
    min_size=1,
)
GEOS = st.sampled_from([None, "us", "global", "not_available"])
TIERS = st.sampled_from([None, "standard", "priority", "batch"])


@given(
    name=st.sampled_from(["claude-sonnet-5-5", "claude-opus-5-5", "claude-opus-4-6", "claude-haiku-4-5"]),
    prompt=PROMPTS,
    output=st.integers(0, 500),
    generated=st.integers(0, 10**4),
    tier=TIERS,
    geos=st.tuples(GEOS, GEOS),
    searches=st.integers(0, 3),
    outcome=st.sampled_from([DONE, CUT, LEFT, Outcome(Ending.STOPPED, 200)]),
    complete=st.booleans(),
    readable=st.booleans(),
)  # fmt: skip
def test_no_end_costs_more_than_was_still_possible(
    name, prompt, output, generated, tier, geos, searches, outcome, complete, readable
):
    """By the shipped prices: later events may be the first to name a region or to show a search, or be unreadable."""
    model = PRICES.find("anthropic", name, NOON)
    at_noon = lambda served, usage, terms: (prices.price(model, usage, terms, NOON), model.id)  # noqa: E731
    tariff = replace(TARIFF, price=at_noon)
    ceiling = replace(CALL.quote.ceiling, fees={Unit.WEB_SEARCH: searches} if searches else {})
    call = replace(CALL, quote=Quote(Money.parse("500"), 5_000_000, ceiling))
    first = Reading((Portion(name, prompt),), terms=Terms(tier, None, geos[0]), prompt_stated=True)
    still = price_still_possible(call, first, tariff)
    held = replace(call, quote=replace(call.quote, most=still[0], tokens=still[1]))

    usage = {**prompt, Unit.OUTPUT: output, Unit.WEB_SEARCH: searches}
    facts = {"generated_bytes": generated, "prompt_stated": readable, "readable": readable}
    terms = Terms(tier, None, geos[0] or geos[1])
    end = settle(held, Reading((Portion(name, usage),), complete=complete, terms=terms, **facts), outcome, tariff)

    assert end.amount <= still[0] <= call.quote.most
    assert end.tokens <= still[1]


def kept(left_out: int, rest: int | None = None) -> Call:
    """Make the call where its 1,000 tokens of prompt have a conversation that the provider keeps."""
    most = replace(CALL.quote.ceiling, left_out=left_out, rest=rest)
    return replace(CALL, quote=replace(CALL.quote, ceiling=most))


@pytest.mark.parametrize(
    ("call", "added"),
    [(kept(200), 200), (kept(890), 890), (kept(2**40), 890), (kept(200, rest=110), 200), (kept(2**40, rest=500), 890)],
)
def test_what_usage_may_lack_of_a_kept_conversation_is_added_up_to_the_prompt_that_was_held(call: Call, added: int):
    charge = settle(call, reported({Unit.INPUT: 60, Unit.CACHE_READ: 50, Unit.OUTPUT: 7}), DONE, TARIFF)

    assert isinstance(charge, Charge)
    assert charge.usage == {Unit.INPUT: 60 + added, Unit.CACHE_READ: 50, Unit.OUTPUT: 7}
    assert charge.amount == Money((60 + added) * 2_000 + 50 * 200 + 7 * 10_000)
    assert (charge.reason, charge.estimated) == ("hidden_input", True)


@pytest.mark.parametrize("call", [kept(0), kept(0, rest=2000), kept(200, rest=109), kept(2**40, rest=0)])
def test_a_prompt_that_is_more_than_the_request_has_the_conversation_in_it(call: Call):
    charge = settle(call, reported({Unit.INPUT: 60, Unit.CACHE_READ: 50, Unit.OUTPUT: 7}), DONE, TARIFF)

    assert isinstance(charge, Charge)
    assert (charge.usage[Unit.INPUT], charge.reason, charge.estimated) == (60, None, False)


def test_an_estimate_knows_what_of_it_was_reported():
    cut = settle(
        CALL, started({Unit.INPUT: 100, Unit.CACHE_WRITE_1H: 10, Unit.OUTPUT: 1}, generated_bytes=300), CUT, TARIFF
    )
    lacking = settle(kept(200), reported({Unit.INPUT: 60, Unit.CACHE_READ: 50, Unit.OUTPUT: 7}), DONE, TARIFF)
    unpriced = settle(CALL, reported({Unit.INPUT: 5, Unit.AUDIO_OUT: 9}), DONE, TARIFF)
    nothing = settle(CALL, Reading(), CUT, TARIFF)

    assert (cut.least, cut.least_tokens) == (Money(100 * 2_000 + 10 * 4_000 + 10_000), 111)
    assert (lacking.least, lacking.least_tokens) == (Money(60 * 2_000 + 50 * 200 + 7 * 10_000), 117)
    assert (unpriced.least, unpriced.least_tokens) == (Money(0), 14)
    assert (nothing.least, nothing.least_tokens) == (Money(0), 0)


def test_where_all_of_the_prompt_that_was_held_is_stated_nothing_is_added():
    charge = settle(kept(5), reported({Unit.INPUT: 1_000, Unit.OUTPUT: 7}), DONE, TARIFF)

    assert isinstance(charge, Charge)
    assert (charge.usage[Unit.INPUT], charge.reason, charge.estimated) == (1_000, None, False)


def test_very_many_portions_are_priced_one_after_the_other():
    reading = Reading((Portion("m", {Unit.OUTPUT: 1}),) * 100, complete=True, terminal=True)
    steps = settle_in_steps(CALL, reading, DONE, TARIFF)

    assert sum(1 for _ in steps) == 100
    assert settle(CALL, reading, DONE, TARIFF).amount == Money(100 * 10_000)


@pytest.mark.parametrize(("requests", "reason"), [(1, None), (0, "stream_cut"), (2, "stream_cut")])
def test_a_list_of_results_is_whole_where_it_has_one_for_each_request(requests, reason):
    reading = replace(reported({Unit.INPUT: 60, Unit.OUTPUT: 7}, requests=requests), terminal=False)

    charge = settle(replace(CALL, streamed=True), reading, DONE, HOLD_RULE)

    assert isinstance(charge, Charge)
    assert charge.reason == reason


@pytest.mark.parametrize(("held", "read", "reason"), [(7, 7, None), (7, 8, "no_usage"), (0, 8, None)])
def test_results_of_other_requests_are_not_the_calls(held, read, reason):
    """Where it was held before names were kept, their number alone tells."""
    ceiling = replace(CALL.quote.ceiling, name_sum=held)
    call = replace(CALL, streamed=True, quote=replace(CALL.quote, ceiling=ceiling))

    charge = settle(call, reported({Unit.INPUT: 60}, requests=1, name_sum=read), DONE, HOLD_RULE)

    assert isinstance(charge, Charge)
    assert charge.reason == reason

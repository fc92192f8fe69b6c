"""SPEC's table of settling, row by row; every amount is worked out by hand in the test.

Prices: $2 input, $10 output, $0.20 cache read, $4 one-hour write per million tokens, so 2, 10, 0.2 and 4 picodollars
times a million a token; $0.01 a web search.
"""

from dataclasses import replace

import nouns
import pytest

from lockpin_core.call import Ceiling, Charge, Ending, Outcome, Portion, Reading, Terms, Void
from lockpin_core.money import Money
from lockpin_core.settlement import Tariff, settle
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

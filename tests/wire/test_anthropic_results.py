import json
from pathlib import Path

import pytest

from lockpin_core.call import Reading, Terms
from lockpin_core.usage import Unit, add
from lockpin_core.wire.anthropic_results import MAX_LINE_BYTES, ResultsScanner
from lockpin_core.wire.protocol import ListScanner

SAMPLE = (Path(__file__).parents[1] / "data/anthropic_batches/anthropic_batch_results.jsonl").read_bytes()
SPLIT = {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4}


def read(*lines: object, end: bytes = b"\n") -> Reading:
    scanner = ResultsScanner()
    scanner.feed(end.join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines))
    return scanner.result()


def usage(**more: object) -> dict:
    return {"input_tokens": 10, "output_tokens": 2, "service_tier": "batch", **more}


def succeeded(name: str = "a", **more: object) -> dict:
    message = {"type": "message", "id": "msg_1", "model": "m", "stop_reason": "end_turn", "usage": usage(), **more}
    return {"custom_id": name, "result": {"type": "succeeded", "message": message}}


def ended(kind: str, name: str) -> dict:
    return {"custom_id": name, "result": {"type": kind}}


def total(reading: Reading) -> dict:
    found: dict = {}
    for portion in reading.portions:
        found = add(found, portion.usage)
    return found


def test_the_sample_is_read():
    reading = read(SAMPLE)

    assert (reading.complete, reading.terminal, reading.requests) == (True, True, 5)
    assert total(reading) == {Unit.INPUT: 2000, Unit.CACHE_READ: 1000, Unit.OUTPUT: 100}
    assert {portion.terms for portion in reading.portions} == {Terms("batch", None, "global")}


def test_cut_anywhere_it_is_never_more_than_the_lines_that_were_whole():
    """A list has no end mark, so each whole line counts; half of one leaves it unread."""
    scanner = ResultsScanner()
    for at in range(len(SAMPLE)):
        reading = scanner.result()
        lines = SAMPLE[:at].split(b"\n")
        is_half = bool(lines[-1]) and lines[-1] not in SAMPLE.split(b"\n")
        assert reading.requests == sum(bool(line) for line in lines) - is_half
        assert (reading.complete, reading.terminal) == (not is_half and reading.requests > 0,) * 2
        scanner.feed(SAMPLE[at : at + 1])
    assert scanner.result() == read(SAMPLE)


def test_only_what_succeeded_is_billed_in_whatever_order():
    lines = [ended("errored", "a"), succeeded("b"), ended("canceled", "c"), ended("expired", "d"), succeeded("e")]

    for order in (lines, lines[::-1], [*lines[2:], *lines[:2]]):
        reading = read(*order)
        assert (reading.complete, reading.requests) == (True, 5)
        assert total(reading) == {Unit.INPUT: 20, Unit.OUTPUT: 4}


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n"])
def test_lines_end_as_they_like_and_the_last_need_not(end: bytes):
    assert read(succeeded("a"), succeeded("b"), end=end) == read(succeeded("a"), succeeded("b"), b"", end=end)


def test_each_request_keeps_its_own_model_and_terms():
    told = usage(service_tier="standard", inference_geo="us", speed="fast")

    one, two = read(succeeded("a", model="x"), succeeded("b", model="y", usage=told)).portions

    assert (one.model, one.terms) == ("x", Terms("batch"))
    assert (two.model, two.terms) == ("y", Terms("standard", "fast", "us"))


def test_passes_of_other_models_and_searches_are_billed():
    passes = [
        {"type": "message", "input_tokens": 10, "output_tokens": 2},
        {"type": "advisor_message", "model": "z", "input_tokens": 7, "output_tokens": 5},
    ]
    told = usage(iterations=passes, server_tool_use={"web_search_requests": 2})

    portions = {portion.model: portion.usage for portion in read(succeeded(usage=told)).portions}

    assert portions == {
        "m": {Unit.INPUT: 10, Unit.OUTPUT: 2, Unit.WEB_SEARCH: 2},
        "z": {Unit.INPUT: 7, Unit.OUTPUT: 5},
    }


def test_cache_writes_are_told_apart_or_nothing_is_known():
    """The request that asked for them is not known here."""
    split = usage(cache_creation_input_tokens=7, cache_creation=SPLIT)

    assert total(read(succeeded(usage=split)))[Unit.CACHE_WRITE_1H] == 4
    for told in (usage(cache_creation_input_tokens=8, cache_creation=SPLIT), usage(cache_creation_input_tokens=1)):
        assert not read(succeeded(usage=told)).complete
        inner = {"type": "message", **told}
        assert not read(succeeded(usage=usage(iterations=[inner]))).complete


@pytest.mark.parametrize(
    "line",
    [
        succeeded(usage=None),
        succeeded(usage={"input_tokens": -1, "output_tokens": 1}),
        succeeded(usage={"output_tokens": 1}),
        succeeded(usage=usage(cache_creation_input_tokens="x")),
        succeeded(model=None),
        {"custom_id": "a", "result": {"type": "succeeded"}},
        {"custom_id": "a", "result": {"type": "succeeded", "message": {"type": "error", "error": {"type": "x"}}}},
    ],
)
def test_a_request_that_succeeded_and_states_no_usage_leaves_all_of_it_unknown(line: dict):
    reading = read(succeeded("b"), line)

    assert (reading.complete, reading.terminal, reading.requests) == (False, True, 2)


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b"[]",
        {"type": "error", "error": {"type": "not_found_error"}},
        {"custom_id": 3, "result": {"type": "errored"}},
        ended("brand_new", "a"),
        {"custom_id": "a", "result": []},
    ],
)
def test_a_line_that_is_no_result_counts_for_none(line: object):
    reading = read(succeeded("b"), line, b"")

    assert (reading.complete, reading.requests) == (False, 1)


def test_lists_of_the_same_names_have_one_sum_and_others_another():
    sums = [
        read(*lines).name_sum for lines in ([ended("errored", "a"), succeeded("b")], [succeeded("b"), succeeded("a")])
    ]

    assert sums[0] == sums[1] > 0
    for other in ([succeeded("a"), succeeded("c")], [succeeded("a")], [succeeded("ab"), succeeded("")]):
        assert read(*other).name_sum != sums[0]
    assert read(*other, b"").name_sum == read(*other).name_sum
    assert read({"custom_id": "\ud800", "result": {"type": "errored"}}).complete


def test_a_name_that_comes_twice_leaves_all_of_it_unknown():
    assert not read(succeeded("a"), succeeded("a"), b"").complete
    assert not read(succeeded("a"), succeeded("a")).complete


def test_it_says_that_it_reads_lists_of_any_length():
    assert isinstance(ResultsScanner(), ListScanner) and ResultsScanner().reads_any_length


def test_nothing_is_no_list():
    assert read(b"") == Reading(requests=0)
    assert read(b"\n\n") == Reading(requests=0)


def test_a_line_that_is_too_long_is_not_kept():
    long = json.dumps(succeeded(content=[{"type": "text", "text": "x" * MAX_LINE_BYTES}])).encode()
    scanner = ResultsScanner()
    for start in range(0, len(long), 1000):
        scanner.feed(long[start : start + 1000])
        assert len(scanner._line) <= MAX_LINE_BYTES

    assert not scanner.result().terminal
    scanner.feed(b"\n" + json.dumps(succeeded("b")).encode() + b"\n")
    reading = scanner.result()
    assert (reading.complete, reading.requests) == (False, 1)
    short = json.dumps(succeeded(content=[{"type": "text", "text": "x" * (MAX_LINE_BYTES - 500)}])).encode()
    assert read(short, b"").complete

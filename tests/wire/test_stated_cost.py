import json

import pytest

from lockpin_core.wire.replies import read_object
from lockpin_core.wire.stated_cost import stated_pico


def stated(usage: str, beside: str = "{}") -> int | None:
    found, more = read_object(usage.encode()), read_object(beside.encode())
    assert found is not None
    return stated_pico(found, more)


@pytest.mark.parametrize(
    ("usage", "pico"),
    [
        ('{"cost": 0.0123456}', 12_345_600_000),
        ('{"cost": 1.2e-05}', 12_000_000),
        ('{"cost": 4E-5, "is_byok": false, "cost_details": {"upstream_inference_cost": 0.5}}', 40_000_000),
        ('{"cost": 4e-05, "is_byok": true, "cost_details": {"upstream_inference_cost": 0.0008}}', 840_000_000),
        ('{"cost": 4e-05, "is_byok": true, "cost_details": null}', 40_000_000),
        ('{"cost": 3}', 3 * 10**12),
        ('{"cost": "0.25"}', 25 * 10**10),
        ('{"cost": 0}', 0),
        ('{"cost": 0.0000000000001}', 1),  # a tenth of a picodollar, rounded up
        ('{"cost": {"currency": "USD", "input_cost": 0.0005, "total_cost": 0.0120625}}', 12_062_500_000),
        ('{"cost_in_usd_ticks": 158700000}', 15_870_000_000),
        ('{"cost": 0.1, "cost_in_usd_ticks": 1}', 10**11),
    ],
)
def test_cost_is_read_exactly(usage: str, pico: int):
    assert stated(usage) == pico


def test_cost_that_no_float_has_is_read_exactly():
    assert stated('{"cost": 0.123456789012}') == 123_456_789_012
    assert stated('{"cost": 123456.123456789012}') == 123_456_123_456_789_012


def test_credits_stand_beside_the_usage():
    # 500 billion nano-credits are 500 credits, and a credit is a cent.
    assert stated("{}", '{"copilot_usage": {"total_nano_aiu": 500000000000}}') == 5 * 10**12


@pytest.mark.parametrize(
    "value", ["-1", "true", "null", '"x"', '"NaN"', "NaN", "Infinity", "1e400", '"1e999999999"', "[1]", "1000001", "{}"]
)
def test_cost_that_cannot_be_one_was_not_stated(value: str):
    assert stated(f'{{"cost": {value}, "is_byok": true, "cost_details": {{"upstream_inference_cost": 1}}}}') is None


def test_nothing_stated_is_no_cost():
    assert stated(json.dumps({"prompt_tokens": 1})) is None

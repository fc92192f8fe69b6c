"""How holds and charges add up: every sum by hand, at $5 and $25 a million, $6.25 for a cache write, $0.01 a search."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lockpin_core.call import Call, Ceiling, Charge, Payers, Quote, Share, Terms
from lockpin_core.clock import new_id
from lockpin_core.config_budgets import own_budget
from lockpin_core.ledger.listing import CallRow
from lockpin_core.ledger.protocol import Rules
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.money import Money
from lockpin_core.prices import Model, PriceTable, quote, shipped_dir
from lockpin_core.readers.explain import Asked, AskedReader, Part, charge_sum, hold_sum, is_that, share_sum
from lockpin_core.usage import Unit

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
PLAIN = Terms()
OUT = frozenset({Unit.OUTPUT})
WRITTEN = frozenset({Unit.INPUT, Unit.CACHE_WRITE_5M})


def model(provider: str = "anthropic", **more: object) -> Model:
    entry = {
        "input": "5", "output": "25", "cache_read": "0.5", "cache_write": {"5m": "6.25"}, "context_tokens": "200000",
        "fees": {"web_search": "0.01", "code_session": "0.05"},
    }  # fmt: skip
    found = PriceTable.load(shipped_dir(), {"m": {**entry, **more}}).find(provider, "m")
    assert found is not None
    return found


def booked(
    folder: Path, ceiling: Ceiling, most: Money, *, terms: Terms = PLAIN, shrunk: str | None = None, others: int = 0
):
    """Hold a call and read it back: its row, and what that keeps of how it was bound."""
    ledger = SqliteLedger(folder / "ledger.sqlite3", clock=lambda: AT, new_id=new_id)
    call = Call(
        id="c1", payers=Payers("fix", "box"), provider="anthropic", host="api.anthropic.com",
        wire="anthropic_messages", model="m", asked_model="m", client="x/1", streamed=True,
        quote=Quote(most, ceiling.prompt + ceiling.output + others, ceiling), terms=terms, output_limit=4096, limit_set=False,
        billing="metered", price_date="2026-08-01", rates={},
    )  # fmt: skip
    ledger.hold(call, Rules((), own_budget(None, ("0.8",), "UTC"))).result(10)
    if shrunk is not None:
        ledger.shrink("c1", Money.parse(shrunk), 100)
    ledger.settle("c1", Charge(Money.parse("0.01"), {Unit.INPUT: 2000}, 2000, "m", None)).result(10)
    ledger.stop()
    with AskedReader(folder / "ledger.sqlite3") as reader:
        row = reader.call("c1")
        assert row is not None
        return row, reader.asked(row)


def test_hold_with_hosted_tools_is_taken_apart_into_prompt_windows_output_and_each_fee(tmp_path: Path):
    fees = {Unit.WEB_SEARCH: 5, Unit.CODE_SESSION: 1}
    ceiling = Ceiling(1_020_000, 24_576, WRITTEN, OUT, fees, refills=5, window=200_000)
    most = quote(model(), ceiling, PLAIN, AT)

    found = hold_sum(model(), *booked(tmp_path, ceiling, most), None)

    # 20,000 × $6.25/M = $0.125, 1,000,000 × $6.25/M = $6.25, 24,576 × $25/M = $0.6144, 5 × $0.01, 1 × $0.05.
    assert most == Money.parse("7.0894")
    assert found is not None
    assert list(found.parts) == [
        Part("cache_write_5m", 20_000, 6_250_000),
        Part("cache_write_5m", 1_000_000, 6_250_000, note="the window again, 5 × 200,000"),
        Part("output", 24_576, 25_000_000),
        Part("code_session", 1, 5 * 10**10, is_fee=True),
        Part("web_search", 5, 10**10, is_fee=True),
    ]
    assert [part.total for part in found.parts] == [125 * 10**9, 625 * 10**10, 6144 * 10**8, 5 * 10**10, 5 * 10**10]
    assert (found.pico, found.amount, found.factors) == (70_894 * 10**8, most, [])


@pytest.mark.parametrize(
    ("ceiling", "terms", "more", "dollars", "factors"),
    [
        # 1,000 × $5/M + 100 × $25/M = $0.0075
        (Ceiling(1000, 100, frozenset({Unit.INPUT}), OUT, {}), PLAIN, {}, "0.0075", []),
        # 1,000 × $6.25/M, and three replies of 4,096 tokens: $0.00625 + $0.3072
        (Ceiling(1000, 12_288, WRITTEN, OUT, {}), PLAIN, {}, "0.31345", []),
        # ($0.005 + $0.0025) × 2, and the search as it is: $0.015 + $0.01
        (
            Ceiling(1000, 100, frozenset({Unit.INPUT}), OUT, {Unit.WEB_SEARCH: 1}), Terms(speed="fast"),
            {"speeds": {"fast": "2"}}, "0.025", [("speed fast", (2, 1))],
        ),
        # ($0.005 + $0.0025) × 1.1
        (
            Ceiling(1000, 100, frozenset({Unit.INPUT}), OUT, {}), Terms(geo="eu"), {"geo": {"eu": "1.1", "us": "1"}},
            "0.00825", [("region eu", (11, 10))],
        ),
        # ($0.005 + $0.0025) × 3
        (
            Ceiling(1000, 100, frozenset({Unit.INPUT}), OUT, {}), Terms("priority"), {"provider": "openai", "tiers": {"priority": {"x": "3"}}},
            "0.0225", [("tier priority", (3, 1))],
        ),
    ],
)  # fmt: skip
def test_hold_adds_up_with_what_multiplies_it(tmp_path: Path, ceiling, terms, more, dollars, factors):
    most = quote(model(**more), ceiling, terms, AT)

    found = hold_sum(model(**more), *booked(tmp_path, ceiling, most, terms=terms), None)

    assert found is not None
    assert (most, found.amount) == (Money.parse(dollars), Money.parse(dollars))
    assert list(found.factors) == factors


def test_hold_beyond_a_band_is_at_the_band(tmp_path: Path):
    banded = model(above=[{"tokens": "1000", "op": "gt", "input": "10", "output": "30", "cache_write": {"5m": "12.5"}}])
    ceiling = Ceiling(1200, 100, frozenset({Unit.INPUT}), OUT, {})
    most = quote(banded, ceiling, PLAIN, AT)

    found = hold_sum(banded, *booked(tmp_path, ceiling, most), None)

    # 1,200 × $10/M + 100 × $30/M
    assert found is not None
    assert (found.amount, found.above) == (Money.parse("0.015"), 1001)


def test_hold_that_shrank_is_shown_as_it_was_at_first(tmp_path: Path):
    ceiling = Ceiling(1000, 4096, frozenset({Unit.INPUT}), OUT, {})

    row, asked = booked(tmp_path, ceiling, Money.parse("0.1074"), shrunk="0.02")
    found = hold_sum(model(), row, asked, None)

    assert (row.held, asked.held) == (Money.parse("0.02"), Money.parse("0.1074"))
    assert found is not None
    assert found.amount == asked.held


def test_row_without_a_ceiling_is_tried_and_one_that_no_prices_give_is_not_told(tmp_path: Path):
    ceiling = Ceiling(1000, 8192, frozenset({Unit.INPUT}), OUT, {})
    row, asked = booked(tmp_path, ceiling, Money.parse("0.2098"))
    old = Asked(asked.terms, asked.held, asked.tokens)

    found = hold_sum(model(), row, old, None)  # two replies of the output limit

    assert found is not None
    assert [(part.unit, part.count) for part in found.parts] == [("input", 1000), ("output", 8192)]
    assert hold_sum(model(), row, replace(old, held=Money.parse("0.21")), None) is None
    assert hold_sum(model(), row, replace(asked, held=Money.parse("0.21")), None) is None
    assert hold_sum(model(), row, replace(asked, terms=Terms(speed="fast")), None) is None  # it has no such speed


def test_charge_is_each_count_times_its_rate_and_fees_by_the_piece():
    usage = {Unit.INPUT: 1000, Unit.CACHE_READ: 10_000, Unit.OUTPUT: 200, Unit.WEB_SEARCH: 2}

    found = charge_sum(model(), usage, PLAIN, AT, None)

    # $0.005 + $0.005 + $0.005 + $0.02
    assert {(part.unit, part.count, part.total) for part in found.parts} == {
        ("input", 1000, 5 * 10**9), ("cache_read", 10_000, 5 * 10**9), ("output", 200, 5 * 10**9),
        ("web_search", 2, 2 * 10**10),
    }  # fmt: skip
    assert (found.amount, found.tier, found.above) == (Money.parse("0.035"), "standard", 0)


def test_share_is_the_sum_of_its_prompts_each_in_its_band():
    banded = model(above=[{"tokens": "999", "input": "30", "output": "70"}], tiers={"batch": {"x": "0.5"}})
    share = Share("m", {Unit.INPUT: 2500, Unit.OUTPUT: 500}, Money.parse("0.0125"), 5, 400, 600, Terms("batch"))

    found = share_sum(banded, share, AT, None)

    # Half of 2,500 × $5 and 500 × $25 a million.
    assert (found.amount, found.tier, found.above) == (share.amount, "batch", 0)
    assert (is_that(share, found), is_that(share._replace(amount=Money.parse("0.012500002")), found)) == (True, False)


def test_output_of_a_hold_leaves_out_what_other_models_may_take(tmp_path: Path):
    alone = Ceiling(3000, 8192, WRITTEN, OUT, {})
    row, asked = booked(tmp_path, alone, Money.parse("1"), others=5000)

    assert (asked.others, asked.output, row.held_output) == (5000, 8192, 8192)
    assert hold_sum(model(), row, asked, None) is None


def test_hold_of_a_batch_is_told_where_its_requests_are_bound_like_one(tmp_path: Path):
    halved = model(tiers={"batch": {"x": "0.5"}})
    ceiling = Ceiling(3000, 8192, WRITTEN, OUT, {}, requests=2)
    row, asked = booked(
        tmp_path, ceiling, quote(halved, ceiling, Terms("batch"), AT, batched=True), terms=Terms("batch")
    )

    found = hold_sum(halved, row, asked, None)

    assert (asked.requests, row.requests) == (2, 2)
    assert found is not None
    assert (found.amount, found.tier) == (asked.held, "batch")


def test_last_picodollars_of_a_sum_become_a_nanodollar():
    found = charge_sum(model(input="0.0005"), {Unit.INPUT: 3}, PLAIN, AT, None)

    assert (found.pico, found.amount) == (1500, Money(2))


def test_row_keeps_the_terms(tmp_path: Path):
    ceiling = Ceiling(1000, 100, frozenset({Unit.INPUT}), OUT, {})

    row, asked = booked(tmp_path, ceiling, Money.parse("1"), terms=Terms("flex", "fast", "eu"))

    assert isinstance(row, CallRow)
    assert asked == Asked(Terms("flex", "fast", "eu"), Money.parse("1"), 1100, 1000)


def test_seconds_are_taken_apart_like_tokens(tmp_path: Path):
    whisper = PriceTable.load(shipped_dir()).find("openai", "whisper-1")
    assert whisper is not None
    ceiling = Ceiling(0, 0, frozenset({Unit.INPUT, Unit.AUDIO_IN}), OUT, {Unit.SECOND: 90})
    most = quote(whisper, ceiling, PLAIN, AT, host_geo="eu")

    held = hold_sum(whisper, *booked(tmp_path, ceiling, most), "eu")
    charged = charge_sum(whisper, {Unit.SECOND: 9}, PLAIN, AT, None)

    # 90 × $100/M = $0.009, in a region a tenth more; 9 × $100/M = $0.0009
    assert held is not None
    assert list(held.parts) == [Part("second", 90, 100_000_000)]
    assert (held.amount, [factor for _, factor in held.factors]) == (Money.parse("0.0099"), [(11, 10)])
    assert (list(charged.parts), charged.amount) == ([Part("second", 9, 100_000_000)], Money.parse("0.0009"))
    other = booked(folder(tmp_path), ceiling, Money.parse("5"))  # at other prices than these
    assert hold_sum(whisper, *other, "eu") is None


def folder(path: Path) -> Path:
    made = path / "other"
    made.mkdir()
    return made

"""`lockpin prices explain`: sums by hand."""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace

import pytest

from lockpin_core.call import Call, Ceiling, Charge, Payers, Quote, Share, Terms, Void
from lockpin_core.clock import new_id, utc_now
from lockpin_core.config_budgets import own_budget
from lockpin_core.ledger.admin import SqliteAdmin
from lockpin_core.ledger.protocol import Rules
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.money import Money
from lockpin_core.usage import Unit, total_tokens
from tests.ledger.desk import call

CEILING = Ceiling(20_000, 4096, frozenset({Unit.INPUT, Unit.CACHE_WRITE_5M}), frozenset({Unit.OUTPUT}), {})
TOOLS = Ceiling(
    1_020_000, 24_576, CEILING.prompt_units, CEILING.output_units, {Unit.WEB_SEARCH: 5}, refills=5, window=200_000
)
PLAIN = Terms()


@pytest.fixture
def book(home) -> Callable[..., None]:
    """Book one call: its hold, and its charge."""

    def booked(
        charge: str, usage: dict, *, model: str = "claude-opus-4-5", hold: str = "0.2274",
        tokens: int = 24_096, terms: Terms = PLAIN, ceiling: Ceiling = CEILING, **more: object,
    ) -> None:  # fmt: skip
        ledger = SqliteLedger(home.ledger, clock=utc_now, new_id=new_id)
        call = Call(
            id="c100", payers=Payers("fix", "box"), provider="anthropic", host="api.anthropic.com",
            wire="anthropic_messages", model=model, asked_model=model, client="x/1", streamed=True,
            quote=Quote(Money.parse(hold), tokens, ceiling), terms=terms, output_limit=4096, limit_set=False,
            billing="metered", price_date="2026-08-01", rates={},
        )  # fmt: skip
        ledger.hold(call, Rules((), own_budget(None, ("0.8",), "UTC"))).result(10)
        made = Charge(Money.parse(charge), usage, total_tokens(usage), model, terms.tier, **more)
        ledger.settle("c100", made).result(10)
        ledger.stop()

    return booked


def test_charge_and_hold_are_taken_apart(lockpin, book):
    usage = {Unit.INPUT: 1000, Unit.CACHE_READ: 10_000, Unit.CACHE_WRITE_5M: 400, Unit.OUTPUT: 200, Unit.WEB_SEARCH: 2}
    book("0.0375", usage)

    done = lockpin("prices", "explain")

    assert (done.returncode, done.stderr) == (0, "")
    first, *lines = done.stdout.splitlines()
    assert first.startswith("call c100, 20")
    assert first.endswith(": anthropic/claude-opus-4-5, task fix")
    assert sorted(" ".join(line.split()) for line in lines[3:8]) == [
        "cache_read 10,000 $0.5/M $0.0050",
        "cache_write_5m 400 $6.25/M $0.0025",
        "input 1,000 $5/M $0.0050",
        "output 200 $25/M $0.0050",
        "web_search 2 $0.01 each $0.0200",
    ]
    assert (lines[1], lines[8]) == ("charge: $0.0375", "= $0.0375")
    # Every prompt token at the dearest rate, that of a cache write, and the whole output.
    assert [" ".join(line.split()) for line in lines[10:]] == [
        "hold: $0.2274",
        "UNIT COUNT RATE AMOUNT",
        "cache_write_5m 20,000 $6.25/M $0.1250",
        "output 4,096 $25/M $0.1024",
        "= $0.2274",
        "every token at the dearest rate that may apply",
    ]


def test_parts_in_json_add_up_to_the_sum(lockpin, book):
    book("0.01", {Unit.INPUT: 1000, Unit.OUTPUT: 200})

    told = json.loads(lockpin("prices", "explain", "c100", "--format", "json").stdout)

    assert told["charge"]["parts"] == [
        {"unit": "input", "count": 1000, "rate_usd": "5", "per": 1000000, "amount_usd": "0.005"},
        {"unit": "output", "count": 200, "rate_usd": "25", "per": 1000000, "amount_usd": "0.005"},
    ]
    assert (told["charge"]["booked_usd"], told["charge"]["sum_usd"], told["charge"]["adds_up"]) == (
        "0.01",
        "0.01",
        True,
    )
    assert (told["hold"]["sum_usd"], told["hold"]["adds_up"]) == ("0.2274", True)


def test_factors_are_named_and_multiply_all_but_fees(lockpin, book):
    # 1,000 tokens at $4 and 100 at $20 a million, times 2 for speed, times 1.1 for the region; and one search.
    usage = {Unit.INPUT: 1000, Unit.OUTPUT: 100, Unit.WEB_SEARCH: 1}
    book("0.0232", usage, model="claude-opus-5-5", terms=Terms(speed="fast", geo="us"))

    lines = lockpin("prices", "explain").stdout.splitlines()

    assert "× 2 speed fast" in lines
    assert "× 11/10 region us" in lines
    assert "= $0.0232" in lines


def test_last_rounding_is_shown(lockpin, book, home):
    home.config("pricing:\n  tiny: {input_per_mtok: 0.0005, output_per_mtok: 1}\n")
    book("0.000000002", {Unit.INPUT: 3}, model="tiny")

    # Three half nanodollars are one and a half, and become two.
    assert "= $0.0000000015, rounded up to $0.000000002" in lockpin("prices", "explain").stdout


def test_band_is_named(lockpin, book):
    # 100,001 tokens of a prompt: $0.5 instead of $0.1 a million.
    book("0.0500005", {Unit.INPUT: 100_001}, model="claude-haiku-5-5")

    assert "prices of a prompt of 100,001 tokens or more" in lockpin("prices", "explain").stdout


def test_sum_that_is_not_the_charge_is_said_with_status_1(lockpin, book):
    book("0.03", {Unit.INPUT: 1000})

    done = lockpin("prices", "explain")

    assert done.returncode == 1
    assert "these prices give another sum than was booked" in done.stdout
    assert "of 2026-08-01" in done.stdout


def test_estimate_of_the_hold_has_no_parts(lockpin, book):
    book("0.2274", {}, reason="client_left", estimated=True)

    assert "an estimate (client_left): the hold, in full" in lockpin("prices", "explain").stdout


def test_correction_is_told_beside_the_first_charge(lockpin, book, home):
    book("0.005", {Unit.INPUT: 1000})
    admin = SqliteAdmin(home.ledger, clock=utc_now, new_id=new_id)
    admin.correct("c100", Money.parse("0.004"), reason="the invoice", who="anna")

    done = lockpin("prices", "explain")

    assert done.returncode == 0
    assert "charge: $0.005\n" in done.stdout
    assert "then corrected by -$0.001: the invoice" in done.stdout


def test_estimate_that_was_corrected_is_an_estimate_of_the_hold_still(lockpin, book, home):
    book("0.2274", {}, reason="client_left", estimated=True)
    admin = SqliteAdmin(home.ledger, clock=utc_now, new_id=new_id)
    admin.correct("c100", Money.parse("0.1"), reason="the invoice", who="anna")

    done = lockpin("prices", "explain")

    assert done.returncode == 0
    assert "charge: $0.2274\nan estimate (client_left): the hold, in full\n" in done.stdout
    assert "then corrected by -$0.1274: the invoice" in done.stdout


def test_hold_whose_parts_are_not_kept_is_said(lockpin, book):
    book("0.005", {Unit.INPUT: 1000}, hold="0.3")

    words = "a prompt of up to 20,000 tokens, 4,096 of output; these prices give another sum than was held"
    assert words in lockpin("prices", "explain").stdout


def test_hold_with_hosted_tools_shows_each_part(lockpin, book):
    # 20,000 × $6.25/M, 5 × 200,000 × $6.25/M, 6 × 4,096 × $25/M and five searches at a cent.
    book("0.005", {Unit.INPUT: 1000}, hold="7.0394", tokens=1_044_576, ceiling=TOOLS)

    lines = lockpin("prices", "explain").stdout.splitlines()

    assert [" ".join(line.split()) for line in lines[-8:]] == [
        "hold: $7.0394",
        "UNIT COUNT RATE AMOUNT",
        "cache_write_5m 20,000 $6.25/M $0.1250",
        "cache_write_5m (the window again, 5 × 200,000) 1,000,000 $6.25/M $6.2500",
        "output 24,576 $25/M $0.6144",
        "web_search 5 $0.01 each $0.0500",
        "= $7.0394",
        "every token at the dearest rate that may apply",
    ]


def test_hold_of_a_row_that_keeps_no_more_says_so(home, lockpin, book):
    book("0.005", {Unit.INPUT: 1000}, hold="0.3")
    connection = sqlite3.connect(home.ledger)
    connection.execute("UPDATE rows SET data = NULL WHERE kind = 'hold'")
    connection.commit()
    connection.close()

    words = "up to 24,096 tokens; its row is of a version that kept no more of how it came about"
    assert words in lockpin("prices", "explain").stdout


def test_call_in_flight_has_only_a_hold(lockpin, ledger):
    done = lockpin("prices", "explain", "c4")

    assert done.returncode == 0
    assert "hold: $1.25" in done.stdout
    assert "charge" not in done.stdout


@pytest.mark.parametrize(
    ("reason", "words"), [("status_429", "the provider answered 429"), ("not_sent", "it was not sent")]
)
def test_call_that_cost_nothing_says_why(lockpin, home, reason, words):
    ledger = SqliteLedger(home.ledger, clock=utc_now, new_id=new_id)
    ledger.hold(call("c1", "0.5"), Rules((), own_budget(None, ("0.8",), "UTC"))).result(10)
    ledger.void("c1", Void(reason, failed=True)).result(10)
    ledger.stop()

    done = lockpin("prices", "explain", "c1")

    assert done.returncode == 0
    assert f"charge: $0.00\n{words}\n" in done.stdout


def test_refused_call_has_nothing_to_explain(lockpin, ledger):
    done = lockpin("prices", "explain", "c5")

    assert done.returncode == 1
    assert "it took no hold and cost nothing" in done.stderr


def test_a_batch_of_several_requests_is_no_sum_that_is_wrong(lockpin, book):
    """Each was priced by its own model and length, and the row knows their usage together alone."""
    many = replace(CEILING, requests=3)
    book("0.0125", {Unit.INPUT: 1000, Unit.OUTPUT: 200}, terms=Terms("batch"), ceiling=many, hold="0.2")

    done = lockpin("prices", "explain")

    assert (done.returncode, done.stderr) == (0, "")
    assert "charge: $0.0125" in done.stdout
    assert "a batch of 3 requests: each was priced by itself" in done.stdout
    assert "for 3 requests, each of which was bound by itself" in done.stdout


def test_a_batch_whose_requests_are_alike_is_taken_apart_as_a_call(lockpin, book):
    """Opus 4.5 at half of $5 and $25 a million."""
    book("0.005", {Unit.INPUT: 1000, Unit.OUTPUT: 200}, terms=Terms("batch"), ceiling=replace(CEILING, requests=3))

    done = lockpin("prices", "explain")

    assert (done.returncode, "tier batch" in done.stdout) == (0, True)
    assert "a batch of" not in done.stdout


BATCH = Terms("batch")
BANDS = """
pricing:
  slow: {input: 1, output: 5, tiers: {batch: {x: "0.5"}}}
  dear: {input: 10, output: 50, tiers: {batch: {x: "0.5"}}, above: [{tokens: "999", input: 30, output: 70}]}
"""
SHARES = (
    Share("slow", {Unit.INPUT: 100, Unit.OUTPUT: 30}, Money.parse("0.000125"), 1, 100, 100, BATCH),
    Share("dear", {Unit.INPUT: 2500, Unit.OUTPUT: 500}, Money.parse("0.025"), 5, 500, 500, BATCH),
)
WHOLE = {Unit.INPUT: 2600, Unit.OUTPUT: 530}
SIX = Ceiling(3780, 1000, CEILING.prompt_units, CEILING.output_units, {}, requests=6)


def test_batch_is_the_sum_of_its_models_and_its_hold_is_said_to_be_that_of_each_request(lockpin, book, home):
    home.config(BANDS)
    book("0.025125", WHOLE, model="slow", terms=BATCH, shares=SHARES, ceiling=SIX, hold="0.029815", tokens=4780)

    done = lockpin("prices", "explain")

    assert done.returncode == 0
    *lines, last = [" ".join(line.split()) for line in done.stdout.splitlines()[2:]]
    assert last == (
        "a prompt of up to 3,780 tokens, 1,000 of output, for 6 requests, each of which was bound by itself"
    )
    assert lines == [
        "charge: $0.025125",
        "",
        "slow: $0.000125",
        "UNIT COUNT RATE AMOUNT",
        "input 100 $1/M $0.00010",
        "output 30 $5/M $0.00015",
        "× 1/2 tier batch",
        "= $0.000125",
        "",
        "dear, 5 prompts: $0.025",
        "UNIT COUNT RATE AMOUNT",
        "input 2,500 $10/M $0.025",
        "output 500 $50/M $0.025",
        "× 1/2 tier batch",
        "= $0.025",
        "",
        "hold: $0.029815",
    ]


def test_batch_in_json_has_its_models_as_shares(lockpin, book, home):
    home.config(BANDS)
    book("0.025125", WHOLE, model="slow", terms=BATCH, shares=SHARES, ceiling=SIX)

    told = json.loads(lockpin("prices", "explain", "--format", "json").stdout)["charge"]
    lines = lockpin("prices", "explain", "--format", "csv").stdout.splitlines()

    assert (told["booked_usd"], told["adds_up"], told["parts"]) == ("0.025125", True, [])
    assert [(share["model"], share["prompts"], share["sum_usd"]) for share in told["shares"]] == [
        ("slow", 1, "0.000125"),
        ("dear", 5, "0.025"),
    ]
    assert lines[3].startswith('"charge of dear, 5 prompts",input,2500,10,')


def test_share_at_other_prices_does_not_add_up(lockpin, book, home):
    home.config(BANDS.replace("output: 50", "output: 60"))
    book("0.025125", WHOLE, model="slow", terms=BATCH, shares=SHARES, ceiling=SIX)

    done = lockpin("prices", "explain")

    assert done.returncode == 1
    assert "these prices give another sum than was booked: prices changed since" in done.stdout


def test_batch_of_an_earlier_version_is_given_no_wrong_sum(lockpin, book, home):
    home.config(BANDS)
    book("0.025", {Unit.INPUT: 2500, Unit.OUTPUT: 500}, model="dear", terms=BATCH)

    done = lockpin("prices", "explain")

    assert done.returncode == 0
    assert "the requests of a batch: each was priced by itself, by its own model and length" in done.stdout
    assert "for the requests of a batch, each of which was bound by itself" in done.stdout
    assert "0.055" not in done.stdout


def test_hold_with_other_models_in_it_says_so_and_blames_no_price(lockpin, book):
    book("0.01", {Unit.INPUT: 1000, Unit.OUTPUT: 200}, hold="0.5", tokens=24_096 + 30_000)

    assert lockpin("prices", "explain").stdout.splitlines()[-1] == (
        "a prompt of up to 20,000 tokens, 4,096 of output, 30,000 tokens of other models that may run within the call; "
        "what those may cost its row does not keep"
    )

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from lockpin_core.call import Payers, Share
from lockpin_core.ledger.listing import Balanced, CallRow
from lockpin_core.money import ZERO, Money
from lockpin_core.readers.calls import FIELDS, charged, in_the_way, needed, over_words, receipt_of, summary
from lockpin_core.usage import Unit

AT = datetime(2026, 10, 21, 12, 30, tzinfo=UTC)
ROW = CallRow(
    id="c1", at=AT, decision="allowed", state="charged", code=None, payers=Payers("fix", "host", key="k1", user="u1"),
    provider="anthropic", host="api.anthropic.com", wire="anthropic_messages", model="m", asked_model="m",
    model_served="m-2", client="x/1", path=None, held=Money.parse("0.5"), held_tokens=1000,
    charged=Money.parse("0.0214"), tokens=120, usage={Unit.INPUT: 100, Unit.OUTPUT: 20}, rates={"input": "5"},
    price_date="2026-08-01", tier="default", billing="metered", output_limit=500, limit_set=True, streamed=True,
    estimated=False, reason=None, failed=False, over_hold=False, priced=True, waited_ms=7, degrade=("fit",), count=1,
    detail={}, balances=(Balanced("daily", "machine", "host", Money.parse("1"), ZERO, Money.parse("25"), 9, 0, None),),
    ended_at=AT + timedelta(seconds=3), hash="ab12",
)  # fmt: skip
OPEN = replace(ROW, state="open", charged=None, tokens=None, usage={}, ended_at=None, balances=())
VOID = replace(ROW, state="void", charged=None, reason="not_sent")
REFUSED = replace(OPEN, decision="refused", state="none", code="budget_exceeded", held=None)


def test_receipt_of_a_charged_call_is_complete():
    assert receipt_of(ROW) == {
        "v": 1, "id": "c1", "at": "2026-10-21T12:30:00.000000Z", "decision": "allowed", "code": None, "task": "fix",
        "key": "k1", "user": "u1", "provider": "anthropic", "model": "m", "model_served": "m-2", "held_usd": "0.5",
        "charged_usd": "0.0214", "estimated": False, "estimate_reason": None, "failed": False, "over_hold": False,
        "usage": {"input": 100, "output": 20}, "rates": {"input": "5"}, "price_date": "2026-08-01", "tier": "default",
        "billing": "metered", "output_limit": 500, "degrade": ["fit"], "waited_ms": 7,
        "budgets": [
            {"name": "daily", "subject": "host", "spent_usd": "1", "held_usd": "0", "limit_usd": "25"},
        ],
        "hash": "ab12",
    }  # fmt: skip


def test_fields_are_those_of_a_receipt_in_its_order():
    assert tuple(receipt_of(ROW)) == FIELDS


def test_a_call_in_flight_has_no_charge_and_a_void_is_a_zero():
    assert charged(OPEN) is None
    assert charged(VOID) == ZERO
    assert charged(REFUSED) is None
    assert receipt_of(OPEN)["charged_usd"] is None
    assert receipt_of(VOID)["charged_usd"] == "0"


def test_the_reason_of_a_void_is_no_reason_of_an_estimate():
    assert receipt_of(VOID)["estimate_reason"] is None


def test_summary_marks_an_estimate_and_its_reason():
    guess = replace(ROW, estimated=True, reason="client_left")

    assert summary(guess).endswith("task fix: charged $0.0214 (est.) client_left, held $0.50")
    assert "(est.)" not in summary(ROW)


def test_charge_above_its_hold_is_marked_and_said():
    over = replace(ROW, over_hold=True, charged=Money.parse("0.6"))

    assert receipt_of(over)["over_hold"] is True
    assert summary(over).endswith(": charged $0.60, over what was held $0.50")
    assert over_words(over) == "over hold"


def test_more_tokens_than_held_are_told_from_more_dollars():
    over = replace(ROW, over_hold=True)

    assert summary(over).endswith(": charged $0.0214, held $0.50, more tokens than held")
    assert (over_words(over), over_words(ROW)) == ("more tokens than held", "")


def test_summary_says_what_else_became_of_a_call():
    assert summary(OPEN).endswith(": in flight, held $0.50")
    assert summary(VOID).endswith(": cost nothing (not_sent), held $0.50")
    assert summary(REFUSED).endswith(": refused (budget_exceeded)")
    assert summary(replace(REFUSED, count=12)).endswith(": refused 12 times (budget_exceeded)")


def test_refused_call_says_what_it_needed_and_what_each_limit_had_left():
    figures = {
        "budget_usd": "5", "spent_usd": "4.5", "in_flight_usd": "0.25", "needed_usd": "0.31", "remaining_usd": "0.25",
        "transient": False, "code": "x",
    }  # fmt: skip
    daily = figures | {"limit": "daily", "remaining_usd": "0.1", "budget_tokens": 900, "needed_tokens": 1000}
    daily |= {"remaining_tokens": 20, "spent_tokens": 880, "in_flight_tokens": 0}
    roomy = daily | {"limit": "tokens", "remaining_usd": "9", "remaining_tokens": 100}

    own = replace(REFUSED, detail=figures)
    three = replace(REFUSED, detail=figures | {"violations": [figures, daily, roomy]})

    assert needed(own) == "needed $0.31, task has $0.25 left"
    assert needed(three) == (
        "needed $0.31, task has $0.25 left, daily has $0.10 left; "
        "needed 1,000 tokens, daily has 20 tokens left, tokens has 100 tokens left"
    )
    assert [limit["limit"] for limit in in_the_way(three)] == ["task", "daily", "tokens"]
    assert receipt_of(own)["refusal"] == {
        "transient": False,
        "limits": [{"limit": "task"} | {key: figures[key] for key in figures if key.endswith("_usd")}],
    }
    assert summary(own).endswith(": refused (budget_exceeded): needed $0.31, task has $0.25 left")
    assert "refusal" not in receipt_of(REFUSED)  # of an earlier version


def test_shares_in_a_receipt_add_up_to_what_the_call_costs_by_now():
    shares = (Share("m", {Unit.INPUT: 100}, Money.parse("0.0014")), Share("n", {Unit.OUTPUT: 20}, Money.parse("0.02")))
    now = [replace(ROW, shares=shares), replace(ROW, shares=shares, charged=Money.parse("0.0107")), replace(ROW)]

    told = [[share["charged_usd"] for share in receipt_of(row).get("shares", ())] for row in now]

    assert told == [["0.0014", "0.02"], ["0.0007", "0.01"], []]


def test_a_call_that_departs_from_its_tasks_first_ones_says_in_what():
    changed = replace(ROW, drift=("model", "cost"))

    assert receipt_of(changed)["drift"] == ["model", "cost"]
    assert summary(changed).endswith(", drift: model, cost")
    assert "drift" not in receipt_of(ROW)
    assert "drift" not in summary(ROW)

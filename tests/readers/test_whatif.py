from dataclasses import replace
from datetime import UTC, datetime, timedelta

from lockpin_core import clock
from lockpin_core.budgets import Budget
from lockpin_core.call import Payers, Share
from lockpin_core.clock import micros
from lockpin_core.ledger.listing import CallRow
from lockpin_core.money import Money
from lockpin_core.prices import PriceTable, shipped_dir
from lockpin_core.readers.whatif import Past, limit_record, past_of, replay, reprice, sum_of
from lockpin_core.usage import Unit
from lockpin_core.windows import Window

START = datetime(2026, 11, 24, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PRICING = {
    "ink": {"input": "1", "output": "5", "max_output_tokens": "50000", "context_tokens": "200000"},
    "pen": {"input": "2", "output": "10", "max_output_tokens": "50000", "context_tokens": "200000"},
}


def nano(dollars):
    return Money.parse(dollars).nano


def call(number, held, charged, *, minute=None, lasts=1, task="fix", model="m"):
    """A call that begins in its minute, one after the other unless said otherwise, and lasts some minutes."""
    at = START + (number * 10 if minute is None else minute) * MINUTE
    ended = None if lasts is None else micros(at + lasts * MINUTE)
    return Past(f"c{number}", Payers(task, "box"), "anthropic", model, micros(at), ended, nano(held), nano(charged))


def limit(dollars, window=None, **more):
    return Budget(
        "b", more.pop("scope", "task"), window or Window("lifetime"), Money.parse(dollars), enforce=True, **more
    )


def run(calls, *limits):
    return replay(calls, limits, clock.instant)


def test_call_is_refused_where_spent_and_its_own_hold_pass_the_limit():
    # 0.40 + 0.30 spent; the third needs 0.50 of 1.00, which 0.30 is left of; the fourth fits exactly.
    calls = [call(1, "0.50", "0.40"), call(2, "0.50", "0.30"), call(3, "0.50", "0.20"), call(4, "0.30", "0.10")]

    found = run(calls, limit("1"))

    assert found.refused == ["c3"]
    assert (found.spent, found.would_spend) == (Money.parse("1"), Money.parse("0.8"))
    (outcome,) = found.outcomes
    assert (outcome.calls, outcome.refused) == (4, 1)
    assert outcome.first == micros(START + 30 * MINUTE)


def test_held_money_counts_while_a_call_runs():
    calls = [
        call(1, "0.60", "0.10", minute=0, lasts=5),
        call(2, "0.60", "0.10", minute=1),
        call(3, "0.60", "0.10", minute=6),
    ]

    assert run(calls, limit("1")).refused == ["c2"]


def test_end_in_the_same_instant_makes_room():
    calls = [call(1, "1", "0.10", minute=0, lasts=5), call(2, "0.90", "0.10", minute=5)]

    assert run(calls, limit("1")).refused == []


def test_refused_call_holds_nowhere_and_costs_nothing_in_other_budgets():
    small = replace(limit("0.2"), name="small")
    calls = [call(1, "0.50", "0.50", lasts=60), call(2, "0.15", "0.10", minute=20), call(3, "0.80", "0.1", minute=90)]

    found = run(calls, small, limit("0.95"))

    assert found.refused == ["c1", "c3"]  # c3 would fit the larger one: only 0.10 is spent there
    assert {(o.budget.name, o.refused, o.would_spend) for o in found.outcomes} == {
        ("small", 2, nano("0.1")), ("b", 0, nano("0.1")),
    }  # fmt: skip


def test_each_task_and_each_day_has_an_account_of_its_own():
    day = limit("1", Window("day", "Europe/Berlin"))
    calls = [
        call(1, "1", "1", minute=0),
        call(2, "1", "1", minute=1, task="doc"),
        call(3, "1", "1", minute=659),  # 23:59 in Berlin
        call(4, "1", "1", minute=660),
    ]

    assert run(calls, day).refused == ["c3"]


def test_spend_leaves_a_rolling_window_at_the_step_after_its_period():
    # 24h in 48 steps of half an hour: a spend at 12:10 leaves at 12:30 the next day.
    rolling = limit("1", Window("rolling", period_ms=24 * 3_600_000))
    calls = [call(1, "1", "1", minute=10), call(2, "1", "1", minute=1440 + 29), call(3, "1", "1", minute=1440 + 30)]

    assert run(calls, rolling).refused == ["c2"]


def test_call_in_flight_stays_held():
    calls = [call(1, "0.60", "0", lasts=None), call(2, "0.60", "0.10")]

    found = run(calls, limit("1"))

    assert (found.refused, found.would_spend) == (["c2"], Money.parse("0"))


def test_filter_of_a_budget_leaves_other_models_alone():
    calls = [call(1, "1", "1", model="opus"), call(2, "1", "1", model="haiku"), call(3, "1", "1", model="opus")]

    found = run(calls, limit("1", models=("opus*",)))

    assert (found.refused, found.outcomes[0].calls) == (["c3"], 2)


def test_free_call_passes_a_used_up_limit():
    assert run([call(1, "1", "1"), call(2, "0", "0")], limit("1")).refused == []


def test_record_of_an_account():
    (outcome,) = run([call(1, "2", "1")], limit("1", scope="machine")).outcomes

    assert limit_record(outcome, clock.instant) == {
        "budget": "b", "key": "machine:box", "window": "lifetime", "limit_usd": 1, "calls": 1, "refused": 1,
        "spent_usd": 1, "would_spend_usd": 0, "first": "2026-11-24T12:10:00Z",
        "lowered": 0, "perhaps_lowered": 0,
    }  # fmt: skip


ROW = CallRow(
    id="c1", at=START, decision="allowed", state="charged", code=None, payers=Payers("fix", "box"),
    provider="anthropic", host="api.anthropic.com", wire="anthropic_messages", model="claude-opus-4-5",
    asked_model="claude-opus-4-5", model_served=None, client="x/1", path=None, held=Money.parse("0.5"),
    held_tokens=1000, charged=Money.parse("0.0214"), tokens=120, usage={Unit.INPUT: 100, Unit.OUTPUT: 20}, rates={},
    price_date=None, tier="priority", billing="metered", output_limit=500, limit_set=False, streamed=True,
    estimated=False, reason=None, failed=False, over_hold=False, priced=True, waited_ms=0, degrade=(), count=1,
    detail={}, balances=(), ended_at=START + MINUTE, hash="ab",
)  # fmt: skip


def test_usage_is_priced_as_another_models():
    pen = PriceTable.load(shipped_dir(), PRICING).find("anthropic", "pen")
    guess = replace(ROW, estimated=True, reason="client_left")
    spoken = replace(ROW, usage={Unit.AUDIO_IN: 5})
    others = [replace(ROW, state="open", charged=None), replace(ROW, state="void"), replace(ROW, model="gpt")]

    (row,) = reprice([ROW, guess, spoken, *others], lambda call: call.model == "claude-opus-4-5", pen)

    # 100 tokens in at $2 and 20 out at $10 a million; an estimate has no usage, and pen has no price for sound.
    assert (row.model, row.as_model, row.calls, row.left_out) == ("claude-opus-4-5", "pen", 1, 2)
    assert (row.spent, row.would_spend) == (Money.parse("0.0214"), Money.parse("0.0004"))
    assert sum_of([row, row]).would_spend == Money.parse("0.0008")


BANDED = {"input": "1", "output": "5", "above": [{"tokens": "999", "input": "3", "output": "7"}]}
# Five requests of 500 tokens for "dear" and one of 100 for "slow", at half their price.
MIXED = replace(
    ROW, model="slow", asked_model="slow-latest", model_served="dear", charged=Money.parse("0.025125"), tier="batch",
    usage={Unit.INPUT: 2600, Unit.OUTPUT: 530},
    shares=(
        Share("dear", {Unit.INPUT: 2500, Unit.OUTPUT: 500}, Money.parse("0.025"), 5, 500, 500),
        Share("slow", {Unit.INPUT: 100, Unit.OUTPUT: 30}, Money.parse("0.000125"), 1, 100, 100),
    ),
)  # fmt: skip


def repriced(row, name, entry, *, by=lambda call: (call.model, call.asked_model)):
    other = PriceTable.load(shipped_dir(), {"other": entry}).find("anthropic", "other")
    return [(r.model, r.calls, r.spent.exact(), r.would_spend.exact(), r.left_out) for r in reprice(
        [row], lambda call: name in by(call), other)]  # fmt: skip


def test_each_prompt_of_a_call_is_priced_by_itself_and_each_model_alone():
    # 500 tokens are below the band of 1,000, though 2,500 are not: 2,500 × $1 + 500 × $5 a million.
    assert repriced(MIXED, "dear", BANDED) == [("dear", 1, "0.025", "0.005", 0)]
    assert repriced(MIXED, "slow", BANDED) == [("slow", 1, "0.000125", "0.00025", 0)]
    assert repriced(MIXED, "slow-latest", BANDED) == [("slow", 1, "0.000125", "0.00025", 0)]
    assert repriced(MIXED, "fast", BANDED) == []


def test_call_whose_model_answered_under_another_name_is_found_by_both():
    dated = replace(MIXED, shares=(MIXED.shares[0]._replace(model="slow-2026"),))

    found = [("slow-2026", 1, "0.025125", "0.005", 0)]
    assert [repriced(dated, name, BANDED) for name in ("slow-2026", "slow-latest")] == [found, found]


def test_prompts_of_which_the_row_does_not_say_the_band_are_left_out():
    shares = (MIXED.shares[0]._replace(least_prompt=400, most_prompt=1000), MIXED.shares[1])

    assert repriced(replace(MIXED, shares=shares), "dear", BANDED) == [("dear", 0, "0", "0", 1)]
    assert repriced(replace(MIXED, shares=()), "slow", BANDED) == [("slow", 0, "0", "0", 1)]  # of an earlier version


def test_output_of_a_batch_is_not_lowered():
    assert bounds(replace(MIXED, output_limit=None, held_output=50_000)) == (None, None)


def test_row_of_the_ledger_becomes_what_a_replay_needs():
    assert past_of(ROW, 4096) == Past(
        "c1", Payers("fix", "box"), "anthropic", "claude-opus-4-5", micros(START), micros(START + MINUTE),
        500_000_000, 21_400_000,
    )  # fmt: skip
    assert past_of(replace(ROW, state="open", charged=None, ended_at=None), 4096).ended is None
    assert past_of(replace(ROW, held=None), 4096) is None


# $0.50 held: 1,000 tokens of prompt, and 16,000 of output at no less than $25 a million, that is at least $0.40.
SET = replace(
    ROW, output_limit=16_000, limit_set=True, held_tokens=17_000, held_output=16_000, rates={"output": "25"}, charged=None
)  # fmt: skip


def bounds(row, floor=4096):
    found = past_of(row, floor)
    return found.least, found.perhaps


def test_smallest_version_saves_the_output_above_the_floor():
    # At least 11,904 × $25/M = $0.2976 less; and no less than 4,096 of 16,000 parts of all are left.
    assert bounds(SET) == (nano("0.2024"), nano("0.128"))
    # Twice the output for two replies.
    assert bounds(replace(SET, held_output=8_000, output_limit=4_000), 2000) == (nano("0.4"), nano("0.25"))


def test_call_without_a_smaller_version_has_none():
    assert bounds(replace(SET, limit_set=False)) == (None, None)
    assert bounds(SET, None) == (None, None)  # fit.output: false
    assert bounds(SET, 16_000) == (None, None)


def test_row_that_does_not_say_enough_may_have_one():
    assert bounds(replace(SET, held_output=None)) == (None, 0)  # of an earlier version
    assert bounds(replace(SET, has_rounds=True)) == (nano("0.2024"), 0)  # fewer calls of tools come before
    assert bounds(replace(SET, limit_set=False, output_limit=None)) == (None, 0)  # it was under no limit then


def test_lowered_call_holds_what_is_left_and_costs_no_more():
    calls = [call(1, "0.90", "0.90"), replace(call(2, "0.50", "0.20"), least=nano("0.10")), call(3, "0.01", "0.01")]

    found = run(calls, limit("1"))

    assert (found.lowered, found.refused, found.would_spend) == (["c2"], ["c3"], Money.parse("1"))
    assert [(o.refused, o.lowered, o.would_spend) for o in found.outcomes] == [(1, 1, nano("1"))]


def test_call_that_is_perhaps_lowered_is_neither_refused_nor_lowered():
    calls = [
        replace(call(1, "2", "0.40"), perhaps=0),
        replace(call(2, "2", "0.40"), least=nano("0.7"), perhaps=nano("0.5")),
    ]

    found = run(calls, limit("1"))

    assert (found.perhaps_lowered, found.lowered, found.refused) == (["c1", "c2"], [], [])
    assert found.outcomes[0].perhaps_lowered == 2


def test_budget_of_one_task_is_in_place_of_the_tasks_own():
    every, one = (
        Budget("task", "task", Window("lifetime"), Money.parse(d), enforce=True, own=True) for d in ("1", "2")
    )
    calls = [call(n, "0.90", "0.80", task=task) for n, task in enumerate(("fix", "doc", "fix", "doc", "fix"))]

    found = replay(calls, [every], clock.instant, {"fix": one})

    # doc: 0.80 + 0.90 > 1. fix: 0.80 + 0.90 <= 2, and 1.60 + 0.90 > 2.
    assert found.refused == ["c3", "c4"]
    assert [(o.subject, o.budget.limit) for o in found.outcomes] == [
        ("doc", Money.parse("1")),
        ("fix", Money.parse("2")),
    ]


def of(number, user, groups):
    whose = Payers("fix", "box", user=user, groups=groups)
    return replace(call(number, "0.50", "0.40"), payers=whose)


def test_a_limit_of_people_is_replayed_on_the_accounts_of_each():
    calls = [
        of(1, "ann", ("ml", "ops")),
        of(2, "bob", ("ops",)),
        of(3, "ann", ("ml",)),
        of(4, "bob", ()),
        of(5, None, ()),
    ]
    squads = limit("0.85", scope="group", groups=("ml", "ops"))

    found = run(calls, squads)

    # ml: c1 0.40, and c3 0.40 + 0.50 > 0.85; ops: c1 0.40, and c2 0.40 + 0.50 > 0.85. The others are in no group.
    assert found.refused == ["c2", "c3"]
    assert [(o.subject, o.calls, o.refused) for o in found.outcomes] == [("ml", 2, 1), ("ops", 2, 1)]
    mine = run(calls, limit("0.85", scope="user", users=("ann",)))
    assert [(o.subject, o.calls, o.refused) for o in mine.outcomes] == [("ann", 2, 1)]


def test_a_budget_for_every_task_is_asked_of_the_calls_of_users_too():
    own = Budget("task", "task", Window("lifetime"), Money.parse("1"), enforce=True, own=True)
    calls = [of(1, "ann", ()), of(2, "bob", ()), of(3, None, ())]

    assert replay(calls, [own], clock.instant).refused == ["c3"]  # 0.80 + 0.50 > 1
    anns = {"fix": replace(own, users=("ann",), limit=Money.parse("0.3"))}
    assert replay(calls, [own], clock.instant, anns).refused == ["c1"]

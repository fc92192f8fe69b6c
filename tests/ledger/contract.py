"""What every ledger must do. A test module of a ledger derives from LedgerContract and gives a `desk` fixture."""

import concurrent.futures
import itertools
import random
import sqlite3
from datetime import datetime, timedelta

import pytest

from lockpin_core.budgets import Budget
from lockpin_core.call import Void
from lockpin_core.errors import CommandError, LedgerError
from lockpin_core.ledger.protocol import Closed, Held, Short
from lockpin_core.windows import Window
from tests.ledger import desk as d
from tests.ledger.desk import WAIT_S, call, charge, machine, money, note, refusal, rules

HOUR_MS = 3_600_000
ONE = rules(machine("1"))


def hold(desk, call_id, dollars, in_force=ONE, **more):
    return desk.ledger.hold(call(call_id, dollars, **more), in_force).result(WAIT_S)


def settle(desk, call_id, dollars, **more):
    return desk.ledger.settle(call_id, charge(dollars, **more)).result(WAIT_S)


def void(desk, call_id, reason="not_sent"):
    return desk.ledger.void(call_id, Void(reason)).result(WAIT_S)


def seen(desk, in_force=ONE, task="t"):
    """Give (spent, held) in dollars by budget name."""
    standings = desk.ledger.look(call("look", "0", task=task).payers, "openai", "gpt-5.5", in_force).result(WAIT_S)
    return {s.budget.name: (s.spent.exact(), s.held.exact()) for s in standings}


class LedgerContract:
    def test_a_hold_counts_as_held_and_its_charge_as_spent(self, desk):
        held = hold(desk, "c1", "0.30")
        assert isinstance(held, Held)
        assert [(s.budget.name, s.held.exact()) for s in held.standings] == [("task", "0.3"), ("daily", "0.3")]
        assert held.at == d.NOON

        resolved = settle(desk, "c1", "0.02")

        assert (resolved.first, resolved.over_hold, resolved.held) == (True, False, money("0.30"))
        assert seen(desk) == {"task": ("0.02", "0"), "daily": ("0.02", "0")}
        assert (resolved.task_spent, resolved.recent) == (money("0.02"), (money("0.02"),))

    def test_a_hold_may_use_the_limit_up_and_no_more(self, desk):
        assert isinstance(hold(desk, "c1", "0.999999999"), Held)
        assert isinstance(hold(desk, "c2", "0.000000001"), Held)

        short = hold(desk, "c3", "0.000000001")

        assert isinstance(short, Short)
        assert [s.budget.name for s in short.violations] == ["daily"]
        assert short.standings[1].held == money("1")
        assert seen(desk)["daily"] == ("0", "1")

    def test_all_accounts_or_none(self, desk):
        both = rules(machine("1"), machine("5", name="wide"), own=d.OWN)
        hold(desk, "c1", "0.9", both)

        assert isinstance(hold(desk, "c2", "0.2", both), Short)

        assert seen(desk, both) == {"task": ("0", "0.9"), "daily": ("0", "0.9"), "wide": ("0", "0.9")}

    def test_standings_are_the_tasks_own_then_by_name(self, desk):
        many = rules(machine("9", name="zeta"), machine("9", name="alpha"))
        assert [s.budget.name for s in hold(desk, "c1", "1", many).standings] == ["task", "alpha", "zeta"]

    def test_tokens_are_held_like_dollars(self, desk):
        tokens = rules(Budget("tokens", "machine", d.DAY, limit_tokens=150, enforce=True))
        assert isinstance(hold(desk, "c1", "0.1", tokens, tokens=100), Held)
        assert isinstance(hold(desk, "c2", "0.1", tokens, tokens=51), Short)
        settle(desk, "c1", "0.1", tokens=99)
        assert isinstance(hold(desk, "c2", "0.1", tokens, tokens=51), Held)
        assert isinstance(hold(desk, "c3", "0.1", tokens, tokens=1), Short)

    def test_a_warning_budget_counts_and_never_refuses(self, desk):
        warn = rules(machine("0.1", enforce=False))
        assert isinstance(hold(desk, "c1", "5", warn), Held)
        assert seen(desk, warn)["daily"] == ("0", "5")

    def test_filters_choose_the_budgets_of_a_call(self, desk):
        some = rules(
            machine("1", name="opus", models=("claude-opus-*",)), machine("1", name="openai", providers=("openai",))
        )
        assert [s.budget.name for s in hold(desk, "c1", "0.1", some).standings] == ["task", "openai"]
        theirs = hold(desk, "c2", "0.1", some, provider="anthropic", model="claude-opus-5")
        assert [s.budget.name for s in theirs.standings] == ["task", "opus"]

    @pytest.mark.parametrize("dollars", ["0.1", "0.9"])
    def test_the_same_call_again_gets_the_first_answer(self, desk, dollars):
        first = hold(desk, "c1", dollars)
        desk.clock.pass_by(minutes=1)

        again = hold(desk, "c1", dollars)

        assert (again.at, again.standings) == (first.at, first.standings)
        assert seen(desk)["daily"] == ("0", dollars)

    def test_a_resolved_call_is_not_held_again(self, desk):
        hold(desk, "c1", "0.1")
        void(desk, "c1")
        with pytest.raises((AssertionError, sqlite3.IntegrityError)):
            hold(desk, "c1", "0.1")
        assert seen(desk)["daily"] == ("0", "0")
        assert isinstance(hold(desk, "c2", "0.1"), Held)

    def test_a_void_takes_the_hold_off(self, desk):
        hold(desk, "c1", "0.5")
        resolved = void(desk, "c1")
        assert (resolved.charge, resolved.first, resolved.held) == (None, True, money("0.5"))
        assert seen(desk) == {"task": ("0", "0"), "daily": ("0", "0")}

    def test_a_charge_above_its_hold_is_booked_in_full_and_marked(self, desk):
        hold(desk, "c1", "0.9")
        resolved = settle(desk, "c1", "1.5")
        assert resolved.over_hold
        assert seen(desk)["daily"] == ("1.5", "0")
        assert isinstance(hold(desk, "c2", "0.1"), Short)

    def test_tokens_above_their_hold_are_marked_too(self, desk):
        hold(desk, "c1", "0.9", tokens=100)
        assert settle(desk, "c1", "0.1", tokens=101).over_hold

    def test_a_resolution_without_a_hold_is_an_error(self, desk):
        with pytest.raises(LedgerError, match="c9 has no hold"):
            settle(desk, "c9", "0.1")

    def test_cancelling_what_was_never_held_does_nothing(self, desk):
        desk.ledger.cancel("c1")
        assert isinstance(hold(desk, "c1", "0.1"), Held)

    def test_a_task_belongs_to_itself(self, desk):
        desk.admin.task_new("a", limit=money("0.5"), window="lifetime", who="test")
        assert isinstance(hold(desk, "c1", "0.6", task="a"), Short)
        assert isinstance(hold(desk, "c2", "0.6", task="b"), Held)

    def test_a_default_budget_enforces_for_tasks_without_their_own(self, desk):
        own = Budget("task", "task", d.LIFETIME, money("0.5"), enforce=True, own=True)
        short = hold(desk, "c1", "0.6", rules(own=own))
        assert [s.limit for s in short.violations] == [money("0.5")]
        desk.admin.task_new("t", limit=money("0.7"), window="lifetime", who="test")
        assert isinstance(hold(desk, "c2", "0.6", rules(own=own)), Held)

    def test_b01_thirty_parallel_calls_on_a_budget_for_ten(self, desk):
        with concurrent.futures.ThreadPoolExecutor(30) as pool:
            answers = list(pool.map(lambda n: hold(desk, f"c{n}", "0.10"), range(30)))
        through = [answer.call.id for answer in answers if isinstance(answer, Held)]
        for call_id in through:
            settle(desk, call_id, "0.10")

        assert len(through) == 10
        assert seen(desk)["daily"] == ("1", "0")

    def test_b03_a_past_average_bounds_nothing(self, desk):
        for n in range(100):
            hold(desk, f"past{n}", "0.001")
            settle(desk, f"past{n}", "0.001")
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(lambda n: hold(desk, f"c{n}", "0.60"), range(10)))
        assert sum(isinstance(answer, Held) for answer in answers) == 1

    @pytest.mark.parametrize("order", sorted(set(itertools.permutations(("settle", "void", "settle")))))
    def test_b04_the_first_resolution_wins_in_any_order(self, desk, order):
        hold(desk, "h1", "0.50")

        results = [settle(desk, "h1", "0.20") if step == "settle" else void(desk, "h1") for step in order]

        assert [result.first for result in results] == [True, False, False]
        assert len({(result.charge is None, result.row_hash, result.at) for result in results}) == 1
        assert seen(desk)["daily"] == ("0.2" if order[0] == "settle" else "0", "0")

    def test_b04_the_first_resolution_wins_in_parallel(self, desk):
        for n in range(20):
            hold(desk, f"h{n}", "0.05")
        steps = [(settle, ("0.01",)), (void, ()), (settle, ("0.01",))] * 20
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            work = [pool.submit(step, desk, f"h{n // 3}", *more) for n, (step, more) in enumerate(steps)]
            results = [future.result(WAIT_S) for future in work]

        assert sum(result.first for result in results) == 20
        spent = 10_000_000 * sum(result.first and result.charge is not None for result in results)
        assert set(desk.accounts().values()) == {(spent, 0, spent // 500_000, 0)}

    def test_b08_sixteen_workers_cannot_overshoot_a_batch(self, desk):
        half = rules(machine("0.50"))

        def work(worker):
            for n in range(4):
                if isinstance(hold(desk, f"c{worker}-{n}", "0.02", half), Held):
                    settle(desk, f"c{worker}-{n}", "0.02")

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(work, range(16)))
        assert seen(desk, half)["daily"] == ("0.5", "0")

    def test_c01_a_hundred_cancelled_holds_leave_nothing_held(self, desk):
        fifty = rules(machine("60"))
        for n in range(100):
            desk.ledger.hold(call(f"c{n}", "0.50"), fifty)
            desk.ledger.cancel(f"c{n}")
        assert seen(desk, fifty) == {"task": ("0", "0"), "daily": ("0", "0")}
        assert len(desk.rows("void")) == len(desk.rows("hold")) == 100

    def test_c02_settled_calls_free_what_they_held(self, desk):
        thirty = rules(machine("0.30"))
        for n in range(5):
            assert isinstance(hold(desk, f"c{n}", "0.08", thirty), Held)
            settle(desk, f"c{n}", "0.00022")
        assert seen(desk, thirty)["daily"] == ("0.0011", "0")

    def test_c08_books_equal_their_rows_after_random_calls(self, desk):
        dice, live, in_force = random.Random(8), [], rules(machine("3"), machine("9", name="all", window=d.LIFETIME))
        answers = []
        for n in range(1500):
            step = dice.choice(("hold", "hold", "settle", "void", "cancel", "again", "night"))
            if step == "hold" or not live:
                answers.append(
                    desk.ledger.hold(call(f"c{n}", f"0.{dice.randrange(30):02}", task=f"t{n % 7}"), in_force)
                )
                live.append(f"c{n}")
            elif step == "settle":
                answers.append(
                    desk.ledger.settle(live.pop(dice.randrange(len(live))), charge(f"0.{dice.randrange(9)}"))
                )
            elif step == "void":
                answers.append(desk.ledger.void(live.pop(dice.randrange(len(live))), Void("not_sent")))
            elif step == "cancel":
                desk.ledger.cancel(dice.choice(live))
            elif step == "again":
                answers.append(desk.ledger.settle(dice.choice(live), charge("0.01")))
            elif n % 9 == 0:
                desk.clock.pass_by(hours=5)
        concurrent.futures.wait(answers, WAIT_S)

        assert d.nonzero(desk.accounts()) == desk.explained() != {}

    def test_c09_a_call_that_costs_nothing_fits_a_used_up_budget(self, desk):
        hold(desk, "c1", "1")
        settle(desk, "c1", "1")
        assert isinstance(hold(desk, "c2", "0.000000001"), Short)
        assert isinstance(hold(desk, "c3", "0", tokens=5000), Held)

    def test_ledger_time_never_steps_back(self, desk):
        first = hold(desk, "c1", "0.1").at
        desk.clock.pass_by(days=-2)

        second = hold(desk, "c2", "0.1")

        assert second.at == first
        assert [s.held.exact() for s in second.standings] == ["0.2", "0.2"]
        desk.clock.pass_by(days=2, seconds=1)
        assert settle(desk, "c1", "0.1").at > first

    def test_a_charge_belongs_to_the_day_of_its_hold(self, desk):
        hold(desk, "c1", "0.9")
        desk.clock.pass_by(hours=12)
        assert isinstance(hold(desk, "c2", "0.9"), Held)

        yesterday = settle(desk, "c1", "0.8").standings[1]

        assert (yesterday.spent, yesterday.span.end) == (money("0.8"), d.NOON.replace(day=22, hour=0))
        assert seen(desk)["daily"] == ("0", "0.9")

    def test_a_task_may_have_a_budget_a_day(self, desk):
        desk.admin.task_new("t", limit=money("0.5"), window="day", who="test")
        assert isinstance(hold(desk, "c1", "0.5"), Held)
        settle(desk, "c1", "0.4")
        assert isinstance(hold(desk, "c2", "0.5"), Short)
        desk.clock.pass_by(days=1)
        assert isinstance(hold(desk, "c3", "0.5"), Held)

    def test_a_budget_given_later_counts_what_its_window_has_seen(self, desk):
        few = rules(machine("1"))
        hold(desk, "c1", "0.2", few)
        settle(desk, "c1", "0.2")
        desk.clock.pass_by(days=1)
        hold(desk, "c2", "0.3", few)
        settle(desk, "c2", "0.1")
        hold(desk, "c3", "0.25", few)
        desk.admin.task_new("t", limit=money("5"), window="day", who="test")
        more = rules(machine("1"), machine("1", name="late"), machine("2", name="ever", window=d.LIFETIME))

        assert seen(desk, more) == {
            "task": ("0.1", "0.25"),
            "daily": ("0.1", "0.25"),
            "late": ("0.1", "0.25"),
            "ever": ("0.3", "0.25"),
        }
        assert isinstance(hold(desk, "c4", "0.7", more), Short)
        settle(desk, "c3", "0.05")
        assert isinstance(hold(desk, "c4", "0.7", more), Held)
        assert seen(desk, more)["ever"] == ("0.35", "0.7")

    def test_alert_steps_are_told_once(self, desk):
        budgets = rules(machine("1", alert_at=("0.5", "0.8")))
        told = []
        for n, amount in enumerate(("0.49", "0.01", "0.1", "0.25")):
            hold(desk, f"c{n}", amount, budgets)
            told.append(settle(desk, f"c{n}", amount).crossed)
        assert told == [(), (("daily", "m", "0.5"),), (), (("daily", "m", "0.8"),)]

    def test_an_alert_step_may_be_three_tenths(self, desk):
        budgets = rules(machine("1", alert_at=("0.3",)))
        for n in range(3):
            hold(desk, f"c{n}", "0.1", budgets)
            crossed = settle(desk, f"c{n}", "0.1").crossed
        assert crossed == (("daily", "m", "0.3"),)

    def test_tokens_pass_alert_steps_too(self, desk):
        budgets = rules(Budget("tokens", "machine", d.DAY, limit_tokens=100, alert_at=("0.5",)))
        hold(desk, "c1", "0", budgets)
        assert settle(desk, "c1", "0", tokens=50).crossed == (("tokens", "m", "0.5"),)

    def test_a_raise_adds_to_the_window_and_re_arms_its_steps(self, desk):
        budget = machine("1", alert_at=("0.8",))
        in_force = rules(budget)
        hold(desk, "c1", "0.9", in_force)
        assert settle(desk, "c1", "0.9").crossed == (("daily", "m", "0.8"),)
        assert isinstance(hold(desk, "c2", "0.9", in_force), Short)

        assert desk.admin.raise_budget(budget, "m", money("1"), who="test").limit == money("2")

        assert isinstance(hold(desk, "c2", "0.9", in_force), Held)
        assert settle(desk, "c2", "0.8").crossed == (("daily", "m", "0.8"),)
        desk.clock.pass_by(days=1)
        assert isinstance(hold(desk, "c3", "1.1", in_force), Short)

    def test_a_raise_needs_an_amount_and_a_limit(self, desk):
        with pytest.raises(CommandError):
            desk.admin.raise_budget(machine("1"), "m", money("0"), who="test")
        with pytest.raises(CommandError):
            desk.admin.raise_budget(machine(None), "m", money("1"), who="test")

    def test_a_smaller_version_is_held_by_the_balances_that_are_in_the_way(self, desk):
        hold(desk, "c0", "0.3")
        seen = []

        def smaller(standings):
            seen.append([standing.held for standing in standings])
            return call("c1", "0.7")

        held = desk.ledger.hold(call("c1", "0.8"), ONE, smaller).result(WAIT_S)
        short = desk.ledger.hold(call("c2", "0.8"), ONE, lambda standings: call("c2", "0.1")).result(WAIT_S)

        assert isinstance(held, Held)
        assert held.call.quote.most == money("0.7")
        assert seen == [[money("0.3"), money("0.3")]]
        assert isinstance(short, Short)

    def test_a_budget_set_anew_takes_the_place_of_earlier_raises(self, desk):
        desk.admin.task_new("t", limit=money("1"), window="lifetime", who="x")
        hold(desk, "c1", "0.1")
        desk.admin.raise_budget(d.OWN, "t", money("4"), who="x")

        info = desk.admin.task_new("t", limit=money("0.3"), window="lifetime", who="x")

        assert info.limit == money("0.3")

    def test_a_tasks_own_budget_is_raised_for_good(self, desk):
        desk.admin.task_new("t", limit=money("0.5"), window="lifetime", who="test")
        desk.admin.raise_budget(d.OWN, "t", money("0.2"), who="test")
        desk.clock.pass_by(days=40)
        assert isinstance(hold(desk, "c1", "0.7"), Held)
        assert isinstance(hold(desk, "c2", "0.01"), Short)

    def test_a_closed_task_takes_no_hold_and_settles_its_open_ones(self, desk):
        hold(desk, "c1", "0.1")
        desk.admin.task_close("t", who="test")

        assert hold(desk, "c2", "0.1") == Closed(d.NOON, "t")
        assert settle(desk, "c1", "0.1").first
        assert desk.admin.task_new("t", limit=None, window="lifetime", who="test").closed is False
        assert isinstance(hold(desk, "c2", "0.1"), Held)

    def test_an_unknown_task_is_not_closed(self, desk):
        with pytest.raises(CommandError, match="nobody"):
            desk.admin.task_close("nobody", who="test")

    def test_tasks_are_listed_by_name(self, desk):
        hold(desk, "c1", "0.3", task="used")
        settle(desk, "c1", "0.2")
        hold(desk, "c2", "0.1", task="used")
        desk.admin.task_new("made", limit=money("2"), window="day", who="test")

        made, used = desk.admin.tasks()

        assert (made.name, made.limit, made.window, made.created) == ("made", money("2"), "day", d.NOON)
        assert (used.name, used.limit, used.spent, used.held) == ("used", None, money("0.2"), money("0.1"))
        assert used.created is None

    def test_a_new_budget_of_a_task_in_use_counts_its_spend(self, desk):
        hold(desk, "c1", "0.3")
        settle(desk, "c1", "0.3")
        info = desk.admin.task_new("t", limit=money("0.5"), window="lifetime", who="test")
        assert info.spent == money("0.3")
        assert isinstance(hold(desk, "c2", "0.3"), Short)

    def test_standings_show_a_payer_also_at_zero_and_else_what_is_used(self, desk):
        payers = call("x", "0", task="idle", host="other").payers
        hold(desk, "c1", "0.3")
        idle = desk.admin.standings(ONE, payers, now=d.NOON)
        used = desk.admin.standings(ONE, None, now=d.NOON)
        assert [(s.budget.name, s.subject, s.held.exact()) for s in idle] == [
            ("task", "idle", "0"),
            ("daily", "other", "0"),
        ]
        assert [(s.budget.name, s.subject, s.held.exact()) for s in used] == [
            ("task", "t", "0.3"),
            ("daily", "m", "0.3"),
        ]

    def test_recent_charges_are_the_newest_twenty(self, desk):
        big = rules(machine("100"))
        for n in range(25):
            hold(desk, f"c{n}", "1", big)
            resolved = settle(desk, f"c{n}", f"0.{n:02}")
        assert [m.exact() for m in resolved.recent] == [money(f"0.{n:02}").exact() for n in range(24, 4, -1)]

    def test_a_flood_of_refusals_is_few_rows_with_their_number(self, desk):
        for n in range(250):
            desk.ledger.refuse(note(f"r{n}"), refusal())
        desk.ledger.refuse(note("other", task="calm"), refusal())
        seen(desk)  # what was queued before it is done
        desk.clock.pass_by(seconds=1)
        desk.ledger.refuse(note("later"), refusal())
        desk.close()

        rows = desk.rows("refusal")

        assert sum(row.count for row in rows) == 252
        assert [row.count for row in rows if row.count > 1] == [150]
        assert len(rows) == 103

    def test_an_uncapped_call_is_a_row(self, desk):
        desk.ledger.uncapped(note("u1", code="no_limit"))
        desk.close()
        assert [(row.call, row.code) for row in desk.rows("uncapped")] == [("u1", "no_limit")]

    def test_stopping_charges_what_is_open_in_full(self, desk):
        hold(desk, "c1", "0.3")
        hold(desk, "c2", "0.2")
        void(desk, "c2")
        desk.close()
        spent = {name: numbers[:2] for name, numbers in desk.accounts().items()}
        assert set(spent.values()) == {(300_000_000, 0)}

    def test_a_rolling_window_lets_spend_go_step_by_step(self, desk):
        budget = machine("1", window=Window("rolling", period_ms=24 * HOUR_MS))
        in_force = rules(budget)
        hold(desk, "c1", "0.6", in_force)  # at noon; steps are half hours, so it leaves at noon
        settle(desk, "c1", "0.6")
        desk.clock.pass_by(hours=1, minutes=10)
        hold(desk, "c2", "0.3", in_force)  # at 13:10: leaves at 13:30
        settle(desk, "c2", "0.3")
        assert isinstance(hold(desk, "c3", "0.2", in_force), Short)
        assert seen(desk, in_force)["daily"] == ("0.9", "0")

        desk.clock.pass_by(hours=22, minutes=49, seconds=59)
        assert seen(desk, in_force)["daily"] == ("0.9", "0")
        desk.clock.pass_by(seconds=1)
        assert seen(desk, in_force)["daily"] == ("0.3", "0")
        assert isinstance(hold(desk, "c3", "0.7", in_force), Held)
        desk.clock.pass_by(hours=1, minutes=29)
        assert seen(desk, in_force)["daily"] == ("0.3", "0.7")
        desk.clock.pass_by(minutes=1)
        assert seen(desk, in_force)["daily"] == ("0", "0.7")

    def test_e09_a_rolling_day_is_no_calendar_day(self, desk):
        in_force = rules(machine("100", window=Window("rolling", period_ms=24 * HOUR_MS)))
        seen_at = []
        for at, spent in (("01T01:00:00", "10"), ("01T23:00:00", "5"), ("01T23:30:00", None), ("02T01:00:01", None),
                          ("02T23:00:01", None)):  # fmt: skip
            desk.clock.now = datetime.fromisoformat(f"2027-05-{at}+00:00")
            if spent is None:
                seen_at.append(seen(desk, in_force)["daily"][0])
            else:
                hold(desk, at, spent, in_force)
                settle(desk, at, spent)
        assert seen_at == ["15", "5", "0"]

    def test_an_open_hold_counts_in_a_rolling_window_until_it_ends_and_its_charge_at_its_instant(self, desk):
        in_force = rules(machine("1", window=Window("rolling", period_ms=HOUR_MS)))
        hold(desk, "c1", "0.6", in_force)
        desk.clock.pass_by(hours=5)
        assert seen(desk, in_force)["daily"] == ("0", "0.6")
        assert isinstance(hold(desk, "c2", "0.6", in_force), Short)
        settle(desk, "c1", "0.5")
        assert seen(desk, in_force)["daily"] == ("0", "0")  # it left the window four hours ago

    def test_what_a_rolling_window_is_about_to_let_go_is_its_reset(self, desk):
        in_force = rules(machine("1", window=Window("rolling", period_ms=24 * HOUR_MS)))
        desk.clock.pass_by(minutes=7)
        hold(desk, "c1", "0.6", in_force)
        settle(desk, "c1", "0.6")
        short = hold(desk, "c2", "0.6", in_force)
        assert short.violations[0].span.end == d.NOON.replace(day=22, minute=30)

    def test_a_raise_of_a_rolling_limit_is_for_a_period(self, desk):
        budget = machine("1", window=Window("rolling", period_ms=HOUR_MS))
        in_force = rules(budget)
        hold(desk, "c0", "0.1", in_force)
        desk.admin.raise_budget(budget, "m", money("1"), who="test")
        assert isinstance(hold(desk, "c1", "1.9", in_force), Held)
        void(desk, "c1")
        desk.clock.pass_by(hours=1)
        assert isinstance(hold(desk, "c2", "1.0", in_force), Short)
        assert isinstance(hold(desk, "c3", "0.9", in_force), Held)

    @pytest.mark.parametrize(
        ("window", "start", "end"),
        [
            (Window("week"), "2026-10-19T00:00:00", "2026-10-26T00:00:00"),
            (Window("month"), "2026-10-01T00:00:00", "2026-11-01T00:00:00"),
            (Window("month", anchor=31), "2026-09-30T00:00:00", "2026-10-31T00:00:00"),
            (Window("day", "Asia/Kathmandu", at=90), "2026-10-20T19:45:00", "2026-10-21T19:45:00"),
        ],
    )
    def test_calendar_windows_begin_and_end_where_they_should(self, desk, window, start, end):
        in_force = rules(machine("1", window=window))
        span = hold(desk, "c1", "0.9", in_force).standings[1].span
        assert [span.start, span.end] == [datetime.fromisoformat(f"{at}+00:00") for at in (start, end)]
        desk.clock.now = span.end - timedelta(microseconds=1)
        assert isinstance(hold(desk, "c2", "0.9", in_force), Short)
        desk.clock.now = span.end
        assert isinstance(hold(desk, "c3", "0.9", in_force), Held)

    def test_a_task_may_have_any_window(self, desk):
        desk.admin.task_new("t", limit=money("0.5"), window="rolling:3600000", who="test")
        hold(desk, "c1", "0.5")
        settle(desk, "c1", "0.5")
        assert isinstance(hold(desk, "c2", "0.5"), Short)
        assert [task.window for task in desk.admin.tasks()] == ["rolling:3600000"]
        desk.clock.pass_by(minutes=62)
        assert isinstance(hold(desk, "c3", "0.5"), Held)

    def test_a_budget_taken_out_and_put_back_has_counted_the_time_between(self, desk):
        with_it, without = rules(machine("1")), rules(machine("9", name="other"))
        hold(desk, "c1", "0.2", with_it)
        settle(desk, "c1", "0.2")
        hold(desk, "open", "0.1", with_it)
        hold(desk, "c2", "0.3", without)
        settle(desk, "c2", "0.3")
        hold(desk, "c3", "0.05", without)
        settle(desk, "open", "0.1")

        back = rules(machine("1"))
        short = hold(desk, "c4", "0.36", back)

        assert isinstance(short, Short)
        (daily,) = short.violations
        assert (daily.spent, daily.held) == (money("0.6"), money("0.05"))
        settle(desk, "c3", "0.01")
        assert seen(desk, back)["daily"] == ("0.61", "0")

    def test_a_window_turned_and_turned_back_has_missed_nothing(self, desk):
        day, week = rules(machine("1")), rules(machine("1", window=Window("week")))
        for n, in_force in enumerate((day, week, rules(machine("1")))):
            hold(desk, f"c{n}", "0.2", in_force)
            settle(desk, f"c{n}", "0.2")
        assert seen(desk, day)["daily"] == ("0.6", "0")

    def test_a_limit_that_changes_counts_from_the_next_hold(self, desk):
        hold(desk, "c1", "0.9", rules(machine("1")))
        lower = rules(machine("0.5"))
        assert isinstance(hold(desk, "c2", "0.1", lower), Short)
        assert settle(desk, "c1", "0.3").standings[1].limit == money("0.5")
        assert isinstance(hold(desk, "c3", "0.2", lower), Held)

    def test_a_budget_of_a_command_is_in_force_at_once_and_enforces(self, desk):
        hold(desk, "c1", "0.3")
        settle(desk, "c1", "0.3")
        assert desk.admin.budget_set(machine("0.5", name="cap"), who="ann") is None
        short = hold(desk, "c2", "0.3")
        assert [(s.budget.name, s.spent) for s in short.violations] == [("cap", money("0.3"))]
        assert desk.admin.budget_set(machine("0.7", name="cap"), who="ann").budget.limit == money("0.5")
        assert isinstance(hold(desk, "c2", "0.3"), Held)
        assert [(s.budget.name, s.source) for s in desk.admin.budgets()] == [
            ("cap", "command"), ("daily", "config"), ("task", "config"),
        ]  # fmt: skip

        desk.admin.budget_rm("cap", who="bob")
        assert isinstance(hold(desk, "c3", "0.4"), Held)
        desk.admin.budget_set(machine("1.2", name="cap"), who="ann")
        assert seen(desk)["cap"] == ("0.3", "0.7")

    def test_a_budget_of_the_configuration_is_not_for_commands(self, desk):
        hold(desk, "c1", "0.3")
        with pytest.raises(CommandError, match="daily"):
            desk.admin.budget_set(machine("50"), who="ann")
        with pytest.raises(CommandError, match="daily"):
            desk.admin.budget_rm("daily", who="ann")
        with pytest.raises(CommandError, match="nothing"):
            desk.admin.budget_rm("nothing", who="ann")

    def test_a_reset_lets_spend_count_from_now_on(self, desk):
        hold(desk, "c1", "0.5")
        settle(desk, "c1", "0.5")
        hold(desk, "open", "0.2")

        before, after = desk.admin.reset_budget(machine("1"), "m", who="ann")

        assert (before.spent, after.spent, after.held) == (money("0.5"), money("0"), money("0.2"))
        assert settle(desk, "open", "0.1").standings[1].spent == money("0.1")
        assert isinstance(hold(desk, "c2", "0.9"), Held)
        assert seen(desk)["task"] == ("0.6", "0.9")

    def test_a_reset_of_a_rolling_window_takes_its_steps(self, desk):
        budget = machine("1", window=Window("rolling", period_ms=HOUR_MS))
        in_force = rules(budget)
        hold(desk, "c1", "0.5", in_force)
        settle(desk, "c1", "0.5")
        desk.admin.reset_budget(budget, "m", who="ann")
        hold(desk, "c2", "0.4", in_force)
        settle(desk, "c2", "0.4")
        desk.clock.pass_by(minutes=59)
        assert seen(desk, in_force)["daily"] == ("0.4", "0")
        desk.clock.pass_by(minutes=3)
        assert seen(desk, in_force)["daily"] == ("0", "0")

    def test_a_correction_books_the_difference_in_the_window_of_the_hold(self, desk):
        hold(desk, "c1", "0.5")
        settle(desk, "c1", "0.5")
        desk.clock.pass_by(days=1)
        hold(desk, "c2", "0.2")

        corrected = desk.admin.correct("c1", money("0.3"), reason="billed less", who="ann")

        assert (corrected.before, corrected.after) == (money("0.5"), money("0.3"))
        assert {s.budget.name: s.spent for s in corrected.standings} == {"task": money("0.3"), "daily": money("0.3")}
        assert seen(desk) == {"task": ("0.3", "0.2"), "daily": ("0", "0.2")}
        assert desk.admin.correct("c1", money("0.4"), reason="no, more", who="ann").before == money("0.3")
        with pytest.raises(CommandError, match="already"):
            desk.admin.correct("c1", money("0.4"), reason="again", who="ann")
        with pytest.raises(CommandError, match="flight"):
            desk.admin.correct("c2", money("0.4"), reason="too early", who="ann")
        with pytest.raises(CommandError, match="never"):
            desk.admin.correct("c9", money("0.4"), reason="who?", who="ann")

    def test_a_correction_reaches_budgets_that_began_later_and_none_that_was_reset(self, desk):
        hold(desk, "c1", "0.5")
        settle(desk, "c1", "0.5")
        late = rules(machine("1"), machine("5", name="late"))
        hold(desk, "c2", "0.1", late)
        desk.admin.reset_budget(machine("1"), "m", who="ann")

        desk.admin.correct("c1", money("0.2"), reason="billed less", who="ann")

        assert seen(desk, late) == {"task": ("0.2", "0.1"), "daily": ("0", "0.1"), "late": ("0.2", "0.1")}

    def test_a_void_may_turn_out_to_have_cost(self, desk):
        hold(desk, "c1", "0.5")
        void(desk, "c1")
        desk.admin.correct("c1", money("0.2"), reason="it was billed", who="ann")
        assert seen(desk)["daily"] == ("0.2", "0")

    def test_a_deferred_hold_stays_and_is_settled_by_later_usage(self, desk):
        hold(desk, "c1", "0.5")
        desk.ledger.defer("c1", timedelta(hours=24)).result(WAIT_S)
        desk.clock.pass_by(hours=23)
        desk.look_after()
        assert seen(desk)["task"] == ("0", "0.5")
        assert settle(desk, "c1", "0.2").first
        assert seen(desk)["task"] == ("0.2", "0")

    def test_a_deferred_hold_expires_and_late_usage_books_the_difference_once(self, desk):
        hold(desk, "c1", "0.5", tokens=100)
        desk.ledger.defer("c1", timedelta(hours=1)).result(WAIT_S)
        desk.clock.pass_by(hours=1)
        desk.look_after()
        assert seen(desk)["task"] == ("0.5", "0")

        late = settle(desk, "c1", "0.2", tokens=20)
        again = settle(desk, "c1", "0.1", tokens=10)

        assert (late.first, late.charge.amount, again.first) == (False, money("0.2"), False)
        assert seen(desk) == {"task": ("0.2", "0"), "daily": ("0.2", "0")}
        assert d.nonzero(desk.accounts()) == desk.explained()

    def test_only_an_open_hold_is_deferred(self, desk):
        with pytest.raises(LedgerError, match="c9"):
            desk.ledger.defer("c9", timedelta(hours=1)).result(WAIT_S)

    def test_e08_a_counter_decides_nothing_the_book_does(self, desk):
        for n in range(3):
            hold(desk, f"c{n}", "0.3")
            settle(desk, f"c{n}", "0.3")
        assert d.nonzero(desk.accounts()) == desk.explained()
        assert isinstance(hold(desk, "c9", "0.2"), Short)

    def test_a_window_that_begins_between_quarter_hours_counts_from_its_minute(self, desk):
        few = rules(machine("9", name="other"))
        for minute, amount in ((5, "0.3"), (9, "0.2"), (40, "0.1")):
            desk.clock.now = d.NOON.replace(hour=0, minute=minute)
            hold(desk, f"c{minute}", amount, few)
            settle(desk, f"c{minute}", amount)
        late = rules(machine("1", window=Window("day", at=7)), machine("9", name="other"))
        short = hold(desk, "c50", "0.8", late)
        assert [(s.budget.name, s.spent) for s in short.violations] == [("daily", money("0.3"))]

    @pytest.mark.parametrize("window", [Window("day"), Window("rolling", period_ms=HOUR_MS)])
    @pytest.mark.parametrize("opened", [True, False], ids=["used before", "new"])
    def test_a_clock_that_was_ahead_for_a_while_opens_no_limit(self, desk, window, opened):
        in_force = rules(machine("1", window=window), machine("9", name="other"))
        first = in_force if opened else rules(machine("9", name="other"))
        hold(desk, "c1", "1", first)
        settle(desk, "c1", "1", tokens=5)

        desk.clock.pass_by(days=1)
        assert isinstance(hold(desk, "c2", "10", in_force), Short)
        seen(desk, in_force)
        desk.clock.pass_by(days=-1)

        again = hold(desk, "c3", "1", in_force)
        if isinstance(again, Held):  # a row was written while the clock was ahead: ledger time has moved on for good
            assert again.at >= d.NOON.replace(day=22)
        else:
            assert [s.budget.name for s in again.violations] == ["daily"]
        assert isinstance(hold(desk, "c4", "1", in_force), Short)

    def test_a_correction_leaves_alone_what_a_filter_had_left_out(self, desk):
        hold(desk, "c1", "5", rules(machine("100")))
        settle(desk, "c1", "5")
        budgets = rules(machine("100"))
        desk.admin.budget_set(machine("10", name="cmd", window=d.LIFETIME, models=("claude-*",)), who="ann")
        hold(desk, "c2", "0.1", budgets, model="claude-opus-5", provider="anthropic")
        settle(desk, "c2", "0.1")
        desk.admin.budget_set(machine("10", name="cmd", window=d.LIFETIME), who="ann")

        desk.admin.correct("c1", money("0"), reason="billed nothing", who="ann")

        assert seen(desk, budgets)["cmd"] == ("0.1", "0")

    def test_a_correction_reaches_a_budget_whose_filter_was_narrowed_since(self, desk):
        budgets = rules(machine("100"))
        hold(desk, "c1", "1", budgets)
        settle(desk, "c1", "1")
        desk.admin.budget_set(machine("10", name="cmd", window=d.LIFETIME), who="ann")
        hold(desk, "c2", "0.1", budgets, model="claude-opus-5", provider="anthropic")
        desk.admin.budget_set(machine("10", name="cmd", window=d.LIFETIME, models=("claude-*",)), who="ann")

        desk.admin.correct("c1", money("3"), reason="billed more", who="ann")

        found = desk.ledger.look(call("x", "0").payers, "anthropic", "claude-opus-5", budgets).result(WAIT_S)
        assert {s.budget.name: s.spent for s in found}["cmd"] == money("3")

    def test_what_was_forgotten_by_a_reset_does_not_come_back_by_a_correction(self, desk):
        cap = machine("10", name="cmd", window=d.LIFETIME)
        budgets = rules(machine("100"))
        desk.admin.budget_set(cap, who="ann")
        hold(desk, "c1", "5", budgets)
        settle(desk, "c1", "5")
        desk.admin.reset_budget(cap, "m", who="ann")
        desk.admin.correct("c1", money("1"), reason="billed less", who="ann")
        desk.admin.budget_rm("cmd", who="ann")
        desk.admin.budget_set(cap, who="ann")
        assert seen(desk, budgets)["cmd"] == ("0", "0")
        assert isinstance(hold(desk, "c2", "10.1", budgets), Short)

    def test_what_was_missed_is_counted_as_it_was_corrected(self, desk):
        cap = machine("10", name="cmd", window=d.LIFETIME)
        budgets = rules(machine("100"))
        desk.admin.budget_set(cap, who="ann")
        hold(desk, "c0", "1", budgets)
        desk.admin.budget_rm("cmd", who="ann")
        for name in ("c1", "c2"):
            hold(desk, name, "3", budgets)
        settle(desk, "c1", "3")
        void(desk, "c2")
        desk.admin.correct("c1", money("2"), reason="billed less", who="ann")
        desk.admin.correct("c2", money("0.5"), reason="billed after all", who="ann")
        desk.admin.budget_set(cap, who="ann")
        assert seen(desk, budgets)["cmd"] == ("2.5", "1")

    def test_a_correction_reaches_the_tasks_window_of_now(self, desk):
        wide = rules(machine("100"))
        hold(desk, "c1", "1", wide)
        settle(desk, "c1", "1")
        desk.admin.task_new("t", limit=money("10"), window="day", who="ann")
        hold(desk, "c2", "0.1", wide)
        desk.admin.correct("c1", money("9"), reason="billed more", who="ann")
        assert seen(desk, wide)["task"] == ("9", "0.1")
        assert isinstance(hold(desk, "c3", "1", wide), Short)

    def test_late_usage_above_its_hold_is_marked(self, desk):
        hold(desk, "c1", "1", rules(machine("100")), tokens=100)
        desk.ledger.defer("c1", timedelta(hours=1)).result(WAIT_S)
        desk.clock.pass_by(hours=1)
        desk.look_after()
        assert settle(desk, "c1", "3", tokens=20).over_hold
        assert settle(desk, "c1", "3", tokens=20).over_hold
        assert seen(desk, rules(machine("100")))["daily"] == ("3", "0")

    def test_a_limit_set_anew_is_the_limit_whatever_was_raised(self, desk):
        budget = machine("1")
        hold(desk, "c1", "0.1", rules(budget))
        desk.admin.raise_budget(budget, "m", money("5"), who="ann")
        assert isinstance(hold(desk, "c2", "2", rules(machine("0.5"))), Short)
        hold(desk, "c3", "0.1", rules(machine("1")))
        assert isinstance(hold(desk, "c4", "0.9", rules(machine("1"))), Short)

    def test_raises_are_taken_back(self, desk):
        for window in (d.DAY, Window("rolling", period_ms=HOUR_MS)):
            budget = machine("1", window=window)
            hold(desk, f"c-{window.kind}", "0.1", rules(budget))
            desk.admin.raise_budget(budget, "m", money("5"), who="ann")
            assert desk.admin.undo_raises(budget, "m", who="ann").limit == money("1")
            assert isinstance(hold(desk, f"d-{window.kind}", "1", rules(budget)), Short)
            with pytest.raises(CommandError, match="not raised"):
                desk.admin.undo_raises(budget, "m", who="ann")

    def test_a_configuration_does_not_take_over_a_commands_budget(self, desk):
        desk.ledger.define(rules(machine("9", name="other")), "one.yaml").result(WAIT_S)
        desk.admin.budget_set(machine("1", name="cap"), who="ann")
        with pytest.raises(LedgerError, match='"cap"'):
            desk.ledger.define(rules(machine("100", name="cap")), "one.yaml").result(WAIT_S)
        assert [s.budget.limit for s in desk.admin.budgets() if s.budget.name == "cap"] == [money("1")]

    @pytest.mark.parametrize("reason", ["", " ", "\x1b[31mred", "a\x00", "x" * 501])
    def test_a_reason_that_no_terminal_should_be_told_is_refused(self, desk, reason):
        hold(desk, "c1", "0.1")
        settle(desk, "c1", "0.1")
        with pytest.raises(CommandError, match="1 to 500 printable characters are"):
            desk.admin.correct("c1", money("0.2"), reason=reason, who="ann")

    def test_amounts_too_large_to_add_up_are_refused(self, desk):
        desk.admin.raise_budget(machine("1"), "m", money("900000000"), who="ann")
        with pytest.raises(CommandError, match="too much"):
            desk.admin.raise_budget(machine("1"), "m", money("900000000"), who="ann")
        hold(desk, "c1", "0.1")
        settle(desk, "c1", "0.1")
        with pytest.raises(CommandError, match="too much"):
            desk.admin.correct("c1", money("9000000000"), reason="no", who="ann")
        with pytest.raises(CommandError, match="too much"):
            desk.admin.task_new("t", limit=money("1000000000.000000001"), window="day", who="ann")
        with pytest.raises(CommandError, match="too much"):
            desk.admin.budget_set(machine("1000000000.000000001", name="cap"), who="ann")
        assert desk.admin.task_new("t", limit=money("1000000000"), window="day", who="ann").limit == money("1000000000")

"""What "allow once" leaves to other calls: nothing. A limit stays raised only as far as its account is above it.

Each test has a task of $1. What a person has allowed goes back as room comes free, however that comes free.
"""

from dataclasses import replace
from datetime import timedelta

import pytest

from lockpin_core.call import Quote, Void
from lockpin_core.ledger.protocol import Held, Short
from lockpin_core.windows import Window
from tests.ledger import desk as d
from tests.ledger.contract import hold, settle, void
from tests.ledger.desk import WAIT_S, call, charge, machine, money, rules
from tests.ledger.questions_contract import TASK, allowed, answer, once, own, spend
from tests.ledger.questions_contract import ask as ask_anew

HOUR = Window("rolling", period_ms=3_600_000)
ROLLING = rules(machine("100"), own=replace(TASK.task_default, window=HOUR))


def is_held(desk, call_id, dollars, in_force=TASK):
    """Say whether a call goes that nobody allowed."""
    return isinstance(hold(desk, call_id, dollars, in_force), Held)


def allow(desk, dollars="0.5", call_id="c1", in_force=TASK, **more):
    assert isinstance(allowed(desk, once(desk, call_id, dollars, in_force, **more), call_id, dollars, in_force), Held)


class AllowancesContract:
    def test_a_hold_that_becomes_smaller_gives_back_what_it_was_allowed(self, desk):
        spend(desk, "0.9")
        allow(desk, short="0.4")
        assert own(desk) == ("0.9", "0.5", "1.4")

        desk.ledger.shrink("c1", money("0.2"), 10).result(WAIT_S)

        assert own(desk) == ("0.9", "0.2", "1.1")
        desk.ledger.shrink("c1", money("0.05"), 10).result(WAIT_S)
        assert own(desk) == ("0.9", "0.05", "1")
        assert not is_held(desk, "c2", "0.050000001")
        assert is_held(desk, "c3", "0.05")
        settle(desk, "c1", "0.05")
        settle(desk, "c3", "0.05")
        assert own(desk) == ("1", "0", "1")

    @pytest.mark.parametrize("keep", [True, False])
    def test_a_next_attempt_that_fits_anyway_gives_it_back(self, desk, keep):
        spend(desk, "0.9")
        allow(desk, short="0.4")

        following = call("c2", "0.1")
        _, held = desk.ledger.replace("c1", Void("refused"), following, TASK, keep=keep).result(WAIT_S)

        assert isinstance(held, Held)
        assert own(desk) == ("0.9", "0.1", "1")
        assert not is_held(desk, "c3", "0.000000001")
        settle(desk, "c2", "0.1")
        assert own(desk) == ("1", "0", "1")

    @pytest.mark.parametrize("keep", [True, False])
    def test_a_next_attempt_keeps_what_it_needs_of_it(self, desk, keep):
        spend(desk, "0.9")
        allow(desk, short="0.4")

        following = call("c2", "0.3")
        resolved, held = desk.ledger.replace("c1", Void("refused"), following, TASK, keep=keep).result(WAIT_S)

        assert (resolved.charge, type(held)) == (None, Held)
        assert held.standings[0].limit == money("1.2")
        assert own(desk) == ("0.9", "0.3", "1.2")
        settle(desk, "c2", "0.05")
        assert own(desk) == ("0.95", "0", "1")

    def test_an_attempt_after_the_next_needs_no_more_than_that(self, desk):
        spend(desk, "0.9")
        allow(desk, short="0.4")
        for number, dollars in ((2, "0.3"), (3, "0.25")):
            following = call(f"c{number}", dollars)
            _, held = desk.ledger.replace(f"c{number - 1}", Void("refused"), following, TASK, keep=True).result(WAIT_S)
            assert isinstance(held, Held)
        assert own(desk) == ("0.9", "0.25", "1.15")

        _, short = desk.ledger.replace("c3", Void("refused"), call("c4", "0.26"), TASK, keep=True).result(WAIT_S)

        assert isinstance(short, Short)

    def test_another_call_that_is_sent_again_gives_room_back_first(self, desk):
        hold(desk, "other", "0.5", TASK)
        allow(desk, "0.6", short="0.1")
        assert own(desk) == ("0", "1.1", "1.1")

        kept, short = desk.ledger.replace("other", Void("refused"), call("o2", "0.5"), TASK, keep=True).result(WAIT_S)
        assert (kept, type(short)) == (None, Short)
        assert own(desk) == ("0", "1.1", "1.1")
        resolved, held = desk.ledger.replace("other", charge("0.1"), call("o3", "0.3"), TASK, keep=True).result(WAIT_S)

        assert (resolved.charge.amount, type(held)) == (money("0.1"), Held)
        assert own(desk) == ("0.1", "0.9", "1")

    def test_it_is_raised_by_no_more_than_its_price_where_room_must_stay_free(self, desk):
        spend(desk, "1")
        question = once(desk, "c1", "0.5", short="0.8")
        asked = replace(call("c1", "0.5"), reserve=Quote(money("0.3"), 10, d.CEILING))

        held = desk.ledger.hold(asked, TASK, allowed=question.id).result(WAIT_S)

        assert isinstance(held, Held)
        assert own(desk) == ("1", "0.5", "1.5")
        assert not is_held(desk, "c2", "0.000000001")
        settle(desk, "c1", "0.05")
        assert own(desk) == ("1.05", "0", "1.05")

    def test_a_next_attempt_that_must_leave_room_is_judged_without_it_too(self, desk):
        spend(desk, "1")
        allow(desk, short="0.5")
        following = replace(call("c2", "0.4"), reserve=Quote(money("0.3"), 10, d.CEILING))

        _, held = desk.ledger.replace("c1", Void("refused"), following, TASK, keep=False).result(WAIT_S)

        assert isinstance(held, Held)
        assert own(desk) == ("1", "0.4", "1.4")

    @pytest.mark.parametrize("first", ["other", "c1"])
    def test_another_hold_that_ends_below_its_amount_gives_it_back_before_or_after_the_call(self, desk, first):
        hold(desk, "other", "0.5", TASK)
        allow(desk, "0.6", short="0.1")
        costs = {"other": "0.05", "c1": "0.6"}

        for call_id in (first, *(costs.keys() - {first})):
            settle(desk, call_id, costs[call_id])

        assert own(desk) == ("0.65", "0", "1")
        assert not is_held(desk, "c2", "0.350000001")
        assert is_held(desk, "c3", "0.35")

    @pytest.mark.parametrize("end", ["void", "shrink", "cancel"])
    def test_whatever_frees_another_hold_gives_it_back(self, desk, end):
        hold(desk, "other", "0.5", TASK)
        allow(desk, "0.6", short="0.1")
        if end == "void":
            void(desk, "other")
        elif end == "cancel":
            desk.ledger.cancel("other")
        else:
            desk.ledger.shrink("other", money("0"), 0).result(WAIT_S)
        assert own(desk) == ("0", "0.6", "1")
        assert not is_held(desk, "c2", "0.400000001")

    def test_a_part_that_comes_free_gives_back_as_much(self, desk):
        hold(desk, "other", "0.5", TASK)
        allow(desk, "0.75", short="0.25")
        settle(desk, "other", "0.4")
        assert own(desk) == ("0.4", "0.75", "1.15")
        settle(desk, "c1", "0.7")
        assert own(desk) == ("1.1", "0", "1.1")

    def test_one_of_two_that_were_allowed_gives_back_what_the_account_does_not_need(self, desk):
        spend(desk, "0.75")
        allow(desk)
        allow(desk, call_id="c2", digest=b"2" * 32)
        assert own(desk) == ("0.75", "1", "1.75")

        void(desk, "c1")

        assert own(desk) == ("0.75", "0.5", "1.25")
        settle(desk, "c2", "0.2")
        assert own(desk) == ("0.95", "0", "1")

    def test_a_reset_gives_it_back(self, desk):
        spend(desk, "0.75")
        allow(desk)
        desk.admin.reset_budget(TASK.task_default, "t", who="ann")
        assert own(desk) == ("0", "0.5", "1")
        assert not is_held(desk, "c2", "0.500000001")

    def test_a_correction_to_less_gives_it_back(self, desk):
        spend(desk, "0.75")
        allow(desk)
        desk.admin.correct("before", money("0.65"), reason="told", who="ann")
        assert own(desk) == ("0.65", "0.5", "1.15")
        settle(desk, "c1", "0.5")
        desk.admin.correct("c1", money("0.1"), reason="told", who="ann")
        assert own(desk) == ("0.75", "0", "1")

    def test_usage_that_comes_late_gives_it_back(self, desk):
        spend(desk, "0.75")
        allow(desk)
        desk.ledger.defer("c1", timedelta(hours=1)).result(WAIT_S)
        desk.clock.pass_by(hours=1)
        desk.look_after()
        assert own(desk) == ("1.25", "0", "1.25")
        settle(desk, "c1", "0.35")
        assert own(desk) == ("1.1", "0", "1.1")

    def test_spend_that_leaves_a_window_gives_it_back(self, desk):
        spend(desk, "0.75", in_force=ROLLING)
        desk.clock.pass_by(minutes=30)
        allow(desk, in_force=ROLLING)
        assert own(desk, ROLLING) == ("0.75", "0.5", "1.25")

        desk.clock.pass_by(minutes=32)

        assert own(desk, ROLLING) == ("0", "0.5", "1")
        assert not is_held(desk, "c2", "0.500000001", ROLLING)
        assert is_held(desk, "c3", "0.5", ROLLING)

    def test_what_leaves_with_the_spend_that_it_was_for_is_counted_once(self, desk):
        spend(desk, "0.75", in_force=ROLLING)
        allow(desk, in_force=ROLLING)
        settle(desk, "c1", "0.5")
        desk.clock.pass_by(minutes=30)
        allow(desk, "0.3", "c2", ROLLING, short="0.3", digest=b"2" * 32)
        assert own(desk, ROLLING) == ("1.25", "0.3", "1.55")
        desk.clock.pass_by(minutes=32)
        assert own(desk, ROLLING) == ("0", "0.3", "1")

    def test_a_raise_by_a_person_is_room_for_any_call(self, desk):
        spend(desk, "0.75")
        allow(desk)
        desk.admin.raise_budget(TASK.task_default, "t", money("0.1"), who="ann")
        assert own(desk) == ("0.75", "0.5", "1.35")
        assert is_held(desk, "c2", "0.1")
        settle(desk, "c1", "0.1")
        assert own(desk) == ("0.85", "0.1", "1.1")

    def test_where_another_call_cost_more_than_it_held_nobody_takes_what_is_allowed(self, desk):
        hold(desk, "dear", "0.25", TASK)
        spend(desk, "0.5")
        allow(desk, short="0.25")
        settle(desk, "dear", "0.45")
        assert own(desk) == ("0.95", "0.5", "1.25")
        settle(desk, "c1", "0.1")
        assert own(desk) == ("1.05", "0", "1")
        assert ask_anew(desk, "c3") is not None
        answer(desk, ask_anew(desk, "c3"), "refuse")

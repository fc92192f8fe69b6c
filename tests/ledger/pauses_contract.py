"""What every ledger must do of a breaker, of stopped tasks, and of a call that must leave room for others."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lockpin_core.call import Void
from lockpin_core.errors import CommandError
from lockpin_core.ledger.pauses import BREAKER, KEY, LOOP, TASK, BreakerRule, Subject
from lockpin_core.ledger.protocol import Closed, Held, Paused, Rules, Wait
from tests.ledger import desk as d
from tests.ledger.contract import hold, settle
from tests.ledger.desk import OWN, WAIT_S, call, charge, machine, money

SECOND = timedelta(seconds=1)
MICRO = timedelta(microseconds=1)
BY_TASK = BreakerRule(money("1"), 60 * SECOND, 300 * SECOND, (TASK,))
BY_KEY = BreakerRule(money("1"), 60 * SECOND, 300 * SECOND, (KEY,))
BY_BOTH = BreakerRule(money("1"), 60 * SECOND, 300 * SECOND, (TASK, KEY))
SHORT_COOLDOWN = BreakerRule(money("1"), 60 * SECOND, 10 * SECOND, (TASK,))


def breaking(rule=BY_TASK, *budgets):
    return Rules((machine("1000"), *budgets), OWN, rule)


FAST = breaking()


def spend(desk, call_id, dollars, in_force=FAST, **more):
    """Hold and charge a call; give whom that made pause, as (scope, subject, user, charged)."""
    held = hold(desk, call_id, dollars, in_force, **more)
    assert isinstance(held, Held), held
    return told(settle(desk, call_id, dollars))


def told(resolved):
    return [(one.scope, one.subject, one.user, one.charged.exact()) for one in resolved.tripped]


def paused(desk, **payers):
    found = desk.ledger.paused(call("x", "0", **payers).payers).result(WAIT_S)
    return None if found is None else (found.kind, found.scope, found.subject, found.until)


def trips(desk):
    desk.look_after()
    return [row.at for row in desk.rows("event") if row.code == "breaker_tripped"]


T = (TASK, "t", None)


class PausesContract:
    def test_one_that_was_charged_just_the_amount_goes_on(self, desk):
        assert spend(desk, "c1", "0.4") == []
        assert spend(desk, "c2", "0.6") == []

        assert paused(desk) is None
        assert isinstance(hold(desk, "c3", "5", FAST), Held)

    def test_one_that_was_charged_more_pauses_for_the_cooldown(self, desk):
        spend(desk, "c1", "0.4")

        assert spend(desk, "c2", "0.600000001") == [(*T, "1.000000001")]

        until = d.NOON + timedelta(minutes=5)
        found = hold(desk, "c3", "0.1", FAST)
        assert found == Paused(
            d.NOON, BREAKER, TASK, "t", until, money("1.000000001"), money("1"), timedelta(minutes=1), None
        )
        assert paused(desk) == (BREAKER, TASK, "t", until)
        assert trips(desk) and len(trips(desk)) == 1

    def test_a_pause_ends_with_its_last_instant(self, desk):
        spend(desk, "c1", "1.1")
        desk.clock.now += 300 * SECOND - MICRO
        assert isinstance(hold(desk, "c2", "0.1", FAST), Paused)

        desk.clock.now += MICRO

        assert isinstance(hold(desk, "c2", "0.1", FAST), Held)
        assert paused(desk) is None

    def test_a_call_that_costs_nothing_pauses_as_well(self, desk):
        spend(desk, "c1", "1.1")

        assert isinstance(hold(desk, "c2", "0", FAST), Paused)

    def test_others_are_untouched(self, desk):
        spend(desk, "c1", "1.1")

        assert isinstance(hold(desk, "c2", "0.1", FAST, task="other"), Held)
        assert paused(desk, task="other") is None

    def test_a_charge_leaves_the_window_when_it_is_as_old_as_that(self, desk):
        spend(desk, "c1", "0.9")
        desk.clock.now += 60 * SECOND

        assert spend(desk, "c2", "0.2") == []

    def test_a_charge_counts_until_it_leaves_the_window(self, desk):
        spend(desk, "c1", "0.9")
        desk.clock.now += 60 * SECOND - MICRO

        assert spend(desk, "c2", "0.2") == [(*T, "1.1")]

    def test_the_instant_of_the_charge_counts_and_not_that_of_the_hold(self, desk):
        for call_id in ("c1", "c2"):
            hold(desk, call_id, "0.6", FAST)
        desk.clock.pass_by(hours=3)
        assert told(settle(desk, "c1", "0.6")) == []
        desk.clock.now += 59 * SECOND

        assert told(settle(desk, "c2", "0.6")) == [(*T, "1.2")]

    def test_only_what_was_charged_counts(self, desk):
        hold(desk, "c1", "50", FAST)
        hold(desk, "c2", "50", FAST)
        assert told(settle(desk, "c1", "0.5")) == []
        assert desk.ledger.void("c2", Void("not_sent")).result(WAIT_S).tripped == ()

        assert paused(desk) is None

    def test_calls_in_flight_go_on_and_what_they_cost_trips_nothing(self, desk):
        for call_id in ("c2", "c3"):
            hold(desk, call_id, "3", FAST)
        spend(desk, "c1", "1.1")

        assert told(settle(desk, "c2", "3")) == []
        assert told(settle(desk, "c3", "3")) == []

        assert len(trips(desk)) == 1
        assert paused(desk)[3] == d.NOON + timedelta(minutes=5)

    def test_what_was_charged_before_a_trip_and_by_it_counts_no_more(self, desk):
        in_force = breaking(SHORT_COOLDOWN)
        spend(desk, "c1", "0.5", in_force)
        assert spend(desk, "c2", "0.7", in_force) == [(*T, "1.2")]
        desk.clock.now += 10 * SECOND

        assert spend(desk, "c3", "1", in_force) == []
        assert spend(desk, "c4", "0.01", in_force) == [(*T, "1.01")]

    def test_what_is_charged_while_calls_pause_counts_afterwards(self, desk):
        in_force = breaking(SHORT_COOLDOWN)
        hold(desk, "c2", "3", in_force)
        spend(desk, "c1", "1.1", in_force)
        settle(desk, "c2", "3")  # at the same instant
        desk.clock.now += 10 * SECOND

        assert spend(desk, "c3", "0.1", in_force) == [(*T, "3.1")]

    def test_a_key_pauses_with_all_its_tasks(self, desk):
        in_force = breaking(BY_KEY)
        spend(desk, "c1", "0.6", in_force, key="k1", user="ann")

        assert spend(desk, "c2", "0.6", in_force, task="b", key="k1", user="ann") == [(KEY, "k1", None, "1.2")]

        assert isinstance(hold(desk, "c3", "0.1", in_force, task="c", key="k1", user="ann"), Paused)
        assert isinstance(hold(desk, "c4", "0.1", in_force, key="k2", user="ann"), Held)
        assert isinstance(hold(desk, "c5", "0.1", in_force), Held)

    def test_a_call_without_a_key_trips_no_breaker_of_keys(self, desk):
        assert spend(desk, "c1", "5", breaking(BY_KEY)) == []

    def test_a_task_and_a_key_may_trip_at_once(self, desk):
        whose = {"key": "k1", "user": "ann"}

        assert spend(desk, "c1", "1.5", breaking(BY_BOTH), **whose) == [
            (TASK, "t", "ann", "1.5"),
            (KEY, "k1", None, "1.5"),
        ]

        assert len(trips(desk)) == 2

    def test_of_two_pauses_the_one_that_ends_last_is_told(self, desk):
        in_force, whose = breaking(BY_BOTH), {"key": "k1", "user": "ann"}
        spend(desk, "c1", "0.6", in_force, **whose)
        spend(desk, "c2", "0.6", in_force, task="b", **whose)  # the key, until 12:05
        hold(desk, "c3", "0.1", in_force, task="b", key="k2", user="ann")
        desk.clock.now += SECOND
        assert told(settle(desk, "c3", "2")) == [(TASK, "b", "ann", "2.6"), (KEY, "k2", None, "2")]

        assert paused(desk, task="b", **whose) == (BREAKER, TASK, "b", d.NOON + 301 * SECOND)
        assert paused(desk, **whose) == (BREAKER, KEY, "k1", d.NOON + 300 * SECOND)

    def test_a_task_of_the_same_name_is_each_users_own(self, desk):
        assert spend(desk, "c1", "0.6", user="ann", key="k1") == []
        assert spend(desk, "c2", "0.6", user="ben", key="k2") == []
        assert spend(desk, "c3", "0.6", user="ann", key="k1") == [(TASK, "t", "ann", "1.2")]

        assert isinstance(hold(desk, "c4", "0.1", FAST, user="ann", key="k1"), Paused)
        assert isinstance(hold(desk, "c5", "0.1", FAST, user="ben", key="k2"), Held)
        assert isinstance(hold(desk, "c6", "0.1", FAST), Held)

    def test_a_hold_that_expires_is_a_charge(self, desk):
        hold(desk, "c1", "1.5", FAST)
        desk.ledger.defer("c1", timedelta(hours=1)).result(WAIT_S)
        desk.clock.pass_by(hours=1)
        desk.look_after()

        assert paused(desk) == (BREAKER, TASK, "t", d.NOON + timedelta(hours=1, minutes=5))

    def test_what_a_stopped_proxy_leaves_is_a_charge(self, desk):
        hold(desk, "c1", "1.5", FAST)
        desk.crash()

        assert paused(desk) == (BREAKER, TASK, "t", d.NOON + timedelta(minutes=5))

    def test_who_is_held_already_keeps_the_hold(self, desk):
        held = hold(desk, "c2", "0.1", FAST)
        spend(desk, "c1", "1.1")

        again = hold(desk, "c2", "0.1", FAST)

        assert isinstance(again, Held) and again.at == held.at
        assert told(settle(desk, "c2", "0.1")) == []

    def test_who_waits_for_room_is_told_of_the_pause(self, desk):
        tight = Rules((machine("2"),), OWN, BY_TASK)
        hold(desk, "c1", "1.5", tight)
        waiting = desk.ledger.hold(
            call(
                "c2",
                "1",
            ),
            tight,
            None,
            Wait(timedelta(seconds=30)),
        )
        desk.look_after()
        assert not waiting.done()

        assert told(settle(desk, "c1", "1.1")) == [(*T, "1.1")]
        desk.look_after()

        assert isinstance(waiting.result(WAIT_S), Paused)

    def test_a_closed_task_is_closed_also_while_it_pauses(self, desk):
        spend(desk, "c1", "1.1")
        desk.admin.task_close("t", who="ada")

        assert isinstance(hold(desk, "c2", "0.1", FAST), Closed)

    def test_a_call_is_barred_while_its_task_is_closed_or_pauses_and_nobody_elses_is(self, desk):
        payers, other = call("x", "0").payers, call("x", "0", task="other").payers
        assert desk.ledger.barred(payers).result(WAIT_S) is None

        spend(desk, "c1", "1.1")
        found = desk.ledger.barred(payers).result(WAIT_S)
        assert (found.kind, found.scope, found.subject) == (BREAKER, TASK, "t")
        assert desk.ledger.barred(other).result(WAIT_S) is None

        desk.admin.task_close("t", who="ada")
        assert desk.ledger.barred(payers).result(WAIT_S) == Closed(desk.clock.now, "t")
        assert desk.ledger.barred(call("x", "0", user="bob").payers).result(WAIT_S) is None

    def test_a_charge_is_a_charge_once(self, desk):
        spend(desk, "c1", "0.6")

        again = desk.ledger.settle("c1", charge("0.6")).result(WAIT_S)

        assert (again.first, again.tripped, paused(desk)) == (False, (), None)

    def test_a_correction_trips_nothing(self, desk):
        spend(desk, "c1", "0.6")
        desk.admin.correct("c1", money("5"), reason="invoice", who="ada")

        assert spend(desk, "c2", "0.1") == []

    def test_a_clock_that_is_set_back_moves_no_pause(self, desk):
        desk.clock.pass_by(minutes=2)
        spend(desk, "c1", "1.1")
        desk.clock.pass_by(hours=-5)

        found = hold(desk, "c2", "0.1", FAST)

        assert (found.at, found.until) == (d.NOON + timedelta(minutes=2), d.NOON + timedelta(minutes=7))

    def test_a_reset_ends_a_pause_also_where_the_clock_was_set_back(self, desk):
        desk.clock.pass_by(hours=6)
        spend(desk, "c1", "1.1")
        desk.clock.pass_by(hours=-6)
        assert isinstance(hold(desk, "c2", "0.1", FAST), Paused)

        assert desk.admin.breaker_reset(who="ada") == [Subject(TASK, "t")]

        assert spend(desk, "c3", "1") == []

    def test_without_a_breaker_nobody_pauses(self, desk):
        assert spend(desk, "c1", "500", breaking(None)) == []
        assert isinstance(hold(desk, "c2", "1", breaking(None)), Held)

    def test_a_reset_lets_calls_go_on_and_counts_anew(self, desk):
        spend(desk, "c1", "1.1")

        assert desk.admin.breaker_reset(TASK, "t", who="ada") == [Subject(TASK, "t")]

        assert spend(desk, "c2", "1") == []
        assert spend(desk, "c3", "0.01") == [(*T, "1.01")]

    def test_a_reset_without_a_name_is_for_everybody_that_pauses(self, desk):
        spend(desk, "c1", "1.1")
        spend(desk, "c2", "1.1", task="b", user="ann", key="k1")
        spend(desk, "c3", "0.1", task="c")

        assert desk.admin.breaker_reset(who="ada") == [Subject(TASK, "b", "ann"), Subject(TASK, "t")]

        assert paused(desk) is None is paused(desk, task="b", user="ann", key="k1")

    def test_who_does_not_pause_cannot_be_reset(self, desk):
        spend(desk, "c1", "1.1")
        for named in ((TASK, "b"), (KEY, "t")):
            with pytest.raises(CommandError, match="do not pause because of the breaker"):
                desk.admin.breaker_reset(*named, who="ada")
        desk.clock.pass_by(minutes=5)
        with pytest.raises(CommandError, match="nobody's calls pause"):
            desk.admin.breaker_reset(who="ada")

    def test_a_commands_breaker_wins_until_it_is_cleared(self, desk):
        hold(desk, "c0", "0", FAST)
        wide = replace(BY_TASK, usd=money("2"))

        assert desk.admin.breaker_set(wide, who="ada") == BY_TASK
        assert spend(desk, "c1", "1.5") == []
        assert spend(desk, "c2", "0.6", breaking(BY_BOTH)) == [(*T, "2.1")]
        assert desk.admin.breaker_clear(who="ada") == BY_BOTH
        assert spend(desk, "c3", "1.5", breaking(BY_BOTH), task="b") == [(TASK, "b", None, "1.5")]

        with pytest.raises(CommandError, match="no breaker was set by command"):
            desk.admin.breaker_clear(who="ada")

    def test_a_breaker_by_command_needs_none_of_the_configuration(self, desk):
        assert desk.admin.breaker_set(BY_TASK, who="ada") is None

        assert spend(desk, "c1", "1.5", breaking(None)) == [(*T, "1.5")]

        assert desk.admin.breaker_clear(who="ada") is None
        assert spend(desk, "c2", "1.5", breaking(None), task="b") == []

    def test_a_change_of_the_rule_judges_what_was_charged_before_it(self, desk):
        spend(desk, "c1", "0.9")
        desk.clock.now += 90 * SECOND
        desk.admin.breaker_set(replace(BY_TASK, window=120 * SECOND), who="ada")

        assert spend(desk, "c2", "0.2") == [(*T, "1.1")]

    def test_too_much_is_no_breaker(self, desk):
        with pytest.raises(CommandError, match="is too much"):
            desk.admin.breaker_set(replace(BY_TASK, usd=money("2000000000")), who="ada")

    def test_a_stopped_task_pauses_until_somebody_lets_it_go_on(self, desk):
        payers = call("x", "0").payers
        assert desk.ledger.stop_task(payers, who="loop", data={"repeats": 20}).result(WAIT_S)
        assert not desk.ledger.stop_task(payers, who="loop", data={}).result(WAIT_S)
        desk.clock.pass_by(days=40)

        assert hold(desk, "c1", "0.1", FAST) == Paused(desk.clock.now, LOOP, TASK, "t", None)
        assert isinstance(hold(desk, "c2", "0.1", FAST, user="ann"), Held)
        desk.admin.task_resume("t", who="ada")

        assert isinstance(hold(desk, "c1", "0.1", FAST), Held)
        with pytest.raises(CommandError, match='the calls of task "t" were not stopped'):
            desk.admin.task_resume("t", who="ada")

    def test_a_stopped_task_whose_breaker_has_tripped_too_is_told_of_that_first(self, desk):
        spend(desk, "c1", "1.1")
        desk.ledger.stop_task(call("x", "0").payers, who="loop", data={}).result(WAIT_S)
        assert paused(desk)[0] == BREAKER

        desk.clock.pass_by(minutes=5)

        assert paused(desk) == (LOOP, TASK, "t", None)
        with pytest.raises(CommandError):
            desk.admin.breaker_reset(who="ada")

    def test_a_task_is_resumed_for_everybody(self, desk):
        for user in (None, "ann"):
            desk.ledger.stop_task(call("x", "0", user=user).payers, who="loop", data={}).result(WAIT_S)

        desk.admin.task_resume("t", who="ada")

        assert paused(desk) is None is paused(desk, user="ann")

    def test_who_waits_is_let_know_that_the_task_was_stopped(self, desk):
        tight = Rules((machine("1"),), OWN)
        hold(desk, "c1", "1", tight)
        waiting = desk.ledger.hold(call("c2", "1"), tight, None, Wait(timedelta(seconds=30)))
        desk.look_after()

        desk.ledger.stop_task(call("x", "0").payers, who="loop", data={}).result(WAIT_S)
        desk.look_after()

        assert waiting.result(WAIT_S).kind == LOOP

    def test_a_failed_attempt_that_is_charged_may_trip_it_and_the_next_one_is_not_held(self, desk):
        hold(desk, "c1", "1.5", FAST)

        resolved, answer = desk.ledger.replace("c1", charge("1.2"), call("c2", "1.5"), FAST, keep=False).result(WAIT_S)

        assert told(resolved) == [(*T, "1.2")]
        assert isinstance(answer, Paused)
        assert isinstance(hold(desk, "c3", "0.1", FAST), Paused)

    def test_a_fallback_of_a_task_that_pauses_leaves_the_hold_as_it_is(self, desk):
        hold(desk, "c1", "0.3", FAST)
        spend(desk, "c2", "1.2")

        resolved, answer = desk.ledger.replace("c1", charge("0.1"), call("c3", "0.3"), FAST, keep=True).result(WAIT_S)

        assert resolved is None
        assert isinstance(answer, Paused)
        assert told(settle(desk, "c1", "0.1")) == []

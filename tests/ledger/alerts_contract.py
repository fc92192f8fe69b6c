"""What every ledger must tell once: alert steps that spend has passed, and limits that a call did not fit."""

from datetime import timedelta

from lockpin_core.budgets import Budget
from lockpin_core.ledger.alerts import PASSED, REFUSED
from lockpin_core.ledger.protocol import Held, Short
from lockpin_core.windows import Window
from tests.ledger.contract import HOUR_MS, hold, settle
from tests.ledger.desk import WAIT_S, charge, machine, money, note, refusal, rules

STEPS = rules(machine("1", alert_at=("0.5", "0.8")))


def told(desk, code):
    """List when events of this code were written."""
    return [row.at for row in desk.rows("event") if row.code == code]


def spend(desk, call_id, dollars, in_force=STEPS, **more):
    assert isinstance(hold(desk, call_id, dollars, in_force, **more), Held)
    return [(each.budget, each.subject, each.step) for each in settle(desk, call_id, dollars).crossed]


def refuse(desk, call_id, dollars, in_force=STEPS):
    short = hold(desk, call_id, dollars, in_force)
    assert isinstance(short, Short)
    accounts = tuple(standing.account for standing in short.violations)
    desk.ledger.refuse(note(call_id, accounts=accounts), refusal())
    desk.look_after()  # it is written before time goes on


class AlertsContract:
    def test_each_step_is_an_event_once(self, desk):
        assert spend(desk, "c1", "0.49") == []
        assert spend(desk, "c2", "0.01") == [("daily", "m", "0.5")]
        assert spend(desk, "c3", "0.1") == []
        assert len(told(desk, PASSED)) == 1

        assert spend(desk, "c4", "0.4") == [("daily", "m", "0.8")]

        assert len(told(desk, PASSED)) == 2

    def test_one_charge_may_pass_steps_of_several_accounts(self, desk):
        many = rules(machine("1", alert_at=("0.5", "0.8")), machine("2", name="wide", alert_at=("0.4", "0.9")))

        assert spend(desk, "c1", "0.8", many) == [("daily", "m", "0.5"), ("daily", "m", "0.8"), ("wide", "m", "0.4")]
        assert len(told(desk, PASSED)) == 3

    def test_each_subject_and_each_window_has_its_steps(self, desk):
        assert spend(desk, "c1", "0.6") == [("daily", "m", "0.5")]
        assert spend(desk, "c2", "0.6", host="n") == [("daily", "n", "0.5")]
        desk.clock.pass_by(days=1)

        assert spend(desk, "c3", "0.6") == [("daily", "m", "0.5")]

    def test_a_step_of_a_rolling_window_is_armed_again_when_spend_has_left(self, desk):
        hourly = rules(Budget("hour", "machine", Window("rolling", period_ms=HOUR_MS), money("1"), alert_at=("0.5",)))

        assert spend(desk, "c1", "0.6", hourly) == [("hour", "m", "0.5")]
        assert spend(desk, "c2", "0.1", hourly) == []
        desk.clock.pass_by(hours=2)
        assert spend(desk, "c3", "0.2", hourly) == []
        assert spend(desk, "c4", "0.3", hourly) == [("hour", "m", "0.5")]

        assert len(told(desk, PASSED)) == 2

    def test_a_correction_passes_steps_too(self, desk):
        spend(desk, "c1", "0.1")

        desk.admin.correct("c1", money("0.9"), reason="invoice", who="ada")
        assert len(told(desk, PASSED)) == 2
        desk.admin.correct("c1", money("0.1"), reason="invoice", who="ada")
        desk.admin.correct("c1", money("0.9"), reason="invoice", who="ada")

        assert len(told(desk, PASSED)) == 2

    def test_usage_that_comes_late_passes_steps_too(self, desk):
        hold(desk, "c1", "0.4", STEPS)
        desk.ledger.defer("c1", timedelta(hours=1)).result(WAIT_S)
        desk.clock.pass_by(hours=2)
        desk.look_after()

        late = desk.ledger.settle("c1", charge("0.6")).result(WAIT_S)

        assert [each.step for each in late.crossed] == ["0.5"]
        assert len(told(desk, PASSED)) == 1

    def test_a_limit_that_calls_did_not_fit_is_told_once_a_window(self, desk):
        for number in range(3):
            refuse(desk, f"c{number}", "1.1")
        assert len(told(desk, REFUSED)) == 1
        assert len(desk.rows("refusal")) == 3
        desk.clock.pass_by(days=1)

        refuse(desk, "c9", "1.1")

        assert len(told(desk, REFUSED)) == 2

    def test_a_rolling_limit_that_calls_did_not_fit_is_told_once_a_period(self, desk):
        hourly = rules(Budget("hour", "machine", Window("rolling", period_ms=HOUR_MS), money("1"), enforce=True))
        for number, minutes in enumerate((0, 59, 1)):
            desk.clock.pass_by(minutes=minutes)
            refuse(desk, f"c{number}", "1.1", hourly)

        assert len(told(desk, REFUSED)) == 2

    def test_every_limit_in_the_way_is_told_and_a_raise_does_not_tell_it_again(self, desk):
        both = rules(machine("1"), machine("1", name="other", alert_at=("0.5",)))
        refuse(desk, "c1", "1.1", both)
        assert len(told(desk, REFUSED)) == 2

        desk.admin.raise_budget(both.budgets[0], "m", money("0.05"), who="ada")
        refuse(desk, "c2", "1.1", both)

        assert len(told(desk, REFUSED)) == 2

    def test_a_refusal_about_no_limit_tells_nothing(self, desk):
        desk.ledger.refuse(note("c1", code="unknown_model"), refusal("unknown_model"))
        desk.ledger.refuse(note("c2", accounts=("an\x1faccount\x1fof\x1fnobody",)), refusal())

        desk.look_after()
        assert told(desk, REFUSED) == []
        assert len(desk.rows("refusal")) == 2

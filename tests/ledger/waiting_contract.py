"""What every ledger must do for calls that wait for held money, and for holds that become smaller."""

import concurrent.futures
from dataclasses import replace
from datetime import timedelta

import pytest

from lockpin_core.budgets import Budget
from lockpin_core.call import Void
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger.protocol import Closed, Held, Short, Wait
from lockpin_core.windows import Window
from tests.ledger import desk as d
from tests.ledger.contract import ONE, hold, seen, settle, void
from tests.ledger.desk import WAIT_S, call, machine, money, rules

PATIENCE = Wait(timedelta(seconds=30))
LONG = Wait(timedelta(seconds=90))


def wait(desk, call_id, dollars, in_force=ONE, patience=PATIENCE, smaller=None, **more):
    """Ask for a hold that may wait; give the future once its first try is over."""
    asked = desk.ledger.hold(call(call_id, dollars, **more), in_force, smaller, patience)
    desk.look_after()
    return asked


def answer(desk, asked):
    desk.look_after()
    return asked.result(WAIT_S) if asked.done() else None


def shrink(desk, call_id, dollars, tokens=100):
    return desk.ledger.shrink(call_id, money(dollars), tokens).result(WAIT_S)


def lower(dollars):
    """Offer a version of a call at this price, noting what was asked."""
    asked = []

    def smaller(standings):
        asked.append({s.budget.name: s.held.exact() for s in standings})
        return call("low", dollars)

    return smaller, asked


def wait_smaller(desk, call_id, dollars, least, in_force=ONE):
    """Ask for a call that may go at whatever is left, down to `least`."""

    def smaller(standings):
        left = min(s.limit - s.spent - s.held for s in standings if s.budget.enforce)
        return call(call_id, left.exact()) if left >= money(least) else None

    asked = desk.ledger.hold(
        call(call_id, dollars), in_force, smaller, replace(PATIENCE, least=call(call_id, least).quote)
    )
    desk.look_after()
    return asked


class WaitingContract:
    def test_a_call_waits_for_held_money_and_goes_when_it_comes_free(self, desk):
        hold(desk, "c1", "0.9")
        asked = wait(desk, "c2", "0.5")
        assert not asked.done()
        assert desk.tickets() == [("c2", "daily")]
        assert seen(desk)["daily"] == ("0", "0.9")  # a waiter holds nothing
        desk.clock.pass_by(seconds=7)

        settle(desk, "c1", "0.1")

        held = answer(desk, asked)
        assert (held.call.id, held.waited, held.call.waited_ms) == ("c2", timedelta(seconds=7), 7_012)
        assert [(s.spent.exact(), s.held.exact()) for s in held.standings] == [("0.1", "0.5"), ("0.1", "0.5")]
        assert held.at == desk.clock.now
        assert desk.tickets() == []

    def test_a_call_that_fits_does_not_wait(self, desk):
        asked = wait(desk, "c1", "1")
        held = answer(desk, asked)
        assert (held.waited, held.call.waited_ms, held.degraded) == (timedelta(0), 12, False)

    def test_spent_money_is_not_waited_for(self, desk):
        hold(desk, "c1", "0.6")
        settle(desk, "c1", "0.6")
        hold(desk, "c2", "0.2")
        short = answer(desk, wait(desk, "c3", "0.5"))
        assert ([s.budget.name for s in short.violations], short.behind) == (["daily"], False)
        assert desk.tickets() == []

    @pytest.mark.parametrize("seconds", [0, -1])
    def test_no_patience_is_no_wait(self, desk, seconds):
        hold(desk, "c1", "0.9")
        assert isinstance(answer(desk, wait(desk, "c2", "0.5", patience=Wait(timedelta(seconds=seconds)))), Short)
        assert desk.tickets() == []

    def test_patience_ends_with_what_stands_in_the_way_then(self, desk):
        hold(desk, "c1", "0.9")
        asked = wait(desk, "c2", "0.5")
        desk.clock.pass_by(seconds=29)
        assert answer(desk, asked) is None
        desk.clock.pass_by(seconds=1)

        short = answer(desk, asked)

        assert [s.held for s in short.violations] == [money("0.9")]
        assert short.at == desk.clock.now
        assert desk.tickets() == []

    def test_waiters_are_tried_in_the_order_of_their_tickets(self, desk):
        for n in range(4):
            hold(desk, f"c{n}", "0.25")
        asked = [wait(desk, f"w{n}", "0.25") for n in range(3)]
        seen_done = []
        for n in (2, 0, 1):
            void(desk, f"c{n}")
            desk.look_after()
            seen_done.append([one.done() for one in asked])
        assert seen_done == [[True, False, False], [True, True, False], [True, True, True]]

    def test_a_small_call_passes_a_large_one_that_is_not_protected(self, desk):
        hold(desk, "c1", "0.9")
        large, small = wait(desk, "large", "0.5"), wait(desk, "small", "0.2")
        shrink(desk, "c1", "0.8")
        assert isinstance(answer(desk, small), Held)
        assert answer(desk, large) is None
        assert not isinstance(hold(desk, "c2", "0.01"), Held)
        shrink(desk, "c1", "0.7")
        assert isinstance(hold(desk, "c3", "0.1"), Held)

    def test_nobody_younger_goes_before_one_who_is_protected(self, desk):
        hold(desk, "c1", "0.6")
        large = wait(desk, "large", "0.5")
        assert isinstance(hold(desk, "c2", "0.1"), Held)
        desk.clock.pass_by(seconds=10)  # a third of its patience

        newcomer, younger = hold(desk, "c3", "0.1"), wait(desk, "younger", "0.1")
        void(desk, "c2")

        assert (newcomer.behind, newcomer.violations) == (True, ())
        assert [s.held for s in newcomer.standings] == [money("0.7"), money("0.7")]
        assert (answer(desk, younger), answer(desk, large)) == (None, None)
        assert desk.tickets() == [("large", "daily"), ("younger", "daily")]
        void(desk, "c1")
        assert isinstance(answer(desk, large), Held)
        assert isinstance(answer(desk, younger), Held)
        assert isinstance(hold(desk, "c4", "0.4"), Held)

    def test_out_of_turn_takes_no_notice_of_who_waits(self, desk):
        hold(desk, "c1", "0.6")
        wait(desk, "large", "0.5")
        desk.clock.pass_by(seconds=10)
        first = desk.ledger.hold(call("c2", "0.1"), ONE, out_of_turn=True).result(WAIT_S)
        assert isinstance(first, Held)
        assert hold(desk, "c3", "0.1").behind
        assert not desk.ledger.hold(call("c4", "0.5"), ONE, out_of_turn=True).result(WAIT_S).behind

    def test_who_is_behind_at_the_end_of_its_patience_goes_out_of_turn(self, desk):
        hold(desk, "c1", "0.6")
        large = wait(desk, "large", "0.5", patience=Wait(timedelta(seconds=90)))
        desk.clock.pass_by(seconds=30)
        behind = wait(desk, "behind", "0.1")
        desk.clock.pass_by(seconds=29)
        assert answer(desk, behind) is None
        desk.clock.pass_by(seconds=1)

        held = answer(desk, behind)

        assert (held.waited, large.done()) == (timedelta(seconds=30), False)

    def test_a_newcomer_goes_that_fits_beside_what_a_protected_one_needs(self, desk):
        own = Budget("task", "task", d.LIFETIME, money("0.5"), enforce=True, own=True)
        both = rules(machine("1"), own=own)
        for n in range(2):
            hold(desk, f"x{n}", "0.4", both, task=f"x{n}")
        hold(desk, "y", "0.2", both)
        asked = wait(desk, "w", "0.4", both)  # short on the task and on the machine
        assert desk.tickets() == [("w", "daily"), ("w", "task")]
        desk.clock.pass_by(seconds=10)
        void(desk, "x0")
        void(desk, "x1")  # only the task is in its way now
        assert answer(desk, asked) is None

        assert hold(desk, "n1", "0.41", both, task="n").behind
        assert isinstance(hold(desk, "n2", "0.4", both, task="n"), Held)
        void(desk, "y")
        assert isinstance(answer(desk, asked), Held)

    def test_a_call_that_cannot_cost_anything_passes_those_who_wait(self, desk):
        hold(desk, "c1", "0.6")
        wait(desk, "large", "0.5")
        desk.clock.pass_by(seconds=10)
        assert isinstance(hold(desk, "c2", "0", tokens=0), Held)

    def test_accounts_that_only_warn_are_not_waited_on(self, desk):
        some = rules(machine("1"), machine("0.1", name="warn", enforce=False))
        hold(desk, "c1", "0.9", some)
        wait(desk, "c2", "0.5", some)
        assert desk.tickets() == [("c2", "daily")]
        desk.clock.pass_by(seconds=10)
        other = rules(machine("1"), machine("0.1", name="warn", enforce=False), machine("9", name="wide"))
        assert hold(desk, "c3", "0.05", other).behind

    def test_tokens_are_waited_for_like_dollars(self, desk):
        tokens = rules(Budget("tokens", "machine", d.DAY, limit_tokens=150, enforce=True))
        hold(desk, "c1", "0.1", tokens, tokens=100)
        asked = wait(desk, "c2", "0.1", tokens, tokens=60)
        assert shrink(desk, "c1", "0.1", 90)
        assert isinstance(answer(desk, asked), Held)

    @pytest.mark.parametrize("way", ["call", "future"])
    def test_who_leaves_gives_up_its_place(self, desk, way):
        hold(desk, "c1", "0.7")
        large = wait(desk, "large", "0.5")
        desk.clock.pass_by(seconds=10)
        small = wait(desk, "small", "0.3")
        assert not small.done()

        if way == "call":
            desk.ledger.cancel("large")
        else:
            assert large.cancel()

        assert isinstance(answer(desk, small), Held)
        assert large.cancelled()
        assert desk.tickets() == []

    def test_spend_that_takes_what_was_held_ends_the_wait(self, desk):
        hold(desk, "c1", "0.9")
        asked = wait(desk, "c2", "0.5")
        settle(desk, "c1", "0.8")
        short = answer(desk, asked)
        assert [(s.spent, s.held) for s in short.violations] == [(money("0.8"), money("0"))]
        assert desk.tickets() == []

    @pytest.mark.parametrize("what", ["void", "cancel", "shrink", "raise", "correct", "reset", "day"])
    def test_whatever_makes_room_lets_a_waiter_go(self, desk, what):
        hold(desk, "c0", "0.3")
        settle(desk, "c0", "0.3")
        hold(desk, "c1", "0.6")
        asked = wait(desk, "c2", "0.3")
        assert answer(desk, asked) is None

        match what:
            case "void":
                void(desk, "c1")
            case "cancel":
                desk.ledger.cancel("c1")
            case "shrink":
                shrink(desk, "c1", "0.4")
            case "raise":
                desk.admin.raise_budget(machine("1"), "m", money("0.2"), who="ann")
            case "correct":
                desk.admin.correct("c0", money("0.1"), reason="less", who="ann")
            case "reset":
                desk.admin.reset_budget(machine("1"), "m", who="ann")
            case "day":
                desk.clock.pass_by(hours=12)  # its patience is over too; the last try finds a new day

        assert isinstance(answer(desk, asked), Held)

    def test_a_task_that_gets_a_larger_budget_lets_its_waiter_go(self, desk):
        desk.admin.task_new("t", limit=money("1"), window="lifetime", who="ann")
        wide = rules()
        hold(desk, "c1", "0.9", wide)
        asked = wait(desk, "c2", "0.3", wide)
        desk.admin.task_new("t", limit=money("2"), window="lifetime", who="ann")
        assert isinstance(answer(desk, asked), Held)

    def test_late_usage_that_is_less_than_was_charged_lets_a_waiter_go(self, desk):
        hold(desk, "c0", "0.4")
        desk.ledger.defer("c0", timedelta(hours=1)).result(WAIT_S)
        desk.clock.pass_by(hours=1)
        desk.look_after()
        hold(desk, "c1", "0.5")
        asked = wait(desk, "c2", "0.3")
        settle(desk, "c0", "0.1")
        assert isinstance(answer(desk, asked), Held)

    def test_spend_that_leaves_a_rolling_window_lets_a_waiter_go(self, desk):
        rolling = rules(machine("1", window=Window("rolling", period_ms=3_600_000)))
        hold(desk, "c0", "0.3", rolling)
        settle(desk, "c0", "0.3")
        desk.clock.pass_by(minutes=59, seconds=50)
        hold(desk, "c1", "0.6", rolling)
        asked = wait(desk, "c2", "0.3", rolling)
        desk.clock.pass_by(seconds=9)
        assert answer(desk, asked) is None
        desk.clock.pass_by(seconds=1)
        assert answer(desk, asked).waited == timedelta(seconds=10)

    def test_a_window_that_ends_lets_a_waiter_go(self, desk):
        desk.clock.now = d.NOON.replace(hour=23, minute=59, second=50)
        hold(desk, "c1", "0.9")
        asked = wait(desk, "c2", "0.5")
        desk.clock.pass_by(seconds=9)
        assert answer(desk, asked) is None
        desk.clock.pass_by(seconds=1)
        assert answer(desk, asked).waited == timedelta(seconds=10)

    def test_a_task_that_is_closed_ends_the_wait(self, desk):
        hold(desk, "c1", "0.9", task="a")
        desk.admin.task_new("a", limit=None, window="lifetime", who="ann")
        asked = wait(desk, "c2", "0.5", task="a")
        desk.admin.task_close("a", who="ann")
        assert isinstance(answer(desk, asked), Closed)

    def test_a_smaller_version_goes_only_when_the_patience_is_over(self, desk):
        hold(desk, "c1", "0.9")
        smaller, offered = lower("0.1")
        asked = wait(desk, "c2", "0.5", smaller=smaller)
        desk.clock.pass_by(seconds=29)
        assert answer(desk, asked) is None
        assert offered == []
        desk.clock.pass_by(seconds=1)

        held = answer(desk, asked)

        assert (held.call.quote.most, held.waited, held.call.waited_ms) == (
            money("0.1"),
            timedelta(seconds=30),
            30_012,
        )
        assert offered == [{"task": "0.9", "daily": "0.9"}]

    def test_a_smaller_version_goes_at_once_where_waiting_is_in_vain(self, desk):
        hold(desk, "c1", "0.7")
        settle(desk, "c1", "0.7")
        smaller, _ = lower("0.3")
        held = answer(desk, wait(desk, "c2", "0.5", smaller=smaller))
        assert (held.call.quote.most, held.waited) == (money("0.3"), timedelta(0))

    def test_a_smaller_version_has_to_fit_beside_what_a_protected_one_needs(self, desk):
        desk.ledger.hold(call("c1", "0.4"), ONE).result(WAIT_S)
        hold(desk, "c2", "0.3")
        tight = rules(machine("1"), machine("0.8", name="tight", providers=("openai",)))
        wait(desk, "large", "0.2", tight)
        desk.clock.pass_by(seconds=10)
        smaller, offered = lower("0.09")
        wide = rules(machine("1"), machine("0.8", name="tight", providers=("openai",)))
        held = desk.ledger.hold(call("c3", "0.1"), wide, smaller).result(WAIT_S)
        assert held.behind
        assert offered == [{"task": "0.7", "daily": "0.7", "tight": "0.9"}]

    def test_a_call_that_fits_only_smaller_waits_as_its_smallest_and_goes_as_the_largest_that_fits(self, desk):
        hold(desk, "c1", "1")
        asked = wait_smaller(desk, "c2", "3", "0.4")
        assert (asked.done(), desk.tickets()) == (False, [("c2", "daily")])
        desk.clock.pass_by(seconds=9)
        assert shrink(desk, "c1", "0.61")
        assert answer(desk, asked) is None

        settle(desk, "c1", "0.25")

        held = answer(desk, asked)
        assert (held.call.quote.most, held.waited, held.call.waited_ms) == (
            money("0.75"),
            timedelta(seconds=9),
            9_012,
        )
        assert seen(desk)["daily"] == ("0.25", "0.75")

    def test_a_call_that_waits_as_its_smallest_goes_whole_where_a_raise_lets_it(self, desk):
        hold(desk, "c1", "1")
        asked = wait_smaller(desk, "c2", "1.5", "0.4")
        desk.admin.raise_budget(machine("1"), "m", money("1.5"), who="ann")
        assert answer(desk, asked).call.quote.most == money("1.5")

    def test_who_has_room_as_its_smallest_and_cannot_be_so_small_any_more_waits_no_longer(self, desk):
        """Nor does anybody behind it."""
        hold(desk, "c1", "0.9")
        asked = desk.ledger.hold(
            call("c2", "1.5"), ONE, lambda standings: None, replace(PATIENCE, least=call("c2", "0.4").quote)
        )
        desk.look_after()
        assert not asked.done()

        settle(desk, "c1", "0.1")

        short = answer(desk, asked)
        assert isinstance(short, Short)
        assert [standing.held.exact() for standing in short.violations] == ["0"]
        assert desk.tickets() == []

    def test_where_the_smallest_does_not_fit_if_nothing_is_held_nobody_waits(self, desk):
        hold(desk, "c0", "0.61")
        settle(desk, "c0", "0.61")
        hold(desk, "c1", "0.2")
        short = answer(desk, wait_smaller(desk, "c2", "3", "0.4"))
        assert [s.budget.name for s in short.violations] == ["daily"]

    def test_where_its_turn_has_come_a_smaller_version_goes_at_once(self, desk):
        hold(desk, "c1", "0.3")
        held = answer(desk, wait_smaller(desk, "c2", "3", "0.4"))
        assert (held.call.quote.most, held.waited) == (money("0.7"), timedelta(0))

    def test_a_call_whose_whole_cannot_fit_any_more_waits_on_at_its_place_as_its_smallest(self, desk):
        for n in range(3):
            hold(desk, f"c{n}", "0.3")
        asked = wait_smaller(desk, "large", "0.9", "0.4")
        desk.clock.pass_by(seconds=5)
        settle(desk, "c0", "0.2")  # 0.2 spent and 0.6 held: a whole of 0.9 cannot fit, 0.4 does not yet
        assert answer(desk, asked) is None
        desk.clock.pass_by(seconds=5)  # a third of the patience since it came
        assert hold(desk, "n1", "0.1").behind
        void(desk, "c1")
        held = answer(desk, asked)
        assert (held.call.quote.most, held.waited) == (money("0.5"), timedelta(seconds=10))

    def test_as_its_smallest_a_protected_one_keeps_less_from_those_behind_it(self, desk):
        own = Budget("task", "task", d.LIFETIME, money("0.5"), enforce=True, own=True)
        both = rules(machine("1"), own=own)
        hold(desk, "x", "0.5", both, task="x")
        hold(desk, "y0", "0.2", both)
        hold(desk, "y1", "0.3", both)
        large = wait_smaller(desk, "large", "0.5", "0.15", both)  # short on its task and on the machine
        desk.clock.pass_by(seconds=10)
        void(desk, "x")  # half a dollar of the machine's is left, all of it the large one's
        small = wait(desk, "small", "0.45", both, task="n")
        assert (answer(desk, small), hold(desk, "n1", "0.01", both, task="m").behind) == (None, True)

        settle(desk, "y0", "0.1")  # 0.1 are left of the task's, and never more than 0.4

        assert answer(desk, large) is None
        assert isinstance(answer(desk, small), Held)  # of the 0.6 that are left, with 0.15 set aside
        assert hold(desk, "n2", "0.01", both, task="m").behind
        void(desk, "small")
        void(desk, "y1")
        assert answer(desk, large).call.quote.most == money("0.4")

    def test_an_older_call_goes_before_the_smaller_version_of_a_younger(self, desk):
        hold(desk, "c1", "1")
        old, young = wait(desk, "old", "0.5"), wait_smaller(desk, "young", "3", "0.1")
        desk.clock.pass_by(seconds=10)
        shrink(desk, "c1", "0.6")
        assert (answer(desk, old), answer(desk, young)) == (None, None)  # 0.4 are left, which the old one waits for
        shrink(desk, "c1", "0.3")
        assert isinstance(answer(desk, old), Held)
        assert answer(desk, young).call.quote.most == money("0.2")

    def test_at_the_end_of_its_patience_a_smaller_version_is_tried_out_of_turn(self, desk):
        hold(desk, "c1", "0.8")
        large = wait(desk, "large", "0.5", patience=LONG)
        desk.clock.pass_by(seconds=30)
        asked = wait_smaller(desk, "c2", "3", "0.1")
        assert answer(desk, asked) is None  # the 0.2 that are left are another's turn
        desk.clock.pass_by(seconds=30)
        assert answer(desk, asked).call.quote.most == money("0.2")
        assert not large.done()

    def test_the_same_call_again_waits_at_its_place(self, desk):
        hold(desk, "c1", "0.9")
        first, again = wait(desk, "c2", "0.5"), wait(desk, "c2", "0.5")
        assert desk.tickets() == [("c2", "daily")]
        void(desk, "c1")
        assert isinstance(answer(desk, first), Held)
        assert isinstance(answer(desk, again), Held)
        assert seen(desk)["daily"] == ("0", "0.5")

    def test_at_the_end_everybody_is_sent_away(self, desk):
        hold(desk, "c1", "0.9")
        asked = wait(desk, "c2", "0.5")
        desk.ledger.stop()
        assert isinstance(asked.exception(WAIT_S), LedgerUnavailable)
        assert desk.tickets() == []

    def test_a_large_call_is_not_starved_by_small_ones(self, desk):
        """Ten small calls are always in flight, each for four seconds; the large one goes after a third of its
        patience and four seconds more.
        """
        ends = {f"s{n}": n % 4 for n in range(10)}  # by call, in seconds
        for name in ends:
            hold(desk, name, "0.1")
        large, second = wait(desk, "large", "0.9"), 0
        while not large.done():
            desk.clock.pass_by(seconds=1)
            second += 1
            for name in [name for name, end in ends.items() if end <= second]:
                del ends[name]
                settle(desk, name, "0")
                newcomer = f"n{second}-{name}"
                if isinstance(hold(desk, newcomer, "0.1"), Held):
                    ends[newcomer] = second + 4
            desk.look_after()

        assert answer(desk, large).waited == timedelta(seconds=second)
        assert 10 < second <= 14

    # Holds that become smaller.

    def test_a_hold_becomes_smaller_on_all_its_accounts(self, desk):
        hold(desk, "c1", "0.9", tokens=100)

        assert shrink(desk, "c1", "0.4", 60)

        assert seen(desk) == {"task": ("0", "0.4"), "daily": ("0", "0.4")}
        assert {numbers[3] for numbers in desk.accounts().values()} == {60}
        ((usd, tokens),) = [(row.usd, row.tokens) for row in desk.rows("shrink")]
        assert (usd, tokens) == (500_000_000, 40)
        assert isinstance(hold(desk, "c2", "0.6"), Held)
        assert d.nonzero(desk.accounts()) == desk.explained()

    @pytest.mark.parametrize(
        ("dollars", "tokens", "left"), [("0.95", 60, (900, 60)), ("0.4", 200, (400, 100)), ("0", 0, (0, 0))]
    )
    def test_each_of_dollars_and_tokens_only_goes_down(self, desk, dollars, tokens, left):
        hold(desk, "c1", "0.9", tokens=100)
        assert shrink(desk, "c1", dollars, tokens)
        assert {(n[1] // 10**6, n[3]) for n in desk.accounts().values()} == {left}

    def test_what_is_no_smaller_or_not_open_writes_no_row(self, desk):
        hold(desk, "c1", "0.9", tokens=100)
        assert not shrink(desk, "c1", "0.9", 100)
        assert not shrink(desk, "c1", "2", 200)
        assert shrink(desk, "c1", "0.5", 100)
        assert not shrink(desk, "c1", "0.5", 100)
        settle(desk, "c1", "0.1")
        assert not shrink(desk, "c1", "0.01", 1)
        assert not shrink(desk, "never", "0.01", 1)
        assert len(desk.rows("shrink")) == 1

    def test_what_is_held_at_the_end_is_what_was_left(self, desk):
        hold(desk, "c1", "0.9", tokens=100)
        shrink(desk, "c1", "0.5")
        shrink(desk, "c1", "0.3")

        resolved = settle(desk, "c1", "0.4")

        assert (resolved.held, resolved.over_hold) == (money("0.3"), True)
        again = settle(desk, "c1", "0.4")
        assert (again.first, again.held) == (False, money("0.3"))
        assert seen(desk) == {"task": ("0.4", "0"), "daily": ("0.4", "0")}

    def test_a_void_takes_off_what_was_left(self, desk):
        hold(desk, "c1", "0.9")
        shrink(desk, "c1", "0.5")
        assert desk.ledger.void("c1", Void("not_sent")).result(WAIT_S).held == money("0.5")
        assert seen(desk) == {"task": ("0", "0"), "daily": ("0", "0")}

    def test_a_deferred_hold_expires_at_what_was_left(self, desk):
        hold(desk, "c1", "0.9", tokens=100)
        desk.ledger.defer("c1", timedelta(hours=1)).result(WAIT_S)
        assert shrink(desk, "c1", "0.5", 60)
        desk.clock.pass_by(hours=1)
        desk.look_after()
        assert seen(desk)["daily"] == ("0.5", "0")
        late = settle(desk, "c1", "0.6")
        assert late.over_hold
        assert seen(desk)["daily"] == ("0.6", "0")

    def test_an_account_that_begins_counts_what_is_left_of_a_hold(self, desk):
        hold(desk, "c1", "0.9", tokens=100)
        shrink(desk, "c1", "0.5", 60)
        more = rules(machine("1"), machine("9", name="late"))
        assert isinstance(hold(desk, "c2", "0.1", more), Held)
        assert seen(desk, more)["late"] == ("0", "0.6")
        assert shrink(desk, "c1", "0.2", 60)
        assert seen(desk, more)["late"] == ("0", "0.3")

    def test_thirty_calls_at_once_on_a_budget_for_ten_all_go_in_time(self, desk):
        def work(n):
            held = desk.ledger.hold(call(f"c{n}", "0.10"), ONE, None, PATIENCE).result(WAIT_S)
            assert isinstance(held, Held)
            settle(desk, f"c{n}", "0.01")
            return held.standings[1].held

        with concurrent.futures.ThreadPoolExecutor(30) as pool:
            most = max(pool.map(work, range(30)))

        assert most <= money("1")
        assert seen(desk)["daily"] == ("0.3", "0")
        assert desk.tickets() == []

    def test_without_patience_exactly_ten_of_thirty_calls_go_at_first(self, desk):
        answers = [hold(desk, f"c{n}", "0.10") for n in range(30)]
        assert [isinstance(one, Held) for one in answers] == [True] * 10 + [False] * 20
        assert all(replace(one, standings=()).behind is False for one in answers[10:])

    def test_a_waiter_of_an_older_configuration_does_not_bring_it_back(self, desk):
        before, after = rules(machine("1")), rules(machine("0.6"))
        desk.ledger.define(before, "lockpin.yaml").result(WAIT_S)
        hold(desk, "c1", "0.5", before)
        asked = wait(desk, "c2", "0.6", before)

        desk.ledger.define(after, "lockpin.yaml").result(WAIT_S)

        assert answer(desk, asked) is None
        assert isinstance(hold(desk, "c3", "0.2", before), Short)
        settle(desk, "c1", "0.1")
        assert [s.limit for s in answer(desk, asked).violations] == [money("0.6")]

"""What every ledger must do of a call that must leave room on its task's own account."""

from dataclasses import replace
from datetime import timedelta

from lockpin_core.call import Void
from lockpin_core.ledger.protocol import Held, Short, Wait
from tests.ledger.desk import OWN, WAIT_S, call, charge, machine, money, rules

CAPPED = replace(OWN, limit=money("1"), enforce=True)
ROOM = rules(machine("100"), own=CAPPED)
COUNTED = rules(own=replace(OWN, limit_tokens=1000, enforce=True))


def leaving(call_id, dollars, reserve, *, tokens=100, reserve_tokens=0, **more):
    """Make a call that must leave so much besides."""
    return replace(
        call(call_id, dollars, tokens=tokens, **more), reserve=call("r", reserve, tokens=reserve_tokens).quote
    )


def ask(desk, asked, in_force=ROOM, smaller=None, **more):
    return desk.ledger.hold(asked, in_force, smaller, **more).result(WAIT_S)


def waiting(desk, asked, in_force=ROOM, smaller=None, seconds=30, **more):
    future = desk.ledger.hold(asked, in_force, smaller, Wait(timedelta(seconds=seconds), **more))
    desk.look_after()
    return future


def own(short):
    return next(standing for standing in short.violations if standing.budget.own)


class ReserveContract:
    def test_a_call_fits_that_leaves_just_its_reserve(self, desk):
        assert isinstance(ask(desk, leaving("c1", "0.9", "0.1")), Held)

    def test_a_call_that_leaves_less_than_its_reserve_does_not_fit(self, desk):
        short = ask(desk, leaving("c1", "0.900000001", "0.1"))

        assert isinstance(short, Short)
        assert (own(short).reserved, own(short).held, own(short).remaining()) == (
            money("0.1"),
            money("0"),
            money("0.9"),
        )
        assert not own(short).is_transient(money("0.900000001"), 100)

    def test_the_reserve_is_not_held(self, desk):
        held = ask(desk, leaving("c1", "0.5", "0.1"))

        assert [(s.held, s.reserved) for s in held.standings if s.budget.own] == [(money("0.5"), money("0"))]
        assert isinstance(ask(desk, call("c2", "0.5")), Held)

    def test_a_small_call_may_use_what_others_must_leave(self, desk):
        ask(desk, call("c1", "0.85"))

        assert isinstance(ask(desk, leaving("c2", "0.06", "0.1")), Short)
        assert isinstance(ask(desk, call("c3", "0.1")), Held)

    def test_tokens_are_left_as_well(self, desk):
        assert isinstance(ask(desk, leaving("c1", "1", "0", tokens=901, reserve_tokens=100), COUNTED), Short)
        assert isinstance(ask(desk, leaving("c2", "1", "0", tokens=900, reserve_tokens=100), COUNTED), Held)

    def test_it_is_for_the_tasks_own_account_alone(self, desk):
        tight = rules(machine("1"), own=CAPPED)

        short = ask(desk, leaving("c1", "0.95", "0.1"), tight)
        assert [s.budget.name for s in short.violations] == ["task"]

        assert isinstance(ask(desk, leaving("c2", "1", "0.1"), rules(machine("1"))), Held)

    def test_a_call_that_costs_nothing_leaves_what_it_wants(self, desk):
        ask(desk, call("c1", "1"))

        assert isinstance(ask(desk, leaving("c2", "0", "0.1", tokens=0)), Held)

    def test_a_smaller_version_is_judged_by_what_it_must_leave_itself(self, desk):
        ask(desk, call("c1", "0.85"))
        seen = []

        def smaller(standings):
            seen.extend(s.reserved for s in standings if s.budget.own)
            return call("c2", "0.15")

        held = ask(desk, leaving("c2", "0.2", "0.1"), smaller=smaller)

        assert isinstance(held, Held)
        assert (held.call.quote.most, seen) == (money("0.15"), [money("0.1")])

    def test_a_smaller_version_that_must_leave_as_much_does_not_fit_either(self, desk):
        ask(desk, call("c1", "0.85"))

        found = ask(desk, leaving("c2", "0.2", "0.1"), smaller=lambda _: leaving("c2", "0.06", "0.1"))

        assert isinstance(found, Short)

    def test_a_call_does_not_wait_for_room_that_only_a_reserve_takes(self, desk):
        ask(desk, call("c1", "0.5"))
        desk.ledger.settle("c1", charge("0.5")).result(WAIT_S)

        short = waiting(desk, leaving("c2", "0.45", "0.1")).result(WAIT_S)

        assert isinstance(short, Short)

    def test_a_call_waits_until_there_is_room_for_its_reserve_too(self, desk):
        for call_id in ("c1", "c2"):
            ask(desk, call(call_id, "0.2"))
        asked = waiting(desk, leaving("c3", "0.75", "0.1"))
        assert desk.tickets() == [("c3", "task")]
        desk.ledger.void("c1", Void("not_sent")).result(WAIT_S)
        desk.look_after()
        assert not asked.done()

        desk.ledger.void("c2", Void("not_sent")).result(WAIT_S)
        desk.look_after()

        assert isinstance(asked.result(WAIT_S), Held)

    def test_a_call_whose_whole_cannot_fit_waits_for_its_smallest_with_what_that_must_leave(self, desk):
        ask(desk, call("c0", "0.5"))
        desk.ledger.settle("c0", charge("0.5")).result(WAIT_S)
        ask(desk, call("c1", "0.3"))
        least = call("c2", "0.45").quote

        refused = waiting(
            desk, leaving("c2", "0.6", "0.1"), smaller=lambda _: leaving("c2", "0.45", "0.1"), least=least,
            least_reserve=call("r", "0.1").quote,
        )  # fmt: skip
        asked = waiting(desk, leaving("c3", "0.6", "0.1"), smaller=lambda _: call("c3", "0.45"), least=least)

        assert isinstance(refused.result(WAIT_S), Short)
        assert desk.tickets() == [("c3", "task")]
        desk.ledger.void("c1", Void("not_sent")).result(WAIT_S)
        desk.look_after()
        assert asked.result(WAIT_S).call.quote.most == money("0.45")

    def test_nobody_leaves_room_for_anothers_reserve(self, desk):
        ask(desk, call("c1", "0.5"))
        waiting(desk, leaving("c2", "0.45", "0.1"))
        desk.clock.pass_by(seconds=11)  # it is protected

        assert isinstance(ask(desk, call("c3", "0.05")), Held)
        assert isinstance(ask(desk, call("c4", "0.05")), Short)

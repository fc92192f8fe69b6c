"""A model of a few lines of a ledger, and the state machine that plays a real one against it."""

from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lockpin_core.ledger.protocol import Held
from tests.ledger.contract import hold, seen, settle, void
from tests.ledger.desk import WAIT_S, machine, money, rules


class Model:
    """The lines that say what a ledger is."""

    def __init__(self, limit):
        self.limit, self.spent, self.open, self.deferred, self.cost = limit, 0, {}, set(), {}

    def hold(self, name, most):
        if name not in self.open and (not most or self.spent + sum(self.open.values()) + most <= self.limit):
            self.open[name] = most
        return name in self.open

    def shrink(self, name, most):
        smaller = name in self.open and most < self.open[name]
        if smaller:
            self.open[name] = most
        return smaller

    def resolve(self, name, amount):
        first = self.open.pop(name, None) is not None
        if first:
            self.deferred.discard(name)
            self.cost[name] = amount
            self.spent += amount
        return first

    def crash(self):
        for name in set(self.open) - self.deferred:
            self.resolve(name, self.open[name])

    def correct(self, name, amount):
        self.spent += amount - self.cost[name]
        self.cost[name] = amount


def machine_of(make_desk):
    """Build the state machine that plays a ledger against the model."""

    class LedgerMachine(RuleBasedStateMachine):
        def __init__(self):
            super().__init__()
            self.desk, self.model, self.names, self.count = make_desk(), Model(50), [], 0

        @rule(most=st.integers(0, 30))
        def take(self, most):
            self.count += 1
            name = f"c{self.count}"
            self.names.append(name)
            held = hold(self.desk, name, f"0.{most:02}", rules(machine("0.50")))
            assert isinstance(held, Held) == self.model.hold(name, most)
            if not isinstance(held, Held):
                self.names.remove(name)

        @precondition(lambda self: self.names)
        @rule(data=st.data(), amount=st.integers(0, 40))
        def charge_one(self, data, amount):
            name = data.draw(st.sampled_from(self.names))
            assert settle(self.desk, name, f"0.{amount:02}").first == self.model.resolve(name, amount)

        @precondition(lambda self: self.names)
        @rule(data=st.data())
        def void_one(self, data):
            name = data.draw(st.sampled_from(self.names))
            assert void(self.desk, name).first == self.model.resolve(name, 0)

        @precondition(lambda self: self.names)
        @rule(data=st.data())
        def cancel_one(self, data):
            name = data.draw(st.sampled_from(self.names))
            self.desk.ledger.cancel(name)
            self.model.resolve(name, 0)

        @precondition(lambda self: self.names)
        @rule(data=st.data(), most=st.integers(0, 30))
        def shrink_one(self, data, most):
            name = data.draw(st.sampled_from(self.names))
            shrunken = self.desk.ledger.shrink(name, money(f"0.{most:02}"), 100).result(WAIT_S)
            assert shrunken == self.model.shrink(name, most)

        @precondition(lambda self: set(self.model.open) - self.model.deferred)
        @rule(data=st.data())
        def defer_one(self, data):
            name = data.draw(st.sampled_from(sorted(set(self.model.open) - self.model.deferred)))
            self.desk.ledger.defer(name, timedelta(days=400)).result(WAIT_S)
            self.model.deferred.add(name)

        @rule()
        def crash(self):
            self.desk.crash()
            self.model.crash()

        @precondition(lambda self: self.model.cost)
        @rule(data=st.data(), amount=st.integers(0, 40))
        def correct_one(self, data, amount):
            name = data.draw(st.sampled_from(sorted(self.model.cost)))
            if self.model.cost[name] != amount:
                self.desk.admin.correct(name, money(f"0.{amount:02}"), reason="told", who="ann")
                self.model.correct(name, amount)

        @rule()
        def reset(self):
            self.desk.admin.reset_budget(machine("0.50"), "m", who="ann")
            self.model.spent, self.model.cost = 0, {}

        @invariant()
        def books_agree(self):
            spent, held = seen(self.desk, rules(machine("0.50")))["daily"]
            cents = 10**7
            assert money(spent).nano == self.model.spent * cents
            assert money(held).nano == sum(self.model.open.values()) * cents

        def teardown(self):
            self.desk.close()

    LedgerMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
    return LedgerMachine.TestCase

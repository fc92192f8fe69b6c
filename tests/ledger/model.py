"""A ten-line model of a ledger, and the state machine that plays a real one against it."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lockpin_core.ledger.protocol import Held
from tests.ledger.contract import hold, seen, settle, void
from tests.ledger.desk import machine, money, rules


class Model:
    """Ten lines that say what a ledger is."""

    def __init__(self, limit):
        self.limit, self.spent, self.open, self.done = limit, 0, {}, set()

    def hold(self, name, most):
        if name not in self.open and (not most or self.spent + sum(self.open.values()) + most <= self.limit):
            self.open[name] = most
        return name in self.open

    def resolve(self, name, amount):
        first = self.open.pop(name, None) is not None
        self.spent += amount if first else 0
        return first


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

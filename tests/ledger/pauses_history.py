"""Random histories of charges, pauses, resets and changed rules, beside a model that knows charges and the words of the
breaker, and nothing of rows: it adds everything up anew at each charge.
"""

import random
from dataclasses import dataclass, field, replace
from datetime import timedelta

from lockpin_core.budgets import Budget
from lockpin_core.ledger.pauses import KEY, TASK, BreakerRule
from lockpin_core.ledger.protocol import Held, Paused, Rules
from tests.ledger.desk import LIFETIME, WAIT_S, call, charge, money

OWN = Budget("task", "task", LIFETIME, own=True)
WHOSE = (
    {"task": "a"}, {"task": "b"}, {"task": "a", "user": "ann", "key": "k1"}, {"task": "b", "user": "ann", "key": "k1"},
    {"task": "a", "user": "ben", "key": "k2"},
)  # fmt: skip
PAUSES = (1, 5, 9, 10, 11, 29, 30, 31, 60)  # seconds that go by
STEPS = {"hold": 30, "settle": 30, "later": 25, "rule": 2, "reset": 3, "again": 1}


@dataclass
class Model:
    """Charges as (instant, place, subject, cents), and until when whose calls pause."""

    rule: BreakerRule
    charges: list = field(default_factory=list)
    since: dict = field(default_factory=dict)  # subject → how many charges there were at its last trip or reset
    until: dict = field(default_factory=dict)

    def subjects(self, whose, scopes):
        named = [(TASK, whose["task"], whose.get("user"))]
        named += [(KEY, whose["key"], None)] if "key" in whose else []
        return [subject for subject in named if subject[0] in scopes]

    def is_paused(self, whose, now):
        return any(now < self.until.get(subject, now) for subject in self.subjects(whose, (TASK, KEY)))

    def charge(self, whose, cents, now):
        """Give who trips."""
        self.charges.append((now, whose, cents))
        tripped = []
        for subject in self.subjects(whose, self.rule.scopes):
            own = [
                amount
                for place, (at, theirs, amount) in enumerate(self.charges)
                if subject in self.subjects(theirs, (TASK, KEY))
                and at > now - self.rule.window
                and place >= self.since.get(subject, 0)
            ]
            if cents and now >= self.until.get(subject, now) and sum(own) * 10**7 > self.rule.usd.nano:
                self.until[subject], self.since[subject] = now + self.rule.cooldown, len(self.charges)
                tripped.append((*subject, sum(own) * 10**7))
        return tripped


class PausesHistory:
    """Plays random steps on a desk, at any of its processes, and compares each answer."""

    def __init__(self, desk, seed):
        self.desk, self.dice = desk, random.Random(seed)
        self.count, self.open = 0, {}
        self.ledgers = getattr(desk, "ledgers", None) or [desk.ledger]
        self.model = Model(self.any_rule())
        self.define()

    def any_rule(self):
        spans = [timedelta(seconds=self.dice.choice((10, 30, 60))) for _ in range(2)]
        return BreakerRule(money("1"), *spans, self.dice.choice(((TASK,), (KEY,), (TASK, KEY))))

    def define(self):
        self.rules = Rules((), OWN, self.model.rule)
        for ledger in self.ledgers:
            ledger.define(self.rules, "lockpin.yaml").result(WAIT_S)

    @property
    def ledger(self):
        return self.dice.choice(self.ledgers)

    def play(self, steps):
        for _ in range(steps):
            getattr(self, self.dice.choices(list(STEPS), list(STEPS.values()))[0])()
            whose = self.dice.choice(WHOSE)
            found = self.ledger.paused(call("x", "0", **whose).payers).result(WAIT_S)
            assert (found is not None) == self.model.is_paused(whose, self.desk.clock.now)

    def hold(self):
        whose, self.count = self.dice.choice(WHOSE), self.count + 1
        answer = self.ledger.hold(call(f"c{self.count}", "1", **whose), self.rules).result(WAIT_S)
        assert isinstance(answer, Paused if self.model.is_paused(whose, self.desk.clock.now) else Held)
        if isinstance(answer, Held):
            self.open[f"c{self.count}"] = whose

    def settle(self):
        if not self.open:
            return
        call_id = self.dice.choice(list(self.open))
        cents = self.dice.choice((0, 1, 10, 34, 50, 99, 100, 101))
        resolved = self.ledger.settle(call_id, charge(f"{cents / 100:.2f}")).result(WAIT_S)
        wanted = self.model.charge(self.open.pop(call_id), cents, self.desk.clock.now)
        assert [(one.scope, one.subject, one.user, one.charged.nano) for one in resolved.tripped] == wanted

    def later(self):
        self.desk.clock.pass_by(seconds=self.dice.choice(PAUSES))

    def rule(self):
        self.model.rule = self.any_rule()
        self.define()

    def again(self):
        """Let a rule come by command, and go again."""
        rule = replace(self.any_rule(), usd=money("0.5"))
        self.desk.admin.breaker_set(rule, who="ada")
        self.desk.admin.breaker_clear(who="ada")

    def reset(self):
        now = self.desk.clock.now
        paused = sorted((s for s, until in self.model.until.items() if now < until), key=str)
        if not paused:
            return
        scope, name, _ = self.dice.choice(paused)
        self.desk.admin.breaker_reset(scope, name, who="ada")
        for subject in paused:
            if subject[:2] == (scope, name):
                self.model.until[subject], self.model.since[subject] = now, len(self.model.charges)

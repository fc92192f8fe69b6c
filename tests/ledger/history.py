"""Random histories of a ledger beside a slow model, which keeps calls and adds everything up anew at each look.

The model knows what SPEC says of budgets and windows and nothing of accounts, rows or sums.
"""

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from lockpin_core.budgets import Budget
from lockpin_core.call import Payers, Void
from lockpin_core.clock import micros
from lockpin_core.ledger.protocol import Held
from lockpin_core.windows import Window, leaves_at, named, span_at
from tests.ledger.desk import LIFETIME, WAIT_S, call, charge, machine, money, rules

WINDOWS = (
    *(LIFETIME, Window("day", "Europe/Berlin"), Window("day", "Asia/Kathmandu", at=7)),
    *(Window("rolling", period_ms=3_600_000), Window("rolling", period_ms=86_400_000)),
    *(
        Window("week", "America/New_York", at=150),
        Window("month", anchor=31),
        Window("day", "Australia/Lord_Howe", at=120),
    ),
)
TASK_WINDOWS = ("lifetime", "day", "rolling:3600000", "week")
OWN = Budget("task", "task", LIFETIME, own=True)
CENT = 10**7
STEPS = {
    "hold": 30, "shrink": 8, "settle": 22, "void": 5, "cancel": 3, "defer": 4, "crash": 2, "correct": 9, "late": 3,
    "reset": 5, "put": 8, "take_away": 5, "task": 6, "lift": 4, "undo": 1, "reload": 3, "later": 12, "back": 3,
}  # fmt: skip


@dataclass
class Spent:
    """One call as the model sees it; amounts in cents."""

    task: str
    at: datetime
    held: int
    cost: int | None = None  # None: in flight
    until: datetime | None = None  # deferred
    has_expired: bool = False
    is_corrected: bool = False


@dataclass
class Books:
    """What the model knows."""

    calls: dict = field(default_factory=dict)
    budgets: dict = field(default_factory=dict)  # by command
    tasks: dict = field(default_factory=dict)  # name → (window, cents)
    limits: dict = field(default_factory=dict)  # budget name → the limit it had last
    raises: dict = field(default_factory=dict)  # account → [(when, cents)]
    forgotten: dict = field(default_factory=dict)  # account → calls of before a reset


class History:
    """Plays random steps on a desk and compares after each."""

    def __init__(self, desk, seed):
        self.desk, self.dice, self.books = desk, random.Random(seed), Books()
        desk.clock.now = self.last = datetime(
            2026, 10, 24, self.dice.randrange(24), self.dice.randrange(60), tzinfo=UTC
        )
        self.budget = machine("0.50", name="cfg", window=self.dice.choice(WINDOWS))
        self.reload_to(self.budget)

    @property
    def now(self):
        return max(self.desk.clock.now, self.last)

    def wrote(self):
        self.last = self.now

    def play(self, steps):
        for _ in range(steps):
            getattr(self, self.dice.choices(list(STEPS), list(STEPS.values()))[0])()
            self.expire()
            self.compare()

    def compare(self):
        for task in "abc":
            in_force = rules(self.budget, *self.books.budgets.values(), own=OWN)
            look = self.desk.ledger.look(Payers(task, "m"), "openai", "gpt-5.5", in_force).result(WAIT_S)
            found = {s.budget.name: (s.spent.nano, s.held.nano) for s in look}
            wanted = {b.name: tuple(cents * CENT for cents in self.sums(a)) for b, a in self.accounts(task)}
            assert found == wanted, (task, found, wanted)

    def accounts(self, task):
        """List (budget, account) of a task's next call; an account is (budget, scope, subject, window, start, end)."""
        return [
            (budget, self.account(budget, task))
            for budget in (self.own(task), self.budget, *self.books.budgets.values())
        ]

    def own(self, task):
        if task not in self.books.tasks:
            return OWN
        window, cents = self.books.tasks[task]
        return Budget("task", "task", named(window, LIFETIME), money(f"0.{cents:02}"), enforce=True, own=True)

    def account(self, budget, task):
        subject = task if budget.scope == "task" else "m"
        if budget.window.kind == "rolling":
            return (budget.name, budget.scope, subject, budget.window.period_ms, None, None)
        span = span_at(budget.window, self.now)
        return (budget.name, budget.scope, subject, 0, span.start, span.end)

    def counts(self, account, at):
        *_, period_ms, start, end = account
        if period_ms:
            return leaves_at(micros(at), period_ms) > micros(self.now)
        return start is None or start <= at < end

    def sums(self, account):
        """Add up what an account has (spent, held)."""
        spent = held = 0
        for name, one in self.books.calls.items():
            if account[1] == "task" and one.task != account[2]:
                continue
            if one.cost is None:
                held += one.held if account[3] or self.counts(account, one.at) else 0
            elif self.counts(account, one.at) and name not in self.books.forgotten.get(account, ()):
                spent += one.cost
        return spent, held

    def limit(self, budget, account):
        if budget.limit is None or not budget.enforce:
            return None
        raised = (
            cents for at, cents in self.books.raises.get(account, ()) if not account[3] or self.counts(account, at)
        )
        return budget.limit.nano // CENT + sum(raised)

    def pick(self, wanted):
        names = [name for name, one in self.books.calls.items() if wanted(one)]
        return self.dice.choice(names) if names else None

    def hold(self):
        name, task, cents = f"c{len(self.books.calls)}", self.dice.choice("abc"), self.dice.randrange(25)
        short = [
            account
            for budget, account in self.accounts(task)
            if cents and (limit := self.limit(budget, account)) is not None and sum(self.sums(account)) + cents > limit
        ]
        answer = self.desk.ledger.hold(call(name, f"0.{cents:02}", task=task), self.rules).result(WAIT_S)
        assert isinstance(answer, Held) == (not short), (name, cents, short, answer)
        if not short:
            self.books.calls[name] = Spent(task, self.now, cents)
            self.wrote()
        elif self.desk.query("SELECT max(at) = ? FROM rows", micros(self.now))[0][0]:
            self.wrote()  # an account was opened, which is a row

    def shrink(self):
        if name := self.pick(lambda one: one.cost is None):
            cents = self.dice.randrange(25)
            before = self.books.calls[name].held
            assert self.desk.ledger.shrink(name, money(f"0.{cents:02}"), 100).result(WAIT_S) == (cents < before)
            if cents < before:
                self.books.calls[name].held = cents
                self.wrote()

    def end(self, name, cents):
        self.books.calls[name].cost = cents
        self.wrote()

    def settle(self):
        if name := self.pick(lambda one: one.cost is None):
            cents = self.dice.randrange(25)
            assert self.desk.ledger.settle(name, charge(f"0.{cents:02}")).result(WAIT_S).first
            self.end(name, cents)

    def void(self):
        if name := self.pick(lambda one: one.cost is None):
            self.desk.ledger.void(name, Void("not_sent")).result(WAIT_S)
            self.end(name, 0)

    def cancel(self):
        if name := self.pick(lambda one: one.cost is None):
            self.desk.ledger.cancel(name)
            self.end(name, 0)

    def defer(self):
        if name := self.pick(lambda one: one.cost is None and one.until is None):
            hours = timedelta(hours=self.dice.choice((1, 20)))
            self.desk.ledger.defer(name, hours).result(WAIT_S)
            self.books.calls[name].until = self.now + hours
            self.wrote()

    def expire(self):
        due = [n for n, o in self.books.calls.items() if o.cost is None and o.until and o.until <= self.desk.clock.now]
        if due:
            self.desk.look_after()
        for name in due:
            self.books.calls[name].has_expired = True
            self.end(name, self.books.calls[name].held)

    def crash(self):
        self.desk.crash()
        for name, one in self.books.calls.items():
            if one.cost is None and one.until is None:
                self.end(name, one.held)
            elif one.cost is None:
                self.wrote()

    def correct(self):
        name, cents = self.pick(lambda one: one.cost is not None), self.dice.randrange(25)
        if name and self.books.calls[name].cost != cents:
            self.desk.admin.correct(name, money(f"0.{cents:02}"), reason="told", who="ann")
            self.books.calls[name].is_corrected = True
            self.end(name, cents)

    def late(self):
        if name := self.pick(lambda one: one.has_expired and not one.is_corrected):
            cents = self.dice.randrange(25)
            self.desk.ledger.settle(name, charge(f"0.{cents:02}")).result(WAIT_S)
            self.books.calls[name].is_corrected = True
            self.end(name, cents)

    def reset(self):
        budget, account = self.dice.choice(self.accounts(self.dice.choice("abc")))
        self.desk.admin.reset_budget(OWN if budget.own else budget, account[2], who="ann")
        ended = {
            n for n, o in self.books.calls.items() if o.cost is not None and (account[3] or self.counts(account, o.at))
        }
        self.books.forgotten.setdefault(account, set()).update(ended)
        self.wrote()

    def put(self):
        name, window, scope = self.dice.choice("xy"), self.dice.choice(WINDOWS), self.dice.choice(("machine", "task"))
        if name in self.books.budgets and self.dice.random() < 0.5:
            window, scope = self.books.budgets[name].window, self.books.budgets[name].scope
        limit = money(f"0.{self.dice.randrange(10, 99)}")
        budget = Budget(name, scope, window, limit, enforce=self.dice.random() < 0.8)
        self.desk.admin.budget_set(budget, who="ann")
        self.books.budgets[name] = budget
        self.has_limit(budget)

    def has_limit(self, budget):
        """A limit that is set anew takes the place of what was raised."""
        if self.books.limits.get(budget.name) != budget.limit:
            for account in [account for account in self.books.raises if account[0] == budget.name]:
                del self.books.raises[account]
        self.books.limits[budget.name] = budget.limit
        self.wrote()

    def take_away(self):
        if self.books.budgets:
            name = self.dice.choice(sorted(self.books.budgets))
            self.desk.admin.budget_rm(name, who="ann")
            del self.books.budgets[name]
            self.wrote()

    def task(self):
        task, window, cents = self.dice.choice("abc"), self.dice.choice(TASK_WINDOWS), self.dice.randrange(10, 99)
        self.desk.admin.task_new(task, limit=money(f"0.{cents}"), window=window, who="ann")
        self.books.tasks[task] = (window, cents)
        self.books.raises.pop(self.account(self.own(task), task), None)
        self.wrote()

    def lift(self):
        budget, account = self.dice.choice(self.accounts(self.dice.choice("abc")))
        if budget.limit is not None:
            cents = self.dice.randrange(1, 20)
            self.desk.admin.raise_budget(OWN if budget.own else budget, account[2], money(f"0.{cents:02}"), who="ann")
            self.books.raises.setdefault(account, []).append((self.now, cents))
            self.wrote()

    def undo(self):
        budget, account = self.dice.choice(self.accounts(self.dice.choice("abc")))
        raised = self.limit(budget, account)
        if raised is not None and raised != budget.limit.nano // CENT:
            self.desk.admin.undo_raises(OWN if budget.own else budget, account[2], who="ann")
            del self.books.raises[account]
            self.wrote()

    def reload(self):
        limit, window = f"0.{self.dice.randrange(10, 99)}", self.dice.choice(WINDOWS)
        self.reload_to(machine(limit, name="cfg", window=window, enforce=self.dice.random() < 0.9))

    def reload_to(self, budget):
        self.budget, self.rules = budget, rules(budget, own=OWN)
        self.desk.ledger.define(self.rules, "lockpin.yaml").result(WAIT_S)
        self.has_limit(budget)

    def later(self):
        self.desk.clock.pass_by(seconds=self.dice.choice((1, 600, 3600, 7200, 40_000, 90_000)) + self.dice.random())

    def back(self):
        self.desk.clock.pass_by(seconds=-self.dice.choice((1, 600, 7200)))

"""Random histories of calls that wait, beside a slow model that knows SPEC's words on whose turn it is and no tables.

One ledger or several on the same books: what one process frees is the other's too, in the order of all tickets. With a
clock that never steps to set, one of them may be stopped for a while: its waiters keep their tickets, and are passed.
"""

import random
import time
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from lockpin_core.budgets import Budget
from lockpin_core.call import Void
from lockpin_core.ledger.memory import MemoryLedger
from lockpin_core.ledger.protocol import Held, Short, Wait
from tests.ledger.desk import LIFETIME, WAIT_S, call, charge, look_after, machine, money, rules

CENT, SECOND = 10**7, 10**6
OWN = Budget("task", "task", LIFETIME, money("0.50"), enforce=True, own=True)
WIDE = machine("1", name="wide", window=LIFETIME)
LARGE = machine("0.70", name="large", window=LIFETIME, models=("big-*",))
RULES = rules(WIDE, LARGE, own=OWN)
NAP = 6  # how often one is stopped, or goes on, beside the weights of the other steps
STEPS = {"hold": 14, "wait": 26, "settle": 16, "void": 6, "shrink": 8, "leave": 4, "lift": 2, "later": 14}


@dataclass
class Asked:
    """A call that waits, as the model sees it; amounts in cents, times in microseconds."""

    name: str
    on: tuple  # its accounts
    most: int  # what the whole may cost
    cents: int  # what it waits for room for: the whole, or its smallest version
    since: int
    patience: int
    future: object
    ledger: object
    short: set = field(default_factory=set)
    lower: int | None = None  # what a smaller version may cost, to be tried in the end; None: there is none
    least: int | None = None  # what the smallest of many versions may cost, of which any may be held; None: as `lower`

    def is_protected(self, now):
        return now >= self.since + self.patience // 3

    def turns(self):
        return self.since + self.patience // 3, self.since + self.patience


def lowered(asked, cents, standings):
    return replace(asked, quote=replace(asked.quote, most=money(f"0.{cents:02}"), tokens=cents))


def as_large_as_fits(asked, least, standings):
    left = min(s.limit.nano - s.spent.nano - s.held.nano for s in standings) // CENT
    return lowered(asked, left, standings) if left >= least else None


class SetTicks:
    """A clock that never steps, and stands still unless it is set."""

    now_s = 1000.0

    def __call__(self):
        return self.now_s


class WaitingHistory:
    """Plays random steps and compares after each what was answered, and what the accounts are."""

    def __init__(self, desk, seed, ledgers=(), ticks=None):
        self.desk, self.dice = desk, random.Random(seed)
        self.ledgers, self.ticks = ledgers or (desk.ledger,), ticks
        for ledger in self.ledgers:
            if not isinstance(
                ledger, MemoryLedger
            ):  # however long a step takes, patience goes by the books' clock here
                ledger._writer._books.room.ticks = lambda: 0.0
        self.asleep, self.naps, self.passed, self.lowered = None, 0, 0, 0
        self.weights = STEPS if ticks is None else STEPS | {"nap": NAP}
        self.now, self.count = 0, 0
        self.limits = {"wide": 100, "large": 70, "a": 50, "b": 50, "c": 50}
        self.spent = dict.fromkeys(self.limits, 0)
        self.open, self.waiting, self.answers, self.turns = {}, [], {}, []

    def play(self, steps):
        for _ in range(steps):
            getattr(self, self.dice.choices(list(self.weights), list(self.weights.values()))[0])()
            self.serve()
            self.compare()
        self.wake()
        while self.waiting:
            self.later()
            self.serve()
            self.compare()
        assert self.desk.tickets() == []

    # The model.

    def held(self, account):
        return sum(cents for on, cents, _ in self.open.values() if account in on)

    def left(self, account):
        return self.limits[account] - self.spent[account] - self.held(account)

    def short_on(self, on, cents, ahead):
        return {a for a in on if cents and cents > self.left(a) - ahead.get(a, 0)}

    def is_final(self, on, cents):
        return any(self.short_on((a,), cents, {}) and self.spent[a] + cents > self.limits[a] for a in on)

    def ahead_of(self, waiters):
        ahead = {}
        for one in waiters:
            if one.is_protected(self.now) and one.ledger is not self.asleep:
                for account in one.short:
                    ahead[account] = ahead.get(account, 0) + one.cents
        return ahead

    def serve(self):
        """Try all in turn; once more after one has gone, by whom another may be short on more accounts."""
        before = None
        while before != len(self.waiting):
            before = len(self.waiting)
            self.try_all()

    def try_all(self):
        stayed = []
        for one in self.waiting:
            if one.future.cancelled():
                continue
            if one.ledger is self.asleep:
                stayed.append(one)
                continue
            if not self.try_one(one, self.ahead_of(stayed)):
                stayed.append(one)
        self.waiting = stayed

    def try_one(self, one, ahead):
        """Try a call in its turn. False: it goes on to wait."""
        if not self.short_on(one.on, one.most, ahead):
            self.go(one, one.most)
            return True
        if one.least is not None and self.is_final(one.on, one.most):
            one.cents = one.least  # and so it stays
        if one.cents == one.least and (room := self.room(one.on, ahead)) >= one.least:
            self.go(one, room)
            return True
        if self.now >= one.since + one.patience or self.is_final(one.on, one.cents):
            self.end(one)
            return True
        one.short |= self.short_on(one.on, one.cents, ahead)
        return False

    def end(self, one):
        """Try a call for the last time, out of turn, and then a smaller version."""
        lower = one.lower if one.least is None else max(self.room(one.on, {}), one.least)
        for most in (one.most, lower):
            if most is not None and not self.short_on(one.on, most, {}):
                return self.go(one, most)
        self.answers[one.name] = (one.future, "Short", 0)
        return None

    def room(self, on, ahead):
        return min(self.left(account) - ahead.get(account, 0) for account in on)

    def go(self, one, cents):
        self.take(one.name, one.on, cents)
        self.answers[one.name] = (one.future, "Held", cents)
        self.lowered += one.cents == one.least and cents < one.most

    def take(self, name, on, cents):
        self.open[name] = (on, cents, self.dice.choice(self.awake()))
        sleepers = [one for one in self.waiting if one.ledger is self.asleep]
        self.passed += any(one.is_protected(self.now) and one.short & set(on) for one in sleepers)

    def awake(self):
        return [ledger for ledger in self.ledgers if ledger is not self.asleep]

    # The steps.

    def new(self):
        self.count += 1
        task, cents = self.dice.choice("abc"), self.dice.choice((0, 3, 8, 20, 45))
        is_large = self.dice.random() < 0.4
        on = (task, "wide", "large") if is_large else (task, "wide")
        model = "big-1" if is_large else "small-1"
        asked = call(f"c{self.count}", f"0.{cents:02}", task=task, model=model, tokens=cents)
        return asked, on, cents, self.dice.choice(self.awake())

    def hold(self):
        asked, on, cents, ledger = self.new()
        out_of_turn = self.dice.random() < 0.2
        found = ledger.hold(asked, RULES, out_of_turn=out_of_turn).result(WAIT_S)
        short = self.short_on(on, cents, {} if out_of_turn else self.ahead_of(self.waiting))
        if short:
            assert isinstance(found, Short), (asked.id, found)
            assert found.behind == (not self.short_on(on, cents, {}))
        else:
            assert isinstance(found, Held), (asked.id, found)
            self.take(asked.id, on, cents)

    def wait(self):
        asked, on, cents, ledger = self.new()
        # No two end at one instant: who comes first is open between processes, where both take their last chance.
        patience = self.dice.choice((3, 30, 90)) * SECOND + 3 * self.count
        # Nor is a smaller version tried where another process may have a turn at that instant.
        lower = cents // 2 if len(self.ledgers) == 1 and self.dice.random() < 0.3 else None
        smaller = None if lower is None else partial(lowered, asked, lower)
        wait, least = Wait(timedelta(microseconds=patience)), None
        if lower and self.dice.random() < 0.5:
            cents = self.dice.choice((cents, cents, 90))  # which never fits a task
            asked, least = lowered(asked, cents, ()), lower
            smaller = partial(as_large_as_fits, asked, least)
            wait = replace(wait, least=lowered(asked, least, ()).quote)
        future = ledger.hold(asked, RULES, smaller, wait)
        one = Asked(asked.id, on, cents, cents, self.now, patience, future, ledger, lower=lower, least=least)
        if not self.try_one(one, self.ahead_of(self.waiting)):
            self.waiting.append(one)
            self.settled()

    def pick(self):
        names = sorted(name for name, (_, _, ledger) in self.open.items() if ledger is not self.asleep)
        return self.dice.choice(names) if names else None

    def settle(self):
        if name := self.pick():
            on, cents, ledger = self.open.pop(name)
            cost = self.dice.randrange(cents // 5 + 1)
            ledger.settle(name, charge(f"0.{cost:02}", tokens=0)).result(WAIT_S)
            for account in on:
                self.spent[account] += cost

    def void(self):
        if name := self.pick():
            _, _, ledger = self.open.pop(name)
            ledger.void(name, Void("not_sent")).result(WAIT_S)

    def shrink(self):
        if name := self.pick():
            on, cents, ledger = self.open[name]
            most = self.dice.randrange(cents + 1)
            ledger.shrink(name, money(f"0.{most:02}"), most).result(WAIT_S)
            self.open[name] = (on, most, ledger)

    def leave(self):
        if here := [one for one in self.waiting if one.ledger is not self.asleep]:
            one = self.dice.choice(here)
            if self.dice.random() < 0.5:
                one.future.cancel()
            else:
                for ledger in self.awake():
                    ledger.cancel(one.name)
            self.settled()
            assert one.future.cancelled()

    def lift(self):
        account = self.dice.choice(("wide", "large"))
        self.desk.admin.raise_budget(WIDE if account == "wide" else LARGE, "m", money("0.10"), who="ann")
        self.limits[account] += 10

    def later(self):
        end = self.now + self.dice.choice((1, 1, 3, 10, 30)) * SECOND
        while self.now < end:
            turns = [at for one in self.waiting for at in one.turns() if self.now < at < end]
            after = min(turns, default=end)
            self.desk.clock.pass_by(microseconds=after - self.now)
            self.now = after
            self.serve()
            self.compare()

    def nap(self):
        """Stop one, as SIGSTOP does, or let it go on."""
        if self.asleep is not None:
            return self.wake()
        self.asleep, self.naps = self.dice.choice(self.ledgers), self.naps + 1
        self.asleep._writer._is_somebodys_turn = lambda: False  # it does nothing by itself from here on
        look_after(self.asleep)  # what it had begun is done
        for _ in range(4):  # the others show that they are awake, and see that one does not
            self.ticks.now_s += 1
            self.until_awake_have_beaten()
        return self.settled()

    def until_awake_have_beaten(self):
        for ledger in {one.ledger for one in self.waiting} - {self.asleep}:
            lock, end = ledger._liveness.folder / ledger.writer_id, time.monotonic() + WAIT_S
            # Whoever stood behind the one that is stopped may go already.
            while lock.stat().st_mtime < self.ticks.now_s and self.still_waits(ledger):
                assert time.monotonic() < end, "a writer whose calls wait shows nothing"
                time.sleep(0.002)

    def still_waits(self, ledger):
        return any(one.ledger is ledger and not one.future.done() for one in self.waiting)

    def wake(self):
        if self.asleep is not None:
            del self.asleep._writer._is_somebodys_turn
            self.asleep = None
            self.settled()

    def settled(self):
        """Let every ledger see what the others have done, until none has anything to do any more."""
        for _ in range(min(4, 2 * len(self.ledgers))):
            for ledger in self.awake():
                done = ledger.look_after()
                if done is not None:
                    done.result(WAIT_S)

    def compare(self):
        self.settled()
        for name, (future, kind, cents) in self.answers.items():
            assert future.done(), (name, kind)
            found = future.result()
            assert type(found).__name__ == kind, (name, kind, found)
            assert kind == "Short" or found.call.quote.most.nano == cents * CENT, (name, cents, found)
        self.answers.clear()
        for one in self.waiting:
            assert not one.future.done(), (one.name, one.future.result())
        found = {}
        for task in "abc":
            payers = call("look", "0", task=task).payers
            for s in self.awake()[0].look(payers, "openai", "big-1", RULES).result(WAIT_S):
                found[task if s.budget.own else s.budget.name] = (s.spent.nano // CENT, s.held.nano // CENT)
                assert s.spent.nano + s.held.nano <= s.limit.nano
        assert found == {a: (self.spent[a], self.held(a)) for a in self.limits}
        assert sorted(self.desk.tickets()) == sorted(
            (one.name, "task" if account in "abc" else account) for one in self.waiting for account in one.short
        )

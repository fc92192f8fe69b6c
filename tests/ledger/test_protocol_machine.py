"""Whatever is asked of a ledger, in whatever order, it does what the model says: one machine for every kind of ledger.

A ledger of another kind needs one more class of `LedgerMachine` with its `backend`. With LOCKPIN_DEEP=1 the search is
deep and takes minutes.
"""

import os
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lockpin_core.call import Charge, Void
from lockpin_core.clock import instant, micros
from lockpin_core.errors import CommandError, LedgerError, LedgerUnavailable
from lockpin_core.ledger.protocol import Closed, Held, Link, Paused, Resolved, Short, Wait
from lockpin_core.ledger.questions import APPROVAL, ONCE, REFUSE, Asking, Choice
from lockpin_core.money import Money
from lockpin_core.usage import Unit
from tests.ledger import desk as d
from tests.ledger.backends import InMemory, OnSqlite, OnSqliteTwice
from tests.ledger.desk import WAIT_S, rules
from tests.ledger.draws import (
    AMOUNTS,
    ANN,
    BOB,
    COMMANDED,
    CONFIGURED,
    COSTS,
    JUMPS,
    LIMITS,
    LOOKERS,
    OWN,
    OWNERS,
    TASKS,
    WHO,
    WINDOWS,
    WISHES,
    budget_of,
    payers_of,
    sized,
    told,
)
from tests.ledger.model import Asked, Model
from tests.sim.model import NOBODY, Rule

SECOND, MICROSECOND = 10**6, timedelta(microseconds=1)
TERMS = st.tuples(st.none() | LIMITS, WINDOWS)  # of a task
ANSWERS = {"held": Held, "lower": Held, "short": Short, "behind": Short, "closed": Closed, "paused": Paused}


class LedgerMachine(RuleBasedStateMachine):
    """Asks a ledger and the model the same, and compares every answer, and after each step how all stands."""

    backend = None

    def __init__(self):
        super().__init__()
        self.desk = self.backend()
        self.model = Model(micros(self.desk.clock.now))
        self.futures, self.count = {}, 0
        self.used = set()  # questions whose answer has let a call go

    def draw_place(self, data):
        return data.draw(st.integers(0, self.desk.processes - 1), "place")

    def draw_seat(self, data, task):
        """Draw an account that may be there: a budget and a subject."""
        who = data.draw(WHO, "who")
        return data.draw(
            st.sampled_from([(self.model.own(task), task), *self.model.seats_of(task, "big-1", who)]), "account"
        )

    def draw_call(self, data, calls=None):
        return data.draw(st.sampled_from(list(self.model.calls if calls is None else calls)), "call")

    def ledger(self, data):
        return self.desk.ledgers[self.draw_place(data)]

    @initialize(configured=CONFIGURED)
    def begin(self, configured):
        self.define(configured)

    # Holding.

    @rule(data=st.data(), wish=WISHES)
    def hold(self, data, wish):
        self.ask(data, wish)

    @rule(data=st.data(), wishes=st.lists(WISHES, min_size=2, max_size=5))
    def hold_some(self, data, wishes):
        """Ask for some, with nothing between: there is more of a crowd."""
        for wish in wishes:
            self.ask(data, wish)
            self.stands_as_the_model_says()

    def ask(self, data, wish):
        self.count += 1
        call_id, place = f"c{self.count}", self.draw_place(data)
        patience, by = wish.patience_s, wish.by
        if patience:
            # No two end at one instant: who comes first is open between processes, as is who has a smaller version then.
            patience = patience * SECOND + 3 * self.count
            by = by if self.desk.processes == 1 else 0
        lower = tuple(number // (by + 1) for number in wish.most) if by else None
        asked = Asked(call_id, wish.task, wish.model, wish.most, lower, place, self.model.now, patience, wish.who)
        asked.sizes = [wish.most, *([lower] if lower and wish.knows_least else [])]
        wanted = self.model.hold(asked, waits=patience > 0, out_of_turn=wish.out_of_turn)
        stood = self.model.standings(wish.task, wish.model, wish.who)

        smaller = lower and sized(asked, lower)
        least = smaller.quote if smaller and wish.knows_least else None
        answer = self.desk.ledgers[place].hold(
            sized(asked, wish.most), self.rules, None if smaller is None else lambda _: smaller,
            Wait(timedelta(microseconds=patience), least) if patience else None, out_of_turn=wish.out_of_turn,
        )  # fmt: skip

        if wanted == "waits":
            self.futures[call_id] = answer, asked
            return
        found = self.judge(answer, wanted, asked)
        assert isinstance(found, Closed | Paused) or told(found.standings) == stood
        if isinstance(found, Short):
            short = self.model.short_on(asked, asked.most, {})
            assert {(s.budget.name, s.subject) for s in found.violations} == {key[:2] for key, _ in short}
            assert found.behind == (wanted == "behind")

    def judge(self, future, wanted, asked):
        """Compare an answer with the model's, and give it."""
        found = future.result(WAIT_S)
        assert isinstance(found, ANSWERS[wanted]), (asked, wanted, found)
        if isinstance(found, Held):
            quote = found.call.quote
            assert (quote.most.nano, quote.tokens) == (asked.most if wanted == "held" else asked.lower)
            assert (found.at, found.waited) == (instant(self.model.now), (self.model.now - asked.since) * MICROSECOND)
        return found

    @rule(data=st.data(), task=TASKS, who=WHO)
    def stop_task(self, data, task, who):
        """Let the calls of a task pause, of one user or of those without."""
        payers = d.call("x", "0", task=task, **payers_of(who)).payers
        asked = self.ledger(data).stop_task(payers, who="loop", data={})
        assert asked.result(WAIT_S) == ((task, who.user) not in self.model.stopped)
        self.model.stopped.add((task, who.user))

    @rule(task=TASKS)
    def resume_task(self, task):
        """Let all calls of a task go on."""
        stopped = {(name, user) for name, user in self.model.stopped if name == task}
        self.model.stopped -= stopped
        if stopped:
            self.desk.admin.task_resume(task, who="ada")
        else:
            with pytest.raises(CommandError):
                self.desk.admin.task_resume(task, who="ada")

    # What a person allows, and the next attempt.

    @rule(data=st.data(), wish=WISHES, slack=st.integers(-1, 9), short_by=st.integers(0, 40), again=st.booleans())
    def allow_once(self, data, wish, slack, short_by, again):
        """Put a question, answer it, and ask for a hold by the answer; and once more, when it is used or was of no use."""
        wish = self.wish_that_is_short(data, wish)
        self.stands_as_the_model_says()  # a limit that was just made may let some go that wait
        asked, question = self.put_question(data, wish, max(wish.most[0] + slack, 0), short_by)
        self.hold_by(data, wish, asked, question, short_by)
        theirs = [call for call in self.model.open() if self.model.calls[call].task == wish.task]
        for call_id in data.draw(st.lists(st.sampled_from(theirs), unique=True), "ends") if theirs else ():
            self.stands_as_the_model_says()
            self.settle_one(data, call_id, data.draw(COSTS, "cost"))
        if again:
            self.stands_as_the_model_says()
            asked = replace(asked, call=f"{asked.call}-again")
            self.hold_by(data, wish, asked, question, short_by)
        for seconds in data.draw(st.lists(JUMPS, max_size=2), "later"):  # spend may leave before what is allowed
            self.stands_as_the_model_says()
            self.let_pass(seconds)

    def wish_that_is_short(self, data, wish):
        """Let a call be one that its task alone is short for."""
        limited = [name for name, task in self.model.tasks.items() if task.usd is not None and not task.is_closed]
        if not limited:
            self.task_new(data, "a", st.tuples(st.integers(1, 12), WINDOWS))
            limited = ["a"]
        name = data.draw(st.sampled_from(sorted(limited)), "limited")
        account = self.model.account(self.model.own(name), name)
        left = account.limits()[0] - account.spent[0] - account.held[0]
        who = {None: NOBODY, "ann": ANN, "bob": BOB}[self.model.tasks[name].user]
        most = max(left, 0) + data.draw(st.integers(1, 12), "short by")
        return replace(wish, task=name, model="small-1", who=who, most=(most, wish.most[1]))

    def put_question(self, data, wish, needed, short_by):
        self.count += 1
        asked = Asked(f"c{self.count}", wish.task, wish.model, wish.most, None, 0, self.model.now, 0, wish.who)
        choices = (Choice(ONCE, Money(needed)), Choice(REFUSE))
        digest = self.count.to_bytes(32, "big")
        question = self.ledger(data).ask(
            Asking(
                APPROVAL, sized(asked, wish.most), digest, Money(needed), Money(short_by), choices, timedelta(seconds=60)
            )
        ).result(WAIT_S)  # fmt: skip
        assert self.ledger(data).question(question.id).result(WAIT_S) == question
        return asked, self.desk.admin.answer(question.id, ONCE, who="ann")

    def hold_by(self, data, wish, asked, question, short_by):
        place = self.draw_place(data)
        asked = replace(asked, place=place, sizes=[asked.most])
        used = question.id in self.used
        out_of_turn = wish.out_of_turn
        if not used and self.model.allow(asked, question.needed.nano, short_by, out_of_turn=out_of_turn):
            self.used.add(question.id)
            wanted = self.model.hold(asked, waits=False, out_of_turn=True)
            assert wanted == "held"
        else:
            wanted = self.model.hold(asked, waits=False, out_of_turn=out_of_turn)
        answer = self.desk.ledgers[place].hold(
            sized(asked, wish.most), self.rules, out_of_turn=out_of_turn, allowed=question.id
        )  # fmt: skip
        found = self.judge(answer, wanted, asked)
        stood = self.model.standings(wish.task, wish.model, wish.who)
        assert isinstance(found, Closed | Paused) or told(found.standings) == stood
        assert (self.ledger(data).question(question.id).result(WAIT_S).used is not None) == (question.id in self.used)

    @precondition(lambda self: self.model.open())
    @rule(data=st.data(), wish=WISHES, cost=st.none() | COSTS, keep=st.booleans())
    def next_attempt(self, data, wish, cost, keep):
        self.count += 1
        before = self.draw_call(data, self.model.open())
        place, first_held = self.draw_place(data), self.model.calls[before].held
        asked = Asked(f"c{self.count}", wish.task, wish.model, wish.most, None, place, self.model.now, 0, wish.who)
        wanted, is_ended = self.model.swap(before, cost, asked, keep=keep)
        usage = None if cost is None else Charge(Money(cost[0]), {Unit.INPUT: cost[1]}, cost[1], "m", "default")

        answer = self.desk.ledgers[place].replace(
            before, usage or Void("failed"), sized(asked, wish.most), self.rules, keep=keep
        )
        resolved, found = answer.result(WAIT_S)

        assert (resolved is not None) == is_ended
        if resolved is not None:
            assert (resolved.first, resolved.charge, resolved.held.nano) == (True, usage, first_held[0])
        assert isinstance(found, ANSWERS[wanted]), (asked, wanted, found)
        stood = self.model.standings(wish.task, wish.model, wish.who)
        assert isinstance(found, Closed | Paused) or told(found.standings) == stood
        if wanted == "held" and data.draw(st.booleans(), "again"):
            again = self.desk.ledgers[place].replace(
                before, usage or Void("failed"), sized(asked, wish.most), self.rules, keep=keep
            )
            first, second = again.result(WAIT_S)
            assert (first.first, type(second)) == (False, Held)

    @precondition(lambda self: self.model.open())
    @rule(data=st.data(), what=st.sampled_from(("hold_again", "ask_after", "resolve_what_was_never_held")))
    def ask_what_changes_nothing(self, data, what):
        getattr(self, what)(data)

    def hold_again(self, data):
        call_id = self.draw_call(data, self.model.open())
        entry = self.model.calls[call_id]
        again = sized(Asked(call_id, entry.task, entry.model, entry.held, None, 0, 0, 0, entry.who), entry.held)
        found = self.ledger(data).hold(again, self.rules).result(WAIT_S)
        assert (type(found), micros(found.at)) == (Held, entry.at)

    @precondition(lambda self: self.model.waiting)
    @rule(data=st.data(), by_future=st.booleans())
    def leave(self, data, by_future):
        one = data.draw(st.sampled_from(self.model.waiting), "waiter")
        if by_future:
            self.futures[one.call][0].cancel()
        else:
            self.desk.ledgers[one.place].cancel(one.call)
        self.model.waiting.remove(one)
        assert self.futures.pop(one.call)[0].cancelled()

    # What becomes of holds.

    @precondition(lambda self: self.model.calls)
    @rule(data=st.data(), most=AMOUNTS)
    def shrink(self, data, most):
        call_id = self.draw_call(data)
        found = self.ledger(data).shrink(call_id, Money(most[0]), most[1]).result(WAIT_S)
        assert found == self.model.shrink(call_id, most)

    @precondition(lambda self: self.model.open())
    @rule(data=st.data(), cost=COSTS)
    def settle(self, data, cost):
        self.settle_one(data, self.draw_call(data, self.model.open()), cost)

    @precondition(lambda self: self.model.calls)
    @rule(data=st.data(), how=st.sampled_from(("settle_again", "settle_again", "void", "cancel")))
    def resolve_any(self, data, how):
        """End a call in any way, whether or not it has ended before."""
        getattr(self, how)(data)

    def settle_again(self, data):
        self.settle_one(data, self.draw_call(data), data.draw(COSTS, "cost"))

    def settle_one(self, data, call_id, cost):
        entry = self.model.calls[call_id]
        held, was_expired = entry.held, entry.has_expired
        first = self.model.settle(call_id, cost)
        charge = Charge(Money(cost[0]), {Unit.INPUT: cost[1]}, cost[1], "m", "default")
        found = self.ledger(data).settle(call_id, charge).result(WAIT_S)
        self.check_resolved(found, call_id, first)
        if first:
            assert found.charge == charge
            assert found.over_hold == (cost[0] > held[0] or 0 < held[1] < cost[1])
        assert found.charge is not None or not was_expired

    def void(self, data):
        call_id = self.draw_call(data)
        first = self.model.resolve(call_id, (0, 0))
        found = self.ledger(data).void(call_id, Void("not_sent")).result(WAIT_S)
        self.check_resolved(found, call_id, first)
        assert not first or found.charge is None

    def check_resolved(self, found, call_id, first):
        entry = self.model.calls[call_id]
        assert (type(found), found.call_id, found.first) == (Resolved, call_id, first)
        assert (found.held.nano, found.task_spent.nano) == (entry.held[0], self.model.spent(entry.task))

    def cancel(self, data):
        call_id = self.draw_call(data)
        self.model.resolve(call_id, (0, 0))
        self.ledger(data).cancel(call_id)

    @precondition(lambda self: self.model.open())
    @rule(data=st.data(), seconds=st.sampled_from((20, 2000, 90_000)))
    def defer(self, data, seconds):
        call_id = self.draw_call(data, self.model.open())
        self.count += 1
        hold_for = seconds * SECOND + 3 * self.count + 1
        self.model.calls[call_id].until = self.model.now + hold_for
        self.ledger(data).defer(call_id, timedelta(microseconds=hold_for), link(call_id)).result(WAIT_S)

    def ask_after(self, data):
        call_id = self.draw_call(data)
        entry, name = self.model.calls[call_id], link(call_id)
        found = self.ledger(data).deferred(name.provider, name.account, name.id).result(WAIT_S)
        is_open = entry.until is not None and entry.cost is None
        if not is_open and (not entry.has_expired or entry.is_booked):
            assert found is None
            return
        assert (found.call.id, micros(found.at), found.resolved) == (call_id, entry.at, not is_open)
        assert (found.call.quote.most.nano, found.call.quote.tokens) == entry.held

    def resolve_what_was_never_held(self, data):
        ledger, call_id = self.ledger(data), "c999"
        with pytest.raises(LedgerError, match="has no hold"):
            ledger.void(call_id, Void("not_sent")).result(WAIT_S)
        assert ledger.shrink(call_id, Money(0), 0).result(WAIT_S) is False
        ledger.cancel(call_id)

    # Processes and time.

    @rule(data=st.data(), in_order=st.booleans())
    def end(self, data, in_order):
        place = self.draw_place(data)
        here = [one for one in self.model.waiting if one.place == place]
        if in_order:
            self.desk.stop(place)
        else:
            self.desk.crash(place)
        for one in here:
            future, _ = self.futures.pop(one.call)
            assert not in_order or isinstance(future.exception(WAIT_S), LedgerUnavailable)
        self.model.end(place)
        self.desk.ledgers[place].define(self.rules, "lockpin.yaml").result(WAIT_S)

    @rule(seconds=JUMPS)
    def later(self, seconds):
        self.let_pass(seconds)

    def let_pass(self, seconds):
        """Let time pass, from one instant to the next at which something is due: at each it is seen what happens."""
        end = self.model.now + seconds * SECOND
        while self.model.now < end:
            due = [at for one in self.model.waiting for at in one.turns()]
            due += [entry.until for entry in self.model.calls.values() if entry.cost is None and entry.until]
            after = min((at for at in due if self.model.now < at), default=end)
            self.desk.clock.pass_by(microseconds=min(after, end) - self.model.now)
            self.model.pass_to(min(after, end))
            self.stands_as_the_model_says()

    # Commands and configurations.

    @rule(configured=CONFIGURED)
    def define(self, configured):
        self.rules = rules(*map(budget_of, configured), own=OWN)
        for ledger in self.desk.ledgers:
            ledger.define(self.rules, "lockpin.yaml").result(WAIT_S)
        names = {rule.name for rule in configured}
        for name in [name for name in self.model.rules if name not in ("x", "y") and name not in names]:
            del self.model.rules[name]
        for each in configured:
            self.model.put(each)

    @precondition(lambda self: self.desk.processes > 1)
    @rule(usd=LIMITS.map(lambda usd: usd + 1000))
    def define_by_a_stranger(self, usd):
        """A process with another configuration is turned away while one of the first runs; nothing has changed then."""
        theirs = rules(budget_of(Rule("daily", "machine", "day", usd)), own=OWN)
        with pytest.raises(LedgerError, match="has other budgets"):
            self.desk.ledgers[0].define(theirs, "elsewhere.yaml").result(WAIT_S)

    @rule(data=st.data(), what=st.sampled_from(("budget_set", "budget_rm", "raise_limit", "undo_raises", "reset")))
    def command_of_a_budget(self, data, what):
        getattr(self, what)(data)

    @rule(data=st.data(), what=st.sampled_from(("task_new", "task_new", "task_close")))
    def command_of_a_task(self, data, what):
        getattr(self, what)(data, data.draw(TASKS, "task"))

    def budget_set(self, data):
        given = data.draw(COMMANDED, "given")
        before = self.model.rules.get(given.name)
        found = self.desk.admin.budget_set(budget_of(given), who="ann")
        assert (found and found.budget) == (before and budget_of(before))
        self.model.put(given)

    def budget_rm(self, data):
        name = data.draw(st.sampled_from(("x", "y", "daily", "none")), "name")
        if name not in ("x", "y") or name not in self.model.rules:
            with pytest.raises(CommandError):
                self.desk.admin.budget_rm(name, who="ann")
            return
        self.desk.admin.budget_rm(name, who="ann")
        del self.model.rules[name]

    def task_new(self, data, task, terms=TERMS):
        usd, (kind, period) = data.draw(terms, "terms")
        words = f"rolling:{period // 1000}" if period else kind
        limit = None if usd is None else Money(usd)
        user = data.draw(OWNERS, "owner")
        self.desk.admin.task_new(task, limit=limit, window=words, who="ann", user=user)
        self.model.put_task(task, usd, kind, period, user)

    def task_close(self, data, task):
        if task in self.model.tasks:
            self.desk.admin.task_close(task, who="ann")
            self.model.close(task)
        else:
            with pytest.raises(CommandError):
                self.desk.admin.task_close(task, who="ann")

    def raise_limit(self, data):
        task, by = data.draw(st.tuples(TASKS, st.integers(0, 20)), "task and amount")
        given, subject = self.draw_seat(data, task)
        if given.usd is None or not by:
            with pytest.raises(CommandError):
                self.desk.admin.raise_budget(budget_of(given), subject, Money(by), who="ann")
            return
        self.model.raise_limit(self.model.key(given, subject), by)
        found = self.desk.admin.raise_budget(budget_of(given), subject, Money(by), who="ann")
        assert found.limit.nano == self.model.account(given, subject).limits()[0]

    def undo_raises(self, data):
        task = data.draw(TASKS, "task")
        given, subject = self.draw_seat(data, task)
        if not self.model.account(given, subject).raised:
            with pytest.raises(CommandError):
                self.desk.admin.undo_raises(budget_of(given), subject, who="ann")
            return
        self.model.forget_raises(self.model.key(given, subject))
        assert self.desk.admin.undo_raises(budget_of(given), subject, who="ann").limit.nano == given.usd

    def reset(self, data):
        task = data.draw(TASKS, "task")
        given, subject = self.draw_seat(data, task)
        spent, held = self.model.account(given, subject).spent, self.model.account(given, subject).held
        before, after = self.desk.admin.reset_budget(budget_of(given), subject, who="ann")
        self.model.reset(given, subject)
        assert [(s.spent.nano, s.held.nano) for s in (before, after)] == [(spent[0], held[0]), (0, held[0])]

    @precondition(lambda self: self.model.calls)
    @rule(data=st.data(), usd=st.integers(0, 40))
    def correct(self, data, usd):
        call_id = self.draw_call(data)
        entry = self.model.calls[call_id]
        if entry.cost is None or entry.cost[0] == usd:
            with pytest.raises(CommandError):
                self.desk.admin.correct(call_id, Money(usd), reason="told", who="ann")
            return
        found = self.desk.admin.correct(call_id, Money(usd), reason="told", who="ann")
        assert (found.before.nano, found.after.nano) == (entry.cost[0], usd)
        self.model.correct(call_id, usd)

    # How all stands.

    @invariant()
    def stands_as_the_model_says(self):
        if not self.model.rules:
            return
        self.model.expire()
        self.model.serve()
        self.desk.look_after_all()
        for call_id, wanted in self.model.answers.items():
            future, asked = self.futures.pop(call_id)
            assert future.done(), (call_id, wanted)
            self.judge(future, wanted, asked)
        self.model.answers.clear()
        assert all(not future.done() for future, _ in self.futures.values()), self.futures
        for task, who in LOOKERS:
            wanted = self.model.standings(task, "big-1", who)
            for ledger in self.desk.ledgers:
                payers = d.call("look", "0", task=task, **payers_of(who)).payers
                assert told(ledger.look(payers, "openai", "big-1", self.rules).result(WAIT_S)) == wanted
        assert {*self.desk.tickets()} == {(one.call, key[0]) for one in self.model.waiting for key in one.short}
        self.check_tasks()
        assert [task for task in self.model.tasks if self.model.beyond(task) > 0] == []

    def check_tasks(self):
        found = {
            t.name: (t.spent.nano, t.held.nano, t.limit and t.limit.nano, t.closed) for t in self.desk.admin.tasks()
        }
        wanted = {}
        for name, task in self.model.tasks.items():
            own = self.model.account(self.model.own(name), name)
            wanted[name] = (own.spent[0], own.held[0], own.limits()[0], task.is_closed)
        assert found == wanted

    def teardown(self):
        """End all in order, let what waits for usage expire: nothing is left, and the books prove it."""
        for place in range(self.desk.processes):
            self.desk.stop(place)
        self.desk.clock.pass_by(days=2)
        self.desk.look_after_all()
        try:
            assert self.desk.tickets() == []
            self.desk.prove()
        finally:
            self.desk.close()


def link(call_id):
    return Link("openai", bytes(16), f"resp_{call_id}")


IS_DEEP = os.environ.get("LOCKPIN_DEEP") == "1"


def searched(machine, quick):
    """Give a machine as a test: with so many plays, or very many."""
    machine.TestCase.settings = settings(
        max_examples=1000 if IS_DEEP else quick, stateful_step_count=60 if IS_DEEP else 30, deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )  # fmt: skip
    return pytest.mark.timeout(3600 if IS_DEEP else 120)(machine.TestCase)


class MemoryMachine(LedgerMachine):
    backend = InMemory


class SqliteMachine(LedgerMachine):
    backend = OnSqlite


class SqliteMachineOfTwo(LedgerMachine):
    backend = OnSqliteTwice


TestMemory = searched(MemoryMachine, 60)
TestSqlite = searched(SqliteMachine, 30)
TestSqliteOfTwo = searched(SqliteMachineOfTwo, 20)

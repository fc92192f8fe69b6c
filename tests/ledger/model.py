"""What a ledger is, in plain integers: calls, limits, and who waits. Everything is added up anew at each look.

Amounts are pairs of nanodollars and tokens, instants microseconds since 1970. What a budget is, and when something fits
one, is said where the play's judge says it. Knows no rows, no files and no ledger.
"""

import contextlib
from dataclasses import dataclass, field, replace

from tests.sim.model import DAY, NOBODY, Account, Rule, Who, leaves_at

MACHINE = "m"


@dataclass
class Entry:
    """A call that was held."""

    task: str
    model: str
    at: int
    held: tuple  # what is left of the hold
    place: int  # the process that holds it
    who: Who
    keys: set = field(default_factory=set)  # of its task's own accounts that count it
    cost: tuple | None = None  # None: in flight
    until: int | None = None  # deferred, and until when
    has_expired: bool = False
    is_booked: bool = False  # usage has come late, or a person has said what it cost


@dataclass
class Asked:
    """A call that is asked for, and may wait."""

    call: str
    task: str
    model: str
    most: tuple
    lower: tuple | None  # of a smaller version
    place: int
    since: int
    patience: int
    who: Who = NOBODY
    sizes: list = field(default_factory=list)  # that it may wait for room for, the larger first
    short: set = field(default_factory=set)  # accounts that it waits on

    def turns(self):
        return self.since + self.patience // 3, self.since + self.patience


@dataclass
class Task:
    """What commands have said of a task."""

    usd: int | None = None
    window: str = "lifetime"
    period: int = 0
    is_closed: bool = False
    user: str | None = None  # whose it is


class Model:
    """The books, and whose turn it is."""

    def __init__(self, now):
        self.now = now
        self.rules, self.limits, self.tasks = {}, {}, {}
        self.calls, self.waiting = {}, []
        self.raises, self.forgotten = {}, {}  # by account
        self.allowed = {}  # open calls that were allowed something, with the account's key
        self.once = {}  # by account: those raises which are for one call
        self.spared = {}  # by account: what persons have raised while it was above its limit by what was allowed
        self.answers = {}  # of those who have waited: "held", "lower", "short", "closed" or "paused"
        self.stopped = set()  # whose calls of which task pause

    # Accounts.

    def seats_of(self, task, model, who):
        """List the accounts of a call, each as its budget and its subject: the task's own, then by name."""
        rules = [self.own(task), *(rule for _, rule in sorted(self.rules.items()))]
        applying = [rule for rule in rules if rule.applies("", model, who)]
        return [(rule, subject) for rule in applying for subject in rule.subjects(task, MACHINE, who)]

    def own(self, task):
        told = self.tasks.get(task, Task())
        if told.usd is None:
            return Rule("task", "task", "lifetime", enforce=False, owner=told.user)
        return Rule("task", "task", told.window, told.usd, period=told.period, owner=told.user)

    def key(self, rule, subject):
        day = self.now // DAY if rule.window == "day" else None
        return rule.name, subject, rule.window, rule.period, day, rule.owner

    def belongs(self, entry, rule, key):
        _, subject, _, _, day, _ = key
        theirs = rule.subjects(entry.task, MACHINE, entry.who) if rule.applies("", entry.model, entry.who) else ()
        return subject in theirs and (day is None or entry.at // DAY == day)

    def has_left(self, at, rule):
        return rule.window == "rolling" and leaves_at(at, rule.period) <= self.now

    def account(self, rule, subject):
        """Add up what an account has spent and holds now, and what its limit was raised by."""
        return self.account_at(rule, self.key(rule, subject))

    def account_at(self, rule, key):
        found = Account(rule)
        for call, entry in self.calls.items():
            if not self.belongs(entry, rule, key):
                continue
            if entry.cost is None:
                _add(found.held, entry.held)
            elif not self.has_left(entry.at, rule) and call not in self.forgotten.get(key, ()):
                _add(found.spent, entry.cost)
        found.raised = sum(usd for at, usd in self.raises.get(key, ()) if not self.has_left(at, rule))
        return found

    # What was allowed once.

    def used(self, key):
        """Add up what a task's own account has spent and holds, as far as it counts there."""
        rolls, gone = key[2] == "rolling", self.forgotten.get(key, ())
        mine = [(call, entry) for call, entry in self.calls.items() if key in entry.keys]
        spent = [(c, e) for c, e in mine if e.cost is not None and c not in gone]
        left = {call for call, entry in spent if rolls and leaves_at(entry.at, key[3]) <= self.now}
        return sum(e.held[0] for _, e in mine if e.cost is None) + sum(e.cost[0] for c, e in spent if c not in left)

    @contextlib.contextmanager
    def freeing(self):
        """Do something that may make room: what was allowed once goes as far as it does."""
        before = {key: self.used(key) for key in self.once}
        yield
        for key, used in before.items():
            self.free(key, used - self.used(key))

    def free(self, key, room):
        for part in sorted(self.parts(key), key=lambda part: -part[0]):
            back = max(0, min(part[1], room))
            part[1] -= back
            room -= back

    def parts(self, key):
        """List what was allowed once on an account and has not left it."""
        rolls = key[2] == "rolling"
        return [p for p in self.once.get(key, ()) if not rolls or leaves_at(p[0], key[3]) > self.now]

    def pass_to(self, now):
        """Let time pass, from one instant to the next at which something leaves an account."""
        rolling = [key for key in self.once if key[2] == "rolling"]
        ends = {now}
        for key in rolling:
            at = [entry.at for entry in self.calls.values() if key in entry.keys] + [p[0] for p in self.once[key]]
            ends |= {end for each in at if self.now < (end := leaves_at(each, key[3])) < now}
        for end in sorted(ends):
            before = {key: (self.used(key), sum(p[1] for p in self.parts(key))) for key in rolling}
            self.now = end
            for key, (used, parts) in before.items():
                self.free(key, used - self.used(key) - parts + sum(p[1] for p in self.parts(key)))

    def forget_raises(self, key):
        for kept in (self.raises, self.once, self.spared):
            kept.pop(key, None)
        self.allowed = {call: its for call, its in self.allowed.items() if its != key}

    def raise_limit(self, key, by):
        self.raises.setdefault(key, []).append((self.now, by))
        self.spared[key] = self.spared.get(key, 0) + by

    def beyond(self, task):
        """Give what raises a task's limit beyond what it needs: what was allowed is no more than it is above its own."""
        own = self.own(task)
        key = self.key(own, task)
        allowed, account = sum(part[1] for part in self.parts(key)), self.account(own, task)
        if own.usd is None:
            return 0
        above = account.spent[0] + account.held[0] - (account.limits()[0] - allowed)
        return allowed - max(above, 0) - self.spared.get(key, 0)

    def standings(self, task, model, who):
        """List (budget, subject, spent, held, limits) of a call's accounts."""
        seats = [(subject, self.account(rule, subject)) for rule, subject in self.seats_of(task, model, who)]
        return [(a.rule.name, subject, tuple(a.spent), tuple(a.held), a.limits()) for subject, a in seats]

    # Holding and waiting.

    def short_on(self, one, most, ahead):
        """List the accounts that an amount does not fit, beside what is set aside; each as (key, account)."""
        found = []
        for rule, subject in self.seats_of(one.task, one.model, one.who):
            key, account = self.key(rule, subject), self.account(rule, subject)
            _add(account.held, ahead.get(key, (0, 0)))
            if rule.enforce and not account.fits(*most):
                found.append((key, account))
        return found

    def may_wait(self, one, most):
        return all(account.is_transient(*most) for _, account in self.short_on(one, most, {}))

    def ahead(self, waiters):
        """Set aside what the protected ones need, on the accounts that were ever short for them."""
        found = {}
        for one in waiters:
            if self.now >= one.turns()[0]:
                for key in one.short:
                    _add(found.setdefault(key, [0, 0]), one.sizes[0])
        return found

    def hold(self, asked, *, waits, out_of_turn):
        """Say what becomes of a call: "held", "lower", "short", "behind", "closed", "paused" or "waits"."""
        if shut := self.shut(asked):
            return shut
        ahead = {} if out_of_turn else self.ahead(self.waiting)
        if waits:
            found = self.turn_of(asked, ahead)
            if found is None:
                self.waiting.append(asked)
            return found or "waits"
        if found := self.try_it(asked, ahead):
            return found
        return "short" if self.short_on(asked, asked.most, {}) else "behind"

    def turn_of(self, one, ahead):
        """Give the answer of a call that may wait; None: it waits."""
        if shut := self.shut(one):
            return shut
        if not self.short_on(one, one.most, ahead):
            return self.take(one, "held")
        sizes = [size for size in one.sizes if self.may_wait(one, size)]
        if sizes and sizes[0] is not one.most and not self.short_on(one, one.lower, ahead):
            return self.take(one, "lower")
        if sizes and self.now < one.turns()[1]:
            one.sizes, one.short = sizes, one.short | {key for key, _ in self.short_on(one, sizes[0], ahead)}
            return None
        return self.try_it(one, {}) or "short"

    def try_it(self, asked, ahead):
        """Hold a call, or its smaller version."""
        if not self.short_on(asked, asked.most, ahead):
            return self.take(asked, "held")
        if asked.lower is not None and not self.short_on(asked, asked.lower, ahead):
            return self.take(asked, "lower")
        return None

    def take(self, asked, how):
        most = asked.most if how == "held" else asked.lower
        own = self.own(asked.task)
        keys = {self.key(own, asked.task)} if own.applies("", asked.model, asked.who) else set()
        self.calls[asked.call] = Entry(asked.task, asked.model, self.now, most, asked.place, asked.who, keys)
        self.tasks.setdefault(asked.task, Task())
        return how

    def shut(self, asked):
        """Say why no call of a task goes now: it is "closed", or "paused"; None: it may."""
        task = self.tasks.get(asked.task)
        if task is not None and task.is_closed and task.user == asked.who.user:
            return "closed"
        return "paused" if (asked.task, asked.who.user) in self.stopped else None

    def serve(self):
        """Try all who wait in their order, and once more after one has gone: another may be short on more then."""
        before = None
        while before != len(self.waiting):
            before, stayed = len(self.waiting), []
            for one in self.waiting:
                found = self.turn_of(one, self.ahead(stayed))
                if found is None:
                    stayed.append(one)
                else:
                    self.answers[one.call] = found
            self.waiting = stayed

    # What a person allows, and the next attempt.

    def allow(self, asked, needed, short_by, *, out_of_turn):
        """Say whether a call gets what its task is short of, by a question that showed these amounts."""
        if self.shut(asked) or asked.most[0] > needed:
            return False
        own = self.own(asked.task)
        key = self.key(own, asked.task)
        ahead = {} if out_of_turn else self.ahead(self.waiting)
        ahead.pop(key, None)
        short = self.short_on(asked, asked.most, ahead)
        if any(account.rule.name != "task" for _, account in short):
            return False
        if not short:
            return own.applies("", asked.model, asked.who)
        ((_, account),) = short
        more = asked.most[0] - account.limits()[0] + account.spent[0] + account.held[0]
        if more > max(asked.most[0], short_by):
            return False
        part = [self.now, more]
        self.raises.setdefault(key, []).append(part)
        self.once.setdefault(key, []).append(part)
        self.allowed[asked.call] = key
        return True

    def swap(self, call, cost, asked, *, keep):
        """Say what becomes of the next attempt of a call, and whether the one before has ended; `cost` None: void."""
        before = self.snapshot()
        self.resolve(call, cost or (0, 0))
        found = self.shut(asked) or self.try_it(asked, {}) or "short"
        if found == "held":
            return found, True
        after = self.snapshot()
        self.restore(before)
        if cost is None and found == "short" and self.inherits(call, asked):
            return "held", True
        self.restore(before if keep else after)
        return found, not keep

    def inherits(self, call, asked):
        """Let the next attempt have what it needs of what the one before was allowed, if that was enough for both."""
        entry, given, own = self.calls[call], self.allowed.pop(call, None), self.own(asked.task)
        if asked.task != entry.task or asked.most[0] > entry.held[0] or not own.applies("", asked.model, asked.who):
            return False
        if given is None or self.key(own, asked.task) != given:
            return False
        held, entry.cost = entry.held[0], (0, 0)
        if not self.try_it(asked, {}):
            return False
        self.allowed[asked.call] = given
        self.free(given, held - asked.most[0])
        return True

    def snapshot(self):
        calls = {call: replace(entry, keys={*entry.keys}) for call, entry in self.calls.items()}
        return calls, dict(self.allowed), {key: [part[1] for part in parts] for key, parts in self.once.items()}

    def restore(self, snapshot):
        calls, allowed, once = snapshot
        self.calls = {call: replace(entry, keys={*entry.keys}) for call, entry in calls.items()}
        self.allowed = dict(allowed)
        for key, amounts in once.items():
            for part, nano in zip(self.once[key], amounts, strict=True):
                part[1] = nano

    # What becomes of holds.

    def open(self):
        return [call for call, entry in self.calls.items() if entry.cost is None]

    def shrink(self, call, most):
        entry = self.calls[call]
        is_less = entry.cost is None and (most[0] < entry.held[0] or most[1] < entry.held[1])
        if is_less:
            with self.freeing():
                entry.held = tuple(map(min, entry.held, most))
        return is_less

    def resolve(self, call, cost):
        """Say whether this is the hold's one resolution."""
        entry = self.calls[call]
        is_first = entry.cost is None
        if is_first:
            with self.freeing():
                entry.cost = cost
            self.allowed.pop(call, None)
        return is_first

    def settle(self, call, cost):
        entry = self.calls[call]
        if entry.has_expired and not entry.is_booked:
            with self.freeing():
                entry.cost, entry.is_booked = cost, True
            return False
        return self.resolve(call, cost)

    def correct(self, call, usd):
        entry = self.calls[call]
        with self.freeing():
            entry.cost, entry.is_booked = (usd, entry.cost[1]), True

    def expire(self):
        for call in self.open():
            entry = self.calls[call]
            if entry.until is not None and entry.until <= self.now:
                entry.has_expired = self.resolve(call, entry.held)

    def end(self, place):
        """A process is gone: what it holds is charged in full, unless it waits for usage; who waits with it goes."""
        for call in self.open():
            entry = self.calls[call]
            if entry.place == place and entry.until is None:
                self.resolve(call, entry.held)
        self.waiting = [one for one in self.waiting if one.place != place]

    # Commands.

    def put(self, rule):
        """Put a budget in force; a limit that is set anew takes the place of what was raised."""
        self.rules[rule.name] = rule
        if self.limits.get(rule.name) != (rule.usd, rule.tokens):
            self.raises = {key: raised for key, raised in self.raises.items() if key[0] != rule.name}
        self.limits[rule.name] = rule.usd, rule.tokens

    def put_task(self, task, usd, window, period, user):
        before = self.tasks.get(task, Task())
        self.tasks[task] = Task(before.usd if usd is None else usd, window, period, user=user or before.user)
        own = self.own(task)
        key = self.key(own, task)
        if usd is not None:
            self.forget_raises(key)
        for entry in self.calls.values():
            if entry.task == task and self.belongs(entry, own, key):
                entry.keys.add(key)

    def close(self, task):
        self.tasks[task] = replace(self.tasks[task], is_closed=True)

    def reset(self, rule, subject):
        key = self.key(rule, subject)
        ended = {c for c, e in self.calls.items() if e.cost is not None and self.belongs(e, rule, key)}
        with self.freeing():
            self.forgotten.setdefault(key, set()).update(ended)

    def spent(self, task):
        """Add up what a task has cost over all its time."""
        return sum(e.cost[0] for e in self.calls.values() if e.task == task and e.cost is not None)


def _add(sums, amounts):
    for place, amount in enumerate(amounts):
        sums[place] += amount

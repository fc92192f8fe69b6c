"""The books as the contract describes them: who is charged, what fits, what was spent when. Judges every row.

It knows no ledger and shares no code with one: plain integers, nanodollars and microseconds since 1970. A call is
charged to every budget that applies. It fits where, for every enforced limit, spent + held + quote ≤ limit, in dollars
and in tokens. Hold and charge belong to the window of the instant of the hold; a rolling window counts an open hold in
full and a spend until the first step boundary (a forty-eighth of the period) at or after its instant + period. Time is
the later of the wall clock and the last row.
"""

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

DAY = 86_400 * 10**6
UNTOLD = "untold"  # a reason that the books do not keep


class Fault(Exception):
    """A promise was broken; the message says which and where."""


@dataclass(frozen=True)
class Who:
    """Who calls."""

    user: str | None = None
    groups: tuple = ()
    tags: tuple = ()  # "k=v"


NOBODY = Who()
ANYBODY = object()


@dataclass
class Rule:
    """A budget."""

    name: str
    scope: str  # "task" | "machine" | "user" | "group" | "tag"
    window: str  # "lifetime" | "day" | "rolling"
    usd: int | None = None
    tokens: int | None = None
    enforce: bool = True
    models: tuple = ()
    period: int = 0
    providers: tuple = ()
    users: tuple = ()
    groups: tuple = ()
    tags: tuple = ()
    owner: object = ANYBODY  # of a task's own: the user whose task it is

    def applies(self, provider, model, who=NOBODY):
        return (
            _matches(model, self.models)
            and _matches(provider, self.providers)
            and (self.owner is ANYBODY or self.owner == who.user)
            and (not self.users or who.user in self.users)
            and (not self.groups or any(group in self.groups for group in who.groups))
            and (not self.tags or any(tag in self.tags for tag in who.tags))
        )

    def subject(self, task, machine):
        return task if self.scope == "task" else machine

    def subjects(self, task, machine, who=NOBODY):
        """List whom it counts a call for, each on an account of its own."""
        if self.scope == "user":
            return [who.user] if who.user else []
        if self.scope == "group":
            return sorted(group for group in who.groups if group in self.groups)
        if self.scope == "tag":
            return sorted(tag for tag in who.tags if not self.tags or tag in self.tags)
        return [self.subject(task, machine)]

    def key(self, task, machine, at):
        return self.name, self.subject(task, machine), at // DAY if self.window == "day" else None


def _matches(name, globs):
    return not globs or any(fnmatchcase(name, glob) for glob in globs)


@dataclass
class Account:
    """What one subject of one budget has spent and holds in one window."""

    rule: Rule
    held: list = field(default_factory=lambda: [0, 0])
    spent: list = field(default_factory=lambda: [0, 0])
    leaves: list = field(default_factory=list)  # of a rolling one: (instant, usd, tokens)
    raised: int = 0
    raises: list = field(default_factory=list)  # of a rolling one: (instant, usd)
    forgotten: frozenset = frozenset()  # calls that were resolved before it was reset

    def copy(self):
        return replace(self, held=[*self.held], spent=[*self.spent], leaves=[*self.leaves], raises=[*self.raises])

    def pass_time(self, now):
        if self.raises:
            self.raises = [part for part in self.raises if part[0] > now]
        if not self.leaves:
            return
        gone = [part for part in self.leaves if part[0] <= now]
        if gone:
            self.leaves = [part for part in self.leaves if part[0] > now]
            self.spent[0] -= sum(part[1] for part in gone)
            self.spent[1] -= sum(part[2] for part in gone)

    def limits(self):
        usd = None if self.rule.usd is None else self.rule.usd + self.raised + sum(part[1] for part in self.raises)
        return usd, self.rule.tokens

    def fits(self, usd, tokens, freed=(0, 0)):
        """Say whether so much fits once so much has come free."""
        most, most_tokens = self.limits()
        return (not usd or most is None or self.spent[0] + self.held[0] - freed[0] + usd <= most) and (
            not tokens or most_tokens is None or self.spent[1] + self.held[1] - freed[1] + tokens <= most_tokens
        )

    def is_transient(self, usd, tokens):
        """Say whether only held amounts are in the way, if anything is."""
        most, most_tokens = self.limits()
        return (not usd or most is None or self.spent[0] + usd <= most) and (
            not tokens or most_tokens is None or self.spent[1] + tokens <= most_tokens
        )


@dataclass
class Hold:
    """A call that is held, or was."""

    call: str
    at: int
    task: str
    machine: str
    provider: str
    model: str
    held: list  # usd, tokens: what is left of it
    accounts: list
    charged: list | None = None  # after its resolution; [0, 0] of a void
    reason: str | None = None
    is_void: bool = False
    is_late: bool = False  # usage was booked after it had expired


def leaves_at(at, period):
    """Say when a spend leaves a rolling window: at the first multiple of period / 48 at or after `at` + period."""
    steps = -((at + period) * 48 // -period)
    return -(steps * period // -48)


class Model:
    """All accounts, and all calls by id."""

    def __init__(self, rules):
        self.rules = {rule.name: rule for rule in rules}
        self.own_limits = {}  # by task: what its own budget was set to
        self.closed = {}  # by task that was closed: whether it is
        self.accounts = {}
        self.calls = {}
        self.now = 0
        self.last = []  # to look behind the rows of the last commit: what each moved, or how things stood before it

    def tick(self, wall):
        """Give the instant of something that happens now."""
        return max(self.now, wall)

    def accounts_of(self, task, machine, provider, model, at):
        found = []
        for rule in self.rules.values():
            if rule.applies(provider, model):
                key = rule.key(task, machine, at)
                if key not in self.accounts:
                    self.accounts[key] = Account(self.rule_for(rule, task))
                found.append(key)
        return found

    def rule_for(self, rule, task):
        if rule.name != "task" or task not in self.own_limits:
            return rule
        return Rule("task", "task", rule.window, self.own_limits[task], None, True)

    def define(self, rule, at):
        """A budget of the configuration is this one from now on. Where its limit is another, what was added to it is
        gone; where it was not in force, its accounts count what they have missed in their current window.
        """
        before = self.rules.get(rule.name)
        if before == rule:
            return
        self.last.append(self.state())
        self.rules[rule.name] = rule
        for account in self.accounts.values():
            if account.rule.name == rule.name:
                if (account.rule.usd, account.rule.tokens) != (rule.usd, rule.tokens):
                    account.raised, account.raises = 0, []
                account.rule = rule
        if before is None:
            self.count_anew(rule, at)

    def remove(self, name):
        """A budget is in force no more; what is held on its accounts stays so."""
        if name in self.rules:
            self.last.append(self.state())
            del self.rules[name]

    def state(self):
        return dict(self.rules), {key: account.copy() for key, account in self.accounts.items()}

    def count_anew(self, rule, at):
        """Let the accounts of a budget count all calls of their current window, and no others."""
        for key, account in self.accounts.items():
            if key[0] == rule.name and key[2] in (None, at // DAY):
                account.held, account.spent, account.leaves = [0, 0], [0, 0], []
        for hold in self.calls.values():
            key = rule.key(hold.task, hold.machine, hold.at)
            if not rule.applies(hold.provider, hold.model) or key[2] not in (None, at // DAY):
                continue
            if key not in self.accounts:
                self.accounts[key] = Account(rule)
            if hold.call in self.accounts[key].forgotten:
                continue
            if key not in hold.accounts:
                hold.accounts.append(key)
            account, (usd, tokens) = self.accounts[key], hold.charged or hold.held
            part = account.held if hold.charged is None else account.spent
            end = None if rule.window != "rolling" or hold.charged is None else leaves_at(hold.at, rule.period)
            if end is not None and end <= at:
                continue
            part[0], part[1] = part[0] + usd, part[1] + tokens
            if end is not None and (usd or tokens):
                account.leaves.append((end, usd, tokens))

    def set_task(self, task, usd):
        self.own_limits[task] = usd
        if task in self.closed:
            self.closed[task] = False
        key = "task", task, None
        account = self.accounts.get(key)
        if account is None:
            self.accounts[key] = Account(self.rule_for(self.rules["task"], task))
        else:
            account.rule, account.raised = self.rule_for(self.rules["task"], task), 0

    def account_now(self, name, subject, at):
        rule = self.rules[name]
        key = name, subject, at // DAY if rule.window == "day" else None
        if key not in self.accounts:
            self.accounts[key] = Account(self.rule_for(rule, subject))
        return self.accounts[key]

    def raise_by(self, name, subject, usd, wall):
        """Add to the limit of a subject's window; to that of a rolling one for a period."""
        at, rule = self.tick(wall), self.rules[name]
        account = self.account_now(name, subject, at)
        if rule.window == "rolling":
            account.raises.append((leaves_at(at, rule.period), usd))
        else:
            account.raised += usd

    def reset(self, name, subject, wall):
        """Let spent count from now on; open holds stay."""
        account = self.account_now(name, subject, self.tick(wall))
        account.spent, account.leaves = [0, 0], []
        account.forgotten |= {hold.call for hold in self.calls.values() if hold.charged is not None}

    # What rows say.

    def hold(self, call, at, task, machine, provider, model, usd, tokens):
        if call in self.calls:
            raise Fault(f"call {call} is held twice")
        if self.closed.get(task):
            raise Fault(f"OVERSHOOT: call {call} is held, and its task is closed")
        keys = self.accounts_of(task, machine, provider, model, at)
        for key in keys:
            account = self.accounts[key]
            account.pass_time(at)
            if account.rule.enforce and not account.fits(usd, tokens):
                raise Fault(
                    f"OVERSHOOT: call {call} of {usd} nano, {tokens} tokens is held on {key}: limits "
                    f"{account.limits()}, spent {account.spent}, held {account.held}"
                )
        self.last.append([])
        for key in keys:
            self.move(key, held=(usd, tokens))
        self.calls[call] = Hold(call, at, task, machine, provider, model, [usd, tokens], keys)

    def fits(self, payers, at, usd, tokens):
        """Say whether so much would fit now."""
        accounts = [self.accounts[key] for key in self.accounts_of(*payers, at)]
        for account in accounts:
            account.pass_time(at)
        return all(account.fits(usd, tokens) for account in accounts if account.rule.enforce)

    def move(self, key, *, held=(0, 0), spent=(0, 0)):
        account = self.accounts[key]
        for place in (0, 1):
            account.held[place] += held[place]
            account.spent[place] += spent[place]
        self.last[-1].append((key, spent, held))

    def shrink(self, call, usd, tokens):
        hold = self.open_hold(call, "shrinks")
        if usd < 0 or tokens < 0 or usd > hold.held[0] or tokens > hold.held[1]:
            raise Fault(f"call {call} shrinks by {usd}, {tokens}, and holds {hold.held}")
        self.last.append([])
        for key in hold.accounts:
            self.move(key, held=(-usd, -tokens))
        hold.held = [hold.held[0] - usd, hold.held[1] - tokens]

    def open_hold(self, call, what):
        hold = self.calls.get(call)
        if hold is None:
            raise Fault(f"call {call} {what}, and was never held")
        if hold.charged is not None:
            raise Fault(f"call {call} {what}, and was resolved before")
        return hold

    def resolve(self, call, at, usd, tokens, *, reason, is_void):
        hold = self.open_hold(call, "is resolved")
        hold.charged, hold.reason, hold.is_void = [usd, tokens], reason, is_void
        if usd > hold.held[0] or tokens > hold.held[1]:
            raise Fault(
                f"OVERSHOOT: call {call} is charged {usd} nano, {tokens} tokens, and {hold.held} is held for it"
            )
        self.last.append([])
        for key in hold.accounts:
            self.move(key, held=(-hold.held[0], -hold.held[1]))
        self.spend(hold, at, usd, tokens)

    def spend(self, hold, at, usd, tokens):
        for key in hold.accounts:
            account = self.accounts[key]
            if hold.call in account.forgotten:
                continue
            if account.rule.window != "rolling":
                self.move(key, spent=(usd, tokens))
                continue
            account.pass_time(at)
            end = leaves_at(hold.at, account.rule.period)
            if end > at and (usd or tokens):
                account.leaves.append((end, usd, tokens))
                self.move(key, spent=(usd, tokens))

    def correct(self, call, at, usd, tokens):
        hold = self.calls.get(call)
        if hold is None or hold.charged is None:
            raise Fault(f"call {call} is corrected, and was not resolved")
        if hold.reason not in ("expired", UNTOLD) or hold.is_late:
            raise Fault(f"call {call} is charged twice: after {hold.reason}, by {usd} nano more")
        hold.charged, hold.is_late = [hold.charged[0] + usd, hold.charged[1] + tokens], True
        self.last.append([])
        self.spend(hold, at, usd, tokens)

    # What answers say.

    def judge_short(self, call, payers, usd, tokens, wall, seen, least=None, freed=None):
        """Say whether a hold that was not given was right not to be: as the books stood at some point of the last
        commit, which is where the answer comes from.

        `payers`: task, machine, provider, model. `seen`: what the answer says of each account, (spent, held, spent tokens, held tokens, limits) by (budget, subject).
        `least`: dollars and tokens of the smallest version; None: there is none. `freed`: on which accounts how much
        comes free for it.
        Gives whether only held money was in the way of the whole; the same of the smallest, and whether that one fits.
        """
        at = self.tick(wall)
        undone = []
        for place in range(len(self.last), -1, -1):
            keys = [key for key in self.accounts_of(*payers, at) if self.accounts[key].rule.enforce]
            for key in keys:
                self.accounts[key].pass_time(at)
            if self.looks_like(keys, seen):
                free_on, free = freed or ((), (0, 0))
                fits = all(self.accounts[key].fits(usd, tokens, free if key in free_on else (0, 0)) for key in keys)
                transient = all(self.accounts[key].is_transient(usd, tokens) for key in keys)
                lower = least is not None and all(self.accounts[key].is_transient(*least) for key in keys)
                has_room = least is not None and all(self.accounts[key].fits(*least) for key in keys)
                self.redo(undone)
                if fits:
                    raise Fault(f"FALSE REFUSAL: call {call} of {usd} nano, {tokens} tokens fits, and is not held")
                return transient, lower, has_room
            if place:
                undone.append(self.undo(self.last[place - 1]))
        self.redo(undone)
        stands = {key: (self.accounts[key].spent, self.accounts[key].held) for key in keys}
        raise Fault(f"call {call} is told of accounts as they never were: {seen}; they are {stands}")

    def looks_like(self, keys, seen):
        if any(budget not in self.rules for budget, _ in seen):
            return False  # it was told of a budget that is out of force by now
        for key in keys:
            account = self.accounts[key]
            told = seen.get(key[:2])
            if told != (account.spent[0], account.held[0], account.spent[1], account.held[1], *account.limits()):
                return False
        return True

    def undo(self, row, sign=-1):
        """Take a row back, or put it in again; give what undoes that."""
        if isinstance(row, tuple):
            now = self.rules, self.accounts
            self.rules, self.accounts = row
            return now
        for key, spent, held in row:
            account = self.accounts[key]
            for place in (0, 1):
                account.spent[place] += sign * spent[place]
                account.held[place] += sign * held[place]
        return row

    def redo(self, rows):
        for row in reversed(rows):
            self.undo(row, 1)

    def open_calls(self):
        return [hold for hold in self.calls.values() if hold.charged is None]

"""The books recomputed from rows alone, one after another, up to the first row that is wrong. Pure: knows no SQL.

What it keeps grows with accounts, tasks and writers, not with calls: of a call that is resolved nothing stays, and
whether a correction's call is on the books is asked of whoever has them.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from lockpin_core.budgets import Budget, account_id
from lockpin_core.clock import instant
from lockpin_core.ledger.accounts import TaskTerms, own_budget
from lockpin_core.ledger.chain import ZERO_HASH
from lockpin_core.ledger.definitions import budget_of
from lockpin_core.ledger.tally import Defined, Name, OpenCall, Tally, Task, amount, shown
from lockpin_core.refusals import stamp
from lockpin_core.windows import span_at

OUTSIDE = ("id", "prev", "hash")  # the columns that a row's hash does not cover
STATE_VERSION = 1
_TOLD = ("name", "source", "who", "loosens")  # what an event says of a definition beside the definition
_SUBJECT_COLUMN = {"task": "task", "machine": "machine"}

# The content comes in canonical order already.
_encode = json.JSONEncoder(separators=(",", ":")).encode

type Content = Mapping[str, Any]
type Spend = tuple[str, str, int, int, int]  # provider, model, nanodollars, tokens, instant of the hold


class Earlier(Protocol):
    """What is asked about rows that were applied already; `row` is the one that is being applied."""

    def is_resolved(self, call: str, held_at: int, row: int) -> bool:
        """Say whether a call whose hold was taken then has ended, or that this cannot be known."""

    def spends(self, column: str, subject: str, row: int) -> Iterable[Spend] | None:
        """Give what was charged and corrected for a subject; None: it cannot be known."""


class Nothing:
    """Knows nothing of earlier rows: what later ones say of them is taken as it is."""

    def is_resolved(self, call: str, held_at: int, row: int) -> bool:
        """See Earlier."""
        return True

    def spends(self, column: str, subject: str, row: int) -> Iterable[Spend] | None:
        """See Earlier."""
        return None


class Wrong(Exception):
    """The first row that is not as it must be."""

    def __init__(self, row: int, words: str, content: Content | None = None) -> None:
        self.row, self.words = row, words
        self.call: str | None = None if content is None else content.get("call")
        super().__init__(f"{title(row, content)}: {words}")


_NOTHING = Nothing()


class Replay:
    """Everything that rows say, up to the last one applied."""

    def __init__(self, earlier: Earlier = _NOTHING) -> None:
        self.row, self.at = 0, 0
        self.ends: dict[str, tuple[int, bytes]] = {}
        self.definitions: dict[str, Defined] = {}
        self.tasks: dict[str, Task] = {}
        self.accounts: dict[str, Tally] = {}
        self.open: dict[str, OpenCall] = {}
        self.calls, self.over_hold = 0, 0
        self._earlier = earlier
        self._generation = 0  # counts what may change limits
        self._content: Content = {}

    def apply(self, row: Content) -> None:
        """Take the next row, by column name; columns that are NULL may be left out. Raises Wrong."""
        content = {name: row[name] for name in sorted(row) if name not in OUTSIDE and row[name] is not None}
        self.step(row["id"], row.get("prev"), row.get("hash"), content)

    def step(self, row: int, prev: object, digest: object, content: Content) -> None:
        """Do the same for a row whose content comes in the order of its column names and without NULL."""
        if row <= self.row:
            raise Wrong(row, f"no row of that number can come after row {self.row}")
        if row != self.row + 1:
            raise Wrong(self.row + 1, f"it is missing; row {row} comes after row {self.row}")
        self.row, self._content = row, content
        try:
            self._follow(prev, digest)
            at = content["at"]
            if at < self.at:
                raise self._wrong(f"its time is before that of row {row - 1}, {stamp(instant(self.at))}")
            self.at = at
            kind = _KINDS.get(content["kind"])
            if kind is None:
                raise self._wrong(f'its kind is "{content["kind"]}", which no version writes')
            kind(self, content)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            # Content that the chain covers and no ledger writes: somebody made the chain anew.
            raise self._wrong(f"it does not say what its kind must say ({type(error).__name__}: {error})") from error

    def over_limit(self) -> list[str]:
        """List the accounts that stand above an enforced limit, which corrections and dear charges may bring about."""
        over = []
        for account in self.accounts.values():
            account.expire(self.at)
            if account.contains(self.at):
                self._put_limit(account)
                if account.is_over():
                    over.append(account.id)
        return over

    def state(self) -> dict[str, object]:
        """Give everything as JSON-ready data, for a checkpoint."""
        return {
            "version": STATE_VERSION, "row": self.row, "at": self.at, "calls": self.calls, "over_hold": self.over_hold,
            "ends": {writer: [seq, digest.hex()] for writer, (seq, digest) in self.ends.items()},
            "definitions": {name: defined.state() for name, defined in self.definitions.items()},
            "tasks": {name: task.state() for name, task in self.tasks.items()},
            "accounts": {name: account.state() for name, account in self.accounts.items()},
            "open": {call: held.state() for call, held in self.open.items()},
        }  # fmt: skip

    @classmethod
    def of(cls, state: Mapping[str, Any], earlier: Earlier = _NOTHING) -> Replay:
        """Go on from what `state` gave. Raises KeyError, TypeError or ValueError where it is no such thing."""
        if state["version"] != STATE_VERSION:
            raise ValueError(f"a state of version {state['version']}")
        made = cls(earlier)
        made.row, made.at, made.calls, made.over_hold = (state[n] for n in ("row", "at", "calls", "over_hold"))
        made.ends = {writer: (seq, bytes.fromhex(digest)) for writer, (seq, digest) in state["ends"].items()}
        made.definitions = {name: Defined.of(name, told) for name, told in state["definitions"].items()}
        made.tasks = {name: Task.of(told) for name, told in state["tasks"].items()}
        made.accounts = {name: Tally.of(name, told) for name, told in state["accounts"].items()}
        made.open = {call: OpenCall.of(told) for call, told in state["open"].items()}
        return made

    def _wrong(self, words: str) -> Wrong:
        return Wrong(self.row, words, self._content)

    def _follow(self, prev: object, digest: object) -> None:
        """Check a row's place in its writer's chain."""
        content = self._content
        try:
            written = hashlib.sha256(prev + _encode(content).encode()).digest()  # type: ignore[operator]
        except TypeError:  # a value that is no text and no number, or no `prev` at all
            written = None
        if written is None or written != digest:
            raise self._wrong("its content is not what was written: the hash differs")
        writer, seq = content["writer"], content["seq"]
        last, end = self.ends.get(writer, (0, ZERO_HASH))
        if seq != last + 1:
            raise self._wrong(f"rows of its writer {writer} are missing before it: its seq is {seq} after {last}")
        if prev != end:
            raise self._wrong(f"it does not follow the row before it of its writer {writer}: that row's hash differs")
        self.ends[writer] = (seq, written)

    def _account(self, name: str) -> Tally:
        account = self.accounts.get(name)
        if account is None:
            account = self.accounts[name] = Tally(name, Name.parse(name))
        else:
            account.expire(self.at)
        return account

    def _put_limit(self, account: Tally) -> None:
        """Put to an account the limit that is in force for it."""
        if account.generation != self._generation:
            account.generation, account.budget, account.fault = self._generation, None, ""
            defined = self.definitions.get(account.name.budget)
            if defined is None:
                account.fault = f'it is on budget "{account.name.budget}", which nobody has defined'
            elif defined.removed_at is None:
                self._put_budget(account, defined.budget)

    def _put_budget(self, account: Tally, budget: Budget) -> None:
        name = account.name
        if budget.own:
            task = self.tasks.get(name.subject)
            budget = own_budget(budget, None if task is None else task.terms)
        now = instant(self.at if name.start is None else name.start)
        if account_id(budget, name.subject, span_at(budget.window, now)) == account.id:
            account.budget = budget
        else:
            account.fault = f"it is on {shown(account.id)}, but the window in force is another"

    def _hold(self, content: Content) -> None:
        call, usd, tokens, at, task = (content[n] for n in ("call", "usd", "tokens", "at", "task"))
        names, data = _names(content["accounts"]), content.get("data")
        if call in self.open:
            raise self._wrong("its call has an open hold already")
        if usd < 0 or tokens < 0 or not names:
            raise self._wrong("it holds less than nothing, or on no account")
        unchecked = data is not None and bool(json.loads(data).get("unchecked"))
        if task not in self.tasks:
            self.tasks[task] = Task()
        elif self.tasks[task].terms.closed and not unchecked:
            raise self._wrong(f'its task "{task}" was closed')
        accounts = [self._account(name) for name in names]
        for account in accounts:
            self._judge(account, usd, tokens, checked=not unchecked)
        for account in accounts:
            account.balance.held_nano += usd
            account.balance.held_tokens += tokens
        facts = (content["machine"], content["provider"], content["model"])
        self.open[call] = OpenCall(at, usd, tokens, names, content["writer"], task, *facts)
        self.calls += 1

    def _judge(self, account: Tally, usd: int, tokens: int, *, checked: bool) -> None:
        """Check that a hold may be on an account. One that is of no budget in force now is only counted."""
        if not account.contains(self.at):
            raise self._wrong(f"it is outside the window of {shown(account.id)}")
        column = _SUBJECT_COLUMN.get(account.name.scope)
        if column is not None and self._content.get(column) != account.name.subject:
            raise self._wrong(f"{shown(account.id)} is not its own")
        self._put_limit(account)
        if account.fault:
            raise self._wrong(account.fault)
        if checked and not account.fits(usd, tokens):
            raise self._wrong(f"its hold of {amount(usd, tokens)} passes the limit of {account.words()}")

    def _shrink(self, content: Content) -> None:
        held, usd, tokens = self._held(content), content["usd"], content["tokens"]
        if not (0 <= usd <= held.usd and 0 <= tokens <= held.tokens):
            raise self._wrong(f"it takes {amount(usd, tokens)} off a hold of {amount(held.usd, held.tokens)}")
        if "accounts" in content:
            self._compare(content, held)
        self._release(held, usd, tokens)
        held.usd -= usd
        held.tokens -= tokens

    def _charge(self, content: Content) -> None:
        held, usd, tokens = self._held(content), content["usd"], content["tokens"]
        self._compare(content, held)
        if content["task"] != held.task:
            raise self._wrong(f'its task is "{content["task"]}", and its hold was of "{held.task}"')
        if usd < 0 or tokens < 0 or (content["kind"] == "void" and (usd or tokens)):
            raise self._wrong(f"it costs {amount(usd, tokens)}")
        self._release(held, held.usd, held.tokens)
        if usd or tokens:
            for name in held.accounts:
                self.accounts[name].spend(held.at, self.at, usd, tokens)
            self.tasks[held.task].spent_nano += usd
        if usd > held.usd or 0 < held.tokens < tokens:
            self.over_hold += 1
        del self.open[content["call"]]

    def _held(self, content: Content) -> OpenCall:
        held = self.open.get(content["call"])
        if held is None:
            raise self._wrong("its call has no open hold")
        return held

    def _compare(self, content: Content, held: OpenCall) -> None:
        names = _names(content["accounts"])
        if names != held.accounts and (len(names) != len(held.accounts) or set(names) != set(held.accounts)):
            raise self._wrong("it is on other accounts than its hold")
        if content.get("held_at", held.at) != held.at or (content["kind"] != "shrink" and "held_at" not in content):
            raise self._wrong(f"its hold was taken at {stamp(instant(held.at))}, which is not what it says")

    def _release(self, held: OpenCall, usd: int, tokens: int) -> None:
        for name in held.accounts:
            account = self._account(name)
            balance = account.balance
            balance.held_nano -= usd
            balance.held_tokens -= tokens
            if balance.held_nano < 0 or balance.held_tokens < 0:
                raise self._wrong(f"it takes more off {shown(name)} than that holds")

    def _correction(self, content: Content) -> None:
        call, usd, tokens, held_at = (content[n] for n in ("call", "usd", "tokens", "held_at"))
        if call in self.open:
            raise self._wrong("its call has not ended yet")
        if not self._earlier.is_resolved(call, held_at, self.row):
            raise self._wrong("no call of that id and instant has ended before it")
        for name in _names(content["accounts"]):
            self._account(name).spend(held_at, self.at, usd, tokens)
        self._task(content["task"]).spent_nano += usd

    def _task(self, name: str) -> Task:
        return self.tasks.setdefault(name, Task())

    def _decision(self, content: Content) -> None:
        self.calls += content.get("count", 1)

    def _event(self, content: Content) -> None:
        effect = _EVENTS.get(content["code"])
        if effect is not None:
            effect(self, json.loads(content["data"]))

    def _budget_defined(self, data: Content) -> None:
        told = {name: value for name, value in data.items() if name not in _TOLD}
        name = data["name"]
        self.definitions[name] = Defined(budget_of(name, told), self.at, data.get("source", "config"))
        self._generation += 1

    def _budget_removed(self, data: Content) -> None:
        self.definitions[data["name"]] = replace(self.definitions[data["name"]], removed_at=self.at)
        self._generation += 1

    def _account_opened(self, data: Content) -> None:
        name = data["account"]
        if name in self.accounts:
            raise self._wrong(f"{shown(name)} was opened before")
        self._account_caught_up(data)
        column = _SUBJECT_COLUMN[self.accounts[name].name.scope]
        spends = self._earlier.spends(column, self.accounts[name].name.subject, self.row)
        if spends is not None:
            self._compare_past(self.accounts[name], spends)

    def _compare_past(self, account: Tally, spends: Iterable[Spend]) -> None:
        """Check that a new account begins with what its window has seen."""
        past = Tally(account.id, account.name)
        budget = self.definitions[account.name.budget].budget
        for provider, model, usd, tokens, held_at in spends:
            if past.contains(held_at) and budget.applies(provider=provider, model=model):
                past.spend(held_at, self.at, usd, tokens)
        if (past.spent(), past.steps) != (account.spent(), account.steps):
            said, seen = amount(*account.spent()), amount(*past.spent())
            raise self._wrong(f"{shown(account.id)} begins with {said} spent, and the rows before say {seen}")

    def _account_caught_up(self, data: Content) -> None:
        name, account = data["account"], self._account(data["account"])
        missed = self._uncounted(account)
        held = (sum(call.usd for call in missed.values()), sum(call.tokens for call in missed.values()))
        if set(data["calls"]) != set(missed) or held != (data["held_nano"], data["held_tokens"]):
            raise self._wrong(f"what it says to be held on {shown(name)} is not what its open calls hold")
        for call in missed.values():
            call.accounts = (*call.accounts, name)
        account.balance.held_nano += held[0]
        account.balance.held_tokens += held[1]
        if account.name.period_ms is None:
            account.balance.spent_nano += data["spent_nano"]
            account.balance.spent_tokens += data["spent_tokens"]
        for leaves, usd, tokens in data.get("steps", ()):
            account.add_step(leaves, self.at, usd, tokens, 0)

    def _uncounted(self, account: Tally) -> dict[str, OpenCall]:
        """Find the open calls that belong to an account and are not on it."""
        budget, name = self.definitions[account.name.budget].budget, account.name
        return {
            call: held
            for call, held in self.open.items()
            if getattr(held, _SUBJECT_COLUMN[name.scope]) == name.subject
            and account.contains(held.at)
            and budget.applies(provider=held.provider, model=held.model)
            and account.id not in held.accounts
        }

    def _budget_raised(self, data: Content) -> None:
        account = self._account(data["account"])
        if account.name.period_ms is not None:
            account.add_step(data["leaves_at"], self.at, 0, 0, data["by_nano"])
        else:
            account.balance.raised_nano += data["by_nano"]

    def _budget_reset(self, data: Content) -> None:
        self._account(data["account"]).reset(self.row - 1, data["spent_nano"], data["spent_tokens"])

    def _task_new(self, data: Content) -> None:
        task = self._task(self._content["task"])
        task.terms = replace(task.terms, window=data["window"], limit_nano=data["limit_nano"], closed=False)
        task.created = self.at if task.created is None else task.created
        self._generation += 1
        name = data.get("account")
        if "loosens" not in data:  # version 1 names no account: there every limit takes the raises back
            name = self._own_account(self._content["task"], task.terms)
        if name is not None and name in self.accounts:
            self._account(name).forget_raises()

    def _own_account(self, task: str, terms: TaskTerms) -> str | None:
        own = next((d.budget for d in self.definitions.values() if d.budget.own), None)
        if own is None or terms.limit_nano is None:
            return None
        budget = own_budget(own, terms)
        return account_id(budget, task, span_at(budget.window, instant(self.at)))

    def _task_closed(self, data: Content) -> None:
        task = self.tasks[self._content["task"]]
        task.terms = replace(task.terms, closed=True)

    def _hold_deferred(self, data: Content) -> None:
        self.open[data["call"]].until = data["until"]

    def _hold_adopted(self, data: Content) -> None:
        for call in data["calls"]:
            self.open[call].writer = self._content["writer"]


_KINDS: Mapping[str, Callable[[Replay, Content], None]] = {
    "hold": Replay._hold,
    "shrink": Replay._shrink,
    "charge": Replay._charge,
    "void": Replay._charge,
    "correction": Replay._correction,
    "refusal": Replay._decision,
    "uncapped": Replay._decision,
    "event": Replay._event,
}
_EVENTS: Mapping[str, Callable[[Replay, Content], None]] = {
    "budget_defined": Replay._budget_defined,
    "budget_removed": Replay._budget_removed,
    "account_opened": Replay._account_opened,
    "account_caught_up": Replay._account_caught_up,
    "budget_raised": Replay._budget_raised,
    "budget_reset": Replay._budget_reset,
    "task_new": Replay._task_new,
    "task_closed": Replay._task_closed,
    "hold_deferred": Replay._hold_deferred,
    "hold_adopted": Replay._hold_adopted,
}


def title(row: int, content: Content | None) -> str:
    """Name a row for people: its number, what it is, its call and its instant."""
    if content is None:
        return f"row {row}"
    kind, call, code = content.get("kind"), content.get("call"), content.get("code")
    what = f"{kind} of call {call}" if call is not None else f"{kind} {code}" if code is not None else f"{kind}"
    try:
        return f"row {row} ({what}, {stamp(instant(content['at']))})"
    except (KeyError, TypeError, ValueError, OverflowError):
        return f"row {row} ({what})"


@functools.lru_cache(maxsize=4096)
def _names(text: str) -> tuple[str, ...]:
    names = tuple(json.loads(text))
    if len(set(names)) != len(names) or not all(isinstance(name, str) for name in names):
        raise ValueError("accounts are named twice")
    return names

"""What every ledger does. Each operation is one atomic step, idempotent by call id; answers come after the commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from lockpin_core.budgets import Budget, Standing
from lockpin_core.call import Call, Ceiling, Charge, Payers, Quote, Refusal, Void
from lockpin_core.keys import KeyFacts, KeyRecord
from lockpin_core.ledger.pauses import BreakerRule, Paused, Subject
from lockpin_core.ledger.questions import Asking, Question
from lockpin_core.money import Money


@dataclass(frozen=True, slots=True)
class Rules:
    """The budgets in force: those of the configuration and the task's own.

    `task_default` is what a task without a budget of its own gets: a Budget with own=True, limit None or
    `task.budget_usd`. `breaker` None: the configuration has none.
    """

    budgets: tuple[Budget, ...]
    task_default: Budget
    breaker: BreakerRule | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A hold is on disk for every account of the call."""

    call: Call
    at: datetime  # ledger time
    standings: tuple[Standing, ...]  # after the hold: the task's own, where it is the payers', then by budget name
    waited: timedelta = timedelta(0)  # for how long it had to; the call's `waited_ms` has it too
    degraded: bool = False  # the ledger is away and no enforced limit applies: held in memory, written when it is back


@dataclass(frozen=True, slots=True)
class Short:
    """Nothing was held: the quote passes an enforced limit, or would go before one who waits and is protected."""

    at: datetime
    standings: tuple[Standing, ...]  # as they are, without the call
    violations: tuple[Standing, ...]
    behind: bool = False  # it fits, and must wait its turn; then there are no violations


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a call may wait for held money to come free; nothing or less: not at all.

    After a third of it the call is protected: nobody younger goes before it on an account that was short for it.
    `least`: the quote of the smallest version of it that `smaller` may give; None: there is none. `least_reserve`: what
    that version must leave besides, as `Call.reserve` is of the whole one.
    """

    patience: timedelta
    least: Quote | None = None
    least_reserve: Quote | None = None


@dataclass(frozen=True, slots=True)
class Closed:
    """Nothing was held: the task was closed."""

    at: datetime
    task: str


type Answer = Held | Short | Closed | Paused
"""What becomes of a call that asks for a hold."""


class Crossed(NamedTuple):
    """An alert step that a charge passed, on one account of a budget."""

    budget: str
    subject: str
    step: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """A hold's one resolution, also when an earlier operation made it (`first` False)."""

    call_id: str
    first: bool
    charge: Charge | None  # None: void
    over_hold: bool
    held: Money  # at the last, after what it became smaller by
    at: datetime
    row_hash: str
    standings: tuple[Standing, ...]  # after it
    task_spent: Money  # of the task over all its time
    recent: tuple[Money, ...] = ()  # the task's last charges, newest first, at most 20, this one included
    crossed: tuple[Crossed, ...] = ()  # the alert steps that this charge passed
    tripped: tuple[Paused, ...] = ()  # whose calls pause from this charge on


@dataclass(frozen=True, slots=True)
class Link:
    """A reply as its provider knows it: for later usage of a call, and for what a chain of replies holds."""

    provider: str
    account: bytes  # 16-byte digest of the caller's credentials: an id of one account is nothing to another
    id: str  # one that is empty, not ASCII or longer than 1024 is not remembered
    tokens: int | None = None  # the most that a later call which names this reply brings in by it; None: not known
    model: str | None = None  # that counted them; another may count otherwise
    reasoning: int = 0  # reasoning of the whole chain, which a turn may leave out and a later one bring in


@dataclass(frozen=True, slots=True)
class Deferred:
    """A call whose usage comes later, with what its settlement needs."""

    call: Call  # its quote is what is held of it at the last
    at: datetime  # of the hold
    resolved: bool  # its time was over, and it was charged in full: usage books the difference


@dataclass(frozen=True, slots=True)
class CallNote:
    """What a row stores of a call that has no hold: refused or uncapped."""

    id: str
    payers: Payers
    provider: str
    host: str
    model: str
    client: str
    code: str  # refusal code, or why it went uncapped
    path: str = ""  # canonical path without query
    wire: str = ""
    streamed: bool = False
    waited_ms: int = 0  # for room, before it was refused
    detail: Mapping[str, object] = field(default_factory=dict)  # JSON-ready; never text of a body
    accounts: tuple[str, ...] = ()  # those that the call did not fit; an event tells of each once


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One task as commands show it."""

    name: str
    window: str  # as `windows.kind_text` writes it: "lifetime" | "day" | … | "rolling:86400000"
    limit: Money | None
    spent: Money
    held: Money
    closed: bool
    created: datetime | None
    user: str | None = None  # whose it is; None: of those who call without a user


type Smaller = Callable[[tuple[Standing, ...]], Call | None]
"""The accounts as they stand → the same call with a smaller quote; None: there is none. Pure, and quick."""


class Ledger(Protocol):
    """Books that several processes may share. Every Future may fail with LedgerUnavailable: then nothing happened."""

    def define(self, rules: Rules, origin: str = "", mode: str = "solo") -> Future[None]:
        """Put the configuration's budgets in force, for all processes on these books.

        `origin` names the configuration (file and flags); its `mode` is kept for commands that are given elsewhere.
        Fails with LedgerError, naming both, where a running process of another origin has other definitions; then
        nothing was changed.
        """

    def hold(
        self, call: Call, rules: Rules, smaller: Smaller | None = None, wait: Wait | None = None, *,
        out_of_turn: bool = False, allowed: str | None = None,
    ) -> Future[Answer]:  # fmt: skip
        """Check every enforced limit of the call's accounts and hold its quote on all of them, or on none.

        Where it does not fit, `smaller` is asked in the same transaction for a version that does, by the balances that
        stand in the way: another call's hold cannot come between. Accounts and windows are those of the ledger's time:
        max(wall clock, last row). The same call id again gives the first answer's Held. The calls of a task that is
        closed, or whose calls or whose key's calls pause, are not held, whatever they cost.

        A call that fits goes at once, unless somebody waits on one of its accounts who is protected and it does not fit
        beside that one's amount: then it is `behind`, and `smaller` is asked for a version that does. `out_of_turn`
        takes no notice of who waits.

        With `wait`, a call that is behind, or that only held money is in the way of, waits at full size: its answer
        comes when it fits and its turn has come, or when its patience is over or spent money is in the way. Where that
        is in the way of the whole call and not of its `least` version, it waits, or goes on to wait, for room for that
        one; when its turn comes `smaller` is asked, so that it goes as large as fits then. Before the last answer it is
        tried once more, out of turn, and then `smaller` is asked. Its future can be cancelled until it is answered:
        that gives up the place, or takes the hold off.

        `allowed` is a question that was answered "once": where only the task's own dollar limit is short, that is
        raised in the same step by just what the call is short of, and what is unused of it is taken back in the step
        that resolves the call. One that is used, or of another task, or that showed a smaller price, changes nothing.
        """

    def replace(
        self, call_id: str, outcome: Charge | Void, call: Call, rules: Rules, *, keep: bool
    ) -> Future[tuple[Resolved | None, Answer]]:
        """End a failed attempt and hold the next one, `call`, in one step; nobody waits for room, or goes between.

        `keep`: where the next one does not fit beside what the first leaves, that one stays as it is, and no
        resolution is given. Otherwise it is resolved in any case. The same ids again give the first answers. Fails with
        LedgerUnavailable like a hold: then nothing has happened, and the first one is still to be resolved. What a
        person allowed one that cost nothing is the next one's, where that is no dearer and fits by it.
        """

    def ask(self, asking: Asking) -> Future[Question | None]:
        """Put a question to whoever watches; None: nobody does.

        The same call of the same task joins the question that is open about it, or gets the answer that was given a
        short while ago and nobody has used.
        """

    def question(self, question_id: str) -> Future[Question | None]:
        """Look how a question stands, whichever process put it; None: there is none. No commit is waited for."""

    def is_for_a_person(self, call: Call, rules: Rules) -> Future[bool]:
        """Say whether a call has to wait for a person still: somebody watches, and a limit alone is in its way.

        It does not where it fits by now, or its task was closed or pauses. Nothing is held, no commit is waited for.
        """

    def open_loops(self, payers: Payers) -> Future[tuple[Question, ...]]:
        """List the open questions about loops of a task and its user, whichever process put them, newest first.

        None where nobody watches any more. No commit is waited for.
        """

    def look(self, payers: Payers, provider: str, model: str | None, rules: Rules) -> Future[tuple[Standing, ...]]:
        """Show the accounts that such a call would be charged to, without holding anything.

        `model` None: it is not known, so that every budget of some models may be for it.
        """

    def paused(self, payers: Payers) -> Future[Paused | None]:
        """Say whether the calls of these payers pause: for one that needs no hold; None: they do not."""

    def barred(self, payers: Payers) -> Future[Closed | Paused | None]:
        """Say why no call of these payers would be held now, whatever it costs; None: one may be."""

    def shrink(self, call_id: str, most: Money, tokens: int) -> Future[bool]:
        """Let an open hold be no more than this, in dollars and in tokens each; it never grows.

        False: it is not open, or is no more already; then nothing is written. What is held at the end is what was left.
        """

    def settle(self, call_id: str, charge: Charge, link: Link | None = None) -> Future[Resolved]:
        """Replace the hold by a charge. First resolution wins; retried by itself until a write works.

        What is held at the last bounds a charge that is an estimate, unless more than that was reported of it.
        `link`: the provider's name of the reply, remembered in the same step.
        """

    def void(self, call_id: str, outcome: Void) -> Future[Resolved]:
        """Take the hold off; the call cost nothing. First resolution wins; retried by itself until a write works."""

    def defer(
        self, call_id: str, hold_for: timedelta, link: Link | None = None, ceiling: Ceiling | None = None
    ) -> Future[None]:
        """Keep a hold whose exchange has ended and whose cost comes later; after `hold_for` it is charged: `expired`.

        Usage that is settled after that books the difference. A deferred hold outlives its process. By `link` the call
        is found again; `ceiling` is its quote's, which no row has.
        """

    def chain(self, provider: str, account: bytes, upstream_id: str) -> Future[Link | None]:
        """Give what naming an earlier reply brings in; None: it was not seen, or its tokens are not known."""

    def deferred(self, provider: str, account: bytes, upstream_id: str) -> Future[Deferred | None]:
        """Find the call that waits for usage under a provider's id, whichever process has it.

        None: no such id is known, or its usage is booked already.
        """

    def key(self, digest: bytes) -> Future[KeyRecord | None]:
        """Say whose a secret is by its digest, at the ledger's time; None: no key has ever had it.

        One that is over is given all the same, with why. Changes by others are seen by the next question, and no
        commit is waited for.
        """

    def marks(self, conversation: bytes) -> Future[Mapping[str, Any]]:
        """Give what is remembered of a conversation, which is known by a digest; nothing: an empty mapping.

        It is the same for all processes, and after a restart; what was not changed for 30 days is forgotten.
        """

    def marked(self, name: str, since: int) -> Future[tuple[Sequence[bytes], int]]:
        """List conversations that have a mark which is true, changed at `since` or later, in microseconds since
        1970: the 4,096 that were changed last. With them comes the ledger's time, which the next question may begin at.
        """

    @property
    def others_wrote(self) -> int:
        """Count how often this process has come upon what others wrote."""

    def mark(self, conversation: bytes, changes: Mapping[str, Any]) -> None:
        """Remember these marks of a conversation too; None takes one away. JSON-ready, never text of a body.

        Nobody waits for it, and every question after it here sees it.
        """

    def tell(self, code: str, data: Mapping[str, object], task: str | None = None) -> None:
        """Write an event of what was seen of calls; nobody waits for it. JSON-ready, never text of a body."""

    def profile(self, task: str) -> Future[Mapping[str, Any]]:
        """Give what is remembered of a task's first calls; nothing: an empty mapping."""

    def keep_profile(self, task: str, profile: Mapping[str, Any]) -> None:
        """Remember that instead of what was remembered before. JSON-ready; nobody waits for it."""

    def stop_task(self, payers: Payers, *, who: str, data: Mapping[str, object]) -> Future[bool]:
        """Let the calls of a task, of these payers' user, pause until a person lets them go on. False: they do already.

        `data` is why.
        """

    def cancel(self, call_id: str) -> None:
        """Void a hold that may or may not have been taken and whose answer nobody awaits; no hold: nothing to do.

        A call that waits for one gives up its place, and its future is cancelled.
        """

    def refuse(self, note: CallNote, refusal: Refusal) -> None:
        """Write a refusal's row; nobody waits for it. Past 100 a second and task: one row with their number."""

    def uncapped(self, note: CallNote) -> None:
        """Write the row of a call that goes without a hold.

        Raises LedgerUnavailable where the ledger is away and as many rows wait for it as may: then it must not go.
        """

    def stop(self) -> int:
        """Settle this process's open holds as `lockpin_stopped`, write what is queued, close. Blocks.

        Gives how many records could not be written because the ledger is out of reach; they are lost.
        """


@dataclass(frozen=True, slots=True)
class StoredBudget:
    """A budget in force as the ledger knows it. `source`: "config" (a proxy's configuration) or "command"."""

    budget: Budget
    source: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Corrected:
    """A call's cost before and after a correction."""

    call_id: str
    before: Money
    after: Money
    standings: tuple[Standing, ...]


class Admin(Protocol):
    """What commands change. Each is one transaction and one event row with who and when. Blocking.

    Raises CommandError for what cannot be done as asked, LedgerUnavailable where the ledger is out of reach.
    """

    def task_new(self, name: str, *, limit: Money | None, window: str, who: str, user: str | None = None) -> TaskInfo:
        """Make a task, set the budget of one in use, or reopen a closed one.

        No limit, no user: a present one stays. Calls of others than its user are not charged to its own budget.
        """

    def task_close(self, name: str, *, who: str) -> TaskInfo: ...
    def tasks(self) -> Sequence[TaskInfo]: ...
    def task_resume(self, name: str, *, who: str) -> None:
        """Let the calls of a stopped task go on, everybody's."""

    def breaker_set(self, rule: BreakerRule, *, who: str) -> BreakerRule | None:
        """Put a breaker in force before that of any configuration, until it is cleared; give what was in force."""

    def breaker_clear(self, *, who: str) -> BreakerRule | None:
        """Take a command's breaker out of force; give what is in force then."""

    def breaker_reset(self, scope: str | None = None, subject: str | None = None, *, who: str) -> Sequence[Subject]:
        """End the pauses that a breaker has made, of one subject or of everybody; give whose."""

    def budgets(self) -> Sequence[StoredBudget]:
        """List the budgets in force by name, the tasks' own among them."""

    def budget_set(self, budget: Budget, *, who: str) -> StoredBudget | None:
        """Put a budget of a command's in force, or change one; give what it was before. One of a configuration is
        refused."""

    def budget_rm(self, name: str, *, who: str) -> StoredBudget:
        """Take a command's budget out of force; its accounts stay, and go on when it is set again."""

    def raise_budget(self, budget: Budget, subject: str, by: Money, *, who: str) -> Standing: ...
    def undo_raises(self, budget: Budget, subject: str, *, who: str) -> Standing:
        """Take back what was added to the limit of a subject's current window; a limit that is set anew does too."""

    def reset_budget(self, budget: Budget, subject: str, *, who: str) -> tuple[Standing, Standing]:
        """Let a subject's spend of the current window count from now on; open holds stay. Gives before and after."""

    def correct(self, call_id: str, amount: Money, *, reason: str, who: str) -> Corrected:
        """Say what a call that has ended really cost; the difference is booked in the window of its hold."""

    def standings(self, rules: Rules, payers: Payers | None, *, now: datetime) -> Sequence[Standing]: ...
    def questions(self) -> Sequence[Question]:
        """List the questions of the last day, newest first."""

    def answer(self, question_id: str, answer: str, *, who: str, by: Money | None = None) -> Question:
        """Answer a question, the first who does. "raise" adds `by`, or what was shown, to the limit of its task.

        The question that is given then has how that account stands.
        """

    def key_list(self) -> Sequence[KeyRecord]:
        """List every key, oldest first, those that are over among them."""

    def key_create(
        self,
        key: str,
        facts: KeyFacts,
        digest: bytes,
        *,
        lifetime: timedelta | None,
        who: str,
        limit: Budget | None = None,
    ) -> KeyRecord:
        """Make a key of this id, whose secret has this digest; `lifetime` None: it is good until it is revoked.

        With `limit` a budget of a command's is made for it alone, in the same step, under the key's id.
        """

    def key_rotate(
        self, key: str, digest: bytes, *, grace: timedelta, lifetime: timedelta | None, who: str
    ) -> KeyRecord:
        """Give a key another secret. Those before end after the grace; `lifetime` is what it has from now on."""

    def key_revoke(self, key: str, *, who: str) -> KeyRecord:
        """End a key for good, from its next call on; calls in flight settle as usual."""


type Fault = Callable[[str, str], None]
"""Told a fault's code and reason when the ledger stops to work; ("", "") when it works again."""

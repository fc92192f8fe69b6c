"""What every ledger does. Each operation is one atomic step, idempotent by call id; answers come after the commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from lockpin_core.budgets import Budget, Standing
from lockpin_core.call import Call, Charge, Payers, Refusal, Void
from lockpin_core.money import Money


@dataclass(frozen=True, slots=True)
class Rules:
    """The budgets in force: those of the configuration and the task's own.

    `task_default` is what a task without a budget of its own gets: a Budget with own=True, limit None or
    `task.budget_usd`.
    """

    budgets: tuple[Budget, ...]
    task_default: Budget


@dataclass(frozen=True, slots=True)
class Held:
    """A hold is on disk for every account of the call."""

    call: Call
    at: datetime  # ledger time
    standings: tuple[Standing, ...]  # after the hold, in the order: the task's own, then by budget name


@dataclass(frozen=True, slots=True)
class Short:
    """Nothing was held: the quote passes an enforced limit."""

    at: datetime
    standings: tuple[Standing, ...]  # as they are, without the call
    violations: tuple[Standing, ...]


@dataclass(frozen=True, slots=True)
class Closed:
    """Nothing was held: the task was closed."""

    at: datetime
    task: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """A hold's one resolution, also when an earlier operation made it (`first` False)."""

    call_id: str
    first: bool
    charge: Charge | None  # None: void
    over_hold: bool
    held: Money
    at: datetime
    row_hash: str
    standings: tuple[Standing, ...]  # after it
    task_spent: Money  # of the task over all its time
    recent: tuple[Money, ...] = ()  # the task's last charges, newest first, at most 20, this one included
    crossed: tuple[tuple[str, str], ...] = ()  # (budget name, step) whose alert step this charge passed


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
    detail: Mapping[str, object] = field(default_factory=dict)  # JSON-ready; never text of a body


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One task as commands show it."""

    name: str
    window: str  # "lifetime" | "day"
    limit: Money | None
    spent: Money
    held: Money
    closed: bool
    created: datetime | None


type Smaller = Callable[[tuple[Standing, ...]], Call | None]
"""The accounts as they stand → the same call with a smaller quote; None: there is none. Pure, and quick."""


class Ledger(Protocol):
    """Books that several processes may share. Every Future may fail with LedgerUnavailable: then nothing happened."""

    def define(self, rules: Rules) -> None:
        """Store the budgets in force, for commands and for other processes; nobody waits for it."""

    def hold(self, call: Call, rules: Rules, smaller: Smaller | None = None) -> Future[Held | Short | Closed]:
        """Check every enforced limit of the call's accounts and hold its quote on all of them, or on none.

        Where it does not fit, `smaller` is asked in the same transaction for a version that does, by the balances that
        stand in the way: another call's hold cannot come between. Accounts and windows are those of the ledger's time:
        max(wall clock, last row). The same call id again gives the first answer's Held.
        """

    def look(self, payers: Payers, provider: str, model: str, rules: Rules) -> Future[tuple[Standing, ...]]:
        """Show the accounts that such a call would be charged to, without holding anything."""

    def settle(self, call_id: str, charge: Charge) -> Future[Resolved]:
        """Replace the hold by a charge. First resolution wins; retried by itself until a write works."""

    def void(self, call_id: str, outcome: Void) -> Future[Resolved]:
        """Take the hold off; the call cost nothing. First resolution wins; retried by itself until a write works."""

    def cancel(self, call_id: str) -> None:
        """Void a hold that may or may not have been taken and whose answer nobody awaits; no hold: nothing to do."""

    def refuse(self, note: CallNote, refusal: Refusal) -> None:
        """Write a refusal's row; nobody waits for it. Past 100 a second and task: one row with their number."""

    def uncapped(self, note: CallNote) -> None:
        """Write the row of a call that goes without a hold."""

    def stop(self) -> None:
        """Settle this process's open holds as `lockpin_stopped`, write what is queued, close. Blocks."""


class Admin(Protocol):
    """What commands change. Each is one transaction and one event row with who and when. Blocking."""

    def task_new(self, name: str, *, limit: Money | None, window: str, who: str) -> TaskInfo: ...
    def task_close(self, name: str, *, who: str) -> TaskInfo: ...
    def tasks(self) -> Sequence[TaskInfo]: ...
    def raise_budget(self, budget: Budget, subject: str, by: Money, *, who: str) -> Standing: ...
    def standings(self, rules: Rules, payers: Payers | None, *, now: datetime) -> Sequence[Standing]: ...


type Fault = Callable[[str], None]  # told a fault's code when the ledger stops or starts to work again ("" then)

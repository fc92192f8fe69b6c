"""What a row must say by what was before it: which accounts a hold is on, and what earlier rows are asked for.

Pure: the rows themselves are asked of whoever has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from lockpin_core.budgets import Budget, account_id
from lockpin_core.call import Payers
from lockpin_core.clock import instant, micros
from lockpin_core.ledger.accounts import Parted, Seat, Spans, TaskTerms, own_budget, seats_of
from lockpin_core.ledger.columns import payers_of
from lockpin_core.ledger.pauses import Subject
from lockpin_core.ledger.protocol import Rules
from lockpin_core.ledger.tally import Defined, Name, Task, shown
from lockpin_core.ledger.whose import WHO_NAMES
from lockpin_core.refusals import stamp
from lockpin_core.windows import STEPS

_REMEMBERED = 4096  # of whom the accounts are kept in memory
_ANY = "\0"  # stands for whatever task it may be
_NEVER = 2**63
_USER = WHO_NAMES.index("user")

type Content = Mapping[str, Any]
type Spend = Sequence[Any]  # the values of WHO_NAMES, nanodollars, tokens, instant of the hold
type Now = tuple[int, int]  # the row that is being applied, and its instant
type Facts = tuple[object, ...]  # the values of FACT_NAMES
type Who = tuple[Any, ...]  # the values of WHO_NAMES


class Wrong(Exception):
    """The first row that is not as it must be."""

    def __init__(self, row: int, words: str, content: Content | None = None) -> None:
        self.row, self.words = row, words
        self.call: str | None = None if content is None else content.get("call")
        super().__init__(f"{title(row, content)}: {words}")


@dataclass(frozen=True, slots=True)
class Resolution:
    """How a call ended, and what it had cost before the row that asks. `row` 0: it cannot be known any more."""

    row: int
    usd: int
    tokens: int
    accounts: tuple[str, ...]
    facts: Facts


UNKNOWN = Resolution(0, 0, 0, (), ())


class Earlier(Protocol):
    """What is asked about rows that were applied already; `row` is the one that is being applied."""

    @property
    def taken_to(self) -> int | None:
        """Say up to which row rows were taken out; None: it cannot be known."""

    def resolution(self, call: str, held_at: int, told: int | None, row: int) -> Resolution | None:
        """Say how a call whose hold was taken then has ended; None: it has not. `told` is the row that is named."""

    def spends(self, whose: Name, since: int | None, now: Now) -> Iterable[Spend] | None:
        """Give what was charged and corrected for all who may be a subject from an instant on; None: it cannot be
        known.
        """

    def missed(self, whose: Name, since: int | None, after: int, account: str, now: Now) -> Iterable[Spend] | None:
        """Give the same of calls that ended after a row and are not listed on an account."""

    def charges(self, whose: Subject, after_at: int, after_row: int, now: Now) -> Iterable[tuple[int, int]] | None:
        """Give instants and nanodollars of what one was charged after an instant and a row; None: it is not known."""

    def last_row(self, writer: str, at: int) -> int | None:
        """Give a writer's last row of before an instant; 0: there is none, None: it cannot be known."""


class Nothing:
    """Knows nothing of earlier rows: what later ones say of them is taken as it is."""

    taken_to: int | None = None

    def resolution(self, call: str, held_at: int, told: int | None, row: int) -> Resolution | None:
        """See Earlier."""
        return UNKNOWN

    def spends(self, whose: Name, since: int | None, now: Now) -> Iterable[Spend] | None:
        """See Earlier."""
        return None

    def missed(self, whose: Name, since: int | None, after: int, account: str, now: Now) -> Iterable[Spend] | None:
        """See Earlier."""
        return None

    def charges(self, whose: Subject, after_at: int, after_row: int, now: Now) -> Iterable[tuple[int, int]] | None:
        """See Earlier."""
        return None

    def last_row(self, writer: str, at: int) -> int | None:
        """See Earlier."""
        return None


@dataclass(frozen=True, slots=True)
class _Shape:
    """The accounts of all calls of one model by the same payers, whatever their task: what stands before and after it.

    An account that is not one of the task has nothing behind.
    """

    ends: int
    own: tuple[str, str]
    others: Sequence[tuple[str, str | None]]


class Seating:
    """Finds the accounts of a hold by what is in force; `forget` when that may have changed."""

    def __init__(self, definitions: Mapping[str, Defined], tasks: Mapping[str, Task]) -> None:
        self._definitions, self._tasks = definitions, tasks
        self._spans = Spans()
        self._parted: Parted | None = None
        self._is_old = True  # what is in force is to be read anew: of many changes in a row only after the last
        self._known: dict[Who, _Shape] = {}  # by all but the task

    def forget(self) -> None:
        """Read anew what is in force, when it is asked for."""
        self._known.clear()
        self._is_old = True

    def accounts(self, who: Who, at: int) -> tuple[str, ...]:
        """List the accounts that a hold of that instant must be on; instants only grow."""
        parted, task = self._in_force(), who[0]
        if parted is None:
            return ()
        shape = self._known.get(who[1:])
        if shape is None or at >= shape.ends:
            shape = self._shape(parted, who, at)
        others = [before if after is None else f"{before}{task}{after}" for before, after in shape.others]
        known = self._tasks.get(task)
        if (None if known is None else known.terms.user) != (who[_USER] or None):
            return tuple(others)
        if known is not None and _has_limit(known.terms):
            own = own_budget(parted.rules.task_default, known.terms)
            return (account_id(own, task, self._spans.at(own.window, instant(at))), *others)
        return (f"{shape.own[0]}{task}{shape.own[1]}", *others)

    def _shape(self, parted: Parted, who: Who, at: int) -> _Shape:
        _, *payers, provider, model = who
        own = replace(parted.rules.task_default, users=(payers[_USER - 1],) if payers[_USER - 1] else ())
        found = payers_of(_ANY, *payers)
        seats = seats_of(found, provider, model, parted.of(found), own, instant(at), self._spans)
        parts = [seat.account.partition(_ANY) for seat in seats]
        split = [(before, after if found else None) for before, found, after in parts]
        ends = min((micros(seat.span.end) for seat in seats if seat.span.end is not None), default=_NEVER)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        shape = self._known[who[1:]] = _Shape(ends, (split[0][0], split[0][1] or ""), split[1:])
        return shape

    def limited_since(self, who: Who, at: int) -> int | None:
        """Give the row since which an enforced limit, or a task that was closed, stands against a hold; None: none."""
        *payers, provider, model = who
        found, known = payers_of(*payers), self._tasks.get(who[0])
        rows = [] if known is None or not known.terms.closes(found) else [known.row]
        for seat in self._seats(found, provider, model, at):
            budget = seat.budget
            if budget.enforce and (budget.limit is not None or budget.limit_tokens is not None):
                is_tasks = budget.own and known is not None and _has_limit(known.terms)
                rows.append(known.row if is_tasks and known is not None else self._definitions[budget.name].row)
        return min(rows, default=None)

    def _seats(self, payers: Payers, provider: str, model: str, at: int) -> tuple[Seat, ...]:
        parted = self._in_force()
        if parted is None:
            return ()
        known = self._tasks.get(payers.task)
        own = own_budget(parted.rules.task_default, None if known is None else known.terms)
        return seats_of(payers, provider, model, parted.of(payers), own, instant(at), self._spans)

    def _in_force(self) -> Parted | None:
        if self._is_old:
            self._parted, self._is_old = self._read(), False
        return self._parted

    def _read(self) -> Parted | None:
        here = [defined.budget for _, defined in sorted(self._definitions.items()) if defined.removed_at is None]
        own: Budget | None = next((budget for budget in here if budget.own), None)
        return None if own is None else Parted(Rules(tuple(budget for budget in here if not budget.own), own))


def not_its(names: tuple[str, ...], wanted: tuple[str, ...]) -> str:
    """Say in what a list of accounts is not the one that is wanted."""
    missing = next((name for name in wanted if name not in names), None)
    if missing is not None:
        return f"it is not on {shown(missing)}, which counts it"
    more = next((name for name in names if name not in wanted), None)
    if more is not None:
        return f"it is on {shown(more)}, which does not count it"
    return "its accounts are in another order than the task's own and then by budget name"


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


def rolling_since(at: int, period_ms: int) -> int:
    """Give an instant whose spend has left a rolling window for sure."""
    return at - period_ms * 1000 * (STEPS + 2) // STEPS


def _has_limit(terms: TaskTerms) -> bool:
    return terms.limit_nano is not None or terms.limit_tokens is not None

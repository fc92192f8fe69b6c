"""What a row must say by what was before it: which accounts a hold is on, and what earlier rows are asked for.

Pure: the rows themselves are asked of whoever has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lockpin_core.budgets import Budget, account_id
from lockpin_core.call import Payers
from lockpin_core.clock import instant, micros
from lockpin_core.ledger.accounts import Seat, Spans, TaskTerms, own_budget, seats_of
from lockpin_core.ledger.protocol import Rules
from lockpin_core.ledger.tally import Defined, Task, shown
from lockpin_core.refusals import stamp
from lockpin_core.windows import STEPS

_REMEMBERED = 4096  # models whose accounts are kept in memory
_ANY = "\0"  # stands for whoever it may be
_NEVER = 2**63

type Content = Mapping[str, Any]
type Spend = tuple[str, str, int, int, int]  # provider, model, nanodollars, tokens, instant of the hold
type Facts = tuple[object, ...]  # the values of FACT_NAMES


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

    def spends(self, column: str, subject: str, since: int | None, row: int) -> Iterable[Spend] | None:
        """Give what was charged and corrected for a subject from an instant on; None: it cannot be known."""

    def missed(
        self, column: str, subject: str, since: int | None, after: int, account: str, row: int
    ) -> Iterable[Spend] | None:
        """Give the same of calls that ended after a row and are not listed on an account."""

    def last_row(self, writer: str, at: int) -> int | None:
        """Give a writer's last row of before an instant; 0: there is none, None: it cannot be known."""


class Nothing:
    """Knows nothing of earlier rows: what later ones say of them is taken as it is."""

    taken_to: int | None = None

    def resolution(self, call: str, held_at: int, told: int | None, row: int) -> Resolution | None:
        """See Earlier."""
        return UNKNOWN

    def spends(self, column: str, subject: str, since: int | None, row: int) -> Iterable[Spend] | None:
        """See Earlier."""
        return None

    def missed(
        self, column: str, subject: str, since: int | None, after: int, account: str, row: int
    ) -> Iterable[Spend] | None:
        """See Earlier."""
        return None

    def last_row(self, writer: str, at: int) -> int | None:
        """See Earlier."""
        return None


@dataclass(frozen=True, slots=True)
class _Shape:
    """The accounts of all calls of one model: whether a task's own, and what stands before and after the subject."""

    ends: int
    parts: Sequence[tuple[bool, str, str]]


class Seating:
    """Finds the accounts of a hold by what is in force; `forget` when that may have changed."""

    def __init__(self, definitions: Mapping[str, Defined], tasks: Mapping[str, Task]) -> None:
        self._definitions, self._tasks = definitions, tasks
        self._spans, self._rules = Spans(), self._in_force()
        self._known: dict[tuple[str, str], _Shape] = {}  # by provider and model

    def forget(self) -> None:
        """Read anew what is in force."""
        self._known.clear()
        self._rules = self._in_force()

    def accounts(self, task: str, machine: str, provider: str, model: str, at: int) -> tuple[str, ...]:
        """List the accounts that a hold of that instant must be on; instants only grow."""
        rules = self._rules
        if rules is None:
            return ()
        shape = self._known.get((provider, model))
        if shape is None or at >= shape.ends:
            shape = self._shape(rules, provider, model, at)
        names = [f"{before}{task if is_task else machine}{after}" for is_task, before, after in shape.parts]
        known = self._tasks.get(task)
        if known is not None and _has_limit(known.terms):
            own = own_budget(rules.task_default, known.terms)
            names[0] = account_id(own, task, self._spans.at(own.window, instant(at)))
        return tuple(names)

    def _shape(self, rules: Rules, provider: str, model: str, at: int) -> _Shape:
        seats = seats_of(Payers(_ANY, _ANY), provider, model, rules, rules.task_default, instant(at), self._spans)
        parts = []
        for seat in seats:
            before, _, after = seat.account.partition(_ANY)
            parts.append((seat.budget.scope == "task", before, after))
        ends = min((micros(seat.span.end) for seat in seats if seat.span.end is not None), default=_NEVER)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        shape = self._known[provider, model] = _Shape(ends, parts)
        return shape

    def limited_since(self, task: str, machine: str, provider: str, model: str, at: int) -> int | None:
        """Give the row since which an enforced limit, or a task that was closed, stands against a hold; None: none."""
        known = self._tasks.get(task)
        rows = [] if known is None or not known.terms.closed else [known.row]
        for seat in self._seats(task, machine, provider, model, at):
            budget = seat.budget
            if budget.enforce and (budget.limit is not None or budget.limit_tokens is not None):
                is_tasks = budget.own and known is not None and _has_limit(known.terms)
                rows.append(known.row if is_tasks and known is not None else self._definitions[budget.name].row)
        return min(rows, default=None)

    def _seats(self, task: str, machine: str, provider: str, model: str, at: int) -> tuple[Seat, ...]:
        if self._rules is None:
            return ()
        known = self._tasks.get(task)
        own = own_budget(self._rules.task_default, None if known is None else known.terms)
        return seats_of(Payers(task, machine), provider, model, self._rules, own, instant(at), self._spans)

    def _in_force(self) -> Rules | None:
        here = [defined.budget for _, defined in sorted(self._definitions.items()) if defined.removed_at is None]
        own: Budget | None = next((budget for budget in here if budget.own), None)
        return None if own is None else Rules(tuple(budget for budget in here if not budget.own), own)


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

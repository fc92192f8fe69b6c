"""Which accounts a call is charged to, by the definitions in force on the books and those that a process was told.

Knows no balances: what a configuration has changed is given back, for accounts to follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from lockpin_core.budgets import Budget
from lockpin_core.call import Call, Payers
from lockpin_core.ledger.accounts import Parted, Seat, Spans, TaskTerms, own_budget, seats_of
from lockpin_core.ledger.definitions import Change, Definitions
from lockpin_core.ledger.protocol import Rules

_REMEMBERED = 512  # whose accounts are kept in memory
_NEVER = datetime.max.replace(tzinfo=UTC)


class Seats:
    """Finds accounts for one writer. `rules` are those whose definitions it has stored, `origin` names where from."""

    def __init__(self, definitions: Definitions, spans: Spans) -> None:
        self.rules: Rules | None = None
        self.origin = ""
        self._definitions, self._spans = definitions, spans
        self._parted: Parted | None = None
        self._known: dict[tuple[Payers, str, str], tuple[Rules, TaskTerms | None, tuple[Seat, ...], datetime]] = {}

    def forget(self) -> None:
        """Drop what is remembered: time was thought to be later than it is."""
        self._known.clear()

    def define(self, rules: Rules, at: int) -> Sequence[Change]:
        """Put a configuration's budgets in force, when they are others than before; give what has changed."""
        if rules is self.rules:
            return ()
        changes = self._definitions.apply(rules, at, self.origin)
        self.rules = rules
        return changes

    def in_force(self, rules: Rules) -> Rules:
        """Give what stands in the ledger, also to a call that was begun under rules of before; where this process's
        own do not stand there yet, those instead.
        """
        if self.origin or rules is self.rules:
            return self._definitions.in_force(rules.task_default)
        names = {budget.name for budget in rules.budgets}
        by_command = (budget for budget in self._definitions.by_command() if budget.name not in names)
        return Rules((*rules.budgets, *by_command), rules.task_default)

    def of(self, call: Call, rules: Rules, terms: TaskTerms | None, now: datetime) -> tuple[Seat, ...]:
        """List a call's accounts; those of the last calls are remembered until a window ends."""
        rules = self.in_force(rules)
        key = (call.payers, call.provider, call.model)
        known = self._known.get(key)
        if known is not None and known[0] is rules and known[1] == terms and now < known[3]:
            return known[2]
        in_question = self._in_question(rules, call.payers)
        seats = seats_of(*key, in_question, own_budget(rules.task_default, terms), now, self._spans)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        # Ledger time only grows, so that they are these until the first of their windows ends.
        self._known[key] = (
            rules,
            terms,
            seats,
            min((s.span.end for s in seats if s.span.end is not None), default=_NEVER),
        )
        return seats

    def look(
        self, payers: Payers, provider: str, model: str | None, rules: Rules, terms: TaskTerms | None, now: datetime
    ) -> tuple[Seat, ...]:
        """List the accounts of such a call, for a look at them."""
        in_force = self._in_question(self.in_force(rules), payers)
        own = own_budget(in_force.task_default, terms)
        return seats_of(payers, provider, model, in_force, own, now, self._spans)

    def _in_question(self, rules: Rules, payers: Payers) -> Rules:
        if self._parted is None or self._parted.rules is not rules:
            self._parted = Parted(rules)
        return self._parted.of(payers)

    def is_unlimited(self, call: Call, rules: Rules, terms: TaskTerms | None) -> bool:
        """Say whether no enforced limit applies to a call."""
        # By what stands in the ledger and by what this process was told: the file may not be what it was.
        judged = (self.in_force(rules), rules)
        budgets = [b for each in judged for b in (own_budget(each.task_default, terms), *each.budgets)]
        return not any(
            _is_limited(budget) and budget.applies(call.payers, provider=call.provider, model=call.model)
            for budget in budgets
        )


def _is_limited(budget: Budget) -> bool:
    return budget.enforce and (budget.limit is not None or budget.limit_tokens is not None)

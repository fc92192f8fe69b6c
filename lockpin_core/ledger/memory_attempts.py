"""The next attempt of a call that has failed, in a ledger in memory."""

from __future__ import annotations

from lockpin_core.budgets import violations, with_reserve
from lockpin_core.call import Call, Charge, Void
from lockpin_core.clock import micros
from lockpin_core.ledger.allowances import PASSED_ON, Allowance
from lockpin_core.ledger.attempts import left_by, may_inherit
from lockpin_core.ledger.backlog import OpenHold
from lockpin_core.ledger.memory_books import MemoryBooks
from lockpin_core.ledger.memory_state import LIFETIME_TERMS
from lockpin_core.ledger.pauses import Paused
from lockpin_core.ledger.protocol import Answer, Closed, Held, Resolved, Rules, Short


class MemoryAttempts(MemoryBooks):
    """The books, with one step more."""

    def _replace(
        self, call_id: str, outcome: Charge | Void, call: Call, rules: Rules, *, keep: bool
    ) -> tuple[Resolved | None, Answer]:
        """See Ledger.replace."""
        charge, void = (outcome, Void("")) if isinstance(outcome, Charge) else (None, outcome)
        given = self._questions.allowances.get(call_id)
        passes_on = given is not None and self._passes_on(call_id, given, charge, call, rules)
        if keep and not passes_on and call.id not in self._open:
            before = self._in_the_way(call_id, given, charge, call, rules)
            if before is not None:
                return None, before
        if passes_on:
            self._questions.allowances[call.id] = self._questions.allowances.pop(call_id)
            self._event(PASSED_ON, call.payers.task)
        resolved = self._resolve(call_id, charge, void).result()
        answer = self._hold(call, rules, None, None, out_of_turn=True).result()
        assert not keep or isinstance(answer, Held | Paused), "the next attempt does not fit"
        return resolved, answer

    def _passes_on(self, call_id: str, given: Allowance, charge: Charge | None, call: Call, rules: Rules) -> bool:
        """Say whether the next attempt gets what a person allowed this one: that cost nothing, and it fits by that."""
        held = self._amounts(call_id)
        if held is None or charge is not None or not may_inherit(call, held):
            return False
        seats = self._seats(call.payers, call.provider, call.model, self._in_force(rules))
        is_its = any(seat.account == given.account for seat in seats)
        return is_its and self._in_the_way(call_id, None, charge, call, rules) is None

    def _in_the_way(
        self, call_id: str, given: Allowance | None, charge: Charge | None, call: Call, rules: Rules
    ) -> Answer | None:
        """Say why a call does not fit beside what the one before leaves; None: it does."""
        now, task, held = self._now(), call.payers.task, self._amounts(call_id)
        if self._terms.get(task, LIFETIME_TERMS).closes(call.payers):
            return Closed(now, task)
        if (paused := self._pauses.of(call.payers, micros(now))) is not None:
            return paused
        standings = self._standings(self._seats(call.payers, call.provider, call.model, self._in_force(rules)))
        cost = (0, 0) if charge is None else (charge.amount.nano, charge.tokens)
        after = standings if held is None else left_by(standings, held, cost, given, micros(now))
        short = tuple(violations(with_reserve(after, call.reserve), call.quote))
        return Short(now, standings, short) if short else None

    def _amounts(self, call_id: str) -> OpenHold | None:
        """Give an open hold in plain amounts; None: there is none."""
        held = self._open.get(call_id)
        if held is None:
            return None
        quote, task = held.call.quote, held.call.payers.task
        return OpenHold(call_id, micros(held.at), quote.most.nano, quote.tokens, held.accounts, "", task)

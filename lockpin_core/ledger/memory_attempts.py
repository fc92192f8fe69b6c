"""The next attempt of a call that has failed, in a ledger in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lockpin_core.budgets import violations, with_reserve
from lockpin_core.call import Call, Charge, Payers, Void
from lockpin_core.clock import micros
from lockpin_core.ledger.allowances import PASSED_ON
from lockpin_core.ledger.attempts import left_by, may_inherit
from lockpin_core.ledger.backlog import OpenHold
from lockpin_core.ledger.memory_books import MemoryBooks
from lockpin_core.ledger.memory_state import LIFETIME_TERMS
from lockpin_core.ledger.pauses import Paused
from lockpin_core.ledger.protocol import Answer, Closed, Held, Resolved, Rules, Short
from lockpin_core.money import Money


class MemoryAttempts(MemoryBooks):
    """The books, with one step more."""

    def _replace(
        self, call_id: str, outcome: Charge | Void, call: Call, rules: Rules, *, keep: bool
    ) -> tuple[Resolved | None, Answer]:
        """See Ledger.replace."""
        held, before = self._amounts(call_id), None
        if held is not None and isinstance(outcome, Charge):
            outcome = outcome.within(Money(held.usd), held.tokens)
        if call.id not in self._open:
            before = self._in_the_way(held, outcome, call, rules, self._allowed_on(held))
        if before is not None and held is not None and self._passes_on(held, outcome, call, rules):
            return self._pass_on(held, call, rules)
        if keep and before is not None:
            return None, before
        charge, void = (outcome, Void("")) if isinstance(outcome, Charge) else (None, outcome)
        resolved = self._resolve(call_id, charge, void).result()
        answer = self._hold(call, rules, None, None, out_of_turn=True).result()
        assert not keep or isinstance(answer, Held | Paused), "the next attempt does not fit"
        return resolved, answer

    def _is_short(self, call: Call, rules: Rules) -> bool:
        """Say whether a limit is all that keeps a call."""
        return isinstance(self._in_the_way(None, Void(""), call, rules, {}), Short)

    def _allowed_on(self, held: OpenHold | None) -> dict[str, int]:
        names = () if held is None else held.accounts
        for name in names:
            self._accounts[name].balance.pass_time(micros(self._now()))
        return {name: self._accounts[name].balance.allowed_nano for name in names}

    def _passes_on(self, held: OpenHold, outcome: Charge | Void, call: Call, rules: Rules) -> bool:
        """Say whether the next attempt gets what a person allowed this one: that cost nothing, and it fits by that."""
        given = self._questions.allowances.get(held.call)
        if given is None or isinstance(outcome, Charge) or not may_inherit(call, held):
            return False
        seats = self._seats(call.payers, call.provider, call.model, self._in_force(rules))
        is_its = any(seat.account == given.account for seat in seats)
        return is_its and self._in_the_way(held, outcome, replace(call, reserve=None), rules, {}) is None

    def _pass_on(self, held: OpenHold, call: Call, rules: Rules) -> tuple[Resolved | None, Answer]:
        """Let a call have what it needs of what the attempt before was allowed: of that the rest is taken back."""
        given = self._questions.allowances[call.id] = self._questions.allowances.pop(held.call)
        self._event(PASSED_ON, call.payers.task)
        self._keeps = True
        resolved = self._resolve(held.call, None, Void("")).result()
        answer = self._hold(replace(call, reserve=None), rules, None, None, out_of_turn=True).result()
        self._keeps = False
        assert isinstance(answer, Held), "the next attempt does not fit"
        self._accounts[given.account].balance.free(held.usd - call.quote.most.nano)
        return resolved, replace(answer, standings=self._current([s.account for s in answer.standings]))

    def _in_the_way(
        self, held: OpenHold | None, outcome: Charge | Void, call: Call, rules: Rules, allowed: Mapping[str, int]
    ) -> Answer | None:
        """Say why a call does not fit beside what the one before leaves; None: it does."""
        now = self._now()
        if (stopped := self._barred(call.payers)) is not None:
            return stopped
        standings = self._standings(self._seats(call.payers, call.provider, call.model, self._in_force(rules)))
        cost = (outcome.amount.nano, outcome.tokens) if isinstance(outcome, Charge) else (0, 0)
        after = standings if held is None else left_by(standings, held, cost, allowed)
        short = tuple(violations(with_reserve(after, call.reserve), call.quote))
        return Short(now, standings, short) if short else None

    def _barred(self, payers: Payers) -> Closed | Paused | None:
        """See Ledger.barred."""
        now = self._now()
        if self._terms.get(payers.task, LIFETIME_TERMS).closes(payers):
            return Closed(now, payers.task)
        return self._pauses.of(payers, micros(now))

    def _amounts(self, call_id: str) -> OpenHold | None:
        """Give an open hold in plain amounts; None: there is none."""
        held = self._open.get(call_id)
        if held is None:
            return None
        quote, task = held.call.quote, held.call.payers.task
        return OpenHold(call_id, micros(held.at), quote.most.nano, quote.tokens, held.accounts, "", task)

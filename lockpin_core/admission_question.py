"""Asks a person about a call that only its task's own limit is in the way of (SPEC §17). Nothing is held meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

from lockpin_core.admission_waits import NO_TIME, Waits
from lockpin_core.budgets import Standing
from lockpin_core.call import Call
from lockpin_core.clock import Clock
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger.answers import answer_of
from lockpin_core.ledger.protocol import Ledger, Rules, Short
from lockpin_core.ledger.questions import APPROVAL, ONCE, RAISE, REFUSE, Asking, Choice, Question
from lockpin_core.money import ZERO, Money

POLL_S = 0.2  # how often an answer is looked for that another process may have taken
LOOK_EACH = 5  # of so many such looks one is also whether a person is needed still


class Asker:
    """Puts questions, and waits for their answers."""

    def __init__(self, ledger: Ledger, waits: Waits, clock: Clock, rules: Rules) -> None:
        self._ledger, self._waits, self._clock, self._rules = ledger, waits, clock, rules

    async def ask(self, call: Call, short: Short, digest: bytes, patience: timedelta) -> Question | None:
        """Give the question with its answer, or without one; None: nobody watches.

        Without one it is given where nobody answered in time, and while it is open, where the call need not wait any
        longer: it fits by now, it cannot go whatever is answered, or nobody watches any more.
        """
        if patience <= NO_TIME:
            return None
        try:
            question = await answer_of(self._ledger.ask(_asking(call, short, digest, patience)))
        except LedgerUnavailable:
            return None
        if question is None or question.answer is not None:
            return question
        with self._waits.counting(call.id):
            return await self._answered(question, patience, call)

    async def _answered(self, question: Question, patience: timedelta, call: Call) -> Question:
        """Look until it is answered, its time is over, or its call need or would not wait; then once more."""
        looks = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience.total_seconds()):
                while question.is_open(self._clock()):
                    await asyncio.sleep(POLL_S)
                    question, looks = await self._look(question), looks + 1
                    if looks % LOOK_EACH == 0 and not await self._is_needed(call):
                        break
        return await self._look(question)

    async def _is_needed(self, call: Call) -> bool:
        try:
            return await answer_of(self._ledger.is_for_a_person(call, self._rules))
        except LedgerUnavailable:
            return True

    async def _look(self, question: Question) -> Question:
        """Give a question as it stands now, or as it was known where the ledger cannot be read."""
        try:
            found: Question | None = await answer_of(self._ledger.question(question.id))
        except LedgerUnavailable:
            return question
        return question if found is None else found


def is_for_a_person(short: Short) -> bool:
    """Say whether the task's own limit, in dollars, is all that is in the way."""
    return bool(short.violations) and all(_is_short_of_own_usd(one) for one in short.violations)


def _is_short_of_own_usd(standing: Standing) -> bool:
    return standing.budget.own and standing.limit is not None and standing.limit_tokens is None


def _asking(call: Call, short: Short, digest: bytes, patience: timedelta) -> Asking:
    own = short.violations[0]
    left = own.remaining()
    assert left is not None and own.limit is not None, "only a limit in dollars is asked about"
    needed = call.quote.most
    short_by = max(needed - left, ZERO)
    choices = (Choice(ONCE, needed), Choice(RAISE, _raise(short_by, own.limit)), Choice(REFUSE))
    data = {
        "budget": own.budget.name,
        "limit_usd": own.limit.exact(),
        "spent_usd": own.spent.exact(),
        "held_usd": own.held.exact(),
        **({"reserved_usd": own.reserved.exact()} if own.reserved else {}),
        "client": call.client,
        "provider": call.provider,
        "output_limit": call.output_limit,
    }
    return Asking(APPROVAL, call, digest, needed, short_by, choices, patience, data)


def _raise(short_by: Money, limit: Money) -> Money:
    """Suggest a raise: half of what the limit is, and at least what the call is short of, in whole cents."""
    cent = 10**7
    least = max(short_by.nano, limit.nano // 2)
    return Money(-(-least // cent) * cent)

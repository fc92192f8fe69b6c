"""What becomes of a call whose agent goes round in a circle: it is marked, a person is asked, or its task is stopped.

A loop is told of once, and again each time as many calls later as make one; that is kept in the ledger, so that other
processes, and this one after a restart, do not tell of it anew. While calls wait here for the answer to a question, the
other calls of that task wait for it too. Whoever waits holds nothing. Without an answer calls pass, as where nobody
watches.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from lockpin_core.admission import Priced
from lockpin_core.admission_repeats import Repeats
from lockpin_core.admission_shown import shown_text
from lockpin_core.admission_waits import Waits
from lockpin_core.call import Call
from lockpin_core.clients import patience_s
from lockpin_core.clock import Clock
from lockpin_core.config import Config
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger.answers import answer_of
from lockpin_core.ledger.protocol import Ledger
from lockpin_core.ledger.questions import CONTINUE, LOOP, STOP, Asking, Choice, Question
from lockpin_core.money import ZERO
from lockpin_core.observers.loop import Loop

FOUND = "loop_found"  # the code of its event
LOOK_S = 0.2  # how often it is looked whether a question was answered
_TOOLS = 5  # whose names an event has
_BY = "the loop check"  # who stops a task where nobody is asked

type Whose = tuple[str, str | None]  # a task, and the user whose calls of it go round in a circle


@dataclass(frozen=True, slots=True)
class _Open:
    """A question that calls wait for here."""

    question: Question
    waiting: int = 1


class LoopCheck:
    """Looks at each call before it is held. `waits` counts the time that it keeps one waiting."""

    def __init__(self, config: Config, ledger: Ledger, clock: Clock, waits: Waits) -> None:
        near = config.near_cap
        self._loop, self._wait = near.loop, timedelta(milliseconds=near.approvals_wait_ms)
        self._ledger, self._clock, self._waits = ledger, clock, waits
        self._repeats = Repeats(self._loop.repeats, ledger, clock)
        self._open: dict[Whose, _Open] = {}

    def ended(self, call_id: str) -> None:
        """Note that a call has ended, or was not sent."""
        self._repeats.ended(call_id)

    async def look(self, priced: Priced, call: Call) -> str | None:
        """Say how `X-Lockpin-Loop` names the loop that a call is part of, once it may go on; None: it is of none.

        Raises LedgerUnavailable where its task is to be stopped and cannot be.
        """
        if self._loop.action == "off":
            return None
        loop = await self._repeats.loop(priced)
        if loop is not None:
            await self._tell(loop, priced, call)
            return f"{loop.what}; repeats={loop.repeats}"
        await self._others(priced, call)
        return None

    async def _tell(self, loop: Loop, priced: Priced, call: Call) -> None:
        marks = await self._marks(loop)
        told, is_over = marks.get("told", 0), marks.get("over", False)
        if not told or loop.repeats >= told + self._loop.repeats:
            told = loop.repeats
            self._ledger.mark(loop.mark, {"told": loop.repeats, "over": None})
            self._ledger.tell(FOUND, self._event(loop, call), call.payers.task)
        elif is_over:
            await self._others(priced, call)
            return
        if self._loop.action == "stop":
            why = {"call": call.id, "what": loop.what, "repeats": loop.repeats}
            await answer_of(self._ledger.stop_task(call.payers, who=_BY, data=why))
        elif self._loop.action == "ask":
            await self._ask(loop, told, priced, call)
        self._ledger.mark(loop.mark, {"over": True})

    async def _marks(self, loop: Loop) -> Mapping[str, Any]:
        try:
            return await answer_of(self._ledger.marks(loop.mark))
        except LedgerUnavailable:
            return {}

    def _event(self, loop: Loop, call: Call) -> dict[str, object]:
        tools = [shown_text(name) for name in loop.tools[:_TOOLS]]
        whose = {"user": call.payers.user} if call.payers.user else {}
        facts = {"call": call.id, "what": loop.what, "repeats": loop.repeats, "tools": tools, "model": call.model}
        return {**facts, **whose, "action": self._loop.action}

    async def _others(self, priced: Priced, call: Call) -> None:
        known = self._open.get(_whose(call))
        if known is not None:
            await self._answer(known.question, priced, call)

    async def _ask(self, loop: Loop, told: int, priced: Priced, call: Call) -> None:
        """Ask whoever watches, and wait for the answer; what follows from it is in the ledger with it.

        `told`: how long the loop was when it was told of: an answer is for that once.
        """
        patience = self._patience(priced, call)
        if patience <= _NO_TIME:
            return
        facts = {name: value for name, value in self._event(loop, call).items() if name in ("what", "repeats", "tools")}
        digest = hashlib.sha256(b"%b%d" % (loop.mark, told)).digest()
        asking = Asking(LOOP, call, digest, ZERO, ZERO, (Choice(CONTINUE), Choice(STOP)), patience, facts)
        try:
            if await answer_of(self._ledger.paused(call.payers)) is not None:
                return  # its calls pause already, which its hold says
            question = await answer_of(self._ledger.ask(asking))
        except LedgerUnavailable:
            return  # its hold says it
        if question is not None and question.answer is None:
            await self._answer(question, priced, call)

    async def _answer(self, question: Question, priced: Priced, call: Call) -> None:
        """Wait until a question is answered, its time is over, or the client would not wait any longer."""
        whose, deadline = _whose(call), self._clock() + self._patience(priced, call)
        known = self._open.get(whose)
        others = known.waiting if known is not None and known.question.id == question.id else 0
        self._open[whose] = _Open(question, others + 1)
        try:
            with self._waits.counting(call.id):
                while await self._is_open(question):
                    if self._clock() >= deadline:
                        break
                    await asyncio.sleep(LOOK_S)
        finally:
            self._leave(whose, question)

    async def _is_open(self, question: Question) -> bool:
        try:
            found = await answer_of(self._ledger.question(question.id))
        except LedgerUnavailable:
            return False
        return found is not None and found.is_open(self._clock())

    def _leave(self, whose: Whose, question: Question) -> None:
        known = self._open.get(whose)
        if known is None or known.question.id != question.id:
            return
        if known.waiting <= 1:
            del self._open[whose]
        else:
            self._open[whose] = _Open(question, known.waiting - 1)

    def _patience(self, priced: Priced, call: Call) -> timedelta:
        client = timedelta(seconds=patience_s(priced.incoming.headers))
        return min(self._wait, client - timedelta(milliseconds=self._waits.waited_ms(call.id)))


_NO_TIME = timedelta(0)


def _whose(call: Call) -> Whose:
    return call.payers.task, call.payers.user

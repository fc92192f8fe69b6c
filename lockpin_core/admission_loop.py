"""What becomes of a call whose agent goes round in a circle: it is marked, a person is asked, or its task is stopped.

A loop is told of once, and again each time as many calls later as make one; that is kept in the ledger, so that other
processes, and this one after a restart, do not tell of it anew. While a question is open, whichever process put it, the
calls of that task wait for its answer. Whoever waits holds nothing. Without an answer calls pass, as where nobody
watches. How long they wait is by the clock that never steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from lockpin_core.admission import Priced
from lockpin_core.admission_repeats import Repeats
from lockpin_core.admission_shown import shown_text
from lockpin_core.admission_waits import NO_TIME, Waits
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
_KNOWN = 1024  # questions that were seen here
_TOOLS = 5  # whose names an event has
_BY = "the loop check"  # who stops a task where nobody is asked


class LoopCheck:
    """Looks at each call before it is held. `waits` counts the time that it keeps one waiting."""

    def __init__(self, config: Config, ledger: Ledger, clock: Clock, waits: Waits) -> None:
        near = config.near_cap
        self._loop, self._wait_most = near.loop, timedelta(milliseconds=near.approvals_wait_ms)
        self._ledger, self._clock, self._waits = ledger, clock, waits
        self._repeats = Repeats(self._loop.repeats, ledger, clock)
        self._ends: OrderedDict[str, float] = OrderedDict()  # of questions, by the event loop's clock

    def ended(self, call_id: str) -> None:
        """Note that a call has ended, or was not sent."""
        self._repeats.ended(call_id)

    def goes_on(self, call_id: str, next_id: str) -> None:
        """Note that a call which has failed is sent again as another one."""
        self._repeats.goes_on(call_id, next_id)

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
            is_over = False
        if is_over:
            await self._others(priced, call)
        elif self._loop.action == "stop":
            why = {"call": call.id, "what": loop.what, "repeats": loop.repeats}
            await answer_of(self._ledger.stop_task(call.payers, who=_BY, data=why))
            is_over = True
        elif self._loop.action == "ask":
            is_over = await self._ask(loop, told, priced, call)
        if is_over:
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
        """Wait for the answer to a question about another loop of its task."""
        patience = self._patience(priced, call)
        if self._loop.action == "ask" and patience > NO_TIME and await self._is_held_up(call):
            await self._wait(call, patience)

    async def _ask(self, loop: Loop, told: int, priced: Priced, call: Call) -> bool:
        """Ask whoever watches, and wait for the answer; what follows from it is in the ledger with it.

        `told`: how long the loop was when it was told of: an answer is for that once. Says whether the question is
        over: it was answered, or nobody did in its time.
        """
        patience = self._patience(priced, call)
        if patience <= NO_TIME:
            return False
        facts = {name: value for name, value in self._event(loop, call).items() if name in ("what", "repeats", "tools")}
        digest = hashlib.sha256(b"%b%d" % (loop.mark, told)).digest()
        asking = Asking(LOOP, call, digest, ZERO, ZERO, (Choice(CONTINUE), Choice(STOP)), patience, facts)
        try:
            if await answer_of(self._ledger.paused(call.payers)) is not None:
                return False  # its calls pause already, which its hold says
            question = await answer_of(self._ledger.ask(asking))
            if question is None:
                return False
            if self._is_open(question):
                await self._wait(call, patience)
                question = await answer_of(self._ledger.question(question.id)) or question
        except LedgerUnavailable:
            return False  # its hold says it
        return not self._is_open(question)

    async def _wait(self, call: Call, patience: timedelta) -> None:
        """Wait until nothing holds a call up any more, or its client would not wait any longer."""
        with self._waits.counting(call.id), contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience.total_seconds()):
                is_held_up = True
                while is_held_up:
                    await asyncio.sleep(LOOK_S)
                    is_held_up = await self._is_held_up(call)

    async def _is_held_up(self, call: Call) -> bool:
        """Say whether a question is open that a call waits for: one whose task pauses is refused at once."""
        try:
            found = await answer_of(self._ledger.open_loops(call.payers))
            still_open = [question for question in found if self._is_open(question)]
            return bool(still_open) and await answer_of(self._ledger.paused(call.payers)) is None
        except LedgerUnavailable:
            return False  # its hold says it

    def _is_open(self, question: Question) -> bool:
        """Say whether a question waits for an answer: from when it was first seen here no longer than it is open.

        The wall clock may have been set back since it was put, and ledger time may stand still.
        """
        now_s = asyncio.get_running_loop().time()
        end_s = self._ends.setdefault(question.id, now_s + (question.until - question.asked).total_seconds())
        if len(self._ends) > _KNOWN:
            self._ends.popitem(last=False)
        return question.is_open(self._clock()) and now_s < end_s

    def _patience(self, priced: Priced, call: Call) -> timedelta:
        client = timedelta(seconds=patience_s(priced.incoming.headers))
        return min(self._wait_most, client - timedelta(milliseconds=self._waits.waited_ms(call.id)))

"""Seeks room for a call: climbs the ladder, rung by rung. Knows what each rung does; knows no bytes and no SQL."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import assert_never

from lockpin_core.admission import Priced, Refused, limit_to_set
from lockpin_core.admission_cheaper import CheaperModels, Reprice
from lockpin_core.admission_counts import Counts
from lockpin_core.admission_latch import Latch
from lockpin_core.admission_lower import Lower, Lowering, may_pass
from lockpin_core.admission_memory import NOTHING, Conversations, Marks
from lockpin_core.admission_question import Asker, is_for_a_person
from lockpin_core.admission_waits import NO_TIME, Waits
from lockpin_core.aside import beside_loop
from lockpin_core.budgets import violations, with_reserve
from lockpin_core.call import Call
from lockpin_core.clients import patience_s
from lockpin_core.clock import Clock
from lockpin_core.config import Config
from lockpin_core.errors import LedgerUnavailable, LockpinError, WireError
from lockpin_core.ladder import CACHE_5M, FIT, TRIM, Cheaper, Rung, ladder
from lockpin_core.ledger.answers import answer_of, failed_by
from lockpin_core.ledger.protocol import Answer, Held, Ledger, Rules, Short, Smaller, Wait

_WAITS = 100  # at most so often a call waits again that was let wait no longer, and then a limit was raised


@dataclass(frozen=True, slots=True)
class Found:
    """Where the search ended: the call as it was last priced, and what the ledger said to it.

    A Short answer is about this call: the whole one, or the smallest version where only that could fit some time.
    """

    priced: Priced
    call: Call
    answer: Answer
    instead: str | None = None  # provider/model that serves in the place of the one that was asked for
    conversation: bytes | None = None  # of a call that was lowered


@dataclass(slots=True)
class _Search:
    """One call on its way up the ladder."""

    sent: Priced  # as it came
    priced: Priced  # the version that is tried now, and that waits
    call: Call
    began: datetime
    conversation: bytes | None = None
    marks: Marks = NOTHING
    short: Short | None = None  # the last answer
    digest: bytes = b""
    light: tuple[Priced, Call] | None = None  # the lightest version, where it alone finds no room
    lower: Lower | None = None
    is_near: bool = False
    was_near: bool = False  # when it was last worked out how far it may be lowered
    before_ms: int | None = None  # what it had waited before it first waited for room
    was_asked: bool = False
    refused_by_person: bool = False


class Seeker:
    """Tries a call as it is, counted, lighter, later, smaller, cheaper. `waits`: how long those under way waited."""

    def __init__(
        self, config: Config, ledger: Ledger, counts: Counts, latch: Latch, *, rules: Rules, clock: Clock,
        reprice: Reprice | None = None,
    ) -> None:  # fmt: skip
        self._config, self._ledger, self._counts, self._latch = config, ledger, counts, latch
        self._rules, self._clock, self.waits = rules, clock, Waits(clock)
        self._reprice = reprice
        self.cheaper = CheaperModels(config.near_cap.cheaper, ledger, rules, reprice)
        self.conversations = Conversations(ledger, config.near_cap.degrade, clock)
        self._asker = Asker(ledger, self.waits, clock, rules)

    async def seek(self, priced: Priced, call: Call) -> Found:
        """Hold the call, made of `priced`, in the first version that fits; a Short answer is final for all of them."""
        waited_ms = self.waits.waited_ms(call.id)  # before it came here
        began = self._clock() - timedelta(milliseconds=waited_ms)
        call = call if waited_ms == call.waited_ms else replace(call, waited_ms=waited_ms)
        search = _Search(priced, priced, call, began)
        if self.conversations.has_cut:
            await self._remember(search)
        await self._go_on_lighter(search)
        for rung in ladder(_Facts(self, search)):
            found = await self._climb(rung, search)
            if found is None:
                continue
            if not isinstance(found.answer, Short):
                return await self._end(search, found)
            self._see(search, found.answer)
        return self._refused(search)

    def _see(self, search: _Search, short: Short) -> None:
        search.short = short
        search.is_near = self.conversations.see(search.sent.incoming.payers.whose, short.standings)

    async def _climb(self, rung: Rung | Cheaper, search: _Search) -> Found | None:
        """Try one rung; None: there is nothing to try."""
        match rung:
            case Rung.AS_SENT:
                return await self._as_sent(search)
            case Rung.COUNTED:
                return await self._counted(search)
            case Rung.CACHE_5M:
                await self._remember(search)
                return await self._lighter(search, trim=search.marks.trim)
            case Rung.TRIMMED:
                return await self._trimmed(search)
            case Rung.LATER_OR_LOWER:
                return await self._later_or_lower(search)
            case Rung.LIGHTER_AND_LOWER:
                return await self._lighter_and_lower(search)
            case Cheaper():
                return await self._cheaper(search, rung.model)
            case Rung.ASKED:
                return await self._asked(search)
            case Rung.AGAIN:
                return await self._again(search)
        assert_never(rung)

    async def _go_on_lighter(self, search: _Search) -> None:
        """Make the call as light as the one before it in its conversation was, so that prompt caches go on to hit."""
        if not self.may_lighten(search) or not self.conversations.may_be_lighter(search.sent.incoming.payers.whose):
            return
        await self._remember(search)
        if search.marks.is_lighter:
            self.conversations.see_lighter(search.sent.incoming.payers.whose)
            found = await self._version(search, trim=search.marks.trim, cache_5m=search.marks.cache_5m)
            if found is not None:
                search.priced, search.call = found

    async def _remember(self, search: _Search) -> None:
        if search.conversation is None:
            search.conversation = await self.conversations.id_of(search.sent)
            search.marks = await self.conversations.marks(search.conversation)

    def may_lighten(self, search: _Search) -> bool:
        """Say whether a call may be made lighter at all."""
        degrade, sent = self._config.near_cap.degrade, search.sent
        is_on = degrade.on and (degrade.trim or degrade.cache_5m) and sent.incoming.may_degrade
        return is_on and not sent.parsed.stays_as_it_came and not sent.parsed.batch and self._reprice is not None

    def may_ask(self, search: _Search) -> bool:
        """Say whether somebody may be asked about it; not so where the same call was refused just now."""
        return self._config.near_cap.approvals_wait_ms > 0 and not self._latch.is_closed(search.digest, self._clock())

    async def _as_sent(self, search: _Search) -> Found:
        answer, sent = await self._ask(search.call), search.sent
        if isinstance(answer, Short) and self._reprice is not None and self._gets_limit(sent):
            # A limit came into force only just now: the call gets the output limit that it would have with it.
            search.sent, call = await self._reprice(sent.incoming, sent.wire)
            search.priced, search.call = search.sent, replace(call, waited_ms=search.call.waited_ms)
            answer = await self._ask(search.call)
        return Found(search.priced, search.call, answer)

    def _gets_limit(self, sent: Priced) -> bool:
        """Say whether a call would get an output limit from Lockpin, had a limit been in force when it was priced."""
        return not sent.is_capped and limit_to_set(sent, self._config, capped=True) is not None

    async def _counted(self, search: _Search) -> Found | None:
        search.digest = await self._digest(search.sent)
        key = search.digest + _light_key(search.priced)
        counted = await self._counts.counted(search.priced, key)
        if counted is None:
            return None
        search.priced, search.call = counted, _call_of(counted, search.call)
        return Found(counted, search.call, await self._ask(search.call))

    async def _trimmed(self, search: _Search) -> Found | None:
        if not self._config.near_cap.degrade.trim:
            return None
        request = search.sent.incoming.request()
        trim = await beside_loop(len(request.body), partial(search.sent.wire.trimmable, request))
        return await self._lighter(search, trim=trim) if trim > search.marks.trim else None

    async def _lighter(self, search: _Search, *, trim: int) -> Found | None:
        """Try a lighter version; it stays where it fits, or may wait where the heavier one may not."""
        cache_5m = self._config.near_cap.degrade.cache_5m or search.marks.cache_5m
        found = await self._version(search, trim=trim, cache_5m=cache_5m)
        if found is None:
            return None
        priced, call = found
        answer = await self._ask(call)
        if isinstance(answer, Short):
            counted = await self._counts.counted(priced, search.digest + _light_key(priced))
            if counted is not None:
                priced, call = counted, _call_of(counted, call)
                answer = await self._ask(call)
        if isinstance(answer, Short):
            if not may_pass(answer, call) or search.short is None or may_pass(search.short, search.call):
                search.light = (priced, call)
                return None  # the heavier one is what waits, or is lowered
            search.priced, search.call = priced, call
        return Found(priced, call, answer)

    async def _version(self, search: _Search, *, trim: int, cache_5m: bool) -> tuple[Priced, Call] | None:
        """Price the call as it is when it is made lighter; None: there is nothing to leave out."""
        sent, before = search.sent, search.priced
        incoming, request = sent.incoming, sent.incoming.request()
        lighten = partial(sent.wire.lightened, request, cache_5m=cache_5m, trim=trim)
        body = await beside_loop(len(request.body), lighten)
        if body is None or body == before.incoming.body or self._reprice is None:
            return None
        try:
            priced, call = await self._reprice(replace(incoming, body=body), sent.wire)
        except (Refused, WireError):
            return None  # what was sent stands
        if trim and cache_5m:  # which of both has changed the body
            alone = partial(sent.wire.lightened, request, cache_5m=True, trim=0)
            cache_5m = await beside_loop(len(request.body), alone) is not None
        marks = (*((CACHE_5M,) if cache_5m else ()), *((TRIM,) if trim else ()))
        priced = replace(priced, changed=True, degrade=marks, trim=trim, is_capped=sent.is_capped or priced.is_capped)
        if not trim and sent.parsed.content.counted is None and before.parsed.content.counted is not None:
            content = replace(priced.parsed.content, counted=before.parsed.content.counted)
            priced = replace(priced, parsed=replace(priced.parsed, content=content))
        return priced, replace(_call_of(priced, call), waited_ms=search.call.waited_ms)

    async def _later_or_lower(self, search: _Search) -> Found:
        """Let the call wait for room, and as the smallest version where the whole cannot fit; then make it smaller."""
        assert search.short is not None, "it found room"
        lower = search.lower = Lower(search.priced, search.call, await self._lowering(search))
        answer = await self._room_for(lower, search.short, search)
        search.call = lower.call
        return Found(lower.priced_of(answer), lower.call, answer)

    async def _room_for(self, lower: Lower, short: Short, search: _Search) -> Answer:
        answer: Answer = short
        if search.before_ms is None:
            search.before_ms = self.waits.waited_ms(lower.call.id)
        before_ms = search.before_ms
        if not may_pass(short, lower.call) or self._wait(lower, search, before_ms) is None:
            answer = await self._ask(lower.call, lower, out_of_turn=short.behind)
        for _ in range(_WAITS):
            if not isinstance(answer, Short):
                break
            wait, is_over = self._wait(lower, search, before_ms) if lower.may_pass(answer) else None, True
            if wait is not None:
                waited = await self._ask(lower.call, lower, wait=wait)
                lower.call = replace(lower.call, waited_ms=self.waits.waited_ms(lower.call.id))
                if not isinstance(waited, Short):
                    return waited
                is_over = lower.may_pass(waited)  # else its wait was broken off
            elif not answer.behind and lower(answer.standings) is None:
                return answer
            # Nothing that fits is refused, whoever stands before it; and limits and spend may be others by now.
            answer = await self._ask(lower.call, lower, out_of_turn=True)
            if is_over:
                break
        return answer

    async def _lowering(self, search: _Search) -> Lowering:
        """Say how far a call may be lowered (SPEC §11)."""
        sent, fit, degrade = search.sent, self._config.fit, self._config.near_cap.degrade
        parsed, wire = sent.parsed, sent.wire
        may_change = parsed.output_settable and sent.incoming.may_degrade and not parsed.batch
        near = search.was_near = search.is_near and sent.incoming.may_degrade
        lowers = search.call.limit_set or near or (wire.always_limited and fit.output)
        lowers = lowers and may_change and wire.has_limit and search.call.output_limit is not None
        if lowers:
            await self._remember(search)
        floor = degrade.output_floor if near else fit.floor
        floor = max(floor, wire.min_output, wire.least_output(parsed))
        return Lowering(floor, lowers, may_change, partial(self.conversations.is_cut, search.conversation))

    async def _lighter_and_lower(self, search: _Search) -> Found | None:
        if search.light is None:
            return None
        priced, call = search.light
        lower = Lower(priced, replace(call, waited_ms=search.call.waited_ms), await self._lowering(search))
        answer = await self._ask(lower.call, lower, out_of_turn=True)
        return None if isinstance(answer, Short) else Found(lower.priced_of(answer), lower.call, answer)

    async def _cheaper(self, search: _Search, target: str) -> Found | None:
        """Try another model of the same provider in its place: by its bytes, counted, lowered."""
        found = await self.cheaper.version(search.sent, target)
        if found is None:
            return None
        asked = f"{search.call.provider}/{search.sent.parsed.model}"
        priced, call = found[0], replace(found[1], waited_ms=search.call.waited_ms, instead_of=asked)
        answer = await self._ask(call, out_of_turn=True)
        if isinstance(answer, Short):
            counted = await self._counts.counted(priced, search.digest + target.encode())
            if counted is not None:
                priced, call = counted, replace(_call_of(counted, call), waited_ms=call.waited_ms)
            lower = Lower(priced, call, await self._lowering(search))
            answer = await self._ask(call, lower, out_of_turn=True)
            priced = lower.priced_of(answer)
        return None if isinstance(answer, Short) else Found(priced, call, answer, instead=target)

    async def _asked(self, search: _Search) -> Found | None:
        """Ask a person about a call that only its task's own limit is in the way of."""
        assert search.short is not None, "it found room"
        assert search.lower is not None, "it was not made smaller"
        before_ms, said, is_open = self.waits.waited_ms(search.call.id), None, True
        while is_open:
            waited_ms = self.waits.waited_ms(search.call.id) - before_ms
            most = timedelta(milliseconds=self._config.near_cap.approvals_wait_ms - waited_ms)
            patience = min(most, self._left(search))
            said = await self._asker.ask(search.call, search.short, search.digest, patience)
            search.call = search.lower.call = replace(search.call, waited_ms=self.waits.waited_ms(search.call.id))
            search.was_asked = search.was_asked or said is not None
            is_open = said is not None and (said.gone is not None or said.is_open(self._clock()))
            is_open = is_open and self._left(search) > NO_TIME
            if is_open:  # it need not wait: but somebody else may have been quicker
                found = await self._again(search)
                if not isinstance(found.answer, Short) or not is_for_a_person(found.answer):
                    return found
                self._see(search, found.answer)
        if said is None or said.answer is None:
            return None
        if said.answer == "refuse":
            search.refused_by_person = True
            return None
        allowed = said.id if said.answer == "once" else None
        lower = search.lower
        answer = await self._ask(lower.call, None if allowed else lower, allowed=allowed, out_of_turn=True)
        return Found(lower.priced_of(answer), lower.call, answer)

    async def _again(self, search: _Search) -> Found:
        lower = search.lower = Lower(search.priced, search.call, await self._lowering(search))
        answer = await self._ask(lower.call, lower, out_of_turn=True)
        return Found(lower.priced_of(answer), lower.call, answer)

    async def _end(self, search: _Search, found: Found) -> Found:
        """Remember how a call goes that has found room."""
        answer = found.answer
        if not isinstance(answer, Held):
            return found
        whose = search.sent.incoming.payers.whose
        self.conversations.see(whose, answer.standings)
        marks = answer.call.degrade
        if TRIM in marks or CACHE_5M in marks:
            trim = found.priced.trim
            self.conversations.keep_lighter(search.conversation, whose, trim=trim, cache_5m=CACHE_5M in marks)
        if FIT in marks:
            return replace(found, conversation=search.conversation if answer.call.limit_set else None)
        try:
            if search.conversation is None and not answer.degraded and await self.conversations.look_around():
                await self._remember(search)
        except BaseException:
            self._ledger.cancel(answer.call.id)
            raise
        if search.marks.cut and search.conversation is not None:
            self.conversations.note_cut(search.conversation, cut=False)
        return found

    def _refused(self, search: _Search) -> Found:
        """Refuse the whole call, or the smallest version where only held money was in the way of that one alone."""
        short, lower = search.short, search.lower
        assert short is not None, "it found room"
        assert lower is not None, "it was not made smaller"
        if search.refused_by_person:
            self._latch.close(search.digest, self._clock())
        elif may_pass(short, lower.call):
            return Found(lower.priced, lower.call, short)
        elif (least := lower.least) is not None and may_pass(short, least[1]):
            standings = with_reserve(short.standings, least[1].reserve)
            wrong = tuple(violations(standings, least[1].quote))
            if wrong:  # else it was not to be had when it was tried
                return Found(*least, replace(short, standings=standings, violations=wrong))
        self._latch.close(search.digest, self._clock())
        return Found(lower.priced, lower.call, short)

    def _wait(self, lower: Lower, search: _Search, before_ms: int) -> Wait | None:
        """Say how long the call may wait, which had waited so long before it came here; None: it may not."""
        if self._latch.is_closed(search.digest, self._clock()):
            return None
        left_ms = self._config.queue_wait_ms - (self.waits.waited_ms(search.call.id) - before_ms)
        patience = min(timedelta(milliseconds=left_ms), self._left(search))
        least = lower.least
        wait = Wait(patience) if least is None else Wait(patience, least[1].quote, least[1].reserve)
        return wait if patience > NO_TIME else None

    def _left(self, search: _Search) -> timedelta:
        """Say how much longer the client bears silence; what it waited counts also where the clock was set back."""
        patience = timedelta(seconds=patience_s(search.sent.incoming.headers))
        waited = timedelta(milliseconds=self.waits.waited_ms(search.call.id))
        return patience - max(self._clock() - search.began, waited)

    async def _digest(self, priced: Priced) -> bytes:
        """Digest what makes it the same call again: its task and what it asks."""
        request = priced.incoming.request()
        same = await beside_loop(len(request.body), partial(priced.wire.same_call, request))
        return hashlib.sha256(priced.incoming.payers.whose.encode() + b"\0" + same).digest()

    async def _ask(
        self, call: Call, smaller: Smaller | None = None, *, wait: Wait | None = None, out_of_turn: bool = False,
        allowed: str | None = None,
    ) -> Answer:  # fmt: skip
        """Ask for a hold. Where the asking is broken off, a hold that came about is taken off again."""
        with contextlib.nullcontext() if wait is None else self.waits.counting(call.id):
            more = {} if allowed is None else {"allowed": allowed}
            holding = self._ledger.hold(call, self._rules, smaller, wait, out_of_turn=out_of_turn, **more)
            try:
                return await answer_of(holding)
            except LedgerUnavailable:
                raise
            except BaseException as error:
                self._ledger.cancel(call.id)
                if failed_by(holding, error):
                    what = str(error) if isinstance(error, LockpinError) else type(error).__name__
                    words = f"the amount could not be held ({what}); the call was not sent"
                    raise Refused("reserve_failed", words, model=call.model) from error
                raise


def _light_key(priced: Priced) -> bytes:
    """Tell the counts of a lighter version from those of the whole call; one of the cache alone has the same."""
    return b"\0trim %d" % priced.trim if priced.trim else b""


def _call_of(priced: Priced, before: Call) -> Call:
    """Make the call of a version, with the output limit that the one before got from Lockpin, if any."""
    call = priced.call(before.output_limit if before.limit_set else None)
    return replace(call, waited_ms=before.waited_ms, instead_of=before.instead_of)


@dataclass(slots=True)
class _Facts:
    """How a search stands, for the ladder."""

    seeker: Seeker
    search: _Search

    def is_near_cap(self) -> bool:
        return self.search.is_near and self.seeker.may_lighten(self.search)

    def has_turned(self) -> bool:
        return (self.search.is_near and self.search.sent.incoming.may_degrade) != self.search.was_near

    def cheaper(self) -> Sequence[str]:
        sent = self.search.sent
        return self.seeker.cheaper.of(sent) if sent.incoming.may_degrade else ()

    def is_for_a_person(self) -> bool:
        short = self.search.short
        return short is not None and is_for_a_person(short) and self.seeker.may_ask(self.search)

    def was_asked(self) -> bool:
        return self.search.was_asked

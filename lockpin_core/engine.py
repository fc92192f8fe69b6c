"""The route of a call: admit, settle, void. It sequences what others decide; it holds collaborators and no rule."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from functools import partial

from lockpin_core.addresses import canonical_path
from lockpin_core.admission import (
    DEGRADE_HEADER,
    Incoming,
    Priced,
    Refused,
    body_change,
    is_capped,
    limit_to_set,
    may_go_uncapped,
    priced_in_steps,
    unread,
)
from lockpin_core.admission_counts import Counter, Counts
from lockpin_core.admission_drift import DriftWatch
from lockpin_core.admission_fits import what_fits
from lockpin_core.admission_latch import Latch
from lockpin_core.admission_limits import is_tight, refuse_endless, task_closed, without_tools
from lockpin_core.admission_loop import LoopCheck
from lockpin_core.admission_models import check_models
from lockpin_core.admission_paused import pause_headers, pause_refusal
from lockpin_core.admission_room import Found, Seeker
from lockpin_core.admission_routing import price_cap, with_price_cap
from lockpin_core.admission_shown import shown_path, shown_text
from lockpin_core.aside import at_once, beside_loop, in_turns
from lockpin_core.budgets import Standing, has_limit
from lockpin_core.call import (
    Call,
    Outcome,
    Parsed,
    Payers,
    Reading,
    Refusal,
    Reply,
    Rewrite,
)
from lockpin_core.clients import client_of
from lockpin_core.clock import Clock
from lockpin_core.config import Config
from lockpin_core.errors import LedgerUnavailable, WireError
from lockpin_core.forms import put
from lockpin_core.ledger.answers import answer_of
from lockpin_core.ledger.pauses import Paused
from lockpin_core.ledger.protocol import CallNote, Closed, Held, Ledger, Rules, Short
from lockpin_core.prices import PriceTable
from lockpin_core.providers import Free, Metered, Route
from lockpin_core.receipt import ReceiptFacts, receipt, refused_detail
from lockpin_core.refusals import budget_exceeded, refusal
from lockpin_core.settler import Admitted, Polled, Settler, Settling
from lockpin_core.sizing.bound import UNSEEN_CHAIN
from lockpin_core.usage import Unit
from lockpin_core.wire import wire_named
from lockpin_core.wire.protocol import Wire

UNPRICED_CODES = ("unknown_model", "unpriced_tool")  # without a limit in force such calls pass, and are recorded
_MEDIA = frozenset({Unit.AUDIO_IN, Unit.IMAGE_IN, Unit.AUDIO_OUT, Unit.IMAGE_OUT})  # dearer than text, or cheaper
_FEW_IMAGES = 64  # of a request, which are counted at once
_UPGRADE_REQUIRED = 426
_NO_SOCKETS = "a WebSocket cannot be metered; the same calls pass over HTTP, to which clients fall back by themselves"


@dataclass(frozen=True, slots=True)
class Passed:
    """Forwarded without a hold: free, or `uncapped` for this reason."""

    uncapped: str | None = None
    polled: Polled | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """Not sent: this is the reply."""

    reply: Reply
    code: str
    standings: tuple[Standing, ...] = ()  # where the refusal is about an amount


type Decision = Passed | Admitted | Answered


class Engine(Settler):
    """Admits calls for one process, and settles them as a Settler does."""

    def __init__(
        self, config: Config, prices: PriceTable, ledger: Ledger, *, rules: Rules, clock: Clock,
        counter: Counter | None = None,
    ) -> None:  # fmt: skip
        super().__init__(config, prices, ledger, Counts(counter))
        self._rules, self._clock = rules, clock
        latch, reprice = Latch(), self._priced_call
        self._seeker = Seeker(config, ledger, self._counts, latch, rules=rules, clock=clock, reprice=reprice)
        self._conversations = self._seeker.conversations
        self._loops = LoopCheck(config, ledger, clock, self._seeker.waits)
        self._drift = DriftWatch(ledger, clock)

    async def admit(self, incoming: Incoming) -> Decision:
        """Decide about a request on a metered host: SPEC §8's steps in order."""
        route = incoming.provider.route(incoming.method, incoming.path)
        if is_free(route, upgrade=incoming.upgrade):
            return Passed(polled=_polled(route, incoming))
        wire: Wire | None = None
        try:
            if incoming.upgrade and incoming.provider.metered(canonical_path(incoming.path)) is not None:
                raise Refused("uncapped_call", _NO_SOCKETS, status=_UPGRADE_REQUIRED)
            if not isinstance(route, Metered) or incoming.upgrade:
                return await self._unmetered(incoming)
            wire = wire_named(route.wire)
            named = incoming if route.model is None else replace(incoming, path_model=route.model)
            _check_headers(named)
            return await self._metered(named, wire)
        except Refused as refused:
            words = refusal(refused.code, self._to_caller(refused.words), refused.detail, status=refused.status)
            # A handshake is no call: what it is answered is no refusal that a report should count.
            is_call = refused.status != _UPGRADE_REQUIRED
            return self.refuse(incoming, words, wire, model=shown_text(refused.model or ""), write=is_call)
        except WireError as error:
            return self.refuse(incoming, refusal(error.code, str(error)), wire)
        except LedgerUnavailable as error:
            fault = f"{error}; without it no limit can be kept, so the call was not sent"
            return self.refuse(incoming, refusal("ledger_unavailable", fault), wire)
        finally:
            self._seeker.waits.forget(incoming.id)

    def _to_caller(self, words: str) -> str:
        """Say who can change the file that a refusal speaks of: in team mode it is not the caller."""
        to_team = "ask whoever runs this proxy to add to its lockpin.yaml: "
        return words.replace("add to lockpin.yaml: ", to_team) if self._config.mode == "team" else words

    async def in_force(self, machine: str) -> tuple[Standing, ...]:
        """Show the accounts of a machine and the default task, with the limits in force for them."""
        payers = Payers(self._config.task.default, machine)
        return await answer_of(self._ledger.look(payers, "", "", self._rules))

    async def _unmetered(self, incoming: Incoming) -> Decision:
        if may_go_uncapped(self._config, incoming):
            return await self._uncapped(incoming, "allow_uncapped")
        if await self._is_capped(incoming, None):
            path = shown_path(incoming.path)
            what = "an upgrade of the connection" if incoming.upgrade else f"{incoming.method} {path}"
            raise Refused(
                "uncapped_call",
                f"{what} on {incoming.host} cannot be metered, and a limit is in force; "
                f"{self._meant(incoming)}"
                f'list "{incoming.host}{path}" in allow_uncapped to let it go unmetered',
            )
        return await self._uncapped(incoming, "no_limit")

    def _meant(self, incoming: Incoming) -> str:
        """Point at the billed path that a base URL without its version misses by a little."""
        versioned = canonical_path(f"/v1/{incoming.path}")
        if incoming.provider.metered(versioned) is None:
            return ""
        return f"did the base URL lose its /v1? {versioned} is metered; else "

    async def _metered(self, incoming: Incoming, wire: Wire) -> Decision:
        found = await self._priced_or_passed(incoming, wire)
        if not isinstance(found, tuple):
            return found
        decision: Decision | None = None
        try:
            loop = await self._loops.look(*found)
            if self._seeker.waits.waited_ms(incoming.id):  # for a person: limits and prices may be others by now
                found = await self._priced_or_passed(incoming, wire)
            decision = await self._hold(*found) if isinstance(found, tuple) else found
        finally:
            if not isinstance(decision, Admitted):
                self._loops.ended(incoming.id)
        if not isinstance(decision, Admitted):
            return decision
        wants = self._drift.wants(incoming.payers, len(incoming.body))
        return replace(decision, loop=loop, request=incoming.request() if wants else None)

    async def _priced_or_passed(self, incoming: Incoming, wire: Wire) -> tuple[Priced, Call] | Decision:
        """Price a request, or let one that has no price pass where no limit is in force for it."""
        is_one = False  # the request names one model alone
        try:
            parsed = await self._read(incoming, wire)
            is_one = not parsed.also and not parsed.batch
            return await self._call_of(incoming, wire, parsed)
        except (Refused, WireError) as fault:
            # The limits of the models beside the one that has no price are in force as well.
            model = fault.model if isinstance(fault, Refused) and is_one else None
            if fault.code not in UNPRICED_CODES or await self._is_capped(incoming, model):
                raise
            return await self._uncapped(incoming, "unpriced", wire)

    def settle(self, admitted: Admitted, reading: Reading, outcome: Outcome) -> Settling:
        """See Settler."""
        call = admitted.held.call
        self._loops.ended(call.id)
        settling = super().settle(admitted, reading, outcome)
        if admitted.instead is None and call.attempt.number == 1:  # else its model may be our own choice
            settling.add_done_callback(partial(self._drift.settled, call, admitted.wire, admitted.request))
        return settling

    async def _priced_call(self, incoming: Incoming, wire: Wire) -> tuple[Priced, Call]:
        """Read and price a request that Lockpin has changed. Raises Refused or WireError."""
        return await self._call_of(incoming, wire, await self._read(incoming, wire))

    async def _call_of(self, incoming: Incoming, wire: Wire, parsed: Parsed) -> tuple[Priced, Call]:
        found = await self._price(incoming, wire, parsed)
        call = found.call(limit_to_set(found, self._config, capped=found.is_capped))
        if call.quote.is_endless:
            await self._check_endless(found, call)
        return found, call

    async def _check_endless(self, found: Priced, call: Call) -> None:
        """Refuse a call that is free and without a bound where a limit in tokens is in force."""
        incoming = found.incoming
        try:
            standings = await answer_of(self._ledger.look(incoming.payers, call.provider, call.model, self._rules))
        except LedgerUnavailable:
            return  # its hold says it
        refuse_endless(found, call, standings)

    async def _read(self, incoming: Incoming, wire: Wire) -> Parsed:
        parsed = await beside_loop(len(incoming.body), partial(wire.parse, incoming.request()))
        return parsed if parsed.chain is None else await self._with_chain(incoming, parsed)

    async def _price(self, incoming: Incoming, wire: Wire, parsed: Parsed) -> Priced:
        pricing = priced_in_steps(incoming, wire, parsed, self._prices, self._clock())
        try:
            if parsed.batch:
                found = await in_turns(len(incoming.body), pricing)
            else:  # each image has a bound of its own
                size = len(incoming.body) if len(parsed.content.images) > _FEW_IMAGES else 0
                found = await beside_loop(size, partial(at_once, pricing))
        except Refused as fault:
            if fault.code == "unknown_model" and not fault.words:
                words = self._unknown(fault.model or "", incoming.provider.name, parsed)
                words = words if fault.place is None else f"{fault.place}: {words}"
                raise Refused(fault.code, words, model=fault.model) from None
            raise
        await check_models(found, self._ledger, self._rules)
        is_capped = found.is_capped or await self._gets_limit(found)
        return replace(found, landing=self._config.near_cap.landing, is_capped=is_capped)

    async def _with_chain(self, incoming: Incoming, parsed: Parsed) -> Parsed:
        """Add what an earlier reply brings in: as much as this ledger has seen of it, else it hides input."""
        asking = self._ledger.chain(incoming.provider.name, incoming.account(), parsed.chain or "")
        content = parsed.content
        try:
            link = await answer_of(asking)
        except LedgerUnavailable:
            link = None
        if link is None or link.tokens is None or link.model != parsed.model:
            # Nor is it known from here on what of it a later turn brings in: this one may leave reasoning out.
            return replace(parsed, content=replace(content, hidden=content.hidden or UNSEEN_CHAIN), is_whole=False)
        content = replace(content, extra_tokens=content.extra_tokens + link.tokens)
        return replace(parsed, content=content, chain_reasoning=parsed.chain_reasoning + link.reasoning)

    def _unknown(self, name: str, provider: str, parsed: Parsed) -> str:
        near = ", ".join(self._prices.nearest(name, provider=provider))
        hint = f" (near it: {near})" if near else ""
        shown = shown_text(name)
        media = sorted(_MEDIA & (parsed.prompt_units | parsed.output_units))
        prices = ", ".join(f"{unit}_per_mtok: USD" for unit in ("input", "output", *media))
        return (
            f'model "{shown}" has no price, so no cap could hold{hint}; to price it, add to lockpin.yaml: '
            f'pricing: {{"{shown}": {{{prices}, max_output_tokens: TOKENS}}}}'
        )

    async def _hold(self, priced: Priced, call: Call) -> Decision:
        if priced.is_capped:
            self._counts.foresee(priced)
        found = await self._seeker.seek(priced, call)
        match found.answer:
            case Held():
                return await self._admit_or_cancel(found, found.answer)
            case Closed():
                raise task_closed(found.answer.task, found.call.model)
            case Paused():
                told, call = pause_refusal(found.answer, mode=self._config.mode), found.call
                return self.refuse(priced.incoming, told, priced.wire, model=call.model, call=call)
            case Short():
                return await self._short(found, found.answer)

    async def _admit_or_cancel(self, found: Found, answer: Held) -> Admitted:
        try:
            admitted = await self._admitted(found.priced, answer)
            return replace(admitted, instead=found.instead, conversation=found.conversation)
        except BaseException:
            self._ledger.cancel(answer.call.id)
            raise

    async def _admitted(self, priced: Priced, answer: Held) -> Admitted:
        if answer.call.quote.is_endless:
            refuse_endless(priced, answer.call, answer.standings)  # the limit came into force only just now
        if not answer.degraded:
            await check_models(priced, self._ledger, self._rules)  # as may have those of its other models
        if not priced.is_capped and has_limit(answer.standings):
            priced = replace(priced, is_capped=True)  # the limit came into force only just now
        change = body_change(priced, answer.call)
        body = priced.incoming.body if priced.changed else None
        if change is not None:
            body = await self._rewritten(priced, change)
        if (cap := price_cap(priced, answer.call.quote.ceiling.prompt)) is not None:
            whole = priced.incoming.body if body is None else body
            body = await beside_loop(len(whole), partial(with_price_cap, whole, cap))
        strips = change is not None and change.ask_usage
        incoming = priced.incoming
        account = incoming.account() if priced.wire.links else None
        tariff, first = priced.tariff(self._config), incoming.provider.prompt_first and not priced.parsed.grows
        countable = priced if is_tight(answer) and self._counts.counts_here(priced) else None
        path = incoming.path if priced.changed else None
        return Admitted(
            answer, priced.wire, body, strips, priced.parsed, tariff, account, first, countable, path, priced.models
        )

    async def _rewritten(self, priced: Priced, change: Rewrite) -> bytes:
        incoming = priced.incoming
        field, parsed = incoming.provider.output_field, priced.parsed
        rewrite = partial(priced.wire.rewrite, incoming.request(), change, output_field=field, parsed=parsed)
        return await beside_loop(len(incoming.body), rewrite)

    async def _short(self, found: Found, short: Short) -> Answered:
        priced, call = found.priced, found.call
        fits = what_fits(priced, call, short.standings)
        if not priced.incoming.may_degrade and (model := await self._seeker.cheaper.fitting(priced)) is not None:
            fits["model"] = model
        tools = without_tools(priced, call) if priced.parsed.rounds > 1 else None
        words = budget_exceeded(
            call.payers.task, call.quote, short.violations, short.at, fits, without_tools=tools,
            kept_whole=not priced.incoming.may_degrade,
        )  # fmt: skip
        return self.refuse(priced.incoming, words, priced.wire, model=call.model, short=short, call=call)

    def refuse(
        self, incoming: Incoming, words: Refusal, wire: Wire | None = None, *,
        model: str = "", short: Short | None = None, call: Call | None = None, write: bool = True,
    ) -> Answered:  # fmt: skip
        """Write a refusal's row (unless told not to) and give its reply in the shape of the wire that was called."""
        if wire is None and isinstance(route := incoming.provider.route(incoming.method, incoming.path), Metered):
            wire = wire_named(route.wire)
        waited_ms = self._seeker.waits.waited_ms(incoming.id)
        facts = ReceiptFacts(
            incoming.id, self._clock(), "refused", incoming.payers.task, incoming.provider.name, model,
            key=incoming.payers.key, user=incoming.payers.user, code=words.code, waited_ms=waited_ms,
            budgets=short.standings if short else (),
        )  # fmt: skip
        told = receipt(facts)
        if write:
            note = self._note(incoming, words.code, wire, model)
            detail = refused_detail(told, call)
            full = tuple(standing.account for standing in short.violations) if short else ()
            self._ledger.refuse(replace(note, waited_ms=waited_ms, detail=detail, accounts=full), words)
        body: dict[str, object] = {"code": words.code, "task": incoming.payers.task, **words.detail}
        body |= {"call": incoming.id, "receipt": told}
        shape, client = incoming.provider.error_shape, client_of(incoming.headers)
        reply = put(words, body, wire, shape=shape, setting=self._config.refusal, client=client)
        headers = {**reply.headers, "X-Lockpin-Call": incoming.id, **pause_headers(words)}
        if waited_ms:
            headers["X-Lockpin-Waited-Ms"] = str(waited_ms)
        return Answered(Reply(reply.status, headers, reply.body), words.code, short.standings if short else ())

    async def _uncapped(self, incoming: Incoming, reason: str, wire: Wire | None = None) -> Decision:
        """Let a call go without a hold, unless its task is closed, or its task's or its key's calls pause."""
        with contextlib.suppress(LedgerUnavailable):  # no limit is known to stand against it, whatever the ledger says
            barred = await answer_of(self._ledger.barred(incoming.payers))
            if isinstance(barred, Closed):
                raise task_closed(barred.task)
            if barred is not None:
                return self.refuse(incoming, pause_refusal(barred, mode=self._config.mode), wire)
        self._ledger.uncapped(self._note(incoming, reason, None, ""))
        return Passed(uncapped=reason)

    def _note(self, incoming: Incoming, code: str, wire: Wire | None, model: str) -> CallNote:
        return CallNote(
            id=incoming.id,
            payers=incoming.payers,
            provider=incoming.provider.name,
            host=incoming.host,
            model=model,
            client=incoming.client,
            code=code,
            path=shown_path(incoming.path),
            wire=wire.name if wire else "",
        )

    async def _is_capped(self, incoming: Incoming, model: str | None) -> bool:
        """Say whether a limit is in force for the call; a task's own is known to the ledger alone."""
        if is_capped(self._rules, incoming.payers, incoming.provider.name, model):
            return True
        look = self._ledger.look(incoming.payers, incoming.provider.name, model, self._rules)
        standings: tuple[Standing, ...] = await answer_of(look)
        return has_limit(standings)

    async def _gets_limit(self, found: Priced) -> bool:
        """Say whether a limit is in force, as far as it must be known before the hold, which says it by itself.

        The ledger is asked only where an output limit would be set; out of reach, it leaves the question to its hold.
        """
        incoming, model = found.incoming, found.model.id
        if limit_to_set(found, self._config, capped=True) is None:
            return is_capped(self._rules, incoming.payers, incoming.provider.name, model)
        try:
            return await self._is_capped(incoming, model)
        except LedgerUnavailable:
            return False


def _check_headers(incoming: Incoming) -> None:
    said = incoming.headers.get(DEGRADE_HEADER)
    if said is not None and said.strip().lower() != "off":
        words = "header x-lockpin-degrade says something else than off, which is all that it may say"
        raise Refused("bad_request", words)


def is_free(route: Route, *, upgrade: bool) -> bool:
    """Say whether a request costs nothing, whatever the terms and the ledger say."""
    return isinstance(route, Free) and (route.upgrades or not upgrade)


def _polled(route: Route, incoming: Incoming) -> Polled | None:
    """Say whose usage the reply to a free call may state.

    None where the client chose what the reply leaves out: it passes, and the hold waits for one that says all.
    """
    if not isinstance(route, Free) or route.polls is None:
        return None
    wire = wire_named(route.polls)
    if unread(incoming, wire) is not None:
        return None
    return Polled(wire, incoming.provider, incoming.account(), incoming.path)

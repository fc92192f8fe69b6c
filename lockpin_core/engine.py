"""The route of a call: admit, settle, void. It sequences what others decide; it holds collaborators and no rule."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from lockpin_core.admission import (
    Incoming,
    Priced,
    Refused,
    body_change,
    has_limit,
    is_capped,
    limit_to_set,
    may_go_uncapped,
)
from lockpin_core.budgets import Standing
from lockpin_core.call import Call, Charge, Outcome, Parsed, Payers, Reading, Refusal, Reply, Request, Rewrite
from lockpin_core.clock import Clock
from lockpin_core.config import Config
from lockpin_core.errors import LedgerUnavailable, LockpinError, WireError
from lockpin_core.ladder import room, rungs
from lockpin_core.ledger.answers import answer_of
from lockpin_core.ledger.protocol import CallNote, Closed, Held, Ledger, Resolved, Rules, Short, Smaller
from lockpin_core.prices import PriceTable
from lockpin_core.providers import Free, Metered, Route, canonical_path
from lockpin_core.receipt import ReceiptFacts, receipt
from lockpin_core.refusals import budget_exceeded, refusal
from lockpin_core.settlement import Tariff, held, settle
from lockpin_core.wire import refusal_shape, wire_named
from lockpin_core.wire.protocol import Wire

SHOWN_MAX = 200  # characters of a client's text that a line or a row shows
UNPRICED_CODES = ("unknown_model", "unpriced_tool")  # without a limit in force such calls pass, and are recorded
PARSE_ON_LOOP_BYTES = 256 * 1024  # a larger body is parsed in a thread: it would block the loop for over a millisecond


@dataclass(frozen=True, slots=True)
class Passed:
    """Forwarded without a hold: free, or `uncapped` for this reason."""

    uncapped: str | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """Held on disk: forward it, with `body` where that is not None, and settle it once."""

    held: Held
    wire: Wire
    body: bytes | None
    strips_usage: bool
    parsed: Parsed
    tariff: Tariff


@dataclass(frozen=True, slots=True)
class Answered:
    """Not sent: this is the reply."""

    reply: Reply
    code: str
    standings: tuple[Standing, ...] = ()  # where the refusal is about an amount


type Decision = Passed | Admitted | Answered


class Engine:
    """Admits and settles calls for one process."""

    def __init__(self, config: Config, prices: PriceTable, ledger: Ledger, *, rules: Rules, clock: Clock) -> None:
        self._config, self._prices, self._ledger, self._rules, self._clock = config, prices, ledger, rules, clock

    async def admit(self, incoming: Incoming) -> Decision:
        """Decide about a request on a metered host: SPEC §8's steps in order."""
        route = incoming.provider.route(incoming.method, incoming.path)
        if is_free(route, upgrade=incoming.upgrade):
            return Passed()
        wire: Wire | None = None
        try:
            if not isinstance(route, Metered) or incoming.upgrade:
                return await self._unmetered(incoming)
            wire = wire_named(route.wire)
            return await self._metered(incoming, wire)
        except Refused as refused:
            words = refusal(refused.code, refused.words, refused.detail)
            return self.refuse(incoming, words, wire, model=_shown(refused.model or ""))
        except WireError as error:
            return self.refuse(incoming, refusal(error.code, str(error)), wire)
        except LedgerUnavailable as error:
            fault = f"{error}; without it no limit can be kept, so the call was not sent"
            return self.refuse(incoming, refusal("ledger_unavailable", fault), wire)

    async def in_force(self, machine: str) -> tuple[Standing, ...]:
        """Show the accounts of a machine and the default task, with the limits in force for them."""
        payers = Payers(self._config.task.default, machine)
        return await answer_of(self._ledger.look(payers, "", "", self._rules))

    async def _unmetered(self, incoming: Incoming) -> Decision:
        if may_go_uncapped(self._config, incoming):
            return self._uncapped(incoming, "allow_uncapped")
        if await self._is_capped(incoming, None):
            path = _shown(incoming.path)
            what = "an upgrade of the connection" if incoming.upgrade else f"{incoming.method} {path}"
            raise Refused(
                "uncapped_call",
                f"{what} on {incoming.host} cannot be metered, and a limit is in force; "
                f"{self._meant(incoming)}"
                f'list "{incoming.host}{path}" in allow_uncapped to let it go unmetered',
            )
        return self._uncapped(incoming, "no_limit")

    def _meant(self, incoming: Incoming) -> str:
        """Point at the billed path that a base URL without its version misses by a little."""
        versioned = canonical_path(f"/v1/{incoming.path}")
        if incoming.provider.metered(versioned) is None:
            return ""
        return f"did the base URL lose its /v1? {versioned} is metered; else "

    async def _metered(self, incoming: Incoming, wire: Wire) -> Decision:
        try:
            priced = await self._price(incoming, wire)
            set_limit = limit_to_set(priced, self._config, capped=await self._gets_limit(incoming, priced.model.id))
            call = priced.call(set_limit)
        except (Refused, WireError) as fault:
            model = fault.model if isinstance(fault, Refused) else None
            if fault.code not in UNPRICED_CODES or await self._is_capped(incoming, model):
                raise
            return self._uncapped(incoming, "unpriced")
        return await self._hold(priced, call)

    async def _price(self, incoming: Incoming, wire: Wire) -> Priced:
        headers = incoming.headers
        request = Request(incoming.method, incoming.host, incoming.path, headers, incoming.body)
        if len(incoming.body) > PARSE_ON_LOOP_BYTES:
            parsed = await asyncio.to_thread(wire.parse, request)
        else:
            parsed = wire.parse(request)
        at = self._clock()
        model = self._prices.find(incoming.provider.name, parsed.model, at)
        if model is None:
            raise Refused("unknown_model", self._unknown(parsed.model), model=parsed.model)
        return Priced(incoming, wire, parsed, model, self._prices, at)

    def _unknown(self, name: str) -> str:
        near = ", ".join(self._prices.nearest(name))
        hint = f" (near it: {near})" if near else ""
        shown = _shown(name)
        return (
            f'model "{shown}" has no price, so no cap could hold{hint}; to price it, add to lockpin.yaml: '
            f'pricing: {{"{shown}": {{input_per_mtok: USD, output_per_mtok: USD, max_output_tokens: TOKENS}}}}'
        )

    async def _hold(self, priced: Priced, call: Call) -> Decision:
        answer = await self._ask(call, partial(self._smaller, priced, call))
        match answer:
            case Held():
                return await self._admit_or_cancel(priced, answer)
            case Closed():
                words = f'task "{answer.task}" was closed; to reopen it: lockpin task new "{answer.task}" --budget USD'
                raise Refused("task_closed", words, {"task": answer.task}, model=call.model)
            case Short():
                return self._short(priced, call, answer)

    def _smaller(self, priced: Priced, call: Call, standings: tuple[Standing, ...]) -> Call | None:
        """Give the call as the ladder makes it smaller for what these accounts leave; None: it does not."""
        in_force = call.output_limit or 0
        for rung in rungs(
            may_set=call.limit_set,
            in_force=in_force,
            floor=max(self._config.fit.floor, priced.wire.min_output),
            largest_fitting=lambda: priced.largest_output(in_force, room(standings)),
        ):
            return priced.call(rung.max_output, degrade=(rung.mark,))
        return None

    async def _ask(self, call: Call, smaller: Smaller) -> Held | Short | Closed:
        """Ask for a hold. Where the asking is broken off, a hold that came about is taken off again."""
        holding = self._ledger.hold(call, self._rules, smaller)
        try:
            return await answer_of(holding)
        except LedgerUnavailable:
            raise
        except BaseException as error:
            self._ledger.cancel(call.id)
            if _failed_by(holding, error):
                what = str(error) if isinstance(error, LockpinError) else type(error).__name__
                raise Refused(
                    "reserve_failed", f"the amount could not be held ({what}); the call was not sent", model=call.model
                ) from error
            raise

    async def _admit_or_cancel(self, priced: Priced, answer: Held) -> Admitted:
        try:
            return await self._admitted(priced, answer)
        except BaseException:
            self._ledger.cancel(answer.call.id)
            raise

    async def _admitted(self, priced: Priced, answer: Held) -> Admitted:
        change = body_change(priced, answer.call)
        body = None if change is None else await self._rewritten(priced, change)
        strips = change is not None and change.ask_usage
        return Admitted(answer, priced.wire, body, strips, priced.parsed, priced.tariff(self._config))

    async def _rewritten(self, priced: Priced, change: Rewrite) -> bytes:
        incoming = priced.incoming
        request = Request(incoming.method, incoming.host, incoming.path, incoming.headers, incoming.body)
        field, parsed = incoming.provider.output_field, priced.parsed
        rewrite = partial(priced.wire.rewrite, request, change, output_field=field, parsed=parsed)
        return await asyncio.to_thread(rewrite) if len(incoming.body) > PARSE_ON_LOOP_BYTES else rewrite()

    def _short(self, priced: Priced, call: Call, short: Short) -> Answered:
        fits: dict[str, object] = {}
        most = priced.largest_output(call.output_limit or 0, room(short.standings))
        if most >= max(1, priced.wire.min_output) and most < (call.output_limit or 0):
            fits["max_output_tokens"] = most
        words = budget_exceeded(call.payers.task, call.quote, short.violations, short.at, fits)
        return self.refuse(priced.incoming, words, priced.wire, model=call.model, short=short)

    def refuse(
        self, incoming: Incoming, words: Refusal, wire: Wire | None = None, *,
        model: str = "", short: Short | None = None, write: bool = True,
    ) -> Answered:  # fmt: skip
        """Write a refusal's row (unless told not to) and give its reply in the shape of the wire that was called."""
        if wire is None and isinstance(route := incoming.provider.route(incoming.method, incoming.path), Metered):
            wire = wire_named(route.wire)
        if write:
            self._ledger.refuse(self._note(incoming, words.code, wire, model), words)
        facts = ReceiptFacts(
            incoming.id, self._clock(), "refused", incoming.payers.task, incoming.provider.name, model,
            code=words.code, budgets=short.standings if short else (),
        )  # fmt: skip
        body: dict[str, object] = {"code": words.code, "task": incoming.payers.task, **words.detail}
        body |= {"call": incoming.id, "receipt": receipt(facts)}
        shape = wire.refuse if wire is not None else refusal_shape(incoming.provider.error_shape)
        reply = shape(words, body)
        headers = {**reply.headers, "X-Lockpin-Call": incoming.id}
        standings = short.standings if short else ()
        return Answered(Reply(reply.status, headers, reply.body), words.code, standings)

    def _uncapped(self, incoming: Incoming, reason: str) -> Passed:
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
            path=_shown(incoming.path),
            wire=wire.name if wire else "",
        )

    async def _is_capped(self, incoming: Incoming, model: str | None) -> bool:
        """Say whether a limit is in force for the call; a task's own is known to the ledger alone."""
        if is_capped(self._rules, incoming.provider.name, model):
            return True
        look = self._ledger.look(incoming.payers, incoming.provider.name, model or "", self._rules)
        standings: tuple[Standing, ...] = await answer_of(look)
        return has_limit(standings)

    async def _gets_limit(self, incoming: Incoming, model: str) -> bool:
        """Say whether to set an output limit. A ledger out of reach leaves the question to its hold."""
        try:
            return await self._is_capped(incoming, model)
        except LedgerUnavailable:
            return False

    def settle(self, admitted: Admitted, reading: Reading, outcome: Outcome) -> Future[Resolved]:
        """Charge or void a call that has ended; the first resolution of a hold wins."""
        call = admitted.held.call
        result = settle(call, reading, outcome, admitted.tariff)
        if isinstance(result, Charge):
            settling = self._ledger.settle(call.id, result)
        else:
            settling = self._ledger.void(call.id, result)
        settling.add_done_callback(partial(self._settle_again, call))
        return settling

    def _settle_again(self, call: Call, settling: Future[Resolved]) -> None:
        """Charge the hold where the ledger could not take the charge itself: no hold may stay open for a fault."""
        if not settling.cancelled() and settling.exception() is not None:
            self._ledger.settle(call.id, held(call, "no_usage"))

    def settle_as_held(self, admitted: Admitted, reason: str) -> Future[Resolved]:
        """Charge the hold: how the exchange ended cannot be told."""
        return self._ledger.settle(admitted.held.call.id, held(admitted.held.call, reason))

    def cancel(self, call_id: str) -> None:
        """Take off a hold that may have been taken for a call that was not sent."""
        self._ledger.cancel(call_id)


def is_free(route: Route, *, upgrade: bool) -> bool:
    """Say whether a request costs nothing, whatever the terms and the ledger say."""
    return isinstance(route, Free) and (route.upgrades or not upgrade)


def _failed_by[T](asked: Future[T], error: BaseException) -> bool:
    """Say whether an error is the ledger's answer, as against something that befell the one who waited for it."""
    return asked.done() and not asked.cancelled() and asked.exception() is error


def _shown(text: str) -> str:
    """Give a client's text as it may stand in a line, a row and a quoted name: printable ASCII, not long."""
    plain = "".join("?" if char < " " or char in '"\\\x7f' else char for char in text[:SHOWN_MAX])
    return plain.encode("ascii", "backslashreplace").decode()

"""How a call ends once it has left: charged, void, kept for later usage, or held for less on the way.

Knows what an exchange said and what the ledger is told of it; knows no request and no refusal.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import assert_never, cast

from lockpin_core.admission import Priced
from lockpin_core.admission_chain import is_silent
from lockpin_core.admission_counts import Counts
from lockpin_core.admission_memory import Conversations
from lockpin_core.admission_served import Served
from lockpin_core.aside import LARGE_BYTES, at_once, in_turns
from lockpin_core.budgets import has_limit
from lockpin_core.call import Call, Charge, Ending, Later, Outcome, Parsed, Reading, Request, Void
from lockpin_core.config import Config
from lockpin_core.ledger.answers import answer_of
from lockpin_core.ledger.protocol import Deferred, Held, Ledger, Link, Resolved
from lockpin_core.money import Money
from lockpin_core.prices import PriceTable
from lockpin_core.providers import Provider
from lockpin_core.settlement import Tariff, held, is_whole, price_still_possible, settle, settle_in_steps
from lockpin_core.usage import output_tokens, total_tokens
from lockpin_core.wire.protocol import Wire

type Settling = Future[Resolved | None]  # None: the hold stays


@dataclass(frozen=True, slots=True)
class Polled:
    """A free call whose reply may state the usage of an earlier one."""

    wire: Wire
    provider: Provider
    account: bytes
    path: str = ""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Held on disk: forward it, with `body` where that is not None, and settle it once."""

    held: Held
    wire: Wire
    body: bytes | None
    strips_usage: bool
    parsed: Parsed
    tariff: Tariff
    account: bytes | None = None  # whose replies have ids that a later call may name
    prompt_first: bool = False  # the reply's first event states the prompt as it is billed
    countable: Priced | None = None  # held by its bytes where room is short, and our own tokenizer can say better
    path: str | None = None  # of the request that leaves, without its query, where it may be another than came
    models: tuple[str, ...] = ()  # that may run within the call, where there may be several
    instead: str | None = None  # provider/model that serves in the place of the one that was asked for
    conversation: bytes | None = None  # of a call whose output limit was lowered
    request: Request | None = None  # as it came, where its setting is to be compared with those before
    loop: str | None = None  # of what loop the call is the next, as a header says it


class Settler:
    """Settles calls for one process; the first resolution of a hold wins."""

    def __init__(self, config: Config, prices: PriceTable, ledger: Ledger, counts: Counts) -> None:
        self._config, self._prices, self._ledger, self._counts = config, prices, ledger, counts
        self._conversations = Conversations(ledger, config.near_cap.degrade)

    def settle(self, admitted: Admitted, reading: Reading, outcome: Outcome) -> Settling:
        """Charge or void a call that has ended, or keep its hold for usage that comes later; the first one wins."""
        call = admitted.held.call
        result = settle(call, reading, outcome, admitted.tariff)
        self.note_cut(admitted, reading)  # first: what comes free may be for the next call of the conversation
        match result:
            case Charge():
                settling = cast("Settling", self._ledger.settle(call.id, result, _link(admitted, reading, result)))
            case Later():
                is_batch = admitted.wire.held_as == "batch"
                hold_for_ms = self._config.hold_for_batch_ms if is_batch else self._config.hold_for_ms
                hold_for = timedelta(milliseconds=hold_for_ms)
                link, most = _link(admitted, reading, None), call.quote.ceiling
                if admitted.parsed.content.counted is not None:  # without what this turn leaves out of the chain
                    most = replace(most, prompt=most.prompt + _left_out(admitted.parsed))
                settling = cast("Settling", self._ledger.defer(call.id, hold_for, link, most))
            case Void():
                settling = cast("Settling", self._ledger.void(call.id, result))
            case _:
                assert_never(result)
        settling.add_done_callback(partial(self._settle_again, call))
        return settling

    def note_cut(self, admitted: Admitted, reading: Reading) -> bool:
        """Remember that a reply stopped at a limit which was lowered, if it did: also before its stream has closed."""
        if admitted.conversation is None or not reading.stopped_at_limit:
            return False
        self._conversations.note_cut(admitted.conversation, cut=True)
        return True

    async def settle_polled(self, polled: Polled, reading: Reading) -> None:
        """Settle the earlier call whose usage a free call's reply states; nothing where it states none."""
        upstream_id = reading.upstream_id or polled.wire.polled_id(polled.path)
        if upstream_id is None or reading.pending or not (reading.complete or reading.terminal):
            return
        asking = self._ledger.deferred(polled.provider.name, polled.account, upstream_id)
        found: Deferred | None = await answer_of(asking)
        model = None if found is None else self._prices.find(polled.provider.name, found.call.asked_model, found.at)
        if found is None or model is None:
            return  # a price that is gone: the hold stays, and is charged in full when its time is over
        if not is_whole(found.call, reading):
            return  # as does one whose results are not all here: they may be read again
        is_one = found.call.quote.ceiling.requests == 1
        served = Served(self._prices, polled.provider, found.call.host, model, found.at, polled.path, is_one)
        tariff = served.tariff(polled.wire, self._config, found.call.quote.ceiling.prompt)
        settling = settle_in_steps(found.call, reading, Outcome(Ending.DONE, 200), tariff)
        result = at_once(settling) if reading.requests is None else await in_turns(LARGE_BYTES, settling)
        if isinstance(result, Charge):
            most = found.call.quote.ceiling
            is_known = reading.complete and not reading.unread and is_silent(most.prompt_units, most.output_units)
            tokens = most.prompt + output_tokens(result.usage) if is_known else None  # whatever chain it has named
            asked = found.call.asked_model
            link = Link(polled.provider.name, polled.account, upstream_id, tokens, asked, tokens or 0)
            self._ledger.settle(found.call.id, result, link)

    def true_up(self, admitted: Admitted, reading: Reading) -> Admitted:
        """Let a running call's hold shrink to what it can still cost, now that the reply has stated its prompt.

        Gives the call as it is held from now on: whatever its end turns out to be, more than that is not charged.
        """
        if not admitted.prompt_first or admitted.held.degraded or not has_limit(admitted.held.standings):
            return admitted
        call = admitted.held.call
        still = price_still_possible(call, reading, admitted.tariff)
        if still is None:
            return admitted
        return self._shrunk(admitted, *still)

    async def count_again(self, admitted: Admitted) -> Admitted:
        """Count the prompt of a call that has left already, and let its hold shrink; gives the call as `true_up` does.

        Nothing is awaited once the ledger is told: who asks must keep the call that it gets at once.
        """
        assert admitted.countable is not None, "nothing counts it"
        tokens = await self._counts.count_here(admitted.countable)
        if tokens is None:
            return admitted
        call, parsed = admitted.held.call, admitted.countable.parsed
        content = replace(parsed.content, counted=tokens)
        counted = replace(admitted.countable, parsed=replace(parsed, content=content))
        quote = counted.call(call.output_limit if call.limit_set else None).quote
        return self._shrunk(admitted, quote.most, quote.tokens)

    def _shrunk(self, admitted: Admitted, most: Money, tokens: int) -> Admitted:
        call = admitted.held.call
        if most >= call.quote.most and tokens >= call.quote.tokens:
            return admitted
        self._ledger.shrink(call.id, most, tokens)
        quote = replace(call.quote, most=min(most, call.quote.most), tokens=min(tokens, call.quote.tokens))
        return replace(admitted, held=replace(admitted.held, call=replace(call, quote=quote)))

    def _settle_again(self, call: Call, settling: Settling) -> None:
        """Charge the hold where the ledger could not take the charge itself: no hold may stay open for a fault."""
        if not settling.cancelled() and settling.exception() is not None:
            self._ledger.settle(call.id, held(call, "no_usage"))

    def settle_as_held(self, admitted: Admitted, reason: str) -> Future[Resolved]:
        """Charge the hold: how the exchange ended cannot be told."""
        return self._ledger.settle(admitted.held.call.id, held(admitted.held.call, reason))

    def cancel(self, call_id: str) -> None:
        """Take off a hold that may have been taken for a call that was not sent."""
        self._ledger.cancel(call_id)


_BEYOND_WINDOW = 2**40  # tokens of a chain of which nobody knows how many it has


def _left_out(parsed: Parsed) -> int:
    """Bound what a count of this turn's prompt may lack of what a later turn reads."""
    return parsed.chain_reasoning + parsed.chain_images if parsed.is_whole else _BEYOND_WINDOW


def _link(admitted: Admitted, reading: Reading, charge: Charge | None) -> Link | None:
    """Say by which id the provider knows the reply, and what naming it later brings in.

    It may shrink the images of a prompt, and not those of the next turn's: then they count at their full size besides.
    """
    if admitted.account is None or reading.upstream_id is None:
        return None
    parsed, call = admitted.parsed, admitted.held.call
    before, images = parsed.chain_reasoning, parsed.chain_images
    are_lost = reading.shrunk is not False and (parsed.hides_images or (parsed.grows and reading.shrunk is True))
    is_known = reading.complete and parsed.is_whole and not reading.unread and not are_lost
    is_known = is_known and is_silent(parsed.prompt_units, parsed.output_units)
    shrunk = 0 if reading.shrunk is False else images
    tokens = total_tokens(charge.usage) + before + shrunk if charge is not None and is_known else None
    later = before + images + reading.reasoning
    return Link(call.provider, admitted.account, reading.upstream_id, tokens, call.asked_model, later)

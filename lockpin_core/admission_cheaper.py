"""Another model of the same provider in the place of one whose call does not fit (SPEC §15, `cheaper`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from lockpin_core.admission import Incoming, Priced, Refused
from lockpin_core.admission_elsewhere import other_model
from lockpin_core.aside import beside_loop
from lockpin_core.budgets import Standing, violations, with_reserve
from lockpin_core.call import Call
from lockpin_core.config_near_cap import Instead
from lockpin_core.errors import LedgerUnavailable, WireError
from lockpin_core.ledger.answers import answer_of
from lockpin_core.ledger.protocol import Ledger, Rules
from lockpin_core.substitutes import parts, substitutes
from lockpin_core.wire.protocol import Wire

type Reprice = Callable[[Incoming, Wire], Awaitable[tuple[Priced, Call]]]
"""Reads and prices a changed request as one that has just come. Raises Refused or WireError."""


class CheaperModels:
    """Which models may serve in the place of another, and a call as it would be with one of them."""

    def __init__(self, instead: Instead, ledger: Ledger, rules: Rules, reprice: Reprice | None) -> None:
        self._instead, self._ledger, self._rules, self._reprice = instead, ledger, rules, reprice

    def of(self, priced: Priced) -> tuple[str, ...]:
        """List those for the model of a call, each as provider/model."""
        parsed = priced.parsed
        if not self._instead or parsed.stays_as_it_came or parsed.batch or self._reprice is None:
            return ()
        provider = priced.incoming.provider.name
        return substitutes(self._instead, provider, parsed.model, priced.model.id)

    async def version(self, priced: Priced, target: str) -> tuple[Priced, Call] | None:
        """Give the call with that model; None: it cannot be named there, or has no price or no bound."""
        provider, model = parts(target)
        if provider != priced.incoming.provider.name or self._reprice is None:
            return None
        size = len(priced.incoming.body)
        incoming = await beside_loop(size, partial(other_model, priced.incoming, priced.wire, model))
        if incoming is None:
            return None
        try:
            found, call = await self._reprice(incoming, priced.wire)
        except (Refused, WireError):
            return None
        return replace(found, changed=True, degrade=priced.degrade, trim=priced.trim), call

    async def fitting(self, priced: Priced) -> str | None:
        """Name the first with which the call would fit now."""
        for target in self.of(priced):
            found = await self.version(priced, target)
            if found is not None and await self._fits(*found):
                return target
        return None

    async def _fits(self, priced: Priced, call: Call) -> bool:
        look = self._ledger.look(call.payers, call.provider, call.model, self._rules)
        try:
            standings: tuple[Standing, ...] = await answer_of(look)
        except LedgerUnavailable:
            return False
        return not violations(with_reserve(standings, call.reserve), call.quote)

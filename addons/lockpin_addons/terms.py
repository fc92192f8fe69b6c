"""The terms that calls go by: one configuration with all that follows from it. Replaced as a whole, never changed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from lockpin_addons.banner import has_limit
from lockpin_addons.counter import ProviderCounter
from lockpin_core.clock import utc_now
from lockpin_core.config import Config
from lockpin_core.engine_attempts import AttemptsEngine
from lockpin_core.ledger.pauses import rule_of
from lockpin_core.ledger.protocol import Ledger, Rules
from lockpin_core.prices import PriceTable

PATIENCE_S = 0.25  # for decisions under way; one that takes longer is judged by the limits of the instant of its hold
FREEZE_S = 0.5  # as long as calls wait for a change at most; a ledger that takes longer makes them wait by itself
PAUSE_S = 0.002


@dataclass(frozen=True, slots=True)
class Terms:
    """A configuration, its prices, its budgets, and the engine that admits and settles by them."""

    config: Config
    prices: PriceTable
    rules: Rules
    engine: AttemptsEngine


@dataclass(slots=True)
class InForce:
    """The one place where the terms in force stand; a call keeps those that it began to be decided with.

    The ledger knows the budgets too. So while it is told of others no call is being decided, for a moment: one that
    was would be priced by the old terms and judged by the new limits.
    """

    terms: Terms
    _deciding: int = 0
    _change: asyncio.Future[None] | None = None

    @property
    def is_capped(self) -> bool:
        """Say whether the configuration has a limit that is enforced."""
        rules = self.terms.rules
        return any(budget.enforce and has_limit(budget) for budget in (*rules.budgets, rules.task_default))

    @property
    def is_changing(self) -> bool:
        """Say whether calls have to wait for other terms."""
        return self._change is not None

    async def steady(self) -> None:
        """Wait while the terms are being replaced."""
        while self._change is not None:
            await asyncio.wait([self._change])

    @contextlib.contextmanager
    def deciding(self) -> Iterator[Terms]:
        """Take the terms for the time of a decision."""
        self._deciding += 1
        try:
            yield self.terms
        finally:
            self._deciding -= 1

    async def replace(self, terms: Terms, agree: Callable[[], Awaitable[None]]) -> None:
        """Put others in force once `agree` has told the ledger; where that raises, the old ones stay."""
        loop = asyncio.get_running_loop()
        self._change = loop.create_future()
        freeze = loop.call_later(FREEZE_S, self._thaw)
        try:
            end_s = time.monotonic() + PATIENCE_S
            while self._deciding and time.monotonic() < end_s:  # noqa: ASYNC110 - no call shall pay for an event
                await asyncio.sleep(PAUSE_S)
            await agree()
            self.terms = terms
        finally:
            freeze.cancel()
            self._thaw()

    def _thaw(self) -> None:
        change, self._change = self._change, None
        if change is not None:
            change.set_result(None)


def make_terms(config: Config, prices: PriceTable, ledger: Ledger) -> Terms:
    """Draw the consequences of a configuration."""
    counter = ProviderCounter(config.upstreams)
    rules = Rules(config.all_budgets(), config.task_default(), rule_of(config.near_cap.breaker))
    engine = AttemptsEngine(config, prices, ledger, rules=rules, clock=utc_now, counter=counter)
    return Terms(config, prices, rules, engine)

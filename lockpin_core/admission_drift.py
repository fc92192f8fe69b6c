"""Watches whether a task's calls depart from its first ones, once they are settled. It keeps none of them waiting.

Profiles are in the ledger, so that a restart and other processes go on with them. What fails here is not told of.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime, timedelta

from lockpin_core.aside import ON_LOOP_BYTES, beside_loop
from lockpin_core.call import Call, Charge, Payers, Request, Setting
from lockpin_core.clients import client_of
from lockpin_core.clock import Clock
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger.answers import answer_of
from lockpin_core.ledger.protocol import Ledger, Resolved
from lockpin_core.observers.drift import Profile, Seen, after
from lockpin_core.usage import CACHE_READS, prompt_tokens
from lockpin_core.wire.protocol import Wire

DRIFT = "drift"  # the code of its events
_KNOWN = 1024  # tasks whose profiles are at hand
_AGAIN = timedelta(seconds=1)  # after which the setting of a large request of a task is looked at again

type Settled = Future[Resolved | None]


class DriftWatch:
    """Looks at calls that are settled, in the event loop that they were settled in."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger, self._clock = ledger, clock
        self._profiles: OrderedDict[str, Profile] = OrderedDict()
        self._looked: OrderedDict[str, datetime] = OrderedDict()  # when the setting of a large request was
        self._looking: set[asyncio.Task[None]] = set()

    def wants(self, payers: Payers, size: int) -> bool:
        """Say whether the request of a call, of so many bytes, is to be kept until the call is settled."""
        task, now = payers.whose, self._clock()
        profile, looked = self._profiles.get(task), self._looked.get(task)
        is_due = profile is None or not profile.is_whole or looked is None or now - looked >= _AGAIN
        if size > ON_LOOP_BYTES and not is_due:
            return False
        if size > ON_LOOP_BYTES:
            _remember(self._looked, task, now)
        return True

    def settled(self, call: Call, wire: Wire, request: Request | None, settling: Settled) -> None:
        """Look at a call when its charge is on the books; nobody waits for it."""
        if settling.cancelled() or settling.exception() is not None:
            return
        resolved = settling.result()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if resolved is None or resolved.charge is None or not resolved.first or not _tells(resolved.charge):
            return
        task = loop.create_task(self._look(call, wire, request, resolved.charge))
        self._looking.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._looking.discard(task)
        if not task.cancelled():
            task.exception()  # it is of no call, and nothing depends on it

    async def _look(self, call: Call, wire: Wire, request: Request | None, charge: Charge) -> None:
        setting: Setting | None = None
        if request is not None:
            setting = await beside_loop(len(request.body), lambda: wire.setting(request))
        name = call.payers.whose
        if name not in self._profiles:
            kept = await self._kept(name)
            if name not in self._profiles:  # nobody was quicker
                _remember(self._profiles, name, kept)
        before = self._profiles[name]
        profile, found = after(before, _seen(call, setting, charge))
        _remember(self._profiles, name, profile)
        if found:
            told = (await self._kept(name)).told  # also by another process
            found = tuple(drift for drift in found if drift.key not in told)
            profile = self._profiles.get(name, profile)
            profile = replace(profile, told=profile.told | told)
            _remember(self._profiles, name, profile)
        if found or not before.is_whole:
            self._ledger.keep_profile(name, profile.data())
        for drift in found:
            data = {"call": call.id, "kind": drift.kind, "was": drift.was, "now": drift.now, "model": call.model}
            whose = {"user": call.payers.user} if call.payers.user else {}
            self._ledger.tell(DRIFT, {**data, **whose}, call.payers.task)

    async def _kept(self, name: str) -> Profile:
        try:
            return Profile.read(await answer_of(self._ledger.profile(name)))
        except LedgerUnavailable:
            return Profile()


def _tells(charge: Charge) -> bool:
    return not charge.estimated and not charge.failed and charge.priced and prompt_tokens(charge.usage) > 0


def _seen(call: Call, setting: Setting | None, charge: Charge) -> Seen:
    read = sum(charge.usage.get(unit, 0) for unit in CACHE_READS)
    tools, system = (None, None) if setting is None else (setting.tools.hex(), setting.system.hex())
    beside = client_of({"user-agent": call.client}).beside
    return Seen(call.model, charge.amount.nano, (read, prompt_tokens(charge.usage)), tools, system, beside)


def _remember[V](known: OrderedDict[str, V], key: str, value: V) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > _KNOWN:
        known.popitem(last=False)

"""What is remembered of a conversation, so that each of its calls is treated as the one before was (SPEC §11)."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from lockpin_core.admission import Priced
from lockpin_core.aside import beside_loop
from lockpin_core.budgets import Standing
from lockpin_core.clients import client_of
from lockpin_core.clock import Clock, micros, utc_now
from lockpin_core.config_near_cap import Degrade
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger.accounts import passed_steps
from lockpin_core.ledger.answers import answer_of
from lockpin_core.ledger.protocol import Ledger

_MOST = 4096  # tasks, and conversations, that are remembered here
_SLACK_US = 10_000_000  # by so much other processes' clocks may be behind, as their marks are stamped
_LOOK_BACK_US = 86_400_000_000  # a day: every call that goes whole is looked at while there is such a mark
_CUT, _TRIM, _CACHE_5M = "cut", "trim", "cache_5m"


@dataclass(frozen=True, slots=True)
class Marks:
    """What is remembered of one conversation."""

    cut: bool = False  # a reply stopped at a limit that Lockpin had lowered: the next call is not lowered
    trim: int = 0  # of so many tool results, from the first on, the long ones are left out
    cache_5m: bool = False  # entries of the prompt cache live for five minutes

    @property
    def is_lighter(self) -> bool:
        """Say whether its calls are made lighter by now."""
        return bool(self.trim or self.cache_5m)


NOTHING = Marks()


class Conversations:
    """The marks of conversations, kept by the ledger; and which tasks of this process were near their cap last."""

    def __init__(self, ledger: Ledger, degrade: Degrade, clock: Clock = utc_now) -> None:
        self._ledger, self._degrade, self._clock = ledger, degrade, clock
        self._near: OrderedDict[str, bool] = OrderedDict()
        self._light: OrderedDict[str, None] = OrderedDict()  # tasks with a conversation that is lighter
        self._cut: OrderedDict[bytes, None] = OrderedDict()  # whose mark was seen here; the oldest go first
        self._reads: list[set[bytes]] = []  # what was changed while each read of marks under way went on
        self._looked: int | None = None  # how much others had written when it was looked for their marks
        self._from: int | None = None  # the ledger's time then

    async def id_of(self, priced: Priced) -> bytes | None:
        """Name the conversation of a call: by its session, else by its first user message; None: by neither."""
        incoming = priced.incoming
        said = incoming.headers.get(client_of(incoming.headers).session_header or "", "").encode()
        if not said:
            request = incoming.request()
            first = await beside_loop(len(request.body), partial(priced.wire.conversation, request))
            if first is None:
                return None
            said = first
        return hashlib.sha256(b"\0".join((incoming.payers.whose.encode(), said))).digest()

    async def marks(self, conversation: bytes | None) -> Marks:
        """Read what is remembered; with the ledger out of reach, nothing."""
        if conversation is None:
            return NOTHING
        changed: set[bytes] = set()
        self._reads.append(changed)
        try:
            found = await answer_of(self._ledger.marks(conversation))
        except LedgerUnavailable:
            return NOTHING
        finally:
            self._reads = [others for others in self._reads if others is not changed]
        if conversation not in changed:  # else what is known here is newer
            self._see_cut(conversation, cut=bool(found.get(_CUT)))
        trim = found.get(_TRIM)
        return Marks(bool(found.get(_CUT)), trim if isinstance(trim, int) else 0, bool(found.get(_CACHE_5M)))

    def keep_lighter(self, conversation: bytes | None, task: str, *, trim: int, cache_5m: bool) -> None:
        """Remember how its calls are made lighter from now on."""
        if conversation is not None:
            self._ledger.mark(conversation, {_TRIM: trim, _CACHE_5M: cache_5m})
            self.see_lighter(task)

    def see_lighter(self, task: str) -> None:
        """Take note that a task has a conversation that is lighter: it stays so, also where the limit was raised."""
        self._light[task] = None
        self._light.move_to_end(task)
        if len(self._light) > _MOST:
            self._light.popitem(last=False)

    @property
    def has_cut(self) -> bool:
        """Say whether a call that is sent whole may be the one after a cut, which must be known then."""
        return bool(self._cut)

    async def look_around(self) -> bool:
        """See which replies were cut off before this engine began, or in another process. Says whether any was."""
        wrote = self._ledger.others_wrote
        if self._looked == wrote:
            return False
        try:
            since = micros(self._clock()) - _LOOK_BACK_US if self._from is None else self._from
            found, now = await answer_of(self._ledger.marked(_CUT, since))
        except LedgerUnavailable:
            return False
        self._looked, self._from = wrote, now - _SLACK_US
        for conversation in found:
            self._see_cut(conversation, cut=True)
        return bool(found)

    def is_cut(self, conversation: bytes | None) -> bool:
        """Say, from any thread and at once, whether a reply of this conversation was cut off, as far as it was seen."""
        return conversation in self._cut

    def note_cut(self, conversation: bytes, *, cut: bool) -> None:
        """Remember that a reply stopped at a limit that was lowered, or that the next call has gone whole."""
        for changed in self._reads:
            changed.add(conversation)
        self._ledger.mark(conversation, {_CUT: True if cut else None})
        self._see_cut(conversation, cut=cut)

    def _see_cut(self, conversation: bytes, *, cut: bool) -> None:
        if cut:
            self._cut[conversation] = None
            if len(self._cut) > _MOST:
                self._cut.popitem(last=False)
        else:
            self._cut.pop(conversation, None)

    def may_be_lighter(self, task: str) -> bool:
        """Say whether calls of a task may be lighter than they were sent.

        Not where it was seen not to be near its cap, and none of them lighter.
        """
        return task in self._light or self._near.get(task, True)

    def see(self, task: str, standings: Sequence[Standing]) -> bool:
        """Take note of how a task's own account stands; say whether it is near its cap."""
        near = self._degrade.on and is_near_cap(standings, self._degrade.at)
        self._near[task] = near or _was_raised(standings)
        self._near.move_to_end(task)
        if len(self._near) > _MOST:
            self._near.popitem(last=False)
        return near


def is_near_cap(standings: Sequence[Standing], at: str) -> bool:
    """Say whether a task has spent this share of its own enforced limit."""
    own = _own(standings)
    return own is not None and bool(passed_steps(own, (at,)))


def _was_raised(standings: Sequence[Standing]) -> bool:
    """Say whether a task may have been near its cap before: its limit was raised, or begins anew with each window."""
    own = _own(standings)
    return own is not None and (own.limit != own.budget.limit or own.budget.window.kind != "lifetime")


def _own(standings: Sequence[Standing]) -> Standing | None:
    return next((one for one in standings if one.budget.own and one.budget.enforce), None)

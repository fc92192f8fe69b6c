"""What the edge remembers of one exchange while it runs, kept beside the flow and never in its metadata."""

from __future__ import annotations

import asyncio
import enum
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from mitmproxy import http

from lockpin_addons import guard
from lockpin_addons.callers import Caller
from lockpin_addons.decode import ReplyDecoder
from lockpin_addons.identity import IdentityError
from lockpin_addons.overheard import Overheard
from lockpin_addons.route import Bound
from lockpin_addons.terms import Terms
from lockpin_core.admission import Incoming
from lockpin_core.call import Attempt, Reading
from lockpin_core.settler import Admitted, Polled
from lockpin_core.wire.protocol import Scanner, UsageFilter

TRUE_UP_TRIES = 8
KNOWN_S = 0.1  # a call that took longer from its head to its hold, or to its next attempt, is asked again who sends it


class Kind(enum.Enum):
    """How the gate answered; PENDING until it has."""

    PENDING = enum.auto()
    OWN = enum.auto()  # our own reply: refusal, health, fault
    PASSED = enum.auto()  # forwarded without a hold
    METERED = enum.auto()  # forwarded with a hold


@dataclass(frozen=True, slots=True)
class Home:
    """A request as it first left, to which one to another model of the same provider goes back."""

    request: http.Request
    bound: Bound
    real_key: str | None


@dataclass(slots=True)
class Tries:
    """What a call may still become that is sent again when it fails."""

    of: int  # attempts that there may be at most, all models together
    number: int = 1  # of the one that runs
    made: int = 1  # of the model that is asked now
    first: str | None = None  # the call that failed first, once there are several
    others: deque[str] = field(default_factory=deque)  # models to fall back to, as "provider/model", next one first
    served: str | None = None  # that of them which is asked now
    home: Home | None = field(default=None, repr=False)  # how it first left, once it goes elsewhere

    def next_attempt(self, failed: str) -> Attempt:
        """Number the attempt after one that failed as this call."""
        self.first = self.first or failed
        return Attempt(self.number + 1, self.of, self.first)


@dataclass(slots=True)
class Trip:
    """One exchange."""

    call_id: str
    terms: Terms
    flow: http.HTTPFlow
    bound: Bound | None = None
    caller: Caller | None = None  # in team mode
    ask_again: Callable[[], Awaitable[Caller]] | None = field(default=None, repr=False)  # who calls
    asked_at_s: float = 0.0  # when that was known
    real_key: str | None = field(default=None, repr=False)  # of the provider's own, put in the place of ours
    next_credentials: str | None = field(default=None, repr=False)  # mitmproxy's own, for the proxy behind this one
    denial: object = None  # the refusal that stands on the flow until the gate's last line
    kind: Kind = Kind.PENDING
    asked: bool = False  # the engine is deciding, or has
    admitted: Admitted | None = None
    headers: dict[str, str] = field(default_factory=dict)  # what the reply gets of ours, known before it comes
    sent_at_s: float = 0.0
    scanner: Scanner | None = None
    reading: Reading | None = None  # of a whole body, once it was read
    decoder: ReplyDecoder | None = None
    usage_filter: UsageFilter | None = None
    first_byte: bool = False
    scan_failed: bool = False
    settled: bool = False
    cut_noted: bool = False  # that the reply stopped at a limit which Lockpin had lowered
    polled: Polled | None = None  # a free call whose reply may state what an earlier call used
    overheard: Overheard | None = None  # that reply
    true_up_tries: int = (
        TRUE_UP_TRIES  # how many more pieces of the reply are looked at for what they state of the prompt
    )
    scanned_bytes: int = 0
    counting: asyncio.Task[None] | None = None  # counts the prompt again while the call runs
    task: asyncio.Task[object] | None = None  # that decides about it, while it does
    is_over: bool = False  # broken off before it was sent: it must not leave any more
    incoming: Incoming | None = field(default=None, repr=False)  # as it came, while it may be sent to another model
    tries: Tries | None = None  # None: it is sent once
    skipped: list[str] = field(default_factory=list)  # models that it could not fall back to, and why

    def begin_again(self, admitted: Admitted) -> None:
        """Let another attempt begin, under its own hold: nothing of a reply is known."""
        self.admitted, self.call_id = admitted, admitted.held.call.id
        self.scanner = self.reading = self.decoder = self.usage_filter = None
        self.first_byte = self.scan_failed = self.settled = False
        self.true_up_tries, self.scanned_bytes = TRUE_UP_TRIES, 0

    async def key_fault(self) -> IdentityError | None:
        """Say why a key is good no more that was when its call came: it may have waited long, for its body, for room or
        for the time of its next attempt.

        Asked with the hold taken, when nothing else is waited for. None: it is good, or was asked about just now.
        """
        if self.ask_again is None or time.monotonic() - self.asked_at_s < KNOWN_S:
            return None
        asked_at_s = time.monotonic()
        try:
            self.caller = await self.ask_again()
        except IdentityError as error:
            return error
        self.asked_at_s = asked_at_s
        return None

    @property
    def client_id(self) -> str:
        """Name the client's connection."""
        return self.flow.client_conn.id

    def call_off(self) -> None:
        """Break off a decision under way: it gives up its place at once, nothing is sent and nothing stays held."""
        if self.is_over:
            return
        self.is_over = True
        if self.task is not None:
            self.task.cancel()
        self.terms.engine.cancel(self.call_id)

    @property
    def is_sent(self) -> bool:
        """Say whether a part of the request may have left."""
        return guard.SENT in self.flow.metadata

    @property
    def is_charged_if_stopped(self) -> bool:
        """Say whether its hold is charged where Lockpin breaks it off."""
        return self.kind is Kind.METERED and self.is_sent and not self.settled

    @property
    def is_running(self) -> bool:
        """Say whether a proxy that stops waits for it: it may cost money, and has not ended."""
        is_free = self.kind is Kind.PASSED and not self.headers
        return self.asked and self.kind is not Kind.OWN and not is_free


def put_credentials(request: http.Request, trip: Trip) -> None:
    """Put the credentials for the proxy behind this one on a request that goes to it as a plain one; the CONNECT of
    any other has them.
    """
    if trip.next_credentials is not None and request.scheme == "http":
        request.headers["proxy-authorization"] = trip.next_credentials

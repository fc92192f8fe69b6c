"""Whose calls pause, and when they do: the breaker's rule and its window. Pure: knows no SQL and no instant but given.

A breaker trips when one has been charged more than an amount within a window, by the instants of the charges, since
it tripped or was reset last. While somebody's calls pause nothing trips; what is charged meanwhile counts afterwards.
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from lockpin_core.call import Payers
from lockpin_core.clock import instant
from lockpin_core.config_near_cap import Breaker
from lockpin_core.money import Money
from lockpin_core.windows import duration_text

BREAKER, LOOP = "breaker", "loop"  # kinds of a pause
TASK, KEY = "task", "key"  # scopes of one
DEFINED, REMOVED = "breaker_defined", "breaker_removed"  # codes of events
TRIPPED, RESET = "breaker_tripped", "breaker_reset"
STOPPED, RESUMED = "task_stopped", "task_resumed"
SCOPES_BY = {"task": (TASK,), "key": (KEY,), "both": (TASK, KEY)}  # of `breaker.by`
KEPT_US = 24 * 3600 * 10**6  # the longest window: a breaker's pause that ended so long ago means nothing any more
_US = timedelta(microseconds=1)
NO_BREAKER = "no breaker was set by command; `lockpin breaker status` says what is in force"


@dataclass(frozen=True, slots=True)
class BreakerRule:
    """More than `usd` charged within the window makes calls pause for the cooldown."""

    usd: Money
    window: timedelta
    cooldown: timedelta
    scopes: tuple[str, ...]  # (TASK,), (KEY,) or both

    @property
    def by(self) -> str:
        """Name the scopes as the configuration does."""
        return next(by for by, scopes in SCOPES_BY.items() if scopes == self.scopes)

    @property
    def window_us(self) -> int:
        """Give the window in microseconds."""
        return self.window // _US

    @property
    def cooldown_us(self) -> int:
        """Give the cooldown in microseconds."""
        return self.cooldown // _US


@dataclass(frozen=True, slots=True)
class Paused:
    """Nothing was held: the calls of a task or a key pause, up to, not including, an instant."""

    at: datetime  # ledger time
    kind: str  # BREAKER | LOOP
    scope: str  # TASK | KEY
    subject: str
    until: datetime | None  # None: until a person lets it go on
    charged: Money | None = None  # within the window, when it tripped
    usd: Money | None = None  # that this was above
    window: timedelta | None = None
    user: str | None = None  # whose calls of the task; None: of those who call without a user

    @property
    def way_on(self) -> str:
        """Give the command that lets its calls go on before."""
        name = shlex.quote(self.subject)
        if self.kind == LOOP:
            return f"lockpin task resume {name}"
        return f"lockpin breaker reset --{self.scope} {name}"


@dataclass(frozen=True, slots=True)
class BreakerState:
    """The breaker's rules as the ledger has them, and everybody whose calls pause."""

    by_command: BreakerRule | None
    by_config: BreakerRule | None
    pauses: tuple[Paused, ...]

    @property
    def rule(self) -> BreakerRule | None:
        """Give the one in force: a command's before a configuration's."""
        return self.by_command or self.by_config


class Subject(NamedTuple):
    """Whose calls pause, and whose charges are added up. A task's calls are each user's own, as its budget is."""

    scope: str
    name: str
    user: str = ""  # of a task; "": of calls without a user


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause as it is kept, in microseconds. Charges count anew from after the row that told of it."""

    since: int
    until: int | None  # None: until a person lets it go on
    since_row: int
    data: Mapping[str, Any]  # the figures of a trip

    def is_on(self, at: int) -> bool:
        """Say whether calls pause at an instant."""
        return self.until is None or at < self.until

    def is_old(self, at: int) -> bool:
        """Say whether nothing follows from it any more."""
        return self.until is not None and self.until <= at - KEPT_US


@dataclass(slots=True)
class Recent:
    """What somebody was charged lately, oldest first."""

    charges: deque[tuple[int, int]] = field(default_factory=deque)  # instants and nanodollars
    total: int = 0

    def add(self, at: int, nano: int) -> None:
        """Add the next charge."""
        self.charges.append((at, nano))
        self.total += nano

    def pass_time(self, horizon: int) -> None:
        """Let go what is not after an instant."""
        while self.charges and self.charges[0][0] <= horizon:
            self.total -= self.charges.popleft()[1]


def told_of(at: int, kind: str, subject: Subject, pause: Pause) -> Paused:
    """Give a pause as those are told of it whose calls pause."""
    data, until = pause.data, pause.until
    charged, usd = (Money(data[name]) if name in data else None for name in ("charged_nano", "usd_nano"))
    window = timedelta(microseconds=data["window_us"]) if "window_us" in data else None
    ends = None if until is None else instant(until)
    return Paused(instant(at), kind, subject.scope, subject.name, ends, charged, usd, window, subject.user or None)


def chosen(at: int, pauses: Iterable[tuple[str, Subject, Pause]]) -> Paused | None:
    """Choose of the pauses of a call the one that it is told of: the breaker's that ends last, then a stopped loop."""
    here = [each for each in pauses if each[2].is_on(at)]
    if not here:
        return None
    kind, subject, pause = max(here, key=lambda each: (each[0] == BREAKER, each[2].until or 0))
    return told_of(at, kind, subject, pause)


def rule_terms(rule: BreakerRule) -> dict[str, object]:
    """Write a rule as JSON-ready data."""
    spans = {"window_us": rule.window_us, "cooldown_us": rule.cooldown_us}
    return {"usd_nano": rule.usd.nano, **spans, "scopes": list(rule.scopes)}


def read_rule(data: Mapping[str, Any]) -> BreakerRule:
    """Read back what `rule_terms` gave."""
    window, cooldown = (timedelta(microseconds=data[name]) for name in ("window_us", "cooldown_us"))
    return BreakerRule(Money(data["usd_nano"]), window, cooldown, tuple(data["scopes"]))


def rule_of(breaker: Breaker) -> BreakerRule | None:
    """Give the rule that a configuration asks for; None: none."""
    if breaker.usd is None:
        return None
    window, cooldown = (timedelta(milliseconds=ms) for ms in (breaker.window_ms, breaker.cooldown_ms))
    return BreakerRule(breaker.usd, window, cooldown, SCOPES_BY[breaker.by])


def subjects_of(payers: Payers, scopes: tuple[str, ...]) -> tuple[Subject, ...]:
    """Name the subjects that payers are of some scopes."""
    return subjects_named(payers.task, payers.user, payers.key, scopes)


def subjects_named(task: str, user: str | None, key: str | None, scopes: tuple[str, ...]) -> tuple[Subject, ...]:
    """Do the same where their names stand apart."""
    named = (Subject(TASK, task, user or ""), Subject(KEY, key or ""))
    return tuple(subject for subject in named if subject.name and subject.scope in scopes)


def not_stopped(task: str) -> str:
    """Say that nothing is there to be resumed."""
    return f'the calls of task "{task}" were not stopped; `lockpin breaker status` lists whose pause'


def nobody_pauses(scope: str | None, subject: str | None) -> str:
    """Say that nothing is there to be reset."""
    who = "nobody's calls" if scope is None else f'the calls of {scope} "{subject}" do not'
    return f"{who} pause because of the breaker; `lockpin breaker status` lists whose do"


def rule_words(rule: BreakerRule | None) -> str:
    """Write a rule for people."""
    if rule is None:
        return "off"
    window, cooldown = (duration_text(us // 1000) for us in (rule.window_us, rule.cooldown_us))
    return f"${rule.usd.exact()} in {window} by {rule.by}, cooldown {cooldown}"


def loosens(before: BreakerRule | None, after: BreakerRule | None) -> bool:
    """Say whether a change may let through what was stopped before."""
    if before is None:
        return False
    return (
        after is None
        or after.usd > before.usd
        or after.window < before.window
        or after.cooldown < before.cooldown
        or not set(before.scopes) <= set(after.scopes)
    )

"""What rows make of the breaker and of pauses. Pure: knows no SQL; earlier charges are asked for.

Of charges no more is kept than one window of those who are charged, and nothing while no breaker is in force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lockpin_core.call import Payers
from lockpin_core.clock import stamp_after
from lockpin_core.ledger.definitions import COMMAND, CONFIG
from lockpin_core.ledger.pauses import (
    BREAKER,
    DEFINED,
    KEY,
    LOOP,
    REMOVED,
    RESET,
    RESUMED,
    STOPPED,
    TASK,
    TRIPPED,
    BreakerRule,
    Pause,
    Recent,
    Subject,
    chosen,
    loosens,
    read_rule,
    rule_terms,
    subjects_named,
    subjects_of,
)
from lockpin_core.money import Money

type Content = Mapping[str, Any]
type Charges = Callable[[Subject, int, int], Iterable[tuple[int, int]] | None]
"""Gives instants and nanodollars of one's charges after an instant and a row, without the one that is being applied.
None: it cannot be known."""

_NOT_DATA = ("scope", "subject", "user", "who")  # what an event says of a stop beside its figures


@dataclass(slots=True)
class _Known:
    """What one was charged within the window; `since` None: all of it is there."""

    recent: Recent = field(default_factory=Recent)
    since: int | None = None  # from which instant on charges are known

    def total(self, horizon: int) -> int | None:
        """Add up what is after an instant; None: it is not all known."""
        self.recent.pass_time(horizon)
        return self.recent.total if self.since is None or horizon >= self.since else None


class PauseStates:
    """The rules and all pauses, after the rows up to here.

    `due`: whose pauses the next rows must tell of, and what they were charged.
    """

    def __init__(self) -> None:
        self.rules: dict[str, BreakerRule] = {}  # by source
        self.pauses: dict[tuple[str, Subject], Pause] = {}
        self.due: list[tuple[Subject, int]] = []
        self._known: dict[Subject, _Known] = {}
        self._has_begun = True  # False: a charge of before, that nothing is known of, may be what the next rows follow

    @property
    def rule(self) -> BreakerRule | None:
        """Give the rule in force."""
        return self.rules.get(COMMAND) or self.rules.get(CONFIG)

    def refuses(self, payers: Payers, at: int) -> str | None:
        """Say why a hold of these payers may not be; None: it may."""
        if not self.pauses:
            return None
        subjects = subjects_of(payers, (TASK, KEY))
        found = chosen(at, ((kind, one, pause) for (kind, one), pause in self.pauses.items() if one in subjects))
        if found is None:
            return None
        until = "" if found.until is None else f" until {stamp_after(found.until)}"
        return f'the calls of its {found.scope} "{found.subject}" pause{until}'

    def charged(self, facts: Content, nano: int, at: int, earlier: Charges) -> None:
        """Take a charge, and work out who has to pause because of it."""
        rule, self._has_begun = self.rule, True
        if rule is None:
            return
        for subject in subjects_named(facts["task"], facts.get("user"), facts.get("key"), rule.scopes):
            pause = self.pauses.get((BREAKER, subject))
            known = self._known.get(subject)
            if known is None:
                since_row = 0 if pause is None else pause.since_row
                known = self._known[subject] = _begin(earlier(subject, at - rule.window_us, since_row), at)
            known.recent.add(at, nano)
            total = known.total(at - rule.window_us)
            if nano and total is not None and total > rule.usd.nano and not (pause is not None and pause.is_on(at)):
                self.due.append((subject, total))

    def apply(self, code: str, data: Content, row: int, at: int) -> str | None:
        """Take an event; give what is wrong with it. Raises KeyError or TypeError like any other row."""
        if code in (DEFINED, REMOVED):
            return self._define(code, data)
        subject = Subject(data["scope"], data["subject"], data.get("user", ""))
        if code == TRIPPED:
            return self._trip(subject, data, row, at)
        if code == RESET:
            return self._reset(subject, data, row, at)
        if code == STOPPED:
            return self._stop(subject, data, row, at)
        if self.pauses.pop((LOOP, subject), None) is None:
            return f'task "{subject.name}" was not stopped'
        return None if data["loosens"] is True else "it lets calls go on, and says otherwise"

    def _define(self, code: str, data: Content) -> str | None:
        source, before = data["source"], self.rule
        if code == DEFINED:
            self.rules[source] = read_rule(data)
        elif self.rules.pop(source, None) is None:
            return "no such breaker was in force"
        self._known.clear()
        loosened = loosens(before, self.rule)
        if data["loosens"] is not loosened:
            return f"it {'loosens' if loosened else 'does not loosen'} the breaker, and says otherwise"
        return None

    def _trip(self, subject: Subject, data: Content, row: int, at: int) -> str | None:
        rule, who = self.rule, f'{subject.scope} "{subject.name}"'
        if rule is None:
            return "no breaker is in force"
        if [data[name] for name in ("usd_nano", "window_us", "until")] != [
            *(rule.usd.nano, rule.window_us, at + rule.cooldown_us)
        ]:
            return "it is not by the breaker that is in force"
        charged, wanted = data["charged_nano"], self.due[0] if self.due else None
        if wanted is not None and wanted[0] == subject:
            del self.due[0]
            if wanted[1] != charged:
                return f"{who} was charged {_usd(wanted[1])} within the window, and not {_usd(charged)}"
        elif self._is_known(subject, at - rule.window_us) or charged <= rule.usd.nano:
            return f"no charge of {who} explains it"
        figures = {name: data[name] for name in ("charged_nano", "usd_nano", "window_us")}
        self._put(subject, Pause(at, data["until"], row, figures))
        for key in [key for key, pause in self.pauses.items() if key[0] == BREAKER and pause.is_old(at)]:
            del self.pauses[key]
        return None

    def _is_known(self, subject: Subject, horizon: int) -> bool:
        known = self._known.get(subject)
        return self._has_begun if known is None else known.total(horizon) is not None

    def _stop(self, subject: Subject, data: Content, row: int, at: int) -> str | None:
        if (LOOP, subject) in self.pauses:
            return f'task "{subject.name}" was stopped before'
        figures = {name: value for name, value in data.items() if name not in _NOT_DATA}
        self.pauses[LOOP, subject] = Pause(at, None, row, figures)
        return None

    def _reset(self, subject: Subject, data: Content, row: int, at: int) -> str | None:
        pause = self.pauses.get((BREAKER, subject))
        if pause is None or not pause.is_on(at):
            return f'the calls of {subject.scope} "{subject.name}" do not pause'
        self._put(subject, Pause(at, at, row, pause.data))
        return None if data["loosens"] is True else "it lets calls go on, and says otherwise"

    def _put(self, subject: Subject, pause: Pause) -> None:
        self.pauses[BREAKER, subject] = pause
        self._known[subject] = _Known()  # all that counts from here on will be seen

    def missing(self) -> str | None:
        """Say whose pause no row tells of, that the last charges make due; None: nobody's."""
        if not self.due:
            return None
        subject, total = self.due[0]
        return f'{subject.scope} "{subject.name}" was charged {_usd(total)} within the window, and no pause is told'

    def state(self) -> list[object]:
        """Give everything as JSON-ready data, for a checkpoint; what is due with it."""
        pauses = [
            [kind, *subject, pause.since, pause.until, pause.since_row, dict(pause.data)]
            for (kind, subject), pause in sorted(self.pauses.items())
        ]
        rules = {source: rule_terms(rule) for source, rule in self.rules.items()}
        return [rules, pauses, [[*subject, total] for subject, total in self.due]]

    @classmethod
    def of(cls, state: Sequence[Any]) -> PauseStates:
        """Go on from what `state` gave."""
        made = cls()
        rules, pauses, due = state
        made.rules = {source: read_rule(terms) for source, terms in rules.items()}
        made.pauses = {(kind, Subject(*whose)): Pause(*rest) for kind, *whose, rest in map(_split, pauses)}
        made._has_begun = False
        made.due = [(Subject(*whose), total) for *whose, total in due]
        return made


def _split(told: Sequence[Any]) -> list[Any]:
    return [*told[:4], told[4:]]


def _begin(charges: Iterable[tuple[int, int]] | None, at: int) -> _Known:
    """Begin with what was charged before, as far as that can be known."""
    if charges is None:
        return _Known(since=at)
    known = _Known()
    for when, nano in charges:
        known.recent.add(when, nano)
    return known


def _usd(nano: int) -> str:
    return f"${Money(nano).exact()}"


CODES = (DEFINED, REMOVED, TRIPPED, RESET, STOPPED, RESUMED)  # of events that are taken here

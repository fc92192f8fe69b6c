"""The breaker and the pauses of a ledger in memory: the same rules, added up anew from all charges each time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lockpin_core.call import Payers
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
    Paused,
    Subject,
    chosen,
    subjects_of,
    told_of,
)


@dataclass(frozen=True, slots=True)
class _Charged:
    row: int
    at: int
    payers: Payers
    nano: int


class MemoryPauses:
    """Pauses by kind and subject. `note` writes an event's row, of a task where one is meant, and gives its number."""

    def __init__(self, note: Callable[[str, str | None], int]) -> None:
        self.rules: dict[str, BreakerRule] = {}  # by source
        self._note = note
        self._pauses: dict[tuple[str, Subject], Pause] = {}
        self._charges: list[_Charged] = []

    @property
    def rule(self) -> BreakerRule | None:
        """Give the rule in force."""
        return self.rules.get(COMMAND) or self.rules.get(CONFIG)

    def define(self, rule: BreakerRule | None, source: str) -> None:
        """Put a rule in force, or take it out of it."""
        if self.rules.get(source) == rule:
            return
        if rule is None:
            del self.rules[source]
        else:
            self.rules[source] = rule
        self._note(REMOVED if rule is None else DEFINED, None)

    def of(self, payers: Payers, at: int) -> Paused | None:
        """Say whether the calls of these payers pause."""
        named = [(kind, one) for one in subjects_of(payers, (TASK, KEY)) for kind in (BREAKER, LOOP)]
        return chosen(at, ((*each, self._pauses[each]) for each in named if each in self._pauses))

    def charged(self, row: int, payers: Payers, nano: int, at: int) -> tuple[Paused, ...]:
        """Take notice of a charge; give whose calls pause from now on."""
        self._charges.append(_Charged(row, at, payers, nano))
        if self.rule is None or not nano:
            return ()
        tripped = []
        for subject in subjects_of(payers, self.rule.scopes):
            before = self._pauses.get((BREAKER, subject))
            total = self._total(subject, self.rule, at, 0 if before is None else before.since_row)
            if not (before is not None and before.is_on(at)) and total > self.rule.usd.nano:
                tripped.append(self._trip(subject, self.rule, at, total))
        return tuple(tripped)

    def _total(self, subject: Subject, rule: BreakerRule, at: int, since_row: int) -> int:
        return sum(
            charge.nano
            for charge in self._charges
            if subject in subjects_of(charge.payers, (subject.scope,))
            and charge.at > at - rule.window_us
            and charge.row > since_row
        )

    def _trip(self, subject: Subject, rule: BreakerRule, at: int, total: int) -> Paused:
        data = {"charged_nano": total, "usd_nano": rule.usd.nano, "window_us": rule.window_us}
        pause = Pause(at, at + rule.cooldown_us, self._note(TRIPPED, _task(subject)), data)
        self._pauses[BREAKER, subject] = pause
        return told_of(at, BREAKER, subject, pause)

    def reset(self, scope: str | None, name: str | None, at: int) -> list[Subject]:
        """End the breaker's pause of one subject, or of everybody; give whose."""
        found = [
            subject
            for (kind, subject), pause in sorted(self._pauses.items())
            if kind == BREAKER and pause.is_on(at) and scope in (None, subject.scope) and name in (None, subject.name)
        ]
        for subject in found:
            data = self._pauses[BREAKER, subject].data
            self._pauses[BREAKER, subject] = Pause(at, at, self._note(RESET, _task(subject)), data)
        return found

    def stop_task(self, task: str, user: str | None, at: int) -> bool:
        """Let a task's calls pause until a person lets them go on."""
        subject = Subject(TASK, task, user or "")
        if (LOOP, subject) in self._pauses:
            return False
        self._pauses[LOOP, subject] = Pause(at, None, self._note(STOPPED, task), {})
        return True

    def resume_task(self, task: str, user: str | None) -> bool:
        """Let a stopped task's calls go on."""
        found = [key for key in self._pauses if key[0] == LOOP and key[1].name == task and user in (None, key[1].user)]
        for key in found:
            del self._pauses[key]
            self._note(RESUMED, task)
        return bool(found)


def _task(subject: Subject) -> str | None:
    return subject.name if subject.scope == TASK else None

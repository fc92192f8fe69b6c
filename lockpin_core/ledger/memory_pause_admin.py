"""What commands do to the breaker and to stopped tasks of a ledger in memory."""

from __future__ import annotations

from lockpin_core.clock import micros
from lockpin_core.errors import CommandError
from lockpin_core.ledger.admin import canonical_task, refuse_too_much
from lockpin_core.ledger.definitions import COMMAND
from lockpin_core.ledger.memory_books import MemoryBooks
from lockpin_core.ledger.pauses import NO_BREAKER, BreakerRule, Subject, nobody_pauses, not_stopped


class MemoryPauseAdmin(MemoryBooks):
    """The part of an Admin that is about pauses."""

    def task_resume(self, name: str, *, who: str) -> None:
        """See Admin."""
        with self._lock:
            if not self._pauses.resume_task(canonical_task(name), None):
                raise CommandError(not_stopped(name))

    def breaker_set(self, rule: BreakerRule, *, who: str) -> BreakerRule | None:
        """See Admin."""
        with self._lock:
            refuse_too_much(rule.usd, rule.usd)
            before = self._pauses.rule
            self._pauses.define(rule, COMMAND)
            return before

    def breaker_clear(self, *, who: str) -> BreakerRule | None:
        """See Admin."""
        with self._lock:
            if COMMAND not in self._pauses.rules:
                raise CommandError(NO_BREAKER)
            self._pauses.define(None, COMMAND)
            return self._pauses.rule

    def breaker_reset(self, scope: str | None = None, subject: str | None = None, *, who: str) -> list[Subject]:
        """See Admin."""
        with self._lock:
            found = self._pauses.reset(scope, subject, micros(self._now()))
            if not found:
                raise CommandError(nobody_pauses(scope, subject))
            return found

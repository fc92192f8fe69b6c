"""What "allow once" adds to a task's own limit for one call.

The limit is raised by just what the call is short of, in the transaction of its hold. Whatever makes room on the
account from then on takes as much of it back in its own transaction, so that no other call gets any of it: see
`Balance.free`. Which open calls were given some is known by call. Knows the SQL of `allowances`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from lockpin_core.budgets import Standing, violations
from lockpin_core.call import Call
from lockpin_core.ledger.questions import Question

GIVEN, ENDED = "allowed_once", "allowance_ended"  # the codes of their events
PASSED_ON = "allowance_passed_on"

_READ = "SELECT call, account, nano, leaves_at FROM allowances"
_PUT = "INSERT INTO allowances (call, account, nano, leaves_at) VALUES (?, ?, ?, ?)"
_DROP = "DELETE FROM allowances WHERE call = ?"


@dataclass(frozen=True, slots=True)
class Allowance:
    """By how much a limit was raised for one call; under a rolling window it leaves like any other raise."""

    account: str
    nano: int
    leaves_at: int | None = None


class Allowances:
    """Those that are open, on one connection; mostly there are none."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._open: dict[str, Allowance] | None = None

    def begin(self) -> None:
        """Forget what another writer may have changed."""
        self._open = None

    def put(self, call: str, allowance: Allowance) -> None:
        """Keep what was given to a call."""
        self._read()[call] = allowance
        self._connection.execute(_PUT, (call, allowance.account, allowance.nano, allowance.leaves_at))

    def find(self, call: str) -> Allowance | None:
        """Give what a call was given; None: nothing."""
        return self._read().get(call)

    def take(self, call: str) -> Allowance | None:
        """Give what a call was given, and forget it; None: nothing."""
        known = self._read()
        if not known:
            return None
        found = known.pop(call, None)
        if found is not None:
            self._connection.execute(_DROP, (call,))
        return found

    def drop(self, account: str) -> None:
        """Forget those of an account whose raises were all taken back."""
        known = self._read()
        for call in [call for call, allowance in known.items() if allowance.account == account]:
            del known[call]
            self._connection.execute(_DROP, (call,))

    def _read(self) -> dict[str, Allowance]:
        if self._open is None:
            self._open = {call: Allowance(*rest) for call, *rest in self._connection.execute(_READ)}
        return self._open


def missing(call: Call, question: Question, standings: Sequence[Standing]) -> tuple[Standing, int] | None:
    """Give the account of its task whose limit a call passes, and by how much in nanodollars; nothing: it fits by now.

    None: something else is in the way too, or more than the question showed. What should stay free beside it is not
    asked for: others would take what the limit is raised by for that.
    """
    short = violations(standings, call.quote)
    own = next((standing for standing in standings if standing.budget.own), None)
    if own is None or any(standing is not own for standing in short):
        return None
    if not short:
        return own, 0
    without = own._replace(limit=None)
    left = own.remaining()
    if left is None or not without.fits(call.quote.most, call.quote.tokens):
        return None
    more = (call.quote.most - left).nano
    return (own, more) if more <= max(call.quote.most, question.short_by).nano else None

"""The waiting room of a SQLite ledger: the tickets of all processes, and the calls of this one that wait.

Tickets are working state and no book: they are in no chain, and go with their writer. What this writer's tickets are on
the file is read with everything else that others may have changed, and written as a difference to that, so that no
ticket stays behind whatever became of a transaction. Knows the SQL of `waiting`; whose turn it is, `turns` knows.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from lockpin_core.clock import monotonic_s
from lockpin_core.ledger.protocol import Answer
from lockpin_core.ledger.pulse import Pulse, Ticks
from lockpin_core.ledger.turns import Ticket, Waiter

NEVER = 2**63
_READ = (
    "SELECT call, account, short, ticket, writer, task, usd, tokens, since, protected_at, until, reserve_usd, "
    "reserve_tokens FROM waiting ORDER BY ticket, call, account"
)
_PUT = (
    "REPLACE INTO waiting (call, account, short, ticket, writer, task, usd, tokens, since, protected_at, until, "
    "reserve_usd, reserve_tokens) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_DROP = "DELETE FROM waiting WHERE call = ? AND writer = ?"
_DROP_ALL = "DELETE FROM waiting WHERE writer = ?"


class WaitingRoom:
    """Tickets on one connection. `own` holds this writer's waiters by call, in the order of their tickets."""

    def __init__(self, connection: sqlite3.Connection, writer: str) -> None:
        self.own: dict[str, Waiter] = {}
        self.others: list[Ticket] = []
        # Of those who waited and do not any more, by call; None: the place was given up.
        self.answers: list[tuple[str, Answer | None]] = []
        self.is_shut = False  # nobody is let go in this transaction
        self.has_changed = False  # something happened since they were tried, so that they stand otherwise
        self.wake_at = NEVER  # when time alone may: a window ends, spend leaves, another's ticket is over
        self.ticks: Ticks = monotonic_s
        # On which accounts somebody was short when all were tried last; None: it was not asked since.
        self._awaited: frozenset[str] | None = None
        self.pulse: Pulse | None = None  # of a process that lets calls wait
        self._asleep: frozenset[str] = frozenset()  # writers with calls that wait, and that cannot let them go now
        self._connection, self._writer = connection, writer
        self._written: dict[str, Ticket] = {}  # own tickets as they are on the file
        # All tickets as they were read last, with their lines: of many that wait, few have changed since.
        self._read: dict[str, tuple[list[tuple[Any, ...]], Ticket]] = {}
        self._writers: frozenset[str] = frozenset()  # of the others' tickets

    @property
    def is_empty(self) -> bool:
        """Say whether nobody waits, of any process."""
        return not self.own and not self.others

    @property
    def deadline_s(self) -> float:
        """Say when the first of the own waiters has waited long enough."""
        return min(waiter.deadline_s for waiter in self.own.values())

    def read_anew(self) -> None:
        """Read all tickets: others may have changed them."""
        before, self._read = self._read, {}
        for call, group in groupby(self._connection.execute(_READ), itemgetter(0)):
            lines, known = list(group), before.get(call)
            self._read[call] = known if known is not None and known[0] == lines else (lines, _ticket(lines))
        found = [ticket for _, ticket in self._read.values()]
        self.others = [ticket for ticket in found if ticket.writer != self._writer]
        self._written = {ticket.call: ticket for ticket in found if ticket.writer == self._writer}
        self._writers = frozenset(ticket.writer for ticket in self.others)
        self.has_changed = True

    def tickets(self) -> Sequence[Ticket]:
        """List all tickets, oldest first."""
        if not self.others:
            return [waiter.ticket for waiter in self.own.values()]
        found = [*self.others, *(waiter.ticket for waiter in self.own.values())]
        found.sort(key=lambda ticket: (ticket.number, ticket.call))
        return found

    def next_number(self) -> int:
        """Give the number of the next ticket."""
        return 1 + max((ticket.number for ticket in self.tickets()), default=0)

    def enter(self, waiter: Waiter) -> None:
        """Let a call of this writer wait, or go on to wait on more accounts."""
        self.own[waiter.call.id] = waiter

    def answer(self, call_id: str, answer: Answer) -> None:
        """Let a waiter go, with an answer."""
        del self.own[call_id]
        self.answers.append((call_id, answer))

    def leave(self, call_id: str) -> None:
        """Give up a place."""
        if self.own.pop(call_id, None) is not None:
            self.answers.append((call_id, None))
            self.has_changed = True

    def begin_round(self) -> None:
        """Note that everybody is tried now."""
        self.has_changed, self.wake_at = False, NEVER
        self._awaited = None

    def free(self, accounts: Iterable[str]) -> None:
        """Note that room came free on accounts: nobody need be tried where nobody was ever short on them."""
        if self.has_changed:
            return
        if self._awaited is None:
            self._awaited = frozenset(name for ticket in self.tickets() for name in ticket.short)
        self.has_changed = not self._awaited.isdisjoint(accounts)

    def is_due(self, at: int) -> bool:
        """Say whether the own waiters are to be tried. On the way it is seen which processes are awake."""
        if self.is_shut:
            return False
        self._look_around()
        if not self.own:
            return False
        return self.has_changed or at >= self.wake_at or self.ticks() >= self.deadline_s

    @contextlib.contextmanager
    def shut(self) -> Iterator[None]:
        """Let nobody go while a block runs."""
        before, self.is_shut = self.is_shut, True
        try:
            yield
        finally:
            self.is_shut = before

    def is_asleep(self, ticket: Ticket) -> bool:
        """Say whether a ticket's process cannot take its turn, so that it stands in nobody's way."""
        return ticket.writer in self._asleep

    def _look_around(self) -> None:
        if self.pulse is None:
            return
        if self.own:
            self.pulse.beat()
        asleep = frozenset(filter(self.pulse.is_asleep, self._writers))
        if asleep != self._asleep:
            self._asleep, self.has_changed = asleep, True

    def flush(self) -> None:
        """Write what has changed of the own tickets."""
        if not self.own and not self._written:
            return
        if self.own and self.pulse is not None:
            self.pulse.beat()  # before others see a ticket
        tickets = {call: waiter.ticket for call, waiter in self.own.items()}
        if tickets == self._written:
            return
        gone = [(call, self._writer) for call, ticket in self._written.items() if tickets.get(call) != ticket]
        self._connection.executemany(_DROP, gone)
        new = [ticket for call, ticket in tickets.items() if self._written.get(call) != ticket]
        self._connection.executemany(_PUT, [values for ticket in new for values in _lines(ticket)])
        self._written = tickets

    def reset(self, own: Sequence[Waiter]) -> None:
        """Go back to these waiters, when a transaction did not happen."""
        self.own = {waiter.call.id: waiter for waiter in own}
        self.answers = []

    def forget_writer(self, writer: str) -> None:
        """Take off the tickets of a writer that is gone."""
        if self._connection.execute(_DROP_ALL, (writer,)).rowcount:
            self.read_anew()


def _ticket(lines: Sequence[tuple[Any, ...]]) -> Ticket:
    """Put a ticket together of its lines, one for each account."""
    call, _, _, number, writer, task, usd, tokens, since, protected_at, until, *reserve = lines[0]
    accounts = tuple(line[1] for line in lines)
    short = tuple(line[1] for line in lines if line[2])
    return Ticket(number, call, writer, task, usd, tokens, since, protected_at, until, accounts, short, *reserve)


def _lines(ticket: Ticket) -> list[tuple[object, ...]]:
    facts = (
        *(ticket.number, ticket.writer, ticket.task, ticket.usd, ticket.tokens),
        *(ticket.since, ticket.protected_at, ticket.until, *ticket.reserve),
    )
    return [(ticket.call, account, int(account in ticket.short), *facts) for account in ticket.accounts]

"""What becomes of open holds whose caller is gone: a stopped or dead writer's, and deferred ones whose time is over.

A hold whose exchange was open is charged in full; one that waits for later usage goes on under the writer that takes it
over. Knows the SQL of `open_holds`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from lockpin_core.call import Charge
from lockpin_core.ledger.books import Books
from lockpin_core.ledger.corrections import EXPIRED
from lockpin_core.ledger.liveness import Liveness
from lockpin_core.ledger.operations import Operation
from lockpin_core.money import Money

STOPPED = "lockpin_stopped"

_RUNNING = "SELECT call, usd, tokens FROM open_holds WHERE writer = ? AND background = 0 ORDER BY at, call"
_DEFERRED = "SELECT 1 FROM open_holds WHERE writer = ? AND background = 1"
_ADOPT = "UPDATE open_holds SET writer = ? WHERE writer = ? AND background = 1 RETURNING call"
_WRITERS = "SELECT writer FROM open_holds WHERE writer <> ?1 UNION SELECT writer FROM waiting WHERE writer <> ?1"
_WAITS = "SELECT 1 FROM waiting WHERE writer = ?"
_EXPIRED = "SELECT call, usd, tokens FROM open_holds WHERE expires_at <= ? AND writer = ? ORDER BY expires_at, call"


@dataclass(frozen=True, slots=True)
class Dead:
    """A writer that is dead. Without a file it may be one that lives and makes its file again any moment."""

    writer: str
    had_file: bool


def stop(books: Books) -> None:
    """Charge what this writer still holds, in full; deferred holds stay. Who waits is sent away."""
    books.room.own.clear()
    books.write()
    for call_id, usd, tokens in books.connection.execute(_RUNNING, (books.writer,)).fetchall():
        _charge(books, call_id, usd, tokens, STOPPED)


def dead_writers(books: Books, liveness: Liveness, claims: ExitStack) -> list[Dead]:
    """List the writers that are dead, and have no other process act on them while `claims` is open."""
    known = {writer for (writer,) in books.connection.execute(_WRITERS, (books.writer,))}
    dead: list[Dead] = []
    for writer in sorted({*known, *liveness.others()}):
        claim = liveness.claim(writer)
        if claim is not None:
            claims.enter_context(claim)
            dead.append(Dead(writer, claim.had_file))
    return dead


def settling(books: Books, dead: Sequence[Dead], liveness: Liveness) -> list[Operation]:
    """Give the steps that settle what dead writers left: open holds are charged in full, deferred ones adopted, and
    tickets taken off.

    One step a call, so that one that fails keeps no other from its end.
    """
    steps: list[Operation] = []
    for one in dead:
        running = books.connection.execute(_RUNNING, (one.writer,)).fetchall()
        steps += [_step(partial(_charge_dead, dead=one, liveness=liveness, hold=tuple(hold))) for hold in running]
        if books.connection.execute(_WAITS, (one.writer,)).fetchone() is not None:
            steps.append(_step(partial(_forget_tickets, dead=one, liveness=liveness)))
        if books.connection.execute(_DEFERRED, (one.writer,)).fetchone() is not None:
            steps.append(_step(partial(_adopt, dead=one, liveness=liveness)))
    return steps


def over(books: Books, at: int) -> list[Operation]:
    """Give the steps that charge this writer's deferred holds whose time is over, in full."""
    holds = books.connection.execute(_EXPIRED, (at, books.writer)).fetchall()
    return [_step(partial(_expire, hold=tuple(hold))) for hold in holds]


def _step(run: Callable[[Books], object]) -> Operation:
    return Operation(run, kept=False)


def _is_dead(dead: Dead, liveness: Liveness) -> bool:
    return dead.had_file or not liveness.is_alive(dead.writer)


def _charge_dead(books: Books, dead: Dead, liveness: Liveness, hold: tuple[str, int, int]) -> None:
    if _is_dead(dead, liveness):
        _charge(books, *hold, STOPPED)


def _forget_tickets(books: Books, dead: Dead, liveness: Liveness) -> None:
    if _is_dead(dead, liveness):
        books.room.forget_writer(dead.writer)


def _adopt(books: Books, dead: Dead, liveness: Liveness) -> None:
    if not _is_dead(dead, liveness):
        return
    books.write()
    calls = [call for (call,) in books.connection.execute(_ADOPT, (books.writer, dead.writer)).fetchall()]
    if calls:
        books.event("hold_adopted", {"calls": sorted(calls), "writer": dead.writer})


def _expire(books: Books, hold: tuple[str, int, int]) -> None:
    _charge(books, *hold, EXPIRED)


def _charge(books: Books, call_id: str, usd: int, tokens: int, reason: str) -> None:
    books.settle(call_id, Charge(Money(usd), {}, tokens, None, None, reason=reason, estimated=True))

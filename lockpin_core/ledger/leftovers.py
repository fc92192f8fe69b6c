"""What becomes of open holds whose caller is gone: a stopped or dead writer's, and deferred ones whose time is over.

A hold whose exchange was open is charged in full; one that waits for later usage goes on under the writer that takes it
over. Knows the SQL of `open_holds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from lockpin_core.call import Charge
from lockpin_core.ledger.books import Books
from lockpin_core.ledger.corrections import EXPIRED
from lockpin_core.ledger.liveness import Liveness
from lockpin_core.money import Money

STOPPED = "lockpin_stopped"

_RUNNING = "SELECT call, usd, tokens FROM open_holds WHERE writer = ? AND background = 0 ORDER BY at, call"
_ADOPT = "UPDATE open_holds SET writer = ? WHERE writer = ? RETURNING call"
_WRITERS = "SELECT DISTINCT writer FROM open_holds WHERE writer <> ?"
_EXPIRED = "SELECT call, usd, tokens FROM open_holds WHERE expires_at <= ? AND writer = ? ORDER BY expires_at, call"
_IS_DUE = "SELECT EXISTS (SELECT 1 FROM open_holds WHERE expires_at <= ? AND writer = ?)"


def stop(books: Books) -> None:
    """Charge what this writer still holds, in full; deferred holds stay."""
    _charge(books, _RUNNING, (books.writer,), STOPPED)


def dead_writers(books: Books, liveness: Liveness, claims: ExitStack) -> list[str]:
    """List the writers that are dead, and have no other process act on them while `claims` is open."""
    known = {writer for (writer,) in books.connection.execute(_WRITERS, (books.writer,))}
    dead: list[str] = []
    for writer in sorted({*known, *liveness.others()}):
        claim = liveness.claim(writer)
        if claim is not None:
            claims.enter_context(claim)
            dead.append(writer)
    return dead


def is_due(books: Books, at: int) -> bool:
    """Say whether one of this writer's deferred holds is over."""
    (found,) = books.connection.execute(_IS_DUE, (at, books.writer)).fetchone()
    return bool(found)


def settle_all(books: Books, dead: Sequence[str]) -> None:
    """Charge the open holds of dead writers, adopt their deferred ones, and charge what is over."""
    for writer in dead:
        _charge(books, _RUNNING, (writer,), STOPPED)
        calls = [call for (call,) in books.connection.execute(_ADOPT, (books.writer, writer)).fetchall()]
        if calls:
            books.event("hold_adopted", {"calls": sorted(calls), "writer": writer})
    _charge(books, _EXPIRED, (books.at, books.writer), EXPIRED)


def _charge(books: Books, which: str, values: Sequence[object], reason: str) -> None:
    books.write()
    for call_id, usd, tokens in books.connection.execute(which, values).fetchall():
        books.settle(call_id, Charge(Money(usd), {}, tokens, None, None, reason=reason, estimated=True))

"""What a ledger's writer is asked to do: one step on the books, and whoever waits for its answer."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from functools import partial
from typing import Any

from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger.books import Books
from lockpin_core.ledger.coalesce import Refused

# Errors of sqlite3 that blame the operation, not the database: the others in the transaction are sound.
_OPERATION_ERRORS = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.DataError)


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One step on the books. `kept`: tried again until a write works; else it fails when the ledger does.

    `droppable`: a row that only tells; where too much waits, it is not kept. What resolves a hold always is, and there
    is no more of that than there are open holds.
    """

    run: Callable[[Books], object]
    future: Future[Any] | None = None
    kept: bool = True
    call_id: str | None = None  # of a hold: to be cancelled when it turns out to be on the books after all
    refused: Refused | None = None
    droppable: bool = False
    waits: bool = False  # its future can be cancelled until it is answered, and then `cancel` is asked for its call
    reads: bool = False  # changes nothing: what the books said last is an answer while they cannot be written
    # What a hold becomes where no enforced limit applies to its call and the ledger is away: its answer, and what is
    # written later. Asked with the books as they can be read; None: it fails.
    degraded: Callable[[Books], tuple[object, Callable[[Books], object]] | None] | None = None


def cancelling(call_id: str) -> Operation:
    """Make the step that takes a hold off, if there is one."""
    return Operation(partial(_cancel, call_id=call_id))


def refusals(due: list[Refused]) -> list[Operation]:
    """Make the steps that write refusals."""
    return [Operation(partial(_refuse, refused=refused), droppable=True) for refused in due]


def reason(error: Exception) -> str:
    """Say in words for a refusal why the ledger cannot be written."""
    if isinstance(error, LedgerUnavailable):
        return str(error)
    return f"the ledger cannot be written: {error}"


def blames_database(error: Exception) -> bool:
    """Say whether writing as such does not work, as against one operation that is at fault."""
    if isinstance(error, sqlite3.Error):
        return not isinstance(error, _OPERATION_ERRORS)
    return isinstance(error, LedgerUnavailable)


def is_wanted(operation: Operation) -> bool:
    """Say whether to run an operation: not a hold whose caller has given up before it was begun."""
    future = operation.future
    if future is None or future.running():
        return True
    if operation.waits:
        return not future.cancelled()
    if future.cancelled():
        return operation.kept
    return future.set_running_or_notify_cancel() or operation.kept


def tell(operation: Operation, found: object) -> None:
    """Answer whoever waits."""
    future = operation.future
    if future is None or future.cancelled():
        return
    # One that waited may be cancelled at this very moment.
    with contextlib.suppress(InvalidStateError) if operation.waits else contextlib.nullcontext():
        if isinstance(found, BaseException):
            future.set_exception(found)
        elif found is None and operation.waits:
            future.cancel()  # its place was given up
        else:
            future.set_result(found)


def _cancel(books: Books, call_id: str) -> None:
    books.cancel(call_id)


def _refuse(books: Books, refused: Refused) -> None:
    books.refuse(refused.note, refused.refusal, refused.count)

"""Who waits for the answers of calls that wait for held money: they get them in the transaction that lets a call go.

Knows operations and their answers; knows no books and no transactions.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockpin_core.ledger.operations import Operation
from lockpin_core.ledger.protocol import Answer
from lockpin_core.ledger.turns import Waiter

type Answered = list[tuple[Operation, object]]


class Lobby:
    """The operations whose calls wait, by call; more than one where a call was asked for again."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Operation]] = {}

    def answers_to(self, answers: Answered, found: Sequence[tuple[str, Answer | None]]) -> Answered:
        """Give what was found for calls that waited to those who wait for it, among them those of this transaction."""
        if not found:
            return []
        asked = {call: list(operations) for call, operations in self._waiting.items()}
        for operation, answer in answers:
            if isinstance(answer, Waiter):
                asked.setdefault(answer.call.id, []).append(operation)
        return [(operation, answer) for call, answer in found for operation in asked.pop(call, ())]

    def sort(self, answers: Answered) -> Answered:
        """Let those wait whose calls do, and give the others, who are to be told."""
        told: Answered = []
        for operation, answer in answers:
            if isinstance(answer, Waiter):
                self._waiting.setdefault(answer.call.id, []).append(operation)
                continue
            told.append((operation, answer))
            if operation.waits and operation.call_id is not None:
                self._remove(operation.call_id, operation)
        return told

    def _remove(self, call_id: str, operation: Operation) -> None:
        here = self._waiting.get(call_id, [])
        if operation in here:
            here.remove(operation)
            if not here:
                del self._waiting[call_id]

    def clear(self) -> list[Operation]:
        """Send everybody away; give those who are to be told why."""
        waiting, self._waiting = self._waiting, {}
        return [operation for operations in waiting.values() for operation in operations]

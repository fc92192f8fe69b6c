"""Differences that are booked after a call was resolved: usage that came after its hold had expired, and corrections.

A difference lands in the window of the call's hold, on every account that counts the call. Knows SQL of rows.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace

from lockpin_core.call import Charge, Payers
from lockpin_core.clock import instant
from lockpin_core.errors import CommandError
from lockpin_core.ledger.accounts import Seat, Spans, seats_of
from lockpin_core.ledger.balances import Balances
from lockpin_core.ledger.chain import encode
from lockpin_core.ledger.columns import FACT_NAMES, usage_columns
from lockpin_core.ledger.definitions import Definitions
from lockpin_core.ledger.tasks import Tasks
from lockpin_core.money import Money

EXPIRED = "expired"  # reason of a charge: the cost of a deferred call never came
LATE, CORRECTED = "late_usage", "corrected"  # codes of a correction

_FACTS = ", ".join(f'"{name}"' for name in FACT_NAMES)
_RESOLVED = (
    f"SELECT id, usd, tokens, held_at, accounts, estimated, {_FACTS} FROM rows "
    "WHERE call = ? AND kind IN ('charge', 'void')"
)
_BOOKED = "SELECT usd, tokens, code, data FROM rows WHERE call = ? AND kind = 'correction' ORDER BY id"
_IS_OPEN = "SELECT 1 FROM open_holds WHERE call = ?"

type Append = Callable[[str, dict[str, object]], bytes]


@dataclass(frozen=True, slots=True)
class _Booked:
    """What a resolved call costs by now; `estimate_nano` None: it is no estimate, or none any more."""

    row: int
    usd: int
    tokens: int
    held_at: int
    accounts: list[str]
    estimate_nano: int | None
    codes: frozenset[str]
    facts: dict[str, object]


class Corrections:
    """Books differences on one connection, inside its owner's transaction."""

    def __init__(
        self, connection: sqlite3.Connection, balances: Balances, tasks: Tasks, definitions: Definitions, append: Append
    ) -> None:
        self._connection, self._append = connection, append
        self._balances, self._tasks, self._definitions = balances, tasks, definitions

    def late(self, call_id: str, charge: Charge) -> None:
        """Book the usage of an expired call, once."""
        booked = self._read(call_id)
        assert booked is not None, "an expired call has no charge"
        if booked.codes:
            return  # it came before, or a person has said what the call cost
        row = usage_columns(charge) | {"code": LATE, "reason": charge.reason}
        self._book(call_id, booked, charge.amount.nano, charge.tokens, row, {})

    def correct(self, call_id: str, amount: Money, *, reason: str, who: str) -> tuple[Money, list[str], str]:
        """Book what a call really cost; give what it cost before, its accounts and its task. Raises CommandError."""
        booked = self._read(call_id)
        if booked is None:
            open_now = self._connection.execute(_IS_OPEN, (call_id,)).fetchone() is not None
            words = "is still in flight; correct it when it has ended" if open_now else "was never held here"
            raise CommandError(f'call "{call_id}" {words}; `lockpin calls` lists calls')
        if booked.usd == amount.nano:
            raise CommandError(f'call "{call_id}" costs ${amount.exact()} already; another amount is allowed')
        told: dict[str, object] = {"reason": reason, "who": who}
        accounts = self._book(call_id, booked, amount.nano, booked.tokens, {"code": CORRECTED}, told)
        return Money(booked.usd), accounts, str(booked.facts["task"])

    def _read(self, call_id: str) -> _Booked | None:
        found = self._connection.execute(_RESOLVED, (call_id,)).fetchone()
        if found is None:
            return None
        row, usd, tokens, held_at, accounts, estimated, *facts = found
        corrections = self._connection.execute(_BOOKED, (call_id,)).fetchall()
        was = any("estimate_nano" in json.loads(data) for *_, data in corrections)
        return _Booked(
            row, usd + sum(c[0] for c in corrections), tokens + sum(c[1] for c in corrections), held_at,
            json.loads(accounts), usd if estimated and not was else None, frozenset(c[2] for c in corrections),
            dict(zip(FACT_NAMES, facts, strict=True)),
        )  # fmt: skip

    def _book(
        self, call_id: str, booked: _Booked, usd: int, tokens: int, row: dict[str, object], told: dict[str, object]
    ) -> list[str]:
        more = (usd - booked.usd, tokens - booked.tokens)
        accounts = self._balances.corrected(booked.accounts, self._seats(booked), booked.row)
        self._balances.book(accounts, booked.held_at, more)
        task = self._tasks.get(str(booked.facts["task"]))
        assert task is not None, "a call's task is not there"
        self._tasks.put(replace(task, spent_nano=task.spent_nano + more[0]))
        estimate = {} if booked.estimate_nano is None else {"estimate_nano": booked.estimate_nano}
        row |= {"call": call_id, "held_at": booked.held_at, "accounts": encode(accounts)}
        row["data"] = encode(told | estimate)
        self._append("correction", booked.facts | row | {"usd": more[0], "tokens": more[1]})
        return accounts

    def _seats(self, booked: _Booked) -> tuple[Seat, ...]:
        """List the accounts of the window of a call's hold, by the definitions in force."""
        own = self._definitions.own()
        if own is None:
            return ()
        facts = booked.facts
        payers = Payers(str(facts["task"]), str(facts["machine"]))
        rules, at = self._definitions.in_force(own), instant(booked.held_at)
        return seats_of(payers, str(facts["provider"]), str(facts["model"]), rules, own, at, Spans())

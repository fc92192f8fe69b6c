"""Differences that are booked after a call was resolved: usage that came after its hold had expired, and corrections.

A difference lands in the window of the call's hold, on every account that counts the call. Knows SQL of rows.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace

from lockpin_core.budgets import SCOPES, owner_of, subjects_in
from lockpin_core.call import Charge, Share
from lockpin_core.errors import CommandError
from lockpin_core.ledger.accounts import users_of
from lockpin_core.ledger.balances import Balances
from lockpin_core.ledger.chain import encode
from lockpin_core.ledger.columns import FACT_NAMES, PAYER_NAMES, payers_of, usage_columns
from lockpin_core.ledger.definitions import budget_of
from lockpin_core.ledger.past import FIRST, LAST
from lockpin_core.ledger.shares import differences, read, told
from lockpin_core.ledger.tasks import Tasks
from lockpin_core.ledger.whose import WHO_NAMES, is_of
from lockpin_core.money import Money

EXPIRED = "expired"  # reason of a charge: the cost of a deferred call never came
LATE, CORRECTED = "late_usage", "corrected"  # codes of a correction

_FACTS = ", ".join(f'"{name}"' for name in FACT_NAMES)
_RESOLVED = (
    f"SELECT id, usd, tokens, held_at, accounts, estimated, data, {_FACTS} FROM rows "
    "WHERE call = ? AND kind IN ('charge', 'void')"
)
_BOOKED = "SELECT usd, tokens, code, over_hold, data FROM rows WHERE call = ? AND kind = 'correction' ORDER BY id"
# Accounts that began, or caught up, after a call had ended: they may have counted it then.
_LATER = f"""
SELECT id, budget, subject FROM accounts WHERE reset_row < :row AND counted_row >= :row
  AND coalesce(window_start, {FIRST}) <= :held_at AND :held_at < coalesce(window_end, {LAST})
  AND (scope, subject) IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:whose))
ORDER BY id"""
_COUNTED = (
    "SELECT id FROM rows WHERE task IS NULL AND kind = 'event' AND code IN ('account_opened', 'account_caught_up') "
    "AND id > ?1 AND json_extract(data, '$.account') = ?2 "
    "AND coalesce(json_extract(data, '$.rows_from'), 0) < ?1 "
    "AND coalesce(json_extract(data, '$.rows_to'), id) >= ?1 ORDER BY id LIMIT 1"
)
_DEFINED = (
    "SELECT data FROM rows WHERE task IS NULL AND kind = 'event' AND code = 'budget_defined' "
    "AND id < ? AND json_extract(data, '$.name') = ? ORDER BY id DESC LIMIT 1"
)
_STORED = "SELECT definition FROM budgets WHERE name = ?"
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
    is_over: bool
    facts: dict[str, object]
    shares: tuple[Share, ...]  # of what was charged for its usage


class Corrections:
    """Books differences on one connection, inside its owner's transaction."""

    def __init__(self, connection: sqlite3.Connection, balances: Balances, tasks: Tasks, append: Append) -> None:
        self._connection, self._append = connection, append
        self._balances, self._tasks = balances, tasks

    def late(self, call_id: str, charge: Charge) -> bool:
        """Book the usage of an expired call, once; say whether it is above what was held."""
        booked = self._read(call_id)
        assert booked is not None, "an expired call has no charge"
        if booked.codes:
            return booked.is_over  # it came before, or a person has said what the call cost
        over = charge.amount.nano > booked.usd or 0 < booked.tokens < charge.tokens
        row = usage_columns(charge) | {"code": LATE, "reason": charge.reason, "over_hold": int(over)}
        self._book(call_id, booked, charge.amount.nano, charge.tokens, row, told(charge.shares))
        return over

    def correct(self, call_id: str, amount: Money, *, reason: str, who: str) -> tuple[Money, list[str], str]:
        """Book what a call really cost; give what it cost before, its accounts and its task. Raises CommandError."""
        booked = self._read(call_id)
        if booked is None:
            open_now = self._connection.execute(_IS_OPEN, (call_id,)).fetchone() is not None
            words = "is still in flight; correct it when it has ended" if open_now else "was never held here"
            raise CommandError(f'call "{call_id}" {words}; `lockpin calls` lists calls')
        if booked.usd == amount.nano:
            raise CommandError(f'call "{call_id}" costs ${amount.exact()} already; another amount is allowed')
        why: dict[str, object] = {"reason": reason, "who": who}
        why |= differences(booked.shares, booked.usd, amount.nano)
        accounts = self._book(call_id, booked, amount.nano, booked.tokens, {"code": CORRECTED}, why)
        return Money(booked.usd), accounts, str(booked.facts["task"])

    def _read(self, call_id: str) -> _Booked | None:
        found = self._connection.execute(_RESOLVED, (call_id,)).fetchone()
        if found is None:
            return None
        row, usd, tokens, held_at, accounts, estimated, data, *facts = found
        corrections = self._connection.execute(_BOOKED, (call_id,)).fetchall()
        was = any("estimate_nano" in json.loads(c[4]) for c in corrections)
        late = next((c[4] for c in corrections if c[2] == LATE), None)
        return _Booked(
            row, usd + sum(c[0] for c in corrections), tokens + sum(c[1] for c in corrections), held_at,
            json.loads(accounts), usd if estimated and not was else None, frozenset(c[2] for c in corrections),
            any(c[3] for c in corrections), dict(zip(FACT_NAMES, facts, strict=True)), read(late or data),
        )  # fmt: skip

    def _book(
        self, call_id: str, booked: _Booked, usd: int, tokens: int, row: dict[str, object], why: dict[str, object]
    ) -> list[str]:
        more = (usd - booked.usd, tokens - booked.tokens)
        accounts = self._accounts(booked)
        self._balances.book(accounts, booked.held_at, more)
        task = self._tasks.get(str(booked.facts["task"]))
        assert task is not None, "a call's task is not there"
        self._tasks.put(replace(task, spent_nano=task.spent_nano + more[0]))
        estimate = {} if booked.estimate_nano is None else {"estimate_nano": booked.estimate_nano}
        row |= {"call": call_id, "held_at": booked.held_at, "accounts": encode(accounts)}
        row["data"] = encode({"row": booked.row, **why, **estimate})
        self._append("correction", booked.facts | row | {"usd": more[0], "tokens": more[1]})
        return accounts

    def _accounts(self, booked: _Booked) -> list[str]:
        """List the accounts that count a call: those on its row, unless they were reset since, and those that counted
        it when they began or caught up, by the filter that their budget had then.
        """
        listed = self._balances.reset_rows(booked.accounts)
        found = [name for name, reset_row in listed.items() if reset_row < booked.row]
        bounds: dict[str, object] = {"row": booked.row, "held_at": booked.held_at}
        payers = payers_of(*(booked.facts[name] for name in PAYER_NAMES))
        bounds["whose"] = encode([[scope, each] for scope in SCOPES for each in subjects_in(scope, payers)])
        self._balances.flush()
        later = self._connection.execute(_LATER, bounds).fetchall()
        return found + [
            name
            for name, budget, subject in later
            if name not in listed and self._counted(name, budget, subject, booked)
        ]

    def _counted(self, account: str, budget: str, subject: str, booked: _Booked) -> bool:
        event = self._connection.execute(_COUNTED, (booked.row, account)).fetchone()
        if event is None:
            return False  # it began with nothing, before such events were always written
        defined = self._connection.execute(_DEFINED, (event[0], budget)).fetchone()
        defined = defined or self._connection.execute(_STORED, (budget,)).fetchone()
        definition = budget_of(budget, json.loads(defined[0]))
        if definition.own:
            definition = replace(definition, users=users_of(owner_of(account)))
        return is_of(definition, subject, *(booked.facts[name] for name in WHO_NAMES))

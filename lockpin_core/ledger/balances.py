"""The accounts of a SQLite ledger: opening, holding, settling, raising, and the definitions of their budgets.

Within a transaction each account is read once and written once, however many calls it serves; `begin` and `flush` are
its ends. Knows the SQL of `accounts` and `budgets`; decides nothing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence

from lockpin_core.budgets import Budget, Standing, account_id, owner_of
from lockpin_core.clock import micros
from lockpin_core.ledger.account_lines import OPEN_ACCOUNT, WRITE, Account, columns, read_sql, span_of
from lockpin_core.ledger.accounts import (
    Balance,
    Seat,
    Spans,
    Step,
    TaskTerms,
    beside,
    budget_in,
    has_room,
    is_spent_up,
    standing_from,
    standing_of,
)
from lockpin_core.ledger.alerts import still_told
from lockpin_core.ledger.backlog import Backlog
from lockpin_core.ledger.chain import NoteEvent, encode
from lockpin_core.ledger.definitions import Definitions
from lockpin_core.ledger.past import FIRST, LAST, OpenCall, Past, ends
from lockpin_core.ledger.totals import Totals
from lockpin_core.money import Money

_REMEMBERED = 1024  # accounts that are kept in memory
_NOTHING = (0, 0)

_IN_WINDOW = (
    "SELECT id, subject, window_start, window_end FROM accounts WHERE budget = ? AND scope = ? "
    "AND coalesce(window_start, ?) <= ? AND ? < coalesce(window_end, ?) AND coalesce(period_ms, 0) = ? "
    "AND (spent_nano <> 0 OR held_nano <> 0 OR spent_tokens <> 0 OR held_tokens <> 0) ORDER BY subject"
)
_READ_STEPS = "SELECT leaves_at, spent_nano, spent_tokens, raised_nano, allowed_nano FROM steps WHERE account = ?"
_PUT_STEP = (
    "REPLACE INTO steps (account, leaves_at, spent_nano, spent_tokens, raised_nano, allowed_nano) "
    "VALUES (?, ?, ?, ?, ?, ?)"
)
_DROP_STEP = "DELETE FROM steps WHERE account = ? AND leaves_at = ?"


class Balances:
    """Reads and writes accounts on one connection. `note_event` writes an event's row; `at` is the transaction's."""

    def __init__(
        self, connection: sqlite3.Connection, note_event: NoteEvent, definitions: Definitions,
        backlog: Backlog | None = None, totals: Totals | None = None,
    ) -> None:  # fmt: skip
        self.spans, self.at = Spans(), 0
        self.note_forgotten: Callable[[str], None] = _take_no_notice  # told an account whose raises are taken back
        self.keeps = False  # what was allowed once is not taken back just now: the next attempt's hold comes
        self.taken_back: dict[str, int] = {}  # of what was allowed once, by account, as the last hold became smaller
        self._connection, self._backlog = connection, backlog or Backlog(connection)
        self._totals = totals or Totals(connection)
        self._note_event, self._definitions = note_event, definitions
        self.past = Past(connection)
        self._known: dict[str, Account] = {}
        self._rolling: set[str] = set()  # of the known ones, those from which spend leaves
        self._changed: set[str] = set()

    def begin(self) -> None:
        """Forget what another writer may have changed."""
        self._known.clear()
        self._rolling.clear()
        self._changed.clear()
        self.keeps = False

    def flush(self) -> None:
        """Write what has changed."""
        if self._changed:
            changed = [(name, self._known[name]) for name in self._changed]
            self._connection.executemany(WRITE, [columns(account, name) for name, account in changed])
            for name, account in changed:
                if account.touched:
                    self._write_steps(name, account)
            self._changed.clear()
        if len(self._known) > _REMEMBERED:
            self._known.clear()
            self._rolling.clear()

    def _write_steps(self, name: str, account: Account) -> None:
        here = [(leaves, account.balance.steps.get(leaves)) for leaves in account.touched]
        there = [(name, leaves, *step.numbers()) for leaves, step in here if step is not None]
        self._connection.executemany(_PUT_STEP, there)
        self._connection.executemany(_DROP_STEP, [(name, leaves) for leaves, step in here if step is None])
        account.touched.clear()

    def standings(self, seats: tuple[Seat, ...]) -> tuple[Standing, ...]:
        """Read how accounts stand; one that is new is opened with what its window has seen already."""
        self._load([seat.account for seat in seats])
        return tuple(standing_of(seat, (self._known.get(seat.account) or self._open(seat)).balance) for seat in seats)

    def has_room(self, seats: tuple[Seat, ...], usd: int, tokens: int, reserve: tuple[int, int] = _NOTHING) -> bool:
        """Say whether an amount fits every account, on the task's own beside a reserve; one that is new is opened."""
        self._load([seat.account for seat in seats])
        known = self._known
        for seat in seats:
            account = known.get(seat.account) or self._open(seat)
            amounts = beside(reserve, usd, tokens) if seat.budget.own else (usd, tokens)
            if not has_room(seat.budget, account.balance, *amounts):
                return False
        return True

    def held_up(
        self, seats: tuple[Seat, ...], usd: int, tokens: int, aside: Mapping[str, tuple[int, int]],
        reserve: tuple[int, int] = _NOTHING,
    ) -> tuple[str, ...]:  # fmt: skip
        """List the accounts that an amount does not fit beside what is set aside, where it would if nothing were held;
        none, where it fits, or spent money or the reserve on the task's own account is in the way.
        """
        self._load([seat.account for seat in seats])
        short: list[str] = []
        for seat in seats:
            balance = (self._known.get(seat.account) or self._open(seat)).balance
            amounts = beside(reserve, usd, tokens) if seat.budget.own else (usd, tokens)
            if not has_room(seat.budget, balance, *beside(aside.get(seat.account, _NOTHING), *amounts)):
                if is_spent_up(seat.budget, balance, *amounts):
                    return ()
                short.append(seat.account)
        return tuple(short)

    def next_end(self, seat: Seat) -> int | None:
        """Say when an account's window ends, or spend leaves it; None: never."""
        balance = self._known[seat.account].balance
        return balance.next_leaving() if balance.period_ms else None if seat.span.end is None else micros(seat.span.end)

    def add_held(self, seats: tuple[Seat, ...], usd: int, tokens: int) -> tuple[Standing, ...]:
        """Hold an amount on all of some accounts that were just read."""
        standings: list[Standing] = []
        self._changed.update([seat.account for seat in seats])
        for seat in seats:
            balance = self._known[seat.account].balance
            balance.held_nano += usd
            balance.held_tokens += tokens
            standings.append(standing_from(seat.account, seat.budget, seat.subject, seat.span, balance))
        return tuple(standings)

    def settle(
        self, accounts: Sequence[str], held_at: int, held: tuple[int, int], spent: tuple[int, int],
        terms: TaskTerms | None,
    ) -> tuple[Standing, ...]:  # fmt: skip
        """Take a hold (nano, tokens) off all its accounts and put a charge on them."""
        self._load(accounts)
        self._changed.update(accounts)
        self.taken_back = {}
        is_spend = any(spent)
        for name in accounts:
            account = self._known[name]
            balance = account.balance
            used = balance.used_nano if balance.allowed_nano else None
            balance.held_nano -= held[0]
            balance.held_tokens -= held[1]
            if is_spend and not balance.period_ms:
                balance.spent_nano += spent[0]
                balance.spent_tokens += spent[1]
            elif is_spend:
                self._spend(account, held_at, spent)
            assert balance.held_nano >= 0 <= balance.held_tokens, "more was taken off an account than it held"
            if used is not None:
                self.free(name, used - balance.used_nano)
        return self.current(accounts, terms)

    def book(self, accounts: Sequence[str], held_at: int, more: tuple[int, int]) -> None:
        """Put an amount (nano, tokens; may be negative) on accounts, in the window of a hold."""
        self._load(accounts)
        for name in accounts:
            account = self._change(name)
            used = account.balance.used_nano
            self._spend(account, held_at, more)
            self.free(name, used - account.balance.used_nano)

    def free(self, name: str, nano: int) -> None:
        """Take back what was allowed once on an account that was just read, as far as room has come free there."""
        if self.keeps:
            return
        account = self._change(name)
        before = account.balance.allowed_nano
        account.touched.update(account.balance.free(nano))
        self.taken_back[name] = before - account.balance.allowed_nano

    def allowed(self, accounts: Sequence[str]) -> dict[str, int]:
        """Give how much is allowed once on those of some accounts where anything is."""
        self._load(accounts)
        found = {name: self._known[name].balance.allowed_nano for name in accounts if name in self._known}
        return {name: nano for name, nano in found.items() if nano}

    def reset_rows(self, accounts: Sequence[str]) -> dict[str, int]:
        """Give from which row on the spend of each account counts."""
        self._load(accounts)
        return {name: self._known[name].reset_row for name in accounts}

    def current(self, accounts: Sequence[str], terms: TaskTerms | None) -> tuple[Standing, ...]:
        """Read how named accounts stand now."""
        self._load(accounts)
        return tuple([self._standing(name, self._known[name], terms) for name in accounts])

    def fits(
        self, name: str, terms: TaskTerms | None, usd: int, tokens: int, aside: tuple[int, int],
        reserve: tuple[int, int] = _NOTHING,
    ) -> bool:  # fmt: skip
        """Say whether an amount fits a named account beside what is set aside on it, and a reserve on a task's own."""
        self._load((name,))
        account = self._known[name]
        budget = self._budget_of(account, terms)
        amounts = beside(reserve, usd, tokens) if budget.own else (usd, tokens)
        return has_room(budget, account.balance, *beside(aside, *amounts))

    def known(self, accounts: Sequence[str], terms: TaskTerms | None) -> tuple[Standing, ...]:
        """Read how those of some accounts stand that are there."""
        self._load(accounts)
        return self.current([name for name in accounts if name in self._known], terms)

    def told(self, name: str) -> list[str]:
        """Give what was told of an account that was just read: see `alerts`."""
        told = self._known[name].alerted
        return [] if told == "[]" else json.loads(told)

    def tell(self, name: str, told: list[str]) -> None:
        """Keep what was told of it."""
        self._change(name).alerted = encode(told)

    def raise_limit(self, seat: Seat, nano: int, *, once: bool = False) -> tuple[Standing, int | None]:
        """Add to the dollar limit of one account and re-arm the alert steps that this un-passes.

        Gives also when a rolling account's raise leaves. `once`: it is for one call.
        """
        self.standings((seat,))
        account = self._change(seat.account)
        balance = account.balance
        leaves = balance.allow(self.at, nano) if once else balance.add_raise(self.at, nano)
        if leaves is not None:
            account.touched.add(leaves)
        return self.rearm(seat), leaves

    def raised(self, seat: Seat) -> Money:
        """Say what was added to the limit of one account."""
        self.standings((seat,))
        return Money(self._known[seat.account].balance.raised_nano)

    def forget_raises(self, seat: Seat) -> None:
        """Take back what was added to the limit of one account: its limit was set anew."""
        self.standings((seat,))
        self._forget_raises(seat.account)

    def _forget_raises(self, name: str) -> None:
        account = self._change(name)
        account.balance.forget_raises()
        account.touched.update(account.balance.steps)
        self.note_forgotten(name)

    def forget_all_raises(self, budget: Budget) -> None:
        """Take back what was added to the limits of a budget's accounts, and say so."""
        self.flush()
        sql = "SELECT id FROM accounts WHERE budget = ? AND (raised_nano <> 0 OR raised_tokens <> 0) ORDER BY id"
        for (name,) in self._connection.execute(sql, (budget.name,)).fetchall():
            self._load([name])
            told = {"account": name, "raised_nano": self._known[name].balance.raised_nano}
            self._forget_raises(name)
            self._note_event("raises_forgotten", told)

    def reset(self, seat: Seat) -> tuple[Standing, Standing]:
        """Let one account's spend count from now on; what is held stays. Give it before and after."""
        (before,) = self.standings((seat,))
        account = self._change(seat.account)
        account.balance.forget_spend()
        account.touched.update(account.balance.steps)
        account.alerted = "[]"
        self._write_pending()
        account.counted_row = account.reset_row = self.past.last_row()
        (after,) = self.standings((seat,))
        return before, after

    def rearm(self, seat: Seat) -> Standing:
        """Forget the alert steps of one account that its limit in force no longer makes passed."""
        (standing,) = self.standings((seat,))
        self.tell(seat.account, still_told(standing, self.told(seat.account)))
        return standing

    def in_window(self, budget: Budget, at: int) -> tuple[Seat, ...]:
        """List a budget's accounts with something spent or held in the window of an instant."""
        bounds = (FIRST, at, at, LAST, budget.window.period_ms)
        rows = self._connection.execute(_IN_WINDOW, (budget.name, budget.scope, *bounds)).fetchall()
        return tuple(Seat(account, budget, subject, span_of(start, end)) for account, subject, start, end in rows)

    def peek(self, seats: tuple[Seat, ...]) -> tuple[Standing, ...]:
        """Read how accounts stand without opening any: nothing is written."""
        self._load([seat.account for seat in seats])
        return tuple(standing_of(seat, self._balance_of(seat)) for seat in seats)

    def _balance_of(self, seat: Seat) -> Balance:
        known = self._known.get(seat.account)
        return self._seen(seat)[0] if known is None else known.balance

    def catch_up(self, seat: Seat) -> None:
        """Let an account that was away, or whose budget turned otherwise, count what it has missed."""
        self._load([seat.account])
        known = self._known.get(seat.account)
        if known is None:
            return
        self._write_pending()
        rows_from = known.counted_row
        missed, calls = self.past.missed(seat, self.at, rows_from)
        account = self._change(seat.account)
        self._join(seat.account, calls)
        balance = account.balance
        balance.held_nano += missed.held_nano
        balance.held_tokens += missed.held_tokens
        balance.spent_nano += missed.spent_nano
        balance.spent_tokens += missed.spent_tokens
        for leaves, step in missed.steps.items():
            mine = balance.steps.setdefault(leaves, Step())
            mine.spent_nano += step.spent_nano
            mine.spent_tokens += step.spent_tokens
            account.touched.add(leaves)
        account.counted_row = self.past.last_row()
        self._tell("account_caught_up", seat.account, missed, calls, rows_from=rows_from)

    def in_force_accounts(self, budget: Budget) -> list[Seat]:
        """List a budget's accounts whose window is now, for all whom it lists."""
        rows = self._connection.execute(
            "SELECT subject, window_start, window_end FROM accounts WHERE budget = ? AND scope = ? "
            "AND coalesce(window_start, ?) <= ? AND ? < coalesce(window_end, ?) AND coalesce(period_ms, 0) = ?",
            (budget.name, budget.scope, FIRST, self.at, self.at, LAST, budget.window.period_ms),
        ).fetchall()
        spans = [(subject, span_of(start, end)) for subject, start, end in rows if budget.lists(subject)]
        return [Seat(account_id(budget, subject, span), budget, subject, span) for subject, span in spans]

    def rearm_all(self, budget: Budget) -> None:
        """Re-arm the alert steps of all accounts of a budget whose definition has changed."""
        self.flush()
        rows = self._connection.execute(
            "SELECT id, subject, window_start, window_end FROM accounts WHERE budget = ? AND alerted <> '[]'",
            (budget.name,),
        ).fetchall()
        for account, subject, start, end in rows:
            self.rearm(Seat(account, budget, subject, span_of(start, end)))

    def _load(self, names: Sequence[str]) -> None:
        missing = [name for name in names if name not in self._known]
        if missing:
            self._read(missing)
        if self._rolling:
            for name in names:
                if name in self._rolling:
                    account = self._known[name]
                    account.touched.update(account.balance.pass_time(self.at))

    def _read(self, names: Sequence[str]) -> None:
        sql = read_sql(len(names))
        for name, budget, subject, start, end, *rest in self._connection.execute(sql, list(names)).fetchall():
            *numbers, period_ms, alerted, counted_row, reset_row = rest
            balance = Balance(*numbers)
            balance.period_ms = period_ms or 0
            span, told = span_of(start, end), (alerted, counted_row, reset_row, owner_of(name))
            self._known[name] = Account(budget, subject, span, balance, *told)
            if period_ms:
                self._rolling.add(name)
                steps = self._connection.execute(_READ_STEPS, (name,)).fetchall()
                balance.steps = {leaves: Step(*amounts) for leaves, *amounts in steps}

    def _change(self, name: str) -> Account:
        self._changed.add(name)
        return self._known[name]

    def _spend(self, account: Account, held_at: int, amount: tuple[int, int]) -> None:
        leaves = account.balance.spend(held_at, self.at, *amount) if any(amount) else None
        if leaves is not None:
            account.touched.add(leaves)

    def _standing(self, name: str, account: Account, terms: TaskTerms | None) -> Standing:
        budget = self._budget_of(account, terms)
        return standing_from(name, budget, account.subject, account.span, account.balance)

    def _budget_of(self, account: Account, terms: TaskTerms | None) -> Budget:
        """Give the budget that is in force for an account."""
        stored = self._definitions.find(account.budget)
        assert stored is not None, "an account's budget is not defined"
        found = account.found
        if found is None or found[0] is not stored or (found[2].own and found[1] is not terms):
            if stored.removed_at is None:
                period_ms = account.balance.period_ms
                budget = budget_in(stored.budget, account.span, period_ms, terms, account.owner)
            else:
                budget = stored.without_limit()
            account.found = found = (stored, terms, budget)
        return found[2]

    def _open(self, seat: Seat) -> Account:
        """Make an account that counts the charges and open holds of its window so far."""
        balance, calls = self._seen(seat)
        self._join(seat.account, calls)
        row = self.past.last_row()
        names = (seat.account, seat.budget.name, seat.budget.scope, seat.subject, *ends(seat.span))
        numbers = (balance.spent_nano, balance.held_nano, balance.spent_tokens, balance.held_tokens)
        self._connection.execute(OPEN_ACCOUNT, (*names, balance.period_ms or None, row, *numbers))
        owner = owner_of(seat.account)
        account = Account(seat.budget.name, seat.subject, seat.span, balance, counted_row=row, owner=owner)
        self._known[seat.account] = account
        if balance.period_ms:
            self._rolling.add(seat.account)
            account.touched.update(balance.steps)
            self._changed.add(seat.account)
        self._tell("account_opened", seat.account, balance, calls)
        return account

    def _seen(self, seat: Seat) -> tuple[Balance, list[OpenCall]]:
        """Add up what rows and open holds say of an account that does not exist yet."""
        self._write_pending()
        return self.past.of(seat, self.at)

    def _write_pending(self) -> None:
        self._backlog.write()
        self._totals.flush()

    def _join(self, account: str, calls: Sequence[OpenCall]) -> None:
        """Let open holds be on one more account."""
        if calls:
            self._backlog.open.clear()
        joined = [(encode([*json.loads(call.accounts), account]), call.call) for call in calls]
        self._connection.executemany("UPDATE open_holds SET accounts = ? WHERE call = ?", joined)

    def _tell(self, code: str, account: str, seen: Balance, calls: Sequence[OpenCall], **more: int) -> None:
        numbers = {
            "spent_nano": seen.spent_nano, "held_nano": seen.held_nano,
            "spent_tokens": seen.spent_tokens, "held_tokens": seen.held_tokens,
        }  # fmt: skip
        told: dict[str, object] = {"account": account, "calls": [call.call for call in calls], **numbers, **more}
        if seen.period_ms:
            told["steps"] = [[at, step.spent_nano, step.spent_tokens] for at, step in sorted(seen.steps.items())]
        self._note_event(code, told)


def _take_no_notice(account: str) -> None:
    """There are no allowances to forget."""

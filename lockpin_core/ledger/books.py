"""The ledger's operations inside an open SQLite transaction: SQL and the rules of holding, waiting and settling.

Knows no threads, no commits and no files. Every operation happens at the transaction's instant.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from lockpin_core.budgets import Standing
from lockpin_core.call import Call, Charge, Payers, Refusal, Void
from lockpin_core.clock import instant, micros
from lockpin_core.errors import LedgerError
from lockpin_core.ledger import questionbook
from lockpin_core.ledger.accounts import Seat, TaskTerms
from lockpin_core.ledger.backlog import OpenHold
from lockpin_core.ledger.chain import encode
from lockpin_core.ledger.columns import (
    FACT_NAMES,
    account_list,
    charge_columns,
    fact_columns,
    hold_columns,
    note_columns,
    plain,
)
from lockpin_core.ledger.corrections import EXPIRED
from lockpin_core.ledger.frame import Frame
from lockpin_core.ledger.protocol import Answer, CallNote, Closed, Held, Resolved, Rules, Short, Smaller, Wait
from lockpin_core.ledger.shares import told
from lockpin_core.ledger.tasks import Task
from lockpin_core.ledger.turns import (
    NOTHING,
    Amounts,
    Size,
    Stands,
    Ticket,
    Waiter,
    amounts_of,
    fitted,
    make_ticket,
    moved,
    protected,
    set_aside,
    sizes_left,
    sizes_of,
    stands,
    try_in_turn,
)
from lockpin_core.ledger.waiting import NEVER
from lockpin_core.money import ZERO, Money
from lockpin_core.usage import Unit

_OPEN = "SELECT at, accounts FROM open_holds WHERE call = ?"
_OPEN_HOLD = "SELECT at, usd, tokens, accounts, task FROM open_holds WHERE call = ?"
_CLOSE_HOLD = "DELETE FROM open_holds WHERE call = ? RETURNING at, usd, tokens, accounts, task"
_RESOLUTION = (
    "SELECT r.kind, r.at, r.usd, r.tokens, r.usage, r.model_served, r.tier, r.reason, r.estimated, r.failed, r.priced, "
    "r.over_hold, r.hash, r.accounts, r.task, h.usd - coalesce((SELECT sum(s.usd) FROM rows s WHERE s.call = r.call "
    "AND s.kind IN ('shrink', 'correction', 'refusal', 'uncapped') AND s.kind = 'shrink'), 0) AS held_usd FROM rows r "
    "JOIN rows h ON h.call = r.call AND h.kind = 'hold' WHERE r.call = ? AND r.kind IN ('charge', 'void')"
)
_FACTS = f"SELECT {', '.join(f'"{name}"' for name in FACT_NAMES)} FROM rows WHERE call = ? AND kind = 'hold'"
_DEFER = "UPDATE open_holds SET background = 1, expires_at = ? WHERE call = ?"


class Books(Frame):
    """What can be done in a transaction."""

    def hold(
        self, call: Call, rules: Rules, smaller: Smaller | None = None, wait: Wait | None = None, *,
        out_of_turn: bool = False, allowed: str | None = None,
    ) -> Answer | Waiter:  # fmt: skip
        """Hold the call's quote on all its accounts, or on none; or that of a smaller version, where one fits.

        A waiter is given where the call waits: its answer will be among those of the room.
        """
        assert call.quote.most.nano >= 0, "a quote is negative"
        assert call.quote.tokens >= 0, "a quote's tokens are negative"
        if (self._careful or call.id in self._backlog.open) and (again := self._held_again(call)) is not None:
            return again
        if self.room.is_empty:
            ahead, mine = NOTHING, None
        else:
            self.serve()
            mine = self.room.own.get(call.id)
            ahead = NOTHING if out_of_turn else self._ahead(mine)
        if allowed is not None and self._is_allowed(call, rules, allowed, ahead):
            # Its place is its own, and nobody has allowed more than what it costs.
            call, wait, ahead = replace(call, reserve=None), None, NOTHING
        sizes = sizes_of(call, wait)
        if wait is None:
            answer = self._try(call, rules, smaller, ahead)
        else:
            answer = try_in_turn(lambda lower: self._try(call, rules, lower, ahead), call, smaller, sizes)
        if not isinstance(answer, Held) and (again := self._held_again(call)) is not None:
            return again
        if wait is not None and isinstance(answer, Short):
            if sizes := sizes_left(answer, sizes):
                return mine or self._let_wait(call, rules, smaller, wait, sizes, stands(answer, sizes[0], ahead))
            if smaller is not None:
                answer = self._try(call, rules, smaller, NOTHING)
        if mine is not None and not isinstance(answer, Short):
            self.room.answer(call.id, answer)
        return answer

    def _is_allowed(self, call: Call, rules: Rules, question: str, ahead: Amounts) -> bool:
        """Say whether a call fits now, by what a person has allowed."""
        terms = self.terms(call.payers.task)
        if (terms is not None and terms.closes(call.payers)) or self.pauses.of(call.payers) is not None:
            return False
        return questionbook.allow(self, call, self._seats_of(call, rules, terms), question, ahead)

    def serve(self) -> None:
        """Try this writer's waiters in the order of all tickets, if something may let one of them go.

        Others' waiters are tried by their own process a moment later; what they need when their turn is first is left
        to them, unless their process is stopped.
        """
        room = self.room
        if not room.is_due(self.at):
            return
        room.begin_round()
        ahead: dict[str, tuple[int, int]] = {}
        for ticket in room.tickets():
            waiter = room.own.get(ticket.call)
            if waiter is not None:
                self._serve_one(waiter, ahead)
                waiter = room.own.get(ticket.call)
                if waiter is not None and ticket.is_protected(self.at):
                    set_aside(waiter.ticket, ahead, waiter.ticket.short)
            elif ticket.until > self.at and not room.is_asleep(ticket):
                room.wake_at = min(room.wake_at, ticket.next_at(self.at))
                if self._has_room_for(ticket, ahead):
                    set_aside(ticket, ahead, ticket.accounts)
                elif ticket.is_protected(self.at):
                    set_aside(ticket, ahead, ticket.short)

    def _serve_one(self, waiter: Waiter, ahead: Amounts) -> None:
        """Try a waiter in its turn; where its patience is over, or spent money is in its way, for the last time."""
        if self._stays(waiter, ahead):
            return
        call, room, waited = waiter.call, self.room, self.at - waiter.ticket.since
        is_over = self.at >= waiter.ticket.until or self.room.ticks() >= waiter.deadline_s

        def attempt(lower: Smaller | None) -> Answer:
            return self._try(call, waiter.rules, lower, ahead, waited)

        answer = try_in_turn(attempt, call, waiter.smaller, waiter.sizes)
        if isinstance(answer, Short):
            sizes = () if is_over else sizes_left(answer, waiter.sizes)
            if sizes and (found := stands(answer, sizes[0], ahead)).short:  # else it has room, and cannot be so small
                room.enter(moved(waiter, sizes, found))
                ends = [micros(s.span.end) for s in answer.standings if s.span.end is not None]
                room.wake_at = min(room.wake_at, waiter.ticket.next_at(self.at), *ends)
                return
            answer = self._try(call, waiter.rules, waiter.smaller, NOTHING, waited)
        room.answer(call.id, answer)

    def _stays(self, waiter: Waiter, ahead: Amounts) -> bool:
        """Say quickly whether nothing is otherwise for a waiter than it was: there may be many, and tried often."""
        ticket, terms = waiter.ticket, self.terms(waiter.ticket.task)
        if (
            self.at >= ticket.until
            or self.room.ticks() >= waiter.deadline_s
            or (terms is not None and terms.closes(waiter.call.payers))
            or self.pauses.of(waiter.call.payers) is not None
        ):
            return False
        seats = self._seats_of(waiter.call, waiter.rules, terms)
        short = self.balances.held_up(seats, ticket.usd, ticket.tokens, ahead, ticket.reserve)
        if not short or not ticket.knows(seats, short):
            return False
        ends = [end for seat in seats if (end := self.balances.next_end(seat)) is not None]
        self.room.wake_at = min(self.room.wake_at, ticket.next_at(self.at), *ends)
        return True

    def _let_wait(
        self, call: Call, rules: Rules, smaller: Smaller | None, wait: Wait, sizes: tuple[Size, ...], found: Stands
    ) -> Waiter:
        ticket = make_ticket(self.room.next_number(), call, self.writer, self.at, wait, found)
        deadline_s = self.room.ticks() + wait.patience.total_seconds()
        waiter = moved(Waiter(call, rules, smaller, ticket, deadline_s, sizes), sizes, found)
        self.room.enter(waiter)
        self.room.has_changed = True  # when time alone may let it go is found out by trying it
        return waiter

    def _ahead(self, mine: Waiter | None) -> Amounts:
        """Give what the protected waiters need that come before a newcomer, or before the call of a ticket."""
        last = NEVER if mine is None else mine.ticket.number
        tickets = (one for one in self.room.tickets() if one.number < last and not self.room.is_asleep(one))
        return protected(tickets, self.at)

    def _has_room_for(self, ticket: Ticket, ahead: Amounts) -> bool:
        """Say whether another process's waiter would fit now, as far as its ticket tells."""
        terms = self.terms(ticket.task)
        amounts, reserve = (ticket.usd, ticket.tokens), ticket.reserve
        fits = self.balances.fits
        return all(fits(name, terms, *amounts, ahead.get(name, (0, 0)), reserve) for name in ticket.accounts)

    def _try(self, call: Call, rules: Rules, smaller: Smaller | None, ahead: Amounts, waited: int = 0) -> Answer:
        """Hold a call, or a smaller version of it, where it fits with what is set aside for those ahead of it.

        `waited`: for how many microseconds it has waited.
        """
        terms = self.terms(call.payers.task)
        if terms is not None and terms.closes(call.payers):
            return Closed(self.now, call.payers.task)
        if (paused := self.pauses.of(call.payers)) is not None:
            return paused
        seats = self._seats_of(call, rules, terms)
        if ahead or not self.balances.has_room(seats, *amounts_of(call.quote), amounts_of(call.reserve)):
            found = fitted(call, smaller, self.balances.standings(seats), ahead, self.now)
            if isinstance(found, Short):
                return found
            call = found
        if not waited:
            return self._take(call, seats)
        call = replace(call, waited_ms=call.waited_ms + waited // 1000)
        return replace(self._take(call, seats), waited=timedelta(microseconds=waited))

    def shrink(self, call_id: str, most: Money, tokens: int) -> bool:
        """Let an open hold become smaller. False: it is not open, or not larger than that; nothing is written then."""
        assert most.nano >= 0 <= tokens, "a hold cannot be less than nothing"
        held = self.open_hold(call_id)
        less = (0, 0) if held is None else (max(held.usd - most.nano, 0), max(held.tokens - tokens, 0))
        if held is None or not any(less):
            return False
        self._backlog.shrink_hold(replace(held, usd=held.usd - less[0], tokens=held.tokens - less[1]))
        self.balances.settle(held.accounts, held.at, less, (0, 0), self.terms(held.task))
        facts = self._facts.get(call_id) or self._read_facts(call_id)
        row = facts | {"call": call_id, "held_at": held.at, "accounts": held.account_list}
        self.append("shrink", row | {"usd": less[0], "tokens": less[1]})
        self.room.free(held.accounts)
        self.room.has_changed = self.room.has_changed or any(self.balances.taken_back.values())
        return True

    def open_hold(self, call_id: str) -> OpenHold | None:
        """Find a hold that is not resolved; None: there is none."""
        if (known := self._backlog.open.get(call_id)) is not None:
            return known
        self._backlog.write()
        found = self.connection.execute(_OPEN_HOLD, (call_id,)).fetchone()
        return None if found is None else _read_hold(call_id, *found)

    def hold_unchecked(self, call: Call, rules: Rules, after_row: int) -> Held:
        """Write the hold of a call that went while the ledger was away; no limit was enforced at the last row then."""
        if (again := self._held_again(call)) is not None:
            return again
        seats = self._seats_of(call, rules, self.terms(call.payers.task))
        self.balances.standings(seats)
        return self._take(call, seats, after_row)

    def is_unlimited(self, call: Call, rules: Rules) -> bool:
        """Say, by reading alone, whether no enforced limit applies to a call, and nothing else keeps it."""
        terms = self.terms(call.payers.task)
        if (terms is not None and terms.closes(call.payers)) or self.pauses.of(call.payers) is not None:
            return False
        return self.seats.is_unlimited(call, rules, terms)

    def _seats_of(self, call: Call, rules: Rules, terms: TaskTerms | None) -> tuple[Seat, ...]:
        if not self.seats.origin:
            self.define(rules)
        return self.seats.of(call, rules, terms, self.now)

    def look(self, payers: Payers, provider: str, model: str | None, rules: Rules) -> tuple[Standing, ...]:
        """Show the accounts that such a call would be charged to."""
        return self.balances.peek(self.seats.look(payers, provider, model, rules, self.terms(payers.task), self.now))

    def settle(self, call_id: str, charge: Charge) -> Resolved:
        """Replace a hold by a charge, or give the resolution that came first."""
        assert charge.amount.nano >= 0 <= charge.tokens, "a charge is negative"
        taken = self._close_hold(call_id)
        if taken is None:
            return self._settled_before(call_id, charge)
        charge = charge.within(Money(taken.usd), taken.tokens)
        if charge.amount.nano > taken.usd or charge.tokens > taken.tokens:
            self.room.has_changed = True  # it takes room as well
        over = charge.amount.nano > taken.usd or 0 < taken.tokens < charge.tokens
        task, recent = self.tasks.spend(taken.task, charge.amount.nano)
        held, spent = (taken.usd, taken.tokens), (charge.amount.nano, charge.tokens)
        standings = self.balances.settle(taken.accounts, taken.at, held, spent, task.terms)
        self.end_allowance(taken)
        row = self._resolution(taken, standings, told(charge.shares)) | charge_columns(charge, over=over)
        digest = self.append("charge", row)
        tripped = self.pauses.charged(call_id, row, charge.amount.nano)
        self.room.has_changed = self.room.has_changed or bool(tripped)
        return Resolved(
            call_id=call_id, first=True, charge=charge, over_hold=over, held=Money(taken.usd), at=self.now,
            row_hash=digest.hex(), standings=standings, task_spent=Money(task.spent_nano), recent=recent,
            crossed=self.alerts.spent(standings, call_id), tripped=tripped,
        )  # fmt: skip

    def void(self, call_id: str, outcome: Void) -> Resolved:
        """Take a hold off, or give the resolution that came first."""
        taken = self._close_hold(call_id)
        if taken is None:
            return self._resolved_before(call_id)
        return self._void(taken, outcome)

    def cancel(self, call_id: str) -> None:
        """Take a hold off if there is an open one, or give up the place of a call that waits for one."""
        self.room.leave(call_id)
        taken = self._close_hold(call_id)
        if taken is not None:
            self._void(taken, Void("cancelled"))

    def defer(self, call_id: str, hold_for: timedelta) -> None:
        """Keep a hold for usage that comes later. Raises LedgerError where there is none."""
        self._backlog.write()
        until = self.at + hold_for // timedelta(microseconds=1)
        if self.connection.execute(_DEFER, (until, call_id)).rowcount == 0:
            raise LedgerError(f"call {call_id} has no open hold in this ledger")
        self._facts.pop(call_id, None)  # whoever settles it may be another process
        self.event("hold_deferred", {"call": call_id, "until": until})

    def refuse(self, note: CallNote, refusal: Refusal, count: int) -> None:
        """Write the row of `count` refusals."""
        detail = plain({"status": refusal.status, **note.detail, **refusal.detail})
        row: dict[str, object] = {"code": refusal.code, "count": count, "data": encode(detail)}
        self.append("refusal", note_columns(note) | row)
        if note.accounts:
            full = self.balances.known(note.accounts, self.terms(note.payers.task))
            self.alerts.refused(full, note.id, self.at)

    def uncapped(self, note: CallNote) -> None:
        """Write the row of a call that goes without a hold."""
        data = encode(plain(note.detail)) if note.detail else None
        self.append("uncapped", note_columns(note) | {"code": note.code, "data": data})

    def _take(self, call: Call, seats: tuple[Seat, ...], after_row: int | None = None) -> Held:
        """Put a fitting quote on its accounts and write its row."""
        usd, tokens = call.quote.most.nano, call.quote.tokens
        names = [seat.account for seat in seats]
        accounts = account_list(tuple(names))
        self._backlog.add_hold(OpenHold(call.id, self.at, usd, tokens, names, accounts, call.payers.task), self.writer)
        if self.tasks.get(call.payers.task) is None:
            self.tasks.put(Task(call.payers.task, TaskTerms("lifetime", None, None, closed=False)))
        self.room.has_changed = True  # who waits may be short on more accounts now
        facts = fact_columns(call)
        row = facts | hold_columns(call, self._rates_of(call), after_row)
        row["usd"], row["tokens"], row["accounts"] = usd, tokens, accounts
        self.append("hold", row)
        self._facts[call.id] = facts
        return Held(call, self.now, self.balances.add_held(seats, usd, tokens))

    def _held_again(self, call: Call) -> Held | None:
        """Give the first answer to a call that is held already; None: it is not."""
        self._backlog.write()
        found = self.connection.execute(_OPEN, (call.id,)).fetchone()
        if found is None:
            return None
        at, accounts = found
        return Held(call, instant(at), self.balances.current(json.loads(accounts), self.terms(call.payers.task)))

    def _close_hold(self, call_id: str) -> OpenHold | None:
        taken = self._taken_off(call_id)
        if taken is None:
            self.room.has_changed = True  # what was charged for it may be corrected
        else:
            self.room.free(taken.accounts)
        return taken

    def _taken_off(self, call_id: str) -> OpenHold | None:
        if not self._careful and (known := self._backlog.close_hold(call_id)) is not None:
            return known
        self._backlog.write()
        self._backlog.open.pop(call_id, None)
        rows = self.connection.execute(_CLOSE_HOLD, (call_id,)).fetchall()
        if not rows:
            return None
        return _read_hold(call_id, *rows[0])

    def _void(self, taken: OpenHold, outcome: Void) -> Resolved:
        held = (taken.usd, taken.tokens)
        terms = self.terms(taken.task)
        standings = self.balances.settle(taken.accounts, taken.at, held, (0, 0), terms)
        self.end_allowance(taken)
        row = self._resolution(taken, standings)
        row |= {"reason": outcome.reason, "failed": int(outcome.failed), "usd": 0, "tokens": 0}
        digest = self.append("void", row)
        return Resolved(
            call_id=taken.call, first=True, charge=None, over_hold=False, held=Money(taken.usd), at=self.now,
            row_hash=digest.hex(), standings=standings, task_spent=self._task_spent(taken.task),
            recent=self.tasks.recent(taken.task),
        )  # fmt: skip

    def _settled_before(self, call_id: str, charge: Charge) -> Resolved:
        """Give the resolution that came first; usage that comes after its hold had expired books the difference."""
        before = self._resolved_before(call_id)
        if before.charge is None or before.charge.reason != EXPIRED or charge.estimated:
            return before
        over = self.corrections.late(call_id, charge)
        after = self._resolved_before(call_id)
        return replace(after, charge=charge, over_hold=over, crossed=self.alerts.spent(after.standings, call_id))

    def _resolved_before(self, call_id: str) -> Resolved:
        self._backlog.write()
        row = self.connection.execute(_RESOLUTION, (call_id,)).fetchone()
        if row is None:
            raise LedgerError(f"call {call_id} has no hold in this ledger")
        (kind, at, usd, tokens, usage, served, tier, reason, estimated, failed, priced) = row[:11]
        (over, digest, accounts, task, held) = row[11:]
        charge = None
        if kind == "charge":
            counts = {Unit(unit): count for unit, count in json.loads(usage).items()}
            flags = (bool(estimated), bool(failed), bool(priced))
            charge = Charge(Money(usd), counts, tokens, served, tier, reason, *flags)
        return Resolved(
            call_id=call_id, first=False, charge=charge, over_hold=bool(over), held=Money(held), at=instant(at),
            row_hash=digest.hex(), standings=self.balances.current(json.loads(accounts), self.terms(task)),
            task_spent=self._task_spent(task), recent=self.tasks.recent(task),
        )  # fmt: skip

    def _resolution(
        self, taken: OpenHold, standings: tuple[Standing, ...], more: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        """Give the columns that a charge and a void have both: the hold's payers, and the balances after it."""
        facts = self._facts.pop(taken.call, None) or self._read_facts(taken.call)
        balances = [
            (
                *(s.spent.nano, s.held.nano, None if s.limit is None else s.limit.nano),
                *(s.spent_tokens, s.held_tokens, s.limit_tokens),
            )
            for s in standings
        ]
        data = encode({"balances": balances, **(more or {})})
        return facts | {"call": taken.call, "held_at": taken.at, "accounts": taken.account_list, "data": data}

    def _read_facts(self, call_id: str) -> dict[str, object]:
        self._backlog.write()
        found = self.connection.execute(_FACTS, (call_id,)).fetchone()
        return dict(zip(FACT_NAMES, found, strict=True))

    def _task_spent(self, name: str) -> Money:
        task = self.tasks.get(name)
        return ZERO if task is None else Money(task.spent_nano)

    def _rates_of(self, call: Call) -> str:
        """Write a call's rates as JSON; most calls have the same as the one before."""
        if call.rates is not self._last_rates[0]:
            self._last_rates = call.rates, encode(dict(call.rates))
        return self._last_rates[1]


def _read_hold(call_id: str, at: int, usd: int, tokens: int, accounts: str, task: str) -> OpenHold:
    return OpenHold(call_id, at, usd, tokens, json.loads(accounts), accounts, task)

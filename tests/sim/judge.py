"""Reads every row as it is committed, hears every answer, knows the provider's bills, and asks the model of each."""

import json
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from lockpin_core.call import Charge
from lockpin_core.ledger.protocol import Held, Paused, Short
from lockpin_core.ledger.verify import verify
from lockpin_core.money import Money
from tests.sim import traffic
from tests.sim.breaker import Breaker
from tests.sim.model import UNTOLD, Fault, Model

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROWS = (
    "SELECT id, at, kind, call, code, reason, usd, tokens, task, machine, provider, model, data, writer FROM rows "
    "WHERE id > ? ORDER BY id"
)
BOOKS = (
    "SELECT budget, subject, window_start, spent_nano, held_nano, spent_tokens, held_tokens, period_ms FROM accounts"
)
LOW_FLOOR = 256  # of an output limit, near a task's cap
LOOKS = 40  # so many commits from one look at the accounts to the next


class Row(NamedTuple):
    """A row of the books."""

    at: int
    kind: str
    call: str | None
    code: str | None
    reason: str | None
    usd: int | None
    tokens: int | None
    task: str | None
    machine: str | None
    provider: str | None
    model: str | None
    data: str | None
    writer: str


def us_of(instant):
    """Give an instant in microseconds since 1970."""
    return (instant - EPOCH) // timedelta(microseconds=1)


def payers_of(call):
    """Say by what a call's budgets are found."""
    return call.payers.task, call.payers.machine, call.provider, call.model


def is_near_cap(short):
    """Say whether the task of a call that is short has spent four fifths of its own limit."""
    own = next((s for s in short.standings if s.budget.own and s.budget.enforce and s.limit is not None), None)
    return own is not None and 0 < own.limit.nano * 4 <= own.spent.nano * 5


def breaker_of(rule):
    """Give the breaker of a configuration, in plain numbers."""
    usd = None if rule.usd is None else rule.usd.nano
    return Breaker(usd, rule.window_ms * 1000, rule.cooldown_ms * 1000)


class Judge:
    """Compares what the books and the answers say with what the model says."""

    def __init__(self, world, rules):
        self.world, self.model = world, Model(rules)
        self.asked_first, self.asked_last, self.heard_last, self.owners, self.seen_row = {}, {}, {}, {}, 0
        self.reader, self.commits = None, 0
        self.in_place_of = {}  # by call that takes the place of a failed one: that one, and what it costs
        self.breaker = breaker_of(world.config.near_cap.breaker)
        self.unheard = None  # answers that are to be judged after another one
        self.heard_pausing = set()  # calls that the breaker stops
        self.deferred = set()  # calls that are held for usage that comes later

    def asked(self, call):
        self.asked_last[call.id] = call
        self.asked_first.setdefault(call.id, call)

    def committed(self):
        """Read the rows that are on the books since."""
        self.model.last = []
        self.commits += 1
        try:
            for row in self.new_rows():
                self.read(row)
            if self.commits % LOOKS == 0 and self.reader is not None:
                self.check_accounts()
        except Fault as fault:
            self.world.fail(fault)

    def new_rows(self):
        if self.world.backend == "memory":
            ledger = self.world.ledger_in_memory
            rows, self.seen_row = ledger.rows[self.seen_row :], len(ledger.rows)
            for row in rows:
                call = self.asked_last.get(row.call)
                payers = (row.task, None, None, None) if call is None else (row.task, *payers_of(call)[1:])
                yield Row(
                    us_of(row.at), row.kind, row.call, row.code, UNTOLD, row.usd, row.tokens, *payers, None, ""
                )  # fmt: skip
            return
        if self.reader is None:
            self.reader = sqlite3.connect(self.world.path, isolation_level=None)
        for number, *row in self.reader.execute(ROWS, (self.seen_row,)).fetchall():
            self.seen_row = number
            yield Row(*row)

    def read(self, row):
        if row.at < self.model.now:
            raise Fault(f"a row goes back in time: {row.at} after {self.model.now}")
        self.model.now = row.at
        if row.kind != "refusal":
            what = row.usd if row.usd is not None else ""
            self.world.note("row", row.kind, row.call or "", row.code or "", what, row.reason or "")
        if row.kind == "hold":
            self.read_hold(row)
        elif row.kind == "shrink":
            self.model.shrink(row.call, row.usd, row.tokens)
            self.world.counts["shrunk"] += 1
        elif row.kind in ("charge", "void"):
            self.read_end(row)
        elif row.kind == "correction":
            self.world.counts["corrected"] += 1
            self.model.correct(row.call, row.at, row.usd, row.tokens)
        elif row.kind == "event" and row.code == "hold_deferred" and row.data is not None:
            self.deferred.add(json.loads(row.data)["call"])
        elif row.kind == "event" and row.code in ("budget_defined", "budget_removed") and row.data is not None:
            self.hear_rule(row.at, json.loads(row.data), is_gone=row.code == "budget_removed")

    def read_hold(self, row):
        asked = self.asked_first.get(row.call)
        if asked is None or payers_of(asked) != (row.task, row.machine, row.provider, row.model):
            raise Fault(f"OVERSHOOT: call {row.call} is booked for another than asked for it: {row}")
        self.check_largest(row, asked)
        self.breaker.check_hold(row.call, row.task, row.at)
        self.model.hold(*row[2:3], row.at, row.task, row.machine, row.provider, row.model, row.usd, row.tokens)
        self.owners[row.call] = row.writer
        self.world.counts["held"] += 1

    def check_largest(self, row, asked):
        """A call that is held for less than was asked could not be held for more: where nobody waits before it."""
        quote = asked.quote
        if (row.usd, row.tokens) == (quote.most.nano, quote.tokens) or self.somebody_waits():
            return
        payers = row.task, row.machine, row.provider, row.model
        if self.model.fits(payers, row.at, quote.most.nano, quote.tokens):
            raise Fault(f"call {row.call} is held at {row.usd} nano, and the whole of {quote.most.nano} fits")
        more = traffic.one_word_more(self.world.agents.wants[row.call], row.usd, row.tokens, quote.tokens)
        if more is not None and self.model.fits(payers, row.at, *more):
            raise Fault(f"call {row.call} is held at {row.usd} nano, and one more token of output fits")

    def read_end(self, row):
        hold = self.model.calls.get(row.call)
        held_us = self.world.config.hold_for_ms * 1000
        if row.reason == "expired" and hold is not None and row.at - hold.at < held_us:
            raise Fault(f"call {row.call} has expired before its time")
        if row.reason == "lockpin_stopped" and row.call in self.deferred:
            raise Fault(f"call {row.call} waits for usage that comes later, and is charged as {row.reason}")
        self.model.resolve(
            row.call, row.at, row.usd or 0, row.tokens or 0, reason=row.reason, is_void=row.kind == "void"
        )
        self.check_bill(row.call)
        self.breaker.charged(self.model.calls[row.call].task, row.at, row.usd)
        owner = self.owners[row.call]
        if row.reason == "lockpin_stopped" and owner != row.writer and owner in self.alive_writers():
            raise Fault(f"call {row.call} is settled by another process, and its own lives")

    def hear_rule(self, at, told, *, is_gone):
        """A budget of the configuration came into force, or went out of it."""
        if is_gone:
            self.model.remove(told["name"])
        elif not told["own"]:
            known = self.world.known_rules[told["name"]]
            self.model.define(replace(known, usd=told["limit_nano"], tokens=told["limit_tokens"]), at)

    def defined_in_memory(self, rules):
        """The same of a ledger that writes no rows of it."""
        at = self.model.tick(self.world.ledger_us())
        for name in self.model.rules.keys() - {rule.name for rule in rules}:
            self.model.remove(name)
        for rule in rules:
            if rule.name != "task":
                self.model.define(rule, at)

    def alive_writers(self):
        return {proxy.ledger.writer_id for proxy in self.world.proxies.values()}

    def check_bill(self, call):
        """A call costs at least what the provider bills, and just that where Lockpin was told all of it."""
        hold, sent = self.model.calls.get(call), self.world.agents.sent.get(call)
        if hold is None or hold.charged is None or sent is None or sent.bill is None:
            return
        for place, unit in ((0, "nano"), (1, "tokens")):
            charged, billed = hold.charged[place], sent.bill[place]
            if charged < billed:
                raise Fault(f"OVERSHOOT: call {call} is billed {billed} {unit} and charged {charged} ({hold.reason})")
            if charged != billed and sent.is_told and hold.reason != "lockpin_stopped":
                raise Fault(
                    f"call {call} is billed {billed} {unit}, as was told, and charged {charged} ({hold.reason})"
                )

    def heard(self, call_id, answer):
        """An answer of the ledger's: what is short must be short by the model too."""
        if isinstance(answer, Held):
            self.check_held(answer.call, answer)
            return
        if isinstance(answer, Paused) and call_id is not None:
            task = self.asked_last[call_id].payers.task
            self.breaker.check_pause(call_id, task, us_of(answer.at), us_of(answer.until))
            self.heard_pausing.add(call_id)
            return
        if not isinstance(answer, Short) or call_id not in self.asked_last:
            return
        call = self.asked_last[call_id]
        near = is_near_cap(answer)
        if answer.behind:
            self.heard_last[call_id] = None
            return
        seen = {
            (s.budget.name, s.subject): (
                *(s.spent.nano, s.held.nano, s.spent_tokens, s.held_tokens),
                *(None if s.limit is None else s.limit.nano, s.limit_tokens),
            )
            for s in answer.standings
        }
        whole = (call.quote.most.nano, call.quote.tokens)
        if call.attempt.number > 1:
            freed = self.freed_by(*self.in_place_of[call_id]) if call_id in self.in_place_of else None
            self.model.judge_short(call_id, payers_of(call), *whole, self.world.ledger_us(), seen, freed=freed)
            return
        wants, floor = self.world.agents.wants[call_id], LOW_FLOOR if near else self.world.config.fit.floor
        least = traffic.least_of(wants, *whole, call.output_limit, floor, near=near)
        transient, lower_transient, has_room = self.model.judge_short(
            call_id, payers_of(call), *whole, self.world.ledger_us(), seen, least
        )
        needed = least if lower_transient and not transient else whole
        self.heard_last[call_id] = transient or lower_transient, seen, needed, has_room
        self.world.note("short", call_id, *whole, "transient" if transient else "final", least, has_room, seen)

    def freed_by(self, failed, outcome):
        """Say on which accounts how much comes free if a failed attempt ends at its cost."""
        hold, cost = self.model.calls[failed], (0, 0)
        if hold.charged is not None:
            return None
        if isinstance(outcome, Charge):
            outcome = outcome.within(Money(hold.held[0]), hold.held[1])
            cost = outcome.amount.nano, outcome.tokens
        return hold.accounts, (hold.held[0] - cost[0], hold.held[1] - cost[1])

    def check_held(self, call, answer):
        """A call that may go has its hold on the books, or no limit."""
        if answer.degraded:
            enforced = [s for s in answer.standings if s.budget.enforce]
            keys = self.model.accounts_of(*payers_of(call), self.model.now)
            if enforced or any(self.limited(key) for key in keys):
                raise Fault(f"OVERSHOOT: call {call.id} goes without a hold, and a limit is in force for it")
            return
        hold = self.model.calls.get(call.id)
        if hold is None:
            raise Fault(f"OVERSHOOT: call {call.id} may go, and its hold is not on the books")
        if hold.charged is None and hold.held != [call.quote.most.nano, call.quote.tokens]:
            raise Fault(f"OVERSHOOT: call {call.id} may go at {call.quote.most.nano} nano, {hold.held} is held for it")

    def limited(self, key):
        account = self.model.accounts[key]
        return account.rule.enforce and account.limits() != (None, None)

    def somebody_waits(self):
        if self.world.backend == "memory":
            return bool(self.world.ledger_in_memory._room._places)
        return self.reader.execute("SELECT count(*) FROM waiting").fetchone() != (0,)

    def check_room(self):
        """Nobody waits any more, and no call that has ended is held."""
        if self.somebody_waits():
            raise Fault("nobody waits, and a ticket is left")
        for hold in self.model.open_calls():
            if hold.call not in self.world.agents.lost:
                raise Fault(f"call {hold.call} has ended, and its hold is still there")

    def check_accounts(self):
        """The accounts are what the rows make."""
        for budget, subject, start, *stand, period in self.reader.execute(BOOKS).fetchall():
            day = None if start is None else start // (86_400 * 10**6)
            account = self.model.accounts.get((budget, subject, day))
            if account is None or period is not None:  # what has left a rolling one is taken off when it is asked
                continue
            made = [account.spent[0], account.held[0], account.spent[1], account.held[1]]
            if made != stand:
                raise Fault(f"account {budget} of {subject} is {stand}; its rows make {made}")

    def check_books(self):
        """The same at the end, and Lockpin's own proof."""
        self.check_accounts()
        verdict = verify(self.world.path)
        if verdict.wrong is not None:
            raise Fault(f"verify: {verdict.wrong}")

    def close(self):
        if self.reader is not None:
            self.reader.close()

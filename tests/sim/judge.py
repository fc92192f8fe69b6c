"""Reads every row as it is committed, hears every answer, knows the provider's bills, and asks the model of each."""

import json
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from lockpin_core.ledger.protocol import Held, Short
from lockpin_core.ledger.verify import verify
from tests.sim import traffic
from tests.sim.model import UNTOLD, Fault, Model

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROWS = (
    "SELECT id, at, kind, call, code, reason, usd, tokens, task, machine, model, data, writer FROM rows WHERE id > ? "
    "ORDER BY id"
)


def us_of(instant):
    """Give an instant in microseconds since 1970."""
    return (instant - EPOCH) // timedelta(microseconds=1)


class Judge:
    """Compares what the books and the answers say with what the model says."""

    def __init__(self, world, rules):
        self.world, self.model = world, Model(rules)
        self.asked_last, self.heard_last, self.owners, self.seen_row = {}, {}, {}, 0
        self.reader = None

    def asked(self, call, *, may_be_smaller):
        self.asked_last[call.id] = (call, may_be_smaller)

    def committed(self):
        """Read the rows that are on the books since."""
        self.model.last = []
        try:
            for row in self.new_rows():
                self.read(*row)
        except Fault as fault:
            self.world.fail(fault)

    def new_rows(self):
        if self.world.backend == "memory":
            ledger = self.world.ledger_in_memory
            rows, self.seen_row = ledger.rows[self.seen_row :], len(ledger.rows)
            for row in rows:
                call = self.asked_last.get(row.call)
                model, machine = (None, None) if call is None else (call[0].model, call[0].payers.machine)
                yield (
                    us_of(row.at),
                    row.kind,
                    row.call,
                    row.code,
                    UNTOLD,
                    row.usd,
                    row.tokens,
                    row.task,
                    machine,
                    model,
                    None,
                    "",
                )
            return
        if self.reader is None:
            self.reader = sqlite3.connect(self.world.path, isolation_level=None)
        for number, *row in self.reader.execute(ROWS, (self.seen_row,)).fetchall():
            self.seen_row = number
            yield row

    def read(self, at, kind, call, code, reason, usd, tokens, task, machine, model, data, writer):
        if at < self.model.now:
            raise Fault(f"a row goes back in time: {at} after {self.model.now}")
        self.model.now = at
        if kind != "refusal":
            self.world.note("row", kind, call or "", code or "", usd if usd is not None else "", reason or "")
        if kind == "hold":
            self.model.hold(call, at, task, machine, model, usd, tokens)
            self.owners[call] = writer
            self.world.counts["held"] += 1
        elif kind == "shrink":
            self.model.shrink(call, usd, tokens)
        elif kind in ("charge", "void"):
            is_void = kind == "void"
            self.model.resolve(call, at, usd or 0, tokens or 0, reason=reason, is_void=is_void)
            self.check_bill(call)
            owner = self.owners[call]
            if reason == "lockpin_stopped" and owner != writer and owner in self.alive_writers():
                raise Fault(f"call {call} is settled by another process, and its own lives")
        elif kind == "correction":
            self.world.counts["corrected"] += 1
            self.model.correct(call, at, usd, tokens)
        elif kind == "event" and code in ("budget_defined", "budget_removed") and data is not None:
            self.hear_rule(at, json.loads(data), is_gone=code == "budget_removed")

    def hear_rule(self, at, told, *, is_gone):
        """A budget of the configuration came into force, or went out of it."""
        if is_gone:
            self.model.remove(told["name"])
        elif not told["own"]:
            known = self.world.known_rules[told["name"]]
            self.model.define(replace(known, usd=told["limit_nano"], tokens=told["limit_tokens"]), at)

    def defined_in_memory(self, rules):
        """The same of a ledger that writes no rows of it."""
        at = self.model.tick(self.world.wall_us())
        for name in self.model.rules.keys() - {rule.name for rule in rules}:
            self.model.remove(name)
        for rule in rules:
            if rule.name != "task":
                self.model.define(rule, at)

    def alive_writers(self):
        return {proxy.ledger.writer_id for proxy in self.world.proxies.values()}

    def check_bill(self, call):
        """A call costs at least what the provider bills."""
        hold, sent = self.model.calls.get(call), self.world.agents.sent.get(call)
        if hold is None or hold.charged is None or sent is None or sent.bill is None:
            return
        if hold.charged[0] < sent.bill[0]:
            raise Fault(f"call {call} is billed {sent.bill[0]} nano and charged {hold.charged[0]} ({hold.reason})")

    def heard(self, call_id, answer):
        """An answer of the ledger's: what is short must be short by the model too."""
        if isinstance(answer, Held):
            self.check_held(answer.call, answer)
            return
        if not isinstance(answer, Short) or call_id not in self.asked_last:
            return
        call, _ = self.asked_last[call_id]
        if answer.behind:
            self.heard_last[call_id] = None
            return
        seen = {
            (s.budget.name, s.subject): (s.spent.nano, s.held.nano, s.spent_tokens, s.held_tokens)
            for s in answer.standings
        }
        quote = call.quote
        whole = (quote.most.nano, quote.tokens)
        least = traffic.least_of(
            self.world.agents.wants[call_id], *whole, call.output_limit, self.world.config.fit.floor
        )
        transient, lower_transient, has_room = self.model.judge_short(
            call_id, call.payers.task, call.payers.machine, call.model, *whole, self.world.wall_us(), seen, least
        )
        needed = least if lower_transient and not transient else whole
        self.heard_last[call_id] = transient or lower_transient, seen, needed, has_room
        self.world.note("short", call_id, *whole, "transient" if transient else "final", least, has_room, seen)

    def check_held(self, call, answer):
        """A call that may go has its hold on the books, or no limit."""
        if answer.degraded:
            enforced = [s for s in answer.standings if s.budget.enforce]
            keys = self.model.accounts_of(call.payers.task, call.payers.machine, call.model, self.model.now)
            if enforced or any(self.limited(key) for key in keys):
                raise Fault(f"call {call.id} goes without a hold, and a limit is in force for it")
            return
        hold = self.model.calls.get(call.id)
        if hold is None:
            raise Fault(f"call {call.id} may go, and its hold is not on the books")
        if hold.held != [call.quote.most.nano, call.quote.tokens]:
            raise Fault(f"call {call.id} may go at {call.quote.most.nano} nano, and {hold.held} is held for it")

    def limited(self, key):
        account = self.model.accounts[key]
        return account.rule.enforce and account.limits() != (None, None)

    def check_room(self):
        """Nobody waits any more."""
        if self.reader is not None and self.reader.execute("SELECT count(*) FROM waiting").fetchone() != (0,):
            raise Fault("nobody waits, and a ticket is left")

    def check_books(self):
        """The accounts are what the rows say: by the model's sums, and by Lockpin's own proof."""
        found = self.reader.execute(
            "SELECT budget, subject, window_start, spent_nano, held_nano, period_ms FROM accounts"
        )
        for budget, subject, start, spent, held, period in found.fetchall():
            if period is not None:
                continue
            day = None if start is None else start // (86_400 * 10**6)
            account = self.model.accounts.get((budget, subject, day))
            if account is not None and (account.spent[0], account.held[0]) != (spent, held):
                raise Fault(
                    f"account {budget} of {subject} is {spent}, {held}; its rows make {account.spent[0]}, {account.held[0]}"
                )
        verdict = verify(self.world.path)
        if verdict.wrong is not None:
            raise Fault(f"verify: {verdict.wrong}")

    def close(self):
        if self.reader is not None:
            self.reader.close()

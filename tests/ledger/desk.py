"""What the ledger's tests share: a clock to set, calls and budgets by amount, and a desk around each kind of ledger."""

import collections
import hashlib
import itertools
import json
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta

from lockpin_core.budgets import Budget
from lockpin_core.call import Call, Ceiling, Charge, Payers, Quote, Refusal, Share, Terms
from lockpin_core.errors import LedgerUnavailable
from lockpin_core.ledger.admin import SqliteAdmin
from lockpin_core.ledger.memory import MemoryLedger
from lockpin_core.ledger.protocol import CallNote, Rules
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.money import Money
from lockpin_core.usage import Unit
from lockpin_core.windows import Window

WAIT_S = 20
NOON = datetime(2026, 10, 21, 12, 0, tzinfo=UTC)
DAY, LIFETIME = Window("day"), Window("lifetime")
OWN = Budget("task", "task", LIFETIME, own=True, alert_at=("0.75", "0.95"))
CEILING = Ceiling(10, 10, frozenset({Unit.INPUT}), frozenset({Unit.OUTPUT}), {})


class SetClock:
    def __init__(self, now=NOON):
        self.now = now

    def __call__(self):
        return self.now

    def pass_by(self, **amount):
        self.now += timedelta(**amount)


def counted_ids(prefix="w"):
    numbers = itertools.count(1)
    return lambda: f"{prefix}{next(numbers):05}"


def money(dollars):
    return Money.parse(dollars)


def machine(dollars, *, name="daily", window=DAY, enforce=True, **more):
    limit = None if dollars is None else money(dollars)
    return Budget(name, "machine", window, limit, enforce=enforce, **more)


def rules(*budgets, own=OWN, breaker=None):
    return Rules(tuple(budgets), own, breaker)


def call(call_id, dollars, *, tokens=100, task="t", host="m", model="gpt-5.5", provider="openai", **payers):
    return Call(
        id=call_id,
        payers=Payers(task, host, **payers),
        provider=provider,
        host="api.openai.com",
        wire="openai_chat",
        model=model,
        asked_model=model,
        client="claude-cli/2.1.197",
        streamed=True,
        quote=Quote(money(dollars), tokens, CEILING),
        terms=Terms(),
        output_limit=4096,
        limit_set=True,
        billing="metered",
        price_date="2026-10-01",
        rates={"input": "1.25", "output": "10"},
        degrade=("output",),
        waited_ms=12,
    )


def charge(dollars, *, tokens=20, **more):
    usage = {Unit.INPUT: 5, Unit.CACHE_READ: 3, Unit.CACHE_WRITE_5M: 2, Unit.OUTPUT: 10}
    return Charge(money(dollars), usage, tokens, "gpt-5.5-2026-09-01", "default", **more)


def parted(dollars, other="dear-1", model="gpt-5.5"):
    """Give the shares of a `charge` whose output was another model's, and two thirds of its dollars, rounded down."""
    nano = money(dollars).nano
    theirs = 2 * nano // 3
    prompt = {Unit.INPUT: 5, Unit.CACHE_READ: 3, Unit.CACHE_WRITE_5M: 2}
    return (
        Share(model, prompt, Money(nano - theirs), 2, 4, 6, Terms("batch")),
        Share(other, {Unit.OUTPUT: 10}, Money(theirs)),
    )


def note(call_id, *, code="budget_exceeded", task="t", **more):
    return CallNote(call_id, Payers(task, "m"), "openai", "api.openai.com", "gpt-5.5", "curl/8", code, **more)


def refusal(code="budget_exceeded", **detail):
    return Refusal(code, 402, "lockpin: no", detail)


class MemoryDesk:
    def __init__(self):
        self.clock = SetClock()
        self.ledger = self.admin = MemoryLedger(clock=self.clock)

    def rows(self, kind):
        return [row for row in self.ledger.rows if row.kind == kind]

    def accounts(self):
        balances = {name: entry.balance for name, entry in self.ledger._accounts.items()}
        return {n: (b.spent_nano, b.held_nano, b.spent_tokens, b.held_tokens) for n, b in balances.items()}

    def explained(self):
        return explained((r.kind, r.call, r.usd, r.tokens, list(r.accounts), None, None) for r in self.ledger.rows)

    def tickets(self):
        """List (call, account's budget) of all who wait."""
        places = self.ledger._room._places.values()
        return [(p.waiter.call.id, a.split("\x1f")[0]) for p in places for a in p.waiter.ticket.short]

    def look_after(self):
        self.ledger.look_after()

    def crash(self):
        """A process without a file has nothing to find again; what it would do at its end is the same."""
        self.ledger.stop()

    def close(self):
        self.ledger.stop()


def look_after(ledger):
    """Have a writer do its round, after all that it was told before: a round may come ahead of what is queued."""
    with suppress(LedgerUnavailable):
        ledger.marks(b"").result(WAIT_S)
    ledger.look_after().result(WAIT_S)


class SqliteDesk:
    def __init__(self, folder, ids="w"):
        self.path = folder / "books" / "ledger.sqlite3"
        self.clock, self.new_id, self.faults = SetClock(), counted_ids(ids), []
        self.dead = []
        self.ledger = self.open()
        self.admin = SqliteAdmin(self.path, clock=self.clock, new_id=self.new_id)

    def open(self, **more):
        more.setdefault("fault", lambda code, reason: self.faults.append(code))
        return SqliteLedger(self.path, clock=self.clock, new_id=self.new_id, **more)

    def crash(self):
        """Leave everything as a kill would, and start anew."""
        dead, self.ledger = self.ledger, None
        dead._writer._liveness = None  # its thread is still there, and must not act
        dead._liveness.leave()
        self.ledger = self.open()
        self.look_after()
        self.dead.append(dead)

    def look_after(self):
        """Have the writer do its round now."""
        look_after(self.ledger)

    def query(self, sql, *values):
        with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)) as books:
            books.row_factory = sqlite3.Row
            return books.execute(sql, values).fetchall()

    def rows(self, kind):
        Row = collections.namedtuple("Row", "call code usd tokens count at reason")
        return [Row(*row) for row in self.query(f"SELECT {', '.join(Row._fields)} FROM rows WHERE kind = ?", kind)]

    def accounts(self):
        return {r[0]: tuple(r[1:]) for r in self.query(f"SELECT id, {NUMBERS} FROM accounts")}

    def tickets(self):
        rows = self.query("SELECT call, account FROM waiting WHERE short ORDER BY ticket, account")
        return [(call_id, account.split("\x1f")[0]) for call_id, account in rows]

    def explained(self):
        wanted = "kind, call, usd, tokens, accounts, code, data"
        rows = self.query(f"SELECT {wanted} FROM rows ORDER BY id")
        return explained((*r[:4], json.loads(r[4] or "[]"), r[5], r[6]) for r in rows)

    def chain_ends(self):
        """Recompute every chain and give each writer's last (seq, hash)."""
        ends = {}
        for row in map(dict, self.query("SELECT * FROM rows ORDER BY id")):
            seq, previous = ends.get(row["writer"], (0, bytes(32)))
            assert (row["seq"], row["prev"]) == (seq + 1, previous)
            digest = row["hash"]
            content = {k: v for k, v in row.items() if k not in ("id", "prev", "hash") and v is not None}
            text = json.dumps(content, sort_keys=True, separators=(",", ":"))
            assert digest == hashlib.sha256(previous + text.encode()).digest()
            ends[row["writer"]] = (row["seq"], digest)
        return ends

    def close(self):
        for ledger in (*self.dead, self.ledger):
            ledger.stop()


NUMBERS = "spent_nano, held_nano, spent_tokens, held_tokens"


def explained(rows):
    """Add the accounts up from the rows alone."""
    sums, holds = collections.defaultdict(lambda: [0, 0, 0, 0]), {}
    for kind, call_id, usd, tokens, accounts, code, data in rows:
        held = (usd, tokens) if kind == "hold" else (0, 0)
        spent = (0, 0) if kind == "hold" else (usd, tokens)
        if kind == "hold":
            holds[call_id] = held
        elif kind == "shrink":
            held, spent = (-usd, -tokens), (0, 0)
            holds[call_id] = (holds[call_id][0] - usd, holds[call_id][1] - tokens)
        elif kind in ("charge", "void"):
            held = tuple(-amount for amount in holds[call_id])
        elif code == "budget_reset" and data:
            told = json.loads(data)
            accounts, spent = [told["account"]], (-told["spent_nano"], -told["spent_tokens"])
        elif code in ("account_opened", "account_caught_up") and data:
            told = json.loads(data)
            accounts = [told["account"]]
            spent, held = (told["spent_nano"], told["spent_tokens"]), (told["held_nano"], told["held_tokens"])
        for account in accounts:
            for place, amount in enumerate((spent[0], held[0], spent[1], held[1])):
                sums[account][place] += amount
    return {name: tuple(numbers) for name, numbers in sums.items() if any(numbers)}


def nonzero(accounts):
    return {name: numbers for name, numbers in accounts.items() if any(numbers)}

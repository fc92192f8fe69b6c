"""A ledger in which everything has happened that rows can tell, and a forger who makes the chains anew, and what
follows from rows.
"""

import hashlib
import json
import sqlite3
from contextlib import closing, contextmanager
from datetime import timedelta

from lockpin_core.budgets import Budget
from lockpin_core.call import Payers, Void
from lockpin_core.keys import digest_of, facts_of
from lockpin_core.ledger.pauses import KEY, TASK, BreakerRule
from lockpin_core.ledger.totals import count_rows
from lockpin_core.windows import Window
from tests.ledger.desk import (
    LIFETIME,
    WAIT_S,
    call,
    charge,
    explained,
    machine,
    money,
    note,
    parted,
    refusal,
    rules,
)

DAILY, EVER = machine("3"), machine("90", name="ever", window=LIFETIME)
ROLLING = machine("40", name="rolling", window=Window("rolling", period_ms=24 * 3_600_000), limit_tokens=100_000)
COUNTED = Budget("counted", "task", Window("month"), money("1"))
LATE = machine("50", name="late", window=LIFETIME)
RULES = rules(DAILY, EVER, ROLLING, COUNTED)


def hold(desk, call_id, dollars, wanted=RULES, **more):
    return desk.ledger.hold(call(call_id, dollars, **more), wanted).result(WAIT_S)


def settle(desk, call_id, dollars, **more):
    return desk.ledger.settle(call_id, charge(dollars, **more)).result(WAIT_S)


def fill(desk):
    """Let everything happen: two days, many writers, two calls still open at the end, one of them deferred."""
    hold(desk, "c01", "0.3")
    settle(desk, "c01", "0.25", shares=parted("0.25"))
    hold(desk, "c02", "0.5", task="fix-login")
    desk.ledger.void("c02", Void("not_sent")).result(WAIT_S)
    desk.clock.pass_by(minutes=20)
    desk.admin.task_new("fix-login", limit=money("2"), window="day", who="ada")
    hold(desk, "c03", "0.9", task="fix-login", tags=(("team", "ä"),), key="k")
    settle(desk, "c03", "1.1", tokens=150)  # above its hold
    desk.ledger.refuse(note("c04", detail={"fits": 0}), refusal())
    desk.ledger.uncapped(note("c05", code="no_limit"))
    desk.admin.raise_budget(DAILY, "m", money("1"), who="ada")
    desk.admin.raise_budget(ROLLING, "m", money("1"), who="ada")
    desk.admin.task_new("fix-login", limit=money("3"), window="day", who="ada")
    hold(desk, "c06", "0.4")
    desk.ledger.defer("c06", timedelta(hours=30)).result(WAIT_S)
    hold(desk, "c07", "0.2")
    desk.ledger.stop()  # charges c07
    desk.ledger = desk.open()  # adopts c06
    desk.admin.budget_set(LATE, who="ada")  # opened with what was, c06 included
    hold(desk, "c08", "0")
    desk.clock.pass_by(days=1, minutes=1)
    hold(desk, "c09", "0.6", model="claude-opus-5", provider="anthropic")
    desk.ledger.shrink("c09", money("0.5"), 100).result(WAIT_S)
    settle(desk, "c09", "0.4", estimated=True, reason="stream_cut")
    desk.admin.correct("c09", money("0.35"), reason="by the invoice", who="ada")
    desk.admin.budget_rm("late", who="ada")
    hold(desk, "c10", "0.7")
    settle(desk, "c10", "0.1", priced=False)
    desk.admin.budget_set(LATE, who="ada")  # caught up
    desk.admin.reset_budget(ROLLING, "m", who="ada")
    desk.admin.reset_budget(EVER, "m", who="ada")
    desk.clock.pass_by(hours=8)
    desk.ledger.stop()
    desk.ledger = desk.open()  # c06 is over
    desk.admin.task_close("fix-login", who="ada")
    settle(desk, "c06", "0.05", shares=parted("0.05"))  # too late: a correction
    hold(desk, "c11", "0.25")
    hold(desk, "c12", "0.35")
    desk.ledger.defer("c12", timedelta(hours=1)).result(WAIT_S)
    desk.ledger.shrink("c11", money("0.5"), 60).result(WAIT_S)
    desk.ledger.shrink("c12", money("0.3"), 100).result(WAIT_S)
    desk.admin.raise_budget(ROLLING, "m", money("2"), who="ada")
    hold(desk, "c13", "0.15")
    settle(desk, "c13", "0.1")
    desk.admin.undo_raises(ROLLING, "m", who="ada")
    give_keys(desk)
    pause(desk)


def pause(desk):
    """Let a breaker trip and be reset, and stop two tasks, of which one goes on."""
    rule = BreakerRule(money("0.05"), timedelta(minutes=1), timedelta(minutes=5), (TASK, KEY))
    desk.admin.breaker_set(rule, who="ada")
    hold(desk, "c14", "0.06", key="k", user="ann@corp.com")
    settle(desk, "c14", "0.06")
    desk.admin.breaker_reset("key", "k", who="ada")
    desk.admin.breaker_clear(who="ada")
    for task in ("round", "about"):
        desk.ledger.stop_task(Payers(task, "m"), who="loop", data={"repeats": 20}).result(WAIT_S)
    desk.admin.task_resume("about", who="ada")
    desk.admin.breaker_set(rule, who="ada")


def give_keys(desk):
    """Make two keys, of which one gets other secrets, and the other is taken back."""
    facts = facts_of("Ann@corp.com", team="web", groups=["ml", "platform"], ring="ring1", project="é", tags=["env=ci"])
    desk.admin.key_create("k1", facts, digest_of("1"), lifetime=timedelta(days=30), who="ada")
    desk.admin.key_create("k2", facts_of("bob@corp.com", name="ci"), digest_of("2"), lifetime=None, who="ada")
    desk.admin.key_rotate("k1", digest_of("3"), grace=timedelta(hours=1), lifetime=timedelta(days=60), who="bob")
    desk.admin.key_revoke("k2", who="cy")


@contextmanager
def forging(path):
    """Change a ledger behind its back, without a check."""
    with closing(sqlite3.connect(path, isolation_level=None)) as books:
        books.execute("PRAGMA ignore_check_constraints = ON")
        yield books


def chain_anew(books):
    """Make every hash and every seq fit again, as somebody would who knows how; chain ends too."""
    cursor = books.execute("SELECT * FROM rows ORDER BY id")
    names = [column[0] for column in cursor.description]
    checkpoint = books.execute("SELECT state FROM checkpoint").fetchone()
    begun = {} if checkpoint is None else json.loads(checkpoint[0])["ends"]
    ends = {writer: (seq, bytes.fromhex(digest)) for writer, (seq, digest) in begun.items()}
    for values in cursor.fetchall():
        row = dict(zip(names, values, strict=True))
        seq, prev = ends.get(row["writer"], (0, bytes(32)))
        row["seq"] = seq + 1
        content = {k: v for k, v in row.items() if k not in ("id", "prev", "hash") and v is not None}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(prev + text.encode()).digest()
        books.execute("UPDATE rows SET seq = -id WHERE id = ?", (row["id"],))
        books.execute("UPDATE rows SET prev = ?, hash = ? WHERE id = ?", (prev, digest, row["id"]))
        ends[row["writer"]] = (seq + 1, digest)
        books.execute("UPDATE rows SET seq = ? WHERE id = ?", (seq + 1, row["id"]))
    known = json.dumps([*ends])
    books.execute("DELETE FROM writers WHERE id NOT IN (SELECT value FROM json_each(?))", (known,))
    books.executemany("UPDATE writers SET seq = ?, hash = ? WHERE id = ?", [(*end, w) for w, end in ends.items()])


def tables_anew(books):
    """Make balances (but of rolling accounts), tasks and totals fit rows again that say something else now."""
    rows = books.execute("SELECT kind, call, usd, tokens, accounts, code, data FROM rows ORDER BY id").fetchall()
    sums = explained((*row[:4], json.loads(row[4] or "[]"), *row[5:]) for row in rows)
    lines = [(*sums.get(name, (0, 0, 0, 0)), name) for (name,) in books.execute("SELECT id FROM accounts")]
    columns = "spent_nano = ?, held_nano = ?, spent_tokens = ?, held_tokens = ?"
    books.executemany(f"UPDATE accounts SET {columns} WHERE id = ? AND period_ms IS NULL", lines)
    books.execute("UPDATE tasks SET spent_nano = 0")
    books.execute(
        "INSERT INTO tasks (name, spent_nano) SELECT task, sum(usd) FROM rows "
        "WHERE kind IN ('charge', 'correction') GROUP BY task "
        "ON CONFLICT (name) DO UPDATE SET spent_nano = excluded.spent_nano"
    )
    books.execute("DELETE FROM totals")
    books.execute("DELETE FROM facets")
    count_rows(books)


def forge(path, *statements):
    """Change rows so that nothing but their sense can tell: chains fit, and so does what is kept beside the rows."""
    with forging(path) as books:
        for statement in statements:
            assert books.execute(statement).rowcount > 0, statement
        chain_anew(books)
        tables_anew(books)

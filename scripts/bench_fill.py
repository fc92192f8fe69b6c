"""Makes ledgers of many calls for the bench, by SQL alone: as readers and writers meet them, without a true chain."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from lockpin_core.clock import micros, new_id, utc_now
from lockpin_core.ledger.place import open_ledger
from lockpin_core.ledger.totals import COUNTS, FACETS, SLOT_US

DAYS = 30
_TASKS = 200
_MODELS = (
    *(("openai", "gpt-5.5"), ("openai", "gpt-5.5-mini"), ("anthropic", "claude-opus-4-5")),
    *(("anthropic", "claude-sonnet-4-5"), ("anthropic", "claude-haiku-4-5"), ("google", "gemini-3-pro")),
)
_CLIENTS = ("claude-cli/2.1", "codex/1.2", "OpenAI/Python 2.1")
_ACCOUNTS = r"""["task\u001ftask\u001fx\u001f","budget-01\u001fmachine\u001fm\u001f2026-11-29T00:00:00Z"]"""

# A task is worked on for some days, eight at a time; who calls what is drawn by a number that is the same every time.
_CALLS = """
CREATE TEMP TABLE calls AS
WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :calls),
drawn AS (SELECT n, :first + :span / :calls * n AS at, (n * 2654435761) % 4294967296 AS dice FROM numbers)
SELECT n, at, printf('fill%022d', n) AS call, m.provider, m.model, c.client,
  CASE WHEN :own_tasks THEN printf('task-%07d', n)
       ELSE printf('task-%03d', (n * :tasks / :calls + dice / 64 % 8) % :tasks) END AS task
FROM drawn JOIN models m ON m.place = dice / 1024 % (SELECT count(*) FROM models)
JOIN clients c ON c.place = dice / 65536 % (SELECT count(*) FROM clients) ORDER BY n"""
_BOTH = "task, machine, provider, host, model, client, billing"
_VALUES = "task, 'm', provider, 'api.example', model, client, 'metered'"
_HOLDS = f"""
INSERT INTO rows (id, writer, seq, prev, hash, at, kind, call, usd, tokens, accounts, wire, asked_model, rates,
  price_date, output_limit, limit_set, streamed, waited_ms, {_BOTH})
SELECT 2 * n + 1, 'fill', 2 * n + 1, zeroblob(32), randomblob(32), at, 'hold', call, 400000, 2800, :accounts,
  'openai_chat', model, '{{"input":"0.15","output":"0.6"}}', '2026-11-01', 300, 0, 0, 0, {_VALUES} FROM calls"""
_CHARGES = f"""
INSERT INTO rows (id, writer, seq, prev, hash, at, kind, call, held_at, usd, tokens, accounts, usage, input_tokens,
  cache_read_tokens, cache_write_tokens, output_tokens, model_served, estimated, failed, over_hold, priced, data,
  {_BOTH})
SELECT 2 * n + 2, 'fill', 2 * n + 2, zeroblob(32), randomblob(32), at + 1, 'charge', call, at, 150000 + n % 1000, 610,
  :accounts, '{{"input":410,"output":200}}', 410, 0, 0, 200, model, n % 50 = 0, 0, 0, 1,
  '{{"balances":[[1,2,3,4,5,6],[1,2,3,4,5,6]]}}', {_VALUES} FROM calls"""
_FACETS = f"""
INSERT INTO facets ({", ".join(f'"{name}"' for name in FACETS)})
SELECT DISTINCT {", ".join(f'''coalesce("{name}", '')''' for name in FACETS)} FROM rows"""
_SPENT = "sum(kind = 'charge')"
_TOTALS = f"""
INSERT INTO totals (facet, slot, {", ".join(COUNTS)})
SELECT f.id, coalesce(r.held_at, r.at) / {SLOT_US}, sum(r.kind = 'hold'), 0, 0, sum(coalesce(r.estimated, 0)), 0,
  410 * {_SPENT}, 0, 0, 200 * {_SPENT}, 610 * {_SPENT}, sum(iif(r.kind = 'charge', r.usd, 0)),
  sum(iif(coalesce(r.estimated, 0), r.usd, 0))
FROM rows r JOIN facets f ON f.task = r.task AND f.provider = r.provider AND f.model = r.model AND f.client = r.client
GROUP BY 1, 2"""


def fill(path: Path, calls: int, *, own_tasks: bool = False) -> None:
    """Make a ledger of so many calls, each held and charged, in the days up to now.

    `own_tasks`: every call is of a task of its own; else there are 200 tasks, 6 models and 3 clients.
    """
    with contextlib.closing(open_ledger(path, durability="normal", new_id=new_id)) as books:
        for setting in ("synchronous = OFF", "cache_size = -200000", "temp_store = MEMORY"):
            books.execute(f"PRAGMA {setting}")
        indexes = books.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'rows' AND sql IS NOT NULL"
        ).fetchall()
        for name, _ in indexes:  # made anew at the end, which is several times as fast
            books.execute(f"DROP INDEX {name}")
        books.execute("BEGIN")
        _insert(books, calls, own_tasks=own_tasks)
        for _, sql in indexes:
            books.execute(sql)
        books.execute("COMMIT")
        books.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _insert(books: sqlite3.Connection, calls: int, *, own_tasks: bool) -> None:
    books.execute("CREATE TEMP TABLE models (place INTEGER PRIMARY KEY, provider TEXT, model TEXT)")
    books.executemany("INSERT INTO models VALUES (?, ?, ?)", [(n, *names) for n, names in enumerate(_MODELS)])
    books.execute("CREATE TEMP TABLE clients (place INTEGER PRIMARY KEY, client TEXT)")
    books.executemany("INSERT INTO clients VALUES (?, ?)", enumerate(_CLIENTS))
    span_us = DAYS * 86_400 * 10**6
    told = {"calls": calls, "first": micros(utc_now()) - span_us, "span": span_us - 10**6}
    books.execute(_CALLS, told | {"own_tasks": int(own_tasks), "tasks": _TASKS})
    for statement in (_HOLDS, _CHARGES):
        books.execute(statement, {"accounts": _ACCOUNTS})
    books.execute(_FACETS)
    books.execute(_TOTALS)


def remove(path: Path) -> None:
    """Delete a ledger and what belongs to it."""
    for name in path.parent.glob(f"{path.name}*"):
        if name.is_file():
            name.unlink()

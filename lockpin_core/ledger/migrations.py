"""Brings a SQLite ledger of an earlier version to this one: forward only, in one transaction, after a backup.

Rows are never touched: what is new is derived from them. Knows every version's difference to the next.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from lockpin_core.errors import LedgerError
from lockpin_core.ledger import schema
from lockpin_core.ledger.totals import count_rows

_OURS_ONLY = 0o600
_ENDS = """
INSERT INTO writers (id, seq, hash, since)
SELECT writer, seq, hash, (SELECT min(at) FROM rows f WHERE f.writer = rows.writer) FROM rows
WHERE (writer, seq) IN (SELECT writer, max(seq) FROM rows GROUP BY writer)"""


def migrate(connection: sqlite3.Connection, path: Path, *, suffix: str) -> None:
    """Migrate the ledger behind a connection that may write; keep what it was beside it. Raises LedgerError."""
    before = schema.version_of(connection, str(path))
    if before == schema.VERSION:
        return
    copy = path.with_name(f"{path.name}.version-{before}-{suffix}")
    try:
        _back_up(connection, copy)
        connection.execute("BEGIN IMMEDIATE")
        # Another process may have done it meanwhile.
        for version in range(schema.version_of(connection, str(path)), schema.VERSION):
            _STEPS[version](connection)
        connection.execute(f"PRAGMA user_version = {schema.VERSION}")
        connection.execute("COMMIT")
    except (sqlite3.Error, OSError) as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise LedgerError(f"the ledger {path} cannot be brought to version {schema.VERSION}: {error}") from error


def _back_up(connection: sqlite3.Connection, copy: Path) -> None:
    os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _OURS_ONLY))
    with contextlib.closing(sqlite3.connect(copy)) as target:
        connection.backup(target)


def _from_1(connection: sqlite3.Connection) -> None:
    """Version 2 has rolling windows, budgets by command, chain ends, and totals beside the rows."""
    for statement in (
        "ALTER TABLE accounts ADD COLUMN period_ms INTEGER",
        "ALTER TABLE accounts ADD COLUMN counted_row INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE accounts ADD COLUMN reset_row INTEGER NOT NULL DEFAULT 0",
        "UPDATE accounts SET counted_row = coalesce((SELECT max(id) FROM rows), 0)",
        "ALTER TABLE open_holds ADD COLUMN expires_at INTEGER",
        "ALTER TABLE budgets ADD COLUMN source TEXT NOT NULL DEFAULT 'config'",
        "ALTER TABLE budgets ADD COLUMN removed_at INTEGER",
        *(schema.STEPS, schema.WRITERS, schema.FACETS, schema.TOTALS, schema.CHECKPOINT, *schema.INDEXES_2),
        _ENDS,
    ):
        connection.execute(statement)
    count_rows(connection)


def _from_2(connection: sqlite3.Connection) -> None:
    """Version 3 has the waiting room, and knows replies by their provider's id; the table for these was never used."""
    for statement in (schema.WAITING, "DROP TABLE upstream_ids", schema.UPSTREAM_IDS):
        connection.execute(statement)


def _from_3(connection: sqlite3.Connection) -> None:
    """Version 4 has keys, and tasks that are a user's."""
    for statement in ('ALTER TABLE tasks ADD COLUMN "user" TEXT', schema.KEYS, schema.KEY_DIGESTS, *schema.INDEXES_4):
        connection.execute(statement)


def _from_4(connection: sqlite3.Connection) -> None:
    """Version 5 has questions to people, pauses, and what is remembered of conversations and tasks; who waits for room
    may have to leave some.
    """
    connection.execute("DROP TABLE waiting")  # nobody waits while nobody runs
    tables = (schema.WAITING, schema.QUESTIONS, schema.ALLOWANCES, schema.PAUSES, schema.CONVERSATIONS, schema.PROFILES)
    for statement in (*tables, *schema.INDEXES_5):
        connection.execute(statement)
    for table in ("accounts", "steps"):
        if "allowed_nano" not in [line[1] for line in connection.execute(f"PRAGMA table_info({table})")]:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN allowed_nano INTEGER NOT NULL DEFAULT 0")


_STEPS = {1: _from_1, 2: _from_2, 3: _from_3, 4: _from_4}

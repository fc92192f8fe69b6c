"""The SQLite ledger's schema. Knows tables, columns and versions; knows no rules and no paths.

`rows` is the book: append-only, every payer fact on it. The other tables follow from it and change in the same
transaction. Instants are integer microseconds UTC, amounts integer nanodollars, lists and mappings canonical JSON.
"""

from __future__ import annotations

import sqlite3

from lockpin_core.errors import LedgerError

APPLICATION_ID = 0x4C504E31  # "LPN1": tells a ledger from any other SQLite file
VERSION = 5

_ROWS = """
CREATE TABLE rows (
  id INTEGER PRIMARY KEY,
  writer TEXT NOT NULL, seq INTEGER NOT NULL CHECK (seq > 0),
  prev BLOB NOT NULL CHECK (length(prev) = 32), hash BLOB NOT NULL CHECK (length(hash) = 32),
  at INTEGER NOT NULL,
  kind TEXT NOT NULL
    CHECK (kind IN ('hold', 'shrink', 'charge', 'void', 'correction', 'refusal', 'uncapped', 'event')),
  call TEXT, code TEXT, reason TEXT,
  usd INTEGER, tokens INTEGER, accounts TEXT,
  held_at INTEGER,
  task TEXT, "key" TEXT, "user" TEXT, team TEXT, "groups" TEXT, ring TEXT, project TEXT, tags TEXT, machine TEXT,
  provider TEXT, host TEXT, wire TEXT, model TEXT, asked_model TEXT, model_served TEXT, client TEXT, path TEXT,
  usage TEXT,
  input_tokens INTEGER, cache_read_tokens INTEGER, cache_write_tokens INTEGER, output_tokens INTEGER,
  rates TEXT, price_date TEXT, tier TEXT, billing TEXT,
  output_limit INTEGER, limit_set INTEGER, streamed INTEGER,
  estimated INTEGER, failed INTEGER, over_hold INTEGER, priced INTEGER,
  waited_ms INTEGER, degrade TEXT,
  "count" INTEGER CHECK ("count" > 0),
  data TEXT,
  UNIQUE (writer, seq)
) STRICT"""

_ACCOUNTS = """
CREATE TABLE accounts (
  id TEXT PRIMARY KEY,
  budget TEXT NOT NULL, scope TEXT NOT NULL, subject TEXT NOT NULL,
  window_start INTEGER, window_end INTEGER,
  spent_nano INTEGER NOT NULL DEFAULT 0, held_nano INTEGER NOT NULL DEFAULT 0 CHECK (held_nano >= 0),
  spent_tokens INTEGER NOT NULL DEFAULT 0, held_tokens INTEGER NOT NULL DEFAULT 0 CHECK (held_tokens >= 0),
  raised_nano INTEGER NOT NULL DEFAULT 0, raised_tokens INTEGER NOT NULL DEFAULT 0,
  alerted TEXT NOT NULL DEFAULT '[]',
  period_ms INTEGER, counted_row INTEGER NOT NULL DEFAULT 0, reset_row INTEGER NOT NULL DEFAULT 0,
  allowed_nano INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID"""

# What a rolling account's spent, raised and allowed are made of, by the instant at which each part leaves.
STEPS = """
CREATE TABLE steps (
  account TEXT NOT NULL, leaves_at INTEGER NOT NULL,
  spent_nano INTEGER NOT NULL, spent_tokens INTEGER NOT NULL, raised_nano INTEGER NOT NULL,
  allowed_nano INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (account, leaves_at)
) STRICT, WITHOUT ROWID"""

_OPEN_HOLDS = """
CREATE TABLE open_holds (
  call TEXT PRIMARY KEY,
  writer TEXT NOT NULL, at INTEGER NOT NULL,
  usd INTEGER NOT NULL CHECK (usd >= 0), tokens INTEGER NOT NULL CHECK (tokens >= 0),
  accounts TEXT NOT NULL, task TEXT NOT NULL,
  background INTEGER NOT NULL DEFAULT 0 CHECK (background IN (0, 1)),
  expires_at INTEGER
) STRICT, WITHOUT ROWID"""

# Replies by their provider's id. `tokens`: of the chain, NULL where not known; `at`: of the last change; `ceiling`: of
# a deferred call.
UPSTREAM_IDS = """
CREATE TABLE upstream_ids (
  provider TEXT NOT NULL, account_hash BLOB NOT NULL, id TEXT NOT NULL,
  call TEXT NOT NULL, tokens INTEGER, model TEXT, reasoning INTEGER NOT NULL DEFAULT 0,
  at INTEGER NOT NULL, ceiling TEXT,
  PRIMARY KEY (provider, account_hash, id)
) STRICT, WITHOUT ROWID"""

_TASKS = """
CREATE TABLE tasks (
  name TEXT PRIMARY KEY,
  "window" TEXT NOT NULL DEFAULT 'lifetime',
  limit_nano INTEGER CHECK (limit_nano >= 0), limit_tokens INTEGER CHECK (limit_tokens >= 0),
  closed INTEGER NOT NULL DEFAULT 0 CHECK (closed IN (0, 1)),
  created INTEGER,
  spent_nano INTEGER NOT NULL DEFAULT 0,
  "user" TEXT
) STRICT, WITHOUT ROWID"""

_BUDGETS = """
CREATE TABLE budgets (
  name TEXT PRIMARY KEY, definition TEXT NOT NULL, since INTEGER NOT NULL,
  source TEXT NOT NULL DEFAULT 'config', removed_at INTEGER
) STRICT, WITHOUT ROWID"""

# The end of each writer's chain, so that a tail that was cut off is missed; and whose definitions a proxy has.
WRITERS = """
CREATE TABLE writers (
  id TEXT PRIMARY KEY, seq INTEGER NOT NULL, hash BLOB NOT NULL CHECK (length(hash) = 32),
  since INTEGER NOT NULL, origin TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID"""

# Who called what with what: every payer fact and what budgets filter by; "" where a row has NULL.
FACETS = """
CREATE TABLE facets (
  id INTEGER PRIMARY KEY,
  task TEXT NOT NULL, "key" TEXT NOT NULL, "user" TEXT NOT NULL, team TEXT NOT NULL, "groups" TEXT NOT NULL,
  ring TEXT NOT NULL, project TEXT NOT NULL, tags TEXT NOT NULL, machine TEXT NOT NULL,
  provider TEXT NOT NULL, model TEXT NOT NULL, client TEXT NOT NULL,
  UNIQUE (task, "key", "user", team, "groups", ring, project, tags, machine, provider, model, client)
) STRICT"""

# Sums of rows by facet and by the quarter hour (since 1970) of the decision: time zones turn at quarter hours.
TOTALS = """
CREATE TABLE totals (
  facet INTEGER NOT NULL, slot INTEGER NOT NULL,
  calls INTEGER NOT NULL, refused INTEGER NOT NULL, uncapped INTEGER NOT NULL,
  estimated_calls INTEGER NOT NULL, unpriced_calls INTEGER NOT NULL,
  input_tokens INTEGER NOT NULL, cache_read_tokens INTEGER NOT NULL, cache_write_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL, tokens INTEGER NOT NULL,
  spent_nano INTEGER NOT NULL, estimated_nano INTEGER NOT NULL,
  PRIMARY KEY (facet, slot)
) STRICT, WITHOUT ROWID"""

# Where the rows before were taken out: the state of everything then, from which the rest can be verified.
CHECKPOINT = """
CREATE TABLE checkpoint (
  id INTEGER PRIMARY KEY CHECK (id = 1), rows_to INTEGER NOT NULL, state TEXT NOT NULL
) STRICT"""

# Who waits for held money to come free: a line for each account that a limit is enforced for, with whether it was short
# for the call. Working state, no book: it is in no chain, and goes with its writer.
WAITING = """
CREATE TABLE waiting (
  call TEXT NOT NULL, account TEXT NOT NULL,
  ticket INTEGER NOT NULL, writer TEXT NOT NULL, task TEXT NOT NULL,
  usd INTEGER NOT NULL CHECK (usd >= 0), tokens INTEGER NOT NULL CHECK (tokens >= 0),
  since INTEGER NOT NULL, protected_at INTEGER NOT NULL, until INTEGER NOT NULL,
  short INTEGER NOT NULL CHECK (short IN (0, 1)),
  reserve_usd INTEGER NOT NULL DEFAULT 0, reserve_tokens INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (call, account)
) STRICT, WITHOUT ROWID"""

# Whom keys stand for. Nothing here is secret: what a caller shows is known by its digest alone.
KEYS = """
CREATE TABLE keys (
  id TEXT PRIMARY KEY,
  name TEXT,
  "user" TEXT NOT NULL, team TEXT, "groups" TEXT, ring TEXT, project TEXT, tags TEXT,
  created INTEGER NOT NULL, expires INTEGER, revoked INTEGER, rotated INTEGER
) STRICT, WITHOUT ROWID"""

# The SHA-256 of each secret that a key has had; `until` NULL: it is good as long as its key.
KEY_DIGESTS = """
CREATE TABLE key_digests (
  digest BLOB PRIMARY KEY CHECK (length(digest) = 32),
  "key" TEXT NOT NULL, since INTEGER NOT NULL, until INTEGER
) STRICT, WITHOUT ROWID"""

# What a person is asked: about a call that does not fit its task's own budget, or about a loop. Working state; the
# question and its answer are events besides. `digest` is of the call and its task: the same call joins its question.
QUESTIONS = """
CREATE TABLE questions (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('approval', 'loop')),
  call TEXT NOT NULL, digest BLOB NOT NULL, task TEXT NOT NULL, "key" TEXT, "user" TEXT, model TEXT NOT NULL,
  asked INTEGER NOT NULL, until INTEGER NOT NULL,
  needed_nano INTEGER NOT NULL, short_nano INTEGER NOT NULL, choices TEXT NOT NULL, data TEXT NOT NULL,
  answer TEXT, answered INTEGER, who TEXT, used INTEGER
) STRICT, WITHOUT ROWID"""

# What "allow once" has added to a task's own limit for one call, until that call is resolved.
ALLOWANCES = """
CREATE TABLE allowances (
  call TEXT PRIMARY KEY, account TEXT NOT NULL, nano INTEGER NOT NULL CHECK (nano > 0), leaves_at INTEGER
) STRICT, WITHOUT ROWID"""

# Whose calls pause: "breaker" until an instant, for a task or a key; "loop" (a task) until a person lets it go on.
# A task's is for the calls of one user ("": of those without). A breaker's pause that is over stays for a day: from
# after its row on charges are counted anew.
PAUSES = """
CREATE TABLE pauses (
  kind TEXT NOT NULL CHECK (kind IN ('breaker', 'loop')),
  scope TEXT NOT NULL CHECK (scope IN ('task', 'key')), subject TEXT NOT NULL,
  "user" TEXT NOT NULL,
  since INTEGER NOT NULL, until INTEGER, since_row INTEGER NOT NULL, data TEXT NOT NULL,
  PRIMARY KEY (kind, scope, subject, "user")
) STRICT, WITHOUT ROWID"""

# What is remembered of a conversation, so that it is treated in one way from call to call; canonical JSON.
CONVERSATIONS = """
CREATE TABLE conversations (
  id BLOB PRIMARY KEY, at INTEGER NOT NULL, marks TEXT NOT NULL
) STRICT, WITHOUT ROWID"""

# What a task's first calls were like; canonical JSON.
PROFILES = """
CREATE TABLE profiles (
  task TEXT PRIMARY KEY, at INTEGER NOT NULL, profile TEXT NOT NULL
) STRICT, WITHOUT ROWID"""

_META = "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID"

_INDEXES = (
    # These two make the rules "one hold a call" and "one resolution a call" the database's own.
    "CREATE UNIQUE INDEX rows_hold ON rows (call) WHERE kind = 'hold'",
    "CREATE UNIQUE INDEX rows_resolution ON rows (call) WHERE kind IN ('charge', 'void')",
    "CREATE INDEX rows_other ON rows (call) WHERE kind IN ('shrink', 'correction', 'refusal', 'uncapped')",
    # With `id` and `usd` at its end, a task's last charges are read from the index alone.
    "CREATE INDEX rows_task ON rows (task, kind, at, id, usd)",
    "CREATE INDEX rows_at ON rows (at)",
    "CREATE INDEX accounts_budget ON accounts (budget, window_end)",
    "CREATE INDEX open_holds_writer ON open_holds (writer)",
)
INDEXES_2 = (
    "CREATE INDEX open_holds_expiry ON open_holds (expires_at) WHERE expires_at IS NOT NULL",
    "CREATE INDEX facets_machine ON facets (machine)",
)
ENDS = "kind IN ('charge', 'void', 'correction')"  # the index is found by these words
INDEXES_4 = (
    'CREATE INDEX key_digests_key ON key_digests ("key")',
    *(f'CREATE INDEX facets_{name} ON facets ("{name}")' for name in ("key", "user", "team", "ring", "project")),
    "CREATE INDEX accounts_subject ON accounts (scope, subject)",
    f'CREATE INDEX rows_user ON rows ("user", at) WHERE "user" IS NOT NULL AND {ENDS}',
)
INDEXES_5 = (
    "CREATE INDEX questions_digest ON questions (digest)",
    "CREATE INDEX questions_loop ON questions (task, until) WHERE kind = 'loop' AND answer IS NULL",
    "CREATE INDEX conversations_at ON conversations (at)",
    "CREATE INDEX pauses_until ON pauses (until) WHERE until IS NOT NULL",
    # In what calls depart from their task's first ones, for their receipts.
    "CREATE INDEX rows_drift ON rows (json_extract(data, '$.call')) WHERE kind = 'event' AND code = 'drift'",
    # A key's charges of the last while, read from the index alone.
    'CREATE INDEX rows_key_charge ON rows ("key", at, usd) WHERE "key" IS NOT NULL AND kind = \'charge\'',
)

STATEMENTS = (
    *(_ROWS, _ACCOUNTS, _OPEN_HOLDS, UPSTREAM_IDS, _TASKS, _BUDGETS, _META, *_INDEXES),
    *(STEPS, WRITERS, FACETS, TOTALS, CHECKPOINT, *INDEXES_2),
    WAITING,
    *(KEYS, KEY_DIGESTS, *INDEXES_4),
    *(QUESTIONS, ALLOWANCES, PAUSES, CONVERSATIONS, PROFILES, *INDEXES_5),
)


def create(connection: sqlite3.Connection) -> None:
    """Write the whole schema into an empty database, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in STATEMENTS:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def version_of(connection: sqlite3.Connection, path: str) -> int:
    """Give a ledger's version. Raises LedgerError unless this program can read it, or bring it to its own version."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise LedgerError(f"{path} is a database, but no Lockpin ledger; name another file as the ledger")
    if version > VERSION:
        raise LedgerError(f"{path} has ledger version {version}; this Lockpin knows up to {VERSION}: use a newer one")
    return int(version)

"""Replies by their provider's id: whose later usage is which call's, and how much a chain of replies holds.

A link is written with the row of its call, in one transaction. It is no book: no row tells it, and what is not known by
it is bounded or charged otherwise. Knows the SQL of `upstream_ids`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lockpin_core.call import Call, Ceiling, Quote, Terms
from lockpin_core.clock import instant
from lockpin_core.ledger.books import Books
from lockpin_core.ledger.chain import encode
from lockpin_core.ledger.corrections import EXPIRED
from lockpin_core.ledger.listing import payers_of
from lockpin_core.ledger.protocol import Deferred, Link
from lockpin_core.money import Money
from lockpin_core.usage import Unit

KEPT_US = 30 * 24 * 3600 * 10**6  # how long a link outlives its last change, once the ledger is pruned
SLICE = 2000  # links that go in one transaction
MOST_ID = 1024  # characters of an id; relays make long ones
MOST_TOKENS = 2**62

# An id that names two calls is a provider's mistake; then the later call is meant, and the larger chain.
_KEEP = """
INSERT INTO upstream_ids AS u (provider, account_hash, id, call, tokens, model, reasoning, at, ceiling)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (provider, account_hash, id) DO UPDATE SET
  tokens = CASE WHEN u.call = excluded.call
    THEN max(coalesce(u.tokens, excluded.tokens), coalesce(excluded.tokens, u.tokens))
    ELSE max(u.tokens, excluded.tokens) END,
  model = CASE WHEN u.model IS excluded.model THEN u.model END,
  reasoning = max(u.reasoning, excluded.reasoning),
  ceiling = CASE WHEN u.call = excluded.call THEN coalesce(excluded.ceiling, u.ceiling) ELSE excluded.ceiling END,
  call = excluded.call, at = excluded.at"""
_CHAIN = "SELECT tokens, reasoning, model FROM upstream_ids WHERE provider = ? AND account_hash = ? AND id = ?"
# The conditions on kinds are those of the partial indexes of `rows`, word by word.
_DEFERRED = f"""
SELECT h.*, u.ceiling, r.id IS NOT NULL AS resolved,
  coalesce(o.usd, r.usd) AS held_usd, coalesce(o.tokens, r.tokens) AS held_tokens
FROM upstream_ids u
JOIN rows h ON h.call = u.call AND h.kind = 'hold'
LEFT JOIN open_holds o ON o.call = u.call AND o.background = 1
LEFT JOIN rows r ON r.call = u.call AND r.kind IN ('charge', 'void') AND r.kind = 'charge' AND r.reason = '{EXPIRED}'
  AND NOT EXISTS (SELECT 1 FROM rows c WHERE c.call = u.call
    AND c.kind IN ('shrink', 'correction', 'refusal', 'uncapped') AND c.kind = 'correction')
WHERE u.provider = ? AND u.account_hash = ? AND u.id = ? AND (o.call IS NOT NULL OR r.id IS NOT NULL)"""
_OLD = (
    "SELECT provider, account_hash, id, at FROM upstream_ids WHERE (provider, account_hash, id) > (?, ?, ?) AND at < ? "
    "AND call NOT IN (SELECT call FROM open_holds) ORDER BY provider, account_hash, id LIMIT ?"
)
_FORGET = "DELETE FROM upstream_ids WHERE provider = ? AND account_hash = ? AND id = ? AND at = ?"


def keep(books: Books, call_id: str, link: Link | None, ceiling: Ceiling | None = None) -> None:
    """Remember a reply of a call, in the transaction of the call's row. `ceiling`: of a call that is deferred."""
    # What a provider calls its reply must never keep a charge from being written.
    if link is not None and _is_storable(link):
        ceiling_text = None if ceiling is None else encode(_plain(ceiling))
        values = (
            link.provider,
            link.account,
            link.id,
            call_id,
            link.tokens,
            link.model,
            link.reasoning,
            books.at,
            ceiling_text,
        )
        books.connection.execute(_KEEP, values)


def chain(books: Books, link: Link) -> Link | None:
    """Give what a call brings in which names this reply; None: not known."""
    if not _is_storable(link):
        return None
    found = books.connection.execute(_CHAIN, (link.provider, link.account, link.id)).fetchone()
    if found is None or found[0] is None:
        return None
    return replace(link, tokens=found[0], reasoning=found[1], model=found[2])


def deferred(books: Books, link: Link) -> Deferred | None:
    """Find the call that waits for usage under this reply's id; None: there is none."""
    if not _is_storable(link):
        return None
    books.write()
    cursor = books.connection.cursor()
    cursor.row_factory = sqlite3.Row
    row = cursor.execute(_DEFERRED, (link.provider, link.account, link.id)).fetchone()
    return None if row is None else Deferred(_call_of(row), instant(row["at"]), bool(row["resolved"]))


def forget_old(connection: sqlite3.Connection, before: int) -> int:
    """Drop links that were last changed before an instant, unless their call is open; give their number.

    They are found outside of transactions, and go a slice at a time, so that running proxies hardly wait.
    """
    last, count = ("", b"", ""), 0
    while old := connection.execute(_OLD, (*last, before, SLICE)).fetchall():
        connection.execute("BEGIN IMMEDIATE")
        count += connection.executemany(_FORGET, old).rowcount
        connection.execute("COMMIT")
        last = old[-1][:3]
    return count


class MemoryLinks:
    """The same links in a dict."""

    def __init__(self) -> None:
        self._links: dict[tuple[str, bytes, str], tuple[str, int | None, int, str | None]] = {}

    def keep(self, call_id: str, link: Link | None) -> None:
        """Remember a reply of a call."""
        if link is None or not _is_storable(link):
            return
        key = (link.provider, link.account, link.id)
        before, known, reasoning, model = self._links.get(key, (call_id, link.tokens, 0, link.model))
        # Of one call what is known stays; of two, what is not known of one is not known.
        tokens = [count for count in (known, link.tokens) if count is not None]
        is_known = len(tokens) == 2 or (len(tokens) == 1 and before == call_id)
        own = link.model if model == link.model else None
        self._links[key] = call_id, max(tokens) if is_known else None, max(reasoning, link.reasoning), own

    def chain(self, link: Link) -> Link | None:
        """See `chain`."""
        key = (link.provider, link.account, link.id)
        _, tokens, reasoning, model = self._links.get(key, ("", None, 0, None))
        return None if tokens is None else replace(link, tokens=tokens, reasoning=reasoning, model=model)

    def call_of(self, link: Link) -> str:
        """Give the call whose reply it is; "": not known."""
        return self._links.get((link.provider, link.account, link.id), ("", None, 0, None))[0]


def _is_storable(link: Link) -> bool:
    counts = (link.tokens or 0, link.reasoning)
    return 0 < len(link.id) <= MOST_ID and link.id.isascii() and all(0 <= count <= MOST_TOKENS for count in counts)


def _plain(ceiling: Ceiling) -> dict[str, object]:
    return {
        "prompt": ceiling.prompt, "output": ceiling.output, "prompt_units": sorted(ceiling.prompt_units),
        "output_units": sorted(ceiling.output_units), "fees": dict(ceiling.fees), "requests": ceiling.requests,
        "name_sum": f"{ceiling.name_sum:x}",
        "left_out": ceiling.left_out, "rest": ceiling.rest,
    }  # fmt: skip


def _ceiling_of(text: str | None, tokens: int) -> Ceiling:
    """Read a ceiling; where none was told, neither side has more tokens than the whole quote."""
    if text is None:
        return Ceiling(tokens, tokens, frozenset({Unit.INPUT}), frozenset({Unit.OUTPUT}), {})
    told: Mapping[str, Any] = json.loads(text)
    prompt, output = (frozenset(map(Unit, told[name])) for name in ("prompt_units", "output_units"))
    fees = {Unit(unit): count for unit, count in told["fees"].items()}
    requests, name_sum = told.get("requests", 1), int(told.get("name_sum", "0"), 16)
    kept = told.get("left_out", 0), told.get("rest")
    return Ceiling(told["prompt"], told["output"], prompt, output, fees, requests, name_sum, *kept)


def _call_of(row: sqlite3.Row) -> Call:
    """Make a call again from its hold's row and what is held of it now."""
    told = json.loads(row["data"] or "{}")
    tokens = row["held_tokens"]
    return Call(
        id=row["call"], payers=payers_of(row), provider=row["provider"], host=row["host"], wire=row["wire"],
        model=row["model"], asked_model=row["asked_model"], client=row["client"], streamed=bool(row["streamed"]),
        quote=Quote(Money(row["held_usd"]), tokens, _ceiling_of(row["ceiling"], tokens)),
        terms=Terms(row["tier"], told.get("speed"), told.get("geo")), output_limit=row["output_limit"],
        limit_set=bool(row["limit_set"]), billing=row["billing"], price_date=row["price_date"],
        rates=json.loads(row["rates"]), degrade=tuple(json.loads(row["degrade"] or "[]")),
        waited_ms=row["waited_ms"] or 0,
    )  # fmt: skip

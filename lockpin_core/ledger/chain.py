"""Rows of the book and the hash chain through them. Knows columns and hashing; knows no rules and no balances.

A row's hash is SHA-256 over the previous row's hash and the canonical JSON of its content: an object of every column
that is not NULL, `id`, `prev` and `hash` apart, keys sorted, no spaces, ASCII. Each writer has its own chain: `seq`
counts from 1 without gaps, and the first `prev` is 32 zero bytes. A column added later is NULL in older rows, so their
hashes stay.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lockpin_core.ledger.backlog import Backlog

ZERO_HASH = bytes(32)
CALL_KINDS = ("hold", "charge", "void", "refusal", "uncapped")

_PAYERS = ("task", "key", "user", "team", "groups", "ring", "project", "tags", "machine")
_WHAT = ("provider", "host", "model", "client", "billing")
_ALWAYS = ("writer", "seq", "at", "kind")
_RESOLUTION = ("call", "reason", "held_at", "usd", "tokens", "accounts", "failed", "data", *_PAYERS, *_WHAT)

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "hold": (
        *("call", "usd", "tokens", "accounts", "wire", "asked_model", "rates", "price_date", "tier", "output_limit"),
        *("limit_set", "streamed", "waited_ms", "degrade", "data", *_PAYERS, *_WHAT),
    ),
    "shrink": ("call", "usd", "tokens", "accounts", "held_at", *_PAYERS, *_WHAT),
    "charge": (
        *("usage", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "model_served"),
        *("tier", "estimated", "over_hold", "priced", *_RESOLUTION),
    ),
    "void": _RESOLUTION,
    "refusal": ("call", "code", "wire", "path", "streamed", "waited_ms", "count", "data", *_PAYERS, *_WHAT),
    "uncapped": ("call", "code", "wire", "path", "streamed", "data", *_PAYERS, *_WHAT),
    "correction": (
        *("code", "usage", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens"),
        *("model_served", *_RESOLUTION),
    ),
    "event": ("code", "task", "data"),
}

type NoteEvent = Callable[[str, Mapping[str, object]], None]  # writes the row of an event: its code and data

_encode_canonical = json.JSONEncoder(separators=(",", ":")).encode  # of what is in canonical order already
encode = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode

# All columns of all kinds in canonical order, so that rows of different kinds go into one statement.
_ORDERED = tuple(sorted({*_ALWAYS, *(name for columns in COLUMNS.values() for name in columns)}))
_NAMES = ", ".join(f'"{name}"' for name in (*_ORDERED, "prev", "hash"))
_MARKS = f"({', '.join('?' * (len(_ORDERED) + 2))})"


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a writer's chain."""

    seq: int = 0
    hash: bytes = ZERO_HASH


class Chain:
    """Appends one writer's rows. `head` may be set back when a transaction did not happen."""

    def __init__(self, backlog: Backlog, writer: str) -> None:
        self.writer = writer
        self.head = Head()
        self._backlog = backlog

    def append(self, kind: str, at: int, row: dict[str, object]) -> bytes:
        """Add one row to what will be written and give its hash. What `row` leaves out is NULL."""
        seq, previous = self.head.seq + 1, self.head.hash
        row["kind"], row["at"], row["writer"], row["seq"] = kind, at, self.writer, seq
        values = list(map(row.get, _ORDERED))
        digest = row_hash(previous, _ORDERED, values)
        values += (previous, digest)
        self._backlog.add_row(_NAMES, _MARKS, values)
        self.head = Head(seq, digest)
        return digest


def row_hash(previous: bytes, columns: tuple[str, ...], values: list[object]) -> bytes:
    """Hash a row's content, given in the order of its sorted column names."""
    content = {name: value for name, value in zip(columns, values, strict=True) if value is not None}
    return hashlib.sha256(previous + _encode_canonical(content).encode()).digest()

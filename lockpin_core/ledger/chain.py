"""Rows of the book and the hash chain through them. Knows columns and hashing; knows no rules and no balances.

A row's hash is SHA-256 over the previous row's hash and the canonical JSON of its content: an object of every column
that is not NULL, `id`, `prev` and `hash` apart, keys sorted, no spaces, ASCII. Each writer has its own chain: `seq`
counts from 1 without gaps, and the first `prev` is 32 zero bytes. A column added later is NULL in older rows, so their
hashes stay.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

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
    "charge": (
        *("usage", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "model_served"),
        *("tier", "estimated", "over_hold", "priced", *_RESOLUTION),
    ),
    "void": _RESOLUTION,
    "refusal": ("call", "code", "wire", "path", "streamed", "count", "data", *_PAYERS, *_WHAT),
    "uncapped": ("call", "code", "wire", "path", "streamed", "data", *_PAYERS, *_WHAT),
    "event": ("code", "task", "data"),
}

_encode_canonical = json.JSONEncoder(separators=(",", ":")).encode  # of what is in canonical order already
encode = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode


@dataclass(frozen=True, slots=True)
class _Shape:
    """A kind's columns in canonical order and the statement that inserts them."""

    columns: tuple[str, ...]
    insert: str


def _shape(columns: tuple[str, ...]) -> _Shape:
    ordered = tuple(sorted((*columns, *_ALWAYS)))
    names = ", ".join(f'"{name}"' for name in (*ordered, "prev", "hash"))
    marks = ", ".join("?" * (len(ordered) + 2))
    return _Shape(ordered, f"INSERT INTO rows ({names}) VALUES ({marks})")


_SHAPES = {kind: _shape(columns) for kind, columns in COLUMNS.items()}


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a writer's chain."""

    seq: int = 0
    hash: bytes = ZERO_HASH


class Chain:
    """Appends one writer's rows. `head` may be set back when a transaction did not happen."""

    def __init__(self, connection: sqlite3.Connection, writer: str) -> None:
        self.writer = writer
        self.head = Head()
        self._connection = connection

    def append(self, kind: str, at: int, row: dict[str, object]) -> bytes:
        """Write one row and give its hash. `row` names columns of its kind; what it leaves out is NULL."""
        shape, seq = _SHAPES[kind], self.head.seq + 1
        row |= {"kind": kind, "at": at, "writer": self.writer, "seq": seq}
        values = [row.get(name) for name in shape.columns]
        digest = row_hash(self.head.hash, shape.columns, values)
        self._connection.execute(shape.insert, (*values, self.head.hash, digest))
        self.head = Head(seq, digest)
        return digest


def row_hash(previous: bytes, columns: tuple[str, ...], values: list[object]) -> bytes:
    """Hash a row's content, given in the order of its sorted column names."""
    content = {name: value for name, value in zip(columns, values, strict=True) if value is not None}
    return hashlib.sha256(previous + _encode_canonical(content).encode()).digest()

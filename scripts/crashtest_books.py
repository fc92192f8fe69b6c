"""What must be true of a ledger's file whatever befell its processes: adds the books up from their rows alone.

Reads the file as anyone could, read-only and in snapshots, beside the processes that write it. Knows the meaning of
rows; shares no code with the ledger.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lockpin_core.ledger.verify import verify

_NEW_ROWS = "SELECT id, kind, call, usd, tokens, accounts, code, data FROM rows WHERE id > ? ORDER BY id"
_ACCOUNTS = "SELECT id, spent_nano, held_nano, spent_tokens, held_tokens FROM accounts"
_HOLDS_NOT_RESOLVED_ONCE = """
SELECT h.call FROM rows h WHERE h.kind = 'hold'
  AND (SELECT count(*) FROM rows r WHERE r.call = h.call AND r.kind IN ('charge', 'void')) != 1"""

type Numbers = tuple[int, int, int, int]  # spent and held, in dollars and in tokens


class Broken(AssertionError):
    """Something that must always be true is not."""


def need(true: object, what: str) -> None:
    """Raise Broken with a sentence unless it is true."""
    if not true:
        raise Broken(what)


def until[T](condition: Callable[[], T], what: str, patience_s: float = 30) -> T:
    """Wait until a condition is true and give its value. Raises Broken with what was waited for."""
    end_s = time.monotonic() + patience_s
    while not (value := condition()):
        need(time.monotonic() < end_s, f"waited {patience_s:g} s in vain: {what}")
        time.sleep(0.005)
    return value


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a ledger beside its writers, read-only."""
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)) as books:
        books.row_factory = sqlite3.Row
        books.execute("PRAGMA busy_timeout = 10000")
        yield books


def query(path: Path, sql: str, *values: object) -> list[sqlite3.Row]:
    """Ask one question."""
    with reading(path) as books:
        return books.execute(sql, values).fetchall()


@dataclass
class Tally:
    """The accounts, added up row by row; `limits`: nanodollars by budget, which no hold may pass."""

    limits: Mapping[str, int] = field(default_factory=dict)
    last: int = 0
    sums: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0, 0, 0]))
    opened: dict[str, tuple[int, int]] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    samples: int = 0

    def sample(self, books: sqlite3.Connection) -> None:
        """Read one snapshot: what is new, and whether every account is the sum of its rows. Raises Broken."""
        books.execute("BEGIN")
        try:
            rows = books.execute(_NEW_ROWS, (self.last,)).fetchall()
            accounts = {row[0]: tuple(row)[1:] for row in books.execute(_ACCOUNTS)}
        finally:
            books.execute("COMMIT")
        for row in rows:
            need(row["id"] == self.last + 1, f"row {self.last + 1} is missing")
            self._add(row)
            self.last = row["id"]
        told = {name: numbers for name, numbers in accounts.items() if any(numbers)}
        sums = {name: tuple(numbers) for name, numbers in self.sums.items() if any(numbers)}
        wrong = [name for name in told.keys() | sums.keys() if told.get(name) != sums.get(name)]
        if wrong:
            raise Broken(f"at row {self.last}: {_shown(wrong, told, sums)}")
        self.samples += 1

    def _add(self, row: sqlite3.Row) -> None:
        kind, amount = row["kind"], (row["usd"] or 0, row["tokens"] or 0)
        self.kinds[kind] += 1
        accounts = json.loads(row["accounts"] or "[]")
        if kind == "hold":
            self.opened[row["call"]] = amount
            self._put(accounts, (0, 0), amount)
            self._judge(row, accounts)
        elif kind == "shrink":
            held = self.opened[row["call"]]
            self.opened[row["call"]] = (held[0] - amount[0], held[1] - amount[1])
            self._put(accounts, (0, 0), (-amount[0], -amount[1]))
        elif kind in ("charge", "void"):
            need(row["call"] in self.opened, f"row {row['id']} resolves {row['call']}, which has no open hold")
            held = self.opened.pop(row["call"])
            self._put(accounts, amount, (-held[0], -held[1]))
        elif kind == "correction":
            self._put(accounts, amount, (0, 0))
        elif row["code"] in ("account_opened", "account_caught_up"):
            told = json.loads(row["data"])
            spent, held = (told["spent_nano"], told["spent_tokens"]), (told["held_nano"], told["held_tokens"])
            self._put([told["account"]], spent, held)

    def _put(self, accounts: list[str], spent: tuple[int, int], held: tuple[int, int]) -> None:
        for account in accounts:
            sums = self.sums[account]
            for place, amount in enumerate((spent[0], held[0], spent[1], held[1])):
                sums[place] += amount

    def _judge(self, row: sqlite3.Row, accounts: list[str]) -> None:
        for account in accounts:
            limit = self.limits.get(account.split("\x1f")[0])
            spent, held = self.sums[account][:2]
            passed = limit is not None and row["usd"] and spent + held > limit
            need(not passed, f"row {row['id']}: {_named(account)} has {spent} spent and {held} held, of {limit}")


def check(path: Path, limits: Mapping[str, int]) -> Tally:
    """Check a ledger at rest: every hold resolved once, accounts, limits, chains. Raises Broken; gives its sums."""
    tally = Tally(limits)
    with reading(path) as books:
        tally.sample(books)
        loose = [row["call"] for row in books.execute(_HOLDS_NOT_RESOLVED_ONCE)]
        left = books.execute("SELECT call FROM open_holds").fetchall()
    need(not loose, f"{len(loose)} holds were not resolved once, first {loose[:1]}")
    need(not left and not tally.opened, f"{len(left)} holds are open still")
    check_by_verify(path)
    return tally


def check_by_verify(path: Path) -> None:
    """Let the ledger's own proof read it. Raises Broken."""
    verdict = verify(path)
    wrong = verdict.wrong
    need(wrong is None, f"verify says: {wrong.words if wrong is not None else ''}")
    need(not verdict.warnings, f"verify warns: {verdict.warnings}")


def spent_of(tally: Tally, budget: str) -> dict[str, int]:
    """Give what each subject of a budget has spent, its windows together."""
    spent: Counter[str] = Counter()
    for account, numbers in tally.sums.items():
        name, _, subject, _ = account.split("\x1f")
        if name == budget:
            spent[subject] += numbers[0]
    return dict(spent)


def _shown(wrong: list[str], told: Mapping[str, object], sums: Mapping[str, object]) -> str:
    first = min(wrong)
    return (
        f"{_named(first)} is {told.get(first)}, and its rows sum up to {sums.get(first)} ({len(wrong)} such accounts)"
    )


def _named(account: str) -> str:
    return "account " + " ".join(account.split("\x1f")).strip()

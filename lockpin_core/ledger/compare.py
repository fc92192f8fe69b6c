"""Compares the tables that follow from a ledger's rows with what the rows say. Knows SQL; changes nothing.

What is told once and what rows do not say is not compared: which alert steps were told, who has which configuration,
the providers' own ids of calls. What rows that were taken out have said is compared with what the row says that stands
for them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockpin_core.ledger.accounts import Balance, Step
from lockpin_core.ledger.allowances import Allowance
from lockpin_core.ledger.chain import encode
from lockpin_core.ledger.definitions import definition_of
from lockpin_core.ledger.key_states import COLUMNS as KEY_COLUMNS
from lockpin_core.ledger.pauses import Subject, rule_terms
from lockpin_core.ledger.replay import Replay
from lockpin_core.ledger.shares import BETWEEN, MOVED
from lockpin_core.ledger.tally import Name, Tally, shown
from lockpin_core.ledger.totals import COUNTS, FACETS, SLOT_US
from lockpin_core.money import Money

_NUMBERS = ("spent_nano", "held_nano", "spent_tokens", "held_tokens", "raised_nano", "raised_tokens", "allowed_nano")
_NAMES = ("budget", "scope", "subject", "window_start", "window_end", "period_ms")
_OPEN = ("writer", "at", "usd", "tokens", "task", "background", "expires_at")
_TASK = ("window", "limit_nano", "limit_tokens", "closed", "created", "spent_nano", "user")
_BUDGET = ("definition", "since", "source", "removed_at")
_ITS_LAST = "SELECT max(id) FROM rows WHERE writer = CAST(? AS TEXT)"
_READ_PAUSES = 'SELECT kind, scope, subject, "user", since, until, since_row, data FROM pauses ORDER BY 1, 2, 3, 4'
_SLOTS_OF_DAY = 24 * 3600 * 10**6 // SLOT_US
_NO_STEP = (0, 0, 0, 0)
_DOLLARS = ("usd", "spent_nano", "held_nano", "raised_nano", "allowed_nano", "limit_nano", "estimated_nano")

# Sums over the rows, from their columns alone. `estimate_nano`: a correction takes back the estimate that stood there.
_SPENDS = "CASE WHEN kind IN ('charge', 'correction') THEN {} ELSE 0 END"
_TAKEN = "(kind = 'correction' AND json_extract(data, '$.estimate_nano') IS NOT NULL)"
_COUNTED = {
    "calls": "kind = 'hold'",
    "refused": "CASE WHEN kind = 'refusal' THEN coalesce(\"count\", 1) ELSE 0 END",
    "uncapped": "kind = 'uncapped'",
    "estimated_calls": f"{_SPENDS.format('coalesce(estimated, 0)')} - coalesce({_TAKEN}, 0)",
    "unpriced_calls": _SPENDS.format("coalesce(priced = 0, 0)"),
    **{
        name: _SPENDS.format(f"coalesce({name}, 0)")
        for name in ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "tokens")
    },
    "spent_nano": _SPENDS.format("usd"),
    "estimated_nano": f"{_SPENDS.format('CASE WHEN estimated THEN usd ELSE 0 END')} - "
    f"CASE WHEN {_TAKEN} THEN json_extract(data, '$.estimate_nano') ELSE 0 END",
}
_KEY = (*FACETS, "slot")
_OTHER = f"rows.model || iif(sign > 0, '{BETWEEN}' || json_extract(share.value, '$.model'), '')"
_GROUPS = ", ".join(str(place + 1) for place in range(len(_KEY)))
_FACETS_OF_ROW = ", ".join(f'''coalesce("{name}", '') AS "{name}"''' for name in FACETS)
_OWN = (
    f"SELECT {_FACETS_OF_ROW}, coalesce(held_at, at) / {SLOT_US} AS slot, "
    f"{', '.join(f'sum({_COUNTED[name]}) AS {name}' for name in COUNTS)} "
    f"FROM rows WHERE kind <> 'event' AND {{}} GROUP BY {_GROUPS}"
)
# Shares of other models than was called are theirs: taken off the one, and put to the other.
_MOVED = {name: f"coalesce(json_extract(share.value, '$.{name}'), 0)" for name in MOVED}
_MOVED |= {"spent_nano": "json_extract(share.value, '$.usd')"}
_OTHERS = (
    f"SELECT {', '.join(_OTHER if name == 'model' else f'''coalesce(rows."{name}", '')''' for name in FACETS)}, "
    f"held_at / {SLOT_US}, {', '.join(f'sign * {_MOVED[name]}' if name in _MOVED else '0' for name in COUNTS)} "
    "FROM rows CROSS JOIN json_each(rows.data, '$.shares') share CROSS JOIN (SELECT 1 AS sign UNION ALL SELECT -1) "
    "WHERE rows.kind IN ('charge', 'correction') AND instr(rows.data, '\"shares\"') "
    "AND json_extract(share.value, '$.model') <> rows.model AND {}"
)
_FROM_ROWS_WHERE = (
    f"SELECT {', '.join(f'"{name}"' for name in _KEY)}, {', '.join(f'sum({name}) AS {name}' for name in COUNTS)} "
    f"FROM ({_OWN} UNION ALL {_OTHERS}) GROUP BY {_GROUPS} "
    f"HAVING {' OR '.join(f'sum({name}) <> 0' for name in COUNTS)}"
)
_FROM_ROWS = _FROM_ROWS_WHERE.format("TRUE", "TRUE")
_OF_ROWS = _FROM_ROWS_WHERE.format("id > ?1 AND id <= ?2", "rows.id > ?1 AND rows.id <= ?2")
_FROM_TABLE = (
    f"SELECT {', '.join(f'f."{name}"' for name in FACETS)}, t.slot, {', '.join(f't.{name}' for name in COUNTS)} "
    f"FROM totals t LEFT JOIN facets f ON f.id = t.facet WHERE {' OR '.join(f't.{name} <> 0' for name in COUNTS)}"
)
# What the totals have beside the rows that are there: the sums of those that were taken out, by quarter hour.
_TAKEN_OUT = (
    f"SELECT * FROM (SELECT {', '.join(f'"{name}"' for name in _KEY)}, "
    f"{', '.join(f'sum({name}) AS {name}' for name in COUNTS)} FROM (SELECT * FROM ({_FROM_TABLE}) UNION ALL "
    f"SELECT {', '.join(f'"{name}"' for name in _KEY)}, {', '.join(f'-{name}' for name in COUNTS)} "
    f"FROM ({_FROM_ROWS})) GROUP BY {_GROUPS}) WHERE {' OR '.join(f'{name} <> 0' for name in COUNTS)} "
    f"ORDER BY slot, {', '.join(f'"{name}"' for name in FACETS)}"
)
_ONE_SIDED = (
    f"SELECT * FROM (SELECT *, 0 AS is_kept FROM ({_FROM_ROWS}) UNION ALL SELECT *, 1 FROM ({_FROM_TABLE})) "
    f"GROUP BY {', '.join(str(place + 1) for place in range(len(_KEY) + len(COUNTS)))} "
    "HAVING count(*) <> 2 LIMIT 1"
)


@dataclass(frozen=True, slots=True)
class Difference:
    """What a table says otherwise than the rows."""

    words: str
    call: str | None = None
    row: int | None = None


type Checkpoint = tuple[int, str]
"""The last row that was taken out, and the digest of the state that stands for it."""


class TakenOut:
    """The sums of all rows that were taken out, and their digest, kept up while more are."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._days: dict[int, dict[tuple[Any, ...], list[int]]] = defaultdict(dict)
        self._digests: dict[int, str] = {}
        for day, lines in _by_day(connection):
            self._days[day] = {tuple(line[: len(_KEY)]): list(line[len(_KEY) :]) for line in lines}
            self._digests[day] = _digest_of_day(self._lines(day))

    def add(self, after: int, rows_to: int) -> None:
        """Count rows that are about to go."""
        changed = set()
        for line in self._connection.execute(_OF_ROWS, (after, rows_to)):
            key, day = tuple(line[: len(_KEY)]), line[len(FACETS)] // _SLOTS_OF_DAY
            sums = self._days[day].setdefault(key, [0] * len(COUNTS))
            self._days[day][key] = [here + more for here, more in zip(sums, line[len(_KEY) :], strict=True)]
            changed.add(day)
        for day in changed:
            self._digests[day] = _digest_of_day(self._lines(day))

    def digest(self) -> str:
        """Give the digest of everything."""
        return _digest_of_days(sorted(self._digests.items()))

    def _lines(self, day: int) -> Iterator[Sequence[Any]]:
        for key, sums in sorted(self._days[day].items(), key=lambda item: (item[0][-1], item[0][:-1])):
            if any(sums):
                yield (*key, *sums)


def digest_of(text: str) -> str:
    """Give a text's SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _by_day(connection: sqlite3.Connection) -> Iterator[tuple[int, Iterator[Sequence[Any]]]]:
    lines = connection.execute(_TAKEN_OUT)
    return itertools.groupby(lines, key=lambda line: line[len(FACETS)] // _SLOTS_OF_DAY)


def _digest_of_day(lines: Iterable[Sequence[Any]]) -> str:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{encode(line)}\n".encode())
    return digest.hexdigest()


def _digest_of_days(days: Iterable[tuple[int, str]]) -> str:
    nothing = _digest_of_day(())
    return digest_of(encode([[day, digest] for day, digest in days if digest != nothing]))


def differences(
    connection: sqlite3.Connection, replay: Replay, checkpoint: Checkpoint | None = None
) -> Iterator[Difference]:
    """List what differs after all rows were replayed, from a checkpoint on where some were taken out."""
    yield from _writers(connection, replay)
    yield from _accounts(connection, replay)
    yield from _open_holds(connection, replay)
    yield from _tasks(connection, replay)
    yield from _budgets(connection, replay)
    yield from _keys(connection, replay)
    yield from _key_digests(connection, replay)
    yield from _allowances(connection, replay)
    yield from _pauses(connection, replay)
    if checkpoint is None:
        yield from _totals(connection)
    elif replay.taken_out is not None:  # an earlier version wrote no such row
        yield from _taken_out(connection, replay.taken_out, checkpoint)


def _taken_out(connection: sqlite3.Connection, told: Mapping[str, Any], checkpoint: Checkpoint) -> Iterator[Difference]:
    rows_to, state_sha256 = checkpoint
    if (told["rows_to"], told["state_sha256"]) != (rows_to, state_sha256):
        yield Difference(f"the checkpoint of row {rows_to} is not the one that was written when rows were taken out")
    days = [(day, _digest_of_day(lines)) for day, lines in _by_day(connection)]
    if _digest_of_days(days) != told["totals_sha256"]:
        words = "the rows that are there and those that were taken out"
        yield Difference(f"the totals are not the sums of {words}, up to row {rows_to}, together")


def _writers(connection: sqlite3.Connection, replay: Replay) -> Iterator[Difference]:
    left = dict(replay.ends)
    for writer, seq, digest in connection.execute("SELECT id, seq, hash FROM writers ORDER BY id"):
        last, end = left.pop(writer, (0, None))
        if seq > last:
            name = writer.encode("utf-8", "surrogateescape")  # it may be no UTF-8
            (its_last,) = connection.execute(_ITS_LAST, (name,)).fetchone()
            row = replay.row if its_last is None else its_last
            yield Difference(f"rows are missing at the end of writer {writer}, after row {row}", row=row)
        elif seq != last or (end is not None and digest != end):
            yield Difference(
                f"the end of writer {writer} is kept as seq {seq}, and its rows end otherwise at seq {last}"
            )
    for writer in left:
        yield Difference(f"writer {writer} has rows, and the end of its chain is not kept")


def _accounts(connection: sqlite3.Connection, replay: Replay) -> Iterator[Difference]:
    steps = _steps(connection)
    left = dict(replay.accounts)
    columns = ", ".join((*_NAMES, *_NUMBERS, "reset_row", "counted_row"))
    for account, *found in connection.execute(f"SELECT id, {columns} FROM accounts ORDER BY id"):
        try:
            tally = left.pop(account, None) or Tally(account, Name.parse(account))
        except ValueError:
            yield Difference(f'"{account}" is no account')
            continue
        tally.expire(replay.at)
        yield from _compared(shown(account), _NAMES, found, _names(tally))
        mine = steps.pop(account, {})
        numbers = found[len(_NAMES) : len(_NAMES) + len(_NUMBERS)]
        if any(allowed for *_, allowed in mine.values()):
            numbers, mine = _brought_up(numbers, mine, replay.at)
        yield from _compared(shown(account), _NUMBERS, numbers, _numbers(tally, mine, replay.at))
        yield from _compared(shown(account), ("reset_row",), found[-2:-1], (tally.reset_row,))
        if tally.is_counted_told:
            yield from _compared(shown(account), ("counted_row",), found[-1:], (tally.counted_row,))
        yield from _step_differences(tally, mine, replay.at)
    for account in left:
        yield Difference(f"{shown(account)}: it is missing, and its rows know it")
    for account in steps:
        yield Difference(f"{shown(account)}: it has steps, and is not there")


def _steps(connection: sqlite3.Connection) -> dict[str, dict[int, list[int]]]:
    found: dict[str, dict[int, list[int]]] = defaultdict(dict)
    sql = "SELECT account, leaves_at, spent_nano, spent_tokens, raised_nano, allowed_nano FROM steps"
    for account, leaves, *amounts in connection.execute(sql):
        found[account][leaves] = amounts
    return found


def _names(tally: Tally) -> Sequence[object]:
    name = tally.name
    return (name.budget, name.scope, name.subject, name.start, name.end, name.period_ms)


def _numbers(tally: Tally, steps: Mapping[int, Sequence[int]], at: int) -> Sequence[int]:
    """Give the sums that the table must have: steps that have left stay in it until the account changes again."""
    sums = list(tally.numbers())
    for usd, tokens, raised, _ in (step for leaves, step in steps.items() if leaves <= at):
        sums[0] += usd
        sums[2] += tokens
        sums[4] += raised
    return sums


def _brought_up(
    numbers: Sequence[int], steps: Mapping[int, Sequence[int]], at: int
) -> tuple[list[int], dict[int, list[int]]]:  # fmt: skip
    """Let what has left go from the sums of a table: what was allowed once goes with the room that comes free."""
    balance = Balance()
    for name, number in zip(_NUMBERS, numbers, strict=True):
        setattr(balance, name, number)
    balance.steps = {leaves: Step(*step) for leaves, step in steps.items()}
    balance.period_ms = 1  # any: it rolls
    balance.pass_time(at)
    return [getattr(balance, name) for name in _NUMBERS], {at: step.numbers() for at, step in balance.steps.items()}


def _step_differences(tally: Tally, steps: Mapping[int, list[int]], at: int) -> Iterator[Difference]:
    if steps and tally.name.period_ms is None:
        yield Difference(f"{shown(tally.id)}: it has steps, and its window does not roll")
        return
    there, here = {leaves: step for leaves, step in steps.items() if leaves > at}, tally.steps
    for leaves in sorted({*there, *here}):  # a step of nothing is none
        columns = ("spent_nano", "spent_tokens", "raised_nano", "allowed_nano")
        what = f"{shown(tally.id)}, what leaves at {leaves}"
        yield from _compared(what, columns, there.get(leaves, _NO_STEP), here.get(leaves, _NO_STEP))


def _open_holds(connection: sqlite3.Connection, replay: Replay) -> Iterator[Difference]:
    left = dict(replay.open)
    columns = ", ".join(f'"{name}"' for name in _OPEN)
    for call, accounts, *found in connection.execute(f"SELECT call, accounts, {columns} FROM open_holds ORDER BY call"):
        held = left.pop(call, None)
        if held is None:
            yield Difference(f"call {call}: it is kept as open, and its rows say that it is not", call)
            continue
        told = (held.writer, held.at, held.usd, held.tokens, held.fact("task"), int(held.until is not None), held.until)
        yield from _compared(f"the open hold of call {call}", _OPEN, found, told, call)
        if _listed(accounts) != sorted(held.accounts):
            yield Difference(f"the open hold of call {call}: it is on other accounts than its rows say", call)
    for call in left:
        yield Difference(f"call {call}: its hold is open, and is not kept", call)


def _listed(text: str) -> object:
    try:
        return sorted(json.loads(text))
    except (TypeError, ValueError):
        return None


def _tasks(connection: sqlite3.Connection, replay: Replay) -> Iterator[Difference]:
    left = dict(replay.tasks)
    columns = ", ".join(f'"{name}"' for name in _TASK)
    for task, *found in connection.execute(f"SELECT name, {columns} FROM tasks ORDER BY name"):
        told = left.pop(task, None)
        if told is None:
            yield Difference(f'task "{task}": it is there, and no row knows it')
        else:
            terms = told.terms
            limits = (terms.window, terms.limit_nano, terms.limit_tokens, terms.closed)
            values = (*limits, told.created, told.spent_nano, terms.user)
            yield from _compared(f'task "{task}"', _TASK, found, values)
    for task in left:
        yield Difference(f'task "{task}": it is missing, and its rows know it')


def _budgets(connection: sqlite3.Connection, replay: Replay) -> Iterator[Difference]:
    left = dict(replay.definitions)
    for name, *found in connection.execute(f"SELECT name, {', '.join(_BUDGET)} FROM budgets ORDER BY name"):
        told = left.pop(name, None)
        if told is None:
            yield Difference(f'the definition of budget "{name}" is there, and no row knows it')
        else:
            definition = encode(definition_of(told.budget))
            values = (definition, told.since, told.source, told.removed_at)
            yield from _compared(f'the definition of budget "{name}"', _BUDGET, found, values)
    for name in left:
        yield Difference(f'the definition of budget "{name}" is missing, and its rows know it')


def _keys(connection: sqlite3.Connection, replay: Replay) -> Iterator[Difference]:
    left = replay.keys.rows()
    columns = ", ".join(f'"{name}"' for name in KEY_COLUMNS)
    for key, *found in connection.execute(f"SELECT {columns} FROM keys ORDER BY id"):
        told = left.pop(key, None)
        if told is None:
            yield Difference(f"key {key} is there, and no row knows it")
        else:
            yield from _compared(f"key {key}", KEY_COLUMNS[1:], found, told)
    for key in left:
        yield Difference(f"key {key} is missing, and its rows know it")


def _key_digests(connection: sqlite3.Connection, replay: Replay) -> Iterator[Difference]:
    """Compare how many secrets each key has had, and when; which, no row says."""
    there: dict[str, list[tuple[int, int | None]]] = defaultdict(list)
    for key, since, until in connection.execute(
        'SELECT "key", since, until FROM key_digests ORDER BY since, until IS NULL, until'
    ):
        there[key].append((since, until))
    here = replay.keys.secrets()
    for key in sorted({*there, *here}):
        if there.get(key, []) != here.get(key, []):
            yield Difference(f"the secrets of key {key} are kept otherwise than its rows say")


def _allowances(connection: sqlite3.Connection, replay: Replay) -> Iterator[Difference]:
    left = dict(replay.questions.allowances)
    for call, *found in connection.execute("SELECT call, account, nano, leaves_at FROM allowances ORDER BY call"):
        if left.pop(call, None) != Allowance(*found):
            yield Difference(f"call {call}: what it was allowed is kept otherwise than its rows say", call)
    for call in left:
        yield Difference(f"call {call}: what it was allowed is not kept", call)
    for call in replay.questions.allowances:
        if call not in replay.open:
            yield Difference(f"call {call}: it was allowed something, and is not open", call)


def _pauses(connection: sqlite3.Connection, replay: Replay) -> Iterator[Difference]:
    """Compare whose calls pause, and the breaker's rules."""
    if (words := replay.pauses.missing()) is not None:
        yield Difference(words)
    left = dict(replay.pauses.pauses)
    for kind, scope, name, user, *found in connection.execute(_READ_PAUSES):
        pause = left.pop((kind, Subject(scope, name, user)), None)
        told = None if pause is None else [pause.since, pause.until, pause.since_row, encode(dict(pause.data))]
        if found != told:
            yield Difference(f'the pause of {scope} "{name}" is kept otherwise than its rows say')
    for subject in (subject for (_, subject), pause in left.items() if not pause.is_old(replay.at)):
        yield Difference(f'the pause of {subject.scope} "{subject.name}" is not kept')
    rules = {f"breaker.{source}": encode(rule_terms(rule)) for source, rule in replay.pauses.rules.items()}
    if dict(connection.execute("SELECT name, value FROM meta WHERE name LIKE 'breaker.%'").fetchall()) != rules:
        yield Difference("the breaker is kept otherwise than its rows say")


def _totals(connection: sqlite3.Connection) -> Iterator[Difference]:
    found = connection.execute(_ONE_SIDED).fetchone()
    if found is not None:
        facet, slot, sums, is_kept = found[: len(FACETS)], found[len(FACETS)], found[len(FACETS) + 1 : -1], found[-1]
        who = ", ".join(f"{name} {value}" for name, value in zip(FACETS, facet, strict=True) if value)
        told = ", ".join(f"{name} {_said(name, sum_)}" for name, sum_ in zip(COUNTS, sums, strict=True) if sum_)
        words = "are kept, and not what its rows say" if is_kept else "are what its rows say, and are not kept"
        yield Difference(f"the totals of quarter hour {slot} of {who}: {told} {words}")


def _compared(
    what: str, columns: Sequence[str], found: Sequence[Any], told: Sequence[Any], call: str | None = None
) -> Iterator[Difference]:
    for column, here, there in zip(columns, found, told, strict=False):
        if here != there:
            shown_here, shown_there = _said(column, here), _said(column, there)
            yield Difference(f"{what}: {column} is {shown_here}, and its rows say {shown_there}", call)


def _said(column: str, value: object) -> str:
    if column in _DOLLARS and isinstance(value, int):
        return f"${Money(value).exact()}"
    return "nothing" if value is None else f"{value}"

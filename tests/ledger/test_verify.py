import json
import random
import shutil
import sqlite3
import struct
import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from lockpin_core.budgets import Budget
from lockpin_core.call import Void
from lockpin_core.errors import CommandError, LedgerError
from lockpin_core.ledger.chain import encode
from lockpin_core.ledger.replay import Replay
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.ledger.verify import SLICE, verify
from lockpin_core.windows import Window
from tests.ledger import everything
from tests.ledger.desk import (
    LIFETIME,
    NOON,
    WAIT_S,
    SetClock,
    SqliteDesk,
    call,
    charge,
    counted_ids,
    machine,
    money,
    note,
    refusal,
    rules,
)
from tests.ledger.everything import chain_anew, forging

VERSION_1 = Path(__file__).resolve().parent.parent / "data" / "ledger" / "version-1.sql"
TABLES = (
    "accounts",
    "steps",
    "open_holds",
    "tasks",
    "budgets",
    "writers",
    "facets",
    "totals",
    "keys",
    "key_digests",
    "pauses",
)
# The five holds of that file.
OLD_CALLS = "5 calls are of an earlier version, which says less: which accounts they are on was not judged"
# What no row tells, so that nothing can be said of it.
NOT_TOLD = {("accounts", "alerted"), ("writers", "since"), ("writers", "origin"), ("key_digests", "digest")}


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    """One file with everything in it, with an empty log; never written to again."""
    desk = SqliteDesk(tmp_path_factory.mktemp("sealed"))
    everything.fill(desk)
    copy = desk.path.with_name("copy.sqlite3")
    with closing(sqlite3.connect(desk.path)) as books, closing(sqlite3.connect(copy)) as target:
        books.backup(target)
    desk.close()
    return copy


@pytest.fixture
def path(sealed, tmp_path):
    return Path(shutil.copy(sealed, tmp_path / "ledger.sqlite3"))


@pytest.fixture
def desk(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()


def rows_of(path):
    with closing(sqlite3.connect(path)) as books:
        books.text_factory = bytes
        return books.execute("SELECT * FROM rows ORDER BY id").fetchall()


def row_of(path, kind, call_id):
    with closing(sqlite3.connect(path)) as books:
        (found,) = books.execute("SELECT id FROM rows WHERE kind = ? AND call = ?", (kind, call_id)).fetchone()
    return found


def other(value, column):
    """Give another value than the one that is there."""
    match value:
        case None:
            return 1 if column in INTEGERS else "x"
        case int():
            return value + 1000
        case bytes():
            return bytes([value[0] ^ 1]) + value[1:]
    if column == "kind":
        return "uncapped" if value == "refusal" else "refusal"
    return value + "x"


INTEGERS = frozenset(
    {"usd", "tokens", "held_at", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "count"}
    | {"output_limit", "limit_set", "streamed", "estimated", "failed", "over_hold", "priced", "waited_ms", "limit_nano"}
    | {"limit_tokens", "created", "removed_at", "expires_at", "window_start", "window_end", "period_ms"}
    | {"expires", "revoked", "rotated", "until"}
)
UNKNOWN = "'x' || char(31) || 'machine' || char(31) || 'm' || char(31)"
NEVER_NULL = ("id", "writer", "seq", "prev", "hash", "at", "kind")


def test_ledger_with_everything_in_it_is_verified(desk):
    everything.fill(desk)

    verdict = verify(desk.path)

    assert verdict.wrong is None
    assert (verdict.rows, verdict.calls, verdict.pruned_to) == (len(desk.query("SELECT id FROM rows")), 14, 0)
    assert verdict.writers == len(desk.query("SELECT DISTINCT writer FROM rows"))
    assert verdict.accounts == len(desk.query("SELECT id FROM accounts"))
    assert verdict.warnings == ("1 call was charged above the hold",)


def test_kinds_and_events_that_rows_can_tell_are_all_there(sealed):
    with closing(sqlite3.connect(sealed)) as books:
        kinds = {kind for (kind,) in books.execute("SELECT DISTINCT kind FROM rows")}
        codes = {code for (code,) in books.execute("SELECT DISTINCT code FROM rows WHERE kind = 'event'")}

    assert kinds == {"hold", "shrink", "charge", "void", "correction", "refusal", "uncapped", "event"}
    assert codes == {
        *("budget_defined", "budget_removed", "account_opened", "account_caught_up", "budget_raised", "budget_reset"),
        *("task_new", "task_closed", "hold_deferred", "hold_adopted", "raises_forgotten", "threshold_passed"),
        *("key_created", "key_rotated", "key_revoked"),
        *("breaker_defined", "breaker_removed", "breaker_tripped", "breaker_reset", "task_stopped", "task_resumed"),
    }


def test_empty_ledger_is_verified(desk):
    verdict = verify(desk.path)

    assert (verdict.wrong, verdict.rows, verdict.calls, verdict.warnings) == (None, 0, 0, ())


def test_no_ledger_is_an_error_and_none_is_made(tmp_path):
    with pytest.raises(LedgerError):
        verify(tmp_path / "none.sqlite3")

    assert list(tmp_path.iterdir()) == []


def test_every_value_of_every_row_is_covered(path):
    before = rows_of(path)
    missed = []
    with forging(path) as books:
        books.execute("PRAGMA synchronous = OFF")
        cursor = books.execute("SELECT * FROM rows ORDER BY id")
        names = [column[0] for column in cursor.description]
        for row in cursor.fetchall():
            for column, value in zip(names, row, strict=True):
                values = [other(value, column), *([None] if value is not None and column not in NEVER_NULL else [])]
                for changed in values:
                    key = changed if column == "id" else row[0]
                    books.execute(f'UPDATE rows SET "{column}" = ? WHERE id = ?', (changed, row[0]))
                    wrong = verify(path).wrong
                    if wrong is None or wrong.row != row[0]:
                        missed.append((row[0], column, changed, wrong))
                    books.execute(f'UPDATE rows SET "{column}" = ? WHERE id = ?', (value, key))

    assert missed == []
    assert rows_of(path) == before
    assert verify(path).wrong is None


def test_changed_row_is_named_with_kind_call_and_instant(path):
    with forging(path) as books:
        books.execute("UPDATE rows SET usd = usd - 1 WHERE call = 'c01' AND kind = 'charge'")

    wrong = verify(path).wrong

    assert (wrong.row, wrong.call) == (12, "c01")
    assert wrong.words == (
        "row 12 (charge of call c01, 2026-10-21T12:00:00Z): its content is not what was written: the hash differs"
    )


def test_every_row_that_is_removed_is_missed(path, tmp_path):
    count = len(rows_of(path))
    for row in range(1, count):
        copy = shutil.copy(path, tmp_path / "copy.sqlite3")
        with forging(copy) as books:
            books.execute("DELETE FROM rows WHERE id = ?", (row,))

        wrong = verify(Path(copy)).wrong

        assert (wrong.row, wrong.words) == (row, f"row {row}: it is missing; row {row + 1} comes after row {row - 1}")


def test_row_that_is_removed_without_a_gap_in_the_numbers_is_missed(path, tmp_path):
    last = {}
    with closing(sqlite3.connect(path)) as books:
        rows = books.execute("SELECT id, writer, seq FROM rows ORDER BY id").fetchall()
    for row, writer, _ in rows:
        last[writer] = row
    for row, writer, seq in rows:
        if row == last[writer]:
            continue  # the end of a chain: see the tails
        copy = Path(shutil.copy(path, tmp_path / "copy.sqlite3"))
        with forging(copy) as books:
            books.execute("DELETE FROM rows WHERE id = ?", (row,))
            for later in range(row + 1, len(rows) + 1):
                books.execute("UPDATE rows SET id = id - 1 WHERE id = ?", (later,))

        wrong = verify(copy).wrong

        following = next(r for r, w, s in rows if (w, s) == (writer, seq + 1)) - 1
        # Where its effect is missed before its writer's next row is reached, that row is named.
        assert row <= wrong.row <= following, (row, wrong)


def test_every_tail_that_is_cut_off_is_missed(path, tmp_path):
    count = len(rows_of(path))
    for kept in range(count):
        copy = Path(shutil.copy(path, tmp_path / "copy.sqlite3"))
        with forging(copy) as books:
            books.execute("DELETE FROM rows WHERE id > ?", (kept,))

        assert "rows are missing at the end of writer" in verify(copy).wrong.words, kept


def test_cut_tail_is_named_with_the_last_row_that_is_there(path):
    with forging(path) as books:
        (last,) = books.execute("SELECT max(id) FROM rows").fetchone()
        (writer,) = books.execute("SELECT writer FROM rows WHERE id = ?", (last,)).fetchone()
        books.execute("DELETE FROM rows WHERE id = ?", (last,))

    wrong = verify(path).wrong

    assert wrong.row == last - 1
    assert wrong.words == f"rows are missing at the end of writer {writer}, after row {last - 1}"


def test_cut_tail_with_all_rows_of_a_writer_is_named_with_the_last_row_that_is_there(path):
    with forging(path) as books:
        books.execute("DELETE FROM rows WHERE id >= 37")  # a command's only row, and what came after it
        books.execute("DELETE FROM writers WHERE id IN (SELECT id FROM writers WHERE seq > 1)")

    wrong = verify(path).wrong

    assert wrong.row == 36
    assert wrong.words.startswith("rows are missing at the end of writer w")
    assert wrong.words.endswith(", after row 36")


def test_row_before_the_first_is_seen(path):
    with forging(path) as books:
        row = books.execute("SELECT * FROM rows WHERE kind = 'refusal'").fetchone()
        books.execute(f"INSERT INTO rows VALUES (-5, ?, 999{', ?' * (len(row) - 3)})", (row[1], *row[3:]))

    assert verify(path).wrong.row == -5


def test_two_rows_of_a_writer_that_change_places_are_seen(path, tmp_path):
    with closing(sqlite3.connect(path)) as books:
        pairs = books.execute(
            "SELECT a.id, b.id FROM rows a JOIN rows b ON a.writer = b.writer AND a.id < b.id WHERE b.id < a.id + 6"
        ).fetchall()
    for first, second in pairs:
        copy = Path(shutil.copy(path, tmp_path / "copy.sqlite3"))
        with forging(copy) as books:
            for old, new in ((first, -1), (second, first), (-1, second)):
                books.execute("UPDATE rows SET id = ? WHERE id = ?", (new, old))

        assert verify(copy).wrong.row == first


def pages_of_rows(path):
    """Walk the b-tree of the table and give the offsets of its pages."""
    data = path.read_bytes()
    size = struct.unpack(">H", data[16:18])[0]
    with closing(sqlite3.connect(path)) as books:
        (root,) = books.execute("SELECT rootpage FROM sqlite_master WHERE name = 'rows'").fetchone()
    found, waiting = [], [root]
    while waiting:
        start = (waiting.pop() - 1) * size
        found.append(start)
        if data[start] == 0x05:
            (count,) = struct.unpack(">H", data[start + 3 : start + 5])
            waiting += struct.unpack(">I", data[start + 8 : start + 12])
            for cell in range(count):
                (at,) = struct.unpack(">H", data[start + 12 + 2 * cell : start + 14 + 2 * cell])
                waiting += struct.unpack(">I", data[start + at : start + at + 4])
        else:
            assert data[start] == 0x0D
    return size, found


def test_any_byte_that_is_flipped_in_the_pages_of_the_rows_is_found(path, tmp_path):
    """Where nothing is found, nothing that is stored has changed: some bytes of a page are free."""
    size, pages = pages_of_rows(path)
    data, before, chance = path.read_bytes(), rows_of(path), random.Random(13)
    assert len(pages) > 5
    copy, found = tmp_path / "copy.sqlite3", 0
    for _ in range(400):
        offset = chance.choice(pages) + chance.randrange(size)
        flipped = bytearray(data)
        flipped[offset] ^= 1 << chance.randrange(8)
        copy.write_bytes(flipped)

        wrong = verify(copy).wrong

        found += wrong is not None
        assert wrong is not None or rows_of(copy) == before, offset
    assert found > 250  # some four fifths of these pages are in use


def test_text_that_is_no_utf8_any_more_is_named_with_its_row(path):
    data, row = path.read_bytes(), row_of(path, "charge", "c09")
    assert data.count(b"stream_cut") == 1
    path.write_bytes(data.replace(b"stream_cut", b"stream\xffcut"))

    wrong = verify(path).wrong

    assert (wrong.row, wrong.call) == (row, "c09")
    assert wrong.words.endswith("the hash differs")


def test_page_that_cannot_be_read_is_named_with_the_row_after_the_last_good_one(path):
    size, pages = pages_of_rows(path)
    data = bytearray(path.read_bytes())
    second = sorted(pages[1:], key=lambda start: data.find(b"budget_defined", start, start + size) < 0)[-1]
    data[second : second + 8] = b"\xff" * 8
    path.write_bytes(data)

    wrong = verify(path).wrong

    assert wrong.row is not None
    assert wrong.row > 1
    assert "it cannot be read: " in wrong.words


def says_nothing(table, row):
    """Tell a step of nothing, which a reset leaves behind."""
    return table == "steps" and not any(row[2:])


def test_every_value_of_every_other_table_is_compared(path):
    missed = []
    with forging(path) as books:
        books.execute("PRAGMA synchronous = OFF")
        for table in TABLES:
            cursor = books.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in cursor.description]
            for row in cursor.fetchall():
                for place, column in enumerate(names):
                    if (table, column) in NOT_TOLD or says_nothing(table, row):
                        continue
                    books.execute("BEGIN")
                    changed = [*row]
                    changed[place] = other(row[place], column)
                    where = " AND ".join(f'"{name}" IS ?' for name in names)
                    books.execute(f'UPDATE {table} SET "{column}" = ? WHERE {where}', (changed[place], *row))
                    books.execute("COMMIT")
                    if verify(path).wrong is None:
                        missed.append((table, column, row))
                    books.execute(f'UPDATE {table} SET "{column}" = ? WHERE {where}', (row[place], *changed))

    assert missed == []
    assert verify(path).wrong is None


def test_every_line_of_every_other_table_is_missed(path, tmp_path):
    with closing(sqlite3.connect(path)) as books:
        counts = {table: books.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}
    for table, count in counts.items():
        assert count
        for place in range(count):
            copy = Path(shutil.copy(path, tmp_path / "copy.sqlite3"))
            with forging(copy) as books:
                row = books.execute(f"SELECT * FROM {table} LIMIT 1 OFFSET ?", (place,)).fetchone()
                if says_nothing(table, row):
                    continue
                names = [c[1] for c in books.execute(f"PRAGMA table_info({table})")]
                where = " AND ".join(f'"{name}" IS ?' for name in names)
                books.execute(f"DELETE FROM {table} WHERE {where}", row)

            assert verify(copy).wrong is not None, (table, row)


@pytest.mark.parametrize(
    "insert",
    [
        f"INSERT INTO accounts (id, budget, scope, subject, spent_nano) VALUES ({UNKNOWN}, 'x', 'machine', 'm', 1)",
        "INSERT INTO accounts (id, budget, scope, subject) VALUES ('x', 'x', 'machine', 'm')",
        "INSERT INTO steps VALUES ('x', 1, 2, 3, 4, 0)",
        "INSERT INTO open_holds (call, writer, at, usd, tokens, accounts, task) VALUES ('x', 'w', 1, 2, 3, '[]', 't')",
        "INSERT INTO tasks (name) VALUES ('x')",
        "INSERT INTO budgets (name, definition, since) VALUES ('x', '{}', 1)",
        "INSERT INTO writers (id, seq, hash, since) VALUES ('x', 1, zeroblob(32), 1)",
        "INSERT INTO totals VALUES (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)",
        "UPDATE open_holds SET accounts = 'no list'",
        "INSERT INTO checkpoint VALUES (1, 3, '{}')",
        "INSERT INTO checkpoint VALUES (1, 3, 'no object')",
    ],
)
def test_line_that_no_row_explains_is_found(path, insert):
    with forging(path) as books:
        books.execute(insert)

    assert verify(path).wrong is not None


def test_difference_is_said_in_dollars_with_the_account_in_words(path):
    with forging(path) as books:
        books.execute("UPDATE accounts SET spent_nano = spent_nano + 1 WHERE budget = 'daily' AND window_start < ?", (
            int(NOON.timestamp() * 10**6),))  # fmt: skip

    wrong = verify(path).wrong

    # c01, c03, c07 and the charge of c06 in full less what came late: 0.25 + 1.1 + 0.2 + 0.4 - 0.35
    assert (wrong.row, wrong.call) == (None, None)
    assert wrong.words == (
        'budget "daily" of machine "m" in 2026-10-21T00:00:00Z: spent_nano is $1.600000001, and its rows say $1.6'
    )


def test_index_that_differs_from_its_table_is_found(path):
    with forging(path) as books:
        books.execute("PRAGMA writable_schema = ON")
        books.execute("UPDATE sqlite_master SET sql = replace(sql, '(at)', '(id)') WHERE name = 'rows_at'")

    assert "the file is damaged" in verify(path).wrong.words


def test_hold_over_the_limit_is_found_where_the_chain_was_made_anew(path):
    with forging(path) as books:
        books.execute("UPDATE rows SET usd = 3000000000 WHERE call = 'c11' AND kind = 'hold'")
        chain_anew(books)

    wrong = verify(path).wrong

    # On the second day c09 has cost 0.4 - 0.05, c10 0.1.
    assert (wrong.row, wrong.call) == (row_of(path, "hold", "c11"), "c11")
    assert 'its hold of $3 and 100 tokens passes the limit of budget "daily" of machine "m"' in wrong.words
    assert wrong.words.endswith("$3 with $0.45 spent and $0 held")


def test_chain_that_was_made_anew_after_nothing_was_changed_is_right(path):
    with forging(path) as books:
        chain_anew(books)

    assert verify(path).wrong is None


def test_second_hold_of_a_call_is_found_where_the_database_lets_it_in(path):
    row = row_of(path, "hold", "c11")
    with forging(path) as books:
        books.execute("DROP INDEX rows_hold")
        books.execute("UPDATE rows SET call = 'c01' WHERE call = 'c11'")
        books.execute("UPDATE open_holds SET call = 'c01' WHERE call = 'c11'")
        chain_anew(books)

    wrong = verify(path).wrong

    assert (wrong.row, wrong.call) == (row, "c01")
    assert wrong.words.endswith("its call has a hold already")


def test_correction_of_no_call_is_found(path):
    with forging(path) as books:
        books.execute("UPDATE rows SET call = 'c99' WHERE kind = 'correction' AND call = 'c09'")
        chain_anew(books)

    assert "no call of that id and instant has ended before it" in verify(path).wrong.words


GRANT = machine("10", name="grant", window=LIFETIME)
EVER = machine("10", name="ever", window=LIFETIME)
OF_EVER = "json_array('ever' || char(31) || 'machine' || char(31) || 'm' || char(31))"
OF_TASK = "json_array('task' || char(31) || 'task' || char(31) || 't' || char(31))"


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """One file in which little happened, and something of each kind that commands do to a lifetime budget."""
    desk, own = SqliteDesk(tmp_path_factory.mktemp("plain")), rules(EVER)
    for name in ("c1", "c2", "c3"):
        everything.hold(desk, name, "2", own)
        everything.settle(desk, name, "2")
    desk.admin.budget_set(GRANT, who="ada")
    desk.clock.pass_by(minutes=1)
    everything.hold(desk, "c4", "0.5", own)
    everything.settle(desk, "c4", "0.75")  # above its hold
    desk.admin.correct("c4", money("0.5"), reason="by the invoice", who="ada")
    desk.admin.budget_rm("grant", who="ada")
    everything.hold(desk, "c5", "0.25", own)
    everything.settle(desk, "c5", "0.25")
    desk.admin.budget_set(GRANT, who="ada")  # caught up
    desk.admin.raise_budget(EVER, "m", money("1"), who="ada")
    desk.admin.task_new("t", limit=money("9"), window="lifetime", who="ada")
    desk.admin.reset_budget(EVER, "m", who="ada")
    everything.hold(desk, "c6", "0.125", own)
    desk.ledger.void("c6", Void("not_sent")).result(WAIT_S)
    copy = desk.path.with_name("copy.sqlite3")
    with closing(sqlite3.connect(desk.path)) as books, closing(sqlite3.connect(copy)) as target:
        books.backup(target)
    desk.close()
    return copy


def of_code(code, **values):
    """Change what an event says."""
    changes = ", ".join(f"'$.{name}', {value}" for name, value in values.items())
    return f"UPDATE rows SET data = json_set(data, {changes}) WHERE code = '{code}'"


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        # A hold and its charge that leave out an account, are on one too many, or on theirs in another order.
        ([f"UPDATE rows SET accounts = {OF_TASK} WHERE call = 'c1'"], 'it is not on budget "ever"'),
        ([f"UPDATE rows SET accounts = {OF_EVER} WHERE call = 'c1'"], 'it is not on budget "task"'),
        (
            [
                "UPDATE rows SET accounts = (SELECT accounts FROM rows WHERE call = 'c4' LIMIT 1) WHERE call = 'c5'"
            ],
            'it is on budget "grant" of machine "m", which does not count it',
        ),
        (
            ["UPDATE rows SET accounts = json_array(accounts ->> '$[1]', accounts ->> '$[0]') WHERE call = 'c1'"],
            "its accounts are in another order",
        ),
        (["UPDATE rows SET data = '{\"unchecked\":true}' WHERE kind = 'hold' AND call = 'c4'"], "it went unchecked"),
        # A resolution that is not of its hold.
        (["UPDATE rows SET machine = 'n' WHERE kind = 'charge' AND call = 'c1'"], 'its machine is "n"'),
        (["UPDATE rows SET provider = 'p' WHERE kind = 'charge' AND call = 'c1'"], 'its provider is "p"'),
        (["UPDATE rows SET model = 'x' WHERE kind = 'charge' AND call = 'c1'"], 'its model is "x"'),
        (["UPDATE rows SET host = 'x' WHERE kind = 'charge' AND call = 'c1'"], 'its host is "x"'),
        (["UPDATE rows SET client = 'x' WHERE kind = 'void'"], 'its client is "x"'),
        (["UPDATE rows SET \"user\" = 'x' WHERE kind = 'void'"], 'its user is "x", and its hold was of "None"'),
        (["UPDATE rows SET over_hold = 0 WHERE kind = 'charge' AND call = 'c4'"], "it says that it was not above"),
        (["UPDATE rows SET over_hold = 1 WHERE kind = 'charge' AND call = 'c1'"], "it says that it was above"),
        *(
            ([f"UPDATE rows SET data = json_set(data, '$.balances[0][{place}]', 7) WHERE kind = 'void'"], "balances")
            for place in range(6)
        ),
        (["UPDATE rows SET data = NULL WHERE kind = 'void'"], "it does not say what its kind must say"),
        # Corrections.
        (["UPDATE rows SET usd = -1000000000 WHERE kind = 'correction'"], "by it its call costs $-0.25"),
        ([f"UPDATE rows SET accounts = {OF_EVER} WHERE kind = 'correction'"], "which counts it"),
        (["UPDATE rows SET task = 'u' WHERE kind = 'correction'"], 'its task is "u", and its call was of "t"'),
        (["UPDATE rows SET model = 'x' WHERE kind = 'correction'"], 'its model is "x", and its call was of "gpt-5.5"'),
        (
            ["UPDATE rows SET data = json_set(data, '$.row', 3) WHERE kind = 'correction'"],
            "no call of that id and instant has ended before it",
        ),
        # What accounts begin with, catch up with, and lose.
        (
            [of_code("account_opened", spent_nano=1) + " AND data LIKE '%grant%'"],
            "begins with $0.000000001 and 60 tokens spent, and the rows before say $6 and 60 tokens",
        ),
        ([of_code("account_caught_up", spent_nano=-1)], "cannot be"),
        ([of_code("account_caught_up", spent_nano=0)], "and the rows before say $0.25 and 20 tokens"),
        ([of_code("account_caught_up", spent_nano=500000000)], "and the rows before say $0.25 and 20 tokens"),
        ([of_code("account_caught_up", spent_nano=0, pruned="json('true')", rows_to=3)], "does not count what is"),
        ([of_code("budget_reset", spent_nano=99000000000)], 'it takes $99 and 100 tokens off budget "ever"'),
        ([of_code("budget_reset", spent_nano=0)], 'it takes $0 and 100 tokens off budget "ever"'),
        ([of_code("budget_reset", spent_tokens=0)], 'it takes $6.75 and 0 tokens off budget "ever"'),
        ([of_code("budget_raised", by_nano=-1)], "it raises by nothing"),
        # What loosens a limit.
        *(
            ([of_code(code, loosens=f"json('{said}')")], words)
            for code, said, words in (
                ("budget_raised", "false", "it loosens a limit"),
                ("budget_reset", "false", "it loosens a limit"),
                ("budget_removed", "false", "it loosens a limit"),
                ("task_new", "true", "it does not loosen a limit"),
                ("budget_defined", "true", "it does not loosen a limit"),
            )
        ),
        ([of_code("task_new", reopened="json('true')")], 'its task "t" was not closed'),
    ],
)  # fmt: skip
def test_row_that_says_what_cannot_be_is_found_where_chains_and_tables_were_made_anew(
    plain, tmp_path, statements, words
):
    path = Path(shutil.copy(plain, tmp_path / "ledger.sqlite3"))
    everything.forge(path, *statements)

    wrong = verify(path).wrong

    assert wrong.row is not None
    assert words in wrong.words


def test_forger_who_changes_nothing_leaves_a_ledger_that_is_right(plain, tmp_path):
    path = Path(shutil.copy(plain, tmp_path / "ledger.sqlite3"))
    everything.forge(path, "UPDATE rows SET usd = usd")

    assert verify(path).wrong is None


@pytest.mark.parametrize("change", ["0", "counted_row - 1", "999"])
def test_row_up_to_which_an_account_has_counted_is_compared(plain, tmp_path, change):
    path = Path(shutil.copy(plain, tmp_path / "ledger.sqlite3"))
    with forging(path) as books:
        books.execute(f"UPDATE accounts SET counted_row = {change} WHERE budget = 'grant'")

    assert ": counted_row is " in verify(path).wrong.words


def test_writer_whose_id_is_no_text_is_named_in_words_that_can_be_printed(path):
    with forging(path) as books:
        books.execute("INSERT INTO writers (id, seq, hash, since) VALUES (CAST(x'ff' AS TEXT), 1, zeroblob(32), 1)")

    words = verify(path).wrong.words

    assert "rows are missing at the end of writer \\udcff, after row " in words
    assert words.encode("utf-8")


@pytest.mark.parametrize(("after_row", "is_wrong"), [(3, False), (4, True), (6, True)])
def test_limit_that_came_while_the_ledger_was_away_makes_no_unchecked_hold_wrong(desk, after_row, is_wrong):
    """Another process set it at row 4; the hold of row 6 was let go after the row that it names."""
    desk.ledger.hold(call("c1", "1"), rules()).result(WAIT_S)
    desk.clock.pass_by(minutes=1)
    desk.admin.budget_set(GRANT, who="ada")
    everything.hold(desk, "c2", "1", rules())
    with forging(desk.path) as books:
        data = f'{{"after_row":{after_row},"unchecked":true}}'
        books.execute("UPDATE rows SET data = ? WHERE kind = 'hold' AND call = 'c2'", (data,))
        chain_anew(books)

    wrong = verify(desk.path).wrong
    assert (None if wrong is None else wrong.row) == (6 if is_wrong else None)


def test_charges_and_corrections_above_a_limit_are_a_warning(desk):
    own = rules(machine("1", window=LIFETIME))
    for name in ("c1", "c2"):
        everything.hold(desk, name, "0.5", own)
    for name in ("c1", "c2"):
        everything.settle(desk, name, "0.9")

    verdict = verify(desk.path)

    assert verdict.wrong is None
    assert verdict.warnings == (
        "2 calls were charged above the hold",
        'budget "daily" of machine "m" is above its limit now, by what was charged or corrected',
    )


def test_rows_that_were_taken_out_are_stood_for_by_a_checkpoint(path, tmp_path):
    count = len(rows_of(path))
    for cut in range(1, count):
        copy = Path(shutil.copy(path, tmp_path / "copy.sqlite3"))
        prune(copy, cut)

        verdict = verify(copy)

        assert (verdict.wrong, verdict.rows, verdict.pruned_to) == (None, count - cut, cut), cut
        assert verdict.calls == 14


def test_checkpoint_does_not_hide_what_comes_after_it(path):
    prune(path, 20)
    with forging(path) as books:
        books.execute("UPDATE rows SET usd = usd + 1 WHERE id = 37")

    assert verify(path).wrong.row == 37


def prune(path, cut):
    """Take rows out as a command would, with the state of everything in their place."""
    with forging(path) as books:
        books.row_factory = sqlite3.Row
        replay = Replay()
        for row in books.execute("SELECT * FROM rows WHERE id <= ? ORDER BY id", (cut,)):
            replay.apply(dict(row))
        books.execute("DELETE FROM rows WHERE id <= ?", (cut,))
        books.execute("INSERT INTO checkpoint VALUES (1, ?, ?)", (cut, encode(replay.state())))


def test_ledger_of_version_1_is_verified_after_it_was_brought_to_this_one(tmp_path):
    path = tmp_path / "books" / "ledger.sqlite3"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as books:
        books.execute("PRAGMA journal_mode = WAL")
        books.executescript(VERSION_1.read_text("utf-8"))
    later = SetClock(NOON + timedelta(days=2))
    ledger = SqliteLedger(path, clock=later, new_id=counted_ids("x"))
    budgets = rules(
        machine("3"), machine("9", name="ever", window=LIFETIME), machine("5", name="late", window=LIFETIME)
    )
    ledger.hold(call("call-20", "0.1"), budgets).result(WAIT_S)
    ledger.settle("call-20", charge("0.05")).result(WAIT_S)
    ledger.stop()

    verdict = verify(path)

    assert verdict.wrong is None
    assert verdict.rows > 19
    assert verdict.warnings == (OLD_CALLS, "1 call was charged above the hold")


def test_ledger_without_a_row_of_this_version_is_right_with_a_warning(tmp_path):
    path = tmp_path / "books" / "ledger.sqlite3"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as books:
        books.executescript(VERSION_1.read_text("utf-8"))

    verdict = verify(path)

    assert (verdict.wrong, verdict.rows) == (None, 19)
    assert verdict.warnings[0] == OLD_CALLS


def test_one_row_of_this_version_takes_no_warning_away_and_rows_taken_out_neither(tmp_path):
    path = tmp_path / "books" / "ledger.sqlite3"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as books:
        books.execute("PRAGMA journal_mode = WAL")
        books.executescript(VERSION_1.read_text("utf-8"))
    ledger = SqliteLedger(path, clock=SetClock(NOON + timedelta(days=2)), new_id=counted_ids("x"))
    ledger.hold(call("call-20", "0.1"), rules(machine("3"))).result(WAIT_S)
    ledger.stop()

    assert verify(path).warnings[0] == OLD_CALLS
    with forging(path) as books:
        (last,) = books.execute("SELECT max(id) FROM rows").fetchone()
    prune(path, last)
    assert OLD_CALLS in verify(path).warnings


def test_more_rows_than_one_slice_are_told_as_they_are_read(desk):
    wide = rules(machine("100000"))
    for start in range(0, SLICE, 100):
        numbers = range(start, start + 100)
        for answer in [desk.ledger.hold(call(f"c{n}", "0.1"), wide) for n in numbers]:
            answer.result(WAIT_S)
        for answer in [desk.ledger.settle(f"c{n}", charge("0.05")) for n in numbers]:
            answer.result(WAIT_S)
    told = []

    verdict = verify(desk.path, lambda done, total: told.append((done, total)))

    rows = 2 * SLICE + 4  # two definitions, two accounts
    assert (verdict.wrong, verdict.rows) == (None, rows)
    assert told == [(SLICE, rows), (2 * SLICE, rows), (rows, rows)]


def test_books_are_right_at_every_instant_while_others_write(desk):
    done = threading.Event()

    def work():
        try:
            for n in range(150):
                everything.hold(desk, f"c{n}", "0.01")
                everything.settle(desk, f"c{n}", "0.005")
        finally:
            done.set()

    worker = threading.Thread(target=work)
    worker.start()
    counts = []
    while not done.is_set():
        verdict = verify(desk.path)
        counts.append(verdict.rows)
        assert verdict.wrong is None
    worker.join()

    assert counts == sorted(counts)
    assert verify(desk.path).rows == 5 + 5 + 300  # definitions, and accounts of each


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_the_books_are_right(desk, seed):
    """Random operations, random times, over budgets of every kind of window; refused or failed ones among them."""
    chance, count = random.Random(seed), 0
    windows = (LIFETIME, Window("day"), Window("week"), Window("month"), Window("rolling", period_ms=3_600_000))
    kinds = ("task", "machine")
    budgets = [
        Budget(f"b{n}", chance.choice(kinds), chance.choice(windows), money(chance.choice(("1", "5", "50"))),
               enforce=chance.random() < 0.6, models=chance.choice(((), ("gpt-*",))))
        for n in range(4)
    ]  # fmt: skip
    by_command = [Budget(f"k{n}", chance.choice(kinds), chance.choice(windows), money("30")) for n in range(2)]
    names = []
    for _ in range(90):
        which = chance.random()
        task = chance.choice(("a", "b"))
        try:
            if which < 0.4:
                count += 1
                names.append(f"c{count}")
                model = chance.choice(("gpt-5.5", "claude-opus-5"))
                chosen = rules(*budgets[: chance.choice((2, 4, 4, 4))])
                everything.hold(desk, names[-1], f"0.{chance.randrange(100):02}", chosen, task=task, model=model)
            elif which < 0.6 and names:
                everything.settle(desk, chance.choice(names), f"0.{chance.randrange(100):02}")
            elif which < 0.65 and names:
                desk.ledger.void(chance.choice(names), Void("not_sent")).result(WAIT_S)
            elif which < 0.7 and names:
                desk.ledger.defer(chance.choice(names), timedelta(minutes=chance.randrange(200))).result(WAIT_S)
            elif which < 0.74 and names:
                amount = money(f"0.{chance.randrange(100):02}")
                desk.admin.correct(chance.choice(names), amount, reason="r", who="ada")
            elif which < 0.77:
                desk.admin.raise_budget(chance.choice(budgets), chance.choice((task, "m")), money("0.5"), who="ada")
            elif which < 0.8:
                desk.admin.reset_budget(chance.choice(budgets), chance.choice((task, "m")), who="ada")
            elif which < 0.83:
                window = chance.choice(("lifetime", "day", "rolling:3600000"))
                limit = chance.choice((None, money("3")))
                desk.admin.task_new(task, limit=limit, window=window, who="ada")
            elif which < 0.85:
                desk.admin.task_close(task, who="ada")
            elif which < 0.88:
                desk.admin.budget_set(chance.choice(by_command), who="ada")
            elif which < 0.9:
                desk.admin.budget_rm(chance.choice(by_command).name, who="ada")
            elif which < 0.92:
                desk.ledger.stop()
                desk.ledger = desk.open()
            elif which < 0.94:
                desk.ledger.refuse(note("r", task=task), refusal())
            else:
                desk.clock.pass_by(minutes=chance.choice((1, 13, 47, 600)))
        except (CommandError, LedgerError):
            pass  # what cannot be done is not done
        if chance.random() < 0.2:
            assert verify(desk.path).wrong is None

    assert verify(desk.path).wrong is None


def test_state_in_a_checkpoint_is_canonical_text(sealed):
    with closing(sqlite3.connect(sealed)) as books:
        books.row_factory = sqlite3.Row
        replay = Replay()
        for row in books.execute("SELECT * FROM rows ORDER BY id"):
            replay.apply(dict(row))

    text = encode(replay.state())

    assert text.isascii()
    assert encode(Replay.of(json.loads(text)).state()) == text

"""Ledgers of earlier versions, as the programs of then wrote them, brought to this version."""

import sqlite3
import stat
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from lockpin_core.budgets import Budget
from lockpin_core.errors import LedgerError
from lockpin_core.keys import digest_of, facts_of
from lockpin_core.ledger import schema
from lockpin_core.ledger.pauses import KEY, BreakerRule
from lockpin_core.ledger.place import open_ledger
from lockpin_core.ledger.protocol import Held, Paused, Short, Wait
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.ledger.verify import verify
from lockpin_core.windows import Window
from tests.ledger import desk as d
from tests.ledger.desk import LIFETIME, WAIT_S, SqliteDesk, call, charge, counted_ids, machine, money, rules

DATA = Path(__file__).resolve().parent.parent / "data" / "ledger"
THEN = rules(machine("3"), machine("9", name="ever", window=LIFETIME), machine("5", name="late", window=LIFETIME))


def unpack(path, version=1):
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as books:
        books.executescript((DATA / f"version-{version}.sql").read_text())
        books.execute("PRAGMA journal_mode = WAL")
    return path


def layout(path):
    """Give every table's columns and every index."""
    with closing(sqlite3.connect(path)) as books:
        names = books.execute(
            "SELECT type, name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY 1, 2"
        ).fetchall()
        tables = {n: books.execute(f"SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_info('{n}')").fetchall()
                  for kind, n in names if kind == "table"}  # fmt: skip
        return names, tables


@pytest.fixture
def desk(tmp_path):
    unpack(tmp_path / "books" / "ledger.sqlite3")
    made = SqliteDesk(tmp_path, ids="v")
    made.clock.pass_by(days=1, minutes=3)  # when the last row was written
    yield made
    made.close()
    assert made.chain_ends()
    assert d.nonzero(made.accounts()) == made.explained()


def test_a_ledger_of_version_1_has_the_layout_of_a_new_one(tmp_path, desk):
    fresh = tmp_path / "fresh.sqlite3"
    open_ledger(fresh, durability="full", new_id=counted_ids()).close()
    assert layout(desk.path) == layout(fresh)
    assert [row[0] for row in desk.query("PRAGMA user_version")] == [schema.VERSION]


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_version_comes_to_the_same_layout_and_is_verified(tmp_path, version):
    path, fresh = unpack(tmp_path / "books" / "ledger.sqlite3", version), tmp_path / "fresh.sqlite3"
    for each in (path, fresh):
        open_ledger(each, durability="full", new_id=counted_ids()).close()
    assert layout(path) == layout(fresh)
    assert verify(path).wrong is None
    assert len(list(path.parent.glob(f"ledger.sqlite3.version-{version}-*"))) == 1


def test_a_ledger_of_version_2_goes_on(tmp_path):
    unpack(tmp_path / "books" / "ledger.sqlite3", 2)
    desk = SqliteDesk(tmp_path, ids="v")
    desk.clock.pass_by(minutes=4)
    desk.look_after()  # call-5, $0.20, was in flight when that program ended; call-4 is deferred
    both = rules(*THEN.budgets[:2])
    standings = desk.ledger.look(call("x", "0").payers, "openai", "gpt-5.5", both).result(WAIT_S)
    # 0.25 + 0.50 + 0.20
    assert [(s.spent, s.held) for s in standings[1:]] == [(money("0.95"), money("0.4"))] * 2
    assert desk.ledger.shrink("call-4", money("0.3"), 100).result(WAIT_S)
    asked = desk.ledger.hold(call("n1", "1.8"), both, None, Wait(timedelta(seconds=30)))
    desk.look_after()
    assert desk.tickets() == [("n1", "daily")]
    desk.ledger.settle("call-4", charge("0.1")).result(WAIT_S)
    assert isinstance(asked.result(WAIT_S), Held)
    desk.close()
    assert desk.chain_ends()
    assert verify(desk.path).wrong is None


def test_a_ledger_of_version_3_goes_on_and_takes_keys(tmp_path):
    unpack(tmp_path / "books" / "ledger.sqlite3", 3)
    desk = SqliteDesk(tmp_path, ids="v")
    desk.clock.pass_by(minutes=4)
    desk.look_after()  # call-5, $0.20, was in flight when that program ended; call-4, $0.40, is deferred
    both = rules(*THEN.budgets[:2])
    standings = desk.ledger.look(call("x", "0").payers, "openai", "gpt-5.5", both).result(WAIT_S)
    # 0.25 + 0.50 + 0.20; cap is one by command, which began with what was before it
    stands = {s.budget.name: (s.spent, s.held, s.limit) for s in standings[1:]}
    assert stands == {
        name: (money("0.95"), money("0.4"), money(limit))
        for name, limit in (("daily", "3"), ("ever", "9"), ("cap", "7"))
    }
    assert desk.admin.key_list() == []
    desk.admin.key_create("k1", facts_of("ann@corp.com"), digest_of("s"), lifetime=None, who="ada")
    assert desk.ledger.key(digest_of("s")).result(WAIT_S).user == "ann@corp.com"
    desk.close()
    assert desk.chain_ends()
    assert verify(desk.path).wrong is None


def test_a_ledger_of_version_4_goes_on_and_its_charges_count_for_a_breaker(tmp_path):
    unpack(tmp_path / "books" / "ledger.sqlite3", 4)
    desk = SqliteDesk(tmp_path, ids="v")
    desk.clock.pass_by(minutes=4)
    desk.look_after()  # call-5 of k2, $0.20, was in flight when that program ended; call-4 of k1, $0.40, is deferred
    assert desk.tickets() == []  # call-7 waited in that program
    people = Budget("people", "user", Window("day"), money("5"), enforce=True)
    now = rules(*THEN.budgets[:2], people, breaker=BreakerRule(money("1"), *[timedelta(minutes=10)] * 2, (KEY,)))
    ann, bob = ({"key": key, "user": f"{user}@corp.com"} for key, user in (("k1", "ann"), ("k2", "bob")))
    standings = desk.ledger.look(call("x", "0", task="fix", **ann).payers, "openai", "gpt-5.5", now).result(WAIT_S)
    stands = {s.budget.name: (s.spent, s.held, s.limit) for s in standings}
    # 0.25 of ann, 0.50 + 0.20 of bob; the task is ann's, and daily was raised by 1
    assert stands == {
        "task": (money("0.25"), money("0.4"), money("2")),
        "daily": (money("0.95"), money("0.4"), money("4")),
        "ever": (money("0.95"), money("0.4"), money("9")),
        "people": (money("0.25"), money("0.4"), money("5")),
    }
    assert desk.ledger.key(digest_of("s3")).result(WAIT_S).user == "bob@corp.com"
    for call_id, whose in (("n1", ann), ("n2", bob)):
        assert isinstance(desk.ledger.hold(call(call_id, "0.4", **whose), now).result(WAIT_S), Held)
        desk.ledger.settle(call_id, charge("0.4")).result(WAIT_S)
    # bob: 0.50 + 0.20 + 0.40 within ten minutes; ann: 0.25 + 0.40
    assert isinstance(desk.ledger.hold(call("n3", "0.1", **bob), now).result(WAIT_S), Paused)
    assert isinstance(desk.ledger.hold(call("n4", "0.1", **ann), now).result(WAIT_S), Held)
    desk.close()
    assert desk.chain_ends()
    assert verify(desk.path).wrong is None


def test_its_balances_go_on_and_what_was_open_is_settled(desk):
    desk.look_after()  # call-8, $0.20, was in flight when that program ended
    standings = desk.ledger.look(call("x", "0").payers, "openai", "gpt-5.5", THEN).result(WAIT_S)
    spent = {s.budget.name: (s.spent, s.held) for s in standings}
    # daily: 0.10 + 0.20 on the second day; ever: 0.25 + 1.10 + 0.10 + 0.20.
    assert spent["daily"] == (money("0.3"), money("0"))
    assert spent["ever"] == spent["late"] == (money("1.65"), money("0"))
    assert isinstance(desk.ledger.hold(call("n1", "3.36"), THEN).result(WAIT_S), Short)
    assert isinstance(desk.ledger.hold(call("n2", "2.70"), THEN).result(WAIT_S), Held)
    assert desk.ledger.settle("n2", charge("0.7")).result(WAIT_S).first


def test_its_definitions_are_no_news(desk):
    desk.ledger.define(THEN, "lockpin.yaml").result(WAIT_S)
    events = desk.query("SELECT data FROM rows WHERE code = 'budget_defined' AND writer = ?", desk.ledger.writer_id)
    assert [tuple(row) for row in events] == []


def test_its_rows_are_added_up_by_quarter_hour(desk):
    desk.look_after()
    found = desk.query(
        "SELECT f.task, f.model, sum(t.calls), sum(t.spent_nano), sum(t.refused), sum(t.uncapped) FROM totals t "
        "JOIN facets f ON f.id = t.facet GROUP BY 1, 2 ORDER BY 1, 2"
    )
    assert [tuple(row) for row in found] == [
        ("fix-login", "claude-opus-5", 1, 1_100_000_000, 0, 0),
        ("fix-login", "gpt-5.5", 1, 0, 0, 0),
        ("t", "gpt-5.5", 3, 550_000_000, 1, 1),
    ]


def test_a_budget_that_begins_now_counts_what_was_before(desk):
    more = rules(*THEN.budgets, Budget("opus", "machine", LIFETIME, money("2"), enforce=True, models=("claude-*",)))
    short = desk.ledger.hold(call("n1", "0.91", provider="anthropic", model="claude-opus-5"), more).result(WAIT_S)
    assert [(s.budget.name, s.spent) for s in short.violations] == [("opus", money("1.1"))]


def test_what_it_was_is_kept_beside_it(desk):
    (copy,) = desk.path.parent.glob("ledger.sqlite3.version-1-*")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with closing(sqlite3.connect(copy)) as books:
        assert books.execute("PRAGMA user_version").fetchone() == (1,)
        assert books.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert books.execute("SELECT count(*) FROM rows").fetchone() == (19,)


def test_a_migration_that_fails_leaves_the_ledger_as_it_was(tmp_path):
    path = unpack(tmp_path / "books" / "ledger.sqlite3")
    with closing(sqlite3.connect(path)) as books:
        books.execute("CREATE TABLE totals (in_the_way INTEGER)")
        books.commit()
    before = layout(path)
    with pytest.raises(LedgerError, match=f"cannot be brought to version {schema.VERSION}"):
        open_ledger(path, durability="full", new_id=counted_ids())
    assert layout(path) == before
    with closing(sqlite3.connect(path)) as books:
        assert books.execute("PRAGMA user_version").fetchone() == (1,)


def test_who_only_reads_brings_it_up_too(tmp_path):
    path = unpack(tmp_path / "books" / "ledger.sqlite3")
    with LedgerReader(path) as reader:
        assert reader.call("call-3").charged == money("1.1")


@pytest.mark.parametrize("caught_up", [False, True], ids=["at once", "after its account caught up"])
def test_a_correction_reaches_only_accounts_that_counted_the_call(desk, caught_up):
    desk.ledger.define(THEN, "lockpin.yaml").result(WAIT_S)
    desk.look_after()
    if caught_up:
        desk.admin.task_new("fix-login", limit=money("1"), window="lifetime", who="ann")
    desk.admin.correct("call-3", money("0.10"), reason="billed less", who="ann")  # it was on the task's day account
    desk.admin.task_new("fix-login", limit=money("1"), window="lifetime", who="ann")
    assert isinstance(desk.ledger.hold(call("n1", "1.01", task="fix-login", host="other"), THEN).result(WAIT_S), Short)
    assert isinstance(desk.ledger.hold(call("n2", "1", task="fix-login", host="other"), THEN).result(WAIT_S), Held)
    assert verify(desk.path).wrong is None

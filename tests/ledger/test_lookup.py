import concurrent.futures
import sqlite3
import threading
from contextlib import closing
from datetime import timedelta

import pytest

from lockpin_core.errors import LedgerUnavailable
from lockpin_core.keys import digest_of, new_secret
from lockpin_core.ledger import schema
from lockpin_core.ledger.admin import SqliteAdmin
from lockpin_core.ledger.lookup import Lookup
from lockpin_core.ledger.place import Watch
from tests.ledger.contract import hold
from tests.ledger.desk import NOON, WAIT_S, SqliteDesk, counted_ids
from tests.ledger.key_contract import BARE, FIRST, SECOND, asked, make


@pytest.fixture
def desk(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("lockpin-keys")]


def test_where_nobody_has_a_key_there_is_no_thread_for_them(desk):
    hold(desk, "c1", "0.1")
    before = len(threads())

    make(desk)
    assert len(threads()) == before
    asked(desk, FIRST)
    assert len(threads()) == before + 1
    desk.ledger.stop()
    assert len(threads()) == before


def test_answer_comes_from_another_thread_than_the_one_that_asks(desk):
    make(desk)
    seen = []
    lookup = Lookup(desk.path, Watch(desk.path), lambda: seen.append(threading.current_thread().name) or NOON)
    lookup.ask(FIRST).result(WAIT_S)
    lookup.close()

    assert [name.partition("_")[0] for name in seen] == ["lockpin-keys"]


def test_what_another_connection_has_changed_is_seen_by_the_next_question(desk):
    other = SqliteAdmin(desk.path, clock=desk.clock, new_id=counted_ids("o"))
    for n in range(20):
        digest = digest_of(f"{n}")
        assert asked(desk, digest) is None
        other.key_create(f"k{n}", BARE, digest, lifetime=None, who="ada")
        assert asked(desk, digest).over is None
        other.key_revoke(f"k{n}", who="ada")
        assert asked(desk, digest).over == "revoked"


def test_question_does_not_wait_for_a_commit_that_is_under_way(desk):
    make(desk)
    with closing(sqlite3.connect(desk.path, isolation_level=None)) as books:
        books.execute("BEGIN IMMEDIATE")
        books.execute("UPDATE keys SET revoked = 1")

        assert asked(desk, FIRST).over is None
        books.execute("COMMIT")
    assert asked(desk, FIRST).over == "revoked"


def test_key_is_judged_by_ledger_time_which_never_runs_backwards(desk):
    make(desk, lifetime=timedelta(hours=1))
    desk.clock.pass_by(hours=2)
    hold(desk, "c1", "0.1")
    desk.clock.pass_by(hours=-2)

    assert asked(desk, FIRST).over == "expired"
    assert desk.admin.key_list()[0].over == "expired"


def test_file_that_is_gone_says_nothing_of_any_key_and_does_again_when_it_is_back(desk):
    make(desk)
    asked(desk, FIRST)
    aside = desk.path.with_name("aside")
    desk.path.rename(aside)

    for digest in (FIRST, SECOND):
        with pytest.raises(LedgerUnavailable, match="the ledger file was deleted while in use"):
            asked(desk, digest)
    aside.rename(desk.path)
    assert asked(desk, FIRST).id == "k1"


def test_file_that_was_replaced_says_nothing_of_any_key(desk):
    make(desk)
    copy = desk.path.with_name("copy")
    copy.write_bytes(desk.path.read_bytes())
    desk.path.rename(desk.path.with_name("aside"))
    copy.rename(desk.path)

    with pytest.raises(LedgerUnavailable, match="the ledger file was replaced while in use"):
        asked(desk, FIRST)
    desk.path.with_name("aside").rename(desk.path)


def test_table_that_cannot_be_read_is_a_fault_and_no_unknown_key(desk):
    make(desk)
    with closing(sqlite3.connect(desk.path)) as books:
        books.execute("ALTER TABLE key_digests RENAME TO gone")

    with pytest.raises(LedgerUnavailable, match="the ledger cannot be read: no such table"):
        asked(desk, FIRST)
    with closing(sqlite3.connect(desk.path)) as books:
        books.execute("ALTER TABLE gone RENAME TO key_digests")
    assert asked(desk, FIRST).id == "k1"


def test_connection_that_is_of_no_use_is_made_anew_for_the_next_question(desk):
    make(desk)
    lookup = Lookup(desk.path, Watch(desk.path), desk.clock)
    assert lookup.ask(FIRST).result(WAIT_S).id == "k1"
    lookup._connection.close()

    with pytest.raises(LedgerUnavailable, match="the ledger cannot be read"):
        lookup.ask(FIRST).result(WAIT_S)
    assert lookup.ask(FIRST).result(WAIT_S).id == "k1"
    lookup.close()


def test_ledger_of_a_newer_version_is_a_fault(desk):
    make(desk)
    asked(desk, FIRST)
    with closing(sqlite3.connect(desk.path)) as books:
        books.execute(f"PRAGMA user_version = {schema.VERSION + 1}")

    with pytest.raises(LedgerUnavailable, match=f"version {schema.VERSION + 1} by a newer Lockpin: restart this one"):
        asked(desk, FIRST)
    with closing(sqlite3.connect(desk.path)) as books:
        books.execute(f"PRAGMA user_version = {schema.VERSION}")


def test_ledger_that_is_closed_says_so(desk):
    make(desk)
    lookup = Lookup(desk.path, Watch(desk.path), desk.clock)
    assert lookup.ask(FIRST).result(WAIT_S).id == "k1"
    lookup.close()

    with pytest.raises(LedgerUnavailable, match="the ledger is closed"):
        lookup.ask(FIRST).result(WAIT_S)


def test_many_questions_while_keys_change_are_each_right(desk):
    secrets = [digest_of(new_secret()) for _ in range(40)]
    for n, digest in enumerate(secrets):
        make(desk, f"k{n}", digest, BARE)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        revoked = pool.submit(lambda: [desk.admin.key_revoke(f"k{n}", who="ada") for n in range(0, 40, 2)])
        found = list(pool.map(lambda n: (n, asked(desk, secrets[n % 40])), range(800)))
        revoked.result(WAIT_S)

    assert all(key.id == f"k{n % 40}" and (n % 2 == 0 or key.over is None) for n, key in found)
    assert [asked(desk, digest).over for digest in secrets] == ["revoked", None] * 20

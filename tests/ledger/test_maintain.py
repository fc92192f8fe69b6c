import os
import sqlite3
import stat
import threading
from contextlib import closing

import pytest

from lockpin_core.errors import CommandError
from lockpin_core.ledger.maintain import backup, vacuum
from lockpin_core.ledger.protocol import Held
from lockpin_core.ledger.sqlite import SqliteLedger
from lockpin_core.ledger.verify import verify
from tests.ledger import everything
from tests.ledger.desk import NOON, WAIT_S, SqliteDesk, call, charge, machine, rules
from tests.ledger.everything import forging

RULES = rules(machine("100"))


@pytest.fixture
def desk(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()


def spend(ledger, call_id, dollars="0.001"):
    assert isinstance(ledger.hold(call(call_id, dollars), RULES).result(WAIT_S), Held)
    ledger.settle(call_id, charge(dollars)).result(WAIT_S)


def copy(desk, wanted=None, progress=None):
    return backup(desk.path, wanted, now=NOON, new_id=desk.new_id, progress=progress)


def names(folder):
    return sorted(each.name for each in folder.iterdir())


def test_a_backup_is_a_whole_ledger_beside_it_with_the_instant_in_its_name(desk):
    everything.fill(desk)

    made = copy(desk)

    assert made.path == desk.path.with_name("ledger.backup-2026-10-21T120000Z.sqlite3")
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    assert made.size_bytes == made.path.stat().st_size
    assert made.verdict.wrong is None
    with closing(sqlite3.connect(made.path)) as books:
        tables = [name for (name,) in books.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for name in tables:
            assert books.execute(f"SELECT * FROM {name}").fetchall() == [
                tuple(row) for row in desk.query(f"SELECT * FROM {name}")
            ]
    assert "rows" in tables


def test_a_backup_leaves_nothing_else_behind(desk, tmp_path):
    spend(desk.ledger, "c1")
    folder = tmp_path / "copies"
    folder.mkdir()

    copy(desk, folder)

    assert names(folder) == ["ledger.backup-2026-10-21T120000Z.sqlite3"]


def test_a_backup_can_be_used_as_a_ledger(desk, tmp_path):
    spend(desk.ledger, "c1")
    made = copy(desk, tmp_path / "again.sqlite3")

    with closing_ledger(SqliteLedger(made.path, clock=desk.clock, new_id=desk.new_id)) as ledger:
        spend(ledger, "c2")

    assert verify(made.path).wrong is None
    assert verify(made.path).calls == 2


class closing_ledger:
    def __init__(self, ledger):
        self.ledger = ledger

    def __enter__(self):
        return self.ledger

    def __exit__(self, *_):
        self.ledger.stop()


def test_a_backup_overwrites_nothing(desk, tmp_path):
    spend(desk.ledger, "c1")
    other = tmp_path / "other"
    other.write_text("mine")

    with pytest.raises(CommandError, match="is there already, and a backup overwrites nothing"):
        copy(desk, other)
    assert other.read_text() == "mine"


def test_a_place_that_is_not_there_is_one_line(desk, tmp_path):
    spend(desk.ledger, "c1")

    with pytest.raises(CommandError, match="cannot be written: No such file or directory; name another place"):
        copy(desk, tmp_path / "absent" / "copy")


def test_a_copy_of_a_wrong_ledger_says_so(desk):
    spend(desk.ledger, "c1")
    with forging(desk.path) as books:
        books.execute("UPDATE rows SET usd = usd + 1 WHERE kind = 'charge'")

    made = copy(desk)

    assert made.verdict.wrong is not None
    assert made.path.exists()


def test_a_backup_beside_a_ledger_in_use_ends_and_is_right(desk):
    for n in range(400):
        desk.ledger.hold(call(f"c{n}", "0.001"), RULES)
    spend(desk.ledger, "last")
    done, written = threading.Event(), []

    def work():
        while not done.is_set():
            spend(desk.ledger, f"w{len(written)}")
            written.append(len(written))

    worker = threading.Thread(target=work)
    worker.start()
    told = []

    def progress(left, total):
        told.append((left, total))
        count = len(written)
        while len(written) == count and worker.is_alive():  # the ledger goes on between two slices
            pass

    made = copy(desk, progress=progress)
    done.set()
    worker.join(WAIT_S)

    assert made.verdict.wrong is None
    assert told[-1][0] == told[-1][1] > 0
    assert verify(desk.path).wrong is None


def test_vacuum_gives_back_what_was_taken_out(desk):
    for n in range(500):
        desk.ledger.hold(call(f"c{n}", "0.001"), RULES)
    spend(desk.ledger, "last")
    desk.ledger.stop()
    with closing(sqlite3.connect(desk.path, isolation_level=None)) as books:
        books.execute("CREATE TABLE ballast AS SELECT randomblob(100000) FROM rows LIMIT 50")
        books.execute("DROP TABLE ballast")
    before = desk.path.stat().st_size

    done = vacuum(desk.path, new_id=desk.new_id)

    assert done.before_bytes == before
    assert done.after_bytes == desk.path.stat().st_size < before - 4_000_000
    assert verify(desk.path).wrong is None
    desk.ledger = desk.open()


def test_vacuum_is_refused_while_a_proxy_runs(desk):
    spend(desk.ledger, "c1")

    with pytest.raises(CommandError, match=r"a proxy runs on .*; vacuum needs the ledger for itself: stop, vacuum"):
        vacuum(desk.path, new_id=desk.new_id)


def test_the_lock_of_a_proxy_that_is_dead_does_not_stop_vacuum(desk):
    spend(desk.ledger, "c1")
    desk.ledger.stop()
    folder = desk.path.with_name(desk.path.name + ".writers")
    os.close(os.open(folder / "dead", os.O_CREAT | os.O_WRONLY, 0o600))

    assert vacuum(desk.path, new_id=desk.new_id).after_bytes > 0
    desk.ledger = desk.open()

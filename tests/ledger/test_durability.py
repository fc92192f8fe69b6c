"""What is left on a disk that lost its power, filled up, or failed: whatever was answered, and whole books."""

import itertools
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from faultvfs import FULL, IOERR_FSYNC, IOERR_WRITE, faults, is_possible

from lockpin_core.errors import LedgerError, LedgerUnavailable
from lockpin_core.ledger.place import open_ledger
from lockpin_core.ledger.protocol import Held
from lockpin_core.ledger.writer import deliver_here
from tests.ledger import desk as d
from tests.ledger.desk import WAIT_S, SqliteDesk, call, charge, machine, rules

pytestmark = pytest.mark.skipif(not is_possible(), reason="this Python's SQLite is built in and cannot be reached")

MANY = rules(machine("100"))


def opened(path):
    open_ledger(path, durability="full", new_id=d.counted_ids()).close()


class LostDesk(SqliteDesk):
    """The books as they are found after a loss of power, in a folder of their own."""

    def __init__(self, folder, image, ledger):
        folder.mkdir(parents=True)
        self.path = folder / ledger.name
        for end in ("", "-wal"):
            Path(f"{self.path}{end}").write_bytes(image.get(f"{ledger}{end}", b""))
        with closing(sqlite3.connect(self.path)) as books:
            assert books.execute("PRAGMA integrity_check").fetchall() == [("ok",)]

    def calls(self):
        return calls(self)


def calls(desk):
    """Give (kind, call) of every row of a call, and find the books whole."""
    desk.chain_ends()
    assert d.nonzero(desk.accounts()) == desk.explained()
    rows = [(row["kind"], row["call"]) for row in desk.query("SELECT kind, call FROM rows ORDER BY id")]
    open_ones = {row["call"] for row in desk.query("SELECT call FROM open_holds")}
    resolved = {name for kind, name in rows if kind in ("charge", "void")}
    assert open_ones == {name for kind, name in rows if kind == "hold"} - resolved
    return [(kind, name) for kind, name in rows if name is not None]


def kept_after_loss(folder, synchronous, chance=None):
    """Insert three rows, each committed, into a plain database, and give those that a loss of power leaves."""
    with faults() as disk:
        path = folder / f"{synchronous}.sqlite3"
        with closing(sqlite3.connect(path, isolation_level=None)) as books:
            books.execute("PRAGMA journal_mode = WAL")
            books.execute("CREATE TABLE t (a)")
            books.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            books.execute(f"PRAGMA synchronous = {synchronous}")
            for n in range(3):
                books.execute("INSERT INTO t VALUES (?)", (n,))
            image = disk.image(chance)
    lost = folder / f"lost-{synchronous}.sqlite3"
    for end in ("", "-wal"):
        Path(f"{lost}{end}").write_bytes(image[f"{path}{end}"])
    with closing(sqlite3.connect(lost)) as books:
        return [row[0] for row in books.execute("SELECT a FROM t ORDER BY a")]


def test_the_disk_forgets_what_was_not_synced_and_nothing_else(tmp_path):
    assert kept_after_loss(tmp_path, "FULL") == [0, 1, 2]
    assert kept_after_loss(tmp_path, "NORMAL") == []


def spend(desk, count, seed=1):
    """Hold and settle at random, up to three at once, and give each answer's row when it is there."""
    chance, numbers, open_ones = random.Random(seed), itertools.count(), []
    while count > 0:
        asked = []
        for _ in range(chance.randint(1, 3)):
            if open_ones and chance.random() < 0.4:
                name = open_ones.pop(chance.randrange(len(open_ones)))
                asked.append(("charge", name, desk.ledger.settle(name, charge("0.01"))))
            else:
                name = f"c{next(numbers)}"
                asked.append(("hold", name, desk.ledger.hold(call(name, "0.02"), MANY)))
        for kind, name, future in asked:
            answer = future.result(WAIT_S)
            if kind == "hold":
                assert isinstance(answer, Held)
                open_ones.append(name)
            yield kind, name
            count -= 1


def spend_and_lose(folder, durability, count):
    """Spend; give the desk's place, its disk's log, the last rows, and (number of answers, image) at many points."""
    told, images, synced, chance = [], [], [], random.Random(count)

    def photograph(step):
        if chance.random() < 60 / (count * 40):
            images.append((len(told), disk.image(chance)))

    def deliver(actions):
        """Look at the disk in the writer's own thread: when an answer has come, the next commit may be on its way."""
        synced.append(disk.steps("-wal", "sync")[-1:] > disk.steps("-wal", "write")[-1:])
        deliver_here(actions)

    with faults() as disk:
        desk = SqliteDesk(folder)
        desk.ledger.stop()
        desk.ledger = desk.open(durability=durability, deliver=deliver)
        disk.log.clear()
        disk.seen = photograph
        for done in spend(desk, count):
            told.append(done)
            if chance.random() < 40 / count:
                images.append((len(told), disk.image(chance if chance.random() < 0.5 else None)))
        disk.seen = lambda step: None
        assert all(synced) is (durability == "full")
        assert len(synced) >= count // 3
        rows = calls(desk)
        syncs = len(disk.steps("-wal", "sync"))
        desk.close()
    assert set(told) <= set(rows)
    return desk.path, told, rows, images, syncs


def test_what_was_answered_is_on_disk_when_the_power_goes(tmp_path):
    path, told, rows, images, syncs = spend_and_lose(tmp_path, "full", 60)

    assert len(images) > 30
    assert syncs >= 25
    for n, (answered, image) in enumerate(images):
        found = LostDesk(tmp_path / f"lost{n}", image, path).calls()
        assert set(told[:answered]) <= set(found)
        assert found == rows[: len(found)]


def test_a_ledger_serves_on_after_a_loss_of_power(tmp_path):
    with faults() as disk:
        desk = SqliteDesk(tmp_path)
        told = list(spend(desk, 20))
        image = disk.image()
        desk.close()
    found = LostDesk(tmp_path / "lost", image, desk.path)
    found.clock, found.new_id, found.faults = d.SetClock(), d.counted_ids("after"), []
    found.ledger = found.open()
    assert isinstance(found.ledger.hold(call("after", "0.02"), MANY).result(WAIT_S), Held)
    assert found.ledger.settle("after", charge("0.01")).result(WAIT_S).first
    found.ledger.stop()
    assert found.query("SELECT call FROM open_holds") == []  # whoever had them has no lock: they were charged
    assert {*told, ("hold", "after"), ("charge", "after")} <= set(found.calls())


def test_a_disk_that_is_full_while_a_ledger_is_made_leaves_none(tmp_path):
    with faults() as disk:
        opened(tmp_path / "sound")
        writes = len(disk.steps("", "write"))
        assert writes > 20
        for n in range(0, writes, 5):
            disk.fail_after(n, FULL)
            path = tmp_path / f"full{n}" / "ledger.sqlite3"
            with pytest.raises(LedgerError, match=r"cannot be (created|opened): database or disk is full"):
                opened(path)
            disk.heal()
            assert [file.name for file in path.parent.iterdir()] == []
            opened(path)


def test_durability_normal_syncs_no_commit_and_loses_only_the_end(tmp_path):
    path, _, rows, images, syncs = spend_and_lose(tmp_path, "normal", 60)

    assert len(images) > 30
    assert syncs <= 1  # the log's head, once
    lengths = set()
    for n, (_, image) in enumerate(images):
        found = LostDesk(tmp_path / f"lost{n}", image, path).calls()
        assert found == rows[: len(found)]
        lengths.add(len(found))
    assert min(lengths) < len(rows)


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_the_power_may_go_while_the_log_is_carried_over(tmp_path, durability):
    with faults() as disk:
        images, chance, told = [], random.Random(5), []
        desk = SqliteDesk(tmp_path)
        desk.ledger.stop()
        desk.ledger = desk.open(durability=durability)

        def photograph(step):
            if step.path == str(desk.path) and chance.random() < 0.8:
                images.append((len(told), disk.image(chance)))

        disk.seen = photograph
        for done in spend(desk, 250):
            told.append(done)
        disk.seen = lambda step: None
        rows = calls(desk)
        desk.close()
    assert len(images) > 10
    for n, (answered, image) in enumerate(images):
        found = LostDesk(tmp_path / f"lost{n}", image, desk.path).calls()
        assert found == rows[: len(found)]
        if durability == "full":
            assert set(told[:answered]) <= set(found)


class Ten:
    """Six holds and the settlements of four, whatever the disk says in between."""

    def __init__(self, desk):
        self.desk, self.held, self.settled = desk, [], {}
        for number, settled in enumerate([(), (), ("c0",), ("c1",), ("c2", "c3"), ()]):
            self.hold(f"c{number}")
            self.settled |= {n: desk.ledger.settle(n, charge("0.01")) for n in settled if n in self.held}

    def hold(self, name):
        try:
            answer = self.desk.ledger.hold(call(name, "0.02"), MANY).result(WAIT_S)
        except LedgerUnavailable:
            return
        assert isinstance(answer, Held)
        self.held.append(name)

    def check(self):
        """Close, and find on the books what was answered, once each, and nothing else."""
        firsts = [future.result(WAIT_S).first for future in self.settled.values()]
        found = calls(self.desk)
        assert firsts == [True] * len(firsts)
        assert sorted(name for kind, name in found if kind == "hold") == sorted(self.held)
        assert {name for kind, name in found if kind == "charge"} >= set(self.settled)
        assert len(set(found)) == len(found)


def writes_of_ten(folder, disk):
    desk = SqliteDesk(folder)
    before = len(disk.steps("", "write"))
    ten = Ten(desk)
    for future in ten.settled.values():
        future.result(WAIT_S)
    writes = len(disk.steps("", "write")) - before
    desk.close()
    ten.check()
    assert len(ten.held) == 6
    return writes


def test_a_disk_that_fills_up_at_any_write_loses_nothing(tmp_path):
    refused = 0
    with faults() as disk:
        writes = writes_of_ten(tmp_path / "sound", disk)
        assert writes > 100
        for n in range(100):
            desk = SqliteDesk(tmp_path / f"full{n}")
            disk.fail_after(n * writes // 100, FULL)
            ten = Ten(desk)
            refused += 6 - len(ten.held)
            disk.heal()
            if n % 10 == 0:  # it serves again by itself, whether or not somebody asks
                for future in ten.settled.values():
                    assert future.result(WAIT_S).first
            if n % 2 == 0:
                ten.hold("later")
                assert ten.held[-1] == "later"
                assert desk.faults in ([], ["ledger_unavailable", ""])
            desk.close()
            ten.check()
    assert refused > 200


def test_a_full_disk_is_one_fault_until_a_write_works(tmp_path):
    with faults() as disk:
        desk = SqliteDesk(tmp_path)
        ten = Ten(desk)
        disk.fail_after(0, FULL)
        for n in range(3):
            with pytest.raises(LedgerUnavailable, match="full"):
                desk.ledger.hold(call(f"full{n}", "0.02"), MANY).result(WAIT_S)
        late = desk.ledger.settle("c4", charge("0.01"))
        with pytest.raises(TimeoutError):
            late.result(0.6)
        disk.heal()
        assert late.result(WAIT_S).first
        assert desk.faults == ["ledger_unavailable", ""]
        desk.close()
        ten.check()


def test_a_log_that_filled_the_disk_is_carried_over_and_writing_goes_on(tmp_path):
    """A reader kept the log from being emptied until there was no room for it.

    SQLite empties the log after a commit that worked, and none does: when the reader goes, the writer must see to it.
    """
    with faults() as disk:
        desk = SqliteDesk(tmp_path)
        ten = Ten(desk)
        for future in ten.settled.values():
            future.result(WAIT_S)
        with closing(sqlite3.connect(desk.path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM rows").fetchone()
            disk.limit("-wal", Path(f"{desk.path}-wal").stat().st_size)
            ten.hold("refused")
            assert "refused" not in ten.held
            ten.settled["c4"] = desk.ledger.settle("c4", charge("0.01"))
            with pytest.raises(TimeoutError):
                ten.settled["c4"].result(0.6)

        assert ten.settled["c4"].result(WAIT_S).first
        ten.hold("later")
        assert ten.held[-1] == "later"
        assert desk.faults == ["ledger_unavailable", ""]
        desk.close()
        ten.check()


@pytest.mark.parametrize(("code", "kind"), [(IOERR_FSYNC, "sync"), (IOERR_WRITE, "write"), (FULL, "sync")])
def test_a_commit_that_failed_once_is_refused_or_booked_and_never_half(tmp_path, code, kind):
    with faults() as disk:
        for n in range(12):
            desk = SqliteDesk(tmp_path / f"{n}")
            disk.fail_after(n if kind == "sync" else n * 9, code, kind=kind, suffix="-wal", times=1)
            ten = Ten(desk)
            assert len(ten.held) >= 5
            for future in ten.settled.values():
                assert future.result(WAIT_S).first
            disk.heal()
            ten.hold("later")
            image = disk.image()
            found = calls(desk)
            desk.close()
            ten.check()
            assert ten.held[-1] == "later"
            assert LostDesk(tmp_path / f"lost{n}", image, desk.path).calls() == found


@pytest.mark.parametrize(("code", "kind"), [(IOERR_FSYNC, "sync"), (IOERR_WRITE, "write"), (FULL, "write")])
def test_a_log_that_cannot_be_carried_over_refuses_nobody(tmp_path, code, kind):
    with faults() as disk:
        desk = SqliteDesk(tmp_path)
        disk.fail_after(0, code, kind=kind, suffix=desk.path.name, times=2)
        told = list(spend(desk, 250))
        failed = [step for step in disk.log if step.code]
        image = disk.image()
        found = calls(desk)
        desk.close()

    assert [step.path for step in failed] == [str(desk.path)] * 2
    assert set(told) <= set(found)
    assert LostDesk(tmp_path / "lost", image, desk.path).calls() == found

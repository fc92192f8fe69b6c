import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from lockpin_core.errors import LedgerError, LedgerUnavailable
from lockpin_core.ledger import place, schema
from lockpin_core.ledger.place import Watch, connect, network_kind, open_ledger
from tests.ledger.desk import counted_ids

MOUNTS = """/dev/vda / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/vol /net nfs4 rw 0 0
/dev/vdb /net/local\\040disk ext4 rw 0 0
me@host: /mnt/far fuse.sshfs rw 0 0
bucket: /mnt/bucket fuse.rclone rw 0 0
/dev/sdb1 /mnt/stick fuse.ntfs rw 0 0
share /mnt/a\\011b smb3 rw 0 0
"""


def opened(path):
    open_ledger(path, durability="full", new_id=counted_ids()).close()


def test_folders_are_made(tmp_path):
    path = tmp_path / "a" / "b" / "ledger.sqlite3"
    opened(path)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    opened(path)


def test_a_folder_is_no_ledger(tmp_path):
    with pytest.raises(LedgerError, match=f"{tmp_path} is a folder"):
        opened(tmp_path)


def test_a_file_below_a_file_cannot_be(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(LedgerError, match="cannot be opened"):
        opened(tmp_path / "file" / "ledger.sqlite3")


def test_text_is_no_ledger(tmp_path):
    path = tmp_path / "ledger.sqlite3"
    path.write_text("budget: 5\n" * 200)
    with pytest.raises(LedgerError, match="not a database"):
        opened(path)
    assert path.read_text().startswith("budget: 5")


def test_an_empty_file_is_no_ledger(tmp_path):
    path = tmp_path / "ledger.sqlite3"
    path.touch()
    with pytest.raises(LedgerError, match="is an empty file; remove it"):
        opened(path)


def test_another_programs_database_is_left_alone(tmp_path):
    path = tmp_path / "history.sqlite"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE visits (url TEXT)")
        other.commit()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="is a database, but no Lockpin ledger"):
        opened(path)
    assert path.read_bytes() == before


def test_a_newer_ledger_is_refused(tmp_path):
    path = tmp_path / "ledger.sqlite3"
    opened(path)
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 99")
    with pytest.raises(LedgerError, match=r"has ledger version 99; this Lockpin knows up to \d+: use a newer one"):
        opened(path)


def test_a_reader_does_not_make_a_ledger(tmp_path):
    with pytest.raises(LedgerError, match="cannot be opened"):
        connect(tmp_path / "none.sqlite3", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_name_with_marks_of_a_uri_is_a_name(tmp_path):
    path = tmp_path / "a?mode=memory&x#%41.sqlite3"
    opened(path)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_not_writable_is_said_to_be(tmp_path):
    path = tmp_path / "ledger.sqlite3"
    opened(path)
    tmp_path.chmod(0o500)
    with pytest.raises(LedgerError, match="not writable"):
        opened(path)


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/net/me", "nfs4"),
        ("/net", "nfs4"),
        ("/nets", None),
        ("/net/local disk/x", None),
        ("/tmp/x", None),
        ("/mnt/far", "fuse.sshfs"),
        ("/mnt/bucket/x", "fuse.rclone"),
        ("/mnt/stick", None),
        ("/mnt/a\tb", "smb3"),
        ("/", None),
    ],
)
def test_network_file_systems_are_known_by_their_mount(folder, kind):
    assert network_kind(Path(folder), MOUNTS) == kind


def test_a_ledger_on_a_network_file_system_is_refused_also_behind_a_link(tmp_path):
    mounts = tmp_path / "mounts"
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/vol {tmp_path / 'far'} nfs4 rw 0 0\n")
    for folder in ("far", "near"):
        with pytest.raises(LedgerError, match=r"network file system \(nfs4\), .* use a local disk, or PostgreSQL"):
            place._refuse_network(tmp_path / folder / "ledger.sqlite3", mounts)
    place._refuse_network(tmp_path / "ledger.sqlite3", mounts)
    place._refuse_network(tmp_path / "far" / "ledger.sqlite3", tmp_path / "no table of mounts")


def test_a_pipe_is_no_ledger(tmp_path):
    path = tmp_path / "ledger.sqlite3"
    os.mkfifo(path)
    with pytest.raises(LedgerError, match="is no regular file; name a file"):
        opened(path)


def test_every_file_of_a_ledger_is_ours_alone(tmp_path):
    path = tmp_path / "ledger.sqlite3"
    with closing(open_ledger(path, durability="full", new_id=counted_ids())) as books:
        books.execute("INSERT INTO meta VALUES ('a', 'b')")
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == dict.fromkeys(["ledger.sqlite3", "ledger.sqlite3-wal", "ledger.sqlite3-shm"], 0o600)


@pytest.mark.parametrize(("durability", "settings"), [("full", [2, 1, 1]), ("normal", [1, 0, 0])])
def test_durability_reaches_the_disk(tmp_path, durability, settings):
    names = ("synchronous", "fullfsync", "checkpoint_fullfsync")
    with closing(open_ledger(tmp_path / "l", durability=durability, new_id=counted_ids())) as books:
        assert [books.execute(f"PRAGMA {name}").fetchone()[0] for name in names] == settings


def test_what_only_says_that_it_is_an_older_ledger_is_left_as_it_was(tmp_path):
    path = tmp_path / "ledger.sqlite3"
    with closing(sqlite3.connect(path)) as old:
        old.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        old.execute("PRAGMA user_version = 1")
        old.execute("CREATE TABLE something (a)")
    with pytest.raises(LedgerError, match="cannot be brought to version"):
        connect(path, read_only=True)
    with pytest.raises(LedgerError, match="cannot be brought to version"):
        opened(path)
    connect(path, read_only=False).close()


@pytest.fixture
def linked(tmp_path):
    """A link, in one folder, to a ledger in another, made and opened through the link."""
    for name in ("links", "books"):
        (tmp_path / name).mkdir()
    link = tmp_path / "links" / "ledger"
    link.symlink_to(tmp_path / "books" / "real.sqlite3")
    with closing(open_ledger(link, durability="full", new_id=counted_ids())):
        yield link


def test_a_ledger_is_made_where_a_link_leads(linked, tmp_path):
    assert [path.name for path in linked.parent.iterdir()] == ["ledger"]
    names = sorted(path.name for path in (tmp_path / "books").iterdir())
    assert names == ["real.sqlite3", "real.sqlite3-shm", "real.sqlite3-wal"]


def test_a_loop_of_links_is_no_ledger(tmp_path):
    path = tmp_path / "ledger"
    path.symlink_to(path)
    with pytest.raises(LedgerError, match="cannot be opened"):
        opened(path)


def test_a_ledger_behind_a_link_is_watched_where_it_is(linked, tmp_path):
    watch = Watch(linked)
    watch.check()
    log = tmp_path / "books" / "real.sqlite3-wal"
    log.rename(tmp_path / "away")
    with pytest.raises(LedgerUnavailable, match=f"^the ledger log was deleted while in use: {log}$"):
        watch.check()
    (tmp_path / "away").rename(log)
    watch.check()


def test_a_link_that_leads_elsewhere_is_a_replaced_ledger(linked, tmp_path):
    watch = Watch(linked)
    other = tmp_path / "books" / "other.sqlite3"
    opened(other)
    linked.unlink()
    linked.symlink_to(other)
    with pytest.raises(LedgerUnavailable, match=f"^the ledger file was replaced while in use: {linked}$"):
        watch.check()


@pytest.mark.parametrize(("end", "part"), [("", "file"), ("-wal", "log")])
def test_a_watch_says_what_became_of_which_file(tmp_path, end, part):
    path = tmp_path / "ledger.sqlite3"
    with closing(open_ledger(path, durability="full", new_id=counted_ids())):
        watch = Watch(path)
        file = tmp_path / f"ledger.sqlite3{end}"
        file.rename(tmp_path / "away")
        with pytest.raises(LedgerUnavailable, match=f"^the ledger {part} was deleted while in use: {file}$"):
            watch.check()
        file.write_bytes((tmp_path / "away").read_bytes())
        with pytest.raises(LedgerUnavailable, match=f"^the ledger {part} was replaced while in use: {file}$"):
            watch.check()
        (tmp_path / "away").replace(file)
        watch.check()
        if not end:
            tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-moved"))
            with pytest.raises(LedgerUnavailable, match=r"^the ledger file was deleted while in use"):
                watch.check()

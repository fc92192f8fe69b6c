import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from lockpin_core.errors import LedgerError
from lockpin_core.ledger.place import connect, network_kind, open_ledger
from tests.ledger.desk import counted_ids

MOUNTS = """/dev/vda / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/vol /net nfs4 rw 0 0
/dev/vdb /net/local\\040disk ext4 rw 0 0
me@host: /mnt/far fuse.sshfs rw 0 0
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
    with pytest.raises(LedgerError, match=r"has ledger version 99; this Lockpin knows up to 1: use a newer one"):
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
        ("/", None),
    ],
)
def test_network_file_systems_are_known_by_their_mount(folder, kind):
    assert network_kind(Path(folder), MOUNTS) == kind

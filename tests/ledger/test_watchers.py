import os
import stat

import pytest

from lockpin_core.errors import LedgerError
from lockpin_core.ledger.watchers import BEAT_S, GONE_S, Watcher, _is_there, folder_of, watching


class Ticks:
    now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def ticks():
    return Ticks()


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "ledger.sqlite3"


def test_nobody_watches_a_ledger_that_nobody_has_ever_watched(ledger, ticks):
    assert watching(ledger, ticks) == 0
    assert not folder_of(ledger).exists()


def test_who_watches_is_counted_until_the_block_ends(ledger, ticks):
    with Watcher(ledger, "a", ticks), Watcher(ledger, "b", ticks):
        assert watching(ledger, ticks) == 2
    assert watching(ledger, ticks) == 0
    assert list(folder_of(ledger).iterdir()) == []


def test_who_has_shown_nothing_for_ten_seconds_is_gone(ledger, ticks):
    seen = []
    with Watcher(ledger, "a", ticks) as watcher:
        for ticks.now_s in (1000.0, 1009.9, 1010.0, 5000.0):
            seen.append(watching(ledger, ticks))
        watcher.beat()
        seen.append(watching(ledger, ticks))
    assert seen == [1, 1, 0, 0, 1]


def test_a_file_from_before_the_machine_was_started_anew_is_nobodys(ledger, ticks):
    with Watcher(ledger, "a", ticks):
        ticks.now_s = 3.0
        assert watching(ledger, ticks) == 0


def test_who_comes_sweeps_away_who_is_gone(ledger, ticks):
    with Watcher(ledger, "gone", ticks) as gone:
        ticks.now_s += GONE_S
        with Watcher(ledger, "a", ticks):
            assert [file.name for file in folder_of(ledger).iterdir()] == ["a"]
            gone.beat()  # it was only stopped
            assert watching(ledger, ticks) == 2


def test_it_is_shown_no_more_often_than_needed(ledger, ticks):
    with Watcher(ledger, "a", ticks) as watcher:
        os.utime(folder_of(ledger) / "a", (1, 1))
        ticks.now_s += BEAT_S - 0.01
        watcher.beat()
        assert watching(ledger, ticks) == 0
        ticks.now_s += 0.01
        watcher.beat()
        assert watching(ledger, ticks) == 1


def test_a_file_that_goes_while_it_is_looked_at_is_nobodys():
    class Gone:
        def stat(self, *, follow_symlinks):
            raise FileNotFoundError

    assert not _is_there(Gone(), 0)


def test_two_names_of_a_ledger_have_one_folder_and_only_its_owner_sees_it(tmp_path, ledger, ticks):
    ledger.touch()
    other = tmp_path / "link.sqlite3"
    other.symlink_to(ledger)
    with Watcher(other, "a", ticks):
        assert watching(ledger, ticks) == 1
        assert stat.S_IMODE(folder_of(ledger).stat().st_mode) == 0o700
        assert stat.S_IMODE((folder_of(ledger) / "a").stat().st_mode) == 0o600


def test_where_no_file_can_be_made_it_is_said_in_a_line(tmp_path, ticks):
    (tmp_path / "file").touch()
    watcher = Watcher(tmp_path / "file" / "ledger.sqlite3", "a", ticks)
    with pytest.raises(LedgerError, match="by which proxies see who watches, cannot be made: Not a directory"):
        watcher.__enter__()

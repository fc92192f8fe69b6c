"""Locks that tell the living from the dead, tried with real processes: killed, stopped, many at once."""

import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from processes import until

from lockpin_core.errors import LedgerError, LedgerUnavailable
from lockpin_core.ledger.liveness import Liveness

ROOT = Path(__file__).parents[2]

# Joins (also again and again, as `restless`) or claims whoever it can (as `claimer`) until its input ends.
WORKER = """
import sys, threading
from pathlib import Path
from lockpin_core.ledger.liveness import Liveness

ledger, writer, role = sys.argv[1:]
end = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), end.set()), daemon=True).start()
live = Liveness(Path(ledger))
live.join(writer)
print("in", flush=True)
rounds = 0
while not end.is_set():
    if role == "restless" and rounds < 100:
        live.leave()
        live.join(writer)
        assert live.is_ours()
        rounds += 1
    elif role == "claimer":
        for other in live.others():
            live.is_alive(other)
            claim = live.claim(other)
            if claim is not None:
                with claim:
                    if claim.had_file:
                        print("claimed", other, flush=True)
        end.wait(0.005)
    else:
        end.wait()
assert live.is_ours()
live.leave()
print("out", rounds)
"""


@contextmanager
def worker(ledger, writer, role="sitter", wait=True):
    command = [sys.executable, "-P", "-c", WORKER, str(ledger), writer, role]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment)
    try:
        assert not wait or process.stdout.readline() == "in\n"
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def ledger(tmp_path):
    return tmp_path / "ledger.sqlite3"


@pytest.fixture
def live(ledger):
    made = Liveness(ledger)
    made.join("us")
    yield made
    made.leave()


def names(live):
    return sorted(path.name for path in live.folder.iterdir())


def test_a_joined_writer_has_a_locked_file_of_its_own(live, ledger):
    path = ledger.with_name("ledger.sqlite3.writers") / "us"
    assert [stat.S_IMODE(place.stat().st_mode) for place in (path.parent, path)] == [0o700, 0o600]
    assert names(live) == ["us"]
    assert live.is_ours()
    assert Liveness(ledger).is_alive("us")
    assert Liveness(ledger).claim("us") is None


def test_a_folder_open_to_others_is_closed_to_them(ledger):
    live = Liveness(ledger)
    live.folder.mkdir()
    live.folder.chmod(0o755)
    live.join("us")
    assert stat.S_IMODE(live.folder.stat().st_mode) == 0o700
    live.leave()


def test_leaving_twice_is_leaving_once(live):
    live.leave()
    live.leave()
    assert names(live) == []
    assert not live.is_ours()
    assert not live.is_alive("us")
    live.join("again")
    assert names(live) == ["again"]


def test_our_own_lock_cannot_be_claimed_by_us(live):
    assert live.claim("us") is None
    assert live.is_alive("us")


def test_only_finished_files_of_others_are_others(live):
    for name in ("b", "a-1", ".hidden", "x.tmp", "ö"):
        (live.folder / name).touch()
    assert live.others() == ["a-1", "b"]
    assert Liveness(live.folder.parent / "other.sqlite3").others() == []


@pytest.mark.parametrize("writer", ["", "..", "a/b", ".us", "a b", "a\n", "ö"])
def test_an_id_that_could_be_a_path_is_refused(live, writer):
    for act in (Liveness(live.folder.parent / "l").join, live.claim, live.is_alive):
        with pytest.raises(LedgerError, match='letters, digits and "-" are allowed'):
            act(writer)


def test_a_killed_writer_is_dead_at_once(live, ledger):
    with worker(ledger, "w1") as process:
        assert live.others() == ["w1"]
        assert live.is_alive("w1")
        assert live.claim("w1") is None
        process.kill()
        process.wait()

        assert not live.is_alive("w1")
        with live.claim("w1") as claim:
            assert (claim.writer, claim.had_file) == ("w1", True)
        assert names(live) == ["us"]


def test_a_stopped_writer_lives_for_as_long_as_it_is_stopped(live, ledger):
    with worker(ledger, "w1") as process:
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        for file in live.folder.iterdir():
            os.utime(file, (0, 0))  # no clock decides: an age of fifty years is no death

        assert live.is_alive("w1")
        assert live.claim("w1") is None
        process.send_signal(signal.SIGCONT)
        assert process.communicate("")[0] == "out 0\n"
    assert names(live) == ["us"]


def test_a_program_that_a_writer_started_does_not_live_for_it(live, ledger):
    code = WORKER.replace('print("in"', 'import subprocess\nprint(subprocess.Popen(["sleep", "60"], stdout=-3).pid')
    command = [sys.executable, "-P", "-c", code, str(ledger), "w1", "sitter"]
    process = subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    child = int(process.stdout.readline())
    try:
        process.kill()
        process.communicate()
        os.kill(child, 0)
        assert not live.is_alive("w1")
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_dead_writer_is_claimed_by_one(live, ledger):
    (live.folder / "dead").touch()
    other = Liveness(ledger)
    with live.claim("dead") as claim:
        assert claim.had_file
        assert other.claim("dead") is None
        assert other.is_alive("dead")
    assert not other.claim("dead").had_file


def test_a_claim_that_fails_leaves_the_dead_to_be_claimed_again(live):
    (live.folder / "dead").touch()
    with pytest.raises(LedgerUnavailable), live.claim("dead"):
        raise LedgerUnavailable("busy")
    assert live.others() == ["dead"]
    with live.claim("dead") as claim:
        assert claim.had_file
    assert live.others() == []


def test_a_writer_without_a_file_is_dead(live):
    assert not live.is_alive("gone")
    with live.claim("gone") as claim:
        assert not claim.had_file
    assert names(live) == ["us"]


def test_a_file_removed_between_opening_and_locking_is_gone(live):
    """A lock on what the path does not name any more is no claim, as when two come for one dead writer."""
    dead = live.folder / "dead"
    dead.touch()

    class Slow(Liveness):
        def _path_of(self, writer):
            return RemovedOnce(super()._path_of(writer))

    class RemovedOnce(type(dead)):
        def __fspath__(self):
            opened = str(self)
            if dead.exists():
                dead.rename(dead.with_name(".removed"))
                return str(dead.with_name(".removed"))
            return opened

    claim = Slow(live.folder.parent / "ledger.sqlite3").claim("dead")

    assert not claim.had_file


def test_a_probe_frees_its_lock_at_once(live):
    (live.folder / "dead").touch()
    assert not live.is_alive("dead")
    with (live.folder / "dead").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert live.is_alive("dead")


def test_what_cannot_be_opened_lives(live):
    (live.folder / "folder").mkdir()
    (live.folder / "loop").symlink_to("loop")
    assert live.is_alive("loop")
    assert live.claim("loop") is None


def test_a_deleted_folder_is_noticed_and_made_again(live, ledger):
    shutil.rmtree(live.folder)
    assert not live.is_ours()
    assert not Liveness(ledger).is_alive("us")

    live.restore()

    assert live.is_ours()
    assert Liveness(ledger).is_alive("us")
    assert stat.S_IMODE(live.folder.stat().st_mode) == 0o700
    held = live._descriptor
    live.restore()
    assert live._descriptor == held


def test_a_file_put_in_our_place_is_not_ours(live, ledger):
    path = live.folder / "us"
    path.unlink()
    path.touch()
    assert not live.is_ours()
    live.restore()
    assert live.is_ours()
    assert Liveness(ledger).is_alive("us")


def test_a_foreign_file_in_our_place_stays_when_we_leave(live):
    path = live.folder / "us"
    path.unlink()
    path.touch()
    live.leave()
    assert path.exists()


def test_a_lock_that_cannot_be_made_again_is_one_line(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    live = Liveness(home / "ledger.sqlite3")
    live.join("us")
    home.rename(tmp_path / "away")
    with pytest.raises(LedgerUnavailable, match=r"^the lock .*/us is gone and cannot be made again: No such file"):
        live.restore()
    (tmp_path / "away").rename(home)
    assert live.is_ours()
    live.leave()


def test_a_place_without_locks_is_one_line(tmp_path):
    (tmp_path / "ledger.sqlite3.writers").touch()
    live = Liveness(tmp_path / "ledger.sqlite3")
    with pytest.raises(
        LedgerError, match=r"^the lock .*/us cannot be made: .*local disk, in a folder that it may write"
    ):
        live.join("us")
    assert not live.is_ours()
    live.leave()


def test_a_ledger_behind_a_link_has_the_locks_of_its_real_place(live, ledger, tmp_path):
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "books"
    link.symlink_to(ledger)
    assert Liveness(link).folder == live.folder
    assert Liveness(link).is_alive("us")


def test_a_failed_join_leaves_nothing(ledger):
    live = Liveness(ledger)
    (live.folder / "us").mkdir(parents=True)
    with pytest.raises(LedgerError, match="Is a directory"):
        live.join("us")
    assert names(live) == ["us"]


def test_fifty_at_once_claim_each_dead_one_once_and_no_living_one(live, ledger):
    with ExitStack() as stack:
        roles = ["claimer"] * 6 + ["restless"] * 14 + ["sitter"] * 30
        begun = {
            f"w{n}-{role}": stack.enter_context(worker(ledger, f"w{n}-{role}", role, wait=False))
            for n, role in enumerate(roles)
        }
        for process in begun.values():
            assert process.stdout.readline() == "in\n"
        killed = [name for name in begun if name.endswith("sitter")][::2]
        for name in killed:
            begun[name].kill()
        until(lambda: not set(killed) & set(names(live)))

        told = {name: begun[name].communicate("")[0].splitlines() for name in begun if name not in killed}

    claimed = [line.split()[1] for lines in told.values() for line in lines if line.startswith("claimed")]
    assert sorted(claimed) == sorted(killed)
    assert all(lines[-1].startswith("out") for lines in told.values())
    assert sum(int(lines[-1].split()[1]) for lines in told.values()) > 100
    assert names(live) == ["us"]

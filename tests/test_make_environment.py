"""An environment that cannot be made says in one line where and why, and leaves alone what stands in its place."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def make(folder: Path, lock: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", ROOT / "scripts" / "make_environment", folder.parent, folder, lock]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "none.lock"
    path.write_text("")
    return path


def test_a_link_in_its_place_is_left_alone(tmp_path: Path, lock: Path):
    there, folder = tmp_path / "there", tmp_path / ".venv"
    there.mkdir()
    (there / "kept").write_text("x")
    folder.symlink_to(there)

    done = make(folder, lock)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"lockpin: {folder} could not be made: a link stands in its place; "
        "a folder in a checkout that can be written to is needed there\n"
    )
    assert folder.is_symlink() and (there / "kept").read_text() == "x"


def test_a_file_in_its_place_is_left_alone(tmp_path: Path, lock: Path):
    folder = tmp_path / ".venv"
    folder.write_text("x")

    done = make(folder, lock)

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "a file stands in its place" in done.stderr and folder.read_text() == "x"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_checkout_that_cannot_be_written_to_is_named(tmp_path: Path, lock: Path):
    tmp_path.chmod(0o500)
    try:
        done = make(tmp_path / ".venv", lock)
    finally:
        tmp_path.chmod(0o700)

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "Permission denied" in done.stderr


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, lock: Path):
    done = make(tmp_path / "gone" / ".venv", lock)

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "No such file or directory" in done.stderr

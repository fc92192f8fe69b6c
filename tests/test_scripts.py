"""The scripts that start a checkout, without making a real environment: that takes a network."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with a space in its name, so that no script forgets its quotes."""
    folder = tmp_path / "check out"
    shutil.copytree(ROOT / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "requirements.lock", folder)
    return folder


def start(script: Path, *arguments: str, python: str = "") -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LOCKPIN_PYTHON": python}
    return subprocess.run([script, *arguments], env=env, capture_output=True, text=True, timeout=30, check=False)


def make_ready(checkout: Path, *, at: Path | None = None) -> None:
    """Lay an environment whose Python prints its arguments."""
    folder = checkout / ".venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "python").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (folder / "python").chmod(0o755)
    lock = (checkout / "requirements.lock").read_text()
    (checkout / ".venv" / "made").write_text(f"{at or checkout}\n{lock}")


@pytest.mark.parametrize("python", ["/bin/false", "/nonexistent/python3"])
def test_python_that_does_not_run_is_one_line(checkout: Path, python: str):
    done = start(checkout / "scripts" / "lockpin", "up", python=python)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f'lockpin: LOCKPIN_PYTHON is "{python}", which does not run as Python 3.12')
    assert done.stderr.count("\n") == 1


def test_ready_environment_starts_at_once_and_passes_the_arguments(checkout: Path):
    make_ready(checkout)

    done = start(checkout / "scripts" / "lockpin", "run", "--", "a b", "", python="/bin/false")

    assert done.stdout.splitlines() == ["-P", f"{checkout}/.venv/bin/lockpin", "run", "--", "a b", ""]
    assert (done.returncode, done.stderr) == (0, "")


def test_link_to_the_script_finds_the_checkout(checkout: Path, tmp_path: Path):
    make_ready(checkout)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "lockpin").symlink_to(Path("..") / checkout.name / "scripts" / "lockpin")

    assert start(tmp_path / "bin" / "lockpin", "up", python="/bin/false").returncode == 0


@pytest.mark.parametrize("change", ["lock", "half", "moved"])
def test_environment_that_is_not_this_checkouts_is_made_anew(checkout: Path, change: str):
    make_ready(checkout, at=Path("/elsewhere") if change == "moved" else None)
    if change == "lock":
        with (checkout / "requirements.lock").open("a") as lock:
            lock.write("# newer\n")
    if change == "half":
        (checkout / ".venv" / "made").unlink()

    done = start(checkout / "scripts" / "lockpin", "up", python="/bin/false")

    assert done.returncode == 1  # it asked for a Python to make one with
    assert "LOCKPIN_PYTHON" in done.stderr

"""Every target: the whole seed corpus in this process, and a few thousand new inputs under atheris where it is there."""

import importlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).resolve().parent
SCRIPT = FUZZ.parents[1] / "scripts" / "fuzz"
TARGETS = sorted(folder.name for folder in (FUZZ / "corpus").iterdir())
RUNS = 800
needs_atheris = pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="atheris is there for CPython 3.12 to 3.14 on Linux x86_64 alone; the seed corpus runs without it",
)


@pytest.fixture(scope="module", autouse=True)
def modules():
    """Make the targets importable by their names, here alone."""
    sys.path.insert(0, str(FUZZ))
    yield
    sys.path.remove(str(FUZZ))


@pytest.mark.parametrize("target", TARGETS)
def test_every_seed_keeps_the_promises(target: str):
    run = importlib.import_module(target).run

    for path in sorted((FUZZ / "corpus" / target).iterdir()):
        try:
            run(path.read_bytes())
        except Exception as error:
            raise AssertionError(f"{target} of {path.name}: {error!r}") from error


def fuzz(*options: str, folder: Path, script: Path = SCRIPT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", script, *options, "--findings", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)


@needs_atheris
@pytest.mark.parametrize("target", TARGETS)
def test_new_inputs_keep_the_promises(target: str, tmp_path: Path):
    done = fuzz("--target", target, "--runs", str(RUNS), folder=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    name, executions, _, edges, *_ = done.stdout.splitlines()[1].split()
    assert (name, int(executions.replace(",", "")) >= RUNS) == (target, True)
    assert int(edges.replace(",", "")) > 50


PLANTED = """
def run(data: bytes) -> None:
    assert b"seed" in data, "broken"
"""


@needs_atheris
def test_a_finding_leaves_its_input_and_the_line_that_runs_it_again(tmp_path: Path):
    script, fuzz_there = tmp_path / "scripts" / "fuzz", tmp_path / "tests" / "fuzz"
    (fuzz_there / "corpus" / "planted").mkdir(parents=True)
    for name in ("drive.py", "inputs.py", "mutations.py"):
        shutil.copy(FUZZ / name, fuzz_there / name)
    script.parent.mkdir()
    shutil.copy(SCRIPT, script)
    (fuzz_there / "planted.py").write_text(PLANTED)
    (fuzz_there / "corpus" / "planted" / "one").write_bytes(b"0" * 16 + b"\nseed")

    done = fuzz("--runs", "5000", folder=tmp_path / "found", script=script)

    assert (done.returncode, done.stdout.splitlines()[2].strip()) == (1, "AssertionError: broken")
    (found,) = (tmp_path / "found").iterdir()
    assert done.stdout.endswith(f"again: .venv-dev/bin/python scripts/fuzz --replay planted {found}\n")
    again = fuzz("--replay", "planted", str(found), folder=tmp_path, script=script)
    assert (again.returncode, again.stderr.splitlines()[-1]) == (1, "AssertionError: broken")


def test_an_input_that_finds_nothing_is_said_so():
    seed = FUZZ / "corpus" / "sse" / "line-ends"

    done = fuzz("--replay", "sse", str(seed), folder=FUZZ)

    assert (done.returncode, done.stdout) == (0, f"sse: nothing found in {seed}\n")

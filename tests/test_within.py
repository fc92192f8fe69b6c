"""Scripts that bring themselves into the development environment, whatever Python they are started with."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["simulate", "--seeds", "1", "--calls", "20"], "overshoot: $0.00; false refusals: 0; seeds that failed: 0"),
        (["fuzz", "--replay", "decode", "tests/fuzz/corpus/decode/bomb-1"], "nothing found"),
    ],
)
def test_a_script_runs_with_a_python_that_has_none_of_its_packages(words, said):
    script, *more = words
    bare = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    done = subprocess.run(
        [bare, "-I", ROOT / "scripts" / script, *more],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
        check=False,
    )

    assert (done.returncode, said in done.stdout) == (0, True), done.stdout + done.stderr

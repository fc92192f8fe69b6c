"""The bench runs and prints every row; what it measures is for no test to judge."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 280  # for 20 s of work on a machine that others may use


@pytest.mark.timeout(PATIENCE_S + 20)
def test_smoke_prints_every_row(tmp_path):
    command = [sys.executable, str(ROOT / "scripts" / "bench"), "--smoke", "--folder", str(tmp_path)]

    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            printed, complained = process.communicate(timeout=PATIENCE_S)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
            raise

    assert (process.returncode, complained) == (0, "")
    titles = [line.split()[0] for line in printed.splitlines() if line.startswith("P")]
    assert titles == ["P1", "P2", "P3", "P4", "P5", "P6", "P8", "P10", "P11", "P12"]
    assert list(tmp_path.iterdir()) == []

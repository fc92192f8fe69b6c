"""A Ctrl-C while a command starts, at the import of a module that is needed early, and of one that is needed later."""

import signal
import subprocess
import sys

import pytest
from processes import ROOT


@pytest.mark.parametrize("module", ["typer", "platformdirs"])
@pytest.mark.parametrize(("words", "printed"), [(("task", "list"), ""), (("env",), "false\n")])
def test_ctrl_c_while_a_command_is_imported_is_its_status_and_no_word(tmp_path, module, words, printed):
    (tmp_path / f"{module}.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\nraise ImportError\n")
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background ignores it, and so would the command

    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "lockpin_cli.main", *words], cwd=tmp_path, capture_output=True, text=True,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "HOME": str(tmp_path)}, timeout=60, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (130, printed, "")


def test_ctrl_c_that_is_ignored_stays_so(tmp_path):
    code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nfrom lockpin_cli import main\n"
    code += "signal.raise_signal(signal.SIGINT); print(signal.getsignal(signal.SIGINT).name)"

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "SIG_IGN\n", "")

import subprocess
import sys
from pathlib import Path

import pytest

from lockpin_cli.main import COMMANDS

ROOT = Path(__file__).resolve().parent.parent.parent
HELPS = [
    [],
    *([name] for name in COMMANDS),
    *(["task", name] for name in ("new", "list", "close")),
    *(["budget", name] for name in ("status", "raise")),
    ["prices", "list"],
]

# (words, exit status, what the one line must name)
MISTAKES = [
    (["bla"], 2, "'bla'"),
    (["--bla"], 2, "--bla"),
    (["task", "bla"], 2, "bla"),
    (["report", "bla"], 2, "bla"),
    (["report", "--by", "colour"], 2, "'colour'"),
    (["report", "--format", "xml"], 2, "'xml'"),
    (["report", "--since", "yesterday"], 2, "yesterday"),
    (["report", "--since", "999999999w"], 2, "999999999w"),
    (["report", "--since", "2026-13-01"], 2, "2026-13-01"),
    (["report", "--plot"], 2, "not in this version"),
    (["report", "--config"], 2, "--config"),
    (["report", "--config", "absent.yaml"], 1, "absent.yaml"),
    (["--config", "absent.yaml", "calls"], 1, "absent.yaml"),
    (["--config", ".", "calls"], 1, "directory"),
    (["calls", "--limit", "many"], 2, "--limit"),
    (["calls", "--limit", "0"], 2, "--limit"),
    (["calls", "--task", "a/b"], 2, "a/b"),
    (["receipt", "nosuch"], 1, "nosuch"),
    (["receipt", "last", "--task", "nobody"], 1, "nobody"),
    (["receipt", "one", "two"], 2, "two"),
    (["receipt", b"\xff"], 2, "UTF-8"),
    (["task", "new", "x"], 2, "--budget"),
    (["task", "new", "x", "--budget", "none"], 2, "none"),
    (["task", "new", "x", "--budget", "-1"], 2, "-1"),
    (["task", "new", "x", "--budget", "0"], 2, "positive"),
    (["task", "new", "x", "--budget", "nan"], 2, "nan"),
    (["task", "new", "x", "--budget", "1e400"], 2, "1e400"),
    (["task", "new", "x", "--budget", "0.0000000001"], 2, "nine decimals"),
    (["task", "new", "x", "--budget", "99999999999"], 2, "99999999999"),
    (["task", "new", "x", "--budget", "١"], 2, "positive"),
    (["task", "new", "x", "--budget", "1", "--window", "year"], 2, "year"),
    (["task", "new", "", "--budget", "1"], 2, "1 to 128"),
    (["task", "new", "a/b", "--budget", "1"], 2, "a/b"),
    (["task", "new", "a\nb", "--budget", "1"], 2, "printable"),
    (["task", "new", "x" * 129, "--budget", "1"], 2, "128"),
    (["task", "close", "nobody"], 1, "nobody"),
    (["budget", "status", "--budget", "weekly"], 1, "weekly"),
    (["budget", "status", "--key", "fix"], 2, "task:NAME"),
    (["budget", "status", "--key", "user:bo"], 2, "user:bo"),
    (["budget", "raise", "daily"], 2, "--by"),
    (["budget", "raise", "daily", "--by", "none"], 2, "--by"),
    (["budget", "raise", "weekly", "--by", "1"], 1, "weekly"),
    (["budget", "raise", "task", "--by", "1"], 2, "--key"),
    (["budget", "raise", "daily", "--key", "task:x", "--by", "1"], 2, "machine"),
    (["budget", "raise", "task", "--key", "task:x", "--by", "1"], 1, 'no task "x"'),
    (["budget", "raise", "task", "--key", "task:default", "--by", "1"], 1, "no dollar limit"),
    (["budget", "raise", "daily", "--key", "machine:x", "--by", "1"], 1, 'no machine "x"'),
    (["prices", "list", "--provider", "nobody"], 2, "nobody"),
    (["validate", "absent.yaml"], 1, "absent.yaml"),
    (["prices", "list", "--provider", "groq"], 1, "groq"),
    (["task", "new", "grün/x", "--budget", "1"], 2, "grün/x"),
    (["task", "new", "a\x1bb", "--budget", "1"], 2, "a\\x1bb"),
    (["receipt", "\x1bübel"], 1, "\\x1bübel"),
    (["up", "--workers", "2"], 2, "not in this version"),
    (["up", "--port", "70000"], 2, "--port"),
    (["up", "--dayly-usd", "3"], 2, "did you mean --daily-usd?"),
    (["up", "--zzz"], 2, "--zzz"),
    (["up", "now"], 2, "now"),
    (["up", "--daily-usd"], 2, "--daily-usd"),
    (["up", "--daily-usd", "1", "--daily-usd=2"], 2, "twice"),
    (["up", "--daily-usd", "-3"], 2, '"-3"'),
    (["up", "--queue-wait", "soon"], 2, "soon"),
    (["up", "--mode", "team"], 2, "not in this version"),
    (["up", "--config", "absent.yaml"], 1, "absent.yaml"),
]


# What a shell runs, so a mistake must also stop what comes after it.
FOR_EVAL = [
    (["env"], 1, "lockpin up"),
    (["env", "--port", "0"], 2, "--port"),
    (["env", "--task", "a/b"], 2, "a/b"),
    (["env", "--shell", "csh"], 2, "csh"),
    (["env", "--bla"], 2, "--bla"),
    (["env", "more"], 2, "more"),
    (["env", b"\xff"], 2, "UTF-8"),
    (["env", "--config", "absent.yaml"], 1, "absent.yaml"),
    (["--config", "absent.yaml", "env"], 1, "absent.yaml"),
    (["--confg", "x", "env"], 2, "--confg"),
]


@pytest.mark.parametrize(("words", "status", "named"), FOR_EVAL, ids=lambda value: str(value)[:60])
def test_mistake_with_env_is_one_line_and_stops_the_shell(lockpin, words, status, named):
    done = lockpin(*words)

    assert (done.returncode, done.stdout) == (status, "false\n")
    assert done.stderr.count("\n") == 1
    assert named in done.stderr
    assert "bug" not in done.stderr


@pytest.mark.parametrize("words", [[], ["task"], ["budget"], ["prices"]], ids=" ".join)
def test_group_without_a_command_shows_its_help(lockpin, words):
    done = lockpin(*words)

    assert done.returncode in (0, 2)
    assert (done.stdout + done.stderr).strip() == lockpin(*words, "--help").stdout.strip()


@pytest.mark.parametrize(("words", "status", "named"), MISTAKES, ids=lambda value: str(value)[:60])
def test_mistake_is_one_line_that_names_it_and_never_a_traceback(lockpin, words, status, named):
    done = lockpin(*words)

    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("lockpin")
    assert named in done.stderr
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr


@pytest.mark.parametrize("words", HELPS, ids=" ".join)
def test_help_of_every_command_shows_an_example(lockpin, words):
    done = lockpin(*words, "--help")

    assert done.returncode == 0
    assert lockpin(*words, "-h").stdout == done.stdout
    assert "Example: " in done.stdout
    assert "lockpin " + " ".join(words) in " ".join(done.stdout.partition("Example: ")[2].split())
    assert done.stderr == ""


def test_help_lists_each_command_with_the_sentence_of_its_module(lockpin):
    listed = lockpin("--help").stdout

    for name, words in COMMANDS.items():
        assert (ROOT / "lockpin_cli" / f"{name}.py").exists()
        assert f"  {name}" in listed
        assert words in listed


def test_version_is_one_line(lockpin):
    done = lockpin("--version")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("lockpin 0.")


def test_unknown_bug_is_one_line_with_type_and_place(home):
    code = (
        "import sys; import lockpin_cli.main as app; sys.argv = ['lockpin', 'absent']\n"
        "app.COMMANDS['absent'] = 'A command whose module is missing.'\n"
        "app.main()"
    )

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("lockpin: a bug in Lockpin: ModuleNotFoundError in ")
    assert done.stderr.count("\n") == 1


def test_ledger_that_is_a_folder_is_one_line(lockpin, home):
    home.ledger.mkdir(parents=True)

    done = lockpin("report")

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert str(home.ledger) in done.stderr


def test_a_reader_that_leaves_early_gets_no_traceback(lockpin, home, ledger):
    command = [sys.executable, "-m", "lockpin_cli.main", "calls", "--format", "jsonl"]
    environment = {"PYTHONPATH": str(ROOT), "XDG_DATA_HOME": str(home.path / "data"), "HOME": str(home.path)}

    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        complaint = process.stderr.read()

    assert complaint == b""


def test_import_stays_light():
    code = (
        "import sys; import lockpin_cli.main; "
        "print([name for name in ('mitmproxy', 'yaml', 'rich', 'sqlite3', 'tiktoken') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_report_needs_neither_mitmproxy_nor_rich(home):
    code = (
        "import sys; sys.argv = ['lockpin', 'report']\n"
        "from lockpin_cli.main import main\n"
        "try: main()\n"
        "except SystemExit: print([n for n in ('mitmproxy', 'rich', 'tiktoken') if n in sys.modules])"
    )
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(home.path)}

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=home.path, env=environment, capture_output=True, text=True, check=True
    )

    assert done.stdout.endswith("[]\n")

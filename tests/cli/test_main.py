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
    *(["budget", name] for name in ("status", "set", "rm", "raise", "reset")),
    *(["ledger", name] for name in ("backup", "events", "vacuum", "prune")),
    *(["prices", name] for name in ("list", "show", "explain", "diff", "check", "update")),
]

SET = ["budget", "set", "x", "--scope", "machine", "--window", "day"]

TOO_MUCH = "1000000000.000000001"  # a nanodollar above the most

# (words, exit status, what the one line must name)
MISTAKES = [
    (["bla"], 2, '"bla"'),
    (["--bla"], 2, "--bla"),
    (["task", "bla"], 2, "bla"),
    (["report", "bla"], 2, "bla"),
    (["report", "--by", "colour"], 2, '"colour"'),
    (["report", "--format", "xml"], 2, '"xml"'),
    (["report", "--since", "yesterday"], 2, "yesterday"),
    (["report", "--since", "999999999w"], 2, "999999999w"),
    (["report", "--since", "2026-13-01"], 2, "2026-13-01"),
    (["report", "--plot", "--format", "csv"], 2, "--plot"),
    (["report", "--timezone", "Mars/Base"], 2, "Mars/Base"),
    (["prices", "show", "gtp-6-sol"], 1, "did you mean gpt-6-sol"),
    (["prices", "show"], 2, "MODEL"),
    (["prices", "explain", "nosuch"], 1, "nosuch"),
    (["prices", "check", "--days", "0"], 2, "--days"),
    (["whatif"], 2, "one of the two"),
    (["whatif", "--task-budget", "0"], 2, "positive"),
    (["whatif", "--task-budget", "1", "--model", "a=b"], 2, "one of the two"),
    (["whatif", "--limit", "daily"], 2, "NAME=USD"),
    (["whatif", "--limit", "weekly=5"], 1, "weekly"),
    (["whatif", "--model", "claude-opus-4-5"], 2, "A=B"),
    (["whatif", "--model", "a=claude-haku-4-5"], 1, "claude-haiku-4-5"),
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
    (["task", "new", "x", "--budget", TOO_MUCH], 2, "up to a billion"),
    (["run", "--budget", TOO_MUCH, "--", "true"], 2, "up to a billion"),
    (["budget", "raise", "daily", "--by", TOO_MUCH], 2, "up to a billion"),
    (["budget", "raise", "daily", "--by", "1000000000"], 1, "limits and costs up to $1000000000 are allowed"),
    (["correct", "last", "--usd", TOO_MUCH, "--reason", "x"], 2, "up to a billion"),
    ([*SET, "--limit-usd", TOO_MUCH], 2, "up to a billion"),
    (["up", "--daily-usd", TOO_MUCH], 2, "up to a billion"),
    (["task", "new", "x", "--budget", "١"], 2, "positive"),
    (["task", "new", "x", "--budget", "1", "--window", "year"], 2, "year"),
    (["task", "new", "x", "--budget", "1", "--window", ""], 2, 'flag --window is ""'),
    (["report", "--limit", "9" * 23], 2, "--limit"),
    (["calls", "--limit", "9" * 23], 2, "--limit"),
    (["calls", "--limit", "9" * 5000], 2, "--limit"),
    (["report", "--since", "999999999m"], 2, "a date from 1970 on"),
    (["report", "--since", "0001-01-01"], 2, "a date from 1970 on"),
    (["task", "new", "", "--budget", "1"], 2, "1 to 128"),
    (["task", "new", "a/b", "--budget", "1"], 2, "a/b"),
    (["task", "new", "a\nb", "--budget", "1"], 2, "printable"),
    (["task", "new", "x" * 129, "--budget", "1"], 2, "128"),
    (["task", "close", "nobody"], 1, "nobody"),
    (["budget", "status", "--budget", "weekly"], 1, "weekly"),
    (["budget", "status", "--key", "fix"], 2, "SCOPE:SUBJECT"),
    (["budget", "status", "--key", "usr:bo"], 2, "usr:bo"),
    (["budget", "raise", "daily"], 2, "--by"),
    (["budget", "raise", "daily", "--by", "none"], 2, "--by"),
    (["budget", "raise", "weekly", "--by", "1"], 1, "weekly"),
    (["budget", "raise", "task", "--by", "1"], 2, "--key"),
    (["budget", "raise", "daily", "--key", "task:x", "--by", "1"], 2, "machine"),
    (["budget", "raise", "task", "--key", "task:x", "--by", "1"], 1, 'no task "x"'),
    (["budget", "raise", "task", "--key", "task:default", "--by", "1"], 1, "no dollar limit"),
    (["budget", "raise", "daily", "--key", "machine:x", "--by", "1"], 1, 'no machine "x"'),
    (
        ["budget", "set", "x", "--limit-usd", "1"],
        2,
        "no budget and no task is called so; --scope makes one (task, machine, key",
    ),
    (
        ["budget", "set", "x", "--scope", "machine"],
        2,
        'budget "x" has no window; lifetime, day, week, month or rolling',
    ),
    (
        ["budget", "set", "x", "--scope", "machine", "--window", "day"],
        2,
        'budget "x" has no limit; --limit-usd, --limit-tokens or both',
    ),
    ([*SET, "--limit-usd", "-5"], 2, 'flag --limit-usd is "-5"; a positive amount is allowed'),
    ([*SET, "--limit-usd", "1e400"], 2, "1e400"),
    ([*SET, "--limit-usd", ""], 2, 'flag --limit-usd is ""'),
    ([*SET, "--limit-usd", "none"], 2, "has no limit"),
    ([*SET, "--limit-tokens", "1.5"], 2, 'flag --limit-tokens is "1.5"; a whole number'),
    (
        [*SET, "--limit-usd", "1", "--at", "24:00"],
        2,
        'flag --at is "24:00"; a time of day from 00:00 to 23:59 is allowed; see',
    ),
    (
        [*SET, "--limit-usd", "1", "--anchor", "3"],
        2,
        'flag --anchor is "3" beside --window day; --anchor is allowed beside',
    ),
    ([*SET, "--limit-usd", "1", "--period", "24h"], 2, 'flag --period is "24h" beside --window day'),
    ([*SET, "--limit-usd", "1", "--timezone", "Mars/Base"], 2, 'flag --timezone is "Mars/Base"; a time zone such as'),
    ([*SET, "--limit-usd", "1", "--alert-at", "0.5,2"], 2, 'flag --alert-at is "2"; a share above 0'),
    ([*SET, "--limit-usd", "1", "--models", "a,,b"], 2, 'flag --models is ""; a text is allowed'),
    (["budget", "set", "x", "--scope", "usr", "--window", "day", "--limit-usd", "1"], 2, "task, machine, key"),
    (["budget", "set", "x", "--scope", "moon", "--window", "day", "--limit-usd", "1"], 2, "moon"),
    (["budget", "set", "x", "--scope", "task", "--window", "year", "--limit-usd", "1"], 2, "year"),
    (
        ["budget", "set", "x", "--scope", "task", "--window", "rolling", "--limit-usd", "1"],
        2,
        "--window: a rolling window needs --period",
    ),
    (["budget", "set", "a/b", *SET[3:], "--limit-usd", "1"], 2, "a name of 1 to 128 printable characters"),
    (["budget", "set", "daily", "--limit-usd", "1"], 1, "`lockpin up --daily-usd USD`"),
    (["budget", "set", "task", "--limit-usd", "1"], 1, "`lockpin task new NAME --budget USD` sets one"),
    (["budget", "rm", "x"], 1, 'no budget "x" was made by command; there is none'),
    (["budget", "rm", "daily"], 1, "daily_usd"),
    (["budget", "reset", "x"], 1, 'no budget "x", and no task of that name with a budget; there are daily, task'),
    (["budget", "reset", "task"], 2, "--key"),
    (["budget", "reset", "daily", "--key", "machine:x"], 1, 'no machine "x"'),
    (["task", "new", "x", "--budget", "1", "--window", "rolling"], 2, "a rolling window needs --period: 1h to 2160h"),
    (["task", "new", "x", "--budget", "1", "--window", "day", "--period", "24h"], 2, 'flag --period is "24h" beside'),
    (["task", "new", "x", "--budget", "1", "--window", "rolling", "--period", "30m"], 2, "30m"),
    (["correct"], 2, "CALL"),
    (["correct", "last"], 2, "--usd"),
    (["correct", "last", "--usd", "1"], 2, "--reason"),
    (["correct", "last", "--usd", "-1", "--reason", "x"], 2, '"-1"; an amount of 0 or more is allowed'),
    (["budget", "raise", "daily", "--by", "1", "--undo"], 2, "--by USD or --undo is needed"),
    (["budget", "raise", "daily", "--undo"], 1, "no ledger yet at"),
    ([*SET, "--limit-usd", "1", "--alert-at", "1e-400"], 2, "with at most nine decimals"),
    *(([*SET, "--limit-usd", "1", "--timezone", z], 2, z) for z in ("localtime", "posixrules", "Factory", "right/UTC")),
    (["ledger", "backup"], 1, "no ledger yet at"),
    (["correct", "last", "--usd", "", "--reason", "x"], 2, "--usd"),
    (["correct", "last", "--usd", ".", "--reason", "x"], 2, "--usd"),
    (["correct", "last", "--usd", "1", "--reason", "  "], 2, "1 to 500 printable characters"),
    (["correct", "last", "--usd", "1", "--reason", "\x1b[31mred"], 2, r'reason "\x1b[31mred" of 8 characters is not'),
    (["task", "new", "\x1b[31mred", "--budget", "1"], 2, r'task name "\x1b[31mred" is not allowed'),
    (["budget", "raise", "\x1b[31mred", "--by", "1"], 1, r"\x1b[31mred"),
    (["task", "new", ".", "--budget", "1"], 2, 'task name "." is not allowed'),
    (["task", "close", ".."], 2, 'task name ".." is not allowed'),
    (["calls", "--task", "."], 2, 'task name "." is not allowed'),
    (["budget", "status", "--key", "task:.."], 2, 'task name ".." is not allowed'),
    (["correct", "last", "--usd", "1", "--reason", "x" * 501], 2, "501 characters"),
    (["correct", "last", "--usd", "1", "--reason", "x"], 1, "no call yet"),
    (["ledger", "backup"], 1, "no ledger yet at"),
    (["ledger", "vacuum"], 1, "no ledger yet at"),
    (["ledger", "prune"], 2, "--before"),
    (["ledger", "prune", "--before", "yesterday"], 2, "yesterday"),
    (["ledger", "prune", "--before", "90d", "--yes"], 1, "no ledger yet at"),
    (["ledger", "shrink"], 2, "shrink"),
    (["prices", "list", "--provider", "nobody"], 2, "nobody"),
    (["validate", "absent.yaml"], 1, "absent.yaml"),
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
    (["up", "--mode", "herd"], 2, "solo or team is allowed"),
    (["up", "--listen-host", "nowhere.invalid"], 1, "nowhere.invalid is no address of this machine"),
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
    (["env", "--task", ".."], 2, 'task name ".." is not allowed'),
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


@pytest.mark.parametrize("words", [[], ["task"], ["budget"], ["ledger"], ["prices"]], ids=" ".join)
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


def test_ledger_that_is_empty_is_the_same_line_from_every_command(lockpin, home):
    home.ledger.parent.mkdir(parents=True)
    home.ledger.touch()
    commands = [
        "report", "calls", "receipt last", "whatif --task-budget 5", "task list", "task new x --budget 1", "task close x",
        "budget status", "budget set x --scope machine --window day --limit-usd 1", "budget raise daily --by 1",
        "budget reset daily", "budget rm x", "correct last --usd 1 --reason x", "verify", "ledger backup copy",
        "ledger events", "ledger vacuum", "ledger prune --before 2020-01-01", "prices explain last", "run -- true",
        "run --task x --budget 1 -- true",
    ]  # fmt: skip
    said = {lockpin(*command.split()).stderr for command in commands}

    assert said == {f"lockpin: the ledger {home.ledger} is an empty file; remove it, and a new ledger is made\n"}
    assert home.ledger.read_bytes() == b""


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


SLOW = ["mitmproxy", "tiktoken", "pydantic", "plotext"]


@pytest.mark.parametrize(
    ("words", "unused"),
    [
        (["report", "--by", "model", "--since", "7d"], [*SLOW, "rich", "yaml", "csv", "zoneinfo", "calendar"]),
        (["report", "--config", "lockpin.yaml", "--limit", "5"], [*SLOW, "rich", "csv", "zoneinfo", "calendar"]),
        (["report", "--help"], [*SLOW, "rich", "yaml", "csv", "zoneinfo", "calendar"]),
        (["calls", "--task", "fix"], [*SLOW, "rich"]),
    ],
    ids=" ".join,
)  # fmt: skip
def test_command_imports_nothing_slow_that_it_does_not_need(home, ledger, words, unused):
    if "--config" in words:
        home.config("daily_usd: 10\n")
    code = (
        f"import sys; sys.argv = {['lockpin', *words]}\n"
        "from lockpin_cli.main import main\n"
        "try: main()\n"
        f"except SystemExit: print([n for n in {unused} if n in sys.modules])"
    )
    environment = {"PYTHONPATH": str(ROOT), "HOME": str(home.path), "XDG_DATA_HOME": str(home.path / "data")}

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=home.path, env=environment, capture_output=True, text=True, check=True
    )

    assert done.stdout.endswith("[]\n")

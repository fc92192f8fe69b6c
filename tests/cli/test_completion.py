"""What a shell offers: asked as its own script asks."""

import subprocess
import sys

import pytest

NAMES = {"daily", "task"}


@pytest.fixture
def offered(lockpin):
    """Give what is offered for the last of the words."""

    def ask(*words: str, **more: str) -> list[str]:
        line = ["lockpin", *words]
        done = lockpin(
            _LOCKPIN_COMPLETE="complete_bash", COMP_WORDS=" ".join(line), COMP_CWORD=str(len(line) - 1), **more
        )
        assert done.stderr == ""
        return done.stdout.split()

    return ask


def test_commands_and_their_commands_are_offered(offered):
    assert offered("re") == ["report", "receipt"]
    assert {"status", "set", "raise"} <= set(offered("budget", ""))


def test_choices_of_a_flag_are_offered(offered):
    assert offered("report", "--by", "m") == ["model"]


@pytest.mark.parametrize(
    "words", [("calls", "--task"), ("env", "--task"), ("run", "--task"), ("task", "close"), ("whatif", "--task")]
)
def test_tasks_of_the_ledger_are_offered(offered, ledger, words):
    assert offered(*words, "") == ["doc", "fix"]
    assert offered(*words, "f") == ["fix"]


def test_budgets_are_offered(offered, ledger, lockpin):
    lockpin("budget", "set", "sprint", "--scope", "machine", "--window", "week", "--limit-usd", "40")

    assert offered("budget", "rm", "sp") == ["sprint"]
    assert offered("budget", "status", "--budget", "sp") == ["sprint"]
    assert offered("budget", "raise", "f") == ["fix"]


def test_models_are_offered(offered, ledger):
    assert offered("calls", "--model", "") == ["claude-opus-4-5", "gpt-x"]
    assert offered("calls", "--model", "g") == ["gpt-x"]
    assert "claude-opus-4-5" in offered("prices", "show", "claude-opus-4")
    assert "anthropic/claude-opus-4-5" in offered("prices", "show", "anthropic/claude-opus")
    assert offered("prices", "list", "--provider", "anth") == ["anthropic"]


def test_limits_and_models_of_whatif_are_offered_up_to_their_sign_and_behind_it(offered, ledger):
    assert offered("whatif", "--limit", "d") == ["daily=", "doc="]
    assert offered("whatif", "--model", "g") == ["gpt-x="]
    assert "gpt-x=claude-opus-4-5" in offered("whatif", "--model", "gpt-x=claude-opus-4")


@pytest.mark.parametrize("damage", ["none", "empty", "garbage", "folder"])
def test_whatever_the_ledger_is_nothing_is_said(offered, home, damage):
    home.ledger.parent.mkdir(parents=True)
    if damage == "folder":
        home.ledger.mkdir()
    elif damage != "none":
        home.ledger.write_bytes(b"" if damage == "empty" else b"no ledger" * 1000)

    for words in (("calls", "--task", ""), ("calls", "--model", ""), ("budget", "status", "--budget", "")):
        assert offered(*words) == []


def test_bash_completes_by_the_script_that_is_shown(lockpin, home, ledger, surroundings):
    script = lockpin(_LOCKPIN_COMPLETE="source_bash").stdout
    command = home.path / "bin" / "lockpin"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lockpin_cli.main "$@"\n')
    command.chmod(0o755)
    environment = surroundings | {"PATH": f"{command.parent}:{surroundings['PATH']}"}

    def typed(*words: str) -> list[str]:
        listed = " ".join(f'"{word}"' for word in words)
        asked = f"COMP_WORDS=(lockpin {listed}); COMP_CWORD={len(words)}; {_function(script)} lockpin"
        lines = f'{script}\n{asked}; printf "%s\\n" "${{COMPREPLY[@]}}"'
        done = subprocess.run(
            ["bash", "-c", lines], env=environment, cwd=home.path, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    assert typed("re") == ["report", "receipt"]
    assert typed("report", "--by", "m") == ["model"]
    assert typed("calls", "--task", "") == ["doc", "fix"]
    assert typed("calls", "--model", "g") == ["gpt-x"]


def test_name_with_a_space_is_one_word_for_every_shell(lockpin, ledger):
    lockpin("task", "new", "my * task", "--budget", "1")

    line = {"COMP_WORDS": "lockpin calls --task my", "COMP_CWORD": "3"}
    bash = lockpin(_LOCKPIN_COMPLETE="complete_bash", **line)
    zsh = lockpin(_LOCKPIN_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="lockpin calls --task my")

    assert bash.stdout == "my\\ \\*\\ task\n"
    assert '"my * task"' in zsh.stdout


def _function(script: str) -> str:
    return next(line.partition("(")[0].strip() for line in script.splitlines() if "()" in line)


def test_nothing_is_offered_and_nothing_said_without_a_ledger_or_with_a_bad_file(offered, home):
    assert offered("calls", "--task", "") == []
    home.config("nonsense: 1\n")
    assert offered("calls", "--task", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_for_a_shell_can_be_shown(lockpin, shell):
    # Which shell it is for is looked up among the processes above; asked for outright, it needs none.
    done = lockpin(_LOCKPIN_COMPLETE=f"source_{shell}")

    assert done.returncode == 0
    assert "_LOCKPIN_COMPLETE" in done.stdout


@pytest.mark.parametrize(
    ("shell", "asks"),
    [
        ("bash", "_LOCKPIN_COMPLETE=complete_bash $1 2>/dev/null ) )"),
        ("zsh", "_LOCKPIN_COMPLETE=complete_zsh lockpin 2>/dev/null)"),
        ("fish", 'lockpin 2>/dev/null)" --condition "env'),
    ],
)
def test_installed_script_says_nothing_where_there_is_no_such_command(lockpin, shell, asks):
    script = lockpin("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1").stdout

    assert asks in script
    assert script.count("2>/dev/null") == (2 if shell == "fish" else 1)
    if shell == "bash":
        words = "COMP_WORDS=(nowhere/lockpin re); COMP_CWORD=1"
        asked = f"{script}\n{words}; {_function(script)} nowhere/lockpin; echo ${{#COMPREPLY[@]}}"
        done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=60)
        assert (done.stdout, done.stderr) == ("0\n", "")

"""What a shell offers: asked as its own script asks."""

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

"""The command `lockpin`: the app, and the one catch-all that turns a fault into a line and an exit status.

0: done. 1: it ran, and the answer is no. 2: wrong use.
"""

from __future__ import annotations

from lockpin_cli import early  # isort: skip

early.begin()
# All that is slow to import comes after it.
# ruff: noqa: E402

import contextlib
import gc
import importlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from lockpin_cli import completion, streams
from lockpin_cli.commands import Group
from lockpin_cli.options import ConfigOption
from lockpin_core.errors import LockpinError

# Each has a module of its name with an `app`; only that of the command in use is imported.
COMMANDS = {
    "up": "Start the proxy.",
    "run": "Run a command behind the proxy, with a budget of its own.",
    "env": "Print the variables that send an agent through the proxy.",
    "report": "Add up calls, tokens and dollars.",
    "calls": "List calls, newest first.",
    "receipt": "Show what became of one call.",
    "whatif": "Replay calls against other limits or prices.",
    "task": "Make, list, close and resume tasks.",
    "budget": "Show, set, raise and reset limits.",
    "approvals": "Watch for questions about calls, list and answer them.",
    "key": "Make, list, rotate and revoke keys.",
    "breaker": "Stop bursts: whose calls pause, and by which rule.",
    "correct": "Say what a call really cost.",
    "prices": "Show the prices in use.",
    "verify": "Prove the ledger, or name the first row that is wrong.",
    "ledger": "Back up, list changes, take old rows out, give space back.",
    "validate": "Check lockpin.yaml without starting anything.",
}


class Commands(Group):
    """The commands of `COMMANDS`, loaded when they are called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Give the names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load a command; None: there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        command = typer.main.get_command(importlib.import_module(f"lockpin_cli.{cmd_name}").app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of the help without loading any command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


# `rich_markup_mode=None`: help and errors are plain lines, and rich is not even imported for them.
app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},  # the commands take it over from here
    rich_markup_mode=None,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def _say_version(*, asked: bool) -> None:
    if asked:
        from lockpin_core import __version__

        print(f"lockpin {__version__}")
        raise typer.Exit


@app.callback()
def lockpin(
    config: ConfigOption = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=lambda asked: _say_version(asked=asked),
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """A hard spend cap for AI agents.

    Example: start the proxy with `lockpin up --daily-usd 10`, then, where the agent runs,
    `eval "$(lockpin env --task fix-login)" && claude`.
    """


def main() -> None:
    """Run one command and end the process with its status."""
    try:
        status = _run(sys.argv[1:])
    except KeyboardInterrupt:
        status = early.INTERRUPTED
    if status and _is_for_eval(sys.argv[1:]):
        with contextlib.suppress(LockpinError):
            print("false")  # `eval "$(lockpin env)" && agent` must not go on without the cap
    streams.close()
    gc.freeze()  # nothing is searched for cycles as the process ends: a tenth of a report's time
    sys.exit(status)


def _run(words: Sequence[str]) -> int:
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that leaves, such as head, ends us without a word
    streams.prepare(escape=not _is_for_eval(words))
    try:
        _check_words(words)
        if any(word.endswith("-completion") for word in words):
            completion.quieten_scripts()
        status = app(prog_name="lockpin", standalone_mode=False)
        streams.finish("done, but ")
    except Exception as error:
        return _fault(error)
    return status if isinstance(status, int) else 0


def _check_words(words: Sequence[str]) -> None:
    """Refuse bytes that are no text: no name, model or path of ours can hold them."""
    for word in words:
        if not word.isascii() and any("\ud800" <= char <= "\udfff" for char in word):
            raise typer.BadParameter(f'"{word}" is not UTF-8 text')


def _is_for_eval(words: Sequence[str]) -> bool:
    """Say whether a shell runs what is printed; also where the words before the command are wrong."""
    return next((word for word in words if word in COMMANDS), None) == "env"


def _fault(error: Exception) -> int:
    """Say in one line what went wrong, and give the exit status."""
    if isinstance(error, LockpinError):
        _say(str(error))
        return 1
    if isinstance(error, typer.Abort):
        return 1
    if type(error).__name__ == "NoArgsIsHelpError":  # no public name either
        print(error, file=sys.stderr)
        return 2
    if hasattr(error, "format_message"):  # typer's wrong use; its class has no public name
        _say(_usage(error, error.format_message()))
        return 2
    import traceback  # slow to import

    frame = traceback.extract_tb(error.__traceback__)[-1]
    _say(f"a bug in Lockpin: {type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}: {error}")
    return 1


def _usage(error: Exception, message: str) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "lockpin"
    from lockpin_cli.misuse import reworded  # for faults only too

    return f"{reworded(message, COMMANDS)}; see `{command} --help`"


def _say(message: str) -> None:
    from lockpin_cli.output import say  # for faults only: the help must come fast

    say(message)


early.finish()

if __name__ == "__main__":
    main()

"""Options that several commands have, and the app of a command's module. Knows typer only: the help must come fast."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lockpin_cli import completion
from lockpin_cli.commands import App, Group

LIMIT_MAX = 10**9  # of `--limit`: more rows than any list has

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="The configuration to use instead of the one that is found."),
]
LedgerOption = Annotated[
    str | None,
    typer.Option("--ledger", metavar="sqlite:///PATH", help="The ledger to use instead of the one in lockpin.yaml."),
]
SinceOption = Annotated[
    str | None, typer.Option(metavar="WHEN", help="From then on: 24h, 7d, or a date such as 2026-10-22.")
]
TaskOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only calls of this task.", autocompletion=completion.tasks)
]


def new_app(words: str | None = None) -> App:
    """Make an app whose help and errors are plain lines, so that rich is not even imported for them.

    With `words` it is a group of commands, which shows its help where none is named.
    """
    return App(
        cls=Group,
        help=words,
        no_args_is_help=words is not None,
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
    )


def config_path(context: typer.Context, own: Path | None) -> Path | None:
    """Find which file was named, after the command or before it."""
    path = own or context.find_root().params.get("config")
    return None if path is None else Path(path).expanduser()

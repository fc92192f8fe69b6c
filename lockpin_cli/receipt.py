"""`lockpin receipt`: one call and what became of it."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from lockpin_cli.changes import find_call, task_name
from lockpin_cli.inputs import load_to_read
from lockpin_cli.options import ConfigOption, LedgerOption, TaskOption, new_app
from lockpin_cli.output import plain
from lockpin_core.jsontext import dumps
from lockpin_core.readers.calls import receipt_of, summary

app = new_app()


@app.command()
def receipt(
    context: typer.Context,
    call: Annotated[
        str,
        typer.Argument(metavar="[ID|last]", help="A call's id, 4 of its first characters or more, or the newest call."),
    ] = "last",
    task: TaskOption = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Show one call's receipt: JSON on standard output, its sum in words on standard error.

    Example: lockpin receipt last --task fix-login
    """
    found = find_call(load_to_read(context, config).ledger, call, None if task is None else task_name(task, "--task"))
    built = receipt_of(found)
    print(plain(summary(found)), file=sys.stderr)
    print(json.dumps(built, indent=2) if sys.stdout.isatty() else dumps(built))

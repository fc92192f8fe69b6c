"""`lockpin receipt`: one call and what became of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from lockpin_cli.changes import task_name
from lockpin_cli.inputs import load_config
from lockpin_cli.options import ConfigOption, TaskOption, new_app
from lockpin_cli.output import plain
from lockpin_core.errors import CommandError
from lockpin_core.jsontext import dumps
from lockpin_core.ledger.reader import CallRow
from lockpin_core.readers.calls import receipt_of, summary
from lockpin_core.readers.finder import PREFIX_MIN, Finder

_SHOWN = 3  # calls that an unclear beginning may name

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
) -> None:
    """Show one call's receipt: JSON on standard output, its sum in words on standard error.

    Example: lockpin receipt last --task fix-login
    """
    found = _find(load_config(context, config).ledger, call, None if task is None else task_name(task, "--task"))
    built = receipt_of(found)
    print(plain(summary(found)), file=sys.stderr)
    print(json.dumps(built, indent=2) if sys.stdout.isatty() else dumps(built))


def _find(ledger: Path, call: str, task: str | None) -> CallRow:
    found = None
    if ledger.exists():
        with Finder(ledger) as finder:
            found = finder.call(call.strip(), task=task) or _begun(finder, call.strip(), task)
    if found is None:
        what = "no call yet" if call == "last" else f'no call "{call}"'
        of_task = "" if task is None else f' of task "{task}"'
        raise CommandError(f"{what}{of_task} in {ledger}; `lockpin calls` lists them")
    return found


def _begun(finder: Finder, beginning: str, task: str | None) -> CallRow | None:
    """Find the one call whose id begins so; None: none does."""
    ids = finder.ids(beginning.lower(), task=task) if len(beginning) >= PREFIX_MIN else []
    if len(ids) > 1:
        shown = ", ".join([*ids[:_SHOWN], *(["…"] if len(ids) > _SHOWN else [])])
        raise CommandError(f'{len(ids)} calls begin with "{beginning}": {shown}; more of the id is needed')
    return finder.call(ids[0], task=task) if ids else None

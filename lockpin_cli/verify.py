"""`lockpin verify`: proves the ledger, or names the first thing in it that is wrong."""

from __future__ import annotations

import contextlib
import enum
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from lockpin_cli.inputs import load_to_read
from lockpin_cli.options import ConfigOption, LedgerOption, new_app
from lockpin_cli.output import plain
from lockpin_cli.presence import need
from lockpin_core.errors import CommandError
from lockpin_core.jsontext import dumps
from lockpin_core.ledger.verify import Finding, Progress, Verdict
from lockpin_core.ledger.verify import verify as check

app = new_app()


class Form(enum.StrEnum):
    """What `--format` allows here."""

    TABLE = "table"
    JSON = "json"


@app.command()
def verify(
    context: typer.Context,
    form: Annotated[
        Form, typer.Option("--format", "--output", help="table for people, json for programs.")
    ] = Form.TABLE,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Prove the ledger: every chain, every account, every hold within its limits. Status 1 where something is wrong.

    Works while the proxy runs. Example: lockpin verify --format json
    """
    books = need(load_to_read(context, config).ledger, ", so there is nothing to verify")
    with _progress() as progress:
        verdict = check(books, progress)
    if form is Form.JSON:
        print(dumps(_document(verdict, books)))
        raise typer.Exit(0 if verdict.wrong is None else 1)
    if verdict.wrong is not None:
        raise CommandError(f"{books} is wrong: {verdict.wrong.words}")
    for warning in verdict.warnings:
        print(plain(f"warning: {warning}"))
    print(plain(f"verified: {_counted(verdict)} in {books}"))


@contextlib.contextmanager
def _progress() -> Iterator[Progress | None]:
    """Show a bar on a terminal while rows are read."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # for terminals only: the command must start fast
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        rows = bar.add_task("rows", total=None)
        yield lambda done, total: bar.update(rows, completed=done, total=total)


def _counted(verdict: Verdict) -> str:
    counts = (
        (verdict.rows, "row"),
        (verdict.calls, "call"),
        (verdict.accounts, "account"),
        (verdict.writers, "writer"),
    )
    words = ", ".join(f"{count:,} {noun}{'' if count == 1 else 's'}" for count, noun in counts)
    return f"{words} (rows up to {verdict.pruned_to:,} were taken out before)" if verdict.pruned_to else words


def _document(verdict: Verdict, ledger: Path) -> dict[str, object]:
    return {
        "verified": verdict.wrong is None,
        "wrong": None if verdict.wrong is None else _record(verdict.wrong),
        "rows": verdict.rows,
        "calls": verdict.calls,
        "accounts": verdict.accounts,
        "writers": verdict.writers,
        "pruned_to": verdict.pruned_to,
        "warnings": list(verdict.warnings),
        "ledger": str(ledger),
    }


def _record(wrong: Finding) -> dict[str, object]:
    return {"row": wrong.row, "call": wrong.call, "message": wrong.words}

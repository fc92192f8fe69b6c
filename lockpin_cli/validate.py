"""`lockpin validate`: reads a configuration as the proxy would, and says what is wrong or doubtful in it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated

import typer

from lockpin_cli.changes import callers
from lockpin_cli.inputs import load_config, price_table
from lockpin_cli.options import ConfigOption, config_path, new_app
from lockpin_cli.output import plain
from lockpin_cli.presence import is_there
from lockpin_cli.rules import refuse_doubled
from lockpin_core.call import Payers
from lockpin_core.clock import utc_now
from lockpin_core.config import Config
from lockpin_core.config_warnings import keys_not_at_hand, warnings
from lockpin_core.errors import CommandError, LedgerError, LedgerUnavailable
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.prices import shipped_dir
from lockpin_core.providers import Providers

app = new_app()


@app.command()
def validate(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="The file to check; else the one that would be used.")] = None,
    config: ConfigOption = None,
) -> None:
    """Check lockpin.yaml without starting anything. Status 1 where it cannot be used.

    Example: lockpin validate ./lockpin.yaml
    """
    loaded = load_config(context, file or config_path(context, config))
    table = price_table(loaded)
    _refuse_doubled(loaded)
    found = warnings(loaded, table, Providers.load(shipped_dir()), _callers(loaded), at=utc_now())
    found += keys_not_at_hand(loaded, os.environ)
    for warning in found:
        print(plain(f"warning: {warning}"))
    counted = {0: "no warnings", 1: "1 warning"}.get(len(found), f"{len(found)} warnings")
    print(plain(f"{loaded.file or 'no configuration file, so the defaults hold'}: ok, {counted}"))


def _refuse_doubled(config: Config) -> None:
    """Raise CommandError where no proxy starts for a budget that a command has made, as far as a ledger says so."""
    try:
        if not is_there(config.ledger):
            return
    except CommandError:
        return  # it is the configuration that is checked
    with contextlib.suppress(LedgerError, LedgerUnavailable):
        refuse_doubled(config)


def _callers(config: Config) -> list[Payers]:
    """List for whom there are keys, where a ledger is there to say so."""
    try:
        if not is_there(config.ledger):
            return []
        with LedgerReader(config.ledger) as reader:
            return callers(reader, good=True)
    except (CommandError, LedgerError, LedgerUnavailable):
        return []  # it is the configuration that is checked

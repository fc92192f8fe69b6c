"""What a shell offers while a command is typed: names of tasks and budgets. Silent where there is no ledger."""

from __future__ import annotations

from typing import Any

import typer

from lockpin_core.errors import LockpinError

_MOST = 200  # names that are offered


def tasks(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the tasks that were made or used and begin so."""
    return _names(context, incomplete, lambda reader: reader.tasks())


def budgets(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the budgets in force that begin so."""
    return _names(context, incomplete, lambda reader: [budget.name for budget in reader.budgets()])


def budgets_and_tasks(context: typer.Context, incomplete: str) -> list[str]:
    """Offer both, where both are allowed."""
    return [*budgets(context, incomplete), *tasks(context, incomplete)]


def _names(context: typer.Context, incomplete: str, read: Any) -> list[str]:
    # All this is only needed when a key is pressed.
    from lockpin_cli.inputs import load_config
    from lockpin_cli.presence import is_there
    from lockpin_core.ledger.reader import LedgerReader

    try:
        config = load_config(context, context.params.get("config"))
        if not is_there(config.ledger):
            return []
        with LedgerReader(config.ledger) as reader:
            return [name for name in read(reader) if name.startswith(incomplete)][:_MOST]
    except (LockpinError, OSError):
        return []

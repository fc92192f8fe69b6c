"""What a shell offers while a command is typed: tasks, budgets, keys, models. Silent where there is none or a fault."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer

from lockpin_core.clock import utc_now
from lockpin_core.errors import LockpinError

if TYPE_CHECKING:
    from lockpin_core.config import Config

_MOST = 200  # names that are offered
_SPECIAL = re.compile(r"[^\w@%+=:,./-]")  # what means something to a shell


def quieten_scripts() -> None:
    """Have the scripts for shells say nothing where `lockpin` is not on PATH: it would be said at each Tab."""
    from typer import _completion_shared as shared  # typer has no public place for its scripts

    for shell, script in shared._completion_scripts.items():
        for end in ("$1 ) )", "%(prog_name)s)\n}", '%(prog_name)s)"', '%(prog_name)s"'):
            name = "$1" if end.startswith("$1") else "%(prog_name)s"
            script = script.replace(f" {end}", f" {name} 2>/dev/null{end.removeprefix(name)}")
        shared._completion_scripts[shell] = script


def tasks(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the tasks that were made or used and begin so."""
    return _names(context, incomplete, lambda reader: reader.tasks())


def keys(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the ids of keys that begin so."""
    return _names(context, incomplete, lambda reader: [key.id for key in reader.keys(now=utc_now())])


def budgets(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the budgets in force that begin so."""
    return _names(context, incomplete, lambda reader: [budget.name for budget in reader.budgets()])


def budgets_and_tasks(context: typer.Context, incomplete: str) -> list[str]:
    """Offer both, where both are allowed."""
    return [*budgets(context, incomplete), *tasks(context, incomplete)]


def models(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the models that were called and begin so."""
    return _names(context, incomplete, lambda reader: reader.models())


def priced(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the models that have a price and begin so, by name or as "provider/name"."""
    return _prices(context, incomplete, lambda table: _both(table.names()))


def sellers(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the providers with prices that begin so."""
    return _prices(context, incomplete, lambda table: {name for name, _ in table.names() if name})


def limits(context: typer.Context, incomplete: str) -> list[str]:
    """Offer what may have another limit, up to its amount."""
    return [] if "=" in incomplete else [f"{name}=" for name in budgets_and_tasks(context, incomplete)]


def swaps(context: typer.Context, incomplete: str) -> list[str]:
    """Offer a model that was called, and behind the sign one with a price."""
    asked, equals, other = incomplete.partition("=")
    if not equals:
        return [f"{name}=" for name in models(context, asked)]
    return [f"{asked}={name}" for name in priced(context, other)]


def _both(names: Iterable[tuple[str, str]]) -> Iterator[str]:
    for provider, name in names:
        yield name
        if provider:
            yield f"{provider}/{name}"


def _names(context: typer.Context, incomplete: str, read: Any) -> list[str]:
    # All this is only needed when a key is pressed.
    from lockpin_cli.presence import is_there
    from lockpin_core.ledger.reader import LedgerReader

    with _silent():
        config = _config(context)
        if is_there(config.ledger):
            with LedgerReader(config.ledger) as reader:
                return _as_typed([name for name in read(reader) if name.startswith(incomplete)])
    return []


def _prices(context: typer.Context, incomplete: str, read: Any) -> list[str]:
    from lockpin_cli.inputs import price_table

    with _silent():
        names = {name for name in read(price_table(_config(context))) if name.startswith(incomplete)}
        return _as_typed(sorted(names))
    return []


def _as_typed(names: Sequence[str]) -> list[str]:
    """Write names as they stand on the line: bash alone puts there what it is given, and would take spaces apart."""
    is_bash = os.environ.get("_LOCKPIN_COMPLETE") == "complete_bash"
    return [_SPECIAL.sub(r"\\\g<0>", name) if is_bash else name for name in names[:_MOST]]


def _config(context: typer.Context) -> Config:
    from lockpin_cli.inputs import load_config

    return load_config(context, context.params.get("config"))


def _silent() -> contextlib.suppress:
    return contextlib.suppress(LockpinError, OSError)

"""The way from a command to a change in the ledger: the names of tasks, who asks, and the ledger's own side of it."""

from __future__ import annotations

import getpass
import os

import typer

from lockpin_core.clock import new_id, utc_now
from lockpin_core.config import Config
from lockpin_core.errors import CommandError
from lockpin_core.ledger.admin import SqliteAdmin, canonical_task


def task_name(text: str, name: str) -> str:
    """Read a task's name into its one form. Wrong use where it is not allowed."""
    try:
        return canonical_task(text.strip())
    except CommandError as error:
        raise typer.BadParameter(str(error), param_hint=name) from None


def open_admin(config: Config) -> SqliteAdmin:
    """Give the commands' side of the ledger."""
    return SqliteAdmin(config.ledger, clock=utc_now, new_id=new_id)


def whoami() -> str:
    """Name the person at the keyboard, for the ledger's events."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in containers
        return f"uid {os.getuid()}"

"""The way from a command to a change in the ledger: the names that it knows, who asks, and the ledger's own side."""

from __future__ import annotations

import getpass
import os
import shlex
import socket

import typer

from lockpin_cli.output import plain
from lockpin_core.clock import new_id, utc_now
from lockpin_core.config import Config
from lockpin_core.errors import CommandError
from lockpin_core.ledger.admin import NAME_MAX, SqliteAdmin, canonical_task
from lockpin_core.readers.finder import Finder, near


def task_name(text: str, name: str) -> str:
    """Read a task's name into its one form. Wrong use where it is not allowed."""
    try:
        return canonical_task(text.strip())
    except CommandError:
        shown = f"{text[:40]}…" if len(text) > 40 else text
        allowed = f'1 to {NAME_MAX} printable characters without "/" are'
        raise typer.BadParameter(f'task name "{plain(shown)}" is not allowed; {allowed}', param_hint=name) from None


def stranger(config: Config, scope: str, subject: str) -> str | None:
    """Say that nobody made or used this task, or that this machine has no account; None: it is known."""
    if subject == (config.task.default if scope == "task" else socket.gethostname()):
        return None
    known: list[str] = []
    if config.ledger.exists():
        with Finder(config.ledger) as finder:
            known = finder.tasks() if scope == "task" else finder.machines()
    if subject in known:
        return None
    if scope == "task":
        others = near(subject, known) or f"`lockpin task new {shlex.quote(subject)} --budget USD` makes one"
        return f'no task "{subject}" was made or used; {others}'
    return f'no machine "{subject}" has an account; {near(subject, [*known, socket.gethostname()])}'


def open_admin(config: Config) -> SqliteAdmin:
    """Give the commands' side of the ledger."""
    return SqliteAdmin(config.ledger, clock=utc_now, new_id=new_id)


def whoami() -> str:
    """Name the person at the keyboard, for the ledger's events."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in containers
        return f"uid {os.getuid()}"

"""The way from a command to a change in the ledger: the names that it knows, who asks, and the ledger's own side."""

from __future__ import annotations

import getpass
import os
import shlex
import socket
from dataclasses import replace
from pathlib import Path

import typer

from lockpin_cli.presence import is_there
from lockpin_core.budgets import ORG, subjects_in
from lockpin_core.call import Payers
from lockpin_core.clock import new_id, stamp, utc_now
from lockpin_core.config import Config
from lockpin_core.errors import CommandError
from lockpin_core.ledger.admin import SqliteAdmin, canonical_owner, canonical_task
from lockpin_core.ledger.listing import CallRow
from lockpin_core.ledger.prune import pruned
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.names import shown
from lockpin_core.readers.finder import PREFIX_MIN, near

_SHOWN = 3  # calls that an unclear beginning may name


def task_name(text: str, name: str) -> str:
    """Read a task's name into its one form. Wrong use where it is not allowed."""
    try:
        return canonical_task(text)
    except CommandError as error:
        raise typer.BadParameter(str(error), param_hint=name) from None


def task_owner(config: Config, name: str, user: str | None = None) -> str | None:
    """Say whose a task becomes, in the user's one form; None: it stays whose it is.

    Wrong use where nobody may be called so, and in team mode where it stays nobody's: its budget would count no call.
    """
    try:
        owner = canonical_owner(user)
    except CommandError as error:
        raise typer.BadParameter(str(error), param_hint="--user") from None
    if owner is None and config.mode == "team":
        terms = None
        if is_there(config.ledger):
            with LedgerReader(config.ledger) as reader:
                terms = reader.task_terms().get(name)
        if terms is None or terms.user is None:
            way = f"`lockpin task new {shlex.quote(name)} --budget USD --user ID` says whose"
            raise typer.BadParameter(f"in team mode a task with a budget is somebody's; {way}", param_hint=name)
    return owner


def as_it_runs(config: Config) -> Config:
    """Take the mode from the proxies on the ledger, whatever configuration is found where the command is given.

    Where none runs now, it is team mode as soon as the last one or the configuration here says so: a limit that is said
    to be somebody's holds in both.
    """
    if not is_there(config.ledger):
        return config
    with LedgerReader(config.ledger) as reader:
        last = reader.mode()
    if last in (None, config.mode):
        return config
    return replace(config, mode=last if running(config.ledger) else "team")


def running(ledger: Path) -> bool:
    """Say whether a proxy runs on a ledger."""
    from lockpin_core.ledger.liveness import Liveness  # slow to import

    locks = Liveness(ledger)
    return any(map(locks.is_alive, locks.others()))


def stranger(config: Config, scope: str, subject: str) -> str | None:
    """Say that nobody made or used this task, or that there is no such subject; None: it is known."""
    always = {"task": config.task.default, "machine": socket.gethostname(), "org": ORG}
    if subject == always.get(scope):
        return None
    known: list[str] = []
    if is_there(config.ledger):
        with LedgerReader(config.ledger) as reader:
            known = reader.tasks() if scope == "task" else reader.subjects(scope)
            known += [found for caller in callers(reader) for found in subjects_in(scope, caller)]
    if subject in known:
        return None
    if scope == "task":
        others = near(subject, known) or f"`lockpin task new {shlex.quote(subject)} --budget USD` makes one"
        return f'no task "{subject}" was made or used; {others}'
    if scope == "machine":
        return f'no machine "{subject}" has an account; {near(subject, [*known, socket.gethostname()])}'
    others = near(subject, known) or "there is none yet"
    return f'no {scope} "{subject}" has an account or is named by a key; {others}'


def callers(reader: LedgerReader, *, good: bool = False) -> list[Payers]:
    """List whom keys stand for, whatever they call for; with `good` of those alone that are not over."""
    found = [key for key in reader.keys(now=utc_now()) if key.over is None or not good]
    return [Payers("", "", key.id, key.user, key.team, key.groups, key.ring, key.project, key.tags) for key in found]


def find_call(ledger: Path, call: str, task: str | None = None) -> CallRow:
    """Find the call of an id, of the beginning of one, or the newest as "last". Raises CommandError."""
    found = None
    if is_there(ledger):
        with LedgerReader(ledger) as reader:
            found = reader.call(call.strip(), task=task) or _begun(reader, call.strip(), task)
    if found is None:
        what = "no call yet" if call == "last" else f'no call "{call}"'
        of_task = "" if task is None else f' of task "{task}"'
        raise CommandError(f"{what}{of_task} in {ledger}; `lockpin calls` lists them{_taken_out(ledger)}")
    return found


def _taken_out(ledger: Path) -> str:
    """Say up to when rows were taken out, since that may be why a call is not found."""
    gone = pruned(ledger) if is_there(ledger) else None
    return "" if gone is None else f"; calls up to {stamp(gone.last_at)} were taken out by `lockpin ledger prune`"


def _begun(reader: LedgerReader, beginning: str, task: str | None) -> CallRow | None:
    """Find the one call whose id begins so; None: none does."""
    ids = reader.ids(beginning.lower(), task=task) if len(beginning) >= PREFIX_MIN else []
    if len(ids) > 1:
        shown = ", ".join([*ids[:_SHOWN], *(["…"] if len(ids) > _SHOWN else [])])
        raise CommandError(f'{len(ids)} calls begin with "{beginning}": {shown}; more of the id is needed')
    return reader.call(ids[0], task=task) if ids else None


def open_admin(config: Config) -> SqliteAdmin:
    """Give the commands' side of the ledger; it makes one where there is none yet, and none where one is gone."""
    is_there(config.ledger)
    return SqliteAdmin(config.ledger, clock=utc_now, new_id=new_id)


def whoami() -> str:
    """Name the person at the keyboard, for the ledger's events."""
    try:
        return shown(getpass.getuser())  # the environment says it
    except (OSError, KeyError):  # a user id without a name, as in containers
        return f"uid {os.getuid()}"

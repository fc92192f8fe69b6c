"""`lockpin run`: a command behind the proxy, with its own budget, and one line at its end that says what it cost."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from lockpin_cli import completion
from lockpin_cli.changes import open_admin, task_name, whoami
from lockpin_cli.env import changes
from lockpin_cli.inputs import amount, load_config, price_table
from lockpin_cli.keeper import proxy
from lockpin_cli.options import ConfigOption, config_path, new_app
from lockpin_cli.output import say
from lockpin_cli.presence import is_there
from lockpin_cli.rules import known
from lockpin_cli.up import Start
from lockpin_cli.up import proxy as proxy_start
from lockpin_core.budgets import Standing
from lockpin_core.call import Payers
from lockpin_core.clock import utc_now
from lockpin_core.config import Config
from lockpin_core.errors import CommandError
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.money import ZERO, Money
from lockpin_core.readers.figures import said

app = new_app()

_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
_FROM_KEYS = ("SIGINT", "SIGQUIT")  # a terminal gives them to all in its foreground


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    context: typer.Context,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="What to run, with its own flags.")],
    task: Annotated[
        str | None, typer.Option(metavar="NAME", help="The task that is charged.", autocompletion=completion.tasks)
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="USD", help="What the task may spend; without --task it gets a name.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, metavar="PORT", help="Where the proxy listens; else 8080.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Run a command behind the proxy; one is started where none runs, and ended with the last command that uses it.

    The command's exit status is passed through. On any fault before it starts it is not run, and the status is 1.

    Example: lockpin run --task fix-login --budget 5 -- claude -p "fix the login bug"

    Example: lockpin run --budget 0.50 -- python agent.py
    """
    limit = None if budget is None else amount(budget, "--budget")
    loaded = load_config(context, config)
    file = loaded.file or config_path(context, config)
    program = _program(command[0])
    price_table(loaded)  # a mistake in it is one line here
    name = _name_of(task, limit, command[0], utc_now())
    _settle_budget(loaded, name, limit)

    def starter(at: int) -> Start:
        return proxy_start(at, file, {}, Path(__file__).parent.parent, os.environ)

    with proxy(loaded.ledger, port, starter, -(-loaded.drain_ms // 1000)) as found:
        told = changes(found, name, os.environ)
        if (note := told.note()) is not None:
            say(note)
        environment = {key: value for key, value in {**os.environ, **told.values}.items() if key not in told.gone}
        since = utc_now()
        status = _status([program, *command[1:]], environment)
    say(_summary(_sums(loaded, name, since)))
    raise typer.Exit(status)


def _program(name: str) -> str:
    """Find the command before anything is started or changed for it. Raises CommandError."""
    found = shutil.which(name)
    if found is None:
        raise CommandError(f'there is no command "{name}" on PATH; nothing was run')
    return found


def _name_of(task: str | None, limit: Money | None, command: str, now: datetime) -> str | None:
    """Give the task's name; None: none was asked for, so calls are charged as they name themselves."""
    if task is not None:
        return task_name(task, "--task")
    return None if limit is None else task_name(f"{Path(command).name}-{now:%Y%m%d-%H%M%S}", "COMMAND")


def _settle_budget(config: Config, task: str | None, limit: Money | None) -> None:
    """Give the task its budget, in the window that it has. Raises CommandError where its calls would be refused."""
    if task is None:
        return
    terms = None
    if is_there(config.ledger):
        with LedgerReader(config.ledger) as reader:
            terms = reader.task_terms().get(task)
    if limit is not None:
        window = terms.window if terms is not None and terms.window is not None else "lifetime"
        open_admin(config).task_new(task, limit=limit, window=window, who=whoami())
    elif terms is not None and terms.closed:
        again = f"`lockpin task new {shlex.quote(task)} --budget USD` opens it again"
        raise CommandError(f'task "{task}" is closed, so its calls would be refused; {again}')


def _status(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command, pass signals on to it, and give its exit status; a shell's for one that a signal ended."""
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as error:
        raise CommandError(f'"{command[0]}" cannot be run: {error.strerror}; nothing was run') from error
    with _passing_on(child):
        status = child.wait()
    return 128 - status if status < 0 else status


@contextmanager
def _passing_on(child: subprocess.Popen[bytes]) -> Iterator[None]:
    def pass_on(number: int, _frame: FrameType | None) -> None:
        if signal.Signals(number).name in _PASSED_ON or not _has_keys():
            child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in map(_number, (*_PASSED_ON, *_FROM_KEYS))}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _number(name: str) -> signal.Signals:
    return signal.Signals[name]


def _has_keys() -> bool:
    """Say whether a terminal's keys reach us: then they reach the command by themselves."""
    try:
        with open("/dev/tty", "rb") as terminal:  # noqa: PTH123 - a device, not a path
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Sums:
    """What calls since an instant came to."""

    task: str | None
    calls: int
    refused: int
    spent: Money
    estimated: Money
    held: Money
    tightest: Standing | None  # the enforced limit with the least left


def _sums(config: Config, task: str | None, since: datetime) -> Sums:
    if not is_there(config.ledger):
        return Sums(task, 0, 0, ZERO, ZERO, ZERO, None)
    rules, now = known(config).book.rules, utc_now()
    payers = Payers(task or config.task.default, socket.gethostname())
    with LedgerReader(config.ledger) as reader, reader.at_once():
        total = reader.total(since=since, task=task)
        held = sum(hold.held.nano for hold in reader.open_holds() if task in (None, hold.task) and hold.at >= since)
        limits = [standing for standing in reader.standings(rules, payers, now=now) if _binds(standing, task)]
    tightest = min(limits, key=_left, default=None)
    return Sums(task, total.calls, total.refused, total.spent, total.estimated, Money(held), tightest)


def _binds(standing: Standing, task: str | None) -> bool:
    budget = standing.budget
    is_for_all = not budget.models and not budget.providers and (task is not None or budget.scope != "task")
    return budget.enforce and standing.limit is not None and is_for_all


def _left(standing: Standing) -> Money:
    assert standing.limit is not None, "only limits in dollars are compared"
    return max(standing.limit - standing.spent - standing.held, ZERO)


def _summary(sums: Sums) -> str:
    """Say in one line what the calls came to."""
    of_task = "" if sums.task is None else f'task "{sums.task}": '
    words = [f"{sums.calls:,} call{'' if sums.calls == 1 else 's'}", f"spent {said(sums.spent)}"]
    words += [f"estimated {said(sums.estimated)}", f"refused {sums.refused:,}"]
    words += [f"in flight {said(sums.held)}"] if sums.held else []
    if sums.tightest is not None:
        name = "its budget" if sums.tightest.budget.own else f'"{sums.tightest.budget.name}"'
        words.append(f"left {said(_left(sums.tightest))} of {name}")
    else:
        words.append("no limit")
    return f"{of_task}{', '.join(words)}"

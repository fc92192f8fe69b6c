"""`lockpin run`: a command behind the proxy, with its own budget, and one line at its end that says what it cost."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from lockpin_cli import child, completion
from lockpin_cli.caller import KEY, Known, caller, good_caller, payers_of
from lockpin_cli.changes import as_it_runs, open_admin, running, task_name, task_owner, whoami
from lockpin_cli.env import changes
from lockpin_cli.inputs import amount, load_config, named_ledger, price_table
from lockpin_cli.keeper import proxy
from lockpin_cli.listener import refuse_other_books
from lockpin_cli.options import ConfigOption, LedgerOption, config_path, new_app
from lockpin_cli.output import say
from lockpin_cli.presence import is_there
from lockpin_cli.rules import known
from lockpin_cli.up import Start
from lockpin_cli.up import proxy as proxy_start
from lockpin_core.budgets import FILTERS, Standing
from lockpin_core.clock import utc_now
from lockpin_core.config import Config
from lockpin_core.errors import CommandError, LedgerError
from lockpin_core.ledger.place import refuse_empty
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.money import ZERO, Money
from lockpin_core.readers.figures import line

app = new_app()


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
    ledger: LedgerOption = None,
) -> None:
    """Run a command behind the proxy; one is started where none runs, and ended with the last command that uses it.

    The command's exit status is passed through; 127: there is no such command, 126: it cannot be run. On any other
    fault before it starts it is not run, and the status is 1.

    Example: lockpin run --task fix-login --budget 5 -- claude -p "fix the login bug"

    Example: lockpin run --budget 0.50 -- python agent.py
    """
    try:
        status = _run(context, command, task, None if budget is None else amount(budget, "--budget"), port, config)
    except child.NoCommand as error:
        say(str(error))
        status = error.status
    raise typer.Exit(status)


def _run(
    context: typer.Context,
    command: Sequence[str],
    task: str | None,
    limit: Money | None,
    port: int | None,
    config: Path | None,
) -> int:
    loaded = load_config(context, config)
    file = loaded.file or config_path(context, config)
    program = child.program(command[0])
    if is_there(loaded.ledger):
        refuse_empty(loaded.ledger)
    loaded = _with_its_mode(loaded)
    price_table(loaded)  # a mistake in it is one line here
    if loaded.mode == "team" and not os.environ.get(KEY):
        raise CommandError(f"mode: team needs a key; set {KEY} to yours (`lockpin key create --user NAME` makes one)")
    name = _name_of(task, limit, command[0], utc_now())
    if port is not None:
        refuse_other_books(port, loaded.ledger)  # before anything is changed
    _settle_budget(loaded, name, limit)

    named = named_ledger(context)

    def starter(at: int) -> Start:
        return proxy_start(at, file, named, Path(__file__).parent.parent, os.environ)

    with proxy(loaded.ledger, port, starter, -(-loaded.drain_ms // 1000)) as found:
        told = changes(found, loaded, name, os.environ)
        if (note := told.note()) is not None:
            say(note)
        environment = {key: value for key, value in {**os.environ, **told.values}.items() if key not in told.gone}
        since = utc_now()
        status = child.status([program, *command[1:]], environment)
    say(_summary(_sums(loaded, name, since)))
    return status


def _with_its_mode(config: Config) -> Config:
    """Take the mode of the proxies that run.

    Raises CommandError where one in solo mode would be started in the place of a team's, whose limits were gone then.
    """
    try:
        found = as_it_runs(config)
    except LedgerError:
        return config  # a proxy does not start on such a ledger either, and says why
    if found.mode != config.mode and not running(config.ledger):
        file = config.file or "no configuration file"
        raise CommandError(
            f"the proxy of the ledger {config.ledger} ran in team mode, and {file} would start one in solo mode, "
            "without the team's limits; name the team's file with --config, or start the one you mean with `lockpin up`"
        )
    return found


def _name_of(task: str | None, limit: Money | None, command: str, now: datetime) -> str | None:
    """Give the task's name; None: none was asked for, so calls are charged as they name themselves."""
    if task is not None:
        return task_name(task, "--task")
    return None if limit is None else task_name(f"{Path(command).name}-{now:%Y%m%d-%H%M%S}", "COMMAND")


def _settle_budget(config: Config, task: str | None, limit: Money | None) -> None:
    """Give the task its budget, in the window that it has, and in team mode to the user of the key.

    Raises CommandError where its calls would be refused, or it is another user's.
    """
    if task is None:
        return
    with LedgerReader(config.ledger) if is_there(config.ledger) else nullcontext() as reader:
        terms = None if reader is None else reader.task_terms().get(task)
        key = good_caller(reader, config, os.environ) if config.mode == "team" else None
    user = None if key is None else key.user
    if limit is not None:
        if user is not None and terms is not None and terms.user not in (None, user):
            raise CommandError(
                f'task "{task}" is a task of {terms.user}; one of another name can have a budget of yours'
            )
        window = terms.window if terms is not None and terms.window is not None else "lifetime"
        owner = task_owner(config, task, user)
        open_admin(config).task_new(task, limit=limit, window=window, who=whoami(), user=owner)
    elif terms is not None and terms.closed and terms.user == user:
        again = f"`lockpin task new {shlex.quote(task)} --budget USD` opens it again"
        raise CommandError(f'task "{task}" is closed, so its calls would be refused; {again}')


@dataclass(frozen=True, slots=True)
class Sums:
    """What calls since an instant came to."""

    task: str | None
    calls: int
    refused: int
    spent: Money
    estimated: Money
    held: Money
    tightest: Standing | None  # the enforced limit in dollars with the least left
    fewest: Standing | None = None  # the enforced limit in tokens with the least left
    is_known: bool = True  # whose calls they were; else nobody can say which limits they have


def _sums(config: Config, task: str | None, since: datetime) -> Sums:
    if not is_there(config.ledger):
        return Sums(task, 0, 0, ZERO, ZERO, ZERO, None)
    rules, now = known(config).book.rules, utc_now()
    with LedgerReader(config.ledger) as reader, reader.at_once():
        key = caller(reader, config, os.environ)
        payers = payers_of(task or config.task.default, key)
        total = reader.total(since=since, task=task)
        held = sum(hold.held.nano for hold in reader.open_holds() if task in (None, hold.task) and hold.at >= since)
        limits = [standing for standing in reader.standings(rules, payers, now=now) if _binds(standing, task, key)]
    tightest = min((one for one in limits if one.limit is not None), key=_left, default=None)
    fewest = min((one for one in limits if one.limit_tokens is not None), key=_left_tokens, default=None)
    is_known = config.mode == "solo" or key is not None
    return Sums(task, total.calls, total.refused, total.spent, total.estimated, Money(held), tightest, fewest, is_known)


def _binds(standing: Standing, task: str | None, caller: Known | None) -> bool:
    """Say whether a limit is for all that such a command may call; whom it is for is known where the caller is."""
    budget = standing.budget
    filters = FILTERS if caller is None else ("providers", "models")
    is_for_all = not any(getattr(budget, name) for name in filters) and (task is not None or budget.scope != "task")
    return budget.enforce and is_for_all


def _left(standing: Standing) -> Money:
    assert standing.limit is not None, "only limits in dollars are compared"
    return max(standing.limit - standing.spent - standing.held, ZERO)


def _left_tokens(standing: Standing) -> int:
    assert standing.limit_tokens is not None, "only limits in tokens are compared"
    return max(standing.limit_tokens - standing.spent_tokens - standing.held_tokens, 0)


def _summary(sums: Sums) -> str:
    """Say in one line what the calls came to."""
    of_task = "" if sums.task is None else f'task "{sums.task}": '
    left = ZERO if sums.tightest is None else _left(sums.tightest)
    spent, estimated, held, rest = line(sums.spent, sums.estimated, sums.held, left)
    words = [f"{sums.calls:,} call{'' if sums.calls == 1 else 's'}", f"spent {spent}"]
    words += [f"estimated {estimated}", f"refused {sums.refused:,}{_why(sums)}"]
    words += [f"in flight {held}"] if sums.held else []
    if not sums.is_known:
        words.append("which limits its user has is not known here")
    elif sums.tightest is None and sums.fewest is None:
        words.append("no limit")
    if sums.is_known and sums.tightest is not None:
        words.append(f"left {rest} of {_named(sums.tightest)}")
    if sums.is_known and sums.fewest is not None:
        words.append(f"left {_left_tokens(sums.fewest):,} tokens of {_named(sums.fewest)}")
    return f"{of_task}{', '.join(words)}"


def _why(sums: Sums) -> str:
    """Say where it is told why calls were refused; empty: none was."""
    of_task = "" if sums.task is None else f" --task {shlex.quote(sums.task)}"
    return f" (`lockpin calls{of_task}` says why)" if sums.refused else ""


def _named(standing: Standing) -> str:
    return "its budget" if standing.budget.own else f'"{standing.budget.name}"'

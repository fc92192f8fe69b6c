"""`lockpin task`: pieces of work with budgets of their own."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated

import typer

from lockpin_cli import completion
from lockpin_cli.changes import as_it_runs, open_admin, stranger, task_name, task_owner, whoami
from lockpin_cli.flags import window_of
from lockpin_cli.inputs import amount, load_config, load_to_read
from lockpin_cli.listener import warn_beside
from lockpin_cli.options import ConfigOption, LedgerOption, new_app
from lockpin_cli.output import Column, Format, FormatOption, View, plain, say, show
from lockpin_cli.pauses import paused_by, say_pauses
from lockpin_cli.presence import is_there
from lockpin_core.clock import stamp, utc_now
from lockpin_core.config import Config
from lockpin_core.errors import CommandError
from lockpin_core.ledger.pauses import LOOP, TASK, Paused, not_stopped
from lockpin_core.ledger.protocol import TaskInfo
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.readers.figures import dollars, said, table
from lockpin_core.windows import Window, kind_text, named, period_text, shown

app = new_app("Make, list, close and resume tasks.\n\nExample: lockpin task new fix-login --budget 5")

_COLUMNS = (
    *(Column("TASK"), Column("WINDOW", spare=2), Column("SPENT", right=True), Column("HELD", right=True)),
    *(Column("LIMIT", right=True), Column("STATE", spare=1), Column("CREATED", spare=3)),
)
_FIELDS = ("task", "window", "spent_usd", "held_usd", "limit_usd", "closed", "created", "user", "state")


NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="1 to 128 printable characters without a slash; not . or .. alone.",
        autocompletion=completion.tasks,
    ),
]


@app.command()
def new(
    context: typer.Context,
    name: NameArgument,
    budget: Annotated[str, typer.Option(metavar="USD", help="What the task may spend.")],
    window: Annotated[
        str, typer.Option(metavar="lifetime|day|week|month|rolling", help="When the budget starts anew.")
    ] = "lifetime",
    period: Annotated[str | None, typer.Option(metavar="24h", help="Of a rolling window: 1h to 2160h.")] = None,
    user: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Whose it is in team mode: its budget is for this user's calls alone."),
    ] = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Make a task with a budget. A name in use gets this budget, a closed task opens again.

    Example: lockpin task new fix-login --budget 5 --window day

    Example: lockpin task new fix-login --budget 5 --user ann@corp.com

    Example: lockpin task new agent --budget 20 --window rolling --period 24h
    """
    limit = amount(budget, "--budget")
    name = task_name(name, "NAME")
    kind = kind_text(window_of(window, period))
    loaded = as_it_runs(load_config(context, config))
    owner = task_owner(loaded, name, user)
    was = _owner(loaded, name)
    print(plain(told(open_admin(loaded).task_new(name, limit=limit, window=kind, who=whoami(), user=owner))))
    if owner is not None and was not in (None, owner):
        say(f"it was a task of {was}: what {was} has spent and will spend on it is not counted any more")
    if owner is not None and loaded.mode == "solo":
        say("warning: in solo mode no call is a user's, so this budget counts none; in mode: team a key says who calls")
    warn_beside(loaded.ledger)


def _owner(config: Config, name: str) -> str | None:
    """Say whose a task is; None: nobody's."""
    if not is_there(config.ledger):
        return None
    with LedgerReader(config.ledger) as reader:
        terms = reader.task_terms().get(name)
    return None if terms is None else terms.user


def told(made: TaskInfo) -> str:
    """Say what a task's budget is now."""
    window = _window(made)
    each = {"lifetime": "in all", "rolling": f"in any {period_text(window)}"}.get(window.kind, f"a {window.kind}")
    assert made.limit is not None, "a budget was set that is not there"
    passed = "; that is spent already, so its calls are refused" if made.spent >= made.limit else ""
    of = "" if made.user is None else f" of {made.user}"
    return (
        f'task "{made.name}"{of}: {said(made.limit)} {each}, spent {said(made.spent)}, held {said(made.held)}{passed}'
    )


@app.command("list")
def list_tasks(
    context: typer.Context, form: FormatOption = Format.TABLE, config: ConfigOption = None, ledger: LedgerOption = None
) -> None:
    """List every task that was made or used.

    Example: lockpin task list --format json
    """
    loaded = load_to_read(context, config)
    tasks = _tasks(loaded)
    show(_view(tasks, paused_by(loaded)), form)
    if form is Format.TABLE and any(task.user for task in tasks):
        say("of a task with a user, what that user has spent is shown; `lockpin report --by task` adds up everybody's")
    say_pauses(loaded)


@app.command()
def close(context: typer.Context, name: NameArgument, config: ConfigOption = None, ledger: LedgerOption = None) -> None:
    """Close a task: its next calls are refused, of a user's task those of its user.

    Example: lockpin task close fix-login
    """
    name = task_name(name, "NAME")
    loaded = as_it_runs(load_config(context, config))
    admin = open_admin(loaded)
    before = [task for task in _tasks(loaded) if task.name == name and task.closed]
    closed = before[0] if before else admin.task_close(name, who=whoami())
    state = "was closed already" if before else "is closed"
    whose = "" if closed.user is None else f" for {closed.user}"
    print(plain(f'task "{closed.name}" {state}{whose}: spent {said(closed.spent)}, held {said(closed.held)}'))
    if closed.user is None and loaded.mode == "team":
        way = f"`lockpin task new {shlex.quote(name)} --budget USD --user ID` makes it somebody's"
        say(f"warning: it is nobody's, so in team mode no call is refused by that; {way}")


@app.command()
def resume(
    context: typer.Context, name: NameArgument, config: ConfigOption = None, ledger: LedgerOption = None
) -> None:
    """Let the calls of a task go on that were stopped because it went round in a circle.

    Example: lockpin task resume fix-login
    """
    name = task_name(name, "NAME")
    loaded = load_config(context, config)
    if not is_there(loaded.ledger):
        raise CommandError(stranger(loaded, TASK, name) or not_stopped(name))
    try:
        open_admin(loaded).task_resume(name, who=whoami())
    except CommandError as error:
        raise CommandError(_not_resumed(loaded, name) or str(error)) from None
    print(plain(f'task "{name}" goes on'))


def _not_resumed(config: Config, name: str) -> str | None:
    """Say of a task that was not stopped why its calls pause, or that there is no such task; None: they do not."""
    ways = dict.fromkeys(
        paused.way_on for paused in paused_by(config) if (paused.scope, paused.subject) == (TASK, name)
    )
    if ways:
        way = next(iter(ways))
        return (
            f'task "{name}" was not stopped: its calls pause because it was charged too fast; `{way}` lets them go on'
        )
    return stranger(config, TASK, name)


def _tasks(config: Config) -> Sequence[TaskInfo]:
    if not is_there(config.ledger):
        return []
    with LedgerReader(config.ledger) as reader:
        return reader.task_infos(now=utc_now())


def _view(tasks: Sequence[TaskInfo], pauses: Sequence[Paused]) -> View:
    records = [_record(task, pauses) for task in tasks]
    amounts = zip(
        *table(
            ([task.spent for task in tasks], True),
            ([task.held for task in tasks], True),
            ([task.limit for task in tasks], False),
        ),
        strict=True,
    )
    cells = [
        [task.name, shown(_window(task)), *sums, _state(task, pauses), str(record["created"] or "-")]
        for task, record, sums in zip(tasks, records, amounts, strict=True)
    ]
    columns: tuple[Column, ...] = _COLUMNS
    if any(task.user for task in tasks):
        columns = (*columns, Column("USER", spare=4))
        cells = [[*row, task.user or "-"] for row, task in zip(cells, tasks, strict=True)]
    return View(columns, cells, records, _FIELDS, empty="no tasks yet; `lockpin task new NAME --budget USD` makes one")


def _state(task: TaskInfo, pauses: Sequence[Paused]) -> str:
    """Say whether a task's calls go: open, closed, stopped or paused. Of a task of nobody's those of any user count."""
    mine = [paused for paused in pauses if (paused.scope, paused.subject) == (TASK, task.name)]
    kinds = {paused.kind for paused in mine if task.user in (None, paused.user)}
    if task.closed or not kinds:
        return "closed" if task.closed else "open"
    return "stopped" if LOOP in kinds else "paused"


def _window(task: TaskInfo) -> Window:
    return named(task.window, Window("lifetime"))


def _record(task: TaskInfo, pauses: Sequence[Paused]) -> dict[str, object]:
    return {
        "task": task.name,
        "window": shown(_window(task)),
        "spent_usd": dollars(task.spent),
        "held_usd": dollars(task.held),
        "limit_usd": dollars(task.limit),
        "closed": task.closed,
        "created": None if task.created is None else stamp(task.created),
        "user": task.user,
        "state": _state(task, pauses),
    }

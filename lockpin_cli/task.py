"""`lockpin task`: pieces of work with budgets of their own."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Annotated

import typer

from lockpin_cli.changes import open_admin, task_name, whoami
from lockpin_cli.inputs import amount, load_config
from lockpin_cli.options import ConfigOption, new_app
from lockpin_cli.output import Column, Format, FormatOption, View, show
from lockpin_core.ledger.protocol import TaskInfo
from lockpin_core.readers.figures import aligned, dollars, said
from lockpin_core.refusals import stamp

app = new_app("Make, list and close tasks.\n\nExample: lockpin task new fix-login --budget 5")

_COLUMNS = (
    *(Column("TASK"), Column("WINDOW"), Column("SPENT", right=True), Column("HELD", right=True)),
    *(Column("LIMIT", right=True), Column("STATE"), Column("CREATED")),
)
_FIELDS = ("task", "window", "spent_usd", "held_usd", "limit_usd", "closed", "created")


class WindowKind(enum.StrEnum):
    """When a task's budget starts anew."""

    LIFETIME = "lifetime"
    DAY = "day"


NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="1 to 128 printable characters without a slash.")]


@app.command()
def new(
    context: typer.Context,
    name: NameArgument,
    budget: Annotated[str, typer.Option(metavar="USD", help="What the task may spend.")],
    window: Annotated[WindowKind, typer.Option(help="When the budget starts anew.")] = WindowKind.LIFETIME,
    config: ConfigOption = None,
) -> None:
    """Make a task with a budget. A name in use gets this budget, a closed task opens again.

    Example: lockpin task new fix-login --budget 5 --window day
    """
    limit = amount(budget, "--budget")
    name = task_name(name, "NAME")
    admin = open_admin(load_config(context, config))
    made = admin.task_new(name, limit=limit, window=window.value, who=whoami())
    each = "a day" if made.window == "day" else "in all"
    passed = "; that is spent already, so its calls are refused" if made.spent >= (made.limit or limit) else ""
    sums = f"spent {said(made.spent)}, held {said(made.held)}"
    print(f'task "{made.name}": {said(made.limit or limit)} {each}, {sums}{passed}')


@app.command("list")
def list_tasks(context: typer.Context, form: FormatOption = Format.TABLE, config: ConfigOption = None) -> None:
    """List every task that was made or used.

    Example: lockpin task list --format json
    """
    loaded = load_config(context, config)
    show(_view(open_admin(loaded).tasks() if loaded.ledger.exists() else []), form)


@app.command()
def close(context: typer.Context, name: NameArgument, config: ConfigOption = None) -> None:
    """Close a task: its next calls are refused.

    Example: lockpin task close fix-login
    """
    name = task_name(name, "NAME")
    loaded = load_config(context, config)
    admin = open_admin(loaded)
    before = [task for task in admin.tasks() if task.name == name and task.closed] if loaded.ledger.exists() else []
    closed = before[0] if before else admin.task_close(name, who=whoami())
    state = "was closed already" if before else "is closed"
    print(f'task "{closed.name}" {state}: spent {said(closed.spent)}, held {said(closed.held)}')


def _view(tasks: Sequence[TaskInfo]) -> View:
    records = [_record(task) for task in tasks]
    amounts = zip(
        aligned([task.spent for task in tasks], up=True),
        aligned([task.held for task in tasks], up=True),
        aligned([task.limit for task in tasks], up=False),
        strict=True,
    )
    cells = [
        [task.name, task.window, *shown, "closed" if task.closed else "open", str(record["created"] or "-")]
        for task, record, shown in zip(tasks, records, amounts, strict=True)
    ]
    return View(_COLUMNS, cells, records, _FIELDS, empty="no tasks yet; `lockpin task new NAME --budget USD` makes one")


def _record(task: TaskInfo) -> dict[str, object]:
    return {
        "task": task.name,
        "window": task.window,
        "spent_usd": dollars(task.spent),
        "held_usd": dollars(task.held),
        "limit_usd": dollars(task.limit),
        "closed": task.closed,
        "created": None if task.created is None else stamp(task.created),
    }

"""`lockpin whatif`: what other limits, or another model's prices, would have made of the calls in the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Annotated

import typer

from lockpin_cli import completion
from lockpin_cli.changes import stranger
from lockpin_cli.inputs import amount, instant, load_to_read, price_table
from lockpin_cli.options import ConfigOption, LedgerOption, SinceOption, TaskOption, new_app
from lockpin_cli.output import Column, Format, FormatOption, View, show
from lockpin_cli.presence import is_there
from lockpin_cli.rules import Known, known, one_form
from lockpin_core import clock
from lockpin_core.budgets import Budget
from lockpin_core.clock import stamp, utc_now
from lockpin_core.config import Config
from lockpin_core.errors import CommandError
from lockpin_core.ledger.accounts import own_budget
from lockpin_core.ledger.listing import CallRow
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.money import Money
from lockpin_core.prices import Model
from lockpin_core.readers import whatif as past
from lockpin_core.readers.figures import dollars, line, table
from lockpin_core.windows import Window

app = new_app()

_LOWER = (Column("LOWERED", right=True, spare=2), Column("PERHAPS", right=True, spare=5))  # where there are any
_LIMIT_COLUMNS = (
    *(Column("BUDGET"), Column("KEY"), Column("WINDOW", spare=3), Column("LIMIT", right=True)),
    *(Column("CALLS", right=True, spare=1), Column("WOULD BE REFUSED", right=True)),
    *(*_LOWER, Column("SPENT", right=True), Column("WOULD SPEND", right=True), Column("FIRST REFUSAL", spare=4)),
)
_MODEL_COLUMNS = (
    *(Column("MODEL"), Column("AS", spare=2), Column("CALLS", right=True, spare=1), Column("SPENT", right=True)),
    *(Column("WOULD SPEND", right=True), Column("DIFFERENCE", right=True), Column("LEFT OUT", right=True, spare=3)),
)
_LIMIT_ASSUMPTIONS = (
    "assumed: the same calls come again, each asks for what it held at the last, and a refused one costs nothing",
    "not in it: calls that were refused then or went uncapped; nothing counts from before the first call",
)
_LOWERED = (
    "lowered: Lockpin had set the output limit, and would have set what is left, down to fit.floor; costs at most that"
)
_MODEL_ASSUMPTIONS = ("assumed: the same usage, at the standard tier; estimated charges have none and are left out",)
_UNPARTED = "left out too: batches whose rows do not tell how large each request was"


@app.command()
def whatif(
    context: typer.Context,
    task_budget: Annotated[
        str | None, typer.Option(metavar="USD", help="A budget for every task, in all; other limits are not looked at.")
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=USD",
            help="Another limit for a budget in force, or for a task; may be repeated.",
            autocompletion=completion.limits,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="A=B",
            help="Calls of model A, a name or a glob, at the prices of model B.",
            autocompletion=completion.swaps,
        ),
    ] = None,
    task: TaskOption = None,
    since: SinceOption = None,
    form: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Replay the calls in the ledger against other limits, or at another model's prices. Nothing is changed.

    Example: lockpin whatif --task-budget 5 --since 30d

    Example: lockpin whatif --limit daily=10 --limit fix-login=2

    Example: lockpin whatif --model 'claude-opus-*=claude-sonnet-5-5'
    """
    if (model is None) is (task_budget is None and not limit):
        raise typer.BadParameter("limits or a model are needed, one of the two", context, param_hint="--model")
    start = None if since is None else instant(since, "--since", utc_now())
    budget = None if task_budget is None else amount(task_budget, "--task-budget")
    pairs = [_pair(text, "--limit") for text in limit or ()]
    names = [name for name, _ in pairs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise typer.BadParameter(f'"{twice}" has two limits; one is allowed', context, param_hint="--limit")
    sides = None if model is None else _pair(model, "--model")
    loaded = load_to_read(context, config)
    if sides is not None:
        other = _model(loaded, sides[1])
        rows = past.reprice(_calls(loaded, start, task), lambda call: _is_called(call, sides[0]), other)
        show(_model_view(rows, start), form)
        return
    changed, tasks = _changed(loaded, [(name, amount(usd, "--limit")) for name, usd in pairs])
    floor = loaded.fit.floor if loaded.fit.output else None
    taken = (past.past_of(call, floor) for call in _calls(loaded, start, task))
    limits = [*_of_tasks(budget), *changed]
    found = past.replay((call for call in taken if call is not None), limits, clock.instant, tasks)
    show(_limit_view(found, start), form)


def _pair(text: str, name: str) -> tuple[str, str]:
    left, equals, right = text.rpartition("=")
    if not equals or not left.strip() or not right.strip():
        allowed = "NAME=USD is allowed" if name == "--limit" else "A=B, two models, is allowed"
        raise typer.BadParameter(f'"{text}": {allowed}', param_hint=name)
    return left.strip(), right.strip()


def _calls(config: Config, since: datetime | None, task: str | None) -> Iterator[CallRow]:
    if is_there(config.ledger):
        with LedgerReader(config.ledger) as reader:
            yield from reader.calls(since=since, task=task)


def _of_tasks(limit: Money | None) -> list[Budget]:
    return [] if limit is None else [Budget("task", "task", Window("lifetime"), limit, enforce=True, own=True)]


def _changed(config: Config, limits: Sequence[tuple[str, Money]]) -> tuple[list[Budget], dict[str, Budget]]:
    """Give the budgets in force with other limits, and those of single tasks. Raises CommandError for another name."""
    changed: list[Budget] = []
    tasks: dict[str, Budget] = {}
    there = known(config) if limits else None
    for name, limit in limits:
        assert there is not None, "read where it is needed"
        budget, task = there.book.find(one_form(name)), _task(config, there, name)
        if budget is not None and task in there.limited():
            raise typer.BadParameter(
                f'"{name}" is a budget and a task; task:{name} means the task', param_hint="--limit"
            )
        if budget is not None:
            changed.append(replace(budget, limit=limit, enforce=True))
        elif task is None:
            raise CommandError(f'no budget and no task "{name}"; there are {", ".join(there.book.names())}')
        elif task in tasks:
            raise typer.BadParameter(f'task "{task}" has two limits; one is allowed', param_hint="--limit")
        else:
            own = own_budget(there.book.rules.task_default, there.tasks.get(task))
            tasks[task] = replace(own, limit=limit, limit_tokens=None, enforce=True)
    return changed, tasks


def _task(config: Config, there: Known, name: str) -> str | None:
    """Find the task that "fix-login" or "task:fix-login" names; None: there is none."""
    for task in (one_form(name), one_form(name.removeprefix("task:"))):
        if is_there(config.ledger) and (task in there.tasks or not stranger(config, "task", task)):
            return task
    return None


def _model(config: Config, name: str) -> Model:
    """Find the model whose prices are to be taken, by "provider/name" or name. Raises CommandError."""
    table = price_table(config)
    provider, slash, rest = name.partition("/")
    found = table.find(provider, rest) if slash and provider in table.shipped else None
    for each in table.shipped if found is None else ():
        found = found or table.find(each, name)
    if found is None:
        near = ", ".join(table.nearest(name))
        raise CommandError(f'model "{name}" has no price; known are {near or "none like it"}')
    return found


def _is_called(call: CallRow, name: str) -> bool:
    names = (call.model, call.asked_model, call.model_served, f"{call.provider}/{call.model}")
    return any(each is not None and (each == name or fnmatchcase(each, name)) for each in names)


def _limit_view(found: past.Replay, since: datetime | None) -> View:
    records = [past.limit_record(outcome, clock.instant) for outcome in found.outcomes]
    outcomes = found.outcomes
    columns = table(
        ([outcome.budget.limit for outcome in outcomes], False),
        ([Money(outcome.spent) for outcome in outcomes], True),
        ([Money(outcome.would_spend) for outcome in outcomes], True),
    )
    cells = [
        [str(r["budget"]), str(r["key"]), str(r["window"]), limit, f"{o.calls:,}", f"{o.refused:,}",
         f"{o.lowered:,}", f"{o.perhaps_lowered:,}", spent, would, str(r["first"] or "-")]
        for r, o, limit, spent, would in zip(records, outcomes, *columns, strict=True)
    ]  # fmt: skip
    refused, lowered, perhaps = len(found.refused), len(found.lowered), len(found.perhaps_lowered)
    words = f"of {found.calls:,} calls {refused:,} would have been refused"
    words += f", {lowered:,} lowered to what is left" if lowered else ""
    words += f", and {perhaps:,} lowered or refused, which their rows do not tell" if perhaps else ""
    at_most = "at most " if lowered or perhaps else ""
    would, spent = line(found.would_spend, found.spent)
    said_total = f"{words}: {at_most}{would} spent instead of {spent}"
    assumptions = [*([_LOWERED] if lowered or perhaps else []), *_LIMIT_ASSUMPTIONS]
    document = {
        "since": None if since is None else stamp(since), "assumptions": assumptions, "rows": records,
        "total": {
            "calls": found.calls, "refused": refused, "spent_usd": dollars(found.spent),
            "would_spend_usd": dollars(found.would_spend), "lowered": lowered, "perhaps_lowered": perhaps,
        },
        "refused": list(found.refused), "lowered": list(found.lowered), "perhaps_lowered": list(found.perhaps_lowered),
    }  # fmt: skip
    kept = [place for place, each in enumerate(_LIMIT_COLUMNS) if lowered or perhaps or each not in _LOWER]
    return View(
        [_LIMIT_COLUMNS[place] for place in kept], [[row[place] for place in kept] for row in cells], records,
        past.LIMIT_FIELDS, document,
        notes=[said_total, *assumptions],
        empty="no calls that such limits count",
    )  # fmt: skip


def _model_view(rows: Sequence[past.Repriced], since: datetime | None) -> View:
    total = past.sum_of(rows)
    records = [past.model_record(row) for row in rows]
    every = [*rows, total]
    columns = table(
        ([row.spent for row in every], True),
        ([row.would_spend for row in every], True),
        ([row.would_spend - row.spent for row in every], True),
    )
    cells = [
        [row.model, row.as_model, f"{row.calls:,}", *amounts, f"{row.left_out:,}"]
        for row, *amounts in zip(every, *columns, strict=True)
    ]
    assumptions = [*_MODEL_ASSUMPTIONS, *([_UNPARTED] if total.left_out else [])]
    document = {
        "since": None if since is None else stamp(since), "assumptions": assumptions, "rows": records,
        "total": {key: value for key, value in past.model_record(total).items() if key not in ("model", "as_model")},
    }  # fmt: skip
    return View(
        _MODEL_COLUMNS, cells[:-1], records, past.MODEL_FIELDS, document, foot=["TOTAL", "", *cells[-1][2:]],
        notes=assumptions, empty="no charged calls of such a model",
    )  # fmt: skip

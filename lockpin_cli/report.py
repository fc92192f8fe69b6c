"""`lockpin report`: what was spent, added up."""

from __future__ import annotations

import enum
from datetime import datetime
from typing import Annotated

import typer

from lockpin_cli.inputs import instant, load_config
from lockpin_cli.options import LIMIT_MAX, ConfigOption, SinceOption, new_app
from lockpin_cli.output import Column, Format, FormatOption, View, show
from lockpin_cli.presence import is_there
from lockpin_core.clock import utc_now
from lockpin_core.config import Config
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.readers.figures import aligned, said
from lockpin_core.readers.report import COUNTS, FIELDS, NOTHING, Report, document, estimated_share, ordered, record

app = new_app()

_TABLE_ROWS = 1000  # more than anybody reads
_COUNT_TITLES = ("CALLS", "REFUSED", "UNCAPPED", "EST. CALLS", "INPUT", "CACHE READ", "CACHE WRITE", "OUTPUT")


class Group(enum.StrEnum):
    """What calls can be added up by."""

    TASK = "task"
    DAY = "day"
    MODEL = "model"
    PROVIDER = "provider"
    PROJECT = "project"
    CLIENT = "client"
    USER = "user"
    TEAM = "team"
    KEY = "key"
    TAG = "tag"


@app.command()
def report(
    context: typer.Context,
    by: Annotated[Group, typer.Option(help="What to add up by; days are those of `timezone`.")] = Group.TASK,
    since: SinceOption = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, max=LIMIT_MAX, help=f"How many, dearest first; else {_TABLE_ROWS} in a table, all elsewhere."
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
    plot: Annotated[bool, typer.Option("--plot", hidden=True)] = False,
    config: ConfigOption = None,
) -> None:
    """Add up calls, tokens and dollars; works while the proxy runs.

    Example: lockpin report --by model --since 7d --format csv
    """
    if plot:
        raise typer.BadParameter("that is not in this version", context, param_hint="--plot")
    now = utc_now()
    start = None if since is None else instant(since, "--since", now)
    most = limit or (_TABLE_ROWS if form is Format.TABLE else -1)
    found = _read(load_config(context, config), by.value, start, now, most)
    show(_view(found, form, cut=limit is None and len(found.rows) == most), form)


def _read(config: Config, by: str, since: datetime | None, now: datetime, limit: int) -> Report:
    ledger = config.ledger
    if not is_there(ledger):
        return Report(since, now, by, [], NOTHING, [], str(ledger))
    with LedgerReader(ledger) as reader, reader.at_once():
        rows = ordered(reader.totals(by, since=since, zone=config.timezone, limit=limit), by)
        return Report(since, now, by, rows, reader.total(since=since), reader.open_holds(), str(ledger))


def _view(report: Report, form: Format, *, cut: bool) -> View:
    if form is Format.TABLE:
        return _table(report, cut=cut)
    if form is Format.JSON:
        return View((), (), (), FIELDS, document(report))
    return View((), (), map(record, report.rows), FIELDS)


def _table(report: Report, *, cut: bool) -> View:
    spent, estimated = (
        aligned([*(getattr(row, name) for row in report.rows), getattr(report.total, name)], up=True)
        for name in ("spent", "estimated")
    )
    lines = [[row.key or "-", *(f"{getattr(row, name):,}" for name in COUNTS)] for row in (*report.rows, report.total)]
    cells = [[*line, *amounts] for line, *amounts in zip(lines, spent, estimated, strict=True)]
    columns = [Column(report.by.upper()), *(Column(title, right=True) for title in (*_COUNT_TITLES, "SPENT", "EST."))]
    notes = [f"the dearest {len(report.rows):,}; --limit shows more"] if cut else []
    return View(
        columns, cells[:-1], (), FIELDS, foot=["TOTAL", *cells[-1][1:]], notes=[*notes, *_notes(report)],
        empty=f"no calls {'since then ' if report.since else 'yet '}in {report.ledger}",
    )  # fmt: skip


def _notes(report: Report) -> list[str]:
    notes: list[str] = []
    if report.open_holds:
        count = len(report.open_holds)
        notes.append(f"held by {count} call{'s' if count > 1 else ''} in flight: {said(report.held())}")
    if report.total.estimated:
        notes.append(f"estimated: {estimated_share(report.total)}% of what was spent")
    if report.total.unpriced_calls:
        notes.append(f"calls without a known price, counted as $0: {report.total.unpriced_calls}")
    return notes

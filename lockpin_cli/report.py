"""`lockpin report`: what was spent, added up."""

from __future__ import annotations

import enum
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from lockpin_cli.inputs import instant, load_to_read
from lockpin_cli.options import LIMIT_MAX, ConfigOption, LedgerOption, SinceOption, new_app
from lockpin_cli.output import Column, Format, FormatOption, View, show
from lockpin_cli.presence import is_there
from lockpin_core.clock import utc_now
from lockpin_core.config import Config, parse
from lockpin_core.errors import ConfigError
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.readers.figures import said, table
from lockpin_core.readers.report import COUNTS, FIELDS, NOTHING, Report, document, estimated_share, ordered, record

app = new_app()

_TABLE_ROWS = 1000  # more than anybody reads
_BARS = 20  # of a picture
_COUNT_TITLES = ("CALLS", "REFUSED", "UNCAPPED", "EST. CALLS", "INPUT", "CACHE READ", "CACHE WRITE", "OUTPUT")
_SPARE = (0, 1, 7, 8, 3, 5, 6, 3, 0, 4)  # which of them and of SPENT and EST. $ a narrow terminal goes without


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
    GROUP = "group"
    RING = "ring"
    KEY = "key"
    TAG = "tag"


@app.command()
def report(
    context: typer.Context,
    by: Annotated[Group, typer.Option(help="What to add up by.")] = Group.TASK,
    since: SinceOption = None,
    timezone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Whose days are meant; else `timezone` of lockpin.yaml, or UTC.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=LIMIT_MAX,
            metavar="N",
            help=f"How many, dearest first; else {_TABLE_ROWS} in a table, all elsewhere.",
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
    plot: Annotated[bool, typer.Option("--plot", help="Draw what was spent instead of a table.")] = False,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Add up calls, tokens and dollars; works while the proxy runs.

    Example: lockpin report --by model --since 7d --format csv

    Example: lockpin report --by day --since 4w --plot
    """
    if plot and form is not Format.TABLE:
        raise typer.BadParameter(f"a picture has no {form}; one of the two is allowed", context, param_hint="--plot")
    now = utc_now()
    start = None if since is None else instant(since, "--since", now)
    most = limit or (_TABLE_ROWS if form is Format.TABLE else -1)
    if plot:
        most = -1 if by is Group.DAY else limit or _BARS  # a day that is left out would look like one without spend
    found = _read(_config(context, config, timezone), by.value, start, now, most)
    if plot and found.total.spent:
        _draw(found)
    else:
        show(_view(found, form), form)


def _config(context: typer.Context, own: Path | None, zone: str | None) -> Config:
    loaded = load_to_read(context, own)
    try:
        named = loaded.timezone if zone is None else parse(None, None, options={"timezone": zone}).timezone
        return replace(loaded, timezone=named)
    except ConfigError as error:
        raise typer.BadParameter(str(error), context, param_hint="--timezone") from None


def _read(config: Config, by: str, since: datetime | None, now: datetime, limit: int) -> Report:
    ledger = config.ledger
    if not is_there(ledger):
        return Report(since, now, by, [], NOTHING, [], str(ledger))
    with LedgerReader(ledger) as reader, reader.at_once():
        rows = ordered(reader.totals(by, since=since, zone=config.timezone, limit=limit), by)
        left_out = reader.count(by, since=since, zone=config.timezone) - limit if len(rows) == limit else 0
        return Report(since, now, by, rows, reader.total(since=since), reader.open_holds(), str(ledger), left_out)


def _view(report: Report, form: Format) -> View:
    if form is Format.TABLE:
        return _table(report)
    if form is Format.JSON:
        return View((), (), (), FIELDS, document(report))
    return View((), (), map(record, report.rows), FIELDS)


def _table(report: Report) -> View:
    every = (*report.rows, report.total)
    spent, estimated = table(([row.spent for row in every], True), ([row.estimated for row in every], True))
    lines = [[row.key or "-", *(f"{getattr(row, name):,}" for name in COUNTS)] for row in every]
    cells = [[*line, *amounts] for line, *amounts in zip(lines, spent, estimated, strict=True)]
    titles = zip((*_COUNT_TITLES, "SPENT", "EST. $"), _SPARE, strict=True)
    columns = [Column(report.by.upper()), *(Column(title, right=True, spare=spare) for title, spare in titles)]
    return View(
        columns, cells[:-1], (), FIELDS, foot=["TOTAL", *cells[-1][1:]],
        notes=[*_cut(report), *_notes(report)],
        empty=f"no calls {'since then ' if report.since else 'yet '}in {report.ledger}",
    )  # fmt: skip


def _draw(report: Report) -> None:
    from lockpin_cli import plots  # slow to import

    spent = [(row.key or "-", row.spent) for row in report.rows]
    print(plots.days(spent) if report.by == Group.DAY else plots.bars(spent))
    total = f"spent: {said(report.total.spent)} in {report.total.calls:,} call{'s' if report.total.calls != 1 else ''}"
    for note in [total, *_cut(report), *_notes(report)]:
        print(note)


def _cut(report: Report) -> list[str]:
    if not report.left_out:
        return []
    rows = f"{report.left_out:,} more row{'s' if report.left_out > 1 else ''}"
    return [f"the dearest {len(report.rows):,}; {rows} in the total, --limit shows more"]


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

"""`lockpin ledger`: a copy of the books, what was changed in them, their space, and their age."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from lockpin_cli.changes import whoami
from lockpin_cli.inputs import instant, load_config, load_to_read
from lockpin_cli.options import ConfigOption, LedgerOption, SinceOption, new_app
from lockpin_cli.output import Column, Format, FormatOption, View, plain, say, show
from lockpin_cli.presence import is_there, need
from lockpin_core.clock import new_id, stamp, utc_now
from lockpin_core.errors import CommandError
from lockpin_core.ledger import maintain
from lockpin_core.ledger.maintain import Progress
from lockpin_core.ledger.prune import Plan, plan
from lockpin_core.ledger.prune import prune as take_out
from lockpin_core.ledger.reader import Event, LedgerReader
from lockpin_core.readers.events import BOOKKEEPING, FIELDS, record

app = new_app("Back up, list changes, take old rows out, give space back.\n\nExample: lockpin ledger backup")

_EVENT_COLUMNS = (Column("AT"), Column("WHO", spare=1), Column("LOOSENS", spare=2), Column("WHAT"))
_UNITS = ("KiB", "MiB", "GiB", "TiB")


@app.command()
def backup(
    context: typer.Context,
    dest: Annotated[
        str | None, typer.Argument(metavar="[DEST]", help="A new file, or a folder; else beside the ledger.")
    ] = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Copy the ledger as it is at one instant, while the proxy runs, and verify the copy. It overwrites nothing.

    Example: lockpin ledger backup /media/disk/lockpin.sqlite3
    """
    books = need(load_to_read(context, config).ledger)
    wanted = None if dest is None else _destination(dest)
    with _bar("pages") as progress:
        made = maintain.backup(books, wanted, now=utc_now(), new_id=new_id, progress=progress)
    if made.verdict.wrong is not None:
        raise CommandError(f"{made.path} is a copy, and {books} is wrong: {made.verdict.wrong.words}")
    print(plain(f"backup: {made.verdict.rows:,} rows, {_size(made.size_bytes)}, verified, in {made.path}"))


@app.command()
def vacuum(context: typer.Context, config: ConfigOption = None, ledger: LedgerOption = None) -> None:
    """Give back the space of rows that were taken out. No proxy may run meanwhile.

    Example: lockpin ledger vacuum
    """
    books = need(load_config(context, config).ledger)
    done = maintain.vacuum(books, new_id=new_id)
    given = max(done.before_bytes - done.after_bytes, 0)
    print(plain(f"vacuumed: {_size(given)} given back, {_size(done.after_bytes)} left in {books}"))


@app.command()
def prune(
    context: typer.Context,
    before: Annotated[
        str, typer.Option(metavar="WHEN", help="Rows from before then: 180d, or a date such as 2026-01-01.")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Take old rows out, while the proxy runs; sums, accounts and chain ends stay, so the rest can be verified.

    Single calls of that time cannot be listed, shown or corrected any more. Rows that budgets may still have to read
    stay: those of the last 94 days, and those of calls in flight. A task that was stopped by then, and has not been
    called since, goes on.

    Example: lockpin ledger prune --before 180d
    """
    since = instant(before, "--before", utc_now())
    books = need(load_config(context, config).ledger)
    wanted = plan(books, since)
    if wanted.count == 0:
        why = f": {wanted.kept}" if wanted.kept else ""
        print(plain(f"no rows from before {stamp(since)} can be taken out of {books}{why}"))
        return
    if wanted.kept:
        say(wanted.kept)
    if not yes:
        _ask(books, wanted)
    with _bar("rows") as progress:
        taken = take_out(books, wanted, clock=utc_now, new_id=new_id, who=whoami(), progress=progress)
    print(plain(f"pruned: {_rows(taken)} up to {_until(wanted)} taken out of {books}; `lockpin ledger vacuum` gives"
                " their space back"))  # fmt: skip


@app.command("events")
def list_events(
    context: typer.Context,
    since: SinceOption = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also what the ledger notes for itself, account by account and call by call.")
    ] = False,
    form: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """List what was changed, by whom and when, newest last: limits, tasks, rows taken out.

    Example: lockpin ledger events --since 7d --format json
    """
    start = None if since is None else instant(since, "--since", utc_now())
    books = load_to_read(context, config).ledger
    with contextlib.ExitStack() as stack:
        found: Iterator[Event] = iter(())
        if is_there(books):
            found = stack.enter_context(LedgerReader(books)).events(since=start)
        records = (record(event) for event in found if every or event.code not in BOOKKEEPING)
        if form is not Format.TABLE:
            show(View((), (), records, FIELDS), form)
            return
        cells = [
            [str(each["at"]), str(each["who"] or "-"), "yes" if each["loosens"] else "-", str(each["what"])]
            for each in records
        ]
        empty = f"nothing was changed {'since then ' if start else 'yet '}in {books}"
        show(View(_EVENT_COLUMNS, cells, (), FIELDS, empty=empty), form)


def _destination(text: str) -> Path:
    """Read where a backup is to be: a file, or a folder that is there. Raises CommandError for a folder that is not."""
    path = Path(text).expanduser().absolute()
    try:
        if text.endswith(os.sep) and not path.is_dir():
            raise CommandError(f"there is no folder {path}; make it, or name a file in a folder that is there")
    except OSError as error:
        raise CommandError(f"the backup {path} cannot be written: {error.strerror}; name another place") from error
    return path


def _ask(ledger: Path, wanted: Plan) -> None:
    """Let a person say whether it is to be; nobody at a terminal: it is not."""
    words = f"{_rows(wanted.count)} up to {_until(wanted)} would be taken out of {ledger} for good"
    if not sys.stdin.isatty():
        raise CommandError(f"{words}; --yes does it")
    typer.confirm(plain(f"{words}. Do it?"), abort=True, err=True)


@contextlib.contextmanager
def _bar(what: str) -> Iterator[Progress | None]:
    """Show a bar on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # for terminals only: the command must start fast
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        shown = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(shown, completed=done, total=total)


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _until(wanted: Plan) -> str:
    assert wanted.last_at is not None, "a plan that takes rows out has a last one"
    return stamp(wanted.last_at)


def _size(size_bytes: int) -> str:
    """Write a size in the largest unit of which there is one, to one decimal downwards."""
    if size_bytes < 1024:
        return f"{size_bytes} bytes"
    power = min((size_bytes.bit_length() - 1) // 10, len(_UNITS))
    tenths = size_bytes * 10 >> 10 * power
    return f"{tenths // 10:,}.{tenths % 10} {_UNITS[power - 1]}"

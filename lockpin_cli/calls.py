"""`lockpin calls`: single calls, newest first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Annotated

import typer

from lockpin_cli import completion
from lockpin_cli.changes import stranger, task_name
from lockpin_cli.inputs import instant, load_to_read
from lockpin_cli.layout import is_whole
from lockpin_cli.options import LIMIT_MAX, ConfigOption, LedgerOption, SinceOption, TaskOption, new_app
from lockpin_cli.output import Column, Format, FormatOption, View, say, show, terminal_columns
from lockpin_cli.presence import is_there
from lockpin_cli.rules import account_key
from lockpin_core.clock import stamp, utc_now
from lockpin_core.ledger.listing import DEFERRED, CallRow
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.readers.calls import FIELDS, SOMETIMES, charged, needed, over_words, receipt_of
from lockpin_core.readers.figures import table

app = new_app()

_ID_MIN = 8  # characters of a short id
_TABLE_ROWS = 50  # what a person wants to see at once
_COLUMNS = (
    *(Column("AT", spare=1, whole=True), Column("CALL", whole=True), Column("TASK")),
    *(Column("USER", spare=2), Column("KEY", spare=5, whole=True), Column("MODEL"), Column("DECISION", spare=3)),
    *(Column("TOKENS", right=True, spare=4), Column("HELD", right=True), Column("CHARGED", right=True), Column("NOTE")),
)
_WHO = ("USER", "KEY")  # columns that are there where somebody's key, or token, said who called


@app.command()
def calls(
    context: typer.Context,
    task: TaskOption = None,
    since: SinceOption = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="GLOB", help="Only calls that asked for such a model, or got it.", autocompletion=completion.models
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="SCOPE:SUBJECT", help="Only calls of user:ann@corp.com, team:web, group:ml, key:ID, tag:k=v, …"
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=LIMIT_MAX,
            metavar="N",
            help=f"How many, newest first; else {_TABLE_ROWS} in a table, all elsewhere.",
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """List calls, newest first. JSON is an array of receipts.

    Example: lockpin calls --task fix-login --since 24h --format jsonl

    Example: lockpin calls --model 'claude-opus-*' --key user:ann@corp.com
    """
    start = None if since is None else instant(since, "--since", utc_now())
    named = None if task is None else task_name(task, "--task")
    payer = None if key is None else account_key(key)
    loaded = load_to_read(context, config)
    wanted = limit or (_TABLE_ROWS if form is Format.TABLE else -1)
    with ExitStack() as stack:
        found: Iterator[CallRow] = iter(())
        reader: LedgerReader | None = None
        if is_there(loaded.ledger):
            reader = stack.enter_context(LedgerReader(loaded.ledger))
            found = reader.calls(since=start, task=named, model=model, payer=payer, limit=wanted)
        first = next(found, None)
        asked = [("task", named)] if named is not None else []
        for scope, subject in [*asked, *([payer] if payer is not None else [])]:
            if first is None and (unknown := stranger(loaded, scope, subject)):
                say(unknown)
        everything = itertools.chain([] if first is None else [first], found)
        if form is Format.TABLE:
            shown = list(everything)
            view = _table(shown, loaded.ledger, cut=limit is None and len(shown) == _TABLE_ROWS)
            room = terminal_columns()
            is_narrow = room is not None and bool(shown) and not is_whole(view, room)
            show(_shortened(view, shown, reader) if is_narrow else view, form)
        else:
            show(_records(everything, form), form)


def _records(found: Iterator[CallRow], form: Format) -> View:
    """Give receipts, one by one; in CSV each has a cell for what others have."""
    receipts = map(receipt_of, found)
    if form is not Format.CSV:
        return View((), (), receipts, FIELDS)
    none = dict.fromkeys(SOMETIMES)
    return View((), (), ({**none, **receipt} for receipt in receipts), (*FIELDS, *SOMETIMES))


def _table(found: Sequence[CallRow], ledger: Path, *, cut: bool) -> View:
    held, spent = table(([call.held for call in found], True), ([charged(call) for call in found], True))
    is_team = any(call.payers.user or call.payers.key for call in found)
    cells = [
        [
            stamp(call.at), call.id, call.payers.task, *(_who(call) if is_team else ()), call.model or "-",
            call.decision, _tokens(call), *shown, _note(call),
        ]
        for call, *shown in zip(found, held, spent, strict=True)
    ]  # fmt: skip
    columns = [column for column in _COLUMNS if is_team or column.title not in _WHO]
    notes = [f"the newest {_TABLE_ROWS}; --limit shows more"] if cut else []
    return View(
        columns, cells, (), FIELDS, notes=notes, empty=f"no such calls in {ledger}", tones=list(map(_tone, found))
    )


def _who(call: CallRow) -> list[str]:
    return [call.payers.user or "-", call.payers.key or "-"]


def _tokens(call: CallRow) -> str:
    """Write the tokens that were booked; those that no reply has stated with a mark."""
    if call.tokens is None:
        return "-"
    is_stated = bool(call.usage) and not call.estimated
    return f"{call.tokens:,}" if is_stated or not call.tokens else f"~{call.tokens:,}"


def _shortened(view: View, found: Sequence[CallRow], reader: LedgerReader | None) -> View:
    """Write ids and times short, so that a narrow terminal has room for the rest."""
    assert reader is not None, "calls come from a ledger"
    length = max(_unique(call.id, reader) for call in found)
    today = utc_now().date()
    pairs = zip(found, view.cells, strict=True)
    return replace(view, cells=[[_short_time(call.at, today), call.id[:length], *row[2:]] for call, row in pairs])


def _unique(call_id: str, reader: LedgerReader) -> int:
    """Say how many characters of an id no other call begins with; 8 at least."""
    length, others = _ID_MIN, reader.ids(call_id[:_ID_MIN])
    while length < len(call_id) and sum(other.startswith(call_id[:length]) for other in others) > 1:
        length += 1
    return length


def _short_time(at: datetime, today: date) -> str:
    """Write an instant of today without its day, another without its year and seconds; both in UTC."""
    return f"{at:%H:%M:%S}" if at.date() == today else f"{at:%m-%d %H:%M}"


def _tone(call: CallRow) -> str:
    """Colour a call: red where it was refused or cost more than was held, yellow where its cost is not known surely."""
    if call.decision == "refused" or call.over_hold:
        return "red"
    return "yellow" if call.estimated or not call.priced or call.decision == "uncapped" else ""


def _note(call: CallRow) -> str:
    tried = [f"attempt {call.attempt.number} of {call.attempt.of}"] if call.attempt.number > 1 else []
    tried += [f"in place of {call.instead_of}"] if call.instead_of else []
    return " ".join(dict.fromkeys([*filter(None, _ending(call)), *tried]))


def _ending(call: CallRow) -> list[str]:
    """Say how a call has ended, in words of which some may be empty."""
    if call.state == "open":
        return [call.reason if call.reason == DEFERRED else "in flight"]
    if call.state == "none":
        why = needed(call) or str(call.code)
        return [f"{why} ×{call.count:,}" if call.count > 1 else why]
    reason = "" if call.was_estimated and not call.estimated else call.reason  # a person has put it right
    notes = ["(est.)" if call.estimated else "", reason or "", "failed" if call.failed else ""]
    return [
        *notes,
        over_words(call),
        "" if call.priced else "no price",
        *(each.code for each in call.corrections),
        f"drift: {', '.join(call.drift)}" if call.drift else "",
    ]

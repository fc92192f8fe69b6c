"""`lockpin approvals`: questions about calls that only a person can let go."""

from __future__ import annotations

from typing import Annotated

import typer

from lockpin_cli.changes import open_admin, whoami
from lockpin_cli.inputs import amount, load_config, load_to_read
from lockpin_cli.options import ConfigOption, LedgerOption, new_app
from lockpin_cli.output import Column, Format, FormatOption, View, plain, show
from lockpin_cli.presence import is_there, need
from lockpin_core.clock import utc_now
from lockpin_core.ledger.questions import ANSWERS, Question
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.ledger.watchers import watching
from lockpin_core.readers.figures import said
from lockpin_core.readers.questions import FIELDS, outcome, record, state_of

app = new_app("Watch for questions about calls, list and answer them.\n\nExample: lockpin approvals watch")

NOBODY = "nobody is watching, so no call is asked about: run `lockpin approvals watch`"
_COLUMNS = (
    *(Column("ID", right=True), Column("STATE"), Column("TASK"), Column("USER", spare=3), Column("MODEL", spare=2)),
    *(Column("NEEDS", right=True), Column("SHORT BY", right=True), Column("ASKED", spare=1), Column("BY", spare=4)),
)
_ALLOWED = tuple(answer for answers in ANSWERS.values() for answer in answers)


@app.command("list")
def list_questions(
    context: typer.Context, form: FormatOption = Format.TABLE, config: ConfigOption = None, ledger: LedgerOption = None
) -> None:
    """List the questions of the last day, newest first, and say how many watch.

    Example: lockpin approvals list --format json
    """
    books = load_to_read(context, config).ledger
    found: list[Question] = []
    now = utc_now()
    if is_there(books):
        with LedgerReader(books) as reader:
            found = reader.questions(now=now)
    cells = [
        [
            *(q.id, state_of(q, now), q.task, q.user or "-", q.model),
            *(said(q.needed), said(q.short_by), f"{q.asked:%H:%M:%S}", q.who or "-"),
        ]
        for q in found
    ]
    count = watching(books)
    note = NOBODY if not count else "1 watcher" if count == 1 else f"{count} watchers"
    empty = "no questions in the last day"
    show(View(_COLUMNS, cells, [record(q, now) for q in found], FIELDS, notes=(note,), empty=empty), form)


@app.command()
def answer(
    context: typer.Context,
    question: Annotated[str, typer.Argument(metavar="ID", help="The question's number.")],
    given: Annotated[str, typer.Argument(metavar="once|raise|refuse|continue|stop", help="The answer.")],
    by: Annotated[
        str | None, typer.Option(metavar="USD", help="By how much to raise, instead of what the question shows.")
    ] = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Answer a question: the first answer counts. once: this call may go; raise: the task's budget is raised; refuse.

    Of a task that goes round in a circle: continue or stop.

    Example: lockpin approvals answer 41 once

    Example: lockpin approvals answer 41 raise --by 5
    """
    if given not in _ALLOWED:
        words = f'"{given}" is no answer; {", ".join(_ALLOWED[:-1])} or {_ALLOWED[-1]} is allowed'
        raise typer.BadParameter(words, param_hint="ANSWER")
    more = None if by is None else amount(by, "--by")
    loaded = load_config(context, config)
    need(loaded.ledger)
    answered = open_admin(loaded).answer(question.strip(), given, who=whoami(), by=more)
    print(plain(f"question {answered.id}: {outcome(answered)}"))


@app.command()
def watch(context: typer.Context, config: ConfigOption = None, ledger: LedgerOption = None) -> None:
    """Show each question as it is put, and take its answer from the keyboard; Ctrl-C ends.

    While it runs, a call that only its task's budget is short for is asked about before it is refused. Without a
    terminal it prints a JSON line for each question, and one more when that is answered or over.

    Example: lockpin approvals watch
    """
    from lockpin_cli.approvals_watch import run  # needed by this command alone

    loaded = load_config(context, config)
    run(need(loaded.ledger), open_admin(loaded), whoami())

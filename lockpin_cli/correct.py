"""`lockpin correct`: what a call really cost, where what was booked is not it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from lockpin_cli.changes import find_call, open_admin, whoami
from lockpin_cli.inputs import cost, load_config
from lockpin_cli.options import ConfigOption, LedgerOption, new_app
from lockpin_cli.output import plain
from lockpin_core.budgets import Standing
from lockpin_core.clock import stamp, utc_now
from lockpin_core.errors import CommandError
from lockpin_core.ledger.admin import canonical_reason
from lockpin_core.ledger.listing import CallRow
from lockpin_core.ledger.protocol import Corrected
from lockpin_core.money import Money
from lockpin_core.readers.figures import said
from lockpin_core.readers.statement import key_of

app = new_app()


@app.command()
def correct(
    context: typer.Context,
    call: Annotated[
        str, typer.Argument(metavar="CALL", help="A call's id, 4 of its first characters or more, or last.")
    ],
    usd: Annotated[str, typer.Option(metavar="USD", help="What the call really cost in all, not the difference.")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it is kept with the correction.")],
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Book what a call that has ended really cost, in the window of its hold. Every row stays; one is added.

    Example: lockpin correct last --usd 0.42 --reason "the provider's invoice"
    """
    paid = cost(usd, "--usd")
    words = _reason(reason)
    loaded = load_config(context, config)
    found = find_call(loaded.ledger, call)
    _refuse_unheld(found)
    done = open_admin(loaded).correct(found.id, paid, reason=words, who=whoami())
    now = utc_now()
    print(plain(f"{_difference(done)}; {', '.join(_standing(each, now) for each in done.standings)}"))


def _reason(text: str) -> str:
    try:
        return canonical_reason(text)
    except CommandError as error:
        raise typer.BadParameter(str(error), param_hint="--reason") from None


def _refuse_unheld(call: CallRow) -> None:
    if call.decision == "refused":
        raise CommandError(f'call "{call.id}" was refused ({call.code}) and never sent, so it cost nothing')
    if call.decision == "uncapped":
        raise CommandError(f'call "{call.id}" went uncapped ({call.code}), on no account; there is nothing to correct')


def _difference(done: Corrected) -> str:
    more = done.after - done.before
    sign = "-" if more.nano < 0 else "+"
    size = Money(abs(more.nano)).exact()
    return f"call {done.call_id}: ${done.before.exact()} before, ${done.after.exact()} now ({sign}${size})"


def _standing(standing: Standing, now: datetime) -> str:
    """Say how an account of the call stands, and of which window it is where that is over."""
    limit = "" if standing.limit is None else f" of {said(standing.limit)}"
    start, end = standing.span.start, standing.span.end
    over = "" if start is None or end is None or now < end else f" in the window from {stamp(start)} to {stamp(end)}"
    return f"{key_of(standing)}: {standing.budget.name} spent {said(standing.spent)}{limit}{over}"

"""`lockpin budget status`: how each account stands against its limit."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Annotated

import typer

from lockpin_cli import completion
from lockpin_cli.changes import callers, stranger
from lockpin_cli.inputs import load_to_read
from lockpin_cli.layout import is_whole
from lockpin_cli.options import ConfigOption, LedgerOption
from lockpin_cli.output import Column, Format, FormatOption, View, say, show, terminal_columns
from lockpin_cli.pauses import say_pauses
from lockpin_cli.presence import is_there
from lockpin_cli.rules import account_key, known
from lockpin_core.budgets import Standing, subjects_in
from lockpin_core.clock import stamp, utc_now
from lockpin_core.config import Config
from lockpin_core.errors import CommandError
from lockpin_core.ledger.protocol import Rules
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.readers.accounts import accounts, untouched
from lockpin_core.readers.figures import aligned, short_count
from lockpin_core.readers.rulebook import rhythm
from lockpin_core.readers.statement import FIELDS, action_of, key_of, statement, used
from lockpin_core.windows import shown

_COLUMNS = (
    *(Column("BUDGET"), Column("KEY"), Column("WINDOW", spare=3, tight=True), Column("ACTION", spare=1)),
    *(Column("SPENT", right=True), Column("HELD", right=True), Column("LIMIT", right=True)),
    *(Column("USED", right=True, spare=2), Column("RESETS", spare=4, tight=True)),
)

_NAMED = 6  # accounts that a hint names

KeyOption = Annotated[
    str | None,
    typer.Option(
        metavar="SCOPE:SUBJECT",
        help="One account: task:fix-login, user:ann@corp.com, machine:annas-laptop by its host name, or org.",
    ),
]


def status(
    context: typer.Context,
    budget: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this budget.", autocompletion=completion.budgets)
    ] = None,
    key: KeyOption = None,
    form: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Show what is spent and held of each limit. USED goes by spent alone.

    Example: lockpin budget status --key task:fix-login --output json
    """
    loaded = load_to_read(context, config)
    wanted = None if key is None else ":".join(account_key(key))
    there = known(loaded)
    if budget is not None and budget not in there.book.names():
        raise CommandError(f'no budget "{budget}"; there are {", ".join(there.book.names())}')
    now = utc_now()
    found = [
        standing
        for standing in standings(loaded, there.book.rules, now)
        if budget in (None, standing.budget.name) and wanted in (None, key_of(standing))
    ]
    for note in there.book.notes.values():
        say(note)
    unknown = stranger(loaded, *account_key(key)) if key is not None and not found else None
    if unknown is not None:
        say(unknown)
    room = terminal_columns() if form is Format.TABLE else None
    view = view_of(found, _users(loaded, found))
    if wanted is not None and unknown is None:
        scope, subject = wanted.split(":", 1)
        view = replace(view, empty=_empty(there.book.rules, scope, wanted))
        if others := _others(loaded, there.book.rules, scope, subject):
            say(f"calls of {wanted} are charged to {others} too; --key shows each")
    show(view if room is None or is_whole(view, room) else narrow(view, found, now), form)
    say_pauses(loaded)
    if unknown is not None:
        raise typer.Exit(1)


def _empty(rules: Rules, scope: str, wanted: str) -> str:
    """Say why an account is not listed: there is no budget of its scope, or nothing is on it."""
    if scope == rules.task_default.scope or scope in (budget.scope for budget in rules.budgets):
        return "nothing is spent or held"
    way = "lockpin report" if scope in ("org", "machine") else f"lockpin report --by {scope}"
    return f"no budget has the scope {scope}, so {wanted} has no limit of its own; `{way}` says what it has spent"


def _users(config: Config, found: Sequence[Standing]) -> dict[str, str]:
    """Say of the keys that have an account whose they are."""
    if not is_there(config.ledger) or all(standing.budget.scope != "key" for standing in found):
        return {}
    with LedgerReader(config.ledger) as reader:
        return {key.id: key.user for key in reader.keys(now=utc_now())}


def _whose(standing: Standing, users: Mapping[str, str]) -> str:
    user = users.get(standing.subject) if standing.budget.scope == "key" else None
    return key_of(standing) if user is None else f"{key_of(standing)} ({user})"


def _others(config: Config, rules: Rules, scope: str, subject: str) -> str:
    """Name the accounts that the calls of a user or a key are charged to besides: each may stop them."""
    if scope not in ("user", "key") or not is_there(config.ledger):
        return ""
    with LedgerReader(config.ledger) as reader:
        whose = [payers for payers in callers(reader, good=True) if subject in subjects_in(scope, payers)]
    found = {
        f"{budget.scope}:{each}": None
        for budget in rules.budgets
        for payers in whose
        if budget.scope != scope and budget.is_for(payers)
        for each in budget.subjects(payers)
    }
    return ", ".join([*list(found)[:_NAMED], *["…"] * (len(found) > _NAMED)])


def standings(config: Config, rules: Rules, now: datetime) -> list[Standing]:
    """List the accounts to show: of this machine also where there is no ledger yet."""
    machine = socket.gethostname()
    if not is_there(config.ledger):
        return untouched(rules, machine=machine, now=now)
    with LedgerReader(config.ledger) as reader:
        return accounts(reader, rules, machine=machine, now=now)


def view_of(found: Sequence[Standing], users: Mapping[str, str] | None = None) -> View:
    """Write accounts in all forms, each column with the decimals it needs; `users` says of keys whose they are."""
    spent, held, limits = (
        aligned([standing.spent for standing in found], up=True),
        aligned([standing.held for standing in found], up=True),
        aligned([standing.limit for standing in found], up=False),
    )
    cells = [
        [
            standing.budget.name, _whose(standing, users or {}), rhythm(standing.budget.window), _action(standing),
            *_amounts(standing, amounts), _percent(standing),
            "-" if standing.span.end is None else stamp(standing.span.end),
        ]
        for standing, *amounts in zip(found, spent, held, limits, strict=True)
    ]  # fmt: skip
    return View(
        _COLUMNS, cells, statement(found), FIELDS, tones=list(map(_tone, found)), empty="nothing is spent or held"
    )


def narrow(view: View, found: Sequence[Standing], now: datetime) -> View:
    """Write the table short, so that a terminal of 80 columns has room for all of it: no zones, as the time of the
    reset says it, tokens in millions, and of a limit in tokens alone no dollars.
    """
    columns = [
        aligned([standing.spent for standing in found], up=True),
        aligned([standing.held for standing in found], up=True),
        aligned([standing.limit for standing in found], up=False),
    ]
    cells = []
    for row, standing, *amounts in zip(view.cells, found, *columns, strict=True):
        window, resets = shown(standing.budget.window), _short_time(standing.span.end, now)
        cells.append([*row[:2], window, row[3], *_short_amounts(standing, amounts), row[7], resets])
    return replace(view, cells=cells, folds=True)


def _tone(standing: Standing) -> str:
    """Colour an account: red at its limit, yellow from its lowest alert step on."""
    share = used(standing)
    if share is None or share < min(map(Decimal, standing.budget.alert_at), default=Decimal(1)):
        return ""
    return "red" if share >= 1 else "yellow"


def _action(standing: Standing) -> str:
    is_limited = standing.limit is not None or standing.limit_tokens is not None
    return action_of(standing) if is_limited else "-"


def _amounts(standing: Standing, dollars: Sequence[str]) -> list[str]:
    """Write spent, held and limit; tokens beside the dollars where they are limited too."""
    if standing.limit_tokens is None:
        return list(dollars)
    tokens = (standing.spent_tokens, standing.held_tokens, standing.limit_tokens)
    return [f"{amount} / {count:,} tok" for amount, count in zip(dollars, tokens, strict=True)]


def _short_amounts(standing: Standing, dollars: Sequence[str]) -> list[str]:
    if standing.limit_tokens is None:
        return list(dollars)
    counts = [short_count(count, up=True) for count in (standing.spent_tokens, standing.held_tokens)]
    counts.append(short_count(standing.limit_tokens, up=False))
    if standing.limit is None:
        return [f"{count} tok" for count in counts]
    return [f"{amount}/{count}" for amount, count in zip(dollars, counts, strict=True)]


def _short_time(at: datetime | None, now: datetime) -> str:
    """Write an instant (UTC) without its seconds, and without the year where it is this one."""
    if at is None:
        return "-"
    return f"{at:%m-%d %H:%M}" if at.year == now.year else f"{at:%Y-%m-%d %H:%M}"


def _percent(standing: Standing) -> str:
    share = used(standing)
    return "-" if share is None else f"{int(share * 100)}%"

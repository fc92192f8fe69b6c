"""`lockpin budget`: how each account stands against its limit, and budgets that commands make, raise and reset."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Annotated

import typer

from lockpin_cli import completion
from lockpin_cli.changes import open_admin, stranger, task_name, whoami
from lockpin_cli.flags import Flags, budget_of, given, joined, window_of
from lockpin_cli.inputs import amount, load_config, load_to_read, price_table
from lockpin_cli.listener import warn_beside
from lockpin_cli.options import ConfigOption, LedgerOption, new_app
from lockpin_cli.output import Column, Format, FormatOption, View, plain, say, show
from lockpin_cli.presence import is_there, need
from lockpin_cli.rules import Known, account, account_key, known, one_form, refuse_configured
from lockpin_cli.task import told
from lockpin_core.budgets import Budget, Standing, account_id
from lockpin_core.call import Payers
from lockpin_core.clock import stamp, utc_now
from lockpin_core.config import Config
from lockpin_core.config_budget_warnings import doubts
from lockpin_core.errors import CommandError
from lockpin_core.ledger.protocol import Rules, StoredBudget
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.money import ZERO, Money
from lockpin_core.readers.figures import said, table
from lockpin_core.readers.rulebook import line, rhythm, written
from lockpin_core.readers.statement import FIELDS, action_of, key_of, statement, used
from lockpin_core.windows import Window, kind_text, named, period_text, shown, span_at

app = new_app("Show, set, raise and reset limits.\n\nExample: lockpin budget status")

_COLUMNS = (
    *(Column("BUDGET"), Column("KEY"), Column("WINDOW", spare=3), Column("ACTION", spare=1)),
    *(Column("SPENT", right=True), Column("HELD", right=True), Column("LIMIT", right=True)),
    *(Column("USED", right=True, spare=2), Column("RESETS", spare=4)),
)

_SHOWN = 3  # raised accounts that an answer names

KeyOption = Annotated[
    str | None,
    typer.Option(
        metavar="SCOPE:SUBJECT", help="One account: task:fix-login, or machine:annas-laptop by its host name."
    ),
]
AnyArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A budget, or a task to give one of its own.",
        autocompletion=completion.budgets_and_tasks,
    ),
]
AccountArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A budget, or a task that has a budget of its own.",
        autocompletion=completion.budgets_and_tasks,
    ),
]


@app.command()
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
    found = [
        standing
        for standing in _standings(loaded, there.book.rules, utc_now())
        if budget in (None, standing.budget.name) and wanted in (None, key_of(standing))
    ]
    for note in there.book.notes.values():
        say(note)
    unknown = stranger(loaded, *account_key(key)) if key is not None and not found else None
    if unknown is not None:
        say(unknown)
    view = View(
        _COLUMNS, _cells(found), statement(found), FIELDS, tones=list(map(_tone, found)),
        empty="nothing is spent or held",
    )  # fmt: skip
    show(view, form)
    if unknown is not None:
        raise typer.Exit(1)


@app.command("set")
def set_budget(
    context: typer.Context,
    name: AnyArgument,
    scope: Annotated[str | None, typer.Option(metavar="task|machine", help="Whose spend is counted together.")] = None,
    window: Annotated[
        str | None, typer.Option(metavar="lifetime|day|week|month|rolling", help="When it starts anew.")
    ] = None,
    period: Annotated[str | None, typer.Option(metavar="24h", help="Of a rolling window: 1h to 2160h.")] = None,
    at: Annotated[str | None, typer.Option(metavar="HH:MM", help="When a day, week or month starts.")] = None,
    anchor: Annotated[str | None, typer.Option(metavar="DAY", help="The day on which a month starts, 1 to 31.")] = None,
    timezone: Annotated[str | None, typer.Option(metavar="ZONE", help="Else that of the proxy.")] = None,
    limit_usd: Annotated[str | None, typer.Option(metavar="USD", help="What may be spent; none takes it off.")] = None,
    limit_tokens: Annotated[
        str | None, typer.Option(metavar="N", help="Tokens that may be used; none takes it off.")
    ] = None,
    models: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Only these models; more with commas or again; * is all.")
    ] = None,
    providers: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only these providers; more with commas or again.")
    ] = None,
    alert_at: Annotated[str | None, typer.Option(metavar="0.5,0.8", help="Shares of the limit that alert.")] = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Make a budget that enforces, or change one; it holds from the next call on, in every running proxy.

    What is not given stays as it was. A task's name without --scope sets that task's own budget.

    Example: lockpin budget set sprint --scope machine --window week --limit-usd 40

    Example: lockpin budget set sprint --limit-usd 60 --models 'claude-*,gpt-5*'

    Example: lockpin budget set fix-login --window rolling --period 24h --limit-usd 5
    """
    flags: Flags = {
        "scope": scope, "window": window, "period": period, "at": at, "anchor": anchor, "timezone": timezone,
        "limit_usd": limit_usd, "limit_tokens": limit_tokens, "models": joined(models),
        "providers": joined(providers), "alert_at": alert_at,
    }  # fmt: skip
    loaded = load_config(context, config)
    there, name = known(loaded), one_form(name)
    is_made = name in there.book.by_command()
    if scope is None and name in there.tasks:
        _refuse_two(there, name)
        _set_task(loaded, there, name, flags)
        return
    refuse_configured(loaded, there.book, name)
    if scope is None and not is_made:
        ways = "--scope task or --scope machine makes one"
        raise typer.BadParameter(
            f"no budget and no task is called so; {ways}, `lockpin task new {shlex.quote(name)} --budget USD` a task",
            param_hint=name,
        )
    _refuse_nothing(name, flags)
    before = there.book.find(name) if is_made else None
    zone = there.book.rules.task_default.window.zone  # a proxy's, whatever folder the command is given in
    budget = budget_of(name, flags, timezone=zone, before=before)
    _put(loaded, budget)


def _put(config: Config, budget: Budget) -> None:
    found = doubts(budget, price_table(config)) if budget.models or budget.providers else []
    was = open_admin(config).budget_set(budget, who=whoami())
    print(plain(f"{_changed(budget, was)}{_already(config, budget)}"))
    for why in found:
        say(f'warning: budget "{budget.name}" {why}')
    warn_beside(config.ledger)


@app.command("rm")
def remove(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A budget that a command has made.", autocompletion=completion.budgets),
    ],
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Take a budget out of force. What it has counted stays, and goes on when it is set again.

    Example: lockpin budget rm sprint
    """
    loaded = load_config(context, config)
    there, name = known(loaded), one_form(name)
    refuse_configured(loaded, there.book, name)
    if name not in there.book.by_command():
        made = ", ".join(there.book.by_command()) or "none"
        way = f"; {_task_stays(name)}" if name in there.tasks else ""
        raise CommandError(f'no budget "{name}" was made by command; there is {made}{way}')
    gone = open_admin(loaded).budget_rm(name, who=whoami()).budget
    print(plain(f'budget "{name}" is out of force: {line(gone)}; what it has counted stays'))
    warn_beside(loaded.ledger)


@app.command("raise")
def raise_limit(
    context: typer.Context,
    name: AccountArgument,
    by: Annotated[
        str | None, typer.Option(metavar="USD", help="What to add to the limit of the current window.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take back all that was added in the current window.")] = False,
    key: KeyOption = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Raise a limit for its current window; a lifetime limit for good, a rolling one for one period.

    Example: lockpin budget raise daily --by 5

    Example: lockpin budget raise task --key task:fix-login --by 2

    Example: lockpin budget raise daily --key machine:annas-laptop --by 5 (a machine goes by its host name)

    Example: lockpin budget raise daily --undo
    """
    if (by is None) is not undo:
        raise typer.BadParameter("--by USD or --undo is needed, one of the two", param_hint="--by")
    more = None if by is None else amount(by, "--by")
    loaded = load_config(context, config)
    chosen, subject, note = account(loaded, name, key, "raise")
    if more is None:
        need(loaded.ledger)
        before = _stands(loaded, chosen, subject)
        after = open_admin(loaded).undo_raises(chosen, subject, who=whoami())
        limit = f"limit was {_limit(before)}, is {_limit(after)}"
    else:
        after = open_admin(loaded).raise_budget(chosen, subject, more, who=whoami())
        limit = f"limit {_limit(after)} {_until(after)}"
    words = f"{key_of(after)}: {chosen.name} {limit}, spent {said(after.spent)}, held {said(after.held)}"
    print(plain(words + _closed(loaded, chosen, subject)))
    warn_beside(loaded.ledger)
    if note is not None:
        say(note)


@app.command()
def reset(
    context: typer.Context,
    name: AccountArgument,
    key: KeyOption = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Let what is spent in the current window count from now on. Calls in flight stay held.

    Example: lockpin budget reset daily

    Example: lockpin budget reset task --key task:fix-login
    """
    loaded = load_config(context, config)
    chosen, subject, note = account(loaded, name, key, "reset")
    before, after = open_admin(loaded).reset_budget(chosen, subject, who=whoami())
    limit = "no limit" if after.limit is None else f"limit {said(after.limit)}"
    tokens = f" and {before.spent_tokens:,} tokens" if after.limit_tokens is not None else ""
    counts = f"spent was {said(before.spent)}{tokens} and counts from {said(after.spent)} now"
    print(plain(f"{key_of(after)}: {chosen.name} {counts}, held {said(after.held)}, {limit}"))
    warn_beside(loaded.ledger)
    if note is not None:
        say(note)


def _tone(standing: Standing) -> str:
    """Colour an account: red at its limit, yellow from its lowest alert step on."""
    share = used(standing)
    if share is None or share < min(map(Decimal, standing.budget.alert_at), default=Decimal(1)):
        return ""
    return "red" if share >= 1 else "yellow"


def _refuse_two(there: Known, name: str) -> None:
    """Refuse a name that is a budget and a task: nothing says which of the two is meant."""
    found = there.book.find(name)
    if found is not None:
        ways = f"--scope {found.scope} means the budget, `lockpin task new {shlex.quote(name)} --budget USD` the task"
        raise typer.BadParameter(f"it is a budget and a task; {ways}", param_hint=name)


def _refuse_nothing(name: str, flags: Flags) -> None:
    if not given(flags):
        ways = ", ".join(f"--{key.replace('_', '-')}" for key in flags if key != "scope")
        raise typer.BadParameter(f"nothing is to be changed; {ways} can change it", param_hint=name)


def _set_task(config: Config, there: Known, name: str, flags: Flags) -> None:
    """Set a task's own budget, as `task new` does; what is not given stays as it was."""
    other = [key for key in given(flags) if key not in ("limit_usd", "window", "period")]
    if other or not given(flags):
        words = "a task's own budget is set by --limit-usd, --window and --period; --scope makes another budget"
        raise typer.BadParameter(words, param_hint=f"--{other[0].replace('_', '-')}" if other else name)
    before = there.tasks[name]
    limit = None if flags["limit_usd"] is None else amount(flags["limit_usd"], "--limit-usd")
    if limit is None and before.limit_nano is None:
        raise typer.BadParameter("the task has no budget of its own yet; --limit-usd is needed", param_hint=name)
    window = named(before.window, Window("lifetime"))
    if flags["window"] is not None or flags["period"] is not None:
        window = window_of(window.kind if flags["window"] is None else flags["window"], flags["period"])
    made = open_admin(config).task_new(task_name(name, "NAME"), limit=limit, window=kind_text(window), who=whoami())
    was = "none" if before.limit_nano is None else f"{said(Money(before.limit_nano))}, {_shown(before.window)}"
    again = "; it was closed and is open again" if before.closed else ""
    print(plain(f"{told(made)}; before: {was}{again}"))
    warn_beside(config.ledger)


def _task_stays(name: str) -> str:
    return f"a task's own budget stays, `lockpin task new {shlex.quote(name)} --budget USD` sets another"


def _shown(window: str) -> str:
    return shown(named(window, Window("lifetime")))


def _changed(budget: Budget, was: StoredBudget | None) -> str:
    """Say what a budget is now, and what it was."""
    if was is None:
        return f'budget "{budget.name}" is in force: {line(budget)}; it enforces from the next call on'
    pairs = zip(written(was.budget), written(budget), strict=True)
    changes = [f"{key} was {before}, is {after}" for (key, before), (_, after) in pairs if before != after]
    if not changes:
        return f'budget "{budget.name}" is just so already: {line(budget)}'
    window = rhythm(budget.window)
    starts = "" if window == shown(budget.window) else f"; it counts by {window}"
    return f'budget "{budget.name}": {"; ".join(changes)}{starts}; from the next call on'


def _already(config: Config, budget: Budget) -> str:
    """Say what of a machine's budget is spent already, and for whom raises have the limit elsewhere."""
    with LedgerReader(config.ledger) as reader:
        found = reader.standings(Rules((budget,), config.task_default()), now=utc_now())
    found = [standing for standing in found if standing.budget.name == budget.name]
    machine = socket.gethostname()
    if budget.scope == "machine" and machine not in (standing.subject for standing in found):
        found.append(_stands(config, budget, machine))
    words = [
        f"; {key_of(each)} has spent {said(each.spent)} and holds {said(each.held)}"
        for each in found
        if budget.scope == "machine" and each.subject == machine and (each.spent or each.held)
    ]
    raised = [f"{key_of(each)} limit {_limit(each)} {_until(each)}" for each in found if each.limit != budget.limit]
    more = [f"{len(raised) - _SHOWN} more"] if len(raised) > _SHOWN else []
    words += [f"; raised before: {', '.join([*raised[:_SHOWN], *more])}"] if raised else []
    return "".join(words)


def _stands(config: Config, budget: Budget, subject: str) -> Standing:
    """Show one account as it stands, whether or not it was ever used."""
    payers = Payers(subject, subject)  # its scope takes the one that counts
    rules = Rules((), budget) if budget.own else Rules((budget,), config.task_default())
    with LedgerReader(config.ledger) as reader:
        found = reader.standings(rules, payers, now=utc_now())
    return next(standing for standing in found if standing.budget.name == budget.name)


def _limit(standing: Standing) -> str:
    assert standing.limit is not None, "a limit was raised that is not there"
    return said(standing.limit)


def _until(standing: Standing) -> str:
    window = standing.budget.window
    if window.kind == "rolling":
        return f"for {period_text(window)}"
    return "for good" if standing.span.end is None else f"until {stamp(standing.span.end)}"


def _closed(config: Config, budget: Budget, subject: str) -> str:
    with LedgerReader(config.ledger) as reader:
        terms = reader.task_terms().get(subject) if budget.scope == "task" else None
    if terms is None or not terms.closed:
        return ""
    again = f"`lockpin task new {shlex.quote(subject)} --budget USD` opens it again"
    return f"; the task is closed, so its calls are refused all the same; {again}"


def _standings(config: Config, rules: Rules, now: datetime) -> list[Standing]:
    """Give every account with something spent or held, this machine's and tasks with a limit also at zero."""
    if not is_there(config.ledger):
        return [_untouched(budget, now) for budget in rules.budgets if budget.scope == "machine"]
    with LedgerReader(config.ledger) as reader:
        found = {standing.account: standing for standing in reader.standings(rules, now=now)}
        for standing in _also_at_zero(rules, reader, config.task.default, now):
            found.setdefault(standing.account, standing)
    order = {budget.name: place for place, budget in enumerate((*rules.budgets, rules.task_default))}
    return sorted(found.values(), key=lambda standing: (order[standing.budget.name], standing.subject))


def _also_at_zero(rules: Rules, reader: LedgerReader, default_task: str, now: datetime) -> list[Standing]:
    machine = socket.gethostname()
    found = reader.standings(rules, Payers(default_task, machine), now=now)
    zero = [standing for standing in found if standing.budget.scope == "machine"]
    for task, terms in reader.task_terms().items():
        if terms.limit_nano is not None and not terms.closed:
            zero += [s for s in reader.standings(rules, Payers(task, machine), now=now) if s.budget.own]
    return zero


def _untouched(budget: Budget, now: datetime) -> Standing:
    span, subject = span_at(budget.window, now), socket.gethostname()
    account = account_id(budget, subject, span)
    return Standing(account, budget, subject, span, ZERO, ZERO, 0, 0, budget.limit, budget.limit_tokens)


def _cells(standings: Sequence[Standing]) -> list[list[str]]:
    spent, held, limits = table(
        ([standing.spent for standing in standings], True),
        ([standing.held for standing in standings], True),
        ([standing.limit for standing in standings], False),
    )
    return [
        [
            standing.budget.name, key_of(standing), rhythm(standing.budget.window), _action(standing),
            *_amounts(standing, amounts), _percent(standing),
            "-" if standing.span.end is None else stamp(standing.span.end),
        ]
        for standing, *amounts in zip(standings, spent, held, limits, strict=True)
    ]  # fmt: skip


def _action(standing: Standing) -> str:
    is_limited = standing.limit is not None or standing.limit_tokens is not None
    return action_of(standing) if is_limited else "-"


def _amounts(standing: Standing, dollars: Sequence[str]) -> list[str]:
    """Write spent, held and limit; tokens beside the dollars where they are limited too."""
    if standing.limit_tokens is None:
        return list(dollars)
    tokens = (standing.spent_tokens, standing.held_tokens, standing.limit_tokens)
    return [f"{amount} / {count:,} tok" for amount, count in zip(dollars, tokens, strict=True)]


def _percent(standing: Standing) -> str:
    share = used(standing)
    return "-" if share is None else f"{int(share * 100)}%"

"""`lockpin budget`: how each account stands against its limit, and budgets that commands make, raise and reset."""

from __future__ import annotations

import shlex
import socket
from dataclasses import replace
from typing import Annotated

import typer

from lockpin_cli import completion
from lockpin_cli.budget_status import KeyOption, status
from lockpin_cli.changes import as_it_runs, callers, open_admin, task_name, task_owner, whoami
from lockpin_cli.flags import Flags, budget_of, given, joined, window_of
from lockpin_cli.inputs import amount, load_config, price_table
from lockpin_cli.listener import warn_beside
from lockpin_cli.options import ConfigOption, LedgerOption, new_app
from lockpin_cli.output import plain, say
from lockpin_cli.presence import is_there, need
from lockpin_cli.rules import Known, account, known, one_form, refuse_configured
from lockpin_cli.task import told
from lockpin_core.budgets import SCOPES, Budget, Standing
from lockpin_core.call import Payers
from lockpin_core.clock import stamp, utc_now
from lockpin_core.config import Config
from lockpin_core.config_budget_warnings import doubts, without_callers
from lockpin_core.errors import CommandError
from lockpin_core.ledger.protocol import Rules, StoredBudget
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.money import Money
from lockpin_core.readers.figures import said
from lockpin_core.readers.rulebook import line, rhythm, written
from lockpin_core.readers.statement import key_of
from lockpin_core.windows import Window, kind_text, named, period_text, shown

app = new_app("Show, set, raise and reset limits.\n\nExample: lockpin budget status")
app.command()(status)

_SCOPE_HELP = f"Whose spend is counted together: {', '.join(SCOPES)}."
_SHOWN = 3  # raised accounts that an answer names

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


@app.command("set")
def set_budget(
    context: typer.Context,
    name: AnyArgument,
    scope: Annotated[str | None, typer.Option(metavar="SCOPE", help=_SCOPE_HELP)] = None,
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
    users: Annotated[
        list[str] | None, typer.Option(metavar="USER", help="Only calls of these users; none takes it off.")
    ] = None,
    groups: Annotated[
        list[str] | None,
        typer.Option(metavar="GROUP", help="Only these groups; --scope group has an account for each."),
    ] = None,
    rings: Annotated[list[str] | None, typer.Option(metavar="RING", help="Only these rings.")] = None,
    projects: Annotated[list[str] | None, typer.Option(metavar="PROJECT", help="Only these projects.")] = None,
    tags: Annotated[list[str] | None, typer.Option(metavar="K=V", help="Only calls with one of these tags.")] = None,
    alert_at: Annotated[str | None, typer.Option(metavar="0.5,0.8", help="Shares of the limit that alert.")] = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Make a budget that enforces, or change one; it holds from the next call on, in every running proxy.

    What is not given stays as it was. A task's name without --scope sets that task's own budget.

    Example: lockpin budget set sprint --scope machine --window week --limit-usd 40

    Example: lockpin budget set sprint --limit-usd 60 --models 'claude-*,gpt-5*'

    Example: lockpin budget set squads --scope group --groups search,checkout --window month --limit-usd 4000

    Example: lockpin budget set fix-login --window rolling --period 24h --limit-usd 5
    """
    flags: Flags = {
        "scope": scope, "window": window, "period": period, "at": at, "anchor": anchor, "timezone": timezone,
        "limit_usd": limit_usd, "limit_tokens": limit_tokens, "models": joined(models),
        "providers": joined(providers), "users": joined(users), "groups": joined(groups), "rings": joined(rings),
        "projects": joined(projects), "tags": joined(tags), "alert_at": alert_at,
    }  # fmt: skip
    _set(as_it_runs(load_config(context, config)), name, flags)


def _set(loaded: Config, name: str, flags: Flags) -> None:
    there, name = known(loaded), one_form(name)
    scope, is_made = flags["scope"], name in there.book.by_command()
    if scope is None and name in there.tasks:
        _refuse_two(there, name)
        _set_task(loaded, there, name, flags)
        return
    refuse_configured(loaded, there.book, name)
    if scope in (None, "key") and not is_made and _is_key(loaded, name):
        _set_keys_own(loaded, there, name, flags)
        return
    if scope is None and not is_made:
        ways = f"--scope makes one ({', '.join(SCOPES)})"
        raise typer.BadParameter(
            f"no budget and no task is called so; {ways}, `lockpin task new {shlex.quote(name)} --budget USD` a task",
            param_hint=name,
        )
    _refuse_nothing(name, flags)
    before = there.book.find(name) if is_made else None
    zone = there.book.rules.task_default.window.zone  # a proxy's, whatever folder the command is given in
    budget = budget_of(name, flags, timezone=zone, before=before)
    _put(loaded, budget)


def _is_key(config: Config, name: str) -> bool:
    if not is_there(config.ledger):
        return False
    with LedgerReader(config.ledger) as reader:
        return any(key.id == name for key in reader.keys(now=utc_now()))


def _set_keys_own(config: Config, there: Known, key: str, flags: Flags) -> None:
    """Give a key a limit of its own, as `key create` does."""
    _refuse_nothing(key, flags)
    terms = {**flags, "scope": "key", "window": flags["window"] or ("rolling" if flags["period"] else "lifetime")}
    made = budget_of(key, terms, timezone=there.book.rules.task_default.window.zone)
    _put(config, replace(made, keys=(key,)))


def _put(config: Config, budget: Budget) -> None:
    found = doubts(budget, price_table(config)) if budget.models or budget.providers else []
    found += without_callers(budget, config, _callers(config)) if config.mode == "team" else []
    was = open_admin(config).budget_set(budget, who=whoami())
    print(plain(f"{_changed(budget, was)}{_already(config, budget)}"))
    for why in found:
        say(f'warning: budget "{budget.name}" {why}')
    warn_beside(config.ledger)


def _callers(config: Config) -> list[Payers]:
    if not is_there(config.ledger):
        return []
    with LedgerReader(config.ledger) as reader:
        return callers(reader, good=True)


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
    unlimited = f"; the key {name} has no limit of its own now" if gone.keys == (name,) else ""
    print(plain(f'budget "{name}" is out of force: {line(gone)}; what it has counted stays{unlimited}'))
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
        raise typer.BadParameter("--by USD or --undo is needed, one of the two")
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
    limits = [] if after.limit is None else [said(after.limit)]
    limits += [] if after.limit_tokens is None else [f"{after.limit_tokens:,} tokens"]
    limit = f"limit {' and '.join(limits)}" if limits else "no limit"
    was, now, held = (
        _also_tokens(after, *of)
        for of in (
            (before.spent, before.spent_tokens),
            (after.spent, after.spent_tokens),
            (after.held, after.held_tokens),
        )
    )
    counts = f"spent was {was} and counts from {now} now"
    print(plain(f"{key_of(after)}: {chosen.name} {counts}, held {held}, {limit}"))
    warn_beside(loaded.ledger)
    if note is not None:
        say(note)


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
    task_owner(config, name)
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
    with LedgerReader(config.ledger) as reader:
        return reader.standing(budget, subject, now=utc_now())


def _also_tokens(standing: Standing, usd: Money, tokens: int) -> str:
    """Write an amount, with its tokens where those are limited."""
    return said(usd) if standing.limit_tokens is None else f"{said(usd)} and {tokens:,} tokens"


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

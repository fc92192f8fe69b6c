"""`lockpin budget`: how each account stands against its limit, and raising a limit."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated

import typer

from lockpin_cli.changes import open_admin, stranger, task_name, whoami
from lockpin_cli.inputs import amount, load_config
from lockpin_cli.options import ConfigOption, new_app
from lockpin_cli.output import Column, Format, FormatOption, View, plain, say, show
from lockpin_core.budgets import Budget, Standing, account_id
from lockpin_core.call import Payers
from lockpin_core.clock import utc_now
from lockpin_core.config import Config
from lockpin_core.errors import CommandError
from lockpin_core.ledger.protocol import Rules
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.money import ZERO
from lockpin_core.readers.figures import aligned, said
from lockpin_core.readers.statement import FIELDS, action_of, key_of, statement, used
from lockpin_core.refusals import stamp
from lockpin_core.windows import span_at

app = new_app("Show and raise limits.\n\nExample: lockpin budget status")

_COLUMNS = (
    *(Column("BUDGET"), Column("KEY"), Column("WINDOW"), Column("ACTION"), Column("SPENT", right=True)),
    *(Column("HELD", right=True), Column("LIMIT", right=True), Column("USED", right=True), Column("RESETS")),
)

KeyOption = Annotated[
    str | None,
    typer.Option(
        metavar="SCOPE:SUBJECT", help="One account: task:fix-login, or machine:annas-laptop by its host name."
    ),
]


@app.command()
def status(
    context: typer.Context,
    budget: Annotated[str | None, typer.Option(metavar="NAME", help="Only this budget.")] = None,
    key: KeyOption = None,
    form: FormatOption = Format.TABLE,
    config: ConfigOption = None,
) -> None:
    """Show what is spent and held of each limit. USED goes by spent alone.

    Example: lockpin budget status --key task:fix-login --output json
    """
    loaded = load_config(context, config)
    wanted = None if key is None else ":".join(_key(key))
    known = [each.name for each in (*loaded.all_budgets(), loaded.task_default())]
    if budget is not None and budget not in known:
        raise CommandError(f'no budget "{budget}"; there are {", ".join(known)}')
    found = [
        standing
        for standing in _standings(loaded, utc_now())
        if budget in (None, standing.budget.name) and wanted in (None, key_of(standing))
    ]
    if key is not None and not found and (unknown := stranger(loaded, *_key(key))):
        say(unknown)
    show(View(_COLUMNS, _cells(found), statement(found), FIELDS, empty="nothing is spent or held"), form)


@app.command("raise")
def raise_limit(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A budget, or a task that has a budget of its own.")],
    by: Annotated[str, typer.Option(metavar="USD", help="What to add to the limit of the current window.")],
    key: KeyOption = None,
    config: ConfigOption = None,
) -> None:
    """Raise a limit for its current window; a lifetime limit for good.

    Example: lockpin budget raise daily --by 5

    Example: lockpin budget raise task --key task:fix-login --by 2

    Example: lockpin budget raise daily --key machine:annas-laptop --by 5 (a machine goes by its host name)
    """
    more = amount(by, "--by")
    loaded = load_config(context, config)
    chosen, subject = _account(loaded, name, None if key is None else _key(key))
    if unknown := stranger(loaded, chosen.scope, subject):
        raise CommandError(unknown)
    standing = open_admin(loaded).raise_budget(chosen, subject, more, who=whoami())
    assert standing.limit is not None, "a limit was raised that is not there"
    until = "" if standing.span.end is None else f" until {stamp(standing.span.end)}"
    spent, held = said(standing.spent), said(standing.held)
    line = f"{key_of(standing)}: {chosen.name} limit {said(standing.limit)}{until}, spent {spent}, held {held}"
    print(plain(line + _closed(loaded, chosen, subject)))


def _closed(config: Config, budget: Budget, subject: str) -> str:
    with LedgerReader(config.ledger) as reader:
        terms = reader.task_terms().get(subject) if budget.scope == "task" else None
    if terms is None or not terms.closed:
        return ""
    again = f"`lockpin task new {shlex.quote(subject)} --budget USD` opens it again"
    return f"; the task is closed, so its calls are refused all the same; {again}"


def _standings(config: Config, now: datetime) -> list[Standing]:
    """Give every account with something spent or held, this machine's and tasks with a limit also at zero."""
    if not config.ledger.exists():
        return [_untouched(budget, now) for budget in config.all_budgets() if budget.scope == "machine"]
    with LedgerReader(config.ledger) as reader:
        rules = _in_force(config, reader)
        found = {standing.account: standing for standing in reader.standings(rules, now=now)}
        for standing in _also_at_zero(rules, reader, config.task.default, now):
            found.setdefault(standing.account, standing)
    order = {budget.name: place for place, budget in enumerate((*rules.budgets, rules.task_default))}
    return sorted(found.values(), key=lambda standing: (order[standing.budget.name], standing.subject))


def _in_force(config: Config, reader: LedgerReader) -> Rules:
    """Take each budget as the last hold did: a proxy's own flags win over the file. Says where the two differ."""
    stored = {budget.name: budget for budget in reader.budgets()}

    def last(budget: Budget) -> Budget:
        found = stored.get(budget.name, budget)
        if found != budget:
            say(f'budget "{budget.name}" is taken as a proxy last applied it: {"; ".join(_differences(found, budget))}')
        return found

    return Rules(tuple(map(last, config.all_budgets())), last(config.task_default()))


def _differences(stored: Budget, configured: Budget) -> Iterator[str]:
    """Name each field in which two definitions differ, with both values, in the configuration's words."""
    for (name, there), (_, here) in zip(_terms(stored), _terms(configured), strict=True):
        if there != here:
            yield f"{name} is {there}, in the configuration it is {here}"


def _terms(budget: Budget) -> list[tuple[str, str]]:
    limit = "none" if budget.limit is None else said(budget.limit)
    tokens = "none" if budget.limit_tokens is None else f"{budget.limit_tokens:,}"
    lists = ("alert_at", "models", "providers")
    return [
        *(("limit_usd", limit), ("limit_tokens", tokens), ("action", "enforce" if budget.enforce else "warn")),
        *(("scope", budget.scope), ("window", budget.window.kind), ("timezone", budget.window.zone)),
        *((name, f"[{', '.join(getattr(budget, name))}]") for name in lists),
        ("own", str(budget.own).lower()),
    ]


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


def _key(text: str) -> tuple[str, str]:
    scope, colon, subject = text.partition(":")
    if scope not in ("task", "machine") or not colon or not subject:
        allowed = "task:NAME or machine:HOST is allowed"
        raise typer.BadParameter(f'"{text}": {allowed}', param_hint="--key")
    return scope, task_name(subject, "--key") if scope == "task" else subject


def _account(config: Config, name: str, key: tuple[str, str] | None) -> tuple[Budget, str]:
    """Find the one account that is meant. Wrong use where the words may mean two."""
    rules, limited = _known(config)
    own = rules.task_default
    budgets = {budget.name: budget for budget in (*rules.budgets, own)}
    if key is None and name in budgets and name in limited:
        budget, task = f"--key {budgets[name].scope}:…", f"`lockpin budget raise {own.name} --key task:{name}`"
        raise typer.BadParameter(
            f"it is a budget and a task; {budget} means the budget, {task} the task", param_hint=name
        )
    if name in budgets:
        return budgets[name], _subject(budgets[name], key)
    if name in limited and key in (None, ("task", name)):
        return own, name
    raise CommandError(f'no budget "{name}", and no task of that name with a budget; there are {", ".join(budgets)}')


def _known(config: Config) -> tuple[Rules, set[str]]:
    """Give the budgets in force and the tasks that have one of their own."""
    if not config.ledger.exists():
        return Rules(config.all_budgets(), config.task_default()), set()
    with LedgerReader(config.ledger) as reader:
        rules, tasks = _in_force(config, reader), reader.task_terms()
    has_default = rules.task_default.limit is not None
    return rules, {name for name, terms in tasks.items() if has_default or terms.limit_nano is not None}


def _subject(budget: Budget, key: tuple[str, str] | None) -> str:
    if key is None and budget.scope == "machine":
        return socket.gethostname()
    if key is None or key[0] != budget.scope:
        words = f'budget "{budget.name}" has an account for each {budget.scope}; {budget.scope}:… is allowed'
        raise typer.BadParameter(words, param_hint="--key")
    return key[1]


def _cells(standings: Sequence[Standing]) -> list[list[str]]:
    spent = aligned([standing.spent for standing in standings], up=True)
    held = aligned([standing.held for standing in standings], up=True)
    limits = aligned([standing.limit for standing in standings], up=False)
    return [
        [
            standing.budget.name, key_of(standing), standing.budget.window.kind, _action(standing),
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

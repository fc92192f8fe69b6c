"""`lockpin breaker`: whose calls pause because they were charged too fast, and by which rule."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from lockpin_cli import completion
from lockpin_cli.changes import open_admin, stranger, task_name, whoami
from lockpin_cli.inputs import amount, lasting, load_config, load_to_read
from lockpin_cli.listener import warn_beside
from lockpin_cli.options import ConfigOption, LedgerOption, new_app
from lockpin_cli.output import Column, Format, FormatOption, View, plain, show
from lockpin_cli.pauses import paused_by, say_pauses
from lockpin_cli.presence import is_there
from lockpin_core.clock import stamp_after, utc_now
from lockpin_core.config import Config
from lockpin_core.config_near_cap import Breaker
from lockpin_core.errors import CommandError
from lockpin_core.ledger.pausebook import breaker_state
from lockpin_core.ledger.pauses import (
    BREAKER,
    KEY,
    LOOP,
    SCOPES_BY,
    TASK,
    BreakerRule,
    BreakerState,
    Paused,
    Subject,
    rule_of,
    rule_words,
)
from lockpin_core.money import Money
from lockpin_core.readers.figures import dollars, said
from lockpin_core.windows import duration_text

app = new_app(
    "Stop bursts: a task or key that is charged too much too fast pauses for a while.\n\n"
    "Example: lockpin breaker set --usd 5 --window 60s"
)

_COLUMNS = (
    *(Column("SUBJECT"), Column("USER", spare=3), Column("WHY", spare=1), Column("CHARGED", right=True)),
    *(Column("WITHIN", spare=2), Column("UNTIL")),
)
_FIELDS = ("scope", "subject", "user", "kind", "charged_usd", "limit_usd", "window", "until")
_LEAST, _MOST = timedelta(seconds=1), timedelta(hours=24)
_SPAN = "1s to 24h"

TaskOption = Annotated[
    str | None, typer.Option("--task", metavar="NAME", help="Only this task.", autocompletion=completion.tasks)
]
KeyOption = Annotated[
    str | None,
    typer.Option("--key", metavar="ID", help="Only this key, by its public id.", autocompletion=completion.keys),
]


@app.command()
def status(
    context: typer.Context, form: FormatOption = Format.TABLE, config: ConfigOption = None, ledger: LedgerOption = None
) -> None:
    """Show the rule in force and whose calls pause, those of stopped tasks among them.

    Example: lockpin breaker status --format json
    """
    loaded = load_to_read(context, config)
    state = _state(loaded)
    if form is Format.TABLE:
        print(plain(f"breaker: {_in_force(state)}"))
    show(_view(state), form)


@app.command("set")
def set_rule(
    context: typer.Context,
    usd: Annotated[str, typer.Option(metavar="USD", help="What may be charged within the window; more pauses.")],
    window: Annotated[str | None, typer.Option(metavar="60s", help=f"The window: {_SPAN}.")] = None,
    cooldown: Annotated[str | None, typer.Option(metavar="5m", help=f"How long calls pause: {_SPAN}.")] = None,
    by: Annotated[str | None, typer.Option(metavar="task|key|both", help="Whose charges are added up.")] = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Set the breaker. It wins over lockpin.yaml and flags until `lockpin breaker clear`; what is not said stays.

    Example: lockpin breaker set --usd 5 --window 60s --cooldown 5m --by task
    """
    loaded = load_config(context, config)
    before = _state(loaded).rule or _usual()
    rule = BreakerRule(
        amount(usd, "--usd"),
        before.window if window is None else lasting(window, "--window", _LEAST, _MOST, _SPAN),
        before.cooldown if cooldown is None else lasting(cooldown, "--cooldown", _LEAST, _MOST, _SPAN),
        before.scopes if by is None else _scopes(by),
    )
    was = open_admin(loaded).breaker_set(rule, who=whoami())
    print(plain(f"breaker: {rule_words(rule)}; it was {rule_words(was)}"))
    say_pauses(loaded, BREAKER)  # whoever paused before does so until then
    warn_beside(loaded.ledger)


@app.command()
def clear(context: typer.Context, config: ConfigOption = None, ledger: LedgerOption = None) -> None:
    """Take back what `lockpin breaker set` has set, so that lockpin.yaml and flags are in force again.

    Example: lockpin breaker clear
    """
    loaded = load_config(context, config)
    _needs_ledger(loaded)
    rule = open_admin(loaded).breaker_clear(who=whoami())
    print(plain(f"breaker: {rule_words(rule)}"))
    say_pauses(loaded, BREAKER)


@app.command()
def reset(
    context: typer.Context,
    task: TaskOption = None,
    key: KeyOption = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Let calls that the breaker has stopped go on now; without a name, everybody's. Charges are counted anew.

    Example: lockpin breaker reset --task fix-login
    """
    if task is not None and key is not None:
        raise typer.BadParameter("--task or --key is allowed, not both", param_hint="--key")
    scope, subject = _meant(task, key)
    loaded = load_config(context, config)
    _needs_ledger(loaded)
    try:
        found = open_admin(loaded).breaker_reset(scope, subject, who=whoami())
    except CommandError as error:
        raise CommandError(_not_reset(loaded, scope, subject) or str(error)) from None
    for each in found:
        print(plain(f"the calls of {_named(each)} go on"))


def _not_reset(config: Config, scope: str | None, subject: str | None) -> str | None:
    """Say why nothing was reset: the task was stopped otherwise, or there is nobody of that name; None: neither."""
    if scope is None or subject is None:
        return None
    for paused in paused_by(config):
        if (paused.kind, paused.scope, paused.subject) == (LOOP, scope, subject):
            return f'{scope} "{subject}" was stopped, and not by the breaker; `{paused.way_on}` lets it go on'
    return stranger(config, scope, subject)


def _meant(task: str | None, key: str | None) -> tuple[str | None, str | None]:
    if task is not None:
        return TASK, task_name(task, "--task")
    return (None, None) if key is None else (KEY, key.strip())


def _named(subject: Subject) -> str:
    of = f" of {subject.user}" if subject.user else ""
    return f'{subject.scope} "{subject.name}"{of}'


def _needs_ledger(config: Config) -> None:
    if not is_there(config.ledger):
        raise CommandError(f"no ledger at {config.ledger} yet, so nobody pauses and no breaker was set by command")


def _usual() -> BreakerRule:
    found = rule_of(Breaker(Money(1)))
    assert found is not None, "a breaker with an amount is a rule"
    return found


def _scopes(by: str) -> tuple[str, ...]:
    if by not in SCOPES_BY:
        raise typer.BadParameter(f'"{by}": {", ".join(SCOPES_BY)} is allowed', param_hint="--by")
    return SCOPES_BY[by]


def _state(config: Config) -> BreakerState:
    """Read the breaker; where no proxy has run yet, as the configuration here has it."""
    if not is_there(config.ledger):
        return BreakerState(None, rule_of(config.near_cap.breaker), ())
    return breaker_state(config.ledger, utc_now())


def _in_force(state: BreakerState) -> str:
    if state.by_command is None:
        source = ", from the configuration" if state.by_config is not None else ""
        return f"{rule_words(state.by_config)}{source}"
    return f"{rule_words(state.by_command)}, set by command; the configuration's is {rule_words(state.by_config)}"


def _view(state: BreakerState) -> View:
    records = [_record(paused) for paused in state.pauses]
    cells = [_cells(paused) for paused in state.pauses]
    rule, source = state.rule, "command" if state.by_command is not None else "config"
    told = None
    if rule is not None:
        spans = {"window": _span(rule.window), "cooldown": _span(rule.cooldown)}
        told = {"usd": dollars(rule.usd), **spans, "by": rule.by, "source": source}
    document = {"breaker": told, "pauses": records}
    return View(_COLUMNS, cells, records, _FIELDS, document=document, empty="nobody's calls pause")


def _record(paused: Paused) -> dict[str, object]:
    return {
        "scope": paused.scope,
        "subject": paused.subject,
        "user": paused.user,
        "kind": paused.kind,
        "charged_usd": dollars(paused.charged),
        "limit_usd": dollars(paused.usd),
        "window": None if paused.window is None else _span(paused.window),
        "until": None if paused.until is None else stamp_after(paused.until),
    }


def _cells(paused: Paused) -> list[str]:
    charged = "-" if paused.charged is None else said(paused.charged)
    within = "-" if paused.window is None else _span(paused.window)
    until = paused.way_on if paused.until is None else stamp_after(paused.until)
    return [f"{paused.scope}:{paused.subject}", paused.user or "-", paused.kind, charged, within, until]


def _span(span: timedelta) -> str:
    return duration_text(span // timedelta(milliseconds=1))

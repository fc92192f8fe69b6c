"""`lockpin key`: who may call in team mode, and whom each key's calls are charged to.

A secret is printed once, alone on standard output, so that `KEY=$(lockpin key create …)` has it; all words go to
standard error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from lockpin_cli import completion, key_provider
from lockpin_cli.certificate import fingerprint_of
from lockpin_cli.changes import open_admin, whoami
from lockpin_cli.flags import Flags, budget_of, given
from lockpin_cli.inputs import lasting, load_config, load_to_read
from lockpin_cli.listener import warn_beside
from lockpin_cli.options import ConfigOption, LedgerOption, new_app
from lockpin_cli.output import Column, Format, FormatOption, View, plain, say, show
from lockpin_cli.presence import is_there
from lockpin_core.budgets import Budget, Standing
from lockpin_core.call import Payers
from lockpin_core.clock import new_id, stamp, utc_now
from lockpin_core.config import Config
from lockpin_core.errors import CommandError
from lockpin_core.keys import KeyRecord, digest_of, facts_of, new_key_id, new_secret
from lockpin_core.ledger.keybook import unknown
from lockpin_core.ledger.reader import LedgerReader
from lockpin_core.readers.figures import said
from lockpin_core.readers.rulebook import line
from lockpin_core.readers.statement import statement

app = new_app("Make, list, rotate and revoke keys.\n\nExample: lockpin key create --user ann@corp.com --expires 30d")
app.add_typer(key_provider.app, name="provider")

_COLUMNS = (
    *(Column("KEY", whole=True), Column("USER"), Column("TEAM", spare=3), Column("GROUPS", spare=4)),
    *(Column("RING", spare=5), Column("PROJECT", spare=6), Column("TAGS", spare=8), Column("NAME", spare=2)),
    *(Column("STATE"), Column("CREATED", spare=7), Column("EXPIRES", spare=1)),
)
_FIELDS = (
    *("key", "name", "user", "team", "groups", "ring", "project", "tags"),
    *("state", "created", "expires", "revoked", "rotated"),
)
_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)
_ONCE = "nobody can show its secret again"

IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="As `lockpin key list` shows it.", autocompletion=completion.keys)
]


@app.command()
def create(
    context: typer.Context,
    user: Annotated[str, typer.Option(metavar="ID", help="Whose it is; capitals and small letters are the same.")],
    team: Annotated[str | None, typer.Option(metavar="NAME", help="The team that is charged.")] = None,
    group: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A group that is; again for each.")] = None,
    ring: Annotated[str | None, typer.Option(metavar="NAME", help="The ring that is.")] = None,
    project: Annotated[str | None, typer.Option(metavar="NAME", help="The project that is.")] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A tag that is; again for each.")] = None,
    limit_usd: Annotated[str | None, typer.Option(metavar="USD", help="What it may spend, on its own account.")] = None,
    limit_tokens: Annotated[str | None, typer.Option(metavar="N", help="Tokens that it may use.")] = None,
    window: Annotated[
        str | None,
        typer.Option(metavar="lifetime|day|week|month|rolling", help="When its limit starts anew; else never."),
    ] = None,
    period: Annotated[str | None, typer.Option(metavar="24h", help="Of a rolling window: 1h to 2160h.")] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="30d", help="How long it is good; else until it is revoked.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A client certificate that stands for it, in place of a secret.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="TEXT", help="What it is for; nothing goes by it.")] = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Make a key. Its secret is printed once, alone on standard output; with a certificate there is none, but its id.

    What is said of it here is whom its calls are charged to; a caller cannot say otherwise.

    Example: KEY=$(lockpin key create --user ann@corp.com --team web --group platform --expires 30d)

    Example: KEY=$(lockpin key create --user ci --ring ring1 --limit-usd 20 --window day)

    Example: lockpin key create --user build-7 --certificate build-7.pem
    """
    limits: Flags = {"limit_usd": limit_usd, "limit_tokens": limit_tokens, "window": window, "period": period}
    try:
        facts = facts_of(user, team=team, groups=group or (), ring=ring, project=project, tags=tag or (), name=name)
    except CommandError as error:
        raise typer.BadParameter(str(error)) from None
    lifetime, shown = _lifetime(expires), _shown(certificate)
    loaded, key = load_config(context, config), new_key_id(new_id)
    limit = _limit(loaded, key, limits)
    made = open_admin(loaded).key_create(key, facts, shown.digest, lifetime=lifetime, who=whoami(), limit=limit)
    print(shown.secret or made.id)
    words = "" if limit is None else f"; its own limit: {line(limit).removeprefix('key, ')}"
    say(f"key {made.id} of {made.user} is made, good {_until(made)}{words}; {shown.words}")
    warn_beside(loaded.ledger)


@app.command()
def rotate(
    context: typer.Context,
    key: IdArgument,
    grace: Annotated[str, typer.Option(metavar="1h", help="How long the secret before stays good.")] = "0s",
    expires: Annotated[
        str | None, typer.Option(metavar="30d", help="How long it is good from now on; else as before.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A client certificate that stands for it, in place of a secret.")
    ] = None,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Give a key another secret; the one before ends at once. It is printed once, alone on standard output.

    Its id, its limits and what it has spent stay. With a certificate there is no secret, and the id is printed.

    Example: KEY=$(lockpin key rotate k-7f3c9x2m1q --grace 1h)
    """
    stays = lasting(grace, "--grace", timedelta(0), 90 * _DAY, "a time from 0s to 90d, such as 1h,")
    lifetime, shown = _lifetime(expires), _shown(certificate)
    loaded = load_config(context, config)
    _find(loaded, key)
    made = open_admin(loaded).key_rotate(key, shown.digest, grace=stays, lifetime=lifetime, who=whoami())
    assert made.rotated is not None, "a key that was rotated has no instant of it"
    print(shown.secret or made.id)
    ends = f"ends at {stamp(made.rotated + stays)}" if stays else "is good no more"
    what = "another secret" if shown.secret else "a certificate"
    say(f"key {made.id} of {made.user} has {what}, good {_until(made)}; the one before {ends}; {shown.words}")
    warn_beside(loaded.ledger)


@app.command()
def revoke(context: typer.Context, key: IdArgument, config: ConfigOption = None, ledger: LedgerOption = None) -> None:
    """End a key for good: its next call is refused. Calls in flight end as usual.

    Example: lockpin key revoke k-7f3c9x2m1q
    """
    loaded = load_config(context, config)
    before = _find(loaded, key)
    after = open_admin(loaded).key_revoke(key, who=whoami())
    assert after.revoked is not None, "a key was revoked that is not"
    state = "is revoked" if before.revoked is None else f"was revoked already, at {stamp(after.revoked)}"
    print(plain(f"key {after.id} of {after.user} {state}"))
    warn_beside(loaded.ledger)


@app.command("list")
def list_keys(
    context: typer.Context, form: FormatOption = Format.TABLE, config: ConfigOption = None, ledger: LedgerOption = None
) -> None:
    """List every key, oldest first, those that are over among them. No secret can be shown.

    Example: lockpin key list --format json
    """
    found = _keys(load_to_read(context, config), utc_now())
    cells = [_cells(key) for key in found]
    empty = "no keys yet; `lockpin key create --user ID` makes one"
    show(View(_COLUMNS, cells, [_record(key) for key in found], _FIELDS, empty=empty), form)


@app.command("show")
def show_key(
    context: typer.Context,
    key: IdArgument,
    form: FormatOption = Format.TABLE,
    config: ConfigOption = None,
    ledger: LedgerOption = None,
) -> None:
    """Show one key: whom it stands for, whether it is good, and how its own limits stand.

    Example: lockpin key show k-7f3c9x2m1q
    """
    loaded = load_to_read(context, config)
    found = _find(loaded, key)
    limits = _limits(loaded, found)
    record = {**_record(found), "limits": statement(limits)}
    lines = [[name, _written(record[name])] for name in _FIELDS]
    lines += [["limit", _stands(found, standing)] for standing in limits]
    show(View((Column("FACT"), Column("VALUE")), lines, [record], tuple(record), document=record), form)


class _Shown(NamedTuple):
    """What a caller shows from now on, as the ledger keeps it; the secret, where it is one; what to say of it."""

    digest: bytes
    secret: str | None
    words: str


def _shown(certificate: Path | None) -> _Shown:
    """Make a secret, or read the certificate that is shown in its place. Raises CommandError."""
    if certificate is None:
        secret = new_secret()
        return _Shown(digest_of(secret), secret, _ONCE)
    digest, until = fingerprint_of(certificate)
    return _Shown(digest, None, f"who shows its certificate, good until {stamp(until)}, is its caller")


def _lifetime(expires: str | None) -> timedelta | None:
    if expires is None:
        return None
    return lasting(expires, "--expires", _SECOND, 36_500 * _DAY, "a time from 1s to 36500d, such as 30d,")


def _limit(config: Config, key: str, flags: Flags) -> Budget | None:
    """Make the budget that a key's own limit is; None: it has none. Wrong use otherwise."""
    if not given(flags):
        return None
    if flags["limit_usd"] is None and flags["limit_tokens"] is None:
        words = "a window is of a limit; --limit-usd or --limit-tokens is needed"
        raise typer.BadParameter(words, param_hint=f"--{given(flags)[0]}")
    from lockpin_cli.rules import known  # for a limit only: it reads the ledger's budgets

    zone = known(config).book.rules.task_default.window.zone  # a proxy's, whatever folder the command is given in
    kind = flags["window"] or "lifetime"
    return budget_of(key, {"scope": "key", **flags, "window": kind}, timezone=zone)


def _until(key: KeyRecord) -> str:
    return "until it is revoked" if key.expires is None else f"until {stamp(key.expires)}"


def _keys(config: Config, now: datetime) -> list[KeyRecord]:
    if not is_there(config.ledger):
        return []
    with LedgerReader(config.ledger) as reader:
        return reader.keys(now=now)


def _find(config: Config, key: str) -> KeyRecord:
    """Find a key by its id. Raises CommandError."""
    found = next((each for each in _keys(config, utc_now()) if each.id == key), None)
    if found is None:
        raise unknown(key)
    return found


def _limits(config: Config, key: KeyRecord) -> list[Standing]:
    """Give the accounts of a key's own: those of budgets of the scope `key` that its calls are charged to."""
    facts = {name: getattr(key, name) for name in ("user", "team", "groups", "ring", "project", "tags")}
    payers = Payers("", "", key=key.id, **facts)
    with LedgerReader(config.ledger) as reader:
        budgets = [budget for budget in reader.budgets() if budget.scope == "key" and budget.is_for(payers)]
        return [reader.standing(budget, key.id, now=utc_now()) for budget in budgets]


def _stands(key: KeyRecord, standing: Standing) -> str:
    budget = replace(standing.budget, limit=standing.limit, limit_tokens=standing.limit_tokens)  # with its raises
    name = "" if budget.name == key.id else f"{budget.name}: "
    acts = "" if budget.enforce else ", it only warns"
    terms = line(budget).removeprefix("key, ")
    tokens = ("", "")
    if standing.limit_tokens is not None:
        tokens = f" and {standing.spent_tokens:,} tokens", f" and {standing.held_tokens:,} tokens"
    return f"{name}{terms}{acts}; spent {said(standing.spent)}{tokens[0]}, held {said(standing.held)}{tokens[1]}"


def _record(key: KeyRecord) -> dict[str, object]:
    instants = {name: getattr(key, name) for name in ("created", "expires", "revoked", "rotated")}
    return {
        "key": key.id, "name": key.name, "user": key.user, "team": key.team, "groups": list(key.groups),
        "ring": key.ring, "project": key.project, "tags": dict(key.tags), "state": key.over or "active",
        **{name: None if when is None else stamp(when) for name, when in instants.items()},
    }  # fmt: skip


def _cells(key: KeyRecord) -> list[str]:
    record = _record(key)
    names = ("key", "user", "team", "groups", "ring", "project", "tags", "name", "state", "created", "expires")
    return [_written(record[name]) for name in names]


def _written(value: object) -> str:
    if isinstance(value, dict):
        value = [f"{name}={tag}" for name, tag in value.items()]
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = ", ".join(value)
    return str(value or "-")

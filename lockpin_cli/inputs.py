"""What people type, read into the core's terms: the configuration, instants, amounts. A mistake is wrong use."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lockpin_cli.options import config_path
from lockpin_cli.output import say
from lockpin_core import config_values as values
from lockpin_core.config import Config, load, parse, updates_dir
from lockpin_core.config_yaml import Text, Where
from lockpin_core.errors import ConfigError
from lockpin_core.money import Money

if TYPE_CHECKING:
    from lockpin_core.prices import PriceTable

_AGO = re.compile(r"([0-9]{1,9})(m|h|d|w)")
_NO_LIMIT = ("none", "null", "unlimited")
_MS = timedelta(milliseconds=1)
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)  # no call is older
_STEP = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def load_config(context: typer.Context, own: Path | None, options: Mapping[str, str] | None = None) -> Config:
    """Read the configuration that is in force for a command, with the ledger that it names. Raises ConfigError."""
    ledger, path = named_ledger(context), config_path(context, own)
    try:
        return load(path, options={**ledger, **(options or {})}, env=os.environ)
    except ConfigError:
        if ledger:
            load(path, options=options, env=os.environ)  # the file alone is sound, or its own fault is told
            _check_ledger(ledger)
        raise


def load_to_read(context: typer.Context, own: Path | None, options: Mapping[str, str] | None = None) -> Config:
    """Read it for a command that changes nothing: where the ledger is named, that works with a faulty file too."""
    try:
        return load_config(context, own, options)
    except ConfigError as error:
        ledger = named_ledger(context)
        if not ledger:
            raise ConfigError(f"{error}; with --ledger sqlite:///PATH this command works without the file") from None
        _check_ledger(ledger)
        say(f"{error}; it is left out, as --ledger says what to read")
        return parse(None, None, options={**ledger, **(options or {})})


def named_ledger(context: typer.Context) -> dict[str, str]:
    """Give the ledger that the command line names, as an option of the configuration."""
    named = context.params.get("ledger")
    return {} if named is None else {"ledger": named}


def _check_ledger(options: Mapping[str, str]) -> None:
    try:
        parse(None, None, options=options)
    except ConfigError:
        words = f'it is "{options["ledger"]}"; sqlite or sqlite:///absolute/path is allowed'
        raise typer.BadParameter(words, param_hint="--ledger") from None


def price_table(config: Config) -> PriceTable:
    """Read all prices as the proxy does: shipped, later ones, the user's own. Raises PriceError."""
    from lockpin_core.prices import PriceTable, shipped_dir  # slow to import

    return PriceTable.load(shipped_dir(), config.pricing, config.models, updates_dir())


def instant(text: str, name: str, now: datetime) -> datetime:
    """Read "7d" (that long before now) or an ISO date or time; without a zone it is UTC."""
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            found = now - int(ago[1]) * _STEP[ago[2]]
        else:
            read = datetime.fromisoformat(text)
            found = (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).astimezone(UTC)
        if found < _FIRST:
            raise ValueError(text)
        return found
    except (ValueError, OverflowError):
        allowed = "a length such as 30m, 24h, 7d or 4w, or a date from 1970 on, such as 2026-10-22, is allowed"
        raise typer.BadParameter(f'"{text}": {allowed}', param_hint=name) from None


def amount(text: str, name: str, source: str = "flag") -> Money:
    """Read a positive amount of dollars, as the configuration reads its own. `source`: what kind of thing `name` is."""
    more = "; a task without a limit of its own needs no budget" if text.lower() in _NO_LIMIT else ""
    return _dollars(values.amount, text, name, more, source)


def cost(text: str, name: str) -> Money:
    """Read an amount of dollars that may be nothing."""
    return _dollars(values.cost, text, name)


def lasting(text: str, name: str, least: timedelta, most: timedelta, allowed: str) -> timedelta:
    """Read a length of time such as 30d. Wrong use where it is none, or not within these two."""
    within = values.duration_within(least // _MS, most // _MS, f"{allowed} is allowed")
    try:
        return within(Text(Where("flag", None, name), text.strip(), plain=False)) * _MS
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


def _dollars(
    read: values.Reader[Money], text: str, name: str, more: str = "", source: str = "flag"
) -> Money:  # fmt: skip
    try:
        return read(Text(Where(source, None, name), text.strip(), plain=False))
    except ConfigError as error:
        raise typer.BadParameter(f"{error}{more}") from None

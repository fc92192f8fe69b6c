"""What people type, read into the core's terms: the configuration, instants, amounts. A mistake is wrong use."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import typer

from lockpin_cli.options import config_path
from lockpin_core.config import Config, load
from lockpin_core.money import Money

_AGO = re.compile(r"([0-9]{1,9})(m|h|d|w)")
_STEP = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def load_config(context: typer.Context, own: Path | None, options: Mapping[str, str] | None = None) -> Config:
    """Read the configuration that is in force for a command. Raises ConfigError."""
    return load(config_path(context, own), options=options or {}, env=os.environ)


def instant(text: str, name: str, now: datetime) -> datetime:
    """Read "7d" (that long before now) or an ISO date or time; without a zone it is UTC."""
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            return now - int(ago[1]) * _STEP[ago[2]]
        read = datetime.fromisoformat(text)
        return (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        allowed = "a length such as 30m, 24h, 7d or 4w, or a date such as 2026-10-22, is allowed"
        raise typer.BadParameter(f'"{text}": {allowed}', param_hint=name) from None


def amount(text: str, name: str) -> Money:
    """Read a positive amount of dollars."""
    allowed = "a positive amount of dollars such as 5 or 0.25 is allowed"
    if text.lower() in ("none", "null", "unlimited"):
        allowed += "; a task without a limit of its own needs no budget"
    try:
        money = Money.parse(text) if re.fullmatch(r"[0-9]*\.?[0-9]+", text, re.ASCII) else None
    except ValueError as error:
        raise typer.BadParameter(f"{error}; {allowed}", param_hint=name) from None
    if money is None or money.nano <= 0:
        raise typer.BadParameter(f'"{text}": {allowed}', param_hint=name)
    return money

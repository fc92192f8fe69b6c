"""A budget's flags, read as the configuration reads its keys: the same values, the same words for what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import typer

from lockpin_core.budgets import FILTERS, Budget
from lockpin_core.config_budgets import KINDS_WITH, read_budget
from lockpin_core.config_yaml import Items, Node, Table, Text, Where
from lockpin_core.errors import ConfigError
from lockpin_core.windows import Window, period_text

_LISTS = ("alert_at", *FILTERS)

type Flags = Mapping[str, str | None]
"""By the configuration's key; None: not given. Several values stand with commas between them."""


def given(flags: Flags) -> list[str]:
    """List the keys of the flags that are there."""
    return [key for key, value in flags.items() if value is not None]


def joined(values: list[str] | None) -> str | None:
    """Put a flag that may be repeated into one text."""
    return ",".join(values) if values else None


def budget_of(name: str, flags: Flags, *, timezone: str, before: Budget | None = None) -> Budget:
    """Make the enforcing budget that flags say; what they leave out stays as it was before. Wrong use otherwise."""
    place = Where("budget", None, f'"{name}"')
    entries = {} if before is None else _entries(before, place)
    entries |= {key: _node(key, value) for key, value in flags.items() if value is not None}
    kind = entries.get("window")
    for key, kinds in KINDS_WITH.items():
        if flags.get(key) is None and not (isinstance(kind, Text) and kind.text in kinds):
            entries.pop(key, None)  # it was of the window before
    if isinstance(kind, Text) and kind.text == "rolling" and "period" not in entries:
        words = "a rolling window needs --period: 1h to 2160h, such as --period 24h, is allowed"
        raise typer.BadParameter(words, param_hint="--window")
    fixed: dict[str, Node] = {"name": Text(place, name, plain=False), "action": Text(place, "enforce")}
    try:
        made = read_budget(Table(place, entries | fixed), timezone)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None
    return made if before is None else replace(made, keys=before.keys)


def window_of(window: str | None, period: str | None) -> Window:
    """Read a task's `--window` and `--period`. Wrong use otherwise."""
    kind = "lifetime" if window is None else window
    flags = {"scope": "task", "limit_tokens": "1", "window": kind, "period": period}
    return budget_of("task", flags, timezone="UTC").window


def _node(key: str, value: str) -> Node:
    place = Where("flag", None, f"--{key.replace('_', '-')}")
    if key in FILTERS[2:] and value.strip().lower() == "none":
        return Items(place, ())
    if key in _LISTS:
        return Items(place, tuple(Text(place, part.strip(), plain=False) for part in value.split(",")))
    is_none = key.startswith("limit_") and value.strip().lower() == "none"
    return Text(place, "null", plain=True) if is_none else Text(place, value.strip(), plain=False)


def _entries(budget: Budget, place: Where) -> dict[str, Node]:
    """Write a budget as the configuration would."""
    window = budget.window
    texts = {
        "scope": budget.scope,
        "window": window.kind,
        "timezone": window.zone,
        "at": f"{window.at // 60:02}:{window.at % 60:02}",
        "anchor": str(window.anchor),
        "period": period_text(window),
        "limit_usd": None if budget.limit is None else budget.limit.exact(),
        "limit_tokens": None if budget.limit_tokens is None else str(budget.limit_tokens),
    }
    entries: dict[str, Node] = {key: Text(place, text) for key, text in texts.items() if text is not None}
    return entries | {key: Items(place, tuple(Text(place, each) for each in getattr(budget, key))) for key in _LISTS}

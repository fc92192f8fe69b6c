"""What a reload has changed, in the few words of one line. Knows configurations; reads and applies none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from lockpin_addons.banner import window_words
from lockpin_core.budgets import Budget
from lockpin_core.config import Config
from lockpin_core.money import Money
from lockpin_core.oidc import Issuer
from lockpin_core.windows import Window

NEEDS_RESTART = ("mode", "ledger", "durability")  # keys of what is built once
_MOST = 4  # things of one kind that are told one by one
_KEYS = {"limit": "limit_usd", "enforce": "action"}  # a budget's fields that have another name in the file


def changes(old: Config, new: Config) -> list[str]:
    """List what is another than it was: "daily_usd $5 → $10", "budget dev: action warn → enforce"."""
    return list(_changes(old, new, ""))


def fixed_changes(old: Config, new: Config) -> list[str]:
    """List the keys that changed although a running proxy cannot follow them."""
    return [name for name in NEEDS_RESTART if getattr(old, name) != getattr(new, name)]


def _changes(old: Any, new: Any, path: str) -> Iterator[str]:
    for field in fields(old):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before == after or (path == "" and field.name in ("file", "files")):
            continue
        name = path + field.name
        if name == "budgets":
            yield from _shortened(list(_budgets(before, after)), "budgets")
        elif is_dataclass(after) and not isinstance(after, Money | Window | Issuer):
            yield from _changes(
                before, after, "" if name == "near_cap" else f"{name}."
            )  # those keys stand by themselves
        elif isinstance(after, Mapping):
            yield f"{name}: {_entries(before, after)}"
        elif isinstance(after, tuple):
            yield f"{name}: {_entries(dict.fromkeys(before), dict.fromkeys(after))}"
        elif name.endswith("_ms"):
            yield f"{name.removesuffix('_ms')} {_duration(before)} → {_duration(after)}"
        else:
            yield f"{name} {_shown(before)} → {_shown(after)}"


def _budgets(before: tuple[Budget, ...], after: tuple[Budget, ...]) -> Iterator[str]:
    old, new = ({budget.name: budget for budget in budgets} for budgets in (before, after))
    for name in {**old, **new}:
        if name not in new:
            yield f"budget {name} removed"
        elif name not in old:
            yield f"budget {name} added"
        elif old[name] != new[name]:
            yield f"budget {name}: {', '.join(_fields(old[name], new[name]))}"


def _fields(old: Budget, new: Budget) -> Iterator[str]:
    for field in fields(old):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before != after:
            name = _KEYS.get(field.name, field.name)
            yield f"{name} {_shown(before, name)} → {_shown(after, name)}"


def _entries(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> str:
    def word(key: Any) -> str:
        return "removed" if key not in after else "changed" if key in before else "added"

    keys = [key for key in {**before, **after} if key not in before or key not in after or before[key] != after[key]]
    return ", ".join(_shortened([f"{key} {word(key)}" for key in keys], ""))


def _shortened(told: list[str], kind: str) -> Iterable[str]:
    if len(told) <= _MOST:
        return told
    return [*told[:_MOST], " ".join(filter(None, [f"{len(told) - _MOST} more", kind]))]


def _shown(value: Any, name: str = "") -> str:
    match value:
        case None:
            return "none"
        case bool():
            return ("enforce" if value else "warn") if name == "action" else str(value).lower()
        case int():
            return f"{value:,}"
        case Issuer():
            return value.url
        case Money():
            return f"${value.exact()}"
        case Window():
            return window_words(value).strip() or "lifetime"
        case tuple():
            return ", ".join(map(str, value)) or "none"
        case _:
            return str(value)


def _duration(ms: int) -> str:
    return f"{ms // 1000}s" if ms % 1000 == 0 else f"{ms}ms"

"""What a reload has changed, in the few words of one line. Knows configurations; reads and applies none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from lockpin_core.budgets import Budget
from lockpin_core.config import Config
from lockpin_core.money import Money

NEEDS_RESTART = ("mode", "ledger", "durability")  # keys of what is built once
_MOST_NAMES = 4


def changes(old: Config, new: Config) -> list[str]:
    """List what is another than it was: "daily_usd $10", "budgets dev, ops"."""
    return list(_changes(old, new, ""))


def fixed_changes(old: Config, new: Config) -> list[str]:
    """List the keys that changed although a running proxy cannot follow them."""
    return [name for name in NEEDS_RESTART if getattr(old, name) != getattr(new, name)]


def _changes(old: Any, new: Any, path: str) -> Iterator[str]:
    for field in fields(old):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if before == after or (path == "" and field.name == "file"):
            continue
        name = path + field.name
        if is_dataclass(after) and not isinstance(after, Money):
            yield from _changes(before, after, f"{name}.")
        elif field.name.endswith("_ms"):
            yield f"{name.removesuffix('_ms')} {_duration(after)}"
        else:
            yield f"{name} {_shown(before, after)}"


def _shown(before: Any, after: Any) -> str:
    match after:
        case None:
            return "none"
        case bool():
            return str(after).lower()
        case Money():
            return f"${after.exact()}"
        case Mapping():
            return _names(key for key in {**before, **after} if before.get(key) != after.get(key))
        case tuple():
            return _names(
                _name(one) for one in {**dict.fromkeys(before), **dict.fromkeys(after)} if _differs(one, before, after)
            )
        case _:
            return str(after)


def _differs(one: Any, before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    return (one in before) != (one in after)


def _name(one: Any) -> str:
    return one.name if isinstance(one, Budget) else str(one)


def _names(names: Iterator[str]) -> str:
    found = list(dict.fromkeys(names))
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    return ", ".join(found[:_MOST_NAMES]) + more


def _duration(ms: int) -> str:
    return f"{ms // 1000}s" if ms % 1000 == 0 else f"{ms}ms"

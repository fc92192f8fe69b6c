"""The `budgets:` of the configuration, and the two budgets that other keys make."""

from __future__ import annotations

from collections.abc import Sequence

from lockpin_core.budgets import FILTERS, SCOPES, Budget
from lockpin_core.config_values import (
    Reader,
    Section,
    amount,
    duration_within,
    folded,
    label,
    listed,
    one_of,
    optional,
    ratios,
    section,
    text,
    wall_minutes,
    whole,
    wrong,
    zone,
)
from lockpin_core.config_yaml import Items, Node, Table, Text, Where, shown
from lockpin_core.money import Money
from lockpin_core.names import TAG_ALLOWED, USER_ALLOWED, canonical_tag, canonical_user
from lockpin_core.secret_forms import holds_secret
from lockpin_core.windows import KINDS, MAX_PERIOD_MS, MIN_PERIOD_MS, Window

DAILY, OWN = "daily", "task"  # names that `daily_usd` and a task's own budget take

_KEYS = (
    *("name", "scope", "window", "limit_usd", "limit_tokens", "action", "alert_at", *FILTERS, "timezone"),
    *("at", "anchor", "period"),
)
_NO_TEAMS = (
    "there is no filter by team; scope: team gives each team an account of one size, and for sizes of their own give a "
    "team's keys a group or a tag (`lockpin key create --group web`) and name that under groups or tags"
)
_NO_KEYS = (
    "there is no filter by key; scope: key gives each key an account of one size, and `lockpin key create --limit-usd` "
    "one key a limit of its own"
)
_INSTEAD = {"teams": _NO_TEAMS, "team": _NO_TEAMS, "keys": _NO_KEYS, "key": _NO_KEYS}
KINDS_WITH = {"at": ("day", "week", "month"), "anchor": ("month",), "period": ("rolling",)}
_WHOLE = "whole names are allowed, and no patterns"
_period = duration_within(MIN_PERIOD_MS, MAX_PERIOD_MS, "a duration from 1h to 2160h, such as 24h, is allowed")


def daily_budget(limit: Money, timezone: str) -> Budget:
    """Make the budget that `daily_usd` stands for."""
    return Budget(DAILY, "machine", Window("day", timezone), limit=limit, enforce=True)


def own_budget(limit: Money | None, alert_at: tuple[str, ...], timezone: str) -> Budget:
    """Make what a task without a budget of its own gets; without a limit it only counts."""
    window = Window("lifetime", timezone)
    return Budget(OWN, "task", window, limit=limit, enforce=True, alert_at=alert_at, own=True)


def read_budgets(nodes: Sequence[Node], timezone: str, included: Sequence[Node] = ()) -> tuple[Budget, ...]:
    """Read the list. Raises ConfigError where a name is taken, a limit is missing, or a kind is not built.

    `included` are those of other files, whose windows go by UTC where they name no zone.
    """
    taken = {DAILY: "the budget of daily_usd", OWN: "every task's own budget"}
    made: dict[str, Where] = {}
    budgets: list[Budget] = []
    for node, clocks in [*((node, timezone) for node in nodes), *((node, "UTC") for node in included)]:
        keys = section(node, _KEYS, instead=_INSTEAD)
        budget = _budget(keys, clocks)
        place = keys.entries["name"].where
        first = made.setdefault(budget.name, place)
        if budget.name in taken or first is not place:
            whose = taken.get(budget.name) or f"a budget on {first.seen_from(place)}"
            raise place.error(f'is "{budget.name}", the name of {whose}; a name of its own is allowed')
        budgets.append(budget)
    return tuple(budgets)


def read_budget(node: Node, timezone: str) -> Budget:
    """Read one budget, whatever its name. Raises ConfigError."""
    return _budget(section(node, _KEYS, instead=_INSTEAD), timezone)


def budget_places(tree: Table) -> dict[str, Where]:
    """Give where in a file each budget is made, those of `daily_usd` and `task.budget_usd` too."""
    top = _by_key(tree)
    own = _by_key(top.get("task"))
    found = {DAILY: top.get("daily_usd"), OWN: own.get("budget_usd")}
    listed_there = top.get("budgets")
    for item in listed_there.items if isinstance(listed_there, Items) else ():
        name = _by_key(item).get("name")
        if name is not None:
            found[label(name)] = item
    return {name: node.where for name, node in found.items() if node is not None}


def _by_key(node: Node | None) -> dict[str, Node]:
    return {folded(key): entry for key, entry in node.entries.items()} if isinstance(node, Table) else {}


def _budget(keys: Section, timezone: str) -> Budget:
    budget = Budget(
        name=keys.need("name", label, "each budget has a name of its own"),
        scope=keys.need("scope", one_of(*SCOPES), f"{_either(SCOPES)} is allowed"),
        window=_window(keys, timezone),
        limit=keys.get("limit_usd", optional(amount), None),
        limit_tokens=keys.get("limit_tokens", optional(whole(1)), None),
        enforce=keys.get("action", one_of("warn", "enforce"), "warn") == "enforce",
        alert_at=keys.get("alert_at", ratios, ("0.8",)),
        models=keys.get("models", listed(_pattern), ()),
        providers=keys.get("providers", listed(_pattern), ()),
        users=keys.get("users", _named(_user), ()),
        groups=keys.get("groups", _named(label), ()),
        rings=keys.get("rings", _named(label), ()),
        projects=keys.get("projects", _named(label), ()),
        tags=keys.get("tags", _named(_tag), ()),
    )
    if budget.scope == "group" and not budget.groups:
        has, groups = _set_to(keys.where, "scope", "group"), _called(keys.where, "groups")
        raise keys.where.error(f"has {has} and no {groups}; a list of groups, each with an account, is allowed")
    if budget.limit is None and budget.limit_tokens is None:
        names = (_called(keys.where, name) for name in ("limit_usd", "limit_tokens"))
        raise keys.where.error(f"has no limit; {', '.join(names)} or both are allowed")
    return budget


def _window(keys: Section, timezone: str) -> Window:
    kind = keys.need("window", one_of(*KINDS), f"{_either(KINDS)} is allowed")
    for key, kinds in KINDS_WITH.items():
        node = keys.entries.get(key)
        if node is not None and kind not in kinds and not (isinstance(node, Text) and node.is_null):
            beside = (
                f"{_set_to(node.where, 'window', kind)}; {_called(node.where, key)} is allowed beside {_either(kinds)}"
            )
            raise node.where.error(f"is {shown(node)} beside {beside}")
    period_ms = keys.get("period", optional(_period), None)
    if kind == "rolling" and period_ms is None:
        has, period = _set_to(keys.where, "window", kind), _called(keys.where, "period")
        raise keys.where.error(f"has {has} and no {period}; a period from 1h to 2160h, such as 24h, is allowed")
    return Window(
        kind,
        keys.get("timezone", zone, timezone),
        at=keys.get("at", optional(wall_minutes), None) or 0,
        anchor=keys.get("anchor", optional(whole(1, 31)), None) or 1,
        period_ms=period_ms or 0,
    )


def _either(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _called(where: Where, key: str) -> str:
    """Name a key as it is given there: in a file, or, where no line is, by a flag of a command."""
    return key if where.line is not None else f"--{key.replace('_', '-')}"


def _set_to(where: Where, key: str, value: str) -> str:
    return f"{_called(where, key)}{':' if where.line is not None else ''} {value}"


def _named(read: Reader[str]) -> Reader[tuple[str, ...]]:
    """Read a list of whole names, each once."""

    def read_all(node: Node) -> tuple[str, ...]:
        for item in node.items if isinstance(node, Items) else ():
            if isinstance(item, Text) and "*" in item.text:
                raise wrong(item, _WHOLE)
        return tuple(dict.fromkeys(listed(read)(node)))

    return read_all


def _user(node: Node) -> str:
    user = canonical_user(text(node))
    if user is None:
        raise wrong(node, f"a user's id of {USER_ALLOWED} is allowed")
    return user


def _pattern(node: Node) -> str:
    found = text(node)
    if holds_secret(found):
        raise wrong(node, "a model's or a provider's name, or a pattern of it, is allowed")
    return found


def _tag(node: Node) -> str:
    tag = canonical_tag(text(node))
    if tag is None:
        raise wrong(node, f"a tag and its value, such as env=ci, are allowed, {TAG_ALLOWED}")
    return "=".join(tag)

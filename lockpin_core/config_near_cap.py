"""What `lockpin.yaml` says of calls near a limit and at it, of calls that fail, and of those that come too fast.

Its keys: `degrade`, `landing`, `approvals`, `breaker`, `loop`, `retry`, `fallbacks` and `cheaper`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from lockpin_core.config_files import content
from lockpin_core.config_values import (
    Section,
    amount,
    duration_ms,
    duration_within,
    folded,
    keyed,
    listed,
    one_of,
    optional,
    ratio,
    section,
    text,
    truth,
    whole,
    wrong,
)
from lockpin_core.config_yaml import Node, Table, Text, read
from lockpin_core.errors import ConfigError
from lockpin_core.money import Money

SECTIONS = {
    "degrade": ("at", "output_floor", "trim", "cache_5m"),
    "landing": ("calls", "max_output_tokens"),
    "approvals": ("wait",),
    "breaker": ("usd", "window", "cooldown", "by"),
    "loop": ("repeats", "action"),
    "retry": ("attempts", "base", "max", "after_max"),
}
INSTEAD = ("fallbacks", "cheaper")  # what a file in the place of either may say
_DAY_MS = 86_400_000
APPROVALS_MS = 120_000
_SPAN = duration_within(1000, _DAY_MS, "a duration from 1s to 24h is allowed")


@dataclass(frozen=True, slots=True)
class Degrade:
    """How calls are made smaller once so much of their task's own budget is spent."""

    on: bool = True
    at: str = "0.8"  # of the task's own limit, as decimal text
    output_floor: int = 256
    trim: bool = True
    cache_5m: bool = True


@dataclass(frozen=True, slots=True)
class Landing:
    """Room that is kept for so many last small calls of each task; 0: for none."""

    calls: int = 0
    max_output_tokens: int = 1024


@dataclass(frozen=True, slots=True)
class Breaker:
    """How much a task or a key may be charged within a window before its calls pause; None: any amount."""

    usd: Money | None = None
    window_ms: int = 60_000
    cooldown_ms: int = 300_000
    by: str = "task"  # task | key | both


@dataclass(frozen=True, slots=True)
class Loop:
    """After how many repetitions what is done about an agent that goes round in a circle."""

    repeats: int = 20
    action: str = "ask"  # ask | warn | stop | off


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a call is sent at most, and how long is waited between."""

    attempts: int = 1
    base_ms: int = 500
    max_ms: int = 20_000
    after_max_ms: int = 30_000  # the longest `Retry-After` that is obeyed


type Instead = Mapping[str, tuple[str, ...]]
"""provider/model, or provider/* → the provider/model to take instead, in order."""


@dataclass(frozen=True, slots=True)
class NearCap:
    """All of these keys."""

    degrade: Degrade = Degrade()
    landing: Landing = Landing()
    approvals_wait_ms: int = APPROVALS_MS  # 0: nobody is asked
    breaker: Breaker = Breaker()
    loop: Loop = Loop()
    retry: Retry = Retry()
    fallbacks: Instead = field(default_factory=dict)
    cheaper: Instead = field(default_factory=dict)
    files: tuple[Path, ...] = ()  # that fallbacks and cheaper were read from


def read_near_cap(top: Section, file: Path | None, included: Mapping[Path, str] | None) -> NearCap:
    """Read them. `included`: the contents of files that are named, where those are known. Raises ConfigError."""
    approvals = top.section("approvals", SECTIONS["approvals"])
    found = NearCap(
        degrade=_degrade(top),
        landing=_landing(top.section("landing", SECTIONS["landing"])),
        approvals_wait_ms=approvals.get("wait", duration_ms, APPROVALS_MS),
        breaker=_breaker(top.section("breaker", SECTIONS["breaker"])),
        loop=_loop(top.section("loop", SECTIONS["loop"])),
        retry=_retry(top.section("retry", SECTIONS["retry"])),
    )
    files = {} if included is None else dict(included)
    lists = {key: _instead(top.entries.get(key), key, file, files) for key in INSTEAD}
    named = tuple({path: None for _, path in lists.values() if path is not None})
    return replace(found, fallbacks=lists["fallbacks"][0], cheaper=lists["cheaper"][0], files=named)


def named_files(entries: Mapping[str, Node], file: Path) -> tuple[Path, ...]:
    """Name the files that stand in the place of `fallbacks` and `cheaper`."""
    nodes = [node for key, node in entries.items() if folded(key) in INSTEAD]
    return tuple({file.parent / node.text: None for node in nodes if isinstance(node, Text) and not node.is_null})


def _degrade(top: Section) -> Degrade:
    usual = Degrade()
    empty = Table(top.where.at(1, "degrade"))
    node, option = top.entries.get("degrade", empty), top.options.get("degrade")
    for switch in (node, option):
        if isinstance(switch, Text) and not switch.is_null and switch.text != "off":
            raise wrong(switch, f"off or a mapping of {', '.join(SECTIONS['degrade'])} is allowed")
    keys = section(empty if isinstance(node, Text) else node, SECTIONS["degrade"], path="degrade", options=top.options)
    return Degrade(
        on=option is None and not (isinstance(node, Text) and not node.is_null),
        at=keys.get("at", ratio, usual.at),
        output_floor=keys.get("output_floor", whole(1), usual.output_floor),
        trim=keys.get("trim", truth, usual.trim),
        cache_5m=keys.get("cache_5m", truth, usual.cache_5m),
    )


def _landing(keys: Section) -> Landing:
    usual = Landing()
    return Landing(
        calls=keys.get("calls", whole(0, 1000), usual.calls),
        max_output_tokens=keys.get("max_output_tokens", whole(1), usual.max_output_tokens),
    )


def _breaker(keys: Section) -> Breaker:
    usual = Breaker()
    return Breaker(
        usd=keys.get("usd", optional(amount), usual.usd),
        window_ms=keys.get("window", _SPAN, usual.window_ms),
        cooldown_ms=keys.get("cooldown", _SPAN, usual.cooldown_ms),
        by=keys.get("by", one_of("task", "key", "both"), usual.by),
    )


def _loop(keys: Section) -> Loop:
    usual = Loop()
    return Loop(
        repeats=keys.get("repeats", whole(2, 1000), usual.repeats),
        action=keys.get("action", one_of("ask", "warn", "stop", "off"), usual.action),
    )


def _retry(keys: Section) -> Retry:
    usual = Retry()
    return Retry(
        attempts=keys.get("attempts", whole(1, 10), usual.attempts),
        base_ms=keys.get("base", duration_ms, usual.base_ms),
        max_ms=keys.get("max", duration_ms, usual.max_ms),
        after_max_ms=keys.get("after_max", duration_ms, usual.after_max_ms),
    )


def _instead(
    node: Node | None, key: str, file: Path | None, files: dict[Path, str]
) -> tuple[Instead, Path | None]:  # fmt: skip
    none: dict[str, tuple[str, ...]] = {}
    if node is None or (isinstance(node, Text) and node.is_null):
        return none, None
    if not isinstance(node, Text):
        return _models(node), None
    path = (Path() if file is None else file.parent) / text(node)
    inside = section(_tree(node, path, files), INSTEAD)
    if key not in inside.entries:
        raise wrong(node, f"that file has no {key}: its key {key}, with a mapping as it may stand here, is needed")
    return inside.get(key, _models, none), path


def _tree(node: Text, path: Path, files: dict[Path, str]) -> Table:
    if path not in files:
        try:
            files[path] = content(path)
        except ConfigError as error:
            raise node.where.error(f"names a file that cannot be taken: {error}") from error
        except ValueError as error:  # no path has a NUL in it
            raise wrong(node, "a mapping, or the path of a JSON or YAML file, is allowed") from error
    return read(files[path], str(path))


def _models(node: Node) -> Instead:
    found = keyed(listed(_target))(node)
    if isinstance(node, Table):
        for name, entry in node.entries.items():
            if not _is_pair(name):
                raise entry.where.error('is for no model; "provider/model" or "provider/*" is allowed')
            if not found[name]:
                raise entry.where.error("names no model to take instead; at least one is allowed")
    return found


def _target(node: Node) -> str:
    name = text(node)
    if not _is_pair(name) or "*" in name:
        raise wrong(node, 'a model as "provider/model", such as openai/gpt-5.4-mini, is allowed')
    return name


def _is_pair(name: str) -> bool:
    provider, slash, model = name.partition("/")
    return bool(provider and slash and model) and not any(char.isspace() for char in name) and "*" not in provider

"""The start block: what is in force, in a few lines that a person reads before they trust it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lockpin_core import __version__
from lockpin_core.budgets import FILTERS, Budget, Standing
from lockpin_core.clock import stamp_after
from lockpin_core.config import Config
from lockpin_core.ledger.pauses import BreakerState, Paused, rule_words
from lockpin_core.secret_forms import without_secrets
from lockpin_core.windows import Window, period_text

_NAMED = 5  # whose calls pause


@dataclass(frozen=True, slots=True)
class Start:
    """What a start has come to."""

    config: Config
    addresses: Sequence[tuple[str, int]]
    authority: Path  # the CA's certificate
    price_date: str
    standings: Sequence[Standing]  # of this machine and the default task, raises included
    warnings: Sequence[str]
    by_command: bool  # started by `lockpin up`, not by mitmdump
    breaker: BreakerState | None = None  # None: it is not known
    others: Sequence[str] = ()  # where and how else it listens: "socks5 on 127.0.0.1:1080"


def say(line: str) -> None:
    """Print one line of ours; a terminal that is gone stops nothing."""
    words = f"lockpin: {' '.join(line.split())}"
    with contextlib.suppress(OSError, ValueError):
        encoding = sys.stdout.encoding or "utf-8"
        print(words.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def start_block(start: Start) -> list[str]:
    """Write the block."""
    where = ", ".join([*(f"http://{host}:{port}" for host, port in start.addresses), *start.others])
    return [
        f"lockpin {__version__} on {where}",
        f"  config   {start.config.file or 'none (defaults)'}",
        f"  ledger   {start.config.ledger}",
        *_team(start.config),
        *(f"  limit    {line}" for line in _limits(start)),
        *_breaker(start.breaker),
        f"  prices   of {start.price_date}",
        f"  CA       {start.authority}",
        *(f"  warning  {line}" for line in start.warnings),
    ]


def _team(config: Config) -> list[str]:
    if config.mode == "solo":
        return []
    hosts = ", ".join(config.allow_hosts) or "any public one"
    tokens = f", or a token of {config.oidc.url}" if config.oidc is not None else ""
    return [f"  team     each call to a provider needs a key{tokens}; other hosts that can be reached: {hosts}"]


def _limits(start: Start) -> list[str]:
    standing = {one.budget.name: one for one in start.standings}
    budgets = (*start.config.all_budgets(), start.config.task_default())
    lines = [_limit(start, budget, standing.get(budget.name)) for budget in budgets if has_limit(budget)]
    if not any(has_limit(budget) and budget.enforce for budget in budgets):
        lines.append("no other limit is enforced than those of tasks made by command (lockpin task list)")
    return lines


def _breaker(state: BreakerState | None) -> list[str]:
    """Say which breaker is in force, and whose calls pause since before this start."""
    if state is None or (state.rule is None and not state.pauses):
        return []
    by = ", set by command (lockpin breaker clear takes it back)" if state.by_command is not None else ""
    return [
        f"  breaker  {rule_words(state.rule)}{by}",
        *(f"  paused   {_paused(one)}" for one in state.pauses[:_NAMED]),
    ]


def _paused(paused: Paused) -> str:
    who, way = f'{paused.scope} "{without_secrets(paused.subject)}"', without_secrets(paused.way_on)
    if paused.until is None:
        return f"{who}, stopped; {way} lets it go on"
    return f"{who} until {stamp_after(paused.until)}; {way} lets it go on"


def has_limit(budget: Budget) -> bool:
    """Say whether a budget limits anything, enforced or not."""
    return budget.limit is not None or budget.limit_tokens is not None


def _limit(start: Start, budget: Budget, standing: Standing | None) -> str:
    limits: list[str] = []
    if budget.limit is not None:
        in_force = standing.limit if standing is not None and standing.limit is not None else budget.limit
        raised = in_force - budget.limit
        more = f" (${budget.limit.exact()} and ${raised.exact()} raised)" if raised else ""
        limits.append(f"${in_force.exact()}{more}")
    if budget.limit_tokens is not None:
        limits.append(f"{budget.limit_tokens:,} tokens")
    window = window_words(budget.window)
    action = "enforces" if budget.enforce else "warns only, never blocks"
    only = "".join(f", {name} {', '.join(named)}" for name in FILTERS if (named := getattr(budget, name)))
    who = "each task without a budget of its own" if budget.own else f"{budget.name} ({budget.scope}{only})"
    return f"{who}: {' and '.join(limits)}{window}, {action}{_how_to_change(start, budget)}"


def window_words(window: Window) -> str:
    """Write a window behind a limit: " a day", " in any 24h", " a month from day 15, 07:30 Europe/Berlin"."""
    match window.kind:
        case "lifetime":
            return ""
        case "rolling":
            return f" in any {period_text(window)}"
    day = f"day {window.anchor}, " if window.kind == "month" and window.anchor != 1 else ""
    is_utc_midnight = (window.zone, window.at) == ("UTC", 0)
    if is_utc_midnight and not day:
        return f" a {window.kind}"
    return f" a {window.kind} from {day}{window.at // 60:02}:{window.at % 60:02} {window.zone}"


def _how_to_change(start: Start, budget: Budget) -> str:
    if not budget.own and budget.name != "daily":
        return ""
    path = ("task", "budget_usd") if budget.own else ("daily_usd",)
    flag = f"lockpin up --{'-'.join(path).replace('_', '-')}" if start.by_command else f"--set lockpin_{'_'.join(path)}"
    return f" (change it: {'.'.join(path)} in lockpin.yaml, or {flag}{' ' if start.by_command else '='}USD)"

"""The budget statement: how each account stands against its limit. Pure; amounts are exact decimal numbers."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_DOWN, Decimal

from lockpin_core.budgets import Standing
from lockpin_core.clock import stamp
from lockpin_core.readers.figures import dollars
from lockpin_core.windows import shown

FIELDS = (
    *("budget", "key", "scope", "subject", "window", "action", "spent_usd", "held_usd", "limit_usd"),
    *("spent_tokens", "held_tokens", "limit_tokens", "used", "resets_at"),
)
_SHARE = Decimal("0.0001")


def statement(standings: Sequence[Standing]) -> list[dict[str, object]]:
    """List SPEC §13's objects of `budget status`."""
    return [_line(standing) for standing in standings]


def key_of(standing: Standing) -> str:
    """Name an account as `--key` does: "task:fix-login"."""
    return f"{standing.budget.scope}:{standing.subject}"


def action_of(standing: Standing) -> str:
    """Say what happens at the limit."""
    return "enforce" if standing.budget.enforce else "warn"


def used(standing: Standing) -> Decimal | None:
    """Give spent ÷ limit, of dollars or tokens whichever is more, to four decimals downwards; None without a limit.

    Held money is not in it.
    """
    limit = None if standing.limit is None else standing.limit.nano
    shares = [_share(standing.spent.nano, limit), _share(standing.spent_tokens, standing.limit_tokens)]
    return max((share for share in shares if share is not None), default=None)


def _share(spent: int, limit: int | None) -> Decimal | None:
    if limit is None:
        return None
    return (Decimal(spent) / limit).quantize(_SHARE, ROUND_DOWN) if limit > 0 else Decimal(1)


def _line(standing: Standing) -> dict[str, object]:
    return {
        "budget": standing.budget.name,
        "key": key_of(standing),
        "scope": standing.budget.scope,
        "subject": standing.subject,
        "window": shown(standing.budget.window),
        "action": action_of(standing),
        "spent_usd": dollars(standing.spent),
        "held_usd": dollars(standing.held),
        "limit_usd": dollars(standing.limit),
        "spent_tokens": standing.spent_tokens,
        "held_tokens": standing.held_tokens,
        "limit_tokens": standing.limit_tokens,
        "used": used(standing),
        "resets_at": None if standing.span.end is None else stamp(standing.span.end),
    }
